"""``python -m measure --device cuda:0 --out FILE``, beside a copy of this folder."""

import sys

from .command import main

sys.exit(main())

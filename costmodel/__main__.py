"""``python -m costmodel``, and the command ``costmodel``: whatever is loaded, an interruption ends in one line."""

import os
import sys


def run() -> None:
    """Answer the command line of this process and leave it."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # threads that wait for the next small matrix keep all cores busy
    try:
        from costmodel.cli import run as answer

        answer()
    except KeyboardInterrupt:  # before the command line was there to take it
        print("costmodel: interrupted", file=sys.stderr, flush=True)
        os._exit(130)  # an exit in good order would die of the signal where it met a class being made


if __name__ == "__main__":
    run()

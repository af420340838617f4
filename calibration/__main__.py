"""``python -m calibration``: measure a device or a network, fit constants, validate predictions."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

COMMANDS = {
    "measure": ("", "time operators and collectives on this machine's GPUs (needs torch)"),
    "fit": ("fit.command", "fit constants of software to measured runs and write them into the catalogue"),
    "operators": ("fit.operator_command", "fit devices to operators measured on them and report the errors"),
    "networks": ("fit.convolutions", "fit constants of convolutions to layer profiles and write them into the catalogue"),
    "collectives": ("fit.collectives", "fit what NCCL's model leaves out and report the errors of measured sweeps"),
    "meet": ("ledger.meet", "score a file of records at first sight and append it to the ledger of first contacts"),
    "errors": ("ledger.command", "set the error model on the ledger of first contacts and write it into the catalogue"),
    "validate": ("validate.command", "predict measured runs and report the errors"),
}
"""Module and purpose of each command."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 2 and one line on standard error for bad input."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["measure"]:
        # measure runs where only torch and NumPy are installed, so nothing else is imported for it
        from calibration.measure.command import main as measure

        return measure(words[1:])
    # folds are fitted side by side, a process on each core; read when NumPy is loaded, which is below
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from calibration.commands import run_command

    return run_command("calibration", __doc__, COMMANDS, words)


if __name__ == "__main__":
    sys.exit(main())

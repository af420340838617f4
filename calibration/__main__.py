"""``python -m calibration``: measure a device or a network, fit constants, validate predictions."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

COMMANDS = {
    "fit": ("fit.command", "fit constants of software to measured runs and write them into the catalogue"),
    "operators": ("fit.operator_command", "fit devices to operators measured on them and report the errors"),
    "networks": ("convolution.command", "fit constants of convolutions to layer profiles and write them into the catalogue"),
    "communication": ("convolution.communication", "predict the share of communication in PipeDream's figure 1"),
    "partitions": ("convolution.partitions", "find the configurations of PipeDream's table, and why others"),
    "meet": ("ledger.meet", "score a file of records at first sight and append it to the ledger of first contacts"),
    "errors": ("ledger.command", "set the error model on the ledger of first contacts and write it into the catalogue"),
    "validate": ("validate.command", "predict measured runs and report the errors"),
    "arena": ("arena.command", "the library and other tools, fetched by whoever asks, on the same measured runs"),
    "collectives": ("fit.collectives", "fit what NCCL's model leaves out and report the errors of measured sweeps"),
    "network": ("testbed.command", "exchanges of gradients on shaped links, measured and predicted (Linux, root, iproute2)"),
}
"""Module and purpose of each command."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SystemExit(_fail(message))


def _fail(message: str) -> int:
    print(f"calibration: error: {message}", file=sys.stderr)
    return 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 2 and one line on standard error for bad input."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["measure"]:
        # measure runs where only torch and NumPy are installed, so nothing else is imported for it
        from calibration.measure.command import main as measure

        return measure(arguments[1:])
    # folds are fitted side by side, a process on each core; read when NumPy is loaded, which is below
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from costmodel.text.errors import CostModelError

    parser = _Parser(prog="python -m calibration", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)
    commands.add_parser("measure", help="time operators and collectives on this machine's GPUs (needs torch)")
    for name, (module, text) in COMMANDS.items():
        command = commands.add_parser(name, help=text)
        if arguments[:1] == [name]:  # each needs other packages, so the others are not imported
            importlib.import_module(f"calibration.{module}").add_arguments(command)
    try:
        chosen = parser.parse_args(arguments)
        command_module = importlib.import_module(f"calibration.{COMMANDS[chosen.command][0]}")
        return int(command_module.run(chosen))
    except CostModelError as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}")


if __name__ == "__main__":
    sys.exit(main())

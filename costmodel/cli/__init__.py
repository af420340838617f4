"""The command line: a question in, tables for people or JSON for machines out."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence

from costmodel import __version__
from costmodel.cli import (
    catalogue,
    chains,
    codes,
    communication,
    dragging,
    estimating,
    figures,
    launchers,
    new,
    pipelines,
    searching,
    training,
)
from costmodel.cli.arguments import Misused, Parser
from costmodel.errors import CostModelError

FAMILIES = (searching, estimating, pipelines, communication, chains, catalogue, launchers, dragging, new, figures, training)
"""Modules that add commands, in the order of the help; each loads what it answers with when it is asked."""
LONGEST_MESSAGE = 1000


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="costmodel",
        allow_abbrev=False,
        description="Which parallel plan of a training run is fastest and fits in memory.",
        epilog="Exit codes: 0 answered, 1 no plan fits, 2 bad input, 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"costmodel {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for family in FAMILIES:
        family.add(commands)
    return parser


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        import difflib

        option = unknown[0].partition("=")[0]
        fields = [f"--{name.replace('_', '-')}" for name in vars(arguments) if name not in ("command", "run", "model")]
        near = difflib.get_close_matches(option, fields, n=1) if option.startswith("-") else []
        hint = f"; did you mean {near[0]}?" if near else f" (`costmodel {arguments.command} --help` lists the options)"
        raise Misused(f"unknown argument {option[:80]!r}{hint}")
    arguments.command_line = shlex.join(["costmodel", *(sys.argv[1:] if argv is None else argv)])
    return arguments


def _one_line(message: str) -> str:
    line = " ".join(message.split())
    line = "".join(letter if letter.isprintable() else "?" for letter in line)
    return line if len(line) <= LONGEST_MESSAGE else line[: LONGEST_MESSAGE - 3] + "..."


def _refuse(message: str) -> int:
    if sys.stderr is not None:
        print(f"costmodel: error: {_one_line(message)}", file=sys.stderr)
    return codes.BAD_INPUT


def _drop_output() -> None:
    """Nobody reads stdout any more: let what is left of it go nowhere, also at exit."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError, AttributeError):
        pass


def main(argv: Sequence[str] | None = None) -> int:
    """Answer one command line.

    Parameters
    ----------
    argv : arguments; those of the process if not given

    Returns
    -------
    int
        exit code: 0 answered, 1 no plan fits, 2 bad input, 130 interrupted
    """
    try:
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="replace")
        arguments = _parse(argv)
        code: int = arguments.run(arguments)
        for note in getattr(arguments, "notes", ()):
            if sys.stderr is not None:
                print(f"costmodel: note: {_one_line(note)}", file=sys.stderr)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except SystemExit as stop:  # --help and --version
        return int(stop.code or 0)
    except KeyboardInterrupt:
        return codes.INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return codes.PIPE_CLOSED
    except CostModelError as error:
        return _refuse(str(error))
    except OSError as error:
        try:
            sys.stdout.flush()
        except (OSError, AttributeError):
            _drop_output()
        where = f"{error.filename}: " if error.filename else ""
        return _refuse(f"{where}{error.strerror or error}")
    except ArithmeticError as error:
        return _refuse(f"numbers too large or too small to compute with ({error})")
    except MemoryError:
        return _refuse("not enough memory; try fewer values along some dimension")


__all__ = ["main"]

"""Files that a command writes: one option for all of them, by the ending of the name."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from costmodel.cli.arguments import OLD, Misused, Parser
from costmodel.text.checks import choice

if TYPE_CHECKING:
    from costmodel.simulation.playback import Timeline
    from costmodel.simulation.played_step import Simulation
    from costmodel.traces.pricing import TraceEstimate

ENDINGS = {"csv": ".csv", "html": ".html", "png": ".png", "perfetto": ".json"}
"""Kinds of files that are told by their ending."""
FILES = (*ENDINGS, "write", "output")
"""Options that name a file to write."""


def add_files(parser: Parser, group: argparse._ArgumentGroup, **kinds: str) -> None:
    """The option that names files to write, and for ``--help-all`` one for each kind of them.

    Parameters
    ----------
    parser, group : of the command, and of its output
    kinds : of `ENDINGS`, and ``write`` for a launch file: what the file holds
    """
    told = [f"{ENDINGS[kind]} {what}" for kind, what in kinds.items() if kind in ENDINGS]
    told += [f"FORMAT:FILE {kinds['write']}"] if "write" in kinds else []
    group.add_argument("-o", "--output", *OLD, action="append", default=[], dest="outputs", metavar="FILE",
                       help=f"also write, by the file's ending: {'; '.join(told)}")  # fmt: skip
    for kind, what in kinds.items():
        shown = "FORMAT:FILE" if kind == "write" else "FILE"
        parser.rarely(group.add_argument(f"--{kind}", metavar=shown, help=f"as -o with such an ending: {what}"))


def add_file(parser: argparse.ArgumentParser | argparse._ArgumentGroup, what: str, required: bool = True) -> None:
    """The option that names the one file which a command is there to write.

    Parameters
    ----------
    parser : of the command
    what : the file holds
    required : whether it has to be given
    """
    parser.add_argument("-o", "--output", *OLD, required=required, metavar="FILE", help=what)


def check_files(arguments: argparse.Namespace) -> None:
    """Sort the files by their endings, and refuse what can't be written before anything is computed.

    Parameters
    ----------
    arguments : with what `add_files` or `add_file` adds
    """
    for path in getattr(arguments, "outputs", ()):
        _no_dash("output", path)
        kind = _kind(path, arguments)
        if getattr(arguments, kind) is not None:
            raise Misused(f"--output {path[:200]!r}: such a file is asked for twice")
        setattr(arguments, kind, path)
    if getattr(arguments, "figure", None) is not None and arguments.png is None:
        raise Misused("--figure names what --png writes: give --png FILE too")
    if getattr(arguments, "figure", None) is not None:
        choice("figure", arguments.figure, arguments.figures)
    for option in FILES:
        path = getattr(arguments, option, None)
        if path is not None:
            _no_dash(option, path)
            _check_place(option, path)


def _no_dash(option: str, path: str) -> None:
    """Refuse the dash by which other programs mean the screen: here it would be a file of that name."""
    if path == "-":
        raise Misused(f"--{option} '-': expected the name of a file; without one tables go to the screen, with --json as JSON")


def _kind(path: str, arguments: argparse.Namespace) -> str:
    """What kind of file a name asks for."""
    known = [kind for kind in ENDINGS if hasattr(arguments, kind)]
    for kind in known:
        if path.lower().endswith(ENDINGS[kind]) and ":" not in path[2:]:
            return kind
    if hasattr(arguments, "write") and ":" in path:
        return "write"
    endings = ", ".join(ENDINGS[kind] for kind in known)
    also = ", or FORMAT:FILE for a launch file" if hasattr(arguments, "write") else ""
    raise Misused(f"--output {path[:200]!r}: expected a name that ends in one of {endings}{also}")


def _check_place(option: str, path: str) -> None:
    place = path.partition(":")[2].rstrip("/\\") if option == "write" else path
    folder = os.path.dirname(place) or "."
    if not os.path.isdir(folder):
        raise Misused(f"--{option} {path[:200]!r}: expected a file in a folder that exists")
    if option != "write" and os.path.isdir(place):
        raise Misused(f"--{option} {path[:200]!r}: expected a file, which this folder isn't")


def perfetto_file(path: str | None, played: Timeline | Simulation | TraceEstimate) -> list[str]:
    """Write what was played for Perfetto, where that was asked for, and say what the file is.

    Parameters
    ----------
    path : of the file; None where none was asked for
    played : a timeline, a step played out, or a traced one
    """
    if not path:
        return []
    from costmodel.interop.perfetto import write_perfetto

    write_perfetto(played, path)
    return [f"{path} (a trace for ui.perfetto.dev)"]

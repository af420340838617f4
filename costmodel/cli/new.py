"""`costmodel new`: a commented TOML file to start from, or records of measured runs."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os

from costmodel.cli import codes
from costmodel.cli.arguments import Commands, Misused
from costmodel.cli.output import print_page, written

KINDS = ("cluster", "model", "device", "framework", "run")
RUNS = (".jsonl", ".csv")
"""Endings of files of records."""


def add(commands: Commands) -> None:
    """Add the command."""
    writing = commands.add_parser(
        "new", help="write a commented TOML file to start from, or records of measured runs",
        examples=("costmodel new cluster ours.toml", "costmodel new run ours.jsonl"),
    )  # fmt: skip
    writing.add_argument("kind", choices=KINDS, metavar="KIND", help=f"one of {', '.join(KINDS)}")
    writing.add_argument(
        "file", metavar="FILE", nargs="?",
        help="to write, ending in .toml, of runs in .jsonl or .csv; one that is there is left alone. Without it, every key that "
        "a record of a run may have, with its unit",
    )  # fmt: skip
    writing.set_defaults(run=_write)


def _write(arguments: argparse.Namespace) -> int:
    if arguments.file is None:
        if arguments.kind != "run":
            raise Misused(f"new {arguments.kind}: expected FILE, a name that ends in .toml")
        from costmodel.catalogue.records.schema import described

        print_page(described())
        return codes.ANSWERED
    text = _template(arguments.kind, arguments.file)
    try:
        with open(arguments.file, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise Misused(f"{arguments.file[:200]!r} is there already and is left alone") from None
    options = {"model": "as MODEL", "framework": "with --framework", "run": "to load_runs and calibrate"}
    option = options.get(arguments.kind, f"with --{arguments.kind}")
    what = "measured runs" if arguments.kind == "run" else f"a {arguments.kind}"
    print_page(written(f"{os.path.normpath(arguments.file)} ({what}, to be given {option})"))
    return codes.ANSWERED


def _template(kind: str, file: str) -> str:
    """What a new file holds."""
    from importlib import resources

    if kind != "run" and not file.endswith(".toml"):
        raise Misused(f"{file[:200]!r}: expected a name that ends in .toml, as files are told by it")
    if kind == "run" and not file.endswith(RUNS):
        raise Misused(f"{file[:200]!r}: expected a name that ends in {' or '.join(RUNS)}, as files are told by it")
    name = "run.jsonl" if kind == "run" else f"{kind}.toml"
    text = resources.files("costmodel.catalogue").joinpath("templates", name).read_text(encoding="utf-8")
    return _table(text) if file.endswith(".csv") else text


def _table(lines: str) -> str:
    """Records as a table, the keys of all of them as its columns."""
    from costmodel.catalogue.records.reading import dotted

    rows = [dotted(json.loads(line)) for line in lines.splitlines()]
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(dict.fromkeys(key for row in rows for key in row)), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()

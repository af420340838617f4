"""`costmodel new`: a commented TOML file to start from."""

from __future__ import annotations

import argparse
import os

from costmodel.cli import codes
from costmodel.cli.arguments import Commands, Misused
from costmodel.cli.output import print_page, written

KINDS = ("cluster", "model", "device", "framework")


def add(commands: Commands) -> None:
    """Add the command."""
    writing = commands.add_parser(
        "new", help="write a commented TOML file to start from", examples=("costmodel new cluster ours.toml",)
    )
    writing.add_argument("kind", choices=KINDS, metavar="KIND", help=f"one of {', '.join(KINDS)}")
    writing.add_argument("file", metavar="FILE", help="to write, ending in .toml; one that is there is left alone")
    writing.set_defaults(run=_write)


def _write(arguments: argparse.Namespace) -> int:
    from importlib import resources

    if not arguments.file.endswith(".toml"):
        raise Misused(f"{arguments.file[:200]!r}: expected a name that ends in .toml, as files are told by it")
    template = resources.files("costmodel.catalogue").joinpath("templates", f"{arguments.kind}.toml")
    text = template.read_text(encoding="utf-8")
    try:
        with open(arguments.file, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise Misused(f"{arguments.file[:200]!r} is there already and is left alone") from None
    option = {"model": "as MODEL", "framework": "with --framework"}.get(arguments.kind, f"with --{arguments.kind}")
    print_page(written(f"{os.path.normpath(arguments.file)} (a {arguments.kind}, to be given {option})"))
    return codes.ANSWERED

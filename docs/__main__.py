"""`python -m docs refresh`: the README's answers and the book, made anew; `python -m docs site`: the static site."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m docs", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    refresh = commands.add_parser("refresh", help="README's answers and picture, and all notebooks: run, saved with images")
    refresh.set_defaults(notebooks=[])
    commands.add_parser("readme", help="README's answers and picture alone")
    books = commands.add_parser("notebooks", help="notebooks alone: all of them, or those named")
    books.add_argument("notebooks", nargs="*", type=Path, metavar="FILE")
    site = commands.add_parser("site", help="the static site (extra docs)")
    site.add_argument("-o", "--output", type=Path, default=Path("build/site"), metavar="FOLDER", help="default: build/site")
    arguments = parser.parse_args(argv)
    if arguments.command in ("refresh", "readme"):
        from docs import front

        front.write()
    if arguments.command in ("refresh", "notebooks"):
        from docs import book

        book.write(arguments.notebooks)
    if arguments.command == "site":
        from docs import site as built

        return built.build(arguments.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())

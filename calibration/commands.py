"""Commands of a package, of which the one that is asked for alone is loaded: each needs other packages."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from costmodel.text.errors import CostModelError


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SystemExit(_fail(self.prog, message))


def _fail(program: str, message: str) -> int:
    print(f"{program.split()[2]}: error: {message}", file=sys.stderr)
    return 2


def run_command(package: str, about: str | None, commands: Mapping[str, tuple[str, str]], words: Sequence[str]) -> int:
    """Run a command: of each the module that has its arguments and runs it, empty where another has, and its purpose.

    The exit code: 2, and one line on standard error, for bad input.
    """
    parser = _Parser(prog=f"python -m {package}", description=about)
    parsers = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)
    for name, (module, text) in commands.items():
        command = parsers.add_parser(name, help=text)
        if module and list(words[:1]) == [name]:
            importlib.import_module(f"{package}.{module}").add_arguments(command)
    try:
        chosen = parser.parse_args(words)
        return int(importlib.import_module(f"{package}.{commands[chosen.command][0]}").run(chosen))
    except CostModelError as error:
        return _fail(parser.prog, str(error))
    except OSError as error:
        return _fail(parser.prog, f"{error.filename}: {error.strerror}")

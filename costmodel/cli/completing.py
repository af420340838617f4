"""`costmodel completion`: a shell that completes commands, options and names of the catalogue."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from costmodel.catalogue import loader, software
from costmodel.catalogue.loader import Kind
from costmodel.cli import codes
from costmodel.cli.arguments import Commands, Misused, plan_fields, yes
from costmodel.cli.output import print_text
from costmodel.description.fields import Flag

SHELLS = ("bash", "zsh")
CHOICES: dict[str, Kind] = {"model": "model", "cluster": "cluster", "device": "device"}
"""Arguments that take a name of the catalogue, and of which kind."""
FEW = 8
"""Whole numbers below which each is offered."""


def add(commands: Commands) -> None:
    """Add the command."""
    completing = commands.add_parser(
        "completion", help="a script that has a shell complete commands, options and names (extra completion)",
        examples=(
            'eval "$(costmodel completion bash)"   # in ~/.bashrc',
            "costmodel completion zsh > ~/.zfunc/_costmodel",
        ),
    )  # fmt: skip
    completing.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"one of {', '.join(SHELLS)}")
    completing.set_defaults(run=_complete)


def _complete(arguments: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError:
        raise Misused("completion needs the extra completion: pip install 'costmodel[completion]'") from None
    from costmodel.cli import build_parser

    parser = build_parser()
    _offer(parser)
    print_text(shtab.complete(parser, shell=arguments.shell))
    return codes.ANSWERED


def _offer(parser: argparse.ArgumentParser) -> None:
    """Say of every argument what may stand there: what is only shown to the shell, and not checked."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                _offer(child)
        elif action.choices is None and (offered := tuple(_offered(action))):
            action.choices = offered


def _offered(action: argparse.Action) -> Iterable[str]:
    if action.dest in CHOICES:
        return loader.names(CHOICES[action.dest])
    if action.dest == "framework":
        return software.framework_names()
    row = plan_fields().get(action.dest)
    if row is not None and (offered := row.kind.choices):
        return ("yes", "no") if offered == Flag.choices else map(str, offered)
    if row is not None and row.kind.bounds and row.kind.bounds[1] < FEW:
        return map(str, range(int(row.kind.bounds[0]), int(row.kind.bounds[1]) + 1))
    return ("yes", "no") if action.type is yes else ()

"""`costmodel warmup`: machine code compiled ahead, so that no first search or simulation waits for it."""

from __future__ import annotations

import argparse
import time

from costmodel.cli import codes
from costmodel.cli.arguments import Commands
from costmodel.cli.output import print_json, print_page
from costmodel.text.units import counted


def add(commands: Commands) -> None:
    """Add the command."""
    warming = commands.add_parser(
        "warmup", help="compile ahead what searches and simulations run on, and keep it for this user",
        examples=("costmodel warmup", "costmodel warmup --json"),
    )  # fmt: skip
    warming.add_argument("--json", action="store_true", help="JSON instead of a line")
    warming.set_defaults(run=_warmup)


def _warmup(arguments: argparse.Namespace) -> int:
    from costmodel.compilation import programs as rows
    from costmodel.compilation.cache import cache_folder
    from costmodel.simulation import pipeline_kernel as events
    from costmodel.simulation import step_kernel as step_events

    started = time.perf_counter()
    programs = rows.compile_all()
    for loop in (events, step_events):
        loop.compile_ahead()
        programs += 1
    seconds = time.perf_counter() - started
    folder = cache_folder()
    if arguments.json:
        print_json({"programs": programs, "folder": None if folder is None else str(folder), "compile_time_s": seconds})
        return codes.ANSWERED
    kept = f"kept in {folder}" if folder is not None else "not kept: no folder can be written (COSTMODEL_CACHE_DIR names one)"
    print_page(f"{counted(programs, 'program')} compiled or loaded in {seconds:.2f} s, {kept}")
    return codes.ANSWERED

"""`costmodel whatif`: a page to drag and to send."""

from __future__ import annotations

import argparse

from costmodel.arithmetic.named_tuples import Row
from costmodel.cli import codes
from costmodel.cli.arguments import Commands, chosen, number
from costmodel.cli.files import add_file, check_files
from costmodel.cli.output import heading, print_page, written
from costmodel.cli.question import USAGE, add_question, read_asked_model, read_hardware

ASKED = "llama3-8b --cluster dgx-h100 --global-batch 64 --seq-len 8192"
"""A question of the examples."""


def add(commands: Commands) -> None:
    """Add the command."""
    dragging = commands.add_parser(
        "whatif", usage=USAGE % "whatif" + " -o FILE", allow_abbrev=False,
        help="one HTML file: the ranking, with sliders for bandwidths, memory, efficiency and price",
        examples=(f"costmodel whatif {ASKED} -o page.html",),
    )  # fmt: skip
    add_question(dragging, several=True)
    add_file(dragging, "the page to write, as page.html")
    dragging.add_argument("--price", type=number, metavar="X", help="of a GPU-hour, where the slider starts (default: 2.5)")
    dragging.set_defaults(run=_whatif)


def _whatif(arguments: argparse.Namespace) -> int:
    import os

    from costmodel.page import whatif
    from costmodel.text.units import counted, format_bytes

    check_files(arguments)
    model, cluster = read_asked_model(arguments), read_hardware(arguments)
    tried: Row = {name: list(dict.fromkeys(values)) for name, values in chosen(arguments).items()}
    if arguments.price is not None:
        tried["price"] = arguments.price
    made = whatif(
        model, cluster, global_batch=arguments.global_batch, seq_len=arguments.seq_len, framework=arguments.framework,
        command=arguments.command_line, **tried,
    )  # fmt: skip
    made.write_html(arguments.output)
    size, found = format_bytes(os.path.getsize(arguments.output)), made.candidates.found
    fits = "" if found.ranked else "; no plan fits, so it starts from the nearest"
    legal = counted(found.evaluated, "legal plan")
    print_page(
        heading(
            model, cluster, found.framework, work=(arguments.global_batch, arguments.seq_len), departures=found.departures
        ),
        written(f"{arguments.output} ({size}, {len(made.candidates.plans):,} of {legal}{fits})"),
    )
    return codes.ANSWERED if found.ranked else codes.NOTHING_FITS

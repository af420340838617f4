"""`costmodel whatif`: a page to drag and to send."""

from __future__ import annotations

import argparse

from costmodel.cli import codes
from costmodel.cli.arguments import Commands, Misused, chosen, number
from costmodel.cli.output import print_page
from costmodel.cli.question import USAGE, add_question, read_asked_model, read_hardware
from costmodel.records import Row

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
    dragging.add_argument("-o", "--output", required=True, metavar="FILE", help="the page to write, as page.html")
    dragging.add_argument("--price", type=number, metavar="X", help="of a GPU-hour, where the slider starts (default: 2.5)")
    dragging.set_defaults(run=_whatif)


def _whatif(arguments: argparse.Namespace) -> int:
    import os

    from costmodel.page import whatif

    if os.path.isdir(arguments.output) or not os.path.isdir(os.path.dirname(arguments.output) or "."):
        raise Misused(f"--output {arguments.output[:200]!r}: expected a file in a folder that exists")
    model, cluster = read_asked_model(arguments), read_hardware(arguments)
    tried: Row = {name: list(dict.fromkeys(values)) for name, values in chosen(arguments).items()}
    if arguments.price is not None:
        tried["price"] = arguments.price
    made = whatif(
        model, cluster, global_batch=arguments.global_batch, seq_len=arguments.seq_len, framework=arguments.framework,
        command=arguments.command_line, **tried,
    )  # fmt: skip
    made.write_html(arguments.output)
    size, found = os.path.getsize(arguments.output) / 1e6, made.candidates.found
    fits = "" if found.ranked else "; no plan fits, it starts from the nearest"
    print_page(
        f"{arguments.output}: {size:.1f} MB, {len(made.candidates.plans):,} of {found.evaluated:,} legal plans of "
        f"{model.name} on {cluster.gpus} GPUs of {cluster.name}{fits}"
    )
    return codes.ANSWERED if found.ranked else codes.NOTHING_FITS

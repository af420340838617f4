"""`costmodel whatif`: a page to drag and to send."""

from __future__ import annotations

import argparse
from typing import Any

from costmodel.cli import codes
from costmodel.cli.arguments import Commands, Misused, chosen, gpus_of, number, read_cluster, read_model
from costmodel.cli.output import print_page
from costmodel.cli.question import USAGE, add_question


def add(commands: Commands) -> None:
    """Add the command."""
    dragging = commands.add_parser(
        "whatif", usage=USAGE % "whatif" + " -o FILE", allow_abbrev=False,
        help="one HTML file: the ranking, with sliders for bandwidths, memory, efficiency and price",
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
    model, cluster = read_model(arguments.model), read_cluster(arguments.cluster)
    gpus = gpus_of(arguments, cluster)
    if gpus is not None:
        cluster = cluster.with_gpus(gpus)
    tried: dict[str, Any] = {name: list(dict.fromkeys(values)) for name, values in chosen(arguments).items()}
    if arguments.price is not None:
        tried["price"] = arguments.price
    made = whatif(
        model, cluster, global_batch=arguments.global_batch, seq_len=arguments.seq_len, framework=arguments.framework,
        command=_command(arguments), **tried,
    )  # fmt: skip
    made.write_html(arguments.output)
    size = os.path.getsize(arguments.output) / 1e6
    fits = "" if made.candidates.found.ranked else "; no plan fits, it starts from the nearest"
    print_page(
        f"{arguments.output}: {size:.1f} MB, {len(made.candidates.plans):,} of {made.candidates.legal:,} legal plans of "
        f"{model.name} on {cluster.gpus} GPUs of {cluster.name}{fits}"
    )
    return codes.ANSWERED if made.candidates.found.ranked else codes.NOTHING_FITS


def _command(arguments: argparse.Namespace) -> str:
    """The command line that asks the same."""
    import shlex

    words = ["costmodel", "whatif", arguments.model]
    for name, value in vars(arguments).items():
        if name in ("command", "run", "model") or value is None:
            continue
        values = value if isinstance(value, list) else [value]
        shown = ",".join("-".join(one) if isinstance(one, tuple) else str(one) for one in values)
        words += ["-o" if name == "output" else f"--{name.replace('_', '-')}", shown]
    return shlex.join(words)

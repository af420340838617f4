"""`costmodel whatif`, a page to drag and to send; `costmodel site`, one of all the catalogue for any host of files."""

from __future__ import annotations

import argparse
import os

from costmodel.arithmetic.named_tuples import Row
from costmodel.catalogue.clusters import load_cluster
from costmodel.catalogue.loader import load_model, names
from costmodel.cli import codes
from costmodel.cli.arguments import Commands, chosen, number
from costmodel.cli.calibrated import add_calibration
from costmodel.cli.files import add_file, check_files
from costmodel.cli.output import heading, print_page, written
from costmodel.cli.question import USAGE, add_question, read_asked_model, read_hardware
from costmodel.text.units import counted, format_bytes

ASKED = "llama3-8b --cluster dgx-h100 --global-batch 64 --seq-len 8192"
"""A question of the examples."""


def add(commands: Commands) -> None:
    """Add the command."""
    dragging = commands.add_parser(
        "whatif", usage=USAGE % "whatif" + " [-o FILE]", allow_abbrev=False,
        help="one HTML file: the ranking, with sliders for bandwidths, memory, efficiency and price",
        examples=(f"costmodel whatif {ASKED} -o page.html",),
    )  # fmt: skip
    add_question(dragging, several=True)
    add_file(dragging, "the page to write (default: whatif.html)", required=False)
    dragging.set_defaults(output="whatif.html")
    dragging.add_argument("--price", type=number, metavar="X", help="of a GPU-hour, where the slider starts (default: 2.5)")
    dragging.set_defaults(run=_whatif)

    hosting = commands.add_parser(
        "site", usage="costmodel site -o FOLDER [--model M,...] [--cluster C,...]",
        help="such a page of every model on every cluster, as a folder for any host of files",
        examples=("costmodel site -o site --model llama3-8b --cluster dgx-h100 --book https://ours.example/book/",),
    )  # fmt: skip
    hosting.add_argument("-o", "--output", required=True, metavar="FOLDER", help="where it is written")
    hosting.add_argument("--model", metavar="M,...", help="models of the catalogue (default: all)")
    hosting.add_argument("--cluster", metavar="C,...", help="clusters of the catalogue (default: all)")
    hosting.add_argument(
        "--book", metavar="FOLDER|URL", help="the book and its formulas, built by `python -m docs site`: copied beside, or led to"
    )
    add_calibration(hosting, several=True)
    hosting.set_defaults(run=_site)


def _whatif(arguments: argparse.Namespace) -> int:
    from costmodel.page import whatif

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
        heading(model, cluster, found.framework, work=(arguments.global_batch, arguments.seq_len), departures=found.departures),
        written(f"{arguments.output} ({size}, {len(made.candidates.plans):,} of {legal}{fits})"),
    )
    return codes.ANSWERED if found.ranked else codes.NOTHING_FITS


def _site(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from costmodel.catalogue.calibrations import device_of_calibration
    from costmodel.page.site import build, left_out, take_book

    models = arguments.model.split(",") if arguments.model else list(names("model"))
    clusters = arguments.cluster.split(",") if arguments.cluster else list(names("cluster"))
    for name in models:
        load_model(name)  # an unknown one is refused before anything is written
    for name in clusters:
        load_cluster(name)
    for path in arguments.calibration:
        device_of_calibration(path)
    folder, address = Path(arguments.output), str(arguments.book or "")
    if address.startswith(("https://", "http://")):
        address = f"{address.removesuffix('/')}/"
    elif address:
        address = take_book(folder, Path(address))
    built = build(folder, models, clusters, calibrations=arguments.calibration, book=address)
    refused = list(left_out(built))
    size = sum(file.stat().st_size for file in Path(arguments.output).rglob("*") if file.is_file())
    has = f"{counted(len(built.models), 'model')}, {counted(len(built.clusters), 'cluster')}, {format_bytes(size)}"
    print_page(*(["\n".join(["Left out:", *refused])] if refused else []),
               written(f"{Path(arguments.output) / 'index.html'} ({has})"))  # fmt: skip
    return codes.ANSWERED if built.clusters else codes.NOTHING_FITS

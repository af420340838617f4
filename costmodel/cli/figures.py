"""What commands write for people who look: an answer's figures as a page or an image, `costmodel report`, `costmodel app`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from costmodel.cli import codes
from costmodel.cli.arguments import Commands, Misused, Parser, chosen, whole
from costmodel.cli.calibrated import add_calibration
from costmodel.cli.files import add_file, check_files
from costmodel.cli.question import USAGE, add_question, read_asked_model, read_hardware
from costmodel.evaluation.estimation import Estimate, sentence
from costmodel.text.units import counted

if TYPE_CHECKING:
    from costmodel.evaluation.plan_search import SearchResult

PORT = 8050
OF_PLAN, OF_SEARCH = ("time", "memory", "sensitivity", "roofline"), ("difference", "frontier")
"""Figures of `costmodel.plots.answers`: of any answer, and of a search besides."""


PAGE, IMAGE = "all figures, on one page that needs no network", "one figure (extra png, and Chromium or Chrome)"


def add_figure(parser: Parser, output: argparse._ArgumentGroup, several: bool) -> None:
    """The argument that chooses a figure, in the group of its output."""
    names = (*OF_PLAN, *(OF_SEARCH if several else ()))
    words = f"which one --png writes: {', '.join(names)} (default: time)"
    parser.rarely(output.add_argument("--figure", metavar="NAME", help=words))
    parser.set_defaults(figures=names)


def write_figures(arguments: argparse.Namespace, answer: Estimate | SearchResult | Sequence[Estimate], title: str) -> list[str]:
    """Write the figures that were asked for, and give back what each file is.

    Parameters
    ----------
    arguments : with what `add_figures` adds
    answer : an estimate, a search that kept what it evaluated, or estimates to draw side by side
    title : of the page
    """
    files = []
    if arguments.png:
        from costmodel.plots.answers import answer_figure
        from costmodel.plots.page import write_image

        name = arguments.figure or "time"
        write_image(arguments.png, answer_figure(answer, name))
        files.append(f"{arguments.png} (figure {name})")
    if arguments.html:
        from costmodel.plots.answers import answer_figures
        from costmodel.plots.page import write_page

        figures = answer_figures(answer)
        write_page(arguments.html, title, figures)
        files.append(f"{arguments.html} ({counted(len(figures), 'figure')})")
    return files


def add(commands: Commands) -> None:
    """Add the commands."""
    reporting = commands.add_parser(
        "report", usage=USAGE % "report" + " -o FILE", allow_abbrev=False,
        help="one file to send: the question, the best plan, its alternatives, figures, assumptions",
        examples=("costmodel report llama3-8b --cluster dgx-h100 --global-batch 64 --seq-len 8192 -o report.html",),
    )  # fmt: skip
    add_question(reporting, several=True)
    reporting.add_argument("--top", type=whole, default=10, metavar="K", help="plans to list (default: 10)")
    add_file(reporting, "HTML file to write")
    reporting.set_defaults(run=_report)

    looking = commands.add_parser(
        "app", help="a page of what-if charts with sliders (extra app)", examples=("costmodel app --port 8060",)
    )
    looking.add_argument("--port", type=whole, default=PORT, metavar="N", help=f"to listen on (default: {PORT})")
    looking.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="to listen on; others than loopback let the network in"
    )
    looking.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="a further name by which browsers may ask for the page"
    )
    add_calibration(looking, several=True)
    looking.set_defaults(run=_app)


def _report(arguments: argparse.Namespace) -> int:
    from costmodel.cli.output import print_page, written
    from costmodel.evaluation.plan_search import search

    check_files(arguments)
    model, cluster = read_asked_model(arguments), read_hardware(arguments)
    found = search(
        model, cluster, global_batch=arguments.global_batch, seq_len=arguments.seq_len, framework=arguments.framework,
        top=arguments.top, keep_evaluated=True, **chosen(arguments),
    )  # fmt: skip
    if not found.ranked:
        why = found.why_none()
        print_page(why[0].upper() + why[1:])
        return codes.NOTHING_FITS
    from costmodel.plots.report import write_report

    write_report(arguments.output, found, arguments.command_line)
    said = sentence(found.best, found.standings.plans[0].probability_fastest)
    print_page(said, written(f"{arguments.output} ({counted(len(found), 'plan')})"))
    return codes.ANSWERED


def _app(arguments: argparse.Namespace) -> int:
    from importlib.util import find_spec

    if find_spec("dash") is None:
        raise Misused("the page needs Dash, which is not installed: pip install 'costmodel[app]'")
    from costmodel.app.server import serve

    serve(arguments.host, arguments.port, arguments.allow_host, arguments.calibration)
    return codes.ANSWERED

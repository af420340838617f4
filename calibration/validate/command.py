"""Judge what a user of the shipped library gets: every record of some files predicted, campaign by campaign."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from calibration.data.reference import MEASURED, default_files
from calibration.validate.judged import judged, table
from calibration.validate.pages import markdown, put_table
from calibration.validate.scores import report
from calibration.written import CATALOGUE, as_csv, write
from costmodel.arithmetic.named_tuples import Row, flat
from costmodel.catalogue.accuracy import FILE, HEADINGS, as_cells, percent

MOST_REASONS, LONGEST = 40, 160
RELEASED = MEASURED[1]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``validate``."""
    parser.add_argument(
        "files", nargs="*", type=Path, metavar="FILE",
        help="records of runs, JSON Lines or CSV (default: those of ../shared/reference/measured, else the quoted tables)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--update", action="store_true", help="write the tables into the README, docs and the catalogue")
    parser.add_argument("--html", type=Path, metavar="OUT.html", help="write scatter plots")
    parser.add_argument("--predictions", type=Path, metavar="OUT.csv", help="write every record with its prediction")
    parser.add_argument(
        "--own-runs", type=_counts, metavar="N,N",
        help="instead: errors of groups of runs after calibrating on so many of each (default files: the released records)",
    )  # fmt: skip


def _counts(text: str) -> list[int]:
    numbers = [int(part) for part in text.split(",")]
    if min(numbers) < 1:
        raise ValueError(text)
    return numbers


def run(arguments: argparse.Namespace) -> int:
    """Run ``validate``."""
    if arguments.own_runs:
        return _own_runs(arguments.files or default_files((RELEASED,)), arguments.own_runs, arguments.json)
    rows = judged(arguments.files or default_files())
    document = report(rows)
    if arguments.predictions:
        write({arguments.predictions: table(rows)})
    if arguments.update:
        update(document)
    if arguments.html:
        from calibration.validate.figures import accuracy_page

        accuracy_page(arguments.html, rows)
    if arguments.json:
        json.dump(document, sys.stdout, allow_nan=False)
        print()
    else:
        print_report(document)
    return 0


def _own_runs(files: Sequence[Path], counts: Sequence[int], as_json: bool) -> int:
    """What a few runs of one's own are worth, of time and of memory."""
    from calibration.validate.own_runs import groups_of, in_words, own_runs

    found = {what: own_runs(groups_of(files, memory), counts) for what, memory in (("time", False), ("memory", True))}
    if as_json:
        json.dump(found, sys.stdout, allow_nan=False)
        print()
    else:
        print(*(line for what, figures in found.items() for line in in_words(what, figures)), sep="\n")
    return 0


def update(document: Row) -> None:
    """Put the figures where ``costmodel accuracy`` finds them, the table into the page on accuracy, the short one into README."""
    from calibration.validate.readme import accuracy

    lines = lines_of(document)
    rows = [flat(line, ".") for line in lines]
    write({CATALOGUE / FILE: as_csv([rows[0], *(row.values() for row in rows)])})
    put_table("README.md", "accuracy", accuracy())
    put_table("docs/accuracy.md", "accuracy", markdown(HEADINGS, map(as_cells, lines)))


def lines_of(document: Row) -> list[Row]:
    """The report as lines, a campaign each, all rows together in the last."""
    total = {key: value for key, value in document["total"].items() if not key.endswith("_over_campaigns")}
    return [{"campaign": name, **entry} for name, entry in (*document["campaigns"].items(), ("all rows", total))]


def means_in_words(total: Row) -> list[str]:
    """Means over campaigns, a line for time and one for memory."""
    lines = []
    for what in ("time", "memory"):
        of = total[f"{what}_over_campaigns"]
        if of["campaigns"]:
            lines.append(
                f"{what}, mean of {of['campaigns']} campaigns: error {percent(of['mape'])} (median {percent(of['median_ape'])}, "
                f"bias {percent(of['bias'])}), 90 % intervals hold on {percent(of['coverage'])} (least "
                f"{percent(of['least_coverage'])}) at x{of['width']:.2f} each way, Winkler score {of['winkler']:.2f}"
            )
    return lines


def print_report(document: Row) -> None:
    """The report for people."""
    from rich.console import Console
    from rich.table import Table

    shown = Table(box=None, header_style="bold")
    for index, heading in enumerate(HEADINGS):
        shown.add_column(heading, justify="right" if index else "left")
    for line in lines_of(document):
        shown.add_row(*as_cells(line))
    console = Console(width=None if sys.stdout.isatty() else 240)
    console.print(shown)
    for words in [*means_in_words(document["total"]), *reasons_in_words(document), *unstated_in_words(document)]:
        console.print(words, markup=False, highlight=False, soft_wrap=True)


def reasons_in_words(document: Row) -> list[str]:
    """Why records weren't predicted, the most frequent reason first."""
    reasons = sorted(document["reasons"].items(), key=lambda item: -item[1])
    lines = [f"  {count} not predicted: {reason[:LONGEST]}" for reason, count in reasons[:MOST_REASONS]]
    failed = document["total"]["refused_and_failed"]
    lines += [f"  {failed} of those not predicted did not run either: out of memory, by their record"] if failed else []
    if len(reasons) > MOST_REASONS:
        lines.append(f"  and {len(reasons) - MOST_REASONS} other reasons, which --json and --predictions have")
    return lines


def unstated_in_words(document: Row) -> list[str]:
    """What stating would narrow intervals, the most useful first."""
    found = sorted(document["unstated"].items(), key=lambda item: -item[1]["narrows"])
    return [
        f"  {entry['rows']} records leave {key} unstated, which widens their intervals by x{entry['narrows']:.2f}"
        for key, entry in found if entry["narrows"] > 1.005
    ]  # fmt: skip

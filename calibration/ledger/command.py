"""``python -m calibration errors``: set the error model on the ledger and write its few numbers into the catalogue."""

from __future__ import annotations

import argparse
import json

from calibration.data.reference import default_files
from calibration.data.runs import measured_runs
from calibration.ledger.entries import RUNS, read_entries
from calibration.ledger.errors import MEMORY, TIME, Held, left_out, older_half, prequential, rows_of, tables
from calibration.ledger.pairs import shared
from calibration.ledger.reliability import points
from calibration.ledger.usual import usual_constants
from calibration.written import CATALOGUE, generated, write

SHIPPED = CATALOGUE / "first_contact.toml"
RELIABILITY = SHIPPED.with_name("reliability.json")
PAIRS = SHIPPED.with_name("paired_errors.toml")
HEAD = """\
# Student's t of four degrees: logarithm of the scale, what it follows, median, factor from sources left out
# (`costmodel.evaluation.first_contacts`); in `left_out`, how intervals held on sources that the model wasn't set on.
"""
PAIRS_HEAD = """\
# Of two estimates that differ in the device, in the framework or in both: the share of the variance of their errors that they
# have in common, as campaigns of one source show it against campaigns of several; and how many sources tell it.
"""
LINE = "{:<8}{:<26}{:>8}{:>8}{:>14}{:>9}{:>17}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``errors``."""
    parser.add_argument("--json", action="store_true", help="print how the model holds as JSON")
    parser.add_argument("--dry-run", action="store_true", help="write nothing into the catalogue")


def _row(what: str, name: str, found: Held) -> str:
    hold, worst = f"{100 * found.coverage:.0f} %", f"{100 * found.worst:.0f} %"
    return LINE.format(what, name, len(found.sources), hold, worst, f"{found.winkler:.2f}", f"{found.factor:.2f}")


def run(arguments: argparse.Namespace) -> int:
    """Run ``errors``."""
    entries = read_entries()
    found = tables(entries)
    found[TIME]["usual_constants"] = usual_constants(measured_runs(default_files()))
    judged: dict[str, dict[str, Held]] = {}
    for what in (TIME, MEMORY):
        rows = rows_of(entries, what)
        new, every = left_out(rows, what)
        judged[what] = {
            "left out, new campaigns": new, "left out, all campaigns": every,
            "set on the older half": prequential(rows, what, older_half(entries, rows)),
        }  # fmt: skip
    if not arguments.dry_run:
        of_ledger = "errors", f"calibration/{RUNS.name}"
        write({
            SHIPPED: generated(*of_ledger, found, HEAD), PAIRS: generated(*of_ledger, shared(entries), PAIRS_HEAD),
            RELIABILITY: json.dumps(points(entries), indent=1) + "\n",
        })
    if arguments.json:
        print(json.dumps({what: {name: one._asdict() for name, one in of.items()} for what, of in judged.items()}))
        return 0
    print(LINE.format("", "90 % intervals", "sources", "hold", "worst source", "Winkler", "factor each way"))
    for what, of in judged.items():
        print(*(_row(what, name, one) for name, one in of.items()), sep="\n")
    return 0

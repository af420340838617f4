"""Errors of the shipped constants on measured runs, campaign by campaign, and how a table shows them."""

from __future__ import annotations

import csv
import json
from importlib import resources

from costmodel.arithmetic.named_tuples import Row

FILE = "accuracy.csv"
"""A campaign a line, the last line all of their rows together; written by ``python -m calibration validate --update``."""
HEADINGS = (
    "campaign", "rows", "not predicted", "timed", "time, mean error", "bias", "intervals hold", "width", "with memory",
    "memory, mean error", "memory's hold", "ran out, told so", "ran, told so", "ran, told not to fit",
)  # fmt: skip
"""Of what `as_cells` gives."""


def accuracy() -> list[Row]:
    """The figures of every campaign, and last those of all rows."""
    text = (resources.files("costmodel.catalogue") / FILE).read_text(encoding="utf-8")
    found: list[Row] = []
    for line in csv.DictReader(text.splitlines()):
        entry: Row = {}
        found.append(entry)
        for column, cell in line.items():
            group, _, name = column.rpartition(".")
            entry_of = entry.setdefault(group, {}) if group else entry
            entry_of[name] = cell if name == "campaign" else json.loads(cell) if cell else None
    return found


def percent(value: float | None) -> str:
    """A share as a percentage, a dash where there is none."""
    return "-" if value is None else f"{100 * value:.1f} %"


def as_cells(entry: Row) -> list[str]:
    """The figures of a campaign, or of all rows, under `HEADINGS`."""
    time, memory, said = entry["time"], entry["memory"], entry["verdicts"]
    width = "-" if time["width"] is None else f"x{time['width']:.2f}"
    return [
        entry["campaign"], f"{entry['rows']}", f"{entry['not_predicted']}", f"{time['n']}", percent(time["mape"]),
        percent(time["bias"]), percent(time["coverage"]), width, f"{memory['n']}", percent(memory["mape"]),
        percent(memory["coverage"]), f"{said['ran_out_told']}/{said['ran_out']}" if said["ran_out"] else "-",
        f"{said['ran_told']}/{said['ran']}" if said["ran"] else "-", f"{said['ran_refused']}" if said["ran"] else "-",
    ]  # fmt: skip

"""What the README says of accuracy: first contacts, then fits that had not seen the runs, then the constants as shipped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pandas

from calibration.fit.figures_by_distance import ALL, read_distance
from calibration.validate.pages import markdown
from calibration.validate.scores import over_campaigns
from costmodel.arithmetic.named_tuples import Row
from costmodel.catalogue.accuracy import accuracy as by_campaign
from costmodel.catalogue.accuracy import percent

LEDGER = Path(__file__).parents[1] / "first_contact.csv"
"""A campaign a row, scored before anything was fitted to it."""
COLUMNS = (
    "how it was judged", "campaigns", "step time, mean error", "90 % intervals hold", "each way", "memory, mean error",
    "memory's hold", "ran out of memory, told so", "ran, told so", "ran, told not to fit",
)  # fmt: skip


def first_contacts(ledger: Path = LEDGER) -> list[list[str]]:
    """A row a day on which releases met campaigns, means over those; none where there is no ledger."""
    if not ledger.is_file():
        return []
    rows = pandas.read_csv(ledger, dtype={"date": str, "release": str})
    return [_met(f"{', '.join(some.release.unique())} on {date}", some) for date, some in rows.groupby("date", sort=True)]


def _met(when: str, rows: pandas.DataFrame) -> list[str]:
    mean, total = rows.mean(numeric_only=True), rows.sum(numeric_only=True).astype(int)
    return [
        f"first contact: campaigns that nobody here had opened, met by {when}", f"{len(rows)}",
        percent(mean.time_error), percent(mean.time_holds), f"x{math.exp(rows.time_factor.map(math.log).mean()):.2f}",
        percent(mean.memory_error), percent(mean.memory_holds), _share(total.ran_out_told, total.ran_out),
        _share(total.ran_told, total.ran), "-",
    ]  # fmt: skip


def _share(told: int, of: int) -> str:
    return f"{told} of {of}" if of else "-"


def left_out() -> list[str]:
    """The row of fits that had not seen a run's cluster, as the last fit found them."""
    found = read_distance().loc["cluster"]
    time, memory = found.loc["time", ALL], found.loc["memory", ALL]
    return [
        "left out: fits that had not seen the cluster, by formulas and habits that were set with it in sight",
        f"{len(found.loc['time']) - 1} sources", percent(time.mape), percent(time.coverage_90), "-", percent(memory.mape),
        percent(memory.coverage_90), _share(int(memory.ran_out_told), int(memory.ran_out)),
        _share(int(memory.ran_told), int(memory.ran)), "-",
    ]  # fmt: skip


def as_shipped(campaigns: Sequence[Row], said: Row) -> list[str]:
    """The row of the shipped constants on all runs, those that they were fitted to among them."""
    time, memory = (over_campaigns(campaigns, what) for what in ("time", "memory"))
    return [
        "as shipped: on every run, most of which the constants were fitted to", f"{time['campaigns']}", percent(time["mape"]),
        percent(time["coverage"]), f"x{time['width']:.2f}", percent(memory.get("mape")), percent(memory.get("coverage")),
        _share(said["ran_out_told"], said["ran_out"]), _share(said["ran_told"], said["ran"]), f"{said['ran_refused']}",
    ]  # fmt: skip


def accuracy() -> str:
    """The table of the README, in Markdown."""
    *campaigns, total = by_campaign()
    return markdown(COLUMNS, (*first_contacts(), left_out(), as_shipped(campaigns, total["verdicts"])))

"""The ledger's two files: every run that was met with what had been predicted of it, and a line for each campaign."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from calibration.validate.scores import score
from calibration.written import as_csv, write
from costmodel.arithmetic.named_tuples import Row
from costmodel.text.errors import CostModelError

FOLDER = Path(__file__).resolve().parents[1]
RUNS, CAMPAIGNS = FOLDER / "first_contact_runs.csv", FOLDER / "first_contact.csv"


class Entry(NamedTuple):
    """A run as it was met; None where there is no such figure.

    The predictions are of the release that met it. What tells how sure it could have been (from `novelty` on) is too, but for the
    first release, of which it was worked out afterwards by the code that began the ledger.
    """

    date: str  # date, release: when it was met, and by which commit
    release: str
    id: str  # id, campaign: of its record
    campaign: str
    measured_s: float | None  # measured_s, predicted_s, low_s, high_s: step time, and its 90 % interval as told then [s]
    predicted_s: float | None
    low_s: float | None
    high_s: float | None
    measured_bytes: float | None  # measured_bytes, predicted_bytes, low_bytes, high_bytes: the same of the peak memory
    predicted_bytes: float | None
    low_bytes: float | None
    high_bytes: float | None
    ran: bool | None  # whether it ran, or out of memory
    predicted_fits: bool | None  # whether it was judged to fit
    usable_bytes: float | None  # of the device, to a process
    seen: bool  # other runs of its campaign had been measured before and were in the fit
    novelty: str  # how new the question was, of `costmodel.evaluation.first_contacts.NOVELTY`
    constants: float | None  # standard deviation that its constants leave the plan's step time, in logarithms, as usual ones told
    host: float | None  # share of the step that waits for the host
    unstated: tuple[str, ...]  # keys of the record that matter and that nothing stated

    @property
    def source(self) -> str:
        """Whose figures it is among: the part of its id before the slash."""
        return self.id.split("/")[0]

    @property
    def time(self) -> float | None:
        """Residual of the step time: log(measured / predicted)."""
        return _log(self.measured_s, self.predicted_s)

    @property
    def memory(self) -> float | None:
        """Residual of the peak memory: log(measured / predicted)."""
        return _log(self.measured_bytes, self.predicted_bytes)

    @property
    def room(self) -> float | None:
        """How many times the estimate the device holds, as a logarithm."""
        return _log(self.usable_bytes, self.predicted_bytes)


def _log(above: float | None, below: float | None) -> float | None:
    return None if above is None or below is None else math.log(above / below)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, tuple):
        return " ".join(value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


TEXTS = ("date", "release", "id", "campaign", "novelty")
FLAGS = ("ran", "predicted_fits", "seen")
FIGURES = {"runs": "n", "error": "mape", "median_error": "median_ape", "bias": "bias", "holds": "coverage", "factor": "width"}
"""Columns of a campaign's line, and what they are of `calibration.validate.scores.score`."""


def _value(field: str, cell: str) -> object:
    if field in TEXTS:
        return cell
    if field == "unstated":
        return tuple(cell.split())
    if not cell:
        return None
    return cell == "1" if field in FLAGS else float(cell)


def read_entries(path: Path = RUNS) -> list[Entry]:
    """Every run of the ledger, in the order in which they were met."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        if tuple(rows.fieldnames or ()) != Entry._fields:
            raise CostModelError(f"{path}: expected the columns {', '.join(Entry._fields)}")
        return [Entry(**{field: _value(field, cell) for field, cell in row.items()}) for row in rows]  # type: ignore[arg-type]


def add_entries(new: Sequence[Entry], path: Path = RUNS) -> None:
    """Append runs to the ledger; what is there stays as it is, byte for byte."""
    known = {one.campaign for one in read_entries(path)} if path.exists() else set()
    again = sorted({one.campaign for one in new} & known)
    if again:
        raise CostModelError(f"{path.name} has met {', '.join(again)} already: a campaign is scored once, before it is fitted to")
    heads = [] if path.exists() else [Entry._fields]
    with path.open("a", encoding="utf-8", newline="") as file:
        file.write(as_csv([*heads, *(map(_cell, one) for one in new)]))


def figures(entries: Sequence[Entry]) -> Row:
    """Figures of some runs: errors of time and memory, how often intervals held and how wide they were, verdicts."""
    found: Row = {"runs": len(entries)}
    for what, unit in (("time", "s"), ("memory", "bytes")):
        rows = [tuple(getattr(one, f"{name}_{unit}") for name in ("measured", "predicted", "low", "high")) for one in entries]
        of = score([row for row in rows if None not in row])
        found |= {f"{what}_{name}": of[key] for name, key in FIGURES.items()}
    judged = [(one.ran, one.predicted_fits) for one in entries if one.ran is not None and one.predicted_fits is not None]
    for name, ran in (("ran", True), ("ran_out", False)):
        found[name] = sum(one is ran for one, _ in judged)
        found[f"{name}_told"] = sum(one is ran and fits is ran for one, fits in judged)
    return found


def write_campaigns(entries: Sequence[Entry], path: Path = CAMPAIGNS) -> None:
    """A line for each campaign, made from the runs."""
    groups: dict[tuple[str, str, str], list[Entry]] = {}
    for one in entries:
        groups.setdefault((one.date, one.release, one.campaign), []).append(one)
    rows = ([*key, _cell(members[0].seen), *map(_cell, figures(members).values())] for key, members in groups.items())
    write({path: as_csv([["date", "release", "campaign", "seen", *figures([])], *rows])})

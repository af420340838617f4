"""Points of a reliability diagram: how often what was told with a probability came true where the model wasn't set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from calibration.data.runs import source_weights
from calibration.ledger.entries import Entry
from calibration.ledger.errors import (
    DEGREES,
    HALF,
    MEMORY,
    TIME,
    Array,
    Verdicts,
    left_out_intervals,
    room_of,
    rows_of,
    verdicts_of,
)

TOLD = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95])
EDGES = np.array([0.0, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0])


class Reliability(NamedTuple):
    """What was told, and how often it came true."""

    name: str  # of what
    told: Array  # told, true: probabilities told, and shares of rows of which they came true, each source alike
    true: Array
    rows: Array  # behind each


def of_intervals(entries: Sequence[Entry], what: str, name: str) -> Reliability:
    """Intervals of every probability, on sources that the model wasn't set on."""
    rows = rows_of(entries, what)
    median, half = left_out_intervals(rows, what)
    new = rows.of["seen"] == 0.0
    place = (np.abs(rows.residual - median) / half * HALF)[new]
    weight = source_weights(rows.source[new])
    true = [float(weight[place <= student.ppf(0.5 + 0.5 * told, DEGREES)].sum() / weight.sum()) for told in TOLD]
    return Reliability(name, TOLD, np.array(true), np.full(len(TOLD), float(new.sum())))


def left_out_fits(verdicts: Verdicts) -> Array:
    """Probability that each plan fits, by the model set without its source."""
    found = np.empty(len(verdicts.room))
    for source in np.unique(verdicts.source):
        without = verdicts.source == source
        shift, scale = room_of(Verdicts(*(column[~without] for column in verdicts)))
        found[without] = student.cdf((verdicts.room[without] - shift) / np.exp(scale), DEGREES)
    return found


def of_fits(entries: Sequence[Entry]) -> Reliability:
    """What was told to fit, by the probability told, on sources that the model wasn't set on."""
    verdicts = verdicts_of(entries)
    told, weight = left_out_fits(verdicts), source_weights(verdicts.source, 0.5)
    bins = np.clip(np.searchsorted(EDGES, told, side="right") - 1, 0, len(EDGES) - 2)
    used = [place for place in range(len(EDGES) - 1) if (bins == place).any()]

    def mean(values: Array) -> Array:
        return np.array([np.average(values[bins == place], weights=weight[bins == place]) for place in used])

    rows = np.array([float((bins == place).sum()) for place in used])
    return Reliability("fits", mean(told), mean(verdicts.ran.astype(float)), rows)


def points(entries: Sequence[Entry]) -> dict[str, dict[str, list[float]]]:
    """What `costmodel.plots.reliability` draws."""
    found = [of_intervals(entries, TIME, "step time"), of_intervals(entries, MEMORY, "peak memory"), of_fits(entries)]
    return {
        one.name: {field: [float(f"{value:.4g}") for value in getattr(one, field)] for field in ("told", "true", "rows")}
        for one in found
    }

"""Figures of predictions by how new the question is: errors, intervals, verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas

from calibration.data.runs import source_of
from calibration.fit.distance import FOLDS, spreads_of, unseen
from calibration.fit.runs import Fitted
from calibration.written import as_csv
from costmodel.description.run import Run
from costmodel.evaluation.first_contacts import NINETY
from costmodel.evaluation.own_runs_fit import Array

DISTANCE = Path(__file__).parents[1] / "distance.csv"
"""A line for the time, and one for the memory, of each source at each level, by fits that had not seen the groups."""
ALL = "all sources"
"""In the place of a source: each of them alike, and what is said of all runs, whether they ran out of memory or ran."""
COLUMNS = ("level", "what", "source", "runs", "mape", "coverage_90", "ran_out", "ran_out_told", "ran", "ran_told")


def by_distance(time: Fitted, memory: Fitted) -> str:
    """The figures at every level, as CSV."""
    lines: list[list[object]] = []
    for what, fitted in (("time", time), ("memory", memory)):
        cases, model = fitted.cases, fitted.model
        sources = np.array([source_of(case) for case in cases])
        found = unseen(cases, model, fitted.posterior)
        for level, entry in found.items():
            errors = model.measured - entry.predicted
            spreads = spreads_of(errors, entry, sources)
            known = ~np.isnan(errors) & ~np.isnan(spreads)
            of_sources = {str(one): _figures(errors[some], spreads[some])
                          for one in np.unique(sources[known]) for some in [known & (sources == one)]}  # fmt: skip
            lines += [[level, what, one, *figures, *[""] * 4] for one, figures in of_sources.items()]
            runs, *means = np.array(list(of_sources.values())).T
            verdicts = _verdicts(cases, entry.plain) if what == "memory" else [""] * 4
            lines.append([level, what, ALL, int(runs.sum()), *(float(one.mean()) for one in means), *verdicts])
    order = list(FOLDS)
    return as_csv([COLUMNS, *sorted(lines, key=lambda line: order.index(str(line[0])))])


def _figures(errors: Array, spreads: Array) -> tuple[int, float, float]:
    """Rows, mean relative error and what 90 % intervals hold, where `errors` are log(measured / predicted)."""
    size, held = np.abs(np.exp(-errors) - 1.0), np.abs(errors) <= NINETY * spreads
    return len(errors), float(size.mean()), float(held.mean())


def _verdicts(cases: Sequence[Run], predicted: Array) -> list[int]:
    """Runs that ran out and those that ran, how many there are and of how many that was told, being the likelier."""
    judged = [
        (bool(case.out_of_memory), value > math.log(float(case.cluster.device.usable_memory or case.cluster.device.memory)))
        for case, value in zip(cases, predicted, strict=True)
        if case.ran is not None and "recompute" not in case.unstated and not math.isnan(value)
    ]  # fmt: skip
    counts = [[said == ended for ended, said in judged if ended is kind] for kind in (True, False)]
    return [number for told in counts for number in (len(told), sum(told))]


def read_distance() -> pandas.DataFrame:
    """The figures as the last fit found them, by level, what and source."""
    return pandas.read_csv(DISTANCE, index_col=list(COLUMNS[:3]))

"""What a few runs of one's own are worth: groups of sources that a fit has not seen, calibrated on runs drawn from each."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from calibration.data.runs import at_clocks
from calibration.fit.fields import CLOCKS
from calibration.fit.pooled import Posterior
from calibration.fit.problem import clocked, cluster_name, framework_owner, model_name, take
from calibration.fit.runs import Fitted, base_columns, expected
from calibration.validate.distance import Unseen, unseen
from calibration.validate.predictions import evaluated
from costmodel.arithmetic.named_tuples import flat, replaced
from costmodel.description.framework import Framework
from costmodel.description.question import Question
from costmodel.description.run import Run
from costmodel.evaluation.first_contacts import NINETY
from costmodel.evaluation.own_runs import FARTHEST, Prior, updated
from costmodel.evaluation.own_runs_fit import Array
from costmodel.formulas.quantities import Inputs, OwnRun, Software

SMALLEST_GROUP = 8
DRAWS = 12
"""Calibrations of a group on other runs of it: with one, the mean after one run differed by a hundredth from draw to draw; with
four, chance decided which of two groups came out a tenth worse."""
MOST_ROWS = 40


@dataclasses.dataclass
class Drawn:
    """One calibration: the group's errors without it and with it, and whether intervals hold."""

    source: str
    group: str
    before: Array
    after: Array
    held: Array
    others_before: float
    others_after: float


def own_runs(
    time: Fitted, counts: Sequence[int], by_source: tuple[Unseen, list[Posterior]] | None = None
) -> dict[str, object]:
    """Errors of the rest of each group after calibrating on some of its runs, by how many.

    Runs are drawn from those that `costmodel.calibrate` takes; all others are judged, also those that it refuses as out of all
    proportion. A group of which it takes too few, or of which none would be left, is left out.

    Parameters
    ----------
    time : a fit of all runs, whose folds by source are what is calibrated
    counts : numbers of runs
    by_source : those folds' predictions and fits, if they are at hand
    """
    cases, model = time.cases, time.model
    found, posteriors = by_source or unseen(cases, model, time.posterior, ("cluster",))["cluster"]
    columns = base_columns(cases)
    names = np.array([f"{cluster_name(c)}|{model_name(c)}|{c.plan.dtype}|{c.framework.name}" for c in cases])
    random = np.random.default_rng(5)
    drawn: dict[int, list[Drawn]] = {count: [] for count in counts}
    used = sorted({int(number) for number in found.fold})
    for name in np.unique(names):
        rows = np.flatnonzero(names == name)
        if len(rows) < SMALLEST_GROUP:
            continue
        posterior = posteriors[used.index(int(found.fold[rows[0]]))]
        group = _Group(str(name), cases, columns, time, posterior, rows, found.predicted)
        for count in counts:
            for _ in range(DRAWS if len(group.taken) >= count < len(rows) else 0):
                drawn[count].append(group.calibrated(random.permutation(group.taken)[:count], random))
    return {str(count): _figures(of) for count, of in drawn.items() if of}


class _Group:
    """Runs of one model on one cluster, with what a fit that has not seen the source says of them."""

    def __init__(
        self, name: str, cases: Sequence[Run], columns: Inputs, time: Fitted, posterior: Posterior, rows: Array, predicted: Array
    ) -> None:
        case = cases[rows[0]]
        device = case.cluster.device
        owners = {
            "field": "", "framework": framework_owner(case), "architecture": device.architecture, "device": device.name,
            "framework on architecture": f"{framework_owner(case)}@{device.architecture}",
        }  # fmt: skip
        fields = time.model.fields
        places, covariance = expected(posterior, fields, owners)
        values = {f.path: f.link.to_constant(p) for f, p in zip(fields, places, strict=True)}
        moved = {f.path: f.link.to_constant(p + 1e-4) for f, p in zip(fields, places, strict=True)}
        slopes = np.array([math.log(moved[f.path] / values[f.path]) / 1e-4 for f in fields])
        self.clocks = wide, narrow = [values.pop(clock) for clock in CLOCKS]
        kept = [n for n, f in enumerate(fields) if f.path not in CLOCKS]
        logs = (covariance * np.outer(slopes, slopes))[np.ix_(kept, kept)]
        self.prior = Prior([fields[n].path for n in kept], logs)
        self.cases, self.columns, self.rows, self.predicted = cases, columns, rows, predicted
        constants = replaced(case.framework.constants, values)
        self.framework = dataclasses.replace(case.framework, constants=constants)
        self.cluster = dataclasses.replace(case.cluster, device=at_clocks(case, wide, narrow))
        source = case.campaign
        same = [cluster_name(c) == cluster_name(case) and c.framework.name == case.framework.name for c in cases]
        self.source, self.name = source, name
        self.others = np.setdiff1d(np.flatnonzero(same), rows)
        apart = self._measured(rows) - self.logarithms(rows, self.framework.constants)
        self.taken = rows[np.abs(apart) < math.log(FARTHEST)]

    def logarithms(self, rows: Array, constants: Software, own_runs: Sequence[OwnRun] = ()) -> Array:
        """Predicted logarithms of rows of this cluster."""
        some = take(self.columns, rows)
        values = {path: np.full(len(rows), value) for path, value in flat(constants).items()}
        memory = {path: value for path, value in flat(some.software).items() if path.startswith("memory_")}
        at = some._replace(software=replaced(some.software, values | memory), device=clocked(some.device, self.clocks))
        told = dataclasses.replace(self.framework, own_runs=own_runs)
        return np.log(np.asarray(evaluated(at).total)) + [self._discrepancy(row, told) for row in rows]

    def _discrepancy(self, row: int, told: Framework) -> float:
        """What own runs say of the plan of a row."""
        case = self.cases[row]
        question = Question(case.model, self.cluster, told)
        return float(question.discrepancy(question.settings(case.plan), case.plan.numbers(told, case.model.layers)))

    def _measured(self, rows: Array) -> Array:
        """Logarithms of measured steps."""
        return np.log([float(self.cases[row].seconds or math.nan) for row in rows])

    def calibrated(self, chosen: Array, random: np.random.Generator) -> Drawn:
        """The group calibrated on some of its rows."""
        runs = [(self.cases[row].model, self.cases[row].plan, float(self.cases[row].seconds or 0.0)) for row in chosen]
        constants, after = updated(self.cluster, self.framework, runs, self.prior)
        rest = np.setdiff1d(self.rows, chosen)
        rest = random.permutation(rest)[:MOST_ROWS]
        others = random.permutation(self.others)[:MOST_ROWS]
        both = np.concatenate([rest, others]).astype(int)
        measured = self._measured(both)
        error = measured - self.logarithms(both, constants, after.own_runs)
        before = measured - self.logarithms(both, self.framework.constants)
        size, first = (np.abs(np.exp(-one) - 1.0) for one in (error, before))
        count = len(rest)
        spread = after.spread
        apart = float(size[count:].mean()) if len(others) else math.nan
        earlier = float(first[count:].mean()) if len(others) else math.nan
        held = np.abs(error[:count]) <= NINETY * spread
        return Drawn(self.source, self.name, first[:count], size[:count], held, earlier, apart)


def _is_worse(drawn: Sequence[Drawn]) -> bool:
    """Whether the mean error over some calibrations is a tenth larger than without them, and by a hundredth at least."""
    before, after = (float(np.mean([d.before.mean() for d in drawn])), float(np.mean([d.after.mean() for d in drawn])))
    return after > max(1.1 * before, before + 0.01)


def _figures(drawn: Sequence[Drawn]) -> dict[str, object]:
    """Means over groups."""
    others = [d for d in drawn if not math.isnan(d.others_after)]
    worse = [_is_worse([d]) for d in drawn]
    groups = [[d for d in drawn if d.group == name] for name in sorted({d.group for d in drawn})]
    return {
        "groups": len(groups), "draws": len(drawn), "mape": float(np.mean([d.after.mean() for d in drawn])),
        "median_ape": float(np.median([np.median(d.after) for d in drawn])),
        "time_90": float(np.mean([d.held.mean() for d in drawn])),
        "mape_without": float(np.mean([d.before.mean() for d in drawn])),
        "groups_a_tenth_worse": float(np.mean([_is_worse(group) for group in groups])),
        "draws_a_tenth_worse": float(np.mean(worse)),
        "other_models": {
            "mape": float(np.mean([d.others_after for d in others])) if others else None,
            "mape_without": float(np.mean([d.others_before for d in others])) if others else None,
        },
        "sources": {
            name: {
                "mape": float(np.mean([d.after.mean() for d in drawn if d.source == name])),
                "mape_without": float(np.mean([d.before.mean() for d in drawn if d.source == name])),
                "time_90": float(np.mean([d.held.mean() for d in drawn if d.source == name])),
            }
            for name in sorted({d.source for d in drawn})
        },
    }



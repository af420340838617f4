"""How wrong predictions are by how new the question is: folds that leave whole groups out, and refit without them.

A row is predicted by a fit that has seen none of its group: neither constants nor spreads rest on it. The width of its
interval is that of the fit, times a factor that the errors in the *other* folds of the level give.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from calibration.data.runs import quantile_of_sources
from calibration.fit import pooled
from calibration.fit.pooled import Model, Posterior
from calibration.fit.problem import framework_owner, model_name, thinned
from costmodel.description.run import Run
from costmodel.evaluation.first_contacts import NINETY
from costmodel.evaluation.own_runs_fit import Array

FOLDS = {"plan": 4, "model": 5, "cluster": 8, "device": 5, "framework": 5}
"""By what is new to a fit, nearest first."""
WARM_ITERATIONS = 20
"""Of a fold's fit, which begins where that of all rows ended: with a third of them it stays near what the left-out rows said."""
LEAST_SPREAD = 0.04
"""Of any prediction: runs of one plan on two days differ by this much."""


@dataclasses.dataclass
class Unseen:
    """Predictions of rows that a fit has not seen, at one level."""

    predicted: Array  # logarithms; NaN where a row is in no fold
    plain: Array  # the same without what groups and clusters add
    variance: Array  # of them, by the fit
    fold: NDArray[np.int64]  # of each row


KEYS: dict[str, Callable[[Run], str]] = {
    "model": model_name,
    "cluster": lambda case: case.campaign,
    "device": lambda case: case.cluster.device.name,
    "framework": framework_owner,
}
"""What is left out whole at each level; a source's clusters go with it."""


def folds_of(cases: Sequence[Run], level: str, group: NDArray[np.str_]) -> NDArray[np.int64]:
    """Fold of each case at a level: largest groups first, each to the fold with fewest rows; plans are dealt out in turn."""
    count = FOLDS[level]
    if level == "plan":
        fold = np.zeros(len(cases), dtype=np.int64)
        seen: dict[str, int] = {}
        for row in np.random.default_rng(7).permutation(len(cases)):
            name = str(group[row])
            seen[name] = seen.get(name, sum(map(ord, name))) + 1
            fold[row] = seen[name] % count
        return fold
    names = np.array([KEYS[level](case) for case in cases])
    unique, sizes = np.unique(names, return_counts=True)
    filled = np.zeros(count)
    place: dict[str, int] = {}
    for index in np.argsort(-sizes, kind="stable"):
        place[str(unique[index])] = int(filled.argmin())
        filled[filled.argmin()] += min(sizes[index], 150)
    return np.array([place[str(name)] for name in names])


def predicted_by(model: Model, posterior: Posterior, rows: Array) -> tuple[Array, Array, Array]:
    """Logarithms of what is predicted of rows, the same without intercepts, and the variance of the first.

    Owners and intercepts that the fit knows add what they are known to add; others add their spread.
    """
    known = set(posterior.effects)
    unseen = [effect for effect in model.effects(rows) if effect not in known]
    incidence = model.incidence(posterior.effects, rows)
    base, slopes = model.slopes(incidence.places(posterior.mean), rows)
    columns = incidence.columns(slopes)
    variance = np.einsum("ij,jk,ik->i", columns, posterior.covariance, columns)
    spreads = posterior.spreads
    prior = np.array([spreads.effects[e.field, e.level] if e.field >= 0 else spreads.cluster for e in unseen])
    variance += (model.incidence(unseen, rows).columns(slopes) ** 2) @ prior**2
    intercepts = np.array([effect.field < 0 for effect in posterior.effects])
    found = base + columns[:, intercepts] @ posterior.mean[intercepts]
    for position, name in enumerate(model.grouping.group[rows]):
        mean, spread = posterior.groups.get(str(name), (0.0, spreads.group**2))
        found[position] += mean
        variance[position] += spread
    typical = float(np.median(list(spreads.scatter.values())))
    scatter = np.array([spreads.scatter.get(str(name), typical) for name in model.grouping.source[rows]])
    return found, base, variance + scatter**2


_JOB: tuple[Model, Posterior, Array] | None = None


def _fold(training_and_test: tuple[Array, Array]) -> tuple[Array, Array, Array]:
    assert _JOB is not None
    model, full, kept = _JOB
    training, test = training_and_test
    start = (full.effects, full.mean)
    only = frozenset(full.effects)
    posterior = pooled.fit(model, np.intersect1d(training, kept), start, WARM_ITERATIONS, only=only, settled=0, averaged=True)
    return predicted_by(model, posterior, test)


def unseen(cases: Sequence[Run], model: Model, full: Posterior) -> dict[str, Unseen]:
    """Predictions at every level.

    From the constants (not spreads) of `full`, a fit to all rows, the folds' fits start.
    """
    global _JOB  # what forked processes inherit: a model holds functions, which can't be sent
    _JOB = (model, full, thinned(model.grouping))
    jobs, places = [], []
    folds = {level: folds_of(cases, level, model.grouping.group) for level in FOLDS}
    for level, fold in folds.items():
        for number in range(FOLDS[level]):
            if (fold == number).any() and (fold != number).any():
                jobs.append((np.flatnonzero(fold != number), np.flatnonzero(fold == number)))
                places.append(level)
    workers = min(len(jobs), os.cpu_count() or 1)
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        done = pool.map(_fold, jobs, chunksize=1)
    found: dict[str, Unseen] = {}
    for level, (_, test), (predicted, plain, variance) in zip(places, jobs, done, strict=True):
        blank = np.full((3, len(cases)), np.nan)
        entry = found.setdefault(level, Unseen(blank[0], blank[1], blank[2], folds[level]))
        entry.predicted[test], entry.plain[test], entry.variance[test] = predicted, plain, variance
    return found


def factor_of(errors: Array, spreads: Array, sources: NDArray[np.str_]) -> float:
    """By how much intervals have to be widened to hold nine in ten, each source counting alike.

    Errors are log(measured / predicted), spreads the standard deviations that the fit gives them.
    """
    return quantile_of_sources(np.abs(errors) / spreads, sources, 0.9) / NINETY


def spreads_of(errors: Array, found: Unseen, sources: NDArray[np.str_]) -> Array:
    """Spread of every row, by the factor of the other folds.

    Errors are log(measured / predicted); NaN where there is none.
    """
    plain = np.sqrt(found.variance + LEAST_SPREAD**2)
    known = ~np.isnan(errors)
    out = np.full(len(errors), np.nan)
    for number in np.unique(found.fold):
        others = known & (found.fold != number)
        mine = found.fold == number
        if others.any():
            out[mine] = plain[mine] * factor_of(errors[others], plain[others], sources[others])
    return out

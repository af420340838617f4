"""The pooled fit: every constant is a field's mean and effects of its owners, each with a spread that the data give.

With runs i in groups g of clusters c, and effects u of fields f and owners,

    log measured_i = log predicted_i(z_i) + b_c + b_g + e_i,    z_if = mean_f + sum over levels of u_f,owner(i)

which Gauss-Newton makes linear. The intercepts b keep a sweep's thousand rows from weighing as a thousand sources; e is
Student's, with the scale of its source. Spreads are estimated along with the effects (expectation-maximisation with an
inverse-gamma prior at what was believed before measuring). References: Gelman and Hill (2006), Data Analysis Using
Regression and Multilevel Models, chapters 12 and 13; Lange, Little and Taylor (1989), Robust statistical modeling using
the t distribution.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from calibration.fit.fields import Field
from costmodel.evaluation.own_runs_fit import Array

STEP = 1e-3
"""On the line of a link, by which slopes are taken."""
LARGEST_STEP = 1.0
"""Largest change of an effect in an iteration: where roofs and floors of a sum take turns, longer ones end far away."""
DAMPINGS = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Shares of the diagonal by which Gauss and Newton's system is weighted down, as Levenberg and Marquardt do."""
SETTLED = 3
"""Iterations before spreads are estimated: far from the optimum errors are those of the start."""
CONVERGED = 1e-5
"""Share of the objective below which its change ends a fit. With a hundred times as much, fits of the same rows ended in places
whose times of large plans differed by a fifth."""
MOST = 2.0
"""A spread is estimated up to this multiple of what was believed: where slopes vanish, data say nothing of it."""
BELIEF = 6.0
"""Observations that the spread believed before measuring counts as."""
FREEDOM = 4.0
"""Degrees of freedom of the scatter's tails, where a model says no other."""
LEAST_SCATTER, MOST_SCATTER = 0.04, 0.12
"""Bounds of a source's scatter: beyond the upper a source that fits badly would cease to be fitted."""
CLUSTER, GROUP, SCATTER = 0.05, 0.05, 0.06
"""Spreads of the intercepts, and of the scatter, believed before measuring."""


@dataclasses.dataclass(frozen=True)
class Grouping:
    """To whom each row belongs, by name."""

    owners: dict[str, NDArray[np.str_]]  # at each level of `calibration.fit.fields`
    cluster: NDArray[np.str_]
    group: NDArray[np.str_]  # whose scatter is common
    source: NDArray[np.str_]


@dataclasses.dataclass(frozen=True)
class Effect:
    """One unknown: what an owner adds to the mean of a field; of a cluster's intercept the field is -1."""

    field: int
    level: str
    owner: str


@dataclasses.dataclass
class Spreads:
    """Standard deviations: of effects by field and level, of intercepts, and of each source's scatter."""

    effects: dict[tuple[int, str], float]
    cluster: float
    group: float
    scatter: dict[str, float]


@dataclasses.dataclass
class Posterior:
    """What a fit found.

    Parameters
    ----------
    effects : unknowns
    mean, covariance : of them
    spreads : estimated
    clusters, groups : what each group adds to the logarithm, and the variance of that
    residuals : log(measured / predicted) of the fitted rows, no intercepts taken off
    """

    effects: list[Effect]
    mean: Array
    covariance: Array
    spreads: Spreads
    groups: dict[str, tuple[float, float]]
    residuals: Array

    def prior(self) -> Array:
        """Standard deviation of each effect before the data."""
        return np.array([self.spreads.effects[e.field, e.level] if e.field >= 0 else self.spreads.cluster for e in self.effects])


Logarithms = Callable[[Array, Array | None], Array]
"""Logarithms of what is predicted, of places (rows x fields) and of the rows that they are of."""


@dataclasses.dataclass(frozen=True)
class Incidence:
    """Which effects the constants of some rows have."""

    centre: Array  # the fields' priors on the line
    # of a field at a level its number, and of each row the place of the effect, or `count` where there is none
    pairs: list[tuple[int, Array]]
    cluster: Array  # of each row the place of its cluster's intercept, or `count`
    count: int  # of effects

    def places(self, mean: Array) -> Array:
        """Where each constant of each row is on its line, by the values of the effects."""
        value = np.append(mean, 0.0)
        out = np.tile(self.centre, (len(self.cluster), 1))
        for number, effect in self.pairs:
            out[:, number] += value[effect]
        return out

    def columns(self, slopes: Array) -> Array:
        """Slopes in the effects, by those in the constants."""
        every = np.arange(len(self.cluster))
        out = np.zeros((len(self.cluster), self.count + 1))
        for number, effect in self.pairs:
            out[every, effect] = slopes[:, number]
        out[every, self.cluster] = 1.0
        return out[:, : self.count]


@dataclasses.dataclass
class Model:
    """Rows with their unknowns."""

    fields: Sequence[Field]  # constants
    grouping: Grouping  # of the rows
    measured: Array  # logarithms
    predict: Logarithms  # of places and rows
    freedom: float = FREEDOM  # degrees of freedom of the scatter's tails

    @property
    def centre(self) -> Array:
        """The fields' priors on the line."""
        return np.array([field.link.to_line(field.prior) for field in self.fields])

    def head_start(self, effect: Effect) -> float:
        """Where an effect begins."""
        field = self.fields[effect.field]
        if effect.field < 0 or effect.level != "field" or not field.start:
            return 0.0
        return field.link.to_line(field.start) - field.link.to_line(field.prior)

    def effects(self, rows: Array) -> list[Effect]:
        """Every unknown that some row depends on."""
        found = [
            Effect(number, level, str(owner))
            for number, field in enumerate(self.fields)
            for level in field.spreads
            for owner in np.unique(self.grouping.owners[level][rows])
        ]
        return found + [Effect(-1, "cluster", str(owner)) for owner in np.unique(self.grouping.cluster[rows])]

    def incidence(self, effects: Sequence[Effect], rows: Array) -> Incidence:
        """Which of some effects each constant of each row has."""
        where = {(effect.field, effect.level, effect.owner): place for place, effect in enumerate(effects)}
        members = {level: _indexed(names[rows]) for level, names in self.grouping.owners.items()}

        def places(number: int, level: str, owners: tuple[NDArray[np.str_], NDArray[np.int64]]) -> NDArray[np.int64]:
            names, index = owners
            return np.array([where.get((number, level, str(name)), len(effects)) for name in names])[index]

        pairs = [(n, places(n, level, members[level])) for n, field in enumerate(self.fields) for level in field.spreads]
        cluster = places(-1, "cluster", _indexed(self.grouping.cluster[rows]))
        return Incidence(self.centre, pairs, cluster, len(effects))

    def slopes(self, places: Array, rows: Array) -> tuple[Array, Array]:
        """Predicted logarithms, and their slopes in every place."""
        base = self.predict(places, rows)
        out = np.empty_like(places)
        for number in range(len(self.fields)):
            moved = places.copy()
            moved[:, number] += STEP
            out[:, number] = (self.predict(moved, rows) - base) / STEP
        return base, out

    def believed(self, rows: Array) -> Spreads:
        """Spreads before measuring."""
        table = {(n, level): sd for n, field in enumerate(self.fields) for level, sd in field.spreads.items()}
        return Spreads(table, CLUSTER, GROUP, {str(s): SCATTER for s in np.unique(self.grouping.source[rows])})


def _indexed(names: NDArray[np.str_]) -> tuple[NDArray[np.str_], NDArray[np.int64]]:
    unique, index = np.unique(names, return_inverse=True)
    return unique, index


@dataclasses.dataclass
class _Solved:
    mean: Array
    precision: Array
    covariance: Array
    group: Array
    group_variance: Array
    left: Array


def _linear(columns: Array, target: Array, weights: Array, group: NDArray[np.int64], tau: float, prior: Array) -> _Solved:
    """Posterior of the effects, the groups' intercepts integrated out."""
    count = int(group.max()) + 1
    weighted = columns * weights[:, None]
    total = np.bincount(group, weights, count)
    order = np.argsort(group, kind="stable")
    sums = np.add.reduceat(weighted[order], np.searchsorted(group[order], np.arange(count)))
    shrunk = 1.0 / (1.0 / tau**2 + total)
    precision = columns.T @ weighted - sums.T @ (sums * shrunk[:, None])
    sums_of_target = np.bincount(group, weights * target, count)
    right = weighted.T @ target - sums.T @ (shrunk * sums_of_target)
    precision[np.diag_indices_from(precision)] += 1.0 / prior**2
    covariance = np.linalg.inv(precision)
    mean = covariance @ right
    left = target - columns @ mean
    intercept = shrunk * np.bincount(group, weights * left, count)
    return _Solved(mean, precision, covariance, intercept, shrunk, left - intercept[group])


def _updated(
    spreads: Spreads, believed: Spreads, effects: Sequence[Effect], solved: _Solved, source: NDArray[np.str_], tails: Array
) -> Spreads:
    """One step of expectation-maximisation on the spreads."""
    moments = solved.mean**2 + np.diag(solved.covariance)
    gathered: dict[tuple[int, str], list[float]] = {}
    for effect, moment in zip(effects, moments, strict=True):
        gathered.setdefault((effect.field, effect.level), []).append(float(moment))

    def blend(moments_of: Sequence[float], before: float) -> float:
        estimate = float(np.sqrt((np.sum(moments_of) + BELIEF * before**2) / (len(moments_of) + BELIEF)))
        return min(estimate, MOST * before)

    # the spread of a field's mean is one draw: it stays as believed
    table = {
        key: blend(gathered[key], believed.effects[key]) if key in gathered and key[1] != "field" else sd
        for key, sd in spreads.effects.items()
    }
    squares = tails * solved.left**2
    scatter = {
        name: float(np.clip(np.sqrt(np.mean(squares[mine])), LEAST_SCATTER, MOST_SCATTER))
        for name in spreads.scatter
        if (mine := source == name).any()
    }
    # intercepts stay as believed: wider ones would take up what the constants have to explain
    return Spreads(table, believed.cluster, believed.group, scatter)


def _distance(left: Array, weights: Array, group: NDArray[np.int64], tau: float) -> float:
    """Square of the distance of what is left from none, the groups' intercepts integrated out."""
    count = int(group.max()) + 1
    total, sums = np.bincount(group, weights, count), np.bincount(group, weights * left, count)
    return float(np.sum(weights * left**2) - np.sum(sums**2 / (1.0 / tau**2 + total)))


def _searched(objective: Callable[[Array], float], start: Array, solved: _Solved) -> tuple[float, Array, float]:
    """The best of some damped steps, no effect moved by more than `LARGEST_STEP`: objective, place and damping."""
    towards = solved.precision @ (solved.mean - start)
    scale = np.diag(np.diag(solved.precision))
    best, where, taken = objective(start), start, math.inf
    for damping in DAMPINGS:
        step = scipy.linalg.solve(solved.precision + damping * scale, towards, assume_a="pos")
        tried = start + step * min(1.0, LARGEST_STEP / float(np.abs(step).max() or 1.0))
        value = objective(tried)
        if value < best:
            best, where, taken = value, tried, damping
    return best, where, taken


def fit(
    model: Model, rows: Array, start: tuple[Sequence[Effect], Array] | None = None, iterations: int = 10, inner: int = 4,
    only: frozenset[Effect] | None = None,
    settled: int = SETTLED, averaged: bool = False, report: Callable[[str], None] | None = None,
) -> Posterior:  # fmt: skip
    """Fit effects and spreads to some rows.

    Parameters
    ----------
    model : rows and unknowns
    rows : that are fitted
    start : effects and their values to start from
    iterations : of Gauss-Newton
    only : effects that are fitted; the others stay at their field's mean
    inner : steps of expectation-maximisation within each
    settled : iterations before spreads are estimated
    averaged : take the mean of the later half of the iterations: where roofs and floors of a sum take turns, they go to and fro
        over the optimum
    report : is told of each iteration
    """
    effects = [effect for effect in model.effects(rows) if only is None or effect.field < 0 or effect in only]
    incidence = model.incidence(effects, rows)
    known = {e: m for e, m in zip(*start, strict=True)} if start else {}
    mean = np.array([known.get(effect, 0.0) for effect in effects])
    if start is None:
        mean += np.array([model.head_start(effect) for effect in effects])
    _, group = _indexed(model.grouping.group[rows])
    source = model.grouping.source[rows]
    believed = model.believed(rows)
    spreads = believed
    tails = np.ones(len(rows))
    measured = model.measured[rows]
    fielded = np.array([effect.field >= 0 for effect in effects])
    latest, places = math.inf, []
    for iteration in range(iterations):
        base, slopes = model.slopes(incidence.places(mean), rows)
        columns = incidence.columns(slopes)
        target = measured - base + columns[:, fielded] @ mean[fielded]
        for _ in range(inner):
            scale = np.array([spreads.scatter[str(name)] for name in source])
            prior = np.array([spreads.effects[e.field, e.level] if e.field >= 0 else spreads.cluster for e in effects])
            solved = _linear(columns, target, tails / scale**2, group, spreads.group, prior)
            if iteration >= settled:
                spreads = _updated(spreads, believed, effects, solved, source, tails)
            tails = (model.freedom + 1.0) / (model.freedom + (solved.left / scale) ** 2)
        weights = tails / scale**2

        def objective(
            values: Array, of: Array = weights, tau: float = spreads.group, before: Array = prior, at: Array = columns
        ) -> float:
            predicted = model.predict(incidence.places(values), rows)
            left = measured - predicted - at[:, ~fielded] @ values[~fielded]
            return _distance(left, of, group, tau) + float(np.sum((values / before) ** 2))

        here, mean, damping = _searched(objective, mean, solved)
        places.append(mean)
        if report:
            typical = float(np.median(np.abs(measured - base)))
            report(f"{iteration}: objective {here:.1f}, damping {damping:g}, median |error| {typical:.4f}")
        if iteration > settled and abs(latest - here) < CONVERGED * here:
            break
        latest = here
    if averaged:
        mean = np.mean(places[-max(1, len(places) // 2) :], axis=0)
    residuals = measured - model.predict(incidence.places(mean), rows)
    names, _ = _indexed(model.grouping.group[rows])
    groups = {str(n): (float(b), float(v)) for n, b, v in zip(names, solved.group, solved.group_variance, strict=True)}
    return Posterior(effects, mean, solved.covariance, spreads, groups, residuals)

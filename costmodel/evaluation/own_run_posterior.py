"""What a handful of measured errors say: of a cluster's common factor, of constants, of a model, and of how far runs scatter.

Errors are normal given how far each of these spreads. How far the common factor and a model's plans spread isn't known: each of
`hypotheses` is believed as far as it foretells the errors (a mixture over scales: heavy tails before the runs, and an interval
afterwards that is as wide as runs scatter). A run that all others together hold for next to impossible is left out, and named.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from costmodel.evaluation.first_contacts import NINETY
from costmodel.evaluation.run_columns import Array
from costmodel.formulas import discrepancy

CHI_SQUARE = (0.5844, 1.4237, 2.3660, 3.6649, 6.2514)
"""Of three degrees of freedom, whose normal distributions of these precisions mix to Student's: at a tenth, three tenths, ..."""
DEGREES = 3.0
OWN, OWN_FACTOR, OWN_STEPS = 0.08, 2.3, 6
"""Median of the standard deviation of what is a model's and its plans' own, the factor by which it differs from one group of
measured runs to the next, and how many values of it are tried. Groups of runs that were met the first time scatter about their
median by 0.01 to 0.3 in the logarithm (`python -m calibration validate --own-runs`)."""
SCATTER, SCATTER_SHARE = 0.015, 0.25
"""Standard deviation of runs of one plan, and what each plan has besides that none shares, as a share of the variance of those
of a model."""
SURE = 3.0
"""Standard deviations of a normal distribution beyond which the others' word of a run counts as next to impossible."""
APART = 2.0
"""Standard deviation that a run that disagrees is given: it says nothing any more."""
LEAST = 3
"""Runs that it takes to say that one disagrees."""
TOGETHER = 200
"""Runs by which hypotheses are judged; of more, evenly spaced ones by their errors."""
NEAR, FAR = 1.0, 2.0
"""Steps from a run to a plan that is asked about: as far as to the nearest other run, this at least; and of a run alone."""
HALVINGS = 40


class Hypotheses(NamedTuple):
    """How far errors might spread."""

    common: Array  # standard deviation of the common factor's logarithm, of each
    own: Array  # of what is a model's and its plans' own
    weight: Array  # how far each is believed before the runs

    @property
    def scatter(self) -> Array:
        """Variance of a run of a plan, of what no other plan has."""
        return np.asarray(SCATTER**2 + SCATTER_SHARE * self.own**2)


@functools.cache
def hypotheses(spread: float) -> Hypotheses:
    """Student's distribution of the common factor, and a log-normal one of the spread of a model's plans, in steps.

    Parameters
    ----------
    spread : scale of the common factor's logarithm

    Examples
    --------
    >>> round(float(hypotheses(0.17).common.max()), 2), len(hypotheses(0.17).weight)
    (0.39, 30)
    """
    places = [statistics.NormalDist().inv_cdf((place + 0.5) / OWN_STEPS) for place in range(OWN_STEPS)]
    common = spread * np.sqrt(DEGREES / np.array(CHI_SQUARE))
    own = OWN * OWN_FACTOR ** np.array(places)
    each, other = np.meshgrid(common, own, indexing="ij")
    return Hypotheses(each.ravel(), other.ravel(), np.full(each.size, 1.0 / each.size))


@dataclasses.dataclass(frozen=True)
class Posterior:
    """What errors say."""

    common: float  # logarithm of the common factor
    heard: Array  # of each run, what it adds to a constant's logarithm for each unit of its covariance with that constant
    discrepancies: Array  # of each run, what it says of plans like its own
    added: Array  # in columns, what each run adds to `heard`: with it, less without it
    pull: Array  # the same of the common factor's logarithm
    surprise: Array  # of each run, how probable an error as far from what the others say is
    apart: tuple[int, ...]  # places of the runs that disagree
    spread: float  # half of a 90 % interval of another plan of these models, in standard deviations of a normal distribution
    believed: Hypotheses  # believed, weights: hypotheses, and how far each is believed after the runs
    weights: Array


def posterior(errors: Array, shared: Array, alike: Array, spread: float) -> Posterior:
    """What errors say of the common factor, of constants, and of plans.

    Parameters
    ----------
    errors : log(measured / estimated) of each run
    shared : covariance of every two errors that constants cause
    alike : what every two runs have in common of what is their model's and their plans' own, 0 of two models
    spread : scale of the common factor's logarithm before the runs

    Examples
    --------
    Three runs of plans that have little in common, all of which took a third longer, and one that took three times as long:

    >>> import math
    >>> alike = np.full((4, 4), 0.4) + 0.6 * np.eye(4)
    >>> found = posterior(np.log([1.33, 1.34, 1.33, 3.0]), np.zeros((4, 4)), alike, 0.17)
    >>> found.apart, round(math.exp(found.common + 0.4 * found.discrepancies.sum()), 2)
    ((3,), 1.33)
    """
    believed = hypotheses(spread)
    if len(errors) > TOGETHER:
        some = np.argsort(errors, kind="stable")[np.linspace(0, len(errors) - 1, TOGETHER).round().astype(int)]
        best = int(_robust(errors[some], shared[np.ix_(some, some)], alike[np.ix_(some, some)], believed)[0].weights.argmax())
        believed = Hypotheses(*(part[best : best + 1] for part in believed))._replace(weight=np.ones(1))
    solved, apart, surprise = _robust(errors, shared, alike, believed)
    common, own = believed.common**2, believed.own**2
    each = solved.inverse * (solved.answers / np.einsum("hii->hi", solved.inverse))[:, None, :]
    added, pull = np.tensordot(solved.weights, each, 1), np.tensordot(solved.weights * common, each.sum(axis=1), 1)
    one_plan = alike >= 1.0  # what its runs say apart is mostly their scatter, and goes out in their sum
    return Posterior(
        float((solved.weights * common) @ solved.answers.sum(axis=1)), solved.weights @ solved.answers,
        one_plan @ ((solved.weights * own) @ solved.answers) / one_plan.sum(axis=1), added, pull, surprise,
        tuple(int(place) for place in np.flatnonzero(apart)), _spread(solved, believed, shared, alike, apart), believed,
        solved.weights,
    )  # fmt: skip


class _Solved(NamedTuple):
    """Of each hypothesis the inverse of the errors' covariance, its product with the errors, and how far it is believed."""

    inverse: Array
    answers: Array
    weights: Array


def covariance(believed: Hypotheses, shared: Array, alike: Array) -> Array:
    """Covariance of errors by each hypothesis, without what is each run's alone.

    Parameters
    ----------
    believed : hypotheses
    shared, alike : as `posterior` takes them, of some runs with others
    """
    own = alike + SCATTER_SHARE * (alike >= 1.0)  # runs of one plan share all that is the plan's
    return np.asarray((believed.common**2)[:, None, None] + shared + (believed.own**2)[:, None, None] * own)


def _solved(errors: Array, shared: Array, alike: Array, believed: Hypotheses, extra: Array) -> _Solved:
    whole = covariance(believed, shared, alike) + np.diag(SCATTER**2 + extra)
    inverse = np.linalg.inv(whole)
    answers = inverse @ errors
    logarithm = np.log(believed.weight) - 0.5 * (answers @ errors + np.linalg.slogdet(whole)[1])
    weights = np.exp(logarithm - logarithm.max())
    return _Solved(inverse, answers, weights / weights.sum())


def _robust(errors: Array, shared: Array, alike: Array, believed: Hypotheses) -> tuple[_Solved, Array, Array]:
    """Solved without the runs that the others contradict: the farthest first, and the rest judged without it."""
    apart = np.zeros(len(errors), dtype=bool)
    limit = 2.0 * float(ndtr(-SURE))
    at_once = 1 + len(errors) // 64
    while True:
        solved = _solved(errors, shared, alike, believed, APART**2 * apart)
        surprise = _surprise(solved)
        if len(errors) < LEAST:
            return solved, apart, surprise
        far = np.flatnonzero((surprise < limit) & ~apart)
        room = (len(errors) - 1) // 2 - int(apart.sum())  # what most runs say isn't contradicted by a few
        if not len(far) or room <= 0:
            return solved, apart, surprise
        apart[far[np.argsort(surprise[far], kind="stable")][: min(at_once, room)]] = True


def _surprise(solved: _Solved) -> Array:
    """How probable an error at least as far from what the other runs say is, of each."""
    certain = np.einsum("hii->hi", solved.inverse)
    away, variance = solved.answers / certain, 1.0 / certain
    # a hypothesis as far as the others alone believe it
    logarithm = np.log(solved.weights + 1e-300)[:, None] + 0.5 * (away**2 / variance + np.log(variance))
    others = np.exp(logarithm - logarithm.max(axis=0))
    others /= others.sum(axis=0)
    below = (others * ndtr(away / np.sqrt(variance))).sum(axis=0)
    return np.asarray(2.0 * np.minimum(below, 1.0 - below))


def _spread(solved: _Solved, believed: Hypotheses, shared: Array, alike: Array, apart: Array) -> float:
    """Of plans as far from the runs as these are from each other: half of their 90 % interval over that of a normal one."""
    kept = np.flatnonzero(~apart)
    near = discrepancy.SHARED + (1.0 - discrepancy.SHARED) * discrepancy.correlation_at(NEAR)
    far = discrepancy.SHARED + (1.0 - discrepancy.SHARED) * discrepancy.correlation_at(FAR)
    known = np.minimum(alike[kept], near)
    others = known.copy()
    others[np.arange(len(kept)), kept] = -1.0
    nearest = others.max(axis=1) if len(kept) > 1 else np.full(1, far)
    known[np.arange(len(kept)), kept] = np.where(nearest > 0.0, nearest, far)
    cross = covariance(believed, shared[kept], known)
    told = np.einsum("hij,hjk,hik->hi", cross, solved.inverse, cross, optimize=True)
    noise = believed.scatter[:, None]
    variance = (believed.common**2 + believed.own**2)[:, None] + noise + shared[kept, kept] - told
    means = np.einsum("hij,hj->hi", cross, solved.answers)
    widths = _half_widths(means, np.sqrt(np.maximum(variance, noise)), solved.weights)
    return float(widths.mean()) / NINETY


def _half_widths(means: Array, deviations: Array, weights: Array) -> Array:
    """Half of the 90 % interval of mixtures of normal distributions, a column each."""
    centre, reach = weights @ means, 10.0 * float(deviations.max()) + float(np.ptp(means))

    def quantile(share: float) -> Array:
        low, high = centre - reach, centre + reach
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            under = weights @ ndtr((middle - means) / deviations) < share
            low, high = np.where(under, middle, low), np.where(under, high, middle)
        return np.asarray(0.5 * (low + high))

    return np.asarray(0.5 * (quantile(0.95) - quantile(0.05)))

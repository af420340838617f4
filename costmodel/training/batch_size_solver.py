"""Steps against batch sizes fitted, with intervals by profile likelihood."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import t as student

from costmodel.arithmetic.named_tuples import as_number
from costmodel.formulas.systems import batch_sizes as formulas

Floats = NDArray[np.float64]
REACH = 25.0
"""Powers of e beyond the batches tried within which constants are looked for: where none bounds an interval, none is there."""


class Fitted(NamedTuple):
    """Logarithms of a constant: its best value and both ends of its interval, infinite where the points give none."""

    best: float
    low: float
    high: float


def fit(batch: Floats, steps: Floats, confidence: float) -> tuple[Fitted, Fitted, Fitted, float]:
    r"""Fewest steps, critical batch and fewest samples of :math:`S = S_{min} (1 + B_{crit} / B)`.

    Errors of the steps are taken as relative, alike and normal in the logarithm. An interval holds the values for which
    the best fit of the rest isn't worse than Student's distribution allows: it stays right, and may be open, where the
    batches tried are all far below or all far above the critical one.

    Parameters
    ----------
    batch, steps : of runs to one loss, three at least
    confidence : of the intervals

    Returns
    -------
    tuple
        of the logarithms of the three, and the standard deviation of the steps' logarithms
    """
    measured = np.log(steps)
    low, high = math.log(batch.min()) - REACH, math.log(batch.max()) + REACH

    def residuals(fewest: Floats, critical: Floats) -> Floats:
        """One row for each critical batch, one column a run."""
        curve = formulas.steps(1.0, as_number(batch), as_number(np.exp(np.atleast_1d(critical))[:, None]))
        found: Floats = measured - np.atleast_1d(fewest)[:, None] - np.log(curve)
        return found

    def of_critical(critical: Floats) -> Floats:
        apart = residuals(np.zeros(1), critical)
        return _squares(apart - apart.mean(axis=1, keepdims=True))

    best = _least(of_critical, low, high)
    fewest = float(residuals(np.zeros(1), np.array(best)).mean())
    degrees = len(batch) - 2
    least = float(of_critical(np.array(best))[0])
    variance = least / degrees
    allowed = least + float(student.ppf(0.5 + 0.5 * confidence, degrees)) ** 2 * variance + 1e-12

    def of_fewest(value: float) -> float:
        return _smallest(lambda critical: _squares(residuals(np.array(value), critical)), low, high)

    def of_samples(value: float) -> float:
        return _smallest(lambda critical: _squares(residuals(value - critical, critical)), low, high)

    return (
        _interval(of_fewest, fewest, allowed), _interval(lambda value: float(of_critical(np.array(value))[0]), best, allowed),
        _interval(of_samples, fewest + best, allowed), math.sqrt(variance),
    )  # fmt: skip


def _squares(apart: Floats) -> Floats:
    summed: Floats = (apart**2).sum(axis=1)
    return summed


def _least(function: Callable[[Floats], Floats], low: float, high: float) -> float:
    """Where a function of one minimum, or of a slope that ends flat, is least."""
    grid = np.linspace(low, high, 201)
    place = int(np.argmin(function(grid)))
    ends = grid[max(place - 1, 0)], grid[min(place + 1, 200)]

    def one(value: float) -> float:
        return float(function(np.array(value))[0])

    return float(minimize_scalar(one, bounds=ends, method="bounded", options={"xatol": 1e-8}).x)


def _smallest(function: Callable[[Floats], Floats], low: float, high: float) -> float:
    return float(function(np.array(_least(function, low, high)))[0])


def _interval(function: Callable[[float], float], best: float, allowed: float) -> Fitted:
    """Best value, and where on each side the fit is as bad as allowed."""
    ends = []
    for side in (-1.0, 1.0):
        reach = 1e-3
        while reach < REACH and function(best + side * reach) < allowed:
            reach *= 2.0
        if reach >= REACH:
            ends.append(side * math.inf)
        else:
            ends.append(float(brentq(lambda value: function(value) - allowed, best, best + side * reach, xtol=1e-4)))
    return Fitted(best, *ends)

"""Fitting constants to measurements: robust least squares in logarithms, with a prior on every constant."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

Array = NDArray[Any]
STEP = 1e-4
NUDGE = 1e-2  # of the way to the prior, before a decomposition is tried again


@dataclasses.dataclass(frozen=True)
class UnknownConstant:
    """One unknown: a positive constant with what is believed of it before measuring."""

    owner: str  # device or framework it belongs to
    field: str  # its name there
    value: float  # prior value
    spread: float  # standard deviation of its logarithm before measuring
    low: float  # low, high: bounds
    high: float

    @property
    def label(self) -> str:
        """Owner and field."""
        return f"{self.owner}.{self.field}"


@dataclasses.dataclass(frozen=True)
class Fit:
    """What a fit found."""

    constants: Sequence[UnknownConstant]  # as given
    values: Array  # fitted values
    covariance: Array  # of the logarithms of the values
    residuals: Array  # logarithm of predicted over measured, a row
    scale: float  # robust standard deviation of the residuals

    @property
    def standard_errors(self) -> Array:
        """Relative standard error of each value."""
        return np.sqrt(np.diag(self.covariance))


def fit(
    constants: Sequence[UnknownConstant],
    residuals: Callable[[Array, Array | None], Array],
    rows: int,
    affects: Sequence[Array],
    weights: Array,
    noise: float | Array = 0.03,
    iterations: int = 40,
    start: Array | None = None,
) -> Fit:
    """Fit constants so that predictions meet measurements.

    Minimises the soft-L1 loss of the weighted log errors plus the squared distance of each log constant from its
    prior in units of its spread.

    Parameters
    ----------
    constants : what is unknown
    residuals : called with values and the rows wanted (None: all); gives log(predicted / measured)
    rows : how many there are
    affects : for each constant the indices of the rows that depend on it
    weights : of each row
    noise : log error of a typical good row, or of each row; larger errors count linearly
    iterations : most evaluations of the Jacobian
    start : values to start from; the priors if not given
    """
    prior = np.log([constant.value for constant in constants])
    spread = np.array([constant.spread for constant in constants])
    bounds = np.log([[constant.low, constant.high] for constant in constants]).T
    count = len(constants)

    level = np.broadcast_to(np.asarray(noise, dtype=float), (rows,))

    def squash(error: Array) -> tuple[Array, Array]:
        """Residual whose square is the soft-L1 loss, and its slope."""
        scaled = error / level
        root = np.sqrt(1.0 + scaled * scaled)
        value = np.sign(scaled) * np.sqrt(2.0 * (root - 1.0))
        slope = np.where(np.abs(scaled) < 1e-6, 1.0, scaled / root / np.where(value == 0.0, 1.0, value))
        return value, slope / level

    def full(theta: Array) -> Array:
        value, _ = squash(residuals(np.exp(theta), None))
        return np.concatenate([weights * value, (theta - prior) / spread])

    def jacobian(theta: Array) -> Array:
        latest[:] = theta
        base = residuals(np.exp(theta), None)
        _, slope = squash(base)
        matrix = np.zeros((rows + count, count))
        for column, touched in enumerate(affects):
            if len(touched):
                moved = theta.copy()
                moved[column] += STEP if theta[column] + STEP <= bounds[1][column] else -STEP  # never out of its bounds
                change = (residuals(np.exp(moved), touched) - base[touched]) / (moved[column] - theta[column])
                matrix[touched, column] = weights[touched] * slope[touched] * change
        matrix[rows:] = np.diag(1.0 / spread)
        return matrix

    first = np.clip(prior if start is None else np.log(start), bounds[0] + 1e-9, bounds[1] - 1e-9)
    latest = first.copy()
    solve = functools.partial(least_squares, full, bounds=bounds, max_nfev=iterations, x_scale=spread, ftol=1e-5)
    try:
        solution = solve(first, jac=jacobian)
    except np.linalg.LinAlgError:
        # LAPACK's fast decomposition fails to converge on rare matrices, not on their neighbours
        solution = solve(latest + NUDGE * (np.clip(prior, *bounds) - latest), jac=jacobian)
    final = residuals(np.exp(solution.x), None)
    information = solution.jac.T @ solution.jac
    scale = float(1.4826 * np.median(np.abs(final - np.median(final))))
    return Fit(constants, np.exp(solution.x), np.linalg.inv(information), final, scale)

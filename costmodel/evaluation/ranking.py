"""Which of the leading plans is really the fastest: probabilities, expected regret, and the winner's curse."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from costmodel.evaluation.estimation import Estimate, fill_slopes
from costmodel.evaluation.simplicity import TIE

DRAWS = 4000
SEED = 20


@dataclasses.dataclass(frozen=True)
class Standing:
    """Where a plan stands among those ranked with it.

    Parameters
    ----------
    probability_fastest : that no other ranked plan is faster
    probability_beats_first : that it is faster than the plan ranked first
    expected_regret : mean of its time over that of the truly fastest, minus one
    tied : whether it can't be told from the first
    """

    probability_fastest: float
    probability_beats_first: float
    expected_regret: float
    tied: bool


@dataclasses.dataclass(frozen=True)
class Standings:
    """Standings of ranked plans.

    Parameters
    ----------
    plans : one for each
    optimism : log of true over predicted time to expect of the plan ranked first, because it was chosen for its
        prediction: the winner's curse
    """

    plans: tuple[Standing, ...]
    optimism: float


def covariance(estimates: Sequence[Estimate]) -> np.ndarray:
    """Covariance of the estimates' logarithms: shared constants, and what is a plan's own.

    Plans of one model on one cluster share most of their error: what calibration found between such plans is the
    part that a comparison sees.

    Parameters
    ----------
    estimates : of one model, cluster and framework
    """
    count = len(estimates)
    fill_slopes(estimates)
    matrix = np.zeros((count, count))
    for i, one in enumerate(estimates):
        for j in range(i, count):
            matrix[i, j] = matrix[j, i] = one.slopes.covariance(estimates[j].slopes)
        matrix[i, i] += one.spread.within**2
    return matrix


def standings(estimates: Sequence[Estimate]) -> Standings:
    """Standings of ranked plans, by drawing their true times.

    Parameters
    ----------
    estimates : best first, of one model, cluster and framework

    Returns
    -------
    Standings
        the same for the same plans: the draws have a fixed seed
    """
    if not estimates:
        return Standings((), 0.0)
    matrix = covariance(estimates)
    root = np.linalg.cholesky(matrix + 1e-12 * np.eye(len(estimates)))
    noise = np.random.default_rng(SEED).standard_normal((DRAWS, len(estimates))) @ root.T
    predicted = np.log([estimate.step_time for estimate in estimates])
    true = predicted + noise
    best = true.min(axis=1)
    fastest = true.argmin(axis=1)
    regret = np.exp(true - best[:, None]).mean(axis=0) - 1.0
    # if these predictions were the truth and others were made with the same error, how flattered is their winner?
    again = predicted - noise
    winner = again.argmin(axis=1)
    rows = np.arange(DRAWS)
    optimism = float(np.mean(predicted[winner] - again[rows, winner]))
    plans = []
    for index in range(len(estimates)):
        beats = float(np.mean(true[:, index] < true[:, 0])) if index else 0.5
        plans.append(Standing(float(np.mean(fastest == index)), beats, float(regret[index]), index == 0 or beats >= TIE))
    return Standings(tuple(plans), max(optimism, 0.0) if math.isfinite(optimism) else 0.0)

"""Which of the leading plans is really the fastest: probabilities, expected regret, and the winner's curse."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from costmodel.evaluation.estimation import Estimate, fill_slopes
from costmodel.evaluation.simplicity import TIE
from costmodel.text.results import brief

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEADERS = 64
"""The fastest distinct plans among which the truly fastest is looked for, however many are shown; with twice as many no
probability moves by more than its draws scatter."""
DRAWS = 4000
SEED = 20


@dataclasses.dataclass(frozen=True)
class Rank:
    """Where a plan stands among the leading plans of a search."""

    probability_fastest: float  # that no other leading plan is faster
    probability_beats_first: float  # that it is faster than the plan ranked first
    expected_regret: float  # mean of its time over that of the truly fastest, minus one
    tied: bool  # whether it can't be told from the first


@dataclasses.dataclass(frozen=True)
class Ranking:
    """Standings of ranked plans."""

    plans: tuple[Rank, ...]  # one for each
    # log of true over predicted time to expect of the plan ranked first, because it was chosen for its prediction: the winner's
    # curse
    optimism: float

    __repr__ = brief


def shared_errors(estimates: Sequence[Estimate]) -> NDArray[np.float64]:
    """Errors of the estimates' logarithms that shared constants cause, plans x independent causes of unit variance.

    The product of this table with its transpose is the covariance of the errors.
    """
    fill_slopes(estimates)
    names = sorted({name for one in estimates for name in one.slopes.device})
    columns = [np.array([[one.slopes.device.get(name, 0.0) for name in names] for one in estimates]).reshape(len(estimates), -1)]
    for place, (_, matrix) in enumerate(estimates[0].slopes.blocks):
        variances, directions = np.linalg.eigh(np.array(matrix))
        slopes = np.array([one.slopes.blocks[place][0] for one in estimates])
        columns.append(slopes @ (directions * np.sqrt(np.maximum(variances, 0.0))))
    return np.concatenate(columns, axis=1)


def covariance(estimates: Sequence[Estimate]) -> NDArray[np.float64]:
    """Covariance of the estimates' logarithms: shared constants, and what is a plan's own.

    Plans of one model on one cluster share most of their error: what calibration found between such plans is the
    part that a comparison sees.
    """
    shared = shared_errors(estimates)
    found: NDArray[np.float64] = shared @ shared.T + np.diag([one.spread.within**2 for one in estimates])
    return found


def standings(estimates: Sequence[Estimate], leaders: Sequence[Estimate] | None = None) -> Ranking:
    """Standings of ranked plans, by drawing the true times of the leading ones.

    Parameters
    ----------
    estimates : best first, of one model, cluster and framework
    leaders : plans that may be the fastest, whether they are among `estimates` or not; the estimates themselves if None

    Returns
    -------
    Standings
        of the estimates. For the same leaders a plan has the same standing, whichever others are asked about: the draws have
        fixed seeds, and those of the leaders come first
    """
    if not estimates:
        return Ranking((), 0.0)
    drawn = list(estimates if leaders is None else leaders)
    count, known = len(drawn), {one.plan: place for place, one in enumerate(drawn)}
    for one in estimates:
        if one.plan not in known:
            known[one.plan] = len(drawn)
            drawn.append(one)
    shared = shared_errors(drawn)
    noise = shared @ _draws(0, shared.shape[1])
    noise += np.array([[one.spread.within] for one in drawn]) * _draws(1, len(drawn))
    predicted = np.log([[one.step_time] for one in drawn])
    true = predicted + noise
    best = true[:count].min(axis=0)
    # if these predictions were the truth and others were made with the same error, how flattered is their winner?
    again = (predicted - noise)[:count]
    winner = again.argmin(axis=0)
    optimism = float(np.mean(predicted[winner, 0] - again[winner, np.arange(DRAWS)]))
    first, plans = true[known[estimates[0].plan]], []
    for one in estimates:
        mine = true[known[one.plan]]
        beats = 0.5 if one is estimates[0] else float(np.mean(mine < first))
        plans.append(Rank(
            float(np.mean(mine <= best)), beats, float(np.mean(np.exp(mine - best))) - 1.0, one is estimates[0] or beats >= TIE
        ))  # fmt: skip
    return Ranking(tuple(plans), max(optimism, 0.0) if math.isfinite(optimism) else 0.0)


def _draws(stream: int, rows: int) -> NDArray[np.float64]:
    """Standard normal draws, each with its mirror image, so that their mean is 0; more rows leave the first as they are."""
    half = np.random.default_rng([SEED, stream]).standard_normal((rows, DRAWS // 2))
    return np.concatenate([half, -half], axis=1)

"""Which of plans that can't be told apart stands first: the simplest of them.

The rule, in this order, among the plans that can't be told from the fastest within the error of a comparison and are by
their estimates at most a fiftieth slower:

1. a plan whose tensor ranks share a node before one whose tensor ranks lie in several;
2. fewer dimensions: degrees above one, model chunks of a pipeline rank included, groups that share a copy apart, and ranks in
   another order than the framework's own;
3. more memory to spare, where that changes how surely the plan fits: the probability, in whole per cent;
4. the shorter step.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from costmodel.description.dimensions import DIMENSIONS
from costmodel.evaluation.estimation import Estimate, fill_slopes
from costmodel.formulas.quantities import Number

TIE = 0.2
"""A plan that is faster than another with at least this probability is tied with it."""
CLOSE = 1.02
"""Times the fastest step at which a plan may stand first for being simple alone."""
SURE = 99
"""Per cent beyond which memory to spare makes no plan surer to fit."""


class Simplicity(NamedTuple):
    """How simple a plan is; the smaller stands first."""

    spans_nodes: int  # 1 where tensor ranks of one group lie in several nodes
    dimensions: int  # degrees above one, and what else is of its own
    unsure: int  # per cent of certainty to fit that it lacks


def spans_nodes(stride: Number, tensor_parallel: Number, gpus_per_node: int) -> bool:
    """Whether tensor ranks of one group lie in several nodes; of numbers, or of columns.

    Parameters
    ----------
    stride : distance of neighbours in the group [ranks]
    tensor_parallel : ranks of it
    gpus_per_node : of the cluster

    Examples
    --------
    >>> spans_nodes(1.0, 8.0, 8), spans_nodes(1.0, 16.0, 8), spans_nodes(2.0, 8.0, 8)
    (False, True, True)
    """
    return (tensor_parallel > 1) & (gpus_per_node % (stride * tensor_parallel) != 0)


def simplicity(estimate: Estimate) -> Simplicity:
    """How simple an estimated plan is."""
    plan, numbers = estimate.plan, estimate.inputs.plan
    across = spans_nodes(numbers.tensor_stride, numbers.tensor, estimate.cluster.gpus_per_node)
    split = sum(getattr(plan, dimension.field) > 1 for dimension in DIMENSIONS) + (plan.shard_group is not None)
    split += estimate.framework.turns(plan.rank_order)
    return Simplicity(int(across), split, SURE - min(SURE, math.floor(100.0 * estimate.fit_probability)))


def probability_faster(one: Estimate, other: Estimate) -> float:
    """Probability that one plan's step is shorter than another's, what they share of their errors left out.

    Parameters
    ----------
    one, other : of one model, cluster and framework
    """
    mine, theirs = one.slopes, other.slopes
    shared = mine.covariance(mine) + theirs.covariance(theirs) - 2.0 * mine.covariance(theirs)
    spread = math.sqrt(max(shared, 0.0) + one.spread.within**2 + other.spread.within**2)
    later = math.log(one.step_time / other.step_time)
    return float(statistics.NormalDist().cdf(-later / spread)) if spread > 0.0 else float(later < 0.0)


def simplest_first(estimates: Sequence[Estimate]) -> list[Estimate]:
    """Plans by their step times, the simplest of those that can't be told from the fastest put first."""
    ranked = sorted(estimates, key=lambda one: one.step_time)
    if not ranked:
        return ranked
    fastest, keys = ranked[0], [(simplicity(one), one.step_time) for one in ranked]
    near = CLOSE * fastest.step_time
    simpler = [(key, one) for key, one in zip(keys, ranked, strict=True) if key < keys[0] and key[1] <= near]
    if not simpler:
        return ranked
    fill_slopes([fastest, *(one for _, one in simpler)])
    tied = [(keys[0], fastest), *(each for each in simpler if probability_faster(each[1], fastest) >= TIE)]
    _, first = min(tied, key=lambda each: each[0])
    return [first, *(one for one in ranked if one is not first)]

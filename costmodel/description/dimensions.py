"""The parallel dimensions of a plan, one row each: from them come checks, columns of a search, ranks and short names."""

from __future__ import annotations

import itertools
from typing import NamedTuple


class Dimension(NamedTuple):
    """A degree of a plan."""

    field: str  # of `Plan`, and of the command line
    column: str  # of `PlanNumbers`
    short: str  # as people and frameworks abbreviate it
    splits_gpus: bool  # the product of those that do is the number of GPUs; they have a place in a plan's rank order
    tried: str = "every divisor"  # what a search tries where nothing is given
    rare: bool = False  # seldom asked for


DIMENSIONS = (
    Dimension("tensor_parallel", "tensor", "TP", True, "every divisor of the GPUs"),
    Dimension("context_parallel", "context", "CP", True),
    Dimension("data_parallel", "data", "DP", True, "what is left of the GPUs"),
    Dimension("pipeline_parallel", "pipeline", "PP", True),
    Dimension("expert_parallel", "expert", "EP", False),
    Dimension("expert_tensor_parallel", "expert_tensor", "ETP", False, rare=True),
    Dimension("virtual_stages", "virtual_stages", "VP", False, "every even split up to 8"),
)
"""Every parallel dimension, those that split the GPUs in the default order of ranks, innermost first."""
RANK_ORDER = tuple(one.column for one in DIMENSIONS if one.splits_gpus)
"""The default order of ranks, innermost first."""
TENSOR_INNERMOST = tuple((RANK_ORDER[0], *others) for others in itertools.permutations(RANK_ORDER[1:]))
"""Every order of ranks in which those of a tensor group are neighbours."""
WRITTEN = tuple(sorted(DIMENSIONS, key=lambda one: ("TP CP PP VP DP EP ETP " + one.short).split().index(one.short)))
"""Every parallel dimension in the order in which frameworks write a plan."""

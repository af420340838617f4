"""Which modules of a layer run again in the backward pass, because a plan recomputes them."""

from __future__ import annotations

from typing import NamedTuple

from costmodel.formulas.quantities import Number, PlanNumbers


class ExpertsAgain(NamedTuple):
    """1 for a module of a layer of experts that runs again in the backward pass."""

    routed: Number  # router, routed experts and their exchange
    activation: Number  # of the routed experts
    shared: Number


def experts_again(plan: PlanNumbers) -> ExpertsAgain:
    """Modules of a layer of experts that run again where the layer isn't recomputed whole, `ExpertsAgain`.

    Experts that are recomputed take their activation and the shared experts with them.
    """
    whole, alone = plan.recompute_experts, 1.0 - plan.recompute_experts
    return ExpertsAgain(whole, whole + alone * plan.recompute_expert_activation, whole + alone * plan.recompute_shared_experts)

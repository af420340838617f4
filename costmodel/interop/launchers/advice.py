"""What would make a launch faster: single changes, and the flags that make them."""

from __future__ import annotations

import dataclasses

from costmodel.arithmetic.named_tuples import changed
from costmodel.catalogue.releases import base_name
from costmodel.description.plan import Plan
from costmodel.evaluation.estimation import Estimate
from costmodel.evaluation.single_changes import changes_for_speed, estimated
from costmodel.interop.launchers.pricing import Launch
from costmodel.interop.launchers.writing import flags_of, formats
from costmodel.text.errors import CostModelError, NotModelled
from costmodel.text.results import brief

WORTH = 0.002
"""Share of the step that a change has to save to be named."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Advice:
    """A single change after which a plan is faster and fits."""

    change: dict[str, object] = dataclasses.field(hash=False)  # fields of the plan
    flags: tuple[str, ...]  # lines of the launch file that would be new, none where the dialect can't say them
    estimate: Estimate  # of the changed plan
    gain: float  # share of the step time that it saves

    __repr__ = brief


def improvements(launch: Launch, answer: Estimate, most: int = 5) -> list[Advice]:
    """Single changes that make a launched plan faster, the best first.

    Parameters
    ----------
    launch : whose dialect gives the flags
    answer : of `estimate`, for the launch's plan
    most : changes to name
    """
    found = []
    for fields in changes_for_speed(answer.plan):
        better = estimated(answer, fields)
        if better is None or not better.fits:
            continue
        gain = 1.0 - better.step_time / answer.step_time
        if gain > WORTH:
            found.append((gain, fields, better))
    found.sort(key=lambda one: -one[0])
    apart = [
        one for place, one in enumerate(found) if not any(_alike(one[2], earlier[2]) for earlier in found[:place])
    ]  # what a flash kernel recomputes anyway, say, is no change of its own
    return [
        Advice(change=fields, flags=flags(launch, answer, better), estimate=better, gain=gain)
        for gain, fields, better in apart[:most]
    ]


def in_samples(launch: Launch, plan: Plan) -> Plan:
    """A plan with batches as the launch's files count them: of pairs, where a sample is two sequences."""
    if not launch.plan_fields.get("paired"):
        return plan
    if plan.micro_batch % 2:
        raise NotModelled(f"{launch.framework} can't say micro_batch={plan.micro_batch}: its samples are pairs")
    return changed(plan, {name: getattr(plan, name) // 2 for name in ("global_batch", "micro_batch")})


def _alike(one: Estimate, other: Estimate) -> bool:
    """Whether two plans differ in neither time nor memory by a thousandth."""
    return (
        abs(one.step_time / other.step_time - 1.0) < 1e-3
        and abs(float(one.memory.total) / float(other.memory.total) - 1.0) < 1e-3
    )


def flags(launch: Launch, before: Estimate, after: Estimate) -> tuple[str, ...]:
    """Lines of a dialect's file that a changed plan has and the plan before has not."""
    if launch.dialect not in formats():
        return ()
    try:
        plans = [in_samples(launch, one.plan) for one in (before, after)]
        old, new = (flags_of(launch.dialect, plan, before.model, base_name(before.framework.name)) for plan in plans)
    except CostModelError:  # a dialect that can't say a plan, or halves of pairs, has no flags for it
        return ()
    fresh = [line for flag, line in new.items() if old.get(flag) != line]
    return (*fresh, *(f"(without {line})" for flag, line in old.items() if flag not in new))

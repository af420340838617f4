"""Single changes of a plan, or of a question, after which less may be held: one list for all that offers them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from costmodel.arithmetic.named_tuples import Row
from costmodel.description.framework import Framework
from costmodel.description.plan import COMPRESSION_PARAMETERS, Plan, divisors

GROWING = ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel")
"""Degrees that a single change may double."""
TRAINED_LESS: tuple[Row, ...] = ({"adapter": "lora"}, {"adapter": "qlora"})
"""Changes of what is trained."""
LEANER: tuple[Row, ...] = (
    {"optimizer": "adam-8bit"}, {"optimizer": "adam-bf16-moments"}, {"optimizer_offload": 1.0}, {"activation_offload": 1.0},
)  # fmt: skip
"""Changes that no search tries by itself, as numerics or what the plan runs on change with them."""
LEANER_TOGETHER: tuple[Row, ...] = ({"optimizer_offload": 1.0, "activation_offload": 1.0},)
"""Two of them where neither is enough."""
OPEN = (
    "recompute", "zero_stage", "micro_batch", "shard_group", "tensor_parallel", "context_parallel", "pipeline_parallel",
    "data_parallel", "virtual_stages", "expert_parallel", "expert_tensor_parallel", "schedule", "sequence_parallel",
)  # fmt: skip
"""Dimensions that a search tries by itself, if it is let."""


def changes_of_plan(plan: Plan, framework: Framework) -> Iterator[Row]:
    """Decisions that differ from a plan's, on as many GPUs: the fields that change together.

    Parameters
    ----------
    plan : with the framework's defaults filled in
    framework : the software
    """
    for smaller in divisors(plan.micro_batch, plan.micro_batch - 1):
        yield {"micro_batch": smaller}
    if plan.recompute != "full":
        for choice in ("selective", 4, 2, "full"):
            if choice != plan.recompute:
                yield {"recompute": choice}
    for degree in GROWING:
        for factor in (2, 4, 8):
            fields: Row = {degree: getattr(plan, degree) * factor}
            if degree != "expert_parallel":
                if plan.copies % factor:
                    continue
                fields["data_parallel"] = plan.copies // factor
                if degree == "tensor_parallel":
                    fields["sequence_parallel"] = plan.sequence_parallel or framework.sequence_parallel
            yield fields
    uncompressed: Row = {} if plan.compression == "none" else {"compression": "none"}
    uncompressed |= {name: None for name in COMPRESSION_PARAMETERS if getattr(plan, name) is not None}
    for stage in range((plan.zero_stage or 0) + 1, 4):
        fields = {"zero_stage": stage}
        if plan.synchronisation != "all-reduce":
            fields |= {"synchronisation": "all-reduce", "servers": 0, "local_steps": 1}
        yield fields | uncompressed if stage > 1 else fields
    if uncompressed:
        yield uncompressed
    if plan.shard_group is not None:
        yield {"shard_group": None}
    if plan.tensor_parallel > 1 and not plan.sequence_parallel:
        yield {"sequence_parallel": True}
    if plan.virtual_stages > 1:
        yield {"virtual_stages": 1, "schedule": "1f1b"}
    elif plan.schedule not in ("1f1b", "interleaved") and plan.pipeline_parallel > 1:
        yield {"schedule": "1f1b"}
    if plan.attention != "flash":
        yield {"attention": "flash"}
    if not plan.fused_cross_entropy:
        yield {"fused_cross_entropy": True}
    for leaner in LEANER:
        if all(_leaner(getattr(plan, field), value) for field, value in leaner.items()):
            yield leaner


def _leaner(value: object, other: object) -> bool:
    """Whether another value of an optimizer, or of a share that is offloaded, may hold less."""
    return value in (None, "adam") if isinstance(other, str) else value != other


def changes_of_question(asked: Mapping[str, object]) -> Iterator[Row]:
    """What no search tries by itself and a question leaves open; then all that it fixes, left open: None.

    Parameters
    ----------
    asked : dimensions of a search
    """
    for change in (*TRAINED_LESS, *LEANER, *LEANER_TOGETHER):
        if not set(change) & set(asked):
            yield change
    fixed = [name for name in OPEN if name in asked]
    if fixed:
        yield dict.fromkeys(fixed)


__all__ = ["LEANER", "LEANER_TOGETHER", "OPEN", "TRAINED_LESS", "changes_of_plan", "changes_of_question"]

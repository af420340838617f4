"""Single changes of a plan, or of a question, after which less may be held or a step may take less time: the one list of them.

Choices come from the rows of `Plan` (its `leaner` and `faster`), degrees and batches, which change together, from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from costmodel.arithmetic.named_tuples import Row, changed
from costmodel.arithmetic.whole_numbers import divisors
from costmodel.description.fields import FieldRow, table
from costmodel.description.framework import Framework
from costmodel.description.plan import Plan
from costmodel.evaluation.estimation import Estimate, estimate
from costmodel.text.errors import CostModelError

GROWING = ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel")
"""Degrees that a single change may double."""
TRAINED_LESS: tuple[Row, ...] = ({"adapter": "lora"}, {"adapter": "qlora"})
"""Changes of what is trained."""
LEANER: tuple[Row, ...] = tuple(
    {row.name: value} for row in table(Plan).values() if not row.column and not row.software for value in row.leaner
)
"""Changes that no search tries by itself, as numerics or what the plan runs on change with them."""
LEANER_TOGETHER: tuple[Row, ...] = ({name: 1.0 for change in LEANER for name, value in change.items() if value == 1.0},)
"""Shares that are offloaded together, where one is not enough."""
OPEN = tuple(row.name for row in table(Plan).values() if row.column)
"""Dimensions that a search tries by itself, if it is let."""
LOADED = ("loading",)
"""Choices that are the framework's unless a question makes them, and can need more than a step does."""
CHUNKS = (2, 3, 4, 5, 6, 8)
"""Model chunks on a pipeline rank that are tried for speed."""


def in_words(change: Row) -> str:
    """A change as arguments of `Plan`."""
    return ", ".join(f"{name}={value}" for name, value in change.items())


def estimated(answer: Estimate, change: Row) -> Estimate | None:
    """The estimate after a change of its plan; None where this plan, model, cluster or framework can't make it."""
    try:
        plan = changed(answer.plan, change)
        return estimate(answer.model, answer.cluster, plan, answer.framework, fit_probability=answer.required_probability)
    except CostModelError:
        return None


def changes_to_fit(plan: Plan, framework: Framework, light: str) -> Iterator[Row]:
    """Decisions that differ from a plan's, on as many GPUs, after which less may be held: the fields that change together.

    Parameters
    ----------
    plan : with the framework's defaults filled in
    framework : the software
    light : modules that cost least to compute again, as `light_modules` has them
    """
    for smaller in divisors(plan.micro_batch, plan.micro_batch - 1):
        yield {"micro_batch": smaller}
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
    yield from _sharded(plan)
    if plan.shard_group is not None:
        yield {"shard_group": None}
    if plan.virtual_stages > 1:
        yield {"virtual_stages": 1, "schedule": "1f1b"}
    elif plan.schedule not in ("1f1b", "interleaved") and plan.pipeline_parallel > 1:
        yield {"schedule": "1f1b"}
    if light and plan.recompute == "none":
        yield {"recompute": light}
    for row in table(Plan).values():
        if row.leaner and _may_hold_less(plan, row):
            yield from _turned(plan, row, row.leaner)


def _may_hold_less(plan: Plan, row: FieldRow) -> bool:
    """Whether another value of a field may hold less than the plan's: not where that is the leanest already."""
    value = getattr(plan, row.name)
    return value in (None, "adam") if row.name == "optimizer" else value != row.leaner[-1]


def _turned(plan: Plan, row: FieldRow, values: Iterable[object]) -> Iterator[Row]:
    """A field turned to each of some values, where these aren't its own and it isn't idle."""
    if getattr(plan, row.idle, 2) > 1:
        yield from ({row.name: value} for value in values if value != getattr(plan, row.name))


def _sharded(plan: Plan) -> Iterator[Row]:
    """Further stages of ZeRO, without what they rule out; and gradients uncompressed, which keep no errors."""
    uncompressed: Row = {} if plan.compression == "none" else {"compression": "none"}
    uncompressed |= {
        row.name: None for row in table(Plan).values()
        if row.owner is not None and row.owner.field == "compression" and getattr(plan, row.name) is not None
    }  # fmt: skip
    for stage in range((plan.zero_stage or 0) + 1, 4):
        fields: Row = {"zero_stage": stage}
        if plan.synchronisation != "all-reduce":
            owned = (row for row in table(Plan).values() if row.owner is not None and row.owner.field == "synchronisation")
            fields |= {"synchronisation": "all-reduce"} | {row.name: row.default for row in owned}
        yield fields | uncompressed if stage > 1 else fields
    if uncompressed:
        yield uncompressed


def changes_for_speed(plan: Plan) -> Iterator[Row]:
    """Decisions that differ from a plan's, on as many GPUs, after which a step may take less time."""
    for row in table(Plan).values():
        yield from _turned(plan, row, row.faster)
    for factor in (2, 4):
        yield {"micro_batch": plan.micro_batch * factor}
    if plan.micro_batch % 2 == 0:
        yield {"micro_batch": plan.micro_batch // 2}
    if plan.pipeline_parallel > 1:
        for chunks in CHUNKS:
            yield {"virtual_stages": chunks, "schedule": "interleaved"}
    for degree in GROWING[:3]:
        yield from _doubled_or_halved(plan, degree)
    if plan.expert_parallel > 1 and plan.expert_parallel % 2 == 0:
        yield {"expert_parallel": plan.expert_parallel // 2}
    yield {"expert_parallel": plan.expert_parallel * 2}


def _doubled_or_halved(plan: Plan, degree: str) -> Iterator[Row]:
    """Half of a degree with twice the copies, and the reverse, with what goes on and off with it."""
    value = getattr(plan, degree)
    smaller: Row = {"sequence_parallel": False} if degree == "tensor_parallel" and value == 2 else {}
    if degree == "pipeline_parallel" and value == 2:
        smaller |= {"virtual_stages": 1, "schedule": "1f1b"}
    if value % 2 == 0:
        yield {degree: value // 2, "data_parallel": plan.copies * 2, **smaller}
    if plan.copies % 2 == 0:
        grown: Row = {"sequence_parallel": True} if degree == "tensor_parallel" and value == 1 else {}
        yield {degree: value * 2, "data_parallel": plan.copies // 2, **grown}


def _trained_less(asked: Mapping[str, object]) -> Iterable[Row]:
    """What is trained in less than the question asks for: of adapters a leaner one; nothing where all weights are asked for."""
    given = asked.get("adapter", ())
    values = list(given) if isinstance(given, list | tuple) else [given]
    order = [change["adapter"] for change in TRAINED_LESS]
    if any(value not in order for value in values):
        return ()
    return TRAINED_LESS[max((order.index(value) + 1 for value in values), default=0) :]


def changes_of_question(asked: Mapping[str, object]) -> Iterator[Row]:
    """What no search tries by itself and a question leaves open; then all that it fixes, and how a model is loaded, left open.

    A dimension that is left open is None.
    """
    yield from _trained_less(asked)
    for change in (*LEANER, *LEANER_TOGETHER):
        if not set(change) & set(asked):
            yield change
    for fixed in ([name for name in OPEN if name in asked], [name for name in LOADED if name in asked]):
        if fixed:
            yield dict.fromkeys(fixed)

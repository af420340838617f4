"""A plan and its answer in words, the same on the command line, in figures and on pages."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from costmodel.description.cluster import Cluster
from costmodel.description.dimensions import DIMENSIONS, WRITTEN
from costmodel.description.fields import FieldRow, table
from costmodel.description.framework import OF_EXPERTS, Framework
from costmodel.description.plan import Plan
from costmodel.description.refusals import REJECTED, RULED_OUT
from costmodel.description.transformer import Transformer
from costmodel.text.units import counted

PARTS = {
    "tensor_exchange": "tensor communication", "context_exchange": "context communication",
    "expert_exchange": "expert communication", "pipeline_exchange": "pipeline communication",
    "gradient_exchange": "gradient communication", "parameter_exchange": "parameter communication",
}  # fmt: skip
"""Parts of a step whose field is not their name."""
TIED = "can't be told from the first within the error"
"""What a mark beside a plan says of it."""


class Sought(NamedTuple):
    """What a capacity is of."""

    words: str  # what it is
    thing: str  # what it is counted in
    asked: tuple[str, ...] = ("global_batch", "seq_len")  # fields of a question that it needs
    found: tuple[str, ...] = ()  # fields of a plan that it finds


CAPACITIES = {
    "sequence": Sought("longest sequence that fits", "token", ("global_batch",), ("seq_len",)),
    "batch": Sought(
        "largest batch that fits at once, without gradient accumulation", "sequence", ("seq_len",),
        ("global_batch", "micro_batch"),
    ),
    "micro-batch": Sought("largest micro-batch that fits", "sequence", found=("micro_batch",)),
    "layers": Sought("deepest model that fits", "layer"),
    "gpus": Sought("fewest GPUs on which a plan fits", "GPU"),
}  # fmt: skip
"""How far a question can be stretched, by what is sought."""


def asked(
    model: Transformer, cluster: Cluster, framework: Framework, *, gpus: int | None = None, work: tuple[int, int] | None = None
) -> str:
    """A question in words: model, hardware, software and work.

    Parameters
    ----------
    model, cluster, framework : of the question
    gpus : how many of them; the cluster's if None
    work : sequences of a step and tokens of a sequence
    """
    line = f"{model.name} on {counted(gpus or cluster.gpus or 1, 'GPU')} of {cluster.name}, {framework.name}"
    return line if work is None else f"{line}: {of_a_step(*work)}"


def of_a_step(global_batch: int, seq_len: int) -> str:
    """The work of a step in words.

    Parameters
    ----------
    global_batch : sequences of a step
    seq_len : tokens of a sequence
    """
    return f"{counted(global_batch, 'sequence')} of {counted(seq_len, 'token')} a step"


def glossary() -> str:
    """What pages say of the words of their tables."""
    degrees = ", ".join(f"{one.short} {field_name(one.field)}" for one in WRITTEN)
    return (
        f"A plan is called by how it splits the work over GPUs, TP2 by a tensor degree of 2: {degrees}; then by what isn't usual "
        f"of it. ~ {TIED}; of such plans the simplest comes first. MFU: share of the GPUs' peak that the model's own FLOP make. "
        "P(fastest): how likely no other plan is faster. Whiskers and intervals: 90 of 100 runs are inside. GiB: of the fullest "
        "GPU, and up to which it is judged to fit."
    )


def rejections(counts: Mapping[str, int]) -> str:
    """How many combinations broke which rule, in words, the commonest first.

    Parameters
    ----------
    counts : by the rule, as `SearchResult.rejected` has them

    Examples
    --------
    >>> rejections({"tensor_heads": 12, "pipeline_layers": 4000})
    "4,000 with layers that don't split into the stages, 12 with a tensor degree that doesn't divide the heads"
    """
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    known = {rule: REJECTED.get(rule) or RULED_OUT.format(field_name(rule)) for rule in counts}
    return ", ".join(f"{count:,} {known[rule]}" for rule, count in ordered if count)


def part_name(part: str) -> str:
    """A part of the step or of the memory in words.

    Examples
    --------
    >>> part_name("gradient_exchange")
    'gradient communication'
    """
    return PARTS.get(part, part.replace("_", " "))


def field_name(field: str) -> str:
    """A field of a plan in words.

    Parameters
    ----------
    field : as `costmodel.Plan` has it

    Examples
    --------
    >>> field_name("zero_stage"), field_name("data_parallel")
    ('ZeRO stage', 'data parallel')
    """
    row = table(Plan).get(field)
    return row.words if row else field.replace("_", " ")


FIRST = ("micro_batch", "recompute", "zero_stage", "schedule", "dtype", "shard_group", "dispatcher")
"""Fields of which is spoken first."""


@functools.cache
def spoken_of() -> tuple[FieldRow, ...]:
    """Rows of the fields of which something is said beside a plan's degrees, in the order in which it is."""
    rows = {name: row for name, row in table(Plan).items() if row.said}
    return tuple({name: rows[name] for name in (*FIRST, *rows)}.values())


def degrees(plan: Plan) -> str:
    """Degrees of a plan above one as one word, in the letters of frameworks: VP is the model chunks on a pipeline rank.

    Examples
    --------
    >>> from costmodel import Plan
    >>> degrees(Plan(global_batch=64, seq_len=2048, tensor_parallel=4, pipeline_parallel=2, virtual_stages=3))
    'TP4 PP2 VP3'
    """
    words = [f"{one.short}{getattr(plan, one.field)}" for one in WRITTEN if (getattr(plan, one.field) or 1) > 1]
    return " ".join(words) or "one GPU"


def ordered(plan: Plan) -> str:
    """The order of a plan's ranks, innermost first.

    Examples
    --------
    >>> from costmodel import Plan
    >>> ordered(Plan(global_batch=64, seq_len=2048))
    'TP-CP-DP-PP'
    """
    short = {one.column: one.short for one in DIMENSIONS}
    return "-".join(short[name] for name in plan.rank_order)


def alternatives(plan: Plan, twins: Sequence[Plan]) -> str:
    """In what the plans of one row of a ranking differ: what changes neither time nor memory; empty where there is one.

    Examples
    --------
    >>> import dataclasses
    >>> from costmodel import Plan
    >>> plan = Plan(global_batch=64, seq_len=2048, zero_stage=1)
    >>> turned = dataclasses.replace(plan, rank_order=("tensor", "context", "pipeline", "data"))
    >>> alternatives(plan, [turned]), alternatives(plan, [dataclasses.replace(plan, zero_stage=2)])
    ('either rank order', 'ZeRO 1 or 2')
    """
    named = {"zero_stage": "ZeRO", **{one.field: one.short for one in WRITTEN}}
    words = []
    for field in dataclasses.fields(plan):
        values = list(dict.fromkeys(getattr(one, field.name) for one in (plan, *twins)))
        if len(values) == 1:
            continue
        if field.name == "rank_order":
            words.append("either rank order" if len(values) == 2 else f"any of {len(values)} rank orders")
        else:
            said = ["all ranks" if value is None else str(value) for value in values]
            words.append(f"{named.get(field.name, field.name.replace('_', ' '))} {' or '.join(said)}")
    return ", ".join(words)


SIZES = {"gpus": "GPUs", "seq_len": "tokens a sequence"}
"""Of a question, as a change of it names them."""


def spoken(change: str) -> str:
    """A change of a question in words.

    Parameters
    ----------
    change : fields and their values, as `costmodel.evaluation.offers.Offer` has it

    Examples
    --------
    >>> spoken("adapter=lora, optimizer_offload=1.0"), spoken("gpus=1024"), spoken("zero_stage=any")
    ('adapter lora, optimizer in host memory', '1,024 GPUs', 'any ZeRO stage')
    """
    return ", ".join(_spoken(*part.split("=")) for part in change.split(", "))


def _spoken(name: str, value: str) -> str:
    if value == "any":
        return f"any {field_name(name)}"
    if name.endswith("_offload"):
        return f"{name.removesuffix('_offload')} in host memory"
    return f"{int(value):,} {SIZES[name]}" if name in SIZES else f"{field_name(name)} {value}"


def label(plan: Plan) -> str:
    """A plan in a few words: its degrees, and what else differs from the commonest.

    Examples
    --------
    >>> from costmodel import Plan
    >>> label(Plan(global_batch=64, seq_len=2048, data_parallel=8, micro_batch=2, recompute="full", zero_stage=1))
    'DP8, micro-batch 2, recompute full'
    """
    return ", ".join([degrees(plan), *_said(plan)])


def placed(plan: Plan) -> list[str]:
    """How a plan's ranks share and stand where that isn't the commonest way: groups that share a copy, the order of ranks.

    Examples
    --------
    >>> from costmodel import Plan
    >>> placed(Plan(global_batch=64, seq_len=2048, data_parallel=64, shard_group=8))
    ['shard group 8']
    """
    return _said(plan, ("shard_group", "rank_order"))


def dispatched(plan: Plan) -> list[str]:
    """How tokens come to their experts where that isn't the commonest way.

    Examples
    --------
    >>> from costmodel import Plan
    >>> dispatched(Plan(global_batch=64, seq_len=2048, expert_parallel=8, dispatcher="deduplicated", overlap_experts=True))
    ['deduplicated dispatch', 'experts overlapped']
    """
    return _said(plan, OF_EXPERTS)


def _said(plan: Plan, fields: Sequence[str] = ()) -> list[str]:
    words = []
    for row in spoken_of():
        if row.name in OF_EXPERTS and plan.expert_parallel == 1:
            continue
        value = getattr(plan, row.name)
        if value is None:  # left to the framework
            continue
        if (not fields or row.name in fields) and (tuple(value) if isinstance(value, list) else value) not in row.usual:
            words.append(row.said.format(ordered(plan) if row.name == "rank_order" else value))
    return words

"""A plan and its answer in words, the same on the command line, in figures and on pages."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from costmodel.description.dimensions import DIMENSIONS, RANK_ORDER, WRITTEN
from costmodel.units import GiB

if TYPE_CHECKING:
    from costmodel.description.plan import Plan
    from costmodel.evaluation.estimation import Estimate

PARTS = {
    "tensor_exchange": "tensor communication", "context_exchange": "context communication",
    "expert_exchange": "expert communication", "pipeline_exchange": "pipeline communication",
    "gradient_exchange": "gradient communication", "parameter_exchange": "parameter communication",
}  # fmt: skip
"""Parts of a step whose field is not their name."""
RULES = {
    "zero_stage": "with a ZeRO stage that the framework lacks",
    "zero_pipeline": "with a ZeRO stage that the framework doesn't have under a pipeline",
    "degrees_of_framework": "with degrees that the framework lacks",
    "dtype_of_framework": "with a dtype that the framework lacks",
    "schedule_of_framework": "with a schedule that the framework lacks",
    "context_of_framework": "with context communication that the framework lacks",
    "recompute_of_framework": "with recomputation that the framework lacks",
    "world_size": "with degrees that don't multiply to the GPUs",
    "tensor_heads": "with a tensor degree that doesn't divide the heads",
    "tensor_kv_heads": "with a tensor degree that doesn't fit the key/value heads",
    "tensor_feed_forward": "with a tensor degree that doesn't divide the MLP",
    "pipeline_layers": "with layers that don't split into the stages",
    "virtual_stages": "with virtual stages without interleaving",
    "pipeline_micro_batches": "with micro-batches that don't go round the pipeline",
    "schedule": "with a schedule without its pipeline",
    "global_batch": "with a global batch that doesn't split",
    "sequence": "with a sequence that doesn't split",
    "context_heads": "with heads that don't split over the context ranks",
    "experts": "with an expert degree that doesn't divide the experts",
    "expert_ranks": "with an expert degree that doesn't divide the ranks",
    "expert_feed_forward": "with an expert-tensor degree that doesn't divide the expert",
    "shard_group": "with a shard group that doesn't divide the ranks",
    "cuda_graphs": "with graphs of experts that are not fused",
    "fused_experts": "with fused experts where there are none, or split ones",
    "unfused_context": "with context parallelism without flash attention",
    "synchronisation": "with a synchronisation that its other choices rule out",
    "compression": "with a compression that its other choices rule out",
    "repeated": "the same as another but in name",
}  # fmt: skip
"""Combinations that a search rejects, by the rule that they broke."""
TIED = "can't be told from the first within the error"
"""What a mark beside a plan says of it."""


class Sought(NamedTuple):
    """What a capacity is of.

    Parameters
    ----------
    words : what it is
    thing : what it is counted in
    asked : fields of a question that it needs
    found : fields of a plan that it finds
    """

    words: str
    thing: str
    asked: tuple[str, ...] = ("global_batch", "seq_len")
    found: tuple[str, ...] = ()


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
    return ", ".join(f"{count:,} {RULES[rule]}" for rule, count in ordered if count)


def counted(count: float, thing: str, things: str = "") -> str:
    """A number of things: one GPU is no GPUs.

    Parameters
    ----------
    count : how many
    thing : one of them
    things : several of them; with an s where it isn't given

    Examples
    --------
    >>> counted(1, "GPU"), counted(1024, "GPU"), counted(2, "micro-batch", "micro-batches")
    ('1 GPU', '1,024 GPUs', '2 micro-batches')
    """
    return f"{count:,} {thing if count == 1 else things or thing + 's'}"


def part_name(part: str) -> str:
    """A part of the step or of the memory in words.

    Examples
    --------
    >>> part_name("gradient_exchange")
    'gradient communication'
    """
    return PARTS.get(part, part.replace("_", " "))


FIELDS = {
    "micro_batch": "micro-batch", "zero_stage": "ZeRO stage", "seq_len": "sequence length", "lora_rank": "LoRA rank",
    "cuda_graphs": "CUDA graphs",
}  # fmt: skip
"""Fields of a plan that are called otherwise than they are written."""


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
    return FIELDS.get(field, field.replace("_", " "))


SAID: tuple[tuple[str, tuple[object, ...], str], ...] = (
    ("micro_batch", (1,), "micro-batch {}"), ("recompute", ("none",), "recompute {}"), ("zero_stage", (None, 1), "ZeRO {}"),
    ("schedule", ("1f1b", "interleaved"), "{}"), ("dtype", (None, "bf16"), "{}"), ("shard_group", (None,), "shard group {}"),
    ("rank_order", (RANK_ORDER,), "ranks {}"),
)  # fmt: skip
"""What is said of a plan beside its degrees: a field, its values of which nothing is said, and the words for others."""


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

    Parameters
    ----------
    plan : that the row shows
    twins : the others

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


def _said(plan: Plan, fields: Sequence[str] = ()) -> list[str]:
    words = []
    for field, commonest, text in SAID:
        value = getattr(plan, field)
        if (not fields or field in fields) and (tuple(value) if isinstance(value, list) else value) not in commonest:
            words.append(text.format(ordered(plan) if field == "rank_order" else value))
    return words


def of_limit(estimate: Estimate) -> str:
    """Memory of the fullest GPU against the limit that the plan is judged by, such as ``62.9 of 70.5 GiB``.

    Parameters
    ----------
    estimate : of the plan
    """
    return f"{float(estimate.memory.total) / GiB:.1f} of {estimate.memory_limit / GiB:.1f} GiB"


def host_memory(estimate: Estimate) -> str:
    """Host memory of the node that offload fills most, against what a node has; empty without offload.

    Parameters
    ----------
    estimate : of the plan

    Returns
    -------
    str
        such as ``1,051 of 2,048 GiB host memory a node for what is offloaded``
    """
    if not estimate.host_memory:
        return ""
    limit = estimate.cluster.host_memory
    room = "" if limit is None else f" of {limit / GiB:,.0f}"
    return f"{estimate.host_memory / GiB:,.0f}{room} GiB host memory a node for what is offloaded"


def lack(estimate: Estimate) -> str:
    """By what a plan that doesn't fit is over, on a GPU and on a node's host; empty where it fits.

    Parameters
    ----------
    estimate : of the plan
    """
    gpu, host = estimate.memory_margin, estimate.host_memory_margin
    words = [f"{-gpu / GiB:.1f} GiB over"] if gpu < 0.0 else []
    if host < 0.0:
        words.append(f"{-host / GiB:,.0f} GiB over in a node's host memory")
    return " and ".join(words)


def memory_limit(estimate: Estimate) -> str:
    """The limit that a plan is judged by, with its margin, in words; and what offload takes of a node's host memory.

    Parameters
    ----------
    estimate : of the plan, or of any other of its framework on its device

    Returns
    -------
    str
        such as ``70.5 GiB a GPU: 79.2 GiB usable less 10.9 % for the estimate's error (90 % sure)``
    """
    host = host_memory(estimate)
    beside = f"; {host}" if host else ""
    usable, limit, sure = estimate.usable_memory, estimate.memory_limit, 100.0 * estimate.required_probability
    if limit == usable:
        return f"{limit / GiB:.1f} GiB a GPU, all that is usable{beside}"
    margin = f"{'less' if limit < usable else 'plus'} {100.0 * abs(1.0 - limit / usable):.1f} %"
    room = f"{limit / GiB:.1f} GiB a GPU: {usable / GiB:.1f} GiB usable"
    return f"{room} {margin} for the estimate's error ({sure:g} % sure){beside}"


def between(low: float, high: float | None = None) -> str:
    """A time or the range between two, with three figures.

    Parameters
    ----------
    low, high : [s]; one time where `high` is None

    Examples
    --------
    >>> between(98.98, 143.6), between(0.0123)
    ('99 to 144 s', '12.3 ms')
    """
    most = low if high is None else high
    factor, unit = next(((factor, unit) for factor, unit in ((1.0, "s"), (1e-3, "ms")) if most >= factor), (1e-6, "us"))
    text = f"{low / factor:,.0f}" if low / factor >= 100 else f"{low / factor:.3g}"
    if high is not None:
        text += f" to {high / factor:,.0f}" if high / factor >= 100 else f" to {high / factor:.3g}"
    return f"{text} {unit}"


def sentence(estimate: Estimate, probability_fastest: float | None = None) -> str:
    """The answer in one sentence.

    Parameters
    ----------
    estimate : of the plan
    probability_fastest : that it is the fastest of those ranked with it; left out if None

    Returns
    -------
    str
        plan, step time with its 90 % interval, memory of the fullest GPU against its limit, and MFU
    """
    text = (
        f"{label(estimate.plan)}: {between(estimate.step_time)} a step, "
        f"{between(*estimate.time_interval)} with 90 % probability, "
        f"{float(estimate.memory.total) / GiB:.0f} of {estimate.memory_limit / GiB:.0f} GiB, {100 * estimate.mfu:.0f} % MFU"
    )
    return text if probability_fastest is None else f"{text}; P(fastest) {100 * probability_fastest:.0f} %"

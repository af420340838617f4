"""A plan and its answer in words, the same on the command line, in figures and on pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

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


def part_name(part: str) -> str:
    """A part of the step or of the memory in words.

    Examples
    --------
    >>> part_name("gradient_exchange")
    'gradient communication'
    """
    return PARTS.get(part, part.replace("_", " "))


def degrees(plan: Plan) -> str:
    """Degrees of a plan above one, in the letters of frameworks: VP is the model chunks on a pipeline rank.

    Examples
    --------
    >>> from costmodel import Plan
    >>> degrees(Plan(global_batch=64, seq_len=2048, tensor_parallel=4, pipeline_parallel=2, virtual_stages=3))
    'TP 4, PP 2, VP 3'
    """
    words = [f"{one.short} {getattr(plan, one.field)}" for one in WRITTEN if getattr(plan, one.field) > 1]
    return ", ".join(words) or "one GPU"


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


def placed(plan: Plan) -> list[str]:
    """How a plan's ranks share and stand where that isn't the commonest way: groups that share a copy, the order of ranks.

    Examples
    --------
    >>> from costmodel import Plan
    >>> placed(Plan(global_batch=64, seq_len=2048, data_parallel=64, shard_group=8))
    ['shard group 8']
    """
    words = [f"shard group {plan.shard_group}"] if plan.shard_group is not None else []
    return [*words, f"ranks {ordered(plan)}"] if tuple(plan.rank_order) != RANK_ORDER else words


def label(plan: Plan) -> str:
    """A plan in a few words: its degrees, and what else differs from the commonest.

    Examples
    --------
    >>> from costmodel import Plan
    >>> label(Plan(global_batch=64, seq_len=2048, data_parallel=8, micro_batch=2, recompute="full", zero_stage=1))
    'DP 8, micro-batch 2, recompute full'
    """
    words = [degrees(plan)]
    if plan.micro_batch > 1:
        words.append(f"micro-batch {plan.micro_batch}")
    if plan.recompute != "none":
        words.append(f"recompute {plan.recompute}")
    if plan.zero_stage not in (None, 1):
        words.append(f"ZeRO {plan.zero_stage}")
    if plan.schedule not in ("1f1b", "interleaved"):
        words.append(str(plan.schedule))
    if plan.dtype != "bf16":
        words.append(plan.dtype)
    return ", ".join([*words, *placed(plan)])


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
        f"{label(estimate.plan)}: {between(estimate.step_time)} a step, {between(*estimate.time_interval)} with 90 %, "
        f"{float(estimate.memory.total) / GiB:.0f} of {estimate.memory_limit / GiB:.0f} GiB, {100 * estimate.mfu:.0f} % MFU"
    )
    return text if probability_fastest is None else f"{text}; P(fastest) {100 * probability_fastest:.0f} %"

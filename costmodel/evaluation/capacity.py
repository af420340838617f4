"""What would make a plan fit, and how far a plan can be stretched until it no longer does."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Callable, Iterator, Sequence

from costmodel.checks import kind, positive_int
from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.description.plan import COMPRESSION_PARAMETERS, Plan, divisors
from costmodel.description.transformer import Transformer
from costmodel.errors import CostModelError, IllegalPlan, InvalidValue
from costmodel.evaluation.estimation import Estimate, estimate
from costmodel.records import Row

GROWING = ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel")
"""Degrees that a single change may double."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fix:
    """A single change after which a plan fits.

    Parameters
    ----------
    change : in words
    estimate : of the changed plan
    cost : seconds that the step takes longer, negative where it gets faster
    """

    change: str
    estimate: Estimate
    cost: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether a plan fits, how sure that is, and what would change it.

    Parameters
    ----------
    estimate : of the plan
    fits : whether it is judged to fit
    margin : bytes to spare, negative where it doesn't
    probability : that it fits, given the error of estimates
    stage, phase : where and when most is held
    largest : parts of the fullest rank's bill [bytes], the largest first
    fixes : single changes that make it fit, the one that costs least time first; none where it fits
    """

    estimate: Estimate
    fits: bool
    margin: float
    probability: float
    stage: int
    phase: str
    largest: list[tuple[str, float]]
    fixes: list[Fix]

    def __str__(self) -> str:
        need, limit = self.estimate.memory.total / 2**30, (self.estimate.memory.total + self.margin) / 2**30
        items = ", ".join(f"{part} {held / 2**30:.1f}" for part, held in self.largest[:3])
        where = f"stage {self.stage} at its {self.phase} needs {need:.1f} of {limit:.1f} GiB ({items})"
        if self.fits:
            return f"fits with probability {self.probability:.0%}: {where}"
        tried = "; ".join(f"{fix.change} ({fix.cost / self.estimate.step_time:+.1%} time)" for fix in self.fixes[:3])
        return f"does not fit: {where}. {'Would fit: ' + tried if tried else 'No single change makes it fit.'}"


def verdict(answer: Estimate) -> Verdict:
    """Whether a plan fits; where it doesn't, the cheapest single changes after which it does.

    Parameters
    ----------
    answer : of `estimate`

    Returns
    -------
    Verdict

    Examples
    --------
    >>> from costmodel import estimate, load_cluster, load_model, Plan
    >>> answer = estimate(load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8),
    ...                   Plan(global_batch=64, seq_len=8192, data_parallel=8, micro_batch=4))
    >>> found = verdict(answer)
    >>> found.fits, found.phase, found.fixes[0].estimate.fits
    (False, 'loss', True)
    """
    kind("answer", answer, Estimate, "estimate(...)")
    fullest = answer.memory.fullest
    fixes = [] if answer.fits else sorted(_fixes(answer), key=lambda fix: fix.cost)
    return Verdict(
        estimate=answer, fits=answer.fits, margin=answer.memory_margin, probability=answer.fit_probability,
        stage=fullest.stage, phase=fullest.phase, largest=fullest.largest, fixes=fixes,
    )  # fmt: skip


def _fixes(answer: Estimate) -> Iterator[Fix]:
    for fields in _single_changes(answer.plan, answer.framework):
        try:
            plan = dataclasses.replace(answer.plan, **fields)
            found = estimate(answer.model, answer.cluster, plan, answer.framework)
        except CostModelError:  # a change that this plan, model, cluster or framework can't make is no offer
            continue
        if found.fits:
            words = ", ".join(f"{field}={value}" for field, value in fields.items())
            yield Fix(change=words, estimate=found, cost=found.step_time - answer.step_time)


def _single_changes(plan: Plan, framework: Framework) -> Iterator[Row]:
    """Decisions that differ from the plan's, on as many GPUs: the fields that change together."""
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
    if plan.optimizer is None or plan.optimizer == "adam":
        yield {"optimizer": "adam-8bit"}
        yield {"optimizer": "adam-bf16-moments"}
    if plan.optimizer_offload < 1.0:
        yield {"optimizer_offload": 1.0}
    if plan.activation_offload < 1.0:
        yield {"activation_offload": 1.0}


def _fitting(model: Transformer, cluster: Cluster, plan: Plan, framework: Framework | str) -> Estimate | None:
    found = estimate(model, cluster, plan, framework)
    return found if found.fits else None


def _last(values: Sequence[int], fits: Callable[[int], Estimate | None]) -> Estimate | None:
    """The estimate at the last of rising values that fits; memory rises with them."""
    count = bisect.bisect_left(values, True, key=lambda value: fits(value) is None)
    return fits(values[count - 1]) if count else None


def largest_micro_batch(
    model: Transformer, cluster: Cluster, plan: Plan, framework: Framework | str = "megatron-core"
) -> Estimate:
    """The plan with the largest micro-batch that fits, the global batch as it is.

    Parameters
    ----------
    model, cluster, plan, framework : as of `estimate`

    Raises
    ------
    IllegalPlan
        where not even a micro-batch of one sequence fits, or the plan can't run
    """
    _doors(model, cluster, plan)
    each = plan.global_batch // plan.copies
    found = None
    # fewer micro-batches can hold less: memory need not rise with their size, so every size is tried
    for size in reversed(divisors(each, each)):
        try:
            found = _fitting(model, cluster, dataclasses.replace(plan, micro_batch=size), framework)
        except IllegalPlan:
            continue
        if found is not None:
            break
    return _or_refuse(found, model, cluster, dataclasses.replace(plan, micro_batch=1), framework)


def longest_sequence(
    model: Transformer, cluster: Cluster, plan: Plan, framework: Framework | str = "megatron-core", most: int = 2**24
) -> Estimate:
    """The plan with the longest sequences that fit, in steps of a sequence's smallest split.

    Parameters
    ----------
    model, cluster, plan, framework : as of `estimate`
    most : tokens that are not passed

    Raises
    ------
    IllegalPlan
        where not even the shortest fits, or the plan can't run
    """
    _doors(model, cluster, plan)
    positive_int("most", most, 10**8)
    context = 2 * plan.context_parallel if plan.context_parallel > 1 else 1
    unit = context * plan.tensor_parallel * 128
    if most < unit:
        raise InvalidValue("most", most, f"at least {unit}, the smallest that this plan splits")
    if model.learned_positions:
        most = max(min(most, model.learned_positions), unit)
    lengths = range(unit, most + 1, unit)
    found = _last(lengths, lambda length: _fitting(model, cluster, dataclasses.replace(plan, seq_len=length), framework))
    return _or_refuse(found, model, cluster, dataclasses.replace(plan, seq_len=unit), framework)


def most_layers(
    model: Transformer, cluster: Cluster, plan: Plan, framework: Framework | str = "megatron-core", most: int = 4096
) -> Estimate:
    """The deepest model of these layers that fits.

    Parameters
    ----------
    model, cluster, plan, framework : as of `estimate`
    most : layers that are not passed

    Raises
    ------
    IllegalPlan
        where not even one layer a stage fits, or the plan can't run
    """
    _doors(model, cluster, plan)
    positive_int("most", most, 10_000)
    unit = plan.pipeline_parallel * plan.virtual_stages

    def deepened(layers: int) -> Transformer:
        return dataclasses.replace(
            model, layers=layers, dense_layers=min(model.dense_layers, layers - 1) if model.experts else model.dense_layers,
            windowed_layers=round(model.windowed_layers * layers / model.layers), published_parameters=None,
        )  # fmt: skip

    if most < unit:
        raise InvalidValue("most", most, f"at least {unit}, a layer for each stage")
    depths = range(unit, most + 1, unit)
    found = _last(depths, lambda layers: _fitting(deepened(layers), cluster, plan, framework))
    return _or_refuse(found, deepened(unit), cluster, plan, framework)


def fewest_gpus(
    model: Transformer, cluster: Cluster, global_batch: int, seq_len: int, framework: Framework | str = "megatron-core",
    most: int = 65_536, **fixed: object,
) -> Estimate:  # fmt: skip
    """The fastest plan on the fewest GPUs on which any plan fits: a part of a node that divides it, or whole nodes.

    Parameters
    ----------
    model, cluster, framework : as of `estimate`; the cluster's own number of GPUs is not looked at
    global_batch : sequences of a step
    seq_len : tokens
    most : GPUs that are not passed
    fixed : as of `search`, such as ``tensor_parallel=[1, 2, 4, 8]``

    Raises
    ------
    IllegalPlan
        where no plan fits on at most `most` GPUs
    """
    from costmodel.evaluation.cluster_design import smallest_that_fits
    from costmodel.evaluation.plan_search import search_by_name

    kind("cluster", cluster, Cluster, "load_cluster(name)")
    positive_int("most", most, 10_000_000)
    node = cluster.gpus_per_node
    sizes = [size for size in divisors(node, node) if size <= most]
    while sizes[-1] * 2 <= most:
        sizes.append(sizes[-1] * 2)

    def best(gpus: int) -> Estimate | None:
        ranked = search_by_name(
            model, cluster.with_gpus(gpus), global_batch=global_batch, seq_len=seq_len, framework=framework, top=1, **fixed
        ).ranked
        return ranked[0] if ranked else None

    found = next(smallest_that_fits(sizes, best), None)
    if found is None:
        raise IllegalPlan("memory", f"no plan of {model.name!r} fits on up to {most} GPUs of {cluster.name!r}")
    # between the last size that didn't fit and the first that did, whole nodes
    low, high = found.plan.gpus // 2, found.plan.gpus
    between = range(low + node, high, node) if high > node else []
    return next(smallest_that_fits(between, best), found)


def _doors(model: Transformer, cluster: Cluster, plan: Plan) -> None:
    kind("model", model, Transformer, "load_model(name)")
    kind("cluster", cluster, Cluster, "load_cluster(name)")
    kind("plan", plan, Plan, "Plan(...)")


def _or_refuse(
    found: Estimate | None, model: Transformer, cluster: Cluster, least: Plan, framework: Framework | str
) -> Estimate:
    if found is not None:
        return found
    short = estimate(model, cluster, least, framework)
    raise IllegalPlan(
        "memory", f"nothing fits: the smallest needs {-short.memory_margin / 2**30:.1f} GiB more than a GPU of "
        f"{cluster.name!r} has",
    )  # fmt: skip


__all__ = [
    "Fix", "Verdict", "fewest_gpus", "largest_micro_batch", "longest_sequence", "most_layers", "verdict",
]  # fmt: skip

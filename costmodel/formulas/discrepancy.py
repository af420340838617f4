r"""What measured steps say of plans like theirs, beyond what constants can: the model's discrepancy.

What stays of a measured step's error once the constants are fitted is part its run's scatter, part its plan's own, which
plans like it share. The latter is a random function of the plan, whose covariance halves with every `HALVED` steps from one
plan to the other: its best estimate at another plan is a sum over the runs [kennedy2001]_.

How often micro-batches follow each other counts for nothing: what takes a share longer does so in each of them.
"""

from __future__ import annotations

from costmodel import ops
from costmodel.formulas.quantities import Number, PlanNumbers, Settings

HALVED = 2.0
"""Steps from one plan to another at which they have half of what is their own in common: doublings of a degree or a size,
choices that differ. Over all sources of measured runs anything from one step to four serves nearly as well."""


def apart(settings: Settings, plan: PlanNumbers, other_settings: Settings, other_plan: PlanNumbers) -> Number:
    """Steps from one plan to another: doublings of each degree and size, and choices that differ.

    Parameters
    ----------
    settings, plan : of one
    other_settings, other_plan : of the other

    Examples
    --------
    Twice the tensor parallelism, half the data parallelism, and full recomputation:

    >>> from costmodel import Plan, load_framework
    >>> framework = load_framework("megatron-core")
    >>> one = Plan(global_batch=64, seq_len=4096, tensor_parallel=2, data_parallel=8).resolve(framework)
    >>> two = Plan(global_batch=64, seq_len=4096, tensor_parallel=4, data_parallel=4, recompute="full").resolve(framework)
    >>> settings = one.settings(framework)
    >>> apart(settings, one.numbers(framework, 32), settings, two.numbers(framework, 32))
    3.0
    """
    return choices_apart(settings, other_settings) + split_apart(plan, other_plan) + passes_apart(plan, other_plan)


def choices_apart(settings: Settings, other_settings: Settings) -> Number:
    """Steps from one plan to another in what is the same whatever their split: sequence length, and kinds of choices.

    Parameters
    ----------
    settings : of one
    other_settings : of the other
    """
    return (
        _size(ops.log2(settings.seq_len / other_settings.seq_len)) + _differ(settings.adapter, other_settings.adapter)
        + _differ(settings.optimizer, other_settings.optimizer) + _differ(settings.widths, other_settings.widths)
        + _differ(settings.kernels, other_settings.kernels) + _differ(settings.synchronisation, other_settings.synchronisation)
        + _differ(settings.compression, other_settings.compression) + _differ(settings.buckets, other_settings.buckets)
        + _differ(settings.overlap, other_settings.overlap) + _differ(settings.offload, other_settings.offload)
    )  # fmt: skip


def split_apart(plan: PlanNumbers, other_plan: PlanNumbers) -> Number:
    """Steps from one plan to another in how GPUs are split, stages scheduled and, over several ranks, states sharded.

    Parameters
    ----------
    plan : one
    other_plan : the other
    """
    ranks, other_ranks = plan.data * plan.context, other_plan.data * other_plan.context
    several, other_several = ops.where(ranks > 1.0, 1.0, 0.0), ops.where(other_ranks > 1.0, 1.0, 0.0)
    return (
        _size(ops.log2(plan.tensor / other_plan.tensor)) + _size(ops.log2(plan.context / other_plan.context))
        + _size(ops.log2(plan.expert / other_plan.expert)) + _size(ops.log2(plan.expert_tensor / other_plan.expert_tensor))
        + _size(ops.log2(plan.pipeline / other_plan.pipeline)) + _size(ops.log2(plan.virtual_stages / other_plan.virtual_stages))
        + _size(ops.log2(plan.data / other_plan.data))
        + _size(ops.log2((plan.shard_group / ranks) / (other_plan.shard_group / other_ranks)))
        + ops.where(ops.equal(plan.schedule, other_plan.schedule), 0.0, 1.0)
        + _size(several * plan.shard_optimizer - other_several * other_plan.shard_optimizer)
        + _size(several * plan.shard_gradients - other_several * other_plan.shard_gradients)
        + _size(several * plan.shard_weights - other_several * other_plan.shard_weights)
    )  # fmt: skip


def passes_apart(plan: PlanNumbers, other_plan: PlanNumbers) -> Number:
    """Steps from one plan to another in what a pass is: its micro-batch, sequence parallelism, what is recomputed.

    Parameters
    ----------
    plan : one
    other_plan : the other
    """
    split, other_split = ops.where(plan.tensor > 1.0, 1.0, 0.0), ops.where(other_plan.tensor > 1.0, 1.0, 0.0)
    return (
        _size(ops.log2(plan.micro_batch / other_plan.micro_batch))
        + _size(split * plan.sequence_parallel - other_split * other_plan.sequence_parallel)
        + _size(plan.recompute_attention - other_plan.recompute_attention)
        + _size(plan.recompute_layers - other_plan.recompute_layers)
        + _size(plan.recompute_norms - other_plan.recompute_norms)
        + _size(plan.recompute_latent_projections - other_plan.recompute_latent_projections)
        + _size(plan.recompute_mlp - other_plan.recompute_mlp) + _size(plan.recompute_experts - other_plan.recompute_experts)
        + _size(plan.recompute_shared_experts - other_plan.recompute_shared_experts)
        + _size(plan.recompute_expert_activation - other_plan.recompute_expert_activation)
        + _size(plan.recompute_operators - other_plan.recompute_operators)
    )  # fmt: skip


def _size(change: Number) -> Number:
    return ops.maximum(change, -change)


def _differ(these: tuple[Number, ...], those: tuple[Number, ...]) -> Number:
    """1 where any of some numbers isn't that of the other_plan."""
    found: Number = 0.0
    for place in range(len(these)):
        found = ops.where(ops.equal(these[place], those[place]), found, 1.0)
    return found


def alike(steps: Number) -> Number:
    r"""What two plans have in common of what is their own: :math:`2^{-d / h}`, of plans :math:`d` steps `apart`.

    Parameters
    ----------
    steps : from one to the other

    References
    ----------
    [kennedy2001]_ section 4.2, with a covariance that is a product over what plans differ in

    Examples
    --------
    >>> alike(0.0), alike(HALVED)
    (1.0, 0.5)
    """
    return 2.0 ** (-steps / HALVED)

r"""What measured steps say of plans like theirs, beyond what constants can: the model's discrepancy.

What stays of a measured step's error once the constants are fitted is part its run's scatter, part its plan's own, which
plans like it share. The latter is a random function of the plan, whose covariance halves with every `HALF_DISTANCE` steps
from one plan to the other, down to what every plan of the model shares: its best estimate at another plan is a sum over the
runs [kennedy2001]_.

How often micro-batches follow each other counts for nothing: what takes a share longer does so in each of them.
"""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.quantities import KernelChoices, ModelNumbers, Number, PlanNumbers, Settings
from costmodel.formulas.transformer.repetition import experts_again

ARGUMENTS = {"settings": "of one", "plan": "of one", "other_settings": "of the other", "other_plan": "of the other"}
"""What arguments mean in all formulas here that say nothing else of them."""
APART = (
    "captured_iteration", "fused_casts", "masked_padding", "tiled_loss", "chunked_loss", "host_reads",
    "deduplicated_dispatch", "gathered_keys", "exchanged_heads",
)  # fmt: skip
"""Choices of kernels that count by themselves: what follows from others, and exchanges, which need ranks that exchange."""
HALF_DISTANCE = 1.0
"""Steps from one plan to another at which they have half of what is their own in common: doublings of a degree or a size,
choices that differ. Over all sources of measured runs anything from one step to four serves nearly as well on average; with more
than one there are groups of runs that a single run of theirs makes worse."""

SHARED = 0.4
"""Share, of the variance of what is a plan's own, that all plans of its model have. Anything from a fifth to three fifths serves
as well on groups of measured runs."""


def correlation(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, other_settings: Settings, other_plan: PlanNumbers
) -> Number:  # fmt: skip
    """What two plans of a model have in common of what is their own."""
    return SHARED + (1.0 - SHARED) * correlation_at(distance(model, settings, plan, other_settings, other_plan))


def distance(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, other_settings: Settings, other_plan: PlanNumbers
) -> Number:  # fmt: skip
    """Steps from one plan of a model to another: doublings of each degree and size, and choices that differ.

    What acts on nothing sets no plans apart: a schedule of one stage, exchanges of a lone rank, modules that the model hasn't.

    Examples
    --------
    Twice the tensor parallelism, half the data parallelism, and full recomputation:

    >>> from costmodel import Plan, load_framework, load_model
    >>> model, framework = load_model("llama3-8b").numbers(), load_framework("megatron-core")
    >>> one = Plan(global_batch=64, seq_len=4096, tensor_parallel=2, data_parallel=8).resolve(framework)
    >>> two = Plan(global_batch=64, seq_len=4096, tensor_parallel=4, data_parallel=4, recompute="full").resolve(framework)
    >>> settings = one.settings(framework)
    >>> distance(model, settings, one.numbers(framework, 32), settings, two.numbers(framework, 32))
    3.0
    """
    return (
        choice_distance(settings, other_settings) + split_distance(settings, plan, other_settings, other_plan)
        + pass_distance(model, settings, plan, other_settings, other_plan)
    )  # fmt: skip


def choice_distance(settings: Settings, other_settings: Settings) -> Number:
    """Steps from one plan to another in what is the same whatever their split: sequence length, and kinds of choices.

    Parameters
    ----------
    settings : of one
    other_settings : of the other
    """
    return (
        _size(ops.log2(settings.seq_len / other_settings.seq_len))
        + _differ(1.0, _compared(settings.kernels), 1.0, _compared(other_settings.kernels))
        + _differ(1.0, settings.adapter, 1.0, other_settings.adapter)
        + _differ(1.0, settings.optimizer, 1.0, other_settings.optimizer)
        + _differ(1.0, settings.widths, 1.0, other_settings.widths)
        + _differ(1.0, settings.offload, 1.0, other_settings.offload)
    )  # fmt: skip


def split_distance(settings: Settings, plan: PlanNumbers, other_settings: Settings, other_plan: PlanNumbers) -> Number:
    """Steps from one plan to another in how GPUs are split, and in how those that share something exchange it."""
    ranks, other_ranks = plan.data * plan.context, other_plan.data * other_plan.context
    copies, other_copies = _several(ranks), _several(other_ranks)
    return (
        _size(ops.log2(plan.tensor / other_plan.tensor)) + _size(ops.log2(plan.context / other_plan.context))
        + _size(ops.log2(plan.expert / other_plan.expert)) + _size(ops.log2(plan.expert_tensor / other_plan.expert_tensor))
        + _size(ops.log2(plan.pipeline / other_plan.pipeline)) + _size(ops.log2(plan.virtual_stages / other_plan.virtual_stages))
        + _size(ops.log2(plan.data / other_plan.data))
        + _size(ops.log2((plan.shard_group / ranks) / (other_plan.shard_group / other_ranks)))
        + _size(copies * plan.shard_optimizer - other_copies * other_plan.shard_optimizer)
        + _size(copies * plan.shard_gradients - other_copies * other_plan.shard_gradients)
        + _size(copies * plan.shard_weights - other_copies * other_plan.shard_weights)
        + exchange_distance(settings, plan, other_settings, other_plan)
    )  # fmt: skip


def exchange_distance(settings: Settings, plan: PlanNumbers, other_settings: Settings, other_plan: PlanNumbers) -> Number:
    """Steps from one plan to another in how copies agree, stages take turns, tokens get to experts, context ranks to each other's
    keys, and tensor ranks hide exchanges.
    """
    these, those = settings.overlap, other_settings.overlap
    copies, other_copies = _several(plan.data * plan.context), _several(other_plan.data * other_plan.context)
    stages, other_stages = _several(plan.pipeline), _several(other_plan.pipeline)
    experts, other_experts = _several(plan.expert), _several(other_plan.expert)
    once, other_once = settings.kernels.deduplicated_dispatch, other_settings.kernels.deduplicated_dispatch
    agree = (
        _differ(copies, settings.synchronisation, other_copies, other_settings.synchronisation)
        + _differ(copies, settings.compression, other_copies, other_settings.compression)
        + _differ(copies, settings.buckets, other_copies, other_settings.buckets)
        + _size(copies * these.gradients - other_copies * those.gradients)
        + _size(copies * plan.shard_optimizer * these.parameters - other_copies * other_plan.shard_optimizer * those.parameters)
    )  # fmt: skip
    turns = _size(stages * plan.schedule - other_stages * other_plan.schedule) + _size(
        stages * these.pipeline - other_stages * those.pipeline
    )
    dispatch = _size(experts * once - other_experts * other_once) + _size(experts * these.experts - other_experts * those.experts)
    positions, other_positions = _several(plan.context), _several(other_plan.context)
    gathered, other_gathered = settings.kernels.gathered_keys, other_settings.kernels.gathered_keys
    exchanged, other_exchanged = settings.kernels.exchanged_heads, other_settings.kernels.exchanged_heads
    keys = _size(positions * gathered - other_positions * other_gathered) + _size(
        positions * exchanged - other_positions * other_exchanged
    )
    hidden = _size(_several(plan.tensor) * these.tensor - _several(other_plan.tensor) * those.tensor)
    return ops.minimum(agree, 1.0) + ops.minimum(turns, 1.0) + ops.minimum(dispatch, 1.0) + ops.minimum(keys, 1.0) + hidden


def pass_distance(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, other_settings: Settings, other_plan: PlanNumbers
) -> Number:  # fmt: skip
    """Steps from one plan to another in what a pass is: its micro-batch, sequence parallelism, what is recomputed."""
    experts, latent = ops.where(model.experts.layers > 0.0, 1.0, 0.0), ops.where(model.attention.latent > 0.0, 1.0, 0.0)
    dense = ops.where(model.experts.layers < model.layers, 1.0, 0.0)
    shared = ops.where(model.experts.shared_width > 0.0, experts, 0.0)
    scores, other_scores = 1.0 - settings.kernels.flash_attention, 1.0 - other_settings.kernels.flash_attention
    again, other_again = experts_again(plan), experts_again(other_plan)
    return (
        _size(ops.log2(plan.micro_batch / other_plan.micro_batch))
        + _size(_several(plan.tensor) * plan.sequence_parallel - _several(other_plan.tensor) * other_plan.sequence_parallel)
        + _size(plan.recompute_layers - other_plan.recompute_layers)
        + _size(plan.recompute_operators - other_plan.recompute_operators)
        + _size(scores * plan.recompute_attention - other_scores * other_plan.recompute_attention)
        + ops.maximum(latent, experts) * _size(plan.recompute_norms - other_plan.recompute_norms)
        + latent * _size(plan.recompute_latent_projections - other_plan.recompute_latent_projections)
        + dense * _size(plan.recompute_mlp - other_plan.recompute_mlp) + experts * _size(again.routed - other_again.routed)
        + experts * _size(again.activation - other_again.activation) + shared * _size(again.shared - other_again.shared)
    )  # fmt: skip


def _several(degree: Number) -> Number:
    """1 where there is something to exchange with another rank."""
    return ops.where(degree > 1.0, 1.0, 0.0)


def _compared(kernels: KernelChoices) -> tuple[Number, ...]:
    return tuple(value for name, value in zip(kernels._fields, kernels, strict=True) if name not in APART)


def _size(change: Number) -> Number:
    return ops.maximum(change, -change)


def _differ(gate: Number, these: tuple[Number, ...], other_gate: Number, those: tuple[Number, ...]) -> Number:
    """1 where any of some numbers, none where the gate is 0, isn't its counterpart."""
    found: Number = 0.0
    for place in range(len(these)):
        found = ops.where(ops.equal(gate * these[place], other_gate * those[place]), found, 1.0)
    return found


def correlation_at(steps: Number) -> Number:
    r"""What two plans share of what isn't their model's: :math:`2^{-d / h}` at a `distance` of :math:`d` steps.

    Parameters
    ----------
    steps : from one to the other

    References
    ----------
    [kennedy2001]_ section 4.2, with a covariance that is a product over what plans differ in

    Examples
    --------
    >>> correlation_at(0.0), correlation_at(HALF_DISTANCE)
    (1.0, 0.5)
    """
    return 2.0 ** (-steps / HALF_DISTANCE)

"""What makes a plan illegal, as numbers: one rule, one term, in every engine."""

from __future__ import annotations

from typing import NamedTuple

from costmodel.arithmetic import ops
from costmodel.formulas.pipeline import layout, schedules
from costmodel.formulas.quantities import ModelNumbers, Number, PlanNumbers, Settings
from costmodel.formulas.transformer import launches


class Violations(NamedTuple):
    """1 where the rule is broken; `costmodel.description.plan` has the words."""

    world_size: Number
    tensor_heads: Number
    tensor_kv_heads: Number
    tensor_feed_forward: Number
    pipeline_layers: Number
    virtual_stages: Number
    pipeline_micro_batches: Number
    schedule: Number
    global_batch: Number
    sequence: Number
    context_heads: Number
    state_heads: Number
    state_context: Number
    experts: Number
    expert_ranks: Number
    expert_feed_forward: Number
    shard_group: Number
    cuda_graphs: Number
    fused_experts: Number
    unfused_context: Number
    update_in_backward: Number
    stored_without_gate: Number
    synchronisation: Number
    compression: Number
    sharded_int8: Number
    mean_length: Number


READ = (
    "global_batch", "seq_len", "ends", "framework", "kernels", "optimizer", "synchronisation", "compression", "lengths",
    "adapter",
)  # fmt: skip
"""Settings that rules read: plans whose settings are alike in these are legal or not together."""


def indivisible(a: Number, b: Number) -> Number:
    """1 where `b` does not divide `a`.

    Parameters
    ----------
    a : dividend
    b : divisor, not 0

    Examples
    --------
    >>> indivisible(12.0, 8.0), indivisible(16.0, 8.0)
    (1.0, 0.0)
    """
    return ops.where(ops.equal(ops.ceil(a / b), a / b), 0.0, 1.0)


def violations(model: ModelNumbers, settings: Settings, plan: PlanNumbers, gpus: Number) -> Violations:
    """Which rules a plan breaks, `Violations`.

    Parameters
    ----------
    gpus : of the cluster
    """
    attention = model.attention
    micro_batches = layout.micro_batches(settings, plan)
    first, middle, left = layout.stage_layers(model, settings, plan)
    last = ops.where(settings.framework.balanced_stages > 0.0, 1.0, left)
    short = ops.where(settings.framework.balanced_stages > 0.0, 0.0, middle * plan.pipeline - model.layers)
    stages = plan.pipeline * plan.virtual_stages
    piped = ops.where(plan.pipeline > 1.0, 1.0, 0.0)
    chunked = ops.where(plan.virtual_stages > 1.0, 1.0, 0.0)
    # of several chunks a rank the first and the last may lack a layer, or where they are listed by hand all of them
    fewest = ops.where(settings.framework.listed_chunks > 0.0, 2.0 * middle / plan.virtual_stages, 2.0)
    most_short = ops.where(chunked > 0.0, fewest, model.layers)
    # a valley's first rank has both short stages, and beside them the embedding and the head
    outer, _, _ = layout.rank_layers(model, settings, plan)
    least = 1.0 - piped * schedules.v_shaped(plan.schedule) * (1.0 - schedules.bidirectional(plan.schedule))
    dealt_out = ops.equal(first + last + (plan.pipeline - 2.0) * middle, model.layers)
    odd = indivisible(layout.even_layers(model, settings, plan), 1.0)
    undealt = layout.given_ends(settings, plan) * ops.where(dealt_out, odd, 1.0)
    lacking = (ops.minimum(first, last) < least) | (outer < least) | (short > most_short) | (plan.pipeline > model.layers)
    lacking = lacking | (undealt > 0.0)
    dealt = settings.framework.balanced_stages
    empty = ops.where(dealt > 0.0, layout.has_empty_stage(model, plan), ops.where(lacking, 1.0, 0.0))
    in_chunks, rounds = schedules.chunked(plan.schedule), schedules.grouped_by_stages(plan.schedule)
    unfilled = schedules.outside_closed_form(plan.schedule, plan.pipeline, micro_batches)
    uneven = schedules.v_shaped(plan.schedule) * settings.framework.balanced_stages
    ranks = plan.data * plan.context
    heads_exchanged = settings.kernels.exchanged_heads * ops.where(plan.context > 1.0, 1.0, 0.0)
    halves = ops.where((plan.context > 1.0) & (heads_exchanged <= 0.0), 2.0, 1.0)
    parts = ops.where(plan.sequence_parallel > 0.0, plan.tensor, 1.0)
    has_experts = ops.where(model.experts.number > 0.0, 1.0, 0.0)
    fewer = ops.where(plan.tensor > attention.split_kv_heads, 1.0, 0.0)
    kv_broken = ops.where(
        fewer > 0.0, indivisible(plan.tensor, attention.split_kv_heads), indivisible(attention.split_kv_heads, plan.tensor)
    )
    return Violations(
        world_size=ops.where(ops.equal(plan.tensor * plan.context * plan.pipeline * plan.data, gpus), 0.0, 1.0),
        tensor_heads=indivisible(attention.split_heads, plan.tensor),
        tensor_kv_heads=(1.0 - attention.latent) * kv_broken,
        tensor_feed_forward=indivisible(model.mlp.split_width, plan.tensor),
        pipeline_layers=empty * ops.maximum(piped, chunked),
        virtual_stages=ops.maximum(
            ops.where(ops.equal(chunked, in_chunks), 0.0, 1.0), chunked * ops.maximum(
                1.0 - piped, ops.where(stages > model.layers + 2.0, 1.0, 0.0))
        ),
        pipeline_micro_batches=rounds * indivisible(micro_batches, plan.pipeline),
        schedule=ops.maximum(ops.maximum(unfilled, uneven), schedules.needs_pipeline(plan.schedule) * (1.0 - piped)),
        global_batch=ops.maximum(indivisible(micro_batches, 1.0), ops.where(micro_batches < 1.0, 1.0, 0.0)),
        sequence=indivisible(settings.seq_len, plan.context * halves * parts),
        context_heads=heads_exchanged * ops.maximum(
            indivisible(attention.split_heads, plan.tensor * plan.context),
            (1.0 - attention.latent) * indivisible(attention.split_kv_heads, plan.tensor * plan.context),
        ),
        state_heads=indivisible(model.recurrent.heads, plan.tensor),
        state_context=ops.where(model.recurrent.heads > 0.5, 1.0, 0.0) * ops.where(plan.context > 1.0, 1.0, 0.0),
        experts=ops.where(has_experts > 0.0, indivisible(model.experts.number, plan.expert), ops.where(
            plan.expert * plan.expert_tensor > 1.0, 1.0, 0.0)),
        expert_ranks=has_experts * indivisible(ranks * plan.tensor, plan.expert * plan.expert_tensor),
        expert_feed_forward=has_experts * indivisible(model.experts.width, plan.expert_tensor),
        shard_group=ops.maximum(
            indivisible(ranks, plan.shard_group), ops.where(plan.shard_group > ranks, 1.0, 0.0)
        ) * plan.shard_optimizer,
        cuda_graphs=settings.kernels.cuda_graphs * launches.counted_tokens(model, settings),
        fused_experts=settings.kernels.fused_experts * ops.where((has_experts > 0.0) & (plan.expert_tensor <= 1.0), 0.0, 1.0),
        unfused_context=(1.0 - settings.kernels.flash_attention) * ops.where(plan.context > 1.0, 1.0, 0.0),
        update_in_backward=settings.optimizer.in_backward * ops.where(micro_batches > 1.0, 1.0, 0.0),
        stored_without_gate=settings.kernels.cast_activations * (1.0 - model.mlp.gated),
        synchronisation=ops.where(settings.synchronisation.kind > 0.5, 1.0, 0.0) * plan.shard_optimizer,
        compression=ops.where(settings.compression.kind > 0.5, 1.0, 0.0) * plan.shard_gradients,
        sharded_int8=settings.adapter.eighth * plan.shard_weights,
        mean_length=ops.where(settings.lengths.mean > settings.seq_len, 1.0, 0.0),
    )  # fmt: skip

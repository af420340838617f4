"""Bytes that offload keeps in the memory of a node's host."""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.network import communication
from costmodel.formulas.pipeline import layout, schedules
from costmodel.formulas.quantities import Kinds, ModelNumbers, NetworkNumbers, Number, Place, PlanNumbers, Settings, Software
from costmodel.formulas.transformer import memory
from costmodel.formulas.transformer.precision import FULL_BYTES


def offloaded_states(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, place: Place,
) -> Number:  # fmt: skip
    """Bytes in host memory of one rank's states that lie there: master weights, moments and gradients, and sharded weights.

    With Adam these are 16 bytes a parameter, as DeepSpeed's own estimate has it before its buffers.

    References
    ----------
    deepspeedai/DeepSpeed deepspeed/runtime/zero/stage_1_and_2.py (``estimate_zero2_model_states_mem_needs``); [ren2021]_
    """
    widths = settings.widths
    copies = schedules.weight_copies(plan.schedule)
    kept = copies * place.layers, copies * place.experts
    dense, routed = memory.stage_parameters(model, plan, *kept, place.first, place.last)
    # weights that are held in 32 bit are their own master copy
    # weights in 32 bit have no master copy: the host has one of its own
    weights = ops.where(widths.parameter + widths.wide >= FULL_BYTES, widths.parameter + widths.wide, 0.0)
    # whatever a gradient's width on the wire, the host's kernels sum and read it in 32 bit
    held = widths.optimizer + widths.outer + FULL_BYTES + weights
    paged = settings.offload.paged * widths.optimizer
    updated = settings.trainable * memory.updated_parameters(dense, routed, plan) * (settings.offload.optimizer * held + paged)
    shard, expert_shard = communication.shard_groups(plan)
    # those that the host updates anyway are counted once
    counted = settings.trainable * settings.offload.optimizer * ops.where(weights > 0.0, 1.0, 0.0)
    apart = settings.offload.parameters * (1.0 - counted)
    shards = memory.local_parameters(plan.shard_weights, dense, routed, shard, expert_shard)
    return updated + plan.shard_weights * apart * (widths.stored + widths.wide) * shards


def offloaded_activations(settings: Settings, plan: PlanNumbers, kinds: Kinds, place: Place, micro_batches: Number) -> Number:
    """Bytes in host memory of one rank's activations, of all micro-batches in flight.

    Parameters
    ----------
    micro_batches : of a step
    """
    held = schedules.in_flight(plan.schedule, plan.pipeline, plan.virtual_stages, micro_batches, place.rank)
    kept = (place.layers - place.experts) * kinds.dense.kept + place.experts * kinds.expert.kept
    return settings.offload.activations * held * kept


def node_bytes(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
    micro_batches: Number,
) -> Number:  # fmt: skip
    """Bytes in the host memory of the node that offload fills most: those of its GPUs together.

    A node whose GPUs are of one pipeline stage holds what the stage that holds most does; one whose GPUs are of several
    that stage and the mean of the others.

    Parameters
    ----------
    micro_batches : of a step
    """
    kinds = memory.layer_kinds(model, settings, plan, software)
    first, last, begin, behind, _, second = layout.places(model, settings, plan)
    p = plan.pipeline
    one = _offloaded(model, settings, plan, kinds, first, micro_batches)
    end = _offloaded(model, settings, plan, kinds, last, micro_batches)
    two = _offloaded(model, settings, plan, kinds, second, micro_batches)
    two = ops.maximum(two, _offloaded(model, settings, plan, kinds, begin, micro_batches))
    two = ops.maximum(two, _offloaded(model, settings, plan, kinds, behind, micro_batches))
    most = ops.maximum(ops.maximum(one, two), end)
    every = ops.where(p > 1.0, one + ops.maximum(p - 2.0, 0.0) * two + end, one)
    others = (every - most) / ops.maximum(p - 1.0, 1.0)
    gpus = ops.minimum(network.node.size, plan.tensor * plan.context * p * plan.data)
    stages = ops.minimum(ops.maximum(gpus / plan.pipeline_stride, 1.0), p)
    return gpus * (most + (stages - 1.0) * others) / stages


def _offloaded(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, kinds: Kinds, place: Place, micro_batches: Number
) -> Number:
    """Bytes in host memory of one rank."""
    kept = offloaded_activations(settings, plan, kinds, place, micro_batches)
    return offloaded_states(model, settings, plan, place) + kept

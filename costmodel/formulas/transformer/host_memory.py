"""Bytes that offload keeps in the memory of a node's host."""

from __future__ import annotations

from costmodel import ops
from costmodel.formulas.pipeline import schedules
from costmodel.formulas.quantities import (
    ModelNumbers,
    NetworkNumbers,
    Number,
    PlanNumbers,
    Settings,
    Software,
)
from costmodel.formulas.transformer import activations, memory

GRADIENT_BYTES = 4.0
"""Of a gradient in host memory: whatever its width on the wire, the host's kernels sum and read it in 32 bit."""
WIDE = 4.0
"""Bytes of a weight in 32 bit, of which the host has a copy of its own, as there is no master copy to update."""


def offloaded_states(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, layers: Number, first: Number, last: Number,
) -> Number:  # fmt: skip
    """Bytes in host memory of the states that the host updates for one rank: master weights, moments and gradients.

    With Adam these are 16 bytes a parameter, as DeepSpeed's own estimate has it before its buffers.

    Parameters
    ----------
    model, settings, plan : `ModelNumbers`, `Settings`, `PlanNumbers`
    layers : of the stage
    first, last : 1 where the stage holds the embedding, the head

    References
    ----------
    deepspeedai/DeepSpeed deepspeed/runtime/zero/stage_1_and_2.py (``estimate_zero2_model_states_mem_needs``); [ren2021]_
    """
    widths = settings.widths
    owned = memory.rank_parameters(model, plan, first, last)
    dense, routed = memory.whole_parameters(owned, schedules.weight_copies(plan.schedule) * layers)
    weights = ops.where(widths.parameter >= WIDE, widths.parameter, 0.0)
    held = widths.optimizer + widths.outer + GRADIENT_BYTES + weights
    return settings.offload.optimizer * settings.trainable * held * memory.updated_parameters(dense, routed, plan)


def offloaded_activations(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, software: Software, layers: Number, stage: Number,
    micro_batches: Number,
) -> Number:  # fmt: skip
    """Bytes in host memory of one rank's activations, of all micro-batches in flight.

    Parameters
    ----------
    model, settings, plan, software : as named
    layers : of the stage
    stage : rank in the pipeline, from 0
    micro_batches : of a step
    """
    held = schedules.in_flight(plan.schedule, plan.pipeline, plan.virtual_stages, micro_batches, stage)
    kept = layers * activations.kept_activations(model, settings, plan, software)
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
    model, settings, plan, network, software : as named
    micro_batches : of a step
    """
    front, inner, back = memory.stage_places(model, settings, plan)
    p = plan.pipeline
    one = (
        offloaded_states(front[0], settings, plan, front[1], front[3], front[4])
        + offloaded_activations(front[0], settings, plan, software, front[1], front[2], micro_batches)
    )  # fmt: skip
    two = (
        offloaded_states(inner[0], settings, plan, inner[1], inner[3], inner[4])
        + offloaded_activations(inner[0], settings, plan, software, inner[1], inner[2], micro_batches)
    )  # fmt: skip
    end = (
        offloaded_states(back[0], settings, plan, back[1], back[3], back[4])
        + offloaded_activations(back[0], settings, plan, software, back[1], back[2], micro_batches)
    )  # fmt: skip
    most = ops.maximum(ops.maximum(one, two), end)
    every = ops.where(p > 1.0, one + ops.maximum(p - 2.0, 0.0) * two + end, one)
    others = (every - most) / ops.maximum(p - 1.0, 1.0)
    gpus = ops.minimum(network.node.size, plan.tensor * plan.context * p * plan.data)
    stages = ops.minimum(ops.maximum(gpus / plan.pipeline_stride, 1.0), p)
    return gpus * (most + (stages - 1.0) * others) / stages

"""Gradients that a step sums: how many, as how many bytes, and what it takes to compress them."""

from __future__ import annotations

from costmodel import ops
from costmodel.formulas.network import communication, compression
from costmodel.formulas.pipeline import layout, schedules
from costmodel.formulas.quantities import (
    DeviceNumbers,
    Memory,
    ModelNumbers,
    NetworkNumbers,
    Number,
    Payload,
    PlanNumbers,
    Settings,
    Software,
    Summed,
)
from costmodel.formulas.transformer import low_rank, memory


def ends(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers,
) -> tuple[tuple[Number, Number, Number], tuple[Number, Number, Number]]:  # fmt: skip
    """Both ends of the pipeline: layers, copies of a two-way schedule counted, and what of the embedding and the head.

    Parameters
    ----------
    model, settings, plan : `ModelNumbers`, `Settings`, `PlanNumbers`

    Returns
    -------
    tuple
        layers, embedding, head of the first rank, then of the last
    """
    piped = ops.where(plan.pipeline > 1.0, 1.0, 0.0)
    fold = piped * schedules.folded(plan.schedule)
    mirrored = piped * schedules.two_way(plan.schedule)
    copies = schedules.weight_copies(plan.schedule)
    first_layers, _, last_layers = layout.rank_layers(model, settings, plan)
    first = copies * first_layers, 1.0, ops.maximum(1.0 - piped, fold)
    return first, (copies * last_layers, ops.maximum(1.0 - piped, mirrored), 1.0 - fold + mirrored)


def uncompressed(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Summed:
    """Gradients that travel as they are, `Summed`.

    Parameters
    ----------
    model, settings, plan : `ModelNumbers`, `Settings`, `PlanNumbers`
    """
    one, other = ends(model, settings, plan)
    dense, routed = memory.stage_parameters(model, plan, one[0], one[1], one[2])
    dense_last, routed_last = memory.stage_parameters(model, plan, other[0], other[1], other[2])
    dense, routed = ops.maximum(dense, dense_last), ops.maximum(routed, routed_last)
    width = settings.widths.reduce * settings.trainable
    return Summed(dense, routed, width * dense, width * routed, 0.0, 0.0)


def payloads(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, dense: Number, routed: Number,
    layers: Number, first: Number, last: Number,
) -> tuple[Payload, Payload]:  # fmt: skip
    """What a rank of a stage makes of its gradients outside and in the routed experts, `Payload` of each.

    Parameters
    ----------
    model, settings, plan : `ModelNumbers`, `Settings`, `PlanNumbers`
    dense, routed : parameters of the rank outside and in the routed experts
    layers : of the stage
    first, last : 1 where the stage holds the embedding, the head
    """
    factors = low_rank.stage_factors(model, plan, layers, first, last, settings.compression.rank)
    apart = low_rank.expert_factors(model, plan, routed, settings.compression.rank)
    made = compression.payload_of(dense, factors, plan.data * plan.context, settings)
    return made, compression.payload_of(routed, apart, communication.expert_ranks(plan), settings)


def compressed(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
    device: DeviceNumbers,
) -> Summed:  # fmt: skip
    """Gradients as the plan compresses them, `Summed`.

    Parameters
    ----------
    model, settings, plan, network, software, device : numbers of the question and of the plan
    """
    plain = uncompressed(model, settings, plan)
    one, other = ends(model, settings, plan)
    dense, _ = memory.stage_parameters(model, plan, one[0], one[1], one[2])
    fuller = plain.dense > dense
    made, apart = payloads(
        model, settings, plan, plain.dense, plain.routed, ops.where(fuller, other[0], one[0]),
        ops.where(fuller, other[1], one[1]), ops.where(fuller, other[2], one[2]),
    )  # fmt: skip
    ranks, others = plan.data * plan.context, communication.expert_ranks(plan)
    encoded = compression.encoded_time(made, ranks, plan.data_stride, network, software)
    routed = compression.encoded_time(apart, others, plan.expert * plan.expert_tensor, network, software)
    return Summed(
        plain.dense, plain.routed, made.whole, apart.whole, encoded + routed,
        compression.coding_time(made, device) + compression.coding_time(apart, device),
    )  # fmt: skip


def buffer_bytes(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, layers: Number, first: Number, last: Number,
) -> Number:  # fmt: skip
    """What compressing the gradients of a stage takes on one rank [bytes]: encoded ones, and what was not sent yet.

    Parameters
    ----------
    model, settings, plan : `ModelNumbers`, `Settings`, `PlanNumbers`
    layers : of the stage
    first, last : 1 where the stage holds the embedding, the head

    Assumes both to be held all the time, as PyTorch's hooks hold what was not sent.
    """
    depth = schedules.weight_copies(plan.schedule) * layers
    dense, routed = memory.stage_parameters(model, plan, depth, first, last)
    made, apart = payloads(model, settings, plan, dense, routed, depth, first, last)
    ranks, others = plan.data * plan.context, communication.expert_ranks(plan)
    kept = compression.residual_bytes(dense, ranks, settings) + compression.residual_bytes(routed, others, settings)
    encoded = compression.buffer_bytes(made, ranks) + compression.buffer_bytes(apart, others)
    return kept + ops.where(settings.compression.kind > compression.NONE, encoded, 0.0)


def fullest_stage(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
    micro_batches: Number,
) -> Memory:  # fmt: skip
    """The bill of the stage that is fullest with what compression holds, `Memory` [bytes].

    Parameters
    ----------
    model, settings, plan, network, software : `ModelNumbers`, `Settings`, `PlanNumbers`, `NetworkNumbers`, `Software`
    micro_batches : of a step
    """
    front, inner, back = memory.stage_places(model, settings, plan)
    bills = memory.stage_bills(model, settings, plan, network, software, micro_batches)
    first = memory.buffered(bills[0], buffer_bytes(front[0], settings, plan, front[1], front[3], front[4]), software)
    second = memory.buffered(bills[1], buffer_bytes(inner[0], settings, plan, inner[1], inner[3], inner[4]), software)
    last = memory.buffered(bills[2], buffer_bytes(back[0], settings, plan, back[1], back[3], back[4]), software)
    return memory.fuller(memory.fuller(first, second), last)

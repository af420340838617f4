"""Gradients that a step sums: how many, as how many bytes, and what it takes to compress them."""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.network import communication, compression
from costmodel.formulas.pipeline import layout, schedules
from costmodel.formulas.quantities import (
    DeviceNumbers,
    Kinds,
    Memory,
    ModelNumbers,
    NetworkNumbers,
    Number,
    Payload,
    Place,
    PlanNumbers,
    Settings,
    Software,
    Summed,
)
from costmodel.formulas.transformer import adapters, low_rank, memory


def summed_share(settings: Settings, plan: PlanNumbers) -> Number:
    """Share of the parameters whose gradients are summed wherever trained ones are: those, and of frozen ones that a flat unit
    has beside them, which are whole until the last micro-batch, one sum a step."""
    return settings.trainable + adapters.frozen_gradients(settings, plan) / layout.micro_batches(settings, plan)


def held_places(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers,
) -> tuple[Place, Place, Place]:  # fmt: skip
    """The first rank, the last, and one between with most layers with experts, copies of a two-way schedule counted.

    Returns
    -------
    tuple
        `Place` of each; there may be no rank between, nor one apart from the first
    """
    copies = schedules.weight_copies(plan.schedule)
    first, last, one, two, three, four = layout.places(model, settings, plan)
    most = ops.maximum(ops.maximum(one.experts, two.experts), ops.maximum(three.experts, four.experts))
    _, middle, _ = layout.rank_layers(model, settings, plan)
    layers = ops.where(plan.pipeline > 2.0, middle, 0.0)
    return (
        Place(copies * first.layers, copies * first.experts, 0.0, 1.0, first.last),
        Place(copies * last.layers, copies * last.experts, last.rank, last.first, last.last),
        Place(copies * layers, copies * most, four.rank, 0.0, 0.0),
    )


def _parameters(model: ModelNumbers, plan: PlanNumbers, place: Place) -> tuple[Number, Number]:
    """Parameters of a rank outside and in the routed experts."""
    return memory.stage_parameters(model, plan, place.layers, place.experts, place.first, place.last)


def _uncompressed(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Summed:
    """Gradients that travel as they are."""
    one, other, between = held_places(model, settings, plan)
    dense, routed = _parameters(model, plan, one)
    dense_last, routed_last = _parameters(model, plan, other)
    dense_between, routed_between = _parameters(model, plan, between)
    dense = ops.maximum(ops.maximum(dense, dense_last), dense_between)
    routed = ops.maximum(ops.maximum(routed, routed_last), routed_between)
    width = settings.widths.reduce * settings.trainable
    return Summed(dense, routed, width * dense, width * routed, 0.0, 0.0)


def payloads(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, dense: Number, routed: Number, place: Place,
) -> tuple[Payload, Payload]:  # fmt: skip
    """What a rank of a stage makes of its gradients outside and in the routed experts, `Payload` of each.

    Parameters
    ----------
    dense, routed : parameters of the rank outside and in the routed experts
    """
    held = place.layers, place.experts, place.first, place.last
    factors = low_rank.stage_factors(model, plan, *held, settings.compression.rank)
    apart = low_rank.expert_factors(model, plan, routed, settings.compression.rank)
    made = compression.payload_of(dense, factors, plan.data * plan.context, settings)
    return made, compression.payload_of(routed, apart, communication.expert_ranks(plan), settings)


def summed(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
    device: DeviceNumbers,
) -> Summed:  # fmt: skip
    """Gradients as the plan compresses them, `Summed`."""
    plain = _uncompressed(model, settings, plan)
    if ops.certain(ops.equal(settings.compression.kind, compression.NONE)):
        return plain
    one, other, between = held_places(model, settings, plan)
    dense, _ = _parameters(model, plan, one)
    dense_last, _ = _parameters(model, plan, other)
    ends = _either(dense_last > dense, other, one)
    fullest = _either(plain.dense > ops.maximum(dense, dense_last), between, ends)
    made, apart = payloads(model, settings, plan, plain.dense, plain.routed, fullest)
    ranks, others = plan.data * plan.context, communication.expert_ranks(plan)
    encoded = compression.encoded_time(made, ranks, plan.data_stride, network, software)
    routed = compression.encoded_time(apart, others, plan.expert * plan.expert_tensor, network, software)
    return Summed(
        plain.dense, plain.routed, made.whole, apart.whole, encoded + routed,
        compression.coding_time(made, device) + compression.coding_time(apart, device),
    )  # fmt: skip


def _either(condition: bool, one: Place, other: Place) -> Place:
    """One rank where a condition holds, else the other."""
    return Place(
        ops.where(condition, one.layers, other.layers), ops.where(condition, one.experts, other.experts),
        ops.where(condition, one.rank, other.rank), ops.where(condition, one.first, other.first),
        ops.where(condition, one.last, other.last),
    )  # fmt: skip


def buffer_bytes(model: ModelNumbers, settings: Settings, plan: PlanNumbers, place: Place) -> Number:
    """What compressing the gradients of a stage takes on one rank [bytes]: encoded ones, and what was not sent yet.

    Assumes both to be held all the time, as PyTorch's hooks hold what was not sent.
    """
    copies = schedules.weight_copies(plan.schedule)
    held = Place(copies * place.layers, copies * place.experts, place.rank, place.first, place.last)
    dense, routed = _parameters(model, plan, held)
    made, apart = payloads(model, settings, plan, dense, routed, held)
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
    micro_batches : of a step
    """
    if ops.certain(ops.equal(settings.compression.kind, compression.NONE)):
        return memory.fullest_stage(model, settings, plan, network, software, micro_batches)
    question = model, settings, plan, network, software, memory.layer_kinds(model, settings, plan, software)
    first, last, one, two, three, four = layout.places(model, settings, plan)
    fullest = memory.larger_memory(_bill(*question, first, micro_batches), _bill(*question, one, micro_batches))
    fullest = memory.larger_memory(fullest, _bill(*question, two, micro_batches))
    fullest = memory.larger_memory(fullest, _bill(*question, three, micro_batches))
    fullest = memory.larger_memory(fullest, _bill(*question, four, micro_batches))
    return memory.larger_memory(fullest, _bill(*question, last, micro_batches))


def _bill(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software, kinds: Kinds,
    place: Place, micro_batches: Number,
) -> Memory:  # fmt: skip
    """The bill of a rank with what compression holds."""
    bill = memory.place_bill(model, settings, plan, network, software, kinds, place, micro_batches)
    return memory.with_buffers(bill, buffer_bytes(model, settings, plan, place), settings, software)

"""One pipeline stage on one micro-batch: its layers, and the embedding or head that goes with them."""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas import gradients
from costmodel.formulas.network import communication
from costmodel.formulas.quantities import (
    DeviceNumbers,
    ExchangeTime,
    Layer,
    ModelNumbers,
    NetworkNumbers,
    Number,
    PlanNumbers,
    Settings,
    Software,
)
from costmodel.formulas.synchronisation import layer_units, replica_groups, stage_synchronisation
from costmodel.formulas.training_step import layer_pass
from costmodel.formulas.transformer import layer, lengths


def stage_pass(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
    device: DeviceNumbers, layers: Number, first: Number, last: Number, chunks: Number = 1.0,
) -> tuple[Number, Number, Number]:  # fmt: skip
    """Forward pass, backward pass by data and by weights of a stage on one micro-batch [s each].

    What is computed again and what is exchanged in the backward pass counts as backward by data. The last stage has the
    head and the modules that predict more than the next token.

    Parameters
    ----------
    layers : of the stage
    first, last : 1 where the stage holds the embedding, the head
    chunks : in which a micro-batch passes it, where it is all that a rank holds
    """
    one, forward, data, weight = _computed(model, settings, plan, network, software, device, layers, first, last)
    width = settings.widths.reduce * gradients.summed_share(settings, plan)
    together = replica_groups(plan, settings, network, software)
    units = layer_units(model, settings, plan, *together)
    experts = layers * (model.experts.layers / model.layers)
    moved = stage_synchronisation(
        model, settings, plan, software, *together, one, units, ExchangeTime(0.0, 0.0),
        layers, experts, first, last, chunks, width, width
    )
    return forward + moved.forward, ops.maximum(data + moved.backward - moved.weight, 0.0), weight + moved.weight


def unsynchronised_pass(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
    device: DeviceNumbers, layers: Number, first: Number, last: Number,
) -> tuple[Number, Number, Number]:  # fmt: skip
    r"""Forward pass, backward pass by data and by weights of a stage, without its exchange of gradients and weights [s each].

    .. math:: (F,\; \max(B, 0),\; W)

    What a framework does around every pass because its weights are sharded stays a part of it: its hooks, its copies.

    Parameters
    ----------
    layers : of the stage
    first, last : 1 where the stage holds the embedding, the head
    """
    _, forward, data, weight = _computed(model, settings, plan, network, software, device, layers, first, last)
    return forward, ops.maximum(data, 0.0), weight


def _computed(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
    device: DeviceNumbers, layers: Number, first: Number, last: Number,
) -> tuple[Layer, Number, Number, Number]:  # fmt: skip
    """A layer's pass, and a stage's three passes but for its exchange of gradients and weights."""
    settings = lengths.at_work(settings, plan)
    one = layer_pass(model, settings, plan, network, software, device)
    head = layer.head_work(model, settings, plan, software, device)
    embed_forward, embed_backward = layer.embedding_work(model, settings, plan, device)
    exchanged = communication.tensor_exchange(model, settings, plan, network, software)
    depth = layers + last * model.prediction_layers
    rest = depth * (one.total - one.total_forward - one.total_weight)
    return (
        one, depth * one.total_forward + last * (head.forward + head.stream_forward) + first * embed_forward,
        rest + last * (head.data + head.stream_backward) + first * embed_backward + (first + last) * exchanged,
        depth * one.total_weight + last * (head.weight + head.accumulate),
    )  # fmt: skip


def outside_passes(
    total: Number, bubble: Number, exchange: Number, micro_batches: Number, slowest: Number, syncs: Number, chunks: Number,
) -> tuple[Number, Number]:  # fmt: skip
    """What a step has besides its passes, its bubble and its transfers, to each sync of a rank, or to each backward pass [s].

    Parameters
    ----------
    total : the step [s]
    bubble, exchange : of it, what the pipeline idles, and waits for transfers [s]
    micro_batches : of a step
    slowest : all passes of one micro-batch on the slowest rank [s]
    syncs : of each rank in a step; where there are none, backward passes take it
    chunks : stages on a rank
    """
    besides = ops.maximum(total - bubble - exchange - micro_batches * slowest, 0.0)  # below 0 by rounding only
    synced = syncs > 0.0
    return (ops.where(synced, besides / ops.maximum(syncs, 1.0), 0.0), ops.where(synced, 0.0, besides / (micro_batches * chunks)))

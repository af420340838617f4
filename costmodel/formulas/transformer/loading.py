"""Bytes that a rank and its node hold before the first step: while a model is made or loaded, and while a checkpoint is saved."""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.network import communication
from costmodel.formulas.pipeline import layout
from costmodel.formulas.quantities import (
    ModelNumbers,
    NetworkNumbers,
    Number,
    Place,
    PlanNumbers,
    RankParameters,
    Settings,
    Software,
)
from costmodel.formulas.transformer import memory, parameters

PARTS, ONE_RANK, EVERY_RANK, WHOLE = 0.0, 1.0, 2.0, 3.0
"""Codes of the ways in which a model comes to its ranks: each makes its own part on its device; one reads it and sends the
others theirs, unit by unit; every one has it in host memory and takes it to its device unit by unit; every one has all of it on
its device before anything is sharded."""
CHECKPOINT_BYTES = 2.0
"""Of a weight in the files that are read."""


def device_bytes(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software
) -> Number:
    """Bytes that the fullest rank's device holds at most before the first step begins.

    The weights that it keeps, and beside them what has come whole and is still to be split: FSDP moves a unit and lays it out
    flat, FSDP2 moves it as it is, DeepSpeed's ``zero.Init`` splits tensor after tensor. Where all of it is there first
    (``model.cuda()`` before it is wrapped, or ZeRO-3 without ``zero.Init``) that is a whole copy, whatever is sharded later.

    References
    ----------
    pytorch/pytorch@v2.13.0 torch/distributed/fsdp/_init_utils.py (``_move_states_to_device``), _flat_param.py
    (``flatten_tensors``), _fully_shard/_fsdp_init.py; deepspeedai/DeepSpeed@v0.19.8 deepspeed/runtime/engine.py
    (``_configure_distributed_model``: ``module.to(device)`` unless ``zero.Init`` made it), runtime/zero/partition_parameters.py
    """
    most = 0.0 * plan.tensor
    for place in layout.places(model, settings, plan):
        most = ops.maximum(most, _on_device(model, settings, plan, place))
    return most + memory.outside_allocator(plan, network, software)


def _on_device(model: ModelNumbers, settings: Settings, plan: PlanNumbers, place: Place) -> Number:
    """Bytes of weights on a rank's device, of its own part and of what comes whole."""
    owned = memory.rank_parameters(model, plan, place.first, place.last)
    kept = memory.state_bytes_of(owned, settings, plan, place.layers, place.experts)[0]
    dense, routed = memory.whole_parameters(owned, place.layers, place.experts)
    quantised = settings.widths.parameter - settings.widths.stored  # embedding and head aren't
    stored, loading = loaded_width(settings), settings.loading.kind
    whole = stored * (dense + routed) + quantised * (owned.edges + owned.edges_routed)
    sharded = memory.split_parameters(dense, routed, plan) > 0.0
    shard, expert_shard = communication.shard_groups(plan)
    # what trains in 32 bit is cast up once it is split
    split = memory.local_parameters(plan.shard_weights, dense, routed, shard, expert_shard)
    lifted = (1.0 - settings.adapter.frozen) * settings.widths.wide
    narrow = kept - (1.0 - settings.offload.parameters * plan.shard_weights) * lifted * split
    flat = ops.where(settings.buckets.live > 0.0, 0.0, 1.0 - settings.buckets.padded)
    unit = (1.0 + flat) * stored * unsplit_parameters(model, owned, settings, plan, place)
    by_units = ops.where(loading > PARTS, narrow + unit, kept)
    first = flat * stored * memory.largest_unit(owned, plan, place.layers, place.experts)
    loaded = ops.where(ops.equal(loading, WHOLE), ops.maximum(whole + first, by_units), by_units)
    return ops.where(sharded, ops.maximum(loaded, kept), kept)


def beside_a_step(settings: Settings, shard_weights: Number) -> Number:
    """Whether loading may hold more than a step does: 1 of sharded weights that aren't made in parts, else 0.

    Parameters
    ----------
    shard_weights : of a plan, 1 where its weights are sharded
    """
    return ops.where(ops.equal(settings.loading.kind, PARTS), 0.0, shard_weights)


def unsplit_parameters(model: ModelNumbers, owned: RankParameters, settings: Settings, plan: PlanNumbers, place: Place) -> Number:
    """Parameters that come to a device whole before they are split: the largest unit's, or the largest tensor's where no layer is
    a unit.
    """
    edges = memory.split_parameters(owned.edges, owned.edges_routed, plan)
    unit = ops.maximum(edges, memory.largest_unit(owned, plan, place.layers, place.experts))
    widest = ops.maximum(model.vocabulary.size, ops.maximum(model.mlp.width, model.attention.heads * model.attention.head_dim))
    grouped = settings.framework.grouped_experts * 2.0 * model.experts.number * model.experts.width  # gates and up-projections
    return ops.where(settings.buckets.live > 0.0, ops.maximum(widest, grouped) * model.hidden, unit)


def host_bytes(model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers) -> Number:
    """Bytes of a node's host memory that a model takes while it is loaded.

    One copy where one rank reads it, or as many as the node has ranks. Files that are mapped into memory and whose weights stay
    as they are written are one copy to all ranks of a node; weights that are cast, or packed, are each rank's own.

    References
    ----------
    huggingface/transformers@v5.24.0 src/transformers/modeling_utils.py (``get_slice`` of mapped safetensors,
    ``is_local_dist_rank_0``); pss of two processes that load a model in the dtype of its files: half of it each, in 32 bit twice
    """
    ranks = ops.minimum(network.node.size, plan.tensor * plan.context * plan.pipeline * plan.data)
    as_written = settings.loading.mapped * ops.where(ops.equal(loaded_width(settings), CHECKPOINT_BYTES), 1.0, 0.0)
    kind = way(settings, plan)
    copies = ops.where((kind > ONE_RANK) & (as_written <= 0.0), ranks, 1.0)
    return ops.where(kind > PARTS, copies * _stored_bytes(model, settings), 0.0)


def loaded_width(settings: Settings) -> Number:
    """Bytes of a weight as it is loaded: what trains is cast up afterwards, what is frozen stays as wide as it was loaded."""
    return settings.widths.stored + settings.adapter.frozen * settings.widths.wide


def way(settings: Settings, plan: PlanNumbers) -> Number:
    """The code of the way in which weights come to their ranks: those that are sharded as the plan says, others as ever."""
    return ops.where(plan.shard_weights > 0.0, settings.loading.kind, settings.loading.replicated)


def _stored_bytes(model: ModelNumbers, settings: Settings) -> Number:
    """Bytes of all weights as they are held: of those that are quantised all but embedding and head."""
    edges, widths = parameters.embedding_parameters(model) + parameters.head_parameters(model), settings.widths
    return loaded_width(settings) * parameters.total_parameters(model) + (widths.parameter - widths.stored) * edges


def saved_bytes(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Bytes of host memory that a checkpoint takes on the first node, where one rank gathers all of it to save it.

    References
    ----------
    huggingface/accelerate@v1.15.0 src/accelerate/utils/dataclasses.py (``state_dict_type``: FULL_STATE_DICT under FSDP1),
    utils/fsdp_utils.py (``save_fsdp_model``, ``save_fsdp_optimizer``); deepspeedai/DeepSpeed@v0.19.8 deepspeed/runtime/engine.py
    (``_zero3_consolidated_16bit_state_dict``)
    """
    gathered, (shard, _) = settings.loading.saved, communication.shard_groups(plan)
    trained = settings.trainable * gathered * parameters.total_parameters(model)
    every = trained + (1.0 - settings.trainable) * _stored_bytes(model, settings)
    return ops.where((shard > 1.0) & (gathered > 0.0), plan.shard_weights * every, 0.0)

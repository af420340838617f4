r"""Bytes that one rank holds at its fullest, part by part.

Longer than other modules, as every part of a bill stands beside those that it is held with at one moment: what is fullest is
a maximum over moments, and which one it is decides what each part is.
"""

from __future__ import annotations

from typing import NamedTuple

from costmodel.arithmetic import ops
from costmodel.formulas.network import collectives, communication
from costmodel.formulas.pipeline import layout, schedules
from costmodel.formulas.quantities import (
    Contents,
    Kinds,
    LayerBytes,
    Memory,
    ModelNumbers,
    NetworkNumbers,
    Number,
    Place,
    PlanNumbers,
    RankParameters,
    Settings,
    Software,
)
from costmodel.formulas.transformer import activations, adapters, layer, lengths, traffic
from costmodel.formulas.transformer.parameters import (
    dense_layer_of_rank,
    embedding_of_rank,
    expert_layer_shared_of_rank,
    head_of_rank,
    of_kind,
    prediction_of_rank,
)

ARGUMENTS = {
    "layers": "of the stage", "experts": "of the stage's layers, those with a mixture of experts", "micro_batches": "of a step",
    "tied": "1 where embedding and head are one matrix", "ranks": "members of the group",
    "stride": "distance of neighbouring members [ranks]",
}  # fmt: skip
"""What arguments mean in all formulas here that say nothing else of them."""
CONNECTION_BYTES = 524_288.0 + 4_915_200.0 + 4_194_304.0
"""Of NCCL's receiver on one channel, for its protocols LL, LL128 and Simple."""
TREE_NEIGHBOURS = 2.0
"""Of a member of a double binary tree, on average, beside its neighbour in the ring."""
SQUARED = 8.0
"""Of a gradient as DeepSpeed squares it for the norm [bytes]: deepspeed/runtime/zero/utils.py @edaa722 ``get_norm_dtype``."""
POOL_CHUNKS, NEAR_CHUNK_BYTES, FAR_CHUNK_BYTES = 16.0, 524_288.0, 131_072.0
"""Chunks of NCCL's pool for messages on one channel, and their size inside a node of NVLinks and elsewhere."""


LOG_SOFTMAX = 4.0
"""Of a logit, as a loss saves it for its backward pass [bytes]."""


TILE_TOKENS, TILE_COLUMNS = 4096.0, 32768.0
"""Of logits that are there at once under a tiled loss: huggingface/trl@v1.16.0 trl/kernels/chunked_logprob.py
``TOKEN_CHUNK_SIZE``, trl/trainer/utils.py ``_CHUNKED_LOGPROB_CHUNK_SIZE``."""
FORWARD_LOGIT = 10.0 / 12.0
"""Of what a loss holds in its backward pass, as it ends its forward pass: 16-bit logits, 32-bit ones and their log-softmax."""
LOSS_CHUNKS = 8.0
"""Of a micro-batch under a loss by chunks: meta-pytorch/torchtune@bd2a0fc torchtune/modules/loss (``num_output_chunks``)."""
WIDE_LOGIT = 4.0
"""Of a logit in 32 bit [bytes]."""
LEFT = 1.0 / 3.0
"""Of what a layer's backward pass holds at its fullest, as the gradients of its first products are made: the inputs of norm and
projections, and the projections' gradients."""
SUMMED = 4.0
"""Of a gradient that a tiled loss adds up tile by tile [bytes]."""


def tiled_logits(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Bytes that a loss holds at its fullest which multiplies by the head tile by tile: where its backward pass ends.

    A tile of logits, gradients of the head's input and weight as they add up in 32 bit and as they are handed on, and casts of a
    tile of weights that are in 32 bit: of the next one, too, while this one's has yet to go.

    References
    ----------
    huggingface/trl@v1.16.0 trl/kernels/chunked_logprob.py (``ChunkedLogProbFunction.backward``)
    """
    widths = settings.widths
    tokens = lengths.local_tokens(settings, plan)
    columns = traffic.loss_columns(model, settings, plan)
    across = ops.minimum(columns, TILE_COLUMNS)
    tile = widths.activation * ops.minimum(tokens, TILE_TOKENS) * across
    again = ops.where(tokens > TILE_TOKENS, 2.0, 1.0) * columns
    both = ops.where(columns > TILE_COLUMNS, ops.minimum(columns, 2.0 * TILE_COLUMNS), again)
    casts = adapters.casts_head(settings) * widths.activation * both * model.hidden
    return tile + casts + tiled_gradients(model, settings, plan)


def tiled_gradients(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Bytes of the gradients of the head's input and weight that a `tiled_logits` makes, summed in 32 bit and as handed on."""
    widths, tokens = settings.widths, lengths.local_tokens(settings, plan)
    narrow = ops.where(widths.parameter < SUMMED, widths.parameter, 0.0)
    weight = (1.0 - settings.adapter.frozen) * traffic.loss_columns(model, settings, plan) * model.hidden
    return (SUMMED + widths.activation) * tokens * model.hidden + (SUMMED + narrow) * weight


def logits(model: ModelNumbers, settings: Settings, plan: PlanNumbers, micro_batches: Number) -> Number:
    """Bytes of the last norm's and the head's input and of the logits at the loss of a micro-batch, on one rank.

    A fused linear loss takes so few tokens at a time that their logits are as large as all inputs of the head, and writes their
    gradient over them; it makes the gradient of the head's input, and of its weight, before the backward pass. Where a hyperbolic
    tangent holds logits within limits, what it makes is kept for its own backward pass. Where each chunk of logits is a product
    of its own, so is its gradient of the head's weight: autograd adds the second to the first, beside their sum, and by then has
    let go what two chunks held.

    Parameters
    ----------
    micro_batches : of a step; from the second on, the logits of the one before may still be held

    References
    ----------
    linkedin/Liger-Kernel@v0.8.5 src/liger_kernel/ops/fused_linear_cross_entropy.py (``inc_factor``, ``grad_input``,
    ``grad_weight``); huggingface/transformers src/transformers/models/gemma2/modeling_gemma2.py (``final_logit_softcapping``);
    pytorch/pytorch torch/csrc/autograd/input_buffer.cpp (``accumulate``)
    """
    widths = settings.widths
    tokens = lengths.local_tokens(settings, plan)
    inputs = 2.0 * widths.activation * lengths.norm_tokens(settings, plan) * model.hidden
    columns = traffic.loss_columns(model, settings, plan)
    before = ops.where(micro_batches > 1.0, widths.retained_logit, 0.0)
    held = held_per_logit(model, settings, plan)
    capped = model.vocabulary.capped * (1.0 - settings.framework.compiled) * widths.activation
    of_weight = (1.0 - settings.adapter.frozen) * columns
    by_chunks = model.hidden * (2.0 * widths.activation * tokens + widths.parameter * of_weight)
    linear = (held <= 0.0) | (by_linear_loss(settings) > 0.0)
    cast = adapters.casts_head(settings) * widths.activation * model.hidden * columns  # the head's weight, as it is multiplied
    staged = ops.where(plan.pipeline > 1.0, widths.staged_logit, 0.0)
    # a linear loss multiplies by the weight and by its transpose, each cast; autocast keeps one of a weight that trains
    linear_bytes = (1.0 - settings.adapter.frozen) * cast + by_chunks
    summed = 3.0 * widths.parameter * of_weight * model.hidden - 2.0 / LOSS_CHUNKS * held * tokens * columns
    by_logits = (held + before + staged + capped) * tokens * columns + settings.kernels.chunked_loss * ops.maximum(summed, 0.0)
    whole = cast + ops.where(linear, linear_bytes, by_logits)
    return inputs + ops.where(settings.kernels.tiled_loss > 0.0, tiled_logits(model, settings, plan), whole)


def held_per_logit(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Bytes that a loss holds at its fullest for each logit of a micro-batch."""
    widths = settings.widths
    held = ops.where(traffic.norms_are_rms(model), widths.logit, widths.layernorm_logit)
    return ops.where((plan.tensor > 1.0) & (widths.tensor_logit > 0.0), widths.tensor_logit, held)


def wide_logits(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Bytes of all logits of a micro-batch in 32 bit on one rank, of which an unfused loss has three tensors; 0 of any other."""
    there = ops.where(held_per_logit(model, settings, plan) >= 3.0 * WIDE_LOGIT, 1.0 - settings.expandable_segments, 0.0)
    return there * WIDE_LOGIT * lengths.local_tokens(settings, plan) * traffic.loss_columns(model, settings, plan)


def by_linear_loss(settings: Settings) -> Number:
    """1 where the one kernel of the loss multiplies by the head, too, and makes that weight's gradient."""
    return settings.framework.linear_loss * settings.kernels.fused_cross_entropy


def kept_beside_loss(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, owned: RankParameters, layers: Number, experts: Number
) -> Number:
    """Bytes that a loss which is part of a forward pass holds as it is computed, over those in its backward pass.

    Of a sharded model the buffer into which the last unit was gathered, beside its weights; under autocast the 16-bit copies of
    weights that train, those of recomputed layers, too: both are given up as the forward pass ends, when of what the loss holds
    the gradients have yet to come. Beside the backward pass of a tiled loss, which is the head's, the last layer is gathered.

    References
    ----------
    pytorch/pytorch v2.13.0 torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py (``wait_for_unshard``), _fsdp_state.py
    (``_post_forward``); aten/src/ATen/autocast_mode.cpp (``cached_cast``, ``clear_cache``)
    """
    widths = settings.widths
    head_last = _head_apart(settings, model.vocabulary.tied)
    last = ops.where(head_last, split_parameters(owned.head, 0.0, plan), largest_unit(owned, plan, layers, experts))
    buffer = ops.where(head_last, widths.parameter, widths.stored) * last
    dense, routed = of_layers(owned, layers, experts)
    # of parameters alone, not of views of a gathered unit
    trains = (1.0 - settings.adapter.frozen) * plan.recompute_layers * (1.0 - plan.shard_weights)
    casts = trains * adapters.autocasts(settings) * widths.input * (dense + routed)
    tokens, columns = lengths.local_tokens(settings, plan), traffic.loss_columns(model, settings, plan)
    held = ops.where(traffic.norms_are_rms(model), widths.logit, widths.layernorm_logit)
    of_tiles = ops.where(settings.kernels.tiled_loss > 0.0, tiled_gradients(model, settings, plan), 0.0)
    to_come = (1.0 - FORWARD_LOGIT) * held * tokens * columns + of_tiles
    ahead = ops.where(settings.kernels.tiled_loss > 0.0, following_unit(owned, settings, plan, layers + 1.0, experts), 0.0)
    return ops.maximum(settings.framework.loss_inside * buffer + casts - to_come, ahead)


def first_gathers(owned: RankParameters, settings: Settings, plan: PlanNumbers, layers: Number, experts: Number) -> Number:
    """Bytes over one gathered embedding as a forward pass begins, where it is a unit that is gathered into a buffer and copied.

    Its buffer, and that of the first layer with its copy, before the former is given up; nothing is saved yet.

    References
    ----------
    pytorch/pytorch v2.13.0 torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py (``wait_for_unshard``)
    """
    widths, table = settings.widths, split_parameters(owned.head, 0.0, plan)
    unit = largest_unit(owned, plan, layers, experts)
    gathered = widths.parameter * table + 2.0 * widths.stored * unit
    return settings.framework.loss_inside * settings.framework.edges_apart * gathered


def next_gathers(
    owned: RankParameters, settings: Settings, plan: PlanNumbers, layers: Number, experts: Number, tied: Number
) -> Number:
    """Bytes over what is gathered at the loss as a forward pass comes to its last layer, where units are copied out of buffers.

    Its buffer, its copy, and the buffer of the layer before, which goes as that is made; the head has yet to come.

    References
    ----------
    pytorch/pytorch v2.13.0 torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py (``wait_for_unshard``: ``all_gather_state``)
    """
    widths, unit = settings.widths, largest_unit(owned, plan, layers, experts)
    buffers = widths.stored * ops.where(layers > 1.0, 3.0 * unit, 0.0)
    apart = _head_apart(settings, tied)
    head = widths.parameter * split_parameters(owned.head, 0.0, plan)
    counted = ops.where(apart, head, ops.where(settings.framework.edges_apart > 0.0, 0.0, widths.stored * unit))
    return settings.framework.stream_pools * (buffers - counted)


def waiting_logits(model: ModelNumbers, settings: Settings, plan: PlanNumbers, micro_batches: Number) -> Number:
    """Bytes of a micro-batch's loss on one rank between its passes, where a pipeline has those of others between.

    Of what the loss holds at its fullest a log-softmax in 32 bit waits, and the output that a stage keeps.

    Assumptions
    -----------
    A loss in 16 bit waits with half of that.
    """
    inputs = 2.0 * settings.widths.activation * lengths.norm_tokens(settings, plan) * model.hidden
    columns = lengths.local_tokens(settings, plan) * traffic.loss_columns(model, settings, plan)
    kept = inputs + (LOG_SOFTMAX + settings.widths.staged_logit) * columns
    return ops.minimum(kept, logits(model, settings, plan, micro_batches))


def rank_parameters(model: ModelNumbers, plan: PlanNumbers, first: Number, last: Number) -> RankParameters:
    """Parameters on one rank of a stage, of a layer of either kind and of what is none of its layers', `RankParameters`.

    Parameters
    ----------
    first, last : 1 where the stage holds the embedding, the head; tied embeddings live on both
    """
    return RankParameters(
        dense_layer_of_rank(model, plan.tensor), expert_layer_shared_of_rank(model, plan.tensor),
        layer.routed_parameters(model, plan), *edge_parameters(model, plan, first, last),
        last * model.vocabulary.size * model.hidden / plan.tensor,
        ops.maximum(first, last * model.vocabulary.tied) * model.vocabulary.size * model.hidden / plan.tensor,
    )  # fmt: skip


def of_layers(owned: RankParameters, layers: Number, experts: Number) -> tuple[Number, Number]:
    """Parameters of a stage's layers on one rank: outside the routed experts, and in them."""
    return (layers - experts) * owned.layer + experts * owned.expert_layer, experts * owned.routed


def whole_parameters(owned: RankParameters, layers: Number, experts: Number) -> tuple[Number, Number]:
    """Parameters of a stage on one rank: outside the routed experts, and in them."""
    inner, routed = of_layers(owned, layers, experts)
    return inner + owned.edges, routed + owned.edges_routed


def graded_parameters(
    owned: RankParameters, settings: Settings, plan: PlanNumbers, layers: Number, experts: Number
) -> tuple[Number, Number]:
    """As `whole_parameters`, of those that have gradients: embedding and head, beside which no adapter lies, have none where
    frozen weights have them for an adapter's sake."""
    inner, routed = of_layers(owned, layers, experts)
    edges = ops.where(adapters.frozen_gradients(settings, plan) > 0.0, 0.0, 1.0)
    return inner + edges * owned.edges, routed + edges * owned.edges_routed


def stage_parameters(
    model: ModelNumbers, plan: PlanNumbers, layers: Number, experts: Number, first: Number, last: Number,
) -> tuple[Number, Number]:  # fmt: skip
    """Parameters of a stage on one rank: outside the routed experts, and in them.

    Parameters
    ----------
    first, last : 1 where the stage holds the embedding, the head; tied embeddings live on both
    """
    return whole_parameters(rank_parameters(model, plan, first, last), layers, experts)


def edge_parameters(model: ModelNumbers, plan: PlanNumbers, first: Number, last: Number) -> tuple[Number, Number]:
    """Parameters of a stage on one rank that are none of its layers': outside the routed experts, and in them.

    Parameters
    ----------
    first, last : 1 where the stage holds the embedding, the head; tied embeddings live on both
    """
    copy = model.vocabulary.tied * model.vocabulary.size * model.hidden * last * (1.0 - first)
    modules = last * model.prediction_layers * ops.where(model.experts.layers > 0.0, 1.0, 0.0)
    own = embedding_of_rank(model, plan.tensor) * first + last * head_of_rank(model, plan.tensor)
    edges = own + last * prediction_of_rank(model, plan.tensor) + copy / plan.tensor
    return edges, modules * layer.routed_parameters(model, plan)


def local_parameters(sharded: Number, dense: Number, routed: Number, shard: Number, expert_shard: Number) -> Number:
    """Parameters whose state stays on one rank, split over `shard` ranks (experts over theirs) where `sharded`.

    Parameters
    ----------
    sharded : 1 where this state is sharded
    dense : parameters outside the routed experts
    routed : parameters of the routed experts
    shard : ranks that share one copy
    expert_shard : the same for the experts
    """
    share = 1.0 / ops.where(sharded > 0.0, shard, 1.0)
    return dense * share + routed * (1.0 / ops.where(sharded > 0.0, expert_shard, 1.0))


def states(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, place: Place, at_once: Number = 0.0,
) -> tuple[Number, Number, Number, Number]:  # fmt: skip
    """Weights, gradients, optimizer state and `gathered_weights` of a stage on one rank [bytes each].

    Parameters
    ----------
    at_once : 1 where gradients are sharded as they are made, `summed_at_once`
    """
    owned = rank_parameters(model, plan, place.first, place.last)
    return state_bytes_of(owned, settings, plan, place.layers, place.experts, at_once)


def state_bytes_of(
    owned: RankParameters, settings: Settings, plan: PlanNumbers, layers: Number, experts: Number, at_once: Number = 0.0
) -> tuple[Number, Number, Number, Number]:
    """As `states`, of parameters that are known.

    Parameters
    ----------
    at_once : 1 where gradients are sharded as they are made, `summed_at_once`

    References
    ----------
    [dettmers2023]_ (QLoRA quantises the matrices of layers); foundation-model-stack/fms-acceleration@876e2ed (a Llama 3 8B
    in NF4 holds 5.3 GiB: 3.35 of layers, 1.96 of embedding and head)
    """
    widths = settings.widths
    copies = schedules.weight_copies(plan.schedule)
    inner, inner_routed = of_layers(owned, copies * layers, copies * experts)
    dense, routed = inner + owned.edges, inner_routed + owned.edges_routed
    shard, expert_shard = communication.shard_groups(plan)

    trained = settings.trainable
    # what is paged is no tensor of the allocator's, and gives way to what is
    on_device = (1.0 - settings.offload.optimizer) * (1.0 - settings.offload.paged)
    held = local_parameters(plan.shard_weights, dense, routed, shard, expert_shard)
    graded = adapters.gradient_share(settings, plan)
    with_gradients = graded_parameters(owned, settings, plan, copies * layers, copies * experts)
    summed = local_parameters(ops.maximum(plan.shard_gradients, at_once), *with_gradients, shard, expert_shard)
    # where sums wait for the last micro-batch, gradients are whole: of a chunk after the other if each has all micro-batches
    chunk_by_chunk = schedules.chunked(plan.schedule) * (1.0 - schedules.grouped_by_stages(plan.schedule))
    waiting = layer.deferred_sums(settings, plan) * ops.where(chunk_by_chunk > 0.0, 1.0 / plan.virtual_stages, 1.0)
    summed = waiting * (dense + routed) + (1.0 - waiting) * summed
    updated = updated_parameters(dense, routed, plan)
    cast = local_parameters(plan.shard_weights, inner, inner_routed, shard, expert_shard)
    # quantised are the matrices of layers: embedding, head and what predicts further tokens keep their width, or the residual's
    apart = copies * local_parameters(plan.shard_weights, owned.edges, owned.edges_routed, shard, expert_shard)
    away = settings.offload.parameters * plan.shard_weights
    edges = adapters.edge_bytes(settings) - widths.stored
    adapted = widths.adapter * trained * held
    weights = (1.0 - away) * ((widths.stored + widths.wide) * held + adapted + edges * apart + widths.weight_copy * cast)
    waiting_here = 1.0 - settings.framework.offload_gradients * away
    gradients = graded * widths.gradient * waiting_here * summed + trained * widths.backward_gradient * held
    # to the host go those that are sharded as they are made; of several micro-batches at stage 1 they wait, whole
    sent_off = settings.buckets.held * plan.shard_optimizer * ops.maximum(plan.shard_gradients, at_once)
    gradients = gradients * (1.0 - settings.offload.optimizer * sent_off)
    table = local_parameters(plan.shard_optimizer, owned.embedding, 0.0, shard, expert_shard)
    optimizer = on_device * (trained * (widths.optimizer + widths.outer) * updated + widths.embedding_moments * table)
    return weights, gradients, optimizer, gathered_weights(owned, settings, plan, layers, experts)


def updated_parameters(dense: Number, routed: Number, plan: PlanNumbers) -> Number:
    """Parameters of a stage whose optimizer's state is one rank's; that of a stage that two ranks run is sharded over both.

    Parameters
    ----------
    dense, routed : on the rank, outside the routed experts and in them
    """
    shard, expert_shard = communication.shard_groups(plan)
    once = ops.where(plan.shard_optimizer > 0.0, 1.0 / schedules.weight_copies(plan.schedule), 1.0)
    return once * local_parameters(plan.shard_optimizer, dense, routed, shard, expert_shard)


def split_parameters(dense: Number, routed: Number, plan: PlanNumbers) -> Number:
    """Parameters of some that ZeRO-3 shards, those of a rank's whole copy.

    Parameters
    ----------
    dense, routed : outside the routed experts, and in them
    """
    shard, expert_shard = communication.shard_groups(plan)
    split = ops.where(shard > 1.0, dense, 0.0) + ops.where(expert_shard > 1.0, routed, 0.0)
    return plan.shard_weights * split


def largest_unit(owned: RankParameters, plan: PlanNumbers, layers: Number, experts: Number) -> Number:
    """Parameters of a stage's largest layer that ZeRO-3 shards, those of a rank's whole copy."""
    dense = ops.where(layers > experts, split_parameters(owned.layer, 0.0, plan), 0.0)
    return ops.maximum(dense, ops.where(experts > 0.0, split_parameters(owned.expert_layer, owned.routed, plan), 0.0))


def gathered_weights(owned: RankParameters, settings: Settings, plan: PlanNumbers, layers: Number, experts: Number) -> Number:
    """Bytes of the weights that ZeRO-3 has gathered on one rank, from the first forward pass on.

    Where a layer is a unit, that of the largest layer, and embedding and head, which are one more and stay whole until their own
    backward pass; the next layer's, `gathered_backward`, come only beside the backward pass. Where embedding and head are units
    of their own, the head alone, as the last layer's is given up before the loss. Where sums wait for a pipeline's last
    micro-batch, weights are whole from a backward pass on: all layers'. DeepSpeed gathers up to a number of elements, whatever
    they belong to: of weights in NF4 each holds as many as it has room for.

    References
    ----------
    pytorch/pytorch torch/distributed/fsdp/_runtime_utils.py (the root is not resharded after its forward pass);
    deepspeedai/DeepSpeed@edaa722 deepspeed/runtime/zero/config.py (``max_live_parameters``), partitioned_param_coordinator.py
    (``ds_numel``); huggingface/transformers src/transformers/utils/quantization_config.py (``bnb_4bit_quant_storage``).
    foundation-model-stack/fms-acceleration@876e2ed: over states and what grows with tokens, a Mixtral with adapters on 2 GPUs
    holds 2.9 GiB, with a base in NF4 1.3; a Mistral 7B 0.95 and 0.7
    """
    widths = settings.widths
    inner, inner_routed = of_layers(owned, layers, experts)
    dense, routed = inner + owned.edges, inner_routed + owned.edges_routed
    every, unit = split_parameters(inner, inner_routed, plan), largest_unit(owned, plan, layers, experts)
    together = split_parameters(owned.edges, owned.edges_routed, plan)
    apart = settings.framework.edges_apart > 0.0
    units = widths.stored * ops.where(layer.deferred_sums(settings, plan) > 0.0, every, ops.where(apart, 0.0, unit))
    units = units + widths.parameter * ops.where(apart, split_parameters(owned.head, 0.0, plan), together)
    live = ops.minimum(widths.stored * split_parameters(dense, routed, plan), widths.parameter * settings.buckets.live)
    return ops.where(settings.buckets.live > 0.0, live, units)


def gathered_backward(
    owned: RankParameters, settings: Settings, plan: PlanNumbers, layers: Number, experts: Number, tied: Number,
    at_work: Number, matrix: Number, behind: Number,
) -> Number:  # fmt: skip
    """Bytes of a layer's backward pass where a layer is a unit of ZeRO-3: beside its own, weights of the next, if any, and whole
    gradients.

    Gradients come in the width of what was gathered, and a layer's are laid out in the width of their sum to be scattered. A
    layer's own are there once the most of what its pass holds has gone: that is fullest beside the first of them, that of the
    MLP's last matrix. Where sums have a stream of their own, what is laid out for the layer behind stays until then. The
    head's wait for the embedding's, which come last: both are one unit, or one matrix. Where they are units of their own the head
    has gone by then, but for its gradients, which are laid out while the last layer's backward pass runs, and the layer's own
    weights come.

    Parameters
    ----------
    at_work : of the layer's pass at its fullest, sharded or not [bytes]
    matrix : parameters of an MLP's last matrix, of all experts
    behind : 1 where another layer's gradients are on their way, not the head's

    References
    ----------
    pytorch/pytorch torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py (``foreach_reduce``: ``reduce_scatter_input``),
    _fsdp_param_group.py (``reduce_scatter_state``); torch/distributed/fsdp/_runtime_utils.py (``_reduce_grad``);
    pytorch/torchtitan@83e694105 (July 2025: embedding, and norm with output, are units of their own)
    """
    widths, trained = settings.widths, adapters.gradient_share(settings, plan) * layer.sharded_gradients(settings, plan)
    unit = largest_unit(owned, plan, layers, experts)
    head, apart = split_parameters(owned.head, 0.0, plan), _head_apart(settings, tied)
    laid_out = trained * widths.reduce * ops.where(apart & (behind <= 0.0), head, unit)
    stays = settings.framework.stream_pools * laid_out
    whole, first = trained * widths.parameter * unit, trained * widths.parameter * ops.minimum(matrix, unit)
    gone = layer.sharded_gradients(settings, plan) * widths.parameter * ops.where(apart, head, 0.0)
    waiting = trained * widths.parameter * ops.where(apart, 0.0, head)
    following = following_unit(owned, settings, plan, layers, experts)
    beside = own_unit(owned, settings, plan, layers, experts) + following + waiting - gone + stays
    fullest = ops.maximum(at_work + first, at_work * LEFT + whole)
    fullest = beside + ops.maximum(fullest, whole + laid_out - stays)
    return ops.where(settings.buckets.live > 0.0, at_work, fullest)


def following_unit(owned: RankParameters, settings: Settings, plan: PlanNumbers, layers: Number, experts: Number) -> Number:
    """Bytes of the next layer's weights that are gathered beside a layer's backward pass, if there is another."""
    next_one = ops.where(layers > 1.0, settings.widths.stored * largest_unit(owned, plan, layers, experts), 0.0)
    return layer.sharded_gradients(settings, plan) * ops.where(settings.buckets.live > 0.0, 0.0, next_one)


def yet_to_come(
    owned: RankParameters, settings: Settings, plan: PlanNumbers, layers: Number, experts: Number, tied: Number,
    at_work: Number, matrix: Number,
) -> Number:  # fmt: skip
    """Bytes of gradients that have yet to come in a first layer's backward pass, of those that come as they are made: its own,
    but for its MLP's last matrix as the pass is at its fullest, and the embedding's.

    Where weights are sharded the embedding, if it is a unit, is gathered for nothing meanwhile; beside the second layer's pass it
    is still the first layer, whose gradients have to come, too.

    Parameters
    ----------
    at_work : of a layer's pass at its fullest, sharded or not [bytes]
    matrix : parameters of an MLP's last matrix, of all experts
    """
    widths, framework, (shard, _) = settings.widths, settings.framework, communication.shard_groups(plan)
    width = settings.trainable * widths.gradient
    table = ops.where(tied > 0.0, owned.head * framework.edges_apart, owned.edges - owned.head * framework.edges_apart)
    unit, apart = largest_unit(owned, plan, layers, experts), framework.edges_apart > 0.0
    embedding = ops.where(apart & (tied <= 0.0), widths.parameter * split_parameters(owned.edges - owned.head, 0.0, plan), 0.0)
    next_one = following_unit(owned, settings, plan, layers, experts)
    in_first = next_one - layer.sharded_gradients(settings, plan) * embedding + width * unit / shard
    sharded = width * split_parameters(table, 0.0, plan) / shard
    sharded = sharded + ops.where(layers > 2.0, ops.minimum(in_first, 2.0 * width * unit / shard), in_first)
    whole = ops.maximum(owned.layer, owned.expert_layer + owned.routed)
    own = ops.minimum(width * (whole - matrix), at_work * (1.0 - LEFT))
    replicated = (1.0 - settings.adapter.frozen) * (own + width * (1.0 - tied) * (owned.edges - owned.head))
    return ops.where(plan.shard_weights > 0.0, ops.where(settings.buckets.live > 0.0, 0.0, sharded), replicated)


def embedding_gradients(
    owned: RankParameters, settings: Settings, plan: PlanNumbers, layers: Number, experts: Number, tied: Number
) -> Number:
    """Bytes of an embedding's gradients as they come and as they are laid out to be sent, last of all, where weights are sharded.

    Its weights, which were gathered for nothing, are given up before they are sent. Of a table that a tensor group splits each
    rank makes gradients of all rows, beside its weights, and then a copy of its own. Where it is the head, too, there are both
    gradients and their sum beside the weights and the last layer's gradients on their way, and its own shard has yet to come.
    Where embedding and head are one unit, so are their gradients, beside its weights.

    References
    ----------
    pytorch/pytorch v2.13.0 torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py (``post_backward``);
    torch/distributed/tensor/_ops/_embedding_ops.py (``embedding_dense_backward_strategy``)
    """
    table = split_parameters(owned.edges - owned.head, 0.0, plan)
    sent = (settings.widths.parameter + settings.widths.reduce) * table
    whole = ops.where(plan.tensor > 1.0, settings.widths.parameter * (plan.tensor + 2.0) * table, 0.0)
    widths, head, (shard, _) = settings.widths, split_parameters(owned.head, 0.0, plan), communication.shard_groups(plan)
    summed = ops.where(widths.reduce < widths.gradient, widths.reduce * table / shard, 0.0)  # and then copied as it is kept
    met = (4.0 * widths.parameter - widths.gradient / shard) * head
    met = met + widths.reduce * largest_unit(owned, plan, layers, experts)
    gradients = settings.trainable * ops.where(tied > 0.0, met, ops.maximum(sent + summed, whole))
    edges = split_parameters(owned.edges, 0.0, plan)
    made = widths.parameter + widths.reduce
    made = ops.where(tied > 0.0, ops.maximum(made, 3.0 * widths.parameter), made)  # both gradients, and their sum
    weights = (1.0 - settings.framework.stream_pools) * widths.parameter  # which FSDP2 gives up before
    as_one = edges * (weights + settings.trainable * (made - widths.gradient / shard))
    as_one = ops.where((settings.buckets.live > 0.0) | (settings.adapter.frozen > 0.0), 0.0, as_one)
    return layer.sharded_gradients(settings, plan) * ops.where(settings.framework.edges_apart > 0.0, gradients, as_one)


def own_unit(owned: RankParameters, settings: Settings, plan: PlanNumbers, layers: Number, experts: Number) -> Number:
    """Bytes of a layer's gathered weights, which are there beside its passes alone; 0 where `gathered_weights` has them."""
    come = (settings.framework.edges_apart > 0.0) & (layer.deferred_sums(settings, plan) <= 0.0)
    unit = ops.where(come, settings.widths.stored * largest_unit(owned, plan, layers, experts), 0.0)
    return ops.where(settings.buckets.live > 0.0, 0.0, unit)


def context_temporaries(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Bytes that context parallelism holds beside a layer's backward pass.

    Gathered keys and values, and their gradients, as long as the sequence; or the gradients of exchanged queries, keys and values
    a second time. What a ring passes on is as small as a rank's own.

    References
    ----------
    NVIDIA/TransformerEngine@d0067d0 transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py
    """
    keys, kernels = communication.context_message(model, settings, plan), settings.kernels
    gathered = 2.0 * plan.context * keys
    exchanged = keys + 0.5 * communication.query_message(model, settings, plan)
    return ops.where(plan.context > 1.0, kernels.gathered_keys * gathered + kernels.exchanged_heads * exchanged, 0.0)


def unpacked_matrix(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Bytes that it takes to unpack a layer's largest matrix by one kernel of PyTorch after the other, beside its product."""
    share = model.experts.layers / model.layers
    inner = (1.0 - share) * model.mlp.width / plan.tensor + share * model.experts.width / plan.expert_tensor
    matrix = model.hidden * ops.maximum(inner, model.attention.heads * model.attention.head_dim / plan.tensor)
    return adapters.unpacks_eagerly(settings) * adapters.EAGER_HELD * matrix


def update_temporaries(owned: RankParameters, settings: Settings, plan: PlanNumbers, layers: Number, experts: Number) -> Number:
    """Bytes that the optimizer of a stage holds beside its state while it updates.

    What its shard needs, or what the largest parameter does where it goes through them one by one; where gradients are laid out
    flat to be sent, that copy of all of them.
    """
    dense, routed = whole_parameters(owned, layers, experts)
    shard, expert_shard = communication.shard_groups(plan)
    updated = settings.trainable * local_parameters(plan.shard_optimizer, dense, routed, shard, expert_shard)
    updated = ops.where(plan.shard_weights > 0.0, ops.minimum(updated, settings.buckets.updated), updated)
    sent = ops.where(shard > 1.0, dense, 0.0) + ops.where(expert_shard > 1.0, routed, 0.0)
    flat = (1.0 - settings.offload.optimizer) * settings.trainable * settings.widths.flat_gradient * sent
    of_experts = ops.where(experts > 0.0, 2.0 / 3.0 * settings.framework.grouped_experts * owned.routed, 0.0)
    largest = ops.maximum(
        local_parameters(plan.shard_optimizer, owned.head, 0.0, shard, expert_shard),
        local_parameters(plan.shard_optimizer, 0.0, of_experts, shard, expert_shard))
    largest = (1.0 - settings.adapter.frozen) * largest
    one, freed = settings.optimizer.held_bytes, settings.optimizer.in_backward
    held = ops.where(one > 0.0, one * largest, settings.widths.update * ops.where(freed > 0.0, largest, updated))
    return flat + (1.0 - settings.offload.optimizer) * held


def bucket_buffers(settings: Settings, plan: PlanNumbers) -> Number:
    """Bytes of the buckets in which a framework collects gradients to reduce them, where they stay allocated.

    One, or two that are filled in turns where their reduction overlaps with the backward pass, but at stage 3; allocated
    whole, whatever the model. None where gradients sum up whole, in a width of their own, or are laid out flat.

    References
    ----------
    deepspeedai/DeepSpeed@edaa722 deepspeed/runtime/zero/stage_1_and_2.py (``ipg_buffer``), stage3.py
    """
    rule, widths = settings.buckets, settings.widths
    there = ops.where((widths.flat_gradient > 0.0) | (rule.held <= 0.0), 0.0, plan.shard_optimizer)
    buckets = 1.0 + settings.overlap.gradients * (1.0 - plan.shard_weights)
    return there * buckets * rule.elements * widths.reduce


def staged_sums(settings: Settings, plan: PlanNumbers) -> Number:
    """1 where gradients are summed in buckets that stay allocated, to be sharded without the weights, DeepSpeed's ZeRO-1, -2."""
    widths = settings.widths
    there = (settings.buckets.held > 0.0) & (widths.flat_gradient <= 0.0) & (widths.backward_gradient <= 0.0)
    return ops.where(there, plan.shard_optimizer * (1.0 - plan.shard_weights), 0.0)


def summed_at_once(settings: Settings, plan: PlanNumbers, micro_batches: Number) -> Number:
    """1 where gradients go into buckets as they are made: each micro-batch's at stage 2, those of a step of one at stage 1.

    References
    ----------
    deepspeedai/DeepSpeed@edaa722 deepspeed/runtime/zero/stage_1_and_2.py (``process_gradients``)
    """
    alone = ops.where(micro_batches > 1.0, 0.0, settings.overlap.gradients)
    return staged_sums(settings, plan) * ops.maximum(plan.shard_gradients, alone)


def largest_tensor(model: ModelNumbers, owned: RankParameters, settings: Settings, plan: PlanNumbers) -> Number:
    """Elements of the largest tensor that trains on a rank: embedding or head, a matrix of an MLP, or one of all experts."""
    matrix = model.hidden * model.mlp.width / plan.tensor
    experts = 2.0 / 3.0 * settings.framework.grouped_experts * owned.routed
    edge = ops.maximum(owned.head, owned.edges - owned.head)
    return (1.0 - settings.adapter.frozen) * ops.maximum(edge, ops.maximum(matrix, experts))


def one_edge(model: ModelNumbers, place: Place) -> Number:
    """1 where a stage's embedding and head are one matrix."""
    return model.vocabulary.tied * place.first * place.last


class StagedBytes(NamedTuple):
    """What DeepSpeed's ZeRO-1 and -2 hold beside their states [bytes]."""

    always: Number
    backward: Number  # beside a layer's backward pass
    head: Number  # beside the head's own, of which a layer's has nothing yet
    ending: Number  # as the backward pass ends
    update: Number  # what isn't there any more by then taken off


def staged_bytes(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, place: Place, owned: RankParameters, micro_batches: Number
) -> StagedBytes:
    """What ranks hold that sum gradients in buckets to shard them, `StagedBytes` [bytes]; 0 for all others.

    Buckets come with the first gradient and go with the last, but at stage 1 stay from a micro-batch to the next. Each is laid
    out flat once more to be summed. A gradient larger than a bucket is summed as it is, and at stage 1 stays to the end. A rank's
    share of the gradients is there from the first of them on; of further micro-batches at stage 2 twice, until both are added.
    The update squares each tensor in 64 bit for the norm, and then copies all of them flat, and that in 32 bit. Where the host
    updates, it squares them as they come, beside the buckets, and holds a tensor as large as the largest.

    References
    ----------
    deepspeedai/DeepSpeed@edaa722 deepspeed/runtime/zero/stage_1_and_2.py (``setup_buckets``, ``_release_ipg_buffers``,
    ``reduce_independent_p_g_buckets_and_remove_grads``, ``allreduce_bucket``, ``copy_grads_in_partition``,
    ``get_grad_norm_direct``, ``temp_grad_buffer_for_gpu_offload``, ``step``)
    """
    widths, away = settings.widths, settings.offload.optimizer
    dense, routed = whole_parameters(owned, place.layers, place.experts)
    every = settings.trainable * (dense + routed)
    share = settings.trainable * updated_parameters(dense, routed, plan)
    trains = (1.0 - settings.adapter.frozen) * widths.gradient
    head, table = trains * owned.head, trains * (owned.edges - owned.head)
    tied = one_edge(model, place)
    flat = widths.reduce * ops.minimum(every, settings.buckets.elements)
    apart = ops.where(owned.head > settings.buckets.elements, 1.0 - settings.adapter.frozen, 0.0)
    once, again = plan.shard_gradients, ops.where(micro_batches > 1.0, 1.0, 0.0)
    share_of_all = (1.0 - away) * widths.gradient * share
    in_buckets = every - apart * owned.edges  # if all of these are in the first, its sum is the last
    own = ops.where(in_buckets > settings.buckets.elements, share_of_all, 0.0)
    later = (1.0 - again) * summed_at_once(settings, plan, micro_batches) * (share_of_all - own)
    kept = ops.maximum(settings.framework.early_buckets, (1.0 - once) * again)
    buckets = bucket_buffers(settings, plan)
    largest = ops.minimum(largest_tensor(model, owned, settings, plan), share)
    squared = SQUARED * largest
    backward = own + ops.maximum(tied, (1.0 - once) * apart) * head
    of_both = ops.maximum(apart * (2.0 * table + (1.0 - once) * head), ops.maximum(table, flat))
    as_one = ops.maximum(3.0 * head, head + later + ops.maximum(flat, apart * head))
    ending = again * once * own - later + ops.where(tied > 0.0, as_one, of_both)
    copied = (1.0 - away) * ops.maximum(squared, (widths.gradient + widths.update) * share)
    gone = kept * buckets + (1.0 - summed_at_once(settings, plan, micro_batches)) * widths.gradient * (every - share)
    staged = staged_sums(settings, plan)
    return StagedBytes(
        staged * (kept * buckets + away * widths.gradient * largest_tensor(model, owned, settings, plan)),
        staged * ((1.0 - kept) * buckets + backward), staged * ((1.0 - kept) * buckets + 2.0 * apart * head),
        staged * ((1.0 - kept) * buckets + ops.maximum(ending, away * (apart * head + squared))),
        staged * (copied - gone),
    )


def embedding_mask(model: ModelNumbers, settings: Settings, plan: PlanNumbers, first: Number) -> Number:
    """Bytes of the dropout mask behind the embedding, of one micro-batch.

    Parameters
    ----------
    first : 1 where the stage holds the embedding
    """
    return first * model.dropout * lengths.norm_tokens(settings, plan) * model.hidden


def absent_gradients(settings: Settings, plan: PlanNumbers, gradients: Number, micro_batches: Number) -> Number:
    """Bytes of gradients that come up only as the one backward pass of a step makes them.

    DeepSpeed's shard of them lies in one tensor at stage 3, which stays, and so do the buckets of DistributedDataParallel.

    Parameters
    ----------
    gradients : of the stage [bytes]

    References
    ----------
    deepspeedai/DeepSpeed@edaa722 deepspeed/runtime/zero/stage3.py (``grad_partitions_flat_buffer``); pytorch/pytorch
    torch/csrc/distributed/c10d/reducer.cpp (``initialize_buckets``)
    """
    stays = settings.buckets.held * plan.shard_weights > 0.0
    comes = (settings.framework.lazy_gradients + staged_sums(settings, plan) > 0.0) & (micro_batches <= 1.0)
    once = settings.widths.gradient / (settings.widths.gradient + settings.widths.backward_gradient)
    return ops.where(stays, 0.0, ops.where(comes, once * gradients, 0.0))


def collective_buffers(ranks: Number, stride: Number, network: NetworkNumbers) -> Number:
    r"""Bytes that a group's collectives hold in the communication library: a connection's on every channel, for each neighbour.

    .. math:: K (1 + 2\,[\text{several nodes}])\,C

    One neighbour in a ring; between nodes two more in a tree, on average.

    Parameters
    ----------
    network : `NetworkNumbers`: its channels :math:`K`

    References
    ----------
    NVIDIA/nccl@5067397 src/init.cc, src/include/device.h

    Examples
    --------
    >>> from costmodel import load_cluster
    >>> collective_buffers(8.0, 1.0, load_cluster("dgx-a100", gpus=8).numbers()) / 2**20
    220.5
    """
    node = collectives.members_inside(ranks, stride, network.node.size)
    neighbours = 1.0 + ops.where(ranks > node, TREE_NEIGHBOURS, 0.0)
    return ops.where(ranks > 1.0, network.node.channels * neighbours * CONNECTION_BYTES, 0.0)


def message_buffers(ranks: Number, stride: Number, network: NetworkNumbers) -> Number:
    """Bytes of the pool that the messages between a group's members share in the communication library.

    References
    ----------
    NVIDIA/nccl@5067397 src/init.cc; NVIDIA/nccl#2363 (536,870,912 bytes on 64 channels inside a node)
    """
    chunk = ops.where(ranks * stride > network.node.size, FAR_CHUNK_BYTES, NEAR_CHUNK_BYTES)
    return ops.where(ranks > 1.0, network.node.channels * POOL_CHUNKS * chunk, 0.0)


def library_bytes(plan: PlanNumbers, network: NetworkNumbers) -> Number:
    """Bytes that the communication library holds on a rank: collectives of the tensor and the data group, messages of others."""
    reducing = collective_buffers(plan.tensor, plan.tensor_stride, network)
    reducing = reducing + collective_buffers(plan.data * plan.context, plan.data_stride, network)
    around = message_buffers(plan.context, plan.context_stride, network)
    along = message_buffers(plan.pipeline, plan.pipeline_stride, network)
    return reducing + around + along + message_buffers(plan.expert, plan.expert_tensor, network)


def fragmentation(passing: Number, settings: Settings, software: Software) -> Number:
    """Bytes that the allocator reserves over what tensors hold.

    A block that is freed is kept for tensors of its size: what comes and goes in a step leaves gaps. Weights, gradients and
    optimizer state are allocated once. Expandable segments are one range of addresses, in which freed neighbours merge whatever
    their sizes, and whose pages of 20 MiB are mapped as they are needed: gaps are left out.

    Parameters
    ----------
    passing : what comes and goes: activations, temporaries, logits, buffers [bytes]

    References
    ----------
    pytorch/pytorch c10/cuda/CUDACachingAllocator.cpp (``ExpandableSegment``; pytorch/pytorch#96995)
    """
    return (1.0 - settings.expandable_segments) * software.memory.fragmentation * passing


def outside_allocator(plan: PlanNumbers, network: NetworkNumbers, software: Software) -> Number:
    """Bytes of a process outside PyTorch's allocator: its context and the communication library."""
    return software.memory.fixed + software.memory.library_overhead * library_bytes(plan, network)


def memory_of(
    weights: Number, gradients: Number, optimizer: Number, activations: Number, temporaries: Number,
    logits: Number, buffers: Number, pooled: Number, settings: Settings, plan: PlanNumbers, network: NetworkNumbers,
    software: Software,
) -> Memory:  # fmt: skip
    """A bill of what tensors hold, and of what lies around them, `Memory`.

    Parameters
    ----------
    weights, gradients, optimizer, activations, temporaries, logits, buffers : its parts [bytes]
    pooled : kept for tensors of other streams that aren't there now [bytes]

    What own runs say is dealt to all tensors alike, as nothing says whose it is.
    """
    own = software.memory.own
    weights, gradients, optimizer = own * weights, own * gradients, own * optimizer
    activations, temporaries, logits, buffers = own * activations, own * temporaries, own * logits, own * buffers
    passing = activations + temporaries + logits + buffers
    overhead = outside_allocator(plan, network, software) + fragmentation(passing, settings, software) + pooled
    total = weights + gradients + optimizer + passing + overhead
    return Memory(total, weights, gradients, optimizer, activations, temporaries, logits, buffers, overhead)


def layer_kinds(model: ModelNumbers, settings: Settings, plan: PlanNumbers, software: Software) -> Kinds:
    """What a layer with a dense MLP holds on one rank, and one with a mixture of experts, `Kinds`."""
    settings = lengths.of_layers(model, settings)
    return Kinds(
        layer_bytes(of_kind(model, 0.0), settings, plan, software), layer_bytes(of_kind(model, 1.0), settings, plan, software)
    )


def layer_bytes(model: ModelNumbers, settings: Settings, plan: PlanNumbers, software: Software) -> LayerBytes:
    """What an average layer holds on one rank for one micro-batch, `LayerBytes`."""
    kept = activations.kept_activations(model, settings, plan, software)
    graphed = activations.captured_share(model, settings, plan)
    backward = activations.backward_temporaries(model, settings, plan, software) + context_temporaries(model, settings, plan)
    backward = backward + unpacked_matrix(model, settings, plan)
    retained = activations.retained_inputs(model, settings, plan)
    return LayerBytes(kept, graphed * kept, retained, (1.0 - graphed) * backward, graphed * backward)


def output_logits(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Bytes of logits that a training loop holds on to, behind its loss, through its backward pass and its update."""
    columns = lengths.local_tokens(settings, plan) * traffic.loss_columns(model, settings, plan)
    return settings.widths.output_logit * columns


def waits_whole(settings: Settings, plan: PlanNumbers, micro_batches: Number) -> Number:
    """1 where gradients that are sharded are whole until the last of several micro-batches."""
    shard, _ = communication.shard_groups(plan)
    several = ops.where((micro_batches > 1.0) & (shard > 1.0), plan.shard_gradients, 0.0)
    return settings.framework.whole_accumulation * several


def whole_gradients(owned: RankParameters, settings: Settings, plan: PlanNumbers, place: Place) -> Number:
    """Bytes of a stage's gradients as wide as its weights are gathered, none sharded."""
    dense, routed = graded_parameters(owned, settings, plan, place.layers, place.experts)
    return adapters.gradient_share(settings, plan) * settings.widths.parameter * (dense + routed)


def last_matrix(model: ModelNumbers, owned: RankParameters, plan: PlanNumbers, place: Place) -> Number:
    """Parameters of an MLP's last matrix on one rank, of all experts where there are any."""
    dense = model.mlp.share * model.hidden * model.mlp.width / plan.tensor
    return _largest(place, dense, owned.routed / (2.0 + model.mlp.gated))


def _head_apart(settings: Settings, tied: Number) -> bool:
    """Whether the head is a unit of its own: edges are, and it isn't the embedding's matrix."""
    return (settings.framework.edges_apart > 0.0) & (tied <= 0.0)


def _together(place: Place, dense: Number, expert: Number) -> Number:
    """What all layers of a rank hold, of what one of either kind does."""
    return (place.layers - place.experts) * dense + place.experts * expert


def _largest(place: Place, dense: Number, expert: Number) -> Number:
    """The more of what a layer of either kind holds, of those that a rank has."""
    return ops.maximum(ops.where(place.layers > place.experts, dense, 0.0), ops.where(place.experts > 0.0, expert, 0.0))


def stage_contents(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, kinds: Kinds, place: Place, micro_batches: Number,
) -> Contents:  # fmt: skip
    """What a stage holds all the time, for each micro-batch, and at its moments, `Contents` [bytes].

    Assumes one graph of a layer for every micro-batch in flight, on one pool that nothing else takes from. A compiled
    program of actors has every tensor that comes and goes twice, to fill the one while the other is read. By the update
    gradients that waited whole for a step's last micro-batch are sums that are sharded.

    References
    ----------
    NVIDIA/Megatron-LM megatron/core/transformer/cuda_graphs.py (``_CudaGraphRunner``)
    """
    layers, experts = place.layers, place.experts
    dense, expert = kinds.dense, kinds.expert
    owned = rank_parameters(model, plan, place.first, place.last)
    at_once = summed_at_once(settings, plan, micro_batches)
    weights, gradients, optimizer, gathered = state_bytes_of(owned, settings, plan, layers, experts, at_once)
    waits, summed = waits_whole(settings, plan, micro_batches) > 0.0, gradients
    gradients = ops.where(waits, whole_gradients(owned, settings, plan, place), gradients)
    freed, largest = settings.optimizer.in_backward, largest_tensor(model, owned, settings, plan)
    gradients = ops.where(freed > 0.0, ops.minimum(settings.widths.gradient * largest, gradients), gradients)
    late = ops.where(freed > 0.0, gradients, absent_gradients(settings, plan, gradients, micro_batches))
    staged, here = staged_bytes(model, settings, plan, place, owned, micro_batches), 1.0 - staged_sums(settings, plan)
    on_device, graphs = 1.0 - settings.offload.activations, settings.kernels.cuda_graphs
    mask = embedding_mask(model, settings, plan, place.first)
    tied = one_edge(model, place)
    at_work = _largest(place, dense.backward + dense.graphed_backward, expert.backward + expert.graphed_backward)
    matrices = last_matrix(model, owned, plan, place)
    asked = owned, settings, plan, layers, experts, tied, at_work, matrices
    in_last, in_first = gathered_backward(*asked, 0.0), gathered_backward(*asked, 1.0)
    unit = ops.where(layers > 2.0, ops.maximum(in_last, in_first), in_last) - at_work
    further = (1.0 - graphs) * (in_first - at_work - unit)
    saved = _together(place, on_device * (dense.kept - dense.graphed), on_device * (expert.kept - expert.graphed))
    graphed = _together(place, on_device * dense.graphed, on_device * expert.graphed) + graphs * mask
    backward = _largest(place, dense.backward, expert.backward) + (1.0 - graphs) * unit
    at_loss = logits(model, settings, plan, micro_batches)
    first = place.first * place.last * first_gathers(owned, settings, plan, layers, experts)
    comes = next_gathers(owned, settings, plan, layers, experts, tied)
    comes = comes + settings.framework.stream_pools * saved * ops.maximum(layers - 1.0, 0.0) / ops.maximum(layers, 1.0)
    first = ops.maximum(first, place.first * place.last * comes)
    beside = kept_beside_loss(model, settings, plan, owned, layers, experts)
    early, ending = edge_gradients(model, settings, plan, place, owned, micro_batches)
    backward = backward + outliving_gradients(model, settings, plan, layers)
    outputs = place.last * output_logits(model, settings, plan)
    backward, to_come = backward + outputs, yet_to_come(*asked)
    behind = ops.maximum(ops.maximum(backward + further - ops.where(late > 0.0, to_come, 0.0), ending), 0.0)
    early = (1.0 - freed * (1.0 - tied)) * early  # the head's gradient has gone, unless it waits for the embedding's
    ended, backward = here * behind + (1.0 - here) * outputs + staged.ending, backward + early + staged.backward
    backward = ops.maximum(backward, staged.head + outputs)
    captured = _largest(place, dense.graphed_backward, expert.graphed_backward) + graphs * unit
    turns = 1.0 + ops.where(micro_batches > 1.0, settings.framework.double_registers, 0.0)
    held = schedules.in_flight(plan.schedule, plan.pipeline, plan.virtual_stages, micro_batches, place.rank)
    outliving = _together(place, dense.retained, expert.retained)
    return Contents(
        weights=schedules.weight_versions(plan.schedule, held) * weights,
        gradients=gradients,
        late_gradients=late,
        pooled_gradients=settings.framework.stream_pools * late,
        pooled_unit=settings.framework.stream_pools * own_unit(owned, settings, plan, layers, experts),
        loss_block=place.last * wide_logits(model, settings, plan),
        optimizer=optimizer,
        gathered=gathered,
        buckets=here * bucket_buffers(settings, plan) + staged.always,
        captured=held * graphed + (captured + outliving),
        saved=turns * (saved + (1.0 - graphs) * mask),
        in_flight=held,
        logits=ops.maximum(turns * place.last * (at_loss + beside), first - turns * saved),
        waiting_logits=turns * place.last * waiting_logits(model, settings, plan, micro_batches),
        backward=turns * backward,
        ending=ops.maximum(turns * ended + gathered, embedding_gradients(owned, settings, plan, layers, experts, tied)),
        update=here * update_temporaries(owned, settings, plan, layers, experts) + staged.update + outputs
        - ops.where(waits, gradients - summed, 0.0),
    )


def edge_gradients(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, place: Place, owned: RankParameters, micro_batches: Number
) -> tuple[Number, Number]:
    """Bytes of the head's whole gradient beside the last layer's backward pass, and of embedding's and head's where it ends.

    The first where gradients come up only as they are made, or where that of a matrix that is both waits for the embedding's:
    from autograd's sum of the two on there are the head's, the embedding's and, of weights that are multiplied as they are,
    whose gradient is a view unless a linear loss makes it, a third, their sum; one of them is the gradient itself, if none was
    there before.

    References
    ----------
    pytorch/pytorch torch/csrc/autograd/input_buffer.cpp (``accumulate``, ``can_accumulate_inplace``)
    """
    trains = (1.0 - settings.adapter.frozen) * (1.0 - plan.shard_weights) * settings.framework.lazy_gradients
    trains = trains * (1.0 - staged_sums(settings, plan))  # `staged_bytes` has them
    both = one_edge(model, place)
    whole = trains * place.last * settings.widths.parameter * owned.head
    once = ops.where(micro_batches > 1.0, 0.0, 1.0)
    summed = (1.0 - adapters.autocasts(settings)) * (1.0 - by_linear_loss(settings))
    return ops.maximum(once, both) * whole, both * (2.0 + summed - once) * whole


def outliving_gradients(model: ModelNumbers, settings: Settings, plan: PlanNumbers, layers: Number) -> Number:
    """Bytes of the gradients of recomputed layers' inputs that stay until the backward pass ends, on one rank.

    Where no weight of a sharded unit trains FSDP1 hooks onto the gradient of the unit's input, and under reentrant checkpoints
    that hook keeps it: every recomputed layer's input and its gradient, but those of the two layers at work. FSDP2 hooks onto
    outputs by a function of autograd's own, and DeepSpeed, whose layers are no units, onto weights that train.

    References
    ----------
    pytorch/pytorch torch/distributed/fsdp/_runtime_utils.py (``_register_post_backward_reshard_only_hook``),
    _fully_shard/_fsdp_param_group.py (``RegisterPostBackwardFunction``)
    """
    shard, _ = communication.shard_groups(plan)
    by_first = settings.buckets.units_third * (1.0 - settings.buckets.padded)
    hooked = by_first * settings.framework.reentrant * settings.adapter.frozen * ops.where(shard > 1.0, plan.shard_gradients, 0.0)
    gradient = settings.widths.activation * lengths.norm_tokens(settings, plan) * model.hidden
    return hooked * plan.recompute_layers * ops.maximum(layers - 2.0, 0.0) * gradient


def logits_in_flight(contents: Contents, plan: PlanNumbers, micro_batches: Number) -> tuple[Number, Number]:
    """Bytes of the logits that wait beside a backward pass, and of those whose loss is at work beside none."""
    paired = schedules.pairs_directions(plan.schedule)
    others = (schedules.losses_in_flight(plan.schedule, micro_batches) - 1.0) * contents.waiting_logits
    others = others + paired * contents.logits
    alone = (1.0 - paired) * contents.logits
    return others, alone


def passing_bytes(contents: Contents, plan: PlanNumbers, micro_batches: Number) -> Number:
    """Bytes over its states that a stage takes at the fullest moment of its passes, what streams keep for others included."""
    others, alone = logits_in_flight(contents, plan, micro_batches)
    saved, working = contents.in_flight * contents.saved, ops.maximum(alone + contents.pooled_unit, contents.backward)
    return saved + others + working + contents.gathered - (contents.late_gradients - contents.pooled_gradients)


def broken_block(contents: Contents) -> Number:
    """Bytes of one more block of logits that an unfused loss takes from the device.

    Such a loss wants three of the largest blocks of a step at once, and frees them. Of these the next forward pass cuts what it
    saves, so that one isn't whole when the loss comes; what layers have freed is too small for any, and a block of which a part
    is in use goes back to no driver. At most what is saved breaks it.

    References
    ----------
    pytorch/pytorch c10/cuda/CUDACachingAllocator.cpp (``get_free_block``, ``release_cached_blocks``); the lengths that just fit
    on six GPUs by https://docs.unsloth.ai/basics/unsloth-benchmarks, "Hugging Face + FA2", leave room for one block
    """
    return ops.minimum(contents.loss_block, contents.in_flight * contents.saved)


def broken_bytes(contents: Contents, plan: PlanNumbers, micro_batches: Number) -> Number:
    """Bytes by which a loss with its `broken_block` takes more than the fullest moment of a step."""
    _, alone = logits_in_flight(contents, plan, micro_batches)
    passing = passing_bytes(contents, plan, micro_batches)
    lower = ops.maximum(contents.backward - (alone + contents.pooled_unit), 0.0)
    higher = ops.maximum(ops.maximum(contents.ending, contents.update) - passing, 0.0)
    return ops.maximum(broken_block(contents) - lower - higher, 0.0)


def idle_bytes(
    contents: Contents, settings: Settings, plan: PlanNumbers, software: Software, micro_batches: Number,
) -> Number:  # fmt: skip
    """Bytes that the allocator keeps idle at a stage's fullest moment; it gives them back before memory runs out.

    Blocks that are freed wait for tensors of their size, so that more is reserved than any moment needs: a share of what comes
    and goes, or a `broken_block` where that is more, less what the fullest moment has of it; or much more where micro-batches
    have another shape each, unless segments are expandable. Where an update works in flat buffers, no block that the passes have
    freed is large enough for a whole shard, nor does a pass need one:
    what the lesser of the two moments took stays reserved beside the other.

    References
    ----------
    pytorch/pytorch c10/cuda/CUDACachingAllocator.cpp (``release_cached_blocks``); foundation-model-stack/fms-acceleration@876e2ed
    (peaks that ``nvidia-smi`` showed beside those of tensors)
    """
    passing = ops.maximum(passing_bytes(contents, plan, micro_batches), 0.0)
    lesser = settings.framework.flat_updates * ops.minimum(ops.maximum(contents.update, 0.0), passing)
    unlike = lengths.shapes_vary(settings) * (1.0 - settings.expandable_segments)
    alike = ops.maximum(software.memory.idle * ops.maximum(contents.update, passing), broken_block(contents))
    kept = ops.maximum(alike, software.memory.unlike_idle * unlike * passing)
    return lesser + kept - broken_bytes(contents, plan, micro_batches)


def fullest_moment(
    contents: Contents, plan: PlanNumbers, micro_batches: Number,
) -> tuple[Number, Number, Number, Number, Number]:  # fmt: skip
    """Bytes of the logits that wait, and whether a stage is fullest in a pass with its activations, at the loss, at the update;
    and bytes that are kept for tensors of other streams by then.

    Four moments can be the fullest: the loss, with every layer's activations saved and the logits alive; the
    backward pass of the last layer, with all but its own logits saved; the end of the first layer's or the embedding's, when
    gradients that come up late are whole; the update, with nothing saved.
    """
    others, alone = logits_in_flight(contents, plan, micro_batches)
    passing = passing_bytes(contents, plan, micro_batches)
    there = (contents.late_gradients > 0.0) | (contents.ending > contents.backward + contents.gathered)
    ending = ops.where(there, contents.ending, 0.0)
    updating = ops.where(contents.update > ops.maximum(passing, ending), 1.0, 0.0)
    at_loss = ops.where(alone + contents.pooled_unit > contents.backward, 1.0, 0.0)
    pooled = contents.pooled_gradients + at_loss * contents.pooled_unit
    early = ops.where((passing - pooled >= ending) & (contents.update <= passing), 1.0, 0.0)
    outgrown = (1.0 - updating) * ops.maximum(passing - ending, 0.0)  # a pass before took more from the device
    at_loss = early * at_loss
    return others + at_loss * alone, early, at_loss, updating, ops.where(early > 0.0, pooled, outgrown)


def stage_memory(
    contents: Contents, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
    micro_batches: Number,
) -> Memory:  # fmt: skip
    """The bill of one stage at its `fullest_moment`, `Memory` [bytes]."""
    waiting, early, at_loss, updating, pooled = fullest_moment(contents, plan, micro_batches)
    broken = broken_bytes(contents, plan, micro_batches)
    ended = contents.ending - contents.gathered
    return memory_of(
        contents.weights, contents.gradients - early * contents.late_gradients, contents.optimizer,
        contents.captured + early * (contents.in_flight * contents.saved),
        ops.where(updating > 0.0, contents.update, ops.where(early > 0.0, (1.0 - at_loss) * contents.backward, ended)),
        early * waiting,
        software.memory.workspace + contents.buckets + (1.0 - updating) * contents.gathered,
        pooled + broken, settings, plan, network, software,
    )  # fmt: skip


def larger_memory(one: Memory, other: Memory) -> Memory:
    """The larger of two bills, `Memory`.

    Parameters
    ----------
    one : bill of a stage, `Memory`
    other : bill of another
    """
    more = other.total > one.total
    return Memory(
        ops.where(more, other.total, one.total),
        ops.where(more, other.weights, one.weights),
        ops.where(more, other.gradients, one.gradients),
        ops.where(more, other.optimizer, one.optimizer),
        ops.where(more, other.activations, one.activations),
        ops.where(more, other.temporaries, one.temporaries),
        ops.where(more, other.logits, one.logits),
        ops.where(more, other.buffers, one.buffers),
        ops.where(more, other.overhead, one.overhead),
    )


def with_buffers(one: Memory, nbytes: Number, settings: Settings, software: Software) -> Memory:
    """A bill with so many bytes more in its buffers all the time, `Memory`.

    Parameters
    ----------
    nbytes : that are held besides
    """
    reserved = fragmentation(nbytes, settings, software)
    return Memory(
        one.total + nbytes + reserved, one.weights, one.gradients, one.optimizer, one.activations, one.temporaries,
        one.logits, one.buffers + nbytes, one.overhead + reserved,
    )  # fmt: skip


def stage_bills(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
    micro_batches: Number,
) -> tuple[Memory, Memory, Memory]:  # fmt: skip
    """The bill of the first rank, of the fullest between and of the last, gradients uncompressed, three `Memory` [bytes]."""
    question = model, settings, plan, network, software, layer_kinds(model, settings, plan, software)
    first, last, one, two, three, four = layout.places(model, settings, plan)
    inner = larger_memory(place_bill(*question, one, micro_batches), place_bill(*question, two, micro_batches))
    inner = larger_memory(inner, place_bill(*question, three, micro_batches))
    inner = larger_memory(inner, place_bill(*question, four, micro_batches))
    return place_bill(*question, first, micro_batches), inner, place_bill(*question, last, micro_batches)


def place_bill(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software, kinds: Kinds,
    place: Place, micro_batches: Number,
) -> Memory:  # fmt: skip
    """The bill of one rank, gradients uncompressed, `Memory` [bytes]."""
    held = stage_contents(model, settings, plan, kinds, place, micro_batches)
    return stage_memory(held, settings, plan, network, software, micro_batches)


def idle_stages(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
    micro_batches: Number,
) -> tuple[Number, Number, Number]:  # fmt: skip
    """`idle_bytes` of the first rank, of the fullest between and of the last."""
    question = model, settings, plan, network, software, layer_kinds(model, settings, plan, software)
    first, last, *between = layout.places(model, settings, plan)
    most, inner = _held_and_idle(*question, between[0], micro_batches)
    for place in between[1:]:
        total, idle = _held_and_idle(*question, place, micro_batches)
        inner, most = ops.where(total > most, idle, inner), ops.maximum(most, total)
    return _held_and_idle(*question, first, micro_batches)[1], inner, _held_and_idle(*question, last, micro_batches)[1]


def _held_and_idle(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software, kinds: Kinds,
    place: Place, micro_batches: Number,
) -> tuple[Number, Number]:  # fmt: skip
    """The total of a rank's bill, and its `idle_bytes`."""
    held = stage_contents(model, settings, plan, kinds, place, micro_batches)
    total = stage_memory(held, settings, plan, network, software, micro_batches).total
    return total, idle_bytes(held, settings, plan, software, micro_batches)


def fullest_stage(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
    micro_batches: Number,
) -> Memory:  # fmt: skip
    """The bill of the fullest stage, uncompressed gradients taken for granted, `Memory` [bytes]."""
    first, second, last = stage_bills(model, settings, plan, network, software, micro_batches)
    return larger_memory(larger_memory(first, second), last)


def least(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
) -> Memory:  # fmt: skip
    """What a plan holds at the least, whatever its micro-batch and its recomputation, `Memory`: a lower bound of its bill.

    Proof: the bill of the fullest stage is the largest of all stages', so that any stage's bounds it from below. A bill is
    what lies around the tensors, and :math:`1 + f` times the sum of parts of which none is negative, all of them times what own
    runs say. Of these parts are
    left out activations, temporaries, logits and gathered weights; weights count in one version, of which a stage holds at
    least one; gradients that come up late count for nothing. None of what is left reads the micro-batch, sequence
    parallelism or what is recomputed, so that one number bounds all plans that differ in these alone.
    """
    first, last, begin, behind, _, second = layout.places(model, settings, plan)
    late = 1.0 - settings.framework.lazy_gradients
    most = ops.maximum(_kept_states(model, settings, plan, first, late), _kept_states(model, settings, plan, last, late))
    most = ops.maximum(most, _kept_states(model, settings, plan, second, late))
    most = ops.maximum(most, _kept_states(model, settings, plan, begin, late))
    most = ops.maximum(most, _kept_states(model, settings, plan, behind, late))
    return memory_of(most, 0.0, 0.0, 0.0, 0.0, 0.0, software.memory.workspace, 0.0, settings, plan, network, software)


def _kept_states(model: ModelNumbers, settings: Settings, plan: PlanNumbers, place: Place, late: Number) -> Number:
    """Bytes of a rank's states, of gradients so large a share as is there all the time."""
    weights, gradients, optimizer, _ = states(model, settings, plan, place, summed_at_once(settings, plan, 1.0))
    return weights + late * gradients + optimizer

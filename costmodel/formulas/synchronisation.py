r"""Gradients and weights of a stage as frameworks exchange them: in buckets or units, and what the passes hide of it.

A bucket is summed as soon as the backward pass is through its layers; the last one is full only when the pass ends, so
that of :math:`n` equal buckets, :math:`X` seconds in all, beside a pass of :math:`T` seconds of which a share
:math:`o` hides exchange,

.. math:: X - \left(1 - \frac{1}{n}\right) \min(X, o T)

stays exposed; of routed experts' buckets beside the others, each in number of its own, the longer last one takes the place of
:math:`X / n`. A unit of sharded weights is gathered while the unit before it works, the first one before all.
"""

from __future__ import annotations

from typing import NamedTuple

from costmodel.arithmetic import ops
from costmodel.formulas.network import collectives, communication
from costmodel.formulas.pipeline import layout, schedules
from costmodel.formulas.quantities import (
    ExchangeTime,
    Layer,
    ModelNumbers,
    NetworkNumbers,
    Number,
    PlanNumbers,
    Settings,
    Software,
    Synchronised,
)
from costmodel.formulas.transformer import adapters, layer, memory, parameters, recurrent

TENSORS_OF_LAYER = 6.0
"""Two norms and four matrices, where queries, keys and values are one, and gate and up."""


class LayerExchanges(NamedTuple):
    """A layer's weights gathered for a forward and for a backward pass, and its gradients summed."""

    forward: ExchangeTime
    backward: ExchangeTime
    summed: ExchangeTime


def concurrent(part: ExchangeTime, beside: ExchangeTime) -> ExchangeTime:
    """Two exchanges side by side, each on a stream of its own, `ExchangeTime`: the slower, or both where they fill the links."""
    load = part.load + beside.load
    return ExchangeTime(ops.maximum(ops.maximum(part.time, beside.time), load), load)


def last_of(part: ExchangeTime, calls: Number, beside: ExchangeTime, others: Number) -> Number:
    """Time of the last of so many calls each of two exchanges side by side, which no pass is left to hide [s].

    Parameters
    ----------
    part, beside : `ExchangeTime`, all calls of each
    calls, others : of equal size in each

    Examples
    --------
    >>> last_of(ExchangeTime(8.0, 4.0), 4.0, ExchangeTime(9.0, 3.0), 3.0)
    3.0
    """
    one, other = ExchangeTime(part.time / calls, part.load / calls), ExchangeTime(beside.time / others, beside.load / others)
    return concurrent(one, other).time


class ReplicaGroups(NamedTuple):
    """Ranks that hold the same weights: those that sum a gradient by scattering it, its copies, those that gather weights."""

    ranks: Number
    shard: Number  # ranks over which a sum is scattered
    scattering: collectives.GroupLinks
    copies: Number
    copying: collectives.GroupLinks
    gatherers: Number
    gathering: collectives.GroupLinks
    slowness: Number  # of gathers and scatters: over the time of the collective
    scattered: Number  # copies of the ranks' parts, for a sum that is scattered [s]
    gathered: Number  # and for a gather


def groups(
    ranks: Number, stride: Number, plan: PlanNumbers, settings: Settings, network: NetworkNumbers, software: Software,
) -> ReplicaGroups:  # fmt: skip
    """The groups among ranks that hold the same weights, `ReplicaGroups`.

    Parameters
    ----------
    ranks, stride : that hold the same weights, and the distance of neighbours among them
    """
    whole = settings.buckets.all_reduced * plan.shard_optimizer * (1.0 - plan.shard_weights)
    gatherers = communication.shard_group_size(ranks, plan)
    shard = ops.where((settings.compression.kind > 0.5) | (whole > 0.5), 1.0, gatherers)
    copies = ranks / shard
    return ReplicaGroups(
        ranks, shard, collectives.group_links(shard, stride, network, software), copies,
        collectives.group_links(copies, stride * shard, network, software), gatherers,
        collectives.group_links(gatherers, stride, network, software), 1.0 / software.network.sharding_quality,
        communication.piece_copies(shard, software), communication.piece_copies(gatherers, software),
    )  # fmt: skip


def reduction(nbytes: Number, calls: Number, group: ReplicaGroups) -> ExchangeTime:
    """Sum of gradients, in so many calls of equal size, `ExchangeTime`.

    A reduce-scatter over the ranks that shard the states, then an all-reduce of the shard over the copies: over one rank
    plain data parallelism, over all of them ZeRO, between the two HSDP.

    Parameters
    ----------
    nbytes : of all of them on this rank
    calls : how many

    References
    ----------
    [rajbhandari2020]_ section 7, [zhao2023]_ section 3.2
    """
    many = ops.maximum(calls, 1e-9)  # of nothing there are none
    kept = nbytes / group.shard
    one = nbytes / many
    scatter = group.slowness * collectives.all_gather_over(one, group.scattering) + group.scattered
    reduce = collectives.all_reduce_over(one / group.shard, group.copying)
    load = group.scattering.piece * nbytes + 2.0 * group.copying.piece * kept
    return ExchangeTime(many * (scatter + reduce), load)


def gathering(nbytes: Number, calls: Number, group: ReplicaGroups, pieces: Number = 1.0) -> ExchangeTime:
    """Gather of sharded weights, in so many calls of equal size, `ExchangeTime`.

    Parameters
    ----------
    nbytes : on this rank, gathered
    calls : how many
    pieces : of each rank, which are copied one by one
    """
    many = ops.maximum(calls, 1e-9)
    each = group.slowness * collectives.all_gather_over(nbytes / many, group.gathering) + pieces * group.gathered
    return ExchangeTime(many * each, group.gathering.piece * nbytes)


def pieces_of_rank(settings: Settings, layers: Number) -> Number:
    """Copies of gathered weights for each rank that updated a part of them: one, or one of each tensor.

    Parameters
    ----------
    layers : whose weights are gathered
    """
    return ops.where(settings.buckets.by_tensor > 0.0, TENSORS_OF_LAYER * layers, 1.0)


def padding(rows: Number, shard: Number, padded: Number) -> Number:
    """What padding makes of a tensor whose rows are shared out, over its size.

    Parameters
    ----------
    rows : of the tensor
    shard : ranks that share it
    padded : 1 where it is padded

    Examples
    --------
    >>> padding(12.0, 8.0, 1.0), padding(16.0, 8.0, 1.0), padding(12.0, 8.0, 0.0)
    (1.3333333333333333, 1.0, 1.0)
    """
    return ops.where(padded > 0.0, shard * ops.ceil_div(rows, shard) / rows, 1.0)


def bucket_count(elements: Number, tensor: Number, cap: Number, overshoot: Number) -> Number:
    """Buckets that tensors of one size fill, on average where the cap lies between two tensors.

    Parameters
    ----------
    elements : of all tensors
    tensor : of one of them
    cap : elements at which a bucket is flushed
    overshoot : by how much of a tensor a bucket ends beyond the cap: 0.5 if flushed after, -0.5 if before

    Examples
    --------
    >>> bucket_count(100.0, 1.0, 10.0, 0.0), bucket_count(100.0, 25.0, 10.0, 0.5)
    (10.0, 4.0)
    """
    return elements / ops.maximum(tensor, cap + overshoot * tensor)


def bucket_count_of_equal_tensors(elements: Number, tensor: Number, cap: Number, overshoot: Number) -> Number:
    """Buckets that tensors of one size fill, where no other lies between: as many whole ones to each as the cap lets in.

    Parameters
    ----------
    elements, tensor, cap, overshoot : as of `bucket_count`

    Examples
    --------
    >>> [bucket_count_of_equal_tensors(90.0, 9.0, cap, over) for cap, over in ((10.0, 0.5), (10.0, -0.5), (5.0, 0.5))]
    [5.0, 10.0, 10.0]
    """
    size = ops.maximum(tensor, 1.0)
    fitting = ops.where(overshoot > 0.0, ops.ceil(cap / size), -ops.ceil(-cap / size))
    return elements / (size * ops.maximum(fitting, 1.0))


def dense_buckets(
    model: ModelNumbers, plan: PlanNumbers, layers: Number, edge: Number, cap: Number, overshoot: Number,
) -> Number:  # fmt: skip
    """Buckets of what a stage has outside the routed experts: attention, MLP, and embedding or head.

    Parameters
    ----------
    layers : of the stage
    edge : elements of its embedding and head
    cap, overshoot : as of `bucket_count`
    """
    others, _ = layer.layer_parameters_apart(model, plan)
    attention = parameters.mixer_of_rank(model, 1.0) / plan.tensor
    width = ops.where(model.experts.layers > 0.0, model.experts.shared_width, model.mlp.width)
    matrix = ops.maximum(model.hidden * width / plan.tensor, model.hidden)
    of_attention = bucket_count(layers * attention, 0.25 * attention, cap, overshoot)
    of_mlp = bucket_count(layers * ops.maximum(others - attention, 0.0), matrix, cap, overshoot)
    table = model.vocabulary.size * model.hidden / plan.tensor
    return of_attention + of_mlp + bucket_count(edge, table, cap, overshoot)


def padded_attention(model: ModelNumbers, tensor: Number, shard: Number, padded: Number) -> Number:
    """Elements of one layer's attention on one rank whose tensors are padded one by one.

    Queries, keys and values are one tensor where the MLP is not gated, as in `costmodel.description.tensors`.

    Parameters
    ----------
    tensor : ranks that split its matrices
    shard : ranks that share the rows of a tensor
    padded : 1 where it is padded
    """
    attention, hidden = model.attention, model.hidden
    width = attention.heads * attention.head_dim / tensor
    holders = parameters.key_holders(model, tensor)
    keys = attention.kv_heads * attention.head_dim / holders
    fused = width + (1.0 + attention.value_rows) * keys
    query_rows = ops.where((attention.latent > 0.0) | (model.mlp.gated > 0.0), width, fused)
    key_rows = ops.where(model.mlp.gated > 0.0, keys, fused)
    compressed = attention.kv_latent + attention.rope_head_dim
    expanded = attention.heads * (attention.head_dim - attention.rope_head_dim + attention.value_head_dim) / tensor
    wide, across = hidden * width, padding(query_rows, shard, padded)
    down = attention.query_latent * (hidden * padding(ops.maximum(attention.query_latent, 1.0), shard, padded) + width * across)
    queries = ops.where(attention.query_latent > 0.0, down, wide * across)
    latent = hidden * compressed * padding(ops.maximum(compressed, 1.0), shard, padded)
    latent = latent + attention.kv_latent * expanded * padding(ops.maximum(expanded, 1.0), shard, padded)
    plain = parameters.key_parameters(model) / holders
    output = (1.0 + attention.gate) * attention.heads * attention.value_head_dim / tensor * hidden
    matrices = ops.where(attention.query_latent > 0.0, attention.query_latent * (hidden + width), wide) + output
    matrices = matrices + ops.where(attention.latent > 0.0, hidden * compressed + attention.kv_latent * expanded, plain)
    vectors = parameters.attention_of_rank(model, tensor) - matrices
    held = ops.where(attention.latent > 0.0, latent, plain * padding(key_rows, shard, padded))
    return queries + held + (output + vectors) * padding(hidden, shard, padded)


def padded_mlp(model: ModelNumbers, width: Number, shard: Number, padded: Number) -> Number:
    """Elements of a (gated) MLP on one rank whose tensors are padded one by one.

    Parameters
    ----------
    width : inner width on the rank [channels]
    shard : ranks that share the rows of a tensor
    padded : 1 where it is padded
    """
    inward = (1.0 + model.mlp.gated) * width * (model.hidden + model.mlp.bias)
    outward = width * model.hidden + model.mlp.bias * model.hidden
    return inward * padding(ops.maximum(width, 1.0), shard, padded) + outward * padding(model.hidden, shard, padded)


def padded_layer(
    model: ModelNumbers, plan: PlanNumbers, padded: Number, shard: Number, expert_shard: Number
) -> tuple[Number, Number]:
    """Elements of an average layer on one rank outside and in its routed experts, as units of sharded weights hold them.

    Parameters
    ----------
    padded : 1 where every tensor's rows are padded to a multiple of the ranks that share it
    shard, expert_shard : ranks that share a tensor
    """
    share = model.experts.layers / model.layers
    norms = parameters.norm_parameters(model) * padding(model.hidden, shard, padded)
    attention = model.attention.share * padded_attention(model, plan.tensor, shard, padded)
    attention = attention + recurrent.parameters_of_rank(model, plan.tensor) * padding(model.hidden, shard, padded)
    dense = model.mlp.share * padded_mlp(model, model.mlp.width / plan.tensor, shard, padded)
    width = model.experts.shared_width / plan.tensor
    shared = ops.where(width > 0.0, padded_mlp(model, width, shard, padded), 0.0)
    router = model.hidden * model.experts.number * padding(ops.maximum(model.experts.number, 1.0), shard, padded)
    gate = model.hidden * model.experts.shared_gate * padding(1.0, shard, padded)
    routed = padded_mlp(model, model.experts.width / plan.expert_tensor, expert_shard, padded)
    each = share * model.experts.number / plan.expert
    return attention + norms + (1.0 - share) * dense + share * (shared + router + gate), each * routed


def layer_units(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, dense_group: ReplicaGroups, routed_group: ReplicaGroups
) -> LayerExchanges:
    """A layer's weights gathered for a forward and for a backward pass, and its gradients summed, `LayerExchanges`.

    A layer is one unit, or as many calls as the framework's buckets of that size. What is gathered ahead goes side by side on
    streams of its own; else experts are gathered when the pass has come to them.

    Parameters
    ----------
    dense_group, routed_group : `ReplicaGroups` of what lies outside and in the routed experts
    """
    rule, widths = settings.buckets, settings.widths
    others, experts = padded_layer(model, plan, rule.padded, dense_group.gatherers, routed_group.gatherers)
    width = widths.reduce * settings.trainable
    whole = (1.0 - plan.shard_weights) * rule.units_second + plan.shard_weights * rule.units_third > 0.0
    matrix = model.hidden * model.experts.width / plan.expert_tensor
    fetched = ops.where(whole, 1.0, dense_buckets(model, plan, 1.0, 0.0, rule.prefetched, 0.5))
    routed_fetched = ops.where(whole, 1.0, bucket_count_of_equal_tensors(experts, matrix, rule.prefetched, 0.5))
    summed = ops.where(whole, 1.0, dense_buckets(model, plan, 1.0, 0.0, rule.elements, rule.overshoot))
    routed_summed = ops.where(whole, 1.0, bucket_count_of_equal_tensors(experts, matrix, rule.elements, rule.overshoot))
    stored = adapters.gathered_width(settings, plan)
    attended = gathering(stored * others, fetched, dense_group)
    routed = gathering(stored * experts, routed_fetched, routed_group)
    ahead = concurrent(attended, routed)
    one_by_one = attended.time + routed.time
    forward = ExchangeTime(ops.where(settings.overlap.parameters > 0.0, ahead.time, one_by_one), ahead.load)
    released = 1.0 - whole_between_passes(model, settings, plan)
    again = gathered_again(model, settings, plan)
    repeated = ops.where(again > 0.0, 1.0, 0.0)
    more = gathering(again * stored * others, fetched, dense_group)
    more_routed = gathering(again * stored * experts, routed_fetched, routed_group)
    beside = concurrent(more, more_routed)
    load = released * ahead.load + repeated * beside.load
    backward = ExchangeTime(ops.where(
        settings.overlap.gradients > 0.0, released * ahead.time + repeated * beside.time,
        released * one_by_one + repeated * (more.time + more_routed.time),
    ), load)  # fmt: skip
    return LayerExchanges(forward, backward, concurrent(
        reduction(width * others, summed, dense_group), reduction(width * experts, routed_summed, routed_group)
    ))  # fmt: skip


def gathered_again(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Share of a layer's sharded weights that are gathered twice for its backward pass, as they are released in between.

    A recomputed layer's weights are used by its forward pass and then, in the other order, by its backward pass: between both
    uses of a matrix lie those of all behind it, twice. It stays whole if these are fewer than a framework's reuse distance.

    Assumptions
    -----------
    All matrices are as large as one of the MLP.

    References
    ----------
    deepspeedai/DeepSpeed@edaa722 deepspeed/runtime/zero/partitioned_param_coordinator.py, ``__params_to_release``
    """
    others, experts = layer.layer_parameters_apart(model, plan)
    sparse = model.experts.layers >= model.layers
    width = ops.where(sparse, model.experts.width / plan.expert_tensor, model.mlp.width / plan.tensor)
    matrix = ops.maximum(model.hidden * width, 1.0)
    kept = matrix * ops.ceil(0.5 * settings.buckets.reused / matrix)
    released = ops.maximum(1.0 - kept / (others + experts), 0.0)
    return ops.where(settings.buckets.reused > 0.0, plan.recompute_layers * released, 0.0)


def whole_between_passes(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Share of the layers whose sharded weights stay whole from the forward to the backward pass.

    Weights are fetched ahead until as many are whole as may be; what the fetching meets whole when it comes to the backward pass
    isn't released. So the last layers, of a small model all, are gathered once for both passes.

    Assumptions
    -----------
    Fetching is as far ahead as it may be: every module fetches further, persistent ones too.

    References
    ----------
    deepspeedai/DeepSpeed@edaa722 deepspeed/runtime/zero/partitioned_param_coordinator.py, ``fetch_sub_module`` and
    ``__params_to_release`` ("Don't release params whose reuse was skipped by prefetch"); 0.19.8 gathers BLOOM-560m once a step

    Examples
    --------
    >>> from costmodel import Plan, load_framework, load_model
    >>> software = load_framework("deepspeed")
    >>> plan = Plan(global_batch=8, seq_len=2048, data_parallel=8, zero_stage=3)
    >>> for model in (load_model("bloom-560m"), load_model("llama3-8b")):
    ...     settings, split = plan.settings(software), plan.numbers(software, model.layers)
    ...     round(float(whole_between_passes(model.numbers(), settings, split)), 3)
    1.0
    0.068
    """
    others, experts = layer.layer_parameters_apart(model, plan)
    room = settings.buckets.live - model.vocabulary.size * model.hidden / plan.tensor
    kept = ops.minimum(ops.maximum(room / (model.layers * (others + experts)), 0.0), 1.0)
    return ops.where(settings.buckets.live > 0.0, kept, 0.0)


def small_tensors(model: ModelNumbers, settings: Settings) -> Number:
    """Norms and biases of a layer, which stay whole where a framework shards what is large alone.

    References
    ----------
    deepspeedai/DeepSpeed@edaa722 deepspeed/runtime/zero/partition_parameters.py, ``stage3_param_persistence_threshold``

    Examples
    --------
    >>> from costmodel import Plan, load_framework, load_model
    >>> settings = Plan(global_batch=8, seq_len=2048).settings(load_framework("deepspeed"))
    >>> small_tensors(load_model("llama3-8b").numbers(), settings)
    2.0
    """
    attention, mlp, apart = model.attention, model.mlp, settings.framework.separate_projections
    normed = ops.where(attention.qk_norm_channels > 0.0, 2.0, 0.0)
    return (
        (model.norms + normed) * model.norm_vectors + attention.bias * (1.0 + 2.0 * apart) + attention.output_bias
        + mlp.bias * (2.0 + mlp.gated * apart)
    )  # fmt: skip


def edges_again(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Share of the embedding and the head that is gathered again for the backward pass.

    The head, used last and then first, stays whole where a framework keeps what it is about to use; so does the embedding if the
    whole model may. Where each is a unit of its own, the embedding is gathered again, though its backward pass reads no weight.

    Assumptions
    -----------
    A tied table that is released between its uses at both ends is gathered once more there, which isn't counted.
    """
    others, experts = layer.layer_parameters_apart(model, plan)
    apart = 1.0 - model.vocabulary.tied
    between = model.layers * (others + experts) + 2.0 * apart * model.vocabulary.size * model.hidden / plan.tensor
    live = settings.buckets.live
    some = ops.where(live > 0.0, ops.where(between < live, 0.0, 1.0 - 0.5 * apart), 1.0)
    embedding = 0.5 * apart * settings.framework.edges_apart * (1.0 - settings.buckets.edge_again)
    return settings.buckets.edge_again * some + embedding


def replica_groups(
    plan: PlanNumbers, settings: Settings, network: NetworkNumbers, software: Software
) -> tuple[ReplicaGroups, ReplicaGroups]:
    """Groups of the ranks that hold the same dense weights, and the same routed experts, `ReplicaGroups` of each."""
    return (
        groups(plan.data * plan.context, plan.data_stride, plan, settings, network, software),
        groups(communication.expert_ranks(plan), plan.expert * plan.expert_tensor, plan, settings, network, software),
    )  # fmt: skip


def other_systems(
    dense_bytes: Number, routed_bytes: Number, settings: Settings, plan: PlanNumbers, network: NetworkNumbers,
    software: Software,
) -> ExchangeTime:  # fmt: skip
    """Sum of gradients by servers, by levels or every so many steps, as `communication.sum_over_copies` has it, `ExchangeTime`;
    nothing where they are all-reduced.

    Parameters
    ----------
    dense_bytes, routed_bytes : of gradients outside and in the routed experts
    """
    ranks, few = plan.data * plan.context, communication.expert_ranks(plan)
    apart = plan.expert * plan.expert_tensor
    time, _ = communication.sum_over_copies(dense_bytes, ranks, plan.data_stride, settings, network, software)
    routed_time, _ = communication.sum_over_copies(routed_bytes, few, apart, settings, network, software)
    return ExchangeTime(ops.where(settings.synchronisation.kind > 0.5, time + routed_time, 0.0), 0.0)


class _OverlapWindow(NamedTuple):
    """Passes of a layer beside which exchange goes on [s], and the share of them that hides it."""

    forward: Number
    backward: Number
    data: Number  # the pass that needs gathered weights
    weight: Number  # the pass that makes gradients
    ahead: Number  # share of a forward pass
    beside: Number  # of a backward pass


class _PerMicroBatch(NamedTuple):
    """Exchange for every micro-batch [s]: in all and hidden, and what a pass by weights waits for."""

    forward: Number
    forward_hidden: Number
    backward: Number
    backward_hidden: Number
    weight: Number


def _hiding(settings: Settings, plan: PlanNumbers, software: Software, body: Layer) -> _OverlapWindow:
    """What a layer's passes hide of the exchange beside them."""
    split = schedules.splits_backward(plan.schedule)
    backward = body.total - body.total_forward
    return _OverlapWindow(
        body.total_forward, backward, ops.where(split > 0.0, backward - body.total_weight, backward),
        ops.where(split > 0.0, body.total_weight, backward), settings.overlap.parameters * software.overlap.parameters,
        settings.overlap.gradients * software.overlap.gradients,
    )  # fmt: skip


def _stage_buckets(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, dense_group: ReplicaGroups,
    routed_group: ReplicaGroups, layers: Number,
    routed: Number, edge: Number, first: Number, last: Number, chunks: Number,
) -> tuple[Number, Number]:  # fmt: skip
    """Buckets that a stage's gradients fill, outside and in the routed experts; a sharded embedding that two stages hold has one
    of its own in Megatron. Of adapters only what trains has gradients, in tensors far smaller than a bucket."""
    rule = settings.buckets
    one_end = first * (1.0 - last) + last * (1.0 - first)
    own = rule.first_stage_only * plan.shard_optimizer * model.vocabulary.tied * one_end
    cap = ops.maximum(rule.elements, rule.elements_per_rank * dense_group.ranks)
    routed_cap = ops.maximum(rule.elements, rule.elements_per_rank * routed_group.ranks)
    single = rule.first_stage_only * ops.where((first > 0.0) & (settings.overlap.gradients > 0.0), 0.0, 1.0)
    parts = ops.where(rule.first_stage_only > 0.0, chunks, 1.0)
    others, _ = layer.layer_parameters_apart(model, plan)
    adapted, trained = settings.adapter.frozen, settings.trainable
    held = ops.where(
        adapted > 0.0, trained * (layers * others + edge) / cap,
        dense_buckets(model, plan, layers, (1.0 - own) * edge, cap, rule.overshoot),
    )  # fmt: skip
    cut = ops.maximum(held / parts, 1.0)
    matrix = model.hidden * model.experts.width / plan.expert_tensor
    held_routed = ops.where(
        adapted > 0.0, trained * routed / routed_cap, bucket_count_of_equal_tensors(routed, matrix, routed_cap, rule.overshoot)
    )
    cut_routed = ops.maximum(held_routed / parts, 1.0)
    own = (1.0 - adapted) * own
    return ops.where(single > 0.0, 1.0, cut) + own + parts - 1.0, ops.where(single > 0.0, 1.0, cut_routed) + parts - 1.0


def _padded_edge(
    model: ModelNumbers, plan: PlanNumbers, group: ReplicaGroups, padded: Number, edge: Number, tables: Number
) -> Number:
    """Elements around a stage's layers, the rows of its so many tables of the vocabulary padded; positions and norms are not."""
    rows = model.vocabulary.size / plan.tensor
    table = ops.minimum(tables * rows * model.hidden, edge)
    return edge + table * (padding(rows, group.gatherers, padded) - 1.0)


def _each_micro_batch(
    settings: Settings, plan: PlanNumbers, units: LayerExchanges, hiding: _OverlapWindow,
    edge: tuple[Number, Number, Number], bucket_time: Number, early: Number, layers: Number, chunks: Number, tail: Number,
) -> _PerMicroBatch:  # fmt: skip
    """What the passes of every micro-batch gather and sum, unit by unit or in buckets, and what of it they hide.

    `edge` are the times to gather and to sum what lies around the layers and the share that is gathered again, `tail` is 1 where
    that is behind them; `early` is the share of buckets that are full before the pass ends.
    """
    rule = settings.buckets
    third, sharded = plan.shard_weights, layer.sharded_gradients(settings, plan)
    second = sharded * (1.0 - third)
    edge_gather, edge_scatter = edge[0], sharded * edge[1]
    depth = layers / chunks
    behind = ops.maximum(depth - 1.0, 0.0)
    gather_hidden = behind * ops.minimum(units.forward.time, hiding.ahead * hiding.forward)
    edge_hidden = tail * ops.minimum(edge_gather, hiding.ahead * hiding.forward)
    forward_time = chunks * depth * units.forward.time + edge_gather
    forward_hidden = chunks * gather_hidden + edge_hidden

    split = schedules.splits_backward(plan.schedule)
    ends = ops.minimum(behind, 1.0)
    between = ops.maximum(depth - 2.0, 0.0)
    summed = sharded * units.summed.time
    again = 1.0 - layer.deferred_sums(settings, plan)  # weights that wait for these are whole when a pass comes back
    again_time = again * units.backward.time
    both = again_time + summed
    again_hidden = ops.minimum(again_time, hiding.beside * hiding.data)
    summed_hidden = ops.minimum(summed, hiding.beside * hiding.weight)
    paired_hidden = ops.where(
        split > 0.0, behind * (again_hidden + summed_hidden),
        ends * (again_hidden + summed_hidden) + between * ops.minimum(both, hiding.beside * hiding.backward),
    )  # fmt: skip
    tail_hidden = tail * ops.minimum(edge_scatter, hiding.beside * hiding.weight)
    third_time = chunks * depth * both + edge_scatter + again * edge[2] * edge_gather
    third_hidden = chunks * paired_hidden + tail_hidden
    unit_time = chunks * depth * summed + edge_scatter
    unit_hidden = chunks * behind * summed_hidden + tail_hidden
    bucket_hidden = early * ops.minimum(bucket_time, hiding.beside * layers * hiding.weight)
    second_time = ops.where(rule.units_second > 0.0, unit_time, bucket_time)
    second_hidden = ops.where(rule.units_second > 0.0, unit_hidden, bucket_hidden)
    gathered = third + second * rule.units_second
    third_weight = unit_time - chunks * behind * summed_hidden - tail_hidden
    return _PerMicroBatch(
        gathered * forward_time, gathered * forward_hidden, third * third_time + second * second_time,
        third * third_hidden + second * second_hidden, split * (third * third_weight + second * (second_time - second_hidden)),
    )  # fmt: skip


def stage_synchronisation(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, software: Software, dense_group: ReplicaGroups,
    routed_group: ReplicaGroups,
    body: Layer, units: LayerExchanges, besides: ExchangeTime, layers: Number, experts: Number, first: Number,
    last: Number, chunks: Number,
    dense_bytes: Number, routed_bytes: Number,
) -> Synchronised:  # fmt: skip
    """What a stage exchanges of its gradients and weights, and what of it its passes leave exposed, `Synchronised`.

    Parameters
    ----------
    dense_group, routed_group : of what lies outside and in the routed experts, `ReplicaGroups`
    body : a layer's pass, which hides exchange
    units : of `layer_units`
    besides : what the plan exchanges of gradients otherwise than by all-reducing them as they are
    layers : of the stage on one rank, all its chunks together
    experts : of these, those with a mixture of experts
    first, last : 1 where the stage holds the embedding, the head
    chunks : of the model, each with passes of its own
    dense_bytes, routed_bytes : of a gradient on the wire, outside and in the routed experts
    """
    rule = settings.buckets
    copies = schedules.weight_copies(plan.schedule)  # of which a micro-batch passes one
    copied = copies * layers
    owned = memory.rank_parameters(model, plan, first, last)
    dense, routed = memory.whole_parameters(owned, copied, copies * experts)
    edge = owned.edges
    stored = adapters.gathered_width(settings, plan)

    # a whole stage in buckets, or in units once a step
    sharded = layer.sharded_gradients(settings, plan)
    in_units = ops.where((rule.units_second > 0.0) & (layer.deferred_sums(settings, plan) > 0.0), copied, 0.0)
    cut, routed_cut = _stage_buckets(model, settings, plan, dense_group, routed_group, copied, routed, edge, first, last, chunks)
    buckets, routed_buckets = ops.where(in_units > 0.0, in_units, cut), ops.where(in_units > 0.0, in_units, routed_cut)
    dense_sum = reduction(dense_bytes * dense, buckets, dense_group)
    routed_sum = reduction(routed_bytes * routed, routed_buckets, routed_group)
    allreduced = concurrent(dense_sum, routed_sum)
    other = settings.synchronisation.kind > 0.5
    scatter = ExchangeTime(ops.where(other, 0.0, allreduced.time) + besides.time, allreduced.load)
    last_sum = last_of(dense_sum, buckets, routed_sum, routed_buckets)
    summed_last = ops.where(other, 0.0, last_sum) + besides.time / buckets
    early = 1.0 - summed_last / ops.maximum(scatter.time, 1e-30)
    in_buckets = rule.gathered_in_buckets + in_units
    gathers = ops.where(in_buckets > 0.0, buckets, 1.0)
    routed_gathers = ops.where(in_buckets > 0.0, routed_buckets, 1.0)
    dense_gather = gathering(stored * dense, gathers, dense_group, pieces_of_rank(settings, copied))
    routed_gather = gathering(stored * routed, routed_gathers, routed_group)
    gather = concurrent(dense_gather, routed_gather)
    gathered_early = 1.0 - last_of(dense_gather, gathers, routed_gather, routed_gathers) / ops.maximum(gather.time, 1e-30)

    # what lies around the layers, and every pass of a micro-batch by a chunk
    edges = _padded_edge(model, plan, dense_group, rule.padded, edge, first + last - first * last * model.vocabulary.tied)
    edge_gather = gathering(stored * edges, 1.0, dense_group)
    edge_scatter = reduction(dense_bytes * edges, 1.0, dense_group)
    hiding = _hiding(settings, plan, software, body)
    each = _each_micro_batch(
        settings, plan, units, hiding,
        (edge_gather.time / copies, edge_scatter.time / copies, edges_again(model, settings, plan)), scatter.time / copies,
        early, layers, chunks, last * (1.0 - first),
    )  # fmt: skip

    # once a step, beside the last passes of each chunk
    once = 1.0 - sharded
    m = layout.micro_batches(settings, plan)
    rounds = ops.where(schedules.grouped_by_stages(plan.schedule) > 0.0, plan.pipeline, m)
    span = ops.where(chunks > 1.0, (1.0 + (chunks - 1.0) * rounds) / chunks, 1.0)
    averaged = ops.where(ops.equal(settings.synchronisation.kind, communication.LOCAL_SGD), 0.0, hiding.beside)
    beside = 1.0 - plan.shard_gradients  # deferred sums follow a stage's last pass, unit by unit
    step_hidden = beside * early * ops.minimum(scatter.time, averaged * span * layers * hiding.weight)
    third, second = plan.shard_weights, sharded * (1.0 - plan.shard_weights)
    after = plan.shard_optimizer * (1.0 - (third + second * rule.units_second))
    opening = ops.minimum(gather.time, hiding.ahead * span * layers * hiding.forward)
    opening_hidden = after * gathered_early * opening

    outer = first * model.vocabulary.norm + last * model.last_norm
    vectors = layers * small_tensors(model, settings) + outer * model.norm_vectors
    kept_whole = gathering(stored * vectors * model.hidden, vectors, dense_group)
    apart = ops.where(rule.one_by_one > 0.0, third * kept_whole.time, 0.0)
    slowed = software.compute.contention
    return Synchronised(
        each.forward - each.forward_hidden + slowed * each.forward_hidden,
        each.backward - each.backward_hidden + slowed * each.backward_hidden,
        each.weight,
        each.forward_hidden, each.backward_hidden,
        once * scatter.time - step_hidden, after * gather.time - opening_hidden + apart,
        step_hidden, opening_hidden,
    )  # fmt: skip

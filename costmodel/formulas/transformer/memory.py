r"""Bytes that one rank holds at its fullest, part by part."""

from __future__ import annotations

from costmodel import ops
from costmodel.formulas.network import collectives, communication
from costmodel.formulas.pipeline import layout, schedules
from costmodel.formulas.quantities import Contents, Memory
from costmodel.formulas.transformer import layer
from costmodel.formulas.transformer.parameters import (
    embedding_parameters,
    expert_parameters,
    head_parameters,
    prediction_parameters,
    stage_model,
)

UNFUSED_NORM_BYTES = 8.0
"""Kept per channel by a norm of separate kernels: its input and its scaled input in 32 bit."""
CONNECTION_BYTES = 524_288.0 + 4_915_200.0 + 4_194_304.0
"""Of NCCL's receiver on one channel, for its protocols LL, LL128 and Simple."""
TREE_NEIGHBOURS = 2.0
"""Of a member of a double binary tree, on average, beside its neighbour in the ring."""
POOL_CHUNKS, NEAR_CHUNK_BYTES, FAR_CHUNK_BYTES = 16.0, 524_288.0, 131_072.0
"""Chunks of NCCL's pool for messages on one channel, and their size inside a node of NVLinks and elsewhere."""
GATHERED_LAYERS = 2.0
"""Layers whose weights are whole at once under ZeRO-3: the one at work and the one prefetched."""


def attention_activations(model, options, plan):
    r"""Bytes saved by the attention of one layer for one token of a micro-batch, divided over tensor ranks.

    Queries, keys, values and the output (2 bytes each), and for separate kernels the softmax, the dropped-out
    softmax and its mask: :math:`5 a s` bytes a token with dropout, :math:`2 a s` without. The output is the input of the
    projection; a flash kernel saves it too, so that beside a narrow copy it is kept whole.

    Parameters
    ----------
    model : `Model`
    options : `Options`
    plan : `Plan`

    References
    ----------
    [korthikanti2022]_ section 4.1
    """
    bytes_ = options.activation_bytes
    kv_heads = ops.maximum(model.kv_heads, plan.tensor)
    plain = model.heads * model.head_dim + kv_heads * (model.head_dim + model.value_head_dim)
    full = model.heads * (2.0 * model.head_dim + model.value_head_dim)
    rotated = options.keep_rotated * (model.heads + kv_heads) * model.head_dim
    compressed = 2.0 * plan.tensor * (model.query_latent + model.kv_latent + model.rope_head_dim)
    saved = ops.where(model.latent > 0.0, full + compressed, plain + rotated)
    kept_twice = bytes_ + options.input_copy_bytes
    output = model.heads * model.value_head_dim * ops.where(options.flash_attention > 0.0, kept_twice, options.input_bytes)
    per_score = bytes_ + model.dropout * (bytes_ + 1.0)
    scores = per_score * model.heads * options.seq_len * (1.0 - plan.recompute_attention)
    statistics = 4.0 * model.heads
    return bytes_ * saved + output + ops.where(options.flash_attention > 0.0, statistics, scores)


def mlp_activations(model, options, plan):
    """Bytes saved by the MLP of an average layer for one token, divided over tensor ranks: inner tensors.

    Experts save their permuted inputs, their inner tensors and their outputs, `experts_per_token` times and on
    the busiest rank.

    Parameters
    ----------
    model, options, plan : `Model`, `Options`, `Plan`
    """
    share = model.expert_layers / model.layers
    width = options.activation_bytes * (1.0 + model.gated * (1.0 + options.keep_activated)) + options.input_bytes
    dense = width * model.feed_forward
    routed = model.expert_load * model.experts_per_token
    permuted = (options.input_bytes + options.activation_bytes) * model.hidden
    experts = routed * (width * model.expert_feed_forward + permuted)
    shared = width * model.shared_feed_forward
    return dense + share * (experts + shared - dense)


def layer_activations(model, options, plan):
    r"""Bytes that an average layer saves for the backward pass of one micro-batch, on one rank.

    For a GPT with dropout and a :math:`4h` MLP, under tensor and sequence parallelism,

    .. math:: \frac{s b h}{t} \left(34 + 5 \frac{a s}{h}\right)

    With the inputs of products kept in 8 bit 27 instead of 34: two norms' outputs, the attention's output and the
    activated MLP's count one byte for two.

    Parameters
    ----------
    model : `Model`
    options : `Options`
    plan : `Plan`

    References
    ----------
    [korthikanti2022]_ equations 1 to 4; NVIDIA/TransformerEngine@0004dbd transformer_engine/pytorch/module/linear.py
    (what a product saves in 8 bit)
    """
    bytes_ = options.activation_bytes
    tokens = layer.local_tokens(options, plan)
    split = layer.norm_tokens(options, plan)
    gathered = ops.where(options.keep_gathered > 0.0, tokens, split)
    separate = (1.0 - options.fused_norms) * UNFUSED_NORM_BYTES
    outer = model.hidden * split * (model.norms * (bytes_ + separate) + 2.0 * model.dropout)
    outer = outer + model.hidden * gathered * model.norms * options.input_bytes
    inner = tokens / plan.tensor * (attention_activations(model, options, plan) + mlp_activations(model, options, plan))
    return outer + inner


def checkpoint(model, options, plan):
    """Bytes of one recomputed layer's saved input, on one rank.

    Parameters
    ----------
    model, options, plan : `Model`, `Options`, `Plan`
    """
    return options.activation_bytes * layer.norm_tokens(options, plan) * model.hidden


def kept_activations(model, options, plan, stack):
    """Bytes that an average layer keeps from its forward to its backward pass, for one micro-batch.

    Parameters
    ----------
    model, options, plan, stack : as named
    """
    whole = stack.activation_overhead * layer_activations(model, options, plan)
    return whole + plan.recompute_layers * (checkpoint(model, options, plan) - whole)


def stage_activations(model, options, plan, stack, layers, micro_batches):
    """Bytes saved on one stage for all micro-batches in flight.

    Parameters
    ----------
    model, options, plan, stack : as named
    layers : of the stage
    micro_batches : in flight, in units of the stage's whole depth
    """
    on_device = 1.0 - options.activation_offload
    return on_device * micro_batches * layers * kept_activations(model, options, plan, stack)


def backward_temporaries(model, options, plan, stack):
    """Bytes that one layer's backward pass holds beside what was saved.

    The gradients of its inner tensors; where it is recomputed, or fetched from the host, also the layer's own
    activations, whole.

    Parameters
    ----------
    model, options, plan, stack : as named
    """
    layer_ = layer_activations(model, options, plan)
    kept = kept_activations(model, options, plan, stack)
    again = ops.where(plan.recompute_layers > 0.0, stack.activation_overhead * layer_, options.activation_offload * kept)
    return again + stack.backward_overhead * layer_


def logits(model, options, plan, micro_batches):
    """Bytes of the last norm's and the head's input and of the logits at the loss of a micro-batch, on one rank.

    Parameters
    ----------
    model, options, plan : `Model`, `Options`, `Plan`
    micro_batches : of a step; from the second on, the logits of the one before may still be held
    """
    inputs = 2.0 * options.activation_bytes * layer.norm_tokens(options, plan) * model.hidden
    columns = layer.loss_columns(model, options, plan)
    before = ops.where(micro_batches > 1.0, options.retained_logit_bytes, 0.0)
    return inputs + (options.logit_bytes + before) * layer.local_tokens(options, plan) * columns


def stage_parameters(model, plan, layers, first, last):
    """Parameters of a stage on one rank: outside the routed experts, and in them.

    Parameters
    ----------
    model : `Model`
    plan : `Plan`
    layers : of the stage
    first, last : 1 where the stage holds the embedding, the head; tied embeddings live on both
    """
    others, experts = layer.layer_parameters_apart(model, plan)
    body, routed = layers * others, layers * experts
    copy = model.tied * model.vocabulary * model.hidden * last * (1.0 - first)
    modules = last * model.prediction_layers * ops.where(model.expert_layers > 0.0, 1.0, 0.0)
    apart = prediction_parameters(model) * last - modules * expert_parameters(model)
    edges = first * embedding_parameters(model) + last * head_parameters(model) + apart + copy
    return body + edges / plan.tensor, routed + modules * layer.routed_parameters(model, plan)


def shard_of(sharded, dense, routed, shard, expert_shard):
    """Parameters whose state stays on one rank, split over `shard` ranks (experts over theirs) where `sharded`.

    Parameters
    ----------
    sharded : 1 where this state is sharded
    dense : parameters outside the routed experts
    routed : parameters of the routed experts
    shard : ranks that share one copy
    expert_shard : the same for the experts
    """
    over = ops.where(sharded > 0.0, shard, 1.0)
    return dense / over + routed / ops.where(sharded > 0.0, expert_shard, 1.0)


def states(model, options, plan, layers, first, last):
    """Weights, gradients, optimizer state and gathered weights of a stage on one rank [bytes each].

    Parameters
    ----------
    model, options, plan : `Model`, `Options`, `Plan`
    layers : of the stage
    first, last : 1 where the stage holds the embedding, the head
    """
    copies = schedules.weight_copies(plan.schedule)
    dense, routed = stage_parameters(model, plan, copies * layers, first, last)
    shard, expert_shard = communication.shards(plan)

    trained = options.trainable
    on_device = 1.0 - options.optimizer_offload
    held = shard_of(plan.shard_weights, dense, routed, shard, expert_shard)
    summed = shard_of(plan.shard_gradients, dense, routed, shard, expert_shard)
    # the state of a stage that two ranks run is sharded over both
    once = ops.where(plan.shard_optimizer > 0.0, 1.0 / copies, 1.0)
    updated = once * shard_of(plan.shard_optimizer, dense, routed, shard, expert_shard)
    others, experts = layer.layer_parameters_apart(model, plan)
    cast = shard_of(plan.shard_weights, copies * layers * others, copies * layers * experts, shard, expert_shard)
    weights = options.stored_bytes * held + options.weight_copy_bytes * cast
    gradients = trained * (options.gradient_bytes * summed + options.backward_gradient_bytes * held)
    optimizer = on_device * trained * (options.optimizer_bytes + options.outer_bytes) * updated
    apart = ops.where(shard > 1.0, others, 0.0) + ops.where(expert_shard > 1.0, experts, 0.0)
    whole = ops.where(plan.shard_weights > 0.0, apart, 0.0)
    gathered = GATHERED_LAYERS * (options.stored_bytes + options.trainable * options.reduce_bytes) * whole
    return weights, gradients, optimizer, gathered


def update_temporaries(model, options, plan, layers, first, last):
    """Bytes that the optimizer of a stage holds beside its state while it updates.

    Parameters
    ----------
    model, options, plan : `Model`, `Options`, `Plan`
    layers : of the stage
    first, last : 1 where the stage holds the embedding, the head
    """
    dense, routed = stage_parameters(model, plan, layers, first, last)
    shard, expert_shard = communication.shards(plan)
    updated = shard_of(plan.shard_optimizer, dense, routed, shard, expert_shard)
    return options.trainable * options.update_bytes * (1.0 - options.optimizer_offload) * updated


def embedding_mask(model, options, plan, first):
    """Bytes of the dropout mask behind the embedding, of one micro-batch.

    Parameters
    ----------
    model, options, plan : `Model`, `Options`, `Plan`
    first : 1 where the stage holds the embedding
    """
    return first * model.dropout * layer.norm_tokens(options, plan) * model.hidden


def absent_gradients(options, gradients, micro_batches):
    """Bytes of gradients that come up only as the one backward pass of a step makes them.

    Parameters
    ----------
    options : `Options`
    gradients : of the stage [bytes]
    micro_batches : of a step
    """
    return ops.where((options.lazy_gradients > 0.0) & (micro_batches <= 1.0), gradients, 0.0)


def collective_buffers(ranks, stride, network):
    r"""Bytes that a group's collectives hold in the communication library: a connection's on every channel, for each neighbour.

    .. math:: K (1 + 2\,[\text{several nodes}])\,C

    One neighbour in a ring; between nodes two more in a tree, on average.

    Parameters
    ----------
    ranks, stride : the group
    network : `Network`: its channels :math:`K`

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


def message_buffers(ranks, stride, network):
    """Bytes of the pool that the messages between a group's members share in the communication library.

    Parameters
    ----------
    ranks, stride : the group
    network : `Network`

    References
    ----------
    NVIDIA/nccl@5067397 src/init.cc; NVIDIA/nccl#2363 (536,870,912 bytes on 64 channels inside a node)
    """
    chunk = ops.where(ranks * stride > network.node.size, FAR_CHUNK_BYTES, NEAR_CHUNK_BYTES)
    return ops.where(ranks > 1.0, network.node.channels * POOL_CHUNKS * chunk, 0.0)


def library_bytes(plan, network):
    """Bytes that the communication library holds on a rank: collectives of the tensor and the data group, messages of others.

    Parameters
    ----------
    plan, network : `Plan`, `Network`
    """
    reducing = collective_buffers(plan.tensor, plan.tensor_stride, network)
    reducing = reducing + collective_buffers(plan.data * plan.context, plan.data_stride, network)
    around = message_buffers(plan.context, plan.context_stride, network)
    along = message_buffers(plan.pipeline, plan.pipeline_stride, network)
    return reducing + around + along + message_buffers(plan.expert, plan.expert_tensor, network)


def billed(weights, gradients, optimizer, activations, temporaries, logits, buffers, plan, network, stack):
    """A bill of what tensors hold, and of what lies around them, `Memory`.

    Parameters
    ----------
    weights, gradients, optimizer, activations, temporaries, logits, buffers : its parts [bytes]
    plan, network, stack : `Plan`, `Network`, `Stack`
    """
    allocated = weights + gradients + optimizer + activations + temporaries + logits + buffers
    library = stack.library_overhead * library_bytes(plan, network)
    overhead = stack.fixed_memory + library + stack.fragmentation * allocated
    return Memory(
        allocated + overhead, weights, gradients, optimizer, activations, temporaries, logits, buffers, overhead
    )


def stage_contents(model, options, plan, stack, layers, stage, first, last, micro_batches):
    """What a stage holds all the time, for each micro-batch, and at its moments, `Contents` [bytes].

    Parameters
    ----------
    model, options, plan, stack : as named
    layers : of the stage
    stage : rank in the pipeline, from 0
    first, last : 1 where the stage holds the embedding, the head
    micro_batches : of a step

    Assumes one graph of a layer for every micro-batch in flight, on one pool that nothing else takes from.

    References
    ----------
    NVIDIA/Megatron-LM megatron/core/transformer/cuda_graphs.py (``_CudaGraphRunner``)
    """
    weights, gradients, optimizer, gathered = states(model, options, plan, layers, first, last)
    saved = stage_activations(model, options, plan, stack, layers, 1.0) + embedding_mask(model, options, plan, first)
    backward = ops.where(layers > 0.0, backward_temporaries(model, options, plan, stack), 0.0)
    eager = 1.0 - options.cuda_graphs
    held = schedules.in_flight(plan.schedule, plan.pipeline, plan.virtual_stages, micro_batches, stage)
    return Contents(
        weights=schedules.weight_versions(plan.schedule, held) * weights,
        gradients=gradients,
        late_gradients=absent_gradients(options, gradients, micro_batches),
        optimizer=optimizer,
        gathered=gathered,
        captured=options.cuda_graphs * (held * saved + backward),
        saved=eager * saved,
        in_flight=held,
        logits=last * stack.logit_overhead * logits(model, options, plan, micro_batches),
        backward=eager * backward,
        update=update_temporaries(model, options, plan, layers, first, last),
    )


def fullest_moment(contents, plan, micro_batches):
    """Bytes of the logits that wait, and whether a stage is fullest in a pass with its activations, at the loss, at the update.

    Three moments can be the fullest: the loss, with every layer's activations saved and the logits alive; the
    backward pass of the last layer, with all but its own logits saved; the update, with nothing saved. Gradients that
    come up late add one: the end of the first layer's backward pass, when they are whole.

    Parameters
    ----------
    contents : `Contents`
    plan : `Plan`
    micro_batches : of a step
    """
    # DualPipe runs a backward pass of the other direction while logits wait for theirs
    paired = ops.where(ops.equal(plan.schedule, schedules.DUALPIPE), 1.0, 0.0)
    others = (schedules.losses_in_flight(plan.schedule, micro_batches) - 1.0 + paired) * contents.logits
    alone = (1.0 - paired) * contents.logits
    saved = contents.in_flight * contents.saved
    passing = saved + others + ops.maximum(alone, contents.backward) + contents.gathered - contents.late_gradients
    ending = ops.where(contents.late_gradients > 0.0, contents.backward + contents.gathered, 0.0)
    updating = ops.where(contents.update > ops.maximum(passing, ending), 1.0, 0.0)
    early = ops.where((passing >= ending) & (contents.update <= passing), 1.0, 0.0)
    at_loss = early * ops.where(alone > contents.backward, 1.0, 0.0)
    return others + at_loss * alone, early, at_loss, updating


def stage_memory(contents, plan, network, stack, micro_batches):
    """The bill of one stage at its `fullest_moment`, `Memory` [bytes].

    Parameters
    ----------
    contents : of the stage, `Contents`
    plan, network, stack : as named
    micro_batches : of a step
    """
    waiting, early, at_loss, updating = fullest_moment(contents, plan, micro_batches)
    return billed(
        contents.weights, contents.gradients - early * contents.late_gradients, contents.optimizer,
        contents.captured + early * contents.in_flight * contents.saved,
        ops.where(updating > 0.0, contents.update, (1.0 - at_loss) * contents.backward), early * waiting,
        stack.workspace_memory + (1.0 - updating) * contents.gathered, plan, network, stack,
    )  # fmt: skip


def fuller(one, other):
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


def buffered(one, nbytes, stack):
    """A bill with so many bytes more in its buffers all the time, `Memory`.

    Parameters
    ----------
    one : `Memory`
    nbytes : that are held besides
    stack : `Stack`
    """
    reserved = stack.fragmentation * nbytes
    return Memory(
        one.total + nbytes + reserved, one.weights, one.gradients, one.optimizer, one.activations, one.temporaries,
        one.logits, one.buffers + nbytes, one.overhead + reserved,
    )  # fmt: skip


def stage_places(model, options, plan):
    """Stages of which one is the fullest: the first, one between and the last.

    The first stage holds most micro-batches, the second may hold a layer more, the last holds the logits; the
    stages between hold less than the second, but for Chimera, whose middle holds most.

    Parameters
    ----------
    model, options, plan : `Model`, `Options`, `Plan`

    Returns
    -------
    tuple
        of each its `Model`, layers, rank in the pipeline, embedding, head
    """
    first_layers, middle_layers, last_layers = layout.rank_layers(model, options, plan)
    single = ops.where(plan.pipeline > 1.0, 0.0, 1.0)
    fold, mirrored = schedules.folded(plan.schedule), schedules.two_way(plan.schedule)
    ends = ops.maximum(single, fold)
    spread = 1.0 + mirrored  # stages whose layers are averaged
    front = stage_model(model, 0.0, spread * first_layers)
    between = ops.where(plan.pipeline > 2.0, middle_layers, 0.0)
    inner = stage_model(model, first_layers, spread * between)
    # of two directions most micro-batches meet in the middle
    deep = ops.where(ops.equal(plan.schedule, schedules.CHIMERA), ops.ceil(0.5 * plan.pipeline) - 1.0, 1.0)
    back = stage_model(model, (1.0 - mirrored) * (model.layers - last_layers), spread * last_layers)
    return (
        (front, first_layers, 0.0, 1.0, ends),
        (inner, between, ops.minimum(deep, plan.pipeline - 1.0), 0.0, 0.0),
        (back, last_layers, plan.pipeline - 1.0, ops.maximum(single, mirrored), 1.0 - fold + mirrored),
    )  # fmt: skip


def stage_bills(model, options, plan, network, stack, micro_batches):
    """The bill of each of `stage_places`, uncompressed gradients taken for granted, three `Memory` [bytes].

    Parameters
    ----------
    model, options, plan, network, stack : `Model`, `Options`, `Plan`, `Network`, `Stack`
    micro_batches : of a step
    """
    front, inner, back = stage_places(model, options, plan)
    one = stage_contents(front[0], options, plan, stack, front[1], front[2], front[3], front[4], micro_batches)
    two = stage_contents(inner[0], options, plan, stack, inner[1], inner[2], inner[3], inner[4], micro_batches)
    end = stage_contents(back[0], options, plan, stack, back[1], back[2], back[3], back[4], micro_batches)
    return (
        stage_memory(one, plan, network, stack, micro_batches),
        stage_memory(two, plan, network, stack, micro_batches),
        stage_memory(end, plan, network, stack, micro_batches),
    )


def fullest_stage(model, options, plan, network, stack, micro_batches):
    """The bill of the fullest stage, uncompressed gradients taken for granted, `Memory` [bytes].

    Parameters
    ----------
    model, options, plan, network, stack : `Model`, `Options`, `Plan`, `Network`, `Stack`
    micro_batches : of a step
    """
    first, second, last = stage_bills(model, options, plan, network, stack, micro_batches)
    return fuller(fuller(first, second), last)

r"""One training step: compute, exchange, bubble, synchronisation, optimizer; and the memory that goes with it."""

from __future__ import annotations

from typing import NamedTuple

from costmodel.arithmetic import ops
from costmodel.formulas import compute, gradients, synchronisation
from costmodel.formulas.network import collectives, communication
from costmodel.formulas.pipeline import layout, schedules
from costmodel.formulas.pipeline.spans import PassSpan, span
from costmodel.formulas.quantities import (
    DeviceNumbers,
    ExchangeTime,
    Layer,
    Memory,
    ModelNumbers,
    NetworkNumbers,
    Number,
    PlanNumbers,
    Settings,
    Software,
    Step,
    Summed,
    Synchronised,
)
from costmodel.formulas.transformer import activations, adapters, attention, flops, launches, layer, lengths, update

GRAPH_LAUNCH = 2.5e-6
"""Host time to launch a graph of a layer's pass [s]: NVIDIA, "Constant Time Launch for Straight-Line CUDA Graphs" (2024), of
CUDA 12.6 (2.5 us, and 1 ns a kernel)."""
HOST_MEMORY_OVER_LINK = 117e9 / 12e9
"""Rate at which all processors of a node pass an optimizer's state through their memory, over that of one device's link to them.
DeepSpeed's Adam takes 2.57 s for ten billion parameters, of which it moves 30 bytes each ([ren2021]_ table 4), on a host with
PCIe 3 (12 GB/s of a device). Each generation of servers since has doubled lanes' and memory channels' rates together: two
processors of six DDR4-2666, eight DDR4-3200, eight DDR5-4800 channels beside PCIe 3, 4, 5."""


def layer_pass(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
    device: DeviceNumbers,
) -> Layer:  # fmt: skip
    """An average layer on one micro-batch as the schedule sees it, `Layer` [s].

    Exposed exchange is what its overlap leaves: tensor exchange hides under products where asked for, what it gathers again for
    gradients of weights under the products that make those of what was multiplied,
    a context ring's under the attention core, expert exchange under a share of the compute, or under all of another
    micro-batch's where the plan overlaps the two. Gathers of
    sharded weights are not part of it: `costmodel.formulas.synchronisation`.
    """
    settings = lengths.of_layers(model, lengths.at_work(settings, plan))
    overlap = software.overlap
    work = layer.layer_work(model, settings, plan, software, device)
    moved = communication.layer_exchange(model, settings, plan, network, software)
    forward = work.forward + work.core_forward + work.stream_forward
    data = work.data + work.core_backward + work.stream_backward
    weight = work.weight + work.accumulate
    partly = 1.0 - plan.recompute_layers
    again = plan.recompute_layers * (forward - work.unread) + partly * (
        plan.recompute_attention * (1.0 - settings.kernels.flash_attention) * work.core_forward + work.again
    )

    repeats = 1.0 + plan.recompute_layers
    inputs_hidden = ops.minimum(moved.tensor_inputs, work.data)
    tensor = moved.tensor_forward + moved.tensor_again + moved.tensor_backward + moved.tensor_inputs - inputs_hidden
    context = repeats * moved.context_forward + moved.context_backward
    expert = moved.expert_forward + moved.expert_again + moved.expert_backward
    products = repeats * work.forward + work.data + work.weight
    tensor_hidden = settings.overlap.tensor * ops.minimum(tensor, overlap.tensor * products)
    core = repeats * work.core_forward + work.core_backward
    free = 1.0 - settings.framework.blocking_launches
    context_hidden = free * attention.is_ring(settings) * ops.minimum(context, overlap.context * core)
    computed = forward + again + data + weight
    beside = ops.maximum(settings.overlap.experts, schedules.pairs_directions(plan.schedule))
    # without a pipeline the first forward and the last backward pass have none beside them (NVIDIA/Megatron-LM@d98e8a6
    # megatron/core/pipeline_parallel/combined_1f1b.py)
    accompanied = 1.0 - ops.where(plan.pipeline > 1.0, 0.0, 1.0 / layout.micro_batches(settings, plan))
    under_another = accompanied * ops.minimum(overlap.accompanied_experts * expert, computed)
    under_its_own = ops.minimum(expert, overlap.experts * (forward + data + weight))
    expert_hidden = free * ops.where(beside > 0.0, ops.maximum(under_another, under_its_own), under_its_own)

    hidden = tensor_hidden + inputs_hidden + context_hidden + expert_hidden
    slowdown = 1.0 + software.compute.contention * hidden / computed
    exposed_tensor = tensor - tensor_hidden
    exposed_context = context - context_hidden
    exposed_expert = expert - expert_hidden

    exposed = exposed_tensor + exposed_context + exposed_expert
    share = moved.tensor_forward + moved.context_forward + moved.expert_forward
    forward_share = share / (tensor + context + expert + 1e-30)
    busy_forward = forward * slowdown + exposed * forward_share
    busy_backward = (again + data + weight) * slowdown + exposed * (1.0 - forward_share)
    crosses = plan.pipeline * plan.pipeline_stride > network.node.size
    across = ops.where((plan.pipeline > 1.0) & crosses, software.host.pipeline_jitter, 0.0)
    slowest = 1.0 + software.host.jitter * ops.log2(plan.tensor) + across * (plan.tensor - 1.0)
    captured = launches.captured_launches(model, settings, plan, software)
    launched = (launches.layer_launches(model, settings, plan, software) - captured) * slowest
    reductions = communication.tensor_reductions(model, model.experts.layers / model.layers)
    eager = reductions - ops.minimum(launches.captured_reductions(model, settings), reductions)
    calls = ops.where(plan.tensor > 1.0, (1.0 + plan.sequence_parallel) * eager, 0.0)
    # modules have as much of a layer's launches as of its time
    made_again = plan.recompute_layers + partly * work.again / forward
    again_host = made_again * software.host.forward
    repeated = 1.0 + communication.repeated_reductions(model, plan, model.experts.layers / model.layers) / reductions
    graphs = settings.kernels.cuda_graphs > 0.0
    graph = ops.where(captured > 0.0, GRAPH_LAUNCH, 0.0)
    of_layer = (1.0 - settings.kernels.captured_iteration) * GRAPH_LAUNCH
    pace, calling = software.host.pace, calls * software.host.collective_call
    hooks = launches.hook_time(settings, model, plan, software)
    rotating, rotating_back = launches.rotation_time(model, settings, plan, software)
    launching_forward = graph + pace * (launched * software.host.forward + calling + hooks + rotating)
    host_forward = ops.where(graphs, of_layer, launching_forward)
    backward = (1.0 + plan.recompute_layers) * hooks + rotating_back + plan.recompute_layers * rotating
    launching = graph + pace * (launched * (software.host.backward + again_host) + repeated * calling + backward)
    host_backward = ops.where(graphs, of_layer, launching)
    # the host runs ahead from one pass into the next, but for a pipeline, where it waits for what it sends and receives, for
    # experts whose products need the number of their tokens, for outliers among what is multiplied in 8 bit, and for the lengths
    # of samples that are rotated one by one
    within = ops.maximum(launches.counted_tokens(model, settings), settings.adapter.eighth)
    within = ops.maximum(within, ops.where(rotating > 0.0, 1.0, 0.0))
    ahead = ops.where(plan.pipeline > 1.0, 0.0, 1.0 - within)
    share = host_forward / (host_forward + host_backward + 1e-30)
    wait = compute.host_wait(busy_forward + ahead * busy_backward, host_forward + ahead * host_backward)
    wait_forward = ops.where(ahead > 0.0, share * wait, wait)
    wait_backward = ops.where(ahead > 0.0, (1.0 - share) * wait, compute.host_wait(busy_backward, host_backward))
    # a pass backward has about twice the kernels of one forward, and those that are made again
    blocked = launches.PLAIN * launched * software.host.blocked_kernel
    wait_forward = free * wait_forward + (1.0 - free) * (host_forward + blocked)
    wait_backward = free * wait_backward + (1.0 - free) * (host_backward + (2.0 + made_again) * blocked)
    host = wait_forward + wait_backward
    busy = computed * slowdown
    by_weights = weight * slowdown + wait_backward * weight / (again + data + weight)
    return Layer(
        forward * slowdown, data * slowdown, weight * slowdown, again * slowdown,
        exposed_tensor, exposed_context, exposed_expert, host, hidden,
        busy + exposed + host, busy_forward + wait_forward, by_weights,
    )  # fmt: skip


def pressure(held: Number, limit: Number, start: Number) -> Number:
    """How close a rank is to its memory's end, from 0 below a share of it to 1 where it is full.

    The allocator then finds no block to reuse, hands cached ones back to the device and waits for it.

    Parameters
    ----------
    held : by the fullest rank [bytes]
    limit : that a process can use [bytes]
    start : the share

    References
    ----------
    PyTorch c10/cuda/CUDACachingAllocator.cpp, ``num_alloc_retries``
    """
    return ops.minimum(ops.maximum((held / limit - start) / (1.0 - start), 0.0), 1.0)


def step(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
    device: DeviceNumbers, held: Memory | None = None,
) -> Step:  # fmt: skip
    """Time and memory of one training step, `Step`.

    The slowest stage works through every micro-batch; around that, the pipeline fills and drains, gradients and
    weights are exchanged as far as compute doesn't hide it, and the optimizer updates.

    Parameters
    ----------
    software : `Software`; of the group that is named for the memory, nothing where that is known
    held : what the fullest stage holds, `Memory`, where it is known

    Assumes equal stages but for the embedding, the head and one or two layers; micro-batches of equal size;
    every rank alike. To compress gradients takes device time that does not hide under the passes [agarwal2022]_; it counts
    as exchange of gradients. What two pipeline stages share is summed uncompressed.

    References
    ----------
    [agarwal2022]_
    """
    if held is None:
        held = gradients.fullest_stage(model, settings, plan, network, software, layout.micro_batches(settings, plan))
    summed = gradients.summed(model, settings, plan, network, software, device)
    return _composed(model, settings, plan, network, software, device, summed, held)


class _Ends(NamedTuple):
    """The embedding and the head on one micro-batch [s], and the share of micro-batches that meet them on either end rank."""

    embed_forward: Number
    embed_backward: Number
    embedding: Number  # all of it
    head_forward: Number
    head_backward: Number
    head_weight: Number
    head: Number  # all of it
    once: Number  # exchange of either over the tensor group
    head_inputs: Number  # what the head gathers again, beside its product
    embedding_on_first: Number
    embedding_on_last: Number
    head_on_first: Number
    head_on_last: Number


class _Stages(NamedTuple):
    """What the first, the last and a middle rank of the pipeline exchange of gradients and weights."""

    front: Synchronised
    back: Synchronised
    inner: Synchronised


class _Slowest(NamedTuple):
    """The slowest rank of the pipeline: which it is, what it holds, and how long one micro-batch takes it [s]."""

    at_front: Number  # 1 where it is the first
    at_back: Number
    is_middle: Number
    has_head: Number  # share of micro-batches
    has_embedding: Number
    layers: Number
    time: Number
    every: Number  # of all ranks
    front: PassSpan
    inner: PassSpan
    back: PassSpan
    down: PassSpan  # of the first rank's first chunk, where it has the last too
    share: Number  # of a rank between, its first chunk's of two


class _Pass(NamedTuple):
    """Exchange of gradients and weights in a micro-batch's passes on the slowest rank [s]: exposed, and hidden."""

    forward: Number
    backward: Number
    forward_hidden: Number
    backward_hidden: Number


class _Filled(NamedTuple):
    """How a pipeline fills and drains [s]: idle, and a micro-batch's forward and backward pass, that by weights apart."""

    idle: Number
    forward: Number
    data: Number
    weight: Number


class _AfterPasses(NamedTuple):
    """Exchange of gradients and weights that the passes of the slowest rank leave for once a step."""

    reduce: Number  # s, of gradients
    gather: Number  # s, of weights
    tied: Number  # s, of an embedding that two ranks share
    mirrored: Number  # s, between ranks that hold the same stages
    frozen: Number  # s, of frozen weights' gradients, which lie beside adapters' in one flat parameter


def _composed(
    model: ModelNumbers, asked: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
    device: DeviceNumbers, summed: Summed, held: Memory,
) -> Step:  # fmt: skip
    """The parts of a step whose gradients and memory are known."""
    settings = lengths.at_work(asked, plan)
    m = layout.micro_batches(settings, plan)
    v = plan.virtual_stages
    piped = ops.where(plan.pipeline > 1.0, 1.0, 0.0)
    one = layer_pass(model, settings, plan, network, software, device)
    ends = _ends(model, settings, plan, network, software, device)
    stages = _synchronised(model, settings, plan, network, software, one, summed)
    send, _ = communication.boundary(model, settings, plan, network, software)
    exposed = piped * send * (1.0 - settings.overlap.pipeline * software.overlap.pipeline)
    slow = _slowest(model, settings, plan, one, ends, stages)
    each = _exchanged_each(stages, slow)

    layers = slow.layers
    forward = m * (layers * one.forward + slow.has_head * ends.head_forward + slow.has_embedding * ends.embed_forward)
    weight = m * (layers * one.weight + slow.has_head * ends.head_weight)
    backward = m * (layers * one.data + slow.has_head * ends.head_backward + slow.has_embedding * ends.embed_backward) + weight
    recompute = m * layers * one.recompute
    tensor = m * (layers * one.tensor + (slow.has_head + slow.has_embedding) * ends.once)
    sparse = layers * model.experts.layers / model.layers
    whole = communication.whole_gradients(model, settings, plan, layers - sparse, sparse, slow.has_head)
    updates = schedules.updates(plan.schedule, m)
    tensor = tensor + updates * collectives.all_reduce(whole, plan.tensor, plan.tensor_stride, network, software)
    context = m * layers * one.context
    expert = m * layers * one.expert
    contention = software.compute.contention
    pass_hidden = each.forward_hidden + each.backward_hidden
    forward_waits = each.forward - contention * each.forward_hidden
    backward_waits = each.backward - contention * each.backward_hidden
    gathering = m * (forward_waits + plan.shard_weights * backward_waits)
    scattering = m * (1.0 - plan.shard_weights) * backward_waits
    waiting = _waiting(settings, software, device, one, held, layers, piped * schedules.crossings(plan.schedule, v), m)

    handing = m * exposed * schedules.messages(plan.schedule, v, 1.0 - slow.is_middle)
    filled = _filled(plan, slow, send, exposed, handing, m)

    after = _after_passes(model, settings, plan, network, software, summed, stages, filled, send)
    reduce_hidden, gather_hidden = stages.front.reduce_hidden, stages.front.gather_hidden
    slowed = contention * (m * pass_hidden + reduce_hidden + gather_hidden + _hidden_in_turn(settings, plan, stages))
    updating = _updating(model, settings, plan, network, software, device, summed, layers, held)
    offloaded = settings.offload.activations * m * layers * activations.kept_activations(
        model, lengths.of_layers(model, settings), plan, software
    )
    transfer = 2.0 * (offloaded + m * _fetched(settings, plan, summed)) / device.host_bandwidth
    work = forward + backward + recompute + tensor + context + expert + gathering + scattering + waiting
    transfer_exposed = ops.maximum(transfer - work, 0.0)
    host = waiting + transfer_exposed + software.host.pace * software.host.step

    backward_total = backward + slowed
    # what slows kernels beside an exchange goes with its bytes
    with_tokens = forward + backward + recompute + tensor + context + expert
    waited_for = lengths.fullest_rank(asked, plan, m) * with_tokens
    once = after.reduce + after.tied + after.frozen + summed.coding
    reduce_exposed = scattering + updates * once + after.mirrored + waited_for
    gather_exposed = updates * after.gather + gathering
    total = (
        forward + backward_total + recompute + tensor + context + expert + handing + filled.idle
        + reduce_exposed + gather_exposed + updating + host
    )  # fmt: skip
    model_flop, hardware_flop = _flop(model, asked, settings, plan)
    return Step(
        total, forward, backward_total, recompute, tensor, context, expert, handing, filled.idle,
        reduce_exposed, gather_exposed, updating, host,
        m * (layers * one.hidden + slow.has_head * ends.head_inputs + pass_hidden) + reduce_hidden + gather_hidden,
        model_flop, hardware_flop, held,
    )  # fmt: skip


def _ends(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
    device: DeviceNumbers,
) -> _Ends:  # fmt: skip
    """Times of the embedding and the head, and which end ranks hold them."""
    head = layer.head_work(model, settings, plan, software, device)
    embed_forward, embed_backward = layer.embedding_work(model, settings, plan, device)
    once = communication.tensor_exchange(model, settings, plan, network, software)
    sent = communication.hidden_message(model, settings, plan)
    inputs = communication.inputs_gathered(settings, plan, network, software, sent)
    head_forward = head.forward + head.stream_forward
    head_backward = head.data + head.stream_backward
    head_weight = head.weight + head.accumulate
    piped = ops.where(plan.pipeline > 1.0, 1.0, 0.0)
    # a micro-batch that may enter at either end meets the embedding and the head of a rank half of the time
    fold = piped * schedules.v_shaped(plan.schedule)
    mirrored = piped * schedules.bidirectional(plan.schedule)
    return _Ends(
        embed_forward, embed_backward, embed_forward + embed_backward + once,
        head_forward, head_backward, head_weight, head_forward + head_backward + head_weight + once, once, inputs,
        1.0 - 0.5 * mirrored, 0.5 * mirrored,
        1.0 - piped + fold * (1.0 - 0.5 * mirrored), 1.0 - fold + 0.5 * mirrored,
    )  # fmt: skip


def _synchronised(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software, one: Layer,
    summed: Summed,
) -> _Stages:  # fmt: skip
    """What the ranks of a pipeline exchange of gradients and weights, beside passes of so long."""
    chunks = layout.chunks(plan)
    copies = schedules.weight_copies(plan.schedule)
    width = settings.widths.reduce * settings.trainable
    # what compression leaves of a gradient that is summed as gradients are
    wire = summed.nbytes / ops.maximum(summed.dense, 1e-30)
    routed_wire = ops.where(summed.routed > 0.0, summed.routed_nbytes / ops.maximum(summed.routed, 1e-30), width)
    first, last, between = gradients.held_places(model, settings, plan)
    together = synchronisation.replica_groups(plan, settings, network, software)
    units = synchronisation.layer_units(model, settings, plan, *together)
    systems = synchronisation.other_systems(summed.nbytes, summed.routed_nbytes, settings, plan, network, software)
    besides = ExchangeTime(systems.time + summed.encoded, systems.load)
    question = model, settings, plan, software, *together, one, units, besides
    return _Stages(
        synchronisation.stage_synchronisation(
            *question, first.layers / copies, first.experts / copies, 1.0, first.last, chunks, wire, routed_wire
        ),
        synchronisation.stage_synchronisation(
            *question, last.layers / copies, last.experts / copies, last.first, last.last, chunks, wire, routed_wire
        ),
        synchronisation.stage_synchronisation(
            *question, between.layers / copies, between.experts / copies, 0.0, 0.0, chunks, wire, routed_wire
        ),
    )


def _slowest(model: ModelNumbers, settings: Settings, plan: PlanNumbers, one: Layer, ends: _Ends, stages: _Stages) -> _Slowest:
    """The rank of a pipeline that takes longest for a micro-batch: its first, its last or one between them."""
    p = plan.pipeline
    piped = ops.where(p > 1.0, 1.0, 0.0)
    front, back, inner = stages
    first_layers, middle_layers, last_layers = layout.rank_layers(model, settings, plan)
    depth = model.prediction_layers
    with_head = ends.head + depth * one.total
    at_ends = front.forward + front.backward, back.forward + back.backward
    between = inner.forward + inner.backward
    first = first_layers * one.total + ends.embedding_on_first * ends.embedding + ends.head_on_first * with_head
    first = first + at_ends[0]
    last = last_layers * one.total + ends.embedding_on_last * ends.embedding + ends.head_on_last * with_head
    last = last + at_ends[1]
    middle = middle_layers * one.total + between
    edge = ops.maximum(first, piped * last)
    is_middle = ops.where((p > 2.0) & (middle > edge), 1.0, 0.0)
    at_back = ops.where((p > 1.0) & (last >= first), 1.0 - is_middle, 0.0)
    at_front = 1.0 - is_middle - at_back
    has_head = _of(at_front, at_back, ends.head_on_first, 0.0, ends.head_on_last)
    has_embedding = _of(at_front, at_back, ends.embedding_on_first, 0.0, ends.embedding_on_last)
    layers = _of(at_front, at_back, first_layers, middle_layers, last_layers) + has_head * depth
    gathered = at_ends[0] + piped * (at_ends[1] + ops.maximum(p - 2.0, 0.0) * between)
    ahead = ends.head_forward + depth * one.total_forward
    later = ends.head_weight + depth * one.total_weight
    half = ops.ceil(0.5 * first_layers)
    every = (model.layers + depth) * one.total + ends.embedding + ends.head + gathered
    return _Slowest(
        at_front, at_back, is_middle, has_head, has_embedding, layers,
        ops.maximum(edge, is_middle * middle), every,
        PassSpan(
            first_layers * one.total_forward + ends.embedding_on_first * ends.embed_forward + ends.head_on_first * ahead
            + front.forward,
            first_layers * one.total_weight + ends.head_on_first * later + front.weight, first,
        ),
        PassSpan(middle_layers * one.total_forward + inner.forward, middle_layers * one.total_weight + inner.weight, middle),
        PassSpan(
            last_layers * one.total_forward + ends.embedding_on_last * ends.embed_forward + ends.head_on_last * ahead
            + back.forward,
            last_layers * one.total_weight + ends.head_on_last * later + back.weight, last,
        ),
        PassSpan(
            half * one.total_forward + ends.embed_forward + 0.5 * front.forward, half * one.total_weight + 0.5 * front.weight,
            half * one.total + ends.embedding + 0.5 * at_ends[0],
        ),
        ops.ceil(0.5 * middle_layers) / ops.maximum(middle_layers, 1.0),
    )  # fmt: skip


def _of(at_front: Number, at_back: Number, front: Number, inner: Number, back: Number) -> Number:
    """What one rank has, of what the first, those between and the last have."""
    return ops.where(at_front > 0.0, front, ops.where(at_back > 0.0, back, inner))


def _exchanged_each(stages: _Stages, slow: _Slowest) -> _Pass:
    """What the slowest rank exchanges of gradients and weights for every micro-batch."""
    front, back, inner = stages
    at = slow.at_front, slow.at_back
    return _Pass(
        _of(*at, front.forward, inner.forward, back.forward), _of(*at, front.backward, inner.backward, back.backward),
        _of(*at, front.forward_hidden, inner.forward_hidden, back.forward_hidden),
        _of(*at, front.backward_hidden, inner.backward_hidden, back.backward_hidden),
    )


def _waiting(
    settings: Settings, software: Software, device: DeviceNumbers, one: Layer, held: Memory, layers: Number, chunks: Number,
    m: Number,
) -> Number:  # fmt: skip
    """Time in which the slowest rank waits for its host and for memory [s]; `chunks` of it hand a micro-batch on."""
    host = software.host
    flushing = host.pressure_time * pressure(held.total, device.memory, host.pressure_start)
    # a chunk's forward pass ends in one call to its neighbours, its backward pass in another
    # a graph of the whole iteration has every micro-batch's work and memory; the host reads batches ahead of it
    # (NVIDIA/Megatron-LM@00caa53 megatron/core/full_cuda_graph.py, ``FullCudaGraphWrapper``)
    turns = host.pace * (host.micro_batch + 2.0 * chunks * host.pipeline_call) + flushing
    return m * (layers * one.host + (1.0 - settings.kernels.captured_iteration) * turns)


def _filled(plan: PlanNumbers, slow: _Slowest, send: Number, exposed: Number, handing: Number, m: Number) -> _Filled:
    """How long a pipeline fills and drains, each of whose messages takes `send`, of which its sender waits for `exposed`."""
    p, v = plan.pipeline, plan.virtual_stages
    piped = ops.where(p > 1.0, 1.0, 0.0)
    front, inner, back, down = slow.front, slow.inner, slow.back, slow.down
    forward = _of(slow.at_front, slow.at_back, front.forward, inner.forward, back.forward)
    weight = _of(slow.at_front, slow.at_back, front.weight, inner.weight, back.weight)
    data = ops.maximum(slow.time - forward - weight, 0.0)

    way, edge = schedules.crossings(plan.schedule, v), schedules.crossings(plan.schedule, 1.0)
    crossed, missing = way * exposed, edge * exposed
    both = crossed + crossed
    outer = both - missing
    taken = span(
        plan.schedule, p, v, m,
        PassSpan(front.forward + (crossed - missing + exposed), front.weight, front.total + outer),
        PassSpan(inner.forward + crossed, inner.weight, inner.total + both),
        PassSpan(back.forward + (crossed - exposed), back.weight, back.total + outer),
        PassSpan(down.forward + exposed, down.weight, down.total + exposed),
        slow.share, slow.every + (p * both - 2.0 * missing), exposed, send - exposed,
    )  # fmt: skip
    # where micro-batches enter at both ends, or none waits for a flush: ranks alike, those that fill and drain on average
    other = ops.where(p > 1.0, (slow.every - slow.time) / ops.maximum(slow.time * (p - 1.0), 1e-30), 1.0)
    around = schedules.bubble_two_way(plan.schedule, p, other * forward, other * data, other * weight)
    alike = around + 2.0 * (p - 1.0) * send
    one_way = (1.0 - schedules.bidirectional(plan.schedule)) * schedules.flushes(plan.schedule)
    idle = ops.where(one_way > 0.0, ops.maximum(taken - m * slow.time - handing, 0.0), alike)
    return _Filled(piped * idle, forward, data, weight)


def _after_passes(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software, summed: Summed,
    stages: _Stages, filled: _Filled, send: Number,
) -> _AfterPasses:  # fmt: skip
    """What is exchanged once a step of gradients and weights, and not hidden by passes of any rank of the pipeline."""
    p, v, widths = plan.pipeline, plan.virtual_stages, settings.widths
    front, back, inner = stages
    piped = ops.where(p > 1.0, 1.0, 0.0)
    fold = piped * schedules.v_shaped(plan.schedule)
    mirrored = piped * schedules.bidirectional(plan.schedule)
    apart = model.vocabulary.tied * piped * (1.0 - fold)
    table = widths.reduce * model.vocabulary.size * model.hidden / plan.tensor
    opposite = communication.opposite_stride(plan, network)
    tied = apart * collectives.all_reduce(table, 1.0 + piped, opposite, network, software)
    shard, expert_shard = communication.shard_groups(plan)
    width = widths.reduce * settings.trainable
    mirrored_bytes = mirrored * width * (summed.dense / shard + summed.routed / expert_shard)
    mirrored_time = collectives.all_reduce(mirrored_bytes, 1.0 + mirrored, opposite, network, software)
    dense_group, _ = synchronisation.replica_groups(plan, settings, network, software)
    frozen = widths.reduce * adapters.frozen_gradients(settings, plan) * (summed.dense + summed.routed)
    whole = collectives.all_gather_over(frozen, dense_group.scattering)
    # a stage further back ends its last backward pass, and begins its first forward pass, sooner or later than the first one
    backward_once = ops.where(schedules.splits_backward(plan.schedule) > 0.0, ops.maximum(filled.data - filled.weight, 0.0),
                              filled.data + filled.weight)  # fmt: skip
    early = (backward_once / v + send) * (1.0 - schedules.asynchronous(plan.schedule)) * (1.0 - fold)
    late = (filled.forward / v + send) * (1.0 - schedules.asynchronous(plan.schedule)) * (1.0 - fold)
    between = ops.where(p > 2.0, 1.0, 0.0)
    ahead = settings.overlap.parameters
    reduce_inner = between * ops.maximum(inner.reduce - early, 0.0)
    reduce_back = piped * ops.maximum(back.reduce - (p - 1.0) * early, 0.0)
    gather_inner = between * ops.maximum(inner.gather - ahead * late, 0.0)
    gather_back = piped * ops.maximum(back.gather - ahead * (p - 1.0) * late, 0.0)
    return _AfterPasses(
        ops.maximum(ops.maximum(front.reduce, reduce_inner), reduce_back),
        ops.maximum(ops.maximum(front.gather, gather_inner), gather_back),
        tied, mirrored_time, ops.where(frozen > 0.0, dense_group.slowness * whole, 0.0),
    )  # fmt: skip


def _fetched(settings: Settings, plan: PlanNumbers, summed: Summed) -> Number:
    """Bytes of a rank's shard of weights that come from the host for a pass."""
    shard, expert_shard = communication.shard_groups(plan)
    shards = summed.dense / shard + summed.routed / expert_shard
    return settings.offload.parameters * plan.shard_weights * settings.widths.stored * shards


def _hidden_in_turn(settings: Settings, plan: PlanNumbers, stages: _Stages) -> Number:
    """Exchange under the first forward and the last backward passes of ranks behind the first, one after another [s].

    A micro-batch passes all of them as a pipeline fills and drains, so that each slows the step by itself; passes by data alone,
    by which zero-bubble schedules drain, hide none. Of several chunks it is the first's and the last's that fill and drain.
    """
    _, back, inner = stages
    p, chain = plan.pipeline, (1.0 - schedules.v_shaped(plan.schedule)) * schedules.flushes(plan.schedule)
    m = layout.micro_batches(settings, plan)
    of_chunks = 1.0 + (plan.virtual_stages - 1.0) * ops.where(schedules.grouped_by_stages(plan.schedule) > 0.0, p, m)
    piped, between = ops.where(p > 1.0, chain, 0.0), ops.where(p > 2.0, p - 2.0, 0.0)
    whole = 1.0 - schedules.splits_backward(plan.schedule)
    behind = whole * (back.reduce_hidden + between * inner.reduce_hidden) + back.gather_hidden + between * inner.gather_hidden
    return piped * behind / of_chunks


def _updating(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
    device: DeviceNumbers, summed: Summed, layers: Number, held: Memory,
) -> Number:  # fmt: skip
    """Time of the optimizer's updates in a step, on the device and on the host [s].

    The host launches them for every layer of a rank, however small its shards, or adapters, are; not where others update, nor
    where nothing trains.
    """
    widths = settings.widths
    shard, expert_shard = communication.shard_groups(plan)
    updates = schedules.updates(plan.schedule, layout.micro_batches(settings, plan))
    once = ops.where(plan.shard_optimizer > 0.0, 1.0 / schedules.weight_copies(plan.schedule), 1.0)
    updated = once * settings.trainable * (summed.dense / shard + summed.routed / expert_shard)
    served = ops.where(ops.equal(settings.synchronisation.kind, communication.PARAMETER_SERVER), 0.0, 1.0)
    own = ops.where(widths.wide > 0.0, widths.parameter + widths.wide, 0.0)  # weights in 32 bit are their own master copy
    state = widths.optimizer + own + widths.outer / settings.synchronisation.local_steps
    state_bytes = 2.0 * state + 2.0 * widths.gradient + widths.parameter
    on_device = updates * updated * state_bytes * software.compute.optimizer_traffic / device.memory_bandwidth
    sharing_host = ops.minimum(network.node.size, plan.tensor * plan.context * plan.pipeline * plan.data)
    moved_on_host = (widths.gradient + widths.parameter) / device.host_bandwidth
    host_memory = ops.minimum(HOST_MEMORY_OVER_LINK * device.host_bandwidth, settings.framework.host_update_rate)
    on_host = updates * updated * (moved_on_host + sharing_host * state_bytes / host_memory)
    on_device = on_device + updates * update.extra_update_time(
        model, settings, plan, software, device, layers, shard, expert_shard, updated
    )
    launched = ops.where(settings.trainable > 0.0, layers, 0.0)
    on_device = ops.maximum(on_device, updates * launched * update.launching_time(model, settings, plan, software))
    # pages that the passes pushed out come back to be updated, while others leave the other way
    pages = settings.offload.paged * widths.optimizer * updated
    spilled = ops.minimum(ops.maximum(pages + held.total - device.memory, 0.0), pages)
    on_device = on_device + updates * spilled / device.host_bandwidth
    return served * ((1.0 - settings.offload.optimizer) * on_device + settings.offload.optimizer * on_host)


def _flop(model: ModelNumbers, asked: Settings, settings: Settings, plan: PlanNumbers) -> tuple[Number, Number]:
    """Floating-point operations of a step on the whole cluster: the model's, and those with padding and what is recomputed."""
    tokens, attended = settings.global_batch * settings.seq_len, settings.lengths.attended
    power = lengths.position_power(settings)
    useful = settings.global_batch * lengths.useful_tokens(asked.seq_len, asked.lengths)
    model_flop = useful * adapters.model_flop_per_token(model, asked, 0.0)
    worked_flop = tokens * adapters.model_flop_per_token(model, settings, 0.0)
    depth = model.prediction_layers
    layers = (model.layers + depth) * model.layer_tokens
    core = layers * flops.attention_core_flop(model, attended, 0.0, power)
    heads = 2.0 * (1.0 + depth) * model.hidden * model.vocabulary.outputs
    body = flops.forward_flop_per_token(model, attended, 0.0, power) - heads
    modules = layers * 2.0 * flops.module_matrices(model, plan)
    body = body - flops.leaves_last_product(model, settings) * layers * 2.0 * flops.last_matrix(model)
    repeated = plan.recompute_layers * body + (1.0 - plan.recompute_layers) * (plan.recompute_attention * core + modules)
    return model_flop, worked_flop + tokens * repeated

r"""One training step: compute, exchange, bubble, synchronisation, optimizer; and the memory that goes with it."""

from __future__ import annotations

from costmodel import ops
from costmodel.formulas import compute, gradients, synchronisation
from costmodel.formulas.network import collectives, communication
from costmodel.formulas.pipeline import layout, schedules
from costmodel.formulas.quantities import (
    DeviceNumbers,
    Layer,
    Memory,
    ModelNumbers,
    NetworkNumbers,
    Number,
    Part,
    PlanNumbers,
    Settings,
    Software,
    Step,
    Summed,
)
from costmodel.formulas.transformer import activations, adapters, attention, flops, layer, memory, update

PRESSED = 0.9
"""Share of a device's memory beyond which its allocator runs short of blocks to reuse."""
STALL_RANKS = 512.0
"""Ranks at which `Stack.stall_time` is stated; what is measured ends there, and nothing is extrapolated beyond."""

OVERLAPPED_EXPERTS = 0.95
"""Share of the experts' exchange that another micro-batch's work can hide: NVIDIA-NeMo/Megatron-Bridge, on DeepSeek-V3 on H100,
exposed "30-40 % to <5 %"; the compute there is may be less."""
GRAPH_LAUNCH = 2.5e-6
"""Host time to launch a graph of a layer's pass [s]: NVIDIA, "Constant Time Launch for Straight-Line CUDA Graphs" (2024), of
CUDA 12.6 (2.5 us, and 1 ns a kernel)."""
HOST_MEMORY_BANDWIDTH = 117e9
"""Of all processors of a node as they update an optimizer's state [bytes/s]: DeepSpeed's Adam takes 2.57 s for ten billion
parameters, of which it moves 30 bytes each ([ren2021]_ table 4)."""


def layer_pass(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
    device: DeviceNumbers,
) -> Layer:  # fmt: skip
    """An average layer on one micro-batch as the schedule sees it, `Layer` [s].

    Exposed exchange is what its overlap leaves: tensor exchange hides under products where asked for,
    context exchange under the attention core, expert exchange under a share of the compute, or under all of another
    micro-batch's where the plan overlaps the two. Gathers of
    sharded weights are not part of it: `costmodel.formulas.synchronisation`.

    Parameters
    ----------
    model, settings, plan, network, software, device : numbers of the question and of the plan
    """
    overlap = software.overlap
    work = layer.layer_work(model, settings, plan, software, device)
    moved = communication.layer_exchange(model, settings, plan, network, software)
    forward = work.forward + work.core_forward + work.stream_forward
    data = work.data + work.core_backward + work.stream_backward
    weight = work.weight + work.accumulate
    partly = 1.0 - plan.recompute_layers
    again = plan.recompute_layers * forward + partly * (
        plan.recompute_attention * (1.0 - settings.kernels.flash_attention) * work.core_forward + work.again
    )

    repeats = 1.0 + plan.recompute_layers
    tensor = moved.tensor_forward + moved.tensor_again + moved.tensor_backward
    context = repeats * moved.context_forward + moved.context_backward
    expert = moved.expert_forward + moved.expert_again + moved.expert_backward
    products = repeats * work.forward + work.data + work.weight
    tensor_hidden = settings.overlap.tensor * ops.minimum(tensor, overlap.tensor * products)
    context_hidden = ops.minimum(context, overlap.context * (repeats * work.core_forward + work.core_backward))
    computed = forward + again + data + weight
    beside = ops.maximum(settings.overlap.experts, schedules.paired(plan.schedule))
    under_another = ops.minimum(OVERLAPPED_EXPERTS * expert, computed)
    under_its_own = ops.minimum(expert, overlap.experts * (forward + data + weight))
    expert_hidden = ops.where(beside > 0.0, ops.maximum(under_another, under_its_own), under_its_own)

    hidden = tensor_hidden + context_hidden + expert_hidden
    slowdown = 1.0 + software.compute.contention * hidden / computed
    exposed_tensor = tensor - tensor_hidden
    exposed_context = context - context_hidden
    exposed_expert = expert - expert_hidden

    exposed = exposed_tensor + exposed_context + exposed_expert
    share = moved.tensor_forward + moved.context_forward + moved.expert_forward
    forward_share = share / (tensor + context + expert + 1e-30)
    busy_forward = forward * slowdown + exposed * forward_share
    busy_backward = (again + data + weight) * slowdown + exposed * (1.0 - forward_share)
    fused = attention.softmax_is_fused(settings, model.attention.heads / plan.tensor, plan)
    separate = (1.0 - settings.kernels.flash_attention) * (1.0 - fused)
    jitter = software.host.jitter + ops.where(plan.pipeline > 1.0, software.host.pipeline_jitter, 0.0)
    launches = (1.0 + software.host.unfused_launches * separate) * (1.0 + jitter * (plan.tensor - 1.0))
    reductions = communication.tensor_reductions(model, model.experts.layers / model.layers)
    calls = ops.where(plan.tensor > 1.0, (1.0 + plan.sequence_parallel) * reductions, 0.0)
    # modules have as much of a layer's launches as of its time
    again_host = (plan.recompute_layers + partly * work.again / forward) * software.host.forward
    repeated = 1.0 + communication.repeated_reductions(model, plan, model.experts.layers / model.layers) / reductions
    graphs = settings.kernels.cuda_graphs > 0.0
    host_forward = ops.where(graphs, GRAPH_LAUNCH, launches * software.host.forward + calls * software.host.collective_launch)
    launching = launches * (software.host.backward + again_host) + repeated * calls * software.host.collective_launch
    host_backward = ops.where(graphs, GRAPH_LAUNCH, launching)
    # the host runs ahead from one pass into the next, but for a pipeline, where it waits for what it sends and receives
    ahead = ops.where(plan.pipeline > 1.0, 0.0, 1.0)
    share = host_forward / (host_forward + host_backward + 1e-30)
    wait = compute.host_wait(busy_forward + ahead * busy_backward, host_forward + ahead * host_backward)
    wait_forward = ops.where(ahead > 0.0, share * wait, wait)
    wait_backward = ops.where(ahead > 0.0, (1.0 - share) * wait, compute.host_wait(busy_backward, host_backward))
    host = wait_forward + wait_backward
    busy = computed * slowdown
    return Layer(
        forward * slowdown, data * slowdown, weight * slowdown, again * slowdown,
        exposed_tensor, exposed_context, exposed_expert, host, hidden,
        busy + exposed + host, busy_forward + wait_forward, moved.nbytes,
    )  # fmt: skip


def pressure(held: Number, limit: Number) -> Number:
    """How close a rank is to its memory's end, from 0 below `PRESSED` of it to 1 where it is full.

    The allocator then finds no block to reuse, hands cached ones back to the device and waits for it.

    Parameters
    ----------
    held : by the fullest rank [bytes]
    limit : that a process can use [bytes]

    References
    ----------
    PyTorch c10/cuda/CUDACachingAllocator.cpp, ``num_alloc_retries``
    """
    return ops.minimum(ops.maximum((held / limit - PRESSED) / (1.0 - PRESSED), 0.0), 1.0)


def step(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
    device: DeviceNumbers,
) -> Step:  # fmt: skip
    """Time and memory of one training step, `Step`.

    The slowest stage works through every micro-batch; around that, the pipeline fills and drains, gradients and
    weights are exchanged as far as compute doesn't hide it, and the optimizer updates.

    Parameters
    ----------
    model : `ModelNumbers`
    settings : `Settings`
    plan : `PlanNumbers`
    network : `NetworkNumbers`
    software : `Software`
    device : `DeviceNumbers`

    Assumes equal stages but for the embedding, the head and one or two layers; micro-batches of equal size;
    every rank alike. To compress gradients takes device time that does not hide under the passes [agarwal2022]_; it counts
    as exchange of gradients. What two pipeline stages share is summed uncompressed.

    References
    ----------
    [agarwal2022]_
    """
    summed = gradients.compressed(model, settings, plan, network, software, device)
    held = gradients.fullest_stage(model, settings, plan, network, software, layout.micro_batches(settings, plan))
    return _composed(model, settings, plan, network, software, device, summed, held)


def uncompressed_step(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
    device: DeviceNumbers,
) -> Step:  # fmt: skip
    """As `step`, for settings without compression of gradients, and in half of the time.

    Parameters
    ----------
    model, settings, plan, network, software, device : numbers of the question and of the plan
    """
    held = memory.fullest_stage(model, settings, plan, network, software, layout.micro_batches(settings, plan))
    summed = gradients.uncompressed(model, settings, plan)
    return _composed(model, settings, plan, network, software, device, summed, held)


def _composed(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, network: NetworkNumbers, software: Software,
    device: DeviceNumbers, summed: Summed, held: Memory,
) -> Step:  # fmt: skip
    """The parts of a step whose gradients and memory are known."""
    widths = settings.widths
    m = layout.micro_batches(settings, plan)
    p, v = plan.pipeline, plan.virtual_stages
    piped = ops.where(p > 1.0, 1.0, 0.0)
    one = layer_pass(model, settings, plan, network, software, device)
    head = layer.head_work(model, settings, plan, software, device)
    embed_forward, embed_backward = layer.embedding_work(model, settings, plan, device)
    tensor_once, tensor_bytes = communication.tensor_exchange(model, settings, plan, network, software)

    head_forward = head.forward + head.stream_forward
    head_backward = head.data + head.stream_backward
    head_weight = head.weight + head.accumulate
    head_total = head_forward + head_backward + head_weight + tensor_once
    embed_total = embed_forward + embed_backward + tensor_once
    first_layers, middle_layers, last_layers = layout.rank_layers(model, settings, plan)
    depth = model.prediction_layers
    # a micro-batch that may enter at either end meets the embedding and the head of a rank half of the time
    fold = piped * schedules.folded(plan.schedule)
    mirrored = piped * schedules.two_way(plan.schedule)
    head_on_first = 1.0 - piped + fold * (1.0 - 0.5 * mirrored)
    head_on_last = 1.0 - fold + 0.5 * mirrored
    embedding_on_first = 1.0 - 0.5 * mirrored
    embedding_on_last = 0.5 * mirrored
    with_head = head_total + depth * one.total
    copies = schedules.weight_copies(plan.schedule)
    width = widths.reduce * settings.trainable
    # what compression leaves of a gradient that is summed as gradients are
    wire = summed.nbytes / ops.maximum(summed.dense, 1e-30)
    routed_wire = ops.where(summed.routed > 0.0, summed.routed_nbytes / ops.maximum(summed.routed, 1e-30), width)
    chunks = v * (1.0 + fold * (1.0 - 0.5 * mirrored) - 0.5 * fold * mirrored)
    ends = gradients.ends(model, settings, plan)
    together = synchronisation.holders(plan, settings, network, software)
    units = synchronisation.layer_units(model, settings, plan, *together)
    systems = synchronisation.other_systems(summed.nbytes, summed.routed_nbytes, settings, plan, network, software)
    besides = Part(systems.time + summed.encoded, systems.load, systems.sent + summed.sent)
    question = model, settings, plan, software, *together, one, units, besides
    front = synchronisation.stage_synchronisation(
        *question, ends[0][0] / copies, 1.0, ends[0][2], chunks, wire, routed_wire
    )
    back = synchronisation.stage_synchronisation(
        *question, ends[1][0] / copies, ends[1][1], ends[1][2], chunks, wire, routed_wire
    )
    inner = synchronisation.stage_synchronisation(*question, middle_layers, 0.0, 0.0, chunks, wire, routed_wire)
    first = first_layers * one.total + embedding_on_first * embed_total + head_on_first * with_head
    first = first + front.forward + front.backward
    last = last_layers * one.total + embedding_on_last * embed_total + head_on_last * with_head
    last = last + back.forward + back.backward
    middle = middle_layers * one.total + inner.forward + inner.backward
    is_last = ops.where((p > 1.0) & (last >= first), 1.0, 0.0)
    edge = ops.maximum(first, piped * last)
    is_middle = ops.where((p > 2.0) & (middle > edge), 1.0, 0.0)
    has_head = (1.0 - is_middle) * (is_last * head_on_last + (1.0 - is_last) * head_on_first)
    has_embedding = (1.0 - is_middle) * (is_last * embedding_on_last + (1.0 - is_last) * embedding_on_first)
    edge_layers = is_last * last_layers + (1.0 - is_last) * first_layers
    layers = is_middle * middle_layers + (1.0 - is_middle) * edge_layers + has_head * depth
    slowest = ops.maximum(edge, is_middle * middle)
    gathered = front.forward + front.backward + piped * (
        back.forward + back.backward + ops.maximum(p - 2.0, 0.0) * (inner.forward + inner.backward)
    )
    every = (model.layers + depth) * one.total + embed_total + head_total + gathered

    forward = m * (layers * one.forward + has_head * head_forward + has_embedding * embed_forward)
    weight = m * (layers * one.weight + has_head * head_weight)
    backward = m * (layers * one.data + has_head * head_backward + has_embedding * embed_backward) + weight
    recompute = m * layers * one.recompute
    tensor = m * (layers * one.tensor + (has_head + has_embedding) * tensor_once)
    context = m * layers * one.context
    expert = m * layers * one.expert
    at_front, at_back = (1.0 - is_middle) * (1.0 - is_last), (1.0 - is_middle) * is_last
    pass_forward = at_front * front.forward + at_back * back.forward + is_middle * inner.forward
    pass_backward = at_front * front.backward + at_back * back.backward + is_middle * inner.backward
    under_forward = at_front * front.forward_hidden + at_back * back.forward_hidden + is_middle * inner.forward_hidden
    under_backward = at_front * front.backward_hidden + at_back * back.backward_hidden + is_middle * inner.backward_hidden
    contention = software.compute.contention
    sharded, pass_hidden = plan.shard_weights, under_forward + under_backward
    forward_waits, backward_waits = pass_forward - contention * under_forward, pass_backward - contention * under_backward
    gathering = m * (forward_waits + sharded * backward_waits)
    scattering = m * (1.0 - sharded) * backward_waits
    gpus = plan.tensor * plan.context * plan.pipeline * plan.data
    crowd = ops.minimum(gpus / STALL_RANKS, 1.0)
    stall = (1.0 - 1.0 / p) * software.host.straggler_time * crowd * crowd * crowd
    flushing = software.host.pressure_time * pressure(held.total, device.memory)
    waiting = m * (layers * one.host + software.host.micro_batch + stall + flushing)

    send, boundary_bytes = communication.boundary(model, settings, plan, network, software)
    hide = settings.overlap.pipeline * software.overlap.pipeline
    # where transfers aren't hidden a rank waits for those of its neighbours too
    handing = piped * 2.0 * m * schedules.crossings(plan.schedule, v) * send * (1.0 - hide)
    messages = piped * m * schedules.messages(plan.schedule, v, 1.0 - is_middle)
    weight_once = weight / m + at_front * front.weight + at_back * back.weight + is_middle * inner.weight
    forward_once = layers * one.total_forward + has_head * head_forward + has_embedding * embed_forward + pass_forward
    data_once = ops.maximum(slowest - forward_once - weight_once, 0.0)
    uniform = schedules.bubble(plan.schedule, p, v, forward_once, data_once, weight_once)
    mean_other = (every - slowest) / ops.maximum(slowest * (p - 1.0), 1e-30)
    filling = piped * (uniform * ops.where(p > 1.0, mean_other, 1.0) + 2.0 * (p - 1.0) * send)

    dense, routed = summed.dense, summed.routed
    apart = model.vocabulary.tied * piped * (1.0 - fold)
    table = widths.reduce * model.vocabulary.size * model.hidden / plan.tensor
    opposite = communication.opposite_stride(plan, network)
    tied = apart * collectives.all_reduce(table, 1.0 + piped, opposite, network, software)
    updates = schedules.updates(plan.schedule, m)
    passes = m / copies  # of each stage that a rank runs
    shard, expert_shard = communication.shards(plan)
    twin_bytes = mirrored * width * (dense / shard + routed / expert_shard)
    twin = collectives.all_reduce(twin_bytes, 1.0 + mirrored, opposite, network, software)
    # a stage further back ends its last backward pass, and begins its first forward pass, sooner or later than the first one
    backward_once = ops.where(schedules.splits_backward(plan.schedule) > 0.0, ops.maximum(data_once - weight_once, 0.0),
                              data_once + weight_once)  # fmt: skip
    early = (backward_once / v + send) * (1.0 - schedules.staggered(plan.schedule)) * (1.0 - fold)
    late = (forward_once / v + send) * (1.0 - schedules.staggered(plan.schedule)) * (1.0 - fold)
    between = ops.where(p > 2.0, 1.0, 0.0)
    ahead = settings.overlap.parameters
    reduce_inner = between * ops.maximum(inner.reduce - early, 0.0)
    reduce_back = piped * ops.maximum(back.reduce - (p - 1.0) * early, 0.0)
    gather_inner = between * ops.maximum(inner.gather - ahead * late, 0.0)
    gather_back = piped * ops.maximum(back.gather - ahead * (p - 1.0) * late, 0.0)
    reducing = ops.maximum(ops.maximum(front.reduce, reduce_inner), reduce_back)
    getting = ops.maximum(ops.maximum(front.gather, gather_inner), gather_back)
    reduce_hidden, gather_hidden = front.reduce_hidden, front.gather_hidden
    slowed = contention * (m * pass_hidden + reduce_hidden + gather_hidden)

    once = ops.where(plan.shard_optimizer > 0.0, 1.0 / copies, 1.0)
    updated = once * settings.trainable * (dense / shard + routed / expert_shard)
    served = ops.where(ops.equal(settings.synchronisation.kind, communication.PARAMETER_SERVER), 0.0, 1.0)
    state = widths.optimizer + widths.outer / settings.synchronisation.local_steps
    state_bytes = 2.0 * state + 2.0 * widths.gradient + widths.parameter
    on_device = updates * updated * state_bytes * software.compute.optimizer_traffic / device.memory_bandwidth
    sharing_host = ops.minimum(network.node.size, gpus)
    moved_on_host = (widths.gradient + widths.parameter) / device.host_bandwidth
    on_host = updates * updated * (moved_on_host + sharing_host * state_bytes / HOST_MEMORY_BANDWIDTH)
    on_device = on_device + updates * update.kind_time(
        model, settings, plan, software, device, layers, shard, expert_shard, updated
    )
    updating = served * ((1.0 - settings.offload.optimizer) * on_device + settings.offload.optimizer * on_host)
    offloaded = settings.offload.activations * m * layers * activations.kept_activations(model, settings, plan, software)
    transfer = 2.0 * offloaded / device.host_bandwidth
    work = forward + backward + recompute + tensor + context + expert + gathering + scattering + waiting
    transfer_exposed = ops.maximum(transfer - work, 0.0)
    host = waiting + transfer_exposed + software.host.step

    backward_total = backward + slowed
    reduce_exposed = scattering + updates * (reducing + tied + summed.coding) + twin
    gather_exposed = updates * getting + gathering
    total = (
        forward + backward_total + recompute + tensor + context + expert + handing + filling
        + reduce_exposed + gather_exposed + updating + host
    )  # fmt: skip
    sent = (
        m * layers * one.nbytes
        + m * (has_head + has_embedding) * tensor_bytes + messages * boundary_bytes
        + passes * (at_front * front.sent_each + at_back * back.sent_each + is_middle * inner.sent_each)
        + updates * (at_front * front.sent_once + at_back * back.sent_once + is_middle * inner.sent_once)
        + updates * apart * table + twin_bytes
    )  # fmt: skip
    tokens = settings.global_batch * settings.seq_len
    model_flop = tokens * adapters.model_flop_per_token(model, settings, 0.0)
    core = (model.layers + depth) * flops.attention_core_flop(model, settings.seq_len, 0.0)
    heads = 2.0 * (1.0 + depth) * model.hidden * model.vocabulary.size
    body = flops.forward_flop_per_token(model, settings.seq_len, 0.0) - heads
    modules = (model.layers + depth) * 2.0 * flops.module_matrices(model, plan)
    repeated = plan.recompute_layers * body + (1.0 - plan.recompute_layers) * (plan.recompute_attention * core + modules)
    return Step(
        total, forward, backward_total, recompute, tensor, context, expert, handing, filling,
        reduce_exposed, gather_exposed, updating, host,
        m * (layers * one.hidden + pass_hidden) + reduce_hidden + gather_hidden, sent,
        model_flop, model_flop + tokens * repeated, held,
    )  # fmt: skip

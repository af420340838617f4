r"""Device time of one transformer layer, and of what surrounds the layers, on one rank."""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas import compute
from costmodel.formulas.pipeline import layout
from costmodel.formulas.quantities import DeviceNumbers, ModelNumbers, Number, PlanNumbers, Settings, Software, Work
from costmodel.formulas.transformer import adapters, attention, flops, lengths, parameters, recurrent, traffic
from costmodel.formulas.transformer.repetition import experts_again


def product(
    m: Number, n: Number, k: Number, settings: Settings, plan: PlanNumbers, software: Software, device: DeviceNumbers,
) -> tuple[Number, Number, Number]:  # fmt: skip
    """A weight product in training: forward, data gradient and weight gradient [s each].

    Parameters
    ----------
    m : tokens
    n, k : outputs and inputs of the weight

    A frozen weight in 8 bit is multiplied so forward, and backward in the width of what it read: in 32 bit outside tensor cores
    behind norms that are in 32, which nothing casts in a backward pass.

    References
    ----------
    bitsandbytes-foundation/bitsandbytes 0.50.2 bitsandbytes/autograd/_functions.py (``MatMul8bitLt``)
    """
    rate = compute.product_rate(software.compute.gemm_efficiency_scale, device)
    width, eighth = settings.widths.compute, settings.adapter.eighth
    faster, wide = eighth * (device.int8_flop_rate / device.flop_rate - 1.0), eighth * (settings.widths.residual - width)
    forward = compute.gemm(m, n, k, width - eighth * (width - 1.0), rate * (1.0 + faster), device)
    data = compute.gemm(m, k, n, width, rate, device)
    full = compute.vector_gemm(m, k, n, settings.widths.residual, device.vector_flop_rate * device.sustained_clock, device)
    data = ops.where(wide > 0.0, full, data)
    weight = compute.gemm(n, k, m, width, rate, device, added_bytes(settings, plan))
    return forward, data, weight


def deferred_sums(settings: Settings, plan: PlanNumbers) -> Number:
    """1 where a pipeline waits for the last micro-batch with the sums of gradients that are sharded then.

    References
    ----------
    pytorch/pytorch@0138610 torch/distributed/pipelining/stage.py, ``backward_maybe_with_nosync``: FSDP's modules neither reduce
    gradients nor reshard weights in a stage's backward passes, but after the last of them
    """
    return plan.shard_gradients * settings.framework.deferred_sums * ops.where(plan.pipeline > 1.0, 1.0, 0.0)


def sharded_gradients(settings: Settings, plan: PlanNumbers) -> Number:
    """1 where gradients are summed after every micro-batch and a rank keeps its part: from ZeRO-2 on, if none wait."""
    return plan.shard_gradients - deferred_sums(settings, plan)


def fused_accumulation(settings: Settings, plan: PlanNumbers) -> Number:
    """1 where the products of weight gradients add them to the accumulated ones; sharded gradients other kernels add.

    References
    ----------
    NVIDIA-NeMo/Megatron-Bridge#1386, which turns it off under Megatron-FSDP
    """
    return settings.framework.fused_accumulation * (1.0 - sharded_gradients(settings, plan))


def added_bytes(settings: Settings, plan: PlanNumbers) -> Number:
    """Bytes of an accumulated gradient that the product which makes another reads and writes; 0 where other kernels add it."""
    return 2.0 * fused_accumulation(settings, plan) * settings.widths.gradient


def expert_product(
    groups: Number, m: Number, n: Number, k: Number, settings: Settings, plan: PlanNumbers, software: Software,
    device: DeviceNumbers,
) -> tuple[Number, Number, Number]:  # fmt: skip
    """As `product`, for `groups` experts with `m` tokens each: one by one, or in one kernel for all.

    Parameters
    ----------
    groups : experts on this rank
    m : tokens of one expert
    n, k : outputs and inputs of the weight

    Returns
    -------
    forward, data, weight
        times of the product, and of the gradients of its input and of its weight [s]

    Assumptions
    -----------
    Products of experts that run one by one don't overlap, though several streams may carry them, and take no host time beyond
    `HostConstants.expert_launches`, a mean over both ways. Kernels for groups, and those that fuse what surrounds the products,
    are as fast as the faster of the two: those of training were not measured by themselves.

    References
    ----------
    NVIDIA/TransformerEngine#853, #1386: cuBLAS for each expert on several streams, which at sizes of training beats kernels for
    groups; MooreThreads/SimuMax@4dcaae513b configs/system/a100_pcie.json (``group_matmul``): its groups of experts take 0.95 to
    1.0 of the products one by one.
    """
    quality, width = software.compute.gemm_efficiency_scale, settings.widths.compute
    rate = compute.grouped_product_rate(quality, device)
    forward = compute.grouped_gemm(groups, m, n, k, width, rate, device)
    data = compute.grouped_gemm(groups, m, k, n, width, rate, device)
    weight = compute.grouped_gemm(groups, n, k, m, width, rate, device, added_bytes(settings, plan))
    met = groups * ops.minimum(m, 1.0)  # that have a token, where there are fewer tokens than experts
    alone = product(ops.maximum(m, 1.0), n, k, settings, plan, software, device)
    together = traffic.experts_together(settings)
    return (
        ops.where(together > 0.0, ops.minimum(forward, met * alone[0]), met * alone[0]),
        ops.where(together > 0.0, ops.minimum(data, met * alone[1]), met * alone[1]),
        ops.where(together > 0.0, ops.minimum(weight, met * alone[2]), met * alone[2]),
    )


def attention_projections(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, software: Software, device: DeviceNumbers,
) -> tuple[Number, Number, Number, Number]:  # fmt: skip
    """Forward, data-gradient and weight-gradient time of an average layer's projections around the attention core [s].

    Last the forward time of those that make queries, keys and values from the latent, 0 where there is none.
    """
    tokens = lengths.local_tokens(settings, plan)
    heads = model.attention.heads / plan.tensor
    kv_heads = model.attention.kv_heads / parameters.key_holders(model, plan.tensor)
    latent = model.attention.latent > 0.0
    queries = heads * model.attention.head_dim
    query_inputs = ops.where(model.attention.query_latent > 0.0, model.attention.query_latent, model.hidden)
    expanded = heads * (model.attention.head_dim - model.attention.rope_head_dim + model.attention.value_head_dim)
    compressed = model.attention.kv_latent + model.attention.rope_head_dim
    # Each rank makes all of the indexer's queries, from the same latent; its key and weights are a hundredth of them.
    index = model.attention.index_heads * model.attention.index_head_dim
    apart = ops.where(latent, 0.0, settings.framework.separate_projections)
    keys = kv_heads * model.attention.head_dim
    values = model.attention.value_rows
    gate = model.attention.gate * heads * model.attention.value_head_dim
    first = product(
        tokens, ops.where(latent, queries + index, queries + gate + (1.0 + values) * (1.0 - apart) * keys),
        ops.where(latent, query_inputs, model.hidden), settings, plan, software, device,
    )  # fmt: skip
    alone = product(tokens, keys, model.hidden, settings, plan, software, device)
    down = product(
        tokens, ops.where(latent, model.attention.query_latent + compressed, 0.0), model.hidden, settings, plan, software, device
    )
    up = product(tokens, ops.where(latent, expanded, 0.0), model.attention.kv_latent, settings, plan, software, device)
    attended = settings._replace(widths=settings.widths._replace(residual=settings.widths.activation))  # by kernels in 16 bit
    out = product(tokens, model.hidden, heads * model.attention.value_head_dim, attended, plan, software, device)
    share = model.attention.share
    return (
        share * (first[0] + (1.0 + values) * apart * alone[0] + down[0] + up[0] + out[0]),
        share * (first[1] + (1.0 + values) * apart * alone[1] + down[1] + up[1] + out[1]),
        share * (first[2] + (1.0 + values) * apart * alone[2] + down[2] + up[2] + out[2]),
        ops.where(latent, share * (first[0] + up[0]), 0.0),
    )


def mlp(
    model: ModelNumbers, width: Number, settings: Settings, plan: PlanNumbers, software: Software,
    device: DeviceNumbers,
) -> tuple[Number, Number, Number]:  # fmt: skip
    """Forward, data-gradient and weight-gradient time of a dense MLP of the given local width [s].

    Parameters
    ----------
    width : inner width on this rank [channels]
    """
    tokens = lengths.local_tokens(settings, plan)
    products = gate_and_up(model, settings)
    up = product(tokens, (1.0 + model.mlp.gated) / products * width, model.hidden, settings, plan, software, device)
    down = product(tokens, ops.where(width > 0.0, model.hidden, 0.0), width, settings, plan, software, device)
    return products * up[0] + down[0], products * up[1] + down[1], products * up[2] + down[2]


def dense_mlp(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, software: Software, device: DeviceNumbers,
) -> tuple[Number, Number, Number]:  # fmt: skip
    """As `mlp`, of an average layer without experts."""
    forward, data, weight = mlp(model, model.mlp.width / plan.tensor, settings, plan, software, device)
    return model.mlp.share * forward, model.mlp.share * data, model.mlp.share * weight


def gate_and_up(model: ModelNumbers, settings: Settings) -> Number:
    """Products that make what an MLP's activation reads: one, or two where gate and up are apart."""
    return 1.0 + settings.framework.separate_projections * model.mlp.gated


def experts(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, software: Software, device: DeviceNumbers,
) -> tuple[Number, Number, Number]:  # fmt: skip
    """Forward, data-gradient and weight-gradient time of router and routed experts of one layer [s]."""
    groups = model.experts.number / plan.expert
    tokens = lengths.expert_tokens(model, settings, plan)
    width = model.experts.width / plan.expert_tensor
    products = gate_and_up(model, settings)
    inner = (1.0 + model.mlp.gated) / products * width
    up = expert_product(groups, tokens, inner, model.hidden, settings, plan, software, device)
    down = expert_product(groups, tokens, model.hidden, width, settings, plan, software, device)
    router = product(lengths.norm_tokens(settings, plan), model.experts.number, model.hidden, settings, plan, software, device)
    return (
        products * up[0] + down[0] + router[0],
        products * up[1] + down[1] + router[1],
        products * up[2] + down[2] + router[2],
    )


def gradient_accumulation_bytes(nparameters: Number, settings: Settings, plan: PlanNumbers) -> Number:
    """Bytes that kernels of their own move to add one micro-batch's weight gradients to the accumulated ones [bytes].

    They read both and write the sum; none where the products themselves add. Where a framework says what it moves, that.

    Parameters
    ----------
    nparameters : parameters on this rank

    Assumptions
    -----------
    Gradients that are freed after the update come up as the first micro-batch makes them, and nothing is added; copies that
    DistributedDataParallel's buckets take on their way stand in for that. Where a rank keeps its shard of them, they are copied
    to where they are summed, and what is added is as small as the shard.

    References
    ----------
    pytorch/pytorch v2.13.0 torch/csrc/autograd/functions/accumulate_grad.h, ``AccumulateGrad::accumulateGrad``;
    torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, ``foreach_reduce_scatter_copy_in``
    """
    widths, lazy = settings.widths, settings.framework.lazy_gradients
    alone = ops.where(plan.data > 1.0, 0.0, 1.0)
    summed = (2.0 * widths.gradient + widths.activation) * (1.0 - lazy * alone / layout.micro_batches(settings, plan))
    each = ops.where(lazy * sharded_gradients(settings, plan) > 0.0, widths.activation + widths.reduce, summed)
    added = (1.0 - fused_accumulation(settings, plan)) * each
    said = settings.framework.weight_traffic
    return ops.where(said > 0.0, said, added) * settings.trainable * nparameters


def layer_work(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, software: Software, device: DeviceNumbers,
) -> Work:  # fmt: skip
    """Device time of an average layer, `Work` [s]: dense and expert layers in their proportion."""
    share = model.experts.layers / model.layers
    projections = attention_projections(model, settings, plan, software, device)
    dense = dense_mlp(model, settings, plan, software, device)
    shared = mlp(model, model.experts.shared_width / plan.tensor, settings, plan, software, device)
    routed = experts(model, settings, plan, software, device)
    forward = projections[0] + (1.0 - share) * dense[0] + share * (shared[0] + routed[0])
    data = projections[1] + (1.0 - share) * dense[1] + share * (shared[1] + routed[1])
    trained = 1.0 - settings.adapter.frozen
    weight = trained * (projections[2] + (1.0 - share) * dense[2] + share * (shared[2] + routed[2]))
    core_forward, core_backward = attention.core(model, lengths.local_tokens(settings, plan), settings, plan, software, device)
    state, scan, scan_back, state_moved = recurrent.work(
        model, lengths.local_tokens(settings, plan), settings, plan, software, device
    )
    forward, data, weight = forward + state + scan, data + state + scan_back, weight + trained * state
    moved, cast = traffic.elementwise_bytes(model, settings, plan), traffic.cast_bytes(model, settings, plan, software)
    between, back = traffic.between_products(moved, model, settings)
    repeated = software.compute.elementwise_traffic
    casts = cast.attention + cast.mlp + share * (cast.permuted + cast.activated + cast.shared_experts - cast.mlp)
    reached = ops.minimum(device.cast_bandwidth, device.cache_bandwidth)
    local = layer_parameters(model, plan)
    copies, widened = traffic.weight_casts(local, trained, settings, device)
    streams = compute.stream(repeated * between, 6.0, device) + casts / reached + state_moved + copies
    streams_back = compute.stream(repeated * back, 12.0, device) + 2.0 * casts / reached + 2.0 * state_moved + widened
    accumulate = gradient_accumulation_bytes(local, settings, plan) / device.memory_bandwidth
    beside = adapters.adapter_work(model, settings, plan, lengths.local_tokens(settings, plan), device)
    unpacked = adapters.dequantisation(settings, local, device)
    again_unpacked = (1.0 - settings.adapter.keep_unpacked) * unpacked
    eighth = adapters.eighth_casts(model, settings, plan, lengths.local_tokens(settings, plan), device)
    unpacked = (1.0 - settings.adapter.eighth) * unpacked + eighth
    forward, data, weight = forward + beside[0] + unpacked, data + beside[1] + again_unpacked, weight + beside[2]
    moved_again, cast_again = traffic.repeated_bytes(moved, cast, model, plan)
    of_experts = experts_again(plan)
    sparse = of_experts.routed * routed[0] + of_experts.shared * shared[0]
    again = plan.recompute_latent_projections * projections[3] + (1.0 - share) * plan.recompute_mlp * dense[0] + share * sparse
    again = again + repeated * moved_again / device.memory_bandwidth + cast_again / reached
    first, second = flops.repeated_shares(model)
    inside = (1.0 - share) * dense[0] + share * (shared[0] + routed[0])
    every = first * (projections[0] + state) + scan + second * inside + streams
    again = again + plan.recompute_operators * (every - again)
    unread = (1.0 - share) * flops.leaves_last_product(model, settings) * flops.last_product(model) * dense[0]
    share = model.attention.share
    return Work(
        forward, data, weight, share * core_forward, share * core_backward, streams, streams_back, accumulate, again, unread,
    )  # fmt: skip


def layer_parameters(model: ModelNumbers, plan: PlanNumbers) -> Number:
    """Parameters of an average layer on one rank, unsharded by data parallelism."""
    others, experts = layer_parameters_apart(model, plan)
    return others + experts


def layer_parameters_apart(model: ModelNumbers, plan: PlanNumbers) -> tuple[Number, Number]:
    """Parameters of an average layer on one rank: outside the routed experts, and in them."""
    share = model.experts.layers / model.layers
    dense = parameters.dense_layer_of_rank(model, plan.tensor)
    sparse = parameters.expert_layer_shared_of_rank(model, plan.tensor)
    return dense + share * (sparse - dense), share * routed_parameters(model, plan)


def routed_parameters(model: ModelNumbers, plan: PlanNumbers) -> Number:
    """Parameters of one layer's routed experts on one rank."""
    return model.experts.number / plan.expert * parameters.mlp_of_rank(model, model.experts.width, plan.expert_tensor)


def head_work(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, software: Software, device: DeviceNumbers,
) -> Work:  # fmt: skip
    """Device time of the vocabulary projection and the loss, `Work` [s]; the projection runs in 16 bit."""
    tokens = lengths.local_tokens(settings, plan)
    rate = compute.base_product_rate(software.compute.gemm_efficiency_scale, device)
    columns = model.vocabulary.outputs / plan.tensor
    forward = compute.base_gemm(tokens, columns, model.hidden, rate, device)
    data = compute.base_gemm(tokens, model.hidden, columns, rate, device)
    weight = compute.base_gemm(columns, model.hidden, tokens, rate, device, added_bytes(settings, plan))
    passes = 1.0 + model.prediction_layers
    trained = ops.maximum(1.0 - settings.adapter.frozen, settings.adapter.edges)
    logits = tokens * traffic.loss_columns(model, settings, plan)
    loss = compute.stream(logits * traffic.loss_bytes(model, settings, plan), 4.0, device)
    copied, widened = traffic.weight_casts(columns * model.hidden, trained, settings, device)
    data = data + settings.kernels.tiled_loss * forward  # tiles of logits are made again
    accumulate = gradient_accumulation_bytes(columns * model.hidden, settings, plan) / device.memory_bandwidth
    return Work(
        passes * forward, passes * data, trained * passes * weight, 0.0 * tokens, 0.0 * tokens,
        passes * (0.5 * loss + copied), passes * (0.5 * loss + widened), accumulate, 0.0 * tokens, 0.0 * tokens,
    )  # fmt: skip


def embedding_work(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, device: DeviceNumbers,
) -> tuple[Number, Number]:  # fmt: skip
    """Time to gather embeddings forward and to scatter their gradients backward [s each]."""
    nbytes = 2.0 * settings.widths.activation * lengths.local_tokens(settings, plan) * model.hidden
    gradient = 2.0 * settings.widths.gradient * lengths.local_tokens(settings, plan) * model.hidden
    return compute.stream(nbytes, 2.0, device), compute.stream(gradient, 2.0, device)

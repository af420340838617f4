r"""Device time of one transformer layer, and of what surrounds the layers, on one rank."""

from __future__ import annotations

from costmodel import ops
from costmodel.formulas import compute
from costmodel.formulas.quantities import Work
from costmodel.formulas.transformer import attention
from costmodel.formulas.transformer.parameters import (
    attention_parameters,
    expert_layer_shared_parameters,
    mlp_parameters,
)

UNFUSED_NORM = 4.0
"""Bytes that a norm of separate kernels moves over those of a fused one: it squares, averages and scales in 32 bit."""
LOSS_BYTES = 18.0
"""Bytes moved per logit by an unfused loss, forward and backward: 16-bit logits and their gradient written and read
by the products' neighbours, a 32-bit copy written, read twice, and overwritten by its gradient."""
FUSED_LOSS_BYTES = 8.0
"""The same where one kernel reads the 16-bit logits and writes their gradient in place."""


def product(m, n, k, options, stack, device):
    """A weight product in training: forward, data gradient and weight gradient [s each].

    Parameters
    ----------
    m : tokens
    n, k : outputs and inputs of the weight
    options, stack, device : `Options`, `Stack`, `Device`
    """
    rate = device.flop_rate * device.gemm_efficiency * stack.gemm_quality
    forward = compute.gemm(m, n, k, options.compute_bytes, rate, device)
    data = compute.gemm(m, k, n, options.compute_bytes, rate, device)
    weight = compute.gemm(n, k, m, options.compute_bytes, rate, device)
    return forward, data, weight


def expert_product(groups, m, n, k, options, stack, device):
    """As `product`, for `groups` experts with `m` tokens each.

    Parameters
    ----------
    groups : experts on this rank
    m : tokens of one expert
    n, k : outputs and inputs of the weight
    options, stack, device : `Options`, `Stack`, `Device`
    """
    rate = device.flop_rate * device.gemm_efficiency * stack.gemm_quality
    forward = compute.grouped_gemm(groups, m, n, k, options.compute_bytes, rate, device)
    data = compute.grouped_gemm(groups, m, k, n, options.compute_bytes, rate, device)
    weight = compute.grouped_gemm(groups, n, k, m, options.compute_bytes, rate, device)
    return forward, data, weight


def local_tokens(options, plan):
    """Tokens of one micro-batch on one rank's share of the sequence.

    Parameters
    ----------
    options, plan : `Options`, `Plan`
    """
    return plan.micro_batch * options.seq_len / plan.context


def norm_tokens(options, plan):
    """Tokens on which one rank computes norms and residuals: fewer under sequence parallelism.

    Parameters
    ----------
    options, plan : `Options`, `Plan`
    """
    return local_tokens(options, plan) / ops.where(plan.sequence_parallel > 0.0, plan.tensor, 1.0)


def attention_projections(model, options, plan, stack, device):
    """Forward, data-gradient and weight-gradient time of the projections around the attention core [s].

    Parameters
    ----------
    model, options, plan, stack, device : `Model`, `Options`, `Plan`, `Stack`, `Device`
    """
    tokens = local_tokens(options, plan)
    heads = model.heads / plan.tensor
    kv_heads = ops.maximum(model.kv_heads / plan.tensor, 1.0)
    latent = model.latent > 0.0
    queries = heads * model.head_dim
    query_inputs = ops.where(model.query_latent > 0.0, model.query_latent, model.hidden)
    expanded = heads * (model.head_dim - model.rope_head_dim + model.value_head_dim)
    compressed = model.kv_latent + model.rope_head_dim
    first = product(
        tokens, ops.where(latent, queries, queries + 2.0 * kv_heads * model.head_dim),
        ops.where(latent, query_inputs, model.hidden), options, stack, device,
    )  # fmt: skip
    down = product(
        tokens, ops.where(latent, model.query_latent + compressed, 0.0), model.hidden, options, stack, device
    )
    up = product(tokens, ops.where(latent, expanded, 0.0), model.kv_latent, options, stack, device)
    out = product(tokens, model.hidden, heads * model.value_head_dim, options, stack, device)
    return (
        first[0] + down[0] + up[0] + out[0],
        first[1] + down[1] + up[1] + out[1],
        first[2] + down[2] + up[2] + out[2],
    )


def mlp(model, width, options, plan, stack, device):
    """Forward, data-gradient and weight-gradient time of a dense MLP of the given local width [s].

    Parameters
    ----------
    model : `Model`
    width : inner width on this rank [channels]
    options, plan, stack, device : `Options`, `Plan`, `Stack`, `Device`
    """
    tokens = local_tokens(options, plan)
    up = product(tokens, (1.0 + model.gated) * width, model.hidden, options, stack, device)
    down = product(tokens, ops.where(width > 0.0, model.hidden, 0.0), width, options, stack, device)
    return up[0] + down[0], up[1] + down[1], up[2] + down[2]


def expert_tokens(model, options, plan):
    """Tokens that meet one local expert on the busiest rank.

    Parameters
    ----------
    model, options, plan : `Model`, `Options`, `Plan`
    """
    routed = local_tokens(options, plan) * model.experts_per_token * plan.expert_tensor / plan.tensor
    return model.expert_load * routed * plan.expert / ops.maximum(model.experts, 1.0)


def experts(model, options, plan, stack, device):
    """Forward, data-gradient and weight-gradient time of router and routed experts of one layer [s].

    Parameters
    ----------
    model, options, plan, stack, device : `Model`, `Options`, `Plan`, `Stack`, `Device`
    """
    groups = model.experts / plan.expert
    tokens = expert_tokens(model, options, plan)
    width = model.expert_feed_forward / plan.expert_tensor
    up = expert_product(groups, tokens, (1.0 + model.gated) * width, model.hidden, options, stack, device)
    down = expert_product(groups, tokens, model.hidden, width, options, stack, device)
    router = product(norm_tokens(options, plan), model.experts, model.hidden, options, stack, device)
    return up[0] + down[0] + router[0], up[1] + down[1] + router[1], up[2] + down[2] + router[2]


def elementwise_bytes(model, options, plan):
    """Bytes moved forward by the kernels between the products of a dense layer and of an expert layer.

    Norms read and write their input, residual additions read two and write one, the activation reads its
    inputs and writes its output, rotary embedding reads and writes queries and keys; eight-bit operands are
    cast once; experts' tokens are permuted there and back.

    Parameters
    ----------
    model, options, plan : `Model`, `Options`, `Plan`

    Returns
    -------
    tuple
        dense layer, expert layer [bytes]
    """
    tokens = local_tokens(options, plan)
    bytes_ = options.activation_bytes
    norm = options.fused_norms + (1.0 - options.fused_norms) * UNFUSED_NORM
    narrow = (2.0 + model.dropout) * 3.0 + model.norms * 2.0 * norm
    outer = norm_tokens(options, plan) * model.hidden * narrow * bytes_
    rotary = 2.0 * tokens * (model.heads + model.kv_heads) * model.head_dim / plan.tensor * bytes_
    inner = tokens * (2.0 + model.gated) * model.feed_forward / plan.tensor * bytes_
    routed = tokens * model.experts_per_token / plan.tensor * model.expert_load
    width = routed * model.expert_feed_forward + tokens * model.shared_feed_forward / plan.tensor
    permuted = 4.0 * routed * model.hidden * bytes_
    eight_bit = ops.where(options.compute_bytes < 2.0, 3.0, 0.0)
    cast_dense = eight_bit * tokens * (2.0 * model.hidden + model.feed_forward / plan.tensor)
    cast_expert = eight_bit * (tokens * model.hidden + routed * model.hidden + width)
    expert = (2.0 + model.gated) * width * bytes_ + permuted
    return outer + rotary + inner + cast_dense, outer + rotary + expert + cast_expert


def gradient_accumulation_bytes(nparameters, options):
    """Bytes moved to add one micro-batch's weight gradients to the accumulated ones [bytes].

    Parameters
    ----------
    nparameters : parameters on this rank
    options : `Options`
    """
    return 2.0 * options.gradient_bytes * options.trainable * nparameters


def layer_work(model, options, plan, stack, device):
    """Device time of an average layer, `Work` [s]: dense and expert layers in their proportion.

    Parameters
    ----------
    model, options, plan, stack, device : `Model`, `Options`, `Plan`, `Stack`, `Device`
    """
    share = model.expert_layers / model.layers
    projections = attention_projections(model, options, plan, stack, device)
    dense = mlp(model, model.feed_forward / plan.tensor, options, plan, stack, device)
    shared = mlp(model, model.shared_feed_forward / plan.tensor, options, plan, stack, device)
    routed = experts(model, options, plan, stack, device)
    forward = projections[0] + (1.0 - share) * dense[0] + share * (shared[0] + routed[0])
    data = projections[1] + (1.0 - share) * dense[1] + share * (shared[1] + routed[1])
    trained = ops.where(options.trainable < 1.0, 0.0, 1.0)
    weight = trained * (projections[2] + (1.0 - share) * dense[2] + share * (shared[2] + routed[2]))
    core_forward, core_backward = attention.core(
        model, local_tokens(options, plan), options, plan, stack, device
    )
    dense_bytes, expert_bytes = elementwise_bytes(model, options, plan)
    moved = stack.elementwise_traffic * (dense_bytes + share * (expert_bytes - dense_bytes))
    streams = compute.stream(moved, 6.0, device)
    local = layer_parameters(model, plan)
    accumulate = gradient_accumulation_bytes(local, options) / device.memory_bandwidth
    return Work(forward, data, weight, core_forward, core_backward, streams, 2.0 * streams, accumulate)


def layer_parameters(model, plan):
    """Parameters of an average layer on one rank, unsharded by data parallelism.

    Parameters
    ----------
    model, plan : `Model`, `Plan`
    """
    share = model.expert_layers / model.layers
    attention_part = attention_parameters(model)
    norms = model.norms * model.norm_vectors * model.hidden
    dense = (attention_part + mlp_parameters(model, model.feed_forward)) / plan.tensor + norms
    return dense + share * (expert_layer_parameters(model, plan) - dense)


def layer_parameters_apart(model, plan):
    """Parameters of an average layer on one rank: outside the routed experts, and in them.

    Parameters
    ----------
    model, plan : `Model`, `Plan`
    """
    routed = model.expert_layers / model.layers * routed_parameters(model, plan)
    return layer_parameters(model, plan) - routed, routed


def expert_layer_parameters(model, plan):
    """Parameters of one mixture-of-experts layer on one rank: routed experts, then everything else.

    Parameters
    ----------
    model, plan : `Model`, `Plan`
    """
    routed = routed_parameters(model, plan)
    return routed + expert_layer_shared_parameters(model) / plan.tensor


def routed_parameters(model, plan):
    """Parameters of one layer's routed experts on one rank.

    Parameters
    ----------
    model, plan : `Model`, `Plan`
    """
    matrices = model.experts * mlp_parameters(model, model.expert_feed_forward)
    return matrices / (plan.expert * plan.expert_tensor)


def loss_columns(model, options, plan):
    """Logits of one token on one rank: its share of the vocabulary, or all of it where the loss is not split.

    Parameters
    ----------
    model, options, plan : `Model`, `Options`, `Plan`
    """
    return model.vocabulary / ops.where(options.gather_logits > 0.0, 1.0, plan.tensor)


def head_work(model, options, plan, stack, device):
    """Device time of the vocabulary projection and the loss, `Work` [s]; the projection runs in 16 bit.

    Parameters
    ----------
    model, options, plan, stack, device : `Model`, `Options`, `Plan`, `Stack`, `Device`
    """
    tokens = local_tokens(options, plan)
    rate = device.base_flop_rate * device.base_gemm_efficiency * stack.gemm_quality
    columns = model.vocabulary / plan.tensor
    forward = compute.gemm(tokens, columns, model.hidden, 2.0, rate, device)
    data = compute.gemm(tokens, model.hidden, columns, 2.0, rate, device)
    weight = compute.gemm(columns, model.hidden, tokens, 2.0, rate, device)
    passes = 1.0 + model.prediction_layers
    trained = ops.where(options.trainable < 1.0, 0.0, 1.0)
    logit_bytes = ops.where(options.fused_cross_entropy > 0.0, FUSED_LOSS_BYTES, LOSS_BYTES)
    loss = compute.stream(tokens * loss_columns(model, options, plan) * logit_bytes, 4.0, device)
    accumulate = gradient_accumulation_bytes(columns * model.hidden, options) / device.memory_bandwidth
    return Work(
        passes * forward, passes * data, trained * passes * weight, 0.0 * tokens, 0.0 * tokens,
        0.5 * passes * loss, 0.5 * passes * loss, accumulate,
    )  # fmt: skip


def embedding_work(model, options, plan, device):
    """Time to gather embeddings forward and to scatter their gradients backward [s each].

    Parameters
    ----------
    model, options, plan, device : `Model`, `Options`, `Plan`, `Device`
    """
    nbytes = 2.0 * options.activation_bytes * local_tokens(options, plan) * model.hidden
    gradient = 2.0 * options.gradient_bytes * local_tokens(options, plan) * model.hidden
    return compute.stream(nbytes, 2.0, device), compute.stream(gradient, 2.0, device)

r"""Device time of one transformer layer, and of what surrounds the layers, on one rank."""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas import compute
from costmodel.formulas.quantities import (
    Cast,
    DeviceNumbers,
    LayerTraffic,
    ModelNumbers,
    Number,
    PlanNumbers,
    Settings,
    Software,
    Work,
)
from costmodel.formulas.transformer import adapters, attention, flops, parameters, recurrent
from costmodel.formulas.transformer.repetition import experts_again

NORM_BACKWARD = 1.5
"""Bytes that a norm moves backward over forward: its input and two gradients, for input and output. A residual's sum, a fused
rotation and a permutation move as many either way."""
RMSNORM_VECTORS = 1.0
"""Weights of an RMSNorm; a LayerNorm has biases too, or neither."""
UNFUSED_NORM, UNFUSED_NORM_BACKWARD = 9.0, 23.0
"""Bytes that a norm of separate kernels moves over those of a fused one forward: it casts, squares, averages, scales, casts again
and weighs, 36 bytes of a 16-bit channel for 4 (huggingface/transformers src/transformers/models/llama/modeling_llama.py,
``LlamaRMSNorm``); backward autograd undoes each, 92 bytes (pytorch/pytorch torch/csrc/autograd/FunctionsManual.cpp,
``pow_backward`` and ``mean_backward``)."""
APART_ROTARY, APART_ROTARY_BACKWARD = 5.0, 7.5
"""Bytes that a rotation of separate kernels moves over those of a fused one: forward two products, half a negation, a
concatenation and a sum read or write ten tensors for two (huggingface/transformers
src/transformers/models/llama/modeling_llama.py, ``apply_rotary_pos_emb``); backward autograd fills each half's gradient up with
zeros and sums all three, fifteen for two."""
EXPERT_BIAS, EXPERT_BIAS_BACKWARD = 28.0, 36.0
"""Bytes that kernels of their own move for each output of an expert to which they add a bias times its router's probability, in
32 bit: forward of a product, a sum, a copy that joins the experts and a cast (NVIDIA/Megatron-LM@d98e8a6
megatron/core/transformer/moe/experts.py, ``_apply_bias``)."""
CLAMPED, CLAMPED_BACK = 8.0, 10.0
"""Tensors of an MLP's width that kernels of their own move to hold both inputs of its gated activation within limits: forward two
limits and a concatenation read and write four each; backward each limit reads a gradient and what it limited and writes a
gradient, and a concatenation joins them (NVIDIA/Megatron-LM@d98e8a6 megatron/core/fusions/fused_bias_geglu.py,
``weighted_bias_quick_geglu_impl``)."""
WRITTEN_OUT, WRITTEN_OUT_BACK = 16.0, 25.0
"""Tensors of an MLP's width that GELU by a tangent moves beyond those of one kernel where it is written out: forward a power, a
tangent, three products with numbers, two sums and a product; backward their derivatives, and two sums at its input
(huggingface/transformers@0114da0 src/transformers/activations.py, ``NewGELUActivation``)."""
PERMUTED, SORTED = 4.0, 4.0
"""Reads and writes of a routed token's hidden state by forward kernels that put tokens in order. The first: a rank orders tokens
by expert before it sends them, and back after they returned. The second: in between, a rank with several experts orders what
came from several senders, for its whole expert-tensor group (NVIDIA/Megatron-LM@d98e8a6
megatron/core/transformer/moe/token_dispatcher.py, ``sort_chunks_by_idxs``). DeepEP and HybridEP need only the first."""
SUMMED, SUMMED_BY_PRODUCT = 3.0, 1.0
"""Tensors moved to add a gradient to another of the same input: autograd reads both and writes the sum; compiled, the product
that makes the second reads the first (pytorch/pytorch torch/_inductor/fx_passes/post_grad.py, ``addmm``)."""
LOSS_BYTES = 18.0
"""Bytes moved per logit by an unfused loss, forward and backward: 16-bit logits and their gradient written and read
by the products' neighbours, a 32-bit copy written, read twice, and overwritten by its gradient."""
FUSED_LOSS_BYTES = 8.0
"""The same where one kernel reads the 16-bit logits and writes their gradient in place."""


def product(
    m: Number, n: Number, k: Number, settings: Settings, plan: PlanNumbers, software: Software, device: DeviceNumbers,
) -> tuple[Number, Number, Number]:  # fmt: skip
    """A weight product in training: forward, data gradient and weight gradient [s each].

    Parameters
    ----------
    m : tokens
    n, k : outputs and inputs of the weight
    settings, plan, software, device : `Settings`, `PlanNumbers`, `Software`, `DeviceNumbers`
    """
    rate = compute.product_rate(software.compute.gemm_efficiency_scale, device)
    width = settings.widths.compute
    forward = compute.gemm(m, n, k, width, rate, device)
    data = compute.gemm(m, k, n, width, rate, device)
    weight = compute.gemm(n, k, m, width, rate, device, added_bytes(settings, plan))
    return forward, data, weight


def deferred_sums(settings: Settings, plan: PlanNumbers) -> Number:
    """1 where a pipeline waits for the last micro-batch with the sums of gradients that are sharded then.

    Parameters
    ----------
    settings, plan : `Settings`, `PlanNumbers`

    References
    ----------
    pytorch/pytorch@0138610 torch/distributed/pipelining/stage.py, ``backward_maybe_with_nosync``: FSDP's modules neither reduce
    gradients nor reshard weights in a stage's backward passes, but after the last of them
    """
    return plan.shard_gradients * settings.framework.deferred_sums * ops.where(plan.pipeline > 1.0, 1.0, 0.0)


def sharded_gradients(settings: Settings, plan: PlanNumbers) -> Number:
    """1 where gradients are summed after every micro-batch, and a rank keeps its part of the sums: from ZeRO-2 on, if none wait.

    Parameters
    ----------
    settings, plan : `Settings`, `PlanNumbers`
    """
    return plan.shard_gradients - deferred_sums(settings, plan)


def fused_accumulation(settings: Settings, plan: PlanNumbers) -> Number:
    """1 where the products of weight gradients add them to the accumulated ones; sharded gradients other kernels add.

    Parameters
    ----------
    settings, plan : `Settings`, `PlanNumbers`

    References
    ----------
    NVIDIA-NeMo/Megatron-Bridge#1386, which turns it off under Megatron-FSDP
    """
    return settings.framework.fused_accumulation * (1.0 - sharded_gradients(settings, plan))


def added_bytes(settings: Settings, plan: PlanNumbers) -> Number:
    """Bytes of an accumulated gradient that the product which makes another one reads and writes; 0 where other kernels add it.

    Parameters
    ----------
    settings, plan : `Settings`, `PlanNumbers`
    """
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
    settings, plan, software, device : `Settings`, `PlanNumbers`, `Software`, `DeviceNumbers`

    Assumptions
    -----------
    Products of experts that run one by one don't overlap, though several streams may carry them, and take no host time beyond
    `HostConstants.expert_launches`, a mean over both ways. Kernels for groups, and those that fuse what surrounds the products
    (``fused_experts``), are as fast as the faster of the two: those of training were not measured by themselves.

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
    together = ops.maximum(settings.framework.grouped_experts, settings.kernels.fused_experts)
    return (
        ops.where(together > 0.0, ops.minimum(forward, met * alone[0]), met * alone[0]),
        ops.where(together > 0.0, ops.minimum(data, met * alone[1]), met * alone[1]),
        ops.where(together > 0.0, ops.minimum(weight, met * alone[2]), met * alone[2]),
    )


def local_tokens(settings: Settings, plan: PlanNumbers) -> Number:
    """Tokens of one micro-batch on one rank's share of the sequence.

    Parameters
    ----------
    settings, plan : `Settings`, `PlanNumbers`
    """
    return plan.micro_batch * settings.seq_len / plan.context


def norm_tokens(settings: Settings, plan: PlanNumbers) -> Number:
    """Tokens on which one rank computes norms and residuals: fewer under sequence parallelism.

    Parameters
    ----------
    settings, plan : `Settings`, `PlanNumbers`
    """
    return local_tokens(settings, plan) / ops.where(plan.sequence_parallel > 0.0, plan.tensor, 1.0)


def attention_projections(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, software: Software, device: DeviceNumbers,
) -> tuple[Number, Number, Number, Number]:  # fmt: skip
    """Forward, data-gradient and weight-gradient time of an average layer's projections around the attention core [s].

    Last the forward time of those that make queries, keys and values from the latent, 0 where there is none.

    Parameters
    ----------
    model, settings, plan, software, device : `ModelNumbers`, `Settings`, `PlanNumbers`, `Software`, `DeviceNumbers`
    """
    tokens = local_tokens(settings, plan)
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
    out = product(tokens, model.hidden, heads * model.attention.value_head_dim, settings, plan, software, device)
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
    model : `ModelNumbers`
    width : inner width on this rank [channels]
    settings, plan, software, device : `Settings`, `PlanNumbers`, `Software`, `DeviceNumbers`
    """
    tokens = local_tokens(settings, plan)
    products = gate_and_up(model, settings)
    up = product(tokens, (1.0 + model.mlp.gated) / products * width, model.hidden, settings, plan, software, device)
    down = product(tokens, ops.where(width > 0.0, model.hidden, 0.0), width, settings, plan, software, device)
    return products * up[0] + down[0], products * up[1] + down[1], products * up[2] + down[2]


def dense_mlp(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, software: Software, device: DeviceNumbers,
) -> tuple[Number, Number, Number]:  # fmt: skip
    """As `mlp`, of an average layer without experts.

    Parameters
    ----------
    model, settings, plan, software, device : `ModelNumbers`, `Settings`, `PlanNumbers`, `Software`, `DeviceNumbers`
    """
    forward, data, weight = mlp(model, model.mlp.width / plan.tensor, settings, plan, software, device)
    return model.mlp.share * forward, model.mlp.share * data, model.mlp.share * weight


def gate_and_up(model: ModelNumbers, settings: Settings) -> Number:
    """Products that make what an MLP's activation reads: one, or two where gate and up are apart.

    Parameters
    ----------
    model, settings : `ModelNumbers`, `Settings`
    """
    return 1.0 + settings.framework.separate_projections * model.mlp.gated


def expert_tokens(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Tokens that meet one local expert on the busiest rank.

    Parameters
    ----------
    model, settings, plan : `ModelNumbers`, `Settings`, `PlanNumbers`
    """
    routed = local_tokens(settings, plan) * model.experts.per_token * plan.expert_tensor / plan.tensor
    return model.experts.load * routed * plan.expert / ops.maximum(model.experts.number, 1.0)


def experts(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, software: Software, device: DeviceNumbers,
) -> tuple[Number, Number, Number]:  # fmt: skip
    """Forward, data-gradient and weight-gradient time of router and routed experts of one layer [s].

    Parameters
    ----------
    model, settings, plan, software, device : `ModelNumbers`, `Settings`, `PlanNumbers`, `Software`, `DeviceNumbers`
    """
    groups = model.experts.number / plan.expert
    tokens = expert_tokens(model, settings, plan)
    width = model.experts.width / plan.expert_tensor
    products = gate_and_up(model, settings)
    inner = (1.0 + model.mlp.gated) / products * width
    up = expert_product(groups, tokens, inner, model.hidden, settings, plan, software, device)
    down = expert_product(groups, tokens, model.hidden, width, settings, plan, software, device)
    router = product(norm_tokens(settings, plan), model.experts.number, model.hidden, settings, plan, software, device)
    return (
        products * up[0] + down[0] + router[0],
        products * up[1] + down[1] + router[1],
        products * up[2] + down[2] + router[2],
    )


def elementwise_bytes(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> LayerTraffic:
    """Bytes moved forward by the kernels between the products of a layer, by its modules, `LayerTraffic`.

    Norms read and write their input, residual additions read two and write one, the activation reads its
    inputs and writes its output, rotary embedding reads and writes queries and keys; the last two move more where a framework
    makes several kernels of each. Experts' tokens are ordered there and back, and activation and biases are kernels of their
    own unless they are fused. Casts to 8 bit are `cast_bytes`, what an MLP's activation writes in 8 bit itself among them.

    Parameters
    ----------
    model, settings, plan : `ModelNumbers`, `Settings`, `PlanNumbers`
    """
    tokens = local_tokens(settings, plan)
    bytes_ = settings.widths.activation
    norm = UNFUSED_NORM + (1.0 - UNFUSED_NORM) * norm_is_fused(model, settings)
    outer = norm_tokens(settings, plan) * model.hidden * bytes_
    rotated = tokens * (model.attention.heads + model.attention.kv_heads) * model.attention.head_dim / plan.tensor * bytes_
    rotated = model.attention.share * rotated
    rotary = 2.0 * rotates(model) * rotated * (1.0 + (APART_ROTARY - 1.0) * settings.framework.separate_rotation)
    activated = _activated(model, settings)[0] * bytes_
    routed = tokens * model.experts.per_token / plan.tensor * model.experts.load
    apart = 1.0 - settings.kernels.fused_experts
    senders = (plan.expert * plan.expert_tensor > 1.0) & (settings.kernels.deduplicated_dispatch <= 0.0)
    by_sender = ops.where(senders & (model.experts.number > plan.expert), SORTED * plan.expert_tensor, 0.0)
    return LayerTraffic(
        residuals=outer * (blocks(model) + model.dropout) * 3.0, norms=outer * model.norms * 2.0 * norm, rotary=rotary,
        mlp=(activated - settings.kernels.fused_casts * bytes_) * tokens * model.mlp.share * model.mlp.width / plan.tensor,
        experts=apart * activated * routed * model.experts.width,
        shared_experts=activated * tokens * model.experts.shared_width / plan.tensor,
        permutation=routed * model.hidden * (PERMUTED + by_sender) * bytes_,
        expert_biases=routed * model.hidden * apart * model.mlp.bias * EXPERT_BIAS,
        shared_inputs=shared_inputs(model, settings, plan, tokens, routed) * model.hidden * bytes_,
    )  # fmt: skip


def blocks(model: ModelNumbers) -> Number:
    """Parts of an average layer whose outputs are added to its hidden state: 2, attention or a state, and an MLP or experts.

    Parameters
    ----------
    model : `ModelNumbers`
    """
    share = model.experts.layers / model.layers
    # of a state and an attention side by side the outputs are one sum
    mixers = ops.minimum(model.attention.share + model.recurrent.share, ops.maximum(model.attention.share, 1.0))
    return mixers + share + (1.0 - share) * model.mlp.share


def shared_inputs(model: ModelNumbers, settings: Settings, plan: PlanNumbers, tokens: Number, routed: Number) -> Number:
    """Tokens whose gradients are moved in an average layer to sum those that separate products of one input send back to it.

    Parameters
    ----------
    model, settings, plan : `ModelNumbers`, `Settings`, `PlanNumbers`
    tokens, routed : on this rank, and those that it sends to experts

    Assumptions
    -----------
    What is made from a latent counts as one product, also where the two latents are apart.
    """
    share = model.experts.layers / model.layers
    attention = model.attention.share * ops.where(model.attention.latent > 0.0, 0.0, 2.0) * tokens
    routed = routed * plan.expert_tensor
    shared = ops.where(model.experts.shared_width > 0.0, tokens, 0.0)
    gates = model.mlp.gated * ((1.0 - share) * model.mlp.share * tokens + share * (routed + shared))
    each = ops.where(settings.framework.keep_activated > 0.0, SUMMED, SUMMED_BY_PRODUCT)
    return settings.framework.separate_projections * each * (attention + gates)


def rotates(model: ModelNumbers) -> Number:
    """1 where queries and keys are rotated by their positions, 0 where a table of positions is learned.

    Parameters
    ----------
    model : `ModelNumbers`

    Assumptions
    -----------
    A model without a table rotates: of biases on the scores (ALiBi) a model does not tell.
    """
    return ops.where(model.vocabulary.positions > 0.0, 0.0, 1.0)


def norms_are_rms(model: ModelNumbers) -> bool:
    """Whether a model's norms are RMSNorms; else they are LayerNorms.

    Parameters
    ----------
    model : `ModelNumbers`

    Assumptions
    -----------
    A norm with weights and no biases is an RMSNorm.
    """
    return ops.equal(model.norm_vectors, RMSNORM_VECTORS)


def norm_is_fused(model: ModelNumbers, settings: Settings) -> Number:
    """1 where a norm is one kernel: PyTorch has a LayerNorm as one, whatever else is fused.

    Parameters
    ----------
    model, settings : `ModelNumbers`, `Settings`
    """
    return ops.where(norms_are_rms(model), settings.kernels.fused_norms, 1.0)


def _activated(model: ModelNumbers, settings: Settings) -> tuple[Number, Number]:
    """Tensors of an MLP's width that its activation reads and writes, forward and backward.

    A plain one moves two and three, a gated one three and five in one kernel. As two, activation and product, it moves five
    and nine. Limits on its inputs are kernels of their own before it; so are the operations of one that is written out.

    Parameters
    ----------
    model, settings : `ModelNumbers`, `Settings`
    """
    apart = 2.0 * settings.framework.keep_activated
    clamps = clamps_apart(model, settings)
    out = writes_activation_out(model, settings)
    forward = 2.0 + model.mlp.gated * (1.0 + apart) + clamps * CLAMPED + out * WRITTEN_OUT
    return forward, 3.0 + model.mlp.gated * (2.0 + 2.0 * apart) + clamps * CLAMPED_BACK + out * WRITTEN_OUT_BACK


def plain_activation_keeps(model: ModelNumbers, settings: Settings) -> Number:
    """Tensors of an MLP's width that an activation without a gate keeps beside what it makes.

    One that is written out in kernels of its own keeps what each of them does; a framework that fuses or compiles has one kernel,
    which keeps its input at most.

    Parameters
    ----------
    model, settings : `ModelNumbers`, `Settings`

    References
    ----------
    huggingface/transformers@0114da0 src/transformers/activations.py, ``NewGELUActivation``: its input, half of it, the tangent,
    one more than that
    """
    apart = settings.framework.keep_activated * (1.0 - settings.framework.compiled)
    return ops.where(apart > 0.0, model.mlp.activation_keeps, ops.minimum(model.mlp.activation_keeps, 1.0))


def writes_activation_out(model: ModelNumbers, settings: Settings) -> Number:
    """1 where an activation without a gate is written out in kernels of its own.

    Parameters
    ----------
    model, settings : `ModelNumbers`, `Settings`
    """
    return (1.0 - model.mlp.gated) * ops.where(plain_activation_keeps(model, settings) > 1.0, 1.0, 0.0)


def clamps_apart(model: ModelNumbers, settings: Settings) -> Number:
    """1 where kernels of their own hold the inputs of a gated activation within limits.

    Parameters
    ----------
    model, settings : `ModelNumbers`, `Settings`

    Assumptions
    -----------
    A compiler, which joins activation and product of frameworks that make each of a layer's products apart, joins limits too.
    """
    compiled = settings.framework.separate_projections * (1.0 - settings.framework.keep_activated)
    return model.mlp.clamped * model.mlp.gated * (1.0 - compiled)


def between_products(moved: LayerTraffic, model: ModelNumbers, settings: Settings) -> tuple[Number, Number]:
    """Bytes moved between the products of an average layer, forward and backward.

    Parameters
    ----------
    moved : forward, by modules
    model, settings : `ModelNumbers`, `Settings`
    """
    share = model.experts.layers / model.layers
    around, biases = moved.residuals + share * moved.permutation, share * moved.expert_biases
    activated, back = _activated(model, settings)
    turned_back = 1.0 + (APART_ROTARY_BACKWARD / APART_ROTARY - 1.0) * settings.framework.separate_rotation
    fused = norm_is_fused(model, settings)
    normed_back = NORM_BACKWARD * fused + UNFUSED_NORM_BACKWARD / UNFUSED_NORM * (1.0 - fused)
    biases_back = EXPERT_BIAS_BACKWARD / EXPERT_BIAS * biases
    dense, sparse = (1.0 - share) * moved.mlp, share * (moved.experts + moved.shared_experts)
    # a fused activation writes its output, and backward its inputs' gradients, in 8 bit alone
    written = settings.kernels.fused_casts
    dense_back = (back - written * (1.0 + model.mlp.gated)) / (activated - written) * dense
    return (
        around + moved.rotary + biases + moved.norms + dense + sparse,
        around + turned_back * moved.rotary + biases_back + normed_back * moved.norms + dense_back + back / activated * sparse
        + moved.shared_inputs,
    )


def cast_bytes(model: ModelNumbers, settings: Settings, plan: PlanNumbers, software: Software) -> Cast:
    """Bytes moved forward to make operands of 8 or 4 bit, by a layer's modules, `Cast`.

    Each activation that is multiplied is read and written once; where software keeps it cast for the weight's gradient, in a
    second layout too. Rows and columns that are scaled by themselves are cast by kernels apart, columns by slow ones.

    Parameters
    ----------
    model, settings, plan, software : `ModelNumbers`, `Settings`, `PlanNumbers`, `Software`
    """
    tokens = local_tokens(settings, plan)
    routed = tokens * model.experts.per_token / plan.tensor * model.experts.load
    widths = settings.widths
    kept = ops.where(widths.input_copy > 0.0, settings.trainable, 0.0)
    times = ops.where(widths.gathered > widths.compute, 1.0 + software.compute.column_cast, 1.0)
    one = times * (widths.activation + widths.compute) + kept * widths.compute
    element = ops.where(widths.compute < 2.0, one, 0.0)
    heads = model.attention.share * model.attention.heads * model.attention.value_head_dim
    heads = (heads + model.recurrent.share * model.recurrent.outputs) / plan.tensor
    apart = 1.0 - settings.kernels.fused_experts
    # which the activation writes itself, and nobody reads in 16 bit
    direct = ops.maximum(element - settings.kernels.fused_casts * widths.activation, 0.0)
    return Cast(
        attention=element * tokens * ((model.attention.share + model.recurrent.share) * model.hidden + heads),
        mlp=tokens * model.mlp.share * (element * model.hidden + direct * model.mlp.width / plan.tensor),
        permuted=element * routed * model.hidden, activated=apart * element * routed * model.experts.width,
        shared_experts=element * tokens * model.experts.shared_width / plan.tensor,
    )  # fmt: skip


def repeated_bytes(moved: LayerTraffic, cast: Cast, model: ModelNumbers, plan: PlanNumbers) -> tuple[Number, Number]:
    """Bytes that the recomputed modules of an average layer move again between products, and to make narrow operands.

    Parameters
    ----------
    moved, cast : of the forward pass
    model, plan : `ModelNumbers`, `PlanNumbers`
    """
    share = model.experts.layers / model.layers
    latent = ops.where(model.attention.latent > 0.0, 1.0, 0.0)
    dense, again = (1.0 - share) * plan.recompute_mlp, experts_again(plan)
    attention = plan.recompute_latent_projections * latent * moved.rotary
    norms = plan.recompute_norms * 0.5 * (latent + (1.0 - again.routed) * share) * moved.norms
    sparse = again.activation * moved.experts + again.shared * moved.shared_experts
    sparse = sparse + again.routed * (moved.permutation + moved.expert_biases)
    narrow = again.activation * cast.activated + again.shared * cast.shared_experts + again.routed * cast.permuted
    return attention + norms + dense * moved.mlp + share * sparse, dense * cast.mlp + share * narrow


def gradient_accumulation_bytes(nparameters: Number, settings: Settings, plan: PlanNumbers) -> Number:
    """Bytes that kernels of their own move to add one micro-batch's weight gradients to the accumulated ones [bytes].

    They read both and write the sum; none where the products themselves add. Where a framework says what it moves, that.

    Parameters
    ----------
    nparameters : parameters on this rank
    settings, plan : `Settings`, `PlanNumbers`
    """
    added = (1.0 - fused_accumulation(settings, plan)) * (2.0 * settings.widths.gradient + settings.widths.activation)
    said = settings.framework.weight_traffic
    return ops.where(said > 0.0, said, added) * settings.trainable * nparameters


def layer_work(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, software: Software, device: DeviceNumbers,
) -> Work:  # fmt: skip
    """Device time of an average layer, `Work` [s]: dense and expert layers in their proportion.

    Parameters
    ----------
    model, settings, plan, software, device : `ModelNumbers`, `Settings`, `PlanNumbers`, `Software`, `DeviceNumbers`
    """
    share = model.experts.layers / model.layers
    projections = attention_projections(model, settings, plan, software, device)
    dense = dense_mlp(model, settings, plan, software, device)
    shared = mlp(model, model.experts.shared_width / plan.tensor, settings, plan, software, device)
    routed = experts(model, settings, plan, software, device)
    forward = projections[0] + (1.0 - share) * dense[0] + share * (shared[0] + routed[0])
    data = projections[1] + (1.0 - share) * dense[1] + share * (shared[1] + routed[1])
    trained = ops.where(settings.trainable < 1.0, 0.0, 1.0)
    weight = trained * (projections[2] + (1.0 - share) * dense[2] + share * (shared[2] + routed[2]))
    core_forward, core_backward = attention.core(
        model, local_tokens(settings, plan), settings, plan, software, device
    )
    state, scan, scan_back, state_moved = recurrent.work(
        model, local_tokens(settings, plan), settings, plan, software, device
    )
    forward, data, weight = forward + state + scan, data + state + scan_back, weight + trained * state
    moved, cast = elementwise_bytes(model, settings, plan), cast_bytes(model, settings, plan, software)
    between, back = between_products(moved, model, settings)
    traffic = software.compute.elementwise_traffic
    casts = cast.attention + cast.mlp + share * (cast.permuted + cast.activated + cast.shared_experts - cast.mlp)
    reached = ops.minimum(device.cast_bandwidth, device.cache_bandwidth)
    streams = compute.stream(traffic * between, 6.0, device) + casts / reached + state_moved
    streams_back = compute.stream(traffic * back, 12.0, device) + 2.0 * casts / reached + 2.0 * state_moved
    local = layer_parameters(model, plan)
    accumulate = gradient_accumulation_bytes(local, settings, plan) / device.memory_bandwidth
    beside = adapters.adapter_work(model, settings, plan, local_tokens(settings, plan), device)
    unpacked = adapters.dequantisation(settings, local, device)
    again_unpacked = (1.0 - settings.adapter.keep_unpacked) * unpacked
    forward, data, weight = forward + beside[0] + unpacked, data + beside[1] + again_unpacked, weight + beside[2]
    moved_again, cast_again = repeated_bytes(moved, cast, model, plan)
    of_experts = experts_again(plan)
    sparse = of_experts.routed * routed[0] + of_experts.shared * shared[0]
    again = plan.recompute_latent_projections * projections[3] + (1.0 - share) * plan.recompute_mlp * dense[0] + share * sparse
    again = again + traffic * moved_again / device.memory_bandwidth + cast_again / reached
    first, second = flops.repeated_shares(model)
    inside = (1.0 - share) * dense[0] + share * (shared[0] + routed[0])
    every = first * (projections[0] + state) + scan + second * inside + streams
    again = again + plan.recompute_operators * (every - again)
    share = model.attention.share
    return Work(
        forward, data, weight, share * core_forward, share * core_backward, streams, streams_back, accumulate, again
    )


def layer_parameters(model: ModelNumbers, plan: PlanNumbers) -> Number:
    """Parameters of an average layer on one rank, unsharded by data parallelism.

    Parameters
    ----------
    model, plan : `ModelNumbers`, `PlanNumbers`
    """
    others, experts = layer_parameters_apart(model, plan)
    return others + experts


def layer_parameters_apart(model: ModelNumbers, plan: PlanNumbers) -> tuple[Number, Number]:
    """Parameters of an average layer on one rank: outside the routed experts, and in them.

    Parameters
    ----------
    model, plan : `ModelNumbers`, `PlanNumbers`
    """
    share = model.experts.layers / model.layers
    dense = parameters.dense_layer_of_rank(model, plan.tensor)
    sparse = parameters.expert_layer_shared_of_rank(model, plan.tensor)
    return dense + share * (sparse - dense), share * routed_parameters(model, plan)


def routed_parameters(model: ModelNumbers, plan: PlanNumbers) -> Number:
    """Parameters of one layer's routed experts on one rank.

    Parameters
    ----------
    model, plan : `ModelNumbers`, `PlanNumbers`
    """
    return model.experts.number / plan.expert * parameters.mlp_of_rank(model, model.experts.width, plan.expert_tensor)


def loss_columns(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Logits of one token on one rank: its share of the head's outputs, or all of them where the loss is not split.

    Parameters
    ----------
    model, settings, plan : `ModelNumbers`, `Settings`, `PlanNumbers`
    """
    return model.vocabulary.outputs / ops.where(settings.framework.gather_logits > 0.0, 1.0, plan.tensor)


def head_work(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, software: Software, device: DeviceNumbers,
) -> Work:  # fmt: skip
    """Device time of the vocabulary projection and the loss, `Work` [s]; the projection runs in 16 bit.

    Parameters
    ----------
    model, settings, plan, software, device : `ModelNumbers`, `Settings`, `PlanNumbers`, `Software`, `DeviceNumbers`
    """
    tokens = local_tokens(settings, plan)
    rate = compute.base_product_rate(software.compute.gemm_efficiency_scale, device)
    columns = model.vocabulary.outputs / plan.tensor
    forward = compute.base_gemm(tokens, columns, model.hidden, rate, device)
    data = compute.base_gemm(tokens, model.hidden, columns, rate, device)
    weight = compute.base_gemm(columns, model.hidden, tokens, rate, device, added_bytes(settings, plan))
    passes = 1.0 + model.prediction_layers
    trained = ops.where(settings.trainable < 1.0, 0.0, 1.0)
    logit_bytes = ops.where(settings.kernels.fused_cross_entropy > 0.0, FUSED_LOSS_BYTES, LOSS_BYTES)
    loss = compute.stream(tokens * loss_columns(model, settings, plan) * logit_bytes, 4.0, device)
    accumulate = gradient_accumulation_bytes(columns * model.hidden, settings, plan) / device.memory_bandwidth
    return Work(
        passes * forward, passes * data, trained * passes * weight, 0.0 * tokens, 0.0 * tokens,
        0.5 * passes * loss, 0.5 * passes * loss, accumulate, 0.0 * tokens,
    )  # fmt: skip


def embedding_work(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, device: DeviceNumbers,
) -> tuple[Number, Number]:  # fmt: skip
    """Time to gather embeddings forward and to scatter their gradients backward [s each].

    Parameters
    ----------
    model, settings, plan, device : `ModelNumbers`, `Settings`, `PlanNumbers`, `DeviceNumbers`
    """
    nbytes = 2.0 * settings.widths.activation * local_tokens(settings, plan) * model.hidden
    gradient = 2.0 * settings.widths.gradient * local_tokens(settings, plan) * model.hidden
    return compute.stream(nbytes, 2.0, device), compute.stream(gradient, 2.0, device)

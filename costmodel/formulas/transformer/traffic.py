r"""Bytes that the kernels between products move: of a layer, of casts to few bits, of a loss."""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.quantities import (
    Cast,
    DeviceNumbers,
    LayerTraffic,
    ModelNumbers,
    Number,
    PlanNumbers,
    Settings,
    Software,
)
from costmodel.formulas.transformer import adapters, precision
from costmodel.formulas.transformer.lengths import expert_tokens, local_tokens, norm_tokens
from costmodel.formulas.transformer.repetition import experts_again

NORM_BACKWARD = 1.5
"""Bytes that a norm of one kernel moves backward over forward: its input and two gradients, for input and output. A residual's
sum, a fused rotation and a permutation move as many either way."""
RMSNORM_VECTORS = 1.0
"""Weights of an RMSNorm; a LayerNorm has biases too, or neither."""
NORM_APART, NORM_APART_BACKWARD = 28.0, 92.0
"""Bytes of a channel that an RMSNorm of separate kernels moves in 32 bit: it squares, averages, scales and weighs
(huggingface/transformers src/transformers/models/llama/modeling_llama.py, ``LlamaRMSNorm``); backward autograd undoes each
(pytorch/pytorch torch/csrc/autograd/FunctionsManual.cpp, ``pow_backward`` and ``mean_backward``)."""
NORM_CASTS = 8.0
"""More of an input in 16 bit, forward: two casts of 6 bytes, and weighed in 16 bit, 4 less. Backward casts and the narrower
products move as many."""
NORM_WEIGHT = 4.0
"""Of these, backward, tensors of the input's width for the weight's gradient, a product and its sum: frozen it has none."""
WIDE_WEIGHTS, WIDE_WEIGHTS_BACKWARD = 4.0, 12.0
"""More where such a norm weighs before it casts down (src/transformers/models/gemma/modeling_gemma.py, ``GemmaRMSNorm``)."""
APART_ROTARY, APART_ROTARY_BACKWARD = 5.0, 7.5
"""Bytes that a rotation of separate kernels moves over those of a fused one: forward two products, half a negation, a
concatenation and a sum read or write ten tensors for two (huggingface/transformers
src/transformers/models/llama/modeling_llama.py, ``apply_rotary_pos_emb``); backward autograd fills each half's gradient up with
zeros and sums all three, fifteen for two."""
WIDE_ROTARY, WIDE_ROTARY_BACKWARD = 16.0, 26.0
"""Bytes of a channel more where cosines and sines are in 32 bit, as a hidden state in 32 bit makes them: what they multiply, the
sum, and casts to what attention takes (the same, ``LlamaRotaryEmbedding``: ``cos.to(dtype=x.dtype)``)."""
CAST = 6.0
"""Bytes of an element cast between 16 and 32 bit. Autocast casts the input of each product and its weight, backward the gradients
of both (pytorch/pytorch aten/src/ATen/autocast_mode.h; a weight's copy lives to the end of the context that made it)."""
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
WIDE_WRITTEN_OUT, WIDE_WRITTEN_OUT_BACK = 20.0, 31.0
"""More under autocast, whose powers are in 32 bit, and what meets them (pytorch/pytorch aten/src/ATen/autocast_mode.h)."""
JOINED, PUT_BACK = 2.0, 4.0
"""Tensors moved to join the gradients of what one product made for several; and for every expert of a loop to put its tokens'
gradients into zeros, and to add these to what the others gave."""
WEIGHED, WEIGHED_BACK = 9.0, 28.0
"""More where these are PyTorch's own kernels, which weigh in 32 bit: a product, a look-up and a sum there, a cast; backward each
one's gradient, zeros that look-ups put theirs into among them."""
CAPPED = 13.0
"""Tensors of logits that a limit on them by a tangent moves: forward a quotient, a tangent and a product read and write one each,
backward the tangent's derivative reads one more (src/transformers/models/gemma2/modeling_gemma2.py)."""
PERMUTED, SORTED = 4.0, 4.0
"""Reads and writes of a routed token's hidden state by forward kernels that put tokens in order. The first: a rank orders tokens
by expert before it sends them, and back after they returned. The second: in between, a rank with several experts orders what
came from several senders, for its whole expert-tensor group (NVIDIA/Megatron-LM@d98e8a6
megatron/core/transformer/moe/token_dispatcher.py, ``sort_chunks_by_idxs``). DeepEP and HybridEP need only the first."""
SUMMED, SUMMED_BY_PRODUCT = 3.0, 1.0
"""Tensors moved to add a gradient to another of the same input: autograd reads both and writes the sum; compiled, the product
that makes the second reads the first (pytorch/pytorch torch/_inductor/fx_passes/post_grad.py, ``addmm``)."""


def elementwise_bytes(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> LayerTraffic:
    """Bytes moved forward by the kernels between the products of a layer, by its modules, `LayerTraffic`.

    Norms read and write their input, residual additions read two and write one, the activation reads its inputs and writes its
    output, rotary embedding reads and writes queries and keys, which norms of their own may read and write before; the last two
    move more where a framework makes several kernels of each, and where the hidden state is in 32 bit. Experts' tokens are put in
    order there and back, and activation and biases are kernels of their own unless they are fused. Casts to 8 bit are
    `cast_bytes`, what an MLP's activation writes in 8 bit itself among them.
    """
    tokens = local_tokens(settings, plan)
    bytes_ = settings.widths.activation
    wide = adapters.wide_stream(settings)
    outer = norm_tokens(settings, plan) * model.hidden
    turned = tokens * model.attention.share * (model.attention.heads + model.attention.kv_heads) / plan.tensor
    turned = turned * model.attention.head_dim
    activated = _activated(model, settings)[0] * bytes_
    routed = tokens * model.experts.per_token / plan.tensor * model.experts.load
    unfused = experts_apart(settings)
    senders = (plan.expert * plan.expert_tensor > 1.0) & (settings.kernels.deduplicated_dispatch <= 0.0)
    by_sender = ops.where(senders & (model.experts.number > plan.expert), SORTED * plan.expert_tensor, 0.0)
    return LayerTraffic(
        residuals=outer * (blocks(model) + model.dropout) * sum_bytes(model, settings, wide)[0],
        norms=outer * model.norms * stream_norm_bytes(model, settings, wide)[0],
        query_norms=norms_queries(model) * turned * norm_bytes(model, settings, 0.0)[0],
        rotary=rotates(model) * turned * rotation_bytes(settings, wide)[0],
        mlp=(activated - settings.kernels.fused_casts * bytes_) * tokens * model.mlp.share * model.mlp.width / plan.tensor,
        experts=unfused * activated * routed * model.experts.width,
        shared_experts=activated * tokens * model.experts.shared_width / plan.tensor,
        permutation=routed * model.hidden * (PERMUTED + WEIGHED * grouped_apart(settings) + by_sender) * bytes_,
        expert_biases=routed * model.hidden * unfused * model.mlp.bias * EXPERT_BIAS,
        shared_inputs=shared_inputs(model, settings, plan, tokens, routed) * model.hidden
        * ops.where(wide > 0.0, precision.FULL_BYTES, bytes_),
        product_inputs=product_inputs(model, settings, plan) * CAST,
        outputs=(biases(model, settings) + joined_outputs(model, settings)) * tokens / plan.tensor * bytes_,
    )  # fmt: skip


def norms_queries(model: ModelNumbers) -> Number:
    """1 where queries and keys have norms of their own; of latent attention norms are in the latents."""
    return ops.where((model.attention.qk_norm_channels > 0.0) & (model.attention.latent <= 0.0), 1.0, 0.0)


def sum_bytes(model: ModelNumbers, settings: Settings, wide: Number) -> tuple[Number, Number]:
    """Bytes of a channel that adding a block's output to the hidden state moves, forward and backward.

    Of a wide sum the gradient is cast for the block whose output it added; compiled together, by what adds a norm's gradient.

    Parameters
    ----------
    wide : 1: the hidden state is in 32 bit beside activations in 16
    """
    width, full = settings.widths.activation, precision.FULL_BYTES
    compiled = settings.framework.compiled * norm_is_fused(model, settings)
    read = 1.0 + within_graphs(settings)  # by norms, and as it is cast
    return (
        ops.where(wide > 0.0, 2.0 * full + width, 3.0 * width),
        ops.where(wide > 0.0, (4.0 - compiled * read) * full + width, (3.0 - compiled) * width),
    )  # fmt: skip


def within_graphs(settings: Settings) -> Number:
    """Share of sums that are compiled together with the norm behind them: layer by layer the last is another's."""
    return 0.5 * (1.0 + settings.framework.whole_graphs)


def rotation_bytes(settings: Settings, wide: Number) -> tuple[Number, Number]:
    """Bytes of a channel of queries or keys that its rotation moves, forward and backward.

    Parameters
    ----------
    wide : 1: cosines and sines are in 32 bit beside activations in 16
    """
    apart, fused = settings.framework.separate_rotation, 2.0 * settings.widths.activation
    return (
        fused * (1.0 + (APART_ROTARY - 1.0) * apart) + WIDE_ROTARY * wide * apart,
        fused * (1.0 + (APART_ROTARY_BACKWARD - 1.0) * apart) + WIDE_ROTARY_BACKWARD * wide * apart,
    )


def norm_bytes(model: ModelNumbers, settings: Settings, wide: Number) -> tuple[Number, Number]:
    """Bytes of a channel that a norm reads and writes, forward and backward.

    Parameters
    ----------
    wide : 1: its input is in 32 bit beside activations in 16
    """
    width = ops.where(wide > 0.0, precision.FULL_BYTES, settings.widths.activation)
    cast = ops.where(width < precision.FULL_BYTES, 1.0, 0.0)
    weighs = cast * ops.maximum(model.wide_norm, settings.framework.wide_norms)
    fused, apart = norm_is_fused(model, settings), NORM_APART_BACKWARD + WIDE_WEIGHTS_BACKWARD * weighs
    return (
        ops.where(fused > 0.0, 2.0 * width, NORM_APART + NORM_CASTS * cast + WIDE_WEIGHTS * weighs),
        ops.where(fused > 0.0, 2.0 * NORM_BACKWARD * width, apart - NORM_WEIGHT * width * settings.adapter.frozen),
    )


def stream_norm_bytes(model: ModelNumbers, settings: Settings, wide: Number) -> tuple[Number, Number]:
    """The same of a norm of the hidden state, which a compiler makes part of what is around it.

    A sum and the norm that reads it are one kernel inside what is compiled together, which writes what the product behind it
    reads; so are, backward, the norm's gradient and the residual's sum. A weight's gradient is summed over tokens by another.

    Parameters
    ----------
    wide : 1: the hidden state is in 32 bit beside activations in 16

    References
    ----------
    pytorch/pytorch v2.8.0 torch/_inductor/scheduler.py (``can_fuse``: a sum into the reduction that reads it, no two reductions
    over different dimensions)
    """
    (apart, apart_back), narrow = norm_bytes(model, settings, wide), settings.widths.activation
    width = ops.where(wide > 0.0, precision.FULL_BYTES, narrow)
    trained, compiled = 1.0 - settings.adapter.frozen, settings.framework.compiled * norm_is_fused(model, settings)
    return (
        ops.where(compiled > 0.0, (1.0 - within_graphs(settings)) * width + narrow, apart),
        ops.where(compiled > 0.0, (1.0 + trained) * (narrow + width), apart_back),
    )


def product_inputs(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Elements that autocast casts in an average layer's forward pass, for each product that reads the hidden state.

    Assumptions
    -----------
    Of experts, what a router or a sort reads isn't counted. A compiler makes each cast a part of the kernel before it.
    """
    share, separate = model.experts.layers / model.layers, settings.framework.separate_projections
    attention = 1.0 + 2.0 * separate * (1.0 - model.attention.fused)
    inner = (1.0 - share) * model.mlp.share * (1.0 + separate * model.mlp.gated)
    reads = model.attention.share * attention + inner
    apart = adapters.autocasts(settings) * (1.0 - settings.framework.compiled)
    return apart * reads * local_tokens(settings, plan) * model.hidden


def experts_apart(settings: Settings) -> Number:
    """1 where biases, activation and casts of experts are kernels of their own beside those of their products."""
    return 1.0 - settings.kernels.fused_experts


def experts_together(settings: Settings) -> Number:
    """1 where one kernel is for the products of all experts on a rank, whether or not what surrounds them is fused with it."""
    return ops.maximum(settings.framework.grouped_experts, settings.kernels.fused_experts)


def grouped_apart(settings: Settings) -> Number:
    """1 where PyTorch's own kernels order the tokens of experts that one product serves, weigh them in 32 bit, and add them up.

    References
    ----------
    huggingface/transformers v5.24.0 src/transformers/integrations/moe.py, ``grouped_mm_experts_forward``: what one product
    gave for both gates is split, and its gradient joined
    """
    framework = settings.framework
    eager = framework.weighed_experts * (1.0 - framework.compiled) * framework.grouped_experts
    return ops.where(framework.looped_expert_kernels > 0.0, 0.0, eager * experts_apart(settings))


def joined_outputs(model: ModelNumbers, settings: Settings) -> Number:
    """Elements of a token moved to join the gradients of queries, keys and values that one product made."""
    attention = model.attention
    outputs = (attention.heads + 2.0 * attention.kv_heads) * attention.head_dim
    return settings.framework.separate_projections * attention.share * attention.fused * JOINED * outputs


def biases(model: ModelNumbers, settings: Settings) -> Number:
    """Outputs of an average layer's dense products that have biases, whose gradients kernels of PyTorch's own add up.

    References
    ----------
    pytorch/pytorch tools/autograd/derivatives.yaml, ``addmm``: ``self: maybe_multiply(grad, beta)``, summed to its shape
    """
    attention, share = model.attention, model.experts.layers / model.layers
    plain = attention.bias * (attention.heads + 2.0 * attention.kv_heads) * attention.head_dim
    plain = ops.where(attention.latent > 0.0, 0.0, plain)
    first = attention.share * (plain + attention.output_bias * model.hidden)
    second = (1.0 - share) * model.mlp.share * model.mlp.bias * ((1.0 + model.mlp.gated) * model.mlp.width + model.hidden)
    return settings.framework.keep_activated * (first + second)


def blocks(model: ModelNumbers) -> Number:
    """Parts of an average layer whose outputs are added to its hidden state: 2, attention or a state, and an MLP or experts."""
    share = model.experts.layers / model.layers
    # of a state and an attention side by side the outputs are one sum
    mixers = ops.minimum(model.attention.share + model.recurrent.share, ops.maximum(model.attention.share, 1.0))
    return mixers + share + (1.0 - share) * model.mlp.share


def shared_inputs(model: ModelNumbers, settings: Settings, plan: PlanNumbers, tokens: Number, routed: Number) -> Number:
    """Tokens whose gradients are moved in an average layer to sum, or join, those that reach what several products read or gave.

    Parameters
    ----------
    tokens, routed : on this rank, and those that it sends to experts

    Assumptions
    -----------
    What is made from a latent counts as one product, also where the two latents are apart.

    References
    ----------
    huggingface/transformers v4.57 src/transformers/models/qwen3_moe/modeling_qwen3_moe.py: each expert takes its tokens by index,
    whose gradient PyTorch puts into zeros for all tokens (pytorch/pytorch tools/autograd/derivatives.yaml, ``index_backward``)
    """
    share = model.experts.layers / model.layers
    several = ops.where((model.attention.latent > 0.0) | (model.attention.fused > 0.0), 0.0, 2.0)
    attention = model.attention.share * several * tokens
    routed = routed * plan.expert_tensor
    shared = ops.where(model.experts.shared_width > 0.0, tokens, 0.0)
    routed = (1.0 - grouped_apart(settings)) * routed  # whose gates are one product then
    gates = model.mlp.gated * ((1.0 - share) * model.mlp.share * tokens + share * (routed + shared))
    each = ops.where(settings.framework.keep_activated > 0.0, SUMMED, SUMMED_BY_PRODUCT)
    summed = settings.framework.separate_projections * each * (attention + gates)
    looped = ops.where(settings.framework.looped_expert_kernels > 0.0, experts_apart(settings), 0.0)
    reached = model.experts.number / plan.expert * ops.minimum(expert_tokens(model, settings, plan), 1.0)
    return summed + share * looped * reached * PUT_BACK * tokens


def rotates(model: ModelNumbers) -> Number:
    """1 where queries and keys are rotated by their positions, 0 where a table of positions is learned.

    Assumptions
    -----------
    A model without a table rotates: of biases on the scores (ALiBi) a model does not tell.
    """
    return ops.where(model.vocabulary.positions > 0.0, 0.0, 1.0)


def norms_are_rms(model: ModelNumbers) -> bool:
    """Whether a model's norms are RMSNorms; else they are LayerNorms.

    Assumptions
    -----------
    A norm with weights and no biases is an RMSNorm.
    """
    return ops.equal(model.norm_vectors, RMSNORM_VECTORS)


def norm_is_fused(model: ModelNumbers, settings: Settings) -> Number:
    """1 where a norm is one kernel: PyTorch has a LayerNorm as one, whatever else is fused."""
    return ops.where(norms_are_rms(model), settings.kernels.fused_norms, 1.0)


def norms_are_lifted(model: ModelNumbers, settings: Settings) -> Number:
    """1 where autocast casts what a LayerNorm reads to 32 bit, and what it makes for the product behind it down again.

    References
    ----------
    pytorch/pytorch aten/src/ATen/autocast_mode.h (``layer_norm`` among what runs in 32 bit)
    """
    whole = ops.where(norms_are_rms(model), 0.0, 1.0)
    return whole * adapters.in_autocast(settings) * (1.0 - adapters.wide_stream(settings))


def _activated(model: ModelNumbers, settings: Settings) -> tuple[Number, Number]:
    """Tensors of an MLP's width that its activation reads and writes, forward and backward.

    A plain one moves two and three, a gated one three and five in one kernel. As two, activation and product, it moves five
    and nine. Limits on its inputs are kernels of their own before it; so are the operations of one that is written out, and the
    casts of inputs that are stored in fewer bits, there and back.

    References
    ----------
    NVIDIA/Megatron-LM@d98e8a6 megatron/core/fusions/fused_bias_swiglu.py, ``SwiGLUFunction``: ``input.to(torch.float8_e4m3fn)``
    """
    apart = 2.0 * settings.framework.keep_activated
    clamps = clamps_apart(model, settings)
    out, wide = writes_activation_out(model, settings), adapters.autocasts(settings)
    narrower = settings.widths.activated / settings.widths.activation
    stored = settings.kernels.cast_activations * (1.0 + model.mlp.gated) * (1.0 + narrower)
    gated, clamped = model.mlp.gated * (1.0 + apart), clamps * CLAMPED
    forward = 2.0 + gated + clamped + stored + out * (WRITTEN_OUT + WIDE_WRITTEN_OUT * wide)
    back = 3.0 + 2.0 * gated + clamps * CLAMPED_BACK + stored
    return forward, back + out * (WRITTEN_OUT_BACK + WIDE_WRITTEN_OUT_BACK * wide)


def plain_activation_keeps(model: ModelNumbers, settings: Settings) -> Number:
    """Tensors of an MLP's width that an activation without a gate keeps beside what it makes.

    One that is written out in kernels of its own keeps what each of them does; a framework that fuses or compiles has one kernel,
    which keeps its input at most.

    References
    ----------
    huggingface/transformers@0114da0 src/transformers/activations.py, ``NewGELUActivation``: its input, half of it, the tangent,
    one more than that
    """
    apart = settings.framework.keep_activated * (1.0 - settings.framework.compiled) * (1.0 - settings.framework.own_activations)
    return ops.where(apart > 0.0, model.mlp.activation_keeps, ops.minimum(model.mlp.activation_keeps, 1.0))


def writes_activation_out(model: ModelNumbers, settings: Settings) -> Number:
    """1 where an activation without a gate is written out in kernels of its own."""
    return (1.0 - model.mlp.gated) * ops.where(plain_activation_keeps(model, settings) > 1.0, 1.0, 0.0)


def clamps_apart(model: ModelNumbers, settings: Settings) -> Number:
    """1 where kernels of their own hold the inputs of a gated activation within limits.

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
    """
    share = model.experts.layers / model.layers
    wide = adapters.wide_stream(settings)
    permuted, of_experts = share * moved.permutation, share * moved.expert_biases
    grouped = grouped_apart(settings)
    permuted_back = permuted * (PERMUTED + WEIGHED_BACK * grouped) / (PERMUTED + WEIGHED * grouped)
    gates_back = grouped * model.mlp.gated * 2.0 * JOINED
    activated, back = _activated(model, settings)
    (added, added_back), (turned, turned_back) = sum_bytes(model, settings, wide), rotation_bytes(settings, wide)
    (normed, normed_back), (narrow, narrow_back) = stream_norm_bytes(model, settings, wide), norm_bytes(model, settings, 0.0)
    biases_back = EXPERT_BIAS_BACKWARD / EXPERT_BIAS * of_experts
    dense, sparse = (1.0 - share) * moved.mlp, share * (moved.experts + moved.shared_experts)
    # a fused activation writes its output, and backward its inputs' gradients, in 8 bit alone
    written = settings.kernels.fused_casts
    dense_back = (back - written * (1.0 + model.mlp.gated)) / (activated - written) * dense
    return (
        moved.residuals + permuted + moved.rotary + of_experts + moved.norms + moved.query_norms + dense + sparse
        + moved.product_inputs,
        added_back / added * moved.residuals + permuted_back + turned_back / turned * moved.rotary + biases_back
        + normed_back / normed * moved.norms + narrow_back / narrow * moved.query_norms + dense_back
        + (back * sparse + gates_back * share * moved.experts) / activated
        + moved.shared_inputs + moved.product_inputs + moved.outputs,
    )


def cast_bytes(model: ModelNumbers, settings: Settings, plan: PlanNumbers, software: Software) -> Cast:
    """Bytes moved forward to make operands of 8 or 4 bit, by a layer's modules, `Cast`.

    Each activation that is multiplied is read and written once; where software keeps it cast for the weight's gradient, in a
    second layout too. Rows and columns that are scaled by themselves are cast by kernels apart, columns by slow ones.
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
    apart = experts_apart(settings)
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


def weight_casts(nparameters: Number, trained: Number, settings: Settings, device: DeviceNumbers) -> tuple[Number, Number]:
    """Time by which autocast copies weights in 16 bit for a pass, and backward their gradients in 32 [s each], if no framework
    says what it moves.

    Parameters
    ----------
    nparameters : that the pass multiplies
    trained : 1: they train, and have gradients
    """
    unsaid = ops.where(settings.framework.weight_traffic > 0.0, 0.0, CAST)
    copies = adapters.autocasts(settings) * unsaid * nparameters / device.memory_bandwidth
    return copies, trained * copies


def loss_columns(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Logits of one token on one rank: its share of the head's outputs, or all of them where the loss is not split."""
    return model.vocabulary.outputs / ops.where(settings.framework.gather_logits > 0.0, 1.0, plan.tensor)


def loss_bytes(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Bytes of a logit that kernels between the head's products move, forward and backward."""
    widths = settings.widths
    moved = ops.where((plan.tensor > 1.0) & (widths.tensor_logit > 0.0), widths.tensor_logit_traffic, widths.logit_traffic)
    capped = model.vocabulary.capped * (1.0 - settings.framework.compiled) * widths.activation
    return moved + CAPPED * capped

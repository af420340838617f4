r"""Bytes that a layer keeps from its forward to its backward pass."""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.quantities import ModelNumbers, Number, PlanNumbers, Settings, Software
from costmodel.formulas.transformer import adapters, layer, lengths, parameters, recurrent, traffic
from costmodel.formulas.transformer.attention import NARROW_BYTES, mask_bytes, under_mask
from costmodel.formulas.transformer.precision import FULL_BYTES
from costmodel.formulas.transformer.repetition import experts_again

CAST_UP_BYTES = 6.0
"""Of a channel of an activation that is written out, what autocast adds: a power is in 32 bit, and so are its input, the
tangent and one more than that, each 2 bytes wider."""


def attention_activations(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    r"""Bytes saved by the attention of an average layer, or its state, for one token, divided over tensor ranks.

    Queries, keys, values and the output (2 bytes each), and for separate kernels the softmax, the dropped-out
    softmax and its mask: :math:`5 a s` bytes a token with dropout, :math:`2 a s` without. The output is the input of the
    projection; a flash kernel saves it too, so that beside a narrow copy it is kept whole. Keys and values that several
    queries share are saved once for all of them, or once for each where a framework repeats them first, as Hugging Face's models
    do under a mask and some do always. The mask is kept, too, as each layer makes it in the dtype of the queries. Norms of
    queries and keys keep what norms keep. Some software keeps one copy of the output in few bits for both.

    Values are a view of what one product made of queries, keys and values, which stays whole beside rotated copies of queries
    and keys. A flash kernel lays its output out as its queries are: of such as are put together of two parts, head by head,
    so that the projection reads a copy.

    Where the core's products are in 8 bit, it keeps queries, keys and values so, and its output in 16 bit.

    References
    ----------
    [korthikanti2022]_ section 4.1; huggingface/transformers v5 src/transformers/integrations/sdpa_attention.py
    (``use_gqa_in_sdpa``), src/transformers/models/phi3/modeling_phi3.py (``qkv_proj``, ``apply_rotary_pos_emb``);
    NVIDIA/TransformerEngine@d0067d0 transformer_engine/pytorch/attention/dot_product_attention/backends.py (``FusedAttnFunc``: by
    delayed scaling the output is kept in 8 bit, too)
    """
    attention, widths = model.attention, settings.widths
    bytes_ = widths.activation
    kv_heads = attention.kv_heads * plan.tensor / parameters.key_holders(model, plan.tensor)
    masked = under_mask(settings, plan)
    copied = ops.maximum(settings.framework.repeat_keys, attention.repeated_keys * settings.framework.separate_rotation)
    copied = ops.maximum(copied, settings.framework.wide_scores * (1.0 - settings.kernels.flash_attention))
    repeated = ops.where((copied > 0.0) | (masked > 0.0), attention.heads, kv_heads)
    plain = attention.heads * attention.head_dim + repeated * (attention.head_dim + attention.value_head_dim)
    full = attention.heads * (2.0 * attention.head_dim + attention.value_head_dim)
    rotated = traffic.rotates(model) * settings.framework.keep_rotated * (attention.heads + kv_heads) * attention.head_dim
    compressed = 2.0 * plan.tensor * (attention.query_latent + attention.kv_latent + attention.rope_head_dim)
    by_parts = traffic.rotates(model) * settings.framework.separate_rotation
    product = attention.fused * by_parts * (attention.heads + kv_heads) * attention.head_dim
    product = ops.where(repeated > kv_heads, 0.0, product)  # values that are repeated are no view of it
    cast = (settings.adapter.unpacked_bytes > 0.0) & (widths.residual > widths.activation)
    product = ops.where(cast, 0.0, product)  # nor are such as are cast
    saved = ops.where(attention.latent > 0.0, full + compressed, plain + rotated + product)
    _, last, _, _ = adapters.input_bytes(model, settings)
    copies = last - adapters.keeps_own(settings.adapter) * widths.input  # beside what the kernel keeps, which a product reads
    dropped = ops.maximum(settings.adapter.dropout, settings.adapter.lifted) * settings.adapter.output * copies
    output_width = ops.where(settings.kernels.flash_attention > 0.0, widths.attended + dropped, last)
    laid_out = settings.kernels.flash_attention * ops.where(masked > 0.0, 0.0, by_parts * attention.split_rotation)
    copied_out = ops.maximum(settings.adapter.dropout, settings.adapter.lifted) * settings.adapter.output  # which is kept instead
    output = attention.heads * attention.value_head_dim * (output_width + laid_out * (1.0 - copied_out) * last)
    scores = (1.0 - plan.recompute_attention) * score_activations(model, settings)
    statistics = 4.0 * attention.heads * settings.kernels.flash_attention
    gate = bytes_ * attention.gate * 2.0 * attention.heads * attention.value_head_dim  # it, and what it weighs
    normed = traffic.norms_queries(model) * (attention.heads + kv_heads) * attention.head_dim * norm_input_bytes(model, settings)
    mask = plan.tensor * masked * mask_bytes(settings, 1.0)
    taken = ops.where(attention.latent > 0.0, full, plain)  # by the kernel, which keeps them as it multiplies them
    narrower = settings.kernels.narrow_attention * ops.maximum(bytes_ - NARROW_BYTES, 0.0) * taken
    attended = bytes_ * saved - narrower + normed + output + statistics + scores + gate + mask
    return attention.share * attended + recurrent.kept(model, settings)


def score_activations(model: ModelNumbers, settings: Settings) -> Number:
    """Bytes that separate kernels save of the scores of one layer for one token of a micro-batch, divided over tensor ranks.

    Of a softmax in 32 bit itself, which its gradient reads, and the copy that multiplies values.
    """
    wide = wide_scores(model, settings) * FULL_BYTES
    per_score = settings.widths.activation + wide + model.dropout * (settings.widths.activation + 1.0)
    return (1.0 - settings.kernels.flash_attention) * per_score * model.attention.heads * settings.seq_len


def wide_scores(model: ModelNumbers, settings: Settings) -> Number:
    """1 where separate kernels take the softmax of narrower scores in 32 bit.

    As the code of models does, but for GPT-2's and its like, whose positions are learned; and autocast.

    References
    ----------
    huggingface/transformers src/transformers/models/llama/modeling_llama.py (``eager_attention_forward``), models/gpt_neox/
    modeling_gpt_neox.py, models/gpt2/modeling_gpt2.py (the same, in the dtype of the scores); pytorch/pytorch aten/src/ATen/
    autocast_mode.h (softmax in 32 bit)
    """
    learned = ops.where(model.vocabulary.positions > 0.0, adapters.in_autocast(settings), 1.0)
    asked = settings.framework.wide_scores * ops.where(traffic.norms_are_rms(model), 1.0, learned)
    return asked * ops.where(settings.widths.activation < FULL_BYTES, 1.0, 0.0)


def mlp_activations(model: ModelNumbers, settings: Settings) -> Number:
    """Bytes saved by the MLP of an average layer for one token, divided over tensor ranks: inner tensors.

    Experts save their permuted inputs and their inner tensors, `experts_per_token` times and on the busiest rank; their outputs
    too where a router's probability multiplies these, not where it multiplies what the second product reads.
    """
    share = model.experts.layers / model.layers
    dense, experts, shared, _ = mlp_parts(model, settings)
    return dense + share * (experts + shared - dense)


def mlp_parts(model: ModelNumbers, settings: Settings) -> tuple[Number, Number, Number, Number]:
    """Bytes saved for one token by a dense MLP, by routed experts, by shared ones, and by the routed ones' activation alone.

    The last is the input of an expert's second product, and of a gated one the activated gate where that is kept. A plain
    activation keeps its input, or what each of the kernels keeps in which it is written out. Where limits on
    the activation's inputs are kernels of their own, what they limited is kept beside what they made of it. Probabilities that
    weigh what the second product reads do so inside the kernel of a gated activation; another's output they multiply, and it
    is kept for their gradient.

    What products of quantised weights make is as wide as what they read: in 32 bit behind norms that are.

    References
    ----------
    NVIDIA/Megatron-LM@d98e8a6 megatron/core/transformer/moe/experts.py (``weighted_bias_swiglu_impl``: probabilities before the
    second product), megatron/core/transformer/mlp.py (``per_token_scale``: fused for gated activations alone);
    huggingface/transformers src/transformers/models/mixtral/modeling_mixtral.py (behind it);
    bitsandbytes-foundation/bitsandbytes bitsandbytes/nn/modules.py (``Linear4bit.forward``: ``.to(inp_dtype)``)
    """
    widths, mixture = settings.widths, model.experts
    _, _, first, last = adapters.input_bytes(model, settings)
    beside = model.mlp.gated * settings.framework.keep_activated
    limited = widths.activation * 2.0 * traffic.clamps_apart(model, settings)
    of_experts = traffic.experts_apart(settings) * limited
    read = ops.where(model.mlp.gated > 0.0, 2.0, traffic.plain_activation_keeps(model, settings))
    wide = adapters.in_autocast(settings) * ops.where(read > 1.0, CAST_UP_BYTES, 0.0) * (1.0 - model.mlp.gated)
    made = ops.where(settings.adapter.unpacked_bytes > 0.0, widths.residual, widths.activation)
    activated_width = ops.where(made > widths.activation, made, widths.activated)
    width = activated_width * read + wide + made * beside + last
    routed = mixture.load * mixture.per_token
    permuted = (first + settings.framework.keep_expert_outputs * widths.activation) * model.hidden
    weighed = (1.0 - settings.framework.keep_expert_outputs) * (1.0 - model.mlp.gated) * widths.activation
    activated = routed * (made * beside + weighed + last + of_experts) * mixture.width
    experts = routed * ((width + weighed + of_experts) * mixture.width + permuted)
    return (width + limited) * model.mlp.width * model.mlp.share, experts, (width + limited) * mixture.shared_width, activated


def module_activations(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Bytes of an average layer that its recomputed modules make again in the backward pass, on one rank.

    Norms make their outputs, the latent's projections queries, keys and values, an MLP its inner tensors, experts also
    their permuted inputs. A norm is a kernel of its own before latent attention and before experts; elsewhere it is
    one with the product that follows, and keeps its output. What a module that is run again reads is kept.

    References
    ----------
    NVIDIA/Megatron-LM@d98e8a6 megatron/core/transformer/transformer_config.py, ``recompute_modules``
    """
    attention, widths = model.attention, settings.widths
    share = model.experts.layers / model.layers
    latent = ops.where(attention.latent > 0.0, attention.share, 0.0)
    tokens = lengths.local_tokens(settings, plan)
    gathered = ops.where(settings.framework.keep_gathered > 0.0, tokens, lengths.norm_tokens(settings, plan))
    dense, experts, shared, activated = mlp_parts(model, settings)
    again = experts_again(plan)
    sparse = again.routed * experts + again.shared * shared + (again.activation - again.routed) * activated
    expanded = latent * widths.activation * attention.heads * (2.0 * attention.head_dim + attention.value_head_dim)
    mlp = (1.0 - share) * plan.recompute_mlp * dense + share * sparse
    inner = tokens / plan.tensor * (mlp + plan.recompute_latent_projections * expanded)
    projections, _, first, _ = adapters.input_bytes(model, settings)
    apart = 0.5 * (latent * projections + (1.0 - again.routed) * share * first)
    modules = inner + plan.recompute_norms * model.hidden * gathered * model.norms * apart
    made = ops.maximum(layer_activations(model, settings, plan) - operators_kept(model, settings, plan), modules)
    return modules + plan.recompute_operators * (made - modules)


def operators_kept(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Bytes of an average layer that are kept where all but the attention core and every second product is made again.

    The layer's input, the output of the attention core, and the outputs of the first, third, fifth ... product: queries,
    values, the first of an MLP's and, with a gate, its last, which nobody reads: a compiler, which also joins activation and
    product, drops that. Under latent attention these are what queries, keys and values are compressed to, the projection back,
    and the gated channels.

    References
    ----------
    pytorch/torchtitan@b5bcd76 torchtitan/models/llama3/infra/parallelize.py (``_apply_ac_to_transformer_block``)
    """
    attention, mixture, bytes_ = model.attention, model.experts, settings.widths.activation
    share = mixture.layers / model.layers
    tokens, gated = lengths.local_tokens(settings, plan), model.mlp.gated
    routed, shared = mixture.load * mixture.per_token, ops.where(mixture.shared_width > 0.0, 1.0, 0.0)
    latent = ops.where(attention.latent > 0.0, 1.0, 0.0)
    wide = 1.0 - latent * (1.0 - gated)  # the product of an MLP that is kept inside it is as wide as it is
    dense = model.mlp.share * (wide * model.mlp.width + (1.0 - wide) * plan.tensor * model.hidden)
    experts = wide * (routed * mixture.width + mixture.shared_width) + (1.0 - wide) * (routed + shared) * model.hidden
    plain = attention.heads * attention.head_dim + attention.value_rows * attention.kv_heads * attention.head_dim
    projected = ops.where(attention.latent > 0.0, attention.query_latent + attention.kv_latent, plain)
    attended = attention.share * (attention.heads * attention.value_head_dim + projected)
    states = model.recurrent.share * 0.5 * model.recurrent.kept
    inner = attended + states + (1.0 - share) * dense + share * experts
    statistics = 4.0 * attention.share * attention.heads
    unread = gated * settings.framework.keep_activated * (1.0 - settings.framework.compiled)
    outer = model.hidden * ((latent + (1.0 - latent) * unread) * tokens + lengths.norm_tokens(settings, plan))
    return bytes_ * outer + tokens / plan.tensor * (bytes_ * inner + statistics)


def norm_input_bytes(model: ModelNumbers, settings: Settings) -> Number:
    """Bytes that one norm keeps per channel and token beside its output.

    One kernel keeps its input, that of a LayerNorm in 32 bit under autocast. An RMSNorm of separate kernels casts its input to 32
    bit and keeps that copy, and where its weight trains, what that multiplies, in 16 bit or before that is cast down again.

    References
    ----------
    huggingface/transformers src/transformers/models/llama/modeling_llama.py (``LlamaRMSNorm``),
    src/transformers/models/gemma/modeling_gemma.py (``GemmaRMSNorm``), Lightning-AI/litgpt@2685705
    litgpt/model.py (``RMSNorm``), pytorch/torchtune torchtune/modules/rms_norm.py
    """
    cast = adapters.autocasts(settings)
    read = ops.where(cast > 0.0, FULL_BYTES, settings.widths.activation)
    multiplied = ops.where(ops.maximum(model.wide_norm, settings.framework.wide_norms) > 0.0, FULL_BYTES, read)
    separate = FULL_BYTES + (1.0 - settings.adapter.frozen) * multiplied
    whole = ops.where(traffic.norms_are_lifted(model, settings) > 0.0, FULL_BYTES, read)
    return ops.where(traffic.norm_is_fused(model, settings) > 0.0, whole, separate)


def layer_activations(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    r"""Bytes that an average layer saves for the backward pass of one micro-batch, on one rank.

    For a GPT with dropout and a :math:`4h` MLP, under tensor and sequence parallelism,

    .. math:: \frac{s b h}{t} \left(34 + 5 \frac{a s}{h}\right)

    With the inputs of products kept in 8 bit 27 instead of 34: two norms' outputs, the attention's output and the
    activated MLP's count one byte for two.

    References
    ----------
    [korthikanti2022]_ equations 1 to 4; NVIDIA/TransformerEngine@0004dbd transformer_engine/pytorch/module/linear.py
    (what a product saves in 8 bit)
    """
    tokens = lengths.local_tokens(settings, plan)
    split = lengths.norm_tokens(settings, plan)
    gathered = ops.where(settings.framework.keep_gathered > 0.0, tokens, split)
    further = model.parallel_block * ops.maximum(model.norms - 1.0, 0.0)
    one = traffic.norm_is_fused(model, settings) - traffic.norms_are_lifted(model, settings)  # a copy is each norm's own
    shared = ops.where(one > 0.0, further, 0.0)
    inputs = (model.norms - shared) * norm_input_bytes(model, settings)  # one, where several norms read the same
    outer = model.hidden * split * (inputs + 2.0 * model.dropout)
    projections, _, first, _ = adapters.input_bytes(model, settings)
    cast = adapters.autocasts(settings) * (1.0 - settings.adapter.frozen)  # for each product; adapters' inputs are counted so
    own = ops.maximum(settings.framework.own_inputs * ops.where(plan.tensor > 1.0, 1.0, 0.0), cast)
    apart = own * settings.framework.separate_projections
    read = (1.0 + 2.0 * apart * (1.0 - model.attention.fused)) * projections + (1.0 + apart * model.mlp.gated) * first
    outer = outer + model.hidden * gathered * model.norms * 0.5 * read
    outer = outer + tokens * adapters.operand_bytes(settings) * adapters.inner_channels(model, settings.adapter)
    inner = tokens / plan.tensor * (attention_activations(model, settings, plan) + mlp_activations(model, settings))
    return outer + inner


def captured_share(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Share of what a layer saves that graphs hold, of all of it or of some modules; a norm's inputs go with what follows it."""
    whole, tokens = layer_activations(model, settings, plan), lengths.local_tokens(settings, plan)
    inner = tokens / plan.tensor
    attended, multiplied = attention_activations(model, settings, plan), mlp_activations(model, settings)
    around = 0.5 * (whole - inner * (attended + multiplied))
    dense, _, _, _ = mlp_parts(model, settings)
    attention, mlp = around + inner * attended, around + inner * dense
    kernels, share = settings.kernels, model.experts.layers / model.layers
    some = kernels.captured_attention * attention + kernels.captured_mlp * (1.0 - share) * mlp
    return kernels.cuda_graphs + (1.0 - kernels.cuda_graphs) * some / whole


def retained_inputs(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Bytes of an average layer's inputs of quantised products that outlive their backward pass, on one rank.

    Where such a product keeps its input outside what autograd frees, it goes with the graph: when the loss of the next
    micro-batch, or of the next step's first, takes the place of this one's. A recomputed layer has no graph of its own.

    References
    ----------
    bitsandbytes 0.42 bitsandbytes/autograd/_functions.py, ``MatMul4Bit`` (``ctx.tensors``); Lightning-AI/litgpt@2685705
    litgpt/finetune/lora.py, ``fit`` (``loss`` lives on)
    """
    return settings.adapter.keep_inputs * (1.0 - plan.recompute_layers) * product_inputs(model, settings, plan)


def product_inputs(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Bytes that an average layer's products read, on one rank: such of weights in 8 bit in the residual's width."""
    attention, mixture, widths = model.attention, model.experts, settings.widths
    share, read = mixture.layers / model.layers, ops.where(settings.adapter.eighth > 0.0, widths.residual, widths.input)
    routed = mixture.load * mixture.per_token * (model.hidden + mixture.width)
    inner = (1.0 - share) * model.mlp.share * model.mlp.width + share * (routed + mixture.shared_width)
    split = plan.tensor * lengths.norm_tokens(settings, plan) * model.norms * model.hidden
    mixed = attention.share * attention.heads * attention.value_head_dim + model.recurrent.share * model.recurrent.outputs
    tokens = lengths.local_tokens(settings, plan)
    return (read * split + tokens * (widths.input * mixed + read * inner)) / plan.tensor


def checkpoint(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Bytes that one recomputed layer saves on one rank: its input.

    What products in 8 bit keep of theirs no checkpoint takes away, unless nothing is recorded before all is made again.

    References
    ----------
    bitsandbytes-foundation/bitsandbytes 0.50.2 bitsandbytes/autograd/_functions.py (``MatMul8bitLt``: ``ctx.tensors``);
    pytorch/pytorch v2.13.0 torch/utils/checkpoint.py (``_checkpoint_hook``: of what ``save_for_backward`` saves)
    """
    width = ops.where(adapters.autocasts(settings) > 0.0, FULL_BYTES, settings.widths.residual)
    stays = settings.adapter.eighth * (1.0 - settings.framework.reentrant) * product_inputs(model, settings, plan)
    return width * lengths.norm_tokens(settings, plan) * model.hidden + stays


def unit_input(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Bytes of a recomputed layer's saved input that its first norm keeps as it is: all of one in 32 bit.

    Assumptions
    -----------
    Of one in 16 bit, which a norm of one kernel could keep as it is, there are two.
    """
    return adapters.wide_stream(settings) * checkpoint(model, settings, plan)


def kept_activations(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, software: Software,
) -> Number:  # fmt: skip
    """Bytes that an average layer keeps from its forward to its backward pass, for one micro-batch.

    What recomputed modules make again is not kept. Weights that the backward pass multiplies as the forward pass unpacked them
    are.
    """
    saved = layer_activations(model, settings, plan) - module_activations(model, settings, plan)
    unpacked = adapters.unpacked_weights(settings, layer.layer_parameters(model, plan))
    whole = software.memory.activation_overhead * saved + unpacked
    return whole + plan.recompute_layers * (checkpoint(model, settings, plan) - whole)


def adapted_inputs(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Bytes that an MLP's last adapter holds of its input as it drops it out, beside what it keeps, on one rank.

    The input itself, which no frozen product keeps unless it multiplies in 8 bit or saves it, the copy in 32 bit of it, and
    what was dropped out of that, which goes as it is cast down; where nothing casts, that is what the product keeps.

    References
    ----------
    huggingface/peft v0.21.0 src/peft/tuners/lora/layer.py (``Linear.forward``: ``x`` lives to its end), lora/bnb.py
    """
    widths, adapter = settings.widths, settings.adapter
    read = ops.where(adapter.unpacked_bytes > 0.0, widths.residual, widths.activation)
    lifted = adapter.lifted * ops.where(read < FULL_BYTES, FULL_BYTES, 0.0)
    wide = ops.maximum(adapter.lifted, adapter.apart)
    dropped = adapter.dropout * (1.0 - adapter.uncast) * ops.where(wide > 0.0, FULL_BYTES, 0.0)
    share = (1.0 - model.experts.layers / model.layers) * model.mlp.share
    elements = lengths.local_tokens(settings, plan) * share * model.mlp.width / plan.tensor
    return adapter.down * elements * ((1.0 - ops.maximum(adapter.eighth, adapter.saves)) * read + lifted + dropped)


def around_adapter(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Bytes of hidden states that nobody keeps as an MLP's last product is made again, on one rank.

    The norm's output, which the MLP read, and in a parallel block the attention's; what the frozen product made; the gradient
    of the layer's output, and unless all is made again before its pass begins, scaled for the adapter, where it is in 32 bit
    cast. An adapter that multiplies in 32 bit makes its output, and scales it.
    """
    widths = settings.widths
    normed = ops.where(traffic.norms_are_lifted(model, settings) > 0.0, FULL_BYTES, widths.residual)
    cast = ops.where(widths.residual > widths.activation, widths.activation, 0.0)
    begun = (1.0 - settings.framework.reentrant) * (widths.activation + cast)
    made = settings.adapter.uncast * 2.0 * FULL_BYTES
    normed = (1.0 - settings.adapter.saves) * normed
    width = normed + made + model.parallel_block * widths.activation + 2.0 * widths.residual + begun
    return width * lengths.norm_tokens(settings, plan) * model.hidden


def dispatched_gradients(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Bytes that experts' backward pass holds on one rank as it begins, when nothing of what was saved has gone.

    The gradient of the layer's output is copied for each expert of a token, exchanged and sorted: each step reads such copies
    and writes as many. So ends the forward pass, where it is run again. Experts that are looped over on one rank copy one's
    tokens at a time.

    References
    ----------
    NVIDIA/Megatron-LM@d98e8a6 megatron/core/transformer/moe/token_dispatcher.py (``MoEAlltoAllTokenDispatcher``:
    ``combine_preprocess``, ``token_combine``, ``combine_postprocess``); huggingface/transformers v4.57
    src/transformers/models/mixtral/modeling_mixtral.py (``MixtralSparseMoeBlock``: the loop)
    """
    mixture, framework = model.experts, settings.framework
    looped = framework.keep_expert_outputs * (1.0 - traffic.experts_together(settings)) * ops.where(plan.expert > 1.0, 0.0, 1.0)
    copies = (1.0 - looped) * mixture.layers / model.layers * mixture.load * mixture.per_token
    return 2.0 * settings.widths.activation * copies * model.hidden * lengths.local_tokens(settings, plan) / plan.tensor


def gate_gradients(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Bytes that a gated MLP's backward pass holds on one rank beside what was saved, of an activation and a gate by themselves.

    The gradient of their product and those of both factors, when the product, which its projection read, has gone; and the
    gradient of the layer's output.
    """
    widths, share = settings.widths, (1.0 - model.experts.layers / model.layers) * model.mlp.share
    made = ops.where(settings.adapter.unpacked_bytes > 0.0, widths.residual, widths.activation)
    _, _, _, last = adapters.input_bytes(model, settings)
    apart = share * model.mlp.gated * settings.framework.keep_activated
    inner = (3.0 * made - last) * model.mlp.width * lengths.local_tokens(settings, plan) / plan.tensor
    return apart * (inner + widths.residual * model.hidden * lengths.norm_tokens(settings, plan))


def backward_temporaries(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, software: Software,
) -> Number:  # fmt: skip
    """Bytes that one layer's backward pass holds beside what was saved.

    The gradients of its inner tensors; where it is recomputed, or fetched from the host, also the layer's own
    activations, whole; where modules of it are, theirs. Scores that are recomputed live again while the layer is at work.
    The backward pass of experts begins with `dispatched_gradients`.
    Beside a softmax in 32 bit its gradient is there in 32 bit twice, the copy in 16 bit no more, nor what the MLP and its norm
    saved, whose backward pass is over by then. Or, of adapters, as the last product is made again, what that does of its input,
    and the gradient of its output.
    """
    tokens = lengths.local_tokens(settings, plan) / plan.tensor
    scores = tokens * plan.recompute_attention * model.attention.share * score_activations(model, settings)
    layer_ = layer_activations(model, settings, plan) + scores
    kept = kept_activations(model, settings, plan, software)
    unpacked = adapters.unpacked_weights(settings, layer.layer_parameters(model, plan))
    fresh = software.memory.activation_overhead * layer_ + unpacked
    modules = software.memory.activation_overhead * (module_activations(model, settings, plan) + scores)
    fresh = fresh - software.memory.activation_overhead * unit_input(model, settings, plan)
    again = ops.where(plan.recompute_layers > 0.0, fresh, modules + settings.offload.activations * kept)
    wide = wide_scores(model, settings) * model.attention.share * tokens * score_activations(model, settings)
    mlp = tokens * mlp_activations(model, settings)
    others = layer_ - scores - tokens * attention_activations(model, settings, plan)
    inner = ops.maximum(0.5 * (others + mlp), mlp)
    over = software.memory.activation_overhead * inner
    outlives = settings.adapter.eighth * product_inputs(model, settings, plan)  # which no gradient takes the place of
    beside, share = layer_ - wide - outlives, software.memory.backward_overhead
    at_once = ops.maximum(share * beside, ops.where(wide > 0.0, share * (beside - inner) + wide - over, 0.0))
    at_once = ops.maximum(at_once, dispatched_gradients(model, settings, plan))
    at_once = ops.maximum(at_once, gate_gradients(model, settings, plan))
    adapted = adapted_inputs(model, settings, plan)
    return again + ops.maximum(at_once, ops.where(adapted > 0.0, adapted + around_adapter(model, settings, plan), 0.0))

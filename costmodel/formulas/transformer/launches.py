r"""What the host launches for a layer, over what it launches for a plain dense one.

A constant of the software says how long a plain layer takes to launch. A softmax apart, adapters, context parallelism, casts to
few bits and routing launch kernels of their own, each about as long as any other.
"""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.quantities import ModelNumbers, Number, PlanNumbers, Settings, Software
from costmodel.formulas.transformer import adapters, lengths, traffic
from costmodel.formulas.transformer.attention import ring_ranks, softmax_is_fused

PLAIN = 30.0
"""Kernels of a plain layer forward: two norms, four or seven products, rotation, attention, activation, residuals and dropout."""
OF_ADAPTER, OF_DROPOUT = 4.0, 1.0
"""Two products, a scaling and a sum; a dropout (huggingface/peft@b28a09c src/peft/tuners/lora/layer.py, ``Linear.forward``)."""
OF_LIFTED, OF_AUTOCAST_LIFTED = 2.0, 2.0
"""Casts of an adapter in 32 bit: of its input and its output; and under autocast of its two matrices."""
OF_ROTATION = 10.0
"""Of queries and keys in kernels of their own: two products, a sign, a joint and a sum each (huggingface/transformers
src/transformers/models/llama/modeling_llama.py, ``apply_rotary_pos_emb``)."""
FUSED_AWAY = 2.0
"""Of these, where products scale and add themselves."""
CONTAINERS = 4.0
"""Modules of a layer without weights of their own, which have hooks all the same: it, attention, the MLP, its activation."""
CONTAINERS_OF_EXPERT = 2.0
"""The same of an expert: it, and its activation."""
OF_HOP = 10.0
"""Of attention on one part of a ring: the kernel, the copy that goes on, the sum's rescaling (NVIDIA/TransformerEngine
transformer_engine/common/fused_attn/context_parallel.cu has a kernel for each of the last)."""
OF_GATHERED_KEYS = 10.0
"""Of keys and values that are gathered: two copies, gathers and reorderings, a second kernel for the second half of the queries,
copies of both results (NVIDIA/TransformerEngine@d0067d0 transformer_engine/pytorch/attention/dot_product_attention/
context_parallel.py, ``AttnFuncWithCPAndKVAllGather``)."""
OF_EXCHANGED_HEADS = 12.0
"""Of positions exchanged for heads: a copy, an all-to-all and a reordering each of queries, keys, values and outputs (the same,
``flash_attn_a2a_communicate``)."""
OF_CAST = 2.0
"""To bring an operand to 8 or 4 bits: its largest value, then the cast."""

QUERIES_AND_KEYS = 2.0
"""Of a layer, which positions rotate."""
OF_NORM, OF_NORM_APART = 1.0, 8.0
"""Of one norm of queries or of keys: one kernel, or as many as an RMSNorm is written in (huggingface/transformers
src/transformers/models/qwen3/modeling_qwen3.py, ``Qwen3RMSNorm``)."""
OF_AUTOCAST, INPUTS_OF_AUTOCAST = 10.0, 3.0
"""Casts of seven weights and of three inputs more than norms cast themselves, of a layer like Llama's (pytorch/pytorch
aten/src/ATen/autocast_mode.h)."""
OF_EXPERT_BIAS = 2.0
"""Of each expert on the rank whose second product has a bias: times the probabilities, then to the outputs (NVIDIA/Megatron-LM
@d98e8a6 megatron/core/transformer/moe/experts.py, ``_apply_bias``)."""
OF_LATENT = 15.0
"""Of latent attention beyond a plain one's: products of queries, and of keys and values, down and up in place of one, two norms,
two rotations, two joints of what is rotated with what isn't, copies of keys for every head and of what kernels need contiguous
(NVIDIA/Megatron-LM@d98e8a6 megatron/core/transformer/multi_latent_attention.py, ``get_query_key_value_tensors``)."""
OF_STATE = 15.0
"""Of a state beyond attention's: a convolution, steps and decays, five kernels of a chunked scan, a gated norm (fla-org/
flash-linear-attention fla/layers/gated_deltanet.py; state-spaces/mamba mamba_ssm/ops/triton/ssd_combined.py)."""
OF_LIMITS = 3.0
"""Two limits on an activation's inputs, and what joins them (the same, megatron/core/fusions/fused_bias_geglu.py)."""
OF_ACTIVATION = 7.0
"""Of GELU by a tangent that is written out, beyond one kernel (huggingface/transformers@0114da0 src/transformers/activations.py,
``NewGELUActivation``)."""


ATTENTION_SHARE = 0.5
"""Of a plain layer's kernels, those of attention, its norm and its residual."""
ROUTER_SHARE = 0.5
"""Of what routing launches, what decides and counts: the rest dispatches, multiplies and combines (NVIDIA/Megatron-LM@d98e8a6
megatron/core/transformer/moe/router.py and token_dispatcher.py; ``moe_router`` and ``moe_preprocess`` of its graphs' scopes)."""


def counted_tokens(model: ModelNumbers, settings: Settings) -> Number:
    """1 where the host must learn how many tokens each expert has before it launches the experts' products, and waits for it.

    Not where kernels of fused experts count themselves, nor where each expert takes as many tokens as it may and is padded to
    them: no copy to the host, no wait, and shapes that a graph can hold. DeepEP counts all the same.

    References
    ----------
    NVIDIA/Megatron-LM@d98e8a6 megatron/core/transformer/moe/experts.py, ``tokens_per_expert.tolist``; token_dispatcher.py, where
    ``drop_and_pad`` leaves ``cuda_sync_point`` at ``no_sync``; ../transformer_config.py: "moe cuda graph is only supported with
    drop-padding MoE", "Flex token dispatcher with deepep backend does not support moe_pad_expert_input_to_capacity"

    Examples
    --------
    >>> import dataclasses
    >>> from costmodel import Plan, load_framework, load_model
    >>> settings = Plan(global_batch=8, seq_len=4096).settings(load_framework("nemo"))
    >>> mixture = load_model("mixtral-8x7b")
    >>> padded = dataclasses.replace(mixture, expert_capacity=1.0)
    >>> [float(counted_tokens(model.numbers(), settings)) for model in (load_model("llama3-8b"), mixture, padded)]
    [0.0, 1.0, 0.0]
    """
    padded = model.experts.padded * (1.0 - settings.kernels.deduplicated_dispatch)
    return ops.where(model.experts.layers > 0.0, 1.0 - ops.maximum(settings.kernels.fused_experts, padded), 0.0)


def captured_launches(model: ModelNumbers, settings: Settings, plan: PlanNumbers, software: Software) -> Number:
    """Of `layer_launches`, what graphs of some modules launch.

    Assumptions
    -----------
    Half of what adapters and casts launch is the attention's.
    """
    kernels, share = settings.kernels, model.experts.layers / model.layers
    halved = adapter_kernels(settings, model) + cast_kernels(settings)
    attention = ATTENTION_SHARE + (0.5 * halved + latent_projection_kernels(model) + context_kernels(settings, plan)) / PLAIN
    mlp = (1.0 - share) * (1.0 - ATTENTION_SHARE + 0.5 * halved / PLAIN)
    router = share * ROUTER_SHARE * software.host.expert_launches
    return kernels.captured_attention * attention + kernels.captured_mlp * mlp + kernels.captured_router * router


def captured_reductions(model: ModelNumbers, settings: Settings) -> Number:
    """Sums over the tensor group, of an average layer's pass, that are in graphs of some modules."""
    share = model.experts.layers / model.layers
    return settings.kernels.captured_attention + settings.kernels.captured_mlp * (1.0 - share)


def adapter_kernels(settings: Settings, model: ModelNumbers) -> Number:
    """Kernels of a layer's adapters, and of unpacking the weights beside them."""
    adapter = settings.adapter
    adapted = adapted_matrices(settings, model)
    down = (1.0 - adapter.uncast) * ops.maximum(adapter.lifted, adapter.apart)
    casts = adapter.lifted * OF_LIFTED + down * OF_AUTOCAST_LIFTED
    each = OF_ADAPTER + adapter.dropout * OF_DROPOUT + casts - settings.kernels.fused_operators * FUSED_AWAY
    added = ops.where(adapter.rank > 0.0, adapter.frozen * adapted * each, 0.0)
    every, both = adapters.joined_adapters(model, adapter)
    matrices = 6.0 + model.mlp.gated - 2.0 * ops.maximum(adapter.fused, every) - both  # what one matrix makes is unpacked at once
    eager = adapters.unpacks_eagerly(settings)
    return added + matrices * ops.where(eager > 0.0, adapters.EAGER.launches, adapter.unpacking_launches)


def adapted_matrices(settings: Settings, model: ModelNumbers) -> Number:
    """Matrices of a layer that have adapters."""
    adapter = settings.adapter
    attention = adapter.query + adapter.key + adapter.value + adapter.fused + adapter.output
    every, both = adapters.joined_adapters(model, adapter)
    return attention - 2.0 * every + adapter.gate * model.mlp.gated + adapter.up - both + adapter.down


def latent_projection_kernels(model: ModelNumbers) -> Number:
    """Kernels by which latent attention makes queries, keys and values, beyond a plain one's."""
    return ops.where(model.attention.latent > 0.0, model.attention.share * OF_LATENT, 0.0)


def plain_launches(model: ModelNumbers, settings: Settings) -> Number:
    """Launches of a layer of two blocks over those of one like Llama's, of which a constant of the software tells the time.

    Operator by operator an RMSNorm, a rotation and a gate are many kernels, a LayerNorm and a learned position one or none.

    Assumptions
    -----------
    Other software than PyTorch's operators one by one takes as long for either: its modules cost more than their kernels.
    """
    framework = settings.framework
    eager = framework.keep_activated * (1.0 - framework.compiled)
    apart = framework.separate_rotation * OF_ROTATION
    of_rms = ops.where(settings.kernels.fused_norms > 0.0, OF_NORM, OF_NORM_APART)
    of_norm = ops.where(traffic.norm_is_fused(model, settings) > 0.0, OF_NORM, OF_NORM_APART)
    separate = framework.separate_projections
    always = 4.0 + 1.0 + 2.0 + 1.0  # products of what one may join, attention, two sums, activation
    llama = always + 2.0 * of_rms + apart + separate * 3.0 + 1.0
    found = always + model.norms * of_norm + traffic.rotates(model) * apart
    found = found + separate * (2.0 * (1.0 - model.attention.fused) + model.mlp.gated) + model.mlp.gated
    return 1.0 + eager * (found / llama - 1.0)


def autocast_kernels(settings: Settings) -> Number:
    """Kernels by which autocast casts a layer's weights and inputs; a compiler joins those of inputs with what makes them."""
    return adapters.autocasts(settings) * (OF_AUTOCAST - settings.framework.compiled * INPUTS_OF_AUTOCAST)


def query_norm_kernels(model: ModelNumbers, settings: Settings) -> Number:
    """Kernels of the norms of queries and keys."""
    each = ops.where(traffic.norm_is_fused(model, settings) > 0.0, OF_NORM, OF_NORM_APART)
    return model.attention.share * 2.0 * traffic.norms_queries(model) * each


def hook_time(settings: Settings, model: ModelNumbers, plan: PlanNumbers, software: Software) -> Number:
    """What hooks around every module of a layer take the host for one pass [s]."""
    projections = 4.0 + settings.framework.separate_projections * (2.0 + model.mlp.gated)
    modules = projections + model.norms + CONTAINERS
    of_expert = 2.0 + model.mlp.gated + CONTAINERS_OF_EXPERT
    experts = model.experts.number / plan.expert * model.experts.layers / model.layers
    modules = modules + settings.framework.hooked_experts * experts * of_expert
    return plan.shard_weights * settings.framework.module_hooks * modules * software.host.module_hook


def rotated_by_sample(model: ModelNumbers, settings: Settings, plan: PlanNumbers) -> Number:
    """Operators that rotate queries and keys sample by sample, of a layer's pass forward over packed samples.

    The host has waited for the samples' lengths before it calls them. Backward there are about as many.

    References
    ----------
    NVIDIA/Megatron-LM@61f3114 megatron/core/models/common/embeddings/rope_utils.py (``_apply_rotary_pos_emb_thd``)
    """
    turned = traffic.rotates(model) * model.attention.share * (1.0 - settings.kernels.captured_attention)
    return turned * QUERIES_AND_KEYS * lengths.samples(settings, plan) * settings.framework.sample_rotation_kernels


def rotation_time(model: ModelNumbers, settings: Settings, plan: PlanNumbers, software: Software) -> tuple[Number, Number]:
    """Time by which the host rotates packed samples one by one, forward and backward [s].

    Assumptions
    -----------
    Its operators are called from Python without a module around them. One backward takes of one forward what it does of a plain
    layer's, which has twice as many backward.
    """
    host = software.host
    forward = rotated_by_sample(model, settings, plan) * host.update_kernel
    return forward, forward * host.backward / (2.0 * host.forward)


def context_kernels(settings: Settings, plan: PlanNumbers) -> Number:
    """Kernels of context parallelism around the attention core."""
    kernels = settings.kernels
    in_turns = (ring_ranks(settings, plan) - 1.0) * OF_HOP
    at_once = kernels.gathered_keys * OF_GATHERED_KEYS + kernels.exchanged_heads * OF_EXCHANGED_HEADS
    return in_turns + ops.where(plan.context > 1.0, at_once, 0.0)


def cast_kernels(settings: Settings) -> Number:
    """Kernels that cast the operands of a layer's products outside the experts, and what an attention core of 8 bit takes."""
    casts = 4.0 + settings.kernels.narrow_attention - settings.kernels.fused_casts
    return ops.where(settings.widths.compute < 2.0, casts * OF_CAST, 0.0)


def layer_launches(model: ModelNumbers, settings: Settings, plan: PlanNumbers, software: Software) -> Number:
    """Launches of an average layer's pass over those of a plain dense layer.

    Backward there are about twice as many of each, as of a plain layer.

    Assumptions
    -----------
    Every kernel takes as long to launch; products of 8 or 4 bit cast four operands, and two for each expert on the rank, unless
    experts are fused; biases of experts are then theirs, too.
    """
    narrow = ops.where(settings.widths.compute < 2.0, 1.0, 0.0)
    share = model.experts.layers / model.layers
    local = model.experts.number / plan.expert
    apart = traffic.experts_apart(settings)
    of_each = narrow * apart * 2.0 * OF_CAST * local
    biases = apart * model.mlp.bias * OF_EXPERT_BIAS * local
    met = ops.minimum(lengths.expert_tokens(model, settings, plan), 1.0)  # of experts, those that have a token
    looped = apart * settings.framework.looped_expert_kernels * local * met
    routing = share * (software.host.expert_launches + (of_each + biases + looped) / PLAIN)
    fused = softmax_is_fused(settings, model.attention.heads / plan.tensor, plan)
    separate = (1.0 - settings.kernels.flash_attention) * (1.0 - fused)
    limits = (1.0 - share * settings.kernels.fused_experts) * traffic.clamps_apart(model, settings) * OF_LIMITS
    further = adapter_kernels(settings, model) + context_kernels(settings, plan) + cast_kernels(settings)
    limits = limits + (1.0 - share) * traffic.writes_activation_out(model, settings) * OF_ACTIVATION
    limits = limits + settings.kernels.cast_activations  # of what is stored in fewer bits
    further = further + latent_projection_kernels(model) + limits + model.recurrent.share * OF_STATE
    further = further + query_norm_kernels(model, settings) + autocast_kernels(settings)
    # a layer of one block launches half of one of two
    further = further - PLAIN * (1.0 - 0.5 * traffic.blocks(model))
    return plain_launches(model, settings) + further / PLAIN + routing + software.host.unfused_launches * separate

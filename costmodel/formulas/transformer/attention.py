r"""The attention core: scores, softmax and weighted values of one layer."""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.compute import base_gemm, base_product_rate
from costmodel.formulas.quantities import DeviceNumbers, ModelNumbers, Number, PlanNumbers, Settings, Software
from costmodel.formulas.transformer import lengths, parameters
from costmodel.formulas.transformer.flops import mean_attended_keys

ARGUMENTS = {
    "tokens": "queries on this rank", "seq_len": "of the whole sequence [tokens]", "width": "channels of a head",
    "rows": "queries of all heads", "heads": "on this rank",
}  # fmt: skip
"""What arguments mean in all formulas here that say nothing else of them."""
FLASH_BACKWARD = 2.5
"""FLOP of the flash backward over its forward: five products for two [dao2023]_."""
SOFTMAX_FORWARD, SOFTMAX_BACKWARD = 2.0, 3.0
"""Reads and writes of the score matrix by the softmax between its products, which move it besides: forward scores to
probabilities, backward probabilities and their gradient to that of the scores."""
APART_FORWARD, APART_BACKWARD = 10.0, 11.0
"""The same of the mask, a kernel of its own, and of a softmax in 32 bit between two casts, beyond those of a fused one
(NVIDIA/Megatron-LM megatron/legacy/model/fused_softmax.py, ``forward_torch_softmax``)."""
MASK_BYTES = 2.0
"""Of an element of a mask as PyTorch hands it to its memory-efficient kernel, in the dtype of the queries."""
MASK_PASSES = 4.0
"""Reads and writes of such elements by the kernels that make it of a mask of booleans (pytorch/pytorch@001f694
aten/src/ATen/native/transformers/attention.cpp, ``convert_boolean_attn_mask``: zeros, and what is masked filled in)."""
DROPOUT_PASSES = 2.5
"""The same of dropout, whose mask is a byte an element."""

WIDTH_STEP = 32.0
"""Channels to which flash kernels pad a head (Dao-AILab/flash-attention csrc/flash_attn, instances by head dimension)."""
ALIGNMENT = 16.0
"""Channels of which a head must be a multiple for the kernels of the newest tensor cores; else an older one runs."""

TENSOR_CORE_CHANNELS = 8.0
"""Channels of which a head must be a multiple in 16 bit for products by cuBLAS to run on tensor cores: 16 bytes (NVIDIA, Matrix
Multiplication Background User's Guide, "Tensor Core Requirements")."""

WIDE_HEAD = 128.0
"""Most channels of a head that the usual flash kernels of 8 bit take; of more others do."""
NARROW_BYTES, CAST_BYTES = 1.0, 3.0
"""Of an element of 8 bit, and moved by a cast from 16 bit to it, or back."""
SUM_BYTES = 6.0
"""Of an element that a hop's part of a result is added to, in 16 bit: both are read, the sum is written."""
REORDERED, REORDERED_BACK = 4.0, 20.0
"""Bytes that an element of gathered keys and values moves in 16 bit besides the gather: put in the sequence's order; backward
that again, and of their gradients zeroed, two parts added and put back in the ranks' order (NVIDIA/TransformerEngine@d0067d0
transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py, ``AttnFuncWithCPAndKVAllGather``)."""
REARRANGED = 8.0
"""The same of an element whose position is exchanged for a head: a copy before, one after (``flash_attn_a2a_communicate``)."""
BLOCK = 0.75
"""Share of the parts of a causal ring that an average query meets: the second half of the queries all, the first one half
(NVIDIA/TransformerEngine@d0067d0 transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py)."""


def _unless_multiple(number: Number, step: Number, rest: Number) -> Number:
    """1 where a number is a multiple of a step, else the rest."""
    steps = number / step
    return ops.where(ops.equal(ops.ceil(steps), steps), 1.0, rest)


def _padded(width: Number) -> Number:
    """Channels that a flash kernel multiplies for a head of so many."""
    return WIDTH_STEP * ops.ceil(width / WIDTH_STEP)


def flash_flop(
    rows: Number, keys: Number, width: Number, length: Number, softmax_width: Number, device: DeviceNumbers,
) -> Number:  # fmt: skip
    r"""FLOP that a flash kernel's time is that of, forward: with what tiles, softmax and unfilled waves lose.

    .. math:: 4 (r + R)(k + L)(\lceil d \rceil_{32} + D)

    Parameters
    ----------
    rows : queries of all heads :math:`r`
    keys : that an average query meets :math:`k`
    width : channels of a head, mean of those of keys and of values :math:`d`
    length : keys lost to partly masked tiles, and to starting each row of tiles :math:`L`
    softmax_width : channels that the exponentials cost as much as :math:`D`

    References
    ----------
    [dao2023]_ (tiles), [shah2024]_ section 3.2 (exponentials against products)
    """
    return 4.0 * (rows + device.attention_rows) * (keys + length) * (_padded(width) + softmax_width)


def aligned_share(width: Number, device: DeviceNumbers) -> Number:
    """Factor on a flash kernel's rate for a head's width: 1, or what is left where only an older kernel takes it."""
    return _unless_multiple(width, ALIGNMENT, device.attention_unaligned)


def full_flash(rows: Number, keys: Number, width: Number, device: DeviceNumbers) -> Number:
    """Forward time of a flash kernel without a mask [s].

    Parameters
    ----------
    keys : that each meets
    """
    flop = flash_flop(rows, keys, width, device.full_attention_length, device.full_attention_width, device)
    rate = device.base_flop_rate * device.full_attention_efficiency * aligned_share(width, device)
    return flop / (device.sustained_clock * rate) + device.kernel_time


def narrow_rates(width: Number, device: DeviceNumbers) -> tuple[Number, Number]:
    """Rates of a flash kernel whose products are in 8 bit, over those of 16: forward, backward.

    Parameters
    ----------
    width : channels of a head, mean of those of keys and of values
    """
    wide = width > WIDE_HEAD
    return (
        ops.where(wide, device.narrow_wide_attention, device.narrow_attention),
        ops.where(wide, device.narrow_wide_attention_back, device.narrow_attention_back),
    )


def causal_flash(
    rows: Number, keys: Number, windowed: Number, width: Number, older: Number, quality: Number, device: DeviceNumbers,
    apart: Number = 0.0, first_flash: Number = 1.0, narrow: Number = 0.0,
) -> tuple[Number, Number]:  # fmt: skip
    """Forward and backward time of a causal flash kernel [s].

    Parameters
    ----------
    keys : that an average query meets
    windowed : share of the layers whose window is shorter than the sequence
    width : channels of a head, mean of those of keys and of values
    older : 1 where the kernel is of an older generation of tensor cores, 2 where it is FlashAttention 1's or Triton's, 3 where it
        is PyTorch's memory-efficient one, as fast, which takes operands in 32 bit
    quality : factor of the software on the device's efficiency
    apart : keys that further kernels lose, which take parts of the sequence
    first_flash : rate of FlashAttention 1 over that of 2
    narrow : 1: its products are in 8 bit

    Returns
    -------
    tuple
        forward, backward [s]
    """
    lost = device.attention_length + windowed * device.attention_window + apart
    flop = flash_flop(rows, keys, width, lost, device.attention_width, device)
    share = ops.where(older > 0.0, device.attention_older, aligned_share(width, device))
    split = ops.where(older > 2.0, device.split_flop_rate / device.base_flop_rate, 1.0)
    # what slows it is beside its products, which three for one make long
    share = share * ops.where(older > 1.0, ops.where(split > 1.0, 1.0, first_flash), 1.0)
    rate = device.sustained_clock * device.base_flop_rate * split * share
    # only products count towards the ceiling, padded ones among them, not what tiles and softmax cost besides
    least = 4.0 * rows * keys * _padded(width) / (device.sustained_clock * device.base_best_flop_rate * split)
    forward = ops.maximum(flop / (rate * device.attention_forward_efficiency * quality), least)
    backward = FLASH_BACKWARD * ops.maximum(flop / (rate * device.attention_backward_efficiency * quality), least)
    faster, faster_back = narrow_rates(width, device)
    forward = forward / ops.where(narrow > 0.0, faster, 1.0)
    backward = backward / ops.where(narrow > 0.0, faster_back, 1.0)
    return forward + device.kernel_time, backward + 2.0 * device.kernel_time


def flash(
    model: ModelNumbers, tokens: Number, seq_len: Number, heads_share: Number, older: Number, software: Software,
    device: DeviceNumbers, ring: Number = 1.0, power: Number = 2.0, masked: Number = 0.0, narrow: Number = 0.0,
) -> tuple[Number, Number]:  # fmt: skip
    """Forward and backward time of a flash kernel on one rank, of an average layer [s].

    On a ring a kernel for each part of the keys that a layer looks back on: every one loses keys to its tiles. Under a mask
    PyTorch's memory-efficient kernel runs in its place, as fast as FlashAttention 1, over all keys, hidden ones and those
    beyond a window, too.

    Parameters
    ----------
    heads_share : share of the heads on this rank
    older : as `causal_flash` has it
    ring : ranks that share the sequence
    power : of tokens by their place in samples, as `flops.attended_keys` has it
    masked : 1 under a mask of padded samples
    narrow : 1: products are in 8 bit

    Returns
    -------
    tuple
        forward, backward [s]

    References
    ----------
    pytorch/pytorch@001f694 aten/src/ATen/native/transformers/cuda/sdp_utils.cpp (``check_for_attn_mask``: none for flash);
    [dao2023]_ section 4.1, figures 4 to 6 (xformers, whose kernel it is)
    """
    attention = model.attention
    rows = tokens * heads_share * attention.heads
    keys = ops.where(masked > 0.0, attention.met_whole * seq_len, mean_attended_keys(model, seq_len, 1.0, power))
    older = ops.where(masked > 0.0, 3.0, older)
    windowed = windowed_share(model, seq_len)
    width = 0.5 * (attention.head_dim + attention.value_head_dim)
    traits = software.compute
    lost = remote_key_blocks(model, seq_len, ring) * device.full_attention_length
    quality, first_flash = traits.attention_efficiency_scale, traits.first_flash
    return causal_flash(rows, keys, windowed, width, older, quality, device, lost, first_flash, narrow)


def windowed_share(model: ModelNumbers, seq_len: Number) -> Number:
    """Share of the layers whose window is shorter than the sequence."""
    return ops.where(model.attention.window < seq_len, model.attention.windowed_layers / model.layers, 0.0)


def remote_key_blocks(model: ModelNumbers, seq_len: Number, ring: Number) -> Number:
    """Parts of the keys on other ranks of a ring that an average query of an average layer meets.

    Parameters
    ----------
    ring : ranks that share the sequence

    Assumptions
    -----------
    A layer whose window is shorter than the sequence meets the parts that lie in its window.
    """
    windowed = windowed_share(model, seq_len)
    within = ops.minimum(ring * model.attention.window / seq_len, ring - 1.0)
    return BLOCK * ((1.0 - windowed) * (ring - 1.0) + windowed * within)


def is_ring(settings: Settings) -> Number:
    """1 where context ranks pass keys and values around a ring; 0 where the attention core has a whole sequence's at once."""
    return 1.0 - settings.kernels.gathered_keys - settings.kernels.exchanged_heads


def ring_ranks(settings: Settings, plan: PlanNumbers) -> Number:
    """Ranks whose keys and values come `is_ring`, else 1."""
    return ops.where(is_ring(settings) > 0.0, plan.context, 1.0)


def _heads_of(model: ModelNumbers, plan: PlanNumbers) -> tuple[Number, Number, Number]:
    """Heads of queries and of keys on a rank, and the channels of a key and its value together."""
    attention = model.attention
    kv_heads = attention.kv_heads / parameters.key_holders(model, plan.tensor)
    return attention.heads / plan.tensor, kv_heads, attention.head_dim + attention.value_head_dim


def context_bytes(model: ModelNumbers, tokens: Number, settings: Settings, plan: PlanNumbers) -> tuple[Number, Number]:
    """Bytes that context parallelism makes kernels move beside the attention core, forward and backward [bytes].

    A ring sums the parts of outputs and of gradients; gathered keys and values are brought in the sequence's order, and so are
    heads that are exchanged.

    References
    ----------
    NVIDIA/TransformerEngine transformer_engine/common/fused_attn/context_parallel.cu, ``OutCorrection`` and ``AddFunctor``
    """
    attention, kernels = model.attention, settings.kernels
    ring = ring_ranks(settings, plan)
    queries, kv_heads, widths = _heads_of(model, plan)
    hops = ops.where(ring > 1.0, remote_key_blocks(model, settings.seq_len, ring) + BLOCK, 0.0)
    each = hops * SUM_BYTES * tokens
    several = ops.where(plan.context > 1.0, tokens, 0.0)
    gathered = kernels.gathered_keys * several * plan.context * kv_heads * widths
    exchanged = kernels.exchanged_heads * several * (queries + kv_heads) * widths * REARRANGED
    forward = each * queries * attention.value_head_dim + REORDERED * gathered + exchanged
    summed = each * (queries * attention.head_dim + kv_heads * widths)
    return forward, summed + REORDERED_BACK * gathered + exchanged


def narrow_cast_bytes(
    model: ModelNumbers, tokens: Number, settings: Settings, plan: PlanNumbers,
) -> tuple[Number, Number]:  # fmt: skip
    """Bytes that casts around an attention core of 8 bit move, forward and backward [bytes]; 0 where it has none.

    Forward queries, keys and values are read in 16 bit and written in 8; backward the gradient of the output is, and those that
    the kernel makes of queries, keys and values in 8 bit become 16.

    References
    ----------
    NVIDIA/TransformerEngine@d0067d0 transformer_engine/pytorch/attention/dot_product_attention/backends.py, ``FusedAttnFunc``
    """
    attention = model.attention
    heads, kv_heads, widths = _heads_of(model, plan)
    each = settings.kernels.narrow_attention * CAST_BYTES * tokens
    taken = heads * attention.head_dim + kv_heads * widths
    return each * taken, each * (taken + heads * attention.value_head_dim)


def flash_bytes(model: ModelNumbers, tokens: Number, plan: PlanNumbers) -> Number:
    """Bytes that the forward pass of a flash kernel has to move at least, in 16 bit [bytes].

    Queries, keys and values are read once and the output is written once; what a kernel reads again because its tiles
    don't stay on the chip comes on top.

    References
    ----------
    [dao2023]_
    """
    heads = model.attention.heads / plan.tensor
    kv_heads = model.attention.kv_heads / parameters.key_holders(model, plan.tensor)
    return 2.0 * tokens * (heads + kv_heads) * (model.attention.head_dim + model.attention.value_head_dim)


def softmax_is_fused(settings: Settings, heads: Number, plan: PlanNumbers) -> Number:
    """1 where the fused softmax kernel runs: asked for, and four score matrices at a time to work on.

    References
    ----------
    NVIDIA/Megatron-LM megatron/legacy/model/fused_softmax.py, ``is_kernel_available``: micro-batch x local heads
    must be a multiple of 4
    """
    return settings.kernels.fused_softmax * _unless_multiple(plan.micro_batch * heads, 4.0, 0.0)


def _by_alignment(width: Number, rate: Number, device: DeviceNumbers) -> Number:
    """Rate of products with heads of so many channels: on tensor cores, or outside them [FLOP/s]."""
    return rate * _unless_multiple(width, TENSOR_CORE_CHANNELS, device.vector_flop_rate / device.base_flop_rate)


def unfused(
    model: ModelNumbers, tokens: Number, seq_len: Number, heads: Number, fused: Number, software: Software,
    device: DeviceNumbers,
) -> tuple[Number, Number]:  # fmt: skip
    r"""Forward and backward time of attention as separate kernels [s]: all :math:`s^2` scores are made and moved.

    Parameters
    ----------
    seq_len : [tokens]
    fused : 1 where mask, scale and softmax are one kernel

    Notes
    -----
    A head of channels that are no multiple of 8 is multiplied outside tensor cores: also by cuBLAS 11, which the guide below has
    slower on them and no more. BLOOM's prototypes of 150 and 450 channels a head took 8 ms more of each layer and micro-batch on
    eight A100s than their arithmetic takes on tensor cores, which is 13e12 to 15e12 FLOP/s (bigscience-workshop/bigscience
    train/tr11-176B-ml/chronicles-prequel.md, 80 layers of 14,400).

    References
    ----------
    NVIDIA, Matrix Multiplication Background User's Guide, "Tensor Core Requirements"
    """
    rate = base_product_rate(software.compute.gemm_efficiency_scale, device)
    width, value_width = model.attention.head_dim, model.attention.value_head_dim
    rows = tokens * heads
    scores = base_gemm(rows, seq_len, width, _by_alignment(width, rate, device), device)
    values = base_gemm(rows, value_width, seq_len, _by_alignment(value_width, rate, device), device)
    reached = ops.minimum(software.compute.attention_efficiency_scale, 1.0) * device.memory_bandwidth
    once = 2.0 * tokens * heads * seq_len / reached
    dropout, apart, products = DROPOUT_PASSES * model.dropout, 1.0 - fused, scores + values
    forward = SOFTMAX_FORWARD + APART_FORWARD * apart + dropout
    backward = SOFTMAX_BACKWARD + APART_BACKWARD * apart + dropout
    return products + forward * once, 2.0 * products + backward * once


def under_mask(settings: Settings, plan: PlanNumbers) -> Number:
    """1 where padded samples attend under a mask, by PyTorch's memory-efficient kernel.

    Assumptions
    -----------
    Of several samples that are padded to the longest of them one is shorter.

    References
    ----------
    huggingface/transformers v5 src/transformers/masking_utils.py, ``_ignore_causal_mask_sdpa``: none is made where no token is
    padded
    """
    masked = settings.kernels.masked_padding
    return ops.where(masked > 1.0, 1.0, ops.where(plan.micro_batch > 1.0, masked, 0.0))


def mask_bytes(settings: Settings, tokens: Number) -> Number:
    """Bytes of the mask of one layer, which is one for all heads, for some queries [bytes].

    Parameters
    ----------
    settings : at work, `Settings`
    tokens : queries
    """
    return MASK_BYTES * tokens * settings.seq_len


def core(
    model: ModelNumbers, tokens: Number, settings: Settings, plan: PlanNumbers, software: Software,
    device: DeviceNumbers,
) -> tuple[Number, Number]:  # fmt: skip
    """Forward and backward time of the attention core of one layer on one rank, by the kernel chosen [s]."""
    heads = model.attention.heads / plan.tensor
    older, attended, masked = settings.kernels.older_flash, settings.lengths.attended, under_mask(settings, plan)
    flash_forward, flash_backward = flash(
        model, tokens, attended, 1.0 / plan.tensor, older, software, device, ring_ranks(settings, plan),
        lengths.position_power(settings), masked, settings.kernels.narrow_attention,
    )
    fused = softmax_is_fused(settings, heads, plan)
    # separate kernels make the scores of a whole sequence, hidden ones too
    scored = model.attention.met_whole * ops.maximum(attended, settings.seq_len / model.layer_tokens)
    plain_forward, plain_backward = unfused(model, tokens, scored, heads, fused, software, device)
    forward = ops.where(settings.kernels.flash_attention > 0.0, flash_forward, plain_forward)
    backward = ops.where(settings.kernels.flash_attention > 0.0, flash_backward, plain_backward)
    moved, moved_back = context_bytes(model, tokens, settings, plan)
    moved = moved + MASK_PASSES * masked * mask_bytes(settings, tokens)
    cast, cast_back = narrow_cast_bytes(model, tokens, settings, plan)
    reached = ops.minimum(device.cast_bandwidth, device.cache_bandwidth)
    return (
        forward + moved / device.memory_bandwidth + cast / reached,
        backward + moved_back / device.memory_bandwidth + cast_back / reached,
    )

r"""The attention core: scores, softmax and weighted values of one layer."""

from __future__ import annotations

from costmodel import ops
from costmodel.formulas.compute import gemm
from costmodel.formulas.quantities import DeviceNumbers, ModelNumbers, Number, PlanNumbers, Settings, Software
from costmodel.formulas.transformer.flops import attention_core_flop

FLASH_BACKWARD = 2.5
"""FLOP of the flash backward over its forward: five products for two [dao2023]_."""

FUSED_PASSES, UNFUSED_PASSES = 5.0, 9.0
"""Reads and writes of the score matrix forward: product, softmax (mask and scale apart or in it), dropout, product."""


def flash(
    model: ModelNumbers, tokens: Number, seq_len: Number, heads_share: Number, software: Software,
    device: DeviceNumbers,
) -> tuple[Number, Number]:  # fmt: skip
    r"""Forward and backward time of a flash kernel [s].

    .. math:: T_f = \frac{F_{causal}}{\eta_f\, R}\,\frac{s + s_0}{s}

    Parameters
    ----------
    model : `ModelNumbers`
    tokens : queries on this rank
    seq_len : :math:`s`, of the whole sequence [tokens]
    heads_share : share of the heads on this rank
    software : `Software`
    device : `DeviceNumbers`

    Returns
    -------
    tuple
        forward, backward [s]
    """
    flop = tokens * heads_share * attention_core_flop(model, seq_len, 1.0)
    rate = device.base_flop_rate * software.compute.attention_efficiency_scale * seq_len / (seq_len + device.attention_length)
    forward = flop / (rate * device.attention_forward_efficiency) + device.kernel_time
    backward = FLASH_BACKWARD * flop / (rate * device.attention_backward_efficiency) + 2.0 * device.kernel_time
    return forward, backward


def flash_bytes(model: ModelNumbers, tokens: Number, plan: PlanNumbers) -> Number:
    """Bytes that the forward pass of a flash kernel has to move at least, in 16 bit [bytes].

    Queries, keys and values are read once and the output is written once; what a kernel reads again because its tiles
    don't stay on the chip comes on top.

    Parameters
    ----------
    model : `ModelNumbers`
    tokens : queries on this rank
    plan : `PlanNumbers`

    References
    ----------
    [dao2023]_
    """
    heads = model.attention.heads / plan.tensor
    kv_heads = ops.maximum(model.attention.kv_heads / plan.tensor, 1.0)
    return 2.0 * tokens * (heads + kv_heads) * (model.attention.head_dim + model.attention.value_head_dim)


def softmax_is_fused(settings: Settings, heads: Number, plan: PlanNumbers) -> Number:
    """1 where the fused softmax kernel runs: asked for, and four score matrices at a time to work on.

    Parameters
    ----------
    settings : `Settings`
    heads : on this rank
    plan : `PlanNumbers`

    References
    ----------
    NVIDIA/Megatron-LM megatron/legacy/model/fused_softmax.py, ``is_kernel_available``: micro-batch x local heads
    must be a multiple of 4
    """
    matrices = plan.micro_batch * heads / 4.0
    return settings.kernels.fused_softmax * ops.where(ops.equal(ops.ceil(matrices), matrices), 1.0, 0.0)


def unfused(
    model: ModelNumbers, tokens: Number, seq_len: Number, heads: Number, passes: Number, software: Software,
    device: DeviceNumbers,
) -> tuple[Number, Number]:  # fmt: skip
    r"""Forward and backward time of attention as separate kernels [s]: all :math:`s^2` scores are made and moved.

    Parameters
    ----------
    model : `ModelNumbers`
    tokens : queries on this rank
    seq_len : [tokens]
    heads : on this rank
    passes : times the score matrix is read or written forward, in 16 bit; backward twice as often
    software : `Software`
    device : `DeviceNumbers`
    """
    rate = device.base_flop_rate * device.base_gemm_efficiency * software.compute.gemm_efficiency_scale
    batched = tokens / seq_len * heads
    scores = gemm(batched * seq_len, seq_len, model.attention.head_dim, 2.0, rate, device)
    values = gemm(batched * seq_len, model.attention.value_head_dim, seq_len, 2.0, rate, device)
    moved = passes * 2.0 * tokens * heads * seq_len / (software.compute.attention_efficiency_scale * device.memory_bandwidth)
    return scores + values + moved, 2.0 * (scores + values + moved)


def core(
    model: ModelNumbers, tokens: Number, settings: Settings, plan: PlanNumbers, software: Software,
    device: DeviceNumbers,
) -> tuple[Number, Number]:  # fmt: skip
    """Forward and backward time of the attention core of one layer on one rank, by the kernel chosen [s].

    Parameters
    ----------
    model, settings, plan, software, device : as named
    tokens : queries on this rank
    """
    heads = model.attention.heads / plan.tensor
    flash_forward, flash_backward = flash(model, tokens, settings.seq_len, 1.0 / plan.tensor, software, device)
    fused = softmax_is_fused(settings, heads, plan)
    passes = UNFUSED_PASSES + fused * (FUSED_PASSES - UNFUSED_PASSES)
    plain_forward, plain_backward = unfused(model, tokens, settings.seq_len, heads, passes, software, device)
    forward = ops.where(settings.kernels.flash_attention > 0.0, flash_forward, plain_forward)
    backward = ops.where(settings.kernels.flash_attention > 0.0, flash_backward, plain_backward)
    return forward, backward

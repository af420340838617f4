r"""The attention core: scores, softmax and weighted values of one layer."""

from __future__ import annotations

from costmodel import ops
from costmodel.formulas.compute import gemm
from costmodel.formulas.transformer.flops import attention_core_flop

FLASH_BACKWARD = 2.5
"""FLOP of the flash backward over its forward: five products for two [dao2023]_."""

FUSED_PASSES, UNFUSED_PASSES = 5.0, 9.0
"""Reads and writes of the score matrix forward: product, softmax (mask and scale apart or in it), dropout, product."""


def flash(model, tokens, seq_len, heads_share, stack, device):
    r"""Forward and backward time of a flash kernel [s].

    .. math:: T_f = \frac{F_{causal}}{\eta_f\, R}\,\frac{s + s_0}{s}

    Parameters
    ----------
    model : `Model`
    tokens : queries on this rank
    seq_len : :math:`s`, of the whole sequence [tokens]
    heads_share : share of the heads on this rank
    stack : `Stack`
    device : `Device`

    Returns
    -------
    tuple
        forward, backward [s]
    """
    flop = tokens * heads_share * attention_core_flop(model, seq_len, 1.0)
    rate = device.base_flop_rate * stack.attention_quality * seq_len / (seq_len + device.attention_length)
    forward = flop / (rate * device.attention_forward_efficiency) + device.kernel_time
    backward = FLASH_BACKWARD * flop / (rate * device.attention_backward_efficiency) + 2.0 * device.kernel_time
    return forward, backward


def softmax_is_fused(options, heads, plan):
    """1 where the fused softmax kernel runs: asked for, and four score matrices at a time to work on.

    Parameters
    ----------
    options : `Options`
    heads : on this rank
    plan : `Plan`

    References
    ----------
    NVIDIA/Megatron-LM megatron/legacy/model/fused_softmax.py, ``is_kernel_available``: micro-batch x local heads
    must be a multiple of 4
    """
    matrices = plan.micro_batch * heads / 4.0
    return options.fused_softmax * ops.where(ops.equal(ops.ceil(matrices), matrices), 1.0, 0.0)


def unfused(model, tokens, seq_len, heads, passes, stack, device):
    r"""Forward and backward time of attention as separate kernels [s]: all :math:`s^2` scores are made and moved.

    Parameters
    ----------
    model : `Model`
    tokens : queries on this rank
    seq_len : [tokens]
    heads : on this rank
    passes : times the score matrix is read or written forward, in 16 bit; backward twice as often
    stack : `Stack`
    device : `Device`
    """
    rate = device.base_flop_rate * device.base_gemm_efficiency * stack.gemm_quality
    batched = tokens / seq_len * heads
    scores = gemm(batched * seq_len, seq_len, model.head_dim, 2.0, rate, device)
    values = gemm(batched * seq_len, model.value_head_dim, seq_len, 2.0, rate, device)
    moved = passes * 2.0 * tokens * heads * seq_len / (stack.attention_quality * device.memory_bandwidth)
    return scores + values + moved, 2.0 * (scores + values + moved)


def core(model, tokens, options, plan, stack, device):
    """Forward and backward time of the attention core of one layer on one rank, by the kernel chosen [s].

    Parameters
    ----------
    model, options, plan, stack, device : as named
    tokens : queries on this rank
    """
    heads = model.heads / plan.tensor
    flash_forward, flash_backward = flash(model, tokens, options.seq_len, 1.0 / plan.tensor, stack, device)
    fused = softmax_is_fused(options, heads, plan)
    passes = UNFUSED_PASSES + fused * (FUSED_PASSES - UNFUSED_PASSES)
    plain_forward, plain_backward = unfused(model, tokens, options.seq_len, heads, passes, stack, device)
    forward = ops.where(options.flash_attention > 0.0, flash_forward, plain_forward)
    backward = ops.where(options.flash_attention > 0.0, flash_backward, plain_backward)
    return forward, backward

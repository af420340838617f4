r"""The attention core: scores, softmax and weighted values of one layer."""

from __future__ import annotations

from costmodel import ops
from costmodel.formulas.compute import gemm
from costmodel.formulas.flops import attention_core_flop

FLASH_BACKWARD = 2.5
"""FLOP of the flash backward over its forward: five products for two [dao2023]_."""


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


def unfused(model, tokens, seq_len, heads_share, passes, stack, device):
    r"""Forward and backward time of attention as separate kernels [s]: all :math:`s^2` scores are made and moved.

    Parameters
    ----------
    model : `Model`
    tokens : queries on this rank
    seq_len : [tokens]
    heads_share : share of the heads on this rank
    passes : times the score matrix is read or written forward, in 16 bit; backward twice as often
    stack : `Stack`
    device : `Device`
    """
    heads = model.heads * heads_share
    rate = device.base_flop_rate * device.base_gemm_efficiency * stack.gemm_quality
    batched = tokens / seq_len * heads
    scores = gemm(batched * seq_len, seq_len, model.head_dim, 2.0, rate, device)
    values = gemm(batched * seq_len, model.value_head_dim, seq_len, 2.0, rate, device)
    moved = passes * 2.0 * tokens * heads * seq_len / device.memory_bandwidth
    return scores + values + moved, 2.0 * (scores + values + moved)


def core(model, tokens, heads_share, options, stack, device):
    """Forward and backward time of the attention core of one layer on one rank, by the kernel chosen [s]."""
    flash_forward, flash_backward = flash(model, tokens, options.seq_len, heads_share, stack, device)
    plain_forward, plain_backward = unfused(
        model, tokens, options.seq_len, heads_share, options.score_passes, stack, device
    )
    forward = ops.where(options.flash_attention > 0.0, flash_forward, plain_forward)
    backward = ops.where(options.flash_attention > 0.0, flash_backward, plain_backward)
    return forward, backward

r"""Answers of a language model, token by token, by continuous batching: what post-training does between its updates.

A replica decodes all its sequences side by side, one token of each in a step. A step reads the weights once and each sequence's
keys and values; its time is a floor that doesn't hang on how many there are, and a part for each token.
"""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.quantities import Number


def key_value_width(
    layers: Number, kv_heads: Number, head_dim: Number, value_head_dim: Number, kv_latent: Number, rope_head_dim: Number,
) -> Number:  # fmt: skip
    r"""Numbers that a token leaves in the cache of keys and values.

    .. math:: \ell \cdot \begin{cases} c + d_r & \text{latent attention} \\ h_{kv} (d + d_v) & \text{otherwise} \end{cases}

    Parameters
    ----------
    layers : with attention :math:`\ell`
    kv_heads : heads of keys and values :math:`h_{kv}`
    head_dim, value_head_dim : of a head :math:`d`, :math:`d_v`
    kv_latent : width of the latent :math:`c`; 0 without
    rope_head_dim : of the part with positions :math:`d_r`

    References
    ----------
    [deepseek2024v2]_ section 2.1

    Examples
    --------
    Of Llama 3 8B, 128 KiB in 16 bit:

    >>> 2 * key_value_width(32.0, 8.0, 128.0, 128.0, 0.0, 0.0) / 1024
    128.0
    """
    return layers * ops.where(kv_latent > 0.0, kv_latent + rope_head_dim, kv_heads * (head_dim + value_head_dim))


def decode_floor(
    weight_bytes: Number, expert_bytes: Number, read: Number, memory_bandwidth: Number, layers: Number, launches: Number,
    kernel_time: Number, all_reduce_time: Number, host_time: Number,
) -> Number:  # fmt: skip
    r"""Time of a decoding step that doesn't hang on the number of sequences [s].

    .. math:: \frac{W + r E}{b} + \ell (k t_k + 2 t_a) + t_h

    Parameters
    ----------
    weight_bytes : that a GPU holds of all but its experts :math:`W` [bytes]
    expert_bytes : that it holds of experts :math:`E` [bytes]
    read : share of the experts that a step's tokens choose :math:`r`
    memory_bandwidth : reached :math:`b` [bytes/s]
    layers : :math:`\ell`
    launches : kernels of a layer :math:`k`
    kernel_time : beyond its work :math:`t_k` [s]
    all_reduce_time : of one over the tensor group :math:`t_a` [s]
    host_time : between steps :math:`t_h` [s]

    Examples
    --------
    >>> round(1e3 * decode_floor(16e9, 0.0, 0.0, 2.7e12, 32.0, 9.0, 1.4e-6, 0.0, 0.0), 2)  # ms, 8B on an H100
    6.33
    """
    return (weight_bytes + read * expert_bytes) / memory_bandwidth + layers * (
        launches * kernel_time + 2.0 * all_reduce_time
    ) + host_time


def experts_read(experts: Number, per_token: Number, tokens: Number) -> Number:
    r"""Most of a layer's experts that a step's tokens can choose, as a share.

    .. math:: \min(1,\; k B / E)

    Parameters
    ----------
    experts : of a layer :math:`E`; 0 without
    per_token : that each token chooses :math:`k`
    tokens : of a step :math:`B`

    Examples
    --------
    >>> experts_read(128.0, 8.0, 4.0)
    0.25
    """
    return ops.where(experts > 0.0, ops.minimum(1.0, per_token * tokens / ops.maximum(experts, 1.0)), 0.0)


def token_time(flop: Number, flop_rate: Number, context_bytes: Number, memory_bandwidth: Number) -> Number:
    r"""Time that each decoded token adds to its step [s]: its products, and the keys and values of what came before.

    .. math:: F / X + C / b

    Parameters
    ----------
    flop : of the products of a token on a GPU :math:`F` [FLOP]
    flop_rate : reached :math:`X` [FLOP/s]
    context_bytes : of keys and values that a token reads on a GPU, mean over its sequence :math:`C` [bytes]
    memory_bandwidth : reached :math:`b` [bytes/s]

    Examples
    --------
    >>> token_time(16e9, 8e14, 0.0, 2.7e12)
    2e-05
    """
    return flop / flop_rate + context_bytes / memory_bandwidth


def decode_steps(sequences: Number, at_once: Number, mean_length: Number, max_length: Number) -> Number:
    r"""Decoding steps in which a replica finishes its sequences.

    .. math:: M + (\max(n / c, 1) - 1) L

    A place that a sequence leaves is taken by the next, and the last to be begun may be the longest: within one longest sequence
    of what list scheduling takes. With room for all at once it is the longest sequence, exactly.

    Parameters
    ----------
    sequences : of a replica :math:`n`
    at_once : for which it has memory :math:`c`
    mean_length : tokens decoded of a sequence, mean :math:`L`
    max_length : of the longest :math:`M`

    References
    ----------
    [graham1969]_; continuous batching, [yu2022]_

    Examples
    --------
    >>> decode_steps(128.0, 256.0, 1000.0, 4096.0), decode_steps(512.0, 256.0, 1000.0, 4096.0)
    (4096.0, 5096.0)
    """
    return max_length + (ops.maximum(sequences / at_once, 1.0) - 1.0) * mean_length


def generation_time(steps: Number, floor: Number, tokens: Number, each: Number) -> Number:
    r"""Time in which a replica decodes [s]; exact for a step that is a floor and a part for each token.

    .. math:: \int t(n S(\tau))\, d\tau = s\, t_0 + N\, t_1

    Parameters
    ----------
    steps : of decoding :math:`s`
    floor : of a step :math:`t_0` [s]
    tokens : decoded, of all sequences of the replica :math:`N`
    each : what a token adds :math:`t_1` [s]

    Examples
    --------
    >>> round(generation_time(4096.0, 0.008, 128e3, 5e-5), 2)
    39.17
    """
    return steps * floor + tokens * each


def transfer_time(weight_bytes: Number, copies: Number, bandwidth: Number) -> Number:
    r"""Time in which new weights reach those who generate [s]: each GPU receives its share.

    .. math:: \frac{W}{p\, b}

    Parameters
    ----------
    weight_bytes : of the whole model :math:`W` [bytes]
    copies : GPUs that share one copy of it :math:`p`
    bandwidth : of the slowest link on the way, a GPU :math:`b` [bytes/s]

    Examples
    --------
    >>> transfer_time(16e9, 1.0, 50e9)
    0.32
    """
    return weight_bytes / (copies * bandwidth)

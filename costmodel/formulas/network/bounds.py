r"""What no algorithm of a collective over equal links can beat, in the alpha-beta-gamma model.

Terms are those of `costmodel.formulas.network.algorithms`: a message of :math:`n` bytes takes :math:`\alpha + n / B`, and
adding :math:`n` received bytes :math:`n / G`; :math:`p` ranks.
"""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.network.algorithms import ARGUMENTS as ARGUMENTS
from costmodel.formulas.network.algorithms import FREE, ring_pass, rounds
from costmodel.formulas.quantities import Number


def least_all_reduce(
    nbytes: Number, ranks: Number, latency: Number, bandwidth: Number, reduce_bandwidth: Number = FREE,
) -> Number:  # fmt: skip
    r"""Time that no all-reduce goes below [s].

    .. math:: T \ge \max\left(\lceil \log_2 p \rceil \alpha,\; 2 \frac{p - 1}{p} \frac{n}{B},\; \frac{p - 1}{p} \frac{n}{G}\right)

    References
    ----------
    [patarasuk2009]_, [chan2007]_ section 3
    """
    moving = 2.0 * ring_pass(nbytes, ranks, 0.0, bandwidth)
    adding = ring_pass(nbytes, ranks, 0.0, reduce_bandwidth)
    return ops.maximum(rounds(ranks) * latency, ops.maximum(moving, adding))


def least_all_gather(
    nbytes: Number, ranks: Number, latency: Number, bandwidth: Number, reduce_bandwidth: Number = FREE,
) -> Number:  # fmt: skip
    r"""Time that no all-gather, reduce-scatter or all-to-all goes below [s].

    .. math:: T \ge \max\left( \lceil \log_2 p \rceil \alpha,\; \frac{p - 1}{p} \frac{n}{B},\; \frac{p - 1}{p} \frac{n}{G} \right)

    Parameters
    ----------
    nbytes : whole buffer [bytes]

    References
    ----------
    [chan2007]_ section 3
    """
    moving = ring_pass(nbytes, ranks, 0.0, bandwidth)
    adding = ring_pass(nbytes, ranks, 0.0, reduce_bandwidth)
    return ops.maximum(rounds(ranks) * latency, ops.maximum(moving, adding))


def least_broadcast(
    nbytes: Number, ranks: Number, latency: Number, bandwidth: Number, reduce_bandwidth: Number = FREE,
) -> Number:  # fmt: skip
    r"""Time that no broadcast or reduction goes below [s].

    .. math:: T \ge \max\left( \lceil \log_2 p \rceil \alpha,\; \frac{n}{B},\; \frac{p - 1}{p} \frac{n}{G} \right)

    References
    ----------
    [chan2007]_ section 3
    """
    moving = ops.where(ranks > 1.0, nbytes / bandwidth, 0.0)
    adding = ring_pass(nbytes, ranks, 0.0, reduce_bandwidth)
    return ops.maximum(rounds(ranks) * latency, ops.maximum(moving, adding))

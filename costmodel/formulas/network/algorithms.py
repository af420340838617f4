r"""Collectives over equal links: every textbook algorithm in the alpha-beta-gamma model.

A message of :math:`n` bytes takes :math:`\alpha + n / B`, a rank sends and receives one at a time, and adding
:math:`n` received bytes to its own takes :math:`n / G`; :math:`p` ranks. By default adding is free. Of every
collective the buffer is the whole one: what each rank holds before a reduction, after a gather, or sends to all
others and itself in an all-to-all. References: [thakur2005]_, [chan2007]_; what no algorithm can
beat is in `costmodel.formulas.network.bounds`, and unlike links are in `costmodel.formulas.network.collectives`.
"""

from __future__ import annotations

from costmodel.arithmetic import ops
from costmodel.formulas.quantities import Number

FREE = 1e30
"""Rate of adding received bytes where that costs nothing [bytes/s]."""
ARGUMENTS = {
    "nbytes": "buffer on each rank [bytes]", "ranks": "members, at least 1", "latency": "of a message [s]",
    "bandwidth": "of a link, one direction [bytes/s]", "reduce_bandwidth": "of adding received bytes [bytes/s]",
}  # fmt: skip
"""What arguments mean in all formulas here that say nothing else of them."""


# What every algorithm is made of


def message(nbytes: Number, latency: Number, bandwidth: Number) -> Number:
    r"""Time of one message, :math:`\alpha + n / B` [s].

    Parameters
    ----------
    nbytes : message [bytes]
    latency : [s]
    bandwidth : of the link, one direction [bytes/s]

    Examples
    --------
    >>> message(1e9, 0.5, 1e9)
    1.5
    """
    return latency + nbytes / bandwidth


def ring_pass(nbytes: Number, ranks: Number, trip_latency: Number, bandwidth: Number) -> Number:
    r"""Time in which every rank's part goes once round a ring, :math:`\tau + \frac{p - 1}{p} \frac{n}{B}` [s].

    Parameters
    ----------
    nbytes : all parts together [bytes]
    trip_latency : :math:`\tau` of the p - 1 hops together [s]
    bandwidth : at which bytes move past each rank [bytes/s]
    """
    return trip_latency + (ranks - 1.0) / ranks * nbytes / bandwidth


def rounds(ranks: Number) -> Number:
    r"""Rounds in which one rank can reach all, :math:`\lceil \log_2 p \rceil`.

    Examples
    --------
    >>> rounds(8.0), rounds(9.0)
    (3.0, 4.0)
    """
    return ops.ceil(ops.log2(ranks))


def power_of_two_below(ranks: Number) -> Number:
    """Largest power of two that is not above `ranks`.

    Examples
    --------
    >>> power_of_two_below(8.0), power_of_two_below(13.0)
    (8.0, 8.0)
    """
    return 2.0 ** (-ops.ceil(-ops.log2(ranks)))


def fold(
    nbytes: Number, ranks: Number, latency: Number, bandwidth: Number, reduce_bandwidth: Number = FREE,
) -> Number:  # fmt: skip
    """Time in which ranks beyond a power of two hand their buffers to others and get the result back [s]."""
    extra = 2.0 * message(nbytes, latency, bandwidth) + nbytes / reduce_bandwidth
    return ops.where(ranks > power_of_two_below(ranks), extra, 0.0)


# All-reduce


def ring_all_reduce(
    nbytes: Number, ranks: Number, latency: Number, bandwidth: Number, reduce_bandwidth: Number = FREE,
) -> Number:  # fmt: skip
    r"""Time of a ring all-reduce over equal links [s].

    .. math:: T = 2 (p - 1) \left( \alpha + \frac{n}{p B} \right) + \frac{p - 1}{p} \frac{n}{G}

    No algorithm sends less: each rank passes on 2 (p - 1) messages of 1/p of the buffer.

    Parameters
    ----------
    nbytes : buffer :math:`n` on each rank [bytes]
    ranks : :math:`p`, at least 1
    latency : :math:`\alpha` of one hop [s]
    bandwidth : :math:`B`, one direction of one rank's link [bytes/s]
    reduce_bandwidth : :math:`G`, of adding received bytes [bytes/s]

    References
    ----------
    [patarasuk2009]_, theorem 1

    Examples
    --------
    >>> ring_all_reduce(1e9, 8, 0.0, 100e9)
    0.0175
    """
    scatter = ring_reduce_scatter(nbytes, ranks, latency, bandwidth, reduce_bandwidth)
    return scatter + ring_all_gather(nbytes, ranks, latency, bandwidth)


def recursive_doubling_all_reduce(
    nbytes: Number, ranks: Number, latency: Number, bandwidth: Number, reduce_bandwidth: Number = FREE,
) -> Number:  # fmt: skip
    r"""Time of an all-reduce in which partners at doubling distance exchange whole buffers [s].

    .. math:: T = \log_2 q \left( \alpha + \frac{n}{B} + \frac{n}{G} \right) + \mathrm{fold}

    :math:`q` is the largest power of two up to p; where p is none, the others `fold` into it.

    References
    ----------
    [thakur2005]_ section 4.5
    """
    whole = message(nbytes, latency, bandwidth) + nbytes / reduce_bandwidth
    folded = fold(nbytes, ranks, latency, bandwidth, reduce_bandwidth)
    return ops.log2(power_of_two_below(ranks)) * whole + folded


def rabenseifner_all_reduce(
    nbytes: Number, ranks: Number, latency: Number, bandwidth: Number, reduce_bandwidth: Number = FREE,
) -> Number:  # fmt: skip
    r"""Time of recursive halving and doubling: a reduce-scatter and an all-gather in :math:`\log_2 q` rounds each [s].

    .. math:: T = 2 \log_2 q\, \alpha + 2 \frac{q - 1}{q} \frac{n}{B} + \frac{q - 1}{q} \frac{n}{G} + \mathrm{fold}

    :math:`q` is the largest power of two up to p; where p is none, the others `fold` into it.

    References
    ----------
    [thakur2005]_ section 4.5; Gloo docs/algorithms.md (halving_doubling)
    """
    q = power_of_two_below(ranks)
    scatter = bruck_reduce_scatter(nbytes, q, latency, bandwidth, reduce_bandwidth)
    folded = fold(nbytes, ranks, latency, bandwidth, reduce_bandwidth)
    return scatter + bruck_all_gather(nbytes, q, latency, bandwidth) + folded


def next_block(
    nbytes: Number, smaller: Number, larger: Number, latency: Number, bandwidth: Number,
    reduce_bandwidth: Number = FREE,
) -> Number:  # fmt: skip
    r"""Time in which a block of ranks deals the parts it has summed to the next larger block [s].

    .. math:: T = \frac{l}{s} \left( \alpha + \frac{n}{l B} \right) + \frac{n}{l G}

    Each of the :math:`s` ranks holds 1/s of the buffer and sends it to :math:`l / s` others, one after the other. The
    loop over the blocks of an all-reduce is `costmodel.evaluation.collectives.block_solver.binary_blocks_all_reduce`.

    Parameters
    ----------
    smaller, larger : ranks :math:`s` and :math:`l` of the blocks, powers of two

    References
    ----------
    [goyal2017]_ section 4.1, [rabenseifner2004]_

    Examples
    --------
    >>> next_block(8e9, 2.0, 8.0, 0.5, 1e9)
    6.0
    """
    part = nbytes / larger
    return larger / smaller * message(part, latency, bandwidth) + part / reduce_bandwidth


def circulant_all_reduce(
    nbytes: Number, ranks: Number, latency: Number, bandwidth: Number, reduce_bandwidth: Number = FREE,
) -> Number:  # fmt: skip
    r"""Time of a reduce-scatter and an all-gather of :math:`\lceil \log_2 p \rceil` rounds each, for any p [s].

    It sends the least bytes and needs no `fold`, at the price of buffers that are rotated.

    References
    ----------
    [traff2024]_
    """
    scatter = bruck_reduce_scatter(nbytes, ranks, latency, bandwidth, reduce_bandwidth)
    return scatter + bruck_all_gather(nbytes, ranks, latency, bandwidth)


def binomial_all_reduce(
    nbytes: Number, ranks: Number, latency: Number, bandwidth: Number, reduce_bandwidth: Number = FREE,
) -> Number:  # fmt: skip
    """Time of a binomial reduction to one rank and a broadcast from it [s]."""
    reduced = binomial_reduce(nbytes, ranks, latency, bandwidth, reduce_bandwidth)
    return reduced + binomial_broadcast(nbytes, ranks, latency, bandwidth)


def double_binary_tree_all_reduce(
    nbytes: Number, ranks: Number, latency: Number, bandwidth: Number, reduce_bandwidth: Number = FREE,
) -> Number:  # fmt: skip
    r"""Time of two complementary binary trees, each reducing and broadcasting half of the buffer, pipelined [s].

    .. math:: T = 2 \left( \lceil \log_2 p \rceil \alpha + \frac{n}{B} \right) + \frac{n}{G}

    Blocks are taken to be small beside the buffer and large beside the latency; a rank is inner node in one tree
    and leaf in the other, so each link carries every byte once up and once down.

    References
    ----------
    [sanders2009]_
    """
    once = message(nbytes, rounds(ranks) * latency, bandwidth)
    return ops.where(ranks > 1.0, 2.0 * once + nbytes / reduce_bandwidth, 0.0)


# Reduce-scatter and all-gather


def ring_reduce_scatter(
    nbytes: Number, ranks: Number, latency: Number, bandwidth: Number, reduce_bandwidth: Number = FREE,
) -> Number:  # fmt: skip
    r"""Time of a reduce-scatter round a ring, :math:`(p - 1) \alpha + \frac{p - 1}{p} n (1/B + 1/G)` [s]."""
    adding = ring_pass(nbytes, ranks, 0.0, reduce_bandwidth)
    return ring_pass(nbytes, ranks, (ranks - 1.0) * latency, bandwidth) + adding


def pairwise_reduce_scatter(
    nbytes: Number, ranks: Number, latency: Number, bandwidth: Number, reduce_bandwidth: Number = FREE,
) -> Number:  # fmt: skip
    """Time of a reduce-scatter in which every pair of ranks exchanges its parts directly: that of a ring [s].

    References
    ----------
    [thakur2005]_ section 4.3
    """
    return ring_reduce_scatter(nbytes, ranks, latency, bandwidth, reduce_bandwidth)


def bruck_reduce_scatter(
    nbytes: Number, ranks: Number, latency: Number, bandwidth: Number, reduce_bandwidth: Number = FREE,
) -> Number:  # fmt: skip
    r"""Time of a reduce-scatter by recursive halving, :math:`\lceil \log_2 p \rceil \alpha + \frac{p - 1}{p} n (1/B + 1/G)` [s].

    For other numbers of ranks than powers of two it is `bruck_all_gather` run backwards.

    References
    ----------
    [thakur2005]_ section 4.3, [traff2024]_
    """
    adding = ring_pass(nbytes, ranks, 0.0, reduce_bandwidth)
    return ring_pass(nbytes, ranks, rounds(ranks) * latency, bandwidth) + adding


def ring_all_gather(nbytes: Number, ranks: Number, latency: Number, bandwidth: Number) -> Number:
    r"""Time of an all-gather round a ring, :math:`(p - 1) \alpha + \frac{p - 1}{p} \frac{n}{B}` [s].

    Parameters
    ----------
    nbytes : gathered buffer [bytes]
    """
    return ring_pass(nbytes, ranks, (ranks - 1.0) * latency, bandwidth)


def bruck_all_gather(nbytes: Number, ranks: Number, latency: Number, bandwidth: Number) -> Number:
    r"""Time of an all-gather by recursive doubling, :math:`\lceil \log_2 p \rceil \alpha + \frac{p - 1}{p} \frac{n}{B}` [s].

    For other numbers of ranks than powers of two it is Bruck's: in round k each rank sends all it has to the one
    :math:`2^k` before it, in the last round only what is missing there.

    Parameters
    ----------
    nbytes : gathered buffer [bytes]

    References
    ----------
    [thakur2005]_ section 4.1
    """
    return ring_pass(nbytes, ranks, rounds(ranks) * latency, bandwidth)


# From one, to one, between all


def binomial_broadcast(nbytes: Number, ranks: Number, latency: Number, bandwidth: Number) -> Number:
    r"""Time of a broadcast down a binomial tree, :math:`\lceil \log_2 p \rceil (\alpha + n / B)` [s]."""
    return rounds(ranks) * message(nbytes, latency, bandwidth)


def chain_broadcast(nbytes: Number, ranks: Number, latency: Number, bandwidth: Number) -> Number:
    r"""Time of a broadcast down a chain in the best number of blocks [s].

    .. math:: T = (p - 2 + m) \left( \alpha + \frac{n}{m B} \right), \quad m = \max\left(1, \sqrt{(p - 2) n / (\alpha B)}\right)

    References
    ----------
    [chan2007]_ section 8
    """
    return chain_reduce(nbytes, ranks, latency, bandwidth, FREE)


def chain_reduce(
    nbytes: Number, ranks: Number, latency: Number, bandwidth: Number, reduce_bandwidth: Number = FREE,
) -> Number:  # fmt: skip
    """Time of a reduction up a chain in the best number of blocks: `chain_broadcast` backwards, with adding [s]."""
    whole = nbytes / bandwidth + nbytes / reduce_bandwidth
    relays = ops.maximum(ranks - 2.0, 0.0)
    blocks = ops.maximum(1.0, ops.sqrt(relays * whole / ops.maximum(latency, 1e-12)))
    return ops.where(ranks > 1.0, (relays + blocks) * (latency + whole / blocks), 0.0)


def binomial_scatter(nbytes: Number, ranks: Number, latency: Number, bandwidth: Number) -> Number:
    r"""Time to deal the parts of a buffer down a binomial tree [s].

    .. math:: T = \lceil \log_2 p \rceil \alpha + \frac{p - 1}{p} \frac{n}{B}

    Gathering to one rank is the same backwards.
    """
    return ring_pass(nbytes, ranks, rounds(ranks) * latency, bandwidth)


def van_de_geijn_broadcast(nbytes: Number, ranks: Number, latency: Number, bandwidth: Number) -> Number:
    r"""Time of a broadcast as a scatter and an all-gather [s].

    .. math:: T = (\lceil \log_2 p \rceil + p - 1) \alpha + 2 \frac{p - 1}{p} \frac{n}{B}

    References
    ----------
    [thakur2005]_ section 4.2
    """
    return binomial_scatter(nbytes, ranks, latency, bandwidth) + ring_all_gather(nbytes, ranks, latency, bandwidth)


def binomial_reduce(
    nbytes: Number, ranks: Number, latency: Number, bandwidth: Number, reduce_bandwidth: Number = FREE,
) -> Number:  # fmt: skip
    r"""Time of a reduction up a binomial tree, :math:`\lceil \log_2 p \rceil (\alpha + n / B + n / G)` [s]."""
    return rounds(ranks) * (message(nbytes, latency, bandwidth) + nbytes / reduce_bandwidth)


def rabenseifner_reduce(
    nbytes: Number, ranks: Number, latency: Number, bandwidth: Number, reduce_bandwidth: Number = FREE,
) -> Number:  # fmt: skip
    r"""Time of a reduction as a reduce-scatter and a gather [s].

    .. math:: T = 2 \lceil \log_2 p \rceil \alpha + 2 \frac{p - 1}{p} \frac{n}{B} + \frac{p - 1}{p} \frac{n}{G}

    References
    ----------
    [thakur2005]_ section 4.4
    """
    scatter = bruck_reduce_scatter(nbytes, ranks, latency, bandwidth, reduce_bandwidth)
    return scatter + binomial_scatter(nbytes, ranks, latency, bandwidth)


def pairwise_all_to_all(nbytes: Number, ranks: Number, latency: Number, bandwidth: Number) -> Number:
    r"""Time of an all-to-all, one partner after the other, :math:`(p - 1) \alpha + \frac{p - 1}{p} \frac{n}{B}` [s].

    Parameters
    ----------
    nbytes : what each rank sends, its own part included [bytes]

    References
    ----------
    [thakur2005]_ section 4.6
    """
    return ring_pass(nbytes, ranks, (ranks - 1.0) * latency, bandwidth)


# Over levels: a part inside each unit around what units exchange


def two_dimensional(
    nbytes: Number, ranks: Number, latency: Number, bandwidth: Number, across: Number,
    reduce_bandwidth: Number = FREE,
) -> Number:  # fmt: skip
    r"""Time of an all-reduce as reduce-scatter inside, all-reduce of each part across, all-gather inside [s].

    .. math:: T = T_{RS}(n, k) + T_{AR}(n / k) + T_{AG}(n, k)

    `across` may itself be two-dimensional, so any number of levels nest.

    Parameters
    ----------
    ranks : members :math:`k` inside a unit
    latency, bandwidth : of a message [s] and a link [bytes/s] inside
    across : time of the all-reduce of 1/k of the buffer between units [s]
    """
    scatter = ring_reduce_scatter(nbytes, ranks, latency, bandwidth, reduce_bandwidth)
    return scatter + across + ring_all_gather(nbytes, ranks, latency, bandwidth)


def hierarchical(
    nbytes: Number, ranks: Number, latency: Number, bandwidth: Number, across: Number,
    reduce_bandwidth: Number = FREE,
) -> Number:  # fmt: skip
    r"""Time of an all-reduce as reduction inside, all-reduce of the whole buffer between leaders, broadcast inside [s].

    .. math:: T = T_{reduce}(n, k) + T_{AR}(n) + T_{broadcast}(n, k)

    Inside are binomial trees; `costmodel.formulas.systems.data_parallel.hierarchical_all_reduce` has a pipelined chain there.

    Parameters
    ----------
    ranks : members inside a unit
    latency, bandwidth : of a message [s] and a link [bytes/s] inside
    across : time of the all-reduce of the whole buffer between units [s]

    References
    ----------
    [goyal2017]_ section 4
    """
    reduced = binomial_reduce(nbytes, ranks, latency, bandwidth, reduce_bandwidth)
    return reduced + across + binomial_broadcast(nbytes, ranks, latency, bandwidth)

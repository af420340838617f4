"""All-reduce in binary blocks, whose time follows the binary digits of the number of ranks, one block after the other."""

from __future__ import annotations

from costmodel.formulas.network import algorithms
from costmodel.formulas.network.algorithms import FREE


def sizes(ranks: int) -> list[int]:
    """Ranks of each block, a power of two each, largest first.

    Examples
    --------
    >>> sizes(13)
    [8, 4, 1]
    """
    return [1 << digit for digit in reversed(range(ranks.bit_length())) if ranks >> digit & 1]


def binary_blocks_all_reduce(
    nbytes: float, ranks: float, latency: float, bandwidth: float, reduce_bandwidth: float = FREE
) -> float:
    """Time of recursive halving and doubling in blocks of powers of two, for any number of ranks [s].

    Each block halves on its own; the smallest deals its sums to the next larger block, that one to the next, until
    the largest holds the sums of all; results go back the same way, and each block doubles. Halving of a larger block
    overlaps with what smaller ones pass on. No results leave the largest block before all its sums are there.

    Parameters
    ----------
    nbytes : buffer on each rank [bytes]
    ranks : members, at least 1
    latency, bandwidth, reduce_bandwidth : of a message [s], of a link and of adding [bytes/s]

    Returns
    -------
    float
        time [s]

    References
    ----------
    [goyal2017]_ section 4.1, [rabenseifner2004]_

    Examples
    --------
    >>> binary_blocks_all_reduce(4e9, 6, 0.0, 1e9), float(algorithms.rabenseifner_all_reduce(4e9, 6, 0.0, 1e9))
    (10.0, 14.0)
    """
    summed = _summed(nbytes, round(ranks), latency, bandwidth, reduce_bandwidth)
    return summed + _summed(nbytes, round(ranks), latency, bandwidth, FREE)  # results return as sums came, nothing added


def _summed(nbytes: float, ranks: int, latency: float, bandwidth: float, reduce_bandwidth: float) -> float:
    """Time after which the largest block holds the sums of all ranks [s]."""
    ready, smaller = 0.0, 0
    for block in reversed(sizes(ranks)):
        ready = max(ready, float(algorithms.bruck_reduce_scatter(nbytes, block, latency, bandwidth, reduce_bandwidth)))
        if smaller:
            ready += float(algorithms.next_block(nbytes, smaller, block, latency, bandwidth, reduce_bandwidth))
        smaller = block
    return ready

r"""Collectives inside a node as a law of their bytes and ranks, whatever algorithm the library picks at each size.

Libraries change algorithm, protocol and channels as messages grow; what is measured through all of that is smooth. Ranks
that share a root complex instead of a switch get in each other's way.
"""

from __future__ import annotations

from typing import NamedTuple

from costmodel.arithmetic import ops
from costmodel.formulas.quantities import Number


class NodeLinks(NamedTuple):
    """What one operation reaches inside a node of one device."""

    launch: Number  # s
    hop: Number  # s for each further rank
    bandwidth: Number  # of a GPU and direction, of large messages among many ranks [bytes/s]
    pair: Number  # time of a byte in a group of two over that in a large one
    crowd: Number  # power of the ranks over two with which they slow each other: 0 behind a switch
    ramp: Number  # s: a message is slowed by as much as its geometric mean with the time of its bytes


def node_collective(sent: Number, ranks: Number, node: NodeLinks) -> Number:
    r"""Time of a collective inside a node [s].

    .. math:: T = a + h (p - 1) + \frac{x}{B} \left(1 + \frac{g - 1}{p - 1}\right) \left(\frac{p}{2}\right)^s
        + \sqrt{\frac{c x}{B}}

    The square root is the ramp on which messages are cut for ever more channels.

    Parameters
    ----------
    sent : bytes that a rank sends :math:`x`: 2 (p - 1) / p of the buffer in an all-reduce, (p - 1) / p in its halves and
        in an all-to-all
    ranks : :math:`p`, at least 2; one alone has nobody to send to
    node : `NodeLinks`: :math:`a, h, B, g, s, c`

    Examples
    --------
    >>> round(node_collective(1e9, 2.0, NodeLinks(1e-5, 0.0, 1e11, 1.5, 0.0, 0.0)), 8)
    0.01501
    """
    crowded = (1.0 + (node.pair - 1.0) / ops.maximum(ranks - 1.0, 1.0)) * (0.5 * ranks) ** node.crowd
    moved = sent / node.bandwidth
    return node.launch + node.hop * (ranks - 1.0) + moved * crowded + ops.sqrt(node.ramp * moved)

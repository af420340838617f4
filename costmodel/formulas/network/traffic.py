r"""What a collective leaves on the links of each network level, per GPU and direction.

A ring of :math:`p` members has :math:`p` edges. Those that leave a node load the node's links to the leaf, those
that leave a leaf the links to the spine as well; turning the ring so that every member takes every place shares
that load among the links of a unit. That of the unit with the fewest members is what `collectives.bus_bandwidth` prices.
"""

from __future__ import annotations

from typing import NamedTuple

from costmodel.arithmetic import ops
from costmodel.formulas.network import collectives
from costmodel.formulas.quantities import ExpertNumbers, NetworkNumbers, Number, Software

ARGUMENTS = {
    "nbytes": "buffer n on each rank [bytes]", "ranks": "members of the group p",
    "stride": "distance of neighbouring members [ranks]",
}  # fmt: skip
"""What arguments mean in all formulas here that say nothing else of them."""


class LinkBytes(NamedTuple):
    """Bytes on one GPU's link of each level, in the direction that carries more."""

    node: Number
    leaf: Number
    spine: Number


def all_reduce_sent(nbytes: Number, ranks: Number) -> Number:
    r"""What each member of a ring all-reduce sends, which no algorithm undercuts [bytes].

    .. math:: 2 \frac{p - 1}{p} n

    References
    ----------
    [patarasuk2009]_, [goyal2017]_ section 4.1 (:math:`p` servers)

    Examples
    --------
    >>> all_reduce_sent(100e6, 2.0)
    100000000.0
    """
    return 2.0 * all_gather_sent(nbytes, ranks)


def all_gather_sent(nbytes: Number, ranks: Number) -> Number:
    r"""What each member of an all-gather, a reduce-scatter or an all-to-all sends [bytes].

    .. math:: \frac{p - 1}{p} n

    Parameters
    ----------
    nbytes : whole buffer :math:`n`, gathered or before scattering [bytes]
    """
    return (ranks - 1.0) / ranks * nbytes


def units(ranks: Number, stride: Number, network: NetworkNumbers) -> tuple[Number, Number]:
    """Nodes and leaves that a group is spread over; 0 where it stays within one.

    Returns
    -------
    tuple
        nodes, leaves
    """
    node = collectives.members_inside(ranks, stride, network.node.size)
    leaf = collectives.members_inside(ranks, stride, network.leaf.size)
    nodes = ops.where(ranks > node, ops.ceil_div(ranks, node), 0.0)
    return nodes, ops.where(ranks > leaf, ops.ceil_div(ranks, leaf), 0.0)


def ring_links(sent: Number, ranks: Number, stride: Number, network: NetworkNumbers) -> LinkBytes:
    r"""Load of a ring collective on the links of each level, `LinkBytes` [bytes], where they carry most.

    .. math:: \left(1 - \frac{1}{k}\right) n, \quad \frac{n}{k'}, \quad \frac{n}{l'}

    with :math:`k` members in a node, in the one with fewest :math:`k'`, in the leaf with fewest :math:`l'`; all :math:`n` inside
    the node, and nothing beyond, where the group is in one.

    Parameters
    ----------
    sent : what each member sends :math:`n` [bytes]
    """
    node = collectives.members_inside(ranks, stride, network.node.size)
    leaf = collectives.members_inside(ranks, stride, network.leaf.size)
    outward = ops.where(ranks > node, 1.0 / collectives.fewest_inside(ranks, stride, network.node.size), 0.0)
    upward = ops.where(ranks > leaf, 1.0 / collectives.fewest_inside(ranks, stride, network.leaf.size), 0.0)
    inward = ops.where(ranks > node, 1.0 - 1.0 / node, 1.0)
    return LinkBytes(inward * sent, outward * sent, upward * sent)


def all_to_all_links(nbytes: Number, ranks: Number, stride: Number, network: NetworkNumbers) -> LinkBytes:
    """Load of an all-to-all on the links of each level, `LinkBytes` [bytes].

    Parameters
    ----------
    nbytes : what each member sends, its own part included [bytes]
    """
    node = collectives.members_inside(ranks, stride, network.node.size)
    alone = collectives.fewest_inside(ranks, stride, network.node.size)
    fewest = collectives.fewest_inside(ranks, stride, network.leaf.size)
    each = nbytes / ranks
    return LinkBytes((node - 1.0) * each, (ranks - alone) * each, (ranks - fewest) * each)


def deduplicated_links(
    nbytes: Number, mixture: ExpertNumbers, ranks: Number, stride: Number, network: NetworkNumbers
) -> LinkBytes:
    """Load of a deduplicated all-to-all on the links of each level, `LinkBytes` [bytes].

    Parameters
    ----------
    nbytes : what each member would send with one copy for each expert of a token [bytes]
    """
    return LinkBytes(*collectives.deduplicated_bytes(nbytes, mixture, ranks, stride, network))


def send_links(nbytes: Number, ranks: Number, stride: Number, network: NetworkNumbers) -> LinkBytes:
    """Load of a message to the neighbour on the links of each level, `LinkBytes` [bytes], where neighbours lie farthest apart.

    Parameters
    ----------
    nbytes : message [bytes]
    """
    node = ops.where(ranks * stride > network.node.size, 1.0, 0.0)
    leaf = ops.where(ranks * stride > network.leaf.size, 1.0, 0.0)
    return LinkBytes((1.0 - node) * nbytes, node * nbytes, leaf * nbytes)


def reduce(
    nbytes: Number, ranks: Number, stride: Number, network: NetworkNumbers, software: Software,
) -> Number:  # fmt: skip
    r"""Time of a reduction to one member along a chain [s]: the whole buffer passes each link, in pieces.

    .. math:: T = t_0 + \alpha_{ring} + \frac{n}{B}
    """
    others = ops.maximum(ranks - 1.0, 1.0)
    return collectives.all_gather(nbytes * ranks / others, ranks, stride, network, software)

r"""Collectives over the network levels that a group of ranks spans.

A group of `ranks` members, `stride` ranks apart, has :math:`k_l` members inside one unit of level :math:`l`.
A ring (or tree) that leaves the unit is fed by the links of those :math:`k_l` members, which is why the same
group is fast when its members share a node and slow when they are strided across nodes. The algebra over equal
links is that of `costmodel.formulas.network.algorithms`.
"""

from __future__ import annotations

from costmodel import ops
from costmodel.formulas.network import algorithms
from costmodel.formulas.quantities import NetworkNumbers, Number, Software


def members_inside(ranks: Number, stride: Number, size: Number) -> Number:
    """Members of a group within one unit of a level.

    Parameters
    ----------
    ranks : members
    stride : distance of neighbouring members [ranks]
    size : GPUs that a unit of the level holds

    Examples
    --------
    >>> members_inside(16.0, 1.0, 8.0), members_inside(16.0, 8.0, 8.0)
    (8.0, 1.0)
    """
    return ops.minimum(ranks, ops.maximum(1.0, size / stride))


def inside_bandwidth(node: Number, network: NetworkNumbers) -> Number:
    """Rate at which each of `node` members inside one unit sends to the others [bytes/s].

    In a mesh a member uses only its links to the other members, one for each; in a switch all of its bandwidth.

    Parameters
    ----------
    node : members inside the unit
    network : `NetworkNumbers`

    Examples
    --------
    >>> from costmodel.formulas.quantities import LevelNumbers, NetworkNumbers
    >>> mesh = LevelNumbers(8.0, 0.0, 448e9, peer_bandwidth=64e9)
    >>> network = NetworkNumbers(mesh, mesh, mesh)
    >>> inside_bandwidth(2.0, network), inside_bandwidth(8.0, network)
    (64000000000.0, 448000000000.0)
    """
    return ops.minimum(network.node.bandwidth, ops.maximum(node - 1.0, 1.0) * network.node.peer_bandwidth)


def bus_bandwidth(ranks: Number, stride: Number, network: NetworkNumbers) -> Number:
    """Rate at which a ring through the group moves bytes past each rank [bytes/s].

    Parameters
    ----------
    ranks, stride : the group
    network : `NetworkNumbers`
    """
    node = members_inside(ranks, stride, network.node.size)
    leaf = members_inside(ranks, stride, network.leaf.size)
    inside = ops.where(node > 1.0, inside_bandwidth(node, network), 1e30)
    across = ops.where(ranks > node, node * network.leaf.bandwidth, 1e30)
    above = ops.where(ranks > leaf, leaf * network.spine.bandwidth, 1e30)
    return ops.minimum(ops.minimum(inside, across), above)


def ring_latency(ranks: Number, stride: Number, network: NetworkNumbers, software: Software) -> Number:
    """Latency of one trip around the ring [s]: hops inside nodes, then the slowest link between them.

    Parameters
    ----------
    ranks, stride : the group
    network : `NetworkNumbers`
    software : `Software`: its factors on latency inside nodes and between them
    """
    node = members_inside(ranks, stride, network.node.size)
    leaf = members_inside(ranks, stride, network.leaf.size)
    nodes = ops.ceil_div(ranks, node)
    leaves = ops.ceil_div(ranks, leaf)
    hops = (nodes - 1.0) * network.leaf.latency + (leaves - 1.0) * (network.spine.latency - network.leaf.latency)
    return (ranks - nodes) * software.network.node_latency * network.node.latency + software.network.latency * hops


def tree_latency(ranks: Number, stride: Number, network: NetworkNumbers, software: Software) -> Number:
    """Latency from the leaves of a tree to its root [s]: a chain inside a node, a binary tree between nodes.

    Parameters
    ----------
    ranks, stride : the group
    network : `NetworkNumbers`
    software : `Software`: its factors on latency inside nodes and between them
    """
    node = members_inside(ranks, stride, network.node.size)
    nodes = ops.ceil_div(ranks, node)
    between = ops.where(nodes > 1.0, network.spine.latency, 0.0) * ops.log2(nodes)
    return (node - 1.0) * software.network.node_latency * network.node.latency + software.network.latency * between


def all_reduce(
    nbytes: Number, ranks: Number, stride: Number, network: NetworkNumbers, software: Software,
) -> Number:  # fmt: skip
    r"""Time of an all-reduce [s]: the faster of a ring and a double binary tree.

    .. math:: T = t_0 + \min\left(2 \alpha_{ring} + \frac{2 (p - 1)}{p} \frac{n}{B},\; 2 \alpha_{tree} + \frac{2 n}{B}\right)

    Parameters
    ----------
    nbytes : buffer :math:`n` on each rank [bytes]
    ranks, stride : the group
    network : `NetworkNumbers`
    software : `Software`: the time to launch :math:`t_0`, and its factors on bandwidth and latency

    References
    ----------
    [patarasuk2009]_ (the ring's bound), [sanders2009]_ (double tree), NVIDIA/nccl src/graph/tuning.cc
    """
    bandwidth = software.network.quality * bus_bandwidth(ranks, stride, network)
    ring = algorithms.ring_pass(nbytes, ranks, ring_latency(ranks, stride, network, software), bandwidth)
    tree = algorithms.message(nbytes, tree_latency(ranks, stride, network, software), bandwidth)
    return ops.where((ranks > 1.0) & (nbytes > 0.0), software.host.collective_launch + 2.0 * ops.minimum(ring, tree), 0.0)


def all_gather(
    nbytes: Number, ranks: Number, stride: Number, network: NetworkNumbers, software: Software,
) -> Number:  # fmt: skip
    r"""Time of an all-gather, or of a reduce-scatter, by a ring [s].

    .. math:: T = t_0 + \alpha_{ring} + \frac{p - 1}{p} \frac{n}{B}

    Parameters
    ----------
    nbytes : whole buffer :math:`n`, gathered or before scattering [bytes]
    ranks, stride : the group
    network : `NetworkNumbers`
    software : `Software`: the time to launch :math:`t_0`, and its factors on bandwidth and latency
    """
    bandwidth = software.network.quality * bus_bandwidth(ranks, stride, network)
    ring = algorithms.ring_pass(nbytes, ranks, ring_latency(ranks, stride, network, software), bandwidth)
    return ops.where((ranks > 1.0) & (nbytes > 0.0), software.host.collective_launch + ring, 0.0)


def all_to_all(
    nbytes: Number, ranks: Number, stride: Number, network: NetworkNumbers, software: Software,
) -> Number:  # fmt: skip
    r"""Time of an all-to-all [s]: each level carries the share of the bytes that leaves the level inside it.

    Inside a node a mesh carries it pair by pair, a tree half of it through its root.

    Parameters
    ----------
    nbytes : what each rank sends, its own part included [bytes]
    ranks, stride : the group
    network : `NetworkNumbers`
    software : `Software`: the time to launch :math:`t_0`, and its factors on bandwidth and latency
    """
    node = members_inside(ranks, stride, network.node.size)
    leaf = members_inside(ranks, stride, network.leaf.size)
    spread = (node - 1.0) / ranks * nbytes / inside_bandwidth(node, network)
    rooted = 0.25 * node * node / ranks * nbytes / network.node.root_bandwidth
    inside = ops.maximum(spread, rooted)
    across = (ranks - node) / ranks * nbytes / network.leaf.bandwidth
    above = (ranks - leaf) / ranks * nbytes / network.spine.bandwidth
    hop = software.network.node_latency * network.node.latency
    latency = ops.where(ranks > node, software.network.latency * network.leaf.latency, hop)
    slowest = ops.maximum(ops.maximum(inside, across), above) / software.network.quality
    return ops.where((ranks > 1.0) & (nbytes > 0.0), software.host.collective_launch + latency + slowest, 0.0)


def send(
    nbytes: Number, ranks: Number, stride: Number, network: NetworkNumbers, software: Software,
) -> Number:  # fmt: skip
    """Time of one message to the neighbour in a group, over the slowest link that any neighbours share [s].

    Parameters
    ----------
    nbytes : message [bytes]
    ranks, stride : the group
    network : `NetworkNumbers`
    software : `Software`: the time to launch :math:`t_0`, and its factors on bandwidth and latency
    """
    span = ranks * stride
    crosses_node = span > network.node.size
    crosses_leaf = span > network.leaf.size
    outer = ops.where(crosses_leaf, network.spine.bandwidth, network.leaf.bandwidth)
    bandwidth = ops.where(crosses_node, outer, inside_bandwidth(2.0, network))
    outer_latency = ops.where(crosses_leaf, network.spine.latency, network.leaf.latency)
    hop = software.network.node_latency * network.node.latency
    latency = ops.where(crosses_node, software.network.latency * outer_latency, hop)
    moving = algorithms.message(nbytes, latency, software.network.quality * bandwidth)
    return ops.where(ranks > 1.0, software.host.collective_launch + moving, 0.0)

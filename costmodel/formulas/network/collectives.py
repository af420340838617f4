r"""Collectives over the network levels that a group of ranks spans.

A group of `ranks` members, `stride` ranks apart, has :math:`k_l` members inside one unit of level :math:`l`.
A ring (or tree) that leaves the unit is fed by the links of those :math:`k_l` members, which is why the same
group is fast when its members share a node and slow when they are strided across nodes. The algebra over equal
links is that of `costmodel.formulas.network.algorithms`.
"""

from __future__ import annotations

from typing import NamedTuple

from costmodel.arithmetic import ops
from costmodel.formulas.network import algorithms, nccl
from costmodel.formulas.quantities import ExpertNumbers, NetworkNumbers, Number, Software

ARGUMENTS = {
    "ranks": "members of the group", "stride": "distance of neighbouring members [ranks]",
    "nbytes": "buffer on each rank [bytes]",
}  # fmt: skip
"""What arguments mean in all formulas here that say nothing else of them."""


def members_inside(ranks: Number, stride: Number, size: Number) -> Number:
    """Members of a group within one unit of a level.

    Parameters
    ----------
    size : GPUs that a unit of the level holds

    Examples
    --------
    >>> members_inside(16.0, 1.0, 8.0), members_inside(16.0, 8.0, 8.0)
    (8.0, 1.0)
    """
    return ops.minimum(ranks, ops.maximum(1.0, size / stride))


def fewest_inside(ranks: Number, stride: Number, size: Number) -> Number:
    """Members of a group within that unit of a level which has the fewest: the last, where the group doesn't fill it.

    Parameters
    ----------
    size : GPUs that a unit of the level holds

    Examples
    --------
    >>> fewest_inside(16.0, 1.0, 8.0), fewest_inside(9.0, 1.0, 8.0), fewest_inside(3.0, 4.0, 8.0)
    (8.0, 1.0, 1.0)
    """
    spread = ranks * stride
    last = spread - (ops.ceil_div(spread, size) - 1.0) * size
    return ops.minimum(ranks, ops.maximum(1.0, ops.minimum(size, last) / stride))


def inside_bandwidth(members: Number, network: NetworkNumbers) -> Number:
    """Rate at which each of `members` inside one unit sends to the others [bytes/s].

    In a mesh a member uses only its links to the other members, one for each; in a switch all of its bandwidth.

    Parameters
    ----------
    members : inside the unit

    Examples
    --------
    >>> from costmodel.formulas.quantities import LevelNumbers, NetworkNumbers
    >>> mesh = LevelNumbers(8.0, 0.0, 448e9, peer_bandwidth=64e9)
    >>> network = NetworkNumbers(mesh, mesh, mesh)
    >>> inside_bandwidth(2.0, network), inside_bandwidth(8.0, network)
    (64000000000.0, 448000000000.0)
    """
    return ops.minimum(network.node.bandwidth, ops.maximum(members - 1.0, 1.0) * network.node.peer_bandwidth)


def bus_bandwidth(ranks: Number, stride: Number, network: NetworkNumbers) -> Number:
    """Rate at which a ring through the group moves bytes past each rank [bytes/s].

    A ring that leaves its units is as fast as that which has the fewest members, and so the fewest links: NCCL takes the least
    of all nodes' channels and bandwidths.

    References
    ----------
    NVIDIA/nccl src/init.cc, "Make sure we align all ranks so that the tuning is consistent across ranks"
    """
    node = members_inside(ranks, stride, network.node.size)
    leaf = members_inside(ranks, stride, network.leaf.size)
    inside = ops.where(node > 1.0, inside_bandwidth(node, network), 1e30)
    leaving = ops.minimum(fewest_inside(ranks, stride, network.node.size) * network.leaf.bandwidth, network.leaf.ring_bandwidth)
    rising = ops.minimum(fewest_inside(ranks, stride, network.leaf.size) * network.spine.bandwidth, network.spine.ring_bandwidth)
    across, above = ops.where(ranks > node, leaving, 1e30), ops.where(ranks > leaf, rising, 1e30)
    return ops.minimum(ops.minimum(inside, across), above)


def ring_latency(ranks: Number, stride: Number, network: NetworkNumbers, software: Software) -> Number:
    """Latency of one trip around the ring [s]: hops inside nodes, then the slowest link between them.

    Parameters
    ----------
    software : `Software`: its factors on latency inside nodes and between them
    """
    node = members_inside(ranks, stride, network.node.size)
    leaf = members_inside(ranks, stride, network.leaf.size)
    nodes = ops.ceil_div(ranks, node)
    leaves = ops.ceil_div(ranks, leaf)
    hops = (nodes - 1.0) * network.leaf.latency + (leaves - 1.0) * (network.spine.latency - network.leaf.latency)
    return (ranks - nodes) * software.network.node_latency * network.node.latency + software.network.latency * hops


_RELEASE = nccl.RELEASES[max(nccl.RELEASES)]
_RING, _TREE = _RELEASE.algorithms["ring"], _RELEASE.algorithms["tree"]


class _Shares(NamedTuple):
    """Latency of a hop in a protocol over that of a ring in Simple."""

    inside: float
    between: float


def _shares(inside: float, between: float) -> _Shares:
    return _Shares(inside / _RING.nvlink.simple, between / _RING.net.simple)


_LL, _LL128 = _shares(_RING.nvlink.ll, _RING.net.ll), _shares(_RING.nvlink.ll128, _RING.net.ll128)
_SIMPLE, _LOW_TREE = _Shares(1.0, 1.0), _shares(_TREE.nvlink.ll128, _TREE.net.ll128)
_HIGH_TREE = _shares(_TREE.nvlink.simple, _TREE.net.simple)
_POSTING, _PLATEAU = _RELEASE.host_overhead, _RELEASE.plateau
_LL_BYTE, _LL128_BYTE, _TREE_BYTE = 1.0 / _RELEASE.ring_ll_share, 1.0 / nccl.LL128_SHARE, 1.0 / nccl.TREE_SHARE
NEVER = 1e6
"""Latency of a protocol that links don't carry [s]."""
LOW_TREE = 128.0 / 120.0 / 0.6
"""What a byte takes a tree in LL128 over what it takes in Simple, with NCCL's correction where that is fast, up to 4 MiB."""
TREE_RAMP, TREE_FULL = 1.0 / 3.0, 128e6
"""What a byte takes a tree in Simple beyond its share of the bus, up to so many bytes: NCCL's corrections of 0.7 to 0.8 from 4 to
64 MiB, of 0.9 up to 256 MiB, and of none beyond."""


class LinearCost(NamedTuple):
    """Half an all-reduce by one algorithm and protocol: what it takes whatever its size [s], and for a byte [s/byte]."""

    latency: Number
    byte: Number


class GroupLinks(NamedTuple):
    """A group of ranks as its collectives see it: the algorithms and protocols that the library chooses from."""

    exists: Number  # 1 where there are at least two ranks
    launch: Number  # [s]
    ll: LinearCost  # a ring in the protocol LL
    ll128: LinearCost
    simple: LinearCost
    plateau: Number  # factor on the latency of a ring in Simple in an all-reduce
    low_tree: LinearCost  # a double binary tree in LL128
    tree: LinearCost  # in Simple
    tree_ramp: Number  # its further time for each of the first bytes [s/byte]
    filling: Number  # until the buffers of the channels have been filled once [s/byte]
    round_bytes: Number  # which so many bytes do
    piece: Number  # a byte of the buffer over the links, of which all but one rank's part passes [s/byte]
    ll_pace: Number  # what a ring that gathers waits for its slowest hop, in each protocol [s]
    ll128_pace: Number
    simple_pace: Number


def hop_between(latency: Number, share: Number, crossings: Number) -> Number:
    """Latency of a hop between nodes in one protocol [s].

    A network that is slower than NCCL's constants have it adds its whole latency, in Simple twice: the data, and a flush.

    Parameters
    ----------
    latency : of a hop of a ring in Simple, or of a slower network [s]
    share : of NCCL's latency in this protocol over that of a ring in Simple
    crossings : of the network by a hop

    References
    ----------
    NVIDIA/nccl src/graph/tuning.cc

    Examples
    --------
    >>> round(1e6 * hop_between(14e-6, 4.0 / 14.0, 1.0), 3), round(1e6 * hop_between(75e-6, 4.0 / 14.0, 1.0), 3)
    (4.0, 79.0)
    """
    return share * ops.minimum(latency, nccl.NET_LATENCY) + crossings * ops.where(latency > nccl.NET_LATENCY, latency, 0.0)


class _Hops(NamedTuple):
    """Hops of a group's rings and trees, and the latencies of its levels."""

    inside: Number  # a ring's, in nodes
    nodes: Number  # a ring's, between nodes
    leaves: Number  # of these between leaves
    chain: Number  # a tree's, in a node
    depth: Number  # between nodes
    node: Number  # latency of a hop [s]
    leaf: Number
    spine: Number
    least: Number  # of a hop inside a node beside some between nodes [s]
    factor: Number  # of the software on latencies between nodes


def _ring(hops: _Hops, shares: _Shares, crossings: Number) -> Number:
    """Latency of a trip around the ring in a protocol [s]."""
    near, far = hop_between(hops.leaf, shares.between, crossings), hop_between(hops.spine, shares.between, crossings)
    within = hops.inside * ops.maximum(shares.inside * hops.node, hops.least)
    return within + hops.factor * (hops.nodes * near + hops.leaves * (far - near))


def _pace(hops: _Hops, shares: _Shares, crossings: Number) -> Number:
    """What a ring in a protocol waits for its slowest hop [s], `costmodel.formulas.network.nccl.pace`."""
    slowest = ops.where(hops.leaves > 0.0, ops.maximum(hops.leaf, hops.spine), hops.leaf)
    inside = ops.where(hops.nodes > 0.0, hops.inside, 0.0)
    between = hops.factor * hop_between(slowest, shares.between, crossings)
    return nccl.pace(inside, ops.maximum(shares.inside * hops.node, hops.least), between)


def _tree(hops: _Hops, shares: _Shares, crossings: Number) -> Number:
    """Latency from the leaves of a tree to its root in a protocol [s]."""
    between = hops.depth * hop_between(hops.spine, shares.between, crossings)
    return hops.chain * shares.inside * hops.node + hops.factor * between


def _inverse(bandwidth: Number) -> Number:
    """What a byte takes; a second where there is no bandwidth [s/byte]."""
    return 1.0 / ops.maximum(bandwidth, 1.0)


def group_links(ranks: Number, stride: Number, network: NetworkNumbers, software: Software) -> GroupLinks:
    """A group as its collectives see it, `GroupLinks`, for many calls of different size.

    What NCCL's tuning model says of rings and double binary trees in its three protocols, as straight lines over the size,
    with what measured sweeps add to it. `costmodel.evaluation.collectives.nccl_solver` has the model whole: channel by channel,
    release by release, with switches that reduce, which a step does without (NeMo and Megatron-LM turn them off).

    Parameters
    ----------
    software : `Software`: the time to launch, its factors on bandwidth and latency, and what sweeps add

    References
    ----------
    NVIDIA/nccl src/graph/tuning.cc
    """
    node = members_inside(ranks, stride, network.node.size)
    leaf = members_inside(ranks, stride, network.leaf.size)
    nodes, leaves = ops.ceil_div(ranks, node), ops.ceil_div(ranks, leaf)
    own, crosses = software.network, nodes > 1.0
    least = ops.where(crosses, own.node_latency * ops.minimum(_POSTING, network.node.latency), 0.0)
    hops = _Hops(
        ranks - nodes, nodes - 1.0, leaves - 1.0, node - 1.0, nccl.levels_of(nodes), own.node_latency * network.node.latency,
        network.leaf.latency, network.spine.latency, least, own.latency,
    )  # fmt: skip
    share = 1.0 / ranks
    byte, part = 1.0 / (own.quality * bus_bandwidth(ranks, stride, network)), 1.0 - share
    slowest = ops.where(crosses, _inverse(network.leaf.ll_bandwidth), _inverse(network.node.ll_bandwidth))
    low = ops.maximum(_LL_BYTE * byte, slowest)
    # of two nodes each is the other's only neighbour, so that a tree carries a byte once over a NIC instead of twice
    inside = 1.0 / (own.quality * network.node.bandwidth)
    carried = ops.where(crosses & (nodes < 2.5), ops.maximum(0.5 * byte, inside), byte)
    tree = ops.maximum(_TREE_BYTE * carried, share * nodes * (1.0 / network.leaf.tree_bandwidth))
    never = ops.where(network.node.ll128 > 0.0, 0.0, NEVER)
    return GroupLinks(
        ops.where(ranks > 1.0, 1.0, 0.0), software.host.collective_launch + ops.where(crosses, own.crossing_launch, 0.0),
        LinearCost(_ring(hops, _LL, 1.0), part * low),
        LinearCost(never + _ring(hops, _LL128, 1.0), _LL128_BYTE * part * byte),
        LinearCost(_ring(hops, _SIMPLE, 2.0), part * byte),
        ops.where(crosses, _PLATEAU, 1.0),
        LinearCost(never + _tree(hops, _LOW_TREE, 1.0), LOW_TREE * tree),
        LinearCost(_tree(hops, _HIGH_TREE, 2.0), tree), TREE_RAMP * tree,
        ops.where(crosses, own.filling, own.node_filling), ops.where(crosses, own.round_bytes, own.node_round_bytes),
        part * byte, _pace(hops, _LL, 1.0), _pace(hops, _LL128, 1.0), _pace(hops, _SIMPLE, 2.0),
    )  # fmt: skip


def half_all_reduce_time(line: LinearCost, nbytes: Number) -> Number:
    """Time of half an all-reduce by one algorithm and protocol [s]."""
    return line.latency + line.byte * nbytes


class Halves(NamedTuple):
    """Time of half an all-reduce by each algorithm and protocol, launch and filling left out [s]."""

    ll: Number
    ll128: Number
    simple: Number
    low_tree: Number
    tree: Number


def halves(nbytes: Number, links: GroupLinks) -> Halves:
    """Time of half an all-reduce by each algorithm and protocol, `Halves` [s]."""
    return Halves(
        half_all_reduce_time(links.ll, nbytes), half_all_reduce_time(links.ll128, nbytes),
        links.plateau * links.simple.latency + links.simple.byte * nbytes,
        half_all_reduce_time(links.low_tree, nbytes),
        half_all_reduce_time(links.tree, nbytes) + links.tree_ramp * ops.minimum(nbytes, TREE_FULL),
    )  # fmt: skip


def filling_time(nbytes: Number, links: GroupLinks) -> Number:
    """What half an all-reduce takes beyond NCCL's model while the buffers of its channels fill [s].

    References
    ----------
    `costmodel.formulas.network.nccl.measured`
    """
    return links.filling * ops.minimum(nbytes, links.round_bytes)


def all_reduce_over(nbytes: Number, links: GroupLinks) -> Number:
    """As `all_reduce`, over a group that is known [s]."""
    half = halves(nbytes, links)
    ring = ops.minimum(ops.minimum(half.ll, half.ll128), half.simple)
    chosen = ops.minimum(ring, ops.minimum(half.low_tree, half.tree)) + filling_time(nbytes, links)
    return ops.where((links.exists > 0.0) & (nbytes > 0.0), links.launch + 2.0 * chosen, 0.0)


class Rings(NamedTuple):
    """Time of a ring in each protocol, launch and filling left out [s]."""

    ll: Number
    ll128: Number
    simple: Number


def gathering_rings(nbytes: Number, links: GroupLinks) -> Rings:
    """Time of an all-gather, or of a reduce-scatter, by a ring in each protocol, `Rings` [s].

    Parameters
    ----------
    nbytes : whole buffer, gathered or before scattering [bytes]
    """
    return Rings(
        links.ll_pace + half_all_reduce_time(links.ll, nbytes), links.ll128_pace + half_all_reduce_time(links.ll128, nbytes),
        links.simple_pace + half_all_reduce_time(links.simple, nbytes),
    )  # fmt: skip


def all_gather_over(nbytes: Number, links: GroupLinks) -> Number:
    """As `all_gather`, over a group that is known [s].

    Parameters
    ----------
    nbytes : whole buffer, gathered or before scattering [bytes]
    """
    rings = gathering_rings(nbytes, links)
    chosen = ops.minimum(ops.minimum(rings.ll, rings.ll128), rings.simple) + filling_time(nbytes, links)
    return ops.where((links.exists > 0.0) & (nbytes > 0.0), links.launch + chosen, 0.0)


def all_reduce(
    nbytes: Number, ranks: Number, stride: Number, network: NetworkNumbers, software: Software,
) -> Number:  # fmt: skip
    r"""Time of an all-reduce [s]: the faster of a ring and a double binary tree.

    .. math:: T = t_0 + \min\left(2 \alpha_{ring} + \frac{2 (p - 1)}{p} \frac{n}{B},\; 2 \alpha_{tree} + \frac{2 n}{B}\right)

    Parameters
    ----------
    nbytes : buffer :math:`n` on each rank [bytes]

    References
    ----------
    [patarasuk2009]_ (the ring's bound), [sanders2009]_ (double tree), NVIDIA/nccl src/graph/tuning.cc
    """
    return all_reduce_over(nbytes, group_links(ranks, stride, network, software))


def all_gather(
    nbytes: Number, ranks: Number, stride: Number, network: NetworkNumbers, software: Software,
) -> Number:  # fmt: skip
    r"""Time of an all-gather, or of a reduce-scatter, by a ring [s].

    .. math:: T = t_0 + \alpha_{ring} + \frac{p - 1}{p} \frac{n}{B}

    Over several nodes each of the ring's hops takes as long as the slowest, `costmodel.formulas.network.nccl.pace`.

    Parameters
    ----------
    nbytes : whole buffer :math:`n`, gathered or before scattering [bytes]
    """
    return all_gather_over(nbytes, group_links(ranks, stride, network, software))


def all_to_all(
    nbytes: Number, ranks: Number, stride: Number, network: NetworkNumbers, software: Software,
) -> Number:  # fmt: skip
    r"""Time of an all-to-all [s]: each level carries the share of the bytes that leaves the level inside it.

    A member that has the fewest beside it sends most to other nodes. Inside a node a mesh carries it pair by pair, a tree
    half of it through its root.

    Parameters
    ----------
    nbytes : what each rank sends, its own part included [bytes]
    """
    node = members_inside(ranks, stride, network.node.size)
    inside, across = (node - 1.0) / ranks * nbytes, (ranks - fewest_inside(ranks, stride, network.node.size)) / ranks * nbytes
    above = (ranks - fewest_inside(ranks, stride, network.leaf.size)) / ranks * nbytes
    rooted = 0.25 * node * node / ranks * nbytes
    return _side_by_side(inside, rooted, across, above, nbytes, ranks, stride, network, software)


def _side_by_side(
    inside: Number, rooted: Number, across: Number, above: Number, nbytes: Number, ranks: Number, stride: Number,
    network: NetworkNumbers, software: Software,
) -> Number:  # fmt: skip
    """Time of messages to all others at once: what stays inside a node, passes its root, leaves it, leaves a leaf [bytes]."""
    node = members_inside(ranks, stride, network.node.size)
    within = ops.maximum(inside / inside_bandwidth(node, network), rooted / network.node.root_bandwidth)
    hop = software.network.node_latency * network.node.latency
    beyond = software.network.crossing_launch + software.network.latency * network.leaf.latency
    latency = ops.where(ranks > node, beyond, hop)
    outside = ops.maximum(across / network.leaf.bandwidth, above / network.spine.bandwidth)
    slowest = ops.maximum(within, outside) / software.network.quality
    return ops.where((ranks > 1.0) & (nbytes > 0.0), software.host.collective_launch + latency + slowest, 0.0)


def whole_power(base: Number, exponent: Number) -> Number:
    """A whole power from 0 to 31, by squares.

    Parameters
    ----------
    base : of the power
    exponent : whole

    Examples
    --------
    >>> whole_power(0.5, 8.0), whole_power(2.0, 5.0), whole_power(3.0, 0.0)
    (0.00390625, 32.0, 1.0)
    """
    second = base * base
    fourth = second * second
    eighth = fourth * fourth
    sixteen = ops.where(exponent >= 16.0, 1.0, 0.0)
    left = exponent - 16.0 * sixteen
    eight = ops.where(left >= 8.0, 1.0, 0.0)
    left = left - 8.0 * eight
    four = ops.where(left >= 4.0, 1.0, 0.0)
    left = left - 4.0 * four
    two = ops.where(left >= 2.0, 1.0, 0.0)
    one = left - 2.0 * two
    high = ops.where(sixteen > 0.0, eighth * eighth, 1.0) * ops.where(eight > 0.0, eighth, 1.0)
    return high * ops.where(four > 0.0, fourth, 1.0) * ops.where(two > 0.0, second, 1.0) * ops.where(one > 0.0, base, 1.0)


def units_reached(places: Number, mixture: ExpertNumbers) -> Number:
    r"""Units among which a layer's experts are shared out that a token's experts lie in, on average.

    .. math:: N \left(1 - \binom{E - E/N}{k} \Big/ \binom{E}{k}\right)

    whose quotient is taken as a power of its factors' means, within 0.3 % of it for 64 experts and more.

    Parameters
    ----------
    places : ranks or nodes :math:`N`
    mixture : `ExpertNumbers`: :math:`E` experts in groups, :math:`k` of a token, from a few of the groups

    References
    ----------
    deepseek-ai/DeepEP deep_ep/buffers/elastic.py: a token is sent once to each rank, and once to each node, that it needs

    Examples
    --------
    >>> from costmodel import load_model
    >>> mixture = load_model("deepseek-v3").numbers().experts
    >>> [round(units_reached(nodes, mixture._replace(groups=1.0, groups_per_token=1.0)), 2) for nodes in (1.0, 2.0, 4.0, 8.0)]
    [1.0, 1.99, 3.61, 5.29]
    >>> units_reached(8.0, mixture)
    4.0
    """
    later = 0.5 * (mixture.per_token - 1.0)
    missed = ops.maximum(mixture.number - mixture.number / places - later, 0.0) / ops.maximum(mixture.number - later, 1.0)
    within = mixture.groups_per_token * ops.maximum(places / mixture.groups, 1.0)
    return ops.minimum(places * (1.0 - whole_power(missed, mixture.per_token)), within)


def deduplicated_bytes(
    nbytes: Number, mixture: ExpertNumbers, ranks: Number, stride: Number, network: NetworkNumbers
) -> tuple[Number, Number, Number]:
    """What a rank sends inside its node, out of it and out of a leaf, a token once to a node and there once to a rank [bytes].

    Parameters
    ----------
    nbytes : what each rank would send with one copy for each expert of a token [bytes]
    """
    each = nbytes / ops.maximum(mixture.per_token, 1.0)
    node = members_inside(ranks, stride, network.node.size)
    nodes, leaves = ranks / node, ranks / members_inside(ranks, stride, network.leaf.size)
    return (
        each * units_reached(ranks, mixture) * (1.0 - 1.0 / node),
        each * units_reached(nodes, mixture) * (1.0 - 1.0 / nodes),
        each * units_reached(leaves, mixture) * (1.0 - 1.0 / leaves),
    )


def deduplicated_all_to_all(
    nbytes: Number, mixture: ExpertNumbers, ranks: Number, stride: Number, network: NetworkNumbers,
    software: Software,
) -> Number:  # fmt: skip
    """Time of sending tokens to their experts, each once to a node and there once to a rank, as DeepEP and HybridEP do [s].

    Parameters
    ----------
    nbytes : what each rank would send with one copy for each expert of a token [bytes]
    software : `Software`: the time to launch, and its factors on bandwidth and latency
    """
    inside, across, above = deduplicated_bytes(nbytes, mixture, ranks, stride, network)
    node = members_inside(ranks, stride, network.node.size)
    return _side_by_side(inside, 0.25 * inside * node, across, above, nbytes, ranks, stride, network, software)


def send(
    nbytes: Number, ranks: Number, stride: Number, network: NetworkNumbers, software: Software,
) -> Number:  # fmt: skip
    """Time of one message to the neighbour in a group, over the slowest link that any neighbours share [s].

    Parameters
    ----------
    nbytes : message [bytes]
    """
    span = ranks * stride
    crosses_node = span > network.node.size
    crosses_leaf = span > network.leaf.size
    outer = ops.where(crosses_leaf, network.spine.bandwidth, network.leaf.bandwidth)
    bandwidth = ops.where(crosses_node, outer, inside_bandwidth(2.0, network))
    outer_latency = ops.where(crosses_leaf, network.spine.latency, network.leaf.latency)
    hop = software.network.node_latency * network.node.latency
    latency = ops.where(crosses_node, software.network.crossing_launch + software.network.latency * outer_latency, hop)
    moving = algorithms.message(nbytes, latency, software.network.quality * bandwidth)
    return ops.where(ranks > 1.0, software.host.collective_launch + moving, 0.0)

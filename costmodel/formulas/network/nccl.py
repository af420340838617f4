r"""What NCCL expects each of its algorithms to take: its tuning model with its constants, by release.

NCCL computes for every algorithm and protocol :math:`T = \lambda + n / B` from the channels that its graph search
laid and from constants "tuned on real systems", and runs the pair with the least T
(`costmodel.evaluation.collectives.nccl_solver`).
A channel's `bandwidth` is one block's [bytes/s]; `bus` is that of all channels together; `per_node` ranks on each
of `nodes` nodes. Latencies in seconds. Constants and formulas: NVIDIA/nccl src/graph/tuning.cc, of which five
releases are tabled here; a release between two behaves as the older.
"""

from __future__ import annotations

from typing import NamedTuple

from costmodel.arithmetic import ops
from costmodel.formulas.quantities import Number

ARGUMENTS = {
    "per_node": "ranks on a node", "bus": "all channels [bytes/s]", "speed": "of a channel [bytes/s]",
    "reduces_and_gathers": "1 for an all-reduce, 0 for a reduce-scatter or an all-gather", "ranks": "members", "nodes": "nodes",
    "link": "bandwidth of all links of a GPU, one direction [bytes/s]",
}  # fmt: skip
"""What arguments mean in all formulas here that say nothing else of them."""
LL, LL128, SIMPLE = "ll", "ll128", "simple"


class Protocols(NamedTuple):
    """One value for each protocol."""

    ll: float
    ll128: float
    simple: float

    @classmethod
    def microseconds(cls, ll: float, ll128: float, simple: float) -> Protocols:
        """Times given in microseconds, in seconds."""
        return cls(ll * 1e-6, ll128 * 1e-6, simple * 1e-6)


class Algorithm(NamedTuple):
    """Latencies of an algorithm [s]: to start, and of a hop over each kind of link."""

    base: Protocols
    nvlink: Protocols
    pci: Protocols
    net: Protocols


class Limits(NamedTuple):
    """Bandwidths that an architecture reaches on one node, on two, on more [bytes/s]; `ll` on one is of all channels."""

    ll: tuple[float, ...]
    ring_ll128: tuple[float, ...]
    tree_ll128: tuple[float, ...]
    tree: tuple[float, ...]
    nvls_tree: tuple[float, ...]
    nvls_efficiency: float


class Release(NamedTuple):
    """The constants of a release; an algorithm that it doesn't have is absent."""

    algorithms: dict[str, Algorithm]
    limits: dict[str, Limits]
    tree_correction: dict[str, tuple[float, ...]]
    ring_ll_share: float  # of the bus that LL reaches on a ring
    exit_hops: float  # hops between nodes of a ring all-reduce beyond 2 (N - 1)
    ll_crossing: float  # factor on LL's hops inside a node when there are several
    host_overhead: float  # of posting a network operation, which a hop inside a node can't undercut [s]
    plateau: float  # factor on the latency of a ring in Simple between nodes, from Ampere on
    lone_rank: bool  # one rank on a node sees the tree's network latency
    nvls_share: float  # of the heads' bandwidth that an all-reduce gets; 0: the architecture's efficiency says


_us = Protocols.microseconds


def _simple(base: float, nvlink: float, pci: float, net: float) -> Algorithm:
    return Algorithm(*(_us(0.0, 0.0, value) for value in (base, nvlink, pci, net)))


def _limits(
    ll: tuple[float, ...], ring: tuple[float, ...], tree_ll128: tuple[float, ...], tree: tuple[float, ...],
    nvls_tree: tuple[float, ...] = (1e21, 1e21, 1e21), efficiency: float = 0.0,
) -> Limits:  # fmt: skip
    def rates(row: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(1e9 * value for value in row)

    return Limits(rates(ll), rates(ring), rates(tree_ll128), rates(tree), rates(nvls_tree), efficiency)


_TREE_CORRECTION: dict[str, tuple[float, ...]] = {
    LL: (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1),
    LL128: (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1),
    SIMPLE: (0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
}  # fmt: skip
"""Share of a tree's bandwidth at 64 B, 128 B, ... 256 MB."""

_VOLTA = _limits((39, 39, 20.4), (20, 20, 20), (20, 20, 20), (26.5, 18.5, 10))
_AMPERE = _limits((87.7, 22.5, 19), (20, 20, 20), (20, 20, 20), (24, 23.6, 17.8))
_EARLY_HOPPER = _limits((87.7, 22.5, 19), (36.7, 36.7, 36.7), (36.7, 36.7, 29), (38.7, 41.4, 36))
_HOPPER = _limits((141, 45, 35), (36.7, 36.7, 36.7), (36.7, 36.7, 29), (38.7, 41.4, 36))
_EARLY_BLACKWELL = _limits((282, 90, 70), (73.4, 73.4, 73.4), (73.4, 73.4, 58), (77.4, 82.8, 72))

V2_12 = Release(
    algorithms={
        "tree": Algorithm(_us(4.4, 4.4, 0), _us(0.52, 1.25, 28), _us(1.0, 1.9, 28), _us(5.0, 8.5, 28)),
        "ring": Algorithm(_us(3.6, 10.0, 8.4), _us(0.47, 1.9, 3.4), _us(1.0, 2.5, 5.7), _us(2.7, 4.0, 9.6)),
        "collnet-direct": _simple(0, 8.0, 8.0, 10.7),
        "collnet-chain": _simple(0, 8.0, 8.0, 10.7),
    },
    limits={
        "volta": _VOLTA, "ampere": _AMPERE,
        "hopper": _limits((87.7, 22.5, 19), (36.7, 36.7, 36.7), (36.7, 36.7, 36.7), (38.7, 41.4, 33)),
    },
    tree_correction=_TREE_CORRECTION, ring_ll_share=0.25, exit_hops=2.0, ll_crossing=1.8, host_overhead=0.0,
    plateau=1.9, lone_rank=False, nvls_share=0.0,
)  # fmt: skip

V2_18 = Release(
    algorithms={
        "tree": Algorithm(_us(6.8, 14.0, 0), _us(0.6, 1.25, 28), _us(1.0, 1.9, 28), _us(5.0, 8.5, 28)),
        "ring": Algorithm(_us(6.6, 14.0, 8.4), _us(0.6, 1.9, 3.4), _us(1.0, 2.5, 5.7), _us(2.7, 4.0, 14.0)),
        "collnet-direct": _simple(0, 3.7, 3.7, 31),
        "collnet-chain": _simple(0, 2.8, 2.8, 30),
        "nvls": _simple(0, 23, 0, 18),
        "nvls-tree": _simple(0, 23, 0, 14),
    },
    limits={"volta": _VOLTA, "ampere": _AMPERE, "hopper": _EARLY_HOPPER},
    tree_correction=_TREE_CORRECTION, ring_ll_share=0.25, exit_hops=2.0, ll_crossing=1.0, host_overhead=1e-6,
    plateau=1.4, lone_rank=False, nvls_share=5.0 / 6.0,
)  # fmt: skip

V2_21 = V2_18._replace(limits={**V2_18.limits, "hopper": _HOPPER})

V2_23 = V2_21._replace(
    algorithms={
        **V2_21.algorithms,
        "tree": Algorithm(_us(6.8, 14.0, 8.4), _us(0.6, 1.25, 4.0), _us(1.0, 1.9, 4.0), _us(5.0, 8.5, 14)),
        "nvls": _simple(0, 25, 0, 18),
        "nvls-tree": _simple(0, 25, 0, 14),
        "pat": _simple(8.0, 4.0, 4.0, 14),
    },
    limits={**V2_21.limits, "blackwell": _EARLY_BLACKWELL},
    ring_ll_share=0.5, exit_hops=0.0, lone_rank=True,
)  # fmt: skip

V2_30 = V2_23._replace(
    algorithms={**V2_23.algorithms, "nvls-tree": _simple(0, 25, 0, 20.9)},
    limits={
        "volta": _VOLTA, "ampere": _AMPERE,
        "hopper": _HOPPER._replace(nvls_tree=(0.0, 57.7e9, 45.5e9), nvls_efficiency=0.85),
        "blackwell": _limits((282, 90, 70), (40, 40, 40), (55.6, 31.67, 20), (70, 42.8, 24), (0, 96, 80), 0.74),
    },
    nvls_share=0.0,
)  # fmt: skip

RELEASES = {(2, 12): V2_12, (2, 18): V2_18, (2, 21): V2_21, (2, 23): V2_23, (2, 30): V2_30}
"""NVIDIA/nccl src/graph/tuning.cc: 2.12 @5d3ab08, 2.18 @b647562, 2.21 (its LL bandwidth), 2.23 @72d2432, 2.30 @5067397."""

FAMILIES = {
    "pascal": "volta", "turing": "volta", "volta": "volta", "ampere": "ampere", "ada": "ampere",
    "hopper": "hopper", "blackwell": "blackwell", "blackwell-ultra": "blackwell", "blackwell-rtx": "blackwell",
}  # fmt: skip
"""Whose constants NCCL uses for an architecture."""
HOSTS = {"intel": "volta", "amd": "ampere"}
"""Whose limit on LL NCCL uses between nodes, by the maker of the hosts' processors."""
WITHOUT_NVLINK = ("ada", "turing", "blackwell-rtx")
"""Architectures whose GPUs reach each other over PCIe alone."""
WITHOUT_LL128 = ("pascal", "turing")
"""Architectures on which NCCL doesn't run LL128 whatever the links."""
LL128_SHARE = TREE_SHARE = 0.92
"""Of the bus that LL128's flags leave a ring, and that trees reach."""

NET_LATENCY = 14e-6
"""Of a hop between nodes in NCCL's own constants [s]; what a network takes beyond is reported by its plugin."""

LINK_BANDWIDTH = {"volta": (25e9, 20e9), "ampere": (25e9, 20e9), "hopper": (25e9, 20.6e9), "blackwell": (50e9, 40.1e9)}
"""Of one NVLink and direction, as specified and as NCCL reckons with it [bytes/s]: src/graph/topo.h."""

SPEEDS = {
    "volta": (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3),
    "hopper": (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3),
    "blackwell": (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18),
}
"""Bandwidths of a channel that the graph search tries inside a node, in order [10^9 bytes/s]: src/graph/search.cc."""


def rings_of_a_node(link: Number, speed: Number, most: Number) -> Number:
    """Channels of one `speed` that a GPU's links carry side by side.

    Parameters
    ----------
    most : channels at most

    Examples
    --------
    >>> rings_of_a_node(370.8e9, 60e9, 16.0)
    6.0
    """
    return ops.minimum(-ops.ceil(-link / speed), most)


def heads_fit(link: Number, speed: Number, heads: Number) -> Number:
    """Whether a GPU's links carry NVLS: a head's stream twice on its own GPU, once on each of the others.

    Parameters
    ----------
    heads : channels, each with its head on another GPU

    Examples
    --------
    >>> heads_fit(370.8e9, 40e9, 8.0), heads_fit(370.8e9, 50e9, 8.0)
    (True, False)
    """
    return (heads + 1.0) * speed <= link


def duration(nbytes: Number, latency: Number, bandwidth: Number) -> Number:
    r"""Time that NCCL expects, :math:`\lambda + n / B` [s].

    Parameters
    ----------
    nbytes : buffer [bytes]
    latency : [s]
    bandwidth : of the algorithm [bytes/s]
    """
    return latency + nbytes / ops.maximum(bandwidth, 1e-9)


# Bandwidths


def ring_steps(ranks: Number, reduces_and_gathers: Number) -> Number:
    """Steps of a ring: 2 (p - 1) of an all-reduce, p - 1 of its halves."""
    return (1.0 + reduces_and_gathers) * (ranks - 1.0)


def of_the_bus(bus: Number, share: Number, limit: Number) -> Number:
    """Bandwidth of a protocol: its share of the bus up to a limit [bytes/s].

    Parameters
    ----------
    share : that flags and line size leave of it
    limit : [bytes/s]
    """
    return ops.minimum(share * bus, limit)


def ring_bandwidth(bus: Number, ranks: Number, steps: Number) -> Number:
    """Algorithm bandwidth of a ring, bus times ranks over steps [bytes/s].

    Parameters
    ----------
    steps : of the ring
    """
    return bus * ranks / steps


def nvls_intra_bandwidth(
    bandwidth: Number, efficiency: Number, channels: Number, per_node: Number, reduces_and_gathers: Number,
) -> Number:  # fmt: skip
    """Bandwidth of one head inside a node: an all-reduce pipelines both halves, a half skips the own part [bytes/s].

    Parameters
    ----------
    bandwidth : of a channel [bytes/s]
    efficiency : of multicast and reduction in the switch
    channels : heads
    """
    halves = ops.where(reduces_and_gathers > 0.0, 2.0, (per_node - 1.0) / per_node)
    return bandwidth * efficiency * (channels - 1.0) / channels * halves


def collnet_direct_bandwidth(bus: Number, per_node: Number, channels: Number, share: Number) -> Number:
    """Bus bandwidth of CollNet from every GPU: halfway between a NIC for each and all through those there are [bytes/s].

    Parameters
    ----------
    channels : heads, one for a NIC
    share : 0.85 from Hopper on
    """
    crowd = per_node / channels
    return share * bus / (crowd - 0.5 * (crowd - 1.0))


# Latencies


def ring_latency(
    base: Number, intra: Number, inter: Number, overhead: Number, steps: Number, crossings: Number,
) -> Number:  # fmt: skip
    """Latency of a ring [s].

    Parameters
    ----------
    base, intra, inter : to start, of a hop inside a node, of one between nodes [s]
    overhead : of posting to the network, below which no hop inside a node gets [s]
    steps, crossings : hops, and those of them between nodes
    """
    return base + (steps - crossings) * ops.maximum(intra, overhead) + crossings * inter


def levels_of(nodes: Number) -> Number:
    """Levels of a tree of nodes, rounded down.

    Parameters
    ----------
    nodes : at least 1

    Examples
    --------
    >>> levels_of(4.0), levels_of(7.0)
    (2.0, 2.0)
    """
    return ops.floor_log2(nodes)


def tree_latency(base: Number, intra: Number, inter: Number, per_node: Number, nodes: Number) -> Number:
    """Latency of a tree: down a chain in each node and a tree of nodes, and back [s].

    Parameters
    ----------
    base, intra, inter : to start, of a hop inside a node, of one between nodes [s]
    per_node, nodes : ranks on a node, nodes
    """
    return base + 2.0 * ((per_node - 1.0) * intra + levels_of(nodes) * inter)


def nvls_tree_latency(base: Number, intra: Number, inter: Number, nodes: Number) -> Number:
    """Latency of NVLS inside nodes under a tree of nodes [s].

    Parameters
    ----------
    base, intra, inter : to start, inside a node, of a hop between nodes [s]
    """
    return base + intra + 2.0 * levels_of(nodes) * inter


def nvls_latency(intra: Number, inter: Number, nodes: Number) -> Number:
    """Latency of NVLS, with SHARP between nodes [s].

    Parameters
    ----------
    intra, inter : inside a node, between nodes [s]
    """
    return intra + ops.where(nodes > 1.0, inter, 0.0)


def collnet_direct_latency(intra: Number, inter: Number, per_node: Number) -> Number:
    """Latency of CollNet from every GPU; each further peer costs 0.4 us each way [s].

    Parameters
    ----------
    intra, inter : inside a node, between nodes [s]
    """
    return 2.0 * (ops.minimum(1.0, per_node - 1.0) * intra + 0.4e-6 * (per_node - 1.0)) + inter


def collnet_chain_latency(intra: Number, inter: Number, per_node: Number) -> Number:
    """Latency of CollNet at the end of a chain in each node [s].

    Parameters
    ----------
    intra, inter : of a hop inside a node, between nodes [s]
    """
    return 2.0 * (per_node - 1.0) * intra + inter


def pat_latency(base: Number, inter: Number, ranks: Number, nodes: Number) -> Number:
    """Latency of PAT, which has one rank on each node: logarithmic, and still 2.8 us a rank [s].

    Parameters
    ----------
    base, inter : to start, of a hop between nodes [s]
    ranks, nodes : members, nodes
    """
    return base + levels_of(nodes) * inter / 3.5 + 2.8e-6 * ranks


# What NCCL leaves out


def pace(inside: Number, intra: Number, inter: Number) -> Number:
    r"""What a ring that gathers or scatters over several nodes takes beyond its latency by NCCL [s].

    Each step waits for its slowest hop, so that all of them take as long as one between nodes:
    :math:`(p - 1) \alpha` as the textbook has it, where NCCL counts the hops inside nodes as they are by themselves. 256 MB
    gathered over 16, 64 and 512 GPUs of p5 instances take 1.36, 3.83 and 24.3 ms, which comes out as 0.92, 1.33 and 3.48 ms
    without this and as 1.37, 2.57 and 13.4 ms with it (vinjn/nanotron-ultrascale-playbook@924e4d0
    assets/data/benchmarks/pp_comm_bandwidth.html).

    Parameters
    ----------
    inside : hops inside nodes; 0 of a ring within one node
    intra, inter : of a hop inside a node, of one between nodes [s]

    Examples
    --------
    >>> round(1e6 * pace(14.0, 3.4e-6, 54e-6), 1)
    708.4
    """
    return inside * ops.maximum(inter - intra, 0.0)


def measured(
    expected: Number, launch: Number, gain: Number, nbytes: Number, filling: Number, round_bytes: Number,
) -> Number:  # fmt: skip
    r"""Time that is measured where NCCL expects `expected` [s].

    .. math:: T = a + g \hat T + f \min(n, n_0)

    The launch :math:`a` and the gain :math:`g` are what the model leaves out; until a message fills the channels'
    buffers once, the blocks also wait for each other, which costs :math:`f` a byte. All algorithms share the
    constants, so NCCL's order stays.

    Parameters
    ----------
    expected : by NCCL [s]
    launch : :math:`a` [s]
    gain : :math:`g`
    nbytes : buffer :math:`n` [bytes]
    filling : :math:`f` [s/byte]
    round_bytes : :math:`n_0` [bytes]
    """
    return launch + gain * expected + filling * ops.minimum(nbytes, round_bytes)

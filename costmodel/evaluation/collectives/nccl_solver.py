"""NCCL's decision: the channels that its graph search lays, and what it expects of every algorithm and protocol.

The formulas and constants are those of `costmodel.formulas.network.nccl`; here are the loops, tables and choices around them.
"""

from __future__ import annotations

import dataclasses
import math

from costmodel.formulas.network import nccl
from costmodel.formulas.network.nccl import FAMILIES, LL, LL128, LL128_SHARE, SIMPLE, TREE_SHARE, Limits, Release

GB = 1e9
MOST_CHANNELS = 16
"""Of a search; each may be doubled afterwards."""
MOST_HEADS = 32
OPERATIONS = ("all-reduce", "all-gather", "reduce-scatter", "broadcast", "reduce")
"""What NCCL's tuner decides on."""


def posting(overhead: float, protocol: str, amd: bool) -> float:
    """Host's time to post a network operation [s].

    Parameters
    ----------
    overhead : in LL and LL128, on Intel's processors [s]
    protocol : Simple posts three times as much
    amd : whether the hosts' processors are AMD's, which take twice as long
    """
    return overhead * (3.0 if protocol == SIMPLE else 1.0) * (2.0 if amd else 1.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Communicator:
    """The ranks of a group as NCCL sees them."""

    ranks: int  # ranks, nodes: members, and nodes that they lie on
    nodes: int
    architecture: str  # of the GPUs
    link: float  # bandwidth of all NVLinks of a GPU, one direction, as NCCL reckons it [bytes/s]; 0 where there are none
    pci: float  # bandwidth of a GPU over PCIe [bytes/s]
    nic: float  # bandwidth between nodes of one rank, all sending [bytes/s]
    net_latency: float = 0.0  # that the network's plugin reports [s]
    nvls: bool = True  # nvls, sharp: whether the switches of NVLink, and those of the network, reduce
    sharp: bool = False
    amd: bool = False  # whether the hosts' processors are AMD's

    @property
    def per_node(self) -> float:
        """Ranks on a node."""
        return self.ranks / self.nodes

    @property
    def family(self) -> str:
        """Architecture whose constants NCCL uses."""
        return FAMILIES[self.architecture]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChannelGraph:
    """Channels that a search laid: how many, and the bandwidth of each inside a node and between nodes [bytes/s]."""

    channels: int
    intra: float
    inter: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """An algorithm with a protocol, and what NCCL expects of it: `time` and `latency` [s], `bandwidth` [bytes/s]."""

    algorithm: str
    protocol: str
    time: float
    latency: float
    bandwidth: float


def release(version: tuple[int, int]) -> Release:
    """Constants of the newest release that is tabled and not newer than `version`."""
    return nccl.RELEASES[max(known for known in nccl.RELEASES if known <= version)]


def _speeds(family: str) -> list[float]:
    return [GB * speed for speed in nccl.SPEEDS.get(family, nccl.SPEEDS["volta"])]


def _doubled(graph: ChannelGraph, family: str) -> ChannelGraph:
    """NCCL splits channels that are fast, but on Hopper and later not where there are many."""
    fast = max(graph.inter, graph.intra)
    many = family not in ("volta", "ampere") and fast < 50 * GB and graph.channels > 4
    if fast < 25 * GB or many:
        return graph
    return ChannelGraph(channels=2 * graph.channels, intra=graph.intra / 2, inter=graph.inter / 2)


def ring_graph(communicator: Communicator) -> ChannelGraph:
    """Channels of rings: over all NVLinks of a GPU on one node, one for each rank's share of the NICs between nodes."""
    family, link = communicator.family, communicator.link or communicator.pci
    if communicator.nodes > 1:
        channels = max(round(communicator.per_node), 1)
        speed = min(communicator.nic, link / channels)
        return _doubled(ChannelGraph(channels=channels, intra=speed, inter=speed), family)
    if not communicator.link:
        return ChannelGraph(channels=2, intra=link / 2, inter=link / 2)
    tried = [(float(nccl.rings_of_a_node(link, speed, MOST_CHANNELS)), speed) for speed in _speeds(family)]
    count, speed = max(tried, key=lambda pair: pair[0] * pair[1])  # of equals the first, as the search tries them
    if count < 1.0:
        count, speed = 1.0, link
    return _doubled(ChannelGraph(channels=int(count), intra=speed, inter=speed), family)


def tree_graph(communicator: Communicator) -> ChannelGraph:
    """Channels of trees: those of rings, but inside nodes up to twice as fast as between them."""
    graph = ring_graph(communicator)
    if communicator.nodes == 1:
        return graph
    inside = (communicator.link or communicator.pci) / graph.channels
    return dataclasses.replace(graph, intra=min(2.0 * graph.inter, inside))


def nvls_graph(communicator: Communicator) -> ChannelGraph | None:
    """Channels of NVLS, each with its head on another GPU; None where a node has too few or the links don't carry it."""
    heads = min(int(communicator.per_node), MOST_HEADS)
    for speed in _speeds(communicator.family):
        if heads > 1 and nccl.heads_fit(communicator.link, speed, float(heads)):
            return ChannelGraph(channels=heads, intra=speed, inter=communicator.nic)
    return None


def _correction(table: Release, protocol: str, nbytes: float) -> float:
    place = math.floor(math.log2(nbytes / 64.0)) if nbytes >= 64.0 else -1
    factors = table.tree_correction[protocol]
    return factors[place] if 0 <= place < len(factors) else 1.0


def candidates(op: str, nbytes: float, communicator: Communicator, version: tuple[int, int]) -> list[Candidate]:
    """What NCCL expects of every algorithm and protocol that it has for `op`, the one it runs first.

    Parameters
    ----------
    op : one of `OPERATIONS`
    nbytes : whole buffer [bytes]
    communicator : of at least two ranks
    version : of NCCL
    """
    return sorted(_NcclCollective(op, nbytes, communicator, version).all(), key=lambda candidate: candidate.time)


class _NcclCollective:
    """One collective in the tuning model."""

    def __init__(self, op: str, nbytes: float, communicator: Communicator, version: tuple[int, int]):
        self.nbytes, self.at, self.table = nbytes, communicator, release(version)
        self.reducing = op == "all-reduce"
        self.halves = op in ("all-gather", "reduce-scatter")
        family = communicator.family
        self.tabled = family in self.table.limits
        self.limits: Limits = self.table.limits[family if self.tabled else "hopper"]
        self.scale = min(communicator.nodes, 3) - 1
        vendor = nccl.HOSTS["amd" if communicator.amd else "intel"]
        by_host = self.limits if communicator.nodes == 1 else self.table.limits[vendor]
        self.ll_limit = by_host.ll[self.scale]
        self.protocols = [LL, SIMPLE]
        if communicator.link and self.tabled and communicator.architecture not in ("pascal", "turing"):
            self.protocols = [LL, LL128, SIMPLE]
        self.ring, self.tree, self.heads = ring_graph(communicator), tree_graph(communicator), None
        if communicator.nvls and communicator.link and family in ("hopper", "blackwell"):
            self.heads = nvls_graph(communicator)

    def all(self) -> list[Candidate]:
        """Every pair that NCCL has."""
        nodes, found = self.at.nodes, [self.of_ring(protocol) for protocol in self.protocols]
        if self.reducing:
            found += [self.of_tree(protocol) for protocol in self.protocols]
        if self.heads and (self.reducing or self.halves) and (nodes == 1 or self.at.sharp) and "nvls" in self.table.algorithms:
            found.append(self.of_nvls())
        if self.heads and self.reducing and nodes > 1 and "nvls-tree" in self.table.algorithms:
            found.append(self.of_nvls_tree())
        if self.at.sharp and nodes > 1 and self.at.link and (self.reducing or self.halves):
            found.append(self.of_collnet_direct())
        if self.at.sharp and nodes > 1 and self.reducing:
            found.append(self.of_collnet_chain())
        if self.halves and nodes > 1 and self.at.per_node == 1 and "pat" in self.table.algorithms:
            found.append(self.of_pat())
        return found

    def hops(self, algorithm: str, protocol: str) -> tuple[float, float, float]:
        """To start, of a hop inside a node, of one between nodes [s]."""
        entry = self.table.algorithms[algorithm]
        base = getattr(entry.base, protocol)
        intra = getattr(entry.nvlink if self.at.link else entry.pci, protocol)
        between = self.table.algorithms["tree"] if self.table.lone_rank and self.at.per_node == 1 else entry
        flush = 2.0 if protocol == SIMPLE else 1.0
        return base, intra, getattr(between.net, protocol) + flush * self.at.net_latency

    def made(self, algorithm: str, protocol: str, latency: float, bandwidth: float) -> Candidate:
        """A candidate with its time."""
        time = float(nccl.duration(self.nbytes, latency, bandwidth))
        return Candidate(algorithm=algorithm, protocol=protocol, time=time, latency=float(latency), bandwidth=float(bandwidth))

    def of_ring(self, protocol: str) -> Candidate:
        """A ring; of a broadcast or a reduction its pipeline is filled once."""
        ranks, nodes, channels = self.at.ranks, self.at.nodes, self.ring.channels
        bus = channels * self.ring.intra
        limit = {LL: self.ll_limit, LL128: channels * self.limits.ring_ll128[self.scale], SIMPLE: math.inf}[protocol]
        share = {LL: self.table.ring_ll_share, LL128: LL128_SHARE, SIMPLE: 1.0}[protocol]
        bus = nccl.of_the_bus(bus, share, limit)
        base, intra, inter = self.hops("ring", protocol)
        if not (self.reducing or self.halves):
            return self.made("ring", protocol, base + (inter if nodes > 1 else intra), bus)
        steps = nccl.ring_steps(ranks, float(self.reducing))
        crossings = (1.0 + self.reducing) * (nodes - 1.0) + (self.table.exit_hops if self.reducing and nodes > 1 else 0.0)
        overhead = posting(self.table.host_overhead, protocol, self.at.amd)
        if protocol == LL and nodes > 1:
            intra *= self.table.ll_crossing
        latency = nccl.ring_latency(base, intra, inter, overhead if nodes > 1 else 0.0, steps, crossings)
        if protocol == SIMPLE and self.reducing and nodes > 1 and self.nbytes / (channels * ranks) >= 64.0:
            latency *= 1.9 if self.at.family == "volta" else self.table.plateau
        return self.made("ring", protocol, latency, nccl.ring_bandwidth(bus, ranks, steps))

    def of_tree(self, protocol: str) -> Candidate:
        """A double binary tree of nodes with a chain in each."""
        channels, nodes = self.tree.channels, self.at.nodes
        bus = channels * (self.tree.intra if nodes <= 2 else self.tree.inter)
        bus = nccl.of_the_bus(bus, TREE_SHARE, channels * self.limits.tree[self.scale])
        if protocol == LL:
            bus = nccl.of_the_bus(bus, 1.0 / 3.8, self.ll_limit)
        elif protocol == LL128:
            share = 7.0 / 9.0 if nodes == 1 else 120.0 / 128.0
            bus = nccl.of_the_bus(bus, share, channels * self.limits.tree_ll128[self.scale])
        base, intra, inter = self.hops("tree", protocol)
        latency = nccl.tree_latency(base, intra, inter, self.at.per_node, float(nodes))
        return self.made("tree", protocol, latency, 0.5 * bus * _correction(self.table, protocol, self.nbytes))

    def of_heads(self, inter: float, limit: float) -> float:
        """Algorithm bandwidth of NVLS."""
        graph = self.heads
        assert graph
        if self.table.nvls_share:
            share = self.table.nvls_share if self.reducing else (self.at.per_node - 1.0) / self.at.per_node
            return graph.channels * min(graph.intra, inter) * share
        intra = nccl.nvls_intra_bandwidth(
            graph.intra, self.limits.nvls_efficiency, graph.channels, self.at.per_node, float(self.reducing)
        )
        bus = graph.channels * min(intra, inter, limit)
        if self.halves:
            return float(bus)
        return float(nccl.ring_bandwidth(bus, self.at.ranks, nccl.ring_steps(self.at.ranks, 1.0)))

    def of_nvls(self) -> Candidate:
        """Reduction and multicast in the node's switch, between nodes in the network's."""
        _, intra, inter = self.hops("nvls", SIMPLE)
        between = self.heads.inter if self.heads and self.at.nodes > 1 else math.inf
        latency = nccl.nvls_latency(intra, inter, float(self.at.nodes))
        return self.made("nvls", SIMPLE, latency, self.of_heads(between, math.inf))

    def of_nvls_tree(self) -> Candidate:
        """NVLS inside nodes under a tree of nodes."""
        base, intra, inter = self.hops("nvls-tree", SIMPLE)
        assert self.heads
        # of two nodes each is the other's only neighbour, so a tree carries a byte once over a NIC instead of twice
        between = self.heads.inter * (1.0 if self.at.nodes <= 2 else 0.5)
        if not self.table.nvls_share:
            between *= 2.0
        latency = nccl.nvls_tree_latency(base, intra, inter, float(self.at.nodes))
        return self.made("nvls-tree", SIMPLE, latency, self.of_heads(between, self.limits.nvls_tree[self.scale]))

    def of_collnet_direct(self) -> Candidate:
        """Every GPU to the network's reducing switches."""
        _, intra, inter = self.hops("collnet-direct", SIMPLE)
        per_node, graph = self.at.per_node, self.tree
        latency = nccl.collnet_direct_latency(intra, inter, per_node)
        if self.halves:
            return self.made("collnet-direct", SIMPLE, latency, per_node * min(graph.intra, 0.9 * graph.inter))
        share = 0.85 if self.at.family in ("hopper", "blackwell") else 1.0
        bus = nccl.collnet_direct_bandwidth(graph.channels * graph.intra, per_node, float(graph.channels), share)
        return self.made("collnet-direct", SIMPLE, latency, 0.5 * bus)

    def of_collnet_chain(self) -> Candidate:
        """A chain in each node to the network's reducing switches."""
        _, intra, inter = self.hops("collnet-chain", SIMPLE)
        latency = nccl.collnet_chain_latency(intra, inter, self.at.per_node)
        return self.made("collnet-chain", SIMPLE, latency, 0.5 * self.tree.channels * self.tree.intra)

    def of_pat(self) -> Candidate:
        """Parallel aggregated trees, one rank on each node."""
        base, _, inter = self.hops("pat", SIMPLE)
        bus = self.ring.channels * (self.ring.intra if self.at.nodes <= 2 else self.ring.inter)
        latency = nccl.pat_latency(base, inter, self.at.ranks, float(self.at.nodes))
        return self.made("pat", SIMPLE, latency, 0.75 * bus)

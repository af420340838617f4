"""RCCL's decision on AMD's GPUs: what its tuning tables and thresholds choose, and what that takes on the links there are.

Its constants are those of `costmodel.formulas.network.rccl`, its formulas NCCL's. A node is a full mesh, over whose links RCCL
lays rings that use all of them. Not modelled: MSCCL and other plug-ins, which replace the choice below some MiB.
"""

from __future__ import annotations

import dataclasses
import math

from costmodel.evaluation.collectives.nccl_solver import OPERATIONS, Candidate, posting
from costmodel.formulas.network import nccl, rccl
from costmodel.formulas.network.nccl import LL, LL128, LL128_SHARE, SIMPLE, TREE_SHARE
from costmodel.formulas.network.rccl import TuningTable

NODE = 8
"""GPUs of a node that RCCL recognises."""
SHARES = {LL: 0.5, LL128: LL128_SHARE, SIMPLE: 1.0}
"""Of the bus that flags leave, as NCCL's model has them."""
HOST_OVERHEAD = 1e-6
"""Of posting a network operation [s]."""

__all__ = ["OPERATIONS", "Mesh", "candidates", "gathers_directly"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mesh:
    """The ranks of a group as RCCL sees them."""

    ranks: int  # ranks, nodes: members, and nodes that they lie on
    nodes: int
    architecture: str  # of the GPUs
    link: float  # what a GPU's links to the other members on its node carry together, one direction [bytes/s]
    nic: float = 0.0  # bandwidth between nodes of one rank, all sending [bytes/s]
    net_latency: float = 0.0  # of a hop between nodes [s]
    amd: bool = False  # whether the hosts' processors are AMD's

    @property
    def per_node(self) -> float:
        """Ranks on a node."""
        return self.ranks / self.nodes

    @property
    def table(self) -> TuningTable:
        """That RCCL picks: of the architecture for whole nodes."""
        return rccl.TABLES[self.architecture] if self.per_node == NODE else rccl.PLAIN


def gathers_directly(nbytes: float, mesh: Mesh) -> bool:
    """Whether RCCL sends an all-gather point to point, by its bytes.

    Parameters
    ----------
    nbytes : gathered buffer [bytes]
    mesh : the group
    """
    alone, each, most = rccl.DIRECT_GATHER[mesh.architecture]
    if mesh.nodes == 1:
        most = alone
    elif each and mesh.nodes < 64:
        most = each * mesh.nodes
    return mesh.ranks % NODE == 0 and nbytes <= most


def candidates(op: str, nbytes: float, mesh: Mesh) -> list[Candidate]:
    """Every algorithm and protocol that RCCL has for `op`, the one it runs first, with times on the links there are.

    An algorithm comes before another where the table's best time is shorter, and with the protocol that is set for it.

    Parameters
    ----------
    op : one of `OPERATIONS`
    nbytes : whole buffer [bytes]
    mesh : of at least two ranks
    """
    model = _RcclCollective(op, nbytes, mesh)
    expected = {pair: model.expected(*pair) for pair in model.pairs()}
    best = {name: min(time for (one, _), time in expected.items() if one == name) for name, _ in expected}
    fixed = model.fixed_protocol()

    def order(pair: tuple[str, str]) -> tuple[float, bool, float]:
        return best[pair[0]], pair[1] != fixed, expected[pair]

    return [model.on_links(*pair) for pair in sorted(expected, key=order)]


class _RcclCollective:
    """One collective in the tuning model."""

    def __init__(self, op: str, nbytes: float, mesh: Mesh):
        self.op, self.nbytes, self.at, self.table = op, nbytes, mesh, mesh.table
        self.reducing = op == "all-reduce"
        self.halves = op in ("all-gather", "reduce-scatter")
        self.alone = mesh.nodes == 1
        self.reckoned = float(rccl.mesh_bandwidth(rccl.LINK, mesh.per_node)) if mesh.per_node > 1 else mesh.nic
        self.linked = mesh.per_node > 1

    def pairs(self) -> list[tuple[str, str]]:
        """Algorithms and protocols that are enabled; a tree in Simple isn't on one node."""
        protocols = [LL, LL128, SIMPLE] if self.table.ll128 else [LL, SIMPLE]
        found = [("tree", protocol) for protocol in protocols if protocol != SIMPLE or not self.alone] if self.reducing else []
        return found + [("ring", protocol) for protocol in protocols]

    def fixed_protocol(self) -> str | None:
        """Protocol that bytes set whatever the table expects; None where they don't."""
        part = self.nbytes / self.at.ranks if self.halves or self.op == "reduce" else self.nbytes
        if self.alone:
            return LL if part <= rccl.LL_OF_A_NODE.get((self.at.architecture, self.op), 0.0) else None
        if self.op not in self.table.ranges:
            return None
        low, wide = self.table.ranges[self.op]
        most = wide.upto * (rccl.LL128_OF_MANY if self.reducing and self.at.nodes > 2 else 1.0)
        if wide.after < part <= most:
            return LL128
        return LL if low.after < part <= low.upto else SIMPLE

    def share(self, algorithm: str, protocol: str) -> float:
        """Of the bus, by the table."""
        shares = self.table.shares if self.at.nodes <= 2 else self.table.shares_of_many
        share: float = getattr(shares[algorithm], protocol)
        lone = self.alone and protocol == LL and not (self.reducing or self.halves)
        return share * (rccl.LONE_LL if lone else 1.0)

    def correction(self, algorithm: str, protocol: str) -> float:
        """Factor on the share by size; rings have one between nodes."""
        if self.alone and algorithm == "ring":
            return 1.0
        factors = self.table.correction[algorithm][protocol]
        place = math.floor(math.log2(max(self.nbytes, 64.0) / 64.0))
        return factors[min(place, len(factors) - 1)]

    def expected(self, algorithm: str, protocol: str) -> float:
        """Time that decides [s]."""
        entry = self.table.algorithms["tree" if self.at.per_node == 1 else algorithm]
        latency = self.latency(algorithm, protocol, getattr(entry.net, protocol))
        share = self.share(algorithm, protocol) * self.correction(algorithm, protocol)
        return float(nccl.duration(self.nbytes, latency, self.bandwidth(algorithm, share * self.reckoned)))

    def on_links(self, algorithm: str, protocol: str) -> Candidate:
        """A candidate with its time over the links there are, which RCCL reckons alike on every machine."""
        latency = self.latency(algorithm, protocol, self.at.net_latency)
        share = self.share(algorithm, protocol)
        if self.alone:
            bus = share * self.correction(algorithm, protocol) * self.at.link
        else:
            crossing = self.at.per_node * self.at.nic * (2.0 if algorithm == "tree" and self.at.nodes == 2 else 1.0)
            bus = min(self.at.link, crossing) if self.linked else crossing
            bus = nccl.of_the_bus(bus, SHARES[protocol], share * self.reckoned if protocol == LL else math.inf)
            bus *= TREE_SHARE if algorithm == "tree" else 1.0
        bandwidth = self.bandwidth(algorithm, bus)
        time = float(nccl.duration(self.nbytes, latency, bandwidth))
        return Candidate(algorithm=algorithm, protocol=protocol, time=time, latency=latency, bandwidth=bandwidth)

    def bandwidth(self, algorithm: str, bus: float) -> float:
        """Of the algorithm over a bus [bytes/s]."""
        if algorithm == "tree":
            return 0.5 * bus
        if not (self.reducing or self.halves):
            return bus
        return float(nccl.ring_bandwidth(bus, self.at.ranks, nccl.ring_steps(self.at.ranks, float(self.reducing))))

    def latency(self, algorithm: str, protocol: str, inter: float) -> float:
        """Of the algorithm, where a hop between nodes takes `inter` [s]."""
        entry, nodes = self.table.algorithms[algorithm], self.at.nodes
        base = getattr(entry.base, protocol)
        intra = getattr(entry.nvlink if self.linked else entry.pci, protocol)
        if algorithm == "tree":
            return float(nccl.tree_latency(base, intra, inter, self.at.per_node, float(nodes)))
        if not (self.reducing or self.halves):
            return float(base + (intra if self.alone else inter))
        overhead = 0.0 if self.alone else posting(HOST_OVERHEAD, protocol, self.at.amd)
        steps, crossings = nccl.ring_steps(self.at.ranks, float(self.reducing)), (1.0 + self.reducing) * (nodes - 1.0)
        return float(nccl.ring_latency(base, intra, inter, overhead, steps, crossings))

"""A collective of a group on a cluster: what its links are, what each algorithm takes on them, what a library takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from costmodel.catalogue import communication as constants
from costmodel.catalogue.software import software_that_adds_nothing
from costmodel.description.cluster import Cluster
from costmodel.description.topology import Group, GroupLanding, landings
from costmodel.evaluation.collectives import nccl_solver as tuner
from costmodel.evaluation.collectives import rccl_solver as mesh_tuner
from costmodel.evaluation.collectives.answer import Alternative, CollectiveTime, phases_of
from costmodel.evaluation.collectives.block_solver import binary_blocks_all_reduce
from costmodel.evaluation.collectives.libraries import library_of
from costmodel.formulas.network import algorithms, bounds, collectives, nccl, rccl
from costmodel.formulas.quantities import NetworkNumbers
from costmodel.text.errors import NotModelled

NIC_SHARE = 0.96
"""Of a NIC's line rate that NCCL reckons with: 12 GB/s of 100 Gbit/s."""

_NEUTRAL = software_that_adds_nothing()


class _EqualLinks(NamedTuple):
    """A group as equal links: of a ring through it, and of messages between any two members."""

    hop: float  # mean latency of the ring's hops
    bus: float
    latency: float
    bandwidth: float


_FLAT: dict[str, dict[str, tuple[Callable[[float, float, float, float], float], bool]]] = {
    "all-reduce": {
        "ring": (algorithms.ring_all_reduce, True),
        "recursive-doubling": (algorithms.recursive_doubling_all_reduce, False),
        "recursive-halving-doubling": (algorithms.rabenseifner_all_reduce, False),
        "binary-blocks": (binary_blocks_all_reduce, False),
        "circulant": (algorithms.circulant_all_reduce, False),
        "binomial-tree": (algorithms.binomial_all_reduce, False),
        "double-binary-tree": (algorithms.double_binary_tree_all_reduce, False),
    },
    "all-gather": {"ring": (algorithms.ring_all_gather, True), "recursive-doubling": (algorithms.bruck_all_gather, False)},
    "reduce-scatter": {
        "ring": (algorithms.ring_reduce_scatter, True),
        "recursive-halving": (algorithms.bruck_reduce_scatter, False),
        "pairwise": (algorithms.pairwise_reduce_scatter, False),
    },
    "all-to-all": {"pairwise": (algorithms.pairwise_all_to_all, False)},
    "broadcast": {
        "chain": (algorithms.chain_broadcast, True),
        "binomial-tree": (algorithms.binomial_broadcast, False),
        "van-de-geijn": (algorithms.van_de_geijn_broadcast, False),
    },
    "reduce": {
        "chain": (algorithms.chain_reduce, True),
        "binomial-tree": (algorithms.binomial_reduce, False),
        "rabenseifner": (algorithms.rabenseifner_reduce, False),
    },
    "send": {},
}
"""Formula of each textbook algorithm over equal links, and whether its messages go round a ring."""

TEXTBOOK = {op: tuple(flat) for op, flat in _FLAT.items()}
TEXTBOOK["all-reduce"] += ("two-dimensional", "hierarchical")
TEXTBOOK["all-to-all"] += ("direct",)
TEXTBOOK["send"] = ("direct",)
"""Names of the textbook's algorithms, by operation."""


class GroupPlacement:
    """One question: an operation of a group on a cluster."""

    def __init__(self, op: str, nbytes: float, group: Group, cluster: Cluster):
        self.op, self.nbytes, self.group, self.cluster = op, nbytes, group, cluster
        self.lands = landings(group, cluster)
        self.network = self._network(cluster)
        self.ranks, self.stride = float(group.ranks), float(group.stride)

    def _network(self, cluster: Cluster) -> NetworkNumbers:
        """The network in numbers; a group alone has the NICs of all GPUs of a unit to itself."""
        network = cluster.numbers()
        if not self.group.alone:
            return network
        wider = list(network)
        for place, land in enumerate(self.lands[:-1]):
            if land.uplink is not None:
                wider[place + 1] = wider[place + 1]._replace(bandwidth=land.uplink)
        for place in range(len(self.lands), len(wider)):
            wider[place] = wider[len(self.lands) - 1]
        return NetworkNumbers(*wider)

    def answer(self, found: list[Alternative], algorithm: str, library: str, because: str) -> CollectiveTime:
        """The result: of what was asked for, or of all, the one that the library prefers; the textbook, the fastest."""
        ordered = tuple(sorted(found, key=lambda one: one.time))
        preferred = found if library == "rccl" else ordered
        chosen = preferred[0]
        if algorithm not in ("auto", "none"):
            matching = [one for one in preferred if one.algorithm == algorithm]
            if not matching:
                offered = ", ".join(dict.fromkeys(one.algorithm for one in ordered))
                raise NotModelled(f"algorithm={algorithm!r}: {library} has for {self.op} of this group {offered}")
            chosen = matching[0]
        return CollectiveTime(
            op=self.op, nbytes=self.nbytes, group=self.group, time=chosen.time, algorithm=chosen.algorithm,
            protocol=chosen.protocol, library=library, why=self._why(chosen, ordered, algorithm, because),
            alternatives=ordered, lower_bound=self.lower_bound(),
        )  # fmt: skip

    def _why(self, chosen: Alternative, ordered: tuple[Alternative, ...], algorithm: str, because: str) -> str:
        if algorithm == "none":
            return because
        name = " ".join(filter(None, (chosen.algorithm, chosen.protocol)))
        nodes = self.lands[0].units
        where = f"{self.group.ranks} ranks on {nodes} node{'s' if nodes > 1 else ''}"
        lead = f"{because} takes {name}" if because else name
        if algorithm != "auto":
            return f"{name} as asked, {chosen.time * 1e6:.4g} us for {where}"
        others = [one for one in ordered if one.algorithm != chosen.algorithm] or [one for one in ordered if one != chosen]
        if not others:
            return f"{lead}: {chosen.time * 1e6:.4g} us for {where}, which has no other"
        second = others[0]
        rival = " ".join(filter(None, (second.algorithm, second.protocol)))
        ahead = second.time / chosen.time
        taken = f"{lead}: {chosen.time * 1e6:.4g} us for {where}"
        if ahead < 1.0:
            return f"{taken}, where {rival} would be {1.0 / ahead:.2f} times faster"
        return f"{taken}, {ahead:.2f} times faster than {rival}"

    # The textbook

    def crossed(self) -> list[GroupLanding]:
        """Levels on which members meet, innermost first."""
        found, below = [], 1
        for land in self.lands:
            if land.members > below:
                found.append(land)
            below = max(below, land.members)
        return found

    def links(self) -> _EqualLinks:
        """The group as equal links: messages between any two members go over the slowest level that they cross."""
        network, outermost = self.network, self.crossed()[-1]
        between = network[self.lands.index(outermost)]
        bandwidth = min(self._rate(land) for land in self.crossed())
        bus = float(collectives.bus_bandwidth(self.ranks, self.stride, network))
        trip = float(collectives.ring_latency(self.ranks, self.stride, network, _NEUTRAL))
        return _EqualLinks(trip / (self.ranks - 1.0), bus, float(between.latency), bandwidth)

    def _rate(self, land: GroupLanding) -> float:
        """Bandwidth of a message between two members that meet on a level [bytes/s]."""
        if land is self.lands[0]:
            return float(collectives.inside_bandwidth(2.0, self.network))
        return float(self.network[self.lands.index(land)].bandwidth)

    def textbook(self) -> list[Alternative]:
        """Every textbook algorithm for the operation."""
        links, found = self.links(), {}
        for name, (formula, ring) in _FLAT[self.op].items():
            latency, bandwidth = (links.hop, links.bus) if ring else (links.latency, links.bandwidth)
            found[name] = float(formula(self.nbytes, self.ranks, latency, bandwidth))
        if self.op in ("all-to-all", "send"):
            found["direct"] = self._direct(self.op)
        if self.op == "all-reduce" and len(self.crossed()) > 1:
            found["two-dimensional"] = self._nested(algorithms.two_dimensional, shrinking=True)
            found["hierarchical"] = self._nested(algorithms.hierarchical, shrinking=False)
        return [Alternative(algorithm=name, protocol="", time=time) for name, time in found.items()]

    def _direct(self, op: str) -> float:
        """Time of sends to one or to all over the levels of the network, nothing added [s]."""
        formula = collectives.send if op == "send" else collectives.all_to_all
        return float(formula(self.nbytes, self.ranks, self.stride, self.network, _NEUTRAL))

    def _nested(self, formula: Callable[[float, float, float, float, float], float], shrinking: bool) -> float:
        """All-reduce level by level: inside units around what units exchange, from the outermost level in.

        Where each unit sends one part or all through a leader, the leader has the unit's links to itself.
        """
        levels, below = [], 1
        for land in self.crossed():
            levels.append((land, float(-(-land.members // below)), below))
            below = land.members
        time = 0.0
        for land, units, inside in reversed(levels):
            nbytes = self.nbytes / (inside if shrinking else 1)
            place = self.lands.index(land)
            bandwidth = float(land.bandwidth if place == 0 else self.network[place].bandwidth)
            if not shrinking:
                bandwidth = self._rate(land) * (inside if place else 1)
            latency = float(self.network[place].latency)
            if land is levels[-1][0]:
                time = float(algorithms.ring_all_reduce(nbytes, units, latency, bandwidth))
            else:
                time = float(formula(nbytes, units, latency, bandwidth, time))
        return time

    def rank_rate(self, land: GroupLanding) -> float:
        """What reaches a member over its links inside a node and its share of the NICs together [bytes/s].

        The links carry what was measured, or what RCCL reckons with where that is more.
        """
        runs_rccl = library_of(self.cluster.device.architecture) == "rccl"
        inside = max(land.bandwidth, self.mesh(amd=False).link if runs_rccl else 0.0)
        return inside + (float(self.network[1].bandwidth) if land.crossed else 0.0)

    def lower_bound(self) -> float:
        """What no algorithm that sends over these links goes below [s]."""
        if self.group.ranks == 1 or self.nbytes == 0.0:
            return 0.0
        least = {
            "all-reduce": bounds.least_all_reduce, "broadcast": bounds.least_broadcast,
            "reduce": bounds.least_broadcast, "send": bounds.least_broadcast,
        }.get(self.op, bounds.least_all_gather)  # fmt: skip
        crossed = self.crossed()
        overlapping = self.op in ("send", "all-to-all")  # messages to all others may be under way at once
        found = [float(algorithms.rounds(2.0 if overlapping else self.ranks)) * self.network[0].latency]
        below = 1
        for land in crossed:  # what leaves a unit of the level inside goes over the links of its members
            place = self.lands.index(land)
            rate = float(self.network[place].bandwidth) if place else self.rank_rate(land)
            units = -(-self.group.ranks // below) if place else self.group.ranks
            if self.op == "all-to-all":
                found.append((self.ranks - below) / self.ranks * self.nbytes / rate)
            elif self.op != "send":
                found.append(float(least(self.nbytes, float(units), 0.0, rate * (below if place else 1))))
            below = land.members
        return max(found)

    # NCCL

    def communicator(self, nvls: bool, sharp: bool, amd: bool) -> tuner.Communicator:
        """The group as NCCL sees it."""
        device, levels = self.cluster.device, self.cluster.levels
        inner, nodes = levels[0], self.lands[0].units
        line = inner.line_rate or inner.bandwidth
        specified, reckoned = nccl.LINK_BANDWIDTH.get(nccl.FAMILIES[device.architecture], (1.0, 1.0))
        nic, latency = float("inf"), 0.0
        for place in range(1, len(levels)):
            if self.lands[place - 1].crossed:
                level = levels[place]
                over_bandwidth = NIC_SHARE * level.line_rate / level.bandwidth if level.line_rate else 1.0
                of_ring = self.network[place].ring_bandwidth / self.lands[place - 1].members
                nic = min(nic, over_bandwidth * self.network[place].bandwidth, of_ring)
                latency = max(latency, level.latency)
        return tuner.Communicator(
            ranks=self.group.ranks, nodes=nodes, architecture=device.architecture,
            link=line / specified * reckoned if self.cluster.linked else 0.0, pci=inner.bandwidth, nic=nic if nodes > 1 else 0.0,
            net_latency=latency if latency > nccl.NET_LATENCY else 0.0, nvls=nvls, sharp=sharp, amd=amd,
        )  # fmt: skip

    def overhead(self, launcher: str) -> constants.Overhead:
        """What measurements add: of the architecture, between nodes of the network, and of who launches."""
        inside = constants.overhead("architecture", constants.family_of(self.cluster.device.architecture))
        launch = inside.launch + constants.launch_of(launcher)
        if self.lands[0].crossed:
            between = constants.overhead("network", constants.network_kind(self.crossed()[-1].level.name))
            return between._replace(launch=launch + between.launch)
        return inside._replace(launch=launch)

    def nccl(self, version: tuple[int, int], launcher: str, nvls: bool, sharp: bool, amd: bool) -> list[Alternative]:
        """Every algorithm and protocol that NCCL has for the operation, with what measurements add to its own model."""
        if self.op not in tuner.OPERATIONS:
            return [self.point_to_point(self.op, launcher)]
        found = tuner.candidates(self.op, self.nbytes, self.communicator(nvls, sharp, amd), version)
        waits = self.paces()
        return [
            dataclasses.replace(one, time=one.time + waits.get((one.algorithm, one.protocol), 0.0))
            for one in self.measured(found, launcher)
        ]

    def paces(self) -> dict[tuple[str, str], float]:
        """What rings that gather or scatter wait for their slowest hop, by protocol [s]."""
        if self.op not in ("all-gather", "reduce-scatter"):
            return {}
        links = collectives.group_links(self.ranks, self.stride, self.network, _NEUTRAL)
        times = {"ll": links.ll_pace, "ll128": links.ll128_pace, "simple": links.simple_pace}
        return {("ring", protocol): float(time) for protocol, time in times.items()}

    def measured(self, found: list[tuner.Candidate], launcher: str) -> list[Alternative]:
        """Candidates with what measurements add to a library's own model."""
        over = self.overhead(launcher)
        filling = over.filling * phases_of(self.op)
        return [
            Alternative(
                algorithm=one.algorithm, protocol=one.protocol,
                time=float(nccl.measured(one.time, over.launch, over.gain, self.nbytes, filling, over.round_bytes)),
            )
            for one in found
            if one.bandwidth > 0.0
        ]  # fmt: skip

    def point_to_point(self, op: str, launcher: str) -> Alternative:
        """Sends to one or all, whose time is the links' with a launch."""
        time = self.overhead(launcher).launch + self._direct(op)
        return Alternative(algorithm="point-to-point", protocol="simple", time=time)

    # RCCL

    def mesh(self, amd: bool) -> mesh_tuner.Mesh:
        """The group as RCCL sees it, with the links there are."""
        inner, nodes = self.cluster.levels[0], self.lands[0].units
        members = self.group.ranks / nodes
        share = (members - 1.0) / max(inner.size - 1.0, 1.0) if inner.topology == "mesh" else float(members > 1.0)
        line = inner.line_rate * rccl.LINK / rccl.SPECIFIED if inner.line_rate else inner.bandwidth
        crossed = [self.lands.index(land) for land in self.crossed() if land is not self.lands[0]]
        return mesh_tuner.Mesh(
            ranks=self.group.ranks, nodes=nodes, architecture=self.cluster.device.architecture, link=line * share,
            nic=min((float(self.network[place].bandwidth) for place in crossed), default=0.0),
            net_latency=max((self.cluster.levels[place].latency for place in crossed), default=0.0), amd=amd,
        )  # fmt: skip

    def rccl(self, launcher: str, amd: bool) -> list[Alternative]:
        """Every algorithm and protocol that RCCL has for the operation, the one it runs first."""
        if self.op not in tuner.OPERATIONS:
            return [self.point_to_point(self.op, launcher)]
        mesh = self.mesh(amd)
        found = self.measured(mesh_tuner.candidates(self.op, self.nbytes, mesh), launcher)
        if self.op == "all-gather":  # by bytes alone, before anything is weighed
            place = 0 if mesh_tuner.gathers_directly(self.nbytes, mesh) else len(found)
            found.insert(place, self.point_to_point("all-to-all", launcher))
        return found

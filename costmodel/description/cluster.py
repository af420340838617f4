"""A cluster: one kind of device on nested network levels."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import field

from costmodel.description import fields
from costmodel.description.device import Device
from costmodel.description.fields import Name, OneOf, Quantified, Real, Restriction, Whole, expected, row
from costmodel.description.framework import Framework
from costmodel.formulas.hardware import level_numbers
from costmodel.formulas.network import nccl, rccl
from costmodel.formulas.quantities import WITHOUT_LIMIT, LevelFigures, LevelNumbers, NetworkNumbers
from costmodel.text.attributes import names_what_is_there
from costmodel.text.checks import kind, listing, text
from costmodel.text.errors import InvalidValue
from costmodel.text.results import brief

MAX_GPUS = 10_000_000
MAX_LEVELS = 3
TOPOLOGIES = ("switch", "mesh", "tree")
CHANNELS = {"volta": 12.0, "ampere": 24.0, "hopper": 24.0, "blackwell": 32.0, "blackwell-ultra": 32.0}
"""Channels that NCCL lays over the NVLinks of a GPU: twice those of its graph search
(`costmodel.evaluation.collectives.nccl_solver`)."""
OTHER_CHANNELS, PCIE_CHANNELS = 24.0, 4.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Level:
    """One network level.

    Parameters
    ----------
    name : ``"nvlink"``, ``"rail"``, ``"spine"``, ...; ``efa``, ``tcp``, ``ethernet`` or ``pcie`` in it tells the kind of network
    size : GPUs that one unit of this level holds; of a rail-optimised leaf all GPUs of its nodes, since a byte changes
        rails inside a node
    latency : of one hop through it [s], or a text with a unit (``"2 us"``)
    bandwidth : that each GPU gets in each direction when all of them send [bytes/s], or a text with a unit
        (``"25 GB/s"``): its share of the NICs
    topology : ``"switch"``: any GPU reaches any other at its full rate; of the innermost level also ``"mesh"``: a
        link between every two GPUs, each an equal share of `bandwidth`; ``"tree"``: PCIe switches under a root that
        carries one link's rate, which a ring never notices and an all-to-all does
    oversubscription : of the switches: what enters a unit over what leaves it upwards, by which `bandwidth` shrinks
    line_rate : specified rate of the links behind `bandwidth` [bytes/s]; `bandwidth` where it isn't known
    ring_bandwidth : that one ring of a communication library reaches between units at most, however many members it has inside,
        where it leaves them through one NIC [bytes/s]; None: through those of all its members
    """

    name: str = field(metadata=row(Name()))
    size: int = field(metadata=row(Whole(1, MAX_GPUS), unit="GPUs"))
    latency: float = field(metadata=row(Quantified("latency"), unit="s"))
    bandwidth: float = field(metadata=row(Quantified("bandwidth"), unit="bytes/s"))
    topology: str = field(default="switch", metadata=row(OneOf(TOPOLOGIES)))
    oversubscription: float = field(default=1.0, metadata=row(Real(1.0, 1e4)))
    line_rate: float | None = field(default=None, metadata=row(Quantified("bandwidth"), unit="bytes/s"))
    ring_bandwidth: float | None = field(default=None, metadata=row(Quantified("bandwidth"), unit="bytes/s"))

    __repr__ = brief

    def __post_init__(self) -> None:
        text("level name", self.name)
        fields.check(self, f" of level {self.name}")

    def figures(self) -> LevelFigures:
        """What is specified of the level."""
        return LevelFigures(
            size=float(self.size), latency=self.latency, bandwidth=self.bandwidth, oversubscription=self.oversubscription,
            mesh=max(self.size - 1.0, 1.0) * (self.topology == "mesh"), tree=float(self.topology == "tree"),
            channels=OTHER_CHANNELS, ll_share=0.0, ll_bandwidth=0.0, ll128=0.0, tree_bandwidth=WITHOUT_LIMIT,
            ring_bandwidth=WITHOUT_LIMIT if self.ring_bandwidth is None else self.ring_bandwidth,
        )  # fmt: skip

    def numbers(self) -> LevelNumbers:
        """The level as the numbers that formulas take."""
        return level_numbers(self.figures())


@names_what_is_there
@fields.by_name("fields by name; load_cluster('8xh100') gives one of a name")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Cluster:
    """Devices on nested network levels, innermost first.

    Parameters
    ----------
    name : what it is called
    device : every GPU is of this kind
    levels : at most three; each size is a multiple of the one inside
    gpus : how many; the outermost level's size if not given
    frameworks : software whose constants were calibrated on this very cluster, by name
    host_memory : of a node's processors, which offload fills [bytes]; None if unknown: nothing is held against it
    """

    name: str = field(metadata=row(Name()))
    device: Device
    levels: Sequence[Level]
    gpus: int | None = field(default=None, metadata=row(Whole(1, MAX_GPUS)))
    frameworks: Mapping[str, Framework] = dataclasses.field(default_factory=dict, hash=False)
    title: str = ""
    host_memory: float | None = field(default=None, metadata=row(Quantified("memory"), unit="bytes"))

    __repr__ = brief

    def __post_init__(self) -> None:
        fields.check(self)
        kind("device", self.device, Device, "load_device(name)")
        object.__setattr__(self, "levels", listing("levels", self.levels))
        if not 1 <= len(self.levels) <= MAX_LEVELS:
            raise InvalidValue("levels", len(self.levels), f"1 to {MAX_LEVELS} network levels")
        for level in self.levels:
            if not isinstance(level, Level):
                raise InvalidValue("levels", level, "network levels, each a Level")
        for level in self.levels[1:]:
            if level.topology != "switch":
                raise InvalidValue(f"topology of level {level.name}", level.topology, "switch outside the innermost level")
        for inner, outer in zip(self.levels, self.levels[1:], strict=False):
            if outer.size < inner.size or outer.size % inner.size:
                raise InvalidValue(f"size of level {outer.name}", outer.size, f"a multiple of {inner.name}'s {inner.size}")
        if self.gpus is None:
            object.__setattr__(self, "gpus", self.levels[-1].size)
        fields.hold(vars(self), self.restrictions)

    @property
    def restrictions(self) -> tuple[Restriction, ...]:
        """What its number of GPUs is held to: where nothing lies beyond a level, no more than that has."""
        only = self.levels[0]
        most = expected("gpus", f"at most {only.size} on the only level {only.name}")
        return (Restriction("gpus", (), most, "gpus", above=only.size),) if len(self.levels) == 1 else ()

    @property
    def gpus_per_node(self) -> int:
        """GPUs of the innermost level."""
        return self.levels[0].size

    def with_gpus(self, gpus: int) -> Cluster:
        """The same cluster with another number of GPUs."""
        return dataclasses.replace(self, gpus=gpus)

    def figures(self) -> tuple[LevelFigures, ...]:
        """What is specified of every level, and what the communication library reaches on it; the outermost reaches every GPU."""
        channels = CHANNELS.get(self.device.architecture, OTHER_CHANNELS)
        if "pcie" in self.levels[0].name.lower():
            channels = PCIE_CHANNELS
        known = [self._with_library(place, level.figures()) for place, level in enumerate(self.levels)]
        levels = [level._replace(channels=channels) for level in known]
        return (*levels[:-1], levels[-1]._replace(size=float(MAX_GPUS)))

    def numbers(self) -> NetworkNumbers:
        """The network as the numbers that formulas take; absent outer levels repeat the last."""
        levels = [level_numbers(level) for level in self.figures()]
        return NetworkNumbers(*levels, *levels[-1:] * (MAX_LEVELS - len(levels)))

    @property
    def linked(self) -> bool:
        """Whether the GPUs of a node reach each other over links of their own, and not over PCIe alone."""
        return self.levels[0].topology != "tree" and self.device.architecture not in nccl.WITHOUT_NVLINK

    def _with_library(self, place: int, level: LevelFigures) -> LevelFigures:
        """A level with what the communication library's protocols reach on it; of a device without NCCL or RCCL, as it is."""
        architecture = self.device.architecture
        if architecture in rccl.TABLES:
            share = rccl.TABLES[architecture].shares["ring"].ll
            return level._replace(ll_share=share)
        if architecture not in nccl.FAMILIES:
            return level
        newest = nccl.RELEASES[max(nccl.RELEASES)]
        limits = newest.limits[nccl.FAMILIES[architecture] if place == 0 else nccl.HOSTS["intel"]]
        wide = self.linked and architecture not in nccl.WITHOUT_LL128
        trees = newest.limits[nccl.FAMILIES[architecture]].tree[-1]
        return level._replace(ll_bandwidth=limits.ll[0 if place == 0 else -1], ll128=float(wide), tree_bandwidth=trees)

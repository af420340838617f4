"""Where the ranks of a group land: how many inside a node, a leaf, a spine, and what they share on the way out."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from costmodel.formulas.network import collectives
from costmodel.text.checks import flag, positive_int
from costmodel.text.errors import InvalidValue
from costmodel.text.results import brief

if TYPE_CHECKING:
    from costmodel.description.cluster import Cluster, Level

MOST = 10_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """Ranks that communicate with each other.

    Parameters
    ----------
    ranks : members
    stride : distance of neighbouring members [ranks]: 1 where they are neighbours on a node
    alone : whether the GPUs between its members are silent, so that it has the NICs of a node to itself; otherwise
        as many groups like it work at the same time as fit in
    """

    ranks: int
    stride: int = 1
    alone: bool = False

    __repr__ = brief

    def __post_init__(self) -> None:
        positive_int("ranks", self.ranks, MOST)
        positive_int("stride", self.stride, MOST)
        flag("alone", self.alone)

    @property
    def span(self) -> int:
        """Ranks from the first member to the last, both included."""
        return (self.ranks - 1) * self.stride + 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupLanding:
    """A group on one network level."""

    level: Level  # of the cluster
    members: int  # of the group inside one unit of the level
    units: int  # of the level that the group touches
    groups: int  # that share the way out of a unit, this one included
    bandwidth: float  # of a member inside the unit, to the other members [bytes/s]
    uplink: float | None  # of a member out of the unit, all groups sending [bytes/s]; None where the level has nothing above

    @property
    def crossed(self) -> bool:
        """Whether the group leaves a unit of the level."""
        return self.units > 1


def landings(group: Group, cluster: Cluster) -> tuple[GroupLanding, ...]:
    """How a group lies on each level of a cluster, innermost first.

    Parameters
    ----------
    group : the ranks
    cluster : whose ranks are numbered node by node

    Raises
    ------
    InvalidValue
        where the group is larger than the cluster

    Examples
    --------
    >>> from costmodel import load_cluster
    >>> node, rail = landings(Group(ranks=16, stride=4), load_cluster("dgx-h100", gpus=64))
    >>> node.members, node.units, node.groups
    (2, 8, 4)
    """
    if group.span > (cluster.gpus or 0):
        raise InvalidValue("group", group, f"at most the {cluster.gpus} GPUs of {cluster.name}")
    network, found = cluster.numbers(), []
    for place, (level, numbers) in enumerate(zip(cluster.levels, network, strict=False)):
        outermost = place == len(cluster.levels) - 1
        size = max(float(level.size), float(cluster.gpus or 0)) if outermost else float(level.size)
        members = math.ceil(collectives.members_inside(float(group.ranks), float(group.stride), size))
        bandwidth = numbers.bandwidth
        if place == 0:
            bandwidth = collectives.inside_bandwidth(float(members), network)
        above = None if outermost else network[place + 1].bandwidth
        groups = max(int(min(size, float(cluster.gpus or 0)) / members), 1)
        if group.alone:
            above, groups = None if above is None else above * groups, 1
        found.append(GroupLanding(
            level=level, members=members, units=math.ceil(group.ranks / members), groups=groups,
            bandwidth=float(bandwidth), uplink=above,
        ))  # fmt: skip
    return tuple(found)

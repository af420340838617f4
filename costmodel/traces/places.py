"""Where the groups of a trace lie on a cluster, and whose constants its software has."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from costmodel.catalogue.software import framework_on
from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.description.topology import Group
from costmodel.text.errors import InvalidValue
from costmodel.traces.record import Trace

DEFAULT_FRAMEWORK = "fsdp2"
"""Whose constants are taken of software that isn't recognised: PyTorch's own."""


def group_of(ranks: Sequence[int]) -> Group:
    """Ranks as a group of so many with a stride, which is how costs of collectives know one.

    Parameters
    ----------
    ranks : of the cluster, in the order of the group

    Assumptions
    -----------
    Of ranks that don't lie evenly, as a data group across a tensor group's nodes may, the smallest distance is the stride.

    Examples
    --------
    >>> group_of([1, 5, 9, 13])
    Group(ranks=4, stride=4)
    """
    placed = sorted(ranks)
    gaps = [later - earlier for earlier, later in itertools.pairwise(placed)]
    return Group(ranks=len(placed), stride=min(gaps, default=1))


def even(ranks: Sequence[int]) -> bool:
    """Whether ranks lie evenly, so that `group_of` says all of them."""
    placed = sorted(ranks)
    return len({later - earlier for earlier, later in itertools.pairwise(placed)}) <= 1


def software_of(trace: Trace, cluster: Cluster, framework: Framework | str | None = None) -> Framework:
    """The framework whose constants price a trace, on a cluster.

    Parameters
    ----------
    trace : whose fact ``framework`` names it
    cluster : on which
    framework : or its name in the catalogue, in place of the trace's own
    """
    return framework_on(cluster, framework if framework is not None else trace.facts.get("framework", DEFAULT_FRAMEWORK))


def checked_cluster(trace: Trace, cluster: Cluster) -> Cluster:
    """The cluster, if a trace's world fits on it.

    Raises
    ------
    InvalidValue
        where it has fewer GPUs
    """
    if trace.world_size > (cluster.gpus or 0):
        expected = f"at least the {trace.world_size} GPUs of the trace's world, not {cluster.gpus}"
        raise InvalidValue("cluster", cluster.name, expected)
    return cluster

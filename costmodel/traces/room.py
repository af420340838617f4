"""What a traced process holds of a device outside PyTorch's allocator, and the room that this leaves."""

from __future__ import annotations

from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.formulas.transformer import memory as formula
from costmodel.text.units import GiB
from costmodel.traces.places import group_of
from costmodel.traces.record import NOWHERE, Role

CONTEXT = 0.47 * GiB
"""CUDA's context of a process with PyTorch's kernels loaded as they are used [bytes]: measured on an A100 with torch 2.1.1+cu121
(S. Bekman, Machine Learning Engineering, "Preloaded CUDA kernels memory usage"). What estimates without an allocator call fixed
holds the allocator's gaps, too."""


def outside_bytes(role: Role, cluster: Cluster, framework: Framework) -> dict[str, float]:
    """Bytes of a process outside PyTorch's allocator: its context, and the communication library's buffers of each group.

    Parameters
    ----------
    role : whose groups exchange something
    cluster, framework : on what, with whose constants
    """
    overhead, network = framework.numbers().memory.library_overhead, cluster.numbers()
    exchanged = {int(group) for group in role.transactions.group if group != NOWHERE}
    used = [group_of(role.groups[group]) for group in sorted(exchanged)]
    library = sum(float(formula.collective_buffers(float(one.ranks), float(one.stride), network)) for one in used)
    return {"context": CONTEXT, "communication library": float(overhead) * library}


def usable_bytes(cluster: Cluster) -> float:
    """Of a cluster's device, as a process sees it [bytes].

    Parameters
    ----------
    cluster : whose device
    """
    return float(cluster.device.usable_memory or cluster.device.memory)


def room(role: Role, cluster: Cluster, framework: Framework) -> float:
    """For PyTorch's allocator [bytes].

    Parameters
    ----------
    role : whose process
    cluster, framework : on what, with whose constants
    """
    return usable_bytes(cluster) - sum(outside_bytes(role, cluster, framework).values())

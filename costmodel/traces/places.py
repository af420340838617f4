"""Where the groups of a trace lie on a cluster, and whose constants its software has."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from costmodel.catalogue.software import framework_on
from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.description.topology import Group
from costmodel.text.errors import InvalidValue
from costmodel.traces.record import PHASES, Role, Trace

PACKAGES = {
    "deepspeed": "deepspeed", "megatron-core": "megatron-core", "megatron_core": "megatron-core", "torchtitan": "fsdp2",
    "nanotron": "nanotron",
}  # fmt: skip
"""Frameworks of the catalogue by the package that a trace's versions name."""
SHARDED, REPLICATED = "fsdp2", "ddp"
"""PyTorch's own, whose constants are taken of software that isn't recognised: as its ranks share states, or hold all of them."""
TRAINER = {"fsdp1": "hf-fsdp", "fsdp2": "hf-fsdp2"}
"""What transformers' Trainer is called by what shards its model; "hf-trainer" where nothing does."""
COPIES = ("broadcast", "barrier")
"""Of one rank's states at the start, and none."""
LEAST = 1024
"""Bytes of a transaction below which it is of losses, norms and counts, which every framework sums."""


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


def framework_of(trace: Trace) -> tuple[str, list[str]]:
    """The framework of the catalogue that ran, as the trace's facts, its packages or its exchanges say, and what was taken."""
    facts = trace.facts
    if "framework" in facts:
        return facts["framework"], []
    for package, name in PACKAGES.items():
        if package in trace.versions:
            return name, []
    sharding = facts.get("sharding", "")
    if facts.get("trainer") == "transformers":
        return TRAINER.get(sharding, "hf-trainer"), []
    if sharding:
        return sharding, []
    if all(_sums_gradients(role) for role in trace.roles):
        return REPLICATED, []
    return SHARDED, [f"the framework isn't named: taken as PyTorch's own ({SHARDED})"]


def _sums_gradients(role: Role) -> bool:
    """Whether a rank exchanges nothing but sums behind its forward pass, and copies of one rank's: it holds all states."""
    moves = role.transactions
    columns = zip(moves.op.tolist(), moves.phase.tolist(), moves.bytes.tolist(), strict=True)
    return all(
        size < LEAST or role.texts[op] in COPIES or (role.texts[op] == "all-reduce" and PHASES[phase] != "forward")
        for op, phase, size in columns
    )


def software_of(trace: Trace, cluster: Cluster, framework: Framework | str | None = None) -> Framework:
    """The framework whose constants price a trace, on a cluster.

    Parameters
    ----------
    trace : whose own is taken unless another is given
    cluster : on which
    framework : or its name in the catalogue, in place of the trace's own
    """
    return framework_on(cluster, framework if framework is not None else framework_of(trace)[0])


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

"""Clusters by whatever names them: an entry of the catalogue, a file, a cloud's instance, or a kind of GPU."""

from __future__ import annotations

import os
from typing import TypeAlias

from costmodel.catalogue import loader
from costmodel.catalogue.hardware_words import SaidHardware, said_hardware
from costmodel.catalogue.machines import MAX_NODES, cloud_instance, machine, on_network
from costmodel.description.cluster import Cluster
from costmodel.description.device import Device
from costmodel.text.checks import kind, positive_int
from costmodel.text.errors import InvalidValue

DeviceLike: TypeAlias = "Device | str | os.PathLike[str]"
"""A device, or its name, or a file."""
ClusterLike: TypeAlias = "Cluster | Device | str | os.PathLike[str]"
"""A cluster, or what names one: an entry of the catalogue, a cloud's instance, GPUs of a kind, ``"8xh100"``, or a file."""


def load_cluster(
    name: str | os.PathLike[str] | None = None, gpus: int | None = None, *, device: Device | str | None = None,
    nodes: int | None = None, network: float | str | None = None,
) -> Cluster:  # fmt: skip
    """A cluster of the catalogue, a cloud's instance by its name there, a TOML file, or GPUs of a kind in the nodes they come in.

    Parameters
    ----------
    name : of the entry, or a path; or GPUs of a kind with their number, ``"8xh100"``, or with nodes, ``"2x8xh100"``
    gpus : how many, where the name doesn't say it; of the catalogue the size of the outermost level if not given, of a file
        what it says, or one node
    device : in place of a name, the kind of GPU: one of them if `gpus` isn't given
    nodes : of the cluster's own, in place of `gpus`; of a device those over which its GPUs are spread
    network : as `costmodel.catalogue.machines.on_network` takes it; its own if None

    Raises
    ------
    InvalidValue
        where both a name and a device are given, or neither
    UnknownName
        where a name is none of these

    Examples
    --------
    >>> load_cluster("dgx-h100", gpus=16).gpus_per_node
    8
    >>> load_cluster(device="rtx-4090", gpus=16).name
    'rtx-4090 in nodes of 8'
    >>> load_cluster("8xh100").name, load_cluster("64xh100").gpus
    ('h100-sxm', 64)
    """
    if (name is None) == (device is None):
        raise InvalidValue("name", name, "a cluster's name or device=..., one of both")
    if device is not None:
        return machine(device, gpus, nodes, network)
    assert name is not None
    if nodes is not None or network is not None:
        whole = loader.own_cluster(name) if gpus is None and nodes is None else None
        return cluster_of(name, gpus=gpus if whole is None else whole.gpus, nodes=nodes, network=network)
    found = loader.own_cluster(name, gpus)
    if found is None:
        found = cloud_instance(loader.path_or_name(name), gpus)
    if found is None:
        word = loader.path_or_name(name)
        said = said_hardware(word, bare=gpus is not None or word[:1].isdigit())
        if said is None or (said.kind == "device" and said.gpus is None and gpus is None):
            raise loader.unknown("cluster", word)
        found = _as_said(said, word, gpus)
    return found


def _as_said(
    said: SaidHardware, word: str, gpus: int | None, nodes: int | None = None, network: float | str | None = None
) -> Cluster:
    """The hardware that a word says, of as many GPUs and nodes as it or else the rest of a question says."""
    if said.gpus is not None and (gpus is not None or nodes is not None):
        field, value = ("gpus", gpus) if gpus is not None else ("nodes", nodes)
        raise InvalidValue(field, value, f"None: {word!r} says how many there are")
    if said.kind == "device":
        return machine(said.name, gpus if said.gpus is None else said.gpus, said.nodes or nodes, network)
    cluster = load_cluster(said.name)
    return sized(cluster, gpus, said.gpus or nodes, network)


def sized(cluster: Cluster, gpus: int | None = None, nodes: int | None = None, network: float | str | None = None) -> Cluster:
    """A cluster at the size that was asked for, and on the network.

    Parameters
    ----------
    cluster : of any size
    gpus : of all nodes together; as many as it has, if neither these nor nodes are given
    nodes : of its own
    network : as `costmodel.catalogue.machines.on_network` takes it; its own if None

    Raises
    ------
    InvalidValue
        where both are given, or a number is none
    """
    if gpus is not None and nodes is not None:
        raise InvalidValue("gpus", gpus, f"None beside nodes={nodes}, which says how many of a cluster's nodes")
    if nodes is not None:
        gpus = positive_int("nodes", nodes, MAX_NODES) * cluster.gpus_per_node
    cluster = cluster if gpus is None else cluster.with_gpus(gpus)
    return cluster if network is None else on_network(cluster, network)


def one_node(name: str | os.PathLike[str]) -> Cluster:
    """A cluster by its name as somebody asks about it who says no size: one node of it, or what a file says.

    Parameters
    ----------
    name : as of `load_cluster`
    """
    cluster = load_cluster(name)
    word = loader.path_or_name(name)
    whole = loader.is_file(word) or said_hardware(word) is not None
    return cluster if whole else cluster.with_gpus(cluster.gpus_per_node)


def cluster_of(
    cluster: ClusterLike | None = None, *, device: DeviceLike | None = None, gpus: int | None = None,
    nodes: int | None = None, network: float | str | None = None,
) -> Cluster:  # fmt: skip
    """What a question is asked about: a cluster, or whatever names one, at the size that the question says.

    Parameters
    ----------
    cluster : or its name, of which one node is taken where no size is said; GPUs of a kind as ``"8xh100"`` or ``"2x8xh100"``, or
        one of a device by its name; a TOML file
    device : in its place a kind of GPU, or its name, or a TOML file
    gpus : how many, of all nodes together
    nodes : over which they are spread
    network : line rate of a node's NICs together, one direction [bytes/s], or a text as ``"400 Gbit/s"``

    Raises
    ------
    InvalidValue
        where nothing names hardware, or both `cluster` and `device` do, or a size is said twice
    UnknownName
        where a name is none of these

    Examples
    --------
    >>> cluster_of("64xh100") == cluster_of(device="h100", gpus=64), cluster_of("dgx-h100").gpus, cluster_of("h100").gpus
    (True, 8, 1)
    """
    if (cluster is None) == (device is None):
        wish = "a cluster, or a device such as device='h100', gpus=8" if cluster is None else "None beside device=..."
        raise InvalidValue("cluster", cluster, f"{wish}; one word says both: '8xh100'" if cluster is None else wish)
    if isinstance(cluster, Cluster):
        return sized(cluster, gpus, nodes, network)
    given = device if cluster is None else cluster
    assert given is not None
    if isinstance(given, list | tuple):
        raise InvalidValue("device" if cluster is None else "cluster", given, "one of them: compare(...) takes several")
    if isinstance(given, Device):
        return machine(given, gpus, nodes, network)
    if not isinstance(given, str | os.PathLike):
        field, wanted = ("device", Device) if cluster is None else ("cluster", Cluster)
        kind(field, given, wanted, f"load_{field}(name)")
    word = loader.path_or_name(given)
    said = said_hardware(word, bare=True) if not loader.is_file(word) else None
    if cluster is None and said is None:
        return machine(word, gpus, nodes, network)
    if said is not None and (said.gpus is not None or said.kind == "device"):
        return _as_said(said, word, gpus, nodes, network)
    return sized(one_node(word), gpus, nodes, network)

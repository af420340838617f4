"""Clusters by whatever names them: an entry of the catalogue, a file, a cloud's instance, or a kind of GPU."""

from __future__ import annotations

import os

from costmodel.catalogue import loader
from costmodel.catalogue.machines import cloud_instance, machine
from costmodel.description.cluster import Cluster
from costmodel.description.device import Device
from costmodel.text.errors import InvalidValue


def load_cluster(
    name: str | os.PathLike[str] | None = None, gpus: int | None = None, *, device: Device | str | None = None,
    nodes: int | None = None, network: float | str | None = None,
) -> Cluster:  # fmt: skip
    """A cluster of the catalogue, a cloud's instance by its name there, a TOML file, or GPUs of a kind in the nodes they come in.

    Parameters
    ----------
    name : of the entry, or a path
    gpus : how many; of the catalogue the size of the outermost level if not given, of a file what it says, or one node
    device : in place of a name, the kind of GPU: one of them if `gpus` isn't given
    nodes, network : of a device, as `costmodel.catalogue.machines.machine` takes them

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
    """
    if (name is None) == (device is None):
        raise InvalidValue("name", name, "a cluster's name or device=..., one of both")
    if device is not None:
        return machine(device, gpus, nodes, network)
    if nodes is not None or network is not None:
        given = "nodes" if nodes is not None else "network"
        raise InvalidValue(given, nodes if nodes is not None else network, "None with a cluster's name: they go with device=...")
    assert name is not None
    found = loader.own_cluster(name, gpus)
    if found is None:
        found = cloud_instance(loader.path_or_name(name), gpus)
    if found is None:
        raise loader.unknown("cluster", loader.path_or_name(name))
    return found


__all__ = ["load_cluster"]

"""The machine of a record: its device on nodes with the links that it says, and those usual for the device where it says none."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from costmodel.catalogue import machines
from costmodel.catalogue.clusters import load_cluster
from costmodel.catalogue.loader import link_of, load_device, peer_to_peer
from costmodel.description.cluster import Cluster, Level
from costmodel.description.device import Device
from costmodel.text.errors import InvalidValue

PCIE = {"pcie3": 16e9, "pcie4": 32e9, "pcie5": 64e9}
"""Rate of a card's 16 lanes, one direction [bytes/s]."""
NAMES = {"efa": "efa", "ethernet": "ethernet"}
"""Names of the level between nodes by the network, of which `costmodel.catalogue.communication.network_kind` tells its kind."""
OMNI_PATH_RING = 6e9
"""At which one ring leaves a node on Omni-Path of 100 Gb/s a card, however many cards the node has: NCCL lays all its channels
through one (bigscience-workshop/bigscience experiments/bandwidth: 40.5 Gb/s a node of A100, 55 Gb/s of V100) [bytes/s]."""
EFA_LATENCY = 30e-6
"""Of a hop through AWS's network [s], as the catalogue's clusters on it have."""


def cluster_of(said: Mapping[str, Any], assumed: Mapping[str, Any]) -> Cluster:
    """The cluster of a record.

    Parameters
    ----------
    said : its group ``cluster``
    assumed : what nothing states, and is taken
    """
    known = {**assumed, **{key: value for key, value in said.items() if value is not None}}
    if "device" not in known:
        if "name" not in known:
            raise InvalidValue("cluster.device", None, "a device, or cluster.name")
        return load_cluster(known["name"], known.get("gpus"))
    device = _at_clock(load_device(known["device"]), known.get("clock", 1.0))
    usual = machines.machine_of(device)
    gpus = int(known.get("gpus", 1))
    per_node = int(known.get("gpus_per_node", min(gpus, usual.gpus)))
    domain = segment(max(int(known.get("link_domain", 0)), per_node), per_node, gpus)
    levels = [_inside(device, domain, known)]
    if gpus > domain or known.get("network", "none") != "none":
        levels.append(_between(device, domain, per_node, gpus, known))
    return Cluster(
        name=known.get("name") or f"{device.name} in nodes of {per_node}", device=device, levels=levels, gpus=gpus,
        host_memory=usual.own.host_memory if usual.own is not None and per_node == usual.gpus else None,
    )  # fmt: skip


def segment(domain: int, per_node: int, gpus: int) -> int:
    """GPUs of a job in each domain of links that reach beyond a node: as many in all, of whole nodes, where it needs several.

    References
    ----------
    Slurm's ``--segment`` of block topologies, as mlcommons/training_results_v5.1@441d65f
    NVIDIA/benchmarks/llama31_8b/implementations/nemo/config_GB200_128x4x1xtp2pp1cp4_8b.sh has it: 128 nodes of 4 GPUs lie by 16
    on racks of 18

    Examples
    --------
    >>> segment(72, 4, 512), segment(72, 4, 72), segment(72, 4, 2496), segment(8, 8, 24), segment(72, 4, 16)
    (64, 72, 64, 8, 72)
    """
    if gpus <= domain or gpus % per_node:
        return domain
    return per_node * max(nodes for nodes in range(1, domain // per_node + 1) if (gpus // per_node) % nodes == 0)


def _at_clock(device: Device, clock: float) -> Device:
    """A device whose products of this machine are so fast as others of its kind."""
    own = device.efficiency
    if clock == 1.0:
        return device
    slower = dataclasses.replace(own, sustained_clock=clock * own.sustained_clock, narrow_clock=clock * own.narrow_clock)
    return dataclasses.replace(device, efficiency=slower)


def _inside(device: Device, size: int, known: Mapping[str, Any]) -> Level:
    """The links of a node: of the kind and rate that is said, at the share that such links reach."""
    link, rate = known.get("node_link"), known.get("node_bandwidth")
    usual = machines.machine(device, size, 1).levels[0]
    if link in PCIE:
        card = rate or PCIE[link]
        through_host = known.get("node_peer_to_peer", peer_to_peer(device.name)) is False
        found = machines.over_pcie(size, card, through_host)
    elif rate and link is not None:
        specified = usual.line_rate or link_of(device.name)
        share = usual.bandwidth / specified if specified and usual.topology != "tree" else machines.LINK_SHARE
        found = dataclasses.replace(usual, bandwidth=min(share, 1.0) * rate, line_rate=rate)
        if usual.topology == "tree":
            found = dataclasses.replace(found, name=link, latency=machines.LINK_LATENCY, topology="switch")
    else:
        found = usual
    measured = known.get("node_measured")
    return found if not measured else dataclasses.replace(found, bandwidth=float(measured))


def _between(device: Device, domain: int, per_node: int, gpus: int, known: Mapping[str, Any]) -> Level:
    """The network between nodes: as measured, of the rate that is said, or usual for the device."""
    kind, rate, measured = known.get("network"), known.get("network_bandwidth"), known.get("network_measured", {})
    nodes = max(-(-gpus // domain), machines.ROOM // domain, 1)
    if measured.get("low") and measured.get("high"):
        reached = 0.5 * (measured["low"] + measured["high"]) / per_node
        level = Level(name="network", size=domain * nodes, latency=machines.NETWORK_LATENCY, bandwidth=reached)
    elif rate:
        level = machines.network_of(domain * nodes, rate)
    else:
        level = machines.machine(device, domain * nodes, nodes).levels[-1]
    name = NAMES.get(str(kind), level.name)
    if kind == "omni-path":
        level = dataclasses.replace(level, ring_bandwidth=OMNI_PATH_RING)
    return dataclasses.replace(level, name=name, latency=EFA_LATENCY if kind == "efa" else level.latency)

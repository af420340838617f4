"""Clusters made in one line: so many GPUs of a kind, in the nodes and on the network that it comes in, or others."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from costmodel.catalogue import files, loader, readings
from costmodel.description.cluster import MAX_GPUS, Cluster, Level
from costmodel.description.device import Device
from costmodel.text.checks import positive_int
from costmodel.text.errors import InvalidValue, NotModelled

PCIE_SHARE = 0.8
"""Of a PCIe link's rate that a ring of GPUs reaches: 20 of 25 GB/s (NVIDIA/nccl-tests#178, over A100s on gen4)."""
LINK_SHARE = 0.8
"""Of a device's own links: 235 of 300 GB/s on A100, 367 of 450 GB/s on H100 (stas00/ml-engineering network/README.md)."""
THROUGH_HOST = 0.5
"""Of a card's rate on PCIe that is left where its driver has no peer-to-peer, as GeForce's: what one GPU sends to another is
written to the host's memory and read from there (mli/transformers-benchmarks@3370b2b: 6.2 of 16 GB/s between two RTX 3090 Ti)."""
WITHOUT_PCIE = ("tpu", "trainium")
"""Architectures whose devices reach each other over links of their own only."""
NIC_SHARE = 0.92
"""Of a NIC's line rate that collectives reach: 23 of 25 GB/s (NVIDIA/nccl-tests#100, HDR), 12 of 12.5 GB/s
(NVIDIA/nccl src/graph/topo.h, 100 GbE)."""
PCIE_LATENCY, LINK_LATENCY, NETWORK_LATENCY = 5.7e-6, 3.4e-6, 14e-6
"""Of a hop [s]: NVIDIA/nccl src/graph/tuning.cc (ring, Simple), PCI, NVLink and NET."""
MAX_NODES = 1_000_000
ROOM = 1024
"""GPUs that a network links where nobody says how many."""
ENTRIES = "machines.toml"
"""In what machines devices come of which the catalogue has no cluster."""


class Machine(NamedTuple):
    """What a device comes in."""

    gpus: int  # of a node
    own: Cluster | None  # the catalogue's first cluster with this very device, or None
    like: Cluster | None  # the catalogue's cluster whose network the nodes have, or None
    network: str  # line rate of a node's NICs as the catalogue writes it, where no cluster says it; empty where nothing does
    assumed: bool  # nothing is known of this device's machines: an ordinary server is taken


def machine_of(device: Device) -> Machine:
    """What a device comes in: nodes of the catalogue's first cluster with it, else its entry in `machines.toml`.

    Parameters
    ----------
    device : of the catalogue, or another, which is taken for a card in an ordinary server

    Examples
    --------
    >>> found = machine_of(loader.load_device("h20"))
    >>> found.gpus, found.like.name, found.assumed
    (8, 'dgx-h100', False)
    """
    name = loader.cluster_with(device.name)
    own = loader.own_cluster(name) if name else None
    if own is not None and len(own.levels) > 1:
        return Machine(own.gpus_per_node, own, own, "", False)
    known = device.name in files.entries(ENTRIES)
    entry = files.entry_of(ENTRIES, device.name if known else "default")
    like = loader.own_cluster(entry["like"]) if "like" in entry else None
    return Machine(entry["gpus"] if like is None else like.gpus_per_node, own, like, entry.get("network", ""), not known)


def in_a_node(device: Device | str) -> int:
    """GPUs of a node as a device comes in.

    Parameters
    ----------
    device : or its name, or a TOML file

    Examples
    --------
    >>> in_a_node("h100-sxm"), in_a_node("gh200-96gb")
    (8, 4)
    """
    return machine_of(device if isinstance(device, Device) else loader.load_device(device)).gpus


def machine(
    device: Device | str,
    gpus: int | None = None,
    nodes: int | None = None,
    network: float | str | None = None,
) -> Cluster:
    """A cluster of one kind of device, in nodes as that device comes in unless they are told.

    Nodes and network are those of the first cluster of the catalogue with the device; else of the machines that it is sold
    in; else eight cards on PCIe with 100 Gbit/s a node are taken. Inside a node GPUs are linked as in that cluster (NVLink,
    xGMI), else over their own links at a share of the published rate, else over PCIe at a share of the device's rate to its
    host.

    Parameters
    ----------
    device : or its name, or a TOML file
    gpus : of all nodes together; if not given one, or as many as the nodes that are told come with
    nodes : over which they are spread evenly; as many as it takes if None
    network : line rate of a node's NICs together, one direction [bytes/s], or a text as ``"25 Gbit/s"``, which may say ``"per
        GPU"``; that of the device's machines if None

    Returns
    -------
    Cluster
        whose name says the device and, where there are several, what nodes it is in; its title says it in full

    Raises
    ------
    InvalidValue
        where GPUs don't split into nodes, or nothing is known of a network between them
    NotModelled
        where the links between several devices of the kind aren't published

    Examples
    --------
    >>> many = machine("h100-sxm", gpus=1024)
    >>> many.name, many.levels == loader.own_cluster("dgx-h100").levels
    ('h100-sxm in nodes as dgx-h100', True)
    >>> machine("h100-sxm", nodes=2) == machine("h100-sxm", gpus=16, nodes=2)
    True
    >>> machine("rtx-4090", gpus=16).title
    '2 nodes of 8 x NVIDIA GeForce RTX 4090 24 GB on PCIe, 100 Gbit/s a node (assumed)'
    >>> two = machine("rtx-4090", gpus=8, nodes=2, network="25 Gbit/s")
    >>> two.gpus_per_node, round(two.levels[1].bandwidth / 1e9, 3)
    (4, 0.719)
    """
    built = device if isinstance(device, Device) else loader.load_device(device)
    usual = machine_of(built)
    if nodes is None:
        total = 1 if gpus is None else positive_int("gpus", gpus, MAX_GPUS)
        per_node, count = usual.gpus, -(-total // usual.gpus)
    else:
        count = positive_int("nodes", nodes, MAX_NODES)
        total = positive_int("gpus", count * usual.gpus if gpus is None else gpus, MAX_GPUS)
        if total % nodes:
            raise InvalidValue("gpus", total, f"a multiple of nodes={nodes}: they are spread evenly")
        per_node = total // nodes
    levels = [_inside(built, per_node, total, usual.own)]
    beyond = network is not None or (bool(usual.network or usual.like) and levels[0].size == per_node)
    if count > 1 or (beyond and (nodes is None or network is not None)):
        reach = count if nodes is not None else max(count, ROOM // per_node)
        levels.append(_between(built, per_node, reach, network, usual))
    return Cluster(
        name=built.name + _nodes_in_words(per_node, count, network, usual), device=built, levels=tuple(levels), gpus=total,
        title=_title(built, total, per_node, count, network, usual),
        host_memory=usual.own.host_memory if usual.own is not None and per_node == usual.gpus else None,
    )  # fmt: skip


def largest_cluster(device: Device | str, network: float | str | None = None) -> Cluster:
    """The largest cluster of a device that one line describes: nodes as it comes in, as many as a network links.

    Parameters
    ----------
    device : or its name, or a TOML file
    network : line rate of a node's NICs together, as in `machine`

    Examples
    --------
    >>> largest_cluster("rtx-4090").gpus, largest_cluster("h100-sxm").gpus
    (1024, 1024)
    """
    return machine(device, ROOM, network=network)


def _nodes_in_words(per_node: int, count: int, network: float | str | None, usual: Machine) -> str:
    """What a cluster's name says of its nodes: nothing of one."""
    if count == 1:
        return ""
    as_sold = per_node == usual.gpus and network is None and usual.like is not None
    return f" in nodes as {usual.like.name}" if as_sold and usual.like is not None else f" in nodes of {per_node}"


def _title(device: Device, total: int, per_node: int, count: int, network: float | str | None, usual: Machine) -> str:
    name = device.title or device.name
    found = f"{count} nodes of {per_node} x {name}" if count > 1 else f"{total} x {name}"
    if network is not None or total == 1:
        return found
    if usual.like is not None:
        share = "" if per_node == usual.gpus else "the network of a node "
        return f"{found}, {share}as in {usual.like.title or usual.like.name}"
    if usual.own is None and loader.link_of(device.name) is None:
        found += " on PCIe"
    if count == 1 or not usual.network:
        return found
    return f"{found}, {usual.network} a node" + (" (assumed)" if usual.assumed else "")


def _inside(device: Device, size: int, total: int, own: Cluster | None) -> Level:
    if own is not None and size <= own.levels[0].size:
        node = own.levels[0]
        return Level(
            name=node.name, latency=node.latency, bandwidth=node.bandwidth, line_rate=node.line_rate, size=size,
            topology=node.topology,
        )  # fmt: skip
    link = loader.link_of(device.name)
    if link is not None:
        return Level(name="link", size=size, latency=LINK_LATENCY, bandwidth=LINK_SHARE * link, line_rate=link)
    if device.architecture in WITHOUT_PCIE:
        if total > 1 and size > 1:
            raise NotModelled(
                f"{total} {device.name}: no rate of the links between them is published; describe the cluster in TOML "
                "(`costmodel new cluster FILE`)"
            )
        size = 1
    return over_pcie(size, device.host_bandwidth, not loader.peer_to_peer(device.name))


def over_pcie(size: int, rate: float, through_host: bool = False) -> Level:
    """The cards of a node that reach each other over PCIe alone.

    Parameters
    ----------
    size : GPUs of the node
    rate : of a card's lanes, one direction [bytes/s]
    through_host : what they send each other goes through the host's memory
    """
    share = PCIE_SHARE * (THROUGH_HOST if through_host else 1.0)
    return Level(name="pcie", size=size, latency=PCIE_LATENCY, bandwidth=share * rate, topology="tree", line_rate=rate)


def _between(device: Device, per_node: int, nodes: int, network: float | str | None, usual: Machine) -> Level:
    size = per_node * nodes
    if network is None and usual.like is not None:
        outer = usual.like.levels[-1]
        share = usual.like.gpus_per_node / per_node  # the NICs are the node's
        return Level(name=outer.name, size=max(size, outer.size // per_node * per_node), latency=outer.latency,
                     bandwidth=outer.bandwidth * share,
                     line_rate=None if outer.line_rate is None else outer.line_rate * share)  # fmt: skip
    rate = usual.network if network is None else network
    if not rate:
        raise InvalidValue("network", None, f"a rate such as 25Gbit/s: {nodes} nodes of {device.name} need a network")
    return network_of(size, readings.rate_per_gpu("network", rate, per_node, "node"))


def network_of(size: int, line: float) -> Level:
    """A network between nodes.

    Parameters
    ----------
    size : GPUs that it links
    line : a GPU's share of the NICs' line rate [bytes/s]
    """
    return Level(name="network", size=size, latency=NETWORK_LATENCY, bandwidth=NIC_SHARE * line, line_rate=line)


def on_network(cluster: Cluster, network: float | str) -> Cluster:
    """A cluster with other NICs: its outermost level at another line rate, of which collectives reach the same share.

    Parameters
    ----------
    cluster : of one node or of several
    network : line rate of a node's NICs together, one direction [bytes/s], or a text as ``"400 Gbit/s"``, or ``"50 GB/s per
        GPU"``

    Examples
    --------
    >>> slower = on_network(loader.own_cluster("dgx-h100"), "1600 Gbit/s")
    >>> slower.levels[1].line_rate / 1e9, slower.levels[1].bandwidth / 1e9
    (25.0, 23.0)
    """
    line = readings.rate_per_gpu("network", network, cluster.gpus_per_node, "node")
    if len(cluster.levels) == 1:
        node = cluster.gpus_per_node
        return dataclasses.replace(cluster, levels=(*cluster.levels, network_of(max(1, ROOM // node) * node, line)))
    outer = cluster.levels[-1]
    share = outer.bandwidth / outer.line_rate if outer.line_rate else NIC_SHARE
    changed = dataclasses.replace(outer, bandwidth=share * line, line_rate=line)
    return dataclasses.replace(cluster, levels=(*cluster.levels[:-1], changed))


def cloud_instance(name: str, gpus: int | None = None) -> Cluster | None:
    """The cluster of a cloud's instance with one kind of GPU inside, or None where the catalogue has none of that name.

    Parameters
    ----------
    name : of the instance, ``"g6e.12xlarge"``
    gpus : of all instances together; those of one if not given
    """
    known = loader.instance(name)
    if known is None:
        return None
    entry, name = loader.instances()[known], known
    size: int = entry["gpus"]
    total = size if gpus is None else positive_int("gpus", gpus, MAX_GPUS)
    nodes = -(-total // size)
    made = machine(entry["device"], gpus=nodes * size, nodes=nodes, network=entry.get("network") if nodes > 1 else None)
    title = f"{name}, {size} x {made.device.title or made.device.name} each"
    return dataclasses.replace(made, name=name, gpus=total, title=title)

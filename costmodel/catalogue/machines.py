"""Clusters made in one line: so many GPUs of a kind, in so many nodes, on a network."""

from __future__ import annotations

from costmodel.catalogue import loader
from costmodel.checks import positive_int
from costmodel.description.cluster import Cluster, Level
from costmodel.description.device import Device
from costmodel.errors import InvalidValue, NotModelled
from costmodel.units import quantity

PCIE_SHARE = 0.8
"""Of a PCIe link's rate that a ring of GPUs reaches: 20 of 25 GB/s (NVIDIA/nccl-tests#178, over A100s on gen4)."""
LINK_SHARE = 0.8
"""Of a device's own links: 235 of 300 GB/s on A100, 367 of 450 GB/s on H100 (stas00/ml-engineering network/README.md)."""
WITHOUT_PCIE = ("tpu", "trainium")
"""Architectures whose devices reach each other over links of their own only."""
NIC_SHARE = 0.92
"""Of a NIC's line rate that collectives reach: 23 of 25 GB/s (NVIDIA/nccl-tests#100, HDR), 12 of 12.5 GB/s
(NVIDIA/nccl src/graph/topo.h, 100 GbE)."""
PCIE_LATENCY, LINK_LATENCY, NETWORK_LATENCY = 5.7e-6, 3.4e-6, 14e-6
"""Of a hop [s]: NVIDIA/nccl src/graph/tuning.cc (ring, Simple), PCI, NVLink and NET."""
MAX_NODES = 1_000_000
USUAL_NODE, ROOM = 8, 1024
"""GPUs of a node, and of a cluster, where only their kind is known."""


def machine(
    device: Device | str,
    gpus: int | None = None,
    nodes: int = 1,
    network: float | str | None = None,
) -> Cluster:
    """A cluster of one kind of device.

    Inside a node the GPUs are linked as in the first cluster of the catalogue with that device (NVLink, xGMI), else over
    their own links at a share of the published rate, else over PCIe at a share of the device's rate to its host.

    Parameters
    ----------
    device : or its name, or a TOML file
    gpus : of all nodes together; one a node if not given
    nodes : over which they are spread evenly
    network : line rate of a node's NICs together, one direction [bytes/s], or a text as ``"25 Gbit/s"``; needed where
        there are several nodes and the catalogue has no cluster of the device

    Raises
    ------
    InvalidValue
        where GPUs don't split into nodes, or several nodes have no network
    NotModelled
        where the links between several devices of the kind aren't published

    Examples
    --------
    >>> machine("rtx-4090").gpus
    1
    >>> two = machine("rtx-4090", gpus=8, nodes=2, network="25 Gbit/s")
    >>> two.gpus_per_node, round(two.levels[1].bandwidth / 1e9, 3)
    (4, 0.719)
    """
    built = device if isinstance(device, Device) else loader.load_device(device)
    positive_int("nodes", nodes, MAX_NODES)
    total = nodes if gpus is None else positive_int("gpus", gpus, MAX_NODES)
    if total % nodes:
        raise InvalidValue("gpus", total, f"a multiple of nodes={nodes}: they are spread evenly")
    per_node = total // nodes
    known = _cluster_with(built.name)
    levels = [_inside(built, per_node, known)]
    if nodes > 1 or network is not None:
        levels.append(_between(built, per_node, nodes, network, known))
    name = built.name if nodes == 1 else f"{built.name} in nodes of {per_node}"
    return Cluster(name=name, device=built, levels=tuple(levels), gpus=total, title=_title(built, nodes, per_node))


def room(device: Device | str, network: float | str | None = None) -> Cluster:
    """The largest cluster of a device that one line describes: nodes as the catalogue has them, as many as a network links.

    Parameters
    ----------
    device : or its name, or a TOML file
    network : line rate of a node's NICs together, as in `machine`

    Examples
    --------
    >>> room("rtx-4090").gpus, room("h100-sxm").gpus
    (8, 1024)
    """
    built = device if isinstance(device, Device) else loader.load_device(device)
    known = _cluster_with(built.name)
    node = known.gpus_per_node if known is not None else USUAL_NODE
    linked = network is not None or (known is not None and len(known.levels) > 1)
    nodes = ROOM // node if linked else 1
    return machine(built, node * nodes, nodes, network)


def _title(device: Device, nodes: int, per_node: int) -> str:
    name = device.title or device.name
    return f"{nodes} nodes of {per_node} x {name}" if nodes > 1 else f"{per_node} x {name}"


def _cluster_with(device: str) -> Cluster | None:
    """The first cluster of the catalogue that has a device."""
    name = loader.cluster_with(device)
    return loader.load_cluster(name) if name else None


def _inside(device: Device, gpus: int, known: Cluster | None) -> Level:
    if known is not None and gpus <= known.levels[0].size:
        node = known.levels[0]
        return Level(
            name=node.name, latency=node.latency, bandwidth=node.bandwidth, line_rate=node.line_rate, size=gpus,
            topology=node.topology,
        )  # fmt: skip
    link = loader.link_of(device.name)
    if link is not None:
        return Level(name="link", size=gpus, latency=LINK_LATENCY, bandwidth=LINK_SHARE * link, line_rate=link)
    if gpus > 1 and device.architecture in WITHOUT_PCIE:
        raise NotModelled(
            f"{gpus} {device.name}: no rate of the links between them is published; describe the cluster in TOML "
            "(`costmodel new cluster FILE`)"
        )
    return Level(
        name="pcie", size=gpus, latency=PCIE_LATENCY, bandwidth=PCIE_SHARE * device.host_bandwidth,
        topology="tree", line_rate=device.host_bandwidth,
    )  # fmt: skip


def _between(device: Device, per_node: int, nodes: int, network: float | str | None, known: Cluster | None) -> Level:
    size = per_node * nodes
    if network is None:
        outer = known.levels[-1] if known is not None and len(known.levels) > 1 else None
        if known is None or outer is None:
            raise InvalidValue("network", None, f"a rate such as 25Gbit/s: {nodes} nodes of {device.name} need a network")
        share = known.gpus_per_node / per_node  # the NICs are the node's
        return Level(name=outer.name, size=size, latency=outer.latency, bandwidth=outer.bandwidth * share,
                     line_rate=None if outer.line_rate is None else outer.line_rate * share)  # fmt: skip
    line = quantity("network", network, "bandwidth") / per_node
    return Level(name="network", size=size, latency=NETWORK_LATENCY, bandwidth=NIC_SHARE * line, line_rate=line)


def instance(name: str, gpus: int | None = None) -> Cluster | None:
    """The cluster of a cloud's instance with one kind of GPU inside, or None where the catalogue has none of that name.

    Parameters
    ----------
    name : as the cloud writes it, ``"g6e.12xlarge"``
    gpus : of all instances together; those of one if not given
    """
    entry = loader.instances().get(name)
    if entry is None:
        return None
    size: int = entry["gpus"]
    total = size if gpus is None else gpus
    nodes = -(-total // size)
    return machine(entry["device"], gpus=total, nodes=nodes, network=entry.get("network") if nodes > 1 else None)

"""What measurements add to NCCL's and RCCL's own models: constants by architecture, by kind of network, by who launches."""

from __future__ import annotations

from typing import NamedTuple

from costmodel.catalogue.files import table_of
from costmodel.formulas.network import nccl, rccl

FILE = "communication.toml"
NETWORKS = {"efa": "efa", "tcp": "tcp", "ethernet": "tcp"}
"""Kind of network by what its level's name holds; every other is RDMA over InfiniBand or Ethernet."""
USUAL_NETWORK = "rdma"


class Overhead(NamedTuple):
    """Constants of `costmodel.formulas.network.nccl.measured`: launch [s], gain, filling [s/byte], round_bytes [bytes]."""

    launch: float
    gain: float
    filling: float
    round_bytes: float


NONE = Overhead(0.0, 1.0, 0.0, 0.0)
"""Of an architecture or network that was never measured: what NCCL expects is taken as it stands."""


def measured() -> dict[str, list[str]]:
    """Architectures, networks and launchers that have constants."""
    return {kind: list(entries) for kind, entries in table_of(FILE).items() if kind != "fit"}


def overhead(kind: str, name: str) -> Overhead:
    """Constants of an architecture or a kind of network; `NONE` where it was never measured.

    Parameters
    ----------
    kind : ``"architecture"`` or ``"network"``
    name : of it
    """
    entry = table_of(FILE).get(kind, {}).get(name)
    return Overhead(**{field: float(entry[field]) for field in Overhead._fields}) if entry else NONE


def launch_of(launcher: str) -> float:
    """What a launcher adds to every collective [s]; 0 for native code.

    Parameters
    ----------
    launcher : ``"native"`` or ``"pytorch"``
    """
    return float(table_of(FILE).get("launcher", {}).get(launcher, {}).get("launch", 0.0))


def network_kind(name: str) -> str:
    """Kind of network that a level's name tells: ``"efa"``, ``"tcp"`` or ``"rdma"``.

    Examples
    --------
    >>> network_kind("efa"), network_kind("rail")
    ('efa', 'rdma')
    """
    return next((found for part, found in NETWORKS.items() if part in name.lower()), USUAL_NETWORK)


def family_of(architecture: str) -> str:
    """Whose measured constants an architecture shares: NVIDIA's generations, ``"cdna"``; empty where neither library runs."""
    return (nccl.FAMILIES | rccl.FAMILIES).get(architecture, "")


def constants_of_a_step(architecture: str | None, network: str) -> dict[str, float]:
    """What sweeps say of collectives inside a step: constants of `Software` by their paths.

    How long a framework takes to launch one is its own constant, which its runs tell.

    Parameters
    ----------
    architecture : of the GPUs; None where it isn't known
    network : kind of network between the nodes
    """
    inside, between = overhead("architecture", family_of(architecture or "")), overhead("network", network)
    return {
        "network_crossing_launch": between.launch,
        "network_node_filling": inside.filling, "network_node_round_bytes": inside.round_bytes,
        "network_filling": between.filling, "network_round_bytes": between.round_bytes,
    }  # fmt: skip

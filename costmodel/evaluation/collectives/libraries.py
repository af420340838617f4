"""Which library of collectives runs where, what its algorithms are called, and what of it is not modelled."""

from __future__ import annotations

from costmodel.solvers import nccl as tuner
from costmodel.solvers import rccl as mesh_tuner

LIBRARIES = ("nccl", "rccl", "textbook")
NETWORKS = {"efa": "efa", "tcp": "tcp", "ethernet": "tcp"}
"""Kind of network by what its level's name holds; every other is RDMA over InfiniBand or Ethernet."""
NCCL_NAMES = ("ring", "tree", "nvls", "nvls-tree", "collnet-direct", "collnet-chain", "pat", "point-to-point")
RCCL_NAMES = ("ring", "tree", "point-to-point")
LIBRARY_NAMES: dict[str, tuple[str, ...]] = {"nccl": NCCL_NAMES, "rccl": RCCL_NAMES, "textbook": ()}
"""Names of the algorithms of a library, the textbook's apart."""
WITHOUT = {
    "rccl": "RCCL is tabled in one release, without SHARP",
    "textbook": "its algorithms have no releases, launch cost or switches that reduce",
}  # fmt: skip
"""What is not modelled of a library."""
MAKERS = {"nccl": "NCCL runs on NVIDIA's GPUs", "rccl": "RCCL is modelled on AMD's GPUs from MI300X on"}


def library_of(architecture: str) -> str:
    """The library that runs on GPUs of an architecture, ``"nccl"`` or ``"rccl"``; ``"textbook"`` where neither does.

    Parameters
    ----------
    architecture : of the GPUs

    Examples
    --------
    >>> library_of("hopper"), library_of("cdna3"), library_of("tpu")
    ('nccl', 'rccl', 'textbook')
    """
    if architecture in tuner.FAMILIES:
        return "nccl"
    return "rccl" if architecture in mesh_tuner.FAMILIES else "textbook"


def family_of(architecture: str) -> str:
    """Whose measured constants an architecture shares: NVIDIA's generations, ``"cdna"``.

    Parameters
    ----------
    architecture : of GPUs that NCCL or RCCL runs on
    """
    return (tuner.FAMILIES | mesh_tuner.FAMILIES)[architecture]


def network_kind(name: str) -> str:
    """Kind of network that a level's name tells: ``"efa"``, ``"tcp"`` or ``"rdma"``.

    Parameters
    ----------
    name : of the level

    Examples
    --------
    >>> network_kind("efa"), network_kind("rail")
    ('efa', 'rdma')
    """
    return next((found for part, found in NETWORKS.items() if part in name.lower()), "rdma")

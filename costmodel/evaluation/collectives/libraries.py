"""Which library of collectives runs where, what its algorithms are called, and what of it is not modelled."""

from __future__ import annotations

from costmodel.formulas.network import nccl, rccl

LIBRARIES = ("nccl", "rccl", "textbook")
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

    Examples
    --------
    >>> library_of("hopper"), library_of("cdna3"), library_of("tpu")
    ('nccl', 'rccl', 'textbook')
    """
    if architecture in nccl.FAMILIES:
        return "nccl"
    return "rccl" if architecture in rccl.FAMILIES else "textbook"

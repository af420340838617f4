"""Platforms that training software is written for, and which architectures of devices are whose."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Platform(NamedTuple):
    """Devices for which software is written, or ported, as one."""

    title: str  # in words
    architectures: tuple[str, ...]  # as `Device.architecture` names them


PLATFORMS = {
    "nvidia": Platform("NVIDIA GPUs", (
        "maxwell", "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell", "blackwell-ultra", "blackwell-rtx")),
    "amd": Platform("AMD GPUs", ("cdna2", "cdna3", "cdna4", "rdna3")),
    "intel": Platform("Intel GPUs", ("xe-hpc",)),
    "gaudi": Platform("Intel Gaudi", ("gaudi",)),
    "tpu": Platform("Google TPUs", ("tpu",)),
    "trainium": Platform("AWS Trainium", ("trainium",)),
    "ascend": Platform("Huawei Ascend", ("ascend",)),
}  # fmt: skip
"""By name."""


def platform_of(architecture: str) -> str | None:
    """The platform of an architecture; None where it is unknown.

    Examples
    --------
    >>> platform_of("hopper"), platform_of("cdna3"), platform_of("of my own")
    ('nvidia', 'amd', None)
    """
    return next((name for name, one in PLATFORMS.items() if architecture in one.architectures), None)


def in_words(names: Iterable[str]) -> str:
    """Platforms in words.

    Examples
    --------
    >>> in_words(["nvidia", "amd", "tpu"])
    'NVIDIA GPUs, AMD GPUs and Google TPUs'
    """
    *others, last = (PLATFORMS[name].title for name in names)
    return f"{', '.join(others)} and {last}" if others else last

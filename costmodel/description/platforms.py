"""Platforms that training software is written for, and which architectures of devices are whose."""

from __future__ import annotations

from collections.abc import Iterable

PLATFORMS = {
    "nvidia": "NVIDIA GPUs", "amd": "AMD GPUs", "intel": "Intel GPUs", "gaudi": "Intel Gaudi", "tpu": "Google TPUs",
    "trainium": "AWS Trainium", "ascend": "Huawei Ascend",
}  # fmt: skip
"""By name, in words."""
NVIDIA = ["maxwell", "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell", "blackwell-ultra", "blackwell-rtx"]
OF_ARCHITECTURES = {
    **dict.fromkeys(NVIDIA, "nvidia"), **dict.fromkeys(("cdna2", "cdna3", "cdna4", "rdna3"), "amd"), "xe-hpc": "intel",
    **{name: name for name in ("gaudi", "tpu", "trainium", "ascend")},
}  # fmt: skip
"""The platform of each architecture, as `costmodel.description.device.Device` names them."""


def in_words(names: Iterable[str]) -> str:
    """Platforms in words.

    Examples
    --------
    >>> in_words(["nvidia", "amd", "tpu"])
    'NVIDIA GPUs, AMD GPUs and Google TPUs'
    """
    *others, last = (PLATFORMS[name] for name in names)
    return f"{', '.join(others)} and {last}" if others else last

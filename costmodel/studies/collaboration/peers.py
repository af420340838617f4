"""A peer of a collaboration: a volunteer's computer with its own speed and its own connection."""

from __future__ import annotations

import dataclasses

from costmodel.text.checks import flag, real, text
from costmodel.text.results import brief


@dataclasses.dataclass(frozen=True, kw_only=True)
class Peer:
    """One computer that can compute gradients, average them, or both.

    Parameters
    ----------
    name : what it is called
    samples_per_second : whose gradients it computes; 0 for one that can only average
    upload, download : of its connection [bytes/s]
    client : whether others can't open connections to it, as behind a firewall: it can't average for others, and
        exchanges nothing with other clients
    """

    name: str
    samples_per_second: float
    upload: float
    download: float
    client: bool = False

    __repr__ = brief

    def __post_init__(self) -> None:
        text("name", self.name)
        real(f"samples_per_second of {self.name}", self.samples_per_second, 0.0, 1e15)
        real(f"upload of {self.name}", self.upload, 0.0, 1e15)
        real(f"download of {self.name}", self.download, 0.0, 1e15)
        flag(f"client of {self.name}", self.client)

"""What streams do while a CUDA graph is captured: kept to be done when it is replayed, with the memory that it takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple


class StreamOperation(NamedTuple):
    """What a stream is told to do."""

    action: int  # kernel, transaction, or the record of an event or the wait for one
    row: list[int]  # of the table of kernels or transactions; of an event its number alone
    stream: int  # stream, line: as in the timeline
    line: str
    reads: Sequence[int] = ()  # reads, writes: storages of a kernel's operands and results
    writes: Sequence[int] = ()


@dataclasses.dataclass
class Capture:
    """A graph as it is captured."""

    stream: int  # on which
    launches: list[StreamOperation] = dataclasses.field(default_factory=list)  # in their order
    # bytes of storages that were born since and are there yet, by their rows
    living: dict[int, int] = dataclasses.field(default_factory=dict)
    held: int = 0  # held, fullest: bytes of them now, and at most
    fullest: int = 0

    def born(self, storage: int, nbytes: int) -> None:
        """A storage comes from the graph's own memory."""
        self.living[storage] = nbytes
        self.held += nbytes
        self.fullest = max(self.fullest, self.held)

    def died(self, storage: int) -> None:
        """A storage goes back there, if it came from there."""
        self.held -= self.living.pop(storage, 0)

    @property
    def spare(self) -> int:
        """Bytes that the graph keeps for what comes and goes in it."""
        return self.fullest - self.held

"""What streams do while a CUDA graph is captured: kept to be done when it is replayed, with the memory that it takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple


class StreamOperation(NamedTuple):
    """What a stream is told to do.

    Parameters
    ----------
    action : kernel, transaction, or the record of an event or the wait for one
    row : of the table of kernels or transactions; of an event its number alone
    stream, line : as in the timeline
    reads, writes : storages of a kernel's operands and results
    """

    action: int
    row: list[int]
    stream: int
    line: str
    reads: Sequence[int] = ()
    writes: Sequence[int] = ()


@dataclasses.dataclass
class Capture:
    """A graph as it is captured.

    Parameters
    ----------
    stream : on which
    launches : in their order
    living : bytes of storages that were born since and are there yet, by their rows
    held, fullest : bytes of them now, and at most
    """

    stream: int
    launches: list[StreamOperation] = dataclasses.field(default_factory=list)
    living: dict[int, int] = dataclasses.field(default_factory=dict)
    held: int = 0
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

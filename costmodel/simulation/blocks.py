"""What ranks do as blocks that come again and again: a pass with what it starts and awaits, a send, a receive.

A step of thousands of micro-batches has a few kinds of blocks, so that its programs are a list of kinds, expanded at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from costmodel.evaluation.transactions import Transaction
from costmodel.simulation.played_step import Integers


class Move(NamedTuple):
    """A transfer."""

    stage: int  # that starts it
    other: int  # that starts it too, or receives it; else -1
    stream: int  # an index into `STREAMS`
    phase: str  # of the ledger
    price: Transaction  # of one
    overlap: float | None  # share of its rate that it has beside a pass; None if the pass doesn't mind
    row: int  # of `Replicas.labels`, the replicas that make it together


class ProgramEntry(NamedTuple):
    """An entry of a program [s]."""

    kind: int  # an index into `KINDS`
    own: int = -1  # place of its transfer among those of its block, or -1
    once: int = -1  # number of a transfer that is made once a step, or -1
    summed: int = -1  # stream of the gradients whose sum it starts, or -1
    duration: float = 0.0  # of work
    exchange: float = 0.0  # exchange, host: parts of it
    host: float = 0.0
    saved: float = 0.0  # by how much it changes the activations held [bytes]
    tensor: float = 0.0  # tensor, context, expert: exchange of those groups in it, hidden or not
    context: float = 0.0
    expert: float = 0.0


@dataclasses.dataclass
class Blocks:
    """Kinds of blocks."""

    lines: list[ProgramEntry] = dataclasses.field(default_factory=list)  # entries of each kind, one kind after the other
    moves: list[Move] = dataclasses.field(default_factory=list)  # transfers that each makes, one kind after the other
    # first_line, first_move: of each kind, and how many there are
    first_line: list[int] = dataclasses.field(default_factory=lambda: [0])
    first_move: list[int] = dataclasses.field(default_factory=lambda: [0])

    def add(self, lines: Sequence[ProgramEntry], moves: Sequence[Move] = ()) -> int:
        """A new kind of block, by its number."""
        self.lines.extend(lines)
        self.moves.extend(moves)
        self.first_line.append(len(self.lines))
        self.first_move.append(len(self.moves))
        return len(self.first_line) - 2

    def of(self, kind: int) -> list[ProgramEntry]:
        """The entries of a kind of block."""
        return self.lines[self.first_line[kind] : self.first_line[kind + 1]]


class Met(NamedTuple):
    """Blocks in the order in which a rank meets them."""

    kinds: Integers  # of each
    base: Integers  # number of its first transfer
    numbers: Integers  # its micro-batch, or -1


def expanded(first: Integers, lengths: Integers) -> Integers:
    """Whole numbers from each first one on, so many of each.

    Examples
    --------
    >>> expanded(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(first - ends + lengths, lengths)

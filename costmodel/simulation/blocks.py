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
    """A transfer.

    Parameters
    ----------
    stage : that starts it
    other : that starts it too, or receives it; else -1
    stream : an index into `STREAMS`
    phase : of the ledger
    price : of one
    overlap : share of its rate that it has beside a pass; None if the pass doesn't mind
    row : of `Replicas.labels`, the replicas that make it together
    """

    stage: int
    other: int
    stream: int
    phase: str
    price: Transaction
    overlap: float | None
    row: int


class ProgramEntry(NamedTuple):
    """An entry of a program [s].

    Parameters
    ----------
    kind : an index into `KINDS`
    own : place of its transfer among those of its block, or -1
    once : number of a transfer that is made once a step, or -1
    summed : stream of the gradients whose sum it starts, or -1
    duration : of work
    exchange, host : parts of it
    saved : by how much it changes the activations held [bytes]
    tensor, context, expert : exchange of those groups in it, hidden or not
    """

    kind: int
    own: int = -1
    once: int = -1
    summed: int = -1
    duration: float = 0.0
    exchange: float = 0.0
    host: float = 0.0
    saved: float = 0.0
    tensor: float = 0.0
    context: float = 0.0
    expert: float = 0.0


@dataclasses.dataclass
class Blocks:
    """Kinds of blocks.

    Parameters
    ----------
    lines : entries of each kind, one kind after the other
    moves : transfers that each makes, one kind after the other
    first_line, first_move : of each kind, and how many there are
    """

    lines: list[ProgramEntry] = dataclasses.field(default_factory=list)
    moves: list[Move] = dataclasses.field(default_factory=list)
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
    """Blocks in the order in which a rank meets them.

    Parameters
    ----------
    kinds : of each
    base : number of its first transfer
    numbers : its micro-batch, or -1
    """

    kinds: Integers
    base: Integers
    numbers: Integers


def expanded(first: Integers, lengths: Integers) -> Integers:
    """Whole numbers from each first one on, so many of each.

    Examples
    --------
    >>> expanded(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(first - ends + lengths, lengths)

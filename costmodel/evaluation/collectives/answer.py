"""What is answered of a collective: its time, its algorithm, and every other that could have run."""

from __future__ import annotations

import dataclasses

from costmodel.description.topology import MOST, Group
from costmodel.text.checks import choice, plain, positive_int
from costmodel.text.results import brief

OPERATIONS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "reduce", "send")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Alternative:
    """An algorithm that could have run, with its protocol ('' in the textbook) and time [s]."""

    algorithm: str
    protocol: str
    time: float

    __repr__ = brief


@dataclasses.dataclass(frozen=True, kw_only=True)
class CollectiveTime:
    """What a collective takes.

    Parameters
    ----------
    op, nbytes, group : what was asked: the operation, its buffer [bytes] and the ranks
    time : [s]
    algorithm, protocol : by which it runs; the protocol is '' in the textbook
    library : ``"nccl"``, ``"rccl"`` or ``"textbook"``; of a step, the framework's name
    why : one line
    alternatives : every algorithm offered, fastest first, this one included
    lower_bound : time that no algorithm sending over the same links goes below [s]; NCCL's NVLS and CollNet, which
        reduce in switches, are not bound by it
    """

    op: str
    nbytes: float
    group: Group
    time: float
    algorithm: str
    protocol: str
    library: str
    why: str
    alternatives: tuple[Alternative, ...]
    lower_bound: float

    __repr__ = brief

    @property
    def algorithm_bandwidth(self) -> float:
        """Bytes of the buffer over time [bytes/s]; 0 where nothing takes no time."""
        return self.nbytes / self.time if self.time else 0.0

    @property
    def bus_bandwidth(self) -> float:
        """Rate of the bytes that a ring would move past each rank, as nccl-tests prints it [bytes/s]."""
        return self.algorithm_bandwidth * bus_factor(self.op, self.group.ranks)


def bus_factor(op: str, ranks: int) -> float:
    """Bus over algorithm bandwidth of an operation.

    Parameters
    ----------
    op : one of `OPERATIONS`
    ranks : members

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected

    Examples
    --------
    >>> bus_factor("all-reduce", 8)
    1.75
    """
    choice("op", op, OPERATIONS)
    ranks = positive_int("ranks", plain(ranks), MOST)
    share = (ranks - 1) / ranks
    return {"all-reduce": 2.0 * share, "all-gather": share, "reduce-scatter": share, "all-to-all": share}.get(op, 1.0)


def phases_of(op: str) -> float:
    """Share of an all-reduce's two passes through the channels' buffers that an operation makes."""
    return 1.0 if op == "all-reduce" else 0.5

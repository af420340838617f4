"""A fault of traced code: what, where, and what it costs."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from costmodel.text.results import fitted
from costmodel.text.units import format_bytes, format_seconds
from costmodel.traces.memory import TraceMemory
from costmodel.traces.pricing import TraceEstimate
from costmodel.traces.record import Role, Trace

KINDS = (
    "ranks disagree", "no partner", "out of memory", "memory grows", "no gradient", "repeated sum", "wide exchange",
    "wide product", "unused gather", "gathered logits", "host copy", "unpinned copy", "host wait", "recompilation",
    "unbalanced stages", "kept gradients", "emptied cache", "no recomputation",
)  # fmt: skip
"""Of faults, those that stop a run first."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """Something that training code does wrong."""

    kind: str  # one of `KINDS`
    rank: int  # of the role in which it shows
    module: str  # of the model in which it happens, or parameter; ``""`` outside of any
    line: str  # of the user's code, ``""`` where unknown
    sentence: str  # what is wrong, with its numbers
    seconds: float = 0.0  # that it costs a step, 0 where it costs none [s]
    bytes: float = 0.0  # that it costs of memory or of exchange, 0 where it costs none [bytes]

    def __repr__(self) -> str:
        place = ", ".join(filter(None, (self.line, self.module, f"rank {self.rank}")))
        cost = [format_seconds(self.seconds) + " a step"] if self.seconds else []
        cost += [format_bytes(self.bytes)] if self.bytes else []
        paid = f" [{', '.join(cost)}]" if cost else ""
        return fitted(f"{self.kind} ({place}): {self.sentence}{paid}")


class Examined(NamedTuple):
    """What detectors look at."""

    estimate: TraceEstimate
    memory: tuple[TraceMemory, ...]  # of each role

    @property
    def trace(self) -> Trace:
        """What was traced."""
        return self.estimate.trace


def place_of(role: Role, line: int) -> str:
    """The words of a line of code, for a sentence."""
    return role.texts[line] or "an unknown line"

"""What software really did against what the library says it does: transaction by transaction, and part by part of memory."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from costmodel.evaluation.estimation import Estimate
from costmodel.simulation.transactions import Ledger, ledger_of
from costmodel.text.checks import choice
from costmodel.text.errors import InvalidValue
from costmodel.text.results import fitted
from costmodel.text.tables import table
from costmodel.text.units import MiB, format_bytes, format_seconds
from costmodel.traces.memory import TraceMemory, memory_of_trace
from costmodel.traces.pricing import TraceEstimate, price_trace
from costmodel.traces.record import TRANSACTION, Role, Trace
from costmodel.traces.transactions import BARRIER, described

if TYPE_CHECKING:
    import pandas

SAME = 1e-6
"""Relative difference of two numbers of bytes that count as the same."""
SMALL = 64 * 1024
"""Bytes below which a transaction is left out of a comparison unless asked for: norms, losses, flags [bytes]."""
MEMORY = {
    "weights": ("weight",), "gradients": ("gradient",), "optimizer": ("optimizer",),
    "activations, temporaries, logits and buffers": ("activation", "temporary", "bucket", "input", "other", "rounding"),
}  # fmt: skip
"""Parts of a bill, and the kinds of storages that they are."""
BILLED = {
    "weights": ("weights",), "gradients": ("gradients",), "optimizer": ("optimizer",),
    "activations, temporaries, logits and buffers": ("activations", "temporaries", "logits", "buffers"),
}  # fmt: skip


class Kind(NamedTuple):
    """Transactions that are alike: what, of how many bytes, among how many, how far apart."""

    op: str
    bytes: float
    ranks: int
    stride: int


class Row(NamedTuple):
    """How often a rank launches transactions of a kind in a step, by the trace and by the ledger."""

    rank: int
    stage: str
    kind: Kind
    traced: float
    told: float

    @property
    def agrees(self) -> bool:
        """Whether both say the same."""
        return abs(self.traced - self.told) < 0.5


class ComparedPart(NamedTuple):
    """A part of memory at the fullest moment [bytes], or a time [s], by the trace and by the estimate."""

    name: str
    traced: float
    told: float

    @property
    def error(self) -> float:
        """What the estimate says over the trace, minus one; infinite where the trace has none."""
        return self.told / self.traced - 1.0 if self.traced else (0.0 if not self.told else float("inf"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compared:
    """A trace beside a ledger, and beside an estimate where one was given."""

    rows: tuple[Row, ...]  # transactions of a step, kind by kind
    memory: tuple[ComparedPart, ...] = ()  # parts of a rank's memory at its fullest moment [bytes]; empty beside a ledger alone
    time: tuple[ComparedPart, ...] = ()  # of a step [s]; empty beside a ledger alone

    @property
    def differences(self) -> tuple[Row, ...]:
        """Kinds of transactions on which trace and ledger disagree."""
        return tuple(row for row in self.rows if not row.agrees)

    @property
    def agrees(self) -> bool:
        """Whether every transaction is in both, as often, with the same bytes."""
        return not self.differences

    def sums(self) -> list[tuple[str, int, float, float]]:
        """Operation, ranks, and bytes in a step by the trace and by the ledger, whatever the sizes of single transactions."""
        found: dict[tuple[str, int], list[float]] = {}
        for row in self.rows:
            sums = found.setdefault((row.kind.op, row.kind.ranks), [0.0, 0.0])
            sums[0] += row.traced * row.kind.bytes
            sums[1] += row.told * row.kind.bytes
        return [(op, ranks, traced, told) for (op, ranks), (traced, told) in found.items()]

    def frame(self) -> pandas.DataFrame:
        """One row for each of `rows`."""
        import pandas

        records = [
            {"rank": row.rank, "stage": row.stage, **row.kind._asdict(), "traced": row.traced, "told": row.told}
            for row in self.rows
        ]
        return pandas.DataFrame(records)

    def __repr__(self) -> str:
        same = len(self.rows) - len(self.differences)
        lines = [f"{same} of {len(self.rows)} kinds of transactions agree"]
        lines += [
            f"  rank {row.rank}, {row.kind.op} of {format_bytes(row.kind.bytes)} among {row.kind.ranks}: {row.traced:g} traced, "
            f"{row.told:g} told"
            for row in self.differences
        ]
        lines += [f"  {one.name}: {format_bytes(one.traced)} traced, {format_bytes(one.told)} told" for one in self.memory]
        lines += [f"  {one.name}: {format_seconds(one.traced)} traced, {format_seconds(one.told)} told" for one in self.time]
        return fitted("\n".join(lines))

    def _repr_html_(self) -> str:
        rows = [
            [f"{row.kind.op} among {row.kind.ranks}", format_bytes(row.kind.bytes), f"{row.traced:g}", f"{row.told:g}"]
            for row in sorted(self.rows, key=lambda row: row.agrees)
        ]
        return table(repr(self).splitlines()[0], ["transaction", "bytes", "traced", "told"], rows)


def compare(trace: Trace, told: Ledger | Estimate, least: float = SMALL) -> Compared:
    """A trace's last step beside what the library says of a plan: transactions, and of an estimate memory and time as well.

    Parameters
    ----------
    trace : `Trace`
    told : the ledger of a plan, or its estimate
    least : bytes from which transactions count [bytes]

    Returns
    -------
    Compared

    Raises
    ------
    InvalidValue
        where the trace has roles of other stages than the plan's pipeline, or it is neither a ledger nor an estimate

    Notes
    -----
    A reduction that a framework does by another operation is another kind. Bill and trace don't part activations, temporaries,
    logits and buffers alike, so that these are compared together.
    """
    if isinstance(told, Estimate):
        transactions = _rows(trace, ledger_of(told), least)
        made = price_trace(trace, told.cluster, told.framework)
        held = memory_of_trace(trace, told.cluster, told.framework, estimate=made)
        return Compared(rows=transactions, memory=tuple(_memory(held, told)), time=tuple(_time(made, told)))
    if not isinstance(told, Ledger):
        raise InvalidValue("told", told, "a Ledger, which ledger(...) gives, or an Estimate, which estimate(...) gives")
    return Compared(rows=_rows(trace, told, least))


def stage_names(trace: Trace, told: Ledger) -> list[str]:
    """Stage of the ledger that each role is.

    Parameters
    ----------
    trace, told : roles in the order of their ranks, and the ledger of their plan
    """
    known = [stage.name for stage in told.stages]
    if len(known) == 1:
        return [known[0]] * len(trace.roles)
    order = sorted(range(len(trace.roles)), key=lambda place: trace.roles[place].rank)
    found = ["middle"] * len(trace.roles)
    found[order[0]], found[order[-1]] = "first", "last"
    for name in found:
        choice("stage", name, known)
    return found


def _rows(trace: Trace, told: Ledger, least: float) -> tuple[Row, ...]:
    rows = []
    for role, stage in zip(trace.roles, stage_names(trace, told), strict=True):
        traced = _traced(role, least)
        says: Counter[Kind] = Counter()
        for one in told.transactions:
            if one.stage == stage and one.nbytes >= least and one.ranks > 1:
                kind = Kind(one.collective, float(one.nbytes), one.ranks, one.stride)
                says[next((known for known in traced if _same(known, kind)), kind)] += one.count  # type: ignore[assignment]
        rows += [
            Row(role.rank, stage, kind, float(traced[kind]), float(says[kind]))
            for kind in sorted({*traced, *says}, key=lambda kind: (kind.op, kind.ranks, -kind.bytes))
        ]
    return tuple(rows)


def _traced(role: Role, least: float) -> Counter[Kind]:
    found: Counter[Kind] = Counter()
    for row in role.rows(TRANSACTION, role.step()).tolist():
        move = described(role, row)
        if move.op in (BARRIER, "recv") or move.bytes < least or move.group.ranks < 2:
            continue
        found[Kind(move.op, move.bytes, move.group.ranks, move.group.stride)] += 1
    return found


def _same(one: Kind, other: Kind) -> bool:
    """Whether two kinds are one; of a message the ledger knows the group, and the trace the two."""
    apart = abs(one.bytes - other.bytes) <= SAME * max(one.bytes, other.bytes)
    return one.op == other.op and apart and (one.op == "send" or one[2:] == other[2:])


def _memory(held: TraceMemory, told: Estimate) -> list[ComparedPart]:
    bill = told.memory
    found = []
    for name, kinds in MEMORY.items():
        traced, says = (held.by_kind[kind] for kind in kinds), (getattr(bill, part) for part in BILLED[name])
        found.append(ComparedPart(name, float(sum(traced)), float(sum(says))))
    return [
        *(one for one in found if max(one.traced, one.told) >= MiB),
        ComparedPart("allocated", float(held.allocated), float(bill.allocated)),
        ComparedPart("reserved", float(held.reserved), float(bill.reserved)),
    ]


def _time(made: TraceEstimate, told: Estimate) -> list[ComparedPart]:
    return [ComparedPart("step", made.step_time, told.step_time)]

"""Faults between ranks: transactions that don't match, are wider than need be, or bring what nobody reads."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from costmodel.text.units import KiB, counted, format_bytes
from costmodel.traces.faults.fault import Examined, Fault, place_of
from costmodel.traces.faults.widths import is_narrow_run, narrow_parameters
from costmodel.traces.memory import classes_of
from costmodel.traces.places import group_of
from costmodel.traces.record import KERNEL, KINDS, NOWHERE, RECEIVE, SEND, TRANSACTION, Role
from costmodel.traces.scheduling import Key, Partners
from costmodel.traces.transactions import described, price

NOTED = 64 * KiB
"""Bytes from which a wide transaction, or one that nobody reads, counts: norms, losses and flags are smaller."""
COPIES = ("copy", "split_with_sizes_copy", "cat", "clone", "_to_copy", "chunk_cat", "unsafe_split", "contiguous")
"""Operators, or their beginnings, that hand a value on unread."""
MESSAGES = (SEND, RECEIVE)
GATHERS = ("all-gather", "gather")
DELIBERATE = ("bucket",)
"""Kinds of storages whose width a framework chose."""


class Sent(NamedTuple):
    """A transaction of one role, as its partners see it."""

    role: int
    row: int
    op: str
    bytes: int
    dtype: str
    parameter: str
    root: str  # its place in the group, in words; "" of none


def disagreements(asked: Examined) -> Iterator[Fault]:
    """The first transaction of each group in which its ranks disagree, or that not all of them launch."""
    trace = asked.trace
    partners = Partners(trace)
    launched: dict[Key, dict[int, list[Sent]]] = {}
    for place, role in enumerate(trace.roles):
        for row, key in enumerate(partners.keys(place)):
            if key is not None:
                launched.setdefault(key[:-1], {}).setdefault(place, []).append(_sent(place, role, row))
    for key, by_role in launched.items():
        found = _first(asked, partners.members(key), by_role)
        if found is not None:
            yield found


def crossings(asked: Examined) -> Iterator[Fault]:
    """Transactions that all ranks launch, but each after it waits for another's: they come to no end together."""
    for role, played in zip(asked.trace.roles, asked.estimate.played, strict=True):
        for row in played.alone:
            line = int(role.timeline.line[row])
            item = int(role.timeline.item[row])
            op = role.texts[role.transactions.op[item]]
            yield Fault(
                kind="no partner", rank=role.rank, module=role.texts[role.transactions.module[item]], line=role.texts[line],
                sentence=f"{op} waits for ranks that wait for this one elsewhere, or that never launch it: a hang",
            )  # fmt: skip


def _sent(place: int, role: Role, row: int) -> Sent:
    moves, texts = role.transactions, role.texts
    op, peer, group = texts[moves.op[row]], int(moves.peer[row]), int(moves.group[row])
    rooted = NOWHERE not in (peer, group) and op not in MESSAGES
    root = f"rank {role.groups[group].index(peer)} of its group" if rooted else ""
    return Sent(place, row, op, int(moves.bytes[row]), texts[moves.dtype[row]], texts[moves.parameter[row]], root)


def _first(asked: Examined, members: tuple[int, ...], by_role: dict[int, list[Sent]]) -> Fault | None:
    """The first transaction of a group that one role has otherwise than another."""
    roles = asked.trace.roles
    lists = [by_role.get(member, []) for member in members]
    names = [Counter(one.parameter for one in each) for each in lists]
    alike = all(one == names[0] for one in names)
    for number, each in enumerate(itertools.zip_longest(*lists), 1):
        there = [one for one in each if one is not None]
        if len(there) < len(each):
            one, absent = there[0], [roles[member].rank for member, sent in zip(members, each, strict=True) if sent is None]
            return _fault(
                asked, "no partner", one,
                f"transaction {number} of its group, {_words(one)}, is never launched on {_ranks(absent)}: a hang",
            )  # fmt: skip
        one, *others = there
        for other in others:
            what = _difference(one, other, alike)
            if what is not None:
                where = place_of(roles[other.role], int(roles[other.role].transactions.line[other.row]))
                return _fault(
                    asked, "ranks disagree", one,
                    f"transaction {number} of its group is {_words(one)} here and {_words(other)} on rank "
                    f"{roles[other.role].rank} ({where}): {what} differs, a hang or wrong sums",
                )  # fmt: skip
    return None


def _difference(one: Sent, other: Sent, alike: bool) -> str | None:
    """In what two partners differ."""
    messages = one.op in MESSAGES
    pairs = (
        ("the operation", "" if messages else one.op, "" if messages else other.op),
        ("the number of bytes", one.bytes, other.bytes),
        ("the dtype", one.dtype, other.dtype),
        ("the root", one.root, other.root),
        ("the parameter", one.parameter if alike else "", other.parameter if alike else ""),
    )
    return next((name for name, mine, theirs in pairs if mine != theirs and "" not in (mine, theirs)), None)


def _words(one: Sent) -> str:
    of = f" of {one.parameter}" if one.parameter else ""
    root = f" with {one.root} as root" if one.root else ""
    return f"{one.op} of {one.bytes:,} bytes in {one.dtype or 'an unknown dtype'}{of}{root}"


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _fault(asked: Examined, kind: str, one: Sent, sentence: str) -> Fault:
    role = asked.trace.roles[one.role]
    moves = role.transactions
    return Fault(
        kind=kind, rank=role.rank, module=role.texts[moves.module[one.row]] or one.parameter,
        line=role.texts[moves.line[one.row]], sentence=sentence, bytes=float(one.bytes),
    )  # fmt: skip


def wide_exchanges(asked: Examined) -> Iterator[Fault]:
    """Transactions in 32 bits of a run whose products and weights have 16, that no framework's buffer asked for."""
    for place, role in enumerate(asked.trace.roles):
        if not is_narrow_run(role):
            continue
        narrow, step = narrow_parameters(role), role.step()
        found: dict[int, list[int]] = {}
        for row in role.rows(TRANSACTION, step).tolist():
            if _is_wide(role, row, narrow, step):
                found.setdefault(int(role.transactions.line[row]), []).append(row)
        for line, rows in found.items():
            nbytes = sum(int(role.transactions.bytes[row]) for row in rows)
            yield Fault(
                kind="wide exchange", rank=role.rank, module=_module(role, rows[0]), line=role.texts[line],
                sentence=f"{counted(len(rows), 'transaction')} of {format_bytes(nbytes)} in 32 bits of a run in 16",
                seconds=sum(_halved(asked, place, row) for row in rows), bytes=nbytes / 2.0,
            )  # fmt: skip


def _is_wide(role: Role, row: int, narrow: bool | None, step: range) -> bool:
    moves, storage = role.transactions, int(role.transactions.storage[row])
    if role.texts[moves.dtype[row]] != "float32" or moves.bytes[row] < NOTED or narrow is False:
        return False
    if storage == NOWHERE:
        return True
    lasting = int(role.storages.born[storage]) < step.start and len(role.step(0)) < len(role.timeline)
    return KINDS[role.storages.kind[storage]] not in DELIBERATE and not lasting


def _halved(asked: Examined, place: int, row: int) -> float:
    """What a transaction of half the bytes would save [s]."""
    made = asked.estimate
    move = described(made.trace.roles[place], row)
    halved, _, _ = price(move._replace(bytes=move.bytes / 2.0), made.cluster, made.framework)
    return float(made.transactions[place].time[row]) - halved


def _module(role: Role, row: int) -> str:
    moves = role.transactions
    return role.texts[moves.module[row]] or role.texts[moves.parameter[row]]


def unused_gathers(asked: Examined) -> Iterator[Fault]:
    """Gathers whose result nothing reads before it is gone, or gathered over again; not what is done once before the steps."""
    for place, role in enumerate(asked.trace.roles):
        if not len(role.operands):  # the recorder didn't say what kernels read
            continue
        readers, first = _Readers(role), role.step(0).stop if role.steps > 1 else 0
        found: dict[int, list[int]] = {}
        for row, until in _gathers(role):
            item = int(role.timeline.item[row])
            if row < first or until == NOWHERE or role.transactions.bytes[item] < NOTED:
                continue
            if not readers.uses(int(role.transactions.storage[item]), row, until):
                found.setdefault(int(role.transactions.line[item]), []).append(item)
        for line, items in found.items():
            times = asked.estimate.transactions[place].time
            steps = max(role.steps - (first > 0), 1)
            yield Fault(
                kind="unused gather", rank=role.rank, module=_module(role, items[0]), line=role.texts[line],
                sentence=f"{counted(len(items), 'gather')} of {format_bytes(int(role.transactions.bytes[items[0]]))} "
                f"{'are' if len(items) > 1 else 'is'} never read in {group_words(role, items[0])}",
                seconds=float(times[items].sum()) / steps, bytes=float(role.transactions.bytes[items].sum()) / steps,
            )  # fmt: skip


def gathered_logits(asked: Examined) -> Iterator[Fault]:
    """Logits that are gathered in a step, of a token or an image a row, where sums of each rank's own loss are a number each."""
    for place, role in enumerate(asked.trace.roles):
        classes, found = classes_of(role), dict[int, list[int]]()
        for row in role.rows(TRANSACTION, role.step()).tolist():
            if role.texts[role.transactions.op[row]] in GATHERS and _of_classes(role, row, classes):
                found.setdefault(int(role.transactions.line[row]), []).append(row)
        for line, rows in found.items():
            nbytes = float(role.transactions.bytes[rows].sum())
            yield Fault(
                kind="gathered logits", rank=role.rank, module=_module(role, rows[0]), line=role.texts[line],
                sentence=f"{format_bytes(nbytes)} of logits are gathered in {group_words(role, rows[0])}: losses and counts of "
                "each rank's own are a number each, of parts of the classes too (loss_parallel)",
                seconds=float(asked.estimate.transactions[place].time[rows].sum()), bytes=nbytes,
            )  # fmt: skip


def _of_classes(role: Role, row: int, classes: set[int]) -> bool:
    """Whether what a transaction brings has a row of classes, or a rank's part of them, for each token."""
    moves, storage = role.transactions, int(role.transactions.storage[row])
    if storage == NOWHERE or moves.bytes[row] < NOTED or role.texts[moves.parameter[row]]:
        return False
    if KINDS[role.storages.kind[storage]] not in ("activation", "temporary"):
        return False
    shape = role.texts[role.storages.shape[storage]].split("x")
    ranks = len(role.groups[moves.group[row]]) if moves.group[row] != NOWHERE else 1
    width = int(shape[-1]) if shape[-1].isdigit() else 0
    return len(shape) > 1 and bool({width, width * ranks} & classes)


def group_words(role: Role, row: int) -> str:
    """Among whom a transaction is, in words."""
    number = int(role.transactions.group[row])
    if number == NOWHERE:
        return "its group"
    return f"its group of {counted(group_of(role.groups[number]).ranks, 'rank')}"


def _gathers(role: Role) -> Iterator[tuple[int, int]]:
    """Rows of gathers, and those at which their result is gone; `NOWHERE` where the record ends before.

    Gathers that fit into one storage side by side, as buckets of a buffer, leave each other's results.
    """
    timeline, moves = role.timeline, role.transactions
    last: dict[int, dict[int, int]] = {}  # by storage, bytes of the gathers whose results lie there, by their rows
    for row in range(len(timeline)):
        if timeline.action[row] != TRANSACTION:
            continue
        item = int(timeline.item[row])
        storage = int(moves.storage[item])
        if storage == NOWHERE:
            continue
        gathered, nbytes = role.texts[moves.op[item]] == "all-gather", int(moves.bytes[item])
        there = last.setdefault(storage, {})
        if not gathered or sum(there.values()) + nbytes > role.storages.bytes[storage]:
            yield from ((before, row) for before in there)
            there.clear()
        if gathered:
            there[row] = nbytes
    for storage, rows in last.items():
        yield from ((row, int(role.storages.died[storage])) for row in rows)


class _Readers:
    """Which kernels read which storage, and when."""

    def __init__(self, role: Role):
        self.role = role
        self.reads: dict[int, list[tuple[int, int]]] = {}
        for row in range(len(role.timeline)):
            if role.timeline.action[row] == KERNEL:
                kernel = int(role.timeline.item[row])
                for storage in role.read(kernel).tolist():
                    self.reads.setdefault(storage, []).append((row, kernel))
            elif role.timeline.action[row] == TRANSACTION:  # what is sent on is used
                self.reads.setdefault(int(role.transactions.storage[role.timeline.item[row]]), []).append((row, NOWHERE))

    def uses(self, storage: int, after: int, until: int, depth: int = 4) -> bool:
        """Whether anything but copies reads a storage, or reads a copy of it, between two rows."""
        for row, kernel in self.reads.get(storage, ()):
            if not after < row < until:
                continue
            if kernel == NOWHERE:
                return True
            name = self.role.texts[self.role.kernels.op[kernel]].replace("::", ".").split(".")
            if not any(part.strip("_").removeprefix("foreach_").startswith(COPIES) for part in name) or depth == 0:
                return True
            for other in self.role.written(kernel).tolist():
                gone = int(self.role.storages.died[other])
                if other != storage and self.uses(other, row, gone if gone != NOWHERE else len(self.role.timeline), depth - 1):
                    return True
        return False

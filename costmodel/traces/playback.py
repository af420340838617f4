"""A traced step on the whole cluster: roles become ranks, transactions share the links, and each link's load is told.

The event simulator of `costmodel.simulation` plays it, as it plays the steps of plans: what computes between two transactions is
work, a transaction starts where it was launched, and work goes on until something waits for it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.simulation import step_kernel as kernel
from costmodel.text.checks import real, whole
from costmodel.text.errors import InvalidValue
from costmodel.text.tables import headed
from costmodel.text.units import format_seconds
from costmodel.traces.pricing import TraceEstimate, price_trace
from costmodel.traces.record import (
    EVENT_RECORD,
    HOST_WAIT,
    KERNEL,
    NOWHERE,
    RECEIVE,
    SEND,
    STREAM_WAIT,
    TRANSACTION,
    Role,
    Trace,
)
from costmodel.traces.scheduling import Key, Partners

if TYPE_CHECKING:
    import pandas

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MOST_EVENTS = 4_000_000
"""Entries of all ranks together that are played."""
LEAST = 1e-9
"""Of a transfer, which the simulator divides by [s]."""


class RoleEntry(NamedTuple):
    """What a role does next: work for a while, or start or await one of its transfers."""

    work: int  # 0, or the simulator's START or WAIT
    transfer: int  # row of the role's transactions; -1 of work
    duration: float  # of work [s]


class TracedLinkLoad(NamedTuple):
    """Load of a GPU's link of one level."""

    rank: int  # of the role that ran
    level: str  # of the cluster
    bandwidth: float  # that collectives reach there [bytes/s]
    nbytes: float  # that a step leaves on it [bytes]
    busy: float  # share of the step that this takes at that rate
    peak_rate: float  # of transactions at once, at the highest [bytes/s]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TracePlayback:
    """A traced step as the whole cluster plays it."""

    estimate: TraceEstimate  # the same step, priced
    entries: tuple[tuple[RoleEntry, ...], ...]  # what each role does
    # of each role that were played, by their numbers in the cluster; one stands for all where all are alike
    ranks: tuple[tuple[int, ...], ...]
    start: Floats  # start, end: of each replica's entries, one role after the other [s]
    end: Floats
    offsets: Integers  # first entry of each role, and the number of entries
    moved: Floats  # of each instance of a transaction: role, row of its transactions, start and end [s]

    @property
    def total(self) -> float:
        """From the first start to the last end [s]."""
        return float(max(self.end.max(initial=0.0), self.moved[:, 3].max(initial=0.0)))

    @functools.cached_property
    def finished(self) -> dict[int, float]:
        """When each rank that was played is done [s]."""
        found: dict[int, float] = {}
        for place, ranks in enumerate(self.ranks):
            last = self.offsets[place + 1] - 1
            for replica, rank in enumerate(ranks):
                found[rank] = float(self.end[replica, last]) if last >= self.offsets[place] else 0.0
        return found

    @property
    def waiting(self) -> dict[int, float]:
        """Time that each rank that was played awaits transactions [s]."""
        found: dict[int, float] = {}
        for place, ranks in enumerate(self.ranks):
            rows = slice(int(self.offsets[place]), int(self.offsets[place + 1]))
            waits = np.array([entry.work == kernel.WAIT for entry in self.entries[place]], dtype=bool)
            spent = (self.end[:, rows] - self.start[:, rows])[:, waits].sum(1)
            found |= dict(zip(ranks, spent.tolist(), strict=False))
        return found

    @functools.cached_property
    def loads(self) -> tuple[TracedLinkLoad, ...]:
        """Load of a GPU's link of every level, role by role, innermost level first."""
        made, found = self.estimate, []
        quality = made.framework.numbers().network.quality
        for place, role in enumerate(made.trace.roles):
            mine = self.moved[self.moved[:, 0] == place]
            rows, start, end = mine[:, 1].astype(int), mine[:, 2], mine[:, 3]
            times, once = np.unique(rows, return_index=True)  # a replica's own instance of each
            load = made.transactions[place].load[times]
            spans = np.maximum(end[once] - start[once], LEAST)
            for level, (named, numbers) in enumerate(zip(made.cluster.levels, made.cluster.numbers(), strict=False)):
                nbytes, bandwidth = float(load[:, level].sum()), float(quality * numbers.bandwidth)
                peak = _highest(start[once], end[once], load[:, level] / spans)
                busy = nbytes / bandwidth / self.total if self.total else 0.0
                found.append(TracedLinkLoad(role.rank, named.name, bandwidth, nbytes, busy, peak))
        return tuple(found)

    def frame(self) -> pandas.DataFrame:
        """Every transaction of every rank that was played, in a row."""
        import pandas

        made, rows = self.estimate, []
        for place, row, start, end in self.moved.tolist():
            role = made.trace.roles[int(place)]
            moves = role.transactions
            rows.append(
                {"role": role.rank, "transaction": role.texts[moves.op[int(row)]], "bytes": int(moves.bytes[int(row)]),
                 "start_s": start, "end_s": end}
            )  # fmt: skip
        return pandas.DataFrame(rows)

    def __repr__(self) -> str:
        played = sum(len(one) for one in self.ranks)
        head = (
            f"{self.estimate.trace.world_size:,} ranks in {len(self.ranks)} role{'s' if len(self.ranks) > 1 else ''}, {played:,} "
            f"played: step {format_seconds(self.total)}"
        )
        lines = [
            f"rank {one.rank}, {one.level} link: {100.0 * one.busy:.1f} % busy, {one.nbytes / 2**20:,.1f} MiB a step"
            for one in self.loads
            if one.nbytes
        ]
        return headed(head, *lines)


def play_cluster(
    trace: Trace, cluster: Cluster, framework: Framework | str | None = None, *, jitter: float = 0.0, seed: int = 0,
    slow_ranks: Mapping[int, float] | None = None, estimate: TraceEstimate | None = None,
) -> TracePlayback:  # fmt: skip
    """Play a traced step on all ranks of a cluster, with the load of every link.

    Ranks that do the same are played as one by symmetry, unless `jitter` or `slow_ranks` break it; then every rank of every role
    plays by itself.

    Parameters
    ----------
    trace : `Trace`
    cluster : with GPUs for its world
    framework : or its name, whose constants count; the trace's own unless given
    jitter : standard deviation of the logarithm of what each stretch of work takes on each rank, whose mean stays
    seed : of the jitter
    slow_ranks : ranks by number that take so many times as long to compute
    estimate : of this trace there, if it was made

    Returns
    -------
    TracePlayback

    Raises
    ------
    InvalidValue
        where an argument is not what it should be, roles stand for unlike numbers of ranks that are to be played one by one, or
        some wait for ever

    Assumptions
    -----------
    Groups of ranks that another rank of the same role has lie as its own do, shifted. A transaction that the step before started
    is there when this one begins. The host is as far ahead as it was.
    """
    spread = real("jitter", jitter, 0.0, 10.0)
    whole("seed", seed, 2**63 - 1)
    made = estimate or price_trace(trace, cluster, framework)
    slow = dict(slow_ranks or {})
    for rank, times in slow.items():
        whole("a rank of slow_ranks", rank, trace.world_size - 1)
        real(f"slow_ranks[{rank}]", times, 1.0, 1e6)
    alike = not spread and not slow
    ranks = tuple((role.rank,) if alike else tuple(sorted(role.stands_for)) for role in trace.roles)
    replicas = len(ranks[0])
    if any(len(one) != replicas for one in ranks):
        raise InvalidValue("slow_ranks", slow, "roles that stand for as many ranks each, or none slow and no jitter")
    entries = tuple(tuple(_entries(made, place)) for place in range(len(trace.roles)))
    if replicas * sum(map(len, entries)) > MOST_EVENTS:
        events = f"0, without slow_ranks: {replicas} ranks of a role have more than {MOST_EVENTS:,} events"
        raise InvalidValue("jitter", jitter, events)
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in entries])]).astype(np.int64)
    numbers = _Numbers(made, entries)
    durations = _durations(entries, ranks, spread, seed, slow)
    programs = kernel.KernelPrograms(
        offsets, np.array([entry.work for each in entries for entry in each], dtype=np.int64),
        np.array([numbers.of(place, entry.transfer) for place, each in enumerate(entries) for entry in each], dtype=np.int64),
        durations, np.array([[0.0, 0.0, 0.0, 0.0, 1.0]]),
    )  # fmt: skip
    transfers, instances = _transfers(made, numbers, entries, ranks)
    played = kernel.played(programs, transfers, replicas, kept=False)
    if played is None:
        wanted = "transactions that all of their ranks launch; `faults_of` names those that don't"
        raise InvalidValue("trace", "its ranks", wanted)
    when = played.times[instances[:, 2]]
    moved = np.column_stack([instances[:, :2], when[:, kernel.BEGUN], when[:, kernel.DONE]])
    return TracePlayback(
        estimate=made, entries=entries, ranks=ranks, start=played.start, end=played.end, offsets=offsets, moved=moved
    )


def _entries(made: TraceEstimate, place: int) -> list[RoleEntry]:
    """What a role does in its last step, in the order in which it was launched."""
    role, kernels = made.trace.roles[place], made.kernels[place]
    timeline, texts = role.timeline, role.texts
    exchanging = set(role.transactions.stream.tolist())
    last_on: dict[int, int] = {}  # the newest transaction on each stream
    behind: dict[int, int] = {}  # and before each event
    begun: set[int] = set()
    found: list[RoleEntry] = []
    work = 0.0

    def flush() -> None:
        nonlocal work
        if work > 0.0:
            found.append(RoleEntry(0, NOWHERE, work))
            work = 0.0

    def wait(transfer: int) -> None:
        received = texts[role.transactions.op[transfer]] == RECEIVE
        if transfer in begun or received:
            flush()
            found.append(RoleEntry(kernel.WAIT, transfer, 0.0))
            begun.discard(transfer)

    for row in role.step():
        action, item, stream = int(timeline.action[row]), int(timeline.item[row]), int(timeline.stream[row])
        if action == KERNEL:
            if stream in exchanging and stream != 0:
                continue  # copies that a library's own stream makes beside its transfers
            work += float(kernels[item])
        elif action == TRANSACTION:
            last_on[stream] = item
            if texts[role.transactions.op[item]] != RECEIVE:
                flush()
                found.append(RoleEntry(kernel.START, item, 0.0))
                begun.add(item)
        elif action == EVENT_RECORD and stream in last_on:
            behind[item] = last_on[stream]
        elif (action == STREAM_WAIT and item in behind and stream not in exchanging) or (action == HOST_WAIT and item in behind):
            wait(behind[item])
        elif action == HOST_WAIT and item == NOWHERE:
            for transfer in sorted(begun) if stream == NOWHERE else [last_on[stream]] if stream in last_on else []:
                wait(transfer)
    flush()
    return found


class _Numbers:
    """Numbers of transfers: partners of several roles share one."""

    def __init__(self, made: TraceEstimate, entries: Sequence[Sequence[RoleEntry]]):
        partners = Partners(made.trace)
        self.keys = [partners.keys(place) for place in range(len(made.trace.roles))]
        self.known: dict[Key, int] = {}
        self.starters: list[list[tuple[int, int]]] = []  # of each transfer, roles that start it and their rows
        self.receiver: dict[int, int] = {}  # of a message, the role that waits for it
        self.skipped = [
            Counter(
                key[:-1]
                for key in (self.keys[place][row] for row in role.rows(TRANSACTION, range(role.step().start)).tolist())
                if key is not None
            )
            for place, role in enumerate(made.trace.roles)
        ]  # by steps before
        for place, each in enumerate(entries):
            for entry in each:
                if entry.transfer != NOWHERE:
                    number = self.of(place, entry.transfer)
                    if entry.work == kernel.START:
                        self.starters[number].append((place, entry.transfer))
                    elif (role := made.trace.roles[place]).texts[role.transactions.op[entry.transfer]] == RECEIVE:
                        self.receiver[number] = place

    def of(self, place: int, transfer: int) -> int:
        """The number of a role's transaction; -1 of none."""
        if transfer == NOWHERE:
            return NOWHERE
        key = self.keys[place][transfer]
        if key is None:
            key = ("own", (place,), transfer)
        else:  # counted from the step's start
            *kind, count = key
            key = (*kind, int(str(count)) - self.skipped[place].get(tuple(kind), 0))
        if key not in self.known:
            self.known[key] = len(self.known)
            self.starters.append([])
        return self.known[key]


def _durations(
    entries: Sequence[Sequence[RoleEntry]], ranks: Sequence[Sequence[int]], jitter: float, seed: int, slow: Mapping[int, float]
) -> Floats:
    """Time of each replica's work by itself, replicas x entries [s]."""
    replicas = len(ranks[0])
    alone = np.array([entry.duration for each in entries for entry in each])
    factor = np.concatenate([
        np.repeat(np.array([[slow.get(rank, 1.0)] for rank in each]), len(some), axis=1)
        for each, some in zip(ranks, entries, strict=True)
    ], axis=1)  # fmt: skip
    made = factor * alone
    if jitter:
        drawn = np.random.default_rng(seed).standard_normal((replicas, len(alone)))
        made = made * np.exp(jitter * drawn - 0.5 * jitter**2)
    return made


def _transfers(
    made: TraceEstimate, numbers: _Numbers, entries: Sequence[Sequence[RoleEntry]], ranks: Sequence[Sequence[int]]
) -> tuple[kernel.KernelTransfers, Integers]:
    """The transfers as the simulator takes them; role, row and instance of each for its table."""
    trace, cluster = made.trace, made.cluster
    quality = made.framework.numbers().network.quality
    bandwidth = np.array([float(quality * level.bandwidth) for level in cluster.numbers()])
    slowdown = 1.0 + made.framework.numbers().compute.contention
    count, replicas, roles = len(numbers.starters), len(ranks[0]), len(trace.roles)
    prices, stream = np.zeros((count, 3 + kernel.LEVELS)), np.zeros(count, dtype=np.int64)
    instance = np.zeros((count, replicas), dtype=np.int64)
    members: list[int] = []
    places, of, receivers, shown = [0], list[int](), list[int](), list[tuple[int, int, int]]()
    for number, starters in enumerate(numbers.starters):
        if not starters:  # a message that is awaited and never sent
            raise InvalidValue("trace", "its ranks", "a sender of every message; `faults_of` names those that have none")
        place, row = starters[0]
        role, priced = trace.roles[place], made.transactions[place]
        prices[number, kernel.TIME] = max(float(priced.time[row]), LEAST)
        prices[number, kernel.LOAD : kernel.LOAD + kernel.LEVELS] = priced.load[row] / bandwidth
        prices[number, kernel.BESIDE], prices[number, kernel.SLOWDOWN] = 1.0, slowdown
        stream[number] = _lane(role, int(role.transactions.stream[row]))
        labels = _labels(role, row, ranks[place])
        base = len(of)
        instance[number] = base + labels
        receiver = numbers.receiver.get(number)
        for label in range(int(labels.max()) + 1):
            inside = np.flatnonzero(labels == label)
            of.append(number)
            members += [starter * replicas + int(one) for starter, _ in starters for one in inside]
            places.append(len(members))
            receivers.append(NOWHERE if receiver is None else receiver * replicas + int(inside[0]))
        shown += [(starter, its, base + label) for starter, its in starters for label in range(int(labels.max()) + 1)]
    queues: list[int] = [0]
    order: list[int] = []
    for place in range(roles):
        started = [numbers.of(place, entry.transfer) for entry in entries[place] if entry.work == kernel.START]
        for lane in range(kernel.STREAMS):
            order += [number for number in started if stream[number] == lane]
            queues.append(len(order))
    whole_numbers = (np.array(one, dtype=np.int64) for one in (of, members, places, receivers, order, queues))
    of_, members_, places_, receivers_, order_, queues_ = whole_numbers
    transfers = kernel.KernelTransfers(
        np.arange(count), prices, stream, instance, of_, members_, places_, receivers_, order_, queues_
    )
    return transfers, np.array(shown, dtype=np.int64).reshape(-1, 3)


def _lane(role: Role, stream: int) -> int:
    """One of the simulator's streams; those beyond its number share the last."""
    used = sorted(set(role.transactions.stream.tolist()))
    return min(used.index(stream), kernel.STREAMS - 1)


def _labels(role: Role, row: int, ranks: Sequence[int]) -> Integers:
    """Which of the played ranks of a role take part in a transaction together: the same number for those that do."""
    number = int(role.transactions.group[row])
    if len(ranks) == 1 or role.texts[role.transactions.op[row]] in (SEND, RECEIVE) or number == NOWHERE:
        return np.arange(len(ranks))
    group = sorted(role.groups[number])
    gaps = np.diff(group)
    stride = int(gaps.min()) if len(gaps) else 1
    block = stride * len(group)
    begin = (min(group) - min(group) % stride) % block
    shifted = np.array(ranks) - begin
    labels = (shifted // block) * stride + shifted % stride
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


def _highest(start: Floats, end: Floats, value: Floats) -> float:
    when, change = np.concatenate([end, start]), np.concatenate([-value, value])
    return float(np.cumsum(change[np.lexsort((change, when))]).max(initial=0.0))

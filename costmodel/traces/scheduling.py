"""When the host, the streams and the links of each role do what its record says: list scheduling in the order of the program."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.traces.places import group_of
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

Floats = NDArray[np.float64]
Key = tuple[object, ...]


class Durations(NamedTuple):
    """What a role's rows take by themselves [s]."""

    kernels: Floats
    transactions: Floats
    host: Floats  # of each row of the timeline
    settles: NDArray[np.bool_] | None = None  # rows before which the host waits until the device has done all; None of none


class PlayedRole(NamedTuple):
    """A role's timeline played out, row by row [s]."""

    host: Floats  # when the host has done it
    start: Floats  # start, end: when its stream begins and ends it; of rows that no stream runs, when the host has
    end: Floats
    alone: tuple[int, ...]  # rows of transactions whose partners never came


class Partners:
    """Which transactions of the roles are one and the same.

    The ranks of a group play one role or several. Where several, the transactions that each launches on groups of the same roles
    and shape meet in their order, those of a rank that stands for one of them among them; messages meet by sender, receiver and
    tag.

    Parameters
    ----------
    trace : `Trace`
    """

    def __init__(self, trace: Trace):
        self.roles = trace.roles
        self._place = {rank: place for place, role in enumerate(trace.roles) for rank in role.stands_for}
        self._meeting: dict[tuple[int, int], list[set[int]]] = {}  # roles that meet in groups of a shape, each in one set of them
        for ranks in {ranks for role in trace.roles for ranks in map(tuple, role.groups)}:
            shape, places = group_of(ranks), self._places(ranks)
            if len(places) > 1:
                known = self._meeting.setdefault((shape.ranks, shape.stride), [])
                apart = [one for one in known if not one & places]
                known[:] = [*apart, places.union(*(one for one in known if one & places))]

    def keys(self, place: int) -> list[Key | None]:
        """What each transaction of a role has in common with its partners' of other roles; None where it has none there.

        Parameters
        ----------
        place : of the role in the trace
        """
        role, met = self.roles[place], dict[Key, int]()
        groups = [self._of_group(ranks) for ranks in role.groups]
        found: list[Key | None] = []
        moves, texts = role.transactions, role.texts
        columns = (moves.op, moves.group, moves.peer, moves.tag)
        for op, group, peer, tag in zip(*(column.tolist() for column in columns), strict=True):
            kind: Key | None
            if texts[op] in (SEND, RECEIVE):
                kind = self._of_message(place, texts[op] == SEND, peer, tag)
            else:
                kind = groups[group] if group != NOWHERE else None
            if kind is not None:
                met[kind] = met.get(kind, 0) + 1
                kind = (*kind, met[kind])
            found.append(kind)
        return found

    def members(self, key: Key) -> tuple[int, ...]:
        """Roles that take part in a transaction."""
        found = key[1]
        assert isinstance(found, tuple)
        return found

    def _of_group(self, ranks: Sequence[int]) -> Key | None:
        shape, places = group_of(ranks), self._places(ranks)
        for met in self._meeting.get((shape.ranks, shape.stride), ()):
            if met & places:
                return ("group", tuple(sorted(met)), shape.ranks, shape.stride)
        return None

    def _places(self, ranks: Sequence[int]) -> set[int]:
        return {self._place[rank] for rank in ranks if rank in self._place}

    def _of_message(self, place: int, sends: bool, peer: int, tag: int) -> Key | None:
        other = self._place.get(peer)
        if other is None or other == place:
            return None
        return ("message", (place, other) if sends else (other, place), tag)


class _Stall(Exception):
    """The host waits for what can't be known yet."""


class _Rank:
    """One role as its host and its streams go on."""

    def __init__(self, role: Role, durations: Durations, keys: list[Key | None], meeting: _Meeting, place: int):
        timeline = role.timeline
        self.action, self.item = timeline.action.tolist(), timeline.item.tolist()
        self.stream = timeline.stream.tolist()
        self.keys, self.meeting, self.place = keys, meeting, place
        self.kernels, self.transactions = durations.kernels.tolist(), durations.transactions.tolist()
        self.costs = durations.host.tolist()
        self.settles = frozenset(() if durations.settles is None else np.flatnonzero(durations.settles).tolist())
        rows = len(self.action)
        self.host, self.start, self.end = [math.nan] * rows, [math.nan] * rows, [math.nan] * rows
        self.queues: list[deque[int]] = [deque() for _ in role.streams]
        self.free = [0.0] * len(role.streams)
        self.events: dict[int, float] = {}
        self.row, self.now = 0, 0.0
        self.alone: list[int] = []

    def go_on(self) -> bool:
        """As far as the host and the streams come; whether they did anything."""
        before = self.row, sum(map(len, self.queues))
        while self.row < len(self.action):
            try:
                self._host(self.row)
            except _Stall:
                break
            self.row += 1
        self.drain(range(len(self.queues)))
        return before != (self.row, sum(map(len, self.queues)))

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return self.row == len(self.action) and not any(self.queues)

    def _host(self, row: int) -> None:
        action = self.action[row]
        if action == HOST_WAIT:
            self.now = max(self.now, self._awaited(row))
        elif row in self.settles:
            self.drain(range(len(self.queues)))
            self.now = max(self.now, self._idle(range(len(self.queues))))
        self.now += self.costs[row]
        self.host[row] = self.start[row] = self.end[row] = self.now
        if action in (KERNEL, TRANSACTION, EVENT_RECORD, STREAM_WAIT):
            queue = self.queues[self.stream[row]]
            queue.append(row)
            if len(queue) == 1:
                self.drain((self.stream[row],))

    def _awaited(self, row: int) -> float:
        """When what the host waits for is done."""
        item, stream = self.item[row], self.stream[row]
        streams = range(len(self.queues)) if stream == NOWHERE or item != NOWHERE else (stream,)
        self.drain(range(len(self.queues)))
        if item != NOWHERE:
            if item not in self.events:
                raise _Stall
            return self.events[item]
        return self._idle(streams)

    def _idle(self, streams: Sequence[int]) -> float:
        """When streams have done all that was launched."""
        if any(self.queues[one] for one in streams):
            raise _Stall
        return max((self.free[one] for one in streams), default=0.0)

    def drain(self, streams: Iterable[int]) -> None:
        """Do what streams have to do, until each waits for what isn't known."""
        again = True
        while again:
            again = False
            for stream in streams:
                queue = self.queues[stream]
                while queue and self._do(queue[0], stream):
                    queue.popleft()
                    again = True
            streams = range(len(self.queues))

    def _do(self, row: int, stream: int) -> bool:
        """One row on its stream, if it can begin."""
        action, item, free = self.action[row], self.item[row], self.free[stream]
        if action == STREAM_WAIT:
            if item not in self.events:
                return False
            start = end = max(free, self.events[item])
        elif action == EVENT_RECORD:
            start = end = max(free, self.host[row])
            self.events[item] = end
        elif action == KERNEL:
            start = max(free, self.host[row])
            end = start + self.kernels[item]
        else:
            ready, key = max(free, self.host[row]), self.keys[item]
            found = ready if key is None else self.meeting.start(key, self.place, ready)
            if found is None:
                return False
            start, end = found, found + self.transactions[item]
        self.start[row], self.end[row], self.free[stream] = start, end, end
        return True

    def waiting(self) -> list[tuple[float, Key, int]]:
        """Transactions at the heads of the streams that wait for partners: since when, which, and their row."""
        found = []
        for stream, queue in enumerate(self.queues):
            if queue and self.action[queue[0]] == TRANSACTION:
                key = self.keys[self.item[queue[0]]]
                assert key is not None
                found.append((max(self.free[stream], self.host[queue[0]]), key, queue[0]))
        return found

    def played(self) -> PlayedRole:
        """What came out."""
        return PlayedRole(np.array(self.host), np.array(self.start), np.array(self.end), tuple(self.alone))


class _Meeting:
    """Transactions that roles share, until all that take part are there."""

    def __init__(self, partners: Partners):
        self.partners = partners
        self.ready: dict[Key, dict[int, float]] = {}
        self.forced: set[Key] = set()

    def start(self, key: Key, place: int, ready: float) -> float | None:
        """When a transaction starts, once all of its roles are ready; None until then."""
        there = self.ready.setdefault(key, {})
        there[place] = ready
        if key in self.forced or len(there) == len(self.partners.members(key)):
            return max(there.values())
        return None


def play(trace: Trace, durations: Sequence[Durations]) -> tuple[PlayedRole, ...]:
    """Play all roles of a trace together.

    The host launches one row after another; a kernel begins when it is launched and its stream is free, a transaction when all
    of its ranks are there. Where partners never come, the first transaction that waits goes on alone, and is noted.

    Parameters
    ----------
    durations : of each of its roles

    Assumptions
    -----------
    Kernels of several streams don't slow each other down.
    """
    partners = Partners(trace)
    meeting = _Meeting(partners)
    ranks = [
        _Rank(role, each, partners.keys(place), meeting, place)
        for place, (role, each) in enumerate(zip(trace.roles, durations, strict=True))
    ]
    while True:
        while any([rank.go_on() for rank in ranks]):
            pass
        if all(rank.done for rank in ranks):
            return tuple(rank.played() for rank in ranks)
        stuck = [(*one, rank) for rank in ranks for one in rank.waiting()]
        if not stuck:  # an event that is never recorded
            for rank in ranks:
                rank.events.update({item: rank.now for item in _never(rank)})
            continue
        _, key, row, rank = min(stuck, key=lambda one: one[0])
        meeting.forced.add(key)
        rank.alone.append(row)


def _never(rank: _Rank) -> set[int]:
    """Events that somebody waits for and nobody will record."""
    heads = {queue[0] for queue in rank.queues if queue} | ({rank.row} if rank.row < len(rank.action) else set())
    return {rank.item[row] for row in heads if rank.action[row] in (STREAM_WAIT, HOST_WAIT)} - set(rank.events)

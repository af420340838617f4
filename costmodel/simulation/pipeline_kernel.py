"""The event simulator: plays a schedule out, every event with its start and end.

Ranks run ahead, each by itself, until they wait; then the transfer that was asked for first moves on its link. As no
rank can ask for an earlier one, links serve in the order of asking, however many ranks share them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.compilation.standalone import standalone

SEND_FORWARD, RECEIVE_FORWARD, SEND_BACKWARD, RECEIVE_BACKWARD, SYNC = 4, 5, 6, 7, 8
"""Codes of `costmodel.description.schedule`, which are constants of the kernel."""
NON_BLOCKING, BLOCKING, RENDEZVOUS = 0, 1, 2
"""Codes of what a rank waits for when it sends."""

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def sift_up(times, events, count):
    """Move the last of `count` entries of a heap to its place."""
    child = count - 1
    while child > 0:
        parent = (child - 1) >> 1
        if times[parent] < times[child] or (times[parent] == times[child] and events[parent] < events[child]):
            break
        times[parent], times[child] = times[child], times[parent]
        events[parent], events[child] = events[child], events[parent]
        child = parent


def sift_down(times, events, count):
    """Move the first of `count` entries of a heap to its place."""
    parent = 0
    while True:
        child = 2 * parent + 1
        if child >= count:
            break
        other = child + 1
        if other < count and (times[other] < times[child] or (times[other] == times[child] and events[other] < events[child])):
            child = other
        if times[parent] < times[child] or (times[parent] == times[child] and events[parent] < events[child]):
            break
        times[parent], times[child] = times[child], times[parent]
        events[parent], events[child] = events[child], events[parent]
        parent = child


class PipelineProgram(NamedTuple):
    """What is played: events by rank, and what each takes."""

    offsets: Integers
    kind: Integers
    match: Integers
    rank: Integers
    link: Integers
    duration: Floats
    occupancy: Floats
    latency: Floats
    kept: Floats
    groups: Integers


class PipelineState(NamedTuple):
    """Where every rank and transfer is."""

    start: Floats
    end: Floats
    cursor: Integers
    clock: Floats
    arrival: Floats  # of what a receive waits for; negative until it is there
    posted: Floats  # when an end of a transfer was reached, where both ends meet; negative before
    waiting: Flags
    pending: Integers  # transfers that a rank waits for, where both ends meet
    joined: Integers  # ranks that reached a group of syncs
    latest: Floats  # when the last of them did
    ready: Integers  # stack of ranks that can run on
    heap_times: Floats  # transfers asked for, the first on top
    heap_events: Integers
    counts: Integers  # entries of the stack, and of the heap


READY, ASKED = 0, 1
"""Places in `PipelineState.counts`."""


def wake(state, rank):
    """Let a rank run on."""
    state.waiting[rank] = False
    state.ready[state.counts[READY]] = rank
    state.counts[READY] += 1


def ask(state, time, event):
    """Ask for a transfer."""
    count = state.counts[ASKED]
    state.heap_times[count] = time
    state.heap_events[count] = event
    state.counts[ASKED] = count + 1
    sift_up(state.heap_times, state.heap_events, count + 1)


def first_asked(state):
    """The transfer that was asked for first, taken off the heap, and when."""
    times, events = state.heap_times, state.heap_events
    time, event = times[0], events[0]
    count = state.counts[ASKED] - 1
    times[0] = times[count]
    events[0] = events[count]
    state.counts[ASKED] = count
    sift_down(times, events, count)
    return time, event


def join(program, state, r, e, now):
    """Reach a sync; when it is over, or -1 while others of its group are missing."""
    group = program.match[e]
    state.joined[group] += 1
    state.start[e] = now
    if now > state.latest[group]:
        state.latest[group] = now
    if state.joined[group] < program.groups[group]:
        return -1.0
    over = state.latest[group]
    state.end[e] = over + program.duration[e]
    if program.groups[group] > 1:
        for other in range(len(state.clock)):
            o = state.cursor[other]
            if other != r and state.waiting[other] and program.kind[o] == SYNC and program.match[o] == group:
                state.clock[other] = over + program.duration[o]
                state.end[o] = state.clock[other]
                state.cursor[other] = o + 1
                wake(state, other)
    return state.end[e]


def after_transfers(program, r, e):
    """The first event of a rank from `e` on that is no transfer."""
    last = program.offsets[r + 1]
    while e < last and program.kind[e] >= SEND_FORWARD and program.kind[e] != SYNC:
        e += 1
    return e


def meet(program, state, r, e, now):
    """Post all transfers between two passes; those whose other end is there are asked for."""
    stop = after_transfers(program, r, e)
    for one in range(e, stop):
        state.posted[one] = now
        state.start[one] = now
        other = program.match[one]
        if state.posted[other] >= 0.0:
            is_send = program.kind[one] in (SEND_FORWARD, SEND_BACKWARD)
            ask(state, max(now, state.posted[other]), one if is_send else other)
    state.pending[r] = stop - e


def run_ahead(program, state, r, sending):
    """Run a rank until it waits, or to its end."""
    now, e, last = state.clock[r], state.cursor[r], program.offsets[r + 1]
    while e < last:
        kind = program.kind[e]
        if kind < SEND_FORWARD:
            state.start[e] = now
            now += program.duration[e]
            state.end[e] = now
        elif kind == SYNC:
            over = join(program, state, r, e, now)
            if over < 0.0:
                state.waiting[r] = True
                break
            now = over
        elif sending == RENDEZVOUS:
            meet(program, state, r, e, now)
            state.waiting[r] = True
            break
        elif kind in (SEND_FORWARD, SEND_BACKWARD):
            ask(state, now, e)
            if sending == BLOCKING:
                state.waiting[r] = True
                break
            now += program.kept[e]
        else:
            if state.arrival[e] < 0.0:
                state.waiting[r] = True
                break
            state.start[e] = now
            if state.arrival[e] > now:
                now = state.arrival[e]
            state.end[e] = now
        e += 1
    state.clock[r] = now
    state.cursor[r] = e


def deliver(program, state, e, sending):
    """A send has moved: whoever waited for it runs on."""
    other = program.match[e]
    over = state.end[e]
    state.arrival[other] = over
    if sending == RENDEZVOUS:
        state.end[other] = over
        for side in (e, other):
            r = program.rank[side]
            state.pending[r] -= 1
            if over > state.clock[r]:
                state.clock[r] = over
            if state.pending[r] == 0:
                state.cursor[r] = after_transfers(program, r, state.cursor[r])
                wake(state, r)
        return
    if sending == BLOCKING:
        r = program.rank[e]
        state.clock[r] = over
        state.cursor[r] = e + 1
        wake(state, r)
    r = program.rank[other]
    if state.waiting[r] and state.cursor[r] == other:
        wake(state, r)


def play(program, state, free, sending):
    """Fill times of `state`, and its `cursor` with how far each rank came: short of its end where it waits for ever.

    Parameters
    ----------
    program : `offsets`, `kind`, `match`, `rank` of the `Schedule`; the `link` that each send takes; the `duration` of
        each pass and sync, how long a send takes its link (`occupancy`), its `latency` after it, and how long it keeps a
        sender that doesn't wait for its arrival (`kept`) [s]; how many ranks each group of syncs waits for (`groups`)
    state : nothing has happened yet
    free : when each link is free [s]
    sending : what a rank waits for when it sends: nothing; the arrival; or, for all transfers between two passes, that
        they have met their other end and are done
    """
    ranks = len(program.offsets) - 1
    for r in range(ranks - 1, -1, -1):
        state.cursor[r] = program.offsets[r]
        wake(state, r)
    while True:
        while state.counts[READY] > 0:
            state.counts[READY] -= 1
            run_ahead(program, state, state.ready[state.counts[READY]], sending)
        if state.counts[ASKED] == 0:
            break
        asked, e = first_asked(state)
        link = program.link[e]
        begun = max(asked, free[link])
        free[link] = begun + program.occupancy[e]
        state.start[e] = begun
        state.end[e] = free[link] + program.latency[e]
        deliver(program, state, e, sending)
    return 0


PLAINLY = 100_000
"""Events that plain Python plays in about the time that it takes to compile the loop."""


_run = standalone(play, lambda program, *_: len(program.kind), PLAINLY)


def played(program: PipelineProgram, links: int, sending: int, run: Callable[..., int] = _run) -> tuple[Floats, Floats, Integers]:
    """Start and end of each event [s], by machine code, or plainly where little is played; of a send, of its time on the link
    and of its arrival.

    Parameters
    ----------
    program, sending : as `play` takes them
    links : how many
    run : `play`

    Returns
    -------
    tuple
        start, end, and how far each rank came: short of its end where it waits for ever
    """
    ranks, events = len(program.offsets) - 1, len(program.kind)
    sends = int(np.count_nonzero((program.kind == SEND_FORWARD) | (program.kind == SEND_BACKWARD)))
    state = PipelineState(
        np.zeros(events), np.zeros(events), np.zeros(ranks, dtype=np.int64), np.zeros(ranks), np.full(events, -1.0),
        np.full(events if sending == RENDEZVOUS else 0, -1.0), np.zeros(ranks, dtype=np.bool_), np.zeros(ranks, dtype=np.int64),
        np.zeros(len(program.groups), dtype=np.int64), np.zeros(len(program.groups)), np.empty(ranks, dtype=np.int64),
        np.empty(sends + 1), np.empty(sends + 1, dtype=np.int64), np.zeros(2, dtype=np.int64),
    )  # fmt: skip
    run(PipelineProgram._make(np.require(column, requirements=["C", "W"]) for column in program), state, np.zeros(links), sending)
    return state.start, state.end, state.cursor


def compile_ahead() -> None:
    """Compile the loop, or load it: a pass of one second is played."""
    one, none = np.zeros(1, dtype=np.int64), np.zeros(1)
    program = PipelineProgram(np.array([0, 1]), one, one - 1, one, one, none + 1.0, none, none, none, one)
    played(program, 1, NON_BLOCKING, standalone(play))

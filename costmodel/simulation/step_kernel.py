"""The event simulator of a whole step: ranks that work and wait, transfers that share links, all at rates that change.

Whatever is under way, a rank's work or a transfer, has a rate: its progress in a second over that in a second alone.
Rates change only where something begins or ends, so between such moments all is a straight line.

A rank's work spends a part of its time in exchange of its own, finely interleaved with the rest. On a link, the
demands of that exchange and of the rank's transfers share the bandwidth in proportion wherever they exceed it; what the
work exchanges hidden beside its own compute goes first. A transfer that goes on beside work has at most the rate of its
price's `BESIDE`, and slows the work by its `SLOWDOWN`. A transfer of several ranks starts when all have come to it, each in
the order in which it started them on its stream, and goes at the rate of the slowest.

What is known of one thing lies side by side in a line of a table, so that the kernel takes few arrays and finds what it
needs in one place of memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.compilation.standalone import standalone

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

START, WAIT = -1, -2
"""What a rank does besides work, which is a line of `Programs.works`: starts a transfer, waits for the end of one."""
LEVELS, STREAMS = 3, 5
EXCHANGE, WORK_LOAD, PACED = 0, 1, 1 + LEVELS
"""Columns of works: part of it in exchange of its own [s], load on the links of each level at their full rate [s], whether
transfers beside it are held to `BESIDE`, and slow it."""
TIME, LOAD, BESIDE, SLOWDOWN = 0, 1, 1 + LEVELS, 2 + LEVELS
"""Columns of prices: alone [s], load on the links of each level at their full rate [s], rate beside work and what it is
slowed by."""
ASKED, BEGUN, DONE = 0, 1, 2
"""Columns of instances: when the last rank started it, when it began, when it ended (negative while it has not) [s]."""
INFINITE = np.inf


class KernelPrograms(NamedTuple):
    """What the ranks do; rank ``stage * replicas + replica`` follows the program of its stage."""

    offsets: Integers  # first entry of each stage, and the number of entries
    work: Integers  # line of `works` of each entry, or `START` or `WAIT`
    transfer: Integers  # that an entry starts or waits for
    duration: Floats  # of each replica's work, alone, replicas x entries [s]
    works: Floats  # the kinds of work, a line each


class KernelTransfers(NamedTuple):
    """Transfers by number, and the instances that groups of replicas have of them."""

    price: Integers  # line of `prices` of each
    prices: Floats  # the kinds of transfers, a line each
    stream: Integers  # on which each goes
    instance: Integers  # transfers x replicas
    of: Integers  # transfer of each instance
    members: Integers  # ranks that start an instance, one instance after the other
    places: Integers  # first member of each instance
    receiver: Integers  # rank that waits for an instance it doesn't start, or -1
    order: Integers  # transfers that a stage starts on a stream, one stream after the other
    queues: Integers  # first of each stage's stream in `order`


class Played(NamedTuple):
    """What happened when, to be filled."""

    start: Floats  # start, end: of each replica's entries [s]
    end: Floats
    times: Floats  # of each instance
    owner: Integers  # rank and entry of each piece of constant rate, or -1 less the instance and -1
    piece: Floats  # its start and end [s], and its rate


class StepState(NamedTuple):
    """What is under way."""

    rank: Integers  # a line for each: what it does and what its streams carry
    pace: Floats  # of each rank: limits of its streams, and what its work demands
    progress: Floats  # of each rank's work, then of each instance
    place: Integers  # of the same in the heap, or -1
    heap: Integers  # ranks at work and instances under way, by the time of their end
    joined: Integers  # of each instance, ranks that have come to it and members that have the lowest limit
    lowest: Floats  # limit of its members
    ready: Integers  # ranks that go on; then ranks whose rates must be found anew, and whether they are among these
    stale: Integers  # instances whose rates must be found anew; then whether they are among these
    counts: Integers  # in the heap, ready, ranks, instances, pieces


CURSOR, WORKING, WAITING, CARRYING, ACTIVE, ISSUED, HEAD = 0, 1, 2, 3, 4, 4 + STREAMS, 4 + 2 * STREAMS
"""Columns of `StepState.rank`: entry, entry at work or -1, instance waited for or -1, streams that carry something, and of each
stream what it carries or -1, how many were started, how many have ended."""
RANK_COLUMNS = 4 + 3 * STREAMS
LIMIT, SHARE, OWN, HIDDEN, LASTS = 0, STREAMS, STREAMS + 1, STREAMS + 1 + LEVELS, STREAMS + 1 + 2 * LEVELS
"""Columns of `StepState.pace`: rate that the rank allows each stream; share of its work in exchange, what that demands of links,
what is hidden beside compute, and how the work is paced."""
PACE_COLUMNS = LASTS + 1
LEFT, RATE, SINCE, DUE = 0, 1, 2, 3
IN_HEAP, READY, RANKS, INSTANCES, PIECES = 0, 1, 2, 3, 4


def sift_up(s, child):
    """Move an entry of the heap up to its place."""
    heap, progress, place = s.heap, s.progress, s.place
    item = heap[child]
    at = progress[item, DUE]
    while child > 0:
        parent = (child - 1) >> 1
        other = heap[parent]
        due = progress[other, DUE]
        if due < at or (due == at and other < item):
            break
        heap[child] = other
        place[other] = child
        child = parent
    heap[child] = item
    place[item] = child


def sift_down(s, parent):
    """Move an entry of the heap down to its place."""
    heap, progress, place = s.heap, s.progress, s.place
    item = heap[parent]
    at = progress[item, DUE]
    count = s.counts[IN_HEAP]
    while True:
        child = 2 * parent + 1
        if child >= count:
            break
        other = heap[child]
        due = progress[other, DUE]
        if child + 1 < count:
            right = heap[child + 1]
            later = progress[right, DUE]
            if later < due or (later == due and right < other):
                child += 1
                other = right
                due = later
        if at < due or (at == due and item < other):
            break
        heap[parent] = other
        place[other] = parent
        parent = child
    heap[parent] = item
    place[item] = parent


def schedule(s, item, at):
    """Put the end of a rank's work or of an instance into the heap, or move it there."""
    before = s.progress[item, DUE]
    s.progress[item, DUE] = at
    if s.place[item] < 0:
        s.heap[s.counts[IN_HEAP]] = item
        s.place[item] = s.counts[IN_HEAP]
        s.counts[IN_HEAP] += 1
        sift_up(s, s.place[item])
    elif at < before:
        sift_up(s, s.place[item])
    else:
        sift_down(s, s.place[item])


def pop(s):
    """Take the first out of the heap."""
    item = s.heap[0]
    s.place[item] = -1
    s.counts[IN_HEAP] -= 1
    last = s.heap[s.counts[IN_HEAP]]
    if last != item:
        s.heap[0] = last
        s.place[last] = 0
        sift_down(s, 0)
    return item


def write(s, out, item, ranks, now):
    """Close the piece of constant rate that ends now; beyond the room there is, pieces are only counted."""
    since, rate = s.progress[item, SINCE], s.progress[item, RATE]
    if now > since and rate > 0.0:
        n = s.counts[PIECES]
        if n < len(out.owner):
            out.owner[n, 0] = item if item < ranks else ranks - 1 - item
            out.owner[n, 1] = s.rank[item, WORKING] if item < ranks else -1
            out.piece[n, 0] = since
            out.piece[n, 1] = now
            out.piece[n, 2] = rate
        s.counts[PIECES] = n + 1
    s.progress[item, LEFT] -= (now - since) * rate
    s.progress[item, SINCE] = now


def invalidate_rates(s, r):
    """Have the rates of a rank found anew."""
    ranks = len(s.rank)
    if s.ready[2 * ranks + r] == 0:
        s.ready[2 * ranks + r] = 1
        s.ready[ranks + s.counts[RANKS]] = r
        s.counts[RANKS] += 1


def mark_instance(s, i):
    """Have the rate of an instance found anew."""
    if s.stale[len(s.lowest) + i] == 0:
        s.stale[len(s.lowest) + i] = 1
        s.stale[s.counts[INSTANCES]] = i
        s.counts[INSTANCES] += 1


def wake(s, r):
    """Let a rank go on."""
    s.ready[s.counts[READY]] = r
    s.counts[READY] += 1


def arrive(s, t, out, i, ranks, now):
    """One more rank has come to an instance; the last one begins it."""
    s.joined[i, 0] += 1
    first, last = t.places[i], t.places[i + 1]
    if s.joined[i, 0] < last - first:
        return
    k = t.of[i]
    out.times[i, BEGUN] = now
    item = ranks + i
    s.progress[item, LEFT] = t.prices[t.price[k], TIME]
    s.progress[item, RATE] = 0.0
    s.progress[item, SINCE] = now
    s.lowest[i] = INFINITE
    s.joined[i, 1] = last - first
    st = t.stream[k]
    for m in range(first, last):
        r = t.members[m]
        s.rank[r, ACTIVE + st] = i
        s.rank[r, CARRYING] += 1
        s.pace[r, LIMIT + st] = INFINITE
        invalidate_rates(s, r)
    mark_instance(s, i)


def begin_work(s, p, r, e, duration, now):
    """Have a rank work, and note what its work demands of links."""
    s.rank[r, WORKING] = e
    s.progress[r, LEFT] = duration
    s.progress[r, RATE] = 0.0
    s.progress[r, SINCE] = now
    w = p.work[e]
    share = p.works[w, EXCHANGE] / duration
    s.pace[r, SHARE] = share
    for level in range(LEVELS):
        whole = p.works[w, WORK_LOAD + level] / duration
        own = min(1.0, whole / share) if share > 0.0 else 0.0
        s.pace[r, OWN + level] = own
        s.pace[r, HIDDEN + level] = max(0.0, (whole - share * own) / (1.0 - share)) if share < 1.0 else 0.0
    s.pace[r, LASTS] = p.works[w, PACED]


def advance(s, p, t, out, r, replicas, now):
    """Follow a rank's program until it works, waits or ends."""
    stage, u = r // replicas, r % replicas
    ranks = len(s.rank)
    last = p.offsets[stage + 1]
    e = s.rank[r, CURSOR]
    while e < last:
        if out.start[u, e] < 0.0:
            out.start[u, e] = now
        if p.work[e] >= 0:
            begin_work(s, p, r, e, p.duration[u, e], now)
            break
        k = p.transfer[e]
        i = t.instance[k, u]
        if p.work[e] == START:
            out.times[i, ASKED] = now
            st = t.stream[k]
            s.rank[r, ISSUED + st] += 1
            if s.rank[r, HEAD + st] == s.rank[r, ISSUED + st] - 1:
                arrive(s, t, out, i, ranks, now)
        elif out.times[i, DONE] < 0.0:
            s.rank[r, WAITING] = i
            break
        out.end[u, e] = now
        e += 1
    s.rank[r, CURSOR] = e
    invalidate_rates(s, r)


def finish(s, t, out, i, replicas, now):
    """End an instance: the next on the streams of its members comes, and who waited for it goes on."""
    ranks = len(s.rank)
    out.times[i, DONE] = now
    st = t.stream[t.of[i]]
    for m in range(t.places[i], t.places[i + 1]):
        r = t.members[m]
        s.rank[r, ACTIVE + st] = -1
        s.rank[r, CARRYING] -= 1
        s.rank[r, HEAD + st] += 1
        invalidate_rates(s, r)
        if s.rank[r, WAITING] == i:
            s.rank[r, WAITING] = -1
            wake(s, r)
        if s.rank[r, HEAD + st] < s.rank[r, ISSUED + st]:
            following = t.order[t.queues[(r // replicas) * STREAMS + st] + s.rank[r, HEAD + st]]
            arrive(s, t, out, t.instance[following, r % replicas], ranks, now)
    r = t.receiver[i]
    if r >= 0 and s.rank[r, WAITING] == i:
        s.rank[r, WAITING] = -1
        wake(s, r)


def set_pace(s, out, r, cycle, slowdown, now):
    """Give a rank's work its rate."""
    rate = 1.0 / (cycle * slowdown) if s.pace[r, LASTS] > 0.0 else 1.0 / cycle
    if rate != s.progress[r, RATE]:
        write(s, out, r, len(s.rank), now)
        s.progress[r, RATE] = rate
        schedule(s, r, now + max(s.progress[r, LEFT], 0.0) / rate)


def set_limit(s, r, st, i, limit):
    """Note the rate that a rank allows an instance."""
    old = s.pace[r, LIMIT + st]
    if limit == old:
        return
    s.pace[r, LIMIT + st] = limit
    if limit < s.lowest[i]:
        s.lowest[i] = limit
        s.joined[i, 1] = 1
        mark_instance(s, i)
        return
    if old == s.lowest[i]:
        s.joined[i, 1] -= 1
        if s.joined[i, 1] == 0:
            mark_instance(s, i)
    if limit == s.lowest[i]:
        s.joined[i, 1] += 1


def rates(s, t, out, r, now):
    """Find anew the rate of a rank's work, and the limits that it sets to its transfers."""
    at_work = s.rank[r, WORKING] >= 0
    share = s.pace[r, SHARE] if at_work else 0.0
    if s.rank[r, CARRYING] == 0:
        if at_work:
            set_pace(s, out, r, 1.0 - share + share, 1.0, now)
        return
    a, b, c = 0.0, 0.0, 0.0
    slowdown = 1.0
    for st in range(STREAMS):
        i = s.rank[r, ACTIVE + st]
        if i >= 0:
            price = t.price[t.of[i]]
            time = t.prices[price, TIME]
            a += t.prices[price, LOAD] / time
            b += t.prices[price, LOAD + 1] / time
            c += t.prices[price, LOAD + 2] / time
            slowdown = max(slowdown, t.prices[price, SLOWDOWN])
    demand = (a, b, c)
    cycle = 1.0
    if at_work:
        if share > 0.0:
            most = 1.0
            for level in range(LEVELS):
                own = s.pace[r, OWN + level]
                if own > 0.0 and demand[level] > 0.0:
                    most = max(most, own + demand[level])
            cycle = 1.0 - share + share * most
        set_pace(s, out, r, cycle, slowdown, now)
    paced = at_work and s.pace[r, LASTS] > 0.0
    exchanging = cycle - (1.0 - share)
    for st in range(STREAMS):
        i = s.rank[r, ACTIVE + st]
        if i < 0:
            continue
        price = t.price[t.of[i]]
        limit = t.prices[price, BESIDE] if paced else 1.0
        for level in range(LEVELS):
            if t.prices[price, LOAD + level] <= 0.0:
                continue
            wanted = demand[level]
            own, hidden = 0.0, 0.0
            if at_work:
                own, hidden = s.pace[r, OWN + level], s.pace[r, HIDDEN + level]
            if own + wanted > 1.0 or hidden + wanted > 1.0:
                free = (1.0 - share) * min(1.0, max(0.0, 1.0 - hidden) / wanted)
                if exchanging > 0.0:
                    free += exchanging * min(1.0, (1.0 - own * share / exchanging) / wanted)
                limit = min(limit, free / cycle)
        set_limit(s, r, st, i, limit)


def rate_of_instance(s, t, out, i, now):
    """Find anew the rate of an instance: that of its slowest member."""
    if out.times[i, DONE] >= 0.0:
        return
    ranks = len(s.rank)
    st = t.stream[t.of[i]]
    if s.joined[i, 1] == 0:
        s.lowest[i] = INFINITE
        for m in range(t.places[i], t.places[i + 1]):
            limit = s.pace[t.members[m], LIMIT + st]
            if limit < s.lowest[i]:
                s.lowest[i] = limit
                s.joined[i, 1] = 1
            elif limit == s.lowest[i]:
                s.joined[i, 1] += 1
    item = ranks + i
    rate = s.lowest[i]
    if rate != s.progress[item, RATE]:
        write(s, out, item, ranks, now)
        s.progress[item, RATE] = rate
        schedule(s, item, now + max(s.progress[item, LEFT], 0.0) / rate if rate > 0.0 else INFINITE)


def play(p, t, out, s, replicas):
    """Fill `out`; returns how many pieces there are, of which those beyond the room are missing, or -1 if ranks wait for ever.

    Parameters
    ----------
    p, t : what is played
    out : its starts, ends and times of instances negative
    s : nothing under way
    replicas : of each stage
    """
    ranks = len(s.rank)
    for r in range(ranks):
        s.rank[r, CURSOR] = p.offsets[r // replicas]
        s.ready[ranks - 1 - r] = r
    s.counts[READY] = ranks
    now = 0.0
    while True:
        while s.counts[READY] > 0:
            s.counts[READY] -= 1
            advance(s, p, t, out, s.ready[s.counts[READY]], replicas, now)
        if s.counts[IN_HEAP] == 0 or s.progress[s.heap[0], DUE] > now:
            while s.counts[RANKS] > 0:
                s.counts[RANKS] -= 1
                r = s.ready[ranks + s.counts[RANKS]]
                s.ready[2 * ranks + r] = 0
                rates(s, t, out, r, now)
            while s.counts[INSTANCES] > 0:
                s.counts[INSTANCES] -= 1
                i = s.stale[s.counts[INSTANCES]]
                s.stale[len(s.lowest) + i] = 0
                rate_of_instance(s, t, out, i, now)
            if s.counts[IN_HEAP] == 0:
                break
            if s.progress[s.heap[0], DUE] > now:
                now = s.progress[s.heap[0], DUE]
                if now == INFINITE:
                    return -1
        item = pop(s)
        write(s, out, item, ranks, now)
        if item < ranks:
            e = s.rank[item, WORKING]
            out.end[item % replicas, e] = now
            s.rank[item, WORKING] = -1
            s.rank[item, CURSOR] = e + 1
            wake(s, item)
        else:
            finish(s, t, out, item - ranks, replicas, now)
    for r in range(ranks):
        if s.rank[r, CURSOR] < p.offsets[r // replicas + 1]:
            return -1
    return s.counts[PIECES]


PLAINLY = 200_000
"""Entries of programs that plain Python plays in 3.4 s; to compile the loop takes 4.8 s (both of an EPYC's time)."""


def _entries(p, t, out, s, replicas):
    """Entries of all programs that are played."""
    return p.duration.size


_run = standalone(play, _entries, PLAINLY)


def played(
    programs: KernelPrograms, transfers: KernelTransfers, replicas: int, kept: bool = True, run: Callable[..., int] = _run
) -> Played | None:
    """What happens when, by machine code, or plainly where little is played; None where ranks wait for ever.

    Parameters
    ----------
    programs, transfers : what is played
    replicas : of each stage
    kept : whether pieces of constant rate are wanted
    run : `play`
    """
    entries, instances, ranks = programs.duration.shape[1], len(transfers.of), (len(programs.offsets) - 1) * replicas
    room = kept * (programs.duration.size + instances + 1000)
    while True:
        out = Played(
            np.full((replicas, entries), -1.0), np.full((replicas, entries), -1.0), np.full((instances, 3), -1.0),
            np.empty((room, 2), dtype=np.int64), np.empty((room, 3)),
        )  # fmt: skip
        many = run(programs, transfers, out, idle(ranks, instances), replicas)
        if many < 0:
            return None
        if many <= room or not kept:
            return out._replace(owner=out.owner[:many], piece=out.piece[:many])
        room = many


def idle(ranks: int, instances: int) -> StepState:
    """Nothing under way."""
    rank = np.zeros((ranks, RANK_COLUMNS), dtype=np.int64)
    rank[:, [WORKING, WAITING, *range(ACTIVE, ISSUED)]] = -1
    both = ranks + instances
    return StepState(
        rank, np.zeros((ranks, PACE_COLUMNS)), np.zeros((both, 4)), np.full(both, -1), np.zeros(both, dtype=np.int64),
        np.zeros((instances, 2), dtype=np.int64), np.zeros(instances), np.zeros(3 * ranks, dtype=np.int64),
        np.zeros(2 * instances, dtype=np.int64), np.zeros(5, dtype=np.int64),
    )  # fmt: skip


def compile_ahead() -> None:
    """Compile the loop, or load it: a step of one second's work is played by machine code."""
    none = np.zeros(0, dtype=np.int64)
    work = KernelPrograms(np.array([0, 1]), np.array([0]), np.array([-1]), np.ones((1, 1)), np.zeros((1, 2 + LEVELS)))
    nothing = KernelTransfers(
        none, np.zeros((0, 3 + LEVELS)), none, none.reshape(0, 1), none, none, np.array([0]), none, none,
        np.zeros(STREAMS + 1, dtype=np.int64),
    )  # fmt: skip
    played(work, nothing, 1, run=standalone(play))

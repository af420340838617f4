"""The event simulator of a whole step: ranks that work and wait, transfers that share links, all at rates that change.

Whatever is under way, a rank's work or a transfer, has a rate: its progress in a second over that in a second alone.
Rates change only where something begins or ends, so between such moments all is a straight line.

A rank's work spends a part of its time in exchange of its own, finely interleaved with the rest. On a link, the
demands of that exchange and of the rank's transfers share the bandwidth in proportion wherever they exceed it; what the
work exchanges hidden beside its own compute goes first. A transfer that goes on beside work has at most the rate `beside`,
and slows the work by the factor `slowdown`. A transfer of several ranks starts when all have come to it, each in the order
in which it started them on its stream, and goes at the rate of the slowest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel._jit import helper, kernel

WORK, START, WAIT = 0, 1, 2
"""What a rank does: works for a time, starts a transfer, waits for the end of one."""
LEVELS, STREAMS = 3, 5
INFINITE = np.inf


class Programs(NamedTuple):
    """What the ranks do; rank ``stage * replicas + replica`` follows the program of its stage."""

    offsets: NDArray[np.int64]  # first entry of each stage
    code: NDArray[np.int64]
    transfer: NDArray[np.int64]  # that an entry starts or waits for
    duration: NDArray[np.float64]  # of each replica's work, alone [s]
    exchange: NDArray[np.float64]  # part of it in exchange of its own [s]
    load: NDArray[np.float64]  # of it on the links of each level, at their full rate [s]
    paced: NDArray[np.bool_]  # whether transfers beside it are held to `beside`, and slow it


class Transfers(NamedTuple):
    """Transfers by number, and the instances that groups of replicas have of them."""

    time: NDArray[np.float64]  # alone [s]
    load: NDArray[np.float64]  # on the links of each level, at their full rate [s]
    beside: NDArray[np.float64]
    slowdown: NDArray[np.float64]
    stream: NDArray[np.int64]
    instance: NDArray[np.int64]  # transfers x replicas
    of: NDArray[np.int64]  # transfer of each instance
    members: NDArray[np.int64]  # ranks that start an instance, one instance after the other
    places: NDArray[np.int64]  # first member of each instance
    receiver: NDArray[np.int64]  # rank that waits for an instance it doesn't start, or -1
    order: NDArray[np.int64]  # transfers that a stage starts on a stream, one stream after the other
    queues: NDArray[np.int64]  # first of each stage's stream in `order`


class Played(NamedTuple):
    """What happened when, to be filled."""

    start: NDArray[np.float64]  # of each replica's entries [s]
    end: NDArray[np.float64]
    asked: NDArray[np.float64]  # when the last rank started an instance [s]
    begun: NDArray[np.float64]
    done: NDArray[np.float64]  # negative while it is not
    piece: NDArray[np.int64]  # whose each piece of constant rate is: rank and entry, or -1 less the instance
    entry: NDArray[np.int64]
    since: NDArray[np.float64]
    until: NDArray[np.float64]
    rate: NDArray[np.float64]


class State(NamedTuple):
    """What is under way."""

    cursor: NDArray[np.int64]
    working: NDArray[np.int64]  # entry at work, or -1
    waiting: NDArray[np.int64]  # instance waited for, or -1
    left: NDArray[np.float64]  # of each rank's work, then of each instance, alone [s]
    rate: NDArray[np.float64]
    since: NDArray[np.float64]
    active: NDArray[np.int64]  # instance under way of each rank and stream, or -1
    limit: NDArray[np.float64]  # rate that the rank allows it
    issued: NDArray[np.int64]
    head: NDArray[np.int64]
    come: NDArray[np.int64]  # ranks that have come to an instance
    lowest: NDArray[np.float64]  # limit of its members
    at_lowest: NDArray[np.int64]  # members that have it
    heap: NDArray[np.int64]  # ranks at work and instances under way, by the time of their end
    due: NDArray[np.float64]
    place: NDArray[np.int64]  # in the heap, or -1
    ready: NDArray[np.int64]  # ranks that go on
    ranks: NDArray[np.int64]  # whose rates must be found anew
    stale_rank: NDArray[np.bool_]
    instances: NDArray[np.int64]
    stale: NDArray[np.bool_]
    counts: NDArray[np.int64]  # in the heap, ready, ranks, instances, pieces


HEAP, READY, RANKS, INSTANCES, PIECES = 0, 1, 2, 3, 4


@helper
def rise(s, child):
    """Move an entry of the heap up to its place."""
    heap, due, place = s.heap, s.due, s.place
    item = heap[child]
    at = due[item]
    while child > 0:
        parent = (child - 1) >> 1
        other = heap[parent]
        if due[other] < at or (due[other] == at and other < item):
            break
        heap[child] = other
        place[other] = child
        child = parent
    heap[child] = item
    place[item] = child


@helper
def sink(s, parent):
    """Move an entry of the heap down to its place."""
    heap, due, place = s.heap, s.due, s.place
    item = heap[parent]
    at = due[item]
    count = s.counts[HEAP]
    while True:
        child = 2 * parent + 1
        if child >= count:
            break
        other = heap[child]
        if child + 1 < count:
            right = heap[child + 1]
            if due[right] < due[other] or (due[right] == due[other] and right < other):
                child += 1
                other = right
        if at < due[other] or (at == due[other] and item < other):
            break
        heap[parent] = other
        place[other] = parent
        parent = child
    heap[parent] = item
    place[item] = parent


@helper
def schedule(s, item, at):
    """Put the end of a rank's work or of an instance into the heap, or move it there."""
    s.due[item] = at
    if s.place[item] < 0:
        s.heap[s.counts[HEAP]] = item
        s.place[item] = s.counts[HEAP]
        s.counts[HEAP] += 1
    rise(s, s.place[item])
    sink(s, s.place[item])


@helper
def take(s):
    """Take the first out of the heap."""
    item = s.heap[0]
    s.place[item] = -1
    s.counts[HEAP] -= 1
    last = s.heap[s.counts[HEAP]]
    if last != item:
        s.heap[0] = last
        s.place[last] = 0
        sink(s, 0)
    return item


@helper
def write(s, out, item, ranks, now):
    """Close the piece of constant rate that ends now; beyond the room there is, pieces are only counted."""
    if now > s.since[item] and s.rate[item] > 0.0:
        n = s.counts[PIECES]
        if n < len(out.piece):
            out.piece[n] = item if item < ranks else ranks - 1 - item
            out.entry[n] = s.working[item] if item < ranks else -1
            out.since[n] = s.since[item]
            out.until[n] = now
            out.rate[n] = s.rate[item]
        s.counts[PIECES] = n + 1
    s.left[item] -= (now - s.since[item]) * s.rate[item]
    s.since[item] = now


@helper
def mark(s, r):
    """Have the rates of a rank found anew."""
    if not s.stale_rank[r]:
        s.stale_rank[r] = True
        s.ranks[s.counts[RANKS]] = r
        s.counts[RANKS] += 1


@helper
def mark_instance(s, i):
    """Have the rate of an instance found anew."""
    if not s.stale[i]:
        s.stale[i] = True
        s.instances[s.counts[INSTANCES]] = i
        s.counts[INSTANCES] += 1


@helper
def come(s, t, out, i, ranks, now):
    """One more rank has come to an instance; the last one begins it."""
    s.come[i] += 1
    first, last = t.places[i], t.places[i + 1]
    if s.come[i] < last - first:
        return
    k = t.of[i]
    out.begun[i] = now
    item = ranks + i
    s.left[item] = t.time[k]
    s.rate[item] = 0.0
    s.since[item] = now
    s.lowest[i] = INFINITE
    s.at_lowest[i] = last - first
    for m in range(first, last):
        r = t.members[m]
        s.active[r, t.stream[k]] = i
        s.limit[r, t.stream[k]] = INFINITE
        mark(s, r)
    mark_instance(s, i)


@helper
def go_on(s, p, t, out, r, replicas, now):
    """Follow a rank's program until it works, waits or ends."""
    stage, u = r // replicas, r % replicas
    ranks = len(s.cursor)
    last = p.offsets[stage + 1]
    e = s.cursor[r]
    while e < last:
        if out.start[u, e] < 0.0:
            out.start[u, e] = now
        if p.code[e] == WORK:
            s.working[r] = e
            s.left[r] = p.duration[u, e]
            s.rate[r] = 0.0
            s.since[r] = now
            break
        k = p.transfer[e]
        i = t.instance[k, u]
        if p.code[e] == START:
            out.asked[i] = now
            st = t.stream[k]
            s.issued[r, st] += 1
            if s.head[r, st] == s.issued[r, st] - 1:
                come(s, t, out, i, ranks, now)
        elif out.done[i] < 0.0:
            s.waiting[r] = i
            break
        out.end[u, e] = now
        e += 1
    s.cursor[r] = e
    mark(s, r)


@helper
def finish(s, t, out, i, replicas, now):
    """End an instance: the next on the streams of its members comes, and who waited for it goes on."""
    ranks = len(s.cursor)
    k = t.of[i]
    out.done[i] = now
    st = t.stream[k]
    for m in range(t.places[i], t.places[i + 1]):
        r = t.members[m]
        s.active[r, st] = -1
        s.head[r, st] += 1
        mark(s, r)
        if s.waiting[r] == i:
            s.waiting[r] = -1
            s.ready[s.counts[READY]] = r
            s.counts[READY] += 1
        if s.head[r, st] < s.issued[r, st]:
            following = t.order[t.queues[(r // replicas) * STREAMS + st] + s.head[r, st]]
            come(s, t, out, t.instance[following, r % replicas], ranks, now)
    r = t.receiver[i]
    if r >= 0 and s.waiting[r] == i:
        s.waiting[r] = -1
        s.ready[s.counts[READY]] = r
        s.counts[READY] += 1


@helper
def rates(s, p, t, out, r, replicas, now):
    """Find anew the rate of a rank's work, and the limits that it sets to its transfers."""
    e = s.working[r]
    demand = (0.0, 0.0, 0.0)
    slowdown = 1.0
    for st in range(STREAMS):
        i = s.active[r, st]
        if i >= 0:
            k = t.of[i]
            time = t.time[k]
            a, b, c = demand
            demand = (a + t.load[k, 0] / time, b + t.load[k, 1] / time, c + t.load[k, 2] / time)
            slowdown = max(slowdown, t.slowdown[k])
    at_work = e >= 0
    paced = at_work and p.paced[e]
    share, cycle, duration = 0.0, 1.0, 1.0
    if at_work:
        duration = p.duration[r % replicas, e]
        share = p.exchange[e] / duration
        if share > 0.0:
            most = 1.0
            for level in range(LEVELS):
                own = min(1.0, p.load[e, level] / duration / share)
                if own > 0.0 and demand[level] > 0.0:
                    most = max(most, own + demand[level])
            cycle = 1.0 - share + share * most
        rate = 1.0 / (cycle * slowdown) if paced else 1.0 / cycle
        if rate != s.rate[r]:
            write(s, out, r, len(s.cursor), now)
            s.rate[r] = rate
            schedule(s, r, now + max(s.left[r], 0.0) / rate)
    exchanging = cycle - (1.0 - share)
    for st in range(STREAMS):
        i = s.active[r, st]
        if i < 0:
            continue
        k = t.of[i]
        limit = t.beside[k] if paced else 1.0
        for level in range(LEVELS):
            if t.load[k, level] <= 0.0:
                continue
            wanted = demand[level]
            own, hidden = 0.0, 0.0
            if at_work:
                whole = p.load[e, level] / duration
                own = min(1.0, whole / share) if share > 0.0 else 0.0
                hidden = max(0.0, (whole - share * own) / (1.0 - share)) if share < 1.0 else 0.0
            if own + wanted > 1.0 or hidden + wanted > 1.0:
                free = (1.0 - share) * min(1.0, max(0.0, 1.0 - hidden) / wanted)
                if exchanging > 0.0:
                    free += exchanging * min(1.0, (1.0 - own * share / exchanging) / wanted)
                limit = min(limit, free / cycle)
        old = s.limit[r, st]
        if limit != old:
            s.limit[r, st] = limit
            if limit < s.lowest[i]:
                s.lowest[i] = limit
                s.at_lowest[i] = 1
                mark_instance(s, i)
            else:
                if old == s.lowest[i]:
                    s.at_lowest[i] -= 1
                    if s.at_lowest[i] == 0:
                        mark_instance(s, i)
                if limit == s.lowest[i]:
                    s.at_lowest[i] += 1


@kernel
def play(p, t, out, replicas):
    """Fill `out`; returns how many pieces there are, of which those beyond the room are missing, or -1 if ranks wait for ever.

    Parameters
    ----------
    p : `Programs`
    t : `Transfers`
    out : `Played`, its times negative
    replicas : of each stage
    """
    ranks = (len(p.offsets) - 1) * replicas
    many = len(t.of)
    s = State(
        np.zeros(ranks, dtype=np.int64), np.full(ranks, -1), np.full(ranks, -1), np.zeros(ranks + many),
        np.zeros(ranks + many), np.zeros(ranks + many), np.full((ranks, STREAMS), -1), np.zeros((ranks, STREAMS)),
        np.zeros((ranks, STREAMS), dtype=np.int64), np.zeros((ranks, STREAMS), dtype=np.int64),
        np.zeros(many, dtype=np.int64), np.zeros(many), np.zeros(many, dtype=np.int64),
        np.zeros(ranks + many, dtype=np.int64), np.zeros(ranks + many), np.full(ranks + many, -1),
        np.zeros(ranks, dtype=np.int64), np.zeros(ranks, dtype=np.int64), np.zeros(ranks, dtype=np.bool_),
        np.zeros(many, dtype=np.int64), np.zeros(many, dtype=np.bool_), np.zeros(5, dtype=np.int64),
    )  # fmt: skip
    for r in range(ranks):
        s.cursor[r] = p.offsets[r // replicas]
        s.ready[ranks - 1 - r] = r
    s.counts[READY] = ranks
    now = 0.0
    while True:
        while s.counts[READY] > 0:
            s.counts[READY] -= 1
            go_on(s, p, t, out, s.ready[s.counts[READY]], replicas, now)
        if s.counts[HEAP] == 0 or s.due[s.heap[0]] > now:
            while s.counts[RANKS] > 0:
                s.counts[RANKS] -= 1
                r = s.ranks[s.counts[RANKS]]
                s.stale_rank[r] = False
                rates(s, p, t, out, r, replicas, now)
            while s.counts[INSTANCES] > 0:
                s.counts[INSTANCES] -= 1
                i = s.instances[s.counts[INSTANCES]]
                s.stale[i] = False
                if out.done[i] >= 0.0:
                    continue
                st = t.stream[t.of[i]]
                if s.at_lowest[i] == 0:
                    s.lowest[i] = INFINITE
                    for m in range(t.places[i], t.places[i + 1]):
                        limit = s.limit[t.members[m], st]
                        if limit < s.lowest[i]:
                            s.lowest[i] = limit
                            s.at_lowest[i] = 1
                        elif limit == s.lowest[i]:
                            s.at_lowest[i] += 1
                item = ranks + i
                if s.lowest[i] != s.rate[item]:
                    write(s, out, item, ranks, now)
                    s.rate[item] = s.lowest[i]
                    left = max(s.left[item], 0.0)
                    schedule(s, item, now + left / s.rate[item] if s.rate[item] > 0.0 else INFINITE)
            if s.counts[HEAP] == 0:
                break
            if s.due[s.heap[0]] > now:
                now = s.due[s.heap[0]]
                if now == INFINITE:
                    return -1
        item = take(s)
        write(s, out, item, ranks, now)
        if item < ranks:
            e = s.working[item]
            out.end[item % replicas, e] = now
            s.working[item] = -1
            s.cursor[item] = e + 1
            s.ready[s.counts[READY]] = item
            s.counts[READY] += 1
        else:
            finish(s, t, out, item - ranks, replicas, now)
    for r in range(ranks):
        if s.cursor[r] < p.offsets[r // replicas + 1]:
            return -1
    return s.counts[PIECES]

"""The event simulator: plays a schedule out, every event with its start and end.

Ranks run ahead, each by itself, until they wait; then the transfer that was asked for first moves on its link. As no
rank can ask for an earlier one, links serve in the order of asking, however many ranks share them.
"""

from __future__ import annotations

import numpy as np

from costmodel._jit import kernel

SEND_FORWARD, RECEIVE_FORWARD, SEND_BACKWARD, RECEIVE_BACKWARD, SYNC = 4, 5, 6, 7, 8
"""Codes of `costmodel.description.schedule`, which are constants of the kernel."""
NON_BLOCKING, BLOCKING, RENDEZVOUS = 0, 1, 2
"""Codes of what a rank waits for when it sends."""


@kernel
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


@kernel
def sift_down(times, events, count):
    """Move the first of `count` entries of a heap to its place."""
    parent = 0
    while True:
        child = 2 * parent + 1
        if child >= count:
            break
        other = child + 1
        if other < count and (
            times[other] < times[child] or (times[other] == times[child] and events[other] < events[child])
        ):
            child = other
        if times[parent] < times[child] or (times[parent] == times[child] and events[parent] < events[child]):
            break
        times[parent], times[child] = times[child], times[parent]
        events[parent], events[child] = events[child], events[parent]
        parent = child


@kernel
def play(
    offsets, kind, match, rank, link, duration, occupancy, latency, groups, links, sending, start, end, cursor
):
    """Fill `start` and `end`, and `cursor` with how far each rank came: short of its end where it waits for ever.

    Parameters
    ----------
    offsets, kind, match, rank : of the `Schedule`
    link : that each send takes
    duration : of each pass and sync [s]
    occupancy : time that each send takes its link [s]
    latency : of each send, after its link [s]
    groups : ranks that each group of syncs waits for
    links : how many
    sending : what a rank waits for when it sends: nothing; the arrival; or, for all transfers between two passes, that
        they have met their other end and are done
    start, end : of each event [s]; of a send, of its time on the link and of its arrival
    cursor : next event of each rank
    """
    ranks = len(offsets) - 1
    events = len(kind)
    clock = np.zeros(ranks)
    free = np.zeros(links)
    arrival = np.full(events, -1.0)
    posted = np.full(events if sending == RENDEZVOUS else 0, -1.0)
    waiting = np.zeros(ranks, dtype=np.bool_)
    pending = np.zeros(ranks, dtype=np.int64)
    joined = np.zeros(len(groups), dtype=np.int64)
    latest = np.zeros(len(groups))
    ready = np.empty(ranks, dtype=np.int64)
    for r in range(ranks):
        ready[r] = ranks - 1 - r
        cursor[r] = offsets[r]
    many = ranks
    sends = 0
    for e in range(events):
        sends += kind[e] in (SEND_FORWARD, SEND_BACKWARD)
    heap_times = np.empty(sends + 1)
    heap_events = np.empty(sends + 1, dtype=np.int64)
    count = 0
    while True:
        while many > 0:
            many -= 1
            r = ready[many]
            now = clock[r]
            e = cursor[r]
            last = offsets[r + 1]
            while e < last:
                k = kind[e]
                if k < SEND_FORWARD:
                    start[e] = now
                    now += duration[e]
                    end[e] = now
                    e += 1
                elif k == SYNC:
                    g = match[e]
                    joined[g] += 1
                    start[e] = now
                    if now > latest[g]:
                        latest[g] = now
                    if joined[g] < groups[g]:
                        waiting[r] = True
                        break
                    now = latest[g] + duration[e]
                    end[e] = now
                    if groups[g] > 1:
                        for other in range(ranks):
                            o = cursor[other]
                            if other != r and waiting[other] and kind[o] == SYNC and match[o] == g:
                                waiting[other] = False
                                clock[other] = latest[g] + duration[o]
                                end[o] = clock[other]
                                cursor[other] = o + 1
                                ready[many] = other
                                many += 1
                    e += 1
                elif sending != RENDEZVOUS:
                    if k in (SEND_FORWARD, SEND_BACKWARD):
                        heap_times[count] = now
                        heap_events[count] = e
                        count += 1
                        sift_up(heap_times, heap_events, count)
                        if sending == BLOCKING:
                            waiting[r] = True
                            break
                        e += 1
                    else:
                        if arrival[e] < 0.0:
                            waiting[r] = True
                            break
                        start[e] = now
                        if arrival[e] > now:
                            now = arrival[e]
                        end[e] = now
                        e += 1
                else:
                    stop = e
                    while stop < last and kind[stop] >= SEND_FORWARD and kind[stop] != SYNC:
                        posted[stop] = now
                        start[stop] = now
                        other = match[stop]
                        if posted[other] >= 0.0:
                            is_send = kind[stop] in (SEND_FORWARD, SEND_BACKWARD)
                            heap_times[count] = max(now, posted[other])
                            heap_events[count] = stop if is_send else other
                            count += 1
                            sift_up(heap_times, heap_events, count)
                        stop += 1
                    pending[r] = stop - e
                    waiting[r] = True
                    break
            clock[r] = now
            cursor[r] = e
        if count == 0:
            break
        asked = heap_times[0]
        e = heap_events[0]
        count -= 1
        heap_times[0] = heap_times[count]
        heap_events[0] = heap_events[count]
        sift_down(heap_times, heap_events, count)
        taken = link[e]
        begun = max(asked, free[taken])
        free[taken] = begun + occupancy[e]
        start[e] = begun
        end[e] = free[taken] + latency[e]
        other = match[e]
        arrival[other] = end[e]
        if sending == BLOCKING:
            r = rank[e]
            waiting[r] = False
            clock[r] = end[e]
            cursor[r] = e + 1
            ready[many] = r
            many += 1
        if sending != RENDEZVOUS:
            r = rank[other]
            if waiting[r] and cursor[r] == other:
                waiting[r] = False
                ready[many] = r
                many += 1
        else:
            end[other] = end[e]
            for side in (e, other):
                r = rank[side]
                pending[r] -= 1
                if end[e] > clock[r]:
                    clock[r] = end[e]
                if pending[r] == 0:
                    waiting[r] = False
                    c = cursor[r]
                    while c < offsets[r + 1] and kind[c] >= SEND_FORWARD and kind[c] != SYNC:
                        c += 1
                    cursor[r] = c
                    ready[many] = r
                    many += 1

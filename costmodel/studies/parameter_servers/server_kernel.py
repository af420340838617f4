"""Workers of a parameter server, event by event: computing, exchanging on shared links, waiting for each other.

All exchanges are alike and share what there is equally, so they end in the order in which they began: the queue is
a ring, and one clock of work done per exchange serves them all.
"""

from __future__ import annotations

import heapq

import numpy as np

from costmodel.compilation.lazily import kernel_of

COMPUTING, EXCHANGING, WAITING, ELAPSED, UPDATES = range(5)
"""Places in the totals: worker-seconds in each state, seconds, and steps that workers completed."""


@kernel_of(lambda durations, *_: 7 * durations.size)
def run(durations, exchange_times, delay, fetch_interval, push_interval, warm, totals, staleness, lag):
    """Follow the workers from the first's completion of `warm` steps until the first has completed all.

    Parameters
    ----------
    durations : computing time of each step (rows) of each worker [s]
    exchange_times : time in which so many exchanges at once are done, by their number; the first entry is not used [s]
    delay : steps that a worker may be ahead of the slowest; below 0 without bound
    fetch_interval, push_interval : steps between two fetches, and two pushes
    warm : steps before counting starts
    totals : out, five numbers
    staleness : out, gradients by pushes of others between fetch and push; the last counts all beyond
    lag : out, steps by how many the slowest worker is behind as they begin; the last counts all beyond
    """
    steps, workers = durations.shape
    done = np.zeros(workers, np.int64)
    at_step = np.zeros(steps + 1, np.int64)  # workers by steps done
    at_step[0] = workers
    waits = np.zeros(workers, np.bool_)
    pushes, own = 0, np.zeros(workers, np.int64)
    version = np.zeros(workers, np.int64)
    reads = np.zeros((workers, push_interval), np.int64)
    queue, ends = np.zeros(workers, np.int64), np.zeros(workers)
    head, count, waiting, slowest = 0, 0, 0, 0
    now, work = 0.0, 0.0
    counting = warm == 0
    computing = [(durations[0, worker], worker) for worker in range(workers)]
    heapq.heapify(computing)
    while True:
        begun = computing[0][0] if len(computing) > 0 else np.inf
        ended = now + (ends[head] - work) * exchange_times[count] if count > 0 else np.inf
        then = min(begun, ended)
        if counting:
            totals[COMPUTING] += (then - now) * len(computing)
            totals[EXCHANGING] += (then - now) * count
            totals[WAITING] += (then - now) * waiting
            totals[ELAPSED] += then - now
        if count > 0:
            work += (then - now) / exchange_times[count]
        now = then
        if begun < ended:
            _, worker = heapq.heappop(computing)
            tail = (head + count) % workers
            queue[tail], ends[tail] = worker, work + 1.0
            count += 1
            continue
        worker = queue[head]
        work = ends[head]
        head = (head + 1) % workers
        count -= 1
        step = done[worker]
        done[worker] = step + 1
        if counting:
            totals[UPDATES] += 1
        if (step + 1) % push_interval == 0:
            pushes += 1
            own[worker] += 1
            if counting:
                for i in range(push_interval):
                    behind = pushes - own[worker] - reads[worker, i]
                    staleness[min(behind, staleness.size - 1)] += 1
        if step + 1 == warm:
            counting = True
        if step + 1 == steps:
            return
        at_step[step] -= 1
        at_step[step + 1] += 1
        waits[worker] = True
        waiting += 1
        first, last = worker, worker + 1
        if at_step[slowest] == 0:
            slowest += 1
            first, last = 0, workers  # whoever waited for this step may go on
        for other in range(first, last):
            step = done[other]
            if waits[other] and (delay < 0 or step - slowest <= delay):
                waits[other] = False
                waiting -= 1
                if step % fetch_interval == 0:
                    version[other] = pushes - own[other]
                reads[other, step % push_interval] = version[other]
                if counting:
                    lag[min(step - slowest, lag.size - 1)] += 1
                heapq.heappush(computing, (now + durations[step, other], other))

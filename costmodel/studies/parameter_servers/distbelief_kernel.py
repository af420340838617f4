"""Replicas that take portions of a batch from a coordinator, and replicas that push on their own, event by event."""

from __future__ import annotations

import numpy as np

from costmodel.compilation.lazily import kernel


@kernel
def batches(portions, replicas, mean, spread, backup, mtbf, restart, times, seed):
    """Follow batches whose portions idle replicas take one after another; replicas fail and come back.

    Parameters
    ----------
    portions : of a batch
    replicas : that take them
    mean, spread : of the time of a portion [s], a constant plus an exponential whose standard deviation over the mean
        is `spread`
    backup : whether idle replicas repeat outstanding portions, of which the first copy to end counts
    mtbf : mean time between failures of a replica [s]; infinite without
    restart : from a failure until it works again [s]
    times : out, of each batch [s]
    seed : of the draws
    """
    np.random.seed(seed)
    ends, task = np.zeros(replicas), np.zeros(replicas, np.int64)
    failure = np.empty(replicas)
    for replica in range(replicas):
        failure[replica] = np.random.exponential(1.0) * mtbf
    now = 0.0
    copies, finished = np.zeros(portions, np.int64), np.zeros(portions, np.bool_)
    for batch in range(len(times)):
        begun = now
        copies[:] = 0
        finished[:] = False
        left = portions
        task[:] = -1
        ends[:] = np.inf
        for replica in range(replicas):
            if failure[replica] < now:  # went down, and up again or not yet, while it had nothing to do
                failure[replica] = now
        while left > 0:
            for replica in range(replicas):
                if task[replica] == -1:
                    chosen, fewest = -1, portions + replicas
                    for portion in range(portions):
                        open_to_all = copies[portion] == 0 or backup
                        if not finished[portion] and open_to_all and copies[portion] < fewest:
                            chosen, fewest = portion, copies[portion]
                            if fewest == 0:
                                break
                    if chosen >= 0:
                        task[replica] = chosen
                        copies[chosen] += 1
                        ends[replica] = now + mean * (1.0 - spread + spread * np.random.exponential(1.0))
            first, then, fails = -1, np.inf, False
            for replica in range(replicas):
                if task[replica] != -1 and ends[replica] < then:
                    first, then, fails = replica, ends[replica], False
                if task[replica] != -2 and failure[replica] < then:
                    first, then, fails = replica, failure[replica], True
            now = max(now, then)
            if fails:
                if task[first] >= 0:
                    copies[task[first]] -= 1
                task[first], ends[first] = -2, now + restart
            elif task[first] == -2:
                task[first], ends[first] = -1, np.inf
                failure[first] = now + np.random.exponential(1.0) * mtbf
            else:
                done = task[first]
                finished[done] = True
                left -= 1
                for replica in range(replicas):
                    if task[replica] == done:
                        task[replica], ends[replica] = -1, np.inf
        times[batch] = now - begun


@kernel
def pushes(replicas, step_time, machines, servers, mtbf, restart, horizon, seed):
    """Count the steps of replicas that fail each on their own, and all stop while a server is down.

    Parameters
    ----------
    replicas, machines, servers : copies of the model, machines of each, and servers
    step_time : of a replica that works [s]
    mtbf, restart : of one machine [s]
    horizon : time that is followed [s]
    seed : of the draws

    Returns
    -------
    float
        steps of all replicas in the horizon
    """
    np.random.seed(seed)
    down = np.zeros((0, 2))
    now, count = 0.0, 0
    outages = np.empty((int(20 + 4 * horizon * servers / mtbf), 2))
    while now < horizon and count < len(outages):
        now += np.random.exponential(mtbf / servers)
        outages[count] = now, now + restart
        now += restart
        count += 1
    down = outages[:count]
    total = 0.0
    for _ in range(replicas):
        now, place = 0.0, 0
        while now < horizon:
            up_until = now + np.random.exponential(mtbf / machines)
            worked = min(up_until, horizon) - now
            while place < len(down) and down[place, 1] <= now:
                place += 1
            other = place
            while other < len(down) and down[other, 0] < min(up_until, horizon):
                worked -= min(down[other, 1], up_until, horizon) - max(down[other, 0], now)
                other += 1
            total += worked / step_time
            now = up_until + restart
    return total

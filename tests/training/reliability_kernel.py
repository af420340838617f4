"""A run that fails, event by event: work, checkpoints, failures at given times, and restarts that fail too."""

from __future__ import annotations

from costmodel.compilation.jit import kernel

ELAPSED, CHECKPOINTING, LOST, RESTARTING, INTERRUPTIONS = range(5)
"""Places in the totals: seconds of the run, of written checkpoints, of lost work, of restarts; and a count."""


@kernel
def run(failures, restarts, interval, write_time, useful_time, totals):
    """Follow a run through its failures until its work is done.

    Parameters
    ----------
    failures : times of the failures, ascending [s]; the last lies beyond the end of the run
    restarts : time from each failure until work goes on [s]
    interval, write_time : work between checkpoints, and time that each takes [s]
    useful_time : work of the whole run [s]
    totals : out, five numbers

    Returns
    -------
    bool
        whether the run ended before the last of the failures
    """
    now, done, place = 0.0, 0.0, 0
    while done < useful_time:
        length = min(interval, useful_time - done) + write_time
        if now + length <= failures[place]:
            now += length
            done += length - write_time
            totals[CHECKPOINTING] += write_time
            continue
        totals[LOST] += failures[place] - now
        while True:
            now, restart = failures[place], restarts[place]
            place += 1
            totals[INTERRUPTIONS] += 1.0
            if place == len(failures):
                return False
            if now + restart <= failures[place]:
                break
            totals[RESTARTING] += failures[place] - now
        totals[RESTARTING] += restart
        now += restart
    totals[ELAPSED] = now
    return True

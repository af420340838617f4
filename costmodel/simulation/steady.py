"""When a step ends that comes to repeat itself: its middle is played once, however many micro-batches there are.

Most schedules have a middle in which every rank does the same again and again, for as many micro-batches as its pipeline has
ranks. Once a period has ended as the one before did, everything that is under way is as it was a period earlier, so that all
further periods take as long, and what follows the last of them follows as it did. That is exact but for rounding.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from costmodel.description.schedule import Schedule
from costmodel.evaluation.estimation import Estimate
from costmodel.simulation import step_kernel as kernel
from costmodel.simulation.playback import schedule_of
from costmodel.simulation.played_step import START, Integers
from costmodel.simulation.replay import Prepared, prepared
from costmodel.simulation.transactions import Ledger
from costmodel.text.errors import CostModelError

PLAYED, FEWEST = (24, 96, 384), 4
"""Micro-batches that are played in place of more, and periods at least, until one is as the one before."""
SAME = 1e-12
"""Of the time that was played: times that differ by less are one but for rounding."""


@dataclasses.dataclass
class Budget:
    """Work that is left: micro-batches on all stages that may still be played."""

    left: int  # so many

    def take(self, stages: int, micro_batches: int) -> None:
        """Take what so many micro-batches on so many stages are; `BudgetSpent` where less is left."""
        if stages * micro_batches > self.left:
            raise BudgetSpent(f"{stages * micro_batches} micro-batches of all stages, where {self.left} may still be played")
        self.left -= stages * micro_batches


class BudgetSpent(CostModelError):
    """There is less left of a budget of work than something takes."""


def played_end(asked: Estimate, made: Ledger, budget: Budget | None = None) -> float:
    """When a step ends that is played out as `simulate` does, all ranks of a stage doing the same at the same time [s].

    Parameters
    ----------
    asked : the estimate
    made : its ledger, as the constants have it
    budget : of work, of which is taken what is played

    Returns
    -------
    float
        the same as `Simulation.total` to 10 digits

    Raises
    ------
    BudgetSpent
        where less is left than it takes
    InvalidValue
        where the step has too many events
    NotModelled
        for schedules that have no step, or sums between twin ranks
    """
    many, ranks = asked.plan.micro_batches, asked.plan.pipeline_parallel
    stages = ranks * asked.plan.virtual_stages
    times = None
    for played_least in PLAYED:
        fewer = many % ranks + ranks * max(played_least // ranks, FEWEST)
        if 2 * fewer > many:
            break
        if budget:
            budget.take(stages, fewer)
        ready = prepared(asked, made, times=times, micro_batches=fewer)
        times = ready.times
        middles = _middles(ready, schedule_of(asked.plan, asked.model.layers, micro_batches=fewer - ranks))
        if middles is None:
            break
        played = ready.played(kept=False)
        period = _period(ready, played, middles)
        if period is not None:
            return float(played.end.max()) + (many - fewer) // ranks * period
    if budget:
        budget.take(stages, many)
    return float(prepared(asked, made, times=times).played(kept=False).end.max())


class _Middle(NamedTuple):
    """Blocks of a rank, the opening one not counted, each of which comes again a period later: the first, the one after the
    last, and how many a period has."""

    first: int
    last: int
    period: int


def _middles(ready: Prepared, short: Schedule) -> list[_Middle] | None:
    """The middle of every rank, where the step of a period less is the same but for one period of it."""
    found, opening = [], 0
    for rank in range(short.ranks):
        events, fewer = _events(ready.schedule, rank), _events(short, rank)
        kinds = ready.programs.kind[opening + 1 : opening + 1 + len(events)]
        opening += len(events) + 2  # one block opens a rank, another closes it
        period = len(events) - len(fewer)
        onward = events - [0, 0, short.ranks]
        same = (onward[period:] == events[:-period]).all(axis=1) & (kinds[period:] == kinds[:-period])
        edges = np.flatnonzero(np.diff(np.concatenate([[0], same.astype(np.int8), [0]]))).reshape(-1, 2)
        if not len(edges):
            return None
        first, last = edges[np.argmax(edges[:, 1] - edges[:, 0])].tolist()
        if not np.array_equal(np.concatenate([events[:first], onward[first + period :]]), fewer):
            return None
        found.append(_Middle(first, last, period))
    return found


def _events(schedule: Schedule, rank: int) -> Integers:
    """Kind, stage and micro-batch of a rank's events, a line an event."""
    part = slice(*schedule.offsets[rank : rank + 2].tolist())
    return np.stack([schedule.kind[part], schedule.stage[part], schedule.micro_batch[part]], axis=1)


def _period(ready: Prepared, played: kernel.Played, middles: list[_Middle]) -> float | None:
    """How long a period takes [s]; None where at no moment all that is under way is as it was a period before.

    The moment is when the first rank comes to the end of its middle. What is then under way follows from what has begun and
    ended before: back to `since`, each of it came a period later than what corresponds to it, on every rank; and what had begun
    before that has ended.
    """
    programs, end = ready.programs, played.end[0]
    instance = np.append(ready.transfers.instance[:, 0], len(played.times))  # the last one, which -1 is, takes no time
    times = np.vstack([played.times, np.zeros((1, played.times.shape[1]))])
    starts = (programs.lines.kind == START)[programs.line]
    transfers = np.where(starts, times[instance[programs.transfer]].T, 0.0)
    when = np.stack([played.start[0], end, *transfers])  # of an entry, and of what it starts
    parts = _parts(ready, middles)
    moment = min(float(end[last - 1]) for _, last, _ in parts)
    limit, since, period = SAME * float(end.max()), 0.0, -1.0
    for rank, (first, last, shift) in enumerate(parts):
        before = when[:, first:last]
        later = when[:, first + shift : last + shift] - before
        known = before <= moment
        if not known[0].any():
            return None
        period = float(later[0, known[0]][-1]) if rank == 0 else period
        known[2:] &= starts[first:last]
        differs = np.flatnonzero(((abs(later - period) > limit) & known).any(axis=0))
        begin = first + int(differs[-1]) + 1 if len(differs) else first
        if begin == last:
            return None
        earlier = slice(int(programs.offsets[rank]), begin)
        done = times[instance[programs.transfer[earlier][starts[earlier]]], kernel.DONE]
        since = max(since, float(when[0, begin]), float(done.max(initial=0.0)))
    return period if since <= moment else None


def _parts(ready: Prepared, middles: list[_Middle]) -> list[tuple[int, int, int]]:
    """The middles in entries: the first, the one after the last, and those of a period."""
    first_entry = np.searchsorted(ready.programs.block, np.arange(len(ready.programs.kind) + 1))
    found, opening = [], 0
    for (first, last, period), events in zip(middles, np.diff(ready.schedule.offsets).tolist(), strict=True):
        a, b, after = (int(first_entry[opening + 1 + block]) for block in (first, last, first + period))
        found.append((a, b, after - a))
        opening += events + 2
    return found

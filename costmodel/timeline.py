"""A pipeline played out event by event: where each rank works, waits and sends, and what it holds."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costmodel.errors import InvalidValue
from costmodel.schedule import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    KINDS,
    MOST,
    RECEIVE_BACKWARD,
    RECEIVE_FORWARD,
    SEND_BACKWARD,
    SEND_FORWARD,
    SYNC,
    Schedule,
    custom_schedule,
    deadlocked,
)
from costmodel.validate import flag, kind, positive_int, real, whole

if TYPE_CHECKING:
    import pandas

Floats = NDArray[np.float64]
LONGEST, MOST_BYTES = 1e6, 1e18


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Timeline:
    """A schedule with the start and end of each of its events.

    Parameters
    ----------
    schedule : what was played
    start, end : of each event [s]; of a send, of its time on the link and of its arrival; of a receive, of the wait
    held_bytes : that each event adds to what its rank holds of activations, at the start of forward passes and at the end
        of backward passes [bytes]
    """

    schedule: Schedule
    start: Floats
    end: Floats
    held_bytes: Floats

    @property
    def total(self) -> float:
        """From the first start to the last end [s]."""
        return float(self.end.max())

    @functools.cached_property
    def busy(self) -> Floats:
        """Time that each rank computes [s]."""
        passes = self.schedule.kind <= BACKWARD
        return np.bincount(
            self.schedule.rank[passes], (self.end - self.start)[passes], minlength=self.schedule.ranks
        )

    @functools.cached_property
    def span(self) -> Floats:
        """From each rank's first pass to its last end [s]."""
        passes = np.flatnonzero(self.schedule.kind <= BACKWARD)
        first = np.full(self.schedule.ranks, np.inf)
        last = np.zeros(self.schedule.ranks)
        np.minimum.at(first, self.schedule.rank[passes], self.start[passes])
        local = (self.schedule.kind <= BACKWARD) | (self.schedule.kind == SYNC)
        np.maximum.at(last, self.schedule.rank[local], self.end[local])
        return np.where(np.isfinite(first), last - np.minimum(first, last), 0.0)

    @property
    def period(self) -> float:
        """The longest span [s]: from step to step, where a rank begins the next as soon as it has ended one.

        This is the cost of a schedule in zero-bubble papers [qi2023]_. Where the first rank is also the last to end, as
        in all schedules that wait for all ranks before the optimizer, it is `total`.
        """
        return float(self.span.max())

    @property
    def bubble(self) -> Floats:
        """Time of a period that each rank doesn't compute [s]."""
        return self.period - self.busy

    @property
    def bubble_rate(self) -> float:
        """Share of a period that the ranks don't compute, on average."""
        return float(self.bubble.mean() / self.period)

    @property
    def in_flight(self) -> Floats:
        """Micro-batches that each rank holds at its fullest, in units of its whole depth."""
        return self.schedule.in_flight

    @functools.cached_property
    def peak_bytes(self) -> Floats:
        """Activations that each rank holds at its fullest [bytes]."""
        return self.schedule.peak(self.held_bytes)

    def held(self, rank: int) -> tuple[Floats, Floats]:
        """When what a rank holds changes [s], and what it holds from then on [bytes]."""
        part = slice(int(self.schedule.offsets[rank]), int(self.schedule.offsets[rank + 1]))
        changes = np.flatnonzero(self.held_bytes[part]) + part.start
        grows = self.held_bytes[changes] > 0.0
        return np.where(grows, self.start[changes], self.end[changes]), np.cumsum(self.held_bytes[changes])

    def waits(self) -> Floats:
        """Time that each rank waits in receives, for what comes from another rank [s]."""
        receives = np.isin(self.schedule.kind, (RECEIVE_FORWARD, RECEIVE_BACKWARD))
        return np.bincount(
            self.schedule.rank[receives], (self.end - self.start)[receives], minlength=self.schedule.ranks
        )

    def frame(self) -> pandas.DataFrame:
        """Every event in a row: rank, kind, stage, micro-batch, start and end."""
        import pandas

        return pandas.DataFrame(
            {
                "rank": self.schedule.rank, "kind": np.asarray(KINDS)[self.schedule.kind], "stage": self.schedule.stage,
                "micro_batch": self.schedule.micro_batch, "start_s": self.start, "end_s": self.end,
            }
        )  # fmt: skip


def _each(field: str, value: ArrayLike, length: int, most: float, of: str = "stages") -> Floats:
    """`value` as a column of finite numbers from 0 to `most`: one for all, or one for each."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return np.full(length, real(field, value, 0.0, most))
    try:
        column = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidValue(field, value, f"a number or {length} numbers, one for each of the {of}") from None
    if column.shape != (length,) or not (np.isfinite(column) & (column >= 0.0) & (column <= most)).all():
        raise InvalidValue(field, value, f"a number or {length} numbers from 0 to {most:g}, one for each of the {of}")
    return column


def simulate_schedule(
    schedule: Schedule, forward: ArrayLike, backward_input: ArrayLike, backward_weight: ArrayLike = 0.0, *,
    transfer_latency: float = 0.0, transfer_bytes: ArrayLike = 0.0, transfer_bandwidth: float = math.inf,
    links: ArrayLike | None = None, overlap: bool = True, sync: ArrayLike = 0.0, jitter: float = 0.0, seed: int = 0,
    activation_bytes: ArrayLike = 1.0, context_bytes: ArrayLike | None = None,
) -> Timeline:  # fmt: skip
    """Play a schedule out, event by event.

    A receive ends when the transfer has arrived: `transfer_latency` after it has left its link, which it holds for
    `transfer_bytes` / `transfer_bandwidth`. A link carries one transfer at a time, in the order of asking.

    Parameters
    ----------
    schedule : what each rank does
    forward, backward_input, backward_weight : of one micro-batch on each stage [s]; a whole backward pass takes both
    transfer_latency : of a transfer between ranks [s]
    transfer_bytes : between each stage and the next [bytes]
    transfer_bandwidth : of a link, one direction [bytes/s]
    links : number of the link from each rank to each, ranks x ranks, from 0; each pair has its own if None
    overlap : whether sends go on beside what follows; else a rank waits until all its transfers between two passes have met
        their other end and are done
    sync : of each stage, once all its ranks are there [s]
    jitter : standard deviation of the logarithm of each pass' time, whose mean stays
    seed : of the jitter
    activation_bytes : that a forward pass of each stage leaves for its backward pass [bytes]
    context_bytes : of these, what stays between the backward pass by inputs and by weights; all of them if None [bytes]

    Returns
    -------
    Timeline
        start and end of every event [s]

    Raises
    ------
    InvalidValue
        where an argument is not what it should be
    IllegalSchedule
        naming the rank and the event, where the schedule deadlocks

    References
    ----------
    [qi2023]_ section 5.3: a receive starts when the transfer has arrived, sends don't wait

    Examples
    --------
    >>> from costmodel.schedule import pipeline_schedule
    >>> played = simulate_schedule(pipeline_schedule("1f1b", stages=4, micro_batches=8), 1.0, 1.0, 1.0)
    >>> played.total, played.bubble.tolist()
    (33.0, [9.0, 9.0, 9.0, 9.0])
    """
    from costmodel.kernels.events import play

    kind("schedule", schedule, Schedule, "pipeline_schedule(name, ...)")
    stages, ranks = schedule.stages, schedule.ranks
    times = np.zeros((len(KINDS), stages))
    times[FORWARD] = _each("forward", forward, stages, LONGEST)
    times[BACKWARD_INPUT] = _each("backward_input", backward_input, stages, LONGEST)
    times[BACKWARD_WEIGHT] = _each("backward_weight", backward_weight, stages, LONGEST)
    times[BACKWARD] = times[BACKWARD_INPUT] + times[BACKWARD_WEIGHT]
    times[SYNC] = _each("sync", sync, stages, LONGEST)
    duration = times[schedule.kind, schedule.stage]
    spread = real("jitter", jitter, 0.0, 10.0)
    whole("seed", seed, 2**63 - 1)
    if spread:
        draws = np.random.default_rng(seed).standard_normal(len(duration))
        duration = np.where(schedule.kind <= BACKWARD, duration * np.exp(spread * draws - 0.5 * spread**2), duration)

    moved = _each("transfer_bytes", transfer_bytes, max(stages - 1, 1), MOST_BYTES, "boundaries between stages")
    if transfer_bandwidth != math.inf:
        real("transfer_bandwidth", transfer_bandwidth, 1.0, MOST_BYTES)
    sends = np.isin(schedule.kind, (SEND_FORWARD, SEND_BACKWARD))
    boundary = np.clip(schedule.stage - (schedule.kind == SEND_BACKWARD), 0, max(stages - 2, 0))
    occupancy = np.where(sends, moved[boundary] / transfer_bandwidth, 0.0)
    latency = np.where(sends, real("transfer_latency", transfer_latency, 0.0, LONGEST), 0.0)
    receiver = schedule.rank[np.where(sends, schedule.match, 0)]
    if links is None:
        link = schedule.rank * ranks + receiver
        count = ranks * ranks
    else:
        table = _links(links, ranks)
        link, count = table[schedule.rank, receiver], int(table.max()) + 1
    groups = np.bincount(schedule.match[schedule.kind == SYNC], minlength=1)

    start, end = np.zeros(len(duration)), np.zeros(len(duration))
    cursor = np.zeros(ranks, dtype=np.int64)
    play(
        schedule.offsets, schedule.kind, schedule.match, schedule.rank, link, duration, occupancy, latency, groups, count,
        flag("overlap", overlap), start, end, cursor,
    )  # fmt: skip
    deadlocked(schedule, cursor.tolist())
    return Timeline(schedule=schedule, start=start, end=end, held_bytes=_held(schedule, activation_bytes, context_bytes))


def _links(links: ArrayLike, ranks: int) -> NDArray[np.int64]:
    table = np.asarray(links)
    if table.shape != (ranks, ranks) or table.dtype.kind not in "iu" or table.min() < 0 or table.max() > ranks**2:
        raise InvalidValue("links", links, f"{ranks} x {ranks} numbers of links, whole, from 0 to {ranks**2}")
    return table.astype(np.int64)


def _held(schedule: Schedule, activation_bytes: ArrayLike, context_bytes: ArrayLike | None) -> Floats:
    """What each event adds to the activations on its rank [bytes]."""
    whole_bytes = _each("activation_bytes", activation_bytes, schedule.stages, MOST_BYTES)
    kept = whole_bytes if context_bytes is None else _each("context_bytes", context_bytes, schedule.stages, MOST_BYTES)
    if (kept > whole_bytes).any():
        raise InvalidValue("context_bytes", context_bytes, "no more than activation_bytes, of which they are a part")
    change = np.zeros((len(KINDS), schedule.stages))
    change[FORWARD], change[BACKWARD] = whole_bytes, -whole_bytes
    change[BACKWARD_INPUT], change[BACKWARD_WEIGHT] = kept - whole_bytes, -kept
    return change[schedule.kind, schedule.stage]




def zero_bubble_schedule(
    *, stages: int, micro_batches: int, forward: ArrayLike, backward_input: ArrayLike, backward_weight: ArrayLike,
    transfer_latency: float = 0.0, memory_limit: ArrayLike | None = None, activation_bytes: ArrayLike = 1.0,
    context_bytes: ArrayLike | None = None,
) -> Schedule:  # fmt: skip
    """Search an order of passes for given times that leaves little bubble within a memory limit.

    The heuristic of the zero-bubble paper: as many forward passes ahead of the first backward pass as memory takes, then
    one forward and one backward pass in turn, weight passes where a rank would wait or has no memory left. Three choices
    are tried both ways, and the shortest of the eight orders is taken; none is proved to be the best there is.

    Parameters
    ----------
    stages, micro_batches : of the pipeline
    forward, backward_input, backward_weight : of one micro-batch on each stage [s]
    transfer_latency : between ranks [s]
    memory_limit : of the activations on each rank [bytes]; none if None. `stages` times `activation_bytes` is the memory
        of 1F1B, and ZB-1p of the paper; twice that is ZB-2p
    activation_bytes : that a forward pass leaves for its backward pass [bytes]
    context_bytes : of these, what stays between the backward pass by inputs and by weights; all of them if None [bytes]

    Returns
    -------
    Schedule
        with backward passes in halves

    Raises
    ------
    InvalidValue
        where an argument is not what it should be, or the limit takes not even one micro-batch

    References
    ----------
    [qi2023]_ section 3.1

    Examples
    --------
    >>> order = zero_bubble_schedule(stages=4, micro_batches=12, forward=1.0, backward_input=1.0, backward_weight=1.0)
    >>> simulate_schedule(order, 1.0, 1.0, 1.0).bubble_rate
    0.0
    """
    from costmodel.kernels.zero_bubble import search

    p, m = positive_int("stages", stages, MOST), positive_int("micro_batches", micro_batches, MOST)
    times = np.stack(
        [
            _each("forward", forward, p, LONGEST), _each("backward_input", backward_input, p, LONGEST),
            _each("backward_weight", backward_weight, p, LONGEST),
        ]
    )  # fmt: skip
    held = _each("activation_bytes", activation_bytes, p, MOST_BYTES)
    kept = held if context_bytes is None else _each("context_bytes", context_bytes, p, MOST_BYTES)
    if (kept > held).any():
        raise InvalidValue("context_bytes", context_bytes, "no more than activation_bytes, of which they are a part")
    limit = np.full(p, np.inf) if memory_limit is None else _each("memory_limit", memory_limit, p, MOST_BYTES)
    latency = real("transfer_latency", transfer_latency, 0.0, LONGEST)
    sizes = np.stack([held, kept - held, -kept])
    best, shortest = None, math.inf
    for choices in itertools.product((True, False), repeat=3):
        order = np.zeros((p, 3 * m), dtype=np.int64)
        span = search(m, times, sizes, limit, latency, *choices, order)
        if 0.0 <= span < shortest:
            best, shortest = order, span
    if best is None:
        raise InvalidValue("memory_limit", memory_limit, "room for the activations of at least one micro-batch on each rank")
    return custom_schedule([_numbered(codes.tolist(), stage) for stage, codes in enumerate(best)], name="zero-bubble")


def _numbered(codes: list[int], stage: int) -> list[tuple[int, int, int]]:
    """Passes of a rank from their kinds: each kind takes its micro-batches in order."""
    kinds = (FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT)
    following = [itertools.count() for _ in kinds]
    return [(kinds[code], stage, next(following[code])) for code in codes]

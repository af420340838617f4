"""A schedule as arrays of events; checked: every pass once, both ends of every transfer, no rank waits for ever."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from costmodel.text.checks import choice, positive_int
from costmodel.text.errors import IllegalSchedule
from costmodel.text.results import brief

FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, BACKWARD = 0, 1, 2, 3
SEND_FORWARD, RECEIVE_FORWARD, SEND_BACKWARD, RECEIVE_BACKWARD, SYNC = 4, 5, 6, 7, 8
KINDS = (
    "forward", "backward-input", "backward-weight", "backward",
    "send-forward", "receive-forward", "send-backward", "receive-backward", "sync",
)  # fmt: skip
"""Kinds of event; ``backward`` is both halves at once, ``sync`` waits for all ranks that hold the stage."""
WEIGHTS = ("flush", "stashed", "vertical-sync", "double-buffered")
"""How weights change under a schedule: once after all micro-batches; after each, the version of a forward pass kept for
its backward pass, on each stage by itself or the same on every stage; or in two generations."""
MOST = 1_000_000

Integers = NDArray[np.int64]
Event = tuple[int, int, int]
"""Kind, stage, micro-batch."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Schedule:
    """What each rank of a pipeline does, in order.

    Parameters
    ----------
    name : of the kind of schedule
    placement : rank that runs each stage, routes x stages
    route : of each micro-batch
    offsets : first event of each rank, and the number of events
    kind : of each event, an index into `KINDS`
    stage : of each event; for a send or receive, the stage of the rank's own computation
    micro_batch : of each event; for a sync, how many came before
    weights : one of `WEIGHTS`

    Raises
    ------
    IllegalSchedule
        naming the rank and the event, where a pass is missing, doubled, on the wrong rank or before what it needs, or a
        transfer has no other end; `check` looks for deadlock too
    """

    name: str
    placement: Integers
    route: Integers
    offsets: Integers
    kind: Integers
    stage: Integers
    micro_batch: Integers
    weights: str = "flush"

    __repr__ = brief

    def __post_init__(self) -> None:
        choice("weights", self.weights, WEIGHTS)
        _check_passes(self)
        _check_transfers(self)

    @property
    def ranks(self) -> int:
        """Ranks of the pipeline."""
        return len(self.offsets) - 1

    @property
    def stages(self) -> int:
        """Stages of the chain, the chunks of every rank counted."""
        return int(self.placement.shape[1])

    @property
    def micro_batches(self) -> int:
        """Micro-batches that run through."""
        return len(self.route)

    @property
    def chunks(self) -> int:
        """Stages that one route has on a rank."""
        return max(self.stages // self.ranks, 1)

    @functools.cached_property
    def rank(self) -> Integers:
        """Rank of each event."""
        return np.repeat(np.arange(self.ranks), np.diff(self.offsets))

    @functools.cached_property
    def match(self) -> Integers:
        """For a send its receive and the reverse; for a sync the number of its group; else -1."""
        return _matches(self)

    def event(self, index: int) -> str:
        """An event in words.

        Examples
        --------
        >>> from costmodel.description.schedule import pipeline_schedule
        >>> pipeline_schedule("1f1b", stages=2, micro_batches=1).event(0)
        'forward of micro-batch 0 on stage 0'
        """
        kind, stage, number = int(self.kind[index]), int(self.stage[index]), int(self.micro_batch[index])
        if kind == SYNC:
            return f"sync {number} of stage {stage}"
        return f"{KINDS[kind]} of micro-batch {number} on stage {stage}"

    def order(self, rank: int) -> list[tuple[str, int, int]]:
        """Events of a rank: kind, stage, micro-batch."""
        part = slice(int(self.offsets[rank]), int(self.offsets[rank + 1]))
        columns = (self.kind[part], self.stage[part], self.micro_batch[part])
        return [(KINDS[kind], int(stage), int(number)) for kind, stage, number in zip(*columns, strict=True)]

    @functools.cached_property
    def in_flight(self) -> NDArray[np.float64]:
        """Micro-batches that each rank holds at its fullest, in units of the rank's whole depth.

        One is held from the start of its forward pass to the end of its backward pass by weights.
        """
        return self.peak(self.changes) / self.chunks

    @functools.cached_property
    def changes(self) -> NDArray[np.float64]:
        """Chunks of micro-batches that each event adds to those its rank holds."""
        change = np.zeros(len(self.kind))
        change[self.kind == FORWARD] = 1.0
        change[(self.kind == BACKWARD) | (self.kind == BACKWARD_WEIGHT)] = -1.0
        return change

    def peak(self, change: NDArray[np.float64]) -> NDArray[np.float64]:
        """Most that each rank holds, where each event changes what its rank holds by so much."""
        running = np.concatenate([[0.0], np.cumsum(change)])
        base = running[self.offsets[:-1]]
        most = [running[a : b + 1].max() for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True)]
        return np.asarray(most) - base

    @functools.cached_property
    def weight_versions(self) -> Integers:
        """Versions of its weights that each rank keeps."""
        if self.weights == "double-buffered":
            return np.full(self.ranks, 2)
        if self.weights == "flush":
            return np.ones(self.ranks, dtype=np.int64)
        return np.ceil(self.in_flight).astype(np.int64)

    @functools.cached_property
    def weight_copies(self) -> Integers:
        """Copies of a rank's share of the model on each rank: 2 where two directions meet on it."""
        held = np.zeros((self.ranks, self.stages), dtype=bool)
        for placed in self.placement:
            held[placed, np.arange(self.stages)] = True
        return np.maximum(held.sum(1) // self.chunks, 1)

    @functools.cached_property
    def staleness(self) -> Integers:
        """Updates of each stage that a micro-batch's gradient misses, at most: 0 where every step is flushed.

        Counted on the order itself: the backward passes of others on the same rank between a forward pass and its
        backward pass. Under vertical sync every stage uses the version of the first stage.
        """
        stale = np.zeros(self.stages, dtype=np.int64)
        if self.weights == "double-buffered":
            return stale + 1
        if self.weights == "flush":
            return stale
        finished = np.cumsum((self.kind == BACKWARD) | (self.kind == BACKWARD_WEIGHT))
        begun, ended = _table(self, (FORWARD,)), _table(self, (BACKWARD, BACKWARD_WEIGHT))
        stale = (finished[ended] - finished[begun] - 1).max(1)
        return np.full_like(stale, stale[0]) if self.weights == "vertical-sync" else stale

    def check(self, layers: int | None = None) -> Schedule:
        """The schedule, if it ends: no rank waits for ever with transfers that don't block.

        Parameters
        ----------
        layers : of the model, none of its stages may be without

        Raises
        ------
        IllegalSchedule
            naming the rank and the event
        """
        check_layers(self, layers)
        _check_deadlock(self)
        return self


def _chosen(schedule: Schedule, kinds: tuple[int, ...]) -> tuple[Integers, Integers]:
    """Events of these kinds, and where they stand in a table of stages x micro-batches."""
    chosen = np.flatnonzero(functools.reduce(np.logical_or, [schedule.kind == kind for kind in kinds]))
    return chosen, schedule.stage[chosen] * schedule.micro_batches + schedule.micro_batch[chosen]


def _table(schedule: Schedule, kinds: tuple[int, ...]) -> Integers:
    """Index of the event of these kinds, stages x micro-batches; -1 where there is none."""
    table = np.full((schedule.stages, schedule.micro_batches), -1)
    chosen, places = _chosen(schedule, kinds)
    table.reshape(-1)[places] = chosen
    return table


def _count(schedule: Schedule, kinds: tuple[int, ...]) -> Integers:
    """Events of these kinds, stages x micro-batches."""
    _, places = _chosen(schedule, kinds)
    shape = schedule.stages, schedule.micro_batches
    return np.bincount(places, minlength=shape[0] * shape[1]).reshape(shape)


def _refuse(schedule: Schedule, index: int, message: str) -> IllegalSchedule:
    return IllegalSchedule(int(schedule.rank[index]), schedule.event(index), message)


def _check_passes(schedule: Schedule) -> None:
    """Every pass once, where its micro-batch's route puts it, and after what it needs of the same rank."""
    s, m = schedule.stages, schedule.micro_batches
    inside = (schedule.stage >= 0) & (schedule.stage < s) & (schedule.micro_batch >= 0)
    inside &= (schedule.micro_batch < m) | (schedule.kind == SYNC)
    for index in np.flatnonzero(~inside)[:1]:
        raise _refuse(schedule, index, f"there are {s} stages and {m} micro-batches")
    moved = schedule.kind < SYNC
    placed = schedule.placement[schedule.route[np.where(moved, schedule.micro_batch, 0)], schedule.stage]
    for index in np.flatnonzero(moved & (placed != schedule.rank))[:1]:
        raise _refuse(schedule, index, f"the micro-batch's route puts this stage on rank {placed[index]}")
    splits = _table(schedule, (BACKWARD_INPUT, BACKWARD_WEIGHT)) >= 0
    wholes = _table(schedule, (BACKWARD,)) >= 0
    for name, kinds, wanted in (
        ("forward", (FORWARD,), np.ones((s, m), dtype=bool)),
        ("backward", (BACKWARD, BACKWARD_INPUT), np.ones((s, m), dtype=bool)),
        ("backward-weight", (BACKWARD_WEIGHT,), splits),
    ):
        count = _count(schedule, kinds)
        for stage, number in np.argwhere(count != wanted)[:1]:
            rank = int(schedule.placement[schedule.route[number], stage])
            event = f"{name} of micro-batch {number} on stage {stage}"
            raise IllegalSchedule(rank, event, f"it is there {count[stage, number]} times, not {int(wanted[stage, number])}")
    for stage, number in np.argwhere(splits & wholes)[:1]:
        rank = int(schedule.placement[schedule.route[number], stage])
        raise IllegalSchedule(rank, f"backward of micro-batch {number} on stage {stage}", "it is there whole and in halves")
    begun, inputs = _table(schedule, (FORWARD,)), _table(schedule, (BACKWARD, BACKWARD_INPUT))
    for stage, number in np.argwhere(inputs < begun)[:1]:
        raise _refuse(schedule, int(inputs[stage, number]), "it comes before its forward pass")
    halves = _table(schedule, (BACKWARD_WEIGHT,))
    for stage, number in np.argwhere(splits & (halves < inputs))[:1]:
        raise _refuse(schedule, int(halves[stage, number]), "it comes before its backward pass by inputs")


def _keys(schedule: Schedule, kind: int) -> tuple[Integers, Integers]:
    """Events of a kind of transfer, and a number that both ends of one transfer share."""
    shift = {SEND_FORWARD: 0, RECEIVE_FORWARD: -1, SEND_BACKWARD: 0, RECEIVE_BACKWARD: 1}[kind]
    chosen = np.flatnonzero(schedule.kind == kind)
    return chosen, (schedule.stage[chosen] + shift) * schedule.micro_batches + schedule.micro_batch[chosen]


def _matches(schedule: Schedule) -> Integers:
    match = np.full(len(schedule.kind), -1)
    for send, receive in ((SEND_FORWARD, RECEIVE_FORWARD), (SEND_BACKWARD, RECEIVE_BACKWARD)):
        table = np.full((schedule.stages + 1) * schedule.micro_batches, -1)
        sends, keys = _keys(schedule, send)
        table[keys] = sends
        receives, others = _keys(schedule, receive)
        match[receives] = table[others]
        table[others] = receives
        match[sends] = table[keys]
    syncs = np.flatnonzero(schedule.kind == SYNC)
    _, groups = np.unique(np.stack([schedule.stage[syncs], schedule.micro_batch[syncs]]), axis=1, return_inverse=True)
    match[syncs] = groups.ravel()
    return match


def _check_transfers(schedule: Schedule) -> None:
    """Every transfer has two ends, the right way round; what comes from another rank is received before it is used."""
    forward, backward = _table(schedule, (FORWARD,)), _table(schedule, (BACKWARD, BACKWARD_INPUT))
    placed = schedule.placement[schedule.route].T
    crossing = placed[:-1] != placed[1:]
    for kind, table, before, crosses in (
        (RECEIVE_FORWARD, forward, True, np.vstack([np.zeros_like(placed[:1], dtype=bool), crossing])),
        (SEND_FORWARD, forward, False, np.vstack([crossing, np.zeros_like(placed[:1], dtype=bool)])),
        (RECEIVE_BACKWARD, backward, True, np.vstack([crossing, np.zeros_like(placed[:1], dtype=bool)])),
        (SEND_BACKWARD, backward, False, np.vstack([np.zeros_like(placed[:1], dtype=bool), crossing])),
    ):
        chosen, places = _chosen(schedule, (kind,))
        count = _count(schedule, (kind,))
        for stage, number in np.argwhere(count != crosses)[:1]:
            rank = int(placed[stage, number])
            event = f"{KINDS[kind]} of micro-batch {number} on stage {stage}"
            raise IllegalSchedule(rank, event, f"it is there {count[stage, number]} times, not {int(crosses[stage, number])}")
        at = table.reshape(-1)[places]
        for wrong in np.flatnonzero((chosen > at) if before else (chosen < at))[:1]:
            passes = KINDS[int(schedule.kind[at[wrong]])]
            raise _refuse(schedule, int(chosen[wrong]), f"it comes {'after' if before else 'before'} the {passes} pass")


def check_layers(schedule: Schedule, layers: int | None) -> None:
    """No more stages than layers."""
    if layers is not None and schedule.stages > positive_int("layers", layers, MOST):
        raise IllegalSchedule(
            int(schedule.placement[0, layers]), f"forward of micro-batch 0 on stage {layers}",
            f"{schedule.stages} stages of schedule {schedule.name!r} for {layers} layers: this stage would have none",
        )  # fmt: skip


def _check_deadlock(schedule: Schedule) -> None:
    """Every rank reaches its end, where sends never wait."""
    kind, match, rank = schedule.kind.tolist(), schedule.match.tolist(), schedule.rank.tolist()
    ends = schedule.offsets[1:].tolist()
    cursor = schedule.offsets[:-1].tolist()
    sent = bytearray(len(kind))
    missing = np.bincount(schedule.match[schedule.kind == SYNC], minlength=1).tolist()
    waiting: dict[int, list[int]] = {}
    ready = list(range(schedule.ranks))
    while ready:
        r = ready.pop()
        while cursor[r] < ends[r]:
            e = cursor[r]
            if kind[e] in (RECEIVE_FORWARD, RECEIVE_BACKWARD) and not sent[match[e]]:
                break
            if kind[e] in (SEND_FORWARD, SEND_BACKWARD):
                sent[e] = 1
                other = rank[match[e]]
                if cursor[other] == match[e]:
                    ready.append(other)
            if kind[e] == SYNC:
                group = match[e]
                members = waiting.setdefault(group, [])
                if r not in members:
                    members.append(r)
                    missing[group] -= 1
                    if missing[group] == 0:
                        ready.extend(member for member in members if member != r)
                if missing[group]:
                    break
            cursor[r] += 1
    deadlocked(schedule, cursor)


def deadlocked(schedule: Schedule, cursor: Sequence[int]) -> None:
    """Refuse a schedule whose ranks got no farther than `cursor`, if that is not their end."""
    stuck = [rank for rank in range(schedule.ranks) if cursor[rank] < schedule.offsets[rank + 1]]
    if stuck:
        waits = "; ".join(f"rank {rank} at {schedule.event(cursor[rank])}" for rank in stuck[1:4])
        also = f" (also waiting: {waits}{' ...' if len(stuck) > 4 else ''})" if waits else ""
        raise IllegalSchedule(
            stuck[0], schedule.event(cursor[stuck[0]]), f"schedule {schedule.name!r} deadlocks here: it waits for ever{also}"
        )

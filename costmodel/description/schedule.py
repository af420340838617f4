"""Pipeline schedules as data: what each rank does, in which order.

A model is cut into a chain of *stages*. A rank runs one stage, or several (then each is one of its chunks). A
micro-batch follows a *route*, which says what rank runs each of its stages: plain pipelines have one route,
bidirectional ones have two, replicated stages one for each combination of replicas. Every schedule of every system is
then the same few arrays, one entry an event, the events of a rank in the order in which it meets them.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.checks import choice, flag, listing, positive_int
from costmodel.errors import IllegalSchedule, InvalidValue
from costmodel.formulas.pipeline.schedules import SCHEDULES

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
Order = list[Any]
"""Events of one rank; events in one tuple are run as one: what they need is received before all, sent after all."""


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
        _check_layers(self, layers)
        _check_deadlock(self)
        return self


def _table(schedule: Schedule, kinds: tuple[int, ...]) -> Integers:
    """Index of the event of these kinds, stages x micro-batches; -1 where there is none."""
    table = np.full((schedule.stages, schedule.micro_batches), -1)
    chosen = np.flatnonzero(np.isin(schedule.kind, kinds))
    table[schedule.stage[chosen], schedule.micro_batch[chosen]] = chosen
    return table


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
    split = np.isin(schedule.kind, (BACKWARD_INPUT, BACKWARD_WEIGHT))
    splits = np.zeros((s, m), dtype=bool)
    splits[schedule.stage[split], schedule.micro_batch[split]] = True
    wholes = _table(schedule, (BACKWARD,)) >= 0
    for name, kinds, wanted in (
        ("forward", (FORWARD,), np.ones((s, m), dtype=bool)),
        ("backward", (BACKWARD, BACKWARD_INPUT), np.ones((s, m), dtype=bool)),
        ("backward-weight", (BACKWARD_WEIGHT,), splits),
    ):
        chosen = np.isin(schedule.kind, kinds)
        count = np.zeros((s, m), dtype=np.int64)
        np.add.at(count, (schedule.stage[chosen], schedule.micro_batch[chosen]), 1)
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
        chosen = np.flatnonzero(schedule.kind == kind)
        count = np.zeros(table.shape, dtype=np.int64)
        np.add.at(count, (schedule.stage[chosen], schedule.micro_batch[chosen]), 1)
        for stage, number in np.argwhere(count != crosses)[:1]:
            rank = int(placed[stage, number])
            event = f"{KINDS[kind]} of micro-batch {number} on stage {stage}"
            raise IllegalSchedule(rank, event, f"it is there {count[stage, number]} times, not {int(crosses[stage, number])}")
        at = table[schedule.stage[chosen], schedule.micro_batch[chosen]]
        for wrong in np.flatnonzero((chosen > at) if before else (chosen < at))[:1]:
            passes = KINDS[int(schedule.kind[at[wrong]])]
            raise _refuse(schedule, int(chosen[wrong]), f"it comes {'after' if before else 'before'} the {passes} pass")


def _check_layers(schedule: Schedule, layers: int | None) -> None:
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


def _events(item: Any) -> tuple[Event, ...]:
    """The passes of one item of an order."""
    return item if isinstance(item[0], tuple) else (item,)


def _assemble(
    name: str, orders: Sequence[Order], placement: Any, route: Any, weights: str = "flush", syncs: bool = False,
) -> Schedule:  # fmt: skip
    """A schedule from the passes of each rank: receives before what needs them, sends after what makes them."""
    where, routes = np.asarray(placement, dtype=np.int64), np.asarray(route, dtype=np.int64)
    flat: list[Event] = []
    blocks: list[int] = []
    ranks: list[int] = []
    block = 0
    for rank, order in enumerate(orders):
        for item in order:
            events = _events(item)
            flat.extend(events)
            blocks.extend([block] * len(events))
            ranks.extend([rank] * len(events))
            block += 1
    kind, stage, number = np.asarray(flat, dtype=np.int64).reshape(-1, 3).T
    rank_of, block_of = np.asarray(ranks, dtype=np.int64), np.asarray(blocks, dtype=np.int64)
    last = where.shape[1] - 1
    of = routes[np.where(kind == SYNC, 0, number)]
    above = (stage > 0) & (where[of, np.maximum(stage - 1, 0)] != rank_of)
    below = (stage < last) & (where[of, np.minimum(stage + 1, last)] != rank_of)
    forward, backward = kind == FORWARD, (kind == BACKWARD) | (kind == BACKWARD_INPUT)
    parts = [(0, np.flatnonzero(forward & above), RECEIVE_FORWARD), (0, np.flatnonzero(backward & below), RECEIVE_BACKWARD)]
    parts += [(2, np.flatnonzero(forward & below), SEND_FORWARD), (2, np.flatnonzero(backward & above), SEND_BACKWARD)]
    index = np.concatenate([np.arange(len(kind)), *(chosen for _, chosen, _ in parts)])
    phase = np.concatenate([np.ones(len(kind), dtype=np.int64), *(np.full(len(chosen), p) for p, chosen, _ in parts)])
    kinds = np.concatenate([kind, *(np.full(len(chosen), k) for _, chosen, k in parts)])
    ordered = np.lexsort((index, phase, block_of[index]))
    index, kinds = index[ordered], kinds[ordered]
    counts = np.bincount(rank_of[index], minlength=len(orders))
    columns = [kinds, stage[index], number[index]]
    if syncs:
        columns, counts = _append_syncs(columns, counts, where)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return Schedule(
        name=name, placement=where, route=routes, offsets=offsets, kind=columns[0], stage=columns[1],
        micro_batch=columns[2], weights=weights,
    )  # fmt: skip


def _append_syncs(columns: list[Integers], counts: Integers, placement: Integers) -> tuple[list[Integers], Integers]:
    """A sync of each of its stages at the end of each rank, in the order of the stages."""
    ends = np.cumsum(counts)
    added = [(rank, stage) for rank in range(len(counts)) for stage in np.unique(np.argwhere(placement == rank)[:, 1])]
    at = [ends[rank] for rank, _ in added]
    values = ([SYNC] * len(added), [stage for _, stage in added], [0] * len(added))
    grown = [np.insert(column, at, value) for column, value in zip(columns, values, strict=True)]
    return grown, counts + np.bincount([rank for rank, _ in added], minlength=len(counts))


# Orders


def _halves(stage: int, number: int) -> tuple[Event, Event]:
    return (BACKWARD_INPUT, stage, number), (BACKWARD_WEIGHT, stage, number)


def _gpipe(p: int, m: int) -> list[Order]:
    return [[(FORWARD, r, i) for i in range(m)] + [(BACKWARD, r, i) for i in range(m)] for r in range(p)]


def _alternating(numbers: Sequence[int], stage: int, warm: int) -> Order:
    """So many forward passes ahead, then one forward and one backward pass in turn."""
    order: Order = [(FORWARD, stage, i) for i in numbers[:warm]]
    for i, ahead in zip(numbers, (*numbers[warm:], *([None] * warm)), strict=False):
        if ahead is not None:
            order.append((FORWARD, stage, ahead))
        order.append((BACKWARD, stage, i))
    return order


def _one_f_one_b(p: int, m: int) -> list[Order]:
    return [_alternating(range(m), r, min(m, p - 1 - r)) for r in range(p)]


def _interleaved(p: int, m: int, v: int) -> list[Order]:
    """Megatron-LM's order: groups of p micro-batches go through one chunk after the other.

    Where p does not divide them, which Megatron-LM refuses as its order would deadlock: the order of the next multiple
    less those that are not there.
    """
    many = -(-m // p) * p
    table = [(chunk, i) for first in range(0, many, p) for chunk in range(v) for i in range(first, first + p)]
    orders = []
    for r in range(p):
        forwards = [(FORWARD, chunk * p + r, i) for chunk, i in table]
        backwards = [(BACKWARD, (v - 1 - chunk) * p + r, i) for chunk, i in table]
        warm = min(many * v, 2 * (p - r - 1) + (v - 1) * p)
        steady = [event for pair in zip(forwards[warm:], backwards, strict=False) for event in pair]
        order = forwards[:warm] + steady + backwards[many * v - warm :]
        orders.append([event for event in order if event[2] < m])
    return orders


def _breadth_first(p: int, m: int, v: int) -> list[Order]:
    """All micro-batches through one chunk, then through the next."""
    forwards = [(chunk, i) for chunk in range(v) for i in range(m)]
    backwards = [(chunk, i) for chunk in range(v - 1, -1, -1) for i in range(m)]
    return [
        [(FORWARD, c * p + r, i) for c, i in forwards] + [(BACKWARD, c * p + r, i) for c, i in backwards] for r in range(p)
    ]


def _zero_bubble(p: int, m: int, depth: int) -> list[Order]:
    """`depth` forward passes more on each rank nearer to the first; weight passes wait until all ranks hold the same."""
    orders = []
    for r in range(p):
        warm = min(m, depth * (p - 1 - r))
        order: Order = [(FORWARD, r, i) for i in range(warm)]
        for i in range(m):
            if warm + i < m:
                order.append((FORWARD, r, warm + i))
            order.append((BACKWARD_INPUT, r, i))
            if i >= depth * r:
                order.append((BACKWARD_WEIGHT, r, i - depth * r))
        order += [(BACKWARD_WEIGHT, r, i) for i in range(max(m - depth * r, 0), m)]
        orders.append(order)
    return orders


def _zero_bubble_v(p: int, m: int) -> list[Order]:
    """Two chunks a rank, down and up again; the order is that of at least 2 p - 1 micro-batches, less those not there."""
    many = max(m, 2 * p - 1)
    orders = []
    for r in range(p):
        down, up = r, 2 * p - 1 - r
        order: Order = []
        ahead = 2 * (p - r) - 1
        forward = {down: iter(range(many)), up: iter(range(many))}
        inputs = {down: iter(range(many)), up: iter(range(many))}
        order += [(FORWARD, down, next(forward[down])) for _ in range(ahead)]
        for _ in range(r):
            order += [(FORWARD, up, next(forward[up])), (FORWARD, down, next(forward[down]))]
        for _ in range(p - r):
            order += [(FORWARD, up, next(forward[up])), *_halves(up, next(inputs[up]))]
        for _ in range(many - p):
            i = next(forward[down], None)
            order += [] if i is None else [(FORWARD, down, i)]
            order += _halves(down, next(inputs[down]))
            order += [(FORWARD, up, next(forward[up])), *_halves(up, next(inputs[up]))]
        late = {down: many - p, up: many - r}
        for _ in range(r):
            order += [(BACKWARD_INPUT, down, next(inputs[down])), (BACKWARD_INPUT, up, next(inputs[up]))]
        for i in range(late[down], late[down] + p - r):
            order += [(BACKWARD_INPUT, down, next(inputs[down])), (BACKWARD_WEIGHT, down, i)]
        order += [(BACKWARD_WEIGHT, up, i) for i in range(late[up], many)]
        order += [(BACKWARD_WEIGHT, down, i) for i in range(late[down] + p - r, many)]
        orders.append([event for event in order if event[2] < m])
    return orders


def _both_ways(p: int) -> list[list[int]]:
    return [list(range(p)), list(range(p - 1, -1, -1))]


def _dualpipe(p: int, m: int) -> list[Order]:
    """DeepSeek's eight steps; a forward and a backward pass of opposite directions run as one.

    Its code wants an even number of at least 2 p micro-batches; of others, the order is that of so many less those that
    are not there.
    """
    half, middle, shared = max(-(-m // 2), p), p // 2, -(-m // 2)
    orders = []
    for r in range(p):
        near = min(r, p - 1 - r)
        far = middle - near - 1
        side = _Side(r, p, half)
        order: Order = [side.forward(0) for _ in range(2 * far)]
        for _ in range(near + 1):
            order += [side.forward(0), side.forward(1)]
        for _ in range(far):
            order += [side.inputs(1), side.weights(), side.forward(1)]
        for i in range(half - p + near + 1):
            first = (side.forward(0), side.backward(1))
            order += [*first] if i == 0 and far == 0 else [first]
            order.append((side.forward(1), side.backward(0)))
        for _ in range(far):
            order.append(side.backward(1))
            order.append((side.forward(1), side.backward(0)))
        for i in range(2 * (near + 1)):
            order.append((side.inputs if i > near else side.backward)(1 - i % 2))
        for _ in range(far):
            order += [side.weights(), side.inputs(0)]
        orders.append(_kept(order + [side.weights() for _ in range(near + 1)], half, (shared, m - shared)))
    return orders


class _Side:
    """The passes of one rank of a bidirectional pipeline; direction 0 is the one that starts on its half."""

    def __init__(self, rank: int, ranks: int, half: int):
        self.ways = (0, 1) if rank < ranks // 2 else (1, 0)
        self.stages = (rank, ranks - 1 - rank)
        self.half = half
        self.next = {FORWARD: [0, 0], BACKWARD: [0, 0]}
        self.waiting: list[Event] = []

    def _take(self, kind: int, direction: int) -> Event:
        way = self.ways[direction]
        self.next[kind][way] += 1
        return kind, self.stages[way], way * self.half + self.next[kind][way] - 1

    def forward(self, direction: int) -> Event:
        return self._take(FORWARD, direction)

    def backward(self, direction: int) -> Event:
        return self._take(BACKWARD, direction)

    def inputs(self, direction: int) -> Event:
        _, stage, number = self._take(BACKWARD, direction)
        self.waiting.append((BACKWARD_WEIGHT, stage, number))
        return BACKWARD_INPUT, stage, number

    def weights(self) -> Event:
        return self.waiting.pop(0)


def _kept(order: Order, half: int, shares: tuple[int, int]) -> Order:
    """An order of `half` micro-batches each way with the first of each way only, numbered anew."""
    kept: Order = []
    for item in order:
        block = []
        for kind, stage, number in _events(item):
            way, i = divmod(number, half)
            if i < shares[way]:
                block.append((kind, stage, way * shares[0] + i))
        if block:
            kept.append(tuple(block))
    return kept


def _chimera(p: int, m: int, pairs: int) -> tuple[list[Order], list[list[int]], list[int]]:
    """Units of p micro-batches, split over `pairs` pipelines each way, each pass in a slot that no other has."""
    slots: list[list[tuple[int, Event]]] = [[] for _ in range(p)]
    shift = p // pairs
    turned = [[(rank + pair * shift) % p for rank in way] for way in _both_ways(p) for pair in range(pairs)]
    route: list[int] = []
    for unit in range(0, m, p):
        share = math.ceil(min(p, m - unit) / (2 * pairs))
        for k in range(min(p, m - unit)):
            path, i = k // share, k % share
            route.append(path)
            for s, r in enumerate(turned[path]):
                slots[r].append((2 * unit + s + 2 * i, (FORWARD, s, unit + k)))
                slots[r].append((2 * unit + 2 * p - 1 - s + 2 * i, (BACKWARD, s, unit + k)))
    return [[event for _, event in sorted(rank)] for rank in slots], turned, route


def _synced(order: Order, every: int) -> Order:
    """An order with a sync of its stage after every so many backward passes."""
    grown: Order = []
    passed = 0
    for event in order:
        grown.append(event)
        if event[0] == BACKWARD:
            passed += 1
            if passed % every == 0:
                grown.append((SYNC, event[1], passed // every - 1))
    return grown


def _round_robin(replicas: Sequence[int], m: int, syncs: bool) -> tuple[list[Order], list[list[int]], list[int]]:
    """1F1B-RR: each replica of a stage takes every so many-th minibatch, and keeps enough in flight to stay busy."""
    first = np.concatenate([[0], np.cumsum(replicas)]).tolist()
    workers, period = first[-1], math.lcm(*replicas)
    placement = [[first[s] + path % n for s, n in enumerate(replicas)] for path in range(period)]
    orders = []
    for s, n in enumerate(replicas):
        ahead = -(-(workers - first[s]) // n) - 1
        each = [_alternating(range(j, m, n), s, min(ahead, len(range(j, m, n)))) for j in range(n)]
        orders += [_synced(order, 1) for order in each] if syncs and n > 1 else each
    return orders, placement, [i % period for i in range(m)]


NAMES = tuple(SCHEDULES)
CHUNKED = tuple(name for name, traits in SCHEDULES.items() if traits.chunked)


def pipeline_schedule(
    name: str, *, stages: int, micro_batches: int, chunks: int = 1, layers: int | None = None,
    replicas: Sequence[int] | None = None, pairs: int = 1, vertical_sync: bool = False, syncs: bool = False,
) -> Schedule:  # fmt: skip
    """A schedule of a kind by its name, for so many ranks and micro-batches.

    ==================  ================================================================================
    ``gpipe``           all forward passes, then all backward passes [huang2019]_
    ``1f1b``            one forward, one backward in turn, then a flush [narayanan2021]_
    ``interleaved``     the same with several chunks a rank, in Megatron-LM's order [narayanan2021]_
    ``breadth-first``   chunk after chunk, each with all micro-batches [lamypoirier2023]_
    ``zb-h1``           backward by weights apart, delayed, in the memory of 1F1B [qi2023]_
    ``zb-h2``           the same with enough in flight to leave no bubble [qi2023]_
    ``zb-v``            two chunks a rank, down and up again [qi2024]_, in the order of PyTorch
    ``dualpipe``        both directions at once, in the order of DeepSeek's code [deepseek2024v3]_
    ``chimera``         both directions at once, in units of as many micro-batches as ranks [li2021]_
    ``pipedream``       1F1B-RR without flush, weights stashed [narayanan2019]_
    ``pipedream-2bw``   1F1B without flush, two versions of the weights [narayanan2020]_
    ==================  ================================================================================

    Parameters
    ----------
    name : one of `NAMES`
    stages : of the pipeline: its ranks, but for replicas
    micro_batches : that run through it
    chunks : stages of the chain on each rank, for ``interleaved`` and ``breadth-first``; ``zb-v`` always has two
    layers : of the model; refused if a stage would have none
    replicas : of each stage, for ``pipedream``
    pairs : pipelines in each direction, for ``chimera``
    vertical_sync : a minibatch meets the same version of the weights on every stage, for ``pipedream``
    syncs : whether gradients are summed: at the end of each rank for each of its stages; ``pipedream-2bw`` after every
        `stages` micro-batches; ``pipedream`` after every minibatch, on replicated stages

    Returns
    -------
    Schedule
        which ends: no rank waits for ever

    Raises
    ------
    InvalidValue
        where an argument is not what it should be
    IllegalSchedule
        naming the rank and the event, where there are more stages than layers

    Examples
    --------
    >>> pipeline_schedule("1f1b", stages=2, micro_batches=2).order(1)[:3]
    [('receive-forward', 1, 0), ('forward', 1, 0), ('backward', 1, 0)]
    >>> pipeline_schedule("zb-h2", stages=4, micro_batches=8).in_flight.tolist()
    [7.0, 7.0, 7.0, 7.0]
    """
    choice("name", name, NAMES)
    p, m = positive_int("stages", stages, MOST), positive_int("micro_batches", micro_batches, MOST)
    v = positive_int("chunks", chunks, MOST)
    flag("syncs", syncs)
    if v > 1 and name not in CHUNKED:
        raise InvalidValue("chunks", v, f"1, as schedule {name!r} sets its own; more with " + " or ".join(CHUNKED))
    if replicas is not None and name != "pipedream":
        raise InvalidValue("replicas", replicas, "None: only schedule 'pipedream' replicates single stages")
    if pairs != 1 and name != "chimera":
        raise InvalidValue("pairs", pairs, "1: only schedule 'chimera' runs several pipelines in each direction")
    if flag("vertical_sync", vertical_sync) and name != "pipedream":
        raise InvalidValue("vertical_sync", vertical_sync, "False: only schedule 'pipedream' has it")
    built = _build(name, p, m, v, replicas, pairs, "vertical-sync" if vertical_sync else "stashed", syncs)
    _check_layers(built, layers)
    return built


def _build(
    name: str, p: int, m: int, v: int, replicas: Sequence[int] | None, pairs: int, stashing: str, syncs: bool,
) -> Schedule:  # fmt: skip
    line, one = [list(range(p))], [0] * m
    if name in ("gpipe", "1f1b", "zb-h1", "zb-h2"):
        orders = {
            "gpipe": lambda: _gpipe(p, m), "1f1b": lambda: _one_f_one_b(p, m),
            "zb-h1": lambda: _zero_bubble(p, m, 1), "zb-h2": lambda: _zero_bubble(p, m, 2),
        }[name]()  # fmt: skip
        return _assemble(name, orders, line, one, syncs=syncs)
    if name == "pipedream-2bw":
        orders = _one_f_one_b(p, m)
        return _assemble(name, [_synced(order, p) for order in orders] if syncs else orders, line, one, "double-buffered")
    if name in CHUNKED:
        orders = _interleaved(p, m, v) if name == "interleaved" else _breadth_first(p, m, v)
        return _assemble(name, orders, [line[0] * v], one, syncs=syncs)
    if name == "zb-v":
        return _assemble(name, _zero_bubble_v(p, m), [line[0] + line[0][::-1]], one, syncs=syncs)
    if name == "dualpipe":
        if p % 2:
            raise InvalidValue("stages", p, "an even number: two of dualpipe's stages meet on a rank")
        first = -(-m // 2)
        return _assemble(name, _dualpipe(p, m), _both_ways(p), [0] * first + [1] * (m - first), syncs=syncs)
    if name == "chimera":
        if p % 2 or p % (2 * positive_int("pairs", pairs, MOST)):
            raise InvalidValue("stages", p, f"a multiple of twice the {pairs} pairs of pipelines")
        orders, placement, route = _chimera(p, m, pairs)
        return _assemble(name, orders, placement, route, syncs=syncs)
    each = [1] * p if replicas is None else [positive_int("replicas", n, MOST) for n in listing("replicas", replicas)]
    if len(each) != p:
        raise InvalidValue("replicas", replicas, f"as many numbers as the {p} stages")
    orders, placement, route = _round_robin(each, m, syncs)
    return _assemble(name, orders, placement, route, stashing)


def custom_schedule(
    orders: Iterable[Iterable[Event]], *, placement: Sequence[Sequence[int]] | None = None,
    route: Sequence[int] | None = None, name: str = "custom", weights: str = "flush", layers: int | None = None,
) -> Schedule:  # fmt: skip
    """A schedule from the passes of each rank; sends and receives are put in.

    Parameters
    ----------
    orders : for each rank its passes, each the kind (`FORWARD`, `BACKWARD`, `BACKWARD_INPUT`, `BACKWARD_WEIGHT`), the
        stage and the micro-batch; passes in one tuple run as one
    placement : rank of each stage, routes x stages; stage r on rank r if None
    route : of each micro-batch; all 0 if None
    name : of the schedule
    weights : one of `WEIGHTS`
    layers : of the model; refused if a stage would have none

    Returns
    -------
    Schedule
        checked: every pass is there once and after what it needs, and no rank waits for ever

    Raises
    ------
    IllegalSchedule
        naming the rank and the event

    Examples
    --------
    >>> custom_schedule([[(BACKWARD, 0, 0), (FORWARD, 0, 0)]])
    Traceback (most recent call last):
    ...
    costmodel.errors.IllegalSchedule: rank 0, backward of micro-batch 0 on stage 0: it comes before its forward pass
    """
    listed = [list(order) for order in orders]
    where = [list(range(len(listed)))] if placement is None else placement
    flat = [(rank, *event) for rank, order in enumerate(listed) for item in order for event in _events(item)]
    if not flat:
        raise InvalidValue("orders", orders, "passes of at least one rank")
    count = 1 + max(number for *_, number in flat)
    for rank, kind, stage, number in flat:
        if kind not in (FORWARD, BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT):
            raise InvalidValue("orders", (kind, stage, number), "passes; sends and receives are put in by themselves")
        if not 0 <= stage < len(where[0]) or number < 0:
            event = f"{KINDS[kind]} of micro-batch {number} on stage {stage}"
            raise IllegalSchedule(rank, event, f"there are {len(where[0])} stages")
    return _assemble(name, listed, where, [0] * count if route is None else route, weights).check(layers)

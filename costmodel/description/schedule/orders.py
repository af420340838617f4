"""In which order each rank of a pipeline runs its passes, under every schedule of the table.

``p`` ranks, ``m`` micro-batches, ``v`` chunks of the model on a rank.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from costmodel.description.schedule.assembly import Block, Order, assemble, events_of
from costmodel.description.schedule.events import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    MOST,
    SYNC,
    Event,
    Integers,
    Schedule,
    check_layers,
)
from costmodel.formulas.pipeline.orders import pass_in_turn, passes_in_turn
from costmodel.formulas.pipeline.schedules import CODES, SCHEDULES
from costmodel.text.checks import choice, flag, listing, positive_int
from costmodel.text.errors import InvalidValue

NAMES = tuple(SCHEDULES)
CHUNKED = tuple(name for name, traits in SCHEDULES.items() if traits.chunked)

MOST_RANKS, MOST_PASSES = 10_000, 1_000_000
"""Of a schedule: ranks, and micro-batches of all stages, about three seconds of work."""
BY_HAND = {"zb-v": 3, "dualpipe": 3, "chimera": 3}
"""Schedules whose orders are written pass by pass, and how many times the work of the others that is."""


def _halves(stage: int, number: int) -> tuple[Event, Event]:
    return (BACKWARD_INPUT, stage, number), (BACKWARD_WEIGHT, stage, number)


def _events(kind: int, stage: int | Integers, numbers: Integers) -> Integers:
    """Passes of one kind, a line each."""
    return np.stack([np.full_like(numbers, kind), np.broadcast_to(stage, numbers.shape), numbers], axis=1)


def _in_turn(first: Integers, second: Integers) -> Integers:
    """One of the first, one of the second, and so on; as many of both."""
    return np.stack([first, second], axis=1).reshape(-1, 3)


def _gpipe(p: int, m: int) -> list[Integers]:
    numbers = np.arange(m)
    return [np.concatenate([_events(FORWARD, r, numbers), _events(BACKWARD, r, numbers)]) for r in range(p)]


def _alternating(numbers: Integers, stage: int, warm: int) -> Integers:
    """So many forward passes ahead, then one forward and one backward pass in turn."""
    forwards, backwards = _events(FORWARD, stage, numbers), _events(BACKWARD, stage, numbers)
    steady = len(numbers) - warm
    return np.concatenate([forwards[:warm], _in_turn(forwards[warm:], backwards[:steady]), backwards[steady:]])


def _turns(name: str, p: int, m: int, v: int = 1) -> list[Integers]:
    """One forward, one backward in turn, chunk by chunk in Megatron-LM's rounds where there are several.

    Megatron-LM refuses rounds that p does not divide, as its order would deadlock: here the order is that of the next multiple
    less those that are not there.
    """
    asked = CODES[name], float(p), float(v), float(m)
    places: Any = np.arange(2.0 * passes_in_turn(*asked))  # a column where a number may be
    orders = []
    for r in range(p):
        backward, stage, number = pass_in_turn(*asked, float(r), places)
        order = np.stack([np.where(backward > 0.0, BACKWARD, FORWARD), stage, number], axis=1).astype(np.int64)
        orders.append(order[order[:, 2] < m])
    return orders


def _breadth_first(p: int, m: int, v: int) -> list[Integers]:
    """All micro-batches through one chunk, then through the next."""
    chunk, numbers = (axis.ravel() for axis in np.indices((v, m)))
    return [
        np.concatenate([_events(FORWARD, chunk * p + r, numbers), _events(BACKWARD, (v - 1 - chunk) * p + r, numbers)])
        for r in range(p)
    ]


def _zero_bubble(p: int, m: int, depth: int) -> list[Integers]:
    """`depth` forward passes more on each rank nearer to the first; weight passes wait until all ranks hold the same."""
    numbers = np.arange(m)
    orders = []
    for r in range(p):
        warm = min(m, depth * (p - 1 - r))
        passes = [_events(kind, r, numbers) for kind in (FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT)]
        turns = np.stack([numbers - warm, numbers, numbers + depth * r])  # of which backward pass by inputs each has
        orders.append(np.concatenate(passes)[np.argsort((3 * turns + np.arange(3)[:, None]).ravel(), kind="stable")])
    return orders


def _zero_bubble_v(p: int, m: int) -> list[Integers]:
    """Two chunks a rank, down and up again; the order is that of at least 2 p - 1 micro-batches, less those not there."""
    many = max(m, 2 * p - 1)
    orders = []
    for r in range(p):
        down, up = r, 2 * p - 1 - r
        order: list[Event] = []
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
        made = np.array(order)
        orders.append(made[made[:, 2] < m])
    return orders


def _both_ways(p: int) -> list[list[int]]:
    return [list(range(p)), list(range(p - 1, -1, -1))]


def _dualpipe(p: int, m: int) -> list[list[Block]]:
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
        order: list[Event | Block] = [side.forward(0) for _ in range(2 * far)]
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


def _kept(order: Order, half: int, shares: tuple[int, int]) -> list[Block]:
    """An order of `half` micro-batches each way with the first of each way only, numbered anew."""
    kept: list[Block] = []
    for item in order:
        block = []
        for kind, stage, number in events_of(item):
            way, i = divmod(number, half)
            if i < shares[way]:
                block.append((kind, stage, way * shares[0] + i))
        if block:
            kept.append(tuple(block))
    return kept


def _chimera(p: int, m: int, pairs: int) -> tuple[list[list[Event]], list[list[int]], list[int]]:
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


def _synced(order: Integers, every: int) -> Integers:
    """An order with a sync of its stage after every so many backward passes."""
    passed = np.cumsum(order[:, 0] == BACKWARD)
    at = np.flatnonzero((order[:, 0] == BACKWARD) & (passed % every == 0))
    return np.insert(order, at + 1, np.stack([np.full_like(at, SYNC), order[at, 1], passed[at] // every - 1], axis=1), axis=0)


def _round_robin(replicas: Sequence[int], m: int, syncs: bool) -> tuple[list[Integers], list[list[int]], list[int]]:
    """1F1B-RR: each replica of a stage takes every so many-th minibatch, and keeps enough in flight to stay busy."""
    first = np.concatenate([[0], np.cumsum(replicas)]).tolist()
    workers, period = first[-1], min(math.lcm(*replicas), m)
    placement = [[first[s] + path % n for s, n in enumerate(replicas)] for path in range(period)]
    orders = []
    for s, n in enumerate(replicas):
        ahead = -(-(workers - first[s]) // n) - 1
        each = [_alternating(np.arange(j, m, n), s, min(ahead, len(range(j, m, n)))) for j in range(n)]
        orders += [_synced(order, 1) for order in each] if syncs and n > 1 else each
    return orders, placement, [i % period for i in range(m)]


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
        where an argument is not what it should be, or the schedule has more than `MOST_RANKS` ranks, or more than
        `MOST_PASSES` micro-batches of all stages together: a third of that where its order is written pass by pass
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
    _check_work(name, p, m, v, replicas)
    built = _build(name, p, m, v, replicas, pairs, "vertical-sync" if vertical_sync else "stashed", syncs)
    check_layers(built, layers)
    return built


def _check_work(name: str, p: int, m: int, v: int, replicas: Sequence[int] | None) -> None:
    """Refuse a schedule of more than `MOST_RANKS` ranks, or `MOST_PASSES` micro-batches of all stages together."""
    positive_int("stages", p, MOST_RANKS)
    if replicas is not None:
        each = [positive_int("replicas", n, MOST_RANKS) for n in listing("replicas", replicas)]
        if sum(each) > MOST_RANKS:
            raise InvalidValue("replicas", sum(each), f"at most {MOST_RANKS} ranks in all")
    # some orders are those of more micro-batches, less those that are not there
    least = {"interleaved": p, "zb-v": 2 * p - 1, "dualpipe": 2 * p}.get(name, 1)
    stages = p * (v if name in CHUNKED else 2 if name == "zb-v" else 1)
    most = MOST_PASSES // BY_HAND.get(name, 1) // stages
    if least > most:
        raise InvalidValue("stages", p, f"fewer: a schedule of {name!r} with as many has too many passes")
    if m > most:
        raise InvalidValue("micro_batches", m, f"at most {most} on {stages} stages, in a schedule of {name!r}")


def _build(
    name: str, p: int, m: int, v: int, replicas: Sequence[int] | None, pairs: int, stashing: str, syncs: bool,
) -> Schedule:  # fmt: skip
    line, one = [list(range(p))], [0] * m
    orders: Sequence[Order]
    if name in ("gpipe", "1f1b", "zb-h1", "zb-h2"):
        orders = {
            "gpipe": lambda: _gpipe(p, m), "1f1b": lambda: _turns(name, p, m),
            "zb-h1": lambda: _zero_bubble(p, m, 1), "zb-h2": lambda: _zero_bubble(p, m, 2),
        }[name]()  # fmt: skip
        return assemble(name, orders, line, one, syncs=syncs)
    if name == "pipedream-2bw":
        orders = _turns("1f1b", p, m)
        return assemble(name, [_synced(order, p) for order in orders] if syncs else orders, line, one, "double-buffered")
    if name in CHUNKED:
        orders = _turns(name, p, m, v) if name == "interleaved" else _breadth_first(p, m, v)
        return assemble(name, orders, [line[0] * v], one, syncs=syncs)
    if name == "zb-v":
        return assemble(name, _zero_bubble_v(p, m), [line[0] + line[0][::-1]], one, syncs=syncs)
    if name == "dualpipe":
        if p % 2:
            raise InvalidValue("stages", p, "an even number: two of dualpipe's stages meet on a rank")
        first = -(-m // 2)
        return assemble(name, _dualpipe(p, m), _both_ways(p), [0] * first + [1] * (m - first), syncs=syncs)
    if name == "chimera":
        if p % 2 or p % (2 * positive_int("pairs", pairs, MOST)):
            raise InvalidValue("stages", p, f"a multiple of twice the {pairs} pairs of pipelines")
        orders, placement, route = _chimera(p, m, pairs)
        return assemble(name, orders, placement, route, syncs=syncs)
    each = [1] * p if replicas is None else list(replicas)
    if len(each) != p:
        raise InvalidValue("replicas", replicas, f"as many numbers as the {p} stages")
    orders, placement, route = _round_robin(each, m, syncs)
    return assemble(name, orders, placement, route, stashing)

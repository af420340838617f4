"""A schedule from the passes of each rank, in order: sends, receives and syncs are put in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from costmodel.description.schedule.events import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    KINDS,
    RECEIVE_BACKWARD,
    RECEIVE_FORWARD,
    SEND_BACKWARD,
    SEND_FORWARD,
    SYNC,
    Event,
    Integers,
    Schedule,
)
from costmodel.text.checks import listing, plain, whole
from costmodel.text.errors import IllegalSchedule, InvalidValue

if TYPE_CHECKING:
    from typing_extensions import TypeIs  # of the type checker's own

Block = tuple[Event, ...]
"""Events that run as one: what they need is received before all, sent after all."""
Order = Sequence[Event | Block] | Integers
"""What one rank runs, in order: events and blocks of them, or kind, stage and micro-batch of each, a line an event."""


def _is_block(item: Event | Block) -> TypeIs[Block]:
    return isinstance(item[0], tuple)


def events_of(item: Event | Block) -> tuple[Event, ...]:
    """The passes of one item of an order."""
    return item if _is_block(item) else (item,)


def assemble(
    name: str, orders: Sequence[Order], placement: ArrayLike, route: ArrayLike, weights: str = "flush", syncs: bool = False,
) -> Schedule:  # fmt: skip
    """A schedule from the passes of each rank: receives before what needs them, sends after what makes them."""
    where, routes = np.asarray(placement, dtype=np.int64), np.asarray(route, dtype=np.int64)
    columns = [_columns(order) for order in orders]
    kind, stage, number = np.concatenate([events for events, _ in columns]).T
    rank_of = np.repeat(np.arange(len(columns)), [len(events) for events, _ in columns])
    before = np.cumsum([0, *(int(blocks[-1]) + 1 if len(blocks) else 0 for _, blocks in columns)])
    block_of = np.concatenate([blocks for _, blocks in columns]) + before[rank_of]
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
    ordered = np.argsort((3 * block_of[index] + phase) * len(kind) + index)
    index, kinds = index[ordered], kinds[ordered]
    counts = np.bincount(rank_of[index], minlength=len(orders))
    made = [kinds, stage[index], number[index]]
    if syncs:
        made, counts = _append_syncs(made, counts, where)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return Schedule(
        name=name, placement=where, route=routes, offsets=offsets, kind=made[0], stage=made[1],
        micro_batch=made[2], weights=weights,
    )  # fmt: skip


def _columns(order: Order) -> tuple[Integers, Integers]:
    """Kind, stage and micro-batch of each event of an order, a line an event, and the number of its block."""
    if isinstance(order, np.ndarray):
        return order, np.arange(len(order))
    blocks = [events_of(item) for item in order]
    events = np.array([event for block in blocks for event in block], dtype=np.int64).reshape(-1, 3)
    return events, np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])


def _append_syncs(columns: list[Integers], counts: Integers, placement: Integers) -> tuple[list[Integers], Integers]:
    """A sync of each of its stages at the end of each rank, in the order of the stages."""
    ends = np.cumsum(counts)
    added = [(rank, stage) for rank in range(len(counts)) for stage in np.unique(np.argwhere(placement == rank)[:, 1])]
    at = [ends[rank] for rank, _ in added]
    values = ([SYNC] * len(added), [stage for _, stage in added], [0] * len(added))
    grown = [np.insert(column, at, value) for column, value in zip(columns, values, strict=True)]
    return grown, counts + np.bincount([rank for rank, _ in added], minlength=len(counts))


def custom_schedule(
    orders: Iterable[Iterable[Event | Block]], *, placement: Sequence[Sequence[int]] | None = None,
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
    InvalidValue
        where an argument is not what it should be
    IllegalSchedule
        naming the rank and the event

    Examples
    --------
    >>> custom_schedule([[(BACKWARD, 0, 0), (FORWARD, 0, 0)]])
    Traceback (most recent call last):
    ...
    costmodel.text.errors.IllegalSchedule: rank 0, backward of micro-batch 0 on stage 0: it comes before its forward pass
    """
    each = list(orders) if isinstance(orders, Iterable) else [orders]
    if not all(isinstance(order, Iterable) for order in each):
        raise InvalidValue("orders", orders, "an order of passes for each rank")
    listed = [list(order) for order in each]
    where = [list(range(len(listed)))] if placement is None else _placed(placement, len(listed))
    flat = [(rank, *event) for rank, order in enumerate(listed) for item in order for event in events_of(item)]
    if not flat:
        raise InvalidValue("orders", orders, "passes of at least one rank")
    count = 1 + max(number for *_, number in flat)
    for rank, kind, stage, number in flat:
        if kind not in (FORWARD, BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT):
            raise InvalidValue("orders", (kind, stage, number), "passes; sends and receives are put in by themselves")
        if not 0 <= stage < len(where[0]) or number < 0:
            event = f"{KINDS[kind]} of micro-batch {number} on stage {stage}"
            raise IllegalSchedule(rank, event, f"there are {len(where[0])} stages")
    if count > len(flat):
        raise InvalidValue("orders", f"micro-batch {count - 1}", f"passes of each before it, of which {len(flat)} are given")
    routes = [0] * count if route is None else _routed(route, count, len(where))
    return assemble(name, listed, where, routes, weights).check(layers)


def _placed(placement: object, ranks: int) -> list[list[int]]:
    """The rank of each stage on every route, checked."""
    each = [listing("placement", _listed(route)) for route in listing("placement", _listed(placement))]
    routes = [[whole("placement", plain(rank), ranks - 1) for rank in route] for route in each]
    if not routes or not routes[0] or len({len(route) for route in routes}) > 1:
        raise InvalidValue("placement", placement, "as many ranks, at least one, for each route")
    return routes


def _routed(route: object, micro_batches: int, routes: int) -> list[int]:
    """The route of each micro-batch, checked."""
    found = [whole("route", plain(one), routes - 1) for one in listing("route", _listed(route))]
    if len(found) != micro_batches:
        raise InvalidValue("route", f"{len(found)} numbers", f"one for each of {micro_batches} micro-batches")
    return found


def _listed(value: object) -> object:
    """A list in place of an array."""
    return value.tolist() if isinstance(value, np.ndarray) else value

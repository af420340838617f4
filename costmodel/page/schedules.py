"""In which order the ranks of a page's plans run their passes: tables, made by the library's one definition of each schedule."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from costmodel.arithmetic.named_tuples import Row
from costmodel.description.plan import SCHEDULES, Plan
from costmodel.description.question import Question
from costmodel.description.schedule import KINDS, Integers, Schedule
from costmodel.page.question import Asked
from costmodel.simulation.playback import schedule_of, stage_layers, syncs_of
from costmodel.text.errors import IllegalSchedule, InvalidValue

MOST_EVENTS = 250_000
"""Of a step that a page plays: so many are played in a blink."""
EVENTS = 6
"""Of a micro-batch on a stage at most: two passes, two sends and two receives."""
MOST_BYTES = 300_000
"""Of all tables of a page; the plans that come first have theirs."""
PERIODIC = ("1f1b", "interleaved")
"""Schedules in whose middle every rank runs the same again for the next as many micro-batches as there are ranks."""
ENDS = 4
"""Such turns that warming up and draining take at most, with one of the middle."""


class Repeat(NamedTuple):
    """How a table grows by a turn: what lies before some event of a rank comes again, for later micro-batches.

    Parameters
    ----------
    micro_batches : of a turn
    cuts : for each rank the event before which a turn is put in
    lengths : for each rank the events of a turn, which are those just before
    """

    micro_batches: int
    cuts: list[int]
    lengths: list[int]


def orders(question: Asked, plans: Iterable[Plan]) -> Row:
    """The events of every rank for the schedules of some plans, the layers of every stage, and the syncs of a rank.

    Parameters
    ----------
    question : that was asked
    plans : of the page

    Returns
    -------
    dict
        ``tables``, and in ``of`` the place of a table and how many turns it grows by, under the code of a schedule, its ranks,
        chunks of a rank and micro-batches, with a bar between them; without those of more than `MOST_EVENTS`, and as far as
        `MOST_BYTES` go
    """
    asked = Question(question.model, question.cluster, question.framework)
    tables: list[Row] = []
    of: dict[str, tuple[int, int]] = {}
    places: dict[str, int] = {}
    room = MOST_BYTES
    for plan in plans:
        size = plan.pipeline_parallel * plan.virtual_stages * plan.micro_batches
        key = _key(plan, plan.micro_batches)
        if key in of or EVENTS * size > MOST_EVENTS:
            continue
        short, turns = _shortened(plan)
        known = _key(plan, short)
        if known not in places:
            try:
                table = _table(asked, plan, short)
            except (IllegalSchedule, InvalidValue):  # Python has no timeline of it either
                continue
            room -= len(table["packed"])
            if room < 0:
                break
            places[known] = len(tables)
            tables.append(table)
        of[key] = places[known], turns
    return {"tables": tables, "of": of}


def _key(plan: Plan, micro_batches: int) -> str:
    return f"{int(SCHEDULES[str(plan.schedule)])}|{plan.pipeline_parallel}|{plan.virtual_stages}|{micro_batches}"


def _shortened(plan: Plan) -> tuple[int, int]:
    """So few micro-batches that the schedule of a plan has all its parts, and the turns by which the plan has more."""
    period = plan.pipeline_parallel
    turns = plan.micro_batches // period - ENDS
    turns = max(turns, 0) if plan.schedule in PERIODIC else 0
    return plan.micro_batches - turns * period, turns


def _table(asked: Question, plan: Plan, micro_batches: int) -> Row:
    """The order of a plan's schedule for so many micro-batches, and how it grows, if it does."""
    layers = asked.model.layers
    schedule = schedule_of(plan, layers, syncs=True, micro_batches=micro_batches)
    inputs = asked.inputs(plan)
    held = stage_layers(layers, schedule.stages, inputs.plan, inputs.model, inputs.settings)
    repeat = None
    if plan.schedule in PERIODIC and micro_batches >= ENDS * plan.pipeline_parallel:
        longer = schedule_of(plan, layers, syncs=True, micro_batches=micro_batches + plan.pipeline_parallel)
        lengths = np.diff(longer.offsets) - np.diff(schedule.offsets)
        repeat = Repeat(plan.pipeline_parallel, ((np.diff(schedule.offsets) + lengths) // 2).tolist(), lengths.tolist())
    return {
        "name": schedule.name, "ranks": schedule.ranks, "layers": held.tolist(), "syncs": syncs_of(schedule),
        "chunks": schedule.chunks, "offsets": schedule.offsets.tolist(), "packed": _packed(schedule),
        "repeat": None if repeat is None else repeat._asdict(),
    }  # fmt: skip


def _packed(schedule: Schedule) -> str:
    """Micro-batch, stage and kind of every event, as little-endian columns one after the other, deflated.

    Micro-batches are written as their differences from those of the event before of the same rank, kind and stage, which are
    nearly always alike.
    """
    group = (schedule.rank * len(KINDS) + schedule.kind) * schedule.stages + schedule.stage
    columns = ((_differences(schedule.micro_batch, group), "<i4"), (schedule.stage, "<u2"), (schedule.kind, "u1"))
    return base64.b64encode(zlib.compress(b"".join(column.astype(kind).tobytes() for column, kind in columns), 9)).decode()


def _differences(column: Integers, group: Integers) -> Integers:
    """Of each entry of a column from the one before of its group; from 0 where it is the first."""
    order = np.argsort(group, kind="stable")
    sorted_column, sorted_group = column[order], group[order]
    changes = np.diff(sorted_column, prepend=0)
    first = np.append(True, sorted_group[1:] != sorted_group[:-1])
    changes[first] = sorted_column[first]
    found = np.empty_like(column)
    found[order] = changes
    return found


__all__ = ["MOST_EVENTS", "Repeat", "orders"]

"""In which order the ranks of a page's plans run their passes: tables of the schedules whose orders a page can't make itself."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable

import numpy as np

from costmodel.arithmetic.named_tuples import Row
from costmodel.description.plan import SCHEDULES, Plan
from costmodel.description.question import Question
from costmodel.description.schedule import KINDS, Integers, Schedule
from costmodel.page.question import PageQuestion
from costmodel.simulation.playback import schedule_of, stage_layers, syncs_of
from costmodel.text.errors import IllegalSchedule, InvalidValue

MOST_EVENTS = 250_000
"""Of a step that a page plays: so many are played in a blink."""
EVENTS = 6
"""Of a micro-batch on a stage at most: two passes, two sends and two receives."""
MOST_BYTES = 300_000
"""Of all tables of a page; the plans that come first have theirs."""
IN_TURN = ("1f1b", "interleaved")
"""Schedules whose orders a page makes by itself, of `costmodel.formulas.pipeline.orders`."""


def orders(question: PageQuestion, plans: Iterable[Plan]) -> Row:
    """The events of every rank for the schedules of some plans, the layers of every stage, and the syncs of a rank.

    Returns
    -------
    dict
        ``tables``, and in ``of`` the place of a table under the code of a schedule, its ranks, chunks of a rank and
        micro-batches, with a bar between them; without those of `IN_TURN` or of more than `MOST_EVENTS`, and as far as
        `MOST_BYTES` go
    """
    asked = Question(question.model, question.cluster, question.framework)
    tables: list[Row] = []
    of: dict[str, int] = {}
    room = MOST_BYTES
    for plan in plans:
        size = plan.pipeline_parallel * plan.virtual_stages * plan.micro_batches
        key = f"{int(SCHEDULES[str(plan.schedule)])}|{plan.pipeline_parallel}|{plan.virtual_stages}|{plan.micro_batches}"
        if plan.schedule in IN_TURN or key in of or EVENTS * size > MOST_EVENTS:
            continue
        try:
            table = _table(asked, plan)
        except (IllegalSchedule, InvalidValue):  # Python has no timeline of it either
            continue
        room -= len(table["packed"])
        if room < 0:
            break
        of[key] = len(tables)
        tables.append(table)
    return {"tables": tables, "of": of}


def _table(asked: Question, plan: Plan) -> Row:
    """The order of a plan's schedule."""
    layers = asked.model.layers
    schedule = schedule_of(plan, layers, syncs=True)
    inputs = asked.inputs(plan)
    held = stage_layers(layers, schedule.stages, inputs.plan, inputs.model, inputs.settings)
    return {
        "name": schedule.name, "ranks": schedule.ranks, "layers": held.tolist(), "syncs": syncs_of(schedule),
        "chunks": schedule.chunks, "offsets": schedule.offsets.tolist(), "packed": _packed(schedule),
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

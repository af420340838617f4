"""In which order the ranks of a page's plans run their passes: tables, made by the library's one definition of each schedule."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable

import numpy as np

from costmodel.description.plan import Plan
from costmodel.description.question import Question
from costmodel.description.schedule import KINDS, Integers, Schedule
from costmodel.errors import IllegalSchedule, InvalidValue
from costmodel.page.question import Asked
from costmodel.records import Row
from costmodel.simulation.playback import schedule_of, stage_layers, syncs_of

MOST_EVENTS = 250_000
"""Of a step that a page plays: so many are played in a blink."""
EVENTS = 6
"""Of a micro-batch on a stage at most: two passes, two sends and two receives."""
MOST_BYTES = 300_000
"""Of all tables of a page; the plans that come first have theirs."""


def orders(question: Asked, plans: Iterable[Plan]) -> dict[str, Row]:
    """For each schedule of some plans the events of every rank, the layers of every stage, and the syncs of a rank.

    Parameters
    ----------
    question : that was asked
    plans : of the page

    Returns
    -------
    dict
        by code of the schedule, ranks, chunks of a rank and micro-batches, with a bar between them; without those of more
        than `MOST_EVENTS`, and as far as `MOST_BYTES` go
    """
    asked = Question(question.model, question.cluster, question.framework)
    found: dict[str, Row] = {}
    seen, room = set(), MOST_BYTES
    for plan in plans:
        names = (plan.schedule, plan.pipeline_parallel, plan.virtual_stages, plan.micro_batches)
        if names in seen or EVENTS * names[1] * names[2] * names[3] > MOST_EVENTS:
            continue
        seen.add(names)
        try:
            schedule = schedule_of(plan, question.model.layers, syncs=True)
        except (IllegalSchedule, InvalidValue):  # Python has no timeline of it either
            continue
        inputs = asked.inputs(plan)
        numbers = inputs.plan
        layers = stage_layers(question.model.layers, schedule.stages, numbers, inputs.model, inputs.settings)
        key = "|".join(str(int(value)) for value in (numbers.schedule, *names[1:]))
        table = _packed(schedule)
        room -= len(table)
        if room < 0:
            break
        found[key] = {
            "name": schedule.name, "ranks": schedule.ranks, "layers": layers.tolist(), "syncs": syncs_of(schedule),
            "chunks": schedule.chunks, "offsets": schedule.offsets.tolist(), "packed": table,
        }  # fmt: skip
    return found


def _packed(schedule: Schedule) -> str:
    """Micro-batch, other end, stage and kind of every event, as little-endian columns one after the other, deflated.

    Micro-batches and other ends are written as their differences from those of the event before of the same rank, kind and
    stage, which are nearly always alike.
    """
    group = (schedule.rank * len(KINDS) + schedule.kind) * schedule.stages + schedule.stage
    columns = (
        (_differences(schedule.micro_batch, group), "<i4"), (_differences(schedule.match, group), "<i4"),
        (schedule.stage, "<u2"), (schedule.kind, "u1"),
    )  # fmt: skip
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


__all__ = ["MOST_EVENTS", "orders"]

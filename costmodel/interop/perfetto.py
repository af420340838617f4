"""Timelines for trace viewers: the JSON of Chrome's trace event format, which Perfetto opens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.schedule import BACKWARD, KINDS, SEND_BACKWARD, SEND_FORWARD, SYNC
from costmodel.timeline import Timeline
from costmodel.units import microsecond

RANKS, TRANSFERS = 0, 1
"""Processes of the trace: ranks are threads of the first; transfers, which overlap, are asynchronous in the second."""


def perfetto_trace(timeline: Timeline) -> dict[str, Any]:
    """A timeline as a trace that https://ui.perfetto.dev and chrome://tracing open.

    Passes and syncs are complete events on the thread of their rank, transfers pairs of asynchronous events, the
    micro-batches that a rank holds a counter. Timestamps and durations are in microseconds, as the format wants.

    Parameters
    ----------
    timeline : as `simulate_schedule` or `timeline` give one

    Returns
    -------
    dict
        for `json.dump`

    References
    ----------
    "Trace Event Format" of the Chromium project (JSON object format)
    """
    schedule = timeline.schedule
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": RANKS, "name": "process_name", "args": {"name": f"pipeline {schedule.name}"}},
        {"ph": "M", "pid": TRANSFERS, "name": "process_name", "args": {"name": "transfers"}},
    ]
    for rank in range(schedule.ranks):
        events += [
            {"ph": "M", "pid": RANKS, "tid": rank, "name": "thread_name", "args": {"name": f"rank {rank}"}},
            {"ph": "M", "pid": RANKS, "tid": rank, "name": "thread_sort_index", "args": {"sort_index": rank}},
        ]
    begin = np.where(schedule.kind == SYNC, timeline.end - timeline.work, timeline.start) / microsecond
    end = timeline.end / microsecond
    columns = (schedule.kind, schedule.rank, schedule.stage, schedule.micro_batch, begin, end, schedule.match)
    for index, row in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        kind, rank, stage, number, starts, ends, match = row
        details = {"stage": stage, "micro_batch": number}
        if kind <= BACKWARD or kind == SYNC:
            events.append(
                {
                    "ph": "X", "pid": RANKS, "tid": rank, "ts": starts, "dur": max(ends - starts, 0.0), "cat": KINDS[kind],
                    "name": f"{KINDS[kind]} {number}", "args": details,
                }
            )  # fmt: skip
        elif kind in (SEND_FORWARD, SEND_BACKWARD):
            other = int(schedule.rank[match])
            shared = {"pid": TRANSFERS, "tid": rank, "id": index, "cat": "transfer", "name": f"{KINDS[kind]} {rank} to {other}"}
            events += [{"ph": "b", "ts": starts, "args": details, **shared}, {"ph": "e", "ts": ends, **shared}]
    for rank in range(schedule.ranks):
        when, count = timeline.held_micro_batches(rank)
        events += [
            {"ph": "C", "pid": RANKS, "ts": at / microsecond, "name": f"held by rank {rank}", "args": {"micro-batches": held}}
            for at, held in zip(when.tolist(), count.tolist(), strict=True)
        ]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"schedule": schedule.name}}


def write_perfetto(timeline: Timeline, path: str | Path) -> None:
    """Write a timeline to a file for trace viewers.

    Parameters
    ----------
    timeline : as `simulate_schedule` or `timeline` give one
    path : of the file, by custom ``*.json``
    """
    Path(path).write_text(json.dumps(perfetto_trace(timeline)), encoding="utf-8")

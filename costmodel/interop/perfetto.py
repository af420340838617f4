"""Timelines for trace viewers: the JSON of Chrome's trace event format, which Perfetto opens."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from costmodel.arithmetic.named_tuples import Row
from costmodel.description.schedule import BACKWARD, KINDS, SEND_BACKWARD, SEND_FORWARD, SYNC
from costmodel.simulation.playback import Timeline
from costmodel.simulation.played_step import KINDS as ENTRIES
from costmodel.simulation.played_step import START, STREAMS, Simulation
from costmodel.text.checks import whole
from costmodel.text.units import GB, microsecond
from costmodel.traces.pricing import TraceEstimate
from costmodel.traces.record import ACTIONS, HOST_WAIT, KERNEL, PHASES, TRANSACTION

RANKS, TRANSFERS = 0, 1
"""Processes of the trace: ranks are threads of the first; transfers, which overlap, are asynchronous in the second."""


def perfetto_trace(timeline: Timeline) -> Row:
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
    events: list[Row] = [
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


def step_trace(step: Simulation, replica: int = 0) -> Row:
    """A step that was played out, as a trace that https://ui.perfetto.dev and chrome://tracing open.

    Work and waits are complete events on the thread of their stage; transfers, one after the other on each stream, on the
    thread of the stream; what computes and what links carry are counters. Times are in microseconds.

    Parameters
    ----------
    step : as `simulate` gives one
    replica : of each stage
    """
    whole("replica", replica, step.replicas - 1)
    names = {stage: f"stage {stage}" for stage in range(step.stages)}
    lanes = {stage * len(STREAMS) + place: f"stage {stage}, {stream}" for stage in names for place, stream in enumerate(STREAMS)}
    question = step.estimate
    title = f"{question.model.name} on {question.plan.gpus} GPUs of {question.cluster.name}"
    events: list[Row] = []
    for process, label, threads in ((RANKS, title, names), (TRANSFERS, "transfers", lanes)):
        events.append({"ph": "M", "pid": process, "name": "process_name", "args": {"name": label}})
        for thread, name in threads.items():
            events += [
                {"ph": "M", "pid": process, "tid": thread, "name": "thread_name", "args": {"name": name}},
                {"ph": "M", "pid": process, "tid": thread, "name": "thread_sort_index", "args": {"sort_index": thread}},
            ]

    def complete(process: int, thread: int, kind: str, number: int, start: float, end: float, **details: object) -> None:
        name = kind if number < 0 else f"{kind} {number}"
        shared = {"ph": "X", "pid": process, "tid": thread, "cat": kind, "name": name, "args": details}
        events.append(shared | {"ts": start / microsecond, "dur": (end - start) / microsecond})

    entries, moves, made = step.entries, step.transfers, step.instances
    for index in np.flatnonzero(entries.kind != START).tolist():
        start, end = float(step.start[replica, index]), float(step.end[replica, index])
        kind, number = ENTRIES[entries.kind[index]], int(entries.micro_batch[index])
        if end > start:
            complete(RANKS, int(entries.stage[index]), kind, number, start, end, alone_s=float(step.duration[replica, index]))
    for index, instance in enumerate(made.number[:, replica].tolist()):
        stream, number = int(moves.stream[index]), int(moves.micro_batch[index])
        lane = int(moves.stage[index]) * len(STREAMS) + stream
        span = float(made.start[instance]), float(made.end[instance])
        details = {"bytes": float(moves.nbytes[index]), "alone_s": float(moves.time[index])}
        complete(TRANSFERS, lane, STREAMS[stream], number, *span, **details)
    use = step.utilisation()
    for name, unit, values in (
        ("computing", "%", 100.0 * use.compute.mean(0)),
        *((f"{level} link", "GB/s", rates.mean(0) / GB) for level, rates in use.links.items()),
    ):
        events += [
            {"ph": "C", "pid": RANKS, "ts": at, "name": name, "args": {unit: value}}
            for at, value in zip((use.times[:-1] / microsecond).tolist(), values.tolist(), strict=True)
        ]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"schedule": step.schedule.name}}


def code_trace(made: TraceEstimate) -> Row:
    """Traced code as it plays on a cluster, as a trace that https://ui.perfetto.dev and chrome://tracing open.

    Each role is a process, its host and its streams are threads; kernels and transactions are complete events with their module,
    line of code and bytes. Times are in microseconds.

    Parameters
    ----------
    made : as `costmodel.traces.pricing.price_trace` gives one
    """
    events: list[Row] = []
    for process, (role, played) in enumerate(zip(made.trace.roles, made.played, strict=True)):
        label = f"rank {role.rank}, one of {len(role.stands_for)} alike"
        events.append({"ph": "M", "pid": process, "name": "process_name", "args": {"name": label}})
        for thread, name in enumerate(("host", *role.streams)):
            events.append({"ph": "M", "pid": process, "tid": thread, "name": "thread_name", "args": {"name": name}})
        timeline, texts = role.timeline, role.texts
        for row in np.flatnonzero(np.isin(timeline.action, (KERNEL, TRANSACTION, HOST_WAIT))).tolist():
            action, item = int(timeline.action[row]), int(timeline.item[row])
            begin, end = float(played.start[row]), float(played.end[row])
            name, thread, details = "wait", 0, {"line": texts[timeline.line[row]]}
            if action == HOST_WAIT:
                begin = float(played.host[row - 1]) if row else 0.0
            else:
                kernels, moves = role.kernels, role.transactions
                table = kernels if action == KERNEL else moves
                name, thread = texts[table.op[item]], 1 + int(timeline.stream[row])
                moved = kernels.bytes_read[item] + kernels.bytes_written[item] if action == KERNEL else moves.bytes[item]
                details |= {"module": texts[table.module[item]], "bytes": int(moved), "phase": PHASES[table.phase[item]]}
            events.append(
                {"ph": "X", "pid": process, "tid": thread, "ts": begin / microsecond, "dur": max(end - begin, 0.0) / microsecond,
                 "cat": ACTIONS[action], "name": name, "args": details}
            )  # fmt: skip
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"cluster": made.cluster.name}}


def write_perfetto(timeline: Timeline | Simulation | TraceEstimate, path: str | Path) -> None:
    """Write a timeline, or a step, to a file for trace viewers.

    Parameters
    ----------
    timeline : as `simulate_schedule`, `timeline` or `simulate` give one, or as traced code plays
    path : of the file, by custom ``*.json``
    """
    if isinstance(timeline, TraceEstimate):
        trace = code_trace(timeline)
    else:
        trace = step_trace(timeline) if isinstance(timeline, Simulation) else perfetto_trace(timeline)
    Path(path).write_text(json.dumps(trace), encoding="utf-8")

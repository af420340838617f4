"""Answers as a few lines of text, and as small tables for notebooks; nothing is imported for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import zip_longest
from typing import TYPE_CHECKING

from costmodel.results import fitted
from costmodel.units import format_bytes, format_seconds
from costmodel.words import counted, label, lack, part_name, sentence

if TYPE_CHECKING:
    from costmodel.evaluation.capacity import Capacity
    from costmodel.evaluation.estimation import Estimate
    from costmodel.evaluation.plan_search import SearchResult
    from costmodel.evaluation.verdicts import Verdict
    from costmodel.simulation.playback import Timeline
    from costmodel.simulation.played_step import Simulation
    from costmodel.simulation.transactions import Ledger
    from costmodel.studies.partitioning import Partition

ROWS = 12
"""Most rows of a table in a notebook."""
COLUMNS = ("#", "plan", "step", "90 %", "tokens/s/GPU", "MFU", "memory", "P(fastest)")
"""Of the ranked plans."""


def table(heading: str, columns: Sequence[str], rows: Iterable[Sequence[str]], note: str = "") -> str:
    """An HTML table with a heading; every text is escaped.

    Parameters
    ----------
    heading : above it
    columns : their names
    rows : of texts; those beyond `ROWS` are counted, not shown
    note : below it

    Examples
    --------
    >>> table("a < b", ["x"], [["1"]])
    '<div><b>a &lt; b</b><table><thead><tr><th>x</th></tr></thead><tbody><tr><td>1</td></tr></tbody></table></div>'
    """
    every = list(rows)
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in every[:ROWS])
    left = f"{len(every) - ROWS:,} more rows" if len(every) > ROWS else ""
    below = "; ".join(text for text in (left, note) if text)
    foot = f"<small>{escape(below)}</small>" if below else ""
    return f"<div><b>{escape(heading)}</b><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{foot}</div>"


def _title(estimate: Estimate) -> str:
    return (
        f"{estimate.model.name} on {counted(estimate.plan.gpus, 'GPU')} of {estimate.cluster.name}, {estimate.framework.name}, "
        f"{counted(estimate.plan.global_batch, 'sequence')} of {counted(estimate.plan.seq_len, 'token')}"
        f"{_departures(estimate)}"
    )


def _departures(made: Estimate | SearchResult) -> str:
    """What isn't as it would be unasked, to go on behind a title; empty where nothing is."""
    return f", not by default: {', '.join(made.departures)}" if made.departures else ""


def _lines(head: str, *rest: str) -> str:
    """A heading and what belongs to it, as a console shows them."""
    return fitted("\n".join([head, *(f"  {line}" for line in rest)]))


def estimate_text(made: Estimate) -> str:
    """An estimate in a few lines."""
    judged = "fits" if made.fits else f"does not fit by {format_bytes(-made.memory_margin)}"
    if made.host_memory_margin < 0.0:
        judged = f"does not fit: {lack(made)}"
    return _lines(f"Estimate: {_title(made)}", f"{sentence(made)}; {judged}")


def estimate_html(made: Estimate) -> str:
    """An estimate as a table of the parts of its time and of its memory."""
    from costmodel.formulas.quantities import Memory

    times = sorted(((part, time) for part, time in made.times.items() if time), key=lambda item: -item[1])
    parts = sorted(((part, getattr(made.memory, part)) for part in Memory._fields[1:]), key=lambda item: -item[1])
    held = [(part, nbytes) for part, nbytes in parts if nbytes > 0.0]
    left = [(part_name(part), format_seconds(time), f"{100 * time / made.step_time:.1f} %") for part, time in times]
    right = [(part, format_bytes(nbytes)) for part, nbytes in held]
    rows = [(*one, *other) for one, other in zip_longest(left, right, fillvalue=("", "", ""))]
    return table(_title(made), ["time", "", "of the step", "memory", ""], rows, sentence(made))


def capacity_text(made: Capacity) -> str:
    """A capacity in a few lines."""
    if made.estimate is None:
        return _lines(f"Capacity: {made.said()}", made.why_none())
    return _lines(f"Capacity: {made.said()}", _title(made.estimate), sentence(made.estimate))


def verdict_text(made: Verdict) -> str:
    """A verdict in a few lines."""
    return _lines(f"Verdict: {_title(made.estimate)}", str(made))


def search_text(made: SearchResult) -> str:
    """A search in a few lines: what was asked, and the first plans."""
    head = (
        f"SearchResult: {made.model.name} on {counted(made.cluster.gpus or 1, 'GPU')} of {made.cluster.name}, "
        f"{made.framework.name}{_departures(made)}: {made.evaluated:,} legal plans of {made.considered:,}, {made.fitting:,} fit"
    )
    if not made.ranked:
        return _lines(head, made.why_none())
    rows = [
        f"{place}. {label(one.plan)}: {format_seconds(one.step_time)}, {format_bytes(one.memory.total)}"
        for place, one in enumerate(made.ranked[:3], 1)
    ]
    rest = [f"and {len(made.ranked) - 3} more"] if len(made.ranked) > 3 else []
    return _lines(head, *rows, *rest)


def ranked_rows(made: SearchResult) -> list[tuple[str, ...]]:
    """A row of texts for each ranked plan, in the order of `COLUMNS`."""
    rows: list[tuple[str, ...]] = []
    for place, (one, standing) in enumerate(zip(made.ranked, made.standings.plans, strict=True), 1):
        low, high = one.time_interval
        rows.append((
            str(place), label(one.plan), format_seconds(one.step_time), f"{format_seconds(low)} to {format_seconds(high)}",
            f"{one.tokens_per_second / one.plan.gpus:,.0f}", f"{100 * one.mfu:.1f} %",
            f"{format_bytes(one.memory.total)} of {format_bytes(one.memory_limit)}",
            f"{100 * standing.probability_fastest:.0f} %",
        ))  # fmt: skip
    return rows


def search_html(made: SearchResult) -> str:
    """A search as a table of its ranked plans."""
    machine = f"{counted(made.cluster.gpus or 1, 'GPU')} of {made.cluster.name}"
    head = f"{made.model.name} on {machine}, {made.framework.name}{_departures(made)}"
    if not made.ranked:
        return table(head, ["no plan fits"], [[made.why_none()]])
    note = f"{made.evaluated:,} legal plans of {made.considered:,}, {made.fitting:,} fit"
    return table(head, COLUMNS, ranked_rows(made), note)


def _timeline(made: Timeline) -> tuple[str, str]:
    """A timeline in two parts: what it is of, and what came out."""
    order = made.schedule
    return (
        f"Timeline: {order.name}, {order.ranks} ranks, {order.micro_batches} micro-batches, {len(made.start):,} events",
        f"{format_seconds(made.total)} in all, bubble {100 * made.bubble_rate:.1f} % of {format_seconds(made.period)}"
    )


def timeline_text(made: Timeline) -> str:
    """A timeline in a few lines."""
    return _lines(*_timeline(made))


def timeline_html(made: Timeline) -> str:
    """A timeline as a table of its ranks."""
    rows = [
        [
            str(rank), format_seconds(float(made.busy[rank])), format_seconds(float(made.bubble[rank])),
            f"{float(made.in_flight[rank]):g}",
        ]
        for rank in range(made.schedule.ranks)
    ]  # fmt: skip
    return table(": ".join(_timeline(made)), ["rank", "busy", "bubble", "micro-batches in flight"], rows)


def _simulation(made: Simulation) -> tuple[str, str]:
    """A simulation in two parts: what it is of, and what came out."""
    return (
        f"Simulation: {_title(made.estimate)}, {label(made.estimate.plan)}, {made.events:,} events",
        f"{format_seconds(made.step_time)} a step, {format_seconds(made.estimate.step_time)} estimated"
    )


def simulation_text(made: Simulation) -> str:
    """A simulation in a few lines."""
    return _lines(*_simulation(made))


def simulation_html(made: Simulation) -> str:
    """A simulation as a table of where its ranks' time goes."""
    rows = [
        [part.replace("_", " "), format_seconds(float(times.mean())), f"{100 * float(times.mean()) / made.total:.1f} %"]
        for part, times in made.times.items() if times.any()
    ]  # fmt: skip
    return table(": ".join(_simulation(made)), ["part", "mean of all ranks", "of the step"], rows)


def _ledger(made: Ledger) -> tuple[str, str]:
    """A ledger in two parts: what it is of, and what came out."""
    busiest = made.saturates_first
    return (
        f"Ledger: {_title(made.estimate)}, {label(made.estimate.plan)}: {format_bytes(made.cluster_bytes)} a step in all",
        f"a rank of the {made.busiest} stage sends {format_bytes(made.sent_bytes[made.busiest])}; "
        f"{busiest.level} is busy {100 * busiest.busy:.1f} % of the step"
    )


def ledger_text(made: Ledger) -> str:
    """A ledger in a few lines."""
    return _lines(*_ledger(made))


def ledger_html(made: Ledger) -> str:
    """A ledger as a table of the busiest stage's transactions."""
    rows = [
        [row.collective, row.group, f"{row.count:,.0f}", format_bytes(row.nbytes), format_seconds(row.count * row.time)]
        for row in sorted(made.of(), key=lambda row: -row.count * row.time)
    ]
    return table(": ".join(_ledger(made)), ["collective", "group", "count", "size", "time in all"], rows)


def _partition(made: Partition) -> tuple[str, str]:
    """A partition in two parts: what it is of, and what came out."""
    return (
        f"Partition: {len(made.chain.layers)} layers on {made.workers} machines as {made.configuration}",
        f"{format_seconds(made.time)} a minibatch, {made.speedup:.2f} times as fast as data parallelism"
    )


def partition_text(made: Partition) -> str:
    """A partition in a few lines."""
    return _lines(*_partition(made))


def partition_html(made: Partition) -> str:
    """A partition as a table of its stages."""
    rows = [
        [
            str(place), f"{stage.layers[0]} to {stage.layers[-1]}" if len(stage.layers) > 1 else stage.layers[0],
            str(stage.replicas), format_seconds(stage.compute_time), format_bytes(held),
        ]
        for place, (stage, held) in enumerate(zip(made.pipeline, made.memory, strict=True))
    ]  # fmt: skip
    return table(": ".join(_partition(made)), ["stage", "layers", "replicas", "compute", "memory"], rows)

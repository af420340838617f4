"""Traced code: where a step's time goes on each role, what its streams do, and what a rank holds row by row of its program."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from costmodel.plots.style import BLACK, BLUE, GREY, TEMPLATE, VERMILLION, bytes_unit, colour, hatch, seconds_unit
from costmodel.text.units import counted, format_bytes, format_seconds
from costmodel.traces.memory import TraceMemory, held_bytes
from costmodel.traces.pricing import TimeParts, TraceEstimate, merged
from costmodel.traces.record import KERNEL, KINDS, TRANSACTION

PARTS = {"computing": (BLUE, ""), "exchanging": (VERMILLION, "/"), "idle": (GREY, ".")}
"""Colour and pattern of each part of a role's time."""
NEAR = 0.3
"""Share of a device's room that is reserved, from which its limit is drawn."""
POINTS = 2_000
"""Rows of a program that a figure shows at most."""
assert tuple(PARTS) == TimeParts._fields


def traced_parts(made: TraceEstimate) -> go.Figure:
    """Computing, exchanging while nothing computes, and idle: the parts of each role's step.

    Parameters
    ----------
    made : as `costmodel.traces.pricing.price_trace` gives one
    """
    size, unit = seconds_unit(made.step_time)
    names = [f"rank {role.rank}" for role in made.trace.roles]
    parts = [made.parts(place) for place in range(len(names))]
    figure = go.Figure()
    for part, (fill, pattern) in PARTS.items():
        values = [getattr(one, part) for one in parts]
        figure.add_bar(
            y=names, x=[value / size for value in values], name=part, orientation="h",
            marker={"color": fill, "pattern": {"shape": pattern}}, customdata=[format_seconds(value) for value in values],
            hovertemplate=f"%{{y}}: {part} %{{customdata}}<extra></extra>",
        )  # fmt: skip
    figure.update_layout(
        template=TEMPLATE, barmode="stack", title=_title(made), xaxis_title=f"time of a step [{unit}]", yaxis_autorange="reversed"
    )
    return figure


def traced_streams(made: TraceEstimate, place: int = 0) -> go.Figure:
    """When each stream of a role's last step computes or exchanges.

    Parameters
    ----------
    made : as `costmodel.traces.pricing.price_trace` gives one
    place : of the role in the trace
    """
    role, played, (begin, end) = made.trace.roles[place], made.played[place], made.window(place)
    size, unit = seconds_unit(end - begin)
    figure = go.Figure()
    for name, action, (fill, pattern) in (
        ("computing", KERNEL, PARTS["computing"]), ("exchanging", TRANSACTION, PARTS["exchanging"]),
    ):  # fmt: skip
        lanes, starts, widths = list[str](), list[float](), list[float]()
        for number, stream in enumerate(role.streams):
            rows = np.flatnonzero((role.timeline.action == action) & (role.timeline.stream == number))
            since, until = merged(played.start[rows], played.end[rows], (begin, end))
            lanes += [stream] * len(since)
            starts += ((since - begin) / size).tolist()
            widths += ((until - since) / size).tolist()
        figure.add_bar(
            y=lanes, x=widths, base=starts, name=name, orientation="h", marker={"color": fill, "pattern": {"shape": pattern}},
            hovertemplate=f"%{{y}}: {name} %{{x:.4g}} {unit} from %{{base:.4g}}<extra></extra>",
        )  # fmt: skip
    figure.update_layout(
        template=TEMPLATE, barmode="overlay", title=f"{_title(made)}, rank {role.rank}", xaxis_title=f"time in the step [{unit}]",
        yaxis_autorange="reversed",
    )  # fmt: skip
    return figure


def traced_memory(made: TraceMemory) -> go.Figure:
    """What a rank holds by kind, and what its allocator reserves, over the rows of its program.

    Parameters
    ----------
    made : as `costmodel.traces.memory.memory_of_trace` gives one
    """
    rows = np.unique(np.append(np.linspace(0, max(len(made.role.timeline) - 1, 0), POINTS).astype(int), made.at))
    factor, unit = bytes_unit(made.reserved)
    figure = go.Figure()
    shown = 0
    for kind in KINDS:
        held = held_bytes(made.role, kind)[rows]
        if held.any():
            figure.add_scatter(
                x=rows, y=held / factor, name=kind, stackgroup="held", mode="lines", line={"width": 0.5, "color": colour(shown)},
                fillpattern={"shape": hatch(shown)}, hovertemplate=f"{kind} %{{y:.4g}} {unit}<extra></extra>",
            )  # fmt: skip
            shown += 1
    reserved = made.played.reserved[rows] / factor
    figure.add_scatter(x=rows, y=reserved, name="reserved", mode="lines", line={"color": BLACK, "dash": "dot"})
    room = made.capacity - sum(made.outside.values())
    if made.reserved > NEAR * room:
        words = f"room for the allocator, {format_bytes(room)}"
        figure.add_hline(y=room / factor, line_dash="longdash", annotation_text=words)
    title = f"Memory of rank {made.rank}: {format_bytes(made.allocated)} allocated, {format_bytes(made.reserved)} reserved"
    figure.update_layout(template=TEMPLATE, title=title, xaxis_title="row of the program", yaxis_title=f"memory [{unit}]")
    return figure


def _title(made: TraceEstimate) -> str:
    return f"{counted(made.trace.world_size, 'rank')} on {made.cluster.name}: {format_seconds(made.step_time)} a step"

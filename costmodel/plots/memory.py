"""What a rank holds over a step, part by part and event by event, below the limit of its GPU."""

from __future__ import annotations

from typing import NamedTuple

import plotly.graph_objects as go

from costmodel.evaluation.memory_breakdown import PARTS, MemoryTimeline
from costmodel.plots.style import BLACK, TEMPLATE, bytes_unit, colour, hatch
from costmodel.text.units import format_bytes


class MemoryBand(NamedTuple):
    """One part of the bill: its name, what it takes during each event [in the figure's unit], and the text of each."""

    name: str
    held: tuple[float, ...]
    texts: tuple[str, ...]


class MemoryChart(NamedTuple):
    """What is shown: a title, the unit of memory, parts from the bottom up, the limit, and the fullest event."""

    title: str
    unit: str
    parts: tuple[MemoryBand, ...]
    limit: float | None
    peak: tuple[int, float, str]


def held(line: MemoryTimeline, limit: float | None = None) -> MemoryChart:
    """What `memory_figure` shows; parts that are never there are left out.

    Parameters
    ----------
    line : as `costmodel.evaluation.memory_breakdown.Bill.timeline` gives one
    limit : of the GPU [bytes]
    """
    moments = line.moments
    factor, unit = bytes_unit(max(line.peak.held.total, limit or 0.0))
    names = [moment.event if moment.micro_batch < 0 else f"{moment.event} {moment.micro_batch}" for moment in moments]
    parts = []
    for part in PARTS:
        nbytes = [float(getattr(moment.held, part)) for moment in moments]
        if any(nbytes):
            texts = tuple(f"{name}: {part} {format_bytes(each)}" for name, each in zip(names, nbytes, strict=True))
            parts.append(MemoryBand(part, tuple(each / factor for each in nbytes), texts))
    place = moments.index(line.peak)
    peak = (place, line.peak.held.total / factor, f"{format_bytes(line.peak.held.total)} at {names[place]}")
    return MemoryChart(
        f"Memory of pipeline rank {line.stage}", unit, tuple(parts), None if limit is None else limit / factor, peak
    )


def memory_figure(line: MemoryTimeline, limit: float | None = None) -> go.Figure:
    """Stacked areas of what a rank holds, over the events of its step.

    Parameters
    ----------
    line : as `costmodel.evaluation.memory_breakdown.Bill.timeline` gives one
    limit : of the GPU [bytes], drawn as a dashed line
    """
    shown = held(line, limit)
    figure = go.Figure()
    for part in shown.parts:
        place = PARTS.index(part.name)  # a part looks alike in every figure
        # each event reaches from its place to the next, so the last value is there twice
        figure.add_scatter(
            x=list(range(len(part.held) + 1)), y=[*part.held, part.held[-1]], name=part.name, mode="lines", stackgroup="held",
            line={"shape": "hv", "width": 0.5, "color": colour(place)}, fillcolor=colour(place),
            fillpattern={"shape": hatch(place), "size": 8, "solidity": 0.15, "bgcolor": colour(place), "fgcolor": "white"},
            text=[*part.texts, part.texts[-1]], hoverinfo="text",
        )  # fmt: skip
    at, top, text = shown.peak
    figure.add_annotation(
        x=at + 0.5, y=top, text=f"peak {text}", showarrow=True, arrowhead=2, ax=10, ay=-24, xanchor="left",
        bgcolor="rgba(255,255,255,0.8)",
    )  # fmt: skip
    if shown.limit is not None:
        figure.add_hline(y=shown.limit, line={"color": BLACK, "dash": "dash", "width": 2}, annotation_text="limit of the GPU")
    figure.update_layout(
        template=TEMPLATE, title=shown.title, legend={"traceorder": "reversed"},
        xaxis={"title": "event of the rank, in order", "showgrid": False, "range": [0, max(len(p.held) for p in shown.parts)]},
        yaxis={"title": f"memory [{shown.unit}]", "range": [0.0, 1.12 * max(top, shown.limit or 0.0)]},
    )  # fmt: skip
    return figure

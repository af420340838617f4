"""A pipeline as a picture: what each rank does over time, and below it what each holds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from costmodel.description.schedule import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, KINDS, SYNC
from costmodel.plots.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    TEMPLATE,
    VERMILLION,
    Drawing,
    hatched,
    seconds_unit,
)
from costmodel.simulation.playback import Timeline
from costmodel.text.units import format_seconds

LOOKS = {
    FORWARD: (BLUE, "", "white"), BACKWARD: (ORANGE, "/", "black"), BACKWARD_INPUT: (SKY, "/", "black"),
    BACKWARD_WEIGHT: (GREEN, ".", "black"), SYNC: (PURPLE, "x", "black"),
}  # fmt: skip
"""Colour, pattern and colour of the text of each kind of event."""
LINES = (
    (BLUE, "solid"), (VERMILLION, "dash"), (GREEN, "dot"), (PURPLE, "dashdot"), (ORANGE, "longdash"),
    (SKY, "longdashdot"), (BLACK, "solid"), (BLUE, "dot"),
)  # fmt: skip
LABELLED, MOST_LINES = 1500, 8
"""Bars up to which each is labelled; ranks whose memory is drawn each by itself."""


class EventBars(NamedTuple):
    """Events of one kind."""

    kind: int
    rank: NDArray[np.int64]
    start: NDArray[np.float64]
    width: NDArray[np.float64]
    label: list[str]
    hover: list[str]


class Pipeline(NamedTuple):
    """What the figure shows: bars by kind [in `unit`], and for some ranks when what they hold changes, to what.

    Parameters
    ----------
    title : of the figure
    unit : of all times
    bars : by kind
    held : for some ranks the moments, and the micro-batches held from each on
    before : rank, start and width of every pass before a change; None where there was none
    """

    title: str
    unit: str
    bars: list[EventBars]
    held: list[tuple[int, NDArray[np.float64], NDArray[np.float64]]]
    before: tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]] | None = None


def shown(timeline: Timeline, before: Timeline | None = None) -> Pipeline:
    """What the figure of a timeline shows.

    Parameters
    ----------
    timeline : of a step
    before : of the same plan's step before a change
    """
    schedule = timeline.schedule
    size, unit = seconds_unit(timeline.total)
    begin = timeline.end - timeline.work  # a sync begins to work when all have come
    many = int((schedule.kind <= BACKWARD).sum())
    bars = []
    for kind in LOOKS:
        chosen = np.flatnonzero((schedule.kind == kind) & (timeline.work > 0.0))
        if len(chosen):
            hover = [
                f"rank {schedule.rank[e]}: {schedule.event(int(e))}<br>{format_seconds(begin[e])} to "
                f"{format_seconds(timeline.end[e])}, {format_seconds(timeline.work[e])}"
                for e in chosen
            ]
            plain = kind == SYNC or many > LABELLED
            label = [""] * len(chosen) if plain else [str(number) for number in schedule.micro_batch[chosen]]
            bars.append(EventBars(kind, schedule.rank[chosen], begin[chosen] / size, timeline.work[chosen] / size, label, hover))
    drawn = np.unique(np.linspace(0, schedule.ranks - 1, min(schedule.ranks, MOST_LINES)).round().astype(int))
    held = []
    for rank in drawn:
        when, count = timeline.held_micro_batches(int(rank))
        last = np.append(np.diff(when) > 0.0, True)  # of changes at one moment
        held.append((int(rank), np.concatenate([[0.0], when[last] / size]), np.concatenate([[0.0], count[last]])))
    title = (
        f"{schedule.name}: {schedule.ranks} ranks, {schedule.micro_batches} micro-batches, "
        f"{format_seconds(timeline.total)}, bubble {100 * timeline.bubble_rate:.1f} %"
    )
    was = None
    if before is not None:
        worked = before.work > 0.0
        was = before.schedule.rank[worked], (before.end - before.work)[worked] / size, before.work[worked] / size
    return Pipeline(title, unit, bars, held, was)


def pipeline_figure(timeline: Timeline, before: Timeline | None = None) -> go.Figure:
    """Gantt chart of a timeline, and below it the micro-batches that ranks hold.

    Parameters
    ----------
    timeline : as `simulate_schedule` or `timeline` give one
    before : of the same plan before a change, drawn as a thin grey row above each rank's

    Returns
    -------
    plotly.graph_objects.Figure
        not shown yet
    """
    return go.Figure(pipeline_drawing(timeline, before))


def pipeline_drawing(timeline: Timeline, before: Timeline | None = None) -> Drawing:
    """The same as plain data and layout, in a fraction of the time.

    Parameters
    ----------
    timeline : as `simulate_schedule` or `timeline` give one
    before : of the same plan before a change, drawn as a thin grey row above each rank's
    """
    what = shown(timeline, before)
    ranks = timeline.schedule.ranks
    width, offset = (0.86, -0.43) if what.before is None else (0.7, -0.27)
    data: list[dict[str, object]] = []
    if what.before is not None:  # one path of many boxes: a bar each would be slow to draw
        rows = zip(*map(np.ndarray.tolist, what.before), strict=True)
        boxes = [(rank - 0.43, begin, begin + wide) for rank, begin, wide in rows]
        data.append({
            "type": "scatter", "mode": "lines", "name": "before the change", "fill": "toself", "fillcolor": GREY,
            "line": {"width": 0, "color": GREY}, "hoverinfo": "skip", "legendgroup": "passes",
            "x": [x for _, begin, end in boxes for x in (begin, begin, end, end, None)],
            "y": [y for top, _, _ in boxes for y in (top + 0.12, top, top, top + 0.12, None)],
        })  # fmt: skip
    for bars in what.bars:
        colour, pattern, text = LOOKS[bars.kind]
        data.append({
            "type": "bar", "x": bars.width.tolist(), "base": bars.start.tolist(), "y": bars.rank.tolist(), "orientation": "h",
            "name": KINDS[bars.kind], "legendgroup": "passes", "text": bars.label, "textposition": "inside",
            "insidetextanchor": "middle", "textangle": 0, "hovertext": bars.hover, "hoverinfo": "text", "constraintext": "none",
            "width": width, "offset": offset, "textfont": {"color": text, "size": 11},
            "marker": {
                "color": colour, "line": {"color": "white", "width": 0.5},
                "pattern": hatched(pattern),
            },
        })  # fmt: skip
    for place, (rank, when, count) in enumerate(what.held):
        colour, dash = LINES[place % len(LINES)]
        data.append({
            "type": "scatter", "x": when.tolist(), "y": count.tolist(), "mode": "lines", "xaxis": "x2", "yaxis": "y2",
            "line": {"shape": "hv", "color": colour, "dash": dash, "width": 2}, "name": f"held by rank {rank}",
            "legendgroup": "held",
            "hovertemplate": f"rank {rank} holds %{{y:.3g}} micro-batches from %{{x:.4g}} {what.unit}<extra></extra>",
        })  # fmt: skip
    layout = {
        "template": TEMPLATE, "title": {"text": what.title}, "barmode": "overlay", "bargap": 0.1,
        "legend": {"orientation": "v", "traceorder": "grouped", "tracegroupgap": 12},
        "height": max(520, min(300 + 36 * ranks, 1400)), "margin": {"t": 60, "l": 70, "r": 20, "b": 50},
        "xaxis": {"anchor": "y", "domain": [0.0, 1.0], "matches": "x2", "showticklabels": False},
        "yaxis": {
            "anchor": "x", "domain": [0.448, 1.0], "title": {"text": "rank"}, "autorange": "reversed",
            "dtick": max(1, ranks // 16), "showgrid": False, "zeroline": False,
        },
        "xaxis2": {"anchor": "y2", "domain": [0.0, 1.0], "title": {"text": f"time [{what.unit}]"}},
        "yaxis2": {"anchor": "x2", "domain": [0.0, 0.368], "title": {"text": "micro-batches held"}, "rangemode": "tozero"},
    }  # fmt: skip
    return {"data": data, "layout": layout}


__all__ = ["EventBars", "Pipeline", "pipeline_drawing", "pipeline_figure", "shown"]

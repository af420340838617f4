"""A pipeline as a picture: what each rank does over time, and below it what each holds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from costmodel.description.schedule import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, KINDS, SYNC
from costmodel.plots.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, TEMPLATE, VERMILLION, seconds_unit
from costmodel.simulation.playback import Timeline
from costmodel.units import format_seconds

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


class Bars(NamedTuple):
    """Events of one kind."""

    kind: int
    rank: NDArray[np.int64]
    start: NDArray[np.float64]
    width: NDArray[np.float64]
    label: list[str]
    hover: list[str]


class Pipeline(NamedTuple):
    """What the figure shows: bars by kind [in `unit`], and for some ranks when what they hold changes, to what."""

    title: str
    unit: str
    bars: list[Bars]
    held: list[tuple[int, NDArray[np.float64], NDArray[np.float64]]]


def shown(timeline: Timeline) -> Pipeline:
    """What the figure of a timeline shows."""
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
            bars.append(Bars(kind, schedule.rank[chosen], begin[chosen] / size, timeline.work[chosen] / size, label, hover))
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
    return Pipeline(title, unit, bars, held)


def pipeline_figure(timeline: Timeline) -> go.Figure:
    """Gantt chart of a timeline, and below it the micro-batches that ranks hold.

    Parameters
    ----------
    timeline : as `simulate_schedule` or `timeline` give one

    Returns
    -------
    plotly.graph_objects.Figure
        not shown yet
    """
    what = shown(timeline)
    ranks = timeline.schedule.ranks
    figure = make_subplots(
        rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.08, row_heights=[0.6, 0.4],
    )  # fmt: skip
    for bars in what.bars:
        colour, pattern, text = LOOKS[bars.kind]
        figure.add_bar(
            x=bars.width, base=bars.start, y=bars.rank, orientation="h", name=KINDS[bars.kind], legendgroup="passes",
            text=bars.label, textposition="inside", insidetextanchor="middle", textangle=0, hovertext=bars.hover,
            hoverinfo="text", constraintext="none", width=0.86,
            textfont={"color": text, "size": 11},
            marker={
                "color": colour, "line": {"color": "white", "width": 0.5},
                "pattern": {"shape": pattern, "size": 6, "solidity": 0.2, "fgcolor": "white"},
            },
            row=1, col=1,
        )  # fmt: skip
    for place, (rank, when, count) in enumerate(what.held):
        colour, dash = LINES[place % len(LINES)]
        figure.add_scatter(
            x=when, y=count, mode="lines", line={"shape": "hv", "color": colour, "dash": dash, "width": 2},
            name=f"held by rank {rank}", legendgroup="held",
            hovertemplate=f"rank {rank} holds %{{y:.3g}} micro-batches from %{{x:.4g}} {what.unit}<extra></extra>",
            row=2, col=1,
        )  # fmt: skip
    figure.update_layout(
        template=TEMPLATE, title=what.title, barmode="overlay", bargap=0.1,
        legend={"orientation": "v", "traceorder": "grouped", "tracegroupgap": 12},
        height=max(520, min(300 + 36 * ranks, 1400)), margin={"t": 60, "l": 70, "r": 20, "b": 50},
    )  # fmt: skip
    figure.update_yaxes(title_text="rank", autorange="reversed", dtick=max(1, ranks // 16), showgrid=False, row=1, col=1)
    figure.update_yaxes(title_text="micro-batches held", rangemode="tozero", row=2, col=1)
    figure.update_xaxes(title_text=f"time [{what.unit}]", row=2, col=1)
    return figure

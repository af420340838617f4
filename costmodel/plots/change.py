"""Step time and memory by part before and after a change, in one figure that can be redrawn in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from costmodel.evaluation.estimation import TIME_PARTS, Estimate
from costmodel.evaluation.memory_breakdown import PARTS as MEMORY_PARTS
from costmodel.plots.embedded import TIME_LOOKS, memory_looks
from costmodel.plots.style import BLACK, TEMPLATE, bytes_unit, gaps, seconds_unit


class Piece(NamedTuple):
    """One part in every row: seconds or bytes in the figure's unit."""

    part: str
    amounts: tuple[float, ...]


class Change(NamedTuple):
    """What is shown: a row for each estimate, its parts, and where memory ends."""

    rows: tuple[str, ...]  # what each is
    times: tuple[Piece, ...]  # times, memory: parts of the step and of the fullest GPU's memory
    memory: tuple[Piece, ...]
    totals: tuple[float, ...]  # totals, lows, highs: step times with their 90 % intervals
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    limit: float  # up to which a plan is judged to fit
    time_unit: str  # time_unit, memory_unit: of them
    memory_unit: str


def change(rows: Sequence[str], estimates: Sequence[Estimate]) -> Change:
    """What `change_figure` shows.

    Parameters
    ----------
    rows : what each estimate is
    estimates : the unchanged one first, the one whose limit is drawn last
    """
    limit = estimates[-1].memory_limit
    second, time_unit = seconds_unit(max(one.step_time for one in estimates))
    byte, memory_unit = bytes_unit(max(limit, *(float(one.memory.total) for one in estimates)))
    times = tuple(Piece(part, tuple(one.times[part] / second for one in estimates)) for part in TIME_PARTS)
    memory = tuple(Piece(part, tuple(float(getattr(one.memory, part)) / byte for one in estimates)) for part in MEMORY_PARTS)
    intervals = [one.time_interval for one in estimates]
    return Change(
        tuple(rows), times, memory, tuple(one.step_time / second for one in estimates),
        tuple(low / second for low, _ in intervals), tuple(high / second for _, high in intervals),
        limit / byte, time_unit, memory_unit,
    )  # fmt: skip


def change_figure(shown: Change) -> go.Figure:
    """Bars of step time at the left and of memory at the right, stacked by part.

    Parameters
    ----------
    shown : as `change` gives it
    """
    figure = make_subplots(1, 2, shared_yaxes=True, horizontal_spacing=0.04)
    looks = [*((1, *item) for item in TIME_LOOKS.items()), *((2, *item) for item in memory_looks(MEMORY_PARTS).items())]
    for column, part, (colour, pattern) in looks:
        marker = {"color": colour, "pattern": {"shape": pattern, "bgcolor": colour, "fgcolor": "white", "size": 6}}
        text = f"%{{y}}<br>{part.replace('_', ' ')}: %{{x:.4g}}<extra></extra>"
        bar = go.Bar(orientation="h", name=part.replace("_", " "), marker=marker, hovertemplate=text, showlegend=False)
        figure.add_trace(bar, 1, column)
    whisker = go.Scatter(mode="markers", marker={"size": 1, "color": BLACK}, name="90 %", showlegend=False)
    figure.add_trace(whisker, 1, 1)
    figure.add_shape({"type": "line", "y0": 0, "y1": 1, "yref": "paper", "xref": "x2", "line": {"color": BLACK, "dash": "dash"}})
    figure.update_yaxes(autorange="reversed")
    figure.update_layout(template=TEMPLATE, barmode="stack", height=280, margin={"l": 10, "r": 10, "t": 20, "b": 40})
    redraw(figure, shown)
    return figure


def change_widget(shown: Change) -> object:
    """The same as a figure that changes in place (extra ``notebook``)."""
    return go.FigureWidget(change_figure(shown))


def redraw(figure: go.Figure, shown: Change) -> None:
    """Put other amounts into a figure.

    Parameters
    ----------
    figure : as `change_figure` or `change_widget` made it
    shown : as `change` gives it
    """
    *bars, whisker = figure.data
    with figure.batch_update():
        for bar, piece in zip(bars, (*shown.times, *shown.memory), strict=True):
            bar.x, bar.y, bar.visible = piece.amounts, shown.rows, any(piece.amounts)
        whisker.x, whisker.y = shown.totals, shown.rows
        above, below = gaps(shown.totals, shown.highs), gaps(shown.lows, shown.totals)
        whisker.error_x = {"type": "data", "symmetric": False, "array": above, "arrayminus": below, "color": BLACK}
        figure.layout.xaxis.title = f"{shown.time_unit} a step; whisker: 90 %"
        figure.layout.xaxis2.title = f"{shown.memory_unit} on the fullest GPU; dashed: the limit"
        figure.layout.shapes[0].update(x0=shown.limit, x1=shown.limit)

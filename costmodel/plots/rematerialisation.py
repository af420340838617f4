"""Gradient checkpointing drawn: memory against time run again, and what a schedule holds action by action."""

from __future__ import annotations

from typing import NamedTuple

import plotly.graph_objects as go

from costmodel.plots.style import BLACK, BLUE, GREEN, LEGEND_BELOW, PURPLE, SKY, TEMPLATE, VERMILLION, bytes_unit
from costmodel.studies.rematerialisation.study import Checkpointing, MemoryCurve
from costmodel.text.units import format_bytes

STYLES = {
    "optimal": (BLACK, "circle", "solid"), "sqrt": (BLUE, "square", "dash"), "recursive": (GREEN, "diamond", "dot"),
    "revolve": (VERMILLION, "triangle-up", "dashdot"), "selective": (PURPLE, "cross", "longdash"),
}  # fmt: skip
"""Colour, marker and dash of each method."""
NAMES = {
    "optimal": "optimal (dynamic program)", "sqrt": "segments (Chen et al. 2016)", "recursive": "recursive (Chen et al. 2016)",
    "revolve": "binomial (Revolve)", "selective": "selective (Korthikanti et al. 2022)",
}  # fmt: skip
PASSES = {"forward": (SKY, ""), "record": (BLUE, "/"), "backward": (VERMILLION, "x")}
"""Colour and pattern of each kind of pass."""
TICKS = [digit * 10.0**power for power in range(-4, 5) for digit in (1, 2, 5)]


class MethodLine(NamedTuple):
    """One method of a curve as it is shown."""

    method: str  # whose schedules they are
    memory: tuple[float, ...]  # peaks, in the figure's unit
    extra: tuple[float, ...]  # forward passes run again, of one pass through all layers
    hover: tuple[str, ...]  # text of each point


class Trade(NamedTuple):
    """Memory against extra time as it is shown: title, unit of memory, and a line a method."""

    title: str
    unit: str
    lines: tuple[MethodLine, ...]


class ScheduleBars(NamedTuple):
    """What a schedule holds as it is shown: title, unit, budget, and by kind of pass the places, heights and texts of bars."""

    title: str
    unit: str
    budget: float | None
    kinds: dict[str, tuple[tuple[int, ...], tuple[float, ...], tuple[str, ...]]]


def trade(curve: MemoryCurve) -> Trade:
    """What `memory_against_time` shows.

    Parameters
    ----------
    curve : as `costmodel.studies.rematerialisation.study.curve` gives it
    """
    factor, unit = bytes_unit(max(point.peak_bytes for points in curve.points.values() for point in points))
    once = curve.forward_time or 1.0
    lines = tuple(
        MethodLine(
            method, tuple(point.peak_bytes / factor for point in points),
            tuple(point.extra_forward_time / once for point in points),
            tuple(
                f"{NAMES[method]}<br>peak {format_bytes(point.peak_bytes)}<br>"
                f"{point.extra_forward_time / once:.3g} forward passes more"
                for point in points
            ),
        )
        for method, points in curve.points.items()
    )  # fmt: skip
    return Trade(f"{curve.chain.name}: what memory costs in time", unit, lines)


def memory_against_time(curve: MemoryCurve, *, most_extra: float = 5.0) -> go.Figure:
    """Peak memory against the forward passes that are run again, a line a method.

    Parameters
    ----------
    curve : as `costmodel.studies.rematerialisation.study.curve` gives it
    most_extra : end of the axis of time [forward passes]
    """
    shown = trade(curve)
    figure = go.Figure()
    for line in shown.lines:
        colour, marker, dash = STYLES[line.method]
        figure.add_scatter(
            x=line.memory, y=line.extra, name=NAMES[line.method], mode="lines+markers", text=line.hover, hoverinfo="text",
            line={"color": colour, "dash": dash, "width": 2, "shape": "hv"},
            marker={"color": colour, "symbol": marker, "size": 5},
        )  # fmt: skip
    # a budget between two points gets the schedule of the lower: hence the steps
    figure.update_layout(
        template=TEMPLATE, title=shown.title, legend=LEGEND_BELOW,
        xaxis={"title": f"activations and gradients [{shown.unit}]", "type": "log", "tickvals": TICKS},
        yaxis={"title": "run again [forward passes]", "range": [-0.03 * most_extra, most_extra]},
    )  # fmt: skip
    return figure


def bars(schedule: Checkpointing) -> ScheduleBars:
    """What `memory_of_schedule` shows.

    Parameters
    ----------
    schedule : as `costmodel.studies.rematerialisation.study.checkpoint` gives it
    """
    factor, unit = bytes_unit(schedule.peak_bytes)
    held = zip(schedule.actions, schedule.execution.nbytes, strict=True)
    passes = [(action, nbytes) for action, nbytes in held if action.kind in PASSES]
    kinds = {}
    for kind in PASSES:
        places = tuple(i for i, (action, _) in enumerate(passes) if action.kind == kind)
        names = (schedule.chain.layers[passes[i][0].layer].name for i in places)
        kinds[kind] = (
            places, tuple(passes[i][1] / factor for i in places),
            tuple(f"{kind} {name}<br>{format_bytes(passes[i][1])} held" for name, i in zip(names, places, strict=True)),
        )  # fmt: skip
    return ScheduleBars(str(schedule), unit, None if schedule.budget is None else schedule.budget / factor, kinds)


def memory_of_schedule(schedule: Checkpointing) -> go.Figure:
    """What a schedule holds while each of its passes runs."""
    shown = bars(schedule)
    figure = go.Figure()
    for kind, (places, heights, texts) in shown.kinds.items():
        colour, pattern = PASSES[kind]
        figure.add_bar(
            x=places, y=heights, name=kind, hovertext=texts, hoverinfo="text",
            marker={"color": colour, "pattern": {"shape": pattern}, "line": {"width": 0}},
        )  # fmt: skip
    if shown.budget is not None:
        figure.add_hline(y=shown.budget, line={"color": BLACK, "dash": "dash"}, annotation_text="budget")
    figure.update_layout(
        template=TEMPLATE, title=shown.title, bargap=0.0,
        xaxis={"title": "pass, in order"}, yaxis={"title": f"memory held [{shown.unit}]", "rangemode": "tozero"},
    )  # fmt: skip
    return figure

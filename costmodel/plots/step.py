"""Where the time of a step goes: parts of one plan or of several side by side, and what makes one slower than another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from costmodel.evaluation.compare import differences
from costmodel.evaluation.estimation import TIME_PARTS, Estimate
from costmodel.plots.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    LIGHT,
    ORANGE,
    PURPLE,
    SKY,
    TEMPLATE,
    VERMILLION,
    Drawing,
    seconds_unit,
    whiskers,
)
from costmodel.units import format_seconds
from costmodel.words import label, part_name

LOOKS = {
    "forward": (BLUE, ""), "backward": (ORANGE, ""), "recompute": (BLUE, "/"), "tensor_exchange": (SKY, ""),
    "context_exchange": (SKY, "/"), "expert_exchange": (SKY, "x"), "pipeline_exchange": (SKY, "\\"),
    "gradient_exchange": (SKY, "."), "parameter_exchange": (SKY, "+"), "bubble": (PURPLE, ""), "optimizer": (GREEN, ""),
    "host": (GREY, ""),
}  # fmt: skip
"""Colour and pattern of each part of a step, in every figure; communication has one colour."""
SMALL = 0.03
"""Share of the largest change below which changes are summed in a waterfall."""


class Bar(NamedTuple):
    """One part of the step in every plan [unit of the figure], with what its hover says."""

    part: str
    times: tuple[float, ...]
    texts: tuple[str, ...]


class Breakdown(NamedTuple):
    """What is shown of some plans' steps.

    Parameters
    ----------
    title : of the figure
    unit : of all times
    plans : a label of each, no two alike
    bars : parts that any plan has, in the order of the step
    totals, lows, highs : step times with their 90 % intervals
    before : step times before a change; none where nothing was changed
    """

    title: str
    unit: str
    plans: tuple[str, ...]
    bars: tuple[Bar, ...]
    totals: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    before: tuple[float, ...] = ()


class Fall(NamedTuple):
    """Why one plan is slower than another.

    Parameters
    ----------
    title : of the figure
    unit : of all times
    first, second : labels of the plans
    parts : that differ, the largest change first
    added : by each to the step
    start, end : step times of both
    texts : of each part's hover
    """

    title: str
    unit: str
    first: str
    second: str
    parts: tuple[str, ...]
    added: tuple[float, ...]
    start: float
    end: float
    texts: tuple[str, ...]


def labels(estimates: Sequence[Estimate]) -> tuple[str, ...]:
    """A label for each of some plans; where clusters or models differ they are named, and what is still alike is numbered.

    Parameters
    ----------
    estimates : of the plans
    """
    names = [label(one.plan) for one in estimates]
    for field in ("cluster", "model", "framework"):
        if len({getattr(one, field).name for one in estimates}) > 1:
            names = [f"{name}, {getattr(one, field).name}" for name, one in zip(names, estimates, strict=True)]
    twice = {name for name in names if names.count(name) > 1}
    return tuple(f"{place}: {name}" if name in twice else name for place, name in enumerate(names, 1))


def breakdown(estimates: Sequence[Estimate], before: Sequence[Estimate] = ()) -> Breakdown:
    """What `breakdown_figure` shows.

    Parameters
    ----------
    estimates : of one plan or of several
    before : of the same plans before a change
    """
    factor, unit = seconds_unit(max(one.step_time for one in (*estimates, *before)))
    bars = []
    for part in TIME_PARTS:
        seconds = [one.times[part] for one in estimates]
        if any(seconds):
            texts = tuple(
                f"{part_name(part)}: {format_seconds(time)}, {100 * time / one.step_time:.1f} % of the step"
                for time, one in zip(seconds, estimates, strict=True)
            )
            bars.append(Bar(part, tuple(time / factor for time in seconds), texts))
    ends = [one.time_interval for one in estimates]
    first = estimates[0]
    title = f"Step time of {first.model.name} on {first.plan.gpus:,} GPUs of {first.cluster.name}"
    if len({(one.model.name, one.cluster.name, one.plan.gpus) for one in estimates}) > 1:
        title = "Step time of the plans side by side"
    return Breakdown(
        title, unit, labels(estimates), tuple(bars), tuple(one.step_time / factor for one in estimates),
        tuple(low / factor for low, _ in ends), tuple(high / factor for _, high in ends),
        tuple(one.step_time / factor for one in before),
    )  # fmt: skip


def breakdown_figure(estimates: Sequence[Estimate], before: Sequence[Estimate] = ()) -> go.Figure:
    """Bars of the parts of each plan's step, with 90 % intervals, and thin bars of the same plans before a change.

    Parameters
    ----------
    estimates : of one plan or of several
    before : of the same plans before a change; none are drawn where it is empty

    Returns
    -------
    plotly.graph_objects.Figure
        not shown yet
    """
    return go.Figure(breakdown_drawing(estimates, before))


def breakdown_drawing(estimates: Sequence[Estimate], before: Sequence[Estimate] = ()) -> Drawing:
    """The same as plain data and layout, in a fraction of the time.

    Parameters
    ----------
    estimates : of one plan or of several
    before : of the same plans before a change; none are drawn where it is empty
    """
    shown = breakdown(estimates, before)
    data: list[dict[str, object]] = []
    places = list(range(len(shown.plans)))
    if shown.before:
        data.append({
            "type": "bar", "x": shown.before, "y": [place - 0.38 for place in places], "orientation": "h", "width": 0.1,
            "name": "before the change", "base": 0, "marker": {"color": GREY}, "offset": -0.05,
            "hovertemplate": f"before the change: %{{x:.4g}} {shown.unit}<extra></extra>",
        })  # fmt: skip
    bases = [0.0] * len(places)
    for bar in shown.bars:
        colour, pattern = LOOKS[bar.part]
        error = {"error_x": whiskers(shown.totals, shown.lows, shown.highs)} if bar is shown.bars[-1] else {}
        data.append({
            "type": "bar", "x": bar.times, "y": places, "base": list(bases), "orientation": "h", "width": 0.6, "offset": -0.3,
            "name": part_name(bar.part), "text": bar.texts, "hovertemplate": "%{text}<extra></extra>", "textposition": "none",
            "marker": {"color": colour, "pattern": {"shape": pattern, "fgcolor": "white", "size": 6}, "line": {"width": 0}},
            **error,
        })  # fmt: skip
        bases = [base + time for base, time in zip(bases, bar.times, strict=True)]
    layout = {
        "template": TEMPLATE, "title": {"text": shown.title}, "barmode": "overlay",
        "legend": {"orientation": "h", "yanchor": "top", "y": -0.2, "x": 0.0},
        "height": 190 + 62 * len(places), "margin": {"l": 10, "r": 20, "t": 48, "b": 96},
        "xaxis": {
            "title": {"text": f"step time [{shown.unit}], whiskers: 90 %"},
            "range": [0.0, 1.03 * max((*shown.highs, *shown.before))],
        },
        "yaxis": {
            "tickmode": "array", "tickvals": places, "ticktext": [
                f"{_folded(name)}<br><b>{total:.4g} {shown.unit}</b>"
                for name, total in zip(shown.plans, shown.totals, strict=True)
            ],
            "range": [len(places) - 0.45, -0.6], "automargin": True, "zeroline": False, "showgrid": False,
        },
    }  # fmt: skip
    return {"data": data, "layout": layout}


def _folded(name: str, width: int = 20) -> str:
    """A label on lines of some letters."""
    lines = [""]
    for word in name.split(", "):
        if lines[-1] and len(lines[-1]) + len(word) > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]}, {word}" if lines[-1] else word
    return "<br>".join(lines)


def fall(first: Estimate, second: Estimate) -> Fall:
    """What `waterfall` shows.

    Parameters
    ----------
    first, second : estimates
    """
    longest = max(first.step_time, second.step_time)
    factor, unit = seconds_unit(longest)
    largest = max((abs(one.added) for one in differences(first, second)), default=0.0)
    found = differences(first, second, SMALL * largest)
    names = labels((first, second))
    texts = tuple(
        f"{part_name(one.part)}: {format_seconds(one.first)} to {format_seconds(one.second)}" for one in found
    )
    slower = "slower" if second.step_time >= first.step_time else "faster"
    share = 100.0 * abs(second.step_time / first.step_time - 1.0)
    title = f"Why the second plan is {share:.1f} % {slower}" if share >= 0.05 else "Two plans that take equally long"
    return Fall(
        title, unit, names[0], names[1], tuple(part_name(one.part) for one in found), tuple(one.added / factor for one in found),
        first.step_time / factor, second.step_time / factor, texts,
    )  # fmt: skip


def waterfall(first: Estimate, second: Estimate) -> go.Figure:
    """From one plan's step time to another's, part by part.

    Parameters
    ----------
    first, second : estimates

    Returns
    -------
    plotly.graph_objects.Figure
        not shown yet
    """
    shown = fall(first, second)
    texts = [f"{shown.start:.4g}", *(f"{added:+.3g}" for added in shown.added), f"{shown.end:.4g}"]
    figure = go.Figure(
        go.Waterfall(
            y=[_folded(shown.first), *shown.parts, f"{_folded(shown.second)} "], x=[shown.start, *shown.added, shown.end],
            orientation="h", measure=["absolute", *["relative"] * len(shown.added), "total"], text=texts,
            textposition="outside", hovertext=[shown.first, *shown.texts, shown.second], hoverinfo="text", cliponaxis=False,
            connector={"line": {"color": GREY, "dash": "dot"}},
            totals={"marker": {"color": LIGHT, "line": {"color": BLACK, "width": 1}}},
            increasing={"marker": {"color": VERMILLION}}, decreasing={"marker": {"color": BLUE}},
        )
    )  # fmt: skip
    levels = [shown.start]
    for added in shown.added:
        levels.append(levels[-1] + added)
    low, high = min(levels), max(levels)
    floor = max(0.0, low - 1.2 * (high - low)) if high > low else 0.0
    figure.update_layout(
        template=TEMPLATE, height=150 + 34 * len(texts), showlegend=False, margin={"l": 10, "r": 20, "t": 80, "b": 60},
        title=f"{shown.title}<br><sub>+ adds time, \N{MINUS SIGN} saves it; the axis starts at {floor:.4g} {shown.unit}</sub>",
        xaxis={"title": f"step time [{shown.unit}]", "range": [floor, high + 0.25 * (high - floor)]},
        yaxis={"automargin": True, "autorange": "reversed", "showgrid": False},
    )  # fmt: skip
    return figure

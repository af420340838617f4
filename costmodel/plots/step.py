"""Where the time of a step goes: parts of one plan or of several side by side, and what makes one slower than another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from costmodel.description.cluster import Cluster
from costmodel.description.labels import label, part_name
from costmodel.evaluation.estimation import TIME_PARTS, Estimate
from costmodel.evaluation.part_differences import differences
from costmodel.plots.specification import each, filled, named, of, when
from costmodel.plots.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    LEGEND_BELOW,
    ORANGE,
    PURPLE,
    SKY,
    TEMPLATE,
    VERMILLION,
    Drawing,
    gaps,
    hatched,
    seconds_unit,
)
from costmodel.text.units import counted, format_seconds

LOOKS = {
    "forward": (BLUE, ""), "backward": (ORANGE, ""), "recompute": (BLUE, "/"), "tensor_exchange": (SKY, ""),
    "context_exchange": (SKY, "/"), "expert_exchange": (SKY, "x"), "pipeline_exchange": (SKY, "\\"),
    "gradient_exchange": (SKY, "."), "parameter_exchange": (SKY, "+"), "bubble": (PURPLE, ""), "optimizer": (GREEN, ""),
    "host": (GREY, ""),
}  # fmt: skip
"""Colour and pattern of each part of a step, in every figure; communication has one colour."""
SMALL = 0.03
"""Share of the largest change below which changes are summed in a waterfall."""


NOTHING = 1e-6
"""Share of the longest step below which the sum of these is nothing."""


class Bar(NamedTuple):
    """One part of the step in every plan [unit of the figure], how it looks, and its share of each plan's step [%]."""

    name: str
    colour: str
    pattern: str
    times: tuple[float, ...]
    shares: tuple[float, ...]


class Breakdown(NamedTuple):
    """What is shown of some plans' steps."""

    title: str  # of the figure
    unit: str  # of all times
    plans: tuple[str, ...]  # a label of each, no two alike
    ticks: tuple[str, ...]  # what stands beside each plan's bar
    bars: tuple[Bar, ...]  # parts that any plan has, in the order of the step
    totals: tuple[float, ...]  # totals, lows, highs: step times with their 90 % intervals
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    before: tuple[float, ...] = ()  # step times before a change; none where nothing was changed

    @property
    def places(self) -> list[int]:
        """Of the plans, from the top."""
        return list(range(len(self.plans)))

    @property
    def above(self) -> list[float]:
        """From each step time to the end of its interval."""
        return gaps(self.totals, self.highs)

    @property
    def below(self) -> list[float]:
        """From the begin of each interval to the step time."""
        return gaps(self.lows, self.totals)

    @property
    def whole(self) -> str:
        """What the parts are of."""
        return "step"

    @property
    def axis(self) -> str:
        """What the axis of the times says."""
        return f"step time [{self.unit}], whiskers: 90 %"

    @property
    def lines(self) -> tuple[object, ...]:
        """Across the bars: none."""
        return ()

    @property
    def rows(self) -> list[float]:
        """Where the axis of the plans begins and ends."""
        return [len(self.plans) - 0.45, -0.6]

    @property
    def height(self) -> int:
        """Of the figure."""
        return max(190 + 62 * len(self.plans), 340)  # on a phone a legend has a line for each part


BREAKDOWN: Drawing = {
    "data": [
        when("before", {
            "type": "bar", "x": of("before"), "y": of("places"), "orientation": "h", "width": 0.1, "offset": -0.43, "base": 0,
            "name": "before the change", "marker": {"color": GREY},
            "hovertemplate": "before the change: %{x:.4g} {unit}<extra></extra>",
        }),
        each("bars", {
            "type": "bar", "x": of("it.times"), "y": of("places"), "orientation": "h", "width": 0.6, "offset": -0.3,
            "name": of("it.name"), "customdata": of("it.shares"),
            "hovertemplate": "{it.name}: %{x:.4g} {unit}, %{customdata:.1f} % of the {whole}<extra></extra>",
            "marker": {"color": of("it.colour"), "pattern": hatched(of("it.pattern")), "line": {"width": 0}},
        }),
        when("above", {
            "type": "scatter", "x": of("totals"), "y": of("places"), "mode": "markers", "showlegend": False, "name": "90 %",
            "marker": {"size": 1, "color": BLACK}, "hoverinfo": "skip",
            "error_x": {
                "type": "data", "symmetric": False, "array": of("above"), "arrayminus": of("below"), "color": BLACK,
                "thickness": 1.2,
            },
        }),
    ],
    "layout": {
        "template": TEMPLATE, "title": {"text": of("title")}, "barmode": "stack", "legend": LEGEND_BELOW,
        "height": of("height"), "margin": {"l": 10, "r": 20, "t": 48, "b": 40},
        "shapes": [each("lines", {
            "type": "line", "x0": of("it.at"), "x1": of("it.at"), "y0": 0, "y1": 1, "yref": "paper",
            "line": {"color": BLACK, "width": 1.6, "dash": of("it.dash")},
        })],
        "xaxis": {"title": {"text": of("axis")}, "rangemode": "tozero"},
        "yaxis": {
            "tickmode": "array", "tickvals": of("places"), "ticktext": of("ticks"), "range": of("rows"), "automargin": True,
            "zeroline": False, "showgrid": False,
        },
    },
}  # fmt: skip
"""The chart of a `Breakdown`, or of parts of another whole: a page draws memory by it, with lines at its limits."""


class Fall(NamedTuple):
    """Why one plan is slower than another."""

    unit: str  # of all times
    first: str  # first, second: labels of the plans, with their step times
    second: str
    parts: tuple[str, ...]  # that differ, the largest change first
    pairs: tuple[tuple[float, float], ...]  # of each part its time in the first and in the second plan
    start: float  # start, end: step times of both
    end: float

    @property
    def added(self) -> list[float]:
        """By each part to the step."""
        return [after - before for before, after in self.pairs]

    @property
    def change(self) -> str:
        """Of the step time."""
        return f"{100.0 * (self.end / self.start - 1.0):+.1f} %".replace("-", "\N{MINUS SIGN}")

    @property
    def rows(self) -> list[str]:
        """Of the figure, from the top."""
        return [*self.parts, "in all"]

    @property
    def changes(self) -> list[float]:
        """Of each row."""
        return [*self.added, self.end - self.start]

    @property
    def words(self) -> list[str]:
        """Each change as it is written beside its bar."""
        return [f"{change:+.3g} {self.unit}".replace("-", "\N{MINUS SIGN}") for change in self.changes]

    @property
    def both(self) -> list[tuple[float, float]]:
        """Times of each row in both plans."""
        return [*self.pairs, (self.start, self.end)]

    @property
    def measures(self) -> list[str]:
        """What the bar of each row is to Plotly."""
        return [*["relative"] * len(self.parts), "total"]

    @property
    def span(self) -> list[float]:
        """Where the axis of the changes begins and ends: with room for the words."""
        levels = [0.0]
        for change in self.added:
            levels.append(levels[-1] + change)
        low, high = min(levels), max(levels)
        room = 0.45 * (high - low or 1.0)
        return [low - room, high + room]

    @property
    def height(self) -> int:
        """Of the figure."""
        return 184 + 34 * len(self.parts)


FALL: Drawing = {
    "data": [{
        "type": "waterfall", "y": of("rows"), "x": of("changes"), "orientation": "h", "measure": of("measures"),
        "text": of("words"), "textposition": "outside", "customdata": of("both"), "cliponaxis": False,
        "hovertemplate": "%{y}: %{customdata[0]:.4g} to %{customdata[1]:.4g} {unit}<extra></extra>",
        "connector": {"line": {"color": GREY, "dash": "dot"}}, "showlegend": False,
        "totals": {"marker": {"color": GREY}}, "increasing": {"marker": {"color": VERMILLION}},
        "decreasing": {"marker": {"color": BLUE}},
    }],
    "layout": {
        "template": TEMPLATE, "height": of("height"), "showlegend": False, "margin": {"l": 10, "r": 20, "t": 80, "b": 60},
        "title": {"text": "From {first}<br>to {second}: {change}"},
        "xaxis": {"title": {"text": "added to the step [{unit}]"}, "range": of("span"), "zeroline": True},
        "yaxis": {"automargin": True, "autorange": "reversed", "showgrid": False},
    },
}  # fmt: skip
"""The chart of a `Fall`: its bars start at nothing, where both steps are equal."""


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
            shares = tuple(100.0 * time / one.step_time for time, one in zip(seconds, estimates, strict=True))
            bars.append(Bar(part_name(part), *LOOKS[part], tuple(time / factor for time in seconds), shares))
    ends = [one.time_interval for one in estimates]
    first = estimates[0]
    title = breakdown_title(first.model.name, first.cluster)
    if len({(one.model.name, one.cluster.name, one.plan.gpus) for one in estimates}) > 1:
        title = "Step time of the plans side by side"
    names = labels(estimates)
    ticks = (f"{_folded(name)}<br><b>{format_seconds(one.step_time)}</b>" for name, one in zip(names, estimates, strict=True))
    return Breakdown(
        title, unit, names, tuple(ticks), tuple(bars), tuple(one.step_time / factor for one in estimates),
        tuple(low / factor for low, _ in ends), tuple(high / factor for _, high in ends),
        tuple(one.step_time / factor for one in before),
    )  # fmt: skip


def breakdown_title(model: str, cluster: Cluster) -> str:
    """What stands above a chart of steps.

    Parameters
    ----------
    model : its name
    cluster : of the question
    """
    return f"Step time of {model} on {counted(cluster.gpus or 1, 'GPU')} of {cluster.name}"


def breakdown_figure(estimates: Sequence[Estimate], before: Sequence[Estimate] = ()) -> go.Figure:
    """Bars of the parts of each plan's step, with 90 % intervals, and thin bars of the same plans before a change.

    Parameters
    ----------
    estimates : of one plan or of several
    before : of the same plans before a change; none are drawn where it is empty
    """
    return go.Figure(breakdown_drawing(estimates, before))


def breakdown_drawing(estimates: Sequence[Estimate], before: Sequence[Estimate] = ()) -> Drawing:
    """The same as plain data and layout, in a fraction of the time."""
    shown = breakdown(estimates, before)
    drawn: Drawing = filled(BREAKDOWN, named(shown))
    return drawn


def _folded(name: str) -> str:
    """A label on lines of twenty letters."""
    lines = [""]
    for word in name.split(", "):
        if lines[-1] and len(lines[-1]) + len(word) > 20:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]}, {word}" if lines[-1] else word
    return "<br>".join(lines)


def fall(first: Estimate, second: Estimate) -> Fall:
    """What `waterfall` shows."""
    longest = max(first.step_time, second.step_time)
    factor, unit = seconds_unit(longest)
    largest = max((abs(one.added) for one in differences(first, second)), default=0.0)
    found = [one for one in differences(first, second, SMALL * largest) if abs(one.added) > NOTHING * longest]
    names = tuple(
        f"{name} {format_seconds(one.step_time)}" for name, one in zip(labels((first, second)), (first, second), strict=True)
    )
    return Fall(
        unit, names[0], names[1], tuple(part_name(one.part) for one in found),
        tuple((one.first / factor, one.second / factor) for one in found), first.step_time / factor, second.step_time / factor,
    )  # fmt: skip


def waterfall(first: Estimate, second: Estimate) -> go.Figure:
    """What each part adds to one plan's step time on the way to another's; bars start where both are equal."""
    return go.Figure(waterfall_drawing(first, second))


def waterfall_drawing(first: Estimate, second: Estimate) -> Drawing:
    """The same as plain data and layout, in a fraction of the time."""
    drawn: Drawing = filled(FALL, named(fall(first, second)))
    return drawn

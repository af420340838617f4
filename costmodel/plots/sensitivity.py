"""A tornado: how far the step time moves when each quantity moves over its own error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from costmodel.description.labels import label
from costmodel.evaluation.estimation import Estimate
from costmodel.evaluation.sensitivity import Sensitivity
from costmodel.plots.specification import each, filled, named, of, when
from costmodel.plots.style import BLACK, BLUE, GREY, LEGEND_BELOW, TEMPLATE, VERMILLION, Drawing, hatched
from costmodel.text.units import format_seconds

Before = tuple[Estimate, Sequence[Sensitivity]]
"""A plan with its sensitivities."""
TIMES = "\N{MULTIPLICATION SIGN}"


class End(NamedTuple):
    """One end of all quantities: how it looks, and at it the changes of the step time [%] with their hovers."""

    name: str
    colour: str
    pattern: str
    changes: tuple[float, ...]
    texts: tuple[str, ...]


class Ghosts(NamedTuple):
    """Both ends before a change [%]: of which rows, from where, how far, and their hovers."""

    places: tuple[int, ...]
    lows: tuple[float, ...]
    widths: tuple[float, ...]
    texts: tuple[str, ...]


class Tornado(NamedTuple):
    """What is shown, the widest bar first."""

    head: str  # head, plan: of the figure: whose time is how long, and the plan
    plan: str
    quantities: tuple[str, ...]  # of the rows
    names: tuple[str, ...]  # the same in words, with what their interval changes
    lows: tuple[float, ...]  # lows, highs: change of the step time at the lower and the higher end of each [%]
    highs: tuple[float, ...]
    texts: tuple[tuple[str, str], ...]  # of both ends' hovers
    # the ends of each before a change [%]; empty where there was none, none of a quantity that did not matter then
    before: tuple[tuple[float, float] | None, ...] = ()

    @property
    def places(self) -> list[int]:
        """Of the rows, from the top."""
        return list(range(len(self.names)))

    @property
    def ends(self) -> list[End]:
        """Bars of the lower ends, and of the higher ones."""
        lows, highs = zip(*self.texts, strict=True) if self.texts else ((), ())
        return [End(*ENDS[0], self.lows, lows), End(*ENDS[1], self.highs, highs)]

    @property
    def ghosts(self) -> Ghosts:
        """Thin bars of what was before a change."""
        was = [(place, *ends) for place, ends in enumerate(self.before) if ends]
        return Ghosts(
            tuple(place for place, _, _ in was), tuple(low for _, low, _ in was), tuple(high - low for _, low, high in was),
            tuple(f"before the change: {_percent(low)} to {_percent(high)}" for _, low, high in was),
        )  # fmt: skip

    @property
    def span(self) -> list[float]:
        """Where the axis of the changes begins and ends."""
        reached = [*self.lows, *self.highs, *(end for both in self.before if both for end in both)]
        widest = max(map(abs, reached), default=1.0)
        return [-1.06 * widest, 1.06 * widest]

    @property
    def height(self) -> int:
        """Of the figure."""
        return 190 + 54 * len(self.names)


ENDS = (("lower end", VERMILLION, "/"), ("higher end", BLUE, ""))
"""What both ends are called, and how they look."""
TORNADO: Drawing = {
    "data": [
        when("ghosts.places", {
            "type": "bar", "y": of("ghosts.places"), "x": of("ghosts.widths"), "base": of("ghosts.lows"), "width": 0.1,
            "orientation": "h", "name": "before the change", "offset": -0.45, "marker": {"color": GREY}, "hoverinfo": "text",
            "hovertext": of("ghosts.texts"),
        }),
        each("ends", {
            "type": "bar", "x": of("it.changes"), "y": of("places"), "orientation": "h", "name": of("it.name"), "width": 0.66,
            "offset": -0.33, "hoverinfo": "text", "hovertext": of("it.texts"), "customdata": of("quantities"),
            "marker": {"color": of("it.colour"), "pattern": hatched(of("it.pattern"))},
        }),
    ],
    "layout": {
        "template": TEMPLATE, "title": {"text": "{head}<br><sub>{plan}</sub>"}, "barmode": "overlay", "height": of("height"),
        "legend": LEGEND_BELOW, "margin": {"l": 10, "r": 20, "t": 80, "b": 40},
        "shapes": [{
            "type": "line", "x0": 0, "x1": 0, "xref": "x", "y0": 0, "y1": 1, "yref": "y domain",
            "line": {"color": BLACK, "width": 1},
        }],
        "xaxis": {"title": {"text": "change [%]"}, "range": of("span"), "zeroline": False},
        "yaxis": {
            "autorange": "reversed", "automargin": True, "showgrid": False, "zeroline": False, "tickmode": "array",
            "tickvals": of("places"), "ticktext": of("names"),
        },
    },
}  # fmt: skip
"""The chart of a `Tornado`."""


def tornado(estimate: Estimate, found: Sequence[Sensitivity], before: Before | None = None) -> Tornado:
    """What `tornado_figure` shows.

    Parameters
    ----------
    estimate : of the plan
    found : as `costmodel.evaluation.sensitivity.sensitivities` gives them
    before : the same plan and its sensitivities before a change
    """
    now = estimate.step_time
    ends = [_ends(estimate, one) for one in found]
    texts = tuple((_text(one, one.low, one.time_low), _text(one, one.high, one.time_high)) for one in found)
    return Tornado(
        f"Sensitivity of {format_seconds(now)} a step, each quantity over its own 90 % interval", label(estimate.plan),
        tuple(one.quantity for one in found),
        tuple(
            f"{quantity_name(one.quantity)}<br><b>{_percent(low)} to {_percent(high)}</b>"
            for one, (low, high) in zip(found, ends, strict=True)
        ),
        tuple(low for low, _ in ends), tuple(high for _, high in ends), texts,
        _ends_before(found, before) if before else (),
    )  # fmt: skip


def _ends(estimate: Estimate, one: Sensitivity) -> tuple[float, float]:
    """Changes of the step time at both ends [%]."""
    now = estimate.step_time
    return 100.0 * (one.time_low / now - 1.0), 100.0 * (one.time_high / now - 1.0)


def _text(one: Sensitivity, factor: float, time: float) -> str:
    return f"{quantity_name(one.quantity)} {TIMES} {factor:.3g}: {format_seconds(time)} a step<br>{one.source}"


def _ends_before(found: Sequence[Sensitivity], before: Before) -> tuple[tuple[float, float] | None, ...]:
    then = {one.quantity: _ends(before[0], one) for one in before[1]}
    return tuple(then.get(one.quantity) for one in found)


def _percent(change: float) -> str:
    """A change with the minus sign of typography."""
    return f"{float(f'{change:.2g}'):+g} %".replace("-", "\N{MINUS SIGN}")


def quantity_name(quantity: str) -> str:
    """A quantity of `costmodel.evaluation.factors.quantities` in words.

    Parameters
    ----------
    quantity : its name

    Examples
    --------
    >>> quantity_name("device.memory_bandwidth")
    'GPU memory bandwidth'
    """
    owner, _, field = quantity.partition(".")
    words = field.replace("_", " ")
    return {"device": f"GPU {words}", "model": words}.get(owner, f"{owner} {words}")


def tornado_figure(estimate: Estimate, found: Sequence[Sensitivity], before: Before | None = None) -> go.Figure:
    """Bars of the change of the step time at both ends of every quantity's interval, the widest on top.

    Parameters
    ----------
    estimate : of the plan
    found : as `costmodel.evaluation.sensitivity.sensitivities` gives them
    before : the same plan and its sensitivities before a change, drawn as thin bars
    """
    return go.Figure(tornado_drawing(estimate, found, before))


def tornado_drawing(estimate: Estimate, found: Sequence[Sensitivity], before: Before | None = None) -> Drawing:
    """The same as plain data and layout, in a fraction of the time."""
    drawn: Drawing = filled(TORNADO, named(tornado(estimate, found, before)))
    return drawn

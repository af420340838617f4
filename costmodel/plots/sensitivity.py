"""A tornado: how far the step time moves when each quantity moves over its own error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from costmodel.description.labels import label
from costmodel.evaluation.estimation import Estimate
from costmodel.evaluation.sensitivity import Sensitivity
from costmodel.plots.style import BLACK, BLUE, GREY, LEGEND_BELOW, TEMPLATE, VERMILLION, Drawing
from costmodel.text.units import format_seconds

Before = tuple[Estimate, Sequence[Sensitivity]]
"""A plan with its sensitivities."""
TIMES = "\N{MULTIPLICATION SIGN}"


class Tornado(NamedTuple):
    """What is shown, the widest bar first.

    Parameters
    ----------
    title : of the figure
    names : of the quantities, with what their interval changes
    lows, highs : change of the step time at the lower and the higher end of each [%]
    texts : of both ends' hovers
    before : the ends of each before a change [%]; empty where there was none, none of a quantity that did not matter then
    """

    title: str
    names: tuple[str, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    texts: tuple[tuple[str, str], ...]
    before: tuple[tuple[float, float] | None, ...] = ()


def tornado(estimate: Estimate, found: Sequence[Sensitivity], before: Before | None = None) -> Tornado:
    """What `tornado_figure` shows.

    Parameters
    ----------
    estimate : of the plan
    found : as `costmodel.evaluation.sensitivity.sensitivities` gives them
    before : the same plan and its sensitivities before a change
    """
    now = estimate.step_time
    names = tuple(
        f"{quantity_name(one.quantity)}<br><b>{_percent(one.time_low / now)} to {_percent(one.time_high / now)}</b>"
        for one in found
    )
    texts = tuple(
        (
            f"{quantity_name(one.quantity)} {TIMES} {one.low:.3g}: {format_seconds(one.time_low)} a step<br>{one.source}",
            f"{quantity_name(one.quantity)} {TIMES} {one.high:.3g}: {format_seconds(one.time_high)} a step<br>{one.source}",
        )
        for one in found
    )
    return Tornado(
        f"Sensitivity of {format_seconds(now)} a step, each quantity over its own 90 % interval: {label(estimate.plan)}", names,
        tuple(100.0 * (one.time_low / now - 1.0) for one in found), tuple(100.0 * (one.time_high / now - 1.0) for one in found),
        texts, _ends_before(found, before) if before else (),
    )  # fmt: skip


def _ends_before(found: Sequence[Sensitivity], before: Before) -> tuple[tuple[float, float] | None, ...]:
    estimate, then = before[0], {one.quantity: one for one in before[1]}
    ends = {
        name: (100.0 * (one.time_low / estimate.step_time - 1.0), 100.0 * (one.time_high / estimate.step_time - 1.0))
        for name, one in then.items()
    }
    return tuple(ends.get(one.quantity) for one in found)


def _percent(ratio: float) -> str:
    """A ratio of times as a change, with the minus sign of typography."""
    return f"{100.0 * (ratio - 1.0):+.2g} %".replace("-", "\N{MINUS SIGN}")


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

    Returns
    -------
    plotly.graph_objects.Figure
        not shown yet
    """
    return go.Figure(tornado_drawing(estimate, found, before))


def tornado_drawing(estimate: Estimate, found: Sequence[Sensitivity], before: Before | None = None) -> Drawing:
    """The same as plain data and layout, in a fraction of the time.

    Parameters
    ----------
    estimate : of the plan
    found : as `costmodel.evaluation.sensitivity.sensitivities` gives them
    before : the same plan and its sensitivities before a change, drawn as thin bars
    """
    shown = tornado(estimate, found, before)
    places = list(range(len(shown.names)))
    ends = (("lower end", shown.lows, VERMILLION, "/", 0), ("higher end", shown.highs, BLUE, "", 1))
    data: list[dict[str, object]] = [
        {
            "type": "bar", "x": changes, "y": places, "orientation": "h", "name": name, "hoverinfo": "text", "width": 0.66,
            "offset": -0.33, "hovertext": [texts[end] for texts in shown.texts],
            "customdata": [(one.quantity, one.high if end else one.low) for one in found],
            "marker": {"color": colour, "pattern": {"shape": pattern, "fgcolor": "white", "size": 6}},
        }
        for name, changes, colour, pattern, end in ends
    ]  # fmt: skip
    was = [(place, *ends) for place, ends in enumerate(shown.before) if ends]
    if was:
        data.insert(0, {
            "type": "bar", "y": [place for place, _, _ in was], "x": [high - low for _, low, high in was], "width": 0.1,
            "base": [low for _, low, _ in was], "orientation": "h", "name": "before the change", "offset": -0.45,
            "marker": {"color": GREY}, "hoverinfo": "text", "hovertext": [
                f"before the change: {_percent(1.0 + low / 100.0)} to {_percent(1.0 + high / 100.0)}" for _, low, high in was
            ],
        })  # fmt: skip
    reached = [*shown.lows, *shown.highs, *(end for _, *both in was for end in both)]
    widest = max(map(abs, reached), default=1.0)
    head, _, plan = shown.title.partition(": ")
    middle = {"type": "line", "x0": 0, "x1": 0, "xref": "x", "y0": 0, "y1": 1, "yref": "y domain"}
    layout = {
        "template": TEMPLATE, "title": {"text": f"{head}<br><sub>{plan}</sub>"}, "barmode": "overlay",
        "height": 190 + 54 * len(shown.names), "legend": LEGEND_BELOW,
        "margin": {"l": 10, "r": 20, "t": 80, "b": 40}, "shapes": [{**middle, "line": {"color": BLACK, "width": 1}}],
        "xaxis": {"title": {"text": "change [%]"}, "range": [-1.06 * widest, 1.06 * widest], "zeroline": False},
        "yaxis": {
            "autorange": "reversed", "automargin": True, "showgrid": False, "zeroline": False, "tickmode": "array",
            "tickvals": places, "ticktext": shown.names,
        },
    }  # fmt: skip
    return {"data": data, "layout": layout}

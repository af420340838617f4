"""Measured against predicted, with the error of each prediction."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import plotly.graph_objects as go

from costmodel.plots.style import BLACK, GREY, LEGEND_BELOW, TEMPLATE, colour, marker, whiskers
from costmodel.text.checks import real
from costmodel.text.errors import InvalidValue

BAND = 0.1
"""Relative error that the shaded band marks."""
MOST_WHISKERS = 100
"""Runs beyond which intervals would hide what they are of."""


class MeasuredTime(NamedTuple):
    """One run: the series that it belongs to, its name, what was measured and predicted, and the 90 % interval."""

    series: str
    name: str
    measured: float
    predicted: float
    low: float
    high: float


class MeasuredChart(NamedTuple):
    """What is shown."""

    title: str  # of the figure
    quantity: str  # quantity, unit: on both axes
    unit: str
    runs: dict[str, tuple[MeasuredTime, ...]]  # by series, in order
    low: float  # low, high: of both axes
    high: float


def comparison(runs: Iterable[MeasuredTime], quantity: str = "step time", unit: str = "s") -> MeasuredChart:
    """What `measured_figure` shows.

    Parameters
    ----------
    runs : at least one; what is measured and predicted is in `unit`
    quantity, unit : on both axes

    Raises
    ------
    InvalidValue
        where there is no run, or a number is not above zero
    """
    series: dict[str, list[MeasuredTime]] = {}
    for run in runs:
        for field in ("measured", "predicted", "low", "high"):
            real(f"{field} of {run.name}", getattr(run, field), 1e-30, 1e30)
        series.setdefault(run.series, []).append(run)
    every = [run for members in series.values() for run in members]
    if not every:
        raise InvalidValue("runs", every, "at least one run")
    error = sum(abs(run.predicted / run.measured - 1.0) for run in every) / len(every)
    ends = [end for run in every for end in (run.measured, run.low, run.high)]
    return MeasuredChart(
        f"Measured against predicted {quantity}: {len(every)} runs, mean error {100 * error:.1f} %", quantity, unit,
        {name: tuple(members) for name, members in series.items()}, min(ends) / 1.2, max(ends) * 1.2,
    )  # fmt: skip


def measured_figure(runs: Iterable[MeasuredTime], quantity: str = "step time", unit: str = "s") -> go.Figure:
    """Predicted over measured on logarithmic axes of one scale, with a band of ten per cent; up to 100 runs have 90 % intervals.
    """
    shown = comparison(runs, quantity, unit)
    ends = [shown.low, shown.high]
    intervals = sum(map(len, shown.runs.values())) <= MOST_WHISKERS
    ordinate = f"predicted {quantity} [{unit}]{', whiskers: 90 %' if intervals else ''}"
    figure = go.Figure()
    figure.add_scatter(
        x=[*ends, *reversed(ends)], y=[*(end * (1 + BAND) for end in ends), *(end * (1 - BAND) for end in reversed(ends))],
        fill="toself", fillcolor="rgba(120, 120, 120, 0.18)", line={"width": 0}, hoverinfo="skip", name="within 10 %",
    )  # fmt: skip
    figure.add_scatter(
        x=ends, y=ends, mode="lines", line={"color": BLACK, "dash": "dash", "width": 1}, hoverinfo="skip", name="equal"
    )  # fmt: skip
    for place, (name, members) in enumerate(shown.runs.items()):
        figure.add_scatter(
            x=[run.measured for run in members], y=[run.predicted for run in members], mode="markers", name=name,
            text=[
                f"{run.name}<br>measured {run.measured:.4g} {unit}, predicted {run.predicted:.4g} {unit} "
                f"({100 * (run.predicted / run.measured - 1):+.1f} %)"
                for run in members
            ],
            hovertemplate="%{text}<extra></extra>",
            marker={"color": colour(place), "symbol": marker(place), "size": 9, "line": {"color": BLACK, "width": 0.5}},
            error_y=None if not intervals else whiskers(
                [run.predicted for run in members], [run.low for run in members], [run.high for run in members], GREY
            ),
        )  # fmt: skip
    axis = {"type": "log", "range": [math.log10(end) for end in ends], "exponentformat": "SI", "dtick": "D2"}
    figure.update_layout(
        template=TEMPLATE, title=shown.title, height=560, margin={"l": 70, "r": 20, "t": 60, "b": 40}, legend=LEGEND_BELOW,
        xaxis={**axis, "title": f"measured {quantity} [{unit}]", "constrain": "domain"},
        yaxis={**axis, "title": ordinate, "scaleanchor": "x", "constrain": "domain"},
    )  # fmt: skip
    return figure

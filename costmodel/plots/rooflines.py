"""A layer's operators below the roofline of their device."""

from __future__ import annotations

import math
from typing import NamedTuple

import plotly.graph_objects as go

from costmodel.evaluation.operators import Roofline
from costmodel.plots.style import BLACK, LEGEND_BELOW, TEMPLATE, colour, marker
from costmodel.text.units import TB, TFLOP, format_bytes, format_seconds


class Dot(NamedTuple):
    """One operator: arithmetic intensity [FLOP/byte], rate [TFLOP/s], its share of the pass, and its hover."""

    name: str
    intensity: float
    rate: float
    share: float
    text: str


class Roof(NamedTuple):
    """What is shown."""

    title: str  # of the figure
    peak: float  # dense peak [TFLOP/s]
    ridge: float  # where the slope meets it [FLOP/byte]
    slope: float  # bandwidth of the memory [TB/s], which is TFLOP/s at one FLOP/byte
    dots: tuple[Dot, ...]  # operators, the slowest first


def roof(made: Roofline) -> Roof:
    """What `roofline_figure` shows.

    Parameters
    ----------
    made : as `costmodel.evaluation.operators.roofline` gives it
    """
    whole = sum(one.time for one in made.operators) + made.streaming_time
    dots = []
    for one in made.operators:
        limit = min(made.peak, made.bandwidth * one.intensity)
        bound = "compute" if one.intensity >= made.ridge else "memory"
        text = (
            f"{one.name}: {one.flop / TFLOP:.3g} TFLOP, {format_bytes(one.nbytes)}, {format_seconds(one.time)}<br>"
            f"{one.intensity:,.0f} FLOP/byte, {one.rate / TFLOP:,.0f} TFLOP/s, {100 * one.rate / limit:.0f} % of its roof<br>"
            f"bound by {bound}"
        )
        dots.append(Dot(one.name, one.intensity, one.rate / TFLOP, one.time / whole, text))
    title = (
        f"Roofline of {made.device} in {made.dtype}<br><sub>forward pass of one layer and the vocabulary projection on one "
        f"micro-batch; kernels between them only move bytes, {format_seconds(made.streaming_time)} a layer</sub>"
    )
    return Roof(title, made.peak / TFLOP, made.ridge, made.bandwidth / TB, tuple(dots))


def roofline_figure(made: Roofline) -> go.Figure:
    """Rates over arithmetic intensity on logarithmic axes; larger markers take longer."""
    shown = roof(made)
    least = min([shown.ridge, *(dot.intensity for dot in shown.dots)]) / 5
    most = max([shown.ridge, *(dot.intensity for dot in shown.dots)]) * 5
    figure = go.Figure()
    figure.add_scatter(
        x=[least, shown.ridge, most], y=[least * shown.slope, shown.peak, shown.peak], mode="lines", hoverinfo="skip",
        name=f"roof: {shown.slope:.3g} TB/s, {shown.peak:,.0f} TFLOP/s", line={"color": BLACK, "width": 2},
    )  # fmt: skip
    figure.add_scatter(
        x=[shown.ridge], y=[shown.peak], mode="markers+text", text=[f"ridge: {shown.ridge:,.0f} FLOP/byte"], hoverinfo="skip",
        textposition="top center", showlegend=False, marker={"color": BLACK, "size": 7, "symbol": "triangle-down"},
    )  # fmt: skip
    for place, dot in enumerate(shown.dots):
        figure.add_scatter(
            x=[dot.intensity], y=[dot.rate], text=[dot.text], mode="markers", name=f"{dot.name} ({100 * dot.share:.0f} %)",
            hovertemplate="%{text}<extra></extra>",
            marker={
                "color": colour(place), "symbol": marker(place), "size": 10 + 26 * dot.share**0.5,
                "line": {"color": BLACK, "width": 0.5},
            },
        )  # fmt: skip
    rates = [shown.peak, *(dot.rate for dot in shown.dots)]
    figure.update_layout(
        template=TEMPLATE, title=shown.title, height=460, margin={"l": 70, "r": 20, "t": 90, "b": 120},
        legend={**LEGEND_BELOW, "itemsizing": "constant"},
        xaxis={"type": "log", "title": "arithmetic intensity [FLOP/byte]", "dtick": "D2"},
        yaxis={
            "type": "log", "title": "rate [TFLOP/s]", "range": [math.log10(min(rates) / 2), math.log10(max(rates) * 1.6)],
            "dtick": "D1",
        },
    )  # fmt: skip
    return figure

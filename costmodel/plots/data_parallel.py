"""Figures of data parallelism: the time of an iteration, published beside predicted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import plotly.graph_objects as go

from costmodel.formulas.systems import data_parallel
from costmodel.plots.style import BLACK, TEMPLATE, VERMILLION


class Iterations(NamedTuple):
    """What `iteration_times` shows."""

    gpus: tuple[int, ...]  # of each point, fewest first
    published: tuple[float, ...]  # published, predicted: time of an iteration [s]
    predicted: tuple[float, ...]
    error: tuple[float, ...]  # of the prediction over what is published [%]
    efficiency: tuple[float, ...]  # published, over that of the fewest GPUs [%]


def iterations(published: Mapping[int, float], predicted: Mapping[int, float]) -> Iterations:
    """Published and predicted times, point by point.

    Parameters
    ----------
    published, predicted : time of an iteration by number of GPUs [s]
    """
    gpus = sorted(published)
    first = published[gpus[0]]
    return Iterations(
        tuple(gpus), tuple(published[n] for n in gpus), tuple(predicted[n] for n in gpus),
        tuple(100.0 * (predicted[n] / published[n] - 1.0) for n in gpus),
        tuple(100.0 * data_parallel.scaling_efficiency(first, published[n]) for n in gpus),
    )  # fmt: skip


def iteration_times(shown: Iterations, title: str, source: str) -> go.Figure:
    """Time of an iteration over the number of GPUs, published beside predicted, and a band of 5 % about the published.

    Parameters
    ----------
    shown : points, made by `iterations`
    title : of the figure
    source : of the published times
    """
    figure = go.Figure()
    upper, lower = ([factor * time for time in shown.published] for factor in (1.05, 0.95))
    figure.add_scatter(x=shown.gpus, y=upper, mode="lines", line={"width": 0}, showlegend=False, hoverinfo="skip")
    figure.add_scatter(
        x=shown.gpus, y=lower, mode="lines", line={"width": 0}, fill="tonexty", fillcolor="rgba(0, 0, 0, 0.1)",
        name="published ± 5 %", hoverinfo="skip",
    )  # fmt: skip
    figure.add_scatter(
        x=shown.gpus, y=shown.published, mode="lines+markers", name="published", marker={"symbol": "circle", "size": 10},
        line={"color": BLACK}, customdata=shown.efficiency,
        hovertemplate="%{x} GPUs<br>published %{y:.3f} s<br>efficiency %{customdata:.1f} %<extra></extra>",
    )  # fmt: skip
    figure.add_scatter(
        x=shown.gpus, y=shown.predicted, mode="lines+markers", name="predicted", marker={"symbol": "x", "size": 10},
        line={"color": VERMILLION, "dash": "dash"}, customdata=shown.error,
        hovertemplate="%{x} GPUs<br>predicted %{y:.3f} s<br>error %{customdata:+.1f} %<extra></extra>",
    )  # fmt: skip
    figure.update_layout(template=TEMPLATE, title=f"{title}<br><sub>{source}</sub>")
    figure.update_xaxes(type="log", title="GPUs", tickvals=shown.gpus)
    figure.update_yaxes(title="time of an iteration [s]", rangemode="tozero")
    return figure

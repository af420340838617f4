"""Figures of whole runs: systems side by side, and hours against machines."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from costmodel.plots.style import BLUE, GREEN, GREY, TEMPLATE, VERMILLION, bytes_unit, colour, marker
from costmodel.text.units import counted
from costmodel.training.systems_compared import Comparison

PANELS = ("efficiency of a GPU", "memory of the fullest GPU", "sent by a GPU in a step", "updates that a gradient misses")


WRAPPED = 24
"""Letters of a line under a panel."""


class SystemBars(NamedTuple):
    """What `compared_systems` shows, a bar a system in each panel, the first system at the top."""

    names: tuple[str, ...]
    settings: tuple[str, ...]
    fits: tuple[bool, ...]
    values: tuple[tuple[float, ...], ...]
    titles: tuple[str, ...]
    limit: float


def comparison_bars(comparison: Comparison) -> SystemBars:
    """Efficiency, memory, bytes and staleness of each system, in the units of their axes.

    Parameters
    ----------
    comparison : of `costmodel.compare_systems`
    """
    systems = comparison.systems
    memory, memory_unit = bytes_unit(max(one.memory for one in systems))
    sent, sent_unit = bytes_unit(max(one.sent_bytes for one in systems))
    values = (
        tuple(100.0 * one.efficiency for one in systems), tuple(one.memory / memory for one in systems),
        tuple(one.sent_bytes / sent for one in systems), tuple(one.staleness.mean for one in systems),
    )  # fmt: skip
    titles = (f"{PANELS[0]} [%]", f"{PANELS[1]} [{memory_unit}]", f"{PANELS[2]} [{sent_unit}]", PANELS[3])
    return SystemBars(
        tuple(one.name for one in systems), tuple(one.setting for one in systems), tuple(one.fits for one in systems), values,
        titles, systems[0].memory_limit / memory,
    )  # fmt: skip


def compared_systems(comparison: Comparison) -> go.Figure:
    """Systems of training side by side, a panel each for efficiency, memory, bytes sent and staleness.

    Systems that don't fit in memory are hatched and grey.
    """
    bars = comparison_bars(comparison)
    figure = make_subplots(rows=1, cols=4, shared_yaxes=True, horizontal_spacing=0.025)
    for place, (values, title, tone) in enumerate(zip(bars.values, bars.titles, (BLUE, GREEN, VERMILLION, BLUE), strict=True), 1):
        figure.add_trace(
            go.Bar(
                x=values, y=bars.names, orientation="h", showlegend=False,
                marker={
                    "color": [tone if fits else GREY for fits in bars.fits],
                    "pattern": {"shape": ["" if fits else "/" for fits in bars.fits]},
                },
                customdata=[*zip(bars.settings, ("fits" if fits else "does not fit" for fits in bars.fits), strict=True)],
                hovertemplate="%{y}<br>%{customdata[0]}<br>" + title + ": %{x:.4g}<br>%{customdata[1]}<extra></extra>",
            ),
            row=1, col=place,
        )  # fmt: skip
        figure.update_xaxes(title_text="<br>".join(textwrap.wrap(title, WRAPPED)), row=1, col=place)
    figure.add_vline(x=bars.limit, line={"dash": "dash", "color": GREY}, row=1, col=2)
    figure.update_yaxes(autorange="reversed")
    figure.update_layout(
        template=TEMPLATE, height=150 + 28 * len(bars.names), margin={"t": 70, "l": 200, "b": 80},
        title=f"{comparison.workload} on {counted(comparison.cluster.gpus or 1, 'GPU')} of {comparison.cluster.name}",
    )  # fmt: skip
    return figure


class Hours(NamedTuple):
    """Hours to a target of one system against its machines, published and predicted."""

    system: str
    machines: Sequence[float]
    published: Sequence[float]
    predicted: Sequence[float]


def hours_against_machines(lines: Sequence[Hours], title: str) -> go.Figure:
    """Hours to a target against machines: published as filled markers, predicted as dashed lines.

    Parameters
    ----------
    lines : one a system
    title : of the figure
    """
    figure = go.Figure()
    for place, line in enumerate(lines):
        look = {"color": colour(place), "symbol": marker(place), "size": 10}
        hover = line.system + "<br>%{x:.0f} machines: %{y:.1f} h<extra>"
        figure.add_trace(
            go.Scatter(
                x=list(line.machines), y=list(line.published), mode="markers", name=f"{line.system}, published", marker=look,
                hovertemplate=hover + "published</extra>",
            )
        )  # fmt: skip
        figure.add_trace(
            go.Scatter(
                x=list(line.machines), y=list(line.predicted), mode="lines", name=f"{line.system}, predicted",
                line={"color": colour(place), "dash": "dash"}, hovertemplate=hover + "predicted</extra>",
            )
        )  # fmt: skip
    figure.update_xaxes(title_text="machines")
    figure.update_yaxes(title_text="hours", rangemode="tozero")
    figure.update_layout(template=TEMPLATE, title=title, height=480)
    return figure

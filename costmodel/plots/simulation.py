"""A step over time: what computes, what is held, and what every class of links carries."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

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
    YELLOW,
    hatched,
    seconds_unit,
)
from costmodel.simulation.played_step import Simulation
from costmodel.text.units import GB, GiB, counted, format_seconds

LOOKS = ((BLUE, "solid", 2.2), (VERMILLION, "dash", 1.6), (GREEN, "dot", 1.8))
"""Okabe-Ito colour, dash and width of the lines of a row."""


class RowLine(NamedTuple):
    """One line of a row."""

    name: str
    values: NDArray[np.float64]


class StackedRow(NamedTuple):
    """One of the stacked rows: its lines, and the most that they can reach, if that is known."""

    title: str
    unit: str
    lines: tuple[RowLine, ...]
    limit: float | None


class Use(NamedTuple):
    """What the figure shows: edges of the bins [in `unit`], and the rows."""

    title: str
    unit: str
    edges: NDArray[np.float64]
    rows: tuple[StackedRow, ...]


def shown(step: Simulation, bins: int = 400) -> Use:
    """What `utilisation` shows.

    Parameters
    ----------
    step : as `simulate` gives one
    bins : of time
    """
    use = step.utilisation(bins)
    question, last = step.estimate, step.stages - 1
    size, unit = seconds_unit(step.total)

    def lines(values: NDArray[np.float64], stages: tuple[int, ...]) -> tuple[RowLine, ...]:
        if not last:
            return (RowLine("every GPU", values[0]),)
        return tuple(RowLine(f"stage {stage}", values[stage]) for stage in dict.fromkeys(stages))

    def mean(values: NDArray[np.float64], other: int) -> tuple[RowLine, ...]:
        every = (RowLine("mean of all stages", values.mean(0)),) if last else ()
        return every + lines(values, (other,))

    fullest = int(step.peak_bytes.argmax())
    rows = [
        StackedRow("computing", "% of the time", mean(100.0 * use.compute, last), 100.0),
        StackedRow("held on a GPU", "GiB", lines(use.held / GiB, (0, fullest, last)), question.memory_limit / GiB),
    ]
    for load in step.loads:
        rows.append(StackedRow(f"{load.level} link", "GB/s", mean(use.links[load.level] / GB, load.stage), load.bandwidth / GB))
    title = (
        f"{question.model.name} on {counted(question.plan.gpus, 'GPU')} of {question.cluster.name}, {question.framework.name}: "
        f"{format_seconds(step.step_time)}"
    )
    return Use(title, unit, use.times / size, tuple(rows))


def utilisation(step: Simulation, bins: int = 400) -> go.Figure:
    """Use of compute, of memory and of the links of each level over a step, one row each over the same time."""
    what = shown(step, bins)
    count = len(what.rows)
    figure = make_subplots(rows=count, cols=1, shared_xaxes=True, vertical_spacing=0.05)
    for place, row in enumerate(what.rows, 1):
        for line, (colour, dash, width) in zip(row.lines, LOOKS, strict=False):
            figure.add_scatter(
                x=what.edges, y=[*line.values, line.values[-1]], mode="lines", name=f"{row.title}: {line.name}",
                line={"shape": "hv", "color": colour, "dash": dash, "width": width}, legend=_legend(place),
                hovertemplate=f"{line.name}: %{{y:.4g}} {row.unit}<br>from %{{x:.4g}} {what.unit}<extra>{row.title}</extra>",
                row=place, col=1,
            )  # fmt: skip
        if row.limit is not None:
            figure.add_scatter(
                x=what.edges[[0, -1]], y=[row.limit, row.limit], mode="lines", name=f"limit, {row.limit:.4g} {row.unit}",
                line={"color": BLACK, "dash": "longdash", "width": 1}, legend=_legend(place),
                hovertemplate=f"limit {row.limit:.4g} {row.unit}<extra>{row.title}</extra>", row=place, col=1,
            )  # fmt: skip
        top = max([float(line.values.max()) for line in row.lines] + ([row.limit] if row.limit else []))
        figure.update_yaxes(title_text=f"{row.title}<br>[{row.unit}]", range=[0.0, 1.08 * top or 1.0], row=place, col=1)
    domains = [figure.layout[f"yaxis{place if place > 1 else ''}"].domain for place in range(1, count + 1)]
    for place, domain in enumerate(domains, 1):
        figure.update_layout({_legend(place): {"x": 1.01, "y": domain[1], "yanchor": "top", "xanchor": "left"}})
    figure.update_layout(
        template=TEMPLATE, title=what.title, height=190 * count + 110, margin={"t": 60, "l": 90, "r": 20, "b": 50},
    )  # fmt: skip
    figure.update_xaxes(title_text=f"time [{what.unit}]", row=count, col=1)
    return figure


def _legend(place: int) -> str:
    return "legend" if place == 1 else f"legend{place}"


IDLE_LOOKS = {
    "compute": (BLUE, ""), "exchange": (SKY, "/"), "contention": (YELLOW, "x"), "optimizer": (GREEN, "."),
    "bubble": (ORANGE, "\\"), "send": (PURPLE, "-"), "gradient exchange": (VERMILLION, "+"),
    "parameter gather": (GREY, "/"), "slowest replica": (BLACK, "x"), "host": (LIGHT, "."),
}  # fmt: skip
"""Colour and pattern of each part of a rank's time."""


class Parts(NamedTuple):
    """What `time_parts` shows: of each stage, the share of the step that each part takes [%]."""

    title: str
    stages: tuple[str, ...]
    shares: dict[str, NDArray[np.float64]]


def parts(step: Simulation) -> Parts:
    """What `time_parts` shows."""
    shares = {name: 100.0 * values.mean(1) / step.total for name, values in step.times.items()}
    names = tuple(f"stage {stage}" for stage in range(step.stages)) if step.stages > 1 else ("every GPU",)
    return Parts(shown(step, 1).title, names, {name: share for name, share in shares.items() if share.max() > 1e-6})


def time_parts(step: Simulation) -> go.Figure:
    """What the GPUs of each stage spend the step on, and what they wait for."""
    what = parts(step)
    figure = go.Figure()
    for name, share in what.shares.items():
        colour, pattern = IDLE_LOOKS[name]
        kind = "busy" if name in step.busy else "idle"
        figure.add_bar(
            y=what.stages, x=share, orientation="h", name=f"{name} ({kind})",
            marker={"color": colour, "line": {"color": "white", "width": 0.5},
                    "pattern": hatched(pattern)},
            hovertemplate=f"%{{y}}: {name} %{{x:.3g}} % of the step<extra></extra>",
        )  # fmt: skip
    figure.update_layout(
        template=TEMPLATE, title=what.title, barmode="stack", bargap=0.15, height=max(300, 160 + 30 * len(what.stages)),
        legend={"traceorder": "normal"}, margin={"t": 60, "l": 90, "r": 20, "b": 50},
    )  # fmt: skip
    figure.update_yaxes(autorange="reversed")
    figure.update_xaxes(title_text="share of the step [%]", range=[0.0, 100.0])
    return figure

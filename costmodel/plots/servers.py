"""Figures of parameter servers and BytePS: published beside predicted, and waiting against the delay allowed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from costmodel.plots.style import LEGEND_BELOW, TEMPLATE, colour, dash, marker
from costmodel.studies.parameter_servers.servers import ParameterServerStep

LAYOUT = {
    "template": TEMPLATE, "legend": LEGEND_BELOW,
    "margin": {"t": 90, "b": 40},
}  # fmt: skip


class SystemPoint(NamedTuple):
    """A value of one system (or model) at one size, in the unit of its figure."""

    panel: str
    system: str
    x: float
    published: float | None
    predicted: float | None


class SystemLine(NamedTuple):
    """Values of one system in one panel, published or predicted."""

    system: str
    predicted: bool
    x: tuple[float, ...]
    y: tuple[float, ...]


class SystemPanels(NamedTuple):
    """What `published_beside_predicted` shows: lines by panel, and the systems in the order of their colours."""

    titles: tuple[str, ...]
    systems: tuple[str, ...]
    lines: tuple[tuple[SystemLine, ...], ...]


def comparison_panels(points: Iterable[SystemPoint]) -> SystemPanels:
    """Points as lines in panels, both in the order met; a line has the points that have its value.

    Parameters
    ----------
    points : of any panels and systems
    """
    found: dict[str, dict[str, list[SystemPoint]]] = {}
    systems: dict[str, None] = {}
    for point in points:
        found.setdefault(point.panel, {}).setdefault(point.system, []).append(point)
        systems[point.system] = None
    lines = []
    for panel in found.values():
        drawn = []
        for system, members in panel.items():
            ordered = sorted(members, key=lambda point: point.x)
            for predicted in (False, True):
                pairs = [(point.x, point.predicted if predicted else point.published) for point in ordered]
                held = [(x, y) for x, y in pairs if y is not None]
                if held:
                    drawn.append(SystemLine(system, predicted, *(tuple(part) for part in zip(*held, strict=True))))
        lines.append(tuple(drawn))
    return SystemPanels(tuple(found), tuple(systems), tuple(lines))


def published_beside_predicted(
    points: Iterable[SystemPoint], *, title: str, x_title: str, y_title: str, columns: int = 3, logarithmic: bool = False
) -> go.Figure:
    """Lines of systems, a panel a set-up: published as filled markers, predicted as dashed lines with hollow ones.

    Parameters
    ----------
    points : values to show
    title : of the figure, with the source of what is published
    x_title, y_title : of the axes, with their units
    columns : panels side by side
    logarithmic : whether both axes are
    """
    panels = comparison_panels(points)
    columns = max(1, min(columns, len(panels.titles)))
    rows = max(1, -(-len(panels.titles) // columns))
    figure = make_subplots(
        rows=rows, cols=columns, subplot_titles=panels.titles, horizontal_spacing=0.07, vertical_spacing=0.35 / (rows + 1.0)
    )
    shown: set[tuple[str, bool]] = set()
    for place, lines in enumerate(panels.lines):
        row, column = place // columns + 1, place % columns + 1
        for line in lines:
            mark = panels.systems.index(line.system)
            symbol = marker(mark)
            word = "predicted" if line.predicted else "published"
            key = (line.system, line.predicted)
            figure.add_scatter(
                x=line.x, y=line.y, row=row, col=column, name=f"{line.system}, {word}", legendgroup=f"{line.system} {word}",
                showlegend=key not in shown, mode="lines+markers" if line.predicted else "markers",
                line={"color": colour(mark), "dash": "dash", "width": 1.5},
                marker={"color": colour(mark), "size": 9, "symbol": f"{symbol}-open" if line.predicted else symbol},
                hovertemplate=f"{line.system}, {word}<br>{x_title}: %{{x:,}}<br>{y_title}: %{{y:,.4g}}<extra></extra>",
            )  # fmt: skip
            shown.add(key)
        sizes = sorted({x for line in lines for x in line.x})
        figure.update_xaxes(tickvals=sizes, ticktext=[f"{x:g}" for x in sizes], title_text=x_title, row=row, col=column)
        if logarithmic:
            figure.update_xaxes(type="log", row=row, col=column)
            figure.update_yaxes(type="log", dtick="D2", row=row, col=column)
        else:
            figure.update_yaxes(rangemode="tozero", row=row, col=column)
    for row in range(1, rows + 1):
        figure.update_yaxes(title_text=y_title, row=row, col=1)
    figure.update_layout(**LAYOUT, title_text=title)
    return figure


class Waiting(NamedTuple):
    """Waiting and throughput of workers against the delay that they may have."""

    label: str
    delays: tuple[int, ...]
    idle: tuple[float, ...]
    """[%] of a worker's time"""
    throughput: tuple[float, ...]
    """[%] of that without waiting"""


def waiting_by_delay(label: str, results: Iterable[tuple[int, ParameterServerStep]]) -> Waiting:
    """Delays with what `costmodel.parameter_server` gave for each, as the lines of `waiting_against_delay`.

    Parameters
    ----------
    label : of the lines
    results : delay [steps] and result
    """
    ordered = sorted(results, key=lambda pair: pair[0])
    return Waiting(
        label, tuple(delay for delay, _ in ordered), tuple(100.0 * result.idle_share for _, result in ordered),
        tuple(100.0 * result.compute_time / result.step_time for _, result in ordered),
    )  # fmt: skip


def waiting_against_delay(lines: Iterable[Waiting], title: str = "What a bounded delay gains") -> go.Figure:
    """Share of time that workers wait, and share of time that they compute, against the delay allowed.

    Parameters
    ----------
    lines : one for each distribution of computing times
    title : of the figure
    """
    figure = make_subplots(cols=2, subplot_titles=("Waiting for other workers", "Throughput"), horizontal_spacing=0.1)
    delays: set[int] = set()
    for place, line in enumerate(lines):
        delays |= set(line.delays)
        for column, values, what in ((1, line.idle, "waiting"), (2, line.throughput, "of the workers' own rate")):
            figure.add_scatter(
                x=[delay + 1 for delay in line.delays], y=values, customdata=line.delays, row=1, col=column, name=line.label,
                legendgroup=line.label, showlegend=column == 1, mode="lines+markers",
                line={"color": colour(place), "dash": dash(place)}, marker={"symbol": marker(place), "size": 8},
                hovertemplate=f"{line.label}<br>delay of %{{customdata}} steps: %{{y:.1f}} % {what}<extra></extra>",
            )  # fmt: skip
    ticks = sorted(delays)
    figure.update_xaxes(
        type="log", tickvals=[delay + 1 for delay in ticks], ticktext=[str(delay) for delay in ticks],
        title_text="delay allowed [steps]",
    )  # fmt: skip
    figure.update_yaxes(title_text="share of a worker's time [%]", rangemode="tozero", col=1)
    figure.update_yaxes(title_text="throughput [% of workers that never wait]", range=[0, 102], col=2)
    figure.update_layout(**LAYOUT, title_text=title)
    return figure

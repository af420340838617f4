"""Figures of networks: the share of communication in data-parallel training, published beside predicted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from costmodel.plots.style import LEGEND_BELOW, TEMPLATE, colour, marker


class OverheadPoint(NamedTuple):
    """Share of communication of one network on one kind of server."""

    instance: str
    network: str
    gpus: int
    published: float
    """[%]"""
    predicted: float
    """[%]"""


class NetworkLine(NamedTuple):
    """Points of one network in one panel."""

    network: str
    gpus: tuple[int, ...]
    published: tuple[float, ...]
    predicted: tuple[float, ...]


class OverheadPanels(NamedTuple):
    """What `communication_overhead` shows: lines by kind of server."""

    instances: tuple[str, ...]
    lines: tuple[tuple[NetworkLine, ...], ...]


def overhead_panels(points: Iterable[OverheadPoint]) -> OverheadPanels:
    """Points in panels of lines, in the order met.

    Parameters
    ----------
    points : any number, of any networks and kinds of server
    """
    found: dict[str, dict[str, list[OverheadPoint]]] = {}
    for point in points:
        found.setdefault(point.instance, {}).setdefault(point.network, []).append(point)

    def line(network: str, members: Sequence[OverheadPoint]) -> NetworkLine:
        ordered = sorted(members, key=lambda point: point.gpus)
        return NetworkLine(network, tuple(p.gpus for p in ordered), tuple(p.published for p in ordered),
                    tuple(p.predicted for p in ordered))  # fmt: skip

    return OverheadPanels(tuple(found), tuple(tuple(line(*pair) for pair in networks.items()) for networks in found.values()))


def communication_overhead(points: Iterable[OverheadPoint], source: str = "published") -> go.Figure:
    """Share of communication against GPUs, a panel a kind of server: published solid, predicted dashed and hollow.

    Parameters
    ----------
    points : published and predicted shares [%]
    source : where the published ones are from
    """
    panels = overhead_panels(points)
    figure = make_subplots(cols=max(1, len(panels.instances)), shared_yaxes=True, subplot_titles=panels.instances,
                           horizontal_spacing=0.03)  # fmt: skip
    places: dict[str, int] = {}
    for column, lines in enumerate(panels.lines, 1):
        for line in lines:
            first = line.network not in places
            place = places.setdefault(line.network, len(places))
            mark = marker(place)
            for shares, word, dash, symbol in (
                (line.published, source, "solid", mark), (line.predicted, "predicted", "dash", f"{mark}-open"),
            ):  # fmt: skip
                figure.add_scatter(
                    x=line.gpus, y=shares, col=column, row=1, mode="lines+markers", name=line.network,
                    legendgroup=line.network, showlegend=first and word == source,
                    line={"color": colour(place), "dash": dash}, marker={"symbol": symbol, "size": 9, "color": colour(place)},
                    hovertemplate=f"{line.network}, {word}<br>%{{x}} GPUs: %{{y:.1f}} % communication<extra></extra>",
                )  # fmt: skip
        figure.update_xaxes(
            title_text="GPUs", type="log", tickvals=sorted({gpus for line in lines for gpus in line.gpus}), col=column
        )
    figure.update_yaxes(range=[0, 100])
    figure.update_yaxes(title_text="communication, share of a step [%]", col=1)
    figure.update_layout(
        template=TEMPLATE, title_text=f"Communication in data-parallel training: {source} (solid) and predicted (dashed)",
        legend=LEGEND_BELOW,
    )  # fmt: skip
    return figure

"""How often what was told with a probability came true, on runs that nobody had seen."""

from __future__ import annotations

import functools
import json
from typing import NamedTuple

import plotly.graph_objects as go

from costmodel.catalogue.files import text_of
from costmodel.plots.style import BLACK, LEGEND_BELOW, TEMPLATE, colour, marker


class ReliabilityBins(NamedTuple):
    """What was told, and how often it came true."""

    told: tuple[float, ...]  # probabilities
    true: tuple[float, ...]  # shares of runs of which what was told with them came true
    rows: tuple[float, ...]  # runs behind each


@functools.cache
def reliability() -> dict[str, ReliabilityBins]:
    """What `reliability_figure` shows: intervals of the step time and of the peak memory, and whether a plan fits.

    Each source of the ledger of first contacts (`python -m calibration errors`) is told by the error model that was set without
    it.
    """
    stored = json.loads(text_of("reliability.json"))
    return {
        name: ReliabilityBins(*(tuple(columns[field]) for field in ReliabilityBins._fields))
        for name, columns in stored.items()
    }


def reliability_figure() -> go.Figure:
    """Shares of runs of which came true what was told with a probability, over that probability."""
    figure = go.Figure()
    figure.add_scatter(
        x=[0, 100], y=[0, 100], mode="lines", line={"color": BLACK, "dash": "dash", "width": 1}, hoverinfo="skip", name="as told"
    )
    for place, (name, shown) in enumerate(reliability().items()):
        figure.add_scatter(
            x=[100 * value for value in shown.told], y=[100 * value for value in shown.true], mode="lines+markers", name=name,
            line={"color": colour(place)}, marker={"symbol": marker(place), "size": 9}, customdata=shown.rows,
            hovertemplate="told with %{x:.0f} %, true of %{y:.0f} % of %{customdata:,} runs<extra></extra>",
        )
    axis = {"ticksuffix": " %", "range": [-2, 102]}
    figure.update_layout(
        template=TEMPLATE, title="What first contacts made of probabilities, each source left out", height=520,
        margin={"l": 70, "r": 20, "t": 60, "b": 40}, legend=LEGEND_BELOW,
        xaxis={**axis, "title": "probability told"}, yaxis={**axis, "title": "share of runs of which it came true"},
    )  # fmt: skip
    return figure

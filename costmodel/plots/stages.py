"""Memory of every pipeline stage against the capacity of its GPU."""

from __future__ import annotations

from typing import NamedTuple

import plotly.graph_objects as go

from costmodel.description.labels import label
from costmodel.evaluation.estimation import Estimate
from costmodel.evaluation.memory_breakdown import PARTS
from costmodel.plots.specification import each, filled, named, of, when
from costmodel.plots.style import BLACK, GREY, LEGEND_BELOW, TEMPLATE, Drawing, bytes_unit, colour, gaps, hatch, hatched, level
from costmodel.text.units import format_bytes

FEW = 16
"""Stages up to which each is named on its axis."""
HALF = 0.34
"""Half the width of an outline, where stages are one apart."""


class StageMemoryBand(NamedTuple):
    """One part of the memory on every stage [unit of the figure], how it looks, and what its hover says."""

    name: str
    colour: str
    pattern: str
    held: tuple[float, ...]
    texts: tuple[str, ...]


class Outlines(NamedTuple):
    """Lines at the tops of bars before a change, with gaps between."""

    places: tuple[float | None, ...]
    heights: tuple[float | None, ...]


class Stages(NamedTuple):
    """What is shown: parts from the bottom up, totals with the error of the estimate, and the limit of the GPU."""

    title: str  # of the figure
    unit: str  # of all bytes
    stages: tuple[str, ...]  # a label of each
    parts: tuple[StageMemoryBand, ...]  # that any stage has
    totals: tuple[float, ...]  # totals, lows, highs: of each stage, with its 90 % interval
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    limit: float  # up to which a plan is judged to fit
    before: tuple[float, ...] = ()  # totals before a change; none where nothing was changed

    @property
    def places(self) -> list[int]:
        """Of the stages, from the left."""
        return list(range(len(self.stages)))

    @property
    def marks(self) -> str:
        """How Plotly finds the marks of the axis of stages: at each, or by itself where they are many."""
        return "array" if len(self.stages) <= FEW else "auto"

    @property
    def names(self) -> list[str]:
        """What stands at the marks."""
        return [name.partition(":")[0] for name in self.stages]

    @property
    def above(self) -> list[float]:
        """From each total to the end of its interval."""
        return gaps(self.totals, self.highs)

    @property
    def below(self) -> list[float]:
        """From the begin of each interval to the total."""
        return gaps(self.lows, self.totals)

    @property
    def outlines(self) -> Outlines:
        """Of the totals before a change."""
        places = (end for place, _ in enumerate(self.before) for end in (place - HALF, place + HALF, None))
        return Outlines(tuple(places), tuple(end for held in self.before for end in (held, held, None)))

    @property
    def fits(self) -> str:
        """What stands at the limit."""
        return f"fits up to {self.limit:.3g} {self.unit}"

    @property
    def span(self) -> list[float]:
        """Where the axis of memory begins and ends."""
        return [0.0, 1.12 * max((*self.highs, self.limit, *self.before))]


_LINE, _WORDS = level(0.0, "", "right")
STAGES: Drawing = {
    "data": [
        each("parts", {
            "type": "bar", "x": of("places"), "y": of("it.held"), "name": of("it.name"), "text": of("it.texts"),
            "textposition": "none", "hovertemplate": "%{text}<extra></extra>",
            "marker": {"color": of("it.colour"), "pattern": hatched(of("it.pattern"), 8)},
        }),
        {
            "type": "scatter", "x": of("places"), "y": of("totals"), "mode": "markers", "showlegend": False, "name": "90 %",
            "marker": {"size": 1, "color": BLACK}, "hoverinfo": "skip",
            "error_y": {
                "type": "data", "symmetric": False, "array": of("above"), "arrayminus": of("below"), "color": BLACK,
                "thickness": 1.2,
            },
        },
        when("before", {
            "type": "scatter", "mode": "lines", "name": "before the change", "line": {"width": 4, "color": GREY},
            "x": of("outlines.places"), "y": of("outlines.heights"),
            "hovertemplate": "before the change: %{y:.4g} {unit}<extra></extra>",
        }),
    ],
    "layout": {
        "template": TEMPLATE, "title": {"text": of("title")}, "barmode": "stack", "bargap": 0.25, "height": 460,
        "legend": {**LEGEND_BELOW, "traceorder": "normal"}, "margin": {"l": 60, "r": 20, "t": 60, "b": 40},
        "shapes": [{**_LINE, "y0": of("limit"), "y1": of("limit")}],
        "annotations": [{**_WORDS, "y": of("limit"), "text": of("fits")}],
        "xaxis": {
            "title": {"text": "pipeline stage"}, "showgrid": False, "tickmode": of("marks"), "tickvals": of("places"),
            "ticktext": of("names"),
        },
        "yaxis": {"title": {"text": "memory [{unit}], whiskers: 90 %"}, "range": of("span")},
    },
}  # fmt: skip
"""The chart of `Stages`."""


def stages(estimate: Estimate, before: Estimate | None = None) -> Stages:
    """What `stages_figure` shows.

    Parameters
    ----------
    estimate : of the plan
    before : of the same plan before a change
    """
    rows = estimate.memory.stages
    least, most = estimate.memory_interval
    whole = float(estimate.memory.total)
    limit = estimate.memory_limit
    factor, unit = bytes_unit(max(limit, most))
    parts = []
    for place, name in enumerate(PARTS):  # a part looks alike in every figure
        held = [float(getattr(row.parts, name)) for row in rows]
        if any(held):
            texts = tuple(f"stage {row.stage}, {name}: {format_bytes(nbytes)}" for row, nbytes in zip(rows, held, strict=True))
            parts.append(StageMemoryBand(name, colour(place), hatch(place), tuple(nbytes / factor for nbytes in held), texts))
    totals = [row.total / factor for row in rows]
    return Stages(
        f"Memory of every stage: {label(estimate.plan)}", unit,
        tuple(f"{row.stage}: {row.layers:g} layers, full at its {row.phase}" for row in rows), tuple(parts), tuple(totals),
        tuple(total * least / whole for total in totals), tuple(total * most / whole for total in totals), limit / factor,
        () if before is None else tuple(stage.total / factor for stage in before.memory.stages),
    )  # fmt: skip


def stages_figure(estimate: Estimate, before: Estimate | None = None) -> go.Figure:
    """Stacked bars of what a GPU of every stage holds at its fullest, below the limit.

    Parameters
    ----------
    estimate : of the plan
    before : of the same plan before a change, drawn as outlines
    """
    return go.Figure(filled(STAGES, named(stages(estimate, before))))

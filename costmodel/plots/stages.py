"""Memory of every pipeline stage against the capacity of its GPU."""

from __future__ import annotations

from typing import NamedTuple

import plotly.graph_objects as go

from costmodel.description.labels import label
from costmodel.evaluation.estimation import Estimate
from costmodel.evaluation.memory_breakdown import PARTS
from costmodel.plots.style import (
    GREY,
    LEGEND_BELOW,
    TEMPLATE,
    Drawing,
    bytes_unit,
    colour,
    hatch,
    hatched,
    level,
    whiskers,
)
from costmodel.text.units import format_bytes


class StageMemoryBand(NamedTuple):
    """One part of the memory on every stage [unit of the figure], with what its hover says."""

    name: str
    held: tuple[float, ...]
    texts: tuple[str, ...]


class Stages(NamedTuple):
    """What is shown: parts from the bottom up, totals with the error of the estimate, and the limit of the GPU.

    Parameters
    ----------
    title : of the figure
    unit, factor : of all bytes, and how many bytes it is
    stages : a label of each
    parts : that any stage has
    totals, lows, highs : of each stage, with its 90 % interval
    limit : up to which a plan is judged to fit
    """

    title: str
    unit: str
    factor: float
    stages: tuple[str, ...]
    parts: tuple[StageMemoryBand, ...]
    totals: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    limit: float


def stages(estimate: Estimate) -> Stages:
    """What `stages_figure` shows.

    Parameters
    ----------
    estimate : of the plan
    """
    rows = estimate.memory.stages
    least, most = estimate.memory_interval
    whole = float(estimate.memory.total)
    limit = estimate.memory_limit
    factor, unit = bytes_unit(max(limit, most))
    parts = []
    for name in PARTS:
        held = [float(getattr(row.parts, name)) for row in rows]
        if any(held):
            texts = tuple(f"stage {row.stage}, {name}: {format_bytes(nbytes)}" for row, nbytes in zip(rows, held, strict=True))
            parts.append(StageMemoryBand(name, tuple(nbytes / factor for nbytes in held), texts))
    totals = [row.total / factor for row in rows]
    return Stages(
        f"Memory of every stage: {label(estimate.plan)}", unit, float(factor),
        tuple(f"{row.stage}: {row.layers:g} layers, full at its {row.phase}" for row in rows), tuple(parts), tuple(totals),
        tuple(total * least / whole for total in totals), tuple(total * most / whole for total in totals), limit / factor,
    )  # fmt: skip


def stages_figure(estimate: Estimate, before: Estimate | None = None) -> go.Figure:
    """Stacked bars of what a GPU of every stage holds at its fullest, below the limit.

    Parameters
    ----------
    estimate : of the plan
    before : of the same plan before a change, drawn as outlines

    Returns
    -------
    plotly.graph_objects.Figure
        not shown yet
    """
    return go.Figure(stages_drawing(estimate, before))


def stages_drawing(estimate: Estimate, before: Estimate | None = None) -> Drawing:
    """The same as plain data and layout, in a fraction of the time.

    Parameters
    ----------
    estimate : of the plan
    before : of the same plan before a change, drawn as outlines
    """
    shown = stages(estimate)
    data: list[dict[str, object]] = []
    places = list(range(len(shown.stages)))
    for part in shown.parts:
        place = PARTS.index(part.name)  # a part looks alike in every figure
        error = {"error_y": whiskers(shown.totals, shown.lows, shown.highs)} if part is shown.parts[-1] else {}
        data.append({
            "type": "bar", "x": places, "y": part.held, "name": part.name, "text": part.texts, "textposition": "none",
            "hovertemplate": "%{text}<extra></extra>", **error,
            "marker": {"color": colour(place), "pattern": hatched(hatch(place), 8)},
        })  # fmt: skip
    was: list[float] = []
    if before is not None:
        was = [stage.total / shown.factor for stage in before.memory.stages]
        data.append({
            "type": "scatter", "mode": "lines", "name": "before the change", "line": {"width": 4, "color": GREY},
            "x": [end for place in places for end in (place - 0.34, place + 0.34, None)],
            "y": [height for held in was for height in (held, held, None)],
            "hovertemplate": f"before the change: %{{y:.4g}} {shown.unit}<extra></extra>",
        })  # fmt: skip
    line, words = level(shown.limit, f"fits up to {shown.limit:.3g} {shown.unit}", "right")
    few = len(places) <= 16
    ticks: dict[str, object] = {"tickmode": "auto"}
    if few:
        ticks = {"tickmode": "array", "tickvals": places, "ticktext": [name.partition(":")[0] for name in shown.stages]}
    layout = {
        "template": TEMPLATE, "title": {"text": shown.title}, "barmode": "stack", "bargap": 0.25, "height": 460,
        "legend": {**LEGEND_BELOW, "traceorder": "normal"},
        "margin": {"l": 60, "r": 20, "t": 60, "b": 40}, "shapes": [line], "annotations": [words],
        "xaxis": {"title": {"text": "pipeline stage"}, "showgrid": False, **ticks},
        "yaxis": {
            "title": {"text": f"memory [{shown.unit}], whiskers: 90 %"},
            "range": [0.0, 1.12 * max((*shown.highs, shown.limit, *was))],
        },
    }  # fmt: skip
    return {"data": data, "layout": layout}

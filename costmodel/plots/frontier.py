"""Time against memory of every evaluated plan: what fits, what does not, and which plans no other beats in both."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from costmodel.description.cluster import Cluster
from costmodel.description.judgement import CHOSEN
from costmodel.description.labels import label
from costmodel.evaluation.error_model import spread_of
from costmodel.evaluation.plan_search import SearchResult
from costmodel.plots.specification import filled, named, of, when
from costmodel.plots.style import (
    BLACK,
    BLUE,
    GREY,
    LEGEND_BELOW,
    TEMPLATE,
    VERMILLION,
    Drawing,
    bytes_unit,
    level,
    seconds_unit,
)
from costmodel.text.errors import InvalidValue
from costmodel.text.units import counted

MOST_POINTS = 800
"""Points beyond which only a part of the plans off the frontier is drawn, and the figure says so."""
FARTHEST = 4.0
"""Times the fastest plan's time, and the GPU's memory, up to which plans are drawn."""


class Points(NamedTuple):
    """Plans of one kind: step times and memory [units of the figure], their labels, and their rows in the search."""

    times: tuple[float, ...]
    memory: tuple[float, ...]
    texts: tuple[str, ...]
    rows: tuple[int, ...] = ()

    @classmethod
    def none(cls) -> Points:
        """No plan at all."""
        return cls((), (), ())


class FrontierChart(NamedTuple):
    """What is shown."""

    title: str  # of the figure
    time_unit: str  # time_unit, memory_unit: of all points
    memory_unit: str
    fitting: Points  # fitting, missing: plans off the frontier that fit, and that don't
    missing: Points
    best: Points  # plans that none beats in time and memory both, the fastest first
    limit: float  # of memory, up to which a plan is judged to fit
    left_out: int  # plans that are too far or too many to be drawn
    before: Points = Points.none()  # those that none beat before a change; none where nothing was changed

    @property
    def fastest(self) -> Points:
        """The plan that is the fastest of those that fit."""
        place = next((place for place, held in enumerate(self.best.memory) if held <= self.limit), len(self.best.memory))
        one = slice(place, place + 1)
        return Points(self.best.times[one], self.best.memory[one], self.best.texts[one])

    @property
    def symbols(self) -> list[str]:
        """Of the plans that none beats: hollow where they don't fit."""
        return ["diamond" if held <= self.limit else "diamond-open" for held in self.best.memory]

    @property
    def words(self) -> str:
        """What stands above the figure."""
        left = f"<br><sub>{self.left_out:,} more are slower, larger or too many to be drawn</sub>" if self.left_out else ""
        return f"{self.title}{left}"

    @property
    def fits(self) -> str:
        """What stands at the limit."""
        return f"fits up to {self.limit:.3g} {self.memory_unit}"


HOVER = "%{x:.4g} {time_unit}, %{y:.4g} {memory_unit}"


def _points(path: str, name: str, more: Drawing) -> Drawing:
    return {
        "type": "scatter", "x": of(f"{path}.times"), "y": of(f"{path}.memory"), "text": of(f"{path}.texts"), "name": name,
        "mode": "markers", "hovertemplate": f"%{{text}}<br>{HOVER}<extra></extra>", **more,
    }  # fmt: skip


_LINE, _WORDS = level(0.0, "", "right")
FRONTIER: Drawing = {
    "data": [
        _points("fitting", "fits", {"marker": {"color": GREY, "size": 6, "opacity": 0.6}}),
        _points("missing", "does not fit", {"marker": {"color": GREY, "size": 6, "symbol": "circle-open", "opacity": 0.6}}),
        when("before.times", _points("before", "frontier before the change", {
            "mode": "lines", "line": {"color": GREY, "width": 5, "shape": "hv"}, "opacity": 0.5,
            "hovertemplate": f"before: %{{text}}<br>{HOVER}<extra></extra>",
        })),
        _points("best", "frontier: none is faster and leaner", {
            "mode": "lines+markers", "line": {"color": BLUE, "width": 2, "shape": "hv"},
            "marker": {"color": BLUE, "size": 10, "symbol": of("symbols"), "line": {"width": 1.5, "color": BLUE}},
        }),
        when("fastest.times", _points("fastest", "fastest that fits", {
            "marker": {"symbol": "star", "size": 16, "color": VERMILLION, "line": {"color": BLACK, "width": 1}},
        })),
    ],
    "layout": {
        "template": TEMPLATE, "title": {"text": of("words")}, "height": 480, "margin": {"l": 60, "r": 20, "t": 70, "b": 40},
        "shapes": [{**_LINE, "y0": of("limit"), "y1": of("limit")}],
        "annotations": [{**_WORDS, "y": of("limit"), "text": of("fits")}],
        "legend": LEGEND_BELOW,
        "xaxis": {"title": {"text": "step time [{time_unit}]"}, "rangemode": "normal", "zeroline": False},
        "yaxis": {"title": {"text": "memory of the fullest GPU [{memory_unit}]"}, "rangemode": "tozero"},
    },
}  # fmt: skip
"""The chart of a `FrontierChart`."""


def frontier(result: SearchResult, most: int = MOST_POINTS) -> FrontierChart:
    """What `frontier_figure` shows.

    Parameters
    ----------
    result : of a search with ``keep_evaluated=True``
    most : plans off the frontier to draw

    Raises
    ------
    InvalidValue
        where the search has not kept its plans, or had none
    """
    every = result.every
    if every is None or not len(every):
        wanted = "the result of search(..., keep_evaluated=True) that evaluated a plan"
        raise InvalidValue("result", f"{result.evaluated} plans", wanted)
    spread = spread_of(result.framework, result.cluster.device, bool(result.model.experts), result.model.state_share)
    limit = spread.margin(CHOSEN) * float(result.cluster.device.usable_memory or 0.0)
    best = every.frontier
    on = np.zeros(len(every), dtype=bool)
    on[best] = True
    fastest = float(every.step_time[every.fits].min() if every.fits.any() else every.step_time.min())
    near = (every.step_time <= FARTHEST * fastest) & (every.peak_memory <= FARTHEST * limit)
    best = best[near[best]] if near[best].any() else best
    factor, time_unit = seconds_unit(fastest)
    size, memory_unit = bytes_unit(limit)

    def points(places: np.ndarray) -> Points:
        texts = tuple(label(every.plan(int(place))) for place in places)
        times, held = every.step_time[places] / factor, every.peak_memory[places] / size
        return Points(tuple(times.tolist()), tuple(held.tolist()), texts, tuple(places.tolist()))

    rest = [np.flatnonzero(near & ~on & chosen) for chosen in (every.fits, ~every.fits)]
    thinned = [_thinned(places, most // 2) for places in rest]
    title = frontier_title(result.model.name, result.cluster, len(every))
    return FrontierChart(
        title, time_unit, memory_unit, points(thinned[0]), points(thinned[1]), points(best), limit / size,
        len(every) - sum(map(len, thinned)) - len(best),
    )  # fmt: skip


def frontier_title(model: str, cluster: Cluster, plans: int) -> str:
    """What stands above a chart of all plans.

    Parameters
    ----------
    model : its name
    cluster : of the question
    plans : how many there are
    """
    return f"{model} on {counted(cluster.gpus or 1, 'GPU')} of {cluster.name}: {counted(plans, 'legal plan')}"


def _thinned(places: np.ndarray, most: int) -> np.ndarray:
    """Every k-th of some places, so that at most so many are left."""
    return places[:most] if most == 0 else places[:: -(-len(places) // most)] if len(places) > most else places


def frontier_figure(result: SearchResult, before: SearchResult | None = None) -> go.Figure:
    """Time against memory of all evaluated plans: those that don't fit hollow, the frontier marked.

    Parameters
    ----------
    result : of a search with ``keep_evaluated=True``
    before : the same before a change, whose frontier is drawn behind
    """
    return go.Figure(frontier_drawing(result, before))


def frontier_drawing(result: SearchResult, before: SearchResult | None = None) -> Drawing:
    """The same as plain data and layout, in a fraction of the time."""
    drawn: Drawing = filled(FRONTIER, named(changed_frontier(result, before)))
    return drawn


def changed_frontier(result: SearchResult, before: SearchResult | None, most: int = MOST_POINTS) -> FrontierChart:
    """What is shown of a search, with its frontier before a change behind.

    Parameters
    ----------
    result : of a search with ``keep_evaluated=True``
    before : the same before a change
    most : plans off the frontier to draw
    """
    shown = frontier(result, most)
    was = frontier(before, 0) if before is not None else None
    if was is not None and (was.time_unit, was.memory_unit) == (shown.time_unit, shown.memory_unit):
        return shown._replace(before=was.best)
    return shown

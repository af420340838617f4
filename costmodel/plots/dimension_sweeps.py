"""The best plan over a grid: a heat map over two dimensions, and rates over numbers of GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from costmodel.description.labels import label
from costmodel.evaluation.dimension_sweeps import Cell, HeatMap, Scaling, ScalingPoint, ideal
from costmodel.plots.specification import each, filled, named, of
from costmodel.plots.style import (
    BLACK,
    BLUE,
    GREY,
    LEGEND_BELOW,
    LIGHT,
    TEMPLATE,
    VERMILLION,
    Drawing,
    bytes_unit,
    gaps,
    seconds_unit,
)
from costmodel.text.units import format_seconds

DASH = "\N{EN DASH}"


class Cells(NamedTuple):
    """What a heat map shows, row by row."""

    title: str  # of the figure
    across: str  # across, down: names of the dimensions
    down: str
    columns: tuple[str, ...]  # columns, rows: their values in words
    rows: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]  # step time or memory [unit]; None where no plan fits or is legal
    texts: tuple[tuple[str, ...], ...]  # in each cell
    hovers: tuple[tuple[str, ...], ...]  # over each cell
    unit: str  # of the values
    what: str  # the values are
    best: tuple[int, int] | None  # column and row of the smallest value; None where no plan fits


def cells(made: HeatMap) -> Cells:
    """What `heat_map_figure` shows: the fastest plan's step time in every cell.

    Parameters
    ----------
    made : as `costmodel.evaluation.dimension_sweeps.heat_map` gives it
    """
    found = [
        (cell.step_time, x, y)
        for y, row in enumerate(made.cells) for x, cell in enumerate(row) if cell.fits and cell.step_time is not None
    ]  # fmt: skip
    factor, unit = seconds_unit(min(found)[0]) if found else (1.0, "s")
    values = tuple(tuple(cell.step_time / factor if cell.fits and cell.step_time else None for cell in row) for row in made.cells)
    texts = tuple(tuple(_short(cell, factor) for cell in row) for row in made.cells)
    hovers = tuple(
        tuple(
            f"{_named(made.across, x)}, {_named(made.down, y)}<br>{_long(cell)}"
            for x, cell in zip(made.columns, row, strict=True)
        )
        for y, row in zip(made.rows, made.cells, strict=True)
    )
    best = min(found)[1:] if found else None
    return Cells(
        f"The fastest plan by {_words(made.across)} and {_words(made.down)}", _words(made.across), _words(made.down),
        tuple(map(_value, made.columns)), tuple(map(_value, made.rows)), values, texts, hovers, unit, "step time", best,
    )  # fmt: skip


def _words(name: str) -> str:
    return name.replace("_", " ") if "." not in name else f"{name.replace('.', ' ').replace('_', ' ')}, factor"


def _named(name: str, value: object) -> str:
    return f"{_words(name)} {_value(value)}"


def _value(value: object) -> str:
    if isinstance(value, bool | str):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def _short(cell: Cell, factor: float) -> str:
    if cell.step_time is None:
        return DASH
    return f"{cell.step_time / factor:.3g}" if cell.fits else "too large"


def _long(cell: Cell) -> str:
    if cell.plan is None or cell.step_time is None or cell.peak_memory is None:
        return "no legal plan"
    size, unit = bytes_unit(cell.peak_memory)
    fits = "fastest that fits" if cell.fits else "nothing fits; the leanest"
    held = f"{cell.peak_memory / size:.1f} {unit}"
    return f"{fits} of {cell.legal:,}: {label(cell.plan)}<br>{format_seconds(cell.step_time)}, {held}"


def heat_map_figure(made: HeatMap) -> go.Figure:
    """Step time of the fastest plan in every cell of a grid; the best cell is framed."""
    shown = cells(made)
    places = list(range(len(shown.columns))), list(range(len(shown.rows)))
    figure = go.Figure(
        go.Heatmap(
            x=places[0], y=places[1], z=shown.values, text=shown.texts, texttemplate="%{text}", hovertext=shown.hovers,
            hovertemplate="%{hovertext}<extra></extra>", colorscale="Cividis", reversescale=True, xgap=2, ygap=2,
            colorbar={"title": f"{shown.what} [{shown.unit}]"}, hoverongaps=True,
        )
    )  # fmt: skip
    for y, row in enumerate(shown.texts):
        for x, text in enumerate(row):
            if shown.values[y][x] is None:
                figure.add_annotation(
                    x=x, y=y, text=text, showarrow=False, font={"color": BLACK}, hovertext=shown.hovers[y][x], bgcolor=LIGHT
                )
    if shown.best is not None:
        x, y = shown.best
        figure.add_shape(type="rect", x0=x - 0.49, x1=x + 0.49, y0=y - 0.49, y1=y + 0.49, line={"color": VERMILLION, "width": 4})
    figure.update_layout(
        template=TEMPLATE, title=f"{shown.title}<br><sub>framed: the best of all; {DASH} no legal plan</sub>",
        margin={"l": 70, "r": 20, "t": 80, "b": 60}, height=max(360, 110 + 46 * len(shown.rows)),
        xaxis={"title": shown.across, "tickvals": places[0], "ticktext": shown.columns, "showgrid": False, "zeroline": False},
        yaxis={"title": shown.down, "tickvals": places[1], "ticktext": shown.rows, "showgrid": False, "zeroline": False},
    )  # fmt: skip
    return figure


class ScalingLine(NamedTuple):
    """Rates of one GPU over numbers of GPUs, of one kind of scaling."""

    name: str  # of the kind
    gpus: tuple[int, ...]  # on which a plan fits
    rates: tuple[float, ...]  # rates, lows, highs: of one GPU, with the 90 % interval [tokens/s]
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    ideal: tuple[float, ...]  # that of the fewest GPUs [tokens/s]
    texts: tuple[str, ...]  # of each hover
    missing: tuple[int, ...]  # GPUs on which nothing fits
    kind: str  # strong or weak
    colour: str  # of line, markers and whiskers
    symbol: str  # of markers
    dash: str  # of the line

    @property
    def above(self) -> list[float]:
        """From each rate to the end of its interval."""
        return gaps(self.rates, self.highs)

    @property
    def below(self) -> list[float]:
        """From the begin of each interval to the rate."""
        return gaps(self.lows, self.rates)


STRONG, WEAK = "strong: same global batch", "weak: global batch grows with the GPUs"
SCALING_LOOKS = {"strong": (VERMILLION, "square", "solid"), "weak": (BLUE, "circle", "dash")}
"""Colour, marker and dash of each kind of scaling."""


class ScalingChart(NamedTuple):
    """What is shown: strong and weak scaling, and the same before a change; none where nothing was changed."""

    lines: tuple[ScalingLine, ...]
    before: tuple[ScalingLine, ...] = ()

    @property
    def longest(self) -> ScalingLine:
        """The kind that has most points, whose ideal is drawn."""
        return max(self.lines, key=lambda line: len(line.gpus))

    @property
    def ticks(self) -> list[int]:
        """Numbers of GPUs with a plan."""
        return sorted({gpus for line in self.lines for gpus in line.gpus})

    @property
    def labels(self) -> list[str]:
        """The same as they are written."""
        return [f"{gpus:,}" for gpus in self.ticks]

    @property
    def title(self) -> str:
        """Of the figure."""
        missing = sorted({gpus for line in self.lines for gpus in line.missing})
        note = f"<br><sub>Nothing fits on {', '.join(f'{gpus:,}' for gpus in missing)} GPUs</sub>" if missing else ""
        return f"{THROUGHPUT}{note}"


THROUGHPUT = "Throughput of a GPU, the best plan on each number of them; whiskers: 90 %"
SCALING: Drawing = {
    "data": [
        each("before", {
            "type": "scatter", "x": of("it.gpus"), "y": of("it.rates"), "name": "{it.kind} before the change",
            "text": of("it.texts"), "mode": "lines", "hovertemplate": "before: %{text}<extra></extra>",
            "line": {"color": GREY, "width": 5}, "opacity": 0.45,
        }),
        each("lines", {
            "type": "scatter", "x": of("it.gpus"), "y": of("it.rates"), "name": of("it.name"), "text": of("it.texts"),
            "mode": "lines+markers", "hovertemplate": "%{text}<extra></extra>",
            "line": {"color": of("it.colour"), "dash": of("it.dash")}, "marker": {"symbol": of("it.symbol"), "size": 9},
            "error_y": {
                "type": "data", "symmetric": False, "array": of("it.above"), "arrayminus": of("it.below"),
                "color": of("it.colour"), "thickness": 1.2,
            },
        }),
        {
            "type": "scatter", "x": of("longest.gpus"), "y": of("longest.ideal"), "name": "ideal: as on the fewest GPUs",
            "mode": "lines", "hoverinfo": "skip", "line": {"color": GREY, "dash": "dot", "width": 2},
        },
    ],
    "layout": {
        "template": TEMPLATE, "height": 460, "margin": {"l": 70, "r": 20, "t": 70, "b": 40}, "title": {"text": of("title")},
        "legend": LEGEND_BELOW,
        "xaxis": {
            "type": "log", "title": {"text": "GPUs"}, "tickmode": "array", "tickvals": of("ticks"), "ticktext": of("labels"),
        },
        "yaxis": {"title": {"text": "tokens/s/GPU"}, "rangemode": "tozero"},
    },
}  # fmt: skip
"""The chart of a `ScalingChart`."""


def lines(made: Scaling) -> tuple[ScalingLine, ...]:
    """What `scaling_figure` shows.

    Parameters
    ----------
    made : as `costmodel.evaluation.dimension_sweeps.scaling` gives it
    """
    return _line(STRONG, made.strong), _line(WEAK, made.weak)


def _line(name: str, points: Sequence[ScalingPoint]) -> ScalingLine:
    rows = []
    for point, best in zip(points, ideal(points), strict=True):
        if not (point.plan and point.step_time and point.low and point.high and point.tokens_per_second and best):
            continue
        rate = point.tokens_per_second / point.gpus
        text = (
            f"{point.gpus:,} GPUs, global batch {point.global_batch:,}: {label(point.plan)}<br>"
            f"{format_seconds(point.step_time)} a step, {point.tokens_per_second:,.0f} tokens/s, {rate:,.0f} a GPU, "
            f"{100 * point.tokens_per_second / best:.0f} % of the ideal"
        )
        low, high = rate * point.step_time / point.high, rate * point.step_time / point.low
        rows.append((point.gpus, rate, low, high, best / point.gpus, text))
    gpus, rates, lows, highs, ideals, texts = zip(*rows, strict=True) if rows else ((),) * 6
    missing = tuple(point.gpus for point in points if point.plan is None)
    kind = name.partition(":")[0]
    return ScalingLine(name, gpus, rates, lows, highs, ideals, texts, missing, kind, *SCALING_LOOKS[kind])


def scaling_figure(made: Scaling, before: Scaling | None = None) -> go.Figure:
    """Tokens per second of a GPU over numbers of GPUs: strong and weak scaling, and the rate that the fewest reach.

    Parameters
    ----------
    made : as `costmodel.evaluation.dimension_sweeps.scaling` gives it
    before : the same before a change, drawn thin behind it
    """
    return go.Figure(scaling_drawing(made, before))


def scaling_drawing(made: Scaling, before: Scaling | None = None) -> Drawing:
    """The same as plain data and layout, in a fraction of the time."""
    shown = ScalingChart(lines(made), lines(before) if before is not None else ())
    drawn: Drawing = filled(SCALING, named(shown))
    return drawn

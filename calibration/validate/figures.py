"""Pages of figures for people: predicted against measured, and fitted against measured.

Each figure is built in two steps: a NamedTuple of what is shown, which needs no plotly, then the traces.
"""

from __future__ import annotations

import html
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from calibration.data.runs import source_of
from calibration.fit.operators import Operator
from calibration.validate.judged import Judged
from costmodel.description.run import Run
from costmodel.evaluation.own_runs_fit import Array, Fit
from costmodel.text.units import GiB, format_seconds

if TYPE_CHECKING:
    import plotly.graph_objects as go

BAND = 0.1
"""Relative error that the shaded band marks."""
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#000000", "#F0E442")
"""Okabe and Ito's palette, which people with any common colour vision tell apart."""
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "triangle-down", "pentagon")
"""Second cue; their number has no factor in common with that of the colours, so that pairs repeat late."""
GRID, INK, BAND_COLOUR = "#d9d9d9", "#222222", "rgba(120, 120, 120, 0.18)"
MOST_BINS = 12
COLUMNS = 4
DASH = "\N{EN DASH}"
ERROR_TICKS = (0.0, -0.1, 0.1, -0.2, 0.25, -0.5, 1.0, -0.8, 4.0, -0.9, 9.0, -0.99, 99.0)
FAMILY_TITLES = {"gemm": "Matrix products", "attention": "Fused attention", "stream": "Streams through memory"}


class Point(NamedTuple):
    """One run or operator, in the unit of its figure, with what its hover says."""

    measured: float
    predicted: float
    hover: str


class Series(NamedTuple):
    """Points of one source or device, with the number that decides its colour and symbol."""

    name: str
    points: tuple[Point, ...]
    mark: int


class Comparison(NamedTuple):
    """What a figure of predicted against measured shows: its words, its unit, its points, the range of both axes."""

    title: str
    quantity: str
    unit: str
    verb: str
    series: tuple[Series, ...]
    low: float
    high: float


class Spread(NamedTuple):
    """Signed relative errors of the runs with one value of a feature: quantiles 5, 25, 50, 75 and 95 %."""

    label: str
    runs: int
    low: float
    lower: float
    middle: float
    upper: float
    high: float


class ErrorsBy(NamedTuple):
    """Errors over the values of one feature of the plan."""

    feature: str
    spreads: tuple[Spread, ...]


FEATURES: dict[str, Callable[[Run], int]] = {
    "tensor_parallel": lambda case: case.plan.tensor_parallel,
    "pipeline_parallel": lambda case: case.plan.pipeline_parallel,
    "micro_batch": lambda case: case.plan.micro_batch,
    "GPUs": lambda case: case.cluster.gpus or 1,
    "sequence length [tokens]": lambda case: case.plan.seq_len,
}


def relative(predicted: float, measured: float) -> str:
    """A signed relative error for people."""
    return f"{100 * (predicted / measured - 1):+.1f} %".replace("-", "\N{MINUS SIGN}")


def lines(*parts: str) -> str:
    """Hover text of several lines, none of which is read as markup."""
    return "<br>".join(html.escape(part, quote=False) for part in parts)


def _described(case: Run) -> tuple[str, ...]:
    plan = case.plan
    degrees = (
        ("TP", plan.tensor_parallel), ("PP", plan.pipeline_parallel), ("DP", plan.data_parallel or 1),
        ("CP", plan.context_parallel), ("EP", plan.expert_parallel),
    )  # fmt: skip
    return (
        case.id,
        f"{case.model.name}, {case.cluster.gpus} GPUs, {case.cluster.device.name}, {case.framework.name}",
        ", ".join(f"{name} {degree}" for name, degree in degrees if degree > 1) or "one GPU",
        f"micro-batch {plan.micro_batch}, global batch {plan.global_batch}, {plan.seq_len} tokens",
    )


def _comparison(
    title: str, quantity: str, unit: str, verb: str, named: Iterable[tuple[str, Point]], names: Iterable[str]
) -> Comparison | None:
    """The figure of named points; `names` are all of the page's, so that a name has one colour on all its figures."""
    marks = {name: mark for mark, name in enumerate(sorted(set(names)))}
    grouped: dict[str, list[Point]] = {}
    for name, point in named:
        if 0.0 < point.measured < math.inf and 0.0 < point.predicted < math.inf:
            grouped.setdefault(name, []).append(point)
    if not grouped:
        return None
    series = tuple(Series(name, tuple(points), marks[name]) for name, points in sorted(grouped.items()))
    ends = [end for points in grouped.values() for point in points for end in point[:2]]
    return Comparison(title, quantity, unit, verb, series, min(ends) / 1.3, max(ends) * 1.3)


def time_comparison(predictions: Sequence[Judged]) -> Comparison | None:
    """Step times, a series for each source; None where none was measured."""
    named = [
        (source_of(p.run), Point(measured, predicted, lines(
            *_described(p.run), f"measured {format_seconds(measured)}",
            f"predicted {format_seconds(predicted)} ({relative(predicted, measured)})",
            f"90 % interval {format_seconds(low)} to {format_seconds(high)}",
        )))
        for p in predictions if p.run and p.seconds for measured, predicted, low, high in [p.seconds] if measured
    ]  # fmt: skip
    return _comparison("Step time", "step time", "s", "predicted", named, _sources(predictions))


def memory_comparison(predictions: Sequence[Judged]) -> Comparison | None:
    """Peak memory of a GPU, a series for each source; None where none was measured."""
    named = [
        (source_of(p.run), Point(measured / GiB, predicted / GiB, lines(
            *_described(p.run), f"measured {measured / GiB:.2f} GiB",
            f"predicted {predicted / GiB:.2f} GiB ({relative(predicted, measured)})",
            f"90 % interval {low / GiB:.2f} to {high / GiB:.2f} GiB",
        )))
        for p in predictions if p.run and p.nbytes for measured, predicted, low, high in [p.nbytes] if measured
    ]  # fmt: skip
    return _comparison("Peak memory of a GPU", "peak memory", "GiB", "predicted", named, _sources(predictions))


def _sources(predictions: Sequence[Judged]) -> list[str]:
    return [source_of(prediction.run) for prediction in predictions if prediction.run]


def binned(values: Sequence[int]) -> list[tuple[str, list[int]]]:
    """Labels of values with the indices that fall under each; by powers of two where there are many values.

    Examples
    --------
    >>> binned([8, 1, 8])
    [('1', [1]), ('8', [0, 2])]
    """
    many = len(set(values)) > MOST_BINS
    bins: dict[int, list[int]] = {}
    for index, value in enumerate(values):
        bins.setdefault((max(value, 1) - 1).bit_length() if many else value, []).append(index)
    out = []
    for _, members in sorted(bins.items()):
        least, most = min(values[i] for i in members), max(values[i] for i in members)
        out.append((_short(least) if least == most else f"{_short(least)}{DASH}{_short(most)}", members))
    return out


def _short(value: int) -> str:
    return f"{value // 1024}k" if value >= 1024 and value % 1024 == 0 else str(value)


def errors_by_feature(predictions: Sequence[Judged]) -> tuple[ErrorsBy, ...]:
    """Errors of the step times over each of `FEATURES`."""
    timed = [(p.run, p.seconds[1] / p.seconds[0]) for p in predictions if p.run and p.seconds and p.seconds[0]]
    if not timed:
        return ()
    errors = np.array([ratio - 1.0 for _, ratio in timed])
    out = []
    for feature, value_of in FEATURES.items():
        spreads = []
        for label, members in binned([value_of(run) for run, _ in timed]):
            quantiles = np.quantile(errors[members], (0.05, 0.25, 0.5, 0.75, 0.95))
            spreads.append(Spread(label, len(members), *map(float, quantiles)))
        out.append(ErrorsBy(feature, tuple(spreads)))
    return tuple(out)


def fitted_runs(cases: Sequence[Run], fitted_seconds: Sequence[float] | Array) -> Comparison | None:
    """Fitted against measured step times, a series for each source."""
    named = (
        (source_of(case), Point(case.seconds, float(fitted), lines(
            *_described(case), f"measured {format_seconds(case.seconds)}",
            f"fitted {format_seconds(float(fitted))} ({relative(float(fitted), case.seconds)})",
        )))
        for case, fitted in zip(cases, fitted_seconds, strict=True) if case.seconds
    )  # fmt: skip
    return _comparison("Runs", "step time", "s", "fitted", named, map(source_of, cases))


def fitted_operators(fits: Mapping[str, Fit], operators: Sequence[Operator]) -> tuple[Comparison, ...]:
    """Fitted against measured times of each family of operators, a series for each device.

    Parameters
    ----------
    fits : by device; their residuals stand in the order in which the device's operators do
    operators : of all devices
    """
    named: dict[str, list[tuple[str, Point]]] = {}
    for device, result in fits.items():
        members = [operator for operator in operators if operator.device == device]
        for operator, residual in zip(members, result.residuals, strict=True):
            fitted = operator.seconds * math.exp(residual)
            sizes = ", ".join(f"{name} {value:g}" for name, value in operator.parameters.items())
            hover = lines(
                f"{operator.device}, {operator.dtype}, {operator.source}", sizes,
                f"measured {format_seconds(operator.seconds)}",
                f"fitted {format_seconds(fitted)} ({relative(fitted, operator.seconds)})",
            )  # fmt: skip
            named.setdefault(operator.family, []).append((device, Point(1e3 * operator.seconds, 1e3 * fitted, hover)))
    comparisons = (
        _comparison(FAMILY_TITLES.get(family, family), "time", "ms", "fitted", points, fits)
        for family, points in named.items()
    )
    return tuple(comparison for comparison in comparisons if comparison is not None)


def mean_error(points: Sequence[Point]) -> float:
    """Mean absolute relative error of some points."""
    return float(np.mean([abs(point.predicted / point.measured - 1.0) for point in points]))


# ---- the traces: plotly is imported from here on


def _template() -> go.layout.Template:
    import plotly.graph_objects as go

    axis = {"gridcolor": GRID, "linecolor": INK, "zeroline": False, "ticks": "outside", "showline": True, "automargin": True}
    return go.layout.Template(
        layout={
            "font": {"family": "system-ui, sans-serif", "size": 14, "color": INK},
            "paper_bgcolor": "white", "plot_bgcolor": "white", "xaxis": axis, "yaxis": axis,
            "hoverlabel": {"align": "left", "bgcolor": "white", "font": {"color": INK}},
            "legend": {"bordercolor": GRID, "borderwidth": 1, "font": {"size": 13}},
        }
    )  # fmt: skip


def _decades(low: float, high: float) -> tuple[list[float], list[str]]:
    """Ticks of a logarithmic axis in plain digits."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    span = math.log10(high / low)
    steps = (1,) if span > 3 else (1, 3) if span > 1.5 else (1, 2, 5)
    ticks = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    inside = [tick for tick in ticks if low <= tick <= high]
    if span > 6:
        inside = inside[:: math.ceil(span / 6)]
    return inside, [f"{tick:,.10g}" if 1e-3 <= tick < 1e6 else f"{tick:.0e}".replace("e-0", "e-") for tick in inside]


def _log_axis(low: float, high: float, title: str) -> dict[str, object]:
    values, texts = _decades(low, high)
    return {
        "type": "log", "range": [math.log10(low), math.log10(high)], "tickmode": "array", "tickvals": values,
        "ticktext": texts, "title": {"text": title},
    }  # fmt: skip


def _guides(low: float, high: float, shown: bool) -> list[go.Scatter]:
    """The band of `BAND` and the line of equality."""
    import plotly.graph_objects as go

    # beyond the axes, so that no corner of the band is seen
    ends = [low / 2, high * 2]
    band = go.Scatter(
        x=[*ends, *ends[::-1]], y=[*(end * (1 + BAND) for end in ends), *(end * (1 - BAND) for end in ends[::-1])],
        fill="toself", fillcolor=BAND_COLOUR, line={"width": 0}, mode="lines", hoverinfo="skip", showlegend=shown,
        name=f"within {100 * BAND:.0f} %", legendgroup="guides",
    )  # fmt: skip
    line = go.Scatter(
        x=ends, y=ends, mode="lines", line={"color": INK, "width": 1, "dash": "dash"}, hoverinfo="skip",
        showlegend=shown, name="equal", legendgroup="guides",
    )  # fmt: skip
    return [band, line]


def _markers(series: Series, size: float) -> go.Scatter:
    import plotly.graph_objects as go

    # few points are drawn large and solid, many small and translucent
    opacity = 0.85 if len(series.points) < 200 else 0.5
    return go.Scatter(
        x=[point.measured for point in series.points], y=[point.predicted for point in series.points],
        text=[point.hover for point in series.points], hovertemplate="%{text}<extra></extra>", mode="markers",
        name=f"{html.escape(series.name)} ({len(series.points)})", showlegend=True,
        marker={
            "color": COLOURS[series.mark % len(COLOURS)], "symbol": SYMBOLS[series.mark % len(SYMBOLS)], "size": size,
            "opacity": opacity, "line": {"color": INK, "width": 0.5},
        },
    )  # fmt: skip


def comparison_figure(comparison: Comparison) -> go.Figure:
    """Predicted against measured on logarithmic axes of equal scale, a colour and a symbol for each series.

    Parameters
    ----------
    comparison : what is shown

    Returns
    -------
    plotly.graph_objects.Figure
    """
    import plotly.graph_objects as go

    # the longest series is drawn first, so that it covers no other; the legend keeps the alphabet
    order = sorted(comparison.series, key=lambda series: -len(series.points))
    traces = [_markers(series, 8).update(legendrank=1000 + series.mark) for series in order]
    figure = go.Figure([*_guides(comparison.low, comparison.high, True), *traces])
    figure.update_layout(
        template=_template(), width=960, height=720, margin={"l": 80, "r": 20, "t": 40, "b": 70},
        xaxis=_log_axis(comparison.low, comparison.high, f"measured {comparison.quantity} [{comparison.unit}]"),
        yaxis={
            **_log_axis(comparison.low, comparison.high, f"{comparison.verb} {comparison.quantity} [{comparison.unit}]"),
            "scaleanchor": "x", "constrain": "domain",
        },
    )  # fmt: skip
    figure.update_xaxes(constrain="domain")
    return figure


def panels_figure(comparison: Comparison) -> go.Figure:
    """The same, a panel for each series, each on its own axes."""
    from plotly.subplots import make_subplots

    columns = min(COLUMNS, len(comparison.series))
    rows = math.ceil(len(comparison.series) / columns)
    titles = [
        f"<b>{html.escape(series.name)}</b><br>{len(series.points)} runs, mean error {100 * mean_error(series.points):.1f} %"
        for series in comparison.series
    ]
    height = 300 * rows + 60
    figure = make_subplots(
        rows, columns, subplot_titles=titles, horizontal_spacing=0.3 / columns if columns > 1 else 0.0,
        vertical_spacing=105 / (height - 130) if rows > 1 else 0.0,
    )  # fmt: skip
    for place, series in enumerate(comparison.series):
        row, column = place // columns + 1, place % columns + 1
        ends = [end for point in series.points for end in point[:2]]
        low, high = min(ends) / 1.3, max(ends) * 1.3
        for trace in (*_guides(low, high, False), _markers(series, 6)):
            figure.add_trace(trace.update(showlegend=False), row, column)
        last = place + columns >= len(comparison.series)
        figure.update_xaxes(_log_axis(low, high, f"measured [{comparison.unit}]" if last else ""), row=row, col=column)
        figure.update_yaxes(
            _log_axis(low, high, f"{comparison.verb} [{comparison.unit}]" if column == 1 else ""), row=row, col=column
        )
    figure.update_layout(
        template=_template(), width=max(300 * columns, 480), height=height, margin={"l": 70, "r": 20, "t": 70, "b": 60}
    )
    figure.update_annotations(font_size=13)
    return figure


def error_ticks(low: float, high: float) -> tuple[list[float], list[str]]:
    """Ticks, as ratios, and texts, as relative errors, of a logarithmic axis of ratios; none closer than is readable."""
    least = math.log(high / low) / 11
    ticks: list[float] = []
    for error in ERROR_TICKS:
        near = any(abs(math.log((1.0 + error) / other)) < least for other in ticks)
        if low <= 1.0 + error <= high and not near:
            ticks.append(1.0 + error)
    ticks.sort()
    return ticks, [f"{100 * (t - 1):+.0f} %".replace("-", "\N{MINUS SIGN}").replace("+0 ", "0 ") for t in ticks]


def errors_figure(features: Sequence[ErrorsBy]) -> go.Figure:
    """Boxes of the errors over the values of each feature: quartiles, with whiskers to the 5th and 95th percentile."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    rows = math.ceil(len(features) / 2)
    height = 360 * rows + 60
    figure = make_subplots(rows, 2, horizontal_spacing=0.1, vertical_spacing=125 / (height - 140) if rows > 1 else 0.0)
    spreads = [spread for feature in features for spread in feature.spreads]
    low = min(0.87, *(1.0 + spread.low for spread in spreads)) / 1.15
    high = max(1.15, *(1.0 + spread.high for spread in spreads)) * 1.15
    ticks, texts = error_ticks(low, high)
    for place, feature in enumerate(features):
        row, column = place // 2 + 1, place % 2 + 1
        labels = [spread.label for spread in feature.spreads]
        places = list(range(len(labels)))
        # where values are many, a long range takes two lines
        narrow = len(labels) > 7
        texts_below = [label.replace(DASH, f"{DASH}<br>") if narrow and len(label) > 5 else label for label in labels]
        figure.add_trace(
            go.Box(
                x=places, q1=[1 + s.lower for s in feature.spreads], median=[1 + s.middle for s in feature.spreads],
                q3=[1 + s.upper for s in feature.spreads], lowerfence=[1 + s.low for s in feature.spreads],
                upperfence=[1 + s.high for s in feature.spreads], hoverinfo="skip", showlegend=False,
                line={"color": COLOURS[0], "width": 1.5}, fillcolor="rgba(0, 114, 178, 0.25)",
            ),
            row, column,
        )  # fmt: skip
        figure.add_trace(
            go.Scatter(
                x=places, y=[1 + s.middle for s in feature.spreads], mode="markers", showlegend=False,
                marker={"symbol": "diamond", "size": 9, "color": COLOURS[3], "line": {"color": INK, "width": 0.5}},
                hovertemplate="%{text}<extra></extra>",
                text=[
                    lines(
                        f"{feature.feature} {s.label}: {s.runs} runs", f"median error {relative(1 + s.middle, 1)}",
                        f"half of them between {relative(1 + s.lower, 1)} and {relative(1 + s.upper, 1)}",
                        f"90 % of them between {relative(1 + s.low, 1)} and {relative(1 + s.high, 1)}",
                    )
                    for s in feature.spreads
                ],
            ),
            row, column,
        )  # fmt: skip
        for x, spread in enumerate(feature.spreads):
            figure.add_annotation(
                x=x, y=1.0, yref="y domain", yanchor="bottom", text=str(spread.runs), showarrow=False,
                font={"size": 11}, row=row, col=column,
            )  # fmt: skip
        figure.add_hrect(1 - BAND, 1 + BAND, fillcolor=BAND_COLOUR, line_width=0, layer="below", row=row, col=column)
        figure.add_hline(1.0, line={"color": INK, "width": 1, "dash": "dash"}, layer="below", row=row, col=column)
        figure.update_xaxes(
            range=[-0.6, len(labels) - 0.4], title_text=feature.feature, row=row, col=column, tickmode="array", tickvals=places,
            tickangle=0, tickfont_size=11, ticktext=texts_below,
        )  # fmt: skip
        figure.update_yaxes(
            type="log", range=[math.log10(low), math.log10(high)], tickmode="array", tickvals=ticks, ticktext=texts,
            title_text="error of step time" if column == 1 else "", row=row, col=column,
        )  # fmt: skip
    figure.update_layout(template=_template(), width=1200, height=height, margin={"l": 80, "r": 20, "t": 40, "b": 100})
    return figure


STYLE = """
body { font-family: system-ui, sans-serif; color: #222222; margin: 2rem auto; max-width: 1240px; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; } p { max-width: 46rem; line-height: 1.45; }
.figure { overflow-x: auto; }
"""


def write_page(path: Path, title: str, sections: Sequence[tuple[str, str, go.Figure]]) -> None:
    """One HTML file that needs no network; the old file stays as it is until the new one is complete.

    Parameters
    ----------
    path : file to write
    title : of the page
    sections : heading, sentence and figure of each
    """
    from plotly.offline import get_plotlyjs

    parts = [
        "<!doctype html>", '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(title)}</title><style>{STYLE}</style>", f"<script>{get_plotlyjs()}</script>",
        f"</head><body><h1>{html.escape(title)}</h1>",
    ]  # fmt: skip
    for number, (heading, sentence, figure) in enumerate(sections):
        parts.append(f"<h2>{html.escape(heading)}</h2><p>{html.escape(sentence)}</p>")
        drawing = figure.to_html(
            full_html=False, include_plotlyjs=False, div_id=f"figure-{number}", config={"displaylogo": False}
        )
        parts.append(f'<div class="figure">{drawing}</div>')
    parts.append("</body></html>")
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text("\n".join(parts), encoding="utf-8")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _counted(comparison: Comparison, what: str) -> str:
    points = [point for series in comparison.series for point in series.points]
    inside = np.mean([abs(point.predicted / point.measured - 1.0) <= BAND for point in points])
    return (
        f"{len(points)} {what}, mean error {100 * mean_error(points):.1f} %; {100 * inside:.0f} % of them lie in the "
        f"grey band of {100 * BAND:.0f} % on either side of equality."
    )


def accuracy_page(path: Path, predictions: Sequence[Judged]) -> None:
    """Write a page on how good predictions are: time, memory, and errors by feature of the plan.

    Parameters
    ----------
    path : HTML file to write
    predictions : of runs
    """
    sections: list[tuple[str, str, go.Figure]] = []
    for comparison in (time_comparison(predictions), memory_comparison(predictions)):
        if comparison is not None:
            sections.append((comparison.title, _counted(comparison, "runs"), comparison_figure(comparison)))
    features = errors_by_feature(predictions)
    if features:
        sentence = (
            "Boxes hold the middle half of the runs, whiskers the middle 90 %, diamonds mark the median. Above "
            "each value: how many runs have it. The axis is logarithmic: half and double are equally far from 0."
        )
        sections.append(("Error of the step time by feature", sentence, errors_figure(features)))
    write_page(path, "Predicted against measured", sections)


def fit_page(
    path: Path, cases: Sequence[Run], fitted_seconds: Sequence[float] | Array, fits: Mapping[str, Fit],
    operators: Sequence[Operator],
) -> None:  # fmt: skip
    """Write a page on what a fit reached: each family of operators, then each source of runs.

    Parameters
    ----------
    path : HTML file to write
    cases : runs that were fitted
    fitted_seconds : their step times under the fitted constants [s]
    fits : of the devices' operators
    operators : that they were fitted to
    """
    sections: list[tuple[str, str, go.Figure]] = []
    for comparison in fitted_operators(fits, operators):
        sections.append((comparison.title, _counted(comparison, "operators"), comparison_figure(comparison)))
    runs = fitted_runs(cases, fitted_seconds)
    if runs is not None:
        sections.append(("Runs, source by source", _counted(runs, "runs"), panels_figure(runs)))
    write_page(path, "Fitted against measured", sections)

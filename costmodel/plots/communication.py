"""Time and bus bandwidth of a collective against its size, algorithm by algorithm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from costmodel.evaluation.collectives import CollectiveTime, bus_factor
from costmodel.plots.style import BLACK, LEGEND_BELOW, TEMPLATE, colour, dash
from costmodel.text.errors import InvalidValue
from costmodel.text.units import format_bytes

CHOSEN, MEASURED = "chosen", "measured"
LIBRARIES = {"nccl": "NCCL", "rccl": "RCCL", "textbook": "the textbook"}


class AlgorithmCurve(NamedTuple):
    """One algorithm: sizes [bytes], times [s], bus bandwidths [bytes/s], and the text of each point."""

    name: str
    nbytes: tuple[float, ...]
    seconds: tuple[float, ...]
    bandwidths: tuple[float, ...]
    texts: tuple[str, ...]


class CollectiveSweep(NamedTuple):
    """What is shown: a curve for each algorithm, the chosen one, and measured points where there are some."""

    title: str
    curves: tuple[AlgorithmCurve, ...]
    chosen: AlgorithmCurve
    measured: AlgorithmCurve | None


def message_sweep(answers: Sequence[CollectiveTime], measured: Sequence[tuple[float, float]] = ()) -> CollectiveSweep:
    """What a figure of a sweep over sizes shows; of each algorithm the fastest protocol.

    Parameters
    ----------
    answers : of one operation and group at several sizes
    measured : pairs of size [bytes] and time [s]
    """
    ordered = sorted(answers, key=lambda answer: answer.nbytes)
    if not ordered:
        raise InvalidValue("answers", list(answers), "at least one answer of collective_time")
    first = ordered[0]
    if any((answer.op, answer.group) != (first.op, first.group) for answer in ordered):
        raise InvalidValue("answers", f"{len(ordered)} answers", "answers about one operation of one group")
    if not all(answer.time > 0.0 for answer in ordered):
        raise InvalidValue("answers", f"{len(ordered)} answers", "answers about at least two ranks and some bytes")
    if not all(nbytes > 0.0 and seconds > 0.0 for nbytes, seconds in measured):
        raise InvalidValue("measured", list(measured), "pairs of a size and a time above 0")
    factor = bus_factor(first.op, first.group.ranks)
    names = sorted({one.algorithm for answer in ordered for one in answer.alternatives})
    curves = []
    for name in names:
        points = []
        for answer in ordered:
            offered = [one for one in answer.alternatives if one.algorithm == name]
            if offered:
                best = min(offered, key=lambda one: one.time)
                points.append((answer.nbytes, best.time, " ".join(filter(None, (name, best.protocol)))))
        curves.append(_curve(name, points, factor))
    chosen = [(answer.nbytes, answer.time, answer.why) for answer in ordered]
    points = [(nbytes, seconds, "measured") for nbytes, seconds in sorted(measured)]
    libraries = sorted({answer.library for answer in ordered})
    title = f"{first.op} of {first.group.ranks} ranks<br><sub>{' and '.join(LIBRARIES[name] for name in libraries)}</sub>"
    return CollectiveSweep(
        title, tuple(curves), _curve(CHOSEN, chosen, factor), _curve(MEASURED, points, factor) if points else None
    )


def _curve(name: str, points: Sequence[tuple[float, float, str]], factor: float) -> AlgorithmCurve:
    texts = tuple(
        f"{text}<br>{format_bytes(nbytes)}: {1e6 * seconds:.4g} us, {factor * nbytes / seconds / 1e9:.4g} GB/s"
        for nbytes, seconds, text in points
    )
    return AlgorithmCurve(
        name, tuple(point[0] for point in points), tuple(point[1] for point in points),
        tuple(factor * nbytes / seconds for nbytes, seconds, _ in points), texts,
    )  # fmt: skip


def communication_figure(answers: Sequence[CollectiveTime], measured: Sequence[tuple[float, float]] = ()) -> go.Figure:
    """Figure of time and of bus bandwidth against message size.

    Parameters
    ----------
    answers : of `collective_time` for one operation and group at several sizes
    measured : pairs of size [bytes] and time [s], drawn as points
    """
    sweep = message_sweep(answers, measured)
    figure = make_subplots(rows=1, cols=2, subplot_titles=("Time", "Bus bandwidth"), horizontal_spacing=0.09)

    def draw(curve: AlgorithmCurve, **style: object) -> None:
        for column, values in ((1, [1e6 * second for second in curve.seconds]), (2, [rate / 1e9 for rate in curve.bandwidths])):
            figure.add_trace(go.Scatter(
                x=curve.nbytes, y=values, name=curve.name, legendgroup=curve.name, showlegend=column == 1,
                text=curve.texts, hovertemplate="%{text}<extra></extra>", **style,
            ), row=1, col=column)  # fmt: skip

    draw(sweep.chosen, mode="lines", line={"color": "rgba(0,0,0,0.18)", "width": 10})
    for place, curve in enumerate(sweep.curves):
        draw(curve, mode="lines", line={"color": colour(place), "dash": dash(place), "width": 2})
    if sweep.measured:
        draw(sweep.measured, mode="markers", marker={"color": BLACK, "symbol": "x-thin", "size": 8, "line": {"width": 1.5}})
    ticks = [2**power for power in range(0, 60, 5)]
    sizes = {"type": "log", "title": "buffer", "tickvals": ticks, "ticktext": [format_bytes(tick) for tick in ticks]}
    ends = [math.log10(curve.nbytes[end]) for curve in (sweep.chosen, sweep.measured) if curve for end in (0, -1)]
    figure.update_xaxes(**sizes, range=[min(ends) - 0.3, max(ends) + 0.3])
    figure.update_yaxes(type="log", title="time [us]", dtick=1, exponentformat="power", row=1, col=1)
    figure.update_yaxes(title="bus bandwidth [GB/s]", rangemode="tozero", row=1, col=2)
    figure.update_layout(template=TEMPLATE, title=sweep.title, legend=LEGEND_BELOW)
    return figure

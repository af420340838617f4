"""A page of figures for people: predicted against measured, and errors by what plans differ in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from calibration.data.runs import source_of
from calibration.validate.judged import Judged
from costmodel.description.run import Run
from costmodel.plots.measured import MeasuredTime, measured_figure
from costmodel.plots.page import write_page
from costmodel.plots.style import BLUE, TEMPLATE
from costmodel.text.units import GiB

Numbers = tuple[float | None, float, float, float]
COLUMNS = 2
FEATURES: dict[str, Callable[[Run], int]] = {
    "tensor_parallel": lambda run: run.plan.tensor_parallel,
    "pipeline_parallel": lambda run: run.plan.pipeline_parallel,
    "micro_batch": lambda run: run.plan.micro_batch,
    "GPUs": lambda run: run.cluster.gpus or 1,
    "seq_len [tokens]": lambda run: run.plan.seq_len,
}


def accuracy_page(path: Path, rows: Sequence[Judged]) -> None:
    """Write a page on how good predictions are: time, memory, and errors by feature of the plan."""
    times, peaks = _compared(rows, attrgetter("seconds")), _compared(rows, attrgetter("nbytes"), GiB)
    figures = [measured_figure(times, "step time", "s")] if times else []
    figures += [measured_figure(peaks, "peak memory", "GiB")] if peaks else []
    timed = [(row.run, row.seconds[1] / row.seconds[0] - 1.0) for row in rows if row.run and row.seconds and row.seconds[0]]
    if timed:
        figures.append(errors_figure(timed))
    write_page(path, "Predicted against measured", figures)


def _compared(rows: Sequence[Judged], numbers: Callable[[Judged], Numbers | None], unit: float = 1.0) -> list[MeasuredTime]:
    """What was measured and predicted of each run that has both, a series for each source."""
    told = ((row, row.run, numbers(row)) for row in rows)
    return [
        MeasuredTime(source_of(run), row.id, *(float(number or 0.0) / unit for number in of))
        for row, run, of in told if run and of and of[0]
    ]  # fmt: skip


def errors_figure(timed: Sequence[tuple[Run, float]]) -> go.Figure:
    """Boxes of the errors of step times over the values of each of `FEATURES`, up to each power of two."""
    figure = make_subplots(-(-len(FEATURES) // COLUMNS), COLUMNS, subplot_titles=list(FEATURES))
    for place, value_of in enumerate(FEATURES.values()):
        row, column = place // COLUMNS + 1, place % COLUMNS + 1
        pairs = sorted((1 << (value_of(run) - 1).bit_length(), error) for run, error in timed)
        figure.add_box(
            x=[str(value) for value, _ in pairs], y=[error for _, error in pairs], boxpoints=False, showlegend=False,
            line_color=BLUE, row=row, col=column,
        )  # fmt: skip
        figure.add_hline(0.0, line={"dash": "dash", "width": 1}, row=row, col=column)
        figure.update_xaxes(type="category", row=row, col=column)
    figure.update_yaxes(tickformat="+.0%", range=[-1.0, 1.0])
    figure.update_layout(template=TEMPLATE, title=f"Errors of {len(timed)} step times by feature", height=1000)
    return figure

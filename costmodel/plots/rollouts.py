"""Post-training: who does what in a step, one after the other or beside each other."""

from __future__ import annotations

import plotly.graph_objects as go

from costmodel.plots.style import LEGEND_BELOW, TEMPLATE, colour, hatch, seconds_unit
from costmodel.text.units import counted, format_seconds
from costmodel.training.rollouts import PostTraining

GENERATING = ("generation", "new weights")
"""Parts of those who generate."""


def post_training_figure(made: PostTraining) -> go.Figure:
    """Parts of a step of post-training in their order, of the GPUs that generate and of those that train.

    Parameters
    ----------
    made : as `costmodel.post_training` gives one
    """
    size, unit = seconds_unit(made.step_time)
    apart = made.gpus > made.update.plan.gpus
    train = f"{counted(made.update.plan.gpus, 'GPU')} that train" if apart else counted(made.gpus, "GPU")
    sample = f"{counted(made.gpus - made.update.plan.gpus, 'GPU')} that generate" if apart else train
    beside = sum(made.times.values()) > 1.000001 * made.step_time
    begins = dict.fromkeys((train, sample), 0.0)
    figure = go.Figure()
    for place, (part, time) in enumerate(made.times.items()):
        row = sample if part in GENERATING else train
        begin = begins[row] if beside else max(begins.values())
        begins[row] = begin + time
        figure.add_bar(
            y=[row], x=[time / size], base=[begin / size], name=part, orientation="h",
            marker={"color": colour(place), "pattern": {"shape": hatch(place)}}, customdata=[format_seconds(time)],
            hovertemplate=f"{part} %{{customdata}}<extra></extra>",
        )  # fmt: skip
    figure.update_layout(
        template=TEMPLATE, barmode="overlay", yaxis_autorange="reversed", xaxis_title=f"time [{unit}]", legend=LEGEND_BELOW,
        title=f"A step of {made.algorithm} of {made.update.model.name}: {format_seconds(made.step_time)}", height=320,
    )  # fmt: skip
    return figure

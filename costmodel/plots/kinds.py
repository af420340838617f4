"""Which figures each kind of result has, by name: one table for `plot` of all of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import plotly.graph_objects as go

from costmodel.evaluation.capacity import Capacity
from costmodel.evaluation.dimension_sweeps import HeatMap, Scaling
from costmodel.evaluation.estimation import Estimate
from costmodel.evaluation.memory_breakdown import MemoryTimeline
from costmodel.evaluation.operators import Roofline
from costmodel.evaluation.search_result import SearchResult
from costmodel.evaluation.verdicts import Verdict
from costmodel.plots.answers import OF_PLAN, OF_SEARCH
from costmodel.plots.comparison import compared_systems
from costmodel.plots.dimension_sweeps import heat_map_figure, scaling_figure
from costmodel.plots.memory import memory_figure
from costmodel.plots.pipeline import pipeline_figure
from costmodel.plots.rematerialisation import memory_against_time, memory_of_schedule
from costmodel.plots.rollouts import post_training_figure
from costmodel.plots.rooflines import roofline_figure
from costmodel.plots.side_by_side import card_bars, difference_waterfall
from costmodel.plots.simulation import time_parts, utilisation
from costmodel.plots.traces import traced_memory, traced_parts, traced_streams
from costmodel.plots.traffic import link_loads, transaction_sizes
from costmodel.simulation.playback import Timeline
from costmodel.simulation.played_step import Simulation
from costmodel.simulation.transactions import Ledger
from costmodel.studies.rematerialisation.study import Checkpointing, MemoryCurve
from costmodel.text.checks import choice
from costmodel.traces.memory import TraceMemory
from costmodel.traces.pricing import TraceEstimate
from costmodel.training.card_table import CardTable
from costmodel.training.duration import TrainingRun
from costmodel.training.rollouts import PostTraining
from costmodel.training.side_by_side import SideBySide
from costmodel.training.systems_compared import Comparison

Figures = Mapping[str, Callable[[Any], go.Figure]]
"""Figures of a kind of result by their names, the one that is drawn unasked first."""


def _of_its_plan(estimate: Callable[[Any], Estimate]) -> Figures:
    """Figures of the plan that a result is about."""
    return {name: functools.partial(_drawn, draw, estimate) for name, draw in OF_PLAN.items()}


def _drawn(draw: Callable[[Estimate], go.Figure], estimate: Callable[[Any], Estimate], made: object) -> go.Figure:
    return draw(estimate(made))


KINDS: dict[type, Figures] = {
    Estimate: OF_PLAN,
    Verdict: _of_its_plan(lambda made: made.estimate),
    Capacity: _of_its_plan(lambda made: made.best),
    TrainingRun: _of_its_plan(lambda made: made.estimate),
    PostTraining: {"step": post_training_figure},
    SearchResult: OF_SEARCH,
    HeatMap: {"heat-map": heat_map_figure},
    Scaling: {"scaling": scaling_figure},
    Roofline: {"roofline": roofline_figure},
    MemoryTimeline: {"memory": memory_figure},
    Timeline: {"pipeline": pipeline_figure},
    Simulation: {"utilisation": utilisation, "time": time_parts},
    Ledger: {"sizes": transaction_sizes, "links": link_loads},
    SideBySide: {"why": difference_waterfall},
    CardTable: {"cards": card_bars},
    Comparison: {"systems": compared_systems},
    Checkpointing: {"memory": memory_of_schedule},
    MemoryCurve: {"memory": memory_against_time},
    TraceEstimate: {"time": traced_parts, "streams": traced_streams},
    TraceMemory: {"memory": traced_memory},
}
"""By the class of the result."""


def figure_of(result: object, kind: str | None = None) -> go.Figure:
    """A figure of a result.

    Parameters
    ----------
    result : of a class in `KINDS`
    kind : a name of its figures; the first if None

    Raises
    ------
    InvalidValue
        naming the figures that there are
    IllegalPlan
        where no plan fits

    Examples
    --------
    >>> from costmodel import Plan, estimate, load_cluster, load_model
    >>> made = estimate(load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8), Plan(global_batch=8, seq_len=2048))
    >>> type(made.plot()).__name__, type(made.plot("memory")).__name__
    ('Figure', 'Figure')
    """
    figures = KINDS[type(result)]
    draw = figures[choice("kind", next(iter(figures)) if kind is None else kind, tuple(figures))]
    if isinstance(result, SearchResult):
        _ = result.best
    return draw(result)

"""Which figures an answer has: of one plan, and of a search."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import plotly.graph_objects as go

from costmodel.evaluation.estimation import Estimate
from costmodel.evaluation.operators import roofline
from costmodel.evaluation.plan_search import SearchResult
from costmodel.evaluation.sensitivity import sensitivities
from costmodel.plots.frontier import frontier_figure
from costmodel.plots.rooflines import roofline_figure
from costmodel.plots.sensitivity import tornado_figure
from costmodel.plots.stages import stages_figure
from costmodel.plots.step import breakdown_figure, waterfall
from costmodel.text.checks import choice

LEADING = 5
"""Ranked plans that are drawn side by side."""
OF_PLAN: dict[str, Callable[[Estimate], go.Figure]] = {
    "time": lambda made: breakdown_figure([made]),
    "memory": stages_figure,
    "sensitivity": lambda made: tornado_figure(made, sensitivities(made)),
    "roofline": lambda made: roofline_figure(roofline(made)),
}
"""Figures of one plan, by name."""
OF_SEARCH: dict[str, Callable[[SearchResult], go.Figure]] = {
    "time": lambda found: breakdown_figure(found[:LEADING]),
    "difference": lambda found: waterfall(found.best, found[min(1, len(found) - 1)]),
    "memory": lambda found: stages_figure(found.best),
    "frontier": frontier_figure,
    "sensitivity": lambda found: OF_PLAN["sensitivity"](found.best),
    "roofline": lambda found: OF_PLAN["roofline"](found.best),
}
"""Figures of a search that kept what it evaluated and has a plan that fits, by name."""


def answer_figure(answer: Estimate | SearchResult | Sequence[Estimate], name: str = "time") -> go.Figure:
    """One figure of an answer.

    Parameters
    ----------
    answer : an estimate, the result of ``search(..., keep_evaluated=True)``, or estimates of several clusters to draw side by
        side, of which there is ``"time"`` alone
    name : ``"time"``, ``"memory"``, ``"sensitivity"`` or ``"roofline"``; of a search also ``"difference"``, of its best two
        plans, or ``"frontier"``

    Raises
    ------
    InvalidValue
        for another name
    IllegalPlan
        where a search has no plan that fits
    """
    if isinstance(answer, Estimate):
        return OF_PLAN[choice("figure", name, tuple(OF_PLAN))](answer)
    if not isinstance(answer, SearchResult):
        choice("figure", name, ("time",))
        return breakdown_figure(answer)
    drawn = OF_SEARCH[choice("figure", name, tuple(OF_SEARCH))]
    _ = answer.best
    return drawn(answer)


def answer_figures(answer: Estimate | SearchResult | Sequence[Estimate]) -> list[go.Figure]:
    """All figures of an answer, the most asked for first.

    Parameters
    ----------
    answer : as `answer_figure` takes it

    Returns
    -------
    list
        of figures, not shown yet

    Raises
    ------
    IllegalPlan
        where a search has no plan that fits
    """
    if isinstance(answer, Estimate):
        return [answer_figure(answer, name) for name in OF_PLAN]
    if not isinstance(answer, SearchResult):
        others = [figure for one in answer for figure in answer_figures(one)[1:]]
        return [answer_figure(answer), *others]
    return [answer_figure(answer, name) for name in OF_SEARCH if name != "difference" or len(answer) > 1]

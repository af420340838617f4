"""The step that a question is about whose answer goes on from it: an estimate, or what names one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from costmodel.catalogue.asking import ModelLike, asked_search
from costmodel.catalogue.clusters import ClusterLike
from costmodel.description.fields import short_names
from costmodel.description.judgement import CHOSEN
from costmodel.description.plan import FOLLOWING, LEADING, Plan
from costmodel.evaluation.estimation import Estimate, estimate
from costmodel.text.errors import InvalidValue

if TYPE_CHECKING:
    from costmodel.evaluation.search_result import SearchResult

Answer: TypeAlias = "Estimate | SearchResult | ModelLike"
"""An estimate, a search, whose best plan is meant, or a model whose step is asked about by names."""
DEGREES = (*LEADING, FOLLOWING, "expert_parallel")
"""What says how a model is split; where none of it is given, the fastest plan is looked for."""


def step_of(answer: Answer, cluster: ClusterLike | None, asked: Mapping[str, Any]) -> Estimate:
    """One step: as it was estimated, or of the plan that a question by names says; the fastest that fits where it says no degree.

    Parameters
    ----------
    answer : an estimate, a search, or a model or its name
    cluster : of a model; nothing beside an answer, which has it
    asked : further arguments as `costmodel.estimate` or `costmodel.search` takes them; none beside an answer

    Raises
    ------
    InvalidValue
        for anything beside an answer, which says it
    IllegalPlan
        where no plan fits

    Examples
    --------
    >>> step_of("llama3-8b", "8xh100", {"tp": 2}).plan.tensor_parallel, step_of("llama3-8b", "8xh100", {}).fits
    (2, True)
    """
    if isinstance(answer, Estimate):
        return _alone(answer, cluster, asked)
    from costmodel.evaluation.plan_search import search_by_name  # loads NumPy
    from costmodel.evaluation.search_result import SearchResult

    if isinstance(answer, SearchResult):
        return _alone(answer.best, cluster, asked)
    degrees = {*DEGREES, *(short for short, name in short_names(Plan).items() if name in DEGREES)}
    if "plan" in asked or degrees & asked.keys():
        return estimate(answer, cluster, **asked)
    choices = {name: value for name, value in asked.items() if name != "framework"}
    named = asked_search(answer, cluster, asked.get("framework"), choices)
    found = search_by_name(
        named.model, named.cluster, framework=named.framework, top=1, fit_probability=CHOSEN, **named.work, **named.dimensions
    )
    return found.best


def _alone(found: Estimate, cluster: ClusterLike | None, asked: Mapping[str, Any]) -> Estimate:
    """A step beside which nothing is said."""
    for name, value in {**({} if cluster is None else {"cluster": cluster}), **asked}.items():
        raise InvalidValue(name, value, "nothing beside an answer, which says it")
    return found

"""What a framework has and a plan doesn't use, and what it would save: switches, and schedules of pipelines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from costmodel.arithmetic.named_tuples import Row
from costmodel.description.framework import OF_EXPERTS
from costmodel.evaluation.estimation import Estimate
from costmodel.evaluation.search_result import SearchResult
from costmodel.evaluation.single_changes import estimated, in_words
from costmodel.formulas.pipeline.schedules import SCHEDULES
from costmodel.text.checks import kind, positive_int

WORTH = 0.005
"""Share of a step that a change has to save to be named."""


class Faster(NamedTuple):
    """A change after which the best plan, or the best that the change allows, is faster and fits."""

    change: Row  # fields of `Plan`
    best: Estimate  # the plan then
    gain: float  # share of the best plan's step that it saves

    @property
    def words(self) -> str:
        """The change as arguments of `Plan`."""
        return in_words(self.change)


def faster_with(result: SearchResult, most: int = 4) -> list[Faster]:
    """What would make a search's best plan faster, though no search turns it on unasked.

    Tried are the switches of `Framework.switches` that a search doesn't try by itself, one by one with the best plan, and
    the framework's other schedules, of which the one with the best plan of all is named. They depend on versions, builds or
    links that a question doesn't state; what changes the numbers that a run computes isn't among them.

    Parameters
    ----------
    result : of a search
    most : changes to name, those that save most

    Returns
    -------
    list of Faster
        the one that saves most first; empty where no plan fits

    Raises
    ------
    InvalidValue
        for something that isn't a search's result

    Examples
    --------
    >>> from costmodel import load_cluster, load_model, search
    >>> model, cluster = load_model("llama3-70b"), load_cluster("dgx-h100", gpus=64)
    >>> result = search(model, cluster, global_batch=1024, seq_len=8192, recompute="none")
    >>> [one.words for one in faster_with(result)]
    ['overlap_tensor=True', 'fused_cross_entropy=True', 'cuda_graphs=True']
    """
    kind("result", result, SearchResult, "search(...)")
    positive_int("most", most, 1000)
    if not result.ranked or not result.asked:
        return []
    best = result.best
    found = []
    for change, one in (*_switched(result), *_scheduled(result)):
        gain = 1.0 - one.step_time / best.step_time
        if one.fits and gain >= WORTH:
            found.append(Faster(change, one, gain))
    return sorted(found, key=lambda one: -one.gain)[:most]


def _switched(result: SearchResult) -> Iterator[tuple[Row, Estimate]]:
    best = result.best
    for name, value in best.framework.switches:
        if name in (*OF_EXPERTS, *result.asked) or getattr(best.plan, name) == value:
            continue
        if (found := estimated(best, {name: value})) is not None:
            yield {name: value}, found


def _scheduled(result: SearchResult) -> Iterator[tuple[Row, Estimate]]:
    """The best plan of all other schedules that give the same gradients."""
    from costmodel.evaluation.plan_search import search

    framework, plan = result.framework, result.best.plan
    if "schedule" in result.asked or plan.pipeline_parallel == 1:
        return
    usual = (*framework.default_schedules, plan.schedule)
    others = [name for name in framework.schedules if name not in usual and SCHEDULES[name].flushes]
    if others:
        asked: Row = {"rank_order": framework.rank_orders[:1], **result.asked, "schedule": others, "top": 1}
        found = search(result.model, result.cluster, framework=framework, **asked)
        if found.ranked and found.best.plan.schedule not in usual:
            yield {"schedule": found.best.plan.schedule}, found.best

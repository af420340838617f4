"""The leading plans of a search under other hardware, evaluated anew in the time of a blink."""

from __future__ import annotations

import dataclasses

import numpy as np

from costmodel.checks import positive_int
from costmodel.description.cluster import Cluster
from costmodel.description.question import Question
from costmodel.description.transformer import Transformer
from costmodel.errors import InvalidValue
from costmodel.evaluation import engine as engines
from costmodel.evaluation.error_model import spread_of
from costmodel.evaluation.estimation import FIT_PROBABILITY, Estimate, StepParts
from costmodel.evaluation.plan_search import SearchResult
from costmodel.evaluation.search_result import Evaluated
from costmodel.evaluation.simplicity import simplest_first

MOST = 2000
"""Plans that are evaluated anew."""


def shortlist(found: SearchResult, model: Transformer, cluster: Cluster, top: int = 20, most: int = MOST) -> SearchResult:
    """What the search would rank under another model and cluster of the same shape, among its leading plans.

    The leading plans are the fastest, whether they fit or not, and the leanest, so that plans rise that fit only now or
    that a change of the network favours; the others are left out, and `SearchResult.evaluated` counts those that were
    evaluated anew.

    Parameters
    ----------
    found : of a search with ``keep_evaluated=True``
    model, cluster : as `costmodel.evaluation.factors.scaled` gives them: the same shape and number of GPUs
    top : how many ranked plans to return
    most : plans to evaluate anew

    Returns
    -------
    SearchResult
        of the leading plans alone

    Raises
    ------
    InvalidValue
        where the search has not kept what it evaluated

    Examples
    --------
    >>> from costmodel import load_cluster, load_model, search
    >>> from costmodel.evaluation.factors import scaled
    >>> model, cluster = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8)
    >>> found = search(model, cluster, global_batch=64, seq_len=8192, keep_evaluated=True)
    >>> slower = shortlist(found, *scaled(model, cluster, {"nvlink.bandwidth": 0.5}))
    >>> slower.best.step_time > found.best.step_time
    True
    """
    every = found.every
    if every is None:
        raise InvalidValue("found", "a search that kept nothing", "the result of search(..., keep_evaluated=True)")
    positive_int("top", top, 1_000_000)
    places = np.sort(_leading(every, most))
    spread = spread_of(found.framework, cluster.device, bool(model.experts))
    limit = spread.margin(FIT_PROBABILITY) * float(cluster.device.usable_memory or 0.0)
    question = Question(model, cluster, found.framework)
    parts = np.empty((len(engines.PARTS), len(places)))
    begin = 0
    for batch, (settings, numbers) in enumerate(zip(every.settings, every.numbers, strict=True)):
        here = np.flatnonzero(every.rows[1, places] == batch)
        if len(here):
            dtype = every.chosen[batch].get("dtype", "bf16")
            rows = np.ascontiguousarray(numbers[:, places[here] - begin])
            inputs = question.inputs(every.plan(int(places[here[0]])))._replace(settings=settings, device=question.device(dtype))
            parts[:, here] = engines.evaluate(inputs, rows, "numpy")
        begin += numbers.shape[1]
    times, held = parts[0], parts[engines.PARTS.index("memory_total")]
    fits = held <= limit

    def rebuilt(place: int) -> Estimate:
        plan, step = every.plan(int(places[place])), engines.unflatten(parts[:, place])
        return Estimate(question=question, plan=plan, step=StepParts.of(step, question, plan))

    inside = np.flatnonzero(fits)
    ranked = simplest_first([rebuilt(int(place)) for place in inside[np.argsort(times[inside], kind="stable")[:top]]])
    outside = np.flatnonzero(~fits)
    miss = None
    if len(outside) and not ranked:
        miss = rebuilt(int(outside[np.argmin(held[outside])]))
    kept = dataclasses.replace(
        every, step_time=times, peak_memory=held, fits=fits, rows=every.rows[:, places],
        columns={name: column[places] for name, column in every.columns.items()}, settings=[], numbers=[],
    )  # fmt: skip
    return dataclasses.replace(
        found, model=model, cluster=cluster, evaluated=len(places), fitting=int(fits.sum()), ranked=ranked, closest_miss=miss,
        every=kept,
    )  # fmt: skip


def _leading(every: Evaluated, most: int) -> np.ndarray:
    """Places of the fastest plans of all, of the fastest that fit, and of the leanest."""
    if len(every) <= most:
        return np.arange(len(every))
    third = max(most // 3, 1)
    fitting = np.flatnonzero(every.fits)
    chosen = (
        np.argsort(every.step_time, kind="stable")[:third],
        fitting[np.argsort(every.step_time[fitting], kind="stable")[:third]],
        np.argsort(every.peak_memory, kind="stable")[:third],
    )
    return np.unique(np.concatenate(chosen))


__all__ = ["MOST", "shortlist"]

"""The leading plans of a search under other hardware, evaluated anew in the time of a blink."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from costmodel.description.cluster import Cluster
from costmodel.description.judgement import CHOSEN
from costmodel.description.question import Question
from costmodel.description.transformer import Transformer
from costmodel.evaluation import engine as engines
from costmodel.evaluation.error_model import spread_of
from costmodel.evaluation.estimation import NO_PLAN, Estimate, StepParts
from costmodel.evaluation.plan_search import SearchResult
from costmodel.evaluation.ranking import LEADERS
from costmodel.evaluation.search_result import Evaluated, leaner_than_all_before
from costmodel.evaluation.selection import EvaluatedRow
from costmodel.evaluation.simplicity import CLOSE, simplest_first
from costmodel.evaluation.twins import WITH_TWINS, groups_of_twins, led_by
from costmodel.formulas.quantities import Inputs, PlanNumbers
from costmodel.formulas.training_step import pressure
from costmodel.text.checks import positive_int
from costmodel.text.errors import InvalidValue

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
    return shortlists([found], [(model, cluster)], top, most)[0]


def shortlists(
    searches: Sequence[SearchResult], changed: Sequence[tuple[Transformer, Cluster]], top: int = 20, most: int = MOST
) -> list[SearchResult]:
    """As `shortlist` of several searches, in one evaluation of those whose questions differ in GPUs and batch alone.

    Parameters
    ----------
    searches : with ``keep_evaluated=True``
    changed : for each the other model and cluster
    top : how many ranked plans to return of each
    most : plans of each to evaluate anew

    Returns
    -------
    list
        of `SearchResult`

    Raises
    ------
    InvalidValue
        where a search has not kept what it evaluated
    """
    positive_int("top", top, 1_000_000)
    leads = [_Leads.of(found, model, cluster, most) for found, (model, cluster) in zip(searches, changed, strict=True)]
    alike: dict[Inputs, list[_Batch]] = {}
    for lead in leads:
        for batch in lead.batches():
            key = batch.inputs._replace(plan=NO_PLAN, settings=batch.inputs.settings._replace(global_batch=0.0))
            alike.setdefault(key, []).append(batch)
    for batches in alike.values():
        _evaluate(batches)
    return [lead.ranked(top) for lead in leads]


class _Batch(NamedTuple):
    """Leading plans of one search with the same settings: their numbers, the `Question.discrepancy` of each, and where in the
    search's `parts` they belong."""

    inputs: Inputs
    rows: np.ndarray
    discrepancy: np.ndarray
    parts: np.ndarray
    here: np.ndarray


def _evaluate(batches: Sequence[_Batch]) -> None:
    """Evaluate batches that differ in their rows and the global batch, and write their parts."""
    first = batches[0].inputs
    rows = np.concatenate([batch.rows for batch in batches], axis=1)
    sequences = np.concatenate([np.full(len(batch.here), batch.inputs.settings.global_batch) for batch in batches])
    parts = np.empty((len(engines.PARTS), rows.shape[1]))
    for start in range(0, rows.shape[1], engines.CHUNK):
        part = slice(start, start + engines.CHUNK)
        sizes = sequences[part] if len(batches) > 1 else first.settings.global_batch
        inputs = first._replace(settings=first.settings._replace(global_batch=sizes))  # type: ignore[arg-type]
        parts[:, part] = engines.evaluate(inputs, np.ascontiguousarray(rows[:, part]), "numpy")
    start = 0
    for one in batches:
        one.parts[:, one.here] = parts[:, start : start + len(one.here)]
        one.parts[: len(engines.TIMES), one.here] *= np.exp(one.discrepancy)
        start += len(one.here)


class _Leads(NamedTuple):
    """The leading plans of a search, and the question that they are asked anew."""

    found: SearchResult
    every: Evaluated
    question: Question
    places: np.ndarray
    parts: np.ndarray

    @classmethod
    def of(cls, found: SearchResult, model: Transformer, cluster: Cluster, most: int) -> _Leads:
        """Of a search, with room for their parts."""
        every = found.every
        if every is None:
            raise InvalidValue("found", "a search that kept nothing", "the result of search(..., keep_evaluated=True)")
        places = np.sort(_leading(every, _with_room(found, every), most))
        question = Question(model, cluster, found.framework)
        return cls(found, every, question, places, np.empty((len(engines.PARTS), len(places))))

    def batches(self) -> Iterator[_Batch]:
        """Those of the same settings together."""
        begin = 0
        for batch, (settings, numbers) in enumerate(zip(self.every.settings, self.every.numbers, strict=True)):
            here = np.flatnonzero(self.every.rows[1, self.places] == batch)
            if len(here):
                first = self.question.inputs(self.every.plan(int(self.places[here[0]])))
                inputs = first._replace(settings=settings)
                rows = numbers[:, self.places[here] - begin]
                discrepancy = self.question.discrepancy(settings, PlanNumbers(*rows))
                yield _Batch(inputs, rows, np.broadcast_to(discrepancy, here.shape), self.parts, here)
            begin += numbers.shape[1]

    def _found(self, place: int, time: float, held: float) -> EvaluatedRow:
        """A leading plan as a search holds it."""
        at = int(self.places[place])
        return EvaluatedRow(
            time, held, int(self.every.rows[1, at]), {name: column[at] for name, column in self.every.columns.items()}
        )

    def ranked(self, top: int) -> SearchResult:
        """The search as of the leading plans alone, once their parts are known."""
        found, every, parts, device = self.found, self.every, self.parts, self.question.cluster.device
        model = self.question.model
        limit = spread_of(found.framework, device, bool(model.experts), model.state_share).margin(CHOSEN)
        times, held = parts[0], parts[engines.PARTS.index("memory_total")]
        fits = held <= limit * float(device.usable_memory or 0.0)

        def rebuilt(place: int) -> Estimate:
            plan, step = every.plan(int(self.places[place])), engines.unflatten(parts[:, place].tolist())
            return Estimate(question=self.question, plan=plan, step=StepParts.of(step, self.question, plan))

        inside, outside = np.flatnonzero(fits), np.flatnonzero(~fits)
        order = inside[np.argsort(times[inside], kind="stable")[: WITH_TWINS * max(top, LEADERS)]]
        several = [self._found(int(place), float(times[place]), float(held[place])) for place in order]
        made = {id(one): int(place) for one, place in zip(several, order, strict=True)}
        estimated: dict[int, Estimate] = {}

        def estimate_of(one: EvaluatedRow) -> Estimate:
            place = made[id(one)]
            return estimated.setdefault(place, estimated.get(place) or rebuilt(place))

        rows = groups_of_twins(several, every.chosen)
        if rows:
            near = [one for place, one in enumerate(several) if place < LEADERS or one.time <= CLOSE * several[0].time]
            first = simplest_first([estimate_of(one) for one in near])[0]  # whatever `top` is
            rows = led_by(next(one for one in several if estimated.get(made[id(one)]) is first), rows)
        ranked = [estimate_of(row[0]) for row in rows[:top]]
        leaders = tuple(estimate_of(row[0]) for row in rows[:LEADERS])
        twins = tuple(tuple(every.plan(int(self.places[made[id(one)]])) for one in row[1:]) for row in rows[:top])
        miss = rebuilt(int(outside[np.argmin(held[outside])])) if len(outside) and not ranked else None
        kept = dataclasses.replace(
            every, step_time=times, peak_memory=held, fits=fits, rows=every.rows[:, self.places],
            columns={name: column[self.places] for name, column in every.columns.items()}, settings=[], numbers=[],
        )  # fmt: skip
        return dataclasses.replace(
            found, model=self.question.model, cluster=self.question.cluster, evaluated=len(self.places), fitting=int(fits.sum()),
            ranked=ranked, closest_miss=miss, every=kept, twins=twins, find_leaders=lambda: leaders, undecided=0,
        )  # fmt: skip


def _with_room(found: SearchResult, every: Evaluated) -> np.ndarray:
    """Step time of every plan, were there memory enough for its allocator never to wait [s]."""
    software, limit = found.framework.constants, float(found.cluster.device.usable_memory or 0.0)
    numbers = dict(zip(PlanNumbers._fields, np.concatenate(every.numbers, axis=1), strict=True))
    sequences = np.array([float(one.global_batch) for one in every.settings])[every.rows[1]]
    waits = software.host.pressure_time * pressure(every.peak_memory, limit)  # type: ignore[arg-type]
    question = Question(found.model, found.cluster, found.framework)
    stretch: np.ndarray | float = 1.0
    if question.told:
        by_batch = [
            np.broadcast_to(question.discrepancy(settings, PlanNumbers(*degrees)), degrees.shape[1])
            for settings, degrees in zip(every.settings, every.numbers, strict=True)
        ]
        stretch = np.exp(np.concatenate(by_batch))  # type: ignore[arg-type]
    return every.step_time - stretch * waits * sequences / (numbers["data"] * numbers["micro_batch"])


def _leading(every: Evaluated, with_room: np.ndarray, most: int) -> np.ndarray:
    """Places of the first frontiers of time and memory, of the fastest plans of all, and of the fastest that fit.

    However much memory there is, the fastest plan that fits stands on the first frontier of memory and of the time that it
    takes `with_room`.
    """
    if len(every) <= most:
        return np.arange(len(every))
    third = max(most // 3, 1)
    fitting = every.by_time[every.fits[every.by_time]]
    layers = np.concatenate(every.frontiers)[: max(third, len(every.frontiers[0]))]
    order = np.lexsort((every.peak_memory, with_room))
    roomy = order[leaner_than_all_before(every.peak_memory[order])]
    return np.unique(np.concatenate((layers, roomy, every.by_time[:third], fitting[:third])))


__all__ = ["MOST", "shortlist", "shortlists"]

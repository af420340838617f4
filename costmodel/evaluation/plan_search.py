"""Every legal plan of a model on a cluster, evaluated and ranked."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from costmodel.catalogue.software import ask
from costmodel.checks import flag, listing, positive_int
from costmodel.description.cluster import Cluster
from costmodel.description.dimensions import DIMENSIONS
from costmodel.description.framework import Framework
from costmodel.description.plan import COMPRESSION_PARAMETERS, Plan
from costmodel.description.question import Question
from costmodel.description.transformer import Transformer
from costmodel.errors import InvalidValue
from costmodel.evaluation import engine as engines
from costmodel.evaluation.error_model import spread_of
from costmodel.evaluation.estimation import FIT_PROBABILITY, Estimate, probability
from costmodel.evaluation.search_result import Evaluated, SearchResult
from costmodel.evaluation.search_space import Column, Space, columns_of
from costmodel.formulas.pipeline.schedules import CODES
from costmodel.formulas.quantities import Settings
from costmodel.records import Row

SPLIT = (
    *(dimension.field for dimension in DIMENSIONS), "micro_batch", "zero_stage", "shard_group", "recompute",
    "sequence_parallel", "schedule",
)  # fmt: skip
"""Dimensions of a search that become columns."""
CHOICES = (
    "dtype", "adapter", "attention", "optimizer", "gradient_bytes", "fused_cross_entropy", "fused_norms", "cuda_graphs",
    "overlap_gradients", "overlap_parameters", "overlap_tensor", "overlap_pipeline", "optimizer_offload", "activation_offload",
    "rank_order", "synchronisation", "servers", "local_steps", "compression", *COMPRESSION_PARAMETERS,
)  # fmt: skip
"""Dimensions that are the same for a whole batch of columns."""
NEAR = 1.5
"""Times the memory there is that a plan may need to be named as a miss: beyond that no small change makes it fit."""
LARGEST_SEARCH = 50_000_000


class Batch(NamedTuple):
    """The legal plans with the same choices, as columns.

    Parameters
    ----------
    chosen : what is the same for all
    sample : a plan with these choices
    settings : its settings
    columns : by the names that `plan_numbers` knows
    numbers : fields of `PlanNumbers` x rows
    times, held : of each plan [s, bytes]
    """

    chosen: Row
    sample: Plan
    settings: Settings
    columns: dict[str, Column]
    numbers: Column
    times: Column
    held: Column


class Found(NamedTuple):
    """One evaluated plan: seconds, bytes, its batch and its row there."""

    time: float
    held: float
    batch: int
    row: int


def _values(name: str, given: Any) -> list[Any] | None:
    """The values to try: None for all, one value, or a list of them."""
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Iterable):
        return [given]
    values = list(given)
    if isinstance(given, Mapping) or None in values:
        raise InvalidValue(name, given, "a value or a list of values")
    if not values:
        raise InvalidValue(name, values, "a value or a list that is not empty")
    return values


def search(
    model: Transformer,
    cluster: Cluster,
    *,
    global_batch: int,
    seq_len: int,
    framework: Framework | str = "megatron-core",
    fit_probability: float = FIT_PROBABILITY,
    top: int = 20,
    engine: str = "auto",
    progress: Callable[[int, int], None] | None = None,
    keep_evaluated: bool = False,
    most_combinations: int = LARGEST_SEARCH,
    **dimensions: Any,
) -> SearchResult:
    """Evaluate every legal plan and rank those that fit.

    Parameters
    ----------
    model, cluster : what is trained, on what
    global_batch : sequences per step
    seq_len : [tokens]
    framework : the software, or its name in the catalogue
    fit_probability : to fit in memory, from which a plan is ranked
    top : how many ranked plans to return
    engine : ``"auto"``, ``"python"``, ``"numpy"`` or ``"numba"``
    progress : called with the combinations just done and those in all, from any thread
    keep_evaluated : keep time and memory of every evaluated plan, not of the ranked ones alone
    most_combinations : beyond which a search is refused before anything is evaluated
    dimensions : any field of `Plan`, fixed to a value or tried over a list. Left out: degrees try every divisor of
        the GPUs, virtual stages every even split up to 8, micro-batch the powers of two up to 16, recompute none and
        full (and selective where attention is not flash), ZeRO every stage the framework has; all else is the
        framework's default.

    Returns
    -------
    SearchResult

    Raises
    ------
    InvalidValue
        for an unknown dimension or a bad value
    """
    question = ask(model, cluster, framework)
    positive_int("top", top, 1_000_000)
    flag("keep_evaluated", keep_evaluated)
    positive_int("most_combinations", most_combinations, LARGEST_SEARCH)
    probability("fit_probability", fit_probability)
    if progress is not None and not callable(progress):
        raise InvalidValue("progress", progress, "a function of the plans done and of all")
    template = Plan(global_batch=global_batch, seq_len=seq_len)
    space = Space(question, global_batch, seq_len, _given(dimensions, template))
    combinations = _choices(space.given)
    considered = 0
    rejected: dict[str, int] = {}
    refused: list[str] = []
    batches: list[Batch] = []
    for chosen in combinations:
        try:
            sample = dataclasses.replace(template, **chosen)
        except InvalidValue as reason:
            if len(combinations) == 1 or not {"servers", "local_steps", "compression"} & set(chosen):
                raise
            refused.append("compression" if reason.field == "compression" else "synchronisation")  # servers where there are none
            continue
        legal = space.legal(question.settings(sample), sample.rank_order, most_combinations)
        question.device(sample.dtype)  # refused where the device has no such dtype
        considered = legal.considered
        rejected = {rule: rejected.get(rule, 0) + legal.rejected.get(rule, 0) for rule in {**rejected, **legal.rejected}}
        rows = len(legal.columns["recompute"])
        if not rows:
            continue
        report = functools.partial(_pass_on, progress, considered * len(combinations)) if progress else None
        if report:
            report(considered - rows)
        numbers = _numbers(space, legal.columns, sample)
        times, held = engines.rank(question.inputs(sample), numbers, engine, report)
        batches.append(Batch(chosen, sample, question.settings(sample), legal.columns, numbers, times, held))
    if refused and not considered:  # whatever the choices, the dimensions make as many
        considered = space.legal(question.settings(template), template.rank_order, most_combinations).considered
    for rule in refused:
        rejected[rule] = rejected.get(rule, 0) + considered
    return _ranked(question, space, batches, considered * len(combinations), rejected, top, keep_evaluated, fit_probability)


def _given(dimensions: Mapping[str, Any], template: Plan) -> dict[str, list[Any] | None]:
    """The values to try of every dimension, each checked as a field of a plan."""
    known = (*SPLIT, *CHOICES)
    for name in dimensions:
        if name not in known:
            raise InvalidValue("dimension", name, "one of " + ", ".join(known))
    order = dimensions.get("rank_order")
    if order is not None:
        listing("rank_order", order)
    if order and isinstance(order[0], str):
        dimensions = {**dimensions, "rank_order": [tuple(order)]}
    given = {name: _values(name, dimensions.get(name)) for name in known}
    for name in ("data_parallel", "zero_stage", "schedule", "recompute", "sequence_parallel", "shard_group", "expert_parallel",
                 "expert_tensor_parallel", "synchronisation", "compression"):  # fmt: skip
        for value in given[name] or []:
            dataclasses.replace(template, **{name: value})
    for name, owner in (("servers", "parameter-server"), ("local_steps", "local-sgd")):
        for value in given[name] or []:
            dataclasses.replace(template, **{"synchronisation": owner, name: value})
    for name, owner in COMPRESSION_PARAMETERS.items():
        kinds = given["compression"] or ["none"]
        for value in given[name] or []:  # refused where no way to compress that is tried has it
            dataclasses.replace(template, **{"compression": owner if owner in kinds else kinds[0], name: value})
    return given


def _choices(given: dict[str, list[Any] | None]) -> list[Row]:
    """Combinations of what is the same for a whole batch of columns; what a way to compress doesn't use is left out."""
    found = []
    for combination in itertools.product(*(given[name] or [None] for name in CHOICES)):
        chosen = {name: value for name, value in zip(CHOICES, combination, strict=True) if value is not None}
        for name, owner in COMPRESSION_PARAMETERS.items():
            if chosen.get("compression") != owner:
                chosen.pop(name, None)
        if chosen not in found:
            found.append(chosen)
    return found


def _pass_on(progress: Callable[[int, int], None], whole: int, done: int) -> None:
    progress(done, whole)


def _numbers(space: Space, columns: dict[str, Column], sample: Plan) -> Column:
    """The columns of legal plans as the fields of `PlanNumbers` x rows."""
    layers = space.question.model.layers
    share = np.array([
        1.0 if kind == "full" else 0.0 if isinstance(kind, str) else -(-layers // kind) / layers for kind in space.recompute
    ])  # fmt: skip
    selective = np.array([float(kind == "selective") for kind in space.recompute])
    code = columns["recompute"].astype(int)
    made = columns_of(columns, share[code], selective[code], sample.rank_order)
    return np.stack([np.broadcast_to(column, code.shape) for column in made])


def _ranked(
    question: Question, space: Space, batches: list[Batch], considered: int, rejected: dict[str, int], top: int, keep: bool,
    fit_probability: float,
) -> SearchResult:  # fmt: skip
    """The fastest plans that fit, and the closest miss."""
    best: list[Found] = []
    misses: list[Found] = []
    spread = spread_of(question.framework, question.cluster.device, bool(question.model.experts))
    limit = spread.margin(fit_probability) * float(question.cluster.device.usable_memory or 0.0)
    fitting = 0
    for place, batch in enumerate(batches):
        fits = batch.held <= limit
        inside, outside = np.flatnonzero(fits), np.flatnonzero(~fits)
        fitting += len(inside)
        best += [_found(batch, place, row) for row in _fastest(batch.times, inside, top)]
        near = outside[batch.held[outside] <= NEAR * limit]
        if len(near) or (len(outside) and not len(inside)):
            row = near[np.argmin(batch.times[near])] if len(inside) else outside[np.argmin(batch.held[outside])]
            misses.append(_found(batch, place, row))
    best.sort(key=lambda found: found.time)

    def estimate(found: Found) -> Estimate:
        plan = _plan(batches[found.batch], space.recompute, found.row).resolve(question.framework)
        step = engines.evaluate_one(question, plan)
        return Estimate(question=question, plan=plan, step=step, required_probability=fit_probability)

    ranked = [estimate(found) for found in best[:top]]
    miss = None
    if misses:
        closest = min(misses, key=lambda found: found.time if ranked else found.held)
        if not ranked or closest.time < ranked[0].step_time:
            miss = estimate(closest)
    return SearchResult(
        question.model, question.cluster, question.framework, considered, sum(len(batch.times) for batch in batches), fitting,
        rejected, ranked, miss, _every(question, space, batches, limit) if keep else None,
    )  # fmt: skip


def _fastest(times: Column, rows: np.ndarray, top: int) -> np.ndarray:
    """The first `top` of some rows by their times, of equals the one that comes first."""
    chosen = times[rows]
    if len(rows) > 4 * top:
        bound = np.partition(chosen, top - 1)[top - 1]
        rows = rows[chosen <= bound]
        chosen = times[rows]
    return rows[np.argsort(chosen, kind="stable")[:top]]


def _found(batch: Batch, place: int, row: int) -> Found:
    return Found(float(batch.times[row]), float(batch.held[row]), place, int(row))


def _plan(batch: Batch, recompute: list[Any], row: int) -> Plan:
    """One row of a batch as a `Plan`."""
    value = {name: int(column[row]) for name, column in batch.columns.items() if name != "schedule"}
    codes = {code: name for name, code in CODES.items()}
    whole = value["shard_group"] == value["data"] * value["context"]
    degrees: Row = {dimension.field: value[dimension.column] for dimension in DIMENSIONS}
    return dataclasses.replace(
        batch.sample, **degrees, schedule=codes[float(batch.columns["schedule"][row])], micro_batch=value["micro_batch"],
        zero_stage=value["zero_stage"], recompute=recompute[value["recompute"]],
        sequence_parallel=bool(value["sequence_parallel"]), shard_group=None if whole else value["shard_group"],
    )  # fmt: skip


def _every(question: Question, space: Space, batches: list[Batch], limit: float) -> Evaluated:
    """The batches as one table."""
    counts = [len(batch.times) for batch in batches]
    fields = {dimension.column: dimension.field for dimension in DIMENSIONS}
    words = np.array(space.recompute, dtype=object)
    names = np.array(list(CODES), dtype=object)
    columns: dict[str, np.ndarray] = {}
    for name in batches[0].columns if batches else ():
        values = np.concatenate([batch.columns[name] for batch in batches]).astype(int)
        shown = words[values] if name == "recompute" else names[values] if name == "schedule" else values
        columns[fields.get(name, name)] = shown
    rows = np.concatenate([np.arange(count) for count in counts] or [np.empty(0, dtype=int)])
    held = np.concatenate([batch.held for batch in batches] or [np.empty(0)])
    return Evaluated(
        np.concatenate([batch.times for batch in batches] or [np.empty(0)]), held, held <= limit, columns,
        np.stack([rows, np.repeat(np.arange(len(counts)), counts)]), [batch.chosen for batch in batches],
        [batch.settings for batch in batches], [batch.numbers for batch in batches],
        lambda row, place: _plan(batches[place], space.recompute, row).resolve(question.framework),
    )  # fmt: skip


__all__ = ["CHOICES", "LARGEST_SEARCH", "SPLIT", "SearchResult", "search"]

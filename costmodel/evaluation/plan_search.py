"""Every legal plan of a model on a cluster, evaluated and ranked."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from costmodel.arithmetic.named_tuples import Row, changed
from costmodel.catalogue.asking import ask
from costmodel.description.cluster import Cluster
from costmodel.description.dimensions import DIMENSIONS
from costmodel.description.fields import full_names, table
from costmodel.description.framework import Framework
from costmodel.description.judgement import CHOSEN
from costmodel.description.plan import Plan, restrictions
from costmodel.description.question import Question
from costmodel.description.transformer import Transformer
from costmodel.evaluation import engine as engines
from costmodel.evaluation.error_model import spread_of
from costmodel.evaluation.estimation import Estimate, check_length, estimate_several, probability
from costmodel.evaluation.full_space import SPACES, full_space
from costmodel.evaluation.plan_products import LegalPlans, Product, legal_plans
from costmodel.evaluation.ranking import LEADERS
from costmodel.evaluation.search_result import Evaluated, SearchResult
from costmodel.evaluation.search_space import Column, Space, expert_choices
from costmodel.evaluation.selection import EvaluatedRow, Selection
from costmodel.evaluation.simplicity import simplest_first
from costmodel.evaluation.twins import WITH_TWINS, groups_of_twins, led_by
from costmodel.formulas import legality
from costmodel.formulas.pipeline.schedules import CODES
from costmodel.formulas.quantities import Inputs, PlanNumbers
from costmodel.formulas.transformer.loading import beside_a_step
from costmodel.text.checks import choice, flag, listing, plain, positive_int
from costmodel.text.errors import InvalidValue

ROWS = {name: row for name, row in table(Plan).items() if not row.asked}
SPLIT = tuple(name for name, row in ROWS.items() if row.column)
"""Dimensions of a search that become columns."""
CHOICES = tuple(name for name, row in ROWS.items() if not row.column)
"""Dimensions that are the same for a whole batch of columns."""
OWNED = {name: row.owner for name, row in ROWS.items() if row.owner is not None}
"""Dimensions that belong to a choice."""
LARGEST_SEARCH = 50_000_000
BEYOND_HOST = 1e18
"""Added to the memory of plans that a node's host can't hold, so that they come after all others, in their own order [bytes]."""


class LegalBlock(NamedTuple):
    """A block of legal plans with the same choices, kept whole."""

    choice: int  # place of what is the same for all
    columns: dict[str, Column]  # by the names that `columns_of` knows
    numbers: Column  # fields of `PlanNumbers` x rows
    times: Column  # times, held: of each plan [s, bytes]
    held: Column


def _values(name: str, given: object) -> list[object] | None:
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
    model: Transformer, cluster: Cluster, *, global_batch: int, seq_len: int, framework: Framework | str = "megatron-core",
    fit_probability: float = CHOSEN, top: int = 20, engine: str = "auto",
    progress: Callable[[int, int], None] | None = None, keep_evaluated: bool = False, keep_frontier: bool = False,
    space: str = "default", most_combinations: int = LARGEST_SEARCH,
    **dimensions: object,
) -> SearchResult:  # fmt: skip
    """Evaluate every legal plan and rank those that fit: `costmodel.search`, which says what each argument is, without its
    `check`, as a search knows no simulator.
    """
    question = ask(model, cluster, framework)
    positive_int("top", top, 1_000_000)
    flag("keep_evaluated", keep_evaluated)
    flag("keep_frontier", keep_frontier)
    choice("space", space, SPACES)
    positive_int("most_combinations", most_combinations, LARGEST_SEARCH)
    probability("fit_probability", fit_probability)
    if progress is not None and not callable(progress):
        raise InvalidValue("progress", progress, "a function of the plans done and of all")
    template = Plan(global_batch=global_batch, seq_len=seq_len)
    check_length(model, seq_len)
    given = _given(dimensions, template)
    if space == "full":
        given = full_space(question, given)
    elif given["rank_order"] is None and len(question.framework.rank_orders) > 1 and (cluster.gpus or 1) > 1:
        given["rank_order"] = list(question.framework.rank_orders)
    opened = expert_choices(question, given)
    tried = Space(question, global_batch, seq_len, {**given, **opened}, tuple(opened))
    tried.refuse_what_the_framework_lacks()
    spread = spread_of(question.framework, cluster.device, bool(model.experts), model.state_share)
    limit = spread.margin(fit_probability) * float(cluster.device.usable_memory or 0.0)
    kept: list[LegalBlock] = []

    def look(bounded: bool, heard: Callable[[int, int], None] | None) -> tuple[Selection, _Tally]:
        selection = Selection(WITH_TWINS * max(top, LEADERS), limit, cluster.gpus_per_node, keep_frontier)
        tally = _Tally(tried, template, most_combinations, heard)
        for place, sample, product in tally.blocks():
            inputs = question.inputs(sample)
            inside = engines.drop_certain_misfits(inputs, product, selection.boundary) if bounded else product
            ahead = product.number * (len(tally.combinations) - 1 - place)  # each choice to come has as many, about
            times, held = engines.rank(inputs, inside, engine, selection.boundary if bounded else math.inf, ahead)
            held = _with_host(question, inputs, inside, _with_loading(inputs, inside, held))
            if question.told:
                times = times * np.exp(engines.discrepancies(question, inputs.settings, inside))
            turned = question.framework.turns(sample.rank_order)
            selection.take(place, inside, times, held, product.number - inside.number, turned)
            if keep_evaluated:
                kept.append(_kept(place, product, times, held))
        return selection, tally

    selection, tally = look(not keep_evaluated, progress)
    if selection.ruled_out and not selection.best:  # the leanest of all may be one of those ruled out
        selection, tally = look(False, None)
    found = _result(question, selection, tally, top, fit_probability, _every(tally, kept, limit) if keep_evaluated else None)
    asked: Row = {"global_batch": global_batch, "seq_len": seq_len, "fit_probability": fit_probability, **dimensions}
    return dataclasses.replace(found, asked=asked)


def _with_host(question: Question, inputs: Inputs, product: Product, held: Column) -> Column:
    """Memory of plans, behind all others where what they offload is more than the host memory of a node [bytes]."""
    limit, offload = question.cluster.host_memory, inputs.settings.offload
    if limit is None or not any(offload):
        return held
    flat = np.flatnonzero(product.legal & np.isfinite(held))
    with np.errstate(divide="ignore", invalid="ignore"):  # the arm of `where` that is not taken
        needed = engines.host_bytes(inputs._replace(plan=PlanNumbers(*product.plans(flat))))
    found = held.copy()
    found.ravel()[flat[np.broadcast_to(np.asarray(needed), flat.shape) > limit]] += BEYOND_HOST
    return found


def _with_loading(inputs: Inputs, product: Product, held: Column) -> Column:
    """Memory of plans, or what their ranks hold while a model is loaded, if that is more [bytes]."""
    if not beside_a_step(inputs.settings, 1.0):
        return held
    flat = np.flatnonzero(product.legal & np.isfinite(held))
    plans = PlanNumbers(*product.plans(flat))
    sharded = np.broadcast_to(beside_a_step(inputs.settings, plans.shard_weights), flat.shape) > 0.0
    if not sharded.any():
        return held
    with np.errstate(divide="ignore", invalid="ignore"):  # the arm of `where` that is not taken
        needed = np.broadcast_to(engines.loading_bytes(inputs._replace(plan=plans)), flat.shape)
    found = held.copy()
    found.ravel()[flat[sharded]] = np.maximum(found.ravel()[flat[sharded]], needed[sharded])
    return found


class _Tally:
    """Blocks of legal plans, choice after choice, and the count of what was looked at."""

    def __init__(self, space: Space, template: Plan, most: int, progress: Callable[[int, int], None] | None) -> None:
        self.space, self.template, self.most, self.progress = space, template, most, progress
        self.combinations = _choices(space.given)
        self.samples: list[Plan | None] = [None] * len(self.combinations)
        self.considered = 0
        self.rejected: dict[str, int] = {}
        self._legal: dict[tuple[object, ...], LegalPlans] = {}

    def blocks(self) -> Iterator[tuple[int, Plan, Product]]:
        """Place of the choice, a plan with it, and plans."""
        question, each = self.space.question, 0
        refused: list[str] = []
        for place, chosen in enumerate(self.combinations):
            sample = self._sample(chosen, refused)
            if sample is None:
                continue
            self.samples[place] = sample = question.resolved(sample)
            question.device(str(sample.dtype))  # refused where the device has no such dtype
            legal = self._plans(sample)
            each = legal.considered
            self.considered += each
            for rule, count in legal.rejected.items():
                self.rejected[rule] = self.rejected.get(rule, 0) + count
            self._report(each - len(legal), each)
            for product in legal.products():
                yield place, sample, product
                self._report(product.number, each)
        if refused and not each:  # whatever the choices, the dimensions make as many
            each = self._plans(self.template).considered
        for rule in refused:
            self.rejected[rule] = self.rejected.get(rule, 0) + each
            self.considered += each

    def _plans(self, sample: Plan) -> LegalPlans:
        """The legal plans with a choice; those of choices that no rule tells apart are found once."""
        settings = self.space.question.settings(sample)
        space = self.space.of(sample)
        read = (space.stages, settings.offload.parameters > 0.0, *operator.attrgetter(*legality.READ)(settings))
        if read not in self._legal:
            self._legal[read] = legal_plans(space, settings, sample.rank_order, self.most)
        found = dataclasses.replace(self._legal[read], order=sample.rank_order)
        if not len(found):
            return found
        out = self.space.left_out(found.tables, sample)
        return found.without(out) if out.any else found

    def _sample(self, chosen: Row, refused: list[str]) -> Plan | None:
        """A plan with some choices, or None where they can't be had together, which is noted."""
        values = {**vars(self.template), **chosen}
        broken = next((one for one in restrictions() if one.broken(values)), None)
        if broken is not None and len(self.combinations) > 1:
            refused.append(broken.field if broken.field == "compression" else broken.beside)
            return None
        sample = dataclasses.replace(self.template, **chosen)
        question = self.space.question
        values = vars(question.resolved(sample))
        for one in (*question.framework.restrictions, *question.cluster.device.restrictions):
            row = ROWS[one.field]
            everywhere = one.beside in ("", row.idle)  # without the degree that sets a choice to work it repeats another
            if one.reason and everywhere and not row.column and one._replace(beside="").broken(values):
                refused.append(one.reason)
                return None
        return sample

    def _report(self, done: int, each: int) -> None:
        if self.progress is not None:
            self.progress(done, each * len(self.combinations))


search_by_name: Callable[..., SearchResult] = search
"""`search` for dimensions that come by their names, from a form, a link or a command line; `search` checks each."""


def _given(dimensions: Mapping[str, object], template: Plan) -> dict[str, list[object] | None]:
    """The values to try of every dimension, each checked as a field of a plan."""
    known = (*SPLIT, *CHOICES)
    dimensions = full_names(Plan, dimensions)
    if sizes := [name for name in dimensions if name not in known]:
        raise InvalidValue("dimension", sizes[0], "one of " + ", ".join(known))
    for name, row in ROWS.items():
        value = dimensions.get(name)
        if row.kind.several and value is not None:
            words = value if isinstance(value, str) else listing(name, value)
            if words and isinstance(words[0], str):  # one value that lists words, not several
                dimensions = {**dimensions, name: [row.kind.check(name, words)]}
    given = {name: _values(name, dimensions.get(name)) for name in known}
    for name, row in ROWS.items():
        if name not in OWNED and (values := given[name]) is not None:
            given[name] = [row.kind.check(name, plain(value)) for value in values]
    for name, owner in OWNED.items():
        tried = given[owner.field] or [ROWS[owner.field].default]
        those = [value for value in tried if value in owner.values] or (tried if ROWS[name].default is None else owner.values)
        if (values := given[name]) is not None:  # refused where no choice that is tried has it
            given[name] = [getattr(changed(template, {owner.field: those[0], name: value}), name) for value in values]
    return given


def _choices(given: dict[str, list[object] | None]) -> list[Row]:
    """Combinations of what is the same for a whole batch of columns; what a choice doesn't have is left out."""
    found = []
    for combination in itertools.product(*(given[name] or [None] for name in CHOICES)):
        chosen = {name: value for name, value in zip(CHOICES, combination, strict=True) if value is not None}
        for name, owner in OWNED.items():
            several = len(given[owner.field] or []) > 1
            if ROWS[name].default is None and several and chosen.get(owner.field, ROWS[owner.field].default) not in owner.values:
                chosen.pop(name, None)
        if chosen not in found:
            found.append(chosen)
    return found


class _Estimates:
    """Estimates of found plans, each made when it is first asked for.

    Parameters
    ----------
    question : model, cluster and framework
    samples : a plan with each choice, by `Found.choice`
    recompute : kinds of recomputation by their places
    fit_probability : from which a plan is judged to fit
    """

    def __init__(
        self, question: Question, samples: Sequence[Plan | None], recompute: Sequence[str | float], fit_probability: float
    ) -> None:
        self.question, self.samples, self.recompute, self.fit_probability = question, samples, recompute, fit_probability
        self._known: dict[int, tuple[EvaluatedRow, Estimate]] = {}

    def plan(self, found: EvaluatedRow) -> Plan:
        """A found plan."""
        sample = self.samples[found.choice]
        assert sample is not None
        return _plan(sample, found.values, self.recompute)

    def __call__(self, several: Sequence[EvaluatedRow]) -> list[Estimate]:
        new = [one for one in several if id(one) not in self._known]
        plans = [self.plan(one) for one in new]
        made = estimate_several(self.question, plans, [one.choice for one in new], self.fit_probability)
        self._known |= {id(one): (one, estimate) for one, estimate in zip(new, made, strict=True)}
        return [self._known[id(one)][1] for one in several]

    def __getstate__(self) -> tuple[object, ...]:  # places in memory are another process's
        return (self.question, self.samples, self.recompute, self.fit_probability)

    def __setstate__(self, state: tuple[Question, Sequence[Plan | None], Sequence[str | int], float]) -> None:
        self.__init__(*state)  # type: ignore[misc]


def _result(
    question: Question, selection: Selection, tally: _Tally, top: int, fit_probability: float, every: Evaluated | None
) -> SearchResult:
    """The fastest plans that fit, twins in one row, the simplest of those tied with the fastest first, and the closest miss."""
    estimates = _Estimates(question, tally.samples, tally.space.recompute, fit_probability)
    fitting, kinds = selection.best, selection.kinds
    rows = groups_of_twins(sorted([*fitting, *(one for one in kinds if one not in fitting)], key=_time), tally.combinations)
    leading: list[EvaluatedRow] = []
    if rows:
        candidates = [rows[0][0], *kinds]
        tried = estimates(candidates)
        first = simplest_first(tried)[0]  # whatever the number of plans that are asked for
        rows = led_by(candidates[next(place for place, one in enumerate(tried) if one is first)], rows)
        slowest = fitting[min(len(fitting), WITH_TWINS * LEADERS) - 1].time
        leading = [group[0] for group in rows[:LEADERS] if group[0].time <= slowest or group is rows[0]]
    ranked = estimates([group[0] for group in rows[:top]])
    last = max((one.step_time for one in ranked), default=0.0)
    undecided = sum(group[0].time == last for group in rows[top:])
    undecided += selection.undecided if fitting and fitting[-1].time == last else 0
    miss = estimates([selection.miss])[0] if selection.miss else None
    front = None if selection.frontier is None else tuple(estimates(sorted(selection.frontier, key=_time)))
    return SearchResult(
        question.model, question.cluster, question.framework, tally.considered, selection.evaluated, selection.fitting,
        tally.rejected, ranked, miss, every, undecided=undecided, frontier=front,
        twins=tuple(tuple(estimates.plan(one) for one in group[1:]) for group in rows[:top]),
        find_leaders=functools.partial(estimates, leading),
    )  # fmt: skip


def _time(found: EvaluatedRow) -> float:
    return found.time


def _plan(sample: Plan, values: Mapping[str, float], recompute: Sequence[str | float]) -> Plan:
    """One row of a block as a `Plan`."""
    value = {name: int(number) for name, number in values.items() if name != "schedule"}
    codes = {code: name for name, code in CODES.items()}
    whole = value["shard_group"] == value["data"] * value["context"]
    degrees: Row = {dimension.field: value[dimension.column] for dimension in DIMENSIONS}
    return dataclasses.replace(
        sample, **degrees, schedule=codes[float(values["schedule"])], micro_batch=value["micro_batch"],
        zero_stage=value["zero_stage"], recompute=recompute[value["recompute"]],
        sequence_parallel=bool(value["sequence_parallel"]), shard_group=None if whole else value["shard_group"],
    )  # fmt: skip


def _kept(choice: int, product: Product, times: Column, held: Column) -> LegalBlock:
    flat = np.flatnonzero(product.legal & (held < BEYOND_HOST))  # without those that a node's host memory can't hold
    return LegalBlock(choice, product.columns(flat), np.stack(product.plans(flat)), times.ravel()[flat], held.ravel()[flat])  # type: ignore[arg-type]


def _every(tally: _Tally, kept: list[LegalBlock], limit: float) -> Evaluated:
    """The blocks as one table."""
    counts = [len(block.times) for block in kept]
    fields = {dimension.column: dimension.field for dimension in DIMENSIONS}
    words = np.array(tally.space.recompute, dtype=object)
    names = np.array(list(CODES), dtype=object)
    columns: dict[str, np.ndarray] = {}
    for name in kept[0].columns if kept else ():
        values = np.concatenate([block.columns[name] for block in kept]).astype(int)
        shown = words[values] if name == "recompute" else names[values] if name == "schedule" else values
        columns[fields.get(name, name)] = shown
    rows = np.concatenate([np.arange(count) for count in counts] or [np.empty(0, dtype=int)])
    held = np.concatenate([block.held for block in kept] or [np.empty(0)])
    samples = [tally.samples[block.choice] for block in kept]
    settings = [tally.space.question.settings(sample) for sample in samples if sample is not None]

    def plan(row: int, place: int) -> Plan:
        block, sample = kept[place], samples[place]
        assert sample is not None
        values = {name: float(column[row]) for name, column in block.columns.items()}
        return _plan(sample, values, tally.space.recompute)

    return Evaluated(
        np.concatenate([block.times for block in kept] or [np.empty(0)]), held, held <= limit, columns,
        np.stack([rows, np.repeat(np.arange(len(counts)), counts)]), [tally.combinations[block.choice] for block in kept],
        settings, [block.numbers for block in kept], plan,
    )  # fmt: skip


__all__ = ["CHOICES", "LARGEST_SEARCH", "SPLIT", "SearchResult", "search"]

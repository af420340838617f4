"""What a search tries: factors that are legal or not by themselves.

For each split of the GPUs a plan combines one row of each factor: how the pipeline runs, how experts lie, how states are
sharded, what is recomputed. Every rule of legality reads the split and one factor alone, so that rules are checked once a row
of a factor; combinations are counted, and `costmodel.evaluation.plan_products` writes out legal ones alone.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from costmodel.arithmetic.named_tuples import as_number
from costmodel.arithmetic.whole_numbers import divisors
from costmodel.description import recomputation
from costmodel.description.dimensions import DIMENSIONS
from costmodel.description.fields import Restriction, table
from costmodel.description.framework import OF_EXPERTS
from costmodel.description.plan import MOST, Plan
from costmodel.description.question import Question
from costmodel.evaluation.recomputed_modules import light_modules
from costmodel.formulas import legality
from costmodel.formulas.pipeline.schedules import CODES, ONE_F_ONE_B, SCHEDULES
from costmodel.formulas.quantities import ModelNumbers, PlanNumbers, RecomputedParts, Settings
from costmodel.formulas.settings import BLOCKWISE, SYNCHRONISATIONS, PlanChoices, plan_numbers, sharded_stage
from costmodel.text.checks import positive_int
from costmodel.text.errors import InvalidValue

Column = NDArray[np.float64]
LARGEST_MICRO_BATCH = 16
TOKENS_OF_A_CONTEXT_RANK = 2048
"""Of a sequence, at least, where a search chooses the context-parallel degree."""
Tried: TypeAlias = dict[str, list[Any] | None]
"""Values to try by the name of a dimension; None where it was left open."""
Table: TypeAlias = NDArray[Any]
Value = TypeVar("Value", bound=Hashable)
SPLIT = ("tensor", "context", "pipeline", "data")
FIELDS = {one.column: one.field for one in DIMENSIONS}
"""Fields of a plan by the columns of a search that have another name."""
NEUTRAL: Mapping[str, Column | float] = {
    "expert": 1.0, "expert_tensor": 1.0, "virtual_stages": 1.0, "schedule": ONE_F_ONE_B, "micro_batch": 1.0,
    "zero_stage": 0.0, "sequence_parallel": 0.0, "shard_group": 1.0,
}  # fmt: skip
"""What a factor that is not looked at has while the rules of another are checked."""
COLUMNS = {FIELDS.get(name, name): name for name in (*SPLIT, *NEUTRAL)}
"""The columns of a search by their fields of a plan."""
CHOSEN = "parameter_offload"
"""A field that is one number for all columns, which a framework holds some of them to."""
OF_STAGES = {"dtype": None, "synchronisation": "all-reduce"}
"""Choices of which the stages of ZeRO are that a framework has, as they are unasked."""
EXPERT_RULES = ("degrees_of_framework", "experts", "expert_ranks", "expert_feed_forward")
SHARD_RULES = ("zero_stage", "zero_pipeline", CHOSEN, "shard_group", "synchronisation", "compression")
RULES = ("degrees_of_framework", "zero_stage", "zero_pipeline", CHOSEN, "schedule_of_framework", *legality.Violations._fields)
"""Every rule, in the order in which a combination that breaks several is counted."""
PIPELINE_RULES = tuple(rule for rule in RULES if rule not in (*EXPERT_RULES, *SHARD_RULES))


class ChoiceRows(NamedTuple):
    """Rows that a split can have of some dimensions, the rows of one split side by side."""

    rules: tuple[str, ...]  # that read these dimensions, beside the split
    columns: dict[str, Column]  # by the names that `columns_of` knows
    counts: NDArray[np.int64]  # rows of each split
    offered: NDArray[np.bool_] | None = None  # which rows are tried, None for all


class Tables(NamedTuple):
    """Rows of the legal plans of a space, which with each other make the plans."""

    split: Mapping[str, Column]  # degrees whose product is the GPUs, of each split
    experts: Mapping[str, Column]  # experts, pipelines: columns of the legal rows of all splits
    pipelines: Mapping[str, Column]
    of_experts: NDArray[np.int64]  # of_experts, of_pipelines: the split of each of these rows
    of_pipelines: NDArray[np.int64]


class LeftOut(NamedTuple):
    """Which rows of `Tables` are left out with a choice, and which kinds of recomputation."""

    splits: NDArray[np.bool_]
    experts: NDArray[np.bool_]
    pipelines: NDArray[np.bool_]
    kinds: NDArray[np.bool_]

    @property
    def any(self) -> bool:
        """Whether there is a row that is left out."""
        return any(bool(rows.any()) for rows in self)


class SplitChoices(NamedTuple):
    """The factors of every split."""

    experts: ChoiceRows  # experts, pipelines, shards: the factors
    pipelines: ChoiceRows
    shards: ChoiceRows
    micro_batches: Column  # that each pair of virtual stages and schedule has in `pipelines`
    sequence_parallel: Column  # the same by split


@dataclasses.dataclass(frozen=True)
class Space:
    """What is tried along each dimension: given values, or None for all that make sense.

    `opened` names dimensions that nobody asked for, whose values are in `given` as the framework has several.
    """

    question: Question
    global_batch: int
    seq_len: int
    given: Tried
    opened: tuple[str, ...] = ()

    def refuse_what_the_framework_lacks(self) -> None:
        """InvalidValue where of what frameworks differ in only such values are asked for as this one hasn't."""
        framework = self.question.framework
        for name, owned in framework.offered.items():
            values = self.given[name]
            if values and not set(values) & set(owned):
                raise InvalidValue(name, values[0], f"what {framework.name} has: {', '.join(owned)}")
        for kind in self.given["recompute"] or []:
            if not framework.recomputes(kind):
                raise InvalidValue("recompute", kind, f"what {framework.name} has: "
                                   + ", ".join((*recomputation.WHOLE, *framework.recompute_modules)))  # fmt: skip
        for one in framework.lacking:
            values = self.given[one.field] or [1]
            if min(values) > 1:
                raise InvalidValue(one.field, values[0], f"1: {framework.name} splits by {framework.degrees}"
                                   + framework.instead(one))  # fmt: skip
        for pair in framework.exclusive:
            if all(min(self.given[one.field] or [1]) > 1 for one in pair):
                first, second = pair
                raise InvalidValue(first.field, min(self.given[first.field] or [1]), f"1 with {second.field}: {framework.name} "
                                   "has one of them at a time")  # fmt: skip

    @property
    def recompute(self) -> list[Any]:
        """Kinds of recomputation: none, of what costs little for a byte saved, and all."""
        if self.given["recompute"]:
            return self.given["recompute"]
        light = light_modules(self.question.model, self.question.framework)
        selective = "" if self.question.framework.attention in BLOCKWISE else "selective"
        return ["none", *filter(None, (selective, light)), "full"]

    def degrees(self, name: str, most: int) -> list[int]:
        """Values of a parallel degree: what was given, or every divisor of the GPUs up to `most` if the framework splits so."""
        values = self.given[name]
        if values is None:
            if name.removesuffix("_parallel") not in self.question.framework.dimensions:
                return [1]
            return divisors(int(self.question.cluster.gpus or 1), most)
        for value in values:
            positive_int(name, value, MOST)
        return values

    def splits(self) -> Iterator[tuple[int, int, int, int]]:
        """Tensor, context, pipeline and data degrees whose product is the GPUs."""
        gpus, model = int(self.question.cluster.gpus or 1), self.question.model
        wanted = self.given["data_parallel"]
        ranks = gpus if self.given["context_parallel"] else max(1, self.seq_len // TOKENS_OF_A_CONTEXT_RANK)
        context = self.degrees("context_parallel", ranks)
        for t, c, p in itertools.product(
            self.degrees("tensor_parallel", model.heads), context, self.degrees("pipeline_parallel", model.layers)
        ):
            if gpus % (t * c * p) == 0 and (wanted is None or gpus // (t * c * p) in wanted):
                yield t, c, p, gpus // (t * c * p)

    def chunks(self, stages: int) -> tuple[int, ...]:
        """Virtual stages: what was given, or every number that splits a stage's layers evenly."""
        values = self.given["virtual_stages"]
        if values is None:
            schedules = self.given["schedule"] or self.question.framework.schedules
            ends = self.given["first_stage_layers"] or self.given["last_stage_layers"]
            if stages == 1 or ends or not any(SCHEDULES[name].chunked for name in schedules):
                return (1,)
            return tuple(divisors(-(-self.question.model.layers // stages), 8))
        for value in values:
            positive_int("virtual_stages", value, MOST)
        return tuple(values)

    def micro_batches(self, data: int) -> tuple[int, ...]:
        """Micro-batch sizes: what was given, or powers of two that divide a rank's share."""
        values = self.given["micro_batch"]
        if values is None:
            share = self.global_batch // data
            sizes = (2**k for k in range(LARGEST_MICRO_BATCH.bit_length()))
            return tuple(size for size in sizes if share >= size and share % size == 0) or (1,)
        for value in values:
            positive_int("micro_batch", value, MOST)
        return tuple(dict.fromkeys(values))

    def experts(self, ranks: int) -> tuple[tuple[int, int], ...]:
        """Expert and expert-tensor degrees."""
        tensor = self.given["expert_tensor_parallel"] or [1]
        expert = self.given["expert_parallel"]
        if expert is None:
            model = self.question.model
            splits = model.experts and "expert" in self.question.framework.dimensions
            expert = divisors(model.experts, ranks) if splits else [1]
            expert = [degree for degree in expert if ranks % degree == 0]
        return tuple(itertools.product(expert, tensor))

    def pipelines(self, p: int) -> tuple[tuple[float, float], ...]:
        """Virtual stages and schedule."""
        defaults = self.question.framework.default_schedules if p > 1 else ("1f1b", "interleaved")
        return tuple((float(v), CODES[name]) for v in self.chunks(p) for name in self.given["schedule"] or [defaults[v > 1]])

    def left_out(self, tables: Tables, sample: Plan) -> LeftOut:
        """Rows that aren't tried with the choices of a plan: an earlier choice has them too, or the framework refuses them.

        Experts of one rank get no tokens from others. What hides the tokens' way under another micro-batch takes one that is at
        work beside: model chunks under a pipeline, and no layer that is recomputed whole, nor its experts; schedules that pair
        passes do it in any case. None of this holds of a choice that was asked for.

        References
        ----------
        NVIDIA/Megatron-LM@d98e8a6 megatron/core/transformer/transformer_config.py, ``overlap_moe_expert_parallel_comm``
        """
        kinds = np.zeros(len(self.recompute), dtype=bool)
        splits = self._repeated(tables.split, sample)
        lone = tables.experts["expert"] <= 1.0
        experts, pipelines = np.zeros_like(lone), np.zeros(len(tables.of_pipelines), dtype=bool)
        if "dispatcher" in self.opened and sample.dispatcher != (self.given["dispatcher"] or [None])[0]:
            experts |= lone
        if "overlap_experts" in self.opened and sample.overlap_experts:
            experts |= lone
            staged = tables.split["pipeline"][tables.of_pipelines] > 1.0
            pipelines |= staged & (tables.pipelines["virtual_stages"] <= 1.0)
            paired = [CODES[name] for name in SCHEDULES if SCHEDULES[name].pairs_directions]
            pipelines |= staged & _among(tables.pipelines["schedule"], paired)
            kinds |= np.array([_whole_experts(kind) for kind in self.recompute])
            splits |= sample.dtype in ("fp32", "tf32")
        return LeftOut(splits, experts, pipelines, kinds)

    def _repeated(self, split: Mapping[str, Column], sample: Plan) -> NDArray[np.bool_]:
        """Splits that an earlier choice has too: a dimension of one rank has no place in an order, and exchanges nothing."""
        order = sample.rank_order
        apart = {name: np.asarray(column) > 1.0 for name, column in split.items()}
        ways = self.given["context_communication"] or [sample.context_communication]
        found = ~apart["context"] & (sample.context_communication != ways[0])
        for earlier in itertools.takewhile(lambda one: tuple(one) != tuple(order), self.given["rank_order"] or []):
            turned = [
                apart[one] & apart[other]
                for one, other in itertools.combinations(order, 2)
                if list(earlier).index(one) > list(earlier).index(other)
            ]
            found |= ~functools.reduce(np.logical_or, turned, np.zeros_like(found))
        return found

    def parallel(self, t: int) -> tuple[float, ...]:
        """Sequence parallelism."""
        wanted = self.given["sequence_parallel"] or [self.question.framework.sequence_parallel]
        return tuple(dict.fromkeys(float(bool(value) and t > 1) for value in wanted))

    def of(self, sample: Plan) -> Space:
        """What is tried with the dtype and the synchronisation of a plan."""
        return dataclasses.replace(self, given=self.given | {name: [getattr(sample, name)] for name in OF_STAGES})

    @property
    def stages(self) -> tuple[int, ...]:
        """Stages of ZeRO as they run with the dtype and the synchronisation that are tried first."""
        framework = self.question.framework
        dtype, way = ((self.given[name] or [usual])[0] for name, usual in OF_STAGES.items())
        sharded = framework.defaults(dtype=dtype or self.question.cluster.device.usual_dtype).sharded_dtype
        asked = self.given["zero_stage"] or framework.zero_stages
        return tuple(dict.fromkeys(int(sharded_stage(float(stage), SYNCHRONISATIONS[way], sharded)) for stage in asked))

    def shards(self, ranks: int, tensor: int) -> tuple[tuple[float, float], ...]:
        """ZeRO stage and shard group: all ranks, and where the framework has such groups, those inside a node."""
        framework, stages = self.question.framework, list(self.stages)
        if ranks == 1 and not self.question.model.experts:  # nothing is shared out, whatever the stage is called
            stages = [min(stages)]  # the one that is refused least
        inside = self.question.cluster.gpus_per_node // tensor
        grouped = framework.grouped_zero_stages if 1 < inside < ranks and ranks % inside == 0 else ()

        def groups(stage: int) -> list[int]:
            wanted = self.given["shard_group"] or ([0, inside] if stage in grouped else [0])
            return list(dict.fromkeys(group or ranks for group in wanted))[: None if stage else 1]

        return tuple((float(stage), float(group)) for stage in stages for group in groups(stage))

    def factors(self, splits: Sequence[tuple[int, int, int, int]]) -> SplitChoices:
        """The factors of every split: experts, how a pipeline runs, shards.

        Of the second a split has every pair of virtual stages and schedule with every micro-batch that any split has and with
        each of its own values of sequence parallelism, side by side; `offered` says which are its own.
        """
        tensor, context, pipeline, data = zip(*splits, strict=True)
        sizes = {d: self.micro_batches(d) for d in set(data)}
        halves = {t: self.parallel(t) for t in set(tensor)}
        every, several = sorted(set().union(*sizes.values())), max(map(len, halves.values()))
        offered_sizes = _of_each(data, lambda d: [size in sizes[d] for size in every])
        offered_halves = _of_each(tensor, lambda t: [k < len(halves[t]) for k in range(several)])
        offered = (offered_sizes[:, :, None] & offered_halves[:, None]).reshape(len(splits), -1)
        parallel = _of_each(tensor, lambda t: [halves[t][min(k, len(halves[t]) - 1)] for k in range(several)])
        split_parallel = np.tile(parallel, len(every))
        batches = np.repeat(np.array(every, dtype=float), several)
        pairs = _factor((), ("virtual_stages", "schedule"), pipeline, self.pipelines)
        columns = {name: np.repeat(column, len(batches)) for name, column in pairs.columns.items()} | {
            "micro_batch": np.tile(batches, len(pairs.columns["schedule"])),
            "sequence_parallel": np.repeat(split_parallel, pairs.counts, axis=0).ravel(),
        }  # fmt: skip
        rows = pairs.counts * len(batches)
        apart = np.repeat(offered, pairs.counts, axis=0).ravel()
        if len(self.given["schedule"] or []) > 1:  # one rank runs a lone micro-batch as one thing by every schedule
            lone = np.repeat(np.array(pipeline) == 1, rows)
            lone &= columns["micro_batch"] * np.repeat(np.array(data), rows) == self.global_batch
            plain = [CODES[name] for name in self.given["schedule"] or [] if not SCHEDULES[name].needs_pipeline]
            apart &= ~(lone & (columns["virtual_stages"] == 1) & _among(columns["schedule"], plain[1:]))
        ranks = [c * d for c, d in zip(context, data, strict=True)]
        tensor_ranks = [t * r for t, r in zip(tensor, ranks, strict=True)]
        beside = list(zip(ranks, tensor, strict=True))
        return SplitChoices(
            _factor(EXPERT_RULES, ("expert", "expert_tensor"), tensor_ranks, self.experts),
            ChoiceRows(PIPELINE_RULES, columns, rows, apart),
            _factor(SHARD_RULES, ("zero_stage", "shard_group"), beside, lambda one: self.shards(*one)),
            batches, split_parallel,
        )  # fmt: skip

    def first_broken(
        self, factor: ChoiceRows, split: dict[str, Column], settings: Settings, order: Sequence[str]
    ) -> NDArray[np.int64]:
        """Place in `RULES` of the first of its rules that each row of a factor breaks, or their number; -1 where not offered."""
        question, rows = self.question, int(factor.counts.sum())
        of_split = {name: np.repeat(column, factor.counts) for name, column in split.items()}
        columns = {**NEUTRAL, **of_split, **factor.columns}
        plans = columns_of(columns, recomputation.numbers("none"), order, question.model.layers)
        broken = violations(question.shape, settings, plans, float(question.cluster.gpus or 1), rows)
        known = {*COLUMNS, CHOSEN}
        lacking = [one for one in question.framework.restrictions if {one.field, one.beside or one.field} <= known]
        columns[CHOSEN] = np.full(rows, settings.offload.parameters)
        breaks = np.zeros((len(factor.rules), rows), dtype=bool)
        for line, rule in zip(breaks, factor.rules, strict=True):
            for one in lacking:
                if one.reason == rule:
                    line |= _breaking(one, columns)
            if rule in legality.Violations._fields:
                line |= np.asarray(getattr(broken, rule), dtype=bool)
        places = np.array([RULES.index(rule) for rule in factor.rules])
        first = np.where(breaks.any(axis=0), places[breaks.argmax(axis=0)], len(RULES))
        if factor.offered is not None:
            first[~factor.offered] = -1
        return first


def _breaking(one: Restriction, columns: Mapping[str, Column | float]) -> Table:
    """Which rows break a restriction on fields of a plan that are columns, as `Restriction.broken` has it of one plan."""
    kinds = table(Plan)
    broken = ~_among(columns[COLUMNS.get(one.field, one.field)], [kinds[one.field].kind.code(value) for value in one.allowed])
    if one.beside:
        beside = columns[COLUMNS[one.beside]]
        with_which = [kinds[one.beside].kind.code(value) for value in one.values]
        broken = broken & (_among(beside, with_which) if one.above is None else beside > one.above)
    return broken


def expert_choices(question: Question, given: Tried) -> Tried:
    """Values of `OF_EXPERTS` that a search tries unasked: the framework's default, and what else it has.

    Parameters
    ----------
    question : model, cluster and framework
    given : values to try by dimension; None where it was left open
    """
    model, cluster, framework = question.model, question.cluster, question.framework
    ranks = given["expert_parallel"] or [model.experts if "expert" in framework.dimensions else 1]
    if not model.experts or (cluster.gpus or 1) == 1 or max(ranks) == 1:
        return {}
    had = {name: [getattr(framework, name), value] for name, value in framework.switches if name in OF_EXPERTS}
    return {name: had[name] for name in OF_EXPERTS if given[name] is None and name in had and len(set(had[name])) > 1}


def _whole_experts(recompute: str | float) -> bool:
    """Whether a layer's routed experts are recomputed, with all of it or by themselves."""
    return not isinstance(recompute, str) or recompute == "full" or "experts" in recomputation.modules_of(recompute)


def violations(model: ModelNumbers, settings: Settings, plans: PlanNumbers, gpus: float, rows: int) -> legality.Violations:
    """The rules that plans break, in vector code where that is loaded."""
    if "costmodel.compilation.programs" not in sys.modules:
        return legality.violations(model, settings, plans, gpus)
    from costmodel.compilation import programs as kernels

    program = kernels.rules()
    scalars = kernels.scalars_of(program, kernels.Ruled(model, settings, plans, gpus))
    broken = kernels.results_of(program.parts["rows"], scalars, kernels.Planned(plans), rows, bool)
    return legality.Violations(*map(as_number, broken))


def columns_of(
    columns: Mapping[str, Column | float], recomputed: RecomputedParts, order: Sequence[str], layers: int
) -> PlanNumbers:
    """Columns of a search as the columns that formulas take."""
    given = {FIELDS.get(name, name): as_number(column) for name, column in columns.items()}
    choices = _neutral(tuple(order))
    known: dict[str, Any] = {name: column for name, column in given.items() if name in choices._fields}
    return plan_numbers(choices._replace(**known | {"recompute": recomputed}), float(layers))


@functools.cache
def _neutral(order: tuple[str, ...]) -> PlanChoices:
    """Choices of which a search has no columns; `plan_numbers` reads the order of ranks alone."""
    return Plan(global_batch=1, seq_len=1, rank_order=order).choices


def _of_each(values: Sequence[int], row: Callable[[int], Sequence[object]]) -> Table:
    """A row for each value; those of equal values are made once."""
    places = {value: place for place, value in enumerate(dict.fromkeys(values))}
    table: Table = np.array([row(value) for value in places])
    return table[[places[value] for value in values]]


def _factor(
    rules: tuple[str, ...], names: tuple[str, ...], values: Sequence[Value],
    rows: Callable[[Value], tuple[tuple[float, ...], ...]],
) -> ChoiceRows:  # fmt: skip
    """A factor whose rows a value of each split decides; those of equal values are made once."""
    tables = {value: np.array(rows(value), dtype=float) for value in set(values)}
    made = np.concatenate([tables[value] for value in values])
    columns = dict(zip(names, np.ascontiguousarray(made.T), strict=True))
    return ChoiceRows(rules, columns, np.array([len(tables[value]) for value in values], dtype=np.int64))


def _among(column: Column | float, values: Sequence[float]) -> NDArray[np.bool_]:
    """Whether each of a column is one of some values (``isin`` loads masked arrays, which take as long as a small search)."""
    return (np.asarray(column)[..., None] == np.array(values, dtype=float)).any(axis=-1)

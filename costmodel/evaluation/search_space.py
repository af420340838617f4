"""What a search tries: factors that are legal or not by themselves, and the legal combinations of them as columns.

For each split of the GPUs a plan combines one row of each factor: how the pipeline runs, how experts lie, how states are
sharded, what is recomputed. Every rule of legality reads the split and one factor alone, so that rules are checked once a row
of a factor; combinations are counted, and only legal ones are ever written out.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.checks import positive_int
from costmodel.description.dimensions import DIMENSIONS
from costmodel.description.plan import MOST, divisors, plan_numbers
from costmodel.description.question import Question
from costmodel.errors import InvalidValue
from costmodel.formulas import legality
from costmodel.formulas.pipeline.schedules import CODES, INTERLEAVED, ONE_F_ONE_B, SCHEDULES
from costmodel.formulas.quantities import PlanNumbers, Settings
from costmodel.records import as_number

Column = NDArray[np.float64]
LARGEST_MICRO_BATCH = 16
SPLIT = ("tensor", "context", "pipeline", "data")
NEUTRAL = {
    "expert": 1.0, "expert_tensor": 1.0, "virtual_stages": 1.0, "schedule": ONE_F_ONE_B, "micro_batch": 1.0,
    "zero_stage": 0.0, "sequence_parallel": 0.0, "shard_group": 1.0,
}  # fmt: skip
"""What a factor that is not looked at has while the rules of another are checked."""
EXPERT_RULES = ("experts", "expert_ranks", "expert_feed_forward")
SHARD_RULES = ("zero_stage", "zero_pipeline", "shard_group", "synchronisation", "compression")
RULES = ("zero_stage", "zero_pipeline", *legality.Violations._fields)
"""Every rule, in the order in which a combination that breaks several is counted."""
PIPELINE_RULES = tuple(rule for rule in RULES if rule not in (*EXPERT_RULES, *SHARD_RULES))


class Factor(NamedTuple):
    """Rows that a split can have of some dimensions, the rows of one split side by side.

    Parameters
    ----------
    rules : that read these dimensions, beside the split
    columns : by the names that `plan_numbers` knows
    counts : rows of each split
    """

    rules: tuple[str, ...]
    columns: dict[str, Column]
    counts: NDArray[np.int64]


class Legal(NamedTuple):
    """Legal combinations as columns, and how many broke which rule first.

    Parameters
    ----------
    columns : by the names that `plan_numbers` knows; ``recompute`` holds places in `Space.recompute`
    considered : combinations in all
    rejected : by the rule
    """

    columns: dict[str, Column]
    considered: int
    rejected: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Space:
    """What is tried along each dimension: given values, or None for all that make sense."""

    question: Question
    global_batch: int
    seq_len: int
    given: dict[str, list[Any] | None]

    @property
    def recompute(self) -> list[Any]:
        """Kinds of recomputation."""
        kinds = ["none", "full"] if self.question.framework.attention == "flash" else ["none", "selective", "full"]
        return self.given["recompute"] or kinds

    def degrees(self, name: str, most: int) -> list[int]:
        """Values of a parallel degree: what was given, or every divisor of the GPUs up to `most`."""
        values = self.given[name]
        if values is None:
            return divisors(int(self.question.cluster.gpus or 1), most)
        for value in values:
            positive_int(name, value, MOST)
        return values

    def splits(self) -> Iterator[tuple[int, int, int, int]]:
        """Tensor, context, pipeline and data degrees whose product is the GPUs."""
        gpus, model = int(self.question.cluster.gpus or 1), self.question.model
        wanted = self.given["data_parallel"]
        context = self.degrees("context_parallel", gpus) if self.given["context_parallel"] else [
            degree for degree in divisors(gpus, max(1, self.seq_len // 2048))
        ]  # fmt: skip
        for t, c, p in itertools.product(
            self.degrees("tensor_parallel", model.heads), context, self.degrees("pipeline_parallel", model.layers)
        ):
            if gpus % (t * c * p) == 0 and (wanted is None or gpus // (t * c * p) in wanted):
                yield t, c, p, gpus // (t * c * p)

    def chunks(self, stages: int) -> tuple[int, ...]:
        """Virtual stages: what was given, or every number that splits a stage's layers evenly."""
        values = self.given["virtual_stages"]
        if values is None:
            schedules = self.given["schedule"]
            if stages == 1 or (schedules is not None and not any(SCHEDULES[name].chunked for name in schedules)):
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
        return tuple(values)

    def experts(self, ranks: int) -> tuple[tuple[int, int], ...]:
        """Expert and expert-tensor degrees."""
        tensor = self.given["expert_tensor_parallel"] or [1]
        expert = self.given["expert_parallel"]
        if expert is None:
            model = self.question.model
            expert = divisors(model.experts, ranks) if model.experts else [1]
            expert = [degree for degree in expert if ranks % degree == 0]
        return tuple(itertools.product(expert, tensor))

    def passes(self, t: int, p: int, d: int) -> tuple[tuple[float, ...], ...]:
        """Virtual stages, schedule, micro-batch and sequence parallelism."""
        schedules = self.given["schedule"]
        pairs = [
            (float(v), code) for v in self.chunks(p)
            for code in ([INTERLEAVED if v > 1 else ONE_F_ONE_B] if schedules is None else [CODES[name] for name in schedules])
        ]  # fmt: skip
        wanted = self.given["sequence_parallel"] or [self.question.framework.sequence_parallel]
        parallel = tuple(dict.fromkeys(float(bool(value) and t > 1) for value in wanted))
        sizes = self.micro_batches(d)
        return tuple((*pair, float(size), split) for pair, size, split in itertools.product(pairs, sizes, parallel))

    def shards(self, ranks: int) -> tuple[tuple[float, float], ...]:
        """ZeRO stage and shard group; ZeRO's default group is all ranks."""
        stages = self.given["zero_stage"] or list(self.question.framework.zero_stages)
        groups = self.given["shard_group"] or [0]
        return tuple((float(stage), float(group or ranks)) for stage, group in itertools.product(stages, groups))

    def factors(self, splits: Sequence[tuple[int, int, int, int]]) -> tuple[Factor, ...]:
        """The factors of every split."""
        return (
            _factor(EXPERT_RULES, ("expert", "expert_tensor"), [self.experts(t * c * d) for t, c, _, d in splits]),
            _factor(
                PIPELINE_RULES, ("virtual_stages", "schedule", "micro_batch", "sequence_parallel"),
                [self.passes(t, p, d) for t, _, p, d in splits],
            ),
            _factor(SHARD_RULES, ("zero_stage", "shard_group"), [self.shards(c * d) for _, c, _, d in splits]),
        )  # fmt: skip

    def legal(self, settings: Settings, order: Sequence[str], most: int) -> Legal:
        """The legal combinations; InvalidValue where there are more than `most` in all."""
        found = list(self.splits())
        split = dict(zip(SPLIT, np.array(found, dtype=float).reshape(-1, 4).T, strict=True))
        factors, kinds = self.factors(found), len(self.recompute)
        considered = int((kinds * np.prod([factor.counts for factor in factors], axis=0)).sum()) if found else 0
        if considered > most:
            raise InvalidValue("search", f"more than {most} combinations", "fewer values along some dimension")
        first = [self._first_broken(factor, split, settings, order) for factor in factors]
        rejected = _rejected(factors, first, kinds)
        return Legal(_combined(split, factors, [broken == len(RULES) for broken in first], kinds), considered, rejected)

    def _first_broken(
        self, factor: Factor, split: dict[str, Column], settings: Settings, order: Sequence[str]
    ) -> NDArray[np.int64]:
        """Place in `RULES` of the first of its rules that each row of a factor breaks, or their number."""
        question, framework = self.question, self.question.framework
        rows = int(factor.counts.sum())
        given = {name: np.repeat(column, factor.counts) for name, column in split.items()}
        columns = {name: np.full(rows, value) for name, value in NEUTRAL.items()} | given | factor.columns
        stage, piped = columns["zero_stage"], columns["pipeline"] > 1
        plans = columns_of(columns, np.zeros(rows), np.zeros(rows), order)
        broken = legality.violations(question.shape, settings, plans, float(question.cluster.gpus or 1))
        values = {
            "zero_stage": ~np.isin(stage, framework.zero_stages),
            "zero_pipeline": piped & (stage > framework.largest_pipelined_zero_stage), **broken._asdict(),
        }  # fmt: skip
        first = np.full(rows, len(RULES))
        for place in reversed(range(len(RULES))):
            if RULES[place] in factor.rules:
                first[np.broadcast_to(np.asarray(values[RULES[place]]) > 0, (rows,))] = place
        return first


def columns_of(
    columns: dict[str, Column], recomputed: Column, selective: Column, order: Sequence[str]
) -> PlanNumbers:
    """Columns of a search as the columns that formulas take."""
    given = {name: as_number(column) for name, column in columns.items()}
    return plan_numbers(
        {dimension.column: given[dimension.column] for dimension in DIMENSIONS}, micro_batch=given["micro_batch"],
        sequence_parallel=given["sequence_parallel"], zero_stage=given["zero_stage"], shard_group=given["shard_group"],
        schedule=given["schedule"], recompute_layers=as_number(recomputed), recompute_attention=as_number(selective),
        rank_order=order,
    )  # fmt: skip


def _factor(rules: tuple[str, ...], names: tuple[str, ...], rows: Sequence[tuple[tuple[float, ...], ...]]) -> Factor:
    """A factor from the rows of each split."""
    made = np.array([row for of_split in rows for row in of_split], dtype=float).reshape(-1, len(names))
    columns = dict(zip(names, np.ascontiguousarray(made.T), strict=True))
    return Factor(rules, columns, np.array([len(of_split) for of_split in rows], dtype=np.int64))


def _rejected(factors: Sequence[Factor], first: Sequence[NDArray[np.int64]], kinds: int) -> dict[str, int]:
    """How many combinations broke which rule first: those that break none before it, less those that break none up to it."""
    splits, places = len(factors[0].counts), len(RULES) + 1
    whole = np.full((splits, places), kinds)
    for factor, broken in zip(factors, first, strict=True):
        split = np.repeat(np.arange(splits), factor.counts)
        counts = np.bincount(split * places + broken, minlength=splits * places).reshape(splits, places)
        whole = whole * counts[:, ::-1].cumsum(axis=1)[:, ::-1]
    lost = (whole[:, :-1] - whole[:, 1:]).sum(axis=0)
    return {rule: int(count) for rule, count in zip(RULES, lost, strict=True) if count}


def _combined(
    split: dict[str, Column], factors: Sequence[Factor], legal: Sequence[NDArray[np.bool_]], kinds: int
) -> dict[str, Column]:
    """Columns of every combination of legal rows, split after split, the last factor and the recomputation fastest."""
    splits = len(factors[0].counts)
    kept = [
        np.bincount(np.repeat(np.arange(splits), factor.counts)[rows], minlength=splits)
        for factor, rows in zip(factors, legal, strict=True)
    ]  # fmt: skip
    totals = kinds * np.prod(kept, axis=0)
    where = np.repeat(np.arange(splits), totals)
    left = np.arange(len(where)) - np.repeat(np.cumsum(totals) - totals, totals)
    left, kind = np.divmod(left, kinds)
    columns = {"recompute": kind.astype(float)} | {name: column[where] for name, column in split.items()}
    for factor, rows, counts in zip(reversed(factors), reversed(legal), reversed(kept), strict=True):
        left, place = np.divmod(left, counts[where])
        source = (np.cumsum(counts) - counts)[where] + place
        columns |= {name: column[rows][source] for name, column in factor.columns.items()}
    return columns

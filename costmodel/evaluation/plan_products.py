"""The legal plans of a search as products: outer rows times the inner rows of the same split of the GPUs.

An outer row says how the pipeline runs and how states are sharded, an inner row micro-batch, sequence parallelism and
recomputation. Time and memory of a product cost little more than those of its two tables (`costmodel.compilation.programs`).
Products are written out a block at a time, so that a search needs the memory of a block however many plans it looks at.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.arithmetic.named_tuples import as_column, as_number
from costmodel.compilation.fields import INNER, LANES
from costmodel.description import recomputation
from costmodel.evaluation.search_space import NEUTRAL, RULES, SPLIT, ChoiceRows, Column, LeftOut, Space, Tables, columns_of
from costmodel.formulas.quantities import PlanNumbers, RecomputedParts, Settings
from costmodel.text.errors import InvalidValue

BLOCK = 1 << 18
"""Plans of a block, legal or not."""
Whole = NDArray[np.int64]


class SplitRows(NamedTuple):
    """Rows of each split side by side."""

    columns: dict[str, Column]  # by the names that `columns_of` knows
    counts: Whole  # rows of each split

    @property
    def starts(self) -> Whole:
        """The first row of each split."""
        return np.cumsum(self.counts) - self.counts

    def only(self, kept: NDArray[np.bool_], of_split: Whole) -> SplitRows:
        """Some of the rows."""
        counts = np.bincount(of_split[kept], minlength=len(self.counts)).astype(np.int64)
        return SplitRows({name: column[kept] for name, column in self.columns.items()}, counts)


class Product(NamedTuple):
    """Some of the legal plans.

    Parameters
    ----------
    outer : columns of the outer rows, by the names that `columns_of` knows
    inner : tables of the inner rows, groups x rows of a group, of which there are a multiple of `LANES`, or what NumPy
        broadcasts to that; ``recompute`` holds places in `Space.recompute`
    group : of each outer row
    legal : outer rows x inner rows of the group
    outer_plans, inner_plans : the same as the formulas take them, with what stands for the other's fields
    """

    outer: dict[str, Column]
    inner: dict[str, Column]
    group: Whole
    legal: NDArray[np.bool_]
    outer_plans: PlanNumbers
    inner_plans: PlanNumbers

    @property
    def number(self) -> int:
        """Legal plans."""
        return int(np.count_nonzero(self.legal))

    def columns(self, flat: Whole) -> dict[str, Column]:
        """Columns of the plans at places in `legal`, flattened."""
        row, beside = self._places(flat)
        return {name: column[row] for name, column in self.outer.items()} | {
            name: beside(table) for name, table in self.inner.items() if name not in self.outer
        }

    def plans(self, flat: Whole) -> PlanNumbers:
        """The plans at places in `legal`, flattened, as the formulas take them."""
        row, beside = self._places(flat)
        return PlanNumbers(*(
            as_number(beside(as_column(given)) if name in INNER else as_column(kept)[row])
            for name, kept, given in zip(PlanNumbers._fields, self.outer_plans, self.inner_plans, strict=True)
        ))  # fmt: skip

    def _places(self, flat: Whole) -> tuple[Whole, Callable[[Column], Column]]:
        """Outer rows of places in `legal`, flattened, and what an inner table has beside them."""
        row, place = np.divmod(flat, self.legal.shape[1])
        group = self.group[row]

        def beside(table: Column) -> Column:
            groups, width = table.shape
            found: Column = np.broadcast_to(table[group if groups > 1 else 0, place if width > 1 else 0], flat.shape)
            return found

        return row, beside


@dataclasses.dataclass(frozen=True)
class LegalPlans:
    """The legal plans of a space with the same settings, counted but not yet written out."""

    space: Space  # that is searched
    order: Sequence[str]  # of ranks
    split: dict[str, Column]  # degrees whose product is the GPUs
    experts: SplitRows  # experts, pipelines, shards: legal rows of each split
    pipelines: SplitRows
    shards: SplitRows
    passes: NDArray[np.bool_]  # of each row of `pipelines`, which of `micro_batches` with `sequence_parallel` are legal
    micro_batches: Column  # that are tried
    sequence_parallel: Column  # the same by split
    kinds: NDArray[np.bool_]  # which kinds of recomputation are tried
    considered: int  # combinations in all
    rejected: dict[str, int]  # how many broke which rule first

    def __len__(self) -> int:
        if not len(self.experts.counts):
            return 0
        splits = np.repeat(np.arange(len(self.experts.counts)), self.pipelines.counts)
        passes = np.bincount(splits, self.passes.sum(axis=1), minlength=len(self.experts.counts))
        return int((self.experts.counts * self.shards.counts * passes).sum()) * int(np.count_nonzero(self.kinds))

    @property
    def tables(self) -> Tables:
        """The rows that make the plans."""
        splits = np.arange(len(self.experts.counts))
        return Tables(
            self.split, self.experts.columns, self.pipelines.columns, np.repeat(splits, self.experts.counts),
            np.repeat(splits, self.pipelines.counts),
        )  # fmt: skip

    def without(self, out: LeftOut) -> LegalPlans:
        """The same but for some rows, whose plans count as repeated."""
        tables = self.tables
        experts = ~(out.experts | out.splits[tables.of_experts])
        pipelines = ~out.pipelines
        left = dataclasses.replace(
            self, experts=self.experts.only(experts, tables.of_experts),
            pipelines=self.pipelines.only(pipelines, tables.of_pipelines), passes=self.passes[pipelines],
            kinds=self.kinds & ~out.kinds,
        )  # fmt: skip
        return dataclasses.replace(left, rejected={**self.rejected, "repeated": len(self) - len(left)})

    def products(self, most: int = BLOCK) -> Iterator[Product]:
        """The plans, a block at a time.

        Parameters
        ----------
        most : plans of a block, legal or not
        """
        if not len(self):
            return
        kinds = len(self.space.recompute)
        width = -(-self.passes.shape[1] * kinds // LANES) * LANES
        each = self.pipelines.counts * self.shards.counts  # outer rows of a group
        of_group = np.repeat(np.arange(len(each)), self.experts.counts)
        ends = np.cumsum(each[of_group])
        step = max(most // width, 1)
        for start in range(0, int(ends[-1]), step):
            yield self._block(start, min(start + step, int(ends[-1])), of_group, ends, width)

    def _block(self, start: int, stop: int, of_group: Whole, ends: Whole, width: int) -> Product:
        """The outer rows from `start` to `stop` with their inner rows."""
        first, last = np.searchsorted(ends, [start, stop - 1], side="right")
        groups = np.arange(first, last + 1)
        splits = of_group[groups]
        begins = np.concatenate([[0], ends])[groups]
        counts = np.minimum(ends[groups], stop) - np.maximum(begins, start)
        group = np.repeat(groups - first, counts)
        place = np.arange(start, stop) - begins[group]
        of_row = splits[group]
        pipeline, shard = np.divmod(place, self.shards.counts[of_row])
        pipeline += self.pipelines.starts[of_row]
        shard += self.shards.starts[of_row]
        expert = groups - np.searchsorted(of_group, splits) + self.experts.starts[splits]
        shared = {name: column[splits] for name, column in self.split.items()}
        shared |= {name: column[expert] for name, column in self.experts.columns.items()}
        outer = {name: column[group] for name, column in shared.items()}
        outer |= {name: column[pipeline] for name, column in self.pipelines.columns.items()}
        outer |= {name: column[shard] for name, column in self.shards.columns.items()}
        inner, recomputed = self._inner(shared, splits, width)
        legal = np.zeros((len(group), width), dtype=bool)
        kinds = len(self.space.recompute)
        tried = np.tile(self.kinds, self.passes.shape[1])
        legal[:, : len(tried)] = np.repeat(self.passes[pipeline], kinds, axis=1) & tried
        return Product(
            outer, inner, group, legal,
            columns_of({**NEUTRAL, **outer}, recomputation.numbers("none"), self.order, self.space.question.model.layers),
            columns_of({**NEUTRAL, **inner}, recomputed, self.order, self.space.question.model.layers),
        )  # fmt: skip

    def _inner(self, shared: dict[str, Column], splits: Whole, width: int) -> tuple[dict[str, Column], RecomputedParts]:
        """Inner rows of groups that have so much in common, and what of layers is recomputed."""
        kinds = self.space.recompute
        numbers = np.array([recomputation.numbers(kind) for kind in kinds])
        tried, kind = np.divmod(np.minimum(np.arange(width), len(self.micro_batches) * len(kinds) - 1), len(kinds))
        inner = {name: column[:, None] for name, column in shared.items()}
        inner["micro_batch"] = self.micro_batches[None, tried]
        inner["sequence_parallel"] = self.sequence_parallel[splits[:, None], tried]
        inner["recompute"] = kind[None].astype(float)
        return inner, RecomputedParts(*(as_number(column[None, kind]) for column in numbers.T))


def legal_plans(space: Space, settings: Settings, order: Sequence[str], most: int) -> LegalPlans:
    """The legal plans of a space.

    Parameters
    ----------
    space : that is searched
    settings : of all its plans
    order : of ranks
    most : combinations, beyond which it is refused

    Raises
    ------
    InvalidValue
        where there are more combinations than `most`
    """
    found = list(space.splits())
    split = dict(zip(SPLIT, np.array(found, dtype=float).reshape(-1, 4).T, strict=True))
    kinds = len(space.recompute)
    if not found:
        none = SplitRows({}, np.zeros(0, dtype=np.int64))
        return LegalPlans(
            space, order, split, none, none, none, np.zeros((0, 1), dtype=bool), np.ones(1), np.ones((0, 1)),
            np.ones(kinds, dtype=bool), 0, {},
        )  # fmt: skip
    made = space.factors(found)
    factors = made[:3]
    considered = _considered(factors, len(found), kinds)
    if considered > most:
        raise InvalidValue("search", f"more than {most} combinations", "fewer values along some dimension")
    first = [space.first_broken(factor, split, settings, order) for factor in factors]
    experts, pipelines, shards = ((factor, broken == len(RULES)) for factor, broken in zip(factors, first, strict=True))
    many = len(made.micro_batches)
    passes = pipelines[1].reshape(-1, many)
    some = passes.any(axis=1)
    pairs = {name: pipelines[0].columns[name][::many] for name in ("virtual_stages", "schedule")}
    return LegalPlans(
        space, order, split, _kept(*experts), _kept(ChoiceRows((), pairs, pipelines[0].counts // many), some), _kept(*shards),
        passes[some], made.micro_batches, made.sequence_parallel, np.ones(kinds, dtype=bool), considered,
        _rejected(factors, first, kinds),
    )  # fmt: skip


def _considered(factors: Sequence[ChoiceRows], splits: int, kinds: int) -> int:
    counts = np.full(splits, kinds)
    for factor in factors:
        of_split = np.repeat(np.arange(splits), factor.counts)
        weights = None if factor.offered is None else factor.offered
        counts = counts * np.bincount(of_split, weights, minlength=splits).astype(np.int64)
    return int(counts.sum())


def _kept(factor: ChoiceRows, legal: NDArray[np.bool_]) -> SplitRows:
    """The legal rows of a factor."""
    of_split = np.repeat(np.arange(len(factor.counts)), factor.counts)
    return SplitRows(factor.columns, factor.counts).only(legal, of_split)


def _rejected(factors: Sequence[ChoiceRows], first: Sequence[Whole], kinds: int) -> dict[str, int]:
    """How many combinations broke which rule first: those that break none before it, less those that break none up to it."""
    splits, places = len(factors[0].counts), len(RULES) + 1
    whole = np.full((splits, places), kinds)
    for factor, broken in zip(factors, first, strict=True):
        split = np.repeat(np.arange(splits), factor.counts)
        split, broken = split[broken >= 0], broken[broken >= 0]
        counts = np.bincount(split * places + broken, minlength=splits * places).reshape(splits, places)
        whole = whole * counts[:, ::-1].cumsum(axis=1)[:, ::-1]
    lost = (whole[:, :-1] - whole[:, 1:]).sum(axis=0)
    return {rule: int(count) for rule, count in zip(RULES, lost, strict=True) if count}

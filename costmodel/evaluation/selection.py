"""What a search keeps of the plans that pass by, block after block: the fastest, the closest miss, those that none beats."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.arithmetic.named_tuples import as_number
from costmodel.description.dimensions import DIMENSIONS
from costmodel.evaluation.plan_products import Product, Whole
from costmodel.evaluation.search_space import Column
from costmodel.evaluation.simplicity import spans_nodes

FAR = 1.3
"""Times the fastest step beyond which no error of a comparison lets a plan be tied with it."""
NEAR = 1.5
"""Times the memory there is that a plan may need to be named as a miss: beyond that no small change makes it fit."""


class EvaluatedRow(NamedTuple):
    """One evaluated plan."""

    time: float  # of a step [s]
    held: float  # by its fullest GPU [bytes]
    choice: int  # place of what it has in common with all plans of its batches
    values: dict[str, float]  # of its columns


class Selection:
    """The fastest plans that fit, and the closest miss, of all blocks that were taken in; it holds no more than these.

    Of plans that are equally fast the one that came first goes first. Plans as fast as the last one kept, for which there was
    no place, are counted.

    Parameters
    ----------
    top : how many to keep
    limit : of memory, up to which a plan is judged to fit [bytes]
    gpus_per_node : of the cluster, which says of which kind a plan is
    frontier : whether to keep the plans that no other beats in both time and memory
    """

    def __init__(self, top: int, limit: float, gpus_per_node: int, frontier: bool = False) -> None:
        self.top, self.limit, self.gpus_per_node = top, limit, gpus_per_node
        self._of_kind: dict[int, EvaluatedRow] = {}
        self.fitting = self.evaluated = self.ruled_out = 0
        self.best: list[EvaluatedRow] = []
        self.undecided = 0
        self._near: EvaluatedRow | None = None
        self._leanest: EvaluatedRow | None = None
        self.frontier: list[EvaluatedRow] | None = [] if frontier else None

    @property
    def boundary(self) -> float:
        """Memory beyond which a plan is neither among those that fit nor a near miss [bytes]."""
        return NEAR * self.limit

    def take(self, choice: int, product: Product, times: Column, held: Column, ruled_out: int = 0, turned: bool = False) -> None:
        """Look at a block.

        Parameters
        ----------
        ruled_out : legal plans of it besides, which hold more than `boundary`
        turned : its ranks stand in another order than the framework's own
        choice : place of what its plans have in common
        product : the plans
        times, held : of each [s, bytes], infinite where no plan is legal
        """
        times, held = times.ravel(), held.ravel()
        legal = product.legal.ravel()
        fits = held <= self.limit
        inside = np.flatnonzero(fits)
        self.evaluated += product.number + ruled_out
        self.ruled_out += ruled_out
        self.fitting += len(inside)

        def found(places: Whole) -> list[EvaluatedRow]:
            columns = product.columns(places)
            values = [dict(zip(columns, map(float, row), strict=True)) for row in zip(*columns.values(), strict=True)]
            return [
                EvaluatedRow(float(times[place]), float(held[place]), choice, value)
                for place, value in zip(places.tolist(), values, strict=True)
            ]

        self._take_best(found, times, inside)
        self._take_kinds(found, product, np.where(fits, times, np.inf).reshape(product.legal.shape), turned)
        outside = np.flatnonzero(legal & ~fits)
        if len(outside):
            near = outside[held[outside] <= NEAR * self.limit]
            for field, places, measure in (("_near", near, times), ("_leanest", outside, held)):
                if len(places):
                    (one,) = found(places[[np.argmin(measure[places])]])
                    kept = getattr(self, field)
                    place = 0 if measure is times else 1
                    if kept is None or one[place] < kept[place]:
                        setattr(self, field, one)
        if self.frontier is not None and len(inside):
            self.frontier += found(inside[pareto_front(times[inside], held[inside])])
            left = pareto_front(np.array([one.time for one in self.frontier]), np.array([one.held for one in self.frontier]))
            self.frontier = [self.frontier[place] for place in left.tolist()]

    def _take_best(self, found: Callable[[Whole], list[EvaluatedRow]], times: Column, inside: Whole) -> None:
        worst = self.best[-1].time if len(self.best) == self.top else np.inf
        rows = inside[times[inside] <= worst]
        if not len(rows):
            return
        chosen = times[rows]
        if len(rows) > self.top:
            bound = np.partition(chosen, self.top - 1)[self.top - 1]
            rows = rows[chosen <= bound]
            rows = rows[np.argsort(times[rows], kind="stable")]
            cut, rows = rows[self.top :], rows[: self.top]
        else:
            cut, rows = rows[:0], rows[np.argsort(chosen, kind="stable")]
        merged = sorted([*self.best, *found(rows)], key=lambda one: one.time)
        self.best, over = merged[: self.top], merged[self.top :]
        last = self.best[-1].time
        before = self.undecided if last == worst else 0
        self.undecided = before + sum(one.time == last for one in over) + int((times[cut] == last).sum())

    def _take_kinds(self, found: Callable[[Whole], list[EvaluatedRow]], product: Product, times: Column, turned: bool) -> None:
        """Keep the fastest plan with each number of dimensions, tensor ranks inside a node and across nodes apart.

        As `costmodel.evaluation.simplicity` counts them.
        """
        if not self.best:
            return
        column = times.argmin(axis=1)
        fastest = times[np.arange(len(times)), column]
        rows = np.flatnonzero(fastest <= FAR * self.best[0].time)
        outer = {name: column[rows] for name, column in product.outer.items()}
        grouped = outer["shard_group"] < outer["data"] * outer["context"]
        split = sum((outer[dimension.column] > 1).astype(int) for dimension in DIMENSIONS) + grouped + turned
        stride = np.asarray(product.outer_plans.tensor_stride)[rows]
        kinds = 2 * np.asarray(split) + np.asarray(spans_nodes(as_number(stride), as_number(outer["tensor"]), self.gpus_per_node))
        faster: dict[int, int] = {}
        for kind in sorted(set(kinds.tolist())):  # `unique` loads masked arrays, which takes as long as a small search
            alike = rows[kinds == kind]
            row = int(alike[np.argmin(fastest[alike])])
            kept = self._of_kind.get(kind)
            if kept is None or fastest[row] < kept.time:
                faster[kind] = row
        if faster:
            chosen = np.array(list(faster.values()))
            self._of_kind |= zip(faster, found(chosen * times.shape[1] + column[chosen]), strict=True)

    @property
    def kinds(self) -> list[EvaluatedRow]:
        """The fastest plan of each kind that may be tied with the fastest of all."""
        return [one for one in self._of_kind.values() if one.time <= FAR * self.best[0].time]

    @property
    def miss(self) -> EvaluatedRow | None:
        """The fastest plan that needs up to half more than there is, where it is faster than all that fit; where none fits,
        the leanest."""
        if not self.best:
            return self._leanest
        return self._near if self._near is not None and self._near.time < self.best[0].time else None


def pareto_front(*columns: NDArray[np.float64]) -> Whole:
    """Places of the rows that no other row is at most equal to in every column and below in one; equal rows all stay.

    Parameters
    ----------
    columns : what should be small, one entry a row

    Examples
    --------
    >>> import numpy as np
    >>> pareto_front(np.array([1.0, 2.0, 3.0, 1.0]), np.array([5.0, 6.0, 4.0, 5.0])).tolist()
    [0, 3, 2]
    """
    order = np.lexsort(columns[::-1])
    table = np.stack([column[order] for column in columns], axis=1)
    if len(columns) == 2:
        lowest = np.minimum.accumulate(table[:, 1])
        before = np.concatenate([[np.inf], lowest[:-1]])
        same = np.concatenate([[False], (table[1:] == table[:-1]).all(axis=1)])
        stays = table[:, 1] < before
        first = np.maximum.accumulate(np.where(~same, np.arange(len(order)), 0))
        chosen: Whole = order[stays[first] if len(order) else stays]
        return chosen
    kept: list[int] = []
    for row in range(len(order)):  # in this order no later row beats an earlier one
        beside = table[kept]
        if not ((beside <= table[row]).all(axis=1) & (beside < table[row]).any(axis=1)).any():
            kept.append(row)
    return order[kept]  # type: ignore[no-any-return]

"""What a search found: ranked plans, what was rejected, and on demand every plan that was evaluated."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from costmodel.arithmetic.named_tuples import Row
from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.description.judgement import CHOSEN
from costmodel.description.labels import alternatives, label, rejections
from costmodel.description.plan import Plan
from costmodel.description.question import Question
from costmodel.description.transformer import Transformer
from costmodel.evaluation.departures import departures
from costmodel.evaluation.estimation import Estimate, lack, not_by_default, while_loading
from costmodel.evaluation.ranking import Ranking, standings
from costmodel.formulas.quantities import Settings
from costmodel.text.attributes import names_what_is_there
from costmodel.text.checks import whole
from costmodel.text.errors import IllegalPlan
from costmodel.text.results import AnswerTable, figure
from costmodel.text.tables import headed, table
from costmodel.text.units import counted, format_bytes, format_seconds

if TYPE_CHECKING:
    from costmodel.studies.partitioning import StageSplit


COLUMNS = ("#", "plan", "step", "90 %", "tokens/s/GPU", "MFU", "memory", "P(fastest)")
"""Of the ranked plans."""


def leaner_than_all_before(memory: np.ndarray) -> np.ndarray:
    """Whether each plan needs less memory than every one before it.

    Parameters
    ----------
    memory : of plans, the fastest first, in any unit

    Examples
    --------
    >>> leaner_than_all_before(np.array([5.0, 6.0, 4.0])).tolist()
    [True, False, True]
    """
    return memory < np.concatenate(([np.inf], np.minimum.accumulate(memory)))[:-1]


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """Every legal plan that a search evaluated, as columns."""

    step_time: np.ndarray  # of each [s]
    peak_memory: np.ndarray  # of its fullest GPU [bytes]
    fits: np.ndarray  # whether it is judged to fit
    columns: dict[str, np.ndarray]  # fields of `Plan` that the search varied by row; ``recompute`` and ``schedule`` hold words
    rows: np.ndarray  # of its batch, and the place in `chosen` of the choices that it was tried with
    chosen: list[Row]  # choices for whole batches of plans
    settings: list[Settings]  # settings, numbers: of each batch, as the formulas take them; `numbers` fields of the plan x rows
    numbers: list[np.ndarray]
    rebuild: Callable[[int, int], Plan] = dataclasses.field(repr=False)  # the plan of a row of a batch

    def __len__(self) -> int:
        return len(self.step_time)

    @functools.cached_property
    def by_time(self) -> np.ndarray:
        """Places of all plans, the fastest first, and of those that are equally fast the leanest."""
        return np.lexsort((self.peak_memory, self.step_time))

    @functools.cached_property
    def frontier(self) -> np.ndarray:
        """Places of the plans that none beats in time and memory, the fastest first."""
        return self.by_time[leaner_than_all_before(self.peak_memory[self.by_time])]

    def plan(self, place: int) -> Plan:
        """The plan at a place, from 0."""
        row, batch = self.rows[:, place]
        return self.rebuild(int(row), int(batch))


NOT_PLAYED = "not played out, for the work that it would take; `simulate` plays it by itself"
"""Of a plan beyond the budget of a check."""


class Replayed(NamedTuple):
    """A ranked plan played out by the simulator."""

    seconds: float | None  # of the step; None where it isn't played
    left: str  # why it isn't, or by how much it leaves the estimate's interval; empty where it lies inside


@names_what_is_there
@dataclasses.dataclass(frozen=True)
class SearchResult(AnswerTable[Estimate]):
    """What a search found.

    Parameters
    ----------
    considered : combinations enumerated
    evaluated : legal plans evaluated
    rejected : how many combinations broke which rule first
    ranked : the fastest plans that fit, fastest first; but before them the simplest of those that can't be told from the
        fastest within the error, by the rule of `costmodel.evaluation.simplicity`
    closest_miss : the fastest plan that needs up to half more memory than there is, where it is faster than all that fit;
        where none fits, the leanest
    every : all evaluated plans as columns, where they were asked for (``keep_evaluated=True``)
    replays : of the first ranked plans, where they were asked for (``check=True``)
    asked : the question as `search` takes it, model, cluster and framework aside
    undecided : further rows of plans that fit and are exactly as fast as the slowest ranked one, for which `top` left no place
    twins : for each ranked plan those that differ from it in something that changes neither time nor memory by a thousandth
        (`costmodel.evaluation.twins`); they have no row of their own
    find_leaders : makes `leaders`; None where the ranked plans are
    frontier : plans that fit and that no other beats in both time and memory, equals among them, fastest first, where they
        were asked for (``keep_frontier=True``)
    """

    model: Transformer
    cluster: Cluster
    framework: Framework
    considered: int
    evaluated: int
    fitting: int
    rejected: dict[str, int] = dataclasses.field(hash=False)
    ranked: list[Estimate] = dataclasses.field(hash=False)
    closest_miss: Estimate | None
    every: Evaluated | None = dataclasses.field(default=None, repr=False, compare=False)
    replays: tuple[Replayed, ...] = ()
    asked: Row = dataclasses.field(default_factory=dict, repr=False, compare=False)
    undecided: int = 0
    frontier: tuple[Estimate, ...] | None = dataclasses.field(default=None, repr=False, compare=False)
    twins: tuple[tuple[Plan, ...], ...] = ()
    find_leaders: Callable[[], Sequence[Estimate]] | None = dataclasses.field(default=None, repr=False, compare=False)

    plot = figure
    first_column = "rank"

    @property
    def answers(self) -> list[Estimate]:
        """The ranked plans."""
        return self.ranked

    def __repr__(self) -> str:
        head = (
            f"SearchResult: {self.model.name} on {counted(self.cluster.gpus or 1, 'GPU')} of {self.cluster.name}, "
            f"{self.framework.name}{not_by_default(self.departures)}: "
            f"{self.evaluated:,} legal plans of {self.considered:,}, {self.fitting:,} fit"
        )
        if not self.ranked:
            return headed(head, self.why_none())
        rows = [
            f"{place}. {label(one.plan)}: {format_seconds(one.step_time)}, {format_bytes(one.memory.total)}"
            for place, one in enumerate(self.ranked[:3], 1)
        ]
        rest = [f"and {len(self.ranked) - 3} more"] if len(self.ranked) > 3 else []
        return headed(head, *rows, *rest)

    def _repr_html_(self) -> str:
        machine = f"{counted(self.cluster.gpus or 1, 'GPU')} of {self.cluster.name}"
        head = f"{self.model.name} on {machine}, {self.framework.name}{not_by_default(self.departures)}"
        if not self.ranked:
            return table(head, ["no plan fits"], [[self.why_none()]])
        note = f"{self.evaluated:,} legal plans of {self.considered:,}, {self.fitting:,} fit"
        return table(head, COLUMNS, ranked_rows(self), note)

    @property
    def best(self) -> Estimate:
        """The plan to choose of those that fit; IllegalPlan where none does."""
        if not self.ranked:
            raise IllegalPlan("none", self.why_none())
        return self.ranked[0]

    def why_none(self) -> str:
        """One line about why nothing fits."""
        where = f"{counted(self.cluster.gpus or 1, 'GPU')} of {self.cluster.name}"
        if self.evaluated == 0:
            why = "; rejected were " + rejections(self.rejected) if any(self.rejected.values()) else (
                ": the degrees asked for don't multiply to the GPUs"
            )  # fmt: skip
            return f"no plan is legal for {self.model.name} on {where}{why}"
        assert self.closest_miss is not None
        if self.closest_miss.host_memory_margin < 0.0:
            return (
                f"no plan of {self.evaluated} fits {self.model.name} on {self.cluster.gpus} x {self.cluster.name}: with offload "
                f"the leanest is {lack(self.closest_miss)}"
            )
        return (
            f"none of {counted(self.evaluated, 'legal plan')} of {self.model.name} fits on {where}: the leanest needs "
            f"{self.excess_bytes / 2**30:.1f} GiB more than a GPU's limit{while_loading(self.closest_miss)}"
        )

    @property
    def excess_bytes(self) -> float:
        """Bytes by which `closest_miss` doesn't fit; 0 where there is none."""
        return -self.closest_miss.memory_margin if self.closest_miss else 0.0

    def ties(self) -> list[Estimate]:
        """Ranked plans that can't be told from the first, itself included."""
        return [plan for plan, standing in zip(self.ranked, self.standings.plans, strict=True) if standing.tied]

    @functools.cached_property
    def standings(self) -> Ranking:
        """How sure the ranking is: for each ranked plan the probability that it is the fastest of `leaders`, and its regret."""
        return standings(self.ranked, self.leaders)

    @functools.cached_property
    def leaders(self) -> tuple[Estimate, ...]:
        """The distinct plans among which the truly fastest is looked for, the same whatever `top` is."""
        return tuple(self.ranked if self.find_leaders is None else self.find_leaders())

    @functools.cached_property
    def departures(self) -> tuple[str, ...]:
        """What all plans have otherwise than unasked, such as ``"dtype fp8"``: choices, and changed numbers of descriptions."""
        known = self.ranked or [one for one in (self.closest_miss,) if one is not None]
        plans, required = [one.plan for one in known], known[0].required_probability if known else CHOSEN
        return departures(self.question, plans, required)

    @property
    def question(self) -> Question:
        """What was asked, but for the plans."""
        return Question(self.model, self.cluster, self.framework)

    @property
    def alternatives(self) -> list[str]:
        """For each ranked plan, in words, what its twins have otherwise, such as ``"either rank order"``; empty without twins."""
        rows = zip(self.ranked, self.twins or [()] * len(self.ranked), strict=True)
        return [alternatives(plan.plan, twins) for plan, twins in rows]

    def uneven_split(self, place: int = 0) -> StageSplit | None:
        """The split of layers over stages that makes a ranked plan's slowest stage fastest; None without a pipeline.

        Ranked plans have equal shares of the layers, but for what the ends lack; embedding, head and dense layers weigh
        unlike a layer, so that unequal shares can be faster: by `StageSplit.gain` where no bubble counts.

        Parameters
        ----------
        place : in the ranking, from 0

        Raises
        ------
        InvalidValue
            where there is no such place
        """
        from costmodel.studies.partitioning import balanced_stages

        whole("place", place, max(len(self.ranked) - 1, 0))
        plan = self.ranked[place] if self.ranked else self.best
        if plan.plan.pipeline_parallel == 1:
            return None
        return balanced_stages(plan.model, plan.cluster, plan.plan, plan.framework)

    @property
    def corrected_step_time(self) -> float:
        """Step time to expect of the best plan [s]: its estimate, less flattered for having been chosen by it."""
        return self.best.step_time * math.exp(self.standings.optimism)

    def to_rows(self) -> list[Row]:
        """One dictionary a ranked plan, with units in the names."""
        return [
            {
                "rank": i + 1, "tied": standing.tied, "probability_fastest": standing.probability_fastest,
                "expected_regret": standing.expected_regret, "step_time_low_s": plan.time_interval[0],
                "step_time_high_s": plan.time_interval[1], "memory_low_bytes": plan.memory_interval[0],
                "memory_high_bytes": plan.memory_interval[1], "alternatives": said,
                **({"replayed_s": self.replays[i].seconds} if i < len(self.replays) else {}), **plan.to_dict(),
            }
            for i, (plan, standing, said) in enumerate(zip(self.ranked, self.standings.plans, self.alternatives, strict=True))
        ]  # fmt: skip

    def to_json(self, path: str | Path | None = None) -> str:
        """Counts and ranked plans as JSON; written to `path` if given."""
        document = {
            "considered": self.considered, "evaluated": self.evaluated, "fitting": self.fitting,
            "rejected": self.rejected, "departures": list(self.departures), "plans": self.to_rows(),
            "closest_miss": self.closest_miss.to_dict() if self.closest_miss else None,
        }  # fmt: skip
        text = json.dumps(document, allow_nan=False)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text


def ranked_rows(made: SearchResult) -> list[tuple[str, ...]]:
    """A row of texts for each ranked plan, in the order of `COLUMNS`."""
    rows: list[tuple[str, ...]] = []
    for place, (one, standing) in enumerate(zip(made.ranked, made.standings.plans, strict=True), 1):
        low, high = one.time_interval
        rows.append((
            str(place), label(one.plan), format_seconds(one.step_time), f"{format_seconds(low)} to {format_seconds(high)}",
            f"{one.tokens_per_second / one.plan.gpus:,.0f}", f"{100 * one.mfu:.1f} %",
            f"{format_bytes(one.memory.total)} of {format_bytes(one.memory_limit)}",
            f"{100 * standing.probability_fastest:.0f} %",
        ))  # fmt: skip
    return rows

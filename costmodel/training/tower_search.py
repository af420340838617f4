"""Which plan for each part of a model that reads images: plans of the language model, and beside each the towers' own."""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from costmodel.arithmetic.named_tuples import Row
from costmodel.arithmetic.whole_numbers import divisors
from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.description.judgement import CHOSEN
from costmodel.description.plan import Plan
from costmodel.description.transformer import Transformer
from costmodel.evaluation.estimation import Estimate, estimate
from costmodel.evaluation.plan_search import search_by_name
from costmodel.evaluation.search_result import Evaluated, SearchResult
from costmodel.text.checks import flag, positive_int
from costmodel.text.errors import InvalidValue
from costmodel.text.results import brief
from costmodel.training.towers import (
    FROZEN,
    Multimodal,
    PartOfStep,
    Tower,
    as_trained,
    checked_towers,
    joined,
    priced_tower,
    tower_work,
    with_images,
)

OF_TOWERS = ("tensor_parallel", "zero_stage", "recompute")
"""What a search turns of a tower's split; GPUs that it doesn't take hold other towers."""
MOST_PRICED = 400
"""Plans of the language model beside which towers are priced in one order: a few seconds."""
ALIKE = 1e-3
"""Within which two steps are the same in time and memory."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultimodalSearch:
    """What a search over the plans of all parts found.

    Parameters
    ----------
    ranked : steps that fit, fastest first; one for each plan of the language model, with the towers' best beside it
    closest_miss : where none fits, the leanest that was priced; None where the language model alone fits nowhere
    language : the search over the language model's plans by themselves
    priced : of these, how many were priced with towers
    complete : whether no other plan can be faster than the best: all others take longer by themselves, with the least that
        towers add
    """

    ranked: tuple[Multimodal, ...]
    closest_miss: Multimodal | None
    language: SearchResult
    priced: int
    complete: bool

    __repr__ = brief

    @property
    def best(self) -> Multimodal:
        """The fastest step that fits.

        Raises
        ------
        InvalidValue
            where none does
        """
        if not self.ranked:
            raise InvalidValue("plans", self.priced, f"one that fits; {self.why_none}")
        return self.ranked[0]

    @property
    def why_none(self) -> str:
        """Why nothing fits, where nothing does."""
        miss = self.closest_miss
        if miss is None:
            return f"the language model alone: {self.language.why_none()}"
        limit = miss.language.estimate.memory_limit
        return f"the leanest needs {miss.memory / 2**30:.1f} of {limit / 2**30:.1f} GiB on the fullest GPU"

    def to_dict(self) -> Row:
        """Flat names with units, and a list of the steps, for JSON."""
        return {
            "ranked": [one.to_dict() for one in self.ranked], "language_plans": self.language.evaluated,
            "language_plans_priced": self.priced, "complete": self.complete,
            "closest_miss": self.closest_miss.to_dict() if self.closest_miss else None,
        }  # fmt: skip


def search_multimodal(
    language: Transformer,
    cluster: Cluster,
    towers: Sequence[Tower],
    *,
    global_batch: int,
    seq_len: int,
    framework: Framework | str = "megatron-core",
    language_trains: bool = True,
    fit_probability: float = CHOSEN,
    top: int = 10,
    of_towers: Mapping[str, object] | None = None,
    **dimensions: object,
) -> MultimodalSearch:
    """Search the plans of a language model that reads images together with those of its towers.

    Plans of the language model are those of `search`; beside each, those of a tower that `search` finds on the same GPUs, with
    none that is slower and needs more memory than another. The language model's are gone through from the fastest, until what is
    left takes longer by itself, with the towers' least at a GPU's peak, than the best found.

    Parameters
    ----------
    language : the language model
    cluster : GPUs of both
    towers : before it; how they are split is searched
    global_batch, seq_len, framework, fit_probability : as in `search`
    language_trains : whether the language model's weights do
    top : steps to rank
    of_towers : what to try of ``tensor_parallel``, ``zero_stage`` and ``recompute`` of every tower; all that is legal if None
    dimensions : of the language model's plans, as in `search`

    Returns
    -------
    MultimodalSearch

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected
    IllegalPlan
        for what no plan can have

    Examples
    --------
    An encoder of images beside a language model of 8 billion parameters on eight GPUs.

    >>> from costmodel import load_cluster, load_model
    >>> images = Transformer(name="siglip", layers=27, hidden=1152, heads=16, feed_forward=4304, vocabulary=1, gated=False,
    ...     norm="layernorm", patch_values=588, causal=False, attention_bias=True, output_bias=True, feed_forward_bias=True)
    >>> found = search_multimodal(
    ...     load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8), [Tower(model=images, tokens=4096, merged=16.0)],
    ...     global_batch=16, seq_len=4096, recompute=["none", "full"],
    ... )
    >>> found.best.fits, found.complete
    (True, True)
    """
    positive_int("top", top, 1000)
    flag("language_trains", language_trains)
    given = checked_towers(towers)
    template = as_trained(Plan(global_batch=global_batch, seq_len=seq_len), language_trains)
    language = with_images(language, template, given)
    tried = dict(of_towers or {})
    for name in tried:
        if name not in OF_TOWERS:
            raise InvalidValue("of_towers", name, "one of " + ", ".join(OF_TOWERS))
    if not language_trains:
        as_trained(Plan(global_batch=global_batch, seq_len=seq_len, adapter=_only(dimensions.get("adapter"))), False)
        dimensions = {**dimensions, **FROZEN}
    found = search_by_name(
        language, cluster, global_batch=global_batch, seq_len=seq_len, framework=framework, fit_probability=fit_probability,
        top=1, keep_evaluated=True, **dimensions,
    )  # fmt: skip
    assert found.every is not None
    pricing = _Pricing(given, cluster, found.framework, tried, language_trains, fit_probability, found.every, language)
    ranked, complete = pricing.by_time(top)
    return MultimodalSearch(
        ranked=tuple(ranked), closest_miss=None if ranked else pricing.leanest, language=found, priced=len(pricing.seen),
        complete=complete,
    )  # fmt: skip


def _only(adapter: object) -> str:
    """The adapter that is asked for beside a frozen model, which is refused unless it is none."""
    if adapter is None or isinstance(adapter, str):
        return adapter or "none"
    return next((str(one) for one in adapter if one != "none"), "none") if isinstance(adapter, Sequence) else str(adapter)


class _Pricing:
    """Plans of a language model priced with towers beside them, each split of a tower once."""

    def __init__(
        self, towers: Sequence[Tower], cluster: Cluster, framework: Framework, tried: Row, language_trains: bool,
        fit_probability: float, every: Evaluated, language: Transformer,
    ) -> None:  # fmt: skip
        self.towers, self.cluster, self.framework, self.tried = towers, cluster, framework, tried
        self.language_trains, self.fit_probability, self.every, self.language = language_trains, fit_probability, every, language
        self.seen: set[int] = set()
        self.leanest: Multimodal | None = None
        self._splits: dict[tuple[object, ...], list[Tower]] = {}
        self._parts: dict[tuple[object, ...], PartOfStep] = {}

    def by_time(self, top: int) -> tuple[list[Multimodal], bool]:
        """The fastest steps that fit, and whether no other plan can be faster than the first."""
        places = [int(place) for place in self.every.by_time[self.every.fits[self.every.by_time]]]
        fitting, bounded = self._priced(places[:MOST_PRICED], top)
        if not fitting:  # memory is short: those that leave most room are looked at, too
            lean = sorted(places, key=lambda place: float(self.every.peak_memory[place]))
            fitting, _ = self._priced([place for place in lean[:MOST_PRICED] if place not in self.seen], top)
        kept: list[Multimodal] = []
        for one in sorted(fitting, key=lambda step: step.step_time):
            if not any(_alike(one, other) for other in kept):
                kept.append(one)
        return kept[:top], bounded or len(self.seen) == len(places)

    def _priced(self, places: Sequence[int], top: int) -> tuple[list[Multimodal], bool]:
        """Steps that fit, and whether all that are left are too slow."""
        fitting: list[Multimodal] = []
        fastest: list[float] = []  # negative: a heap of the slowest first
        for place in places:
            least = float(self.every.step_time[place]) + self._floor(self.every.plan(place))
            if len(fastest) == 2 * top and least > -fastest[0]:
                return fitting, True
            self.seen.add(place)
            for step in self._beside(place):
                fitting.append(step)
                heapq.heappush(fastest, -step.step_time)
                if len(fastest) > 2 * top:
                    heapq.heappop(fastest)
        return fitting, False

    def _floor(self, plan: Plan) -> float:
        """The least that towers add to a step, at the peak of all GPUs [s]."""
        work = 0.0
        for tower in self.towers:
            passes = 3.0 if tower.trains else 1.0
            work += tower.model.flop_per_token(tower.tokens, causal=True) * passes / 3.0 * tower.images * tower.tokens
        return plan.global_batch * work / (plan.gpus * self.cluster.device.peak(str(plan.dtype)))

    def _beside(self, place: int) -> Iterator[Multimodal]:
        """The fastest step that fits of a plan of the language model, if one does; the leanest of all is noted."""
        alone = estimate(
            self.language, self.cluster, self.every.plan(place), framework=self.framework, fit_probability=self.fit_probability
        )
        choices = [[self._part(one, alone) for one in self._split(tower, alone)] for tower in self.towers]
        steps = [joined(alone, parts, self.language_trains) for parts in itertools.product(*choices)]
        fitting = [step for step in steps if step.fits]
        if fitting:
            yield min(fitting, key=lambda step: step.step_time)
        self.leanest = min(steps if self.leanest is None else [*steps, self.leanest], key=lambda step: step.memory, default=None)

    def _split(self, tower: Tower, alone: Estimate) -> list[Tower]:
        """The ways to split a tower beside a plan of the language model of which none is slower and larger than another."""
        replica = alone.plan.gpus // int(alone.plan.data_parallel or 1)
        found: list[Tower] = []
        most = math.gcd(replica, tower.model.heads)
        for degree in divisors(most, most):
            split = dataclasses.replace(tower, tensor_parallel=degree)
            found += self._of_degree(split, alone)
        return found

    def _of_degree(self, tower: Tower, alone: Estimate) -> list[Tower]:
        work = tower_work(tower, alone.plan).plan
        wanted = self.tried.get("tensor_parallel")
        if wanted is not None and tower.tensor_parallel not in (wanted if isinstance(wanted, Sequence) else [wanted]):
            return []
        known = (id(tower.model), tower.trains, work.global_batch, work.micro_batch, work.tensor_parallel, work.dtype)
        if known not in self._splits:
            fixed: Row = {name: [getattr(work, name)] for name in ("micro_batch", "data_parallel", "tensor_parallel", "dtype")}
            fixed |= {"pipeline_parallel": [1], "context_parallel": [1]}
            if work.sequence_parallel is not None:
                fixed["sequence_parallel"] = [work.sequence_parallel]
            if not tower.trains:
                fixed |= {**FROZEN, "recompute": ["none"]}
            result = search_by_name(
                tower.model, self.cluster, global_batch=work.global_batch, seq_len=work.seq_len, framework=self.framework, top=1,
                fit_probability=self.fit_probability, keep_frontier=True, **{**self.tried, **fixed},
            )  # fmt: skip
            self._splits[known] = [
                dataclasses.replace(tower, zero_stage=one.plan.zero_stage, recompute=str(one.plan.recompute))
                for one in result.frontier or ()
            ]
        return self._splits[known]

    def _part(self, tower: Tower, alone: Estimate) -> PartOfStep:
        work = tower_work(tower, alone.plan)
        known = (id(tower.model), tower.trains, work, tower.zero_stage, tower.recompute)
        if known not in self._parts:
            self._parts[known] = priced_tower(tower, alone)
        return self._parts[known]


def _alike(one: Multimodal, other: Multimodal) -> bool:
    """Whether two steps are the same in time and memory."""
    return math.isclose(one.step_time, other.step_time, rel_tol=ALIKE) and math.isclose(one.memory, other.memory, rel_tol=ALIKE)

"""Two or more answers side by side: which is faster, which is cheaper, how sure that is, and which part of the step says why."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from costmodel.arithmetic.named_tuples import Row
from costmodel.catalogue.asking import HARDWARE, ModelLike, given, is_bare_device
from costmodel.catalogue.clusters import ClusterLike, cluster_of
from costmodel.catalogue.keywords import by_other_names
from costmodel.description.cluster import Cluster
from costmodel.description.fields import full_names
from costmodel.description.fields import table as fields_of
from costmodel.description.labels import label
from costmodel.description.plan import Plan
from costmodel.description.usual_work import BATCH, adapts, usual_batch, usual_gpus
from costmodel.evaluation.difference_errors import difference_error, probability_below
from costmodel.evaluation.estimation import Estimate
from costmodel.evaluation.part_differences import PartDifference, differences
from costmodel.evaluation.price import BILLION, HOUR
from costmodel.evaluation.search_result import SearchResult
from costmodel.simulation.checking import search
from costmodel.text.attributes import names_what_is_there
from costmodel.text.checks import mapping
from costmodel.text.errors import InvalidValue
from costmodel.text.results import AnswerTable, brief, figure
from costmodel.text.tables import headed, table
from costmodel.text.units import format_bytes, format_seconds
from costmodel.training.choices import called, crossed
from costmodel.training.cost import Tariff, prices_of
from costmodel.training.duration import TrainingRun, time_to_train

SEARCHED = ("device", "framework", "network", "gpus", "nodes", "fit_probability", "top", "engine", "check", "space")
"""Arguments of a search that no plan has, in the order in which they call choices."""
WORTH = 0.01
"""Share of a step from which a part that differs is named by itself."""


class Against(NamedTuple):
    """A choice against the first."""

    ratio: float  # of the time for as many tokens, the choice's over the first's
    ratio_low: float  # ratio_low, ratio_high: its 90 % interval; what both estimates have wrong in common cancels
    ratio_high: float
    faster: float  # probability that the choice is faster than the first
    cost_ratio: float | None  # of the money for as many tokens; None without prices
    cheaper: float | None  # probability that the choice is cheaper; None without prices


@names_what_is_there
@dataclasses.dataclass(frozen=True, kw_only=True)
class ComparedAnswer:
    """One of the answers that are compared."""

    name: str  # what it is called
    estimate: Estimate  # of its plan
    price: float | None  # of a GPU for an hour; None where none was told
    run: TrainingRun | None  # the whole run; None where no tokens were told
    against: Against  # the first choice; of the first itself all ratios are one

    __repr__ = brief

    @property
    def price_per_billion_tokens(self) -> float | None:
        """Money of a billion tokens; None where no price was told."""
        return None if self.price is None else _rate(self.estimate, self.price) * BILLION

    def to_dict(self) -> Row:
        """Flat names with units, for JSON and frames."""
        low, high = self.estimate.time_interval
        row: Row = {"choice": self.name, "time_ratio": self.against.ratio, "time_ratio_low": self.against.ratio_low}
        row |= {"time_ratio_high": self.against.ratio_high, "probability_faster": self.against.faster}
        row |= {"cost_ratio": self.against.cost_ratio, "probability_cheaper": self.against.cheaper}
        row |= {"price_per_billion_tokens": self.price_per_billion_tokens}
        row |= {"step_time_low_s": low, "step_time_high_s": high, **self.estimate.to_dict()}
        return row | (self.run.to_dict() if self.run else {})


@names_what_is_there
@dataclasses.dataclass(frozen=True)
class SideBySide(AnswerTable[ComparedAnswer]):
    """Answers side by side, each against the first.

    Parameters
    ----------
    choices : in the order in which they were given
    """

    choices: tuple[ComparedAnswer, ...]

    plot = figure
    first_column = "choice"

    def __repr__(self) -> str:
        return headed(f"SideBySide: {self.said()}", *(f"{one.name}: {_brief(one)}" for one in self.choices))

    def _repr_html_(self) -> str:
        rows = [(one.name, label(one.estimate.plan), *_cells(one)) for one in self.choices]
        return table(self.said(), ("", "plan", "step", "tokens/s", "memory", "time", "P(faster)"), rows)

    @property
    def answers(self) -> tuple[ComparedAnswer, ...]:
        """The choices."""
        return self.choices

    @property
    def first(self) -> ComparedAnswer:
        """That against which the others stand."""
        return self.choices[0]

    @property
    def fastest(self) -> ComparedAnswer:
        """That which takes the least time for as many tokens, of those that fit where any does."""
        return min(self._fitting(), key=lambda one: one.against.ratio)

    @property
    def cheapest(self) -> ComparedAnswer | None:
        """That which costs least for as many tokens, of those that fit where any does; None without prices."""
        priced = [one for one in self._fitting() if one.price is not None]
        return min(priced, key=lambda one: _rate(one.estimate, one.price or 0.0), default=None)

    def _fitting(self) -> list[ComparedAnswer]:
        return [one for one in self.choices if one.estimate.fits] or list(self.choices)

    def why(self, choice: ComparedAnswer, least: float = WORTH) -> tuple[PartDifference, ...]:
        """Parts of the step by which a choice differs from the first, for as many tokens, the largest first.

        Parameters
        ----------
        choice : one of them
        least : share of the first's step from which a part is named by itself

        Returns
        -------
        tuple
            of `PartDifference`, which add up to the difference of the steps [s]
        """
        first = self.first.estimate
        scale = _tokens(first) / _tokens(choice.estimate)
        return differences(first, choice.estimate, least * first.step_time, scale)

    def said(self) -> str:
        """The answer in a sentence or two."""
        fastest, cheapest = self.fastest, self.cheapest
        sentences = [self._faster(fastest)]
        if cheapest is not None and len([one for one in self.choices if one.price is not None]) > 1:
            sentences.append(self._cheaper(cheapest))
        misfits = [one.name for one in self.choices if not one.estimate.fits]
        if misfits:
            sentences.append(f"{', '.join(misfits)} {'does' if len(misfits) == 1 else 'do'} not fit")
        return ". ".join(sentences)

    def _faster(self, best: ComparedAnswer) -> str:
        other = self.first if best is not self.first else self._second(best)
        if other is None:
            return f"{best.name} alone was asked about"
        between = against(other.estimate, best.estimate)
        times, low, high = 1.0 / between.ratio, 1.0 / between.ratio_high, 1.0 / between.ratio_low
        ratio = f"{times:.3g} times " if f"{times:.3g}" != "1" else ""
        return (
            f"{best.name} is {ratio}as fast as {other.name} (90 %: {low:.2g} to {high:.2g}): "
            f"faster with probability {_share(between.faster)}"
        )

    def _second(self, best: ComparedAnswer) -> ComparedAnswer | None:
        others = [one for one in self._fitting() if one is not best] or [one for one in self.choices if one is not best]
        return min(others, key=lambda one: one.against.ratio, default=None)

    def _cheaper(self, best: ComparedAnswer) -> str:
        others = [one for one in self.choices if one is not best and one.price is not None]
        other = self.first if self.first in others else others[0]
        between = against(other.estimate, best.estimate, other.price, best.price)
        assert between.cost_ratio is not None and between.cheaper is not None
        if between.cost_ratio == 1.0:
            return f"A token costs as much on {best.name} as on {other.name}"
        return (
            f"A token costs {100.0 * (1.0 - between.cost_ratio):.0f} % less on {best.name} than on {other.name}: "
            f"cheaper with probability {_share(between.cheaper)}"
        )


def against(first: Estimate, choice: Estimate, first_price: float | None = None, price: float | None = None) -> Against:
    """A choice against another, for as many tokens.

    Parameters
    ----------
    first, choice : estimates
    first_price, price : of a GPU of each for an hour
    """
    ratio = first.tokens_per_second / choice.tokens_per_second
    error = difference_error(first, choice)
    low, high = error.interval(ratio)
    dear = None
    if first_price and price is not None:
        dear = _rate(choice, price) / _rate(first, first_price)
    return Against(
        ratio, low, high, probability_below(error, math.log(ratio)), dear,
        None if dear is None else 1.0 if dear == 0.0 else probability_below(error, math.log(dear)),
    )  # fmt: skip


@by_other_names(model="answers", models="answers", cluster="clusters")
def compare(
    answers: Mapping[str, Estimate | SearchResult] | ModelLike | Sequence[ModelLike],
    clusters: ClusterLike | Sequence[ClusterLike] | None = None, *,
    tokens: float | str | None = None, price: Mapping[str, float] | float | None = None, **asked: Any,
) -> SideBySide:  # fmt: skip
    """Two or more answers side by side: time, memory, money, and how sure their differences are.

    Parameters
    ----------
    answers : estimates, or searches whose best plans stand for them, by the names that they shall have; or a model, or its name,
        or several, whose best plans are compared
    clusters : of a model, one or several, or their names, as ``["8xh100", "8xb200"]``; of a device without a
        number so many are taken as `costmodel.description.usual_work.usual_gpus` says
    tokens : of the whole run, as 1e12 or ``"1T"``, for days and money; none if None
    price : of a GPU for an hour in any currency, one for all or by the answers' names
    asked : of the searches for a model, as `costmodel.search` takes it; of an argument with several values, as
        ``framework=["fsdp2", "megatron-core"]``, each is a choice

    Returns
    -------
    SideBySide
        each answer against the first

    Raises
    ------
    InvalidValue
        for fewer than two answers, for one that is none, or for a price of none of them
    IllegalPlan
        for a search of which no plan fits

    What two estimates have wrong in common cancels in their ratio (`costmodel.evaluation.difference_errors`), so that who is
    faster is surer than how fast either is. Answers that train unlike numbers of tokens a step are compared for as many tokens.

    Examples
    --------
    >>> from costmodel import load_model, machine, search
    >>> model, asked = load_model("llama3-8b"), {"global_batch": 64, "seq_len": 4096, "top": 1}
    >>> made = compare({name: search(model, machine(name, 8), **asked) for name in ("h100", "b200")},
    ...                price={"h100": 2.5, "b200": 5.0})
    >>> made.fastest.name, made.choices[1].against.faster > 0.9
    ('b200', True)
    >>> compare("llama3-8b", ["h100", "b200"], **asked).fastest.name
    'b200'
    >>> [one.name for one in compare("llama3-8b", "8xh100", recompute=["none", "full"], **asked).choices]
    ['recompute none', 'recompute full']
    """
    if not isinstance(answers, Mapping):
        answers = _best_plans(answers, clusters, asked)
    elif asked or clusters is not None:
        raise InvalidValue("clusters", clusters or [*asked], "nothing beside answers, which say it")
    chosen: dict[str, Estimate] = {}
    for name, answer in mapping("answers", answers).items():
        found = answer.best if isinstance(answer, SearchResult) else answer
        if not isinstance(found, Estimate):
            raise InvalidValue("answers", type(answer).__name__, "answers of estimate(...) or search(...) by their names")
        chosen[str(name)] = found
    if len(chosen) < 2:
        raise InvalidValue("answers", list(chosen), "two answers at least")
    prices = prices_of(price, list(chosen))
    first_name, first = next(iter(chosen.items()))
    choices = []
    for name, one in chosen.items():
        tariff = Tariff(gpu_hour=prices.get(name))
        run = None if tokens is None else time_to_train(one, tokens=tokens, tariff=tariff)
        choices.append(ComparedAnswer(
            name=name, estimate=one, price=prices.get(name), run=run,
            against=against(first, one, prices.get(first_name), prices.get(name)),
        ))  # fmt: skip
    return SideBySide(tuple(choices))


def _best_plans(models: object, clusters: object, asked: Mapping[str, Any]) -> dict[str, Estimate]:
    """The best plan of each combination of values, the nearest to fit where none does."""
    rest = given(asked)
    if "plans" in rest:
        wish = "answers by their names in place of a model: compare({'a': estimate(...), 'b': estimate(...)})"
        raise InvalidValue("plans", rest["plans"], wish)
    beside = {name: rest.pop(name) for name in SEARCHED if name in rest}
    said = {"model": models, "cluster": clusters, **beside, **full_names(Plan, rest, SEARCHED)}
    varied = [[(_called(field, one), {field: one}) for one in _values(field, values)] for field, values in said.items()]
    rows = crossed([those for those in varied if those])
    if len(rows) < 2:
        wish = "answers of estimate(...) or search(...) by their names, or a model with several values of an argument, such as "
        raise InvalidValue("answers", models, f"{wish}clusters=['8xh100', '8xb200'] or framework=['fsdp2', 'megatron-core']")
    gpus = usual_gpus(said.get("adapter"))
    on = {name: _cluster(row, gpus) for name, row in rows.items()}
    most = max(cluster.gpus or 1 for cluster in on.values())
    usual = usual_batch(most, said) if adapts(said.get("adapter")) else BATCH
    found = {}
    for name, row in rows.items():
        answer = search(row.pop("model"), on[name], **{"global_batch": usual, "top": 1, **row})
        found[name] = answer.closest_miss if not answer.ranked and answer.closest_miss is not None else answer.best
    return found


def _values(field: str, said: object) -> tuple[object, ...]:
    """Values of an argument, which are choices: one that lists words is one of them."""
    row = fields_of(Plan).get(field)
    one = not isinstance(said, list | tuple) or (row is not None and row.kind.several and all(isinstance(a, str) for a in said))
    return (said,) if one and said is not None else tuple(said or ())  # type: ignore[arg-type]


def _called(field: str, value: object) -> str:
    return called(field, value if isinstance(value, str | int | float) else getattr(value, "name", value))


def _cluster(row: Row, gpus: int) -> Cluster:
    """What a choice is asked about, which is taken from it; of a device without a number so many GPUs."""
    cluster, said = row.pop("cluster", None), {name: row.pop(name) for name in HARDWARE if name in row}
    return cluster_of(cluster, **(said | {"gpus": gpus} if is_bare_device(cluster, said) else said))


def _rate(one: Estimate, price: float) -> float:
    """Money of a token."""
    return price * one.plan.gpus / HOUR / one.tokens_per_second


def _tokens(one: Estimate) -> float:
    return float(one.plan.tokens)


def _share(probability: float) -> str:
    return f"{100.0 * min(max(probability, 0.001), 0.999):.3g} %"


def _cells(one: ComparedAnswer) -> tuple[str, ...]:
    given = one.estimate
    return (
        format_seconds(given.step_time), f"{given.tokens_per_second:,.0f}", format_bytes(given.memory.total),
        f"{one.against.ratio:.3g} x", _share(one.against.faster),
    )  # fmt: skip


def _brief(one: ComparedAnswer) -> str:
    step, rate, memory, *_ = _cells(one)
    return f"{label(one.estimate.plan)}: {step}, {rate} tokens/s, {memory}"

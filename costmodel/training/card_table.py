"""Which card trains a model: devices by rows, what fits on them, how long a sequence, how fast, for how much, and with what."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from costmodel.arithmetic.named_tuples import Row
from costmodel.catalogue.asking import ModelLike, model_of
from costmodel.catalogue.calibrations import device_of_calibration, load_calibration
from costmodel.catalogue.keywords import by_other_names
from costmodel.catalogue.loader import load_device, names
from costmodel.catalogue.machines import machine
from costmodel.catalogue.software import framework_on
from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.description.judgement import CHOSEN
from costmodel.description.plan import Plan
from costmodel.description.run import Run
from costmodel.description.transformer import Transformer
from costmodel.description.usual_work import ADAPTED_BATCH, ADAPTED_LENGTH, no_longer
from costmodel.evaluation.capacity import LONGEST, TOKENS
from costmodel.evaluation.estimation import Estimate
from costmodel.evaluation.many_questions import estimates_of
from costmodel.evaluation.plan_search import search
from costmodel.evaluation.simplicity import TIE
from costmodel.formulas.network import nccl
from costmodel.text.attributes import names_what_is_there
from costmodel.text.checks import listing, positive_int
from costmodel.text.errors import CostModelError, InvalidValue, NotModelled
from costmodel.text.results import AnswerTable, figure
from costmodel.text.tables import headed, table
from costmodel.text.units import counted, format_bytes, format_seconds
from costmodel.training.cost import Tariff, prices_of
from costmodel.training.duration import TrainingRun, time_to_train, token_count
from costmodel.training.side_by_side import against

ADAPTERS = ("none", "lora", "qlora")
"""What is trained, unless it is said: all weights, an adapter, an adapter beside weights of 4 bits."""
ALONE, TOGETHER = ("hf-trainer", "torchtune"), ("hf-fsdp", "torchtune")
"""Frameworks that are tried unless they are said: on one card, on several."""
MICRO_BATCHES = (1, 2, 4, 8, 16)
LARGEST = 1024
"""Sequences of a micro-batch that are tried at most."""
LEAST_BYTES = {"none": 2.0, "lora": 2.0, "qlora": 0.5, "gptq-lora": 0.5, "int8-lora": 1.0}
"""Of a parameter's weights alone, on however many cards they are shared."""
TITLES = {"none": "full"}
"""Adapters by the words that people use."""


Search: TypeAlias = "Generator[int, float, int]"
"""Yields counts, is sent what each leaves, and ends with the largest that leaves anything."""


class Card(NamedTuple):
    """One kind of card with one adapter."""

    device: str  # its name
    memory: float  # of one [bytes]
    adapter: str  # what is trained
    estimate: Estimate | None  # of the fastest plan that fits; None where none does
    why: str  # none does, in words; else empty
    # tokens of the longest sequence that fits with micro-batch 1 and full recomputation; None where it isn't asked
    longest: int | None
    micro_batch: int | None  # the largest that fits at the asked length, recomputation full; None where it isn't asked
    run: TrainingRun | None  # the whole run; None where no tokens were told
    price: float | None  # of a card for an hour; None where none was told

    @property
    def trains(self) -> str:
        """The adapter in the words that people use: full, lora, qlora."""
        return TITLES.get(self.adapter, self.adapter)

    def to_dict(self) -> Row:
        """Flat names with units, for JSON and frames."""
        row: Row = {
            "device": self.device, "device_memory_bytes": self.memory, "adapter": self.trains,
            "fits": self.estimate is not None, "why": self.why, "longest_sequence": self.longest,
            "largest_micro_batch": self.micro_batch, "price_per_gpu_hour": self.price,
        }  # fmt: skip
        figures = {} if self.estimate is None else self.estimate.to_dict()
        row |= {name: value for name, value in figures.items() if name not in row and name not in ("cluster",)}
        return row | (self.run.to_dict() if self.run else {})


@names_what_is_there
@dataclasses.dataclass(frozen=True)
class CardTable(AnswerTable[Card]):
    """Cards by rows: those that fit first.

    Parameters
    ----------
    model : what is trained
    gpus : cards that train together
    rows : a card with an adapter each
    left_out : on which cards which of the frameworks were not tried, and why
    """

    model: Transformer
    gpus: int
    rows: tuple[Card, ...]
    left_out: tuple[str, ...] = ()

    plot = figure
    first_column = "device"

    def __repr__(self) -> str:
        shown = [f"{one.device}, {one.trains}: {_brief(one)}" for one in self.fitting[:5]]
        return headed(f"CardTable: {self.said()}", *shown)

    def _repr_html_(self) -> str:
        rows = [(one.device, one.trains, *_cells(one)) for one in self.fitting]
        return table(self.said(), ("card", "trains", "step", "tokens/s", "longest", "framework"), rows)

    @property
    def answers(self) -> tuple[Card, ...]:
        """The rows."""
        return self.rows

    @property
    def fitting(self) -> tuple[Card, ...]:
        """Rows on which a plan fits."""
        return tuple(one for one in self.rows if one.estimate is not None)

    def of(self, adapter: str) -> tuple[Card, ...]:
        """The rows of an adapter on which a plan fits."""
        return tuple(one for one in self.fitting if one.adapter == adapter)

    def ties(self, adapter: str) -> tuple[Card, ...]:
        """The rows of an adapter that can't be told from the fastest within the error, itself among them.

        Parameters
        ----------
        adapter : one that was asked about
        """
        fitting = self.of(adapter)
        if not fitting:
            return ()
        first = max(fitting, key=_rate)
        return tuple(one for one in fitting if one is first or against(_step(first), _step(one)).faster >= TIE)

    def to_rows(self) -> list[Row]:
        """One dictionary a row, with units in the names, and the ends of the 90 % intervals."""
        tied = {id(one) for adapter in dict.fromkeys(one.adapter for one in self.rows) for one in self.ties(adapter)}
        return [one.to_dict() | _intervals(one) | {"tied": id(one) in tied} for one in self.rows]

    def said(self) -> str:
        """The answer in a sentence for each adapter: the smallest card that fits, the fastest, and with prices the cheapest."""
        return ". ".join(self._said(adapter) for adapter in dict.fromkeys(one.adapter for one in self.rows))

    def _said(self, adapter: str) -> str:
        title, fitting = TITLES.get(adapter, adapter), self.of(adapter)
        many = "" if self.gpus == 1 else f"{self.gpus} x "
        if not fitting:
            asked = [one for one in self.rows if one.adapter == adapter]
            if len(asked) == 1:
                return f"{title} of {self.model.name} does not fit on {many}{asked[0].device}: {asked[0].why}"
            return f"{title} of {self.model.name} fits on none of {counted(len(asked), 'card')}"
        if len([one for one in self.rows if one.adapter == adapter]) == 1:
            return f"{title} of {self.model.name} fits on {many}{fitting[0].device}"
        smallest = min(fitting, key=lambda one: (one.memory, -_rate(one)))
        fastest = max(fitting, key=_rate)
        line = f"{title} of {self.model.name} fits from {many}{smallest.device} ({smallest.memory / 2**30:.0f} GiB); fastest on "
        line += f"{many}{fastest.device}"
        priced = [one for one in fitting if one.price is not None]
        if priced:
            line += f"; cheapest on {many}{min(priced, key=_cost).device}"
        return line


@by_other_names(device="devices")
def cards(
    model: ModelLike, devices: Iterable[str] | str | None = None, *, adapter: Sequence[str] | str = ADAPTERS, gpus: int = 1,
    global_batch: int = ADAPTED_BATCH, seq_len: int | None = None, framework: Sequence[str] | str | None = None,
    tokens: float | str | None = None, price: Mapping[str, float] | float | None = None,
    calibration: str | os.PathLike[str] | None = None,
) -> CardTable:  # fmt: skip
    """Which cards train a model: what fits on each, how long a sequence, how fast, for how much, with which framework.

    Parameters
    ----------
    model : what is trained
    devices : names of cards, or one, all GPUs of the catalogue if None
    adapter : what is trained of it, one or several of none (all weights), lora, qlora, gptq-lora, int8-lora
    gpus : cards that train together, in a machine as they come in
    global_batch : sequences of a step
    seq_len : [tokens]; if None as usual of a fine-tune, and no longer than the model's positions
    framework : to try, one or several; of each card the fastest is shown. Those of fine-tuning if None
    tokens : of the whole run, for days and money; none if None
    price : of a card for an hour in any currency, one for all or by device
    calibration : file of own runs on one of the cards (`costmodel.save_calibration`), which count on that card

    Returns
    -------
    CardTable
        cards that fit, by adapter: the cheapest for as many tokens first where every card has a price, else the fastest

    Raises
    ------
    InvalidValue, UnknownName
        for a value that is not what it should be

    Examples
    --------
    >>> from costmodel import load_model
    >>> made = cards(load_model("qwen2.5-32b"), ["rtx-4090", "h100-sxm"], adapter=["qlora"])
    >>> [(one.device, one.estimate is not None) for one in made.rows]
    [('h100-sxm', True), ('rtx-4090', False)]
    """
    model = model_of(model)
    positive_int("gpus", gpus, 1024)
    named = [devices] if isinstance(devices, str) else devices
    asked = gpu_names() if named is None else [load_device(one).name for one in listing("devices", named)]
    adapters = [adapter] if isinstance(adapter, str) else list(listing("adapter", adapter))
    length = no_longer(model, ADAPTED_LENGTH) if seq_len is None else seq_len
    for one in adapters:
        Plan(global_batch=global_batch, seq_len=length, adapter=one)  # refused here where it is none
    software = framework if framework is not None else ALONE if gpus == 1 else TOGETHER
    frameworks = [software] if isinstance(software, str) else list(software)
    by_name = {load_device(name).name: one for name, one in price.items()} if isinstance(price, Mapping) else price
    prices = prices_of(by_name, asked)
    measured = None if calibration is None else device_of_calibration(calibration)
    if measured is not None and measured not in asked:
        raise InvalidValue("calibration", str(calibration), f"own runs on one of {', '.join(asked)}, not on {measured}")
    questions = [_asked(model, device, gpus, one) for device in dict.fromkeys(asked) for one in adapters]
    if calibration is not None:
        questions = [_as_measured(one, calibration) if one.device == measured else one for one in questions]
    made = [
        _row(one.device, one.adapter, answer, why, prices)
        for one, (answer, why) in zip(questions, _fastest(model, questions, frameworks, global_batch, length), strict=True)
    ]
    run = None if tokens is None else token_count(tokens)
    rows = [_carried(one, run) for one in _stretched(made)]
    cheap = all(one.price is not None for one in rows)
    rows.sort(key=lambda one: (adapters.index(one.adapter), one.estimate is None, _cost(one) if cheap else -_rate(one)))
    return CardTable(model, gpus, tuple(rows), _left_out(questions, frameworks))


def _left_out(asked: Sequence[_CardQuestion], frameworks: Sequence[str]) -> tuple[str, ...]:
    """Of each framework that doesn't train on all cards, where it does, and where it wasn't tried."""
    found: dict[str, list[str]] = {}
    for device, cluster in ((one.device, one.cluster) for one in asked if one.cluster is not None):
        for software in (framework_on(cluster, name) for name in frameworks):
            if not software.trains_on(cluster.device):
                found.setdefault(f"{software.name} {software.whereabouts}", []).append(device)
    return tuple(f"{where}: not tried on {', '.join(dict.fromkeys(cards))}" for where, cards in found.items())


def gpu_names() -> list[str]:
    """Devices of the catalogue on which the frameworks of fine-tuning run: GPUs of NVIDIA and AMD, by their architecture."""
    return [
        name for name in names("device")
        if (architecture := load_device(name).architecture) in nccl.FAMILIES or architecture.startswith("cdna")
    ]  # fmt: skip


def _step(card: Card) -> Estimate:
    assert card.estimate is not None
    return card.estimate


def _intervals(card: Card) -> Row:
    """The ends of the intervals in which 90 % of such estimates lie; nothing where no plan fits."""
    if card.estimate is None:
        return {}
    (low, high), (least, most) = card.estimate.time_interval, card.estimate.memory_interval
    return {"step_time_low_s": low, "step_time_high_s": high, "memory_low_bytes": least, "memory_high_bytes": most}


def _row(device: str, adapter: str, answer: Estimate | None, why: str, prices: Mapping[str, float]) -> Card:
    return Card(device, float(load_device(device).memory), adapter, answer, why, None, None, None, prices.get(device))


def _carried(card: Card, tokens: float | None) -> Card:
    """A row with its whole run."""
    if card.estimate is None or tokens is None:
        return card
    return card._replace(run=time_to_train(card.estimate, tokens=tokens, tariff=Tariff(gpu_hour=card.price)))


class _CardQuestion(NamedTuple):
    """A card with an adapter before it is answered: on what, and why it can't be where it can't."""

    device: str
    adapter: str
    cluster: Cluster | None
    why: str


def _asked(model: Transformer, device: str, gpus: int, adapter: str) -> _CardQuestion:
    try:
        cluster = machine(device, gpus)
    except NotModelled as error:
        return _CardQuestion(device, adapter, None, str(error))
    weights, room = LEAST_BYTES.get(adapter, 0.0) * model.parameters / gpus, float(cluster.device.usable_memory or 0.0)
    if weights > room:
        lacking = f"its weights alone are {format_bytes(weights)} a card, of {format_bytes(room)}"
        return _CardQuestion(device, adapter, None, lacking)
    return _CardQuestion(device, adapter, cluster, "")


def _as_measured(one: _CardQuestion, calibration: str | os.PathLike[str]) -> _CardQuestion:
    """A card with what own runs say of it."""
    return one if one.cluster is None else one._replace(cluster=load_calibration(calibration, one.cluster))


def _fastest(
    model: Transformer, asked: Sequence[_CardQuestion], frameworks: Sequence[str], global_batch: int, seq_len: int
) -> list[tuple[Estimate | None, str]]:
    """Of each card the fastest plan that fits with any of the frameworks, or why there is none."""
    answers: list[list[Estimate | CostModelError]] = [[] for _ in asked]
    alone: list[tuple[int, Run]] = []
    for place, one in enumerate(asked):
        for name in frameworks if one.cluster is not None else ():
            assert one.cluster is not None
            software = framework_on(one.cluster, name)
            if (one.cluster.gpus or 1) > 1:
                answers[place] += _searched(model, one, software, global_batch, seq_len)
            else:
                plans = _plans(one.adapter, global_batch, seq_len)
                alone += [(place, Run(model=model, cluster=one.cluster, framework=software, plan=plan)) for plan in plans]
    found = estimates_of([run for _, run in alone], with_slopes=False, fit_probability=CHOSEN)
    for (place, _), answer in zip(alone, found, strict=True):
        answers[place].append(answer)
    return [(None, one.why) if one.why else _chosen(made) for one, made in zip(asked, answers, strict=True)]


@functools.lru_cache(maxsize=32)
def _plans(adapter: str, global_batch: int, seq_len: int) -> list[Plan]:
    """What is tried on a card by itself."""
    return [
        Plan(global_batch=global_batch, seq_len=seq_len, micro_batch=size, recompute=recompute, adapter=adapter, data_parallel=1)
        for size in MICRO_BATCHES if global_batch % size == 0 for recompute in ("none", "full")
    ]  # fmt: skip


def _searched(
    model: Transformer, one: _CardQuestion, framework: Framework, global_batch: int, seq_len: int
) -> list[Estimate | CostModelError]:
    """The best plan on several cards, else that which is nearest to fit."""
    assert one.cluster is not None
    try:
        found = search(
            model, one.cluster, global_batch=global_batch, seq_len=seq_len, framework=framework, adapter=[one.adapter], top=1
        )
    except CostModelError as error:
        return [error]
    return [*found.ranked] or [found.closest_miss or NotModelled(found.why_none())]


def _chosen(answers: Sequence[Estimate | CostModelError]) -> tuple[Estimate | None, str]:
    made = [one for one in answers if isinstance(one, Estimate)]
    if fitting := [one for one in made if one.fits]:
        return min(fitting, key=lambda one: one.step_time), ""
    if made:
        return None, f"needs {format_bytes(min(-one.memory_margin for one in made))} more than its limit"
    return None, next((str(one) for one in answers), "no plan is legal")


def _stretched(rows: Sequence[Card]) -> list[Card]:
    """Rows with their longest sequence and their largest micro-batch, looked for side by side."""
    sought: list[tuple[int, str, Callable[[int], Plan], Search]] = []
    for place, row in enumerate(rows):
        best = row.estimate
        if best is None:
            continue
        most = min(LONGEST, best.model.learned_positions or LONGEST)
        unit = min(TOKENS, most)
        leanest = dataclasses.replace(best.plan, micro_batch=1, global_batch=best.plan.copies, recompute="full")
        sought.append((place, "longest", functools.partial(_of_length, leanest, unit), furthest(most // unit)))
        sought.append((place, "micro_batch", functools.partial(_of_micro_batch, leanest), furthest(LARGEST)))
    made = _found(rows, sought)
    found = list(rows)
    for (place, field, plan, _), count in zip(sought, made, strict=True):
        if field == "longest":
            found[place] = found[place]._replace(longest=plan(count).seq_len if count else 0)
        else:
            found[place] = found[place]._replace(micro_batch=count)
    return found


def _of_length(leanest: Plan, unit: int, count: int) -> Plan:
    return dataclasses.replace(leanest, seq_len=unit * count)


def _of_micro_batch(leanest: Plan, count: int) -> Plan:
    return dataclasses.replace(leanest, micro_batch=count, global_batch=count * leanest.copies)


def _found(rows: Sequence[Card], sought: Sequence[tuple[int, str, Callable[[int], Plan], Search]]) -> list[int]:
    """What each of some searches finds; what all of them ask in a round is estimated at once."""
    ends: dict[int, int] = {}
    asking = {number: next(one[3]) for number, one in enumerate(sought)}
    while asking:
        runs = []
        for number, count in asking.items():
            best = rows[sought[number][0]].estimate
            assert best is not None
            plan = sought[number][2](count)
            runs.append(Run(model=best.model, cluster=best.cluster, framework=best.framework, plan=plan))
        answers = dict(zip(asking, estimates_of(runs, with_slopes=False, fit_probability=CHOSEN), strict=True))
        asking = {}
        for number, answer in answers.items():
            try:
                left = answer.memory_margin if isinstance(answer, Estimate) else -float("inf")
                asking[number] = sought[number][3].send(left)
            except StopIteration as end:
                ends[number] = end.value
    return [ends[number] for number in range(len(sought))]


def furthest(most: int) -> Search:
    """Looks for the largest count up to the most that leaves memory: yields counts and is sent what each leaves.

    Memory grows with a count nearly as a line, so that a line through both ends tells the next count, every other time.

    Examples
    --------
    >>> search, tries = furthest(10**6), 0
    >>> count = next(search)
    >>> try:
    ...     while True:
    ...         count, tries = search.send(1000.0 - 7.0 * count), tries + 1
    ... except StopIteration as end:
    ...     end.value, tries < 12
    (142, True)
    """
    left = yield 1
    if left < 0.0:
        return 0
    low, of_low, high, of_high = 1, left, most + 1, -float("inf")
    probe = 2
    while probe <= most:
        left = yield probe
        if left < 0.0:
            high, of_high = probe, left
            break
        low, of_low, probe = probe, left, 8 * probe
    turn = 0
    while high - low > 1:
        middle = (low + high) // 2
        if turn % 2 == 0 and of_high > -float("inf"):
            middle = min(max(low + int(of_low / (of_low - of_high) * (high - low)), low + 1), high - 1)
        left = yield middle
        if left >= 0.0:
            low, of_low = middle, left
        else:
            high, of_high = middle, left
        turn += 1
    return low


def _rate(one: Card) -> float:
    return 0.0 if one.estimate is None else one.estimate.tokens_per_second


def _cost(one: Card) -> float:
    """Money of a token, in any unit."""
    return float("inf") if one.estimate is None or one.price is None else one.price * one.estimate.plan.gpus / _rate(one)


def _cells(one: Card) -> tuple[str, ...]:
    assert one.estimate is not None
    return format_seconds(one.estimate.step_time), f"{_rate(one):,.0f}", f"{one.longest or 0:,}", one.estimate.framework.name


def _brief(one: Card) -> str:
    step, rate, longest, framework = _cells(one)
    return f"{step}, {rate} tokens/s, up to {longest} tokens a sequence, {framework}"

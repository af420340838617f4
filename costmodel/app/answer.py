"""What a state is answered with: the search, the same under moved sliders, and what changed."""

from __future__ import annotations

import dataclasses
import functools
from shlex import join
from typing import NamedTuple

from costmodel.app.state import CONSTRAINTS, LARGEST_FACTOR, SLIDERS, OwnStep, State, read_fields
from costmodel.catalogue.calibrations import device_of_calibration, load_calibration
from costmodel.catalogue.clusters import load_cluster
from costmodel.catalogue.loader import load_model
from costmodel.catalogue.machines import machine
from costmodel.catalogue.software import framework_on
from costmodel.description.cluster import Cluster
from costmodel.description.dimensions import WRITTEN
from costmodel.description.judgement import CHOSEN
from costmodel.description.labels import label, spoken, spoken_of
from costmodel.description.plan import Plan
from costmodel.description.transformer import Transformer
from costmodel.evaluation.engine import is_compiled
from costmodel.evaluation.estimation import Estimate, estimate, fill_slopes
from costmodel.evaluation.factors import IMBALANCE, quantities, scaled
from costmodel.evaluation.offers import Offer, offers
from costmodel.evaluation.own_runs import calibrate
from costmodel.evaluation.plan_search import SearchResult, search_by_name
from costmodel.text.units import format_seconds
from costmodel.training.cost import Tariff
from costmodel.training.duration import TrainingRun, time_to_train

TOP = 8
"""Ranked plans of the table."""
MOST_COMBINATIONS = 3_000_000
"""Of a search that the page starts: five seconds of work without vector code, where a model of experts is spread every way over
thousands of GPUs, and a fifth of a second with it."""


PEAK = "the peak"
"""What ends the efficiency: no product is faster."""


class Answer(NamedTuple):
    """Everything that a page shows."""

    state: State  # that was asked
    before: SearchResult  # the search without sliders
    found: SearchResult  # the search under moved sliders; `before` itself where none is
    moved: bool  # whether a slider is
    chosen: Estimate | None  # the plan that is looked at; None where none fits
    beside: Estimate | None  # the plan that it is compared with, or None
    unmoved: Estimate | None  # `chosen` without sliders, or None where no slider is moved


CALIBRATIONS: list[str] = []
"""Files of own runs that the page was started with: each says something of clusters of its device."""


def described(state: State, cluster: str = "") -> tuple[Transformer, Cluster]:
    """Model and cluster that a state asks about, without its sliders."""
    model = read_fields(state.config) if state.config else load_model(state.model)
    alone, name = state.device and not cluster, cluster or state.cluster
    found = machine(state.device, gpus=state.gpus) if alone else load_cluster(name, gpus=state.gpus)
    for path in _calibrations(found):
        found = load_calibration(path, found)
    steps = [(load_model(one.model), one.plan, one.seconds) for one in own_steps(state, found)]
    return model, calibrate(found, steps, state.framework) if steps else found


def own_steps(state: State, cluster: Cluster) -> list[OwnStep]:
    """The visitor's own measured steps that say something of a question: those of its GPU and its framework."""
    return [one for one in state.own_steps if (one.device, one.framework) == (cluster.device.name, state.framework)]


def uncalibrated(answer: Answer) -> Estimate | None:
    """The chosen plan without what the visitor's own measured steps say; None where they say nothing of it."""
    chosen, state = answer.chosen, answer.state
    if chosen is None or not own_steps(state, chosen.cluster):
        return None
    model, cluster = described(dataclasses.replace(state, runs=""))
    model, cluster = scaled(model, cluster, factors_of(state, model, cluster))
    return estimate(model, cluster, chosen.plan, framework_on(cluster, state.framework))


def _calibrations(cluster: Cluster) -> list[str]:
    """Files of own runs on the device of a cluster."""
    return [path for path in CALIBRATIONS if device_of_calibration(path) == cluster.device.name]


@functools.lru_cache(maxsize=16)
def searched(question: State) -> SearchResult:
    """The search of a question without sliders: a pure function, so that the same question is searched once."""
    return _search(question, *described(question))


def _search(question: State, model: Transformer, cluster: Cluster, top: int = TOP, keep_evaluated: bool = True) -> SearchResult:
    return search_by_name(
        model, cluster, global_batch=question.batch, seq_len=question.seq, framework=question.framework, top=top,
        engine="auto" if is_compiled() else "numpy", keep_evaluated=keep_evaluated, most_combinations=MOST_COMBINATIONS,
        **question.dimensions,
    )  # fmt: skip


def factors_of(state: State, model: Transformer, cluster: Cluster) -> dict[str, float]:
    """Factors as `costmodel.evaluation.factors.scaled` takes them; those of what the question lacks are left out."""
    given, found = dict(state.factors), dict[str, float]()
    for name, level in zip(SLIDERS, cluster.levels, strict=False):
        found[f"{level.name}.bandwidth"] = given.get(name, 1.0)
        found[f"{level.name}.latency"] = given.get("latency", 1.0)
    found["device.memory"] = given.get("memory", 1.0)
    found["device.efficiency"] = given.get("efficiency", 1.0)
    found[IMBALANCE] = given.get("imbalance", 1.0)
    known = quantities(model, cluster)
    for name, (least, most) in ends(model, cluster).items():
        field = {"efficiency": "device.efficiency", "imbalance": IMBALANCE}[name]
        found[field] = min(max(found[field], least), most)
    return {name: factor for name, factor in found.items() if name in known and factor != 1.0}


def ends(model: Transformer, cluster: Cluster) -> dict[str, tuple[float, float]]:
    """The least and the most that sliders of some quantities can be moved to, as factors; others reach `LARGEST_FACTOR`.

    No product is faster than the peak, and the busiest expert rank has at least the mean of the tokens.
    """
    return {
        "efficiency": (1.0 / LARGEST_FACTOR, min(1.0 / min(reached(cluster), 1.0), LARGEST_FACTOR)),
        "imbalance": (min(1.0 / model.expert_imbalance, 1.0), LARGEST_FACTOR),
    }


def at_peak(factor: float, most: float) -> bool:
    """Whether an efficiency is the peak, as far as links write factors.

    Parameters
    ----------
    factor : that it is multiplied by
    most : at which it would be the peak
    """
    return most < LARGEST_FACTOR and factor >= most * (1.0 - 1e-5)


def reached(cluster: Cluster) -> float:
    """Share of the peak that the best of a device's products and its attention reach."""
    constants = cluster.device.efficiency
    return max(*constants.gemm.values(), constants.attention_forward, constants.attention_backward)


def under_sliders(state: State, top: int = TOP, keep_evaluated: bool = True) -> SearchResult:
    """A state's search anew under its sliders; the search itself where none is moved.

    Parameters
    ----------
    state : of the page
    top : how many ranked plans to return
    keep_evaluated : whether a frontier is drawn of it
    """
    before = searched(state.question)
    factors = factors_of(state, before.model, before.cluster)
    if not factors:
        return before
    return _search(state.question, *scaled(before.model, before.cluster, factors), top, keep_evaluated)


def answered(state: State) -> Answer:
    """The answer to a state.

    Raises
    ------
    CostModelError
        where the question can't be searched
    """
    before = searched(state.question)
    found = under_sliders(state)
    fill_slopes([*found.ranked, *found.leaders])  # at once: the interval of every plan, and how sure the ranking is, need them
    chosen = found[min(state.row, len(found) - 1)] if found.ranked else None
    moved = found is not before
    still = unmoved(state.question, chosen.plan) if chosen and moved else None
    return Answer(state, before, found, moved, chosen, _beside(state, found), still)


@functools.lru_cache(maxsize=128)
def unmoved(question: State, plan: Plan) -> Estimate:
    """A plan without sliders: while these move, the same plans come again and again.

    Parameters
    ----------
    question : `State.question` of a state
    plan : one of its search
    """
    before = searched(question)
    return estimate(before.model, before.cluster, plan, before.framework, fit_probability=CHOSEN)


@functools.lru_cache(maxsize=16)
def offered(question: State) -> tuple[Offer, ...]:
    """Changes with which a plan would fit where none does, the cheapest first."""
    return tuple(offers(searched(question)))


def taken(change: str) -> dict[str, str]:
    """What an offer's change is in a link, by name; an empty value leaves the field open.

    Parameters
    ----------
    change : in words, as `Offer.change` has it

    Examples
    --------
    >>> taken("adapter=lora, optimizer_offload=1.0"), taken("seq_len=4096"), taken("tensor_parallel=any")
    ({'adapter': 'lora', 'oo': '1.0'}, {'seq': '4096'}, {'tp': ''})
    """
    short = {field: name for name, field in CONSTRAINTS.items()} | {"seq_len": "seq", "gpus": "gpus"}
    pairs = (part.split("=") for part in change.split(", "))
    return {short[name]: "" if value == "any" else value for name, value in pairs if name in short}


def tried(state: State, plan: Plan) -> str:
    """What a plan has of fields that were to be tried at several values, where its name doesn't say it."""
    said = {row.name for row in spoken_of()} | {row.field for row in WRITTEN}
    several = (field for field, values in state.dimensions.items() if len(values) > 1 and field not in said)
    return "".join(f", {spoken(f'{field}={getattr(plan, field)}')}" for field in several)


def run_of(answer: Answer) -> TrainingRun | None:
    """The whole run of the chosen plan; None where no tokens are asked for, or nothing fits."""
    if not answer.state.tokens or answer.chosen is None:
        return None
    return time_to_train(answer.chosen, tokens=answer.state.tokens, tariff=Tariff(gpu_hour=answer.state.price or None))


def _beside(state: State, found: SearchResult) -> Estimate | None:
    """The plan to compare with: the best of a second cluster, or another row of the table."""
    if state.against:
        there = dataclasses.replace(state, cluster=state.against, device="")
        fitting = under_sliders(there, 1, keep_evaluated=False).ranked if searched(there.question).ranked else []
        return fitting[0] if fitting else None
    return found[state.beside] if 0 <= state.beside < len(found) and state.beside != state.row else None


def difference(answer: Answer) -> str:
    """What the moved sliders changed, in words; empty where none is moved."""
    if not answer.moved:
        return ""
    model, cluster = answer.before.model, answer.before.cluster
    given, limits = dict(answer.state.factors), ends(model, cluster)
    moved = ", ".join(
        _moved(name, slider, min(max(given[slider], least), most), most)
        for slider, name in called(model, cluster).items() if slider in given
        for least, most in [limits.get(slider, (0.0, LARGEST_FACTOR))]
    )  # fmt: skip
    head = moved[0].upper() + moved[1:]
    if answer.chosen is None or answer.unmoved is None:
        return f"{head}: nothing fits any more"
    now, then = answer.chosen.step_time, answer.unmoved.step_time
    text = f"{head}: {label(answer.chosen.plan)} takes {_change(then, now)}"
    if not answer.before.ranked:
        return f"{text}; nothing fitted before"
    best, first = answer.found.best, answer.before.best
    if best.plan == first.plan:
        return f"{text}; the best plan stays the best" if best.plan == answer.chosen.plan else text
    kept = next((one for one in answer.found if one.plan == first.plan), None)
    fate = f", at {format_seconds(kept.step_time)}" if kept else ""
    return f"{text}; the best plan is now {label(best.plan)}, before it was {label(first.plan)}{fate}"


def called(model: Transformer, cluster: Cluster) -> dict[str, str]:
    """The sliders that a question has, and what they are called."""
    found = {slider: f"{level.name} bandwidth" for slider, level in zip(SLIDERS, cluster.levels, strict=False)}
    if any(level.latency for level in cluster.levels):
        found["latency"] = "network latency"
    found |= {"memory": "GPU memory", "efficiency": "efficiency"}
    if model.experts and model.expert_capacity is None:
        found["imbalance"] = "token imbalance"
    return found


def _moved(name: str, slider: str, factor: float, most: float) -> str:
    """A moved slider in words; ``assets/live.js`` has the same ones."""
    near = {0.5: "half the", 2.0: "twice the", 0.25: "a quarter of the", 4.0: "four times the"}
    word = next((text for value, text in near.items() if abs(factor / value - 1.0) < 0.02), f"{factor:.3g} times the")
    at = f" ({PEAK})" if slider == "efficiency" and at_peak(factor, most) else ""
    return f"{word} {name}{at}"


def _change(then: float, now: float) -> str:
    share = 100.0 * (now / then - 1.0)
    if abs(share) < 0.05:
        return f"{format_seconds(now)} as before"
    return f"{format_seconds(now)} instead of {format_seconds(then)} ({share:+.1f} %)".replace("-", "\N{MINUS SIGN}")


def command(state: State) -> str:
    """The command line that asks the same question, without sliders."""
    words = [
        "costmodel", "report", state.model if not state.config else "config.json",
        *(("--device", state.device) if state.device else ("--cluster", state.cluster)),
        *(part for path in _calibrations(described(state)[1])[-1:] for part in ("--calibration", path)),
        "--gpus", str(state.gpus), "--global-batch", str(state.batch), "--seq-len", str(state.seq),
        "--framework", state.framework,
    ]  # fmt: skip
    for field, values in state.dimensions.items():
        words += [f"--{field.replace('_', '-')}", ",".join(map(str, values))]
    return join([*words, "-o", "report.html"])

"""A measured step against its estimate: inside the interval or not, which parts the gap may lie in, what would explain it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from costmodel.arithmetic.named_tuples import Row
from costmodel.catalogue.changes import replace
from costmodel.catalogue.clusters import ClusterLike
from costmodel.catalogue.keywords import by_other_names
from costmodel.description.fields import Flag, table
from costmodel.description.labels import field_name, part_name
from costmodel.description.plan import Plan
from costmodel.evaluation.asked_step import Answer, step_of
from costmodel.evaluation.error_model import part_covariance
from costmodel.evaluation.estimation import TIME_PARTS, Estimate, estimate
from costmodel.evaluation.single_changes import changes_for_speed, estimated
from costmodel.formulas import training_step
from costmodel.formulas.quantities import DeviceNumbers, Number, Software
from costmodel.text.attributes import names_what_is_there
from costmodel.text.checks import positive_int, real
from costmodel.text.errors import CostModelError, InvalidValue
from costmodel.text.tables import headed
from costmodel.text.units import format_seconds

WORTH = 0.002
"""Share of a step that a change has to move to be named."""
SLOWER = 0.5
"""Of what the catalogue says: a network, memory or clock that runs so is tried as an explanation."""


class PartShare(NamedTuple):
    """A part of the step, and what of the gap it takes."""

    part: str  # of the step
    estimated: float  # its time [s]
    error: float  # standard deviation that estimates of it have [s]
    gap: float  # of the gap what its error, beside those of the others, lets it take [s]


class Explanation(NamedTuple):
    """A setting, or a state of the hardware, with which the estimate would be nearer to what was measured."""

    change: str  # in words
    fields: Row  # of the plan that it changes; empty where it is of the hardware
    estimate: Estimate  # then
    explains: float  # share of the gap that it closes, in logarithms


class MeasuredGain(NamedTuple):
    """A change of the plan after which a step takes less time."""

    change: str  # in words
    fields: Row  # of the plan
    estimate: Estimate  # of the changed plan
    gain: float  # share of the step that it saves by the estimates
    saves: float  # of the measured step, by the same share [s]


@names_what_is_there
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Diagnosis:
    """A measured step against its estimate.

    Parameters
    ----------
    estimate : of the plan
    measured : step time [s]
    inside : whether it lies inside the 90 % interval
    slower_than : share of runs estimated so that take less time than the measured one
    parts : of the step, the one that takes most of the gap first; what they take adds up to the gap
    explanations : what would bring the estimate nearer to the measured step, the nearest first
    advice : what to change, the largest gain first
    """

    estimate: Estimate
    measured: float
    inside: bool
    slower_than: float
    parts: tuple[PartShare, ...]
    explanations: tuple[Explanation, ...]
    advice: tuple[MeasuredGain, ...]

    def __repr__(self) -> str:
        first = [f"change first: {one.change}, saves {format_seconds(one.saves)}" for one in self.advice[:1]]
        parts = [f"{part_name(one.part)}: {one.gap:+.3g} s" for one in self.parts[:4]]
        return headed(f"Diagnosis: {self.said()}", *parts, *first)

    @property
    def gap(self) -> float:
        """Seconds that the measured step takes more than the estimated one."""
        return self.measured - self.estimate.step_time

    @property
    def mfu(self) -> float:
        """Model FLOP utilisation of the measured step."""
        return self.estimate.mfu * self.estimate.step_time / self.measured

    def said(self) -> str:
        """The verdict in one sentence."""
        return verdict_on(self.estimate, self.measured)

    def to_dict(self) -> Row:
        """Flat names with units, for JSON and frames."""
        low, high = self.estimate.time_interval
        return {
            "measured_step_time_s": self.measured, "step_time_s": self.estimate.step_time, "step_time_low_s": low,
            "step_time_high_s": high, "inside": self.inside, "slower_than": self.slower_than, "gap_s": self.gap,
            "measured_mfu": self.mfu, "mfu": self.estimate.mfu, "evidence": self.estimate.evidence,
            "parts": [one._asdict() for one in self.parts],
            "explanations": [
                {"change": one.change, "step_time_s": one.estimate.step_time, "explains": one.explains}
                for one in self.explanations
            ],
            "advice": [{"change": one.change, "gain": one.gain, "saves_s": one.saves} for one in self.advice],
        }  # fmt: skip


def verdict_on(answer: Estimate, measured: float) -> str:
    """Whether a measured step is inside the estimate's 90 % interval, in one sentence.

    Parameters
    ----------
    answer : of `estimate`
    measured : step time [s]

    Examples
    --------
    >>> from costmodel import Plan, estimate, load_cluster, load_model
    >>> made = estimate(load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8), Plan(global_batch=8, seq_len=2048))
    >>> verdict_on(made, 10.0 * made.step_time).partition(":")[0].split(" is ")[1]
    'outside the 90 % interval'
    """
    low, high = answer.time_interval
    inside = low <= measured <= high
    times = measured / answer.step_time
    where = "inside" if inside else "outside"
    advice = (
        "" if inside else "; something isn't as it was told, or slower than it should be" if measured > high
        else "; something isn't as it was told: so fast is hardly possible"
    )  # fmt: skip
    return (
        f"A measured step of {format_seconds(measured)} is {where} the 90 % interval: {times:.2f} times the estimate of "
        f"{format_seconds(answer.step_time)} ({format_seconds(low)} to {format_seconds(high)}){advice}"
    )


@by_other_names(model="answer")
def diagnose(
    answer: Answer, cluster: ClusterLike | None = None, *, step_time: float | None = None, mfu: float | None = None,
    tokens_per_second: float | None = None, most: int = 5, **asked: Any,
) -> Diagnosis:  # fmt: skip
    """Why a measured step takes what it takes: the gap by parts, settings that would explain it, and what to change first.

    The gap to the estimate is dealt to the parts as their errors allow: what the parts are expected to be once their sum is
    known, with the covariance that the constants' errors give them, and an error of each part's own that makes up for what the
    interval is wider than that. Gains are rescaled to the measured step.

    Parameters
    ----------
    answer : of `estimate`, for the plan that ran; or a model, or its name
    cluster : of a model, or what names it, as `costmodel.estimate` takes it
    step_time : measured [s]
    mfu : measured in its place, a share of the peak, attention scores counted in full
    tokens_per_second : the same, of all GPUs together [1/s]
    most : explanations and changes to name
    asked : of a model, as `costmodel.estimate` takes it, such as ``gpus=64, tp=2``; where no degree is given, the fastest
        plan that fits is taken, as `costmodel.search` finds it

    Returns
    -------
    Diagnosis

    Raises
    ------
    InvalidValue
        where there is no estimate, or a time is none

    Examples
    --------
    >>> from costmodel import Plan, estimate, load_cluster, load_model
    >>> plan = Plan(global_batch=64, seq_len=8192, tensor_parallel=4)
    >>> made = diagnose(estimate(load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8), plan), step_time=12.0)
    >>> abs(sum(one.gap for one in made.parts) - made.gap) < 1e-9, made.advice[0].saves > 0.0
    (True, True)
    >>> diagnose("llama3-8b", "8xh100", tp=2, mfu=0.38).inside
    True
    """
    positive_int("most", most, 1000)
    step = step_of(answer, cluster, asked)
    measured = measured_time(step, step_time, mfu, tokens_per_second)
    low, high = step.time_interval
    return Diagnosis(
        estimate=step, measured=measured, inside=low <= measured <= high,
        slower_than=step.time_error.probability_below(step.step_time, measured), parts=_parts(step, measured),
        explanations=tuple(_explanations(step, measured, most)), advice=tuple(_advice(step, measured, most)),
    )  # fmt: skip


def measured_time(step: Estimate, step_time: float | None, mfu: float | None, tokens_per_second: float | None) -> float:
    """Seconds of a step, from the one thing that was measured.

    Parameters
    ----------
    step : of the plan that ran
    step_time, mfu, tokens_per_second : as `diagnose` takes them
    """
    said = {"step_time": step_time, "mfu": mfu, "tokens_per_second": tokens_per_second}
    told = [name for name, value in said.items() if value is not None]
    if len(told) != 1:
        raise InvalidValue("step_time", step_time, "a time, or mfu=0.38 or tokens_per_second=50e3 in its place: one of them")
    if mfu is not None:
        return step.step_time * step.mfu / real("mfu", mfu, 1e-6, 1.0)
    if tokens_per_second is not None:
        return step.plan.tokens / real("tokens_per_second", tokens_per_second, 1e-6, 1e15)
    return real("step_time", step_time, 1e-6, 1e9)


def _parts(answer: Estimate, measured: float) -> tuple[PartShare, ...]:
    """The gap, dealt to the parts: no part may take less than no time."""
    names = [part for part in TIME_PARTS if answer.times[part] > 0.0]
    times = [answer.times[part] for part in names]
    covariance = _covariance(answer, names, times)
    gap, taken = measured - answer.step_time, dict.fromkeys(names, 0.0)
    open_parts = list(range(len(names)))
    while open_parts:
        left = gap - sum(taken[name] for place, name in enumerate(names) if place not in open_parts)
        weights = {one: sum(covariance[one][other] for other in open_parts) for one in open_parts}
        whole = sum(weights.values())
        dealt = {one: left * weight / whole for one, weight in weights.items()}
        taken |= {names[one]: seconds for one, seconds in dealt.items()}
        emptied = [one for one, seconds in dealt.items() if seconds < -times[one]]
        if not emptied:
            break
        for one in emptied:
            taken[names[one]] = -times[one]
            open_parts.remove(one)
    errors = [math.sqrt(covariance[place][place]) for place in range(len(names))]
    rows = [PartShare(name, time, error, taken[name]) for name, time, error in zip(names, times, errors, strict=True)]
    return tuple(sorted(rows, key=lambda one: -abs(one.gap)))


def _covariance(answer: Estimate, names: list[str], times: list[float]) -> list[list[float]]:
    """Of the parts' times [s²]: what the constants' errors cause, and each part's own, in proportion to it."""
    inputs, bill = answer.inputs, answer.step.memory

    def parts(device: DeviceNumbers, software: Software) -> list[Number]:
        step = training_step.step(*inputs._replace(software=software, device=device), bill)
        return [getattr(step, name) for name in names]

    found = part_covariance(parts, answer.cluster.device, answer.framework, str(answer.plan.dtype))
    stretch = math.exp(2.0 * answer.discrepancy)
    of_constants = stretch * sum(map(sum, found))
    own = max((answer.time_spread * answer.step_time) ** 2 - of_constants, (0.01 * answer.step_time) ** 2)
    squared = sum(time**2 for time in times)
    return [
        [stretch * entry + (own * time**2 / squared if row == column else 0.0) for column, entry in enumerate(line)]
        for row, (line, time) in enumerate(zip(found, times, strict=True))
    ]


def _explanations(answer: Estimate, measured: float, most: int) -> list[Explanation]:
    """What would bring the estimate nearer to what was measured."""
    gap = math.log(measured / answer.step_time)
    if abs(gap) < WORTH:
        return []
    found: list[Explanation] = []
    for words, fields, made in _alternatives(answer):
        left = math.log(measured / made.step_time)
        explains = 1.0 - abs(left) / abs(gap)
        if explains > 0.02 and not any(abs(one.estimate.step_time / made.step_time - 1.0) < 1e-4 for one in found):
            found.append(Explanation(words, fields, made, explains))
    return sorted(found, key=lambda one: -one.explains)[:most]


def _alternatives(answer: Estimate) -> Iterator[tuple[str, Row, Estimate]]:
    """Estimates of what may have run instead: every choice otherwise, and hardware slower than the catalogue says."""
    plan, tried = answer.plan, table(Plan).values()
    for row in tried:
        value = getattr(plan, row.name)
        if row.column and row.name not in ("recompute", "micro_batch", "zero_stage"):
            continue
        values: list[object] = [not value] if isinstance(row.kind, Flag) and isinstance(value, bool) else []
        values += [one for one in (*row.faster, *row.leaner) if one != value]
        if row.name == "recompute":
            values += [one for one in ("none", "full", "selective") if one != value]
        if row.name == "dtype":
            values += [one for one in ("bf16", "fp16", "fp8", "tf32") if one != value]
        for one in dict.fromkeys(values):
            if (made := estimated(answer, {row.name: one})) is not None:
                yield f"{field_name(row.name)} {_word(one)}", {row.name: one}, made
    for level in answer.cluster.levels:
        yield from _slower(answer, f"{level.name}.bandwidth", f"{level.name} at half of its bandwidth")
    yield from _slower(answer, "device.memory_bandwidth", "memory of the GPUs at half of its bandwidth")


def _word(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _slower(answer: Estimate, path: str, words: str) -> Iterator[tuple[str, Row, Estimate]]:
    try:
        cluster = replace(answer.cluster, {path: f"{SLOWER}x"})
        yield words, {}, estimate(answer.model, cluster, answer.plan, answer.framework)
    except CostModelError:  # a cluster without that number
        return


def _advice(answer: Estimate, measured: float, most: int) -> list[MeasuredGain]:
    """Single changes after which a step takes less time and fits, their gains rescaled to what was measured."""
    found: list[MeasuredGain] = []
    for fields in changes_for_speed(answer.plan):
        made = estimated(answer, fields)
        if made is None or not made.fits:
            continue
        gain = 1.0 - made.step_time / answer.step_time
        alike = any(abs(one.estimate.step_time / made.step_time - 1.0) < 1e-3 for one in found)
        if gain > WORTH and not alike:
            words = ", ".join(f"{field_name(name)} {_word(value)}" for name, value in fields.items())
            found.append(MeasuredGain(words, fields, made, gain, gain * measured))
    return sorted(found, key=lambda one: -one.gain)[:most]

"""One plan in, everything about its step out."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from itertools import zip_longest

from costmodel.arithmetic.named_tuples import Row
from costmodel.catalogue.asking import ModelLike, ask, asked, given
from costmodel.catalogue.clusters import ClusterLike, DeviceLike
from costmodel.catalogue.keywords import by_other_names
from costmodel.description.cluster import Cluster
from costmodel.description.fields import hold
from costmodel.description.framework import Framework
from costmodel.description.judgement import EVEN, JUDGED
from costmodel.description.labels import label, part_name
from costmodel.description.plan import Plan
from costmodel.description.question import Question
from costmodel.description.transformer import Transformer
from costmodel.evaluation import engine
from costmodel.evaluation.engine import evaluate_one, evaluate_several, stretched, total_time
from costmodel.evaluation.error_model import Slopes, Spread, slopes_of, slopes_of_plans, spread_of, widest_unknown
from costmodel.evaluation.first_contacts import Error
from costmodel.evaluation.loading import Loading
from costmodel.evaluation.memory_breakdown import PARTS as MEMORY_PARTS
from costmodel.evaluation.memory_breakdown import MemoryInputs, PeakMemory
from costmodel.formulas import training_step
from costmodel.formulas.quantities import DeviceNumbers, Inputs, Memory, Number, PlanNumbers, Software, Step
from costmodel.formulas.transformer import adapters
from costmodel.formulas.transformer.loading import beside_a_step
from costmodel.text.attributes import names_what_is_there
from costmodel.text.checks import real
from costmodel.text.results import figure
from costmodel.text.tables import headed, table
from costmodel.text.units import GiB, between, counted, format_bytes, format_seconds

TIME_PARTS = tuple(field for field in Step._fields[1 : Step._fields.index("host") + 1])


class StepParts(Step):
    """Every part of an estimate's step [s, bytes, FLOP]."""

    question: Question
    plan: Plan

    @classmethod
    def of(cls, step: Step, question: Question, plan: Plan) -> StepParts:
        """The parts that a formula gave for a plan."""
        made = cls._make(step)
        made.question, made.plan = question, plan
        return made

    @functools.cached_property
    def exchange_bytes(self) -> float:
        """What a rank of the stage that sends most sends in a step, call by call as in the ledger [bytes]."""
        from costmodel.evaluation.transactions import exchanged_bytes

        return exchanged_bytes(self.question, self.plan)


@names_what_is_there
@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a step of a plan takes; `times` and `memory` split the totals.

    Parameters
    ----------
    question : model, cluster and framework
    plan : how the step is split, the framework's defaults filled in
    step : every part [s, bytes, FLOP]
    required_probability : to fit, from which the plan is judged to
    """

    question: Question
    plan: Plan
    step: StepParts
    required_probability: float = JUDGED

    plot = figure

    def __repr__(self) -> str:
        judged = self.judgement
        if judged == "may run out":
            judged = f"may run out: fits with probability {self.fit_probability:.0%}"
        elif not self.fits:
            other = self.host_memory_margin < 0.0 or while_loading(self)
            judged += f": {lack(self)}" if other else f" by {format_bytes(-self.memory_margin)}"
        return headed(f"Estimate: {title(self)}", f"{sentence(self)}; {judged}")

    def _repr_html_(self) -> str:
        times = sorted(((part, time) for part, time in self.times.items() if time), key=lambda item: -item[1])
        parts = sorted(((part, getattr(self.memory, part)) for part in Memory._fields[1:]), key=lambda item: -item[1])
        held = [(part, nbytes) for part, nbytes in parts if nbytes > 0.0]
        left = [(part_name(part), format_seconds(time), f"{100 * time / self.step_time:.1f} %") for part, time in times]
        right = [(part, format_bytes(nbytes)) for part, nbytes in held]
        rows = [(*one, *other) for one, other in zip_longest(left, right, fillvalue=("", "", ""))]
        return table(title(self), ["time", "", "of the step", "memory", ""], rows, sentence(self))

    @property
    def model(self) -> Transformer:
        """What is trained."""
        return self.question.model

    @property
    def cluster(self) -> Cluster:
        """On what."""
        return self.question.cluster

    @property
    def framework(self) -> Framework:
        """The software."""
        return self.question.framework

    @functools.cached_property
    def inputs(self) -> Inputs:
        """What the formula of the step took."""
        return self.question.inputs(self.plan)

    @property
    def departures(self) -> tuple[str, ...]:
        """What isn't as it would be unasked, such as ``"dtype fp8"``: choices, and changed numbers of descriptions."""
        from costmodel.evaluation.departures import departures

        return departures(self.question, [self.plan], self.required_probability)

    @property
    def step_time(self) -> float:
        """Seconds of one optimizer step."""
        return float(self.step.total)

    @functools.cached_property
    def discrepancy(self) -> float:
        """Logarithm by which own runs of plans alike took longer than the constants say; every part of the step does so."""
        return float(self.question.discrepancy(self.inputs.settings, self.inputs.plan))

    @property
    def times(self) -> dict[str, float]:
        """Parts of the step time [s]; they add up to it."""
        return {part: float(getattr(self.step, part)) for part in TIME_PARTS}

    @functools.cached_property
    def memory(self) -> PeakMemory:
        """Bill of the fullest rank, and of every stage [bytes]."""
        model, settings, plan, network, software, device = self.inputs
        asked = MemoryInputs(model, settings, plan, software, network, device, self.plan.micro_batches, str(self.plan.schedule))
        return PeakMemory(**{part: float(value) for part, value in self.step.memory._asdict().items()}, asked=asked)

    @property
    def usable_memory(self) -> float:
        """Bytes that a process can use on a GPU."""
        return float(self.cluster.device.usable_memory or self.cluster.device.memory)

    @property
    def memory_limit(self) -> float:
        """Bytes up to which the plan is judged to fit: what a process can use, less a margin for the estimate's error."""
        return self.spread.margin(self.required_probability) * self.usable_memory

    @functools.cached_property
    def spread(self) -> Spread:
        """Error of estimates of this framework on this device."""
        return spread_of(self.framework, self.cluster.device, bool(self.model.experts), self.model.state_share)

    @functools.cached_property
    def host_memory(self) -> float:
        """Bytes that offload keeps in the host memory of the node that it fills most; 0 without offload."""
        return float(engine.host_bytes(self.inputs))

    @property
    def host_memory_margin(self) -> float:
        """Bytes of a node's host memory that offload leaves; negative where it has too little, infinite where none is known."""
        limit = self.cluster.host_memory
        return math.inf if limit is None else limit - self.host_memory

    @functools.cached_property
    def loading(self) -> Loading:
        """What it takes to load the model, and to save it, on a GPU and in host memory."""
        return Loading(self.inputs)

    @property
    def needed_memory(self) -> float:
        """Bytes of the fullest GPU: of its fullest moment in a step, or while the model is loaded, if that is more."""
        held = float(self.step.memory.total)
        more = beside_a_step(self.inputs.settings, self.inputs.plan.shard_weights) > 0.0
        return max(held, self.loading.device_bytes) if more else held

    @property
    def fits(self) -> bool:
        """Whether the plan fits with the probability that was asked for, what it offloads in host memory included."""
        return self.memory_margin >= 0.0 and self.host_memory_margin >= 0.0

    @property
    def judgement(self) -> str:
        """``"fits"``, ``"does not fit"``, or ``"may run out"``: likelier to fit than not, less likely than was asked for.

        Examples
        --------
        >>> from costmodel import Plan, load_cluster, load_model
        >>> model, cluster = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8)
        >>> sizes = {"global_batch": 64, "seq_len": 4096, "tensor_parallel": 2, "zero_stage": 1}
        >>> [estimate(model, cluster, Plan(**sizes, micro_batch=size)).judgement for size in (1, 8)]
        ['fits', 'does not fit']
        """
        if self.fits:
            return "fits"
        return "may run out" if self.fit_probability >= EVEN else "does not fit"

    @property
    def memory_margin(self) -> float:
        """Bytes to spare before the plan is judged not to fit, in its steps and while the model is loaded; negative where it
        doesn't."""
        return self.memory_limit - self.needed_memory

    @property
    def fit_probability(self) -> float:
        """Share of plans estimated so, chosen by people to be run, that ran; 0 where the host has too little memory."""
        if self.host_memory_margin < 0.0:
            return 0.0
        return self.spread.room.probability_below(self.needed_memory, self.usable_memory)

    @functools.cached_property
    def slopes(self) -> Slopes:
        """How the step time follows the calibrated constants, none of which changes the memory."""
        inputs, bill = self.inputs, self.step.memory

        def total(device: DeviceNumbers, software: Software) -> Number:
            return training_step.step(*inputs._replace(software=software, device=device), bill).total

        return slopes_of(total, self.cluster.device, self.framework, str(self.plan.dtype))

    @functools.cached_property
    def time_error(self) -> Error:
        """How far the step time may lie from the estimate: of a run that nobody has measured yet, or as own runs tell it."""
        return self.spread.time(self.slopes.deviation)

    @property
    def time_spread(self) -> float:
        """Standard deviation of the normal that is as wide as the 90 % interval of the step time's logarithm."""
        return self.time_error.deviation

    @property
    def widest_unknown(self) -> str:
        """What the interval of the step time is wide because of, where it is one thing; else empty."""
        if self.spread.own is not None:
            return ""
        return widest_unknown(self.slopes, self.framework, self.cluster.device, self.spread.novelty)

    @property
    def evidence(self) -> str:
        """How near calibration's measurements are to this question, in words."""
        return self.spread.evidence

    @property
    def time_interval(self) -> tuple[float, float]:
        """90 % interval of the step time [s]."""
        return self.time_error.interval(self.step_time)

    @property
    def memory_interval(self) -> tuple[float, float]:
        """90 % interval of the fullest rank's memory [bytes]."""
        return self.spread.memory.interval(float(self.step.memory.total))

    @property
    def bubble_share(self) -> float:
        """Share of the step that the slowest stage waits for the pipeline."""
        return float(self.step.bubble / self.step.total)

    @property
    def tokens_per_second(self) -> float:
        """Tokens of the whole cluster per second, without padding."""
        return self.plan.tokens / self.step_time

    @property
    def mfu(self) -> float:
        """Model FLOP utilisation, scores counted in full (Megatron-LM's convention): of a windowed layer those in the window."""
        return self._utilisation(float(self.step.model_flop))

    @property
    def causal_mfu(self) -> float:
        """Model FLOP utilisation, only scores below the diagonal counted."""
        flop = float(adapters.model_flop_per_token(self.inputs.model, self.inputs.settings, 1.0))
        return self._utilisation(flop * self.plan.tokens)

    @property
    def hfu(self) -> float:
        """Hardware FLOP utilisation: recomputed FLOP counted too."""
        return self._utilisation(float(self.step.hardware_flop))

    @property
    def sixteen_bit_mfu(self) -> float:
        """`mfu` against the peak in 16 bit, by which reports of training in 8 and 4 bit often count; `mfu` itself in wider types.

        Examples
        --------
        >>> from costmodel import estimate, load_cluster, load_model, Plan
        >>> asked = {"global_batch": 64, "seq_len": 4096, "data_parallel": 8, "zero_stage": 1}
        >>> answer = estimate(load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8), Plan(**asked, dtype="fp8"))
        >>> round(answer.sixteen_bit_mfu / answer.mfu, 2)
        2.0
        """
        device = self.cluster.device
        return self.mfu * max(device.peak(str(self.plan.dtype)) / device.peak(device.usual_dtype), 1.0)

    def _utilisation(self, flop: float) -> float:
        return flop / (self.step_time * self.plan.gpus * self.cluster.device.peak(str(self.plan.dtype)))

    def to_dict(self) -> Row:
        """Flat names with units, for JSON and frames."""
        row: Row = {"model": self.model.name, "cluster": self.cluster.name, "framework": self.framework.name}
        row |= {
            field: value if not isinstance(value, tuple) else "-".join(value)
            for field, value in dataclasses.asdict(self.plan).items()
        }
        row |= {"gpus": self.plan.gpus, "micro_batches": self.plan.micro_batches, "step_time_s": self.step_time}
        row |= {f"{part}_s": value for part, value in self.times.items()}
        row |= {"hidden_exchange_s": float(self.step.hidden_exchange), "exchange_bytes": float(self.step.exchange_bytes)}
        row |= {"model_flop": float(self.step.model_flop), "hardware_flop": float(self.step.hardware_flop)}
        row |= {"mfu": self.mfu, "causal_mfu": self.causal_mfu, "hfu": self.hfu}
        row |= {"tokens_per_second": self.tokens_per_second, "peak_memory_bytes": float(self.memory.total)}
        row |= {f"{part}_bytes": value for part, value in self.memory.parts.items()}
        row |= {"usable_memory_bytes": self.usable_memory, "memory_limit_bytes": self.memory_limit}
        row |= {"memory_margin_bytes": self.memory_margin, "fits": self.fits, "judgement": self.judgement}
        row |= {"loading_memory_bytes": self.loading.device_bytes, "loading_host_memory_bytes": self.loading.host_bytes}
        row |= {"saving_host_memory_bytes": self.loading.saved_bytes}
        row |= {"node_host_memory_bytes": self.host_memory, "node_host_memory_limit_bytes": self.cluster.host_memory}
        return row | {"fit_probability": self.fit_probability, "evidence": self.evidence}


def estimate_several(
    question: Question, plans: Sequence[Plan], alike: Sequence[int], fit_probability: float = JUDGED
) -> list[Estimate]:
    """Estimates of several plans at once.

    Parameters
    ----------
    question : model, cluster and framework
    plans : legal ones, the framework's defaults filled in
    alike : of each a number, the same for plans that differ in nothing but their split
    fit_probability : from which a plan is judged to fit
    """
    firsts = {same: question.inputs(plan) for same, plan in dict(zip(alike, plans, strict=True)).items()}
    layers = question.model.layers
    inputs = [
        firsts[same]._replace(plan=plan.numbers(question.framework, layers)) for same, plan in zip(alike, plans, strict=True)
    ]
    found = []
    for plan, one, step in zip(plans, inputs, evaluate_several(inputs, alike), strict=True):
        discrepancy = question.discrepancy(one.settings, one.plan)
        parts = StepParts.of(stretched(step, discrepancy), question, plan)
        made = Estimate(question=question, plan=plan, step=parts, required_probability=fit_probability)
        made.__dict__["inputs"] = one  # where `cached_property` looks
        found.append(made)
    return found


NO_PLAN = PlanNumbers(*(0.0 for _ in PlanNumbers._fields))
"""In the place of plans, where all else is compared."""


def fill_slopes(estimates: Sequence[Estimate]) -> None:
    """Work out the slopes of several plans at once, those together that differ in their split alone."""
    groups: dict[tuple[Inputs, str], list[Estimate]] = {}
    for one in estimates:
        if "slopes" not in one.__dict__:
            groups.setdefault((one.inputs._replace(plan=NO_PLAN), str(one.plan.dtype)), []).append(one)
    for (inputs, dtype), members in groups.items():
        if len(members) == 1:
            continue  # alone it is as fast
        import numpy as np

        plans, bills = np.array([one.inputs.plan for one in members]).T, np.array([one.step.memory for one in members]).T

        def total(times: int, device: DeviceNumbers, software: Software) -> float:
            repeated, bill = PlanNumbers(*np.repeat(plans, times, axis=1)), Memory(*np.repeat(bills, times, axis=1))  # noqa: B023
            moved = inputs._replace(plan=repeated, software=software, device=device)  # noqa: B023
            return total_time(moved, bill, times * len(members))  # noqa: B023

        first = members[0]
        found = slopes_of_plans(total, len(members), first.cluster.device, first.framework, dtype)
        for one, slopes in zip(members, found, strict=True):
            one.__dict__["slopes"] = slopes


def check_length(model: Transformer, seq_len: int) -> None:
    """Refuse a sequence that has more tokens than the model has learned positions.

    Parameters
    ----------
    model : what is trained
    seq_len : [tokens]

    Raises
    ------
    InvalidValue
        naming both
    """
    hold({"seq_len": seq_len}, model.restrictions)


def probability(field: str, value: float) -> float:
    """A probability that is neither 0 nor 1."""
    return real(field, value, 0.001, 0.999)


@by_other_names()
def estimate(
    model: ModelLike, cluster: ClusterLike | None = None, plan: Plan | None = None,
    framework: Framework | str | None = None, *, fit_probability: float = JUDGED, device: DeviceLike | None = None,
    gpus: int | None = None, nodes: int | None = None, network: float | str | None = None, **choices: object,
) -> Estimate:  # fmt: skip
    """Time and memory of one training step.

    Parameters
    ----------
    model : what is trained, or its name in the catalogue or on the Hugging Face hub, or a ``config.json``
    cluster : on what, or its name, or GPUs of a kind in a word, ``"8xh100"``; of a name without a size one node, or as many GPUs
        as the plan's degrees ask for
    plan : how it is split; its degrees multiply to the cluster's GPUs. If None the choices say it, and what they don't say is
        usual: 256 sequences a step of 4,096 tokens, or for adapters 16 of 2,048
    framework : the software, or its name in the catalogue; if None ``"megatron-core"``, or for an adapter among the choices
        ``"hf-trainer"``, or what `costmodel.description.usual_work.usual_software` gives of the devices
    fit_probability : from which the plan is judged to fit
    device, gpus, nodes, network : in place of a cluster, as `costmodel.machine` takes them; sizes go with a cluster's name, too
    choices : fields of `Plan`, as ``tensor_parallel=2`` or ``tp=2``, in place of the plan's; ``gradient_accumulation`` in place
        of ``global_batch``

    Returns
    -------
    Estimate
        seconds, bytes and FLOP, part by part

    Raises
    ------
    InvalidValue
        where an argument is not what it should be
    IllegalPlan
        with the reason, where the plan can't run
    NotModelled
        where the device has no such dtype

    Examples
    --------
    >>> estimate("llama3-8b", "8xh100", tensor_parallel=2, micro_batch=2).fits
    True
    """
    hardware = {"device": device, "gpus": gpus, "nodes": nodes, "network": network}
    said = asked(model, cluster, plan, framework, {**choices, **given(hardware)})
    question, plan = ask(said.model, said.cluster, said.framework), said.plan
    check_length(said.model, plan.seq_len)
    accepted = question.accepted(plan)
    step = StepParts.of(evaluate_one(question, accepted), question, accepted)
    required = probability("fit_probability", fit_probability)
    return Estimate(question=question, plan=accepted, step=step, required_probability=required)


@by_other_names()
def memory(
    model: ModelLike, cluster: ClusterLike | None = None, plan: Plan | None = None, framework: Framework | str | None = None,
    **choices: object,
) -> PeakMemory:  # fmt: skip
    """What a GPU holds at the fullest moment of a training step: the memory of an `estimate`, whose arguments it takes.

    Parameters
    ----------
    model, cluster, plan, framework, choices : as for `estimate`, hardware such as ``device`` and ``gpus`` among the choices

    Returns
    -------
    PeakMemory
        bytes of the fullest rank, part by part, and of every stage

    Raises
    ------
    InvalidValue, IllegalPlan, NotModelled
        as `estimate`

    Examples
    --------
    >>> held = memory("llama3-8b", "8xh100", zero_stage=3)
    >>> held.total == estimate("llama3-8b", "8xh100", zero_stage=3).memory.total
    True
    """
    return estimate(model, cluster, plan, framework, **choices).memory  # type: ignore[arg-type]


__all__ = ["MEMORY_PARTS", "TIME_PARTS", "Estimate", "estimate", "memory"]


def of_limit(estimate: Estimate) -> str:
    """Memory of the fullest GPU against the limit that the plan is judged by, such as ``62.9 of 70.5 GiB``."""
    return f"{estimate.needed_memory / GiB:.1f} of {estimate.memory_limit / GiB:.1f} GiB"


def host_memory(estimate: Estimate) -> str:
    """Host memory of the node that offload fills most, against what a node has; empty without offload.

    Returns
    -------
    str
        such as ``1,051 of 2,048 GiB host memory a node for what is offloaded``
    """
    if not estimate.host_memory:
        return ""
    limit = estimate.cluster.host_memory
    room = "" if limit is None else f" of {limit / GiB:,.0f}"
    return f"{estimate.host_memory / GiB:,.0f}{room} GiB host memory a node for what is offloaded"


def while_loading(estimate: Estimate) -> str:
    """Words for what needs a GPU most, where it is no step; else empty."""
    held = float(estimate.step.memory.total)
    if estimate.needed_memory <= held:
        return ""
    return f" while the model is loaded (loading {estimate.loading.way}; {held / GiB:.1f} in its steps)"


def lack(estimate: Estimate) -> str:
    """By what a plan that doesn't fit is over, on a GPU and on a node's host; empty where it fits."""
    gpu, host = estimate.memory_margin, estimate.host_memory_margin
    words = [f"{-gpu / GiB:.1f} GiB over{while_loading(estimate)}"] if gpu < 0.0 else []
    if host < 0.0:
        words.append(f"{-host / GiB:,.0f} GiB over in a node's host memory")
    return " and ".join(words)


def memory_limit(estimate: Estimate) -> str:
    """The limit that a plan is judged by, with its margin, in words; and what offload takes of a node's host memory.

    Parameters
    ----------
    estimate : of the plan, or of any other of its framework on its device

    Returns
    -------
    str
        such as ``70.5 GiB a GPU: 79.2 GiB usable less 10.9 % for the estimate's error (80 % sure)``
    """
    host = host_memory(estimate)
    beside = f"; {host}" if host else ""
    usable, limit, sure = estimate.usable_memory, estimate.memory_limit, 100.0 * estimate.required_probability
    if limit == usable:
        return f"{limit / GiB:.1f} GiB a GPU, all that is usable{beside}"
    margin = f"{'less' if limit < usable else 'plus'} {100.0 * abs(1.0 - limit / usable):.1f} %"
    room = f"{limit / GiB:.1f} GiB a GPU: {usable / GiB:.1f} GiB usable"
    return f"{room} {margin} for the estimate's error ({sure:g} % sure){beside}"


def sentence(estimate: Estimate, probability_fastest: float | None = None) -> str:
    """The answer in one sentence.

    Parameters
    ----------
    estimate : of the plan
    probability_fastest : that it is the fastest of those ranked with it; left out if None

    Returns
    -------
    str
        plan, step time with its 90 % interval, memory of the fullest GPU against its limit, and MFU
    """
    text = (
        f"{label(estimate.plan)}: {between(estimate.step_time)} a step, "
        f"{between(*estimate.time_interval)} with 90 % probability, "
        f"{float(estimate.memory.total) / GiB:.0f} of {estimate.memory_limit / GiB:.0f} GiB, {100 * estimate.mfu:.0f} % MFU"
    )
    return text if probability_fastest is None else f"{text}; P(fastest) {100 * probability_fastest:.0f} %"


def title(estimate: Estimate) -> str:
    """What an estimate is of, in one line."""
    return (
        f"{estimate.model.name} on {counted(estimate.plan.gpus, 'GPU')} of {estimate.cluster.name}, {estimate.framework.name}, "
        f"{counted(estimate.plan.global_batch, 'sequence')} of {counted(estimate.plan.seq_len, 'token')}"
        f"{not_by_default(estimate.departures)}"
    )


def not_by_default(departures: Sequence[str]) -> str:
    """What isn't as it would be unasked, to go on behind a title; empty where nothing is.

    Parameters
    ----------
    departures : of an estimate or a search, in words
    """
    return f", not by default: {', '.join(departures)}" if departures else ""

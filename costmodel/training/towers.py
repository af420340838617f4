"""A step of a language model that reads images: towers with a plan each before it, frozen or trained."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from costmodel.arithmetic.named_tuples import Row
from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.description.huggingface.vision import read_tower
from costmodel.description.judgement import JUDGED
from costmodel.description.plan import Plan
from costmodel.description.transformer import Transformer
from costmodel.evaluation.estimation import Estimate, estimate
from costmodel.text.checks import flag, kind, listing, positive_int, real, whole
from costmodel.text.errors import IllegalPlan, InvalidValue
from costmodel.text.results import brief
from costmodel.training.passes import forward_time

FROZEN: Row = {"adapter": "lora", "lora_targets": "none"}
"""Fields of the plan of a frozen model through which gradients pass: no matrix has an adapter."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tower:
    """An encoder of images, what joins it to the language model, and how it is split.

    Parameters
    ----------
    model : its layers; a head of one output counts for none
    tokens : that it works through for an image
    images : of a sample, or tiles of them
    merged : of its tokens for each token of the language model
    connector_weights : between the two, multiplied with each token that the language model takes
    connector_others : parameters there that are not multiplied
    trains : whether its weights do; a frozen tower makes forward passes alone
    shared : whether the GPUs of a replica of the language model share a micro-batch's images; else each tower works through all
    tensor_parallel : GPUs of one tower, which is replicated over all others
    zero_stage : of its states over these; the language model's if None
    recompute : of its activations, as in `Plan`

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected
    """

    model: Transformer
    tokens: int
    images: int = 1
    merged: float = 1.0
    connector_weights: int = 0
    connector_others: int = 0
    trains: bool = True
    shared: bool = True
    tensor_parallel: int = 1
    zero_stage: int | None = None
    recompute: str = "none"

    __repr__ = brief

    def __post_init__(self) -> None:
        kind("model", self.model, Transformer, "Transformer(...)")
        positive_int("tokens", self.tokens, 10**7)
        positive_int("images", self.images, 10**6)
        real("merged", self.merged, 1.0, 1e4)
        for name in ("connector_weights", "connector_others"):
            whole(name, getattr(self, name), 10**12)
        for name in ("trains", "shared"):
            flag(name, getattr(self, name))
        positive_int("tensor_parallel", self.tensor_parallel, 10**4)

    @classmethod
    def from_huggingface(
        cls, path: str | Path, language: Transformer, *, images: int = 1, image_tokens: int | None = None,
        trains: bool = True, shared: bool = True, tensor_parallel: int = 1, zero_stage: int | None = None,
        recompute: str = "none",
    ) -> Tower:  # fmt: skip
        """The tower of a local multimodal ``config.json``.

        Parameters
        ----------
        path : file or folder
        language : the language model that the file has, too
        images : of a sample, or tiles of them
        image_tokens : that an image has in the language model's sequence, where that is as its size (Qwen's towers, Pixtral)
        trains, shared, tensor_parallel, zero_stage, recompute : as in `Tower`

        Raises
        ------
        UnreadableFile, NotModelled
            as `Transformer.from_huggingface` does
        InvalidValue
            where the tokens of an image are neither in the file nor said, or both
        """
        kind("language", language, Transformer, "Transformer(...)")
        read = read_tower(path, language.hidden)
        if image_tokens is None and not read.tokens:
            raise InvalidValue("image_tokens", None, f"tokens of an image: {read.model.name} takes images of any size")
        if image_tokens is not None and read.tokens:
            raise InvalidValue("image_tokens", image_tokens, f"None: the file says {read.tokens / read.merged:.0f}")
        tokens = read.tokens or round(positive_int("image_tokens", image_tokens, 10**6) * read.merged)
        return cls(
            model=read.model, tokens=tokens, images=images, merged=read.merged, connector_weights=read.connector.weights,
            connector_others=read.connector.others, trains=trains, shared=shared, tensor_parallel=tensor_parallel,
            zero_stage=zero_stage, recompute=recompute,
        )  # fmt: skip

    @property
    def parameters(self) -> int:
        """Of the tower and of what joins it to the language model."""
        return self.model.parameters + self.connector_weights + self.connector_others

    @property
    def language_tokens(self) -> float:
        """Tokens of a sample's images that the language model takes."""
        return self.images * self.tokens / self.merged


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartOfStep:
    """What one part of a multimodal model adds to a step."""

    name: str  # ``"language"``, or ``"tower"`` and its number where there are several
    trains: bool  # whether its weights do
    parameters: int  # of it, a tower's connector included
    estimate: Estimate  # of a step of it alone; a frozen part's, as gradients pass through it
    time: float  # that it adds to the step [s]
    gradient_exchange: float  # of it, not hidden [s]
    states: float  # weights, gradients and optimizer states on a GPU [bytes]
    activations: float  # that it keeps for the backward pass on a GPU [bytes]
    connector_time: float = 0.0  # of the products between a tower and the language model [s]

    __repr__ = brief

    def to_dict(self) -> Row:
        """Flat names with units."""
        return {
            "name": self.name, "trains": self.trains, "parameters": self.parameters, "time_s": self.time,
            "connector_time_s": self.connector_time, "gradient_exchange_s": self.gradient_exchange,
            "states_bytes": self.states, "activations_bytes": self.activations,
            "tensor_parallel": self.estimate.plan.tensor_parallel, "data_parallel": self.estimate.plan.data_parallel,
            "zero_stage": self.estimate.plan.zero_stage, "sequences": self.estimate.plan.global_batch,
            "tokens": self.estimate.plan.seq_len,
        }  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Multimodal:
    """A step of a language model and its towers, part by part.

    Parameters
    ----------
    language : its part
    towers : theirs, in the order in which they were given
    memory : of the fullest GPU [bytes]
    """

    language: PartOfStep
    towers: tuple[PartOfStep, ...]
    memory: float

    __repr__ = brief

    @property
    def parts(self) -> tuple[PartOfStep, ...]:
        """Towers, then the language model: in the order of a forward pass."""
        return (*self.towers, self.language)

    @property
    def step_time(self) -> float:
        """Of all parts, one after another [s]."""
        return sum(part.time for part in self.parts)

    @functools.cached_property
    def time_interval(self) -> tuple[float, float]:
        """90 % interval of the step: parts are off alike [s]."""
        bounds = [part.estimate.time_error.interval(part.time) for part in self.parts]
        return sum(low for low, _ in bounds), sum(high for _, high in bounds)

    @property
    def parameters(self) -> int:
        """Of all parts."""
        return sum(part.parameters for part in self.parts)

    @property
    def tokens_per_second(self) -> float:
        """Of the language model's sequences, on the whole cluster."""
        return self.language.estimate.plan.tokens / self.step_time

    @property
    def fit_probability(self) -> float:
        """That the fullest GPU has room, as estimates of the language model's kind turn out."""
        alone = self.language.estimate
        return alone.spread.room.probability_below(self.memory, alone.usable_memory)

    @property
    def fits(self) -> bool:
        """Whether it does with the probability from which plans are judged to."""
        return self.memory <= self.language.estimate.memory_limit

    @property
    def why(self) -> str:
        """What takes most of the step, and what of the memory."""
        slow = max(self.parts, key=lambda part: part.time)
        large = max(self.parts, key=lambda part: part.states + part.activations)
        return f"{slow.name} takes {100 * slow.time / self.step_time:.0f} % of the step; {large.name} holds most"

    def to_dict(self) -> Row:
        """Flat names with units, and a list of the parts, for JSON."""
        low, high = self.time_interval
        return {
            "step_time_s": self.step_time, "step_time_low_s": low, "step_time_high_s": high, "parameters": self.parameters,
            "peak_memory_bytes": self.memory, "memory_limit_bytes": self.language.estimate.memory_limit, "fits": self.fits,
            "fit_probability": self.fit_probability, "tokens_per_second": self.tokens_per_second, "why": self.why,
            "parts": [part.to_dict() for part in self.parts],
        }  # fmt: skip


def multimodal(
    language: Transformer,
    cluster: Cluster,
    plan: Plan,
    towers: Sequence[Tower],
    *,
    framework: Framework | str = "megatron-core",
    language_trains: bool = True,
    fit_probability: float = JUDGED,
) -> Multimodal:
    """A step of a language model that reads images, each part by its own plan.

    Every GPU holds a tower, or its share of one, and the language model as its plan splits it. For each micro-batch of a replica
    of the language model, the towers on its GPUs work through its images, and back after the language model; where that is a
    pipeline, through those of all micro-batches before and after it. Each part is priced as `estimate` does, and exchanges its
    own gradients. Connectors train always.

    Parameters
    ----------
    language : the language model
    cluster : GPUs of both
    plan : of the language model; its sequences have the images' tokens in them, but where layers attend to these by themselves
    towers : before it, at least one
    framework : that trains
    language_trains : whether its weights do; else gradients pass through it to connectors and towers
    fit_probability : from which the step is judged to fit

    Returns
    -------
    Multimodal

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected
    IllegalPlan
        for a plan that can't run

    Assumes that towers' passes hide nothing of the language model's and the reverse, and neglects what connectors keep for
    their backward pass.

    Examples
    --------
    A tower that is replicated beside a language model over eight GPUs.

    >>> from costmodel import load_cluster, load_model
    >>> images = Transformer(name="siglip", layers=27, hidden=1152, heads=16, feed_forward=4304, vocabulary=1, gated=False,
    ...     norm="layernorm", patch_values=588, causal=False, attention_bias=True, output_bias=True, feed_forward_bias=True)
    >>> plan = Plan(global_batch=64, seq_len=4096, tensor_parallel=8)
    >>> step = multimodal(
    ...     load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8), plan, [Tower(model=images, tokens=4096, merged=16.0)]
    ... )
    >>> [(part.name, part.estimate.plan.data_parallel) for part in step.parts], step.fits
    ([('tower', 8), ('language', 1)], True)
    """
    given = checked_towers(towers)
    language, trained = with_images(language, plan, given), as_trained(plan, language_trains)
    alone = estimate(language, cluster, trained, framework=framework, fit_probability=fit_probability)
    return joined(alone, [priced_tower(one, alone) for one in given], language_trains)


def checked_towers(towers: Sequence[Tower]) -> list[Tower]:
    """Towers of a model, at least one.

    Raises
    ------
    InvalidValue
        for what is none
    """
    given = listing("towers", towers)
    if not given:
        raise InvalidValue("towers", list(given), "at least one; a language model alone is estimate's")
    for one in given:
        kind("towers", one, Tower, "Tower(...)")
    return list(given)


def as_trained(plan: Plan, trains: bool) -> Plan:
    """The plan of a language model, which trains or is frozen.

    Raises
    ------
    InvalidValue
        for a frozen model with adapters
    """
    if flag("language_trains", trains):
        return plan
    if plan.adapter != "none":
        raise InvalidValue("language_trains", trains, f"true with adapter={plan.adapter!r}, which freezes weights")
    return passed_through(plan)


def joined(alone: Estimate, towers: Sequence[PartOfStep], language_trains: bool) -> Multimodal:
    """A step of priced parts."""
    main = PartOfStep(
        name="language", trains=language_trains and alone.plan.adapter == "none", parameters=alone.model.parameters,
        estimate=alone, time=alone.step_time, gradient_exchange=alone.times["gradient_exchange"],
        states=states_of(alone), activations=alone.memory.activations,
    )  # fmt: skip
    parts = tuple(
        dataclasses.replace(one, name="tower" if len(towers) == 1 else f"tower {place}")
        for place, one in enumerate(towers, 1)
    )
    return Multimodal(language=main, towers=parts, memory=_memory(alone, parts))


def passed_through(plan: Plan) -> Plan:
    """The plan of a frozen model through which gradients pass: no matrix has an adapter."""
    return dataclasses.replace(plan, **FROZEN)


def with_images(language: Transformer, plan: Plan, towers: Sequence[Tower]) -> Transformer:
    """The language model as it meets the images' tokens: in its sequences, or as what its layers attend to.

    Parameters
    ----------
    language : the language model
    plan : which says how long its sequences are
    towers : before it

    Raises
    ------
    InvalidValue
        where the images' tokens are more than a sequence has
    """
    kind("language", language, Transformer, "Transformer(...)")
    tokens = sum(tower.language_tokens for tower in towers)
    if language.cross_attention_layers:
        return dataclasses.replace(language, source_tokens=tokens / plan.seq_len)
    if tokens > plan.seq_len:
        raise InvalidValue("images", f"{tokens:,.0f} tokens", f"at most seq_len={plan.seq_len}, of which they are a part")
    return language


class TowerWork(NamedTuple):
    """What a tower works through in a step, and how it is split."""

    plan: Plan  # of the tower, as a model by itself
    held: int  # micro-batches whose activations are kept at once
    connected: float  # tokens of the language model that what joins the two multiplies, on a GPU


def tower_work(tower: Tower, plan: Plan) -> TowerWork:
    """What a tower works through beside a language model.

    Raises
    ------
    IllegalPlan
        where the GPUs of a tower don't divide a replica of the language model
    """
    replica = plan.gpus // int(plan.data_parallel or 1)
    if replica % tower.tensor_parallel:
        raise IllegalPlan(
            "tensor_parallel", f"a tower over {tower.tensor_parallel} GPUs doesn't divide the {replica} of a replica of the "
            "language model"
        )
    towers = replica // tower.tensor_parallel
    images = tower.images * plan.micro_batch
    sharing = towers if tower.shared else 1
    at_once, rounds = math.ceil(images / sharing), plan.micro_batches
    piped = plan.pipeline_parallel > 1
    if piped:  # all micro-batches' images come first, so that towers share them without regard to micro-batches
        rounds = math.ceil(images * rounds / sharing / at_once)
    many = plan.gpus // tower.tensor_parallel
    own = Plan(
        global_batch=at_once * rounds * many, micro_batch=at_once, seq_len=tower.tokens, data_parallel=many,
        tensor_parallel=tower.tensor_parallel, dtype=plan.dtype, recompute=tower.recompute,
        zero_stage=plan.zero_stage if tower.zero_stage is None else tower.zero_stage,
        sequence_parallel=False if tower.tokens % tower.tensor_parallel else None,
    )  # fmt: skip
    connected = at_once * rounds * tower.tokens / tower.merged / tower.tensor_parallel
    return TowerWork(own, rounds if piped else 1, connected)


def priced_tower(tower: Tower, alone: Estimate) -> PartOfStep:
    """What a tower adds to the step of the language model.

    Raises
    ------
    IllegalPlan
        for a tower that can't be split so
    """
    work = tower_work(tower, alone.plan)
    training = estimate(tower.model, alone.cluster, work.plan, framework=alone.framework)
    made = training
    if not tower.trains:
        made = estimate(tower.model, alone.cluster, passed_through(work.plan), framework=alone.framework)
    bill, connector = made.memory, _connector_time(tower, work, made)
    between = (tower.connector_weights + tower.connector_others) * states_of(training)  # connectors train, whatever towers do
    return PartOfStep(
        name="tower", trains=tower.trains, parameters=tower.parameters, estimate=made, connector_time=connector,
        time=connector + (made.step_time if tower.trains else forward_time(made)),
        gradient_exchange=made.times["gradient_exchange"] if tower.trains else 0.0,
        states=between * tower.tensor_parallel / tower.model.parameters + states_of(made),
        activations=work.held * bill.activations if tower.trains else 0.0,
    )  # fmt: skip


def states_of(made: Estimate) -> float:
    """Weights, gradients and optimizer states on a GPU [bytes]."""
    return made.memory.weights + made.memory.gradients + made.memory.optimizer


def _connector_time(tower: Tower, work: TowerWork, made: Estimate) -> float:
    """Time of the products between a tower and the language model in a step, forward and back [s]."""
    device = made.cluster.device
    dtype = device.usual_dtype
    return 6.0 * tower.connector_weights * work.connected / (device.peak(dtype) * device.efficiency.gemm[dtype])


def _memory(alone: Estimate, towers: Sequence[PartOfStep]) -> float:
    """Of the fullest GPU: in the language model's passes, or in those of the tower that needs most [bytes]."""
    bill = alone.memory
    states, kept = sum(part.states for part in towers), sum(part.activations for part in towers)
    passing = bill.total - bill.activations - bill.temporaries - bill.logits
    working = max(
        kept * part.trains + part.estimate.memory.temporaries + part.estimate.memory.buffers
        + (0.0 if part.trains else part.estimate.memory.activations / part.estimate.model.layers)
        for part in towers
    )  # fmt: skip
    return float(states + max(bill.total + kept, passing + working))

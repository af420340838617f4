"""Post-training: a step of reinforcement learning or of preferences, by what it is made of."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import NamedTuple

from costmodel.catalogue.asking import ModelLike, asked
from costmodel.catalogue.clusters import ClusterLike
from costmodel.catalogue.keywords import by_other_names
from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.description.judgement import JUDGED
from costmodel.description.plan import Plan
from costmodel.description.topology import Group
from costmodel.description.transformer import Transformer
from costmodel.evaluation.collectives import collective_time
from costmodel.evaluation.estimation import Estimate, estimate, title
from costmodel.evaluation.first_contacts import Error
from costmodel.formulas.systems import generation
from costmodel.formulas.transformer import parameters
from costmodel.text.checks import choice, flag, kind, positive_int, real, whole
from costmodel.text.errors import InvalidValue
from costmodel.text.results import brief, figure
from costmodel.text.tables import headed, table
from costmodel.text.units import format_bytes, format_seconds
from costmodel.training.passes import forward_time
from costmodel.training.towers import passed_through, states_of

KERNELS = 9.0
"""Kernels of a layer that decodes: two norms, four products, rotation, attention, activation; in a graph, launched at once."""
HOST_TIME = 2e-3
"""Seconds between two steps in which the host samples and schedules: assumed."""
MEMORY_SHARE = 0.9
"""Of a GPU's memory that whoever generates may fill: vLLM's `gpu_memory_utilization` by default."""
GENERATION_SPREAD = 0.35
"""Standard deviation of the logarithm of the time to generate: a prior, as nothing of it is calibrated."""
UNCOUNTED = 0.3
"""Median of log(measured / predicted) of the twelve steps that NeMo RL v0.4 and v0.6 publish for H100
(docs/about/performance-summary.md), seen after the formulas were written: waiting for the slowest replica, the loop in Python,
the conversion of weights. Only the interval moves by it."""
SHORTER = 4
"""Times as long as the mean sample is taken to be the longest, where nothing says."""
DIVISIBLE = 64
"""Lengths are rounded up to a multiple of it."""


class PostTrainingTraits(NamedTuple):
    """What a step of an algorithm does besides its updates."""

    generates: bool  # whether answers are sampled from the policy in each step
    sequences: int  # of a sample: chosen and rejected are two
    policy_passes: float  # policy_passes, reference_passes: forward passes over all samples before the updates
    reference_passes: float
    critic: bool  # whether a second model of the policy's size is asked and trained


ALGORITHMS = {
    "grpo": PostTrainingTraits(True, 1, 1.0, 1.0, False),  # [shao2024]_
    "ppo": PostTrainingTraits(True, 1, 1.0, 1.0, True),  # [schulman2017]_, [sheng2025]_ figure 1
    "rloo": PostTrainingTraits(True, 1, 0.0, 1.0, False),
    "dpo": PostTrainingTraits(False, 2, 0.0, 1.0, False),  # [rafailov2023]_ eq. 7
    # both models also pass over every prompt with another sample's answer: huggingface/trl@f2cd5771 trl/trainer/kto_trainer.py
    # ``_compute_kl_logps``, ``compute_ref_log_probs``
    "kto": PostTrainingTraits(False, 1, 1.0, 2.0, False),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rollouts:
    """Answers that a step of post-training samples or is given, and who samples them.

    Parameters
    ----------
    samples : of a step, over all prompts; pairs of a preference
    mean_length : tokens of a sample, its prompt among them
    max_length : of the longest; of the plan's sequences if not given
    prompt_length : tokens of a sample that are given
    tensor_parallel : GPUs that share one copy of the policy while it generates; the fewest that hold it if not given
    cluster : GPUs of their own for generation; None: those that train take turns
    tokens_per_second : that a GPU decodes, measured; by closed form if not given
    weight_bytes : of a weight while generating [bytes]
    """

    samples: int
    mean_length: float
    max_length: int | None = None
    prompt_length: float = 0.0
    tensor_parallel: int | None = None
    cluster: Cluster | None = None
    tokens_per_second: float | None = None
    weight_bytes: float = 2.0

    __repr__ = brief

    def __post_init__(self) -> None:
        positive_int("samples", self.samples, 10**9)
        if self.max_length is not None:
            positive_int("max_length", self.max_length, 10**8)
        real("mean_length", self.mean_length, 1.0, float(self.max_length or 10**8))
        real("prompt_length", self.prompt_length, 0.0, self.mean_length)
        if self.tensor_parallel is not None:
            positive_int("tensor_parallel", self.tensor_parallel, 10**4)
        real("weight_bytes", self.weight_bytes, 0.25, 4.0)
        if self.cluster is not None:
            kind("cluster", self.cluster, Cluster, "load_cluster(...)")
        if self.tokens_per_second is not None:
            real("tokens_per_second", self.tokens_per_second, 1e-3, 1e9)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Generation:
    """What it takes to sample the answers of a step."""

    time: float  # from the first prompt to the last token [s]
    gpus: int  # that generate
    tensor_parallel: int  # GPUs that share a copy of the policy
    tokens: float  # decoded
    memory: float  # of a GPU: its share of the weights, and the cache of the sequences that it decodes at once [bytes]
    at_once: float  # sequences that a copy of the policy has memory for
    fits: bool  # whether there is memory for one

    __repr__ = brief

    @property
    def tokens_per_second(self) -> float:
        """Decoded by a GPU."""
        return self.tokens / (self.gpus * self.time) if self.time else 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class PostTraining:
    """Where the time of a step of post-training goes, and what it holds.

    Parameters
    ----------
    algorithm : its name
    update : estimate of one update of the policy
    updates : of a step
    generation : of the answers; None where none are sampled
    beside : weights and states of other models that stay on a training GPU: of a reference, a critic, a reward model [bytes]
    parts : names and times of what it does [s]; with `off_policy` answers they overlap, and add up to more than the step
    step_time : from one step to the next [s]
    gpus : of training, and of generation where it has its own
    tokens : of all samples of a step
    why : what the step waits for, in one line
    """

    algorithm: str
    update: Estimate
    updates: float
    generation: Generation | None
    beside: float
    parts: tuple[tuple[str, float], ...]
    step_time: float
    gpus: int
    tokens: float
    why: str

    plot = figure

    def __repr__(self) -> str:
        parts = ", ".join(f"{name} {format_seconds(time)}" for name, time in sorted(self.parts, key=lambda one: -one[1]) if time)
        return headed(f"PostTraining: {self.said()}", title(self.update), parts, self.why)

    def _repr_html_(self) -> str:
        total = sum(time for _, time in self.parts)
        rows = [(name, format_seconds(time), f"{100 * time / total:.1f} %") for name, time in self.parts]
        return table(self.said(), ("part", "time", "share"), rows, f"{title(self.update)}; {self.why}")

    def said(self) -> str:
        """What a step is and how long it takes, in a line."""
        low, high = self.time_interval
        within = f"{format_seconds(low)} to {format_seconds(high)} with 90 % probability"
        return f"a step of {self.algorithm} takes {format_seconds(self.step_time)}, {within}"

    @property
    def times(self) -> dict[str, float]:
        """The parts by their names [s]."""
        return dict(self.parts)

    @property
    def tokens_per_second_per_gpu(self) -> float:
        """Tokens of samples over the step and all GPUs [1/s]."""
        return self.tokens / (self.step_time * self.gpus)

    @property
    def memory(self) -> float:
        """Of a training GPU, in an update [bytes]."""
        return float(self.update.memory.total) + self.beside

    @property
    def fits(self) -> bool:
        """Whether both the updates, with what is held beside them, and the generation have the memory they need."""
        return self.memory <= self.update.memory_limit and (self.generation is None or self.generation.fits)

    @property
    def error(self) -> Error:
        """Of the step: training as its estimate has it, generation by a prior."""
        total = sum(self.times.values())
        generating = self.times.get("generation", 0.0) / total
        own = self.update.time_error
        spread = math.hypot((1.0 - generating) * own.deviation, generating * GENERATION_SPREAD)
        if "generation" not in self.times:
            return own
        return Error(spread, UNCOUNTED, tails=False)

    @property
    def time_interval(self) -> tuple[float, float]:
        """90 % interval of the step [s]."""
        return self.error.interval(self.step_time)

    def to_dict(self) -> dict[str, object]:
        """Flat names with units, for JSON and frames."""
        low, high = self.time_interval
        made = self.generation
        row: dict[str, object] = {
            "algorithm": self.algorithm, "step_time_s": self.step_time, "step_time_low_s": low, "step_time_high_s": high,
            "gpus": self.gpus, "tokens": self.tokens, "tokens_per_second_per_gpu": self.tokens_per_second_per_gpu,
            "updates": self.updates, "fits": self.fits, "why": self.why,
        }  # fmt: skip
        row |= {f"{part}_s": time for part, time in self.times.items()}
        row |= {"training_memory_bytes": self.memory, "models_beside_bytes": self.beside}
        if made is not None:
            row |= {"generation_gpus": made.gpus, "generation_tensor_parallel": made.tensor_parallel,
                    "generation_memory_bytes": made.memory, "sequences_at_once": made.at_once,
                    "decoded_tokens_per_second_per_gpu": made.tokens_per_second}  # fmt: skip
        return row


@by_other_names()
def post_training(
    model: ModelLike, cluster: ClusterLike | None = None, plan: Plan | None = None, rollouts: Rollouts | None = None, *,
    algorithm: str = "grpo", framework: Framework | str | None = None, epochs: int = 1, off_policy: bool = False,
    packed: bool = True, offload_states: bool = True, reward_time: float = 0.0, reward_model: ModelLike | None = None,
    fit_probability: float = JUDGED, **choices: object,
) -> PostTraining:  # fmt: skip
    """A step of reinforcement learning, or of preferences: generation, passes before the updates, updates, new weights.

    Updates are training steps as `estimate` has them. Passes without gradients take the share that forward passes have in an
    update's, bubble and exchanges included. Answers are decoded by continuous batching, in closed form
    (`costmodel.formulas.systems.generation`), unless their rate was measured. GPUs that take turns move weights, gradients
    and optimizer states to the host and back; GPUs of their own wait, unless answers may be one step old. Models that aren't
    updated keep their weights beside the policy, and a critic all of its states, unless they leave the GPU, too, while others
    have their turn; adapters' reference is the policy without them.

    Parameters
    ----------
    model : the policy, or its name; reference and critic are of its shape
    cluster : that trains, or what names it, as `costmodel.estimate` takes it
    plan : of an update: its global batch is the sequences of one, its length that of the longest; if None as the choices say it
    rollouts : samples of a step, and who generates them; if None those of one update, a quarter as long as the longest
    algorithm : one of `ALGORITHMS`
    framework : that trains, as of `costmodel.estimate`
    epochs : updates over the same samples
    off_policy : whether answers of the policy before this one will do, so that generation runs beside training
    packed : whether samples share a sequence; else each is padded to the longest
    offload_states : of GPUs that take turns, whether training's states leave the GPU while it generates
    reward_time : of a reward model elsewhere or a verifier, where the step waits for it [s]
    reward_model : that scores all samples in a forward pass on the GPUs that train, by their plan
    fit_probability : from which the updates, with what is held beside them, are judged to fit
    choices : fields of `Plan` and hardware, as of `costmodel.estimate`

    Returns
    -------
    PostTraining

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected
    IllegalPlan
        for a plan that can't run

    Examples
    --------
    >>> from costmodel import Plan, load_cluster, load_model
    >>> plan = Plan(global_batch=512, seq_len=4096, pipeline_parallel=2, recompute="full")
    >>> step = post_training(
    ...     load_model("llama3-8b"), load_cluster("dgx-h100", gpus=16), plan, Rollouts(samples=2048, mean_length=1060)
    ... )
    >>> list(step.times), step.fits
    (['generation', 'log probabilities', 'reference', 'updates', 'new weights', 'states to the host and back'], True)
    """
    _refuse_samples(choices)
    policy, cluster, plan, framework = asked(model, cluster, plan, framework, choices)
    rollouts = Rollouts(samples=plan.global_batch, mean_length=max(1.0, plan.seq_len / SHORTER)) if rollouts is None else rollouts
    kind("rollouts", rollouts, Rollouts, "Rollouts(samples=..., mean_length=...)")
    traits = ALGORITHMS[choice("algorithm", algorithm, tuple(ALGORITHMS))]
    for field, value in (("off_policy", off_policy), ("packed", packed), ("offload_states", offload_states)):
        flag(field, value)
    positive_int("epochs", epochs, 10**4)
    real("reward_time", reward_time, 0.0, 1e6)
    longest = _longest(rollouts, plan, off_policy, traits)
    sequences = rollouts.samples * traits.sequences
    asked_of = _of_samples(plan, rollouts.mean_length, longest, packed)
    update = estimate(policy, cluster, asked_of, framework=framework, fit_probability=fit_probability)
    updates = epochs * sequences / update.plan.global_batch
    whole("updates", round(updates), 10**9)
    once = sequences / update.plan.global_batch * forward_time(update)
    scoring = None
    if reward_model is not None:
        scoring = estimate(reward_model, cluster, passed_through(update.plan), framework=framework)
        reward_time += sequences / update.plan.global_batch * forward_time(scoring)
    made = _generated(policy, rollouts, rollouts.cluster or cluster, longest) if traits.generates else None
    training = {
        "log probabilities": traits.policy_passes * once, "reference": traits.reference_passes * once,
        "critic": (once + updates * update.step_time) if traits.critic else 0.0, "updates": updates * update.step_time,
    }  # fmt: skip
    in_turn = rollouts.cluster is None and offload_states
    turns = {} if made is None else {
        "new weights": _transferred(policy, rollouts, made, cluster),
        "states to the host and back": (1.0 + traits.critic) * in_turn * _moved(update),  # of models that make room
    }  # fmt: skip
    generating = {} if made is None else {"generation": made.time}
    parts = {**generating, "reward": reward_time, **training, **turns}
    times = {part: time for part, time in parts.items() if time > 0.0}
    step_time = sum(times.values())
    waiting = step_time - sum(generating.values()) - turns.get("new weights", 0.0)
    if off_policy and made is not None:
        step_time = max(made.time, waiting) + turns["new weights"]
    own = 0 if rollouts.cluster is None else int(rollouts.cluster.gpus or 0)
    return PostTraining(
        algorithm=algorithm, update=update, updates=updates, generation=made, parts=tuple(times.items()), step_time=step_time,
        gpus=update.plan.gpus + own, beside=0.0 if in_turn and traits.generates else _beside(update, traits, scoring),
        tokens=sequences * rollouts.mean_length, why=_why(times, made, off_policy, waiting),
    )  # fmt: skip


def _refuse_samples(choices: Mapping[str, object]) -> None:
    """Refuse what rollouts say, where the plan's choices stand."""
    for name in ("samples", "mean_length", "batching"):
        if choices.get(name) is not None:
            raise InvalidValue(name, choices[name], "rollouts=Rollouts(samples=..., mean_length=...) in its place")


def _longest(rollouts: Rollouts, plan: Plan, off_policy: bool, traits: PostTrainingTraits) -> int:
    """Tokens of the longest sample, of rollouts that a plan and an algorithm can have."""
    if plan.batching != "full":
        raise InvalidValue("batching", plan.batching, "'full': rollouts say how long samples are, and packed whether they share")
    longest = min(rollouts.max_length or plan.seq_len, plan.seq_len)
    if rollouts.mean_length > longest:
        raise InvalidValue("mean_length", rollouts.mean_length, f"at most the longest sample, {longest} tokens")
    if off_policy and (rollouts.cluster is None or not traits.generates):
        raise InvalidValue("off_policy", off_policy, "GPUs of their own that generate, in a step that generates")
    return longest


def _beside(update: Estimate, traits: PostTrainingTraits, scoring: Estimate | None) -> float:
    """What models other than the policy hold of a training GPU [bytes]."""
    held = 0.0
    if traits.reference_passes and update.plan.adapter == "none":
        frozen = estimate(update.model, update.cluster, passed_through(update.plan), framework=update.framework)
        held += float(frozen.memory.weights)
    if traits.critic:
        held += float(states_of(update))
    return held + (0.0 if scoring is None else float(scoring.memory.weights))


def _of_samples(plan: Plan, mean: float, longest: int, packed: bool) -> Plan:
    """The plan of an update: as many samples of mean length in a micro-batch as the longest has room for."""
    if not packed:
        return plan
    length = min(math.ceil(mean / DIVISIBLE) * DIVISIBLE, longest)
    return dataclasses.replace(plan, seq_len=length, micro_batch=_packed(plan, longest // length))


def _packed(plan: Plan, most: int) -> int:
    """Sequences of a micro-batch: at most so many times the plan's, so that they divide a replica's."""
    if plan.data_parallel is None:
        return plan.micro_batch
    own = plan.global_batch // plan.data_parallel
    return max(n for n in range(1, max(most, 1) * plan.micro_batch + 1) if own % n == 0 or n == plan.micro_batch)


class _Copy(NamedTuple):
    """One copy of the policy that generates, and what it and its sequences hold on each of its GPUs [bytes]."""

    model: Transformer
    cluster: Cluster
    split: int  # GPUs
    weight_bytes: float  # of a weight

    @property
    def cache(self) -> float:
        """Of a token's keys and values: heads are split as far as there are any; a latent is held by all."""
        numbers = self.model.numbers()
        attention = numbers.attention
        width = float(generation.key_value_width(
            numbers.layers * attention.share, attention.kv_heads, attention.head_dim, attention.value_head_dim,
            attention.kv_latent, attention.rope_head_dim,
        ))  # fmt: skip
        return 2.0 * width / (1.0 if attention.kv_latent else min(self.split, attention.split_kv_heads))

    @property
    def held(self) -> float:
        """Of its weights."""
        return self.weight_bytes * self.model.parameters / self.split

    @property
    def usable(self) -> float:
        """That it may fill."""
        return MEMORY_SHARE * float(self.cluster.device.usable_memory or self.cluster.device.memory)

    def at_once(self, length: float) -> float:
        """Sequences that there is memory for."""
        return max((self.usable - self.held) / (self.cache * length), 0.0)

    def decode_time(self, rollouts: Rollouts, longest: int, sequences: float) -> float:
        """Time in which it decodes so many sequences [s]."""
        numbers, device = self.model.numbers(), self.cluster.device
        experts, decoded = numbers.experts, rollouts.mean_length - rollouts.prompt_length
        at_once = max(self.at_once(rollouts.mean_length), 1.0)
        steps = float(generation.decode_steps(sequences, at_once, decoded, longest - rollouts.prompt_length))
        together = sequences * decoded / steps  # sequences of a step, mean
        routed = float(experts.layers * parameters.expert_parameters(numbers))
        reached = device.memory_bandwidth * device.efficiency.product_memory
        exchange = 0.0
        if self.split > 1:
            nbytes = 2.0 * max(together, 1.0) * self.model.hidden
            exchange = collective_time("all-reduce", nbytes, Group(ranks=self.split), self.cluster).time
        floor = float(generation.decode_floor(
            self.held - self.weight_bytes * routed / self.split, self.weight_bytes * routed / self.split,
            generation.experts_read(experts.number, experts.per_token, together), reached, numbers.layers, KERNELS,
            device.efficiency.kernel_time, exchange, HOST_TIME,
        ))  # fmt: skip
        rate = device.peak(device.usual_dtype) * device.efficiency.gemm[device.usual_dtype]
        context = self.cache * (rollouts.prompt_length + decoded / 2.0)
        each = float(generation.token_time(2.0 * self.model.active_parameters / self.split, rate, context, reached))
        return float(generation.generation_time(steps, floor, sequences * decoded, each))


def _generated(model: Transformer, rollouts: Rollouts, cluster: Cluster, longest: int) -> Generation:
    """Decoding of a step's answers over all GPUs."""
    gpus = int(cluster.gpus or 1)
    copy = _copy(model, rollouts, cluster, gpus, longest)
    tokens = rollouts.samples * (rollouts.mean_length - rollouts.prompt_length)
    sequences = rollouts.samples / (gpus // copy.split)
    at_once = copy.at_once(rollouts.mean_length)
    if rollouts.tokens_per_second is None:
        time = copy.decode_time(rollouts, longest, sequences)
    else:
        time = tokens / (gpus * rollouts.tokens_per_second)
    return Generation(
        time=time, gpus=gpus, tensor_parallel=copy.split, tokens=tokens, at_once=at_once,
        memory=copy.held + copy.cache * rollouts.mean_length * min(sequences, at_once), fits=copy.at_once(longest) >= 1.0,
    )  # fmt: skip


def _copy(model: Transformer, rollouts: Rollouts, cluster: Cluster, gpus: int, longest: int) -> _Copy:
    """A copy as it was asked for, or on the fewest GPUs that have room for its longest sequence."""
    if (split := rollouts.tensor_parallel) is not None:
        if gpus % split:
            raise InvalidValue("tensor_parallel", split, f"a divisor of the {gpus} GPUs that generate")
        return _Copy(model, cluster, split, rollouts.weight_bytes)
    splits = [2**power for power in range(gpus.bit_length()) if gpus % 2**power == 0]
    copies = [_Copy(model, cluster, split, rollouts.weight_bytes) for split in splits]
    return next((copy for copy in copies if copy.at_once(longest) >= 1.0), copies[-1])


def _transferred(model: Transformer, rollouts: Rollouts, made: Generation, cluster: Cluster) -> float:
    """Time in which new weights reach those who generate [s]."""
    slowest = min(level.bandwidth for level in cluster.levels)
    return float(generation.transfer_time(rollouts.weight_bytes * model.parameters, float(made.tensor_parallel), slowest))


def _moved(update: Estimate) -> float:
    """Time in which the states of training go to the host and come back [s]."""
    bill = update.memory
    return 2.0 * float(bill.gradients + bill.optimizer) / update.cluster.device.host_bandwidth


def _why(times: dict[str, float], made: Generation | None, off_policy: bool, waiting: float) -> str:
    part = max(times, key=lambda name: times[name])
    share = times[part] / sum(times.values())
    if made is not None and not made.fits:
        return f"the policy doesn't fit where it generates: {format_bytes(made.memory)} a GPU"
    if off_policy and made is not None:
        return "training waits for answers" if made.time > waiting else "answers wait for training"
    return f"{part} takes {100 * share:.0f} % of the step"

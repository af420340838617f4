"""A pipeline played out event by event: where each rank works, waits and sends, and what it holds."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costmodel.arithmetic.named_tuples import as_number
from costmodel.catalogue.keywords import by_other_names
from costmodel.description.schedule import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    KINDS,
    MOST,
    SEND_BACKWARD,
    SEND_FORWARD,
    SYNC,
    Schedule,
    custom_schedule,
    deadlocked,
    pipeline_schedule,
)
from costmodel.evaluation.estimation import estimate
from costmodel.formulas.network import communication
from costmodel.formulas.pipeline import layout, schedules
from costmodel.formulas.pipeline.schedules import SCHEDULES
from costmodel.formulas.quantities import Inputs, ModelNumbers, PlanNumbers, Settings, Software
from costmodel.formulas.stage import outside_passes, stage_pass
from costmodel.formulas.transformer import memory
from costmodel.simulation.pipeline_kernel import PipelineProgram, played
from costmodel.text.checks import choice, kind, plain, positive_int, real, whole
from costmodel.text.errors import InvalidValue
from costmodel.text.results import figure
from costmodel.text.tables import headed, table
from costmodel.text.units import format_seconds

if TYPE_CHECKING:
    import pandas

    from costmodel.catalogue.asking import ModelLike
    from costmodel.catalogue.clusters import ClusterLike
    from costmodel.description.framework import Framework
    from costmodel.description.plan import Plan
    from costmodel.description.transformer import Transformer

Floats = NDArray[np.float64]
LONGEST, MOST_BYTES = 1e6, 1e18
MOST_EVENTS = 2_000_000
"""Of a plan that is played: seconds of work."""
MOST_SEARCHED_RANKS, MOST_SEARCHED = 1_000, 100_000
"""Ranks of an order that is searched, and micro-batches of all of them together: two seconds of work."""
SENDS = ("non-blocking", "blocking", "rendezvous")
"""What a rank waits for when it sends, in the order of the codes of `costmodel.simulation.pipeline_kernel`."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Timeline:
    """A schedule with the start and end of each of its events.

    Parameters
    ----------
    schedule : what was played
    start, end : of each event [s]; of a send, of its time on the link and of its arrival; of a receive, of the wait
    work : time that each pass and sync takes of itself [s]
    held_bytes : that each event adds to what its rank holds of activations, at the start of forward passes and at the end
        of backward passes [bytes]
    """

    schedule: Schedule
    start: Floats
    end: Floats
    work: Floats
    held_bytes: Floats

    plot = figure

    def __repr__(self) -> str:
        return headed(*self._said())

    def _repr_html_(self) -> str:
        rows = [
            [
                str(rank), format_seconds(float(self.busy[rank])), format_seconds(float(self.bubble[rank])),
                f"{float(self.in_flight[rank]):g}",
            ]
            for rank in range(self.schedule.ranks)
        ]  # fmt: skip
        return table(": ".join(self._said()), ["rank", "busy", "bubble", "micro-batches in flight"], rows)

    def _said(self) -> tuple[str, str]:
        """What it is of, and what came out."""
        order = self.schedule
        return (
            f"Timeline: {order.name}, {order.ranks} ranks, {order.micro_batches} micro-batches, {len(self.start):,} events",
            f"{format_seconds(self.total)} in all, bubble {100 * self.bubble_rate:.1f} % of {format_seconds(self.period)}"
        )

    @property
    def total(self) -> float:
        """From the first start to the last end [s]."""
        return float(self.end.max())

    @functools.cached_property
    def busy(self) -> Floats:
        """Time that each rank computes or syncs [s]."""
        return np.add.reduceat(np.append(self.work, 0.0), self.schedule.offsets[:-1]) * (np.diff(self.schedule.offsets) > 0)

    @functools.cached_property
    def span(self) -> Floats:
        """From each rank's first pass to its last end [s]."""
        passes = np.flatnonzero(self.schedule.kind <= BACKWARD)
        first = np.full(self.schedule.ranks, np.inf)
        last = np.zeros(self.schedule.ranks)
        np.minimum.at(first, self.schedule.rank[passes], self.start[passes])
        local = (self.schedule.kind <= BACKWARD) | (self.schedule.kind == SYNC)
        np.maximum.at(last, self.schedule.rank[local], self.end[local])
        return np.where(np.isfinite(first), last - np.minimum(first, last), 0.0)

    @property
    def period(self) -> float:
        """The longest span [s]: from step to step, where a rank begins the next as soon as it has ended one.

        This is the cost of a schedule in zero-bubble papers [qi2023]_. Where the first rank is also the last to end, as
        in all schedules that wait for all ranks before the optimizer, it is `total`.
        """
        return float(self.span.max())

    @property
    def step_time(self) -> float:
        """Of each of many such steps [s]: `total`, or `period` where the optimizer waits for no other stage."""
        traits = SCHEDULES.get(self.schedule.name)
        return self.period if traits is not None and traits.asynchronous else self.total

    @property
    def bubble(self) -> Floats:
        """Time of a period that each rank neither computes nor syncs [s]."""
        return self.period - self.busy

    @property
    def bubble_rate(self) -> float:
        """Share of a period that the ranks neither compute nor sync, on average; 0 where nothing takes time."""
        return float(self.bubble.mean() / self.period) if self.period else 0.0

    @property
    def in_flight(self) -> Floats:
        """Micro-batches that each rank holds at its fullest, in units of its whole depth."""
        return self.schedule.in_flight

    @functools.cached_property
    def peak_bytes(self) -> Floats:
        """Activations that each rank holds at its fullest [bytes]."""
        return self.schedule.peak(self.held_bytes)

    def held(self, rank: int) -> tuple[Floats, Floats]:
        """When what a rank holds changes [s], and what it holds from then on [bytes]."""
        return self._changes(rank, self.held_bytes)

    def held_micro_batches(self, rank: int) -> tuple[Floats, Floats]:
        """When what a rank holds changes [s], and what it holds from then on, as `in_flight` counts."""
        return self._changes(rank, self.schedule.changes / self.schedule.chunks)

    def _changes(self, rank: int, change: Floats) -> tuple[Floats, Floats]:
        number = whole("rank", plain(rank), self.schedule.ranks - 1)
        first, last = self.schedule.offsets[number : number + 2]
        events = first + np.flatnonzero(change[first:last])
        grows = change[events] > 0.0
        return np.where(grows, self.start[events], self.end[events]), np.cumsum(change[events])

    @property
    def columns(self) -> dict[str, NDArray[np.generic]]:
        """Of every event: rank, kind, stage, micro-batch, start and end, units in the names."""
        return {
            "rank": self.schedule.rank, "kind": np.asarray(KINDS)[self.schedule.kind], "stage": self.schedule.stage,
            "micro_batch": self.schedule.micro_batch, "start_s": self.start, "end_s": self.end,
        }  # fmt: skip

    def frame(self) -> pandas.DataFrame:
        """Every event in a row: rank, kind, stage, micro-batch, start and end."""
        import pandas

        return pandas.DataFrame(self.columns)


def _each(field: str, value: ArrayLike, length: int, most: float, of: str = "stages") -> Floats:
    """`value` as a column of finite numbers from 0 to `most`: one for all, or one for each."""
    if np.isscalar(value):
        return np.full(length, real(field, plain(value), 0.0, most))
    wanted = f"a number or {length} numbers from 0 to {most:g}, one for each of the {of}"
    return _table(field, value, (length,), "iuf", most, wanted).astype(np.float64)


def _table(field: str, value: ArrayLike, shape: tuple[int, ...], kinds: str, most: float, wanted: str) -> NDArray[np.generic]:
    """`value` as an array of a shape, of some of NumPy's kinds of numbers, from 0 to `most`, no bool among them."""
    shown = value.tolist() if isinstance(value, np.ndarray) else value
    try:
        table = np.asarray(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidValue(field, shown, wanted) from None
    if table.shape != shape or table.dtype.kind not in kinds or not ((table >= 0) & (table <= most)).all():
        raise InvalidValue(field, shown, wanted)
    if not isinstance(value, np.ndarray) and any(isinstance(one, bool | np.bool_) for one in np.asarray(value, object).flat):
        raise InvalidValue(field, shown, wanted)
    return table


def simulate_schedule(
    schedule: Schedule, forward: ArrayLike, backward_input: ArrayLike, backward_weight: ArrayLike = 0.0, *,
    transfer_latency: float = 0.0, transfer_bytes: ArrayLike = 0.0, transfer_bandwidth: float = math.inf,
    links: ArrayLike | None = None, sends: str = "non-blocking", exposed: float = 0.0, sync: ArrayLike = 0.0,
    jitter: float = 0.0, seed: int = 0, activation_bytes: ArrayLike = 1.0, context_bytes: ArrayLike | None = None,
) -> Timeline:  # fmt: skip
    """Play a schedule out, event by event.

    A receive ends when the transfer has arrived: `transfer_latency` after it has left its link, which it holds for
    `transfer_bytes` / `transfer_bandwidth`. A link carries one transfer at a time, in the order of asking.

    Parameters
    ----------
    schedule : what each rank does
    forward, backward_input, backward_weight : of one micro-batch on each stage [s]; a whole backward pass takes both
    transfer_latency : of a transfer between ranks [s]
    transfer_bytes : between each stage and the next [bytes]
    transfer_bandwidth : of a link, one direction [bytes/s]
    links : number of the link from each rank to each, ranks x ranks, from 0; each pair has its own if None
    sends : ``"non-blocking"``: they go on beside what follows; ``"blocking"``: the sender waits for the arrival;
        ``"rendezvous"``: a rank waits until all its transfers between two passes have met their other end and are done,
        as Megatron-LM's batches of sends and receives do for 1F1B
    exposed : share of its time for which a non-blocking send keeps its sender from what follows
    sync : of each stage, once all its ranks are there [s]
    jitter : standard deviation of the logarithm of each pass' time, whose mean stays
    seed : of the jitter
    activation_bytes : that a forward pass of each stage leaves for its backward pass [bytes]
    context_bytes : of these, what stays between the backward pass by inputs and by weights; all of them if None [bytes]

    Returns
    -------
    Timeline
        start and end of every event [s]

    Raises
    ------
    InvalidValue
        where an argument is not what it should be
    IllegalSchedule
        naming the rank and the event, where the schedule deadlocks

    References
    ----------
    [qi2023]_ section 5.3: a receive starts when the transfer has arrived, sends don't wait

    Examples
    --------
    >>> from costmodel.description.schedule import pipeline_schedule
    >>> played = simulate_schedule(pipeline_schedule("1f1b", stages=4, micro_batches=8), 1.0, 1.0, 1.0)
    >>> played.total, played.bubble.tolist()
    (33.0, [9.0, 9.0, 9.0, 9.0])
    """
    kind("schedule", schedule, Schedule, "pipeline_schedule(name, ...)")
    stages, ranks = schedule.stages, schedule.ranks
    times = np.zeros((len(KINDS), stages))
    times[FORWARD] = _each("forward", forward, stages, LONGEST)
    times[BACKWARD_INPUT] = _each("backward_input", backward_input, stages, LONGEST)
    times[BACKWARD_WEIGHT] = _each("backward_weight", backward_weight, stages, LONGEST)
    times[BACKWARD] = times[BACKWARD_INPUT] + times[BACKWARD_WEIGHT]
    times[SYNC] = _each("sync", sync, stages, LONGEST)
    duration = times[schedule.kind, schedule.stage]
    spread = real("jitter", plain(jitter), 0.0, 10.0)
    start_at = whole("seed", plain(seed), 2**63 - 1)
    if spread:
        draws = np.random.default_rng(start_at).standard_normal(len(duration))
        duration = np.where(schedule.kind <= BACKWARD, duration * np.exp(spread * draws - 0.5 * spread**2), duration)

    moved = _each("transfer_bytes", transfer_bytes, max(stages - 1, 1), MOST_BYTES, "boundaries between stages")
    bandwidth = plain(transfer_bandwidth)
    if bandwidth != math.inf:
        bandwidth = real("transfer_bandwidth", bandwidth, 1.0, MOST_BYTES)
    sent = np.isin(schedule.kind, (SEND_FORWARD, SEND_BACKWARD))
    boundary = np.clip(schedule.stage - (schedule.kind == SEND_BACKWARD), 0, max(stages - 2, 0))
    occupancy = np.where(sent, moved[boundary] / bandwidth, 0.0)
    latency = np.where(sent, real("transfer_latency", plain(transfer_latency), 0.0, LONGEST), 0.0)
    kept = real("exposed", plain(exposed), 0.0, 1.0) * (occupancy + latency)
    receiver = schedule.rank[np.where(sent, schedule.match, 0)]
    if links is None:
        _, link = np.unique(schedule.rank * ranks + receiver, return_inverse=True)
        count = int(link.max()) + 1
    else:
        table = _links(links, ranks)
        link, count = table[schedule.rank, receiver], int(table.max()) + 1
    groups = np.bincount(schedule.match[schedule.kind == SYNC], minlength=1)

    events = (schedule.offsets, schedule.kind, schedule.match, schedule.rank)
    program = PipelineProgram(*events, link, duration, occupancy, latency, kept, groups)
    start, end, cursor = played(program, count, SENDS.index(choice("sends", sends, SENDS)))
    deadlocked(schedule, cursor.tolist())
    held = _held(schedule, activation_bytes, context_bytes)
    return Timeline(schedule=schedule, start=start, end=end, work=duration, held_bytes=held)


def _links(links: ArrayLike, ranks: int) -> NDArray[np.int64]:
    wanted = f"{ranks} x {ranks} numbers of links, whole, from 0 to {MOST}"
    return _table("links", links, (ranks, ranks), "iu", MOST, wanted).astype(np.int64)


def _held(schedule: Schedule, activation_bytes: ArrayLike, context_bytes: ArrayLike | None) -> Floats:
    """What each event adds to the activations on its rank [bytes]."""
    whole_bytes, kept = _activations(activation_bytes, context_bytes, schedule.stages)
    change = np.zeros((len(KINDS), schedule.stages))
    change[FORWARD], change[BACKWARD] = whole_bytes, -whole_bytes
    change[BACKWARD_INPUT], change[BACKWARD_WEIGHT] = kept - whole_bytes, -kept
    return change[schedule.kind, schedule.stage]


def _activations(activation_bytes: ArrayLike, context_bytes: ArrayLike | None, stages: int) -> tuple[Floats, Floats]:
    """What a forward pass leaves on each stage, and what of it stays between the halves of the backward pass [bytes]."""
    held = _each("activation_bytes", activation_bytes, stages, MOST_BYTES)
    kept = held if context_bytes is None else _each("context_bytes", context_bytes, stages, MOST_BYTES)
    if (kept > held).any():
        raise InvalidValue("context_bytes", context_bytes, "no more than activation_bytes, of which they are a part")
    return held, kept


def zero_bubble_schedule(
    *, stages: int, micro_batches: int, forward: ArrayLike, backward_input: ArrayLike, backward_weight: ArrayLike,
    transfer_latency: float = 0.0, memory_limit: ArrayLike | None = None, activation_bytes: ArrayLike = 1.0,
    context_bytes: ArrayLike | None = None,
) -> Schedule:  # fmt: skip
    """Search an order of passes for given times that leaves little bubble within a memory limit.

    The heuristic of the zero-bubble paper: as many forward passes ahead of the first backward pass as memory takes, then
    one forward and one backward pass in turn, weight passes where a rank would wait or has no memory left. Three choices
    are tried both ways, and the shortest of the eight orders is taken; none is proved to be the best there is.

    Parameters
    ----------
    stages, micro_batches : of the pipeline
    forward, backward_input, backward_weight : of one micro-batch on each stage [s]
    transfer_latency : between ranks [s]
    memory_limit : of the activations on each rank [bytes]; none if None. `stages` times `activation_bytes` is the memory
        of 1F1B, and ZB-1p of the paper; twice that is ZB-2p
    activation_bytes : that a forward pass leaves for its backward pass [bytes]
    context_bytes : of these, what stays between the backward pass by inputs and by weights; all of them if None [bytes]

    Returns
    -------
    Schedule
        with backward passes in halves

    Raises
    ------
    InvalidValue
        where an argument is not what it should be, with more than `MOST_SEARCHED_RANKS` stages or `MOST_SEARCHED`
        micro-batches of all stages together, or where the limit takes not even one micro-batch

    References
    ----------
    [qi2023]_ section 3.1

    Examples
    --------
    >>> order = zero_bubble_schedule(stages=4, micro_batches=12, forward=1.0, backward_input=1.0, backward_weight=1.0)
    >>> simulate_schedule(order, 1.0, 1.0, 1.0).bubble_rate
    0.0
    """
    from costmodel.simulation.zero_bubble_kernel import search

    p = positive_int("stages", plain(stages), MOST_SEARCHED_RANKS)
    m = positive_int("micro_batches", plain(micro_batches), MOST_SEARCHED // p)
    times = np.stack(
        [
            _each("forward", forward, p, LONGEST), _each("backward_input", backward_input, p, LONGEST),
            _each("backward_weight", backward_weight, p, LONGEST),
        ]
    )  # fmt: skip
    held, kept = _activations(activation_bytes, context_bytes, p)
    limit = np.full(p, np.inf) if memory_limit is None else _each("memory_limit", memory_limit, p, MOST_BYTES)
    latency = real("transfer_latency", plain(transfer_latency), 0.0, LONGEST)
    sizes = np.stack([held, kept - held, -kept])
    best, shortest = None, math.inf
    for early, patient, greedy in itertools.product((True, False), repeat=3):
        order = np.zeros((p, 3 * m), dtype=np.int64)
        span = search(m, times, sizes, limit, latency, early, patient, greedy, order)
        if 0.0 <= span < shortest:
            best, shortest = order, span
    if best is None:
        raise InvalidValue("memory_limit", memory_limit, "room for the activations of at least one micro-batch on each rank")
    return custom_schedule([_numbered(codes.tolist(), stage) for stage, codes in enumerate(best)], name="zero-bubble")


def _numbered(codes: list[int], stage: int) -> list[tuple[int, int, int]]:
    """Passes of a rank from their kinds: each kind takes its micro-batches in order."""
    kinds = (FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT)
    following = [itertools.count() for _ in kinds]
    return [(kinds[code], stage, next(following[code])) for code in codes]


def stage_layers(layers: int, stages: int, plan: PlanNumbers, model: ModelNumbers, settings: Settings) -> Floats:
    """Layers on each stage of the chain, as `costmodel.formulas.pipeline.layout.stage_layers` deals them to its ranks."""
    if schedules.v_shaped(plan.schedule) > 0.0 and schedules.bidirectional(plan.schedule) == 0.0 and plan.pipeline > 1.0:
        ranks = [int(count) for count in layout.rank_layers(model, settings, plan)[:2]]  # a valley, down and up again
        down = [ranks[0] - ranks[0] // 2, *[ranks[1] - ranks[1] // 2] * (stages // 2 - 1)]
        return np.array([*down, *[ranks[1] // 2] * (stages // 2 - 1), ranks[0] // 2], dtype=np.float64)
    chain = plan._replace(pipeline=float(stages), virtual_stages=1.0)
    first, middle, last = layout.stage_layers(model, settings, chain)
    if settings.framework.balanced_stages > 0.0:
        ends = [layout.dealt_layers(model, chain, float(stage)) for stage in range(1, stages)]
        return np.diff([0.0, *ends, float(layers)])
    least = 0.0 if plan.virtual_stages > 1.0 else 1.0  # of many chunks the embedding or the head may be one alone
    if min(first, last) < least:  # two chunks a rank where only one would fit evenly: as even as whole layers go
        return np.diff(np.linspace(0, layers, stages + 1).round())
    return np.array([first, *[middle] * (stages - 2), last][:stages] if stages > 1 else [layers], dtype=np.float64)


def kept_by_stages(model: Transformer, layers: Floats, settings: Settings, plan: PlanNumbers, software: Software) -> Floats:
    """Bytes on the device that each stage of the chain keeps of a micro-batch for its backward pass, by the layers that it has.

    Parameters
    ----------
    model : what is trained
    layers : of each stage, as `stage_layers` has them
    """
    before = np.cumsum([0, *map(model.has_experts, range(model.layers))], dtype=np.int64)
    experts = np.diff(before[np.cumsum([0, *layers], dtype=np.int64)])
    kinds = memory.layer_kinds(model.numbers(), settings, plan, software)
    kept = (layers - experts) * kinds.dense.kept + experts * kinds.expert.kept
    return np.asarray((1.0 - settings.offload.activations) * kept, dtype=np.float64)


def schedule_of(plan: Plan, layers: int, syncs: bool = False, micro_batches: int | None = None) -> Schedule:
    """The schedule that a plan runs, refused where a stage would have no layer; of many chunks the ends may have none.

    Parameters
    ----------
    plan : with its schedule
    layers : of the model
    syncs : whether ranks synchronise at the ends of their stages
    micro_batches : that run through it, where not all of the plan's do
    """
    many = plan.micro_batches if micro_batches is None else micro_batches
    return pipeline_schedule(
        str(plan.schedule), stages=plan.pipeline_parallel, micro_batches=many, chunks=plan.virtual_stages,
        layers=layers + 2 * (plan.virtual_stages > 1), syncs=syncs,
    )  # fmt: skip


@by_other_names()
def timeline(
    model: ModelLike, cluster: ClusterLike | None = None, plan: Plan | None = None,
    framework: Framework | str | None = None, *, jitter: float = 0.0, seed: int = 0, **choices: object,
) -> Timeline:  # fmt: skip
    """Play out one training step of a plan on one of its pipelines.

    Every stage takes what the library's formulas say of its layers, the embedding and the head; transfers go beside
    computation where the plan overlaps them, all but the share that the software leaves exposed, else the sender waits.
    What `estimate` says that a step has besides (gradient
    exchange, optimizer, the host) is divided evenly among the syncs of each rank: one for each of its stages at its end,
    or under ``pipedream-2bw`` one after every as many micro-batches as ranks. Where a rank has no sync, as under
    ``pipedream``, which updates after every micro-batch, each backward pass takes its share. `Timeline.total` is the step's
    time, or `Timeline.period` where the optimizer waits for no other rank, as zero-bubble schedules assume.

    The step of an asynchronous schedule is to `estimate` one of many, with the pipeline full; here it begins and ends with
    an empty one, so that `Timeline.total` is longer by the time in which that fills and drains.

    Parameters
    ----------
    model, cluster, plan, framework, choices : as for `estimate`, hardware such as ``device`` and ``gpus`` among the choices
    jitter : standard deviation of the logarithm of each pass' time
    seed : of the jitter

    Returns
    -------
    Timeline
        seconds and bytes of each event

    Raises
    ------
    InvalidValue
        where an argument is not what it should be, or the plan has more than `MOST_EVENTS` events, at six for
        a micro-batch on a stage
    IllegalPlan
        with the reason, where the plan can't run
    IllegalSchedule
        naming the rank and the event, where a stage would have no layer

    Examples
    --------
    >>> from costmodel import Plan, load_cluster, load_model
    >>> model, cluster = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8)
    >>> plan = Plan(global_batch=32, seq_len=8192, pipeline_parallel=4, data_parallel=2)
    >>> timeline(model, cluster, plan).schedule.micro_batches
    16
    """
    result = estimate(model, cluster, plan, framework, **choices)  # type: ignore[arg-type]
    trained, plan = result.model, result.plan
    _playable(plan)
    schedule = schedule_of(plan, trained.layers, syncs=True)
    inputs = result.inputs
    shape, settings, numbers, network, software, _ = inputs
    stages = schedule.stages
    layers = stage_layers(trained.layers, stages, numbers, shape, settings)
    longer = math.exp(result.discrepancy)
    forward, data, weight = (longer * part for part in _passes(layers, inputs))
    latency, moving, nbytes = communication.boundary_parts(shape, settings, numbers, network, software)
    latency, moving = longer * latency, longer * moving
    step = result.step
    sync, each = outside_passes(
        step.total, step.bubble, step.pipeline_exchange, plan.micro_batches, longer * _slowest_rank(inputs),
        syncs_of(schedule), schedule.chunks,
    )  # fmt: skip
    held = kept_by_stages(trained, layers, settings, numbers, software)
    return simulate_schedule(
        schedule, forward, data, weight + each, transfer_latency=latency, transfer_bytes=nbytes,
        transfer_bandwidth=nbytes / moving if moving > 0.0 else math.inf,
        sends="non-blocking" if settings.overlap.pipeline > 0.0 else "blocking",
        exposed=float(1.0 - software.overlap.pipeline), sync=sync, jitter=jitter, seed=seed, activation_bytes=held,
    )  # fmt: skip


def _playable(plan: Plan) -> None:
    """Refuse a plan of more than `MOST_EVENTS` events: two passes, two sends and two receives for a micro-batch on a stage."""
    traits = SCHEDULES[str(plan.schedule)]
    valley = traits.v_shaped and not traits.bidirectional
    stages = plan.pipeline_parallel * (2 if valley else plan.virtual_stages)
    if 6 * stages * plan.micro_batches > MOST_EVENTS:
        wanted = f"at most {MOST_EVENTS // (6 * stages)} to play on {stages} stages, {MOST_EVENTS} events; `estimate` takes any"
        raise InvalidValue("micro_batches", plan.micro_batches, wanted)


def _passes(layers: Floats, inputs: Inputs) -> tuple[Floats, Floats, Floats]:
    """Forward pass, backward pass by inputs and by weights of stages with so many layers [s].

    At the end of a valley is what its first rank has besides its first stage: an embedding tied to the head it has once.
    """
    first, last = np.zeros(len(layers)), np.zeros(len(layers))
    first[0] = last[-1] = 1.0
    passes = _staged(inputs, layers, first, last, 1.0)
    plan = inputs[2]
    if plan.virtual_stages * plan.pipeline < len(layers):
        ranks = _staged(inputs, layers[:1] + layers[-1:], first[:1], last[-1:], float(layout.chunks(plan)))
        for one, rank in zip(passes, ranks, strict=True):
            one[-1] = max(rank[0] - one[0], 0.0)
    return passes


def _staged(inputs: Inputs, layers: Floats, first: Floats, last: Floats, chunks: float) -> tuple[Floats, Floats, Floats]:
    """A pass of each of some stages, or all passes of ranks of so many chunks."""
    passes = stage_pass(*inputs, as_number(layers), as_number(first), as_number(last), chunks)
    forward, data, weight = (np.array(one, dtype=np.float64) for one in passes)
    return forward, data, weight


def syncs_of(schedule: Schedule) -> int:
    """Syncs that every rank has at least."""
    return int(np.bincount(schedule.rank[schedule.kind == SYNC], minlength=schedule.ranks).min())


def _slowest_rank(inputs: Inputs) -> float:
    """All passes of one micro-batch on the slowest of the first rank, one between and the last [s]."""
    shares = [share for *share, there in layout.rank_shares(*inputs[:3]) if there]
    layers, first, last = np.array(shares, dtype=np.float64).T
    return float(np.sum(_staged(inputs, layers, first, last, float(layout.chunks(inputs[2]))), axis=0).max())

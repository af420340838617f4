"""A training step of any plan on any cluster, played out event by event, the load of every class of links included."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.checks import mapping, positive_int, real, whole
from costmodel.description.schedule import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    RECEIVE_BACKWARD,
    RECEIVE_FORWARD,
    SEND_BACKWARD,
    SEND_FORWARD,
    Schedule,
)
from costmodel.errors import InvalidValue, NotModelled
from costmodel.evaluation.estimation import Estimate, estimate
from costmodel.formulas import gradients, training_step
from costmodel.formulas.network import communication
from costmodel.formulas.pipeline.schedules import SCHEDULES
from costmodel.formulas.quantities import DeviceNumbers
from costmodel.formulas.stage import stage_pass
from costmodel.formulas.transformer import memory
from costmodel.records import as_number, replaced
from costmodel.simulation.playback import schedule_of, stage_layers
from costmodel.simulation.transactions import Ledger, Transaction, ledger_of

if TYPE_CHECKING:
    import pandas

    from costmodel.description.cluster import Cluster
    from costmodel.description.framework import Framework
    from costmodel.description.plan import Plan
    from costmodel.description.transformer import Transformer

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

KINDS = ("forward", "backward-input", "backward-weight", "backward", "sending", "optimizer", "host", "start", "wait")
"""What a rank does: four passes; what of a send it doesn't overlap; the update; the host; it starts or awaits a transfer."""
SENDING, OPTIMIZER, HOST, START, WAIT = range(4, 9)
GROUPS = ("tensor", "context", "expert", "expert tensor")
"""Groups whose exchange goes on inside passes."""
STREAMS = ("data", "expert data", "embedding", "pipeline forward", "pipeline backward")
"""Streams of transfers, each of which carries one at a time, in order."""
BUSY = ("compute", "exchange", "contention", "optimizer")
IDLE = ("bubble", "send", "gradient exchange", "parameter gather", "slowest replica", "host")
MOST_EVENTS = 10_000_000
LEVELS = 3


class Entries(NamedTuple):
    """What the ranks of each stage do, in order, one stage after the other; of work also what it is made of.

    Parameters
    ----------
    offsets : first entry of each stage, and the number of entries
    kind : an index into `KINDS`
    micro_batch : of a pass; else -1
    transfer : number of the transfer that is started or awaited; else -1
    duration : of work by itself [s]
    exchange, host : parts of a pass [s]; the rest of it is compute
    moved : sent in it over the groups of `GROUPS` [bytes]
    load : on a GPU's link of each level [bytes]
    saved : by how much it changes the activations held, at its start if more, at its end if less [bytes]
    """

    offsets: Integers
    kind: Integers
    micro_batch: Integers
    transfer: Integers
    duration: Floats
    exchange: Floats
    host: Floats
    moved: Floats
    load: Floats
    saved: Floats

    @property
    def stage(self) -> Integers:
        """Pipeline rank of each entry."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))


class Transfers(NamedTuple):
    """Every transfer of a step.

    Parameters
    ----------
    stage : that starts it
    other : that starts it too, or receives it; else -1
    stream : an index into `STREAMS`
    phase : of the ledger
    micro_batch : -1 for once a step
    nbytes : of the buffer or message [bytes]
    sent : by a rank [bytes]
    load : on a GPU's link of each level [bytes]
    time : alone [s]
    """

    stage: Integers
    other: Integers
    stream: Integers
    phase: tuple[str, ...]
    micro_batch: Integers
    nbytes: Floats
    sent: Floats
    load: Floats
    time: Floats


class Pieces(NamedTuple):
    """Stretches of time in which work or a transfer went on at one rate.

    Parameters
    ----------
    rank : ``stage * replicas + replica`` of work; -1 less the instance of a transfer
    entry : of work; else -1
    start, end : [s]
    rate : progress in a second over that in a second alone
    """

    rank: Integers
    entry: Integers
    start: Floats
    end: Floats
    rate: Floats


class Instances(NamedTuple):
    """Transfers as the groups of replicas made them.

    Parameters
    ----------
    of : transfer of each
    number : transfers x replicas, the instance that a replica takes part in
    members : replicas in each
    asked : when the last rank started it [s]
    start, end : [s]
    """

    of: Integers
    number: Integers
    members: Integers
    asked: Floats
    start: Floats
    end: Floats


class Utilisation(NamedTuple):
    """Means over bins of time, of the GPUs of each stage.

    Parameters
    ----------
    times : edges of the bins [s]
    compute : share of the time in which a GPU computes, stages x bins
    held : on a GPU, stages x bins [bytes]
    links : of each level, what a GPU's link carries, stages x bins [bytes/s]
    """

    times: Floats
    compute: Floats
    held: Floats
    links: dict[str, Floats]


class StageTime(NamedTuple):
    """How a pipeline stage spent the step.

    Parameters
    ----------
    stage : rank in the pipeline
    forward, backward : mean time of a micro-batch's passes, all chunks [s]
    busy, idle : mean of its GPUs [s]
    start, end : of its first work and of its last [s]
    """

    stage: int
    forward: float
    backward: float
    busy: float
    idle: float
    start: float
    end: float


class LinkLoad(NamedTuple):
    """Load of a GPU's link of one level, on the stage that loads it most.

    Parameters
    ----------
    level : of the cluster
    stage : rank in the pipeline
    bandwidth : that collectives reach, the software's factor included [bytes/s]
    nbytes : in the step [bytes]
    busy : share of the step that they take at that rate
    mean_rate, peak_rate : over the step, and at the highest [bytes/s]
    """

    level: str
    stage: int
    bandwidth: float
    nbytes: float
    busy: float
    mean_rate: float
    peak_rate: float


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Simulation:
    """A step with the start and end of each of its events.

    Parameters
    ----------
    ledger : of the step; its estimate is the question
    schedule : of the pipeline
    replicas : ranks of a stage that need not do the same at the same time; 1 where all do
    entries : what the ranks do
    start, end : of each replica's entries, replicas x entries [s]
    duration : of each replica's work by itself, replicas x entries [s]
    transfers : what they exchange beside
    instances : when
    pieces : of constant rate
    base : states and buffers that a GPU of each stage holds all the time [bytes]
    """

    ledger: Ledger
    schedule: Schedule
    replicas: int
    entries: Entries
    start: Floats
    end: Floats
    duration: Floats
    transfers: Transfers
    instances: Instances
    pieces: Pieces
    base: Floats

    def __repr__(self) -> str:
        from costmodel.summary import simulation_text

        return simulation_text(self)

    def _repr_html_(self) -> str:
        from costmodel.summary import simulation_html

        return simulation_html(self)

    @property
    def estimate(self) -> Estimate:
        """The estimate of the same step."""
        return self.ledger.estimate

    @property
    def stages(self) -> int:
        """Ranks of the pipeline."""
        return self.schedule.ranks

    @functools.cached_property
    def total(self) -> float:
        """From the first start to the last end [s]."""
        return float(self.end.max())

    @functools.cached_property
    def period(self) -> float:
        """The longest time from a rank's first work to its end [s]."""
        worked = np.where((self.entries.kind == WAIT) | (self.entries.kind == START), np.inf, self.start)
        first = np.minimum.reduceat(worked, self.entries.offsets[:-1], axis=1)
        last = np.maximum.reduceat(self.end, self.entries.offsets[:-1], axis=1)
        return float((last - first).max())

    @property
    def step_time(self) -> float:
        """Of each of many such steps [s]: `total`, or `period` where the optimizer waits for no other stage."""
        return self.period if SCHEDULES[self.schedule.name].staggered else self.total

    @property
    def events(self) -> int:
        """Events that were played: starts and ends of work, waits and transfers, of every replica."""
        return 2 * (self.start.size + len(self.instances.of))

    @property
    def computing(self) -> Floats:
        """Time of each replica's passes by themselves in which they compute, replicas x entries [s]."""
        passes = self.entries.kind <= BACKWARD
        return np.where(passes, self.duration - self.entries.exchange - self.entries.host, 0.0)

    @functools.cached_property
    def times(self) -> dict[str, Floats]:
        """What each rank spends its time on, stages x replicas [s]; all parts of a rank add up to `total`.

        ``compute``, ``exchange`` (inside passes), ``contention`` (by which transfers beside a pass draw it out) and
        ``optimizer`` are busy. ``bubble``: waits for other stages that have not sent yet, or for the end of the step;
        ``send``: for what is on its way between stages; ``gradient exchange``, ``parameter gather``: for transfers under
        way; ``slowest replica``: for other replicas that have not come to them; ``host``: for the host.
        """
        entries, took = self.entries, self.end - self.start
        kind, offsets = entries.kind, entries.offsets[:-1]
        alone = np.where(kind < START, self.duration, 0.0)
        parts = {name: np.zeros_like(took) for name in (*BUSY, *IDLE)}
        parts["compute"] = self.computing
        parts["exchange"] += entries.exchange
        parts["host"] += np.where(kind == HOST, alone, entries.host)
        parts["optimizer"] += np.where(kind == OPTIMIZER, alone, 0.0)
        parts["send"] += np.where(kind == SENDING, alone, 0.0)
        parts["contention"] = np.where(kind < START, took - alone, 0.0)
        waits = np.flatnonzero(kind == WAIT)
        awaited = entries.transfer[waits]
        stream = self.transfers.stream[awaited]
        between, sent = stream >= STREAMS.index("embedding"), stream >= STREAMS.index("pipeline forward")
        gathered = ~sent & (np.array(self.transfers.phase, dtype=object)[awaited] != "gradient sync")
        asked = self.instances.asked[self.instances.number[awaited]].T
        late = np.clip(np.minimum(asked, self.end[:, waits]) - self.start[:, waits], 0.0, None)
        late[:, ~between] = self._idle_streams(waits[~between])
        for name, chosen in (("bubble", between), ("slowest replica", ~between)):
            parts[name][:, waits[chosen]] = late[:, chosen]
        for name, chosen in (("send", sent), ("parameter gather", gathered), ("gradient exchange", ~sent & ~gathered)):
            parts[name][:, waits[chosen]] += (took[:, waits] - late)[:, chosen]
        sums: dict[str, Floats] = {name: np.add.reduceat(values, offsets, axis=1).T for name, values in parts.items()}
        sums["bubble"] = sums["bubble"] + self.total - np.maximum.reduceat(self.end, offsets, axis=1).T
        return sums

    def _idle_streams(self, waits: Integers) -> Floats:
        """Of each replica's waits for its stream, the time in which the stream carries nothing, as others haven't come [s]."""
        made, moves = self.instances, self.transfers
        awaited = self.entries.transfer[waits]
        late = (self.end - self.start)[:, waits]
        for stage, stream in {*zip(moves.stage[awaited].tolist(), moves.stream[awaited].tolist(), strict=True)}:
            chosen = np.flatnonzero((moves.stage[awaited] == stage) & (moves.stream[awaited] == stream))
            number = made.number[(moves.stage == stage) & (moves.stream == stream)]
            for replica, which in enumerate(number.T):
                order = which[np.argsort(made.start[which])]
                when = np.stack([made.start[order], made.end[order]], axis=1)
                carried = np.cumsum(np.stack([np.zeros(len(order)), when[:, 1] - when[:, 0]], axis=1))
                ends = self.start[replica, waits[chosen]], self.end[replica, waits[chosen]]
                before, after = (np.interp(at, when.ravel(), carried) for at in ends)
                late[replica, chosen] -= after - before
        return late

    @property
    def busy(self) -> dict[str, Floats]:
        """The parts of `times` in which a rank works, stages x replicas [s]."""
        return {name: self.times[name] for name in BUSY}

    @property
    def idle(self) -> dict[str, Floats]:
        """The parts of `times` in which a rank waits, by what for, stages x replicas [s]."""
        return {name: self.times[name] for name in IDLE}

    @functools.cached_property
    def stage_times(self) -> tuple[StageTime, ...]:
        """How each pipeline stage spent the step."""
        offsets, kind, took = self.entries.offsets, self.entries.kind, self.end - self.start
        micro_batches = self.schedule.micro_batches

        def mean(chosen: NDArray[np.bool_]) -> Floats:
            return np.add.reduceat(np.where(chosen, took, 0.0), offsets[:-1], axis=1).mean(0) / micro_batches

        forward, backward = mean(kind == FORWARD), mean((kind > FORWARD) & (kind <= BACKWARD))
        busy = sum(self.busy.values(), np.zeros((self.stages, 1))).mean(1)
        starts = np.minimum.reduceat(np.where(kind < START, self.start, np.inf), offsets[:-1], axis=1).min(0)
        ends = np.maximum.reduceat(self.end, offsets[:-1], axis=1).max(0)
        columns = (forward, backward, busy, self.total - busy, starts, ends)
        return tuple(StageTime(stage, *map(float, row)) for stage, row in enumerate(zip(*columns, strict=True)))

    @functools.cached_property
    def sent_bytes(self) -> dict[str, Floats]:
        """What a GPU of each stage sends in the step, by the ledger's groups [bytes]."""
        sent = {group: np.zeros(self.stages) for group in (*GROUPS, "data", "expert data", "embedding", "pipeline")}
        stage = self.entries.stage
        for place, group in enumerate(GROUPS):
            np.add.at(sent[group], stage, self.entries.moved[:, place])
        for place, stream in enumerate(STREAMS):
            chosen = self.transfers.stream == place
            into = sent["pipeline" if stream.startswith("pipeline") else stream]
            np.add.at(into, self.transfers.stage[chosen], self.transfers.sent[chosen])
            if stream == "embedding":
                np.add.at(into, self.transfers.other[chosen], self.transfers.sent[chosen])
        return sent

    @functools.cached_property
    def _flows(self) -> tuple[Integers, Floats, Floats, Floats, Floats]:
        """Stage, start, end of each piece of each stage, and what it computes [1] and loads on links [bytes/s]; one row for
        all replicas of a stage, over which rates are means."""
        pieces, entries, moves = self.pieces, self.entries, self.transfers
        work = pieces.rank >= 0
        stage, replica = pieces.rank[work] // self.replicas, pieces.rank[work] % self.replicas
        entry, rate = pieces.entry[work], pieces.rate[work] / self.replicas
        alone = self.duration[replica, entry]
        pace = rate / alone
        computed, loaded = pace * self.computing[replica, entry], pace[:, None] * entries.load[entry]
        made = [(stage, pieces.start[work], pieces.end[work], computed, loaded)]
        instance = -1 - pieces.rank[~work]
        transfer = self.instances.of[instance]
        share = pieces.rate[~work] * self.instances.members[instance] / self.replicas
        carried = (share / moves.time[transfer])[:, None] * moves.load[transfer]
        pair = moves.stream[transfer] == STREAMS.index("embedding")
        for ends, chosen in ((moves.stage, np.ones_like(pair)), (moves.other, pair)):
            nothing = np.zeros(int(chosen.sum()))
            start, end = pieces.start[~work][chosen], pieces.end[~work][chosen]
            made.append((ends[transfer[chosen]], start, end, nothing, carried[chosen]))
        columns = zip(*made, strict=True)
        return tuple(np.concatenate(column) for column in columns)  # type: ignore[return-value]

    def utilisation(self, bins: int = 200) -> Utilisation:
        """Use of compute, of memory and of each class of links over time.

        Parameters
        ----------
        bins : of equal length, from the first start to the last end
        """
        edges = np.linspace(0.0, self.total, positive_int("bins", bins, 100_000) + 1)
        stage, start, end, compute, load = self._flows
        levels = [level.name for level in self.estimate.cluster.levels]
        worked, held = np.zeros((self.stages, bins)), np.zeros((self.stages, bins))
        links = {name: np.zeros((self.stages, bins)) for name in levels}
        for s in range(self.stages):
            chosen = stage == s
            span = start[chosen], end[chosen]
            worked[s] = _means(*span, compute[chosen], edges)
            for place, name in enumerate(levels):
                links[name][s] = _means(*span, load[chosen, place], edges)
            when, change = self._changes(s)
            held[s] = self.base[s] + _means(when, np.full_like(when, self.total), change / self.replicas, edges)
        return Utilisation(edges, worked, held, links)

    def _changes(self, stage: int) -> tuple[Floats, Floats]:
        """When the activations held by the replicas of a stage change, and by how much [s, bytes]."""
        part = slice(*self.entries.offsets[stage : stage + 2])
        saved = self.entries.saved[part]
        chosen = np.flatnonzero(saved)
        grows = saved[chosen] > 0.0
        when = np.where(grows, self.start[:, part][:, chosen], self.end[:, part][:, chosen])
        return when.ravel(), np.broadcast_to(saved[chosen], when.shape).ravel()

    @functools.cached_property
    def peak_bytes(self) -> Floats:
        """States, buffers and saved activations that a GPU of each stage holds at the most [bytes]."""
        saved = [self.entries.saved[slice(*self.entries.offsets[s : s + 2])] for s in range(self.stages)]
        return self.base + np.array([np.cumsum(change).max(initial=0.0) for change in saved])

    @functools.cached_property
    def loads(self) -> tuple[LinkLoad, ...]:
        """Load of a GPU's link of every level, innermost first."""
        stage, start, end, _, load = self._flows
        found = []
        for place, (level, bandwidth) in enumerate(zip(self.estimate.cluster.levels, _bandwidths(self.estimate), strict=False)):
            totals = np.bincount(stage, load[:, place] * (end - start), self.stages)
            most = int(totals.argmax())
            chosen = stage == most
            peak = _highest(start[chosen], end[chosen], load[chosen, place])
            nbytes = float(totals[most])
            rate = nbytes / self.total
            found.append(LinkLoad(level.name, most, bandwidth, nbytes, rate / bandwidth, rate, peak))
        return tuple(found)

    def frame(self) -> pandas.DataFrame:
        """Every event in a row: work and waits of each stage and replica, and transfers."""
        import pandas

        entries, moves, made = self.entries, self.transfers, self.instances
        kept = np.flatnonzero(entries.kind != START)
        many = self.replicas
        names = np.asarray(KINDS)[entries.kind]
        work = {
            "stage": np.tile(entries.stage[kept], many), "replica": np.repeat(np.arange(many), len(kept)),
            "event": np.tile(names[kept], many), "micro_batch": np.tile(entries.micro_batch[kept], many),
            "nbytes": np.tile(entries.moved.sum(1)[kept], many),
            "start_s": self.start[:, kept].ravel(), "end_s": self.end[:, kept].ravel(),
        }  # fmt: skip
        replica = np.zeros(len(made.of), dtype=np.int64)
        replica[made.number.ravel()[::-1]] = np.tile(np.arange(many), len(made.number))[::-1]
        exchanged = {
            "stage": moves.stage[made.of], "replica": replica, "event": np.asarray(STREAMS)[moves.stream[made.of]],
            "micro_batch": moves.micro_batch[made.of], "nbytes": moves.nbytes[made.of],
            "start_s": made.start, "end_s": made.end,
        }  # fmt: skip
        rows = pandas.concat([pandas.DataFrame(work), pandas.DataFrame(exchanged)], ignore_index=True)
        return rows.rename(columns={"nbytes": "buffer_bytes"})


def _means(start: Floats, end: Floats, value: Floats, edges: Floats) -> Floats:
    """Mean over each bin of a sum of values, each of which holds from its start to its end."""
    when = np.concatenate([edges[:1], start, end, edges[-1:]])
    change = np.concatenate([[0.0], value, -value, [0.0]])
    order = np.argsort(when, kind="stable")
    when, level = when[order], np.cumsum(change[order])
    area = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(when))])
    return np.diff(np.interp(edges, when, area)) / np.diff(edges)


def _highest(start: Floats, end: Floats, value: Floats) -> float:
    """Highest sum of values, each of which holds from its start to its end."""
    when, change = np.concatenate([end, start]), np.concatenate([-value, value])
    return float(np.cumsum(change[np.argsort(when, kind="stable")]).max(initial=0.0))


def _bandwidths(result: Estimate) -> list[float]:
    quality = result.framework.numbers().network.quality
    return [float(quality * level.bandwidth) for level in result.cluster.numbers()]


# What a step consists of


class _Pass(NamedTuple):
    """A pass by what it is made of: a layer, the embedding, the head [s each]; what of a layer, and at the embedding and the
    head, is exchange, and what is the host's; tensor, context and expert exchange of a layer, hidden or not."""

    layer: float
    embedding: float
    head: float
    layer_exchange: float
    edge_exchange: float
    layer_host: float
    moving: tuple[float, float, float]


class _StagePass(NamedTuple):
    """A pass of one stage [s]: a layer, the embedding, the head, all of these; what of it is exchange, or the host's; all
    tensor, context and expert exchange, hidden or not."""

    layer: float
    embedding: float
    head: float
    duration: float
    exchange: float
    host: float
    moving: tuple[float, float, float]


class _Shape:
    """Times of the passes, and what a step has besides, as the formulas of `estimate` give them."""

    def __init__(self, result: Estimate, schedule: Schedule) -> None:
        self.model, self.settings, self.plan, self.network, self.software, device = result.inputs
        self.layers = stage_layers(result.model.layers, schedule.stages, self.plan, self.model, self.settings)
        # what every micro-batch gathers and sums are events, not parts of a pass
        whole = self.plan._replace(shard_weights=0.0, shard_gradients=0.0)
        arguments = self.model, self.settings, whole, self.network
        one = training_step.layer_pass(*arguments, self.software, device)
        unlaunched = replaced(self.software, {"host_forward": 0.0, "host_backward": 0.0})
        quiet = training_step.layer_pass(*arguments, unlaunched, device)
        once, _ = communication.tensor_exchange(*arguments, self.software)
        moved = communication.layer_exchange(*arguments, self.software)
        onward = np.array([moved.tensor_forward, moved.context_forward, moved.expert_forward], dtype=float)
        back = np.array([moved.tensor_backward, moved.context_backward, moved.expert_backward], dtype=float)
        again = moved.tensor_again, self.plan.recompute_layers * moved.context_forward, moved.expert_again
        returning = back + np.array(again, dtype=float)
        parts = [stage_pass(*arguments, self.software, device, *which) for which in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0))]
        parts.append(stage_pass(*arguments, self.software, device, 0.0, 0.0, 1.0))
        forward, data, weight = (tuple(map(float, times)) for times in zip(*parts, strict=True))
        exchanged = float(one.tensor + one.context + one.expert)
        ahead, waited = float(quiet.total_forward - one.forward), float(one.total_forward - quiet.total_forward)
        behind = exchanged - ahead, float(once), float(one.host) - waited, tuple(returning.tolist())
        self.passes = {
            FORWARD: _Pass._make([*forward, ahead, 0.0, waited, tuple(onward.tolist())]),
            BACKWARD_INPUT: _Pass._make([*data, *behind]),
            BACKWARD_WEIGHT: _Pass._make([*weight, 0.0, 0.0, 0.0, (0.0, 0.0, 0.0)]),
            BACKWARD: _Pass._make([*(a + b for a, b in zip(data, weight, strict=True)), *behind]),
        }
        hide = self.settings.overlap.pipeline * self.software.overlap.pipeline
        self.exposed_send = 1.0 - float(hide)
        self.pieces = {(kind, stage): self._pieces(kind, stage) for kind in self.passes for stage in range(schedule.stages)}
        self.host = self._host(result, device)
        self.coding = float(gradients.compressed(*arguments, self.software, device).coding)
        held = memory.stage_activations(self.model, self.settings, self.plan, self.software, as_number(self.layers), 1.0)
        self.saved: Floats = np.asarray(held, dtype=np.float64)

    def _host(self, result: Estimate, device: DeviceNumbers) -> float:
        """What `estimate` has of the host, stalls and offloaded activations besides the launches of layers [s]."""
        silent = {"host_micro_batch": 0.0, "host_step": 0.0, "host_straggler_time": 0.0, "host_pressure_time": 0.0}
        settings = replaced(self.settings, {"offload_activations": 0.0})
        software = replaced(self.software, silent)
        launching = training_step.step(self.model, settings, self.plan, self.network, software, device).host
        return float(max(result.step.host - launching, 0.0))

    def _pieces(self, kind: int, stage: int) -> _StagePass:
        made, layers = self.passes[kind], float(self.layers[stage])
        first, last = float(stage == 0), float(stage == len(self.layers) - 1)
        embedding, head = first * made.embedding, last * made.head
        deep = layers + last * float(self.model.prediction_layers)
        edges = (first + last) * made.edge_exchange
        duration = embedding + layers * made.layer + head
        tensor, context, expert = (deep * time for time in made.moving)
        return _StagePass(
            made.layer, embedding, head, duration, deep * made.layer_exchange + edges, deep * made.layer_host,
            (tensor + edges, context, expert),
        )  # fmt: skip


class _Call(NamedTuple):
    """Transfers that a kind of stage makes: its number there, their places, and what each is, in the ledger's words."""

    number: int
    group: str
    phase: str
    every: bool
    places: tuple[int, ...]
    prices: tuple[Transaction, ...]
    overlap: float
    row: int


class _Move(NamedTuple):
    """One transfer; `overlap` is the share of its rate that it has beside a pass, None if the pass doesn't mind."""

    stage: int
    other: int
    stream: int
    phase: str
    micro_batch: int
    price: Transaction
    overlap: float | None
    row: int


class _Entry(NamedTuple):
    """One entry of a program [s]; `draw` numbers the pass that it is a part of, the last three are that part's `moving`."""

    kind: int
    micro_batch: int = -1
    transfer: int = -1
    duration: float = 0.0
    exchange: float = 0.0
    host: float = 0.0
    saved: float = 0.0
    draw: int = -1
    tensor: float = 0.0
    context: float = 0.0
    expert: float = 0.0


class _Mark(NamedTuple):
    """What is to be done where a pass has come to a position [s]; at the same one, in this order."""

    position: float
    order: int
    kind: int
    transfer: int


class _Builder:
    """Writes what each rank of a step does, from the schedule, the formulas and the ledger."""

    def __init__(self, made: Ledger, schedule: Schedule, rows: Mapping[tuple[str, str], int]) -> None:
        self.made, self.schedule, self.result = made, schedule, made.estimate
        self.shape = _Shape(self.result, schedule)
        self.entries: list[_Entry] = []
        self.moves: list[_Move] = []
        self.offsets = [0]
        self.draws = 0
        settings = self.shape.settings
        self.gathers_ahead, self.sums_beside = settings.overlap.parameters > 0.0, settings.overlap.gradients > 0.0
        calls = {stage.name: self._calls(stage.name, rows) for stage in made.stages}
        self.found: dict[tuple[int, int, int, int], list[tuple[int, float]]] = {}
        self.sends: dict[int, int] = {}
        for event in np.flatnonzero((schedule.kind == SEND_FORWARD) | (schedule.kind == SEND_BACKWARD)).tolist():
            self._send(event)
        for rank in range(schedule.ranks):
            self._rank(rank, calls[self.name(rank)])
            self.offsets.append(len(self.entries))

    def name(self, rank: int) -> str:
        """The ledger's kind of a pipeline rank."""
        if self.schedule.ranks == 1:
            return "only"
        return "first" if rank == 0 else "last" if rank == self.schedule.ranks - 1 else "middle"

    def _calls(self, name: str, rows: Mapping[tuple[str, str], int]) -> list[_Call]:
        """What a stage of this kind exchanges of gradients and weights."""
        prices = {(row.phase, row.group, row.collective, row.nbytes): row for row in self.made.transactions if row.stage == name}
        software = self.shape.software
        found: list[_Call] = []
        for group, call, ranks, _, nbytes in self.made.synchronisation(name):
            if ranks <= 1.0:
                continue
            overlap = software.overlap.parameters if call.phase in ("forward", "after step") else software.overlap.gradients
            pairs = [(place, size) for place, size in zip(call.layer.tolist(), nbytes.tolist(), strict=True) if size > 0.0]
            if call.phase in ("forward", "after step"):
                pairs.sort(key=lambda pair: pair[0])
            places = tuple(place for place, _ in pairs)
            priced = tuple(prices[call.phase, group, call.collective, size] for _, size in pairs)
            found.append(_Call(len(found), group, call.phase, call.every, places, priced, float(overlap), rows[group, call.over]))
        return found

    def _move(self, rank: int, call: _Call, which: int, micro_batch: int) -> int:
        """A new transfer of a call, by its number."""
        stream = STREAMS.index(call.group)
        self.moves.append(_Move(rank, -1, stream, call.phase, micro_batch, call.prices[which], call.overlap, call.row))
        return len(self.moves) - 1

    def _send(self, event: int) -> None:
        """The transfer of a send to another stage."""
        schedule = self.schedule
        stage, other = int(schedule.rank[event]), int(schedule.rank[schedule.match[event]])
        phase = "forward" if schedule.kind[event] == SEND_FORWARD else "backward"
        rows = (row for row in self.made.transactions if row.group == "pipeline" and row.phase == phase)
        price = next(row for row in rows if row.stage == self.name(stage))
        self.sends[event] = len(self.moves)
        number = int(schedule.micro_batch[event])
        self.moves.append(_Move(stage, other, STREAMS.index(f"pipeline {phase}"), phase, number, price, None, 0))

    def _do(self, kind: int, transfer: int) -> None:
        self.entries.append(_Entry(kind, transfer=transfer))

    def _rank(self, rank: int, calls: list[_Call]) -> None:
        """The program of one pipeline rank."""
        schedule, shape = self.schedule, self.shape
        own = np.flatnonzero(schedule.placement[0] == rank).tolist()
        closing = self._closing(rank)
        marks: dict[int, list[_Mark]] = {}
        begin, gathers, late = len(self.entries), [], []
        for call in calls:
            for which, place in enumerate(() if call.every else call.places):
                transfer = self._move(rank, call, which, -1)
                if call.phase == "after step":
                    gathers.append((place, transfer))
                    continue
                stage, position = self._position(own, place, BACKWARD, closing)
                marks.setdefault(closing[stage][0], []).append(_Mark(position, -1, START, transfer))
                late.append(transfer)
        gathers.sort()
        if not self.sums_beside:
            marks.clear()
        if self.gathers_ahead:
            opening = self._opening(rank)
            for place, transfer in gathers:
                self._do(START, transfer)
                stage, position = self._position(own, place, FORWARD, closing)
                marks.setdefault(opening[stage], []).append(_Mark(position, 0, WAIT, transfer))

        each = [call for call in calls if call.every]
        for event in range(*schedule.offsets[rank : rank + 2].tolist()):
            kind, stage, number = int(schedule.kind[event]), int(schedule.stage[event]), int(schedule.micro_batch[event])
            if kind <= BACKWARD:
                self._pass(rank, kind, stage, number, marks.get(event, []), each, own if stage in own else [stage])
            elif kind in (RECEIVE_FORWARD, RECEIVE_BACKWARD):
                self._do(WAIT, self.sends[int(schedule.match[event])])
            else:
                transfer = self.sends[event]
                self._do(START, transfer)
                blocked = shape.exposed_send * self.moves[transfer].price.time
                if blocked > 0.0:
                    self.entries.append(_Entry(SENDING, number, duration=blocked))

        for transfer in () if self.sums_beside else late:
            self._do(START, transfer)
        self._settle(begin)
        self._tied(rank)
        for kind, duration in ((OPTIMIZER, self.result.step.optimizer + shape.coding), (HOST, shape.host)):
            if duration > 0.0:
                self.entries.append(_Entry(kind, duration=float(duration)))
        for kind in () if self.gathers_ahead else (START, WAIT):
            for _, transfer in gathers:
                self._do(kind, transfer)

    def _settle(self, begin: int) -> None:
        """Wait for the last sum of gradients on each stream among the entries from `begin` on."""
        last = {}
        for entry in self.entries[begin:]:
            if entry.kind == START and self.moves[entry.transfer].phase == "gradient sync":
                last[self.moves[entry.transfer].stream] = entry.transfer
        for transfer in last.values():
            self._do(WAIT, transfer)

    def _closing(self, rank: int) -> dict[int, tuple[int, int]]:
        """Last event that makes gradients of each stage on a rank, and its kind."""
        schedule = self.schedule
        part = np.arange(*schedule.offsets[rank : rank + 2])
        part = part[(schedule.kind[part] == BACKWARD) | (schedule.kind[part] == BACKWARD_WEIGHT)]
        return {int(schedule.stage[event]): (int(event), int(schedule.kind[event])) for event in part}

    def _opening(self, rank: int) -> dict[int, int]:
        """First forward pass of each stage on a rank."""
        schedule = self.schedule
        part = np.arange(*schedule.offsets[rank : rank + 2])
        return {int(schedule.stage[event]): int(event) for event in part[schedule.kind[part] == FORWARD][::-1]}

    def _tied(self, rank: int) -> None:
        """The sum of the gradients of an embedding that the first and the last stage share."""
        ends = 0, self.schedule.ranks - 1
        rows = [row for row in self.made.transactions if row.group == "embedding"]
        if not rows or rank not in ends:
            return
        if rank == 0:
            self.tie = len(self.moves)
            self.moves.append(_Move(*ends, STREAMS.index("embedding"), "gradient sync", -1, rows[0], None, 0))
        self._do(START, self.tie)
        self._do(WAIT, self.tie)

    def _position(
        self, own: list[int], place: int, kind: int, closing: Mapping[int, tuple[int, int]] | None = None
    ) -> tuple[int, float]:
        """Stage that holds a place of a rank, and when a pass comes to it [s]: forward to its begin, backward to its end.

        Places are those of `LocalTensors`: 0 the embedding, the layers from 1, then the head.
        """
        counts = self.shape.layers[own]
        before = np.concatenate([[0.0], np.cumsum(counts)])
        chunk = min(max(int(np.searchsorted(before, place, side="left")) - 1, 0), len(own) - 1)
        depth = min(max(place - before[chunk], 0.0), counts[chunk] + 1.0)
        stage = own[chunk]
        times = self.shape.pieces[kind if closing is None or kind == FORWARD else closing[stage][1], stage]
        if kind == FORWARD:
            return stage, (depth > 0.0) * (times.embedding + max(depth - 1.0, 0.0) * times.layer)
        behind = times.head + (counts[chunk] + 1.0 - depth) * times.layer if depth > 0.0 else times.duration
        return stage, behind if depth <= counts[chunk] else times.head

    def _pass(
        self, rank: int, kind: int, stage: int, number: int, marks: list[_Mark], calls: list[_Call], own: list[int]
    ) -> None:
        """One pass, cut where transfers start or are waited for."""
        times = self.shape.pieces[kind, stage]
        phase = {FORWARD: "forward", BACKWARD: "backward", BACKWARD_INPUT: "backward"}.get(kind)
        found = list(marks)
        for call in calls:
            if call.phase == phase:
                found += self._gathered(rank, call, kind, stage, number, own)
            elif call.phase == "gradient sync" and kind in (BACKWARD, BACKWARD_WEIGHT):
                found += self._summed(rank, call, kind, stage, number, own)
        saved = float(self.shape.saved[stage])
        first, begin = len(self.entries), 0.0
        for mark in [*sorted(found), None]:
            end = times.duration if mark is None else min(mark.position, times.duration)
            if end > begin:
                part = (end - begin) / times.duration
                parts = end - begin, part * times.exchange, part * times.host
                self.entries.append(_Entry(kind, number, -1, *parts, 0.0, self.draws, *(part * time for time in times.moving)))
                begin = end
            if mark is not None:
                self._do(mark.kind, mark.transfer)
        self.draws += 1
        if any(call.phase == "gradient sync" for call in calls):
            self._settle(first)
        made = [index for index in range(first, len(self.entries)) if self.entries[index].kind == kind]
        if made and kind == FORWARD:
            self.entries[made[0]] = self.entries[made[0]]._replace(saved=saved)
        elif made and kind in (BACKWARD, BACKWARD_WEIGHT):
            self.entries[made[-1]] = self.entries[made[-1]]._replace(saved=-saved)

    def _here(self, rank: int, call: _Call, kind: int, stage: int, own: list[int]) -> list[tuple[int, float]]:
        """Transfers of a call that belong to a stage's pass, and when it comes to them."""
        key = rank, call.number, kind, stage
        if key not in self.found:
            places = [(which, *self._position(own, place, kind)) for which, place in enumerate(call.places)]
            self.found[key] = [(which, position) for which, where, position in places if where == stage]
        return self.found[key]

    def _summed(self, rank: int, call: _Call, kind: int, stage: int, number: int, own: list[int]) -> list[_Mark]:
        """Gradients of one micro-batch: summed as they are ready, or after the pass."""
        return [
            _Mark(position if self.sums_beside else np.inf, -1, START, self._move(rank, call, which, number))
            for which, position in self._here(rank, call, kind, stage, own)
        ]

    def _gathered(self, rank: int, call: _Call, kind: int, stage: int, number: int, own: list[int]) -> list[_Mark]:
        """Weights of one pass: each gathered while the one before works, or where it is needed."""
        here = self._here(rank, call, kind, stage, own)
        moves = [self._move(rank, call, which, number) for which, _ in here]
        needed = [position for _, position in here]
        if kind != FORWARD:  # the end of what goes before is the begin of what follows
            needed = [0.0, *needed[:-1]][: len(here)]
        ahead = self.gathers_ahead if kind == FORWARD else self.sums_beside
        places = sorted({0.0, *needed})  # all of a layer are begun where the layer before is needed
        before = dict(zip(places, [0.0, *places], strict=False))
        begins = [before[need] for need in needed] if ahead else needed
        marks = []
        for place, (begin, need, transfer) in enumerate(zip(begins, needed, moves, strict=False)):
            marks += [_Mark(begin, 2 * place, START, transfer), _Mark(need, 2 * place + 1, WAIT, transfer)]
        return marks

    def written(self) -> Entries:
        """The programs as columns, with what passes send and load on links in proportion to the time of their exchange."""
        columns = (np.array(column) for column in zip(*self.entries, strict=True))
        kind, number, transfer, duration, exchanged, host, saved, _, tensor, context, expert = columns
        times = {"tensor": tensor, "context": context, "expert": expert, "expert tensor": expert}
        moved, load = np.zeros((len(kind), len(GROUPS))), np.zeros((len(kind), LEVELS))
        for rank in range(self.schedule.ranks):
            part = slice(*self.offsets[rank : rank + 2])
            rows = [row for row in self.made.transactions if row.stage == self.name(rank) and row.group in GROUPS]
            for row in rows:
                total = times[row.group][part].sum()
                share = times[row.group][part] / total if total > 0.0 else times[row.group][part]
                moved[part, GROUPS.index(row.group)] += share * row.count * row.sent
                load[part] += share[:, None] * (row.count * np.asarray(row.links))
        return Entries(np.asarray(self.offsets), kind, number, transfer, duration, exchanged, host, moved, load, saved)

    def moved(self) -> Transfers:
        """The transfers as columns."""
        prices = [move.price for move in self.moves]
        table = np.array([(move.stage, move.other, move.stream, move.micro_batch) for move in self.moves], dtype=np.int64)
        stage, other, stream, number = table.reshape(-1, 4).T.copy()
        sizes = np.array([(one.nbytes, one.sent, one.time, *one.links) for one in prices]).reshape(-1, 3 + LEVELS)
        return Transfers(
            stage, other, stream, tuple(move.phase for move in self.moves), number, sizes[:, 0], sizes[:, 1], sizes[:, 3:],
            sizes[:, 2].copy(),
        )  # fmt: skip


# Which replicas do the same


class _Replicas(NamedTuple):
    """Ranks of a stage that keep step of themselves, `count` times; which of them take part in what together.

    Parameters
    ----------
    many : how many
    of_rank : pipeline rank and replica of each GPU, GPUs x 2
    of_copy : replica of each data-parallel rank
    rows : of each group of the ledger and what a call goes over, the row of `labels`
    labels : rows x replicas, the same number for replicas that exchange with each other
    """

    many: int
    of_rank: Integers
    of_copy: Integers
    rows: dict[tuple[str, str], int]
    labels: Integers


def _joined(left: Integers, right: Integers) -> Integers:
    """Numbers of the connected parts of a graph between two kinds of nodes, for each node on the left."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    many, others = int(left.max()) + 1, int(right.max()) + 1
    edges = coo_array((np.ones(len(left)), (left, many + right)), shape=(many + others,) * 2)
    _, labels = connected_components(edges, directed=False)
    return np.unique(labels[:many], return_inverse=True)[1]


def _replicas(result: Estimate, symmetric: bool) -> _Replicas:
    """The replicas of each stage: ranks that share tensor, context or expert groups wait for each other in every layer."""
    plan = result.plan
    numbers = plan.numbers(result.framework, result.model.layers)
    over = [(group, what) for group in ("data", "expert data") for what in ("all", "shard", "copies")]
    rows = {pair: 1 + place for place, pair in enumerate(over)}
    degrees = {
        "tensor": plan.tensor_parallel, "context": plan.context_parallel, "data": plan.data_parallel,
        "pipeline": plan.pipeline_parallel,
    }  # fmt: skip
    shape = [degrees[name] for name in plan.rank_order]
    places = dict(zip(plan.rank_order, np.unravel_index(np.arange(plan.gpus), shape, order="F"), strict=True))
    stage, copy = places["pipeline"], places["data"]
    if symmetric:
        same = np.zeros(plan.data_parallel, dtype=np.int64)
        of_rank = np.stack([stage, 0 * stage], axis=1)
        return _Replicas(1, of_rank, same, rows, np.zeros((1 + len(over), 1), dtype=np.int64))
    inside = stage == 0
    copies = copy[inside]
    local = np.arange(len(copies))
    block = plan.expert_parallel * plan.expert_tensor_parallel
    of_copy = _joined(copies, local // block)
    replica = of_copy[copies]
    inner, outer = sorted(("context", "data"), key=plan.rank_order.index)
    along = (places[outer] * degrees[inner] + places[inner])[inside]
    count = int(of_copy.max()) + 1
    labels = [np.arange(count)]
    for group, what in over:
        ranks = plan.data_parallel * plan.context_parallel if group == "data" else round(communication.expert_ranks(numbers))
        place, apart = (along, 0 * local) if group == "data" else (local // block, local % block)
        shard = round(communication.sharing(float(ranks), numbers))
        part = {"all": 0 * place, "shard": place // shard, "copies": place % shard}[what]
        labels.append(_joined(replica, apart * ranks + part))
    return _Replicas(count, np.stack([stage, of_copy[copy]], axis=1), of_copy, rows, np.stack(labels))


def _slowness(replicas: _Replicas, stages: int, slow_ranks: Mapping[int, float] | None) -> Floats:
    """Factor on the compute of each stage and replica: that of its slowest rank."""
    factor = np.ones((stages, replicas.many))
    touched: dict[tuple[int, int], list[float]] = {}
    for rank, times in mapping("slow_ranks", {} if slow_ranks is None else slow_ranks).items():
        number = whole("a rank of slow_ranks", rank, len(replicas.of_rank) - 1)
        touched.setdefault(tuple(replicas.of_rank[number].tolist()), []).append(real(f"slow_ranks[{rank}]", times, 1.0, 1e6))
    for place, values in touched.items():
        factor[place] = max(values)
    return factor


def _durations(
    entries: Entries, draws: Integers, replicas: _Replicas, factor: Floats, jitter: float, seed: int
) -> Floats:
    """Time of each replica's work by itself, replicas x entries [s]."""
    base = np.broadcast_to(entries.duration, (replicas.many, len(entries.duration)))
    passes = np.flatnonzero(entries.kind <= BACKWARD)
    if not (jitter or (factor != 1.0).any()):
        return np.array(base, order="C")
    scale = factor[entries.stage[passes]].T
    if jitter:
        drawn = np.random.default_rng(seed).standard_normal((len(replicas.of_copy), int(draws.max()) + 1))
        slowest = np.full((replicas.many, drawn.shape[1]), -np.inf)
        np.maximum.at(slowest, replicas.of_copy, drawn)
        scale = scale * np.exp(jitter * slowest - 0.5 * jitter**2)[:, draws[passes]]
    made = np.array(base, order="C")
    made[:, passes] += (scale - 1.0) * (entries.duration - entries.exchange - entries.host)[passes]
    return made


def _instances(moves: Transfers, rows: Integers, labels: Integers) -> tuple[Integers, Integers, Integers, Integers, Integers]:
    """Instance of each transfer and replica; transfer, members, first member and receiver of each instance."""
    count = labels.shape[1]
    groups = labels.max(1) + 1
    first = np.concatenate([[0], np.cumsum(groups[rows])]).astype(np.int64)
    number = first[:-1, None] + labels[rows]
    of = np.repeat(np.arange(len(rows)), groups[rows])
    pair = moves.stream == STREAMS.index("embedding")
    sizes = np.bincount(number.ravel(), minlength=int(first[-1])) * (1 + pair[of])
    places = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    rank = moves.stage[:, None] * count + np.arange(count)
    other = moves.other[:, None] * count + np.arange(count)
    instances = np.concatenate([number.ravel(), number[pair].ravel()])
    order = np.argsort(instances, kind="stable")
    members = np.concatenate([rank.ravel(), other[pair].ravel()])[order].astype(np.int64)
    receiver = np.full(len(of), -1)
    receives = (moves.other >= 0) & ~pair
    receiver[number[receives]] = other[receives]
    return number, of, members, places, receiver


def simulate(
    model: Transformer, cluster: Cluster, plan: Plan, framework: Framework | str = "megatron-core", *,
    jitter: float = 0.0, seed: int = 0, slow_ranks: Mapping[int, float] | None = None,
) -> Simulation:  # fmt: skip
    """Play out one training step of a plan on a cluster, event by event, the load of every link included.

    Ranks run their pipeline's schedule. A pass takes what the formulas of `estimate` say, with the exchange of its tensor,
    context and expert groups inside. Sends go beside what follows but for the share that the software doesn't overlap.
    Gradients are summed in the framework's own buckets: beside the backward pass, each as soon as the pass is through its
    layers, where the plan overlaps them, else after it; weights sharded over ranks are gathered one unit ahead of the pass
    that needs them, those that an update changed before the passes of the next step (which is the same as this one) if
    overlapped, else after the update. Each kind of group has one stream, which carries one transfer at a time, in order.
    Beside a pass a transfer has at most the calibrated share of its rate, and slows the pass by the calibrated contention.
    On a link, demands share the bandwidth in proportion where they exceed it. To encode and decode compressed gradients
    takes its time before the update, and counts as ``optimizer``.

    Ranks that do the same at the same time are played as one: by symmetry one rank of each stage, unless `jitter` or
    `slow_ranks` break it; then every data-parallel replica of every stage by itself, ranks that share tensor, context or
    expert groups being one.

    Parameters
    ----------
    model : what is trained
    cluster : on what
    plan : how it is split; its degrees multiply to the cluster's GPUs
    framework : the software, or its name in the catalogue
    jitter : standard deviation of the logarithm of what each pass computes on each replica [s], whose mean stays
    seed : of the jitter
    slow_ranks : GPUs by number which, and so their groups, take so many times as long to compute

    Returns
    -------
    Simulation
        start and end of each event [s], use of compute, memory and links over time, what idles and why

    Raises
    ------
    InvalidValue
        where an argument is not what it should be, or the step has too many events
    IllegalPlan
        with the reason, where the plan can't run
    NotModelled
        for asynchronous schedules, which have no step; and as `ledger`

    Assumes all layers alike, as `estimate`; as `ledger`, that experts are spread over stages as they are; each transfer
    loads its links evenly.

    Examples
    --------
    >>> from costmodel import Plan, load_cluster, load_model
    >>> model, cluster = load_model("bloom-560m"), load_cluster("dgx-a100", gpus=16)
    >>> step = simulate(model, cluster, Plan(global_batch=16, seq_len=2048, data_parallel=16, zero_stage=2), "deepspeed")
    >>> sorted(set(step.frame().event))
    ['backward', 'data', 'forward', 'host', 'optimizer', 'wait']
    >>> bool(sum(step.times.values()).max() - step.total < 1e-9)
    True
    """
    from costmodel.kernels import step_events as kernel

    spread = real("jitter", jitter, 0.0, 10.0)
    whole("seed", seed, 2**63 - 1)
    result = estimate(model, cluster, plan, framework)
    plan = result.plan
    name = str(plan.schedule)
    if not SCHEDULES[name].flushes:
        raise NotModelled(f"a step of schedule={name!r}, which never flushes: `timeline` plays it")
    if SCHEDULES[name].two_way:
        raise NotModelled(f"a step of schedule={name!r}: the sums of gradients between twin ranks are not played; `timeline` "
                          "plays its passes")  # fmt: skip
    made = ledger_of(result)
    symmetric = not spread and not slow_ranks
    replicas = _replicas(result, symmetric)
    factor = _slowness(replicas, plan.pipeline_parallel, slow_ranks)
    schedule = schedule_of(plan, model.layers)
    builder = _Builder(made, schedule, replicas.rows)
    entries, moves = builder.written(), builder.moved()
    if replicas.many * len(entries.kind) > MOST_EVENTS:
        raise InvalidValue(
            "plan", f"{len(entries.kind)} entries x {replicas.many} replicas",
            f"at most {MOST_EVENTS} in all; without jitter and slow_ranks one replica stands for all",
        )  # fmt: skip
    draws = np.array([entry.draw for entry in builder.entries])
    duration = _durations(entries, draws, replicas, factor, spread, seed)
    rows = np.array([move.row for move in builder.moves], dtype=np.int64)
    number, of, members, places, receiver = _instances(moves, rows, replicas.labels)

    bandwidth = np.array(_bandwidths(result))
    overlap = np.array([1.0 if move.overlap is None else move.overlap for move in builder.moves])
    minded = np.array([0.0 if move.overlap is None else move.overlap for move in builder.moves])
    slowdown = 1.0 + builder.shape.software.compute.contention * minded
    starts = np.flatnonzero(entries.kind == START)
    key = entries.stage[starts] * len(STREAMS) + moves.stream[entries.transfer[starts]]
    queues = np.concatenate([[0], np.cumsum(np.bincount(key, minlength=schedule.ranks * len(STREAMS)))])
    code = np.where(entries.kind == START, kernel.START, np.where(entries.kind == WAIT, kernel.WAIT, kernel.WORK))
    programs = kernel.Programs(
        entries.offsets, code, entries.transfer, duration, entries.exchange, entries.load / bandwidth, entries.kind <= BACKWARD,
    )  # fmt: skip
    transfers = kernel.Transfers(
        moves.time, moves.load / bandwidth, overlap / slowdown, slowdown, moves.stream, number, of, members, places, receiver,
        entries.transfer[starts][np.argsort(key, kind="stable")], queues,
    )  # fmt: skip
    room = duration.size + len(of) + 1000
    while True:
        played = kernel.Played(
            np.full(duration.shape, -1.0), np.full(duration.shape, -1.0), np.zeros(len(of)), np.zeros(len(of)),
            np.full(len(of), -1.0), np.zeros(room, dtype=np.int64), np.zeros(room, dtype=np.int64), np.zeros(room),
            np.zeros(room), np.zeros(room),
        )  # fmt: skip
        many = int(kernel.play(programs, transfers, played, replicas.many))
        if many < 0:
            raise RuntimeError(f"a step of {plan!r} waits for ever")
        if many <= room:
            break
        room = many
    bills = result.memory.stages
    base = np.array([sum(bill.parts[1:4]) + bill.parts.buffers + bill.parts.overhead for bill in bills], dtype=np.float64)
    return Simulation(
        ledger=made, schedule=schedule, replicas=replicas.many, entries=entries, start=played.start, end=played.end,
        duration=duration, transfers=moves,
        instances=Instances(of, number, np.bincount(number.ravel(), minlength=len(of)), played.asked, played.begun, played.done),
        pieces=Pieces(
            played.piece[:many], played.entry[:many], played.since[:many], played.until[:many], played.rate[:many]
        ),
        base=base,
    )  # fmt: skip


__all__ = ["Simulation", "simulate"]

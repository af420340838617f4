"""What a played step gives: what each rank did and when, how it spent its time, what it held and sent, and its links' load."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.description.labels import label
from costmodel.description.schedule import BACKWARD, Schedule
from costmodel.evaluation.estimation import Estimate, title
from costmodel.formulas.pipeline.schedules import SCHEDULES
from costmodel.simulation.transactions import Ledger
from costmodel.text.checks import positive_int
from costmodel.text.results import figure
from costmodel.text.tables import headed, table
from costmodel.text.units import format_seconds

if TYPE_CHECKING:
    import pandas

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

KINDS = ("forward", "backward-input", "backward-weight", "backward", "sending", "optimizer", "host", "fullest", "start", "wait")
"""What a rank does: four passes; what of a send it doesn't overlap; the update; the host; it waits for the replica with most
tokens; it starts or awaits a transfer."""
SENDING, OPTIMIZER, HOST, FULLEST, START, WAIT = range(4, 10)
GROUPS = ("tensor", "context", "expert", "expert tensor")
"""Groups whose exchange goes on inside passes."""
STREAMS = ("data", "expert data", "embedding", "pipeline forward", "pipeline backward")
"""Streams of transfers, each of which carries one at a time, in order."""
BUSY = ("compute", "exchange", "contention", "optimizer")
IDLE = ("bubble", "send", "gradient exchange", "parameter gather", "slowest replica", "host")
LEVELS = 3


class Entries(NamedTuple):
    """What the ranks of each stage do, in order, one stage after the other; of work also what it is made of."""

    offsets: Integers  # first entry of each stage, and the number of entries
    kind: Integers  # an index into `KINDS`
    micro_batch: Integers  # of a pass; else -1
    transfer: Integers  # number of the transfer that is started or awaited; else -1
    duration: Floats  # of work by itself [s]
    exchange: Floats  # exchange, host: parts of a pass [s]; the rest of it is compute
    host: Floats
    moved: Floats  # sent in it over the groups of `GROUPS` [bytes]
    load: Floats  # on a GPU's link of each level [bytes]
    saved: Floats  # by how much it changes the activations held, at its start if more, at its end if less [bytes]

    @property
    def stage(self) -> Integers:
        """Pipeline rank of each entry."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))


class StepTransfers(NamedTuple):
    """Every transfer of a step."""

    stage: Integers  # that starts it
    other: Integers  # that starts it too, or receives it; else -1
    stream: Integers  # an index into `STREAMS`
    phase: tuple[str, ...]  # of the ledger
    micro_batch: Integers  # -1 for once a step
    nbytes: Floats  # of the buffer or message [bytes]
    sent: Floats  # by a rank [bytes]
    load: Floats  # on a GPU's link of each level [bytes]
    time: Floats  # alone [s]


class Pieces(NamedTuple):
    """Stretches of time in which work or a transfer went on at one rate."""

    rank: Integers  # ``stage * replicas + replica`` of work; -1 less the instance of a transfer
    entry: Integers  # of work; else -1
    start: Floats  # start, end: [s]
    end: Floats
    rate: Floats  # progress in a second over that in a second alone


class Instances(NamedTuple):
    """Transfers as the groups of replicas made them."""

    of: Integers  # transfer of each
    number: Integers  # transfers x replicas, the instance that a replica takes part in
    members: Integers  # replicas in each
    asked: Floats  # when the last rank started it [s]
    start: Floats  # start, end: [s]
    end: Floats


class Utilisation(NamedTuple):
    """Means over bins of time, of the GPUs of each stage."""

    times: Floats  # edges of the bins [s]
    compute: Floats  # share of the time in which a GPU computes, stages x bins
    held: Floats  # on a GPU, stages x bins [bytes]
    links: dict[str, Floats]  # of each level, what a GPU's link carries, stages x bins [bytes/s]


class LinkLoad(NamedTuple):
    """Load of a GPU's link of one level, on the stage that loads it most."""

    level: str  # of the cluster
    stage: int  # rank in the pipeline
    bandwidth: float  # that collectives reach, the software's factor included [bytes/s]
    nbytes: float  # in the step [bytes]
    busy: float  # share of the step that they take at that rate
    mean_rate: float  # mean_rate, peak_rate: over the step, and at the highest [bytes/s]
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
    transfers: StepTransfers
    instances: Instances
    pieces: Pieces
    base: Floats

    plot = figure

    def __repr__(self) -> str:
        return headed(*self._said())

    def _repr_html_(self) -> str:
        rows = [
            [part.replace("_", " "), format_seconds(float(times.mean())), f"{100 * float(times.mean()) / self.total:.1f} %"]
            for part, times in self.times.items() if times.any()
        ]  # fmt: skip
        return table(": ".join(self._said()), ["part", "mean of all ranks", "of the step"], rows)

    def _said(self) -> tuple[str, str]:
        """What it is of, and what came out."""
        return (
            f"Simulation: {title(self.estimate)}, {label(self.estimate.plan)}, {self.events:,} events",
            f"{format_seconds(self.step_time)} a step, {format_seconds(self.estimate.step_time)} estimated"
        )

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
        """The longest time from a rank's first work to its end, and what it waits before for weights that it gathers [s]."""
        kind, offsets = self.entries.kind, self.entries.offsets
        worked = np.where((kind == WAIT) | (kind == START), np.inf, self.start)
        first = np.minimum.reduceat(worked, offsets[:-1], axis=1)
        last = np.maximum.reduceat(self.end, offsets[:-1], axis=1)
        own = np.zeros(len(kind), dtype=np.bool_)
        waits = np.flatnonzero(kind == WAIT)
        own[waits] = self.transfers.stream[self.entries.transfer[waits]] < STREAMS.index("embedding")
        before = own & (self.start < np.repeat(first, np.diff(offsets), axis=1))
        gathers = np.add.reduceat(np.where(before, self.end - self.start, 0.0), offsets[:-1], axis=1)
        return float((last - first + gathers).max())

    @property
    def step_time(self) -> float:
        """Of each of many such steps [s]: `total`, or `period` where the optimizer waits for no other stage."""
        return self.period if SCHEDULES[self.schedule.name].asynchronous else self.total

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
        way; ``slowest replica``: for other replicas that have not come to them, or have more tokens; ``host``: for the host.
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
        parts["slowest replica"] += np.where(kind == FULLEST, alone, 0.0)
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
        links = zip(self.estimate.cluster.levels, link_bandwidths(self.estimate), strict=False)
        for place, (level, bandwidth) in enumerate(links):
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
            "micro_batch": moves.micro_batch[made.of], "nbytes": moves.nbytes[made.of], "start_s": made.start, "end_s": made.end,
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


def link_bandwidths(result: Estimate) -> list[float]:
    """What collectives reach on a GPU's link of each level, the software's factor included, innermost first [bytes/s]."""
    quality = result.framework.numbers().network.quality
    return [float(quality * level.bandwidth) for level in result.cluster.numbers()]

"""How long a step of traced code takes on a cluster, how sure that is, and where its time goes."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.evaluation.error_model import STEP as NUDGE
from costmodel.evaluation.error_model import device_errors, spread_of
from costmodel.evaluation.first_contacts import Error
from costmodel.formulas.quantities import DeviceNumbers
from costmodel.formulas.training_step import GRAPH_LAUNCH
from costmodel.text.results import figure, fitted
from costmodel.text.tables import table
from costmodel.text.units import format_bytes, format_seconds
from costmodel.traces.allocator import NEVER, Reserved, replay
from costmodel.traces.fusion import Fused, fused, graph_launches
from costmodel.traces.kernels import kernel_times, processor_times, rates_of
from costmodel.traces.places import checked_cluster, software_of
from costmodel.traces.record import END_OF_GRAPH, GRAPH, KERNEL, NOWHERE, PHASES, STEP, TRANSACTION, Role, Trace
from costmodel.traces.room import room
from costmodel.traces.scheduling import Durations, PlayedRole, play
from costmodel.traces.transactions import PricedTransactions, transaction_times

if TYPE_CHECKING:
    import pandas

Floats = NDArray[np.float64]

LAUNCH = {"forward": 9e-6, "backward": 6e-6, "optimizer": 9e-6, "other": 9e-6}
"""Time of the host for a kernel by phase, at a host's usual pace: PyTorch calls an operator from Python in 5 to 10 us, and
backward, from C++, in less [s]."""
REMAPPING = 80e-3 / 5.1e9
"""Time that a step loses to a byte that the allocator gives back to the driver (``cudaFree``) and has mapped again
(``cudaMalloc``) [s]. PEFT's MetaMathQA benchmark takes 65 s for 250 steps where it empties the cache after each, and 45 s where
it never does (huggingface/peft#2894); 12.0 GB are reserved on average as a step ends, of which 6.9 GB are allocated
(huggingface/peft#2740): the rest goes back. The host waits for the loss in either case."""
REMAPPING_SPREAD = 0.5
"""Standard deviation of its logarithm: by the same benchmark emptied every tenth step, with at most 19.3 GB reserved, it is a
quarter more, and of other devices and drivers nothing as exact was found."""
UNEVEN = 1.25
"""Ratio of two steps' times from which it is said that they differ."""
HALVINGS = 8
"""Of the room that a device would have to have, to find how much is just enough."""
PASSES = 2
"""Times that a trace is played: alone; and with kernels as slow as transactions beside them make them, and with the waits of an
allocator that has to find room."""


class TimeParts(NamedTuple):
    """Where the time of a role's step goes [s]: the parts add up to the step."""

    computing: float  # on any stream
    exchanging: float  # while nothing computes
    idle: float  # neither: the host launches, computes or waits, or other ranks are late


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TraceEstimate:
    """A traced step on a cluster.

    Parameters
    ----------
    trace, cluster, framework : what was priced, on what, with whose constants
    played : each role's timeline [s]
    kernels : time of each role's kernels, alone [s]; `played` has what transactions beside them make of it
    transactions : each role's, priced
    returned : what each role's allocator gives back to the driver in each row, for which the host waits [bytes]
    error : how far the step's time may lie from the estimate
    """

    trace: Trace
    cluster: Cluster
    framework: Framework
    played: tuple[PlayedRole, ...]
    kernels: tuple[Floats, ...]
    transactions: tuple[PricedTransactions, ...]
    returned: tuple[NDArray[np.int64], ...]
    error: Error

    plot = figure

    def window(self, place: int) -> tuple[float, float]:
        """When a role's last step began and ended on its device [s].

        Parameters
        ----------
        place : of the role in the trace
        """
        ends = [0.0, *self._ends(place)]
        return ends[-2], ends[-1]

    def _ends(self, place: int) -> list[float]:
        """When a role's steps ended on its device; where none did, when all was done [s]."""
        role, played = self.trace.roles[place], self.played[place]
        done = np.maximum.accumulate(played.end) if len(played.end) else np.zeros(1)
        ends = np.flatnonzero(role.timeline.action == STEP)
        return [float(one) for one in (done[ends] if len(ends) else done[-1:])]

    @property
    def uneven(self) -> str:
        """That the last step isn't like the one before, in words; "" where it is, or that was the first, which never is."""
        place = max(range(len(self.trace.roles)), key=lambda one: self.window(one)[1] - self.window(one)[0])
        times = np.diff([0.0, *self._ends(place)])
        if len(times) < 3 or not 0.0 < times[-2] < math.inf or 1.0 / UNEVEN < times[-1] / times[-2] < UNEVEN:
            return ""
        return (
            f"The last of {len(times)} steps, which counts, takes {format_seconds(float(times[-1]))}, the one before "
            f"{format_seconds(float(times[-2]))}: one of them holds more, as an evaluation or a longer batch"
        )

    @functools.cached_property
    def step_time(self) -> float:
        """Of the last step that was recorded, on the role that takes longest [s]."""
        return max(end - start for start, end in map(self.window, range(len(self.trace.roles))))

    @property
    def interval(self) -> tuple[float, float]:
        """The 90 % interval of the step's time [s]."""
        return self.error.interval(self.step_time)

    @property
    def alone(self) -> tuple[str, ...]:
        """Lines of transactions whose partners never came, which were played alone."""
        found = [
            role.texts[role.timeline.line[row]]
            for role, played in zip(self.trace.roles, self.played, strict=True)
            for row in played.alone
        ]
        return tuple(dict.fromkeys(found))

    def parts(self, place: int = 0) -> TimeParts:
        """Where the time of a role's last step goes."""
        role, played = self.trace.roles[place], self.played[place]
        window = self.window(place)
        computing = merged(*_spans(role, played, KERNEL), window)
        both = merged(*_spans(role, played, KERNEL, TRANSACTION), window)
        busy, covered = float((computing[1] - computing[0]).sum()), float((both[1] - both[0]).sum())
        return TimeParts(busy, covered - busy, window[1] - window[0] - covered)

    @property
    def exposed_communication(self) -> float:
        """Of the role that exchanges most while nothing computes [s]."""
        return max(self.parts(place).exchanging for place in range(len(self.trace.roles)))

    @property
    def flop(self) -> float:
        """Of products in the last step, on the role that has most [FLOP]."""
        return max(float(role.kernels.flop[role.rows(KERNEL, role.step())].sum()) for role in self.trace.roles)

    @property
    def mfu(self) -> float:
        """Share of the dense peak at the device's usual dtype that these products are."""
        device = self.cluster.device
        return self.flop / (self.step_time * device.peak(device.usual_dtype)) if self.step_time else 0.0

    def operators(self, place: int = 0) -> list[TracedOperator]:
        """Kernels and transactions of a role's last step by what they are, what takes longest first."""
        role, played = self.trace.roles[place], self.played[place]
        step, found = role.step(), dict[tuple[str, str], list[float]]()
        timeline, texts = role.timeline, role.texts
        by_host = processor_times(role, self.cluster, self.framework)
        for row in step:
            action, item = int(timeline.action[row]), int(timeline.item[row])
            if action not in (KERNEL, TRANSACTION):
                continue
            part = role.kernels if action == KERNEL else role.transactions
            moved = (
                role.kernels.bytes_read[item] + role.kernels.bytes_written[item]
                if action == KERNEL
                else role.transactions.bytes[item]
            )
            flop, computed = (role.kernels.flop[item], by_host[item]) if action == KERNEL else (0, 0.0)
            sums = found.setdefault((texts[part.op[item]], PHASES[part.phase[item]]), [0.0, 0.0, 0.0, 0.0])
            for index, value in enumerate((1.0, played.end[row] - played.start[row] + computed, moved, flop)):
                sums[index] += float(value)
        made = [TracedOperator(op, phase, int(sums[0]), *sums[1:]) for (op, phase), sums in found.items()]
        return sorted(made, key=lambda one: -one.time)

    def frame(self) -> pandas.DataFrame:
        """One row for each operator and phase of every role's last step."""
        import pandas

        rows = [
            {"rank": role.rank} | operator._asdict()
            for place, role in enumerate(self.trace.roles)
            for operator in self.operators(place)
        ]
        return pandas.DataFrame(rows)

    def __repr__(self) -> str:
        (low, high), ranks = self.interval, self.trace.world_size
        lines = [
            f"TraceEstimate: step {format_seconds(self.step_time)} ({format_seconds(low)} to {format_seconds(high)}, nine in ten)"
            f" on {ranks} rank{'s' if ranks > 1 else ''} of {self.cluster.name}, MFU {100.0 * self.mfu:.1f} %"
        ]
        for place, role in enumerate(self.trace.roles):
            parts = self.parts(place)
            lines.append(
                f"  rank {role.rank}: computing {format_seconds(parts.computing)}, exchanging beside nothing "
                f"{format_seconds(parts.exchanging)}, idle {format_seconds(parts.idle)}"
            )
        lines += [f"  no partner came: {line or 'unknown line'}" for line in self.alone]
        return fitted("\n".join(lines))

    def _repr_html_(self) -> str:
        rows = [
            [one.op, one.phase, f"{one.launches:,}", format_seconds(one.time), format_bytes(one.bytes)]
            for one in self.operators()
        ]
        return table(repr(self).splitlines()[0], ["operator", "phase", "launches", "time", "bytes"], rows)


class TracedOperator(NamedTuple):
    """All kernels or transactions of one name and phase in a step."""

    op: str
    phase: str
    launches: int
    time: float  # [s]
    bytes: float
    flop: float


def price_trace(trace: Trace, cluster: Cluster, framework: Framework | str | None = None) -> TraceEstimate:
    """Price a trace on a cluster.

    Kernels by the formulas of products, attention and bandwidth with the device's constants, transactions as `collective_time`
    has them inside a framework's steps, and all of it in the order in which the host launched it, with its waits.

    Parameters
    ----------
    trace : `Trace`
    cluster : with GPUs for its world
    framework : or its name, whose constants count; the trace's own unless given

    Returns
    -------
    TraceEstimate

    Raises
    ------
    InvalidValue
        where the cluster has fewer GPUs than the trace has ranks
    NotModelled
        of a transaction that has no price
    """
    checked_cluster(trace, cluster)
    software = software_of(trace, cluster, framework)
    constants = software.numbers()
    rates = rates_of(trace, cluster.device, constants)
    chains = [fused(role) for role in trace.roles]
    kernels = [made.times(kernel_times(role, rates), rates.base) for role, made in zip(trace.roles, chains, strict=True)]
    moves = [transaction_times(role, cluster, software) for role in trace.roles]
    graphed = frozenset(map(int, trace.facts.get("graphed_parts", "").split()))
    hosts = [host_times(role, cluster, software, made, graphed) for role, made in zip(trace.roles, chains, strict=True)]
    played: tuple[PlayedRole, ...] = ()
    slowed, returned = kernels, [np.zeros(len(role.timeline), dtype=np.int64) for role in trace.roles]
    for _ in range(PASSES):
        if played:
            slowed = [
                alone + constants.compute.contention * _beside(role, each)
                for role, each, alone in zip(trace.roles, played, kernels, strict=True)
            ]
            returned = [
                _returned(role, room(role, cluster, software), each) for role, each in zip(trace.roles, played, strict=True)
            ]
        durations = [
            Durations(alone, move.time, host + REMAPPING * back, back > 0)
            for alone, move, host, back in zip(slowed, moves, hosts, returned, strict=True)
        ]
        played = play(trace, durations)
    made = TraceEstimate(
        trace=trace, cluster=cluster, framework=software, played=played, kernels=tuple(kernels), transactions=tuple(moves),
        returned=tuple(returned), error=Error(0.0),
    )  # fmt: skip
    return dataclasses.replace(made, error=_error(made, kernels, chains))


def host_times(
    role: Role, cluster: Cluster, framework: Framework, chains: Fused | None = None, graphed: Collection[int] = ()
) -> Floats:
    """Time of the host for each row of a role's timeline, with what it computes itself and without what it waits [s].

    Parameters
    ----------
    cluster : whose hosts these are
    framework : whose pace of the host, and call of a collective
    chains : kernels that a compiler makes one, which are launched once; none unless given
    graphed : numbers of compiled parts that are launched as CUDA graphs
    """
    host, timeline = framework.numbers().host, role.timeline
    found = np.zeros(len(timeline))
    launched = timeline.action == KERNEL
    kernels = timeline.item[launched]
    found[launched] = np.array([LAUNCH[phase] for phase in PHASES])[role.kernels.phase[kernels]] * host.pace
    if chains is not None:
        found[launched] *= ~chains.gone[kernels]
    if graphed:
        launches = graph_launches(role, graphed)
        found[launched] = np.where(launches >= 0, launches * GRAPH_LAUNCH, found[launched])
    found[launched] += processor_times(role, cluster, framework)[kernels]
    found[timeline.action == TRANSACTION] = host.collective_call * host.pace
    within = np.cumsum(timeline.action == GRAPH) > np.cumsum(timeline.action == END_OF_GRAPH)
    found[within] = 0.0
    found[timeline.action == GRAPH] = GRAPH_LAUNCH
    return found


def merged(start: Floats, end: Floats, window: tuple[float, float]) -> tuple[Floats, Floats]:
    """Spans of time without those that overlap, cut to a window [s].

    Parameters
    ----------
    start, end : of each [s]
    window : from when to when [s]

    Examples
    --------
    >>> import numpy as np
    >>> starts, ends = merged(np.array([0.0, 1.0, 5.0]), np.array([2.0, 3.0, 9.0]), (0.5, 6.0))
    >>> starts.tolist(), ends.tolist()
    ([0.5, 5.0], [3.0, 6.0])
    """
    start, end = np.clip(start, *window), np.clip(end, *window)
    kept = end > start
    order = np.argsort(start[kept], kind="stable")
    start, end = start[kept][order], np.maximum.accumulate(end[kept][order])
    if not len(start):
        return start, end
    first = np.concatenate([[True], start[1:] > end[:-1]])
    last = np.concatenate([first[1:], [True]])
    return start[first], end[last]


def _returned(role: Role, capacity: float, played: PlayedRole) -> NDArray[np.int64]:
    """What the allocator gives back in each row [bytes]; of a device without room for the role, as one that has just enough."""

    def made(bytes_: float) -> Reserved:
        return replay(role, bytes_, host=played.host, ends=played.end)

    found = made(capacity)
    if found.failed_at == NOWHERE:
        return found.returned
    found = made(NEVER)
    low, high = capacity, float(found.reserved.max())
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        tried = made(middle)
        if tried.failed_at == NOWHERE:
            found, high = tried, middle
        else:
            low = middle
    return found.returned


def _spans(role: Role, played: PlayedRole, *actions: int) -> tuple[Floats, Floats]:
    rows = np.flatnonzero(np.isin(role.timeline.action, actions) & (role.timeline.stream != NOWHERE))
    return played.start[rows], played.end[rows]


def _beside(role: Role, played: PlayedRole) -> Floats:
    """Time of each kernel during which something is exchanged [s]."""
    start, end = merged(*_spans(role, played, TRANSACTION), (0.0, math.inf))
    if not len(start):
        return np.zeros(len(role.kernels))
    times = np.stack([start, end], axis=1).ravel()
    busy = np.stack([np.zeros(len(start)), end - start], axis=1).ravel().cumsum()
    rows = np.flatnonzero(role.timeline.action == KERNEL)
    found = np.zeros(len(role.kernels))
    found[role.timeline.item[rows]] = np.interp(played.end[rows], times, busy) - np.interp(played.start[rows], times, busy)
    return found


def _error(made: TraceEstimate, kernels: list[Floats], chains: list[Fused]) -> Error:
    """How far the step's time may lie from the estimate, as first contacts show and the device's constants leave it.

    A constant's slope is what kernels take longer by it, over the step. What a compiler saves may be off by a half.
    """
    trace, device = made.trace, made.cluster.device
    place = max(range(len(trace.roles)), key=lambda one: float(kernels[one].sum()))
    role = trace.roles[place]
    counted = role.rows(KERNEL, role.step())
    base = float(kernels[place][counted].sum())
    alone = kernel_times(role, rates_of(trace, device, made.framework.numbers()))
    saved = (float(alone[counted].sum()) - base) / max(made.step_time, 1e-12)
    variance = 0.0
    for one in device_errors(device, device.usual_dtype):
        nudged = rates_of(trace, device, made.framework.numbers(), _nudged(one.numbers))
        moved = chains[place].times(kernel_times(role, nudged), nudged.base)
        slope = (float(moved[counted].sum()) - base) / (NUDGE * max(made.step_time, 1e-12))
        variance += (slope * one.error) ** 2
    given_back = float(made.returned[place][role.step()].sum())
    variance += (REMAPPING_SPREAD * REMAPPING * given_back / max(made.step_time, 1e-12)) ** 2
    told = spread_of(made.framework, device).time(math.sqrt(variance))
    return told.widened(math.log1p(saved / 2.0)) if saved else told


def _nudged(fields: tuple[str, ...]) -> Callable[[DeviceNumbers], DeviceNumbers]:
    def change(numbers: DeviceNumbers) -> DeviceNumbers:
        return numbers._replace(**{field: getattr(numbers, field) * (1.0 + NUDGE) for field in fields})

    return change

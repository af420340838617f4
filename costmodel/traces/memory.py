"""What a traced rank holds at its fullest moment: by kind, by module, tensor by tensor, with what would make it less."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.text.errors import InvalidValue
from costmodel.text.results import figure, fitted
from costmodel.text.tables import table
from costmodel.text.units import MiB, format_bytes, format_seconds
from costmodel.traces.allocator import NEVER, Reserved, replay
from costmodel.traces.places import checked_cluster, software_of
from costmodel.traces.pricing import REMAPPING, TraceEstimate, price_trace
from costmodel.traces.record import BORN, DIED, KINDS, NOWHERE, PHASES, USED_ON, Role, Trace
from costmodel.traces.room import outside_bytes, room, usable_bytes
from costmodel.traces.scheduling import PlayedRole

if TYPE_CHECKING:
    import pandas

LARGEST = 20
"""Tensors that an answer lists unless asked for more."""
WORTH = 64 * MiB
"""Bytes from which a change is worth a line of advice."""


class LiveTensor(NamedTuple):
    """A tensor at the fullest moment."""

    bytes: int
    kind: str  # of `KINDS`
    module: str
    parameter: str  # whose it is; "" of none
    shape: str
    dtype: str
    op: str  # that made it
    born: int  # row of the timeline
    died: int  # the same; -1 of one that is held to the end
    line: str  # of the user's code at its birth
    until: str  # the same at its death; "" of one that is held to the end


@dataclasses.dataclass(frozen=True, kw_only=True)
class TraceMemory:
    """Memory of a traced rank on a device.

    Parameters
    ----------
    rank : that ran
    allocated : at the peak, as ``torch.cuda.max_memory_allocated`` counts it [bytes]; of a device that has no room, what one that
        has would hold
    reserved : the most that the allocator held, as ``torch.cuda.max_memory_reserved`` counts it [bytes]; the same
    expandable : reserved with expandable segments [bytes]
    retries : times in the last step that the allocator gave its cache back to find room, each of which waits for the device
    at : row of the timeline at which the peak is; the one for which the device had no room, if there is one
    phase, module, line : of what was born there
    by_kind : held at the peak of each of `KINDS` [bytes]; `rounding` is what the allocator adds
    by_module : held at the peak by what each module made, the most first [bytes]
    largest : tensors held at the peak, the largest first
    outside : of the process, outside the allocator [bytes]: the context, the communication library
    capacity : of the device, as a process sees it [bytes]
    failed_at : line at which the device had no room, None where it always had
    helps : what would make it less, a sentence each
    role : whose memory it is
    played : what the allocator did, row by row
    """

    rank: int
    allocated: int
    reserved: int
    expandable: int
    retries: int
    at: int
    phase: str
    module: str
    line: str
    by_kind: dict[str, int]
    by_module: dict[str, int]
    largest: tuple[LiveTensor, ...]
    outside: dict[str, float]
    capacity: float
    failed_at: str | None
    helps: tuple[str, ...]
    role: Role = dataclasses.field(repr=False, compare=False)
    played: Reserved = dataclasses.field(repr=False, compare=False)

    plot = figure

    @property
    def process(self) -> float:
        """Bytes of the process in all, as nvidia-smi shows them."""
        return self.reserved + sum(self.outside.values())

    @property
    def fits(self) -> bool:
        """Whether the device always had room."""
        return self.failed_at is None

    @property
    def mapped(self) -> float:
        """Memory that the driver is asked for in the last step [bytes]."""
        step = self.role.step()
        more = np.diff(self.played.reserved, prepend=0) + self.played.returned
        return float(more[step.start : step.stop].sum())

    @property
    def remapping(self) -> float:
        """Time that the last step loses to memory that goes back to the driver and is mapped again [s]."""
        step = self.role.step()
        return REMAPPING * float(self.played.returned[step.start : step.stop].sum())

    @property
    def warnings(self) -> tuple[str, ...]:
        """What memory costs in time, a sentence each."""
        if not self.retries:
            return ()
        times = "once" if self.retries == 1 else f"{self.retries} times"
        return (
            f"to find room the allocator gives its cache back {times} a step and has {format_bytes(self.mapped)} mapped anew, "
            f"for which the step waits {format_seconds(self.remapping)}",
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash((self.rank, self.allocated, self.reserved))

    def __repr__(self) -> str:
        fits = "fits" if self.fits else f"out of memory at {self.failed_at or 'an unknown line'}"
        head = (
            f"TraceMemory: rank {self.rank}: {format_bytes(self.allocated)} allocated, {format_bytes(self.reserved)} reserved, "
            f"{format_bytes(self.process)} of the process; {fits} in {format_bytes(self.capacity)}"
        )
        kinds = ", ".join(f"{kind} {format_bytes(held)}" for kind, held in self.by_kind.items() if held >= MiB)
        moment = f"fullest in {self.phase}{f', {self.module}' if self.module else ''}{f' ({self.line})' if self.line else ''}"
        return fitted("\n".join([head, f"  {moment}: {kinds}", *(f"  {one}" for one in (*self.warnings, *self.helps))]))

    def _repr_html_(self) -> str:
        rows = [
            [one.parameter or one.module or one.op, one.kind, one.shape, one.dtype, format_bytes(one.bytes), one.line]
            for one in self.largest
        ]
        heading = repr(self).splitlines()[0]
        columns = ["tensor", "kind", "shape", "dtype", "bytes", "line"]
        return table(heading, columns, rows, "; ".join(self.helps))

    def frame(self) -> pandas.DataFrame:
        """One row a tensor of `largest`."""
        import pandas

        return pandas.DataFrame(list(self.largest), columns=list(LiveTensor._fields))


def memory_of_trace(
    trace: Trace, cluster: Cluster, framework: Framework | str | None = None, *, rank: int | None = None,
    expandable: bool = False, largest: int = LARGEST, estimate: TraceEstimate | None = None,
) -> TraceMemory:  # fmt: skip
    """Peak memory of a traced rank on a cluster's device, by liveness and the caching allocator's rules.

    Parameters
    ----------
    trace : of which
    cluster : whose device it is
    framework : or its name, whose constants say what the communication library holds; the trace's own unless given
    rank : of which role; that which holds most unless given
    expandable : whether the allocator's segments are expandable
    largest : tensors to list
    estimate : of this trace there, if it was made; it says when blocks that several streams use come back

    Returns
    -------
    TraceMemory
    """
    checked_cluster(trace, cluster)
    software = software_of(trace, cluster, framework)
    chosen = [place for place, role in enumerate(trace.roles) if rank is None or rank in role.stands_for]
    if not chosen:
        raise InvalidValue("rank", rank, "one of those that the roles stand for")
    shares = any((trace.roles[place].timeline.action == USED_ON).any() for place in chosen)
    made = (estimate or price_trace(trace, cluster, software)) if shares else None
    found = [
        _memory_of(trace.roles[place], cluster, software, expandable, largest, None if made is None else made.played[place])
        for place in chosen
    ]
    return max(found, key=lambda one: (not one.fits, one.allocated))


def held_bytes(role: Role, kind: str | None = None) -> NDArray[np.int64]:
    """Bytes of living storages after each row of a role's timeline, without any rounding [bytes].

    Parameters
    ----------
    kind : of `KINDS`; all of them unless given
    """
    timeline, storages = role.timeline, role.storages
    sizes = storages.bytes if kind is None else np.where(storages.kind == KINDS.index(kind), storages.bytes, 0)
    change = np.zeros(len(timeline), dtype=np.int64)
    for action, sign in ((BORN, 1), (DIED, -1)):
        rows = timeline.action == action
        change[rows] = sign * sizes[timeline.item[rows]]
    return np.cumsum(change)


def living(role: Role, row: int) -> NDArray[np.int64]:
    """Storages alive after a row of the timeline.

    Parameters
    ----------
    row : of its timeline
    """
    storages = role.storages
    return np.flatnonzero((storages.born <= row) & ((storages.died == NOWHERE) | (storages.died > row)))


def _memory_of(
    role: Role, cluster: Cluster, framework: Framework, expandable: bool, largest: int, when: PlayedRole | None
) -> TraceMemory:
    outside = outside_bytes(role, cluster, framework)
    host, ends = (None, None) if when is None else (when.host, when.end)
    played, freely = replay(role, room(role, cluster, framework), expandable, host, ends), replay(role, NEVER, True, host, ends)
    held = played if played.failed_at == NOWHERE else replay(role, NEVER, expandable, host, ends)
    at = _fullest(role, played)
    alive = living(role, at)
    texts, storages, timeline = role.texts, role.storages, role.timeline
    sizes = storages.bytes[alive]
    by_kind = {kind: int(sizes[storages.kind[alive] == place].sum()) for place, kind in enumerate(KINDS)}
    by_kind["rounding"] = int(held.allocated[at]) - int(sizes.sum()) if len(role.timeline) else 0
    modules: Counter[str] = Counter()
    for storage, size in zip(alive.tolist(), sizes.tolist(), strict=True):
        modules[texts[storages.module[storage]]] += size
    order = alive[np.argsort(-sizes, kind="stable")]
    newest = int(timeline.item[at]) if timeline.action[at] == BORN else NOWHERE
    failed = played.failed_at
    made = TraceMemory(
        rank=role.rank, allocated=int(held.allocated.max(initial=0)), reserved=int(held.reserved.max(initial=0)),
        expandable=int(freely.reserved.max(initial=0)), retries=sum(row in role.step() for row in played.retried_at), at=at,
        phase=PHASES[storages.phase[newest]] if newest >= 0 else "other",
        module=texts[storages.module[newest]] if newest >= 0 else "", line=texts[timeline.line[at]] if len(timeline) else "",
        by_kind=by_kind, by_module=dict(modules.most_common()),
        largest=tuple(_held(role, int(storage)) for storage in order[:largest]), outside=outside, capacity=usable_bytes(cluster),
        failed_at=None if failed == NOWHERE else texts[timeline.line[failed]], helps=(), role=role, played=played,
    )  # fmt: skip
    return dataclasses.replace(made, helps=tuple(_helps(made, role, order)))


def _fullest(role: Role, played: Reserved) -> int:
    """The row at which most is allocated; where there was no room, the one that asked."""
    if not len(role.timeline):
        return 0
    return played.failed_at if played.failed_at != NOWHERE else int(np.argmax(played.allocated))


def _held(role: Role, storage: int) -> LiveTensor:
    texts, storages = role.texts, role.storages
    died = int(storages.died[storage])
    return LiveTensor(
        bytes=int(storages.bytes[storage]), kind=KINDS[storages.kind[storage]], module=texts[storages.module[storage]],
        parameter=texts[storages.parameter[storage]], shape=texts[storages.shape[storage]], dtype=texts[storages.dtype[storage]],
        op=texts[storages.op[storage]], born=int(storages.born[storage]), died=died, line=texts[storages.line[storage]],
        until="" if died == NOWHERE else texts[role.timeline.line[died]],
    )  # fmt: skip


def _helps(made: TraceMemory, role: Role, alive: NDArray[np.int64]) -> list[str]:
    """What would make it less, most first."""
    found: list[tuple[float, str]] = []
    ranks = max((len(group) for group in role.groups), default=1)
    kinds, sharded = made.by_kind, _sharded(role)
    for kind, words in (
        ("optimizer", "sharding the optimizer's state over the {ranks} data ranks (ZeRO-1) would save {saved}"),
        ("gradient", "sharding the gradients over the {ranks} data ranks (ZeRO-2) would save {saved}"),
        ("weight", "sharding the weights over the {ranks} data ranks (ZeRO-3, FSDP) would save {saved}"),
    ):
        whole = 0 if kind in sharded else _unsharded(role, alive, KINDS.index(kind))
        if ranks > 1 and whole > WORTH:
            saved = whole * (1.0 - 1.0 / ranks)
            found.append((saved, words.format(ranks=ranks, saved=format_bytes(saved))))
    if kinds["activation"] > WORTH:
        half = kinds["activation"] / 2
        found.append((half, f"half the micro-batch would save up to {format_bytes(half)} of activations; recomputing them, more"))
    head = max(made.largest, key=lambda one: one.bytes * (one.kind in ("activation", "temporary")), default=None)
    if head is not None and head.kind in ("activation", "temporary") and head.bytes > 0.1 * made.allocated:
        whose = f"module {head.module}" if head.module else head.op or "a tensor"
        logits = int(head.shape.rpartition("x")[2] or 0) in classes_of(role)
        found.append((
            head.bytes,
            f"{whose} alone holds {format_bytes(head.bytes)} in one tensor of {head.shape} in {head.dtype or 'its dtype'}"
            + ("; of logits, a fused or chunked loss makes none" if logits else ""),
        ))  # fmt: skip
    unused = made.reserved - made.allocated
    saved = made.reserved - made.expandable
    if saved > WORTH:
        found.append((saved, f"expandable segments would reserve {format_bytes(saved)} less of {format_bytes(unused)} unused"))
    return [words for _, words in sorted(found, key=lambda one: -one[0])]


def classes_of(role: Role) -> set[int]:
    """Sizes over which a loss takes softmaxes: of a vocabulary, of classes."""
    made = role.storages
    pairs = set(zip(made.op.tolist(), made.shape.tolist(), strict=True))
    sizes = {role.texts[shape].rpartition("x")[2] for op, shape in pairs if role.texts[op].endswith("_log_softmax")}
    return {int(size) for size in sizes if size}


def _sharded(role: Role) -> tuple[str, ...]:
    """Kinds of states that ranks share already, by what they gather and when: flat shards are parameters of their own names."""
    moves = role.transactions
    pairs = zip(moves.op.tolist(), moves.parameter.tolist(), strict=True)
    gathers = [role.texts[op] == "all-gather" and role.texts[parameter] != "" for op, parameter in pairs]
    if not any(gathers):
        return ()
    passes = np.isin(moves.phase[gathers], [PHASES.index("forward"), PHASES.index("backward")]).any()
    return ("optimizer", "gradient", "weight") if passes else ("optimizer",)


def _unsharded(role: Role, alive: NDArray[np.int64], kind: int) -> int:
    """Bytes of a kind whose parameter lies whole on this rank."""
    storages, parameters = role.storages, role.parameters
    elements = {int(name): int(count) for name, count in zip(parameters.name, parameters.elements, strict=True)}
    of_kind = alive[storages.kind[alive] == kind]
    return sum(
        int(storages.bytes[one]) for one in of_kind if 0 < elements.get(int(storages.parameter[one]), 0) <= storages.bytes[one]
    )

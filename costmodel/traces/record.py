"""The record of training code that ran on ranks without a GPU: kernels, storages, transactions, in the order of the program.

A `Trace` has a `Role` for each kind of rank (a pipeline's stage, a tensor rank), and a role stands for all ranks that do the
same. A role's parts are tables of columns, NumPy arrays of one length; words in them (operators, modules, lines of code) are
places in the role's `texts`. `timeline` is the program: each row is one thing that the host did, in order, and says which
row of which other table it is about. `costmodel.traces.builder` writes one.
"""

from __future__ import annotations

import dataclasses
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from costmodel.text.checks import choice
from costmodel.text.errors import CostModelError, InvalidValue, UnreadableFile
from costmodel.text.results import brief

FORMAT = 1
"""Of a trace's file."""

Column = NDArray[np.int64]

PHASES = ("forward", "backward", "optimizer", "other")
"""Of kernels, transactions and storages, in the order of their codes."""
KINDS = ("weight", "gradient", "optimizer", "activation", "temporary", "bucket", "input", "other")
"""Of storages, in the order of their codes."""
ACTIONS = (
    "kernel", "transaction", "born", "died", "used on", "event record", "stream wait", "host wait", "empty cache", "step",
    "recompilation", "graph", "end of graph",
)  # fmt: skip
"""Of the host, in the order of their codes in `Timeline.action`."""
KERNEL, TRANSACTION, BORN, DIED, USED_ON, EVENT_RECORD, STREAM_WAIT, HOST_WAIT, EMPTY_CACHE, STEP, RECOMPILATION = range(11)
GRAPH, END_OF_GRAPH = 11, 12
"""What stands between these two is launched as one CUDA graph."""
HOST_TO_DEVICE, DEVICE_TO_HOST = "copy host to device", "copy device to host"
"""Operators of copies over the host's bus, where kernels are named."""
GROUPED = ("_grouped_mm", "_scaled_grouped_mm")
"""Operators of products of which one kernel makes many, and which PyTorch's own counter of operations doesn't know."""
SEND, RECEIVE = "send", "recv"
"""Operators of transactions of two ranks; all others are collectives of a group."""
NOWHERE = -1
"""In a column of places: none."""
SEVERAL = "several parameters"
"""In the place of a parameter's name, of weights or gradients that were put together."""
COMPUTE = 0
"""The stream that is there from the start, on which code runs that names none."""
PROCESSORS = "processors"
"""The stream of what the host's processors compute by themselves, as optimizers whose states lie there do."""


@dataclasses.dataclass(frozen=True, eq=False)
class ColumnTable:
    """Columns of whole numbers, of one length."""

    def __post_init__(self) -> None:
        lengths = set()
        for field in dataclasses.fields(self):
            column = np.ascontiguousarray(getattr(self, field.name), dtype=np.int64)
            column.setflags(write=False)
            object.__setattr__(self, field.name, column)
            lengths.add(len(column))
        if len(lengths) > 1:
            raise InvalidValue(type(self).__name__.lower(), sorted(lengths), "columns of one length")

    def __len__(self) -> int:
        return len(getattr(self, dataclasses.fields(self)[0].name))

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(
            np.array_equal(getattr(self, field.name), getattr(other, field.name)) for field in dataclasses.fields(self)
        )

    __hash__ = None  # type: ignore[assignment]

    def columns(self) -> Iterator[tuple[str, Column]]:
        """Name and values of each column."""
        for field in dataclasses.fields(self):
            yield field.name, getattr(self, field.name)


@dataclasses.dataclass(frozen=True, eq=False)
class KernelTable(ColumnTable):
    """What streams compute, in the order in which the host launched it."""

    op: Column  # place of the operator's name in `Role.texts`, as ``"aten.mm"``, `HOST_TO_DEVICE` or `DEVICE_TO_HOST`
    shapes: Column  # place of its operands' shapes, as ``"4096x1024 1024x512"``, a scalar as ``"1"``
    dtypes: Column  # place of its operands' dtypes, as ``"bfloat16 bfloat16"``
    bytes_read: Column  # bytes_read, bytes_written: of its operands and results, each counted once [bytes]
    bytes_written: Column
    # floating-point operations of products, 0 where it has none; of attention, of the pairs that meet, so that a causal core has
    # half of those of a full one [FLOP]
    flop: Column
    stream: Column  # place in `Role.streams`
    phase: Column  # place in `PHASES`
    module: Column  # place of the module's name in `Role.texts`, as ``"model.layers.0.mlp"``, ``""`` outside of any
    line: Column  # place of the line of the user's code, as ``"train.py:31"``, ``""`` where unknown
    compiled: Column  # number of the part of the program that was given to a compiler and that it belongs to, 0 of none
    # reads, writes: places in `Role.operands` where its storages begin: those read are ``operands[reads:writes]``, those written
    # go on to the next kernel's `reads`
    reads: Column
    writes: Column


@dataclasses.dataclass(frozen=True, eq=False)
class StorageTable(ColumnTable):
    """Memory of the device that the program held."""

    bytes: Column  # asked for, without any rounding [bytes]
    born: Column  # born, died: rows of `Timeline`; `died` is `NOWHERE` of those held to the end
    died: Column
    kind: Column  # place in `KINDS`
    module: Column  # place of the module's name in `Role.texts`, ``""`` outside of any
    parameter: Column  # place of the parameter's name whose weight, gradient or state it is, ``""`` of others
    shape: Column  # shape, dtype: places of the first tensor's shape and dtype, as ``"4096x1024"`` and ``"bfloat16"``
    dtype: Column
    op: Column  # place of the name of the operator that made it
    stream: Column  # place in `Role.streams`: whose pool of the allocator it comes from
    phase: Column  # place in `PHASES`, when it was born
    line: Column  # place of the line of the user's code


@dataclasses.dataclass(frozen=True, eq=False)
class TransactionTable(ColumnTable):
    """What the rank exchanged with others, in the order in which the host launched it."""

    # place of its name in `Role.texts`: of `costmodel.evaluation.collectives.OPERATIONS` (``"all-reduce"``, ``"all-gather"``,
    # ``"reduce-scatter"``, ``"all-to-all"``, ``"broadcast"``, ``"reduce"``), ``"barrier"``, `SEND` or `RECEIVE`
    op: Column
    # buffer as NCCL counts it: what each rank holds before a reduction, after a gather, sends in an all-to-all or to its peer
    # [bytes]
    bytes: Column
    dtype: Column  # place of its elements' dtype
    group: Column  # place in `Role.groups`
    peer: Column  # rank of the cluster it sends to or receives from, or a broadcast's or a reduction's root; `NOWHERE` of others
    stream: Column  # place in `Role.streams` on which it runs
    phase: Column  # place in `PHASES`
    # place of the name of the first parameter in its buffer, `SEVERAL` of one whose parameters aren't known, ``""`` of
    # activations
    parameter: Column
    module: Column  # place of the module's name that it was launched in
    line: Column  # place of the line of the user's code
    storage: Column  # row of `StorageTable` that its result lies in, `NOWHERE` where unknown
    tag: Column  # of messages between two ranks, 0 of others


@dataclasses.dataclass(frozen=True, eq=False)
class HostProgram(ColumnTable):
    """What the host did, one row after another.

    Parameters
    ----------
    action : place in `ACTIONS`
    item : by action: a row of `KernelTable` or `TransactionTable`; of `StorageTable` where one is born, died or is used on
        another stream; the number of an event that is recorded or waited for, `NOWHERE` where the host waits for a whole
        stream; the number of the step that ends
    stream : place in `Role.streams` of that which runs it, records, or waits; of a host wait, the stream waited for,
        `NOWHERE` of the whole device
    line : place of the line of the user's code in `Role.texts`
    """

    action: Column
    item: Column
    stream: Column
    line: Column


@dataclasses.dataclass(frozen=True, eq=False)
class ParameterTable(ColumnTable):
    """The model's parameters as the user's code named them, before they were sharded."""

    name: Column  # name, dtype, shape: places in `Role.texts`; the shape is the whole parameter's
    dtype: Column
    shape: Column
    elements: Column  # of the whole parameter
    trainable: Column  # 1 where it asks for a gradient and is trained: by an optimizer, or by ranks that sum its gradients
    gradients: Column  # times that it got one
    storage: Column  # row of `StorageTable` where it lies, `NOWHERE` where unknown


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Role:
    """What one rank did, and all that do the same."""

    rank: int  # that ran
    stands_for: tuple[int, ...]  # ranks that do the same, this one among them
    kernels: KernelTable  # kernels, storages, transactions, timeline, parameters: tables
    storages: StorageTable
    transactions: TransactionTable
    timeline: HostProgram
    parameters: ParameterTable
    operands: Column  # rows of `storages`, see `KernelTable.reads`
    groups: tuple[tuple[int, ...], ...]  # members of each process group, as ranks
    streams: tuple[str, ...]  # names; the first is the one that code runs on that names none
    texts: tuple[str, ...]  # words that tables point at; the first is ``""``
    values_assumed: tuple[str, ...] = ()  # what had no value without a GPU and which was taken, a sentence each

    TABLES: ClassVar[dict[str, type[ColumnTable]]] = {
        "kernels": KernelTable, "storages": StorageTable, "transactions": TransactionTable, "timeline": HostProgram,
        "parameters": ParameterTable,
    }  # fmt: skip

    def __post_init__(self) -> None:
        operands = np.ascontiguousarray(self.operands, dtype=np.int64)
        operands.setflags(write=False)
        object.__setattr__(self, "operands", operands)
        if self.rank not in self.stands_for:
            raise InvalidValue("stands_for", self.stands_for, f"ranks with {self.rank} among them, which ran")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Role) and all(
            np.array_equal(getattr(self, name), getattr(other, name))
            if name == "operands"
            else getattr(self, name) == getattr(other, name)
            for name in (field.name for field in dataclasses.fields(self))
        )

    def __hash__(self) -> int:
        return hash((self.rank, self.stands_for, len(self.kernels), len(self.storages), len(self.transactions)))

    def __repr__(self) -> str:
        return (
            f"Role(rank={self.rank}, of {len(self.stands_for)} alike: {len(self.kernels)} kernels, "
            f"{len(self.storages)} storages, {len(self.transactions)} transactions, {self.steps} steps)"
        )

    @property
    def steps(self) -> int:
        """Steps that ended while it was recorded."""
        return int(np.count_nonzero(self.timeline.action == STEP))

    def step(self, number: int = NOWHERE) -> range:
        """Rows of the timeline of a step; of the last unless it is numbered: first ones differ, by states and buckets made.

        Parameters
        ----------
        number : from 0; negative ones count from the last

        Returns
        -------
        range
            the whole timeline where no step ended
        """
        ends = np.flatnonzero(self.timeline.action == STEP)
        if not len(ends):
            return range(len(self.timeline))
        choice("step", number, range(-len(ends), len(ends)))
        place = number % len(ends)
        return range(int(ends[place - 1]) + 1 if place else 0, int(ends[place]))

    def rows(self, action: int, within: range | None = None) -> Column:
        """Rows of the table that an action is about, in the order of the program.

        Parameters
        ----------
        action : place in `ACTIONS`
        within : rows of the timeline; all unless given
        """
        timeline = self.timeline
        span = slice(None) if within is None else slice(within.start, within.stop)
        return timeline.item[span][timeline.action[span] == action]

    def read(self, kernel: int) -> Column:
        """Rows of the storages that a kernel reads."""
        return self.operands[int(self.kernels.reads[kernel]) : int(self.kernels.writes[kernel])]

    def written(self, kernel: int) -> Column:
        """Rows of the storages that a kernel writes."""
        end = int(self.kernels.reads[kernel + 1]) if kernel + 1 < len(self.kernels) else len(self.operands)
        return self.operands[int(self.kernels.writes[kernel]) : end]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trace:
    """Training code as it ran on a world of ranks without GPUs.

    Parameters
    ----------
    roles : a rank of each kind
    world_size : ranks of the whole run
    versions : software and its version, ``{"torch": "2.13.0"}``
    facts : what is known of the run beside what it did, texts by name: ``model`` (the text of a config.json), ``framework`` (of
        the catalogue: ``hf-fsdp``, ``fsdp2``, ``deepspeed``, ...), ``tensor_float`` (kinds of 32-bit operators that run as
        TF32: products, convolutions, recurrences), ``command``, ``global_batch``, ``micro_batch``, ``seq_len`` (whole numbers),
        ``unused_checkpointing`` (the line that runs a checkpointed model in evaluation mode), ``graphed_parts`` (numbers of
        compiled parts that are launched as CUDA graphs), ``unpinned_copies`` (the line that copies a large batch from memory that
        isn't pinned)
    values_assumed : of all roles, a sentence each
    """

    roles: tuple[Role, ...]
    world_size: int
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    facts: dict[str, str] = dataclasses.field(default_factory=dict)
    values_assumed: tuple[str, ...] = ()

    __repr__ = brief

    def __hash__(self) -> int:
        return hash((self.roles, self.world_size))

    def __post_init__(self) -> None:
        if not self.roles:
            raise InvalidValue("roles", self.roles, "one role at least")
        stood = [rank for role in self.roles for rank in role.stands_for]
        if len(set(stood)) < len(stood) or not set(stood) <= set(range(self.world_size)):
            raise InvalidValue("roles", sorted(stood), f"ranks from 0 to {self.world_size - 1}, each in one role")

    def save(self, path: str | Path) -> None:
        """Write the trace to one file, of NumPy's .npz, readable by `Trace.load` and by NumPy alone.

        Parameters
        ----------
        path : of the file, as it is to be named
        """
        _save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read what `save` wrote.

        Raises
        ------
        UnreadableFile
            where it is none of a trace
        """
        return _load(path)


def _save(trace: Trace, path: str | Path) -> None:
    """Write a trace; the same trace gives the same bytes."""
    arrays: dict[str, np.ndarray] = {}
    roles = []
    for place, role in enumerate(trace.roles):
        for name in Role.TABLES:
            for column, values in getattr(role, name).columns():
                arrays[f"{place}/{name}/{column}"] = _narrow(values)
        arrays[f"{place}/operands"] = _narrow(role.operands)
        roles.append(
            {"rank": role.rank, "stands_for": role.stands_for, "groups": role.groups, "streams": role.streams,
             "texts": role.texts, "values_assumed": role.values_assumed}
        )  # fmt: skip
    head = {
        "format": FORMAT, "world_size": trace.world_size, "versions": trace.versions, "facts": trace.facts,
        "values_assumed": trace.values_assumed, "roles": roles,
    }  # fmt: skip
    arrays["head"] = np.frombuffer(json.dumps(head).encode(), dtype=np.uint8)
    with Path(path).open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)  # type: ignore[arg-type]


def _load(path: str | Path) -> Trace:
    """Read a trace."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            head = json.loads(bytes(arrays["head"]))
            if head["format"] != FORMAT:
                raise UnreadableFile(f"{path}: a trace of format {head['format']}, and this version reads format {FORMAT}")
            return Trace(
                roles=tuple(_role(place, fields, arrays) for place, fields in enumerate(head["roles"])),
                world_size=head["world_size"], versions=head["versions"], facts=head["facts"],
                values_assumed=tuple(head["values_assumed"]),
            )  # fmt: skip
    except CostModelError:
        raise
    except OSError as error:
        raise UnreadableFile(f"{path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise UnreadableFile(f"{path}: no trace, which `Trace.save` writes ({type(error).__name__})") from error


def _role(place: int, fields: dict[str, object], arrays: np.lib.npyio.NpzFile) -> Role:
    tables: dict[str, ColumnTable] = {}
    for name, kind in Role.TABLES.items():
        prefix = f"{place}/{name}/"
        columns = {key.removeprefix(prefix): arrays[key] for key in arrays.files if key.startswith(prefix)}
        if kind is KernelTable:  # traces that were saved before compilers were told
            columns.setdefault("compiled", np.zeros(len(columns["op"]), dtype=np.int64))
        tables[name] = kind(**columns)
    read: dict[str, object] = {key: _tuples(value) for key, value in fields.items()}
    return Role(operands=arrays[f"{place}/operands"], **tables, **read)  # type: ignore[arg-type]


def _tuples(value: object) -> object:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _narrow(values: np.ndarray) -> np.ndarray:
    """The same whole numbers in fewer bytes."""
    return values.astype(np.int32) if values.size == 0 or np.abs(values).max() < 2**31 else values

"""Writes the record of one rank, called in the order of its program."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from costmodel.text.checks import choice
from costmodel.text.errors import InvalidValue
from costmodel.traces.captures import Capture, StreamOperation
from costmodel.traces.record import (
    BORN,
    COMPUTE,
    DIED,
    EMPTY_CACHE,
    END_OF_GRAPH,
    EVENT_RECORD,
    GRAPH,
    HOST_WAIT,
    KERNEL,
    KINDS,
    NOWHERE,
    PHASES,
    RECOMPILATION,
    STEP,
    STREAM_WAIT,
    TRANSACTION,
    USED_ON,
    ColumnTable,
    HostProgram,
    KernelTable,
    ParameterTable,
    Role,
    StorageTable,
    TransactionTable,
)

Shape = Sequence[int]


def shape_text(shape: Shape) -> str:
    """A shape in a word: ``"4096x1024"``; of a scalar ``"1"``."""
    return "x".join(map(str, shape)) or "1"


def shape_of(text: str) -> tuple[int, ...]:
    """The shape that `shape_text` wrote."""
    return tuple(map(int, text.split("x"))) if text else ()


class RoleBuilder:
    """Takes what a rank does, call by call, and ends in its `Role`.

    Streams, groups, storages, events and transactions are numbers that the calls give. The calls that make no kernel and no
    transaction cost nothing but their row.

    Parameters
    ----------
    rank : that runs
    stands_for : ranks that do the same; itself alone unless given

    Examples
    --------
    A product, and the reduction of its result behind it:

    >>> builder = RoleBuilder(rank=0, stands_for=range(8))
    >>> world, channel = builder.group(range(8)), builder.stream("nccl world")
    >>> gradient = builder.storage_born(2 * 64 * 32, kind="gradient", shape=(64, 32), dtype="bfloat16")
    >>> builder.kernel("aten.mm", [(64, 16), (16, 32)], ["bfloat16"] * 2, 3072, 4096, flop=2 * 64 * 16 * 32, phase="backward")
    >>> done = builder.transaction("all-reduce", 4096, "bfloat16", group=world, stream=channel, storage=gradient)
    >>> builder.stream_wait(done)
    >>> builder.step_boundary()
    >>> builder.role()
    Role(rank=0, of 8 alike: 1 kernels, 1 storages, 1 transactions, 1 steps)
    """

    def __init__(self, rank: int = 0, stands_for: Sequence[int] | range | None = None):
        self.rank = rank
        self.stands_for = tuple(stands_for) if stands_for is not None else (rank,)
        self._texts: dict[str, int] = {"": 0}
        self._streams: dict[str, int] = {"compute": COMPUTE}
        self._groups: dict[tuple[int, ...], int] = {}
        self._rows: dict[type[ColumnTable], list[list[int]]] = {table: [] for table in Role.TABLES.values()}
        self._operands: list[int] = []
        self._parameters: dict[str, int] = {}
        self._events = self._step = 0
        self._assumed: dict[str, None] = {}
        self.capture: Capture | None = None  # the graph that is captured now

    def kernel(
        self, op: str, shapes: Sequence[Shape] = (), dtypes: Sequence[str] = (), bytes_read: int = 0, bytes_written: int = 0,
        flop: int = 0, stream: int = COMPUTE, phase: str = "other", module: str = "", line: str = "",
        reads: Sequence[int] = (), writes: Sequence[int] = (), compiled: int = 0,
    ) -> None:  # fmt: skip
        """A kernel is launched; the fields are those of `KernelTable`.

        Parameters
        ----------
        op : operator
        shapes, dtypes : of its operands
        bytes_read, bytes_written : of its operands and results [bytes]
        flop : of products [FLOP]
        stream : on which
        phase : one of `PHASES`
        module, line : in which
        reads, writes : storages of its operands and results
        compiled : number of the compiled part that launches it
        """
        row = [
            self._text(op), self._text(" ".join(map(shape_text, shapes))), self._text(" ".join(dtypes)), int(bytes_read),
            int(bytes_written), int(flop), stream, _phase(phase), self._text(module), self._text(line), compiled,
        ]  # fmt: skip
        self._launch(StreamOperation(KERNEL, row, stream, line, reads, writes))

    def storage_born(
        self, bytes: int, kind: str = "temporary", module: str = "", parameter: str = "", shape: Shape = (), dtype: str = "",
        op: str = "", stream: int = COMPUTE, phase: str = "other", line: str = "",
    ) -> int:  # fmt: skip
        """Memory is asked for; the fields are those of `StorageTable`.

        Parameters
        ----------
        bytes : asked for [bytes]
        kind : one of `KINDS`; may be said later, with `storage_is`
        module, parameter : whose
        shape, dtype : of the tensor it is made for
        op : that makes it
        stream : whose pool it comes from
        phase : one of `PHASES`
        line : of the user's code
        """
        born = len(self._rows[HostProgram])
        row = [
            int(bytes), born, NOWHERE, _kind(kind), self._text(module), self._text(parameter),
            self._text(shape_text(shape)), self._text(dtype), self._text(op), stream, _phase(phase), self._text(line),
        ]  # fmt: skip
        number = self._add(StorageTable, row)
        self._act(BORN, number, stream, line)
        if self.capture is not None:
            self.capture.born(number, int(bytes))
        return number

    def storage_is(self, storage: int, kind: str | None = None, module: str | None = None, parameter: str | None = None) -> None:
        """Say of a storage what became known after its birth.

        Parameters
        ----------
        storage : which
        kind, module, parameter : as `storage_born`; None leaves it as it was
        """
        row = self._rows[StorageTable][storage]
        if kind is not None:
            row[_STORAGE["kind"]] = _kind(kind)
        if module is not None:
            row[_STORAGE["module"]] = self._text(module)
        if parameter is not None:
            row[_STORAGE["parameter"]] = self._text(parameter)

    def storage_used_on(self, storage: int, stream: int, line: str = "") -> None:
        """`Tensor.record_stream`: its memory comes back only after what that stream has to do by the time it is given up."""
        self._act(USED_ON, storage, stream, line)

    def storage_died(self, storage: int, line: str = "") -> None:
        """Memory is given back to the allocator."""
        row = self._rows[StorageTable][storage]
        if row[_STORAGE["died"]] != NOWHERE:
            raise InvalidValue("storage", storage, "one that hasn't died yet")
        row[_STORAGE["died"]] = len(self._rows[HostProgram])
        self._act(DIED, storage, row[_STORAGE["stream"]], line)
        if self.capture is not None:
            self.capture.died(storage)

    def transaction(
        self, op: str, bytes: int, dtype: str, group: int = NOWHERE, peer: int = NOWHERE, stream: int = COMPUTE,
        parameter: str = "", line: str = "", phase: str = "other", module: str = "", storage: int = NOWHERE, tag: int = 0,
        issued_from: int | None = COMPUTE,
    ) -> int:  # fmt: skip
        """A transaction is launched; the fields are those of `TransactionTable`.

        It begins after all that was launched on `issued_from` before, as NCCL's process group does it. Nothing waits for its
        end unless `stream_wait` or `host_wait` says so.

        Parameters
        ----------
        op : as in `TransactionTable`
        bytes : buffer [bytes]
        dtype : of its elements
        group, peer : with whom
        stream : on which it runs
        parameter, module, line : of what, launched where
        phase : one of `PHASES`
        storage : of its result
        tag : of messages between two ranks
        issued_from : stream whose work until now it waits for; None for none

        Returns
        -------
        int
            the event of its end, to wait for
        """
        if issued_from is not None and issued_from != stream:
            self.stream_wait(self.event_record(issued_from, line), stream, line)
        row = [
            self._text(op), int(bytes), self._text(dtype), group, peer, stream, _phase(phase), self._text(parameter),
            self._text(module), self._text(line), storage, tag,
        ]  # fmt: skip
        self._launch(StreamOperation(TRANSACTION, row, stream, line))
        return self.event_record(stream, line)

    def event_record(self, stream: int = COMPUTE, line: str = "") -> int:
        """An event is put behind all that a stream has to do; gives its number."""
        event, self._events = self._events, self._events + 1
        self._launch(StreamOperation(EVENT_RECORD, [event], stream, line))
        return event

    def stream_wait(self, event: int, stream: int = COMPUTE, line: str = "") -> None:
        """What comes on a stream waits for an event."""
        self._launch(StreamOperation(STREAM_WAIT, [event], stream, line))

    def replay(self, graph: Capture, stream: int = COMPUTE, line: str = "") -> None:
        """A graph is launched: all that streams were told while it was captured.

        Parameters
        ----------
        graph : as `capture` had it
        stream : in place of the one on which it was captured
        line : of the user's code
        """
        self._act(GRAPH, NOWHERE, NOWHERE, line)
        events: dict[int, int] = {}
        for launch in graph.launches:
            place = stream if launch.stream == graph.stream else launch.stream
            if launch.action == EVENT_RECORD:
                events[launch.row[0]] = self.event_record(place, launch.line)
            elif launch.action == STREAM_WAIT:
                self.stream_wait(events.get(launch.row[0], launch.row[0]), place, launch.line)
            else:
                column = _STREAM[launch.action]
                row = [*launch.row[:column], place, *launch.row[column + 1 :]]
                self._launch(launch._replace(row=row, stream=place))
        self._act(END_OF_GRAPH, NOWHERE, NOWHERE, line)

    def host_wait(self, line: str = "", event: int = NOWHERE, stream: int = COMPUTE) -> None:
        """The host waits for an event, or else for all that a stream has to do, `NOWHERE` for all streams."""
        self._act(HOST_WAIT, event, stream, line)

    def empty_cache(self, line: str = "") -> None:
        """The allocator gives back what it caches."""
        self._act(EMPTY_CACHE, NOWHERE, NOWHERE, line)

    def recompilation(self, line: str = "") -> None:
        """Code was compiled once more."""
        self._act(RECOMPILATION, NOWHERE, NOWHERE, line)

    def step_boundary(self, line: str = "") -> None:
        """A step of the optimizer has ended."""
        self._act(STEP, self._step, NOWHERE, line)
        self._step += 1

    def stream(self, name: str) -> int:
        """The number of a stream by its name; a new one the first time. ``"compute"`` is 0."""
        return self._streams.setdefault(name, len(self._streams))

    def group(self, ranks: Sequence[int] | range) -> int:
        """The number of a process group by its members; a new one the first time."""
        return self._groups.setdefault(tuple(ranks), len(self._groups))

    def parameter(self, name: str, shape: Shape, dtype: str, trainable: bool = True, storage: int = NOWHERE) -> None:
        """The model has a parameter, of this whole shape."""
        row = [
            self._text(name), self._text(dtype), self._text(shape_text(shape)), int(np.prod(shape, dtype=np.int64)),
            int(trainable), 0, storage,
        ]  # fmt: skip
        self._parameters[name] = self._add(ParameterTable, row)

    def left_out(self, names: Iterable[str]) -> None:
        """Nothing trains these parameters, such as a teacher's or an average's, whatever they ask for."""
        for name in names:
            self._rows[ParameterTable][self._parameters[name]][_TRAINABLE] = 0

    def gradient(self, name: str) -> None:
        """A parameter got a gradient."""
        self._rows[ParameterTable][self._parameters[name]][_GRADIENTS] += 1

    def assumed(self, sentence: str) -> None:
        """A value was taken that only a GPU would know."""
        self._assumed.setdefault(sentence)

    def role(self) -> Role:
        """What was recorded until now."""
        self._order_deaths()
        tables: dict[str, Any] = {name: _table(kind, self._rows[kind]) for name, kind in Role.TABLES.items()}
        return Role(
            rank=self.rank, stands_for=self.stands_for, operands=np.array(self._operands, dtype=np.int64),
            groups=tuple(self._groups), streams=tuple(self._streams), texts=tuple(self._texts),
            values_assumed=tuple(self._assumed), **tables,
        )  # fmt: skip

    def _order_deaths(self) -> None:
        """Storages that go one right behind the other, as those of PyTorch's caches in any order, go in that of their birth."""
        rows, storages = self._rows[HostProgram], self._rows[StorageTable]
        for dies, run in itertools.groupby(range(len(rows)), key=lambda row: rows[row][_ACTION] == DIED):
            places = list(run) if dies else []
            for place, row in zip(places, sorted((rows[place] for place in places), key=itemgetter(_ITEM)), strict=True):
                rows[place], storages[row[_ITEM]][_STORAGE["died"]] = row, place

    def _text(self, word: str) -> int:
        return self._texts.setdefault(word, len(self._texts))

    def _launch(self, launch: StreamOperation) -> None:
        """A stream is told something; not yet where a graph is captured."""
        if self.capture is not None:
            self.capture.launches.append(launch)
            return
        item = launch.row[0]
        if launch.action == KERNEL:
            first = len(self._operands)
            self._operands += [*launch.reads, *launch.writes]
            item = self._add(KernelTable, [*launch.row, first, first + len(launch.reads)])
        elif launch.action == TRANSACTION:
            item = self._add(TransactionTable, launch.row)
        self._act(launch.action, item, launch.stream, launch.line)

    def _add(self, table: type[ColumnTable], row: list[int]) -> int:
        rows = self._rows[table]
        rows.append(row)
        return len(rows) - 1

    def _act(self, action: int, item: int, stream: int, line: str) -> None:
        self._rows[HostProgram].append([action, item, stream, self._text(line)])


def _columns(table: type[ColumnTable]) -> dict[str, int]:
    return {field.name: place for place, field in enumerate(dataclasses.fields(table))}


_STORAGE = _columns(StorageTable)
_ACTION, _ITEM = (_columns(HostProgram)[name] for name in ("action", "item"))
_STREAM = {KERNEL: _columns(KernelTable)["stream"], TRANSACTION: _columns(TransactionTable)["stream"]}
_TRAINABLE, _GRADIENTS = (_columns(ParameterTable)[name] for name in ("trainable", "gradients"))


def _table(kind: type[ColumnTable], rows: list[list[int]]) -> ColumnTable:
    width = len(dataclasses.fields(kind))
    return kind(*np.array(rows, dtype=np.int64).reshape(len(rows), width).T)


def _phase(name: str) -> int:
    return PHASES.index(choice("phase", name, PHASES))


def _kind(name: str) -> int:
    return KINDS.index(choice("kind", name, KINDS))

"""Steps of many plans in vector code: every part of each, or time and memory of products of plans.

A formula is factored by what its operations depend on. Of a *product*, every plan has a row of an outer table (how a pipeline
runs, how states are sharded) and a row of an inner one (micro-batch, recomputation); both share the split of the GPUs. Of the
five thousand operations of a step two in three read one of the tables alone and are done once a row of it; a tenth reads
both and is done once a plan. The tape of the formula says which, so that nothing is written twice.
"""

from __future__ import annotations

import functools
import math
import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from costmodel.arithmetic.named_tuples import Row
from costmodel.compilation import machine_code
from costmodel.compilation.fields import INNER, LANES, OUTER
from costmodel.compilation.standalone import callable_of, word_count
from costmodel.compilation.tape import Place, Traced, needed, supports, trace
from costmodel.formulas import legality, training_step
from costmodel.formulas.network import compression
from costmodel.formulas.quantities import (
    Inputs,
    Memory,
    ModelNumbers,
    NetworkNumbers,
    Number,
    PlanNumbers,
    Settings,
    Software,
    Step,
)
from costmodel.formulas.transformer import memory

Array: TypeAlias = NDArray[np.float64]
Whole: TypeAlias = NDArray[np.int64]
EVERY = (*Step._fields[:-1], *(f"memory.{part}" for part in Memory._fields))
RANKED = ("total", "memory.total")
CACHED = 256
"""Outer rows of a product whose table, with those of the inner rows that they read, stays in a core's second cache."""
PACKED = 2048
"""Rows that are worked on at a time where every one is looked at alone."""
LARGEST_KEPT = 1 << 17
"""Numbers of an array whose memory a thread keeps for its next use."""
_INNER, _OUTER, _SPLIT = 1, 2, 4
NONE: Array = np.empty(0)
FLAT = (NONE, np.empty((0, 0, LANES)), np.empty((0, 0, LANES)))
"""Arguments of a loop over one table: scalars, columns, results."""
PRODUCT = (*FLAT[:2], FLAT[1], np.empty((0, 4), dtype=np.int64), FLAT[2])
"""Arguments of a loop over runs: scalars, both tables, runs, results."""
_BLOCK = np.dtype(f"u{LANES}")
"""As many truth values as there are lanes, seen as one number."""


class Ruled(NamedTuple):
    """What `legality.violations` takes, in its order."""

    model: ModelNumbers
    settings: Settings
    plan: PlanNumbers
    gpus: Number


class Held(NamedTuple):
    """What `memory.least` takes, in its order."""

    model: ModelNumbers
    settings: Settings
    plan: PlanNumbers
    network: NetworkNumbers
    software: Software


Reader: TypeAlias = Callable[[object], Sequence[Any]]


def _reader(paths: Sequence[str]) -> Reader:
    """What reads the numbers at some paths of nested tuples."""
    read: Callable[..., Any] = operator.attrgetter(*paths) if paths else lambda _: ()
    return read if len(paths) != 1 else lambda question: (read(question),)


class Part(NamedTuple):
    """A function in vector code."""

    call: Callable[..., int]  # it
    columns: Reader  # of the nested tuples of a question, the numbers that it reads row by row
    width: int  # how many these are
    results: int  # how many numbers it gives a row


class Program(NamedTuple):
    """A formula in vector code."""

    constants: Reader  # of the nested tuples of a question, the numbers that it reads once
    once: Callable[..., int]  # what is done once a question, of which `scalars` numbers come
    scalars: int  # how many
    parts: dict[str, Part]  # what is done for rows, by name
    product: Callable[..., int] | None  # time and memory of runs, where the formula is factored


def _bits(path: str) -> int:
    field = path.removeprefix("plan.")
    return 0 if field == path else _INNER if field in INNER else _OUTER if field in OUTER else _SPLIT


class _Writer:
    """The source of a program: what is done once, then loops that read its scalars."""

    def __init__(self, traced: Traced, bits: Callable[[str], int] = _bits) -> None:
        self.tape, self.results = traced
        self.support = supports(self.tape, bits)
        self.scalars: list[Place] = []
        self.parts: dict[str, tuple[list[str], int]] = {}
        self.loops: list[Callable[[Any], list[str]]] = []

    def leaves(self, results: Sequence[Place], known: frozenset[Place] = frozenset()) -> tuple[list[Place], list[Place]]:
        """Scalars and inputs that some results need, given what is known."""
        operations = self.tape.operations
        fixed = {place for place in range(len(operations)) if not self.support[place] and operations[place].name != "constant"}
        done = needed(self.tape, results, known | fixed)
        read = {one for place in done for one in operations[place].arguments} | set(results)
        scalars = sorted(read & fixed - known)
        self.scalars += [place for place in scalars if place not in self.scalars]
        return scalars, [place for place in done if operations[place].name == "input"]

    def table(self, name: str, results: Sequence[Place]) -> None:
        """A loop that makes a table of results from columns of plans."""
        _, columns = self.leaves(results)
        fields = [str(self.tape.operations[place].given) for place in columns]
        self.parts[name] = fields, len(results)
        self.loops.append(lambda loops: loops.flat_loop(name, self.tape, self.scalars, columns, results, FLAT))

    def product(self) -> None:
        """Tables of what reads one side alone, and a loop over what reads both."""
        operations, support = self.tape.operations, self.support
        mixed = {place for place in needed(self.tape, self.results) if support[place] & _INNER and support[place] & _OUTER}
        edge = {one for place in mixed for one in operations[place].arguments} - mixed
        kept = sorted(place for place in edge | set(self.results) - mixed if support[place])
        inner = [place for place in kept if support[place] & _INNER]
        outer = [place for place in kept if not support[place] & _INNER]
        self.leaves(self.results, frozenset(kept))
        self.table("inner", inner)
        self.table("outer", outer)
        self.loops.append(
            lambda loops: loops.product_loop("product", self.tape, self.scalars, outer, inner, self.results, PRODUCT)
        )

    def written(self) -> tuple[list[str], Row]:
        """The source and what to remember about it."""
        from costmodel.compilation import row_loops  # loads Numba

        operations = self.tape.operations
        inputs = [place for place in needed(self.tape, self.scalars) if operations[place].name == "input"]
        once = row_loops.flat_loop("once", self.tape, (), inputs, self.scalars, FLAT)
        notes = {"constants": [operations[place].given for place in inputs], "scalars": len(self.scalars), "parts": self.parts}
        return [*once, *(source for loop in self.loops for source in loop(row_loops))], notes


def _program(
    name: str, tables: Sequence[str], factored: bool, traced: Callable[[], Traced], bits: Callable[[str], int] = _bits
) -> Program:
    def make() -> tuple[list[str], Row]:
        writer = _Writer(traced(), bits)
        if factored:
            writer.product()
        else:
            writer.table(tables[0], writer.results)
        return writer.written()

    functions = dict.fromkeys(("once", *tables), word_count(FLAT)) | ({"product": word_count(PRODUCT)} if factored else {})
    machine, notes = machine_code.compiled(name, functions, make, level=0)
    code = {function: callable_of(one) for function, one in machine.items()}
    parts = {
        table: Part(code[table], _reader(fields), len(fields), results) for table, (fields, results) in notes["parts"].items()
    }
    return Program(_reader(notes["constants"]), code["once"], notes["scalars"], parts, code.get("product"))


def _named(program: str, compressed: bool) -> str:
    return f"{program}-compressed" if compressed else program


@functools.cache
def _traced(compressed: bool) -> Traced:
    """Every part of a step; where no gradients are compressed, of half as many operations."""
    return trace(training_step.step, Inputs, EVERY, {} if compressed else {"settings.compression.kind": compression.NONE})


def _traced_step(results: Sequence[str], compressed: bool) -> Traced:
    """Some parts of a step, all of which are traced once."""
    tape, places = _traced(compressed)
    return Traced(tape, tuple(places[EVERY.index(one)] for one in results))


@functools.cache
def every_part(compressed: bool) -> Program:
    """Every part of a step where plan, framework and device are columns: of plans, or of one as its constants vary."""

    def bits(path: str) -> int:
        return _SPLIT if path.startswith(("plan.", "software.", "device.")) else 0

    return _program(_named("every", compressed), ("rows",), False, lambda: _traced_step(EVERY, compressed), bits)


@functools.cache
def ranking(compressed: bool) -> Program:
    """Time and memory of products of plans."""
    return _program(_named("ranking", compressed), ("inner", "outer"), True, lambda: _traced_step(RANKED, compressed))


@functools.cache
def every_part_of_runs() -> Program:
    """Every part of a step where nothing is the same from row to row: of other models, on other clusters, by other software."""

    def bits(path: str) -> int:
        return _SPLIT

    return _program("every-run", ("rows",), False, lambda: _traced_step(EVERY, True), bits)


@functools.cache
def rules() -> Program:
    """Every rule of legality, plan by plan."""
    return _program("rules", ("rows",), False, lambda: trace(legality.violations, Ruled, ()))


@functools.cache
def least_memory() -> Program:
    """The lower bound of memory, plan by plan."""
    return _program("least-memory", ("rows",), False, lambda: trace(memory.least, Held, ("total",)))


def compile_searching() -> None:
    """Compile the programs that a search runs on, or load them: those of `costmodel.evaluation.engine.SEARCHED`."""
    for make in (ranking, every_part):
        make(False)
    rules()
    least_memory()


def compile_all() -> int:
    """Compile every program that questions need (runs by the thousand are calibration's), or load it; how many there are."""
    every = [make(compressed) for make in (ranking, every_part) for compressed in (False, True)]
    return len([*every, rules(), least_memory()])


class Planned(NamedTuple):
    """Columns of plans alone, under the name that paths give them."""

    plan: PlanNumbers


def scalars_of(program: Program, question: Inputs | Ruled | Held) -> Array:
    """What a program does once for a question.

    Parameters
    ----------
    program : whose
    question : its numbers; those of the plan aren't read
    """
    given = np.repeat(np.array(program.constants(question), dtype=float), LANES).reshape(1, -1, LANES)
    out = np.empty((1, program.scalars, LANES))
    program.once(NONE, given, out)
    return np.ascontiguousarray(out[0, :, 0])


class _Scratch(threading.local):
    """Memory of this thread that tables are written to again and again: to touch fresh memory takes longer than to fill it."""

    def __init__(self) -> None:
        self.kept: dict[str, Array] = {}

    def array(self, use: str, *shape: int) -> Array:
        """An array for a use, which the next array for that use overwrites; a fresh one for none, or where it is large."""
        size = math.prod(shape)
        if not use or size > LARGEST_KEPT:
            return np.empty(shape)
        if len(self.kept.get(use, ())) < size:
            self.kept[use] = np.empty(size)
        return self.kept[use][:size].reshape(shape)


_SCRATCH = _Scratch()


def packed(part: Part, columns: Planned | Inputs, rows: int, places: Whole | slice | None = None, use: str = "") -> Array:
    """What a part reads of columns of plans, in blocks: blocks x columns x `LANES`, the last one filled up.

    Parameters
    ----------
    part : of a program
    columns : what it reads; numbers serve all rows
    rows : how many
    places : of the rows, where not all that the columns have are wanted
    use : what for, where the next for the same use may overwrite it
    """
    blocks = -(-rows // LANES)
    lines = _SCRATCH.array("lines", part.width, blocks * LANES)
    for line, column in zip(lines, part.columns(columns), strict=True):
        line[:rows] = column if places is None or not isinstance(column, np.ndarray) else column[places]
    lines[:, rows:] = lines[:, rows - 1 : rows]
    given = _SCRATCH.array(use, blocks, part.width, LANES)
    given[:] = lines.reshape(part.width, blocks, LANES).transpose(1, 0, 2)
    return given


def packed_blocks(part: Part, columns: Planned, blocks: Whole, of_group: int, use: str = "") -> Array:
    """`packed` blocks of tables of groups x rows of a group, or of what NumPy broadcasts to that.

    Parameters
    ----------
    part : of a program
    columns : what it reads
    blocks : places of those that are wanted, group after group
    of_group : blocks of a group
    use : as `packed` takes it
    """
    group, place = np.divmod(blocks, of_group)
    given = _SCRATCH.array(use, len(blocks), part.width, LANES)
    for field, column in enumerate(part.columns(columns)):
        if isinstance(column, np.ndarray):
            groups, width = column.shape
            table = column.reshape(groups, -1, min(width, LANES))
            given[:, field] = table[group if groups > 1 else 0, place if width > 1 else 0]
        else:
            given[:, field] = column
    return given


def tabled(part: Part, scalars: Array, given: Array, use: str = "") -> Array:
    """What a part gives for rows, in blocks: blocks x results x `LANES`.

    Parameters
    ----------
    part : of a program
    scalars : of `scalars_of`
    given : blocks of `packed`
    use : as `packed` takes it
    """
    out = _SCRATCH.array(use, len(given), part.results, LANES)
    part.call(scalars, given, out)
    return out


class Runs(NamedTuple):
    """The runs that hold all legal plans of a product: of an outer row the inner blocks from its first to its last legal plan."""

    rows: Whole  # outer rows that have a legal plan
    blocks: Whole  # inner blocks, of each group from the first that a run reads to the last
    # a line for each of `rows`: its place, the place in `blocks` of the first that it reads, how many it reads, and the block of
    # the product where its first result belongs
    table: Whole


def runs_of(legal: NDArray[np.bool_], group: Whole) -> Runs:
    """The runs of a product.

    Parameters
    ----------
    legal : outer rows x inner rows of a group
    group : of each outer row
    """
    blocks = legal.shape[1] // LANES
    some = legal.view(_BLOCK) != 0
    rows = np.flatnonzero(np.logical_or.reduce(some, axis=1))
    if not len(rows):
        return Runs(rows, rows, np.zeros((0, 4), dtype=np.int64))
    some, groups = some[rows], group[rows]
    first, beyond = some.argmax(axis=1), blocks - some[:, ::-1].argmax(axis=1)
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    lowest, highest = np.minimum.reduceat(first, starts), np.maximum.reduceat(beyond, starts)
    read = highest - lowest  # of each group, all blocks between those that its first and its last run read
    ends = np.cumsum(read)
    shift = blocks * groups[starts] + lowest - (ends - read)  # from a place in `blocks` to the block that lies there
    of_group = np.repeat(ends - read - lowest, np.diff(starts, append=len(rows)))
    table = np.stack([np.arange(len(rows)), of_group + first, beyond - first, rows * blocks + first], axis=1)
    return Runs(rows, np.arange(ends[-1]) + np.repeat(shift, read), table)


def run_product(program: Program, scalars: Array, outer: Array, inner: Array, table: Whole, out: Array) -> None:
    """Fill `out` with time and memory of runs [s, bytes], so many rows at a time that their tables stay in a cache.

    Parameters
    ----------
    program : of `ranking`
    scalars : of `scalars_of`
    outer, inner : `packed` rows and blocks of `Runs`
    table : lines of `Runs`, the first of which begins a block of `outer`
    out : blocks of the product x 2 x `LANES`
    """
    if not len(table):
        return
    assert program.product is not None
    starts = np.arange(0, len(table), CACHED)
    lowest = np.minimum.reduceat(table[:, 1], starts)
    beyond = np.maximum.reduceat(table[:, 1] + table[:, 2], starts)
    for start, low, high in zip(starts.tolist(), lowest.tolist(), beyond.tolist(), strict=True):
        lines = table[start : start + CACHED]
        begin = int(lines[0, 0])
        rows = slice(begin // LANES, -(-(begin + len(lines)) // LANES))
        of_outer = tabled(program.parts["outer"], scalars, outer[rows], "outer table")
        of_inner = tabled(program.parts["inner"], scalars, inner[low:high], "inner table")
        here = lines - np.array([begin, low, 0, 0])
        program.product(scalars, of_outer, of_inner, here, out)


def results_of(
    part: Part, scalars: Array, columns: Planned | Inputs, rows: int, kind: type[float] | type[bool] = float
) -> NDArray[Any]:
    """What a part gives for columns of plans, results x rows.

    Parameters
    ----------
    part : of a program
    scalars : of `scalars_of`
    columns, rows : as `packed` takes them
    kind : of the results
    """
    out = np.empty((part.results, -(-rows // LANES), LANES), dtype=kind)
    for start in range(0, rows, PACKED):
        stop, block = min(start + PACKED, rows), start // LANES
        table = tabled(part, scalars, packed(part, columns, stop - start, slice(start, stop), "given"), "table")
        out[:, block : block + len(table)] = table.transpose(1, 0, 2)
    return out.reshape(part.results, -1)[:, :rows]


__all__ = [
    "EVERY", "LANES", "RANKED", "Held", "Part", "Planned", "Program", "Ruled", "Runs", "compile_all", "every_part",
    "every_part_of_runs", "least_memory", "packed", "packed_blocks", "ranking", "results_of", "rules", "run_product", "runs_of",
    "scalars_of", "tabled",
]  # fmt: skip

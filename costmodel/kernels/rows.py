"""Steps of many plans in vector code: every part of each, or time and memory of products of plans.

A formula is factored by what its operations depend on. Of a *product*, every plan has a row of an outer table (how a pipeline
runs, how states are sharded) and a row of an inner one (micro-batch, recomputation); both share the split of the GPUs. Of the
five thousand operations of a step two in three read one of the tables alone and are done once a row of it; a tenth reads
both and is done once a plan. The tape of the formula says which, so that nothing is written twice.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from costmodel.formulas import legality, training_step
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
from costmodel.kernels import machine_code
from costmodel.kernels.fields import INNER, LANES, OUTER
from costmodel.kernels.tape import Place, Traced, needed, supports, trace
from costmodel.records import Row

Array: TypeAlias = NDArray[np.float64]
EVERY = (*Step._fields[:-1], *(f"memory.{part}" for part in Memory._fields))
RANKED = ("total", "memory.total")
_INNER, _OUTER, _SPLIT = 1, 2, 4


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


class Part(NamedTuple):
    """A function in vector code.

    Parameters
    ----------
    call : it
    columns : paths of the numbers that it reads row by row, in order
    results : how many numbers it gives a row
    """

    call: Callable[..., None]
    columns: tuple[str, ...]
    results: int


class Program(NamedTuple):
    """A formula in vector code.

    Parameters
    ----------
    constants : paths of what the question gives
    once : what is done once a question, of which `scalars` numbers come
    scalars : how many
    parts : what is done for rows, by name
    product : time and memory of runs, where the formula is factored
    """

    constants: tuple[str, ...]
    once: Callable[..., None]
    scalars: int
    parts: dict[str, Part]
    product: Callable[..., None] | None


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
        self.loops: list[Callable[[], str]] = []

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
        self.loops.append(lambda: machine_code.flat_loop(name, self.tape, self.scalars, columns, results))

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
            lambda: machine_code.product_loop("product", self.tape, self.scalars, outer, inner, self.results)
        )

    def written(self) -> tuple[str, Row]:
        """The source and what to remember about it."""
        operations = self.tape.operations
        inputs = [place for place in needed(self.tape, self.scalars) if operations[place].name == "input"]
        once = machine_code.flat_loop("once", self.tape, (), inputs, self.scalars)
        notes = {"constants": [operations[place].given for place in inputs], "scalars": len(self.scalars), "parts": self.parts}
        return once + "".join(loop() for loop in self.loops), notes


def _program(
    name: str, tables: Sequence[str], factored: bool, traced: Callable[[], Traced], bits: Callable[[str], int] = _bits
) -> Program:
    def make() -> tuple[str, Row]:
        writer = _Writer(traced(), bits)
        if factored:
            writer.product()
        else:
            writer.table(tables[0], writer.results)
        return writer.written()

    functions = {"once": 4} | {table: 4 for table in tables} | ({"product": 6} if factored else {})
    code, notes = machine_code.compiled(name, functions, make)
    parts = {table: Part(code[table], tuple(fields), results) for table, (fields, results) in notes["parts"].items()}
    return Program(tuple(notes["constants"]), code["once"], notes["scalars"], parts, code.get("product"))


def _step(compressed: bool) -> Callable[..., Step]:
    return training_step.step if compressed else training_step.uncompressed_step


@functools.cache
def every_part(compressed: bool) -> Program:
    """Every part of a step, plan by plan.

    Parameters
    ----------
    compressed : whether gradients may be compressed
    """
    formula = _step(compressed)
    name = f"every-{formula.__name__}"
    return _program(name, ("rows",), False, lambda: trace(formula, Inputs, EVERY))


@functools.cache
def ranking(compressed: bool) -> Program:
    """Time and memory of products of plans.

    Parameters
    ----------
    compressed : whether gradients may be compressed
    """
    formula = _step(compressed)
    return _program(f"ranking-{formula.__name__}", ("inner", "outer"), True, lambda: trace(formula, Inputs, RANKED))


@functools.cache
def total(compressed: bool) -> Program:
    """Time of a step whose every number is a column.

    Parameters
    ----------
    compressed : whether gradients may be compressed
    """
    formula = _step(compressed)
    return _program(
        f"total-{formula.__name__}", ("rows",), False, lambda: trace(formula, Inputs, ("total",)), lambda path: _SPLIT
    )


@functools.cache
def rules() -> Program:
    """Every rule of legality, plan by plan."""
    return _program("rules", ("rows",), False, lambda: trace(legality.violations, Ruled, ()))


@functools.cache
def least_memory() -> Program:
    """The lower bound of memory, plan by plan."""
    return _program("least-memory", ("rows",), False, lambda: trace(memory.least, Held, ("total",)))


def compile_all() -> int:
    """Compile every program, or load it where it was compiled before; how many there are."""
    every = [make(compressed) for make in (ranking, every_part, total) for compressed in (False, True)]
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
    values = operator.attrgetter(*program.constants)(question) if program.constants else ()
    given = np.repeat(np.asarray(values if len(program.constants) != 1 else (values,), dtype=float), LANES)
    out = np.empty((program.scalars, LANES))
    program.once(0, given.ctypes.data, out.ctypes.data, 1)
    return np.ascontiguousarray(out[:, 0])


def tabled(part: Part, scalars: Array, columns: Planned | Inputs, rows: int) -> Array:
    """What a part gives for columns of plans, in blocks: blocks x results x `LANES`.

    Parameters
    ----------
    part : of a program
    scalars : of `scalars_of`
    columns : what the part reads; numbers serve all rows
    rows : how many
    """
    blocks = -(-rows // LANES)
    given = np.empty((blocks, len(part.columns), LANES))
    for field, name in enumerate(part.columns):
        column = np.asarray(operator.attrgetter(name)(columns), dtype=float)
        if column.ndim == 0:
            given[:, field] = column
            continue
        whole = rows // LANES
        given[:whole, field] = column[: whole * LANES].reshape(whole, LANES)
        if whole < blocks:
            given[whole, field] = column[-1]
            given[whole, field, : rows - whole * LANES] = column[whole * LANES :]
    out = np.empty((blocks, part.results, LANES))
    part.call(scalars.ctypes.data, given.ctypes.data, out.ctypes.data, blocks)
    return out


def runs_of(legal: NDArray[np.bool_], group: NDArray[np.int64]) -> NDArray[np.int64]:
    """The runs that hold all legal plans of a product: of each outer row the blocks from its first to its last.

    Parameters
    ----------
    legal : outer rows x inner rows of a group
    group : of each outer row
    """
    rows, width = legal.shape
    blocks = width // LANES
    some: NDArray[np.bool_] = np.logical_or.reduce(legal.reshape(rows, blocks, LANES), axis=2)
    first, last = some.argmax(axis=1), blocks - 1 - some[:, ::-1].argmax(axis=1)
    row = np.arange(rows)
    counts = np.where(np.logical_or.reduce(some, axis=1), last - first + 1, 0)
    return np.ascontiguousarray(np.stack([row, group * blocks + first, counts, row * blocks + first], axis=1))


def run_product(program: Program, scalars: Array, outer: Array, inner: Array, runs: NDArray[np.int64], out: Array) -> None:
    """Fill `out` with time and memory of runs [s, bytes].

    Parameters
    ----------
    program : of `ranking`
    scalars : of `scalars_of`
    outer, inner : of `tabled`
    runs : some of `runs_of`
    out : blocks x 2 x `LANES`
    """
    assert program.product is not None
    program.product(
        scalars.ctypes.data, outer.ctypes.data, inner.ctypes.data, runs.ctypes.data, len(runs), out.ctypes.data
    )


def results_of(part: Part, scalars: Array, columns: Planned | Inputs, rows: int) -> Array:
    """As `tabled`, results x rows.

    Parameters
    ----------
    part, scalars, columns, rows : as of `tabled`
    """
    return tabled(part, scalars, columns, rows).transpose(1, 0, 2).reshape(part.results, -1)[:, :rows]


__all__ = [
    "EVERY", "LANES", "RANKED", "Held", "Part", "Planned", "Program", "Ruled", "compile_all", "every_part", "least_memory",
    "ranking", "results_of", "rules", "run_product", "runs_of", "scalars_of", "tabled", "total",
]  # fmt: skip

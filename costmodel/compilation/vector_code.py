"""A tape in LLVM's language: a function that works on eight rows at a time.

No operation is reordered or contracted, so that rows have the digits of NumPy's columns but for logarithms, which are a series
of relative error below 1e-15. Operations are the same for a number and for a vector of them; `costmodel.compilation.jit` has
Numba take its logarithms from here, too.

Its text is written line by line: the objects of a builder (llvmlite's, which logarithms are made by) take four times as long.
What LLVM needs to place values in registers grows faster than the piece of code that it sees at once (10,300 operations of a
step in one piece: 5.1 to 6.6 s; in pieces of 300: 1.3 to 1.5 s, and the code is as fast). A long tape is therefore cut
into functions, between which values lie in memory.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from llvmlite import ir

from costmodel.compilation.fields import LANES
from costmodel.compilation.tape import Place, Tape, needed

DOUBLE, WHOLE = ir.DoubleType(), ir.IntType(64)
VECTOR = ir.VectorType(DOUBLE, LANES)
_VECTOR, _TRUTHS = str(VECTOR), f"<{LANES} x i1>"
PIECE = 300
"""Operations of a function."""
_ARITHMETIC = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_COMPARISONS = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq"}
_CONDITIONS = {*_COMPARISONS, "and", "or"}
_SERIES = (17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0)
"""Divisors of the terms of arctanh, after that of 19: ten terms of z^2 <= 0.0295 leave less than 1e-16."""


def _filled(kind: Any, value: float) -> Any:
    """A constant of a kind: a number, or a vector of as many as it holds."""
    if isinstance(kind, ir.VectorType):
        return ir.Constant(kind, [ir.Constant(kind.element, value)] * kind.count)
    return ir.Constant(kind, value)


def _whole(kind: Any) -> Any:
    """Whole numbers of the shape of floats."""
    return ir.VectorType(WHOLE, kind.count) if isinstance(kind, ir.VectorType) else WHOLE


def _bits(builder: Any, number: Any) -> Any:
    return builder.bitcast(number, _whole(number.type))


def floor_log2(builder: Any, number: Any) -> Any:
    """The exponent of a positive number, from its bits, as a float.

    Parameters
    ----------
    builder : of the code
    number : a float, or a vector of them
    """
    kind = _whole(number.type)
    high = builder.lshr(_bits(builder, number), _filled(kind, 52))
    lifted = builder.bitcast(builder.or_(high, _filled(kind, 0x4330000000000000)), number.type)  # 2^52 more than it
    biased = builder.fsub(lifted, _filled(number.type, 4503599627370496.0))
    return builder.fsub(biased, _filled(number.type, 1023.0))


def log2(builder: Any, number: Any) -> Any:
    """The logarithm to base two: exponent and the arctanh series of the mantissa, without a call into a library.

    Parameters
    ----------
    builder : of the code
    number : a positive float, or a vector of them
    """
    kind = _whole(number.type)

    def filled(value: float) -> Any:
        return _filled(number.type, value)

    low = builder.and_(_bits(builder, number), _filled(kind, 0x000FFFFFFFFFFFFF))
    mantissa = builder.bitcast(builder.or_(low, _filled(kind, 0x3FF0000000000000)), number.type)
    exponent = floor_log2(builder, number)
    large = builder.fcmp_ordered(">", mantissa, filled(1.4142135623730951))
    mantissa = builder.select(large, builder.fmul(mantissa, filled(0.5)), mantissa)
    exponent = builder.select(large, builder.fadd(exponent, filled(1.0)), exponent)
    z = builder.fdiv(builder.fsub(mantissa, filled(1.0)), builder.fadd(mantissa, filled(1.0)))
    y = builder.fmul(z, z)
    series = filled(1.0 / 19.0)
    for divisor in _SERIES:
        series = builder.fadd(builder.fmul(series, y), filled(1.0 / divisor))
    return builder.fadd(exponent, builder.fmul(builder.fmul(z, filled(2.885390081777927)), series))


def _constant(value: float) -> str:
    """A vector of a number."""
    return f"splat (double 0x{struct.pack('>d', value).hex()})"


_SELECTED = {"max": "ogt", "min": "olt"}
_LOGARITHMS = {"log2": log2, "floor_log2": floor_log2}
_INTRINSICS = {name: f"llvm.{name}.v{LANES}f64" for name in ("ceil", "sqrt")}


@functools.cache
def _of_vectors(name: str) -> str:
    """The source of a logarithm as a function of vectors, or the declaration of what LLVM has."""
    if name in _INTRINSICS:
        return f"declare {_VECTOR} @{_INTRINSICS[name]}({_VECTOR})"
    made = ir.Function(ir.Module(), ir.FunctionType(VECTOR, [VECTOR]), name)
    made.linkage = "internal"
    builder = ir.IRBuilder(made.append_basic_block())
    builder.ret(_LOGARITHMS[name](builder, *made.args))
    return str(made)


class Operands(NamedTuple):
    """Where a function finds values.

    Parameters
    ----------
    places : of the values on the tape, field by field
    step : numbers from one field to the next
    spread : whether one number serves all rows of a block
    """

    places: tuple[Place, ...]
    step: int
    spread: bool


class Body(NamedTuple):
    """A tape as code for a block of rows.

    Parameters
    ----------
    name : of the function, which takes a pointer for each table, one to the results and one to memory of its own
    source : LLVM's
    kept : numbers for which that memory has room
    """

    name: str
    source: str
    kept: int


class _CodePiece:
    """A function of some operations of a tape, line by line: the names of what it is given, or has worked out, by place."""

    def __init__(self, body: _BodyWriter) -> None:
        self.body = body
        self.lines: list[str] = []
        self.names: dict[Place, str] = {}

    def _named(self, instruction: str) -> str:
        """What an instruction gives."""
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = {instruction}")
        return name

    def _address(self, argument: int, number: int) -> str:
        return self._named(f"getelementptr double, ptr %a{argument}, i64 {number}")

    def _loaded(self, place: Place) -> str:
        body = self.body
        argument, number = body.given[place] if place in body.given else (body.own, LANES * body.slots[place])
        at = self._address(argument, number)
        if argument == body.own or not body.tables[argument].spread:
            return self._named(f"load {_VECTOR}, ptr {at}, align 8")
        one = self._named(f"load double, ptr {at}, align 8")
        first = self._named(f"insertelement {_VECTOR} poison, double {one}, i64 0")
        return self._named(f"shufflevector {_VECTOR} {first}, {_VECTOR} poison, <{LANES} x i32> zeroinitializer")

    def name(self, place: Place) -> str:
        """An operand."""
        found = self.names.get(place)
        if found is None:
            operation = self.body.tape.operations[place]
            if operation.name == "constant":
                found = _constant(operation.given)
            else:
                found = self._loaded(place)
                if operation.name in _CONDITIONS:
                    found = self._named(f"fcmp one {_VECTOR} {found}, {_constant(0.0)}")
            self.names[place] = found
        return found

    def do(self, place: Place) -> None:
        """An operation."""
        operation = self.body.tape.operations[place]
        name, operands = operation.name, [self.name(one) for one in operation.arguments]
        if name in _ARITHMETIC:
            made = f"{_ARITHMETIC[name]} {_VECTOR} {operands[0]}, {operands[1]}"
        elif name in _COMPARISONS:
            made = f"fcmp {_COMPARISONS[name]} {_VECTOR} {operands[0]}, {operands[1]}"
        elif name == "select":
            made = f"select {_TRUTHS} {operands[0]}, {_VECTOR} {operands[1]}, {_VECTOR} {operands[2]}"
        elif name in _SELECTED:
            chosen = self._named(f"fcmp {_SELECTED[name]} {_VECTOR} {operands[0]}, {operands[1]}")
            made = f"select {_TRUTHS} {chosen}, {_VECTOR} {operands[0]}, {_VECTOR} {operands[1]}"
        elif name in ("and", "or"):
            made = f"{name} {_TRUTHS} {operands[0]}, {operands[1]}"
        elif name == "neg":
            made = f"fneg {_VECTOR} {operands[0]}"
        elif name in _LOGARITHMS or name in _INTRINSICS:
            self.body.called.add(name)
            made = f"call {_VECTOR} @{_INTRINSICS.get(name, name)}({_VECTOR} {operands[0]})"
        else:
            raise NotImplementedError(f"{name} in vector code")
        self.names[place] = self._named(made)

    def store(self, place: Place, argument: int, field: int) -> None:
        """Write a value down, a condition as 1 or 0."""
        value = self.name(place)
        if self.body.tape.operations[place].name in _CONDITIONS:
            value = self._named(f"uitofp {_TRUTHS} {value} to {_VECTOR}")
        self.lines.append(f"store {_VECTOR} {value}, ptr {self._address(argument, LANES * field)}, align 8")


class _BodyWriter:
    """The code of a body, piece by piece."""

    def __init__(self, tape: Tape, tables: Sequence[Operands]) -> None:
        self.tape, self.tables = tape, tables
        self.given = {
            place: (argument, table.step * field)
            for argument, table in enumerate(tables) for field, place in enumerate(table.places)
        }  # fmt: skip
        self.out, self.own = len(tables), len(tables) + 1
        self.slots: dict[Place, int] = {}
        self.called: set[str] = set()

    def written(self, name: str, results: Sequence[Place]) -> Body:
        """The body that gives some results."""
        operations = self.tape.operations
        done = [one for one in needed(self.tape, results, frozenset(self.given)) if operations[one].name != "constant"]
        pieces = [done[start : start + PIECE] for start in range(0, len(done), PIECE)] or [[]]
        piece_of = {place: number for number, piece in enumerate(pieces) for place in piece}
        for place in done:
            for one in operations[place].arguments:
                if piece_of.get(one, piece_of[place]) != piece_of[place]:
                    self.slots.setdefault(one, len(self.slots))
        arguments = ", ".join(f"ptr %a{number}" for number in range(self.own + 1))
        sources, calls = [], []
        for number, operations_of_piece in enumerate(pieces):
            piece = _CodePiece(self)
            for place in operations_of_piece:
                piece.do(place)
                if place in self.slots:
                    piece.store(place, self.own, self.slots[place])
            for field, place in enumerate(results):
                if piece_of.get(place, 0) == number:
                    piece.store(place, self.out, field)
            head = f"void @{name}_piece_{number}({arguments})"
            sources.append(f"define internal {head} noinline {{\n" + "\n".join(piece.lines) + "\nret void\n}")
            calls.append(f"call {head}\n")
        whole = f"define void @{name}_body({arguments}) {{\n{''.join(calls)}ret void\n}}"
        source = "\n".join([*map(_of_vectors, sorted(self.called)), *sources, whole])
        return Body(f"{name}_body", source, LANES * len(self.slots))


def body(name: str, tape: Tape, tables: Sequence[Operands], results: Sequence[Place]) -> Body:
    """A tape as code for a block of rows.

    Parameters
    ----------
    name : to name it by
    tape : the operations
    tables : where values lie
    results : places of what is written, one after another
    """
    return _BodyWriter(tape, tables).written(name, results)


__all__ = ["Body", "Operands", "body", "floor_log2", "log2"]

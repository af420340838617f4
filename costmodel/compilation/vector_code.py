"""A tape in LLVM's language, by the builder that comes with Numba: a function that works on eight rows at a time.

No operation is reordered or contracted, so that rows have the digits of NumPy's columns but for logarithms, which are a series
of relative error below 1e-15. Operations are the same for a number and for a vector of them; `costmodel.compilation.jit` has
Numba take its logarithms from here, too.

What LLVM needs to place values in registers grows faster than the piece of code that it sees at once (10,300 operations of a
step in one piece: 5.1 to 6.6 s; in pieces of 300: 1.3 to 1.5 s, and the code is as fast). A long tape is therefore cut
into functions, between which values lie in memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from llvmlite import ir

from costmodel.compilation.fields import LANES
from costmodel.compilation.tape import Place, Tape, needed

DOUBLE, WHOLE = ir.DoubleType(), ir.IntType(64)
VECTOR = ir.VectorType(DOUBLE, LANES)
POINTER = DOUBLE.as_pointer()
PIECE = 300
"""Operations of a function."""
_ARITHMETIC = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "=="}
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


def _operation(builder: Any, name: str, operands: Sequence[Any]) -> Any:
    """What one operation of a tape gives."""
    if name in _ARITHMETIC:
        return getattr(builder, _ARITHMETIC[name])(*operands)
    if name in _COMPARISONS:
        return builder.fcmp_ordered(_COMPARISONS[name], *operands)
    if name in ("max", "min"):
        return builder.select(builder.fcmp_ordered(">" if name == "max" else "<", *operands), *operands)
    if name == "select":
        return builder.select(*operands)
    if name in ("and", "or"):
        return getattr(builder, f"{name}_")(*operands)
    if name == "neg":
        return builder.fneg(*operands)
    if name in ("log2", "floor_log2"):
        return {"log2": log2, "floor_log2": floor_log2}[name](builder, *operands)
    if name not in ("ceil", "sqrt"):
        raise NotImplementedError(f"{name} in vector code")
    return builder.call(_declared(builder.module, f"llvm.{name}.v{LANES}f64", ir.FunctionType(VECTOR, [VECTOR])), operands)


def _declared(module: Any, name: str, kind: Any) -> Any:
    return module.globals.get(name) or ir.Function(module, kind, name)


class Operands(NamedTuple):
    """Where a function finds values."""

    places: tuple[Place, ...]  # of the values on the tape, field by field
    step: int  # numbers from one field to the next
    spread: bool  # whether one number serves all rows of a block


class Body(NamedTuple):
    """A tape as code for a block of rows."""

    name: str  # of the function, which takes a pointer for each table, one to the results and one to memory of its own
    source: str  # LLVM's
    kept: int  # numbers for which that memory has room


class _CodePiece:
    """A function of some operations of a tape: what it is given, or has worked out, by place."""

    def __init__(self, body: _BodyWriter, module: Any, name: str, kind: Any) -> None:
        self.body, self.function = body, ir.Function(module, kind, name)
        self.function.linkage = "internal"
        self.function.attributes.add("noinline")
        self.builder = ir.IRBuilder(self.function.append_basic_block())
        self.values: dict[Place, Any] = {}

    def _at(self, argument: int, number: int) -> Any:
        return self.builder.gep(self.function.args[argument], [ir.Constant(WHOLE, number)])

    def _vector_at(self, argument: int, number: int) -> Any:
        return self.builder.bitcast(self._at(argument, number), VECTOR.as_pointer())

    def _loaded(self, place: Place) -> Any:
        if place not in self.body.given:
            return self.builder.load(self._vector_at(-1, LANES * self.body.slots[place]), align=8)
        argument, number = self.body.given[place]
        if not self.body.tables[argument].spread:
            return self.builder.load(self._vector_at(argument, number), align=8)
        one, none = self.builder.load(self._at(argument, number)), ir.Constant(VECTOR, ir.Undefined)
        first = self.builder.insert_element(none, one, ir.Constant(WHOLE, 0))
        return self.builder.shuffle_vector(first, none, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))

    def value(self, place: Place) -> Any:
        """An operand."""
        operation = self.body.tape.operations[place]
        if operation.name == "constant":
            return self.body.constant(operation.given)
        if place not in self.values:
            found = self._loaded(place)
            if operation.name in _CONDITIONS:
                found = self.builder.fcmp_ordered("!=", found, self.body.constant(0.0))
            self.values[place] = found
        return self.values[place]

    def do(self, place: Place) -> None:
        """An operation."""
        operation = self.body.tape.operations[place]
        self.values[place] = _operation(self.builder, operation.name, [self.value(one) for one in operation.arguments])

    def store(self, place: Place, argument: int, field: int) -> None:
        """Write a value down, a condition as 1 or 0."""
        value = self.value(place)
        if self.body.tape.operations[place].name in _CONDITIONS:
            value = self.builder.uitofp(value, VECTOR)
        self.builder.store(value, self._vector_at(argument, LANES * field), align=8)


class _BodyWriter:
    """The code of a body, piece by piece."""

    def __init__(self, tape: Tape, tables: Sequence[Operands]) -> None:
        self.tape, self.tables = tape, tables
        self.given = {
            place: (argument, table.step * field)
            for argument, table in enumerate(tables) for field, place in enumerate(table.places)
        }  # fmt: skip
        self.slots: dict[Place, int] = {}
        self._constants: dict[tuple[float, float], Any] = {}

    def constant(self, value: float) -> Any:
        """A vector of a number; one object for each number, as its text is made once."""
        key = value, math.copysign(1.0, value)  # 0.0 and -0.0 are equal
        if key not in self._constants:
            self._constants[key] = _filled(VECTOR, value)
        return self._constants[key]

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
        module, kind = ir.Module(), ir.FunctionType(ir.VoidType(), [POINTER] * (len(self.tables) + 2))
        functions = []
        for number, operations_of_piece in enumerate(pieces):
            piece = _CodePiece(self, module, f"{name}_piece_{number}", kind)
            for place in operations_of_piece:
                piece.do(place)
                if place in self.slots:
                    piece.store(place, -1, self.slots[place])
            for field, place in enumerate(results):
                if piece_of.get(place, 0) == number:
                    piece.store(place, -2, field)
            piece.builder.ret_void()
            functions.append(piece.function)
        whole = ir.Function(module, kind, f"{name}_body")
        builder = ir.IRBuilder(whole.append_basic_block())
        for function in functions:
            builder.call(function, whole.args)
        builder.ret_void()
        return Body(whole.name, str(module), LANES * len(self.slots))


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

"""Numba kernels over tables of plans: the loop is Python's, and what it does to a row is a tape, by an intrinsic.

A formula of ten thousand operations is too long for Numba to read as Python: it takes 35 s to find the type of every number,
where each is a float. Here it types one call. The loop goes through Numba; the function that the intrinsic calls is built by
`vector_code`, and is linked to the loop where Numba would begin to optimise, as that is what costs.

Measured for every part of a step (10,300 operations, EPYC Milan, CPU seconds on a busy machine): all of it by Numba 5.7 s, and
7.7 s in one piece (passes over straight lines, which find nothing); so, by the first level of LLVM, 3.3 s, 1.4 s of it for code,
0.9 s for the builder and its text. The code takes 0.7 us a row either way. What a search needs is two of these.

Numba keeps what it compiled where it can load it again itself, which takes half a second to import. What is kept here
is that machine code alone (`machine_code`), which LLVM loads in milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from costmodel.compilation import jit, vector_code
from costmodel.compilation.fields import LANES
from costmodel.compilation.tape import Place, Tape
from costmodel.compilation.vector_code import Body, Operands

SHIFT = LANES.bit_length() - 1
"""From a row to its block."""


def _called(body: Body, context: Any, builder: Any, pointers: Sequence[Any]) -> Any:
    """Code that calls a body, with memory that is made once a loop."""
    kind = ir.FunctionType(ir.VoidType(), [vector_code.POINTER] * (len(pointers) + 1))
    function = builder.module.globals.get(body.name) or ir.Function(builder.module, kind, body.name)
    with builder.goto_entry_block():
        own = builder.alloca(ir.DoubleType(), max(1, body.kept))
    builder.call(function, [*pointers, own])
    return context.get_dummy_value()


def _numbers(context: Any, builder: Any, kind: Any, array: Any, place: Any = None, width: int = 0) -> Any:
    """A pointer to the numbers of an array, or to those of one of its blocks of so many."""
    start = context.make_array(kind)(context, builder, value=array).data
    return start if place is None else builder.gep(start, [builder.mul(place, ir.Constant(place.type, width))])


def flat_loop(
    name: str, tape: Tape, scalars: Sequence[Place], columns: Sequence[Place], results: Sequence[Place],
    arguments: tuple[Any, ...],
) -> list[str]:  # fmt: skip
    """LLVM's source of a loop over the blocks of one table.

    Parameters
    ----------
    name : of the function ``(scalars, columns, out)``
    tape : the operations
    scalars, columns : places of what is the same for all rows, and of what is read row by row
    results : places of what is written
    arguments : as it will be called
    """
    tables = (Operands(tuple(scalars), 1, True), Operands(tuple(columns), LANES, False))
    body = vector_code.body(name, tape, tables, results)

    def typed(_, scalars, columns, out, block):
        def code(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
            kinds, block = signature.args, given[3]
            return _called(body, context, builder, [
                _numbers(context, builder, kinds[0], given[0]),
                _numbers(context, builder, kinds[1], given[1], block, LANES * len(tables[1].places)),
                _numbers(context, builder, kinds[2], given[2], block, LANES * len(results)),
            ])  # fmt: skip

        return types.void(scalars, columns, out, block), code

    work: Any = intrinsic(typed)

    def loop(scalars, columns, out):
        for block in range(len(columns)):
            work(scalars, columns, out, block)
        return 0

    return [body.source, jit.loop_source(loop, arguments, name)]


def product_loop(
    name: str, tape: Tape, scalars: Sequence[Place], outer: Sequence[Place], inner: Sequence[Place], results: Sequence[Place],
    arguments: tuple[Any, ...],
) -> list[str]:  # fmt: skip
    """LLVM's source of a loop over runs: one row of an outer table with some blocks of an inner one.

    Parameters
    ----------
    name : of the function ``(scalars, outer, inner, runs, out)``; a run is four whole numbers: a row of the outer table,
        its first block of the inner one, how many blocks, and the block of `out` where the first result goes
    tape : the operations
    scalars, outer, inner : places of what is the same for all rows, and of what the tables hold
    results : places of what is written
    arguments : as it will be called
    """
    tables = (Operands(tuple(scalars), 1, True), Operands(tuple(outer), LANES, True), Operands(tuple(inner), LANES, False))
    body = vector_code.body(name, tape, tables, results)

    def typed(_, scalars, outer, group, lane, inner, block, out, target):
        def code(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
            kinds = signature.args
            row = _numbers(context, builder, kinds[1], given[1], given[2], LANES * len(tables[1].places))
            return _called(body, context, builder, [
                _numbers(context, builder, kinds[0], given[0]),
                builder.gep(row, [given[3]]),
                _numbers(context, builder, kinds[4], given[4], given[5], LANES * len(tables[2].places)),
                _numbers(context, builder, kinds[6], given[6], given[7], LANES * len(results)),
            ])  # fmt: skip

        return types.void(scalars, outer, group, lane, inner, block, out, target), code

    work: Any = intrinsic(typed)

    def loop(scalars, outer, inner, runs, out):
        for run in range(len(runs)):
            group, lane = runs[run, 0] >> SHIFT, runs[run, 0] & (LANES - 1)
            for step in range(runs[run, 2]):
                work(scalars, outer, group, lane, inner, runs[run, 1] + step, out, runs[run, 3] + step)
        return 0

    return [body.source, jit.loop_source(loop, arguments, name)]

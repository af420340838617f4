"""Loops over tables of plans in LLVM's language, around what a tape does to a block of rows.

A formula of ten thousand operations is too long for Numba to read as Python: it takes 35 s to find the type of every number,
where each is a float. As text for LLVM (`vector_code`), which the loops here call block by block, every part of a step is
machine code in 0.8 s of CPU (0.3 s to trace the formula, 0.1 s for the text, 0.4 s for LLVM), and takes 0.7 us a row. What a
search needs is two of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from costmodel.compilation import vector_code
from costmodel.compilation.fields import LANES
from costmodel.compilation.tape import Place, Tape
from costmodel.compilation.vector_code import Body, Operands

SHIFT = LANES.bit_length() - 1
"""From a row to its block."""


def _head(name: str, arguments: tuple[Any, ...], body: Body) -> str:
    """The beginning of a function of arrays as `standalone` calls one, with memory of the body's own."""
    words = ["i64 %result", "i64 %raised"]
    for number, array in enumerate(arguments):
        words += [f"i64 %owner{number}", f"i64 %parent{number}", f"i64 %size{number}", f"i64 %item{number}", f"ptr %data{number}"]
        words += [f"i64 %{word}{number}_{axis}" for word in ("shape", "stride") for axis in range(array.ndim)]
    return f"define void @{name}({', '.join(words)}) {{\nentry:\n%own = alloca double, i64 {max(1, body.kept)}\n"


def _counted(name: str, before: str, limit: str, work: str) -> str:
    """A loop whose `%name` counts from 0 to a limit: labels and jumps around its work, behind the block that comes before it."""
    last = f"{name}.last"
    return (
        f"br label %{name}.test\n{name}.test:\n%{name} = phi i64 [ 0, %{before} ], [ %{name}.next, %{last} ]\n"
        f"%{name}.more = icmp slt i64 %{name}, {limit}\nbr i1 %{name}.more, label %{name}.work, label %{name}.end\n"
        f"{name}.work:\n{work}br label %{last}\n{last}:\n%{name}.next = add i64 %{name}, 1\nbr label %{name}.test\n"
        f"{name}.end:\n"
    )


def _place(name: str, array: int, block: str, width: int) -> str:
    """The address of a block of an array, of so many numbers each."""
    return f"%{name}.at = mul i64 {block}, {width}\n%{name} = getelementptr double, ptr %data{array}, i64 %{name}.at\n"


def _call(body: Body, *pointers: str) -> str:
    return f"call void @{body.name}({', '.join(f'ptr %{one}' for one in (*pointers, 'own'))})\n"


def flat_loop(
    name: str, tape: Tape, scalars: Sequence[Place], columns: Sequence[Place], results: Sequence[Place],
    arguments: tuple[Any, ...],
) -> str:  # fmt: skip
    """LLVM's source of a loop over the blocks of one table.

    Parameters
    ----------
    name : of the function ``(scalars, columns, out)``
    tape : the operations
    scalars, columns : places of what is the same for all rows, and of what is read row by row
    results : places of what is written
    arguments : as it will be called
    """
    body = vector_code.body(
        name, tape, (Operands(tuple(scalars), 1, True), Operands(tuple(columns), LANES, False)), results
    )
    work = (
        _place("columns", 1, "%block", LANES * len(columns)) + _place("out", 2, "%block", LANES * len(results))
        + _call(body, "data0", "columns", "out")
    )  # fmt: skip
    return body.source + _head(name, arguments, body) + _counted("block", "entry", "%shape1_0", work) + "ret void\n}\n"


def product_loop(
    name: str, tape: Tape, scalars: Sequence[Place], outer: Sequence[Place], inner: Sequence[Place], results: Sequence[Place],
    arguments: tuple[Any, ...],
) -> str:  # fmt: skip
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
    read = "".join(
        f"%{field}.at = getelementptr i64, ptr %line, i64 {number}\n%{field} = load i64, ptr %{field}.at, align 8\n"
        for number, field in enumerate(("row", "first", "many", "target"))
    )
    row = (
        f"%group = ashr i64 %row, {SHIFT}\n%lane = and i64 %row, {LANES - 1}\n" + _place("rows", 1, "%group", LANES * len(outer))
        + "%outer = getelementptr double, ptr %rows, i64 %lane\n"
    )  # fmt: skip
    work = (
        "%read = add i64 %first, %step\n%written = add i64 %target, %step\n" + _place("inner", 2, "%read", LANES * len(inner))
        + _place("out", 4, "%written", LANES * len(results)) + _call(body, "data0", "outer", "inner", "out")
    )  # fmt: skip
    run = "%line.at = mul i64 %run, 4\n%line = getelementptr i64, ptr %data3, i64 %line.at\n" + read + row
    run += _counted("step", "run.work", "%many", work)
    return body.source + _head(name, arguments, body) + _counted("run", "entry", "%shape3_0", run) + "ret void\n}\n"


__all__ = ["flat_loop", "product_loop"]

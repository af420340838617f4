"""Vector code of tapes: LLVM makes a loop of eight rows at a time of each, and a file keeps what it made.

The code is written as LLVM's own language, a line for an operation, so that nothing has to be inferred: a formula of five
thousand operations compiles in a second or two. It is LLVM as it comes with Numba. No operation is reordered or contracted,
so that rows have the digits of NumPy's columns but for logarithms, which are a series of relative error below 1e-15.

Tables lie in blocks of eight rows, the fields of a block side by side.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite.binding as llvm

from costmodel.arithmetic.named_tuples import Row
from costmodel.compilation.cache import cache_folder, tell_compiling
from costmodel.compilation.fields import LANES
from costmodel.compilation.tape import Place, Tape, needed

VECTOR, MASK, BITS = f"<{LANES} x double>", f"<{LANES} x i1>", f"<{LANES} x i64>"
_ARITHMETIC = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_COMPARISONS = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq"}
_CONDITIONS = {*_COMPARISONS, "and", "or"}
_LOCK = threading.RLock()
_ENGINES: list[object] = []
"""Compiled code stays loaded as long as the process."""


def _double(value: float) -> str:
    return "0x" + struct.pack(">d", value).hex().upper()


def _splat(value: float) -> str:
    return "<" + ", ".join([f"double {_double(value)}"] * LANES) + ">"


def _whole(value: int) -> str:
    return "<" + ", ".join([f"i64 {value}"] * LANES) + ">"


def _exponent() -> list[str]:
    """Exponent of a positive number, from its bits."""
    return [
        f"%bits = bitcast {VECTOR} %x to {BITS}",
        f"%high = lshr {BITS} %bits, {_whole(52)}",
        f"%biased = or {BITS} %high, {_whole(0x4330000000000000)}",
        f"%lifted = bitcast {BITS} %biased to {VECTOR}",
        f"%whole = fsub {VECTOR} %lifted, {_splat(4503599627370496.0)}",
        f"%exponent = fsub {VECTOR} %whole, {_splat(1023.0)}",
    ]


def _floor_of_logarithm() -> str:
    lines = [f"define internal {VECTOR} @floor_log2({VECTOR} %x) {{", *_exponent(), f"ret {VECTOR} %exponent", "}"]
    return "\n".join(lines)


def _logarithm() -> str:
    """Exponent bits plus the arctanh series of the mantissa: ten terms of z^2 <= 0.0295 leave less than 1e-16."""
    lines = [
        f"define internal {VECTOR} @log2({VECTOR} %x) {{", *_exponent(),
        f"%low = and {BITS} %bits, {_whole(0x000FFFFFFFFFFFFF)}",
        f"%one = or {BITS} %low, {_whole(0x3FF0000000000000)}",
        f"%mantissa = bitcast {BITS} %one to {VECTOR}",
        f"%large = fcmp ogt {VECTOR} %mantissa, {_splat(1.4142135623730951)}",
        f"%half = fmul {VECTOR} %mantissa, {_splat(0.5)}",
        f"%m = select {MASK} %large, {VECTOR} %half, {VECTOR} %mantissa",
        f"%more = fadd {VECTOR} %exponent, {_splat(1.0)}",
        f"%e = select {MASK} %large, {VECTOR} %more, {VECTOR} %exponent",
        f"%below = fsub {VECTOR} %m, {_splat(1.0)}",
        f"%above = fadd {VECTOR} %m, {_splat(1.0)}",
        f"%z = fdiv {VECTOR} %below, %above",
        f"%y = fmul {VECTOR} %z, %z",
    ]
    series = _splat(1.0 / 19.0)
    for divisor in (17, 15, 13, 11, 9, 7, 5, 3, 1):
        lines.append(f"%t{divisor} = fmul {VECTOR} {series}, %y")
        lines.append(f"%s{divisor} = fadd {VECTOR} %t{divisor}, {_splat(1.0 / divisor)}")
        series = f"%s{divisor}"
    lines += [
        f"%twice = fmul {VECTOR} %z, {_splat(2.885390081777927)}", f"%tail = fmul {VECTOR} %twice, {series}",
        f"%result = fadd {VECTOR} %e, %tail", f"ret {VECTOR} %result", "}",
    ]  # fmt: skip
    return "\n".join(lines)


HEAD = "\n".join([
    f"declare {VECTOR} @llvm.ceil.v{LANES}f64({VECTOR})", f"declare {VECTOR} @llvm.sqrt.v{LANES}f64({VECTOR})", _logarithm(),
    _floor_of_logarithm(), "",
])  # fmt: skip
"""What loops call, ahead of them in their source."""


def _line(name: str, place: Place, operands: Sequence[str]) -> list[str]:
    """The code of one operation."""
    left, into = operands[0], f"%v{place} ="
    if name in _ARITHMETIC:
        return [f"{into} {_ARITHMETIC[name]} {VECTOR} {left}, {operands[1]}"]
    if name in _COMPARISONS:
        return [f"{into} fcmp {_COMPARISONS[name]} {VECTOR} {left}, {operands[1]}"]
    if name in ("and", "or"):
        return [f"{into} {name} {MASK} {left}, {operands[1]}"]
    if name in ("max", "min"):
        test = "ogt" if name == "max" else "olt"
        return [
            f"%m{place} = fcmp {test} {VECTOR} {left}, {operands[1]}",
            f"{into} select {MASK} %m{place}, {VECTOR} {left}, {VECTOR} {operands[1]}",
        ]
    if name == "select":
        return [f"{into} select {MASK} {left}, {VECTOR} {operands[1]}, {VECTOR} {operands[2]}"]
    if name == "neg":
        return [f"{into} fneg {VECTOR} {left}"]
    if name in ("log2", "floor_log2"):
        return [f"{into} call {VECTOR} @{name}({VECTOR} {left})"]
    return [f"{into} call {VECTOR} @llvm.{name}.v{LANES}f64({VECTOR} {left})"]


class Table(NamedTuple):
    """Where a loop finds values.

    Parameters
    ----------
    pointer : name of the argument that points to them
    places : of the values on the tape, field by field
    spread : whether one number serves all rows of a block
    """

    pointer: str
    places: tuple[Place, ...]
    spread: bool


def _body(tape: Tape, tables: Sequence[Table], results: Sequence[Place]) -> list[str]:
    """The code of a block of rows, each table's pointer in ``%at_NAME``; results are stored one after another at ``%at_out``."""
    known = {place: (table, field) for table in tables for field, place in enumerate(table.places)}
    lines: list[str] = []
    loaded: set[Place] = set()

    def operand(place: Place) -> str:
        operation = tape.operations[place]
        if operation.name == "constant":
            return _splat(operation.given)
        if place in known and place not in loaded:
            table, field = known[place]
            loaded.add(place)
            name = f"c{place}" if operation.name in _CONDITIONS else f"v{place}"
            if table.spread:
                step = LANES if table.pointer == "outer" else 1
                lines.extend([
                    f"%p{place} = getelementptr double, ptr %at_{table.pointer}, i64 {step * field}",
                    f"%d{place} = load double, ptr %p{place}, align 8",
                    f"%i{place} = insertelement {VECTOR} poison, double %d{place}, i64 0",
                    f"%{name} = shufflevector {VECTOR} %i{place}, {VECTOR} poison, <{LANES} x i32> zeroinitializer",
                ])  # fmt: skip
            else:
                lines.extend([
                    f"%p{place} = getelementptr double, ptr %at_{table.pointer}, i64 {LANES * field}",
                    f"%{name} = load {VECTOR}, ptr %p{place}, align 8",
                ])  # fmt: skip
            if operation.name in _CONDITIONS:
                lines.append(f"%v{place} = fcmp one {VECTOR} %{name}, {_splat(0.0)}")
        return f"%v{place}"

    for place in needed(tape, results, frozenset(known)):
        operation = tape.operations[place]
        if operation.name != "constant":
            lines += _line(operation.name, place, [operand(one) for one in operation.arguments])
    for field, place in enumerate(results):
        value = operand(place)
        if tape.operations[place].name in _CONDITIONS:  # as 1 or 0
            lines.append(f"%s{field} = uitofp {MASK} {value} to {VECTOR}")
            value = f"%s{field}"
        lines += [f"%o{field} = getelementptr double, ptr %at_out, i64 {LANES * field}",
                  f"store {VECTOR} {value}, ptr %o{field}, align 8"]  # fmt: skip
    return lines


def flat_loop(name: str, tape: Tape, scalars: Sequence[Place], columns: Sequence[Place], results: Sequence[Place]) -> str:
    """A loop over the blocks of one table.

    Parameters
    ----------
    name : of the function ``(scalars, columns, out, blocks)``
    tape : the operations
    scalars, columns : places of what is the same for all rows, and of what is read row by row
    results : places of what is written
    """
    tables = (Table("scalars", tuple(scalars), True), Table("columns", tuple(columns), False))
    return "\n".join([
        f"define void @{name}(ptr %at_scalars, ptr %columns, ptr %out, i64 %blocks) {{", "start:", "br label %next", "next:",
        "%block = phi i64 [0, %start], [%after, %work]", "%more = icmp ult i64 %block, %blocks",
        "br i1 %more, label %work, label %end", "work:",
        f"%from = mul i64 %block, {LANES * len(columns)}", "%at_columns = getelementptr double, ptr %columns, i64 %from",
        f"%to = mul i64 %block, {LANES * len(results)}", "%at_out = getelementptr double, ptr %out, i64 %to",
        *_body(tape, tables, results), "%after = add i64 %block, 1", "br label %next", "end:", "ret void", "}", "",
    ])  # fmt: skip


def product_loop(
    name: str, tape: Tape, scalars: Sequence[Place], outer: Sequence[Place], inner: Sequence[Place], results: Sequence[Place]
) -> str:
    """A loop over runs: one row of an outer table with some blocks of an inner one.

    Parameters
    ----------
    name : of the function ``(scalars, outer, inner, runs, count, out)``; a run is four whole numbers: a row of the outer table,
        its first block of the inner one, how many blocks, and the block of `out` where the first result goes
    tape : the operations
    scalars, outer, inner : places of what is the same for all rows, and of what the tables hold
    results : places of what is written
    """
    tables = (Table("scalars", tuple(scalars), True), Table("outer", tuple(outer), True), Table("inner", tuple(inner), False))
    shift = LANES.bit_length() - 1
    runs = []
    for field in range(4):
        runs += [f"%r{field} = getelementptr i64, ptr %at_run, i64 {field}", f"%run{field} = load i64, ptr %r{field}, align 8"]
    return "\n".join([
        f"define void @{name}(ptr %at_scalars, ptr %outer, ptr %inner, ptr %runs, i64 %count, ptr %out) {{", "start:",
        "br label %next", "next:", "%run = phi i64 [0, %start], [%after, %done]", "%more = icmp ult i64 %run, %count",
        "br i1 %more, label %open, label %end", "open:", "%place = mul i64 %run, 4",
        "%at_run = getelementptr i64, ptr %runs, i64 %place", *runs, f"%group = lshr i64 %run0, {shift}",
        f"%first = mul i64 %group, {LANES * len(outer)}",
        f"%lane = and i64 %run0, {LANES - 1}", "%row = add i64 %first, %lane",
        "%at_outer = getelementptr double, ptr %outer, i64 %row",
        "br label %check", "check:", "%step = phi i64 [0, %open], [%onward, %work]", "%left = icmp ult i64 %step, %run2",
        "br i1 %left, label %work, label %done", "work:", "%block = add i64 %run1, %step",
        f"%from = mul i64 %block, {LANES * len(inner)}", "%at_inner = getelementptr double, ptr %inner, i64 %from",
        "%target = add i64 %run3, %step", f"%to = mul i64 %target, {LANES * len(results)}",
        "%at_out = getelementptr double, ptr %out, i64 %to",
        *_body(tape, tables, results), "%onward = add i64 %step, 1", "br label %check",
        "done:", "%after = add i64 %run, 1", "br label %next", "end:", "ret void", "}", "",
    ])  # fmt: skip


class Compiled(NamedTuple):
    """Functions in machine code, and what their maker has to remember about them.

    Parameters
    ----------
    functions : by their names
    notes : of the maker, as JSON takes them
    """

    functions: dict[str, Callable[..., None]]
    notes: Row


def compiled(name: str, functions: dict[str, int], make: Callable[[], tuple[str, Row]]) -> Compiled:
    """Functions as machine code: of a file, or of their source, which is compiled and filed where a folder can be written.

    Parameters
    ----------
    name : of the file
    functions : number of arguments by names
    make : writes the source, and what to remember about it
    """
    with _LOCK:
        machine = _machine()
        folder = cache_folder()
        path = None if folder is None else folder / f"{name}-{_kind_of_machine()}.code"
        kept = _read(path)
        if kept is None:
            tell_compiling()
            source, notes = make()
            kept = machine.emit_object(llvm.parse_assembly(source)), notes
            _write(path, *kept)
        code, notes = kept
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        _ENGINES.append(engine)
        return Compiled({
            function: ctypes.CFUNCTYPE(None, *[ctypes.c_size_t] * arguments)(engine.get_function_address(function))
            for function, arguments in functions.items()
        }, notes)  # fmt: skip


def _machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(  # of these straight lines level 2 makes code no faster, in twice the time
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=1, codemodel="jitdefault", reloc="pic"
    )


def _kind_of_machine() -> str:
    import hashlib

    words = (llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), llvm.llvm_version_info)
    return hashlib.sha256(repr(words).encode()).hexdigest()[:12]


def _read(path: Path | None) -> tuple[bytes, Row] | None:
    """Code and notes of a file: a line of JSON with the length and digest of what follows, then the code."""
    if path is None or not path.is_file():
        return None
    import zlib

    head, _, code = path.read_bytes().partition(b"\n")
    try:
        notes = json.loads(head)
    except ValueError:
        return None
    return (code, notes["notes"]) if notes.get("check") == zlib.crc32(code) else None


def _write(path: Path | None, code: bytes, notes: Row) -> None:
    """Keep code and notes in a file, which is there whole or not at all."""
    import zlib

    if path is None:
        return
    head = json.dumps({"check": zlib.crc32(code), "notes": notes}).encode()
    handle, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(head + b"\n" + code)
    os.replace(name, path)


__all__ = ["HEAD", "Compiled", "compiled", "flat_loop", "product_loop"]

"""Machine code of kernels that Numba has compiled: kept in a file once, and from then on loaded by LLVM alone.

To import Numba takes longer than a search. It is LLVM as it comes with Numba.
"""

from __future__ import annotations

import ctypes
import json
import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite.binding as llvm

from costmodel.arithmetic.named_tuples import Row
from costmodel.compilation.cache import cache_folder, tell_compiling

_LOCK = threading.RLock()
_ENGINES: list[object] = []
"""Compiled code stays loaded as long as the process."""


class Compiled(NamedTuple):
    """Functions in machine code, and what their maker has to remember about them."""

    functions: dict[str, Callable[..., None]]  # by their names
    notes: Row  # of the maker, as JSON takes them


def compiled(name: str, functions: dict[str, int], make: Callable[[], tuple[Sequence[str], Row]], level: int = 1) -> Compiled:
    """Functions as machine code: of a file, or of their source, which is compiled and filed where a folder can be written.

    Parameters
    ----------
    name : of the file
    functions : number of arguments by names
    make : writes sources, which are linked, and what to remember about them
    level : of LLVM's care for the code: of a formula's straight lines, 0 makes code that takes a tenth longer than that of 1, in
        a third of the time; of loops and branches 2 makes code no faster than 1
    """
    with _LOCK:
        machine = _machine(level)
        folder = cache_folder()
        path = None if folder is None else folder / f"{name}-{_kind_of_machine()}.code"
        kept = _read(path)
        if kept is None:
            tell_compiling()
            sources, notes = make()
            kept = machine.emit_object(_linked(sources)), notes
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


def _linked(sources: Sequence[str]) -> Any:
    """One module of several sources."""
    whole, *others = map(llvm.parse_assembly, sources)
    for other in others:
        other.triple, other.data_layout = whole.triple, whole.data_layout
        whole.link_in(other)
    return whole


def _machine(level: int) -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=level, codemodel="jitdefault", reloc="pic"
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

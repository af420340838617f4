"""Loops over arrays in machine code: Numba compiles them once after installation, and LLVM alone loads what was kept.

To import Numba, with all formulas that it may call, takes ten times as long as to load one loop. A loop here is a plain
function of whole numbers, arrays and named tuples of arrays, with the functions of its own module that it calls: it makes no
arrays and raises nothing, so that its code needs nothing of Numba's to run.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.arithmetic.named_tuples import Row
from costmodel.compilation.cache import is_kept


def _arrays(arguments: tuple[Any, ...]) -> Iterator[Any]:
    """Arrays and whole numbers of nested tuples, in order."""
    for value in arguments:
        if isinstance(value, tuple):
            yield from _arrays(value)
        else:
            yield value


def _kind(value: Any) -> str:
    """What the code of a loop depends on: whether it reads a number, or an array of which kind and dimensions."""
    if not isinstance(value, np.ndarray):
        return "number"
    if not (value.flags.c_contiguous and value.flags.writeable):
        raise TypeError(f"a loop takes arrays that lie in one piece and can be written, not one with strides {value.strides}")
    return f"{value.dtype.str}{value.ndim}"


def _words(value: Any) -> tuple[int, ...]:
    """An argument as machine code takes it: of an array its owner, size, place, shape and strides, as Numba lays them out."""
    if not isinstance(value, np.ndarray):
        return (int(value),)
    return (0, 0, value.size, value.itemsize, value.ctypes.data, *value.shape, *value.strides)


def standalone(function: Callable[..., int], work: Callable[..., int] | None = None, plainly: int = 0) -> Callable[..., int]:
    """A function of whole numbers, arrays and named tuples of arrays as machine code.

    Parameters
    ----------
    function : gives a whole number; may call the functions of its module, whose code goes inside its own
    work : how much there is to do, of the same arguments
    plainly : how much a process does in plain Python before it compiles what none before has kept: about what takes as long

    Returns
    -------
    Callable
        takes the same arguments; the first call compiles, or loads what a call before has kept, and others hold no lock
    """
    loaded: dict[tuple[str, ...], Callable[..., None]] = {}
    left = plainly

    @functools.wraps(function)
    def call(*arguments: Any) -> int:
        nonlocal left
        flat = [*_arrays(arguments)]
        kinds = tuple(map(_kind, flat))
        if kinds not in loaded:
            much = work(*arguments) if work is not None else left + 1
            if much <= left and not is_kept(_file(function, kinds)):
                left -= much
                given = _done_plainly(function, arguments, flat)
                if given is not None:
                    return given
            loaded[kinds] = _loaded(function, arguments, kinds)
        return _called(loaded[kinds], flat)

    return call


def _done_plainly(function: Callable[..., int], arguments: tuple[Any, ...], flat: list[Any]) -> int | None:
    """What plain Python gives, which reads and writes numbers of memory in half the time that it takes for those of arrays.

    None, and all as it was before, where it divides by nothing, of which machine code makes an infinity.
    """
    before = [value.copy() if isinstance(value, np.ndarray) else value for value in flat]
    try:
        return function(*map(_as_memory, arguments))
    except ZeroDivisionError:
        for value, old in zip(flat, before, strict=True):
            if isinstance(value, np.ndarray):
                value[...] = old
        return None


def _as_memory(value: Any) -> Any:
    """An argument with its arrays as memory."""
    if isinstance(value, tuple):
        return type(value)(*map(_as_memory, value))
    return value.data if isinstance(value, np.ndarray) else value


def _called(code: Callable[..., None], arguments: list[Any]) -> int:
    """What machine code gives for whole numbers and arrays."""
    result, raised = ctypes.c_int64(), ctypes.c_void_p()
    code(ctypes.addressof(result), ctypes.addressof(raised), *(word for value in arguments for word in _words(value)))
    return result.value


def word_count(arguments: tuple[Any, ...]) -> int:
    """How many words machine code takes of some arguments, with the addresses of its result and of an exception.

    Parameters
    ----------
    arguments : whole numbers, arrays and named tuples of arrays

    Examples
    --------
    >>> word_count((1, np.zeros((2, 3))))
    12
    """
    return 2 + sum(len(_words(value)) for value in _arrays(arguments))


def callable_of(code: Callable[..., None]) -> Callable[..., int]:
    """Machine code as a function of arrays, always of the same kinds, each in one piece.

    Parameters
    ----------
    code : as `costmodel.compilation.machine_code.compiled` gives it
    """

    def call(*arguments: NDArray[Any]) -> int:
        return _called(code, [*arguments])

    return call


def _file(function: Callable[..., int], kinds: tuple[str, ...]) -> str:
    """The name of the file that has a function's machine code for arguments of such kinds."""
    digest = hashlib.sha256(repr(kinds).encode()).hexdigest()[:8]
    return f"{function.__module__.rpartition('.')[2]}-{function.__name__}-{digest}"


def _loaded(function: Callable[..., int], arguments: tuple[Any, ...], kinds: tuple[str, ...]) -> Callable[..., None]:
    """The machine code of a function for arguments of such kinds."""

    from costmodel.compilation import machine_code  # loads LLVM

    def make() -> tuple[list[str], Row]:
        from costmodel.compilation import jit  # loads Numba

        return [jit.source_of(function, sys.modules[function.__module__], arguments)], {"kinds": kinds}

    name = function.__name__
    return machine_code.compiled(_file(function, kinds), {name: word_count(arguments)}, make).functions[name]

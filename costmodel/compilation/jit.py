"""The only border to Numba: formulas are registered, `ops` gets overloads, and the cache follows the sources.

Numba's own cache looks at one file and would serve stale code when a formula in another file changes, so the
cache folder is named by a digest of the package's sources. Where nothing can be written, kernels compile
without a cache.
"""

from __future__ import annotations

import importlib
import math
import os
import pkgutil
import types
import typing
from collections.abc import Callable, Mapping
from typing import TypeVar

from costmodel.compilation.cache import cache_folder, tell_compiling

Function = TypeVar("Function", bound=Callable[..., object])
"""To the type checker a compiled function is the function that was compiled."""

_FOLDER = cache_folder()
if _FOLDER is not None:
    # numba reads this when it is first imported, and again whenever a dispatcher enables caching
    os.environ["NUMBA_CACHE_DIR"] = str(_FOLDER)

import numba  # noqa: E402
import numpy as np  # noqa: E402
from numba.core import event  # noqa: E402
from numba.extending import overload, register_jitable  # noqa: E402

from costmodel import formulas  # noqa: E402
from costmodel.arithmetic import ops  # noqa: E402

if _FOLDER is not None:
    numba.config.CACHE_DIR = str(_FOLDER)

class _FirstCompilation(event.Listener):  # type: ignore[misc]
    """Has it said what the process waits for when a kernel is not in the cache."""

    def on_start(self, event: object) -> None:
        """A compilation begins."""
        tell_compiling()

    def on_end(self, event: object) -> None:
        """A compilation has ended."""


event.register("numba:compile", _FirstCompilation())

_SQRT_HALF, _MANTISSA, _ONE = 0.7071067811865476, 0x000FFFFFFFFFFFFF, 0x3FF0000000000000
_MAGIC_BITS, _MAGIC = 0x4330000000000000, 4503599627370496.0


@overload(ops.maximum, jit_options={"forceinline": True})
def _maximum(a, b):
    return lambda a, b: a if a > b else b


@overload(ops.minimum, jit_options={"forceinline": True})
def _minimum(a, b):
    return lambda a, b: a if a < b else b


@overload(ops.where, jit_options={"forceinline": True})
def _where(condition, a, b):
    return lambda condition, a, b: a if condition else b


@overload(ops.equal, jit_options={"forceinline": True})
def _equal(a, b):
    return lambda a, b: a == b


@overload(ops.pick, jit_options={"forceinline": True})
def _pick(code, values):
    # a chain of selects, as a look-up by index would keep the row loop from being vectorised
    chain = "".join(f"values[{place}] if code == {float(place)} else " for place in range(len(values) - 1))
    return eval(f"lambda code, values: {chain}values[{len(values) - 1}]")  # a constant number of branches for Numba to see


@overload(ops.ceil, jit_options={"forceinline": True})
def _ceil(a):
    return lambda a: np.ceil(a)


@overload(ops.sqrt, jit_options={"forceinline": True})
def _sqrt(a):
    return lambda a: math.sqrt(a)


@overload(ops.log2, jit_options={"forceinline": True})
def _log2(a):
    # exponent bits plus the arctanh series of the mantissa: no library call, so the row loop stays vectorised;
    # ten terms of z^2 <= 0.0295 leave less than 1e-16
    def log2(a):
        bits = np.float64(a).view(np.int64)
        exponent = np.int64((bits >> 52) | _MAGIC_BITS).view(np.float64) - _MAGIC - 1023.0
        mantissa = np.int64((bits & _MANTISSA) | _ONE).view(np.float64)
        large = mantissa > 2.0 * _SQRT_HALF
        mantissa = mantissa * 0.5 if large else mantissa
        exponent = exponent + 1.0 if large else exponent
        z = (mantissa - 1.0) / (mantissa + 1.0)
        y = z * z
        series = 1.0 / 19.0
        for divisor in (17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0):
            series = series * y + 1.0 / divisor
        return exponent + 2.885390081777927 * z * series

    return log2


@overload(ops.floor_log2, jit_options={"forceinline": True})
def _floor_log2(a):
    def floor_log2(a):
        bits = np.float64(a).view(np.int64)
        return np.int64((bits >> 52) | _MAGIC_BITS).view(np.float64) - _MAGIC - 1023.0

    return floor_log2


def _register(module: types.ModuleType, options: Mapping[str, bool]) -> None:
    """Let compiled code call the functions of a module, which are put in place of their calls."""
    for formula in vars(module).values():
        if isinstance(formula, types.FunctionType) and formula.__module__ == module.__name__:
            register_jitable(forceinline=True, **options)(formula)


register_jitable(forceinline=True)(ops.ceil_div)
for _info in pkgutil.walk_packages(formulas.__path__, f"{formulas.__name__}."):
    _register(importlib.import_module(_info.name), {})


def _compiled(function: Function, options: Mapping[str, bool]) -> Function:
    njit: Callable[..., Callable[[Function], object]] = numba.njit
    return typing.cast(Function, njit(nogil=True, error_model="numpy", cache=_FOLDER is not None, **options)(function))


def kernel(function: Function) -> Function:
    """Compile a row loop: serial, free of the interpreter's lock, cached where a folder can be written."""
    return _compiled(function, {})


_UNCOUNTED = {"_nrt": False} if hasattr(numba.core.options.DefaultOptions, "_nrt") else {}


def helper(function: Function) -> Function:
    """Compile a function for kernels to call, which makes no arrays and counts no references.

    Taking an array out of a tuple counts a reference; where a kernel keeps its state in tuples of arrays, these counts
    would take ten times as long as the work. (The option is Numba's own; without it the function is only slower.)
    """
    return _compiled(function, _UNCOUNTED)


_REGISTERED: list[types.ModuleType] = []
"""Whose functions code of `source_of` may call."""


def source_of(function: Callable[..., object], module: types.ModuleType, arguments: tuple[object, ...]) -> str:
    """LLVM's source of a function of whole numbers and arrays, in which nothing of Numba's is left, under its own name.

    The machine code takes the addresses of the result and of an exception, which there is none of, then the arguments.

    Parameters
    ----------
    function : whose
    module : the functions that it calls
    arguments : as it will be called
    """
    from numba.core import compiler
    from numba.core.registry import cpu_target

    if module not in _REGISTERED:
        _register(module, {**_UNCOUNTED, "no_cfunc_wrapper": True})
        _REGISTERED.append(module)
    flags = compiler.Flags()
    for name, value in (("nrt", False), ("error_model", "numpy"), ("no_cpython_wrapper", True), ("no_cfunc_wrapper", True)):
        setattr(flags, name, value)
    signature = tuple(map(numba.typeof, arguments))
    contexts = cpu_target.typing_context, cpu_target.target_context
    made = compiler.compile_extra(*contexts, function, signature, numba.types.int64, flags, locals={})
    return str(made.library.get_llvm_str()).replace(made.fndesc.llvm_func_name, function.__name__)

"""The border to Numba: `ops` gets overloads, formulas that a kernel calls are registered, and the cache follows the sources.

Numba's own cache looks at one file and would serve stale code when a formula in another file changes, so the
cache folder is named by a digest of the package's sources. Where nothing can be written, kernels compile
without a cache.
"""

from __future__ import annotations

import math
import os
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from costmodel.compilation.cache import cache_folder, tell_compiling

Function = TypeVar("Function", bound=Callable[..., object])
"""To the type checker a compiled function is the function that was compiled."""

_FOLDER = cache_folder()
if _FOLDER is not None:
    # numba reads this when it is first imported, and again whenever a compiled function enables caching
    os.environ["NUMBA_CACHE_DIR"] = str(_FOLDER)

import numba  # noqa: E402
import numpy as np  # noqa: E402
from numba.core import event  # noqa: E402
from numba.extending import intrinsic, overload, register_jitable  # noqa: E402

from costmodel import formulas  # noqa: E402
from costmodel.arithmetic import ops  # noqa: E402
from costmodel.compilation import vector_code  # noqa: E402

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


def _by_builder(operation: Callable[..., object]) -> Callable[..., object]:
    """An operation of vector code on one number."""

    @intrinsic
    def of_one(_, number):
        def code(context, builder, signature, given):
            return operation(builder, given[0])

        return numba.types.float64(numba.types.float64), code

    return of_one


_of_log2, _of_floor_log2 = map(_by_builder, (vector_code.log2, vector_code.floor_log2))


@overload(ops.log2, jit_options={"forceinline": True})
def _log2(a):
    return lambda a: _of_log2(a)


@overload(ops.floor_log2, jit_options={"forceinline": True})
def _floor_log2(a):
    return lambda a: _of_floor_log2(a)


_REGISTERED: set[Callable[..., object]] = set()
"""What compiled code may call."""


def _names(code: types.CodeType) -> set[str]:
    """What is named in a function, or in those that are written in it."""
    inside = [_names(one) for one in code.co_consts if isinstance(one, types.CodeType)]
    return set(code.co_names).union(*inside)


def _called(function: types.FunctionType) -> Iterator[types.FunctionType]:
    """The formulas that a function may call: those that it names, alone or with their module."""
    names = _names(function.__code__)
    named = [function.__globals__[name] for name in names if name in function.__globals__]
    modules = (one for one in named if isinstance(one, types.ModuleType) and one.__name__.startswith(formulas.__name__))
    for one in (*named, *(vars(module)[name] for module in modules for name in names if name in vars(module))):
        if isinstance(one, types.FunctionType) and one.__module__.startswith(formulas.__name__):
            yield one


def register(*called: Callable[..., object]) -> None:
    """Let compiled code call formulas, and they what they call: all of it is put in place of its calls.

    Parameters
    ----------
    called : of `costmodel.formulas`
    """
    for formula in called:
        if formula not in _REGISTERED and isinstance(formula, types.FunctionType):
            _REGISTERED.add(formula)
            register_jitable(forceinline=True, no_cfunc_wrapper=True)(formula)
            register(*_called(formula))


def _register_kernels(module: types.ModuleType, options: Mapping[str, bool]) -> None:
    """Let a kernel call the other functions of its module, which are put in place of their calls."""
    for function in vars(module).values():
        if isinstance(function, types.FunctionType) and function.__module__ == module.__name__ and function not in _REGISTERED:
            _REGISTERED.add(function)
            register_jitable(forceinline=True, **options)(function)


register_jitable(forceinline=True)(ops.ceil_div)


def _compiled(function: Function, options: Mapping[str, bool]) -> Function:
    register(*_called(typing.cast(types.FunctionType, function)))
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


def _library_of(function: Callable[..., object], arguments: tuple[object, ...], name: str, whole: bool) -> str:
    """What Numba makes of a function of whole numbers and arrays, under another name; whole with all that it calls."""
    from numba.core import compiler
    from numba.core.registry import cpu_target

    flags = compiler.Flags()
    chosen = {"nrt": False, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True, "no_compile": not whole}
    for flag, value in chosen.items():
        setattr(flags, flag, value)
    signature = tuple(map(numba.typeof, arguments))
    contexts = cpu_target.typing_context, cpu_target.target_context
    made = compiler.compile_extra(*contexts, function, signature, numba.types.int64, flags, locals={})
    return str(made.library.get_llvm_str()).replace(made.fndesc.llvm_func_name, name)


def loop_source(function: Callable[..., object], arguments: tuple[object, ...], name: str) -> str:
    """LLVM's source of a loop that calls nothing but intrinsics, which may name functions that are linked to it later.

    Parameters
    ----------
    function : whose
    arguments : as it will be called
    name : of the function in that source, called as that of `source_of`
    """
    return _library_of(function, arguments, name, whole=False)


def source_of(function: Callable[..., object], module: types.ModuleType, arguments: tuple[object, ...]) -> str:
    """LLVM's source of a function of whole numbers and arrays, in which nothing of Numba's is left, under its own name.

    The machine code takes the addresses of the result and of an exception, which there is none of, then the arguments.
    """
    _register_kernels(module, {**_UNCOUNTED, "no_cfunc_wrapper": True})
    return _library_of(function, arguments, function.__name__, whole=True)

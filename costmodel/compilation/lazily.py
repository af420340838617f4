"""Kernels that plain Python runs where there is little to do: to import Numba and compile takes longer than that work."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np

from costmodel.compilation.cache import cache_folder

Given = ParamSpec("Given")
Result = TypeVar("Result")

LITTLE = 1_000_000
"""Turns of the innermost loops that plain Python does in less time than it takes to compile a kernel, about three seconds."""
LITTLE_BESIDE_LOADING = 100_000
"""The same where the kernel is kept: a third of a second, in which Numba is imported."""


class _Plainly(threading.local):
    """Whether this thread is inside a kernel that plain Python runs: so are those that it calls."""

    inside = False


_PLAINLY = _Plainly()


class LazyKernel(Generic[Given, Result]):
    """A kernel, which other kernels may call; compiled, or loaded, where there is more to do than plain Python does as fast.

    Parameters
    ----------
    function : that is compiled
    work : of the same arguments, turns of its innermost loops; it is always compiled if None
    """

    def __init__(self, function: Callable[Given, Result], work: Callable[Given, float] | None) -> None:
        functools.update_wrapper(self, function)
        self.plain, self.work = function, work

    @functools.cached_property
    def compiled(self) -> Callable[Given, Result]:
        """The kernel as Numba compiles it."""
        from costmodel.compilation import jit  # loads Numba

        return jit.kernel(self.plain)

    @property
    def _numba_type_(self) -> Any:
        """What Numba sees where another kernel calls this one."""
        from numba import types

        return types.Dispatcher(self.compiled)

    def _is_worth(self, turns: float) -> bool:
        """Whether so much work is done sooner by machine code, which is to be compiled, or loaded, or is there."""
        there: Any = vars(self).get("compiled")
        if there is not None and there.signatures:
            return True
        return turns > (LITTLE if turns <= LITTLE_BESIDE_LOADING or not self._is_kept else LITTLE_BESIDE_LOADING)

    @functools.cached_property
    def _is_kept(self) -> bool:
        """Whether Numba has kept the kernel's machine code, under the name that it gives it."""
        folder, plain = cache_folder(), self.plain
        name = f"{plain.__module__.rpartition('.')[2]}.{plain.__qualname__}-{plain.__code__.co_firstlineno}"
        return folder is not None and any(folder.glob(f"*/{name}.*.nbi"))

    def __call__(self, *arguments: Given.args, **named: Given.kwargs) -> Result:
        if _PLAINLY.inside:
            return self.plain(*arguments, **named)
        if self.work is None or self._is_worth(self.work(*arguments, **named)):
            return self.compiled(*arguments, **named)
        _PLAINLY.inside = True
        try:
            with np.errstate(all="ignore"):  # as machine code has it
                return self.plain(*arguments, **named)
        finally:
            _PLAINLY.inside = False


def kernel(function: Callable[Given, Result]) -> LazyKernel[Given, Result]:
    """A kernel that is compiled when it is first called."""
    return LazyKernel(function, None)


def kernel_of(work: Callable[Given, float]) -> Callable[[Callable[Given, Result]], LazyKernel[Given, Result]]:
    """A kernel that plain Python runs where there is little to do.

    Parameters
    ----------
    work : of the kernel's arguments, turns of its innermost loops
    """
    return lambda function: LazyKernel(function, work)

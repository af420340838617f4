"""Kernels that plain Python runs where there is little to do: to import Numba and compile takes longer than that work."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np

Given = ParamSpec("Given")
Result = TypeVar("Result")

LITTLE = 1_000_000
"""Turns of the innermost loops that plain Python does in less time than it takes to compile a kernel, about three seconds."""


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

    def __call__(self, *arguments: Given.args, **named: Given.kwargs) -> Result:
        if _PLAINLY.inside:
            return self.plain(*arguments, **named)
        if self.work is None or self.work(*arguments, **named) > LITTLE:
            return self.compiled(*arguments, **named)
        _PLAINLY.inside = True
        try:
            with np.errstate(all="ignore"):  # as machine code has it
                return self.plain(*arguments, **named)
        finally:
            _PLAINLY.inside = False


def kernel(function: Callable[Given, Result]) -> LazyKernel[Given, Result]:
    """A kernel that is compiled when it is first called.

    Parameters
    ----------
    function : that is compiled
    """
    return LazyKernel(function, None)


def kernel_of(work: Callable[Given, float]) -> Callable[[Callable[Given, Result]], LazyKernel[Given, Result]]:
    """A kernel that plain Python runs where there is little to do.

    Parameters
    ----------
    work : of the kernel's arguments, turns of its innermost loops
    """
    return lambda function: LazyKernel(function, work)


__all__ = ["LazyKernel", "kernel", "kernel_of"]

"""The few operations that formulas need beyond arithmetic, for a number, a NumPy array or a SymPy symbol.

Numba knows them through the overloads of ``costmodel.compilation.jit``. Nothing is imported here that the caller has
not already loaded: an array in hand means NumPy is there, a symbol in hand means SymPy is. A value of another
kind brings these operations, under SymPy's names, as its ``__algebra__`` (`costmodel.compilation.tape` traces so).
"""

from __future__ import annotations

import math
import sys
from typing import Any

_NUMBERS = (float, int, bool)


def _library(*values: object) -> Any:
    """The library that `values` belong to: ``math`` for plain numbers, their own, else ``sympy`` or ``numpy``."""
    for value in values:
        if not isinstance(value, _NUMBERS):
            symbol = getattr(sys.modules.get("sympy"), "Basic", ())  # absent while another thread imports SymPy
            for other in values:
                if hasattr(other, "__algebra__"):
                    return other.__algebra__
                if isinstance(other, symbol):
                    return sys.modules["sympy"]
            return sys.modules["numpy"]
    return math


def _is_numpy(library: Any) -> bool:
    return library is sys.modules.get("numpy")


def maximum(a: float, b: float) -> float:
    """Larger of two values.

    Examples
    --------
    >>> maximum(2.0, 3.0)
    3.0
    """
    if a.__class__ is float and b.__class__ is float:  # nearly always: nothing to look up
        return a if a > b else b
    library = _library(a, b)
    if library is math:
        return a if a > b else b
    return library.maximum(a, b) if _is_numpy(library) else library.Max(a, b)


def minimum(a: float, b: float) -> float:
    """Smaller of two values."""
    if a.__class__ is float and b.__class__ is float:
        return a if a < b else b
    library = _library(a, b)
    if library is math:
        return a if a < b else b
    return library.minimum(a, b) if _is_numpy(library) else library.Min(a, b)


def where(condition: bool, a: float, b: float) -> float:
    """`a` where `condition` holds, else `b`; both are evaluated, so both must be finite.

    Examples
    --------
    >>> where(2.0 > 1.0, 10.0, 20.0)
    10.0
    """
    if condition.__class__ is bool:
        return a if condition else b
    library = _library(condition, a, b)
    if library is math:
        return a if condition else b
    if _is_numpy(library):
        return library.where(condition, a, b)
    return library.Piecewise((a, condition), (b, True))


def certain(condition: bool) -> bool:
    """Whether a condition is known to hold of whatever is asked: of numbers, not of columns, of symbols or of a tape's inputs.

    A formula may then take a shorter way to the same.

    Examples
    --------
    >>> certain(2.0 > 1.0)
    True
    """
    return condition is True


def equal(a: float, b: float) -> bool:
    """Whether two codes are the same (SymPy's ``==`` compares structure, so formulas use this)."""
    if a.__class__ is float and b.__class__ is float:
        return a == b
    library = _library(a, b)
    return a == b if library is math or _is_numpy(library) else library.Eq(a, b)


def pick(code: float, values: tuple[float, ...]) -> float:
    """The value at the place that a code is.

    Examples
    --------
    >>> pick(1.0, (10.0, 20.0, 30.0))
    20.0
    """
    library = math if code.__class__ is float else _library(code)
    if library is math:
        return values[int(code)]
    if _is_numpy(library):
        return library.asarray(values)[library.asarray(code).astype(int)]
    found: float = values[-1]
    for place, value in enumerate(values[:-1]):
        found = where(equal(code, float(place)), value, found)
    return found


def ceil(a: float) -> float:
    """Least whole number that is not below `a`, as a float.

    Examples
    --------
    >>> ceil(2.25)
    3.0
    """
    library = math if a.__class__ is float else _library(a)
    if library is math:
        return float(math.ceil(a))
    return library.ceil(a) if hasattr(library, "ceil") else library.ceiling(a)


def sqrt(a: float) -> float:
    """Square root."""
    return math.sqrt(a) if a.__class__ is float else _library(a).sqrt(a)


def log2(a: float) -> float:
    """Logarithm to base two."""
    library = _library(a)
    return library.log2(a) if hasattr(library, "log2") else library.log(a, 2)


def floor_log2(a: float) -> float:
    """Largest whole number whose power of two is not above `a`, as a float.

    Examples
    --------
    >>> floor_log2(8.0), floor_log2(15.0)
    (3.0, 3.0)
    """
    library = math if a.__class__ is float else _library(a)
    if library is math:
        return math.frexp(a)[1] - 1.0
    if _is_numpy(library):
        found: float = library.frexp(a)[1] - 1.0
        return found
    if hasattr(library, "floor_log2"):
        return library.floor_log2(a)
    return -library.ceiling(-library.log(a, 2) - 1e-12)  # logarithms of whole powers may fall short by a rounding


def ceil_div(a: float, b: float) -> float:
    """`a / b` rounded up.

    Examples
    --------
    >>> ceil_div(10.0, 4.0)
    3.0
    """
    return ceil(a / b)

"""Numbers that carry their derivatives: one evaluation of a formula gives its slopes in every constant, exactly.

Forward-mode differentiation with sparse derivatives (Griewank & Walther, Evaluating Derivatives, 2nd edition, chapter 3).
A formula takes such numbers as it takes others, by the operations of `costmodel.formulas.ops`; comparisons look at values
alone, and what jumps (rounding, picking) has no slope.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


class Dual:
    """A number and its derivatives.

    Parameters
    ----------
    value : the number
    slopes : derivatives by the place of what it depends on; what isn't there is zero

    Examples
    --------
    >>> x, y = Dual(3.0, {0: 1.0}), Dual(2.0, {1: 1.0})
    >>> product = x * y + x / 2.0
    >>> product.value, product.slopes
    (7.5, {0: 2.5, 1: 3.0})
    """

    __slots__ = ("slopes", "value")
    __algebra__: Any = None

    def __init__(self, value: float, slopes: Mapping[int, float]) -> None:
        self.value, self.slopes = value, slopes

    def __repr__(self) -> str:
        return f"Dual({self.value!r}, {self.slopes!r})"

    def __add__(self, other: Dual | float) -> Dual:
        if not isinstance(other, Dual):
            return Dual(self.value + other, self.slopes)
        return Dual(self.value + other.value, _combined(self.slopes, 1.0, other.slopes, 1.0))

    __radd__ = __add__

    def __sub__(self, other: Dual | float) -> Dual:
        if not isinstance(other, Dual):
            return Dual(self.value - other, self.slopes)
        return Dual(self.value - other.value, _combined(self.slopes, 1.0, other.slopes, -1.0))

    def __rsub__(self, other: float) -> Dual:
        return Dual(other - self.value, _scaled(self.slopes, -1.0))

    def __mul__(self, other: Dual | float) -> Dual:
        if not isinstance(other, Dual):
            return Dual(self.value * other, _scaled(self.slopes, other))
        return Dual(self.value * other.value, _combined(self.slopes, other.value, other.slopes, self.value))

    __rmul__ = __mul__

    def __truediv__(self, other: Dual | float) -> Dual:
        if not isinstance(other, Dual):
            return Dual(self.value / other, _scaled(self.slopes, 1.0 / other))
        found, inverse = self.value / other.value, 1.0 / other.value
        return Dual(found, _combined(self.slopes, inverse, other.slopes, -found * inverse))

    def __rtruediv__(self, other: float) -> Dual:
        found = other / self.value
        return Dual(found, _scaled(self.slopes, -found / self.value))

    def __pow__(self, power: Dual | float) -> Dual:
        if isinstance(power, Dual):
            found = float(self.value**power.value)
            logarithm = math.log(self.value) if self.value > 0.0 else 0.0
            rate = power.value * found / self.value if self.value else 0.0
            return Dual(found, _combined(self.slopes, rate, power.slopes, found * logarithm))
        return Dual(float(self.value**power), _scaled(self.slopes, float(power * self.value ** (power - 1.0))))

    def __rpow__(self, base: float) -> Dual:
        found = float(base**self.value)
        return Dual(found, _scaled(self.slopes, found * math.log(base)))

    def __neg__(self) -> Dual:
        return Dual(-self.value, _scaled(self.slopes, -1.0))

    def __lt__(self, other: Dual | float) -> bool:
        return self.value < bare(other)

    def __le__(self, other: Dual | float) -> bool:
        return self.value <= bare(other)

    def __gt__(self, other: Dual | float) -> bool:
        return self.value > bare(other)

    def __ge__(self, other: Dual | float) -> bool:
        return self.value >= bare(other)


def bare(number: Dual | float) -> float:
    """The number alone.

    Parameters
    ----------
    number : with or without derivatives
    """
    return number.value if isinstance(number, Dual) else number


def _scaled(slopes: Mapping[int, float], factor: float) -> dict[int, float]:
    return {place: slope * factor for place, slope in slopes.items()}


def _combined(one: Mapping[int, float], factor: float, other: Mapping[int, float], others: float) -> dict[int, float]:
    """Slopes of a sum of two numbers, each times a factor."""
    found = {place: slope * factor for place, slope in one.items()}
    for place, slope in other.items():
        found[place] = found.get(place, 0.0) + slope * others
    return found


class _DualAlgebra:
    """The operations of `costmodel.arithmetic.ops` on dual numbers, under the names by which it asks for them."""

    @staticmethod
    def Max(a: Dual | float, b: Dual | float) -> Dual | float:
        return a if bare(a) > bare(b) else b

    @staticmethod
    def Min(a: Dual | float, b: Dual | float) -> Dual | float:
        return a if bare(a) < bare(b) else b

    @staticmethod
    def Eq(a: Dual | float, b: Dual | float) -> bool:
        return bare(a) == bare(b)

    @staticmethod
    def ceil(a: Dual) -> float:
        return float(math.ceil(a.value))

    @staticmethod
    def floor_log2(a: Dual) -> float:
        return math.frexp(a.value)[1] - 1.0

    @staticmethod
    def sqrt(a: Dual) -> Dual:
        root = math.sqrt(a.value)
        return Dual(root, _scaled(a.slopes, 0.5 / root if root else 0.0))

    @staticmethod
    def log2(a: Dual) -> Dual:
        return Dual(math.log2(a.value), _scaled(a.slopes, 1.0 / (a.value * math.log(2.0))))


Dual.__algebra__ = _DualAlgebra

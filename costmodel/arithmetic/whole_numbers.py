"""Whole numbers."""

from __future__ import annotations


def divisors(number: int, most: int) -> list[int]:
    """Divisors of `number` up to `most`.

    Examples
    --------
    >>> divisors(12, 6)
    [1, 2, 3, 4, 6]
    """
    return [d for d in range(1, min(number, most) + 1) if number % d == 0]

"""Units as factors to SI, and the formatting of bytes, seconds and rates for people."""

from __future__ import annotations

KB, MB, GB, TB = 1e3, 1e6, 1e9, 1e12
KiB, MiB, GiB, TiB = 2**10, 2**20, 2**30, 2**40
Gbit = 1e9 / 8
microsecond, millisecond = 1e-6, 1e-3
TFLOP = 1e12


def format_bytes(nbytes: float) -> str:
    """`nbytes` [bytes] in binary units.

    Examples
    --------
    >>> format_bytes(80 * GiB)
    '80.0 GiB'
    """
    for unit, factor in (("TiB", TiB), ("GiB", GiB), ("MiB", MiB), ("KiB", KiB)):
        if abs(nbytes) >= factor:
            return f"{nbytes / factor:.1f} {unit}"
    return f"{nbytes:.0f} B"


def format_seconds(seconds: float) -> str:
    """`seconds` [s] with three figures in the unit that fits.

    Examples
    --------
    >>> format_seconds(0.0123)
    '12.3 ms'
    """
    for unit, factor in (("d", 86400.0), ("h", 3600.0)):
        if abs(seconds) >= 2 * factor:
            return f"{seconds / factor:.3g} {unit}"
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= factor:
            return f"{seconds / factor:.4g} {unit}" if unit == "s" else f"{seconds / factor:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def format_count(count: float) -> str:
    """`count` with a decimal suffix.

    Examples
    --------
    >>> format_count(70.55e9)
    '70.55 B'
    """
    for unit, factor in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(count) >= factor:
            return f"{count / factor:.4g} {unit}"
    return f"{count:.4g}"

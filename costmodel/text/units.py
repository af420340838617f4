"""Units as factors to SI: how quantities are read from people, and shown to them."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from costmodel.text.errors import InvalidValue

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
    for unit, factor, figures in (("s", 1.0, 4), ("ms", 1e-3, 3), ("us", 1e-6, 3)):
        if abs(seconds) >= 0.9995 * factor:  # 999.7 ms to three figures would be 1e+03
            return f"{seconds / factor:.{figures}g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


COUNTS = {"T": 1e12, "B": 1e9, "M": 1e6, "k": 1e3}


def read_count(field: str, text: str) -> float:
    """A number of things, such as 300e9, 300B or 15T.

    Parameters
    ----------
    field : what is counted
    text : a number, or one with a suffix of `COUNTS`

    Raises
    ------
    InvalidValue
        for anything else

    Examples
    --------
    >>> read_count("tokens", "15T")
    15000000000000.0
    """
    scale = COUNTS.get(text[-1:], 1.0)
    try:
        number = float(text if scale == 1.0 else text[:-1])
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InvalidValue(field, text[:40], "a number, such as 300e9, 300B or 15T")
    return scale * number


def format_count(count: float) -> str:
    """`count` with a decimal suffix.

    Examples
    --------
    >>> format_count(70.55e9)
    '70.55 B'
    """
    for unit, factor in COUNTS.items():
        if abs(count) >= factor:
            return f"{count / factor:.4g} {unit}"
    return f"{count:.4g}"


class Quantity(NamedTuple):
    """What a number measures: its units, and between which bounds it can lie."""

    units: dict[str, float]
    least: float
    most: float
    usual: str
    """The unit in which people say it."""


_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_BYTES = {f"{prefix}{unit}": factor for prefix, factor in (_DECIMAL | _BINARY).items() for unit in ("B", "byte", "bytes")}
_BITS = {
    f"{prefix}{unit}": factor / 8
    for prefix, factor in (_DECIMAL | _BINARY).items()
    for unit in ("bit/s", "bits/s", "bit", "bits", "b", "bE", "bps", "b/s", "bit/sec")
}
_RATES = {f"{unit}{per}": factor for unit, factor in _BYTES.items() for per in ("/s", "ps", "/sec")} | _BITS
_SECONDS = {"s": 1.0, "sec": 1.0, "ms": 1e-3, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}
_FLOP = {
    f"{prefix}{unit}": factor
    for prefix, factor in _DECIMAL.items()
    for unit in ("FLOP/s", "FLOPS", "FLOPs", "flop/s", "flops", "OPS", "OP/s")
}

QUANTITIES = {
    "bandwidth": Quantity(_RATES, 1e6, 1e15, "GB/s"),
    "memory_bandwidth": Quantity(_RATES, 1e9, 1e15, "GB/s"),
    "latency": Quantity(_SECONDS, 0.0, 1.0, "us"),
    "memory": Quantity(_BYTES, 0.25e9, 1e15, "GB"),
    "flop_rate": Quantity(_FLOP, 1e9, 1e18, "TFLOP/s"),
    "size": Quantity(_BYTES, 0.0, 1e18, "MB"),
    "time": Quantity(_SECONDS, 0.0, 1e9, "s"),
    "power": Quantity({"W": 1.0, "watt": 1.0, "watts": 1.0, "kW": 1e3, "MW": 1e6}, 1e-3, 1e6, "W"),
}
"""Kinds of quantities: bandwidths of networks and of memory [bytes/s], latencies [s], memory [bytes], rates [FLOP/s], power
[W]."""

_WRITTEN = re.compile(r"([-+]?(?:[0-9][0-9_]*\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*([^\W\d_][^\s]*)?")


def quantity(field: str, value: object, kind: str) -> float:
    """A number in SI units, from a number in SI units or a text with a unit.

    Parameters
    ----------
    field : what it is of, for the message
    value : a number in SI units, or a text such as ``"25 GB/s"``, ``"400 Gbit/s"``, ``"2 us"`` or ``"80 GiB"``
    kind : one of `QUANTITIES`

    Raises
    ------
    InvalidValue
        where the unit measures something else, or the number can't be: with what was likely meant

    Examples
    --------
    >>> quantity("bandwidth", "400 Gbit/s", "bandwidth"), quantity("latency", 2e-6, "latency")
    (50000000000.0, 2e-06)
    """
    known = QUANTITIES[kind]
    number, unit = _split(field, value, known)
    factor = known.units[unit] if unit else 1.0
    # A millionth isn't a binary fraction: dividing by the whole number keeps 5 us equal to 5e-6.
    result = number * factor if factor >= 1.0 or kind.endswith("bandwidth") else number / round(1.0 / factor)
    if not math.isfinite(result) or not known.least <= result <= known.most:
        raise InvalidValue(field, value, span(known) + _meant(number, unit, known))
    return result


def _split(field: str, value: object, known: Quantity) -> tuple[float, str]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if abs(value) < 1e300 else math.inf, ""
    match = _WRITTEN.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise InvalidValue(field, value, f"a number in SI units, or one with a unit such as {known.usual}")
    unit = (match[2] or "").replace(" ", "")
    if "bit" in unit.lower():  # which is said in small letters, too, and of bytes that would be another unit
        unit = next((other for other in known.units if other.lower() == unit.lower()), unit)
    if unit and unit not in known.units:
        also = next((other for other in known.units if other.lower() in (unit.lower(), f"{unit.lower()}/s")), None)
        hint = f"; did you mean {also}?" if also else ""
        raise InvalidValue(field, value, f"a unit such as {known.usual}{hint}")
    return float(match[1].replace("_", "")), unit


def _shown(value: float, known: Quantity) -> str:
    return f"{value / known.units[known.usual]:g} {known.usual}"


def span(known: Quantity) -> str:
    """Between which bounds a quantity can lie, in words."""
    return f"{_shown(known.least, known)} to {_shown(known.most, known)}"


def _meant(number: float, unit: str, known: Quantity) -> str:
    """The nearest unit in which the number can be, if any."""
    why = "" if unit else "bare numbers are SI units: "
    for other in (known.usual, "ms", "MB", "GB", "TB"):
        if other != unit and other in known.units and known.least < number * known.units[other] <= known.most:
            return f"; {why}did you mean {number:g} {other}?"
    return ""


def format_days(days: float) -> str:
    """A number of days, whole or not.

    Examples
    --------
    >>> format_days(1.0), format_days(0.5), format_days(30.0)
    ('1 day', '0.5 days', '30 days')
    """
    return f"{days:g} day{'' if days == 1 else 's'}"


def counted(count: float, thing: str, things: str = "") -> str:
    """A number of things: one GPU is no GPUs.

    Parameters
    ----------
    count : how many
    thing : one of them
    things : several of them; with an s where it isn't given

    Examples
    --------
    >>> counted(1, "GPU"), counted(1024, "GPU"), counted(2, "micro-batch", "micro-batches")
    ('1 GPU', '1,024 GPUs', '2 micro-batches')
    """
    return f"{count:,} {thing if count == 1 else things or thing + 's'}"


BINARY_STEPS = {"k": 1, "m": 2}
"""Powers of 1,024 by the letter behind a number of what comes in powers of two, as batches, lengths and clusters do."""


def whole_number(text: str, letters: str = "k") -> int | None:
    """A whole number as people write it, in figures or in thousands of 1,024; None of any other text.

    Parameters
    ----------
    text : such as ``64`` or ``16k``
    letters : of `BINARY_STEPS` that may stand behind the number: millions only where nothing else comes in them

    Examples
    --------
    >>> whole_number("16k"), whole_number("1 K"), whole_number("16"), whole_number("1M"), whole_number("1M", "km")
    (16384, 1024, 16, None, 1048576)
    """
    match = re.fullmatch(f"([0-9]{{1,6}}) ?([{letters}])i?", text.strip().lower())
    if match is not None:
        return int(match[1]) * 1024 ** BINARY_STEPS[match[2]]
    try:
        return int(text)
    except ValueError:
        return None


ANSWERS = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}
"""What people answer, in small letters."""


def plain_number(text: str) -> float | str:
    """The number that a text writes out, in per cent or not; any other text as it is.

    Examples
    --------
    >>> plain_number("0.5"), plain_number("38%"), plain_number("a half")
    (0.5, 0.38, 'a half')
    """
    percent = text.strip().endswith("%")
    try:
        return float(text.strip().removesuffix("%")) / (100.0 if percent else 1.0)
    except ValueError:
        return text


def whole_meant(text: str) -> str:
    """Which whole number a text may stand for that is none, as the end of a refusal.

    Parameters
    ----------
    text : as it was given

    Examples
    --------
    >>> whole_meant("1M"), whole_meant("1,024"), whole_meant("64.0"), whole_meant("abc")
    ('; did you mean 1048576 or 1000000?', '; did you mean 1024?', '; did you mean 64?', '')
    """
    if re.fullmatch("[1-9][0-9]{0,2}(,[0-9]{3}){1,4}", text.strip()):
        return f"; did you mean {text.strip().replace(',', '')}?"
    match = re.fullmatch(r"([0-9]{1,9}(?:[.][0-9]{1,9})?)(?:([km])i?)?", text.strip().lower())
    if match is None:
        return ""
    values = dict.fromkeys(float(match[1]) * base ** BINARY_STEPS.get(match[2], 0) for base in (1024, 1000))
    wholes = [f"{value:.0f}" for value in values if value == int(value)]
    return f"; did you mean {' or '.join(wholes)}?" if wholes else ""


def between(low: float, high: float | None = None) -> str:
    """A time or the range between two, with three figures.

    Parameters
    ----------
    low, high : [s]; one time where `high` is None

    Examples
    --------
    >>> between(98.98, 143.6), between(0.0123)
    ('99 to 144 s', '12.3 ms')
    """
    most = low if high is None else high
    factor, unit = next(((factor, unit) for factor, unit in ((1.0, "s"), (1e-3, "ms")) if most >= factor), (1e-6, "us"))
    text = f"{low / factor:,.0f}" if low / factor >= 100 else f"{low / factor:.3g}"
    if high is not None:
        text += f" to {high / factor:,.0f}" if high / factor >= 100 else f" to {high / factor:.3g}"
    return f"{text} {unit}"

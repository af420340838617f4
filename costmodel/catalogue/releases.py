"""Releases of frameworks by the month: what one did otherwise before, and how somebody asks for it as it was."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import NamedTuple

from costmodel.arithmetic.named_tuples import Row
from costmodel.text.errors import InvalidValue

SIGN = "@"
"""Between a framework's name and the month of its release."""
YEAR = "%Y"
FORMATS = (YEAR, "%Y.%m", "%Y-%m", "%Y-%m-%d", "%y.%m", "%b %Y", "%B %Y")
"""How people write a month; NeMo's releases are named by it, as 25.09."""
UNDATED = "2024-06"
"""Of published runs that date nothing: half of those whose month is known were made before it."""
UNDATED_ON = dict.fromkeys(("blackwell", "blackwell-ultra", "blackwell-rtx", "cdna4"), "2025-11")
"""The same of runs on newer architectures: half of MLPerf's rounds 4.1 to 5.1, and of NVIDIA's recipes, are of then or before."""
FIRST = "2017-01"
"""Before it there was none of this software."""
TRANSFORMERS = {
    (4, 28): "2023-04", (4, 29): "2023-05", (4, 30): "2023-06", (4, 31): "2023-07", (4, 32): "2023-08", (4, 33): "2023-09",
    (4, 34): "2023-10", (4, 35): "2023-11", (4, 36): "2023-12", (4, 37): "2024-01", (4, 38): "2024-02", (4, 39): "2024-03",
    (4, 40): "2024-04", (4, 41): "2024-05", (4, 42): "2024-06", (4, 43): "2024-07", (4, 44): "2024-08", (4, 45): "2024-09",
    (4, 46): "2024-10", (4, 47): "2024-12", (4, 48): "2025-01", (4, 49): "2025-02", (4, 50): "2025-03", (4, 51): "2025-04",
    (4, 52): "2025-05", (4, 53): "2025-06", (4, 54): "2025-07", (4, 55): "2025-08", (4, 57): "2025-10", (5, 0): "2026-01",
    (5, 1): "2026-02", (5, 3): "2026-03", (5, 5): "2026-04", (5, 8): "2026-05", (5, 10): "2026-06", (5, 13): "2026-07",
    (5, 15): "2026-08", (5, 17): "2026-09", (5, 19): "2026-10", (5, 23): "2026-11",
}  # fmt: skip
"""Those of transformers."""
NUMBERED: Mapping[str, Mapping[tuple[int, int], str]] = {
    **dict.fromkeys(("transformers", "hf-trainer", "hf-fsdp", "hf-fsdp2"), TRANSFORMERS),
    "trl": {
        (0, 7): "2023-08", (0, 8): "2024-03", (0, 9): "2024-06", (0, 10): "2024-08", (0, 11): "2024-09", (0, 12): "2024-11",
        (0, 13): "2024-12", (0, 14): "2025-01", (0, 15): "2025-02", (0, 16): "2025-03", (0, 17): "2025-04", (0, 18): "2025-05",
        (0, 19): "2025-06", (0, 20): "2025-07", (0, 21): "2025-08", (0, 23): "2025-09", (0, 24): "2025-10", (0, 25): "2025-11",
        (0, 26): "2025-12", (0, 27): "2026-01", (0, 28): "2026-02", (1, 0): "2026-03", (1, 1): "2026-04", (1, 4): "2026-05",
        (1, 6): "2026-06", (1, 7): "2026-07", (1, 10): "2026-08", (1, 13): "2026-09", (1, 15): "2026-10",
    },
    "torchtune": {
        (0, 1): "2024-04", (0, 2): "2024-07", (0, 3): "2024-09", (0, 4): "2024-11", (0, 5): "2024-12", (0, 6): "2025-03",
    },
    "deepspeed": {
        (0, 3): "2020-11", (0, 4): "2021-06", (0, 5): "2021-08", (0, 6): "2022-03", (0, 7): "2022-08", (0, 8): "2023-01",
        (0, 9): "2023-04", (0, 10): "2023-07", (0, 11): "2023-10", (0, 12): "2023-11", (0, 13): "2024-01", (0, 14): "2024-03",
        (0, 15): "2024-08", (0, 16): "2024-11", (0, 17): "2025-06", (0, 18): "2025-10", (0, 19): "2026-05",
    },
}  # fmt: skip
"""Months from which on releases have numbers, the first of each month: uploads to PyPI until November 2026; TRL's 1.7 of 25 June
counts for July."""
BEFORE = "before"
"""Table of an entry: by a month, the fields that were others before it."""


class NamedRelease(NamedTuple):
    """A framework as somebody asks for it."""

    name: str  # of the framework
    month: str  # of its release, ``2025-08``; empty for the newest


def asked(name: str) -> NamedRelease:
    """A framework's name, and the month of its release where that stands behind it.

    Parameters
    ----------
    name : ``NAME``, ``NAME@2025.8`` or ``NAME@2025``, which is that year's last

    Raises
    ------
    InvalidValue
        where what stands behind the name is no month

    Examples
    --------
    >>> asked("fsdp2@2025.8"), asked("nemo@25.09").month, asked("hf-trainer@2024").month, asked("deepspeed@0.16.4").month
    (NamedRelease(name='fsdp2', month='2025-08'), '2025-09', '2024-12', '2024-11')
    """
    base, sign, said = name.partition(SIGN)
    if not sign:
        return NamedRelease(name, "")
    month = month_of(said) or numbered(base, said)
    if month is None:
        raise InvalidValue("framework", name, f"{base}@ and the month of a release from 2017 on, such as {base}@2025.8")
    return NamedRelease(base, month)


def base_name(name: str) -> str:
    """A framework's name without its release.

    Parameters
    ----------
    name : of the framework, whatever stands behind the sign

    Examples
    --------
    >>> base_name("hf-trainer@2025-08"), base_name("hf-trainer")
    ('hf-trainer', 'hf-trainer')
    """
    return name.partition(SIGN)[0]


def month_of(said: str) -> str | None:
    """A month as people write it, ``2025-08``; None where it says none.

    Parameters
    ----------
    said : a year, which stands for its last month, or a year and a month or a day

    Examples
    --------
    >>> month_of("2024"), month_of("Aug 2024"), month_of("2025-1"), month_of("v0.0.4")
    ('2024-12', '2024-08', '2025-01', None)
    >>> month_of("2.5"), month_of("25.09")
    (None, '2025-09')
    """
    said = said.strip()
    for form in FORMATS:
        try:
            read = datetime.datetime.strptime(said, form).strftime("%Y-12" if form == YEAR else "%Y-%m")
        except ValueError:
            continue  # the next may read it
        return read if read >= FIRST else None  # such as 2.5
    return None


def numbered(name: str, said: str) -> str | None:
    """The month of a release that has a number, ``2024-11``; None where it has none, or the framework's aren't known.

    Parameters
    ----------
    name : of the framework
    said : such as ``0.16.4``

    Examples
    --------
    >>> numbered("deepspeed", "0.11.1"), numbered("deepspeed", "main"), numbered("fsdp2", "0.2")
    ('2023-10', None, None)
    """
    read = re.fullmatch(r"v?(\d+)\.(\d+)(?:\.\d+)?", said.strip())
    if read is None:
        return None
    number = int(read[1]), int(read[2])
    return max((month for first, month in NUMBERED.get(name, {}).items() if first <= number), default=None)


def undated(architecture: str) -> str:
    """The month of a published run that dates nothing, on a device of an architecture.

    Examples
    --------
    >>> undated("ampere"), undated("blackwell")
    ('2024-06', '2025-11')
    """
    return UNDATED_ON.get(architecture, UNDATED)


def handed_on(base: Mapping[str, Row], entry: Mapping[str, Row]) -> Row:
    """An entry together with what it takes from its base: fields that it doesn't state, and how these were in earlier months.

    A field that the entry states was so in all months, but in those of which the entry itself says otherwise.

    Examples
    --------
    >>> base = {"attention": "sdpa", "before": {"2024-05": {"attention": "unfused", "keep_rotated": True}}}
    >>> handed_on(base, {"attention": "flash"})
    {'attention': 'flash', 'before': {'2024-05': {'keep_rotated': True}}}
    """
    months = {
        month: others for month, changed in base.get(BEFORE, {}).items()
        if (others := {key: value for key, value in changed.items() if key not in entry})
    }  # fmt: skip
    own = {month: months.get(month, {}) | changed for month, changed in entry.get(BEFORE, {}).items()}
    return {**base, **entry, BEFORE: months | own}


def as_of(entry: Mapping[str, Row], month: str) -> Row:
    """A framework's entry as it was in a month, and in ``release`` the month from which on it was so.

    Parameters
    ----------
    entry : of the catalogue
    month : ``2025-08``; empty for the newest

    Examples
    --------
    >>> entry = {"grouped_experts": True, "before": {"2026-01": {"grouped_experts": False}}}
    >>> as_of(entry, ""), as_of(entry, "2025-08")
    ({'grouped_experts': True, 'release': '2026-01'}, {'grouped_experts': False})
    """
    changes = entry.get(BEFORE, {})
    found = {key: value for key, value in entry.items() if key != BEFORE}
    for until in sorted(changes, reverse=True):
        if month and month < until:
            found |= changes[until]
        else:
            return found | {"release": until}
    return found


def dated(name: str, month: str) -> str:
    """A framework's name with the month of its release behind it, where there is one.

    Examples
    --------
    >>> dated("hf-trainer", "2025-08"), dated("hf-trainer", "")
    ('hf-trainer@2025-08', 'hf-trainer')
    """
    return f"{name}{SIGN}{month}" if month else name


def earlier(release: str) -> str:
    """The month before one.

    Parameters
    ----------
    release : ``2026-01``

    Examples
    --------
    >>> earlier("2026-01")
    '2025-12'
    """
    return (datetime.date.fromisoformat(f"{release}-01") - datetime.timedelta(days=1)).strftime("%Y-%m")

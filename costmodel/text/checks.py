"""Checks of one field at the door: each ends in the value, or in one line that names field, value and wish."""

from __future__ import annotations

import numbers
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from costmodel.text.errors import InvalidValue
from costmodel.text.suggestions import did_you_mean
from costmodel.text.units import whole_meant

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

LARGEST = sys.float_info.max
PLAIN = {float, int, bool, str, tuple, type(None)}
"""Types of values that are Python's own."""

Given = TypeVar("Given")


def plain(value: Given) -> Given:
    """`value`, but Python's own number for a scalar of NumPy's, which elsewhere wraps around and is no JSON."""
    if type(value) in PLAIN:
        return value
    return value.item() if isinstance(value, numbers.Number) and hasattr(value, "item") else value


def plain_fields(record: DataclassInstance) -> None:
    """Make every number in a frozen dataclass `plain`."""
    for name, value in list(vars(record).items()):
        if type(value) not in PLAIN:
            object.__setattr__(record, name, plain(value))


def filled(value: Given | None) -> Given:
    """The value of a field that is never left open once its class has checked it."""
    assert value is not None
    return value


def _own(value: object, name: str) -> str:
    return "" if isinstance(value, float) or plain(value) is value else f" of Python's own: {name}(...)"


def integer(field: str, value: object, least: int, most: int) -> int:
    """`value` if it is a whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        meant = whole_meant(value) if isinstance(value, str) else _own(value, "int")
        raise InvalidValue(field, value, f"a whole number from {least} to {most}{meant}")
    return value


def positive_int(field: str, value: object, most: int) -> int:
    """`value` if it is a whole number from 1 to `most`."""
    return integer(field, value, 1, most)


def whole(field: str, value: object, most: int) -> int:
    """`value` if it is a whole number from 0 to `most`."""
    return integer(field, value, 0, most)


def real(field: str, value: object, least: float, most: float) -> float:
    """`value` as a float if it is a finite number from `least` to `most`."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= LARGEST or not least <= value <= most:
        raise InvalidValue(field, value, f"a number from {least:g} to {most:g}{_own(value, 'float')}")
    return float(value)


def flag(field: str, value: object) -> bool:
    """`value` if it is True or False."""
    if not isinstance(value, bool):
        raise InvalidValue(field, value, "true or false")
    return value


def choice(field: str, value: Given, allowed: Sequence[Given]) -> Given:
    """`value` if it is one of `allowed`."""
    if value not in allowed:
        near = did_you_mean(field, value, map(str, allowed)) if isinstance(value, str) and value else ""
        raise InvalidValue(field, value, "one of " + ", ".join(map(str, allowed)) + near)
    return value


def text(field: str, value: object) -> str:
    """`value` if it is a text in one line that is not empty: a name, which is shown and written wherever its thing is."""
    if not isinstance(value, str) or not value or len(value) > 500 or not value.isprintable():
        raise InvalidValue(field, value, "a text of 1 to 500 characters, printable and in one line")
    return value


def kind(field: str, value: object, wanted: type | tuple[type, ...], maker: str) -> None:
    """Refuse a `value` that is no `wanted`, or none of several, naming the call that makes one."""
    if not isinstance(value, wanted):
        names = [one.__name__ for one in (wanted if isinstance(wanted, tuple) else (wanted,))]
        article = "an" if names[0][0] in "AEIOU" else "a"
        raise InvalidValue(field, value, f"{article} {' or '.join(names)}, which {maker} gives")


def mapping(field: str, value: object) -> dict[object, object]:
    """`value` as a dictionary if it is a mapping."""
    if not isinstance(value, Mapping):
        raise InvalidValue(field, value, "a table of names and values")
    return dict(value)


def listing(field: str, value: object) -> tuple[Any, ...]:
    """`value` as a tuple if it is a list."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidValue(field, value, "a list")
    return tuple(value)

"""Sentences with values in braces, which Python fills in here and a page's script in a browser."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping


class Plain(str):
    """A text that stands as it is, without quotation marks."""

    __slots__ = ()
    __repr__ = str.__str__


def _number(value: object) -> float:
    return 1.0 if value is None else float(str(value))  # a degree that was left open


def filled(template: str, values: Mapping[str, object]) -> str:
    """A template with what is known filled in, as Python writes it; the rest stays in its braces.

    Parameters
    ----------
    template : with names, products or quotients of them in braces
    values : by these names

    Examples
    --------
    >>> filled("{a} x {b} = {a*b}, of {c}", {"a": 2, "b": 3})
    '2 x 3 = 6, of {c}'
    """

    def shown(match: re.Match[str]) -> str:
        parts = re.split(r"([*/])", match[1])
        if not all(name in values for name in parts[::2]):
            return match[0]
        if len(parts) == 1:
            return repr(values[parts[0]]).removesuffix(".0")  # as a browser writes a whole number
        found = _number(values[parts[0]])
        for how, name in zip(parts[1::2], parts[2::2], strict=True):
            number = _number(values[name])
            found = found * number if how == "*" else found / number
        return str(math.floor(found))

    return re.sub(r"\{([^{}]+)\}", shown, template)

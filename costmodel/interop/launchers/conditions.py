"""Conditions of a shell script whose variables are known: which of its branches runs."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping

from costmodel.interop.launchers.shell import calculate, hide, show
from costmodel.interop.launchers.splitting import words

NUMBERS: Mapping[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq, "-ne": operator.ne, "-gt": operator.gt, "-ge": operator.ge, "-lt": operator.lt, "-le": operator.le,
}  # fmt: skip
LONGEST = 1000
"""Characters of a condition."""
TEST = re.compile(r"\[\s+(.+)\s+\]|\[\[\s+(.+)\s+\]\]")
CALCULATED = re.compile(r"\(\((.+)\)\)")
WHOLE = re.compile(r"-?[0-9]{1,18}")


def truth(condition: str, expand: Callable[[str], str], known: Mapping[str, str]) -> bool | None:
    """Whether a condition holds; None where that isn't known.

    Parameters
    ----------
    condition : what stands behind ``if``
    expand : puts what is known into a text
    known : variables

    Examples
    --------
    >>> [truth(text, lambda text: text, {}) for text in ("[ 4 -gt 1 ]", '[[ "4" = 1 ]] && [ -f x ]', "[ -f x ]")]
    [True, False, None]
    """
    if len(condition) > LONGEST:
        return None
    for sign, decides in (("||", True), ("&&", False)):
        if sign in condition:
            found = [truth(part, expand, known) for part in condition.split(sign)]
            return decides if decides in found else None if None in found else not decides
    text = condition.strip()
    if calculated := CALCULATED.fullmatch(text):
        value = calculate(expand(calculated[1]), known)
        return None if value is None else bool(value)
    test = TEST.fullmatch(text)
    said = words(hide(test[1] or test[2]), comments=False) if test else None
    values = [expand(show(word)) for word in said or ()]
    if any("$" in value or "`" in value for value in values):
        return None
    if len(values) == 2 and values[0] in ("-z", "-n"):
        return (values[0] == "-z") == (values[1] == "")
    return _compared(*values) if len(values) == 3 else None


def _compared(one: str, sign: str, other: str) -> bool | None:
    if sign in ("=", "==", "!=") and not set("*?[") & set(other):
        return (one == other) == (sign != "!=")
    if sign in NUMBERS and WHOLE.fullmatch(one) and WHOLE.fullmatch(other):
        return NUMBERS[sign](int(one), int(other))
    return None


class Branches:
    """In which branches a line of a script stands."""

    def __init__(self) -> None:
        self._runs: list[bool | None] = [True]
        self._done: list[bool | None] = []

    @property
    def runs(self) -> bool | None:
        """Whether a line runs; None where it may."""
        return self._runs[-1]

    def open(self, condition: bool | None) -> None:
        """A block that runs where a condition holds, or as often as it may be."""
        self._runs.append(_both(self.runs, condition))
        self._done.append(condition)

    def turn(self, condition: bool | None) -> None:
        """What runs of it otherwise: where another condition holds and none before it did."""
        if self._done:
            before = self._done[-1]
            own = False if before or condition is False else None if None in (before, condition) else True
            self._runs[-1] = _both(self._runs[-2], own)
            self._done[-1] = True if before or own else None if None in (before, own) else False

    def close(self) -> None:
        """The end of the innermost block."""
        if self._done:
            self._runs.pop()
            self._done.pop()


def _both(one: bool | None, other: bool | None) -> bool | None:
    return False if False in (one, other) else None if None in (one, other) else True

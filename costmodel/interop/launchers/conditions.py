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
    for sign, together in (("||", either), ("&&", both)):
        if sign in condition:
            return together(*(truth(part, expand, known) for part in condition.split(sign)))
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
    if len(values) != 3:
        return None
    one, sign, other = values
    if sign in ("=", "==", "!=") and not set("*?[") & set(other):
        return (one == other) == (sign != "!=")
    return NUMBERS[sign](int(one), int(other)) if sign in NUMBERS and WHOLE.fullmatch(one) and WHOLE.fullmatch(other) else None


def both(*parts: bool | None) -> bool | None:
    """Whether all hold, as far as that is known."""
    return False if False in parts else None if None in parts else True


def either(*parts: bool | None) -> bool | None:
    """Whether one holds, as far as that is known."""
    return True if True in parts else None if None in parts else False


class ScriptBlocks:
    """In which blocks a line of a script stands: whether it runs, and whether one of the innermost's conditions held."""

    def __init__(self) -> None:
        self._blocks: list[tuple[bool | None, bool | None]] = [(True, False)]

    @property
    def runs(self) -> bool | None:
        """Whether a line runs; None where it may."""
        return self._blocks[-1][0]

    def open(self, condition: bool | None) -> None:
        """A block that runs where a condition holds, or as often as it may be."""
        self._blocks.append((both(self.runs, condition), condition))

    def turn(self, condition: bool | None) -> None:
        """What runs of it otherwise: where another condition holds and none before it did."""
        if len(self._blocks) > 1:
            held = self._blocks.pop()[1]
            own = both(None if held is None else not held, condition)
            self._blocks.append((both(self.runs, own), either(held, own)))

    def close(self) -> None:
        """The end of the innermost block."""
        if len(self._blocks) > 1:
            self._blocks.pop()

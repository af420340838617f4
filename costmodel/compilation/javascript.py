"""A formula as a JavaScript function, printed from its tape: the same operations in the same order, and so the same digits."""

from __future__ import annotations

import math
import re
import typing
from collections import Counter
from collections.abc import Callable

from costmodel.compilation.tape import Condition, Place, Tape, Value, leaves, needed, opened
from costmodel.text.errors import InvalidValue

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "===", "and": "&&",
    "or": "||",
}  # fmt: skip
_CALLS = {
    "max": "Math.max", "min": "Math.min", "ceil": "Math.ceil", "sqrt": "Math.sqrt", "log2": "Math.log2", "pow": "Math.pow",
    "floor_log2": "floorLog2",
}  # fmt: skip
_FLOOR_LOG2 = "  const floorLog2 = (x) => { const k = Math.round(Math.log2(x)); return 2 ** k > x ? k - 1 : k; };"
"""JavaScript has no exponent of a number, and its logarithm just below a power of two may be that of the power."""


def javascript(formula: Callable[..., object], *arguments: object) -> str:
    """A formula as a JavaScript function of the same name, arguments and result.

    NamedTuples are objects with the same fields, other tuples are arrays. An argument of which nothing was left open stays in
    the list, so that calls look alike, but is not read.

    Parameters
    ----------
    formula : a function of `costmodel.formulas`
    arguments : one a parameter: a number, a NamedTuple of `costmodel.formulas.quantities` with None where the function is to
        read a number, or None where it is to read all of it; those left out are None

    Raises
    ------
    InvalidValue
        for more arguments than the formula takes, or of the wrong kind

    Examples
    --------
    >>> from costmodel.formulas.network.collectives import members_inside
    >>> print(javascript(members_inside, None, 1.0))
    function members_inside(ranks, stride, size) {
      return Math.min(ranks, Math.max(1, (size / 1)));
    }
    """
    tape = Tape()

    def symbol(path: str, given: object) -> object:
        if given is None:
            return Value(tape, tape.put("input", given=path))
        if not isinstance(given, typing.SupportsFloat) or hasattr(given, "free_symbols"):
            raise InvalidValue(path, given, "a number, or None for one that the function reads")
        return float(given)

    values = opened(formula, arguments, symbol)
    result = formula(**values)
    lines, texts = _printed(tape, [leaf.place for leaf in leaves(result) if isinstance(leaf, Value | Condition)])
    head = [_FLOOR_LOG2] if any("floorLog2(" in line for line in (*lines, *texts.values())) else []
    body = [*head, *lines, f"  return {_literal(result, texts)};"]
    return "\n".join([f"function {formula.__name__}({', '.join(values)}) {{", *body, "}"])


def _printed(tape: Tape, results: list[Place]) -> tuple[list[str], dict[Place, str]]:
    """A line for whatever is used more than once, and how each place is written where it is used."""
    done = needed(tape, results)
    uses = Counter([*results, *(one for place in done for one in tape.operations[place].arguments)])
    lines: list[str] = []
    texts: dict[Place, str] = {}
    for place in done:
        name, operands, given = tape.operations[place]
        texts[place] = text = _text(name, [texts[one] for one in operands], given)
        if uses[place] > 1 and name != "constant" and not text.isidentifier():
            texts[place] = f"x{len(lines)}"
            lines.append(f"  const {texts[place]} = {text};")
    return lines, texts


def _text(name: str, operands: list[str], given: object) -> str:
    if name == "input":
        return re.sub(r"\.(\d+)", r"[\1]", str(given))
    if name == "constant":
        return _number(float(typing.cast(float, given)))
    if name == "select":
        return "({} ? {} : {})".format(*operands)
    if name == "neg":
        return f"(-{operands[0]})"
    return f"({f' {_INFIX[name]} '.join(operands)})" if name in _INFIX else f"{_CALLS[name]}({', '.join(operands)})"


def _number(value: float) -> str:
    if math.isinf(value):
        return "Infinity" if value > 0.0 else "(-Infinity)"
    text = repr(value).removesuffix(".0")
    return f"({text})" if text.startswith("-") else text


def _literal(value: object, texts: dict[Place, str]) -> str:
    if isinstance(value, tuple):
        parts = [_literal(part, texts) for part in value]
        names = getattr(value, "_fields", None)
        if names is None:
            return f"[{', '.join(parts)}]"
        return "{" + ", ".join(f"{name}: {part}" for name, part in zip(names, parts, strict=True)) + "}"
    if isinstance(value, Value | Condition):
        return texts[value.place]
    return str(value).lower() if isinstance(value, bool) else _number(float(typing.cast(float, value)))


__all__ = ["javascript"]

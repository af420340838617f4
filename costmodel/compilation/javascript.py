"""A formula as a JavaScript function, printed from its tape: the same operations in the same order, and so the same digits."""

from __future__ import annotations

import math
import re
import typing
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

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
_TRUTHS = {"lt", "le", "gt", "ge", "eq", "and", "or"}
PART = 200
"""Lines of one function: a longer formula is some of them, since engines take ten times as long to optimise all of it at once."""


class _Line(NamedTuple):
    """A value that is used more than once: its name, its text, which other such values that reads, whether it is a truth."""

    name: str
    text: str
    reads: frozenset[str]
    truth: bool = False

    def __str__(self) -> str:
        return f"const {self.name} = {self.text};"


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
    places = [leaf.place for leaf in leaves(result) if isinstance(leaf, Value | Condition)]
    lines, texts, reads = _printed(tape, places)
    head = [_FLOOR_LOG2] if any("floorLog2(" in text for text in (*(line.text for line in lines), *texts.values())) else []
    signature, given = f"{formula.__name__}({', '.join(values)})", f"return {_literal(result, texts)};"
    if len(lines) <= PART:
        return "\n".join([f"function {signature} {{", *head, *(f"  {line}" for line in lines), f"  {given}", "}"])
    return _in_parts(signature, head, lines, given, frozenset().union(*(reads[place] for place in places)))


def _in_parts(signature: str, head: list[str], lines: Sequence[_Line], given: str, wanted: frozenset[str]) -> str:
    """A function that calls others, each of some lines; what one of them leaves to later ones is in an array.

    Parameters
    ----------
    signature : of the function
    head : what all of it needs
    lines : of all
    given : the last line, which returns the result
    wanted : values that this reads
    """
    name, parameters = signature[:-1].split("(")
    parts = [lines[begin : begin + PART] for begin in range(0, len(lines), PART)]
    reads = [frozenset[str]().union(*(line.reads for line in part)) for part in parts]
    elsewhere = [found - {line.name for line in part} for part, found in zip(parts, reads, strict=True)]
    passed = frozenset[str]().union(wanted, *elsewhere)
    place = {line.name: f"kept[{number}]" for number, line in enumerate(line for line in lines if line.name in passed)}

    def taken(names: frozenset[str]) -> list[str]:
        found = (line for line in lines if line.name in names)
        return [f"    const {line.name} = {place[line.name]}{' === 1' if line.truth else ''};" for line in found]

    text = [f"const {name} = (() => {{", *head, f"  const kept = new Float64Array({len(place)});"]
    for number, part in enumerate(parts):
        kept = (f"    const {line.name} = {f'{place[line.name]} = ' if line.name in place else ''}{line.text};" for line in part)
        text += [f"  function part{number}({parameters}) {{", *taken(elsewhere[number]), *kept, "  }"]
    calls = (f"    part{number}({parameters});" for number in range(len(parts)))
    return "\n".join([*text, f"  return function {signature} {{", *calls, *taken(wanted), f"    {given}", "  };", "})();"])


def _printed(tape: Tape, results: list[Place]) -> tuple[list[_Line], dict[Place, str], dict[Place, frozenset[str]]]:
    """A line for whatever is used more than once, how each place is written where it is used, and which lines it reads there."""
    done = needed(tape, results)
    uses = Counter([*results, *(one for place in done for one in tape.operations[place].arguments)])
    lines: list[_Line] = []
    texts: dict[Place, str] = {}
    reads: dict[Place, frozenset[str]] = {}
    for place in done:
        name, operands, given = tape.operations[place]
        texts[place] = text = _text(name, [texts[one] for one in operands], given)
        reads[place] = frozenset[str]().union(*(reads[one] for one in operands))
        if uses[place] > 1 and name != "constant" and not text.isidentifier():
            lines.append(_Line(f"x{len(lines)}", text, reads[place], name in _TRUTHS))
            texts[place], reads[place] = lines[-1].name, frozenset({lines[-1].name})
    return lines, texts, reads


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

"""A formula as a tape: its operations one after another, each once, and what every one of them depends on.

A formula is called once with values that write down what is done to them. Formulas are straight lines, so that the tape is
the formula for any numbers; `costmodel.compilation.machine_code` makes vector code of it, `costmodel.compilation.javascript`
a function for browsers.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from costmodel.text.errors import InvalidValue

Place: TypeAlias = int
"""Of an operation on the tape."""


class Operation(NamedTuple):
    """One line of a tape."""

    name: str  # ``"input"``, ``"constant"``, or what is done
    arguments: tuple[Place, ...] = ()  # places of the operands
    given: Any = None  # path of an input, value of a constant


class Tape:
    """Operations in order; the same operation on the same operands is written once."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._places: dict[tuple[str, tuple[Place, ...], Any], Place] = {}

    def put(self, name: str, *arguments: Place, given: object = None) -> Place:
        """The place of an operation, written down if it is new."""
        key = name, arguments, given
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = len(self.operations)
            self.operations.append(Operation(*key))
        return place

    def place(self, value: Any) -> Place:
        """The place of a traced value, or of a number as a constant."""
        return value.place if isinstance(value, _Traced) else self.put("constant", given=float(value))

    def value(self, name: str, *operands: object) -> Value:
        """A number that an operation gives."""
        return Value(self, self.put(name, *map(self.place, operands)))

    def condition(self, name: str, *operands: object) -> Condition:
        """A condition that a comparison gives."""
        return Condition(self, self.put(name, *map(self.place, operands)))

    # the operations of `costmodel.arithmetic.ops`, by the names that it looks for

    def Max(self, a: object, b: object) -> Value:
        return self.value("max", a, b)

    def Min(self, a: object, b: object) -> Value:
        return self.value("min", a, b)

    def Piecewise(self, first: tuple[object, object], other: tuple[object, bool]) -> object:
        value, condition = first
        if not isinstance(condition, Condition):
            return value if condition else other[0]
        return Value(self, self.put("select", condition.place, self.place(value), self.place(other[0])))

    def Eq(self, a: object, b: object) -> Condition:
        return self.condition("eq", a, b)

    def ceiling(self, a: object) -> Value:
        return self.value("ceil", a)

    def sqrt(self, a: object) -> Value:
        return self.value("sqrt", a)

    def log2(self, a: object) -> Value:
        return self.value("log2", a)

    def floor_log2(self, a: object) -> Value:
        return self.value("floor_log2", a)


class _Traced:
    """What stands for a number, or for a condition, while a formula is written down."""

    def __init__(self, tape: Tape, place: Place) -> None:
        self.__algebra__, self.place = tape, place

    def __bool__(self) -> bool:
        raise TypeError("a formula must not branch on its arguments: use ops.where")


class Condition(_Traced):
    """A comparison of values that are being traced."""

    def __and__(self, other: object) -> object:
        if not isinstance(other, Condition):
            return self if other else False
        return self.__algebra__.condition("and", self, other)

    def __or__(self, other: object) -> object:
        if not isinstance(other, Condition):
            return True if other else self
        return self.__algebra__.condition("or", self, other)

    __rand__, __ror__ = __and__, __or__


class Value(_Traced):
    """A number that is being traced."""

    def __add__(self, other: object) -> Value:
        return self.__algebra__.value("add", self, other)

    def __sub__(self, other: object) -> Value:
        return self.__algebra__.value("sub", self, other)

    def __rsub__(self, other: object) -> Value:
        return self.__algebra__.value("sub", other, self)

    def __mul__(self, other: object) -> Value:
        return self.__algebra__.value("mul", self, other)

    def __truediv__(self, other: object) -> Value:
        return self.__algebra__.value("div", self, other)

    def __rtruediv__(self, other: object) -> Value:
        return self.__algebra__.value("div", other, self)

    def __pow__(self, other: object) -> Value:
        return self.__algebra__.value("pow", self, other)

    def __rpow__(self, other: object) -> Value:
        return self.__algebra__.value("pow", other, self)

    def __neg__(self) -> Value:
        return self.__algebra__.value("neg", self)

    def __lt__(self, other: object) -> Condition:
        return self.__algebra__.condition("lt", self, other)

    def __le__(self, other: object) -> Condition:
        return self.__algebra__.condition("le", self, other)

    def __gt__(self, other: object) -> Condition:
        return self.__algebra__.condition("gt", self, other)

    def __ge__(self, other: object) -> Condition:
        return self.__algebra__.condition("ge", self, other)

    __radd__, __rmul__ = __add__, __mul__


def _inputs(tape: Tape, kind: type, path: str, known: Mapping[str, float]) -> Any:
    """A tuple of inputs, one for each number of a NamedTuple that isn't known."""
    fields = {name: (f"{path}{name}", group) for name, group in typing.get_type_hints(kind).items()}
    return kind(*(
        _inputs(tape, group, f"{name}.", known) if hasattr(group, "_fields")
        else known[name] if name in known else Value(tape, tape.put("input", given=name))
        for name, group in fields.values()
    ))  # fmt: skip


class Traced(NamedTuple):
    """A formula on a tape."""

    tape: Tape  # its operations
    results: tuple[Place, ...]  # places of the numbers asked for, in their order


def trace(
    formula: Callable[..., Any], arguments: type, results: Sequence[str], known: Mapping[str, float] = MappingProxyType({})
) -> Traced:
    """Write a formula down.

    Parameters
    ----------
    formula : of the fields of `arguments`, in their order
    arguments : a NamedTuple of NamedTuples of numbers
    results : paths of the numbers to keep of what the formula gives, as ``"memory.total"``; none for all of a flat one
    known : numbers that are the same whenever the tape is used, by their paths, as ``"settings.compression.kind"``

    Examples
    --------
    >>> from costmodel.formulas.quantities import NetworkNumbers
    >>> traced = trace(lambda node, leaf, spine: (node.size * 2.0, 1.0 + node.size * 2.0), NetworkNumbers, ())
    >>> [operation.name for operation in traced.tape.operations[-4:]]
    ['constant', 'mul', 'constant', 'add']
    """
    tape = Tape()
    made = formula(*_inputs(tape, arguments, "", known))
    if not results:
        return Traced(tape, tuple(map(tape.place, made)))
    kept = []
    for path in results:
        value = made
        for field in path.split("."):
            value = getattr(value, field)
        kept.append(tape.place(value))
    return Traced(tape, tuple(kept))


def arguments_of(formula: Callable[..., object]) -> list[str]:
    """Names of what a formula takes, but for what it works out itself where it is left out, None."""
    return [name for name, one in inspect.signature(formula).parameters.items() if one.default is not None]


def opened(formula: Callable[..., object], given: Sequence[object], symbol: Callable[[str, object], object]) -> dict[str, object]:
    """What a formula is called with to be traced, by the names of its arguments, but for those that it works out.

    Parameters
    ----------
    formula : to be called
    given : one an argument: a number, a NamedTuple of `costmodel.formulas.quantities` with None for what is left open, or None
        for all of it; those left out are None
    symbol : what stands for a number, of its path, as ``"device.memory_bandwidth"``, and of what was given for it

    Raises
    ------
    InvalidValue
        for more arguments than the formula takes, or a tuple of the wrong kind
    """
    names = arguments_of(formula)
    if len(given) > len(names):
        raise InvalidValue("arguments", len(given), f"at most {len(names)}: {', '.join(names)}")
    kinds = typing.get_type_hints(formula)
    padded = (*given, *[None] * (len(names) - len(given)))
    return {name: _opened(name, kinds.get(name), value, symbol) for name, value in zip(names, padded, strict=True)}


def _opened(path: str, annotation: object, given: object, symbol: Callable[[str, object], object]) -> object:
    if typing.get_origin(annotation) is tuple:
        kinds = typing.get_args(annotation)
        parts = given if isinstance(given, tuple) else (None,) * len(kinds)
        numbered = enumerate(zip(kinds, parts, strict=True))
        return tuple(_opened(f"{path}.{place}", one, part, symbol) for place, (one, part) in numbered)
    kind: Any = annotation if hasattr(annotation, "_fields") else type(given)
    if not hasattr(kind, "_fields"):
        return symbol(path, given)
    if given is not None and not isinstance(given, kind):
        raise InvalidValue(path, given, f"a {kind.__name__} of costmodel.formulas.quantities, or None")
    hints, values = typing.get_type_hints(kind), given or (None,) * len(kind._fields)
    pairs = zip(kind._fields, values, strict=True)
    return kind(*(_opened(f"{path}.{field}", hints[field], value, symbol) for field, value in pairs))


def leaves(result: object) -> Iterator[object]:
    """What a formula gives, nested or not, one after another.

    Examples
    --------
    >>> list(leaves((1.0, (2.0, 3.0))))
    [1.0, 2.0, 3.0]
    """
    if isinstance(result, tuple):
        for part in result:
            yield from leaves(part)
    else:
        yield result


def needed(tape: Tape, wanted: Iterable[Place], known: frozenset[Place] = frozenset()) -> list[Place]:
    """Places of what has to be done for some results, in order; what is known already is a leaf and left out."""
    found: set[Place] = set()
    waiting = [place for place in wanted if place not in known]
    while waiting:
        place = waiting.pop()
        if place not in found:
            found.add(place)
            waiting += [one for one in tape.operations[place].arguments if one not in known]
    return sorted(found)


def supports(tape: Tape, bits: Callable[[str], int]) -> list[int]:
    """What every operation depends on, as the union of the bits of its inputs.

    Parameters
    ----------
    tape : the operations
    bits : of an input, by its path
    """
    found: list[int] = []
    for operation in tape.operations:
        union = bits(operation.given) if operation.name == "input" else 0
        for place in operation.arguments:
            union |= found[place]
        found.append(union)
    return found

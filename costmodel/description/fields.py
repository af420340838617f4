"""The table of fields: what a field of a description may be and what is said of it, once, in one row.

A row stands where its field does, as metadata of the field's line in its class, and the field's line in the class's docstring
says what it means; `table` puts both together. From the rows are made: the checks at the door and their errors, options of the
command line and their help, what a page and the app may be asked, the dimensions of a search, single changes that offers,
verdicts and advice try, what launch files may state, and the page of nomenclature.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from costmodel.formulas.settings import OPEN
from costmodel.text.checks import PLAIN, choice, integer, listing, mapping, plain, real, text
from costmodel.text.errors import InvalidValue
from costmodel.text.other_names import all_meant, argument_meant, is_said_by_value, said_by_value, value_meant
from costmodel.text.suggestions import did_you_mean
from costmodel.text.templates import filled
from costmodel.text.units import ANSWERS, QUANTITIES, plain_number, quantity, span, whole_number

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Value = TypeVar("Value")
Described = TypeVar("Described", bound="DataclassInstance")
ROW = "row"
"""Key of a field's metadata under which its row is."""


class ValueKind:
    """What the values of a field are.

    Attributes
    ----------
    wish : what a refusal says was expected
    choices : every value, or the words that can stand for themselves, where they can be listed
    bounds : least and most of its numbers, where it has numbers
    whole : whether its numbers are whole
    several : whether one value lists words
    """

    wish = ""
    choices: tuple[Any, ...] = ()
    bounds: tuple[float, float] | None = None
    whole = False
    several = False

    def read(self, field: str, value: Any) -> Any:
        """The value that a text or another word stands for; any other as it is."""
        return value if value in self.choices else value_meant(field, value, self.choices)

    def check(self, field: str, value: Any) -> Any:
        """The value to keep; InvalidValue where it is none of this kind."""
        raise NotImplementedError

    def code(self, value: Any) -> Any:
        """A value that is kept as formulas take it: a number, or a tuple of numbers; `OPEN` where none is given."""
        return OPEN if value is None else float(value)

    def value(self, code: float) -> Any:
        """The value whose code is a number; None of `OPEN`."""
        return None if code == OPEN else int(code) if self.whole else code

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.wish})"


class Whole(ValueKind):
    """Whole numbers from the least to the most, or texts of them.

    Parameters
    ----------
    least, most : of them
    letters : that may stand behind a number, of `costmodel.text.units.BINARY_STEPS`
    """

    whole = True

    def __init__(self, least: int, most: int, letters: str = "k") -> None:
        self.least, self.most, self.bounds, self.letters = least, most, (float(least), float(most)), letters
        self.wish = f"a whole number from {least} to {most}"

    def read(self, field: str, value: Any) -> Any:
        """The number that a text is."""
        number = whole_number(value, self.letters) if isinstance(value, str) else None
        return value if number is None else number

    def check(self, field: str, value: Any) -> Any:
        """The value, if it is one."""
        return integer(field, self.read(field, value), self.least, self.most)


class Real(ValueKind):
    """Finite numbers from the least to the most; kept as they are given, whole or not."""

    def __init__(self, least: float, most: float) -> None:
        self.least, self.most, self.bounds = least, most, (least, most)
        self.wish = f"a number from {least:g} to {most:g}"

    def read(self, field: str, value: Any) -> Any:
        """The number that a text is."""
        return plain_number(value) if isinstance(value, str) else value

    def check(self, field: str, value: Any) -> Any:
        """The value, if it is one."""
        value = self.read(field, value)
        real(field, value, self.least, self.most)
        return value


class Flag(ValueKind):
    """True or False."""

    wish = "true or false"
    choices = (False, True)

    def read(self, field: str, value: Any) -> Any:
        """The answer that a text is."""
        return ANSWERS.get(value.lower(), value) if isinstance(value, str) else value

    def check(self, field: str, value: Any) -> Any:
        """The value, if it is one."""
        found = self.read(field, value)
        if not isinstance(found, bool):
            raise InvalidValue(field, value, self.wish)
        return found

    def value(self, code: float) -> Any:
        """Whether a code is yes."""
        return None if code == OPEN else code == 1.0


class Rate(Flag):
    """Whether a rate is above nought, said so or by the rate."""

    wish = "true or false, or a rate from 0 to 1"

    def read(self, field: str, value: Any) -> Any:
        """The answer that a rate or a text is."""
        answer = super().read(field, value)
        rate = plain_number(answer) if isinstance(answer, str) else answer
        return rate > 0 if isinstance(rate, int | float) and 0 <= rate <= 1 else answer


class OneOf(ValueKind):
    """One of some values."""

    def __init__(self, choices: Iterable[object]) -> None:
        self.choices = tuple(choices)
        self.wish = "one of " + ", ".join(map(str, self.choices))
        self.whole = all(isinstance(one, int) for one in self.choices)

    def check(self, field: str, value: Any) -> Any:
        """The value, if it is one, or a word that people have for it."""
        return choice(field, self.read(field, value), self.choices)

    def code(self, value: Any) -> float:
        """A number of numbers, else the place of a choice."""
        return OPEN if value is None else float(value) if self.whole else float(self.choices.index(value))

    def value(self, code: float) -> Any:
        """The choice at a place."""
        return None if code == OPEN else int(code) if self.whole else self.choices[int(code)]


class Order(ValueKind):
    """Some names, each once, in any order; as formulas take it the place of each, in a tuple of their kind."""

    several = True

    def __init__(self, names: Iterable[str], places: Callable[[Iterable[float]], tuple[float, ...]] = tuple) -> None:
        self.names, self.places = tuple(names), places
        self.wish = "an order of " + ", ".join(self.names)

    @property
    def orders(self) -> tuple[tuple[str, ...], ...]:
        """Every order."""
        return tuple(itertools.permutations(self.names))

    def check(self, field: str, value: Any) -> Any:
        """The order as a tuple."""
        order = listing(field, value)
        if sorted(map(str, order)) != sorted(self.names):
            raise InvalidValue(field, order, self.wish)
        return order

    def code(self, value: Any) -> tuple[float, ...]:
        """The place of every name."""
        return self.places(float(value.index(name)) for name in self.names)


class Spelled(ValueKind):
    """Values with a spelling of their own, which a function reads.

    Parameters
    ----------
    kept : from a value to the one that is kept
    words : that can stand for themselves
    coded : from the value that is kept to the numbers that formulas take
    numbers : least and most of a whole number that can stand in their place, as can a share below 1
    counted : of the numbers that formulas take the name of the one that such a number is, beside noughts
    several : whether one value lists words
    """

    def __init__(
        self, kept: Callable[[Any], Any], words: Iterable[str], coded: Callable[[Any], tuple[float, ...]],
        numbers: tuple[int, int] | None = None, counted: str = "", several: bool = False,
    ) -> None:  # fmt: skip
        self.kept, self.choices, self.coded, self.counted, self.several = kept, tuple(words), coded, counted, several
        self.wish = "one of " + ", ".join(self.choices)
        if numbers is not None:
            self.whole, self.bounds = True, (float(numbers[0]), float(numbers[1]))
            self.wish += f", {Whole(*numbers).wish}, or a share below 1"

    def check(self, field: str, value: Any) -> Any:
        """The value that is kept."""
        return self.kept(self.read(field, value))

    def code(self, value: Any) -> tuple[float, ...]:
        """The numbers of a value, or of none."""
        return self.coded(value)


class Name(ValueKind):
    """A text in one line that is not empty."""

    wish = "a text of 1 to 500 characters, printable and in one line"

    def check(self, field: str, value: Any) -> Any:
        """The value, if it is one."""
        return text(field, value)


class Quantified(ValueKind):
    """A quantity with a unit, kept in SI units: a number in them, or a text such as ``"25 GB/s"``.

    Parameters
    ----------
    quantity : what it measures, one of `costmodel.text.units.QUANTITIES`
    """

    def __init__(self, quantity: str) -> None:
        self.quantity = quantity
        known = QUANTITIES[quantity]
        self.bounds, self.wish = (known.least, known.most), span(known)

    def check(self, field: str, value: Any) -> Any:
        """The number in SI units."""
        return quantity(field, value, self.quantity)


class ByDtype(ValueKind):
    """Numbers by dtype, or where that is enough one for all.

    Parameters
    ----------
    least, most : of each
    alone : whether one number may stand for all dtypes
    """

    def __init__(self, least: float, most: float, alone: bool = False) -> None:
        self.each, self.alone = Real(least, most), alone
        self.bounds, self.wish = self.each.bounds, self.each.wish

    def check(self, field: str, value: Any) -> Any:
        """The numbers, if all are."""
        if self.alone and not isinstance(value, Mapping):
            return self.each.check(field, value)
        values = mapping(field, value)
        if not values and not self.alone:
            raise InvalidValue(field, values, "an efficiency for at least one dtype")
        for dtype, one in values.items():
            self.each.check(f"{field}.{dtype}", one)
        return value


class ListOf(ValueKind):
    """A list, each of its values of one kind, kept as a tuple.

    Parameters
    ----------
    each : what one value is
    """

    several = True

    def __init__(self, each: ValueKind) -> None:
        self.each, self.wish = each, f"a list, each {each.wish}"

    def check(self, field: str, value: Any) -> Any:
        """The values as a tuple."""
        return tuple(self.each.check(field, one) for one in listing(field, value))


class Owner(NamedTuple):
    """The choice to which a field belongs: with another one the field stays as it is by default."""

    field: str  # of the same class
    values: tuple[object, ...]  # with which it has a meaning


class FieldRow(NamedTuple):
    """One row of the table."""

    kind: ValueKind  # what its values are
    unit: str = ""  # of a number, as ``"bytes"`` or ``"tokens"``; "" where it counts or names something
    role: str = "choice"  # ``"size"`` of the problem, ``"degree"`` of a split, ``"share"`` of something, or ``"choice"``
    short: str = ""  # its option on the command line as people abbreviate it, beside its name
    link: str = ""  # its name in a link to the app, which can fix it; "" where that can't
    brief: str = ""  # what ``--help`` says of it, where ``--help-all`` says more
    unset: str = ""  # what it is where it isn't given, in words, where neither its default nor the framework's says so
    tried: str = ""  # what a search tries of it where it isn't given, in words
    # what a search of all there is tries of it where it isn't given, where that hangs on no framework, model or cluster
    every: tuple[object, ...] = ()
    rare: bool = False  # seldom asked for: ``--help-all`` alone shows it
    software: bool = False  # the framework decides it unless it is told
    column: bool = False  # it may differ from row to row of a search; else a search tries one value after the other
    called: str = ""  # it in words, where these aren't its name with blanks
    usual: tuple[object, ...] = ()  # values of which nothing is said
    said: str = ""  # how others are said, with ``{}`` for the value
    owner: Owner | None = None  # the choice that it belongs to
    idle: str = ""  # the degree that must be above 1 for it to mean anything
    inert: str = ""  # why it may change nothing, in words
    leaner: tuple[object, ...] = ()  # values to which a single change may turn it so that less is held
    faster: tuple[object, ...] = ()  # values to which a single change may turn it so that a step takes less time
    launched: bool = False  # whether every launch file is asked for it
    asked: bool = False  # part of every question, so that it is always shown, and no dimension of a search
    name: str = ""  # name, default, help, optional: as its class has them: filled in by `table`
    default: Any = dataclasses.MISSING
    help: str = ""
    optional: bool = False

    @property
    def words(self) -> str:
        """The field in words."""
        return self.called or self.name.replace("_", " ")


def row(kind: ValueKind, **words: Any) -> Mapping[str, FieldRow]:
    """A field's row, as the metadata of its line in its class.

    Parameters
    ----------
    kind : what its values are
    words : other fields of `FieldRow`
    """
    return {ROW: FieldRow(kind, **words)}


@functools.cache
def table(described: type[DataclassInstance]) -> dict[str, FieldRow]:
    """Every row of a class by the name of its field; fields that have none are no part of it.

    Examples
    --------
    >>> from costmodel import Plan
    >>> table(Plan)["zero_stage"].kind, table(Plan)["zero_stage"].default
    (Whole(a whole number from 0 to 3), None)
    """
    words = meanings(described)
    found = {}
    for one in dataclasses.fields(described):
        known = one.metadata.get(ROW) or (FieldRow(Flag()) if one.type == "bool" else None)
        if known is not None:
            optional = str(one.type).endswith("| None")
            found[one.name] = known._replace(name=one.name, default=one.default, help=words.get(one.name, ""), optional=optional)
    return found


def meanings(described: type[DataclassInstance]) -> dict[str, str]:
    """What each field means, from the section on parameters of its class; a table in capitals is written out."""
    words: dict[str, str] = {}
    names: list[str] = []
    for line in (described.__doc__ or "").partition("----------")[2].partition("Raises")[0].splitlines():
        left, colon, right = line.strip().partition(" : ")
        names = left.split(", ") if colon else names
        words |= {name: f"{words.get(name, '')} {right or left}".strip() for name in names}
    module = sys.modules[described.__module__]
    return {name: re.sub(r"`([A-Z]+)`", lambda match: ", ".join(getattr(module, match[1])), text) for name, text in words.items()}


def short_names(described: type[DataclassInstance]) -> dict[str, str]:
    """Fields of a class by the short names that people know."""
    return {row.short: name for name, row in table(described).items() if row.short}


def full_names(described: type[DataclassInstance], given: Mapping[str, Any], besides: Iterable[str] = ()) -> dict[str, Any]:
    """Values by the names of a class's fields, where some go by their short names or by what other programs call them.

    Parameters
    ----------
    described : a dataclass with rows
    given : values by any name
    besides : further names, which stay as they are

    Raises
    ------
    InvalidValue
        for a name that is none, with what may be meant, and as `costmodel.text.other_names.all_meant`

    Examples
    --------
    >>> from costmodel import Plan
    >>> full_names(Plan, {"tp": 2, "micro_batch_size": 4, "gpus": 8}, besides=["gpus"])
    {'tensor_parallel': 2, 'micro_batch': 4, 'gpus': 8}
    """
    short = short_names(described)
    names = {*(one.name for one in dataclasses.fields(described)), *besides}

    def by_fields(said: str, value: Any) -> dict[str, Any]:
        own = (said in names or said in short) and said_by_value(said, value) is None
        found = {short.get(said, said): value} if own else argument_meant(said, value)
        if not found.keys() <= names:
            raise InvalidValue(said, value, f"a field of {described.__name__}{nearest(said, names)}")
        return found

    return all_meant(given, by_fields)


def nearest(said: str, names: Iterable[str]) -> str:
    """The argument that a word may stand for, as the end of a refusal.

    Parameters
    ----------
    said : the word
    names : of arguments
    """
    options = [f"--{name.replace('_', '-')}" for name in names]
    near = did_you_mean("option", f"--{said.replace('_', '-')}", options)
    return re.sub(r"--([a-z-]+)", lambda match: match[1].replace("-", "_"), near)


def by_name(wish: str, named: bool = False) -> Callable[[type[Described]], type[Described]]:
    """Have a dataclass that takes its fields by name alone say so where one has none.

    Parameters
    ----------
    wish : what is expected instead
    named : whether its fields go by their short names, and by what other programs call them, too
    """

    def decorated(described: type[Described]) -> type[Described]:
        names = frozenset(one.name for one in dataclasses.fields(described))
        telling = frozenset(filter(is_said_by_value, names))
        make: Callable[..., None] = described.__init__

        @functools.wraps(make)
        def made(self: Described, *unnamed: object, **given: object) -> None:
            if unnamed:
                raise InvalidValue(described.__name__, unnamed[0], wish)
            told = telling & given.keys() if named else ()
            usual = not named or (given.keys() <= names and not any(said_by_value(name, given[name]) for name in told))
            make(self, **(given if usual else full_names(described, given)))

        described.__init__ = made  # type: ignore[method-assign,assignment]
        return described

    return decorated


@functools.cache
def _checks(described: type[DataclassInstance]) -> tuple[tuple[str, object, Callable[[str, Any], Any]], ...]:
    return tuple((one.name, one.default, one.kind.check) for one in table(described).values())


def check(record: DataclassInstance, whose: str = "") -> None:
    """Hold every field of a frozen dataclass against its row; a field that is as by default is what it may be.

    Numbers of NumPy become Python's own, and values with a spelling of their own what is kept of them.

    Parameters
    ----------
    record : whose class has rows
    whose : words behind a field's name in a refusal, as `` of level rail``

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected
    """
    values = vars(record)
    for name, default, checked in _checks(type(record)):
        value = values[name]
        if value is default:
            continue
        if type(value) not in PLAIN:
            value = plain(value)
        kept = checked(name + whose, value)
        if kept is not values[name]:
            object.__setattr__(record, name, kept)


class Restriction(NamedTuple):
    """Values to which a field is held beside another field's: what no plan has otherwise, or no framework runs."""

    field: str  # that is held
    allowed: tuple[object, ...]  # its values
    text: str  # template of the refusal, with values in braces
    beside: str = ""  # the other field; "" where the field is held so whatever the others
    values: tuple[object, ...] = ()  # of it, with which the field is held
    above: float | None = None  # a number of it, instead, beyond which the field is held
    numbers: bool = False  # whether any number is allowed, too
    # of `costmodel.text.errors.IllegalPlan`, where a value is none that the framework has; "" where it is none at all
    reason: str = ""

    def broken(self, values: Mapping[str, Any]) -> bool:
        """Whether fields break it."""
        value = values[self.field]
        if value in self.allowed or (self.numbers and isinstance(value, int | float)):
            return False
        if not self.beside:
            return True
        beside = values[self.beside]
        return beside in self.values if self.above is None else (beside or 0) > self.above

    def words(self, values: Mapping[str, Any]) -> str:
        """The refusal of fields that break it."""
        return filled(self.text, values)


def expected(field: str, wish: str) -> str:
    """The template of a refusal as `InvalidValue` words it.

    Parameters
    ----------
    field : that is refused
    wish : what was expected, with values in braces
    """
    return f"{field}={{{field}}}: expected {wish}"


@functools.cache
def restrictions_of_owners(described: type[DataclassInstance]) -> tuple[Restriction, ...]:
    """Fields that are as by default where the choice that they belong to is another."""
    rows, found = table(described), []
    for name, one in rows.items():
        if one.owner is None:
            continue
        owner, having = one.owner.field, one.owner.values
        *others, last = map(repr, having)
        have = f"{', '.join(others)} or {last}" if others else last
        wish = f"{one.default} with {owner}={{{owner}}}: {owner}={have} has it"
        choices = (None, *rows[owner].kind.choices)
        values = tuple(value for value in choices if value not in having)
        found.append(Restriction(name, (one.default,), expected(name, wish), owner, values))
    return tuple(found)


def hold(values: Mapping[str, Any], restrictions: Iterable[Restriction]) -> None:
    """Refuse values that no record has beside each other."""
    for one in restrictions:
        if one.broken(values):
            raise InvalidValue(one.field, values[one.field], one.words(values).partition(": expected ")[2])

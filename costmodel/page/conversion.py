"""What the fields of a question make of the arguments of the formulas, as tables that need no Python.

Which argument follows which field is learnt from the library's own conversion, by changing fields one by one and two by
two: an argument is a constant, or a product of numbers among the fields, and which of these may hang on choices. What was
learnt is then held against the conversion on drawn questions, so that one which is neither is refused instead of wrong.
"""

from __future__ import annotations

import itertools
import math
import operator
import random
from collections.abc import Collection, Iterator
from typing import NamedTuple

from costmodel.description.plan import Plan
from costmodel.errors import CostModelError, InvalidValue, NotModelled
from costmodel.page.question import HELD, Asked, Domain, Fields, domains

Values = dict[str, float]
"""Arguments of the formulas by their path, as ``settings.seq_len``."""
CLOSE = 1e-12
DRAWS = 200
EMPTY, LEAST, ANY = "-", "=", "*"
"""Tokens of a value: none, the least that a number can be, any other number."""


class Term(NamedTuple):
    """A product: a factor, and fields with their powers."""

    factor: float
    powers: dict[str, int]

    def value(self, fields: Fields) -> float:
        """What it comes to."""
        return self.factor * math.prod(float(fields[name]) ** power for name, power in self.powers.items())


class Rule(NamedTuple):
    """How one argument follows from the fields.

    Parameters
    ----------
    by : fields whose choice decides
    terms : by the tokens of those fields
    """

    by: tuple[str, ...]
    terms: dict[tuple[str, ...], Term]


class Refusal(NamedTuple):
    """Values of one or two fields that no plan can have."""

    tokens: dict[str, str]
    message: str


SHOWN_BY_THIRDS = {"plan.data_stride": {"data_parallel", "context_parallel"}}
"""Fields on which an argument hangs, as only a third that is changed with them shows: ranks with the same weights are as far
apart as the order of the degrees and those in between have it, if there are several."""


class Conversion(NamedTuple):
    """Everything learnt.

    Parameters
    ----------
    domains : of every field
    rules : of every argument
    refusals : of fields beside each other
    """

    domains: dict[str, Domain]
    rules: dict[str, Rule]
    refusals: list[Refusal]

    def arguments(self, fields: Fields) -> Values:
        """Arguments of the formulas, from the tables alone.

        Parameters
        ----------
        fields : a value for every one
        """
        values = {}
        for path, rule in self.rules.items():
            values[path] = rule.terms[tuple(token(self.domains[name], fields[name]) for name in rule.by)].value(fields)
        return values


def token(domain: Domain, value: object) -> str:
    """The class of a value that a table tells apart.

    Parameters
    ----------
    domain : of the field
    value : of it

    Examples
    --------
    >>> token(Domain(bounds=(1.0, 9.0), whole=True), 1), token(Domain(choices=(False, True)), True)
    ('=', 'true')
    """
    if value is None:
        return EMPTY
    if domain.order and isinstance(value, tuple | list):
        return "-".join(value)
    if isinstance(value, bool):
        return str(value).lower()
    if domain.numeric:
        return LEAST if value == domain.ends[0] else ANY
    return str(min(value, domain.most)) if domain.most and isinstance(value, int) else str(value)


class _Learner:
    """Asks the library, and remembers."""

    def __init__(self, question: Asked, plans: Collection[Plan]) -> None:
        self.question = question.neutral()
        self.domains = domains(self.question, plans)
        self.refused: dict[tuple[object, ...], CostModelError] = {}
        self._known: dict[tuple[object, ...], Values | None] = {}
        self.base: Fields = self.question.fields()
        self.plan = tuple(name for name in self.base if hasattr(question.plan, name))
        self.never: dict[tuple[str, str], str] = {}
        for name in self.base:
            for known, value in self.classes(name, every=False).items():
                beside = ({**context, name: value} for context in self.contexts(name))
                if all(self.ask(changes) is None for changes in beside):
                    self.never[name, known] = str(self.refused[self.key({name: value})])

    def number(self, name: str) -> float:
        """A number that a field can be, and twice of it, neither being its least."""
        least, most = self.domains[name].ends
        asked = self.question.fields()[name]
        if self.domains[name].whole:
            return max(int(asked or 0), int(least) + 2)
        if asked and asked > least:
            return float(asked) if 2 * asked <= most else 0.25 * asked
        return 4.0 * least or 0.25 * min(most, 1.0)

    def key(self, changes: Fields) -> tuple[object, ...]:
        """Changes from the base as what can be looked up."""
        changed = ((name, value) for name, value in changes.items() if value != self.base[name])
        return tuple(sorted(changed, key=operator.itemgetter(0)))

    def ask(self, changes: Fields) -> Values | None:
        """Arguments with these changes from the base; None where they are refused."""
        key = self.key(changes)
        if key not in self._known:
            self._known[key] = self._ask({**self.base, **changes}, key)
        return self._known[key]

    def _ask(self, fields: Fields, key: tuple[object, ...] = ()) -> Values | None:
        try:
            return self.question.changed(fields).numbers()
        except (InvalidValue, NotModelled) as refused:
            self.refused[key] = refused
            return None

    def classes(self, name: str, every: bool = True) -> Fields:
        """A value for each token of a field."""
        domain = self.domains[name]
        values: list[object] = list(domain.choices if every or not domain.order else (domain.choices[0], domain.choices[-1]))
        if domain.empty:
            values.append(None)
        if domain.numeric:
            values.append(self.number(name))
            values.append(int(domain.ends[0]) if domain.whole else domain.ends[0])
        elif domain.most:
            values += range(1, domain.most + 1) if every else [1, 2]
        tokens = {token(domain, value): value for value in values}
        return {known: value for known, value in tokens.items() if (name, known) not in self.never}

    def contexts(self, name: str) -> Iterator[Fields]:
        """The base, and with each other field that may matter beside this one changed; numbers meet as factors only."""
        yield {}
        for other in self.base:
            meets = (other in self.plan and name in self.plan) or "dtype" in (other, name)
            if other != name and meets:
                numbers = self.domains[name].numeric and self.domains[other].numeric
                for value in (None,) if numbers else self.classes(other, every=False).values():
                    if value != self.base[other] and (value is not None or self.domains[other].empty):
                        yield {other: value}

    def power(self, name: str, changes: Fields, path: str) -> int:
        """The power with which a number enters an argument."""
        value = {**self.base, **changes}[name]
        once, twice = self.ask(changes), self.ask({**changes, name: 2 * value})
        assert once is not None and twice is not None
        ratio = twice[path] / once[path] if once[path] else 1.0
        power = round(math.log2(ratio)) if ratio > 0.0 else 0
        if abs(ratio - 2.0**power) > CLOSE * ratio:
            raise InvalidValue(path, ratio, f"a power of {name}, which it isn't")
        return power


def learn(question: Asked, plans: Collection[Plan] = ()) -> Conversion:
    """Learn how the arguments of the formulas follow from the fields of a question.

    Parameters
    ----------
    question : whose fields may change
    plans : whose values are learnt too

    Returns
    -------
    Conversion

    Raises
    ------
    InvalidValue
        where an argument is no product of fields
    NotModelled
        where a field is asked that tables don't have
    """
    for name in HELD:
        if (value := getattr(question.plan, name)) is not None:
            raise NotModelled(f"a page of {name}={value!r}: its tables are of {name}=None")
    learner = _Learner(question, plans)
    numbers, choices = _influences(learner)
    for path, fields in SHOWN_BY_THIRDS.items():
        choices[path] |= fields
    refusals = _refusals(learner)
    pairs = [set(refusal.tokens.items()) for refusal in refusals]
    rules = {path: _rule(learner, path, numbers[path], choices[path], pairs) for path in numbers}
    found = Conversion(learner.domains, rules, refusals)
    _compare(learner, found)
    return found


def _influences(learner: _Learner) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """For each argument the fields that enter it as numbers, and those whose choice it hangs on."""
    start = learner.ask({})
    assert start is not None
    numbers: dict[str, set[str]] = {path: set() for path in start}
    choices: dict[str, set[str]] = {path: set() for path in start}
    for name, domain in learner.domains.items():
        for context in learner.contexts(name):
            value = learner.number(name) if domain.numeric else learner.base[name]
            context = {**context, name: value}
            before = learner.ask(context)
            if before is None:
                continue
            entering: set[str] = set()
            if domain.numeric:
                twice = learner.ask({**context, name: 2 * value})
                entering = {path for path in before if twice is not None and twice[path] != before[path]}
                for path in entering:
                    numbers[path].add(name)
            for other in learner.classes(name, every=False).values():
                if other == value or (after := learner.ask({**context, name: other})) is None:
                    continue
                for path in before:
                    expected = before[path]
                    if path in entering and other is not None:
                        expected *= (other / value) ** learner.power(name, context, path)
                    if abs(after[path] - expected) > CLOSE * abs(expected):
                        choices[path].add(name)
    return numbers, choices


def _rule(
    learner: _Learner, path: str, numbers: set[str], choices: set[str], refused: list[set[tuple[str, str]]]
) -> Rule:
    """The rule of one argument, for all choices but those that are refused beside each other."""
    by = tuple(name for name in learner.base if name in choices)
    terms = {}
    for combination in itertools.product(*(learner.classes(name).items() for name in by)):
        tokens = {(name, known) for name, (known, _) in zip(by, combination, strict=True)}
        if any(pair <= tokens for pair in refused):
            continue
        chosen = {name: value for name, (_, value) in zip(by, combination, strict=True)}
        changes = _taken(learner, {name: learner.number(name) for name in numbers} | chosen)
        if changes is None:
            continue
        values = learner.ask(changes)
        assert values is not None
        fields = {**learner.base, **changes}
        powers = {}
        for name in sorted(numbers):
            if fields[name] is None or token(learner.domains[name], fields[name]) != ANY:
                continue  # where it is least, that is part of the factor
            if power := learner.power(name, changes, path):
                powers[name] = power
        factor = values[path] / math.prod(float(fields[name]) ** power for name, power in powers.items())
        terms[tuple(known for known, _ in combination)] = Term(factor, powers)
    return Rule(by, terms)


def _taken(learner: _Learner, wanted: Fields) -> Fields | None:
    """Changes that hold those wanted and are taken, with at most one other field changed for their sake; else None."""
    beside = itertools.chain([{}], *(learner.contexts(name) for name in wanted))
    wide = ({**context, **wanted} for context in beside)
    return next((changes for changes in wide if learner.ask(changes) is not None), None)


def _refusals(learner: _Learner) -> list[Refusal]:
    """Values that are refused whatever the other fields, and pairs of values of which either alone is taken."""
    found = [Refusal({name: known}, message) for (name, known), message in learner.never.items()]
    for one, other in itertools.combinations(learner.plan, 2):
        pairs = list(itertools.product(learner.classes(one, False).items(), learner.classes(other, False).items()))
        taken_ones = {a for (a, x), (b, y) in pairs if learner.ask({one: x, other: y}) is not None}
        taken_others = {b for (a, x), (b, y) in pairs if learner.ask({one: x, other: y}) is not None}
        for (a, x), (b, y) in pairs:
            changes = {one: x, other: y}
            if a in taken_ones and b in taken_others and learner.ask(changes) is None:
                message = str(learner.refused[learner.key(changes)])
                for name, value in changes.items():
                    message = message.replace(f"{name}={value!r}", f"{name}={{{name}}}")
                found.append(Refusal({one: a, other: b}, message))
    return found


def _compare(learner: _Learner, found: Conversion) -> None:
    """Hold what was learnt against the library's own conversion, on drawn fields."""
    chance = random.Random(7)
    for _ in range(DRAWS):
        fields = {name: _draw(learner, name, chance) for name in learner.base}
        try:
            wanted = learner.question.changed(fields).numbers()
        except (InvalidValue, NotModelled):
            continue
        for path, value in found.arguments(fields).items():
            if abs(value - wanted[path]) > CLOSE * abs(wanted[path]):
                raise InvalidValue(path, value, f"{wanted[path]!r}, which the page's tables miss with {fields}")


def _draw(learner: _Learner, name: str, chance: random.Random) -> object:
    """A value of a field, most often the base's, so that most draws are taken."""
    if chance.random() < 0.7:
        return learner.base[name]
    domain = learner.domains[name]
    value = chance.choice(list(learner.classes(name).values()))
    if domain.numeric and value is not None and token(domain, value) == ANY and chance.random() < 0.5:
        return 2 * value
    return value


__all__ = ["ANY", "EMPTY", "LEAST", "Conversion", "Refusal", "Rule", "Term", "learn", "token"]

"""Which argument of the formulas follows which field of a question, learnt from the library's own conversion.

Changing the fields one by one shows what each does. Questions are drawn until any two choices of a plan have met in one, which
shows what is refused; and where a rule misses one of them, the argument hangs on a further field: on the way from that question
to the one the rule comes from, field by field, it is the one with which the rule begins to hold. An argument that is no product
of fields is refused instead of wrong.
"""

from __future__ import annotations

import itertools
import math
import operator
import random
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from costmodel.description.dimensions import DIMENSIONS
from costmodel.description.framework import SPLITTING
from costmodel.description.plan import Plan
from costmodel.description.question import Question
from costmodel.page.conversion import ANY, Conversion, Refusal, Rule, Term, Values, token
from costmodel.page.question import HELD, Asked, Fields, domains
from costmodel.text.errors import CostModelError, IllegalPlan, InvalidValue, NotModelled

Key = tuple[tuple[str, Any], ...]
"""Changes from the base, in order."""
CLOSE = 1e-12
SPARE = 60
"""Draws after the last in which choices met that had not met before, for each of `CHANGED`."""
FEW = 12
"""Pairs of choices that meet for the first time in a draw, below which the pairs left are tried one by one."""
OF_ORDER = 8
"""Draws of each order of the degrees, of whose numbers any may be least."""
ROUNDS = 20
"""In which an argument may turn out to hang on further fields."""
CHANGED = (0.2, 0.6)
"""Shares of the fields that such draws change."""


class Class(NamedTuple):
    """A value of a field, and the token of all that are like it."""

    name: str
    token: str
    value: Any


class _Learner:
    """Asks the library, and remembers."""

    def __init__(self, question: Asked, plans: Collection[Plan]) -> None:
        self.question = question.neutral()
        self.domains = domains(self.question, plans)
        self.base: Fields = self.question.fields()
        self.plan = tuple(name for name in self.base if hasattr(question.plan, name))
        self.refused: dict[Key, CostModelError] = {}
        self._same = Question(self.question.model, self.question.cluster, self.question.framework)
        self._known: dict[Key, Values | None] = {}
        self._classes = {name: self._every_class(name) for name in self.base}
        self._few = {name: self._few_classes(name) for name in self.base}
        self.never: dict[tuple[str, str], str] = {}
        self.beside: dict[tuple[str, str], Fields] = {}
        """What must be changed too for a class to be taken."""
        for one in [one for few in self._few.values() for one in few]:
            self._place(one)
        for name in self.base:
            for classes in (self._classes, self._few):
                classes[name] = [one for one in classes[name] if (name, one.token) not in self.never]

    def _place(self, one: Class) -> None:
        """Find out whether a class is taken by itself, beside another field that its refusal names, or never."""
        if self.ask({one.name: one.value}) is None:
            for changes in self._named_beside({one.name: one.value}):
                if self.ask(changes) is not None:
                    self.beside[one.name, one.token] = {name: value for name, value in changes.items() if name != one.name}
                    return
            self.never[one.name, one.token] = str(self.refused[self.key({one.name: one.value})])

    def _named_beside(self, changes: Fields) -> Iterator[Fields]:
        """Refused changes with one more: each class of each field that the refusal names."""
        for name in self.named(self.refused[self.key(changes)]):
            if name not in changes:
                for other in self.few(name):
                    yield {name: other.value, **changes}

    def named(self, refused: CostModelError) -> list[str]:
        """Fields of a plan that a refusal names."""
        words = set(re.findall(r"\w+", str(refused)))
        return [name for name in self.plan if name in words]

    def few(self, name: str) -> list[Class]:
        """A class for each kind of value; two of an order."""
        return self._few[name]

    def every(self, name: str) -> list[Class]:
        """All classes of a field."""
        return self._classes[name]

    def _few_classes(self, name: str) -> list[Class]:
        domain = self.domains[name]
        if domain.order:
            return [self._class(name, value) for value in (domain.choices[0], domain.choices[-1])]
        if domain.most:
            apart = {str(place) for place in range(3, domain.most + 1)}
            return [one for one in self._classes[name] if one.token not in apart]
        return self._classes[name]

    def _every_class(self, name: str) -> list[Class]:
        domain = self.domains[name]
        values: list[object] = [*domain.choices, *([None] if domain.empty else [])]
        if domain.numeric:
            values += [self.number(name), int(domain.ends[0]) if domain.whole else domain.ends[0]]
        elif domain.most:
            values += range(1, domain.most + 1)
        return list({one.token: one for one in (self._class(name, value) for value in values)}.values())

    def _class(self, name: str, value: object) -> Class:
        return Class(name, token(self.domains[name], value), value)

    def number(self, name: str) -> float:
        """A number that a field can be, and twice of it, neither being its least."""
        least, most = self.domains[name].ends
        asked = self.base[name]
        if self.domains[name].whole:
            return max(int(asked or 0), int(least) + 2)
        if asked and asked > least:
            return float(asked) if 2 * asked <= most else 0.25 * asked
        return 4.0 * least or 0.25 * min(most, 1.0)

    def key(self, changes: Fields) -> Key:
        """Changes from the base as what can be looked up."""
        changed = ((name, value) for name, value in changes.items() if value != self.base[name])
        return tuple(sorted(changed, key=operator.itemgetter(0)))

    def ask(self, changes: Fields) -> Values | None:
        """Arguments with these changes from the base; None where they are refused."""
        key = self.key(changes)
        if key not in self._known:
            try:
                self._known[key] = self.question.changed(dict(key)).numbers(self._same)
            except (InvalidValue, NotModelled) as refused:
                self.refused[key] = refused
                self._known[key] = None
        return self._known[key]

    def taken(self, wanted: Fields) -> Fields | None:
        """Changes that hold those wanted and are taken, with what their classes need beside them; None where there are none."""
        changes = dict(wanted)
        for name, value in wanted.items():
            changes = {**self.beside.get((name, token(self.domains[name], value)), {}), **changes}
        if self.ask(changes) is not None:
            return changes
        return next((wide for wide in self._named_beside(changes) if self.ask(wide) is not None), None)

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
    meetings = _Meetings(learner)
    drawn = list(meetings.draws())
    refusals = meetings.refusals()
    rules = _Rules(learner, refusals)
    rules.settle(drawn)
    return Conversion(learner.domains, rules.rules, refusals)


class _Meetings:
    """Draws questions until any two choices of a plan have met in one that is taken, or were found to be refused."""

    def __init__(self, learner: _Learner) -> None:
        self.learner, self.chance = learner, random.Random(7)
        self.classes = [one for name in learner.plan for one in learner.few(name)]
        self.places = {(one.name, one.token): place for place, one in enumerate(self.classes)}
        owners = np.array([learner.plan.index(one.name) for one in self.classes])
        self.owners = owners
        self.new = owners[:, None] != owners[None, :]
        """Pairs that have not met."""
        self.refused = np.zeros_like(self.new)
        for one in self.classes:
            for name in learner.beside.get((one.name, one.token), ()):
                for other in learner.few(name):
                    self._try(one, other)

    def draws(self) -> Iterator[Fields]:
        """Questions that are taken, in which any two choices of a plan that may have met."""
        met = FEW
        while met >= FEW:
            fields, classes = self._settled(self._mixed())
            met = self._meet(classes)
            yield fields
        for a, b in np.argwhere(np.triu(self.new)):
            self._try(self.classes[a], self.classes[b])
        for share in CHANGED * SPARE:
            yield self._settled(self._some_changed(share))[0]
        for name in self.learner.plan:
            for order in self.learner.every(name) if self.learner.domains[name].order else ():
                for _ in range(OF_ORDER):
                    yield self._settled([order, *self._numbers()])[0]

    def _mixed(self) -> list[Class]:
        """A class of every field: of a plan's those that meet most others for the first time, and are not known to be refused."""
        learner, chosen = self.learner, []
        gain, free = np.zeros(len(self.classes)), np.ones(len(self.classes), dtype=bool)
        for name in self.chance.sample(learner.plan, len(learner.plan)):
            places = [self.places[name, one.token] for one in learner.few(name)]
            open_places = [place for place in places if free[place]] or places
            best = max(open_places, key=lambda place: (gain[place], self.chance.random()))
            chosen.append(self.classes[best])
            gain += self.new[best]
            free &= ~self.refused[best]
        others = [name for name in learner.base if name not in learner.plan]
        return [*chosen, *(self.chance.choice(learner.few(name)) for name in others)]

    def _some_changed(self, share: float) -> list[Class]:
        return [self.chance.choice(self.learner.few(name)) for name in self.learner.base if self.chance.random() < share]

    def _numbers(self) -> list[Class]:
        """A class of every number of a plan."""
        numbers = [name for name in self.learner.plan if self.learner.domains[name].numeric]
        return [self.chance.choice(self.learner.few(name)) for name in numbers]

    def _settled(self, chosen: list[Class]) -> tuple[Fields, list[Class]]:
        """The nearest question that is taken, and those of the classes that it has."""
        learner = self.learner
        held = {one.name: one for one in chosen}
        changes = {name: self._like(one) for name, one in held.items()}
        while learner.ask(changes) is None:
            refused = learner.refused[learner.key(changes)]
            suspects = [name for name in learner.named(refused) if name in changes] or list(changes)
            for one, other in itertools.combinations([held[name] for name in suspects if name in learner.plan], 2):
                if len(suspects) < len(changes):
                    self._try(one, other)
            changed = [name for name in suspects if changes[name] != learner.base[name]] or list(changes)
            dropped = self.chance.choice(changed)
            del changes[dropped], held[dropped]
        return {**learner.base, **changes}, [one for one in held.values() if one.name in learner.plan]

    def _like(self, one: Class) -> object:
        """A value of a class: some numbers are doubled."""
        return 2 * one.value if one.token == ANY and self.chance.random() < 0.5 else one.value

    def _meet(self, classes: Iterable[Class]) -> int:
        """How many pairs of these had not met before; now they have."""
        places = np.array([self.places[one.name, one.token] for one in classes])
        among = np.ix_(places, places)
        pairs = int(self.new[among].sum()) // 2
        self.new[among] = False
        return pairs

    def _try(self, one: Class, other: Class) -> None:
        """Ask for two classes and nothing else, unless one of them needs a third beside it."""
        pair = {one.name: one.value, other.name: other.value}
        needs = [self.learner.beside.get((each.name, each.token), {}) for each in (one, other)]
        a, b = (self.places[each.name, each.token] for each in (one, other))
        self.new[a, b] = self.new[b, a] = False
        if all(set(need) <= set(pair) for need in needs) and self.learner.ask(pair) is None:
            self.refused[a, b] = self.refused[b, a] = True

    def refusals(self) -> list[Refusal]:
        """Values that are refused whatever the other fields, and pairs of values of which either alone is taken."""
        learner = self.learner
        found = [Refusal({name: known}, message) for (name, known), message in learner.never.items()]
        pairs = np.argwhere(np.triu(self.refused))
        by_fields = np.lexsort((*pairs.T[::-1], *self.owners[pairs].T[::-1]))
        for a, b in pairs[by_fields]:
            one, other = self.classes[a], self.classes[b]
            changes = {one.name: one.value, other.name: other.value}
            message = str(learner.refused[learner.key(changes)])
            for name, value in changes.items():
                message = message.replace(f"{name}={value!r}", f"{name}={{{name}}}")
            found.append(Refusal({one.name: one.token, other.name: other.token}, message))
        return found


class _Rules:
    """The rules of all arguments, and the fields on which each is known to hang."""

    def __init__(self, learner: _Learner, refusals: Collection[Refusal]) -> None:
        self.learner = learner
        self.refused = [set(refusal.tokens.items()) for refusal in refusals]
        start = learner.ask({})
        assert start is not None
        self.numbers: dict[str, set[str]] = {path: set() for path in start}
        self.choices: dict[str, set[str]] = {path: set() for path in start}
        for name in learner.base:
            for context in [{}, *(learner.beside.get((name, one.token), {}) for one in learner.few(name))]:
                self._vary(name, context)
        self.rules = {path: self._rule(path) for path in start}

    def _vary(self, name: str, context: Fields) -> None:
        """Note which arguments follow a field, as a number or as a choice."""
        learner = self.learner
        numeric = learner.domains[name].numeric
        value: Any = learner.number(name) if numeric else {**learner.base, **context}[name]
        context = {**context, name: value}
        before = learner.ask(context)
        if before is None:
            return
        entering: dict[str, int] = {}
        if numeric and (twice := learner.ask({**context, name: 2 * value})) is not None:
            entering = {path: learner.power(name, context, path) for path in before if twice[path] != before[path]}
            for path in entering:
                self.numbers[path].add(name)
        for one in learner.few(name):
            if one.value == value or (after := learner.ask({**context, name: one.value})) is None:
                continue
            for path, number in before.items():
                if path in entering and one.value is not None:
                    number *= (float(one.value) / value) ** entering[path]
                if not _close(after[path], number):
                    self.choices[path].add(name)

    def settle(self, drawn: Collection[Fields]) -> None:
        """Hold the rules against questions, and find the further fields on which an argument hangs where they miss it.

        Parameters
        ----------
        drawn : fields of questions that are taken
        """
        learner = self.learner
        asked = [(fields, learner.ask(fields) or {}, self._tokens(fields)) for fields in drawn]
        columns = zip(*(values.values() for _, values, _ in asked), strict=True)
        seen = {path: set(column) for path, column in zip(self.rules, columns, strict=True)}
        waiting = [path for path, rule in self.rules.items() if rule.constant is None or seen[path] != {rule.constant}]
        for _ in range(ROUNDS):
            missed = {path: one[0] for path in waiting for one in asked if not self._holds(path, *one)}
            for path, fields in missed.items():
                self._hang(path, fields)
                self.rules[path] = self._rule(path)
            waiting = list(missed)
            if not waiting:
                return
        raise InvalidValue(waiting[0], missed[waiting[0]], "a product of the fields, which it isn't")

    def _hang(self, path: str, fields: Fields) -> None:
        """Add the field with which a rule begins to hold, on the way from a question that it misses to the one it comes from."""
        learner, rule = self.learner, self.rules[path]
        wanted = {name: learner.number(name) for name in self.numbers[path]} | {name: fields[name] for name in rule.by}
        learnt = {**learner.base, **(learner.taken(wanted) or wanted)}
        left = [name for name, value in fields.items() if value != learnt[name]]
        waiting: list[str] = []
        while left:
            name = left.pop(0)
            nearer = {**fields, name: learnt[name]}
            if learner.ask(nearer) is None:
                waiting.append(name)
                continue
            fields, left, waiting = nearer, [*waiting, *left], []
            if self._holds(path, fields, learner.ask(fields) or {}, self._tokens(fields)):
                numeric = learner.domains[name].numeric and name not in self.numbers[path]
                (self.numbers if numeric else self.choices)[path].add(name)
                return
        self.choices[path] |= set(waiting)

    def _tokens(self, fields: Fields) -> dict[str, str]:
        return {name: token(self.learner.domains[name], value) for name, value in fields.items()}

    def _holds(self, path: str, fields: Fields, values: Values, tokens: dict[str, str]) -> bool:
        """Whether the rule of an argument gives what the library has for a question."""
        rule = self.rules[path]
        term = rule.terms.get(tuple(tokens[name] for name in rule.by))
        told = term is not None and all(fields[name] is not None for name in term.powers)
        return told and term is not None and _close(values[path], term.value(fields))

    def _rule(self, path: str) -> Rule:
        """The rule of one argument, for all choices but those that are refused beside each other."""
        learner, numbers = self.learner, self.numbers[path]
        by = tuple(name for name in learner.base if name in self.choices[path])
        terms = {}
        for combination in itertools.product(*map(learner.every, by)):
            tokens = {(one.name, one.token) for one in combination}
            if len(by) > 1 and any(pair <= tokens for pair in self.refused):
                continue
            chosen = {one.name: one.value for one in combination}
            changes = learner.taken({name: learner.number(name) for name in numbers} | chosen)
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
            terms[tuple(one.token for one in combination)] = Term(factor, powers)
        return Rule(by, terms)


def _close(one: float, other: float) -> bool:
    return one == other or abs(one - other) <= CLOSE * abs(other)


def refused_by_framework(question: Asked, conversion: Conversion) -> list[Refusal]:
    """Values that a plan may have but this framework hasn't: those of which no formula knows.

    Parameters
    ----------
    question : whose framework
    conversion : of its fields
    """
    leading = ("zero_stage", "pipeline_parallel")  # what a framework shards, with a pipeline and without
    sharding = {name for rule in conversion.rules.values() if leading[0] in rule.by for name in rule.by}
    groups = [
        (*leading, *sorted(sharding - {leading[0]})), ("schedule", "virtual_stages", "pipeline_parallel"), ("dtype",),
        ("context_communication", "context_parallel"),
        *((one.field,) for one in DIMENSIONS if one.column in SPLITTING),
        *((one.field, other.field) for one, other in question.framework.exclusive),
    ]  # fmt: skip
    found, neutral = [], question.neutral()
    for fields in (
        dict(zip(names, values, strict=True))
        for names in groups for values in itertools.product(*(_samples(conversion, name) for name in names))
    ):  # fmt: skip
        try:
            plan = neutral.changed(fields).plan
            plan.resolve(neutral.framework, neutral.cluster.device).check_framework(neutral.framework)
        except IllegalPlan as refused:
            message = str(refused)
            for name, value in fields.items():
                message = message.replace(f"{name}={value!r}", f"{name}={{{name}}}")
            found.append(Refusal({name: token(conversion.domains[name], value) for name, value in fields.items()}, message))
        except InvalidValue:  # values that no plan has beside each other
            continue
    return found


def _samples(conversion: Conversion, name: str) -> list[object]:
    domain = conversion.domains[name]
    values: list[object] = list(domain.choices)
    if domain.numeric:
        values = [int(domain.ends[0]), int(domain.ends[0]) + 1]
    return [*values, None] if domain.empty else values


__all__ = ["learn", "refused_by_framework"]

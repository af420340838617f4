"""Which plans are refused, and in which words: what the formulas of legality and the library's own checks say, as templates.

A template has a field, or a product of fields, in braces.
"""

from __future__ import annotations

import copy
import itertools

from costmodel.description.dimensions import DIMENSIONS
from costmodel.description.framework import SPLITTING
from costmodel.description.plan import Plan, explain
from costmodel.formulas.legality import Violations
from costmodel.page.conversion import Conversion, Refusal, token
from costmodel.page.question import Asked
from costmodel.text.errors import CostModelError, IllegalPlan


class _Number(int):
    """A number of a plan that is written as a template; what is made of it is written as how it is made."""

    text: str

    def __new__(cls, value: int, text: str) -> _Number:
        made = super().__new__(cls, value)
        made.text = text
        return made

    def __mul__(self, other: int) -> _Number:
        return _Number(int(self) * int(other), f"{self.text}*{getattr(other, 'text', other)}")

    def __floordiv__(self, other: int) -> _Number:
        return _Number(int(self) // int(other), f"{self.text}/{str(getattr(other, 'text', other)).replace('*', '/')}")

    def __format__(self, how: str) -> str:
        return "{" + self.text + "}"

    def __str__(self) -> str:
        return "{" + self.text + "}"

    __repr__ = __str__


class _Word(str):
    """A word of a plan that is written as a template."""

    def __str__(self) -> str:
        return "{" + self + "}"

    def __format__(self, how: str) -> str:
        return str(self)

    __repr__ = __str__


def texts(question: Asked) -> dict[str, str]:
    """For each rule of legality the words in which a plan that breaks it is refused, as a template.

    Parameters
    ----------
    question : whose model and cluster the words name
    """
    plan = object.__new__(Plan)  # no field of it has passed a check: each is its own name
    for name in Plan.__dataclass_fields__:
        value = getattr(question.plan, name)
        whole = isinstance(value, int) and not isinstance(value, bool)
        shown = _Number(question.model.heads, name) if whole or name == "zero_stage" else _Word(name)
        object.__setattr__(plan, name, shown)
    cluster = copy.copy(question.cluster)
    object.__setattr__(cluster, "gpus", _Number(1, "gpus"))
    return {reason: explain(reason, plan, question.model, cluster) for reason in Violations._fields}


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
    found = []
    for fields in (
        dict(zip(names, values, strict=True))
        for names in groups for values in itertools.product(*(_samples(conversion, name) for name in names))
    ):  # fmt: skip
        try:
            changed = question.neutral().changed(fields)
            changed.plan.check(changed.model, changed.cluster, changed.framework)
        except IllegalPlan as refused:
            if refused.reason not in Violations._fields:
                message = str(refused)
                for name, value in fields.items():
                    message = message.replace(f"{name}={value!r}", f"{name}={{{name}}}")
                found.append(Refusal({name: token(conversion.domains[name], value) for name, value in fields.items()}, message))
        except CostModelError:
            continue
    return found


def _samples(conversion: Conversion, name: str) -> list[object]:
    domain = conversion.domains[name]
    values: list[object] = list(domain.choices)
    if domain.numeric:
        values = [int(domain.ends[0]), int(domain.ends[0]) + 1]
    return [*values, None] if domain.empty else values


__all__ = ["refused_by_framework", "texts"]

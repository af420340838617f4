"""What the fields of a question make of the arguments of the formulas, as tables that need no Python.

An argument is a constant, or a product of numbers among the fields, and which of these may hang on choices.
`costmodel.page.learning` fills the tables from the library's own conversion.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from costmodel.page.question import Domain, Fields

Values = dict[str, float]
"""Arguments of the formulas by their path, as ``settings.seq_len``."""
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

    @property
    def constant(self) -> float | None:
        """The value of an argument that nothing changes."""
        terms = list(self.terms.values())
        return None if len(terms) != 1 or self.by or terms[0].powers else terms[0].factor


class Refusal(NamedTuple):
    """Values of one or two fields that no plan can have."""

    tokens: dict[str, str]
    message: str


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


__all__ = ["ANY", "EMPTY", "LEAST", "Conversion", "Refusal", "Rule", "Term", "Values", "token"]

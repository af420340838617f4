"""What is compared: each combination of the values of a question's arguments, called by those that differ."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from costmodel.arithmetic.named_tuples import Row
from costmodel.description.fields import table
from costmodel.description.plan import Plan
from costmodel.text.errors import CostModelError
from costmodel.text.units import counted

MOST = 64
"""Choices that are compared at most."""
THINGS = {"gpus": "GPU", "nodes": "node", "global_batch": "sequence", "seq_len": "token"}
"""What is counted by arguments that count."""


def called(field: str, value: object) -> str:
    """A value by which a choice is called.

    Parameters
    ----------
    field : of a plan, or another argument of a question
    value : of it

    Examples
    --------
    >>> called("gpus", 16), called("sequence_parallel", True), called("device", "h100")
    ('16 GPUs', 'sequence parallel yes', 'h100')
    """
    if field in THINGS and isinstance(value, int | float):
        return counted(value, THINGS[field])
    shown = {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
    row = table(Plan).get(field)
    words = "network" if field == "network" else "" if row is None else row.words
    return f"{words} {shown}".strip()


def crossed(varied: Sequence[Sequence[tuple[str, Row]]]) -> dict[str, Row]:
    """Every combination of values, by the names of those that differ.

    Parameters
    ----------
    varied : of each argument its values, each with its name and what it sets

    Raises
    ------
    CostModelError
        for more than `MOST`

    Examples
    --------
    >>> crossed([[("h100", {"device": "h100"}), ("b200", {"device": "b200"})], [("8 GPUs", {"gpus": 8})]])
    {'h100': {'device': 'h100', 'gpus': 8}, 'b200': {'device': 'b200', 'gpus': 8}}
    """
    found: dict[str, Row] = {}
    for combination in itertools.product(*varied):
        fields: Row = {}
        for _, changes in combination:
            fields |= changes
        found[", ".join(word for (word, _), those in zip(combination, varied, strict=True) if len(those) > 1)] = fields
        if len(found) > MOST:
            raise CostModelError(f"more than {MOST} choices to compare: give fewer values (`costmodel sweep` takes more)")
    return found

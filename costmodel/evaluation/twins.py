"""Plans that are the same but for something that changes neither time nor memory: one row of a ranking."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence

from costmodel.arithmetic.named_tuples import Row
from costmodel.evaluation.selection import EvaluatedRow

TWIN = 1e-3
"""Share of time and of memory by which twins may differ."""
WITH_TWINS = 4
"""Plans kept for each row of a ranking, as a row may stand for several."""


def groups_of_twins(found: Sequence[EvaluatedRow], choices: Sequence[Mapping[str, object]]) -> list[list[EvaluatedRow]]:
    """Plans in groups of twins, the fastest of each first, the groups by their fastest.

    Twins take the time and the memory of the first of their group within `TWIN`, and each differs from another of the group
    in one thing alone.

    Parameters
    ----------
    found : the fastest first
    choices : of each `Found.choice`, what plans of it have in common
    """
    groups: list[list[EvaluatedRow]] = []
    times: list[float] = []
    made: dict[int, Row] = {}

    def features(one: EvaluatedRow) -> Row:
        if id(one) not in made:
            made[id(one)] = {**one.values, **{f"choice.{name}": value for name, value in choices[one.choice].items()}}
        return made[id(one)]

    for one in found:
        near = bisect.bisect_left(times, one.time * (1.0 - TWIN))
        for group in groups[near:]:
            first = group[0]
            alike = abs(one.held - first.held) <= TWIN * first.held
            if alike and any(_differences(features(one), features(other)) <= 1 for other in group):
                group.append(one)
                break
        else:
            groups.append([one])
            times.append(one.time)
    return groups


def led_by(first: EvaluatedRow, rows: Sequence[list[EvaluatedRow]]) -> list[list[EvaluatedRow]]:
    """Rows of a ranking with the one that holds a plan put first, and the plan first in it.

    Parameters
    ----------
    first : the plan
    rows : as `groups_of_twins` gives them
    """
    its = next(row for row in rows if any(one is first or one == first for one in row))
    led = [first, *(one for one in its if one != first)]
    return [led, *(row for row in rows if row is not its)]


def _differences(one: Mapping[str, object], other: Mapping[str, object]) -> int:
    """In how many things two plans differ."""
    return sum(one.get(name) != other.get(name) for name in one.keys() | other.keys())

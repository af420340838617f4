"""Why one plan is slower than another: the parts of their steps side by side."""

from __future__ import annotations

import math
from typing import NamedTuple

from costmodel.evaluation.estimation import TIME_PARTS, Estimate
from costmodel.text.checks import kind


class PartDifference(NamedTuple):
    """What one part of the step adds from the first plan to the second."""

    part: str  # of the step
    first: float  # first, second: its time in each [s]
    second: float

    @property
    def added(self) -> float:
        """Seconds that the second plan takes more."""
        return self.second - self.first


def differences(first: Estimate, second: Estimate, least: float = 0.0, scale: float = 1.0) -> tuple[PartDifference, ...]:
    """Parts by which two steps differ, the largest change first; they add up to the difference of the steps.

    Parameters
    ----------
    first, second : estimates
    least : changes below this are summed as ``"other"`` [s]
    scale : of the second's times, where its step trains another number of tokens

    Returns
    -------
    tuple
        of `PartDifference`

    Raises
    ------
    InvalidValue
        where an argument is no estimate
    """
    for name, value in (("first", first), ("second", second)):
        kind(name, value, Estimate, "estimate(...)")
    every = [PartDifference(part, first.times[part], scale * second.times[part]) for part in TIME_PARTS]
    large = sorted((one for one in every if abs(one.added) > least), key=lambda one: -abs(one.added))
    small = [one for one in every if abs(one.added) <= least]
    rest = PartDifference("other", sum(one.first for one in small), sum(one.second for one in small))
    return (*large, *([rest] if least > 0.0 and not math.isclose(rest.first, rest.second) else []))

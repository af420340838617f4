"""What calibration knows of the constants: their means and joint spread, pooled over frameworks and architectures."""

from __future__ import annotations

import math
from typing import NamedTuple


class Link(NamedTuple):
    """The map of a constant between bounds to the whole line, on which it is taken for normal.

    Without an upper bound the map is the logarithm of what lies above the lower bound, else the logit.

    Parameters
    ----------
    low, high : bounds of the constant, in its unit; `high` may be infinite

    Examples
    --------
    >>> share = Link(0.0, 1.0)
    >>> share.to_line(0.5), round(share.to_constant(2.0), 3)
    (0.0, 0.881)
    """

    low: float
    high: float

    def to_line(self, value: float) -> float:
        """The place of a constant on the line.

        Parameters
        ----------
        value : the constant, between its bounds
        """
        if math.isinf(self.high):
            return math.log(value - self.low)
        return math.log((value - self.low) / (self.high - value))

    def to_constant(self, place: float) -> float:
        """The constant at a place on the line.

        Parameters
        ----------
        place : any real number
        """
        if math.isinf(self.high):
            return self.low + math.exp(place)
        return self.low + (self.high - self.low) / (1.0 + math.exp(-place))

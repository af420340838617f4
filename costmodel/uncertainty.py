"""How wrong an estimate may be: the constants' covariance and the residual of the software family, learnt by calibration."""

from __future__ import annotations

import dataclasses
import functools
import math
import tomllib
from importlib import resources
from typing import Any

from costmodel.frameworks import Framework
from costmodel.hardware.device import Device

NINETY = 1.6448536269514722
"""Standard deviations on each side that hold 90 % of a normal distribution."""


@dataclasses.dataclass(frozen=True)
class Spread:
    """Error of a family of estimates, in logarithms.

    Parameters
    ----------
    time, memory : standard deviation of log(measured / predicted) on runs that the fit did not see
    rows : how many runs that rests on
    calibrated : whether the family has measurements of its own
    """

    time: float
    memory: float
    rows: int
    calibrated: bool


@functools.cache
def _table() -> dict[str, Any]:
    text = (resources.files("costmodel.catalogue") / "residuals.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def spread_of(framework: Framework, device: Device) -> Spread:
    """Error to expect of a framework on a device.

    A framework or an architecture without measurements of its own takes the spread between families; a framework
    known on another architecture adds the spread between devices.

    Parameters
    ----------
    framework, device : of the estimate
    """
    table = _table()
    default = table["default"]
    family = table["framework"].get(framework.name)
    if family is None:
        return Spread(default["time"], default["memory"], 0, False)
    known = device.architecture in family["architectures"]
    apart = 0.0 if known else default["between_devices"]
    return Spread(
        math.hypot(family.get("time", default["time"]), apart), family.get("memory", default["memory"]), family["rows"],
        known,
    )  # fmt: skip


def interval(value: float, spread: float) -> tuple[float, float]:
    """The 90 % interval of a log-normal estimate.

    Parameters
    ----------
    value : median, any unit
    spread : standard deviation of its logarithm

    Examples
    --------
    >>> [round(bound, 3) for bound in interval(1.0, 0.05)]
    [0.921, 1.086]
    """
    factor = math.exp(NINETY * spread)
    return value / factor, value * factor


def probability_below(value: float, limit: float, spread: float) -> float:
    """Probability that what is estimated stays below a limit.

    Parameters
    ----------
    value : median, any unit
    limit : in the same unit
    spread : standard deviation of the estimate's logarithm

    Examples
    --------
    >>> probability_below(80.0, 80.0, 0.05)
    0.5
    """
    return 0.5 * math.erfc(math.log(value / limit) / (max(spread, 1e-9) * math.sqrt(2.0)))

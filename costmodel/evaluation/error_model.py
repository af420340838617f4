"""How wrong an estimate may be: the constants' covariance and the residual of the software family, learnt by calibration."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import tomllib
from collections.abc import Callable
from importlib import resources
from typing import Any

from costmodel.catalogue.loader import efficiency_source, names
from costmodel.description.device import Device
from costmodel.description.framework import Framework
from costmodel.formulas.quantities import DeviceNumbers, Software
from costmodel.records import flat, replaced

NINETY = 1.6448536269514722
"""Standard deviations on each side that hold 90 % of a normal distribution."""
STEP = 1e-4
"""Relative change of a constant by which slopes are taken."""


@dataclasses.dataclass(frozen=True)
class Spread:
    """Error of a family of estimates, in logarithms.

    Parameters
    ----------
    time, memory : standard deviation of log(measured / predicted) on runs that the fit did not see
    within : the same between plans of one model on one cluster, whose common error cancels in a comparison
    margin : share of a device's memory up to which an estimate may go to be called fitting, learnt from runs that ran
        and runs that ran out of memory
    rows : how many runs that rests on
    calibrated : whether the family has measurements of its own, on this architecture
    """

    time: float
    memory: float
    within: float
    margin: float
    rows: int
    calibrated: bool


@functools.cache
def _table(file: str) -> dict[str, Any]:
    text = (resources.files("costmodel.catalogue") / file).read_text(encoding="utf-8")
    return json.loads(text) if file.endswith(".json") else tomllib.loads(text)  # type: ignore[no-any-return]


def _measured(device: Device) -> bool:
    return device.name in names("device") and efficiency_source(device.name) == "measured"


def spread_of(framework: Framework, device: Device) -> Spread:
    """Error to expect of a framework on a device.

    A framework without measurements takes the error that the default constants make over all families; one that is
    known on another architecture, or on a device that borrows its constants, adds the spread between devices.

    Parameters
    ----------
    framework, device : of the estimate
    """
    table = _table("residuals.toml")
    default = table["default"]
    family = table["framework"].get(framework.name)
    if framework.time_error is not None:
        known = family or default
        memory, margin = known.get("memory", default["memory"]), known["margin"]
        return Spread(framework.time_error, memory, min(known.get("within", 1.0), framework.time_error), margin, 0, True)
    if family is None:
        return Spread(default["time"], default["memory"], default["within"], default["margin"], 0, False)
    known = device.architecture in family["architectures"] and _measured(device)
    apart = 0.0 if known else default["between_devices"]
    return Spread(
        math.hypot(family["time"], apart), family.get("memory", default["memory"]),
        family.get("within", default["within"]), family["margin"], family["rows"], known,
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


@dataclasses.dataclass(frozen=True)
class Slopes:
    """How an estimate follows its constants: slopes of its logarithm, one block for each owner of constants.

    Parameters
    ----------
    blocks : for each owner the slopes and the covariance of the logarithms of its constants
    """

    blocks: tuple[tuple[tuple[float, ...], tuple[tuple[float, ...], ...]], ...]

    def covariance(self, other: Slopes) -> float:
        """Covariance of two estimates' logarithms that shared constants cause."""
        return sum(
            sum(a * c * b for a, row in zip(mine, matrix, strict=True) for c, b in zip(row, theirs, strict=True))
            for (mine, matrix), (theirs, _) in zip(self.blocks, other.blocks, strict=True)
        )


def _moved_device(numbers: DeviceNumbers, field: str, dtype: str) -> DeviceNumbers:
    factor = 1.0 + STEP
    if field.startswith("gemm."):
        fitted = field[5:]
        gemm = factor if dtype == fitted or (fitted == "bf16" and dtype == "fp16") else 1.0
        base = factor if fitted == "bf16" else 1.0
        return numbers._replace(
            gemm_efficiency=numbers.gemm_efficiency * gemm, base_gemm_efficiency=numbers.base_gemm_efficiency * base
        )
    return numbers._replace(**{field: getattr(numbers, field) * factor})


def slopes_of(
    logarithm: Callable[[DeviceNumbers, Software], float], device: Device, framework: Framework, dtype: str
) -> Slopes:
    """Slopes of an estimate's logarithm in the constants of its device and its framework.

    Parameters
    ----------
    logarithm : the estimate's, of a device's and a framework's numbers
    device, framework : of the estimate
    dtype : of the GEMMs
    """
    table = _table("correlations.json")
    numbers, software = device.numbers(dtype), framework.numbers()
    base, constants = logarithm(numbers, software), flat(software)
    blocks = []
    source = efficiency_source(device.name) if device.name in names("device") else ""
    for owner in (device.name if source == "measured" else source.removeprefix("borrowed from "), framework.owner):
        entry = table.get(owner)
        if entry is None:
            continue
        slopes = []
        for field in entry["fields"]:
            if field in constants and owner == framework.owner:
                moved = logarithm(numbers, replaced(software, {field: constants[field] * (1.0 + STEP)}))
            else:
                moved = logarithm(_moved_device(numbers, field, dtype), software)
            slopes.append((moved - base) / STEP)
        errors = entry["standard_error"]
        matrix = tuple(
            tuple(a * b * c for b, c in zip(errors, row, strict=True))
            for a, row in zip(errors, entry["matrix"], strict=True)
        )
        blocks.append((tuple(slopes), matrix))
    return Slopes(tuple(blocks))

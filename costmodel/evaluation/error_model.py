"""How wrong an estimate may be: the constants' covariance and the residual of the software family, learnt by calibration."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import sys
import tomllib
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any

from costmodel.catalogue.loader import efficiency_source, names
from costmodel.description.device import Device
from costmodel.description.framework import Framework
from costmodel.errors import InvalidValue
from costmodel.formulas.quantities import DeviceNumbers, Software
from costmodel.records import flat, nested, replaced

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


def constant_error(field: str, device: Device, framework: Framework) -> tuple[float, str]:
    """Standard error of the logarithm of a calibrated constant, and where it comes from.

    Parameters
    ----------
    field : of a device's or a stack's numbers; ``"gemm.bf16"`` and the like of a device's products
    device, framework : whose constant it is

    Returns
    -------
    tuple
        the error, and its source in words; of a constant that was never fitted for either, the widest error of any that was

    Raises
    ------
    InvalidValue
        where no calibration has such a constant

    Examples
    --------
    >>> from costmodel import load_device, load_framework
    >>> error, source = constant_error("memory_bandwidth", load_device("h100-sxm"), load_framework("nemo", "hopper"))
    >>> 0.0 < error < 0.2, source
    (True, 'calibration of h100-sxm')
    """
    table = _table("correlations.json")
    source = efficiency_source(device.name) if device.name in names("device") else ""
    mine = device.name if source == "measured" else source.removeprefix("borrowed from ")
    for owner in (mine, framework.owner):
        entry = table.get(owner)
        if entry is not None and field in entry["fields"]:
            return float(entry["standard_error"][entry["fields"].index(field)]), f"calibration of {owner}"
    found = [entry["standard_error"][entry["fields"].index(field)] for entry in table.values() if field in entry["fields"]]
    if not found:
        raise InvalidValue("field", field, "a constant that calibration fits")
    return float(max(found)), "the widest of all calibrations: none has this device or framework"


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
    total: Callable[[DeviceNumbers, Software], Any], device: Device, framework: Framework, dtype: str
) -> Slopes:
    """Slopes of an estimate's logarithm in the constants of its device and its framework.

    Parameters
    ----------
    total : the estimate, of a device's and a framework's numbers, or of columns of them
    device, framework : of the estimate
    dtype : of the GEMMs
    """
    table = _table("correlations.json")
    numbers, software = device.numbers(dtype), framework.numbers()
    constants = flat(software)
    source = efficiency_source(device.name) if device.name in names("device") else ""
    owners = (device.name if source == "measured" else source.removeprefix("borrowed from "), framework.owner)
    entries = [(owner, table[owner]) for owner in owners if owner in table]
    moved = [(numbers, software)]
    for owner, entry in entries:
        for field in entry["fields"]:
            if field in constants and owner == framework.owner:
                moved.append((numbers, replaced(software, {field: constants[field] * (1.0 + STEP)})))
            else:
                moved.append((_moved_device(numbers, field, dtype), software))
    first, *rest = _logarithms(total, moved)
    slopes = [(one - first) / STEP for one in rest]
    blocks, place = [], 0
    for _, entry in entries:
        mine = tuple(slopes[place : place + len(entry["fields"])])
        place += len(mine)
        errors = entry["standard_error"]
        matrix = tuple(
            tuple(a * b * c for b, c in zip(errors, row, strict=True))
            for a, row in zip(errors, entry["matrix"], strict=True)
        )
        blocks.append((mine, matrix))
    return Slopes(tuple(blocks))


def _logarithms(total: Callable[[DeviceNumbers, Software], Any], moved: Sequence[tuple[DeviceNumbers, Software]]) -> list[float]:
    """Logarithms of an estimate at some constants: all in one evaluation where NumPy is loaded, else one by one."""
    if "numpy" not in sys.modules:
        return [math.log(total(*one)) for one in moved]
    import numpy as np

    devices = np.array([one for one, _ in moved]).T
    constants = [flat(one) for _, one in moved]
    software = nested(Software, {path: np.array([one[path] for one in constants]) for path in constants[0]})
    with np.errstate(divide="ignore", invalid="ignore"):  # the arm of `where` that is not taken
        found: list[float] = np.log(total(DeviceNumbers(*devices), software)).tolist()
    return found

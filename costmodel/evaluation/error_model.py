"""How wrong an estimate may be: the constants' covariance and the residual of the software family, learnt by calibration."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import statistics
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
from costmodel.records import flat, nested, paths, replaced

NINETY = 1.6448536269514722
"""Standard deviations on each side that hold 90 % of a normal distribution."""
CLOCKED = (
    "gemm_efficiency", "base_gemm_efficiency", "attention_forward_efficiency", "attention_backward_efficiency",
)  # fmt: skip
"""What a device computes at its clock."""
STEP = 1e-4
"""Relative change of a constant by which slopes are taken."""


@dataclasses.dataclass(frozen=True)
class Spread:
    """Error of a family of estimates, in logarithms.

    Parameters
    ----------
    time : standard deviation of log(measured / predicted) that the constants don't explain: of clusters, of models on one
        and of the runs of a model, each of which is new
    memory : standard deviation of log(measured / predicted) of the peak memory
    within : of time between plans of one model on one cluster, whose common error cancels in a comparison
    widening : factor on the standard deviation that the constants' covariance gives: what cross-validation showed to be
        needed for nine in ten where a question is as new as this one
    typical : of time with what constants add, on the median of such questions
    rows : runs of the framework
    calibrated : whether runs of the framework were measured on this device
    evidence : the same in words
    """

    time: float
    memory: float
    within: float
    widening: float
    typical: float
    rows: int
    calibrated: bool
    evidence: str = ""

    def margin(self, probability: float) -> float:
        """Share of a device's memory up to which an estimate may go for the plan to fit with a probability.

        Parameters
        ----------
        probability : between 0 and 1
        """
        return math.exp(-float(statistics.NormalDist().inv_cdf(probability)) * self.memory)


@functools.cache
def _table(file: str) -> dict[str, Any]:
    text = (resources.files("costmodel.catalogue") / file).read_text(encoding="utf-8")
    return json.loads(text) if file.endswith(".json") else tomllib.loads(text)  # type: ignore[no-any-return]


def novelty(framework: Framework, device: Device) -> str:
    """How new a question about a cluster is to calibration: ``"cluster"``, ``"device"`` or ``"framework"``.

    Parameters
    ----------
    framework, device : of the question
    """
    family = _table("residuals.toml")["framework"].get(framework.name)
    if family is None:
        return "framework"
    return "cluster" if device.name in family["devices"] else "device"


def evidence_of(framework: Framework, device: Device, experts: bool) -> str:
    """How near measurements are to a question, in words.

    Parameters
    ----------
    framework, device : of the question
    experts : whether the model is a mixture of experts

    Examples
    --------
    >>> import costmodel
    >>> evidence_of(costmodel.load_framework("oneflow"), costmodel.load_device("h100-sxm"), experts=True)
    '18 runs of this framework; none of them on this device; none of a mixture of experts'
    """
    family = _table("residuals.toml")["framework"].get(framework.name)
    if family is None:
        return "no run of this framework: the mean of all frameworks"
    on_device, of_experts = family["devices"].get(device.name, 0), family["experts"]
    words = [f"{family['rows']} runs of this framework", f"{on_device or 'none'} of them on this device"]
    if experts:
        words.append(f"{of_experts or 'none'} of a mixture of experts")
    if framework.time_error is not None:
        words.insert(0, "calibrated on own runs")
    return "; ".join(words)


def spread_of(framework: Framework, device: Device, experts: bool = False) -> Spread:
    """Error to expect of a framework on a device, on a cluster that was never measured.

    Parameters
    ----------
    framework, device : of the estimate
    experts : whether the model is a mixture of experts
    """
    table = _table("residuals.toml")
    level = novelty(framework, device)
    time, memory = table["time"][level], table["memory"][level]
    family = table["framework"].get(framework.name, {"rows": 0})
    spread, widening, typical = time["widening"] * time["spread"], time["widening"], time["typical"]
    if framework.time_error is not None:
        spread = typical = framework.time_error
        widening = 1.0
    return Spread(
        spread, memory["spread"], min(table["time"]["plan"]["spread"], spread), widening, typical, family["rows"],
        level == "cluster", evidence_of(framework, device, experts),
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
    source = efficiency_source(device.name) if device.name in names("device") else ""
    owner = device.name if source == "measured" else source.removeprefix("borrowed from ")
    measured = _table("efficiencies.toml")
    key = {"memory_bandwidth": "memory"}.get(field, field.replace(".", "_"))
    of_devices = {name: entry["standard_error"] for name, entry in measured.items() if "standard_error" in entry}
    if key in of_devices.get(owner, {}):
        return float(of_devices[owner][key]), f"calibration of {owner}"
    table = _table("correlations.json")
    entries = {name: dict(zip(one["fields"], one["standard_error"], strict=True)) for name, one in table.items()}
    own = entries.get(framework.owner) or entries["@"]
    if field in own:
        return float(own[field]), f"calibration of {framework.owner if framework.owner in entries else 'all frameworks'}"
    found = [one[field] for one in entries.values() if field in one] + [one[key] for one in of_devices.values() if key in one]
    if found:
        return float(max(found)), "the widest of all calibrations: none has this device or framework"
    if field in paths(Software):  # no run tells it apart from its prior
        return float(max(max(one.values()) for one in entries.values() if one)), "the widest of any: no run identifies it"
    raise InvalidValue("field", field, "a constant that calibration fits")


def _moved_device(numbers: DeviceNumbers, field: str, dtype: str) -> DeviceNumbers:
    factor = 1.0 + STEP
    if field == "sustained_clock":
        return numbers._replace(**{clocked: getattr(numbers, clocked) * factor for clocked in CLOCKED})
    if field.startswith("gemm."):
        fitted = field[5:]
        gemm = factor if dtype == fitted or (fitted == "bf16" and dtype == "fp16") else 1.0
        base = factor if fitted == "bf16" else 1.0
        return numbers._replace(
            gemm_efficiency=numbers.gemm_efficiency * gemm, base_gemm_efficiency=numbers.base_gemm_efficiency * base
        )
    return numbers._replace(**{field: getattr(numbers, field) * factor})


def covariance_of(framework: Framework) -> tuple[list[str], list[list[float]]]:
    """Constants of a framework that calibration is unsure of, and the covariance of their logarithms.

    Parameters
    ----------
    framework : of the catalogue; one whose owner is unknown gives the spread of any framework
    """
    table = _table("correlations.json")
    entry = table.get(framework.owner) or table["@"]
    errors = entry["standard_error"]
    matrix = [
        [a * b * c for b, c in zip(errors, row, strict=True)] for a, row in zip(errors, entry["matrix"], strict=True)
    ]
    return list(entry["fields"]), matrix


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

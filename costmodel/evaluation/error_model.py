"""How wrong an estimate may be: the covariance of its constants, and how far first contacts lay from estimates like it."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from costmodel.arithmetic.dual_numbers import Dual, bare
from costmodel.arithmetic.named_tuples import as_number, flat, from_numbers, paths, replaced
from costmodel.catalogue import effects
from costmodel.catalogue.files import table_of
from costmodel.catalogue.loader import constant_errors, names
from costmodel.catalogue.releases import base_name
from costmodel.description.device import Device
from costmodel.description.framework import Framework
from costmodel.evaluation.first_contacts import NINETY, Error, memory_error, room_error, time_error, usual_constants
from costmodel.formulas.quantities import DeviceNumbers, Number, Software
from costmodel.text.errors import InvalidValue

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

OF_DEVICE = {
    "memory": ("memory_bandwidth",), "cast": ("cast_bandwidth",), "kernel_time": ("kernel_time",),
    "gemm": ("gemm_efficiency", "base_gemm_efficiency"), "gemm_output": ("gemm_output", "base_gemm_output"),
    "gemm_depth": ("gemm_depth", "base_gemm_depth"), "product_memory": ("product_bandwidth",),
    "grouped": ("grouped_efficiency",), "grouped_rows": ("grouped_rows",), "grouped_output": ("grouped_output",),
    "grouped_memory": ("grouped_bandwidth",), "attention_forward": ("attention_forward_efficiency",),
    "attention_backward": ("attention_backward_efficiency",), "attention_length": ("attention_length",),
    "attention_width": ("attention_width",), "attention_rows": ("attention_rows",),
}  # fmt: skip
"""Numbers that each constant of a device sets; those whose names begin with ``base_`` are of the 16-bit dtype."""
KNOWN = 0.02
"""Standard error of a constant's logarithm up to which it counts as known."""
STATE_TIME, STATE_MEMORY = 0.25, 0.1
"""Standard deviations of the logarithms of time and memory of a model all of whose layers keep a state: no run of one was
measured, their scans are from a roofline. What its rate leaves unknown goes apart, as with other constants."""
STEP = 1e-6
"""Relative change of a constant by which the slopes of several plans at once are taken."""


@dataclasses.dataclass(frozen=True)
class Spread:
    """Error of a family of estimates, in logarithms."""

    novelty: str  # how new the question is to calibration, one of `costmodel.evaluation.first_contacts.NOVELTY`
    memory: Error  # error of the peak memory
    room: Error  # of the memory that a plan runs out at, over the estimated
    # standard deviation of time between plans of one model on one cluster, whose common error cancels in a comparison
    within: float
    rows: int  # runs of the framework
    calibrated: bool  # whether runs of the framework were measured on this device
    own: float | None = None  # standard deviation of time as the user's own runs tell it; None without
    evidence: str = ""  # how near measurements are, in words
    states: float = 0.0  # share of the model's layers that keep a state in place of attention, of whose time nothing was measured

    def time(self, constants: float) -> Error:
        """Error of a step time, which grows with that of its constants.

        Parameters
        ----------
        constants : standard deviation that their errors leave the plan's logarithm
        """
        # what runs leave unknown of constants is in what they tell
        told = time_error(self.novelty, constants) if self.own is None else Error(self.own, tails=False)
        return told.widened(STATE_TIME * self.states) if self.states else told

    def margin(self, probability: float) -> float:
        """Share of a device's memory up to which an estimate may go for the plan to fit with a probability.

        Parameters
        ----------
        probability : between 0 and 1
        """
        return self.room.margin(probability)


def _errors(owner: str) -> effects.Errors:
    """Errors of the constants of an owner, and how they go together."""
    return effects.errors_of(*effects.parts_of(owner))


OF_STATES = "none of layers with a state, whose scans are from a roofline: wider by their share"
"""What is said of a model some of whose layers keep a state."""


def novelty(framework: Framework, device: Device) -> str:
    """How new a question about a cluster is to calibration: ``"cluster"``, ``"device"`` or ``"framework"``."""
    family = _family(framework)
    if not family:
        return "framework"
    return "cluster" if device.name in {one.device for one in family} else "device"


def _family(framework: Framework) -> tuple[effects.RunCounts, ...]:
    """What was measured of a framework, or of that whose constants it shares."""
    own = effects.measured_runs(base_name(framework.name))
    return own or effects.measured_runs(effects.parts_of(framework.owner)[0])


def evidence_of(framework: Framework, device: Device, experts: bool, states: float = 0.0) -> str:
    """How near measurements are to a question, in words.

    Parameters
    ----------
    framework, device : of the question
    experts : whether the model is a mixture of experts
    states : share of its layers that keep a state in place of attention

    Examples
    --------
    >>> import costmodel
    >>> evidence_of(costmodel.load_framework("oneflow"), costmodel.load_device("h100-sxm"), experts=True)
    '18 runs of this framework; none of them on this device; none of a mixture of experts'
    >>> evidence_of(costmodel.load_framework("deepspeed-autotp"), costmodel.load_device("tpu-v4"), experts=False)
    'no run of this framework, 70 of deepspeed, whose constants it has; none of them on this device'
    """
    family, own = _family(framework), effects.measured_runs(base_name(framework.name))
    if not family:
        return "no run of this framework: the mean of all frameworks" + ("; " + OF_STATES if states else "")
    rows, of_experts = sum(one.runs for one in family), sum(one.experts for one in family)
    on_device = sum(one.runs for one in family if one.device == device.name)
    shared = f"no run of this framework, {rows} of {effects.parts_of(framework.owner)[0]}, whose constants it has"
    words = [f"{rows} runs of this framework" if own else shared, f"{on_device or 'none'} of them on this device"]
    if experts:
        words.append(f"{of_experts or 'none'} of a mixture of experts")
    if states:
        words.append(OF_STATES)
    if framework.time_error is not None:
        words.insert(0, "calibrated on own runs")
    return "; ".join(words)


def spread_of(framework: Framework, device: Device, experts: bool = False, states: float = 0.0) -> Spread:
    """Error to expect of a framework on a device, on a cluster that was never measured.

    Parameters
    ----------
    framework, device : of the estimate
    experts : whether the model is a mixture of experts
    states : share of its layers that keep a state in place of attention
    """
    level, rows = novelty(framework, device), sum(one.runs for one in _family(framework))
    within = float(table_of("residuals.toml")["plan_spread"])
    if framework.time_error is not None:
        within = min(within, framework.time_error)
    memory, room = memory_error(), room_error()
    if framework.memory_error is not None:
        memory = Error(framework.memory_error, tails=False)
        room = min(memory, room, key=lambda one: one.deviation)
    if states:
        memory, room = memory.widened(STATE_MEMORY * states), room.widened(STATE_MEMORY * states)
    return Spread(
        level, memory, room, within, rows, level == "cluster", framework.time_error,
        evidence_of(framework, device, experts, states), states,
    )  # fmt: skip


Block = tuple[tuple[float, ...], tuple[tuple[float, ...], ...]]
"""Slopes in an owner's constants, and the covariance of their logarithms."""


@dataclasses.dataclass(frozen=True)
class Slopes:
    """How an estimate follows its constants: slopes of its logarithm, one block for each owner of constants."""

    blocks: tuple[Block, ...]  # for each owner the slopes and the covariance of the logarithms of its constants
    # slopes in the device's constants by name, whose errors go apart, each times its standard error; plans of several dtypes
    # share those that they both have
    device: Mapping[str, float] = dataclasses.field(default_factory=dict, hash=False)

    def covariance(self, other: Slopes) -> float:
        """Covariance of two estimates' logarithms that shared constants cause."""
        shared = sum(
            sum(a * c * b for a, row in zip(mine, matrix, strict=True) for c, b in zip(row, theirs, strict=True))
            for (mine, matrix), (theirs, _) in zip(self.blocks, other.blocks, strict=True)
        )
        return shared + sum(slope * other.device.get(name, 0.0) for name, slope in self.device.items())

    @property
    def deviation(self) -> float:
        """Standard deviation that the constants' errors leave the estimate's logarithm."""
        return math.sqrt(max(self.covariance(self), 0.0))

    def shares(self, names_of_blocks: Sequence[str]) -> dict[str, float]:
        """Of the estimate's variance that the constants' errors cause, the share of each.

        Parameters
        ----------
        names_of_blocks : of the constants of the blocks, one block after the other
        """
        found: list[float] = []
        for slopes, matrix in self.blocks:
            found += [a * sum(c * b for c, b in zip(row, slopes, strict=True)) for a, row in zip(slopes, matrix, strict=True)]
        every = dict(zip(names_of_blocks, found, strict=True)) | {name: slope**2 for name, slope in self.device.items()}
        whole = sum(every.values())
        return {name: part / whole for name, part in every.items()} if whole > 0.0 else {}


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
    key = {"memory_bandwidth": "memory"}.get(field, field)
    if device.name in names("device"):
        of_device, source = constant_errors(device.name)
        if key in of_device:
            return float(of_device[key]), f"calibration of {source}" if source == device.name else source
    of_fit, (base, architecture) = effects.constants(), effects.parts_of(framework.owner)
    if field in of_fit:
        known = _family(framework) is not None
        error = effects.error_of(field, base if known else "", architecture)
        return error, f"calibration of {framework.owner if known else 'all frameworks'}"
    errors = [errors[key] for errors, _ in map(constant_errors, names("device")) if key in errors]
    if errors:
        return float(max(errors)), "the widest of all calibrations: none has this device"
    if field in paths(Software):  # no run tells it apart from its prior
        return max(effects.error_of(one, base, architecture) for one in of_fit), "the widest of any: no run identifies it"
    raise InvalidValue("field", field, "a constant that calibration fits")


MOST = 0.5
"""Of the variance that constants cause: one that causes more is named beside the interval."""
UNMEASURED = {
    "device": "wide by the constants of {framework} on {device}, where it was never measured",
    "framework": "wide by the constants of {framework}, which was never measured",
}
"""Where no one constant causes most of the variance, by how new the question is."""


def widest_unknown(slopes: Slopes, framework: Framework, device: Device, level: str) -> str:
    """What an estimate's interval is wide because of, where it is one thing; empty where it is no wider than usual, or of many.

    Parameters
    ----------
    slopes : of the estimate
    framework, device : of the estimate
    level : how new the question is, one of `costmodel.evaluation.first_contacts.NOVELTY`

    Returns
    -------
    str
        such as ``"wide by the constant host_step, which is known to a factor of 2.1"``, with ``"and others of the host"`` where
        it is several of one kind together
    """
    if time_error(level, slopes.deviation).half <= time_error(level, usual_constants()).half:
        return ""
    shares = slopes.shares(_fields_and_matrix(_owner(framework))[0])
    name = max(shares, key=lambda one: shares[one])
    kind = name.partition("_")[0]
    if sum(share for one, share in shares.items() if one.partition("_")[0] == kind) < MOST:
        return UNMEASURED.get(level, "").format(framework=framework.name, device=device.name)
    error, _ = constant_error(name, device, framework)
    others = "" if shares[name] >= MOST else f", and others of the {kind}"
    return f"wide by the constant {name}, which is known to a factor of {math.exp(NINETY * error):.2g}{others}"


class DeviceError(NamedTuple):
    """A constant of a device, the numbers that it sets, and the standard error of its logarithm."""

    name: str
    numbers: tuple[str, ...]
    error: float


def device_errors(device: Device, dtype: str) -> tuple[DeviceError, ...]:
    """Standard errors of the logarithms of a device's constants.

    Constants that operators tell to within `KNOWN` are left out; so are all of a device that the catalogue doesn't have.
    """
    if device.name not in names("device"):
        return ()
    known, _ = constant_errors(device.name)
    found: list[DeviceError] = []
    for field, numbers in OF_DEVICE.items():
        keys: dict[str, tuple[str, ...]] = {}
        for number in numbers:
            told = device.efficiency.dtype_of_constant(field, device.base_dtype(dtype) if number.startswith("base_") else dtype)
            key = f"{field}.{told}" if told else field
            keys[key] = (*keys.get(key, ()), number)
        unsure = {key: changed for key, changed in keys.items() if known.get(key, 0.0) > KNOWN}
        found += [DeviceError(key, changed, float(known[key])) for key, changed in unsure.items()]
    return tuple(found)


def _moved(numbers: DeviceNumbers, changed: tuple[str, ...]) -> DeviceNumbers:
    return numbers._replace(**{field: getattr(numbers, field) * (1.0 + STEP) for field in changed})


def covariance_of(framework: Framework) -> tuple[list[str], list[list[float]]]:
    """Constants of a framework that calibration is unsure of, and the covariance of their logarithms.

    Parameters
    ----------
    framework : of the catalogue; one whose owner is unknown gives the spread of any framework
    """
    found = _errors(framework.owner)
    return list(found.paths), [list(row) for row in found.covariance]


def constants_in_doubt(framework: Framework) -> tuple[Sequence[str], Matrix]:
    """Constants that calibration left unsure, of a framework or of the device that it runs on, and their logarithms' covariance.

    Parameters
    ----------
    framework : with whose constants; none are in doubt where own runs gave it an error of its own
    """
    return _fields_and_matrix(_owner(framework))


def slopes_of(total: Callable[[DeviceNumbers, Software], Number], device: Device, framework: Framework, dtype: str) -> Slopes:
    """Slopes of an estimate's logarithm in the constants of its device and its framework.

    Parameters
    ----------
    total : the estimate, of a device's and a framework's numbers, or of columns of them
    device, framework : of the estimate
    dtype : of the GEMMs
    """
    errors = device_errors(device, dtype)
    of_device = tuple(one.numbers for one in errors)
    numbers, software, places, matrix = _with_slopes(device.numbers(dtype), framework.numbers(), _owner(framework), of_device)
    found = total(numbers, software)
    derivatives: Mapping[int, float] = found.slopes if isinstance(found, Dual) else {}
    slopes = [derivatives.get(place, 0.0) / bare(found) for place in range(places)]
    return _blocks(slopes, matrix, errors)


def part_covariance(
    parts: Callable[[DeviceNumbers, Software], Sequence[Number]], device: Device, framework: Framework, dtype: str
) -> list[list[float]]:
    """Covariance of the parts of an estimate that the errors of its constants cause, in the parts' unit squared.

    Parameters
    ----------
    parts : of the estimate, of a device's and a framework's numbers
    device, framework : of the estimate
    dtype : of the GEMMs
    """
    errors = device_errors(device, dtype)
    of_device = tuple(one.numbers for one in errors)
    numbers, software, places, matrix = _with_slopes(device.numbers(dtype), framework.numbers(), _owner(framework), of_device)
    made = []
    for part in parts(numbers, software):
        derivatives: Mapping[int, float] = part.slopes if isinstance(part, Dual) else {}
        made.append(_blocks([derivatives.get(place, 0.0) for place in range(places)], matrix, errors))
    return [[one.covariance(other) for other in made] for one in made]


def slopes_of_plans(
    total: Callable[[int, DeviceNumbers, Software], Number], plans: int, device: Device, framework: Framework, dtype: str
) -> list[Slopes]:
    """`slopes_of` several plans at once, which NumPy evaluates in the time of one.

    Parameters
    ----------
    total : of how often each plan is repeated in a row, and columns of a device's and a framework's numbers: the estimates
    plans : how many
    device, framework, dtype : as `slopes_of` takes them
    """
    import numpy as np

    moves, errors = _moves(device, framework, dtype)
    with np.errstate(divide="ignore", invalid="ignore"):  # the arm of `where` that is not taken
        found = np.log(total(len(moves.moved), *moves.columns(plans))).reshape(plans, len(moves.moved))
    slopes = (found[:, 1:] - found[:, :1]) / STEP
    return [_blocks(row, moves.matrix, errors) for row in slopes.tolist()]


Matrix = tuple[tuple[float, ...], ...]


@dataclasses.dataclass(frozen=True)
class _FiniteDifferences:
    """Numbers as they are, and then with one constant after another a little larger."""

    moved: tuple[tuple[DeviceNumbers, Software], ...]  # a device's and a framework's
    matrix: Matrix  # covariance of the logarithms of the framework's constants, which are the first that move

    @functools.cached_property
    def _table(self) -> NDArray[np.float64]:
        import numpy as np

        return np.array([[*numbers, *flat(software).values()] for numbers, software in self.moved]).T

    def columns(self, times: int = 1) -> tuple[DeviceNumbers, Software]:
        """All of them as NumPy columns, one after another and again from the first, so many times."""
        import numpy as np

        columns, of_device = np.tile(self._table, times), len(DeviceNumbers._fields)
        return from_numbers(DeviceNumbers, columns[:of_device]), from_numbers(Software, columns[of_device:])


def _moves(device: Device, framework: Framework, dtype: str) -> tuple[_FiniteDifferences, tuple[DeviceError, ...]]:
    """Numbers with each constant moved, and the errors of the device's own."""
    errors = device_errors(device, dtype)
    changed = tuple(one.numbers for one in errors)
    return _moved_constants(device.numbers(dtype), framework.numbers(), _owner(framework), changed), errors


def _owner(framework: Framework) -> str | None:
    """Whose errors a framework's constants have; None where own runs gave it an error of its own."""
    return framework.owner if framework.time_error is None else None


def _fields_and_matrix(owner: str | None) -> tuple[Sequence[str], Matrix]:
    """Constants of an owner, and the covariance of their logarithms; an owner who is unknown has the errors of any."""
    return ((), ()) if owner is None else _errors(owner)


@functools.lru_cache(maxsize=64)
def _moved_constants(
    numbers: DeviceNumbers, software: Software, owner: str | None, of_device: tuple[tuple[str, ...], ...]
) -> _FiniteDifferences:
    """The same for every plan of a search: the framework's constants moved, then those of the device."""
    fields, matrix = _fields_and_matrix(owner)
    constants = flat(software)
    moved = [(numbers, software)]
    for field in fields:
        if field in constants:
            moved.append((numbers, replaced(software, {field: constants[field] * (1.0 + STEP)})))
        else:
            moved.append((_moved(numbers, (field,)), software))
    moved += [(_moved(numbers, changed), software) for changed in of_device]
    return _FiniteDifferences(tuple(moved), matrix)


@functools.lru_cache(maxsize=64)
def _with_slopes(
    numbers: DeviceNumbers, software: Software, owner: str | None, of_device: tuple[tuple[str, ...], ...]
) -> tuple[DeviceNumbers, Software, int, Matrix]:
    """The same numbers with their slopes in the logarithm of each constant, and how many constants these are."""
    fields, matrix = _fields_and_matrix(owner)
    constants, slopes = flat(software) | numbers._asdict(), dict[str, dict[int, float]]()
    for place, names_of_it in enumerate((*((field,) for field in fields), *of_device)):
        for name in names_of_it:
            slopes.setdefault(name, {})[place] = constants[name]
    carried = {name: as_number(Dual(constants[name], found)) for name, found in slopes.items()}
    of_software = {name: number for name, number in carried.items() if name not in DeviceNumbers._fields}
    of_numbers = {name: number for name, number in carried.items() if name in DeviceNumbers._fields}
    return numbers._replace(**of_numbers), replaced(software, of_software), len(fields) + len(of_device), matrix


def _blocks(slopes: Sequence[float], matrix: Matrix, errors: Sequence[DeviceError]) -> Slopes:
    blocks = ((tuple(slopes[: len(matrix)]), matrix),) if matrix else ()
    return Slopes(blocks, {one.name: slope * one.error for slope, one in zip(slopes[len(matrix) :], errors, strict=True)})

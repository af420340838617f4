"""Constants as calibration learnt them: what all software has in common, and what its owners add, composed when asked.

A constant of a framework on an architecture is that of all software, moved by what runs of the framework said, by what runs on
the architecture said, and by what those of the one on the other said beyond both; clocks are moved by their device, too. Each
move is an effect: a row of ``constants.csv``. Effects add on a line that the bounds of the constant make (`Link`). Where runs
tell of no effect of an owner, it adds nothing, and the spread that its like have.
"""

from __future__ import annotations

import csv
import functools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from costmodel.catalogue.files import text_of

FILE, CORRELATIONS, MEASURED = "constants.csv", "correlations.jsonl", "measured_runs.csv"
"""Files of the effects, of the correlations of their errors, and of how many measured runs there are of whom."""
LEVELS = ("field", "framework", "architecture", "framework on architecture", "cluster", "device")
"""What an effect may belong to: all software, a framework, an architecture, one on the other, and so on."""
ANY = "*"
"""An owner of whom runs say nothing."""
DIGITS = 5
"""Significant digits of a composed constant."""
CLOCKS = ("sustained_clock", "narrow_clock")
"""Constants of a device, which whole runs say: of 16-bit kernels, and of products of 8 and 4 bits."""


class Link(NamedTuple):
    """The map of a constant between bounds to the whole line, on which it is taken for normal.

    Without an upper bound the map is the logarithm of what lies above the lower bound, else the logit.

    Examples
    --------
    >>> share = Link(0.0, 1.0)
    >>> share.to_line(0.5), round(share.to_constant(2.0), 3)
    (0.0, 0.881)
    """

    low: float  # low, high: bounds of the constant, in its unit; `high` may be infinite
    high: float

    def to_line(self, value: float) -> float:
        """The place of a constant on the line."""
        if math.isinf(self.high):
            return math.log(value - self.low)
        return math.log((value - self.low) / (self.high - value))

    def to_constant(self, place: float) -> float:
        """The constant at a place on the line."""
        if math.isinf(self.high):
            return self.low + math.exp(place)
        return self.low + (self.high - self.low) / (1.0 + math.exp(-place))

    def logarithmic_slope(self, place: float) -> float:
        """The slope of the constant's logarithm at a place on the line."""
        value = self.to_constant(place)
        slope = value - self.low
        if not math.isinf(self.high):
            slope *= (self.high - value) / (self.high - self.low)
        return slope / value


class Effect(NamedTuple):
    """What an owner adds to a constant on its line."""

    place: float  # added; of all software, where the constant itself is
    standard_error: float  # of that; of an owner of whom runs say nothing, the spread of its like
    correlated: int | None  # the line of ``correlations.jsonl`` that says how its error goes with others', None where it doesn't


class Constant(NamedTuple):
    """A constant of software, or a clock of a device."""

    link: Link  # between its bounds
    effects: Mapping[tuple[str, str], Effect]  # by level and owner

    def of(self, owners: Mapping[str, str]) -> list[Effect]:
        """Effects that some owners have on the constant, one at each level that has any.

        Parameters
        ----------
        owners : name at each level; of one that isn't named, any
        """
        levels = dict.fromkeys(level for level, _ in self.effects)
        return [self.effects.get((level, owners.get(level, ANY))) or self.effects[level, ANY] for level in levels]


@functools.cache
def constants() -> Mapping[str, Constant]:
    """Every constant that calibration fits, by path in `costmodel.formulas.quantities.Software`; clocks by their name."""
    links: dict[str, Link] = {}
    effects: dict[str, dict[tuple[str, str], Effect]] = {}
    for row in csv.DictReader(text_of(FILE).splitlines()):
        path = row["constant"]
        if row["low"]:
            links[path] = Link(float(row["low"]), float(row["high"]))
        line = int(row["correlated"]) if row["correlated"] else None
        told = Effect(float(row["effect"]), float(row["standard_error"]), line)
        effects.setdefault(path, {})[row["level"], row["owner"]] = told
    return {path: Constant(links[path], mine) for path, mine in effects.items()}


def owner_of(framework: str, architecture: str | None) -> str:
    """The name of a framework on an architecture, as `costmodel.description.framework.Framework` holds it.

    Examples
    --------
    >>> owner_of("nemo", "hopper"), parts_of("nemo@hopper"), parts_of(owner_of("nemo", None))
    ('nemo@hopper', ('nemo', 'hopper'), ('nemo', None))
    """
    return f"{framework}@{architecture or ''}"


def parts_of(owner: str) -> tuple[str, str | None]:
    """The framework and the architecture of such a name; empty and None where it is of any.

    Parameters
    ----------
    owner : as `owner_of` names it, or a framework alone
    """
    framework, _, architecture = owner.partition("@")
    return framework, architecture or None


def owners_of(framework: str, architecture: str | None, device: str = ANY) -> dict[str, str]:
    """Names of the owners at each level.

    Examples
    --------
    >>> owners_of("nemo", "hopper")["framework on architecture"]
    'nemo@hopper'
    """
    both = owner_of(framework, architecture) if framework and architecture else ANY
    return {
        "field": "", "framework": framework or ANY, "architecture": architecture or ANY, "framework on architecture": both,
        "device": device,
    }  # fmt: skip


def composed(owners: Mapping[str, str], paths: Iterable[str] | None = None) -> dict[str, float]:
    """Constants of some owners.

    Parameters
    ----------
    owners : as `owners_of` names them
    paths : of the constants; None: all of software

    Returns
    -------
    dict
        by path, in SI units

    Examples
    --------
    >>> anyone, nemo = (composed(owners_of(framework, "hopper")) for framework in ("", "nemo"))
    >>> anyone["host_step"] > 0.0, nemo["memory_workspace"] == anyone["memory_workspace"]
    (True, True)
    """
    known = constants()
    chosen = paths or (path for path in known if path not in CLOCKS)
    return {path: float(f"{known[path].link.to_constant(_place(known[path].of(owners))):.{DIGITS}g}") for path in chosen}


def _place(effects: Sequence[Effect]) -> float:
    """Where a constant is on its line by all effects on it."""
    return sum(effect.place for effect in effects)


class RunCounts(NamedTuple):
    """How many measured runs there are of a framework on a device."""

    framework: str
    architecture: str
    device: str
    timed: int  # to whose times constants were fitted, those of a framework with nothing tuned among its own
    runs: int  # in all, of a framework of the catalogue
    experts: int  # of these, of mixtures of experts


@functools.cache
def _run_counts() -> tuple[RunCounts, ...]:
    _, *rows = csv.reader(text_of(MEASURED).splitlines())
    return tuple(RunCounts(framework, kind, device, *map(int, counts)) for framework, kind, device, *counts in rows)


@functools.cache
def timed_runs() -> tuple[RunCounts, ...]:
    """Timed runs that the constants were fitted to, a row for each framework on each device."""
    return tuple(one for one in _run_counts() if one.timed)


@functools.cache
def measured_runs(framework: str) -> tuple[RunCounts, ...]:
    """Runs of a framework of the catalogue, a row for each device; none of one that was never measured."""
    return tuple(one for one in _run_counts() if one.framework == framework and one.runs)


def runs_of(framework: str, architecture: str | None) -> int:
    """How many timed runs there are of a framework on an architecture.

    Parameters
    ----------
    framework : of the catalogue, or empty, of any
    architecture : of devices, or None, of any
    """
    return sum(one.timed for one in timed_runs() if framework in ("", one.framework) and architecture in (None, one.architecture))


def usual_device(framework: str, architecture: str | None) -> str:
    """The device of an architecture on which most runs of a framework were timed, or of any framework; `ANY` where none was."""
    there = [one for one in timed_runs() if one.architecture == architecture]
    of_framework = [one for one in there if one.framework == framework] or there
    counts: dict[str, int] = {}
    for one in of_framework:
        counts[one.device] = counts.get(one.device, 0) + one.timed
    return max(counts, key=lambda name: counts[name], default=ANY)


def clocks(device: str, architecture: str) -> dict[str, float]:
    """Clocks of a device in a training step over those of a short benchmark, as whole runs say them of it or of its kind.

    Parameters
    ----------
    device : its name
    architecture : whose mean serves a device that no run was timed on

    Returns
    -------
    dict
        `sustained_clock` and `narrow_clock` of `costmodel.description.device.Efficiency`

    Examples
    --------
    >>> all(0.7 <= clock <= 1.0 for clock in clocks("h100-sxm", "hopper").values())
    True
    """
    return composed(owners_of("", architecture, device), CLOCKS)


def has_own_clock(device: str) -> bool:
    """Whether runs tell the sustained clock of a device from that of its architecture."""
    return ("device", device) in constants()[CLOCKS[0]].effects


@functools.cache
def steadiest_clock() -> float:
    """The largest sustained clock that whole runs said of a device, of a kind of them or of all."""
    owners = {(one.device, one.architecture) for one in timed_runs()} | {(ANY, one.architecture) for one in timed_runs()}
    return max(clocks(*owner)[CLOCKS[0]] for owner in owners | {(ANY, ANY)})


class Errors(NamedTuple):
    """Errors of the constants of an owner."""

    paths: tuple[str, ...]  # of the constants that times depend on
    covariance: tuple[tuple[float, ...], ...]  # of their logarithms


@functools.cache
def _lines() -> list[str]:
    return text_of(CORRELATIONS).splitlines()


@functools.cache
def _correlations(line: int) -> list[float]:
    """How the error of an effect goes with those of the lines before it."""
    found: list[float] = json.loads(_lines()[line])
    return found


def _together(one: Effect, other: Effect) -> float:
    """Covariance of the errors of two effects."""
    if one.correlated is None or other.correlated is None:
        return one.standard_error**2 if one is other else 0.0
    first, second = sorted((one.correlated, other.correlated))
    correlation = 1.0 if first == second else _correlations(second)[first]
    return correlation * one.standard_error * other.standard_error


def _covariance(effects: Sequence[Effect], others: Sequence[Effect]) -> float:
    """Covariance of the errors of two constants on their lines, by the effects on each."""
    return sum(_together(one, other) for one in effects for other in others)


@functools.cache
def errors_of(framework: str, architecture: str | None) -> Errors:
    """Errors of the constants of a framework on an architecture that times depend on, clocks among them.

    Examples
    --------
    >>> known = errors_of("megatron-core", "hopper")
    >>> known.paths[0], len(known.covariance) == len(known.paths)
    ('sustained_clock', True)
    """
    owners = owners_of(framework, architecture, usual_device(framework, architecture))
    paths = tuple(path for path in constants() if not path.startswith("memory_"))
    mine = [constants()[path].of(owners) for path in paths]
    slopes = [constants()[path].link.logarithmic_slope(_place(effects)) for path, effects in zip(paths, mine, strict=True)]
    matrix = [[0.0] * len(paths) for _ in paths]
    for row, (effects, slope) in enumerate(zip(mine, slopes, strict=True)):
        for column in range(row + 1):
            matrix[row][column] = matrix[column][row] = slope * slopes[column] * _covariance(effects, mine[column])
    return Errors(paths, tuple(map(tuple, matrix)))


def error_of(path: str, framework: str, architecture: str | None) -> float:
    """Standard error of the logarithm of a constant of a framework on an architecture.

    Parameters
    ----------
    path : of the constant
    framework : or empty, of any
    architecture : of devices, or None, of any
    """
    effects = constants()[path].of(owners_of(framework, architecture, usual_device(framework, architecture)))
    return constants()[path].link.logarithmic_slope(_place(effects)) * math.sqrt(_covariance(effects, effects))

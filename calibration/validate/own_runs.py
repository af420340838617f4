"""What a few runs of one's own are worth: groups of measured runs, calibrated on some of each and judged by the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from costmodel.arithmetic.named_tuples import Row
from costmodel.catalogue.records import Refused, read_records
from costmodel.description.framework import Framework
from costmodel.description.run import Run
from costmodel.evaluation.counted_memory import Count, counted
from costmodel.evaluation.first_contacts import NINETY
from costmodel.evaluation.own_run_files import FARTHEST
from costmodel.evaluation.own_run_update import (
    Measured,
    asked_of,
    estimate_of,
    learnt,
    spread_of_clusters,
    told_before,
    updated,
)
from costmodel.evaluation.run_columns import Array, RunColumns, logarithms, runs_of
from costmodel.text.errors import CostModelError

SMALLEST_GROUP = 5
DRAWS = 8
"""Calibrations of a group on other runs of it: with one, the mean after one run differed by a hundredth from draw to draw; with
four, chance decided which of two groups came out a tenth worse."""
MOST_RUNS, MOST_JUDGED = 120, 40
"""Runs of a group that are drawn from, and of the rest those that are judged at a time."""
TENTH, HUNDREDTH = 1.1, 0.01
"""A group is worse with another way where its mean error is a tenth larger, and by a fifth of a hundredth at least."""


class Figures(NamedTuple):
    """Mean error, share of intervals that hold, and half of their width as a factor, of some runs."""

    error: float
    held: float
    width: float


Answer = tuple[Array, float]
"""Logarithms of what is predicted of some runs, and their standard deviation."""


class Group(NamedTuple):
    """Runs of one model in one campaign."""

    name: str  # campaign and model
    measured: Sequence[Measured]  # the runs
    logarithms: Array  # of what was measured of each
    without: Array  # logarithms of what is estimated without own runs
    calibrated: Callable[[Array, Array], Answer]  # what is predicted of some runs, by their places, after calibrating on others
    taken: Array  # places of the runs that `costmodel.calibrate` takes


def groups_of(files: Sequence[Path], memory: bool = False) -> list[Group]:
    """Groups of five runs and more that have a time, or a peak."""
    found: dict[str, list[Measured]] = {}
    for path in files:
        for run in read_records(path):
            if isinstance(run, Refused) or (one := _measured(run, memory)) is None:
                continue
            found.setdefault(f"{run.campaign} | {run.model.name}", []).append(one)
    random = np.random.default_rng(1)
    large = {name: runs for name, runs in sorted(found.items()) if len(runs) >= SMALLEST_GROUP}
    chosen = {name: [runs[place] for place in random.permutation(len(runs))[:MOST_RUNS]] for name, runs in large.items()}
    return [(_memory_group if memory else _time_group)(name, runs) for name, runs in chosen.items()]


def _measured(run: Run, memory: bool) -> Measured | None:
    """A record whose plan the library prices; None of another."""
    value = run.peak_bytes if memory else run.seconds
    if value is None or not run.model.name:
        return None
    try:
        plan = run.plan.on(run.cluster)
        plan.check(run.model, run.cluster, run.framework)
    except CostModelError:
        return None
    counts = Count(run.memory_kind, run.memory_of)
    return Measured(run.model, plan, run.seconds, run.peak_bytes, counts, run.framework, run.cluster, run.id)


def _time_group(name: str, runs: list[Measured]) -> Group:
    first = runs[0]
    assert first.cluster is not None and first.framework is not None  # of records
    software, spread = first.framework, spread_of_clusters(first.framework, first.cluster.device)
    asked = asked_of(first.cluster, software, runs)
    measured = np.log([float(run.seconds or math.nan) for run in runs])
    without = logarithms(asked, software.constants)

    def calibrated(some: Array, others: Array) -> Answer:
        found, _ = updated(software, measured[some], _some(asked, some), spread)
        rest = _some(asked, others)
        return logarithms(rest, found.constants) + told_before(found, rest), float(found.time_error or 0.0)

    taken = np.flatnonzero(np.abs(measured - without) < math.log(FARTHEST))
    return Group(name, runs, measured, without, calibrated, taken)


def _some(asked: RunColumns, places: Array) -> RunColumns:
    return runs_of([asked.each[place] for place in places])


def _memory_group(name: str, runs: list[Measured]) -> Group:
    first = runs[0]
    assert first.cluster is not None and first.framework is not None  # of records
    cluster, software = first.cluster, first.framework
    measured = np.log([float(run.peak or math.nan) for run in runs])

    def estimated(of: Framework, places: Array) -> Array:
        return np.log(counted([estimate_of(runs[place], cluster, of) for place in places], [runs[n].counts for n in places]))

    def calibrated(some: Array, others: Array) -> Answer:
        found, _, _ = learnt(cluster, software, [runs[place]._replace(seconds=None) for place in some])
        return estimated(found, others), float(found.memory_error or 0.0)

    every = np.arange(len(runs))
    return Group(name, runs, measured, estimated(software, every), calibrated, every)


def own_runs(groups: Sequence[Group], counts: Sequence[int], draws: int = DRAWS) -> Row:
    """Errors of the rest of each group after calibrating on some of its runs, by how many.

    Runs are drawn from those that `costmodel.calibrate` takes; all others are judged, also those that it refuses as out of all
    proportion. A group of which none would be left is left out.
    """
    return {str(count): figures for count in counts if (figures := _after(groups, count, draws))}


def _after(groups: Sequence[Group], count: int, draws: int) -> Row:
    by_group = {}
    for group in groups:
        random = np.random.default_rng([7, count])
        if not len(group.taken) >= count < len(group.measured):
            continue
        drawn = [_drawn(group, random.permutation(group.taken)[:count], random) for _ in range(draws)]
        without, ratio, after = (Figures(*np.mean(part, axis=0)) for part in zip(*drawn, strict=True))
        by_group[group.name] = {
            "runs": len(group.measured), "mape_without": without.error, "mape_ratio": ratio.error, "mape": after.error,
            "held": after.held, "width": after.width,
        }  # fmt: skip
    if not by_group:
        return {}
    means = {key: float(np.mean([one[key] for one in by_group.values()])) for key in next(iter(by_group.values()))}
    better = {name: min(one["mape_without"], one["mape_ratio"]) for name, one in by_group.items()}
    worse = [name for name, one in by_group.items() if one["mape"] > max(TENTH * better[name], better[name] + 0.2 * HUNDREDTH)]
    return {
        "groups": len(by_group), "draws": draws, **{key: value for key, value in means.items() if key != "runs"},
        "worse": worse, "by_group": by_group,
    }  # fmt: skip


def _drawn(group: Group, chosen: Array, random: np.random.Generator) -> tuple[Figures, Figures, Figures]:
    """The rest of a group without own runs, by their median ratio, and calibrated."""
    rest = random.permutation(np.setdiff1d(np.arange(len(group.measured)), chosen))[:MOST_JUDGED]
    measured, plain = group.logarithms[rest], group.without[rest]
    ratio = float(np.median(group.logarithms[chosen] - group.without[chosen]))
    told, deviation = group.calibrated(chosen, rest)
    return _figures(measured, plain, 0.0), _figures(measured, plain + ratio, 0.0), _figures(measured, told, deviation)


def _figures(measured: Array, told: Array, deviation: float) -> Figures:
    error = measured - told
    reach = NINETY * deviation
    return Figures(float(np.abs(np.expm1(-error)).mean()), float((np.abs(error) <= reach).mean()), math.exp(reach))


def in_words(what: str, found: Row) -> list[str]:
    """The figures for people, and a line for each group."""
    lines = []
    for count, figures in found.items():
        lines.append(
            f"{what}, after {count} own runs of {figures['groups']} groups: mean error {figures['mape']:.1%} "
            f"({figures['mape_without']:.1%} without, {figures['mape_ratio']:.1%} by their median ratio), 90 % intervals hold on "
            f"{figures['held']:.1%} at x{figures['width']:.2f} each way; worse than the better of both by a tenth: "
            f"{len(figures['worse'])}"
        )
        for name, one in figures["by_group"].items():
            mark = " *" if name in figures["worse"] else ""
            lines.append(
                f"  {name} ({one['runs']}): {one['mape_without']:.1%} without, {one['mape_ratio']:.1%} ratio, "
                f"{one['mape']:.1%} calibrated, hold {one['held']:.0%}{mark}"
            )
    return lines

"""What fits leave unexplained: errors of unseen runs, by framework and by source, and margins of verdicts on memory."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.data.cases import Case
from calibration.fit.constants import Problem, take
from calibration.validate.metrics import error_summary, group_key
from calibration.validate.predictions import Columns, logged_memory
from costmodel.catalogue.software import default_constants
from costmodel.evaluation.error_model import NINETY
from costmodel.records import replaced
from costmodel.solvers.fitting import Array, Fit

LEAST_VERDICTS = 20
"""Runs that ran, and that failed, from which a margin is learnt."""
LEAST_RAN = 0.975
"""Share of the runs that ran which a margin lets through."""
ALIKE = 1.0001
"""Ratio of two estimates that are taken for the same."""


def robust_spread(errors: Array) -> float:
    """Standard deviation of a normal distribution whose 90 % interval holds 90 % of the errors."""
    return float(np.quantile(np.abs(errors), 0.9) / NINETY)


def spread_over_families(errors: Array, names: Array) -> float:
    """Spread to expect of a framework of which nothing is known: that of three in four known ones is smaller.

    Parameters
    ----------
    errors : of all runs; NaN where there is none
    names : framework of each
    """
    known = ~np.isnan(errors)
    spreads = [robust_spread(errors[known & (names == name)]) for name in set(names[known])]
    return float(np.quantile(spreads, 0.75))


def unseen_table(cases: Sequence[Case], seconds: Array, measured: Array, residuals: dict[str, Any]) -> dict[str, Any]:
    """Errors of each source, and how often its 90 % interval holds, by fits that had not seen the row."""
    spread = np.array([residuals["framework"][case.framework.name]["time"] for case in cases])
    held = np.abs(np.log(measured / seconds)) <= NINETY * spread
    files = np.array([Path(case.run.file).stem for case in cases])
    table = {}
    for name in [*sorted(set(files)), "total"]:
        mine = np.ones(len(cases), dtype=bool) if name == "total" else files == name
        figures = error_summary(seconds[mine], measured[mine])
        table[name] = {"mape": figures["mape"], "median_ape": figures["median_ape"], "time_90": float(held[mine].mean())}
    return table


def within_groups(cases: Sequence[Case], errors: Array) -> Array:
    """Errors of plans less the mean error of their group (one model on one cluster); NaN where a plan is alone."""
    groups: dict[Any, list[int]] = {}
    for row, case in enumerate(cases):
        groups.setdefault(group_key(case), []).append(row)
    out = np.full(len(cases), np.nan)
    for rows in groups.values():
        if len(rows) > 1:
            out[rows] = (errors[rows] - errors[rows].mean()) * np.sqrt(len(rows) / (len(rows) - 1))
    return out


def uncalibrated_errors(
    problem: Problem, result: Fit, measured: Array, bills: Problem, peaks: NDArray[np.bool_]
) -> tuple[Array, Array]:
    """Log errors of time and of memory that the constants of an unknown framework make, the devices being known."""
    unknown = default_constants()

    def plain(columns: Columns) -> Columns:
        rows = len(np.asarray(columns.plan.tensor))
        software = replaced(columns.software, {path: np.full(rows, value) for path, value in unknown.items()})
        return dataclasses.replace(columns, software=software)

    time = np.log(measured) - np.log(plain(problem.at(result.values)).evaluate().total)
    some = [case for case, yes in zip(bills.cases, peaks, strict=True) if yes]
    columns = plain(take(bills.columns, np.flatnonzero(peaks)))
    held = np.array([case.peak_bytes or 0.0 for case in some])
    nbytes = logged_memory(some, columns, columns.evaluate().memory)
    return time, np.log(held) - np.log(nbytes)


def verdict_margin(room: Array, failed: NDArray[np.bool_]) -> float:
    """Share of the limit up to which the estimate may go for a run to be called fitting.

    The margin that refuses most of the runs that failed while letting through `LEAST_RAN` of those that ran: half-way
    from the last that it lets through to the next one, so that runs alike are judged alike.

    Parameters
    ----------
    room : estimate over limit, a run
    failed : whether it ran out of memory

    Examples
    --------
    >>> ran, failed = np.linspace(0.5, 0.7, 30), np.linspace(0.8, 1.2, 30)
    >>> verdict_margin(np.append(ran, failed), np.arange(60) >= 30)
    0.75
    """
    if failed.sum() < LEAST_VERDICTS or (~failed).sum() < LEAST_VERDICTS:
        return 1.0
    last = np.sort(room[~failed])[math.ceil(LEAST_RAN * (~failed).sum()) - 1]
    beyond = room[room > ALIKE * last]
    return float(max(0.5 * (last + beyond.min()) if len(beyond) else last, 0.5))


def residual_tables(
    cases: Sequence[Case], errors: Array, memory_cases: Sequence[Case], memory_errors: Array,
    every: Sequence[Case], room: Array, uncalibrated: Array, uncalibrated_memory: Array,
) -> dict[str, Any]:  # fmt: skip
    """Errors of unseen runs by framework, and those to expect where nothing is known.

    Parameters
    ----------
    cases, errors : timed runs and log(measured / predicted) of their step time
    memory_cases, memory_errors : the same of their peak memory
    every, room : all runs, and predicted memory over the limit
    uncalibrated, uncalibrated_memory : errors that the constants of an unknown framework make on all runs
    """
    names = np.array([case.framework.name for case in cases])
    judged = np.array([case.framework.name for case in every])
    failed = np.array([case.run.flag("usable_oom") for case in every])
    held = np.array([case.framework.name for case in memory_cases])
    table: dict[str, Any] = {}
    for name in sorted(set(names)):
        mine = names == name
        entry: dict[str, Any] = {
            "rows": int(mine.sum()), "time": robust_spread(errors[mine]),
            "architectures": sorted({case.cluster.device.architecture for case, yes in zip(cases, mine, strict=True) if yes}),
        }  # fmt: skip
        if (held == name).sum() >= 4:
            entry["memory"] = robust_spread(memory_errors[held == name])
        entry["margin"] = verdict_margin(room[judged == name], failed[judged == name])
        table[name] = entry
    relative = within_groups(cases, errors)
    for name, entry in table.items():
        mine = relative[(names == name) & ~np.isnan(relative)]
        if len(mine) >= 8:
            entry["within"] = robust_spread(mine)
    between = float(np.std([np.median(errors[names == name]) for name in table]))
    default = {
        "time": spread_over_families(uncalibrated, names), "memory": spread_over_families(uncalibrated_memory, held),
        "within": spread_over_families(relative, names), "between_devices": max(between, 0.1), "margin": 1.0,
    }  # fmt: skip
    return {"default": default, "framework": table}

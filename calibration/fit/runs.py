"""The fit of software to whole runs: constants of time and of memory, and their tables."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from collections.abc import Callable, Sequence

import numpy as np

from calibration.data.runs import at_clocks
from calibration.fit import pooled
from calibration.fit.effects import Line, correlation_lines, effect_rows, run_counts
from calibration.fit.fields import MEMORY, TIME
from calibration.fit.pooled import Effect, Model, Posterior
from calibration.fit.problem import columns_at, columns_of, counted_otherwise, memory_model, take, thinned, time_model
from calibration.written import as_csv
from costmodel.catalogue.effects import CLOCKS, CORRELATIONS, FILE, MEASURED, RunCounts, clocks, parts_of
from costmodel.catalogue.loader import load_device
from costmodel.catalogue.software import framework_names, load_framework
from costmodel.description.run import Run
from costmodel.text.errors import CostModelError

PASSES = 12
"""Most rounds of dropping effects. A round drops half of those that are too many: what is left is then better known, and fewer
have to go than at once."""
ITERATIONS = 20
"""Of the first pass, at most, unless others are asked for."""
FEWER = 25
"""Iterations of a pass over some of the effects."""
IDENTIFIED = 0.5
"""Share of its prior's spread below which an effect is identified."""
MOSTLY = 0.6
"""Share of the effects that has to be identified: with so many no further pass drops any."""
AT_BOUND = 0.02
"""Share of a constant's range within which it counts as at its bound."""


@dataclasses.dataclass
class Fitted:
    """A model with its fit."""

    cases: list[Run]
    model: Model
    posterior: Posterior


def without_clock(case: Run) -> Run:
    """The case on its device as benchmarks have it, at the clock of short bursts; what its power adds to that stays."""
    device = case.cluster.device
    told = clocks(device.name, device.architecture)[CLOCKS[0]]
    plain = at_clocks(case, load_device(device.name).efficiency.sustained_clock / told, 1.0)
    return dataclasses.replace(case, cluster=dataclasses.replace(case.cluster, device=plain))


def solve(model: Model, iterations: int, averaged: bool, report: Callable[[str], None] | None = None) -> Posterior:
    """The fit of every effect, then of fewer, until most of them are identified.

    Of those that are not, the ones go first that lie nearest to what is believed without them, by their own error: one that lies
    far from it explains something, however wide it is.
    """
    rows = thinned(model.grouping)
    found = pooled.fit(model, rows, None, iterations, averaged=averaged, report=report)
    for _ in range(PASSES):
        left = _left_open(found)
        known = sum(share < IDENTIFIED for share in left.values())
        surplus = len(left) - int(known / MOSTLY)
        if surplus <= 0:
            break
        apart = dict(zip(found.effects, np.abs(found.mean) / np.sqrt(np.diag(found.covariance)), strict=True))
        told = sorted(left, key=lambda effect: (left[effect] >= IDENTIFIED, -apart[effect]))
        kept = frozenset(told[: len(left) - math.ceil(surplus / 2)])
        start = (found.effects, found.mean)
        found = pooled.fit(model, rows, start, FEWER, only=kept, settled=0, averaged=averaged, report=report)
    return found


def _left_open(found: Posterior) -> dict[Effect, float]:
    """What the data leave of each effect's prior spread."""
    ratio = np.sqrt(np.diag(found.covariance)) / found.prior()
    return {effect: float(share) for effect, share in zip(found.effects, ratio, strict=True) if effect.field >= 0}


def fit_runs(cases: Sequence[Run], iterations: int, report: Callable[[str], None]) -> tuple[Fitted, Fitted]:
    """The fits of time and of memory."""
    plain = [without_clock(case) for case in cases]
    memory = fit_memory(cases, iterations, report)
    # a step takes longer where memory is short: time is fitted beside what memory is found to be
    found, columns = memory.posterior, columns_of(plain)
    every = memory_model(plain, columns).incidence(found.effects, np.arange(len(plain)))
    columns = columns_at(columns, MEMORY, every.places(found.mean))
    rows = np.flatnonzero([tells_time(case) for case in plain])
    timed = [plain[row] for row in rows]
    model = time_model(timed, take(columns, rows))
    return Fitted(timed, model, solve(model, iterations, True, report)), memory


def tells_time(case: Run) -> bool:
    """Whether a run was timed, by a host that doesn't wait for every kernel, whose time isn't that of its launches.

    And on devices whose power isn't limited, which no description says.
    """
    return not (case.seconds is None or case.framework.blocking_launches or case.unexpressed.get("cluster.power_limited"))


def fit_memory(cases: Sequence[Run], iterations: int, report: Callable[[str], None]) -> Fitted:
    """The fit of memory alone."""
    held = [without_clock(case) for case in cases if case.peak_bytes is not None]
    held += counted_otherwise(held)
    model = memory_model(held)
    return Fitted(held, model, solve(model, iterations, False, report))


def fit_some(cases: Sequence[Run], names: Sequence[str], iterations: int, report: Callable[[str], None]) -> Fitted:
    """The fit of a few constants of time, the others as they are."""
    clocked = [clock in names for clock in CLOCKS]
    if any(clocked) and not all(clocked):
        raise CostModelError(f"--only {' '.join(names)}: expected both of {', '.join(CLOCKS)}, which are fitted together")
    fields = [field for field in TIME if field.path in names]
    timed = [without_clock(case) if all(clocked) else case for case in cases if tells_time(case)]
    model = time_model(timed, None, fields)
    return Fitted(timed, model, solve(model, iterations, True, report))


def identification(fitted: Fitted) -> dict[str, int]:
    """How many constants were fitted, how many the data identify, and how many lie at a bound."""
    posterior, fields = fitted.posterior, fitted.model.fields
    left = _left_open(posterior)
    mine = [n for n, effect in enumerate(posterior.effects) if effect.field >= 0]
    bound = 0
    for n in mine:
        effect = posterior.effects[n]
        field = fields[effect.field]
        if math.isfinite(field.high):
            mean = posterior.mean[n] + field.link.to_line(field.prior)
            share = (field.link.to_constant(mean) - field.low) / (field.high - field.low)
            bound += not AT_BOUND / 2 < share < 1.0 - AT_BOUND / 2
    return {"fitted": len(mine), "identified": sum(share < IDENTIFIED for share in left.values()), "at_bound": int(bound)}


def tables(cases: Sequence[Run], time: Fitted, memory: Fitted) -> dict[str, str]:
    """Files of the catalogue that hold the constants: effects, how their errors go together, and what was measured."""
    rows, correlated = _rows(time)
    return {
        FILE: as_csv([Line._fields, *rows, *_rows(memory)[0]]),
        CORRELATIONS: correlation_lines(time.posterior, correlated),
        MEASURED: as_csv([RunCounts._fields, *run_counts(cases, time.cases)]),
    }


def with_some(text: str, correlations: str, fitted: Fitted) -> dict[str, str]:
    """Files of effects and of how their errors go together, with some constants fitted anew and the others as they were.

    Of errors that are told anew it isn't known how they go together with the others.
    """
    order = [field.path for field in (*TIME, *MEMORY)]
    paths = {field.path for field in fitted.model.fields}
    rows = [row for row in csv.DictReader(text.splitlines()) if row["constant"] not in paths]
    together = [int(row["correlated"]) for row in rows if row["correlated"]]
    numbers = {before: place for place, before in enumerate(together)}
    kept = [[*list(row.values())[:-1], numbers[int(row["correlated"])] if row["correlated"] else ""] for row in rows]
    known = [json.loads(line) for line in correlations.splitlines()]
    lines = [json.dumps([known[one][other] for other in together[:place]]) for place, one in enumerate(together)]
    return {
        FILE: as_csv([Line._fields, *sorted([*kept, *_rows(fitted)[0]], key=lambda row: order.index(str(row[0])))]),
        CORRELATIONS: "".join(f"{line}\n" for line in lines),
    }


def _rows(fitted: Fitted) -> tuple[list[Line], list[int]]:
    """Rows of the effects of a fit; those of memory are told without how their errors go together."""
    known = {parts_of(load_framework(name).owner)[0] for name in framework_names()}
    rows, correlated = effect_rows(fitted.model.fields, fitted.posterior, fitted.model.grouping.owners, known)
    if fitted.model.fields is not TIME:
        rows = [row._replace(correlated="") for row in rows]
    return rows, correlated

"""The fit of software to whole runs: constants of time and of memory, their tables, and their errors by distance."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from calibration.data.runs import at_clocks, catalogue_has, source_of
from calibration.fit import pooled
from calibration.fit.fields import CLOCKS, MEMORY, Field
from calibration.fit.pooled import Effect, Model, Posterior
from calibration.fit.problem import columns_at, counted_otherwise, memory_model, take, thinned, time_model
from calibration.validate.predictions import columns_of
from costmodel.arithmetic.named_tuples import Row
from costmodel.catalogue.software import framework_names, load_framework
from costmodel.description.run import Run
from costmodel.evaluation.own_runs_fit import Array

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
    """A model with its fit.

    Parameters
    ----------
    cases : rows
    model : with its unknowns
    posterior : found
    """

    cases: list[Run]
    model: Model
    posterior: Posterior


def without_clock(case: Run) -> Run:
    """The case on its device as benchmarks have it, at the clock of short bursts."""
    plain = at_clocks(case, 1.0, 1.0)
    return dataclasses.replace(case, cluster=dataclasses.replace(case.cluster, device=plain))


def solve(model: Model, iterations: int, averaged: bool, report: Callable[[str], None] | None = None) -> Posterior:
    """The fit of every effect, then of fewer, until most of them are identified.

    Of those that are not, the ones go first that lie nearest to what is believed without them, by their own error: one that lies
    far from it explains something, however wide it is.

    Parameters
    ----------
    model : rows and unknowns
    iterations : of the first pass
    averaged : as of `pooled.fit`
    report : is told of each iteration
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


def fit_runs(
    cases: Sequence[Run], iterations: int, report: Callable[[str], None], with_memory: bool = True
) -> tuple[Fitted, Fitted | None]:
    """The fits of time, and of memory or None.

    Parameters
    ----------
    cases : runs
    iterations : of Gauss-Newton, at most
    report : is told of each iteration
    with_memory : fit it too, and time beside it; else time beside the catalogue's
    """
    plain = [without_clock(case) for case in cases]
    columns = columns_of(plain)
    memory = None
    if with_memory:
        memory = fit_memory(cases, iterations, report)
        # a step takes longer where memory is short: time is fitted beside what memory is found to be
        found, every = memory.posterior, memory_model(plain, columns)
        columns = columns_at(columns, MEMORY, every.incidence(found.effects, np.arange(len(plain))).places(found.mean))
    rows = np.flatnonzero([case.seconds is not None for case in plain])
    timed = [plain[row] for row in rows]
    model = time_model(timed, take(columns, rows))
    return Fitted(timed, model, solve(model, iterations, True, report)), memory


def fit_memory(cases: Sequence[Run], iterations: int, report: Callable[[str], None]) -> Fitted:
    """The fit of memory alone.

    Parameters
    ----------
    cases : runs
    iterations : of Gauss-Newton, at most
    report : is told of each iteration
    """
    held = [without_clock(case) for case in cases if case.peak_bytes is not None]
    held += counted_otherwise(held)
    model = memory_model(held)
    return Fitted(held, model, solve(model, iterations, False, report))


def identification(fitted: Fitted) -> dict[str, int]:
    """How many constants were fitted, how many the data identify, and how many lie at a bound.

    Parameters
    ----------
    fitted : of time or of memory
    """
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


def _owners(framework: str, architecture: str, device: str) -> dict[str, str]:
    return {
        "field": "", "framework": framework, "architecture": architecture,
        "framework on architecture": f"{framework}@{architecture}", "device": device,
    }  # fmt: skip


def expected(posterior: Posterior, fields: Sequence[Field], owners: dict[str, str]) -> tuple[Array, Array]:
    """Places of the constants of some owners on their lines, and their covariance; what is unknown adds its spread.

    Parameters
    ----------
    posterior : of a fit
    fields : its constants
    owners : name of the owner at each level; of a level that isn't named, a new one
    """
    where = {effect: n for n, effect in enumerate(posterior.effects)}
    chosen = np.zeros((len(fields), len(posterior.effects)))
    extra = np.zeros(len(fields))
    mean = np.array([field.link.to_line(field.prior) for field in fields])
    for number, field in enumerate(fields):
        for level in field.spreads:
            place = where.get(Effect(number, level, owners.get(level, "")))
            if place is None:
                extra[number] += posterior.spreads.effects[number, level] ** 2
            else:
                chosen[number, place] = 1.0
    covariance = chosen @ posterior.covariance @ chosen.T + np.diag(extra)
    return mean + chosen @ posterior.mean, covariance


def _log_slopes(fields: Sequence[Field], places: Array) -> tuple[Array, Array]:
    """Constants at places, and slopes of their logarithms there."""
    step = 1e-4
    values = np.array([field.link.to_constant(place) for field, place in zip(fields, places, strict=True)])
    moved = np.array([field.link.to_constant(place + step) for field, place in zip(fields, places, strict=True)])
    return values, np.log(moved / values) / step


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


def _of_owners(fitted: Fitted, owners: dict[str, str]) -> tuple[dict[str, float], Array, Array]:
    """Constants of some owners by their paths, slopes of their logarithms, and the covariance of their places."""
    fields = fitted.model.fields
    places, covariance = expected(fitted.posterior, fields, owners)
    constants, slopes = _log_slopes(fields, places)
    return {one.path: _rounded(value) for one, value in zip(fields, constants, strict=True)}, slopes, covariance


def owner_tables(time: Fitted, memory: Fitted, date: str) -> tuple[dict[str, object], dict[str, Row]]:
    """Constants of every framework on every architecture, measured there or not; and how their errors go together.

    Parameters
    ----------
    time, memory : fits
    date : of the fit
    """
    counts = Counter((c.framework.name, c.cluster.device.architecture, c.cluster.device.name) for c in time.cases)
    architectures = sorted({architecture for _, architecture, _ in counts})
    stacks: dict[str, object] = {}
    correlations: dict[str, Row] = {}
    for framework in ("", *dict.fromkeys(load_framework(name).owner.partition("@")[0] for name in framework_names())):
        for architecture in ("", *architectures):
            devices = {d: n for (f, a, d), n in counts.items() if a == architecture and f == framework}
            every = {d: n for (_, a, d), n in counts.items() if a == architecture}
            device = max(devices or every or {"": 1}, key=lambda name: (devices or every or {"": 1})[name])
            owners = _owners(framework, architecture, device)
            values: dict[str, float] = {}
            for fitted in (time, memory):
                constants, slopes, covariance = _of_owners(fitted, owners)
                values |= constants
                if fitted is time:
                    logs = covariance * np.outer(slopes, slopes)
                    errors = np.sqrt(np.diag(logs))
                    correlations[f"{framework}@{architecture}" if architecture or framework else "@"] = {
                        "fields": [field.path for field in time.model.fields],
                        "standard_error": [round(float(e), 4) for e in errors],
                        "matrix": [[round(float(x), 2) for x in row] for row in logs / np.outer(errors, errors)],
                    }
            for clock in CLOCKS:
                del values[clock]
            runs = sum(devices.values())
            name = f"{framework}@{architecture}" if framework or architecture else "default"
            stacks[name] = values if name == "default" else {**values, "fit": {"date": date, "runs": runs}}
    return stacks, correlations


def memory_tables(stacks: Mapping[str, Row], memory: Fitted) -> dict[str, Row]:
    """Tables of owners with their constants of memory fitted anew, those of time as they were.

    Parameters
    ----------
    stacks : tables by owner
    memory : fit
    """
    fields, found = memory.model.fields, {}
    for name, values in stacks.items():
        framework, _, architecture = name.removeprefix("default").partition("@")
        constants, _, _ = _of_owners(memory, _owners(framework, architecture, ""))
        fit = {"fit": values["fit"]} if "fit" in values else {}
        of_time = {key: value for key, value in values.items() if key not in ("fit", *(one.path for one in fields))}
        found[name] = of_time | constants | fit
    return found


def clocks(time: Fitted) -> dict[str, dict[str, float]]:
    """Clocks of every device that runs were timed on, and of their kinds, for those that none was timed on.

    Parameters
    ----------
    time : fit
    """
    fields = time.model.fields

    def of(architecture: str, device: str) -> dict[str, float]:
        places, _ = expected(time.posterior, fields, _owners("", architecture, device))
        known = zip(fields, places, strict=True)
        return {field.path: _rounded(field.link.to_constant(place)) for field, place in known if field.path in CLOCKS}

    devices = {case.cluster.device.name: case.cluster.device.architecture for case in time.cases}
    kinds = {kind: of(kind, "") for kind in sorted(set(devices.values()))}
    return {"default": of("", ""), **kinds, **{name: of(kind, name) for name, kind in sorted(devices.items())}}


def evidence_table(cases: Sequence[Run]) -> dict[str, object]:
    """Runs of every framework: how many, on which devices, of mixtures of experts, and of which sources.

    Parameters
    ----------
    cases : runs
    """
    table: Row = {}
    for case in cases:
        if not catalogue_has(case):  # it runs by the habits of a framework, and says nothing of it
            continue
        entry = table.setdefault(case.framework.name, {"rows": 0, "experts": 0, "devices": {}, "sources": []})
        entry["rows"] += 1
        entry["experts"] += bool(case.model.experts)
        device = case.cluster.device.name
        entry["devices"][device] = entry["devices"].get(device, 0) + 1
        source = source_of(case)
        if source not in entry["sources"]:
            entry["sources"].append(source)
    return table

"""Figures of predictions by how new the question is: errors, widths, coverage, regret, verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from calibration.data.runs import source_of
from calibration.fit.distance import FOLDS, LEAST_SPREAD, spreads_of, unseen
from calibration.fit.runs import Fitted
from costmodel.arithmetic.named_tuples import Row
from costmodel.description.run import Run
from costmodel.evaluation.first_contacts import NINETY
from costmodel.evaluation.own_runs_fit import Array

SMALLEST_GROUP = 4


def group_key(run: Run) -> tuple[object, ...]:
    """What plans must share to be compared: campaign, model, GPUs, sequence length, global batch, precision."""
    plan = run.plan
    return run.campaign, run.model, plan.gpus, plan.seq_len, plan.global_batch, plan.dtype


def _sources(cases: Sequence[Run]) -> Array:
    return np.array([source_of(case) for case in cases])


def _mean_regret(cases: Sequence[Run], predicted: Array, rows: Array) -> float | None:
    groups: dict[object, list[int]] = {}
    for row in rows:
        groups.setdefault(group_key(cases[row]), []).append(int(row))
    regrets = []
    for members in groups.values():
        if len(members) >= SMALLEST_GROUP:
            measured = [float(cases[row].seconds or math.nan) for row in members]
            regrets.append(measured[int(np.argmin(predicted[members]))] / min(measured) - 1.0)
    return float(np.mean(regrets)) if regrets else None


def _figures(errors: Array, spreads: Array) -> dict[str, object]:
    """Errors of some rows; `errors` are log(measured / predicted)."""
    size = np.abs(np.exp(-errors) - 1.0)
    width = np.exp(NINETY * spreads) - np.exp(-NINETY * spreads)
    return {
        "n": len(errors), "mape": float(size.mean()), "median_ape": float(np.median(size)),
        "bias": float((np.exp(-errors) - 1.0).mean()),
        "coverage_90": float((np.abs(errors) <= NINETY * spreads).mean()), "mean_width": float(np.minimum(width, 99.0).mean()),
    }  # fmt: skip


def _over_sources(table: dict[str, Row]) -> Row:
    """Mean of every figure over sources, each alike."""
    names = ("mape", "median_ape", "bias", "coverage_90", "mean_width", "regret")
    found: dict[str, object] = {"n": sum(entry["n"] for entry in table.values())}
    for name in names:
        known = [entry[name] for entry in table.values() if entry.get(name) is not None]
        found[name] = float(np.mean(known)) if known else None
    return found


def _level(cases: Sequence[Run], errors: Array, spreads: Array, predicted: Array | None) -> dict[str, object]:
    sources = _sources(cases)
    known = ~np.isnan(errors) & ~np.isnan(spreads)
    table: dict[str, dict[str, object]] = {}
    for name in sorted(set(sources[known])):
        mine = np.flatnonzero(known & (sources == name))
        table[name] = _figures(errors[mine], spreads[mine])
        if predicted is not None:
            table[name]["regret"] = _mean_regret(cases, predicted, mine)
    total = _over_sources(table)
    rows = _figures(errors[known], spreads[known])
    total |= {"mape_over_rows": rows["mape"], "median_ape_over_rows": rows["median_ape"],
              "coverage_90_over_rows": rows["coverage_90"]}  # fmt: skip
    experts = np.array([bool(case.model.experts) for case in cases])
    for name, kind in (("dense", ~experts), ("experts", experts)):
        some = known & kind
        by = {s: _figures(errors[some & (sources == s)], spreads[some & (sources == s)]) for s in set(sources[some])}
        total[name] = _over_sources(by)["mape"] if by else None
    return {"total": total, "sources": table}


def by_distance(time: Fitted, memory: Fitted) -> tuple[Row, Row]:
    """The figures at every level, and the tables of spreads that intervals need."""
    document: Row = {level: {} for level in FOLDS}
    tables: Row = {"time": {}, "memory": {}}
    for what, fitted in (("time", time), ("memory", memory)):
        cases, model = fitted.cases, fitted.model
        found = unseen(cases, model, fitted.posterior)
        for level, entry in found.items():
            errors = model.measured - entry.predicted
            spreads, widening = spreads_of(errors, entry, _sources(cases))
            document[level][what] = _level(cases, errors, spreads, entry.predicted if what == "time" else None)
            posterior = fitted.posterior.spreads
            scatter = float(np.median(list(posterior.scatter.values())))
            base = math.sqrt(posterior.cluster**2 + posterior.group**2 + scatter**2 + LEAST_SPREAD**2)
            if level == "plan":
                base = math.hypot(scatter, LEAST_SPREAD)
            typical = float(np.nanmedian(spreads))
            tables[what][level] = {"spread": base if what == "time" else typical, "widening": widening, "typical": typical}
            if what == "memory":
                document[level]["verdicts"] = _verdicts(cases, entry.plain)
    return document, tables


def _verdicts(cases: Sequence[Run], predicted: Array) -> dict[str, int]:
    """Runs judged by whether they are more likely to fit than not."""
    count = {"oom_right": 0, "oom_wrong": 0, "ran_right": 0, "ran_wrong": 0}
    for case, value in zip(cases, predicted, strict=True):
        if case.ran is None or "recompute" in case.unstated or math.isnan(value):
            continue
        device = case.cluster.device
        wrong = value > math.log(float(device.usable_memory or device.memory))
        count[f"{'oom' if case.out_of_memory else 'ran'}_{'wrong' if wrong else 'right'}"] += 1
    return count

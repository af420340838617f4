"""Fit every constant from measurements and write them, with their errors, into the catalogue.

Two kinds of measurement count. Operators (files of `measure`, and the reference folder's microbenchmarks) say what a
device does; whole runs say what is the software's, and correct the device's constants within the operators' error.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import costmodel
from calibration.constants import Problem, memory_problem_of, problem_of
from calibration.metrics import error_summary
from calibration.operators import Operator, fit_device, read_measurement, read_micro
from calibration.predict import Columns, memory_of_kind
from calibration.reference import DEFAULT_FOLDER, default_files
from calibration.residuals import residual_tables, uncalibrated_errors, unseen_table
from costmodel.errors import CostModelError
from costmodel.runs.cases import Case, cases_of
from costmodel.runs.table import read_runs, usable
from costmodel.solvers.fitting import Array, Constant, Fit, fit

MEASUREMENTS = Path(__file__).with_name("measurements")
CATALOGUE = Path(costmodel.__file__).parent / "catalogue"
FOLDS = 5
LARGEST_PULL = 0.25
"""Log distance from the limit beyond which a run that was marked out of memory no longer pulls at the constants."""
LEAST_OPERATOR_SPREAD = 0.08
"""An operator in a loop and in a training step differ by at least this much."""
NOISE, LEAST_NOISE = 0.03, 0.015
EFFICIENCY_FIELD = {
    "gemm_output": "gemm_output", "gemm_depth": "gemm_depth", "attention_forward_efficiency": "attention_forward",
    "attention_backward_efficiency": "attention_backward", "attention_length": "attention_length",
    "memory_bandwidth": "memory", "kernel_time": "kernel_time",
}  # fmt: skip
"""Name in the catalogue of a device constant of the formulas."""


def operator_fits(operators: Sequence[Operator]) -> dict[str, Fit]:
    """Fit of each device that has operators enough; the others are told on standard error."""
    by_device: dict[str, list[Operator]] = {}
    for operator in operators:
        by_device.setdefault(operator.device, []).append(operator)
    fits = {}
    for name, members in by_device.items():
        device = costmodel.load_device(name)
        fallback = "bf16" if "bf16" in device.dense_peak else "fp16"
        dtypes = {op.dtype for op in members if op.family == "gemm"} or {fallback}
        fits[name] = fit_device(members, {dtype: device.numbers(dtype) for dtype in dtypes})
    return fits


def with_operators(constants: Sequence[Constant], fits: dict[str, Fit]) -> list[Constant]:
    """The constants with what operators say as their prior."""
    known = {
        (fitted.owner, fitted.field): (value, error)
        for result in fits.values()
        for fitted, value, error in zip(result.constants, result.values, result.standard_errors, strict=True)
    }
    out = []
    for constant in constants:
        found = known.get((constant.owner, constant.field))
        if found is None:
            out.append(constant)
            continue
        value = min(max(found[0], constant.low * 1.01), constant.high * 0.99)
        spread = max(float(found[1]), LEAST_OPERATOR_SPREAD)
        out.append(Constant(constant.owner, constant.field, value, spread, constant.low, constant.high))
    return out


def solve(problem: Problem, constants: Sequence[Constant], rows: Array, start: Array | None, iterations: int) -> Fit:
    """Fit the constants to some of the problem's rows."""
    cases = [problem.cases[row] for row in rows]
    measured = np.log([case.seconds for case in cases])
    place = np.full(len(problem.cases), -1)
    place[rows] = np.arange(len(rows))
    affects = [place[touched][place[touched] >= 0] for touched in problem.affects]

    def residuals(values: Array, wanted: Array | None) -> Array:
        chosen = rows if wanted is None else rows[wanted]
        predicted = problem.at(values, chosen).evaluate().total
        return np.log(predicted) - (measured if wanted is None else measured[wanted])

    first = fit(constants, residuals, len(rows), affects, np.ones(len(cases)), NOISE, iterations, start)
    # a second pass trusts each source as far as its own scatter allows
    noise = scatter_of(cases, first.residuals)
    return fit(constants, residuals, len(rows), affects, np.ones(len(cases)), noise, iterations, first.values)


def memory_errors_of(cases: Sequence[Case], columns: Columns) -> Array:
    """Log error of each row's memory: of the peak where it was measured, else by how much the verdict is wrong."""
    bill = columns.evaluate().memory
    nbytes = memory_of_kind(bill, [case.run.text["memory_kind"] for case in cases], columns.stack)
    room = np.log(bill.total / columns.device.memory)
    failed = np.array([case.run.flag("usable_oom") for case in cases])
    # a run that failed for another reason than memory looks small at any constants: its pull is bounded
    verdict = np.where(failed, np.maximum(np.minimum(room, 0.0), -LARGEST_PULL), np.maximum(room, 0.0))
    # whether a run fits says nothing of the constants where the source doesn't say what it recomputed
    verdict = np.where([case.run.text["recompute_kind"] != "" for case in cases], verdict, 0.0)
    peak = np.array([case.peak_bytes or np.nan for case in cases])
    return np.where(np.isnan(peak), verdict, np.log(nbytes) - np.log(np.where(np.isnan(peak), 1.0, peak)))


def solve_memory(problem: Problem, rows: Array, iterations: int) -> Fit:
    """Fit the constants of memory to peaks, and to the verdicts on runs whose peak is not known."""
    cases = [problem.cases[row] for row in rows]
    place = np.full(len(problem.cases), -1)
    place[rows] = np.arange(len(rows))
    affects = [place[touched][place[touched] >= 0] for touched in problem.affects]

    def residuals(values: Array, wanted: Array | None) -> Array:
        chosen = rows if wanted is None else rows[wanted]
        some = cases if wanted is None else [cases[row] for row in wanted]
        return memory_errors_of(some, problem.at(values, chosen))

    return fit(problem.constants, residuals, len(rows), affects, np.ones(len(cases)), NOISE, iterations)


def unseen_memory(cases: list[Case], fold: Array, iterations: int) -> Array:
    """Log memory error of every row under a fit that has not seen its fold."""
    problem = memory_problem_of(cases)
    errors = np.empty(len(cases))
    for number in range(FOLDS):
        result = solve_memory(problem, np.flatnonzero(fold != number), iterations)
        rows = np.flatnonzero(fold == number)
        errors[rows] = memory_errors_of([cases[row] for row in rows], problem.at(result.values, rows))
    return errors


def scatter_of(cases: Sequence[Case], errors: Array) -> Array:
    """Typical log error of each row's source, at least `LEAST_NOISE`."""
    files = np.array([case.run.file for case in cases])
    scatter = {file: 1.4826 * float(np.median(np.abs(errors[files == file]))) for file in set(files)}
    return np.array([max(scatter[file], LEAST_NOISE) for file in files])


def folds_of(cases: Sequence[Case]) -> Array:
    """Fold of each row: the rows of a source and model are dealt out in turn, in an order that a fixed seed shuffles."""
    order = np.random.default_rng(7).permutation(len(cases))
    seen: dict[tuple[str, int, int], int] = {}
    fold = np.zeros(len(cases), dtype=int)
    for row in order:
        key = (cases[row].run.file, cases[row].model.layers, cases[row].model.hidden)
        seen[key] = seen.get(key, -1) + 1
        fold[row] = (seen[key] + sum(map(ord, key[0]))) % FOLDS
    return fold


def _held_out(arguments: tuple[list[Case], list[Constant], Array, Array, int]) -> tuple[Array, Array]:
    cases, constants, fold, start, number = arguments
    problem = problem_of(cases)
    result = solve(problem, constants, np.flatnonzero(fold != number), start, 10)
    rows = np.flatnonzero(fold == number)
    return rows, problem.at(result.values, rows).evaluate().total


def cross_validate(cases: list[Case], constants: list[Constant], start: Array, fold: Array) -> Array:
    """Step time of every row, predicted by a fit that has not seen its fold [s]."""
    seconds = np.empty(len(cases))
    jobs = [(cases, constants, fold, start, number) for number in range(FOLDS)]
    with ProcessPoolExecutor(min(FOLDS, os.cpu_count() or 1)) as pool:
        for rows, predicted in pool.map(_held_out, jobs):
            seconds[rows] = predicted
    return seconds


def joined(one: Fit, other: Fit) -> Fit:
    """Two independent fits as one."""
    count = len(one.constants)
    covariance = np.zeros((count + len(other.constants),) * 2)
    covariance[:count, :count] = one.covariance
    covariance[count:, count:] = other.covariance
    return Fit(
        [*one.constants, *other.constants], np.concatenate([one.values, other.values]), covariance,
        np.concatenate([one.residuals, other.residuals]), one.scale,
    )  # fmt: skip


def tables_of(result: Fit, sources: dict[str, list[str]], date: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Fitted constants as catalogue tables: devices, frameworks, and the correlations within each owner."""
    devices: dict[str, Any] = {}
    stacks: dict[str, Any] = {}
    correlations: dict[str, Any] = {}
    errors = result.standard_errors
    owners = sorted({constant.owner for constant in result.constants})
    for owner in owners:
        index = [i for i, constant in enumerate(result.constants) if constant.owner == owner]
        fields = [result.constants[i].field for i in index]
        block = result.covariance[np.ix_(index, index)] / np.outer(errors[index], errors[index])
        spread_of_owner = [round(float(errors[i]), 5) for i in index]
        matrix = [[round(float(x), 3) for x in row] for row in block]
        correlations[owner] = {"fields": fields, "standard_error": spread_of_owner, "matrix": matrix}
        spread = {field: round(float(errors[i]), 4) for i, field in zip(index, fields, strict=True)}
        about = {"date": date, "measurements": sources.get(owner, [])}
        values = {field: float(result.values[i]) for i, field in zip(index, fields, strict=True)}
        if "@" in owner:
            rounded = {field: _rounded(value) for field, value in values.items()}
            stacks[owner] = {**rounded, "standard_error": spread, "fit": about}
            continue
        specified = costmodel.load_device(owner).memory_bandwidth
        entry: dict[str, Any] = {"gemm": {f[5:]: _rounded(v) for f, v in values.items() if f.startswith("gemm.")}}
        for field, name in EFFICIENCY_FIELD.items():
            entry[name] = _rounded(values[field] / (specified if field == "memory_bandwidth" else 1.0))
        devices[owner] = {**entry, "standard_error": {_catalogue_name(f): e for f, e in spread.items()}, "fit": about}
    return devices, stacks, correlations


def _catalogue_name(field: str) -> str:
    return EFFICIENCY_FIELD.get(field, field.replace(".", "_"))


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


def write_tables(folder: Path, tables: dict[str, tuple[str, dict[str, Any]]]) -> None:
    """Write catalogue files, all or none: each is complete before any takes its name."""
    import tomli_w

    for name, (comment, content) in tables.items():
        (folder / f"{name}.partial").write_text(f"# {comment}\n\n" + tomli_w.dumps(content), encoding="utf-8")
    for name in tables:
        os.replace(folder / f"{name}.partial", folder / name)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``fit``."""
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE",
                        help="files of `measure` (.json) and of runs (.csv); all that are known if none is named")  # fmt: skip
    parser.add_argument("--reference", type=Path, metavar="DIR", help="reference folder (default: ../shared/reference)")
    parser.add_argument("--plots", type=Path, metavar="FILE", help="write measured against fitted, a plot for each family")
    parser.add_argument("--iterations", type=int, default=60, help="most iterations (default: 60)")
    parser.add_argument("--dry-run", action="store_true", help="print the errors, write nothing")


def run(arguments: argparse.Namespace) -> int:
    """Run ``fit``."""
    chosen: list[Path] = arguments.files
    folder = arguments.reference or DEFAULT_FOLDER
    json_files = [path for path in chosen if path.suffix == ".json"] if chosen else sorted(MEASUREMENTS.glob("*.json"))
    csv_files = [path for path in chosen if path.suffix != ".json"] if chosen else default_files(arguments.reference)
    operators = [] if chosen else read_micro(folder / "micro")
    for path in json_files:
        operators += read_measurement(path)
    fits = operator_fits(operators)
    for name, result in fits.items():
        print(f"{name}: {len(result.residuals)} operators, typical error {100 * result.scale:.1f} %")
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    cases, _ = cases_of([r for path in csv_files for r in usable(read_runs(path))])
    timed = [case for case in cases if case.seconds is not None]
    if not timed and not fits:
        raise CostModelError("nothing to fit: name files of `measure` or of runs, or give --reference DIR")
    if not timed:
        return _write_devices(fits, json_files, date, arguments.dry_run)
    problem = problem_of(timed)
    constants = with_operators(problem.constants, fits)
    result = solve(problem, constants, np.arange(len(timed)), None, arguments.iterations)
    fold = folds_of(timed)
    seconds = cross_validate(timed, constants, result.values, fold)
    measured = np.array([case.seconds for case in timed], dtype=float)
    _print_errors(timed, np.exp(result.residuals) * measured, seconds, measured)

    bills = memory_problem_of(cases)
    memory = solve_memory(bills, np.arange(len(cases)), arguments.iterations)
    unseen = unseen_memory(cases, folds_of(cases), arguments.iterations)
    peaks = np.array([case.peak_bytes is not None for case in cases])
    held = [case for case, yes in zip(cases, peaks, strict=True) if yes]
    memory_errors = -unseen[peaks]
    fitted = bills.at(memory.values).evaluate().memory
    room = fitted.total / bills.columns.device.memory
    raw, raw_memory = uncalibrated_errors(problem, result, measured, bills, peaks)
    residuals = residual_tables(
        timed, np.log(measured / seconds), held, memory_errors, cases, room, raw, raw_memory
    )  # fmt: skip
    residuals["source"] = unseen_table(timed, seconds, measured, residuals)
    owners: dict[str, list[str]] = {}
    for case in timed:
        device = case.cluster.device
        for owner in (f"{case.framework.name}@{device.architecture}", device.name):
            if case.run.file not in owners.setdefault(owner, []):
                owners[owner].append(case.run.file)
    for operator in operators:
        if operator.source not in owners.setdefault(operator.device, []):
            owners[operator.device].append(operator.source)
    devices, stacks, correlations = tables_of(joined(result, memory), owners, date)
    kept = Counter((case.framework.name, case.cluster.device.architecture) for case in timed)
    for name in {name for name, _ in kept}:
        _, most = max((rows, architecture) for (owner, architecture), rows in kept.items() if owner == name)
        stacks[name] = stacks[f"{name}@{most}"]
        correlations[name] = correlations[f"{name}@{most}"]
    if arguments.plots:
        from calibration.figures import fit_page

        fit_page(arguments.plots, timed, np.exp(result.residuals) * measured, fits, operators)
    if not arguments.dry_run:
        _write_all(devices, stacks, correlations, residuals)
    return 0


def _print_errors(cases: Sequence[Case], fitted: Array, unseen: Array, measured: Array) -> None:
    files = np.array([case.run.file for case in cases])
    print(f"{'source':28s} {'rows':>5s} {'fitted':>8s} {'unseen':>8s} {'median':>8s} {'bias':>8s}")
    for file in sorted(set(files)):
        mine = files == file
        inside = error_summary(fitted[mine], measured[mine])
        outside = error_summary(unseen[mine], measured[mine])
        print(f"{file:28s} {mine.sum():5d} {inside['mape']:8.3f} {outside['mape']:8.3f} {outside['median_ape']:8.3f} "
              f"{outside['bias']:8.3f}")  # fmt: skip


def _existing(name: str) -> dict[str, Any]:
    import tomllib

    return tomllib.loads((CATALOGUE / name).read_text(encoding="utf-8"))


GENERATED = "Generated by `python -m calibration fit` from measurements; not to be edited by hand."


def _write_all(devices: dict[str, Any], stacks: dict[str, Any], correlations: dict[str, Any], residuals: dict[str, Any]) -> None:
    kept_devices = {**_existing("efficiencies.toml"), **devices}
    kept_stacks = {"default": _existing("stacks.toml")["default"], **stacks}
    write_tables(CATALOGUE, {
        "efficiencies.toml": (GENERATED, kept_devices), "stacks.toml": (GENERATED, kept_stacks),
        "correlations.toml": (GENERATED, correlations), "residuals.toml": (GENERATED, residuals),
    })  # fmt: skip


def _write_devices(fits: dict[str, Fit], files: Sequence[Path], date: str, dry_run: bool) -> int:
    """Write what operators alone say of their devices."""
    kept = _existing("efficiencies.toml")
    for name, result in fits.items():
        device = costmodel.load_device(name)
        entry = dict(kept.get(name) or {})
        values = dict(zip((c.field for c in result.constants), map(float, result.values), strict=True))
        errors = dict(zip((c.field for c in result.constants), map(float, result.standard_errors), strict=True))
        gemm = {f[5:]: _rounded(v) for f, v in values.items() if f.startswith("gemm.")}
        entry["gemm"] = {**dict(device.efficiency.gemm), **gemm}
        for field, catalogue in EFFICIENCY_FIELD.items():
            value = values.get(field)
            if value is None:
                entry.setdefault(catalogue, getattr(device.efficiency, catalogue))
            else:
                entry[catalogue] = _rounded(value / (device.memory_bandwidth if catalogue == "memory" else 1.0))
        entry["standard_error"] = {_catalogue_name(f): round(e, 4) for f, e in errors.items()}
        entry["fit"] = {"date": date, "measurements": [path.name for path in files]}
        kept[name] = entry
    if not dry_run:
        write_tables(CATALOGUE, {"efficiencies.toml": (GENERATED, kept)})
    return 0


if __name__ == "__main__":
    sys.exit("run `python -m calibration fit`")

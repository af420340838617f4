"""Calibrate on one's own runs: a handful of measured steps moves the catalogue's constants and narrows the error."""

from __future__ import annotations

import csv
import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from costmodel.catalogue.loader import load_model
from costmodel.catalogue.software import framework_on
from costmodel.checks import kind, listing, plain
from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.description.plan import Plan
from costmodel.description.question import Question
from costmodel.description.transformer import Transformer
from costmodel.errors import CostModelError, InvalidValue, UnreadableFile
from costmodel.evaluation.engine import step_formula
from costmodel.evaluation.error_model import spread_of
from costmodel.formulas.quantities import Software
from costmodel.records import flat, replaced
from costmodel.solvers.fitting import Array, Constant, fit

FREE = {
    "compute_gemm_efficiency_scale": 0.15, "compute_attention_efficiency_scale": 0.2, "compute_elementwise_traffic": 0.3,
    "host_forward": 0.5, "host_backward": 0.5, "host_collective_launch": 0.5, "host_micro_batch": 0.5,
    "host_step": 0.5, "network_quality": 0.4, "network_latency": 0.4,
    "network_node_latency": 0.4, "network_sharding_quality": 0.2, "overlap_gradients": 0.3, "overlap_parameters": 0.3,
}  # fmt: skip
"""Constants that differ from cluster to cluster, and the standard deviation of their logarithm over clusters."""
LARGEST = {"overlap_gradients": 1.0, "overlap_parameters": 1.0}
FARTHEST = 8.0
"""A measured step farther than this from its estimate is a mistake in units, or another run."""
NOISE = 0.02
"""Log error of a repeated measurement."""
if TYPE_CHECKING:
    import pandas
    import polars

    Frame: TypeAlias = pandas.DataFrame | polars.DataFrame

Run = tuple[Transformer, Plan, float]
SECONDS = "step_time_s"
"""Column of a table of runs with the measured time; ``model`` has the model's name, all others are fields of `Plan`."""
WORDS: dict[str, bool | None] = {"true": True, "false": False, "none": None, "": None}


def calibrate(
    cluster: Cluster, runs: Sequence[Run] | str | Path | Frame, framework: Framework | str = "megatron-core"
) -> Cluster:
    """A cluster whose constants are fitted to measured steps, the catalogue's serving as prior.

    Parameters
    ----------
    cluster : on which the runs were made
    runs : measured steps: model, plan and seconds of each; or the path of a CSV file with one run a row, or a frame of
        pandas or polars with the same columns: ``model`` (a name in the catalogue or the path of a file that describes
        one), ``step_time_s``, and any fields of `Plan`, of which ``global_batch`` and ``seq_len`` are needed. An empty
        cell is the field's default
    framework : with which they were made, or its name

    Returns
    -------
    Cluster
        the same with `frameworks` holding the calibrated one, which `estimate` and `search` take when asked for its
        name; its `time_error` is what the runs leave unexplained, and never less than what the prior and so few runs
        allow

    Raises
    ------
    InvalidValue
        for a time that is no positive number, or that is out of all proportion to the estimate
    CostModelError
        where no run can be used
    IllegalPlan
        where a run's plan can't run on this cluster's kind

    Notes
    -----
    The error of the next run is estimated by leaving each run out in turn; with `n` runs it is combined with the
    family's error, which counts as four runs.

    Examples
    --------
    Two steps that took a tenth longer than the catalogue says:

    >>> import costmodel
    >>> model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=8)
    >>> plans = [costmodel.Plan(global_batch=64, seq_len=4096, data_parallel=8, micro_batch=b) for b in (1, 2)]
    >>> runs = [(model, plan, 1.1 * costmodel.estimate(model, cluster, plan).step_time) for plan in plans]
    >>> mine = costmodel.calibrate(cluster, runs)
    >>> after = costmodel.estimate(model, mine, plans[0]).step_time
    >>> bool(abs(after / runs[0][2] - 1) < 0.02)
    True
    """
    kind("cluster", cluster, Cluster, "load_cluster(name)")
    software = framework_on(cluster, framework)
    measured = read_runs(runs)
    if not measured:
        raise CostModelError("calibrate: no runs given")
    for _, _, seconds in measured:
        if not isinstance(seconds, int | float) or not math.isfinite(seconds) or seconds <= 0:
            raise InvalidValue("seconds", seconds, "a positive number")
    for model, plan, seconds in measured:
        plan.resolve(software).check(model, cluster.with_gpus(plan.gpus), software)
        prior = _predict(cluster, software, software.constants, (model, plan, seconds))
        if not 1.0 / FARTHEST < seconds / prior < FARTHEST:
            raise InvalidValue(
                "seconds", seconds, f"a time within {FARTHEST:g} times {prior:.4g} s, which the catalogue's constants give"
            )
    known = flat(software.constants)
    constants = [
        Constant(software.name, field, value, spread, value / 50, min(value * 50, LARGEST.get(field, math.inf)))
        for field, spread in FREE.items()
        if (value := float(known[field])) > 0 and value < LARGEST.get(field, math.inf)
    ]
    stack = _solve(cluster, software, measured, constants)
    error = _error(cluster, software, measured, constants)
    calibrated = dataclasses.replace(software, constants=stack, time_error=error)
    return dataclasses.replace(cluster, frameworks={**cluster.frameworks, software.name: calibrated})


def read_runs(runs: Sequence[Run] | str | Path | Frame) -> list[Run]:
    """Measured steps as model, plan and seconds.

    Parameters
    ----------
    runs : as `calibrate` takes them

    Raises
    ------
    InvalidValue
        naming the field, and the row of a table
    UnreadableFile
        where a file can't be read or lacks a column
    """
    if isinstance(runs, str | Path):
        return _rows(_csv_rows(Path(runs)), str(runs))
    if hasattr(runs, "to_dict") and hasattr(runs, "columns"):
        frame = runs.to_pandas() if hasattr(runs, "to_pandas") else runs
        return _rows(frame.to_dict("records"), "runs")
    return [_triple(run) for run in listing("runs", runs)]


def _triple(run: object) -> Run:
    if not isinstance(run, tuple) or len(run) != 3:
        raise InvalidValue("runs", run, "a tuple of model, plan and seconds")
    model, plan, seconds = run
    kind("model", model, Transformer, "load_model(name)")
    kind("plan", plan, Plan, "Plan(...)")
    return model, plan, seconds


def _csv_rows(path: Path) -> list[dict[str, object]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return [dict(row) for row in csv.DictReader(file, restkey="", strict=True)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UnreadableFile(f"{path}: {error}") from error


def _rows(rows: Sequence[Mapping[str, object]], source: str) -> list[Run]:
    fields = {field.name for field in dataclasses.fields(Plan)}
    found = []
    for number, row in enumerate(rows, 1):
        unknown = [str(column) for column in row if column not in fields | {"model", SECONDS}]
        if unknown:
            raise UnreadableFile(f"{source}: no column {unknown[0]!r} is known; expected model, {SECONDS} and fields of Plan")
        missing = [name for name in ("model", SECONDS, "global_batch", "seq_len") if _cell(row.get(name)) is None]
        if missing:
            raise UnreadableFile(f"{source} row {number}: no {missing[0]}")
        given = {name: _cell(value) for name, value in row.items() if name in fields}
        try:
            plan = Plan(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
            model = load_model(str(row["model"]))
        except CostModelError as error:
            raise UnreadableFile(f"{source} row {number}: {error}") from error
        seconds = _cell(row[SECONDS])
        if not isinstance(seconds, int | float):
            raise UnreadableFile(f"{source} row {number}: {SECONDS}={row[SECONDS]!r}: expected a number of seconds")
        found.append((model, plan, float(seconds)))
    return found


def _cell(value: object) -> object:
    """A cell of a table as the value of a field: whole numbers as such, nothing as None."""
    if isinstance(value, str):
        text = value.strip()
        if text.lower() in WORDS:
            return WORDS[text.lower()]
        try:
            value = float(text)
        except ValueError:
            return tuple(text.split("-")) if text.startswith(("tensor-", "context-", "data-", "pipeline-")) else text
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return plain(value)


def _predict(cluster: Cluster, software: Framework, constants: Software, run: Run) -> float:
    model, plan, _ = run
    inputs = Question(model, cluster, software).inputs(plan)._replace(software=constants)
    return float(step_formula(inputs.settings)(*inputs).total)


def _solve(cluster: Cluster, software: Framework, runs: Sequence[Run], constants: Sequence[Constant]) -> Software:
    fields = [constant.field for constant in constants]
    times = np.log([seconds for _, _, seconds in runs])

    def stack_at(values: Array) -> Software:
        return replaced(software.constants, dict(zip(fields, map(float, values), strict=True)))

    def residuals(values: Array, rows: Array | None) -> Array:
        stack = stack_at(values)
        chosen = range(len(runs)) if rows is None else rows
        return np.array([math.log(_predict(cluster, software, stack, runs[row])) - times[row] for row in chosen])

    every = np.arange(len(runs))
    result = fit(constants, residuals, len(runs), [every] * len(constants), np.ones(len(runs)), NOISE)
    return stack_at(result.values)


def _error(cluster: Cluster, software: Framework, runs: Sequence[Run], constants: Sequence[Constant]) -> float:
    """Standard deviation to expect on a new run: what leaving each out in turn shows, and the family's."""
    family = spread_of(software, cluster.device).time
    squares = 4.0 * family**2
    for index in range(len(runs) if len(runs) > 1 else 0):
        others = [*runs[:index], *runs[index + 1 :]]
        stack = _solve(cluster, software, others, constants)
        squares += math.log(_predict(cluster, software, stack, runs[index]) / runs[index][2]) ** 2
    count = 4.0 + (len(runs) if len(runs) > 1 else 0)
    return max(math.sqrt(squares / count), NOISE)

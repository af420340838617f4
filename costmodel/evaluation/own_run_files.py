"""Measured runs as people give them to `costmodel.calibrate`: triples, records, tables, and files of either."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from costmodel.arithmetic.named_tuples import made
from costmodel.catalogue.asking import HARDWARE, given, hardware_of
from costmodel.catalogue.loader import load_model
from costmodel.catalogue.records.reading import load_runs
from costmodel.catalogue.software import load_framework
from costmodel.description.fields import full_names
from costmodel.description.plan import Plan
from costmodel.description.run import Run
from costmodel.description.transformer import Transformer
from costmodel.evaluation.counted_memory import Count
from costmodel.evaluation.own_run_update import Measured
from costmodel.text.checks import kind, listing, plain
from costmodel.text.csv_files import read_csv
from costmodel.text.errors import CostModelError, InvalidValue, UnreadableFile

if TYPE_CHECKING:
    import pandas
    import polars

    Frame: TypeAlias = pandas.DataFrame | polars.DataFrame

Triple: TypeAlias = tuple[Transformer, Plan, float]
"""Model, plan, and seconds of a step."""
Given: TypeAlias = "Sequence[Triple | Run] | str | Path | Frame"
SECONDS = "step_time_s"
"""Column of a table of runs with the measured time; ``model`` has the model's name, ``cluster`` or ``device``, ``gpus``,
``nodes`` and ``framework`` may say where it ran, all others are fields of `Plan`."""
NEEDED = ("global_batch", "seq_len")
MOST_RUNS = 2000
"""Runs that a calibration takes: every two of them are compared, and a cluster's constants are told long before."""
FARTHEST = 8.0
"""A measured step farther than this from its estimate is a mistake in units, or another run."""
WORDS: dict[str, bool | None] = {"true": True, "false": False, "none": None, "": None}


def measured_runs(runs: Given) -> list[Measured]:
    """Measured runs, whatever they came as.

    Parameters
    ----------
    runs : as `costmodel.calibrate` takes them

    Raises
    ------
    InvalidValue
        naming the field, and the row of a table; for more than `MOST_RUNS`
    UnreadableFile
        where a file can't be read, is too large or lacks a column
    """
    if isinstance(runs, str | Path):
        return _of_file(Path(runs))
    if hasattr(runs, "to_dict") and hasattr(runs, "columns"):
        check_count(len(runs))
        frame = runs.to_pandas() if hasattr(runs, "to_pandas") else runs
        return _rows(frame.to_dict("records"), "runs")
    each = listing("runs", runs)
    check_count(len(each))
    return [_one(run) for run in each]


def check_count(count: int) -> None:
    """Refuse more runs than a calibration takes."""
    if count > MOST_RUNS:
        raise InvalidValue("runs", count, f"at most {MOST_RUNS} of them")


def _of_file(path: Path) -> list[Measured]:
    if path.name.lower().endswith(".jsonl"):
        return _of_records(load_runs(path))
    rows = read_csv(path, MOST_RUNS)
    if rows and any("." in column for column in rows[0]):
        return _of_records(load_runs(path))
    return _rows(rows, str(path))


def _of_records(records: Sequence[Run]) -> list[Measured]:
    check_count(len(records))
    return [found for record in records if (found := _of_record(record)) is not None]


def _of_record(run: Run) -> Measured | None:
    """A record that has a time or a peak of its plan; None of one that has neither."""
    if run.seconds is None and run.peak_bytes is None:
        return None
    return Measured(
        run.model, run.plan.on(run.cluster), run.seconds, run.peak_bytes, Count(run.memory_kind, run.memory_of), run.framework,
        run.cluster, run.id,
    )  # fmt: skip


def _one(run: object) -> Measured:
    if isinstance(run, Measured):
        return run
    if isinstance(run, Run):
        found = _of_record(run)
        if found is None:
            raise InvalidValue("runs", run.id or "a record", "a run with a step time or a peak of its plan")
        return found
    if not isinstance(run, tuple) or len(run) != 3:
        raise InvalidValue("runs", run, "a tuple of model, plan and seconds")
    model, plan, seconds = run
    kind("model", model, Transformer, "load_model(name)")
    kind("plan", plan, Plan, "Plan(...)")
    if not isinstance(seconds, int | float) or not math.isfinite(seconds) or seconds <= 0:
        raise InvalidValue("seconds", seconds, "a positive number")
    return Measured(model, plan, float(seconds))


def _rows(rows: Sequence[Mapping[str, object]], source: str) -> list[Measured]:
    named = functools.cache(load_model)  # a file that all rows name is read once
    found = []
    for number, row in enumerate(rows, 1):
        try:
            found.append(_of_row({name: _cell(value) for name, value in row.items()}, named))
        except CostModelError as error:
            raise UnreadableFile(f"{source} row {number}: {error}") from error
    return found


def _of_row(row: Mapping[str, object], named: Callable[[str], Transformer]) -> Measured:
    """A line of a table; hardware and software may stand in it beside the plan."""
    said = given(row)
    model, seconds, software, cluster = (said.pop(name, None) for name in ("model", SECONDS, "framework", "cluster"))
    fields = full_names(Plan, said, HARDWARE)
    missing = [name for name, value in {"model": model, SECONDS: seconds, **dict.fromkeys(NEEDED)}.items()
               if value is None and fields.get(name) is None]  # fmt: skip
    if missing:
        raise CostModelError(f"no {missing[0]}")
    if not isinstance(seconds, int | float):
        raise InvalidValue(SECONDS, seconds, "a number of seconds")
    on = None
    if cluster is not None or fields.keys() & HARDWARE:
        on, fields = hardware_of(cluster, fields)  # type: ignore[arg-type]
    plan = made(Plan, fields)
    run = _one((named(str(model)), plan if on is None else plan.on(on), float(seconds)))
    return run._replace(cluster=on, framework=None if software is None else load_framework(str(software)))


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

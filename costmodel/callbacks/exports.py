"""Logged steps read back as measured runs: files of `CsvLog`, and what W&B exports."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from costmodel.arithmetic.named_tuples import Row
from costmodel.callbacks.logs import PREFIX, RECORD
from costmodel.callbacks.monitor import COUNTED, PEAK, SECONDS
from costmodel.catalogue.records.reading import nested
from costmodel.catalogue.records.runs import run_of
from costmodel.description.run import Run
from costmodel.interop.launchers.logs import StepTimes
from costmodel.text import user_files
from costmodel.text.csv_files import read_csv
from costmodel.text.errors import UnreadableFile

MOST_ROWS, MOST_BYTES = 1_000_000, 256 << 20
NAMES = ("Name", "name", "id")
"""Columns that may say a run's name."""


def load_runs(path: str | os.PathLike[str], config: Mapping[str, Any] | str | os.PathLike[str] | None = None) -> list[Run]:
    """Runs of a file of logged steps, the step time of each the median of its steps after the first.

    Parameters
    ----------
    path : what `CsvLog` wrote; a history of W&B (``run.history().to_csv``, ``to_json`` or a list of ``run.scan_history()`` as
        JSON); or a table of runs exported from its pages, a run a row with its last logged step
    config : of the run whose history it is: ``run.config``, or the ``config.yaml`` or JSON of it; where the columns don't say
        what ran

    Returns
    -------
    list of Run
        as `costmodel.load_runs` gives them and `costmodel.calibrate` takes them

    Raises
    ------
    UnreadableFile
        where the file can't be read, has no step that was logged, or nothing says what ran
    CostModelError
        naming the key, where what ran can't be understood
    """
    shown, told = user_files.named(path), None if config is None else _configured(config)
    steps: dict[tuple[str, str], list[tuple[float, float | None]]] = {}
    for row in _rows(path):
        seconds, peak = (_number(row, name) for name in (SECONDS, PEAK))
        if seconds is not None:
            said = {name.partition(".")[2]: str(cell) for name, cell in row.items() if name.startswith(f"{RECORD}.")}
            record = nested(said) or told
            if not record:
                raise UnreadableFile(f"{shown}: no column {RECORD}.model: give the run's config, which says what ran")
            name = next((str(row[column]) for column in NAMES if row.get(column)), Path(path).stem)
            steps.setdefault((name, json.dumps(record, sort_keys=True)), []).append((seconds, peak))
    if not steps:
        raise UnreadableFile(f"{shown}: no row has {PREFIX}{SECONDS} or {SECONDS}")
    return [_run(name, json.loads(record), found) for (name, record), found in steps.items()]


def _run(name: str, record: Row, steps: Iterable[tuple[float, float | None]]) -> Run:
    seconds, peaks = zip(*steps, strict=True)
    measured: Row = {"step_time_s": StepTimes(framework="", steps=(), seconds=seconds).typical(), "points": len(seconds)}
    if known := [peak for peak in peaks if peak is not None]:
        measured |= {"peak_memory_bytes": max(known), "memory_kind": COUNTED.kind, "memory_of": COUNTED.of}
    return run_of({**record, "measured": measured}, name)


def _number(row: Mapping[str, Any], name: str) -> float | None:
    """A figure of a row, whether its column has the prefix of a metric or not; None where it has none."""
    for column in (PREFIX + name, name):
        cell = row.get(column)
        if cell not in (None, "", "NaN", "nan") and cell == cell:
            try:
                return float(cell)
            except (TypeError, ValueError):
                raise UnreadableFile(f"{column}={str(cell)[:80]!r}: expected a number") from None
    return None


def _rows(path: str | os.PathLike[str]) -> Iterable[Mapping[str, Any]]:
    if os.fspath(path).lower().endswith(".csv"):
        return read_csv(Path(path), MOST_ROWS)
    text, shown = user_files.text(path, MOST_BYTES), user_files.named(path)
    try:
        found = json.loads(text) if text.lstrip()[:1] == "[" else [json.loads(line) for line in text.splitlines() if line.strip()]
    except json.JSONDecodeError as error:
        raise UnreadableFile(f"{shown}: no JSON: {error}") from None
    if len(found) == 1 and isinstance(found[0], dict) and all(isinstance(one, dict) for one in found[0].values()):
        columns = found[0]  # as pandas writes a frame: a table of rows for each column
        return [{name: cells.get(row) for name, cells in columns.items()} for row in next(iter(columns.values()), {})]
    if not all(isinstance(row, dict) for row in found):
        raise UnreadableFile(f"{shown}: expected a list of rows, each a table of names and values")
    rows: list[Mapping[str, Any]] = found
    return rows


def _configured(config: Mapping[str, Any] | str | os.PathLike[str]) -> Row:
    """The record among the settings of a run."""
    found: Any = config
    if not isinstance(config, Mapping):
        import yaml

        try:
            found = yaml.safe_load(user_files.text(config, MOST_BYTES))  # JSON is YAML
        except yaml.YAMLError as error:
            raise UnreadableFile(f"{user_files.named(config)}: no YAML: {' '.join(str(error).split())[:200]}") from None
    record = found.get(RECORD) if isinstance(found, Mapping) else None
    if isinstance(record, Mapping) and "model" not in record:
        record = record.get("value")  # of W&B's own config.yaml
    if not isinstance(record, Mapping):
        raise UnreadableFile(f"config: no key {RECORD!r}, under which `WandbLog` says what ran")
    return dict(record)

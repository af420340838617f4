"""Files of records: JSON Lines, nested, or CSV with dotted names of columns."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from costmodel.arithmetic.named_tuples import Row
from costmodel.catalogue.records.runs import run_of
from costmodel.catalogue.records.schema import GROUPS, schema
from costmodel.description.run import Run
from costmodel.text import user_files
from costmodel.text.csv_files import read_csv
from costmodel.text.errors import CostModelError, UnreadableFile

MOST_BYTES = 256 << 20
MOST_RUNS = 100_000
WORDS: Mapping[str, object] = {"true": True, "false": False, "none": None, "null": None}
"""Cells of a table that are no texts; of a key that holds texts they are."""


class Refused(NamedTuple):
    """A record that is no run."""

    id: str  # of the record, or its place
    place: str  # file and line
    reason: str  # in one line
    record: Mapping[str, Any]  # as the file has it, where it could be read


def load_runs(path: str | os.PathLike[str]) -> list[Run]:
    """Measured runs of a file.

    Parameters
    ----------
    path : JSON Lines (``.jsonl``), a run a line, with the keys that `costmodel new run FILE` writes; or a table (``.csv``) whose
        columns are the same keys with dots, ``plan.tensor_parallel``; an empty cell is not known

    Returns
    -------
    list of Run
        in the file's order

    Raises
    ------
    UnreadableFile
        where the file can't be read, or a record in it is no run; file, line, key and value are named

    Examples
    --------
    >>> import json, pathlib, tempfile
    >>> record = {
    ...     "model": "llama3-8b", "cluster": {"name": "dgx-h100", "gpus": 8}, "software": {"framework": "fsdp2"},
    ...     "plan": {"global_batch": 64, "seq_len": 8192}, "measured": {"step_time_s": 9.6},
    ... }
    >>> path = pathlib.Path(tempfile.mkdtemp(), "runs.jsonl")
    >>> _ = path.write_text(json.dumps(record))
    >>> (run,) = load_runs(path)
    >>> run.step_time, run.framework.name, run.cluster.gpus
    (9.6, 'fsdp2', 8)
    """
    found = []
    for one in read_records(path):
        if isinstance(one, Refused):
            raise UnreadableFile(f"{one.place}: {one.reason}")
        found.append(one)
    return found


def read_records(path: str | os.PathLike[str]) -> Iterator[Run | Refused]:
    """Every record of a file, as a run or with the reason why it is none.

    Parameters
    ----------
    path : as `load_runs` takes it

    Raises
    ------
    UnreadableFile
        where the file itself can't be read
    """
    shown = user_files.named(path)
    rows = _of_table(path, shown) if os.fspath(path).lower().endswith(".csv") else _of_lines(path, shown)
    for place, row in rows:
        if isinstance(row, str):
            yield Refused(place, place, row, {})
            continue
        name = str(row.get("id") or place)
        try:
            run: Run | Refused = run_of(row, name)
        except CostModelError as error:
            run = Refused(name, place, str(error), row)
        yield run


def _of_lines(path: str | os.PathLike[str], shown: str) -> Iterator[tuple[str, Row | str]]:
    lines = user_files.text(path, MOST_BYTES).splitlines()
    if len(lines) > MOST_RUNS:
        user_files.refuse(path, f"has more than {MOST_RUNS:,} lines; give fewer of them")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            yield f"{shown} line {number}", f"no JSON: {error}"
            continue
        yield f"{shown} line {number}", record if isinstance(record, dict) else "no record: expected a table of keys in braces"


def _of_table(path: str | os.PathLike[str], shown: str) -> Iterator[tuple[str, Row | str]]:
    for number, row in enumerate(read_csv(Path(path), MOST_RUNS), 2):
        yield f"{shown} line {number}", nested(row)


def nested(cells: Mapping[str, str]) -> Row:
    """The record whose cells of a table these are: the reverse of `dotted`.

    Parameters
    ----------
    cells : by the names of their columns; an empty one is not known
    """
    record: Row = {}
    for column, cell in cells.items():
        if cell.strip():
            _put(record, column.split("."), cell.strip())
    return record


def dotted(record: Mapping[str, Any], inside: str = "") -> dict[str, str]:
    """A record as the cells of a table, by the names of its columns.

    Examples
    --------
    >>> dotted({"id": "1", "plan": {"seq_len": 4096}, "unstated": ["loss", "release"]})
    {'id': '1', 'plan.seq_len': '4096', 'unstated': 'loss;release'}
    """
    found: dict[str, str] = {}
    for key, value in record.items():
        name = f"{inside}.{key}" if inside else key
        if isinstance(value, Mapping):
            found |= dotted(value, name)
        elif isinstance(value, list | tuple):
            found[name] = ";".join(map(str, value))
        else:
            found[name] = value if isinstance(value, str) else json.dumps(value)
    return found


def _put(record: Row, keys: list[str], cell: str) -> None:
    """A cell in its place, tables made on the way."""
    value = _value(keys, cell)
    for key in keys[:-1]:
        record = record.setdefault(key, {})
        if not isinstance(record, dict):
            raise UnreadableFile(f"the column {'.'.join(keys)[:80]!r} and one of its groups are both there")
    record[keys[-1]] = value


def _value(keys: list[str], cell: str) -> object:
    """A cell as the value of a key: a text where the schema has one, else what it looks like."""
    group = schema().get(keys[0] if keys[0] in GROUPS else "record", {})
    field = group.get(".".join(keys[1:]) if keys[0] in GROUPS else keys[0])
    if field is not None and field.kind == "text":
        return cell
    if field is not None and field.kind == "names":
        return [name.strip() for name in cell.replace(",", ";").split(";") if name.strip()]
    if ";" in cell:
        return [name.strip() for name in cell.split(";")]
    if cell.lower() in WORDS:
        return WORDS[cell.lower()]
    try:
        number = float(cell)
    except ValueError:
        return cell
    return int(number) if number.is_integer() and abs(number) < 1e15 else number

"""A trace as a file: NumPy's .npz, a few MB a role, without pickles."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np

from costmodel.text.errors import CostModelError, UnreadableFile
from costmodel.traces.record import ColumnTable, Role, Trace

FORMAT = 1


def save(trace: Trace, path: str | Path) -> None:
    """Write a trace; the same trace gives the same bytes.

    Parameters
    ----------
    trace : `Trace`
    path : of the file, as it is to be named
    """
    arrays: dict[str, np.ndarray] = {}
    roles = []
    for place, role in enumerate(trace.roles):
        for name in Role.TABLES:
            for column, values in getattr(role, name).columns():
                arrays[f"{place}/{name}/{column}"] = _narrow(values)
        arrays[f"{place}/operands"] = _narrow(role.operands)
        roles.append(
            {"rank": role.rank, "stands_for": role.stands_for, "groups": role.groups, "streams": role.streams,
             "texts": role.texts, "values_assumed": role.values_assumed}
        )  # fmt: skip
    head = {
        "format": FORMAT, "world_size": trace.world_size, "versions": trace.versions, "facts": trace.facts,
        "values_assumed": trace.values_assumed, "roles": roles,
    }  # fmt: skip
    arrays["head"] = np.frombuffer(json.dumps(head).encode(), dtype=np.uint8)
    with Path(path).open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)  # type: ignore[arg-type]


def load(path: str | Path) -> Trace:
    """Read a trace.

    Parameters
    ----------
    path : of the file

    Raises
    ------
    UnreadableFile
        where it is missing, or none of a trace
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            head = json.loads(bytes(arrays["head"]))
            if head["format"] != FORMAT:
                raise UnreadableFile(f"{path}: a trace of format {head['format']}, and this version reads format {FORMAT}")
            return Trace(
                roles=tuple(_role(place, fields, arrays) for place, fields in enumerate(head["roles"])),
                world_size=head["world_size"], versions=head["versions"], facts=head["facts"],
                values_assumed=tuple(head["values_assumed"]),
            )  # fmt: skip
    except CostModelError:
        raise
    except OSError as error:
        raise UnreadableFile(f"{path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise UnreadableFile(f"{path}: no trace, which `Trace.save` writes ({type(error).__name__})") from error


def _role(place: int, fields: dict[str, object], arrays: np.lib.npyio.NpzFile) -> Role:
    tables: dict[str, ColumnTable] = {}
    for name, kind in Role.TABLES.items():
        prefix = f"{place}/{name}/"
        tables[name] = kind(**{key.removeprefix(prefix): arrays[key] for key in arrays.files if key.startswith(prefix)})
    read: dict[str, object] = {key: _tuples(value) for key, value in fields.items()}
    return Role(operands=arrays[f"{place}/operands"], **tables, **read)  # type: ignore[arg-type]


def _tuples(value: object) -> object:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _narrow(values: np.ndarray) -> np.ndarray:
    """The same whole numbers in fewer bytes."""
    return values.astype(np.int32) if values.size == 0 or np.abs(values).max() < 2**31 else values

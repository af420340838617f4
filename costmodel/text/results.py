"""What descriptions and results have in common: a short text of themselves, and figures."""

from __future__ import annotations

import dataclasses
import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast, overload

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a text begins with that a spreadsheet would run."""

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go
    import polars

T_co = TypeVar("T_co", covariant=True)
WIDTH, LINES = 80, 10
"""Columns of a text, and its most lines."""
FIRST = 3
"""Members of a long list that are shown."""
LONG = 60
"""Characters from which a value is shortened."""


def brief(record: Any) -> str:
    """A record in a few lines: fields as they come by default are left out, nested descriptions are called by their names.

    Parameters
    ----------
    record : a dataclass, or a named tuple

    Examples
    --------
    >>> from costmodel import Plan
    >>> Plan(global_batch=64, seq_len=8192, tensor_parallel=4, recompute="full")
    Plan(global_batch=64, seq_len=8192, tensor_parallel=4, recompute='full')
    """
    fields = dataclasses.fields(record) if dataclasses.is_dataclass(record) else ()
    shown = [one.name for one in fields if one.repr and not _by_default(one, getattr(record, one.name))]
    words = [f"{name}={_shown(getattr(record, name))}" for name in (shown if fields else record._fields)]
    return fitted(f"{type(record).__name__}({', '.join(words)})")


def fitted(text: str, indent: str = "    ") -> str:
    """A text in lines of at most `WIDTH` columns, cut after `LINES`.

    Parameters
    ----------
    text : of one line or several
    indent : of the lines that go on
    """
    lines = [
        part
        for line in text.splitlines()
        for part in textwrap.wrap(line, WIDTH, subsequent_indent=indent, break_on_hyphens=False, drop_whitespace=True) or [""]
    ]
    return "\n".join([*lines[: LINES - 1], f"{indent}..."] if len(lines) > LINES else lines)


def _by_default(field: dataclasses.Field[Any], value: object) -> bool:
    if getattr(field.metadata.get("row"), "asked", False):  # part of every question
        return False
    made = field.default_factory
    usual = field.default if made is dataclasses.MISSING else made()
    return type(usual) is type(value) and bool(usual == value)


def _shown(value: object) -> str:
    """A value in few characters."""
    if isinstance(value, float):
        return min(repr(value), f"{value:.6g}", key=len)
    if dataclasses.is_dataclass(value) or hasattr(value, "_fields"):
        name = getattr(value, "name", "")
        return f"{type(value).__name__}({name!r})" if name and isinstance(name, str) else f"{type(value).__name__}(...)"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"array of {' x '.join(map(str, value.shape)) or 'one number'}"
    if isinstance(value, Mapping):
        text = "{" + ", ".join(f"{name!r}: {_shown(one)}" for name, one in value.items()) + "}"
        return text if len(text) <= LONG else f"{{{', '.join(map(repr, list(value)[:FIRST]))}, ... {len(value)} in all}}"
    if isinstance(value, list | tuple):
        return _listed(value)
    text = repr(value)
    return text if len(text) <= LONG else f"{text[: LONG - 3]}..."


def _listed(values: list[object] | tuple[object, ...]) -> str:
    """A list, or its first members and how many there are."""
    few = [_shown(one) for one in values[: FIRST if len(values) > 2 * FIRST else None]]
    text = ", ".join([*few, f"... {len(values)} in all"] if len(few) < len(values) else few)
    if isinstance(values, list):
        return f"[{text}]"
    return f"({text},)" if len(values) == 1 else f"({text})"


def figure(self: object, kind: str | None = None) -> go.Figure:
    """A figure of this result: the method `plot` of every result that has any.

    Parameters
    ----------
    kind : which; the first of the result's if None. Another word is refused with the list of those that there are

    Raises
    ------
    InvalidValue
        where the result has no such figure
    IllegalPlan
        where it has no plan that fits, and so nothing to draw
    """
    made: go.Figure = import_module("costmodel.plots.kinds").figure_of(self, kind)  # plots know results, not the reverse
    return made


class RowTable:
    """A result that is a table: as dictionaries, frames and files."""

    first_column: ClassVar[str]
    """Of a file without rows."""

    def to_rows(self) -> list[dict[str, Any]]:
        """One dictionary a row, with units in the names."""
        raise NotImplementedError

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """The rows as CSV; written to `path` if given."""
        text = rows_as_csv(self.to_rows(), [self.first_column])
        if path is not None:
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(text)
        return text

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a pandas frame (extra ``frame``)."""
        import pandas

        return pandas.DataFrame(self.to_rows())

    def to_polars(self) -> polars.DataFrame:
        """The rows as a polars frame (extra ``frame``)."""
        import polars

        return polars.DataFrame(self.to_rows(), infer_schema_length=None)


class AnswerTable(RowTable, Generic[T_co]):
    """A table whose rows are answers, which a loop goes through and a place picks."""

    @property
    def answers(self) -> Sequence[T_co]:
        """The rows."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.answers)

    def __iter__(self) -> Iterator[T_co]:
        return iter(self.answers)

    @overload
    def __getitem__(self, place: int) -> T_co: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[T_co]: ...
    def __getitem__(self, place: int | slice) -> T_co | Sequence[T_co]:
        """The row at a place from 0, or some of them."""
        return self.answers[place]

    def to_rows(self) -> list[dict[str, Any]]:
        """One dictionary a row, with units in the names."""
        return [cast(Any, one).to_dict() for one in self.answers]


def cell(value: object) -> object:
    """A value as a cell of a CSV file: a text that a spreadsheet would take for a formula begins with an apostrophe.

    Examples
    --------
    >>> cell("=1+1"), cell("llama3-8b"), cell("-1.5"), cell(-1.5)
    ("'=1+1", 'llama3-8b', '-1.5', -1.5)
    """
    if not isinstance(value, str) or not value.startswith(FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def rows_as_csv(rows: Sequence[Mapping[str, object]], otherwise: Sequence[str] = ()) -> str:
    """Rows as CSV, under the names of their cells in the order in which these first come.

    Parameters
    ----------
    rows : cells by name
    otherwise : names of the columns where there are no rows

    Examples
    --------
    >>> print(rows_as_csv([{"plan": "=DP8", "step_s": 1.5}, {"plan": "TP8", "days": 2}]), end="")
    plan,step_s,days
    '=DP8,1.5,
    TP8,,2
    """
    import csv
    import io

    buffer = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row)) or list(otherwise)
    writer = csv.DictWriter(buffer, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: cell(value) for name, value in row.items()} for row in rows)
    return buffer.getvalue()

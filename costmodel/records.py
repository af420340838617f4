"""Nested tuples of numbers, by the paths of their numbers."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar

Row: TypeAlias = dict[str, Any]
"""A row that leaves the process, or comes in: values by the names of columns, units in the names."""
Record = TypeVar("Record", bound=tuple[Any, ...])


def as_number(column: Any) -> float:
    """A NumPy column, or a symbol, in the place of a number: the same object, for the type checker.

    Parameters
    ----------
    column : one number a row, or a symbolic expression
    """
    return column  # type: ignore[no-any-return]


def flat(record: tuple[Any, ...]) -> Row:
    """Every number of a nested tuple by its path, groups and fields joined by underscores, as files name constants.

    Parameters
    ----------
    record : a NamedTuple of numbers and of such tuples

    Examples
    --------
    >>> from costmodel.formulas.quantities import LevelNumbers, NetworkNumbers
    >>> level = LevelNumbers(8.0, 1e-6, 4e11)
    >>> flat(NetworkNumbers(level, level, level))["leaf_size"]
    8.0
    """
    found: Row = {}
    for name, value in zip(record._fields, record, strict=True):  # type: ignore[attr-defined]
        found |= {f"{name}_{path}": leaf for path, leaf in flat(value).items()} if hasattr(value, "_fields") else {name: value}
    return found


def paths(kind: type[tuple[Any, ...]]) -> tuple[str, ...]:
    """Paths of the numbers of a kind of tuple, as `flat` names them.

    Parameters
    ----------
    kind : a NamedTuple of numbers and of such tuples

    Examples
    --------
    >>> from costmodel.formulas.quantities import Software
    >>> paths(Software)[:2]
    ('compute_gemm_efficiency_scale', 'compute_attention_efficiency_scale')
    """
    groups = typing.get_type_hints(kind)
    return tuple(
        path
        for name, group in groups.items()
        for path in ((f"{name}_{inner}" for inner in paths(group)) if hasattr(group, "_fields") else (name,))
    )


def nested(kind: type[Record], numbers: Mapping[str, Any]) -> Record:
    """The tuple of a kind whose numbers have the paths of `numbers`; what it lacks is a KeyError.

    Parameters
    ----------
    kind : a NamedTuple of numbers and of such tuples
    numbers : by the paths of `flat`
    """
    groups = typing.get_type_hints(kind)
    return kind(*(
        nested(group, {path.removeprefix(f"{name}_"): value for path, value in numbers.items() if path.startswith(f"{name}_")})
        if hasattr(group, "_fields") else numbers[name]
        for name, group in groups.items()
    ))  # fmt: skip


def replaced(record: Record, changes: Mapping[str, Any]) -> Record:
    """The tuple with some of its numbers changed, by the paths of `flat`.

    Parameters
    ----------
    record : a NamedTuple of numbers and of such tuples
    changes : new numbers by their paths
    """
    return nested(type(record), flat(record) | dict(changes))

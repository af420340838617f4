"""Nested tuples of numbers, by the paths of their numbers."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Row: TypeAlias = dict[str, Any]
"""A row that leaves the process, or comes in: values by the names of columns, units in the names."""
Made = TypeVar("Made")
Record = TypeVar("Record", bound=tuple[Any, ...])


def as_number(column: object) -> float:
    """A NumPy column, or a symbol, in the place of a number: the same object, for the type checker.

    Parameters
    ----------
    column : one number a row, or a symbolic expression
    """
    return typing.cast(float, column)


def as_column(number: object) -> NDArray[np.float64]:
    """What `as_number` put in the place of a number: the same object, for the type checker."""
    return typing.cast("NDArray[np.float64]", number)


def made(kind: Callable[..., Made], fields: Mapping[str, object]) -> Made:
    """An object of a class from fields whose values the class checks itself.

    Parameters
    ----------
    kind : the class
    fields : values by name, as a file or a form has them
    """
    return kind(**fields)


def changed(record: Made, changes: Mapping[str, object]) -> Made:
    """A dataclass with some of its fields changed, which it checks itself."""
    replace: Callable[..., Made] = dataclasses.replace
    return replace(record, **changes)


def flat(record: tuple[object, ...] | dict[str, object], joint: str = "_") -> Row:
    """Every number of a nested tuple by its path, groups and fields joined by underscores, as files name constants.

    Parameters
    ----------
    record : a NamedTuple of numbers and of such tuples, or a dictionary of them
    joint : between the names of a path

    Examples
    --------
    >>> from costmodel.formulas.quantities import LevelNumbers, NetworkNumbers
    >>> level = LevelNumbers(8.0, 1e-6, 4e11)
    >>> flat(NetworkNumbers(level, level, level))["leaf_size"]
    8.0
    """
    found: Row = {}
    names: tuple[str, ...] = getattr(record, "_fields", ())
    parts = record.items() if isinstance(record, dict) else zip(names, record, strict=True)
    for name, value in parts:
        if isinstance(value, tuple | dict):
            found |= {f"{name}{joint}{path}": leaf for path, leaf in flat(value, joint).items()}
        else:
            found[name] = value
    return found


@functools.cache
def _groups(kind: type[tuple[object, ...]]) -> dict[str, type]:
    """The annotation of every field, looked up once."""
    return typing.get_type_hints(kind)


def paths(kind: type[tuple[object, ...]], joint: str = "_") -> tuple[str, ...]:
    """Paths of the numbers of a kind of tuple, as `flat` names them.

    Parameters
    ----------
    kind : a NamedTuple of numbers and of such tuples
    joint : between the names of a path

    Examples
    --------
    >>> from costmodel.formulas.quantities import Software
    >>> paths(Software)[:2]
    ('compute_gemm_efficiency_scale', 'compute_attention_efficiency_scale')
    """
    groups = _groups(kind)
    return tuple(
        path
        for name, group in groups.items()
        for path in ((f"{name}{joint}{inner}" for inner in paths(group, joint)) if hasattr(group, "_fields") else (name,))
    )


def nested(kind: type[Record], numbers: Mapping[str, object]) -> Record:
    """The tuple of a kind whose numbers have the paths of `numbers`; what it lacks is a KeyError.

    Parameters
    ----------
    kind : a NamedTuple of numbers and of such tuples
    numbers : by the paths of `flat`
    """
    groups = _groups(kind)
    whole: Callable[..., Record] = kind
    return whole(*(
        nested(group, {path.removeprefix(f"{name}_"): value for path, value in numbers.items() if path.startswith(f"{name}_")})
        if hasattr(group, "_fields") else numbers[name]
        for name, group in groups.items()
    ))  # fmt: skip


def from_numbers(kind: type[Record], numbers: Iterable[object]) -> Record:
    """The tuple of a kind whose numbers come in the order of `paths`.

    Parameters
    ----------
    kind : a NamedTuple of numbers and of such tuples
    numbers : as many as it has
    """
    left = iter(numbers)

    def one(group: type[tuple[object, ...]]) -> object:
        make: Callable[..., object] = group
        return make(*(one(part) if hasattr(part, "_fields") else next(left) for part in _groups(group).values()))

    return typing.cast(Record, one(kind))


def replaced(record: Record, changes: Mapping[str, object]) -> Record:
    """The tuple with some of its numbers changed, by the paths of `flat`.

    Parameters
    ----------
    record : a NamedTuple of numbers and of such tuples
    changes : new numbers by their paths
    """
    return nested(type(record), flat(record) | dict(changes))


def stacked(records: Sequence[Record], axes: int = 2, axis: int = 0) -> Record:
    """Several tuples of a kind as one: a number where all of them have the same, else an array of theirs.

    Parameters
    ----------
    records : tuples of numbers and of such tuples
    axes : of the arrays, all but one of length 1
    axis : along which the records lie

    Examples
    --------
    >>> from costmodel.formulas.quantities import LevelNumbers
    >>> level = stacked([LevelNumbers(8.0, 1e-6, 4e11), LevelNumbers(8.0, 2e-6, 4e11)])
    >>> level.size, level.latency.shape
    (8.0, (2, 1))
    """
    if all(one is records[0] for one in records):
        return records[0]
    kind: Callable[[Iterable[object]], Record] = type(records[0])._make  # type: ignore[attr-defined]  # a NamedTuple's

    def together(parts: tuple[Any, ...]) -> object:
        if isinstance(parts[0], tuple):
            return stacked(parts, axes, axis)
        if parts.count(parts[0]) == len(parts):
            return parts[0]
        import numpy as np

        return np.array(parts).reshape([-1 if place == axis else 1 for place in range(axes)])

    return kind(map(together, zip(*records, strict=True)))

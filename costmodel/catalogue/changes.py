"""One number of a description scaled or replaced: what a question of the form "what if" starts with."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from costmodel.catalogue.readings import KINDS
from costmodel.checks import real
from costmodel.description.cluster import Cluster, Level
from costmodel.description.device import Device, Efficiency
from costmodel.description.framework import Framework
from costmodel.description.transformer import Transformer
from costmodel.errors import InvalidValue
from costmodel.formulas.quantities import Software
from costmodel.records import changed, flat, paths, replaced
from costmodel.units import quantity

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Description = TypeVar("Description", Transformer, Device, Cluster, Framework)
Value = float | int | bool | str

_SCALE = re.compile(r"(?:x\s*([0-9.eE+-]+)|([0-9.eE+-]+)\s*x)")
_WORDS = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}


def replace(description: Description, changes: Mapping[str, Value]) -> Description:
    """A description with some of its numbers scaled or replaced.

    Parameters
    ----------
    description : a Transformer, Device, Cluster or Framework
    changes : path: value. Paths are fields; of a cluster also ``device.FIELD`` and a level's name with a field of Level
        (``node.`` and ``network.`` are the innermost and the outermost); of a device also ``dense_peak.DTYPE``,
        ``efficiency.FIELD`` and ``efficiency.gemm.DTYPE``; of a framework also its calibrated constants by name. A value is
        a number in SI units, a text with a unit (``"141 GB"``), or a factor (``"2x"``).

    Returns
    -------
    Transformer, Device, Cluster or Framework
        of the same kind, validated anew

    Raises
    ------
    InvalidValue
        for a path that there isn't, or a value that the field can't have

    Notes
    -----
    A scaled `bandwidth` of a level scales its line rate alike; a new `memory` of a device keeps the share of it that a
    process can use.

    Examples
    --------
    >>> from costmodel import load_cluster
    >>> faster = replace(load_cluster("dgx-h100"), {"rail.bandwidth": "2x", "device.memory": "141 GB"})
    >>> faster.levels[1].bandwidth / load_cluster("dgx-h100").levels[1].bandwidth, faster.device.memory
    (2.0, 141000000000.0)
    """
    for path, value in changes.items():
        if not isinstance(path, str):
            raise InvalidValue("path", path, "a text such as rail.bandwidth")
        description = _replaced(description, path, value)
    return description


def level_called(cluster: Cluster, name: str) -> str | None:
    """The level of a cluster of that name, or None; ``node`` is the innermost, ``network`` the outermost of several.

    Parameters
    ----------
    cluster : whose levels are looked at
    name : of a level, ``"node"`` or ``"network"``
    """
    names = [level.name for level in cluster.levels]
    if name in names:
        return name
    if name == "node":
        return names[0]
    return names[-1] if name == "network" and len(names) > 1 else None


def _replaced(thing: Description, path: str, value: Value) -> Description:
    head, _, rest = path.partition(".")
    if isinstance(thing, Cluster) and rest:
        if head == "device":
            return dataclasses.replace(thing, device=_replaced(thing.device, rest, value))
        name = level_called(thing, head)
        if name is None:
            owners = ", ".join(f"{owner}.FIELD" for owner in ("device", *(level.name for level in thing.levels)))
            raise InvalidValue("path", path, f"one of {owners}")
        levels = [_level(level, rest, value) if level.name == name else level for level in thing.levels]
        return dataclasses.replace(thing, levels=tuple(levels))
    if isinstance(thing, Device):
        return _device(thing, head, rest, value)
    if isinstance(thing, Framework) and not rest:
        return _framework(thing, head, value)
    if isinstance(thing, Framework) and head == "constants":
        return _framework(thing, rest, value)
    if rest:
        raise InvalidValue("path", path, "the name of a field")
    return changed(thing, {head: _new(thing, head, value)})


def _level(level: Level, field: str, value: Value) -> Level:
    new = _new(level, field, value)
    fields = {field: new}
    if field == "bandwidth" and level.line_rate is not None:
        fields["line_rate"] = level.line_rate * new / level.bandwidth
    return changed(level, fields)


def _device(device: Device, field: str, rest: str, value: Value) -> Device:
    if field == "dense_peak" and rest:
        peaks = dict(device.dense_peak)
        peaks[rest] = _value(f"dense_peak.{rest}", peaks.get(rest), value, "flop_rate")
        return dataclasses.replace(device, dense_peak=peaks)
    if field == "dense_peak":
        factor = _factor(value)
        if factor is None:
            raise InvalidValue(field, value, "a factor such as 2x; one dtype's peak is dense_peak.bf16")
        return dataclasses.replace(device, dense_peak={dtype: factor * rate for dtype, rate in device.dense_peak.items()})
    if field == "efficiency" and rest:
        return dataclasses.replace(device, efficiency=_efficiency(device.efficiency, rest, value))
    if rest:
        raise InvalidValue("path", f"{field}.{rest}", "a field of the device, dense_peak.DTYPE or efficiency.FIELD")
    new = _new(device, field, value)
    fields = {field: new}
    if field == "memory":
        fields["usable_memory"] = new * float(device.usable_memory or device.memory) / device.memory
    return changed(device, fields)


def _efficiency(efficiency: Efficiency, path: str, value: Value) -> Efficiency:
    field, _, dtype = path.partition(".")
    if field == "gemm" and dtype:
        gemm = dict(efficiency.gemm)
        gemm[dtype] = _value(path, gemm.get(dtype), value, None)
        return dataclasses.replace(efficiency, gemm=gemm)
    return changed(efficiency, {path: _new(efficiency, path, value)})


def _framework(framework: Framework, field: str, value: Value) -> Framework:
    if field in paths(Software):
        old = flat(framework.constants)[field]
        new = _value(field, old, value, None)
        return dataclasses.replace(framework, constants=replaced(framework.constants, {field: new}))
    return changed(framework, {field: _new(framework, field, value)})


def _new(thing: DataclassInstance, field: str, value: Value) -> Any:
    """The new value of a field."""
    fields = {each.name: each for each in dataclasses.fields(thing)}
    if field not in fields:
        import difflib

        known = [*fields, *(paths(Software) if isinstance(thing, Framework) else ())]
        near = difflib.get_close_matches(field[:100], known, n=3, cutoff=0.4)
        hint = f"; did you mean {', '.join(near)}?" if near else f"; one of {', '.join(fields)}"
        raise InvalidValue("path", field, f"a field of {type(thing).__name__}{hint}")
    return _value(field, getattr(thing, field), value, KINDS.get(field))


def _factor(value: Value) -> float | None:
    match = _SCALE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        return None
    try:
        return real("factor", float(match[1] or match[2]), 1e-9, 1e9)
    except ValueError:
        raise InvalidValue("factor", value, "a factor from 1e-9 to 1e9, such as 2x") from None


def _value(field: str, old: object, value: Value, kind: str | None) -> Any:
    factor = _factor(value)
    if factor is not None:
        if isinstance(old, bool) or not isinstance(old, int | float):
            raise InvalidValue(field, value, f"a value: {old!r} can't be scaled")
        scaled = old * factor
        if isinstance(old, int):
            if scaled != round(scaled):
                raise InvalidValue(field, value, f"a factor that makes a whole number of {old}")
            return round(scaled)
        return scaled
    if kind is not None:
        return quantity(field, value, kind)
    if not isinstance(value, str):
        return float(value) if isinstance(old, float) and isinstance(value, int) and not isinstance(value, bool) else value
    return _read(field, old, value)


def _read(field: str, old: object, value: str) -> object:
    """A text as the kind of value that a field has."""
    if isinstance(old, bool):
        if value.lower() not in _WORDS:
            raise InvalidValue(field, value, "yes or no")
        return _WORDS[value.lower()]
    if isinstance(old, str):
        return value
    try:
        number = float(value.replace("_", ""))
    except ValueError:
        raise InvalidValue(field, value, "a number, or a factor such as 2x") from None
    return int(number) if number.is_integer() and not isinstance(old, float) else number

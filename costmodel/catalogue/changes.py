"""One number of a description scaled or replaced, as a question of the form "what if" does it, and what was changed, in words."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from costmodel.arithmetic.named_tuples import changed, flat, paths, replaced
from costmodel.catalogue.readings import KINDS, STACK_KINDS, rate_per_gpu
from costmodel.description.cluster import Cluster, Level
from costmodel.description.device import Device, Efficiency
from costmodel.description.framework import Framework
from costmodel.description.transformer import Transformer
from costmodel.formulas.quantities import Software
from costmodel.text.checks import mapping, real
from costmodel.text.errors import InvalidValue
from costmodel.text.units import ANSWERS, GB, GiB, format_bytes, format_seconds, quantity

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Description = TypeVar("Description", Transformer, Device, Cluster, Framework)
Value = float | int | bool | str
FOLLOWERS = {"line_rate": "bandwidth", "usable_memory": "memory", "rated_power": "power"}
"""Fields that change with another by the same factor, so that a change of the other says it."""
NOT_COMPARED = (
    "name", "title", "gpus", "frameworks", "own_factor", "own_runs", "owner", "server_systems", "time_error", "memory_error",
    "published_parameters", "trained_length",
)  # fmt: skip
"""Fields that no change of an answer is about: names, a size that is asked for, what calibration keeps, lengths of training."""

_SCALE = re.compile(r"(?:x\s*([0-9.eE+-]+)|([0-9.eE+-]+)\s*x)")
_ALSO = {"kernel_time": "time", "cache": "size"}
"""Kinds of quantities of fields that files give as plain numbers."""


def replace(description: Description, changes: Mapping[str, Value]) -> Description:
    """A description with some of its numbers scaled or replaced.

    Parameters
    ----------
    description : a Transformer, Device, Cluster or Framework
    changes : path: value. Paths are fields; of a cluster ``host_memory``, ``device.FIELD`` and a level's name with a field of
        Level (``node.`` and ``network.`` are the innermost and the outermost); of a device also ``dense_peak.DTYPE``,
        ``efficiency.FIELD`` and ``efficiency.gemm.DTYPE``; of a framework also its calibrated constants by name. A value is
        a number in SI units, a text with a unit (``"141 GB"``), or a factor (``"2x"``). A level's bandwidth is each GPU's;
        ``"3200 Gbit/s per node"`` is what the GPUs of a node share.

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
    mapping("changes", changes)
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
        levels = [_level(level, rest, value, thing.gpus_per_node) if level.name == name else level for level in thing.levels]
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


def _level(level: Level, field: str, value: Value, gpus_per_node: int) -> Level:
    if field in ("bandwidth", "line_rate") and isinstance(value, str) and _factor(value) is None:
        value = rate_per_gpu(f"{level.name}.{field}", value, gpus_per_node, "GPU")
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
    shares = isinstance(thing, Efficiency)  # its `memory` is a share of a bandwidth
    return _value(field, getattr(thing, field), value, None if shares else KINDS.get(field))


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
        if value.lower() not in ANSWERS:
            raise InvalidValue(field, value, "yes or no")
        return ANSWERS[value.lower()]
    if isinstance(old, str):
        return value
    try:
        number = float(value.replace("_", ""))
    except ValueError:
        raise InvalidValue(field, value, "a number, or a factor such as 2x") from None
    return int(number) if number.is_integer() and not isinstance(old, float) else number


# What was changed


class NumberDifference(NamedTuple):
    """A number of a description that differs from another's, with its unit in words."""

    path: str
    before: str
    after: str

    def __str__(self) -> str:
        """Path, old and new value, a unit that both have written once."""
        unit = self.before.partition(" ")[2]
        same = unit and self.after.partition(" ")[2] == unit
        return f"{self.path} {self.before.partition(' ')[0] if same else self.before} -> {self.after}"


def differences(original: Description, changed: Description) -> tuple[NumberDifference, ...]:
    """Numbers in which a description differs from another of its kind, by the paths that `replace` takes.

    Parameters
    ----------
    original : what it is compared with: of the catalogue, the entry of the same name
    changed : of the same class

    Returns
    -------
    tuple of Difference
        (path, before, after); a field that follows another by the same factor isn't told beside it, names aren't compared

    Examples
    --------
    >>> from costmodel import load_cluster
    >>> cluster = load_cluster("hgx-h200")
    >>> for one in differences(cluster, replace(cluster, {"network.bandwidth": "2x", "device.memory": "141 GB"})):
    ...     print(one)
    device.memory 141 GiB (151.4 GB) -> 131.3 GiB (141 GB)
    rail.bandwidth 46 -> 92 GB/s per GPU
    """
    return tuple(_differences("", original, changed))


def _differences(path: str, old: object, new: object) -> Iterator[NumberDifference]:
    if old == new:
        return
    if isinstance(old, Cluster) and isinstance(new, Cluster):
        yield from _of_clusters(old, new)
    elif isinstance(old, Device) and isinstance(new, Device) and old.name != new.name:
        yield NumberDifference(path, old.name, new.name)
    elif (one := _parts(old)) is not None and (other := _parts(new)) is not None:
        yield from _of_parts(path, one, other)
    else:
        yield NumberDifference(path, _said(path, old), _said(path, new))


def _of_clusters(old: Cluster, new: Cluster) -> Iterator[NumberDifference]:
    yield from _differences("device", old.device, new.device)
    yield from _differences("host_memory", old.host_memory, new.host_memory)
    if len(old.levels) == len(new.levels):  # whatever each calls its network
        for one, other in zip(old.levels, new.levels, strict=True):
            yield from _differences(other.name, one, other)
        return
    before, after = ({level.name: level for level in cluster.levels} for cluster in (old, new))
    for name in dict.fromkeys((*before, *after)):
        if name in before and name in after:
            yield from _differences(name, before[name], after[name])
        else:
            yield NumberDifference(name, *("a level" if name in levels else "none" for levels in (before, after)))


def _of_parts(path: str, old: Mapping[str, object], new: Mapping[str, object]) -> Iterator[NumberDifference]:
    """Of two tables, each of which may hold tables; peaks that all changed by one factor are told as one."""
    if path.endswith("dense_peak") and len(old) > 1 and old.keys() == new.keys():
        dtype = next(iter(old))
        if len({_ratio(old[name], new[name]) for name in old}) == 1:
            yield NumberDifference(path, *(f"{_said(path, peaks[dtype])} in {dtype}, every dtype alike" for peaks in (old, new)))
            return
    for name in dict.fromkeys((*old, *new)):
        if name in NOT_COMPARED or _follows(name, old, new):
            continue
        place = f"{path}.{name}".lstrip(".")
        if name in old and name in new:
            yield from _differences(place, old[name], new[name])
        else:
            yield NumberDifference(place, *(_said(place, table.get(name)) for table in (old, new)))


def _follows(name: str, old: Mapping[str, object], new: Mapping[str, object]) -> bool:
    """Whether a field changed by the factor of the one that it goes with."""
    lead = FOLLOWERS.get(name)
    if lead is None or old[name] == new[name]:
        return False
    return _ratio(old[name], new[name]) == _ratio(old[lead], new[lead]) or (old[name] == old[lead] and new[name] == new[lead])


def _parts(value: object) -> Mapping[str, object] | None:
    """The fields of a description, or the numbers of a group; None of what is one value."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, Software):
        return flat(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _ratio(old: object, new: object) -> float | None:
    """By which factor a number changed, to nine digits; None of what is no number."""
    numbers = [value for value in (old, new) if isinstance(value, int | float) and not isinstance(value, bool)]
    return float(f"{numbers[1] / numbers[0]:.9g}") if len(numbers) == 2 and numbers[0] else None


def _said(path: str, value: object) -> str:
    """A value with its unit."""
    owner, _, field = path.rpartition(".")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(_said("", one) for one in value) or "none"
    if not isinstance(value, int | float):
        return "none" if value is None else str(value)
    kind = (KINDS | STACK_KINDS | _ALSO).get(field)
    if "dense_peak" in path.split("."):
        kind = "flop_rate"
    elif "efficiency" in path.split(".") and kind != "time":
        kind = None
    if kind == "bandwidth" and owner not in ("", "device"):
        return f"{value / GB:.4g} GB/s per GPU"
    if kind in ("bandwidth", "memory_bandwidth"):
        return f"{value / GB:.4g} GB/s"
    if kind == "memory":
        return f"{value / GiB:.4g} GiB ({value / GB:.4g} GB)"
    if kind == "flop_rate":
        return f"{value / 1e12:.4g} TFLOP/s"
    if kind in ("latency", "time"):
        return format_seconds(value)
    if kind == "size":
        return format_bytes(value)
    return f"{value:.4g} W" if kind == "power" else f"{value:,}" if isinstance(value, int) else f"{value:.6g}"

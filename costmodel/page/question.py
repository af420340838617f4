"""What a page can be asked: the fields, and what each may be."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from costmodel.arithmetic.named_tuples import changed
from costmodel.description.cluster import Cluster, Level
from costmodel.description.device import DTYPES, PEAK, Device, Efficiency
from costmodel.description.fields import FieldRow, Order, Spelled, ValueKind, table
from costmodel.description.framework import Framework
from costmodel.description.plan import FOLLOWING, MOST, Plan
from costmodel.description.transformer import Transformer
from costmodel.text.checks import positive_int
from costmodel.text.errors import InvalidValue

Fields = dict[str, Any]
"""Values by the name of a field: ``tensor_parallel``, ``rail.bandwidth``, ``device.memory``."""
FEW = 8
"""Whole numbers up to which a range counts as a list of choices."""
LEVEL_FIELDS = ("bandwidth", "latency")
DEVICE_FIELDS = ("memory", "memory_bandwidth", "host_bandwidth")
OF_DTYPE = ("flop_rate", "gemm_efficiency")
"""Of a device at the plan's dtype; where they aren't given, what the device has for it."""
CONSTANTS = ("attention_forward", "attention_backward", "attention_length", "kernel_time")


class PageQuestion(NamedTuple):
    """What was asked: a plan of a model on a cluster."""

    model: Transformer  # model, cluster, framework: what is trained, on what, with which software
    cluster: Cluster
    framework: Framework
    plan: Plan  # as asked
    # fields of it that nobody asked for: they take the framework's default whatever else changes, and `FOLLOWING` what the other
    # degrees leave of the GPUs
    open: tuple[str, ...] = ()

    @property
    def dtype(self) -> str:
        """Of the products; the device's own where none was asked for."""
        return self.plan.dtype or self.cluster.device.usual_dtype

    def fields(self) -> Fields:
        """Every field that may be changed, at the value that was asked."""
        plan, device = self.plan, self.cluster.device
        asked: Fields = {name: getattr(plan, name) for name in Plan.__dataclass_fields__} | {"dtype": self.dtype}
        asked |= dict.fromkeys(self.open)
        asked["gpus"] = self.cluster.gpus
        for level in self.cluster.levels:
            if level.name in ("device", "model") or f"{level.name}.{LEVEL_FIELDS[0]}" in asked:
                raise InvalidValue("levels", level.name, "a name of its own for each level")
            asked |= {f"{level.name}.{field}": float(getattr(level, field)) for field in LEVEL_FIELDS}
        asked |= {f"device.{field}": float(getattr(device, field)) for field in DEVICE_FIELDS}
        asked["device.memory"] = float(device.usable_memory or device.memory)
        asked |= {f"device.{field}": None for field in OF_DTYPE}
        asked |= {f"device.{field}": float(getattr(device.efficiency, field)) for field in CONSTANTS}
        if self.model.experts and self.model.expert_capacity is None:
            asked["model.expert_imbalance"] = float(self.model.expert_imbalance)
        return asked

    def changed(self, changes: Mapping[str, object]) -> PageQuestion:
        """The question with other values in some fields.

        Parameters
        ----------
        changes : by the name of a field; ``device.memory`` is what a process can use [bytes], ``device.flop_rate`` and
            ``device.gemm_efficiency`` are those of the plan's dtype

        Raises
        ------
        InvalidValue
            for an unknown field, or a value that it can't have
        """
        known = self._owners()
        groups: dict[str, Fields] = {}
        for name, value in changes.items():
            owner, _, field = name.rpartition(".")
            if field not in known.get(owner, ()):
                raise InvalidValue("field", name, "one of " + ", ".join(self.fields()))
            if value is not None or not owner or field not in OF_DTYPE:
                groups.setdefault(owner, {})[field] = value
        model, cluster, plan = self.model, self.cluster, self.plan
        own = {**dict.fromkeys(self.open), **groups.pop("", {})}
        if "gpus" in own:
            cluster = cluster.with_gpus(own.pop("gpus"))
        if own.get(FOLLOWING, 1) is None and FOLLOWING not in self.open:
            positive_int(FOLLOWING, None, MOST)  # the tables of a page follow it where nobody asked for it
        if own.get("dtype", self.dtype) is None:  # of a page it is always told
            raise InvalidValue("dtype", None, "one of " + ", ".join(DTYPES))
        if own:
            plan = changed(plan, own).on(cluster)
        if rates := groups.pop("device", None):
            cluster = dataclasses.replace(cluster, device=_device(cluster.device, rates, plan.dtype or self.dtype))
        if shape := groups.pop("model", None):
            model = changed(model, shape)
        if groups:
            levels = tuple(changed(level, groups.get(level.name, {})) for level in cluster.levels)
            cluster = dataclasses.replace(cluster, levels=levels)
        return self._replace(model=model, cluster=cluster, plan=plan)

    def _owners(self) -> dict[str, Collection[str]]:
        """Fields by what has them."""
        owners: dict[str, Collection[str]] = {"": (*Plan.__dataclass_fields__, "gpus")}
        owners |= {level.name: LEVEL_FIELDS for level in self.cluster.levels}
        owners["device"] = (*DEVICE_FIELDS, *OF_DTYPE, *CONSTANTS)
        if self.model.experts and self.model.expert_capacity is None:
            owners["model"] = ("expert_imbalance",)
        return owners


def unasked(asked: Collection[str] = ()) -> tuple[str, ...]:
    """Fields of a plan that a framework chooses where nobody names them; a page's dtype, which its device chose, is named."""
    named = {"dtype", FOLLOWING, *asked}
    return tuple(field.name for field in dataclasses.fields(Plan) if field.default is None and field.name not in named)


def _device(device: Device, changes: Mapping[str, object], dtype: str) -> Device:
    """A device with other rates and constants."""
    given: Fields = {field: value for field, value in changes.items() if field in DEVICE_FIELDS}
    if "memory" in given:
        given["usable_memory"] = given["memory"]
    constants = {field: value for field, value in changes.items() if field in CONSTANTS}
    if "gemm_efficiency" in changes:
        constants["gemm"] = {**device.efficiency.gemm, dtype: changes["gemm_efficiency"]}
    if constants:
        given["efficiency"] = changed(device.efficiency, constants)
    if "flop_rate" in changes:
        given["dense_peak"] = {**device.dense_peak, device.rates(dtype)["peak"]: changes["flop_rate"]}
    return changed(device, given)


@dataclasses.dataclass(frozen=True)
class Domain:
    """What a field may be, as its row says it."""

    choices: tuple[object, ...] = ()  # all values, where they can be listed
    bounds: tuple[float, float] | None = None  # least and most of a number that can't
    whole: bool = False  # whether that number is whole
    empty: bool = False  # whether it may be left to the framework
    wish: str = ""  # what a refusal says was expected


def domains(question: PageQuestion, plans: Collection[Plan] = ()) -> dict[str, Domain]:
    """What every field of a question may be, as its row has it.

    Parameters
    ----------
    question : whose fields
    plans : whose values are choices too, such as several modules recomputed together, of which rows name each alone
    """
    rows, found = _rows(question), {}
    for name in question.fields():
        domain = _domain(rows[name])
        if isinstance(rows[name].kind, Spelled):
            given = (getattr(plan, name) for plan in (question.plan, *plans))
            values = dict.fromkeys(value for value in given if isinstance(value, str | tuple))
            domain = dataclasses.replace(domain, choices=(*dict.fromkeys((*domain.choices, *values)),))
        found[name] = domain
    never = {"dtype", *({FOLLOWING} - set(question.open))}  # of a page they are always told
    return {name: dataclasses.replace(one, empty=False) if name in never else one for name, one in found.items()}


def _rows(question: PageQuestion) -> dict[str, FieldRow]:
    """The row of every field that may be changed."""
    found = dict(table(Plan)) | {"gpus": table(Cluster)["gpus"]}
    found |= {f"{level.name}.{field}": table(Level)[field] for level in question.cluster.levels for field in LEVEL_FIELDS}
    found |= {f"device.{field}": table(Device)[field] for field in DEVICE_FIELDS}
    found |= {f"device.{field}": table(Efficiency)[field] for field in CONSTANTS}
    of_dtype = (("flop_rate", PEAK), ("gemm_efficiency", table(Efficiency)["gemm"].kind))
    found |= {f"device.{field}": FieldRow(kind, optional=True) for field, kind in of_dtype}
    return found | {f"model.{field}": row for field, row in table(Transformer).items()}


def _domain(row: FieldRow) -> Domain:
    """A row as a page takes it; few whole numbers are choices."""
    kind, bounds = row.kind, row.kind.bounds
    choices = _choices(kind)
    if bounds and not choices and kind.whole and bounds[1] - bounds[0] < FEW:
        choices, bounds = tuple(range(int(bounds[0]), int(bounds[1]) + 1)), None
    return Domain(choices, bounds, kind.whole, row.optional, wish=kind.wish)


def _choices(kind: ValueKind) -> tuple[object, ...]:
    """Values that can be listed: every order of names, and what each word by itself stands for."""
    if isinstance(kind, Order):
        return kind.orders
    if isinstance(kind, Spelled):
        return tuple(value for value in dict.fromkeys(map(kind.kept, kind.choices)) if value is not None)
    return kind.choices

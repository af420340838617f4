"""What the formulas of a page's question take that its fields don't say, as data: codes of choices, defaults, figures.

The page's script turns fields to the formulas' arguments with these, by the formulas by which the library does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from costmodel.arithmetic.named_tuples import Row, changed
from costmodel.description.device import DTYPES, Device
from costmodel.description.fields import Real, Restriction, Spelled, Whole, table
from costmodel.description.framework import OF_DTYPE, Framework
from costmodel.description.plan import OVERRULED, Plan, restrictions
from costmodel.description.question import Question
from costmodel.formulas.quantities import NetworkNumbers
from costmodel.formulas.settings import OPEN, SYNCHRONISATIONS, PlanChoices
from costmodel.page.question import CONSTANTS, DEVICE_FIELDS, LEVEL_FIELDS, Domain, PageQuestion
from costmodel.text.errors import NotModelled


def arguments(question: PageQuestion, domains: Mapping[str, Domain]) -> Row:
    """Everything of a question that its fields don't change, and what their values are to formulas."""
    model, cluster, framework, _, _ = question
    device, asked = cluster.device, Question(model, cluster, framework)
    levels = [level.name for level in cluster.levels]
    return {
        "open": OPEN, "codes": _codes(domains), "counted": _counted(), "choices": PlanChoices._fields, "overruled": OVERRULED,
        "model": nested(asked.shape), "parameters": float(model.parameters), "software": nested(asked.software),
        "defaults": nested(framework.defaults()),
        "servers": {name: nested(framework.defaults(name).server) for name in SYNCHRONISATIONS},
        "of_dtype": {dtype: {name: getattr(framework.defaults(dtype=dtype), name) for name in OF_DTYPE} for dtype in DTYPES},
        "usual_dtype": float(DTYPES.index(device.usual_dtype)), "transposed": float(device.transposes),
        "figures": {dtype: _figures(device, dtype) for dtype in DTYPES}, "device": [*DEVICE_FIELDS, *CONSTANTS],
        "levels": [
            {"figures": nested(figures), "fields": {field: f"{name}.{field}" for field in LEVEL_FIELDS}}
            for name, figures in zip(levels, cluster.figures(), strict=True)
        ],
        "network": NetworkNumbers._fields,
        "restrictions": {
            "plan": _rows((*cluster.restrictions, *restrictions())),
            "framework": _rows((*_of_framework(framework, domains), *device.restrictions)),
            "model": _rows(model.restrictions),
        },
    }  # fmt: skip


def nested(record: tuple[Any, ...]) -> Row:
    """A tuple of numbers and of such tuples as JSON names them.

    Examples
    --------
    >>> from costmodel.formulas.quantities import OffloadShares
    >>> nested(OffloadShares(0.5, 0.0, 0.0, 0.0))
    {'optimizer': 0.5, 'activations': 0.0, 'parameters': 0.0, 'paged': 0.0}
    """
    names: tuple[str, ...] = record._fields  # type: ignore[attr-defined]  # a NamedTuple's
    return {name: nested(value) if isinstance(value, tuple) else value for name, value in zip(names, record, strict=True)}


def _codes(domains: Mapping[str, Domain]) -> dict[str, list[list[object]]]:
    """Values and what each is to formulas, of the fields of a plan whose numbers aren't their own."""
    found = {}
    for name in PlanChoices._fields:
        kind = table(Plan)[name].kind
        if not isinstance(kind, Whole | Real):
            codes = {value: kind.code(value) for value in (*domains[name].choices, *([None] if domains[name].empty else []))}
            found[name] = [[value, nested(code) if isinstance(code, tuple) else code] for value, code in codes.items()]
    return found


def _counted() -> dict[str, str]:
    """Fields whose values may be whole numbers beside words, and which of their numbers such a one is."""
    return {name: row.kind.counted for name, row in table(Plan).items() if isinstance(row.kind, Spelled) and row.kind.counted}


def _figures(device: Device, dtype: str) -> Row:
    """A device's figures at a dtype, with those that follow the page's rate and efficiency of that; or why it has none."""
    try:
        figures = device.figures(dtype)
    except NotModelled as refused:
        return {"refused": str(refused)}
    rates = device.rates(dtype)
    told = changed(device.efficiency, {"gemm": {**device.efficiency.gemm, dtype: figures.gemm}})
    served = {"gemm": dtype, "base_gemm": device.base_dtype(dtype)}
    return {
        "figures": nested(figures), "flop_rate": [name for name, rate in rates.items() if rate == rates["peak"]],
        "gemm_efficiency": [name for name, of in served.items() if told.dtype_of_constant("gemm", of) == dtype],
    }  # fmt: skip


def _of_framework(framework: Framework, domains: Mapping[str, Domain]) -> list[Restriction]:
    """What a framework lacks, and behind it what its buckets lack, as a plan is checked."""
    known, kinds = framework.restrictions, [one for one in domains["recompute"].choices if isinstance(one, str | int)]
    lacking = [one for one in known if one.reason]
    return [*lacking, framework.recomputed(kinds), *(one for one in known if not one.reason)]


def _rows(known: Iterable[Restriction]) -> list[Row]:
    return [one._asdict() for one in known]

"""The software of a record: its framework, and what its named values say of that and of the plan."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from costmodel.arithmetic.named_tuples import Row, changed
from costmodel.catalogue import releases
from costmodel.catalogue.files import entries
from costmodel.catalogue.loader import is_file
from costmodel.catalogue.records.schema import Field, schema
from costmodel.catalogue.software import FORMER_NAMES, FRAMEWORKS, load_framework
from costmodel.description import graphs
from costmodel.description.device import DTYPES
from costmodel.description.framework import SCHEDULES, SPLITTING, Framework
from costmodel.description.plan import NARROW_CORES
from costmodel.description.recomputation import MODULES
from costmodel.formulas.settings import ACTIVATION_INPUT_DTYPES, ATTENTION_DTYPES, CONTEXT_COMMUNICATIONS
from costmodel.text.errors import UnknownName

ANY = "megatron-core"
"""By whose entry software is read to which none comes near, as everywhere where no framework is named."""
UNTUNED = "-untuned"
"""What the catalogue adds to the name of software as its defaults leave it, where it knows that."""
FOR_READERS = ("framework", "nearest", "version", "configuration", "habits", "scaling")
"""Keys that say which software it is, or what the dtype says already."""
NARROW = tuple(name for name in DTYPES if name.startswith(("fp8", "mxfp8", "nvfp4")))


CAN_ALL: Row = {
    "dimensions": SPLITTING, "apart": (), "elsewhere": (), "schedules": SCHEDULES, "zero_stages": (0, 1, 2, 3),
    "grouped_zero_stages": (1, 2, 3), "largest_pipelined_zero_stage": 3, "dtypes": DTYPES,
    "context_communications": CONTEXT_COMMUNICATIONS, "attention_dtypes": ATTENTION_DTYPES,
    "activation_input_dtypes": ACTIVATION_INPUT_DTYPES, "operator_fuser": True, "updates_in_backward": True, "pages_states": True,
    "recompute_modules": tuple(MODULES),
}  # fmt: skip
"""What software has of which the catalogue knows no more than which comes near: whatever the run used, and nothing is refused."""


EXPERTS_APART = {"megatron-core": (0, 10)}
"""First release in which the tensor ranks of an expert are a number of their own: before it an expert is split as all else is
(NVIDIA/Megatron-LM@core_v0.6.0 megatron/core/transformer/moe/experts.py, core_v0.10.0 megatron/core/model_parallel_config.py)."""


def splits_experts(said: Mapping[str, Any]) -> bool:
    """Whether software of the release that a record states splits experts over its tensor ranks, and by no other number.

    Parameters
    ----------
    said : group ``software`` of a record

    Examples
    --------
    >>> splits_experts({"framework": "megatron-core", "version": "0.6.0"}), splits_experts({"framework": "megatron-core"})
    (True, False)
    """
    release = re.fullmatch(r"(?:core_)?[vr]?(\d+)\.(\d+)(?:\.\d+)?", str(said.get("version") or ""))
    first = EXPERTS_APART.get(str(said.get("framework")))
    return bool(release and first and (int(release[1]), int(release[2])) < first)


class SoftwareFields(NamedTuple):
    """What the software's values say."""

    framework: Row  # fields of `Framework`
    plan: Row  # fields of `Plan`
    unexpressed: Row  # what neither has a field for, by key


def month_of(record: Mapping[str, Any], architecture: str = "") -> str:
    """The month of the software of a record, ``2025-08``; empty for the newest.

    One's own run that dates nothing is of today, a published one of when such runs were made.

    Parameters
    ----------
    record : nested
    architecture : of its devices, on which published runs are no older than they

    Examples
    --------
    >>> month_of({"release": "Aug 2024"}), month_of({"release": "v0.0.4", "source": "a/b@1"}), month_of({})
    ('2024-08', '2024-06', '')
    """
    release, name = str(record.get("release") or ""), str((record.get("software") or {}).get("framework"))
    said = releases.month_of(release) or releases.numbered(name, release)
    return said or (releases.undated(architecture) if record.get("source") else "")


def framework_of(said: Mapping[str, Any], architecture: str, network: str, month: str = "") -> Framework:
    """The framework that a record names, or the nearest under its name.

    Parameters
    ----------
    said : group ``software`` of a record
    architecture : of its devices
    network : kind of network between its nodes
    month : of its release; empty for the newest
    """
    name = str(said.get("framework", ANY))
    if said.get("untuned") and f"{name}{UNTUNED}" in entries(FRAMEWORKS):
        name += UNTUNED
    if is_file(name):
        return load_framework(name, architecture, network)
    if name in entries(FRAMEWORKS) or name in FORMER_NAMES:
        found = load_framework(releases.dated(name, month), architecture, network)
        return changed(found, {"name": FORMER_NAMES.get(name, name)})
    if releases.SIGN in name:
        return load_framework(name, architecture, network)
    if "nearest" not in said:
        raise UnknownName("framework", name, entries(FRAMEWORKS), nor=", and software.nearest names none that comes near")
    nearest = load_framework(releases.dated(said["nearest"] or ANY, month), architecture, network)
    return changed(nearest, {"name": name, **CAN_ALL})


def told(said: Mapping[str, Any], dtype: str | None) -> SoftwareFields:
    """What named values say of framework and plan.

    Parameters
    ----------
    said : group ``software`` of a record
    dtype : of its plan's products
    """
    found = SoftwareFields({}, {}, {})
    for key, field in schema()["software"].items():
        value = said.get(key)
        if value is None or key in FOR_READERS:
            continue
        meaning = _meaning(field, value)
        if key == "attention_bits":
            meaning = _of_attention(value, dtype)
        if meaning is None:
            meaning = _of_weights(key, value, dtype)
        if meaning is None:
            if value is not False:
                found.unexpressed[f"software.{key}"] = value
            continue
        found.framework.update(meaning.get("framework", {}))
        found.plan.update(meaning.get("plan", {}))
    # the residual stream is as wide as products unless a record says otherwise, whatever is the framework's habit
    found.framework["wide_residual"] = (said.get("residual_bits") or 16) > 16
    found.framework.update(said.get("habits") or {})
    return found


def _meaning(field: Field, value: Any) -> Row | None:
    """Fields that a value of a key sets; None where the library has none for it."""
    if field.framework:
        return {"framework": {field.framework: value / 8.0 if field.kind == "bits" else value}}
    if field.plan:
        return {"plan": {field.plan: value}}
    if value in field.values if isinstance(value, str) else False:
        return field.values[value]
    if field.key == "activation_store_bits":
        return {"plan": {"activation_input_dtype": "fp8"} if value <= 8 else {}}
    if field.key == "loaded_whole":
        return {"plan": {"loading": "whole"} if value else {}}
    if field.key == "cuda_graphs":
        return {"plan": {"cuda_graphs": True, "graph_modules": graphs.captured(value)}}
    return None


def _of_attention(bits: float, dtype: str | None) -> Row | None:
    """What bits of attention's products say beside products in a dtype; None where no plan has them."""
    if bits >= 16:
        return {}
    return {"plan": {"attention_dtype": "fp8"}} if bits == 8 and dtype in NARROW_CORES else None


def _of_weights(key: str, value: Any, dtype: str | None) -> Row | None:
    """What bits of held weights say: in 8 and 4 bit runs whether a narrow copy alone is held."""
    if key in ("stored_parameter_bits", "base_bits") and dtype in NARROW:
        return {"framework": {"narrow_weights": (dtype,) if value <= 8 else ()}}
    if key in ("stored_parameter_bits", "base_bits") and value == 16:
        return {}
    if key == "residual_bits":
        return {}  # with every record, stated or not
    return None

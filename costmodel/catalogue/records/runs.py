"""A record as the run that it describes."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

from costmodel.arithmetic.named_tuples import Row, changed, made
from costmodel.catalogue.communication import network_kind
from costmodel.catalogue.loader import load_model, names
from costmodel.catalogue.records import links, schema, software
from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.description.plan import Plan
from costmodel.description.run import Run
from costmodel.description.transformer import Transformer
from costmodel.formulas.settings import LOSSES
from costmodel.text.errors import InvalidValue, NotModelled

OUTSIDE = ("encoder-decoder", "hybrid", "multimodal")
"""Kinds of model that the library doesn't describe."""
OWN_DEFAULT = {"optimizer": ("adam",), "cuda_graphs": ("none",)}
"""Values of a plan's fields in records that stand for the framework's own."""
OF_CODE = ("activation", "capped_logits", "fused_projections", "split_rotation", "wide_norm")
"""What a model's public configuration says of its code, and no record that has its shape alone."""
NOT_EXPRESSED = ("power_w", "power_limited")
"""Keys of a cluster that the library can't express."""
OF_DEVICES = {"attention_dtype": "attention_bits"}
"""Fields of a plan that no plan of some devices has, and keys that state them: such a record is of another's software."""
MOST_KEPT = 4096


def run_of(record: Mapping[str, Any], name: str = "") -> Run:
    """The run that a record describes.

    Parameters
    ----------
    record : nested, with the keys of `costmodel.catalogue.records.schema`
    name : of a run whose record has no ``id``

    Raises
    ------
    CostModelError
        naming the key, its value and what was expected; or what of it the library doesn't model
    """
    schema.check(record)
    said, assumed, measured = record.get("software") or {}, record.get("assumed") or {}, record.get("measured") or {}
    on = {key: value for key, value in assumed.items() if key in schema.schema()["cluster"]}
    model = _of_model(json.dumps(record.get("model"), sort_keys=True))
    cluster = _of_machine(json.dumps([record.get("cluster") or {}, on], sort_keys=True))
    plan_said = {**assumed, **(record.get("plan") or {})}
    usual = {key: value for key, value in assumed.items() if key in schema.schema()["software"]}
    told = software.told({**usual, **said}, plan_said.get("dtype"))
    architecture = cluster.device.architecture
    framework = _of_software(json.dumps([said, told.framework], sort_keys=True), architecture,
                             network_kind(cluster.levels[-1].name), software.month_of(record, architecture))  # fmt: skip
    planned = {**assumed, **told.plan}
    if "loss" in assumed and "loss" not in said and _is_usual_loss(told.plan.get("loss"), framework):
        del planned["loss"]  # the framework knows how its usual loss is in this release and for this model
    planned |= _binned(framework, plan_said, said)
    lacking = _lacking(cluster, planned)
    planned = {key: value for key, value in planned.items() if key not in lacking}
    kernel = {key: told.plan[key] for key in ("attention",) if key in told.plan and "attention_kernel" in said}
    if model.experts and software.splits_experts(said):
        planned = {"expert_tensor_parallel": plan_said.get("tensor_parallel"), **planned}
    plan = _plan({**planned, **(record.get("plan") or {}), **kernel})  # a kernel by name says more than its kind
    unexpressed = told.unexpressed | {f"software.{OF_DEVICES[name]}": said[OF_DEVICES[name]] for name in lacking} | {
        f"cluster.{key}": value for key in NOT_EXPRESSED if (value := (record.get("cluster") or {}).get(key))
    } | ({"model.positions": record["model"]["positions"]} if "positions" in _table(record, "model") else {})  # fmt: skip
    use = record.get("use") or {}
    return Run(
        model=model, cluster=cluster, framework=framework, plan=plan, step_time=_step_time(measured, plan, cluster),
        peak_memory=measured.get("peak_memory_bytes"), memory_kind=measured.get("memory_kind") or "unstated",
        memory_of=measured.get("memory_of") or "max", peak_reserved=measured.get("peak_reserved_bytes"),
        peak_process=measured.get("peak_process_bytes"), out_of_memory=bool(measured.get("out_of_memory", False)),
        use_time=use.get("time", True) is True, use_memory=use.get("memory", True) is True,
        use_verdict=use.get("verdict", True) is True, id=record.get("id") or name, campaign=record.get("campaign") or "",
        source=record.get("source") or "", release=record.get("release") or "", trust=record.get("trust") or "",
        assumed=tuple(assumed), unstated=tuple(record.get("unstated") or ()), unexpressed=unexpressed,
    )  # fmt: skip


def _lacking(cluster: Cluster, planned: Mapping[str, Any]) -> list[str]:
    """Fields that a record's software states and that no plan on its device has."""
    return [one.field for one in cluster.device.restrictions if one.field in OF_DEVICES and one.field in planned
            and one.broken(planned)]  # fmt: skip


def _binned(framework: Framework, plan_said: Mapping[str, Any], said: Mapping[str, Any]) -> Row:
    """How samples make micro-batches where a record says nothing of it and the framework's loader bins them by length."""
    stated = {"batching", "mean_length"} & set(plan_said) or said.get("packing")
    if stated or not framework.binned_length or plan_said.get("seq_len") != framework.binned_length:
        return {}
    return {"batching": "grouped", "mean_length": framework.binned_mean}


def _is_usual_loss(loss: str | None, framework: Framework) -> bool:
    """Whether a loss holds of each logit what the framework's own does."""
    return loss is not None and LOSSES[loss] == framework.logit_bytes


def _table(record: Mapping[str, Any], group: str) -> Mapping[str, Any]:
    found = record.get(group)
    return found if isinstance(found, Mapping) else {}


@functools.lru_cache(MOST_KEPT)
def _of_model(text: str) -> Transformer:
    said = json.loads(text)
    if isinstance(said, str):
        return load_model(said)
    if not said:
        raise InvalidValue("model", None, "its name in the catalogue, or its shape")
    if said.get("kind") in OUTSIDE or said.get("basis") == "name alone":
        what = said.get("kind") if said.get("kind") in OUTSIDE else "known by its name alone"
        raise NotModelled(f"model {said.get('name', '')}: {what}; decoders and encoders of known shape are described")
    fields = schema.fields_of(Transformer)
    flat: Row = {key: value for key, value in said.items() if key in fields and not isinstance(value, Mapping)}
    for group in schema.SHAPE_GROUPS:
        if isinstance(said.get(group), Mapping):
            flat |= said[group]
    if said.get("padded_vocabulary"):
        flat["vocabulary"] = said["padded_vocabulary"]
    if set(flat) <= {"name"}:
        return load_model(said["name"])
    found = made(Transformer, {"name": "model", **flat})
    return _as_published(found, flat) if said.get("basis") == "public configuration" else found


def _as_published(shape: Transformer, said: Mapping[str, Any]) -> Transformer:
    """A public configuration's shape with what models of the catalogue as the record has it say of their code, if they agree."""
    stated = [key for key in said if key not in ("name", "vocabulary")]  # which software pads
    alike = [one for one in map(load_model, names("model")) if all(getattr(one, key) == getattr(shape, key) for key in stated)]
    code = {tuple((key, getattr(one, key)) for key in OF_CODE) for one in alike}
    return changed(shape, dict(*code)) if len(code) == 1 else shape


@functools.lru_cache(MOST_KEPT)
def _of_machine(text: str) -> Cluster:
    said, assumed = json.loads(text)
    return links.cluster_of(said, assumed)


@functools.lru_cache(MOST_KEPT)
def _of_software(text: str, architecture: str, network: str, month: str) -> Framework:
    said, fields = json.loads(text)
    found = software.framework_of(said, architecture, network, month)
    return changed(found, fields) if fields else found


def _plan(said: Mapping[str, Any]) -> Plan:
    """A plan of the fields that it has; values that stand for the framework's own are left out."""
    fields = schema.fields_of(Plan)
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in said.items()
             if key in fields and value is not None and value not in OWN_DEFAULT.get(key, ())}  # fmt: skip
    for needed in ("global_batch", "seq_len"):
        if needed not in given:
            raise InvalidValue(f"plan.{needed}", None, "a whole number")
    return made(Plan, given)


def _step_time(measured: Mapping[str, Any], plan: Plan, cluster: Cluster) -> float | None:
    """The measured step, by the throughput where that alone is given [s]."""
    if measured.get("step_time_s"):
        return float(measured["step_time_s"])
    rate = measured.get("tokens_per_s_per_gpu")
    return plan.tokens / (rate * (cluster.gpus or 1)) if rate else None

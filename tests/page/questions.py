"""Questions drawn for the page: changes as a page is asked them, and the same asked of the library by other means."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import costmodel
from costmodel import Cluster, CostModelError, Framework, Plan, Transformer
from costmodel.description.fields import Spelled, table
from costmodel.description.plan import SCHEDULES
from costmodel.formulas.settings import BATCHINGS, OPTIMIZERS

CLOSE = 1e-9
CANCELLED = 1e-12
"""Of a step: below that, a part which is the small difference of large times has no digits left in either language."""
CHOICES: dict[str, tuple[Any, ...]] = {
    "schedule": tuple(SCHEDULES), "zero_stage": (0, 1, 2, 3), "recompute": ("none", "selective", "full", 1, 2, 3, 7, 500),
    "dtype": ("bf16", "fp16", "fp8", "fp8-rowwise", "tf32", "fp32"), "gradient_bytes": (2, 4), "optimizer": tuple(OPTIMIZERS),
    "adapter": table(Plan)["adapter"].kind.choices,
    "attention": ("flash", "fused-softmax", "unfused"), "cuda_graphs": (False, True),
    "sequence_parallel": (False, True), "fused_cross_entropy": (False, True), "fused_norms": (False, True),
    "overlap_gradients": (False, True), "overlap_parameters": (False, True), "overlap_tensor": (False, True),
    "overlap_pipeline": (False, True), "shard_group": (1, 2, 4), "optimizer_offload": (0.0, 0.3, 1.0),
    "activation_offload": (0.0, 0.25, 1.0), "seq_len": (2048, 4096, 32768), "global_batch": (64, 128, 960),
    "rank_order": (("tensor", "data", "context", "pipeline"), ("pipeline", "data", "context", "tensor")),
    "context_communication": ("ring", "all-gather", "all-to-all"),
}  # fmt: skip
TOGETHER: tuple[dict[str, Any], ...] = (
    {"compression": "top-k", "compression_density": 0.01, "zero_stage": 0}, {"compression": "power-sgd", "compression_rank": 4},
    {"compression": "int8", "zero_stage": 1}, {"compression": "fp16", "zero_stage": 0},
    {"synchronisation": "parameter-server", "servers": 3, "zero_stage": 0}, {"synchronisation": "byteps", "servers": 2},
    *({"batching": name, "mean_length": length} for name in BATCHINGS[1:] for length in (300.0, 1500.0)),
    {"synchronisation": "local-sgd", "local_steps": 50, "zero_stage": 0}, {"synchronisation": "hierarchical", "zero_stage": 0},
)  # fmt: skip
FURTHER: dict[str, tuple[Any, ...]] = {
    name: tuple(map(row.kind.kept, row.kind.choices)) if isinstance(row.kind, Spelled) else row.kind.choices
    for name, row in table(Plan).items()
    if row.kind.choices and name not in CHOICES and not any(name in one for one in TOGETHER)
} | {"lora_rank": (4, 64), "parameter_offload": (0.5, 1.0), "bucket_bytes": (1e6, 1e8), "prefetch_bytes": (1e6, 1e9)}
"""Values of all other fields that are no degrees."""
RATES = ("memory_bandwidth", "host_bandwidth")


def drawn(model: Transformer, cluster: Cluster, chance: random.Random) -> dict[str, Any]:
    """Changes: the degrees, some choices, and some of the cluster's constants."""
    gpus = int(cluster.gpus or 1)
    t, p, c = (chance.choice([1, 2, 4, 8][:most]) for most in (4, 4, 2))
    if gpus % (t * p * c):
        t = p = c = 1
    changes: dict[str, Any] = {
        "tensor_parallel": t, "pipeline_parallel": p, "context_parallel": c, "data_parallel": gpus // (t * p * c),
        "micro_batch": chance.choice([1, 1, 2, 4]), "virtual_stages": 1, "schedule": "1f1b",
    }  # fmt: skip
    if p > 1:
        interleaved = {"schedule": "interleaved", "virtual_stages": 2}
        changes |= chance.choice([interleaved, {"schedule": chance.choice(CHOICES["schedule"])}, {}])
    if model.experts:
        changes |= {"expert_parallel": chance.choice([1, 2, 4, 8]), "model.expert_imbalance": chance.uniform(1.0, 3.0)}
    for name in chance.sample([name for name in CHOICES if name != "schedule"], 4):
        changes[name] = chance.choice(CHOICES[name])
    if chance.random() < 0.3:
        changes |= chance.choice(TOGETHER)
    if chance.random() < 0.5:
        name = chance.choice(list(FURTHER))
        changes[name] = chance.choice(FURTHER[name])
        if name.startswith("lora"):
            changes["adapter"] = chance.choice(CHOICES["adapter"][1:])
    for level in cluster.levels:
        changes[f"{level.name}.bandwidth"] = level.bandwidth * chance.uniform(0.2, 5.0)
        changes[f"{level.name}.latency"] = level.latency * chance.uniform(0.2, 5.0)
    changes["device.memory"] = chance.uniform(10e9, 200e9)
    changes |= {f"device.{rate}": getattr(cluster.device, rate) * chance.uniform(0.2, 5.0) for rate in RATES}
    return changes


def asked_of_library(
    model: Transformer, cluster: Cluster, plan: Plan, framework: Framework, changes: dict[str, Any]
) -> dict[str, Any]:
    """The same changes on the library's own objects: time, memory and parts, or the reason why not."""
    levels = [
        dataclasses.replace(level, bandwidth=changes[f"{level.name}.bandwidth"], latency=changes[f"{level.name}.latency"])
        for level in cluster.levels
    ]  # fmt: skip
    memory = changes["device.memory"]
    rates = {rate: changes[f"device.{rate}"] for rate in RATES}
    device = dataclasses.replace(cluster.device, memory=memory, usable_memory=memory, **rates)
    if "model.expert_imbalance" in changes:
        model = dataclasses.replace(model, expert_imbalance=changes["model.expert_imbalance"])
    try:
        other = dataclasses.replace(plan, **{name: value for name, value in changes.items() if "." not in name})
        found = costmodel.estimate(model, dataclasses.replace(cluster, device=device, levels=levels), other, framework)
    except CostModelError as refused:
        return {"error": str(refused)}
    return {"step_time_s": found.step_time, "peak_memory_bytes": found.needed_memory, "parts": found.times}


def difference(wanted: dict[str, Any], got: dict[str, Any]) -> str:
    """What differs between an answer of the library and one of the page by more than `CLOSE`; nothing where they agree."""
    if "error" in wanted or "error" in got:
        return "" if "error" in wanted and "error" in got and "\n" not in got["error"] else f"{wanted} is not {got}"
    if set(wanted["parts"]) != set(got["parts"]):
        return f"parts {list(got['parts'])}"
    pairs = {name: (wanted[name], got[name]) for name in ("step_time_s", "peak_memory_bytes")}
    pairs |= {part: (seconds, got["parts"][part]) for part, seconds in wanted["parts"].items()}
    floor = CANCELLED * wanted["step_time_s"]
    off = [name for name, (a, b) in pairs.items() if not abs(a - b) <= max(CLOSE * abs(a), floor)]
    return ", ".join(f"{name}: {pairs[name]}" for name in off)

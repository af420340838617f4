"""torchtitan: its TOML files of 2024 and 2025, and the fields of its Python registry as ``key=value``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from costmodel.interop.launchers import common
from costmodel.interop.launchers.dialects import said_trainers
from costmodel.interop.launchers.table import UNSPLIT, Dialect, FlagRow
from costmodel.interop.launchers.values import (
    DTYPES,
    UNSTATED,
    Foreign,
    anything,
    count,
    flag,
    one_of,
    rest,
    word,
    yields,
)

if TYPE_CHECKING:
    from costmodel.interop.launchers.table import LaunchReading

SCHEDULES = {
    "1f1b": "1f1b",
    "gpipe": "gpipe",
    "interleaved1f1b": "interleaved",
    "interleaved_1f1b": "interleaved",
    "loopedbfs": "breadth-first",
    "interleavedzerobubble": "zero-bubble",
    "zbvzerobubble": "zero-bubble",
    "zb1p": "zero-bubble",
    "flexibleinterleaved1f1b": "interleaved",
    "dualpipev": "dualpipe",
    "pipelineschedulesingle": UNSTATED,
    "pipelineschedulemulti": UNSTATED,
}


def converters(raw: object) -> object:
    """What the model's linear layers are converted to."""
    if raw is None:
        return UNSTATED
    text = " ".join(map(str, raw)) if isinstance(raw, list) else str(raw)
    for pattern, meaning in (
        ("nvfp4", "nvfp4"),
        (r"mxfp8|\bmx\b|linear\.mx|grouped_mm\.mx", "mxfp8"),
        ("float8|fp8", "fp8"),
    ):
        if re.search(pattern, text.lower()):
            return meaning
    if text.strip("[]'\" ") == "":
        return UNSTATED
    raise Foreign("float8, mx")


def checkpointing(raw: object) -> object:
    """The mode, or the class of the registry."""
    name = str(raw).lower()
    for key, meaning in (
        ("full", "full"),
        ("selective", "selective"),
        ("memory", "selective"),
        ("none", "none"),
    ):
        if key in name:
            return meaning
    raise Foreign("none, selective, full")


def spelled(name: str) -> str:
    """A degree in each section that has held it."""
    return f"parallelism.{name} training.{name} experimental.{name}"


ROWS = (
    FlagRow(spelled("tensor_parallel_degree"), "tensor_parallel", count, 1),
    FlagRow(spelled("pipeline_parallel_degree"), "pipeline_parallel", count, 1),
    FlagRow(spelled("context_parallel_degree"), "context_parallel", count, 1, "from 2024-10"),
    FlagRow(spelled("expert_parallel_degree"), "expert_parallel", count, 1, "from 2025-07"),
    FlagRow(spelled("expert_tensor_parallel_degree"), "expert_tensor_parallel", count, 1, "2025-09 to 2025-12"),
    FlagRow(
        spelled("data_parallel_shard_degree") + " training.data_parallel_degree",
        "fsdp.shard_degree",
        rest,
        -1,
    ),
    FlagRow(spelled("data_parallel_replicate_degree"), "fsdp.replicate_degree", rest, 1, "from 2024-10"),
    FlagRow(
        spelled("fsdp_reshard_after_forward"),
        "fsdp.reshard_after_forward",
        one_of({"default": UNSTATED, "always": True, "never": False}),
        "default",
        "from 2025-02",
    ),
    FlagRow(spelled("pipeline_parallel_schedule"), "_schedule", one_of(SCHEDULES), "1F1B"),
    FlagRow(spelled("pipeline_parallel_microbatch_size"), "_pipeline_micro_batch", count, 1, "from 2025-04"),
    FlagRow(
        spelled("pipeline_parallel_microbatches") + " parallelism.num_pp_microbatches",
        "_pipeline_micro_batches",
        count,
    ),
    FlagRow(spelled("pipeline_parallel_layers_per_stage"), "_stage_layers", count),
    FlagRow(
        spelled("enable_async_tensor_parallel") + " compile.enable_async_tensor_parallel",
        "overlap_tensor",
        flag,
        False,
    ),
    FlagRow("parallelism.enable_sequence_parallel", "sequence_parallel", flag, True, "from 2026"),
    FlagRow("training.batch_size training.local_batch_size", "_local_batch", count, 8),
    FlagRow(
        "training.global_batch_size",
        "global_batch",
        lambda raw: UNSTATED if raw in (-1, "-1") else count(raw),
        -1,
        "from 2025-05",
    ),
    FlagRow("training.num_tokens_per_microbatch_per_dp_rank", "_tokens", count, 16384, "from 2026"),
    FlagRow(
        "training.num_tokens_per_train_step",
        "_step_tokens",
        lambda raw: UNSTATED if raw in (-1, "-1") else count(raw),
        -1,
        "from 2026",
    ),
    FlagRow("training.seq_len training.max_context_length", "seq_len", count, 2048),
    FlagRow("training.mixed_precision_param", "_wide", one_of(DTYPES), "bfloat16"),
    FlagRow("model.converters model_spec.converters", "_narrow", converters),
    FlagRow("float8.enable_float8_linear", "_narrow", yields("fp8"), False),
    FlagRow("training.enable_fp8_linear training.fp8_linear", "_narrow", yields("fp8"), False, "to 2024-07"),
    FlagRow("activation_checkpoint.mode activation_checkpoint", "recompute", checkpointing, "selective"),
    FlagRow("training.enable_cpu_offload experimental.enable_cpu_offload", "_offload_fsdp", flag, False),
    FlagRow("optimizer.name optimizer", "optimizer", word, "AdamW"),
    FlagRow("model.name", "_family", word),
    FlagRow("model.flavor", "_flavor", word),
    FlagRow("model_spec", "_spec", word),
    FlagRow("compile.enable training.compile", "_compile", flag, False),
    FlagRow("model_spec.attn_backend model.attn_backend", "_attention", word),
    FlagRow("comm", "_comm", anything),
)


def rules(reading: LaunchReading) -> None:
    """What torchtitan's sections amount to."""
    common.dtype(reading)
    common.offload(reading)
    _fsdp(reading)
    _batch(reading)
    pipeline = reading.one("pipeline_parallel")
    if named := reading.one("_schedule"):
        if pipeline and pipeline > 1:
            reading.put("schedule", named)
        reading.defaults["schedule"] = named
    family, flavor = reading.one("_family"), reading.one("_flavor")
    if family:
        reading.model_name = f"{family} {flavor}" if flavor else family
    reading.model_name = reading.one("_spec") or reading.model_name
    reading.defaults["sequence_parallel"] = (reading.one("tensor_parallel") or 1) > 1
    kernel = str(reading.one("_attention") or "")
    if kernel:
        reading.defaults["attention"] = {"sdpa": "fused", "flex": "fused", "varlen": "flash"}.get(
            kernel, "fused"
        )
    if reading.has("_local_batch"):
        reading.version = (
            "2024"
            if {"training.batch_size", "experimental.pipeline_parallel_degree"} & reading.keys
            else "2025"
        )
    elif reading.has("_tokens"):
        reading.version = "2026"


def _fsdp(reading: LaunchReading) -> None:
    shards, copies = reading.one("fsdp.shard_degree"), reading.one("fsdp.replicate_degree")
    if shards is None and copies is None:
        reading.defaults["zero_stage"] = 3
        return
    fields: dict[str, object] = {"implementation": "fsdp2", "shard_degree": shards, "replicate_degree": copies}
    if reading.has("fsdp.reshard_after_forward"):
        fields["reshard_after_forward"] = reading.one("fsdp.reshard_after_forward")
    if reading.one("_offload_fsdp"):
        fields["offload_params"] = True
    common.fsdp(reading, fields)
    if isinstance(shards, int) and isinstance(copies, int | None):
        reading.put("data_parallel", shards * (copies or 1), derived=True)


def _batch(reading: LaunchReading) -> None:
    """The local batch is per copy; a pipeline cuts it into micro-batches."""
    local, pipeline = reading.one("_local_batch"), reading.one("pipeline_parallel") or 1
    tokens, length = reading.one("_tokens"), reading.one("seq_len")
    if tokens and length:
        if tokens % length:
            reading.conflict(
                f"num_tokens_per_microbatch_per_dp_rank {tokens} is no multiple of max_context_length {length}"
            )
        else:
            reading.put("micro_batch", tokens // length, derived=True)
    if reading.one("_step_tokens") and length:
        reading.put("global_batch", reading.one("_step_tokens") // length, derived=True)
    if local is None:
        return
    each, parts = reading.one("_pipeline_micro_batch"), reading.one("_pipeline_micro_batches")
    if pipeline == 1 or local == 1:
        reading.put("micro_batch", local)
    elif each:
        reading.put("micro_batch", each)
    elif parts and local % parts == 0:
        reading.put("micro_batch", local // parts, derived=True)
    elif "training.batch_size" in reading.keys:
        reading.defaults["micro_batch"] = max(1, local // pipeline)
    else:
        reading.defaults["micro_batch"] = 1
    micro = reading.plan.get("micro_batch") or reading.defaults.get("micro_batch")
    if not reading.one("global_batch") and micro and local % micro == 0:
        reading.defaults["gradient_accumulation"] = local // micro


TORCHTITAN = Dialect(
    name="torchtitan",
    framework="torchtitan",
    rows=ROWS,
    rules=rules,
    write=said_trainers.torchtitan,
    defaults={
        **UNSPLIT,
        "zero_stage": 3,
        "dtype": "bf16",
        "recompute": "selective",
        "optimizer": "AdamW",
        "offload": [],
        "schedule": "1f1b",
        "attention": "fused",
        "micro_batch": 8,
        "seq_len": 2048,
        "gradient_accumulation": 1,
    },
    layout="toml",
    reads=frozenset({"toml", "args", "yaml", "json"}),
    software="fsdp2",
)

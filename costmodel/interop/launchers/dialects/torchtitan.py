"""torchtitan: its TOML files of 2024 and 2025, and the fields of its Python registry as ``key=value``."""

from __future__ import annotations

import re

from costmodel.description.dimensions import DIMENSIONS
from costmodel.interop.launchers import common, says
from costmodel.interop.launchers import values as unit
from costmodel.interop.launchers.table import OWN, Dialect, FlagRow, LaunchReading, Writing

IMPLEMENTATIONS = {"for-loop": "loop", "foreach": "foreach", "fused": "fused"}
"""Kernels of an optimizer in torchtitan's words."""
SCHEDULES = {
    "1f1b": "1f1b", "gpipe": "gpipe", "interleaved1f1b": "interleaved", "interleaved_1f1b": "interleaved",
    "loopedbfs": "breadth-first", "interleavedzerobubble": "zero-bubble", "zbvzerobubble": "zero-bubble", "zb1p": "zero-bubble",
    "flexibleinterleaved1f1b": "interleaved", "dualpipev": "dualpipe", "pipelineschedulesingle": unit.UNSTATED,
    "pipelineschedulemulti": unit.UNSTATED,
}  # fmt: skip
WRITTEN = {
    "1f1b": "1F1B", "gpipe": "GPipe", "interleaved": "Interleaved1F1B", "zb-h1": "ZB1P", "breadth-first": "LoopedBFS",
}  # fmt: skip
"""Schedules of a plan in torchtitan's words."""


def converters(raw: object) -> object:
    """What the model's linear layers are converted to."""
    if raw is None:
        return unit.UNSTATED
    text = " ".join(map(str, raw)) if isinstance(raw, list) else str(raw)
    for meaning, pattern in (("nvfp4", "nvfp4"), ("mxfp8", r"mxfp8|\bmx\b|linear\.mx|grouped_mm\.mx"), ("fp8", "float8|fp8")):
        if re.search(pattern, text.lower()):
            return meaning
    if text.strip("[]'\" ") == "":
        return unit.UNSTATED
    raise unit.Foreign("float8, mx")


def checkpointing(raw: object) -> object:
    """The mode, or the class of the registry."""
    name = str(raw).lower()
    for key, meaning in (("full", "full"), ("selective", "selective"), ("memory", "selective"), ("none", "none")):
        if key in name:
            return meaning
    raise unit.Foreign("none, selective, full")


def spelled(name: str) -> str:
    """A degree in each section that has held it."""
    return f"parallelism.{name} training.{name} experimental.{name}"


def pipelined(w: Writing) -> bool:
    """Whether there is a pipeline."""
    return w.plan.pipeline_parallel > 1


DEGREES = {
    "tensor": "", "context": "from 2024-10", "pipeline": "", "expert": "from 2025-07", "expert_tensor": "2025-09 to 2025-12",
}  # fmt: skip
"""Versions that have a flag for the degree of a dimension."""
CONVERTERS = {"fp8": ["quantize.linear.float8"], "mxfp8": ["quantize.linear.mx"]}
RESHARD = {"default": unit.UNSTATED, "always": True, "never": False}
ROWS = (
    FlagRow("model.name", "_family", unit.word, says=lambda w: w.model.name.rpartition("-")[0] or w.model.name),
    FlagRow("model.flavor", "_flavor", unit.word, says=lambda w: w.model.name.rpartition("-")[2].upper()),
    FlagRow("training.local_batch_size training.batch_size", "_local_batch", unit.count, 8,
            says=lambda w: w.plan.micro_batch * (w.accumulation if pipelined(w) else 1)),
    FlagRow("training.global_batch_size", "global_batch", unit.count_or_open, -1, "from 2025-05", says=OWN),
    FlagRow("training.num_tokens_per_microbatch_per_dp_rank", "_tokens", unit.count, 16384, "from 2026"),
    FlagRow("training.num_tokens_per_train_step", "_step_tokens", unit.count_or_open, -1, "from 2026"),
    FlagRow("training.seq_len training.max_context_length", "seq_len", unit.count, 2048, says=OWN),
    FlagRow("training.mixed_precision_param", "_wide", unit.one_of(unit.DTYPES), "bfloat16",
            says=says.mapped("dtype", {"fp32": "float32"})),
    FlagRow("model.converters model_spec.converters", "_narrow", converters, says=says.mapped("dtype", CONVERTERS)),
    FlagRow("float8.enable_float8_linear", "_narrow", unit.yields("fp8"), False),
    FlagRow("training.enable_fp8_linear training.fp8_linear", "_narrow", unit.yields("fp8"), False, "to 2024-07"),
    FlagRow(spelled("data_parallel_replicate_degree"), "fsdp.replicate_degree", unit.rest, 1, "from 2024-10", says=OWN),
    FlagRow(spelled("data_parallel_shard_degree") + " training.data_parallel_degree", "fsdp.shard_degree", unit.rest, -1,
            says=OWN),
    FlagRow(spelled("fsdp_reshard_after_forward"), "fsdp.reshard_after_forward", unit.one_of(RESHARD), "default", "from 2025-02",
            says=says.mapped("zero_stage", {"2": "never"}, "always"),
            when=lambda w: w.plan.zero_stage == 2 or (w.plan.zero_stage and not pipelined(w))),
    *(FlagRow(spelled(f"{one.field}_degree"), one.field, unit.count, 1, DEGREES[one.column], OWN,
              None if one.splits_gpus else says.has_experts) for one in DIMENSIONS if one.column in DEGREES),
    FlagRow(spelled("pipeline_parallel_schedule"), "_schedule", unit.one_of(SCHEDULES), "1F1B",
            says=says.mapped("schedule", WRITTEN), when=pipelined),
    FlagRow(spelled("pipeline_parallel_microbatch_size"), "_pipeline_micro_batch", unit.count, 1, "from 2025-04",
            says="micro_batch", when=pipelined),
    FlagRow(spelled("pipeline_parallel_microbatches") + " parallelism.num_pp_microbatches", "_pipeline_micro_batches",
            unit.count),
    FlagRow(spelled("pipeline_parallel_layers_per_stage"), "_stage_layers", unit.count),
    FlagRow(spelled("enable_async_tensor_parallel") + " compile.enable_async_tensor_parallel", "overlap_tensor", unit.flag, False,
            says=OWN),
    FlagRow("parallelism.enable_sequence_parallel", "sequence_parallel", unit.flag, True, "from 2026"),
    FlagRow("activation_checkpoint.mode activation_checkpoint", "recompute", checkpointing, "selective",
            says=says.mapped("recompute", {"none": "none", "full": "full"}, "selective")),
    FlagRow("activation_checkpoint.selective_ac_option", "_every", unit.word, "2", "to 2026-01",
            says=lambda w: "op" if w.plan.recompute == "operators" else None),
    FlagRow("optimizer.early_step_in_backward", "update_in_backward", unit.yields(True), False, "2025-02 to 2026-01",
            says=says.where_true("update_in_backward")),
    FlagRow("optimizer.name optimizer", "optimizer", unit.word, "AdamW", says=says.fixed("AdamW")),
    FlagRow("optimizer.implementation", "optimizer_kernel", unit.one_of(IMPLEMENTATIONS), None, "from 2025-02",
            says=says.mapped("optimizer_kernel", {kernel: word for word, kernel in IMPLEMENTATIONS.items()})),
    FlagRow("optimizer.fused", "optimizer_kernel", unit.yields("fused", "foreach"), None, "to 2025-02"),
    FlagRow("training.enable_cpu_offload experimental.enable_cpu_offload", "_offload_fsdp", unit.flag, False),
    FlagRow("model_spec", "_spec", unit.word),
    FlagRow("compile.enable training.compile", "_compile", unit.flag, False),
    FlagRow("compile.components", "_compiled", unit.listed, "model loss", "from 2025-08"),
    FlagRow("module", "_module", unit.word, None, "from 2026-02"),
    FlagRow("config", "_config", unit.word, None, "from 2026-02"),
    FlagRow("loss", "_loss", unit.anything, None, "from 2026-02"),
    FlagRow("model_spec.attn_backend model.attn_backend", "_attention", unit.word),
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
    reading.model_name = reading.one("_spec") or reading.one("_config") or reading.model_name
    _registry(reading)
    _compiled(reading)
    reading.defaults["sequence_parallel"] = (reading.one("tensor_parallel") or 1) > 1
    kernel = str(reading.one("_attention") or "")
    if kernel:
        reading.defaults["attention"] = {"sdpa": "fused", "flex": "fused", "varlen": "flash"}.get(kernel, "fused")
    if reading.has("_local_batch"):
        reading.version = "2024" if {"training.batch_size", "experimental.pipeline_parallel_degree"} & reading.keys else "2025"
    elif reading.has("_tokens"):
        reading.version = "2026"


def _registry(reading: LaunchReading) -> None:
    """What a file of TOML means where it is silent, and a run of the registry of Python instead.

    References
    ----------
    pytorch/torchtitan@2ea6197b9 torchtitan/config/job_config.py ``ActivationCheckpoint``; @9810191bb (#2386, February 2026): the
    registry; @786e26f8e (#2937, April 2026): ``ChunkedCELoss`` in its configurations
    """
    if any(reading.has(field) for field in ("_config", "_module", "_spec", "_tokens", "_step_tokens")):
        if not reading.has("_loss"):
            reading.put("loss", "chunk-by-chunk", derived=True)
        if reading.one("_config"):
            reading.note(f"what isn't stated comes from the configuration {reading.one('_config')}, which isn't opened")
            for field in () if reading.has("_tokens") else ("micro_batch", "gradient_accumulation"):
                reading.defaults.pop(field, None)  # another file's defaults stand first where it does
    elif reading.one("recompute", "selective") == "selective" and "recompute" not in reading.settled:
        every = str(reading.one("_every", "2"))
        if every.isdigit():  # else by operators
            reading.put("recompute_every", int(every), derived=True)


def _compiled(reading: LaunchReading) -> None:
    """What ``torch.compile`` makes of the layers and of the loss, which isn't PyTorch's loss-parallel then."""
    components = reading.one("_compiled", ["model", "loss"]) if reading.one("_compile") else []
    if "loss" in components and (reading.one("tensor_parallel") or 1) == 1:
        reading.put("loss", "compiled", derived=True)
    if "model" in components:
        common.fused(reading)
        reading.unpriced.append("compile")


def _fsdp(reading: LaunchReading) -> None:
    shards, copies = reading.one("fsdp.shard_degree"), reading.one("fsdp.replicate_degree")
    if shards is None and copies is None:
        reading.defaults["zero_stage"] = 3
        return
    fields: dict[str, object] = {"implementation": "fsdp2", "shard_degree": shards, "replicate_degree": copies}
    fields |= common.stated_fsdp(reading, "reshard_after_forward")
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
            reading.conflict(f"num_tokens_per_microbatch_per_dp_rank {tokens} is no multiple of max_context_length {length}")
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


TORCHTITAN = Dialect("torchtitan", ROWS, rules)

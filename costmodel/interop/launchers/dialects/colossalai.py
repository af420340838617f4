"""Command lines of ColossalAI's examples and applications."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from costmodel.interop.launchers import common
from costmodel.interop.launchers.dialects import said_trainers
from costmodel.interop.launchers.settle import schedule_of
from costmodel.interop.launchers.table import UNSPLIT, Dialect, FlagRow
from costmodel.interop.launchers.values import (
    DTYPES,
    count,
    degree,
    flag,
    number,
    one_of,
    present,
    whole,
    word,
    yields,
)

if TYPE_CHECKING:
    from costmodel.interop.launchers.table import LaunchReading

PLUGINS = {
    "zero1": "zero1",
    "zero2": "zero2",
    "zero2_cpu": "zero2_cpu",
    "zero1_cpu": "zero1_cpu",
    "low_level_zero": "zero2",
    "gemini": "gemini",
    "gemini_auto": "gemini",
    "3d": "3d",
    "3d_cpu": "3d_cpu",
    "hybrid_parallel": "3d",
    "hybrid": "3d",
    "ddp": "ddp",
    "torch_ddp": "ddp",
    "torch_ddp_fp16": "ddp",
    "fsdp": "fsdp",
    "fsdp_cpu": "fsdp_cpu",
    "torch_fsdp": "fsdp",
    "ep": "3d",
    "ep_zero": "3d",
    "zero": "zero2",
    "moe": "3d",
}
ROWS = (
    FlagRow("plugin p", "_plugin", one_of(PLUGINS)),
    FlagRow("tp tp_size tensor_parallel_size tp_degree", "tensor_parallel", count, 1),
    FlagRow("pp pp_size pipeline_parallel_size", "pipeline_parallel", count, 1),
    FlagRow("ep ep_size", "expert_parallel", count, 1),
    FlagRow("sp sp_size", "_sequence", count, 1),
    FlagRow("sp_mode", "_sequence_mode", word, "all_to_all"),
    FlagRow("enable_sequence_parallelism", "_sequence_on", flag, False),
    FlagRow("zero zero_stage", "_zero", whole, 0),
    FlagRow("batch_size b micro_batch_size train_batch_size per_device_train_batch_size", "_batch", count),
    FlagRow("mbs microbatch_size pp_micro_batch_size train_microbatch_size", "_micro", count, 1),
    FlagRow("accumulation_steps gradient_accumulation_steps", "gradient_accumulation", count, 1),
    FlagRow("max_length l max_len max_seq_len seq_length sequence_length", "seq_len", count),
    FlagRow("mixed_precision", "_wide", one_of(DTYPES), "bf16"),
    FlagRow("use_fp8", "_narrow", yields("fp8"), False),
    FlagRow("grad_checkpoint g use_grad_checkpoint gradient_checkpoint", "recompute", yields("full"), False),
    FlagRow("use_flash_attn x xformers", "attention", yields("flash"), False),
    FlagRow("config c", "_config", word, "7b"),
    FlagRow("model_name", "_name", word),
    FlagRow("pretrain pretrained model_name_or_path", "_pretrained", word),
    FlagRow("offload_optim_frac", "_optimizer_share", number, 0.0),
    FlagRow("offload_param_frac", "_parameter_share", number, 0.0),
    FlagRow("zero_cpu_offload", "_offload_optimizer", flag, False),
    FlagRow(
        "pp_style",
        "_style",
        one_of({"1f1b": "1f1b", "interleaved": "interleaved", "zbv": "zero-bubble"}),
        "1f1b",
    ),
    FlagRow("n_chunks", "virtual_stages", count, 1),
    FlagRow("lora_rank", "_rank", whole, 0),
    FlagRow("dp_size", "_dp", degree),
    FlagRow("optim optimizer", "optimizer", word),
    FlagRow("global_batch_size", "global_batch", count),
    FlagRow("placement", "_placement", word),
)
TITANS_ROWS = (
    FlagRow("BATCH_SIZE", "_batch", count),
    FlagRow("SEQ_LEN", "seq_len", count),
    FlagRow("NUM_MICRO_BATCHES", "_turns", count, 1),
    FlagRow("gradient_accumulation", "gradient_accumulation", count, 1),
    FlagRow("parallel.pipeline parallel.pipeline.size", "pipeline_parallel", count, 1),
    FlagRow("parallel.tensor.size", "tensor_parallel", count, 1),
    FlagRow("parallel.tensor.mode", "_mode", word),
    FlagRow("zero.model_config.tensor_placement_policy", "_policy", word, "cuda"),
    FlagRow("zero.model_config.shard_strategy zero.optimizer_config.initial_scale", "_zero3", present),
    FlagRow("model.checkpoint", "recompute", yields("full", "none"), False),
    FlagRow("model.num_chunks", "virtual_stages", count, 1),
    FlagRow("model.type", "_kind", word),
    FlagRow("fp16.mode fp16", "_half", present),
    FlagRow("optimizer.type", "optimizer", word),
)
"""Keys of the configurations under examples/language/gpt/titans, of the days when a run was a file."""


def rules(reading: LaunchReading) -> None:
    """What the plugin amounts to."""
    plugin = reading.one("_plugin")
    stage = {"zero1": 1, "zero1_cpu": 1, "zero2": 2, "zero2_cpu": 2, "ddp": 0}.get(str(plugin))
    reading.put("zero_stage", stage if stage is not None else reading.one("_zero"))
    if plugin and plugin.endswith("_cpu") and plugin != "fsdp_cpu":
        reading.say("_offload_optimizer", True, f"plugin {plugin}")
    if str(plugin).startswith("fsdp"):
        reading.say("_offload_fsdp", plugin == "fsdp_cpu", f"plugin {plugin}")
        common.fsdp(reading, {"implementation": "torch-fsdp", "offload_params": plugin == "fsdp_cpu"})
    for name in ("optimizer", "parameter"):
        share = reading.one(f"_{name}_share")
        if share is not None:
            reading.say(
                "_offload_optimizer" if name == "optimizer" else "_offload_parameters",
                share > 0,
                f"offload_{name} {share}",
            )
            if name == "optimizer" and share:
                reading.say("_offload_fraction", share, "offload_optim_frac")
    titans = {"BATCH_SIZE", "SEQ_LEN"} & reading.keys
    if titans:
        _titans(reading)
    common.offload(reading)
    if titans:
        reading.defaults["zero_stage"] = 0
    elif plugin == "gemini" or plugin is None:
        reading.defaults["zero_stage"] = 3
    common.dtype(reading)
    reading.put(
        "micro_batch",
        reading.one("_micro")
        if plugin in ("3d", "3d_cpu") and reading.has("_micro")
        else reading.one("_batch"),
    )
    _sequence(reading)
    if (reading.one("pipeline_parallel") or 1) > 1 and reading.has("_style"):
        reading.put("schedule", reading.one("_style"))
    schedule_of(reading)
    if config := reading.one("_config"):
        reading.model_name = (
            f"llama {config}" if len(config) < 8 and config[:-1].replace(".", "").isdigit() else None
        )
    reading.model_name = reading.one("_name") or reading.one("_pretrained") or reading.model_name
    if reading.one("_rank"):
        common.adapter(reading, "lora", targets="all")  # colossalai/booster/plugin: every linear layer that is found


def _sequence(reading: LaunchReading) -> None:
    ranks, mode = reading.one("_sequence"), str(reading.one("_sequence_mode", "all_to_all"))
    if mode in ("split_gather", "ring") and reading.one("_sequence_on"):
        reading.put("sequence_parallel", True)
    elif ranks and ranks > 1:
        reading.put("ulysses_parallel" if mode == "all_to_all" else "context_parallel", ranks)
        if mode != "all_to_all":
            reading.put("context_communication", "ring")


def _titans(reading: LaunchReading) -> None:
    """What a configuration of Titans amounts to: a section ``zero`` shards weights too, and a pipeline splits a rank's batch."""
    if reading.has("_zero3") or reading.has("_policy"):
        reading.put("zero_stage", 3)
        reading.put("dtype", "fp16", derived=True)  # colossalai/legacy/zero: weights are held in 16 bits
    if str(reading.one("_policy")) in ("cpu", "auto"):
        for part in ("optimizer", "parameters"):
            reading.say(f"_offload_{part}", True, f"tensor_placement_policy {reading.one('_policy')}")
    batch, turns = reading.one("_batch"), reading.one("_turns") or 1
    if batch and (reading.one("pipeline_parallel") or 1) > 1:
        if batch % turns:
            reading.conflict(f"BATCH_SIZE {batch} and NUM_MICRO_BATCHES {turns}, which doesn't divide it")
        else:
            reading.put("micro_batch", batch // turns, derived=True)
            reading.put("gradient_accumulation", turns * (reading.one("gradient_accumulation") or 1), derived=True)
            reading.said.pop("gradient_accumulation", None)
    if reading.has("_half"):
        reading.put("dtype", "fp16")
    kind = re.match(r"gpt[-_]?([23])[-_ ]?([a-z0-9.]*?)(?:_pipeline.*)?$", str(reading.one("_kind") or "").lower())
    if kind:
        reading.model_name = {"3": "gpt3-175b"}.get(kind[1]) or f"gpt2-{kind[2]}".rstrip("-")


COLOSSALAI = Dialect(
    name="colossalai",
    framework="colossalai",
    rows=(*ROWS, *TITANS_ROWS),
    rules=rules,
    write=said_trainers.colossalai,
    defaults={
        **UNSPLIT,
        "zero_stage": 0,
        "dtype": "bf16",
        "recompute": "none",
        "offload": [],
        "gradient_accumulation": 1,
        "schedule": "1f1b",
        "optimizer": "HybridAdam",
    },
    layout="args",
    reads=frozenset({"args", "json", "yaml"}),
    software="deepspeed",
)

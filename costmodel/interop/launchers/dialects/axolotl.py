"""Axolotl's YAML over TrainingArguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costmodel.interop.launchers import common
from costmodel.interop.launchers.dialects import huggingface as hf
from costmodel.interop.launchers.dialects import said_trainers
from costmodel.interop.launchers.table import Dialect, FlagRow
from costmodel.interop.launchers.values import (
    UNSTATED,
    Foreign,
    anything,
    attention,
    count,
    degree,
    flag,
    listed,
    one_of,
    word,
    yields,
)

if TYPE_CHECKING:
    from costmodel.interop.launchers.table import LaunchReading



def recompute(raw: object) -> object:
    """True, false, or "offload", which also moves the checkpoints to host memory."""
    if isinstance(raw, str) and raw.lower() in ("offload", "offload_disk", "unsloth"):
        return "offload"
    return yields("full", "none")(raw)


def moved(raw: object) -> object:
    """Whether activations are moved to host memory: true, "legacy", "disk", ..."""
    if isinstance(raw, str) and raw.lower() in ("legacy", "disk", "hidden_states"):
        return True
    return flag(raw)


def wide(raw: object) -> object:
    """True, false, ``full`` (pure bf16), or ``auto``: left to what the device has."""
    if isinstance(raw, str) and raw.lower() == "full":
        return True
    return flag(raw)


def adapter(raw: object) -> object:
    """Which kind of fine-tuning."""
    if raw is None or raw == "":
        return UNSTATED
    if str(raw).lower() not in ("lora", "qlora", "llama-adapter", "relora"):
        raise Foreign("lora, qlora")
    return "qlora" if str(raw).lower() == "qlora" else "lora"


def precompiled(raw: object) -> object:
    """Plugins: cut cross-entropy and Liger fuse the loss."""
    if not isinstance(raw, list):
        return UNSTATED
    return any("CutCrossEntropy" in str(one) or "Liger" in str(one) for one in raw) or UNSTATED


ROWS = (
    FlagRow("base_model", "_name", word),
    FlagRow("sequence_len", "seq_len", count, 512),
    FlagRow("micro_batch_size", "micro_batch", count, 1),
    FlagRow("gradient_accumulation_steps", "gradient_accumulation", count, 1),
    FlagRow("batch_size", "_total", count),
    FlagRow("gradient_checkpointing activation_checkpointing", "_recompute", recompute, False),
    FlagRow("activation_offloading layer_offloading", "_offload_activations", moved, False),
    FlagRow("optimizer", "optimizer", word, "adamw_torch_fused"),
    FlagRow("adapter", "_adapter", adapter),
    FlagRow("lora_r", "_rank", count),
    FlagRow("lora_target_modules", "_targets", listed),
    FlagRow("lora_target_linear", "_every", flag, False),
    FlagRow("gptq", "_gptq", flag, False),
    FlagRow("bf16", "_bf16", wide, "auto"),
    FlagRow("bfloat16", "_load_bf16", flag, False),
    FlagRow("float16", "_load_fp16", flag, False),
    FlagRow("fp16", "_fp16", flag, False),
    FlagRow("fp8", "_narrow", yields("fp8"), False),
    FlagRow("attn_implementation", "attention", attention, "sdpa"),
    FlagRow("flash_attention", "attention", yields("flash")),
    FlagRow("sdp_attention", "attention", yields("fused")),
    FlagRow("flex_attention", "attention", yields("fused")),
    FlagRow("xformers_attention", "attention", yields("xformers")),
    FlagRow("eager_attention", "attention", yields("unfused")),
    FlagRow("sage_attention", "attention", yields("fused")),
    FlagRow("tensor_parallel_size", "tensor_parallel", degree, 1),
    FlagRow("expert_parallel_size", "expert_parallel", degree, 1),
    FlagRow("context_parallel_size sequence_parallel_degree", "context_parallel", degree, 1),
    FlagRow("dp_shard_size", "fsdp.shard_degree", degree),
    FlagRow("dp_replicate_size", "fsdp.replicate_degree", degree),
    FlagRow("fsdp", "_fsdp", anything),
    FlagRow("fsdp_version fsdp_config.fsdp_version", "fsdp.version", count, 1),
    FlagRow("fsdp_config.offload_params fsdp_config.fsdp_offload_params", "_offload_fsdp", flag, False),
    FlagRow("fsdp_config.sharding_strategy fsdp_config.fsdp_sharding_strategy", "fsdp.sharding", word),
    FlagRow(
        "fsdp_config.reshard_after_forward fsdp_config.fsdp_reshard_after_forward",
        "fsdp.reshard_after_forward",
        one_of({"true": True, "false": False}),
        True,
    ),
    FlagRow(
        "fsdp_config.activation_checkpointing fsdp_config.fsdp_activation_checkpointing",
        "_fsdp_recompute",
        yields("full", "none"),
    ),
    *(row for row in hf.TRAINER_ROWS if row.flags.startswith("deepspeed.z")),
    FlagRow("deepspeed", "_deepspeed", anything),
    FlagRow("plugins", "fused_cross_entropy", precompiled),
    FlagRow("load_in_4bit", "_four_bit", flag, False),
    FlagRow("rl", "_rl", word),
    FlagRow("world_size", "_gpus", count),
    FlagRow("ring_attn_func", "_ring", word),
    FlagRow("sample_packing", "_packing", flag),
    FlagRow("batch_flattening", "_padding_free", flag),
    FlagRow("pad_to_sequence_len", "_padded_whole", flag),
    FlagRow("group_by_length", "_by_length", flag),
    FlagRow("flash_attn_cross_entropy liger_fused_linear_cross_entropy cut_cross_entropy", "_fused_loss", flag),
)


def rules(reading: LaunchReading) -> None:
    """Axolotl's flags; the mesh of its degrees is the world where all of it is stated."""
    reading.model_name = reading.one("_name")
    if reading.one("_fp16") and reading.one("_bf16"):
        reading.conflict("bf16 and fp16, both true")
    else:
        reading.put(
            "dtype",
            reading.one("_narrow")
            or ("bf16" if reading.one("_bf16") else "fp16" if reading.one("_fp16") else None),
        )
    reading.put(
        "dtype", "bf16" if reading.one("_load_bf16") else "fp16" if reading.one("_load_fp16") else None
    )
    hf.fsdp(reading)
    if reading.one("_recompute") == "offload":
        reading.said.pop("_recompute")
        reading.put("recompute", "full")
        reading.say("_offload_activations", True, "gradient_checkpointing offload")
    reading.put("recompute", reading.one("_recompute") or reading.one("_fsdp_recompute"))
    gptq = reading.one("_gptq") and reading.one("_adapter") == "lora"
    every = "all" if reading.one("_every") else None
    common.adapter(reading, "gptq-lora" if gptq else reading.one("_adapter"), None, every)
    common.devices(reading)
    common.offload(reading)
    common.batching(reading)
    if reading.one("_fused_loss"):
        reading.put("fused_cross_entropy", True)
    _mesh(reading)
    common.beside(reading, "_deepspeed", "deepspeed")
    common.beside(reading, "_accelerate", "accelerate")


def _mesh(reading: LaunchReading) -> None:
    """Data-parallel ranks, where the degrees leave none open: shards are stated and either copies of them or what splits a model.

    Without copies a larger world would be taken for more of them (axolotl src/axolotl/utils/distributed.py
    ``_get_parallel_config_kwargs``): such a mesh of shards alone is left open.
    """
    shards, copies = reading.one("fsdp.shard_degree"), reading.one("fsdp.replicate_degree")
    whole = copies or (reading.one("tensor_parallel") and reading.one("context_parallel"))
    if shards and shards > 1 and whole:  # one of each is as good as none
        data = shards * (copies or 1) * (reading.one("expert_parallel") or 1)
        reading.put("data_parallel", data, derived=True)
        micro, steps = reading.one("micro_batch"), reading.one("gradient_accumulation")
        if copies and micro and steps:
            reading.put("global_batch", micro * steps * data, derived=True)


AXOLOTL = Dialect(
    name="axolotl",
    framework="axolotl",
    rows=ROWS,
    rules=rules,
    write=said_trainers.axolotl,
    defaults=hf.DEFAULTS | {"micro_batch": 1, "optimizer": "adamw_torch_fused", "dtype": "bf16"},
    layout="yaml",
    reads=frozenset({"yaml", "json", "args"}),
    software="hf-fsdp",
)

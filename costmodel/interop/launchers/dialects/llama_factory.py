"""LLaMA-Factory's YAML over TrainingArguments, of its first layout and of version 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costmodel.interop.launchers import common
from costmodel.interop.launchers.dialects import huggingface as hf
from costmodel.interop.launchers.dialects import said_trainers
from costmodel.interop.launchers.table import Dialect, FlagRow
from costmodel.interop.launchers.values import (
    anything,
    attention,
    count,
    flag,
    listed,
    one_of,
    rest,
    word,
    yields,
)

if TYPE_CHECKING:
    from costmodel.interop.launchers.table import LaunchReading

OWN = (
    FlagRow("cutoff_len", "seq_len", count, 2048),
    FlagRow("flash_attn", "attention", attention, "auto"),
    FlagRow(
        "finetuning_type",
        "_method",
        one_of({"full": "full", "lora": "lora", "freeze": "freeze", "oft": "lora"}),
        "lora",
    ),
    FlagRow("quantization_bit", "_bits", count),
    FlagRow("disable_gradient_checkpointing", "_recompute", yields("none", "full"), False),
    FlagRow("pure_bf16", "_pure", flag, False),
    FlagRow("fp8", "_narrow", yields("fp8"), False),
    FlagRow("model", "_name", word, None, "v1"),
    FlagRow("micro_batch_size", "micro_batch", count, None, "v1 and Megatron"),
    FlagRow("batch_size global_batch_size", "global_batch", count, None, "v1"),
    FlagRow("cp_size", "_cp", count, 1, "v1"),
    FlagRow("cp_mode", "_cp_mode", word, "ulysses", "v1"),
    FlagRow("dp_size", "_dp", anything, None, "v1"),
    FlagRow("mp_shard_size", "fsdp.shard_degree", rest, None, "v1"),
    FlagRow("mp_replicate_size", "fsdp.replicate_degree", count, None, "v1"),
    FlagRow(
        "dist_config.name",
        "_backend",
        one_of({"fsdp2": "fsdp2", "fsdpturbo": "fsdp2", "deepspeed": "deepspeed", "ddp": "ddp"}),
        None,
        "v1",
    ),
    FlagRow("dist_config.config_file", "_config_file", word, None, "v1"),
    FlagRow("dist_config.zero_stage", "zero_stage", count, None, "v1"),
    FlagRow("dist_config.offload_params", "_offload_fsdp", flag, None, "v1"),
    FlagRow(
        "dist_config.mixed_precision mixed_precision",
        "_dtype",
        one_of({"bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}),
        "bf16",
        "v1",
    ),
    FlagRow("dist_config.reshard_after_forward", "fsdp.reshard_after_forward", flag, None, "v1"),
    FlagRow("enable_activation_checkpointing", "_recompute", yields("full", "none"), None, "v1"),
    FlagRow("peft_config.name", "_peft_name", word, None, "v1"),
    FlagRow("quant_config.name", "_quant", word, None, "v1"),
    FlagRow("quant_config.quantization_bit", "_bits", count, None, "v1"),
    FlagRow("peft_config.r", "_rank", count, None, "v1"),
    FlagRow("lora_rank", "_rank", count, 8),
    FlagRow("lora_target peft_config.target_modules", "_targets", listed, "all"),
    FlagRow("optim_config.name", "optimizer", word, None, "v1"),
    FlagRow("tensor_model_parallel_size", "tensor_parallel", count, 1, "with Megatron"),
    FlagRow("pipeline_model_parallel_size", "pipeline_parallel", count, 1, "with Megatron"),
    FlagRow("context_parallel_size", "context_parallel", count, 1, "with Megatron"),
    FlagRow("expert_model_parallel_size", "expert_parallel", count, 1, "with Megatron"),
    FlagRow("virtual_pipeline_model_parallel_size", "virtual_stages", count, 1, "with Megatron"),
    FlagRow("sequence_parallel", "sequence_parallel", flag, False, "with Megatron"),
    FlagRow("use_distributed_optimizer", "zero_stage", yields(1, 0), False, "with Megatron"),
    FlagRow(
        "recompute_granularity",
        "_recompute",
        one_of({"full": "full", "selective": "selective"}),
        None,
        "with Megatron",
    ),
    FlagRow("overlap_grad_reduce", "overlap_gradients", flag),
    FlagRow("overlap_param_gather", "overlap_parameters", flag),
    FlagRow("cross_entropy_loss_fusion", "fused_cross_entropy", flag),
    FlagRow("neat_packing", "_packing", flag, False),
    FlagRow("packing", "_joined", flag, False),  # full sequences, with attention over all of one
    FlagRow("use_badam", "_badam", flag, False),
    FlagRow("use_galore", "_galore", flag, False),
    FlagRow("use_apollo", "_apollo", flag, False),
    FlagRow("use_adam_mini", "_mini", flag, False),
    FlagRow("use_muon", "_muon", flag, False),
)
TAKEN = {spelling for row in OWN for spelling in row.flags.split()}


def rules(reading: LaunchReading) -> None:
    """LLaMA-Factory's own flags, then the Trainer's."""
    if reading.one("_method") == "lora" or "lora" in str(reading.one("_peft_name", "")):
        common.adapter(reading, "qlora" if reading.one("_bits") == 4 else "lora", 8, "all")
    if reading.one("_method") == "freeze":
        reading.unpriced.append("finetuning_type=freeze")
    if reading.one("_backend") == "fsdp2":
        reading.say("fsdp.version", 2, "dist_config.name fsdp2")
    degree = reading.one("_cp")
    if degree and degree > 1:
        reading.put(
            "ulysses_parallel" if reading.one("_cp_mode", "ulysses") == "ulysses" else "context_parallel",
            degree,
        )
    for name in ("badam", "galore", "apollo", "mini"):
        if reading.one(f"_{name}"):
            reading.unpriced.append(f"use_{name}")
    if reading.one("_muon"):
        reading.put("optimizer", "muon")
    if reading.one("_pure"):
        reading.put("dtype", "bf16")
        reading.put("gradient_bytes", 2)
    hf.trainer(reading)
    if {
        "dist_config.name",
        "micro_batch_size",
        "model",
    } & reading.keys and "model_name_or_path" not in reading.keys:
        reading.version = "v1"
        reading.defaults |= {"micro_batch": 1, "gradient_accumulation": None, "attention": "auto"}
    common.beside(reading, "_deepspeed", "deepspeed")
    common.beside(reading, "_config_file", "deepspeed")
    common.beside(reading, "_accelerate", "accelerate")


LLAMA_FACTORY = Dialect(
    name="llama-factory",
    framework="llama-factory",
    rows=(*OWN, *(row for row in (*hf.TRAINER_ROWS, *hf.MODEL_ROWS) if not TAKEN & set(row.flags.split()))),
    rules=rules,
    write=said_trainers.llama_factory,
    defaults=hf.DEFAULTS | {"recompute": "full", "attention": "auto", "seq_len": 2048},
    layout="yaml",
    reads=frozenset({"yaml", "json", "args"}),
    software="hf-fsdp",
)

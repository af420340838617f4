"""nanotron's YAML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costmodel.interop.launchers.dialects import said_trainers
from costmodel.interop.launchers.table import UNSPLIT, Dialect, FlagRow
from costmodel.interop.launchers.values import (
    DTYPES,
    attention,
    count,
    flag,
    one_of,
    present,
    whole,
    word,
    yields,
)

if TYPE_CHECKING:
    from costmodel.interop.launchers.table import LaunchReading

SHAPE = "model.model_config."
ROWS = (
    FlagRow("parallelism.tp", "tensor_parallel", count),
    FlagRow("parallelism.pp", "pipeline_parallel", count),
    FlagRow("parallelism.dp", "data_parallel", count),
    FlagRow("parallelism.context_parallel_size", "context_parallel", count, 1, "from 2025"),
    FlagRow("parallelism.expert_parallel_size", "expert_parallel", count, 1),
    FlagRow("parallelism.pp_engine", "_engine", one_of({"1f1b": "1f1b", "afab": "gpipe"}), "afab"),
    FlagRow(
        "parallelism.tp_mode",
        "sequence_parallel",
        one_of({"reduce_scatter": True, "all_reduce": False}),
        "ALL_REDUCE",
    ),
    FlagRow("parallelism.tp_linear_async_communication", "overlap_tensor", flag, False),
    FlagRow("parallelism.recompute_layer", "recompute", yields("full", "none"), False, "from 2024"),
    FlagRow(
        "parallelism.recompute_granularity",
        "recompute",
        one_of({"full": "full", "selective": "selective"}),
        None,
        "to 2023",
    ),
    FlagRow("optimizer.zero_stage", "zero_stage", whole),
    FlagRow("optimizer.accumulate_grad_in_fp32", "gradient_bytes", yields(4, 2)),
    FlagRow("optimizer.optimizer_factory.name", "optimizer", word, "adamW"),
    FlagRow("tokens.micro_batch_size", "micro_batch", count),
    FlagRow("tokens.sequence_length", "seq_len", count),
    FlagRow("tokens.batch_accumulation_per_replica", "gradient_accumulation", count),
    FlagRow("model.dtype", "_wide", one_of(DTYPES)),
    FlagRow(SHAPE + "_attn_implementation", "attention", attention, "flash_attention_2"),
    FlagRow(SHAPE + "num_hidden_layers", "model.num_layers", count),
    FlagRow(SHAPE + "hidden_size", "model.hidden_size", count),
    FlagRow(SHAPE + "intermediate_size", "model.ffn_hidden_size", count),
    FlagRow(SHAPE + "num_attention_heads", "model.num_heads", count),
    FlagRow(SHAPE + "num_key_value_heads " + SHAPE + "num_kv_heads", "model.num_kv_heads", count),
    FlagRow(SHAPE + "head_dim", "model.head_dim", count),
    FlagRow(SHAPE + "vocab_size", "model.vocab_size", count),
    FlagRow(SHAPE + "tie_word_embeddings", "model.tied_embeddings", flag, False),
    FlagRow(SHAPE + "attention_bias", "model.qkv_bias", flag, False),
    FlagRow(SHAPE + "sliding_window_size", "model.window", count),
    FlagRow(SHAPE + "moe_config.num_experts " + SHAPE + "moe_num_experts", "model.num_experts", count),
    FlagRow(SHAPE + "moe_config.top_k " + SHAPE + "num_experts_per_tok", "model.top_k", count),
    FlagRow(SHAPE + "moe_config.moe_intermediate_size", "model.moe_ffn_hidden_size", count),
    FlagRow(SHAPE + "moe_config.shared_expert_intermediate_size", "_shared", count),
    FlagRow(SHAPE + "moe_config.enable_shared_expert", "_has_shared", flag, False),
    FlagRow(SHAPE + "is_mamba_config", "_mamba", present),
    FlagRow(SHAPE + "d_model", "model.hidden_size", count),
    FlagRow(SHAPE + "is_starcoder2_config", "_starcoder", flag),
    FlagRow(SHAPE + "moe_capacity_factor", "_capacity", word),
)


def rules(reading: LaunchReading) -> None:
    """The schedule of a real pipeline, and the kind of model."""
    reading.put("dtype", reading.one("_wide"))
    if (reading.one("pipeline_parallel") or 1) > 1:
        reading.put("schedule", reading.one("_engine"))
    reading.defaults["schedule"] = reading.one("_engine") or "gpipe"
    if reading.one("_has_shared") and reading.has("_shared"):
        reading.say("model.shared_expert_ffn", reading.one("_shared"), "shared_expert_intermediate_size")
    if reading.one("_mamba"):
        reading.say("model.kind", "mamba", "is_mamba_config")
    else:
        gated = not reading.one("_starcoder")
        reading.say("model.activation", "swiglu" if gated else "gelu (not gated)", "hidden_act")
        reading.say("model.norm", "rmsnorm" if gated else "layernorm", "norm")
        reading.say("model.bias", False, "bias")


NANOTRON = Dialect(
    name="nanotron",
    framework="nanotron",
    rows=ROWS,
    rules=rules,
    write=said_trainers.nanotron,
    defaults={
        **UNSPLIT,
        "recompute": "none",
        "offload": [],
        "attention": "flash",
        "zero_stage": 0,
        "dtype": "bf16",
        "optimizer": "adamW",
        "gradient_accumulation": 1,
    },
    layout="yaml",
    software="nanotron",
)

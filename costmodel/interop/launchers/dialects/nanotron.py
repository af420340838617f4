"""nanotron's YAML."""

from __future__ import annotations

from costmodel.interop.launchers import says
from costmodel.interop.launchers import values as unit
from costmodel.interop.launchers.table import OWN, Dialect, FlagRow, LaunchReading

SHAPE = "model.model_config."
ROWS = (
    FlagRow("parallelism.dp", "data_parallel", unit.count, says=OWN),
    FlagRow("parallelism.tp", "tensor_parallel", unit.count, says=OWN),
    FlagRow("parallelism.pp", "pipeline_parallel", unit.count, says=OWN),
    FlagRow("parallelism.context_parallel_size", "context_parallel", unit.count, 1, "from 2025", says=OWN),
    FlagRow("parallelism.expert_parallel_size", "expert_parallel", unit.count, 1, says=OWN),
    FlagRow("parallelism.pp_engine", "_engine", unit.one_of({"1f1b": "1f1b", "afab": "gpipe"}), "afab",
            says=says.mapped("schedule", {"gpipe": "afab"}, "1f1b")),
    FlagRow("parallelism.tp_mode", "sequence_parallel", unit.one_of({"REDUCE_SCATTER": True, "ALL_REDUCE": False}), "ALL_REDUCE",
            says=lambda w: "REDUCE_SCATTER" if w.plan.sequence_parallel or w.plan.tensor_parallel == 1 else "ALL_REDUCE"),
    FlagRow("parallelism.tp_linear_async_communication", "overlap_tensor", unit.flag, False,
            says=lambda w: bool(w.plan.overlap_tensor)),
    FlagRow("parallelism.recompute_layer", "recompute", unit.yields("full", "none"), False, "from 2024", says=OWN),
    FlagRow("parallelism.recompute_granularity", "recompute", unit.one_of({"full": "full", "selective": "selective"}), None,
            "to 2023"),
    FlagRow("tokens.micro_batch_size", "micro_batch", unit.count, says=OWN),
    FlagRow("tokens.batch_accumulation_per_replica", "gradient_accumulation", unit.count, says=OWN),
    FlagRow("tokens.sequence_length", "seq_len", unit.count, says=OWN),
    FlagRow("optimizer.zero_stage", "zero_stage", unit.whole, says=OWN),
    FlagRow("optimizer.accumulate_grad_in_fp32", "gradient_bytes", unit.yields(4, 2), says=OWN),
    FlagRow("optimizer.optimizer_factory.name", "optimizer", unit.word, "adamW",
            says=lambda w: "adamW" if w.plan.optimizer in (None, "adam") else w.plan.optimizer),
    FlagRow("model.dtype", "_wide", unit.one_of(unit.DTYPES), says=says.mapped("dtype", says.LONG_DTYPES)),
    FlagRow(SHAPE + "num_hidden_layers", "model.num_layers", unit.count, says=OWN),
    FlagRow(SHAPE + "hidden_size", "model.hidden_size", unit.count, says=OWN),
    FlagRow(SHAPE + "intermediate_size", "model.ffn_hidden_size", unit.count, says=OWN),
    FlagRow(SHAPE + "num_attention_heads", "model.num_heads", unit.count, says=OWN),
    FlagRow(SHAPE + "num_key_value_heads " + SHAPE + "num_kv_heads", "model.num_kv_heads", unit.count, says=OWN),
    FlagRow(SHAPE + "vocab_size", "model.vocab_size", unit.count, says=OWN),
    FlagRow(SHAPE + "tie_word_embeddings", "model.tied_embeddings", unit.flag, False, says=OWN),
    FlagRow(SHAPE + "_attn_implementation", "attention", unit.attention, "flash_attention_2",
            says=says.kernel("flash_attention_2", "sdpa")),
    FlagRow(SHAPE + "head_dim", "model.head_dim", unit.count),
    FlagRow(SHAPE + "attention_bias", "model.qkv_bias", unit.flag, False),
    FlagRow(SHAPE + "sliding_window_size", "model.window", unit.count),
    FlagRow(SHAPE + "moe_config.num_experts " + SHAPE + "moe_num_experts", "model.num_experts", unit.count, says=OWN),
    FlagRow(SHAPE + "moe_config.top_k " + SHAPE + "num_experts_per_tok", "model.top_k", unit.count, says=OWN),
    FlagRow(SHAPE + "moe_config.moe_intermediate_size", "model.moe_ffn_hidden_size", unit.count, says=OWN),
    FlagRow(SHAPE + "moe_config.shared_expert_intermediate_size", "_shared", unit.count),
    FlagRow(SHAPE + "moe_config.enable_shared_expert", "_has_shared", unit.flag, False),
    FlagRow(SHAPE + "is_mamba_config", "_mamba", unit.present),
    FlagRow(SHAPE + "d_model", "model.hidden_size", unit.count),
    FlagRow(SHAPE + "is_starcoder2_config", "_starcoder", unit.flag),
    FlagRow(SHAPE + "moe_capacity_factor", "_capacity", unit.word),
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


NANOTRON = Dialect("nanotron", ROWS, rules)

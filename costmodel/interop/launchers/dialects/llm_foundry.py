"""LLM Foundry's YAML (Composer's FSDP)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costmodel.interop.launchers import common
from costmodel.interop.launchers.dialects import said_trainers
from costmodel.interop.launchers.table import UNSPLIT, Dialect, FlagRow
from costmodel.interop.launchers.values import (
    Expected,
    attention,
    count,
    flag,
    listed,
    number,
    one_of,
    present,
    word,
    yields,
)

if TYPE_CHECKING:
    from costmodel.interop.launchers.table import LaunchReading

PRECISIONS = {
    "amp_bf16": "bf16",
    "amp_fp16": "fp16",
    "fp32": "fp32",
    "amp_fp8": "fp8",
    "bf16": "bf16",
    "fp16": "fp16",
    "amp": "fp16",
    "amp_bf8": "fp8",
    "inductor": "bf16",
}


def sequences(raw: object) -> object:
    """A batch in sequences; Composer also takes shares of one."""
    value = number(raw)
    if isinstance(value, float) and value < 1:
        raise Expected("a whole number from 1, or auto")
    return count(raw)


ROWS = (
    FlagRow("train_loader.dataset.packing_ratio", "_packing", present),
    FlagRow("global_train_batch_size", "global_batch", count),
    FlagRow("device_train_microbatch_size", "micro_batch", sequences, "auto"),
    FlagRow("device_train_batch_size", "_device_batch", count),
    FlagRow("max_seq_len", "seq_len", count),
    FlagRow("precision", "_wide", one_of(PRECISIONS), "amp_bf16"),
    FlagRow("optimizer.name", "optimizer", word),
    FlagRow("fsdp_config.sharding_strategy", "fsdp.sharding", word, "FULL_SHARD"),
    FlagRow("fsdp_config.mixed_precision", "fsdp.mixed_precision", word, "DEFAULT"),
    FlagRow("fsdp_config.activation_checkpointing", "recompute", yields("full", "none"), False),
    FlagRow("fsdp_config.activation_cpu_offload", "_offload_activations", flag, False),
    FlagRow("fsdp_config.cpu_offload", "_offload_fsdp", flag, False),
    FlagRow("fsdp_config.data_parallel_shard_degree", "fsdp.shard_degree", count, -1),
    FlagRow("fsdp_config.data_parallel_replicate_degree", "fsdp.replicate_degree", count, 1),
    FlagRow("tp_config.tensor_parallel_degree", "tensor_parallel", count, 1, "from 0.11"),
    FlagRow("model.name", "_kind", word),
    FlagRow("model.pretrained_model_name_or_path", "_name", word),
    FlagRow("model.n_layers", "model.num_layers", count),
    FlagRow("model.d_model", "model.hidden_size", count),
    FlagRow("model.n_heads", "model.num_heads", count),
    FlagRow("model.expansion_ratio", "_ratio", number, 4),
    FlagRow("model.ffn_config.ffn_hidden_size", "model.ffn_hidden_size", count),
    FlagRow("model.vocab_size", "model.vocab_size", count),
    FlagRow("model.attn_config.kv_n_heads", "model.num_kv_heads", count),
    FlagRow("model.tie_word_embeddings", "model.tied_embeddings", flag, True),
    FlagRow(
        "model.attn_config.attn_impl model.config_overrides.attn_config.attn_impl",
        "attention",
        attention,
        "flash",
    ),
    FlagRow("model.use_flash_attention_2", "attention", yields("flash"), False),
    FlagRow("model.attn_impl", "attention", attention, None, "to 0.2"),
    FlagRow("model.no_bias", "model.bias", yields(False, True), False),
    FlagRow("model.ffn_config.ffn_type", "_ffn", word, "mptmlp"),
    FlagRow("model.norm_type", "_norm", word, "low_precision_layernorm"),
    FlagRow("model.ffn_config.moe_num_experts", "model.num_experts", count),
    FlagRow("model.ffn_config.moe_top_k", "model.top_k", count),
    FlagRow("model.ffn_config.moe_world_size", "expert_parallel", count, 1),
    FlagRow("model.attn_config.clip_qkv", "_clip", number),
    FlagRow("model.attn_config.alibi", "_alibi", flag, False),
    FlagRow("model.attn_config.rope", "_rope", flag, False),
    FlagRow("model.learned_pos_emb", "_learned", flag, True),
    FlagRow("model.max_seq_len", "_positions", count),
    FlagRow("model.peft_config.peft_type", "_peft", word),
    FlagRow("model.peft_config.r", "_rank", count),
    FlagRow("model.peft_config.target_modules", "_targets", listed),
    FlagRow("model.load_in_4bit", "_four_bit", flag, False),
    FlagRow(
        "model.attn_config.sliding_window_size",
        "_window",
        lambda raw: number(raw) if str(raw) != "-1" else 0.0,
        -1,
    ),
)


def rules(reading: LaunchReading) -> None:
    """FSDP, and MPT's shape."""
    reading.put("dtype", reading.one("_wide"))
    reading.model_name = reading.one("_name")
    if any(key.startswith("fsdp_config.") for key in reading.keys):
        fields = {
            name: reading.one(f"fsdp.{name}")
            for name in ("sharding", "mixed_precision", "shard_degree", "replicate_degree")
            if reading.has(f"fsdp.{name}")
        }
        common.fsdp(reading, fields)
    else:
        reading.defaults["zero_stage"] = 0
    common.offload(reading)
    common.batching(reading)
    hidden, ratio = reading.one("model.hidden_size"), reading.one("_ratio")
    if hidden and ratio and not reading.has("model.ffn_hidden_size"):
        reading.say("model.ffn_hidden_size", int(hidden * ratio), "expansion_ratio")
    if reading.has("model.hidden_size"):
        gated = "glu" in str(reading.one("_ffn", "mptmlp"))
        reading.say("model.activation", "geglu" if gated else "gelu (not gated)", "ffn_type")
        reading.say(
            "model.norm", "rmsnorm" if "rms" in str(reading.one("_norm", "")) else "layernorm", "norm_type"
        )
        reading.defaults["attention"] = "flash"
        if (
            reading.one("_learned", True)
            and not reading.one("_alibi")
            and not reading.one("_rope")
            and reading.has("_positions")
        ):
            reading.say("model.learned_positions", reading.one("_positions"), "max_seq_len")
    if reading.has("_peft"):
        common.adapter(reading, "qlora" if reading.one("_four_bit") else "lora", 8)  # of PEFT's LoraConfig


LLM_FOUNDRY = Dialect(
    name="llm-foundry",
    framework="llm-foundry",
    rows=ROWS,
    rules=rules,
    write=said_trainers.llm_foundry,
    defaults={
        **UNSPLIT,
        "zero_stage": 3,
        "dtype": "bf16",
        "recompute": "none",
        "offload": [],
    },
    layout="yaml",
    reads=frozenset({"yaml", "json", "args"}),
    software="fsdp1",
)

"""LLM Foundry's YAML (Composer's FSDP)."""

from __future__ import annotations

from costmodel.interop.launchers import common, says
from costmodel.interop.launchers import values as unit
from costmodel.interop.launchers.table import ABOVE_ONE, OWN, Dialect, FlagRow, LaunchReading

PRECISIONS = {
    "amp_bf16": "bf16", "amp_fp16": "fp16", "fp32": "fp32", "amp_fp8": "fp8", "bf16": "bf16", "fp16": "fp16", "amp": "fp16",
    "amp_bf8": "fp8", "inductor": "bf16",
}  # fmt: skip
MODELS = "mpt_", "mosaic_gpt", "hf_"
"""How its own models begin (mosaicml/llm-foundry llmfoundry/models/__init__.py); those of forks have other shapes."""
STRATEGIES = {"3": "FULL_SHARD", "2": "SHARD_GRAD_OP", "0": "NO_SHARD", "None": "NO_SHARD"}
"""Of FSDP, by the stage of ZeRO that it amounts to."""
OPTIMIZERS = {"adam": "decoupled_adamw", "sgd-momentum": "decoupled_lionw"}


def sequences(raw: object) -> object:
    """A batch in sequences; Composer also takes shares of one."""
    value = unit.number(raw)
    if isinstance(value, float) and value < 1:
        raise unit.Expected("a whole number from 1, or auto")
    return unit.count(raw)


ROWS = (
    FlagRow("max_seq_len", "seq_len", unit.count, says=OWN),
    FlagRow("model.name", "_kind", unit.word, says=says.fixed("hf_causal_lm")),
    FlagRow("model.pretrained_model_name_or_path", "_name", unit.word, says=OWN),
    FlagRow("model.use_flash_attention_2", "attention", unit.yields("flash"), False, says=OWN),
    FlagRow("global_train_batch_size", "global_batch", unit.count, says=OWN),
    FlagRow("device_train_microbatch_size", "micro_batch", sequences, "auto", says=OWN),
    FlagRow("precision", "_wide", unit.one_of(PRECISIONS), "amp_bf16", says="dtype"),
    FlagRow("optimizer.name", "optimizer", unit.word, says=says.mapped("optimizer", OPTIMIZERS)),
    FlagRow("fsdp_config.sharding_strategy", "fsdp.sharding", unit.word, "FULL_SHARD",
            says=says.mapped("zero_stage", STRATEGIES)),
    FlagRow("fsdp_config.mixed_precision", "fsdp.mixed_precision", unit.word, "DEFAULT", says=says.fixed("PURE")),
    FlagRow("fsdp_config.activation_checkpointing", "recompute", unit.yields("full", "none"), False, says=OWN),
    FlagRow("fsdp_config.activation_cpu_offload", "_offload_activations", unit.flag, False, says=OWN),
    FlagRow("tp_config.tensor_parallel_degree", "tensor_parallel", unit.count, 1, "from 0.11", says=ABOVE_ONE),
    FlagRow("train_loader.dataset.packing_ratio", "_packing", unit.present),
    FlagRow("fsdp_config.cpu_offload", "_offload_fsdp", unit.flag, False),
    FlagRow("fsdp_config.data_parallel_shard_degree", "fsdp.shard_degree", unit.count, -1),
    FlagRow("fsdp_config.data_parallel_replicate_degree", "fsdp.replicate_degree", unit.count, 1),
    FlagRow("model.n_layers", "model.num_layers", unit.count),
    FlagRow("model.d_model", "model.hidden_size", unit.count),
    FlagRow("model.n_heads", "model.num_heads", unit.count),
    FlagRow("model.expansion_ratio", "_ratio", unit.number, 4),
    FlagRow("model.ffn_config.ffn_hidden_size", "model.ffn_hidden_size", unit.count),
    FlagRow("model.vocab_size", "model.vocab_size", unit.count),
    FlagRow("model.attn_config.kv_n_heads", "model.num_kv_heads", unit.count),
    FlagRow("model.tie_word_embeddings", "model.tied_embeddings", unit.flag, True),
    FlagRow("model.attn_config.attn_impl model.config_overrides.attn_config.attn_impl", "attention", unit.attention, "flash"),
    FlagRow("model.attn_impl", "attention", unit.attention, None, "to 0.2"),
    FlagRow("model.no_bias", "model.bias", unit.yields(False, True), False),
    FlagRow("model.ffn_config.ffn_type", "_ffn", unit.word, "mptmlp"),
    FlagRow("model.norm_type", "_norm", unit.word, "low_precision_layernorm"),
    FlagRow("model.ffn_config.moe_num_experts", "model.num_experts", unit.count),
    FlagRow("model.ffn_config.moe_top_k", "model.top_k", unit.count),
    FlagRow("model.ffn_config.moe_world_size", "expert_parallel", unit.count, 1),
    FlagRow("model.attn_config.alibi", "_alibi", unit.flag, False),
    FlagRow("model.attn_config.rope", "_rope", unit.flag, False),
    FlagRow("model.learned_pos_emb", "_learned", unit.flag, True),
    FlagRow("model.max_seq_len", "_positions", unit.count),
    FlagRow("model.peft_config.peft_type", "_peft", unit.word),
    FlagRow("model.peft_config.r", "_rank", unit.count),
    FlagRow("model.peft_config.target_modules", "_targets", unit.listed),
    FlagRow("model.load_in_4bit", "_four_bit", unit.flag, False),
    FlagRow("compute.gpus", "_gpus", unit.count, None, "MosaicML's platform"),
    FlagRow("model.attn_config.sliding_window_size", "model.window", unit.degree, -1),
)


def rules(reading: LaunchReading) -> None:
    """FSDP, and MPT's shape."""
    reading.put("dtype", reading.one("_wide"))
    kind = str(reading.one("_kind") or MODELS[0])
    reading.model_name = reading.one("_name") or (None if kind.startswith(MODELS) else kind)
    if any(key.startswith("fsdp_config.") for key in reading.keys):
        named = "sharding", "mixed_precision", "shard_degree", "replicate_degree"
        common.fsdp(reading, common.stated_fsdp(reading, *named))
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
        reading.say("model.norm", "rmsnorm" if "rms" in str(reading.one("_norm", "")) else "layernorm", "norm_type")
        reading.defaults["attention"] = "flash"
        elsewhere = reading.one("_alibi") or reading.one("_rope")
        if reading.one("_learned", True) and not elsewhere and reading.has("_positions"):
            reading.say("model.learned_positions", reading.one("_positions"), "max_seq_len")
    if reading.has("_peft"):
        common.adapter(reading, "qlora" if reading.one("_four_bit") else "lora", 8)  # of PEFT's LoraConfig


LLM_FOUNDRY = Dialect("llm-foundry", ROWS, rules)

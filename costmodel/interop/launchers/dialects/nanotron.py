"""nanotron's YAML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costmodel.interop.launchers.dialects import said_trainers
from costmodel.interop.launchers.table import UNSPLIT, Dialect, Row, words
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
    from costmodel.interop.launchers.table import Reading

SOURCE = "huggingface/nanotron src/nanotron/config/@2411b022"
SHAPE = "model.model_config."
ROWS = (
    Row("parallelism.tp", "tensor_parallel", count),
    Row("parallelism.pp", "pipeline_parallel", count),
    Row("parallelism.dp", "data_parallel", count),
    Row("parallelism.context_parallel_size", "context_parallel", count, 1, "from 2025"),
    Row("parallelism.expert_parallel_size", "expert_parallel", count, 1),
    Row("parallelism.pp_engine", "_engine", one_of({"1f1b": "1f1b", "afab": "gpipe"}), "afab"),
    Row(
        "parallelism.tp_mode",
        "sequence_parallel",
        one_of({"reduce_scatter": True, "all_reduce": False}),
        "ALL_REDUCE",
    ),
    Row("parallelism.tp_linear_async_communication", "overlap_tensor", flag, False),
    Row("parallelism.recompute_layer", "recompute", yields("full", "none"), False, "from 2024"),
    Row(
        "parallelism.recompute_granularity",
        "recompute",
        one_of({"full": "full", "selective": "selective"}),
        None,
        "to 2023",
    ),
    Row("optimizer.zero_stage", "zero_stage", whole),
    Row("optimizer.accumulate_grad_in_fp32", "gradient_bytes", yields(4, 2)),
    Row("optimizer.optimizer_factory.name", "optimizer", word, "adamW"),
    Row("tokens.micro_batch_size", "micro_batch", count),
    Row("tokens.sequence_length", "seq_len", count),
    Row("tokens.batch_accumulation_per_replica", "gradient_accumulation", count),
    Row("model.dtype", "_wide", one_of(DTYPES)),
    Row(SHAPE + "_attn_implementation", "attention", attention, "flash_attention_2"),
    Row(SHAPE + "num_hidden_layers", "model.num_layers", count),
    Row(SHAPE + "hidden_size", "model.hidden_size", count),
    Row(SHAPE + "intermediate_size", "model.ffn_hidden_size", count),
    Row(SHAPE + "num_attention_heads", "model.num_heads", count),
    Row(SHAPE + "num_key_value_heads " + SHAPE + "num_kv_heads", "model.num_kv_heads", count),
    Row(SHAPE + "head_dim", "model.head_dim", count),
    Row(SHAPE + "vocab_size", "model.vocab_size", count),
    Row(SHAPE + "tie_word_embeddings", "model.tied_embeddings", flag, False),
    Row(SHAPE + "attention_bias", "model.qkv_bias", flag, False),
    Row(SHAPE + "sliding_window_size", "model.window", count),
    Row(SHAPE + "moe_config.num_experts " + SHAPE + "moe_num_experts", "model.num_experts", count),
    Row(SHAPE + "moe_config.top_k " + SHAPE + "num_experts_per_tok", "model.top_k", count),
    Row(SHAPE + "moe_config.moe_intermediate_size", "model.moe_ffn_hidden_size", count),
    Row(SHAPE + "moe_config.shared_expert_intermediate_size", "_shared", count),
    Row(SHAPE + "moe_config.enable_shared_expert", "_has_shared", flag, False),
    Row(SHAPE + "is_mamba_config", "_mamba", present),
    Row(SHAPE + "d_model", "model.hidden_size", count),
    Row(SHAPE + "is_starcoder2_config", "_starcoder", flag),
    Row(SHAPE + "moe_capacity_factor", "_capacity", word),
)


def rules(reading: Reading) -> None:
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
    source=SOURCE,
    rows=ROWS,
    unpriced=words(
        """
        parallelism.tp_recompute_allgather parallelism.moe_layer_recompute model.ddp_bucket_cap_mb
        model.model_config._fused_* model.model_config._use_* model.model_config.ring_attn_heads_k_stride
        model.model_config.flex_attention_mask data_stages model.model_config.z_loss_* model.model_config.moe_config.*
        model.model_config.ssm_cfg.* optimizer.optimizer_factory.torch_adam_is_fused optimizer.torch_adam_is_fused
        model.model_config.embd_pdrop model.model_config.attn_pdrop model.model_config.resid_pdrop
        """
    ),
    irrelevant=words(
        """
        checkpoints.* data_stages.* general.* logging.* lighteval lighteval.* profiler profiler.* s3_upload s3_upload.*
        tokenizer.* metrics_logging metrics_logging.* tokens.* optimizer.* model.init_method.*
        model.make_vocab_size_divisible_by doremi.* data.* model.model_config.* experiment_logger* infini_attention.*
        slurm.* bench*
        """
    ),
    signature=words(
        """
        parallelism.tp parallelism.dp parallelism.pp tokens.micro_batch_size tokens.batch_accumulation_per_replica
        model.model_config.hidden_size general.* checkpoints.*
        """
    ),
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

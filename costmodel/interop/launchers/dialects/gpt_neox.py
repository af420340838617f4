"""GPT-NeoX's YAML: Megatron's names, DeepSpeed's sections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costmodel.interop.launchers import common
from costmodel.interop.launchers.dialects import deepspeed, said_megatron
from costmodel.interop.launchers.settle import schedule_of
from costmodel.interop.launchers.table import UNSPLIT, Dialect, FlagRow
from costmodel.interop.launchers.values import (
    DTYPES,
    anything,
    count,
    flag,
    number,
    one_of,
    whole,
    word,
    yields,
)

if TYPE_CHECKING:
    from costmodel.interop.launchers.table import LaunchReading

GATED = ("swiglu", "geglu", "reglu", "bilinear", "glu")
ROWS = (
    FlagRow("pipe_parallel_size", "_pipeline", whole, 0),
    FlagRow("model_parallel_size", "tensor_parallel", count, 1),
    FlagRow("sequence_parallel", "sequence_parallel", flag, False, "from 2024"),
    FlagRow("context_parallel_size", "context_parallel", count, 1, "from 2025"),
    FlagRow("num_layers", "model.num_layers", count),
    FlagRow("hidden_size", "model.hidden_size", count),
    FlagRow("num_attention_heads", "_heads", count),
    FlagRow("num_kv_heads", "model.num_kv_heads", count),
    FlagRow("intermediate_size", "_intermediate", count),
    FlagRow("mlp_multiple_of", "_multiple", count, 1),
    FlagRow("activation", "_activation", word, "gelu"),
    FlagRow("expansion_factor", "_factor", number, 4),
    FlagRow("no_weight_tying", "model.tied_embeddings", yields(False, True), False),
    FlagRow("seq_length", "seq_len", count),
    FlagRow("max_position_embeddings", "_positions", count),
    FlagRow("pos_emb", "_embedding", word, "learned"),
    FlagRow("norm", "_norm", word, "layernorm"),
    FlagRow("gpt_j_residual", "model.parallel_block", flag, False),
    FlagRow("use_bias_in_attn_linear", "model.bias", flag, True),
    FlagRow("use_qk_layernorm", "model.qk_norm", flag, False),
    FlagRow("sliding_window_width", "model.window", count),
    FlagRow("moe_num_experts", "_experts", count, 1),
    FlagRow("moe_top_k", "_topk", count, 1),
    FlagRow("moe_expert_parallel_size", "expert_parallel", count, 1),
    FlagRow("attention_config", "_attention", anything),
    FlagRow("attention_type", "_kind", word),
    FlagRow("train_batch_size", "global_batch", count),
    FlagRow("train_micro_batch_size_per_gpu batch_size", "micro_batch", count),
    FlagRow("gradient_accumulation_steps gas", "gradient_accumulation", count, 1),
    FlagRow("zero_optimization.stage zero_stage", "zero_stage", whole, 0),
    FlagRow("zero_optimization.cpu_offload", "_offload_optimizer", flag, False),
    FlagRow("zero_optimization.offload_optimizer.device", "_device_optimizer", deepspeed.device, "none"),
    FlagRow("zero_optimization.offload_param.device", "_device_parameters", deepspeed.device, "none"),
    FlagRow("zero_optimization.overlap_comm", "_overlap", flag),
    FlagRow("fp16.enabled", "_fp16", flag, False),
    FlagRow("fp16.type", "_type", word),
    FlagRow("bf16.enabled", "_bf16", flag, False),
    FlagRow("precision", "_precision", one_of(DTYPES)),
    FlagRow("te_fp8_format", "_fp8", word),
    FlagRow("data_types.grad_accum_dtype", "gradient_bytes", one_of({"fp32": 4, "bf16": 2, "fp16": 2})),
    FlagRow("checkpoint_activations", "recompute", yields("full", "none"), False),
    FlagRow("optimizer.type optimizer_type", "optimizer", word),
    FlagRow("use_flashattn_swiglu", "_flash_swiglu", flag),
    FlagRow("global_num_gpus world_size", "_gpus", count),
    FlagRow("num_gpus", "_per_node", count),
    FlagRow("num_nodes", "_nodes", count),
    FlagRow("hidden_dropout attention_dropout", "_dropout", number, 0),
    FlagRow("te_layernorm_mlp te_columnparallel te_rowparallel te_mha", "_te", yields(True)),
    FlagRow("dpo_fp32", "_dpo", flag),
)


def rules(reading: LaunchReading) -> None:
    """Stages, shape and sections."""
    stages = reading.one("_pipeline")
    if stages is not None:
        reading.put("pipeline_parallel", max(stages, 1), derived=stages == 0)
    _shape(reading)
    common.devices(reading)
    common.offload(reading)
    wide = "fp16" if reading.one("_fp16") else "bf16" if reading.one("_bf16") else reading.one("_precision")
    if reading.one("_fp16") and (reading.one("_type") or "").startswith("bf"):
        wide = "bf16"
    if reading.one("_fp16") and reading.one("_bf16"):
        reading.conflict("fp16.enabled and bf16.enabled, both true")
        wide = None
    reading.put("dtype", "fp8" if reading.one("_fp8") and reading.one("_te") else wide)
    reading.put("overlap_gradients", reading.one("_overlap"))
    schedule_of(reading)


def kinds(raw: object) -> list[str]:
    """The kinds of attention layers that an ``attention_config`` names."""
    if isinstance(raw, str):
        return [raw]
    return [kind for one in raw for kind in kinds(one)] if isinstance(raw, list) else []


def _shape(reading: LaunchReading) -> None:
    named = {name.lower() for name in kinds(reading.one("_attention"))}
    if named and named <= {"mamba", "rwkv"}:
        reading.say("model.kind", named.pop(), "attention_config")
        reading.put("attention", None)
    else:
        if reading.has("_heads"):
            reading.say("model.num_heads", reading.one("_heads"), reading.said["_heads"][0].shown)
        if named == {"flash"}:
            reading.put("attention", "flash")
        elif named - {"flash", "global"}:
            reading.unpriced.append("attention_config")
    gated = str(reading.one("_activation", "gelu")).lower() in GATED
    width, multiple = reading.one("_intermediate"), reading.one("_multiple") or 1
    if width and not reading.has("model.kind"):
        if gated:
            width = int(width * 2 / 3)
            width = -(-width // (2 * multiple)) * multiple
        reading.say("model.ffn_hidden_size", width, "intermediate_size")
    if reading.has("_activation"):
        reading.say(
            "model.activation",
            str(reading.one("_activation")) + ("" if gated else " (not gated)"),
            "activation",
        )
    norm = str(reading.one("_norm", "layernorm"))
    reading.say("model.norm", "rmsnorm" if "rms" in norm else "layernorm", "norm")
    if (reading.one("_experts") or 1) > 1:
        reading.say("model.num_experts", reading.one("_experts"), "moe_num_experts")
        if reading.has("_topk"):
            reading.say("model.top_k", reading.one("_topk"), "moe_top_k")
    if (
        str(reading.one("_embedding", "learned")) == "learned"
        and reading.has("_positions")
        and reading.has("_embedding")
    ):
        reading.say("model.learned_positions", reading.one("_positions"), "max_position_embeddings")


GPT_NEOX = Dialect(
    name="gpt-neox",
    framework="gpt-neox",
    rows=ROWS,
    rules=rules,
    write=said_megatron.gpt_neox,
    defaults={
        **UNSPLIT,
        "zero_stage": 0,
        "dtype": "fp16",
        "recompute": "none",
        "optimizer": "adam",
        "offload": [],
        "schedule": "1f1b",
        "attention": "unfused",
        "gradient_accumulation": 1,
    },
    layout="yaml",
    software="megatron-deepspeed",
    dashes=True,
)

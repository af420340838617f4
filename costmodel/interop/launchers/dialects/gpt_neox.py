"""GPT-NeoX's YAML: Megatron's names, DeepSpeed's sections."""

from __future__ import annotations

from costmodel.interop.launchers import common, says
from costmodel.interop.launchers import values as unit
from costmodel.interop.launchers.dialects import deepspeed
from costmodel.interop.launchers.settle import schedule_of
from costmodel.interop.launchers.table import ABOVE_ONE, OWN, Dialect, FlagRow, LaunchReading, pick

GATED = "swiglu", "geglu", "reglu", "bilinear", "glu"
GATED_KINDS = "llama", "gated"
"""Kinds of MLP with a gate, whatever the activation: EleutherAI/gpt-neox@299b68cd megatron/model/transformer.py
``LLaMAParallelMLP``, until September 2024, and Stability-AI/StableLM@93eea08 configs/."""
ROWS = (
    FlagRow("pipe_parallel_size", "_pipeline", unit.whole, 0, says="pipeline_parallel"),
    FlagRow("model_parallel_size", "tensor_parallel", unit.count, 1, says=OWN),
    FlagRow("context_parallel_size", "context_parallel", unit.count, 1, "from 2025", says=ABOVE_ONE),
    FlagRow("sequence_parallel", "sequence_parallel", unit.flag, False, "from 2024", says=says.where_true("sequence_parallel")),
    FlagRow("num_layers", "model.num_layers", unit.count, says=OWN),
    FlagRow("hidden_size", "model.hidden_size", unit.count, says=OWN),
    FlagRow("num_attention_heads", "_heads", unit.count, says="model.num_heads"),
    FlagRow("num_kv_heads", "model.num_kv_heads", unit.count, says=OWN, when=says.groups_queries),
    FlagRow("intermediate_size", "_intermediate", unit.count,
            says=lambda w: w.stated("model.ffn_hidden_size") * (3 if w.model.gated else 1)),
    FlagRow("mlp_multiple_of", "_multiple", unit.count, 1),
    FlagRow("activation", "_activation", unit.word, "gelu", says=lambda w: "swiglu" if w.model.gated else "gelu"),
    FlagRow("mlp_type", "_mlp", unit.word, "regular", "to 2024"),
    FlagRow("expansion_factor", "_factor", unit.number, 4),
    FlagRow("norm", "_norm", unit.word, "layernorm", says="model.norm"),
    FlagRow("no_weight_tying", "model.tied_embeddings", unit.yields(False, True), False, says=OWN),
    FlagRow("use_bias_in_attn_linear", "model.bias", unit.flag, True, says=lambda w: w.model.attention_bias),
    FlagRow("pos_emb", "_embedding", unit.word, "learned", says=lambda w: "learned" if w.model.learned_positions else "rotary"),
    FlagRow("seq_length", "seq_len", unit.count, says=OWN),
    FlagRow("max_position_embeddings", "_positions", unit.count, says=lambda w: w.model.learned_positions or w.plan.seq_len),
    FlagRow("gpt_j_residual", "model.parallel_block", unit.flag, False),
    FlagRow("use_qk_layernorm", "model.qk_norm", unit.flag, False),
    FlagRow("sliding_window_width", "model.window", unit.count),
    FlagRow("attention_config", "_attention", unit.anything,
            says=lambda w: [[["flash" if w.plan.attention == "flash" else "global"], w.model.layers]]),
    FlagRow("attention_type", "_kind", unit.word),
    FlagRow("moe_num_experts", "_experts", unit.count, 1, says="model.num_experts"),
    FlagRow("moe_top_k", "_topk", unit.count, 1, says="model.top_k"),
    FlagRow("moe_expert_parallel_size", "expert_parallel", unit.count, 1, says=OWN, when=says.has_experts),
    FlagRow("train_batch_size", "global_batch", unit.count, says=OWN),
    FlagRow("train_micro_batch_size_per_gpu batch_size", "micro_batch", unit.count, says=OWN),
    FlagRow("gradient_accumulation_steps gas", "gradient_accumulation", unit.count, 1, says=OWN),
    FlagRow("zero_optimization.stage zero_stage", "zero_stage", unit.whole, 0, says=OWN),
    *pick(deepspeed.ROWS, ["zero_optimization.overlap_comm"]),
    FlagRow("zero_optimization.cpu_offload", "_offload_optimizer", unit.flag, False, says=says.where_true("_offload_optimizer")),
    FlagRow("zero_optimization.offload_optimizer.device", "_device_optimizer", deepspeed.device, "none"),
    FlagRow("zero_optimization.offload_param.device", "_device_parameters", deepspeed.device, "none"),
    FlagRow("optimizer.type optimizer_type", "optimizer", unit.word,
            says=lambda w: "Adam" if w.plan.optimizer in (None, "adam") else w.plan.optimizer),
    FlagRow("fp16.enabled", "_fp16", unit.flag, False),
    FlagRow("fp16.type", "_type", unit.word),
    FlagRow("bf16.enabled", "_bf16", unit.flag, False),
    FlagRow("precision", "_precision", unit.one_of(unit.DTYPES),
            says=says.mapped("dtype", {"bf16": "bfloat16", "fp16": "fp16", "fp32": "fp32"})),
    FlagRow("te_fp8_format", "_fp8", unit.word),
    FlagRow("data_types.grad_accum_dtype", "gradient_bytes", unit.one_of({"fp32": 4, "bf16": 2, "fp16": 2})),
    FlagRow("checkpoint_activations", "recompute", unit.yields("full", "none"), False, says=OWN),
    FlagRow("global_num_gpus world_size", "_gpus", unit.count),
    FlagRow("num_gpus", "_per_node", unit.count),
    FlagRow("num_nodes", "_nodes", unit.count),
    FlagRow("hidden_dropout attention_dropout", "_dropout", unit.number, 0),
    FlagRow("te_layernorm_mlp te_columnparallel te_rowparallel te_mha", "_te", unit.yields(True)),
    FlagRow("train_impl", "_method", unit.word, "normal"),
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
    deepspeed.overlap(reading)
    common.preferences(reading, reading.one("_method"))
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
    kind = str(reading.one("_mlp", "regular")).lower()
    gated = str(reading.one("_activation", "gelu")).lower() in GATED or kind in GATED_KINDS
    by_factor = int((reading.one("_factor") or 0) * (reading.one("model.hidden_size") or 0))
    width, multiple = reading.one("_intermediate") or by_factor, reading.one("_multiple") or 1
    if kind in GATED_KINDS:
        multiple, width = reading.one("_multiple") or 256, width or 4 * (reading.one("model.hidden_size") or 0)
    if width and not reading.has("model.kind"):
        if gated:
            width = int(width * 2 / 3)
            width = -(-width // multiple) * multiple if kind in GATED_KINDS else -(-width // (2 * multiple)) * multiple
        reading.say("model.ffn_hidden_size", width, "intermediate_size")
    if reading.has("_activation"):
        reading.say("model.activation", str(reading.one("_activation")) + ("" if gated else " (not gated)"), "activation")
    norm = str(reading.one("_norm", "layernorm"))
    reading.say("model.norm", "rmsnorm" if "rms" in norm else "layernorm", "norm")
    if (reading.one("_experts") or 1) > 1:
        reading.say("model.num_experts", reading.one("_experts"), "moe_num_experts")
        if reading.has("_topk"):
            reading.say("model.top_k", reading.one("_topk"), "moe_top_k")
    if str(reading.one("_embedding", "learned")) == "learned" and reading.has("_positions") and reading.has("_embedding"):
        reading.say("model.learned_positions", reading.one("_positions"), "max_position_embeddings")


GPT_NEOX = Dialect("gpt-neox", ROWS, rules)

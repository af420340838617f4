"""Megatron-LM and Megatron-Core arguments, and ms-swift's and Pai-Megatron-Patch's over them."""

from __future__ import annotations

import itertools
import re

from costmodel.catalogue.software import load_framework
from costmodel.description.graphs import FULL_ITERATION, ITERATION, OF_MEGATRON, WHOLE, of_scopes
from costmodel.description.mixtures import expert_layout
from costmodel.description.plan import NARROW_CORES
from costmodel.description.recomputation import modules_of, recomputation
from costmodel.description.transformer import Transformer
from costmodel.interop.launchers import common, says
from costmodel.interop.launchers import values as unit
from costmodel.interop.launchers.settle import schedule_of
from costmodel.interop.launchers.table import ABOVE_ONE, OWN, Dialect, FlagRow, LaunchReading, Writing, words

SHARDING = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
RECIPES = {"mxfp8": "mxfp8", "delayed": "fp8", "tensorwise": "fp8", "blockwise": "fp8", "custom": "fp8"}
FORMATS = {"e4m3": "fp8", "hybrid": "fp8", "none": unit.UNSTATED, "true": "fp8", "false": unit.UNSTATED}
SWIFT = words("split_dataset_ratio load_from_cache_file save_safetensors dataset_num_proc tuner_type train_type num_train_epochs")
"""Flags that ms-swift alone has."""
APART = "unfused-softmax"
"""Attention whose mask, scale and softmax are a kernel each: NVIDIA/Megatron-LM@d98e8a64dd megatron/core/fusions/fused_softmax.py
``FusedScaleMaskSoftmax``, unless ``masked_softmax_fusion``."""
KERNELS = {"flash": "flash", "fused": "fused", "unfused": "unfused", "local": "unfused", "auto": "auto"}
FUSED = {"native": "vocab-parallel-compiled", "te": "fused"}
"""Losses that ``--cross-entropy-loss-fusion`` means."""
MODULES = {
    "core_attn": "attention-core", "layernorm": "norms", "mla_up_proj": "latent-projections", "mlp": "mlp", "moe": "experts",
    "shared_experts": "shared-experts", "moe_act": "expert-activation",
}  # fmt: skip
"""What a plan calls the modules of ``--recompute-modules``."""
COMMUNICATIONS = {"p2p": "ring", "all_gather": "all-gather", "a2a": "all-to-all"}
"""What a plan calls what context ranks exchange, by ``--cp-comm-type``."""
WIDE = {"bf16": "bf16", "fp16": "fp16", "fp8": "bf16", "fp8-block": "bf16", "mxfp8": "bf16", "nvfp4": "bf16"}
"""Dtype of weights beside that of products."""
LONG = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
DEGREES_OF_RECOMPUTE = {"full": "full", "selective": "selective", "none": "none"}
METHODS = {"uniform": "full", "block": "full"}
GRAPHS = {"none": False, "local": True, "transformer_engine": True, FULL_ITERATION: ITERATION}
DISPATCHERS = {"alltoall": "all-to-all", "flex": "deduplicated", "allgather": unit.UNSTATED}
"""Ways of tokens to experts; Megatron's own default gathers all tokens on every rank."""
NORMS = {"RMSNorm": "rmsnorm", "LayerNorm": "layernorm", "LayerNorm1p": "layernorm"}
ORDER = "tensor", "context", "pipeline", "data"
"""Of ranks, with ``--use-tp-pp-dp-mapping``."""


def pattern(raw: object) -> object:
    """Layers without experts, of ``--moe-layer-freq``: a list such as ``[0]*3+[1]*58``, or every n-th has them."""
    text = "".join(map(str, raw)) if isinstance(raw, list) and all(isinstance(one, str) for one in raw) else str(raw)
    text = re.sub(r"[\s'\"()]", "", text)
    if re.fullmatch(r"\d{1,4}", text):
        return int(text)
    layers: list[int] = []
    for term in text.split("+"):
        match = re.fullmatch(r"\[([01](?:,[01])*)\](?:\*(\d{1,4}))?", term)
        if match is None:
            raise unit.Expected("a whole number, or a list such as [0]*3+[1]*58")
        layers += [int(one) for one in match[1].split(",")] * int(match[2] or 1)
    return layers


def stages(raw: object) -> object:
    """Chunks of all pipeline ranks together, of ``--pipeline-model-parallel-layout``."""
    if raw is None:
        return unit.UNSTATED
    if isinstance(raw, list):
        return len(raw)
    text = str(raw).replace(",", "")
    for _ in range(50):
        wider = re.sub(r"\(([^()]*)\)(?:\*(\d{1,4}))?", lambda match: match[1] * int(match[2] or 1), text, count=1)
        if wider == text or len(wider) > 100_000:
            break
        text = wider
    return text.strip("|").count("|") + 1


def window(raw: object) -> object:
    """Tokens that a windowed layer looks back."""
    if raw is None:
        return unit.UNSTATED
    match = re.match(r"\(?\s*(-?\d{1,9})", str(raw[0] if isinstance(raw, list) else raw))
    if match is None:
        raise unit.Expected("two whole numbers, such as 127,0")
    return int(match[1]) if int(match[1]) > 0 else unit.UNSTATED


# What is written of a plan


def cp_comm(w: Writing) -> str | None:
    """What context ranks exchange, if it isn't Megatron's default."""
    words = {ours: theirs for theirs, ours in COMMUNICATIONS.items()}
    ring = w.plan.context_parallel == 1 or w.plan.context_communication == "ring"
    return None if ring else words[str(w.plan.context_communication)]


def granularity(w: Writing) -> str | None:
    """Whether everything is computed again, or some modules, or nothing."""
    if w.plan.recompute == "none":
        return None
    return "selective" if modules_of(w.plan.recompute) else "full"


def named_modules(w: Writing) -> list[str] | None:
    """The modules that are computed again, where they aren't Megatron's own choice."""
    if w.plan.recompute == "selective":
        return None
    named = {ours: theirs for theirs, ours in MODULES.items()}
    return [named[module] for module in modules_of(w.plan.recompute) if module in named] or None


def method(w: Writing) -> str | None:
    """Of each stage all layers, or a block of them."""
    return {"full": "uniform"}.get(str(w.plan.recompute), "block") if granularity(w) == "full" else None


def recomputed_layers(w: Writing) -> int | None:
    """Layers of each stage that are computed again."""
    if granularity(w) != "full":
        return None
    if isinstance(w.plan.recompute, str):
        return 1
    stage = -(-w.model.layers // (w.plan.pipeline_parallel * w.plan.virtual_stages))
    return max(1, round(stage * min(w.plan.recompute, 1.0 / w.plan.recompute)))


def graph_kind(w: Writing) -> str | None:
    """Whose CUDA graphs hold a step."""
    if w.plan.graph_modules == ITERATION:
        return FULL_ITERATION
    return ("transformer_engine" if w.plan.graph_modules else "local") if w.plan.cuda_graphs else None


def graph_scopes(w: Writing) -> list[str] | None:
    """The modules that CUDA graphs hold, where they hold some of a layer."""
    held = (w.plan.graph_modules or "").split("+")
    return [scope for scope, module in OF_MEGATRON.items() if module in held] or None


def layer_pattern(model: Transformer) -> str:
    """Which layers have experts, in the words of ``--moe-layer-freq``: a list in which runs of equal entries are products.

    Examples
    --------
    >>> from costmodel import load_model
    >>> layer_pattern(load_model("deepseek-v3")), layer_pattern(load_model("llama4-maverick"))
    ('[0]*3+[1]*58', '[0,1]*24')
    """
    has = [int(model.has_experts(layer)) for layer in range(model.layers)]
    step = model.expert_layer_step
    if step > 1 and has == has[:step] * (model.layers // step):
        return f"{has[:step]}*{model.layers // step}".replace(" ", "")
    return "+".join(f"[{entry}]*{len(list(run))}" for entry, run in itertools.groupby(has))


def latent(w: Writing) -> bool:
    """Whether attention is of latents."""
    return w.model.latent


def sharded(w: Writing) -> bool:
    """Whether more than the optimizer's states are shared out."""
    return (w.plan.zero_stage or 0) > 1


MODEL_ROWS = (
    FlagRow("num_layers encoder_num_layers decoder_num_layers", "model.num_layers", unit.count, says=OWN),
    FlagRow("hidden_size", "model.hidden_size", unit.count, says=OWN),
    FlagRow("num_attention_heads", "model.num_heads", unit.count, says=OWN),
    FlagRow("kv_channels", "model.head_dim", unit.count, "hidden_size / num_attention_heads", says=OWN),
    FlagRow("tokenizer_model", "model.tokenizer", unit.word),
    FlagRow("vocab_size padded_vocab_size", "model.vocab_size", unit.count, says=OWN),
    FlagRow("ffn_hidden_size", "model.ffn_hidden_size", unit.count, "4 x hidden_size, 8/3 with --swiglu", says=OWN),
    FlagRow("group_query_attention", "_grouped", unit.flag, False, "from core 0.3", says.groups_queries),
    FlagRow("num_query_groups num_key_value_heads", "_groups", unit.count, 1, says="model.num_kv_heads",
            when=says.groups_queries),
    FlagRow("position_embedding_type", "_positions", unit.word, "learned_absolute",
            says=lambda w: None if w.model.learned_positions else "rope"),
    FlagRow("use_rotary_position_embeddings", "_positions", unit.yields("rope"), None, "to core 0.8"),
    FlagRow("max_position_embeddings", "_max_positions", unit.count, says=lambda w: w.model.learned_positions or w.plan.seq_len),
    FlagRow("normalization", "model.norm", unit.one_of(NORMS), "LayerNorm", says=OWN),
    FlagRow("swiglu", "_activation", unit.yields("swiglu"), says=lambda w: w.model.gated and not w.model.clamped_activation),
    FlagRow("quick_geglu", "_activation", unit.yields("quick_geglu"), says=says.clamps),
    says.alone("glu_linear_offset", says.fixed(1.0), says.clamps),  # as gpt-oss has it
    FlagRow("activation_func_clamp_value", "_clamp", unit.number, says=says.fixed(7.0), when=says.clamps),
    FlagRow("squared_relu", "_activation", unit.yields("squared_relu (not gated)")),
    FlagRow("xielu", "_activation", unit.yields("xielu (not gated)"), None, "swiss-ai fork"),
    FlagRow("openai_gelu", "_activation", unit.yields("gelu (not gated)")),
    FlagRow("disable_bias_linear", "model.bias", unit.yields(False, True), True, says="model.feed_forward_bias"),
    FlagRow("add_qkv_bias", "model.qkv_bias", unit.flag, False,
            says=lambda w: w.model.attention_bias and not w.model.feed_forward_bias),
    FlagRow("untie_embeddings_and_output_weights", "model.tied_embeddings", unit.yields(False, True), True, says=OWN),
    FlagRow("qk_layernorm", "model.qk_norm", unit.flag, False, says=lambda w: w.model.qk_norm != "none"),
    FlagRow("embed_layernorm", "model.embedding_norm", unit.flag, False),
    FlagRow("hidden_dropout", "_dropout", unit.number, 0.1, says=OWN),
    FlagRow("attention_dropout", "_dropout", unit.number, 0.1, says=OWN),
    FlagRow("num_experts num_moe_experts", "_experts", unit.anything, says="model.num_experts"),
    FlagRow("moe_router_topk", "_topk", unit.count, 2, "from core 0.5", "model.top_k"),
    FlagRow("moe_ffn_hidden_size", "model.moe_ffn_hidden_size", unit.count, "ffn_hidden_size", "from core 0.9", OWN),
    FlagRow("moe_shared_expert_intermediate_size", "model.shared_expert_ffn", unit.count, None, "from core 0.9", OWN),
    FlagRow("moe_layer_freq", "_pattern", pattern, 1, "from core 0.9", lambda w: layer_pattern(w.model), says.has_both_layers),
    FlagRow("moe_expert_capacity_factor moe_train_capacity_factor", "model.expert_capacity", unit.number, None, "from core 0.7"),
    FlagRow("multi_latent_attention", "model.latent", unit.flag, False, "from core 0.10", OWN),
    FlagRow("q_lora_rank", "model.q_lora_rank", unit.count, says=OWN, when=latent),
    FlagRow("kv_lora_rank", "model.kv_lora_rank", unit.count, says=OWN, when=latent),
    FlagRow("v_head_dim", "model.v_head_dim", unit.count, says=OWN, when=latent),
    FlagRow("qk_head_dim qk_nope_head_dim", "model.qk_head_dim", unit.count,
            says=lambda w: int(w.model.head_dim or 0) - w.model.rope_head_dim, when=latent),
    FlagRow("qk_pos_emb_head_dim qk_rope_head_dim", "model.qk_rope_head_dim", unit.count, says=OWN, when=latent),
    FlagRow("mtp_num_layers", "model.mtp_layers", unit.whole, says=OWN),
    FlagRow("window_size", "model.window", window),
    FlagRow("window_attn_skip_freq", "_window_freq", pattern),
    FlagRow("softmax_type", "_softmax", unit.word, "vanilla"),
    FlagRow("model", "_name", unit.word, None, "ms-swift"),
    FlagRow("hybrid_layer_pattern hybrid_override_pattern is_hybrid_model", "_hybrid", unit.anything, None, "from core 0.9"),
)
def bucket_elements(w: Writing) -> int | None:
    """Elements of a bucket of gradients; none where the plan leaves it to the framework."""
    if w.plan.bucket_bytes is None:
        return None
    return round(w.plan.bucket_bytes / (w.plan.gradient_bytes or load_framework(w.software).reduce_bytes))


OTHER_MODELS = {
    "pretrain_t5": "encoder-decoder", "pretrain_ict": "biencoder", "pretrain_retro": "retrieval",
    "pretrain_vlm": "vision-language", **dict.fromkeys(words("pretrain_vision_classify pretrain_vision_dino"), "vision"),
}  # fmt: skip
"""Kinds of models by the scripts that train them: NVIDIA/Megatron-LM@d98e8a6."""
PLAN_ROWS = (
    FlagRow("tensor_model_parallel_size model_parallel_size intra_layer_model_parallel_size", "tensor_parallel", unit.count, 1,
            says=OWN),
    FlagRow("pipeline_model_parallel_size", "pipeline_parallel", unit.count, 1, "from 2.0", OWN),
    FlagRow("context_parallel_size", "context_parallel", unit.count, 1, "from core 0.5", OWN),
    FlagRow("micro_batch_size batch_size", "micro_batch", unit.count, says=OWN),
    FlagRow("global_batch_size", "global_batch", unit.count, says=OWN),
    FlagRow("seq_length encoder_seq_length", "seq_len", unit.count, says=OWN),
    FlagRow("max_length", "seq_len", unit.count, None, "ms-swift"),
    FlagRow("max_completion_length", "_completion", unit.count, 512, "ms-swift"),
    FlagRow("rlhf_type", "_rlhf", unit.word, None, "ms-swift"),
    FlagRow("expert_model_parallel_size", "expert_parallel", unit.count, 1, "from core 0.4", OWN, says.has_experts),
    FlagRow("expert_tensor_parallel_size", "expert_tensor_parallel", unit.count, "tensor_parallel", "from core 0.9", OWN,
            says.has_experts),
    FlagRow("moe_token_dispatcher_type", "dispatcher", unit.one_of(DISPATCHERS), None, "from core 0.5", OWN, says.has_experts),
    FlagRow("overlap_moe_expert_parallel_comm", "overlap_experts", unit.flag, None, "from core 0.14", OWN, says.has_experts),
    FlagRow("cp_comm_type", "_cp_comm", unit.anything, None, "from core 0.11", cp_comm),
    FlagRow("num_virtual_stages_per_pipeline_rank virtual_pipeline_model_parallel_size", "virtual_stages", unit.count, 1,
            "from core 0.12", ABOVE_ONE),
    FlagRow("num_layers_per_virtual_pipeline_stage", "_chunk_layers", unit.count, None, "from 2.6"),
    FlagRow("pipeline_model_parallel_layout", "_layout", stages, None, "from core 0.13"),
    FlagRow("decoder_first_pipeline_num_layers num_layers_in_first_pipeline_stage", "_first_layers", unit.count, None,
            "from core 0.7", "first_stage_layers"),
    FlagRow("decoder_last_pipeline_num_layers num_layers_in_last_pipeline_stage", "_last_layers", unit.count, None,
            "from core 0.7", "last_stage_layers"),
    FlagRow("sequence_parallel", "sequence_parallel", unit.flag, False, "from 3.0", OWN),
    FlagRow("use_distributed_optimizer", "_distributed", unit.yields(1, 0), 0, "from 3.0", lambda w: bool(w.plan.zero_stage)),
    FlagRow("use_megatron_fsdp use_custom_fsdp", "_fsdp", unit.flag, False, "from core 0.10", sharded),
    FlagRow("data_parallel_sharding_strategy", "_sharding", unit.one_of({k: k for k in SHARDING}), "no_shard", "from core 0.10",
            says.mapped("zero_stage", {"2": "optim_grads"}, "optim_grads_params"), sharded),
    FlagRow("use_torch_fsdp2", "_fsdp2", unit.flag, False, "from core 0.10"),
    FlagRow("num_distributed_optimizer_instances", "_instances", unit.count, 1, "from core 0.10"),
    FlagRow("bf16", "_wide", unit.yields("bf16"), says=lambda w: WIDE.get(str(w.plan.dtype)) == "bf16"),
    FlagRow("fp16", "_wide", unit.yields("fp16"), says="dtype"),
    FlagRow("torch_dtype", "_wide", unit.one_of(LONG), None, "ms-swift"),
    FlagRow("fp8_param_gather fp4_param_gather", "narrow_parameters", unit.flag, False, "from core 0.6",
            says.where_true("narrow_parameters")),
    FlagRow("fp8_format fp8", "_fp8", unit.one_of(FORMATS), None, "from core 0.3",
            says.mapped("dtype", {"fp8": "hybrid", "mxfp8": "e4m3"})),
    FlagRow("fp8_e4m3 fp8_hybrid", "_fp8", unit.yields("fp8"), None, "3.0 to core 0.2"),
    FlagRow("fp8_recipe", "_fp8_recipe", unit.one_of(RECIPES), "delayed", "from core 0.11",
            says.mapped("dtype", {"fp8": "delayed", "mxfp8": "mxfp8"})),
    FlagRow("fp8_dot_product_attention", "_fp8_attention", unit.flag, False, "from core 0.3",
            says.where_one_of("attention_dtype", "fp8")),
    FlagRow("activation_func_fp8_input_store", "activation_input_dtype", unit.yields("fp8"), None, "from core 0.7",
            says.where_one_of("activation_input_dtype", "fp8")),
    FlagRow("fp4_format fp4", "_fp4", unit.one_of({"e2m1": "nvfp4", "none": unit.UNSTATED}), None, "from core 0.14", "dtype"),
    FlagRow("recompute_granularity", "_recompute", unit.one_of(DEGREES_OF_RECOMPUTE), None, "from 3.0", granularity),
    FlagRow("recompute_activations", "_recompute", unit.yields("selective"), None, "from 3.0"),
    FlagRow("checkpoint_activations", "_recompute", unit.yields("full"), None, "to 2.6"),
    FlagRow("activations_checkpoint_method", "_recompute", unit.one_of(METHODS), None, "2.5 to 2.7"),
    FlagRow("recompute_modules", "_recompute_modules", unit.anything, None, "from core 0.12", named_modules),
    FlagRow("recompute_method", "_recompute_method", unit.word, None, "from 3.0", method),
    FlagRow("recompute_num_layers checkpoint_num_layers activations_checkpoint_num_layers", "_recompute_layers", unit.whole,
            says=recomputed_layers),
    FlagRow("optimizer", "optimizer", unit.word, "adam", "from 1.0",
            says.mapped("optimizer", {"sgd-momentum": "sgd", "muon": "muon", "None": None}, "adam")),
    FlagRow("use_precision_aware_optimizer", "_precise", unit.flag, False, "from core 0.10",
            says.where_one_of("optimizer", "adam-precision-aware", "adam-bf16-moments")),
    FlagRow("exp_avg_dtype", "_moment", unit.word, "fp32", "from core 0.10",
            says.mapped("optimizer", {"adam-bf16-moments": "bf16"})),
    says.alone("exp_avg_sq_dtype", says.mapped("optimizer", {"adam-bf16-moments": "bf16"})),
    FlagRow("optimizer_cpu_offload cpu_optimizer", "_offload_optimizer", unit.flag, False, "from core 0.11",
            lambda w: bool(w.stated("_offload_fraction"))),
    FlagRow("optimizer_offload_fraction", "_offload_fraction", unit.number, 1.0, "from core 0.11", OWN),
    FlagRow("cpu_offloading fine_grained_activation_offloading", "_offload_activations", unit.flag, False, "from core 0.9"),
    FlagRow("cpu_offloading_num_layers", "_offload_layers", unit.whole, 0, "from core 0.9",
            lambda w: round(w.plan.activation_offload * w.model.layers), lambda w: w.plan.activation_offload),
    FlagRow("attention_backend", "_attention", unit.one_of(KERNELS), "auto", "from core 0.9",
            says.mapped("attention", {"flash": "flash", "fused-softmax": "unfused"})),
    FlagRow("use_flash_attn use_flash_attn_v1 use_flash_attn_v2", "_attention", unit.yields("flash"), None, "from 3.0"),
    FlagRow("no_masked_softmax_fusion", "_apart", unit.yields(True), False),
    FlagRow("export_force_local_attention", "_attention", unit.yields("unfused")),
    FlagRow("attn_impl", "_attention_word", unit.word, None, "ms-swift"),
    FlagRow("grad_reduce_in_bf16", "gradient_bytes", unit.yields(2), None, "from core 0.12", OWN),
    FlagRow("accumulate_allreduce_grads_in_fp32", "gradient_bytes", unit.yields(4), None, "from 2.2", OWN),
    FlagRow("main_grads_dtype megatron_fsdp_main_grads_dtype", "gradient_bytes",
            unit.one_of({"fp32": 4, "bf16": 2, "auto": unit.UNSTATED}), 4),
    FlagRow("overlap_grad_reduce", "overlap_gradients", unit.flag, False, "from core 0.4", OWN),
    FlagRow("ddp_bucket_size", "_bucket", unit.count, None, "from core 0.6", bucket_elements),
    FlagRow("overlap_param_gather", "overlap_parameters", unit.flag, False, "from core 0.4", OWN),
    FlagRow("tp_comm_overlap", "overlap_tensor", unit.flag, False, "from core 0.5", OWN),
    FlagRow("cross_entropy_loss_fusion", "fused_cross_entropy", unit.flag, False, "from core 0.9", OWN),
    FlagRow("cross_entropy_fusion_impl", "_fusion", unit.one_of(FUSED), "native", "from core 0.12",
            lambda w: "te" if w.plan.fused_cross_entropy and w.plan.loss != FUSED["native"] else None),
    FlagRow("no_overlap_p2p_communication", "overlap_pipeline", unit.yields(False), None, "from 3.0", OWN),
    FlagRow("overlap_p2p_communication", "overlap_pipeline", unit.flag, True, "from 3.0"),
    FlagRow("enable_cuda_graph external_cuda_graph", "cuda_graphs", unit.yields(True), False, "from core 0.7"),
    FlagRow("cuda_graph_impl", "cuda_graphs", unit.one_of(GRAPHS), "none", "from core 0.15", graph_kind),
    FlagRow("cuda_graph_scope cuda_graph_modules", "_graph_scopes", unit.anything, None, "from core 0.14", graph_scopes),
    FlagRow("use_transformer_engine_op_fuser", "_op_fuser", unit.flag, False, "from core 0.18",
            lambda w: w.plan.fused_experts or w.plan.fused_operators or None),
    FlagRow("use_tp_pp_dp_mapping", "_tp_pp_dp", unit.flag, False, "from core 0.9", lambda w: tuple(w.plan.rank_order) == ORDER),
    FlagRow("tuner_type train_type", "_tuner", unit.one_of({"full": "none", "lora": "lora"}), "full", "ms-swift"),
    FlagRow("packing", "_packing", unit.flag, False, "ms-swift"),
    FlagRow("padding_free", "_padding_free", unit.flag, False, "ms-swift"),
    FlagRow("lora_rank", "_rank", unit.count, 8, "ms-swift"),
    FlagRow("lora_dropout", "_adapter_dropout", unit.number, 0.05, "ms-swift"),
    FlagRow("target_modules", "_targets", unit.listed, "all-linear", "ms-swift"),
)


# What is read


def rules(reading: LaunchReading) -> None:
    """What several flags of Megatron amount to."""
    shape(reading)
    chunks(reading)
    sharding(reading)
    precision(reading)
    narrow_attention(reading)
    buckets(reading)
    graphs(reading)
    context(reading)
    states(reading)
    common.offload(reading)
    common.batching(reading)
    recompute(reading)
    kernel = reading.one("_attention")
    reading.put("attention", APART if kernel == "unfused" and reading.one("_apart") else kernel)
    if "_attention" in reading.said and kernel is None:
        reading.defaults.pop("attention", None)
    schedule_of(reading)
    adapter(reading)
    order(reading)
    if reading.has("_name") or reading.keys & SWIFT:
        _swift(reading)
    loss(reading)


def _swift(reading: LaunchReading) -> None:
    reading.version = "ms-swift"
    common.generated(reading)
    common.preferences(reading, reading.one("_rlhf"))
    reading.model_name = reading.one("_name") or reading.model_name
    # modelscope/ms-swift@3602360a5 swift/megatron/arguments/megatron_args.py
    reading.defaults |= {
        "zero_stage": 1, "dtype": "bf16", "attention": "flash", "micro_batch": 1, "global_batch": 16, "recompute": "selective",
    }  # fmt: skip
    for field, value in (("fused_cross_entropy", True), ("batching", "padding-free")):
        if not reading.has(field) and not (field == "batching" and reading.has("_padding_free")):
            reading.put(field, value, derived=True)
    name = str(reading.one("_attention_word") or "")
    if name:
        reading.put("attention", "flash" if "flash" in name else {"sdpa": "fused", "eager": "unfused"}.get(name))


def loss(reading: LaunchReading) -> None:
    """Which loss a fused one is: Megatron's own where no other is named (megatron/core/model_parallel_config.py @d98e8a6)."""
    fused = reading.one("fused_cross_entropy") or reading.plan.get("fused_cross_entropy")
    if fused and reading.one("_fusion", FUSED["native"]) == FUSED["native"]:
        reading.put("loss", FUSED["native"], derived=True)


def adapter(reading: LaunchReading) -> None:
    """Low-rank adapters of ms-swift."""
    if reading.one("_tuner") == "lora":
        common.adapter(reading, "lora", 8, "all")


def shape(reading: LaunchReading) -> None:
    """The model's shape from flags that only mean something together."""
    experts = reading.one("_experts")
    if isinstance(experts, str) and len(experts.split()) > 1:
        experts = experts.split()
    if isinstance(experts, list) and len(set(map(str, experts))) > 1:
        reading.model["kind"] = "pyramid mixture-of-experts"
    if isinstance(experts, list):
        experts = experts[0] if len(set(map(str, experts))) == 1 else None
    if experts is not None and str(experts).isdigit() and 1 < int(experts) < 1_000_000:
        reading.say("model.num_experts", int(experts), f"num_experts {experts}")
        if reading.has("_topk"):
            reading.say("model.top_k", reading.one("_topk"), reading.said["_topk"][0].shown)
        if reading.defaults:
            reading.defaults["expert_tensor_parallel"] = reading.one("tensor_parallel") or 1
        freq, layers = reading.one("_pattern"), reading.one("model.num_layers")
        if isinstance(freq, int) and freq > 1 and layers:
            freq = [int(layer % freq == 0) for layer in range(layers)]
        if isinstance(freq, list):
            for field, value in expert_layout([one == 1 for one in freq]).items():
                reading.say(f"model.{field}", value, "moe_layer_freq")
    if reading.has("_groups") and reading.one("_grouped", True):
        reading.say("model.num_kv_heads", reading.one("_groups"), reading.said["_groups"][0].shown)
    if reading.has("_activation"):
        reading.say("model.activation", reading.one("_activation"), "activation")
        # of SwiGLU the limits are part of its kernel (megatron/core/fusions/fused_bias_swiglu.py)
        if reading.has("_clamp") and reading.one("_activation") == "quick_geglu":
            reading.say("model.clamped_activation", True, "activation_func_clamp_value")
    if reading.has("model.window"):
        freq = reading.one("_window_freq")
        layers = reading.one("model.num_layers") or 0
        full = layers // freq if isinstance(freq, int) and freq else freq.count(0) if isinstance(freq, list) else 0
        reading.say("model.windowed_layers", layers - full, "window_attn_skip_freq")
    kind = str(reading.one("_positions", "learned_absolute"))
    if kind == "learned_absolute" and reading.has("_max_positions") and "num_layers" in reading.keys:
        reading.say("model.learned_positions", reading.one("_max_positions"), "max_position_embeddings")
    if reading.has("_dropout"):
        reading.said["_dropout"] = [max(reading.said["_dropout"], key=lambda one: one.value)]
        reading.say("model.dropout", reading.one("_dropout") > 0, "dropout")
    if str(reading.one("_softmax", "")) == "learnable":
        reading.say("model.attention_sinks", True, "softmax_type")
    if reading.has("_hybrid"):
        reading.say("model.kind", "hybrid", "hybrid pattern")
    started = common.started(reading)
    for script in started & OTHER_MODELS.keys():
        reading.model["kind"] = OTHER_MODELS[script]
    if "language_model_type" in reading.keys:  # of its examples/multimodal
        reading.model["kind"] = "vision-language"
    if "pretrain_bert" in started:
        reading.model["causal"] = False


def chunks(reading: LaunchReading) -> None:
    """Model chunks on a pipeline rank, from the layers of one or from a layout."""
    pipeline, layers = reading.one("pipeline_parallel"), reading.one("model.num_layers")
    each, layout = reading.one("_chunk_layers"), reading.one("_layout")
    if {"_chunk_layers", "_layout"} & reading.variable_fields:
        reading.variable_fields.add("virtual_stages")
    if pipeline and each and layers and not reading.has("virtual_stages"):
        if layers % (pipeline * each):
            reading.conflict(f"{each} layers a virtual stage and {layers} layers over {pipeline} pipeline ranks")
        elif layers // (pipeline * each) > 1:
            reading.put("virtual_stages", layers // (pipeline * each), derived=True)
    if pipeline and layout and not reading.has("virtual_stages"):
        if layout % pipeline:
            reading.conflict(f"a pipeline layout of {layout} stages and pipeline_parallel {pipeline}")
        elif layout > pipeline:
            reading.put("virtual_stages", layout // pipeline, derived=True)
    chunked = (reading.one("virtual_stages") or reading.plan.get("virtual_stages") or 1) > 1
    for end in ("first", "last"):
        if reading.has(f"_{end}_layers") and chunked:
            reading.unpriced.append(reading.said[f"_{end}_layers"][0].shown)
        else:
            reading.put(f"{end}_stage_layers", reading.one(f"_{end}_layers"))


def sharding(reading: LaunchReading) -> None:
    """ZeRO stage and FSDP."""
    strategy = reading.one("_sharding")
    if reading.one("_fsdp"):
        reading.put("fsdp", {"implementation": "megatron-fsdp", "sharding": strategy})
        reading.put("zero_stage", SHARDING[strategy or "no_shard"])
    elif reading.one("_fsdp2"):
        common.fsdp(reading, {"implementation": "torch-fsdp2", "version": 2})
    elif (reading.has("_fsdp") or reading.has("_fsdp2")) and reading.dialect.about.layout == "yaml":
        reading.put("fsdp", {"enabled": False})
    reading.put("zero_stage", reading.one("_distributed"))
    if (reading.one("_instances") or 1) > 1:
        data = reading.plan.get("data_parallel")
        if data and data % reading.one("_instances") == 0:
            reading.put("shard_group", data // reading.one("_instances"))
        else:
            reading.unpriced.append("--num-distributed-optimizer-instances")


def precision(reading: LaunchReading) -> None:
    """fp8 and fp4 over 16-bit weights, and how narrow the optimizer's states are."""
    narrow = reading.one("_fp4") or reading.one("_fp8")
    if narrow == "fp8" and reading.one("_fp8_recipe") == "mxfp8":
        narrow = "mxfp8"
    reading.put("dtype", narrow or reading.one("_wide"))
    if reading.one("_op_fuser") and not reading.one("_experts"):
        reading.put("fused_operators", True)
    elif reading.one("_op_fuser") and narrow == "mxfp8":  # other experts run as they do without it
        reading.put("fused_experts", True)


def order(reading: LaunchReading) -> None:
    """The order of ranks, where it isn't Megatron's own."""
    if reading.one("_tp_pp_dp"):
        reading.put("rank_order", list(ORDER))


def buckets(reading: LaunchReading) -> None:
    """The bytes of a bucket of gradients, which files say in elements."""
    if elements := reading.one("_bucket"):
        width = reading.plan.get("gradient_bytes") or load_framework(reading.dialect.about.software).reduce_bytes
        reading.put("bucket_bytes", float(elements) * width)


def narrow_attention(reading: LaunchReading) -> None:
    """Attention in 8 bit, which products in 16 bit, or with scales by blocks, have not."""
    if reading.one("_fp8_attention") and reading.plan.get("dtype") in NARROW_CORES:
        reading.put("attention_dtype", "fp8")


def graphs(reading: LaunchReading) -> None:
    """What CUDA graphs hold, where it isn't all of each layer: a whole iteration, or modules that can be captured alone."""
    captured, scopes = reading.one("cuda_graphs"), _words(reading.one("_graph_scopes"))
    if captured == ITERATION:
        reading.put("cuda_graphs", True)
        scopes = [FULL_ITERATION]
    if captured and of_scopes(scopes):
        reading.put("graph_modules", of_scopes(scopes))
    foreign = [scope for scope in scopes if scope not in (*OF_MEGATRON, *WHOLE, FULL_ITERATION)]
    if foreign:
        reading.note(f"cuda_graph_scope: {', '.join(foreign)} is not modelled")


def context(reading: LaunchReading) -> None:
    """What context ranks exchange, where all layers do it alike and in one way."""
    raw = reading.one("_cp_comm")
    named = set(re.findall(r"[\w+]+", " ".join(map(str, raw if isinstance(raw, list) else [raw or ""]))))
    known = [COMMUNICATIONS[name] for name in named if name in COMMUNICATIONS]
    if len(named) == 1 and known:
        reading.put("context_communication", known[0])
    elif named:
        reading.unpriced.append(f"--cp-comm-type {' '.join(sorted(named))}")


def states(reading: LaunchReading) -> None:
    """How narrow the optimizer's states are."""
    if reading.one("_precise") and str(reading.one("optimizer", "adam")).lower() == "adam":
        narrow = str(reading.one("_moment", "fp32")).lower() in ("bf16", "fp16", "bfloat16")
        reading.put("optimizer_states", "adam-bf16-moments" if narrow else "adam-precision-aware")
    layers, total = reading.one("_offload_layers"), reading.one("model.num_layers")
    if layers and total and layers <= total:
        reading.say("_offload_activations", True, "cpu_offloading_num_layers")
        reading.say("_offload_activation_fraction", layers / total, "cpu_offloading_num_layers")


def modules(named: object) -> str:
    """What a plan calls the modules that ``--recompute-modules`` names, with a plus between them; "" where it knows none."""
    named = {MODULES[name] for name in _words(named) if name in MODULES}
    return str(recomputation("+".join(named))) if named else ""


def _words(named: object) -> list[str]:
    """Names of a list, or of a text of them as command lines, TOML and JSON write it."""
    texts = named if isinstance(named, list | tuple) else [named] if named is not None else []
    return list(dict.fromkeys(re.findall(r"\w+", " ".join(map(str, texts)))))


def recompute(reading: LaunchReading) -> None:
    """What is computed again in the backward pass."""
    how = reading.one("_recompute")
    if how == "full" and reading.one("_recompute_method") == "block" and reading.one("_recompute_layers") == 0:
        how = "none"
        reading.note("recompute: a block of no layers, which is none")
    reading.put("recompute", how)
    named = _words(reading.one("_recompute_modules"))
    if how == "selective" and named:
        foreign = [name for name in named if name not in MODULES]
        if foreign:
            reading.note(f"recompute_modules: {', '.join(foreign)} is not modelled")
        reading.put("recompute_modules", modules(named) or None)
    layers, total = reading.one("_recompute_layers"), reading.one("model.num_layers")
    if how == "full" and reading.one("_recompute_method") == "block" and layers is not None and total:
        per_stage = -(-total // ((reading.one("pipeline_parallel") or 1) * (reading.plan.get("virtual_stages") or 1)))
        if 0 < layers < per_stage:
            reading.put("recompute_every", per_stage // layers if per_stage % layers == 0 else layers / per_stage)


MEGATRON = Dialect("megatron", (*MODEL_ROWS, *PLAN_ROWS), rules)

"""How the dialects of Megatron and its kin say a plan: what is more than a row of their tables."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from costmodel.description.graphs import OF_MEGATRON
from costmodel.description.recomputation import modules_of

if TYPE_CHECKING:
    from costmodel.description.transformer import Transformer
    from costmodel.interop.launchers.table import Writing

NARROW = ("fp8", "mxfp8", "nvfp4")
MODULES = {
    "core_attn": "attention-core", "layernorm": "norms", "mla_up_proj": "latent-projections", "mlp": "mlp", "moe": "experts",
    "shared_experts": "shared-experts", "moe_act": "expert-activation",
}  # fmt: skip
"""What a plan calls the modules of ``--recompute-modules``."""


DISPATCHERS = {"all-to-all": "alltoall", "deduplicated": "flex"}
"""What ``--moe-token-dispatcher-type`` calls the ways of tokens to experts; its own default gathers all tokens on every rank."""
COMMUNICATIONS = {"p2p": "ring", "all_gather": "all-gather", "a2a": "all-to-all"}
"""What ``--cp-comm-type`` calls what context ranks exchange."""


def _context(w: Writing, flag: str) -> None:
    """What context ranks exchange, if it isn't Megatron's default."""
    words = {ours: theirs for theirs, ours in COMMUNICATIONS.items()}
    if w.plan.context_parallel > 1 and w.plan.context_communication != "ring":
        w.put(flag, words[str(w.plan.context_communication)])


def _wide(dtype: str) -> str:
    return "bf16" if dtype in NARROW else dtype


def megatron(w: Writing) -> None:
    """Megatron's arguments."""
    plan = w.plan
    megatron_shape(w)
    w.say(
        "tensor_parallel", "pipeline_parallel", "context_parallel", "micro_batch", "global_batch", "seq_len"
    )
    if w.model.experts:
        w.say("expert_parallel", "expert_tensor_parallel")
        w.put("moe_token_dispatcher_type", DISPATCHERS.get(str(plan.dispatcher)))
        w.put("overlap_moe_expert_parallel_comm", plan.overlap_experts or None)
    _context(w, "cp_comm_type")
    if plan.virtual_stages > 1:
        w.put("num_virtual_stages_per_pipeline_rank", plan.virtual_stages)
    w.put("sequence_parallel", plan.sequence_parallel or None)
    if plan.zero_stage == 1:
        w.put("use_distributed_optimizer", True)
    elif plan.zero_stage:
        w.put("use_distributed_optimizer", True)
        w.put("use_megatron_fsdp", True)
        w.put(
            "data_parallel_sharding_strategy", "optim_grads" if plan.zero_stage == 2 else "optim_grads_params"
        )
    megatron_dtype(w, "fp8_format", "fp4_format")
    megatron_recompute(w)
    megatron_optimizer(w)
    if plan.optimizer_offload:
        w.put("optimizer_cpu_offload", True)
        w.put("optimizer_offload_fraction", plan.optimizer_offload)
    if plan.activation_offload:
        w.put("cpu_offloading_num_layers", round(plan.activation_offload * w.model.layers))
    w.put("attention_backend", {"flash": "flash", "fused-softmax": "unfused"}.get(str(plan.attention)))
    w.put(
        "grad_reduce_in_bf16" if plan.gradient_bytes == 2 else "accumulate_allreduce_grads_in_fp32",
        True if plan.gradient_bytes else None,
    )
    for field in ("overlap_gradients", "overlap_parameters", "overlap_tensor", "fused_cross_entropy"):
        if getattr(plan, field):
            w.say(field)
    if plan.overlap_pipeline is False:
        w.put("no_overlap_p2p_communication", True)
    if plan.graph_modules:
        held = plan.graph_modules.split("+")
        w.put("cuda_graph_impl", "transformer_engine")
        w.put("cuda_graph_scope", [scope for scope, module in OF_MEGATRON.items() if module in held])
    elif plan.cuda_graphs:
        w.put("cuda_graph_impl", "full_iteration" if plan.fused_experts else "local")
    if plan.fused_experts:
        w.put("use_transformer_engine_op_fuser", True)
    if tuple(plan.rank_order) == ("tensor", "context", "pipeline", "data"):
        w.put("use_tp_pp_dp_mapping", True)


def megatron_dtype(w: Writing, eight: str, four: str) -> None:
    """Weights of 16 bits, products of fewer."""
    dtype = str(w.plan.dtype)
    if _wide(dtype) in ("bf16", "fp16"):
        w.put(_wide(dtype), True)
    if dtype in ("fp8", "mxfp8"):
        w.put(eight, "hybrid" if dtype == "fp8" else "e4m3")
        w.put("fp8_recipe", "delayed" if dtype == "fp8" else "mxfp8")
    if dtype == "nvfp4":
        w.put(four, "e2m1")


def megatron_recompute(w: Writing) -> None:
    """Everything, the attention core, or a part of each stage's layers."""
    recompute = w.plan.recompute
    if recompute == "none":
        return
    modules = modules_of(recompute)
    w.put("recompute_granularity", "selective" if modules else "full")
    if modules:
        named = {ours: theirs for theirs, ours in MODULES.items()}
        w.put("recompute_modules", [named[module] for module in modules] if recompute != "selective" else None)
        return
    w.put("recompute_method", "uniform" if recompute == "full" else "block")
    stage = -(-w.model.layers // (w.plan.pipeline_parallel * w.plan.virtual_stages))
    w.put("recompute_num_layers", 1 if recompute == "full" else max(1, stage // int(recompute)))


def megatron_optimizer(w: Writing) -> None:
    """Adam and how narrow its states are, or another."""
    name = w.plan.optimizer
    if name is None:
        return
    w.put("optimizer", {"sgd-momentum": "sgd", "muon": "muon"}.get(name, "adam"))
    if name in ("adam-precision-aware", "adam-bf16-moments"):
        w.put("use_precision_aware_optimizer", True)
    if name == "adam-bf16-moments":
        w.put("exp_avg_dtype", "bf16")
        w.put("exp_avg_sq_dtype", "bf16")


def megatron_shape(w: Writing) -> None:
    """The model's shape in Megatron's arguments."""
    model = w.model
    w.shape(
        num_layers=model.layers,
        hidden_size=model.hidden,
        num_heads=model.heads,
        head_dim=model.value_head_dim,
        vocab_size=model.vocabulary,
    )
    w.put("ffn_hidden_size", model.feed_forward or model.expert_feed_forward)
    if model.kv_heads != model.heads:
        w.put("group_query_attention", True)
        w.put("num_query_groups", model.kv_heads)
    if not model.learned_positions:
        w.put("position_embedding_type", "rope")
    w.put("max_position_embeddings", model.learned_positions or w.plan.seq_len)
    w.put("normalization", "RMSNorm" if model.norm == "rmsnorm" else "LayerNorm")
    w.put("swiglu", (model.gated and not model.clamped_activation) or None)
    if model.clamped_activation:  # as gpt-oss has it
        w.put("quick_geglu", True)
        w.put("glu_linear_offset", 1.0)
        w.put("activation_func_clamp_value", 7.0)
    w.put("disable_bias_linear", None if model.feed_forward_bias else True)
    w.put("add_qkv_bias", (model.attention_bias and not model.feed_forward_bias) or None)
    w.put("untie_embeddings_and_output_weights", None if model.tied_embeddings else True)
    w.put("qk_layernorm", model.qk_norm != "none" or None)
    w.put("hidden_dropout", 0.1 if model.dropout else 0.0)
    w.put("attention_dropout", 0.1 if model.dropout else 0.0)
    if model.experts:
        w.put("num_experts", model.experts)
        w.put("moe_router_topk", model.experts_per_token)
        w.shape(
            moe_ffn_hidden_size=model.expert_feed_forward,
            shared_expert_ffn=model.shared_expert_feed_forward or None,
        )
        if model.dense_layers:
            w.put("moe_layer_freq", layer_pattern(model))
    if model.latent:
        w.put("multi_latent_attention", True)
        w.shape(
            q_lora_rank=model.query_latent or None, kv_lora_rank=model.kv_latent, v_head_dim=model.value_head_dim,
            qk_head_dim=int(model.head_dim or 0) - model.rope_head_dim, qk_rope_head_dim=model.rope_head_dim,
        )  # fmt: skip
    w.shape(mtp_layers=model.prediction_layers or None)


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


def megatron_deepspeed(w: Writing) -> None:
    """Megatron-DeepSpeed's arguments: older names, ZeRO by its stage."""
    plan = w.plan
    megatron_shape(w)
    for new in (
        "group_query_attention",
        "num_query_groups",
        "qk_layernorm",
        "position_embedding_type",
        "moe_router_topk",
    ):
        w.values.pop(new, None)
    w.put("num_key_value_heads", w.model.kv_heads if w.model.kv_heads != w.model.heads else None)
    w.put("use_rotary_position_embeddings", None if w.model.learned_positions else True)
    w.put("deepspeed", True)
    w.say("tensor_parallel", "pipeline_parallel", "micro_batch", "global_batch", "seq_len", "zero_stage")
    if w.model.experts:
        w.put("moe_expert_parallel_size", plan.expert_parallel)
        w.put("topk", w.model.experts_per_token)
        step = w.model.expert_layer_step
        if not w.model.dense_layers or (step > 1 and w.model.expert_start == step - 1):
            w.values.pop("moe_layer_freq", None)
            w.put("expert_interval", step)
    w.put("no_pipeline_parallel", True if plan.pipeline_parallel == 1 else None)
    w.put("sequence_parallel", plan.sequence_parallel or None)
    if plan.dtype in ("bf16", "fp16"):
        w.put(plan.dtype, True)
    if plan.recompute == "full":
        w.put("checkpoint_activations", True)
        w.put("deepspeed_activation_checkpointing", True)
    elif plan.recompute == "selective":
        w.put("recompute_granularity", "selective")
    w.put("cpu_optimizer", True if plan.optimizer_offload == 1.0 else None)
    w.put("optimizer", "adam" if plan.optimizer in (None, "adam") else None)
    w.put("use_flash_attn_v2", True if plan.attention == "flash" else None)


def nemo(w: Writing) -> None:
    """NeMo's launcher YAML."""
    plan, model = w.plan, w.model
    per_node = min(plan.gpus, 8)
    w.put("trainer.num_nodes", plan.gpus // per_node if plan.gpus % per_node == 0 else 1)
    w.put("trainer.devices", per_node if plan.gpus % per_node == 0 else plan.gpus)
    w.put("trainer.precision", _wide(str(plan.dtype)) if _wide(str(plan.dtype)) in ("bf16", "fp16") else "32")
    w.put("model.fp8", plan.dtype in ("fp8", "mxfp8"))
    if plan.dtype == "mxfp8":
        w.put("model.fp8_recipe", "mxfp8")
    _sections(w, "model")
    w.put("model.micro_batch_size", plan.micro_batch)
    w.put("model.global_batch_size", plan.global_batch)
    w.put("model.encoder_seq_length", plan.seq_len)
    w.put(
        "model.activations_checkpoint_granularity",
        plan.recompute if plan.recompute in ("full", "selective") else None,
    )
    if plan.recompute == "full":
        w.put("model.activations_checkpoint_method", "uniform")
        w.put("model.activations_checkpoint_num_layers", 1)
    w.put("model.optim.name", "mcore_distributed_optim" if plan.zero_stage == 1 else "fused_adam")
    w.put("model.optim.overlap_grad_sync", plan.overlap_gradients)
    w.put("model.optim.overlap_param_sync", plan.overlap_parameters)
    w.put("model.ub_tp_comm_overlap", plan.overlap_tensor)
    w.put("model.overlap_p2p_comm", plan.overlap_pipeline)
    w.put("model.use_flash_attention", True if plan.attention == "flash" else None)
    w.put("model.num_layers", model.layers)
    w.put("model.hidden_size", model.hidden)
    w.put("model.ffn_hidden_size", model.feed_forward or model.expert_feed_forward)
    w.put("model.num_attention_heads", model.heads)
    w.put("model.num_query_groups", model.kv_heads if model.kv_heads != model.heads else None)
    w.put("model.kv_channels", model.value_head_dim)
    w.put("model.num_moe_experts", model.experts or None)
    w.put("model.moe_router_topk", model.experts_per_token or None)
    w.put("model.normalization", model.norm)
    w.put("model.activation", "fast-swiglu" if model.gated else "gelu")
    w.put("model.bias", model.feed_forward_bias)
    w.put("model.share_embeddings_and_output_weights", model.tied_embeddings)
    w.put("model.override_vocab_size", model.vocabulary)


def _sections(w: Writing, section: str) -> None:
    plan = w.plan
    w.put(f"{section}.tensor_model_parallel_size", plan.tensor_parallel)
    w.put(f"{section}.pipeline_model_parallel_size", plan.pipeline_parallel)
    w.put(
        f"{section}.virtual_pipeline_model_parallel_size",
        plan.virtual_stages if plan.virtual_stages > 1 else None,
    )
    w.put(f"{section}.context_parallel_size", plan.context_parallel)
    _context(w, f"{section}.cp_comm_type")
    if w.model.experts:
        w.put(f"{section}.expert_model_parallel_size", plan.expert_parallel)
        w.put(f"{section}.expert_tensor_parallel_size", plan.expert_tensor_parallel)
    w.put(f"{section}.sequence_parallel", bool(plan.sequence_parallel))


def bridge(w: Writing) -> None:
    """Megatron-Bridge's overrides of a recipe."""
    plan = w.plan
    w.put("recipe", f"{w.model.name.replace('-', '_').replace('.', '')}_pretrain_config")
    _sections(w, "model")
    w.put("model.seq_length", plan.seq_len)
    w.put("dataset.seq_length", plan.seq_len)
    w.put("train.micro_batch_size", plan.micro_batch)
    w.put("train.global_batch_size", plan.global_batch)
    wide = _wide(str(plan.dtype))
    named = f"{wide}_mixed" if plan.dtype == wide else f"{wide}_with_{plan.dtype}_mixed"
    w.put("mixed_precision.name", named)
    if plan.recompute in ("full", "selective"):
        w.put("model.recompute_granularity", plan.recompute)
        w.put("model.recompute_method", "uniform" if plan.recompute == "full" else None)
        w.put("model.recompute_num_layers", 1 if plan.recompute == "full" else None)
    w.put("ddp.use_distributed_optimizer", bool(plan.zero_stage))
    if (plan.zero_stage or 0) > 1:
        w.put("ddp.use_megatron_fsdp", True)
        w.put(
            "ddp.data_parallel_sharding_strategy",
            "optim_grads" if plan.zero_stage == 2 else "optim_grads_params",
        )
    w.put("ddp.overlap_grad_reduce", plan.overlap_gradients)
    w.put("ddp.overlap_param_gather", plan.overlap_parameters)
    w.put("comm_overlap.tp_comm_overlap", plan.overlap_tensor)
    if plan.gradient_bytes:
        w.put("ddp.grad_reduce_in_fp32", plan.gradient_bytes == 4)
    w.put("model.cross_entropy_loss_fusion", plan.fused_cross_entropy)
    w.put("model.attention_backend", "flash" if plan.attention == "flash" else "unfused")

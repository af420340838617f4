"""GPT-NeoX's YAML: Megatron's names, DeepSpeed's sections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costmodel.interop.launchers import common
from costmodel.interop.launchers.dialects import deepspeed, said_megatron
from costmodel.interop.launchers.settle import schedule_of
from costmodel.interop.launchers.table import UNSPLIT, Dialect, FlagRow, words
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

SOURCE = "EleutherAI/gpt-neox megatron/neox_arguments and megatron/model/transformer.py@ea7aefd8f8"
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
    source=SOURCE,
    rows=ROWS,
    unpriced=deepspeed.UNPRICED
    | words(
        """
        scaled_upper_triang_masked_softmax_fusion scaled_masked_softmax_fusion bias_gelu_fusion bias_dropout_fusion
        rope_fusion layernorm_fusion rmsnorm_fusion checkpoint_num_layers partition_activations synchronize_each_layer
        contiguous_checkpointing checkpoint_in_cpu profile_backward output_layer_parallelism pipe_partition_method
        fp16_lm_cross_entropy attention_softmax_in_fp32 num_unique_layers param_sharing_style sparsity_config.*
        sparsity_config gmlp_attn_dim mamba_* te_* dim_att head_size ffn_dim use_bnb_optimizer moe_expert_interval
        moe_router_type moe_lbl_in_fp32 make_vocab_size_divisible_by soft_prompt_tuning soft_prompt_tuning.* use_tutel
        moe_token_dropping moe_train_capacity_factor moe_use_residual moe_glu embed_norm gpt_j_tied use_bias_in_mlp
        use_bias_in_norms dpo_* kto_* fp32_reinforce rpe_* deepspeed_activation_checkpointing is_pipe_parallel
        optimizer.params.cuda_aware mlp_type fp16.fp16 moe_eval_capacity_factor moe_min_capacity moe_type moe_loss_coeff
        pack_impl expert_interval packing_impl
        """
    ),
    irrelevant=deepspeed.IRRELEVANT
    | words(
        """
        rotary_pct rotary_emb_base rotary_save_freqs_buffer layernorm_epsilon rms_norm_epsilon scalenorm_epsilon
        init_method init_method_std output_layer_init_method apply_query_key_layer_scaling use_cpu_initialization
        optimizer.* lr lr_decay_* min_lr warmup* override_lr_scheduler use_checkpoint_lr_scheduler wandb_* use_wandb
        use_comet comet_* log_* tensorboard_* git_hash peak_theoretical_tflops gradient_noise_scale_* memory_profiling*
        profile* distributed_backend local_rank rank lazy_mpu_init short_seq_prob eod_mask_loss adlr_* seed onnx_safe
        deepscale* deepspeed_mpi deepspeed_slurm deepspeed deepspeed_extra_args deepspeed_extra_args.* user_script
        iteration do_* tokenizer_type padded_vocab_size data_path data_impl data_dir train_data_* valid_data_* test_data_*
        train_label_* valid_label_* test_label_* pos_* neg_* weight_by_num_documents weighted_sampler_alpha mmap_warmup
        save save_* load s3_path s3_chunk_size config_files checkpoint_* extra_save_iters no_save_* no_load_* finetune
        train_iters train_epochs eval_* keep_last_n_checkpoints split vocab_file merge_file num_workers exit_interval
        weight_decay gradient_clipping clip_grad hysteresis dynamic_loss_scale loss_scale loss_scale_window min_scale
        char_level_ppl use_mup coord_check *base_shapes* mup_* text_gen_type temperature top_p top_k maximum_tokens
        prompt_end sample_* num_samples recompute hostfile include exclude launcher force_multi autotuning_run
        no_ssh_check comment account master_port master_addr bf16.* allow_chopped reward_* use_shared_fs train_impl
        dataset_impl precompute_model_name decay_lr_to moe_jitter_eps moe_z_loss_coeff train_reward_data_paths
        opt_pos_emb_offset kl_div_beta z_loss kl_impl return_logits serve_model_weights weight_server_port
        fused_kernels_build_path lm_head_* label_data_paths
        """
    ),
    signature=words(
        """
        pipe_parallel_size model_parallel_size no_weight_tying gpt_j_residual pos_emb checkpoint_activations
        attention_config checkpoint_factor train_micro_batch_size_per_gpu num_attention_heads
        """
    ),
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

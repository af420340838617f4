"""Axolotl's YAML over TrainingArguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costmodel.interop.launchers import common
from costmodel.interop.launchers.dialects import huggingface as hf
from costmodel.interop.launchers.dialects import said_trainers
from costmodel.interop.launchers.table import Dialect, FlagRow, words
from costmodel.interop.launchers.values import (
    UNSTATED,
    Foreign,
    anything,
    attention,
    count,
    degree,
    flag,
    listed,
    one_of,
    word,
    yields,
)

if TYPE_CHECKING:
    from costmodel.interop.launchers.table import LaunchReading

SOURCE = "axolotl-ai-cloud/axolotl src/axolotl/utils/schemas@067b021c8b"


def recompute(raw: object) -> object:
    """True, false, or "offload", which also moves the checkpoints to host memory."""
    if isinstance(raw, str) and raw.lower() in ("offload", "offload_disk", "unsloth"):
        return "offload"
    return yields("full", "none")(raw)


def moved(raw: object) -> object:
    """Whether activations are moved to host memory: true, "legacy", "disk", ..."""
    if isinstance(raw, str) and raw.lower() in ("legacy", "disk", "hidden_states"):
        return True
    return flag(raw)


def wide(raw: object) -> object:
    """True, false, ``full`` (pure bf16), or ``auto``: left to what the device has."""
    if isinstance(raw, str) and raw.lower() == "full":
        return True
    return flag(raw)


def adapter(raw: object) -> object:
    """Which kind of fine-tuning."""
    if raw is None or raw == "":
        return UNSTATED
    if str(raw).lower() not in ("lora", "qlora", "llama-adapter", "relora"):
        raise Foreign("lora, qlora")
    return "qlora" if str(raw).lower() == "qlora" else "lora"


def precompiled(raw: object) -> object:
    """Plugins: cut cross-entropy and Liger fuse the loss."""
    if not isinstance(raw, list):
        return UNSTATED
    return any("CutCrossEntropy" in str(one) or "Liger" in str(one) for one in raw) or UNSTATED


ROWS = (
    FlagRow("base_model", "_name", word),
    FlagRow("sequence_len", "seq_len", count, 512),
    FlagRow("micro_batch_size", "micro_batch", count, 1),
    FlagRow("gradient_accumulation_steps", "gradient_accumulation", count, 1),
    FlagRow("batch_size", "_total", count),
    FlagRow("gradient_checkpointing activation_checkpointing", "_recompute", recompute, False),
    FlagRow("activation_offloading layer_offloading", "_offload_activations", moved, False),
    FlagRow("optimizer", "optimizer", word, "adamw_torch_fused"),
    FlagRow("adapter", "_adapter", adapter),
    FlagRow("lora_r", "_rank", count),
    FlagRow("lora_target_modules", "_targets", listed),
    FlagRow("lora_target_linear", "_every", flag, False),
    FlagRow("gptq", "_gptq", flag, False),
    FlagRow("bf16", "_bf16", wide, "auto"),
    FlagRow("bfloat16", "_load_bf16", flag, False),
    FlagRow("float16", "_load_fp16", flag, False),
    FlagRow("fp16", "_fp16", flag, False),
    FlagRow("fp8", "_narrow", yields("fp8"), False),
    FlagRow("attn_implementation", "attention", attention, "sdpa"),
    FlagRow("flash_attention", "attention", yields("flash")),
    FlagRow("sdp_attention", "attention", yields("fused")),
    FlagRow("flex_attention", "attention", yields("fused")),
    FlagRow("xformers_attention", "attention", yields("xformers")),
    FlagRow("eager_attention", "attention", yields("unfused")),
    FlagRow("sage_attention", "attention", yields("fused")),
    FlagRow("tensor_parallel_size", "tensor_parallel", degree, 1),
    FlagRow("expert_parallel_size", "expert_parallel", degree, 1),
    FlagRow("context_parallel_size sequence_parallel_degree", "context_parallel", degree, 1),
    FlagRow("dp_shard_size", "fsdp.shard_degree", degree),
    FlagRow("dp_replicate_size", "fsdp.replicate_degree", degree),
    FlagRow("fsdp", "_fsdp", anything),
    FlagRow("fsdp_version fsdp_config.fsdp_version", "fsdp.version", count, 1),
    FlagRow("fsdp_config.offload_params fsdp_config.fsdp_offload_params", "_offload_fsdp", flag, False),
    FlagRow("fsdp_config.sharding_strategy fsdp_config.fsdp_sharding_strategy", "fsdp.sharding", word),
    FlagRow(
        "fsdp_config.reshard_after_forward fsdp_config.fsdp_reshard_after_forward",
        "fsdp.reshard_after_forward",
        one_of({"true": True, "false": False}),
        True,
    ),
    FlagRow(
        "fsdp_config.activation_checkpointing fsdp_config.fsdp_activation_checkpointing",
        "_fsdp_recompute",
        yields("full", "none"),
    ),
    *(row for row in hf.TRAINER_ROWS if row.flags.startswith("deepspeed.z")),
    FlagRow("deepspeed", "_deepspeed", anything),
    FlagRow("plugins", "fused_cross_entropy", precompiled),
    FlagRow("load_in_4bit", "_four_bit", flag, False),
    FlagRow("rl", "_rl", word),
    FlagRow("world_size", "_gpus", count),
    FlagRow("ring_attn_func", "_ring", word),
    FlagRow("sample_packing", "_packing", flag),
    FlagRow("batch_flattening", "_padding_free", flag),
    FlagRow("pad_to_sequence_len", "_padded_whole", flag),
    FlagRow("group_by_length", "_by_length", flag),
    FlagRow("flash_attn_cross_entropy liger_fused_linear_cross_entropy cut_cross_entropy", "_fused_loss", flag),
)


def rules(reading: LaunchReading) -> None:
    """Axolotl's flags; the mesh of its degrees is the world where all of it is stated."""
    reading.model_name = reading.one("_name")
    if reading.one("_fp16") and reading.one("_bf16"):
        reading.conflict("bf16 and fp16, both true")
    else:
        reading.put(
            "dtype",
            reading.one("_narrow")
            or ("bf16" if reading.one("_bf16") else "fp16" if reading.one("_fp16") else None),
        )
    reading.put(
        "dtype", "bf16" if reading.one("_load_bf16") else "fp16" if reading.one("_load_fp16") else None
    )
    hf.fsdp(reading)
    if reading.one("_recompute") == "offload":
        reading.said.pop("_recompute")
        reading.put("recompute", "full")
        reading.say("_offload_activations", True, "gradient_checkpointing offload")
    reading.put("recompute", reading.one("_recompute") or reading.one("_fsdp_recompute"))
    gptq = reading.one("_gptq") and reading.one("_adapter") == "lora"
    every = "all" if reading.one("_every") else None
    common.adapter(reading, "gptq-lora" if gptq else reading.one("_adapter"), None, every)
    common.devices(reading)
    common.offload(reading)
    common.batching(reading)
    if reading.one("_fused_loss"):
        reading.put("fused_cross_entropy", True)
    _mesh(reading)
    common.beside(reading, "_deepspeed", "deepspeed")
    common.beside(reading, "_accelerate", "accelerate")


def _mesh(reading: LaunchReading) -> None:
    """Data-parallel ranks, where the degrees leave none open: shards are stated and either copies of them or what splits a model.

    Without copies a larger world would be taken for more of them (axolotl src/axolotl/utils/distributed.py
    ``_get_parallel_config_kwargs``): such a mesh of shards alone is left open.
    """
    shards, copies = reading.one("fsdp.shard_degree"), reading.one("fsdp.replicate_degree")
    whole = copies or (reading.one("tensor_parallel") and reading.one("context_parallel"))
    if shards and shards > 1 and whole:  # one of each is as good as none
        data = shards * (copies or 1) * (reading.one("expert_parallel") or 1)
        reading.put("data_parallel", data, derived=True)
        micro, steps = reading.one("micro_batch"), reading.one("gradient_accumulation")
        if copies and micro and steps:
            reading.put("global_batch", micro * steps * data, derived=True)


AXOLOTL = Dialect(
    name="axolotl",
    framework="axolotl",
    source=SOURCE,
    rows=ROWS,
    unpriced=hf.UNPRICED
    | words(
        """
        sample_packing sample_packing_* multipack_real_batches pad_to_sequence_len excess_length_strategy
        lora_target_parameters lora_modules_to_save lora_*_kernel lora_on_cpu peft*
        relora* lisa_* unfrozen_parameters load_in_8bit flash_attn_fuse_* flash_attn_rms_norm liger_* unsloth_*
        torch_compile* tiled_mlp* tf32 use_kernels experts_implementation quantize_moe_experts
        llama4_linearized_experts heads_k_stride chunked_cross_entropy* selective_checkpointing
        gradient_checkpointing_kwargs gradient_checkpointing_kwargs.* recompute_layer_types dynamic_checkpoint*
        deepcompile s2_attention qat qat.* quantization quantization.* fused_attn_kernel sdpa_varlen scattermoe*
        expert_parallel* kernels* fp8_enable_fsdp_float8_all_gather embeddings_skip_upcast overrides_of_model_config
        overrides_of_model_config.* overrides_of_model_kwargs overrides_of_model_kwargs.* batch_flattening
        eval_sample_packing trl trl.* vllm vllm.* rope_scaling rope_scaling.* fsdp_config.cpu_offload_pin_memory
        use_scattermoe use_sonicmoe gptq_* max_packed_sequence_len model_config.* flex_attn_compile_kwargs.* diffusion.*
        freeze_mm_modules use_onebitllms  mxfp4* model_quantization_config model_quantization_config.*
        model_quantization_config_kwargs.* moe_* pretrain_multipack_* flash_optimum noisy_embedding_alpha ebft.* kd_*
        nvfp4* large_head_attention flash_attn_d512
        """
    ),
    irrelevant=hf.IRRELEVANT
    | words(
        """
        tokens.* swanlab_* use_swanlab nemo_gym_* torchdistx_path min_sample_len bnb_config_kwargs.*
        base_model_config base_model_ignore_patterns tokenizer_config tokenizer_type tokenizer_use_fast tokenizer_legacy
        tokenizer_use_mistral_common tokenizer_save_jinja_files resize_token_embeddings_to_32x shrink_embeddings
        model_type type_of_model processor_type processor_kwargs.* revision_of_model is_falcon_derived_model
        is_llama_derived_model is_mistral_derived_model is_qwen_derived_model strict wandb_* mlflow_* use_mlflow use_wandb
        use_comet comet_* hf_mlflow_log_artifacts use_tensorboard use_trackio gradio_* output_dir val_set_size num_epochs
        saves_per_epoch evals_per_epoch lr_scheduler cosine_* lr_* loraplus_* loss_watchdog_* special_tokens
        special_tokens.* tokens added_tokens_overrides* datasets test_datasets pretraining_dataset shuffle_* dataset_*
        data_seed chat_template chat_template_jinja chat_template_kwargs.* default_system_message train_on_inputs
        train_on_eos group_by_length early_stopping_patience load_best_model_at_end auto_resume_from_checkpoints
        resume_from_checkpoint local_rank lora_alpha lora_dropout lora_model_dir lora_fan_in_fan_out hub_model_id
        hf_use_auth_token push_dataset_to_hub save_first_step save_strategy save_safetensors adam_* weight_decay
        max_grad_norm eot_tokens eval_table_size eval_max_new_tokens eval_causal_lm_metrics do_causal_lm_eval
        do_bench_eval bench_dataset debug remove_unused_columns sequence_parallel_* xformers fix_untrained_tokens
        neftune_noise_alpha seed ddp_* device_map max_memory gpu_memory_limit low_cpu_mem_usage
        experimental_skip_move_to_device unsloth_* message_* field_* roles* image_size image_resize_algorithm ray_*
        use_ray resources_per_worker total_num_tokens plugins_* adapter_* merge_* orpo_alpha rl_beta dpo_* kto_*
        simpo_gamma cpo_alpha rpo_alpha streaming* preprocess_* skip_prepare_dataset process_reward_model reward_model
        num_labels center_rewards_coefficient auto_find_batch_size capabilities.* env_capabilities.* profiler_steps*
        gc_steps include_tkps eval_batch_size use_otel_metrics otel_* generate_samples generation_* num_generation_samples
        cls_model_config mean_resizing_embeddings optim_target_modules dion_* reinit_weights
        """
    ),
    signature=words(
        """
        base_model sequence_len micro_batch_size dataset_prepared_path val_set_size sample_packing adapter datasets
        """
    ),
    rules=rules,
    write=said_trainers.axolotl,
    defaults=hf.DEFAULTS | {"micro_batch": 1, "optimizer": "adamw_torch_fused", "dtype": "bf16"},
    layout="yaml",
    reads=frozenset({"yaml", "json", "args"}),
    software="hf-fsdp",
)

"""LLaMA-Factory's YAML over TrainingArguments, of its first layout and of version 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costmodel.interop.launchers import common
from costmodel.interop.launchers.dialects import huggingface as hf
from costmodel.interop.launchers.dialects import said_trainers
from costmodel.interop.launchers.table import Dialect, FlagRow, words
from costmodel.interop.launchers.values import (
    anything,
    attention,
    count,
    flag,
    listed,
    one_of,
    rest,
    word,
    yields,
)

if TYPE_CHECKING:
    from costmodel.interop.launchers.table import LaunchReading

SOURCE = "hiyouga/LLaMA-Factory src/llamafactory/hparams and src/llamafactory/v1/config@ff6d4d12ee"
OWN = (
    FlagRow("cutoff_len", "seq_len", count, 2048),
    FlagRow("flash_attn", "attention", attention, "auto"),
    FlagRow(
        "finetuning_type",
        "_method",
        one_of({"full": "full", "lora": "lora", "freeze": "freeze", "oft": "lora"}),
        "lora",
    ),
    FlagRow("quantization_bit", "_bits", count),
    FlagRow("disable_gradient_checkpointing", "_recompute", yields("none", "full"), False),
    FlagRow("pure_bf16", "_pure", flag, False),
    FlagRow("fp8", "_narrow", yields("fp8"), False),
    FlagRow("model", "_name", word, None, "v1"),
    FlagRow("micro_batch_size", "micro_batch", count, None, "v1 and Megatron"),
    FlagRow("batch_size global_batch_size", "global_batch", count, None, "v1"),
    FlagRow("cp_size", "_cp", count, 1, "v1"),
    FlagRow("cp_mode", "_cp_mode", word, "ulysses", "v1"),
    FlagRow("dp_size", "_dp", anything, None, "v1"),
    FlagRow("mp_shard_size", "fsdp.shard_degree", rest, None, "v1"),
    FlagRow("mp_replicate_size", "fsdp.replicate_degree", count, None, "v1"),
    FlagRow(
        "dist_config.name",
        "_backend",
        one_of({"fsdp2": "fsdp2", "fsdpturbo": "fsdp2", "deepspeed": "deepspeed", "ddp": "ddp"}),
        None,
        "v1",
    ),
    FlagRow("dist_config.config_file", "_config_file", word, None, "v1"),
    FlagRow("dist_config.zero_stage", "zero_stage", count, None, "v1"),
    FlagRow("dist_config.offload_params", "_offload_fsdp", flag, None, "v1"),
    FlagRow(
        "dist_config.mixed_precision mixed_precision",
        "_dtype",
        one_of({"bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}),
        "bf16",
        "v1",
    ),
    FlagRow("dist_config.reshard_after_forward", "fsdp.reshard_after_forward", flag, None, "v1"),
    FlagRow("enable_activation_checkpointing", "_recompute", yields("full", "none"), None, "v1"),
    FlagRow("peft_config.name", "_peft_name", word, None, "v1"),
    FlagRow("quant_config.name", "_quant", word, None, "v1"),
    FlagRow("quant_config.quantization_bit", "_bits", count, None, "v1"),
    FlagRow("peft_config.r", "_rank", count, None, "v1"),
    FlagRow("lora_rank", "_rank", count, 8),
    FlagRow("lora_target peft_config.target_modules", "_targets", listed, "all"),
    FlagRow("optim_config.name", "optimizer", word, None, "v1"),
    FlagRow("tensor_model_parallel_size", "tensor_parallel", count, 1, "with Megatron"),
    FlagRow("pipeline_model_parallel_size", "pipeline_parallel", count, 1, "with Megatron"),
    FlagRow("context_parallel_size", "context_parallel", count, 1, "with Megatron"),
    FlagRow("expert_model_parallel_size", "expert_parallel", count, 1, "with Megatron"),
    FlagRow("virtual_pipeline_model_parallel_size", "virtual_stages", count, 1, "with Megatron"),
    FlagRow("sequence_parallel", "sequence_parallel", flag, False, "with Megatron"),
    FlagRow("use_distributed_optimizer", "zero_stage", yields(1, 0), False, "with Megatron"),
    FlagRow(
        "recompute_granularity",
        "_recompute",
        one_of({"full": "full", "selective": "selective"}),
        None,
        "with Megatron",
    ),
    FlagRow("overlap_grad_reduce", "overlap_gradients", flag),
    FlagRow("overlap_param_gather", "overlap_parameters", flag),
    FlagRow("cross_entropy_loss_fusion", "fused_cross_entropy", flag),
    FlagRow("neat_packing", "_packing", flag, False),
    FlagRow("packing", "_joined", flag, False),  # full sequences, with attention over all of one
    FlagRow("use_badam", "_badam", flag, False),
    FlagRow("use_galore", "_galore", flag, False),
    FlagRow("use_apollo", "_apollo", flag, False),
    FlagRow("use_adam_mini", "_mini", flag, False),
    FlagRow("use_muon", "_muon", flag, False),
)
TAKEN = {spelling for row in OWN for spelling in row.flags.split()}


def rules(reading: LaunchReading) -> None:
    """LLaMA-Factory's own flags, then the Trainer's."""
    if reading.one("_method") == "lora" or "lora" in str(reading.one("_peft_name", "")):
        common.adapter(reading, "qlora" if reading.one("_bits") == 4 else "lora", 8, "all")
    if reading.one("_method") == "freeze":
        reading.unpriced.append("finetuning_type=freeze")
    if reading.one("_backend") == "fsdp2":
        reading.say("fsdp.version", 2, "dist_config.name fsdp2")
    degree = reading.one("_cp")
    if degree and degree > 1:
        reading.put(
            "ulysses_parallel" if reading.one("_cp_mode", "ulysses") == "ulysses" else "context_parallel",
            degree,
        )
    for name in ("badam", "galore", "apollo", "mini"):
        if reading.one(f"_{name}"):
            reading.unpriced.append(f"use_{name}")
    if reading.one("_muon"):
        reading.put("optimizer", "muon")
    if reading.one("_pure"):
        reading.put("dtype", "bf16")
        reading.put("gradient_bytes", 2)
    hf.trainer(reading)
    if {
        "dist_config.name",
        "micro_batch_size",
        "model",
    } & reading.keys and "model_name_or_path" not in reading.keys:
        reading.version = "v1"
        reading.defaults |= {"micro_batch": 1, "gradient_accumulation": None, "attention": "auto"}
    common.beside(reading, "_deepspeed", "deepspeed")
    common.beside(reading, "_config_file", "deepspeed")
    common.beside(reading, "_accelerate", "accelerate")


LLAMA_FACTORY = Dialect(
    name="llama-factory",
    framework="llama-factory",
    source=SOURCE,
    rows=(*OWN, *(row for row in (*hf.TRAINER_ROWS, *hf.MODEL_ROWS) if not TAKEN & set(row.flags.split()))),
    unpriced=hf.UNPRICED
    | words(
        """
        additional_target create_new_adapter use_unsloth use_unsloth_gc use_reentrant_gc upcast_layernorm
        upcast_lmhead_output shift_attn mixture_of_depths rope_scaling fp8_backend fp8_enable_fsdp_float8_all_gather
        use_llama_pro freeze_* galore_* apollo_* badam_* double_quantization quantization_method quantization_type
        quantization_device_map loraplus_* pissa_* efficient_eos block_diag_attn kernel_config kernel_config.* init_config
        init_config.* quant_config.* peft_config.* dist_config.* use_kt kt_* use_v1_kernels batching_strategy
        use_hyper_parallel hyper_parallel_* moe_grouped_gemm moe_token_dispatcher_type bias_activation_fusion
        apply_rope_fusion masked_softmax_fusion account_for_* recompute_method recompute_num_layers use_mca
        use_megatron_bridge use_packed_sequences overlap_p2p_comm lora_dropout_p lora_expert* oft_* module_dropout use_ray
        infer_* train_from_scratch resize_vocab image_max_pixels video_max_pixels vllm_config.* calculate_per_token_loss
        """
    ),
    irrelevant=hf.IRRELEVANT
    | words(
        """
        stage template tool_format train_on_prompt mask_history data_shared_file_system dataset_dir media_dir mix_strategy
        interleave_probs overwrite_cache preprocessing_batch_size ignore_pad_token_for_loss val_size eval_num_beams
        tokenized_path default_system enable_thinking preserve_thinking adapter_folder cache_dir split_special_tokens
        add_tokens add_special_tokens new_special_tokens_config init_special_tokens print_param_status export_* vllm_*
        sglang_* image_* video_* audio_* use_audio_in_video crop_to_patches use_fast_image_processor hf_hub_token
        ms_hub_token om_hub_token plot_loss compute_accuracy include_effective_tokens_per_second swanlab_* use_swanlab
        ray_* early_stopping_steps pref_* dpo_label_smoothing kto_* ppo_* reward_model* ref_model* simpo_gamma ld_alpha
        use_dft_loss use_asft_loss asft_alpha use_eaft_loss eaft_alpha model_class train_dataset eval_dataset dataset
        max_samples buffer_size batching_workers dist_timeout disable_shuffling data_seed sample_backend max_new_tokens
        skip_special_tokens quantization_* dist_config dcp_path dist_config.dcp_path lr_scheduler_config
        lr_scheduler_config.* optim_config optim_config.* seed save_ckpt_as_hf save_epochs enable_torch_profiler
        profiler_* moe_aux_loss_coef additional_target_* eval_on_each_dataset task task_dir lang n_shot mcore_* trainer_*
        megatron_pretrained_checkpoint peft_config.lora_alpha profile_modules custom_chat_template parser
        """
    ),
    signature=words(
        """
        finetuning_type stage template cutoff_len lora_target dataset_dir preprocessing_num_workers plot_loss
        dist_config.* peft_config.* train_dataset quantization_bit flash_attn
        """
    ),
    rules=rules,
    write=said_trainers.llama_factory,
    defaults=hf.DEFAULTS | {"recompute": "full", "attention": "auto", "seq_len": 2048},
    layout="yaml",
    reads=frozenset({"yaml", "json", "args"}),
    software="hf-fsdp",
)

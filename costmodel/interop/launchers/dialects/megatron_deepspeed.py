"""Megatron-DeepSpeed arguments: Megatron's of 2022, and DeepSpeed's own."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from costmodel.description.mixtures import expert_layout
from costmodel.interop.launchers import common
from costmodel.interop.launchers.dialects import megatron, said_megatron
from costmodel.interop.launchers.settle import schedule_of
from costmodel.interop.launchers.table import FlagRow, words
from costmodel.interop.launchers.values import anything, count, degree, flag, number, whole, word, yields

if TYPE_CHECKING:
    from costmodel.interop.launchers.table import LaunchReading

OWN = (
    FlagRow("zero_stage", "zero_stage", whole, 0),
    FlagRow("ds_sequence_parallel_size", "ulysses_parallel", count, 1),
    FlagRow("moe_expert_parallel_size", "expert_parallel", degree, 1),
    FlagRow("topk", "_topk", count, 1),
    FlagRow("expert_interval", "_interval", count, 2),
    FlagRow("deepspeed", "_deepspeed", anything),
    FlagRow("deepspeed_config", "_config_file", word),
    FlagRow("deepspeed_activation_checkpointing", "_deepspeed_recompute", flag),
    FlagRow("no_pipeline_parallel", "_no_pipeline", flag, False),
    FlagRow("checkpoint_in_cpu", "_offload_activations", flag, False),
    FlagRow("cpu_optimizer", "_offload_optimizer", flag, False),
    FlagRow(
        "enable_zbh1_pipeline enable_zbh1_exact_semantics",
        "schedule",
        yields("zero-bubble"),
        None,
        "from 2024",
    ),
    FlagRow("disable_moe_token_dropping", "_dropless", flag, False),
    FlagRow("moe_train_capacity_factor", "_capacity", number, 1.0),
)


def rules(reading: LaunchReading) -> None:
    """Megatron's rules, and DeepSpeed's JSON beside the arguments."""
    megatron.shape(reading)
    _interval(reading)
    megatron.chunks(reading)
    megatron.sharding(reading)
    common.offload(reading)
    megatron.recompute(reading)
    megatron.precision(reading)
    reading.put("attention", reading.one("_attention"))
    if reading.has("schedule"):
        reading.put("schedule", reading.one("schedule"))
    schedule_of(reading)
    if reading.one("_no_pipeline") and (reading.one("pipeline_parallel") or 1) > 1:
        reading.conflict("--no-pipeline-parallel and --pipeline-model-parallel-size of more than 1")
    _configuration(reading)


def _interval(reading: LaunchReading) -> None:
    """One layer in so many has experts (microsoft/Megatron-DeepSpeed megatron/model/transformer.py, ``ParallelTransformer``)."""
    layers, interval = reading.one("model.num_layers"), reading.one("_interval", 2)
    if reading.has("model.num_experts") and layers and interval:
        for field, value in expert_layout([(layer + 1) % interval == 0 for layer in range(layers)]).items():
            reading.say(f"model.{field}", value, f"expert_interval {interval}")


def _configuration(reading: LaunchReading) -> None:
    """DeepSpeed's JSON, which a script often writes itself: its name is a variable then."""
    flag = next((shown for shown in reading.unresolved if shown.lstrip("-").replace("-", "_") == "deepspeed_config"), None)
    if flag is not None:
        reading.say("_config_file", reading.unresolved.pop(flag), flag)
    if not reading.has("zero_stage"):
        common.beside(reading, "_config_file", "deepspeed")


TAKEN = {spelling for row in OWN for spelling in row.flags.split()}
MEGATRON_DEEPSPEED = dataclasses.replace(
    megatron.MEGATRON,
    name="megatron-deepspeed",
    framework="megatron-deepspeed",
    source="microsoft/Megatron-DeepSpeed megatron/arguments.py@f4157bea69",
    rows=(*OWN, *(row for row in megatron.MEGATRON.rows if not TAKEN & set(row.flags.split()))),
    signature=words(
        """
        deepspeed deepspeed_config zero_stage ds_sequence_parallel_size deepspeed_activation_checkpointing
        no_pipeline_parallel num_layers tensor_model_parallel_size num_attention_heads micro_batch_size
        """
    ),
    unpriced=megatron.MEGATRON.unpriced
    | words(
        """
        mos kd mlp_type pp_partition_method partition_activations contigious_checkpointing synchronize_each_layer
        use_flash_attn_triton use_fast_math ds_fused_adam use_tutel enable_expert_tensor_parallelism
        ds_sequence_parallel_fpdt ds_sequence_parallel_fpdt_chunk_size ds_sequence_parallel_fpdt_offloading
        force_ds_sequence_parallel random_ltd zero_reduce_scatter zero_contigious_gradients
        zero_allgather_bucket_size zero_reduce_bucket_size profile_backward disable_mem_efficient_ln
        data_efficiency_curriculum_learning remote_device cpu_torch_adam use_pin_memory
        num_experts_switch
        """
    ),
    irrelevant=megatron.MEGATRON.irrelevant
    | words(
        """
        tokenizer_name_or_path kill_switch_path eval_only dataset_ratios_path deepscale
        deepscale_config deepspeed_mpi lr_decay_tokens lr_warmup_tokens train_tokens moe_loss_coeff
        moe_eval_capacity_factor disable_moe_top2_2nd_expert_sampling data_impl mmap_warmup codecarbon_dir
        kill_switch_file create_moe_param_group log_optimizer_states_to_tensorboard no_load_lr_state load_tag
        load_teacher num_layers_teacher hidden_size_teacher num_attention_heads_teacher num_experts_teacher
        kd_alpha_ce kd_beta_ce kd_temp inference ds_inference eval_fp32 universal_checkpoint
        train_data_exact_num_epochs train_desc_path train_doc_idx_path train_idx_path train_sample_idx_path
        train_shuffle_idx_path return_data_index repeated_dataloader data_cache_path use_dataset_only
        reset_iteration rotary_position_embeddings_theta abort_on_unmet_fused_kernel_constraints pad_vocab_size_to
        reweight_loss_based_on_position_frequency loss_on_targets_only noise_density mean_noise_span_length
        position_embedding_type skip_train_iteration_range layernorm_tp_auto_sync sync_tp_duplicated_parameters
        glu_activation log_level log_level_replica log_path train_weighted_split_paths
        train_weighted_split_paths_path valid_weighted_split_paths test_weighted_split_paths eval_micro_batch_size
        reset_progress use_bnb_optimizer valid_num_workers prefetch_factor
        """
    ),
    rules=rules,
    write=said_megatron.megatron_deepspeed,
    defaults=dict(megatron.MEGATRON.defaults) | {"ulysses_parallel": 1, "attention": "unfused"},
    software="megatron-deepspeed",
)

"""DeepSpeed's JSON configuration, alone or beside a trainer's file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costmodel.interop.launchers import common
from costmodel.interop.launchers.dialects import said_trainers
from costmodel.interop.launchers.table import UNSPLIT, Dialect, FlagRow, words
from costmodel.interop.launchers.values import UNSTATED, Expected, anything, count, flag, number, whole, word

if TYPE_CHECKING:
    from costmodel.interop.launchers.table import LaunchReading

SOURCE = "microsoft/DeepSpeed docs/_pages/config-json.md and deepspeed/runtime/config.py, 0.17"


def device(raw: object) -> object:
    """Whether something is moved: to the CPU or to disk."""
    if raw is None or str(raw).lower() == "none":
        return False if raw is not None else UNSTATED
    if str(raw).lower() == "auto":
        return UNSTATED
    if str(raw).lower() not in ("cpu", "nvme"):
        raise Expected("cpu, nvme or none")
    return str(raw).lower()


def auto_flag(raw: object) -> object:
    """True or false, or left to the trainer."""
    return UNSTATED if isinstance(raw, str) and raw.lower() == "auto" else flag(raw)


ROWS = (
    FlagRow("train_batch_size", "global_batch", count, "micro x accumulation x ranks"),
    FlagRow("train_micro_batch_size_per_gpu", "micro_batch", count),
    FlagRow("gradient_accumulation_steps", "gradient_accumulation", count, 1),
    FlagRow("bf16.enabled bfloat16.enabled", "_bf16", auto_flag, False),
    FlagRow("fp16.enabled", "_fp16", auto_flag, False),
    FlagRow("zero_optimization.stage", "zero_stage", whole, 0),
    FlagRow("zero_optimization.offload_optimizer.device", "_device_optimizer", device, "none", "from 0.3.16"),
    FlagRow("zero_optimization.offload_param.device", "_device_parameters", device, "none", "from 0.3.16"),
    FlagRow("zero_optimization.offload_optimizer.ratio", "_offload_fraction", number, 1.0, "from 0.12"),
    FlagRow("zero_optimization.cpu_offload", "_offload_optimizer", flag, False, "to 0.3.15"),
    FlagRow("zero_optimization.cpu_offload_params", "_offload_parameters", flag, False, "to 0.3.15"),
    FlagRow("zero_optimization.overlap_comm", "_overlap", auto_flag, "true at stage 3"),
    FlagRow(
        "zero_optimization.mics_shard_size",
        "shard_group",
        lambda raw: UNSTATED if raw == -1 else count(raw),
        -1,
    ),
    FlagRow("zero_optimization.zero_hpz_partition_size", "_hpz", count, 1, "from 0.10"),
    FlagRow("optimizer.type", "optimizer", word),
    FlagRow("optimizer", "_optimizer_empty", anything),
    FlagRow("optimizer.params.torch_adam", "_torch_adam", flag),
    FlagRow("sequence_parallel_size", "ulysses_parallel", count, 1, "from 0.15"),
    FlagRow("tensor_parallel.autotp_size", "tensor_parallel", whole, 0, "from 0.16"),
    FlagRow("pipeline.stages", "_pipeline", anything),
    FlagRow("data_types.grad_accum_dtype", "_gradient_dtype", word),
    FlagRow("zero_optimization", "_zero", anything),
    FlagRow("fp16.fp16", "_odd", anything),
    FlagRow("zero_force_ds_cpu_optimizer", "_force", flag),
)
UNPRICED = words(
    """
    zero_optimization.reduce_bucket_size zero_optimization.allgather_bucket_size
    zero_optimization.stage3_prefetch_bucket_size zero_optimization.stage3_param_persistence_threshold
    zero_optimization.stage3_max_live_parameters zero_optimization.stage3_max_reuse_distance
    zero_optimization.sub_group_size zero_optimization.contiguous_gradients zero_optimization.reduce_scatter
    zero_optimization.allgather_partitions zero_optimization.use_multi_rank_bucket_allreduce
    zero_optimization.round_robin_gradients zero_optimization.ignore_unused_parameters zero_optimization.legacy_stage1
    zero_optimization.zero_hpz_partition_size zero_optimization.zero_quantized_weights
    zero_optimization.zero_quantized_gradients zero_optimization.zero_quantized_nontrainable_weights
    zero_optimization.memory_efficient_linear zero_optimization.mics_hierarchical_params_gather
    zero_optimization.model_persistence_threshold zero_optimization.max_live_parameters
    zero_optimization.max_reuse_distance zero_optimization.prefetch_bucket_size
    zero_optimization.param_persistence_threshold zero_optimization.stage3_module_granularity_threshold
    zero_optimization.stage3_use_all_reduce_for_fetch_params zero_optimization.zeropp_loco_param*
    zero_optimization.stage3_allgather_sequential zero_optimization.cpu_offload_use_pin_memory
    zero_optimization.offload_optimizer.pin_memory zero_optimization.offload_optimizer.buffer_count
    zero_optimization.offload_optimizer.pipeline_read zero_optimization.offload_optimizer.pipeline_write
    zero_optimization.offload_optimizer.pipeline zero_optimization.offload_optimizer.fast_init
    zero_optimization.offload_optimizer.nvme_path zero_optimization.offload_optimizer.max_in_cpu
    zero_optimization.offload_optimizer.super_offload zero_optimization.offload_optimizer.cpuadam_cores_perc
    zero_optimization.offload_param.pin_memory zero_optimization.offload_param.buffer_count
    zero_optimization.offload_param.buffer_size zero_optimization.offload_param.max_in_cpu
    zero_optimization.offload_param.nvme_path aio.* activation_checkpointing activation_checkpointing.* sparse_attention
    sparse_attention.* curriculum_learning curriculum_learning.* curriculum_learning_legacy.* data_efficiency
    data_efficiency.* compression_training compression_training.* communication_data_type fp32_allreduce sparse_gradients
    amp amp.* torch_autocast.* autotuning autotuning.* compile compile.* hybrid_engine.* quantize_training.*
    progressive_layer_drop.* eigenvalue.* elasticity elasticity.* zero_allow_comm_data_type_fp32
    bf16.immediate_grad_update bf16.bf16_master_weights_and_grads bf16.bf16_optimizer_states
    fp16.fp16_master_weights_and_grads fp16.auto_cast seq_parallel_communication_data_type use_node_local_storage
    data_types.* graph_harvesting tensor_parallel tensor_parallel.* expert_parallel.* optimizer.params.cuda_aware
    optimizer.params.comm_backend_name pipeline.* checkpoint.parallel_write.* sequence_data_parallel_size
    """
)
IRRELEVANT = words(
    """
    bf16.check_grad_overflow steps_per_print wall_clock_breakdown gradient_clipping prescale_gradients
    gradient_predivide_factor dump_state memory_breakdown zero_allow_untested_optimizer
    zero_optimization.stage3_gather_16bit_weights_on_model_save zero_optimization.stage3_gather_fp16_weights_on_model_save
    zero_optimization.gather_16bit_weights_on_model_save zero_optimization.load_from_fp32_weights
    zero_optimization.elastic_checkpoint zero_optimization.override_module_apply
    zero_optimization.log_trace_cache_warnings elastic_checkpoint disable_allgather optimizer.params optimizer.params.*
    optimizer.legacy_fusion scheduler scheduler.* fp16.loss_scale fp16.loss_scale_window fp16.initial_scale_power
    fp16.hysteresis fp16.min_loss_scale fp16.consecutive_hysteresis fp16.opt_level fp16.* tensorboard tensorboard.* wandb
    wandb.* comet comet.* csv_monitor csv_monitor.* monitor_config monitor_config.* flops_profiler flops_profiler.*
    comms_logger comms_logger.* comms_config comms_config.* checkpoint checkpoint.* dataloader_drop_last
    zero_optimization.comm_overlap _comment* nebula.* timers.* seed bf16 fp16 weight_quantization.* nccl_timeout
    """
) - words("zero_optimization.comm_overlap")


def rules(reading: LaunchReading) -> None:
    """What DeepSpeed's sections amount to."""
    reading.put("zero_stage", reading.one("zero_stage"))
    if reading.one("_zero") is True:
        reading.put("zero_stage", 1)  # before stages had numbers
    common.devices(reading)
    if reading.one("_offload_parameters") and not reading.has("_offload_optimizer"):
        reading.say("_offload_optimizer", False, "offload_optimizer")
    common.offload(reading)
    precision(reading)
    if reading.has("_overlap"):
        reading.put("overlap_gradients", reading.one("_overlap"))
        if reading.plan.get("zero_stage") == 3:
            reading.put("overlap_parameters", reading.one("_overlap"))
    hpz = reading.one("_hpz")
    if hpz and hpz > 1:
        reading.unpriced.append("zero_optimization.zero_hpz_partition_size")


def precision(reading: LaunchReading) -> None:
    """fp16 and bf16 sections; both on, or arguments that say the other, is a conflict."""
    half, brain = reading.one("_fp16"), reading.one("_bf16")
    stated = [name for name, on in (("fp16", half), ("bf16", brain)) if on]
    said = reading.said.get("_wide", [])
    if "dtype" in reading.settled:
        return
    if len(stated) == 2:
        reading.conflict("fp16.enabled and bf16.enabled, both true")
    elif stated and said and any(one.value != stated[0] for one in said):
        off = " and fp16 disabled" if half is False and said[0].value == "fp16" else ""
        reading.conflict(
            f"{said[0].shown} in the arguments, but {stated[0]} enabled{off} in DeepSpeed's configuration"
        )
        reading.plan.pop("dtype", None)
        reading.say("dtype", None, "")
    elif stated:
        reading.put("dtype", stated[0])
    elif (
        half is False
        and not said
        and (brain is False or not reading.keys & {"bf16.enabled", "bfloat16.enabled"})
    ):
        reading.put("dtype", "fp32", derived=True)


DEEPSPEED = Dialect(
    name="deepspeed",
    framework="deepspeed",
    source=SOURCE,
    rows=ROWS,
    unpriced=UNPRICED,
    irrelevant=IRRELEVANT,
    signature=words(
        """
        zero_optimization.* zero_optimization train_micro_batch_size_per_gpu train_batch_size
        zero_allow_untested_optimizer
        """
    ),
    rules=rules,
    write=said_trainers.deepspeed,
    defaults={
        **UNSPLIT,
        "ulysses_parallel": 1,
        "zero_stage": 0,
        "dtype": "fp32",
        "recompute": "none",
        "gradient_accumulation": 1,
        "offload": [],
    },
    layout="json",
    part=True,
    software="deepspeed",
)

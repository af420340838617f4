"""The YAML file of `accelerate config`: FSDP, DeepSpeed, Megatron, and parallel degrees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costmodel.interop.launchers import common
from costmodel.interop.launchers.dialects import deepspeed, said_trainers
from costmodel.interop.launchers.table import UNSPLIT, Dialect, FlagRow
from costmodel.interop.launchers.values import (
    UNSTATED,
    count,
    degree,
    flag,
    one_of,
    rest,
    whole,
    word,
    yields,
)

if TYPE_CHECKING:
    from costmodel.interop.launchers.table import LaunchReading



def strategy(raw: object) -> object:
    """FSDP's sharding strategy by name; accelerate also took numbers."""
    return UNSTATED if raw is None else common.FSDP_SHARDING.get(str(raw), str(raw))


FSDP_ROWS = (
    FlagRow("fsdp_config.fsdp_version", "fsdp.version", count, 1, "from 1.6"),
    FlagRow("fsdp_config.fsdp_sharding_strategy", "fsdp.sharding", strategy, "FULL_SHARD"),
    FlagRow("fsdp_config.fsdp_offload_params", "_offload_fsdp", flag, False),
    FlagRow(
        "fsdp_config.fsdp_activation_checkpointing", "_recompute", yields("full", "none"), False, "from 0.22"
    ),
    FlagRow(
        "fsdp_config.fsdp_reshard_after_forward",
        "fsdp.reshard_after_forward",
        one_of({"true": True, "false": False, **{name.lower(): UNSTATED for name in common.FSDP_STAGES}}),
        True,
        "from 1.6",
    ),
)
ROWS = (
    FlagRow("num_processes", "_gpus", count),
    FlagRow("num_machines", "_machines", count, 1),
    FlagRow(
        "distributed_type",
        "_kind",
        one_of(
            {
                "no": "no",
                "false": "no",
                "multi_gpu": "ddp",
                "fsdp": "fsdp",
                "deepspeed": "deepspeed",
                "megatron_lm": "megatron",
                "tpu": "tpu",
                "multi_cpu": "cpu",
                "multi_npu": "ddp",
                "multi_xpu": "ddp",
                "xla": "tpu",
            }
        ),
        "NO",
    ),
    FlagRow(
        "mixed_precision",
        "_precision",
        one_of({"no": "fp32", "false": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8"}),
        "no",
    ),
    *FSDP_ROWS,
    FlagRow("deepspeed_config.zero_stage", "zero_stage", whole, 2),
    FlagRow("deepspeed_config.gradient_accumulation_steps", "gradient_accumulation", count, 1),
    FlagRow("deepspeed_config.offload_optimizer_device", "_device_optimizer", deepspeed.device, "none"),
    FlagRow("deepspeed_config.offload_param_device", "_device_parameters", deepspeed.device, "none"),
    FlagRow("gradient_accumulation_steps", "gradient_accumulation", count, 1),
    FlagRow("parallelism_config.parallelism_config_tp_size", "tensor_parallel", count, 1, "from 1.10"),
    FlagRow("parallelism_config.parallelism_config_cp_size", "context_parallel", count, 1, "from 1.10"),
    FlagRow("parallelism_config.parallelism_config_sp_size", "ulysses_parallel", count, 1, "from 1.12"),
    FlagRow("parallelism_config.parallelism_config_dp_shard_size", "fsdp.shard_degree", rest, 1, "from 1.10"),
    FlagRow(
        "parallelism_config.parallelism_config_dp_replicate_size",
        "fsdp.replicate_degree",
        count,
        1,
        "from 1.10",
    ),
    FlagRow(
        "parallelism_config.parallelism_config_sp_attn_implementation", "_attention", word, None, "from 1.12"
    ),
    FlagRow("tp_config.tp_size", "tensor_parallel", degree, 1, "1.3 to 1.9"),
    FlagRow("megatron_lm_config.megatron_lm_tp_degree", "tensor_parallel", count, 1),
    FlagRow("megatron_lm_config.megatron_lm_pp_degree", "pipeline_parallel", count, 1),
    FlagRow("megatron_lm_config.megatron_lm_num_micro_batches", "gradient_accumulation", count, 1),
    FlagRow("megatron_lm_config.megatron_lm_use_distributed_optimizer", "zero_stage", yields(1, 0), False),
    FlagRow("megatron_lm_config.megatron_lm_sequence_parallelism", "sequence_parallel", flag, False),
    FlagRow(
        "megatron_lm_config.megatron_lm_recompute_activations",
        "_recompute",
        yields("selective", "none"),
        False,
    ),
    FlagRow("fp8_config.backend", "_fp8_backend", word),
    FlagRow("use_cpu", "_cpu", flag, False),
    FlagRow("dynamo_config.dynamo_backend", "_dynamo", word, "NO"),
    FlagRow("deepspeed_config.zero3_init_flag", "_init", flag),
    FlagRow("deepspeed_config.deepspeed_config_file", "_config_file", word),
)
PREFIX = "fsdp."


def rules(reading: LaunchReading) -> None:
    """Which of the sections applies, and what it amounts to."""
    kind = reading.one("_kind")
    if kind == "tpu" or kind == "cpu" or reading.one("_cpu"):
        reading.note("not a run on GPUs")
    precision = reading.one("_precision")
    if precision == "fp32":
        reading.put("dtype", precision, derived=True)
    reading.put("dtype", precision)
    if kind == "fsdp":
        fields = {
            name: reading.one(PREFIX + name)
            for name in ("version", "sharding", "reshard_after_forward")
            if reading.has(PREFIX + name)
        }
        fields.setdefault("version", None)
        if reading.has("_offload_fsdp"):
            fields["offload_params"] = reading.one("_offload_fsdp")
        if reading.has("_recompute"):
            fields["activation_checkpointing"] = reading.one("_recompute") == "full"
        fields |= {
            name: reading.one(PREFIX + name)
            for name in ("shard_degree", "replicate_degree")
            if reading.has(PREFIX + name)
        }
        common.fsdp(reading, fields)
        reading.put("recompute", reading.one("_recompute"))
        common.offload(reading)
    elif kind == "deepspeed" or kind is None:
        deepspeed.rules(reading)
        if kind == "deepspeed":
            reading.defaults["zero_stage"] = 2  # utils/dataclasses.py DeepSpeedPlugin
        common.beside(reading, "_config_file", "deepspeed")
    elif kind == "megatron":
        reading.put("recompute", reading.one("_recompute"))
    else:
        for field in ("_offload_fsdp", "_recompute", "zero_stage"):
            reading.said.pop(field, None)
    if reading.one("_attention") and not reading.has("attention"):
        reading.said.pop("_attention", None)


ACCELERATE = Dialect(
    name="accelerate",
    framework="accelerate",
    rows=ROWS,
    rules=rules,
    write=said_trainers.accelerate,
    defaults={
        **UNSPLIT,
        "ulysses_parallel": 1,
        "zero_stage": 0,
        "dtype": "fp32",
        "recompute": "none",
        "offload": [],
        "gradient_accumulation": 1,
    },
    layout="yaml",
    part=True,
    software="hf-fsdp",
)

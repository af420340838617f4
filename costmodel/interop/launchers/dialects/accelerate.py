"""The YAML file of `accelerate config`: FSDP, DeepSpeed, Megatron, and parallel degrees."""

from __future__ import annotations

from costmodel.interop.launchers import common, says
from costmodel.interop.launchers import values as unit
from costmodel.interop.launchers.dialects import deepspeed
from costmodel.interop.launchers.table import ABOVE_ONE, OWN, Dialect, FlagRow, LaunchReading, Writing


def strategy(raw: object) -> object:
    """FSDP's sharding strategy by name; accelerate also took numbers."""
    return unit.UNSTATED if raw is None else common.FSDP_SHARDING.get(str(raw), str(raw))


def kind(w: Writing) -> str:
    """What shards states, or whether nothing does."""
    return "DEEPSPEED" if w.by_deepspeed() else "FSDP" if w.by_fsdp() else "MULTI_GPU"


KINDS = {
    "no": "no", "false": "no", "multi_gpu": "ddp", "fsdp": "fsdp", "deepspeed": "deepspeed", "megatron_lm": "megatron",
    "tpu": "tpu", "multi_cpu": "cpu", "multi_npu": "ddp", "multi_xpu": "ddp", "xla": "tpu",
}  # fmt: skip
PRECISIONS = {"no": "fp32", "false": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8"}


def precision_word(w: Writing) -> object:
    """Mixed precision in accelerate's words, ``no`` of products in 32 bit and where it is off."""
    words = {"fp32": "no", "fp16": "fp16", "fp8": "fp8"}
    return "no" if w.plan.mixed_precision is False else words.get(str(w.plan.dtype), "bf16")


RESHARD = {"true": True, "false": False, **{name.lower(): unit.UNSTATED for name in common.FSDP_STAGES}}
MESH = "parallelism_config.parallelism_config_"
MEGATRON = "megatron_lm_config.megatron_lm_"
ROWS = (
    says.alone("compute_environment", says.fixed("LOCAL_MACHINE")),
    FlagRow("distributed_type", "_kind", unit.one_of(KINDS), "NO", says=kind),
    FlagRow("num_processes", "_gpus", unit.count, says=OWN),
    FlagRow("num_machines", "_machines", unit.count, 1, says=lambda w: max(1, w.plan.gpus // 8)),
    FlagRow("mixed_precision", "_precision", unit.one_of(PRECISIONS), "no",
            says=precision_word),
    FlagRow("deepspeed_config.zero_stage", "zero_stage", unit.whole, 2, says=OWN, when=Writing.by_deepspeed),
    FlagRow("deepspeed_config.gradient_accumulation_steps", "gradient_accumulation", unit.count, 1, says=OWN,
            when=Writing.by_deepspeed),
    FlagRow("deepspeed_config.offload_optimizer_device", "_device_optimizer", deepspeed.device, "none", says=OWN,
            when=Writing.by_deepspeed),
    FlagRow("deepspeed_config.offload_param_device", "_device_parameters", deepspeed.device, "none"),
    FlagRow(MESH + "sp_size", "ulysses_parallel", unit.count, 1, "from 1.12", says=ABOVE_ONE, when=Writing.by_deepspeed),
    FlagRow("fsdp_config.fsdp_version", "fsdp.version", unit.count, 1, "from 1.6", says=OWN, when=Writing.by_fsdp),
    FlagRow("fsdp_config.fsdp_sharding_strategy", "fsdp.sharding", strategy, "FULL_SHARD"),
    FlagRow("fsdp_config.fsdp_reshard_after_forward", "fsdp.reshard_after_forward", unit.one_of(RESHARD), True, "from 1.6",
            says=lambda w: w.plan.zero_stage == 3, when=Writing.by_fsdp),
    FlagRow("fsdp_config.fsdp_activation_checkpointing", "_recompute", unit.yields("full", "none"), False, "from 0.22",
            says="recompute", when=Writing.by_fsdp),
    FlagRow("fsdp_config.fsdp_offload_params", "_offload_fsdp", unit.flag, False, says=OWN, when=Writing.by_fsdp),
    FlagRow("fsdp_config.fsdp_cpu_ram_efficient_loading", "loading", unit.yields("one-rank", "every-rank")),
    says.alone("fsdp_config.fsdp_auto_wrap_policy", says.fixed("TRANSFORMER_BASED_WRAP"), Writing.by_fsdp),
    FlagRow(MESH + "dp_replicate_size", "fsdp.replicate_degree", unit.count, 1, "from 1.10", says=OWN, when=Writing.by_fsdp),
    FlagRow(MESH + "dp_shard_size", "fsdp.shard_degree", unit.rest, 1, "from 1.10", says=OWN, when=Writing.by_fsdp),
    FlagRow(MESH + "tp_size", "tensor_parallel", unit.count, 1, "from 1.10", says=OWN, when=Writing.by_fsdp),
    FlagRow(MESH + "cp_size", "context_parallel", unit.count, 1, "from 1.10", says=OWN, when=Writing.by_fsdp),
    FlagRow("gradient_accumulation_steps", "gradient_accumulation", unit.count, 1, says=OWN, when=lambda w: not w.by_deepspeed()),
    FlagRow(MESH + "sp_attn_implementation", "_attention", unit.word, None, "from 1.12"),
    FlagRow("tp_config.tp_size", "tensor_parallel", unit.degree, 1, "1.3 to 1.9"),
    FlagRow(MEGATRON + "tp_degree", "tensor_parallel", unit.count, 1),
    FlagRow(MEGATRON + "pp_degree", "pipeline_parallel", unit.count, 1),
    FlagRow(MEGATRON + "num_micro_batches", "gradient_accumulation", unit.count, 1),
    FlagRow(MEGATRON + "use_distributed_optimizer", "zero_stage", unit.yields(1, 0), False),
    FlagRow(MEGATRON + "sequence_parallelism", "sequence_parallel", unit.flag, False),
    FlagRow(MEGATRON + "recompute_activations", "_recompute", unit.yields("selective", "none"), False),
    FlagRow("use_cpu", "_cpu", unit.flag, False),
    FlagRow("deepspeed_config.zero3_init_flag", "_init", unit.flag),
    FlagRow("deepspeed_config.deepspeed_config_file", "_config_file", unit.word),
    says.alone("machine_rank", says.fixed(0)),
    says.alone("main_training_function", says.fixed("main")),
)


def rules(reading: LaunchReading) -> None:
    """Which of the sections applies, and what it amounts to; a flag of the command takes a file's place."""
    for field in OF_COMMAND & reading.said.keys():
        reading.said[field] = [one for one in reading.said[field] if one.shown.startswith("--")] or reading.said[field]
    kind = reading.one("_kind")
    if kind == "tpu" or kind == "cpu" or reading.one("_cpu"):
        reading.note("not a run on GPUs")
    precision = reading.one("_precision")
    if precision != "fp32":
        reading.put("dtype", precision)
    elif reading.one("_dtype") not in ("bf16", "fp16"):  # as which a script loads its model
        reading.put("dtype", precision, derived=True)
    if kind == "fsdp":
        fields = {"version": None, **common.stated_fsdp(reading, "version", "sharding", "reshard_after_forward")}
        fields |= common.offloaded_fsdp(reading)
        if reading.has("_recompute"):
            fields["activation_checkpointing"] = reading.one("_recompute") == "full"
        fields |= common.stated_fsdp(reading, "shard_degree", "replicate_degree")
        common.fsdp(reading, fields)
        reading.put("recompute", reading.one("_recompute"))
        common.offload(reading)
    elif kind == "deepspeed" or kind is None:
        deepspeed.rules(reading)
        if reading.one("_init") is False:  # the model is made whole, and then moved by the engine
            reading.put("loading", "whole", derived=True)
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


LAUNCHED = {
    "use_deepspeed": FlagRow("use_deepspeed", "_kind", unit.yields("deepspeed"), False),
    "use_fsdp": FlagRow("use_fsdp", "_kind", unit.yields("fsdp"), False),
    "multi_gpu": FlagRow("multi_gpu", "_kind", unit.yields("ddp"), False),
    **{
        row.flags.rpartition(".")[2]: row._replace(field=row.field.replace("_recompute", "_fsdp_recompute"))
        for row in ROWS if row.field and row.flags.startswith(("mixed_precision", "deepspeed_config.", "fsdp_config.", MESH))
    },
}  # fmt: skip
"""Flags of ``accelerate launch``, which are the file's keys without their sections."""
OF_COMMAND = {row.field for row in LAUNCHED.values()} - {"gradient_accumulation"} | {"_gpus"}
"""Fields that they state, before a file (huggingface/accelerate@16cb6eb8 src/accelerate/commands/launch.py
``_validate_launch_command``); accumulation a script's own flag states, too."""
ACCELERATE = Dialect("accelerate", ROWS, rules)

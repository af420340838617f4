"""Hugging Face TrainingArguments, and TRL's over them: YAML, JSON or a command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costmodel.interop.launchers import common
from costmodel.interop.launchers.dialects import said_trainers
from costmodel.interop.launchers.dialects.deepspeed import auto_flag, device
from costmodel.interop.launchers.table import UNSPLIT, Dialect, FlagRow
from costmodel.interop.launchers.values import (
    DTYPES,
    anything,
    attention,
    count,
    degree,
    flag,
    listed,
    one_of,
    whole,
    word,
    yields,
)

if TYPE_CHECKING:
    from costmodel.interop.launchers.table import LaunchReading


TRAINER_ROWS = (
    FlagRow("per_device_train_batch_size per_gpu_train_batch_size", "micro_batch", count, 8),
    FlagRow("gradient_accumulation_steps", "gradient_accumulation", count, 1),
    FlagRow("gradient_checkpointing", "_recompute", yields("full", "none"), False),
    FlagRow("activation_offloading", "_offload_activations", flag, False, "TRL"),
    FlagRow("bf16", "_bf16", flag, False),
    FlagRow("fp16", "_fp16", flag, False),
    FlagRow("optim", "optimizer", word, "adamw_torch"),
    FlagRow("fsdp", "_fsdp", anything),
    FlagRow("fsdp_config", "_fsdp_config", anything),
    FlagRow("fsdp_config.fsdp_version fsdp_config.version", "fsdp.version", count, 1),
    FlagRow(
        "fsdp_config.offload_params fsdp_config.fsdp_offload_params fsdp_offload_params",
        "_offload_fsdp",
        flag,
        False,
    ),
    FlagRow(
        "fsdp_config.reshard_after_forward fsdp_config.fsdp_reshard_after_forward",
        "fsdp.reshard_after_forward",
        one_of({"true": True, "false": False}),
        True,
    ),
    FlagRow("fsdp_config.sharding_strategy fsdp_config.fsdp_sharding_strategy", "fsdp.sharding", word),
    FlagRow(
        "fsdp_config.activation_checkpointing fsdp_config.fsdp_activation_checkpointing",
        "_fsdp_recompute",
        yields("full", "none"),
    ),
    FlagRow("deepspeed", "_deepspeed", anything),
    FlagRow("deepspeed.zero_optimization.stage", "zero_stage", whole, 0),
    FlagRow("deepspeed.zero_optimization.offload_optimizer.device", "_device_optimizer", device, "none"),
    FlagRow("deepspeed.zero_optimization.offload_param.device", "_device_parameters", device, "none"),
    FlagRow("deepspeed.bf16.enabled", "_bf16", auto_flag, False),
    FlagRow("deepspeed.fp16.enabled", "_fp16", auto_flag, False),
    FlagRow("parallelism_config.tp_size", "tensor_parallel", count, 1, "from 4.57"),
    FlagRow("parallelism_config.cp_size", "context_parallel", count, 1, "from 4.57"),
    FlagRow("parallelism_config.sp_size", "ulysses_parallel", count, 1, "from 4.57"),
    FlagRow("parallelism_config.dp_shard_size", "fsdp.shard_degree", degree, None, "from 4.57"),
    FlagRow("parallelism_config.dp_replicate_size", "fsdp.replicate_degree", degree, None, "from 4.57"),
    FlagRow("tp_size", "tensor_parallel", degree, 0, "4.50 to 4.56"),
    FlagRow("group_by_length", "_by_length", flag, False, "to 4.57"),
    FlagRow(
        "train_sampling_strategy", "_by_length", one_of({"random": False, "sequential": False, "group_by_length": True}),
        "random", "from 5.0",
    ),
    FlagRow("use_liger_kernel use_liger enable_liger_kernel", "fused_cross_entropy", flag, False),
)
MODEL_ROWS = (
    FlagRow("model_name_or_path model_name", "_name", word),
    FlagRow("torch_dtype dtype", "_dtype", one_of(DTYPES), "fp32"),
    FlagRow("attn_implementation", "attention", attention, "sdpa where there is one"),
    FlagRow("use_flash_attention_2", "attention", yields("flash"), None),
    FlagRow("load_in_4bit", "_four_bit", flag, False),
    FlagRow("load_in_8bit", "_eight_bit", flag, False),
    FlagRow("use_peft", "_peft", flag, False),
    FlagRow("lora_r lora_rank", "_rank", whole),
    FlagRow("lora_target_modules", "_targets", listed),
)
TRL_ROWS = (
    FlagRow("packing", "_packing", flag, False),
    FlagRow("packing_strategy", "_strategy", word, "bfd"),
    FlagRow("padding_free", "_padding_free", flag, False),
    FlagRow("max_length max_seq_length max_seq_len block_size model_max_length", "seq_len", count, 1024),
    FlagRow("max_prompt_length", "_prompt", count),
    FlagRow("max_completion_length response_length max_new_tokens", "_completion", count),
    FlagRow("num_generations", "_generations", count),
    FlagRow("num_processes", "_gpus", count),
)
DEFAULTS = {
    **UNSPLIT,
    "ulysses_parallel": 1,
    "zero_stage": 0,
    "micro_batch": 8,
    "gradient_accumulation": 1,
    "dtype": "fp32",
    "recompute": "none",
    "optimizer": "adamw_torch",
    "offload": [],
    "attention": "fused",
}
TRL = frozenset(
    [
        "max_prompt_length",
        "num_generations",
        "use_peft",
        "dataset_num_proc",
        "max_length",
        "packing",
        "beta",
        "lora_r",
        "reward_funcs",
        "dataset_config",
        "dataset_name",
        "use_vllm",
        "max_seq_length",
        "dataset_mixer",
        "dataset_mixture",
        "max_completion_length",
        "attn_implementation",
        "torch_dtype",
    ]
)


def trainer(reading: LaunchReading) -> None:
    """What the arguments of the Trainer amount to."""
    wide = "bf16" if reading.one("_bf16") else "fp16" if reading.one("_fp16") else None
    if reading.one("_bf16") and reading.one("_fp16"):
        reading.conflict("bf16 and fp16, both true")
        wide = None
    reading.put("dtype", reading.one("_narrow") or wide)
    if wide is None and reading.one("_dtype") in ("bf16", "fp16"):
        reading.put("dtype", reading.one("_dtype"))
    fsdp(reading)
    reading.put("recompute", reading.one("_recompute") or reading.one("_fsdp_recompute"))
    common.devices(reading)
    common.offload(reading)
    if str(reading.one("_strategy") or "bfd").lower() != "wrapped":  # which joins and cuts samples, with attention over all
        common.batching(reading)
    shard(reading)
    reading.model_name = reading.one("_name") or reading.model_name


def fsdp(reading: LaunchReading) -> None:
    """The Trainer's `fsdp` words and `fsdp_config` table."""
    stated: object = reading.one("_fsdp")
    listed = (
        stated.split()
        if isinstance(stated, str)
        else stated
        if isinstance(stated, list)
        else ["full_shard"]
        if stated is True
        else []
    )
    chosen = [str(one).lower() for one in listed]
    table = [name for name in reading.said if name.startswith("fsdp.")] or reading.has("_offload_fsdp")
    if not chosen and not table:
        return
    strategy = next(
        (
            one
            for one in chosen
            if one.replace("_zero2", "") in ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard")
        ),
        None,
    )
    fields: dict[str, object] = {"version": reading.one("fsdp.version")}
    if sharding := reading.one("fsdp.sharding"):
        fields["sharding"] = common.FSDP_SHARDING.get(sharding, sharding)
    elif strategy:
        fields["sharding"] = strategy
    if "offload" in chosen:
        reading.say("_offload_fsdp", True, "fsdp offload")
    if reading.has("fsdp.reshard_after_forward"):
        fields["reshard_after_forward"] = reading.one("fsdp.reshard_after_forward")
    for name in ("shard_degree", "replicate_degree"):
        if reading.has(f"fsdp.{name}"):
            fields[name] = reading.one(f"fsdp.{name}")
    if reading.has("_offload_fsdp"):
        fields["offload_params"] = reading.one("_offload_fsdp")
    common.fsdp(reading, fields)


def shard(reading: LaunchReading) -> None:
    """Low-rank adapters and quantised weights."""
    four = reading.one("_four_bit")
    if reading.one("_peft") or reading.one("_rank") or four:
        # trl/trainer/model_config.py ModelConfig: rank 16, and where no module is named PEFT's of Llama and its like
        common.adapter(reading, "qlora" if four else "lora", 16, "q-v")


def rules(reading: LaunchReading) -> None:
    """TrainingArguments, and what marks them as TRL's."""
    trainer(reading)
    if not reading.keys & TRL:
        reading.framework = "transformers"
    if reading.has("_generations") or reading.has("_completion"):
        reading.note("generates while it trains: only the training step is priced")
        if not reading.has("seq_len"):
            reading.defaults.pop("seq_len", None)
            if reading.one("_prompt") and reading.one("_completion"):
                reading.defaults["seq_len"] = reading.one("_prompt") + reading.one("_completion")
    common.beside(reading, "_deepspeed", "deepspeed")
    common.beside(reading, "_accelerate", "accelerate")


HUGGINGFACE = Dialect(
    name="huggingface",
    framework="trl",
    rows=(*TRAINER_ROWS, *MODEL_ROWS, *TRL_ROWS),
    rules=rules,
    write=said_trainers.huggingface,
    defaults=DEFAULTS,
    layout="yaml",
    reads=frozenset({"yaml", "json", "args"}),
    software="hf-fsdp",
)

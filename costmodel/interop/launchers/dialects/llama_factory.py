"""LLaMA-Factory's YAML over TrainingArguments, of its first layout and of version 1."""

from __future__ import annotations

from costmodel.interop.launchers import common, says
from costmodel.interop.launchers import values as unit
from costmodel.interop.launchers.dialects import huggingface as hf
from costmodel.interop.launchers.dialects import megatron
from costmodel.interop.launchers.table import (
    OWN,
    Dialect,
    FlagRow,
    LaunchReading,
    silent,
    spelled,
    spellings,
    without,
)

METHODS = {"full": "full", "lora": "lora", "freeze": "freeze", "oft": "lora"}
BACKENDS = {"fsdp2": "fsdp2", "fsdpturbo": "fsdp2", "deepspeed": "deepspeed", "ddp": "ddp"}
BATCHINGS = {"normal": False, "padding_free": True, "dynamic_padding_free": True}
"""Of version 1, whether samples stand in a row without padding."""
OWN_OPTIMIZERS = "badam", "galore", "apollo", "adam_mini", "muon"
"""Those that switches of its own turn on, in place of the Trainer's."""
WITH_MEGATRON = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size",
    "virtual_pipeline_model_parallel_size", "sequence_parallel", "overlap_grad_reduce", "overlap_param_gather",
    "cross_entropy_loss_fusion", "cross_entropy_fusion_impl", "moe_token_dispatcher_type",
)  # fmt: skip
"""Flags of Megatron's that it hands on."""
BEFORE = (
    FlagRow("stage", "_stage", unit.word, "sft", says=says.fixed("pt")),
    FlagRow("pref_loss", "_loss", unit.word, "sigmoid"),
    FlagRow("ray_num_workers", "_gpus", unit.count, 1),
    says.alone("do_train", says.fixed(True)),
    FlagRow("finetuning_type", "_method", unit.one_of(METHODS), "lora", says=says.mapped("adapter", {"none": "full"}, "lora")),
    FlagRow("quantization_bit", "_bits", unit.count, says=says.mapped("adapter", {"qlora": 4, "int8-lora": 8})),
    FlagRow("lora_rank", "_rank", unit.count, 8, says=OWN),
    FlagRow("additional_target", "_saved", unit.listed, says=common.edges),
    FlagRow("lora_dropout peft_config.lora_dropout", "_adapter_dropout", unit.number, says=OWN),
    FlagRow("lora_target peft_config.target_modules", "_targets", unit.listed, "all",
            says=lambda w: ",".join(w.stated("_targets") or ()) or None),  # a text with commas in all of its examples
    FlagRow("cutoff_len", "seq_len", unit.count, 2048, says=OWN),
    FlagRow("flash_attn", "attention", unit.attention, "auto", says=says.kernel("fa2", "disabled")),
    FlagRow("use_unsloth", "_unsloth", unit.flag, False),
    FlagRow("use_unsloth_gc", "_offload_activations", unit.flag, False),
    FlagRow("use_reentrant_gc", "_reentrant", unit.flag, True, says=hf.reentrant),
)
BETWEEN = (
    FlagRow("disable_gradient_checkpointing", "_recompute", unit.yields("none", "full"), False,
            says=lambda w: w.plan.recompute != "full"),
    FlagRow("fp8", "_narrow", unit.yields("fp8"), False, says="dtype"),
)
AFTER = (
    FlagRow("enable_liger_kernel use_liger_kernel use_liger", "fused_cross_entropy", unit.flag, False,
            says=says.where_true("fused_cross_entropy")),
    FlagRow("neat_packing", "_packing", unit.flag, False, says=OWN),
    *hf.LENGTH_ROWS,
    says.alone("num_train_epochs", says.fixed(1.0)),
    FlagRow("pure_bf16", "_pure", unit.flag, False),
    FlagRow("model", "_name", unit.word, None, "v1"),
    FlagRow("micro_batch_size", "micro_batch", unit.count, None, "v1 and Megatron"),
    FlagRow("batch_size global_batch_size", "global_batch", unit.count, None, "v1"),
    FlagRow("cp_size", "_cp", unit.count, 1, "v1"),
    FlagRow("cp_mode", "_cp_mode", unit.word, "ulysses", "v1"),
    FlagRow("dp_size", "_dp", unit.anything, None, "v1"),
    FlagRow("mp_shard_size", "fsdp.shard_degree", unit.rest, None, "v1"),
    FlagRow("mp_replicate_size", "fsdp.replicate_degree", unit.count, None, "v1"),
    FlagRow("dist_config.name", "_backend", unit.one_of(BACKENDS), None, "v1"),
    FlagRow("dist_config.config_file", "_config_file", unit.word, None, "v1"),
    FlagRow("dist_config.zero_stage", "zero_stage", unit.count, None, "v1"),
    FlagRow("dist_config.offload_params", "_offload_fsdp", unit.flag, None, "v1"),
    FlagRow("dist_config.mixed_precision mixed_precision", "_dtype",
            unit.one_of({"bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}), "bf16", "v1"),
    FlagRow("dist_config.reshard_after_forward", "fsdp.reshard_after_forward", unit.flag, None, "v1"),
    FlagRow("enable_activation_checkpointing", "_recompute", unit.yields("full", "none"), None, "v1"),
    FlagRow("peft_config.name", "_peft_name", unit.word, None, "v1"),
    FlagRow("quant_config.quantization_bit", "_bits", unit.count, None, "v1"),
    FlagRow("kernel_config.name", "_kernels", unit.word, None, "v1"),
    FlagRow("batching_strategy", "_padding_free", unit.one_of(BATCHINGS), "normal", "v1"),
    FlagRow("dist_config.ep_size", "expert_parallel", unit.count, 1, "v1"),
    FlagRow("peft_config.r", "_rank", unit.count, None, "v1"),
    FlagRow("optim_config.name", "optimizer", unit.word, None, "v1"),
    *spelled(megatron.PLAN_ROWS, WITH_MEGATRON),
    FlagRow("use_distributed_optimizer", "zero_stage", unit.yields(1, 0), False, "with Megatron"),
    FlagRow("recompute_granularity", "_recompute", unit.one_of({"full": "full", "selective": "selective"}), None,
            "with Megatron"),
    *(FlagRow(f"use_{name}", "_own_optimizer", unit.yields(name), False) for name in OWN_OPTIMIZERS),
)
OF_TRAINER = silent((*hf.FSDP_ROWS, *hf.MESH_ROWS, *hf.READ_ROWS, *hf.MODEL_ROWS, *hf.ADAPTER_ROWS, hf.BATCH_ROWS[2]))
"""Rows of the Trainer that are read, and not written."""
ROWS = (
    *hf.NAME_ROWS, *BEFORE, *without(hf.BATCH_ROWS, ["gradient_checkpointing"]), *BETWEEN, *hf.SHARD_ROWS, *AFTER,
    *without(OF_TRAINER, spellings((*BEFORE, *AFTER))),
)  # fmt: skip


def lifted(reading: LaunchReading) -> bool:
    """Whether all weights are lifted to 32 bit to train in mixed precision; DeepSpeed's engine has copies of its own, and
    FSDP holds 32 bit anyway.

    References
    ----------
    hiyouga/LLaMA-Factory@ff6d4d12 src/llamafactory/model/adapter.py, ``init_adapter``: ``cast_trainable_params_to_fp32``
    """
    half = reading.one("_bf16") or reading.one("_fp16")
    narrow = reading.one("_pure") or reading.one("_own_optimizer") == "badam"
    by_another = hf.by_deepspeed(reading) or reading.plan.get("fsdp")
    return bool(half and reading.one("_method") == "full" and not narrow and not by_another)


def rules(reading: LaunchReading) -> None:
    """LLaMA-Factory's own flags, then the Trainer's."""
    if reading.one("_method") == "lora" or "lora" in str(reading.one("_peft_name", "")):
        common.adapter(reading, common.frozen(reading.one("_bits")), 8, "all", dropped=False)  # lora_dropout=0.0
        common.as_loaded(reading)
        common.unsloth(reading)
    if "freeze" in (reading.one("_method"), reading.one("_peft_name")):
        reading.unpriced.append("finetuning_type=freeze")
    if reading.one("_backend") == "fsdp2":
        reading.say("fsdp.version", 2, "dist_config.name fsdp2")
    degree = reading.one("_cp")
    if degree and degree > 1:
        ring = reading.one("_cp_mode", "ulysses") != "ulysses"
        reading.put("context_parallel" if ring else "ulysses_parallel", degree)
    reading.put("optimizer", reading.one("_own_optimizer"))
    if reading.one("_pure"):
        reading.put("dtype", "bf16")
        reading.put("gradient_bytes", 2)
        if not (reading.has("_deepspeed") or reading.has("zero_stage")):
            common.unmixed(reading)
    if {"dist_config.name", "micro_batch_size", "model"} & reading.keys and "model_name_or_path" not in reading.keys:
        as_version_1_trains(reading)
    elif not reading.has("_reentrant"):  # src/llamafactory/model/model_utils/checkpointing.py ``prepare_model_for_training``
        reading.say("_reentrant", reading.one("fsdp.version") != 2, "use_reentrant_gc")
    hf.trainer(reading)
    if "cross_entropy_loss_fusion" in reading.keys:
        megatron.loss(reading)
    if lifted(reading):
        reading.put("base_dtype", "fp32", derived=True)
    loss, stage = str(reading.one("_loss")), reading.one("_stage")
    common.preferences(reading, loss if stage == "dpo" and loss in common.PAIRED else stage)
    common.beside(reading, "_deepspeed", "deepspeed")
    common.beside(reading, "_config_file", "deepspeed")
    common.beside(reading, "_accelerate", "accelerate")


def as_version_1_trains(reading: LaunchReading) -> None:
    """What version 1 has where a file is silent: products in bf16 by what shards, without which nothing is cast, and
    checkpoints that aren't reentrant; of Liger its kernels without the loss.

    References
    ----------
    hiyouga/LLaMA-Factory@ff6d4d12 src/llamafactory/v1/config/{model,training}_args.py, core/base_trainer.py,
    core/model_engine.py ``_init_model``, plugins/trainer_plugins/distributed/fsdp2.py ``get_mp_policy``,
    plugins/model_plugins/kernels/liger_kernel_ops.py
    """
    reading.version = "v1"
    cast = bool(reading.one("_backend")) and reading.one("_bf16") is not False
    if not cast:
        reading.said.pop("_bf16", None)
    narrow = cast or reading.plan.get("adapter")
    reading.defaults |= {
        "micro_batch": 1, "gradient_accumulation": None, "attention": "fused", "dtype": "bf16" if narrow else "fp32",
    }  # fmt: skip
    if not reading.has("_reentrant"):
        reading.say("_reentrant", False, "use_reentrant_gc")
    if "liger" in str(reading.one("_kernels", "")):
        common.fused(reading)


LLAMA_FACTORY = Dialect("llama-factory", ROWS, rules)

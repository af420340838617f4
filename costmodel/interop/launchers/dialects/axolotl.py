"""Axolotl's YAML over TrainingArguments."""

from __future__ import annotations

from costmodel.interop.launchers import common, says
from costmodel.interop.launchers import values as unit
from costmodel.interop.launchers.dialects import huggingface as hf
from costmodel.interop.launchers.table import (
    ABOVE_ONE,
    OWN,
    Dialect,
    FlagRow,
    LaunchReading,
    Writing,
    pick,
    without,
)


def recompute(raw: object) -> object:
    """True, false, or "offload", which also moves the checkpoints to host memory."""
    if isinstance(raw, str) and raw.lower() in ("offload", "offload_disk", "unsloth"):
        return "offload"
    return unit.yields("full", "none")(raw)


def moved(raw: object) -> object:
    """Whether activations are moved to host memory: true, "legacy", "disk", ..."""
    if isinstance(raw, str) and raw.lower() in ("legacy", "disk", "hidden_states"):
        return True
    return unit.flag(raw)


SWITCHES = {"flash": "flash", "sdp": "fused", "flex": "fused", "xformers": "xformers", "eager": "unfused", "sage": "fused"}
"""Kernels of attention by its older flags."""
FULL = "full"
"""Of bf16, all of it: no mixed precision."""


def wide(raw: object) -> object:
    """True, false, ``full`` (pure bf16), or ``auto``: left to what the device has."""
    if isinstance(raw, str) and raw.lower() == FULL:
        return FULL
    return unit.flag(raw)


def adapter(raw: object) -> object:
    """Which kind of fine-tuning."""
    if raw is None or raw == "":
        return unit.UNSTATED
    if str(raw).lower() not in ("lora", "qlora", "llama-adapter", "relora"):
        raise unit.Foreign("lora, qlora")
    return "qlora" if str(raw).lower() == "qlora" else "lora"


def precompiled(raw: object) -> object:
    """Plugins: that of cut cross-entropy fuses the loss unless it is told not to, Liger's what its flags say
    (axolotl-ai-cloud/axolotl@067b021c8 src/axolotl/integrations/cut_cross_entropy/args.py, liger/args.py)."""
    return (isinstance(raw, list) and any("CutCrossEntropy" in str(one) for one in raw)) or unit.UNSTATED


def by_deepspeed(w: Writing) -> bool:
    """Whether a file says DeepSpeed, where it is asked to."""
    return w.by_deepspeed() and w.software != "hf-fsdp"


def by_fsdp(w: Writing) -> bool:
    """Whether a file says FSDP, which has no stage 1."""
    return (w.plan.zero_stage or 0) >= 2 and not by_deepspeed(w)


def half(w: Writing) -> object:
    """Whether products are of bf16; that they aren't is said beside fp16 alone."""
    if w.plan.dtype == "bf16" and w.plan.mixed_precision is False:
        return FULL
    return True if w.plan.dtype in ("bf16", "fp8") else False if w.plan.dtype == "fp16" else None


def version(w: Writing) -> int:
    """Of FSDP: what the second loads in bf16 it trains in bf16, so that weights in 32 bit beside it are the first's."""
    lifted = w.plan.adapter == "none" and w.plan.dtype != "fp16" and w.plan.mixed_precision is not False
    return 1 if lifted else 2


ROWS = (
    FlagRow("base_model", "_name", unit.word, says=OWN),
    FlagRow("sequence_len", "seq_len", unit.count, 512, says=OWN),
    FlagRow("micro_batch_size", "micro_batch", unit.count, 1, says=OWN),
    FlagRow("gradient_accumulation_steps", "gradient_accumulation", unit.count, 1, says=OWN),
    FlagRow("gradient_checkpointing activation_checkpointing", "_recompute", recompute, False,
            says=lambda w: w.plan.recompute == "full"),
    FlagRow("fp16", "_fp16", unit.flag, False, says=says.where_one_of("dtype", "fp16")),
    FlagRow("bf16", "_bf16", wide, "auto", says=half),
    FlagRow("bfloat16", "_load_bf16", unit.flag, False),
    FlagRow("float16", "_load_fp16", unit.flag, False),
    FlagRow("fp8", "_narrow", unit.yields("fp8"), False, says="dtype"),
    FlagRow("attn_implementation", "attention", unit.attention, "sdpa", says=says.kernel("flash_attention_2", "eager")),
    *(FlagRow(f"{name}_attention", "attention", unit.yields(kernel)) for name, kernel in SWITCHES.items()),
    FlagRow("optimizer", "optimizer", unit.word, "adamw_torch_fused", says=hf.optimizer_word),
    FlagRow("adapter", "_adapter", adapter,
            says=says.mapped("adapter", {"lora": "lora", "qlora": "qlora", "gptq-lora": "lora", "int8-lora": "lora"})),
    FlagRow("gptq", "_gptq", unit.flag, False, says=says.where_one_of("adapter", "gptq-lora")),
    FlagRow("sample_packing", "_packing", unit.flag, says=OWN),
    FlagRow("batch_flattening", "_padding_free", unit.flag, says=OWN),
    FlagRow("pad_to_sequence_len", "_padded_whole", unit.flag, says=OWN),
    FlagRow("group_by_length", "_by_length", unit.flag, says=OWN),
    *pick(hf.ADAPTER_ROWS, [f"lora_{one}" for one in ("r", "target_modules", "modules_to_save", "dropout")]),
    *pick(hf.ADAPTER_ROWS, ["load_in_4bit", "load_in_8bit"]),
    FlagRow("lora_target_linear", "_every", unit.flag, False),
    FlagRow("tensor_parallel_size", "tensor_parallel", unit.degree, 1, says=ABOVE_ONE),
    FlagRow("context_parallel_size sequence_parallel_degree", "context_parallel", unit.degree, 1, says=ABOVE_ONE),
    FlagRow("expert_parallel_size", "expert_parallel", unit.degree, 1, says=ABOVE_ONE),
    *(row._replace(when=by_deepspeed) for row in hf.SHARD_ROWS if row.flags.startswith("deepspeed.z")),
    says.alone("deepspeed.bf16.enabled", lambda w: w.plan.dtype == "bf16", by_deepspeed),
    FlagRow("fsdp", "_fsdp", unit.anything),
    FlagRow("fsdp_version fsdp_config.fsdp_version", "fsdp.version", unit.count, 1, says=version, when=by_fsdp),
    FlagRow("fsdp_config.reshard_after_forward fsdp_config.fsdp_reshard_after_forward", "fsdp.reshard_after_forward",
            unit.one_of(hf.RESHARD), True, says=lambda w: w.plan.zero_stage == 3, when=by_fsdp),
    *(row._replace(when=by_fsdp) for row in pick(hf.SHARD_ROWS, ["fsdp_config.offload_params"])),
    *without(hf.FSDP_ROWS, ["fsdp_config.reshard_after_forward"]),
    FlagRow("dp_shard_size", "fsdp.shard_degree", unit.degree, when=by_fsdp,
            says=lambda w: max(1, w.plan.copies // w.replicas // w.plan.expert_parallel)),
    FlagRow("dp_replicate_size", "fsdp.replicate_degree", unit.degree, says=OWN, when=by_fsdp),
    FlagRow("activation_offloading layer_offloading", "_offload_activations", moved, False,
            says=says.where_true("_offload_activations")),
    FlagRow("deepspeed", "_deepspeed", unit.anything),
    FlagRow("plugins", "_cut_loss", precompiled),
    FlagRow("liger_rms_norm", "fused_norms", unit.flag),
    FlagRow("liger_glu_activation liger_swiglu", "fused_activation", unit.flag),
    hf.CHECKPOINT_ROWS[0]._replace(says=hf.reentrant),
    *hf.CHECKPOINT_ROWS[1:],
    FlagRow("rl", "_rl", unit.word),
    FlagRow("reward_model", "_reward", unit.flag, False),
    FlagRow("fsdp_config", "_fsdp_config", unit.anything),
    FlagRow("world_size", "_gpus", unit.count),
    FlagRow("flash_attn_cross_entropy liger_fused_linear_cross_entropy", "_fused_loss", unit.flag),
    FlagRow("cut_cross_entropy", "_cut", unit.flag),
    says.alone("num_epochs", says.fixed(1)),
)


def rules(reading: LaunchReading) -> None:
    """Axolotl's flags; the mesh of its degrees is the world where all of it is stated."""
    reading.model_name = reading.one("_name")
    wide = common.half(reading)
    if not (reading.one("_bf16") and reading.one("_fp16")):
        reading.put("dtype", reading.one("_narrow") or wide)
    reading.put("dtype", "bf16" if reading.one("_load_bf16") else "fp16" if reading.one("_load_fp16") else None)
    unmixed = reading.one("_bf16") == FULL or (reading.one("_load_bf16") and reading.one("_bf16") is False)
    if unmixed and not (reading.has("_deepspeed") or reading.has("zero_stage")):
        common.unmixed(reading)
    hf.fsdp(reading)
    brain = wide != "fp16" and reading.one("_bf16") is not False
    if brain and (reading.plan.get("fsdp") or {}).get("version") == 2 and not reading.one("_adapter"):
        common.unmixed(reading)  # src/axolotl/monkeypatch/accelerate/fsdp2.py ``fsdp2_prepare_model`` lifts nothing
    if reading.one("_recompute") == "offload":
        reading.said.pop("_recompute")
        reading.say("_recompute", "full", "gradient_checkpointing offload")
        reading.say("_offload_activations", True, "gradient_checkpointing offload")
    kind = reading.one("_adapter")
    if kind and reading.one("_offload_activations"):
        reading.put("recompute", "none", derived=True)  # src/axolotl/loaders/model.py ``_apply_activation_checkpointing``
    reading.put("recompute", reading.one("_recompute") or reading.one("_fsdp_recompute"))
    if kind == "lora":
        kind = "gptq-lora" if reading.one("_gptq") else common.frozen(common.bits(reading))
    every = "all" if reading.one("_every") else None
    common.adapter(reading, kind, None, every, dropped=False)
    common.as_loaded(reading)
    common.devices(reading)
    common.offload(reading)
    common.batching(reading)
    if not reading.has("_reentrant"):  # src/axolotl/utils/config/__init__.py ``normalize_config``
        reading.say("_reentrant", not reading.has("_rl") and "gemma-4" not in str(reading.model_name), "gradient_checkpointing")
    hf.beside_others(reading)
    common.preferences(reading, reading.one("_rl"), "reward" if reading.one("_reward") else None)
    if reading.one("_fused_loss") or reading.one("_cut", reading.one("_cut_loss")):
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


AXOLOTL = Dialect("axolotl", ROWS, rules)

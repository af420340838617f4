"""ms-swift's command lines over TrainingArguments: ``swift sft``, ``swift pt`` and ``swift rlhf``."""

from __future__ import annotations

import re

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
    silent,
    spellings,
    without,
)

METHODS = {"full": "full", "lora": "lora", "longlora": "lora", "adalora": "lora", "lora_llm": "lora"}
BUILT_IN = re.compile(r"(?:default[-_])?zero([0-3])([-_]offload)?")
"""Names of the DeepSpeed configurations that it comes with."""
TOGETHER = 16
"""Sequences that a step has at least where no accumulation is said."""


def _deepspeed(w: Writing) -> str:
    """The built-in configuration that a plan's stage and offload come to."""
    return f"zero{w.plan.zero_stage}{'_offload' if w.stated('_offload_fraction') else ''}"


BEFORE = (
    FlagRow("model model_id_or_path", "_name", unit.word, says=OWN),
    FlagRow("tuner_type train_type sft_type", "_method", unit.one_of(METHODS), "lora",
            says=says.mapped("adapter", {"none": "full"}, "lora")),
    FlagRow("quant_bits quantization_bit", "_bits", unit.whole, says=says.mapped("adapter", {"qlora": 4, "int8-lora": 8})),
    says.alone("quant_method", says.mapped("adapter", {"qlora": "bnb", "int8-lora": "bnb"})),
    FlagRow("lora_rank", "_rank", unit.count, 8, says=OWN),
    FlagRow("lora_dropout", "_adapter_dropout", unit.number, says=OWN),
    FlagRow("target_modules lora_target_modules", "_targets", unit.listed, "all-linear", says=OWN),
    FlagRow("modules_to_save", "_saved", unit.listed, says=common.edges),
    FlagRow("torch_dtype dtype", "_dtype", unit.one_of(unit.DTYPES), "the model's configuration",
            says=says.mapped("dtype", says.LONG_DTYPES, "bfloat16")),
    FlagRow("max_length", "seq_len", unit.count, "the model's longest", says=OWN),
    FlagRow("attn_impl attn_implementation", "attention", unit.attention, "the model's configuration",
            says=says.kernel("flash_attn", "eager")),
    FlagRow("use_flash_attn", "attention", unit.yields("flash"), None, "2.x"),
    FlagRow("deepspeed", "_deepspeed", unit.word, says=_deepspeed, when=Writing.by_deepspeed),
    FlagRow("fsdp", "_fsdp", unit.anything, says=says.fixed("fsdp2"), when=Writing.by_fsdp),
    FlagRow("sequence_parallel_size", "ulysses_parallel", unit.count, 1, says=ABOVE_ONE),
    FlagRow("gradient_checkpointing", "_recompute", unit.yields("full", "none"), True, says="recompute"),
    FlagRow("batch_size", "micro_batch", unit.count, 1, "2.x"),
    FlagRow("rlhf_type", "_rlhf", unit.word),
    FlagRow("optimizer", "_own_optimizer", unit.word),
    FlagRow("use_galore", "_own_optimizer", unit.yields("galore"), False),
    FlagRow("tuner_backend", "_unsloth", unit.one_of({"peft": False, "unsloth": True}), "peft"),
    FlagRow("use_cce", "fused_cross_entropy", unit.yields(True), False),
)
TRAINERS = silent((*hf.SHARD_ROWS[1:], *hf.FSDP_ROWS, *hf.TRL_ROWS, hf.CHECKPOINT_ROWS[-1]))
"""Rows of the Trainer that are read, and not written."""
ROWS = (
    *BEFORE, *without(hf.BATCH_ROWS, ["gradient_checkpointing"]), hf.SHARD_ROWS[0], *hf.LOSS_ROWS, *hf.PACKING_ROWS,
    *without(TRAINERS, spellings(BEFORE)), *hf.LENGTH_ROWS, says.alone("num_train_epochs", says.fixed(1)),
)  # fmt: skip


def rules(reading: LaunchReading) -> None:
    """What ms-swift's flags amount to: low-rank adapters on everything unless it is said otherwise, 16 sequences a step."""
    if reading.one("_method", "lora") == "lora" and "_method" not in reading.variable_fields:
        common.adapter(reading, common.frozen(reading.one("_bits")), 8, "all")
        common.as_loaded(reading)
        common.unsloth(reading)
    stage = BUILT_IN.fullmatch(str(reading.one("_deepspeed") or "").strip())
    if stage:
        reading.put("zero_stage", int(stage[1]))
        for part in ("optimizer", *(["parameters"] if stage[1] == "3" else [])) if stage[2] else ():
            reading.say(f"_offload_{part}", True, f"deepspeed {stage[0]}")
    if reading.one("_fsdp") == "fsdp2":  # swift/config/fsdp2.json
        reading.said.pop("_fsdp")
        reading.put("loading", "one-rank")
        reading.put("recompute", "full")  # its ``activation_checkpointing``, whatever ``gradient_checkpointing`` says
        common.fsdp(reading, {"version": 2, "sharding": "full_shard", "reshard_after_forward": True})
    if not reading.has("_reentrant"):  # swift/trainers/mixin.py ``_fix_gradient_checkpointing``
        several = any((reading.one(size) or 1) > 1 for size in ("_per_node", "_gpus", "_nodes"))
        reading.say("_reentrant", hf.by_deepspeed(reading) or not (several or reading.plan.get("fsdp")), "gradient_checkpointing")
    own = str(reading.one("_own_optimizer") or "")
    reading.put("optimizer", "muon" if "muon" in own else own or None)
    hf.trainer(reading)
    common.generated(reading)
    hf.generation(reading)
    common.preferences(reading, reading.one("_rlhf"))
    _processes(reading)
    gpus = reading.one("_gpus") or (reading.one("_per_node") or 0) * (reading.one("_nodes") or 1)
    each = gpus * (reading.one("micro_batch") or 1)
    reading.defaults |= {"gradient_accumulation": -(-TOGETHER // each)} if each else {"global_batch": TOGETHER}
    if not stage:
        common.beside(reading, "_deepspeed", "deepspeed")


def _processes(reading: LaunchReading) -> None:
    """One process where nothing starts several, however many GPUs it sees."""
    matches = (re.fullmatch(r"CUDA_VISIBLE_DEVICES=([0-9,]+)", word) for word in reading.irrelevant)
    seen = next((match for match in matches if match), None)
    if seen is None or any(reading.has(size) for size in ("_per_node", "_gpus", "_nodes")):
        return
    reading.say("_gpus", 1, seen[0])
    if "," in seen[1].strip(","):
        reading.note(f"{seen[0]} and one process: layers are dealt to the GPUs, one after the other at work; priced on one")


MS_SWIFT = Dialect("ms-swift", ROWS, rules)

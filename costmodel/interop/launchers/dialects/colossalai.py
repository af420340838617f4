"""Command lines of ColossalAI's examples and applications."""

from __future__ import annotations

import re

from costmodel.interop.launchers import common, says
from costmodel.interop.launchers import values as unit
from costmodel.interop.launchers.settle import schedule_of
from costmodel.interop.launchers.table import ABOVE_ONE, OWN, Dialect, FlagRow, LaunchReading, Writing

PLUGINS = {
    "zero1": "zero1", "zero2": "zero2", "zero2_cpu": "zero2_cpu", "zero1_cpu": "zero1_cpu", "low_level_zero": "zero2",
    "gemini": "gemini", "gemini_auto": "gemini", "3d": "3d", "3d_cpu": "3d_cpu", "hybrid_parallel": "3d", "hybrid": "3d",
    "ddp": "ddp", "torch_ddp": "ddp", "torch_ddp_fp16": "ddp", "fsdp": "fsdp", "fsdp_cpu": "fsdp_cpu", "torch_fsdp": "fsdp",
    "ep": "3d", "ep_zero": "3d", "zero": "zero2", "moe": "3d",
}  # fmt: skip


def splits_model(w: Writing) -> bool:
    """Whether the plugin of hybrid parallelism is needed."""
    plan = w.plan
    return plan.tensor_parallel * plan.pipeline_parallel > 1 or not plan.zero_stage or plan.expert_parallel > 1


def plugin(w: Writing) -> str:
    """The plugin that shards as a plan does."""
    return "3d" if splits_model(w) else {1: "zero1", 2: "zero2", 3: "gemini"}[w.plan.zero_stage or 2]


def within_layers(w: Writing) -> bool:
    """Whether a sequence is split among the ranks of a tensor group."""
    return w.plan.tensor_parallel > 1 and bool(w.plan.sequence_parallel)


def sequence_mode(w: Writing) -> str | None:
    """How a sequence is split."""
    if within_layers(w):
        return "split_gather"
    ways = "all_to_all" if w.plan.exchanges_heads else "ring_attn"
    return ways if w.plan.context_parallel > 1 else None


ROWS = (
    FlagRow("plugin p", "_plugin", unit.one_of(PLUGINS), says=plugin),
    FlagRow("tp tp_size tensor_parallel_size tp_degree", "tensor_parallel", unit.count, 1, says=OWN, when=splits_model),
    FlagRow("pp pp_size pipeline_parallel_size", "pipeline_parallel", unit.count, 1, says=OWN, when=splits_model),
    FlagRow("zero_stage zero", "_zero", unit.whole, 0, says="zero_stage", when=splits_model),
    FlagRow("ep_size ep", "expert_parallel", unit.count, 1, says=ABOVE_ONE, when=splits_model),
    FlagRow("sp sp_size", "_sequence", unit.count, 1, says="context_parallel", when=lambda w: w.plan.context_parallel > 1),
    FlagRow("enable_sequence_parallelism", "_sequence_on", unit.flag, False, says=within_layers),
    FlagRow("sp_mode", "_sequence_mode", unit.word, "all_to_all", says=sequence_mode),
    FlagRow("batch_size b micro_batch_size train_batch_size per_device_train_batch_size", "_batch", unit.count,
            says=lambda w: w.plan.micro_batch * (w.accumulation if w.plan.pipeline_parallel > 1 else 1)),
    FlagRow("microbatch_size mbs pp_micro_batch_size train_microbatch_size", "_micro", unit.count, 1, says="micro_batch",
            when=splits_model),
    FlagRow("accumulation_steps gradient_accumulation_steps", "gradient_accumulation", unit.count, 1, says=OWN),
    FlagRow("global_batch_size", "global_batch", unit.count, says=OWN),
    FlagRow("max_length l max_len max_seq_len seq_length sequence_length", "seq_len", unit.count, says=OWN),
    FlagRow("mixed_precision", "_wide", unit.one_of(unit.DTYPES), "bf16",
            says=says.mapped("dtype", {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32"})),
    FlagRow("use_fp8", "_narrow", unit.yields("fp8"), False),
    FlagRow("use_grad_checkpoint grad_checkpoint g gradient_checkpoint", "recompute", unit.yields("full"), False, says=OWN),
    FlagRow("use_flash_attn x xformers", "attention", unit.yields("flash"), False, says=OWN),
    FlagRow("config c", "_config", unit.word, "7b"),
    FlagRow("model_name", "_name", unit.word, says=OWN),
    FlagRow("pretrain pretrained model_name_or_path", "_pretrained", unit.word),
    FlagRow("pp_style", "_style", unit.one_of({"1f1b": "1f1b", "interleaved": "interleaved", "zbv": "zero-bubble"}), "1f1b",
            says=says.mapped("schedule", {"interleaved": "interleaved", "zb-v": "zbv"}, "1f1b"),
            when=lambda w: w.plan.pipeline_parallel > 1),
    FlagRow("n_chunks", "virtual_stages", unit.count, 1, says=ABOVE_ONE, when=lambda w: w.plan.pipeline_parallel > 1),
    FlagRow("zero_cpu_offload", "_offload_optimizer", unit.flag, False, says=OWN),
    FlagRow("lora_rank", "_rank", unit.whole, 0),
    FlagRow("dp_size", "_dp", unit.degree),
    FlagRow("optim optimizer", "optimizer", unit.word),
)
TITANS_ROWS = (
    FlagRow("BATCH_SIZE", "_batch", unit.count),
    FlagRow("SEQ_LEN", "seq_len", unit.count),
    FlagRow("NUM_MICRO_BATCHES", "_turns", unit.count, 1),
    FlagRow("gradient_accumulation", "gradient_accumulation", unit.count, 1),
    FlagRow("parallel.pipeline parallel.pipeline.size", "pipeline_parallel", unit.count, 1),
    FlagRow("parallel.tensor.size", "tensor_parallel", unit.count, 1),
    FlagRow("parallel.tensor.mode", "_mode", unit.word),
    FlagRow("zero.model_config.tensor_placement_policy", "_policy", unit.word, "cuda"),
    FlagRow("zero.model_config.shard_strategy zero.optimizer_config.initial_scale", "_zero3", unit.present),
    FlagRow("model.checkpoint", "recompute", unit.yields("full", "none"), False),
    FlagRow("model.num_chunks", "virtual_stages", unit.count, 1),
    FlagRow("model.type", "_kind", unit.word),
    FlagRow("fp16.mode fp16", "_half", unit.present),
    FlagRow("optimizer.type", "optimizer", unit.word),
)
"""Keys of the configurations under examples/language/gpt/titans, of the days when a run was a file."""


def rules(reading: LaunchReading) -> None:
    """What the plugin amounts to."""
    common.preferences(reading)
    plugin = reading.one("_plugin")
    stage = {"zero1": 1, "zero1_cpu": 1, "zero2": 2, "zero2_cpu": 2, "ddp": 0}.get(str(plugin))
    reading.put("zero_stage", stage if stage is not None else reading.one("_zero"))
    if plugin and plugin.endswith("_cpu") and plugin != "fsdp_cpu":
        reading.say("_offload_optimizer", True, f"plugin {plugin}")
    if str(plugin).startswith("fsdp"):
        reading.say("_offload_fsdp", plugin == "fsdp_cpu", f"plugin {plugin}")
        common.fsdp(reading, {"implementation": "torch-fsdp", "offload_params": plugin == "fsdp_cpu"})
    for name in ("optimizer", "parameter"):
        share = reading.one(f"_{name}_share")
        if share is not None:
            reading.say(f"_offload_{'optimizer' if name == 'optimizer' else 'parameters'}", share > 0, f"offload_{name} {share}")
            if name == "optimizer" and share:
                reading.say("_offload_fraction", share, "offload_optim_frac")
    titans = {"BATCH_SIZE", "SEQ_LEN"} & reading.keys
    if titans:
        _titans(reading)
    common.offload(reading)
    if titans:
        reading.defaults["zero_stage"] = 0
    elif plugin == "gemini" or plugin is None:
        reading.defaults["zero_stage"] = 3
    common.dtype(reading)
    piped = plugin in ("3d", "3d_cpu") and reading.has("_micro")
    reading.put("micro_batch", reading.one("_micro" if piped else "_batch"))
    _sequence(reading)
    if (reading.one("pipeline_parallel") or 1) > 1 and reading.has("_style"):
        reading.put("schedule", reading.one("_style"))
    schedule_of(reading)
    if config := reading.one("_config"):
        reading.model_name = f"llama {config}" if len(config) < 8 and config[:-1].replace(".", "").isdigit() else None
    reading.model_name = reading.one("_name") or reading.one("_pretrained") or reading.model_name
    if reading.one("_rank"):
        common.adapter(reading, "lora", targets="all")  # colossalai/booster/plugin: every linear layer that is found


def _sequence(reading: LaunchReading) -> None:
    ranks, mode = reading.one("_sequence"), str(reading.one("_sequence_mode", "all_to_all"))
    if mode in ("split_gather", "ring") and reading.one("_sequence_on"):
        reading.put("sequence_parallel", True)
    elif ranks and ranks > 1:
        reading.put("ulysses_parallel" if mode == "all_to_all" else "context_parallel", ranks)
        if mode != "all_to_all":
            reading.put("context_communication", "ring")


def _titans(reading: LaunchReading) -> None:
    """What a configuration of Titans amounts to: a section ``zero`` shards weights too, and a pipeline splits a rank's batch."""
    if reading.has("_zero3") or reading.has("_policy"):
        reading.put("zero_stage", 3)
        reading.put("dtype", "fp16", derived=True)  # colossalai/legacy/zero: weights are held in 16 bits
    if str(reading.one("_policy")) in ("cpu", "auto"):
        for part in ("optimizer", "parameters"):
            reading.say(f"_offload_{part}", True, f"tensor_placement_policy {reading.one('_policy')}")
    batch, turns = reading.one("_batch"), reading.one("_turns") or 1
    if batch and (reading.one("pipeline_parallel") or 1) > 1:
        if batch % turns:
            reading.conflict(f"BATCH_SIZE {batch} and NUM_MICRO_BATCHES {turns}, which doesn't divide it")
        else:
            reading.put("micro_batch", batch // turns, derived=True)
            reading.put("gradient_accumulation", turns * (reading.one("gradient_accumulation") or 1), derived=True)
            reading.said.pop("gradient_accumulation", None)
    if reading.has("_half"):
        reading.put("dtype", "fp16")
    kind = re.match(r"gpt[-_]?([23])[-_ ]?([a-z0-9.]*?)(?:_pipeline.*)?$", str(reading.one("_kind") or "").lower())
    if kind:
        reading.model_name = {"3": "gpt3-175b"}.get(kind[1]) or f"gpt2-{kind[2]}".rstrip("-")


COLOSSALAI = Dialect("colossalai", (*ROWS, *TITANS_ROWS), rules)

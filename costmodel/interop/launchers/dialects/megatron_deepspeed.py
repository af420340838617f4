"""Megatron-DeepSpeed arguments: Megatron's of 2022, and DeepSpeed's own."""

from __future__ import annotations

from costmodel.description.mixtures import expert_layout
from costmodel.interop.launchers import common, says
from costmodel.interop.launchers import values as unit
from costmodel.interop.launchers.dialects import megatron
from costmodel.interop.launchers.settle import schedule_of
from costmodel.interop.launchers.table import (
    OWN,
    Dialect,
    FlagRow,
    LaunchReading,
    Writing,
    pick,
    silent,
    spellings,
    without,
)


def every_nth(w: Writing) -> bool:
    """Whether every n-th layer has experts, the last of each n."""
    step = w.model.expert_layer_step
    return bool(w.model.experts) and (not w.model.dense_layers or (step > 1 and w.model.expert_start == step - 1))


def unevenly(w: Writing) -> bool:
    """Whether experts are in layers of another order."""
    return says.has_both_layers(w) and not every_nth(w)


OWN_ROWS = (
    FlagRow("num_key_value_heads num_query_groups", "_groups", unit.count, 1, says="model.num_kv_heads",
            when=says.groups_queries),
    FlagRow("use_rotary_position_embeddings", "_positions", unit.yields("rope"), None, "to core 0.8",
            lambda w: not w.model.learned_positions),
    FlagRow("deepspeed", "_deepspeed", unit.anything, says=says.fixed(True)),
    *pick(megatron.PLAN_ROWS, ["tensor_model_parallel_size", "pipeline_model_parallel_size"]),
    *pick(megatron.PLAN_ROWS, ["micro_batch_size", "global_batch_size", "seq_length"]),
    FlagRow("zero_stage", "zero_stage", unit.whole, 0, says=OWN),
    FlagRow("moe_expert_parallel_size", "expert_parallel", unit.degree, 1, says=OWN, when=says.has_experts),
    FlagRow("topk", "_topk", unit.count, 1, says="model.top_k"),
    FlagRow("expert_interval", "_interval", unit.count, 2, says=lambda w: w.model.expert_layer_step, when=every_nth),
    FlagRow("no_pipeline_parallel", "_no_pipeline", unit.flag, False, says=lambda w: w.plan.pipeline_parallel == 1),
    *pick(megatron.PLAN_ROWS, ["sequence_parallel"]),
    FlagRow("bf16", "_wide", unit.yields("bf16"), says="dtype"),
    FlagRow("fp16", "_wide", unit.yields("fp16"), says="dtype"),
    FlagRow("checkpoint_activations", "_recompute", unit.yields("full"), None, "to 2.6", "recompute"),
    FlagRow("deepspeed_activation_checkpointing", "_deepspeed_recompute", unit.flag, says=says.where_one_of("recompute", "full")),
    FlagRow("recompute_granularity", "_recompute", unit.one_of(megatron.DEGREES_OF_RECOMPUTE), None, "from 3.0",
            says.mapped("recompute", {"selective": "selective"})),
    FlagRow("cpu_optimizer", "_offload_optimizer", unit.flag, False, says=OWN),
    FlagRow("optimizer", "optimizer", unit.word, "adam", "from 1.0", says.mapped("optimizer", {"adam": "adam", "None": "adam"})),
    FlagRow("use_flash_attn_v2 use_flash_attn use_flash_attn_v1 use_flash_attn_triton", "_attention", unit.yields("flash"), None,
            "from 3.0", "attention"),
    FlagRow("ds_sequence_parallel_size", "ulysses_parallel", unit.count, 1),
    FlagRow("deepspeed_config", "_config_file", unit.word),
    FlagRow("checkpoint_in_cpu", "_offload_activations", unit.flag, False),
    FlagRow("enable_zbh1_pipeline enable_zbh1_exact_semantics", "schedule", unit.yields("zero-bubble"), None, "from 2024"),
    FlagRow("moe_train_capacity_factor", "_capacity", unit.number, 1.0),
)
NEWER = "group_query_attention", "position_embedding_type", "qk_layernorm", "moe_router_topk"
"""Flags of Megatron's that its arguments of 2022 lack."""
SHAPE_ROWS = without(silent(megatron.MODEL_ROWS, NEWER), spellings(OWN_ROWS))
ROWS = (
    *(row._replace(when=unevenly) if row.flags == "moe_layer_freq" else row for row in SHAPE_ROWS),
    *OWN_ROWS,
    *silent(without(megatron.PLAN_ROWS, spellings(OWN_ROWS))),
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
    unfused = "_attention" not in reading.variable_fields and reading.one("_attention", "unfused") == "unfused"
    reading.put("attention", megatron.APART if unfused and reading.one("_apart") else reading.one("_attention"))
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
    shown = next((one for one in reading.unresolved if one.lstrip("-").replace("-", "_") == "deepspeed_config"), None)
    if shown is not None:
        reading.say("_config_file", reading.unresolved.pop(shown), shown)
    if not reading.has("zero_stage"):
        common.beside(reading, "_config_file", "deepspeed")


MEGATRON_DEEPSPEED = Dialect("megatron-deepspeed", ROWS, rules)

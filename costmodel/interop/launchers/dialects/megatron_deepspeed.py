"""Megatron-DeepSpeed arguments: Megatron's of 2022, and DeepSpeed's own."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from costmodel.description.mixtures import expert_layout
from costmodel.interop.launchers import common
from costmodel.interop.launchers import values as unit
from costmodel.interop.launchers.dialects import megatron, said_megatron
from costmodel.interop.launchers.settle import schedule_of
from costmodel.interop.launchers.table import FlagRow

if TYPE_CHECKING:
    from costmodel.interop.launchers.table import LaunchReading

OWN = (
    FlagRow("zero_stage", "zero_stage", unit.whole, 0),
    FlagRow("ds_sequence_parallel_size", "ulysses_parallel", unit.count, 1),
    FlagRow("moe_expert_parallel_size", "expert_parallel", unit.degree, 1),
    FlagRow("topk", "_topk", unit.count, 1),
    FlagRow("expert_interval", "_interval", unit.count, 2),
    FlagRow("deepspeed", "_deepspeed", unit.anything),
    FlagRow("deepspeed_config", "_config_file", unit.word),
    FlagRow("deepspeed_activation_checkpointing", "_deepspeed_recompute", unit.flag),
    FlagRow("no_pipeline_parallel", "_no_pipeline", unit.flag, False),
    FlagRow("checkpoint_in_cpu", "_offload_activations", unit.flag, False),
    FlagRow("cpu_optimizer", "_offload_optimizer", unit.flag, False),
    FlagRow("enable_zbh1_pipeline enable_zbh1_exact_semantics", "schedule", unit.yields("zero-bubble"), None, "from 2024"),
    FlagRow("disable_moe_token_dropping", "_dropless", unit.flag, False),
    FlagRow("moe_train_capacity_factor", "_capacity", unit.number, 1.0),
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
    shown = next((one for one in reading.unresolved if one.lstrip("-").replace("-", "_") == "deepspeed_config"), None)
    if shown is not None:
        reading.say("_config_file", reading.unresolved.pop(shown), shown)
    if not reading.has("zero_stage"):
        common.beside(reading, "_config_file", "deepspeed")


TAKEN = {spelling for row in OWN for spelling in row.flags.split()}
MEGATRON_DEEPSPEED = dataclasses.replace(
    megatron.MEGATRON,
    name="megatron-deepspeed",
    framework="megatron-deepspeed",
    rows=(*OWN, *(row for row in megatron.MEGATRON.rows if not TAKEN & set(row.flags.split()))),
    rules=rules,
    write=said_megatron.megatron_deepspeed,
    defaults=dict(megatron.MEGATRON.defaults) | {"ulysses_parallel": 1, "attention": "unfused"},
    software="megatron-deepspeed",
)

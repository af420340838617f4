"""torchtune's YAML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costmodel.interop.launchers import common
from costmodel.interop.launchers.dialects import said_trainers
from costmodel.interop.launchers.table import UNSPLIT, Dialect, FlagRow
from costmodel.interop.launchers.values import DTYPES, Expected, count, flag, listed, one_of, rest, yields

if TYPE_CHECKING:
    from costmodel.interop.launchers.table import LaunchReading



def last(raw: object) -> object:
    """The name at the end of a component's path."""
    if not isinstance(raw, str):
        raise Expected("the path of a component")
    return raw.rpartition(".")[2]


ROWS = (
    FlagRow("dataset.packed dataloader.packed", "_packing", flag, False),
    FlagRow("model._component_ policy_model._component_", "_builder", last),
    FlagRow("batch_size", "micro_batch", count),
    FlagRow("gradient_accumulation_steps", "gradient_accumulation", count, 1),
    FlagRow("dtype", "_wide", one_of(DTYPES), "bf16"),
    FlagRow("tokenizer.max_seq_len", "seq_len", count),
    FlagRow("optimizer._component_", "optimizer", last),
    FlagRow("enable_activation_checkpointing", "_recompute", yields("full", "none"), False),
    FlagRow("ac_mode", "_mode", one_of({"full": "full", "selective": "selective"}), None, "from 0.2"),
    FlagRow("enable_activation_offloading", "_offload_activations", flag, False, "from 0.4"),
    FlagRow("fsdp_cpu_offload fsdp.cpu_offload", "_offload_fsdp", flag, False),
    FlagRow("tensor_parallel_dim", "tensor_parallel", count, 1, "from 0.6"),
    FlagRow("context_parallel_dim", "context_parallel", count, 1, "from 0.7"),
    FlagRow("data_parallel_shard_dim", "fsdp.shard_degree", rest, -1, "from 0.6"),
    FlagRow("data_parallel_replicate_dim", "fsdp.replicate_degree", count, 1, "from 0.6"),
    FlagRow("fsdp_reshard_after_forward", "fsdp.reshard_after_forward", flag, True),
    FlagRow("model.lora_rank", "_rank", count),
    FlagRow("model.lora_attn_modules", "_targets", listed),
    FlagRow("model.apply_lora_to_mlp", "_mlp", flag, False),
    FlagRow("optimizer_in_bwd", "_in_backward", flag, False),
    FlagRow("enable_fp8_training", "_narrow", yields("fp8"), False, "from 0.7"),
    FlagRow("model.num_layers", "model.num_layers", count),
    FlagRow("model.embed_dim", "model.hidden_size", count),
    FlagRow("model.num_heads", "model.num_heads", count),
    FlagRow("model.num_kv_heads", "model.num_kv_heads", count),
    FlagRow("model.intermediate_dim", "model.ffn_hidden_size", count),
    FlagRow("model.vocab_size", "model.vocab_size", count),
    FlagRow("expert_parallel_dim", "expert_parallel", count, 1),
    FlagRow("model.quantize_base", "_quantised", flag, False),
    FlagRow("world_size", "_gpus", count),
    FlagRow("num_processes", "_gpus", count),
)


def rules(reading: LaunchReading) -> None:
    """FSDP, recomputation and adapters."""
    common.dtype(reading)
    builder = reading.one("_builder")
    reading.model_name = builder
    reading.put(
        "recompute",
        reading.one("_mode")
        if reading.one("_recompute") == "full" and reading.has("_mode")
        else reading.one("_recompute"),
    )
    stated = [
        name
        for name in ("shard_degree", "replicate_degree", "reshard_after_forward")
        if reading.has(f"fsdp.{name}")
    ]
    fields: dict[str, object] = {"version": 2} if stated else {}
    fields |= {name: reading.one(f"fsdp.{name}") for name in stated}
    if reading.has("_offload_fsdp"):
        fields["offload_params"] = reading.one("_offload_fsdp")
    if fields:
        common.fsdp(reading, fields)
    common.offload(reading)
    common.batching(reading)
    if builder and (builder.startswith(("lora", "qlora", "dora", "qdora")) or reading.has("_rank")):
        if reading.one("_mlp") and isinstance(reading.one("_targets"), list):
            reading.said["_targets"][0].value.append("mlp")
        quantised = (builder.startswith("q") and not builder.startswith("qwen")) or reading.one("_quantised")
        common.adapter(reading, "qlora" if quantised else "lora", 8)  # torchtune's builders: lora_rank=8
    if reading.one("_in_backward"):
        reading.unpriced.append("optimizer_in_bwd")


TORCHTUNE = Dialect(
    name="torchtune",
    framework="torchtune",
    rows=ROWS,
    rules=rules,
    write=said_trainers.torchtune,
    defaults={
        **UNSPLIT,
        "zero_stage": 3,
        "dtype": "bf16",
        "recompute": "none",
        "offload": [],
        "gradient_accumulation": 1,
        "attention": "fused",
    },
    layout="yaml",
    reads=frozenset({"yaml", "json", "args"}),
    software="torchtune",
)

"""NeMo: the YAML of its launcher, NeMo 2's overrides, and Megatron-Bridge's recipes with overrides."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from costmodel.interop.launchers import common
from costmodel.interop.launchers.dialects import megatron, said_megatron
from costmodel.interop.launchers.settle import schedule_of
from costmodel.interop.launchers.table import Dialect, FlagRow, words
from costmodel.interop.launchers.values import (
    DTYPES,
    UNSTATED,
    count,
    degree,
    flag,
    listed,
    number,
    one_of,
    whole,
    word,
    yields,
)

if TYPE_CHECKING:
    from costmodel.interop.launchers.table import LaunchReading

ACTIVATIONS = {
    "fast-swiglu": "swiglu",
    "swiglu": "swiglu",
    "geglu": "geglu",
    "fast-geglu": "geglu",
    "gelu": "gelu (not gated)",
    "squared-relu": "squared_relu (not gated)",
    "relu": "relu (not gated)",
    "reglu": "reglu",
    "fast-reglu": "reglu",
    "swish": "swish (not gated)",
    "silu": "silu (not gated)",
    "openai-gelu": "gelu (not gated)",
}


def under(prefixes: str, names: Iterable[str]) -> frozenset[str]:
    """Names in sections."""
    return frozenset(f"{prefix}.{name}" for prefix in prefixes.split() for name in names)


def moved(prefixes: str, rows: Iterable[FlagRow], without: frozenset[str] = frozenset()) -> tuple[FlagRow, ...]:
    """Rows of Megatron with their flags in sections."""
    return tuple(
        row._replace(
            flags=" ".join(f"{prefix}.{name}" for prefix in prefixes.split() for name in row.flags.split())
        )
        for row in rows
        if not without & set(row.flags.split())
    )


def _checkpoint(name: str) -> str:
    """Spellings of a key on recomputation: of a decoder, and of T5's encoder and decoder."""
    return " ".join(f"{section}.activations_checkpoint_{name}" for section in ("model", "model.encoder", "model.decoder"))


OTHERWISE = words(
    """
    fp8 fp8_hybrid max_length model torch_dtype bf16 fp16 micro_batch_size global_batch_size batch_size optimizer
    attn_impl hidden_dropout cpu_offloading_num_layers tuner_type seq_length lora_rank target_modules
    """
)
SHARED = moved("model", megatron.MEGATRON.rows, OTHERWISE)
ROWS = (
    *(row for row in SHARED if "_recompute" not in row.field),
    FlagRow("trainer.num_nodes", "_nodes", count, 1),
    FlagRow("trainer.devices", "_per_node", degree, 1),
    FlagRow("trainer.precision model.precision trainer.plugins.precision", "_wide", one_of(DTYPES), "bf16"),
    FlagRow("model.micro_batch_size", "micro_batch", count),
    FlagRow("model.global_batch_size", "global_batch", count),
    FlagRow("model.data.seq_length model.seq_length model.encoder_seq_length", "seq_len", count),
    FlagRow("model.fp8", "_fp8", yields("fp8"), False),
    FlagRow("model.fp8_params", "_fp8_params", flag, False),
    FlagRow(
        _checkpoint("granularity"), "_recompute", one_of({"full": "full", "selective": "selective"}, null="none")
    ),
    FlagRow(_checkpoint("method"), "_recompute_method", word),
    FlagRow(_checkpoint("num_layers"), "_recompute_layers", whole),
    FlagRow("model.optim.name", "optimizer", word, "fused_adam"),
    FlagRow("model.fsdp", "_torch_fsdp", flag, False),
    FlagRow("model.fsdp_sharding_strategy", "_strategy", word, "full"),
    FlagRow("model.use_flash_attention", "_attention", yields("flash"), False),
    FlagRow("model.optim.overlap_grad_sync", "overlap_gradients", flag, False),
    FlagRow("model.optim.overlap_param_sync", "overlap_parameters", flag, False),
    FlagRow("model.ub_tp_comm_overlap", "overlap_tensor", flag, False),
    FlagRow("model.overlap_p2p_comm", "overlap_pipeline", flag, False),
    FlagRow("model.cpu_offloading_num_layers", "_offload_layers", whole),
    FlagRow("model.activation", "_activation", one_of(ACTIVATIONS), "gelu"),
    FlagRow("model.share_embeddings_and_output_weights", "model.tied_embeddings", flag, True),
    FlagRow("model.bias", "model.bias", flag, True),
    FlagRow("model.qkv_bias", "model.qkv_bias", flag),
    FlagRow("model.override_vocab_size", "model.vocab_size", count),
    FlagRow("model.hidden_dropout model.ffn_dropout model.attention_dropout", "_dropout", number, 0.1),
    FlagRow("model.peft.peft_scheme peft.peft_scheme", "_peft", word),
    FlagRow("model.peft.lora_tuning.adapter_dim", "_rank", count, 32),
    FlagRow("model.peft.lora_tuning.target_modules", "_targets", listed),
    FlagRow("model.restore_from_path restore_from_path", "_restored", word),
)
NEMO2 = (
    *moved(
        "trainer.strategy",
        [
            row
            for row in megatron.PLAN_ROWS
            if row.field
            in (
                "tensor_parallel",
                "pipeline_parallel",
                "context_parallel",
                "expert_parallel",
                "expert_tensor_parallel",
                "virtual_stages",
                "sequence_parallel",
            )
        ],
    ),
    *moved("model.config", megatron.MEGATRON.rows, OTHERWISE),
    FlagRow("data.micro_batch_size", "micro_batch", count),
    FlagRow("data.global_batch_size", "global_batch", count),
    FlagRow("data.seq_length model.config.seq_length", "seq_len", count),
    FlagRow("factory recipe", "_recipe", word),
    FlagRow(
        "trainer.strategy.ddp.use_distributed_optimizer optim.config.use_distributed_optimizer",
        "_distributed",
        yields(1, 0),
    ),
    FlagRow("optim.config.optimizer", "optimizer", word),
    FlagRow("trainer.strategy.ddp.overlap_grad_reduce", "overlap_gradients", flag),
    FlagRow("trainer.strategy.ddp.overlap_param_gather", "overlap_parameters", flag),
    FlagRow("trainer.strategy.ddp.grad_reduce_in_fp32", "gradient_bytes", yields(4, 2)),
)


def rules(reading: LaunchReading) -> None:
    """What NeMo's keys amount to."""
    name = str(reading.one("optimizer", ""))
    if name in ("mcore_distributed_optim", "distributed_fused_adam") or reading.one("_distributed"):
        reading.put("zero_stage", 1)
    if reading.one("_torch_fsdp"):
        common.fsdp(reading, {"sharding": reading.one("_strategy", "full")})
        stages = {"full": 3, "grad": 2, "hybrid": 3}
        reading.put("zero_stage", stages.get(str(reading.one("_strategy", "full")), 3))
    _shared(reading)
    if reading.one("_peft") in ("lora", "qlora"):
        common.adapter(reading, reading.one("_peft"), 32, "fused")  # attention_qkv alone where none is named
    if recipe := reading.one("_recipe"):
        _recipe(reading, recipe)


def _shared(reading: LaunchReading) -> None:
    megatron.shape(reading)
    megatron.chunks(reading)
    megatron.sharding(reading)
    megatron.precision(reading)
    megatron.graphs(reading)
    megatron.context(reading)
    if reading.one("_offload_layers") and not reading.has("_offload_activations"):
        reading.say("_offload_activations", True, "cpu_offloading_num_layers")
    common.offload(reading)
    if reading.one("_recompute_method") and not reading.has("_recompute"):  # before there was a granularity
        reading.say("_recompute", "full", "activations_checkpoint_method")
    if reading.has("_recompute"):
        megatron.recompute(reading)
    if any(key.startswith("model.encoder.") for key in reading.keys):
        reading.note("an encoder with a decoder (T5), which is not modelled: give another model with --model")
    reading.put("attention", reading.one("_attention"))
    schedule_of(reading)
    if reading.one("_tp_pp_dp"):
        reading.put("rank_order", ["tensor", "context", "pipeline", "data"])


def _recipe(reading: LaunchReading, recipe: str) -> None:
    """The model and the precision that a recipe's name says."""
    parts = re.split(r"_(?:pretrain|sft|peft|finetune|lora|dora|qat|perf|distill)(?:_|$)", recipe, maxsplit=1)
    reading.model_name = re.sub(r"_config$", "", parts[0])
    tail = parts[1] if len(parts) > 1 else ""
    narrow = re.search(r"mxfp8|nvfp4|fp8|bf16|fp16", tail)
    if narrow and not reading.has("_precision"):
        reading.put("dtype", narrow[0], derived=True)
    if re.search(r"_(peft|lora|dora)", recipe):
        reading.put("adapter", "lora")
    reading.note(f"what isn't stated comes from the recipe {recipe}, which isn't opened")


NEMO = Dialect(
    name="nemo",
    framework="nemo",
    rows=(*ROWS, *NEMO2),
    rules=rules,
    write=said_megatron.nemo,
    defaults=dict(megatron.MEGATRON.defaults) | {"dtype": "bf16", "optimizer": "fused_adam"},
    layout="yaml",
    reads=frozenset({"yaml", "args"}),
    software="nemo",
)


# Megatron-Bridge


def mixed(raw: object) -> object:
    """The narrow dtype of a mixed-precision recipe such as ``bf16_with_mxfp8_mixed``."""
    if raw is None:
        return UNSTATED
    found = re.search(r"mxfp8|nvfp4|fp8|bf16|fp16|fp32", str(raw).lower())
    return found[0] if found else UNSTATED


BRIDGE_ROWS = (
    *SHARED,
    FlagRow("recipe", "_recipe", word),
    FlagRow("train.micro_batch_size", "micro_batch", count),
    FlagRow("hf_path hf_model_path", "_hf", word),
    FlagRow("train.global_batch_size", "global_batch", count),
    FlagRow("model.seq_length dataset.seq_length dataset.sequence_length", "seq_len", count),
    FlagRow("mixed_precision mixed_precision.name", "_precision", mixed),
    FlagRow("optimizer.optimizer", "optimizer", word),
    FlagRow("model.fp8", "_fp8", one_of(megatron.FORMATS)),
    FlagRow("model.bf16", "_wide", yields("bf16")),
    FlagRow("model.fp16", "_wide", yields("fp16")),
    FlagRow("mixed_precision.bf16", "_wide", yields("bf16")),
    FlagRow("mixed_precision.fp16", "_wide", yields("fp16")),
    FlagRow("mixed_precision.fp8", "_fp8", one_of(megatron.FORMATS)),
    FlagRow("mixed_precision.fp8_recipe", "_fp8_recipe", one_of(megatron.RECIPES)),
    FlagRow("dist.use_megatron_fsdp ddp.use_megatron_fsdp", "_fsdp", flag, False),
    FlagRow("dist.use_torch_fsdp2", "_fsdp2", flag, False),
    FlagRow(
        "ddp.data_parallel_sharding_strategy",
        "_sharding",
        one_of({k: k for k in megatron.SHARDING}),
        "no_shard",
    ),
    FlagRow("ddp.use_distributed_optimizer optimizer.use_distributed_optimizer", "_distributed", yields(1, 0)),
    FlagRow("ddp.overlap_grad_reduce comm_overlap.overlap_grad_reduce", "overlap_gradients", flag),
    FlagRow("ddp.overlap_param_gather comm_overlap.overlap_param_gather", "overlap_parameters", flag),
    FlagRow("comm_overlap.tp_comm_overlap", "overlap_tensor", flag),
    FlagRow("ddp.grad_reduce_in_fp32 mixed_precision.grad_reduce_in_fp32", "gradient_bytes", yields(4, 2)),
    FlagRow("optimizer.use_precision_aware_optimizer", "_precise", flag),
    FlagRow("optimizer.optimizer_cpu_offload", "_offload_optimizer", flag),
    FlagRow("optimizer.optimizer_offload_fraction", "_offload_fraction", number),
    FlagRow("optimizer.exp_avg_dtype", "_moment", word),
    FlagRow("model.vocab_size", "model.vocab_size", count),
    FlagRow("model.cross_entropy_loss_fusion", "fused_cross_entropy", flag),
    FlagRow("peft.dim", "_rank", count),
    FlagRow("peft.target_modules", "_targets", listed),
    FlagRow("peft_scheme peft", "_peft", word),
    FlagRow("gpus num_gpus ng", "_gpus", count),
    FlagRow("compute_dtype", "_precision", mixed),
    FlagRow("max_steps", "_steps", count),
    FlagRow("dataset.packed_sequence_specs.packed_sequence_size dataset.packed_sequence_size", "_packing", degree),
    FlagRow("dataset.enable_offline_packing", "_packing", flag),
    FlagRow("dataset.enable_in_batch_packing dataset.pack_sequences_in_batch", "_padding_free", flag),
    FlagRow("nodes", "_nodes", count),
    FlagRow("gpus_per_node gpus-per-node", "_per_node", count),
    FlagRow("model_name model_recipe_name m", "_name", word),
    FlagRow("tp", "tensor_parallel", count),
    FlagRow("pp", "pipeline_parallel", count),
    FlagRow("cp", "context_parallel", count),
    FlagRow("ep", "expert_parallel", count),
    FlagRow("etp", "expert_tensor_parallel", count),
    FlagRow("vp", "virtual_stages", count),
    FlagRow("mb", "micro_batch", count),
    FlagRow("gb", "global_batch", count),
)
TAKEN = {spelling for row in BRIDGE_ROWS[len(SHARED) :] for spelling in row.flags.split()}


def bridge_rules(reading: LaunchReading) -> None:
    """What Megatron-Bridge's overrides amount to; the named recipe rules the rest."""
    reading.put("dtype", reading.one("_precision"))
    common.batching(reading)
    if reading.one("_fsdp") is False and not reading.one("_fsdp2"):
        reading.put("fsdp", {"enabled": False})
    _shared(reading)
    if recipe := reading.one("_recipe"):
        _recipe(reading, recipe)
    reading.model_name = reading.one("_name") or reading.model_name
    if reading.one("_rank") or reading.one("_peft") in ("lora", "dora"):
        common.adapter(reading, "lora")


BRIDGE = Dialect(
    name="megatron-bridge",
    framework="megatron-bridge",
    rows=(*(row for row in SHARED if not TAKEN & set(row.flags.split())), *BRIDGE_ROWS[len(SHARED) :]),
    rules=bridge_rules,
    write=said_megatron.bridge,
    defaults={},
    layout="args",
    reads=frozenset({"yaml", "args"}),
    software="nemo",
)

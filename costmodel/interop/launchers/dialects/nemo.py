"""NeMo: the YAML of its launcher, NeMo 2's overrides, and Megatron-Bridge's recipes with overrides."""

from __future__ import annotations

import re

from costmodel.description.dimensions import DIMENSIONS
from costmodel.interop.launchers import common, says
from costmodel.interop.launchers import values as unit
from costmodel.interop.launchers.dialects import megatron
from costmodel.interop.launchers.settle import schedule_of
from costmodel.interop.launchers.table import (
    ABOVE_ONE,
    OWN,
    UNSPLIT,
    Dialect,
    FlagRow,
    LaunchReading,
    Writing,
    moved,
    pick,
    silent,
    spellings,
    without,
    words,
)

ACTIVATIONS = {
    "fast-swiglu": "swiglu", "swiglu": "swiglu", "geglu": "geglu", "fast-geglu": "geglu", "gelu": "gelu (not gated)",
    "squared-relu": "squared_relu (not gated)", "relu": "relu (not gated)", "reglu": "reglu", "fast-reglu": "reglu",
    "swish": "swish (not gated)", "silu": "silu (not gated)", "openai-gelu": "gelu (not gated)",
}  # fmt: skip


def _checkpoint(name: str) -> str:
    """Spellings of a key on recomputation: of a decoder, and of T5's encoder and decoder."""
    return " ".join(f"{section}.activations_checkpoint_{name}" for section in ("model", "model.encoder", "model.decoder"))


OTHERWISE = words(
    """
    fp8 fp8_hybrid max_length model torch_dtype bf16 fp16 micro_batch_size global_batch_size batch_size optimizer attn_impl
    hidden_dropout attention_dropout cpu_offloading_num_layers tuner_type seq_length lora_rank target_modules
    """
)
"""Flags of Megatron's that have other names here."""
SHARED = without((row for row in megatron.MEGATRON.rows if row.field), OTHERWISE)
SPLIT = (
    *moved("model", pick(SHARED, ["tensor_model_parallel_size", "pipeline_model_parallel_size"])),
    FlagRow("model.virtual_pipeline_model_parallel_size model.num_virtual_stages_per_pipeline_rank", "virtual_stages",
            unit.count, 1, "from core 0.12", ABOVE_ONE),
    *moved("model", pick(SHARED, ["context_parallel_size", "cp_comm_type"])),
    *moved("model", pick(SHARED, ["expert_model_parallel_size", "expert_tensor_parallel_size"])),
    FlagRow("model.sequence_parallel", "sequence_parallel", unit.flag, False, "from 3.0",
            lambda w: bool(w.plan.sequence_parallel)),
)
"""How a model is split, as both write it."""


def full(w: Writing) -> bool:
    """Whether everything is computed again."""
    return w.plan.recompute == "full"


GRANULARITY = says.mapped("recompute", {"full": "full", "selective": "selective"})
STAGE_ONE = says.mapped("zero_stage", {"1": "mcore_distributed_optim"}, "fused_adam")
OWN_ROWS = (
    FlagRow("trainer.num_nodes", "_nodes", unit.count, 1, says=lambda w: 1 if w.plan.gpus % 8 else max(1, w.plan.gpus // 8)),
    FlagRow("trainer.devices", "_per_node", unit.degree, 1, says=lambda w: w.plan.gpus if w.plan.gpus % 8 else 8),
    FlagRow("trainer.precision model.precision trainer.plugins.precision", "_wide", unit.one_of(unit.DTYPES), "bf16",
            says=says.mapped("dtype", megatron.WIDE, "32")),
    FlagRow("model.fp8", "_fp8", unit.yields("fp8"), False, says=lambda w: w.plan.dtype in ("fp8", "mxfp8")),
    FlagRow("model.fp8_recipe", "_fp8_recipe", unit.one_of(megatron.RECIPES), "delayed", "from core 0.11",
            says.mapped("dtype", {"mxfp8": "mxfp8"})),
    FlagRow("model.fp8_params", "narrow_parameters", unit.flag, False),
    *moved("model trainer.plugins", pick(SHARED, ["fp8_dot_product_attention", "activation_func_fp8_input_store"])),
    *SPLIT,
    FlagRow("model.micro_batch_size", "micro_batch", unit.count, says=OWN),
    FlagRow("model.global_batch_size", "global_batch", unit.count, says=OWN),
    FlagRow("model.encoder_seq_length model.data.seq_length model.seq_length", "seq_len", unit.count, says=OWN),
    FlagRow(_checkpoint("granularity"), "_recompute", unit.one_of({"full": "full", "selective": "selective"}, null="none"),
            says=GRANULARITY),
    FlagRow(_checkpoint("method"), "_recompute_method", unit.word, says=says.fixed("uniform"), when=full),
    FlagRow(_checkpoint("num_layers"), "_recompute_layers", unit.whole, says=says.fixed(1), when=full),
    FlagRow("model.optim.name", "optimizer", unit.word, "fused_adam", says=STAGE_ONE),
    FlagRow("model.optim.grad_sync_dtype", "_sync", unit.one_of(unit.DTYPES), "fp32",
            says=lambda w: "bf16" if w.plan.gradient_bytes in (None, 2) and w.plan.zero_stage == 1 else None),
    FlagRow("model.optim.overlap_grad_sync", "overlap_gradients", unit.flag, False, says=OWN),
    FlagRow("model.optim.overlap_param_sync", "overlap_parameters", unit.flag, False, says=OWN),
    FlagRow("model.ub_tp_comm_overlap", "overlap_tensor", unit.flag, False, says=OWN),
    FlagRow("model.overlap_p2p_comm", "overlap_pipeline", unit.flag, False, says=OWN),
    FlagRow("model.use_flash_attention", "_attention", unit.yields("flash"), False, says="attention"),
    *moved("model", pick(SHARED, ["num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads"])),
    FlagRow("model.num_query_groups model.num_key_value_heads", "_groups", unit.count, 1, says="model.num_kv_heads",
            when=says.groups_queries),
    *moved("model", pick(SHARED, ["kv_channels"])),
    FlagRow("model.num_moe_experts model.num_experts", "_experts", unit.anything, says="model.num_experts"),
    *moved("model", pick(SHARED, ["moe_router_topk"])),
    FlagRow("model.normalization", "model.norm", unit.one_of({name.lower(): norm for name, norm in megatron.NORMS.items()}),
            "LayerNorm", says=OWN),
    FlagRow("model.activation", "_activation", unit.one_of(ACTIVATIONS), "gelu",
            says=lambda w: "fast-swiglu" if w.model.gated else "gelu"),
    FlagRow("model.bias", "model.bias", unit.flag, True, says="model.feed_forward_bias"),
    FlagRow("model.share_embeddings_and_output_weights", "model.tied_embeddings", unit.flag, True, says=OWN),
    FlagRow("model.override_vocab_size", "model.vocab_size", unit.count, says=OWN),
    FlagRow("model.tokenizer.type", "model.tokenizer", unit.word),
    FlagRow("model.fsdp", "_torch_fsdp", unit.flag, False),
    FlagRow("model.fsdp_sharding_strategy", "_strategy", unit.word, "full"),
    FlagRow("model.cpu_offloading_num_layers", "_offload_layers", unit.whole),
    FlagRow("model.qkv_bias", "model.qkv_bias", unit.flag),
    FlagRow("model.hidden_dropout model.ffn_dropout model.attention_dropout", "_dropout", unit.number, 0.1),
    FlagRow("model.peft.peft_scheme peft.peft_scheme", "_peft", unit.word),
    FlagRow("model.peft.lora_tuning.adapter_dim", "_rank", unit.count, 32),
    FlagRow("model.peft.lora_tuning.adapter_dropout", "_adapter_dropout", unit.number),
    FlagRow("model.peft.lora_tuning.target_modules", "_targets", unit.listed),
)
NEMO2 = (
    *silent(moved("trainer.strategy", (row for row in megatron.PLAN_ROWS if row.field in UNSPLIT))),
    *silent(moved("model.config", SHARED)),
    FlagRow("data.micro_batch_size", "micro_batch", unit.count),
    FlagRow("data.global_batch_size", "global_batch", unit.count),
    FlagRow("data.seq_length model.config.seq_length", "seq_len", unit.count),
    FlagRow("factory recipe", "_recipe", unit.word),
    FlagRow("trainer.strategy.ddp.use_distributed_optimizer optim.config.use_distributed_optimizer", "_distributed",
            unit.yields(1, 0)),
    FlagRow("optim.config.optimizer", "optimizer", unit.word),
    FlagRow("trainer.strategy.ddp.bucket_size", "_bucket", unit.count),
    *silent(moved("trainer.strategy.ddp", pick(SHARED, ["overlap_grad_reduce", "overlap_param_gather"]))),
    FlagRow("trainer.strategy.ddp.grad_reduce_in_fp32", "gradient_bytes", unit.yields(4, 2)),
)
OF_MEGATRON = silent(moved("model", SHARED))
"""Megatron's rows in the section of the model, to be read."""


def rules(reading: LaunchReading) -> None:
    """What NeMo's keys amount to."""
    name = str(reading.one("optimizer", ""))
    if name in ("mcore_distributed_optim", "distributed_fused_adam") or reading.one("_distributed"):
        reading.put("zero_stage", 1)
    if name == "mcore_distributed_optim":  # NVIDIA/NeMo@8cfedd7203 megatron_gpt_model.py ``setup_mcore_distributed_parallel``
        reading.put("gradient_bytes", 4 if reading.one("_sync", "fp32") == "fp32" else None, derived=True)
    elif reading.has("_sync"):
        reading.unpriced.append(reading.said["_sync"][0].shown)
    if reading.one("_torch_fsdp"):
        common.fsdp(reading, {"sharding": reading.one("_strategy", "full")})
        stages = {"full": 3, "grad": 2, "hybrid": 3}
        reading.put("zero_stage", stages.get(str(reading.one("_strategy", "full")), 3))
    _shared(reading)
    _launched(reading)
    if reading.one("_peft") in ("lora", "qlora"):
        common.adapter(reading, reading.one("_peft"), 32, "fused")  # attention_qkv alone where none is named
    if recipe := reading.one("_recipe"):
        _recipe(reading, recipe)
    megatron.narrow_attention(reading)
    megatron.buckets(reading)


def _launched(reading: LaunchReading) -> None:
    """What a stage's configuration says that is named and not given: no default takes its place."""
    preset = reading.one("_preset")
    if preset and len(reading.files) == 1:
        family, _, size = re.sub(r"/(sft|peft|squad|lora)$", "", preset).partition("/")
        reading.model_name = f"{family}-{size}" if size[:1].isdigit() else size or family
        hint = f"{reading.said['_preset'][0].shown} names a configuration, which was not given"
        left = [field for field in PRESET if not reading.has(field) and reading.plan.get(field) is None]
        reading.missing |= {field: hint for field in left if field not in reading.settled}
        reading.defaults = {field: value for field, value in reading.defaults.items() if field not in left}


PRESET = "tensor_parallel", "pipeline_parallel", "micro_batch", "global_batch", "seq_len", "zero_stage", "recompute"
"""Fields that the configuration of a stage has."""


def _shared(reading: LaunchReading) -> None:
    megatron.shape(reading)
    megatron.chunks(reading)
    megatron.sharding(reading)
    megatron.precision(reading)
    megatron.graphs(reading)
    megatron.context(reading)
    megatron.loss(reading)
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
    megatron.order(reading)


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


ALONE = (*OWN_ROWS, *without((row for row in OF_MEGATRON if "_recompute" not in row.field), spellings(OWN_ROWS)), *NEMO2)
STAGES = "training", "fine_tuning", "peft"
"""Sections of NVIDIA/NeMo-Framework-Launcher@26e42fa9 launcher_scripts/conf/config.yaml, each a file of its own."""
IN_STAGES = silent(moved(" ".join(STAGES), (row for row in ALONE if row.field)))
ROWS = (*ALONE, FlagRow(" ".join(STAGES), "_preset", unit.word), *IN_STAGES)
NEMO = Dialect("nemo", ROWS, rules)


# Megatron-Bridge


def mixed(raw: object) -> object:
    """The narrow dtype of a mixed-precision recipe such as ``bf16_with_mxfp8_mixed``, which names the wide one first."""
    if raw is None:
        return unit.UNSTATED
    said = str(raw).lower()
    found = re.search(r"mxfp8|nvfp4|fp8", said) or re.search(r"bf16|fp16|fp32", said)
    if found and found[0] == "fp8" and re.search("subchannel|nanov2", said):
        return "fp8-block"
    return found[0] if found else unit.UNSTATED


OF_RECIPES = {"fp8": "fp8_delayed_scaling", "fp8-block": "fp8_subchannel_scaling"}
"""Dtypes as recipes of mixed precision call them, where these aren't their names (NVIDIA-NeMo/Megatron-Bridge@0509780
src/megatron/bridge/training/mixed_precision.py)."""


def recipe(w: Writing) -> str:
    """The recipe of a model's name, which has to be there."""
    return f"{w.model.name.replace('-', '_').replace('.', '')}_pretrain_config"


def precision(w: Writing) -> str:
    """The recipe of mixed precision for a dtype."""
    dtype = str(w.plan.dtype)
    wide = megatron.WIDE.get(dtype, dtype)
    return f"{wide}_mixed" if dtype == wide else f"{wide}_with_{OF_RECIPES.get(dtype, dtype)}_mixed"


BRIDGE_ROWS = (
    FlagRow("recipe", "_recipe", unit.word, says=recipe),
    *SPLIT,
    FlagRow("model.seq_length", "seq_len", unit.count, says=OWN),
    FlagRow("dataset.seq_length dataset.sequence_length", "seq_len", unit.count, says=OWN),
    FlagRow("train.micro_batch_size", "micro_batch", unit.count, says=OWN),
    FlagRow("train.global_batch_size", "global_batch", unit.count, says=OWN),
    FlagRow("mixed_precision.name mixed_precision", "_precision", mixed, says=precision),
    *moved("mixed_precision model", pick(SHARED, ["fp8_dot_product_attention", "activation_func_fp8_input_store"])),
    *moved("model", pick(SHARED, ["use_transformer_engine_op_fuser"])),
    *moved("ddp mixed_precision", pick(SHARED, ["fp8_param_gather"])),
    *(row._replace(says=GRANULARITY) for row in moved("model", pick(SHARED, ["recompute_granularity"]))),
    *(row._replace(when=full) for row in moved("model", pick(SHARED, ["recompute_method", "recompute_num_layers"]))),
    FlagRow("ddp.use_distributed_optimizer optimizer.use_distributed_optimizer", "_distributed", unit.yields(1, 0),
            says=lambda w: bool(w.plan.zero_stage)),
    FlagRow("ddp.use_megatron_fsdp dist.use_megatron_fsdp", "_fsdp", unit.flag, False, says=says.fixed(True),
            when=megatron.sharded),
    *moved("ddp", (row._replace(versions="") for row in pick(SHARED, ["data_parallel_sharding_strategy"]))),
    *moved("ddp comm_overlap", pick(SHARED, ["overlap_grad_reduce"])),
    FlagRow("comm_overlap.bucket_size ddp.bucket_size", "_bucket", unit.count, says=megatron.bucket_elements),
    *moved("ddp comm_overlap", pick(SHARED, ["overlap_param_gather"])),
    *moved("comm_overlap", pick(SHARED, ["tp_comm_overlap"])),
    FlagRow("ddp.grad_reduce_in_fp32 mixed_precision.grad_reduce_in_fp32", "gradient_bytes", unit.yields(4, 2), says=OWN),
    *moved("model", pick(SHARED, ["cross_entropy_loss_fusion", "cross_entropy_fusion_impl"])),
    *(row._replace(says=says.kernel("flash", "unfused")) for row in moved("model", pick(SHARED, ["attention_backend"]))),
    FlagRow("optimizer.optimizer", "optimizer", unit.word),
    FlagRow("model.fp8", "_fp8", unit.one_of(megatron.FORMATS)),
    FlagRow("model.bf16 mixed_precision.bf16", "_wide", unit.yields("bf16")),
    FlagRow("model.fp16 mixed_precision.fp16", "_wide", unit.yields("fp16")),
    FlagRow("mixed_precision.fp8", "_fp8", unit.one_of(megatron.FORMATS)),
    FlagRow("mixed_precision.fp8_recipe", "_fp8_recipe", unit.one_of(megatron.RECIPES)),
    FlagRow("dist.use_torch_fsdp2", "_fsdp2", unit.flag, False),
    FlagRow("optimizer.use_precision_aware_optimizer", "_precise", unit.flag),
    FlagRow("optimizer.optimizer_cpu_offload", "_offload_optimizer", unit.flag),
    FlagRow("optimizer.optimizer_offload_fraction", "_offload_fraction", unit.number),
    FlagRow("optimizer.exp_avg_dtype", "_moment", unit.word),
    FlagRow("model.vocab_size", "model.vocab_size", unit.count),
    FlagRow("peft.dim", "_rank", unit.count),
    FlagRow("peft.target_modules", "_targets", unit.listed),
    FlagRow("peft_scheme peft", "_peft", unit.word),
    FlagRow("gpus num_gpus ng", "_gpus", unit.count),
    FlagRow("compute_dtype", "_precision", mixed),
    FlagRow("max_steps", "_steps", unit.count),
    FlagRow("dataset.packed_sequence_specs.packed_sequence_size dataset.packed_sequence_size", "_packing", unit.degree),
    FlagRow("dataset.enable_offline_packing", "_packing", unit.flag),
    FlagRow("dataset.enable_in_batch_packing dataset.pack_sequences_in_batch", "_padding_free", unit.flag),
    FlagRow("nodes", "_nodes", unit.count),
    FlagRow("gpus_per_node gpus-per-node", "_per_node", unit.count),
    FlagRow("model_name model_recipe_name m", "_name", unit.word),
    *(FlagRow(one.short.lower(), one.field, unit.count) for one in DIMENSIONS if one.column != "data"),
    FlagRow("mb", "micro_batch", unit.count),
    FlagRow("gb", "global_batch", unit.count),
)


def bridge_rules(reading: LaunchReading) -> None:
    """What Megatron-Bridge's overrides amount to; the named recipe rules the rest."""
    reading.put("dtype", reading.one("_precision"))
    common.batching(reading)
    if reading.one("_fsdp") is False and not reading.one("_fsdp2"):
        reading.put("fsdp", {"enabled": False})
    _shared(reading)
    if recipe := reading.one("_recipe"):
        _recipe(reading, recipe)
    megatron.narrow_attention(reading)
    megatron.buckets(reading)
    reading.model_name = reading.one("_name") or reading.model_name
    if reading.one("_rank") or reading.one("_peft") in ("lora", "dora"):
        common.adapter(reading, "lora")


BRIDGE = Dialect("megatron-bridge", (*BRIDGE_ROWS, *without(OF_MEGATRON, spellings(BRIDGE_ROWS))), bridge_rules)

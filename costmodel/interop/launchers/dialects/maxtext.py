"""MaxText: its YAML over ``base.yml``, and command lines of ``key=value``."""

from __future__ import annotations

from costmodel.catalogue import loader
from costmodel.interop.launchers import common
from costmodel.interop.launchers import values as unit
from costmodel.interop.launchers.dialects.torchtitan import converters
from costmodel.interop.launchers.pricing import catalogue_name
from costmodel.interop.launchers.table import Dialect, FlagRow, LaunchReading, words

POLICIES = {
    "full": "full", "none": "none", "minimal_with_context": "none", "minimal_flash": "none", "minimal": "selective",
    "minimal_offloaded": "offloaded", **dict.fromkeys(
        words("save_qkv_proj save_out_proj save_dot_except_mlp save_dot_except_mlpwi save_dot_with_context_except_mlp "
              "qkv_proj_offloaded custom"), "some"),
}  # fmt: skip
"""Policies by what of a layer is made again: nothing that a product makes, the attention core, all of it, or some products."""
AXES = {
    "data": "copies", "fsdp": "shards", "fsdp_transpose": "shards", "expert": "experts", "tensor": "tensor",
    "tensor_transpose": "tensor", "tensor_sequence": "sequence", "context": "context", "sequence": "context",
    "context_usp_ulysses": "heads", "pipeline": "stages",
}  # fmt: skip
"""Axes of the mesh, by what their ranks share; those of a name multiply, within a node and between nodes."""
SHAPE = {
    "base_num_decoder_layers": "num_layers", "base_emb_dim": "hidden_size", "base_num_query_heads": "num_heads",
    "base_num_kv_heads": "num_kv_heads", "base_mlp_dim": "ffn_hidden_size", "base_moe_mlp_dim": "moe_ffn_hidden_size",
    "head_dim": "head_dim", "vocab_size": "vocab_size", "num_experts_per_tok": "top_k", "first_num_dense_layers": "dense_layers",
}  # fmt: skip
ROWS = (
    FlagRow("model_name", "_name", unit.word, "default"),
    FlagRow("per_device_batch_size", "_each", unit.number, 12),
    FlagRow("gradient_accumulation_steps", "_steps", unit.count, 1),
    FlagRow("max_target_length", "seq_len", unit.count, 2048),
    FlagRow("dtype", "_wide", unit.one_of(unit.DTYPES), "bfloat16"),
    FlagRow("quantization", "_narrow", converters),
    FlagRow("remat_policy", "_policy", unit.one_of(POLICIES), "full"),
    FlagRow("attention", "attention", unit.attention, "autoselected"),
    FlagRow("opt_type", "optimizer", unit.word, "adamw"),
    FlagRow("optimizer_memory_host_offload", "_offload_optimizer", unit.flag, False),
    FlagRow("parameter_memory_host_offload", "_offload_parameters", unit.flag, False),
    FlagRow("packing", "_packing", unit.flag, True),
    FlagRow("hardware", "_hardware", unit.word, "tpu"),
    FlagRow("weight_dtype", "_held", unit.word, "float32"),
    FlagRow("attention_type", "_kind", unit.word, "global"),
    FlagRow("num_pipeline_microbatches", "_pieces", unit.count_or_open, -1),
    FlagRow("num_pipeline_repeats", "virtual_stages", unit.count_or_open, -1),
    FlagRow("num_layers_per_pipeline_stage", "_stage_layers", unit.count, 1),
    *(FlagRow(f"{link}_{axis}_parallelism", f"_{link}_{axis}", unit.rest) for link in ("ici", "dcn") for axis in AXES),
    *(FlagRow(flag, f"model.{field}", unit.degree) for flag, field in SHAPE.items()),
    FlagRow("num_experts", "_experts", unit.count, 1),
    FlagRow("logits_via_embedding", "model.tied_embeddings", unit.flag, False),
    FlagRow("attention_bias", "model.qkv_bias", unit.flag, False),
    FlagRow("use_qk_norm", "model.qk_norm", unit.flag, False),
    FlagRow("mlp_activations", "_activations", unit.listed),
    FlagRow("use_dpo", "_dpo", unit.flag, False),
)


def degree(reading: LaunchReading, shared: str) -> int | None:
    """Ranks over which something is shared, over all axes that share it; None where it takes those that are left."""
    product = 1
    for axis in (axis for axis, kind in AXES.items() if kind == shared):
        for link in ("ici", "dcn"):
            ranks = reading.one(f"_{link}_{axis}", "rest" if (link, axis) in (("ici", "fsdp"), ("dcn", "data")) else 1)
            if not isinstance(ranks, int):
                return None
            product *= ranks
    return product


def rules(reading: LaunchReading) -> None:
    """The mesh, batches of devices, and what MaxText's words amount to.

    References
    ----------
    AI-Hypercomputer/maxtext@e591f30 src/maxtext/configs/types.py, ``calculate_global_batch_sizes``: a batch of every device,
    whatever else it shares, and ``mu_dtype``, ``weight_dtype`` unless it is said; src/maxtext/layers/decoders.py
    ``get_remat_policy``; src/maxtext/optimizers/optimizers.py: moments as wide as weights
    """
    common.dtype(reading)
    common.offload(reading)
    common.batching(reading)
    policy = reading.one("_policy")
    if policy == "some" and "recompute" not in reading.settled:
        reading.missing["recompute"] = f"{reading.said['_policy'][0].shown} keeps some products of a layer, which isn't modelled"
    reading.put("activation_offload", 1.0 if policy == "offloaded" else None)
    reading.put("recompute", "none" if policy == "offloaded" else policy)
    _mesh(reading)
    named = reading.one("_name")
    if named and named != "default":
        reading.model_name = named
    elif not reading.has("model.num_layers"):
        reading.model["num_layers"] = 16
    if (reading.one("_experts") or 1) > 1:
        reading.say("model.num_experts", reading.one("_experts"), "num_experts")
    if reading.one("_kind", "global") not in ("global", "full"):
        reading.say("model.kind", f"attention_type={reading.one('_kind')}", "attention_type")
    if "linear" not in (reading.one("_activations") or ["linear"]):
        reading.say("model.activation", "gelu (not gated)", "mlp_activations")
    held = unit.DTYPES.get(str(reading.one("_held", "float32")))
    if held == reading.one("_wide", "bf16") != "fp32" and not reading.one("_narrow"):
        common.unmixed(reading)
    elif held != "fp32":
        reading.unpriced.append(f"weight_dtype {reading.one('_held')}")
    if reading.one("_hardware", "tpu") == "tpu":
        reading.note("hardware is tpu unless the file says gpu: a device is one of the catalogue's, such as tpu-v5p")
    common.preferences(reading, "dpo" if reading.one("_dpo") else None)


def _mesh(reading: LaunchReading) -> None:
    names = "tensor", "sequence", "context", "heads", "stages"
    tensor, sequence, context, heads, stages = (degree(reading, shared) or 1 for shared in names)
    split = {"tensor_parallel": tensor * sequence, "context_parallel": context, "ulysses_parallel": heads}
    for field, ranks in (split | {"pipeline_parallel": stages}).items():
        reading.put(field, ranks)
    reading.put("sequence_parallel", sequence > 1 or None)
    experts, shards, copies = (degree(reading, shared) for shared in ("experts", "shards", "copies"))
    reading.put("expert_parallel", experts)
    if shards and experts:
        common.fsdp(reading, {"shard_degree": shards * experts, "replicate_degree": copies or "rest"})
        if copies and not reading.has("_gpus"):
            reading.put("data_parallel", copies * shards * experts, derived=True)
        elif not copies:  # slices, or nodes, of which as many as there are copy what the others share
            reading.defaults["gpus"] = shards * experts * tensor * sequence * context * heads * stages
            reading.note("as many copies of the mesh as there are slices: one, unless GPUs are said")
    pieces = 1
    if stages > 1:
        pieces, repeats = reading.one("_pieces") or stages, reading.one("virtual_stages") or _repeats(reading, stages)
        reading.put("virtual_stages", repeats, derived=True)
        reading.put("schedule", "breadth-first" if (repeats or 1) > 1 else "gpipe", derived=True)
    each, steps = reading.one("_each", 12.0), reading.one("_steps", 1)
    if each and steps:
        batch = round(each * tensor * sequence * context * heads * stages) // pieces
        reading.put("micro_batch", max(1, batch), derived=True)
        reading.put("gradient_accumulation", steps * pieces, derived=True)


def _repeats(reading: LaunchReading, stages: int) -> int | None:
    """Turns of a circular pipeline, of so many layers a stage each, by the model's layers."""
    name = catalogue_name(str(reading.one("_name") or ""))
    layers = loader.load_model(name).layers if name else reading.one("model.num_layers")
    return None if layers is None else max(1, layers // (stages * reading.one("_stage_layers", 1)))


MAXTEXT = Dialect("maxtext", ROWS, rules)

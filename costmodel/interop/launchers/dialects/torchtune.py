"""torchtune's YAML."""

from __future__ import annotations

from costmodel.interop.launchers import common, says
from costmodel.interop.launchers import values as unit
from costmodel.interop.launchers.table import OWN, Dialect, FlagRow, LaunchReading, Writing


def last(raw: object) -> object:
    """The name at the end of a component's path."""
    if not isinstance(raw, str):
        raise unit.Expected("the path of a component")
    return raw.rpartition(".")[2]


OPTIMIZERS = {"adam-8bit": "bitsandbytes.optim.AdamW8bit", "sgd-momentum": "torch.optim.SGD"}
PAGED = {
    "adam": "bitsandbytes.optim.PagedAdamW", "adam-8bit": "bitsandbytes.optim.PagedAdamW8bit",
    "lion": "bitsandbytes.optim.PagedLion",
}  # fmt: skip


def component(w: Writing) -> object:
    """The optimizer of a plan, that of bitsandbytes where its state is paged."""
    return says.optimizer(w, OPTIMIZERS, PAGED) or "torch.optim.AdamW"


ROWS = (
    FlagRow("model._component_ policy_model._component_", "_builder", last, says=lambda w: "torchtune.models." + w.identifier),
    FlagRow("tokenizer.max_seq_len", "seq_len", unit.count, says=OWN),
    FlagRow("batch_size", "micro_batch", unit.count, says=OWN),
    FlagRow("gradient_accumulation_steps", "gradient_accumulation", unit.count, 1, says=OWN),
    FlagRow("dtype", "_wide", unit.one_of(unit.DTYPES), "bf16", says=OWN),
    FlagRow("enable_fp8_training", "_narrow", unit.yields("fp8"), False, "from 0.7", says="dtype"),
    FlagRow("enable_activation_checkpointing", "_recompute", unit.yields("full", "none"), False, says="recompute"),
    FlagRow("ac_mode", "_mode", unit.one_of({"full": "full", "selective": "selective", "none": "none"}), None, "from 0.2"),
    FlagRow("ac_option", "_every", unit.anything, None, "from 0.2"),
    FlagRow("dataset.packed dataloader.packed", "_packing", unit.flag, False, says=OWN),
    FlagRow("enable_activation_offloading", "_offload_activations", unit.flag, False, "from 0.4", says=OWN),
    FlagRow("fsdp_cpu_offload fsdp.cpu_offload", "_offload_fsdp", unit.flag, False),
    FlagRow("tensor_parallel_dim", "tensor_parallel", unit.count, 1, "from 0.6", says=OWN),
    FlagRow("context_parallel_dim", "context_parallel", unit.count, 1, "from 0.7", says=OWN),
    FlagRow("data_parallel_shard_dim", "fsdp.shard_degree", unit.rest, -1, "from 0.6", says=OWN),
    FlagRow("data_parallel_replicate_dim", "fsdp.replicate_degree", unit.count, 1, "from 0.6", says=OWN),
    FlagRow("fsdp_reshard_after_forward", "fsdp.reshard_after_forward", unit.flag, True, says=OWN,
            when=lambda w: w.plan.zero_stage == 2),
    FlagRow("optimizer._component_", "optimizer", last, says=component),
    FlagRow("optimizer.fused", "optimizer_kernel", unit.yields("fused", "foreach"), None,
            says=says.mapped("optimizer_kernel", {"fused": True, "foreach": False})),
    FlagRow("loss._component_ loss", "_loss", last),
    FlagRow("compile", "_compiled", unit.flag, False),
    FlagRow("model.lora_rank", "_rank", unit.count),
    FlagRow("model.lora_dropout", "_adapter_dropout", unit.number),
    FlagRow("model.lora_attn_modules", "_targets", unit.listed),
    FlagRow("model.apply_lora_to_mlp", "_mlp", unit.flag, False),
    FlagRow("optimizer_in_bwd", "update_in_backward", unit.flag, False, says=lambda w: w.plan.update_in_backward or None),
    FlagRow("model.num_layers", "model.num_layers", unit.count),
    FlagRow("model.embed_dim", "model.hidden_size", unit.count),
    FlagRow("model.num_heads", "model.num_heads", unit.count),
    FlagRow("model.num_kv_heads", "model.num_kv_heads", unit.count),
    FlagRow("model.intermediate_dim", "model.ffn_hidden_size", unit.count),
    FlagRow("model.vocab_size", "model.vocab_size", unit.count),
    FlagRow("expert_parallel_dim", "expert_parallel", unit.count, 1),
    FlagRow("model.quantize_base", "_quantised", unit.flag, False),
    FlagRow("world_size num_processes", "_gpus", unit.count),
)


def checkpoints(reading: LaunchReading) -> None:
    """What is computed again: by the mode where the switch is off, and by the switch where there is no mode.

    References
    ----------
    meta-pytorch/torchtune@bd2a0fc recipes/full_finetune_distributed.py ``_setup_model``, torchtune/training/activations.py
    """
    switched, mode, every = reading.one("_recompute"), reading.one("_mode"), reading.one("_every")
    if mode is None:
        reading.put("recompute", switched)
        return
    reading.put("recompute", "none" if switched == "full" else mode)
    if switched == "full":
        reading.note("enable_activation_checkpointing beside ac_mode: neither of them applies")
    elif mode == "selective":
        layers = isinstance(every, int) or str(every).isdigit()
        reading.put(*(("recompute_every", int(every)) if layers else ("recompute_modules", "operators")))


def rules(reading: LaunchReading) -> None:
    """FSDP, recomputation and adapters."""
    common.dtype(reading)
    builder = reading.one("_builder")
    reading.model_name = builder
    checkpoints(reading)
    stated = common.stated_fsdp(reading, "shard_degree", "replicate_degree", "reshard_after_forward")
    fields = {**({"version": 2} if stated else {}), **stated, **common.offloaded_fsdp(reading)}
    if fields:
        common.fsdp(reading, fields)
    common.offload(reading)
    common.batching(reading)
    if builder and (builder.startswith(("lora", "qlora", "dora", "qdora")) or reading.has("_rank")):
        if reading.one("_mlp") and isinstance(reading.one("_targets"), list):
            reading.said["_targets"][0].value.append("mlp")
        quantised = (builder.startswith("q") and not builder.startswith("qwen")) or reading.one("_quantised")
        common.adapter(reading, "qlora" if quantised else "lora", 8)  # torchtune's builders: lora_rank=8
    # torchtune/models/llama3/_parallelism.py: norms between shares of a sequence
    reading.defaults["sequence_parallel"] = (reading.one("tensor_parallel") or 1) > 1
    loss, compiled = reading.one("_loss"), reading.one("_compiled")
    common.preferences(reading, "dpo" if "DPO" in str(loss) else None)
    eager = {"LinearCrossEntropyLoss": "chunked-upcast", "CEWithChunkedOutputLoss": "chunked-eager"}
    if loss in eager:
        reading.put("loss", "chunked" if compiled else eager[loss])
    elif loss:
        reading.unpriced.append(f"loss {loss}")
    if compiled:
        common.fused(reading)
        reading.unpriced.append("compile")
    reading.put("update_in_backward", reading.one("update_in_backward") or None)


TORCHTUNE = Dialect("torchtune", ROWS, rules)

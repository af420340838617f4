"""Command lines of OpenRLHF: its trainers over DeepSpeed, with plain flags and, from version 0.10, with dotted ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costmodel.interop.launchers import common
from costmodel.interop.launchers.dialects import said_trainers
from costmodel.interop.launchers.table import UNSPLIT, Dialect, FlagRow
from costmodel.interop.launchers.values import (
    DTYPES,
    attention,
    count,
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

ROWS = (
    FlagRow("packing_samples ds.packing_samples", "_padding_free", flag, False),
    FlagRow("train_batch_size train.batch_size", "global_batch", count, 128),
    FlagRow("micro_train_batch_size train.micro_batch_size", "micro_batch", count, "8; 1 of a reward model and under PPO"),
    FlagRow("max_len data.max_len", "seq_len", count, "2048; 512 of pairs"),
    FlagRow("prompt_max_len", "_prompt", count, 1024),
    FlagRow("generate_max_len rollout.max_new_tokens", "_completion", count, 1024),
    FlagRow(
        "gradient_checkpointing model.gradient_checkpointing_enable actor.gradient_checkpointing_enable",
        "recompute",
        yields("full", "none"),
        False,
    ),
    FlagRow("zero_stage ds.zero_stage", "zero_stage", whole, 2),
    FlagRow("param_dtype ds.param_dtype", "_wide", one_of(DTYPES), "bf16"),
    FlagRow("bf16", "_wide", yields("bf16"), False, "to 0.8"),
    FlagRow("adam_offload ds.adam_offload", "_offload_optimizer", flag, False),
    FlagRow("attn_implementation ds.attn_implementation", "attention", attention, "flash_attention_2"),
    FlagRow("flash_attn", "attention", yields("flash"), False, "to 0.8"),
    FlagRow("use_liger_kernel ds.use_liger_kernel", "fused_cross_entropy", flag, False),
    FlagRow("overlap_comm ds.overlap_comm", "overlap_gradients", flag, False),
    FlagRow("ring_attn_size ds.ring_attn_size", "context_parallel", count, 1),
    FlagRow("ds_tensor_parallel_size ds.tensor_parallel_size", "tensor_parallel", count, 1),
    FlagRow("load_in_4bit ds.load_in_4bit", "_four_bit", flag, False),
    FlagRow("lora_rank ds.lora.rank", "_rank", whole, 0),
    FlagRow("target_modules ds.lora.target_modules", "_targets", listed, "all-linear"),
    FlagRow("optim actor.optim", "optimizer", word, "adam"),
    FlagRow("optimizer", "optimizer", word, None, "forks"),
    FlagRow("grad_accum_dtype ds.grad_accum_dtype", "gradient_bytes", one_of({"fp32": 4, "bf16": 2, "fp16": 2})),
    FlagRow("zpg ds.zpg", "_zpg", number, 1),
    FlagRow("pretrain model.model_name_or_path actor.model_name_or_path", "_name", word),
    FlagRow("actor_num_nodes actor.num_nodes", "_actor_nodes", count, 1),
    FlagRow("actor_num_gpus_per_node actor.num_gpus_per_node", "_actor_gpus", count, 8),
    FlagRow("chosen_key data.chosen_key", "_chosen", word),
    FlagRow("beta model.beta", "_beta", number),
)
DEFAULTS = {
    **UNSPLIT, "ulysses_parallel": 1, "zero_stage": 2, "dtype": "bf16", "recompute": "none", "offload": [],
    "global_batch": 128, "micro_batch": 8, "seq_len": 2048, "attention": "flash", "optimizer": "adam",
}  # fmt: skip


def rules(reading: LaunchReading) -> None:
    """What OpenRLHF's flags amount to, and what its trainers take where a flag isn't given."""
    common.dtype(reading)
    common.offload(reading)
    common.batching(reading)
    quantised = reading.one("_four_bit")
    if reading.one("_rank") or quantised:
        common.adapter(reading, "qlora" if quantised else "lora", None, "all")
    if (reading.one("_zpg") or 1) > 1:
        reading.unpriced.append("zpg")
    reading.model_name = reading.one("_name")
    reinforced = reading.has("_actor_gpus") or reading.has("_actor_nodes")
    pairs = reading.has("_chosen") or reading.has("_beta")
    reading.defaults["micro_batch"] = 1 if reinforced or (pairs and not reading.has("_beta")) else 8
    if pairs:
        reading.defaults["seq_len"] = 512
        reading.note("a sample is a pair of sequences: a batch of N is priced as N sequences")
    if reinforced:
        nodes, gpus = reading.one("_actor_nodes", 1), reading.one("_actor_gpus", 8)
        if nodes and gpus and not (reading.has("_gpus") or reading.has("_nodes")):
            reading.say("_gpus", nodes * gpus, f"{nodes} nodes of {gpus} GPUs for the actor")
        reading.note("generates while it trains: only the actor's training step is priced")
        if not reading.has("seq_len") and reading.has("_prompt") and reading.has("_completion"):
            reading.put("seq_len", reading.one("_prompt") + reading.one("_completion"), derived=True)


OPENRLHF = Dialect(
    name="openrlhf",
    framework="openrlhf",
    rows=ROWS,
    rules=rules,
    write=said_trainers.openrlhf,
    defaults=DEFAULTS,
    layout="args",
    reads=frozenset({"args"}),
    software="deepspeed",
)

"""Command lines of OpenRLHF: its trainers over DeepSpeed, with plain flags and, from version 0.10, with dotted ones."""

from __future__ import annotations

from costmodel.interop.launchers import common, says
from costmodel.interop.launchers import values as unit
from costmodel.interop.launchers.table import ABOVE_ONE, OWN, Dialect, FlagRow, LaunchReading

ROWS = (
    FlagRow("model.model_name_or_path pretrain actor.model_name_or_path", "_name", unit.word, says=OWN),
    FlagRow("train.batch_size train_batch_size", "global_batch", unit.count, 128, says=OWN),
    FlagRow("train.micro_batch_size micro_train_batch_size", "micro_batch", unit.count, "8; 1 of a reward model and under PPO",
            says=OWN),
    FlagRow("data.max_len max_len", "seq_len", unit.count, "2048; 512 of pairs", says=OWN),
    FlagRow("prompt_max_len", "_prompt", unit.count, 1024),
    FlagRow("generate_max_len rollout.max_new_tokens", "_completion", unit.count, 1024),
    FlagRow("ds.packing_samples packing_samples", "_padding_free", unit.flag, False, says=OWN),
    FlagRow("ds.zero_stage zero_stage", "zero_stage", unit.whole, 2, says=OWN),
    FlagRow("ds.param_dtype param_dtype", "_wide", unit.one_of(unit.DTYPES), "bf16",
            says=says.mapped("dtype", {"bf16": "bf16", "fp16": "fp16"})),
    FlagRow("bf16", "_wide", unit.yields("bf16"), False, "to 0.8"),
    FlagRow("ds.attn_implementation attn_implementation", "attention", unit.attention, "flash_attention_2",
            says=says.kernel("flash_attention_2", "eager")),
    FlagRow("flash_attn", "attention", unit.yields("flash"), False, "to 0.8"),
    FlagRow("ds.ring_attn_size ring_attn_size", "context_parallel", unit.count, 1, says=ABOVE_ONE),
    FlagRow("ds.tensor_parallel_size ds_tensor_parallel_size", "tensor_parallel", unit.count, 1, says=ABOVE_ONE),
    FlagRow("ds.adam_offload adam_offload", "_offload_optimizer", unit.flag, False, says=OWN),
    FlagRow("ds.overlap_comm overlap_comm", "overlap_gradients", unit.flag, False, says=OWN),
    FlagRow("ds.use_liger_kernel use_liger_kernel", "fused_cross_entropy", unit.flag, False, says=OWN),
    FlagRow("model.gradient_checkpointing_enable gradient_checkpointing actor.gradient_checkpointing_enable", "recompute",
            unit.yields("full", "none"), False, says=OWN),
    FlagRow("optim actor.optim", "optimizer", unit.word, "adam", says=OWN, when=lambda w: w.plan.optimizer != "adam"),
    FlagRow("ds.lora.rank lora_rank", "_rank", unit.whole, 0, says=OWN),
    FlagRow("ds.lora.dropout lora_dropout", "_adapter_dropout", unit.number, says=OWN),
    FlagRow("ds.lora.target_modules target_modules", "_targets", unit.listed, "all-linear", says=OWN),
    FlagRow("ds.load_in_4bit load_in_4bit", "_four_bit", unit.flag, False, says=OWN),
    FlagRow("optimizer", "optimizer", unit.word, None, "forks"),
    FlagRow("grad_accum_dtype ds.grad_accum_dtype", "gradient_bytes", unit.one_of({"fp32": 4, "bf16": 2, "fp16": 2})),
    FlagRow("zpg ds.zpg", "_zpg", unit.number, 1),
    FlagRow("actor_num_nodes actor.num_nodes", "_actor_nodes", unit.count, 1),
    FlagRow("actor_num_gpus_per_node actor.num_gpus_per_node", "_actor_gpus", unit.count, 8),
    FlagRow("chosen_key data.chosen_key", "_chosen", unit.word),
    FlagRow("beta model.beta", "_beta", unit.number),
)


def rules(reading: LaunchReading) -> None:
    """What OpenRLHF's flags amount to, and what its trainers take where a flag isn't given."""
    common.dtype(reading)
    common.offload(reading)
    common.batching(reading)
    common.liger(reading)
    quantised = reading.one("_four_bit")
    if reading.one("_rank") or quantised:
        common.adapter(reading, "qlora" if quantised else "lora", None, "all", dropped=False)
    if (reading.one("_zpg") or 1) > 1:
        reading.unpriced.append("zpg")
    reading.model_name = reading.one("_name")
    reinforced = reading.has("_actor_gpus") or reading.has("_actor_nodes")
    pairs = reading.has("_chosen") or reading.has("_beta")
    reading.defaults["micro_batch"] = 1 if reinforced or (pairs and not reading.has("_beta")) else 8
    if pairs:
        reading.defaults["seq_len"] = 512
        common.preferences(reading, None if "rm" in common.started(reading) else "dpo")
    if reinforced:
        if not (reading.has("_gpus") or reading.has("_nodes")):
            common.actor_gpus(reading)
        reading.note("generates while it trains: only the actor's training step is priced")
        if not reading.has("seq_len"):
            common.prompted(reading, 1024, 1024)


OPENRLHF = Dialect("openrlhf", ROWS, rules)

"""verl: Hydra's ``key=value`` of its trainers by reinforcement learning, of which the actor's update is read, and by samples."""

from __future__ import annotations

from costmodel.interop.launchers import common
from costmodel.interop.launchers import values as unit
from costmodel.interop.launchers.dialects.megatron import PLAN_ROWS
from costmodel.interop.launchers.table import UNSPLIT, Dialect, FlagRow, LaunchReading, moved, silent

ACTOR = "actor_rollout_ref.actor"
MODEL = (
    FlagRow("path partial_pretrain", "_name", unit.word),
    FlagRow("enable_gradient_checkpointing", "_recompute", unit.yields("full", "none"), True),
    FlagRow("enable_activation_offload", "_offload_activations", unit.flag, False),
    FlagRow("use_remove_padding", "_padding_free", unit.flag, True),
    FlagRow("lora_rank", "_rank", unit.whole, 0),
    FlagRow("target_modules", "_targets", unit.listed, "all-linear"),
    FlagRow("use_liger", "_liger", unit.flag, False),
    FlagRow("use_fused_kernels", "_fused", unit.flag, False),
    FlagRow("fsdp_config.cpu_offload", "_offload_fsdp", unit.flag, False),
)
FSDP = (
    FlagRow("fsdp_size", "fsdp.shard_degree", unit.rest, -1),
    FlagRow("reshard_after_forward", "fsdp.reshard_after_forward", unit.flag, True),
    FlagRow("offload_policy", "_offload_fsdp", unit.flag, False),
    FlagRow("ulysses_sequence_parallel_size", "ulysses_parallel", unit.count, 1),
)
MEGATRON = (
    *(row for row in PLAN_ROWS if row.field in UNSPLIT and row.field != "ulysses_parallel"),
    FlagRow("use_distributed_optimizer", "_distributed", unit.yields(1, 0), True),
    FlagRow("override_transformer_config.recompute_granularity", "_granularity",
            unit.one_of({"full": "full", "selective": "selective"})),
)
ROWS = (
    *moved("actor_rollout_ref.model model", MODEL),
    *moved(f"{ACTOR}.fsdp_config engine", FSDP),
    *silent(moved(f"{ACTOR}.megatron engine", MEGATRON)),
    FlagRow(f"{ACTOR}.ulysses_sequence_parallel_size ulysses_sequence_parallel_size", "ulysses_parallel", unit.count, 1),
    FlagRow("use_remove_padding", "_padding_free", unit.flag, False),
    FlagRow(f"{ACTOR}.strategy model.strategy engine.strategy engine", "_strategy", unit.word, "fsdp"),
    FlagRow("config_name", "_config", unit.word, "ppo_trainer"),
    FlagRow("trainer.nnodes", "_nodes", unit.count, 1),
    FlagRow("trainer.n_gpus_per_node", "_per_node", unit.count, 8),
    FlagRow("data.train_batch_size", "_samples", unit.count, 256),
    FlagRow(f"data.micro_batch_size_per_gpu {ACTOR}.ppo_micro_batch_size_per_gpu", "micro_batch", unit.count, 4),
    FlagRow("data.max_length", "_length", unit.count, 1024),
    FlagRow("data.max_prompt_length", "_prompt", unit.count, 512),
    FlagRow("data.max_response_length", "_completion", unit.count, 512),
    FlagRow(f"{ACTOR}.ppo_mini_batch_size", "_prompts", unit.count, 256),
    FlagRow(f"{ACTOR}.ppo_micro_batch_size", "_micro_total", unit.count, None, "to 0.2"),
    FlagRow("actor_rollout_ref.rollout.n", "_answers", unit.count, 1),
    FlagRow(f"{ACTOR}.use_dynamic_bsz data.use_dynamic_bsz", "_dynamic", unit.flag, False),
    FlagRow(f"{ACTOR}.ppo_max_token_len_per_gpu data.max_token_len_per_gpu", "_tokens", unit.count, 16384),
    FlagRow(f"{ACTOR}.optim.override_optimizer_config.optimizer_cpu_offload", "_offload_optimizer", unit.flag, False),
    FlagRow(f"{ACTOR}.optim.optimizer optim.optimizer", "optimizer", unit.word, "AdamW"),
)


def rules(reading: LaunchReading) -> None:
    """What verl's keys amount to; a mini-batch is of prompts, each with so many answers.

    References
    ----------
    volcengine/verl@b178a3cd verl/workers/fsdp_workers.py ``ActorRolloutRefWorker``; verl/workers/actor/dp_actor.py
    ``_forward_micro_batch``; verl/trainer/fsdp_sft_trainer.py
    """
    reading.model_name = reading.one("_name")
    common.offload(reading)
    common.batching(reading)
    if reading.one("_rank"):
        common.adapter(reading, "lora", None, "all")
    if reading.one("_liger"):
        common.fused(reading)
    _engine(reading)
    if any(key.startswith("actor_rollout_ref.") for key in reading.keys):
        reading.note(common.UPDATE_ALONE)
        prompts, answers = reading.one("_prompts", 256), reading.one("_answers", 1)
        prompt, answer = reading.one("_prompt", 512), reading.one("_completion", 512)
        length, batch = prompt and answer and prompt + answer, prompts and answers and prompts * answers
        if reading.plan.get("fsdp"):  # flash-attn's cross entropy, which writes the gradient over the logits
            reading.put("loss", "fused-linear" if reading.one("_fused") else "fused", derived=True)
        reading.defaults["gpus"] = 8
        reading.defaults.pop("micro_batch", None)
    else:
        length, batch = reading.one("_length", 1024), reading.one("_samples", 256)
    reading.put("seq_len", length, derived=True)
    reading.put("global_batch", batch, derived=True)
    gpus = reading.one("_gpus") or (reading.one("_nodes") or 1) * (reading.one("_per_node") or 8)
    if (total := reading.one("_micro_total")) and not reading.has("micro_batch"):
        reading.put("micro_batch", max(1, total // common.copies(reading, gpus)), derived=True)
    if reading.one("_dynamic") and length and batch:
        most = reading.one("_tokens", 16384) * (reading.one("ulysses_parallel") or 1) // length
        reading.said.pop("micro_batch", None)
        reading.put("micro_batch", common.together(reading, most, batch, gpus), derived=True)


def _engine(reading: LaunchReading) -> None:
    """FSDP, or Megatron where a key of it or a configuration's name says so."""
    named = f"{reading.one('_strategy', 'fsdp')} {reading.one('_config', '')}"
    if "megatron" in named or any(".megatron." in key for key in reading.keys):
        reading.put("zero_stage", reading.one("_distributed", 1))
        reading.put("recompute", reading.one("_granularity", "none"))
        reading.put("sequence_parallel", reading.one("sequence_parallel", True), derived=True)
        if reading.one("_fused"):
            reading.unpriced.append(reading.said["_fused"][0].shown)
        return
    reading.put("recompute", reading.one("_recompute"))
    shards = reading.one("fsdp.shard_degree")
    fields: dict[str, object] = {"version": 2 if "fsdp2" in named else 1, **common.stated_fsdp(reading, "reshard_after_forward")}
    fields |= common.offloaded_fsdp(reading) | ({"shard_degree": shards} if isinstance(shards, int) else {})
    common.fsdp(reading, fields)
    if isinstance(shards, int):
        reading.put("shard_group", shards)


VERL = Dialect("verl", ROWS, rules)

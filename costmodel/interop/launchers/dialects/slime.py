"""slime: Megatron's arguments with its own, of which the actor's update is read."""

from __future__ import annotations

from costmodel.interop.launchers import common
from costmodel.interop.launchers import values as unit
from costmodel.interop.launchers.dialects import megatron
from costmodel.interop.launchers.table import Dialect, FlagRow, LaunchReading, silent

ROWS = (
    FlagRow("hf_checkpoint", "_checkpoint", unit.word),
    FlagRow("actor_num_nodes", "_actor_nodes", unit.count, 1),
    FlagRow("actor_num_gpus_per_node", "_actor_gpus", unit.count, 8),
    FlagRow("rollout_batch_size", "_prompts", unit.count),
    FlagRow("n_samples_per_prompt", "_answers", unit.count, 1),
    FlagRow("num_steps_per_rollout", "_steps", unit.count),
    FlagRow("rollout_max_prompt_len", "_prompt", unit.count),
    FlagRow("rollout_max_response_len", "_completion", unit.count),
    FlagRow("use_dynamic_batch_size", "_dynamic", unit.flag, False),
    FlagRow("max_tokens_per_gpu", "_tokens", unit.count),
    *silent((*megatron.MODEL_ROWS[:-2], megatron.MODEL_ROWS[-1], *megatron.PLAN_ROWS)),
)


def rules(reading: LaunchReading) -> None:
    """Weights in 16 bit, a distributed optimizer, samples without padding: THUDM/slime@624b824a8
    slime/backends/megatron_utils/arguments.py ``_set_default_megatron_args``, ``validate_args``; slime/utils/arguments.py."""
    megatron.rules(reading)
    if not reading.has("model.num_layers"):  # which a file that it sources has
        reading.model_name = reading.one("_checkpoint")
    reading.put("batching", "padding-free", derived=True)
    if not (reading.has("_gpus") or {"_actor_nodes", "_actor_gpus"} & reading.variable_fields):
        for field in ("_nodes", "_per_node"):  # of Ray's cluster, generation with it
            reading.said.pop(field, None)
        common.actor_gpus(reading)
    if reading.has("_completion"):
        reading.note(common.UPDATE_ALONE)
        if not reading.has("seq_len"):
            common.prompted(reading)
    if (prompts := reading.one("_prompts")) and (steps := reading.one("_steps")) and not reading.has("global_batch"):
        reading.put("global_batch", prompts * reading.one("_answers", 1) // steps, derived=True)
    length, batch = (reading.known(field) or reading.one(field) for field in ("seq_len", "global_batch"))
    gpus = reading.one("_gpus")
    if reading.one("_dynamic") and (tokens := reading.one("_tokens")) and length and batch and gpus:
        reading.put("micro_batch", common.together(reading, tokens // length, batch, gpus), derived=True)


SLIME = Dialect("slime", ROWS, rules)

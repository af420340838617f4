"""Rules that several dialects share."""

from __future__ import annotations

import math
import re
from pathlib import PurePath

from costmodel.description.adapters import targets_of
from costmodel.interop.launchers.settle import MODEL_PARALLEL
from costmodel.interop.launchers.shell import is_variable
from costmodel.interop.launchers.table import BATCHINGS, UNSPLIT, LaunchReading, Writing, words
from costmodel.text.errors import InvalidValue

FSDP_SHARDING = {"1": "FULL_SHARD", "2": "SHARD_GRAD_OP", "3": "NO_SHARD", "4": "HYBRID_SHARD", "5": "HYBRID_SHARD_ZERO2"}
"""Numbers that accelerate took for the strategies of FSDP."""
FSDP_STAGES = {
    "FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0, "HYBRID_SHARD": 3, "HYBRID_SHARD_ZERO2": 2, "_HYBRID_SHARD_ZERO2": 2,
}  # fmt: skip
"""Of ZeRO, what a strategy of FSDP amounts to."""
PAIRED, REFERRED = words("dpo ipo simpo reward rm orpo cpo"), words("dpo ipo")
"""Methods of preferences, or scripts, whose samples are pairs, and those that have a reference model."""
UNPAIRED = "apo_zero_unpaired"
"""KTO's loss that has no other samples' answers."""
CACHED = words("dpo_tune_cache")
"""Scripts that compute what a reference says before they train: allenai/open-instruct open_instruct/dpo_tune_cache.py."""
FSDP_OFFLOAD = ("parameters", "gradients", "optimizer")
"""What lies in host memory under FSDP's CPU offload: gradients and optimizer step follow the parameters."""
COMPONENTS = ("optimizer", "parameters", "activations")


def offload(reading: LaunchReading) -> None:
    """The list of what is offloaded, from the statements ``_offload_*``; empty where a file says that nothing is."""
    stated = [name for name in (*COMPONENTS, "fsdp") if reading.has(f"_offload_{name}")]
    if not stated:
        return
    moved: list[str] = list(FSDP_OFFLOAD) if reading.one("_offload_fsdp") else []
    moved += [name for name in COMPONENTS if name not in moved and reading.one(f"_offload_{name}")]
    if not moved and any(f"_offload_{name}" in reading.variable_fields for name in COMPONENTS):
        return
    offloaded(reading, moved)


def offloaded(reading: LaunchReading, moved: list[str]) -> None:
    """The list of what is offloaded, and the shares of it that are."""
    reading.put("offload", moved)
    if "optimizer" in moved:
        reading.put("optimizer_offload", reading.one("_offload_fraction", 1.0))
    if "activations" in moved:
        reading.put("activation_offload", reading.one("_offload_activation_fraction", 1.0))


def devices(reading: LaunchReading) -> None:
    """DeepSpeed's devices to offload to, as statements ``_offload_*``."""
    for part in ("optimizer", "parameters"):
        where = reading.one(f"_device_{part}")
        if where is not None:
            reading.say(f"_offload_{part}", bool(where), f"offload_{part} to {where or 'none'}")
        if where == "nvme":
            reading.unpriced.append(f"offload of {part} to nvme")


def batching(reading: LaunchReading) -> None:
    """How samples of unlike lengths make micro-batches; their mean length no file says."""
    for field, kind in BATCHINGS.items():
        if reading.one(field):
            reading.put("batching", kind)
            return


def half(reading: LaunchReading) -> str | None:
    """The 16-bit dtype that two flags say, a conflict where both do."""
    brain, half = reading.one("_bf16"), reading.one("_fp16")
    if brain and half:
        reading.conflict("bf16 and fp16, both true")
        return None
    return "bf16" if brain else "fp16" if half else None


def dtype(reading: LaunchReading) -> None:
    """The dtype of matrix products: the narrow one if there is one, over the 16-bit one."""
    wide, narrow = reading.one("_wide"), reading.one("_narrow")
    reading.put("dtype", narrow or wide)


def fsdp(reading: LaunchReading, fields: dict[str, object]) -> None:
    """The table of FSDP's settings, and as assumption the ZeRO stage that it amounts to."""
    reading.put("fsdp", fields)
    sharding = str(fields.get("sharding") or "FULL_SHARD").upper()
    stage = FSDP_STAGES.get(sharding, 3)
    if stage == 3 and fields.get("reshard_after_forward") is False:
        stage = 2
    shards, copies = fields.get("shard_degree"), fields.get("replicate_degree")
    if shards == 1 and (reading.one("context_parallel") or 1) == 1:
        stage = 0
    reading.defaults["zero_stage"] = stage
    if isinstance(shards, int) and isinstance(copies, int) and copies > 1 and stage:
        reading.put("shard_group", shards * (reading.one("context_parallel") or 1))


def stated_fsdp(reading: LaunchReading, *names: str) -> dict[str, object]:
    """What is stated of FSDP under some of its names, in their order."""
    return {name: reading.one(f"fsdp.{name}") for name in names if reading.has(f"fsdp.{name}")}


def offloaded_fsdp(reading: LaunchReading) -> dict[str, object]:
    """What is stated of its offload."""
    return {"offload_params": reading.one("_offload_fsdp")} if reading.has("_offload_fsdp") else {}


STAGE_BY_NAME = re.compile(r"(?:zero|stage|(?<![a-z])z)[-_ ]?(?:stage[-_ ]?)?([0-3])(?![0-9])")

OFFLOADS = re.compile(r"(?<!no[-_])(?<!without[-_])offload")


def beside(reading: LaunchReading, field: str, dialect: str) -> None:
    """What follows from a configuration that a file names: nothing more where one was given, else what its name says."""
    statements = reading.said.get(field, [])
    if not statements or not isinstance(statements[0].value, str):
        return
    shown, named = statements[0].shown.split()[0], statements[0].value
    base = PurePath(named.replace("\\", "/")).name
    given = [name for name, kind in reading.files if kind == dialect]
    if given:
        if base not in given and "text" not in given and not is_variable(named):
            reading.note(f"{shown} names {named[:80]}; {given[0]} was given, and is taken for it")
        return
    hint = f"{shown} names {named[:80]}, which was not given"
    if reading.has("zero_stage") or reading.plan.get("zero_stage") is not None or reading.plan.get("fsdp"):
        reading.note(f"{hint}: what else it says is left out")
        return
    found = STAGE_BY_NAME.search(base.lower())
    if found is None:
        reading.defaults["zero_stage"] = None
        reading.missing["zero_stage"] = hint
        reading.note(f"{hint}: its ZeRO stage is not known")
        return
    stage = int(found[1])
    reading.defaults["zero_stage"] = stage
    moved: list[str] = []
    if offloads := OFFLOADS.search(base.lower()):
        movable = ["optimizer", *(["parameters"] if stage == 3 else [])]
        moved = [part for part in movable if part[:5] in base.lower()[offloads.end() :]] or movable  # as ..._offload_params.json
    if moved and not reading.has("_offload_optimizer"):
        reading.defaults["offload"] = [*moved, *(reading.plan.pop("offload", None) or [])]
        if "optimizer" in moved:
            reading.put("optimizer_offload", 1.0)
    reading.note(f"{hint}: ZeRO stage {stage}{' with offload' if moved else ''} by its name; give it beside this file to be sure")


QUANTISED = (
    ("qlora", r"bnb-?4bit|nf4"), ("int8-lora", r"(?<![a-z0-9])(bnb-?8bit|int-?8|8-?bit)"),
    ("gptq-lora", r"gptq|awq|(?<![a-z0-9])(int-?4|4-?bit)"),
)  # fmt: skip
"""Adapters over the weights of a checkpoint that is quantised already, by what its name contains."""
EMBEDDINGS, HEADS = ("embed_tokens", "tok_embeddings", "wte", "embed_in"), ("lm_head", "embed_out")
OF_NO_LAYER = frozenset([*EMBEDDINGS, *HEADS])
"""Names of embeddings and heads, to which no adapter that is priced belongs."""


def generated(reading: LaunchReading) -> None:
    """Of ms-swift's methods that make their samples: ``max_length`` is a prompt's, and a sequence that and its completion.

    References
    ----------
    modelscope/ms-swift@3602360a5 docs/source_en/Instruction/Command-line-parameters.md, swift/arguments/rlhf_args.py
    """
    if reading.one("_rlhf") in ("ppo", "grpo", "gkd"):
        prompt = reading.one("seq_len")
        reading.said.pop("seq_len", None)
        if prompt and "seq_len" not in reading.settled:
            reading.put("seq_len", prompt + reading.one("_completion", 512), derived=True)


AROUND = re.compile(r"^(?:train|run|finetune|main)_|_(?:train|training|trainer|finetune)$")
"""What stands around a method in the name of the script that trains by it."""
PROMPT = 512
"""Tokens of a prompt where no file says them, as TRL's GRPO cut them (huggingface/trl@v0.27.0 trl/trainer/grpo_config.py)."""
UPDATE_ALONE = "generates while it trains: only the actor's update is priced; `costmodel post-train` prices a step"
"""What is priced of a file for training by what the model itself generates."""


def actor_gpus(reading: LaunchReading) -> None:
    """The GPUs that train, of nodes and GPUs of each that are said of the actor alone; none where a variable leaves one open."""
    nodes, gpus = reading.one("_actor_nodes", 1), reading.one("_actor_gpus", 8)
    if nodes and gpus:
        reading.say("_gpus", nodes * gpus, f"{nodes} nodes of {gpus} GPUs for the actor")


def prompted(reading: LaunchReading, completion: int | None = None, prompt: int = PROMPT) -> None:
    """The length of sequences that a run makes: of a prompt, said to be assumed where no file says it, and a completion."""
    answer, asked = reading.one("_completion", completion), reading.one("_prompt", prompt)
    if not answer or not asked or {"_prompt", "_completion"} & reading.variable_fields:
        return
    reading.defaults["seq_len"] = asked + answer
    if not reading.has("_prompt"):
        reading.note(f"sequences of {asked + answer} tokens: completions of {answer}, prompts of {asked}, which no file says")


def started(reading: LaunchReading) -> set[str]:
    """Commands, modules and scripts without their folders, which are words of a command line that no flag has."""
    return {AROUND.sub("", re.split(r"[/.]", word.removesuffix(".py"))[-1]) for word in reading.irrelevant}


def preferences(reading: LaunchReading, *methods: object) -> None:
    """Whether samples are a chosen and a rejected sequence, which make one batch, and whether a reference passes over it.

    Parameters
    ----------
    reading : of the files
    *methods : that train, by name, beside those that a command, a module or a script is called

    References
    ----------
    huggingface/trl@f2cd5771 (1.10) trl/trainer/dpo_trainer.py ``DataCollatorForPreference``, ``_compute_loss``: one batch, chosen
    before rejected; no reference of its own beside adapters or precomputed log-probabilities
    """
    named = started(reading).union(methods)
    if (PAIRED | CACHED) & named:
        reading.put("paired", True, derived=True)
        reading.note("a sample is a pair of sequences, chosen and rejected, which are one batch: N samples are 2 N sequences")
    if REFERRED & named and not (reading.one("_precomputed") or CACHED & named):
        reading.put("referred", "dpo", derived=True)
        reading.note("a reference passes over every pair, too: `explain` with a device or a cluster has its time and weights")
    if "kto" in named and (reading.one("_precomputed") or reading.one("_loss") == UNPAIRED):
        reading.note("KTO's passes without gradients are priced of its plain loss alone, with a reference that isn't precomputed")
    elif "kto" in named:
        reading.put("referred", "kto", derived=True)
        reading.note("a reference passes over every sample, and with the policy over each prompt with another's answer, "
                     "too: `explain` with a device or a cluster has their time and weights")


def copies(reading: LaunchReading, gpus: int) -> int:
    """Copies of a model on so many GPUs, by the stated degrees."""
    return max(1, gpus // math.prod(reading.one(field) or 1 for field in UNSPLIT if field in MODEL_PARALLEL))


def together(reading: LaunchReading, most: int, batch: int, gpus: int) -> int:
    """Sequences of a micro-batch with room for so many, of a step's batch on so many GPUs: all micro-batches have as many."""
    own = max(1, batch // copies(reading, gpus))
    return max(n for n in range(1, max(1, min(most, own)) + 1) if own % n == 0)


def unmixed(reading: LaunchReading) -> None:
    """Weights in 16 bit train as they are, without mixed precision."""
    reading.put("mixed_precision", False)


def frozen(bits: object) -> str:
    """The adapter beside a frozen base of so many bits as bitsandbytes holds it."""
    return {4: "qlora", 8: "int8-lora"}.get(bits if isinstance(bits, int) else 0, "lora")


def liger(reading: LaunchReading) -> None:
    """Liger's kernels beside its loss: norms and gated activations, as transformers' ``use_liger_kernel`` takes all of them."""
    if reading.one("fused_cross_entropy"):
        fused(reading)


def fused(reading: LaunchReading) -> None:
    """Norms and gated activations by a kernel each, as Liger's and a compiler's are."""
    for field in ("fused_norms", "fused_activation"):
        reading.put(field, True, derived=True)


def bits(reading: LaunchReading) -> int | None:
    """Bits of a frozen base by switches of transformers, `load_in_4bit` and `load_in_8bit`, or by their number."""
    said: int | None = reading.one("_bits")
    return 4 if reading.one("_four_bit") else 8 if reading.one("_eight_bit") else said if said in (4, 8) else None


def adapter(
    reading: LaunchReading, kind: str | None, rank: int | None = None, targets: str | None = None, dropped: bool | None = None
) -> None:
    """Low-rank adapters with what is stated as ``_rank``, ``_targets`` and ``_adapter_dropout``, else the software's own."""
    if not kind or kind == "none":
        return
    name = str(reading.one("_name") or "").lower()
    of_checkpoint = next((held for held, words in QUANTISED if re.search(words, name)), None) if kind == "lora" else None
    reading.put("adapter", of_checkpoint or kind, derived=of_checkpoint is not None)
    stated = reading.one("_rank")
    if stated is None and rank is not None and not reading.has("_rank") and "_rank" not in reading.variable_fields:
        reading.note(f"adapters of rank {rank}, the framework's own, assumed")
    reading.put("lora_rank", stated or rank)
    rate = reading.one("_adapter_dropout")
    reading.put("adapter_dropout", dropped if rate is None else rate > 0, derived=rate is None)
    named: list[str] = reading.one("_targets") or []
    wanted = [name for name in named if name not in OF_NO_LAYER] or targets
    try:
        if wanted:
            reading.put("lora_targets", targets_of(wanted))
    except InvalidValue:
        reading.note(f"adapters of {', '.join(named)[:80]}: not modelled, priced as of every matrix of a layer")
    if set(named) & OF_NO_LAYER:
        reading.note("adapters of the embedding and the head are not modelled")
    saved = set(reading.one("_saved") or [])
    if saved & set(EMBEDDINGS) and saved & set(HEADS):
        reading.put("trained_edges", True)
    elif saved:
        reading.unpriced.append(f"modules_to_save {', '.join(sorted(saved))[:80]}")


def as_loaded(reading: LaunchReading) -> None:
    """Norms, embedding and head of a base that bitsandbytes quantised stay in 16 bit, or are cast back to it.

    References
    ----------
    axolotl-ai-cloud/axolotl@067b021c8 src/axolotl/loaders/model.py ``_configure_embedding_dtypes``;
    hiyouga/LLaMA-Factory@ff6d4d12 src/llamafactory/model/model_utils/checkpointing.py ``prepare_model_for_training``;
    modelscope/ms-swift@3602360a5 swift/pipelines/train/tuner.py ``prepare_adapter``
    """
    if reading.plan.get("adapter") in ("qlora", "int8-lora"):
        reading.put("wide_residual", False, derived=True)


def unsloth(reading: LaunchReading) -> None:
    """Adapters by Unsloth's kernels, with its checkpoints on the host, where nothing is sharded.

    Parameters
    ----------
    reading : of the files, with ``_unsloth``

    References
    ----------
    hiyouga/LLaMA-Factory@ff6d4d12 src/llamafactory/model/model_utils/unsloth.py; modelscope/ms-swift@3602360a5
    swift/pipelines/train/tuner.py
    """
    if reading.one("_unsloth") and reading.plan.get("adapter") and not (reading.has("_deepspeed") or reading.has("zero_stage")):
        reading.put("software", "unsloth", derived=True)
        reading.put("recompute", "full", derived=True)
        reading.say("_offload_activations", True, "unsloth")


def edges(w: Writing) -> list[str] | None:
    """Modules that train whole beside adapters: embedding and head, as Llama and its like name them."""
    return [EMBEDDINGS[0], HEADS[0]] if w.plan.trained_edges else None


def sections(reading: LaunchReading, *names: str) -> bool:
    """Whether a file has a section of one of these names."""
    return any(key.partition(".")[0] in names for key in reading.keys)

"""Hugging Face TrainingArguments, and TRL's over them: YAML, JSON or a command line."""

from __future__ import annotations

from costmodel.interop.launchers import common, says
from costmodel.interop.launchers import values as unit
from costmodel.interop.launchers.dialects.deepspeed import device
from costmodel.interop.launchers.table import OWN, Dialect, FlagRow, LaunchReading, Writing, words

OPTIM = {"adam": "adamw_torch", "adam-8bit": "adamw_8bit", "muon": "muon", "sgd-momentum": "sgd", "rmsprop": "rmsprop"}
"""Optimizers of a plan in the Trainer's words."""
KERNELS = {"fused": "adamw_torch_fused", "foreach": "adamw_torch"}
"""Adam by the kernels of a plan."""
PAGED = {"adam": "paged_adamw_32bit", "adam-8bit": "paged_adamw_8bit", "lion": "paged_lion_32bit"}
RESHARD = {
    "true": True, "false": False, "full_shard": True, "shard_grad_op": False, "hybrid_shard": True, "hybrid_shard_zero2": False,
}  # fmt: skip
SAMPLING = {"random": False, "sequential": False, "group_by_length": True}


def optimizer_word(w: Writing) -> object:
    """The optimizer of a plan, with its kernels where it says which."""
    word = says.optimizer(w, OPTIM, PAGED)
    return word if w.plan.paged_optimizer else KERNELS.get(str(w.plan.optimizer_kernel), word)


def fsdp_words(w: Writing) -> list[str]:
    """The Trainer's words for what FSDP shards."""
    return ["full_shard" if w.plan.zero_stage == 3 else "shard_grad_op", "auto_wrap"]


def brain(w: Writing) -> bool | None:
    """Whether products are of bf16, as TRL has them unless they are of fp16 or it is told not to."""
    return False if w.plan.dtype in ("fp32", "tf32") else says.mixed(w, "bf16", "fp8")


def split(w: Writing) -> bool:
    """Whether ranks share a layer or a sequence."""
    return w.plan.tensor_parallel > 1 or w.plan.context_parallel > 1


def reentrant(w: Writing) -> bool | None:
    """Whether checkpoints of layers are reentrant, where there are any."""
    return w.plan.reentrant if w.plan.recompute == "full" else None


NAME_ROWS = FlagRow("model_name_or_path model_name", "_name", unit.word, says=OWN),
BATCH_ROWS = (
    FlagRow("per_device_train_batch_size per_gpu_train_batch_size", "micro_batch", unit.count, 8, says=OWN),
    FlagRow("gradient_accumulation_steps", "gradient_accumulation", unit.count, 1, says=OWN),
    FlagRow("gradient_checkpointing grad_checkpoint use_gradient_checkpointing", "_recompute", unit.yields("full", "none"), False,
            says="recompute"),
    FlagRow("bf16", "_bf16", unit.flag, False, says=brain),
    FlagRow("fp16", "_fp16", unit.flag, False, says=lambda w: says.mixed(w, "fp16") or None),
)
SHARD_ROWS = (
    FlagRow("optim", "optimizer", unit.word, "adamw_torch", says=optimizer_word),
    FlagRow("deepspeed.zero_optimization.stage", "zero_stage", unit.whole, 0, says=OWN, when=Writing.by_deepspeed),
    FlagRow("deepspeed.zero_optimization.offload_optimizer.device", "_device_optimizer", device, "none", says=OWN,
            when=Writing.by_deepspeed),
    FlagRow("deepspeed.zero_optimization.offload_param.device", "_device_parameters", device, "none"),
    FlagRow("deepspeed.bf16.enabled", "_bf16", unit.flag, False, says=OWN, when=Writing.by_deepspeed),
    FlagRow("deepspeed.fp16.enabled", "_fp16", unit.flag, False),
    FlagRow("fsdp", "_fsdp", unit.anything, says=fsdp_words, when=Writing.by_fsdp),
    FlagRow("fsdp_config.offload_params fsdp_config.fsdp_offload_params fsdp_offload_params fsdp_config.cpu_offload",
            "_offload_fsdp", unit.flag, False, says=OWN, when=Writing.by_fsdp),
)
FSDP_ROWS = (
    FlagRow("fsdp_config.sharding_strategy fsdp_config.fsdp_sharding_strategy", "fsdp.sharding", unit.word),
    FlagRow("fsdp_config.reshard_after_forward fsdp_config.fsdp_reshard_after_forward", "fsdp.reshard_after_forward",
            unit.one_of(RESHARD), True),
    FlagRow("fsdp_config.activation_checkpointing fsdp_config.fsdp_activation_checkpointing", "_fsdp_recompute",
            unit.yields("full", "none")),
    FlagRow("fsdp_config.cpu_ram_efficient_loading fsdp_config.fsdp_cpu_ram_efficient_loading", "loading",
            unit.yields("one-rank", "every-rank")),
)
MESH_ROWS = (
    FlagRow("parallelism_config.tp_size", "tensor_parallel", unit.count, 1, "from 4.57", OWN, split),
    FlagRow("parallelism_config.cp_size", "context_parallel", unit.count, 1, "from 4.57", OWN,
            lambda w: split(w) and not w.plan.exchanges_heads),
    FlagRow("parallelism_config.sp_size", "ulysses_parallel", unit.count, 1, "from 4.57", OWN,
            lambda w: split(w) and w.plan.exchanges_heads),
    FlagRow("parallelism_config.dp_shard_size", "fsdp.shard_degree", unit.degree, None, "from 4.57"),
    FlagRow("parallelism_config.dp_replicate_size", "fsdp.replicate_degree", unit.degree, None, "from 4.57"),
    FlagRow("tp_size", "tensor_parallel", unit.degree, 0, "4.50 to 4.56"),
)
CHECKPOINT_ROWS = (
    FlagRow("gradient_checkpointing_kwargs.use_reentrant use_reentrant", "_reentrant", unit.flag),
    FlagRow("tf32", "_tf32", unit.flag, False),
    FlagRow("precompute_ref_log_probs", "_precomputed", unit.flag, False),
)
"""Rows that say something beside what is trained and in which dtype."""
READ_ROWS = (
    *CHECKPOINT_ROWS,
    FlagRow("fsdp_config", "_fsdp_config", unit.anything),
    FlagRow("fsdp_config.fsdp_version fsdp_config.version", "fsdp.version", unit.count, "2, before 5.10 1"),
    FlagRow("deepspeed", "_deepspeed", unit.anything),
    FlagRow("activation_offloading", "_offload_activations", unit.flag, False, "TRL"),
)
MODEL_ROWS = (
    FlagRow("torch_dtype dtype", "_dtype", unit.one_of(unit.DTYPES), "fp32",
            says=says.mapped("dtype", says.LONG_DTYPES, "bfloat16")),
    FlagRow("attn_implementation", "attention", unit.attention, "sdpa where there is one",
            says=says.kernel("flash_attention_2", "eager")),
    FlagRow("use_flash_attention_2 use_flash_attn flash_attn", "attention", unit.yields("flash"), None),
)
ADAPTER_ROWS = (
    FlagRow("use_peft use_peft_lora use_lora lora_enable", "_peft", unit.flag, False,
            says=lambda w: w.plan.adapter != "none" or None),
    FlagRow("lora_r lora_rank lora_dim", "_rank", unit.whole, says=OWN),
    FlagRow("lora_dropout", "_adapter_dropout", unit.number, says=OWN),
    FlagRow("lora_target_modules target_modules trainable", "_targets", unit.listed, says=OWN),
    FlagRow("lora_modules_to_save modules_to_save", "_saved", unit.listed, says=common.edges),
    FlagRow("load_in_4bit use_4bit_quantization q_lora", "_four_bit", unit.flag, False, says=OWN),
    FlagRow("load_in_8bit use_8bit_quantization", "_eight_bit", unit.flag, False, says=OWN),
    FlagRow("bits load_in_kbits", "_bits", unit.count, None, "qlora.py, LLaVA and Chinese-LLaMA-Alpaca"),
)
LENGTH_ROWS = (
    FlagRow("group_by_length group_by_modality_length", "_by_length", unit.flag, False, "to 4.57", OWN),
    FlagRow("train_sampling_strategy", "_by_length", unit.one_of(SAMPLING), "random", "from 5.0"),
)
LOSS_ROWS = (
    FlagRow("use_liger_kernel use_liger enable_liger_kernel", "fused_cross_entropy", unit.flag, False,
            says=says.where_true("fused_cross_entropy")),
)
TRL_ROWS = (
    FlagRow("max_length max_seq_length max_seq_len block_size model_max_length", "seq_len", unit.count, 1024, says=OWN),
    FlagRow("max_prompt_length", "_prompt", unit.count, 512, "to 0.27 of GRPO"),
    FlagRow("max_completion_length response_length", "_completion", unit.count, 256),
    FlagRow("max_new_tokens", "_new", unit.count),  # of TRL's online DPO, and of what others generate beside training
    FlagRow("max_source_length source_max_len", "_source", unit.count, None, "MedicalGPT, ChatGLM and qlora.py"),
    FlagRow("max_target_length target_max_len", "_target", unit.count, None, "MedicalGPT, ChatGLM and qlora.py"),
    FlagRow("num_generations", "_generations", unit.count),
    FlagRow("num_processes", "_gpus", unit.count),
    FlagRow("loss_type", "_loss", unit.anything),
    FlagRow("offload", "_moved", unit.flag, False, "DeepSpeed-Chat"),
)
PACKING_ROWS = (
    FlagRow("packing", "_packing", unit.flag, False, says=OWN),
    FlagRow("packing_strategy", "_strategy", unit.word, "bfd"),
    FlagRow("padding_free", "_padding_free", unit.flag, False, says=OWN),
)
TRL = words(
    "max_prompt_length num_generations use_peft dataset_num_proc max_length packing beta reward_funcs dataset_config "
    "dataset_name use_vllm max_seq_length dataset_mixer dataset_mixture max_completion_length attn_implementation torch_dtype "
    "completion_only_loss assistant_only_loss precompute_ref_log_probs packing_strategy padding_free dataset_text_field"
)
"""Keys of TRL, which the Trainer alone doesn't have, and of scripts around it."""
ALSO_OF_SCRIPTS = words("dataset_name torch_dtype attn_implementation max_seq_length use_peft")
"""Of them, those that scripts around the Trainer have, too (shibing624/MedicalGPT@2f1008c training/); packing beside blocks."""
GENERATING = words("grpo rloo ppo gkd nash_md online_dpo xpo")
"""Commands of ``trl`` that start one which makes its samples itself, and scripts of these names."""
OTHER_TRAINERS = words("dpo kto reward orpo cpo bco prm") | GENERATING
"""And those that start any of them."""
WITHOUT_REFERENCE = words("simpo_gamma gamma_beta_ratio cpo_alpha")
"""Keys of trainers by preferences that have no reference model."""
GONE = {
    "evaluation_strategy": "2024-10", "vllm_device": "2025-05", "use_liger": "2025-05", "dataset_batch_size": "2025-05",
    "max_seq_length": "2025-07", "max_prompt_length": "2026-03",
}  # fmt: skip
"""Keys by the month of the first release that hasn't them: transformers 4.46; huggingface/trl@a8cfca6d0 (0.18), e102ac8df (0.20),
89070d241 and e3b7897c8 (0.28 and 1.0)."""
TILED_SINCE = "2026-07"
"""Month of TRL 1.7, as the catalogue has it."""
AS_LOADED_SINCE = "2025-12"
"""Month of TRL 0.26, before which a quantised base was prepared by PEFT, as the catalogue has it."""
WIDE_SINCE, LONGER_SINCE = "2025-06", "2026-08"
"""Months of TRL 0.19, in bf16 by itself, and of 1.10, with completions of 512 tokens unless it is said (286d19fc7)."""
TILED = words("sft dpo grpo kto rloo")
"""Commands of those that never have all logits at once."""
ADAPTED = {"lora_enable": (64, "all"), "lora_module_name": (None, "all"), "source_max_len": (64, "all")}
"""Rank and matrices of much copied scripts, by a key that they have: haotian-liu/LLaVA@c121f04 llava/train/train.py,
artidoro/qlora@7f4e95a qlora.py; microsoft/DeepSpeedExamples@83757d9c applications/DeepSpeed-Chat/dschat/utils/module/lora.py."""
OF_CHAT = words("data_split lora_module_name only_optimize_lora actor_zero_stage")
"""Keys of DeepSpeed-Chat, which trains in fp16 unless it is told not to: applications/DeepSpeed-Chat/training, ``--dtype``."""
OF_FIRST_FSDP = words("fsdp_transformer_layer_cls_to_wrap fsdp_min_num_params evaluation_strategy no_cuda") | {
    f"fsdp_config.{start}{name}" for start in ("", "fsdp_")
    for name in words("backward_prefetch forward_prefetch use_orig_params limit_all_gathers sync_module_states sharding_strategy")
}  # fmt: skip
"""Keys of releases, or of FSDP, that came before its second version."""
SECOND_FSDP = "2026-06"
"""Month of transformers 5.10, from which on FSDP is of the second version where none is said."""
GENERATED = words("num_generations reward_funcs use_vllm max_completion_length response_length")
"""Keys of trainers that make their samples."""


def trainer(reading: LaunchReading) -> None:
    """What the arguments of the Trainer amount to."""
    wide = common.half(reading)
    reading.put("dtype", reading.one("_narrow") or wide)
    if wide is None and reading.one("_dtype") in ("bf16", "fp16"):
        reading.put("dtype", reading.one("_dtype"))
    as_loaded(reading, wide)
    common.liger(reading)
    if wide is not None and reading.one("_dtype") == "fp32" and not common.bits(reading):
        reading.put("base_dtype", "fp32")
    fsdp(reading)
    reading.put("recompute", reading.one("_recompute") or reading.one("_fsdp_recompute"))
    common.devices(reading)
    common.offload(reading)
    if str(reading.one("_strategy") or "bfd").lower() != "wrapped":  # which joins and cuts samples, with attention over all
        common.batching(reading)
    shard(reading)
    beside_others(reading)
    reading.model_name = reading.one("_name") or reading.model_name


def as_loaded(reading: LaunchReading, wide: str | None) -> None:
    """Whether a model in 16 bit trains without mixed precision; TRL's trainers have it unless it is turned off, and DeepSpeed's
    engine casts by its own file. Scripts of transformers, too, have ``torch_dtype``.
    """
    narrow, elsewhere = reading.one("_dtype") in ("bf16", "fp16"), reading.one("_precision")  # accelerate's
    usual = of_trl(reading) and not reading.has("_bf16") and reaches(reading, WIDE_SINCE)  # ``__post_init__``
    if narrow and wide is None and elsewhere in (None, "fp32") and not usual and not by_deepspeed(reading):
        common.unmixed(reading)


def of_trl(reading: LaunchReading) -> bool:
    """Whether one of TRL's trainers is started."""
    others = ALSO_OF_SCRIPTS | (words("packing") if "block_size" in reading.keys else words(""))
    return common.sections(reading, *(TRL - others)) or "trl" in reading.irrelevant


def reaches(reading: LaunchReading, month: str) -> bool:
    """Whether TRL's release may be of a month, or newer: by the one that is asked for, else by keys that later ones haven't."""
    pinned = reading.pinned("trl")
    return pinned >= month if pinned else all(GONE[key] > month for key in reading.keys & GONE.keys())


def of_a_logit_trainer(reading: LaunchReading) -> bool:
    """Whether the trainer of TRL's that is started has whole logits, as those beside `TILED` have.

    References
    ----------
    huggingface/trl@v1.15.0 trl/trainer/{sft,dpo,grpo,kto,rloo}_trainer.py ``add_fused_lm_head``
    """
    return bool(common.started(reading) & (OTHER_TRAINERS - TILED) or reading.keys & WITHOUT_REFERENCE)


def preferences(reading: LaunchReading) -> None:
    """What is said of TRL's trainers by preferences, which commands, scripts and keys name."""
    alone = reading.keys & WITHOUT_REFERENCE or reading.one("_loss") in common.PAIRED - common.REFERRED
    by_beta = "beta" in reading.keys and not reading.keys & GENERATED and not common.started(reading) & OTHER_TRAINERS
    common.preferences(reading, "orpo" if alone else "dpo" if by_beta and of_trl(reading) else None)


def by_deepspeed(reading: LaunchReading) -> bool:
    """Whether DeepSpeed's engine holds the weights."""
    return reading.has("_deepspeed") or reading.has("zero_stage") or reading.one("_kind") == "deepspeed"


def as_trl_trains(reading: LaunchReading) -> None:
    """What TRL's arguments are by default where the Trainer's are others: all layers are recomputed, in mixed precision, and
    weights are loaded in 32 bit.

    References
    ----------
    huggingface/trl@v1.9.0 trl/trainer/base_config.py, trl/trainer/model_config.py, trl/trainer/utils.py
    ``create_model_from_path``; bf16 by itself since 32ffa1170 (0.19)
    """
    if reaches(reading, "2025-08"):  # 0.22.0, as the catalogue has it
        reading.defaults["recompute"] = "full"
    if not reading.keys & GENERATED and not common.started(reading) & GENERATING:
        reading.defaults["seq_len"] = 1024  # ``max_length``
    half = reading.one("_fp16", False)
    brain = reading.one("_bf16", not half and reaches(reading, WIDE_SINCE))
    if brain:
        reading.defaults["dtype"] = "bf16"
    quantised = reading.one("_four_bit") or reading.one("_eight_bit")
    if quantised and reaches(reading, AS_LOADED_SINCE):
        reading.put("wide_residual", False, derived=True)
    if (brain or half) and reading.one("_dtype", "fp32") == "fp32" and not quantised and not by_deepspeed(reading):
        reading.put("base_dtype", "fp32", derived=True)


def beside_others(reading: LaunchReading) -> None:
    """What means something beside other flags alone: TF32 where nothing is narrower, reentrant checkpoints of layers."""
    if reading.one("_tf32") and reading.known("dtype") == "fp32":
        reading.put("dtype", "tf32")
    if reading.known("recompute") == "full":
        reading.put("reentrant", reading.one("_reentrant"))


def fsdp(reading: LaunchReading) -> None:
    """The Trainer's `fsdp` words and `fsdp_config` table."""
    named = reading.one("_fsdp_config")
    if isinstance(named, str) and named.rpartition("/")[2] not in {name for name, _ in reading.files}:
        reading.note(f"fsdp_config names {named[:80]}: what it says, of checkpoints and offload too, is left out")
    stated: object = reading.one("_fsdp")
    named = stated.split() if isinstance(stated, str) else ["full_shard"] if stated is True else stated
    chosen = [str(one).lower() for one in named] if isinstance(named, list) else []
    table = [name for name in reading.said if name.startswith("fsdp.")] or reading.has("_offload_fsdp")
    if not chosen and not table:
        return
    known = [one for one in chosen if one.replace("_zero2", "") in ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard")]
    fields: dict[str, object] = {"version": reading.one("fsdp.version")}
    if sharding := reading.one("fsdp.sharding"):
        fields["sharding"] = common.FSDP_SHARDING.get(sharding, sharding)
    elif known:
        fields["sharding"] = known[0]
    if "offload" in chosen:
        reading.say("_offload_fsdp", True, "fsdp offload")
    fields |= common.stated_fsdp(reading, "reshard_after_forward", "shard_degree", "replicate_degree")
    fields |= common.offloaded_fsdp(reading)
    common.fsdp(reading, fields)


def version_of_fsdp(reading: LaunchReading) -> None:
    """Which FSDP the Trainer takes where no file says it: the second, unless keys are of a release that had the first.

    References
    ----------
    huggingface/transformers v5.10.1 src/transformers/training_args.py ``_process_fsdp_args``: ``version`` of 2, 1 in v5.9.0
    """
    fields = reading.plan.get("fsdp")
    if not fields or fields.get("version") or reading.has("_kind") or reading.keys & OF_FIRST_FSDP:
        return
    month = reading.pinned("transformers")
    if "hybrid" not in str(fields.get("sharding")) and (month or SECOND_FSDP) >= SECOND_FSDP:
        fields["default_version"] = 2
        if month is None:
            reading.note("FSDP of version 2, as transformers has it from 5.10 where none is said; before, fsdp_config.version=1")


def shard(reading: LaunchReading) -> None:
    """Low-rank adapters and quantised weights."""
    quantised, asked, known = common.bits(reading), reading.one("_peft"), reading.plan.get("adapter")
    if asked or (asked is None and (reading.one("_rank") or quantised)):
        # trl/trainer/model_config.py ModelConfig: rank 16, and where no module is named PEFT's of Llama and its like
        rank, targets = next((of_it for key, of_it in ADAPTED.items() if key in reading.keys), (16, "q-v"))
        common.adapter(reading, common.frozen(quantised), rank, targets)
        if not (known or reading.has("_targets") or of_trl(reading)) and targets != "all":
            reading.note("adapters of queries and values, as PEFT has them for Llama, assumed: no file names the matrices")


def rules(reading: LaunchReading) -> None:
    """TrainingArguments, and what marks them as TRL's."""
    if of_trl(reading):
        as_trl_trains(reading)
    trainer(reading)
    version_of_fsdp(reading)
    if reading.keys & OF_CHAT:
        reading.defaults["dtype"] = "fp16"
        if reading.one("_moved"):
            common.offloaded(reading, ["optimizer", "parameters"])
    if not of_trl(reading):
        reading.framework = "transformers"
    elif not of_a_logit_trainer(reading) and reaches(reading, TILED_SINCE):
        reading.put("loss", reading.dialect.about.loss, derived=True)
        if reading.one("fused_cross_entropy"):  # whose other kernels stay
            reading.put("fused_cross_entropy", False)
            reading.note("TRL from 1.15 takes Liger's kernels but its loss, in place of which it has its own, as little")
    generation(reading)
    preferences(reading)
    if (source := reading.one("_source")) and (target := reading.one("_target")) and not reading.has("seq_len"):
        reading.put("seq_len", source + target, derived=True)  # shibing624/MedicalGPT training/dpo_training.py ``max_length``
    common.beside(reading, "_deepspeed", "deepspeed")
    common.beside(reading, "_accelerate", "accelerate")


def generation(reading: LaunchReading) -> None:
    """What is said of samples that the run makes itself: a sequence is a prompt and its completion."""
    if reading.has("_generations") or reading.has("_completion") or common.started(reading) & GENERATING:
        reading.note("generates while it trains: only the training step is priced")
        if not (reading.has("seq_len") or reading.plan.get("seq_len")):
            reading.defaults.pop("seq_len", None)
            if {"_generations", "_completion", "_new"} & reading.said.keys():
                common.prompted(reading, reading.one("_new", 512 if reaches(reading, LONGER_SINCE) else 256))


ROWS = (
    *NAME_ROWS, *MODEL_ROWS, *BATCH_ROWS, *TRL_ROWS, *SHARD_ROWS, *FSDP_ROWS, *MESH_ROWS, *ADAPTER_ROWS, *LOSS_ROWS,
    *PACKING_ROWS, *LENGTH_ROWS, *READ_ROWS, says.alone("num_train_epochs", says.fixed(1)),
)  # fmt: skip
HUGGINGFACE = Dialect("huggingface", ROWS, rules)

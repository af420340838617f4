"""How the dialects of trainers say a plan: what is more than a row of their tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from costmodel.description.adapters import GROUPS, RANK

if TYPE_CHECKING:
    from costmodel.interop.launchers.table import Writing


def deepspeed(w: Writing) -> None:
    """DeepSpeed's JSON."""
    plan = w.plan
    w.put("train_batch_size", plan.global_batch)
    w.put("train_micro_batch_size_per_gpu", plan.micro_batch)
    w.put("gradient_accumulation_steps", w.accumulation)
    w.put("bf16.enabled", plan.dtype == "bf16")
    w.put("fp16.enabled", plan.dtype == "fp16")
    w.put("zero_optimization.stage", plan.zero_stage)
    if plan.zero_stage and plan.optimizer_offload:
        w.put("zero_optimization.offload_optimizer.device", "cpu")
        w.put("zero_optimization.offload_optimizer.ratio", plan.optimizer_offload)
    w.put("zero_optimization.overlap_comm", plan.overlap_gradients)
    if plan.tensor_parallel > 1:
        w.put("tensor_parallel.autotp_size", plan.tensor_parallel)
    if plan.context_parallel > 1:
        w.put("sequence_parallel_size", plan.context_parallel)
    w.put("gradient_clipping", 1.0)


def accelerate(w: Writing) -> None:
    """The file of `accelerate config`."""
    plan = w.plan
    w.put("compute_environment", "LOCAL_MACHINE")
    kind = "DEEPSPEED" if w.by_deepspeed else "FSDP" if plan.zero_stage else "MULTI_GPU"
    w.put("distributed_type", kind)
    w.put("num_processes", plan.gpus)
    w.put("num_machines", max(1, plan.gpus // 8))
    w.put(
        "mixed_precision",
        "no" if plan.dtype == "fp32" else plan.dtype if plan.dtype in ("bf16", "fp16", "fp8") else "bf16",
    )
    if kind == "DEEPSPEED":
        w.put("deepspeed_config.zero_stage", plan.zero_stage)
        w.put("deepspeed_config.gradient_accumulation_steps", w.accumulation)
        if plan.optimizer_offload:
            w.put("deepspeed_config.offload_optimizer_device", "cpu")
        if plan.context_parallel > 1:
            w.put("parallelism_config.parallelism_config_sp_size", plan.context_parallel)
    elif plan.zero_stage:
        w.put("fsdp_config.fsdp_version", 2)
        w.put("fsdp_config.fsdp_reshard_after_forward", plan.zero_stage == 3)
        w.put("fsdp_config.fsdp_activation_checkpointing", plan.recompute == "full")
        w.put("fsdp_config.fsdp_offload_params", False)
        w.put("fsdp_config.fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP")
        copies = plan.copies * plan.context_parallel // plan.shard_group if plan.shard_group else 1
        w.put("parallelism_config.parallelism_config_dp_replicate_size", copies)
        w.put("parallelism_config.parallelism_config_dp_shard_size", max(1, plan.copies // copies))
        w.put("parallelism_config.parallelism_config_tp_size", plan.tensor_parallel)
        w.put("parallelism_config.parallelism_config_cp_size", plan.context_parallel)
    if kind != "DEEPSPEED":
        w.put("gradient_accumulation_steps", w.accumulation)
    w.put("machine_rank", 0)
    w.put("main_training_function", "main")


def _trainer(w: Writing) -> None:
    """What TrainingArguments say alike under every roof."""
    plan = w.plan
    w.put("gradient_accumulation_steps", w.accumulation)
    w.put("gradient_checkpointing", plan.recompute == "full")
    if plan.dtype in ("bf16", "fp16"):
        w.put(plan.dtype, True)
    elif plan.dtype == "fp8":
        w.put("bf16", True)


OPTIM = {
    "adam": "adamw_torch",
    "adam-8bit": "adamw_8bit",
    "muon": "muon",
    "sgd-momentum": "sgd",
    "rmsprop": "rmsprop",
}


def _batching(w: Writing, flags: Mapping[str, str]) -> None:
    """How samples make micro-batches, by the flag of each way that there is."""
    if w.plan.batching in flags:
        w.put(flags[w.plan.batching], True)


def _fsdp(w: Writing, prefix: str = "") -> None:
    plan = w.plan
    if w.by_deepspeed:
        w.put("deepspeed.zero_optimization.stage", plan.zero_stage)
        w.put("deepspeed.zero_optimization.offload_optimizer.device", "cpu" if plan.optimizer_offload else None)
        w.put("deepspeed.bf16.enabled", plan.dtype == "bf16")
    elif plan.zero_stage:
        w.put("fsdp", ["full_shard" if plan.zero_stage == 3 else "shard_grad_op", "auto_wrap"])
        w.put(f"fsdp_config.{prefix}offload_params", False)


def huggingface(w: Writing) -> None:
    """TrainingArguments with TRL's model arguments."""
    plan = w.plan
    w.put("model_name_or_path", w.model.name)
    w.put(
        "torch_dtype", {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}.get(str(plan.dtype), "bfloat16")
    )
    w.put("attn_implementation", "flash_attention_2" if plan.attention == "flash" else "eager")
    w.put("per_device_train_batch_size", plan.micro_batch)
    _trainer(w)
    w.put("max_length", plan.seq_len)
    w.put("optim", OPTIM.get(str(plan.optimizer)))
    _fsdp(w)
    if plan.tensor_parallel > 1 or plan.context_parallel > 1:
        w.put("parallelism_config.tp_size", plan.tensor_parallel)
        kind = "sp" if plan.context_communication == "all-to-all" else "cp"
        w.put(f"parallelism_config.{kind}_size", plan.context_parallel)
    w.put("use_peft", True if plan.adapter != "none" else None)
    _adapter(w, "lora_r", "lora_target_modules", "load_in_4bit")
    w.put("use_liger_kernel", plan.fused_cross_entropy or None)
    _batching(w, {"packed": "packing", "padding-free": "padding_free", "grouped": "group_by_length"})
    w.put("num_train_epochs", 1)


MODULES = {
    "query": "q_proj", "key": "k_proj", "value": "v_proj", "fused": "qkv_proj", "output": "o_proj", "gate": "gate_proj",
    "up": "up_proj", "down": "down_proj",
}  # fmt: skip
"""Matrices of a layer as PEFT names them in Llama and its like."""


def _adapter(w: Writing, rank: str, targets: str, four: str | None = None) -> None:
    """A low-rank adapter: its rank, what has one, and whether what it is beside is held in 4 bits."""
    plan = w.plan
    if plan.adapter == "none":
        return
    w.put(rank, plan.lora_rank or RANK)
    w.put(targets, [MODULES[name] for name in plan.lora_targets or GROUPS["all"]])
    if plan.adapter == "qlora" and four:
        w.put(four, True)


def llama_factory(w: Writing) -> None:
    """LLaMA-Factory's YAML."""
    plan = w.plan
    w.put("model_name_or_path", w.model.name)
    w.put("stage", "pt")
    w.put("do_train", True)
    w.put("finetuning_type", "full" if plan.adapter == "none" else "lora")
    if plan.adapter == "qlora":
        w.put("quantization_bit", 4)
    _adapter(w, "lora_rank", "lora_target")
    if "lora_target" in w.values:  # a text with commas in all of its examples
        w.put("lora_target", ",".join(MODULES[name] for name in plan.lora_targets or GROUPS["all"]))
    w.put("cutoff_len", plan.seq_len)
    w.put("flash_attn", "fa2" if plan.attention == "flash" else "disabled")
    w.put("per_device_train_batch_size", plan.micro_batch)
    _trainer(w)
    w.values.pop("gradient_checkpointing")
    w.put("disable_gradient_checkpointing", plan.recompute != "full")
    if plan.dtype == "fp8":
        w.put("fp8", True)
    w.put("optim", OPTIM.get(str(plan.optimizer)))
    _fsdp(w)
    w.put("enable_liger_kernel", plan.fused_cross_entropy or None)
    _batching(w, {"packed": "neat_packing", "grouped": "group_by_length"})
    w.put("num_train_epochs", 1.0)


def axolotl(w: Writing) -> None:
    """Axolotl's YAML."""
    plan = w.plan
    w.put("base_model", w.model.name)
    w.put("sequence_len", plan.seq_len)
    w.put("micro_batch_size", plan.micro_batch)
    _trainer(w)
    if plan.dtype == "fp8":
        w.put("fp8", True)
    elif plan.dtype == "fp16":
        w.put("bf16", False)
    w.put("attn_implementation", "flash_attention_2" if plan.attention == "flash" else "eager")
    w.put("optimizer", OPTIM.get(str(plan.optimizer)))
    w.put("adapter", {"none": None, "gptq-lora": "lora"}.get(plan.adapter, plan.adapter))
    w.put("gptq", plan.adapter == "gptq-lora" or None)
    _batching(w, {"packed": "sample_packing", "padding-free": "batch_flattening", "grouped": "group_by_length",
                  "padded-whole": "pad_to_sequence_len"})  # fmt: skip
    _adapter(w, "lora_r", "lora_target_modules")
    if plan.tensor_parallel > 1:
        w.put("tensor_parallel_size", plan.tensor_parallel)
    if plan.context_parallel > 1:
        w.put("context_parallel_size", plan.context_parallel)
    if plan.expert_parallel > 1:
        w.put("expert_parallel_size", plan.expert_parallel)
    if w.by_deepspeed and w.software != "hf-fsdp":
        _fsdp(w)
    elif (plan.zero_stage or 0) >= 2:
        w.put("fsdp_version", 2)
        w.put("fsdp_config.reshard_after_forward", plan.zero_stage == 3)
        w.put("fsdp_config.offload_params", False)
        copies = plan.copies * plan.context_parallel // plan.shard_group if plan.shard_group else 1
        w.put("dp_shard_size", max(1, plan.copies // copies // plan.expert_parallel))
        w.put("dp_replicate_size", copies)
    w.put("activation_offloading", True if plan.activation_offload == 1.0 else None)
    w.put("num_epochs", 1)


def torchtitan(w: Writing) -> None:
    """torchtitan's TOML."""
    plan = w.plan
    family, _, flavor = w.model.name.rpartition("-")
    w.put("model.name", family or w.model.name)
    w.put("model.flavor", flavor.upper())
    w.put(
        "training.local_batch_size", plan.micro_batch * (w.accumulation if plan.pipeline_parallel > 1 else 1)
    )
    w.put("training.global_batch_size", plan.global_batch)
    w.put("training.seq_len", plan.seq_len)
    if plan.dtype == "fp32":
        w.put("training.mixed_precision_param", "float32")
    if plan.dtype in ("fp8", "mxfp8"):
        w.put("model.converters", ["quantize.linear.float8" if plan.dtype == "fp8" else "quantize.linear.mx"])
    ranks = plan.copies * plan.context_parallel
    copies = (
        plan.copies if not plan.zero_stage else ranks // plan.shard_group if plan.shard_group else 1
    )
    w.put("parallelism.data_parallel_replicate_degree", copies)
    w.put("parallelism.data_parallel_shard_degree", plan.copies // copies)
    if (plan.zero_stage and plan.pipeline_parallel == 1) or plan.zero_stage == 2:
        w.put("parallelism.fsdp_reshard_after_forward", "never" if plan.zero_stage == 2 else "always")
    w.put("parallelism.tensor_parallel_degree", plan.tensor_parallel)
    w.put("parallelism.context_parallel_degree", plan.context_parallel)
    w.put("parallelism.pipeline_parallel_degree", plan.pipeline_parallel)
    if w.model.experts:
        w.put("parallelism.expert_parallel_degree", plan.expert_parallel)
        w.put("parallelism.expert_tensor_parallel_degree", plan.expert_tensor_parallel)
    if plan.pipeline_parallel > 1:
        names = {
            "1f1b": "1F1B",
            "gpipe": "GPipe",
            "interleaved": "Interleaved1F1B",
            "zb-h1": "ZB1P",
            "breadth-first": "LoopedBFS",
        }
        w.put("parallelism.pipeline_parallel_schedule", names.get(str(plan.schedule)))
        w.put("parallelism.pipeline_parallel_microbatch_size", plan.micro_batch)
    w.put("parallelism.enable_async_tensor_parallel", plan.overlap_tensor)
    w.put("activation_checkpoint.mode", plan.recompute if plan.recompute in ("none", "full") else "selective")
    w.put("optimizer.name", "AdamW")


def nanotron(w: Writing) -> None:
    """nanotron's YAML."""
    plan, model = w.plan, w.model
    w.say("data_parallel", "tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel")
    w.put("parallelism.pp_engine", "afab" if plan.schedule == "gpipe" else "1f1b")
    w.put(
        "parallelism.tp_mode",
        "REDUCE_SCATTER" if plan.sequence_parallel or plan.tensor_parallel == 1 else "ALL_REDUCE",
    )
    w.put("parallelism.tp_linear_async_communication", bool(plan.overlap_tensor))
    w.put("parallelism.recompute_layer", plan.recompute == "full")
    w.put("tokens.micro_batch_size", plan.micro_batch)
    w.put("tokens.batch_accumulation_per_replica", w.accumulation)
    w.put("tokens.sequence_length", plan.seq_len)
    w.put("optimizer.zero_stage", plan.zero_stage)
    w.put(
        "optimizer.accumulate_grad_in_fp32", None if plan.gradient_bytes is None else plan.gradient_bytes == 4
    )
    w.put(
        "optimizer.optimizer_factory.name",
        "adamW" if plan.optimizer in (None, "adam") else str(plan.optimizer),
    )
    w.put("model.dtype", {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}.get(str(plan.dtype)))
    shape = "model.model_config."
    w.put(shape + "num_hidden_layers", model.layers)
    w.put(shape + "hidden_size", model.hidden)
    w.put(shape + "intermediate_size", model.feed_forward or model.expert_feed_forward)
    w.put(shape + "num_attention_heads", model.heads)
    w.put(shape + "num_key_value_heads", model.kv_heads)
    w.put(shape + "vocab_size", model.vocabulary)
    w.put(shape + "tie_word_embeddings", model.tied_embeddings)
    w.put(shape + "_attn_implementation", "flash_attention_2" if plan.attention == "flash" else "sdpa")
    if model.experts:
        w.put(shape + "moe_config.num_experts", model.experts)
        w.put(shape + "moe_config.top_k", model.experts_per_token)
        w.put(shape + "moe_config.moe_intermediate_size", model.expert_feed_forward)


def llm_foundry(w: Writing) -> None:
    """LLM Foundry's YAML."""
    plan = w.plan
    w.put("max_seq_len", plan.seq_len)
    w.put("model.name", "hf_causal_lm")
    w.put("model.pretrained_model_name_or_path", w.model.name)
    w.put("model.use_flash_attention_2", True if plan.attention == "flash" else None)
    w.put("global_train_batch_size", plan.global_batch)
    w.put("device_train_microbatch_size", plan.micro_batch)
    w.put(
        "precision",
        {"bf16": "amp_bf16", "fp16": "amp_fp16", "fp32": "fp32", "fp8": "amp_fp8"}.get(str(plan.dtype)),
    )
    w.put(
        "optimizer.name",
        {"adam": "decoupled_adamw", "sgd-momentum": "decoupled_lionw"}.get(str(plan.optimizer)),
    )
    if plan.zero_stage != 1:
        strategy = {3: "FULL_SHARD", 2: "SHARD_GRAD_OP", 0: "NO_SHARD"}[plan.zero_stage or 0]
        w.put("fsdp_config.sharding_strategy", strategy)
    w.put("fsdp_config.mixed_precision", "PURE")
    w.put("fsdp_config.activation_checkpointing", plan.recompute == "full")
    w.put("fsdp_config.activation_cpu_offload", plan.activation_offload == 1.0)
    if plan.tensor_parallel > 1:
        w.put("tp_config.tensor_parallel_degree", plan.tensor_parallel)


def torchtune(w: Writing) -> None:
    """torchtune's YAML."""
    plan = w.plan
    w.put("model._component_", f"torchtune.models.{w.model.name.replace('-', '_').replace('.', '_')}")
    w.put("tokenizer.max_seq_len", plan.seq_len)
    w.put("batch_size", plan.micro_batch)
    w.put("gradient_accumulation_steps", w.accumulation)
    w.put("dtype", plan.dtype if plan.dtype in ("bf16", "fp16", "fp32") else "bf16")
    if plan.dtype == "fp8":
        w.put("enable_fp8_training", True)
    w.put("enable_activation_checkpointing", plan.recompute == "full")
    _batching(w, {"packed": "dataset.packed"})
    w.put("enable_activation_offloading", plan.activation_offload == 1.0)
    w.put("tensor_parallel_dim", plan.tensor_parallel)
    w.put("context_parallel_dim", plan.context_parallel)
    if plan.zero_stage:
        copies = plan.copies * plan.context_parallel // plan.shard_group if plan.shard_group else 1
        w.put("data_parallel_shard_dim", max(1, plan.copies // copies))
        w.put("data_parallel_replicate_dim", copies)
        w.put("fsdp_reshard_after_forward", False if plan.zero_stage == 2 else None)
    else:
        w.put("data_parallel_shard_dim", 1)
        w.put("data_parallel_replicate_dim", plan.data_parallel)
    names = {
        "adam": "torch.optim.AdamW",
        "adam-8bit": "bitsandbytes.optim.PagedAdamW8bit",
        "sgd-momentum": "torch.optim.SGD",
    }
    w.put("optimizer._component_", names.get(str(plan.optimizer), "torch.optim.AdamW"))


def openrlhf(w: Writing) -> None:
    """Flags of OpenRLHF's trainers."""
    plan = w.plan
    w.put("model.model_name_or_path", w.model.name)
    w.put("train.batch_size", plan.global_batch)
    w.put("train.micro_batch_size", plan.micro_batch)
    w.put("data.max_len", plan.seq_len)
    _batching(w, {"padding-free": "ds.packing_samples"})
    w.put("ds.zero_stage", plan.zero_stage)
    w.put("ds.param_dtype", plan.dtype if plan.dtype in ("bf16", "fp16") else None)
    w.put("ds.attn_implementation", "flash_attention_2" if plan.attention == "flash" else "eager")
    w.put("ds.ring_attn_size", plan.context_parallel if plan.context_parallel > 1 else None)
    w.put("ds.tensor_parallel_size", plan.tensor_parallel if plan.tensor_parallel > 1 else None)
    w.put("ds.adam_offload", True if plan.optimizer_offload == 1.0 else None)
    w.put("ds.overlap_comm", True if plan.overlap_gradients else None)
    w.put("ds.use_liger_kernel", True if plan.fused_cross_entropy else None)
    w.put("model.gradient_checkpointing_enable", True if plan.recompute == "full" else None)
    w.put("optim", {"adam": None}.get(str(plan.optimizer), plan.optimizer))
    _adapter(w, "ds.lora.rank", "ds.lora.target_modules", "ds.load_in_4bit")


def colossalai(w: Writing) -> None:
    """Flags of ColossalAI's examples."""
    plan = w.plan
    model_parallel = (
        plan.tensor_parallel * plan.pipeline_parallel > 1 or not plan.zero_stage or plan.expert_parallel > 1
    )
    w.put("plugin", "3d" if model_parallel else {1: "zero1", 2: "zero2", 3: "gemini"}[plan.zero_stage or 2])
    if model_parallel:
        w.put("tp", plan.tensor_parallel)
        w.put("pp", plan.pipeline_parallel)
        w.put("zero_stage", plan.zero_stage)
        w.put("ep_size", plan.expert_parallel if plan.expert_parallel > 1 else None)
    if plan.context_parallel > 1:
        w.put("sp", plan.context_parallel)
        w.put("sp_mode", "all_to_all" if plan.context_communication == "all-to-all" else "ring_attn")
    if plan.tensor_parallel > 1 and plan.sequence_parallel:
        w.put("enable_sequence_parallelism", True)
        w.put("sp_mode", "split_gather")
    w.put("batch_size", plan.micro_batch * (w.accumulation if plan.pipeline_parallel > 1 else 1))
    w.put("microbatch_size", plan.micro_batch if model_parallel else None)
    w.put("accumulation_steps", w.accumulation)
    w.put("global_batch_size", plan.global_batch)
    w.put("max_length", plan.seq_len)
    w.put("mixed_precision", plan.dtype if plan.dtype in ("bf16", "fp16", "fp32") else None)
    w.put("use_grad_checkpoint", True if plan.recompute == "full" else None)
    w.put("use_flash_attn", True if plan.attention == "flash" else None)
    w.put("model_name", w.model.name)
    if plan.pipeline_parallel > 1:
        w.put("pp_style", {"interleaved": "interleaved", "zb-v": "zbv"}.get(str(plan.schedule), "1f1b"))
        w.put("n_chunks", plan.virtual_stages if plan.virtual_stages > 1 else None)
    w.put("zero_cpu_offload", True if plan.optimizer_offload == 1.0 else None)

"""Command lines of OpenRLHF: its trainers over DeepSpeed, with plain flags and, from version 0.10, with dotted ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costmodel.interop.launchers import common
from costmodel.interop.launchers.dialects import said_trainers
from costmodel.interop.launchers.table import UNSPLIT, Dialect, FlagRow, words
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

SOURCE = "OpenRLHF/OpenRLHF openrlhf/cli/train_{sft,dpo,rm,ppo_ray}.py@3c3be623 (dotted) and @76351db1 (plain)"
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
    source=SOURCE,
    rows=ROWS,
    unpriced=words(
        """
        packing_samples ds.packing_samples deepcompile ds.deepcompile ds.experts_implementation
        gradient_checkpointing_use_reentrant *.gradient_checkpointing_reentrant ring_head_stride ds.ring_attn_head_stride
        use_dynamic_batch train.dynamic_batch_enable train_max_tokens_per_gpu train.max_tokens_per_gpu
        rollout_max_tokens_per_gpu rollout.* rollout_* micro_rollout_batch_size vllm_* vllm.* ds.enable_sleep
        deepspeed_enable_sleep enforce_eager enable_prefix_caching colocate_* train.colocate_* train.async_* async_*
        train.partial_rollout_enable enable_ema train.enable_ema ref_offload ref.* ref_* reward_num_* reward.* reward_pretrain
        critic.* critic_* teacher_* teacher_offload ref_reward_offload ptx_coef n_samples_per_prompt num_episodes
        actor.freeze_visual_encoder actor_init_on_gpu enable_vllm_is_correction
        """
    ),
    irrelevant=words(
        """
        save_path save_steps save_hf_ckpt disable_ds_ckpt logging_steps eval_* ckpt_path max_ckpt_* load_checkpoint
        use_ds_universal_ckpt ds.use_universal_ckpt max_norm seed full_determinism local_rank disable_fast_tokenizer
        disable_trace_cache dataloader_num_workers max_epochs aux_loss_coef learning_rate lr_* l2 adam_betas adam.* muon.*
        min_lr_ratio pretrain_mode lora_alpha lora_dropout ds.lora.alpha ds.lora.dropout dataset dataset_* data.* eval.*
        ckpt.* logger.* train.seed train.full_determinism_enable train.max_epochs train.num_episodes train.ema_beta
        train.agent_func_path model.* actor.* algo.* train_split max_samples multiturn input_key output_key label_key
        prompt_key rejected_key input_template apply_chat_template tokenizer_chat_template use_wandb wandb_* use_tensorboard
        use_ms ds.value_head_prefix value_head_prefix ipo label_smoothing nll_loss_coef compute_fp32_loss margin_loss loss
        prompt_data prompt_split pretrain_data pretrain_split actor_learning_rate remote_rm_url agent_func_path eps_clip*
        dual_clip value_clip lambd gamma init_kl_coef kl_* use_kl_loss temperature top_p normalize_reward freezing_actor_steps
        save_value_network ema_beta policy_loss_type dynamic_filtering* overlong_* advantage_estimator entropy_loss_coef
        image_key perf kd_coef desirable_loss_weight undesirable_loss_weight
        """
    ),
    signature=words(
        """
        micro_train_batch_size train.micro_batch_size ds.zero_stage ds.param_dtype ds.lora.rank ds.attn_implementation max_len
        packing_samples adam_offload ring_attn_size ds_tensor_parallel_size micro_rollout_batch_size save_hf_ckpt
        rollout_batch_size model.gradient_checkpointing_enable actor_num_gpus_per_node actor.num_gpus_per_node pretrain
        """
    ),
    rules=rules,
    write=said_trainers.openrlhf,
    defaults=DEFAULTS,
    layout="args",
    reads=frozenset({"args"}),
    software="deepspeed",
)

"""Which keys of a ``config.json`` give which field, which leave the shape alone, and which could change it."""

from __future__ import annotations

import re


def words(text: str) -> frozenset[str]:
    """The words of a text, as a set of keys."""
    return frozenset(text.split())


KEYS: dict[str, str] = {
    "layers": "num_hidden_layers n_layer n_layers num_layers",
    "hidden": "hidden_size n_embd n_embed d_model dim",
    "heads": "num_attention_heads n_head n_heads num_heads attention_heads",
    "vocabulary": "vocab_size padded_vocab_size",
    "feed_forward": "intermediate_size n_inner ffn_dim ffn_hidden_size d_ff hidden_dim",
    "kv_heads": "num_key_value_heads num_kv_heads n_head_kv n_kv_heads multi_query_group_num",
    "head_dim": "head_dim kv_channels attention_head_dim",
    "experts": "num_experts num_local_experts n_routed_experts moe_num_experts",
    "experts_per_token": "num_experts_per_tok num_experts_per_token experts_per_token moe_topk moe_k moe_top_k",
    "expert_feed_forward": "moe_intermediate_size expert_ffn_hidden_size",
    "prediction_layers": "num_nextn_predict_layers",
    "tied_embeddings": "tie_word_embeddings",
    "kv_latent": "kv_lora_rank",
    "query_latent": "q_lora_rank",
    "rope_head_dim": "qk_rope_head_dim",
    "value_head_dim": "v_head_dim",
    "learned_positions": "n_positions max_position_embeddings",
}
"""Field of a Transformer: its keys, in the spellings that configuration classes use."""

HARMLESS = words(
    """
    _name_or_path model_type architectures auto_map transformers_version transformers.js_config
    torch_dtype dtype quantization_config quantization compression_config unsloth_version unsloth_fixed tokenizer_class
    tokenizer_name prefix task_specific_params attn_implementation _attn_implementation
    _attn_implementation_autoset _attn_implementation_internal attn_impl torchscript use_bfloat16
    tf_legacy_loss gradient_checkpointing pretraining_tp tensor_parallel_degree use_cache output_past
    cache_implementation is_decoder tie_encoder_decoder chunk_size_feed_forward return_dict
    output_hidden_states output_attentions finetuning_task problem_type id2label label2id num_labels
    classifier_dropout classifier_activation classifier_bias classifier_pooling use_memory_efficient_attention
    use_flash_attn use_flash_attention use_flash_attention_2 flash_attn flash_attention _flash_attn_2_enabled
    use_dynamic_ntk use_logn_attn attn_uses_sequence_id init_device init_config verbose fp32_residual_connection
    position_embedding_type position_encoding_2d rope_ratio original_rope apply_query_key_layer_scaling
    attention_softmax_in_fp32 residual_in_fp32 use_parallel_embedding fuse_norm fuse_swiglu fuse_cross_entropy
    moe_grouped_gemm num_logits_to_keep use_kernels

    bos_token_id eos_token_id pad_token_id sep_token_id unk_token_id cls_token_id mask_token_id
    decoder_start_token_id eod_token_id forced_bos_token_id forced_eos_token_id max_length min_length do_sample
    early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p typical_p
    repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids
    num_return_sequences output_scores return_dict_in_generate remove_invalid_values
    exponential_decay_length_penalty suppress_tokens begin_suppress_tokens

    initializer_range initializer_factor init_std init_method_std hidden_act hidden_activation
    activation_function afn rms_norm_eps norm_eps layer_norm_eps layer_norm_epsilon layernorm_epsilon norm_epsilon
    rope_theta rope_scaling rope_parameters rope_type rotary rotary_dim rotary_pct rotary_percentage rotary_base
    rotary_emb_base rotary_emb_fraction partial_rotary_factor partial_rotary_percent rope_percent rope_pct
    rope_interleave rope_interleaved use_rope rope_local_base_freq rope_global_base_freq local_rope_theta
    global_rope_theta no_rope_layers no_rope_layer_interval alibi alibi_bias_max
    n_ctx seq_length model_max_length max_seq_len max_seq_length max_sequence_length
    max_model_length original_max_position_embeddings initial_context_length

    logit_scale logits_scaling embedding_multiplier attention_multiplier residual_multiplier
    final_logit_softcapping attn_logit_softcapping query_pre_attn_scalar clip_qkv norm_topk_prob
    router_aux_loss_coef output_router_logits router_jitter_noise input_jitter_noise router_z_loss_coef
    aux_loss_alpha seq_aux scoring_func topk_method topk_group n_group num_expert_group routed_scaling_factor
    route_scale ep_size swiglu_limit swiglu_alpha use_bidirectional_attention_mask
    moe_router_load_balancing_type moe_loss_weight

    context_window_size prefill_chunk_size attention_sink_size sliding_window_size runner_max_sequence_length
    full_attn_mod interpolate_factor scale_attn_weights scale_attention_softmax_in_fp32 lm_head nope_layer_interval
    moe_router_dtype router_dtype max_batch_size predict_special_tokens n_special

    wandb_run wandb_project
    """
)
"""Keys that leave the shape alone in every family: what the file is and how it is loaded; tokens and generation;
initial values, activation functions, epsilons and rotary positions; scales, and how tokens are routed."""

DROPOUT = words(
    "attention_dropout attn_pdrop resid_pdrop embd_pdrop emb_pdrop hidden_dropout hidden_dropout_prob dropout "
    "activation_dropout attention_probs_dropout_prob residual_dropout resid_dropout embedding_dropout embed_dropout "
    "mlp_dropout ffn_dropout attn_dropout_prob emb_dropout_prob"
)

DECODER: dict[str, tuple[object, ...]] = {
    "is_encoder_decoder": (False, None),
    "add_cross_attention": (False, None),
    "cross_attention_hidden_size": (None,),
    "pruned_heads": ({}, None),
}
"""Keys of every family whose other values make it something that isn't modelled."""

SHAPE_WORDS = words(
    """
    size sizes dim dims width widths depth head heads layer layers expert experts rank ranks hidden inner ffn mlp moe bias
    biases tie tied norm norms layernorm rmsnorm ln conv convolution ssm mamba state window sparse pattern lora adapter
    cross vision audio mtp nextn freq step embed embedding embeddings embd proj projection channels num n memory latent
    group groups block blocks expand expansion share shared attn attention recurrent qk kv q k v gate gated ratio factor
    parallel index indexer multi query intermediate units neurons stack interval period bidirectional encoder decoder
    """
)
"""Words of keys that speak of a shape."""

WIDE_WORDS = words("mlp ffn expand expansion width multiple inner feedforward")
"""Words of keys in which a fraction scales a width."""

KIND_WORDS = words("norm normalization attention attn mixer layer layers block mlp ffn moe position")
"""Words of keys in which a text can name another architecture."""


NAMED = re.compile(r"^summary_|_(token|index|ids?|act|eps|dropout|theta|dtype|token_ids?|token_index)$")
"""Keys that name a token, a function or a number beside the shape, or the head of a classifier."""

TOWER = re.compile(r"^(use_|tune_|freeze_)?(mm|image|img|vision|visual|video|audio|speech)_|^embd_layer$|^projector_")
"""Starts of keys of towers for images and sound."""


def could_change_the_shape(key: str, value: object) -> bool:
    """Whether a key that no family knows may speak of the shape: private and empty ones don't, nor do scales.

    Examples
    --------
    >>> could_change_the_shape("num_memory_tokens", 4), could_change_the_shape("wandb_id", "3f9")
    (True, False)
    """
    if NAMED.search(key) or TOWER.search(key):
        return False
    if key.startswith("_") or value is None or value is False or (not isinstance(value, float) and not value):
        return False
    spoken = set(re.split(r"[^a-z]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).lower()))
    if isinstance(value, float) and not (value.is_integer() and "size" in spoken):
        return bool(spoken & WIDE_WORDS)
    if isinstance(value, str):
        return bool(spoken & KIND_WORDS)
    return bool(spoken & SHAPE_WORDS)

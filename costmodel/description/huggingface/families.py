"""The table of decoders: each `model_type`, the fields that it takes, fixes and leaves to defaults, and its rules.

Facts are those of the configuration and modelling files of Hugging Face Transformers 4.57 and 5.23
(``src/transformers/models/*/configuration_*.py``, ``modeling_*.py``) or, for models with code of their own, of the
``configuration_*.py`` beside the published checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from costmodel.description.huggingface import heads, special
from costmodel.description.huggingface.keys import words
from costmodel.description.huggingface.rules import (
    FieldRule,
    Fields,
    capped_logits,
    every_layer,
    every_other,
    four_times_hidden,
    indexer,
    last_windows,
    latent,
    mixture,
    nested,
    no_layer,
    pattern,
    plain_activation,
    unless_null,
    when,
    windows,
)


class Family(NamedTuple):
    """How the keys of one `model_type` become the fields of a Transformer."""

    takes: Mapping[str, str] = {}
    """Field: its keys here; "" for the usual ones."""
    optional: Mapping[str, object] = {}
    """Field that a file may leave out: its value then (None: Transformer's own)."""
    fixed: Mapping[str, object] = {}
    """Fields that the architecture fixes."""
    switches: Mapping[str, tuple[str, bool]] = {}
    """Yes-or-no key: the fields it sets, and what it is where the file doesn't say."""
    only: Mapping[str, tuple[object, ...]] = {}
    """Key: its values that are modelled."""
    ignored: frozenset[str] = frozenset()
    """Keys that leave the shape alone in this family."""
    rules: tuple[FieldRule, ...] = ()


LINEAR = "attention_bias output_bias"
EVERY = "attention_bias output_bias feed_forward_bias"
DENSE = "layers hidden heads vocabulary feed_forward"
ROUTED = "layers hidden heads vocabulary experts experts_per_token expert_feed_forward"
LEARNED = "max_position_embeddings"


def family(
    takes: str = DENSE,
    *rules: FieldRule,
    tied: bool | None = False,
    optional: Mapping[str, object] | None = None,
    keys: Mapping[str, str] | None = None,
    switches: Mapping[str, tuple[str, bool]] | None = None,
    only: Mapping[str, tuple[object, ...]] | None = None,
    ignored: str = "",
    positions: bool = False,
    **fixed: object,
) -> Family:
    """A row of the table.

    Parameters
    ----------
    takes : fields that a file has to give
    rules : fields that follow from several keys
    tied : whether the output projection is the input embedding where the file doesn't say; None: it has to say
    optional : fields that a file may give, and their defaults; groups and head width may always be left out
    keys : field: its keys, where they aren't the usual ones
    switches, only : as in Family
    ignored : further keys that leave the shape alone
    positions : whether positions are learned; else their number leaves the shape alone
    fixed : fields that the architecture fixes
    """
    needed = takes.split()
    may = {"kv_heads": None, "head_dim": None, **({} if tied is None else {"tied_embeddings": tied}), **(optional or {})}
    names = [*needed, *(field for field in may if field not in needed), *(["tied_embeddings"] if tied is None else [])]
    return Family(
        takes={field: (keys or {}).get(field, "") for field in names},
        optional={field: value for field, value in may.items() if field not in needed},
        fixed=fixed,
        switches=switches or {},
        only=only or {},
        ignored=words(ignored) | (frozenset() if positions else words("max_position_embeddings n_positions")),
        rules=rules,
    )


GROUPED = f"{DENSE} kv_heads"
"""Where the configuration class has a default of its own for the number of groups, so the file has to say."""
CLASSIC: Fields = {"gated": False, "norm": "layernorm"}
BIASED: Fields = dict.fromkeys(EVERY.split(), True)
SMALL_EXPERTS = {"expert_feed_forward": "intermediate_size"}
"""Where the only width in the file is that of an expert."""
SOFT_CAPS = {"use_bidirectional_attention": (False, None, "vision")}
LLAMA_SWITCHES = {"attention_bias": (LINEAR, False), "mlp_bias": ("feed_forward_bias", False)}
ATTENTION_BIAS = {"attention_bias": (LINEAR, False)}
QKV_BIAS = {"attention_bias": ("attention_bias", False)}
HUNYUAN = (
    "cla_share_factor norm_type org_vocab_size class_num dense_list pool_type add_classification_head position_embedding_xdrope "
    "use_rotary_pos_emb anyres_vit_max_image_size group_limited_greedy q_lora_rank kv_lora_rank qk_nope_head_dim "
    "qk_rope_head_dim v_head_dim"
)
"""Keys of Hunyuan's files that leave the shape alone where keys and values are neither shared by layers nor latent."""
NOT_SHARED = {"use_qk_norm": (True,), "use_cla": (False,), "use_mla": (False,)}
LATENT_FIELDS = "layers hidden heads vocabulary"
MTP: Fields = {"prediction_layers": None}

llama = family(switches=LLAMA_SWITCHES, ignored="is_llama_config", optional=MTP)
qwen2 = family(GROUPED, last_windows, attention_bias=True, ignored="use_mrope mrope_section", optional=MTP)
qwen3 = family(GROUPED, last_windows, switches=ATTENTION_BIAS, qk_norm="head", optional={"head_dim": 128})
qwen3_moe = family(
    f"{ROUTED} kv_heads", last_windows, mixture(), switches=ATTENTION_BIAS, qk_norm="head", only={"use_qk_norm": (True,)},
)  # fmt: skip
mistral = family(GROUPED, windows(unless_null, length=4096))
gemma = family(
    GROUPED, tied=True, switches=ATTENTION_BIAS, optional={"head_dim": 256}, only=SOFT_CAPS, ignored="num_image_tokens",
    wide_norm=True,
)  # fmt: skip
deepseek = family(
    f"{LATENT_FIELDS} experts experts_per_token expert_feed_forward", latent(), mixture(first=None, shared=None),
    switches=ATTENTION_BIAS, optional=MTP, only={"mlp_bias": (False,)},
)  # fmt: skip
sparse = deepseek._replace(rules=(latent(), mixture(first=3, shared=1), indexer))
gptj = family(
    "layers hidden heads vocabulary", four_times_hidden, special.width, plain_activation("activation_function", "gelu_new"),
    norms_per_layer=1, parallel_block=True, feed_forward_bias=True, head_bias=True, **CLASSIC,
    ignored="scale_attn_weights summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj",
)  # fmt: skip
gpt2 = family(
    "layers hidden heads vocabulary learned_positions", special.width, four_times_hidden,
    plain_activation("activation_function", "gelu_new"), tied=True, positions=True, fused_projections=True, **CLASSIC, **BIASED,
    ignored="scale_attn_weights scale_attn_by_inverse_layer_idx reorder_and_upcast_attn summary_activation "
    "summary_first_dropout summary_proj_to_labels summary_type summary_use_proj scale_attention_softmax_in_fp32",
)  # fmt: skip
gemma4 = gemma._replace(
    fixed={"norms_per_layer": 4, "qk_norm": "head", "wide_norm": True},
    rules=(windows(pattern(6), length=512), special.gemma4, capped_logits(None)),
)  # fmt: skip
olmo2 = family(switches=ATTENTION_BIAS, qk_norm="full")
exaone4 = family(DENSE, windows(pattern(4), length=4096), qk_norm="head")
granite_moe = family(
    ROUTED, mixture(width="intermediate_size"), keys=SMALL_EXPERTS, switches=ATTENTION_BIAS,
)  # fmt: skip
glm = family(GROUPED, optional={"head_dim": 128}, switches={"attention_bias": ("attention_bias", True)}, split_rotation=True)
glm4_moe = family(
    f"{ROUTED} kv_heads", mixture(first=1, shared=1), when("use_qk_norm", False, {"qk_norm": "head"}),
    switches=QKV_BIAS, optional=MTP,
)  # fmt: skip
ernie = family(GROUPED, tied=True, switches={"use_bias": (EVERY, False)})
phi = family(
    DENSE, when("qk_layernorm", False, {"qk_norm": "head"}), plain_activation("hidden_act", "gelu_new"),
    norms_per_layer=1, parallel_block=True, head_bias=True, split_rotation=True, **CLASSIC, **BIASED,
)  # fmt: skip
cohere = family(
    DENSE, when("use_qk_norm", False, {"qk_norm": "full"}), tied=True, switches=ATTENTION_BIAS,
    norms_per_layer=1, parallel_block=True,
)  # fmt: skip
internlm2 = family(switches={"bias": (LINEAR, True)})
neox = family(
    DENSE, tied=False, feed_forward_bias=True, fused_projections=True, split_rotation=True, **CLASSIC,
    switches={"attention_bias": (LINEAR, True), "use_parallel_residual": ("parallel_block", True)},
)  # fmt: skip
baichuan = family(ignored="z_loss_weight")


def bailing(qk_norm: bool) -> Family:
    """A row of the table for Ling, of which the second generation norms queries and keys."""
    return family(
        ROUTED, mixture(), when("use_qk_norm", qk_norm, {"qk_norm": "head"}), optional=MTP,
        switches={"use_qkv_bias": ("attention_bias", False), "use_bias": (LINEAR, False)},
        ignored="norm_head norm_softmax output_dropout score_function moe_router_enable_expert_bias use_rmsnorm "
        "moe_router_enable_routed_scaling",
    )  # fmt: skip


FAMILIES: dict[str, Family] = {
    # GPT and its open likenesses
    "gpt2": gpt2,
    "gpt_bigcode": gpt2._replace(rules=(
        *gpt2.rules[:-1], plain_activation("activation_function", "gelu_pytorch_tanh"),
        when("multi_query", True, {"kv_heads": 1}),
    )),
    "gptj": gptj, "codegen": gptj,
    "gpt_neo": family(
        "layers hidden heads vocabulary learned_positions", windows(no_layer, "window_size"), four_times_hidden,
        plain_activation("activation_function", "gelu_new"),
        tied=True, positions=True, keys={"learned_positions": LEARNED}, optional={"feed_forward": None},
        output_bias=True, feed_forward_bias=True, ignored="attention_types", **CLASSIC,
    ),
    "gpt_neox": neox,
    "bloom": family(
        "layers hidden heads vocabulary", special.bloom_width, tied=True, embedding_norm=True,
        ignored="apply_residual_connection_post_layernorm bias_dropout_fusion masked_softmax_fusion offset_alibi "
        "skip_bias_add skip_bias_add_qkv slow_but_exact", **CLASSIC, **BIASED,
    ),
    "opt": family(
        DENSE, special.opt, plain_activation("activation_function", "relu"),
        tied=True, switches={"enable_bias": (EVERY, True)}, ignored="layerdrop output_projection",
        positions=True, only={"layer_norm_elementwise_affine": (True,)}, **CLASSIC,
    ),
    "xglm": family(DENSE, tied=True, ignored="layerdrop scale_embedding attention_heads", **CLASSIC, **BIASED),
    "biogpt": family(
        "layers hidden heads vocabulary feed_forward", special.opt_positions, tied=True, positions=True,
        ignored="layerdrop scale_embedding", **CLASSIC, **BIASED,
    ),
    "falcon": family(
        "layers hidden heads vocabulary", special.falcon, tied=True, switches={"bias": (EVERY, False)}, fused_projections=True,
        ignored="activation apply_residual_connection_post_layernorm ff_factor", **CLASSIC,
    ),
    "mpt": family(
        "layers hidden heads vocabulary", special.mpt, tied=True, gated=False, only={"embedding_fraction": (1.0, 1)},
        # With ALiBi no position is learned, whatever learned_pos_emb says.
        ignored="learned_pos_emb norm_type use_pad_tok_in_ffn fc_type",
    ),
    "persimmon": family(DENSE, when("qk_layernorm", True, {"qk_norm": "head"}), **CLASSIC, **BIASED),
    "nemotron": family(switches=LLAMA_SWITCHES, **CLASSIC),
    "stablelm": family(
        DENSE, when("qk_layernorm", False, {"qk_norm": "full"}),
        when("use_parallel_residual", False, {"parallel_block": True, "norms_per_layer": 1}),
        switches={"use_qkv_bias": ("attention_bias", False)}, norm="layernorm", split_rotation=True,
    ),
    "stablelm_epoch": family(DENSE, norm="layernorm", switches={"use_qkv_bias": ("attention_bias", False)}),
    "starcoder2": family(
        GROUPED, windows(every_layer), tied=True, switches={"use_bias": (EVERY, True)}, ignored="mlp_type norm_type", **CLASSIC,
    ),
    "phi": phi,
    "phi-msft": phi._replace(
        takes={field: keys for field, keys in phi.takes.items() if field != "feed_forward"},
        rules=(special.width, four_times_hidden, plain_activation("activation_function", "gelu_new")),
        ignored=phi.ignored | words("flash_rotary fused_dense img_processor"),
    ),
    "phi3": family(GROUPED, windows(every_layer), fused_projections=True, split_rotation=True),
    "phimoe": family(
        f"{ROUTED} kv_heads", windows(every_layer), mixture(), keys=SMALL_EXPERTS, norm="layernorm",
        switches={"attention_bias": (LINEAR, False), "lm_head_bias": ("head_bias", False)},
    ),

    # Llama and its likenesses
    "llama": llama,
    "llama4_text": family(
        f"{ROUTED} kv_heads", special.chunks, mixture(width="intermediate_size_mlp", shared=1), keys=SMALL_EXPERTS,
        switches=ATTENTION_BIAS, optional={"head_dim": 128},
        # Queries and keys are scaled to unit length, without weights.
        ignored="use_qk_norm attn_temperature_tuning floor_scale attn_scale for_llm_compressor",
    ),
    "mllama_text_model": family(
        GROUPED, special.attending_to_images,
        ignored="cross_attention_hidden_size tie_encoder_decoder is_decoder add_cross_attention prefix pruned_heads",
    ),
    "yi": llama, "Yi": llama, "aquila": llama, "xverse": llama, "deci_lm": llama, "telechat": family(), "mobilellm": llama,
    "decilm": llama, "minicpm": family(
        DENSE, special.perhaps_experts, tied=True, ignored="scale_emb scale_depth dim_model_base",
    ), "bitnet": family(GROUPED),
    "orion": family(norm="layernorm"), "smaug": llama, "skywork": llama, "hyperclovax": family(
        DENSE, when("use_post_norm", True, {"norms_per_layer": 4}), switches=LLAMA_SWITCHES,
    ),
    "internlm": internlm2, "internlm2": internlm2._replace(switches={"bias": (LINEAR, False)}),
    "internlm3": family(
        GROUPED, switches={"qkv_bias": ("attention_bias", False), "attention_bias": (LINEAR, False),
                           "bias": ("output_bias feed_forward_bias", False), "mlp_bias": ("feed_forward_bias", False)},
    ),
    "baichuan": baichuan, "baichuan2": baichuan,
    "chatglm": family(
        "layers hidden heads vocabulary", special.chatglm, keys={"vocabulary": "padded_vocab_size vocab_size"},
        ignored="multi_query_attention multi_query_group_num ffn_hidden_size kv_channels",
    ),
    "glm": glm,
    "glm4": glm._replace(
        fixed={"norms_per_layer": 4, "split_rotation": True}, switches={"attention_bias": ("attention_bias", False)}
    ),
    "glm_ocr_text": family(GROUPED, norms_per_layer=4, switches=QKV_BIAS),
    "glm4_moe": glm4_moe,
    "glm4_moe_lite": deepseek._replace(rules=(latent(), mixture(first=1, shared=1))),
    "glm_moe_dsa": sparse,
    "solar_open": glm4_moe._replace(rules=(mixture(shared=1),)),
    "arcee": family(GROUPED, switches=LLAMA_SWITCHES, gated=False),
    "apertus": family(GROUPED, gated=False, qk_norm="head", switches=LLAMA_SWITCHES,
                      only={"post_norm": (False,), "qk_norm": (True,)}),
    "helium": family(GROUPED, switches=LLAMA_SWITCHES, optional={"head_dim": 128}),
    "nanochat": family(switches=ATTENTION_BIAS, gated=False, norm="none"),
    "cwm": family(GROUPED, windows(no_layer), switches={"mlp_bias": ("feed_forward_bias", False)}),
    "smollm3": family(GROUPED, last_windows, tied=True, switches=LLAMA_SWITCHES),
    "seed_oss": family(
        GROUPED, optional={"head_dim": 128},
        switches={"attention_bias": ("attention_bias", True), "attention_out_bias": ("output_bias", False),
                  "mlp_bias": ("feed_forward_bias", False)},
    ),
    "jais2": family(switches={"attention_bias": (LINEAR, True), "mlp_bias": ("feed_forward_bias", True)}, **CLASSIC),
    "granite": family(switches=LLAMA_SWITCHES), "granitemoe": granite_moe, "granitemoeshared": granite_moe, "exaone": family(),
    "exaone4": exaone4,
    "exaone_moe": family(ROUTED, windows(pattern(4), length=4096), mixture(first=1, shared=1), qk_norm="head", optional=MTP),
    "olmo": family(switches=ATTENTION_BIAS, norm="none"),
    "olmo2": olmo2,
    "olmo3": olmo2._replace(rules=(windows(pattern(4), length=4096),)),
    "olmoe": family(ROUTED, mixture(), keys=SMALL_EXPERTS, switches=ATTENTION_BIAS, qk_norm="full"),
    "flex_olmo": family(ROUTED, mixture(), keys=SMALL_EXPERTS, switches=ATTENTION_BIAS, qk_norm="full"),
    "cohere": cohere,
    "cohere2": family(
        DENSE, windows(pattern(4), length=4096), tied=True, switches=ATTENTION_BIAS, norms_per_layer=1, parallel_block=True,
        only={"use_parallel_block": (True,), "use_gated_activation": (True,), "use_qk_norm": (False,)},
        ignored="order_of_interleaved_layers layer_switch use_embedding_sharing",
    ),
    "cohere2_moe": family(
        ROUTED, windows(pattern(4), length=4096), mixture(width="intermediate_size"), keys=SMALL_EXPERTS, tied=True,
        switches=ATTENTION_BIAS, norms_per_layer=1, parallel_block=True,
        only={"use_parallel_block": (True,), "use_gated_activation": (True,), "use_qk_norm": (False,)},
        ignored="shared_expert_combination_strategy expert_selection_fn prefix_dense_sliding_window_pattern",
    ),
    "ernie4_5": ernie,
    "ernie4_5_moe": family(
        f"{ROUTED} kv_heads", mixture(first=1, shared=2), tied=True, switches={"use_bias": (EVERY, False)}, optional=MTP,
        ignored="moe_norm_min moe_capacity moe_use_aux_free moe_gate moe_group moe_layer_feed_fake_token moe_use_hard_gate "
        "moe_aux_loss_lambda moe_z_loss_lambda moe_orthogonal_loss_lambda moe_group_orthogonal_loss moe_dropout_prob "
        "moe_multimodal_dispatch_use_allgather moe_dense_experts_token_type_id moe_every2 moe_reverse_token_drop "
        "fuse_gate_detach_matmul fuse_linear fuse_rms_norm fuse_rope fuse_ln use_rmsnorm use_fast_ln compression_ratio "
        "add_tail_layers weight_share_add_bias freq_allocation enable_mtp_magic_send multi_token_pred_lambda",
    ),
    "hunyuan_v1_dense": family(switches=LLAMA_SWITCHES, qk_norm="head", only=NOT_SHARED, ignored=HUNYUAN),
    "hunyuan_v1_moe": family(
        "layers hidden heads vocabulary experts experts_per_token", special.hunyuan, optional={"expert_feed_forward": None},
        switches=LLAMA_SWITCHES, qk_norm="head", only=NOT_SHARED, ignored=HUNYUAN,
    ),
    "hy_v3": family(
        f"{ROUTED} kv_heads", mixture(first=1, shared=1), qk_norm="head", switches=LLAMA_SWITCHES,
        optional={"head_dim": 128, **MTP},
        ignored="router_scaling_factor enable_moe_fp32_combine moe_router_enable_expert_bias route_norm qk_norm",
    ),
    "step3p5": family(
        "layers hidden heads vocabulary experts experts_per_token expert_feed_forward kv_heads", heads.step, qk_norm="head",
        keys={"kv_heads": "num_attention_groups num_key_value_heads"}, optional={"head_dim": 128, **MTP}, switches=ATTENTION_BIAS,
        only={"mlp_bias": (False, None), "use_moe": (True, None)},
        ignored="use_head_wise_attn_gate moe_every_n_layer use_moe_router_bias moe_router_activation moe_router_scaling_factor "
        "need_fp32_gate norm_expert_weight att_impl_type yarn_only_types use_rope_layers partial_rotary_factors zero_centered "
        "use_qk_norm share_q_dim max_seq_len moe_dynamic_exp_p use_bidirectional_attention",
    ),
    "laguna": family(
        f"{ROUTED} kv_heads", heads.laguna, mixture(first=1), qk_norm="head", switches=ATTENTION_BIAS, optional={"head_dim": 128},
        ignored="gating moe_routed_scaling_factor moe_apply_router_weight_on_input moe_router_logit_softcapping "
        "moe_router_use_sigmoid swa_attention_sink_enabled",
    ),
    "seed": llama,

    # Mistral
    "mistral": mistral, "ministral": family(GROUPED, windows(no_layer)),
    "ministral3": family(GROUPED, windows(every_layer), optional={"head_dim": 128}),
    "mistral4": deepseek._replace(rules=(latent(), mixture(shared=1))),
    "mixtral": family(f"{ROUTED} kv_heads", windows(every_layer), mixture(), keys=SMALL_EXPERTS),

    # Qwen
    "qwen": family(
        DENSE, special.qwen, attention_bias=True, only={"no_bias": (True,)},
        ignored="softmax_in_fp32 use_cache_quantization use_cache_kernel",
    ),
    "qwen2": qwen2,
    "mimo_v2_flash": family(
        f"{ROUTED} kv_heads feed_forward", mixture(first=0, shared=0), special.mimo_v2, switches=QKV_BIAS,
        only={"add_full_attention_sink_bias": (False, None)},
    ),
    "mimo": qwen2._replace(fixed={}, switches={"attention_bias": ("attention_bias", True)}),
    "qwen3": qwen3,
    "qwen2_moe": family(
        f"{ROUTED} kv_heads", last_windows, mixture(), shared_expert_gate=True, switches={"qkv_bias": ("attention_bias", True)},
    ),
    "qwen3_moe": qwen3_moe,
    "flint": family(
        f"{ROUTED} kv_heads", windows(no_layer), mixture(first=0), switches=ATTENTION_BIAS, qk_norm="head", attention_sinks=True,
        optional={"head_dim": 128},
    ),
    "kolibri1": family(
        f"{ROUTED} kv_heads", windows(no_layer), mixture(first=0), qk_norm="head", norms_per_layer=4, optional={"head_dim": 128},
    ),
    "beam": family(
        f"{ROUTED} kv_heads", windows(no_layer), mixture(first=0), switches=ATTENTION_BIAS, qk_norm="head", norms_per_layer=4,
        gated_attention=True, optional={"head_dim": 128, **MTP}, ignored="n_group topk_group routed_scaling_factor",
    ),
    "muse_glimmer_text": family(
        GROUPED, windows(no_layer), switches=ATTENTION_BIAS, norms_per_layer=4, gated_attention=True,
        ignored="qk_scale_factor output_multiplier post_norm_eps layer_rope_theta",
    ),
    "mellum": family(f"{ROUTED} kv_heads", windows(no_layer), mixture(), switches=ATTENTION_BIAS, qk_norm="head", optional=MTP,
                     ignored="mtp_layer_types mtp_mlp_layer_types num_mtp_layers"),
    "molmo2_text": family(
        GROUPED, qk_norm="head", switches={"attention_bias": ("attention_bias", False), "qkv_bias": ("attention_bias", False)},
        only={"norm_after": (False,), "qk_norm_type": ("qwen3",)}, ignored="additional_vocab_size rope_scaling_layers",
    ),
    "dots1": family(ROUTED, last_windows, mixture(), switches=ATTENTION_BIAS, qk_norm="head"),

    # Gemma
    "gemma": gemma,
    "gemma2": gemma._replace(
        fixed={"norms_per_layer": 4, "wide_norm": True}, rules=(windows(every_other, length=4096), capped_logits(30.0)),
    ),
    "vaultgemma": gemma._replace(rules=(windows(every_other, length=4096), capped_logits(30.0))),
    "gemma3_text": gemma._replace(
        fixed={"norms_per_layer": 4, "qk_norm": "head", "wide_norm": True},
        rules=(windows(pattern(6), length=4096), capped_logits(None)),
    ),
    "gemma4_text": gemma4, "gemma4_unified_text": gemma4,

    # Mixtures of experts with attention of the usual kind
    "gpt_oss": family(
        f"{ROUTED} kv_heads", windows(every_other, length=128), mixture(), keys=SMALL_EXPERTS, optional={"head_dim": 64},
        switches={"attention_bias": (LINEAR, True)}, feed_forward_bias=True, attention_sinks=True, clamped_activation=True,
    ),
    "dbrx": family(
        "layers hidden heads vocabulary",
        nested("attn_config", {"kv_heads": "kv_n_heads"}),
        nested("ffn_config", {"experts": "moe_num_experts", "experts_per_token": "moe_top_k",
                              "expert_feed_forward": "ffn_hidden_size"}),
    ),
    "minimax_m2": family(
        f"{ROUTED} kv_heads", special.minimax_m2, keys=SMALL_EXPERTS, optional={"head_dim": 128}, qk_norm="full",
        ignored="attn_type_list mlp_intermediate_size num_mtp_modules mtp_transformer_layers use_mtp use_routing_bias "
        "shared_moe_mode qk_norm_type use_qk_norm shared_intermediate_size layernorm_full_attention_beta "
        "layernorm_linear_attention_beta layernorm_mlp_beta",
    ),
    # The conversions of Grok-1 disagree on the default of tie_word_embeddings, so the file has to say.
    "grok-1": family(
        f"{ROUTED} kv_heads", mixture(), keys=SMALL_EXPERTS, tied=None, norms_per_layer=4,
        ignored="attn_output_multiplier embedding_multiplier_scale output_multiplier_scale max_attn_value",
    ),
    "deepseek": family(ROUTED, mixture(shared=None), switches=ATTENTION_BIAS),
    "bailing_moe": bailing(False), "bailing_moe_v2": bailing(True),
    "afmoe": family(
        f"{ROUTED} kv_heads", windows(special.all_but_every), mixture(shared=1), qk_norm="head", norms_per_layer=4,
        gated_attention=True,
        ignored="global_attn_every_n_layers mup_enabled route_norm route_scale score_func load_balance_coeff use_grouped_mm "
        "n_group topk_group num_expert_groups num_limited_groups",
    ),
    "arctic": family(
        ROUTED, special.arctic, keys=SMALL_EXPERTS, norms_per_layer=3,
        ignored="moe_eval_capacity_factor moe_train_capacity_factor moe_min_capacity moe_token_dropping "
        "enable_expert_tensor_parallelism enc_index use_residual moe_layer_frequency sliding_window attention_bias",
    ),

    # Latent attention
    "deepseek_v2": deepseek, "deepseek_v3": deepseek, "kimi_k2": deepseek,
    "axk1": deepseek._replace(rules=(latent(), mixture(first=1, shared=1))),
    "deepseek_v32": sparse, "sarvam_mla": deepseek, "sarvam_moe": glm4_moe,
    "youtu": family(f"{LATENT_FIELDS} feed_forward", latent(), tied=True, switches=ATTENTION_BIAS,
                    ignored="embedding_initializer_range"),
    "iquestcoder": family(GROUPED, switches=LLAMA_SWITCHES),
    "granitemoe_swa": family(
        ROUTED, windows(no_layer), mixture(width="intermediate_size"), keys=SMALL_EXPERTS, switches=ATTENTION_BIAS,
        attention_sinks=True, ignored="layer_rope_theta",
    ),
    "aria_text": family(ROUTED, mixture(width="intermediate_size"), keys=SMALL_EXPERTS, switches=LLAMA_SWITCHES),
    "granite_swa": family(GROUPED, windows(no_layer), tied=True, switches=LLAMA_SWITCHES, attention_sinks=True,
                          ignored="layer_rope_theta"),
    "minicpm3": family(
        f"{LATENT_FIELDS} feed_forward", latent(lambda fields: fields["hidden"] // max(fields["heads"], 1)), tied=True,
        switches=ATTENTION_BIAS, ignored="scale_emb scale_depth dim_model_base mlp_bias",
    ),
}  # fmt: skip
"""Every decoder's `model_type` that can be read."""

CLASS_DEFAULTS: dict[str, dict[str, object]] = {
    kind: dict(zip(("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "intermediate_size",
                    "vocab_size"), sizes, strict=False))
    for kind, sizes in {
        "llama": (32, 4096, 32, None, 11008, 32000),
        "mistral": (32, 4096, 32, 8, 14336, 32000),
        "ministral3": (34, 4096, 32, 8, 14336, 131072),
        "qwen2": (32, 4096, 32, 32, 22016, 151936),
        "qwen3": (32, 4096, 32, 32, 22016, 151936),
        "gemma": (28, 3072, 16, 16, 24576, 256000),
        "gemma2": (26, 2304, 8, 4, 9216, 256000),
        "gemma3_text": (26, 2304, 8, 4, 9216, 262208),
        "gemma4_text": (30, 2304, 8, 4, 9216, 262144),
        "llama4_text": (48, 5120, 40, 8, 8192, 202048),
        "phi3": (32, 3072, 32, 32, 8192, 32064),
        "cohere2": (40, 8192, 64, 64, 22528, 256000),
        "opt": (12, 768, 12, None, None, 50272),
    }.items()
}  # fmt: skip
"""Sizes of configuration classes: the tables of a multimodal file leave out what is equal to them."""
CLASS_DEFAULTS["gemma3_text"] |= {"sliding_window": 4096}
CLASS_DEFAULTS["mistral"] |= {"sliding_window": 4096}
CLASS_DEFAULTS["llama4_text"] |= {
    "num_local_experts": 16, "num_experts_per_tok": 1, "intermediate_size_mlp": 16384, "attention_chunk_size": 8192,
}  # fmt: skip
CLASS_DEFAULTS["opt"] |= {"ffn_dim": 3072}
del CLASS_DEFAULTS["opt"]["intermediate_size"], CLASS_DEFAULTS["opt"]["num_key_value_heads"]

"""The table of hybrids: decoders some of whose layers keep a state in place of attention.

Facts are those of Hugging Face Transformers 5.23, ``src/transformers/models/*``, and of the ``configuration_*.py`` beside
published checkpoints (Kimi Linear, Nemotron-H). Where a file lists its layers, they are counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.description.huggingface.families import (
    ATTENTION_BIAS,
    DENSE,
    GROUPED,
    LATENT_FIELDS,
    LINEAR,
    LLAMA_SWITCHES,
    MTP,
    ROUTED,
    SMALL_EXPERTS,
    Family,
    family,
)
from costmodel.description.huggingface.files import Config, short
from costmodel.description.huggingface.keys import words
from costmodel.description.huggingface.rules import FieldRule, Fields, count, latent, mixture, yes
from costmodel.description.mixtures import expert_layout
from costmodel.text.checks import real
from costmodel.text.errors import InvalidValue, NotModelled

DELTA_CHUNK = 64
"""Tokens of a chunk of delta rules (fla-org/flash-linear-attention fla/ops/gated_delta_rule/chunk.py, ``chunk_size``)."""
LISTS = words("layer_types layers_block_type attn_type_list full_attention_interval attn_layer_indices")


def _kinds(config: Config, key: str, layers: int, known: Sequence[str]) -> list[str]:
    """What a file's list says of each layer, one of the known words."""
    listed = config[key]
    if not isinstance(listed, list) or len(listed) != layers:
        raise InvalidValue(key, listed, f"a list with one entry for each of {layers} layers")
    for one in listed:
        if one not in known:
            raise NotModelled(f"{key} with {short(one)} is not modelled, only {' and '.join(known)}")
    return listed


def _every(config: Config, fields: Fields, word: str, interval: str, default: int) -> Fields:
    """Layers with a state: counted where the file lists them, else all but one in so many."""
    layers = fields["layers"]
    key = next((key for key in ("layer_types", "layers_block_type") if config.get(key) is not None), None)
    if key:
        found = _kinds(config, key, layers, (word, "full_attention", "attention")).count(word)
    else:
        found = layers - layers // max(count(config, interval, default), 1)
    return {"recurrent_layers": found}


def _stateless(found: Fields) -> Fields:
    """Fields of a state, but for a model all of whose layers attend."""
    return found if found["recurrent_layers"] else {}


def _delta_net(config: Config, fields: Fields) -> Fields:
    return _stateless({
        "recurrence": "gated-delta-net", **_every(config, fields, "linear_attention", "full_attention_interval", 4),
        "recurrent_heads": count(config, "linear_num_value_heads", 32),
        "recurrent_key_heads": count(config, "linear_num_key_heads", 16),
        "recurrent_state": count(config, "linear_key_head_dim", 128),
        "recurrent_head_dim": count(config, "linear_value_head_dim", 128),
        "convolution_taps": count(config, "linear_conv_kernel_dim", 4), "recurrent_chunk": DELTA_CHUNK,
    })  # fmt: skip


delta_net = FieldRule(
    _delta_net,
    LISTS | words(
        "linear_num_value_heads linear_num_key_heads linear_key_head_dim linear_value_head_dim linear_conv_kernel_dim "
        "mamba_ssm_dtype"
    ),
)  # fmt: skip
"""Gated delta nets in all but one of four layers."""


def _kimi(config: Config, fields: Fields) -> Fields:
    inner = config.get("linear_attn_config")
    if inner is None and "linear_num_heads" in config:  # Transformers' own spelling
        wide = count(config, "linear_head_dim", 128)
        return _stateless({
            "recurrence": "kimi-delta", **_every(config, fields, "linear_attention", "", 4),
            "recurrent_heads": count(config, "linear_num_heads", fields["heads"]), "recurrent_state": wide,
            "recurrent_head_dim": wide, "convolution_taps": count(config, "linear_conv_kernel_dim", 4),
            "recurrent_chunk": DELTA_CHUNK,
        })  # fmt: skip
    if not isinstance(inner, dict):
        raise InvalidValue("linear_attn_config", inner, "a table")
    for key in inner.keys() - words("full_attn_layers kda_layers head_dim num_heads short_conv_kernel_size"):
        if inner[key]:
            raise NotModelled(f"linear_attn_config with {key}={short(inner[key])} is not modelled")
    listed = inner.get("kda_layers")
    if not isinstance(listed, list):
        raise InvalidValue("linear_attn_config.kda_layers", listed, "a list of layer numbers")
    wide = count(inner, "head_dim", 128)
    return _stateless({
        "recurrence": "kimi-delta", "recurrent_layers": len(set(map(str, listed))),
        "recurrent_heads": count(inner, "num_heads", fields["heads"]), "recurrent_state": wide, "recurrent_head_dim": wide,
        "convolution_taps": count(inner, "short_conv_kernel_size", 4), "recurrent_chunk": DELTA_CHUNK,
    })  # fmt: skip


kimi_delta = FieldRule(_kimi, LISTS | words("linear_attn_config linear_num_heads linear_head_dim linear_conv_kernel_dim"))
"""Kimi's delta attention in all but one of four layers."""


def _bailing(config: Config, fields: Fields) -> Fields:
    if "linear_head_dim" not in config and "short_conv_kernel_size" not in config:
        raise NotModelled("bailing_hybrid without linear_head_dim is not modelled: its linear attention is another one")
    wide = count(config, "linear_head_dim", count(config, "v_head_dim", 128))
    taps = count(config, "short_conv_kernel_size", 4)
    return _stateless({
        "recurrence": "channel-delta", **_every(config, fields, "linear_attention", "layer_group_size", 6),
        "recurrent_heads": count(config, "linear_num_heads", fields["heads"]), "recurrent_state": wide,
        "recurrent_head_dim": wide, "convolution_taps": count(config, "linear_conv_kernel_dim", taps),
        "recurrent_chunk": DELTA_CHUNK,
    })  # fmt: skip


bailing_hybrid = FieldRule(
    _bailing, LISTS | words("layer_group_size linear_num_heads linear_head_dim linear_conv_kernel_dim short_conv_kernel_size "
                            "kda_safe_gate kda_lower_bound"),
)  # fmt: skip
"""Ling's hybrids: delta attention in all but one of six layers, whose attention is latent."""


def _mamba2(config: Config, fields: Fields) -> Fields:
    inner = count(config, "mamba_expand", 2) * fields["hidden"]
    heads = count(config, "mamba_n_heads", 128)
    given = config.get("mamba_d_head")
    wide = inner // heads if given in (None, "auto") else count(config, "mamba_d_head")
    if heads * wide != inner:
        raise InvalidValue("mamba_d_head", given, f"mamba_expand * hidden_size / mamba_n_heads = {inner / heads:g}")
    return {
        "recurrence": "mamba2", "recurrent_heads": heads, "recurrent_key_heads": count(config, "mamba_n_groups", 1),
        "recurrent_state": count(config, "mamba_d_state", 256), "recurrent_head_dim": wide,
        "convolution_taps": count(config, "mamba_d_conv", 4), "recurrent_chunk": count(config, "mamba_chunk_size", 256),
    }  # fmt: skip


MAMBA = words(
    "mamba_d_state mamba_d_conv mamba_expand mamba_n_heads mamba_n_groups mamba_d_head mamba_chunk_size mamba_conv_bias "
    "mamba_proj_bias use_mamba_kernels time_step_limit time_step_min time_step_max time_step_floor z_loss_coefficient"
)


SPELT = {"mamba": "mamba", "linear_attention": "mamba", "attention": "attention", "full_attention": "attention"}
"""Kinds of layers as Transformers 4 and 5 spell them."""


def _granite(config: Config, fields: Fields) -> Fields:
    layers = fields["layers"]
    key = "layer_types" if config.get("layer_types") is not None else "layers_block_type"
    listed = None if config.get(key) is None else _kinds(config, key, layers, tuple(SPELT))
    found = layers if listed is None else sum(SPELT[one] == "mamba" for one in listed)
    state = {**_mamba2(config, fields), "recurrent_layers": found} if found else {}
    dense = {"feed_forward": count(config, "shared_intermediate_size", 1024)}
    experts = count(config, "num_local_experts", 8)
    if not experts:
        return {**state, **dense}
    return {
        **state, "experts": experts, "experts_per_token": count(config, "num_experts_per_tok", 2),
        "expert_feed_forward": count(config, "intermediate_size"), "shared_expert_feed_forward": dense["feed_forward"],
    }  # fmt: skip


granite = FieldRule(
    _granite,
    MAMBA | LISTS | words("shared_intermediate_size num_local_experts num_experts_per_tok intermediate_size"),
)
"""Granite 4: Mamba 2 in most layers, one shared expert, routed ones in some models."""


def _bamba(config: Config, fields: Fields) -> Fields:
    listed = config.get("attn_layer_indices")
    attending = len(listed) if isinstance(listed, list) else 0
    return _stateless({**_mamba2(config, fields), "recurrent_layers": fields["layers"] - attending})


bamba = FieldRule(_bamba, MAMBA | LISTS | frozenset({"attn_rotary_emb"}))
"""Bamba: Mamba 2 in all layers but those that are listed."""


def _falcon_h1(config: Config, fields: Fields) -> Fields:
    heads, inner = count(config, "mamba_n_heads", 128), config.get("mamba_d_ssm")
    given = config.get("mamba_d_head")
    wide = count(config, "mamba_expand", 2) * fields["hidden"] if inner is None else count(config, "mamba_d_ssm")
    if wide % heads or given not in (None, "auto", wide // heads):
        raise InvalidValue("mamba_d_head", given, f"mamba_d_ssm / mamba_n_heads = {wide / heads:g}")
    return {
        "recurrence": "mamba2", "recurrent_layers": fields["layers"], "attention_beside_state": True, "recurrent_heads": heads,
        "recurrent_key_heads": count(config, "mamba_n_groups", 1), "recurrent_state": count(config, "mamba_d_state", 256),
        "recurrent_head_dim": wide // heads, "convolution_taps": count(config, "mamba_d_conv", 4),
        "recurrent_chunk": count(config, "mamba_chunk_size", 256),
    }  # fmt: skip


falcon_h1 = FieldRule(
    _falcon_h1,
    MAMBA | words("mamba_d_ssm mamba_rms_norm mamba_norm_before_gate mamba_use_mlp projectors_bias attention_in_multiplier "
                  "attention_out_multiplier key_multiplier lm_head_multiplier mlp_multipliers ssm_in_multiplier ssm_multipliers "
                  "ssm_out_multiplier embedding_multiplier num_logits_to_keep mlp_expansion_factor"),
)  # fmt: skip
"""Falcon-H1: attention and Mamba 2 side by side in every layer."""


def _jamba(config: Config, fields: Fields) -> Fields:
    layers, hidden = fields["layers"], fields["hidden"]

    def periodic(kind: str, offset: int, period: int) -> list[bool]:
        first, step = count(config, f"{kind}_layer_offset", offset), max(count(config, f"{kind}_layer_period", period), 1)
        return [layer % step == first for layer in range(layers)]

    attending, sparse = periodic("attn", 4, 8), periodic("expert", 1, 2)
    inner = count(config, "mamba_expand", 2) * hidden
    rank = config.get("mamba_dt_rank")
    found: Fields = _stateless({
        "recurrence": "mamba", "recurrent_layers": attending.count(False), "recurrent_heads": inner, "recurrent_head_dim": 1,
        "recurrent_state": count(config, "mamba_d_state", 16), "convolution_taps": count(config, "mamba_d_conv", 4),
        "recurrent_rank": -(-hidden // 16) if rank in (None, "auto") else count(config, "mamba_dt_rank"),
    })  # fmt: skip
    experts = count(config, "num_experts", 16)
    if experts > 1 and any(sparse):
        wide = fields["feed_forward"]
        found |= {
            "experts": experts, "experts_per_token": count(config, "num_experts_per_tok", 2), "expert_feed_forward": wide,
            **expert_layout(sparse),
        }  # fmt: skip
    return found


jamba = FieldRule(
    _jamba,
    MAMBA | words("mamba_dt_rank attn_layer_offset attn_layer_period expert_layer_offset expert_layer_period num_experts "
                  "num_experts_per_tok mamba_inner_layernorms calc_logits_for_entire_prompt"),
)  # fmt: skip
"""Jamba: Mamba in seven of eight layers, experts in every other."""

BLOCKS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


def _nemotron_h(config: Config, fields: Fields) -> Fields:
    pattern, listed = config.get("hybrid_override_pattern"), config.get("layers_block_type")
    given = listed if listed is not None else pattern
    layers = fields.get("layers") or (len(given) if isinstance(given, str | list) else 0)
    if config.get("num_nextn_predict_layers"):
        raise NotModelled(f"num_nextn_predict_layers={short(config['num_nextn_predict_layers'])}: modules of several layers that "
                          "predict further tokens are not modelled; 0 leaves them out")  # fmt: skip
    if listed is not None:
        listed = _kinds(config, "layers_block_type", layers, (*SPELT, "mlp", "moe"))
        blocks = [SPELT.get(one, one) for one in listed]
    elif isinstance(pattern, str) and len(pattern) == layers and set(pattern) <= BLOCKS.keys():
        blocks = [BLOCKS[one] for one in pattern]
    else:
        raise InvalidValue("hybrid_override_pattern", pattern, f"a text of {layers} of {' '.join(BLOCKS)}")
    found: Fields = {
        "layers": layers, "mlp_layers": blocks.count("mlp") + blocks.count("moe"), "recurrence": "mamba2",
        "recurrent_layers": blocks.count("mamba"), "recurrent_heads": count(config, "mamba_num_heads", 128),
        "recurrent_key_heads": count(config, "n_groups", 8), "recurrent_state": count(config, "ssm_state_size", 128),
        "recurrent_head_dim": count(config, "mamba_head_dim", 64), "convolution_taps": count(config, "conv_kernel", 4),
        "recurrent_chunk": count(config, "chunk_size", 128),
    }  # fmt: skip
    if not blocks.count("moe"):
        return found | {"feed_forward": count(config, "intermediate_size")}
    if blocks.count("mlp"):
        raise NotModelled("hybrid_override_pattern with MLPs beside experts is not modelled, only one of both")
    if config.get("moe_latent_size"):
        raise NotModelled(f"moe_latent_size={short(config['moe_latent_size'])}: experts in a latent space are not modelled")
    copies = count(config, "n_shared_experts", 1)
    return found | {
        "experts": count(config, "n_routed_experts"), "experts_per_token": count(config, "num_experts_per_tok"),
        "expert_feed_forward": count(config, "moe_intermediate_size"), "expert_layer_step": 0,
        "shared_expert_feed_forward": copies * count(config, "moe_shared_expert_intermediate_size"),
    }  # fmt: skip


nemotron_h = FieldRule(
    _nemotron_h,
    words(
        "hybrid_override_pattern layers_block_type mamba_num_heads n_groups ssm_state_size mamba_head_dim conv_kernel chunk_size "
        "intermediate_size moe_latent_size n_shared_experts n_routed_experts num_experts_per_tok moe_intermediate_size "
        "moe_shared_expert_intermediate_size expand mamba_hidden_act mamba_proj_bias mlp_hidden_act rescale_prenorm_residual "
        "time_step_floor time_step_limit time_step_max time_step_min time_step_rank use_conv_bias use_mamba_kernels "
        "num_nextn_predict_layers mtp_layers_block_type mtp_hybrid_override_pattern "
        "mamba_ssm_cache_dtype moe_shared_expert_overlap mamba_dt_init_floor mamba_dt_limit mamba_dt_max mamba_dt_min"
    ),
)
"""Nemotron-H and Nemotron 3: each layer is Mamba 2, attention, an MLP or experts, by a pattern."""


def _lightning(config: Config, fields: Fields) -> Fields:
    listed = config.get("attn_type_list")
    found = fields["layers"] - sum(1 for one in listed if one) if isinstance(listed, list) else None
    state = {"recurrent_layers": found} if found is not None else _every(config, fields, "linear_attention", "", 2)
    wide = fields.get("head_dim") or fields["hidden"] // fields["heads"]
    return _stateless({
        "recurrence": "lightning", **state, "recurrent_heads": fields["heads"], "recurrent_state": wide,
        "recurrent_head_dim": wide, "recurrent_chunk": count(config, "block_size", 256),
    })  # fmt: skip


lightning = FieldRule(_lightning, LISTS | frozenset({"block_size"}))
"""MiniMax-01: lightning attention in seven of eight layers."""


def _lfm2(config: Config, fields: Fields) -> Fields:
    layers, heads = fields["layers"], fields["heads"]
    if config.get("layer_types") is not None:
        found = _kinds(config, "layer_types", layers, ("conv", "full_attention")).count("conv")
    else:
        listed = config.get("full_attn_idxs")
        if not isinstance(listed, list):
            raise InvalidValue("full_attn_idxs", listed, "a list of layers that attend")
        found = layers - len(listed)
    taps = count(config, "conv_L_cache", 3)
    if config.get("conv_bias"):
        raise NotModelled("conv_bias=true is not modelled")
    return _stateless({
        "recurrence": "short-convolution", "recurrent_layers": found, "recurrent_heads": heads, "recurrent_state": taps,
        "recurrent_head_dim": fields["hidden"] // heads, "convolution_taps": taps,
    })  # fmt: skip


LFM2 = LISTS | words("full_attn_idxs conv_L_cache conv_bias conv_dim conv_dim_out conv_use_xavier_init")
lfm2 = FieldRule(_lfm2, LFM2)
"""LFM2: gated short convolutions in place of attention in most layers."""


def _lfm2_mlp(config: Config, fields: Fields) -> Fields:
    wide = count(config, "block_ff_dim", count(config, "intermediate_size", 12288))
    if yes(config, "block_auto_adjust_ff_dim", True):
        step = count(config, "block_multiple_of", 256)
        times = real("block_ffn_dim_multiplier", config.get("block_ffn_dim_multiplier") or 1.0, 1e-3, 1e3)
        least = int(times * (2 * wide // 3))
        wide = -(-least // step) * step
    return {"feed_forward": wide}


lfm2_mlp = FieldRule(
    _lfm2_mlp,
    words(
        "block_ff_dim intermediate_size block_auto_adjust_ff_dim block_multiple_of block_ffn_dim_multiplier block_dim "
        "block_mlp_init_scale block_norm_eps block_out_init_scale block_use_swiglu block_use_xavier_init use_pos_enc theta "
        "num_heads"
    ),
)
"""LFM2's MLPs are two thirds as wide as the file says, up to a multiple."""


def _qwen_mtp(config: Config, fields: Fields) -> Fields:
    many = count(config, "mtp_num_hidden_layers", 0)
    return {"prediction_layers": many} if many else {}


qwen_mtp = FieldRule(_qwen_mtp, words("mtp_num_hidden_layers mtp_use_dedicated_embeddings"))
"""Qwen3.5's modules that predict further tokens."""

QWEN: Fields = {"qk_norm": "head", "gated_attention": True}
IGNORED = "mlp_only_layers"
GATED = {"attn_output_gate": (True, None)}
qwen_dense = family(
    GROUPED, delta_net, qwen_mtp, tied=False, optional={"head_dim": 256}, switches=ATTENTION_BIAS, only=GATED,
    ignored=f"{IGNORED} output_gate_type mrope_section mrope_interleaved", **QWEN,
)  # fmt: skip
qwen_moe = family(
    f"{ROUTED} kv_heads", delta_net, mixture(), qwen_mtp, optional={"head_dim": 256}, switches=ATTENTION_BIAS, only=GATED,
    shared_expert_gate=True, ignored="output_gate_type mrope_section mrope_interleaved", **QWEN,
)  # fmt: skip
minimax = family(
    f"{ROUTED} kv_heads", lightning, keys=SMALL_EXPERTS, optional={"head_dim": None},
    only={"shared_intermediate_size": (0, None)},
    ignored="postnorm layernorm_full_attention_alpha layernorm_full_attention_beta layernorm_linear_attention_alpha "
    "layernorm_linear_attention_beta layernorm_mlp_alpha layernorm_mlp_beta full_attn_alpha_factor full_attn_beta_factor "
    "linear_attn_alpha_factor linear_attn_beta_factor mlp_alpha_factor mlp_beta_factor shared_moe_mode",
)  # fmt: skip

HYBRIDS: dict[str, Family] = {
    "qwen3_next": qwen_moe, "qwen3_5_text": qwen_dense, "qwen3_5_moe_text": qwen_moe,
    "kimi_linear": family(
        f"{LATENT_FIELDS} experts experts_per_token expert_feed_forward", latent(), kimi_delta, mixture(first=0, shared=None),
        optional=MTP, ignored="mla_use_nope moe_renormalize moe_router_activation_func use_grouped_topk",
    ),
    "bailing_hybrid": family(
        f"{LATENT_FIELDS} experts experts_per_token expert_feed_forward", latent(), bailing_hybrid, mixture(shared=1),
        optional=MTP, switches=ATTENTION_BIAS,
        ignored="moe_renormalize num_expert_group topk_group mtp_loss_scaling_factor model_max_length",
    ),
    "nemotron_h": family(
        "hidden heads vocabulary kv_heads", nemotron_h, optional={"head_dim": None, "layers": None},
        keys={"head_dim": "attention_head_dim head_dim"}, gated=False, norms_per_layer=1,
        switches={"attention_bias": (LINEAR, False), "mlp_bias": ("feed_forward_bias", False)}, only={"use_bias": (False,)},
    ),
    "falcon_h1": family(GROUPED, falcon_h1, switches=LLAMA_SWITCHES),
    "jamba": family(GROUPED, jamba, tied=True),
    "bamba": family(GROUPED, bamba, switches=LLAMA_SWITCHES),
    "granitemoehybrid": family(
        "layers hidden heads vocabulary", granite, tied=False, switches=ATTENTION_BIAS, ignored="normalization_function",
    ),
    "minimax": minimax, "minimax_text_01": minimax, "minimax_m1": minimax, "MiniMaxText01": minimax, "MiniMaxM1": minimax,
    "lfm2": family("layers hidden heads vocabulary kv_heads", lfm2, lfm2_mlp, tied=True, qk_norm="head"),
    "lfm2_moe": family(f"{ROUTED} kv_heads feed_forward", lfm2, mixture(), tied=True, qk_norm="head", ignored="use_expert_bias"),
    "olmo_hybrid": family(DENSE, delta_net, qk_norm="full", switches=ATTENTION_BIAS, ignored="linear_allow_neg_eigval"),
}  # fmt: skip
"""Every hybrid's `model_type` that can be read."""

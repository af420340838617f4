"""Rules of single families."""

from __future__ import annotations

from costmodel.description.huggingface.files import Config, short
from costmodel.description.huggingface.keys import KEYS, words
from costmodel.description.huggingface.rules import (
    MAX_NUMBER,
    WINDOW_KEYS,
    FieldRule,
    Fields,
    count,
    first_of,
    one_of_all_layers,
    windows,
    yes,
)
from costmodel.text.errors import InvalidValue, NotModelled


def _width(config: Config, fields: Fields) -> Fields:
    key = first_of(config, KEYS["feed_forward"])
    return {"feed_forward": count(config, key)} if key else {}


width = FieldRule(_width, words(KEYS["feed_forward"]))
"""The MLP's width where the file says it."""


def _bloom_width(config: Config, fields: Fields) -> Fields:
    wide = 4 * fields["hidden"]
    if count(config, "n_inner", wide) != wide:
        raise NotModelled(f"n_inner={config['n_inner']} is not modelled in bloom, only 4 * hidden_size = {wide}")
    return {"feed_forward": wide}


bloom_width = FieldRule(_bloom_width, frozenset({"n_inner"}))
"""BLOOM's MLP is four times as wide as its hidden state."""


def _opt_positions(config: Config, fields: Fields) -> Fields:
    # Rows 0 and 1 of the table belong to padding, so the model has two more than it has positions.
    return {"learned_positions": count(config, "max_position_embeddings") + 2}


opt_positions = FieldRule(_opt_positions, frozenset({"max_position_embeddings"}))
"""Learned positions as in OPT."""


def _opt(config: Config, fields: Fields) -> Fields:
    found = _opt_positions(config, fields)
    narrow = count(config, "word_embed_proj_dim", fields["hidden"])
    if narrow != fields["hidden"]:
        found["embedding_width"] = narrow
    # OPT-350m norms after its blocks, and so has no last norm.
    found["last_norm"] = yes(config, "do_layer_norm_before", True) and not yes(config, "_remove_final_layer_norm", False)
    return found


opt = FieldRule(_opt, words("word_embed_proj_dim max_position_embeddings do_layer_norm_before _remove_final_layer_norm"))
"""OPT: positions, a narrow embedding, norms after the block."""


def _falcon(config: Config, fields: Fields) -> Fields:
    heads, grouped = fields["heads"], yes(config, "new_decoder_architecture", False)
    parallel = grouped or yes(config, "parallel_attn", True)
    shared = yes(config, "multi_query", True) and not grouped
    groups = [count(config, key) for key in ("num_kv_heads", "n_head_kv") if config.get(key) is not None]
    if len(set(groups)) > 1:
        raise InvalidValue("n_head_kv", groups[1], f"what num_kv_heads says, {groups[0]}")
    separate = count(config, "num_ln_in_parallel_attn", 2 if grouped else 1)
    if separate not in (1, 2):
        raise InvalidValue("num_ln_in_parallel_attn", separate, "1 or 2")
    return {
        "kv_heads": 1 if shared else (groups or [heads])[0],
        "norms_per_layer": (separate if grouped else 1) if parallel else 2,
        "parallel_block": parallel,
        "feed_forward": count(config, "ffn_hidden_size", 4 * fields["hidden"]),
    }


falcon = FieldRule(
    _falcon,
    words("new_decoder_architecture parallel_attn multi_query num_kv_heads n_head_kv ffn_hidden_size num_ln_in_parallel_attn"),
)
"""Falcon: groups, norms and the parallel block follow from its generation."""


def _mpt(config: Config, fields: Fields) -> Fields:
    inner = config.get("attn_config") or {}
    if not isinstance(inner, dict):
        raise InvalidValue("attn_config", inner, "a table")
    if inner.get("prefix_lm"):
        raise NotModelled("attn_config with prefix_lm=True is not modelled, only causal attention")
    ratio = config.get("expansion_ratio", 4)
    wide = ratio * fields["hidden"] if isinstance(ratio, int | float) else 0
    if isinstance(ratio, bool) or not 1 <= wide < MAX_NUMBER or wide != int(wide):
        raise InvalidValue("expansion_ratio", ratio, "a number that makes a whole width of hidden_size")
    plain = yes(config, "no_bias", True)
    kind = inner.get("attn_type", "multihead_attention")
    groups = {"multihead_attention": fields["heads"], "multiquery_attention": 1, "grouped_query_attention": None}
    if kind not in groups:
        raise NotModelled(f"attn_type={short(kind)} is not modelled, only {', '.join(groups)}")
    found: Fields = {"feed_forward": int(wide), "kv_heads": groups[kind] or count(inner, "kv_n_heads")}
    if inner.get("qk_ln"):
        found["qk_norm"] = "full"
    # Without biases a LayerNorm has one vector, as an RMSNorm.
    found |= {} if plain else {"norm": "layernorm", "attention_bias": True, "output_bias": True, "feed_forward_bias": True}
    if inner.get("alibi") is False and inner.get("rope") is not True and yes(config, "learned_pos_emb", True):
        found["learned_positions"] = count(config, "max_seq_len")
    return found


mpt = FieldRule(_mpt, words("attn_config expansion_ratio no_bias learned_pos_emb ffn_config"))
"""MPT: attention in a table of its own, no biases."""


def _chunks(config: Config, fields: Fields) -> Fields:
    if config.get("attention_chunk_size") is None:
        return {}
    return windows(_rotated, "attention_chunk_size").apply(config, fields)


def _rotated(config: Config, layers: int) -> int:
    """Layers with rotary positions attend within chunks, every fourth to everything."""
    listed = config.get("no_rope_layers")
    if isinstance(listed, list) and listed:
        return sum(1 for one in listed if one)
    every = count(config, "no_rope_layer_interval", 4)
    return layers - layers // max(every, 1)


chunks = FieldRule(_chunks, WINDOW_KEYS | {"attention_chunk_size"})
"""Llama 4: attention within chunks, taken as a window of a chunk's length (the same up to one chunk)."""


def _chatglm(config: Config, fields: Fields) -> Fields:
    if first_of(config, "inner_hidden_size"):  # ChatGLM-6B, the first
        return {
            "feed_forward": count(config, "inner_hidden_size"), "gated": False, "norm": "layernorm", "tied_embeddings": True,
            "attention_bias": True, "output_bias": True, "feed_forward_bias": True,
        }  # fmt: skip
    plain = yes(config, "add_bias_linear", False)
    found: Fields = {
        "feed_forward": count(config, "ffn_hidden_size"),
        "head_dim": count(config, "kv_channels", fields["hidden"] // max(fields["heads"], 1)),
        "attention_bias": yes(config, "add_qkv_bias", False) or plain,
        "output_bias": plain, "feed_forward_bias": plain, "fused_projections": True, "split_rotation": True, "wide_norm": True,
    }  # fmt: skip
    if yes(config, "multi_query_attention", False):
        found |= {"kv_heads": count(config, "multi_query_group_num"), "repeated_keys": True}
    if not yes(config, "rmsnorm", True):
        found["norm"] = "layernorm"
    if not yes(config, "post_layer_norm", True):
        found["last_norm"] = False
    return found


chatglm = FieldRule(
    _chatglm,
    words(
        "inner_hidden_size add_bias_linear ffn_hidden_size kv_channels add_qkv_bias multi_query_attention "
        "multi_query_group_num rmsnorm post_layer_norm apply_residual_connection_post_layernorm bias_dropout_fusion "
        "pre_seq_len prefix_projection quantization_bit"
    ),
)
"""ChatGLM, three generations; from the second on its code (THUDM/chatglm3-6b modeling_chatglm.py) makes queries, keys and
values by one product, rotates half of a head's channels and joins the rest, copies shared keys and values, and weighs norms in
32 bit."""


def _qwen(config: Config, fields: Fields) -> Fields:
    # Each of the two input matrices is half as wide as the file says.
    return {"feed_forward": fields["feed_forward"] // 2}


qwen = FieldRule(_qwen, words("scale_attn_weights"))
"""Qwen, the first."""


def _hunyuan(config: Config, fields: Fields) -> Fields:
    shared = yes(config, "use_mixed_mlp_moe", True)
    key = first_of(config, "num_shared_expert") or "num_shared_expert"
    copies = one_of_all_layers(key, config[key]) if config.get(key) is not None else 1
    wide = count(config, "intermediate_size")
    return {
        "shared_expert_feed_forward": copies * wide if shared else 0,
        "expert_feed_forward": fields.get("expert_feed_forward", wide),
    }


hunyuan = FieldRule(
    _hunyuan, words("use_mixed_mlp_moe num_shared_expert intermediate_size moe_layer_num_skipped moe_drop_tokens "
                    "moe_random_routing_dropped_token")
)  # fmt: skip
"""Hunyuan: one shared expert as wide as the file's MLP."""


def _minimax_m2(config: Config, fields: Fields) -> Fields:
    kinds = config.get("attn_type_list")
    if isinstance(kinds, list) and any(one != 1 for one in kinds):
        raise NotModelled(f"attn_type_list={short(kinds)}: linear attention is not modelled")
    return {}


minimax_m2 = FieldRule(_minimax_m2, WINDOW_KEYS | {"attn_type_list"})
"""MiniMax-M2: every layer attends to everything."""


def _arctic(config: Config, fields: Fields) -> Fields:
    if count(config, "moe_layer_frequency", 2) != 1 and config.get("moe_layer_frequency") is not None:
        raise NotModelled("moe_layer_frequency other than 1 is not modelled in arctic")
    # The dense MLP beside the experts is as wide as the hidden state.
    residual = yes(config, "parallel_attn_mlp_res", True) or yes(config, "use_residual", True)
    return {"shared_expert_feed_forward": fields["hidden"]} if residual else {}


arctic = FieldRule(_arctic, words("moe_layer_frequency parallel_attn_mlp_res use_residual"))
"""Arctic: a dense MLP beside the experts."""


OF_LAYERS = {
    "num_attention_heads": "heads", "num_key_value_heads": "kv_heads", "head_dim": "head_dim", "v_head_dim": "value_head_dim",
}  # fmt: skip
"""Keys in which a file's layers may differ, and the fields that they give."""


def of_layers(config: Config, fields: Fields) -> dict[str, list[int]]:
    """What `per_layer_config` says of heads: of layers without a window first, then of those with one.

    Parameters
    ----------
    config : the file, with `layer_types` where it has `per_layer_config`
    fields : of the file as a whole
    """
    table, kinds = config.get("per_layer_config"), config.get("layer_types")
    if not isinstance(table, dict) or not table:
        return {}
    if not isinstance(kinds, list) or len(kinds) != fields["layers"]:
        raise InvalidValue("layer_types", kinds, f"a list with one entry for each of {fields['layers']} layers")
    numbered = {str(int(layer)) if str(layer).isdigit() else str(layer): inner for layer, inner in table.items()}
    known = set().union(*(inner for inner in numbered.values() if isinstance(inner, dict)))
    if known - OF_LAYERS.keys():
        raise NotModelled(f"per_layer_config with {short(sorted(known - OF_LAYERS.keys())[0])} is not modelled, only heads")
    found = {}
    for key in sorted(known):
        usual = fields.get(OF_LAYERS[key])
        said: dict[bool, set[object]] = {False: set(), True: set()}
        for layer, kind in enumerate(kinds):
            inner = numbered.get(str(layer))
            said[kind == "sliding_attention"].add(inner.get(key, usual) if isinstance(inner, dict) else usual)
        if any(len(one) > 1 for one in said.values()):
            raise NotModelled(f"per_layer_config with {key}: layers of one kind that differ are not modelled")
        found[key] = [one_of_all_layers(key, next(iter(said[kind]), usual)) for kind in (False, True)]
    return found


def two_shapes(config: Config, fields: Fields) -> Fields:
    """Fields of layers without a window, and of those with one where these differ, from `per_layer_config`."""
    found: Fields = {}
    for key, (whole, windowed) in of_layers(config, fields).items():
        found[OF_LAYERS[key]] = whole
        if windowed != whole:
            found[f"windowed_{OF_LAYERS[key]}"] = windowed
    return found


def _gemma4(config: Config, fields: Fields) -> Fields:
    wide, narrow, groups = count(config, "global_head_dim", 512), fields["head_dim"], fields["kv_heads"]
    found: Fields = two_shapes(config, fields)
    if not found and "per_layer_config" not in config:
        found["head_dim"] = wide
        if wide != narrow:
            found["windowed_head_dim"] = narrow
        others = count(config, "num_global_key_value_heads", groups) if config.get("attention_k_eq_v") else groups
        found["kv_heads"] = others
        if others != groups:
            found["windowed_kv_heads"] = groups
    found["values_are_keys"] = yes(config, "attention_k_eq_v", False)
    sharing = count(config, "num_kv_shared_layers", 0)
    if sharing:
        found["kv_sharing_layers"] = sharing
        if yes(config, "use_double_wide_mlp", False):
            found["sharing_feed_forward"] = 2 * fields["feed_forward"]
    own = 0 if config.get("model_type") == "gemma4_unified_text" else count(config, "hidden_size_per_layer_input", 256)
    if own:
        if count(config, "vocab_size_per_layer_input", fields["vocabulary"]) != fields["vocabulary"]:
            raise NotModelled(f"vocab_size_per_layer_input={short(config['vocab_size_per_layer_input'])} is not modelled, "
                              f"only vocab_size={fields['vocabulary']}")  # fmt: skip
        found["layer_embedding"] = own
    if not yes(config, "enable_moe_block", False):
        return found
    # A dense MLP works beside the routed experts, as a shared expert does; each has norms of its own.
    return found | {
        "experts": count(config, "num_experts"), "experts_per_token": count(config, "top_k_experts"),
        "expert_feed_forward": count(config, "moe_intermediate_size"),
        "shared_expert_feed_forward": fields.pop("feed_forward"), "norms_per_layer": 8,
    }  # fmt: skip


gemma4 = FieldRule(
    _gemma4,
    words(
        "hidden_size_per_layer_input vocab_size_per_layer_input num_kv_shared_layers attention_k_eq_v enable_moe_block "
        "use_double_wide_mlp global_head_dim num_global_key_value_heads num_experts top_k_experts moe_intermediate_size "
        "per_layer_config expert_intermediate_size"
    ),
)
"""Gemma 4: heads of two widths, values that are keys, layers that share keys, embeddings of every layer."""


def _attending_to_images(config: Config, fields: Fields) -> Fields:
    listed, layers = config.get("cross_attention_layers"), fields["layers"]
    if not isinstance(listed, list) or not all(type(one) is int and 0 <= one < layers for one in listed):
        raise InvalidValue("cross_attention_layers", listed, f"a list of layers, each below num_hidden_layers={layers}")
    return {"cross_attention_layers": len(set(listed))}


attending_to_images = FieldRule(_attending_to_images, words("cross_attention_layers"))
"""Llama 3.2 vision: some layers attend to an image's tokens in place of the sequence's."""


def _perhaps_experts(config: Config, fields: Fields) -> Fields:
    experts = count(config, "num_experts", 0)
    if not experts:
        return {}
    return {
        "experts": experts, "experts_per_token": count(config, "num_experts_per_tok"),
        "expert_feed_forward": fields.pop("feed_forward"),
    }  # fmt: skip


perhaps_experts = FieldRule(_perhaps_experts, words("num_experts num_experts_per_tok"))
"""Experts as wide as the MLP, in files that name some."""


def all_but_every(config: Config, layers: int) -> int:
    """Windowed layers where one in `global_attn_every_n_layers` attends to everything."""
    return layers - layers // max(count(config, "global_attn_every_n_layers", 4), 1)


def _mimo_v2(config: Config, fields: Fields) -> Fields:
    layers, listed, marks = fields["layers"], config.get("layer_types"), config.get("hybrid_layer_pattern")
    if listed is None and isinstance(marks, list):
        listed = ["sliding_attention" if one else "full_attention" for one in marks]
    if not isinstance(listed, list) or len(listed) != layers:
        raise InvalidValue("layer_types", listed, f"a list with one entry for each of {layers} layers")
    windows = listed.count("sliding_attention")
    found: Fields = {"head_dim": count(config, "head_dim", 192), "value_head_dim": count(config, "v_head_dim", 128)}
    if not windows:
        return found
    heads, groups = fields["heads"], fields["kv_heads"]
    window = count(config, "sliding_window", 129)
    others = {
        "windowed_heads": (count(config, "swa_num_attention_heads", heads), heads),
        # Transformers' own code doubles them where the checkpoint's has a key
        "windowed_kv_heads": (count(config, "swa_num_key_value_heads", 2 * groups), groups),
        "windowed_head_dim": (count(config, "swa_head_dim", found["head_dim"]), found["head_dim"]),
        "windowed_value_head_dim": (count(config, "swa_v_head_dim", found["value_head_dim"]), found["value_head_dim"]),
    }  # fmt: skip
    found |= {"sliding_window": window, "windowed_layers": windows}
    return found | {field: value for field, (value, usual) in others.items() if value != usual}


mimo_v2 = FieldRule(
    _mimo_v2,
    WINDOW_KEYS | words(
        "layer_types hybrid_layer_pattern head_dim v_head_dim swa_num_attention_heads swa_num_key_value_heads swa_head_dim "
        "swa_v_head_dim sliding_window sliding_window_size add_swa_attention_sink_bias add_full_attention_sink_bias "
        "attention_chunk_size attention_value_scale hybrid_block_size attention_projection_layout"
    ),
)  # fmt: skip
"""MiMo-V2: windows in five of six layers, with twice as many keys as the others; values are narrower than keys."""

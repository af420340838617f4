"""Reads the ``config.json`` of a Hugging Face model: numbers only, no code of the file's is run or fetched.

Every key of a file has to be known to its family: one that maps to a field, one whose other values would
change the shape, or one that leaves the shape alone. Any other key is an error, never a guess.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from costmodel.checks import flag, real, whole
from costmodel.errors import InvalidValue, NotModelled, UnreadableFile
from costmodel.records import Row

MAX_BYTES = 1 << 20
MAX_DEPTH = 16
MAX_NUMBER = 1_000_000_000

Config = Row
Fields = Row

FLAGS = frozenset({"tied_embeddings", "attention_bias", "output_bias", "feed_forward_bias", "parallel_block"})


def _keys(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What the file is and how it is loaded; tokens and generation; initial values, activation functions, epsilons
# and rotary positions.
HARMLESS = _keys(
    """
    _name_or_path model_type architectures auto_map transformers_version transformers.js_config
    torch_dtype dtype quantization_config unsloth_version unsloth_fixed tokenizer_class prefix
    task_specific_params attn_implementation _attn_implementation _attn_implementation_autoset
    torchscript use_bfloat16 tf_legacy_loss gradient_checkpointing pretraining_tp use_cache output_past
    cache_implementation is_decoder tie_encoder_decoder chunk_size_feed_forward return_dict
    output_hidden_states output_attentions finetuning_task problem_type id2label label2id num_labels
    classifier_dropout

    bos_token_id eos_token_id pad_token_id sep_token_id unk_token_id cls_token_id decoder_start_token_id
    forced_bos_token_id forced_eos_token_id max_length min_length do_sample early_stopping num_beams
    num_beam_groups diversity_penalty temperature top_k top_p typical_p repetition_penalty length_penalty
    no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids num_return_sequences output_scores
    return_dict_in_generate remove_invalid_values exponential_decay_length_penalty suppress_tokens
    begin_suppress_tokens

    initializer_range hidden_act hidden_activation activation_function rms_norm_eps norm_eps layer_norm_eps
    layer_norm_epsilon rope_theta rope_scaling rope_parameters
    """
)
"""Keys that leave the shape alone in every family."""

ROTARY = frozenset({"max_position_embeddings"})
"""Leaves the shape alone where positions aren't learned."""

ROUTING = frozenset({"router_aux_loss_coef", "output_router_logits", "router_jitter_noise", "norm_topk_prob"})

DROPOUT = _keys(
    "attention_dropout attn_pdrop resid_pdrop embd_pdrop hidden_dropout dropout activation_dropout "
    "attention_probs_dropout_prob"
)

DECODER: dict[str, tuple[Any, ...]] = {
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "cross_attention_hidden_size": (None,),
    "pruned_heads": ({}, None),
}
"""Keys of every family whose other values make it something else than a decoder."""


class Family(NamedTuple):
    """How the keys of one `model_type` become the fields of a Transformer."""

    needed: Mapping[str, tuple[str, ...]]
    """Field: its key, in the spellings that the configuration class accepts."""
    optional: Mapping[str, tuple[tuple[str, ...], Any]] = {}
    """Key: the fields it sets, and its documented default (None: Transformer's own)."""
    constants: Mapping[str, Any] = {}
    """Fields that the architecture fixes."""
    demanded: Mapping[str, tuple[Any, ...]] = {}
    """Key: its values that are modelled."""
    harmless: frozenset[str] = frozenset()
    """Keys that leave the shape alone in this family."""
    rule: Callable[[Config, Fields], Fields] | None = None
    """Fields that follow from several keys."""
    rule_keys: frozenset[str] = frozenset()
    """Keys that the rule reads."""


def read_config(path: Path, name: str | None) -> Row:
    """Read a local ``config.json`` as keyword arguments of Transformer.

    Parameters
    ----------
    path : the file, or the folder that holds it; at most 1 MiB is read
    name : what to call the model; the name inside the file, or the path's, if not given

    Returns
    -------
    dict
        keyword arguments of Transformer, `published_parameters` not among them

    Raises
    ------
    UnreadableFile
        where the file is missing, too large or not a JSON object
    InvalidValue
        where a key is missing or has a value that it can't have
    NotModelled
        where the family or a key is unknown, or the value of a key is not modelled
    """
    try:
        file = path / "config.json" if path.is_dir() else path
        config = _parse(_text(file), file)
    except OSError as error:
        raise UnreadableFile(f"{_shown(path)}: {error.strerror or 'unreadable'}") from None
    kind = _present(config, "model_type", file)
    if not isinstance(kind, str):
        raise InvalidValue("model_type", kind, "a text")
    if kind not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise NotModelled(f"{_shown(file)}: model_type={_short(kind)} is not modelled; known: {known}")
    family = FAMILIES[kind]
    _refuse_unknown(family, config, kind, file)
    _demand({**DECODER, **family.demanded}, config, file)
    fields: Fields = dict(family.constants)
    for field, keys in family.needed.items():
        fields[field] = _typed(field, *_spelled(config, keys, file))
    for key, (targets, default) in family.optional.items():
        value = config.get(key)
        if value is None:
            value = default
        for field in targets:
            if value is not None:
                fields[field] = _typed(field, key, value)
    shares = [real(key, config[key], 0.0, 1.0) for key in sorted(DROPOUT) if config.get(key) is not None]
    if any(shares):
        fields["dropout"] = True
    if family.rule:
        fields |= family.rule(config, fields)
    return {"name": name if name is not None else _own_name(config, file), **fields}


def _text(file: Path) -> bytes:
    if not file.is_file():
        raise UnreadableFile(f"{_shown(file)}: no such file (a config.json, or the folder that holds it)")
    size, text = file.stat().st_size, b""
    if size <= MAX_BYTES:
        with file.open("rb") as stream:
            text = stream.read(MAX_BYTES + 1)
    # A file can grow between the two looks.
    if max(size, len(text)) > MAX_BYTES:
        raise UnreadableFile(
            f"{_shown(file)}: {size} bytes, more than the {MAX_BYTES} that are read of a config.json"
        )
    return text


def _parse(text: bytes, file: Path) -> Config:
    try:
        config = json.loads(
            text.decode("utf-8"),
            parse_constant=_refuse_constant,
            parse_float=_finite,
            object_pairs_hook=_once,
        )
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())
        raise UnreadableFile(f"{_shown(file)}: not a JSON file that can be read: {why[:200]}") from None
    if not isinstance(config, dict):
        raise UnreadableFile(f"{_shown(file)}: a {type(config).__name__} at the top, expected an object")
    if _deeper(config, MAX_DEPTH):
        raise UnreadableFile(f"{_shown(file)}: nested more than {MAX_DEPTH} levels deep")
    return config


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not a number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is too large a number")
    return number


def _once(pairs: Sequence[tuple[str, Any]]) -> Config:
    found: Config = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {_short(key)} is there twice")
        found[key] = value
    return found


def _deeper(value: Any, limit: int) -> bool:
    level: list[Any] = [value]
    for _ in range(limit):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _short(value: Any) -> str:
    shown = ascii(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."


def _shown(file: Path) -> str:
    return ascii(str(file))


def _own_name(config: Config, file: Path) -> str:
    inside = config.get("_name_or_path")
    folder = file.resolve().parent.name if file.name == "config.json" else file.stem
    for candidate in (inside, folder):
        if isinstance(candidate, str) and 0 < len(candidate) <= 200 and candidate.isprintable():
            return candidate
    return "model"


def _present(config: Config, key: str, file: Path) -> Any:
    if config.get(key) is None:
        raise InvalidValue(key, None, f"a value in {_shown(file)}")
    return config[key]


def _spelled(config: Config, keys: Sequence[str], file: Path) -> tuple[str, Any]:
    there = [key for key in keys if config.get(key) is not None]
    if not there:
        raise InvalidValue(keys[0], None, f"a value in {_shown(file)}")
    for key in there[1:]:
        if config[key] != config[there[0]]:
            raise InvalidValue(key, config[key], f"what {there[0]} says, {_short(config[there[0]])}")
    return there[0], config[there[0]]


def _typed(field: str, key: str, value: Any) -> Any:
    return flag(key, value) if field in FLAGS else whole(key, value, MAX_NUMBER)


def _refuse_unknown(family: Family, config: Config, kind: str, file: Path) -> None:
    spellings = {key for keys in family.needed.values() for key in keys}
    known = HARMLESS | DROPOUT | DECODER.keys() | spellings | family.optional.keys() | family.demanded.keys()
    unknown = sorted(config.keys() - known - family.harmless - family.rule_keys)
    if unknown:
        more = f" and {len(unknown) - 8} more" if len(unknown) > 8 else ""
        keys = ", ".join(_short(key) for key in unknown[:8]) + more
        raise NotModelled(
            f"{_shown(file)}: {kind} with {keys} is not modelled: a key that may change the shape; leave "
            "it out if it doesn't, or give the fields to Transformer"
        )


def _demand(demanded: Mapping[str, tuple[Any, ...]], config: Config, file: Path) -> None:
    for key, allowed in demanded.items():
        value = config.get(key, allowed[0])
        # 1 == True, so the type is compared too.
        if not any(type(value) is type(one) and value == one for one in allowed):
            modelled = " or ".join(repr(one) for one in allowed)
            raise NotModelled(f"{_shown(file)}: {key}={_short(value)} is not modelled, only {modelled}")


def _count(config: Config, key: str, default: int | None = None) -> int:
    value = config.get(key)
    if value is None:
        if default is None:
            raise InvalidValue(key, None, "a whole number")
        return default
    return whole(key, value, MAX_NUMBER)


def _yes(config: Config, key: str, default: bool) -> bool:
    value = config.get(key)
    return default if value is None else flag(key, value)


def _windowed(config: Config, layers: int, default: Callable[[], int]) -> int:
    """Layers with a sliding window: counted in `layer_types` where the file lists them."""
    kinds = config.get("layer_types")
    if kinds is None:
        return default()
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise InvalidValue("layer_types", kinds, f"a list with one text for each of {layers} layers")
    for kind in kinds:
        if kind not in ("full_attention", "sliding_attention"):
            raise NotModelled(
                f"layer_types with {_short(kind)} is not modelled, only full and sliding attention"
            )
    return kinds.count("sliding_attention")


def _window(config: Config, windowed: int) -> Fields:
    if not windowed:
        return {}
    window = _count(config, "sliding_window")
    if not window:
        raise InvalidValue("sliding_window", window, "at least one token")
    return {"sliding_window": window, "windowed_layers": windowed}


def _gpt2(config: Config, fields: Fields) -> Fields:
    return {"feed_forward": _count(config, "n_inner", 4 * fields["hidden"])}


def _bloom(config: Config, fields: Fields) -> Fields:
    wide = 4 * fields["hidden"]
    if _count(config, "n_inner", wide) != wide:
        raise NotModelled(
            f"n_inner={config['n_inner']} is not modelled in bloom, only 4 * hidden_size = {wide}"
        )
    return {"feed_forward": wide}


def _opt(config: Config, fields: Fields) -> Fields:
    if _count(config, "word_embed_proj_dim", fields["hidden"]) != fields["hidden"]:
        raise NotModelled(
            f"word_embed_proj_dim={config['word_embed_proj_dim']} is not modelled (projected embeddings), "
            f"only hidden_size={fields['hidden']}"
        )
    # Rows 0 and 1 of the table belong to padding, so the model has two more than it has positions.
    return {"learned_positions": _count(config, "max_position_embeddings") + 2}


def _falcon(config: Config, fields: Fields) -> Fields:
    heads, grouped = fields["heads"], _yes(config, "new_decoder_architecture", False)
    parallel = grouped or _yes(config, "parallel_attn", True)
    shared = _yes(config, "multi_query", True) and not grouped
    groups = [_count(config, key) for key in ("num_kv_heads", "n_head_kv") if config.get(key) is not None]
    if len(set(groups)) > 1:
        raise InvalidValue("n_head_kv", groups[1], f"what num_kv_heads says, {groups[0]}")
    separate = _count(config, "num_ln_in_parallel_attn", 2 if grouped else 1)
    if separate not in (1, 2):
        raise InvalidValue("num_ln_in_parallel_attn", separate, "1 or 2")
    return {
        "kv_heads": 1 if shared else (groups or [heads])[0],
        "norms_per_layer": (separate if grouped else 1) if parallel else 2,
        "parallel_block": parallel,
        "feed_forward": _count(config, "ffn_hidden_size", 4 * fields["hidden"]),
    }


def _mistral(config: Config, fields: Fields) -> Fields:
    if "sliding_window" not in config:
        raise InvalidValue("sliding_window", None, "a window [tokens], or an explicit null")
    every = fields["layers"] if config["sliding_window"] is not None else 0
    return _window(config, _windowed(config, fields["layers"], lambda: every))


def _qwen(config: Config, fields: Fields) -> Fields:
    layers = fields["layers"]
    if not _yes(config, "use_sliding_window", False):
        if _windowed(config, layers, lambda: 0):
            raise InvalidValue("use_sliding_window", False, "true where layer_types has sliding_attention")
        return {}
    windowed = _windowed(config, layers, lambda: max(0, layers - _count(config, "max_window_layers")))
    return _window(config, windowed)


def _qwen_moe(config: Config, fields: Fields) -> Fields:
    layers = whole("num_hidden_layers", fields["layers"], 10_000)
    step = _count(config, "decoder_sparse_step", 1)
    if not step:
        raise InvalidValue("decoder_sparse_step", step, "a whole number from 1")
    listed = config.get("mlp_only_layers")
    if listed is None:
        listed = []
    if not isinstance(listed, list):
        raise InvalidValue("mlp_only_layers", listed, "a list of layer numbers")
    dense_only = {whole("mlp_only_layers", layer, MAX_NUMBER) for layer in listed}
    dense = layers - sum((i + 1) % step == 0 and i not in dense_only for i in range(layers))
    return {"feed_forward": _count(config, "intermediate_size"), "dense_layers": dense} if dense else {}


def _every_other(config: Config, fields: Fields) -> Fields:
    return _window(config, _windowed(config, fields["layers"], lambda: (fields["layers"] + 1) // 2))


def _gemma3(config: Config, fields: Fields) -> Fields:
    layers: int = fields["layers"]

    def pattern() -> int:
        newer = "_sliding_window_pattern"
        key = newer if newer in config else "sliding_window_pattern"
        every = _count(config, key, 6)
        if not every:
            raise InvalidValue(key, every, "a whole number from 1")
        return layers - layers // every

    return _window(config, _windowed(config, layers, pattern))


def _deepseek(config: Config, fields: Fields) -> Fields:
    heads = fields["heads"]
    groups = _count(config, "num_key_value_heads", heads)
    if groups != heads:
        raise NotModelled(f"num_key_value_heads={groups} is not modelled with latent attention, only {heads}")
    for key in ("q_lora_rank", "n_shared_experts"):
        if key not in config:
            raise InvalidValue(key, None, "a whole number, or an explicit null")
    return {
        "query_latent": _count(config, "q_lora_rank", 0),
        "head_dim": _count(config, "qk_nope_head_dim") + fields["rope_head_dim"],
        "shared_expert_feed_forward": _count(config, "n_shared_experts", 0) * fields["expert_feed_forward"],
        "dense_layers": min(_count(config, "first_k_dense_replace"), fields["layers"]),
    }


LINEAR = ("attention_bias", "output_bias")
SIZES: dict[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers",),
    "hidden": ("hidden_size",),
    "heads": ("num_attention_heads",),
    "vocabulary": ("vocab_size",),
}
DENSE = SIZES | {"feed_forward": ("intermediate_size",)}
ALL_BIASES = {"attention_bias": True, "output_bias": True, "feed_forward_bias": True}
CLASSIC = {"gated": False, "norm": "layernorm"}
WINDOW = frozenset({"sliding_window", "layer_types"})
SOFT_CAPS = frozenset({"attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"})


GROUPED = DENSE | {"kv_heads": ("num_key_value_heads",)}
"""Where the configuration class has a default of its own for the number of groups, so the file has to say."""


def _routed(experts: tuple[str, ...], width: str) -> dict[str, tuple[str, ...]]:
    return {
        "experts": experts,
        "experts_per_token": ("num_experts_per_tok",),
        "expert_feed_forward": (width,),
    }


def _options(
    *keys: str, tied: bool = False, head_dim: int | None = None
) -> dict[str, tuple[tuple[str, ...], Any]]:
    options: dict[str, tuple[tuple[str, ...], Any]] = {
        "tie_word_embeddings": (("tied_embeddings",), tied),
        "head_dim": (("head_dim",), head_dim),
        "num_key_value_heads": (("kv_heads",), None),
        "attention_bias": (LINEAR, False),
        "mlp_bias": (("feed_forward_bias",), False),
    }
    return {key: options[key] for key in ("tie_word_embeddings", *keys)}


LATENT = Family(
    needed=DENSE
    | _routed(("n_routed_experts",), "moe_intermediate_size")
    | {
        "kv_latent": ("kv_lora_rank",),
        "rope_head_dim": ("qk_rope_head_dim",),
        "value_head_dim": ("v_head_dim",),
    },
    optional=_options("attention_bias") | {"num_nextn_predict_layers": (("prediction_layers",), None)},
    demanded={"moe_layer_freq": (1,), "mlp_bias": (False,)},
    # In these files head_dim is the rotary part alone, and qk_head_dim the sum of two other keys.
    harmless=ROTARY
    | ROUTING
    | _keys(
        "ep_size aux_loss_alpha seq_aux scoring_func topk_method topk_group n_group routed_scaling_factor "
        "head_dim qk_head_dim rope_interleave"
    ),
    rule=_deepseek,
    rule_keys=_keys(
        "q_lora_rank qk_nope_head_dim n_shared_experts first_k_dense_replace num_key_value_heads"
    ),
)
"""Latent attention and routed experts, as in DeepSeek."""

FAMILIES: dict[str, Family] = {
    "gpt2": Family(
        needed={
            "layers": ("n_layer", "num_hidden_layers"),
            "hidden": ("n_embd", "hidden_size"),
            "heads": ("n_head", "num_attention_heads"),
            "vocabulary": ("vocab_size",),
            "learned_positions": ("n_positions", "max_position_embeddings"),
        },
        optional=_options(tied=True),
        constants=CLASSIC | ALL_BIASES,
        harmless=_keys(
            "n_ctx scale_attn_weights scale_attn_by_inverse_layer_idx reorder_and_upcast_attn "
            "summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj"
        ),
        rule=_gpt2,
        rule_keys=frozenset({"n_inner"}),
    ),
    "bloom": Family(
        needed={
            "layers": ("n_layer", "num_hidden_layers"),
            "hidden": ("hidden_size", "n_embed"),
            "heads": ("n_head", "num_attention_heads"),
            "vocabulary": ("vocab_size",),
        },
        optional=_options(tied=True),
        constants=CLASSIC | ALL_BIASES | {"embedding_norm": True},
        harmless=_keys(
            "apply_residual_connection_post_layernorm attention_softmax_in_fp32 bias_dropout_fusion "
            "masked_softmax_fusion offset_alibi skip_bias_add skip_bias_add_qkv slow_but_exact "
            "seq_length"
        ),
        rule=_bloom,
        rule_keys=frozenset({"n_inner"}),
    ),
    "opt": Family(
        needed=SIZES | {"feed_forward": ("ffn_dim",)},
        optional=_options(tied=True) | {"enable_bias": (tuple(ALL_BIASES), True)},
        constants=CLASSIC,
        demanded={
            "do_layer_norm_before": (True,),
            "_remove_final_layer_norm": (False,),
            "layer_norm_elementwise_affine": (True,),
        },
        harmless=frozenset({"init_std", "layerdrop", "output_projection"}),
        rule=_opt,
        rule_keys=frozenset({"word_embed_proj_dim", "max_position_embeddings"}),
    ),
    "falcon": Family(
        needed={
            "layers": ("num_hidden_layers", "n_layer"),
            "hidden": ("hidden_size", "n_embed"),
            "heads": ("num_attention_heads", "n_head"),
            "vocabulary": ("vocab_size",),
        },
        optional=_options(tied=True) | {"bias": (tuple(ALL_BIASES), False)},
        constants=CLASSIC,
        harmless=ROTARY | {"alibi", "activation", "apply_residual_connection_post_layernorm"},
        rule=_falcon,
        rule_keys=_keys(
            "new_decoder_architecture parallel_attn multi_query num_kv_heads n_head_kv ffn_hidden_size "
            "num_ln_in_parallel_attn"
        ),
    ),
    "gpt_neox": Family(
        needed=DENSE,
        optional=_options()
        | {"attention_bias": (LINEAR, True), "use_parallel_residual": (("parallel_block",), True)},
        constants=CLASSIC | {"feed_forward_bias": True},
        harmless=ROTARY | {"rotary_pct", "rotary_emb_base", "partial_rotary_factor"},
    ),
    "llama": Family(
        needed=DENSE,
        optional=_options("num_key_value_heads", "head_dim", "attention_bias", "mlp_bias"),
        harmless=ROTARY | {"is_llama_config", "rope_interleaved"},
    ),
    "mistral": Family(
        needed=GROUPED,
        optional=_options("head_dim"),
        harmless=ROTARY,
        rule=_mistral,
        rule_keys=WINDOW,
    ),
    "mixtral": Family(
        needed=SIZES
        | {"kv_heads": ("num_key_value_heads",)}
        | _routed(("num_local_experts", "num_experts"), "intermediate_size"),
        optional=_options("head_dim"),
        harmless=ROTARY | ROUTING,
        rule=_mistral,
        rule_keys=WINDOW,
    ),
    "qwen2": Family(
        needed=GROUPED,
        optional=_options("head_dim"),
        constants={"attention_bias": True},
        harmless=ROTARY | {"use_mrope"},
        rule=_qwen,
        rule_keys=WINDOW | {"use_sliding_window", "max_window_layers"},
    ),
    "qwen3": Family(
        needed=GROUPED,
        optional=_options("head_dim", "attention_bias", head_dim=128),
        constants={"qk_norm": "head"},
        harmless=ROTARY,
        rule=_qwen,
        rule_keys=WINDOW | {"use_sliding_window", "max_window_layers"},
    ),
    "qwen3_moe": Family(
        needed=SIZES
        | {"kv_heads": ("num_key_value_heads",)}
        | _routed(("num_experts", "num_local_experts"), "moe_intermediate_size"),
        optional=_options("head_dim", "attention_bias"),
        constants={"qk_norm": "head"},
        # Without use_sliding_window the window and the layers it would reach are not used.
        harmless=ROTARY | ROUTING | {"sliding_window", "max_window_layers"},
        demanded={"use_sliding_window": (False,)},
        rule=_qwen_moe,
        rule_keys=frozenset({"decoder_sparse_step", "mlp_only_layers", "intermediate_size"}),
    ),
    "gemma": Family(
        needed=GROUPED,
        optional=_options("head_dim", "attention_bias", tied=True, head_dim=256),
        demanded={"use_bidirectional_attention": (False, None)},
        harmless=ROTARY,
    ),
    "gemma2": Family(
        needed=GROUPED,
        optional=_options("head_dim", "attention_bias", tied=True, head_dim=256),
        constants={"norms_per_layer": 4},
        demanded={"use_bidirectional_attention": (False, None)},
        harmless=ROTARY | SOFT_CAPS | {"sliding_window_size"},
        rule=_every_other,
        rule_keys=WINDOW,
    ),
    "gemma3_text": Family(
        needed=GROUPED,
        optional=_options("head_dim", "attention_bias", tied=True, head_dim=256),
        constants={"norms_per_layer": 4, "qk_norm": "head"},
        demanded={"use_bidirectional_attention": (False, None)},
        harmless=ROTARY | SOFT_CAPS | {"rope_local_base_freq"},
        rule=_gemma3,
        rule_keys=WINDOW | {"sliding_window_pattern", "_sliding_window_pattern"},
    ),
    "gpt_oss": Family(
        needed=SIZES
        | {"kv_heads": ("num_key_value_heads",)}
        | _routed(("num_local_experts", "num_experts"), "intermediate_size")
        | {"experts_per_token": ("num_experts_per_tok", "experts_per_token")},
        optional=_options("head_dim", head_dim=64) | {"attention_bias": (LINEAR, True)},
        constants={"feed_forward_bias": True, "attention_sinks": True},
        harmless=ROTARY | ROUTING | {"swiglu_limit", "swiglu_alpha", "initial_context_length"},
        rule=_every_other,
        rule_keys=WINDOW,
    ),
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT,
    "kimi_k2": LATENT,
    "nemotron": Family(
        needed=DENSE,
        optional=_options("num_key_value_heads", "head_dim", "attention_bias", "mlp_bias"),
        constants=CLASSIC,
        harmless=ROTARY | {"partial_rotary_factor", "partial_rotary_percent", "rope_percent"},
    ),
    "olmo2": Family(
        needed=DENSE,
        optional=_options("num_key_value_heads", "attention_bias"),
        constants={"qk_norm": "full"},
        harmless=ROTARY,
    ),
    # The conversions of Grok-1 disagree on the default of tie_word_embeddings, so the file has to say.
    "grok-1": Family(
        needed=SIZES
        | {"kv_heads": ("num_key_value_heads",), "tied_embeddings": ("tie_word_embeddings",)}
        | _routed(("num_experts", "num_local_experts"), "intermediate_size"),
        constants={"norms_per_layer": 4},
        harmless=ROTARY
        | ROUTING
        | _keys("attn_output_multiplier embedding_multiplier_scale output_multiplier_scale max_attn_value"),
    ),
}
"""Every `model_type` that can be read."""

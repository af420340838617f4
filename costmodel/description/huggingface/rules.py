"""Fields that follow from several keys: windows, layers without experts, latent attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from costmodel.description.huggingface.files import Config, short
from costmodel.description.huggingface.keys import KEYS, words
from costmodel.description.mixtures import expert_layout
from costmodel.text.checks import flag, positive_int, whole
from costmodel.text.errors import InvalidValue, NotModelled

MAX_NUMBER = 1_000_000_000

Fields = dict[str, Any]


class FieldRule(NamedTuple):
    """Gives fields from several keys of a file."""

    apply: Callable[[Config, Fields], Fields]
    keys: frozenset[str]
    """Keys that it reads."""


def count(config: Config, key: str, default: int | None = None) -> int:
    """A whole number of a file; `default` where it is missing or null, an error if there is none."""
    value = config.get(key)
    if value is None:
        if default is None:
            raise InvalidValue(key, None, "a whole number")
        return default
    return one_of_all_layers(key, value)


def one_of_all_layers(key: str, value: object) -> int:
    """A whole number, or that of a list in which each layer has the same."""
    if isinstance(value, list):
        if not value or any(type(one) is not int or one != value[0] for one in value):
            raise NotModelled(f"{key}={short(value)} is not modelled: layers of different shapes")
        value = value[0]
    return whole(key, value, MAX_NUMBER)


def yes(config: Config, key: str, default: bool) -> bool:
    """A yes or no of a file; `default` where it is missing or null."""
    value = config.get(key)
    return default if value is None else flag(key, value)


def first_of(config: Config, keys: str) -> str | None:
    """The first of some keys that has a value."""
    return next((key for key in keys.split() if config.get(key) is not None), None)


# Windows

ATTENTION_KINDS = {"full_attention": 0, "global": 0, "attention": 0, "sliding_attention": 1, "local": 1, "chunked_attention": 1}
"""Names of layers with attention, and whether they look back through a window."""

OTHER_KINDS = {
    "linear_attention": "linear attention", "lightning_attention": "linear attention", "conv": "short convolutions",
    "mamba": "state-space layers (Mamba)", "recurrent": "recurrent layers (RG-LRU)",
    "compressed_sparse_attention": "compressed sparse attention", "heavily_compressed_attention": "compressed attention",
}  # fmt: skip
"""Names of layers that aren't modelled."""

WINDOW_KEYS = words(
    "layer_types sliding_window use_sliding_window max_window_layers sliding_window_pattern _sliding_window_pattern "
    "sliding_window_size attention_layers"
)


def windows(default: Callable[[Config, int], int], key: str = "sliding_window", length: int | None = None) -> FieldRule:
    """Layers with a sliding window: counted in `layer_types` where the file lists them, else by `default`.

    Parameters
    ----------
    default : gives their number from the file and its number of layers
    key : of the window
    length : of the window where the file doesn't say [tokens]
    """

    def apply(config: Config, fields: Fields) -> Fields:
        windowed = _listed(config, fields["layers"])
        if windowed is None:
            windowed = default(config, fields["layers"])
        if not windowed:
            return {}
        window = count(config, key, length)
        if not window:
            raise InvalidValue(key, window, "at least one token")
        return {"sliding_window": window, "windowed_layers": windowed}

    return FieldRule(apply, WINDOW_KEYS | {key})


def _listed(config: Config, layers: int) -> int | None:
    key = first_of(config, "layer_types attention_layers")
    if key is None:
        return None
    kinds = config[key]
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise InvalidValue(key, kinds, f"a list with one text for each of {layers} layers")
    for kind in kinds:
        if not isinstance(kind, str) or kind not in ATTENTION_KINDS:
            known = OTHER_KINDS.get(kind) if isinstance(kind, str) else None
            named = f"{known} in {kinds.count(kind)} of {layers} layers" if known else f"{key} with {short(kind)}"
            raise NotModelled(f"{named} is not modelled, only full and sliding attention ({key}: {short(kind)})")
    return sum(ATTENTION_KINDS[kind] for kind in kinds)


def no_layer(config: Config, layers: int) -> int:
    """None but those that `layer_types` lists."""
    return 0


def every_layer(config: Config, layers: int) -> int:
    """All, where the file has a window."""
    return layers if config.get("sliding_window") else 0


def unless_null(config: Config, layers: int) -> int:
    """All but where the file says that there is no window: the configuration class has one by default."""
    return layers if config.get("sliding_window", 1) is not None else 0


def every_other(config: Config, layers: int) -> int:
    """The first, third, fifth."""
    return (layers + 1) // 2


def pattern(default: int) -> Callable[[Config, int], int]:
    """All but one layer in so many, where the file has a window."""

    def counted(config: Config, layers: int) -> int:
        key = first_of(config, "_sliding_window_pattern sliding_window_pattern") or "sliding_window_pattern"
        if config.get("sliding_window", 1) is None:
            return 0
        given = config.get(key)
        if isinstance(given, str) and given and set(given) <= {"L", "G"}:
            cycle = (given * (layers // len(given) + 1))[:layers]
            return cycle.count("L")
        every = count(config, key, default)
        if not every:
            raise InvalidValue(key, every, "a whole number from 1")
        return layers - layers // every

    return counted


def _last_layers(config: Config, layers: int) -> int:
    """Layers from `max_window_layers` on, where windows are in use."""
    if not yes(config, "use_sliding_window", False):
        return 0
    return max(0, layers - count(config, "max_window_layers"))


def _last_windows(config: Config, fields: Fields) -> Fields:
    if not yes(config, "use_sliding_window", False) and _listed(config, fields["layers"]):
        raise InvalidValue("use_sliding_window", False, "true where layer_types has sliding_attention")
    return windows(_last_layers).apply(config, fields)


last_windows = FieldRule(_last_windows, WINDOW_KEYS)
"""Qwen: windows in the last layers, if `use_sliding_window`."""


# Mixtures of experts

DENSE_KEYS = words(
    "first_k_dense_replace moe_layer_freq mlp_only_layers decoder_sparse_step mlp_layer_types is_moe_layer moe_layers "
    "interleave_moe_layer_step moe_layer_start_index moe_layer_end_index moe_layer_interval num_dense_layers "
    "intermediate_size_mlp"
)
SHARED_COUNTS = "n_shared_experts num_shared_experts moe_num_shared_experts"
SHARED_WIDTHS = "shared_expert_intermediate_size shared_intermediate_size moe_shared_expert_intermediate_size share_expert_dim"


def mixture(first: int | None = 0, width: str = "feed_forward", shared: int | None = 0) -> FieldRule:
    """Which layers have experts, the dense width of the others, and the shared experts' width.

    Parameters
    ----------
    first : layers with a dense MLP before those with experts where the file doesn't say; None: it has to
    width : key, or field, of the dense MLP's width
    shared : shared experts where the file doesn't say; None: it has to
    """
    dense_keys = KEYS.get(width, width)

    def apply(config: Config, fields: Fields) -> Fields:
        found: Fields = {}
        layers = positive_int("num_hidden_layers", fields["layers"], 10_000)
        sparse = _sparse(config, layers, first)
        dense = layers - sum(sparse)
        fields.pop("feed_forward", None)
        if dense:
            key = first_of(config, dense_keys)
            found = {"feed_forward": count(config, key or dense_keys.split()[0]), **expert_layout(sparse)}
        if dense == layers:
            for field in ("experts", "experts_per_token", "expert_feed_forward"):
                fields.pop(field, None)
            return {"feed_forward": found["feed_forward"]}
        together = first_of(config, SHARED_WIDTHS)
        several = first_of(config, SHARED_COUNTS)
        if several is None and shared is None and not any(key in config for key in SHARED_COUNTS.split()):
            raise InvalidValue(SHARED_COUNTS.split()[0], None, "a whole number, or an explicit null")
        if together is not None:
            found["shared_expert_feed_forward"] = count(config, together)
        elif several is not None or shared:
            copies = count(config, several) if several else shared or 0
            found["shared_expert_feed_forward"] = copies * fields["expert_feed_forward"]
        groups, taken = config.get("n_group"), config.get("topk_group")
        if isinstance(groups, int) and isinstance(taken, int) and 0 < taken < groups:
            found |= {"expert_groups": groups, "groups_per_token": taken}
        return found

    return FieldRule(apply, DENSE_KEYS | words(SHARED_COUNTS) | words(SHARED_WIDTHS) | words(dense_keys))


def _sparse(config: Config, layers: int, first: int | None) -> list[bool]:
    """Whether each layer has experts."""
    for key, sparse in (("mlp_layer_types", "sparse"), ("is_moe_layer", True), ("moe_layer_freq", 1)):
        listed = config.get(key)
        if isinstance(listed, list):
            if len(listed) != layers:
                raise InvalidValue(key, listed, f"a list with one entry for each of {layers} layers")
            return [one == sparse for one in listed]
    if isinstance(config.get("moe_layers"), list):
        chosen = _numbers(config, "moe_layers")
        return [layer in chosen for layer in range(layers)]
    dense_only = _numbers(config, "mlp_only_layers")
    first_key = first_of(config, "first_k_dense_replace num_dense_layers moe_layer_start_index")
    start = count(config, first_key or "first_k_dense_replace", first)
    end = config.get("moe_layer_end_index")
    last = layers - 1 if end in (None, -1) else count(config, "moe_layer_end_index")
    step_key = first_of(config, "decoder_sparse_step interleave_moe_layer_step moe_layer_interval") or "decoder_sparse_step"
    steps = [count(config, step_key, 1), count(config, "moe_layer_freq", 1)]
    for name, step in zip((step_key, "moe_layer_freq"), steps, strict=True):
        if not step:
            raise InvalidValue(name, step, "a whole number from 1")
    return [
        start <= layer <= last and (layer + 1) % steps[0] == 0 and layer % steps[1] == 0 and layer not in dense_only
        for layer in range(layers)
    ]


def _numbers(config: Config, key: str) -> set[int]:
    listed = config.get(key)
    if listed is None:
        return set()
    if not isinstance(listed, list):
        raise InvalidValue(key, listed, "a list of layer numbers")
    return {whole(key, layer, MAX_NUMBER) for layer in listed}


# Latent attention


def latent(default: Callable[[Fields], int | None] = lambda fields: None) -> FieldRule:
    """Multi-head latent attention, as in DeepSeek-V2; a file may turn it off.

    Parameters
    ----------
    default : gives the width of a value head where the file doesn't say
    """

    def apply(config: Config, fields: Fields) -> Fields:
        return _latent(config, fields, default)

    # In these files head_dim is the rotary part alone, and qk_head_dim the sum of two other keys.
    ranks = words("q_lora_rank kv_lora_rank num_key_value_heads use_mla")
    return FieldRule(apply, ranks | words("qk_rope_head_dim v_head_dim qk_nope_head_dim head_dim qk_head_dim"))


def _latent(config: Config, fields: Fields, default: Callable[[Fields], int | None]) -> Fields:
    heads = fields["heads"]
    if config.get("use_mla") is False or ("kv_lora_rank" in config and config["kv_lora_rank"] is None):
        return {}
    groups = count(config, "num_key_value_heads", heads)
    if groups != heads:
        raise NotModelled(f"num_key_value_heads={groups} is not modelled with latent attention, only {heads}")
    if "q_lora_rank" not in config:
        raise InvalidValue("q_lora_rank", None, "a whole number, or an explicit null")
    rotated = count(config, "qk_rope_head_dim")
    return {
        "query_latent": count(config, "q_lora_rank", 0), "kv_latent": count(config, "kv_lora_rank"), "rope_head_dim": rotated,
        "head_dim": count(config, "qk_nope_head_dim") + rotated,
        "value_head_dim": count(config, "v_head_dim", default(fields)),
    }  # fmt: skip


def _indexer(config: Config, fields: Fields) -> Fields:
    layers, kinds, heads = fields["layers"], config.get("indexer_types"), count(config, "index_n_heads")
    full = kinds.count("full") if isinstance(kinds, list) else -(-layers // max(count(config, "index_topk_freq", 1), 1))
    return {
        # Where layers share an indexer, the average layer has fewer of its heads.
        "index_heads": max(round(heads * full / layers), 1), "index_head_dim": count(config, "index_head_dim"),
        "sliding_window": count(config, "index_topk"), "windowed_layers": fields["layers"],
    }  # fmt: skip


indexer = FieldRule(
    _indexer,
    words(
        "index_n_heads index_head_dim index_topk indexer_rope_interleave indexer_types layer_types index_topk_freq "
        "index_skip_topk_offset index_share_for_mtp_iteration"
    ),
)
"""Sparse attention to the keys that an indexer picks, as in DeepSeek-V3.2: as many as a window of that length holds."""


# Single families


def _four_times_hidden(config: Config, fields: Fields) -> Fields:
    return {} if "feed_forward" in fields else {"feed_forward": 4 * fields["hidden"]}


four_times_hidden = FieldRule(_four_times_hidden, frozenset())
"""The MLP's width where the file doesn't say."""


def when(key: str, default: bool, fields_if: Mapping[str, object]) -> FieldRule:
    """Fields that a yes or no turns on."""

    def apply(config: Config, fields: Fields) -> Fields:
        return dict(fields_if) if yes(config, key, default) else {}

    return FieldRule(apply, frozenset({key}))


def capped_logits(default: float | None) -> FieldRule:
    """Whether a hyperbolic tangent holds logits within limits.

    Parameters
    ----------
    default : the limit where a file says none; None of a class that has none
    """

    def apply(config: Config, fields: Fields) -> Fields:
        return {"capped_logits": True} if config.get("final_logit_softcapping", default) else {}

    return FieldRule(apply, frozenset({"final_logit_softcapping"}))


ACTIVATIONS = {"gelu_new": "gelu-new", "gelu_fast": "gelu-new", "relu": "relu"}
"""Names of Hugging Face's activations that keep other than their input, and `Transformer`'s for them: huggingface/transformers
src/transformers/activations.py, ``ACT2FN``."""


def plain_activation(key: str, default: str) -> FieldRule:
    """The activation of an MLP without a gate."""

    def apply(config: Config, fields: Fields) -> Fields:
        named = ACTIVATIONS.get(str(config.get(key) or default))
        return {"activation": named} if named and not fields.get("gated", False) else {}

    return FieldRule(apply, frozenset({key}))


def nested(table: str, keys: Mapping[str, str]) -> FieldRule:
    """Fields from a table inside the file.

    Parameters
    ----------
    table : its key
    keys : field: its key in there
    """

    def apply(config: Config, fields: Fields) -> Fields:
        inner = config.get(table)
        if inner is None:
            return {}
        if not isinstance(inner, dict):
            raise InvalidValue(table, inner, "a table")
        return {field: count(inner, key) for field, key in keys.items() if inner.get(key) is not None}

    return FieldRule(apply, frozenset({table}))

"""Rules of decoders whose windowed layers have more heads than the others: Step 3.5 and 3.7, Laguna.

A gate of one output a head, which these have beside queries, is left out: 0.01 % of their parameters.
"""

from __future__ import annotations

from costmodel.description.huggingface.files import Config, short
from costmodel.description.huggingface.keys import words
from costmodel.description.huggingface.rules import WINDOW_KEYS, FieldRule, Fields, count, mixture, no_layer, windows
from costmodel.description.huggingface.special import two_shapes
from costmodel.text.errors import InvalidValue, NotModelled

PADDED = ("layer_types", "mlp_layer_types")
"""Lists that go on over the prediction modules."""


def _of_layers(config: Config, layers: int) -> Config:
    """The file with its lists cut to the layers of the model itself, and the layers with experts by their names."""
    found: Config = dict(config)
    for key in PADDED:
        listed = config.get(key)
        if isinstance(listed, list):
            found[key] = listed[:layers]
    if not isinstance(config.get("mlp_layer_types"), list):
        named = config.get("moe_layers_enum")
        if named is None:
            chosen = set(range(3, layers))
        else:
            chosen = {_layer(one) for one in (named.split(",") if isinstance(named, str) else _listed(named)) if str(one).strip()}
        found["mlp_layer_types"] = ["sparse" if layer in chosen else "dense" for layer in range(layers)]
    return found


def _listed(value: object) -> list[object]:
    if not isinstance(value, list):
        raise InvalidValue("moe_layers_enum", value, "numbers of layers, in a list or with commas between")
    return value


def _layer(value: object) -> int:
    text = str(value).strip()
    if not text.isdecimal() or len(text) > 6:
        raise InvalidValue("moe_layers_enum", value, "numbers of layers, in a list or with commas between")
    return int(text)


def _other_heads(config: Config, fields: Fields) -> Fields:
    """Heads of the windowed layers, in either of the spellings."""
    if config.get("per_layer_config"):
        return two_shapes(config, fields)
    other = config.get("attention_other_setting") or {}
    if not isinstance(other, dict):
        raise InvalidValue("attention_other_setting", other, "a table")
    usual = fields["heads"]
    heads = count(config, "num_sliding_attention_heads", count(other, "num_attention_heads", usual))
    groups = count(other, "num_attention_groups", fields["kv_heads"])
    if (wide := count(other, "head_dim", fields["head_dim"])) != fields["head_dim"]:
        raise NotModelled(f"attention_other_setting with head_dim={wide} is not modelled, only {fields['head_dim']}")
    found = {} if heads == usual else {"windowed_heads": heads}
    return found | ({} if groups == fields["kv_heads"] else {"windowed_kv_heads": groups})


def _step(config: Config, fields: Fields) -> Fields:
    config = _of_layers(config, fields["layers"])
    found = windows(no_layer, length=512).apply(config, fields)
    if found:
        found |= _other_heads(config, fields)
    return found | mixture().apply(config, fields)


step = FieldRule(
    _step,
    mixture().keys | WINDOW_KEYS | words(
        "moe_layers_enum attention_other_setting num_sliding_attention_heads per_layer_config mtp_layer_types "
        "mtp_mlp_layer_types swiglu_limits swiglu_limits_shared share_expert_dims"
    ),
)  # fmt: skip
"""Step 3.5 and 3.7: the widths of both kinds of layers, and which have experts, in Transformers' spelling or the files' own."""


def _laguna(config: Config, fields: Fields) -> Fields:
    layers, listed, kinds = fields["layers"], config.get("num_attention_heads_per_layer"), config.get("layer_types")
    found = windows(no_layer).apply(config, fields)
    if not isinstance(listed, list) or not isinstance(kinds, list):
        return found
    if len(listed) != layers or len(kinds) != layers:
        raise InvalidValue("num_attention_heads_per_layer", short(listed), f"a list with one entry for each of {layers} layers")
    both = list(zip(listed, (kind == "sliding_attention" for kind in kinds), strict=True))
    heads = [{count({"heads": one}, "heads") for one, behind in both if behind is windowed} for windowed in (False, True)]
    if any(len(one) > 1 for one in heads):
        raise NotModelled("num_attention_heads_per_layer is not modelled where layers of one kind differ")
    whole, windowed = (next(iter(one), fields["heads"]) for one in heads)
    return found | {"heads": whole} | ({"windowed_heads": windowed} if heads[1] and windowed != whole else {})


laguna = FieldRule(_laguna, WINDOW_KEYS | words("num_attention_heads_per_layer"))
"""Laguna: heads by layer, of which those with windows may have more."""

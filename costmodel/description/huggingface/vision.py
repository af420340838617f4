"""Reads the tower of images of a multimodal ``config.json``, and what joins it to the language model.

Facts are those of Hugging Face Transformers 5.24, ``src/transformers/models/*/modeling_*.py``: tensors of the towers and of what
lies between them and the text model, counted on PyTorch's meta device (``tests/interop/test_vision_towers.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from costmodel.arithmetic.named_tuples import made
from costmodel.description.huggingface.families import BIASED, CLASSIC
from costmodel.description.huggingface.files import Config, load, name_of, short, shown
from costmodel.description.huggingface.rules import Fields, count, yes
from costmodel.text.checks import positive_int, whole
from costmodel.text.errors import InvalidValue, NotModelled

if TYPE_CHECKING:
    from costmodel.description.transformer import Transformer

TABLES = "vision_config vision_tower_config visual"
"""Where a file keeps its tower of images."""


class Connector(NamedTuple):
    """What lies between a tower and the language model: projections of each token that the latter takes."""

    weights: int  # multiplied with each of these tokens
    others: int  # parameters that are not: biases, norms, positions that are stretched to an image's size

    @property
    def parameters(self) -> int:
        """In all."""
        return self.weights + self.others


class TowerReading(NamedTuple):
    """A tower of images as a file describes it."""

    model: Transformer  # its layers, patches and norms, without a head
    tokens: int  # that it works through for an image, or for one of its tiles; 0 where that is as the image's size
    merged: float  # of them for each token of the language model
    connector: Connector  # between the two


class _Shape(NamedTuple):
    """Fields of the tower's Transformer, tokens of an image, and parameters that are counted beside it."""

    fields: Fields
    tokens: int
    beside: int = 0


def _side(config: Config, default: int) -> int:
    """Of a patch, in pixels."""
    return positive_int("patch_size", count(config, "patch_size", default), 10_000)


def _patches(config: Config, image: int, patch: int) -> int:
    """Patches of a square image."""
    return (whole("image_size", count(config, "image_size", image), 100_000) // _side(config, patch)) ** 2


def _plain(config: Config, hidden: int, **fields: object) -> Fields:
    """An encoder of patches. A Transformer has a head, here of one output: its row is taken off those of positions, if any."""
    values = count(config, "num_channels", 3) * _side(config, 14) ** 2
    return {"hidden": hidden, "vocabulary": 1, "causal": False, "patch_values": values, **fields}


def _siglip(config: Config) -> _Shape:
    if yes(config, "vision_use_head", False):
        raise NotModelled("vision_use_head=True is not modelled: a pooled head, which no language model takes")
    hidden, patches = count(config, "hidden_size", 768), _patches(config, 224, 16)
    fields = _plain(
        config, hidden, layers=count(config, "num_hidden_layers", 12), heads=count(config, "num_attention_heads", 12),
        feed_forward=count(config, "intermediate_size", 3072), learned_positions=patches, **CLASSIC, **BIASED,
    )  # fmt: skip
    return _Shape(fields, patches)  # a row for the bias of the patches, one off for the head


def _clip(config: Config) -> _Shape:
    tokens = _patches(config, 224, 32) + 1
    fields = _plain(
        config, count(config, "hidden_size", 768), layers=count(config, "num_hidden_layers", 12),
        heads=count(config, "num_attention_heads", 12), feed_forward=count(config, "intermediate_size", 3072),
        learned_positions=tokens, embedding_norm=True, **CLASSIC, **BIASED,
    )  # fmt: skip
    return _Shape(fields, tokens)  # a row for the class token, one off for the head


def _pixtral(config: Config) -> _Shape:
    fields = _plain(
        config, count(config, "hidden_size", 1024), layers=count(config, "num_hidden_layers", 24),
        heads=count(config, "num_attention_heads", 16), feed_forward=count(config, "intermediate_size", 4096),
        embedding_norm=True, last_norm=False,
    )  # fmt: skip
    return _Shape(fields, 0)


def _qwen_patches(config: Config) -> int:
    """Values of a patch, of as many frames as it spans."""
    channels = count(config, "in_channels" if config.get("in_channels") is not None else "in_chans", 3)
    return channels * count(config, "temporal_patch_size", 2) * _side(config, 14) ** 2


def _qwen2(config: Config) -> _Shape:
    hidden = count(config, "embed_dim", 1280)
    fields = _plain(
        config, hidden, layers=count(config, "depth", 32), heads=count(config, "num_heads", 16),
        feed_forward=hidden * count(config, "mlp_ratio", 4), last_norm=False, **CLASSIC, **BIASED,
    )  # fmt: skip
    return _Shape(fields | {"patch_values": _qwen_patches(config)}, 0)


def _qwen25(config: Config) -> _Shape:
    layers = count(config, "depth", 32)
    whole = config.get("fullatt_block_indexes", [7, 15, 23, 31])
    if not isinstance(whole, list):
        raise InvalidValue("fullatt_block_indexes", whole, "a list of layers")
    windowed = layers - len({one for one in whole if isinstance(one, int) and one < layers})
    # Windows are squares of an image: a token meets all of its own, so as many keys as one holds.
    window = (count(config, "window_size", 112) // _side(config, 14)) ** 2
    fields = _plain(
        config, count(config, "hidden_size", 3584), layers=layers, heads=count(config, "num_heads", 16),
        kv_heads=count(config, "num_key_value_heads", count(config, "num_heads", 16)),
        feed_forward=count(config, "intermediate_size", 3420), last_norm=False, **BIASED,
        **({"sliding_window": window, "windowed_layers": windowed} if windowed else {}),
    )  # fmt: skip
    return _Shape(fields | {"patch_values": _qwen_patches(config)}, 0)


def _qwen3(config: Config) -> _Shape:
    hidden = count(config, "hidden_size", 1152)
    fields = _plain(
        config, hidden, layers=count(config, "depth", 27), heads=count(config, "num_heads", 16),
        feed_forward=count(config, "intermediate_size", 4304), last_norm=False, **CLASSIC, **BIASED,
    )  # fmt: skip
    stretched = count(config, "num_position_embeddings", 2304)
    return _Shape(fields | {"patch_values": _qwen_patches({"patch_size": 16, **config})}, 0, beside=stretched * hidden)


def _kimi(config: Config) -> _Shape:
    hidden = count(config, "hidden_size", 1152)
    fields = _plain(
        config, hidden, layers=count(config, "num_hidden_layers", 27), heads=count(config, "num_attention_heads", 16),
        feed_forward=count(config, "intermediate_size", 4304), **CLASSIC, **BIASED,
    )  # fmt: skip
    stretched = count(config, "pos_emb_height", 64) * count(config, "pos_emb_width", 64)
    return _Shape(fields, 0, beside=stretched * hidden)


def _mllama(config: Config) -> _Shape:
    hidden, tiles = count(config, "hidden_size", 1280), count(config, "max_num_tiles", 4)
    patches, ratios = _patches(config, 448, 14) + 1, config.get("supported_aspect_ratios")
    kinds = len(ratios) + 1 if isinstance(ratios, list) else 9
    fields = _plain(
        config, hidden, layers=count(config, "num_hidden_layers", 32) + count(config, "num_global_layers", 8),
        heads=count(config, "attention_heads", 16), feed_forward=count(config, "intermediate_size", 5120), embedding_norm=True,
        feed_forward_bias=True, **CLASSIC,
    )  # fmt: skip
    # Positions in a tile, of tiles for each shape that an image can have, before and behind the layers.
    rows = patches + kinds * tiles * patches + 2 * kinds * tiles
    return _Shape(fields, tiles * patches, beside=rows * hidden)


def _internvl(config: Config) -> _Shape:
    image, patch = config.get("image_size", 448), config.get("patch_size", 14)
    sizes = [one[0] if isinstance(one, list) and len(set(map(str, one))) == 1 else one for one in (image, patch)]
    square: Config = {**config, "image_size": sizes[0], "patch_size": sizes[1]}
    if config.get("norm_type", "layer_norm") != "layer_norm" or yes(config, "use_qk_norm", False):
        raise NotModelled("InternViT with RMSNorms or norms of queries and keys is not modelled, only with LayerNorms")
    hidden, layers = count(config, "hidden_size", 1024), count(config, "num_hidden_layers", 24)
    tokens = _patches(square, 448, 14) + 1
    biased = yes(config, "attention_bias", yes(config, "qkv_bias", False))
    fields = _plain(
        square, hidden, layers=layers, heads=count(config, "num_attention_heads", 16),
        feed_forward=count(config, "intermediate_size", 4096), learned_positions=tokens + 1, attention_bias=biased,
        output_bias=True, feed_forward_bias=True, last_norm=not yes(config, "use_mean_pooling", True), **CLASSIC,
    )  # fmt: skip
    return _Shape(fields, tokens, beside=2 * layers * hidden)  # scales of what each half of a layer adds


TOWERS: dict[str, Callable[[Config], _Shape]] = {
    "siglip_vision_model": _siglip, "idefics3_vision": _siglip, "smolvlm_vision": _siglip, "clip_vision_model": _clip,
    "pixtral": _pixtral, "qwen2_vl": _qwen2, "qwen2_vl_vision": _qwen2, "qwen2_5_vl": _qwen25, "qwen2_5_vl_vision": _qwen25,
    "exaone4_5_vision": _qwen25, "qwen3_vl": _qwen3, "qwen3_vl_vision": _qwen3, "qwen3_vl_moe": _qwen3,
    "qwen3_vl_moe_vision": _qwen3, "qwen3_5": _qwen3, "qwen3_5_vision": _qwen3, "qwen3_5_moe": _qwen3,
    "qwen3_5_moe_vision": _qwen3, "kimi_k25_vision": _kimi, "mllama_vision_model": _mllama, "internvl_vision": _internvl,
}  # fmt: skip
"""By the `model_type` of the tower's table, or of the file where the table has none."""


def _perceptron(config: Config, vision: Config, tower: int, text: int) -> Connector:
    biased = yes(config, "multimodal_projector_bias", True)
    return Connector(tower * text + text * text, 2 * text * biased)


def _newline(config: Config, vision: Config, tower: int, text: int) -> Connector:
    weights, others = _perceptron(config, vision, tower, text)
    return Connector(weights, others + text)  # an embedding of the end of a row of tiles


def _merger(norm_vectors: int) -> Callable[[Config, Config, int, int], Connector]:
    def connector(config: Config, vision: Config, tower: int, text: int) -> Connector:
        own = count(vision, "hidden_size", text) if vision.get("embed_dim") is not None else text  # Qwen2-VL: of the text
        wide, out = tower * count(vision, "spatial_merge_size", 2) ** 2, count(vision, "out_hidden_size", own)
        return Connector(wide * wide + wide * out, norm_vectors * tower + wide + out)

    return connector


def _deep_mergers(config: Config, vision: Config, tower: int, text: int) -> Connector:
    deep = vision.get("deepstack_visual_indexes", [8, 16, 24] if "vl" in str(config.get("model_type")) else [])
    many = len(deep) if isinstance(deep, list) else 0
    one = _merger(2)(config, vision, tower, text)
    wide = tower * count(vision, "spatial_merge_size", 2) ** 2
    return Connector((1 + many) * one.weights, (1 + many) * one.others + many * 2 * (wide - tower) + tower)


def _gemma3(config: Config, vision: Config, tower: int, text: int) -> Connector:
    return Connector(tower * text, tower)


def _paligemma(config: Config, vision: Config, tower: int, text: int) -> Connector:
    out = count(vision, "projection_dim", text)
    return Connector(tower * out, out)


def _mistral3(config: Config, vision: Config, tower: int, text: int) -> Connector:
    wide, biased = tower * count(config, "spatial_merge_size", 2) ** 2, yes(config, "multimodal_projector_bias", False)
    return Connector(wide * tower + tower * text + text * text, tower + 2 * text * biased)


def _shuffled(config: Config, vision: Config, tower: int, text: int) -> Connector:
    return Connector(tower * count(config, "scale_factor", 2) ** 2 * text, 0)


def _mllama_projector(config: Config, vision: Config, tower: int, text: int) -> Connector:
    return Connector(count(vision, "vision_output_dim", 7680) * text, text)


def _internvl_projector(config: Config, vision: Config, tower: int, text: int) -> Connector:
    wide = 4 * tower
    return Connector(wide * text + text * text, 2 * wide + 2 * text)


def _kimi_projector(config: Config, vision: Config, tower: int, text: int) -> Connector:
    wide = 4 * tower
    return Connector(wide * wide + wide * text, 2 * tower + wide + text + tower)


class _Joined(NamedTuple):
    """How a model joins a tower to its text."""

    connector: Callable[[Config, Config, int, int], Connector]
    merged: Callable[[Config, Config, int], float]
    """Tokens of the tower for one of the text, from the file, the tower's table and its tokens of an image."""


def _one_for_one(config: Config, vision: Config, tokens: int) -> float:
    return 1.0


def _squares(config: Config, vision: Config, tokens: int) -> float:
    """A square of patches makes a token."""
    at = vision if vision.get("spatial_merge_size") is not None else config
    return float(count(at, "spatial_merge_size", 2) ** 2)


def _pooled(config: Config, vision: Config, tokens: int) -> float:
    return tokens / max(count(config, "mm_tokens_per_image", 256), 1)


def _scaled(config: Config, vision: Config, tokens: int) -> float:
    return float(count(config, "scale_factor", 2) ** 2)


def _without_class(config: Config, vision: Config, tokens: int) -> float:
    return tokens / max(tokens - 1, 1)


def _quartered(config: Config, vision: Config, tokens: int) -> float:
    return 4.0 * tokens / max(tokens - 1, 1) if tokens else 4.0


JOINED: dict[str, _Joined] = {
    "llava": _Joined(_perceptron, _without_class), "llava_next": _Joined(_newline, _without_class),
    "llava_onevision": _Joined(_newline, _one_for_one),
    "qwen2_vl": _Joined(_merger(2), _squares), "qwen2_5_vl": _Joined(_merger(1), _squares),
    "exaone4_5": _Joined(_merger(1), _squares),
    "qwen3_vl": _Joined(_deep_mergers, _squares), "qwen3_vl_moe": _Joined(_deep_mergers, _squares),
    "qwen3_5": _Joined(_deep_mergers, _squares), "qwen3_5_moe": _Joined(_deep_mergers, _squares),
    "gemma3": _Joined(_gemma3, _pooled), "paligemma": _Joined(_paligemma, _one_for_one), "mistral3": _Joined(_mistral3, _squares),
    "idefics3": _Joined(_shuffled, _scaled), "smolvlm": _Joined(_shuffled, _scaled),
    "mllama": _Joined(_mllama_projector, _one_for_one), "internvl": _Joined(_internvl_projector, _quartered),
    "kimi_k25": _Joined(_kimi_projector, _quartered),
}  # fmt: skip
"""By the `model_type` of the file."""


def read_tower(path: str | Path, text_hidden: int) -> TowerReading:
    """The tower of images of a local multimodal ``config.json``.

    Parameters
    ----------
    path : the file, or the folder that holds it
    text_hidden : channels of the language model

    Raises
    ------
    UnreadableFile
        where the file is missing, too large or not a JSON object
    InvalidValue
        where it has no tower, or a key has a value that it can't have
    NotModelled
        where the tower, or what joins it to the text, is not modelled
    """
    from costmodel.description.transformer import Transformer

    config, file = load(Path(path))
    kind = str(config.get("model_type"))
    table = next((config[key] for key in TABLES.split() if isinstance(config.get(key), dict)), None)
    if not isinstance(table, dict):
        raise InvalidValue("vision_config", None, f"a tower of images in {shown(file)}")
    tower = str(table.get("model_type") or kind)
    if kind not in JOINED or tower not in TOWERS:
        named = f"model_type={short(kind)}" if kind not in JOINED else f"model_type={short(tower)} of its tower"
        known = ", ".join(JOINED) if kind not in JOINED else ", ".join(TOWERS)
        raise NotModelled(f"{shown(file)}: {named} is not modelled with its tower of images, only {known}")
    shape, joined = TOWERS[tower](table), JOINED[kind]
    between = joined.connector(config, table, int(shape.fields["hidden"]), text_hidden)
    model = made(Transformer, {"name": f"{name_of(config, file)} (images)", **shape.fields})
    return TowerReading(
        model, shape.tokens, joined.merged(config, table, shape.tokens),
        Connector(between.weights, between.others + shape.beside),
    )  # fmt: skip

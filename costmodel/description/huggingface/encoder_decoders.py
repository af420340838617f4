"""The table of encoders with a decoder behind them, and of diffusion transformers.

Facts are those of Hugging Face Transformers 5.24, ``src/transformers/models/*`` (counts: ``ForConditionalGeneration``), and of
diffusers, ``src/diffusers/models/transformers/dit_transformer_2d.py``.
"""

from __future__ import annotations

from typing import Any

from costmodel.description.huggingface.families import BIASED, CLASSIC, Family, family
from costmodel.description.huggingface.files import Config, short
from costmodel.description.huggingface.keys import words
from costmodel.description.huggingface.rules import FieldRule, Fields, count, yes
from costmodel.text.errors import NotModelled

BEHIND_AN_ENCODER = {"is_encoder_decoder": (True, None), "add_cross_attention": (False, None, True)}
CONDITIONED = 6
"""Scales, shifts and gates of a layer of DiT (arXiv:2212.09748, section 3.2, adaLN-Zero)."""
FREQUENCIES = 256
"""Channels of DiT's sinusoids of a time step."""


def _t5(config: Config, fields: Fields) -> Fields:
    form = str(config.get("feed_forward_proj") or "relu")
    encoder = count(config, "num_layers", 6)
    return {
        "layers": encoder + count(config, "num_decoder_layers", encoder), "encoder_layers": encoder,
        "gated": form.startswith("gated") or yes(config, "is_gated_act", False),
    }  # fmt: skip


t5 = FieldRule(
    _t5,
    words(
        "num_layers num_decoder_layers feed_forward_proj is_gated_act dense_act_fn relative_attention_num_buckets n_positions "
        "relative_attention_max_distance scalable_attention scale_decoder_outputs"
    ),
)
"""T5: RMSNorms, no biases, heads of a width of their own; positions are biases of scores, of the first layers alone."""


def _sides(config: Config, fields: Fields) -> Fields:
    encoder, decoder = count(config, "encoder_layers"), count(config, "decoder_layers")
    for key in ("attention_heads", "ffn_dim"):
        one, other = count(config, f"encoder_{key}"), count(config, f"decoder_{key}")
        if one != other:
            raise NotModelled(f"encoder_{key}={one} with decoder_{key}={short(other)}: sides of unlike layers are not modelled")
    return {
        "layers": encoder + decoder, "encoder_layers": encoder, "heads": count(config, "encoder_attention_heads"),
        "feed_forward": count(config, "encoder_ffn_dim"),
    }  # fmt: skip


SIDES = words(
    "encoder_layers decoder_layers encoder_attention_heads decoder_attention_heads encoder_ffn_dim decoder_ffn_dim "
    "encoder_layerdrop decoder_layerdrop num_hidden_layers scale_embedding normalize_before normalize_embedding "
    "static_position_embeddings add_bias_logits add_final_layer_norm use_bias extra_pos_embeddings decoder_vocab_size "
    "share_encoder_decoder_embeddings classif_dropout"
)


def _bart(config: Config, fields: Fields) -> Fields:
    extra = 0 if config.get("model_type") in ("marian", "pegasus", "blenderbot") else 2  # rows before the first position
    return {**_sides(config, fields), "learned_positions": 2 * (count(config, "max_position_embeddings", 1024) + extra)}


bart = FieldRule(_bart, SIDES | words("max_position_embeddings"))
"""BART and its likenesses: learned positions of both sides, biases everywhere."""


def _whisper(config: Config, fields: Fields) -> Fields:
    source, target = count(config, "max_source_positions", 1500), count(config, "max_target_positions", 448)
    # Two convolutions over three steps of time, the first from the spectrum, have as many parameters as so many rows.
    convolutions = 3 * count(config, "num_mel_bins", 80) + 3 * fields["hidden"] + 2
    return {
        **_sides(config, fields), "learned_positions": source + target + convolutions, "source_tokens": source / max(target, 1),
    }  # fmt: skip


whisper = FieldRule(
    _whisper,
    SIDES | words("max_source_positions max_target_positions num_mel_bins apply_spec_augment mask_* median_filter_width "
                  "mask_time_prob mask_time_length mask_time_min_masks mask_feature_prob mask_feature_length "
                  "mask_feature_min_masks use_weighted_layer_sum classifier_proj_size"),
)  # fmt: skip
"""Whisper: an encoder of sound, in as many steps as it has positions, before a decoder of text."""


def _dit(config: Config, fields: Fields) -> Fields:
    patch, side = count(config, "patch_size", 2), count(config, "sample_size", 32)
    heads, wide = count(config, "num_attention_heads"), count(config, "attention_head_dim")
    channels = count(config, "in_channels", 4)
    hidden, classes = heads * wide, count(config, "num_embeds_ada_norm", 1000) + 1
    steps = FREQUENCIES + 1 + hidden + 1  # two products with biases make a time step's embedding
    return {
        "layers": count(config, "num_layers"), "heads": heads, "hidden": hidden, "feed_forward": 4 * hidden,
        "vocabulary": patch * patch * count(config, "out_channels", channels), "patch_values": patch * patch * channels,
        # Rows of positions, of classes, of time steps; a bias of patches, and the last layer's scales and shifts.
        "learned_positions": (side // max(patch, 1)) ** 2 + classes + steps + 1 + 2 * (hidden + 1),
    }  # fmt: skip


LAYER_MATRICES = 12
"""Of hidden width on either side: four of attention, eight of an MLP four times as wide."""
BIASES = 3
"""Vectors that a stream's layer has less than as many matrices with a bias each: an MLP's are five, not eight."""


def _embedder(wide: int, hidden: int) -> int:
    """Rows of hidden width of two products with biases, from so many channels."""
    return wide + 1 + hidden + 1


def _joint(config: Config, joint: int, single: int, scales: int, streams: int, *embedded: int) -> Fields:
    """Layers of two streams of tokens that attend to each other, and layers of one behind them.

    Whole matrices that don't come out even over the layers, and what stands before and behind these, are rows of positions."""
    heads, wide = count(config, "num_attention_heads"), count(config, "attention_head_dim")
    hidden, patch, channels = heads * wide, count(config, "patch_size", 1), count(config, "in_channels")
    layers = joint + single
    (modulation, left), (matrices, right) = divmod(scales, layers), divmod(streams, layers)
    behind = 2 * (hidden + 1)  # scales and shifts of the last norm
    rows = sum(embedded) + behind + 1 + (left + right) * (hidden + 1) - BIASES * (streams // LAYER_MATRICES)
    return {
        "layers": layers, "heads": heads, "hidden": hidden, "feed_forward": 4 * hidden, "modulation": modulation,
        "stream_matrices": matrices, "patch_values": patch * patch * channels,
        "vocabulary": patch * patch * count(config, "out_channels", channels), "learned_positions": rows,
    }  # fmt: skip


def _flux(config: Config, fields: Fields) -> Fields:
    joint, single = count(config, "num_layers"), count(config, "num_single_layers")
    hidden = count(config, "num_attention_heads") * count(config, "attention_head_dim")
    steps = _embedder(FREQUENCIES, hidden) * (2 if yes(config, "guidance_embeds", False) else 1)
    pooled, text = _embedder(count(config, "pooled_projection_dim", 768), hidden), count(config, "joint_attention_dim") + 1
    scales = 2 * CONDITIONED * joint + CONDITIONED // 2 * single
    return _joint(config, joint, single, scales, LAYER_MATRICES * joint, steps, pooled, text)


flux = FieldRule(
    _flux,
    words(
        "num_layers num_single_layers num_attention_heads attention_head_dim in_channels out_channels patch_size guidance_embeds "
        "joint_attention_dim pooled_projection_dim axes_dims_rope _class_name _diffusers_version _name_or_path"
    ),
)
"""FLUX.1: layers with weights of their own for images and for texts, then layers of one kind for both; all attend to all."""


def _sd3(config: Config, fields: Fields) -> Fields:
    joint = count(config, "num_layers")
    hidden = count(config, "num_attention_heads") * count(config, "attention_head_dim")
    embedded = [_embedder(FREQUENCIES, hidden), _embedder(count(config, "pooled_projection_dim", 2048), hidden)]
    text = count(config, "joint_attention_dim") + 1
    # of the last layer the text's queries, keys and values are used, scaled and shifted, and nothing behind them
    scales, streams = 2 * CONDITIONED * joint - 4, LAYER_MATRICES * joint - 9
    return _joint(config, joint, 0, scales, streams, *embedded, text)


sd3 = FieldRule(
    _sd3,
    words(
        "num_layers num_attention_heads attention_head_dim in_channels out_channels patch_size sample_size joint_attention_dim "
        "caption_projection_dim pooled_projection_dim pos_embed_max_size qk_norm _class_name _diffusers_version _name_or_path"
    ),
)
"""Stable Diffusion 3: layers with weights of their own for images and for texts, which attend to both."""

dit = FieldRule(
    _dit,
    words(
        "patch_size sample_size num_attention_heads attention_head_dim in_channels out_channels num_embeds_ada_norm num_layers "
        "attention_bias norm_num_groups num_vector_embeds cross_attention_dim only_cross_attention double_self_attention "
        "upcast_attention use_linear_projection norm_elementwise_affine norm_type _class_name _diffusers_version"
    ),
)
"""DiT: an encoder of patches whose layers' scales and shifts come of a time step and a class."""

BART = family(
    "hidden vocabulary", bart, tied=True, positions=True, **CLASSIC, **BIASED, embedding_norm=True, last_norm=False,
    only=BEHIND_AN_ENCODER, ignored="gradient_checkpointing",
)  # fmt: skip
MBART = family(
    "hidden vocabulary", bart, tied=True, positions=True, **CLASSIC, **BIASED, embedding_norm=True, only=BEHIND_AN_ENCODER,
    ignored="gradient_checkpointing",
)  # fmt: skip
MARIAN = family(
    "hidden vocabulary", bart, tied=True, positions=True, **CLASSIC, **BIASED, last_norm=False, only=BEHIND_AN_ENCODER,
    ignored="gradient_checkpointing",
)  # fmt: skip
T5 = family("hidden heads feed_forward vocabulary head_dim", t5, tied=True, only=BEHIND_AN_ENCODER, keys={"head_dim": "d_kv"})
JOINT: dict[str, Any] = {
    "tied": False, "positions": True, "causal": False, "gated": False, "norm": "none", "head_bias": True, "last_norm": False,
    **BIASED,
}  # fmt: skip
ENCODER_DECODERS: dict[str, Family] = {
    "t5": T5, "mt5": T5, "bart": BART, "mbart": MBART, "marian": MARIAN, "plbart": BART,
    "pegasus": family(
        "hidden vocabulary", bart, tied=True, positions=True, **CLASSIC, **BIASED, only=BEHIND_AN_ENCODER,
        ignored="gradient_checkpointing",
    ),
    "whisper": family("hidden vocabulary", whisper, tied=True, positions=True, **CLASSIC, **BIASED, only=BEHIND_AN_ENCODER),
    "DiTTransformer2DModel": family(
        "", dit, tied=False, positions=True, causal=False, gated=False, norm="none", modulation=CONDITIONED, head_bias=True,
        last_norm=False, **BIASED, only={"norm_type": ("ada_norm_zero", None), "cross_attention_dim": (None,)},
    ),
    "FluxTransformer2DModel": family("", flux, qk_norm="head", **JOINT),
    "SD3Transformer2DModel": family("", sd3, **JOINT, only={"dual_attention_layers": (None, [])}),
}  # fmt: skip
"""Every `model_type`, or class of diffusers, of these that can be read."""

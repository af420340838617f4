"""The table of encoders: every token meets every other, and a masked token is predicted, or an image's class.

Facts are those of Hugging Face Transformers 5.23, ``src/transformers/models/*``; counts are those of the
``ForMaskedLM`` and ``ForImageClassification`` classes.
"""

from __future__ import annotations

from costmodel.description.huggingface.families import BIASED, CLASSIC, DENSE, Family, family
from costmodel.description.huggingface.files import Config
from costmodel.description.huggingface.keys import words
from costmodel.description.huggingface.rules import FieldRule, Fields, count, windows, yes

MASKED: Fields = {"causal": False, "embedding_norm": True, "last_norm": False, "head_transform": True, "head_bias": True}
"""BERT and its likenesses: norms after the block, and a head of a dense layer, a norm and the tied embedding."""


def _typed_positions(config: Config, fields: Fields) -> Fields:
    # Rows for the two segments of a pair lie beside those of the positions.
    return {"learned_positions": count(config, "max_position_embeddings") + count(config, "type_vocab_size", 2)}


typed_positions = FieldRule(_typed_positions, words("max_position_embeddings type_vocab_size"))
"""Learned positions and segment types."""
own_positions = FieldRule(
    lambda config, fields: {"learned_positions": count(config, "max_position_embeddings", 512)}, words("max_position_embeddings")
)
"""Learned positions alone."""


def _patches(config: Config, fields: Fields) -> Fields:
    side, patch = count(config, "image_size", 224), count(config, "patch_size", 16)
    extra = 2 if config.get("model_type") == "deit" else 1  # class token, and DeiT's distillation token
    labels, words = config.get("num_labels"), config.get("id2label")
    if labels is None and isinstance(words, dict):
        labels = len(words)
    found: Fields = {
        "vocabulary": labels if isinstance(labels, int) and labels > 0 else 2,
        "patch_values": count(config, "num_channels", 3) * patch * patch,
        # A row each for the positions of patches and tokens, the tokens themselves and the bias of the patches.
        "learned_positions": (side // max(patch, 1)) ** 2 + extra + extra + 1,
    }
    return found | {"attention_bias": yes(config, "qkv_bias", True)}


patches = FieldRule(
    _patches, words("image_size patch_size num_channels qkv_bias encoder_stride pooler_output_size pooler_act interpolation_mode")
)
"""An image cut in patches, each projected to the hidden size."""


def _clip_patches(config: Config, fields: Fields) -> Fields:
    side, patch = count(config, "image_size", 224), count(config, "patch_size", 32)
    return {
        "vocabulary": count(config, "projection_dim", 512), "patch_values": count(config, "num_channels", 3) * patch * patch,
        "learned_positions": (side // max(patch, 1)) ** 2 + 2,  # the class token has a position, and is a row itself
    }  # fmt: skip


clip_patches = FieldRule(_clip_patches, words("image_size patch_size num_channels projection_dim"))
"""CLIP's tower of images, with the projection that both towers meet in."""


def _modern_windows(config: Config, layers: int) -> int:
    every = max(count(config, "global_attn_every_n_layers", 3), 1)
    return layers - (layers + every - 1) // every


def bert(rule: FieldRule) -> Family:
    """A row of the table for a likeness of BERT; `rule` counts its learned positions."""
    return family(
        DENSE, rule, tied=True, positions=True, **CLASSIC, **BIASED, **MASKED,
        ignored="gradient_checkpointing directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers "
        "pooler_size_per_head pooler_type layer_norm_type adapters",
    )  # fmt: skip


ENCODERS: dict[str, Family] = {
    "bert": bert(typed_positions),
    "megatron-bert": bert(typed_positions)._replace(
        fixed={**CLASSIC, **BIASED, **MASKED, "embedding_norm": False, "last_norm": True}
    ),
    "roberta": bert(typed_positions),
    "xlm-roberta": bert(typed_positions),
    "camembert": bert(typed_positions),
    "distilbert": bert(own_positions)._replace(
        ignored=words("activation sinusoidal_pos_embds tie_weights_ qa_dropout seq_classif_dropout")
    ),
    "modernbert": family(
        DENSE, windows(_modern_windows, "local_attention"), tied=True, causal=False, gated=True, embedding_norm=True,
        head_transform=True, head_bias=True,
        switches={"attention_bias": ("attention_bias output_bias", False), "mlp_bias": ("feed_forward_bias", False)},
        only={"norm_bias": (False,)},
        ignored="global_attn_every_n_layers deterministic_flash_attn sparse_prediction sparse_pred_ignore_index "
        "reference_compile initializer_cutoff_factor decoder_bias repad_logits_with_grad",
    ),
    "vit": family(
        "layers hidden heads feed_forward", patches, tied=False, positions=True, causal=False, output_bias=True,
        feed_forward_bias=True, head_bias=True, **CLASSIC,
    ),
    "clip_vision_model": family(
        "layers hidden heads feed_forward", clip_patches, tied=False, positions=True, causal=False, embedding_norm=True,
        **BIASED, **CLASSIC,
    ),
    "deit": family(
        "layers hidden heads feed_forward", patches, tied=False, positions=True, causal=False, output_bias=True,
        feed_forward_bias=True, head_bias=True, **CLASSIC,
    ),
}  # fmt: skip
"""Every encoder's `model_type` that can be read."""

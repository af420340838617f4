"""Encoders with a decoder behind them, towers of images and diffusion transformers: counts, FLOP, published runs, refusals."""

import dataclasses
import itertools
import json
import math

import pytest

from costmodel import Plan, Tower, Transformer, estimate, load_cluster, machine, multimodal, search
from costmodel.description.huggingface import read
from costmodel.text.errors import InvalidValue, NotModelled
from tests.tensors import parameter_tensors

T5 = {"model_type": "t5", "d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12, "vocab_size": 32128,
      "relative_attention_num_buckets": 32, "dropout_rate": 0.1, "is_encoder_decoder": True, "feed_forward_proj": "relu",
      "n_positions": 512, "tie_word_embeddings": True}  # fmt: skip
T5_11B = T5 | {"d_model": 1024, "d_kv": 128, "d_ff": 65536, "num_layers": 24, "num_heads": 128}
SIDES = {
    "d_model": 1024, "encoder_layers": 12, "decoder_layers": 12, "encoder_attention_heads": 16, "decoder_attention_heads": 16,
    "encoder_ffn_dim": 4096, "decoder_ffn_dim": 4096, "is_encoder_decoder": True, "max_position_embeddings": 1024,
}  # fmt: skip
BART = SIDES | {"model_type": "bart", "vocab_size": 50265, "num_hidden_layers": 12, "scale_embedding": False}
WHISPER = {
    "model_type": "whisper", "d_model": 1280, "encoder_layers": 32, "decoder_layers": 32, "encoder_attention_heads": 20,
    "decoder_attention_heads": 20, "encoder_ffn_dim": 5120, "decoder_ffn_dim": 5120, "num_mel_bins": 128, "vocab_size": 51866,
    "max_source_positions": 1500, "max_target_positions": 448, "is_encoder_decoder": True,
}  # fmt: skip
CLIP = {
    "model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096, "projection_dim": 768,
    "num_hidden_layers": 24, "num_attention_heads": 16, "num_channels": 3, "image_size": 224, "patch_size": 14,
}  # fmt: skip
DIT = {
    "_class_name": "DiTTransformer2DModel", "_diffusers_version": "0.12.0", "attention_bias": True, "attention_head_dim": 72,
    "activation_fn": "gelu-approximate", "in_channels": 4, "norm_type": "ada_norm_zero", "num_attention_heads": 16,
    "num_embeds_ada_norm": 1000, "num_layers": 28, "out_channels": 8, "patch_size": 2, "sample_size": 32, "dropout": 0.0,
    "norm_elementwise_affine": False, "upcast_attention": False,
}  # fmt: skip
FLUX = {
    "_class_name": "FluxTransformer2DModel", "_diffusers_version": "0.30.0.dev0", "attention_head_dim": 128, "in_channels": 64,
    "guidance_embeds": True, "joint_attention_dim": 4096, "num_attention_heads": 24, "num_layers": 19, "num_single_layers": 38,
    "patch_size": 1, "pooled_projection_dim": 768, "_name_or_path": "../checkpoints/flux-dev/transformer",
}  # fmt: skip
SD3 = {
    "_class_name": "SD3Transformer2DModel", "_diffusers_version": "0.29.0.dev0", "attention_head_dim": 64, "in_channels": 16,
    "caption_projection_dim": 1536, "joint_attention_dim": 4096, "num_attention_heads": 24, "num_layers": 24, "out_channels": 16,
    "patch_size": 2, "pooled_projection_dim": 2048, "pos_embed_max_size": 192, "sample_size": 128,
}  # fmt: skip
SD35_LARGE = SD3 | {"caption_projection_dim": 2432, "num_attention_heads": 38, "num_layers": 38, "qk_norm": "rms_norm"}
COUNTED = {
    "FLUX.1-dev": (FLUX, 11_901_408_320), "FLUX.1-schnell": (FLUX | {"guidance_embeds": False}, 11_891_178_560),
    "FLUX of eight layers": (FLUX | {"num_layers": 3, "num_single_layers": 5}, 1_791_577_920),
    "Stable Diffusion 3 medium": (SD3, 2_028_328_000), "Stable Diffusion 3.5 large": (SD35_LARGE, 8_056_627_520),
    "T5 base": (T5, 222_903_552), "T5 11B": (T5_11B, 11_307_321_344), "BART large": (BART, 406_291_456),
    "Whisper large-v3": (WHISPER, 1_543_490_560), "CLIP's ViT-L/14": (CLIP, 303_966_208), "DiT-XL/2": (DIT, 675_129_632),
}  # fmt: skip
"""Of Transformers' and diffusers' own classes on PyTorch's device without memory (5.24.0, 0.42.1), DiT's of its authors'
checkpoint, positions with it (facebookresearch/DiT models.py, ``DiT_XL_2``: 28 x 23,905,152 in layers)."""


def model_of(tmp_path, config) -> Transformer:
    (tmp_path / "config.json").write_text(json.dumps(config))
    return read(tmp_path / "config.json", "model").model


@pytest.mark.parametrize("name", COUNTED)
def test_a_count_is_that_of_the_class_itself(name, tmp_path):
    config, counted = COUNTED[name]
    model = model_of(tmp_path, config)
    assert model.parameters == pytest.approx(counted, rel=2e-4)
    assert sum(math.prod(one.shape) for one in parameter_tensors(model)) == model.parameters


@pytest.mark.parametrize("ratio", [1.0, 4.0, 0.25])
def test_flop_are_those_of_products_counted_one_by_one(ratio, tmp_path):
    """Encoder, decoder and cross-attention matrix by matrix, for sequences of 128 behind sources of as many times as long."""
    model = dataclasses.replace(model_of(tmp_path, T5), source_tokens=ratio)
    target, hidden, inner, wide = 128, 768, 3072, 12 * 64
    source = ratio * target
    flop = 0.0
    for length in (source,) * 12:
        flop += 2.0 * length * (4 * hidden * wide + 2 * hidden * inner) + 4.0 * length * length * wide
    for _ in range(12):
        flop += 2.0 * target * (4 * hidden * wide + 2 * hidden * inner) + 4.0 * target * target * wide
        flop += 2.0 * (2 * target + 2 * source) * hidden * wide + 4.0 * target * source * wide
    flop += 2.0 * target * hidden * 32128
    got = model.flop_per_token(target, causal=False) * target
    assert got == pytest.approx(3.0 * flop, rel=1e-9 if ratio == 1.0 else 0.02)


def test_a_decoder_s_own_scores_count_below_the_diagonal_alone(tmp_path):
    """Of an encoder's, a decoder's own and cross-attention's scores a causal count leaves out half of the second."""
    model = model_of(tmp_path, T5)
    every, below = (model.flop_per_token(512, causal=causal) for causal in (False, True))
    assert every - below == pytest.approx(3.0 * 12 * 4.0 * 768 * 512 / 2.0)


T5_3B = Transformer(
    name="t5-3b", layers=48, encoder_layers=24, source_tokens=4.0, hidden=2048, heads=32, feed_forward=5120, vocabulary=29184,
    norm="layernorm", attention_bias=True, output_bias=True, feed_forward_bias=True, tied_embeddings=True,
    learned_positions=512, dropout=True,
)  # fmt: skip
"""NVIDIA/NeMo-Framework-Launcher launcher_scripts/conf/training/t5/3b.yaml: 512 tokens of source and 128 of target."""
VIT_G = Transformer(
    name="vit-g-14", layers=40, hidden=1408, heads=16, feed_forward=6144, vocabulary=1000, gated=False, norm="layernorm",
    attention_bias=True, output_bias=True, feed_forward_bias=True, head_bias=True, causal=False, patch_values=588,
    learned_positions=259, dropout=True,
)  # fmt: skip
"""The same, conf/training/vit/g_14.yaml."""


@pytest.mark.parametrize(("gpus", "tokens_per_second"), [(8, 110_769), (16, 215_579), (80, 957_506), (160, 1_626_353)])
def test_nemo_s_published_t5_3b_is_met(gpus, tokens_per_second):
    """DGX A100, tensor degree 2, micro-batch 24 (docs.nvidia.com NeMo Framework, T5 Results); exchange hides under nothing
    (``overlap_grad_sync: False``), and attention's softmax is a fused kernel (``masked_softmax_fusion``)."""
    plan = Plan(global_batch=1920, seq_len=128, micro_batch=24, tensor_parallel=2, zero_stage=1, attention="fused-softmax",
                overlap_gradients=False, overlap_parameters=False)  # fmt: skip
    found = estimate(T5_3B, load_cluster("dgx-a100", gpus=gpus), plan, framework="nemo")
    measured = 1920 * 512 / tokens_per_second
    low, high = found.time_interval
    assert low < measured < high
    assert found.step_time == pytest.approx(measured, rel=0.2)
    assert found.memory.total < 80e9


@pytest.mark.parametrize(("cluster", "images_per_second"), [("dgx-a100", 693), ("dgx-h100", 1428)])
def test_nemo_s_published_vit_g_lies_in_the_interval(cluster, images_per_second):
    """Eight GPUs, micro-batch 64 (docs.nvidia.com NeMo Framework, Vision Transformer, performance)."""
    plan = Plan(global_batch=4096, seq_len=257, micro_batch=64, zero_stage=0, attention="fused-softmax")
    found = estimate(VIT_G, load_cluster(cluster, gpus=8), plan, framework="nemo")
    low, high = found.time_interval
    assert low < 4096 / images_per_second < high
    assert found.step_time == pytest.approx(4096 / images_per_second, rel=0.3)


def test_a_published_step_of_dit_lies_in_the_interval(tmp_path):
    """One A100, 128 images, recomputed, mixed precision, features made before: 0.84 steps/s (chuanyangjin/fast-DiT@0d14a15
    README.md), with a moving average of the weights, which is left out here."""
    plan = Plan(global_batch=128, seq_len=256, micro_batch=128, recompute="full", dtype="fp16", attention="unfused")
    found = estimate(model_of(tmp_path, DIT), load_cluster("dgx-a100", gpus=1), plan, framework="hf-trainer")
    low, high = found.time_interval
    assert low < 1.0 / 0.84 < high


def test_every_token_of_an_image_and_a_text_meets_one_stream_of_flux(tmp_path):
    """Twelve matrices of 3,072 a layer for each of 4,096 patches and 512 tokens, which all meet each other, and both ends."""
    model, tokens, hidden = model_of(tmp_path, FLUX), 4096 + 512, 3072
    flop = 57 * (2.0 * 12 * hidden**2 + 4.0 * tokens * hidden) + 2.0 * 64 * hidden
    assert model.flop_per_token(tokens, causal=False) == pytest.approx(3.0 * flop, rel=1e-9)
    plan = Plan(global_batch=8, seq_len=tokens, tensor_parallel=4)
    split, whole = (estimate(model, load_cluster("dgx-h100", gpus=8), one).memory.weights for one in (
        plan, dataclasses.replace(plan, tensor_parallel=1)))  # fmt: skip
    conditions = 6 * 57 * 2.0 * hidden**2  # what makes scales and shifts isn't split
    assert split == pytest.approx(conditions + (whole - conditions) / 4, rel=0.02)


def test_a_published_fine_tune_of_flux_lies_in_the_interval(tmp_path):
    """FLUX.1-dev with adapters on a DGX Spark: 1,000 steps of four images of 1,024 pixels in about eight hours, 71.4 GB in use
    (blog.mikihands.com, DGX Spark FLUX.1-dev LoRA fine-tuning, November 2025); texts of 512 tokens beside 4,096 patches."""
    plan = Plan(global_batch=4, seq_len=4096 + 512, micro_batch=1, adapter="lora", recompute="full")
    found = estimate(model_of(tmp_path, FLUX), machine("dgx-spark", 1), plan, framework="hf-trainer")
    low, high = found.time_interval
    assert low < 8 * 3600 / 1000 < high
    assert found.step_time == pytest.approx(8 * 3600 / 1000, rel=0.2)
    assert found.memory.total < 71.4e9


def test_a_text_encoder_is_a_frozen_part_before_a_diffusion_transformer(tmp_path):
    text = Transformer(
        name="t5-xxl", layers=24, hidden=4096, heads=64, head_dim=64, feed_forward=10240, vocabulary=32128, tied_embeddings=True,
        causal=False,
    )  # fmt: skip
    assert text.parameters == pytest.approx(4.76e9, rel=0.01)  # google/t5-v1_1-xxl, its encoder alone
    step = multimodal(
        model_of(tmp_path, FLUX), load_cluster("dgx-h100", gpus=8), Plan(global_batch=32, seq_len=4096 + 512, zero_stage=3),
        [Tower(model=text, tokens=512, trains=False)], framework="fsdp2",
    )  # fmt: skip
    tower = step.towers[0]
    assert 0.0 < tower.time < 0.1 * step.step_time and tower.activations == 0.0
    assert step.parameters == pytest.approx(16.66e9, rel=0.01)


def test_an_encoder_decoder_is_searched_with_a_pipeline_too(tmp_path):
    found = search(model_of(tmp_path, T5_11B), load_cluster("dgx-h100", gpus=16), global_batch=256, seq_len=512,
                   pipeline_parallel=[1, 2], top=200)  # fmt: skip
    assert {one.plan.pipeline_parallel for one in found.ranked} == {1, 2}
    for one in found.ranked[:3]:
        assert estimate(one.model, one.cluster, one.plan).step_time == pytest.approx(one.step_time, rel=1e-9)


def test_longer_sources_take_longer_and_hold_more(tmp_path):
    plan, cluster = Plan(global_batch=64, seq_len=256, micro_batch=8, zero_stage=1), load_cluster("dgx-h100", gpus=8)
    model = model_of(tmp_path, T5_11B)
    answers = [estimate(dataclasses.replace(model, source_tokens=ratio), cluster, plan) for ratio in (0.5, 1.0, 2.0, 4.0)]
    for one, other in itertools.pairwise(answers):
        assert other.step_time > one.step_time and other.memory.activations > 1.2 * one.memory.activations
        assert other.memory.weights == one.memory.weights


def test_a_note_says_what_is_taken_of_the_source(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(WHISPER))
    assert any("3.35 times as many tokens" in note for note in read(tmp_path / "config.json", "whisper").notes)


@pytest.mark.parametrize(("config", "words"), [
    ({"model_type": "clip"}, "two towers"), ({"_class_name": "Flux2Transformer2DModel"}, "joint attention"),
    ({"_class_name": "UNet2DConditionModel"}, "convolutions"), (DIT | {"norm_type": "ada_norm"}, "norm_type"),
    (BART | {"decoder_ffn_dim": 2048}, "sides of unlike layers"), (T5 | {"is_encoder_decoder": False}, "is_encoder_decoder"),
])  # fmt: skip
def test_what_is_not_modelled_is_refused_by_its_name(config, words, tmp_path):
    with pytest.raises(NotModelled, match=words):
        model_of(tmp_path, config)


@pytest.mark.parametrize(("fields", "words"), [
    ({"encoder_layers": 48}, "encoder_layers=48"), ({"encoder_layers": 0}, "source_tokens=4.0"),
    ({"causal": False}, "encoder_layers"),
])  # fmt: skip
def test_an_encoder_that_no_decoder_follows_is_refused(fields, words):
    with pytest.raises(InvalidValue, match=words):
        dataclasses.replace(T5_3B, **fields)

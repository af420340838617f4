"""Decoders whose layers differ in their heads: Gemma 4, counted by Hugging Face Transformers itself."""

import json

import pytest

from costmodel import Plan, Transformer, estimate, load_cluster
from costmodel.description.huggingface import read
from costmodel.description.tensors import stage_tensors
from costmodel.text.errors import InvalidValue, NotModelled
from tests.tensors import parameter_tensors

BASE = {
    "model_type": "gemma4_text", "vocab_size": 262144, "head_dim": 256, "global_head_dim": 512, "hidden_size_per_layer_input": 0,
}  # fmt: skip
LARGE = BASE | {"attention_k_eq_v": True, "sliding_window": 1024}
DENSE = LARGE | {
    "hidden_size": 5376, "num_hidden_layers": 60, "num_attention_heads": 32, "num_key_value_heads": 16,
    "num_global_key_value_heads": 4, "intermediate_size": 21504,
}  # fmt: skip
MIXED = LARGE | {
    "hidden_size": 2816, "num_hidden_layers": 30, "num_attention_heads": 16, "num_key_value_heads": 8,
    "num_global_key_value_heads": 2, "intermediate_size": 2112, "enable_moe_block": True, "num_experts": 128,
    "top_k_experts": 8, "moe_intermediate_size": 704,
}  # fmt: skip
SMALL = BASE | {
    "hidden_size": 1536, "num_hidden_layers": 35, "num_attention_heads": 8, "num_key_value_heads": 1, "intermediate_size": 6144,
    "sliding_window": 512, "num_kv_shared_layers": 20, "use_double_wide_mlp": True, "hidden_size_per_layer_input": 256,
    "layer_types": [*["sliding_attention"] * 4, "full_attention"] * 7,
}  # fmt: skip
MIDDLE = BASE | {
    "hidden_size": 2560, "num_hidden_layers": 42, "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 10240,
    "sliding_window": 512, "num_kv_shared_layers": 18, "hidden_size_per_layer_input": 256,
}  # fmt: skip
WHOLE = range(5, 60, 6)
AS_WRITTEN = {key: DENSE[key] for key in DENSE if not key.startswith(("global_", "num_global_"))} | {
    "layer_types": ["full_attention" if layer in WHOLE else "sliding_attention" for layer in range(60)],
    "per_layer_config": {f"{layer:02}": {"head_dim": 512, "num_key_value_heads": 4} for layer in WHOLE},
}  # fmt: skip
# Sums over the parameters of Gemma4ForCausalLM on the meta device, transformers 5.24.0 with torch 2.13.0.
COUNTED = {
    "31B": (DENSE, 30_697_345_280), "31B as Transformers 5 writes it": (AS_WRITTEN, 30_697_345_280),
    "26B-A4B": (MIXED, 25_233_141_760), "E2B": (SMALL, 4_628_569_344), "E4B": (MIDDLE, 7_463_013_376),
}  # fmt: skip


def model_of(folder, config):
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return read(folder, "model").model


@pytest.mark.parametrize("name", COUNTED)
def test_gemma_4_has_the_parameters_that_transformers_counts(name, tmp_path):
    # What is left out: a router's scales of experts, the norm of 256 channels behind the embeddings of layers.
    model = model_of(tmp_path, COUNTED[name][0])
    assert model.parameters == pytest.approx(COUNTED[name][1], rel=2e-7)


@pytest.mark.parametrize("config", [DENSE, MIXED, SMALL, MIDDLE])
def test_tensors_of_layers_of_two_shapes_add_up_to_the_parameters(config, tmp_path):
    model = model_of(tmp_path, config)
    assert sum(tensor.numel for tensor in parameter_tensors(model)) == model.parameters
    stage = stage_tensors(
        model, layers=range(model.layers), embedding=True, head=True, tensor=1, expert=1, expert_tensor=1
    )
    assert stage.numel.sum() == model.parameters


def test_scores_are_those_of_each_layer_s_own_heads_and_window(tmp_path):
    # 50 layers of 32 heads of 256 that look back 1,024 tokens, ten of 32 heads of 512 that look at all.
    model, length = model_of(tmp_path, DENSE), 16384
    matrices = 50 * (2 * 32 + 2 * 16) * 256 * 5376 + 10 * (2 * 32 + 4) * 512 * 5376 + 60 * 3 * 5376 * 21504 + 262144 * 5376
    scores = 50 * 32 * 2 * 256 * (1024 - 1024**2 / (2 * length)) + 10 * 32 * 2 * 512 * length / 2
    assert model.flop_per_token(length) == pytest.approx(6 * (matrices + scores), rel=1e-12)


def test_layers_that_share_keys_project_none_and_an_embedding_of_each_layer_is_multiplied(tmp_path):
    # Fifteen layers with keys: twelve of one head of 256, three of 512; all the others take these.
    model, length = model_of(tmp_path, SMALL), 512
    heads = 28 * 8 * 256 + 7 * 8 * 512
    keys = 12 * 256 + 3 * 512
    width = 15 * 6144 + 20 * 2 * 6144
    matrices = 1536 * (2 * heads + 2 * keys + 3 * width + 3 * 35 * 256 + 262144)
    assert model.flop_per_token(length) == pytest.approx(6 * (matrices + 2 * heads * length / 2), rel=1e-12)


def test_the_most_of_a_small_gemma_s_parameters_are_embeddings_of_its_layers(tmp_path):
    parts = model_of(tmp_path, SMALL).parameters_by_part()
    assert parts["embedding"] == 262144 * (1536 + 35 * 256)


@pytest.mark.parametrize("config", [DENSE, MIXED, SMALL])
def test_layers_of_two_shapes_are_estimated(config, tmp_path):
    model, cluster = model_of(tmp_path, config), load_cluster("dgx-h100", gpus=64)
    plan = Plan(global_batch=64, seq_len=4096, tensor_parallel=2, recompute="full")
    told = estimate(model, cluster, plan, framework="megatron-core")
    assert 0.02 < told.mfu < 0.7 and told.memory.total > 0


def test_a_window_of_the_same_shape_changes_nothing():
    shape = {"layers": 6, "hidden": 256, "heads": 8, "head_dim": 64, "kv_heads": 2, "vocabulary": 1000, "feed_forward": 512}
    windows = {"sliding_window": 64, "windowed_layers": 5}
    plain = Transformer(name="model", **shape, **windows)
    said = Transformer(name="model", **shape, **windows, windowed_heads=8, windowed_kv_heads=2, windowed_head_dim=64)
    assert plain.numbers() == said.numbers()


def test_values_of_another_width_than_keys_are_counted():
    model = Transformer(
        name="model", layers=1, hidden=256, heads=4, kv_heads=2, head_dim=48, value_head_dim=32, vocabulary=10, feed_forward=8
    )
    assert model.parameters_by_part()["attention_of_a_layer"] == 256 * (4 * 48 + 2 * 48 + 2 * 32 + 4 * 32)
    assert sum(tensor.numel for tensor in parameter_tensors(model)) == model.parameters


REFUSED = {
    "another vocabulary of each layer": (SMALL | {"vocab_size_per_layer_input": 1000}, "vocab_size_per_layer_input=1000"),
    "an MLP of each layer": (
        AS_WRITTEN | {"per_layer_config": {"05": {"intermediate_size": 7}}}, "per_layer_config with 'intermediate_size'",
    ),
    "layers of one kind that differ": (AS_WRITTEN | {"per_layer_config": {"05": {"head_dim": 512}}}, "layers of one kind"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_isn_t_modelled_of_layers_of_two_shapes_is_named(case, tmp_path):
    config, words = REFUSED[case]
    with pytest.raises(NotModelled, match=words):
        model_of(tmp_path, config)


@pytest.mark.parametrize("wrong", [
    {"windowed_heads": 8}, {"sliding_window": 8, "windowed_layers": 1, "windowed_kv_heads": 3}, {"kv_sharing_layers": 2},
    {"sharing_feed_forward": 8}, {"kv_sharing_layers": 1, "recurrence": "lightning", "recurrent_layers": 1, "recurrent_heads": 1,
     "recurrent_state": 4, "recurrent_head_dim": 4},
])  # fmt: skip
def test_a_wrong_number_of_layers_of_two_shapes_is_named(wrong):
    with pytest.raises(InvalidValue, match=next(iter(wrong)) if "sliding_window" not in wrong else "windowed_kv_heads"):
        Transformer(name="model", layers=2, hidden=64, heads=4, vocabulary=10, feed_forward=64, **wrong)

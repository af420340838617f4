"""Decoders whose windowed layers have more heads than the others: Step 3.5 and 3.7, Laguna."""

import json

import pytest

from costmodel.description.huggingface import read
from costmodel.text.errors import InvalidValue, NotModelled
from tests.tensors import parameter_tensors

PATTERN = ["full_attention", *["sliding_attention"] * 3]
STEP = {
    "model_type": "step3p5", "hidden_size": 4096, "intermediate_size": 11264, "num_hidden_layers": 45, "vocab_size": 128896,
    "num_attention_heads": 64, "num_attention_groups": 8, "head_dim": 128, "moe_num_experts": 288, "moe_top_k": 8,
    "moe_intermediate_size": 1280, "share_expert_dim": 1280, "moe_layers_enum": ",".join(map(str, range(3, 45))),
    "use_head_wise_attn_gate": True, "use_moe": True, "moe_every_n_layer": 1, "sliding_window": 512, "layer_types": PATTERN * 12,
    "rope_theta": [5e6, 1e4, 1e4, 1e4] * 12, "partial_rotary_factors": [0.5, 1.0, 1.0, 1.0] * 12, "use_moe_router_bias": True,
    "attention_other_setting": {"attention_type": "sliding_attention", "num_attention_heads": 96, "num_attention_groups": 8,
                                "head_dim": 128, "true_head_dim": 128},
    "num_nextn_predict_layers": 3, "moe_router_activation": "sigmoid", "need_fp32_gate": True, "tie_word_embeddings": False,
}  # fmt: skip
"""Step-3.5-Flash: 196B parameters, of which 11B work on a token (stepfun-ai/Step-3.5-Flash README.md)."""
SHORT = STEP | {"num_hidden_layers": 8, "vocab_size": 128815, "layer_types": PATTERN * 2, "moe_layers_enum": "3,4,5,6,7",
                "num_nextn_predict_layers": 0}  # fmt: skip
LAGUNA = {
    "model_type": "laguna", "hidden_size": 2048, "num_hidden_layers": 4, "vocab_size": 100352, "num_attention_heads": 48,
    "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 8192, "moe_intermediate_size": 512, "num_experts": 256,
    "num_experts_per_tok": 8, "shared_expert_intermediate_size": 512, "sliding_window": 512, "gating": True,
    "layer_types": PATTERN, "num_attention_heads_per_layer": [48, 64, 64, 64], "mlp_layer_types": ["dense", *["sparse"] * 3],
}  # fmt: skip


def reading(folder, config):
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return read(folder).model


def test_step_3_5_flash_is_as_large_as_published(tmp_path):
    model = reading(tmp_path, STEP)
    assert model.parameters == pytest.approx(196e9, rel=0.01)
    assert model.active_parameters == pytest.approx(11e9, rel=0.1)  # embeddings may or may not count
    assert (model.windowed_heads, model.windowed_layers, model.sliding_window, model.prediction_layers) == (96, 33, 512, 3)
    assert (model.dense_layers, model.expert_layers) == (3, 42)


@pytest.mark.parametrize(("config", "parameters"), [(SHORT, 25_012_533_248), (LAGUNA, 3_031_420_672)], ids=["step", "laguna"])
def test_layers_of_two_widths_have_the_parameters_that_transformers_counts(config, parameters, tmp_path):
    model = reading(tmp_path, config)  # transformers 5.24 on the meta device; gates of one output a head are left out
    assert model.parameters == pytest.approx(parameters, rel=2e-4)
    assert sum(tensor.numel for tensor in parameter_tensors(model)) == model.parameters


def test_a_file_that_transformers_saved_says_the_same(tmp_path):
    kinds = {"mlp_layer_types": ["dense"] * 3 + ["sparse"] * 5, "num_sliding_attention_heads": 96, "num_key_value_heads": 8,
             "n_routed_experts": 288, "num_experts_per_tok": 8}  # fmt: skip
    windows = {str(layer): {"num_attention_heads": 96} for layer in range(8) if layer % 4}
    old = {"attention_other_setting", "moe_layers_enum", "num_attention_groups", "moe_num_experts", "moe_top_k"}
    saved = {key: value for key, value in SHORT.items() if key not in old} | kinds
    ours = reading(tmp_path, SHORT)
    assert reading(tmp_path, saved) == ours
    assert reading(tmp_path, saved | {"per_layer_config": windows}) == ours
    assert reading(tmp_path, {"model_type": "step3p7", "text_config": SHORT, "vision_config": {}}) == ours


@pytest.mark.parametrize(("base", "change", "error", "says"), [
    (STEP, {"moe_layers_enum": "3,four"}, InvalidValue, "moe_layers_enum"),
    (STEP, {"moe_layers_enum": 3}, InvalidValue, "moe_layers_enum"),
    (STEP, {"attention_other_setting": [96]}, InvalidValue, "attention_other_setting"),
    (STEP, {"attention_other_setting": {"head_dim": 64}}, NotModelled, "head_dim=64"),
    (STEP, {"use_moe": False}, NotModelled, "use_moe"),
    (LAGUNA, {"num_attention_heads_per_layer": [48, 64, 64, 32]}, NotModelled, "layers of one kind differ"),
    (LAGUNA, {"num_attention_heads_per_layer": [48]}, InvalidValue, "one entry for each of 4 layers"),
])  # fmt: skip
def test_layers_that_are_not_modelled_are_refused(base, change, error, says, tmp_path):
    with pytest.raises(error, match=says):
        reading(tmp_path, base | change)

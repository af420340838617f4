"""Towers of images that are read from a ``config.json``: parameters as Transformers counts them, and what is refused."""

import json
from pathlib import Path

import pytest

from costmodel.description.huggingface import read
from costmodel.description.huggingface.vision import read_tower
from costmodel.description.transformer import Transformer
from costmodel.text.errors import InvalidValue, NotModelled
from tests.tensors import parameter_tensors

HERE = Path(__file__).resolve()
ROWS = json.loads((HERE.parent / "vision_towers.json").read_text(encoding="utf-8"))
"""Tables of four published files and of the configuration classes of transformers 5.24.0, and the parameters that the module on
PyTorch's meta device has beside those of its text model and output projection."""
LLAMA_VISION = HERE.parents[3] / "shared" / "reference" / "hf" / "llama-3.2-11b-vision.json"


def reading(folder, config, text_hidden):
    file = folder / "config.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    return read_tower(file, text_hidden)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["config"]["model_type"])
def test_tower_and_connector_have_the_parameters_that_transformers_counts(row, tmp_path):
    tower = reading(tmp_path, row["config"], row["text_hidden"])
    assert tower.model.parameters + tower.connector.parameters == pytest.approx(row["parameters"], rel=4e-6)
    assert sum(tensor.numel for tensor in parameter_tensors(tower.model)) == tower.model.parameters


@pytest.mark.parametrize(("kind", "tokens", "of_language"), [
    ("llava", 577, 576), ("gemma3", 4096, 256), ("paligemma", 256, 256), ("mllama", 4 * 1601, 4 * 1601), ("internvl", 1025, 256),
])  # fmt: skip
def test_an_image_has_the_tokens_that_its_processor_makes(kind, tokens, of_language, tmp_path):
    row = next(row for row in ROWS if row["config"]["model_type"] == kind)
    tower = reading(tmp_path, row["config"], row["text_hidden"])
    assert tower.tokens == tokens
    assert tower.tokens / tower.merged == pytest.approx(of_language)


def test_windows_of_a_tower_hold_as_many_patches_as_their_square(tmp_path):
    row = next(row for row in ROWS if row["config"]["model_type"] == "qwen2_5_vl")
    model = reading(tmp_path, row["config"], row["text_hidden"]).model
    assert (model.sliding_window, model.windowed_layers, model.causal) == ((112 // 14) ** 2, 28, False)


@pytest.mark.parametrize(("change", "says"), [
    ({"model_type": "florence_vl"}, "model_type='florence_vl' is not modelled with its tower"),
    ({"vision_config": {"model_type": "swin"}}, "model_type='swin' of its tower is not modelled"),
    ({"vision_config": {"model_type": "siglip_vision_model", "vision_use_head": True}}, "a pooled head"),
    ({"vision_config": {"model_type": "internvl_vision", "norm_type": "rms_norm"}}, "InternViT with RMSNorms"),
])  # fmt: skip
def test_a_tower_that_is_not_modelled_is_refused_by_name(change, says, tmp_path):
    with pytest.raises(NotModelled, match="(?s)" + says):
        reading(tmp_path, {"model_type": "llava", "vision_config": {"model_type": "clip_vision_model"}} | change, 4096)


@pytest.mark.parametrize("config", [{"model_type": "llava"}, {"model_type": "llava", "vision_config": None}])
def test_a_file_without_a_tower_is_refused(config, tmp_path):
    with pytest.raises(InvalidValue, match="a tower of images"):
        reading(tmp_path, config, 4096)


def test_a_number_that_a_table_can_not_have_is_refused(tmp_path):
    for key, value in (("num_hidden_layers", -1), ("hidden_size", "wide"), ("patch_size", 0), ("image_size", 1e99)):
        with pytest.raises(InvalidValue):
            reading(tmp_path, {"model_type": "llava", "vision_config": {"model_type": "clip_vision_model", key: value}}, 4096)


@pytest.mark.skipif(not LLAMA_VISION.is_file(), reason="no reference folder beside the checkout")
def test_llama_3_2_vision_is_as_large_as_published_with_its_tower():
    language = read(LLAMA_VISION).model
    assert language.cross_attention_layers == 8
    assert language.parameters == pytest.approx(9_775_192_080, rel=1e-5)  # transformers 5.24, on the meta device
    tower = read_tower(LLAMA_VISION, language.hidden)
    assert language.parameters + tower.model.parameters + tower.connector.parameters == pytest.approx(10.6e9, rel=0.01)


@pytest.mark.parametrize(("fields", "says"), [
    ({"windowed_layers": 2, "sliding_window": 64}, "windowed_layers=2"), ({"causal": False}, "causal layers"),
    ({"encoder_layers": 2}, "cross_attention_layers=2"), ({"cross_attention_layers": 4}, "cross_attention_layers=4"),
    ({"cross_attention_layers": 0, "source_tokens": 2.0}, "source_tokens=2"),
])  # fmt: skip
def test_layers_that_attend_to_images_are_those_of_a_plain_decoder(fields, says):
    shape = {"layers": 4, "hidden": 64, "heads": 4, "vocabulary": 100, "feed_forward": 128, "cross_attention_layers": 2}
    assert Transformer(name="plain", **shape).cross_attention_layers == 2
    with pytest.raises(InvalidValue, match=says):
        Transformer(name="other", **{**shape, **fields})


@pytest.mark.parametrize("layers", [None, [3, 40], [True], "3"])
def test_layers_that_attend_to_images_are_listed(layers, tmp_path):
    config = {
        "model_type": "mllama_text_model", "hidden_size": 64, "num_hidden_layers": 40, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 100, "cross_attention_layers": layers,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(InvalidValue, match="cross_attention_layers"):
        read(tmp_path)

"""Parameter counts of what is read: those of Hugging Face Transformers to 0.05 %, of real files within 1 %."""

import csv
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costmodel import Plan, load_framework
from costmodel.catalogue.changes import replace
from costmodel.description.huggingface import FAMILIES, read
from costmodel.description.huggingface.refused import REFUSED
from costmodel.description.huggingface.vision import read_tower
from costmodel.formulas.transformer.activations import layer_activations
from costmodel.text.errors import CostModelError, NotModelled
from tests.tensors import parameter_tensors

HERE = Path(__file__).resolve()
REAL = HERE.parents[3] / "shared" / "reference" / "hf"
ROWS = json.loads((HERE.parent / "transformers_counts.json").read_text(encoding="utf-8"))
"""Configuration classes' defaults at six layers, and the same with one yes or no turned over: parameters of the module that
Transformers 5.23 builds on PyTorch's meta device."""
BASES = {row["config"]["model_type"]: row["config"] for row in ROWS if "config" in row}
CASES = [(row.get("config") or BASES[row["model_type"]] | row["change"], row["parameters"]) for row in ROWS]

# What a Transformer leaves out of these: scales of a projection, norms between products, biases of a router.
CLOSE = {"bitnet", "apertus", "ernie4_5_moe", "gpt_oss", "axk1", "modernbert", "mpt", "stablelm", "helium"}


def reading(folder, config):
    file = folder / "config.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    return read(file, "model")


@pytest.mark.parametrize("kind", BASES)
def test_a_family_has_the_parameters_that_transformers_counts(kind, tmp_path):
    for config, parameters in CASES:
        if config["model_type"] == kind:
            model = reading(tmp_path, config).model
            untied_encoder = not model.causal and not config.get("tie_word_embeddings", True)  # a bias is stored twice
            exact = kind not in CLOSE and not untied_encoder
            assert model.parameters == pytest.approx(parameters, rel=0 if exact else 5e-4, abs=0), config


DEFAULTS = json.loads((HERE.parent / "transformers_defaults.json").read_text(encoding="utf-8"))
"""Configuration classes of transformers 5.24.0 with all their layers, and the parameters that it counts."""


@pytest.mark.parametrize("row", DEFAULTS, ids=lambda row: row["config"]["model_type"])
def test_a_family_of_2026_has_the_parameters_that_transformers_counts(row, tmp_path):
    counted = pytest.approx(row["parameters"], rel=row.get("within", 0), abs=0)  # biases of gates are left out
    assert reading(tmp_path, row["config"]).model.parameters == counted


@pytest.mark.parametrize("kind", sorted(BASES.keys() & {
    "opt", "phi", "gptj", "olmo", "qwen2_moe", "deepseek_v32", "bert", "vit", "gpt2", "glm4_moe", "llama4_text",
}))  # fmt: skip
def test_tensors_add_up_to_the_parameters(kind, tmp_path):
    model = reading(tmp_path, BASES[kind]).model
    assert sum(tensor.numel for tensor in parameter_tensors(model)) == model.parameters


OPT_350M = {
    "model_type": "opt", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "ffn_dim": 4096,
    "vocab_size": 50272, "max_position_embeddings": 2048, "word_embed_proj_dim": 512, "do_layer_norm_before": False,
}  # fmt: skip
BERT = {
    "model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
    "vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2, "hidden_dropout_prob": 0.1,
}  # fmt: skip
ROBERTA = BERT | {"model_type": "roberta", "vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1}
VIT = {
    "model_type": "vit", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
    "image_size": 224, "patch_size": 16, "num_channels": 3, "num_labels": 1000,
}  # fmt: skip
DBRX = {
    "model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "vocab_size": 100352, "max_seq_len": 32768,
    "attn_config": {"clip_qkv": 8, "kv_n_heads": 8, "rope_theta": 500000}, "resid_pdrop": 0.0,
    "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
}  # fmt: skip
BAICHUAN = {
    "model_type": "baichuan", "hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 40,
    "intermediate_size": 13696, "vocab_size": 64000, "model_max_length": 4096,
}  # fmt: skip
CHATGLM = {
    "model_type": "chatglm", "hidden_size": 4096, "num_layers": 28, "num_attention_heads": 32, "ffn_hidden_size": 13696,
    "padded_vocab_size": 65024, "kv_channels": 128, "multi_query_attention": True, "multi_query_group_num": 2,
    "add_qkv_bias": True, "add_bias_linear": False, "seq_length": 8192, "rmsnorm": True, "post_layer_norm": True,
}  # fmt: skip
ARCTIC = {
    "model_type": "arctic", "hidden_size": 7168, "num_hidden_layers": 35, "num_attention_heads": 56, "num_key_value_heads": 8,
    "intermediate_size": 4864, "vocab_size": 32000, "num_local_experts": 128, "num_experts_per_tok": 2,
    "moe_layer_frequency": 1, "parallel_attn_mlp_res": True,
}  # fmt: skip
MAVERICK = {
    "model_type": "llama4_text", "hidden_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 40,
    "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
    "vocab_size": 202048, "num_local_experts": 128, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2,
}  # fmt: skip

PUBLISHED = {
    "OPT-350M (elements of the checkpoint, facebook/opt-350m)": (OPT_350M, 331_196_416, 0.0),
    "BERT base uncased with its masked-LM head (google-bert/bert-base-uncased)": (BERT, 109_514_298, 0.0),
    "RoBERTa base with its masked-LM head (FacebookAI/roberta-base)": (ROBERTA, 124_697_433, 0.0),
    "ViT-B/16 with 1,000 classes (google/vit-base-patch16-224)": (VIT, 86_567_656, 0.0),
    "DBRX, 132B (model card)": (DBRX, 132e9, 0.01),
    "Baichuan-13B, 13.26B (model card: 13,264,901,120)": (BAICHUAN, 13_264_901_120, 0.001),
    "ChatGLM3-6B, 6.24B (elements of the checkpoint)": (CHATGLM, 6_243_584_000, 0.001),
    "Snowflake Arctic, 480B (model card)": (ARCTIC, 480e9, 0.01),
    "Llama 4 Maverick, 400B (model card)": (MAVERICK, 400e9, 0.01),
}


@pytest.mark.parametrize("what", PUBLISHED)
def test_a_published_count_is_met(what, tmp_path):
    config, count, tolerance = PUBLISHED[what]
    assert reading(tmp_path, config).model.parameters == pytest.approx(count, rel=tolerance, abs=0)


@pytest.mark.skipif(not REAL.is_dir(), reason="the optional reference folder is absent")
def test_a_real_file_is_read_within_a_hundredth_or_refused_by_name():
    for row in csv.DictReader((REAL / "expected.csv").read_text(encoding="utf-8").splitlines()):
        if row["model_type"] in REFUSED:
            with pytest.raises(NotModelled, match="not modelled: it has"):
                read(REAL / row["file"])
            continue
        found = read(REAL / row["file"])
        published = float(row["check_params"] or row["published_params"])
        beside = 0
        if row["architecture"] == "vlm" and not row["check_params"]:  # the published count has the tower's
            tower = read_tower(REAL / row["file"], found.model.hidden)
            beside = tower.model.parameters + tower.connector.parameters
        assert found.model.parameters + beside == pytest.approx(published, rel=0.01), row["file"]
        noted = row["architecture"] in ("vlm", "hybrid-ssm") or "quantization_config" in (REAL / row["file"]).read_text()
        assert bool(found.notes) == noted


def test_what_is_read_is_not_refused():
    assert not FAMILIES.keys() & REFUSED.keys()


@pytest.mark.parametrize("kind", REFUSED)
def test_an_architecture_that_is_not_modelled_is_refused_by_its_name(kind, tmp_path):
    with pytest.raises(NotModelled) as caught:
        reading(tmp_path, {"model_type": kind, "hidden_size": 64})
    assert REFUSED[kind] in str(caught.value)


LLAMA = BASES["llama"]


def test_keys_that_leave_the_shape_alone_are_passed_over_and_listed(tmp_path):
    strange = {"wandb_run": "3f9", "_private_size": 7, "notes": "mine", "time_step_limit": [0.0, 1], "rope_theta": float("inf")}
    found = reading(tmp_path, LLAMA | {"note_to_self": "x", "learning_rate": 1e-4} | strange | {"time_step_limit": None})
    assert found.model.parameters == reading(tmp_path, LLAMA).model.parameters
    assert set(found.passed_over) == {"note_to_self", "learning_rate", "_private_size", "notes"}


def test_a_byte_order_mark_is_no_obstacle(tmp_path):
    (tmp_path / "config.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(LLAMA).encode())
    assert read(tmp_path).model.layers == LLAMA["num_hidden_layers"]


def test_a_key_that_could_change_the_shape_names_who_knows_it(tmp_path):
    with pytest.raises(NotModelled, match=r"type_vocab_size belongs to bert.*costmodel new model"):
        reading(tmp_path, LLAMA | {"type_vocab_size": 2})


def test_a_multimodal_file_is_read_by_its_text_tower_and_says_so(tmp_path):
    text = {**LLAMA, "model_type": "llama"}
    found = reading(tmp_path, {"model_type": "llava", "text_config": text, "vision_config": {"hidden_size": 1024}})
    assert found.model.parameters == reading(tmp_path, LLAMA).model.parameters
    assert "text tower" in found.notes[0] and "vision_config" in found.notes[0]


def test_how_weights_are_stored_is_said(tmp_path):
    assert "'gptq'" in reading(tmp_path, LLAMA | {"quantization_config": {"quant_method": "gptq", "bits": 4}}).notes[0]


def test_an_encoder_attends_to_every_token(tmp_path):
    encoder = reading(tmp_path, BERT).model
    assert encoder.flop_per_token(512, causal=True) == encoder.flop_per_token(512, causal=False)


STRANGE = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 10**30), st.floats(), st.text(max_size=5), st.lists(st.integers(-1, 4), max_size=3),
    st.dictionaries(st.sampled_from(["a", "model_type", "hidden_size"]), st.integers(), max_size=2),
)  # fmt: skip


@given(st.sampled_from(sorted(BASES)), st.data())
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
def test_a_strange_value_is_read_or_refused_in_one_line(tmp_path, kind, data):
    base = BASES[kind]
    key = data.draw(st.sampled_from([*base, "text_config", "quantization_config", "layer_types", "is_causal", "head_dim"]))
    try:
        reading(tmp_path, base | {key: data.draw(STRANGE)})
    except CostModelError as error:
        assert str(error).isprintable() and len(str(error)) < 1000


def test_a_window_of_an_encoder_lies_around_each_token(tmp_path):
    # ModernBERT: 128 tokens in two layers of three, everything in the third.
    model = reading(tmp_path, BASES["modernbert"]).model
    wide = replace(model, {"windowed_layers": 0, "sliding_window": 0})
    keys = (wide.flop_per_token(8192) - model.flop_per_token(8192)) / (3 * 4 * model.hidden)
    assert keys == pytest.approx(model.windowed_layers * (8192 - 128))


def test_sparse_attention_costs_its_top_keys_and_an_indexer_over_all(tmp_path):
    # DeepSeek-V3.2-Exp report, section 2: core attention falls from O(L^2) to O(L k), the indexer stays O(L^2).
    sparse = reading(tmp_path, BASES["deepseek_v32"]).model
    dense = reading(tmp_path, BASES["deepseek_v3"]).model
    longer, long = 2**20, 2**19
    indexed = 2 * 64 * 128 / 2 * 6  # FLOP per token and key, half of the keys, six layers
    growth = (sparse.flop_per_token(longer) - sparse.flop_per_token(long)) / (longer - long) / 3
    assert growth == pytest.approx(indexed, rel=1e-3)
    assert sparse.flop_per_token(longer) < 0.2 * dense.flop_per_token(longer)


def test_chatglm_copies_shared_keys_and_values_for_each_query_and_weighs_norms_in_32_bit(tmp_path):
    # THUDM/chatglm3-6b modeling_chatglm.py, SelfAttention.forward (expand, contiguous) and RMSNorm.forward
    model, tokens = reading(tmp_path, CHATGLM).model, 1024
    plan, software = Plan(global_batch=1, seq_len=tokens, data_parallel=1, zero_stage=0), load_framework("deepspeed")

    def kept(**fields):
        numbers, resolved = replace(model, fields).numbers(), plan.resolve(software)
        return layer_activations(numbers, resolved.settings(software), resolved.numbers(software, model.layers))

    shared = {"repeated_keys": False, "fused_projections": False}
    assert kept(fused_projections=False) - kept(**shared) == pytest.approx(tokens * 2 * (32 - 2) * 128 * 2)
    assert kept() == kept(fused_projections=False)  # values that are copied are no view of what the one product made
    assert kept() - kept(wide_norm=False) == pytest.approx(tokens * 2 * 4096 * 2)

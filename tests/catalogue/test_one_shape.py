"""A model of one shape gives one answer, be it of the catalogue, of a TOML file, of a config.json, or dropped into the app."""

import csv
import dataclasses
import json
from pathlib import Path

import pytest

from costmodel import Plan, estimate, load_cluster, load_model, search
from costmodel.app.server import read_upload
from costmodel.app.state import read_fields, write_fields
from costmodel.catalogue import loader
from costmodel.evaluation.departures import departures
from costmodel.text.errors import UnknownName
from tests.commanding import strict

REAL = Path(__file__).resolve().parents[3] / "shared" / "reference" / "hf"
BESIDE = ("name", "published_parameters", "trained_length")
"""What says nothing of the shape: what it is called, what its authors count, how long its sequences were in training."""
WORK = ["--cluster", "dgx-h100", "--nodes", "2", "--global-batch", "32", "--seq-len", "1024"]

# As their authors publish them on the hub, without what leaves the shape alone.
CONFIGS = {
    "llama3-8b": {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
                  "num_hidden_layers": 32, "num_key_value_heads": 8, "hidden_act": "silu", "tie_word_embeddings": False,
                  "max_position_embeddings": 8192, "vocab_size": 128256},
    "llama3.2-1b": {"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32,
                    "num_hidden_layers": 16, "num_key_value_heads": 8, "head_dim": 64, "hidden_act": "silu",
                    "tie_word_embeddings": True, "max_position_embeddings": 131072, "vocab_size": 128256},
    "qwen2.5-7b": {"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28,
                   "num_hidden_layers": 28, "num_key_value_heads": 4, "hidden_act": "silu", "tie_word_embeddings": False,
                   "max_position_embeddings": 131072, "sliding_window": 131072, "use_sliding_window": False,
                   "max_window_layers": 28, "vocab_size": 152064},
    "mixtral-8x7b": {"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
                     "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2,
                     "hidden_act": "silu", "sliding_window": None, "tie_word_embeddings": False,
                     "max_position_embeddings": 32768, "vocab_size": 32000},
    "gemma2-9b": {"model_type": "gemma2", "hidden_size": 3584, "intermediate_size": 14336, "num_attention_heads": 16,
                  "num_hidden_layers": 42, "num_key_value_heads": 8, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
                  "sliding_window": 4096, "max_position_embeddings": 8192, "vocab_size": 256000},
    "bloom-560m": {"model_type": "bloom", "hidden_size": 1024, "n_layer": 24, "n_head": 16, "vocab_size": 250880,
                   "hidden_dropout": 0.0, "attention_dropout": 0.0, "seq_length": 2048},
    "opt-1.3b": {"model_type": "opt", "hidden_size": 2048, "ffn_dim": 8192, "num_hidden_layers": 24, "num_attention_heads": 32,
                 "max_position_embeddings": 2048, "vocab_size": 50272, "word_embed_proj_dim": 2048, "dropout": 0.1,
                 "do_layer_norm_before": True, "activation_function": "relu"},
    "pythia-6.9b": {"model_type": "gpt_neox", "hidden_size": 4096, "intermediate_size": 16384, "num_attention_heads": 32,
                    "num_hidden_layers": 32, "max_position_embeddings": 2048, "rotary_pct": 0.25, "vocab_size": 50432,
                    "tie_word_embeddings": False, "use_parallel_residual": True, "hidden_act": "gelu"},
    "gpt2-xl": {"model_type": "gpt2", "n_embd": 1600, "n_head": 25, "n_layer": 48, "n_positions": 1024, "attn_pdrop": 0.1,
                "embd_pdrop": 0.1, "resid_pdrop": 0.1, "vocab_size": 50257},
    "qwen3-30b-a3b": {"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
                      "num_attention_heads": 32, "num_hidden_layers": 48, "num_key_value_heads": 4, "head_dim": 128,
                      "num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": [],
                      "hidden_act": "silu", "tie_word_embeddings": False, "use_sliding_window": False,
                      "max_position_embeddings": 40960, "vocab_size": 151936},
    "deepseek-v2-lite": {"model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944, "kv_lora_rank": 512,
                         "moe_intermediate_size": 1408, "first_k_dense_replace": 1, "n_routed_experts": 64,
                         "n_shared_experts": 2, "num_experts_per_tok": 6, "num_attention_heads": 16, "num_hidden_layers": 27,
                         "num_key_value_heads": 16, "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
                         "v_head_dim": 128, "n_group": 1, "topk_group": 1, "moe_layer_freq": 1, "hidden_act": "silu",
                         "max_position_embeddings": 163840, "tie_word_embeddings": False, "vocab_size": 102400},
}  # fmt: skip


def shape(model):
    """Fields by their names, but for those beside the shape."""
    return {field: value for field, value in dataclasses.asdict(model).items() if field not in BESIDE}


def as_toml(model):
    """A model's fields as the TOML file that a user would write."""
    fields = {field: value for field, value in dataclasses.asdict(model).items() if value is not None}
    return "".join(f"{field} = {json.dumps(value)}\n" for field, value in fields.items())


def answers(model):
    """All that a search and an estimate say of it in numbers."""
    cluster = load_cluster("dgx-h100", 16)
    found = search(model, cluster, global_batch=32, seq_len=1024, engine="numpy", micro_batch=1, recompute="none", top=3)
    one = estimate(model, cluster, Plan(global_batch=32, seq_len=1024, data_parallel=16, zero_stage=3), "fsdp2")
    figures = [(each.plan, each.step_time, each.memory.total, each.time_interval) for each in [*found.ranked, one]]
    return figures, found.evaluated, found.fitting, departures(one.question, [one.plan])


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_a_published_config_gives_what_the_catalogue_s_entry_gives(name, tmp_path):
    file = tmp_path / f"{name}.json"
    file.write_text(json.dumps(CONFIGS[name]))
    known, read = load_model(name), load_model(file)
    assert shape(read) == shape(known)
    assert answers(read) == answers(known)


def files_of_the_catalogue_s_models():
    """Real files, and the entries that have their names on the hub."""
    if not REAL.is_dir():
        return []
    with open(REAL / "expected.csv", encoding="utf-8") as stream:
        named = [(row["file"], row["model"].split(" ")[0]) for row in csv.DictReader(stream)]
    found = []
    for file, model in named:
        entry = loader.alias("model", model)
        if entry is not None:
            found.append((file, entry))
    return found


@pytest.mark.skipif(not REAL.is_dir(), reason=f"no reference folder at {REAL}")
@pytest.mark.parametrize(("file", "entry"), files_of_the_catalogue_s_models())
def test_a_real_config_gives_what_the_catalogue_s_entry_gives(file, entry):
    """The shape, of which alone answers are: the test above compares those, too."""
    assert shape(load_model(REAL / file)) == shape(load_model(entry))


@pytest.mark.skipif(not REAL.is_dir(), reason=f"no reference folder at {REAL}")
def test_there_are_such_files():
    assert len(files_of_the_catalogue_s_models()) >= 8


def test_a_model_written_to_a_file_and_read_back_is_the_model(tmp_path):
    for name in loader.names("model"):
        known = load_model(name)
        file = tmp_path / "ours.toml"
        file.write_text(as_toml(known))
        assert load_model(file) == known, name
        (tmp_path / "table.toml").write_text(f"[ours]\n{as_toml(known)}")
        assert load_model(tmp_path / "table.toml") == known, name
        assert read_fields(write_fields(known)) == known, name


def test_every_door_takes_a_name_a_toml_and_a_config_alike(run, tmp_path):
    """On the command line, and dropped into the app."""
    config, file = tmp_path / "llama3-8b.json", tmp_path / "llama3-8b.toml"
    config.write_text(json.dumps(CONFIGS["llama3-8b"]))
    file.write_text(as_toml(load_model("llama3-8b")))
    for command in (["estimate"], ["search", "--no-check", "--top", "3"]):
        told = []
        for name in ("llama3-8b", "meta-llama/Meta-Llama-3-8B", str(file), str(config)):
            code, out, err = run(command[0], name, *WORK, *command[1:], "--json")
            assert code == 0, err
            found = strict(out)
            told.append({key: value for key, value in found.items() if key not in ("search_time_s", "command")})
        assert told[1:] == told[:1] * 3
    dropped = read_upload({"name": "llama3-8b.json", "text": config.read_text()})
    assert shape(read_fields(write_fields(dropped))) == shape(load_model("llama3-8b"))


def test_a_name_that_no_entry_has_is_no_entry():
    with pytest.raises(UnknownName):
        load_model("microsoft/Phi-3-small-128k-instruct")

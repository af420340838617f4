"""The catalogue's models against the counts that their authors publish."""

import csv
import tomllib
from pathlib import Path

import pytest

from costmodel.description.transformer import Transformer

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "costmodel" / "catalogue" / "models").glob("*.toml"))
SEED = ROOT.parent / "shared" / "reference" / "seeds" / "bloom560m_params.csv"


def entries():
    pairs = [pair for file in FILES for pair in tomllib.loads(file.read_text(encoding="utf-8")).items()]
    assert len(dict(pairs)) == len(pairs), "an id is in two files"
    return dict(pairs)


ENTRIES = entries()


def model(name):
    beside = ("title", "provenance")
    return Transformer(name=name, **{key: value for key, value in ENTRIES[name].items() if key not in beside})


def test_the_catalogue_holds_at_least_forty_models():
    assert len(ENTRIES) >= 40


@pytest.mark.parametrize("name", ENTRIES)
def test_the_parameter_count_is_within_a_percent_of_what_the_authors_publish(name):
    built = model(name)
    assert isinstance(built.published_parameters, float)
    assert built.parameters == pytest.approx(built.published_parameters, rel=0.01)


def test_every_model_says_where_its_numbers_come_from():
    for name in ENTRIES:
        entry = ENTRIES[name]
        assert entry["title"], name
        assert set(entry["provenance"]) == {"shape", "published_parameters"}, name
        assert all("https://" in source for source in entry["provenance"].values()), name


def test_ids_are_kebab_case():
    for name in ENTRIES:
        assert name == name.lower(), name
        assert name.replace("-", "").replace(".", "").isalnum(), name


# Counts of the checkpoints to the unit; one wrong width, bias or norm breaks the equality.
EXACT = {
    "gpt2-small": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "bloom-560m": 559_214_592,
    "bloom-176b": 176_247_271_424,
    "opt-1.3b": 1_315_758_080,
    "falcon-180b": 179_522_565_120 - 65_024 * 14_848,
    "llama2-7b": 6_738_415_616,
    "llama3.1-405b": 405_853_388_800,
    "llama3.2-1b": 1_235_814_400,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-235b-a22b": 235_093_634_560,
    "gemma2-27b": 27_227_128_320,
    "gemma3-1b": 999_885_952,
    "deepseek-v2": 235_741_434_880,
    "gpt-neox-20b": 20_554_567_680,
    "olmo2-7b": 7_298_617_344,
}


@pytest.mark.parametrize("name", EXACT)
def test_the_parameter_count_is_exact(name):
    assert model(name).parameters == EXACT[name]


@pytest.mark.parametrize(
    ("name", "published", "tolerance"),
    [
        ("mixtral-8x7b", 12.9e9, 0.002),  # jiang2024, section 1: 13B active
        ("qwen3-235b-a22b", 22e9, 0.02),  # its name
        ("deepseek-v2", 21e9, 0.03),  # deepseek2024v2, abstract
        ("deepseek-v3", 37e9, 0.03),  # deepseek2024v3, abstract
        ("kimi-k2", 32.6e9, 0.02),  # arXiv 2507.20534, table 2
    ],
)
def test_the_active_parameters_are_what_the_authors_publish(name, published, tolerance):
    assert model(name).active_parameters == pytest.approx(published, rel=tolerance)


@pytest.mark.parametrize(("name", "published"), [("gpt-oss-20b", 3.61e9), ("gpt-oss-120b", 5.13e9)])
def test_the_active_parameters_of_gpt_oss_leave_the_embedding_out(name, published):
    # arXiv 2508.10925, table 1 and the note under it: the unembedding counts as active, the embedding doesn't
    built = model(name)
    active = built.active_parameters - built.parameters_by_part()["embedding"]
    assert active == pytest.approx(published, rel=0.002)


def test_bloom_560m_is_the_sum_of_its_tensors():
    if not SEED.exists():
        pytest.skip(f"the list of tensors is not at {SEED}")
    with SEED.open(encoding="utf-8", newline="") as stream:
        tensors = {row["name"]: int(row["numel"]) for row in csv.DictReader(stream)}
    bloom = model("bloom-560m")
    parts = bloom.parameters_by_part()
    for layer in range(bloom.layers):
        prefix = f"transformer.h.{layer}."
        assert sum(size for name, size in tensors.items() if name.startswith(prefix)) == parts["dense_layer"]
    embedding = sum(size for name, size in tensors.items() if name.startswith("transformer.word_embeddings"))
    last_norm = sum(size for name, size in tensors.items() if name.startswith("transformer.ln_f"))
    assert (embedding, last_norm) == (parts["embedding"], parts["head"])
    assert sum(tensors.values()) == bloom.parameters == 559_214_592

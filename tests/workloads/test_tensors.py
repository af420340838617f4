"""The list of a model's tensors: complete, in order, and split as tensor and expert parallelism split it."""

import csv
from collections import Counter
from pathlib import Path

import pytest

from costmodel import Transformer, load_model, names
from costmodel.description.tensors import stage_tensors
from tests.tensors import parameter_tensors

SEEDS = Path(__file__).resolve().parents[3] / "shared" / "reference" / "seeds"


def whole(model, **degrees):
    degrees = {"tensor": 1, "expert": 1, "expert_tensor": 1, **degrees}
    return stage_tensors(model, layers=range(model.layers), embedding=True, head=True, **degrees)


@pytest.mark.slow
@pytest.mark.parametrize("name", names("model"))
def test_tensors_add_up_to_the_exact_parameter_count(name):
    model = load_model(name)
    listed = parameter_tensors(model)
    assert sum(tensor.numel for tensor in listed) == model.parameters
    assert max(Counter(tensor.name for tensor in listed).values()) == 1


@pytest.mark.parametrize("name", ["bloom-7b1", "llama3-8b", "mixtral-8x7b", "deepseek-v2-lite", "gemma3-4b"])
def test_a_rank_without_tensor_or_expert_parallelism_holds_every_tensor(name):
    model = load_model(name)
    held = whole(model)
    assert int(held.numel.sum()) == model.parameters
    assert [int(n) for n in held.numel] == [tensor.numel for tensor in parameter_tensors(model)]


def test_bloom_560m_is_listed_tensor_for_tensor():  # shapes and names of Hugging Face Transformers and bigscience
    path = SEEDS / "bloom560m_params.csv"
    if not path.exists():
        pytest.skip("bloom560m_params.csv is not beside this checkout")
    with path.open(encoding="utf-8", newline="") as handle:
        wanted = [(row["name"], row["shape"], int(row["numel"])) for row in csv.DictReader(handle)]
    made = parameter_tensors(load_model("bloom-560m"))
    assert [(tensor.name, "x".join(map(str, tensor.shape)), tensor.numel) for tensor in made] == wanted


def test_bloom_560m_has_293_tensors_and_a_tied_head():
    model = load_model("bloom-560m")
    parts = Counter(tensor.part for tensor in parameter_tensors(model))
    assert parts == {"embedding": 3, "layer": 24 * 12, "head": 2}


@pytest.mark.parametrize("tensor", [2, 4, 8])
def test_what_tensor_ranks_split_adds_up_and_what_they_copy_is_small(tensor):
    model = load_model("llama3-8b")
    matrices = sum(one.numel for one in parameter_tensors(model) if one.split)
    vectors = sum(one.numel for one in parameter_tensors(model) if not one.split)
    assert int(whole(model, tensor=tensor).numel.sum()) == matrices // tensor + vectors
    assert vectors / model.parameters < 1e-4


def test_more_tensor_ranks_than_key_heads_copy_keys_and_values():
    model = Transformer(name="grouped", layers=1, hidden=64, heads=8, kv_heads=2, vocabulary=128, feed_forward=128)
    two, eight = (dict(zip(map(str, parameter_tensors(model)), whole(model, tensor=t).numel, strict=True)) for t in (2, 8))
    keys = next(str(one) for one in parameter_tensors(model) if "k_proj" in one.name)
    queries = next(str(one) for one in parameter_tensors(model) if "q_proj" in one.name)
    assert eight[keys] == two[keys] == 8 * 64
    assert eight[queries] == two[queries] // 4


def test_expert_ranks_share_the_routed_experts_evenly():
    model = load_model("mixtral-8x7b")
    one, four = whole(model), whole(model, expert=4)
    assert int(one.numel[one.routed].sum()) == 4 * int(four.numel[four.routed].sum())
    assert int(one.numel[~one.routed].sum()) == int(four.numel[~four.routed].sum())


def test_stages_of_a_pipeline_hold_every_tensor_once_and_tied_embeddings_twice():
    model = load_model("bloom-560m")
    first = stage_tensors(model, layers=range(12), embedding=True, head=False, tensor=1, expert=1, expert_tensor=1)
    last = stage_tensors(model, layers=range(12, 24), embedding=False, head=True, tensor=1, expert=1, expert_tensor=1)
    table = model.vocabulary * model.hidden
    assert int(first.numel.sum() + last.numel.sum()) == model.parameters + table
    assert [int(stage.numel[stage.shared].sum()) for stage in (first, last)] == [table, table]

"""What a rank holds, by formula and tensor by tensor."""

import pytest

from costmodel import Plan, load_framework, load_model, names
from costmodel.description.tensors import stage_tensors
from costmodel.description.transformer import SHAPE_OF_WINDOWS
from costmodel.formulas.synchronisation import padded_layer
from costmodel.formulas.transformer import memory
from costmodel.formulas.transformer.parameters import of_kind

FRAMEWORK = load_framework("megatron-core")
PIPELINE = (("whole", 0.0, 1.0, True, True), ("front", 0.0, 0.5, True, False), ("back", 0.5, 1.0, False, True))


@pytest.mark.slow
@pytest.mark.parametrize("name", names("model"))
@pytest.mark.parametrize("tensor", [1, 2, 4, 8])
def test_a_stage_holds_the_parameters_of_its_tensors(name, tensor):
    """Layers of several shapes are taken to be evenly spread, which the halves of 27 or 52 are only nearly,
    and to have the keys and values of most."""
    model = load_model(name)
    several = model.recurrent_layers or any(getattr(model, width) for width in SHAPE_OF_WINDOWS)
    if model.heads % tensor or model.feed_forward % tensor or model.vocabulary % tensor:
        return
    for expert in (1, 2) if model.experts else (1,):
        plan = Plan(
            global_batch=64, seq_len=512, tensor_parallel=tensor, data_parallel=8, expert_parallel=expert,
            expert_tensor_parallel=1,
        ).numbers(FRAMEWORK, 8)  # fmt: skip
        for _, begin, end, first, last in PIPELINE:
            layers = tuple(range(int(begin * model.layers), int(end * model.layers)))
            held = stage_tensors(
                model, layers=layers, embedding=first, head=last, tensor=tensor, expert=expert, expert_tensor=1
            )
            experts = sum(map(model.has_experts, layers))
            found = memory.stage_parameters(
                model.numbers(), plan, float(len(layers)), float(experts), float(first), float(last)
            )
            counted = held.numel[~held.routed].sum(), held.numel[held.routed].sum()
            assert [float(count) for count in found] == pytest.approx(counted, rel=0.025 if several else 1e-12)


@pytest.mark.parametrize("name", ["llama3-8b", "bloom-560m", "qwen3-30b-a3b", "deepseek-v2-lite", "gemma3-4b", "gpt3-175b"])
@pytest.mark.parametrize("tensor", [1, 4])
@pytest.mark.parametrize("shard", [8, 96, 1024, 8192])
def test_padded_units_hold_their_padded_tensors(name, tensor, shard):
    """Vectors apart, which are taken to be as long as the hidden state."""
    model = load_model(name)
    plan = Plan(global_batch=64, seq_len=512, tensor_parallel=tensor, data_parallel=8).numbers(FRAMEWORK, 8)
    layer = model.layers - 1
    held = stage_tensors(model, layers=(layer,), embedding=False, head=False, tensor=tensor, expert=1, expert_tensor=tensor)
    rows = -(-held.rows // shard) * shard
    columns = held.numel // held.rows
    of_a_layer = of_kind(model.numbers(), float(model.has_experts(layer)))
    one = padded_layer(of_a_layer, plan._replace(expert_tensor=float(tensor)), 1.0, float(shard), float(shard))
    matrices = (rows * columns)[held.routed].sum(), (rows * columns)[~held.routed].sum()
    assert (float(one[1]), float(one[0])) == pytest.approx(tuple(map(float, matrices)), rel=2e-3)

"""Uneven splits of transformers, against the step's own formulas and against looking at every split."""

import dataclasses
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel import Plan, Transformer, load_cluster, load_framework, load_model
from costmodel.description.layers import ChainLayer, LayerChain
from costmodel.formulas.network import communication
from costmodel.formulas.pipeline import layout
from costmodel.formulas.training_step import layer_pass
from costmodel.formulas.transformer import layer
from costmodel.formulas.transformer.parameters import total_parameters
from costmodel.studies.partitioning import balanced_stages, partition, transformer_chain, transformers
from costmodel.text.errors import IllegalPlan, InvalidValue

FRAMEWORK = load_framework("megatron-core")


def numbers(model, cluster, plan):
    plan = plan.resolve(FRAMEWORK)
    return (
        model.numbers(), plan.settings(FRAMEWORK), plan.numbers(FRAMEWORK, model.layers), cluster.numbers(), FRAMEWORK.numbers(),
        cluster.device.numbers(plan.dtype),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["llama3-70b", "gpt3-175b", "mixtral-8x7b"])
def test_a_chain_takes_as_long_as_the_step_s_formulas_say(name):
    model = load_model(name)
    cluster = load_cluster("dgx-h100", gpus=64)
    plan = Plan(global_batch=64, seq_len=2048, tensor_parallel=8, pipeline_parallel=8)
    shape, settings, degrees, network, software, device = numbers(model, cluster, plan)
    chain = transformer_chain(model, cluster, plan, FRAMEWORK)
    once = communication.tensor_exchange(shape, settings, degrees, network, software)
    head = layer.head_work(shape, settings, degrees, software, device)
    body = layer_pass(shape, settings, degrees, network, software, device).total
    whole = model.layers * body + sum(layer.embedding_work(shape, settings, degrees, device)) + sum(head) + 2 * once
    assert sum(each.forward + each.backward for each in chain.layers) == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize("name", ["llama3-8b", "deepseek-v3", "mixtral-8x7b", "gpt3-13b"])
def test_a_chain_on_one_rank_holds_every_parameter(name):
    model = dataclasses.replace(load_model(name), prediction_layers=0)
    shape = model.numbers()

    cluster = load_cluster("dgx-h100", gpus=8)
    chain = transformer_chain(model, cluster, Plan(global_batch=8, seq_len=2048, data_parallel=8))
    held = sum(each.parameter_bytes for each in chain.layers) / FRAMEWORK.parameter_bytes
    copies = shape.vocabulary.tied * shape.vocabulary.size * shape.hidden
    assert held - copies == pytest.approx(total_parameters(shape), rel=1e-3)


def test_dense_layers_expert_layers_predictions_and_the_head_weigh_differently():
    model, cluster = load_model("deepseek-v3"), load_cluster("dgx-h100", gpus=1024)
    plan = Plan(global_batch=1024, seq_len=4096, pipeline_parallel=16, data_parallel=64, expert_parallel=64)
    chain = transformer_chain(model, cluster, plan)
    time = {each.name: each.forward + each.backward for each in chain.layers}
    assert len(chain.layers) == 1 + 61 + 1 + 1
    assert time["layer 0"] == time["layer 2"] < time["layer 3"] == time["layer 60"] < time["prediction 0"]
    assert time["prediction 0"] - time["layer 60"] == pytest.approx(time["head"], rel=0.1)


def test_a_large_vocabulary_takes_layers_from_the_last_stage():
    model, cluster = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=32)
    split = balanced_stages(model, cluster, Plan(global_batch=256, seq_len=4096, tensor_parallel=4, pipeline_parallel=8))
    assert sum(split.layers) == 32
    assert split.layers[-1] < 4
    assert split.gain > 0.05
    assert split.bound <= split.step_time


@pytest.mark.parametrize("virtual_stages", [1, 2])
def test_even_times_are_those_that_the_step_works_with(virtual_stages):
    model, cluster = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=32)
    plan = Plan(global_batch=256, seq_len=4096, tensor_parallel=4, pipeline_parallel=8, virtual_stages=virtual_stages)
    shape, settings, degrees, network, software, device = numbers(model, cluster, plan)
    split = balanced_stages(model, cluster, plan, FRAMEWORK)
    one = layer_pass(shape, settings, degrees, network, software, device).total
    first, middle, last = layout.stage_layers(shape, settings, degrees)
    once = communication.tensor_exchange(shape, settings, degrees, network, software)
    assert split.even_times[1] == pytest.approx(middle * one, rel=1e-9)
    embedding = sum(layer.embedding_work(shape, settings, degrees, device))
    assert split.even_times[0] == pytest.approx(first * one + embedding + once)
    head = sum(layer.head_work(shape, settings, degrees, software, device))
    assert split.even_times[-1] == pytest.approx(last * one + head + once)


def test_a_short_first_and_last_stage_count_as_even():  # 126 layers on 16 stages: 7 and 7 at the ends, 8 between
    model, cluster = load_model("llama3.1-405b"), load_cluster("dgx-h100", gpus=128)
    split = balanced_stages(model, cluster, Plan(global_batch=256, seq_len=8192, tensor_parallel=8, pipeline_parallel=16))
    assert split.gain == pytest.approx(0.0, abs=0.02)
    assert split.layers[-1] == 7


TIMES = st.lists(st.sampled_from([0.1, 0.5, 1.0, 1.0, 1.7, 3.0]), min_size=4, max_size=9)


def every_split(count, chunks):
    for cuts in itertools.combinations(range(1, count), chunks - 1):
        yield [*cuts, count]


@given(TIMES, st.integers(1, 4))
@settings(deadline=None, max_examples=100)
def test_one_chunk_a_rank_is_split_as_well_as_can_be(times, ranks):
    layers = [
        ChainLayer(name=f"l{i}", forward=t, backward=0.0, output_bytes=1.0, parameter_bytes=1.0) for i, t in enumerate(times)
    ]
    found = partition(LayerChain(name="drawn", layers=layers), [ranks], [transformers.SENDING_FREE], straight=True)
    best = min(max(transformers._rank_times(times, ends, ranks)) for ends in every_split(len(times), ranks))
    assert found.time == pytest.approx(best)


@given(st.integers(2, 3), st.integers(2, 3), st.integers(6, 10), st.floats(0.0, 3.0), st.floats(0.0, 1.0), st.integers(0, 3))
@settings(deadline=None, max_examples=100)
def test_several_chunks_a_rank_are_split_as_well_as_can_be_where_layers_are_alike(ranks, chunks, body, head, embedding, dense):
    light = 0.6  # of a dense layer beside one with experts: a split may be off by one such exchange
    times = [embedding, *[light] * dense, *[1.0] * (body - dense), head]
    count = ranks * chunks
    if count > len(times):
        return
    best = min(max(transformers._rank_times(times, ends, ranks)) for ends in every_split(len(times), count))
    starts = [list(range(len(times) - count + 1, len(times) + 1)), [*range(1, count), len(times)]]
    reached = min(max(transformers._rank_times(times, transformers._improved(times, s, ranks), ranks)) for s in starts)
    assert best <= reached * (1 + 1e-12)
    assert reached <= best + (1.0 - light if dense else 1e-9)


def test_more_chunks_than_layers_are_refused():
    small = Transformer(name="small", layers=2, hidden=512, heads=8, vocabulary=1000, feed_forward=2048)
    with pytest.raises(IllegalPlan):
        balanced_stages(small, load_cluster("dgx-h100", gpus=8), Plan(global_batch=8, seq_len=128, pipeline_parallel=8))


@pytest.mark.parametrize("call", [transformer_chain, balanced_stages])
def test_what_is_no_model_is_refused(call):
    with pytest.raises(InvalidValue, match="model"):
        call(8, load_cluster("dgx-h100", gpus=8), Plan(global_batch=8, seq_len=128, data_parallel=8))

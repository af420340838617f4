"""Rematerialisation of real networks: cuts against their definition, schedules that run, and Chen et al. 2016."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel import load_device, load_network, uniform_chain
from costmodel.description.layers import ChainLayer, LayerChain
from costmodel.studies.rematerialisation.blocks import articulation_points, condensed
from costmodel.studies.rematerialisation.networks import checkpoint_network
from costmodel.studies.rematerialisation.study import checkpoint
from costmodel.text.errors import InvalidValue


@pytest.fixture(scope="module")
def resnet():
    return load_network("resnet-50").chain(load_device("v100-sxm-16gb"), minibatch=32)


def graph(edges, count):
    layers = [
        ChainLayer(name=f"l{i}", forward=1.0, backward=2.0, output_bytes=4.0, parameter_bytes=1.0, saved_bytes=6.0,
                   inputs=tuple(f"l{source}" for source in sorted({s for s, t in edges if t == i})))
        for i in range(count)
    ]  # fmt: skip
    return LayerChain(name="graph", layers=layers)


@st.composite
def graphs(draw):
    count = draw(st.integers(2, 10))
    edges = {(draw(st.integers(0, i - 1)), i) for i in range(1, count)}
    for _ in range(draw(st.integers(0, 6))):
        target = draw(st.integers(1, count - 1))
        edges.add((draw(st.integers(0, target - 1)), target))
    return graph(edges, count), edges, count


@settings(deadline=None)
@given(graphs())
def test_a_cut_is_a_layer_that_no_edge_passes_by(drawn):
    made, edges, count = drawn
    cuts = [i for i in range(count - 1) if not any(source < i < target for source, target in edges)]
    assert articulation_points(made) == (*cuts, count - 1)


@settings(deadline=None)
@given(graphs(), st.integers(1, 12))
def test_blocks_hold_every_layer_once_with_its_time_and_bytes(drawn, most):
    made, _, _ = drawn
    blocks, names = condensed(made, most)
    assert len(blocks.layers) <= most
    assert [name for block in names for name in block] == [layer.name for layer in made.layers]
    for field in ("forward", "backward", "parameter_bytes", "kept_bytes"):
        total = sum(getattr(layer, field) for layer in made.layers)
        assert sum(getattr(layer, field) for layer in blocks.layers) == pytest.approx(total)


def test_a_chain_is_its_own_blocks():
    chain = uniform_chain(40, forward=1.0, output_bytes=1e6)
    assert len(condensed(chain)[0].layers) == 40
    assert checkpoint_network(chain, budget=15e6).schedule.forward_time == checkpoint(chain, budget=15e6).forward_time


def test_resnet_50_is_cut_at_its_sixteen_blocks(resnet):
    _, names = condensed(resnet)
    assert sum(len(block) > 1 for block in names) == 16


@pytest.mark.parametrize("name", ["resnet-50", "inception-v3", "gnmt-8"])
def test_networks_with_branches_run_in_less_with_a_forward_pass_at_most_again(name):
    chain = load_network(name).chain(load_device("v100-sxm-16gb"), minibatch=32)
    root = checkpoint_network(chain, method="sqrt")
    best = checkpoint_network(chain, budget=root.peak_bytes)
    assert best.peak_bytes <= root.peak_bytes < root.whole_bytes
    assert 0.0 < best.extra_time_share <= root.extra_time_share <= 0.40  # a forward pass is a third of a step


def test_resnet_50_saves_more_than_three_times_for_less_than_30_per_cent(resnet):
    found = checkpoint_network(resnet, method="sqrt")
    assert found.saving > 3.0 and found.extra_time_share < 0.30


@pytest.mark.slow
def test_chen_s_thousand_layers_run_in_seven_gigabytes_for_thirty_per_cent(resnet):
    """Chen et al. 2016, sections 5.2 and 5.4: 48 GB become 7 for batch 32 at 224 x 224, with 30 % more time.

    The paper's network isn't published: here every block of ResNet-50 that keeps its shape stands 27 times, 984
    convolutions in all, and activations at the ends of blocks are in place.
    """
    blocks, names = condensed(resnet)
    layers = []
    for layer, members in zip(blocks.layers, names, strict=True):
        copies = 27 if len(members) == 9 else 1
        layers += [dataclasses.replace(layer, name=f"{layer.name}, {copy}", inputs=None) for copy in range(copies)]
    found = checkpoint_network(LayerChain(name="resnet-986", layers=layers), budget=7e9)
    assert found.whole_bytes == pytest.approx(48e9, rel=0.40)
    assert found.peak_bytes < 7e9
    assert found.extra_time_share == pytest.approx(0.30, abs=0.05)


def test_a_thousand_equal_layers_are_scheduled_within_ten_times_fewer_bytes():
    chain = uniform_chain(1000, forward=1e-3, output_bytes=1e6)
    found = checkpoint_network(chain, budget=100e6)
    assert found.peak_bytes <= 100e6 and found.saving > 10.0
    assert found.extra_time_share < 1 / 3


@settings(deadline=None, max_examples=15)
@given(st.integers(70, 100), st.integers(80, 200))
def test_more_bytes_never_cost_more_time(low, more):
    chain = uniform_chain(1000, forward=1e-3, output_bytes=1e6)
    tight, loose = (checkpoint_network(chain, budget=1e6 * size).extra_time_share for size in (low, low + more))
    assert loose <= tight + 1e-12


@pytest.mark.parametrize(("given", "field"), [
    ({"budget": 1.0}, "budget"), ({"method": "checkmate"}, "method"), ({"most_blocks": 0}, "most_blocks"),
    ({"most_blocks": 1000}, "most_blocks"), ({"method": "sqrt", "count": -1}, "count"),
])  # fmt: skip
def test_nonsense_is_refused(resnet, given, field):
    with pytest.raises(InvalidValue, match=f"^{field}"):
        checkpoint_network(resnet, **given)

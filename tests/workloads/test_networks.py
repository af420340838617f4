"""Networks of the literature have the sizes and the FLOP that were published."""

import pytest

from costmodel.catalogue.loader import load_device
from costmodel.description import networks
from costmodel.description.networks import (
    Attention,
    Branches,
    Convolution,
    CrossEntropy,
    Elementwise,
    Embedding,
    Flatten,
    Join,
    Linear,
    LocalResponseNorm,
    Network,
    Node,
    Pooling,
    Recurrent,
    Residual,
    SideBranch,
    load_network,
)
from costmodel.text.errors import InvalidValue, NotModelled, UnknownName

V100 = load_device("v100-pcie-16gb")


@pytest.mark.parametrize(("network", "count"), [
    # torchvision's documentation of its weights
    (networks.vgg16(), 138_357_544), (networks.resnet50(), 25_557_032), (networks.alexnet(), 61_100_840),
    (networks.inception_v3(), 27_161_264), (networks.inception_v3(auxiliary=False), 23_834_568),
    # PipeDream's profiles, parameter_size / 4: msr-fiddle/pipedream profiler/translation/profiles
    (networks.gnmt(8), 193_765_952), (networks.gnmt(16), 277_717_568),
    # salesforce/awd-lstm-lm on the Penn Treebank: "24M parameters", tied
    (networks.awd_lm(), 24_221_600),
])  # fmt: skip
def test_a_network_has_the_published_number_of_parameters(network, count):
    assert network.parameters == count
    assert sum(cost.parameters for cost in network.costs()) == count


@pytest.mark.parametrize(("name", "multiply_adds"), [
    # torchvision's documentation of its weights, GFLOPS of an image
    ("vgg-16", 15.47e9), ("resnet-50", 4.09e9), ("alexnet", 0.71e9), ("inception-v3", 5.71e9),
])  # fmt: skip
def test_a_network_takes_the_published_multiply_adds(name, multiply_adds):
    assert load_network(name).forward_flop() / 2 == pytest.approx(multiply_adds, rel=0.006)


@pytest.mark.parametrize(("name", "parameters", "flop", "outputs"), [
    # torchvision 0.28 on PyTorch's meta device: its parameters, FlopCounterMode of a forward pass in training (Inception's with
    # its side classifier), and what its modules of each kind give for an image
    ("alexnet", 61_100_840, 1_428_376_960, {"Convolution": 484_992, "Elementwise": 493_184, "Pooling": 88_320, "Linear": 9_192}),
    ("vgg-16", 138_357_544, 30_940_528_640, {"Convolution": 13_547_520, "Elementwise": 13_555_712, "Pooling": 1_530_368,
                                             "Linear": 9_192, "Dropout": 8_192}),
    ("resnet-50", 25_557_032, 8_178_368_512, {"Convolution": 11_113_984, "BatchNorm": 11_113_984, "Elementwise": 9_608_704,
                                              "Pooling": 200_704 + 2_048, "Linear": 1_000}),
    ("inception-v3", 27_161_264, 11_437_798_592, {"Convolution": 8_971_456, "BatchNorm": 8_971_456, "Linear": 2_000}),
])  # fmt: skip
def test_a_network_is_torchvision_s_in_parameters_flop_and_outputs(name, parameters, flop, outputs):
    network = load_network(name)
    assert (network.parameters, network.forward_flop()) == (parameters, flop)
    for kind, elements in outputs.items():
        assert sum(cost.output_elements for cost in network.costs() if cost.kind == kind) == elements


@pytest.mark.parametrize(("name", "megabytes", "within"), [
    ("vgg-16", 550, 0.01), ("s2vt", 349, 0.002),  # Harlap et al. 2018; 157 MB for Inception-v3 are another network's
])  # fmt: skip
def test_weights_are_as_large_as_pipedream_states(name, megabytes, within):
    assert 4 * load_network(name).parameters == pytest.approx(megabytes * 1e6, rel=within)


def test_s2vt_is_as_large_as_its_released_weights():
    # s2vt_vgg_rgb.caffemodel: 349,436,137 bytes, one bias vector an LSTM where cuDNN has two, 17 kB of protobuf
    assert 4 * (load_network("s2vt").parameters - 2 * 4000) == pytest.approx(349_436_137, abs=20_000)


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_every_network_becomes_a_chain_whose_edges_are_those_of_the_network(name):
    network = load_network(name)
    chain = network.chain(V100, minibatch=8)
    assert [layer.name for layer in chain.layers] == [node.name for node in network.nodes]
    assert sum(layer.parameter_bytes for layer in chain.layers) == 4 * network.parameters
    assert sum(layer.output_bytes for layer in chain.layers) == 4 * sum(cost.output_elements for cost in network.costs(8))
    for layer, node in zip(chain.layers, network.nodes, strict=True):
        assert list(layer.inputs) == [source for source in node.inputs if source not in network.inputs]
        assert layer.forward >= 0 and layer.backward >= 0


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_costs_grow_in_proportion_to_the_minibatch_and_weights_do_not(name):
    one, many = (load_network(name).costs(minibatch) for minibatch in (1, 12))
    for single, dozen in zip(one, many, strict=True):
        assert dozen.parameters == single.parameters
        assert dozen.forward_flop == pytest.approx(12 * single.forward_flop)
        assert dozen.output_elements == 12 * single.output_elements
        assert single.forward_bytes <= dozen.forward_bytes <= 12 * single.forward_bytes * (1 + 1e-12)


def test_backward_convolutions_and_products_cost_twice_the_forward():
    for cost in networks.vgg16().costs():
        if cost.kind in ("Convolution", "Linear"):
            assert cost.backward_flop == 2 * cost.forward_flop


def test_the_first_layer_needs_no_gradient_of_its_input():
    same = [Convolution(16, 3, padding=1)] * 2
    first, second = Network.sequence("two", (16, 32, 32), same).chain(V100, minibatch=32).layers
    assert first.forward == second.forward
    assert first.backward < second.backward


def test_inference_like_layers_before_any_weights_have_no_backward_pass():
    pooled = Network.sequence("pooled", (3, 8, 8), [Pooling("max", 2), Elementwise(), Flatten(), Linear(2)])
    assert [layer.backward > 0 for layer in pooled.chain(V100, minibatch=4).layers] == [False, False, False, True]


def test_a_faster_device_takes_less_time():
    times = [sum(layer.forward + layer.backward for layer in networks.resnet50().chain(load_device(name)).layers)
             for name in ("titan-x-maxwell", "titan-x-pascal", "gtx-1080-ti", "v100-pcie-16gb", "v100-sxm-16gb")]  # fmt: skip
    assert times == sorted(times, reverse=True)


def test_tensor_cores_make_half_precision_faster_and_outputs_half_as_large():
    single, half = (networks.vgg16().chain(V100, dtype=dtype).layers for dtype in ("fp32", "fp16"))
    assert sum(layer.forward for layer in half) < sum(layer.forward for layer in single)
    assert [2 * layer.output_bytes for layer in half] == [layer.output_bytes for layer in single]


def test_branches_concatenate_channels_residuals_keep_them_and_side_paths_end():
    items = [
        Branches([[Convolution(4, 1)], [Convolution(6, 3, padding=1)], []]),
        Residual([Convolution(13, 3, padding=1)]), SideBranch([Flatten(), Linear(3)]), Pooling("mean"),
    ]  # fmt: skip
    network = Network.sequence("mixed", (3, 8, 8), items)
    assert network.shape("join1") == network.shape("join2") == (13, 8, 8)
    assert network.shape("linear1") == (3,)
    assert network.nodes[-1].inputs == ("join2",) and network.shape(network.nodes[-1].name) == (13, 1, 1)


@pytest.mark.parametrize("layer", [
    Elementwise(), LocalResponseNorm(), Flatten(), Pooling("mean", 2), Convolution(8, 3, dilation=2, groups=2), Join("add"),
])  # fmt: skip
def test_layers_of_images_have_costs_and_times(layer):
    network = Network.sequence("one", (4, 16, 16), [layer])
    (cost,) = network.costs(4)
    assert cost.forward_flop >= 0 and cost.output_elements > 0
    assert network.chain(V100, minibatch=4).layers[0].forward >= 0


@pytest.mark.parametrize("cell", ["lstm", "gru", "tanh"])
def test_both_directions_cost_twice_one(cell):
    def one(bidirectional):
        network = Network.sequence("rnn", (20, 64), [Recurrent(32, cell, bidirectional)])
        return network.parameters, network.forward_flop(8), network.chain(V100, minibatch=8).layers[0].forward

    assert one(True) == pytest.approx([2 * value for value in one(False)])


def test_multiplicative_attention_has_one_matrix_and_additive_two_and_a_vector():
    def attended(score):
        nodes = [Node("attention", Attention(score), ("queries", "keys"))]
        return Network(name="a", inputs={"queries": (5, 32), "keys": (7, 32)}, nodes=nodes)

    assert attended("multiplicative").parameters == 32 * 32
    assert attended("additive").parameters == 2 * 32 * 32 + 32
    assert attended("additive").forward_flop() > attended("multiplicative").forward_flop()


@pytest.mark.parametrize(("build", "field", "wish"), [
    (lambda: Network.sequence("n", (3, 4, 4), [Convolution(8, 5)]), "kernel", "no larger than the padded image"),
    (lambda: Network.sequence("n", (3, 4, 4), [Convolution(8, 3, groups=2)]), "groups", "a divisor of 3 channels"),
    (lambda: Network.sequence("n", (3, 4, 4), [Linear(8)]), "Linear", "Flatten comes between"),
    (lambda: Network.sequence("n", (9,), [Convolution(8, 3)]), "Convolution", "an image"),
    (lambda: Network.sequence("n", (9,), [Recurrent(8)]), "Recurrent", "a sequence"),
    (lambda: Network.sequence("n", (9, 9), [Embedding(8, 8)]), "Embedding", "tokens"),
    (lambda: Network.sequence("n", (3, 4, 4), [Residual([Convolution(8, 1)])]), "add", "inputs of one shape"),
    (lambda: Network.sequence("n", (3, 4, 4), ["relu"]), "items", "layers, Branches"),
    (lambda: Network.sequence("n", (3, 4, 4), []), "nodes", "1 to"),
    (lambda: Network.sequence("n", (3, 0, 4), [Flatten()]), "shape of input", "a whole number from 1"),
    (lambda: Network(name="n", inputs={"x": (3,)}, nodes=[Node("a", Linear(2), ("y",))]), "inputs of a", "before it"),
    (lambda: Network(name="n", inputs={"x": (3,)}, nodes=[Node("a", Attention(), ("x",))]), "inputs of a", "2 inputs"),
    (lambda: Network(name="n", inputs={"x": (3,)}, nodes=[Node("x", Linear(2), ("x",))]), "nodes", "unique"),
    (lambda: Convolution(0, 3), "filters", "a whole number from 1"),
    (lambda: Convolution(8, (3, 3, 3)), "kernel", "two"),
    (lambda: Pooling("median", 2), "reduction", "one of max, mean"),
    (lambda: networks.gnmt(7), "layers", "an even number"),
    (lambda: networks.vgg16().chain(V100, dtype="fp8"), "dtype", "one of fp32"),
    (lambda: networks.vgg16().chain("v100"), "device", "load_device"),
    (lambda: networks.vgg16().chain(V100, minibatch=0), "minibatch", "a whole number from 1"),
    (lambda: networks.vgg16().shape("nowhere"), "name", "a node of vgg-16"),
])  # fmt: skip
def test_what_does_not_fit_is_refused_in_one_line(build, field, wish):
    with pytest.raises(InvalidValue, match=r"expected") as caught:
        build()
    message = str(caught.value)
    assert message.startswith(f"{field}=") and wish in message and "\n" not in message


def test_a_rate_that_a_device_lacks_is_refused():
    with pytest.raises(NotModelled, match="no bf16 rate"):
        networks.alexnet().chain(V100, dtype="bf16")


def test_an_unknown_network_is_refused_with_a_near_name():
    with pytest.raises(UnknownName, match="resnet-50"):
        load_network("resnet-5")


def test_a_loss_over_classes_ends_in_one_number():
    assert Network.sequence("n", (10,), [Linear(5), CrossEntropy()]).shape("crossentropy1") == (1,)

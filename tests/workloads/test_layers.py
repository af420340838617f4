"""Chains of layers: what makes one, what a measured profile says, and one line for a file that isn't one."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.description.layers import ChainLayer, LayerChain
from costmodel.text.errors import InvalidValue, UnreadableFile

PROFILES = Path(__file__).parents[3] / "shared" / "reference" / "seeds" / "profiles"
needs_profiles = pytest.mark.skipif(not PROFILES.is_dir(), reason="the published profiles are not beside this repository")


def line(name, kind="Conv2d(3, 64)", forward="1.5", backward="3.0", output="8.000", weights="16.000"):
    return (
        f"{name} -- {kind} -- forward_compute_time={forward}, backward_compute_time={backward}, "
        f"activation_size={output}, parameter_size={weights}"
    )


SMALL = "\n".join([
    line("node3", "ReLU(inplace)"), line("node1", "Input", forward="635.902"), line("node2"),
    line("node4", output="[4.0; 2.0; 1.0]"),
    "\tnode1 -- node2", "\tnode2 -- node3", "\tnode3 -- node4", "\tnode2 -- node4",
])  # fmt: skip


def read(tmp_path, content):
    file = tmp_path / "small.txt"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return LayerChain.from_pipedream(file)


def test_a_profile_is_read_in_seconds_and_in_an_order_in_which_it_can_run(tmp_path):
    chain = read(tmp_path, SMALL)
    assert chain.name == "small"
    assert [layer.name for layer in chain.layers] == ["node2 Conv2d(3, 64)", "node3 ReLU(inplace)", "node4 Conv2d(3, 64)"]
    assert chain.layers[0].forward == 0.0015 and chain.layers[0].backward == 0.003
    assert chain.layers[2].output_bytes == 7.0  # outputs in brackets add up
    assert chain.inputs == ((), (0,), (0, 1)) or chain.inputs == ((), (0,), (1, 0))
    assert chain.consumers == ((1, 2), (2,), ())


@needs_profiles
@pytest.mark.parametrize(("name", "layers", "parameters"), [  # published counts of parameters [millions]
    ("vgg16", 40, 138.36), ("resnet18", 70, 11.69), ("resnet50", 176, 25.56), ("resnet101", 346, 44.55), ("alexnet", 22, 61.10),
    ("densenet121", 428, 7.98), ("squeezenet1_0", 67, 1.25), ("resnext50", 176, 25.03), ("resnext101", 346, 44.18),
])  # fmt: skip
def test_a_profiled_network_has_the_weights_it_is_known_for(name, layers, parameters):
    chain = LayerChain.from_pipedream(PROFILES / f"{name}.txt")
    assert len(chain.layers) == layers
    assert sum(layer.parameter_bytes for layer in chain.layers) / 4e6 == pytest.approx(parameters, rel=0.005)


@needs_profiles
def test_every_profile_is_read():
    files = sorted(PROFILES.glob("*.txt"))
    assert len(files) == 14
    for file in files:
        chain = LayerChain.from_pipedream(file)
        assert all(source < taker for taker, sources in enumerate(chain.inputs) for source in sources)
        assert sorted(i for group in chain.branches for i in group) == list(range(len(chain.layers)))


@pytest.mark.parametrize(("content", "says"), [
    ("", "holds no layers"), ("\n\n", "holds no layers"), ("hello", "line 1 is neither"),
    (line("node1", "Input"), "holds no layers"), (line("node1") + "\n" + line("node1"), "line 2: node1 is there twice"),
    (line("node1") + "\n\tnode1 -- node2", "line 2: no layer node2"),
    ("\tnode1 -- node2", "line 1: no layer node1"), (line("node1", forward="nan"), "line 1 is neither"),
    (line("node1", forward="-1.0"), "line 1 is neither"), (line("node1", forward="1e999"), "line 1 is neither"),
    (line("node1", weights="1_000"), "line 1 is neither"), (line("node1", output="[1.0; ]"), "line 1 is neither"),
    (line("no de"), "line 1 is neither"), (b"\xff\xfe", "not UTF-8"), (line("../node"), "line 1 is neither"),
    (line("a") + "\n" + line("b") + "\n\ta -- b\n\tb -- a", "circle"), (line("a") + "\n\ta -- a", "circle"),
    (line("a", "Input") + "\n" + line("b") + "\n\tb -- a", "a is an input"),
])  # fmt: skip
def test_a_file_that_is_no_profile_is_refused_with_its_line(tmp_path, content, says):
    with pytest.raises(UnreadableFile, match=says) as refusal:
        read(tmp_path, content)
    assert "\n" not in str(refusal.value)
    assert "small.txt" in str(refusal.value)


def test_a_file_that_is_missing_or_none_or_too_large_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "absent.txt", "", "\0", None, 3):
        with pytest.raises(UnreadableFile):
            LayerChain.from_pipedream(path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnreadableFile, match="is not a file"):
        LayerChain.from_pipedream(tmp_path / "pipe")
    large = tmp_path / "large.txt"
    with large.open("wb") as stream:
        stream.truncate(20_000_000)
    with pytest.raises(UnreadableFile, match="larger"):
        LayerChain.from_pipedream(large)


@given(st.text(alphabet=SMALL + "\t\n[];=-.", max_size=200), st.integers(0, len(SMALL)))
@settings(max_examples=200, deadline=None)
def test_a_profile_with_anything_in_it_is_read_or_refused_in_one_line(tmp_path_factory, inserted, at):
    file = tmp_path_factory.mktemp("profile") / "any.txt"
    file.write_text(SMALL[:at] + inserted + SMALL[at:], newline="")
    try:
        LayerChain.from_pipedream(file)
    except (UnreadableFile, InvalidValue) as refusal:
        assert "\n" not in str(refusal)


def layer(name, **fields):
    return ChainLayer(**{"name": name, "forward": 1.0, "backward": 2.0, "output_bytes": 3.0, "parameter_bytes": 4.0} | fields)


def test_a_layer_takes_the_output_of_the_one_before_if_nothing_is_said():
    chain = LayerChain(name="chain", layers=[layer("a"), layer("b"), layer("c", inputs=["a"]), layer("d", inputs=[])])
    assert chain.inputs == ((), (0,), (0,), ())


def test_another_minibatch_scales_times_and_outputs_but_not_weights():
    chain = LayerChain(name="chain", layers=[layer("a")], minibatch=128).with_minibatch(64)
    assert chain.layers[0] == layer("a", forward=0.5, backward=1.0, output_bytes=1.5)
    assert chain.minibatch == 64
    with pytest.raises(InvalidValue, match="minibatch"):
        LayerChain(name="chain", layers=[layer("a")]).with_minibatch(64)


@pytest.mark.parametrize(("layers", "says"), [
    ([], "1 to"), ([layer("a"), layer("a")], "unique"), ([layer("a", inputs=["b"])], "before it"), (["a"], "ChainLayer"),
    ([layer("a"), layer("b", inputs=["c"])], "before it"),
])  # fmt: skip
def test_layers_that_make_no_chain_are_refused(layers, says):
    with pytest.raises(InvalidValue, match=says):
        LayerChain(name="chain", layers=layers)

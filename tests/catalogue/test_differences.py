"""What was changed of a description is said before and after, with whose unit it is."""

import pytest

from costmodel import load_cluster, load_framework, load_model
from costmodel.catalogue.changes import differences, replace
from costmodel.text.errors import InvalidValue

CLUSTER = {
    "network.bandwidth": "2x", "nvlink.latency": "5 us", "device.memory": "141 GB", "device.dense_peak.bf16": "500 TFLOP/s",
    "device.efficiency.memory": 0.5, "device.power": "350 W",
}  # fmt: skip


def test_nothing_differs_from_itself():
    for one in (load_cluster("dgx-h100"), load_model("llama3-8b"), load_framework("megatron-core")):
        assert differences(one, one) == ()


def test_every_change_is_told_and_no_other():
    cluster = load_cluster("dgx-h100")
    told = {one.path for one in differences(cluster, replace(cluster, CLUSTER))}
    assert told == {path.replace("network", "rail") for path in CLUSTER}


@pytest.mark.parametrize("changes", [{path: value} for path, value in CLUSTER.items()])
def test_what_is_told_can_be_typed_again(changes):
    """The path is one that a change takes, and taking the new value from the old one gives the same description."""
    cluster = load_cluster("dgx-h100")
    changed = replace(cluster, changes)
    (one,) = differences(cluster, changed)
    again = {path: value for path, value in zip([one.path], changes.values(), strict=True)}
    assert replace(cluster, again) == changed
    assert differences(changed, cluster) == ((one.path, one.after, one.before),)


@pytest.mark.parametrize("power", ["350W", "0.35 kW", "0.5x", 350])
def test_a_power_is_said_in_watts_kilowatts_or_by_a_factor(power):
    assert replace(load_cluster("dgx-h100"), {"device.power": power}).device.power == 350.0
    with pytest.raises(InvalidValue, match="power='350GB': expected a unit such as W"):
        replace(load_cluster("dgx-h100"), {"device.power": "350GB"})


def test_a_rate_says_that_it_is_a_gpu_s():
    cluster = load_cluster("dgx-h100")
    faster = replace(cluster, {"network.bandwidth": "100 GB/s", "device.host_bandwidth": "10 GB/s"})
    assert [str(one) for one in differences(cluster, faster)] == [
        "device.host_bandwidth 52.7 -> 10 GB/s", "rail.bandwidth 46 -> 100 GB/s per GPU",
    ]  # fmt: skip


def test_a_gigabyte_is_decimal_and_a_memory_is_shown_in_both():
    """The label's "141 GB" is 141 GiB: who types 141 GB sees that it is less."""
    (one,) = differences(load_cluster("hgx-h200"), replace(load_cluster("hgx-h200"), {"device.memory": "141GB"}))
    assert one == ("device.memory", "141 GiB (151.4 GB)", "131.3 GiB (141 GB)")
    assert differences(load_cluster("hgx-h200"), replace(load_cluster("hgx-h200"), {"device.memory": "141GiB"})) == ()


def test_numbers_of_models_and_frameworks_are_told_too():
    model, framework = load_model("llama3-8b"), load_framework("megatron-core")
    assert [str(one) for one in differences(model, replace(model, {"layers": 40, "gated": "no"}))] == [
        "layers 32 -> 40", "gated yes -> no",
    ]  # fmt: skip
    changed = replace(framework, {"memory_fixed": "2x", "gather_logits": "yes"})
    assert [one.path for one in differences(framework, changed)] == ["constants.memory_fixed", "gather_logits"]


def test_peaks_that_change_alike_are_told_once():
    cluster = load_cluster("dgx-h100")
    (one,) = differences(cluster, replace(cluster, {"device.dense_peak": "2x"}))
    assert one.path == "device.dense_peak"
    assert one.after.startswith("1979 TFLOP/s in ")

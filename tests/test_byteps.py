"""The verb of BytePS: the formulas at their limits, the machine's inside, refusals by name."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.studies.parameter_servers.byteps_cluster import NVLinkMachine, PCIeMachine, byteps
from costmodel.text.errors import InvalidValue

PCIE = PCIeMachine(gpus_per_switch=4, cpu_bandwidth=13.1e9, gpu_bandwidth=13.1e9)
NVLINK = NVLinkMachine(nvlink_bandwidth=25e9, cpu_bandwidth=13.1e9)


def ask(nbytes=1e9, **fields):
    return byteps(nbytes, **{"gpu_machines": 8, "cpu_machines": 4, "bandwidth": 90e9 / 8, **fields})


@given(st.integers(1, 64), st.integers(0, 80))
def test_all_parts_of_the_gradient_are_summed_and_no_link_is_overloaded(n, k):
    result = ask(gpu_machines=n, cpu_machines=k)
    assert n * result.gpu_machine_bytes + k * result.cpu_machine_bytes == pytest.approx(1e9 if n > 1 else n * 1e9)
    for traffic in (result.gpu_traffic, result.cpu_traffic):
        assert traffic / (90e9 / 8) <= result.network_time * (1 + 1e-9)


def test_a_single_machine_exchanges_nothing_over_the_network():
    result = ask(gpu_machines=1, compute_time=1.0, machine=NVLINK)
    assert (result.network_time, result.gpu_traffic, result.gain_over_all_reduce) == (0.0, 0.0, 1.0)
    assert result.step_time == pytest.approx(1.0 + NVLINK.time(1e9))


@given(st.integers(2, 64), st.integers(0, 80))
def test_more_cpu_machines_never_slow_an_exchange(n, k):
    fewer, more = (ask(gpu_machines=n, cpu_machines=count).exchange_time for count in (k, k + 1))
    assert more <= fewer * (1 + 1e-12)


def test_network_and_machine_are_a_pipeline_of_partitions():
    both = ask(machine=PCIE)
    slow, fast = max(both.network_time, both.machine_time), min(both.network_time, both.machine_time)
    assert both.exchange_time == pytest.approx(slow + fast / 250)
    assert ask(machine=PCIE, partition_bytes=1e9).exchange_time == pytest.approx(slow + fast)


def test_the_nic_on_the_root_s_switch_doubles_its_traffic():
    shared = NVLinkMachine(nvlink_bandwidth=1e12, cpu_bandwidth=13.1e9, shared_switch=True)
    apart = NVLinkMachine(nvlink_bandwidth=1e12, cpu_bandwidth=13.1e9)
    assert shared.time(1e9) == pytest.approx(2 * apart.time(1e9))


def test_the_optimal_split_inside_a_pcie_machine_gains_nine_per_cent():
    split = PCIeMachine(gpus_per_switch=4, cpu_bandwidth=13.1e9, gpu_bandwidth=13.1e9, optimal_split=True)
    assert split.direct_share == pytest.approx(0.2)
    assert PCIE.time(1e9) / split.time(1e9) == pytest.approx(0.141 / 0.129, rel=2e-3)


@pytest.mark.parametrize(
    ("fields", "bottleneck"),
    [({"compute_time": 1.0}, "compute"), ({}, "network"), ({"machine": PCIE, "bandwidth": 1e12}, "machine")],
)
def test_the_bottleneck_is_named(fields, bottleneck):
    result = ask(**fields)
    assert result.bottleneck == bottleneck
    assert result.why


def test_overlap_hides_the_exchange_behind_computing():
    assert ask(compute_time=1.0, overlap=0.5).step_time == 1.0
    assert ask(compute_time=0.01, overlap=1.0).step_time == pytest.approx(ask().exchange_time)


@pytest.mark.parametrize(
    "fields",
    [
        {"gpu_machines": 0}, {"cpu_machines": -1}, {"bandwidth": 0.0}, {"efficiency": 1.1}, {"machine": 3},
        {"nbytes": float("nan")},
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(fields):
    with pytest.raises(InvalidValue) as refused:
        ask(**fields)
    assert "\n" not in str(refused.value)


def test_a_machine_that_is_none_is_told_both_kinds():
    with pytest.raises(InvalidValue, match="machine='x': expected a PCIeMachine or NVLinkMachine"):
        ask(machine="x")


def test_numbers_of_numpy_are_taken_as_python_s():
    machine = PCIeMachine(gpus_per_switch=np.int8(4), cpu_bandwidth=np.float32(2.0**33), gpu_bandwidth=np.int64(2**33))
    assert [type(value) for value in (machine.gpus_per_switch, machine.cpu_bandwidth, machine.gpu_bandwidth)] == [int, float, int]
    assert ask(nbytes=np.int64(10**9), gpu_machines=np.int32(32)) == ask(nbytes=10**9, gpu_machines=32)
    with pytest.raises(InvalidValue, match="gpus_per_switch="):
        PCIeMachine(gpus_per_switch=np.bool_(True), cpu_bandwidth=1e9, gpu_bandwidth=1e9)

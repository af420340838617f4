"""Parameter servers, all-reduce and BytePS against figures 15 and 16 of Jiang et al., OSDI 2020, with the catalogue's constants.

Bars of 64, 128 and 256 V100s, eight a machine on one NIC of 100 Gbit/s, a machine without GPUs for each with: read from the
figures' vector graphics to 0.3 % of the axis. A GPU's own time is that of the figures' line of linear scaling.
"""

import dataclasses

import pytest

from costmodel import load_cluster, load_network, parameter_server
from costmodel.catalogue.server_systems import server_system, server_systems
from costmodel.formulas.systems.server_exchange import exchange_time, requests_time
from costmodel.studies.parameter_servers.byteps_cluster import byteps
from costmodel.text.errors import InvalidValue
from costmodel.training.systems_compared import compare_systems

LINE_RATE = 100e9 / 8
MACHINES = (8, 16, 32)
TENSORFLOW, MXNET = "tensorflow-parameter-server", "mxnet-parameter-server"
BACKWARD = 2.0 / 3.0
"""Share of computing beside which gradients move: two products backward for one forward."""
ALL_AT_THE_END = 0.0
"""The same where weights are used again and again in one loss: UGATIT's generators run three times each, and a gradient is
whole only when the first of its runs has gone backward (znxlwm/UGATIT-pytorch UGATIT.py, ``train``)."""
JOBS = {  # bytes of gradients, samples of a GPU, a GPU's samples a second alone, native servers, share that hides
    "resnet-50": (25.6e6 * 4, 256, 360.0336, TENSORFLOW, BACKWARD), "vgg-16": (138.4e6 * 4, 96, 224.9887, MXNET, BACKWARD),
    "ugatit": (671e6 * 4, 2, 2.1508, None, ALL_AT_THE_END), "transformer": (65e6 * 4, 3072, 15451.5141, TENSORFLOW, BACKWARD),
    "bert-large": (336e6 * 2, 8192, 16719.759, MXNET, BACKWARD), "gpt-2": (355e6 * 4, 80, 165.9875, None, BACKWARD),
}  # fmt: skip
BARS = {
    ("resnet-50", "native"): (18554.2, 33277.1, 56321.6), ("resnet-50", "all-reduce"): (22074.9, 43903.1, 81414.5),
    ("resnet-50", "BytePS"): (22587, 44799.3, 89864.1), ("vgg-16", "native"): (7034.6, 12410.9, 20475.3),
    ("vgg-16", "all-reduce"): (12154.9, 23675.4, 37884.1), ("vgg-16", "BytePS"): (14202.9, 28155.7, 55805),
    ("ugatit", "BytePS"): (103.2, 206.4, 409.6), ("transformer", "native"): (597859.4, 789653.8, 1050747.9),
    ("transformer", "BytePS"): (943880, 1820600.1, 3625372.9), ("bert-large", "native"): (617062.3, 1127765.2, 2118624.8),
    ("bert-large", "BytePS"): (987619.8, 1978732, 3942358.7), ("gpt-2", "BytePS"): (9857, 19839.7, 40189),
}  # fmt: skip
ROWS = {"native": "parameter server, synchronous", "all-reduce": "all-reduce", "BytePS": "BytePS"}


@pytest.fixture(scope="module")
def compared():
    """Systems on the paper's machines, layers by their shapes, stretched to the GPU's published samples a second."""
    found = {}
    for network in ("resnet-50", "vgg-16"):
        _, samples, alone, native, _ = JOBS[network]
        for machines in MACHINES:
            cluster = load_cluster("v100-100g-rdma", gpus=8 * machines)
            chain = load_network(network).chain(cluster.device, minibatch=samples)
            factor = samples / alone / sum(layer.forward + layer.backward for layer in chain.layers)
            layers = [dataclasses.replace(layer, forward=factor * layer.forward, backward=factor * layer.backward)
                      for layer in chain.layers]  # fmt: skip
            chain = dataclasses.replace(chain, layers=layers)
            found[network, machines] = compare_systems(chain, cluster, servers_of=native, all_reduce_of="horovod-2019")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("network", ["resnet-50", "vgg-16"])
@pytest.mark.parametrize("system", list(ROWS))
def test_bars_of_64_to_256_gpus_are_within_15_per_cent(compared, network, system):
    for machines, bar in zip(MACHINES, BARS[network, system], strict=True):
        assert compared[network, machines][ROWS[system]].throughput == pytest.approx(bar, rel=0.15), machines


@pytest.mark.slow
@pytest.mark.parametrize("network", ["resnet-50", "vgg-16"])
@pytest.mark.parametrize("machines", MACHINES)
def test_native_servers_are_slowest_and_byteps_fastest(compared, network, machines):
    native, ring, best = (compared[network, machines][row].throughput for row in ROWS.values())
    assert native < ring < best


def throughput(job, system, machines):
    """Samples a second of all GPUs, a job told by its numbers alone."""
    nbytes, samples, alone, native, hidden = JOBS[job]
    software = server_system("byteps" if system == "BytePS" else native)
    link, compute = software.link_share * LINE_RATE, samples / alone
    if system == "BytePS":
        step = byteps(
            nbytes, gpu_machines=machines, cpu_machines=machines, bandwidth=link, compute_time=compute,
            overlap=hidden,
        )  # fmt: skip
        return 8 * machines * samples / step.step_time
    step = parameter_server(
        nbytes, compute_time=compute, workers=machines, servers=machines, bandwidth=link, partition_bytes=None,
        request_time=software.request_time,
    )  # fmt: skip
    return 8 * samples * step.throughput


@pytest.mark.parametrize(("job", "system"), [key for key in BARS if key[1] != "all-reduce"])
def test_one_set_of_constants_for_each_software_gives_every_job_s_bars_within_15_per_cent(job, system):
    for machines, bar in zip(MACHINES, BARS[job, system], strict=True):
        assert throughput(job, system, machines) == pytest.approx(bar, rel=0.15), machines


def test_requests_of_workers_add_up_and_no_bandwidth_cures_them():
    fast = parameter_server(1e9, compute_time=0.1, workers=32, servers=32, bandwidth=1e15, request_time=0.0125)
    assert fast.step_time == pytest.approx(0.1 + requests_time(32.0, 0.0125), rel=1e-3)
    assert fast.bottleneck == "server requests" and "requests of 32 workers" in fast.why
    plain = exchange_time(1e9, 1e9, 32.0, 32.0, 1.0, 0.0, 1e10, 1e10, 1e30, 0.0, 250.0)
    both = parameter_server(1e9, compute_time=0.0, workers=32, servers=32, bandwidth=1e10, request_time=0.0125)
    assert both.step_time == pytest.approx(plain + 0.4)


def test_software_reaches_no_more_than_its_link():
    for name in server_systems():
        found = server_system(name)
        assert 0.0 < found.link_share <= 1.0 and found.request_time >= 0.0, name
    with pytest.raises(InvalidValue, match="^server_system"):
        server_system("mpi")

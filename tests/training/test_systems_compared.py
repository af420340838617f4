"""Systems side by side: what must hold between them, whatever the workload."""

import pytest

from costmodel import estimate, load_cluster, load_device, load_model, load_network
from costmodel.description.cluster import Cluster, Level
from costmodel.description.layers import ChainLayer, LayerChain
from costmodel.description.plan import Plan
from costmodel.plots.comparison import Hours, compared_systems, comparison_bars, hours_against_machines
from costmodel.studies.parameter_servers.servers import Stragglers
from costmodel.studies.partitioning import partition
from costmodel.text.errors import CostModelError, InvalidValue
from costmodel.training.system_names import rows_called
from costmodel.training.systems_compared import compare_systems, rows_of

SYNCHRONOUS = ("all-reduce", "ZeRO-1", "parameter server, synchronous", "BytePS", "GPipe", "Sandblaster")


def uniform(layers=16, parameter_bytes=4e6):
    made = [ChainLayer(name=f"l{i}", forward=0.01, backward=0.02, output_bytes=1e6, parameter_bytes=parameter_bytes)
            for i in range(layers)]  # fmt: skip
    return LayerChain(name="uniform", layers=made, minibatch=8)


def flat(gpus, bandwidth=1e10):
    inner = Level(name="nvlink", size=4, latency=1e-6, bandwidth=10 * bandwidth)
    outer = Level(name="rail", size=1024, latency=1e-6, bandwidth=bandwidth)
    return Cluster(name="test", device=load_device("v100-sxm-16gb"), levels=[inner, outer], gpus=gpus)


@pytest.fixture(scope="module")
def chain():
    return compare_systems(uniform(), flat(16), gpu_hour=2.0, server_hour=0.5)


@pytest.fixture(scope="module")
def transformer():
    return compare_systems(load_model("gpt2-xl"), load_cluster("dgx-a100", gpus=32), global_batch=128, seq_len=1024)


@pytest.mark.parametrize("which", ["chain", "transformer"])
def test_no_system_computes_faster_than_computing(which, request):
    for one in request.getfixturevalue(which).systems:
        assert 0.0 < one.efficiency <= 1.0 + 1e-9, one.name
        assert one.throughput == pytest.approx(one.samples / one.step_time)


@pytest.mark.parametrize("which", ["chain", "transformer"])
def test_what_waits_for_all_is_never_stale_and_what_does_not_is(which, request):
    found = {one.name: one.staleness.mean for one in request.getfixturevalue(which).systems}
    assert all(found[name] == 0.0 for name in SYNCHRONOUS)
    workers = 16 if which == "chain" else 32
    assert found["parameter server, asynchronous"] == pytest.approx(workers - 1, rel=0.05)
    assert found["DeDLOC"] == 1.0 and found["local SGD"] == 7.5


def test_an_infinitely_fast_network_leaves_data_parallelism_its_compute():
    found = compare_systems(uniform(), flat(16, 1e14), servers_of="ideal")
    for name in ("all-reduce", "parameter server, synchronous", "local SGD", "Downpour", "DeDLOC"):
        assert found[name].efficiency == pytest.approx(1.0, abs=0.01), name


def test_gpipe_s_efficiency_is_that_of_its_bubble():  # huang2019: M / (M + K - 1)
    found = compare_systems(uniform(layers=16), flat(16, 1e14))["GPipe"]
    assert found.efficiency == pytest.approx(16 / (16 + 16 - 1), rel=1e-6)


@pytest.mark.slow
def test_stragglers_cost_those_that_wait_and_none_else():
    even = compare_systems(uniform(), flat(16))
    slow = compare_systems(uniform(), flat(16), stragglers=Stragglers(distribution="exponential", spread=0.3))
    for name in ("all-reduce", "BytePS", "local SGD", "parameter server, synchronous"):
        assert slow[name].step_time > 1.3 * even[name].step_time, name
    for name in ("Downpour", "DeDLOC"):
        assert slow[name].step_time < 1.1 * even[name].step_time, name


def test_a_price_counts_servers_too(chain):
    for one in chain.systems:
        assert one.samples_per_price == pytest.approx(3600 * one.throughput / (2.0 * 16 + 0.5 * one.servers))
    assert compare_systems(uniform(), flat(4))["all-reduce"].samples_per_price is None


def test_data_parallelism_s_row_is_its_estimate(transformer):
    plan = Plan(global_batch=128, seq_len=1024, data_parallel=32, zero_stage=1, micro_batch=4)
    answer = estimate(load_model("gpt2-xl"), load_cluster("dgx-a100", gpus=32), plan)
    row = transformer["ZeRO-1"]
    assert (row.step_time, row.memory) == (answer.step_time, answer.memory.total)


def test_systems_that_fit_come_first_and_the_fastest_of_them_first(transformer):
    order = [(not one.fits, one.step_time / one.samples) for one in transformer.systems]
    assert order == sorted(order)
    assert len(transformer.systems) + len(transformer.refused) == 18


def test_what_is_not_modelled_is_refused_with_a_word(chain):
    assert set(chain.refused) == {"ZeRO-3", "tensor parallelism"}
    with pytest.raises(InvalidValue, match="whose layers have times"):
        chain["tensor parallelism"]


BASELINE = "{}: {} % of a step of AlexNet's data parallelism is communication, where figure 1 has {} %; with that, met (below)"
SPEED_UPS = [  # narayanan2019, table 1: PipeDream's epochs over data parallelism's, on 16 V100s; A: 10 Gbit/s, B: 25 Gbit/s
    ("vgg-16", "azure-nc24s-v3", 64, 5.28, None), ("vgg-16", "aws-p3-one-flow", 64, 2.98, None),
    ("resnet-50", "azure-nc24s-v3", 128, 1.0, None), ("resnet-50", "aws-p3-one-flow", 128, 1.0, None),
    ("alexnet", "azure-nc24s-v3", 256, 4.92, BASELINE.format(3.16, 90.8, 93.8)),
    ("alexnet", "aws-p3-one-flow", 256, 2.04, BASELINE.format(3.47, 84.7, 80.3)),
]


def systems_of(network, cluster, minibatch):
    machines = load_cluster(cluster, gpus=16)
    return compare_systems(load_network(network).chain(machines.device, minibatch=minibatch), machines)


@pytest.mark.parametrize(("network", "cluster", "minibatch", "published"), [
    pytest.param(*row[:4], marks=[pytest.mark.xfail(strict=True, reason=row[4])] if row[4] else [], id=f"{row[0]}, {row[1]}")
    for row in SPEED_UPS
])  # fmt: skip
def test_pipedream_gains_over_data_parallelism_what_was_published_within_35_per_cent(network, cluster, minibatch, published):
    found = systems_of(network, cluster, minibatch)
    assert found["PipeDream"].throughput / found["all-reduce"].throughput == pytest.approx(published, rel=0.35)


@pytest.mark.parametrize(("cluster", "communicating", "published"), [
    ("azure-nc24s-v3", 0.938, 4.92), ("aws-p3-one-flow", 0.803, 2.04),
])  # fmt: skip
def test_alexnet_s_gain_is_that_over_the_published_share_of_communication(cluster, communicating, published):
    """Figure 1 of narayanan2019 on 16 GPUs: where nine tenths of a step are an exchange, a point is a tenth of the speed."""
    found = systems_of("alexnet", cluster, 256)
    assert found["PipeDream"].efficiency / (1.0 - communicating) == pytest.approx(published, rel=0.35)


def test_pipedream_s_row_is_the_partitioner_s_price():
    machines = flat(16)
    found = partition(uniform(), [4, 4], [1e11, 4e10])  # all four links of a node between nodes
    row = compare_systems(uniform(), machines)["PipeDream"]
    assert (row.step_time, row.setting) == (pytest.approx(16 * found.time), f"stages {found.configuration}")


def test_figures_show_what_the_table_holds(chain):
    bars = comparison_bars(chain)
    assert bars.names == tuple(one.name for one in chain.systems)
    assert bars.values[0] == tuple(100 * one.efficiency for one in chain.systems)
    figure = compared_systems(chain)
    assert len(figure.data) == 4 and "updates" in figure.layout.xaxis4.title.text
    drawn = hours_against_machines([Hours("one", (1, 2), (3.0, 2.0), (3.1, 2.1))], "hours")
    assert [trace.name for trace in drawn.data] == ["one, published", "one, predicted"]
    assert rows_of([chain])[0]["workload"] == "uniform"


@pytest.mark.parametrize(("workload", "given", "field"), [
    ("chain", {"global_batch": 8}, "global_batch"), ("chain", {"micro_batch": 8}, "micro_batch"),
    ("chain", {"servers_of": "mpi"}, "servers_of"), ("chain", {"all_reduce_of": 3}, "all_reduce_of"),
    ("chain", {"servers": 0}, "servers"), ("chain", {"gpu_hour": -1.0}, "gpu_hour"), ("chain", {"stragglers": 0.1}, "stragglers"),
    ("model", {}, "global_batch"), ("model", {"global_batch": 64}, "seq_len"), ("name", {}, "workload"),
    ("model", {"global_batch": 64, "seq_len": 1024, "zero_stage": 1}, "zero_stage"),
])  # fmt: skip
def test_nonsense_is_refused_in_one_line(workload, given, field):
    made = {"chain": uniform(), "model": load_model("gpt2-xl"), "name": "gpt2-xl"}[workload]
    with pytest.raises(CostModelError, match=f"^{field}") as refused:
        compare_systems(made, flat(8), **given)
    assert "\n" not in str(refused.value)


def test_systems_that_are_asked_for_stand_beside_an_all_reduce_as_they_do_among_all():
    chain = load_network("alexnet").chain(load_device("v100-sxm-16gb"), minibatch=64)
    cluster = load_cluster("dgx-1v", gpus=16)
    asked = compare_systems(chain, cluster, systems=["DistBelief", "zero_1"])
    assert {one.name for one in asked.systems} == {"all-reduce", "ZeRO-1", "Downpour", "Sandblaster"}
    for one in asked.systems:
        assert one == compare_systems(chain, cluster, systems=[one.name])[one.name]
    with pytest.raises(InvalidValue, match="systems='gossip'"):
        compare_systems(chain, cluster, systems=["gossip"])


def test_every_row_of_a_comparison_has_a_name_of_the_literature(chain, transformer):
    for name in (*(one.name for made in (chain, transformer) for one in made.systems), *chain.refused, *transformer.refused):
        assert name in rows_called(name)

"""A data-parallel step: exact recurrences on small chains, and limits that need no model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.catalogue.clusters import load_cluster
from costmodel.catalogue.loader import load_device
from costmodel.description.cluster import Cluster, Level
from costmodel.description.layers import ChainLayer, LayerChain
from costmodel.description.networks import load_network
from costmodel.studies.data_parallel import data_parallel_step, expected_largest
from costmodel.text.errors import InvalidValue

FREE = {"bucket": 1.0, "launch_time": 0.0}


def cluster(bandwidth=1e9, gpus=8):
    levels = (Level(name="links", size=gpus, latency=0.0, bandwidth=bandwidth),)
    return Cluster(name="flat", device=load_device("v100-pcie-16gb"), levels=levels)


def chain(*rows):
    """Layers of forward, backward [s] and parameters [bytes]."""
    layers = [ChainLayer(name=f"l{n}", forward=f, backward=b, output_bytes=1.0, parameter_bytes=p)
              for n, (f, b, p) in enumerate(rows)]  # fmt: skip
    return LayerChain(name="c", layers=layers)


def test_an_exchange_by_hand():
    # two GPUs move n bytes each way at 1 GB/s; last layer first: ready at 5 for 4 s, then at 8 (ends at 9) for 2 s
    step = data_parallel_step(chain((1.0, 3.0, 2e9), (1.0, 3.0, 4e9)), cluster(), 2, **FREE)
    assert (step.exchange, step.exposed, step.time) == pytest.approx((6.0, 3.0, 11.0))
    after = data_parallel_step(chain((1.0, 3.0, 2e9), (1.0, 3.0, 4e9)), cluster(), 2, overlap=False, **FREE)
    assert (after.exposed, after.time) == pytest.approx((6.0, 14.0))


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.integers(0, 10**9)), min_size=1, max_size=6),
    st.integers(2, 8), st.floats(1.0, 2e9),
)  # fmt: skip
def test_exposed_time_is_between_what_cannot_hide_and_all_of_it(rows, gpus, bucket):
    made = chain(*rows)
    behind = data_parallel_step(made, cluster(), gpus, bucket=bucket, launch_time=0.0)
    after = data_parallel_step(made, cluster(), gpus, bucket=bucket, launch_time=0.0, overlap=False)
    backward = sum(b for _, b, _ in rows)
    assert behind.exchange == after.exchange == pytest.approx(after.exposed)
    assert max(0.0, behind.exchange - backward) - 1e-9 <= behind.exposed <= after.exposed + 1e-9
    moved = 2 * (gpus - 1) / gpus * sum(p for *_, p in rows) / 1e9  # Patarasuk and Yuan's bound
    assert behind.exchange >= moved * (1 - 1e-9)


def test_a_chain_of_nothing_is_refused():
    with pytest.raises(InvalidValue, match="at least one layer|expected 1 to"):
        data_parallel_step(chain(), cluster(), 2)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.integers(0, 10**9)), min_size=1, max_size=8),
    st.integers(2, 8), st.integers(1, 2 * 10**9),
)  # fmt: skip
def test_buckets_are_those_of_counting_layer_by_layer(rows, gpus, bucket):
    made = data_parallel_step(chain(*rows), cluster(), gpus, bucket=bucket, launch_time=0.0)
    clock = held = end = sent = buckets = 0
    for place, (_, backward, nbytes) in enumerate(reversed(rows), 1):
        clock, held = clock + backward, held + nbytes
        if held >= bucket or (held and place == len(rows)):
            time = 2 * (gpus - 1) / gpus * held / 1e9
            end, sent, buckets, held = max(clock, end) + time, sent + time, buckets + 1, 0
    assert made.buckets == buckets
    assert made.exchange == pytest.approx(sent)
    assert made.exposed == pytest.approx(max(0.0, end - clock), abs=1e-9)


def test_one_gpu_exchanges_nothing():
    step = data_parallel_step(chain((1.0, 2.0, 1e9)), cluster(), 1, jitter=0.1)
    assert (step.exchange, step.communication_share, step.efficiency) == (0.0, 0.0, 1.0)


def test_the_largest_of_two_normal_deviates_is_one_over_the_root_of_pi():
    assert expected_largest(2) == pytest.approx(0.5642, abs=0.03)
    assert expected_largest(10) == pytest.approx(1.5388, abs=0.01)  # tables of order statistics
    assert expected_largest(100) == pytest.approx(2.5076, abs=0.01)


def test_fewer_gpus_get_more_of_a_bus_and_less_of_a_mesh():
    made = chain((0.0, 0.0, 1e9))
    bus, switch, mesh = (data_parallel_step(made, cluster(), 2, wiring=wiring, **FREE).exchange
                         for wiring in ("bus", "switch", "mesh"))  # fmt: skip
    assert bus == pytest.approx(switch / 4) and mesh == pytest.approx(switch * 7)
    whole = {data_parallel_step(made, cluster(), 8, wiring=wiring, **FREE).exchange for wiring in ("bus", "switch", "mesh")}
    assert max(whole) == pytest.approx(min(whole))


def test_an_exchange_between_nodes_is_as_slow_as_the_node_shares_its_link():
    azure = load_cluster("azure-nc24s-v3")
    step = data_parallel_step(chain((0.0, 0.0, 1e9)), azure, 8, wiring="bus", launch_time=0.0)
    assert step.exchange == pytest.approx(2 * 7 / 8 * 1e9 / (4 * 170e6), rel=0.01)


@pytest.mark.parametrize(("name", "published"), [
    # Narayanan et al. SOSP 2019, figure 17: bytes a training sample on 4 GPUs, minibatch 64, read off to 1e6
    ("gnmt-8", 7.37e7), ("gnmt-16", 1.06e8), ("vgg-16", 5.26e7), ("resnet-50", 9.71e6),
])  # fmt: skip
def test_data_parallel_workers_send_what_pipedreams_figure_17_shows(name, published):
    sent = 2 * 3 * 4 * load_network(name).parameters  # a ring's 2 (p - 1) / p of the weights by each of p = 4
    assert sent / 64 == pytest.approx(published, rel=0.02)


@pytest.mark.parametrize(("given", "field"), [
    ({"gpus": 0}, "gpus"), ({"gpus": 16}, "gpus"), ({"wiring": "hypercube"}, "wiring"), ({"jitter": -1.0}, "jitter"),
    ({"bucket": 0.0}, "bucket"), ({"overlap": 1}, "overlap"),
])  # fmt: skip
def test_nonsense_is_refused(given, field):
    with pytest.raises(InvalidValue, match=field):
        data_parallel_step(chain((1.0, 1.0, 1.0)), cluster(), **({"gpus": 2} | given))


def test_a_cube_mesh_is_one_of_eight_gpus():
    with pytest.raises(InvalidValue, match=r"^wiring='cube-mesh'.* nodes of 8 GPUs"):
        data_parallel_step(chain((1.0, 1.0, 1.0)), load_cluster("azure-nc24s-v3"), 2, wiring="cube-mesh")

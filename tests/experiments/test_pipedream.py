"""The share of communication against PipeDream's figure 1, and configurations against its table of 2018."""

import dataclasses

import pytest
from scipy.optimize import brentq

from calibration.data.reference import DEFAULT_FOLDER, table_rows
from costmodel.catalogue.clusters import load_cluster
from costmodel.description.cluster import Level
from costmodel.description.networks import load_network
from costmodel.studies.data_parallel import data_parallel_step
from experiments.pipedream import communication, partitions

PROFILES = DEFAULT_FOLDER / "seeds" / "profiles"
FIGURE = DEFAULT_FOLDER / "seeds" / communication.NAME
needs_profiles = pytest.mark.skipif(not PROFILES.is_dir(), reason="no reference folder with profiles beside the checkout")
needs_figure = pytest.mark.skipif(not FIGURE.is_file(), reason="no reference folder with the figure beside the checkout")

# Figure 1 of Narayanan et al., SOSP 2019

SLOWER = "the network gave 66 to 79 % of the catalogue's rate: with what AlexNet tells of it, they are met (below)"
TWICE = "GNMT-8's minibatch was twice table 1's there: with 128 all five cells are met (below)"
HALF = "GNMT-16's minibatch was half of table 1's there: with 32 its cells of 2, 16 and 32 GPUs are met, of 4 by 1.5 points not"
EIGHT = "eight GPUs of a server lose several times what their links explain, in TensorFlow on a DGX-1 as here (below)"
MISSED = {
    ("8x1080Ti private cluster", "vgg-16"): {8: EIGHT},
    ("8x1080Ti private cluster", "gnmt-8"): dict.fromkeys((2, 4, 16, 32), TWICE),
    ("4xV100 Azure (PCIe, 10 Gbps)", "resnet-50"): dict.fromkeys((16, 32), SLOWER),
    ("8xV100 NVLink EC2 (25 Gbps)", "vgg-16"): {8: EIGHT, 32: SLOWER},
    ("8xV100 NVLink EC2 (25 Gbps)", "resnet-50"): {32: SLOWER},
    ("8xV100 NVLink EC2 (25 Gbps)", "gnmt-16"): {2: HALF, 4: HALF, 8: EIGHT},
}
"""Cells that the model misses by more than ten points, and why."""


@pytest.fixture(scope="module")
def table():
    cells = communication.cells(communication.read_figure(FIGURE))
    return {(cell.instance, cell.network, cell.gpus): cell for cell in cells}


def cases():
    for instance in communication.INSTANCES:
        for network in communication.MINIBATCHES:
            for gpus in communication.GPUS:
                why = MISSED.get((instance.published, network), {}).get(gpus)
                marks = [pytest.mark.xfail(strict=True, reason=why)] if why else []
                yield pytest.param(instance.published, network, gpus, marks=marks)


@needs_figure
@pytest.mark.parametrize(("instance", "network", "gpus"), list(cases()))
def test_the_share_of_communication_is_predicted_within_ten_points(table, instance, network, gpus):
    assert abs(table[instance, network, gpus].error) <= communication.TOLERANCE


# Causes of the cells that are missed


def share(instance, network, gpus, factor=1.0, minibatch=None):
    """Predicted share of communication [%], with so much of the bandwidth between nodes."""
    given = next(one for one in communication.INSTANCES if one.published == instance)
    cluster = load_cluster(given.cluster)
    inner, outer = cluster.levels
    levels = (inner, dataclasses.replace(outer, bandwidth=factor * outer.bandwidth))
    cluster = dataclasses.replace(cluster, levels=levels)
    minibatch = minibatch or communication.fitting_minibatch(network, cluster)
    chain = load_network(network).chain(cluster.device, minibatch=minibatch)
    step = data_parallel_step(chain, cluster, gpus, overlap=False, wiring=given.wiring, jitter=communication.JITTER)
    return 100.0 * step.communication_share


@needs_figure
@pytest.mark.parametrize(("instance", "gpus"), [
    ("4xV100 Azure (PCIe, 10 Gbps)", 16), ("4xV100 Azure (PCIe, 10 Gbps)", 32), ("8xV100 NVLink EC2 (25 Gbps)", 32),
])  # fmt: skip
def test_a_slower_network_explains_what_is_missed_between_nodes(table, instance, gpus):
    """AlexNet, which does little but communicate, tells what the network gave that day: 66 to 79 % of what is in the catalogue.

    With that, ResNet-50 and VGG-16 are within ten points on the same GPUs, which they miss otherwise.
    """
    told = table[instance, "alexnet", gpus].published
    reached = brentq(lambda factor: share(instance, "alexnet", gpus, factor) - told, 0.3, 1.5)
    assert 0.6 < reached < 0.8
    for network in ("resnet-50", "vgg-16"):
        published = table[instance, network, gpus].published
        assert share(instance, network, gpus, reached) == pytest.approx(published, abs=10.0), network


@needs_figure
def test_twice_the_minibatch_explains_gnmt_8_on_the_1080_ti(table):
    """There it communicates less than GNMT-16 does, where on both other clusters it communicates more for its compute."""
    for gpus in communication.GPUS:
        found = share("8x1080Ti private cluster", "gnmt-8", gpus, minibatch=128)
        assert found == pytest.approx(table["8x1080Ti private cluster", "gnmt-8", gpus].published, abs=10.0), gpus


def lost(share):
    """Exchange and waiting over the compute of one worker, of their share of a step [%]."""
    return share / (100.0 - share)


EC2 = "8xV100 NVLink EC2 (25 Gbps)"


@needs_figure
def test_half_the_minibatch_explains_gnmt_16_on_ec2(table):
    """At one minibatch GNMT-16 computes more for each weight than GNMT-8, and exchanges less for its compute, as in Azure."""
    weights = load_network("gnmt-16").parameters / load_network("gnmt-8").parameters
    for gpus in (2, 4, 8, 16):
        ratio = lost(table[EC2, "gnmt-16", gpus].published) / lost(table[EC2, "gnmt-8", gpus].published)
        assert ratio > 1.3 * weights, gpus
    for gpus in (2, 16, 32):
        assert share(EC2, "gnmt-16", gpus, minibatch=32) == pytest.approx(table[EC2, "gnmt-16", gpus].published, abs=10.0), gpus
    assert share(EC2, "gnmt-16", 4, minibatch=32) == pytest.approx(table[EC2, "gnmt-16", 4].published, abs=12.0)


TENSORFLOW_VGG = {64: (154, 584, 1081), 32: (144, 549, 820)}
"""Images a second of 1, 4 and 8 P100s of a DGX-1, VGG-16 with NCCL, May 2017, by images a GPU:
tensorflow/tensorflow docs_src/performance/benchmarks.md."""


@needs_figure
def test_vgg_16_loses_on_eight_gpus_of_a_cube_mesh_what_no_link_explains_in_two_frameworks(table):
    """Four lose little: from four to eight the loss grows by 35 to 80 ms, where the rings of eight pass all gradients in 9."""
    cluster = load_cluster("aws-p3-one-flow")
    chain = load_network("vgg-16").chain(cluster.device, minibatch=64)
    ring = data_parallel_step(chain, cluster, 8, overlap=False, wiring="cube-mesh")
    assert ring.exchange < 0.009
    four, eight = (lost(table[EC2, "vgg-16", gpus].published) * (ring.forward + ring.backward) for gpus in (4, 8))
    grown = [eight - four]
    for images, (one, of_four, of_eight) in TENSORFLOW_VGG.items():
        alone = images / one
        grown.append((8 * images / of_eight - alone) - (4 * images / of_four - alone))
    assert all(0.034 < more < 0.080 for more in grown)


@needs_figure
def test_a_ring_through_both_sockets_explains_eight_1080_tis_but_for_vgg_16(table):
    """NCCL takes 6 GB/s between two sockets less a fifth of peer traffic (src/graph/topo.h), for four GPUs of each."""
    private = "8x1080Ti private cluster"
    cluster = load_cluster("gtx-1080-ti-node")
    pcie, ethernet = cluster.levels
    sockets = Level(name="sockets", size=8, latency=pcie.latency, bandwidth=6e9 / 1.2 / 4)
    cluster = dataclasses.replace(cluster, levels=(dataclasses.replace(pcie, size=4), sockets, ethernet))
    errors = {}
    for network in communication.MINIBATCHES:
        minibatch = 128 if network == "gnmt-8" else communication.fitting_minibatch(network, cluster)  # as above
        chain = load_network(network).chain(cluster.device, minibatch=minibatch)
        step = data_parallel_step(chain, cluster, 8, overlap=False, jitter=communication.JITTER)
        errors[network] = 100.0 * step.communication_share - table[private, network, 8].published
    assert -14.0 < errors.pop("vgg-16") < -12.0
    assert max(map(abs, errors.values())) < 5.0


@needs_figure
def test_an_exchange_after_the_backward_pass_explains_the_figure_better_than_one_behind_it(table):
    after = sum(abs(cell.error) for cell in table.values())
    behind = sum(abs(cell.behind - cell.published) for cell in table.values())
    assert after < 0.6 * behind


TABLE = DEFAULT_FOLDER / "seeds" / partitions.NAME


@pytest.fixture(scope="module")
def published():
    rows = partitions.rows(table_rows(TABLE), PROFILES)
    return {(row.network, row.machines, row.cluster, row.layers): row for row in rows}


@pytest.mark.slow
@needs_profiles
def test_configurations_of_pipedream_s_table_are_found_or_missed_for_a_cause(published):
    assert len(published) == 13
    missed = {(row.network, row.machines) for row in published.values() if not row.agrees}
    assert missed == {("vgg-16", 4), ("vgg-16", 16), ("s2vt", 4)}
    for row in published.values():
        assert row.as_published.configuration == row.configuration
        assert row.slower >= -1e-12 and (row.slower < 1e-9) == row.agrees
        assert bool(row.cause) != row.agrees


@pytest.mark.slow
@needs_profiles
def test_the_authors_profile_gives_their_measured_speed_ups_where_it_is_cut_as_they_cut_it(published):
    for (_, machines, _, layers), row in published.items():
        if layers == "profile":
            assert row.as_published.speedup_over_one == pytest.approx(row.speedup_over_one, rel=0.16)
            if machines == 16:  # not the 15.9 of the configuration that their recurrence prefers
                assert row.as_published.speedup_over_one == pytest.approx(9.86, rel=0.05)
                assert row.slower > 0.5 and "measured as fast as it is priced" in row.cause


@pytest.mark.slow
@needs_profiles
def test_bytes_saved_are_those_published_within_ten_points_where_the_authors_profile_is_cut_as_published(published):
    for row in published.values():
        if row.layers == "profile":
            assert row.as_published.communication_reduction == pytest.approx(row.reduction, abs=0.105)
    s2vt = published["s2vt", 4, "A", "shapes"]
    assert s2vt.as_published.communication_reduction == pytest.approx(0.95, abs=0.03)
    assert "the authors' times were others" in s2vt.cause

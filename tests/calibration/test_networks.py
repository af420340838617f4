"""Times of layers against PipeDream's measured profiles, and the share of communication against its figure 1."""

import dataclasses

import pytest
from scipy.optimize import brentq

from calibration.convolution import communication
from calibration.convolution.command import (
    DEVICE,
    IMAGE_NETWORKS,
    PRIORS,
    Rows,
    fit_rows,
    read_profile,
    read_profiles,
    unseen,
)
from calibration.data.reference import DEFAULT_FOLDER
from costmodel.catalogue.loader import load_cluster, load_device
from costmodel.description.networks import load_network
from costmodel.errors import UnreadableFile
from costmodel.studies.data_parallel import data_parallel_step

PROFILES = DEFAULT_FOLDER / "seeds" / "profiles"
FIGURE = DEFAULT_FOLDER / "seeds" / communication.NAME
needs_profiles = pytest.mark.skipif(not PROFILES.is_dir(), reason="no reference folder with profiles beside the checkout")
needs_figure = pytest.mark.skipif(not FIGURE.is_file(), reason="no reference folder with the figure beside the checkout")


@pytest.mark.slow
@needs_profiles
def test_a_network_left_out_is_predicted_within_a_twentieth_on_average_and_a_sixth_at_most():
    rows = Rows(read_profiles(PROFILES), load_device(DEVICE))
    values = dict(zip(PRIORS, fit_rows(rows).values, strict=True))
    off = [abs(held_out / measured - 1) for measured, _, held_out in unseen(rows, values).values()]
    assert len(off) == len(IMAGE_NETWORKS)
    assert sum(off) / len(off) < 0.05
    assert max(off) < 0.16


@needs_profiles
def test_the_catalogue_holds_what_the_command_fits():
    result = fit_rows(Rows(read_profiles(PROFILES), load_device(DEVICE)))
    kept = dataclasses.asdict(load_device(DEVICE).layer_efficiency)
    for field, value in zip(PRIORS, result.values, strict=True):
        if field in kept:
            assert kept[field] == pytest.approx(value, rel=1e-3)


@needs_profiles
@pytest.mark.parametrize(("profile", "name"), [
    ("alexnet", "alexnet"), ("vgg16", "vgg-16"), ("resnet50", "resnet-50"), ("inception_v3", "inception-v3"),
])  # fmt: skip
def test_a_built_in_network_has_the_layers_of_its_profile(profile, name):
    measured = read_profile(PROFILES / f"{profile}.txt")
    network = load_network(name)
    kinds = {type(row.layer).__name__ for row in measured}
    ours = sorted((type(n.layer).__name__, network.shape(n.inputs[0])) for n in network.nodes
                  if type(n.layer).__name__ in kinds - {"Pooling"})  # fmt: skip
    theirs = sorted((type(row.layer).__name__, row.shape) for row in measured if type(row.layer).__name__ != "Pooling")
    assert ours == theirs


@pytest.mark.parametrize("content", ["", "node1 -- Input -- forward_compute_time=0.0", "\x00"])
def test_what_is_no_profile_is_refused(tmp_path, content):
    path = tmp_path / "vgg16.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UnreadableFile, match=r"vgg16.txt"):
        read_profile(path)
    with pytest.raises(UnreadableFile, match="no such file"):
        read_profile(tmp_path / "absent.txt")


# Figure 1 of Narayanan et al., SOSP 2019

MISSED = {
    ("8x1080Ti private cluster", "vgg-16"): {8},
    ("8x1080Ti private cluster", "gnmt-8"): {2, 4, 16, 32},
    ("4xV100 Azure (PCIe, 10 Gbps)", "resnet-50"): {16, 32},
    ("8xV100 NVLink EC2 (25 Gbps)", "alexnet"): {2},
    ("8xV100 NVLink EC2 (25 Gbps)", "vgg-16"): {8, 32},
    ("8xV100 NVLink EC2 (25 Gbps)", "resnet-50"): {32},
    ("8xV100 NVLink EC2 (25 Gbps)", "gnmt-16"): {2, 4, 8},
}
"""Cells that the model is known to miss by more than ten points."""


@pytest.fixture(scope="module")
def table():
    cells = communication.cells(communication.read_figure(FIGURE))
    return {(cell.instance, cell.network, cell.gpus): cell for cell in cells}


def cases():
    for instance in communication.INSTANCES:
        for network in communication.MINIBATCHES:
            for gpus in communication.GPUS:
                known = gpus in MISSED.get((instance.published, network), ())
                marks = [pytest.mark.xfail(strict=True, reason="known to miss, see the notebook")] if known else []
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


@needs_figure
def test_an_exchange_after_the_backward_pass_explains_the_figure_better_than_one_behind_it(table):
    after = sum(abs(cell.error) for cell in table.values())
    behind = sum(abs(cell.behind - cell.published) for cell in table.values())
    assert after < 0.6 * behind

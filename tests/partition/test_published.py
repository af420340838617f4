"""Configurations, speed-ups and bytes that the papers on PipeDream publish."""

import math
from pathlib import Path

import pytest

from costmodel.catalogue.loader import load_device
from costmodel.description.layers import LayerChain
from costmodel.description.networks import load_network
from costmodel.studies.partitioning import partition

SEEDS = Path(__file__).parents[3] / "shared" / "reference" / "seeds"
needs_profiles = pytest.mark.skipif(not SEEDS.is_dir(), reason="the published profiles are not beside this repository")
TITAN, PCIE, NVLINK = "titan-x-pascal", "v100-pcie-16gb", "v100-sxm-16gb"


def shaped(network, device, minibatch):
    return load_network(network).chain(load_device(device), minibatch=minibatch)


def profile(name, measured=None, minibatch=None):
    chain = LayerChain.from_pipedream(SEEDS / "profiles" / f"{name}.txt", measured)
    return chain.with_minibatch(minibatch) if minibatch else chain


@pytest.mark.parametrize(("network", "device", "machines", "bandwidth", "stages", "over_one"), [
    ("vgg-16", TITAN, 8, 3.125e9, "7-1", 7.04), ("vgg-16", NVLINK, 8, 1.25e9, "7-1", 6.98),
    pytest.param("inception-v3", TITAN, 8, 3.125e9, "8", 7.66, marks=pytest.mark.slow),
    ("inception-v3", NVLINK, 8, 1.25e9, "7-1", 6.88),
])  # fmt: skip
def test_shapes_are_split_as_published_and_as_fast(network, device, machines, bandwidth, stages, over_one):  # harlap2018 table 1
    found = partition(shaped(network, device, 32), [machines], [bandwidth], recurrence="arxiv2018", compress_branches=True)
    assert found.configuration == stages
    assert found.single_time / found.time == pytest.approx(over_one, rel=0.10)


@pytest.mark.parametrize(("network", "device", "bandwidth", "minibatch", "stages", "over_data_parallel"), [
    ("vgg-16", PCIE, 1.25e9, 64, "15-1", 5.28), ("vgg-16", NVLINK, 3.125e9, 64, "15-1", 2.98),
    ("resnet-50", PCIE, 1.25e9, 128, "16", 1.0), ("resnet-50", NVLINK, 3.125e9, 128, "16", 1.0),
])  # fmt: skip
def test_sixteen_gpus_on_a_flat_network_are_split_as_published(network, device, bandwidth, minibatch, stages, over_data_parallel):
    chain = shaped(network, device, minibatch)  # narayanan2019 table 1
    found = partition(chain, [16], [bandwidth], recurrence="arxiv2018", compress_branches=True)
    assert found.configuration == stages
    assert found.speedup == pytest.approx(over_data_parallel, rel=0.35)


A4, A12, A16 = ([4], [1e10]), ([4, 3], [1e10, 1.25e9]), ([4, 4], [1e10, 1.25e9])
B16, C4 = ([8, 2], [3e10, 3.125e9]), ([4], [5e9])
SPEED_UPS = [  # narayanan2019, table 1: network, its profile and that one's minibatch, device, minibatch, levels; over DP
    ("vgg-16", "vgg16", 128, PCIE, 64, A16, 5.28, "any"), ("vgg-16", "vgg16", 128, NVLINK, 64, B16, 2.98, "any"),
    ("resnet-50", "resnet50", 128, PCIE, 128, A16, 1.00, "any"), ("resnet-50", "resnet50", 128, NVLINK, 128, B16, 1.00, "any"),
    ("alexnet", "alexnet", 256, PCIE, 256, A16, 4.92, "any"), ("alexnet", "alexnet", 256, NVLINK, 256, B16, 2.04, "any"),
    ("gnmt-16", "gnmt_large", 64, PCIE, 64, A4, 1.46, "straight"), ("gnmt-16", "gnmt_large", 64, PCIE, 64, A16, 2.34, "straight"),
    ("gnmt-16", "gnmt_large", 64, NVLINK, 64, B16, 3.14, "straight"), ("gnmt-8", "gnmt", 64, PCIE, 64, A4, 1.50, "straight"),
    ("gnmt-8", "gnmt", 64, PCIE, 64, A12, 2.95, "straight"), ("gnmt-8", "gnmt", 64, NVLINK, 64, B16, 1.00, "any"),
    ("awd-lm", None, None, PCIE, 80, A4, 4.25, "straight"), ("s2vt", None, None, TITAN, 32, C4, 3.01, "any"),
]  # fmt: skip


def rows_within_35_per_cent(recurrence, measured):
    """Of the published table; layers by their shapes, or by the authors' profiles where there are."""
    close = 0
    for network, name, of, device, minibatch, (machines, bandwidths), published, kind in SPEED_UPS:
        if measured and not name:
            continue
        chain = profile(name, of, minibatch) if measured else shaped(network, device, minibatch)
        asked = ([math.prod(machines)], bandwidths[-1:]) if recurrence == "arxiv2018" else (machines, bandwidths)
        found = partition(chain, *asked, recurrence=recurrence, straight=kind == "straight", compress_branches=True)
        close += abs(found.speedup / published - 1.0) <= 0.35
    return close


@pytest.mark.parametrize("measured", [False, pytest.param(True, marks=[needs_profiles, pytest.mark.slow])])
def test_the_default_recurrence_has_more_published_speed_ups_within_35_per_cent_than_either_paper_s(measured):
    found = {recurrence: rows_within_35_per_cent(recurrence, measured) for recurrence in ("placed", "sosp19", "arxiv2018")}
    assert found["placed"] > max(found["sosp19"], found["arxiv2018"])
    assert found["placed"] >= (9 if measured else 8)


@needs_profiles
@pytest.mark.parametrize(("name", "machines", "bandwidth", "stages"), [  # what the authors' runtime is configured with
    ("vgg16", 4, 1e10, "3-1"), ("vgg16", 8, 1.25e9, "7-1"), ("vgg16", 8, 3.125e9, "7-1"), ("vgg16", 16, 3.125e9, "15-1"),
    ("gnmt_large", 16, 3.125e9, "-".join(["1"] * 12 + ["3", "1"])), ("gnmt", 4, 1e10, "1-1-1-1"),
    ("alexnet", 4, 3.125e9, "3-1"), ("alexnet", 8, 3.125e9, "7-1"),
])  # fmt: skip
def test_measured_profiles_are_split_as_the_authors_ran_them(name, machines, bandwidth, stages):
    found = partition(profile(name), [machines], [bandwidth], recurrence="reference", activation_compression=1.0)
    assert found.configuration == stages


@needs_profiles
def test_speed_ups_of_measured_profiles_are_those_published():
    vgg = partition(profile("vgg16"), [8], [1.25e9], recurrence="reference", activation_compression=1.0)
    assert vgg.single_time / vgg.time == pytest.approx(6.98, rel=0.10)  # harlap2018 table 1
    for bandwidth in (1e10, 1.5e10):
        gnmt = partition(profile("gnmt_large"), [4], [bandwidth], recurrence="reference", activation_compression=1.0)
        assert set(gnmt.configuration) == {"1", "-"}
        assert gnmt.speedup == pytest.approx(1.46, rel=0.10)  # narayanan2019 table 1


@pytest.mark.parametrize(("network", "published"), [
    ("vgg-16", 5.26e7), ("resnet-50", 9.71e6), ("gnmt-8", 7.37e7), ("gnmt-16", 1.06e8)
])  # fmt: skip
def test_data_parallel_bytes_of_a_sample_are_those_of_figure_17(network, published):  # narayanan2019, read to 1e6
    reading = 1e6 if network == "gnmt-16" else 0.0  # the others agree without it
    found = partition(shaped(network, PCIE, 64), [4], [1e10], compress_branches=True)
    assert 4 * found.data_parallel_sent_bytes / 64 == pytest.approx(published, abs=0.015 * published + reading)


@needs_profiles
def test_vgg_16_sends_and_holds_what_figures_16_and_17_show():  # narayanan2019: 6.58e6 +- 5e5 bytes a sample, 12.48 GB
    found = partition(profile("vgg16", 128, 64), [4], [1e10], recurrence="reference", activation_compression=1.0)
    assert found.configuration == "3-1"
    sent = sum(2 * (stage.replicas - 1) * stage.parameter_bytes + 2 * stage.output_bytes for stage in found.pipeline)
    assert sent / 64 == pytest.approx(6.58e6, abs=5e5)
    assert found.memory[0] == pytest.approx(12.48e9, rel=0.02)


def test_pipelines_send_far_fewer_bytes_than_data_parallelism():  # harlap2018: 95 % fewer at 7-1, 91 % on 16 machines
    for machines, device, bandwidth, fewer in ((8, NVLINK, 1.25e9, 0.95), (16, TITAN, 3.125e9, 0.91)):
        found = partition(shaped("vgg-16", device, 32), [machines], [bandwidth], recurrence="arxiv2018")
        assert 1 - found.sent_bytes / found.data_parallel_sent_bytes == pytest.approx(fewer, abs=0.05)

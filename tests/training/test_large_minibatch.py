"""Large-minibatch SGD, against Goyal et al. 2017, "Accurate, Large Minibatch SGD"."""

import warnings

import numpy as np
import pytest

from costmodel import data_parallel_step, load_cluster, load_device, load_network
from costmodel.text.errors import InvalidValue
from costmodel.training.large_minibatch import LinearScalingWarning, goyal_schedule

FIGURE_7 = {8: 0.230, 16: 0.241, 32: 0.247, 64: 0.246, 128: 0.250, 256: 0.257}  # GPUs: s, digitised to 0.3 ms
JITTER = 0.05
"""Spread of a worker's passes that explains how the figure grows; the exchange hides behind the backward pass."""


@pytest.fixture(scope="module")
def iterations():
    cluster = load_cluster("big-basin")
    chain = load_network("resnet-50").chain(cluster.device, minibatch=32)
    return {gpus: data_parallel_step(chain, cluster, gpus, jitter=JITTER) for gpus in FIGURE_7}


def test_the_hours_of_the_paper_are_its_steps_times_its_iterations():
    assert goyal_schedule(8).time(FIGURE_7[8]) / 3600 == pytest.approx(28.8, abs=0.1)
    assert goyal_schedule(256).time(FIGURE_7[256]) / 3600 == pytest.approx(1.00, abs=0.02)


def test_the_rate_is_scaled_warmed_up_and_divided_by_ten_at_30_60_and_80():
    plan = goyal_schedule(256)
    assert plan.rate[0] == 0.1
    assert plan.rate.max() == pytest.approx(3.2)
    for epoch, rate in ((5.01, 3.2), (29.9, 3.2), (30.0, 0.32), (59.9, 0.32), (60.0, 0.032), (80.0, 0.0032), (89.9, 0.0032)):
        assert plan.rate[np.searchsorted(plan.epoch, epoch)] == pytest.approx(rate), epoch
    growth = np.diff(plan.rate[: 5 * plan.steps_per_epoch])
    assert growth == pytest.approx(growth[0]) and growth[0] > 0.0  # a constant amount at each iteration, section 2.2


def test_one_server_keeps_the_reference_rate():
    plan = goyal_schedule(8)
    assert plan.minibatch == 256 and plan.loss_scale == 1.0 / 256
    assert set(np.round(plan.rate, 9)) == {0.1, 0.01, 0.001, 0.0001}


def test_corrected_momentum_gives_the_velocity_of_sgd_whose_rate_is_outside_it():  # section 3, equations 9 and 10
    plan = goyal_schedule(64, samples=64 * 32 * 4, epochs=90)
    gradients = np.random.default_rng(0).normal(size=plan.steps)
    outside = inside = 0.0
    for rate, momentum, gradient in zip(plan.rate, plan.momentum, gradients, strict=True):
        outside = 0.9 * outside + gradient
        inside = momentum * inside + rate * gradient
        assert inside == pytest.approx(rate * outside, abs=1e-12)


def test_losses_scaled_by_the_whole_minibatch_sum_to_the_mean_gradient():  # section 3, remark 2
    gradients = np.random.default_rng(1).normal(size=(8, 32))
    plan = goyal_schedule(8)
    assert (plan.loss_scale * gradients.sum(axis=1)).sum() == pytest.approx(gradients.mean())


@pytest.mark.parametrize(("given", "word"), [
    ({"workers": 512}, "beyond 8192"), ({"workers": 256, "warmup": "none"}, "warm-up"),
    ({"workers": 256, "warmup": "constant"}, "warm-up"), ({"workers": 8, "per_worker": 16}, "batch normalisation"),
    ({"workers": 64, "critical_batch": 1000.0}, "critical batch"),
])  # fmt: skip
def test_it_warns_where_the_rule_is_known_to_fail(given, word):
    with pytest.warns(LinearScalingWarning, match=word):
        plan = goyal_schedule(**given)
    assert any(word in concern for concern in plan.concerns)


def test_it_is_silent_where_the_paper_found_no_loss():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert goyal_schedule(256).concerns == ()


def test_iterations_grow_from_8_to_256_gpus_as_published_within_three_points(iterations):
    growth = iterations[256].time / iterations[8].time - 1
    assert 100 * growth == pytest.approx(100 * (FIGURE_7[256] / FIGURE_7[8] - 1), abs=3.0)


def test_every_iteration_of_figure_7_is_within_three_points_of_its_growth(iterations):
    for gpus, time in FIGURE_7.items():
        assert iterations[gpus].time / iterations[8].time == pytest.approx(time / FIGURE_7[8], abs=0.03), gpus


TENSORFLOW = {  # images a second of 1, 2, 4, 8 P100s of a DGX-1 in May 2017, 32 images a GPU, ResNet-50 with its stride on 1 x 1
    # tensorflow/tensorflow docs_src/performance/benchmarks.md, "other results"
    "synthetic": {1: 195.0, 2: 368.0, 4: 768.0, 8: 1485.0}, "ImageNet": {1: 193.0, 2: 369.0, 4: 760.0, 8: 1410.0},
}  # fmt: skip


@pytest.mark.parametrize("data", list(TENSORFLOW))
@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
def test_the_iteration_of_resnet_50_on_p100s_is_within_ten_per_cent_of_tensorflow_s_from_shapes(data, gpus):
    cluster = load_cluster("big-basin")
    step = data_parallel_step(load_network("resnet-50").chain(cluster.device, minibatch=32), cluster, gpus, jitter=JITTER)
    assert step.time == pytest.approx(32 * gpus / TENSORFLOW[data][gpus], rel=0.10)


@pytest.mark.xfail(strict=True, reason="-25 %: 8 P100s took 172 ms for as many images in TensorFlow a month before, 182 with "
                   "JPEGs to decode (above); of 230 here 120 are the backward pass, 72 the forward, 27 no hardware's (below)")
def test_the_iteration_of_resnet_50_on_p100s_is_within_ten_per_cent_from_shapes(iterations):
    assert iterations[8].time == pytest.approx(FIGURE_7[8], rel=0.10)


def test_what_the_paper_s_iteration_takes_beyond_its_passes_is_no_hardware_s(iterations):
    """Backward 120 ms (section 4.3), forward as shapes have it beside that; the rest is more than all else of TensorFlow's."""
    step = iterations[8]
    beyond = FIGURE_7[8] - 0.120 * (1.0 + step.forward / step.backward) - step.waiting
    of_tensorflow = 256 / TENSORFLOW["ImageNet"][8] - 32 / TENSORFLOW["synthetic"][1]
    assert 0.020 < beyond < 0.040 and 0.015 < of_tensorflow < 0.020


PUBLISHED_P100 = [  # images a second of one P100 with NVLink, fp32, 2017; ResNet-50 there has its stride on 1 x 1
    # tensorflow/tensorflow docs_src/performance/benchmarks.md: DGX-1, cuDNN 5.1, synthetic data
    ("inception-v3", 64, 142.0), ("inception-v3", 32, 128.0), ("resnet-50", 64, 219.0), ("resnet-50", 32, 195.0),
    ("alexnet", 512, 2987.0), ("vgg-16", 64, 154.0), ("vgg-16", 32, 144.0),
    # facebookarchive/caffe2#292, quoting NVIDIA's page on Caffe2
    ("inception-v3", 64, 140.0), ("vgg-16", 64, 146.0), ("resnet-50", 64, 231.0),
]  # fmt: skip


def test_networks_on_a_p100_are_as_fast_as_two_frameworks_of_2017_published():
    device = load_device("p100-sxm-16gb")
    errors = {}
    for network, minibatch, published in PUBLISHED_P100:
        layers = load_network(network).chain(device, minibatch=minibatch).layers
        found = minibatch / sum(layer.forward + layer.backward for layer in layers)
        errors.setdefault(network, []).append(found / published - 1.0)
    assert all(abs(error) <= 0.10 for network in ("resnet-50", "vgg-16", "alexnet") for error in errors[network])
    assert all(abs(error) <= 0.20 for error in errors["inception-v3"])
    every = [abs(error) for some in errors.values() for error in some]
    assert sum(every) / len(every) <= 0.10


def test_the_backward_pass_from_shapes_is_no_slower_than_caffe2_s_and_within_a_fifth():  # section 4.3: 120 ms
    backward = load_network("resnet-50").chain(load_cluster("big-basin").device, minibatch=32)
    assert 0.8 * 0.120 < sum(layer.backward for layer in backward.layers) < 0.120


@pytest.mark.parametrize(("given", "field"), [
    ({"workers": 0}, "workers"), ({"workers": 8, "warmup": "slow"}, "warmup"), ({"workers": 8, "decay": 0.0}, "decay"),
    ({"workers": 8, "decay_epochs": (60, 30)}, "decay_epochs"), ({"workers": 8, "momentum": 1.5}, "momentum"),
    ({"workers": 8, "warmup_epochs": 100.0}, "warmup_epochs"), ({"workers": 1, "per_worker": 1, "epochs": 90_000}, "epochs"),
])  # fmt: skip
def test_nonsense_is_refused(given, field):
    with pytest.raises(InvalidValue, match=f"^{field}"):
        goyal_schedule(**given)

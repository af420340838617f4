"""Batch sizes: known constants recovered from drawn curves, intervals that hold, and the frontier against brute force."""

import math

import numpy as np
import pytest

from costmodel import load_cluster, load_model, search
from costmodel.formulas.systems import batch_sizes as formulas
from costmodel.text.errors import CostModelError
from costmodel.training.batch_size import batch_frontier, batch_scaling, fit_batch_scaling

BATCHES = (64, 128, 256, 512, 1024, 2048, 4096, 8192)


def drawn(seed, critical=1000.0, fewest=5000.0, noise=0.05, batches=BATCHES):
    draw = np.random.default_rng(seed)
    return [formulas.steps(fewest, size, critical) * math.exp(noise * draw.standard_normal()) for size in batches]


def test_constants_are_recovered_from_a_curve_without_noise():
    fitted = fit_batch_scaling(BATCHES, drawn(0, noise=0.0))
    assert fitted.critical_batch.value == pytest.approx(1000.0, rel=1e-4)
    assert fitted.fewest_steps.value == pytest.approx(5000.0, rel=1e-4)
    assert fitted.fewest_samples.value == pytest.approx(5e6, rel=1e-4)


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_say():
    """Of 100 drawn curves 90 % +- 6 % (two standard deviations of the count)."""
    held = {"fewest_steps": 0, "critical_batch": 0, "fewest_samples": 0}
    truth = {"fewest_steps": 5000.0, "critical_batch": 1000.0, "fewest_samples": 5e6}
    for seed in range(100):
        fitted = fit_batch_scaling(BATCHES, drawn(seed))
        for name, value in truth.items():
            found = getattr(fitted, name)
            held[name] += found.low <= value <= found.high
            assert found.low <= found.value <= found.high
    assert all(0.84 <= count / 100 <= 0.96 for count in held.values()), held


def test_small_batches_alone_bound_the_samples_and_not_the_steps():
    fitted = fit_batch_scaling((8, 16, 24, 32, 48), drawn(3, noise=0.02, batches=(8, 16, 24, 32, 48)))
    assert fitted.critical_batch.high > 20 * 1000.0
    assert fitted.fewest_samples.high / fitted.fewest_samples.low < 2.5


def test_more_runs_narrow_the_interval():
    few = fit_batch_scaling(BATCHES, drawn(7)).critical_batch
    many = fit_batch_scaling(BATCHES * 8, drawn(7, batches=BATCHES * 8)).critical_batch
    assert many.high / many.low < few.high / few.low


@pytest.mark.parametrize(("task", "critical"), [  # mccandlish2018, table 1: run averages, in samples
    ("MNIST", 200.0), ("CIFAR-10", 900.0), ("ImageNet", 15_000.0), ("Billion Word, tokens", 100_000.0), ("Dota 1v1", 3e6),
])  # fmt: skip
def test_the_critical_batches_of_table_1_come_back_from_runs_about_them(task, critical):
    sizes = [critical * factor for factor in (0.1, 0.3, 1.0, 3.0, 10.0)]
    fitted = fit_batch_scaling(sizes, drawn(1, critical=critical, noise=0.03, batches=sizes))
    assert fitted.critical_batch.low < critical < fitted.critical_batch.high
    assert fitted.critical_batch.value == pytest.approx(critical, rel=0.25)
    assert fitted.steps(critical) / fitted.fewest_steps.value == pytest.approx(2.0, rel=0.2)


def test_the_frontier_is_what_brute_force_over_all_choices_gives():
    model, cluster = load_model("gpt2-xl"), load_cluster("dgx-a100")
    scaling = batch_scaling(256.0, 20_000.0)
    sizes, counts = [64, 256, 1024], [8, 32]
    found = batch_frontier(scaling, model, cluster, batches=sizes, gpus=counts, seq_len=1024, gpu_hour=2.0)
    times = {}
    for size in sizes:
        for count in counts:
            best = search(model, cluster.with_gpus(count), global_batch=size, seq_len=1024, top=1).best
            times[size, count] = scaling.steps(size) * best.step_time
    assert (found.fastest.batch, found.fastest.gpus) == min(times, key=times.get)
    hours = {choice: time * choice[1] / 3600 for choice, time in times.items()}
    assert (found.cheapest.batch, found.cheapest.gpus) == min(hours, key=hours.get)
    kept = {
        choice for choice in times
        if not any(times[o] <= times[choice] and hours[o] <= hours[choice] and o != choice for o in times)
    }  # fmt: skip
    assert {(one.batch, one.gpus) for one in found.frontier} == kept
    assert all(one.price == pytest.approx(2.0 * one.gpu_hours) for one in found.choices)


@pytest.mark.parametrize("make", [
    lambda: fit_batch_scaling([1, 2], [1, 2]), lambda: fit_batch_scaling([8, 8, 8], [1, 2, 3]),
    lambda: fit_batch_scaling([8, 16, 32], [1, 2]), lambda: fit_batch_scaling([8, 16, -32], [3, 2, 1]),
    lambda: fit_batch_scaling([8, 16, 32], [3, 2, float("nan")]), lambda: fit_batch_scaling([8, 16, 32], [3, 2, 1], 1.0),
    lambda: batch_scaling(0.0, 1.0), lambda: batch_scaling(10.0, 1.0).steps(-1.0),
    lambda: batch_frontier(5.0, load_model("gpt2-xl"), load_cluster("dgx-a100"), batches=[8], gpus=[8], seq_len=1024),
    lambda: batch_frontier(
        batch_scaling(10.0, 1.0), load_model("megatron-1t"), load_cluster("dgx-a100"), batches=[8], gpus=[8], seq_len=2048
    ),
])  # fmt: skip
def test_nonsense_is_refused_in_one_line(make):
    with pytest.raises(CostModelError) as refused:
        make()
    assert "\n" not in str(refused.value)

"""What a batch costs, against McCandlish et al. 2018, "An Empirical Model of Large-Batch Training" (arXiv:1812.06162)."""

import csv
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from costmodel.formulas.systems import batch_sizes as batch

SEEDS = Path(__file__).resolve().parents[3] / "shared" / "reference" / "seeds"
quick = settings(deadline=None, max_examples=100, derandomize=True)
positive = st.floats(1e-3, 1e6)


def single(value):
    try:
        return float(value)
    except ValueError:
        return None


def table_1():
    path = SEEDS / "mccandlish_table1.csv"
    if not path.exists():
        pytest.skip("mccandlish_table1.csv is not beside this checkout")
    with path.open(encoding="utf-8", newline="") as handle:
        rows = [(row["task"], single(row["B_crit_run_average"]), single(row["B_simple_run_average"]))
                for row in csv.DictReader(handle)]  # fmt: skip
    return [row for row in rows if None not in row[1:]]


def test_at_the_critical_batches_of_table_1_steps_and_samples_are_twice_the_fewest():
    rows = table_1()
    assert len(rows) == 8
    for task, critical, _ in rows:
        assert batch.steps(1000.0, critical, critical) == pytest.approx(2000.0), task
        assert batch.samples(1000.0 * critical, critical, critical) == pytest.approx(2000.0 * critical), task
        assert batch.critical_batch(1000.0 * critical, 1000.0) == pytest.approx(critical), task


def test_the_simple_noise_scale_of_table_1_follows_the_critical_batch_over_six_orders_of_magnitude():
    rows = table_1()
    logarithms = np.log10([[critical, simple] for _, critical, simple in rows])
    assert np.corrcoef(logarithms.T)[0, 1] > 0.8
    assert (np.abs(logarithms[:, 1] - logarithms[:, 0]) < 1.5).all()


@quick
@given(positive, positive, positive)
def test_steps_and_samples_trade_along_a_hyperbola(fewest_steps, critical, size):
    """Equation 2.11."""
    fewest_samples = fewest_steps * critical
    steps, samples = batch.steps(fewest_steps, size, critical), batch.samples(fewest_samples, size, critical)
    assert samples == pytest.approx(steps * size)
    if 1e-3 < size / critical < 1e3:
        assert (steps / fewest_steps - 1) * (samples / fewest_samples - 1) == pytest.approx(1.0, rel=1e-6)


@quick
@given(st.integers(0, 10_000), st.floats(0.1, 10.0))
def test_the_best_rate_wins_most_on_a_noisy_quadratic(seed, noise):
    """Expected gain of one step by brute force over learning rates: equations 2.6 to 2.8."""
    draw = np.random.default_rng(seed)
    root = draw.normal(size=(4, 4))
    hessian, gradient = root @ root.T + np.eye(4), draw.normal(size=4)
    covariance, size = noise * np.diag(draw.uniform(0.1, 1.0, 4)), 8.0
    curvature = gradient @ hessian @ gradient
    scale = batch.noise_scale(np.trace(hessian @ covariance), curvature)
    rates = np.linspace(0.0, 2.0 * batch.largest_rate(gradient @ gradient, curvature), 20001)
    gain = rates * (gradient @ gradient) - 0.5 * rates**2 * (curvature + np.trace(hessian @ covariance) / size)
    largest = batch.largest_improvement(gradient @ gradient, curvature)
    assert batch.improvement(largest, size, scale) == pytest.approx(gain.max(), rel=1e-5)
    best = batch.optimal_rate(batch.largest_rate(gradient @ gradient, curvature), size, scale)
    assert best == pytest.approx(rates[gain.argmax()], abs=2 * rates[1])


def test_a_batch_s_gradient_errs_as_the_simple_noise_scale_says():
    draw = np.random.default_rng(0)
    gradient, spread, size = np.array([1.0, -2.0, 0.5]), np.array([0.3, 1.0, 2.0]), 16
    batches = gradient + draw.normal(size=(20_000, size, 3)).mean(axis=1) * spread
    scale = batch.simple_noise_scale((spread**2).sum(), gradient @ gradient)
    measured = ((batches - gradient) ** 2).sum(axis=1).mean() / (gradient @ gradient)
    assert batch.relative_error(size, scale) == pytest.approx(measured, rel=0.03)


def test_norms_at_two_batch_sizes_estimate_gradient_and_noise_without_bias():
    draw = np.random.default_rng(1)
    gradient, spread = np.array([1.0, -2.0, 0.5]), np.array([0.3, 1.0, 2.0])
    norms = {}
    for size in (4, 64):
        batches = gradient + draw.normal(size=(200_000, 3)) * spread / np.sqrt(size)
        norms[size] = (batches**2).sum(axis=1).mean()
    small, large = norms[4], norms[64]
    assert batch.squared_gradient_estimate(4.0, 64.0, small, large) == pytest.approx(gradient @ gradient, rel=0.02)
    assert batch.variance_estimate(4.0, 64.0, small, large) == pytest.approx((spread**2).sum(), rel=0.02)


def test_a_constant_noise_scale_gains_nothing_from_an_adaptive_batch():
    noise, steps = 500.0, 1000.0
    assert batch.adaptive_gain(steps * noise**0.5, steps, steps * noise) == pytest.approx(1.0)
    assert batch.adaptive_batch(noise, noise) == pytest.approx(noise)


def test_a_growing_noise_scale_gains_something():
    noise = np.linspace(1.0, 1000.0, 1000)
    assert batch.adaptive_gain(np.sqrt(noise).sum(), 1000.0, noise.sum()) == pytest.approx(8 / 9, rel=0.01)


def test_a_run_is_fastest_at_the_geometric_mean_of_the_critical_batch_and_the_one_that_doubles_a_step():
    sizes = np.geomspace(1e2, 1e6, 4001)
    times = batch.time_to_loss(1000.0, sizes, 1e4, 0.1 + sizes * 1e-4)  # a step takes twice as long at 1,000 samples
    assert sizes[times.argmin()] == pytest.approx((1e4 * 1e3) ** 0.5, rel=0.01)
    assert batch.time_to_loss(1000.0, 1e4, 1e4, 0.5) == pytest.approx(1000.0)

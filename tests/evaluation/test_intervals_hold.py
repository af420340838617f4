"""Intervals hold as often as they say of errors that are drawn as the library believes them to be.

Of constants to first order: errors are drawn, made small, and what the step makes of them is made as much larger again.
`tests/calibration/test_first_contact.py` has how intervals hold on runs.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.stats

from costmodel import Plan, estimate, load_cluster, load_framework, load_model
from costmodel.arithmetic.named_tuples import flat, nested
from costmodel.evaluation.error_model import covariance_of, device_errors
from costmodel.evaluation.first_contacts import (
    NINETY,
    Error,
    student_quantile,
    student_share,
    usual_constants,
)
from costmodel.formulas import training_step
from costmodel.formulas.quantities import DeviceNumbers, Software

DRAWS, SMALL = 10_000, 1e-3
QUESTIONS = [
    ("llama3-8b", "dgx-h100", Plan(global_batch=64, seq_len=8192, tensor_parallel=2, zero_stage=1), "megatron-core"),
    ("llama3-70b", "dgx-h100", Plan(global_batch=128, seq_len=4096, tensor_parallel=4, pipeline_parallel=4), "nemo"),
    ("gpt3-6.7b", "dgx-a100", Plan(global_batch=64, seq_len=2048, tensor_parallel=2, pipeline_parallel=2), "megatron-core"),
    ("llama3-8b", "dgx-a100", Plan(global_batch=64, seq_len=4096, zero_stage=3, recompute="full"), "fsdp2"),
    ("bloom-7b1", "dgx-h100", Plan(global_batch=128, seq_len=2048, zero_stage=3, recompute="full"), "deepspeed"),
    ("mixtral-8x7b", "dgx-h100", Plan(global_batch=128, seq_len=4096, tensor_parallel=2, expert_parallel=8), "megatron-core"),
]


def of_constants(found, draw):
    """Logarithms by which steps with drawn constants are longer than estimated."""
    fields, covariance = covariance_of(found.framework)
    errors = draw.multivariate_normal(np.zeros(len(fields)), np.array(covariance), DRAWS, check_valid="ignore").T
    moved = dict(zip(fields, np.exp(SMALL * errors), strict=True))
    for one in device_errors(found.cluster.device, str(found.plan.dtype)):
        factor = np.exp(SMALL * one.error * draw.standard_normal(DRAWS))
        moved |= {name: moved.get(name, 1.0) * factor for name in one.numbers}
    numbers = flat(found.inputs.software) | found.inputs.device._asdict()
    true = numbers | {name: numbers[name] * factor for name, factor in moved.items()}
    device = DeviceNumbers(**{name: true[name] for name in DeviceNumbers._fields})
    with np.errstate(divide="ignore", invalid="ignore"):  # the arm of `where` that is not taken
        step = training_step.step(*found.inputs._replace(software=nested(Software, true), device=device))
    return np.log(step.total / found.step_time) / SMALL


@pytest.mark.parametrize(("model", "cluster", "plan", "framework"), QUESTIONS)
def test_an_interval_follows_the_errors_of_the_constants_and_is_never_narrower(model, cluster, plan, framework):
    found = estimate(load_model(model), load_cluster(cluster, gpus=64), plan, framework)
    moved = of_constants(found, np.random.default_rng(7))
    low, high = np.log(np.array(found.time_interval) / found.step_time)
    assert np.mean((low <= moved) & (moved <= high)) > 0.9
    assert found.slopes.deviation == pytest.approx(float(np.std(moved)), rel=0.03)
    assert found.time_error == found.spread.time(found.slopes.deviation)


@pytest.mark.parametrize(("model", "cluster", "plan", "framework"), QUESTIONS)
def test_nine_in_ten_draws_of_its_error_lie_inside(model, cluster, plan, framework):
    found = estimate(load_model(model), load_cluster(cluster, gpus=64), plan, framework)
    draw = np.random.default_rng(8)
    for (low, high), error, value in (
        (found.time_interval, found.time_error, found.step_time),
        (found.memory_interval, found.spread.memory, found.memory.total),
    ):
        seen = value * np.exp(error.shift + error.scale * draw.standard_t(4, DRAWS))
        assert np.mean((low <= seen) & (seen <= high)) == pytest.approx(0.9, abs=0.012)


def test_the_error_of_own_runs_is_normal_and_has_no_shift():
    model, cluster, plan, framework = QUESTIONS[0]
    own = dataclasses.replace(load_framework(framework), time_error=0.05)
    found = estimate(load_model(model), load_cluster(cluster, gpus=64), plan, own)
    low, high = found.time_interval
    assert low * high == pytest.approx(found.step_time**2)
    assert np.log(high / low) / 2.0 == pytest.approx(NINETY * 0.05)  # the constants' own error is in it
    assert found.widest_unknown == ""


@pytest.mark.parametrize("share", [0.01, 0.05, 0.3, 0.5, 0.51, 0.9, 0.95, 0.999])
def test_quantiles_and_shares_of_students_t_are_those_of_scipy(share):
    assert student_quantile(share) == pytest.approx(scipy.stats.t.ppf(share, 4), abs=1e-12)
    assert student_share(student_quantile(share)) == pytest.approx(share, abs=1e-12)


def test_an_interval_that_one_constant_makes_wide_names_it_and_no_other_does():
    small = estimate(load_model("gpt2"), load_cluster("dgx-h100", gpus=8), Plan(global_batch=64, seq_len=1024), "nanotron")
    assert "wide by the constant host_" in small.widest_unknown
    shares = small.slopes.shares(covariance_of(small.framework)[0])
    name = max(shares, key=shares.get)
    assert name in small.widest_unknown and sum(share for one, share in shares.items() if one.startswith("host_")) >= 0.5
    assert ("and others of the host" in small.widest_unknown) == (shares[name] < 0.5)
    assert sum(shares.values()) == pytest.approx(1.0)
    model, cluster, plan, framework = QUESTIONS[1]
    usual = estimate(load_model(model), load_cluster(cluster, gpus=64), plan, framework)
    assert usual.widest_unknown == "" or usual.slopes.deviation > usual_constants()


def test_a_shift_moves_the_interval_and_not_the_estimate():
    low, high = Error(0.2, 0.1).interval(3.0)
    assert np.sqrt(low * high) == pytest.approx(3.0 * np.exp(0.1))
    wider = Error(0.2, 0.1).widened(0.3)
    assert wider.deviation == pytest.approx(np.hypot(Error(0.2).deviation, 0.3)) and wider.shift == 0.1


@pytest.mark.parametrize("required", [0.5, 0.9, 0.99])
def test_a_plan_at_the_limit_runs_as_often_as_was_asked(required):
    """Of ten thousand true memories of a plan that is estimated to hold all that it may, so many are within the device's."""
    model, cluster, plan, framework = QUESTIONS[0]
    found = estimate(load_model(model), load_cluster(cluster, gpus=64), plan, framework)
    limit = found.spread.margin(required) * found.usable_memory
    true = limit * np.exp(found.spread.room.shift + found.spread.room.scale * np.random.default_rng(3).standard_t(4, DRAWS))
    assert np.mean(true <= found.usable_memory) == pytest.approx(required, abs=0.01)

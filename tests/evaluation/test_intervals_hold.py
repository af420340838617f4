"""Intervals hold as often as they say, where true constants are as far from ours as calibration's errors let them be.

To first order: errors are drawn, made small, and what the step makes of them is made as much larger again.
"""

from __future__ import annotations

import numpy as np
import pytest

from costmodel import Plan, estimate, load_cluster, load_model
from costmodel.arithmetic.named_tuples import flat, nested
from costmodel.evaluation.error_model import covariance_of, device_errors
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


def held(found, draw):
    """Share of draws whose step the interval holds: priced with true constants, times the residual of the software's family."""
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
    of_constants = np.log(step.total / found.step_time) / SMALL
    seen = found.step_time * np.exp(found.spread.widening * of_constants + found.spread.time * draw.standard_normal(DRAWS))
    low, high = found.time_interval
    return float(np.mean((low <= seen) & (seen <= high)))


@pytest.mark.parametrize(("model", "cluster", "plan", "framework"), QUESTIONS)
def test_nine_in_ten_steps_of_drawn_constants_lie_inside(model, cluster, plan, framework):
    draw = np.random.default_rng(7)
    found = estimate(load_model(model), load_cluster(cluster, gpus=64), plan, framework)
    assert held(found, draw) == pytest.approx(0.9, abs=0.012)


@pytest.mark.parametrize("required", [0.5, 0.9, 0.99])
def test_a_plan_at_the_limit_runs_as_often_as_was_asked(required):
    """Of ten thousand true memories of a plan that is estimated to hold all that it may, so many are within the device's."""
    model, cluster, plan, framework = QUESTIONS[0]
    found = estimate(load_model(model), load_cluster(cluster, gpus=64), plan, framework)
    limit = found.spread.margin(required) * found.usable_memory
    true = limit * np.exp(found.spread.memory * np.random.default_rng(3).standard_normal(DRAWS))
    assert np.mean(true <= found.usable_memory) == pytest.approx(required, abs=0.01)

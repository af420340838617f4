"""Derivatives that numbers carry are those of finite differences, operation by operation and through a whole step."""

from __future__ import annotations

import math
import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel import Plan, load_cluster, load_model
from costmodel.arithmetic import ops
from costmodel.arithmetic.dual_numbers import Dual, bare
from costmodel.arithmetic.named_tuples import flat, replaced
from costmodel.evaluation.error_model import covariance_of
from costmodel.evaluation.estimation import estimate, fill_slopes
from costmodel.formulas import training_step
from tests.agreement import plans

POSITIVE = st.floats(0.05, 20.0)
BINARY = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, ops.maximum, ops.minimum,
    lambda a, b: ops.where(a > b, a * b, a + b), lambda a, b: ops.sqrt(a * a + b) * ops.log2(1.0 + b),
    lambda a, b: 3.0 / a - 2.0 * b, lambda a, b: 2.0**a - (b - 1.0) ** 2.0 + (-a),
    lambda a, b: ops.ceil(a) * b + ops.floor_log2(b) * a,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("function", BINARY, ids=lambda one: one.__name__)
@given(a=POSITIVE, b=POSITIVE)
def test_an_operation_has_the_slopes_of_finite_differences(function, a, b):
    step = 1e-6
    found = function(Dual(a, {0: 1.0}), Dual(b, {1: 1.0}))
    assert bare(found) == function(a, b)
    near = [function(a + da, b + db) for da, db in ((step, 0.0), (-step, 0.0), (0.0, step), (0.0, -step))]
    slopes = [(near[0] - near[1]) / (2 * step), (near[2] - near[3]) / (2 * step)]
    kinks = abs(a - b) < 1e-4 or any(abs(x - round(x)) < 1e-4 for x in (a, math.log2(b)))
    if not kinks:
        size = 1.0 + max(map(abs, (*slopes, bare(found))))
        for place, slope in enumerate(slopes):
            assert found.slopes.get(place, 0.0) == pytest.approx(slope, abs=1e-4 * size)


def test_numbers_beside_them_lose_nothing():
    x = Dual(3.0, {0: 1.0})
    assert [(2.0 - x).slopes, (2.0 / x).slopes, (x - x).slopes] == [{0: -1.0}, {0: pytest.approx(-2.0 / 9.0)}, {0: 0.0}]
    assert ops.equal(x, 3.0) and ops.maximum(x, 5.0) == 5.0 and ops.minimum(x, 5.0) is x
    assert (x < 4.0, x <= 3.0, x > 3.0, x >= 3.0) == (True, True, False, True)
    assert bare(2.0**x) == 8.0 and (2.0**x).slopes[0] == pytest.approx(8.0 * math.log(2.0))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_an_estimate_has_the_slopes_of_moving_each_constant(seed):
    one = next(plans(seed))
    inputs, step = one.inputs, 1e-5

    def at(field, way):
        number = flat(inputs.software)[field] * (1.0 + way * step)
        moved = inputs._replace(software=replaced(inputs.software, {field: number}))
        return math.log(training_step.step(*moved, one.step.memory).total)

    fields, _ = covariance_of(one.framework)
    here = math.log(training_step.step(*inputs, one.step.memory).total)
    for place, field in enumerate(fields):
        if field in flat(inputs.software):
            up, down = (at(field, 1.0) - here) / step, (here - at(field, -1.0)) / step
            slope = one.slopes.blocks[0][0][place]  # at a kink, of one side
            assert min(up, down) - 1e-4 <= slope <= max(up, down) + 1e-4


def test_several_plans_at_once_have_the_slopes_of_each_by_itself():
    model, cluster = load_model("llama3-70b"), load_cluster("dgx-h100", gpus=64)
    degrees = ((8, 8, 1), (4, 4, 4), (2, 8, 4), (8, 1, 8))
    asked = [
        Plan(global_batch=64, seq_len=4096, tensor_parallel=t, pipeline_parallel=p, data_parallel=d, recompute="full")
        for t, p, d in degrees
    ]
    together, apart = ([estimate(model, cluster, plan) for plan in asked] for _ in range(2))
    fill_slopes(together)
    for one, other in zip(together, apart, strict=True):
        assert one.slopes.blocks[0][0] == pytest.approx(other.slopes.blocks[0][0], abs=1e-5)
        assert one.slopes.device == pytest.approx(other.slopes.device, abs=1e-5)
        assert one.time_interval == pytest.approx(other.time_interval, rel=1e-5)

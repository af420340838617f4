"""Error bars and standings: intervals hold what they say, ties are told, the winner is not flattered."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest

import costmodel
from costmodel.evaluation.error_model import covariance_of
from costmodel.evaluation.first_contacts import NINETY, Error
from costmodel.evaluation.ranking import covariance, standings

SPACE = {"global_batch": 128, "seq_len": 4096, "context_parallel": 1}


def found(**fixed):
    model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=16)
    return costmodel.search(model, cluster, **SPACE, **fixed)


def test_ninety_per_cent_of_log_normal_draws_lie_in_the_interval_of_a_normal_error():
    draws = np.exp(np.random.default_rng(0).normal(math.log(3.0), 0.2, 100_000))
    error = Error(0.2, tails=False)
    low, high = error.interval(3.0)
    assert np.mean((draws >= low) & (draws <= high)) == pytest.approx(0.9, abs=0.005)
    assert error.probability_below(3.0, high) == pytest.approx(0.95, abs=1e-6)
    assert error.margin(0.95) == pytest.approx(3.0 / high)
    assert pytest.approx(1.645, abs=1e-3) == NINETY


def test_probabilities_of_being_fastest_add_up_over_the_leaders_and_follow_the_ranking():
    result = found()
    everyone = standings(result.leaders).plans
    assert sum(standing.probability_fastest for standing in everyone) == pytest.approx(1.0)
    chances = [standing.probability_fastest for standing in result.standings.plans]
    assert sum(chances) < 1.0  # plans that aren't shown may be the fastest too
    assert chances[0] == max(chances) or result.standings.plans[chances.index(max(chances))].tied
    assert result.standings.plans[0].expected_regret >= 0.0


@pytest.mark.parametrize("asked", [{}, {"recompute": ["none", "full"], "micro_batch": [1, 2, 4]}, {"space": "full"}])
def test_how_sure_the_first_is_does_not_follow_how_many_plans_are_shown(asked):
    results = [found(top=top, **asked) for top in (1, 10, 200)]
    for one in results[:-1]:
        most = results[-1]
        assert one.best.plan == most.best.plan
        assert [plan.plan for plan in one.ranked] == [plan.plan for plan in most.ranked[: len(one.ranked)]]
        for these, those in zip(one.standings.plans, most.standings.plans, strict=False):  # as engines agree, in the last digits
            assert dataclasses.astuple(these) == pytest.approx(dataclasses.astuple(those), rel=1e-8)
        assert one.standings.optimism == pytest.approx(most.standings.optimism, rel=1e-8)
        assert one.corrected_step_time == pytest.approx(most.corrected_step_time, rel=1e-8)


def test_as_many_leaders_are_drawn_as_any_probability_needs():
    result = found(top=400, keep_evaluated=True)
    fewer, more = standings(result.ranked[:10], result.leaders), standings(result.ranked[:10], result.ranked)
    for one, other in zip(fewer.plans, more.plans, strict=True):
        assert one.probability_fastest == pytest.approx(other.probability_fastest, abs=0.03)


def test_plans_that_differ_only_in_what_changes_neither_time_nor_memory_are_one_row():
    model, cluster = costmodel.load_model("llama3-70b"), costmodel.load_cluster("dgx-h100", gpus=64)
    result = costmodel.search(model, cluster, global_batch=1024, seq_len=8192, top=50)
    assert "either rank order" in result.alternatives
    assert len(result.twins) == len(result.alternatives) == len(result.ranked) == 50
    rows = [(one.plan, *twins) for one, twins in zip(result.ranked, result.twins, strict=True)]
    assert len({plan for row in rows for plan in row}) == sum(map(len, rows))
    for shown, twins in zip(result.ranked, result.twins, strict=True):
        for twin in twins:
            again = costmodel.estimate(model, cluster, twin)
            assert again.step_time == pytest.approx(shown.step_time, rel=2e-3)
            assert float(again.memory.total) == pytest.approx(float(shown.memory.total), rel=2e-3)
    for one, other in itertools.combinations(result.ranked, 2):  # and no two rows are twins
        apart = [field.name for field in dataclasses.fields(one.plan)
                 if getattr(one.plan, field.name) != getattr(other.plan, field.name)]  # fmt: skip
        near = abs(one.step_time / other.step_time - 1.0) < 0.9e-3
        near &= abs(float(one.memory.total) / float(other.memory.total) - 1.0) < 0.9e-3
        assert len(apart) > 1 or not near


def test_the_same_search_has_the_same_standings():
    assert found().standings == found().standings


def test_a_plan_that_is_much_slower_is_not_tied_with_the_first():
    best = found().best
    plan = costmodel.Plan(global_batch=128, seq_len=4096, pipeline_parallel=16, micro_batch=128)
    slow = costmodel.estimate(best.model, best.cluster, plan)
    assert slow.step_time > 5 * best.step_time
    assert not standings([best, slow]).plans[1].tied


def test_the_covariance_of_estimates_is_symmetric_and_positive():
    matrix = covariance(found().ranked)
    assert np.allclose(matrix, matrix.T)
    assert np.linalg.eigvalsh(matrix).min() > 0


def test_the_winner_of_many_equal_plans_is_expected_to_take_longer_than_its_estimate():
    one = found().best
    alone, many = standings([one]).optimism, standings([one] * 30).optimism
    assert alone == pytest.approx(0.0, abs=1e-3)
    assert many > 0.5 * one.spread.within


def test_a_framework_without_measurements_has_a_wider_error_and_one_without_any_on_a_device_none_narrower():
    model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=8)
    plan = costmodel.Plan(global_batch=64, seq_len=4096, data_parallel=8)
    known = costmodel.estimate(model, cluster, plan, "nemo")
    strange = costmodel.estimate(model, cluster, plan, "oneflow")
    assert known.spread.calibrated
    assert not strange.spread.calibrated
    for constants in (0.03, 0.08, 0.5):
        low, high = known.spread.time(constants).interval(1.0)
        least, most = strange.spread.time(constants).interval(1.0)
        assert most / least >= high / low * (1.0 - 1e-9) and most >= high
    nobody = costmodel.estimate(model, cluster, plan, dataclasses.replace(known.framework, name="mine", owner="mine"))
    assert nobody.step_time == known.step_time
    assert nobody.slopes.deviation > 1.2 * known.slopes.deviation  # its constants are as unsure as any framework's
    unnamed = costmodel.estimate(model, cluster, plan, dataclasses.replace(nobody.framework, owner=""))
    assert unnamed.time_spread == nobody.time_spread


def test_the_covariance_is_that_of_the_slopes_taken_pair_by_pair():
    ranked = found(top=8).ranked
    matrix = covariance(ranked)
    for (i, one), (j, other) in itertools.product(enumerate(ranked), repeat=2):
        own = one.spread.within**2 if i == j else 0.0
        assert matrix[i, j] == pytest.approx(one.slopes.covariance(other.slopes) + own, rel=1e-9, abs=1e-12)


def test_plans_of_several_dtypes_stand_together_and_share_what_they_share():
    plans = [found(dtype=dtype, tensor_parallel=2).best for dtype in ("bf16", "fp8")]
    matrix = covariance(plans)
    assert np.allclose(matrix, matrix.T) and np.linalg.eigvalsh(matrix).min() > 0 and matrix[0, 1] > 0
    assert sum(standing.probability_fastest for standing in standings(plans).plans) == pytest.approx(1.0)
    assert found(dtype=["bf16", "fp8"], tensor_parallel=2).best.plan.dtype in ("bf16", "fp8")


@pytest.mark.parametrize("name", costmodel.framework_names())
def test_no_constant_that_calibration_is_unsure_of_changes_the_memory(name):
    fields, _ = covariance_of(costmodel.load_framework(name))  # the slopes of an estimate take its memory as it is
    assert not [field for field in fields if field.startswith("memory_")]

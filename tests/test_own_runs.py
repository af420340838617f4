"""Own runs move constants together, a run that disagrees is named, and plans fit with the probability asked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import costmodel
from costmodel.catalogue.software import framework_on
from costmodel.evaluation.own_runs import MODEL_SPREAD, influences, next_run, updated
from costmodel.text.errors import CostModelError, InvalidValue

MODEL = costmodel.load_model("llama3-8b")
CLUSTER = costmodel.load_cluster("dgx-h100", gpus=8)
PLANS = [costmodel.Plan(global_batch=64, seq_len=4096, tensor_parallel=t, data_parallel=8 // t) for t in (1, 2, 4, 8)]


def runs(*factors: float) -> list[tuple[costmodel.Transformer, costmodel.Plan, float]]:
    """Steps that took some times what the catalogue says."""
    return [
        (MODEL, plan, factor * costmodel.estimate(MODEL, CLUSTER, plan).step_time)
        for plan, factor in zip(PLANS, factors, strict=False)
    ]


def test_one_slow_run_says_that_other_models_are_slower_on_that_cluster_too():
    """By less than itself: a good part may be its own. Two that agree say more."""
    mine = costmodel.calibrate(CLUSTER, runs(1.4))
    other = costmodel.load_model("llama2-7b")
    agreed = costmodel.calibrate(CLUSTER, runs(1.4, 1.4))
    before, after, surer = (costmodel.estimate(other, cluster, PLANS[1]).step_time for cluster in (CLUSTER, mine, agreed))
    assert 1.05 < after / before < 1.4
    assert 1.1 < surer / before < 1.4


def test_intervals_narrow_with_own_runs():
    mine = costmodel.calibrate(CLUSTER, runs(1.2, 1.2, 1.2))
    before, after = (costmodel.estimate(MODEL, cluster, PLANS[3]) for cluster in (CLUSTER, mine))
    assert after.time_spread < before.time_spread
    assert after.evidence.startswith("calibrated on own runs")


def test_the_run_that_disagrees_is_named_and_loses_weight():
    found = influences(CLUSTER, runs(1.1, 1.1, 1.1, 3.0))
    assert [one.disagrees for one in found] == [False, False, False, True]
    assert found[3].weight == min(one.weight for one in found)
    assert abs(found[0].after) < abs(found[0].before) + 0.1


def test_a_run_that_disagrees_does_not_outweigh_the_others():
    mine = costmodel.calibrate(CLUSTER, runs(1.1, 1.1, 1.1, 4.0))
    for plan in PLANS[:3]:
        before, after = (costmodel.estimate(MODEL, cluster, plan).step_time for cluster in (CLUSTER, mine))
        assert after / before == pytest.approx(1.1, rel=0.05)


def test_one_run_alone_is_believed():
    mine = costmodel.calibrate(CLUSTER, runs(2.0))
    before, after = (costmodel.estimate(MODEL, cluster, PLANS[0]).step_time for cluster in (CLUSTER, mine))
    assert after / before > 1.6


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0.4, 2.5), min_size=2, max_size=4))
def test_what_is_found_explains_runs_at_least_as_well_as_the_catalogue(factors):
    _, found = updated(CLUSTER, framework_on(CLUSTER, "megatron-core"), runs(*factors))
    before = np.log(factors)
    assert np.sum(np.log1p(found.errors**2 / MODEL_SPREAD**2)) <= np.sum(np.log1p(before**2 / MODEL_SPREAD**2)) + 1e-9


def test_the_next_run_is_not_one_that_was_just_measured():
    candidates = [(MODEL, PLANS[0]), (MODEL, PLANS[3])]
    assert next_run(CLUSTER, candidates, runs=runs(1.1)) == 1


def test_a_plan_is_recommended_at_the_probability_to_fit_that_was_asked_for():
    for wanted in (0.5, 0.9, 0.99):
        found = costmodel.search(MODEL, CLUSTER, global_batch=64, seq_len=4096, fit_probability=wanted)
        assert all(plan.fit_probability >= wanted for plan in found.ranked)


def test_a_plan_fits_where_its_probability_is_enough():
    sure = costmodel.estimate(MODEL, CLUSTER, PLANS[3])
    assert sure.fits == (sure.fit_probability >= 0.9)


@pytest.mark.parametrize("wanted", [0.0, 1.0, -1.0, float("nan"), "high"])
def test_a_probability_that_is_none_is_refused(wanted):
    with pytest.raises(InvalidValue, match="fit_probability"):
        costmodel.estimate(MODEL, CLUSTER, PLANS[0], fit_probability=wanted)


def test_evidence_says_how_near_measurements_are():
    experts = costmodel.estimate(
        costmodel.load_model("mixtral-8x7b"), costmodel.load_cluster("dgx-h100", gpus=64),
        costmodel.Plan(global_batch=256, seq_len=4096, expert_parallel=8, tensor_parallel=1, data_parallel=64), "fsdp2",
    )  # fmt: skip
    assert "of a mixture of experts" in experts.evidence
    assert "of them on this device" in experts.evidence


@pytest.mark.parametrize(("former", "software"), [("aleph-alpha", "megatron-lm-2023"), ("megatron-core-ci", "megatron-core")])
def test_names_that_stood_for_a_source_answer_with_the_software_that_it_ran(former, software):
    assert costmodel.load_framework(former).name == software
    assert former not in costmodel.framework_names()


def test_influences_of_no_runs_are_refused():
    with pytest.raises(CostModelError, match="no runs"):
        influences(CLUSTER, [])

"""Own runs move constants together, a run that disagrees is named, and plans fit with the probability asked for."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import costmodel
from costmodel.arithmetic.named_tuples import replaced
from costmodel.evaluation.counted_memory import Count, counted
from costmodel.evaluation.opened_bill import held_tensors
from costmodel.evaluation.own_run_posterior import SCATTER, posterior
from costmodel.evaluation.own_run_update import Measured
from costmodel.evaluation.own_runs import influences, next_run, next_runs
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


def test_the_run_that_disagrees_is_named_and_left_out():
    found = influences(CLUSTER, runs(1.1, 1.1, 1.1, 3.0))
    assert [one.disagrees for one in found] == [False, False, False, True]
    assert found[3].surprise == min(one.surprise for one in found)
    assert abs(found[0].after) < 0.02 and found[3].after > 0.9


def test_a_run_that_disagrees_does_not_outweigh_the_others():
    mine = costmodel.calibrate(CLUSTER, runs(1.1, 1.1, 1.1, 4.0))
    for plan in PLANS[:3]:
        before, after = (costmodel.estimate(MODEL, cluster, plan).step_time for cluster in (CLUSTER, mine))
        assert after / before == pytest.approx(1.1, rel=0.02)


@pytest.mark.parametrize("apart", [1.01, 1.2, 2.5, 6.0])
def test_what_runs_of_one_plan_say_against_each_other_is_their_scatter(apart):
    """They say one thing of plans like theirs, and no more than the farther of both alone would."""
    alike = np.full((5, 5), 0.4) + 0.6 * np.eye(5)
    alike[0, 1] = alike[1, 0] = 1.0
    errors = np.log([1.0, apart, 0.6, 1.8, 1.1])
    found = posterior(errors, np.zeros((5, 5)), alike, 0.17)
    assert found.discrepancies[0] == pytest.approx(found.discrepancies[1])
    assert np.abs(alike @ found.discrepancies).max() < np.abs(errors).max()
    assert np.abs(found.discrepancies).max() < 2.0 * np.abs(errors).max()


def test_one_run_alone_is_believed():
    mine = costmodel.calibrate(CLUSTER, runs(2.0))
    before, after = (costmodel.estimate(MODEL, cluster, PLANS[0]).step_time for cluster in (CLUSTER, mine))
    assert after / before > 1.6


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(st.lists(st.floats(0.6, 1.8), min_size=2, max_size=4))
def test_what_is_found_explains_the_runs_that_it_takes_at_least_as_well_as_the_catalogue(factors):
    found = [one for one in influences(CLUSTER, runs(*factors)) if not one.disagrees]
    after, before = (sum(abs(getattr(one, field)) for one in found) for field in ("after", "before"))
    assert after <= before + len(found) * SCATTER


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(st.permutations(range(4)))
def test_the_order_of_runs_changes_nothing(order):
    some = runs(1.2, 1.25, 1.1, 2.9)
    one, other = costmodel.calibrate(CLUSTER, some), costmodel.calibrate(CLUSTER, [some[place] for place in order])
    assert one.frameworks["megatron-core"].own_factor == pytest.approx(other.frameworks["megatron-core"].own_factor, rel=1e-9)
    times = [costmodel.estimate(MODEL, cluster, PLANS[1]) for cluster in (one, other)]
    assert times[0].step_time == pytest.approx(times[1].step_time, rel=1e-9)
    assert times[0].time_spread == pytest.approx(times[1].time_spread, rel=1e-6)


FAR = pytest.mark.xfail(reason="2.05 % off: few new campaigns are off by so much, so a step of their way back is believed")


@pytest.mark.parametrize("factor", [0.5, 1.5, 1.7, pytest.param(1.9, marks=FAR)])
def test_where_a_cluster_is_off_by_one_factor_three_runs_tell_it_as_their_median_ratio_does(factor):
    mine = costmodel.calibrate(CLUSTER, runs(factor, factor, factor))
    other = costmodel.load_model("llama2-7b")
    for model, near in ((MODEL, 0.02), (other, 0.08)):
        before, after = (costmodel.estimate(model, cluster, PLANS[3]).step_time for cluster in (CLUSTER, mine))
        assert after / before == pytest.approx(factor, rel=near)


ALIKE = 0.4 + 0.6 * np.eye(6) + 0.1 * (1.0 - np.eye(6))
NO_CONSTANTS = np.zeros((6, 6))


def drawn(random, own=0.05, outlier=None):
    """Errors of a cluster whose factor, spread of plans and scatter are known."""
    common = 0.17 * random.standard_t(4)
    errors = common + own * np.linalg.cholesky(ALIKE) @ random.standard_normal(6) + 0.4 * own * random.standard_normal(6)
    if outlier is not None:
        errors[outlier] += 1.0
    return common, errors


def told(errors):
    count = len(errors)
    return posterior(errors, NO_CONSTANTS[:count, :count], ALIKE[:count, :count], 0.17)


def test_a_factor_that_was_drawn_is_found_and_intervals_hold_on_nine_in_ten():
    """Of a new plan that is as near to the runs as they are to each other, whatever the spread of plans, which nobody knows."""
    random = np.random.default_rng(11)
    missed, held = [], []
    for _ in range(150):
        common, errors = drawn(random, 0.08 * 2.3 ** random.standard_normal())
        found = told(errors[:4])
        for place in (4, 5):
            said = found.common + float(ALIKE[place, :4] @ found.discrepancies)
            held.append(abs(errors[place] - said) <= 1.645 * found.spread)
        missed.append(found.common - common)
    assert np.median(np.abs(missed)) < 0.05
    assert 0.85 <= np.mean(held) <= 0.97


def test_one_mistake_among_six_is_flagged_and_hardly_another_run():
    random = np.random.default_rng(5)
    flagged = [told(drawn(random, outlier=2)[1]).apart for _ in range(60)]
    assert np.mean([2 in apart for apart in flagged]) > 0.95
    assert np.mean([any(place != 2 for place in apart) for apart in flagged]) < 0.1


def test_more_runs_never_widen_intervals_on_average():
    random = np.random.default_rng(3)
    clusters = [drawn(random)[1] for _ in range(60)]
    means = np.mean([[told(errors[:count]).spread for count in (1, 2, 4, 6)] for errors in clusters], axis=0)
    assert (np.diff(means) < 0.0).all()


def test_a_factor_of_tails_is_believed_as_a_usual_one_is():
    """A cluster four times as far off as most is no less learnt after three runs."""
    for far in (0.2, 0.7, 1.3):
        found = told(np.full(3, far))
        assert found.common + float(ALIKE[5, :3] @ found.discrepancies) == pytest.approx(far, rel=0.05)


def test_runs_with_peaks_move_constants_of_memory_and_narrow_its_error():
    software = costmodel.estimate(MODEL, CLUSTER, PLANS[0]).framework
    more = replaced(software.constants, {"memory_activation_overhead": 1.3 * software.constants.memory.activation_overhead})
    truth = dataclasses.replace(software, constants=more)
    told = [costmodel.estimate(MODEL, CLUSTER, plan, truth) for plan in PLANS]
    peaks, held = counted(told, [Count("process", "max")] * len(told)), [float(one.memory.total) for one in told]
    mine = costmodel.calibrate(CLUSTER, [Measured(MODEL, plan, None, peak) for plan, peak in zip(PLANS[:3], peaks, strict=False)])
    before, after = (costmodel.estimate(MODEL, cluster, PLANS[3]) for cluster in (CLUSTER, mine))
    misses = [abs(math.log(float(one.memory.total) / held[3])) for one in (before, after)]
    assert misses[1] < 0.5 * misses[0]
    assert after.spread.memory.half < before.spread.memory.half
    assert after.step_time == pytest.approx(before.step_time, rel=1e-2)  # a step's pressure on memory apart


def test_the_next_run_per_gpu_minute_is_cheaper_than_the_one_that_tells_most():
    candidates = [(MODEL, plan) for plan in PLANS] + [(MODEL, dataclasses.replace(PLANS[1], global_batch=512))]
    found = next_runs(CLUSTER, candidates, runs=runs(1.1))
    assert [one.per_gpu_minute for one in found] == sorted((one.per_gpu_minute for one in found), reverse=True)
    assert found[-1].candidate in (0, 4)
    assert all(0.0 <= one.narrowed <= 1.0 for one in found)


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


def test_evidence_names_the_framework_whose_runs_make_a_question_known():
    from costmodel.catalogue.files import entries
    from costmodel.catalogue.software import FRAMEWORKS
    from costmodel.evaluation.error_model import evidence_of, novelty

    device = costmodel.load_device("h100-sxm")
    for name in entries(FRAMEWORKS):
        framework = costmodel.load_framework(name)
        said = evidence_of(framework, device, experts=False)
        assert ("mean of all frameworks" in said) == (novelty(framework, device) == "framework"), said
        assert ("none of them on this device" in said) == (novelty(framework, device) == "device"), said
    own = costmodel.load_framework("olmo-core")
    assert f" of {own.owner.partition('@')[0]}, whose constants it has" in evidence_of(own, device, experts=False)


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


@pytest.mark.parametrize("factor", [0.88, 1.12])
def test_where_tensors_hold_one_factor_more_than_is_counted_three_peaks_tell_it(factor):
    """Of whatever tensors: weights, which no other constant moves, are most of this plan's."""
    plans = [dataclasses.replace(PLANS[0], micro_batch=size, recompute="full", zero_stage=3) for size in (1, 2, 4)]
    counts = [Count("allocated", "max")] * 3
    first = counted([costmodel.estimate(MODEL, CLUSTER, plan) for plan in plans], counts)
    runs = [Measured(MODEL, plan, None, factor * peak, counts[0]) for plan, peak in zip(plans, first, strict=True)]
    mine = costmodel.calibrate(CLUSTER, runs)
    unseen = dataclasses.replace(plans[0], micro_batch=8)
    before, after = (costmodel.estimate(MODEL, cluster, unseen) for cluster in (CLUSTER, mine))
    held = [float(counted([one], counts[:1])[0]) for one in (before, after)]
    assert math.log(held[1] / held[0]) == pytest.approx(math.log(factor), rel=0.2)  # three are not believed all of it
    assert sum(row.nbytes for row in held_tensors(after.memory)) == pytest.approx(after.memory.total, rel=1e-9)
    assert all(part >= 0.0 for part in after.memory.parts.values())

"""A thousand own runs are calibrated on as ten are: all at once, to the same numbers as one by one."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import costmodel
from costmodel.catalogue.software import framework_on
from costmodel.description.question import TOGETHER, Question
from costmodel.evaluation import own_run_posterior, own_run_update, run_columns
from costmodel.evaluation.own_runs import influences
from costmodel.formulas import discrepancy

CLUSTER = costmodel.load_cluster("dgx-h100", gpus=16)
SOFTWARE = framework_on(CLUSTER, "megatron-core")
MODELS = [costmodel.load_model(name) for name in ("llama3-8b", "llama2-7b", "mixtral-8x7b")]


@functools.cache
def drawn():
    """Drawn plans of three models, of both formulas of a step, and how long each took."""
    random = np.random.default_rng(0)
    found = []
    while len(found) < 2 * TOGETHER:
        model = MODELS[random.integers(3)]
        tensor, stages = (int(2 ** random.integers(3)) for _ in range(2))
        plan = costmodel.Plan(
            global_batch=int(64 * 2 ** random.integers(4)), seq_len=int(1024 * 2 ** random.integers(3)), tensor_parallel=tensor,
            pipeline_parallel=stages, data_parallel=16 // tensor // stages, recompute=["none", "full"][random.integers(2)],
            compression="int8" if random.random() < 0.2 and model is not MODELS[2] else "none", zero_stage=0,
        )  # fmt: skip
        took = costmodel.estimate(model, CLUSTER, plan).step_time * random.lognormal(0.1, 0.05)
        found.append((model, plan, took))
    return found


def runs(count):
    return drawn()[:count]


@functools.cache
def calibrated():
    """A cluster that as many own runs were calibrated on as are looked at in two parts, and these."""
    some = runs(2 * TOGETHER)
    return costmodel.calibrate(CLUSTER, some), some


def asked_of(some):
    return run_columns.runs_of([Question(model, CLUSTER, SOFTWARE).inputs(plan) for model, plan, _ in some])


def test_runs_estimated_at_once_are_estimated_as_one_by_one():
    some = runs(60)
    asked = asked_of(some)
    assert len(asked.together) == 2
    alone = [costmodel.estimate(model, CLUSTER, plan).step_time for model, plan, _ in some]
    assert np.exp(run_columns.logarithms(asked, SOFTWARE.constants)) == pytest.approx(alone, rel=1e-12)


def test_what_runs_have_in_common_is_what_every_two_have():
    some = runs(40)
    each = asked_of(some).each
    found = run_columns.common(run_columns.runs_of(each))
    for place, one in enumerate(each):
        for beside, other in enumerate(each):
            apart = discrepancy.correlation(one.model, one.settings, one.plan, other.settings, other.plan)
            assert found[place, beside] == pytest.approx(apart if some[place][0] == some[beside][0] else 0.0, abs=1e-12)


def test_formulas_are_evaluated_as_often_for_many_runs_as_for_few(monkeypatch):
    calls = []

    def counted(runs, constants):
        calls.append(len(runs.each))
        return run_columns.logarithms(runs, constants)

    monkeypatch.setattr(own_run_update, "logarithms", counted)
    costmodel.calibrate(CLUSTER, runs(100))
    assert set(calls) == {100}
    assert len(calls) <= 2 + own_run_update.ROUNDS * (1 + len(own_run_update.SHORTER))


@pytest.mark.slow
def test_what_many_own_runs_tell_of_a_plan_is_the_sum_of_what_each_does():
    mine, some = calibrated()
    question = Question(MODELS[0], mine, mine.frameworks["megatron-core"])
    assert len(question.own_runs) > TOGETHER // 3
    of_all = Question(MODELS[0], mine, question.framework)
    of_all.__dict__["own_runs"] = tuple(question.own_runs) * 4
    inputs = question.inputs(some[0][1])
    each = [
        run.discrepancy * discrepancy.correlation(question.shape, inputs.settings, inputs.plan, run.settings, run.plan)
        for run in question.own_runs
    ]
    wanted = np.log(question.framework.own_factor) + 4 * sum(each)
    assert of_all.discrepancy(inputs.settings, inputs.plan) == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def test_a_search_on_a_cluster_of_many_own_runs_says_what_estimates_say():
    mine, _ = calibrated()
    found = costmodel.search(MODELS[0], mine, global_batch=128, seq_len=2048, engine="numpy", keep_evaluated=True)
    assert found.every is not None
    for place in found.every.by_time[:: len(found.every) // 5]:
        plan = found.every.plan(int(place))
        assert found.every.step_time[place] == pytest.approx(costmodel.estimate(MODELS[0], mine, plan).step_time, rel=1e-9)


def test_among_many_runs_the_one_that_disagrees_is_named():
    some = runs(9)
    model, plan, took = some[7]
    some[7] = (model, plan, 3.0 * took)
    assert [one.run for one in influences(CLUSTER, some) if one.disagrees] == [7]


def test_more_runs_than_hypotheses_are_judged_by_say_what_all_of_them_say(monkeypatch):
    random = np.random.default_rng(2)
    errors, alike = 0.2 + 0.03 * random.standard_normal(60), 0.4 + 0.6 * np.eye(60)
    whole = own_run_posterior.posterior(errors, np.zeros((60, 60)), alike, 0.17)
    monkeypatch.setattr(own_run_posterior, "TOGETHER", 30)
    part = own_run_posterior.posterior(errors, np.zeros((60, 60)), alike, 0.17)
    for found in (whole, part):
        assert found.common + 0.4 * found.discrepancies.sum() == pytest.approx(0.2, abs=0.02)
    assert part.spread == pytest.approx(whole.spread, rel=0.3)

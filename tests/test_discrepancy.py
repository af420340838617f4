"""What own runs say of plans like theirs: the conditional mean of a random function, and one price wherever it is asked."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import costmodel
from costmodel.catalogue.software import framework_on
from costmodel.description.question import Question
from costmodel.evaluation.leading import shortlist
from costmodel.evaluation.notes import notes
from costmodel.evaluation.own_runs import SCATTER, UNLIKE, updated
from costmodel.formulas import discrepancy
from tests.browser import opened

MODEL = costmodel.load_model("llama3-8b")
CLUSTER = costmodel.load_cluster("dgx-h100", gpus=16)
ASKED = {"global_batch": 64, "seq_len": 4096}
PLANS = [
    costmodel.Plan(**ASKED, tensor_parallel=t, pipeline_parallel=p, data_parallel=16 // (t * p), micro_batch=b, recompute=r)
    for t, p, b, r in ((1, 1, 1, "full"), (2, 1, 2, "none"), (8, 2, 2, "full"), (4, 4, 1, "none"))
]
FACTORS = (1.0, 1.25, 1.4, 1.1)
"""Of times over the catalogue's that no constants explain together."""


def runs(factors=FACTORS):
    return [
        (MODEL, plan, factor * costmodel.estimate(MODEL, CLUSTER, plan).step_time)
        for plan, factor in zip(PLANS, factors, strict=False)
    ]


@pytest.fixture(scope="module")
def mine():
    found = costmodel.calibrate(CLUSTER, runs())
    assert any(abs(run.longer) > 0.01 for run in found.frameworks["megatron-core"].own_runs)
    return found


def numbers(plan, framework):
    plan = plan.resolve(framework)
    return plan.settings(framework), plan.numbers(framework, MODEL.layers)


@st.composite
def plans(draw):
    tensor, pipeline = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2, 4]))
    return costmodel.Plan(
        **ASKED, tensor_parallel=tensor, pipeline_parallel=pipeline, data_parallel=16 // (tensor * pipeline),
        micro_batch=draw(st.sampled_from([1, 2, 4])), recompute=draw(st.sampled_from(["none", "selective", "full", 8])),
        zero_stage=draw(st.sampled_from([0, 1])), cuda_graphs=draw(st.booleans()),
        overlap_tensor=draw(st.booleans()),
    )  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(plans(), plans(), plans())
def test_steps_between_plans_are_a_distance(one, two, three):
    framework = costmodel.load_framework("megatron-core")
    first, second, third = (numbers(plan, framework) for plan in (one, two, three))
    assert discrepancy.apart(*first, *first) == 0.0
    assert discrepancy.apart(*first, *second) == discrepancy.apart(*second, *first)
    assert discrepancy.apart(*first, *second) == 0.0 or first != second
    around = discrepancy.apart(*first, *second) + discrepancy.apart(*second, *third)
    assert discrepancy.apart(*first, *third) <= around + 1e-9


@pytest.fixture(scope="module")
def told():
    """Of runs near enough to the catalogue that none is odd: what was found, and the errors that constants leave."""
    framework, measured = framework_on(CLUSTER, "megatron-core"), runs((1.0, 1.02, 0.97, 1.03))
    constants, found = updated(CLUSTER, framework, measured)
    fitted = dataclasses.replace(framework, constants=constants)
    left = [math.log(seconds / costmodel.estimate(MODEL, CLUSTER, plan, fitted).step_time) for _, plan, seconds in measured]
    return found, np.array(left)


@settings(max_examples=25, deadline=None)
@given(plan=plans())
def test_what_runs_say_of_a_plan_is_the_conditional_mean_of_a_random_function(told, plan):
    """By the joint covariance of the runs and of the plan, as a draw of the function at all of them would have it."""
    framework, (found, left) = framework_on(CLUSTER, "megatron-core"), told
    every = [numbers(one, framework) for one in (*PLANS, plan)]
    joint = np.array([[UNLIKE**2 * 2.0 ** (-discrepancy.apart(*a, *b) / discrepancy.HALVED) for b in every] for a in every])
    seen = joint[:-1, :-1] + SCATTER**2 * np.eye(len(PLANS))
    wanted = joint[-1, :-1] @ np.linalg.inv(seen) @ left
    question = Question(MODEL, CLUSTER, dataclasses.replace(framework, own_runs=found.own_runs))
    assert question.longer(*_of(question, plan)) == pytest.approx(wanted, rel=1e-6, abs=1e-9)
    said = [question.longer(*_of(question, one)) for one in PLANS]
    assert found.errors == pytest.approx(left - said, rel=1e-6, abs=1e-9)


def _of(question, plan):
    inputs = question.inputs(plan.resolve(question.framework))
    return inputs.settings, inputs.plan


def test_an_error_stays_with_plans_alike_and_fades():
    slow = costmodel.calibrate(CLUSTER, runs((1.0, 1.0, 1.0, 1.5)))
    framework = slow.frameworks["megatron-core"]
    question = Question(MODEL, slow, framework)
    said = [question.longer(*_of(question, plan)) for plan in (PLANS[3], PLANS[2], PLANS[0])]
    assert said[0] > 0.05
    assert said[0] > 2.0 * abs(said[1]) and said[0] > 2.0 * abs(said[2])


def test_choices_that_change_nothing_set_no_plans_apart():
    framework = costmodel.load_framework("megatron-core")
    alone = costmodel.Plan(**ASKED)
    for field, value in (("zero_stage", 0), ("sequence_parallel", True)):
        other = dataclasses.replace(alone, **{field: value})
        assert discrepancy.apart(*numbers(alone, framework), *numbers(other, framework)) == 0.0


def test_a_note_says_what_own_runs_change(mine):
    asked = max((costmodel.estimate(MODEL, mine, plan) for plan in PLANS), key=lambda one: abs(one.longer))
    assert f"took {abs(math.expm1(asked.longer)):.1%} " in notes(asked)[0]
    assert not any("own runs" in note for note in notes(costmodel.estimate(MODEL, CLUSTER, PLANS[0])))


def test_other_models_hear_nothing_of_plans(mine):
    other = costmodel.load_model("llama2-7b")
    assert costmodel.estimate(other, mine, PLANS[0]).longer == 0.0
    assert Question(other, mine, mine.frameworks["megatron-core"]).own_runs == ()


def test_parts_add_up_and_memory_stays(mine):
    known = costmodel.estimate(MODEL, mine, PLANS[2], _constants_alone(mine))
    asked = costmodel.estimate(MODEL, mine, PLANS[2])
    assert asked.step_time == pytest.approx(math.exp(asked.longer) * known.step_time, rel=1e-12)
    assert sum(asked.times.values()) == pytest.approx(asked.step_time, rel=1e-9)
    assert asked.memory.total == known.memory.total
    assert asked.step.model_flop == known.step.model_flop


def _constants_alone(cluster):
    return dataclasses.replace(cluster.frameworks["megatron-core"], own_runs=())


@pytest.mark.parametrize("engine", ["python", "numpy", "numba"])
def test_a_search_ranks_by_what_estimate_says(mine, engine):
    found = costmodel.search(
        MODEL, mine, **ASKED, engine=engine, keep_evaluated=True, micro_batch=[1, 2], recompute=["none", "full"],
        zero_stage=1,
    )  # fmt: skip
    assert found.every is not None
    for place in range(0, len(found.every), max(len(found.every) // 40, 1)):
        plan = found.every.plan(place)
        assert found.every.step_time[place] == pytest.approx(costmodel.estimate(MODEL, mine, plan).step_time, rel=1e-9)
    for one in found.ranked:
        assert one.step_time == pytest.approx(costmodel.estimate(MODEL, mine, one.plan).step_time, rel=1e-9)
    again = shortlist(found, MODEL, mine)
    assert [one.step_time for one in again.ranked[:5]] == pytest.approx([one.step_time for one in found.ranked[:5]], rel=1e-9)


def test_a_step_that_is_played_takes_as_much_longer(mine):
    for plan in PLANS:
        asked = costmodel.estimate(MODEL, mine, plan)
        whole, known = (costmodel.simulate(MODEL, mine, plan, which) for which in ("megatron-core", _constants_alone(mine)))
        factor = math.exp(asked.longer)
        assert whole.total == pytest.approx(factor * known.total, rel=1e-12)
        assert whole.estimate.step_time == pytest.approx(asked.step_time)
        for part, seconds in known.times.items():
            assert np.asarray(whole.times[part]) == pytest.approx(factor * np.asarray(seconds), rel=1e-9, abs=1e-12)
        if plan.pipeline_parallel > 1:
            played = [costmodel.timeline(MODEL, mine, plan, which).total for which in ("megatron-core", _constants_alone(mine))]
            assert played[0] == pytest.approx(factor * played[1], rel=1e-9)


@pytest.mark.slow
def test_the_page_of_a_calibrated_cluster_says_what_the_library_says(mine, tmp_path):
    what = costmodel.whatif(MODEL, mine, **ASKED)
    what.write_html(tmp_path / "page.html")
    fields = "tensor_parallel", "pipeline_parallel", "data_parallel", "micro_batch", "recompute"
    changes = [{field: getattr(plan, field) for field in fields} for plan in PLANS]
    with opened() as browser:
        browser.open(tmp_path / "page.html")
        browser.run("""while (!window.costmodel?.ready) await new Promise((done) => setTimeout(done, 10));
            await window.costmodel.ready""")
        got = browser.run("return given[0].map((one) => window.costmodel.evaluate(one).step_time_s)", changes)
        ranked = browser.run("return (await window.costmodel.search({})).ranked.map((one) => one.step_time_s)")
    assert got == pytest.approx([costmodel.estimate(MODEL, mine, plan).step_time for plan in PLANS], rel=1e-9)
    wanted = sorted(one.step_time for one in what.candidates.found.ranked)
    assert ranked[: len(wanted)] == pytest.approx(wanted, rel=1e-9)

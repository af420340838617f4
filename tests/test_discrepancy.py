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
from costmodel.evaluation.notes import notes
from costmodel.evaluation.own_run_posterior import OWN, SCATTER
from costmodel.evaluation.own_run_update import Measured, learnt
from costmodel.formulas import discrepancy
from costmodel.formulas.quantities import OwnRun
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
    assert any(abs(run.discrepancy) > 0.01 for run in found.frameworks["megatron-core"].own_runs)
    return found


def numbers(plan, framework):
    plan = plan.resolve(framework)
    return plan.settings(framework), plan.numbers(framework, MODEL.layers)


def steps(one, other, model=MODEL):
    return discrepancy.distance(model.numbers(), *one, *other)


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
    assert steps(first, first) == 0.0
    assert steps(first, second) == steps(second, first)
    assert steps(first, third) <= steps(first, second) + steps(second, third) + 1e-9


@settings(max_examples=25, deadline=None)
@given(plan=plans())
def test_what_runs_say_of_a_plan_is_the_covariance_of_a_random_function_times_what_they_say(plan):
    """Down to what every plan of the model shares, and every step of the cluster."""
    framework = framework_on(CLUSTER, "megatron-core")
    said = (0.1, -0.2, 0.05, 0.3)
    inputs = [Question(MODEL, CLUSTER, framework).inputs(one) for one in PLANS]
    runs_told = [OwnRun(by, one.model, one.settings, one.plan) for by, one in zip(said, inputs, strict=True)]
    question = Question(MODEL, CLUSTER, dataclasses.replace(framework, own_runs=runs_told, own_factor=1.2))
    here = numbers(plan, framework)
    alike = [0.4 + 0.6 * 0.5 ** steps(here, numbers(one, framework)) for one in PLANS]
    wanted = math.log(1.2) + float(np.dot(alike, said))
    assert question.discrepancy(*_of(question, plan)) == pytest.approx(wanted, rel=1e-6, abs=1e-9)


def _of(question, plan):
    inputs = question.inputs(plan.resolve(question.framework))
    return inputs.settings, inputs.plan


def test_an_error_stays_with_similar_plans_and_fades():
    slow = costmodel.calibrate(CLUSTER, runs((1.0, 1.0, 1.0, 1.3)))
    question = Question(MODEL, slow, slow.frameworks["megatron-core"])
    every = question.told_of_every_plan
    said = [question.discrepancy(*_of(question, plan)) - every for plan in (PLANS[3], PLANS[2], PLANS[0])]
    assert said[0] > 0.02
    assert said[0] > 2.0 * said[1] and said[0] > 2.0 * said[2]


LONE = {
    "overlap_gradients": (True, False), "overlap_parameters": (True, False), "zero_stage": (0, 1), "bucket_bytes": (None, 1e7),
}  # fmt: skip
"""Choices of what ranks with the same weights exchange, without any."""
DENSE = {
    "overlap_experts": (True, False), "dispatcher": ("all-to-all", "deduplicated"),
    "recompute": ("none", "selective", "norms", "latent-projections", "experts", "shared-experts", "expert-activation"),
}  # fmt: skip
ONE_STAGE = {"overlap_pipeline": (True, False), "context_communication": ("ring", "all-gather", "all-to-all")}
UNSPLIT = {"sequence_parallel": (True, False), "overlap_tensor": (True, False)}


@pytest.mark.parametrize(
    ("degrees", "choices"),
    [
        ({}, LONE | ONE_STAGE | UNSPLIT | DENSE), ({"data_parallel": 8}, ONE_STAGE | UNSPLIT | DENSE),
        ({"tensor_parallel": 8}, LONE | ONE_STAGE),
    ],
    ids=["alone", "data parallel", "tensor parallel"],
)  # fmt: skip
def test_choices_that_change_nothing_set_no_plans_apart(degrees, choices):
    framework, cluster = costmodel.load_framework("megatron-core"), costmodel.load_cluster("dgx-h100", gpus=8)
    cluster = cluster.with_gpus(math.prod(degrees.values()))
    for field, values in choices.items():
        asked = [costmodel.Plan(**ASKED, **degrees, **{field: value}) for value in values]
        assert len({costmodel.estimate(MODEL, cluster, plan).step_time for plan in asked}) == 1
        for plan in asked:
            assert steps(numbers(asked[0], framework), numbers(plan, framework)) == 0.0


def test_modules_of_experts_set_plans_of_experts_apart():
    model, framework = costmodel.load_model("mixtral-8x7b"), costmodel.load_framework("megatron-core")
    first, *others = (
        costmodel.Plan(**ASKED, data_parallel=8, expert_parallel=8, recompute=what)
        for what in ("none", "experts", "expert-activation")
    )
    for plan in others:
        assert steps(numbers(first, framework), numbers(plan, framework), model) > 0.0


def test_runs_of_one_plan_say_nothing_of_how_unlike_others_are():
    """However often a plan is measured, a run of another keeps the spread of plans."""
    spreads = []
    for many in (2, 5, 20):
        measured = [Measured(*run) for run in runs((1.0,)) * many]
        spreads.append(learnt(CLUSTER, "megatron-core", measured)[0].time_error)
    assert all(spread > math.hypot(OWN / 3.0, SCATTER) for spread in spreads)


def test_a_calibrated_cluster_that_is_calibrated_again_keeps_what_it_was_told(mine):
    """A run that takes just as long as is estimated changes nothing."""
    said = [costmodel.estimate(MODEL, mine, plan).step_time for plan in PLANS]
    again = costmodel.calibrate(mine, [(MODEL, PLANS[0], said[0])])
    assert [costmodel.estimate(MODEL, again, plan).step_time for plan in PLANS] == pytest.approx(said, rel=1e-6)


def test_a_note_says_what_own_runs_change(mine):
    common = math.log(mine.frameworks["megatron-core"].own_factor)
    asked = max((costmodel.estimate(MODEL, mine, plan) for plan in PLANS), key=lambda one: abs(one.discrepancy - common))
    for whose, which, by in (("this cluster", "every", common), ("similar plans", "this", asked.discrepancy - common)):
        word = "lengthen" if by > 0.0 else "shorten"
        said = f"own runs of {whose} {word} {which} estimate by {abs(math.expm1(by)):.1%} "
        assert any(said in note for note in notes(asked))
    assert not any("own runs" in note for note in notes(costmodel.estimate(MODEL, CLUSTER, PLANS[0])))


def test_other_models_hear_of_the_cluster_and_nothing_of_plans(mine):
    other = costmodel.load_model("llama2-7b")
    common = math.log(mine.frameworks["megatron-core"].own_factor)
    assert costmodel.estimate(other, mine, PLANS[0]).discrepancy == pytest.approx(common)
    assert Question(other, mine, mine.frameworks["megatron-core"]).own_runs == ()


def test_parts_add_up_and_memory_stays(mine):
    known = costmodel.estimate(MODEL, mine, PLANS[2], _constants_alone(mine))
    asked = costmodel.estimate(MODEL, mine, PLANS[2])
    assert asked.step_time == pytest.approx(math.exp(asked.discrepancy) * known.step_time, rel=1e-12)
    assert sum(asked.times.values()) == pytest.approx(asked.step_time, rel=1e-9)
    assert asked.memory.total == known.memory.total
    assert asked.step.model_flop == known.step.model_flop


def _constants_alone(cluster):
    return dataclasses.replace(cluster.frameworks["megatron-core"], own_runs=(), own_factor=1.0)


@pytest.mark.slow
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


def test_a_step_that_is_played_takes_as_much_longer(mine):
    for plan in PLANS:
        asked = costmodel.estimate(MODEL, mine, plan)
        whole, known = (costmodel.simulate(MODEL, mine, plan, which) for which in ("megatron-core", _constants_alone(mine)))
        factor = math.exp(asked.discrepancy)
        assert whole.total == pytest.approx(factor * known.total, rel=1e-12)
        assert whole.estimate.step_time == pytest.approx(asked.step_time)
        for part, seconds in known.times.items():
            assert np.asarray(whole.times[part]) == pytest.approx(factor * np.asarray(seconds), rel=1e-9, abs=1e-12)
        ledgers = [costmodel.ledger(MODEL, mine, plan, which) for which in ("megatron-core", _constants_alone(mine))]
        for with_runs, without in zip(ledgers[0].transactions, ledgers[1].transactions, strict=True):
            assert with_runs.time == pytest.approx(factor * without.time, rel=1e-12)
        assert whole.ledger.transactions == ledgers[0].transactions
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
    wanted = [one.step_time for one in what.candidates.found.ranked]  # the simplest of those tied stands first
    assert ranked[: len(wanted)] == pytest.approx(wanted, rel=1e-9)

"""What a framework has and a plan doesn't use is named with what it saves, which asking for it confirms."""

from __future__ import annotations

import dataclasses

import pytest

from costmodel import estimate, framework_names, load_cluster, load_framework, load_model, search
from costmodel.description.framework import SWITCHES
from costmodel.description.plan import Plan
from costmodel.evaluation.switches import WORTH, faster_with
from costmodel.formulas.pipeline.schedules import SCHEDULES

BIG = {"global_batch": 1024, "seq_len": 8192}


def confirmed(result, one):
    """The best plan of the same question with the change asked for."""
    if "schedule" in one.change:
        asked = search(result.model, result.cluster, framework=result.framework, **{**result.asked, **one.change})
        return min(plan.step_time for plan in asked.ranked)
    plan = dataclasses.replace(result.best.plan, **one.change)
    return estimate(result.model, result.cluster, plan, result.framework).step_time


def test_overlap_of_tensor_parallelism_is_named_first_where_it_saves_most():
    result = search(load_model("llama3-70b"), load_cluster("dgx-h100", gpus=64), recompute="none", **BIG)
    found = faster_with(result)
    assert found[0].change == {"overlap_tensor": True} and found[0].gain == max(one.gain for one in found)
    for one in found:
        assert one.best.fits and one.gain >= WORTH
        assert one.best.step_time == pytest.approx(confirmed(result, one), rel=1e-9)
        assert one.gain == pytest.approx(1.0 - one.best.step_time / result.best.step_time)
    asked = search(result.model, result.cluster, overlap_tensor=True, **BIG)
    assert "overlap_tensor" not in {name for one in faster_with(asked) for name in one.change}


def test_the_schedule_that_trained_deepseek_v3_is_named():
    result = search(load_model("deepseek-v3"), load_cluster("h800-ib", gpus=2048), dtype="fp8", global_batch=15360, seq_len=4096)
    found = {one.change.get("schedule"): one for one in faster_with(result)}
    assert "dualpipe" in found and found["dualpipe"].gain > 0.02  # of chunks dealt by hand, which 61 layers interleave in
    assert found["dualpipe"].best.step_time <= confirmed(result, found["dualpipe"]) * 1.02


def test_nothing_is_named_that_changes_what_a_run_computes_or_where_nothing_fits():
    alone = load_cluster("dgx-h100", gpus=1)
    assert faster_with(search(load_model("llama3-70b"), alone, global_batch=8, seq_len=2048)) == []
    result = search(load_model("llama3-70b"), load_cluster("dgx-h100", gpus=64), **BIG)
    for one in faster_with(result, 100):
        assert one.best.plan.dtype == result.best.plan.dtype
        assert SCHEDULES[str(one.best.plan.schedule)].flushes


@pytest.mark.parametrize("name", framework_names())
def test_switches_are_choices_of_a_plan_beyond_the_defaults(name):
    framework = load_framework(name)
    for field, value in framework.switches:
        assert value in SWITCHES[field]
        assert getattr(Plan(global_batch=1, seq_len=1).resolve(framework), field) != value or field == "overlap_tensor"

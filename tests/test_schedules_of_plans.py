"""Schedules that a plan may choose: legal where their closed forms hold, and priced as they are played out."""

import dataclasses

import pytest

from costmodel import IllegalPlan, Plan, estimate, load_cluster, load_model, search
from costmodel.description.plan import SCHEDULES
from costmodel.description.schedule import pipeline_schedule
from costmodel.evaluation.verdicts import verdict
from costmodel.formulas.pipeline import schedules
from costmodel.simulation.playback import simulate_schedule

MODEL, CLUSTER = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8)
FLUSHING = [name for name in SCHEDULES if not name.startswith("pipedream")]


def plan_of(name, stages, micro_batches, **fields):
    chunks = 2 if name in ("interleaved", "breadth-first") else 1
    shape = {"global_batch": micro_batches, "seq_len": 4096, "pipeline_parallel": stages, "virtual_stages": chunks}
    return Plan(**shape, schedule=name, **fields)


@pytest.mark.parametrize("name", FLUSHING)
@pytest.mark.parametrize("stages", [2, 4, 8])
def test_the_bubble_of_every_legal_number_of_micro_batches_is_the_simulators(name, stages):
    tried = 0
    for micro_batches in [*range(1, 2 * stages + 2), 4 * stages]:
        plan = plan_of(name, stages, micro_batches)
        try:
            estimate(MODEL, CLUSTER.with_gpus(stages), plan)
        except IllegalPlan:
            continue
        tried += 1
        schedule = pipeline_schedule(name, stages=stages, micro_batches=micro_batches, chunks=plan.virtual_stages)
        share = schedule.stages // stages if name not in ("dualpipe", "chimera") else 1
        played = simulate_schedule(schedule, 1.0 / share, 1.1 / share, 0.9 / share)
        form = schedules.bubble(SCHEDULES[name], float(stages), float(plan.virtual_stages), 1.0, 1.1, 0.9)
        idle = played.period if name in ("zb-h2", "zb-v") else played.total
        assert idle - micro_batches * 3.0 == pytest.approx(form, abs=1e-9)
    assert tried


@pytest.mark.parametrize("name", ["dualpipe", "chimera"])
def test_two_ranks_that_run_one_stage_sum_their_gradients(name):  # li2021, section 3.2
    plan = plan_of(name, 4, 8 if name == "dualpipe" else 4, zero_stage=0, overlap_gradients=False)
    found = estimate(MODEL, CLUSTER.with_gpus(4), plan)
    assert found.times["gradient_exchange"] > 0.0
    alone = estimate(MODEL, CLUSTER.with_gpus(4), dataclasses.replace(plan, schedule="1f1b"))
    assert alone.times["gradient_exchange"] == 0.0


def test_a_valley_is_crossed_down_and_up():
    plan = plan_of("zb-v", 4, 16, overlap_pipeline=False)
    down = estimate(MODEL, CLUSTER.with_gpus(4), dataclasses.replace(plan, schedule="1f1b"))
    both = estimate(MODEL, CLUSTER.with_gpus(4), plan)
    assert both.times["pipeline_exchange"] == pytest.approx(2 * down.times["pipeline_exchange"])


def test_a_search_for_breadth_first_tries_chunks_by_itself():
    found = search(MODEL, CLUSTER, global_batch=64, seq_len=2048, schedule="breadth-first")
    assert found.ranked
    assert {plan.plan.schedule for plan in found.ranked} == {"breadth-first"}


@pytest.mark.parametrize("name", ["hierarchical", "parameter-server", "byteps", "local-sgd"])
def test_a_plan_that_does_not_fit_has_a_verdict_however_it_synchronises(name):
    plan = Plan(global_batch=64, seq_len=4096, data_parallel=8, micro_batch=8, synchronisation=name)
    judged = verdict(estimate(MODEL, CLUSTER, plan))
    assert not judged.fits
    assert all(fix.estimate.fits for fix in judged.fixes)

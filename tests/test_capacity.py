"""What would make a plan fit, and how far one can be stretched: against trying every value."""

import dataclasses

import pytest
from hypothesis import given, settings

from costmodel import IllegalPlan, InvalidValue, Plan, estimate, load_cluster, load_model, search
from costmodel.evaluation.capacity import (
    fewest_gpus,
    largest_micro_batch,
    longest_sequence,
    most_layers,
    verdict,
)
from tests.drawing import legal, questions, quick

LLAMA = load_model("llama3-8b")
NODE = load_cluster("dgx-h100", gpus=8)
PLAN = Plan(global_batch=64, seq_len=8192, tensor_parallel=2, pipeline_parallel=2, data_parallel=2, micro_batch=1)


@settings(quick, max_examples=15)
@given(questions())
def test_every_offered_change_is_one_that_fits_and_costs_what_it_says(question):
    found = legal(question)
    judged = verdict(found)
    assert judged.fits == (judged.margin >= 0.0)
    assert not (judged.fits and judged.fixes)
    assert sum(size for _, size in judged.largest) == pytest.approx(max(stage.total for stage in found.memory.stages))
    costs = [fix.cost for fix in judged.fixes]
    assert costs == sorted(costs)
    for fix in judged.fixes[:3]:
        again = estimate(found.model, found.cluster, fix.estimate.plan, found.framework)
        assert again.fits
        assert again.step_time - found.step_time == pytest.approx(fix.cost)


def test_a_plan_that_fits_needs_no_fix():
    judged = verdict(estimate(LLAMA, NODE, dataclasses.replace(PLAN, tensor_parallel=4, data_parallel=1)))
    assert judged.fits
    assert judged.fixes == []
    assert str(judged).startswith("fits with probability")


def test_a_plan_that_does_not_fit_says_where_and_what_would_help():
    plan = Plan(global_batch=64, seq_len=8192, tensor_parallel=4, pipeline_parallel=4, data_parallel=4)
    judged = verdict(estimate(load_model("llama3-70b"), load_cluster("dgx-h100", gpus=64), plan))
    assert (judged.fits, judged.stage, judged.phase) == (False, 0, "backward")
    assert judged.largest[0][0] == "activations"
    assert "stage 0 at its backward needs" in str(judged)
    assert "Would fit: " in str(judged)


@pytest.mark.parametrize("batch", [8, 24, 64])
def test_the_largest_micro_batch_is_the_last_divisor_that_fits(batch):
    plan = dataclasses.replace(PLAN, global_batch=2 * batch)
    fitting = []
    for size in range(1, batch + 1):
        if batch % size == 0 and estimate(LLAMA, NODE, dataclasses.replace(plan, micro_batch=size)).fits:
            fitting.append(size)
    assert largest_micro_batch(LLAMA, NODE, plan).plan.micro_batch == max(fitting)


def test_one_more_step_of_the_longest_sequence_does_not_fit():
    found = longest_sequence(LLAMA, NODE, PLAN)
    assert found.fits
    assert not estimate(LLAMA, NODE, dataclasses.replace(found.plan, seq_len=found.plan.seq_len + 256)).fits


def test_one_more_layer_a_stage_than_the_deepest_model_does_not_fit():
    found = most_layers(LLAMA, NODE, PLAN)
    assert found.fits
    deeper = dataclasses.replace(LLAMA, layers=found.model.layers + 2, published_parameters=None)
    assert not estimate(deeper, NODE, PLAN).fits


def test_the_fewest_gpus_are_the_first_whole_nodes_on_which_a_search_finds_a_plan():
    large, options = load_model("llama3-70b"), {"global_batch": 512, "seq_len": 8192, "top": 1}
    found = fewest_gpus(large, NODE, 512, 8192)
    assert found.fits
    for gpus in (1, 2, 4, *range(8, found.plan.gpus, 8)):
        assert not search(large, NODE.with_gpus(gpus), **options).ranked


def test_what_nothing_can_hold_is_refused_with_the_shortfall():
    huge = load_model("llama3.1-405b")
    with pytest.raises(IllegalPlan, match="needs .* GiB more than a GPU"):
        largest_micro_batch(huge, NODE, Plan(global_batch=8, seq_len=8192, tensor_parallel=8))
    with pytest.raises(IllegalPlan, match="no plan of .* fits on up to 8 GPUs"):
        fewest_gpus(huge, NODE, 8, 8192, most=8)
    with pytest.raises(InvalidValue, match="answer"):
        verdict(PLAN)

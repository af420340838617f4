"""The data-parallel degree that a plan leaves open is what its other degrees leave of the cluster's GPUs, at every door."""

import dataclasses

import pytest

import costmodel
from costmodel import IllegalPlan, Plan, load_cluster, load_model

MODEL, CLUSTER = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=16)
OPEN = Plan(global_batch=64, seq_len=4096, tensor_parallel=4, pipeline_parallel=2)
GIVEN = dataclasses.replace(OPEN, data_parallel=2)


@pytest.mark.parametrize(
    ("door", "figure"),
    [
        (costmodel.estimate, lambda made: (made.plan, made.step_time, made.memory.total)),
        (costmodel.timeline, lambda made: (made.schedule.micro_batches, made.total)),
        (costmodel.simulate, lambda made: (made.estimate.plan, made.total)),
        (costmodel.ledger, lambda made: (made.estimate.plan, made.cluster_bytes)),
        (costmodel.balanced_stages, lambda made: (made.layers, made.micro_batches)),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_every_door_takes_a_plan_without_its_data_parallel_degree(door, figure):
    assert figure(door(MODEL, CLUSTER, OPEN)) == figure(door(MODEL, CLUSTER, GIVEN))


def test_a_degree_that_was_given_is_not_changed_and_one_that_does_not_fill_the_cluster_is_refused():
    one = dataclasses.replace(OPEN, data_parallel=1)
    assert one != OPEN and OPEN.on(CLUSTER) == GIVEN and GIVEN.on(CLUSTER) is GIVEN
    with pytest.raises(IllegalPlan, match="does not equal the cluster's 16 GPUs"):
        costmodel.estimate(MODEL, CLUSTER, one)


@pytest.mark.parametrize("gpus", [1, 3, 4, 12])
def test_degrees_that_leave_no_whole_number_are_refused_with_their_values(gpus):
    with pytest.raises(IllegalPlan, match=f"tensor_parallel=4 .* does not divide the cluster's {gpus} GPUs"):
        costmodel.estimate(MODEL, CLUSTER.with_gpus(gpus), OPEN)


def test_without_a_cluster_a_plan_is_one_copy():
    assert (OPEN.data_parallel, OPEN.copies, OPEN.gpus, OPEN.micro_batches) == (None, 1, 8, 64)


def test_measured_runs_and_the_files_of_launchers_take_the_cluster_s_degree():
    runs = [(MODEL, plan, 4.0) for plan in (OPEN, GIVEN)]
    open_, given = (costmodel.calibrate(CLUSTER, [run]) for run in runs)
    assert open_.frameworks == given.frameworks
    assert costmodel.influences(CLUSTER, runs[:1]) == costmodel.influences(CLUSTER, runs[1:])
    texts = [costmodel.write_launch("megatron", plan, MODEL, cluster=CLUSTER) for plan in (OPEN, GIVEN)]
    assert texts[0] == texts[1]

"""How copies of a model agree: against each other, the published optimum, and the limits in which they are the same."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel import (
    IllegalPlan,
    InvalidValue,
    Plan,
    estimate,
    load_cluster,
    load_framework,
    load_model,
    search,
)
from costmodel.arithmetic.named_tuples import replaced
from costmodel.catalogue.communication import constants_of_a_step
from costmodel.formulas.network import communication
from costmodel.formulas.quantities import LevelNumbers, NetworkNumbers
from costmodel.formulas.systems import byteps_shares
from costmodel.simulation.transactions import ledger
from costmodel.text.errors import NotModelled
from tests.drawing import quick

FRAMEWORK = dataclasses.replace(load_framework("megatron-core"), server_systems=())
"""Systems of servers that reach what their links do, as published formulas have them."""
MODEL = load_model("llama3-8b")
PLAN = Plan(global_batch=64, seq_len=2048, data_parallel=64, zero_stage=0)
IDEAL = replaced(
    FRAMEWORK.constants,
    {"network_quality": 1.0, "network_latency": 0.0, "network_node_latency": 0.0, "host_collective_launch": 0.0}
    | constants_of_a_step(None, ""),
)


def network(per_node, bandwidth=12.5e9):
    """Nodes of so many GPUs, whose links inside cost nothing."""
    outer = LevelNumbers(1e7, 0.0, bandwidth)
    return NetworkNumbers(LevelNumbers(float(per_node), 0.0, 1e30), outer, outer)


def time_of(kind, nbytes, ranks, per_node=1, servers=0, steps=1):
    plan = dataclasses.replace(PLAN, synchronisation=kind, servers=servers, local_steps=steps)
    settings = plan.settings(FRAMEWORK)
    return communication.sum_over_copies(nbytes, float(ranks), 1.0, settings, network(per_node), IDEAL)


@quick
@given(st.sampled_from([2, 4, 8, 32]), st.sampled_from([1, 2, 8]), st.floats(1e9, 1e12))
def test_without_latency_colocated_servers_byteps_and_hierarchy_take_the_time_of_a_ring(machines, per_node, nbytes):
    ranks = machines * per_node  # jiang2020, table 1: colocated as all-reduce; a node's links work together
    hierarchical = time_of("hierarchical", nbytes, ranks, per_node)[0]
    assert hierarchical == pytest.approx(2 * (machines - 1) / machines * nbytes / per_node / 12.5e9, rel=1e-6)
    for kind in ("parameter-server", "byteps"):
        assert time_of(kind, nbytes, ranks, per_node)[0] == pytest.approx(hierarchical, rel=1e-3)
    if per_node == 1:
        assert time_of("all-reduce", nbytes, ranks)[0] == pytest.approx(hierarchical, rel=1e-6)


@quick
@given(st.integers(2, 32), st.integers(1, 32), st.floats(1e9, 1e11))
def test_byteps_takes_its_optimum_and_is_never_slower_than_the_same_servers(machines, servers, nbytes):
    shared, _ = time_of("byteps", nbytes, machines, servers=servers)
    assert shared == pytest.approx(byteps_shares.optimal_time(nbytes, float(machines), float(servers), 12.5e9), rel=1e-9)
    assert shared <= time_of("parameter-server", nbytes, machines, servers=servers)[0] * (1 + 1e-9)
    assert shared <= time_of("parameter-server", nbytes, machines)[0] * (1 + 1e-9)


@quick
@given(st.integers(2, 64), st.integers(1, 31))
def test_one_more_server_never_makes_an_exchange_slower(machines, servers):
    for kind in ("parameter-server", "byteps"):
        few, more = (time_of(kind, 1e9, machines, servers=count)[0] for count in (servers, servers + 1))
        assert more <= few * (1 + 1e-9)


@settings(quick, max_examples=20)
@given(st.sampled_from([1, 2, 10, 500]))
def test_local_sgd_spreads_one_exchange_over_its_steps(steps):
    every, sent = time_of("all-reduce", 1e9, 64, 8)
    rarely, less = time_of("local-sgd", 1e9, 64, 8, steps=steps)
    assert (rarely * steps, less * steps) == pytest.approx((every, sent), rel=1e-12)


def answer(**fields):
    return estimate(MODEL, load_cluster("aws-p4d", gpus=64), dataclasses.replace(PLAN, overlap_gradients=False, **fields))


def test_an_estimate_prices_what_the_plan_chooses():
    plain, local = answer(), answer(synchronisation="local-sgd", local_steps=100)
    assert local.times["gradient_exchange"] == pytest.approx(plain.times["gradient_exchange"] / 100, rel=1e-9)
    one, eight = (answer(synchronisation="parameter-server", servers=count) for count in (1, 8))
    assert one.times["gradient_exchange"] > 4 * eight.times["gradient_exchange"]


@pytest.mark.parametrize("gpus", [64, 128, 256])
@pytest.mark.parametrize("model", ["gpt2-medium", "gpt2-large"])
def test_native_servers_are_slowest_and_byteps_fastest_on_the_machines_where_that_was_measured(gpus, model):
    """Figure 16 of Jiang et al., OSDI 2020: eight V100s and one NIC of 100 Gbit/s a machine, a machine without GPUs for each."""
    cluster = load_cluster("v100-100g-rdma", gpus=gpus)
    plan = Plan(global_batch=4 * gpus, seq_len=512, data_parallel=gpus, micro_batch=4, dtype="fp16", zero_stage=0)
    native, byteps = (
        estimate(load_model(model), cluster, dataclasses.replace(plan, synchronisation=kind, servers=gpus // 8)).step_time
        for kind in ("parameter-server", "byteps")
    )
    assert native > estimate(load_model(model), cluster, plan).step_time > byteps


def test_native_servers_take_requests_one_after_another_and_hide_nothing():
    software = load_framework("megatron-core")
    measured = dataclasses.replace(PLAN, synchronisation="parameter-server", servers=8).resolve(software)
    assert measured.overlap_gradients is False
    assert dataclasses.replace(PLAN, synchronisation="byteps", servers=8).resolve(software).overlap_gradients is True
    settings = measured.settings(software)
    few, many = (
        communication.sum_over_copies(1e3, float(ranks), 1.0, settings, network(1, 1e30), IDEAL)[0] for ranks in (8, 64)
    )
    assert many - few == pytest.approx(56 * software.server_system("parameter-server").request_time, rel=1e-3)


def test_servers_hold_the_optimizers_state_and_local_sgd_two_copies_more():
    plain = answer().memory
    assert answer(synchronisation="parameter-server", servers=4).memory.optimizer == 0.0
    assert answer(synchronisation="byteps", servers=4).memory.optimizer == plain.optimizer
    more = answer(synchronisation="local-sgd", local_steps=10).memory.optimizer - plain.optimizer
    assert more == pytest.approx(8 * MODEL.parameters, rel=1e-9)  # weights at the last exchange, their momentum: douillard2023


def test_a_search_ranks_ways_to_synchronise_beside_each_other():
    found = search(
        MODEL, load_cluster("dgx-h100", gpus=64), global_batch=512, seq_len=2048, tensor_parallel=[4, 8], pipeline_parallel=1,
        synchronisation=["all-reduce", "byteps", "local-sgd"], servers=[0, 4], local_steps=[1, 50], top=1000,
    )  # fmt: skip
    kinds = {(plan.plan.synchronisation, plan.plan.servers, plan.plan.local_steps) for plan in found.ranked}
    assert {kind for kind, _, _ in kinds} == {"all-reduce", "byteps", "local-sgd"}
    assert all(servers == 0 for kind, servers, _ in kinds if kind != "byteps")
    assert all(steps == 1 for kind, _, steps in kinds if kind != "local-sgd")
    assert all(plan.plan.zero_stage == 0 for plan in found.ranked if plan.plan.synchronisation != "all-reduce")
    for plan in found.ranked[:3]:
        again = estimate(plan.model, plan.cluster, plan.plan, plan.framework)
        assert again.step_time == pytest.approx(plan.step_time, rel=1e-12)


@pytest.mark.parametrize(("fields", "named"), [
    ({"synchronisation": "gossip"}, "synchronisation"),
    ({"servers": 4}, "servers"),
    ({"servers": -1, "synchronisation": "byteps"}, "servers"),
    ({"local_steps": 10}, "local_steps"),
    ({"local_steps": 0, "synchronisation": "local-sgd"}, "local_steps"),
    ({"synchronisation": "byteps", "zero_stage": 1}, "zero_stage"),
])  # fmt: skip
def test_what_does_not_go_together_is_refused_by_name(fields, named):
    with pytest.raises(InvalidValue, match=named):
        dataclasses.replace(PLAN, **fields)


def test_software_that_always_shards_can_not_synchronise_whole_copies():
    plan = Plan(global_batch=64, seq_len=2048, data_parallel=64, synchronisation="byteps")
    with pytest.raises(IllegalPlan, match="zero_stage=0"):
        estimate(MODEL, load_cluster("aws-p4d", gpus=64), plan, "hf-fsdp")


def test_a_ledger_of_other_exchanges_is_refused():
    plan = dataclasses.replace(PLAN, synchronisation="byteps")
    with pytest.raises(NotModelled, match="byteps"):
        ledger(MODEL, load_cluster("aws-p4d", gpus=64), plan)

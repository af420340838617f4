"""Clusters that reach a time or stay within a budget, and groups of unlike GPUs: against brute force and against identities."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel import (
    CostModelError,
    IllegalPlan,
    candidates,
    design_cluster,
    fewest_gpus,
    load_cluster,
    load_model,
    search,
    unlike_groups,
)
from costmodel.evaluation.mixed_groups import _dealt, _exchange
from tests.drawing import quick

MODEL = load_model("llama3-8b")
ASKED = {"global_batch": 64, "seq_len": 4096, "pipeline_parallel": 1, "context_parallel": 1}
PRICES = {"h100-sxm": 2.5, "a100-sxm-80gb": 1.3}
TRIED = candidates(["h100-sxm", "a100-sxm-80gb"], [8, 16, 32], networks="400 Gbit/s", oversubscriptions=[1.0, 4.0])


@pytest.fixture(scope="module")
def made():
    return design_cluster(MODEL, TRIED, **ASKED, tokens=1e9, within=3600.0 * 4.5, prices=PRICES)


def test_the_best_cluster_is_the_cheapest_of_those_in_time(made):
    costs = {}
    for cluster in TRIED:
        best = search(MODEL, cluster, top=1, **ASKED).best
        hours = 1e9 / best.tokens_per_second / 3600.0
        if hours <= 4.5:
            costs[cluster.device.name, cluster.gpus, cluster.levels[-1].oversubscription] = (
                hours * cluster.gpus * PRICES[cluster.device.name]
            )
    assert costs
    assert len(made.options) == len(TRIED)
    assert len(made.reached) == len(costs)
    assert made.best.cost == pytest.approx(min(costs.values()), rel=1e-9)
    assert [option.cost for option in made.reached] == sorted(option.cost for option in made.reached)
    for option in made.options[len(made.reached):]:
        assert "4.5 h may be taken" in option.why


def test_a_budget_and_a_price_of_the_network_count_too(made):
    rich = made.reached[-1]
    limited = design_cluster(MODEL, TRIED, **ASKED, budget=made.best.cost * 1.0001, prices=PRICES)
    assert made.best.cluster in [option.cluster for option in limited.reached]
    assert rich.cost > made.best.cost
    dear = design_cluster(MODEL, TRIED, **ASKED, prices=PRICES, network_price=1.0)
    for option in dear.options:
        outer = option.cluster.levels[-1]
        rate = 50e9 / 8 / outer.oversubscription / 1e9 if len(option.cluster.levels) > 1 else 0.0
        assert option.price_per_gpu_hour == pytest.approx(PRICES[option.cluster.device.name] + rate)
    with pytest.raises(IllegalPlan, match="reaches it"):
        _ = design_cluster(MODEL, TRIED[:1], **ASKED, budget=0.01, prices=PRICES).best


def test_no_option_of_the_frontier_is_beaten_and_every_other_is(made):
    def measures(option):
        return np.array([option.time, float(option.estimate.memory.total), option.cluster.gpus, option.cost])

    frontier = [id(option) for option in made.frontier]
    every = [option for option in made.options if option.estimate is not None]
    for option in every:
        mine = measures(option)
        beaten = any((measures(one) <= mine).all() and (measures(one) < mine).any() for one in every)
        assert (id(option) in frontier) == (not beaten)


def test_without_prices_and_limits_the_fewest_gpus_of_one_kind_cost_fewest_gpu_hours_or_run_alone():
    large, sizes = load_model("llama3-70b"), [8, 16, 32, 64]
    made = design_cluster(large, candidates("h100-sxm", sizes), global_batch=64, seq_len=8192)
    fitting = [option.cluster.gpus for option in made.options if option.estimate is not None]
    least = fewest_gpus(large, load_cluster("dgx-h100"), global_batch=64, seq_len=8192).value
    assert min(fitting) == min(size for size in sizes if size >= least)


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"clusters": []}, "clusters"), ({"prices": {"h100-sxm": 2.0}}, "a100-sxm-80gb"), ({"within": -1.0}, "within=-1"),
     ({"tokens": 0.0}, "tokens=0"), ({"tensor_paralel": 2}, "tensor_parallel?"), ({"model": 7}, "model=7")],
)  # fmt: skip
def test_what_can_not_be_designed_is_refused_in_one_line(changed, said):
    asked = {"model": MODEL, "clusters": TRIED, **ASKED, **changed}
    with pytest.raises(CostModelError) as refused:
        design_cluster(**asked)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


# Unlike GPUs and sites

H100, A100 = load_cluster("dgx-h100", gpus=8), load_cluster("dgx-a100", gpus=8)


def test_one_group_takes_what_a_search_of_its_own_takes():
    alone = unlike_groups(MODEL, {"here": [H100]}, between="1 Gbit/s", **ASKED)
    assert alone.step_time == pytest.approx(search(MODEL, H100, top=1, **ASKED).best.step_time, rel=1e-12)
    assert (alone.inside_time, alone.between_time) == (0.0, 0.0)


@pytest.mark.slow
def test_like_groups_take_equal_shares_and_the_faster_of_unlike_ones_the_larger():
    like = unlike_groups(MODEL, {"here": [H100], "there": [H100]}, between="800 Gbit/s", **ASKED)
    assert [group.global_batch for group in like.groups] == [32, 32]
    unlike = unlike_groups(MODEL, {"here": [H100], "there": [A100]}, between="800 Gbit/s", **ASKED)
    fast, slow = unlike.groups
    assert fast.global_batch > slow.global_batch
    assert fast.global_batch + slow.global_batch == 64
    assert unlike.step_time < search(MODEL, H100, top=1, **ASKED).best.step_time


def test_the_sum_over_sites_moves_what_a_ring_must():
    made = unlike_groups(MODEL, {"here": [H100], "there": [H100]}, between=100e9, between_latency=0.0, **ASKED)
    assert made.between_time == pytest.approx(2.0 * 0.5 * 4.0 * MODEL.parameters / 100e9)  # megatron-core sums in 32 bit
    three = _exchange([0, 1, 2], [("a", H100), ("a", H100), ("b", H100)], 1e9, {"inside": (0.0, 1e9), "between": (0.0, 1e8)})
    assert three == pytest.approx((1.0, 10.0))


def test_a_group_behind_a_link_that_is_too_slow_is_left_out():
    made = unlike_groups(MODEL, {"here": [H100], "there": [A100]}, between="1 Gbit/s", **ASKED)
    assert [group.cluster for group in made.groups] == [H100]
    assert made.left_out == (A100,)


@settings(quick, max_examples=60)
@given(st.lists(st.lists(st.floats(0.1, 10.0), min_size=6, max_size=6), min_size=1, max_size=3))
def test_no_other_shares_make_the_slowest_group_faster(rows):
    times = np.array([[np.inf, *row] for row in rows])
    slowest, parts = _dealt(times)
    best = min(
        (max(times[g, k] for g, k in enumerate(shares)) for shares in itertools.product(range(1, 7), repeat=len(rows))
         if sum(shares) == 6), default=np.inf,
    )  # fmt: skip
    assert slowest == best
    if np.isfinite(best):
        assert sum(parts) == 6
        assert max(times[g, k] for g, k in enumerate(parts)) == best


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"sites": {}}, "sites=0"), ({"sites": {"here": [H100, A100]}}, "inside=None"), ({"between": "fast"}, "between"),
     ({"global_batch": 0}, "global_batch=0"), ({"sites": {"here": ["dgx-h100"]}}, "sites=")],
)  # fmt: skip
def test_groups_that_can_not_be_are_refused_in_one_line(changed, said):
    asked = {"model": MODEL, "sites": {"here": [H100], "there": [A100]}, "between": "10 Gbit/s", **ASKED, **changed}
    with pytest.raises(CostModelError) as refused:
        unlike_groups(**asked)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)

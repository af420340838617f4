"""A search finds what brute force over `estimate` finds, whatever the space, the engine and the size of its blocks."""

from __future__ import annotations

import dataclasses
import itertools

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from costmodel import (
    IllegalPlan,
    InvalidValue,
    Plan,
    Transformer,
    estimate,
    load_cluster,
    load_framework,
    load_model,
    search,
)
from costmodel.compilation.programs import Ruled
from costmodel.compilation.tape import needed, trace
from costmodel.description.dimensions import RANK_ORDER
from costmodel.description.framework import OF_EXPERTS, Framework
from costmodel.description.judgement import CHOSEN
from costmodel.description.plan import SCHEDULES
from costmodel.description.recomputation import modules_of
from costmodel.evaluation import plan_products
from costmodel.evaluation.selection import pareto_front
from costmodel.formulas import legality
from costmodel.formulas.pipeline.schedules import SCHEDULES as TRAITS
from costmodel.formulas.transformer import memory
from tests.agreement import plans
from tests.drawing import quick

TINY = Transformer(name="tiny", layers=8, hidden=512, heads=8, kv_heads=4, feed_forward=2048, vocabulary=32000)
SPARSE = dataclasses.replace(
    TINY, name="sparse", experts=4, experts_per_token=2, expert_feed_forward=1024, shared_expert_feed_forward=0, dense_layers=0
)


@st.composite
def spaces(draw):
    """Model, cluster, framework, and values of every dimension that is varied."""
    model = draw(st.sampled_from([TINY, SPARSE, load_model("llama3-8b")]))
    gpus = draw(st.sampled_from([1, 4, 8, 16]))
    framework = load_framework(draw(st.sampled_from(["megatron-core", "deepspeed", "fsdp2"])))
    cluster = load_cluster(draw(st.sampled_from(["dgx-h100", "aws-p4d"])), gpus=gpus)

    def some(*values, most=2):
        return draw(st.lists(st.sampled_from(values), min_size=1, max_size=most, unique=True))

    given = {
        "tensor_parallel": some(1, 2, 4), "pipeline_parallel": some(1, 2, 4), "context_parallel": some(1, 2),
        "virtual_stages": some(1, 2), "micro_batch": some(1, 2, 3, 4), "zero_stage": some(0, 1, 2, 3),
        "recompute": some("none", "selective", "full", 2, *{"experts"}.intersection(framework.recompute_modules)),
        "sequence_parallel": some(True, False),
    }  # fmt: skip
    if draw(st.booleans()):
        own = framework.schedules[0]  # a search is refused where the framework has none of those asked for
        given["schedule"] = [own, *some(*(name for name in SCHEDULES if name != own))]
    if draw(st.booleans()):
        given["shard_group"] = some(1, 2, 8)
    if model.experts:
        given["expert_parallel"] = some(1, 2, 4)
    if draw(st.booleans()):
        orders = st.permutations(RANK_ORDER[1:]).map(lambda names: (RANK_ORDER[0], *names))
        given["rank_order"] = draw(st.lists(orders, min_size=1, max_size=4, unique=True))
    if draw(st.booleans()):
        given["optimizer_offload"] = some(0.0, 1.0)
    return model, cluster, framework, given


def of_experts(model, framework):
    """How tokens come to their experts, where the framework has several ways."""
    if not model.experts:
        return {}
    return {name: [getattr(framework, name), value] for name, value in framework.switches if name in OF_EXPERTS}


def can_overlap(fields):
    """Whether Megatron-Core's own checks let tokens travel while another micro-batch works (transformer_config.py)."""
    another = fields["pipeline_parallel"] == 1 or fields["virtual_stages"] > 1
    kept = fields["recompute"] in ("none", "selective") or "experts" not in modules_of(fields["recompute"])
    return another and kept and fields["recompute"] not in ("full", 2) and fields["schedule"] != "dualpipe"


def brute_force(model, cluster, framework: Framework, given, **asked):
    """Every legal plan, by `estimate`: the fields that were varied, with the sequence parallelism that a search means."""
    found, asked_for = {}, set(given)
    given = {"rank_order": framework.rank_orders, "shard_group": [None, "node"], **of_experts(model, framework), **given}
    names = list(given)
    for values in itertools.product(*given.values()):
        fields = dict(zip(names, values, strict=True))
        used = fields["tensor_parallel"] * fields["pipeline_parallel"] * fields["context_parallel"]
        if cluster.gpus % used:
            continue
        fields["data_parallel"] = cluster.gpus // used
        fields["sequence_parallel"] = fields["sequence_parallel"] and fields["tensor_parallel"] > 1
        if "schedule" not in fields:
            defaults = framework.default_schedules if fields["pipeline_parallel"] > 1 else ("1f1b", "interleaved")
            fields["schedule"] = defaults[fields["virtual_stages"] > 1]
        ranks = fields["data_parallel"] * fields["context_parallel"]
        if fields["shard_group"] == "node":  # what a search tries by itself where the framework has such groups
            fields["shard_group"] = cluster.gpus_per_node // fields["tensor_parallel"]
            if fields["zero_stage"] not in framework.grouped_zero_stages or not 1 < fields["shard_group"] < ranks:
                continue
        if fields["shard_group"] == ranks:
            fields["shard_group"] = None
        if fields.get("overlap_experts") and "overlap_experts" not in asked_for and not can_overlap(fields):
            continue
        key = tuple(sorted((name, str(value)) for name, value in fields.items()))
        try:
            found[key] = estimate(model, cluster, Plan(**asked, **fields), framework, fit_probability=CHOSEN)
        except (IllegalPlan, InvalidValue):
            continue
    return list(found.values())


@pytest.mark.slow
@settings(quick, max_examples=30)
@given(space=spaces(), engine=st.sampled_from(["numpy", "numba"]), block=st.sampled_from([1, 64, 1 << 19]))
def test_a_search_finds_what_brute_force_finds(space, engine, block):
    model, cluster, framework, given = space
    asked = {"global_batch": 48, "seq_len": 4096}
    expected = brute_force(model, cluster, framework, given, **asked)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(plan_products.LegalPlans.products, "__defaults__", (block,))
        try:
            result = search(model, cluster, framework=framework, engine=engine, top=1000, keep_evaluated=True, **asked, **given)
        except InvalidValue:  # what the framework has not got at all
            assert not expected
            return
    every = result.every
    found = [every.plan(place) for place in range(len(every))]
    assert {effect(plan) for plan in found} == {effect(one.plan) for one in expected}
    if model.experts == 0:  # whose copies of experts are ranks as well
        assert len({effect(plan) for plan in found}) == len(found)
    times = {one.plan: one.step_time for one in expected}
    held = {one.plan: float(one.memory.total) for one in expected}
    assert set(found) <= set(times)
    np.testing.assert_allclose([times[plan] for plan in found], every.step_time, rtol=1e-12)
    np.testing.assert_allclose([held[plan] for plan in found], every.peak_memory, rtol=1e-12)
    fitting = {one.step_time for one in expected if one.fits}
    np.testing.assert_allclose(sorted({one.step_time for one in result.ranked}), sorted(fitting), rtol=1e-12)
    bounded = search(model, cluster, framework=framework, engine=engine, top=1000, **asked, **given)
    for field in ("ranked", "closest_miss", "evaluated", "fitting", "rejected", "considered"):
        assert getattr(bounded, field) == getattr(result, field), field


@pytest.mark.slow
def test_no_plan_holds_less_than_the_bound():
    """Over all models, clusters and frameworks."""
    for one in itertools.islice(plans(7), 400):
        model, settings, plan, network, software, _ = one.inputs
        assert memory.least(model, settings, plan, network, software).total <= float(one.memory.total) * (1 + 1e-12)


@pytest.mark.parametrize(("gpus", "model"), [(1, "llama3-8b"), (8, "llama3-70b"), (64, "llama3.1-405b"), (64, "deepseek-v3")])
def test_a_bound_changes_no_answer(gpus, model):
    """What a search rules out by its bound neither fits nor nearly fits; where nothing does, the leanest plan is found."""
    cluster = load_cluster("dgx-h100", gpus=gpus)
    asked = {"global_batch": 128, "seq_len": 4096, "engine": "numba", "recompute": ["none", "full"]}
    search(TINY, cluster, **asked)  # loads the vector code
    bounded = search(load_model(model), cluster, **asked)
    whole = search(load_model(model), cluster, keep_evaluated=True, **asked)
    for field in ("ranked", "closest_miss", "evaluated", "fitting", "rejected", "considered"):
        assert getattr(bounded, field) == getattr(whole, field), field


def effect(plan):
    """The plan without what has no effect: what is sharded over one rank, the group of what is not sharded, the schedule of
    one rank's one micro-batch, the place of dimensions of one rank, the way of tokens to experts that are all at hand."""
    ranks = plan.data_parallel * plan.context_parallel
    alone = ranks == 1 or not plan.zero_stage
    order = tuple(name for name in plan.rank_order if getattr(plan, f"{name}_parallel") > 1)
    return dataclasses.replace(
        plan, zero_stage=0 if alone else plan.zero_stage, shard_group=None if alone else plan.shard_group,
        schedule="1f1b" if plan.pipeline_parallel == plan.virtual_stages == plan.micro_batches == 1 else plan.schedule,
        **(dict.fromkeys(OF_EXPERTS) if plan.expert_parallel == 1 else {}),
        rank_order=(*order, *(name for name in RANK_ORDER if name not in order)),
    )  # fmt: skip


@given(
    st.lists(st.tuples(*[st.integers(0, 4)] * 2), max_size=30), st.lists(st.tuples(*[st.integers(0, 3)] * 4), max_size=30)
)
def test_what_none_beats_is_what_brute_force_says_and_equals_stay_together(pairs, quadruples):
    for rows in (pairs, quadruples):
        if not rows:
            continue
        table = np.array(rows, dtype=float)
        kept = set(pareto_front(*table.T).tolist())
        for place, row in enumerate(table):
            beaten = any((other <= row).all() and (other < row).any() for other in table)
            assert (place not in kept) == beaten


def test_plans_as_fast_as_the_last_one_ranked_are_counted():
    asked = {"global_batch": 64, "seq_len": 4096}
    cluster = load_cluster("dgx-h100", gpus=8)
    whole = search(TINY, cluster, top=10_000, **asked)
    assert whole.undecided == 0
    for top in (1, 2, 3, 7):
        few = search(TINY, cluster, top=top, **asked)
        slowest = max(one.step_time for one in few.ranked)
        assert few.undecided == sum(one.step_time == slowest for one in whole.ranked[top:])


def test_no_space_changes_the_numbers_that_a_run_computes_unasked():
    cluster = load_cluster("dgx-h100", gpus=8)
    few = {"global_batch": 16, "seq_len": 4096, "tensor_parallel": [1, 2], "pipeline_parallel": 4, "micro_batch": 1}
    few |= {"context_parallel": 1, "zero_stage": 1, "top": 10_000}
    found = search(TINY, cluster, space="full", **few)
    asked = Plan(global_batch=16, seq_len=4096).resolve(found.framework)
    for name in ("dtype", "adapter", "optimizer", "gradient_bytes", "compression", "synchronisation"):
        assert {getattr(one.plan, name) for one in found.ranked} == {getattr(asked, name)}
    assert all(TRAITS[str(one.plan.schedule)].flushes for one in found.ranked)
    assert len({one.plan.schedule for one in found.ranked}) > 4
    eight = search(TINY, cluster, space="full", dtype=["bf16", "fp8"], **few)
    assert {one.plan.dtype for one in eight.ranked} == {"bf16", "fp8"}


def test_the_closest_miss_is_the_fastest_of_those_that_nearly_fit():
    cluster = load_cluster("dgx-h100", gpus=64)
    asked = {"global_batch": 256, "seq_len": 8192}
    found = search(load_model("llama3-70b"), cluster, keep_evaluated=True, **asked)
    every, limit = found.every, found.best.usable_memory * found.best.spread.margin(0.9)
    near = (every.peak_memory > limit) & (every.peak_memory <= 1.5 * limit)
    fastest = every.step_time[near].min()
    assert (found.closest_miss is not None) == (fastest < found.best.step_time)
    if found.closest_miss is not None:
        assert found.closest_miss.step_time == pytest.approx(fastest, rel=1e-12)




def test_the_frontier_is_what_none_of_the_plans_that_fit_beats():
    found = search(
        TINY, load_cluster("dgx-h100", gpus=16), global_batch=64, seq_len=4096, keep_frontier=True, keep_evaluated=True
    )  # fmt: skip
    every = found.every
    inside = np.flatnonzero(every.fits)
    table = np.stack([every.step_time[inside], every.peak_memory[inside]], axis=1)
    best = [row for row in table if not ((table <= row).all(axis=1) & (table < row).any(axis=1)).any()]
    assert sorted(map(tuple, best)) == [
        pytest.approx((one.step_time, float(one.memory.total)), rel=1e-12) for one in found.frontier
    ]


def test_the_full_space_holds_the_default_one_and_is_never_slower():
    asked = {"global_batch": 64, "seq_len": 4096, "dtype": "bf16", "rank_order": ("tensor", "context", "data", "pipeline")}
    cluster = load_cluster("dgx-h100", gpus=8)
    few, full = search(TINY, cluster, **asked), search(TINY, cluster, space="full", **asked)
    assert full.evaluated > few.evaluated
    assert min(one.step_time for one in full.ranked) <= min(one.step_time for one in few.ranked)
    with pytest.raises(InvalidValue, match="space='wide'"):
        search(TINY, cluster, space="wide", **asked)


def test_rules_read_no_other_settings_than_they_say():
    """A search finds legal plans once for all choices that are alike in these."""
    traced = trace(legality.violations, Ruled, ())
    given = [str(traced.tape.operations[place].given) for place in needed(traced.tape, traced.results)]
    read = {path.split(".")[1] for path in given if path.startswith("settings.")}
    assert read == set(legality.READ)


@pytest.mark.parametrize("name", ["deepspeed", "hf-trainer", "megatron-core"])
def test_weights_on_the_host_are_tried_where_they_are_sharded_alone(name):
    """An estimate refuses them at other stages of ZeRO, and so does a search, which counts them."""
    cluster, framework = load_cluster("dgx-h100", gpus=8), load_framework(name)
    asked = {"global_batch": 8, "seq_len": 128, "parameter_offload": 1.0, "recompute": "none"}
    found = search(TINY, cluster, framework=name, keep_evaluated=True, **asked)
    assert {found.every.plan(place).zero_stage for place in range(found.evaluated)} == {3}
    rest = {**asked, "parameter_offload": 0.0, "zero_stage": sorted({0, 1, 2} & set(framework.zero_stages))}
    assert found.rejected["parameter_offload"] >= search(TINY, cluster, framework=name, **rest).evaluated

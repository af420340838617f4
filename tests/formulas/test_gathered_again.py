"""What DeepSpeed gathers twice for the backward pass of a recomputed layer, against its rule played out module by module."""

from __future__ import annotations

import dataclasses

import pytest

from costmodel import Plan, estimate, load_cluster, load_framework, load_model
from costmodel.formulas.synchronisation import edges_again, gathered_again, whole_between_passes
from costmodel.simulation.replay import simulate
from costmodel.simulation.transactions import ledger

REUSE = 1_000_000_000
"""``max_reuse_distance`` of deepspeedai/DeepSpeed@edaa722 deepspeed/runtime/zero/config.py."""
SOFTWARE = load_framework("deepspeed")


def released(matrices):
    """Share of a layer's elements that `__params_to_release` releases behind its recomputation: modules that are used next are
    gone through until so many elements have passed."""
    uses = [*matrices, *reversed(matrices)]
    gone = 0
    for place, matrix in enumerate(matrices):
        passed, stays = 0, False
        for later in range(place + 1, len(uses)):
            if passed >= REUSE:
                break
            if later == len(uses) - 1 - place:
                stays = True
                break
            passed += uses[later]
        gone += 0 if stays else matrix
    return gone / sum(matrices)


@pytest.mark.parametrize(("name", "matrices"), [
    ("gpt3-175b", [3 * 12_288**2, 12_288**2, 4 * 12_288**2, 4 * 12_288**2]),
    ("megatron-530b", [3 * 20_480**2, 20_480**2, 4 * 20_480**2, 4 * 20_480**2]),
    ("llama3-70b", [8192 * 8192, 2 * 1024 * 8192, 8192 * 8192, *[28_672 * 8192] * 3]),
    ("llama3-8b", [4096 * 4096, 2 * 1024 * 4096, 4096 * 4096, *[14_336 * 4096] * 3]),
])  # fmt: skip
def test_the_share_is_what_the_rule_releases(name, matrices):
    model = load_model(name)
    plan = Plan(global_batch=64, seq_len=2048, data_parallel=64, zero_stage=3, recompute="full")
    found = gathered_again(model.numbers(), plan.settings(SOFTWARE), plan.numbers(SOFTWARE, model.layers))
    assert found == pytest.approx(released(matrices), abs=0.02)
    kept = dataclasses.replace(plan, recompute="none")
    assert gathered_again(model.numbers(), kept.settings(SOFTWARE), kept.numbers(SOFTWARE, model.layers)) == 0.0


def test_the_ledger_and_the_simulation_gather_it_too():
    question = load_model("llama3-70b"), load_cluster("dgx-a100", gpus=64)
    plan = Plan(global_batch=64, seq_len=2048, data_parallel=64, zero_stage=3, recompute="full")
    found = {}
    for kind in ("none", "full"):
        made = ledger(*question, dataclasses.replace(plan, recompute=kind), "deepspeed")
        rows = [row for row in made.transactions if row.collective == "all-gather" and row.phase == "backward"]
        found[kind] = sum(row.count * row.nbytes for row in rows)
    matrices = [8192 * 8192, 2 * 1024 * 8192, 8192 * 8192, *[28_672 * 8192] * 3]
    assert found["full"] / found["none"] == pytest.approx(1.0 + released(matrices), abs=0.02)
    answer = estimate(*question, plan, "deepspeed")
    assert simulate(*question, plan, "deepspeed").total == pytest.approx(answer.step_time, rel=0.05)


LIVE, PREFETCHED, PERSISTENT = 1_000_000_000, 50_000_000, 100_000
"""``max_live_parameters``, ``prefetch_bucket_size`` and ``param_persistence_threshold`` of the same file."""


def gathered(modules):
    """How often each parameter is gathered in a step of modules, pairs of a parameter and its elements, as DeepSpeed's
    coordinator fetches and releases (``fetch_sub_module``, ``__params_to_release``)."""
    order = [*modules, *reversed(modules)]
    size = dict(modules)
    whole = {one for one, many in size.items() if many < PERSISTENT}
    times, marked = dict.fromkeys(size, 0), dict.fromkeys(size, -1)
    place, live = 0, 0
    for step, (one, many) in enumerate(order):
        if one not in whole:
            times[one], live = times[one] + 1, live + many
            whole.add(one)
        if place <= step:
            marked[one], place = step, step + 1
        budget, fetched = min(LIVE - live, PREFETCHED), 0
        while place < len(order) and fetched < budget:
            ahead, elements = order[place]
            marked[ahead] = max(marked[ahead], place)
            if ahead not in whole:
                times[ahead], fetched = times[ahead] + 1, fetched + elements
                whole.add(ahead)
            place += 1
        live += fetched
        between = 0
        stays = many < PERSISTENT or marked[one] > step
        for later, elements in order[step + 1 :]:
            if stays or between >= REUSE:
                break
            stays, between = later == one, between + elements
        if not stays:
            whole.discard(one)
            live -= many
    return times


@pytest.mark.parametrize("name", ["bloom-560m", "gpt3-13b", "llama3.2-3b", "llama3-8b"])
def test_the_last_layers_are_gathered_once_for_both_passes(name):
    """Module by module: each layer two norms, four or seven matrices; what is tied is used at both ends."""
    model = load_model(name)
    hidden, keys, wide = model.hidden, model.kv_heads * model.head_dim, model.feed_forward
    matrices = [hidden * hidden, 2 * keys * hidden, hidden * hidden, *[hidden * wide] * (3 if model.gated else 2)]
    table = ("table", model.vocabulary * hidden)
    inside = [hidden, *matrices[:3], hidden, *matrices[3:]]
    layers = [((i, j), many) for i in range(model.layers) for j, many in enumerate(inside)]
    modules = [table, *layers, table if model.tied_embeddings else ("head", table[1])]
    times = gathered(modules)
    twice = sum(size * (times[one] > 1) for one, size in layers) / sum(size for _, size in layers)
    plan = Plan(global_batch=64, seq_len=2048, data_parallel=64, zero_stage=3)
    numbers, settings, split = model.numbers(), plan.settings(SOFTWARE), plan.numbers(SOFTWARE, model.layers)
    assert 1.0 - whole_between_passes(numbers, settings, split) == pytest.approx(twice, abs=0.06)
    if not model.tied_embeddings:
        assert times["head"] == 1
        assert edges_again(numbers, settings, split) == 0.5 * (times["table"] - 1)


def test_bloom_560m_is_gathered_once_a_step_and_what_persists_one_by_one_after_it():
    """As DeepSpeed 0.19.8 was traced on eight ranks: the table, six times four layers' matrices, 195 small tensors and one."""
    plan = Plan(global_batch=8, seq_len=2048, data_parallel=8, zero_stage=3)
    made = ledger(load_model("bloom-560m"), load_cluster("dgx-h100", gpus=8), plan, "deepspeed")
    rows = [row for row in made.transactions if row.collective == "all-gather"]
    large = sorted((row.nbytes, row.count) for row in rows if row.phase != "after step")
    assert large == [(2.0 * 50_331_648, 6.0), (2.0 * 256_901_120, 1.0)]
    assert sum(row.count for row in rows if row.phase == "after step") == 196

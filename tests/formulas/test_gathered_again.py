"""What DeepSpeed gathers twice for the backward pass of a recomputed layer, against its rule played out module by module."""

from __future__ import annotations

import dataclasses

import pytest

from costmodel import Plan, estimate, load_cluster, load_framework, load_model
from costmodel.formulas.synchronisation import gathered_again
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

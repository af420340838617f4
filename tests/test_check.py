"""The check of a search: what it plays, how often, and that a step played by its middle ends when it does played in full."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from costmodel import CostModelError, Plan, load_cluster, load_model, search, simulate
from costmodel.cli.ranking import played_out
from costmodel.evaluation.estimation import estimate
from costmodel.evaluation.search_result import NOT_PLAYED
from costmodel.simulation import checking, steady
from costmodel.simulation.checking import checked
from costmodel.simulation.steady import played_end
from costmodel.simulation.transactions import ledger_of
from tests.agreement import plans

pytest.importorskip("numba")

LLAMA, CLUSTER = load_model("llama3-70b"), load_cluster("dgx-h100", gpus=64)


def asked(micro_batches, **fields):
    """A step of so many micro-batches on 64 GPUs."""
    degrees = {"tensor_parallel": 4, "pipeline_parallel": 4, "context_parallel": 2, "data_parallel": 2} | fields
    plan = Plan(global_batch=micro_batches * degrees["data_parallel"], seq_len=8192, **degrees)
    return estimate(LLAMA, CLUSTER, plan)


def ends(result):
    """When a step ends by its middle alone, and played in full."""
    full = simulate(result.model, result.cluster, result.plan, result.framework).total
    return played_end(result, ledger_of(result)), full


@pytest.mark.slow
@pytest.mark.parametrize("fields", [
    {}, {"schedule": "interleaved", "virtual_stages": 4}, {"schedule": "zb-h1"}, {"schedule": "zb-h2"}, {"schedule": "zb-v"},
    {"schedule": "gpipe"}, {"schedule": "breadth-first", "virtual_stages": 4}, {"pipeline_parallel": 1, "data_parallel": 8},
    {"pipeline_parallel": 8, "data_parallel": 1, "schedule": "interleaved", "virtual_stages": 5},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("micro_batches", [8, 120, 200, 203])
def test_a_step_ends_when_it_does_played_in_full(fields, micro_batches):
    try:
        result = asked(micro_batches, **fields)
    except CostModelError:
        pytest.skip("the schedule takes no such number of micro-batches")
    short, full = ends(result)
    assert short == pytest.approx(full, rel=1e-10)


@pytest.mark.slow
def test_drawn_steps_of_many_micro_batches_end_when_they_do_played_in_full():
    """Over frameworks and clusters, with gradients and weights that are exchanged once a step or in every micro-batch."""
    played, drawn = 0, plans(11)
    while played < 25:
        result = next(drawn)
        plan = result.plan
        if plan.pipeline_parallel * plan.virtual_stages > 16 or plan.gpus > 512:
            continue
        longer = 16 * plan.pipeline_parallel + 64
        many = dataclasses.replace(plan, global_batch=plan.global_batch // plan.micro_batches * longer)
        result = estimate(result.model, result.cluster, many, result.framework)
        short, full = ends(result)
        assert short == pytest.approx(full, rel=1e-10), many
        played += 1


def test_a_long_step_is_played_by_a_fraction_of_its_micro_batches(monkeypatch):
    lengths = []
    prepared = steady.prepared

    def noted(*args, **fields):
        ready = prepared(*args, **fields)
        lengths.append(ready.schedule.micro_batches)
        return ready

    monkeypatch.setattr(steady, "prepared", noted)
    result = asked(1024, schedule="interleaved", virtual_stages=5)
    played_end(result, ledger_of(result))
    assert max(lengths) <= 96


def test_a_middle_that_never_repeats_is_played_in_full(monkeypatch):
    result = asked(256)
    expected = played_end(result, ledger_of(result))
    monkeypatch.setattr(steady, "SAME", -1.0)  # no two times are the same
    assert played_end(result, ledger_of(result)) == pytest.approx(expected, rel=1e-10)


def test_plans_that_do_the_same_at_the_same_prices_are_played_once(monkeypatch):
    played = []

    def noted(found, made, budget):
        played.append(found.plan)
        return played_end(found, made, budget)

    monkeypatch.setattr(steady, "played_end", noted)
    found = search(LLAMA, CLUSTER, global_batch=64, seq_len=8192, engine="numpy", top=1)
    best = found.ranked[0]
    order = [name for name in best.plan.rank_order if name != "tensor"]
    twin = dataclasses.replace(best.plan, rank_order=("tensor", *reversed(order)))
    other = dataclasses.replace(best.plan, global_batch=best.plan.global_batch * 2)
    alike = [estimate(LLAMA, CLUSTER, plan, best.framework) for plan in (best.plan, best.plan, twin, other)]
    result = checked(dataclasses.replace(found, ranked=alike))
    times = [replay.seconds for replay in result.replays]
    assert len(times) == 4 and times[0] == times[1]
    assert len(played) == len(set(times))
    for one, seconds in zip(alike, times, strict=True):
        assert seconds == pytest.approx(simulate(LLAMA, CLUSTER, one.plan, one.framework).total, rel=1e-10)


def test_a_plan_that_is_not_played_says_why():
    found = search(LLAMA, CLUSTER, global_batch=64, seq_len=8192, engine="numpy", top=2, check=True)
    two_way = estimate(
        LLAMA, CLUSTER, Plan(global_batch=64, seq_len=8192, tensor_parallel=2, pipeline_parallel=2, schedule="dualpipe")
    )
    (refused,) = checked(dataclasses.replace(found, ranked=[two_way])).replays
    assert refused.seconds is None and "dualpipe" in refused.left


def test_a_step_that_transfers_nothing_is_checked():
    """Of one GPU."""
    alone = load_cluster("dgx-h100", gpus=1)
    result = estimate(load_model("gpt2"), alone, Plan(global_batch=512, seq_len=1024))
    assert played_end(result, ledger_of(result)) == pytest.approx(
        simulate(result.model, alone, result.plan, result.framework).total, rel=1e-10
    )


def test_a_check_says_which_plans_it_leaves_out_for_their_work(monkeypatch):
    """Until its budget is spent, plans are played; from a plan's work on that is more than what is left, it says so."""
    found = search(LLAMA, CLUSTER, global_batch=64, seq_len=8192, engine="numpy", top=6)
    most = max(one.plan.micro_batches * one.plan.pipeline_parallel * one.plan.virtual_stages for one in found.ranked)
    monkeypatch.setattr(checking, "MOST_CHECKED", most // 2)
    result = checked(found)
    assert {replay.left for replay in result.replays} == {"", NOT_PLAYED}
    said = played_out(result)
    assert "Played out by the simulator: " in said and "not played out, for the work" in said and "Plan" not in said
    monkeypatch.setattr(checking, "MOST_CHECKED", 0)
    assert played_out(checked(found)).splitlines() == [
        "Played out by the simulator: 0 of 6 plans stay within the interval", f"6 plans are {NOT_PLAYED}",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_check_loads_no_numba_once_its_kernel_was_compiled():
    source = (
        "import sys\nfrom costmodel import load_cluster, load_model, search\n"
        "search(load_model('llama3-8b'), load_cluster('dgx-h100', gpus=8), global_batch=64, seq_len=4096, check=True)\n"
        "print('numba' in sys.modules, 'scipy.optimize' in sys.modules)"
    )
    for _ in range(2):  # the first compiles where nobody has
        ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, cwd=Path.cwd(), check=True)
    assert ran.stdout.split() == ["False", "False"]

"""Context parallelism by a ring, by gathered keys and values, and by heads exchanged for positions: volumes, kernels, memory."""

from __future__ import annotations

import dataclasses

import pytest

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
from costmodel.interop.launchers import read_launch
from costmodel.interop.launchers.pricing import plan_of
from costmodel.interop.launchers.writing import write_launch
from costmodel.simulation.replay import simulate
from costmodel.simulation.transactions import ledger_of

RANKS, TOKENS = 8, 32_768
WAYS = ("ring", "all-gather", "all-to-all")
MODEL, CLUSTER = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=RANKS)
PLAN = Plan(global_batch=2, seq_len=TOKENS, context_parallel=RANKS, recompute="none", zero_stage=1)


def asked(way, model=MODEL, cluster=CLUSTER, **fields):
    plan = dataclasses.replace(PLAN, context_communication=way, **fields)
    return estimate(model, cluster.with_gpus(plan.gpus), plan)


def sent(way, phase):
    """Bytes that a rank sends for one layer of one micro-batch."""
    rows = [row for row in ledger_of(asked(way)).transactions if row.group == "context" and row.phase == phase]
    return sum(row.sent * row.count for row in rows) / MODEL.layers / PLAN.micro_batches


@pytest.mark.parametrize("way", WAYS)
def test_ranks_send_what_papers_say(way):
    """K = 2 (s / c) n_kv d 2 bytes: (c - 1) K forward, twice that backward; DeepSpeed-Ulysses (arXiv 2309.14509 section 3.2): as
    many bytes as queries, keys, values and outputs have on a rank, less what stays there, and back the same."""
    keys = 2 * TOKENS / RANKS * MODEL.kv_heads * MODEL.head_dim * 2
    whole = 2 * TOKENS / RANKS * MODEL.heads * MODEL.head_dim * 2 + keys
    once = (RANKS - 1) / RANKS * whole if way == "all-to-all" else (RANKS - 1) * keys
    assert sent(way, "forward") == pytest.approx(once)
    assert sent(way, "backward") == pytest.approx(once if way == "all-to-all" else 2 * once)


def test_a_ring_alone_hides_behind_the_attention_core():
    long = {way: asked(way).step.context_exchange for way in WAYS}
    assert long["ring"] == 0.0 < long["all-to-all"] < long["all-gather"]


def test_heads_exchanged_move_least_where_every_query_has_keys_of_its_own():
    """Each link carries 4 N h / P bytes instead of 4 N h of gathered or passed keys and values [arXiv 2309.14509 section 3.2]."""
    model = dataclasses.replace(MODEL, kv_heads=MODEL.heads)
    rows = {way: [row for row in ledger_of(asked(way, model)).transactions if row.group == "context"] for way in WAYS}
    volume = {way: sum(row.sent * row.count for row in one) for way, one in rows.items()}
    assert volume["all-gather"] == pytest.approx(volume["ring"])
    assert volume["all-to-all"] == pytest.approx(volume["ring"] * 8 / (RANKS * 6))  # 8 tensors moved in parts, 6 whole


def test_gathered_keys_and_values_are_held_whole_beside_a_layer():
    """TransformerEngine gathers both again backward and makes their gradients as long."""
    model = dataclasses.replace(MODEL, vocabulary=1024)  # so that no logits are fuller
    held = {way: asked(way, model).memory.temporaries for way in WAYS}
    whole = 2 * 2 * TOKENS * MODEL.kv_heads * MODEL.head_dim * 2
    assert held["all-gather"] - held["ring"] == pytest.approx(whole)
    assert held["ring"] < held["all-to-all"] < held["all-gather"]


def test_short_sequences_on_many_ranks_are_the_ring_s_worst():
    """Every hop is kernels of its own; gathered at once the core is one kernel, or two."""
    host = {way: asked(way, seq_len=4096).step_time for way in WAYS}
    assert host["all-to-all"] < host["all-gather"] < host["ring"]


@pytest.mark.parametrize("way", WAYS)
def test_a_simulation_exchanges_what_is_estimated(way):
    answer = asked(way, pipeline_parallel=2, seq_len=8192, global_batch=8)
    assert simulate(MODEL, answer.cluster, answer.plan).step_time == pytest.approx(answer.step_time, rel=0.03)


def test_one_rank_exchanges_nothing():
    times = {asked(way, context_parallel=1, data_parallel=RANKS, global_batch=8, seq_len=4096).step_time for way in WAYS}
    assert len(times) == 1


def test_heads_have_to_divide():
    """NVIDIA/TransformerEngine@d0067d0 context_parallel.py: "num_heads % cp_size == 0 for Q, K, V"."""
    with pytest.raises(IllegalPlan, match="32 heads and 8 kv_heads"):
        asked("all-to-all", context_parallel=16)
    with pytest.raises(IllegalPlan, match="32 heads and 8 kv_heads"):
        asked("all-to-all", tensor_parallel=2)
    assert asked("all-to-all", context_parallel=4, tensor_parallel=2).step_time > 0.0


def test_what_a_framework_lacks_is_refused():
    with pytest.raises(IllegalPlan, match="context_communication='all-to-all': fsdp2 has ring"):
        estimate(MODEL, CLUSTER, dataclasses.replace(PLAN, context_communication="all-to-all", zero_stage=3), "fsdp2")
    with pytest.raises(InvalidValue, match="context_communication"):
        search(MODEL, CLUSTER, global_batch=8, seq_len=TOKENS, framework="fsdp2", context_communication="all-gather")
    with pytest.raises(InvalidValue, match="ring, all-gather, all-to-all"):
        Plan(global_batch=8, seq_len=TOKENS, context_communication="p2p")


def test_frameworks_split_sequences_in_their_own_way():
    ways = {name: Plan(global_batch=8, seq_len=TOKENS).resolve(load_framework(name)).context_communication
            for name in ("megatron-core", "deepspeed", "maxtext")}  # fmt: skip
    assert ways == {"megatron-core": "ring", "deepspeed": "all-to-all", "maxtext": "all-gather"}


def test_a_search_tries_the_ways_that_it_is_given():
    found = search(MODEL, CLUSTER, global_batch=8, seq_len=131_072, context_communication=list(WAYS), top=50)
    assert {one.plan.context_communication for one in found.ranked} == set(WAYS)


@pytest.mark.parametrize(("word", "way"), [("p2p", "ring"), ("all_gather", "all-gather"), ("a2a", "all-to-all")])
def test_launchers_say_it(word, way):
    said = "--context-parallel-size 4 --seq-length 8192 --micro-batch-size 1 --global-batch-size 8 --bf16 "
    plan = plan_of(read_launch(said + f"--cp-comm-type {word}"), 8, [])
    assert (plan.context_parallel, plan.context_communication) == (4, way)
    for format in ("megatron", "nemo"):
        text = write_launch(format, plan, MODEL)
        said = text.replace("-", "_").split("cp_comm_type")
        assert len(said) == 1 if way == "ring" else word in said[1]


@pytest.mark.parametrize("words", ["a2a+p2p", "p2p a2a"])
def test_ways_that_are_mixed_are_said_to_be_unpriced(words):
    said = "--context-parallel-size 4 --seq-length 8192 --micro-batch-size 1 --global-batch-size 8 --bf16 --cp-comm-type "
    launch = read_launch(said + words)
    assert any("cp-comm-type" in one for one in launch.unpriced) and not launch.unknown
    assert read_launch(said + "a2a a2a").plan_fields["context_communication"] == "all-to-all"


def test_latent_attention_passes_values_as_wide_as_they_are():
    model = load_model("deepseek-v2-lite")  # keys of 192 channels, values of 128
    plan = dataclasses.replace(PLAN, context_communication="all-gather")
    made = ledger_of(estimate(model, CLUSTER, plan))
    rows = [row for row in made.transactions if row.group == "context" and row.phase == "forward"]
    whole = sum(row.nbytes * row.count for row in rows) / model.layers / plan.micro_batches
    assert whole == pytest.approx(TOKENS * model.heads * (192 + 128) * 2)


def test_sequences_split_by_heads_are_read_from_deepspeed_and_written_back():
    said = '{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "sequence_parallel_size": 4, "bf16": {"enabled": true}}'
    launch = read_launch(said, gpus=8, settings={"seq_len": "8192"})
    plan = plan_of(launch, 8, [])
    assert (plan.context_parallel, plan.data_parallel, plan.context_communication) == (4, 2, "all-to-all")
    assert '"sequence_parallel_size": 4' in write_launch("deepspeed", plan, MODEL)

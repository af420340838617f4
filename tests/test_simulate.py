"""Steps played out: against the ledger's bytes, the timeline, closed forms of overlap and waiting, and what must add up."""

import dataclasses
import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

from costmodel import IllegalPlan, InvalidValue, NotModelled, Plan, load_cluster, load_framework, load_model
from costmodel.arithmetic.named_tuples import replaced
from costmodel.description.schedule import BACKWARD, FORWARD
from costmodel.evaluation.estimation import estimate
from costmodel.formulas.network import communication
from costmodel.formulas.pipeline.schedules import SCHEDULES
from costmodel.simulation import replay
from costmodel.simulation.playback import timeline
from costmodel.simulation.played_step import GROUPS, IDLE, KINDS
from costmodel.simulation.replay import simulate
from costmodel.simulation.transactions import ledger
from costmodel.studies.data_parallel import expected_largest
from costmodel.text.errors import IllegalSchedule
from tests.drawing import questions

pytest.importorskip("numba")

quick = settings(
    deadline=None, max_examples=25, derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
BLOOM, GPT3 = load_model("bloom-560m"), load_model("gpt3-175b")


def framework(name, **constants):
    """A framework of the catalogue with some constants changed."""
    found = load_framework(name)
    return dataclasses.replace(found, constants=replaced(found.constants, constants))


def drawn(question, **fields):
    """A step of a drawn question; what can't run is drawn again."""
    try:
        return simulate(*question, **fields)
    except (IllegalPlan, IllegalSchedule, NotModelled):
        assume(False)


def zero2(gpus, micro_batches=1, **fields):
    """A question about bloom-560m under ZeRO-2."""
    plan = Plan(global_batch=gpus * micro_batches, seq_len=2048, data_parallel=gpus, zero_stage=2, **fields)
    return BLOOM, load_cluster("dgx-a100", gpus=gpus), plan


# What must add up


@quick
@given(questions(), st.booleans())
def test_what_a_rank_does_and_waits_for_adds_up_to_the_step(question, apart):
    step = drawn(question, jitter=0.05 if apart else 0.0)
    assert sum(step.times.values()) == pytest.approx(np.full((step.stages, step.replicas), step.total), rel=1e-9)
    assert all((part > -1e-9 * step.total).all() for part in step.times.values())
    assert list(step.busy) + list(step.idle) == list(step.times)
    assert (step.instances.end <= step.total * (1 + 1e-12)).all()


@quick
@given(questions())
def test_bytes_are_those_of_the_ledger(question):
    step = drawn(question)
    made = step.ledger
    for rank in range(step.stages):
        name = "only" if step.stages == 1 else "first" if rank == 0 else "last" if rank == step.stages - 1 else "middle"
        booked = dict.fromkeys(step.sent_bytes, 0.0)
        for row in made.of(name):
            booked[row.group] += row.count * row.sent
        played = {group: float(sent[rank]) for group, sent in step.sent_bytes.items()}
        assert played == pytest.approx(booked, rel=1e-9)


@pytest.mark.parametrize("virtual_stages", [1, 2])
def test_every_stage_sends_as_often_as_the_ledger_says(virtual_stages):
    plan = Plan(global_batch=64, seq_len=2048, tensor_parallel=8, pipeline_parallel=8, virtual_stages=virtual_stages)
    step = simulate(GPT3, load_cluster("selene", gpus=64), plan)
    booked = [
        sum(row.count * row.sent for row in step.ledger.of(name) if row.group == "pipeline")
        for name in ("first", *["middle"] * 6, "last")
    ]
    assert step.sent_bytes["pipeline"] == pytest.approx(booked)


@quick
@given(questions(), st.integers(1, 50))
def test_utilisation_over_time_holds_every_byte_and_every_second(question, bins):
    step = drawn(question, jitter=0.1)
    shown = step.utilisation(bins)
    width = step.total / bins
    assert shown.compute.sum(1) * width == pytest.approx(step.times["compute"].mean(1), rel=1e-6)
    for load in step.loads:
        carried = shown.links[load.level].sum(1) * width
        assert carried.max() == pytest.approx(load.nbytes, rel=1e-6, abs=1e-3)
        # the ledger has experts where they are; passes have a mean of the layers
        if step.stages == 1 or not question[0].dense_layers:
            assert shown.links[load.level].max() <= load.bandwidth * (1 + 1e-6)
            assert load.mean_rate * (1 - 1e-9) <= load.peak_rate <= load.bandwidth * (1 + 1e-6)


@pytest.mark.slow
@quick
@given(questions(pipelines=False))
def test_loads_of_links_are_those_of_the_ledger(question):
    step = drawn(question)
    assert [load.nbytes for load in step.loads] == pytest.approx([load.nbytes for load in step.ledger.loads()], rel=1e-9)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved", "zb-h1"])
def test_activations_held_at_the_most_are_those_of_the_bill(schedule):
    model = load_model("llama3-8b")
    plan = Plan(
        global_batch=32, seq_len=4096, pipeline_parallel=4, data_parallel=2, schedule=schedule,
        virtual_stages=2 if schedule == "interleaved" else 1,
    )  # fmt: skip
    step = simulate(model, load_cluster("dgx-h100", gpus=8), plan)
    billed = [stage.parts.activations for stage in step.estimate.memory.stages]
    assert step.peak_bytes - step.base == pytest.approx(billed)
    assert step.utilisation(2000).held.max(1) == pytest.approx(step.peak_bytes, rel=0.01)


def test_every_event_is_in_the_frame():
    pytest.importorskip("pandas")
    plan = Plan(global_batch=32, seq_len=2048, tensor_parallel=8, pipeline_parallel=2, data_parallel=2)
    frame = simulate(GPT3, load_cluster("selene", gpus=32), plan, jitter=0.1).frame()
    counts = frame.event.value_counts()
    assert counts["forward"] >= counts["pipeline forward"] == counts["pipeline backward"] == 2 * 16
    assert counts["data"] == len(frame[frame.event == "data"].groupby(["stage", "start_s"]))
    assert (frame.end_s >= frame.start_s).all() and set(frame.replica) == {0, 1}


# Limits


@pytest.mark.parametrize("plan", [
    Plan(global_batch=1, seq_len=2048), Plan(global_batch=7, seq_len=1024),
    Plan(global_batch=4, seq_len=2048, micro_batch=2, recompute="full"),
])  # fmt: skip
def test_one_gpu_takes_the_sum_of_its_passes(plan):
    question = BLOOM, load_cluster("dgx-h100", gpus=1), plan, "fsdp2"
    assert simulate(*question).total == pytest.approx(estimate(*question).step_time, rel=1e-12)
    assert simulate(*question).times["bubble"].max() == 0.0


def without_network(question):
    """The question with links of no latency and next to no end of bandwidth, and exchanges that need no launch."""
    model, cluster, plan, software = question
    levels = [dataclasses.replace(level, bandwidth=1e15, latency=0.0) for level in cluster.levels]
    silent = {"host_collective_launch": 0.0, "network_crossing_launch": 0.0}
    quiet = dataclasses.replace(software, constants=replaced(software.constants, silent))
    return model, dataclasses.replace(cluster, levels=levels), plan, quiet


@pytest.mark.slow
@quick
@given(questions(zero=[0, 1]))
def test_without_a_network_a_step_is_compute_and_bubble(question):
    assume(question[2].mean_length is None)  # replicas that wait for the one with most tokens play no event
    model, cluster, plan, software = without_network(question)
    # the memory of a GPU bounds its exchange, too: eight times the work beside it
    question = model, cluster, dataclasses.replace(plan, global_batch=8 * plan.global_batch), software
    step = drawn(question)
    played = timeline(*question)
    left = 2.0 * step.stages * max(step.ledger.times.values())  # of the exchange: bandwidth has an end
    assert step.total == pytest.approx(played.total, rel=1e-9, abs=left)
    idle = sum(step.times[name].max() for name in IDLE if name not in ("bubble", "host"))
    assert idle <= left + 1e-9 * step.total
    assert left < 0.1 * step.total


def test_a_uniform_pipeline_idles_by_its_stages_less_one():  # narayanan2021, section 2.2.1
    model = dataclasses.replace(GPT3, vocabulary=1)
    quiet = framework("megatron-lm-2021", host_collective_launch=0.0)
    plan = Plan(global_batch=32, seq_len=2048, tensor_parallel=8, pipeline_parallel=4)
    question = without_network((model, load_cluster("selene", gpus=32), plan, quiet))
    step = simulate(*question)
    rest = step.times["optimizer"] + step.times["host"]
    for rank in range(4):
        bubble = step.times["bubble"][rank, 0]
        assert bubble / (step.total - rest[rank, 0]) == pytest.approx(3 / (32 + 3), rel=0.01)


@pytest.mark.slow
@quick
@given(questions(), st.sampled_from([1.1, 2.0, 10.0]), st.integers(0, 1))
def test_more_bandwidth_is_never_slower(question, times, faster):
    """To a thousandth where passes have hidden exchange of their own: what a faster link hides goes before transfers."""
    before = drawn(question)
    model, cluster, *rest = question
    levels = list(cluster.levels)
    levels[faster] = dataclasses.replace(levels[faster], bandwidth=times * levels[faster].bandwidth)
    after = simulate(model, dataclasses.replace(cluster, levels=levels), *rest)
    plan = before.estimate.plan
    hides = plan.overlap_tensor or plan.context_parallel > 1 or plan.expert_parallel > 1
    assert after.step_time <= before.step_time * (1 + (1e-3 if hides else 1e-9))


@pytest.mark.slow
@quick
@given(questions())
def test_no_stage_and_no_stream_takes_longer_than_the_step(question):
    step = drawn(question)
    for rank in range(step.stages):
        part = slice(*step.entries.offsets[rank : rank + 2])
        assert step.duration[:, part].sum(1).max() <= step.total * (1 + 1e-9)
        for stream in range(5):
            chosen = (step.transfers.stage == rank) & (step.transfers.stream == stream)
            assert step.transfers.time[chosen].sum() <= step.total * (1 + 1e-9)


# What others say of the same


@pytest.mark.parametrize("name", ["deepspeed", "fsdp2", "megatron-core"])
def test_buckets_beside_the_backward_pass_leave_exposed_what_the_ledger_finds(name):
    stage = {"deepspeed": 2, "fsdp2": 0, "megatron-core": 1}[name]
    free = framework(name, overlap_gradients=1.0, compute_contention=0.0)
    plan = Plan(global_batch=64, seq_len=4096, data_parallel=64, zero_stage=stage, overlap_gradients=True)
    question = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=64), plan, free
    made = ledger(*question)
    assume_hidden = made.overlap()
    assert 0.0 < assume_hidden.exposed < assume_hidden.exchange
    assert simulate(*question).times["gradient exchange"][0, 0] == pytest.approx(assume_hidden.exposed, rel=1e-6)


@pytest.mark.parametrize(("name", "pipeline", "chunks", "schedule"), [
    ("megatron-core", 16, 1, "1f1b"), ("megatron-core", 16, 1, "gpipe"), ("megatron-core", 16, 1, "zb-h1"),
    ("megatron-core", 8, 3, "interleaved"), ("megatron-lm-2021", 16, 1, "1f1b"), ("megatron-lm-2021", 8, 2, "interleaved"),
])  # fmt: skip
def test_a_pipeline_of_equal_replicas_takes_what_is_estimated(name, pipeline, chunks, schedule):
    plan = Plan(
        global_batch=1536, seq_len=2048, tensor_parallel=8, pipeline_parallel=pipeline, data_parallel=384 // pipeline,
        virtual_stages=chunks, schedule=schedule,
    )  # fmt: skip
    step = simulate(GPT3, load_cluster("selene", gpus=3072), plan, name)
    assert step.step_time == pytest.approx(step.estimate.step_time, rel=0.03)


def test_passes_have_the_times_that_the_timeline_has():
    question = GPT3, load_cluster("selene", gpus=64), Plan(
        global_batch=32, seq_len=2048, tensor_parallel=8, pipeline_parallel=8), "megatron-lm-2021"  # fmt: skip
    step, played = simulate(*question), timeline(*question)
    for kind in (FORWARD, BACKWARD):
        chosen = played.schedule.kind == kind
        wanted = np.bincount(played.schedule.rank[chosen], played.work[chosen])
        mine = np.where(step.entries.kind == kind, step.duration[0], 0.0)
        assert np.bincount(step.entries.stage, mine) == pytest.approx(wanted)


def test_gathers_hide_as_far_as_the_estimate_says_where_units_are_alike():
    """ZeRO-3 over many equal layers, compute the larger part: all but the first gather hides."""
    model = dataclasses.replace(load_model("llama3-8b"), vocabulary=1, layers=96)
    plan = Plan(global_batch=64, seq_len=8192, data_parallel=64, zero_stage=3)
    step = simulate(model, load_cluster("dgx-h100", gpus=64), plan, "fsdp2")
    assert step.step_time == pytest.approx(step.estimate.step_time, rel=0.03)
    assert step.times["parameter gather"].max() < 0.02 * step.total


# Replicas that differ


@pytest.mark.slow
@quick
@given(questions())
def test_replicas_that_do_the_same_take_what_one_takes(question):
    step = drawn(question)
    apart = simulate(*question, slow_ranks={0: 1.0})
    assert apart.total == pytest.approx(step.total, rel=1e-12)
    assert apart.times["slowest replica"].max() <= step.times["slowest replica"].max() + 1e-9 * step.total
    for name, part in step.times.items():
        assert apart.times[name] == pytest.approx(np.broadcast_to(part, apart.times[name].shape), abs=1e-9 * step.total)


@pytest.mark.parametrize(("fields", "replicas"), [
    ({"data_parallel": 64}, 64), ({"tensor_parallel": 8, "data_parallel": 8}, 8),
    ({"context_parallel": 4, "data_parallel": 16}, 16), ({"expert_parallel": 8, "data_parallel": 64}, 8),
    ({"expert_parallel": 8, "tensor_parallel": 2, "data_parallel": 32}, 8),
    ({"expert_parallel": 8, "pipeline_parallel": 4, "data_parallel": 16}, 2),
])  # fmt: skip
def test_ranks_that_wait_for_each_other_in_every_layer_are_one_replica(fields, replicas):
    plan = Plan(global_batch=64, seq_len=4096, **fields)
    step = simulate(load_model("mixtral-8x7b"), load_cluster("dgx-h100", gpus=64), plan, jitter=0.01)
    assert step.replicas == replicas


def synchronous(gpus, micro_batches=1):
    """A question about data parallelism in which nothing overlaps."""
    plan = Plan(
        global_batch=gpus * micro_batches, seq_len=2048, data_parallel=gpus, zero_stage=0, overlap_gradients=False,
        overlap_parameters=False,
    )  # fmt: skip
    return BLOOM, load_cluster("dgx-a100", gpus=gpus), plan, "fsdp2"


@pytest.mark.parametrize("micro_batches", [1, 4])
@pytest.mark.parametrize("times", [1.01, 1.5])
def test_a_slow_rank_delays_a_synchronous_step_by_its_own_excess(micro_batches, times):
    question = synchronous(64, micro_batches)
    alike, slow = simulate(*question), simulate(*question, slow_ranks={17: times})
    excess = (times - 1.0) * alike.times["compute"][0, 0]
    assert slow.total - alike.total == pytest.approx(excess)
    waits = slow.times["slowest replica"][0]
    assert waits[17] < 1e-12 and waits[np.arange(64) != 17] == pytest.approx(np.full(63, excess))


def test_a_slow_rank_slows_its_tensor_group_and_no_other():
    plan = Plan(global_batch=32, seq_len=2048, tensor_parallel=8, data_parallel=2)
    question = GPT3, load_cluster("selene", gpus=16), plan
    step = simulate(*question, slow_ranks={13: 2.0})
    assert step.times["compute"][0, 1] == pytest.approx(2.0 * step.times["compute"][0, 0])
    assert step.total == simulate(*question, slow_ranks={8: 2.0}).total


def test_the_wait_for_the_slowest_grows_as_the_largest_of_so_many_normals():
    """mu + sigma E[max of DP], and E[max] -> sqrt(2 ln DP) from below [blom1958]."""
    jitter, seeds = 0.02, 24
    waits = {}
    for gpus in (4, 64, 1024):
        question = synchronous(gpus)
        alike = simulate(*question)
        passes = [alike.computing[0, alike.entries.kind == kind].sum() for kind in (FORWARD, BACKWARD)]
        totals = [simulate(*question, jitter=jitter, seed=seed).total for seed in range(seeds)]
        sigma = jitter * math.hypot(*passes)
        waits[gpus] = (np.mean(totals) - alike.total) / sigma
        error = 1.0 / math.sqrt(seeds)  # a maximum spreads less than one of its deviates
        assert waits[gpus] == pytest.approx(expected_largest(gpus), abs=3 * error)
        assert waits[gpus] < math.sqrt(2.0 * math.log(gpus)) + error
    assert waits[4] < waits[64] < waits[1024]


def test_jitter_repeats_with_its_seed_and_keeps_the_mean_of_the_passes():
    question = zero2(256)
    one, same, other = (simulate(*question, "deepspeed", jitter=0.05, seed=seed) for seed in (1, 1, 2))
    assert one.total == same.total != other.total
    alike = simulate(*question, "deepspeed")
    assert one.times["compute"].mean() == pytest.approx(alike.times["compute"].mean(), rel=0.02)


def test_shards_of_a_copy_wait_for_each_other_and_copies_for_their_part():
    """HSDP: a slow rank is met by its own shard group in the scatter, by the others in the sum over copies."""
    plan = Plan(
        global_batch=32, seq_len=2048, data_parallel=32, shard_group=8, zero_stage=2, overlap_gradients=False,
        overlap_parameters=False,
    )  # fmt: skip
    step = simulate(BLOOM, load_cluster("dgx-a100", gpus=32), plan, "fsdp2", slow_ranks={3: 1.5})
    scatters = [k for k, phase in enumerate(step.transfers.phase) if phase == "gradient sync"]
    groups = {tuple(row) for row in step.instances.number[scatters] - step.instances.number[scatters].min(1, keepdims=True)}
    assert groups == {tuple(np.repeat(np.arange(4), 8)), tuple(np.tile(np.arange(8), 4))}
    waits = step.times["slowest replica"][0]
    assert waits[3] < 1e-12 and (waits[np.arange(32) != 3] > 1e-3).all()


# The two large steps, and what is refused


def test_zero2_of_bloom_on_3072_gpus_moves_the_ledgers_buckets():  # SYSTEMS of the fourth seed: 604.6, 513.8, 1,118.4 MB
    step = simulate(*zero2(3072), "deepspeed")
    moved = dict(zip(step.instances.start, step.transfers.nbytes[step.instances.of], strict=True))
    assert [moved[at] for at in sorted(moved)] == [1118429184.0, 604626944.0, 513802240.0]  # the gather of the step before
    every = simulate(*zero2(3072), "deepspeed", jitter=0.01)
    assert every.replicas == 3072 and every.sent_bytes["data"] == pytest.approx(step.sent_bytes["data"])


def test_stages_of_staggered_schedules_begin_the_next_step_as_they_end():
    for name in (name for name, traits in SCHEDULES.items() if traits.asynchronous):
        plan = Plan(global_batch=64, seq_len=2048, tensor_parallel=8, pipeline_parallel=8, schedule=name)
        uniform = dataclasses.replace(GPT3, vocabulary=1, tied_embeddings=False)  # tied ones would have the ends meet
        software = dataclasses.replace(load_framework("megatron-lm-2021"), schedules=(name,))
        question = without_network((uniform, load_cluster("selene", gpus=64), plan, software))
        step = simulate(*question)
        assert step.step_time == step.period == pytest.approx(timeline(*question).period, rel=1e-3)
        assert step.step_time == pytest.approx(step.estimate.step_time, rel=0.01)


def test_sends_go_beside_passes_as_far_as_the_software_lets_them():
    model, cluster = GPT3, load_cluster("selene", gpus=64)
    plan = Plan(global_batch=64, seq_len=2048, tensor_parallel=8, pipeline_parallel=8)
    free, held = (framework("megatron-core", overlap_pipeline=share) for share in (1.0, 0.0))
    fast, slow = simulate(model, cluster, plan, free), simulate(model, cluster, plan, held)
    assert "sending" not in {KINDS[kind] for kind in fast.entries.kind}
    assert fast.total < slow.total
    shape = model.numbers(), plan.settings(held), plan.resolve(held).numbers(held, model.layers)
    alone, _ = communication.boundary(*shape, cluster.numbers(), held.numbers())
    assert slow.times["send"][1:-1].min() >= 2 * 64 * alone * (1 - 1e-9)


@pytest.mark.parametrize(("fields", "message"), [
    ({"jitter": -1.0}, "jitter"), ({"seed": -1}, "seed"), ({"slow_ranks": {64: 2.0}}, "slow_ranks"),
    ({"slow_ranks": {0: 0.5}}, "slow_ranks"), ({"slow_ranks": [1]}, "slow_ranks"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused_in_one_line(fields, message):
    with pytest.raises(InvalidValue, match=message):
        simulate(*zero2(64), "deepspeed", **fields)


def test_schedules_without_a_step_are_refused():
    plan = Plan(global_batch=64, seq_len=2048, tensor_parallel=8, pipeline_parallel=8, schedule="pipedream", zero_stage=0)
    with pytest.raises(NotModelled, match="never flushes"):
        simulate(GPT3, load_cluster("selene", gpus=64), plan)
    both_ways = dataclasses.replace(plan, schedule="dualpipe")
    with pytest.raises(NotModelled, match="twin ranks"):
        simulate(GPT3, load_cluster("selene", gpus=64), both_ways)


def test_a_step_of_too_many_events_is_refused():
    plan = Plan(global_batch=1024 * 512, seq_len=128, data_parallel=1024, zero_stage=3)
    with pytest.raises(InvalidValue, match="symmetry|one replica"):
        simulate(BLOOM, load_cluster("dgx-a100", gpus=1024), plan, "fsdp2", jitter=0.1)


def test_groups_inside_passes_are_the_ledgers():
    assert set(GROUPS) < {row.group for row in ledger(
        load_model("mixtral-8x7b"), load_cluster("dgx-h100", gpus=64),
        Plan(global_batch=64, seq_len=4096, tensor_parallel=2, context_parallel=2, data_parallel=16, expert_parallel=4,
             expert_tensor_parallel=2),
    ).transactions}  # fmt: skip


# What is refused


@pytest.mark.parametrize(("part", "field", "factor"), [("lines", "duration", -1.0), ("moves", "time", -1.0),
                                                       ("lines", "duration", math.nan), ("moves", "time", math.inf)])  # fmt: skip
def test_a_step_whose_clock_would_run_backwards_is_refused(monkeypatch, part, field, factor):
    written = replay.programs_of

    def wrong(*arguments):
        programs = written(*arguments)
        kinds = getattr(programs, part)
        return programs._replace(**{part: kinds._replace(**{field: factor * getattr(kinds, field)})})

    monkeypatch.setattr(replay, "programs_of", wrong)
    with pytest.raises(RuntimeError, match="a finite time of 0 or more"):
        simulate(*zero2(8))


@pytest.mark.parametrize(("batching", "degrees"), [
    ("padding-free", {"zero_stage": 1}), ("padded", {"zero_stage": 3}), ("padded", {"pipeline_parallel": 2, "zero_stage": 1}),
])  # fmt: skip
def test_replicas_of_unlike_samples_wait_for_the_one_with_most_tokens(batching, degrees):
    model, cluster = load_model("bloom-560m"), load_cluster("dgx-h100", gpus=8)
    plan = Plan(global_batch=64, seq_len=2048, micro_batch=2, batching=batching, mean_length=400.0, **degrees)
    played = simulate(model, cluster, plan)
    waits = float(played.times["slowest replica"].mean())
    assert played.total == pytest.approx(played.estimate.step_time, rel=0.03)
    grouped = simulate(model, cluster, dataclasses.replace(plan, batching="grouped"))
    assert waits > 0.03 * played.total and float(grouped.times["slowest replica"].max()) < 1e-9
    assert sum(played.times.values()).max() == pytest.approx(played.total)

"""Timelines against the zero-bubble paper's table of bubble rates, GPipe's tables, and the library's own closed forms."""

import dataclasses

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from costmodel import Plan, Transformer, load_cluster, load_framework, load_model
from costmodel.arithmetic.named_tuples import replaced
from costmodel.description.plan import SCHEDULES
from costmodel.description.schedule import BACKWARD, FORWARD, SYNC, pipeline_schedule
from costmodel.evaluation.estimation import estimate
from costmodel.formulas.legality import violations
from costmodel.simulation.playback import simulate_schedule, stage_layers, timeline, zero_bubble_schedule
from costmodel.text.errors import IllegalPlan, IllegalSchedule, InvalidValue
from tests.seeds import rows

CHUNKS = {"1.5B": 3, "6.2B": 4, "14.6B": 3, "28.3B": 2}  # layers on a rank, the embedding and the head counted as one each
SHAPES = {"1.5B": (2304, 24), "6.2B": (4096, 32), "14.6B": (5120, 40), "28.3B": (6144, 48)}  # hidden, heads
SEQUENCE = 1024
HANDMADE = {"1f1b": "bubble_1F1B", "zb-h1": "bubble_ZB-H1", "zb-h2": "bubble_ZB-H2"}


def profile(row):
    """Stages, micro-batches, and the measured times [s] of a row of the zero-bubble paper's tables."""
    times = [float(row[name]) / 1e3 for name in ("TF_ms", "TB_ms", "TW_ms", "Tcomm_ms")]
    return int(row["stages_p"]), int(row["microbatches_m"]), *times


# Zero-bubble pipeline parallelism, tables 3 to 5


@pytest.mark.parametrize("name", HANDMADE)
def test_bubble_rates_of_handmade_schedules_are_those_published_to_four_digits(name):  # qi2023, table 5
    for row in rows("zerobubble_tables.csv"):
        p, m, forward, data, weight, transfer = profile(row)
        schedule = pipeline_schedule(name, stages=p, micro_batches=m)
        rate = simulate_schedule(schedule, forward, data, weight, transfer_latency=transfer).bubble_rate
        assert f"{rate:.4f}" == f"{float(row[HANDMADE[name]]):.4f}", row


@pytest.mark.parametrize("times", [1, 2])
def test_bubble_rates_of_searched_schedules_are_those_published_to_four_digits(times):  # qi2023, table 5, ZB-1p and ZB-2p
    for row in rows("zerobubble_tables.csv"):
        p, m, forward, data, weight, transfer = profile(row)
        hidden, heads = SHAPES[row["model"]]
        held, context = 34 * hidden + 5 * heads * SEQUENCE, 32 * hidden  # qi2023, table 1, over sequence x micro-batch
        known = {"activation_bytes": held, "context_bytes": context}
        schedule = zero_bubble_schedule(
            stages=p, micro_batches=m, forward=forward, backward_input=data, backward_weight=weight,
            transfer_latency=transfer, memory_limit=times * p * held, **known,
        )  # fmt: skip
        played = simulate_schedule(schedule, forward, data, weight, transfer_latency=transfer, **known)
        assert f"{played.bubble_rate:.4f}" == f"{float(row[f'bubble_ZB-{times}p']):.4f}", row
        assert played.peak_bytes.max() <= times * p * held * (1 + 1e-9)


def interleaved_total(schedule, forward, backward, transfer, everywhere):
    """Last end of an interleaved schedule; unless `everywhere`, the way from chunk to chunk waits for the first
    micro-batch of each group only, as in the script that made the paper's table."""
    p, m = schedule.ranks, schedule.micro_batches
    orders = [[event for event in schedule.order(r) if event[0] in ("forward", "backward")] for r in range(p)]
    ends, clock, cursor = {}, [0.0] * p, [0] * p
    while any(cursor[r] < len(orders[r]) for r in range(p)):
        for r in range(p):
            while cursor[r] < len(orders[r]):
                kind, stage, i = orders[r][cursor[r]]
                before = stage - 1 if kind == "forward" else stage + 1
                inner = 0 <= before < schedule.stages
                wraps = inner and abs(before % p - r) == p - 1
                if inner and (not wraps or everywhere or i % p == 0):
                    if (kind, before, i) not in ends:
                        break
                    clock[r] = max(clock[r], ends[kind, before, i] + transfer)
                clock[r] += forward if kind == "forward" else backward
                ends[kind, stage, i] = clock[r]
                cursor[r] += 1
    assert len(ends) == 2 * schedule.stages * m
    return max(clock)


def test_the_published_rate_of_interleaving_lacks_the_wait_of_most_micro_batches_between_chunks():  # qi2023, table 5, 1F1B-I
    """The paper's script holds only the first micro-batch of each group of p to the order of the chunks: so it gives the
    twelve rates to four digits. With every micro-batch held to it, p transfers more lie on the longest path."""
    for row in rows("zerobubble_tables.csv"):
        p, m, forward, data, weight, transfer = profile(row)
        v = CHUNKS[row["model"]]
        schedule = pipeline_schedule("interleaved", stages=p, micro_batches=m, chunks=v)
        work = m * (forward + data + weight)
        short, whole = (
            interleaved_total(schedule, forward / v, (data + weight) / v, transfer, everywhere) for everywhere in (False, True)
        )
        assert f"{1 - work / short:.4f}" == f"{float(row['bubble_1F1B-I']):.4f}", row
        played = simulate_schedule(schedule, forward / v, data / v, weight / v, transfer_latency=transfer)
        assert played.total == pytest.approx(whole, rel=1e-12)
        assert whole - short == pytest.approx(p * transfer, rel=1e-6)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(
    p=st.integers(1, 6), m=st.integers(1, 16), limit=st.floats(1.0, 12.0), share=st.floats(0.0, 1.0),
    times=st.tuples(*[st.floats(0.1, 3.0)] * 3), transfer=st.floats(0.0, 0.5),
)  # fmt: skip
def test_a_searched_schedule_keeps_its_memory_limit_and_idles_no_longer_than_is_possible(p, m, limit, share, times, transfer):
    schedule = zero_bubble_schedule(
        stages=p, micro_batches=m, forward=times[0], backward_input=times[1], backward_weight=times[2],
        transfer_latency=transfer, memory_limit=limit, context_bytes=share,
    )  # fmt: skip
    played = simulate_schedule(schedule, *times, transfer_latency=transfer, context_bytes=share)
    assert (played.peak_bytes <= limit * (1 + 1e-9)).all()
    assert played.period >= m * sum(times) * (1 - 1e-12)


def test_more_memory_leaves_a_searched_schedule_no_bubble():  # qi2023, section 3.2: 2 p is enough
    for p in (2, 4, 8):
        rates = []
        for limit in (p, 1.5 * p, 2 * p):
            schedule = zero_bubble_schedule(
                stages=p, micro_batches=3 * p, forward=1.0, backward_input=1.0, backward_weight=1.0, memory_limit=limit
            )
            rates.append(simulate_schedule(schedule, 1.0, 1.0, 1.0).bubble_rate)
        assert rates == sorted(rates, reverse=True)
        assert rates[0] == pytest.approx((p - 1) / (10 * p - 1))  # that of ZB-H1
        assert rates[-1] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("wrong", [{"memory_limit": 0.5}, {"forward": -1.0}, {"context_bytes": 2.0}, {"stages": 0}])
def test_a_search_that_cannot_be_is_refused(wrong):
    asked = {"stages": 4, "micro_batches": 8, "forward": 1.0, "backward_input": 1.0, "backward_weight": 1.0, **wrong}
    with pytest.raises(InvalidValue, match=f"{next(iter(wrong))}="):
        zero_bubble_schedule(**asked)


# GPipe, tables 2 and 3


def test_gpipe_speeds_a_transformer_up_as_published_where_the_batch_is_the_same():  # huang2019, tables 2 and 3
    """Throughput over that of two partitions. With M = 4 the table has other mini-batches, not published, than with 1 or
    32 ("adjusted to fit memory"), so that each M is compared with itself; AmoebaNet's stages are uneven, not published."""
    compared = 0
    for hardware, model, many in (("TPU", "Transformer-48", 32), ("P100 GPU no NVLink", "24-layer Transformer", 32)):
        table = {
            int(row["K_partitions"]): float(row["normalised_throughput"])
            for row in rows("gpipe_tables.csv")
            if (row["hardware"], row["model"], int(row["M_microbatches"])) == (hardware, model, many)
        }
        total = {}
        for k in table:
            schedule = pipeline_schedule("gpipe", stages=k, micro_batches=many)
            total[k] = simulate_schedule(schedule, 1.0 / k, 3.0 / k).total  # a backward pass with its forward pass again
            assert total[k] == pytest.approx(4.0 * (many + k - 1) / k)
        for k in (4, 8):
            assert total[2] / total[k] == pytest.approx(table[k] / table[2], rel=0.10)
            compared += 1
    assert compared == 4


# A plan played out

QUIET = {"sequence_parallel": False, "overlap_pipeline": True}


def question(**fields):
    model, cluster = load_model("gpt3-175b"), load_cluster("dgx-h100", gpus=fields.pop("gpus", 512))
    return model, cluster, Plan(**{"global_batch": 256, "seq_len": 2048, "tensor_parallel": 8, "data_parallel": 4, **fields})


@pytest.mark.parametrize("micro_batch", [1, 2])
def test_without_a_pipeline_a_played_step_takes_what_is_estimated(micro_batch):
    model, cluster = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8)
    plan = Plan(global_batch=32, seq_len=4096, tensor_parallel=2, data_parallel=4, micro_batch=micro_batch)
    assert timeline(model, cluster, plan).total == pytest.approx(estimate(model, cluster, plan).step_time, rel=1e-9)


@pytest.mark.parametrize(("schedule", "chunks"), [
    ("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("interleaved", 6), ("zb-h1", 1), ("zb-h2", 1), ("zb-v", 1),
])  # fmt: skip
@pytest.mark.parametrize("overlap", [True, False])
def test_a_played_step_takes_what_is_estimated_but_for_uneven_stages(schedule, chunks, overlap):
    asked = question(pipeline_parallel=16, virtual_stages=chunks, schedule=schedule, overlap_pipeline=overlap)
    played, closed = timeline(*asked), estimate(*asked)
    assert played.period == pytest.approx(closed.step_time, rel=0.03)
    assert played.work.sum() > 0.0
    assert played.schedule.stages == 16 * (2 if schedule == "zb-v" else chunks)


SPLITS = {"interleaved": {"virtual_stages": 2}, "breadth-first": {"virtual_stages": 2}, "chimera": {"global_batch": 64}}
ASYNCHRONOUS = ("pipedream", "pipedream-2bw")


def work_of(closed):
    """What the slowest rank works in a step, as `estimate` says [s]."""
    return closed.step.total - closed.step.bubble - closed.step.pipeline_exchange


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_slowest_rank_of_any_schedule_works_as_long_as_is_estimated(schedule):
    asked = question(pipeline_parallel=16, schedule=schedule, **SPLITS.get(schedule, {}))
    assert timeline(*asked).busy.max() == pytest.approx(work_of(estimate(*asked)), rel=1e-9)


@pytest.mark.parametrize("schedule", [name for name in SCHEDULES if name not in ASYNCHRONOUS])
def test_a_played_step_of_any_schedule_with_a_flush_takes_what_is_estimated(schedule):
    asked = question(pipeline_parallel=16, schedule=schedule, **SPLITS.get(schedule, {}))
    assert timeline(*asked).period == pytest.approx(estimate(*asked).step_time, rel=0.04)


@pytest.mark.parametrize("schedule", ASYNCHRONOUS)
def test_a_step_without_a_flush_is_estimated_full_and_played_from_empty(schedule):
    asked, longer = (question(pipeline_parallel=16, schedule=schedule, global_batch=batch) for batch in (256, 512))
    (played, more), (closed, further) = ((verb(*asked), verb(*longer)) for verb in (timeline, estimate))
    assert more.total - played.total == pytest.approx(further.step_time - closed.step_time, rel=0.02)
    filling = 15 * (work_of(closed) / 64 + 2 * played.schedule.stages * played.total / played.schedule.kind.size)
    assert closed.step_time < played.total < closed.step_time + filling


@pytest.mark.parametrize("batch", [64, 76, 128])
def test_the_syncs_of_two_generations_of_weights_share_what_a_step_has_besides(batch):
    asked = question(pipeline_parallel=16, schedule="pipedream-2bw", global_batch=batch)
    played = timeline(*asked)
    assert np.bincount(played.schedule.rank[played.schedule.kind == SYNC]).tolist() == [batch // 4 // 16] * 16
    assert played.busy.max() == pytest.approx(work_of(estimate(*asked)), rel=1e-9)


def test_a_step_of_too_many_events_is_refused_before_it_is_played():
    asked = question(gpus=8, global_batch=1_000_000, tensor_parallel=1, data_parallel=1, pipeline_parallel=8)
    with pytest.raises(InvalidValue, match="micro_batches=1000000: expected at most 41666 to play on 8 stages, 2000000 events"):
        timeline(*asked)


def test_where_both_directions_meet_the_slowest_stage_takes_only_half_of_the_micro_batches():
    """`estimate` has it take all, so that it is above what is played."""
    asked = question(pipeline_parallel=16, schedule="dualpipe")
    played, closed = timeline(*asked), estimate(*asked)
    load = played.work[played.schedule.kind <= BACKWARD].sum() / 16
    assert load < played.period < closed.step_time


@pytest.mark.parametrize(("schedule", "chunks"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 6), ("zb-h1", 1)])
def test_a_played_step_holds_the_activations_that_are_estimated(schedule, chunks):
    asked = question(pipeline_parallel=16, virtual_stages=chunks, schedule=schedule)
    assert timeline(*asked).peak_bytes.max() == pytest.approx(estimate(*asked).memory.activations, rel=1e-9)


def test_jitter_makes_a_step_longer():
    asked = question(pipeline_parallel=16)
    assert timeline(*asked, jitter=0.1, seed=1).total > timeline(*asked).total


@settings(deadline=None, max_examples=100, derandomize=True)
@given(layers=st.integers(1, 128), stages=st.integers(1, 64), balanced=st.booleans())
def test_all_layers_are_dealt_and_no_stage_gets_less_than_none(layers, stages, balanced):
    model = load_model("llama3-8b").numbers()._replace(layers=float(layers))
    plan = Plan(global_batch=8, seq_len=2048)
    framework = load_framework("megatron-core")
    settings = replaced(plan.settings(framework), {"framework_balanced_stages": float(balanced)})
    dealt = stage_layers(layers, stages, plan.numbers(framework, layers), model, settings)
    assert len(dealt) == stages
    assert dealt.sum() == pytest.approx(layers)
    assert (dealt >= 0).all()
    assert (dealt == dealt.round()).all()


@settings(deadline=None, max_examples=100, derandomize=True)
@given(layers=st.integers(1, 64), stages=st.integers(2, 32), vocabulary=st.integers(1, 40))
def test_layers_are_dealt_by_cost_as_a_loop_over_blocks_deals_them(layers, stages, vocabulary):
    """nanotron's ``build_model``: a block goes to the current rank, which ends once the cost so far is over its threshold."""
    hidden = 16
    model = Transformer(name="dealt", layers=layers, hidden=hidden, heads=1, vocabulary=vocabulary * 12 * hidden // 4,
                        feed_forward=64, gated=False)  # fmt: skip
    unit = 12 * hidden**2
    costs = [0, *[unit] * layers, 0, model.vocabulary * hidden, 0, 0]
    held, rank, cumulative = np.zeros(stages), 0, 0
    for block, cost in enumerate(costs):
        cumulative += cost
        held[rank] += 1 <= block <= layers
        if cumulative > sum(costs) * (rank + 1) / stages:
            rank += 1
    settings = Plan(global_batch=8, seq_len=2048).settings(load_framework("nanotron"))
    plan = Plan(global_batch=8, seq_len=2048).numbers(load_framework("nanotron"), layers)
    assert list(stage_layers(layers, stages, plan, model.numbers(), settings)) == list(held)


@settings(deadline=None, max_examples=200, derandomize=True)
@given(layers=st.integers(1, 64), stages=st.integers(2, 96), vocabulary=st.integers(1, 40))
def test_layers_dealt_by_cost_are_refused_where_a_stage_has_no_block_at_all(layers, stages, vocabulary):
    """Of nanotron's blocks the norm, the head, the cast and the loss follow the layers, each where the one before left off."""
    unit = 12 * 16**2
    model = Transformer(name="dealt", layers=layers, hidden=16, heads=1, vocabulary=vocabulary * 48, feed_forward=64, gated=False)
    costs = [0, *[unit] * layers, 0, model.vocabulary * 16, 0, 0]
    held, rank, cumulative = set(), 0, 0
    for cost in costs:
        held.add(rank)
        cumulative += cost
        rank += cumulative > sum(costs) * (rank + 1) / stages
    nanotron = load_framework("nanotron")
    plan = Plan(global_batch=stages, seq_len=2048, pipeline_parallel=stages)
    broken = violations(model.numbers(), plan.settings(nanotron), plan.numbers(nanotron, layers), float(stages))
    assert broken.pipeline_layers == (len(held) < stages)


def test_nanotron_trains_sixteen_layers_on_eight_stages_of_which_one_has_the_loss_alone():
    """As it did in 74 runs of the ultra-scale playbook, whose 131,072 tokens cost as much as four of these layers."""
    shape = {"layers": 16, "hidden": 2048, "heads": 32, "feed_forward": 8192, "vocabulary": 131072, "tied_embeddings": True}
    asked = Transformer(name="1B", **shape), load_cluster("dgx-h100", gpus=16)
    plan = Plan(global_batch=256, seq_len=4096, pipeline_parallel=8, sequence_parallel=False)
    held = [stage.layers for stage in estimate(*asked, plan, "nanotron").memory.stages]
    assert held == [3, 3, 2, 3, 2, 3, 0, 0]
    with pytest.raises(IllegalPlan, match="no stage may be empty"):
        estimate(*asked, dataclasses.replace(plan, pipeline_parallel=16), "nanotron")


def test_chunks_that_a_framework_has_listed_may_lack_more_than_a_layer():
    """DeepSeek-V3 on 2 ranks of 8 chunks of four: the last lacks what the recipe leaves to its head."""
    asked = load_model("deepseek-v3"), load_cluster("dgx-h100", gpus=256)
    plan = Plan(
        global_batch=2048, seq_len=4096, micro_batch=1, pipeline_parallel=2, virtual_stages=8, schedule="interleaved",
        expert_parallel=64,
    )  # fmt: skip
    assert [stage.layers for stage in estimate(*asked, plan, "nemo").memory.stages] == [31, 30]
    with pytest.raises(IllegalPlan, match="does not divide 61 layers"):
        estimate(*asked, plan, dataclasses.replace(load_framework("nemo"), listed_chunks=False))


def test_an_illegal_plan_is_refused_before_it_is_played():
    model, cluster = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8)
    with pytest.raises(IllegalPlan):
        timeline(model, cluster, Plan(global_batch=8, seq_len=2048, pipeline_parallel=3))


def test_a_frame_has_every_event_with_its_units():
    played = simulate_schedule(pipeline_schedule("zb-h1", stages=3, micro_batches=4), 1.0, 1.0, 1.0)
    frame = played.frame()
    assert list(frame.columns) == ["rank", "kind", "stage", "micro_batch", "start_s", "end_s"]
    assert len(frame) == len(played.schedule.kind)
    assert frame.loc[frame["kind"] == "forward", "end_s"].max() == played.end[played.schedule.kind == FORWARD].max()
    assert not (played.schedule.kind == BACKWARD).any()


PLAIN = pipeline_schedule("1f1b", stages=2, micro_batches=4)


@pytest.mark.parametrize("rank", [-1, 2, 1.0, True, "0", None])
def test_what_a_rank_that_is_none_holds_is_refused(rank):
    played = simulate_schedule(PLAIN, 1.0, 1.0)
    for held in (played.held, played.held_micro_batches):
        with pytest.raises(InvalidValue, match="rank=.*: expected a whole number from 0 to 1"):
            held(rank)


def test_a_schedule_that_takes_no_time_has_no_bubble():
    played = simulate_schedule(PLAIN, 0, 0)
    assert (played.total, played.period, played.bubble_rate) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("wrong", [
    {"links": [[0, 1], [0]]}, {"links": [[0, True], [1, 0]]}, {"links": [[0, 0.5], [1, 0]]}, {"links": [[0, -1], [1, 0]]},
    {"links": 3}, {"links": np.zeros((3, 3), int)}, {"forward": [1.0, [2.0]]}, {"forward": [True, 1.0]}, {"forward": True},
    {"forward": [1.0, None]}, {"forward": np.array([1.0, np.nan])}, {"forward": [1.0, 2.0, 3.0]}, {"forward": np.bool_(True)},
    {"sync": "1"}, {"jitter": True}, {"transfer_bandwidth": -1.0},
])  # fmt: skip
def test_times_and_links_that_can_not_be_are_refused_as_they_were_given(wrong):
    (field, value), = wrong.items()
    shown = value.tolist() if isinstance(value, np.ndarray) else value
    with pytest.raises(InvalidValue) as refused:
        simulate_schedule(PLAIN, **{"forward": 1.0, "backward_input": 1.0, **wrong})
    assert str(refused.value).startswith(f"{field}={shown!r}: expected ")
    assert "\n" not in str(refused.value)


def test_numbers_of_numpy_are_played_as_their_own():
    given = simulate_schedule(
        PLAIN, np.float32(1.0), np.int64(2), np.array([1, 2]), jitter=np.float64(0.1), seed=np.int64(3),
        transfer_latency=np.float32(0.5), transfer_bytes=np.int32(8), transfer_bandwidth=np.int64(4),
    )  # fmt: skip
    own = simulate_schedule(
        PLAIN, 1.0, 2.0, [1.0, 2.0], jitter=0.1, seed=3, transfer_latency=0.5, transfer_bytes=8.0, transfer_bandwidth=4.0
    )
    assert given.end.tolist() == own.end.tolist()
    assert [column.tolist() for column in given.held(np.int64(1))] == [column.tolist() for column in own.held(1)]


def test_the_layers_of_a_played_plan_are_enough_for_its_stages():
    model, cluster = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=32)
    plan = Plan(global_batch=64, seq_len=2048, pipeline_parallel=32, schedule="zb-v")
    with pytest.raises(IllegalSchedule, match="64 stages of schedule 'zb-v' for 32 layers"):
        timeline(model, cluster, plan)


def test_ranks_of_a_timeline_work_one_event_at_a_time():
    played = timeline(*question(pipeline_parallel=16, virtual_stages=2))
    for first, last in zip(played.schedule.offsets[:-1], played.schedule.offsets[1:], strict=True):
        local = played.schedule.kind[first:last] <= BACKWARD
        start, end = played.start[first:last][local], played.end[first:last][local]
        assert (start[1:] >= end[:-1] - 1e-12).all()
        assert np.isclose(end - start, played.work[first:last][local]).all()

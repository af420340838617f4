"""Schedules: what the papers say of their memory, versions and staleness; and which orders are refused."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from costmodel.description.schedule import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    CHUNKED,
    FORWARD,
    KINDS,
    NAMES,
    Schedule,
    custom_schedule,
    pipeline_schedule,
)
from costmodel.formulas.pipeline import schedules
from costmodel.text.errors import IllegalSchedule, InvalidValue

quick = settings(deadline=None, max_examples=60, derandomize=True)
BOTH_WAYS = ("dualpipe", "chimera")
CODES = {
    "gpipe": schedules.GPIPE, "1f1b": schedules.ONE_F_ONE_B, "interleaved": schedules.INTERLEAVED, "zb-h1": schedules.ZB_H1,
    "zb-h2": schedules.ZB_H2, "zb-v": schedules.ZB_V, "dualpipe": schedules.DUALPIPE, "chimera": schedules.CHIMERA,
    "breadth-first": schedules.BREADTH_FIRST, "pipedream": schedules.PIPEDREAM, "pipedream-2bw": schedules.PIPEDREAM_2BW,
}  # fmt: skip
WHERE_HELD = {  # micro-batches for which the closed form of what is held is stated
    "interleaved": lambda p, m: m * p, "dualpipe": lambda p, m: 2 * p + 2 * m, "chimera": lambda p, m: 2 * m,
}  # fmt: skip


@st.composite
def asked(draw):
    """Arguments of any schedule, any numbers of stages, micro-batches and chunks."""
    name = draw(st.sampled_from(NAMES))
    stages = draw(st.integers(1, 8))
    return {
        "name": name, "stages": 2 * -(-stages // 2) if name in BOTH_WAYS else stages,
        "micro_batches": draw(st.integers(1, 24)), "chunks": draw(st.integers(1, 4)) if name in CHUNKED else 1,
    }  # fmt: skip


@quick
@given(asked(), st.booleans())
def test_every_schedule_is_whole_and_ends_for_any_stages_micro_batches_and_chunks(arguments, syncs):
    schedule = pipeline_schedule(**arguments, syncs=syncs).check()
    passes = (schedule.kind == FORWARD).sum()
    assert passes == schedule.stages * schedule.micro_batches
    backward = np.isin(schedule.kind, (BACKWARD, BACKWARD_WEIGHT)).sum()
    assert backward == passes


@quick
@given(asked())
def test_the_closed_form_of_what_stages_hold_is_what_the_order_holds(arguments):
    name, p, v = arguments["name"], arguments["stages"], arguments["chunks"]
    arguments["micro_batches"] = m = WHERE_HELD.get(name, lambda p, m: m)(p, arguments["micro_batches"])
    held = pipeline_schedule(**arguments).in_flight
    for r in range(p):
        assert schedules.in_flight(CODES[name], float(p), float(v), float(m), float(r)) == pytest.approx(held[r], rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_the_closed_form_of_weight_copies_is_what_the_placement_holds(name):
    schedule = pipeline_schedule(name, stages=4, micro_batches=8)
    assert schedules.weight_copies(CODES[name]) == schedule.weight_copies.max()
    held = np.array([schedules.in_flight(CODES[name], 4.0, 1.0, 8.0, float(rank)) for rank in range(4)])
    assert [schedules.weight_versions(CODES[name], one) for one in held] == pytest.approx(schedule.weight_versions)


@quick
@given(st.integers(1, 8), st.integers(1, 8))
def test_pipedream_stashes_a_version_for_each_minibatch_in_flight(n, extra):  # narayanan2019, sections 3.3 and 3.4
    stashed = pipeline_schedule("pipedream", stages=n, micro_batches=2 * n + extra)
    assert stashed.weight_versions.tolist() == [n - k for k in range(n)]
    assert stashed.staleness.tolist() == [n - 1 - k for k in range(n)]
    synced = pipeline_schedule("pipedream", stages=n, micro_batches=2 * n + extra, vertical_sync=True)
    assert synced.staleness.tolist() == [n - 1] * n


@quick
@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.integers(1, 6))
def test_the_input_stage_of_pipedream_admits_workers_over_its_replicas(replicas, rounds):  # narayanan2019: NOAM
    many = rounds * sum(replicas)
    schedule = pipeline_schedule("pipedream", stages=len(replicas), micro_batches=many, replicas=replicas, syncs=True).check()
    noam = math.ceil(sum(replicas) / replicas[0])
    share = math.ceil(many / replicas[0])
    assert schedule.in_flight[0] == min(noam, share)
    assert schedule.ranks == sum(replicas)
    assert (schedule.route == np.arange(many) % math.lcm(*replicas)).all()


def test_two_generations_of_weights_are_enough_for_2bw():  # narayanan2020: W(t + 1) = W(t) - nu grad f(W(t - 1))
    schedule = pipeline_schedule("pipedream-2bw", stages=4, micro_batches=16, syncs=True).check()
    assert schedule.weight_versions.tolist() == [2] * 4
    assert schedule.staleness.tolist() == [1] * 4
    assert (schedule.kind == KINDS.index("sync")).sum() == 4 * 16 // 4


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-h1", "chimera"])
def test_a_flush_leaves_no_staleness(name):
    assert not pipeline_schedule(name, stages=4, micro_batches=8).staleness.any()


@pytest.mark.parametrize(("p", "pairs"), [(4, 1), (8, 1), (8, 2), (8, 4), (12, 3), (16, 2)])
@pytest.mark.parametrize("units", [1, 2, 3])
def test_chimera_holds_what_its_table_says(p, pairs, units):  # li2021, table 3
    schedule = pipeline_schedule("chimera", stages=p, micro_batches=units * p, pairs=pairs)
    assert schedule.weight_copies.tolist() == [2 * pairs] * p
    assert schedule.in_flight.min() == p - p // (2 * pairs) + 1
    assert schedule.in_flight.max() == p


def test_interleaved_order_is_megatrons():  # narayanan2021, figure 4: four devices, eight micro-batches, two chunks
    order = pipeline_schedule("interleaved", stages=4, micro_batches=8, chunks=2).order(3)
    passes = [(kind, stage // 4, number) for kind, stage, number in order if kind in ("forward", "backward")]
    assert passes[:9] == [
        ("forward", 0, 0), ("forward", 0, 1), ("forward", 0, 2), ("forward", 0, 3), ("forward", 1, 0), ("backward", 1, 0),
        ("forward", 1, 1), ("backward", 1, 1), ("forward", 1, 2),
    ]  # fmt: skip


# Refused


def refused(rank, event, why, *arguments, **named):
    with pytest.raises(IllegalSchedule, match=why) as caught:
        custom_schedule(*arguments, **named)
    assert caught.value.rank == rank
    assert caught.value.event == event
    assert str(caught.value).startswith(f"rank {rank}, {event}: ")


F, B, I, W = FORWARD, BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT  # noqa: E741


def test_a_deadlock_is_refused_with_the_rank_and_the_event():
    """Rank 0 wants the gradient of micro-batch 1 before it sends the activations that rank 1 wants first."""
    first = [(F, 0, 1), (B, 0, 1), (F, 0, 0), (B, 0, 0)]
    second = [(F, 1, 0), (F, 1, 1), (B, 1, 1), (B, 1, 0)]
    event = "receive-backward of micro-batch 1 on stage 0"
    refused(0, event, "deadlocks here.*rank 1 at receive-forward of micro-batch 0 on stage 1", [first, second])


def test_a_backward_pass_before_its_forward_pass_is_refused():
    refused(0, "backward of micro-batch 1 on stage 0", "before its forward", [[(F, 0, 0), (B, 0, 1), (F, 0, 1), (B, 0, 0)]])


def test_a_weight_pass_before_its_input_pass_is_refused():
    refused(0, "backward-weight of micro-batch 0 on stage 0", "by inputs", [[(F, 0, 0), (W, 0, 0), (I, 0, 0)]])


@pytest.mark.parametrize(("order", "event"), [
    ([(F, 0, 0)], "backward of micro-batch 0 on stage 0"),
    ([(F, 0, 0), (B, 0, 0), (B, 0, 0)], "backward of micro-batch 0 on stage 0"),
    ([(F, 0, 0), (F, 0, 0), (B, 0, 0)], "forward of micro-batch 0 on stage 0"),
    ([(F, 0, 0), (I, 0, 0)], "backward-weight of micro-batch 0 on stage 0"),
])  # fmt: skip
def test_a_missing_or_doubled_pass_is_refused(order, event):
    refused(0, event, "it is there", [order])


def test_a_pass_on_a_rank_off_its_route_is_refused():
    orders = [[(F, 0, 0), (B, 0, 0), (F, 1, 0)], [(B, 1, 0)]]
    refused(0, "forward of micro-batch 0 on stage 1", "route puts this stage on rank 1", orders)


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "zb-v"])
def test_more_stages_than_layers_are_refused(name):
    chunks = 3 if name == "interleaved" else 1
    stages = {"1f1b": 8, "interleaved": 24, "zb-v": 16}[name]
    with pytest.raises(IllegalSchedule, match="would have none") as caught:
        pipeline_schedule(name, stages=8, micro_batches=8, chunks=chunks, layers=stages - 1)
    assert caught.value.event == f"forward of micro-batch 0 on stage {stages - 1}"
    assert caught.value.rank == (0 if name == "zb-v" else 7)
    assert pipeline_schedule(name, stages=8, micro_batches=8, chunks=chunks, layers=stages).stages == stages


def test_a_transfer_without_its_other_end_is_refused():
    whole = pipeline_schedule("1f1b", stages=2, micro_batches=2)
    for gone in np.flatnonzero(whole.match >= 0):
        keep = np.arange(len(whole.kind)) != gone
        offsets = whole.offsets - (np.arange(3) > whole.rank[gone])
        with pytest.raises(IllegalSchedule, match="0 times, not 1") as caught:
            Schedule(
                name="torn", placement=whole.placement, route=whole.route, offsets=offsets, kind=whole.kind[keep],
                stage=whole.stage[keep], micro_batch=whole.micro_batch[keep],
            )  # fmt: skip
        assert (caught.value.rank, caught.value.event) == (whole.rank[gone], whole.event(gone))


@pytest.mark.parametrize("arguments", [
    {"name": "2f2b"}, {"stages": 0}, {"micro_batches": 0}, {"chunks": 2}, {"chunks": 0, "name": "interleaved"}, {"layers": 0},
    {"replicas": [1, 1, 1, 1]}, {"pairs": 2}, {"vertical_sync": True}, {"name": "dualpipe", "stages": 3}, {"syncs": 1},
    {"name": "chimera", "stages": 6, "pairs": 2}, {"name": "pipedream", "replicas": [1, 2]},
    {"name": "pipedream", "replicas": [1, 0, 1, 1]}, {"name": "zb-v", "chunks": 2},
])  # fmt: skip
def test_what_is_no_schedule_is_refused_in_one_line(arguments):
    with pytest.raises(InvalidValue, match="expected") as caught:
        pipeline_schedule(**{"name": "1f1b", "stages": 4, "micro_batches": 8, **arguments})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("orders", [[], [[]], [[(7, 0, 0)]]])
def test_what_is_no_order_is_refused(orders):
    with pytest.raises(InvalidValue, match="orders="):
        custom_schedule(orders)

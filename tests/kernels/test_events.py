"""The event simulator against a twin that solves for all times at once, and closed forms against the simulator."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given, settings

from costmodel.description.schedule import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    RECEIVE_BACKWARD,
    RECEIVE_FORWARD,
    SEND_BACKWARD,
    SEND_FORWARD,
    SYNC,
    custom_schedule,
    pipeline_schedule,
)
from costmodel.formulas.pipeline import schedules
from costmodel.simulation.playback import SENDS, simulate_schedule
from costmodel.text.errors import IllegalSchedule, InvalidValue

quick = settings(deadline=None, max_examples=200, derandomize=True)
SENT, RECEIVED = (SEND_FORWARD, SEND_BACKWARD), (RECEIVE_FORWARD, RECEIVE_BACKWARD)


def twin(schedule, times, latency, occupancy, link, sends, sync):
    """Start and end of every event, by guessing all arrivals and correcting them until nothing changes.

    `times` are those of the stages by kind, `occupancy` and `link` of each send.
    """
    events = len(schedule.kind)
    done = np.zeros(events)  # arrival of a send, or end of the wait for a sync
    for _ in range(4 * events + 4):
        start, end, asked = np.zeros(events), np.zeros(events), np.zeros(events)
        for r in range(schedule.ranks):
            clock = 0.0
            e, last = schedule.offsets[r], schedule.offsets[r + 1]
            while e < last:
                kind = schedule.kind[e]
                if kind <= BACKWARD or kind == SYNC:
                    start[e] = clock
                    clock = done[e] + sync if kind == SYNC else clock + times[kind][schedule.stage[e]]
                    end[e] = clock
                    e += 1
                elif sends == "rendezvous":
                    group = [e]
                    while group[-1] + 1 < last and BACKWARD < schedule.kind[group[-1] + 1] < SYNC:
                        group.append(group[-1] + 1)
                    asked[group] = start[group] = clock
                    ends = [done[g if schedule.kind[g] in SENT else schedule.match[g]] for g in group]
                    end[group] = ends
                    clock = max(clock, *ends)
                    e = group[-1] + 1
                elif kind in SENT:
                    asked[e] = clock
                    end[e] = done[e]
                    clock = done[e] if sends == "blocking" else clock
                    e += 1
                else:
                    start[e] = clock
                    clock = max(clock, done[schedule.match[e]])
                    end[e] = clock
                    e += 1
        new = done.copy()
        moved = [e for e in range(events) if schedule.kind[e] in SENT]
        if sends == "rendezvous":
            for e in moved:
                asked[e] = asked[schedule.match[e]] = max(asked[e], asked[schedule.match[e]])
        free = {}
        for e in sorted(moved, key=lambda e: (asked[e], e)):
            start[e] = max(asked[e], free.get(link[e], 0.0))
            free[link[e]] = start[e] + occupancy[e]
            new[e] = free[link[e]] + latency
        for e in range(events):
            if schedule.kind[e] == SYNC:
                group = (schedule.kind == SYNC) & (schedule.match == schedule.match[e])
                new[e] = start[group].max()
        if (new == done).all():
            return start, end
        done = new
    raise AssertionError("no end: the twin found no times that agree")


@st.composite
def orders(draw):
    """A small schedule in a random order that can run: passes are run in some order in which what they need is there."""
    ranks, chunks, many = draw(st.integers(1, 4)), draw(st.integers(1, 2)), draw(st.integers(1, 4))
    stages = ranks * chunks
    split = draw(st.booleans())
    paths = [[draw(st.integers(0, ranks - 1)) for _ in range(stages)] for _ in range(draw(st.integers(1, 2)))]
    route = [draw(st.integers(0, len(paths) - 1)) for _ in range(many)]
    listed = [[] for _ in range(ranks)]
    state = {(FORWARD, 0, i) for i in range(many)}
    while state:
        kind, stage, i = item = draw(st.sampled_from(sorted(state)))
        state.remove(item)
        listed[paths[route[i]][stage]].append(item)
        if kind == FORWARD:
            back = BACKWARD_INPUT if split else BACKWARD
            state.add((FORWARD, stage + 1, i) if stage + 1 < stages else (back, stage, i))
        elif kind in (BACKWARD, BACKWARD_INPUT):
            if kind == BACKWARD_INPUT:
                state.add((BACKWARD_WEIGHT, stage, i))
            if stage:
                state.add((kind, stage - 1, i))
    return custom_schedule(listed, placement=paths, route=route)


def compare(schedule, draw, shared):
    second = st.floats(0.0, 3.0)
    stages, ranks = schedule.stages, schedule.ranks
    forward, data, weight = ([draw(second) for _ in range(stages)] for _ in range(3))
    nbytes = [draw(second) for _ in range(max(stages - 1, 1))]
    bandwidth, latency, sync = 2.0, draw(second), draw(second)
    links = np.array(draw(st.lists(st.integers(0, 2), min_size=ranks**2, max_size=ranks**2))).reshape(ranks, ranks)
    sends = draw(st.sampled_from(SENDS))
    try:
        played = simulate_schedule(
            schedule, forward, data, weight, transfer_latency=latency, transfer_bytes=nbytes, transfer_bandwidth=bandwidth,
            links=links if shared else None, sends=sends, sync=sync,
        )  # fmt: skip
    except IllegalSchedule:
        assert sends == "rendezvous"  # no rank waits for ever without
        assume(False)
    times = {FORWARD: forward, BACKWARD_INPUT: data, BACKWARD_WEIGHT: weight}
    times[BACKWARD] = [a + b for a, b in zip(data, weight, strict=True)]
    other = schedule.rank[schedule.match] if len(schedule.match) else schedule.match
    link = links[schedule.rank, other] if shared else schedule.rank * ranks + other
    boundary = np.clip(schedule.stage - (schedule.kind == SEND_BACKWARD), 0, len(nbytes) - 1)
    start, end = twin(schedule, times, latency, np.asarray(nbytes)[boundary] / bandwidth, link, sends, sync)
    assert played.start == pytest.approx(start, abs=1e-9)
    assert played.end == pytest.approx(end, abs=1e-9)


@settings(quick, max_examples=60)
@given(st.data())
def test_the_simulator_and_its_twin_agree_on_random_orders(data):
    compare(data.draw(orders()), data.draw, shared=False)


@settings(quick, max_examples=60)
@given(st.data())
def test_the_simulator_and_its_twin_agree_where_links_are_shared(data):
    compare(data.draw(orders()), data.draw, shared=True)


@settings(quick, max_examples=40)
@given(st.data(), st.sampled_from(["1f1b", "chimera", "dualpipe", "zb-v", "pipedream", "pipedream-2bw"]), st.booleans())
def test_the_simulator_and_its_twin_agree_on_published_orders_with_syncs(data, name, shared):
    replicas = {"replicas": [2, 1]} if name == "pipedream" else {}
    many = data.draw(st.integers(1, 5))
    compare(pipeline_schedule(name, stages=2, micro_batches=many, syncs=True, **replicas), data.draw, shared)


# Closed forms

LEAST = {  # micro-batches from which on the closed form is stated, or which
    "gpipe": lambda p, m: m, "1f1b": lambda p, m: m, "interleaved": lambda p, m: m * p, "breadth-first": lambda p, m: p + m - 1,
    "zb-h1": lambda p, m: p + m - 1, "zb-h2": lambda p, m: 2 * p + m - 2, "zb-v": lambda p, m: 2 * p + m - 2,
    "dualpipe": lambda p, m: 2 * p + m - 1, "chimera": lambda p, m: p,
}  # fmt: skip
CODES = {
    "gpipe": schedules.GPIPE, "1f1b": schedules.ONE_F_ONE_B, "interleaved": schedules.INTERLEAVED, "zb-h1": schedules.ZB_H1,
    "zb-h2": schedules.ZB_H2, "zb-v": schedules.ZB_V, "dualpipe": schedules.DUALPIPE, "chimera": schedules.CHIMERA,
    "breadth-first": schedules.BREADTH_FIRST,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", CODES)
@settings(quick, max_examples=120)
@given(
    stages=st.integers(1, 9), more=st.integers(1, 9), chunks=st.integers(1, 4),
    times=st.tuples(*[st.floats(1e-3, 10.0)] * 3),
)  # fmt: skip
def test_a_closed_form_of_the_bubble_is_what_the_simulator_finds(name, stages, more, chunks, times):
    p = stages + stages % 2 if name in ("dualpipe", "chimera") else stages
    m = LEAST[name](p, more)
    m += m % 2 if name == "dualpipe" else 0
    v = chunks if name in ("interleaved", "breadth-first") else 1
    schedule = pipeline_schedule(name, stages=p, micro_batches=m, chunks=v)
    played = simulate_schedule(schedule, *(time / schedule.chunks for time in times))
    closed = schedules.bubble(CODES[name], float(p), float(v), *times)
    assert played.bubble == pytest.approx(np.full(p, closed), abs=1e-12 * played.period)


@settings(quick, max_examples=40)
@given(half=st.integers(1, 5), units=st.integers(1, 4), time=st.floats(1e-3, 10.0), share=st.floats(0.0, 1.0))
def test_chimera_idles_as_its_table_says_where_both_passes_take_as_long(half, units, time, share):  # li2021, table 2
    p, m = 2 * half, 2 * half * units
    played = simulate_schedule(pipeline_schedule("chimera", stages=p, micro_batches=m), time, share * time, (1 - share) * time)
    assert played.bubble_rate == pytest.approx((p - 2) / (2 * m + p - 2), abs=1e-12)
    closed = schedules.bubble(schedules.CHIMERA, float(p), 1.0, time, share * time, (1 - share) * time)
    assert played.bubble.mean() == pytest.approx(closed, abs=1e-12 * played.period)


@pytest.mark.parametrize(("p", "pairs"), [(8, 2), (8, 4), (12, 3), (16, 4)])
@pytest.mark.parametrize("units", [1, 3])
def test_more_pipelines_each_way_leave_chimera_less_bubble(p, pairs, units):  # li2021, section 3.6
    m = units * p
    played = simulate_schedule(pipeline_schedule("chimera", stages=p, micro_batches=m, pairs=pairs), 1.0, 0.5, 0.5)
    assert played.bubble_rate == pytest.approx((p - 2 * pairs) / (2 * pairs * m + p - 2 * pairs), abs=1e-12)


@settings(quick, max_examples=60)
@given(half=st.integers(1, 5), more=st.integers(0, 4), time=st.floats(1e-3, 10.0), share=st.floats(0.0, 1.0))
def test_dualpipe_idles_as_deepseek_counts_where_forward_and_backward_take_as_long(half, more, time, share):
    """deepseek2024v3, table 2: (p/2 - 1)(F&B + B - 3 W), its B the whole backward pass."""
    p, weight = 2 * half, share * time
    played = simulate_schedule(pipeline_schedule("dualpipe", stages=p, micro_batches=2 * p + 2 * more), time, time, weight)
    backward = time + weight
    assert played.bubble.mean() == pytest.approx((half - 1) * (time + 2 * backward - 3 * weight), abs=1e-12 * played.period)


@pytest.mark.parametrize("name", ["pipedream", "pipedream-2bw"])
@pytest.mark.parametrize("n", [2, 5])
def test_without_a_flush_the_bubble_is_paid_once(name, n):  # narayanan2019, figure 4
    periods = [
        simulate_schedule(pipeline_schedule(name, stages=n, micro_batches=m), 1.0, 1.0, 1.0).total for m in (4 * n, 8 * n)
    ]
    assert periods[1] - periods[0] == pytest.approx(3.0 * 4 * n, rel=1e-12)
    code = {"pipedream": schedules.PIPEDREAM, "pipedream-2bw": schedules.PIPEDREAM_2BW}[name]
    assert schedules.bubble(code, float(n), 1.0, 1.0, 1.0, 1.0) == 0.0


def test_replicas_share_the_minibatches_of_their_stage():  # narayanan2019, figure 8: 2-1 of a stage twice as slow
    schedule = pipeline_schedule("pipedream", stages=2, micro_batches=40, replicas=[2, 1])
    played = simulate_schedule(schedule, [2.0, 1.0], [4.0, 2.0])
    assert played.busy == pytest.approx([120.0] * 3)
    assert played.total == pytest.approx(120.0 + 2.0 + 4.0)  # filling and draining


# What the arguments do


def test_a_transfer_takes_its_latency_and_its_bytes():
    schedule = pipeline_schedule("gpipe", stages=2, micro_batches=1)
    played = simulate_schedule(schedule, 1.0, 2.0, 0.0, transfer_latency=0.25, transfer_bytes=4.0, transfer_bandwidth=8.0)
    assert played.total == pytest.approx(1 + 0.75 + 3 + 0.75 + 2)


def test_a_link_carries_one_transfer_at_a_time():
    """Two pipelines of two ranks, each sending over the same link."""
    orders = [[(FORWARD, 0, i), (BACKWARD, 0, i)] for i in range(2)] + [[(FORWARD, 1, i), (BACKWARD, 1, i)] for i in range(2)]
    schedule = custom_schedule(orders, placement=[[0, 2], [1, 3]], route=[0, 1])
    alone = simulate_schedule(schedule, 1.0, 1.0, transfer_bytes=1.0, transfer_bandwidth=1.0)
    shared = simulate_schedule(
        schedule, 1.0, 1.0, transfer_bytes=1.0, transfer_bandwidth=1.0, links=np.zeros((4, 4), dtype=int)
    )
    assert alone.total == pytest.approx(1 + 1 + 2 + 1 + 1)
    assert shared.total == pytest.approx(1 + 2 + 2 + 1 + 1)


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_waiting_for_sends_costs_time(name):
    schedule = pipeline_schedule(name, stages=4, micro_batches=12)
    free, waiting, paired = (
        simulate_schedule(schedule, 1.0, 1.0, 1.0, transfer_latency=0.2, sends=sends).total for sends in SENDS
    )
    assert free < waiting <= paired


def test_sends_that_want_their_other_end_at_once_can_deadlock():
    schedule = pipeline_schedule("zb-h2", stages=4, micro_batches=12)
    with pytest.raises(IllegalSchedule, match="deadlocks here") as caught:
        simulate_schedule(schedule, 1.0, 1.0, 1.0, sends="rendezvous")
    assert caught.value.rank == 0
    assert caught.value.event.startswith("send-forward of micro-batch")


def test_jitter_is_seeded_keeps_the_mean_and_only_ever_delays_what_is_uniform():
    schedule = pipeline_schedule("1f1b", stages=8, micro_batches=400)
    calm, one, again, other = (
        simulate_schedule(schedule, 1.0, 1.0, 1.0, jitter=jitter, seed=seed)
        for jitter, seed in ((0.0, 0), (0.2, 1), (0.2, 1), (0.2, 2))
    )
    assert (one.end == again.end).all()
    assert one.total != other.total
    assert one.busy.mean() == pytest.approx(calm.busy.mean(), rel=0.02)
    assert min(one.total, other.total) > calm.total


def test_bytes_held_are_micro_batches_in_flight_times_their_size():
    schedule = pipeline_schedule("interleaved", stages=4, micro_batches=8, chunks=2)
    played = simulate_schedule(schedule, 1.0, 1.0, activation_bytes=10.0)
    assert played.peak_bytes == pytest.approx(20.0 * schedule.in_flight)
    halves = pipeline_schedule("zb-h1", stages=4, micro_batches=8)
    lean = simulate_schedule(halves, 1.0, 1.0, 1.0, activation_bytes=10.0, context_bytes=1.0)
    assert lean.peak_bytes == pytest.approx([40.0, 31.0, 22.0, 13.0])  # qi2023: contexts in place of activations
    when, held = lean.held(0)
    assert (np.diff(when) >= 0.0).all()
    assert held.max() == lean.peak_bytes[0]
    assert held[-1] == pytest.approx(0.0)


@pytest.mark.parametrize("argument", [
    {"forward": -1.0}, {"forward": [1.0, 2.0]}, {"forward": "x"}, {"forward": float("nan")}, {"transfer_latency": -1.0},
    {"transfer_bytes": [1.0]}, {"transfer_bandwidth": 0.0}, {"sends": "pigeon"}, {"jitter": -1.0}, {"seed": 1.5},
    {"links": [[0]]}, {"forward": np.ones(9)}, {"links": np.full((4, 4), -1)},
    {"sync": float("inf")}, {"activation_bytes": 1.0, "context_bytes": 2.0},
    {"schedule": "1f1b"}, {"forward": True},
])  # fmt: skip
def test_what_cannot_be_played_is_refused_in_one_line(argument):
    schedule = pipeline_schedule("1f1b", stages=4, micro_batches=8)
    with pytest.raises(InvalidValue, match="expected") as caught:
        simulate_schedule(**{"schedule": schedule, "forward": 1.0, "backward_input": 1.0, **argument})
    assert "\n" not in str(caught.value)

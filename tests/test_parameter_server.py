"""The verb of parameter servers: closed forms against the simulation, monotone in the delay, refusals by name."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.studies.parameter_servers.servers import Filters, Stragglers, parameter_server
from costmodel.studies.parameter_servers.waiting import shared_service, slowest_of
from costmodel.text.errors import InvalidValue, NotModelled

EXPONENTIAL = Stragglers(distribution="exponential", spread=1.0)
RANDOM = [
    EXPONENTIAL, Stragglers(distribution="exponential", spread=0.3), Stragglers(distribution="uniform", spread=0.4),
    Stragglers(distribution="normal", spread=0.15), Stragglers(distribution="lognormal", spread=0.8),
]  # fmt: skip


def ask(nbytes=1e9, **fields):
    return parameter_server(nbytes, **{"compute_time": 0.5, "workers": 8, "servers": 8, "bandwidth": 10e9, **fields})


def followed(durations, exchange_times, delay=-1, fetch_interval=1, push_interval=1):
    """The kernel's totals, staleness and lag."""
    from costmodel.studies.parameter_servers import server_kernel as kernel

    totals, staleness, lag = np.zeros(5), np.zeros(4000, np.int64), np.zeros(400, np.int64)
    times = np.concatenate([[1.0], exchange_times])
    kernel.run(durations, times, delay, fetch_interval, push_interval, len(durations) // 10, totals, staleness, lag)
    return totals, staleness, lag


def naive(durations, delay):
    """Time at which each step of each worker ends if exchanges take no time, by the definition of the delay."""
    ends = np.zeros_like(durations)
    for step, row in enumerate(durations):
        open_at = ends[step - delay - 1].max() if step > delay else 0.0
        ends[step] = np.maximum(ends[step - 1] if step else 0.0, open_at) + row
    return ends


# Closed forms against the simulation


@pytest.mark.parametrize("stragglers", RANDOM, ids=lambda s: f"{s.distribution} {s.spread}")
@pytest.mark.parametrize("workers", [2, 16])
def test_bsp_waits_for_the_slowest_as_the_simulation_does(stragglers, workers):
    result = ask(workers=workers, servers=2 * workers, stragglers=stragglers)
    assert result.answered_by == "closed form"
    totals, _, _ = followed(stragglers.draw(0.5, 20_000, workers, 3), np.full(workers, 0.1), delay=0)
    assert result.step_time == pytest.approx(totals[3] * workers / totals[4], rel=0.01)
    assert result.idle_share == pytest.approx(totals[2] / totals[3] / workers, abs=0.01)


@pytest.mark.parametrize("stragglers", RANDOM, ids=lambda s: f"{s.distribution} {s.spread}")
@pytest.mark.parametrize("servers", [1, 4, 16])
def test_asynchronous_workers_queue_for_the_servers_as_the_simulation_says(stragglers, servers):
    result = ask(servers=servers, consistency="asynchronous", stragglers=stragglers, partition_bytes=1.0)
    assert result.answered_by == "closed form"
    alone = [max(0.1, 0.1 * active / servers) for active in range(1, 9)]
    totals, _, _ = followed(stragglers.draw(0.5, 20_000, 8, 4), np.array(alone))
    assert result.throughput == pytest.approx(totals[4] / totals[3], rel=0.01)
    assert result.exchange_share == pytest.approx(totals[1] / totals[3] / 8, abs=0.01)


def test_workers_without_stragglers_go_in_lockstep_whatever_the_consistency():
    for delay in (-1, 0, 3):
        totals, _, _ = followed(np.full((200, 4), 0.5), 0.1 * np.arange(1.0, 5.0), delay=delay)
        assert totals[3] * 4 / totals[4] == pytest.approx(0.9)
    found = {
        ask(workers=4, servers=1, partition_bytes=1.0, consistency=consistency, delay=delay).step_time
        for consistency, delay in (("bsp", None), ("bounded_delay", 0), ("bounded_delay", 3), ("asynchronous", None))
    }
    assert list(found) == [pytest.approx(0.9)]


@pytest.mark.parametrize("delay", [0, 1, 5])
def test_the_simulation_of_a_bounded_delay_is_its_definition(delay):
    durations = np.random.default_rng(2).lognormal(0.0, 1.0, (400, 6))
    ends = naive(durations, delay)
    totals, _, _ = followed(durations, np.full(6, 1e-12), delay=delay)
    begun, done = ends[39].min(), ends[-1].min()
    assert totals[3] == pytest.approx(done - begun, rel=1e-6)
    assert totals[4] == pytest.approx((ends <= done).sum() - (ends <= begun).sum(), abs=1)


def test_a_bounded_delay_of_nothing_is_bsp():
    for stragglers in (Stragglers(), EXPONENTIAL):
        bounded = ask(consistency="bounded_delay", delay=0, stragglers=stragglers)
        assert bounded.step_time == ask(stragglers=stragglers).step_time


def test_the_slowest_of_two_normal_workers_is_known():
    assert slowest_of("normal", 2.0, 0.1, 2) == pytest.approx(2.0 * (1.0 + 0.1 / math.sqrt(math.pi)), rel=1e-9)


@pytest.mark.parametrize("distribution", ["normal", "lognormal"])
@pytest.mark.parametrize("workers", [1, 10, 1000])
def test_the_slowest_of_drawn_workers_takes_what_the_quadrature_says(distribution, workers):
    drawn = Stragglers(distribution=distribution, spread=0.2).draw(1.0, 4000, workers, 9).max(axis=1)
    error = 5 * drawn.std() / math.sqrt(len(drawn))
    assert slowest_of(distribution, 1.0, 0.2, workers) == pytest.approx(drawn.mean(), abs=error)


@given(st.floats(0.01, 10.0), st.lists(st.floats(0.01, 10.0), min_size=1, max_size=12))
def test_a_closed_network_obeys_littles_law(think, service):
    rate, active = shared_service(think, np.maximum.accumulate(service))
    assert rate * think + active == pytest.approx(len(service), rel=1e-9)


# What a delay does


@pytest.mark.parametrize("stragglers", RANDOM, ids=lambda s: f"{s.distribution} {s.spread}")
def test_idle_time_falls_and_staleness_rises_with_the_delay(stragglers):
    results = [ask(consistency="bounded_delay", delay=delay, stragglers=stragglers) for delay in (0, 1, 2, 4, 8, 16)]
    for tighter, looser in itertools.pairwise(results):
        assert looser.idle_share <= tighter.idle_share + 1e-3
        assert looser.step_time <= tighter.step_time * 1.001
    stale = [result.staleness_mean for result in results[1:]]
    assert all(looser >= 0.98 * tighter for tighter, looser in itertools.pairwise(stale))
    assert stale[-1] <= 7.0 * 1.01  # that of workers that never wait


def test_a_delay_of_16_takes_most_waiting_away():  # Li et al. fig. 13: 50 % at tau = 0, 1.7 % at 16; qualitative
    none, sixteen = (ask(nbytes=0.0, workers=4, consistency="bounded_delay", delay=delay, stragglers=EXPONENTIAL)
                     for delay in (0, 16))  # fmt: skip
    assert none.idle_share == pytest.approx(0.5, abs=0.05)
    assert sixteen.idle_share < 0.15 * none.idle_share


def test_no_worker_is_more_steps_ahead_than_the_delay():
    result = ask(consistency="bounded_delay", delay=3, stragglers=EXPONENTIAL)
    assert len(result.lag) == 4
    assert math.fsum(result.lag) == pytest.approx(1.0)
    assert math.fsum(result.staleness) == pytest.approx(1.0)


@pytest.mark.parametrize(("fetch_interval", "push_interval"), [(1, 1), (4, 1), (1, 4), (6, 2), (2, 6)])
def test_downpour_is_as_stale_as_the_closed_form_says(fetch_interval, push_interval):
    result = ask(
        consistency="asynchronous", stragglers=EXPONENTIAL, fetch_interval=fetch_interval, push_interval=push_interval,
        steps=20_000,
    )  # fmt: skip
    drawn = np.arange(len(result.staleness)) @ np.array(result.staleness)
    assert drawn == pytest.approx(result.staleness_mean, rel=0.02)
    assert result.push_bytes == 1e9 / push_interval
    assert result.pull_bytes == 1e9 / fetch_interval


def test_exponential_workers_without_exchanges_are_geometrically_stale():
    result = ask(nbytes=0.0, consistency="asynchronous", stragglers=EXPONENTIAL)
    _, staleness, _ = followed(EXPONENTIAL.draw(0.5, 40_000, 8, 1), np.full(8, 1e-12))
    drawn = staleness / staleness.sum()
    assert np.abs(np.array(result.staleness[:40]) - drawn[:40]).max() < 2e-3


# Traffic, bottlenecks, shares


def test_as_many_colocated_servers_as_workers_take_the_time_of_a_ring():
    result = ask(colocated=True)
    assert result.step_time - 0.5 == pytest.approx(2 * 7 / 8 * 0.1)


def test_a_sparse_working_set_sends_its_entries_with_their_keys():  # Li et al. fig. 3: 7.8 % of the parameters, 100 workers
    result = ask(nbytes=8e9, working_set=0.078, key_bytes=8.0, value_bytes=8.0)
    assert result.push_bytes == pytest.approx(2 * 0.078 * 8e9)
    cached = ask(nbytes=8e9, working_set=0.078, key_bytes=8.0, value_bytes=8.0, filters=Filters(key_caching=1.0))
    assert cached.push_bytes == pytest.approx(0.5 * result.push_bytes)


def test_the_kkt_filter_acts_on_pushes_alone():
    result = ask(filters=Filters(kkt=0.93, random_skip=0.5, compression=0.25))
    assert result.push_bytes == pytest.approx(1e9 * 0.07 * 0.5 * 0.25)
    assert result.pull_bytes == pytest.approx(1e9 * 0.5 * 0.25)


@pytest.mark.parametrize(
    ("fields", "bottleneck"),
    [
        ({}, "compute"), ({"servers": 1}, "server link"), ({"bandwidth": 1e9, "server_bandwidth": 1e12}, "worker link"),
        ({"latency": 2.0}, "latency"), ({"update_bandwidth": 1e9}, "server update"),
        ({"stragglers": EXPONENTIAL, "workers": 64, "servers": 640}, "stragglers"),
        ({"colocated": True, "bandwidth": 1e9}, "worker link"),
    ],
)  # fmt: skip
def test_the_bottleneck_is_named(fields, bottleneck):
    result = ask(**fields)
    assert result.bottleneck == bottleneck
    assert result.why and "\n" not in result.why


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["bsp", "bounded_delay", "asynchronous"]), st.sampled_from(RANDOM), st.integers(1, 9), st.integers(1, 9)
)
def test_the_shares_of_a_workers_time_add_up(consistency, stragglers, workers, servers):
    delay = 2 if consistency == "bounded_delay" else None
    result = ask(workers=workers, servers=servers, consistency=consistency, delay=delay, stragglers=stragglers, steps=200)
    for share in (result.compute_share, result.exchange_share, result.idle_share):
        assert -1e-9 <= share <= 1.0
    assert result.compute_share * result.step_time == pytest.approx(0.5, rel=0.25)
    assert result.throughput == pytest.approx(workers / result.step_time)
    assert all(math.isfinite(value) for value in dataclasses.astuple(result) if isinstance(value, float))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"workers": 0}, InvalidValue), ({"servers": 9, "colocated": True}, InvalidValue),
        ({"bandwidth": float("nan")}, InvalidValue), ({"delay": 3}, InvalidValue),
        ({"consistency": "bounded_delay"}, InvalidValue), ({"consistency": "eventual"}, InvalidValue),
        ({"colocated": True, "server_bandwidth": 1e9}, InvalidValue), ({"skew": 9.0}, InvalidValue),
        ({"nbytes": 0.0, "compute_time": 0.0}, InvalidValue), ({"stragglers": "exponential"}, InvalidValue),
        ({"overlap": 0.5, "consistency": "asynchronous"}, NotModelled), ({"fetch_interval": 2}, NotModelled),
        ({"overlap": 0.5, "servers": 1, "stragglers": EXPONENTIAL}, NotModelled),
        ({"consistency": "asynchronous", "fetch_interval": 4, "push_interval": 6}, InvalidValue),
        ({"workers": 100_000, "consistency": "bounded_delay", "delay": 2, "stragglers": EXPONENTIAL}, InvalidValue),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_in_one_line(fields, error):
    with pytest.raises(error) as refused:
        ask(**fields)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("distribution", "spread"), [("uniform", 0.6), ("normal", 0.3), ("cauchy", 0.1), ("deterministic", 0.1)])
def test_a_spread_that_makes_times_negative_is_refused(distribution, spread):
    with pytest.raises(InvalidValue):
        Stragglers(distribution=distribution, spread=spread)

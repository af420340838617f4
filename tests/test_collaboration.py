"""Collaborations: known systems as special cases, the program against brute force, honest integers, refusals by name."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from costmodel.formulas.systems.server_exchange import exchange_time
from costmodel.studies.collaboration import solver as solver
from costmodel.studies.collaboration.peers import Peer
from costmodel.studies.collaboration.study import collaborate
from costmodel.studies.parameter_servers.byteps_cluster import byteps
from costmodel.text.errors import InvalidValue, NotModelled

PARAMETERS = 72e6  # bytes: ALBERT-large's 18 M parameters in single precision
SAME = 1e-6

rates = st.floats(0.05, 20.0)


def peer(name, speed=10.0, upload=1e8, download=None, client=False):
    return Peer(
        name=name, samples_per_second=speed, upload=upload, download=upload if download is None else download, client=client
    )  # fmt: skip


def drawn(random, most=8):
    """Unlike peers as columns: speed, upload, download, who can average."""
    count = random.integers(2, most + 1)
    speed = np.where(random.random(count) < 0.2, 0.0, random.lognormal(0.0, 1.0, count))
    speed[0] = 1.0
    return speed, random.lognormal(0.0, 1.0, count), random.lognormal(0.0, 1.0, count), random.random(count) > 0.25


def as_peers(speed, upload, download, averages):
    return [
        peer(f"peer {i}", float(s), float(u) * PARAMETERS, float(d) * PARAMETERS, not a)
        for i, (s, u, d, a) in enumerate(zip(speed, upload, download, averages, strict=True))
    ]


# Known systems


@given(st.integers(2, 40), st.floats(1e3, 1e9))
@settings(deadline=None, max_examples=30)
def test_equal_peers_are_a_ring_all_reduce(count, bandwidth):
    result = collaborate(
        [peer(f"peer {i}", 1.0, bandwidth) for i in range(count)], PARAMETERS, 4096, computing=[f"peer {i}" for i in range(count)]
    )
    assert result.averaging_bound == pytest.approx(2 * (count - 1) / count * PARAMETERS / bandwidth, rel=SAME)
    assert result.averaging_time == pytest.approx(result.averaging_bound, rel=1e-5)
    if count > 2:  # two send each other all they have, whoever averages
        assert all(entry.share == pytest.approx(1 / count, abs=1e-6) for entry in result.contributions)


@given(st.integers(2, 20), st.floats(1e5, 1e9), st.floats(1e5, 1e10))
@settings(deadline=None, max_examples=30)
def test_one_server_and_workers_that_only_connect_to_it_are_a_parameter_server(workers, bandwidth, server_bandwidth):
    names = [f"worker {i}" for i in range(workers)]
    peers = [peer("server", 0.0, server_bandwidth), *(peer(name, 1.0, bandwidth, client=True) for name in names)]
    result = collaborate(peers, PARAMETERS, 4096, computing=names)
    expected = exchange_time(PARAMETERS, PARAMETERS, workers, 1.0, 1.0, 0.0, bandwidth, server_bandwidth, 1e30, 0.0, 1e30)
    assert result.averaging_time == pytest.approx(expected, rel=SAME)
    assert result.averaging == ("server",)


@pytest.mark.parametrize("gpu_machines", [2, 3, 8])
@pytest.mark.parametrize("cpu_machines", [0, 1, 2, 5, 8, 12])
def test_gpu_machines_and_spare_cpu_machines_are_byteps(gpu_machines, cpu_machines):
    names = [f"gpu {i}" for i in range(gpu_machines)]
    peers = [*(peer(name, 1.0, 1e9) for name in names), *(peer(f"cpu {i}", 0.0, 1e9) for i in range(cpu_machines))]
    result = collaborate(peers, 1e9, 4096, computing=names)
    expected = byteps(1e9, gpu_machines=gpu_machines, cpu_machines=cpu_machines, bandwidth=1e9)
    assert result.averaging_bound == pytest.approx(expected.network_time, rel=SAME)
    if cpu_machines <= gpu_machines > 2:  # else any shares are as good
        for entry in result.contributions:
            wanted = expected.gpu_machine_bytes if entry.computes else expected.cpu_machine_bytes
            assert entry.share * 1e9 == pytest.approx(wanted, rel=1e-5, abs=10.0)


def test_hivemind_s_program_for_peers_that_all_compute_gives_the_same():
    # load_i = V (1 + (N - 2) w_i): min xi with load_i / b_i <= xi, sum w >= 1, solved for w by bisection on xi
    random = np.random.default_rng(3)
    for _ in range(30):
        count = int(random.integers(3, 30))
        bandwidth = random.lognormal(0.0, 0.5, count)
        low, high = 1.0 / bandwidth.min(), 1e3
        for _ in range(200):
            middle = 0.5 * (low + high)
            fits = np.maximum((middle * bandwidth - 1.0) / (count - 2.0), 0.0).sum() >= 1.0
            low, high = (low, middle) if fits else (middle, high)
        everyone = np.ones(count, bool)
        rate, _ = solver.averaging(bandwidth, bandwidth, everyone, everyone)
        assert 1.0 / rate == pytest.approx(high, rel=SAME)


# The program


def test_all_flows_and_one_variable_a_peer_and_the_closed_form_agree():
    random = np.random.default_rng(4)
    compared = 0
    for _ in range(60):
        speed, upload, download, averages = drawn(random)
        computes = speed > 0.0
        if computes.sum() < 2:
            continue
        rate, shares = solver.averaging(upload, download, computes, averages)
        by_flows, _ = solver.averaging_by_flows(upload, download, np.full((len(speed),) * 2, np.inf), computes, averages)
        closed = solver.averages_a_second(np.minimum(upload, download), computes, averages)
        assert by_flows == pytest.approx(rate, rel=SAME, abs=1e-9)
        assert closed == pytest.approx(rate, rel=SAME, abs=1e-9)
        assert shares.sum() == pytest.approx(1.0 if rate else 0.0)
        compared += 1
    assert compared > 40


def test_who_computes_is_the_best_of_all_sets_of_small_collaborations():
    random = np.random.default_rng(5)
    for _ in range(150):
        speed, upload, download, averages = drawn(random)
        bandwidth = np.minimum(upload, download)
        batch = float(random.lognormal(0.5, 1.0)) * len(speed)
        for delayed in (True, False):
            found = solver.who_computes(speed, bandwidth, averages, batch, delayed)[0][0]
            best = math.inf
            for bits in itertools.product([False, True], repeat=len(speed)):
                computes = np.array(bits) & (speed > 0.0)
                if not computes.any():
                    continue
                rate = solver.averages_a_second(bandwidth, computes, averages)
                times = batch / speed[computes].sum(), 1.0 / rate if rate else math.inf
                best = min(best, max(times) if delayed else sum(times))
            assert found == pytest.approx(best, rel=1e-9)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_more_of_anything_never_slows_a_collaboration(seed, delayed):
    random = np.random.default_rng(seed)
    columns = drawn(random, 6)
    peers = as_peers(*columns)
    before = collaborate(peers, PARAMETERS, 64.0, delayed=delayed)
    speed, upload, download, averages = (column.copy() for column in columns)
    which = int(random.integers(len(peers)))
    speed[which], upload[which], download[which] = 2 * speed[which], 3 * upload[which], 1.5 * download[which]
    averages[which] = True
    after = collaborate(as_peers(speed, upload, download, averages), PARAMETERS, 64.0, delayed=delayed)
    assert after.step_time <= before.step_time * (1 + 1e-5)
    more = collaborate([*peers, peer("another", 1.0, PARAMETERS)], PARAMETERS, 64.0, delayed=delayed)
    assert more.step_time <= before.step_time * (1 + 1e-5)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_no_connection_carries_more_than_it_can(seed):
    random = np.random.default_rng(seed)
    result = collaborate(as_peers(*drawn(random)), PARAMETERS, 64.0)
    total_sent = sum(entry.upload_bytes for entry in result.contributions)
    for entry in result.contributions:
        assert entry.upload_bytes <= result.averaging_time * entry.peer.upload * (1 + 1e-9)
        assert entry.download_bytes <= result.averaging_time * entry.peer.download * (1 + 1e-9)
    # by the flows themselves: each computing peer and each other averager exchange the averager's part both ways
    computing = [entry for entry in result.contributions if entry.computes]
    flows = sum(2 * entry.share * (len(computing) - entry.computes) for entry in result.contributions)
    assert total_sent == pytest.approx(PARAMETERS * flows, rel=1e-9, abs=1e-3)


# Time of a step


def test_delayed_updates_take_the_longer_of_both_times_and_one_round_of_staleness():
    peers = [peer(f"peer {i}") for i in range(4)]
    plain, delayed = (collaborate(peers, PARAMETERS, 4096, delayed=delayed) for delayed in (False, True))
    assert plain.step_time == pytest.approx(plain.compute_time + plain.averaging_time)
    assert delayed.step_time == pytest.approx(max(delayed.compute_time, delayed.averaging_time))
    assert (plain.staleness, delayed.staleness) == (0, 1)
    assert sum(entry.samples for entry in plain.contributions) == pytest.approx(4096)


def test_a_peer_with_a_connection_too_slow_does_not_compute():
    peers = [*(peer(f"peer {i}") for i in range(4)), peer("modem", 1.0, 1e3)]
    assert "modem" not in collaborate(peers, PARAMETERS, 4096, delayed=True).computing
    assert "modem" in collaborate(peers, PARAMETERS, 1e8, delayed=True).computing  # a batch that takes a month hides it


def test_one_fast_peer_trains_alone_where_averaging_costs_more():
    result = collaborate([peer("fast", 100.0), peer("slow", 1.0)], 1e12, 64.0)
    assert result.computing == ("fast",)
    assert result.averaging_time == 0.0
    assert result.step_time == pytest.approx(0.64)


@pytest.mark.parametrize("delayed", [False, True])
def test_the_bottleneck_is_named(delayed):
    peers = [peer("a"), peer("b"), peer("c", upload=2e7)]
    names = ["a", "b", "c"]
    slow = collaborate(peers, PARAMETERS, 8.0, delayed=delayed, computing=names)
    assert (slow.bottleneck, "c" in slow.why) == ("averaging", True)
    assert collaborate(peers, PARAMETERS, 1e6, delayed=delayed, computing=names).bottleneck == "compute"


# Limits between pairs


def test_a_limit_between_two_peers_binds_and_other_peers_take_over():
    peers = [peer(f"peer {i}") for i in range(4)]
    names = [one.name for one in peers]
    free = collaborate(peers, PARAMETERS, 4096, computing=names)
    limits = {("peer 0", "peer 1"): 1e6, ("peer 1", "peer 0"): 1e6}
    limited = collaborate(peers, PARAMETERS, 4096, computing=names, pair_limits=limits)
    assert limited.averaging_time > free.averaging_time
    shares = [entry.share for entry in limited.contributions]
    assert shares[0] + shares[1] < 0.1 < shares[2] + shares[3]
    assert limited.averaging_time == pytest.approx(limited.averaging_bound, rel=1e-5)
    loose = {pair: 1e12 for pair in limits}
    assert collaborate(peers, PARAMETERS, 4096, computing=names, pair_limits=loose).averaging_bound == pytest.approx(
        free.averaging_bound, rel=SAME
    )


def test_a_pair_that_cannot_talk_does_not_compute_together():
    peers = [peer("a", 10.0), peer("b", 9.0), peer("c", 1.0)]
    cut = {("a", "b"): 0.0, ("b", "a"): 0.0}
    result = collaborate(peers, PARAMETERS, 1e6, pair_limits=cut)
    assert result.averaging == ("c",) or not {"a", "b"} <= set(result.computing)
    assert result.step_time <= collaborate(peers, PARAMETERS, 1e6, computing=["a", "c"]).step_time * (1 + 1e-9)


# Whole elements


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=30), st.integers(0, 10**7))
def test_whole_parts_add_up_and_are_within_one_of_their_quota(shares, units):
    assume(sum(shares) > 1e-3)
    column = np.array(shares)
    split = solver.integer_split(column, units)
    assert split.sum() == units
    assert (split[column == 0.0] == 0).all()
    assert (split >= np.floor(units * (column / column.sum())) - 1).all()


def test_whole_parts_are_those_of_hagenbach_bischoff():  # seats of the Zurich council's example: quotients decide
    assert solver.integer_split(np.array([53.0, 24.0, 23.0]), 7).tolist() == [4, 2, 1]


def test_a_share_below_the_least_size_is_not_averaged():
    peers = [peer("a"), peer("b"), peer("c", 10.0, 0.6e8)]
    names = ["a", "b", "c"]
    shares = {entry.peer.name: entry.elements for entry in collaborate(peers, PARAMETERS, 64, computing=names).contributions}
    least = shares["c"] + 1
    assert 0 < least < shares["a"]
    dropped = collaborate(peers, PARAMETERS, 64, computing=names, min_size=least)
    assert dropped.averaging == ("a", "b")
    assert sum(entry.elements for entry in dropped.contributions) == 18_000_000
    assert dropped.averaging_time >= dropped.averaging_bound


# Refusals


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda: collaborate([], 1e6, 64), InvalidValue),
        (lambda: collaborate([peer("a", 0.0)], 1e6, 64), InvalidValue),
        (lambda: collaborate([peer("a"), peer("a")], 1e6, 64), InvalidValue),
        (lambda: collaborate(["a"], 1e6, 64), InvalidValue),
        (lambda: collaborate([peer("a")], 1e6, 64, computing=["b"]), InvalidValue),
        (lambda: collaborate([peer("a")], 1e6, 64, computing=[]), InvalidValue),
        (lambda: collaborate([peer("a"), peer("b", 0.0)], 1e6, 64, computing=["a", "b"]), InvalidValue),
        (lambda: collaborate([peer("a", client=True), peer("b", client=True)], 1e6, 64, computing=["a", "b"]), InvalidValue),
        (lambda: collaborate([peer(name) for name in "abc"], 1e6, 64, computing=list("abc"), min_size=99_999), InvalidValue),
        (lambda: collaborate([peer("a"), peer("b")], 1e6, 64, pair_limits={("a", "c"): 1.0}), InvalidValue),
        (lambda: collaborate([peer("a")], float("inf"), 64), InvalidValue),
        (lambda: collaborate([peer("a")], 1e6, 64, computing=[["a"]]), InvalidValue),
        (lambda: collaborate([peer("a"), peer("b")], 1e6, 64, pair_limits=0), InvalidValue),
        (lambda: collaborate([peer("a"), peer("b")], 1e6, 64, pair_limits=[]), InvalidValue),
        (lambda: collaborate([peer("a"), peer("b")], 1e6, 64, pair_limits={("a", "a"): 1.0}), InvalidValue),
        (lambda: collaborate([peer("a"), peer("b")], 1e6, 64, pair_limits={("a", ("b",)): 1.0}), InvalidValue),
        (lambda: collaborate([peer(f"{i}") for i in range(60)], 1e6, 64, pair_limits={("0", "1"): 1.0}), NotModelled),
        (lambda: peer("a", -1.0), InvalidValue),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_in_one_line(wrong, error):
    with pytest.raises(error) as refused:
        wrong()
    assert "\n" not in str(refused.value)


def test_clients_alone_train_one_by_one():
    peers = [peer("a", 3.0, client=True), peer("b", 2.0, client=True)]
    assert collaborate(peers, PARAMETERS, 64).computing == ("a",)


def test_no_pair_limits_are_those_of_an_empty_table_and_numbers_may_be_numpy_s():
    peers = [peer(name) for name in "abc"]
    wanted = collaborate(peers, PARAMETERS, 64)
    assert collaborate(peers, PARAMETERS, 64, pair_limits={}) == wanted
    assert collaborate(peers, np.float32(PARAMETERS), np.int64(64), min_size=np.int32(0)) == wanted

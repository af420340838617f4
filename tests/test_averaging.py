"""Strategies of averaging among unlike peers: published gains, and bounds that need no program."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel import averaging_strategies, collaborate_with_churn
from costmodel.formulas.network.algorithms import ring_all_reduce
from costmodel.formulas.systems.byteps_shares import optimal_time
from costmodel.studies.collaboration.peers import Peer
from costmodel.text.errors import InvalidValue

GIGABIT = 1e9 / 8
ALBERT = 2 * 18e6
"""Bytes of ALBERT-large's gradients in 16 bits, as the authors' code sends them."""


def peers(count, bandwidth, name="peer", speed=1.0):
    return [Peer(name=f"{name} {i}", samples_per_second=speed, upload=bandwidth, download=bandwidth) for i in range(count)]


SERVERS, WORKSTATIONS = peers(8, GIGABIT, "server"), peers(16, 0.2 * GIGABIT, "workstation")
"""Diskin et al. 2021: servers of 1 Gbit/s, workstations of 200 Mbit/s; both together are their hybrid set-up."""


def test_adaptive_averaging_on_servers_and_workstations_gains_what_was_published():
    """1.9 times an all-reduce, mean of 100 averagings of ALBERT-large; every workstation sends and takes its gradients alone."""
    found = averaging_strategies([*SERVERS, *WORKSTATIONS], ALBERT)
    assert found.gain == pytest.approx(1.9, rel=0.15)
    assert found.adaptive == pytest.approx(ALBERT / (0.2 * GIGABIT))  # no strategy takes fewer bytes over a slow link
    assert found.gain == pytest.approx(2 * 23 / 24)


@pytest.mark.parametrize("alike", [SERVERS, WORKSTATIONS])
def test_peers_that_are_alike_gain_nothing_over_an_all_reduce(alike):
    found = averaging_strategies(alike, ALBERT)
    assert found.gain == pytest.approx(1.0, rel=1e-6)
    assert found.all_reduce == pytest.approx(ring_all_reduce(ALBERT, float(len(alike)), 0.0, alike[0].upload))


@given(st.integers(2, 12), st.integers(0, 12))
@settings(deadline=None, max_examples=30)
def test_where_all_links_are_alike_adaptive_averaging_is_byteps(count, spare):
    found = averaging_strategies([*peers(count, GIGABIT), *peers(spare, GIGABIT, "spare", 0.0)], ALBERT)
    assert found.byteps == pytest.approx(optimal_time(ALBERT, float(count), float(spare), GIGABIT), rel=1e-6)
    assert found.adaptive == pytest.approx(found.byteps, rel=1e-6)


@given(st.lists(st.tuples(st.floats(0.05, 10.0), st.floats(0.05, 10.0), st.booleans()), min_size=2, max_size=8))
@settings(deadline=None, max_examples=60)
def test_no_strategy_is_faster_than_the_adaptive_one(drawn):
    some = [Peer(name=f"p{i}", samples_per_second=0.0 if idle and i else 1.0, upload=up * GIGABIT, download=down * GIGABIT)
            for i, (up, down, idle) in enumerate(drawn)]  # fmt: skip
    if sum(peer.samples_per_second > 0.0 for peer in some) > 1:
        made = averaging_strategies(some, ALBERT)
        assert min(made.all_reduce, made.parameter_server, made.byteps) >= made.adaptive * (1.0 - 1e-9)


def test_a_fast_machine_that_only_averages_is_worth_more_than_an_all_reduce_and_takes_everything():
    found = averaging_strategies([*WORKSTATIONS, *peers(1, 10 * GIGABIT, "cloud", 0.0)], ALBERT)
    assert found.parameter_server == pytest.approx(found.adaptive) == pytest.approx(ALBERT / (0.2 * GIGABIT))


def test_peers_behind_firewalls_have_no_all_reduce():
    hidden = [Peer(name="hidden", samples_per_second=1.0, upload=GIGABIT, download=GIGABIT, client=True)]
    found = averaging_strategies([*SERVERS, *hidden], ALBERT)
    assert found.all_reduce == float("inf") and 0.0 < found.adaptive < 1.0


def test_the_gain_survives_sessions_of_four_hours():
    """Sessions of sahajBERT's volunteers: averaging begins again where one leaves, which the shorter one meets less often."""
    both = [*SERVERS, *WORKSTATIONS]
    found = averaging_strategies(both, ALBERT)
    churning = collaborate_with_churn(
        both, ALBERT, 4096, session=4 * 3600.0, computing=[peer.name for peer in both], delayed=True
    )  # fmt: skip
    assert found.all_reduce / churning.averaging_time == pytest.approx(1.9, rel=0.15)
    assert churning.efficiency > 0.9


@pytest.mark.parametrize(("given_peers", "nbytes", "field"), [
    ([], ALBERT, "peers"), (SERVERS, 0.0, "parameter_bytes"), (peers(2, GIGABIT, speed=0.0), ALBERT, "samples_per_second"),
    ([1, 2], ALBERT, "peers"),
])  # fmt: skip
def test_nonsense_is_refused(given_peers, nbytes, field):
    with pytest.raises(InvalidValue, match=f"^{field}"):
        averaging_strategies(given_peers, nbytes)

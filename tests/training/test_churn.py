"""Peers that come and go: closed forms against an event simulation, and what sahajBERT's sessions cost."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.formulas.systems import churn as formulas
from costmodel.studies.collaboration.peers import Peer
from costmodel.text.errors import InvalidValue
from costmodel.training.churn import collaborate_with_churn
from tests.training import churn_kernel as kernel

HOUR = 3600.0


def volunteers(count, upload=1.25e7):
    return [Peer(name=f"peer {i}", samples_per_second=10.0, upload=upload, download=upload) for i in range(count)]


@pytest.mark.parametrize(("step_time", "session", "joining"), [
    (120.0, 4 * HOUR, 60.0), (600.0, 1200.0, 0.0), (600.0, 600.0, 100.0), (3000.0, 1000.0, 50.0),
])  # fmt: skip
def test_what_counts_is_what_following_the_sessions_gives(step_time, session, joining):
    followed = kernel.counted(step_time, session, joining, 1_000_000, 1)
    assert followed == pytest.approx(formulas.counted_share(step_time, session, joining), rel=0.01)


@pytest.mark.parametrize(("time", "peers", "session"), [(20.0, 16, 4 * HOUR), (20.0, 40, 800.0), (5.0, 8, 60.0)])
def test_averaging_that_begins_again_takes_what_following_it_gives(time, peers, session):
    followed = kernel.averaging(time, peers, session, 100_000, 1)
    assert followed == pytest.approx(formulas.averaging_time(time, float(peers), session), rel=0.01)


def test_sahajbert_s_sessions_of_four_hours_cost_little():
    """40 volunteers, 600 sessions of 4 hours on average (Hugging Face's report); 18 M parameters in 16 bits, batch 4096."""
    found = collaborate_with_churn(volunteers(40), 36e6, 4096, session=4 * HOUR, delayed=True)
    assert 0.98 < found.efficiency < 1.0


@settings(deadline=None, max_examples=25)
@given(st.floats(600.0, 1e6), st.integers(2, 20), st.booleans())
def test_leaving_never_speeds_training_up_and_staying_longer_never_slows_it(session, count, delayed):
    short = collaborate_with_churn(volunteers(count), 36e6, 512, session=session, delayed=delayed)
    long = collaborate_with_churn(volunteers(count), 36e6, 512, session=2 * session, delayed=delayed)
    assert short.throughput <= long.throughput * (1 + 1e-9) <= long.steady.throughput * (1 + 2e-9)


def test_who_stays_forever_loses_nothing():
    found = collaborate_with_churn(volunteers(8), 36e6, 512, session=1e12)
    assert found.efficiency == pytest.approx(1.0, abs=1e-6)


def test_smaller_groups_begin_again_less_often():
    times = [
        collaborate_with_churn(volunteers(32), 36e6, 512, session=1800.0, group=group).averaging_time for group in (4, 16, 32)
    ]  # fmt: skip
    assert times == sorted(times)


@pytest.mark.parametrize(("given", "field"), [
    ({"session": 0.0}, "session"), ({"session": 1.0}, "session"), ({"session": 3600.0, "joining": -1.0}, "joining"),
    ({"session": 3600.0, "group": 0}, "group"),
])  # fmt: skip
def test_nonsense_is_refused(given, field):
    with pytest.raises(InvalidValue, match=f"^{field}"):
        collaborate_with_churn(volunteers(8), 36e6, 4096, **given)

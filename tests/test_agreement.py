"""Estimate, ledger and simulator price the same transactions: plans drawn over models, clusters, frameworks and schedules."""

import numpy as np
import pytest

from tests.agreement import agreements


@pytest.fixture(scope="module")
def drawn():
    return list(agreements(40))


def test_the_simulator_takes_what_is_estimated_within_5_percent_on_95_of_100_plans(drawn):
    ratio = np.array([one.simulated for one in drawn])
    assert np.mean(abs(ratio - 1.0) <= 0.05) >= 0.95


def test_the_simulator_takes_what_is_estimated_within_15_percent_on_every_plan(drawn):
    for one in drawn:
        assert abs(one.simulated - 1.0) <= 0.15, one.result.plan


def test_the_simulators_events_move_the_ledgers_bytes(drawn):
    assert [one.moved_bytes for one in drawn] == pytest.approx([1.0] * len(drawn), rel=1e-9)


def test_no_link_carries_more_than_its_bandwidth(drawn):
    assert max(one.busiest for one in drawn) <= 1.0 + 1e-9

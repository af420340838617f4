"""Estimate, ledger and simulator price the same transactions: plans drawn over models, clusters, frameworks and schedules."""

import numpy as np
import pytest

from costmodel import Group, collective_time
from costmodel.evaluation.prices import PRICES
from costmodel.simulation.transactions import ledger_of
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


def test_the_timeline_takes_what_is_estimated_within_1_percent_on_every_plan(drawn):
    for one in drawn:
        assert one.played == pytest.approx(1.0, abs=0.01), one.result.plan


def test_the_simulators_events_move_the_ledgers_bytes(drawn):
    assert [one.moved_bytes for one in drawn] == pytest.approx([1.0] * len(drawn), rel=1e-9)


def test_no_link_carries_more_than_its_bandwidth(drawn):
    assert max(one.busiest for one in drawn) <= 1.0 + 1e-9


def test_estimate_counts_the_ledgers_bytes(drawn):
    assert [one.ledger_bytes for one in drawn] == pytest.approx([1.0] * len(drawn), rel=1e-12)


def test_every_transaction_takes_what_its_collective_takes_by_itself(drawn):
    """But for pairs at opposite ends of a pipeline, whose place is the whole pipeline's, and experts' tokens sent once."""
    priced = 0
    for one in drawn[:20]:
        for row in ledger_of(one.result).transactions:
            if row.collective not in PRICES or row.collective == "reduce" or row.group in ("embedding", "twin"):
                continue
            members = Group(ranks=row.ranks, stride=row.stride)
            found = [
                collective_time(
                    row.collective, row.nbytes, members, one.result.cluster, framework=one.framework, sharded=sharded
                ).time
                for sharded in (False, True)
                if not sharded or row.collective in ("all-gather", "reduce-scatter")
            ]
            assert any(time == pytest.approx(row.time, rel=1e-9) for time in found), row
            priced += 1
    assert priced > 100

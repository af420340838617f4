"""Runs that others of their source contradict: who is marked, and what leaves the marks as they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.data.twins import CONTRADICTED, ONCE_A_STEP, contradicted

RUN = st.tuples(
    st.sampled_from("abc"), st.integers(1, 8), st.integers(1, 64), st.floats(0.0, 15.0), st.floats(0.01, 100.0)
)  # fmt: skip


def marks(runs, polls=0.0):
    return contradicted(*(list(column) for column in zip(*runs, strict=True)), [polls] * len(runs))


@given(st.lists(RUN, min_size=1, max_size=12), st.integers(-4, 4))
def test_the_unit_of_time_and_the_order_of_runs_do_not_matter(runs, power):
    found = marks(runs)
    assert marks([(*run[:4], 2.0**power * run[4]) for run in runs]) == found
    assert marks(runs[::-1]) == found[::-1]


@given(st.lists(RUN, min_size=1, max_size=12))
def test_neither_a_run_without_a_twin_nor_the_fastest_two_of_three_and_more_are_marked(runs):
    found = marks(runs)
    for kind in {run[0] for run in runs}:
        mine = [place for place, run in enumerate(runs) if run[0] == kind]
        order = sorted(mine, key=lambda place: runs[place][4] / (runs[place][2] + runs[place][3]))
        assert not any(found[place] for place in order[: 1 if len(mine) == 2 else 2])  # by the time of a micro-batch


@pytest.mark.parametrize(("factor", "marked"), [(0.99, False), (1.01, True)])
def test_a_run_is_marked_from_the_stated_multiple_of_its_twin_on(factor, marked):
    """The twin takes a second for each of its 10 micro-batches and 3 of fill; work of a step is allowed two more."""
    limit = CONTRADICTED * (13.0 + ONCE_A_STEP)
    assert marks([("a", 1, 10, 3.0, 13.0), ("a", 1, 10, 3.0, factor * limit)]) == [False, marked]


def test_a_larger_micro_batch_may_take_longer_in_proportion():
    twin = ("a", 1, 10, 0.0, 10.0)
    most = CONTRADICTED * (10.0 + ONCE_A_STEP)
    for size, seconds, marked in ((4, 4 * most, False), (4, 4 * most + 1.0, True), (1, 4 * most, True)):
        assert marks([twin, ("a", size, 10, 0.0, seconds)])[1] is marked


@pytest.mark.parametrize(("polls", "beyond", "marked"), [(0.0, 4.5, False), (0.4, 3.5, False), (0.4, 4.5, True)])
def test_a_run_that_polls_is_marked_from_what_that_takes_its_micro_batches_on(polls, beyond, marked):
    twin = ("a", 1, 10, 0.0, 10.0)
    assert marks([twin, ("a", 1, 10, 0.0, 10.0 + ONCE_A_STEP + beyond)], polls)[1] is marked


@given(st.lists(RUN, min_size=1, max_size=12), st.floats(0.0, 2.0))
def test_polling_only_adds_marks(runs, polls):
    assert all(more or not mark for mark, more in zip(marks(runs), marks(runs, polls), strict=True))

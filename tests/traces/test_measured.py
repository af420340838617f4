"""Measured runs beside their traces: slow, and only where torch, transformers and the data are."""

import importlib.util

import pytest

from tests.traces.measured import chosen, judged, records, summary, traced

NEEDS = [name for name in ("torch", "transformers", "peft") if importlib.util.find_spec(name) is None]
MEMORY_MEAN, MEMORY_WORST, TIME_MEAN, WITHIN = 0.04, 0.08, 0.08, 0.85


def test_chosen_runs_are_fifteen_or_more_and_each_once():
    assert len(set(chosen())) == len(chosen()) >= 15


@pytest.mark.slow
@pytest.mark.skipif(bool(NEEDS), reason=f"a script needs {', '.join(NEEDS)}")
def test_traces_of_measured_runs_have_their_times_and_peaks(tmp_path):
    known = records()
    if not known:
        pytest.skip("../shared/reference has no measured runs here")
    found = [judged(known[one], traced(known[one], tmp_path / f"{one.replace('/', '-')}.npz")) for one in chosen()]
    times, peaks = [abs(one.time_error) for one in found], [abs(one.memory_error) for one in found]
    assert sum(peaks) / len(peaks) < MEMORY_MEAN and max(peaks) < MEMORY_WORST, summary(found)
    assert sum(times) / len(times) < TIME_MEAN, summary(found)
    assert sum(one.within for one in found) / len(found) >= WITHIN, summary(found)

"""Measured runs beside their traces: slow, and only where torch, transformers and the data are."""

import importlib.util

import pytest

from tests.traces.measured import chosen, judged, records, traced

NEEDS = [name for name in ("torch", "transformers", "peft") if importlib.util.find_spec(name) is None]
WORST = 0.08
"""Most error of the peak; `python -m tests.traces.measured` judges all runs that were chosen."""


@pytest.mark.parametrize("file", ["dev", "released"])
def test_chosen_runs_are_fifteen_or_more_and_each_once(file):
    runs = chosen(file)
    assert len(set(runs)) == len(runs) >= 15
    assert not records() or set(runs) <= set(records())


@pytest.mark.slow
@pytest.mark.skipif(bool(NEEDS), reason=f"a script needs {', '.join(NEEDS)}")
@pytest.mark.parametrize("place", [0, 4])  # all weights sharded over four GPUs, adapters on one
def test_the_trace_of_a_measured_run_has_its_peak_and_its_time_lies_in_the_interval(place, tmp_path):
    known, run = records(), chosen()[place]
    if run not in known:
        pytest.skip("../shared/reference has no measured runs here")
    found = judged(known[run], traced(known[run], tmp_path / "run.npz"))
    assert abs(found.memory_error) < WORST and found.within, found

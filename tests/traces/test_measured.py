"""Measured runs beside their traces: slow, and only where torch, transformers and the data are."""

import importlib.util

import pytest
from packaging.requirements import Requirement

from costmodel.catalogue.records import run_of
from tests.traces.environments import requirements
from tests.traces.measured import chosen, judged, machines, records, releases, traced

NEEDS = [name for name in ("torch", "transformers", "peft") if importlib.util.find_spec(name) is None]
WORST = 0.08
"""Most error of the peak; `python -m tests.traces.measured` judges all runs that were chosen."""


@pytest.mark.parametrize("file", ["dev", "released"])
def test_chosen_runs_are_fifteen_or_more_and_each_once(file):
    runs = chosen(file)
    assert len(set(runs)) == len(runs) >= 15
    assert not records() or set(runs) <= set(records())


def test_machines_of_a_run_are_those_that_its_record_leaves_open_but_what_its_campaign_rules_out():
    known = records()
    if not known:
        pytest.skip("../shared/reference has no measured runs here")
    run = run_of(known["fsdp_qlora/8"])
    ((share, cluster),) = machines(run)  # "slow PCI lanes": not the assumed ones
    assert share == 1.0 and cluster.levels[0].bandwidth == 0.5 * run.cluster.levels[0].bandwidth
    for one in map(run_of, known.values()):
        shares = [share for share, _ in machines(one)]
        assert sum(shares) == pytest.approx(1.0) and shares == sorted(shares, reverse=True) and min(shares) > 0.0


@pytest.mark.slow
@pytest.mark.skipif(bool(NEEDS), reason=f"a script needs {', '.join(NEEDS)}")
@pytest.mark.parametrize("place", [0, 4])  # all weights sharded over four GPUs, adapters on one
def test_the_trace_of_a_measured_run_has_its_peak_and_its_time_lies_in_the_interval(place, tmp_path):
    known, run = records(), chosen()[place]
    if run not in known:
        pytest.skip("../shared/reference has no measured runs here")
    found = judged(known[run], traced(known[run], tmp_path / "run.npz"))
    assert abs(found.memory_error) < WORST and found.within, found


def test_an_environment_has_the_releases_of_its_run_beside_what_the_library_asks():
    """Well formed as packaging reads it."""
    pytest.importorskip("torch")
    for run, had in releases().items():
        wanted = [Requirement(one) for one in requirements(("transformers", "peft"), had)]
        exact = {one.name: str(one.specifier) for one in wanted}
        assert {"torch", "transformers", "peft", "numpy", "numba"} <= set(exact)
        assert all(exact[name] == f"=={release}" for name, release in had.items()), run

"""What `validate --own-runs` calibrates on, and what it judges."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from calibration.data.runs import measured_runs, source_of
from calibration.fit import pooled
from calibration.fit.problem import time_model
from calibration.fit.runs import Fitted, without_clock
from calibration.validate import own_runs
from calibration.validate.distance import Unseen, predicted_by

FILE = Path(__file__).resolve().parents[3] / "shared" / "reference" / "measured" / "dev.jsonl"
STRANGE = 3


@pytest.mark.skipif(not FILE.is_file(), reason="the optional reference folder is absent")
def test_runs_that_calibrate_refuses_are_judged_but_not_drawn(monkeypatch):
    cases = [without_clock(run) for run in measured_runs([FILE]) if source_of(run) == "internevo"]
    cases[STRANGE] = dataclasses.replace(cases[STRANGE], step_time=100.0 * cases[STRANGE].step_time)
    rows = np.arange(len(cases))
    model = time_model(cases)
    posterior = pooled.fit(model, rows, None, iterations=1)
    predicted, plain, variance = predicted_by(model, posterior, rows)
    drawn, rest = [], []

    def calibrated(group, chosen, random):
        drawn.extend(chosen)
        rest.extend(set(group.rows) - set(chosen))
        return own_runs.Drawn("internevo", group.name, np.ones(1), np.ones(1), np.ones(1), 1.0, 1.0)

    monkeypatch.setattr(own_runs._Group, "calibrated", calibrated)
    by_source = (Unseen(predicted, plain, variance, np.zeros(len(cases), dtype=int)), [posterior])
    own_runs.own_runs(Fitted(cases, model, posterior), (3, 6), by_source)
    assert len(set(drawn)) > len(cases) / 2
    assert STRANGE not in drawn and STRANGE in rest


def test_a_group_is_worse_by_its_mean_over_the_draws():
    """Of four calibrations of one group one made it worse by half, the others better: the group is not, a draw is."""
    def drawn(group, after):
        return own_runs.Drawn("a", group, np.array([0.1]), np.array([after]), np.ones(1), math.nan, math.nan)

    found = own_runs._figures([*(drawn("one", after) for after in (0.15, 0.05, 0.05, 0.05)), drawn("two", 0.12)])
    assert (found["groups"], found["draws"]) == (2, 5)
    assert found["groups_a_tenth_worse"] == 0.5
    assert found["draws_a_tenth_worse"] == pytest.approx(2 / 5)

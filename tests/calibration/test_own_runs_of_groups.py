"""What `validate --own-runs` calibrates on, and what it judges."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from calibration.data.cases import cases_of
from calibration.data.runs import read_runs, usable
from calibration.fit import pooled
from calibration.fit.problem import time_model
from calibration.fit.runs import Fitted, without_clock
from calibration.validate import own_runs
from calibration.validate.distance import Unseen, predicted_by

FILE = Path(__file__).resolve().parents[3] / "shared" / "reference" / "runs" / "internevo.csv"
STRANGE = 3


@pytest.mark.skipif(not FILE.is_file(), reason="the optional reference folder is absent")
def test_runs_that_calibrate_refuses_are_judged_but_not_drawn(monkeypatch):
    runs = list(usable(read_runs(FILE)))
    number = runs[STRANGE].number
    runs[STRANGE] = dataclasses.replace(runs[STRANGE], number={**number, "step_time_s": 100.0 * number["step_time_s"]})
    cases = [without_clock(case) for case in cases_of(runs)[0]]
    rows = np.arange(len(cases))
    model = time_model(cases)
    posterior = pooled.fit(model, rows, None, iterations=1)
    predicted, plain, variance = predicted_by(model, posterior, rows)
    drawn, rest = [], []

    def calibrated(group, chosen, random):
        drawn.extend(chosen)
        rest.extend(set(group.rows) - set(chosen))
        return own_runs.Drawn("internevo", np.ones(1), np.ones(1), np.ones(1), 1.0, 1.0)

    monkeypatch.setattr(own_runs._Group, "calibrated", calibrated)
    by_source = (Unseen(predicted, plain, variance, np.zeros(len(cases), dtype=int)), [posterior])
    own_runs.own_runs(Fitted(cases, model, posterior), (3, 6), by_source)
    assert len(set(drawn)) > len(cases) / 2
    assert STRANGE not in drawn and STRANGE in rest

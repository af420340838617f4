"""Constants are what their effects add up to, and their errors what the errors of these do."""

import csv
import io
import json
import math
from collections import defaultdict
from importlib import resources

import numpy as np
import pytest
from numpy.testing import assert_allclose

from calibration.fit import pooled
from calibration.fit.effects import Line, correlation_lines, effect_rows
from calibration.fit.fields import Field
from calibration.fit.pooled import Grouping, Model
from calibration.fit.problem import constants_of
from calibration.written import as_csv
from costmodel.catalogue import effects
from costmodel.catalogue.effects import ANY, CLOCKS, composed, errors_of, owners_of, parts_of, timed_runs
from costmodel.catalogue.software import framework_names, load_framework

BASES = sorted({parts_of(load_framework(name).owner)[0] for name in framework_names()})
ARCHITECTURES = sorted({one.architecture for one in timed_runs()} | {"trainium"})


def text(file):
    return resources.files("costmodel.catalogue").joinpath(file).read_text(encoding="utf-8")


ROWS = list(csv.DictReader(io.StringIO(text("constants.csv"))))


@pytest.mark.parametrize("framework", ["", *BASES])
def test_composed_constants_lie_between_their_bounds_and_their_errors_go_together(framework):
    for architecture in (None, *ARCHITECTURES):
        constants = composed(owners_of(framework, architecture))
        for path, value in constants.items():
            link = effects.constants()[path].link
            assert link.low <= value <= link.high and math.isfinite(value), path
        found = errors_of(framework, architecture)
        matrix = np.array(found.covariance)
        assert_allclose(matrix, matrix.T)
        scale = np.sqrt(np.diag(matrix))
        assert (scale > 0.0).all() and np.linalg.eigvalsh(matrix / np.outer(scale, scale)).min() > -1e-3


def test_a_constant_is_the_sum_of_its_rows_on_its_line():
    told = defaultdict(float)
    for row in ROWS:
        if row["owner"] in ("", "megatron-core", "hopper", "megatron-core@hopper") and row["level"] != "device":
            told[row["constant"]] += float(row["effect"])
    constants = composed(owners_of("megatron-core", "hopper"))
    for path in ("host_step", "compute_elementwise_traffic"):
        bounds = next(row for row in ROWS if row["constant"] == path)
        value = float(bounds["low"]) + math.exp(told[path])
        assert constants[path] == pytest.approx(value, rel=1e-4)
    assert set(constants) == {row["constant"] for row in ROWS} - set(CLOCKS)


def test_an_error_is_that_of_the_sum_of_the_effects():
    lines = [json.loads(line) for line in text("correlations.jsonl").splitlines()]
    matrix = np.eye(len(lines))
    for place, line in enumerate(lines):
        matrix[place, :place] = matrix[:place, place] = line
    numbered = [row for row in ROWS if row["correlated"]]
    assert [int(row["correlated"]) for row in numbered] == list(range(len(lines)))
    errors = np.array([float(row["standard_error"]) for row in numbered])
    covariance = matrix * np.outer(errors, errors)
    owners = {"field": "", "framework": "nanotron", "architecture": "hopper", "framework on architecture": "nanotron@hopper"}
    path = "host_step"
    mine = [row for row in ROWS if row["constant"] == path]
    chosen = np.array([row["constant"] == path and row["owner"] == owners.get(row["level"]) for row in numbered], dtype=float)
    found = [row for row in mine if row["owner"] == owners.get(row["level"])]
    told = {row["level"] for row in found}
    alone = [row for row in mine if row["owner"] == ANY and row["level"] not in told]
    alone += [row for row in found if not row["correlated"]]
    other = sum(float(row["standard_error"]) ** 2 for row in alone)
    expected = math.sqrt(chosen @ covariance @ chosen + other)  # the constant has no bounds but nought: its line is its logarithm
    assert effects.error_of(path, "nanotron", "hopper") == pytest.approx(expected, rel=1e-6)
    found = errors_of("nanotron", "hopper")
    place = found.paths.index(path)
    assert math.sqrt(found.covariance[place][place]) == pytest.approx(expected, rel=1e-6)


RATE = Field("rate", 1.0, 0.0, math.inf, {"field": 1.0, "framework": 0.4})


def test_what_a_fit_found_is_what_its_files_say(monkeypatch):
    random = np.random.default_rng(1)
    names = np.repeat(["nemo", "nanotron", "nobody"], 20)
    measured = -np.log(np.repeat([2.0, 3.0, 5.0], 20)) + random.normal(0.0, 0.02, 60)
    owners = {"field": np.full(60, ""), "framework": names}

    def predict(places, rows):
        return -np.log(constants_of((RATE,), places)["rate"])

    model = Model((RATE,), Grouping(owners, names, np.array([f"{name} group" for name in names]), names), measured, predict)
    found = pooled.fit(model, np.arange(60))
    rows, correlated = effect_rows((RATE,), found, owners, {"nemo", "nanotron"})
    files = {"constants.csv": as_csv([Line._fields, *rows]), "correlations.jsonl": correlation_lines(found, correlated)}
    assert {row.owner for row in rows} == {"", "nemo", "nanotron", ANY}
    monkeypatch.setattr(effects, "text_of", files.__getitem__)
    for cached in (effects.constants, effects._lines, effects._correlations):
        cached.cache_clear()
    try:
        place = {(effect.level, effect.owner): n for n, effect in enumerate(found.effects)}
        for name in ("nemo", "nanotron"):
            mine = [place["field", ""], place["framework", name]]
            assert composed(owners_of(name, None))["rate"] == pytest.approx(math.exp(found.mean[mine].sum()), rel=1e-4)
            error = math.sqrt(found.covariance[np.ix_(mine, mine)].sum())
            monkeypatch.setattr(effects, "usual_device", lambda *_: ANY)
            assert effects.error_of("rate", name, None) == pytest.approx(error, rel=0.02)
    finally:
        monkeypatch.undo()
        for cached in (effects.constants, effects._lines, effects._correlations):
            cached.cache_clear()

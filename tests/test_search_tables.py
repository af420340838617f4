"""A search leaves the process in frames, CSV and JSON: the same plans, with units in the names."""

from __future__ import annotations

import csv
import io
import json
import math

import pytest

import costmodel


@pytest.fixture(scope="module")
def result():
    model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=8)
    return costmodel.search(model, cluster, global_batch=64, seq_len=4096, top=7)


def test_frames_hold_one_row_a_plan_in_order(result):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    frame, other = result.to_pandas(), result.to_polars()
    assert isinstance(frame, pandas.DataFrame)
    assert isinstance(other, polars.DataFrame)
    assert list(frame["step_time_s"]) == [plan.step_time for plan in result.ranked] == list(other["step_time_s"])
    assert frame["step_time_s"][1:].is_monotonic_increasing  # the first is the simplest of those tied with the fastest
    assert frame["fits"].all()


def test_csv_and_json_hold_the_same_plans_without_nan(result, tmp_path):
    rows = list(csv.DictReader(io.StringIO(result.to_csv(tmp_path / "plans.csv"))))
    document = json.loads(result.to_json(tmp_path / "plans.json"), parse_constant=lambda name: pytest.fail(name))
    assert [float(row["step_time_s"]) for row in rows] == [plan["step_time_s"] for plan in document["plans"]]
    assert document["considered"] == result.considered == result.evaluated + sum(result.rejected.values())
    assert (tmp_path / "plans.csv").read_text() == result.to_csv()


def test_columns_with_a_unit_name_it(result):
    for name, value in result.to_rows()[0].items():
        if isinstance(value, float) and not isinstance(value, bool) and abs(value) > 1e3 and math.isfinite(value):
            assert name.endswith(("_s", "_bytes", "flop", "_per_second")), name


def test_the_parts_of_a_row_add_up_to_its_step(result):
    for row in result.to_rows():
        parts = sum(row[f"{part}_s"] for part in result.best.times)
        assert parts == pytest.approx(row["step_time_s"], rel=1e-12)


def test_the_best_plans_layers_can_be_dealt_unevenly():  # the head weighs as much as two layers
    model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=8)
    asked = {"global_batch": 64, "seq_len": 8192, "recompute": "full", "virtual_stages": 1, "schedule": "1f1b"}
    found = costmodel.search(model, cluster, pipeline_parallel=8, **asked)
    split = found.uneven_split()
    assert split.layers[-1] < max(split.layers)
    assert sum(split.layers) == 32
    assert split.gain == pytest.approx(max(split.even_times) / max(split.times) - 1.0)
    assert split.gain > 0.0
    assert costmodel.search(model, cluster, pipeline_parallel=1, **asked).uneven_split() is None
    with pytest.raises(costmodel.InvalidValue, match="place=1000"):
        found.uneven_split(1000)

"""The measuring command, on the CPU."""

from __future__ import annotations

import importlib
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="measuring needs PyTorch")

ROOT = Path(__file__).resolve().parents[2]
FAMILIES_ON_CPU = {"gemm", "attention", "copy", "layer"}
CONFIG = {
    "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
}  # fmt: skip


@pytest.fixture(scope="module")
def measure():
    """The module, imported from its package."""
    return importlib.import_module("calibration.measure.command")


@pytest.fixture(scope="module")
def record(tmp_path_factory) -> dict:
    """The record of a quick run on the CPU, of the folder copied to a place of its own."""
    place = tmp_path_factory.mktemp("node")
    shutil.copytree(ROOT / "calibration" / "measure", place / "measure")
    out = place / "results" / "cpu.json"
    out.parent.mkdir()
    config = place / "config.json"
    config.write_text(json.dumps(CONFIG), encoding="utf-8")
    command = [sys.executable, "-m", "measure", "--device", "cpu", "--quick", "--config", str(config), "--out", str(out)]
    alone = {**os.environ, "PYTHONPATH": ""}
    finished = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=place, env=alone)
    assert finished.returncode == 0, finished.stderr
    assert [path.name for path in out.parent.iterdir()] == ["cpu.json"]
    return json.loads(out.read_text(encoding="utf-8"))


def test_every_family_has_rows(record):
    assert record["schema"] == 2
    assert {row["family"] for row in record["rows"]} == FAMILIES_ON_CPU


def test_rows_are_flat_positive_and_finite(record):
    for row in record["rows"]:
        assert not any(isinstance(value, (dict, list)) for value in row.values()), row
        assert row["seconds"] > 0 and math.isfinite(row["seconds"]), row
        assert row["spread"] >= 0 and math.isfinite(row["spread"]), row
        assert row["repeats"] >= 3, row


def test_points_are_not_repeated(record):
    measured = ("seconds", "spread", "repeats", "launches_per_repeat")
    for family in FAMILIES_ON_CPU:
        rows = [row for row in record["rows"] if row["family"] == family]
        points = {tuple(item for item in row.items() if item[0] not in measured) for row in rows}
        assert len(points) == len(rows), family


def test_skipped_points_have_reasons(record):
    skipped = record["environment"]["skipped"]
    assert {item["family"] for item in skipped} >= {"gemm", "attention", "collective"}
    assert all(item["reason"] for item in skipped)
    assert not [item for item in skipped if "Error" in item["reason"]]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--device", "nonsense"],
        ["--device", "meta"],
        ["--device", "cuda:99"],
        ["--device", "cpu", "--families", "gemm,nonsense"],
        ["--device", "cpu", "--nonsense"],
        ["--device", "cpu", "--config", "nowhere.json"],
        [],
    ],
)
def test_bad_arguments(measure, tmp_path, capsys, arguments):
    out = tmp_path / "out.json"
    assert measure.main([*arguments, "--out", str(out)]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("measure: ") and captured.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_missing_folder(measure, tmp_path, capsys):
    assert measure.main(["--device", "cpu", "--out", str(tmp_path / "missing" / "out.json")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_failing_points_are_skipped(measure):
    timing = importlib.import_module("calibration.measure.timing")

    def fail() -> dict:
        raise RuntimeError("no such kernel\nand more")

    points = [timing.Point({"index": 0}, fail), timing.Point({"index": 1}, lambda: {"seconds": 1.0})]
    skipped: list[tuple] = []
    rows = measure.run_points(
        "gemm", points, math.inf, lambda *entry: skipped.append(entry), lambda text: None
    )
    assert rows == [{"family": "gemm", "index": 1, "seconds": 1.0}]
    assert skipped == [({"index": 0}, "RuntimeError: no such kernel")]


def test_used_up_budget_is_recorded(measure):
    timing = importlib.import_module("calibration.measure.timing")
    points = [timing.Point({"index": index}, lambda: {"seconds": 1.0}) for index in range(3)]
    skipped: list[tuple] = []
    rows = measure.run_points(
        "gemm", points, -math.inf, lambda *entry: skipped.append(entry), lambda text: None
    )
    assert rows == []
    assert skipped == [("last 3 of 3 points", "time budget used up")]


def test_nothing_is_left_of_a_failed_write(measure, tmp_path):
    with pytest.raises(TypeError):
        measure.write_whole({"schema": 1, "environment": {}, "rows": [object()]}, tmp_path / "out.json")
    assert not list(tmp_path.iterdir())

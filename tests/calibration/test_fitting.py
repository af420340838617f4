"""Fits recover the constants that made the data, say how sure they are, and refuse data that can't tell."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import costmodel
from calibration.__main__ import main
from calibration.data.reference import QUOTED
from calibration.fit.operators import (
    FAMILIES,
    LEAST_ROWS,
    Operator,
    fit_operators,
    predict,
    read_measurement,
    read_micro,
)
from costmodel.evaluation import own_runs_fit as fitting
from costmodel.evaluation.first_contacts import NINETY
from costmodel.evaluation.own_runs_fit import Fit, UnknownConstant, fit
from costmodel.text.errors import CostModelError, UnreadableFile

NOISE = 0.02
EFFICIENCIES = Path(costmodel.__file__).parent / "catalogue" / "efficiencies.toml"


def law(design: np.ndarray, truth: np.ndarray, constants: list[UnknownConstant], noise: float, seed: int, **options) -> Fit:
    """Fit of products of powers of the constants, which are lines in logarithms."""
    measured = design @ np.log(truth) + np.random.default_rng(seed).normal(0.0, noise, len(design))

    def residuals(values, rows):
        error = design @ np.log(values) - measured
        return error if rows is None else error[rows]

    affects = [np.flatnonzero(column) for column in design.T]
    return fit(constants, residuals, len(design), affects, np.ones(len(design)), noise, **options)


def unknowns(*values: float, spread: float = 1.0) -> list[UnknownConstant]:
    return [UnknownConstant("it", f"c{i}", value, spread, 1e-6, 1e6) for i, value in enumerate(values)]


DESIGN = np.random.default_rng(1).uniform(-1.0, 1.0, (40, 3))
TRUTH = np.array([2.0, 0.5, 30.0])


def test_constants_without_noise_are_found():
    found = law(DESIGN, TRUTH, unknowns(1.0, 1.0, 10.0, spread=100.0), 1e-4, seed=0)
    assert found.values == pytest.approx(TRUTH, rel=1e-3)
    assert found.scale < 1e-3


def test_a_decomposition_that_fails_is_tried_again_beside_it(monkeypatch):
    plain = law(DESIGN, TRUTH, unknowns(1.0, 1.0, 10.0, spread=3.0), NOISE, seed=0)
    solver, calls = fitting.least_squares, []

    def failing(*arguments, **options):
        calls.append(1)
        found = solver(*arguments, **options)
        if len(calls) == 1:
            raise np.linalg.LinAlgError("SVD did not converge")
        return found

    monkeypatch.setattr(fitting, "least_squares", failing)
    again = law(DESIGN, TRUTH, unknowns(1.0, 1.0, 10.0, spread=3.0), NOISE, seed=0)
    assert len(calls) == 2
    assert again.values == pytest.approx(plain.values, rel=1e-3)


def test_standard_errors_cover_the_truth():
    # 90 % intervals of 200 fits with three constants each
    inside, normal = [], []
    for seed in range(200):
        found = law(DESIGN, TRUTH, unknowns(1.0, 1.0, 10.0, spread=3.0), NOISE, seed)
        error = (np.log(found.values) - np.log(TRUTH)) / found.standard_errors
        inside += list(np.abs(error) <= NINETY)
        normal += list(error)
    assert 0.85 <= np.mean(inside) <= 0.99
    assert 0.7 <= np.std(normal) <= 1.1


def test_standard_errors_shrink_with_the_root_of_the_rows():
    few = law(DESIGN, TRUTH, unknowns(2.0, 0.5, 30.0, spread=10.0), NOISE, seed=3)
    many = law(np.tile(DESIGN, (16, 1)), TRUTH, unknowns(2.0, 0.5, 30.0, spread=10.0), NOISE, seed=3)
    assert few.standard_errors / many.standard_errors == pytest.approx(4.0, rel=0.15)


def test_a_constant_that_no_row_depends_on_stays_at_its_prior_with_the_priors_spread():
    design = np.column_stack([DESIGN, np.zeros(len(DESIGN))])
    constants = [*unknowns(1.0, 1.0, 10.0), UnknownConstant("it", "unseen", 7.0, 0.4, 1.0, 50.0)]
    found = law(design, np.array([*TRUTH, 20.0]), constants, NOISE, seed=2)
    assert found.values[3] == pytest.approx(7.0)
    assert found.standard_errors[3] == pytest.approx(0.4)
    assert found.values[:3] == pytest.approx(TRUTH, rel=0.1)


def test_of_two_constants_that_only_act_together_the_product_is_known():
    design = np.column_stack([np.ones(30), np.ones(30)])
    found = law(design, np.array([3.0, 5.0]), unknowns(1.0, 1.0), NOISE, seed=4)
    assert np.prod(found.values) == pytest.approx(15.0, rel=0.02)
    # equal priors share the change, and each alone is hardly better known than before
    assert found.values[0] == pytest.approx(found.values[1], rel=1e-3)
    assert found.standard_errors == pytest.approx(np.sqrt(0.5), rel=0.05)
    correlation = found.covariance[0, 1] / np.prod(found.standard_errors)
    assert correlation < -0.99


def test_a_tight_prior_holds_against_few_rows():
    found = law(np.ones((1, 1)), np.array([2.0]), unknowns(1.0, spread=1e-3), NOISE, seed=0)
    assert found.values[0] == pytest.approx(1.0, rel=0.01)


def test_outliers_pull_little():
    truth, constants = np.array([2.0]), unknowns(1.0, spread=10.0)
    measured = np.full(50, np.log(2.0)) + np.random.default_rng(0).normal(0.0, NOISE, 50)
    measured[:5] += 2.0  # seven times slower

    def residuals(values, rows):
        error = np.log(values[0]) - measured
        return error if rows is None else error[rows]

    found = fit(constants, residuals, 50, [np.arange(50)], np.ones(50), NOISE)
    assert found.values == pytest.approx(truth, rel=0.02)


def test_values_stay_inside_their_bounds():
    constants = [UnknownConstant("it", "c", 0.9, 10.0, 0.5, 1.0)]
    found = law(np.ones((20, 1)), np.array([3.0]), constants, NOISE, seed=0)
    assert 0.5 <= found.values[0] <= 1.0
    assert found.values[0] == pytest.approx(1.0, rel=1e-3)


def test_a_source_of_larger_noise_counts_less():
    measured = np.log(np.array([2.0] * 10 + [3.0] * 10))

    def residuals(values, rows):
        error = np.log(values[0]) - measured
        return error if rows is None else error[rows]

    def fitted(noise):
        return fit(unknowns(1.0, spread=10.0), residuals, 20, [np.arange(20)], np.ones(20), noise).values[0]

    assert fitted(np.array([0.01] * 10 + [0.3] * 10)) == pytest.approx(2.0, rel=0.03)
    assert fitted(np.array([0.3] * 10 + [0.01] * 10)) == pytest.approx(3.0, rel=0.03)


# ---- operators of a device

DEVICE = costmodel.load_device("h100-sxm")
BASE = {"bf16": DEVICE.numbers("bf16")}


def operators(family: str, count: int, seed: int = 0, **true: float) -> list[Operator]:
    """Operators of one family as a device with some other constants would run them."""
    chance = np.random.default_rng(seed)
    numbers = BASE["bf16"]._replace(**true)
    out = []
    for _ in range(count):
        if family == "gemm":
            m, n, k = 2.0 ** chance.integers(7, 14, 3)
            sizes = {"m": m, "n": n, "k": k, "element_bytes": 2.0}
        elif family == "attention":
            backward = float(chance.integers(2))
            seq_len = 2.0 ** chance.integers(9, 15)
            sizes = {"batch": 16384.0 / seq_len, "heads": 16.0, "head_dim": 128.0, "seq_len": seq_len,
                     "causal": float(chance.integers(2)), "forward": 1.0 - backward, "backward": backward}  # fmt: skip
        else:
            sizes = {"nbytes": 2.0 ** chance.integers(28, 33)}
        operator = Operator("h100-sxm", family, sizes, "bf16", 1.0, "synthetic")
        seconds = float(predict(operator, numbers)) * np.exp(chance.normal(0.0, NOISE))
        out.append(dataclasses.replace(operator, seconds=float(seconds)))
    return out


def test_constants_of_a_device_are_recovered_from_its_operators():
    base = BASE["bf16"]
    true = {
        "gemm_efficiency": 0.85 * base.gemm_efficiency, "memory_bandwidth": 0.9 * base.memory_bandwidth,
        "attention_forward_efficiency": 1.1 * base.attention_forward_efficiency,
        "attention_backward_efficiency": 0.8 * base.attention_backward_efficiency,
    }  # fmt: skip
    counts = {"gemm": 150, "attention": 60, "stream": 10}
    members = [op for family, count in counts.items() for op in operators(family, count, **true)]
    found = fit_operators(members, BASE)
    fields = [constant.field for constant in found.constants]
    values = dict(zip(fields, zip(found.values, found.standard_errors, strict=True), strict=True))
    assert set(values) == {field for fields in FAMILIES.values() for field in fields}
    for field, expected in true.items():
        value, error = values["gemm.bf16" if field == "gemm_efficiency" else field]
        assert value == pytest.approx(expected, rel=0.05), field
        assert abs(np.log(value / expected)) < 3.5 * error, field
    assert found.scale == pytest.approx(NOISE, rel=0.3)


@pytest.mark.parametrize("family", FAMILIES)
def test_data_that_cant_identify_a_constant_are_refused_naming_it(family):
    others = [op for other in FAMILIES if other != family for op in operators(other, 12)]
    few = operators(family, LEAST_ROWS[family] - 1)
    with pytest.raises(CostModelError) as caught:
        fit_operators([*others, *few], BASE)
    for constant in FAMILIES[family]:
        assert constant in str(caught.value)
    assert "h100-sxm" in str(caught.value)


@pytest.mark.parametrize("family", FAMILIES)
def test_one_family_alone_fits_its_own_constants_and_no_others(family):
    found = fit_operators(operators(family, 20), BASE)
    assert [constant.field for constant in found.constants] == list(FAMILIES[family])
    assert {constant.owner for constant in found.constants} == {"h100-sxm"}


def test_operators_of_no_known_family_identify_nothing():
    strange = dataclasses.replace(operators("stream", 1)[0], family="abacus")
    with pytest.raises(CostModelError, match="no row of h100-sxm identifies any constant"):
        fit_operators([strange], BASE)


# ---- files of `measure`


@pytest.fixture
def catalogue_untouched():
    before = EFFICIENCIES.stat().st_mtime_ns
    yield
    assert EFFICIENCIES.stat().st_mtime_ns == before


def refused(capsys, path: Path) -> str:
    """The one line with which ``fit`` refuses a file."""
    assert main(["fit", "--dry-run", str(path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.startswith("calibration: error: ")
    return said.err




def measured_file(path: Path, device: str, rows: list[dict]) -> Path:
    """A file as `measure` writes it."""
    path.write_text(json.dumps({"schema": 1, "environment": {"device": device}, "rows": rows}), encoding="utf-8")
    return path


def test_a_device_that_the_catalogue_lacks_is_refused_by_name(tmp_path, capsys):
    assert "'Abacus 3000' is not in the catalogue" in refused(capsys, measured_file(tmp_path / "a.json", "Abacus 3000", []))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"environment": {}}', "\x00"])
def test_a_file_that_measure_did_not_write_is_refused_in_one_line(tmp_path, capsys, text):
    path = tmp_path / "a.json"
    path.write_text(text, encoding="utf-8")
    assert "not a file of `calibration measure`" in refused(capsys, path)


def test_too_few_measurements_are_refused_naming_the_constants(tmp_path, capsys):
    row = {"family": "gemm", "dtype": "bf16", "m": 4096, "n": 4096, "k": 4096, "seconds": 2e-4}
    said = refused(capsys, measured_file(tmp_path / "a.json", "NVIDIA H200", [row]))
    assert "1 rows of family 'gemm' can't identify gemm.bf16, gemm_output, gemm_depth, kernel_time of h200-sxm" in said


def test_measured_rows_become_operators(tmp_path):
    rows = [
        {"family": "gemm", "dtype": "bf16", "m": 1, "n": 2, "k": 3, "seconds": 1.0},
        {"family": "attention", "kernel": "flash", "batch": 1, "heads": 2, "head_dim": 64, "seq": 128, "causal": True,
         "direction": "backward", "seconds": 2.0},
        {"family": "attention", "kernel": "math", "seconds": 2.0},
        {"family": "copy", "kind": "device", "nbytes": 1000, "seconds": 3.0},
        {"family": "launch", "seconds": 4.0},
    ]  # fmt: skip
    found = read_measurement(measured_file(tmp_path / "a.json", "NVIDIA H200", rows))
    assert [(op.device, op.family, op.seconds) for op in found] == [
        ("h200-sxm", "gemm", 1.0), ("h200-sxm", "attention", 2.0), ("h200-sxm", "stream", 3.0),
    ]  # fmt: skip
    assert found[1].parameters["backward"] == 1.0
    assert found[2].parameters["nbytes"] == 2000.0  # read and written


PROFILED_HEADER = "gpu,family,op,tp,fwd_us,bwd_us,weights_mb,activations_mb\n"


@pytest.mark.parametrize(
    ("row", "sizes", "seconds"),
    [  # rows of microsoft/SuperScaler@fa80ad02c1 profiler/profiled-time-eurosys: hidden 5120 and 2,048 tokens a sample
        ("V100-32GB,gpt,enc-MLP-GEMM-1,1,5034.291,8754.508,200.0,80.0", (2048, 20480, 5120), 5.034291e-3),
        ("V100-32GB,gpt,enc-MLP-GEMM-1,8,5009.1,10752.6,25.0,80.0", (16384, 2560, 5120), 5.0091e-3),
        ("V100-32GB,gpt,enc-MLP-GEMM-2,4,3449.3,4201.9,50.0,40.0", (4096, 5120, 5120), 2.10095e-3),
    ],
)
def test_profiled_layers_give_the_products_of_their_mlps(tmp_path, row, sizes, seconds):
    others = "V100-32GB,gpt,enc-attention-softmax,1,763.3,1021.6,0.0,320.0\nV100-32GB,resnet,enc-MLP-GEMM-1,1,1,1,1,1\n"
    short = "V100-32GB,gpt,enc-MLP-GEMM-1,8,88.7,437.4,0.25,2.0\n"
    (tmp_path / "ops_aceso_v100.csv").write_text(PROFILED_HEADER + row + "\n" + others + short, encoding="utf-8")
    (found,) = read_micro(tmp_path)
    m, n, k = (found.parameters[key] for key in ("m", "n", "k"))
    assert (m, n, k) == pytest.approx(sizes, rel=1e-3)
    assert found.seconds == pytest.approx(seconds)
    assert 0.5 * 125e12 < 2 * m * n * k / found.seconds < 125e12


def test_a_missing_measurement_is_refused(tmp_path):
    with pytest.raises(UnreadableFile, match="absent"):
        read_measurement(tmp_path / "absent.json")


@pytest.mark.usefixtures("catalogue_untouched")
def test_what_is_measured_on_a_cpu_is_refused_by_fit_because_no_catalogue_has_it(tmp_path, capsys):
    pytest.importorskip("torch", reason="measuring needs PyTorch")
    out = tmp_path / "cpu.json"
    command = [sys.executable, "-m", "calibration", "measure", "--device", "cpu", "--quick", "--families", "gemm,copy"]
    finished = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, timeout=300, cwd=QUOTED.parents[1])
    assert finished.returncode == 0, finished.stderr
    assert "is not in the catalogue" in refused(capsys, out)


def test_a_constant_at_its_bound_is_never_tried_beyond_it():
    """A share that data would take above 1 stays there, also while its slope is looked at."""
    measured = np.log(np.array([1.2, 1.3, 1.25]))

    def residuals(values, rows):
        assert values[0] <= 1.0 + 1e-12
        errors = np.log(values[0] * np.ones(3)) - measured
        return errors if rows is None else errors[rows]

    result = fit([UnknownConstant("share", "", 0.9, 0.3, 0.1, 1.0)], residuals, 3, [np.arange(3)], np.ones(3))
    assert result.values[0] == pytest.approx(1.0, abs=1e-3)

"""Fits recover the constants that made the data, say how sure they are, and refuse data that can't tell."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from calibration.__main__ import main
from calibration.data.reference import QUOTED
from calibration.fit import command
from calibration.fit.figures_by_distance import DISTANCE
from costmodel.evaluation import own_runs_fit as fitting
from costmodel.evaluation.first_contacts import NINETY
from costmodel.evaluation.own_runs_fit import Fit, UnknownConstant, fit

NOISE = 0.02


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


def test_a_constant_at_its_bound_is_never_tried_beyond_it():
    """A share that data would take above 1 stays there, also while its slope is looked at."""
    measured = np.log(np.array([1.2, 1.3, 1.25]))

    def residuals(values, rows):
        assert values[0] <= 1.0 + 1e-12
        errors = np.log(values[0] * np.ones(3)) - measured
        return errors if rows is None else errors[rows]

    result = fit([UnknownConstant("share", "", 0.9, 0.3, 0.1, 1.0)], residuals, 3, [np.arange(3)], np.ones(3))
    assert result.values[0] == pytest.approx(1.0, abs=1e-3)


def test_files_without_peaks_are_refused_in_one_line(capsys):
    assert main(["fit", "--dry-run", str(QUOTED)]) == 2
    said = capsys.readouterr()
    assert said.err == "calibration: error: nothing to fit: no run of these files has a peak\n" and not said.out


def test_a_fit_that_is_judged_leaves_the_constants(monkeypatch):
    made, written = {"constants.csv": "theirs", str(DISTANCE): "judged"}, {}
    monkeypatch.setattr(command, "_run_tables", lambda cases, arguments: made)
    monkeypatch.setattr(command, "write", written.update)
    monkeypatch.setattr(command, "measured_runs", lambda files: [SimpleNamespace(peak_bytes=1.0, seconds=1.0)])
    assert main(["fit", "--left-out"]) == 0
    assert written == {DISTANCE: "judged"}

"""The pooled fit finds the constants that made its data, owns up to what it can't know, and isn't outvoted by a sweep."""

from __future__ import annotations

import csv
import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.fit import pooled
from calibration.fit.distance import Unseen, factor_of, folds_of, predicted_by, spreads_of
from calibration.fit.effects import run_counts
from calibration.fit.fields import MEMORY, TIME, Field
from calibration.fit.pooled import Effect, Grouping, Model
from calibration.fit.problem import clocked, constants_of, thinned
from calibration.fit.runs import IDENTIFIED, solve, tells_time
from costmodel.catalogue.effects import Link
from costmodel.catalogue.loader import load_device
from costmodel.catalogue.records.runs import run_of
from costmodel.evaluation.first_contacts import NINETY
from costmodel.formulas.compute import product_clock

RATE = Field("rate", 1.0, 0.0, math.inf, {"field": 1.0, "framework": 0.4})
FIXED = Field("fixed", 1.0, 0.0, math.inf, {"field": 1.0, "framework": 0.4})


def world(seed: int, frameworks: int = 8, rows: int = 30, sweep: int = 0) -> tuple[Model, np.ndarray]:
    """Runs that take work / rate + fixed, of frameworks whose rates differ; `sweep` more of the first one."""
    random = np.random.default_rng(seed)
    truth = 1.5 * np.exp(random.normal(0.0, 0.4, frameworks))
    owner = np.repeat(np.arange(frameworks), rows)
    owner = np.concatenate([owner, np.zeros(sweep, dtype=int)])
    work = np.exp(random.uniform(0.0, 4.0, len(owner)))
    measured = np.log(work / truth[owner] + 0.7) + random.normal(0.0, 0.03, len(owner))
    names = np.array([f"f{n}" for n in owner])
    group = np.array([f"{name} {n % 3}" for n, name in enumerate(names)])

    def predict(places, wanted):
        known = work if wanted is None else work[wanted]
        constants = constants_of((RATE, FIXED), places)
        return np.log(known / constants["rate"] + constants["fixed"])

    owners = {"field": np.full(len(owner), ""), "framework": names}
    return Model((RATE, FIXED), Grouping(owners, names, group, names), measured, predict), truth


def rate_of(found: pooled.Posterior, framework: str) -> float:
    value = dict(zip(found.effects, found.mean, strict=True))
    return math.exp(value[Effect(0, "field", "")] + value.get(Effect(0, "framework", framework), 0.0))


def test_rates_that_made_the_runs_are_found():
    model, truth = world(0)
    found = pooled.fit(model, np.arange(len(model.measured)))
    for number, rate in enumerate(truth):
        assert rate_of(found, f"f{number}") == pytest.approx(rate, rel=0.12)


def test_of_constants_that_make_up_for_each_other_the_one_of_the_widest_prior_stays():
    random = np.random.default_rng(3)
    fields = [Field(name, 1.0, 0.0, math.inf, {"field": spread}) for name, spread in (("a", 1.0), ("b", 0.95), ("c", 0.9))]
    names = np.array([f"f{n % 20}" for n in range(200)])
    work = np.exp(random.uniform(0.0, 4.0, len(names)))
    measured = np.log(work) - 0.8 + random.normal(0.0, 0.03, len(names))  # three rates whose product alone is seen

    def predict(places, wanted):
        return np.log(work if wanted is None else work[wanted]) - places.sum(axis=1)

    grouping = Grouping({"field": np.full(len(names), "")}, names, names, names)
    found = solve(Model(fields, grouping, measured, predict), iterations=6, averaged=False)
    left = {effect: (mean, math.sqrt(variance)) for effect, mean, variance in zip(
        found.effects, found.mean, np.diag(found.covariance), strict=True) if effect.field >= 0}  # fmt: skip
    assert list(left) == [Effect(0, "field", "")]
    mean, error = left[Effect(0, "field", "")]
    assert error < IDENTIFIED
    assert mean == pytest.approx(0.8, abs=3.0 * error)


def test_no_more_effects_are_dropped_than_leave_most_of_them_identified():
    slopes = np.array([1.0] * 6 + [0.08, 0.081, 0.082, 0.083, 0.084, 0.085])  # the last six leave three quarters of their spread
    fields = [Field(str(n), 1.0, 0.0, math.inf, {"field": 1.0}) for n in range(len(slopes))]
    of = np.concatenate([np.repeat(np.arange(6), 20), np.arange(6, 12)])
    names = of.astype(str)

    def predict(places, wanted):
        chosen = of if wanted is None else of[wanted]
        return slopes[chosen] * places[np.arange(len(chosen)), chosen]

    grouping = Grouping({"field": np.full(len(of), "")}, names, names, np.full(len(of), "source"))
    found = solve(Model(fields, grouping, 0.3 * slopes[of], predict), 5, averaged=False)
    left = {fields[effect.field].path for effect in found.effects if effect.field >= 0}
    assert left == {"0", "1", "2", "3", "4", "5", "8", "9", "10", "11"}  # six of ten


def test_the_spread_over_frameworks_is_estimated():
    model, truth = world(1, frameworks=16)
    found = pooled.fit(model, np.arange(len(model.measured)))
    assert found.spreads.effects[0, "framework"] == pytest.approx(np.std(np.log(truth)), rel=0.35)


def test_a_framework_without_runs_gets_the_mean_and_the_spread_over_frameworks():
    model, _ = world(2)
    names = model.grouping.owners["framework"]
    found = pooled.fit(model, np.flatnonzero(names != "f3"))
    *_, known = predicted_by(model, found, np.flatnonzero(names == "f2"))
    *_, unknown = predicted_by(model, found, np.flatnonzero(names == "f3"))
    assert np.median(unknown) > 4.0 * np.median(known)
    assert Effect(0, "framework", "f3") not in found.effects


def test_ninety_per_cent_intervals_hold_on_frameworks_left_out():
    held = []
    for seed in range(3):
        model, _ = world(10 + seed, rows=12)
        names = model.grouping.owners["framework"]
        for left_out in ("f0", "f1"):
            found = pooled.fit(model, np.flatnonzero(names != left_out), iterations=6)
            rows = np.flatnonzero(names == left_out)
            predicted, _, variance = predicted_by(model, found, rows)
            held += list(np.abs(model.measured[rows] - predicted) <= NINETY * np.sqrt(variance))
    assert 0.75 <= np.mean(held) <= 1.0


def test_a_sweep_of_a_thousand_rows_does_not_move_the_mean_of_the_field():
    few, _ = world(4)
    many, _ = world(4, sweep=1000)
    means = []
    for model in (few, many):
        found = pooled.fit(model, thinned(model.grouping))
        means.append(dict(zip(found.effects, found.mean, strict=True))[Effect(0, "field", "")])
    assert means[0] == pytest.approx(means[1], abs=0.1)


def test_of_a_group_no_more_rows_are_fitted_than_asked_for():
    model, _ = world(5, sweep=300)
    kept = thinned(model.grouping, 7)
    _, counts = np.unique(model.grouping.group[kept], return_counts=True)
    assert counts.max() == 7


@pytest.mark.parametrize("field", [*TIME, *MEMORY], ids=lambda field: field.path)
@settings(max_examples=15)
@given(place=st.floats(-1e3, 1e3))
def test_no_place_on_its_line_takes_a_constant_out_of_its_bounds(field, place):
    value = float(constants_of([field], np.array([[place]]))[field.path][0])
    assert field.low <= value <= field.high
    assert math.isfinite(value)


@given(low=st.floats(-5.0, 5.0), width=st.floats(0.1, 10.0), share=st.floats(0.01, 0.99))
def test_a_link_is_undone_by_its_inverse(low, width, share):
    link = Link(low, low + width)
    value = low + share * width
    assert link.to_constant(link.to_line(value)) == pytest.approx(value)
    open_above = Link(low, math.inf)
    assert open_above.to_constant(open_above.to_line(value)) == pytest.approx(value)


def test_a_factor_widens_intervals_until_they_hold_nine_in_ten():
    errors = np.random.default_rng(0).normal(0.0, 0.3, 2000)
    assert factor_of(errors, np.full(2000, 0.1), np.full(2000, "one")) == pytest.approx(3.0, rel=0.1)


def test_the_spread_of_a_fold_does_not_follow_its_own_errors():
    random = np.random.default_rng(1)
    errors, fold = random.normal(0.0, 0.1, 400), np.arange(400) % 4
    sources = np.full(400, "one")
    found = Unseen(np.zeros(400), np.zeros(400), np.full(400, 0.01), fold)
    before = spreads_of(errors, found, sources)
    errors[fold == 2] *= 50.0
    after = spreads_of(errors, found, sources)
    assert after[fold == 2] == pytest.approx(before[fold == 2])
    assert after[0] > before[0]


@pytest.mark.parametrize("level", ["model", "cluster", "device", "framework"])
def test_a_group_is_left_out_whole(level):
    from calibration.data.reference import QUOTED
    from calibration.data.runs import measured_runs
    from calibration.fit.distance import KEYS
    from calibration.fit.problem import group_name

    cases = measured_runs([QUOTED])
    fold = folds_of(cases, level, np.array([group_name(case) for case in cases]))
    folds: dict[str, set[int]] = {}
    for case, number in zip(cases, fold, strict=True):
        folds.setdefault(KEYS[level](case), set()).add(int(number))
    assert all(len(numbers) == 1 for numbers in folds.values())


@pytest.mark.parametrize("dtype", ["bf16", "fp8", "fp8-block", "tf32"])
def test_a_fit_sets_the_clocks_that_a_device_would_have_at_each_width(dtype):
    device = load_device("h100-sxm")
    plain = dataclasses.replace(device.efficiency, sustained_clock=1.0, narrow_clock=1.0)
    known = dataclasses.replace(device.efficiency, sustained_clock=0.8, narrow_clock=0.9)
    fitted = clocked(dataclasses.replace(device, efficiency=plain).numbers(dtype), (0.8, 0.9))
    assert fitted == dataclasses.replace(device, efficiency=known).numbers(dtype)
    assert fitted.sustained_clock == 0.8
    assert product_clock(fitted) == (0.9 if dtype.startswith("fp8") else 0.8)


def test_steps_on_cards_whose_power_was_limited_tell_nothing_of_software():
    """Eight B200 with less power, on which torchtitan trained 8,308 tokens/s of Llama 3 8B each, not 12,211 as on others.

    pytorch/ao@36027d8 docs/source/workflows/training.md; pytorch/torchtitan#1196.
    """
    record = {
        "id": "ours/1", "model": "llama3-8b", "cluster": {"name": "dgx-b200", "gpus": 8}, "software": {"framework": "fsdp2"},
        "plan": {"global_batch": 8, "seq_len": 8192}, "measured": {"step_time_s": 0.986},
    }  # fmt: skip
    limited = record | {"cluster": {**record["cluster"], "power_limited": True}}
    assert [tells_time(run_of(one)) for one in (record, limited)] == [True, False]


def test_figures_of_a_level_count_sources_alike_and_verdicts_run_by_run(monkeypatch):
    from calibration.fit import figures_by_distance

    record = {
        "model": "llama3-8b", "cluster": {"name": "dgx-h100", "gpus": 8}, "software": {"framework": "fsdp2"},
        "plan": {"global_batch": 8, "seq_len": 8192},
    }  # fmt: skip
    measured = [{"peak_memory_bytes": 2**36}, {"peak_memory_bytes": 2**36}, {"peak_memory_bytes": 2**36}, {"out_of_memory": True}]
    cases = [run_of(record | {"id": f"{source}/{n}", "measured": said})
             for n, (source, said) in enumerate(zip("aabb", measured, strict=True))]  # fmt: skip
    errors = np.array([0.1, 0.3, -0.4, np.nan])
    known = np.log(2.0**36) + np.where(np.isnan(errors), np.nan, 0.0)
    found = Unseen(known - errors, np.array([24.0, 24.0, 26.0, 26.0]), np.full(4, 0.04), np.array([0, 1, 0, 1]))
    monkeypatch.setattr(figures_by_distance, "unseen", lambda *_: {"plan": found})
    fitted = SimpleNamespace(cases=cases, model=SimpleNamespace(measured=known), posterior=None)
    text = figures_by_distance.by_distance(fitted, fitted)
    rows = {(row["what"], row["source"]): row for row in csv.DictReader(text.splitlines())}
    of = {one: float(rows["memory", one]["mape"]) for one in ("a", "b", figures_by_distance.ALL)}
    assert of["a"] == pytest.approx(1.0 - (math.exp(-0.1) + math.exp(-0.3)) / 2) and of["b"] == pytest.approx(math.expm1(0.4))
    assert of[figures_by_distance.ALL] == pytest.approx((of["a"] + of["b"]) / 2)
    every = rows["memory", figures_by_distance.ALL]
    assert [every[name] for name in ("runs", "ran_out", "ran_out_told", "ran", "ran_told")] == ["3", "1", "1", "3", "2"]


def test_runs_are_counted_by_framework_and_device_and_those_of_no_framework_of_the_catalogue_only_as_timed():
    record = {"model": "mixtral-8x7b", "cluster": {"name": "dgx-h100", "gpus": 8}, "plan": {"global_batch": 8, "seq_len": 8192}}
    dense, mixture, other = (
        run_of(record | {"id": f"a/{name}", "model": model, "software": {"framework": name, "nearest": "fsdp2"},
                         "measured": {"step_time_s": 1.0}})
        for name, model in (("fsdp2", "llama3-8b"), ("fsdp2", "mixtral-8x7b"), ("somebodys", "llama3-8b"))
    )  # fmt: skip
    counted = run_counts([dense, mixture, mixture, other], [dense, other])
    assert [(one.framework, one.device, one.timed, one.runs, one.experts) for one in counted] == [
        ("fsdp2", "h100-sxm", 1, 3, 2), ("somebodys", "h100-sxm", 1, 0, 0),
    ]  # fmt: skip

"""Errors, verdicts, rankings and coverage against values computed by hand or by brute force."""

from __future__ import annotations

import dataclasses
import itertools
import random

import pytest

from calibration.data.cases import Case, case_of
from calibration.data.runs import Run, read_runs
from calibration.validate.command import QUOTED, percent
from calibration.validate.metrics import (
    Prediction,
    coverage,
    error_summary,
    rank_quality,
    rule_order,
    summary,
    verdicts,
)
from costmodel.text.units import GiB

BASE = read_runs(QUOTED / "korthikanti2022_table5.csv")[0]


def case(seconds: float | None = None, gib: float | None = None, oom: bool = False, **columns: float) -> Case:
    """A run of the 22B model on eight GPUs with what was measured of it."""
    text = {
        **BASE.text, "usable_time": str(int(seconds is not None)), "usable_mem": str(int(gib is not None)),
        "usable_oom": str(int(oom)),
    }  # fmt: skip
    number = {**BASE.number, "global_batch": 64.0, **columns}
    measured = {"step_time_s": seconds, "peak_memory_gib": gib}
    number = {key: value for key, value in {**number, **measured}.items() if value is not None}
    return case_of(Run(BASE.file, text, number))


def prediction(of: Case, seconds: float = 1.0, nbytes: float = 1.0, fits: bool = True, width: float = 1.5) -> Prediction:
    return Prediction(of, seconds, seconds / width, seconds * width, nbytes, nbytes / width, nbytes * width, fits)


def group(measured: list[float], predicted: list[float], degrees=None, **columns: float) -> list[Prediction]:
    """Runs that may be compared: the same but for how eight GPUs are divided."""
    degrees = degrees or [(1, 8, 1)] * len(measured)
    return [
        prediction(case(seconds, tp=tensor, dp=data, micro_batch=micro, **columns), guess)
        for seconds, guess, (tensor, data, micro) in zip(measured, predicted, degrees, strict=True)
    ]


def test_error_summary_of_three_rows_by_hand():
    # errors +10 %, -20 %, 0: sizes 0, 10, 20 %, whose 95th percentile lies nine tenths of the way from 10 to 20
    found = error_summary([1.1, 1.6, 3.0], [1.0, 2.0, 3.0])
    assert found == pytest.approx({"n": 3, "mape": 0.1, "median_ape": 0.1, "p95_ape": 0.19, "bias": -0.1 / 3})


def test_error_summary_of_nothing_has_no_numbers():
    assert error_summary([], []) == {"n": 0, "mape": None, "median_ape": None, "p95_ape": None, "bias": None}


def test_regret_is_the_chosen_plans_time_over_the_best():
    # predicted fastest is the second, measured 12 s where 8 s were possible
    found = rank_quality(group([10.0, 12.0, 8.0, 20.0], [5.0, 4.0, 6.0, 7.0]))
    assert found["groups"] == 1
    assert found["top1"] == 0.0
    assert found["median_regret"] == found["mean_regret"] == pytest.approx(0.5)
    assert found["random_mean_regret"] == pytest.approx(12.5 / 8.0 - 1.0)


def test_groups_are_averaged_and_plans_for_different_work_are_not_compared():
    first = group([10.0, 12.0, 8.0, 20.0], [5.0, 4.0, 6.0, 7.0])
    second = group([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0], seq_len=4096.0)
    third = group([5.0, 6.0, 8.0, 7.0, 9.0], [9.0, 1.0, 2.0, 3.0, 4.0], global_batch=128.0)
    found = rank_quality([*first, *second, *third])
    assert found["groups"] == 3
    assert found["top1"] == pytest.approx(1 / 3)
    assert found["median_regret"] == pytest.approx(0.2)
    assert found["mean_regret"] == pytest.approx((0.5 + 0.0 + 0.2) / 3)


def test_three_plans_are_too_few_to_rank():
    found = rank_quality(group([3.0, 1.0, 2.0], [3.0, 1.0, 2.0]))
    keys = {"top1", "median_regret", "mean_regret", "rule_mean_regret", "random_mean_regret", "kendall_tau"}
    assert found == {"groups": 0, **dict.fromkeys(keys)}


def test_runs_without_a_time_are_not_ranked():
    timed = group([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    assert rank_quality([*timed, prediction(case(gib=1.0)), prediction(case(oom=True))])["groups"] == 0


def test_the_rule_takes_most_data_parallelism_then_the_largest_micro_batch():
    degrees = [(8, 1, 8), (2, 4, 1), (2, 4, 4), (4, 2, 8)]
    members = group([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0], degrees)
    assert min(members, key=lambda p: rule_order(p.case)) is members[2]
    assert rank_quality(members)["rule_mean_regret"] == pytest.approx(2.0)


def test_kendall_tau_counts_pairs_in_order_and_out_of_order():
    chance = random.Random(5)
    measured = [float(value) for value in chance.sample(range(1, 100), 9)]
    predicted = [float(value) for value in chance.sample(range(1, 100), 9)]
    signs = [
        1 if (measured[i] - measured[j]) * (predicted[i] - predicted[j]) > 0 else -1
        for i, j in itertools.combinations(range(9), 2)
    ]
    found = rank_quality(group(measured, predicted))
    assert found["kendall_tau"] == pytest.approx(sum(signs) / len(signs))


def test_equal_measurements_have_no_order_to_find():
    found = rank_quality(group([2.0] * 4, [1.0, 2.0, 3.0, 4.0]))
    assert found["kendall_tau"] is None
    assert found["mean_regret"] == 0.0
    assert found["top1"] == 1.0


def test_regret_agrees_with_brute_force_over_many_groups():
    chance = random.Random(11)
    members, regrets = [], []
    for number in range(20):
        size = chance.randint(4, 9)
        measured = [chance.uniform(1.0, 9.0) for _ in range(size)]
        predicted = [chance.uniform(1.0, 9.0) for _ in range(size)]
        members += group(measured, predicted, global_batch=8.0 * (number + 1))
        regrets.append(measured[predicted.index(min(predicted))] / min(measured) - 1.0)
    chance.shuffle(members)
    found = rank_quality(members)
    assert found["groups"] == 20
    assert found["mean_regret"] == pytest.approx(sum(regrets) / 20)
    assert found["top1"] == pytest.approx(sum(regret == 0.0 for regret in regrets) / 20)


def test_verdicts_fill_a_table_of_four():
    failed, ran = case(oom=True), case(1.0)
    given = [(failed, False)] * 4 + [(failed, True)] * 3 + [(ran, True)] * 2 + [(ran, False)]
    found = verdicts([prediction(of, fits=fits) for of, fits in given])
    assert found == {"oom_right": 4, "oom_wrong": 3, "ran_right": 2, "ran_wrong": 1}


def test_coverage_is_the_share_inside_the_interval_bounds_included():
    # the interval of 1 s is 0.5 to 2 s, that of 4 GiB 2 to 8 GiB
    times = [prediction(case(seconds), 1.0, width=2.0) for seconds in (0.4, 0.5, 1.0, 2.0, 2.1)]
    memories = [prediction(case(gib=gib), nbytes=4 * GiB, width=2.0) for gib in (1.9, 2.0, 8.0)]
    assert coverage([*times, *memories]) == pytest.approx({"time_90": 3 / 5, "memory_90": 2 / 3})
    assert coverage([]) == {"time_90": None, "memory_90": None}


def test_summary_counts_time_and_memory_apart():
    predictions = [
        prediction(case(2.0, 4.0), 1.0, 5 * GiB),
        prediction(case(2.0), 3.0),
        prediction(case(gib=4.0), nbytes=3 * GiB),
        prediction(case(oom=True), fits=False),
    ]
    found = summary(predictions)
    assert found["time"] == pytest.approx({"n": 2, "mape": 0.5, "median_ape": 0.5, "p95_ape": 0.5, "bias": 0.0})
    assert found["memory"] == pytest.approx({"n": 2, "mape": 0.25, "median_ape": 0.25, "p95_ape": 0.25, "bias": 0.0})
    assert found["verdicts"] == {"oom_right": 1, "oom_wrong": 0, "ran_right": 3, "ran_wrong": 0}


def test_a_case_measures_what_its_row_is_marked_for():
    assert case(2.0).seconds == 2.0
    assert case(2.0).peak_bytes is None
    assert case(gib=4.0).seconds is None
    assert case(gib=4.0).peak_bytes == 4 * GiB


def test_throughput_is_turned_into_time():
    of = case(2.0)
    number = {key: value for key, value in of.run.number.items() if key != "step_time_s"}
    by_throughput = case_of(dataclasses.replace(of.run, number={**number, "tokens_per_s_per_gpu": 1000.0}))
    assert by_throughput.seconds == pytest.approx(64 * 2048 / (1000.0 * 8))


def test_percentages_for_people():
    assert percent(0.1234) == "12.3 %"
    assert percent(None) == "-"

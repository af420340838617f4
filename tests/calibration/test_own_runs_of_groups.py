"""What `validate --own-runs` calibrates on, and what it judges."""

from __future__ import annotations

import json

import numpy as np
import pytest

import costmodel
from calibration.data.reference import DEFAULT_FOLDER
from calibration.validate.own_runs import groups_of, in_words, own_runs

RELEASED = DEFAULT_FOLDER / "measured" / "released.jsonl"
FACTOR = 1.6
MODEL = costmodel.load_model("llama3-8b")
CLUSTER = costmodel.load_cluster("dgx-h100", gpus=16)


def records(path, odd=None):
    """Eight runs on a cluster that is slower than the catalogue says by one factor; one of them maybe by a hundredfold."""
    lines = []
    for place in range(8):
        tensor, batch = 2 ** (place % 4), 64 * (1 + place // 4)
        plan = {"global_batch": batch, "seq_len": 4096, "tensor_parallel": tensor, "zero_stage": 1, "recompute": "none"}
        seconds = costmodel.estimate(MODEL, CLUSTER, costmodel.Plan(**plan), "megatron-core").step_time
        record = {
            "id": f"a/{place}", "campaign": "people/software/machine", "model": "llama3-8b",
            "cluster": {"name": "dgx-h100", "gpus": 16}, "software": {"framework": "megatron-core"}, "plan": plan,
            "measured": {"step_time_s": seconds * (100.0 if place == odd else FACTOR)},
        }  # fmt: skip
        lines.append(json.dumps(record))
    path.write_text("\n".join(lines))
    return path


def test_a_group_that_is_off_by_one_factor_is_right_after_three_runs(tmp_path):
    found = own_runs(groups_of([records(tmp_path / "runs.jsonl")]), (1, 3), draws=3)
    assert found["1"]["mape_without"] == pytest.approx(1.0 - 1.0 / FACTOR, abs=0.01)
    assert found["1"]["mape_ratio"] < 0.01
    assert found["1"]["mape"] < 0.15 and found["3"]["mape"] < 0.02
    assert found["3"]["held"] == 1.0 and found["3"]["width"] < found["1"]["width"]
    assert "after 3 own runs of 1 groups" in in_words("time", found)[2]


def test_runs_that_calibrate_refuses_are_judged_but_not_drawn(tmp_path):
    (group,) = groups_of([records(tmp_path / "runs.jsonl", odd=3)])
    strange = int(np.argmax(group.logarithms - group.without))
    assert group.measured[strange].id == "a/3"
    assert strange not in group.taken and len(group.taken) == 7
    found = own_runs([group], (7,), draws=2)
    assert found["7"]["mape"] > 0.9  # the one that is left, which is judged


def test_groups_of_fewer_than_five_runs_are_left_out(tmp_path):
    path = records(tmp_path / "runs.jsonl")
    path.write_text("\n".join(path.read_text().splitlines()[:4]))
    assert groups_of([path]) == []


@pytest.fixture(scope="module")
def released():
    """What one draw of own runs teaches on released campaigns; `validate --own-runs 1,3,6` takes more."""
    if not RELEASED.is_file():
        pytest.skip("the optional reference folder is absent")
    return own_runs(groups_of([RELEASED]), (1, 3, 6), draws=1)


@pytest.mark.slow
def test_few_runs_of_campaigns_that_were_met_the_first_time_teach_what_they_should(released):
    """Bars on the mean over groups: 14, 10 and 8 % after 1, 3 and 6 runs."""
    for count, bar in (("1", 0.14), ("3", 0.10), ("6", 0.08)):
        assert released[count]["groups"] >= 25
        assert released[count]["mape"] <= bar
        assert released[count]["mape"] <= min(released[count]["mape_without"], released[count]["mape_ratio"])


@pytest.mark.slow
def test_intervals_after_few_runs_hold_as_often_as_they_say(released):
    """On 85 to 95 % of the runs that are left; of one draw two hundredths less may do."""
    assert all(0.83 <= released[count]["held"] <= 0.95 for count in ("1", "3", "6"))


@pytest.mark.slow
@pytest.mark.xfail(strict=True, reason="worse on a quarter of groups: those off by exactly one factor with tight runs are shrunk "
                   "by some tenths of a percent, those that aren't one factor are pulled by few runs")
def test_no_group_is_worse_than_the_better_of_nothing_and_the_median_ratio(released):
    assert not any(released[count]["worse"] for count in ("1", "3", "6"))

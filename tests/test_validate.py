"""Checks of one field: what a person reads, and numbers that are NumPy's."""

import json

import numpy as np
import pytest

from costmodel import Plan, load_cluster, load_model
from costmodel.evaluation.estimation import Estimate, estimate
from costmodel.text.checks import kind, plain, positive_int, real
from costmodel.text.errors import InvalidValue


@pytest.mark.parametrize("value", [np.int8(2), np.int64(2), np.uint64(2), np.float32(2.0), np.float64(2.0)])
def test_a_plain_number_is_python_s_own(value):
    assert type(plain(value)) in (int, float)
    assert plain(value) == 2


@pytest.mark.parametrize("value", [2, 2.5, True, "2", None, (2,)])
def test_all_else_is_plain_already(value):
    assert plain(value) is value


def test_a_number_of_numpy_s_that_would_stay_one_is_told_what_to_write():
    with pytest.raises(InvalidValue, match=r"of Python's own: int\(...\)"):
        positive_int("degree", np.int64(2), 8)
    with pytest.raises(InvalidValue, match=r"of Python's own: float\(...\)"):
        real("rate", np.float32(2.0), 0.0, 8.0)


@pytest.mark.parametrize("fields", [
    {"tensor_parallel": 2, "data_parallel": 4}, {"data_parallel": 8, "recompute": 2}, {"data_parallel": 8, "global_batch": 64},
    {"data_parallel": 8, "micro_batch": 4}, {"data_parallel": 8, "zero_stage": 1},
])  # fmt: skip
@pytest.mark.parametrize("number", [np.int8, np.int64])
def test_a_plan_of_numpy_s_numbers_is_refused_by_name_or_is_json_like_that_of_python_s(fields, number):
    model, cluster = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8)
    common = {"global_batch": 32, "seq_len": 2048}
    wanted = json.dumps(estimate(model, cluster, Plan(**common | fields)).to_dict())
    try:
        plan = Plan(**common | {name: number(value) for name, value in fields.items()})
    except InvalidValue as refused:
        assert refused.field in fields
        assert "int(...)" in str(refused)
        return
    assert json.dumps(estimate(model, cluster, plan).to_dict()) == wanted


@pytest.mark.parametrize(("wanted", "words"), [
    (Estimate, "an Estimate, which estimate(...) gives"), (Plan, "a Plan, which estimate(...) gives"),
    ((Plan, Estimate), "a Plan or Estimate, which estimate(...) gives"),
])  # fmt: skip
def test_what_is_of_another_kind_is_told_what_gives_one(wanted, words):
    with pytest.raises(InvalidValue) as refused:
        kind("answer", 3, wanted, "estimate(...)")
    assert str(refused.value) == f"answer=3: expected {words}"

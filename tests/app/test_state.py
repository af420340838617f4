"""A link is a question: what is written is read again, and what no page wrote is refused."""

import contextlib
import json

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from costmodel import InvalidValue, load_model
from costmodel.app.answer import answered, command, difference, factors_of
from costmodel.app.state import SLIDERS, SORTS, TABS, State, read_fields, read_state, write_fields
from costmodel.text.errors import CostModelError

SMALL = "model=llama3-8b&gpus=16&batch=64"


@settings(deadline=None, max_examples=60, derandomize=True)
@given(
    model=st.sampled_from(["llama3-8b", "mixtral-8x7b"]), cluster=st.sampled_from(["dgx-h100", "aws-p4d"]),
    gpus=st.integers(1, 1024), batch=st.integers(1, 4096), seq=st.integers(1, 65536), price=st.sampled_from([0.0, 2.5]),
    tab=st.sampled_from(TABS), sort=st.sampled_from(SORTS), down=st.booleans(), more=st.booleans(), row=st.integers(0, 7),
    beside=st.integers(-1, 7), factors=st.dictionaries(st.sampled_from(SLIDERS), st.sampled_from([0.125, 0.5, 2.0, 8.0])),
    fixed=st.dictionaries(st.sampled_from(["tp", "mb", "recompute"]), st.sampled_from(["1", "2,4"])),
)  # fmt: skip
def test_a_state_is_read_from_its_own_link(factors, fixed, **fields):
    state = State(**fields, factors=tuple(sorted(factors.items())), fixed=tuple(sorted(fixed.items())))
    assert read_state(state.query()) == state


def test_an_empty_link_is_the_question_that_the_page_comes_with():
    assert read_state("") == State() and State().query() == ""


@pytest.mark.parametrize("query", [
    "model=no-such-model", "gpus=0", "gpus=1e9", "gpus=-4", "gpus=64&gpus=8", "luck=1", "x.inner=nan", "x.inner=1e9", "x.luck=2",
    "tp=1;2", "tp=" + ",".join(map(str, range(1, 40))), "dtype=fp3", "recompute=../../etc/passwd", "tab=admin", "row=100",
    "beside=-7", "sort=step;drop", "cluster=/etc/passwd", "against=x", "seq=99999999", "price=-1", "model", "a" * 9000,
    "config={}", "config=[1]", 'config={"layers":1e9}', 'config={"name":"x","layers":[1]}', "config=" + "[" * 3000,
    'config={"__class__":"x"}', "factors=1", "fixed=1", "framework=__import__('os')",
])  # fmt: skip
def test_what_no_page_wrote_is_refused_in_a_line(query):
    with pytest.raises(CostModelError) as refused:
        read_state(query)
    assert len(str(refused.value)) < 4000 and "\n" not in str(refused.value)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(st.text(max_size=120))
def test_any_text_is_a_state_or_refused(query):
    with contextlib.suppress(CostModelError):
        assert isinstance(read_state(query), State)


@pytest.mark.parametrize("name", ["llama3-8b", "deepseek-v2-lite", "gemma3-4b"])
def test_a_model_of_ones_own_travels_in_the_link(name):
    model = load_model(name)
    state = State(config=write_fields(model), gpus=8)
    assert read_fields(write_fields(model)) == model
    assert read_state(state.query()).config == state.config
    assert len(state.query()) < 1500 and json.loads(state.config)["name"] == name


def test_a_question_leaves_out_what_is_only_looked_at():
    state = read_state("row=2&tab=memory&x.inner=0.5&price=2&tp=4&more=1&against=dgx-b200")
    assert state.question == read_state("tp=4") and state.dimensions == {"tensor_parallel": [4]}


def test_moved_sliders_evaluate_the_leading_plans_anew_and_say_what_changed():
    answer = answered(read_state(f"{SMALL}&x.inner=0.5&row=1"))
    assert answer.moved and answer.unmoved.plan == answer.chosen.plan == answer.found[1].plan
    assert answer.chosen.step_time > answer.unmoved.step_time
    text = difference(answer)
    assert text.startswith("Half the nvlink bandwidth: ") and "%" in text
    assert difference(answered(read_state(SMALL))) == ""


def test_sliders_of_what_the_cluster_lacks_change_nothing():
    state = read_state(f"{SMALL}&x.outer=0.5&x.imbalance=2")
    answer = answered(state)
    assert factors_of(state, answer.before.model, answer.before.cluster) == {} and not answer.moved


def test_an_efficiency_stays_below_the_peak():
    state = read_state(f"{SMALL}&x.efficiency=8")
    answer = answered(state)
    device = answer.found.cluster.device.efficiency
    assert max(*device.gemm.values(), device.attention_forward) <= 1.0 + 1e-9


def test_a_plan_is_compared_with_a_row_or_with_the_best_of_another_cluster():
    assert answered(read_state(f"{SMALL}&row=0&beside=2")).beside == answered(read_state(SMALL)).found[2]
    assert answered(read_state(f"{SMALL}&row=2&beside=2")).beside is None
    assert answered(read_state(f"{SMALL}&against=dgx-b200")).beside.cluster.name == "dgx-b200"


def test_a_model_of_experts_is_answered_on_a_number_of_gpus_with_many_divisors():
    assert answered(read_state("model=deepseek-v3&gpus=720&batch=5760")).found.considered > 120_000


def test_a_search_that_is_too_large_is_refused_before_it_is_made():
    with pytest.raises(InvalidValue, match="more than 3000000 combinations"):
        answered(read_state("model=deepseek-v3&gpus=110880&batch=110880&zero=0,1,2,3&recompute=none,full,2,3,4,5,6,7,8,9&tp=&mb="))


def test_the_command_asks_the_same_question():
    text = command(read_state(f"{SMALL}&tp=2,4&recompute=full"))
    assert text.startswith("costmodel report llama3-8b --cluster dgx-h100 --gpus 16 --global-batch 64 --seq-len 8192")
    assert "--tensor-parallel 2,4" in text and "--recompute full" in text

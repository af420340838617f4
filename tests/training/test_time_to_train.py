"""From steps to days: published runs, identities, and what costs follow from them."""

import math

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from costmodel import Plan, estimate, load_cluster, load_device, load_model
from costmodel.formulas.systems import scaling_laws, training_run
from costmodel.text.errors import CostModelError, InvalidValue, NotModelled
from costmodel.training.cost import JOULES_PER_KILOWATT_HOUR, Tariff, cost
from costmodel.training.duration import DAY, time_to_train
from costmodel.training.reliability import Reliability
from costmodel.training.scaling_laws import CHINCHILLA, KAPLAN, ScalingLaw

quick = settings(deadline=None, max_examples=50, derandomize=True)


@pytest.fixture(scope="module")
def step():
    plan = Plan(global_batch=512, seq_len=8192, tensor_parallel=2, data_parallel=32, micro_batch=2)
    return estimate(load_model("llama3-8b"), load_cluster("dgx-h100", gpus=64), plan)


# Narayanan et al. 2021, section 5.1: end-to-end training time

PUBLISHED = [
    ("gpt3-175b", 175e9, 300e9, 1024, 140e12, 34, (1536, 8, 16)),
    ("megatron-1t", 1.008e12, 450e9, 3072, 163e12, 84, (3072, 8, 64)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "parameters", "tokens", "gpus", "rate", "days", "split"), PUBLISHED)
def test_published_rates_give_the_published_days(name, parameters, tokens, gpus, rate, days, split):
    assert training_run.time_of_tokens(tokens, parameters, gpus, rate) / DAY == pytest.approx(days, abs=0.5)


@pytest.mark.parametrize(("name", "parameters", "tokens", "gpus", "rate", "days", "split"), PUBLISHED)
def test_the_library_s_own_step_gives_the_published_days_within_ten_per_cent(
    name, parameters, tokens, gpus, rate, days, split
):  # fmt: skip
    batch, tensor, pipeline = split
    plan = Plan(
        global_batch=batch, seq_len=2048, tensor_parallel=tensor, pipeline_parallel=pipeline,
        data_parallel=gpus // tensor // pipeline, recompute="full",
    )  # fmt: skip
    answer = estimate(load_model(name), load_cluster("selene", gpus=gpus), plan, "megatron-lm-2021")
    run = time_to_train(answer, tokens=tokens)
    assert run.days == pytest.approx(days, rel=0.10)
    assert run.time_interval[0] / DAY < days < run.time_interval[1] / DAY


def test_llama_3_8b_took_the_gpu_hours_that_meta_states():
    """1.46 million GPU-hours on H100 (model card of Llama 3.1 8B; 15 T tokens at 700 W): the order, for the plan isn't stated."""
    plan = Plan(global_batch=512, seq_len=8192, tensor_parallel=2, data_parallel=32, micro_batch=2)
    answer = estimate(load_model("llama3-8b"), load_cluster("dgx-h100", gpus=64), plan)
    run = time_to_train(answer, tokens=15e12)
    assert run.cost.gpu_hours < 1.46e6 < 5 * run.cost.gpu_hours


# The run


def test_a_run_without_failures_is_its_steps(step):
    run = time_to_train(step, tokens=1e12)
    assert run.steps == math.ceil(1e12 / (512 * 8192))
    assert run.time == pytest.approx(run.steps * step.step_time)
    assert run.spread == step.time_spread
    assert run.mfu == step.mfu


def test_epochs_are_as_many_tokens(step):
    assert time_to_train(step, tokens=1e11, epochs=10.0).time == time_to_train(step, tokens=1e12).time


@quick
@given(st.floats(1e3, 1e6), st.floats(1.0, 1000.0), st.floats(0.0, 0.2))
def test_failures_and_stragglers_only_lengthen_a_run(step, hours, write_time, spread):
    plain = time_to_train(step, tokens=1e12)
    reliability = Reliability(device_mtbf=3600.0 * hours, checkpoint_time=write_time)
    run = time_to_train(step, tokens=1e12, reliability=reliability, straggler_spread=spread)
    low, high = run.time_interval
    assert run.time > plain.time and run.spread >= plain.spread
    assert low < run.time < high
    assert run.mfu < step.mfu and run.mfu / step.mfu == pytest.approx(plain.time / run.time)


def test_the_row_holds_no_infinity_and_names_its_units(step):
    row = time_to_train(step, tokens=1e12, tariff=Tariff(gpu_hour=2.0)).to_dict()
    assert all(value is None or math.isfinite(value) for value in row.values())
    assert row["price"] == pytest.approx(2.0 * row["gpu_hours"])
    assert row["days_low"] < row["days"] < row["days_high"]


# Cost


def test_a_price_is_in_proportion_and_a_joule_is_a_watt_second():
    device = load_device("h100-sxm")
    assert device.power == 700.0
    found = cost(Tariff(gpu_hour=3.0, power_utilisation=0.5, overhead=1.2, carbon_intensity_kg_per_kwh=0.4), device, 100, 36e3)
    assert (found.gpu_hours, found.price) == pytest.approx((1000.0, 3000.0))
    assert found.energy / JOULES_PER_KILOWATT_HOUR == pytest.approx(0.7 * 0.5 * 1.2 * 1000)
    assert found.emissions == pytest.approx(0.4 * 420)


def test_nothing_is_made_up_where_nothing_is_known():
    found = cost(Tariff(), load_device("titan-x-pascal"), 1, 3600.0)
    assert found.price is None and found.emissions is None
    assert found.energy == 250.0 * 3600.0


# Scaling laws


def test_chinchilla_s_best_model_for_gopher_s_budget_is_smaller_and_sees_more():
    """Gopher's 5.76e23 FLOP; approach 3 recommends 40 B parameters (Hoffmann et al. 2022, figure 4), read to a quarter."""
    parameters, tokens = CHINCHILLA.best(5.76e23)
    assert parameters == pytest.approx(40e9, rel=0.25)
    assert 6 * parameters * tokens == pytest.approx(5.76e23)


@quick
@given(st.floats(1e20, 1e26))
def test_no_other_model_of_the_same_computing_has_a_lower_loss(flop):
    parameters, tokens = CHINCHILLA.best(flop)
    best = CHINCHILLA.loss(parameters, tokens)
    for factor in (0.5, 0.9, 1.1, 2.0):
        assert CHINCHILLA.loss(parameters * factor, tokens / factor) > best


@pytest.mark.parametrize("law", [CHINCHILLA, KAPLAN])
@pytest.mark.parametrize("tokens", [1e10, 3e11, 1e13])
def test_tokens_for_a_loss_are_those_that_gave_it(law, tokens):
    assert law.tokens(7e9, law.loss(7e9, tokens)) == pytest.approx(tokens, rel=1e-9)


def test_kaplan_s_laws_of_one_variable_are_its_limits():  # equations 1.1 and 1.2
    assert scaling_laws.joint_loss(1e9, 1e30, 6.4e13, 1.8e13, 0.076, 0.103) == pytest.approx((6.4e13 / 1e9) ** 0.076, rel=1e-6)
    assert scaling_laws.joint_loss(1e30, 1e9, 6.4e13, 1.8e13, 0.076, 0.103) == pytest.approx((1.8e13 / 1e9) ** 0.103, rel=1e-6)


def test_a_target_loss_takes_the_law_s_tokens(step):
    run = time_to_train(step, target_loss=2.1, law=CHINCHILLA)
    assert run.tokens == pytest.approx(CHINCHILLA.tokens(step.model.parameters, 2.1))
    assert run.loss == pytest.approx(2.1)


# At the door


@pytest.mark.parametrize(("given", "field"), [
    ({}, "tokens"), ({"tokens": -1.0}, "tokens"), ({"tokens": 1e9, "target_loss": 2.0, "law": CHINCHILLA}, "target_loss"),
    ({"target_loss": 2.0}, "target_loss"), ({"target_loss": 1.5, "law": CHINCHILLA}, "loss"),
    ({"tokens": 1e9, "epochs": 0.0}, "epochs"), ({"tokens": 1e9, "tariff": 2.5}, "tariff"),
    ({"tokens": 1e9, "reliability": "good"}, "reliability"), ({"tokens": 1e9, "straggler_spread": 2.0}, "straggler_spread"),
    ({"tokens": 1e9, "law": "chinchilla"}, "law"),
])  # fmt: skip
def test_nonsense_is_refused_in_one_line(step, given, field):
    with pytest.raises(InvalidValue, match=f"^{field}") as refused:
        time_to_train(step, **given)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("make", [
    lambda: Tariff(gpu_hour=-1.0), lambda: Tariff(overhead=0.9), lambda: Tariff(power=float("nan")),
    lambda: ScalingLaw(name="x", form="cubic", parameter_scale=1.0, token_scale=1.0, parameter_exponent=1.0, token_exponent=1.0),
    lambda: KAPLAN.best(1e20),
])  # fmt: skip
def test_a_tariff_or_a_law_that_cannot_be_is_refused(make):
    with pytest.raises(CostModelError):
        make()


def test_a_law_of_dense_models_says_nothing_of_experts():
    plan = Plan(global_batch=64, seq_len=4096, expert_parallel=8, data_parallel=64)
    answer = estimate(load_model("mixtral-8x7b"), load_cluster("dgx-h100", gpus=64), plan)
    with pytest.raises(NotModelled, match="dense"):
        time_to_train(answer, tokens=1e12, law=CHINCHILLA)

"""Sweeps, scaling, sensitivities and rooflines agree with what one estimate or one search says."""

import dataclasses
import math

import numpy as np
import pytest

from costmodel import InvalidValue, Plan, estimate, load_cluster, load_model, search
from costmodel.evaluation.dimension_sweeps import heat_map, ideal, scaling
from costmodel.evaluation.error_model import constant_error
from costmodel.evaluation.factors import IMBALANCE, quantities, scaled
from costmodel.evaluation.operators import roofline
from costmodel.evaluation.part_differences import differences
from costmodel.evaluation.sensitivity import sensitivities, step_time
from costmodel.formulas.transformer import parameters
from costmodel.formulas.transformer.flops import attention_core_flop

MODEL, CLUSTER = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=16)
MIXTURE = load_model("mixtral-8x7b")
QUESTION = {"global_batch": 64, "seq_len": 8192}


@pytest.fixture(scope="module")
def one():
    return estimate(MODEL, CLUSTER, Plan(**QUESTION, tensor_parallel=4, pipeline_parallel=2, data_parallel=2))


@pytest.fixture(scope="module")
def found():
    return search(MODEL, CLUSTER, **QUESTION, keep_evaluated=True, top=10_000)


def test_every_evaluated_plan_is_kept_with_the_time_and_memory_of_its_estimate(found):
    every = found.every
    assert len(every) == found.evaluated and int(every.fits.sum()) == found.fitting
    for place in (0, len(every) // 2, len(every) - 1):
        again = estimate(MODEL, CLUSTER, every.plan(place))
        assert every.step_time[place] == pytest.approx(again.step_time, rel=1e-9)
        assert every.peak_memory[place] == pytest.approx(again.memory.total, rel=1e-9)
        for name, column in every.columns.items():
            given = getattr(again.plan, name)
            assert column[place] == given or (name == "shard_group" and given is None)


def test_a_search_keeps_no_plan_unasked():
    assert search(MODEL, CLUSTER, **QUESTION).every is None
    with pytest.raises(InvalidValue, match="keep_evaluated"):
        search(MODEL, CLUSTER, **QUESTION, keep_evaluated="yes")


def test_a_search_over_choices_keeps_the_choice_of_every_plan():
    every = search(MODEL, CLUSTER, **QUESTION, keep_evaluated=True, dtype=["bf16", "fp8"], tensor_parallel=2).every
    kinds = [every.plan(place).dtype for place in (0, len(every) - 1)]
    assert kinds == ["bf16", "fp8"]


def test_a_heat_map_has_in_each_cell_what_a_search_of_its_own_finds():
    made = heat_map(MODEL, CLUSTER, across=("tensor_parallel", [2, 8]), down=("seq_len", [4096, 8192]), **QUESTION)
    for y, length in enumerate([4096, 8192]):
        for x, tensor in enumerate([2, 8]):
            alone = search(MODEL, CLUSTER, global_batch=64, seq_len=length, tensor_parallel=tensor)
            cell = made.cells[y][x]
            assert cell.step_time == pytest.approx(alone.best.step_time, rel=1e-12)
            assert cell.plan == alone.best.plan and cell.fits and cell.legal == alone.evaluated


def test_a_heat_map_over_the_hardware_and_the_gpus_scales_both():
    made = heat_map(
        MODEL, CLUSTER, across=("rail.bandwidth", [0.25, 1.0]), down=("gpus", [8, 16]), pipeline_parallel=1, **QUESTION
    )
    slow, fast = made.cells[1]
    assert slow.step_time > fast.step_time
    inside = made.cells[0]  # eight GPUs need no rail
    assert inside[0].step_time == pytest.approx(inside[1].step_time, rel=1e-12)


def test_a_cell_without_a_plan_is_empty_and_one_where_nothing_fits_holds_the_leanest():
    made = heat_map(
        load_model("llama3-70b"), CLUSTER, across=("tensor_parallel", [1, 3]), down=("recompute", ["none", "full"]), **QUESTION
    )
    assert made.cells[0][1] == (None, None, None, False, 0)
    assert not made.cells[0][0].fits and made.cells[0][0].plan is not None


@pytest.mark.parametrize(("across", "down"), [
    (("tensor", [1]), ("seq_len", [1])), (("seq_len", []), ("gpus", [1])), (("seq_len", [1]), ("seq_len", [1])),
    (("seq_len", [1] * 3), "gp"), (("seq_len", list(range(1, 99))), ("global_batch", list(range(1, 99)))),
])  # fmt: skip
def test_a_heat_map_refuses_what_it_cannot_span(across, down):
    with pytest.raises(InvalidValue):
        heat_map(MODEL, CLUSTER, across=across, down=down, **QUESTION)


@pytest.mark.parametrize("global_batch", [0, True, 2.5, "6.4"])
def test_scaling_says_which_batch_it_cannot_take(global_batch):
    with pytest.raises(InvalidValue, match="global_batch"):
        scaling(MODEL, CLUSTER, global_batch=global_batch, seq_len=1024)


def test_scaling_searches_each_number_of_gpus_and_names_what_does_not_fit():
    made = scaling(load_model("llama3-70b"), load_cluster("dgx-h100", gpus=64), global_batch=256, seq_len=8192, gpus=[8, 64, 128])
    assert made.strong[0].plan is None and "fits" in made.strong[0].why
    assert [point.global_batch for point in made.weak] == [32, 256, 512]
    alone = search(load_model("llama3-70b"), load_cluster("dgx-h100", gpus=128), global_batch=512, seq_len=8192)
    assert made.weak[2].step_time == pytest.approx(alone.best.step_time, rel=1e-12)
    assert ideal(made.strong) == [pytest.approx(made.strong[1].tokens_per_second / 64 * gpus) for gpus in (8, 64, 128)]
    assert made.weak[2].low < made.weak[2].step_time < made.weak[2].high


def test_factors_of_one_change_nothing(one):
    every = dict.fromkeys(quantities(MODEL, CLUSTER), 1.0)
    assert scaled(MODEL, CLUSTER, every) == (MODEL, CLUSTER)
    assert step_time(one, every) == pytest.approx(one.step_time, rel=1e-12)


def test_a_factor_scales_its_quantity_alone():
    model, cluster = scaled(MIXTURE, CLUSTER, {"rail.bandwidth": 0.5, "device.memory": 2.0, IMBALANCE: 1.5})
    assert cluster.levels[1].bandwidth == CLUSTER.levels[1].bandwidth / 2 and cluster.levels[0] == CLUSTER.levels[0]
    assert cluster.device.usable_memory == 2 * CLUSTER.device.usable_memory
    assert cluster.device.efficiency == CLUSTER.device.efficiency
    assert model == dataclasses.replace(MIXTURE, expert_imbalance=1.5 * MIXTURE.expert_imbalance)


@pytest.mark.parametrize("factors", [{"rail": 2.0}, {IMBALANCE: 2.0}, {"rail.bandwidth": math.nan}, {"rail.latency": -1.0}])
def test_a_factor_on_what_is_not_there_is_refused(factors):
    with pytest.raises(InvalidValue):
        scaled(MODEL, CLUSTER, factors)


def test_sensitivities_have_the_sign_of_physics_and_the_width_of_their_error(one):
    swings = sensitivities(one)
    assert [s.swing for s in swings] == sorted((s.swing for s in swings), reverse=True)
    for s in swings:
        slower_at_high = s.quantity.endswith("latency")
        assert (s.time_high > one.step_time > s.time_low) == slower_at_high
        assert s.low < 1.0 < s.high and s.source
    error, source = constant_error("memory_bandwidth", CLUSTER.device, one.framework)
    memory = next(s for s in swings if s.quantity == "device.memory_bandwidth")
    assert math.log(memory.high) == pytest.approx(1.6448536 * error) and memory.source == source


def test_an_imbalance_of_experts_is_varied_and_costs_time():
    made = estimate(MIXTURE, CLUSTER, Plan(**QUESTION, tensor_parallel=2, expert_parallel=8, data_parallel=8))
    swing = next(s for s in sensitivities(made) if s.quantity == IMBALANCE)
    assert swing.time_high > made.step_time == pytest.approx(swing.time_low)


def test_a_roofline_counts_the_flop_of_every_product_of_a_layer(one):
    made = roofline(one)
    by_name = {operator.name: operator for operator in made.operators}
    tokens, tensor = 8192, 4
    numbers = MODEL.numbers()
    layers = {"attention projections": parameters.attention_parameters(numbers), "MLP": 3 * MODEL.hidden * MODEL.feed_forward}
    for name, weights in layers.items():
        assert by_name[name].flop == pytest.approx(2 * weights * tokens / tensor, rel=1e-9)
    assert by_name["attention core"].flop == pytest.approx(tokens / tensor * attention_core_flop(numbers, 8192.0, 1.0))
    assert by_name["vocabulary projection"].flop == pytest.approx(2 * MODEL.vocabulary * MODEL.hidden * tokens / tensor)


def test_a_roofline_counts_the_bytes_of_operands_and_result(one):
    mlp = next(operator for operator in roofline(one).operators if operator.name == "MLP")
    m, h, f = 8192, MODEL.hidden, MODEL.feed_forward / 4
    assert mlp.nbytes == pytest.approx(2 * ((m * h + h * 2 * f + m * 2 * f) + (m * f + f * h + m * h)))


@pytest.mark.parametrize("attention", ["flash", "unfused"])
@pytest.mark.parametrize("model", [MODEL, MIXTURE, load_model("deepseek-v2-lite")], ids=lambda model: model.name)
def test_no_operator_is_above_its_roof(model, attention):
    plan = Plan(**QUESTION, tensor_parallel=2, data_parallel=8, attention=attention)
    made = roofline(estimate(model, CLUSTER, plan))
    for operator in made.operators:
        assert 0.0 < operator.rate <= min(made.peak, made.bandwidth * operator.intensity) * (1 + 1e-9), operator.name
    assert ("experts" in {operator.name for operator in made.operators}) == bool(model.experts)


def test_differences_of_two_plans_add_up(found):
    first, second = found[0], found[40]
    assert sum(one.added for one in differences(first, second)) == pytest.approx(second.step_time - first.step_time)
    summed = differences(first, second, 0.05)
    assert sum(one.added for one in summed) == pytest.approx(second.step_time - first.step_time)
    assert all(abs(one.added) > 0.05 for one in summed if one.part != "other")
    assert differences(first, first) == ()


def test_an_error_of_a_constant_that_nobody_fitted_is_the_widest_known():
    errors = [constant_error("compute_gemm_efficiency_scale", load_cluster("dgx-h100").device, one)[0] for one in (
        dataclasses.replace(estimate(MODEL, CLUSTER, Plan(**QUESTION, data_parallel=16)).framework, owner="nobody"),
        estimate(MODEL, CLUSTER, Plan(**QUESTION, data_parallel=16)).framework,
    )]  # fmt: skip
    assert errors[0] >= errors[1] > 0.0
    assert np.isfinite(errors).all()
    with pytest.raises(InvalidValue):
        constant_error("luck", CLUSTER.device, load_estimate().framework)


def load_estimate():
    return estimate(MODEL, CLUSTER, Plan(**QUESTION, data_parallel=16))


KEPT = {"seq_len": 8192, "keep_evaluated": True, "engine": "numpy"}

"""Experts whose bias, activation and cast are part of their products' kernels: what they don't move, and where they run."""

import dataclasses

import pytest

from costmodel import Plan, estimate, load_cluster, load_framework, load_model
from costmodel.errors import IllegalPlan, InvalidValue
from costmodel.formulas.transformer.layer import between_products, cast_bytes, elementwise_bytes

PLAN = Plan(global_batch=1280, seq_len=4096, data_parallel=64, expert_parallel=64, micro_batch=4, dtype="mxfp8")
FUSED = dataclasses.replace(PLAN, fused_experts=True)
FRAMEWORK = load_framework("nemo", "blackwell")


def moved(model, plan):
    resolved = plan.resolve(FRAMEWORK)
    numbers = (model.numbers(), resolved.settings(FRAMEWORK), resolved.numbers(FRAMEWORK, model.layers))
    return elementwise_bytes(*numbers), cast_bytes(*numbers)


def test_only_the_permutation_of_tokens_and_the_cast_of_what_comes_in_are_left():
    model = load_model("gpt-oss-120b")
    (apart, casts), (fused, narrow) = moved(model, PLAN), moved(model, FUSED)
    copies = 4 * 4096 * model.experts_per_token
    assert fused.experts == narrow.activated == 0.0
    assert narrow.permuted == casts.permuted
    # a token's copies are read and written there and back; unfused, a bias in 32 bit is added to each output besides:
    # forward a product (write 4), a sum (read 2 + 4, write 4), a copy (4 + 4) and a cast (4 + 2)
    assert fused.permutation == apart.permutation == pytest.approx(copies * model.hidden * 4 * 2)
    assert fused.expert_biases == 0.0 and apart.expert_biases == pytest.approx(copies * model.hidden * 28)
    settings = PLAN.resolve(FRAMEWORK).settings(FRAMEWORK)
    with_biases, without = (
        between_products(one, model.numbers(), settings) for one in (apart, apart._replace(expert_biases=0.0))
    )
    assert sum(with_biases) - sum(without) == pytest.approx(copies * model.hidden * (28 + 36))
    assert apart.experts == pytest.approx(copies * model.expert_feed_forward * 3 * 2)
    assert fused.residuals == apart.residuals and fused.norms == apart.norms


def test_experts_without_biases_lose_their_activation_alone():
    model = load_model("qwen3-30b-a3b")
    (apart, _), (fused, _) = moved(model, PLAN), moved(model, FUSED)
    assert fused.permutation == apart.permutation and apart.experts > fused.experts == 0.0


def test_a_graph_holds_experts_if_they_are_fused():
    model, cluster, framework = load_model("gpt-oss-120b"), load_cluster("gb200-nvl72", gpus=64), load_framework("nemo")
    assert estimate(model, cluster, FUSED, framework).step_time < estimate(model, cluster, PLAN, framework).step_time
    graphed = estimate(model, cluster, dataclasses.replace(FUSED, cuda_graphs=True), framework)
    assert graphed.step_time <= estimate(model, cluster, FUSED, framework).step_time
    with pytest.raises(IllegalPlan, match="cuda_graphs=True with the 128 experts"):
        estimate(model, cluster, dataclasses.replace(PLAN, cuda_graphs=True), framework)


def test_where_nothing_can_be_fused_it_is_refused():
    with pytest.raises(InvalidValue, match="fused_experts.*mxfp8"):
        dataclasses.replace(FUSED, dtype="bf16")
    cluster, framework = load_cluster("gb200-nvl72", gpus=64), load_framework("nemo")
    with pytest.raises(IllegalPlan, match="fused_experts=True with 0 experts"):
        estimate(load_model("llama3-8b"), cluster, dataclasses.replace(FUSED, expert_parallel=1), framework)
    split = dataclasses.replace(FUSED, tensor_parallel=2, data_parallel=32, expert_parallel=32, expert_tensor_parallel=2)
    with pytest.raises(IllegalPlan, match="expert_tensor_parallel=2"):
        estimate(load_model("gpt-oss-120b"), cluster, split, framework)

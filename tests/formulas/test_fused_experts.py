"""Experts whose bias, activation and cast are part of their products' kernels: what they don't move, and where they run."""

import dataclasses

import pytest

from costmodel import Plan, estimate, load_cluster, load_device, load_framework, load_model
from costmodel.formulas import compute
from costmodel.formulas.transformer.activations import layer_activations, module_activations
from costmodel.formulas.transformer.layer import expert_product, product
from costmodel.formulas.transformer.traffic import between_products, cast_bytes, elementwise_bytes
from costmodel.text.errors import IllegalPlan, InvalidValue

PLAN = Plan(global_batch=1280, seq_len=4096, data_parallel=64, expert_parallel=64, micro_batch=4, dtype="mxfp8")
FUSED = dataclasses.replace(PLAN, fused_experts=True)
FRAMEWORK = load_framework("nemo", "blackwell")


def moved(model, plan):
    resolved = plan.resolve(FRAMEWORK)
    numbers = (model.numbers(), resolved.settings(FRAMEWORK), resolved.numbers(FRAMEWORK, model.layers))
    return elementwise_bytes(*numbers), cast_bytes(*numbers, FRAMEWORK.numbers())


def test_only_the_permutation_of_tokens_and_the_cast_of_what_comes_in_are_left():
    model = load_model("gpt-oss-120b")
    (apart, casts), (fused, narrow) = moved(model, PLAN), moved(model, FUSED)
    copies = 4 * 4096 * model.experts_per_token
    assert fused.experts == narrow.activated == 0.0
    assert narrow.permuted == casts.permuted
    # a token's copies are read and written there and back, by sender and by expert; unfused, a bias in 32 bit is added to each
    # output besides: forward a product (write 4), a sum (read 2 + 4, write 4), a copy (4 + 4) and a cast (4 + 2)
    assert fused.permutation == apart.permutation == pytest.approx(copies * model.hidden * 8 * 2)
    assert fused.expert_biases == 0.0 and apart.expert_biases == pytest.approx(copies * model.hidden * 28)
    settings = PLAN.resolve(FRAMEWORK).settings(FRAMEWORK)
    with_biases, without = (
        between_products(one, model.numbers(), settings) for one in (apart, apart._replace(expert_biases=0.0))
    )
    assert sum(with_biases) - sum(without) == pytest.approx(copies * model.hidden * (28 + 36))
    # the activation reads two and writes one; two limits before it read and write one each, their concatenation two
    assert apart.experts == pytest.approx(copies * model.expert_feed_forward * (3 + 2 * 2 + 4) * 2)
    assert fused.residuals == apart.residuals and fused.norms == apart.norms


@pytest.mark.parametrize(
    ("fields", "times"),
    [
        ({}, 2),  # ordered by expert before they are sent, and where they arrive, by sender then
        ({"dispatcher": "deduplicated"}, 1),
        ({"expert_parallel": 1}, 1),
        ({"expert_parallel": 128, "data_parallel": 128}, 1),  # one expert on each rank
        # where they arrive those of the expert-tensor group all, which are twice a rank's
        ({"tensor_parallel": 2, "data_parallel": 32, "expert_tensor_parallel": 2}, 0.5 * (1 + 2)),
    ],
)
def test_tokens_are_ordered_once_or_twice_there_and_back(fields, times):  # megatron/core/transformer/moe/token_dispatcher.py
    model, plan = load_model("gpt-oss-120b"), dataclasses.replace(PLAN, **fields)
    by_module, _ = moved(model, plan)
    there_and_back = 2 * (1 + 1)  # read and written
    assert by_module.permutation == pytest.approx(times * there_and_back * 4 * 4096 * model.experts_per_token * model.hidden * 2)


def test_experts_without_biases_lose_their_activation_alone():
    model = load_model("qwen3-30b-a3b")
    (apart, _), (fused, _) = moved(model, PLAN), moved(model, FUSED)
    assert fused.permutation == apart.permutation and apart.experts > fused.experts == 0.0


@pytest.mark.parametrize(("name", "limits"), [("nemo", 1), ("hf-trainer", 1), ("fsdp2", 0)])
def test_limits_before_an_activation_are_kernels_of_their_own_unless_compiled(name, limits):
    """Megatron-Core's ``weighted_bias_quick_geglu_impl`` and transformers' ``GptOssExperts`` clamp; torch.compile joins that."""
    model, framework = load_model("gpt-oss-120b"), load_framework(name, "blackwell")
    plan = Plan(global_batch=64, seq_len=4096, data_parallel=64, expert_parallel=64).resolve(framework)
    routed = 4096 * model.experts_per_token * model.expert_feed_forward
    found = {}
    for one in (model, dataclasses.replace(model, clamped_activation=False)):
        numbers = one.numbers(), plan.settings(framework), plan.numbers(framework, model.layers)
        by_module = elementwise_bytes(*numbers)
        found[one.clamped_activation] = (*between_products(by_module, *numbers[:2]), layer_activations(*numbers))
    forward, backward, kept = (a - b for a, b in zip(found[True], found[False], strict=True))
    assert forward == pytest.approx(limits * routed * (2 + 2 + 4) * 2)
    # each limit reads a gradient and its input and writes a gradient, which a concatenation reads and writes
    assert backward == pytest.approx(limits * routed * (3 + 3 + 2 + 2) * 2)
    assert kept == pytest.approx(limits * routed * 2 * 2)  # what the limits made beside what they read


def test_a_recomputed_activation_makes_its_limits_again():
    model = load_model("gpt-oss-120b")
    plan = dataclasses.replace(PLAN, dtype="bf16", recompute="expert-activation").resolve(FRAMEWORK)
    routed = 4 * 4096 * model.experts_per_token * model.expert_feed_forward
    again = [
        module_activations(one.numbers(), plan.settings(FRAMEWORK), plan.numbers(FRAMEWORK, model.layers))
        for one in (model, dataclasses.replace(model, clamped_activation=False))
    ]
    assert again[0] - again[1] == pytest.approx(routed * 2 * 2)


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


@pytest.mark.parametrize(
    ("device", "dtype"), [("a100-sxm-80gb", "bf16"), ("h100-sxm", "bf16"), ("gb300", "bf16"), ("gb300", "mxfp8")]
)
@pytest.mark.parametrize("tokens", [16, 256, 4096])
def test_products_of_experts_run_one_by_one_or_where_there_is_one_kernel_for_all_as_the_faster_of_both(device, dtype, tokens):
    plan = dataclasses.replace(PLAN, dtype=dtype)
    settings, numbers = plan.settings(FRAMEWORK), load_device(device).numbers(dtype)
    grouped = plan.settings(dataclasses.replace(FRAMEWORK, grouped_experts=True))
    software, width = FRAMEWORK.numbers(), settings.widths.compute
    rate = compute.grouped_product_rate(software.compute.gemm_efficiency_scale, numbers)
    together = compute.grouped_gemm(8, tokens, 4096, 7168, width, rate, numbers)
    split = plan.numbers(FRAMEWORK, 36)
    alone = product(tokens, 4096, 7168, settings, split, software, numbers)[0]
    assert expert_product(8, tokens, 4096, 7168, settings, split, software, numbers)[0] == 8 * alone
    forward = expert_product(8, tokens, 4096, 7168, grouped, split, software, numbers)[0]
    assert forward == min(together, 8 * alone)
    assert 2 * 8 * tokens * 4096 * 7168 / forward <= numbers.best_flop_rate  # no more than the best product measured

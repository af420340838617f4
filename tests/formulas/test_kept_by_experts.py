"""What experts keep, and what is held beside for the way to them, counted by hand."""

from __future__ import annotations

import dataclasses

import pytest

from costmodel import Plan, Transformer, estimate, load_cluster, load_framework, load_model
from costmodel.formulas.transformer import activations

TOKENS, HIDDEN, WIDTH, PER_TOKEN = 2048, 1024, 512, 4
MODEL = Transformer(
    name="sparse", layers=8, hidden=HIDDEN, heads=8, kv_heads=8, feed_forward=WIDTH, vocabulary=1000, experts=16,
    experts_per_token=PER_TOKEN, expert_feed_forward=WIDTH, shared_expert_feed_forward=0, dense_layers=0,
)  # fmt: skip
CLUSTER = load_cluster("dgx-h100", gpus=8)


def kept(framework, model=MODEL, **fields):
    """Bytes that a layer keeps of a micro-batch."""
    plan = Plan(global_batch=8, seq_len=TOKENS, data_parallel=8, expert_parallel=8, **fields)
    inputs = estimate(model, CLUSTER, plan, framework).inputs
    return float(activations.layer_activations(inputs.model, inputs.settings, inputs.plan))


def test_outputs_of_experts_are_kept_only_where_probabilities_weigh_them():
    """Megatron-Core weighs what the second product reads, Hugging Face what it makes."""
    weighed_inside = load_framework("megatron-core")
    weighed_outside = dataclasses.replace(weighed_inside, keep_expert_outputs=True)
    outputs = 2 * TOKENS * PER_TOKEN * HIDDEN
    assert kept(weighed_outside) - kept(weighed_inside) == pytest.approx(outputs)
    assert load_framework("hf-trainer").keep_expert_outputs


def test_of_a_routed_copy_its_input_and_three_tensors_of_the_experts_width_are_kept():
    """Input, gate and up, and the product's input, 2 bytes each; without experts per token nothing of it."""
    more = dataclasses.replace(MODEL, experts_per_token=PER_TOKEN + 1)
    each = kept("megatron-core", more) - kept("megatron-core")
    assert each == pytest.approx(TOKENS * 2 * (HIDDEN + 3 * WIDTH))


def test_of_an_activation_without_a_gate_what_probabilities_weigh_is_kept_too():
    """A routed copy's input; what the activation reads and makes, and its product with the probability, 2 bytes each."""
    plain = dataclasses.replace(MODEL, gated=False)
    more = dataclasses.replace(plain, experts_per_token=PER_TOKEN + 1)
    each = kept("megatron-core", more) - kept("megatron-core", plain)
    assert each == pytest.approx(TOKENS * 2 * (HIDDEN + 3 * WIDTH))


def test_software_that_keeps_inputs_of_activations_in_8_bit_keeps_half_of_them():
    """DeepSeek-V3 report, section 3.3.3; the attention's output is kept once, in 12 bit."""
    plain = dataclasses.replace(load_framework("hai-llm"), activation_input_bytes=0.0, attention_output_bytes=0.0)
    inputs = dataclasses.replace(plain, activation_input_bytes=1.0)
    outputs = dataclasses.replace(plain, attention_output_bytes=1.5)
    whole = kept(plain, dtype="fp8-block")
    assert whole - kept(inputs, dtype="fp8-block") == pytest.approx(TOKENS * PER_TOKEN * 2 * WIDTH)
    assert whole - kept(outputs, dtype="fp8-block") == pytest.approx(TOKENS * HIDDEN * 1.5)
    assert kept(inputs) == kept(plain) == kept(outputs)  # 16-bit products keep what they read


def test_weights_that_are_held_narrow_alone_take_half_of_those_with_a_wide_copy():
    """Two layouts of a byte, or two bytes besides; embedding and head stay wide."""
    model, cluster = load_model("llama3-70b"), load_cluster("dgx-h100", gpus=64)
    plan = Plan(global_batch=64, seq_len=2048, tensor_parallel=8, data_parallel=8, dtype="fp8")
    narrow = load_framework("nemo")
    assert "fp8" in narrow.narrow_weights
    held, wide = (
        float(estimate(model, cluster, plan, framework).memory.weights)
        for framework in (narrow, dataclasses.replace(narrow, narrow_weights=()))
    )
    edges = 2 * model.vocabulary * model.hidden
    assert wide - held == pytest.approx(2 * (model.parameters - edges) / 8, rel=1e-3)


def of_qwen():
    """What a layer of Qwen3 30B-A3B keeps of a token, and what is there as a recomputed one's backward pass is at its fullest."""
    plan = Plan(global_batch=8, seq_len=8192, data_parallel=8, expert_parallel=8, recompute="full")
    inputs = estimate(load_model("qwen3-30b-a3b"), CLUSTER, plan, "megatron-core").inputs
    asked = inputs.model, inputs.settings, inputs.plan
    fullest = activations.backward_temporaries(*asked, inputs.software)
    return float(activations.layer_activations(*asked)) / 8192, float(fullest) / 8192


def test_a_mixtures_layer_holds_what_the_code_of_megatron_core_keeps_and_two_copies_for_each_expert():
    """NVIDIA/Megatron-LM@d98e8a6 megatron/core/transformer: transformer_layer, attention, moe/experts, moe/token_dispatcher."""
    norms = 2 * (2048 + 2048)  # input and output of each, 2 bytes
    attention = 2 * (4096 + 2 * 512) + 2 * (4096 + 512) + 2 * 4096 + 4 * 32  # product, rotated, output, softmax's statistics
    experts = 8 * 2 * (2048 + 2 * 768 + 768)  # what they read, gate and up, what the second product reads
    saved, fullest = of_qwen()
    assert saved == pytest.approx(2 * norms + attention + experts)
    assert fullest - saved == pytest.approx(2 * 8 * 2 * 2048)  # what a step of the way to the experts reads, and what it writes


def test_experts_that_are_looped_over_on_one_rank_have_no_copies_of_all_tokens():
    looped = dataclasses.replace(load_framework("hf-trainer"), grouped_experts=False)
    model = dataclasses.replace(MODEL, experts_per_token=64, experts=64)

    def beside(framework):
        inputs = estimate(model, CLUSTER, Plan(global_batch=8, seq_len=TOKENS, data_parallel=8), framework).inputs
        return float(activations.dispatched_gradients(inputs.model, inputs.settings, inputs.plan))

    assert beside(looped) == 0.0 < beside(load_framework("hf-trainer"))

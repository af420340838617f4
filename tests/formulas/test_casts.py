"""Bytes that casts of operands move, by hand; and the widths of gradients that are summed in 16 bit."""

import pytest

from costmodel import Plan, load_framework, load_model
from costmodel.formulas.transformer.layer import cast_bytes

MODEL, TOKENS = load_model("llama3-8b"), 4096


@pytest.mark.parametrize(("framework", "dtype", "moved"), [
    # an element is read in 16 bit; TransformerEngine writes it in both layouts, torchao in the one that it needs; rows and
    # columns that have scales of their own are cast by two kernels
    ("megatron-core", "fp8", 2 + 1 + 1), ("megatron-core", "mxfp8", 2 + 2 * (1 + 1 / 32)), ("fsdp2", "fp8", 2 + 1),
    ("fsdp2", "fp8-rowwise", 2 * (2 + 1)), ("megatron-core", "bf16", 0),
])  # fmt: skip
def test_operands_are_cast_once_for_each_layout(framework, dtype, moved):
    plan, software = Plan(global_batch=1, seq_len=TOKENS, dtype=dtype), load_framework(framework)
    found = cast_bytes(MODEL.numbers(), plan.settings(software), plan.numbers(software, MODEL.layers))
    assert float(found.attention) == pytest.approx(moved * TOKENS * 2 * MODEL.hidden)  # into its first and its last product
    assert float(found.mlp) == pytest.approx(moved * TOKENS * (MODEL.hidden + MODEL.feed_forward))


def test_frozen_products_need_no_second_layout():
    software = load_framework("megatron-core")
    plan = Plan(global_batch=1, seq_len=TOKENS, dtype="fp8", adapter="lora")
    settings = plan.settings(software)._replace(trainable=0.0)
    found = cast_bytes(MODEL.numbers(), settings, plan.numbers(software, MODEL.layers))
    assert float(found.attention) == pytest.approx(3 * TOKENS * 2 * MODEL.hidden)


@pytest.mark.parametrize(("dtype", "gradient", "update"), [("fp16", 2.0, 4.0), ("bf16", 4.0, 0.0), ("fp32", 4.0, 0.0)])
def test_megatron_of_2021_sums_gradients_in_fp16_and_copies_them_up(dtype, gradient, update):
    """NVIDIA/Megatron-LM docs, distributed optimizer: 20 bytes a parameter with gradients in fp16, 18 in 32 bit beside bf16."""
    widths = Plan(global_batch=1, seq_len=1, dtype=dtype).settings(load_framework("megatron-lm-2021")).widths
    assert (widths.gradient, widths.reduce, widths.update) == (gradient, gradient, update)
    if dtype != "fp32":
        assert widths.parameter + widths.gradient + widths.optimizer + widths.update == (20.0 if dtype == "fp16" else 18.0)


def test_a_plan_that_states_its_gradients_has_them():
    widths = Plan(global_batch=1, seq_len=1, dtype="fp16", gradient_bytes=4).settings(load_framework("megatron-lm-2021")).widths
    assert (widths.gradient, widths.update) == (4.0, 0.0)

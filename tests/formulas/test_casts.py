"""Bytes that casts of operands move, by hand; and the widths of gradients that are summed in 16 bit."""

import dataclasses

import pytest

from costmodel import Plan, estimate, load_cluster, load_framework, load_model
from costmodel.formulas.transformer.traffic import cast_bytes

MODEL, TOKENS = load_model("llama3-8b"), 4096


@pytest.mark.parametrize(("framework", "dtype", "moved"), [
    # an element is read in 16 bit; TransformerEngine writes it in both layouts, torchao in the one that it needs; rows and
    # columns that have scales of their own are cast by two kernels, columns across the lines of memory
    ("megatron-core", "fp8", 2 + 1 + 1), ("megatron-core", "mxfp8", 2 + 2 * (1 + 1 / 32)), ("fsdp2", "fp8", 2 + 1),
    ("fsdp2", "fp8-rowwise", (1 + load_framework("fsdp2").constants.compute.column_cast) * (2 + 1)), ("megatron-core", "bf16", 0),
])  # fmt: skip
def test_operands_are_cast_once_for_each_layout(framework, dtype, moved):
    plan, software = Plan(global_batch=1, seq_len=TOKENS, dtype=dtype), load_framework(framework)
    found = cast_bytes(MODEL.numbers(), plan.settings(software), plan.numbers(software, MODEL.layers), software.numbers())
    assert float(found.attention) == pytest.approx(moved * TOKENS * 2 * MODEL.hidden)  # into its first and its last product
    assert float(found.mlp) == pytest.approx(moved * TOKENS * (MODEL.hidden + MODEL.feed_forward))


def test_scales_of_rows_and_columns_cost_beside_tensor_parallelism_what_torchtitan_measured():
    """Llama 3.1 8B on 64 H100, TP 8, 12 sequences a GPU: 3.3135 s with scales of rows, 2.4198 with those of tensors.

    pytorch/torchtitan benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md, vanilla tensor parallelism; the constant is that of
    8 GPUs without it.
    """
    cluster = load_cluster("dgx-h100", gpus=64)
    plan = Plan(global_batch=96, seq_len=8192, tensor_parallel=8, data_parallel=8, micro_batch=12, recompute="operators")
    rows, tensors = (
        estimate(load_model("llama3.1-8b"), cluster, dataclasses.replace(plan, dtype=dtype), "fsdp2").step_time
        for dtype in ("fp8-rowwise", "fp8")
    )
    assert rows - tensors == pytest.approx(3.3135 - 2.4198, rel=0.15)


def test_frozen_products_need_no_second_layout():
    software = load_framework("megatron-core")
    plan = Plan(global_batch=1, seq_len=TOKENS, dtype="fp8", adapter="lora")
    settings = plan.settings(software)._replace(trainable=0.0)
    found = cast_bytes(MODEL.numbers(), settings, plan.numbers(software, MODEL.layers), software.numbers())
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

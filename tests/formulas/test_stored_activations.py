"""Inputs of gated activations that are stored in 8 bit between their passes: bytes, casts, and where there are none."""

import dataclasses

import pytest

from costmodel import Plan, estimate, load_cluster, load_framework, load_model, read_launch, write_launch
from costmodel.formulas.transformer import traffic
from costmodel.formulas.transformer.activations import layer_activations
from costmodel.text.errors import IllegalPlan

MODEL = load_model("llama2-70b")
NEMO = load_framework("nemo", "blackwell")
PLAN = Plan(global_batch=8, seq_len=8192, data_parallel=8, dtype="fp8", attention_dtype="fp8", adapter="lora",
            lora_rank=16, lora_targets="attention", zero_stage=1)  # fmt: skip
STORED = dataclasses.replace(PLAN, activation_input_dtype="fp8")
OF_INPUTS = 2 * 28672  # channels of gate and up projection


def of_layer(plan):
    resolved = plan.resolve(NEMO)
    return MODEL.numbers(), resolved.settings(NEMO), resolved.numbers(NEMO, MODEL.layers)


def test_inputs_of_the_activation_are_kept_in_a_byte_less():
    kept = [layer_activations(*of_layer(plan)) for plan in (PLAN, STORED)]
    assert kept[0] - kept[1] == pytest.approx(8192 * OF_INPUTS)


def test_casts_read_16_bits_and_write_8_forward_and_the_other_way_round_backward():
    """NVIDIA/Megatron-LM@d98e8a6 megatron/core/fusions/fused_bias_swiglu.py, ``SwiGLUFunction``."""
    moved = []
    for plan in (PLAN, STORED):
        model, settings, numbers = of_layer(plan)
        forward = traffic.elementwise_bytes(model, settings, numbers)
        moved.append(traffic.between_products(forward, model, settings))
    for before, after in zip(*moved, strict=True):
        assert after - before == pytest.approx(8192 * OF_INPUTS * (2 + 1))


def test_a_published_fine_tune_fits_by_what_its_configuration_stores():
    """MLPerf Training v5.0, Llama 2 70B LoRA on one DGX B200 without model parallelism (mlcommons/training_results_v5.0@0fdc28f,
    config_DGXB200_1x8x1xtp1pp1cp1.sh): it ran, and with 16 bits stored 80 layers hold 35 GiB more than fit."""
    node = load_cluster("dgx-b200", 8)
    told = [estimate(MODEL, node, plan, NEMO) for plan in (PLAN, STORED)]
    assert (told[0].fits, told[1].fits) == (False, True)
    assert told[0].memory.total - told[1].memory.total == pytest.approx(80 * 8192 * OF_INPUTS, rel=0.1)


def test_an_activation_without_a_gate_and_software_that_stores_none_are_refused():
    gpt = dataclasses.replace(PLAN, adapter="none", lora_rank=None, lora_targets=None, seq_len=1024, activation_input_dtype="fp8")
    with pytest.raises(IllegalPlan, match="no gate"):
        estimate(load_model("gpt2-small"), load_cluster("dgx-b200", 8), gpt, NEMO)
    plain = dataclasses.replace(gpt, dtype="bf16", attention_dtype=None, zero_stage=3)
    with pytest.raises(IllegalPlan, match=r"activation_input_dtype='fp8': fsdp2"):
        estimate(MODEL, load_cluster("dgx-b200", 8), plain, "fsdp2")


def test_launch_files_say_it():
    plan = Plan(global_batch=8, seq_len=4096, data_parallel=8, activation_input_dtype="fp8")
    written = write_launch("megatron", plan, load_model("llama2-7b"))
    assert "--activation-func-fp8-input-store" in written
    assert read_launch(written).plan.activation_input_dtype == "fp8"

"""Dense MLPs and adapters by Transformer Engine's operation fuser: what no longer goes to memory and back."""

import dataclasses

import pytest

from costmodel import (
    Plan,
    estimate,
    load_cluster,
    load_device,
    load_framework,
    load_model,
    read_launch,
    write_launch,
)
from costmodel.formulas.transformer import adapters, launches
from costmodel.formulas.transformer.activations import layer_activations
from costmodel.formulas.transformer.traffic import between_products, cast_bytes, elementwise_bytes
from costmodel.text.errors import IllegalPlan

TOKENS, WIDTH, HIDDEN = 8192, 14336, 4096
MODEL = load_model("llama3-8b")
FRAMEWORK = load_framework("nemo", "blackwell")
PLAN = Plan(global_batch=8, seq_len=TOKENS, data_parallel=8, dtype="fp8")
ADAPTED = dataclasses.replace(PLAN, adapter="lora", lora_targets=("fused", "output"))


def fused(plan):
    return dataclasses.replace(plan, fused_operators=True)


def of_layer(plan):
    resolved = plan.resolve(FRAMEWORK)
    return MODEL.numbers(), resolved.settings(FRAMEWORK), resolved.numbers(FRAMEWORK, MODEL.layers)


def moved(plan):
    """Bytes between products and of casts, forward and backward."""
    model, settings, split = of_layer(plan)
    forward, backward = between_products(elementwise_bytes(model, settings, split), model, settings)
    cast = cast_bytes(model, settings, split, FRAMEWORK.numbers())
    casts = cast.attention + cast.mlp
    return forward + casts, backward + 2.0 * casts


@pytest.mark.parametrize("dtype", ["fp8", "mxfp8"])
def test_an_activation_that_writes_the_operand_itself_saves_16_bits_there_and_back(dtype):
    plan = dataclasses.replace(PLAN, dtype=dtype)
    apart, together = moved(plan), moved(fused(plan))
    # forward the product of gate and up was written and read by the cast, backward the gradients of both were
    assert apart[0] - together[0] == pytest.approx(TOKENS * WIDTH * (2 + 2))
    assert apart[1] - together[1] == pytest.approx(TOKENS * WIDTH * 2 * (2 + 2))
    assert launches.cast_kernels(of_layer(plan)[1]) - launches.cast_kernels(of_layer(fused(plan))[1]) == launches.OF_CAST


@pytest.mark.parametrize("dtype", ["bf16", "nvfp4", "fp8-block"])
def test_others_are_cast_by_kernels_of_their_own_as_before(dtype):
    plan = dataclasses.replace(PLAN, dtype=dtype)
    assert moved(plan) == moved(fused(plan))


def test_products_scale_and_add_what_adapters_make():
    device = load_device("b200-sxm").numbers("fp8")
    apart, together = (
        adapters.adapter_work(*of_layer(plan), TOKENS, device) for plan in (ADAPTED, fused(ADAPTED))
    )  # fmt: skip
    inputs, outputs = 2 * HIDDEN, (32 + 2 * 8) * 128 + HIDDEN
    saved = [(before - after) * device.memory_bandwidth for before, after in zip(apart, together, strict=True)]
    # forward one tensor was written, scaled (read, written) and added (two read, one written): now one is read and written;
    # backward a gradient was read, written scaled and read; of inputs' gradients two were read and a sum written, now one is read
    assert saved[0] == pytest.approx(TOKENS * outputs * 2 * (6 - 2))
    assert saved[1] == pytest.approx(TOKENS * (outputs * 2 * (3 - 1) + inputs * 2 * (3 - 1)))
    assert saved[2] == 0.0
    kernels = [launches.adapter_kernels(of_layer(plan)[1], MODEL.numbers()) for plan in (ADAPTED, fused(ADAPTED))]
    assert kernels[0] - kernels[1] == 2 * 2  # a scaling and a sum of each adapter


def test_what_is_kept_for_the_backward_pass_is_the_same():
    for plan in (PLAN, ADAPTED):
        assert layer_activations(*of_layer(plan)) == layer_activations(*of_layer(fused(plan)))


def test_a_framework_without_it_is_refused():
    with pytest.raises(IllegalPlan, match="fsdp2 runs nothing by Transformer Engine's operation fuser"):
        estimate(MODEL, load_cluster("dgx-b200", gpus=8), fused(PLAN), "fsdp2")


def test_launch_files_say_it_and_are_read():
    for dialect in ("megatron", "megatron-bridge"):
        written = write_launch(dialect, fused(PLAN), MODEL, cluster=load_cluster("dgx-b200", gpus=8))
        assert read_launch(written, gpus=8).plan_fields["fused_operators"] is True
        plain = write_launch(dialect, PLAN, MODEL, cluster=load_cluster("dgx-b200", gpus=8))
        assert "fused_operators" not in read_launch(plain, gpus=8).plan_fields

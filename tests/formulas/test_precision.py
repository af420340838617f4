"""Bytes of number formats and recipes, and the steps that loss scaling skips, against what simulation and papers say."""

import math

import pytest

from costmodel import Plan, Transformer, load_framework, load_model
from costmodel.formulas.quantities import Place
from costmodel.formulas.transformer import activations, memory, precision

RECIPES = [  # framework, dtype, optimizer: bytes of a weight, of its gradient and of its optimizer state
    ("deepspeed", "fp32", "adam", (4, 4, 8)),  # rajbhandari2020, section 3.1: 16 in all
    ("deepspeed", "fp16", "adam", (2, 2, 12)),  # the same section: 2 + 2 + K with K = 12
    ("deepspeed", "bf16", "adam", (2, 2, 12)),
    ("megatron-core", "bf16", "adam", (2, 4, 12)),  # Megatron-LM theoretical_memory_usage.py: 18 in all
    ("megatron-core", "fp8", "adam", (2, 4, 12)),  # weights are kept in 16 bit and cast
    ("megatron-core", "nvfp4", "adam", (2, 4, 12)),
    ("megatron-core", "bf16", "adam-precision-aware", (2, 4, 10)),
    ("megatron-core", "bf16", "adam-8bit", (2, 4, 6)),
    ("megatron-core", "fp32", "sgd-momentum", (4, 4, 4)),
    ("megatron-core", "fp32", "adam-8bit", (4, 4, 2)),
    ("megatron-core", "fp32", "rmsprop", (4, 4, 8)),
]


@pytest.mark.parametrize(("framework", "dtype", "optimizer", "wanted"), RECIPES)
def test_a_recipe_takes_the_bytes_that_its_authors_count(framework, dtype, optimizer, wanted):
    wide = 4 if dtype == "fp32" else None
    plan = Plan(global_batch=1, seq_len=1, dtype=dtype, optimizer=optimizer, gradient_bytes=wide)
    settings = plan.settings(load_framework(framework))
    assert (settings.widths.stored, settings.widths.gradient, settings.widths.optimizer) == wanted


def test_gpipes_rmsprop_takes_12_bytes_of_weights_and_moments():  # huang2019, table 1
    settings = Plan(global_batch=1, seq_len=1, dtype="fp32", optimizer="rmsprop").settings(load_framework("megatron-core"))
    assert settings.widths.stored + settings.widths.optimizer == 12


@pytest.mark.parametrize(("dtype", "operand", "activation"), [
    ("fp32", 4.0, 4.0), ("tf32", 4.0, 4.0), ("fp16", 2.0, 2.0), ("bf16", 2.0, 2.0), ("fp8", 1.0, 2.0),
    ("mxfp8", 1.0 + 1 / 32, 2.0), ("nvfp4", 0.5 + 1 / 16, 2.0),  # a scale of one byte for each 32, each 16
])  # fmt: skip
def test_a_dtype_sets_the_bytes_of_operands_and_activations(dtype, operand, activation):
    settings = Plan(global_batch=1, seq_len=1, dtype=dtype).settings(load_framework("megatron-core"))
    assert (settings.widths.compute, settings.widths.activation) == (operand, activation)


@pytest.mark.parametrize(("element", "scale", "block"), [(8, 8, 32), (4, 8, 32), (4, 8, 16), (4, 32, 64)])
def test_blocks_with_a_scale_take_the_bytes_of_their_buffers(element, scale, block):
    elements = 4096
    buffers = elements * element // 8 + elements // block * scale // 8
    assert precision.block_bytes(element, scale, block) * elements == buffers


def scaler(largest, growth_interval, initial, updates):
    """Steps skipped before the first update and in all, until so many updates: PyTorch's GradScaler.update()."""
    scale, clean, done, skipped, first = initial, 0, 0, 0, None
    while done < updates:
        if scale > largest:
            scale, clean, skipped = scale * 0.5, 0, skipped + 1
            continue
        first = skipped if first is None else first
        done, clean = done + 1, clean + 1
        if clean == growth_interval:
            scale, clean = scale * 2.0, 0
    return first, skipped


@pytest.mark.parametrize("growth_interval", [1, 10, 2000])
@pytest.mark.parametrize("largest", [1.0, 1000.0, 1024.0, 65536.0])
def test_loss_scaling_skips_as_many_steps_as_its_formulas_say(growth_interval, largest):
    rounds = 50  # each of them grows once
    first, skipped = scaler(largest, growth_interval, 65536.0, rounds * growth_interval + 1)
    assert first == precision.settling_steps(65536.0, largest)
    settled = skipped - first
    assert settled == rounds
    run = rounds * growth_interval + settled
    assert settled / run == pytest.approx(precision.skipped_share(growth_interval), rel=1e-12)
    assert run == pytest.approx(precision.steps_run(rounds * growth_interval, growth_interval), rel=1e-12)


def test_a_scale_below_what_overflows_is_not_brought_down():
    assert precision.settling_steps(1.0, 65536.0) == 0.0
    assert not math.copysign(1.0, precision.settling_steps(1.0, 65536.0)) < 0


@pytest.mark.parametrize(("attention", "dtype", "each"), [
    ("fused-softmax", "bf16", 34), ("fused-softmax", "fp8", 27), ("flash", "bf16", 34), ("flash", "fp8", 29),
])  # fmt: skip
def test_products_in_8_bit_save_their_inputs_in_one_byte(attention, dtype, each):
    """TransformerEngine's linear layers save the cast input; a flash kernel saves its own output as well.

    In 16 bit, per token and channel: 2 norms' inputs and outputs 8, q, k, v 6, the attention's output 2, of the MLP 4 x 2
    before and 4 x 2 after its activation, two dropout masks 2. In 8 bit the norms' outputs, the attention's and the
    activation's are saved in half.
    """
    model = Transformer(name="gpt", layers=2, hidden=1024, heads=16, vocabulary=51200, feed_forward=4096, gated=False,
                        norm="layernorm", dropout=True)  # fmt: skip
    plan = Plan(global_batch=1, seq_len=2048, dtype=dtype, attention=attention)
    framework = load_framework("megatron-core")
    saved = activations.layer_activations(model.numbers(), plan.settings(framework), plan.numbers(framework, 2))
    scores = 5 * 16 * 2048 / 1024 if attention != "flash" else 4 * 16 / 1024
    assert saved == pytest.approx(2048 * 1024 * (each + scores), rel=1e-12)


def test_weights_multiplied_in_8_bit_are_held_cast_and_transposed_beside_their_16_bits():
    model = load_model("llama3-8b")
    held = [
        memory.states(model.numbers(), plan.settings(framework), plan.numbers(framework, 32), Place(32.0, 0.0, 0.0, 1.0, 1.0))[0]
        for framework in (load_framework("megatron-core"), load_framework("fsdp2"))
        for plan in (Plan(global_batch=1, seq_len=2048, dtype=dtype, zero_stage=0) for dtype in ("bf16", "fp8"))
    ]
    matrices = 32 * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336)
    assert held[1] - held[0] == pytest.approx(2 * matrices, rel=1e-3)  # the norms are counted too
    assert held[3] == held[2]  # torchao casts again in the backward pass

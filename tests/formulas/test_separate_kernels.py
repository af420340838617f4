"""What kernels between products move where a framework makes several of what others make one."""

import dataclasses

import pytest

from costmodel import Plan, estimate, load_cluster, load_framework, load_model
from costmodel.formulas.transformer.activations import attention_activations
from costmodel.formulas.transformer.traffic import between_products, elementwise_bytes

MODEL = load_model("llama2-7b")
PLAN = Plan(global_batch=8, seq_len=4096, data_parallel=8, micro_batch=1, zero_stage=2, sequence_parallel=False)
TOKENS, WIDE, GATED = 4096, 4096, 11008

# Tensors read and written by each kernel, in those of its output's width.
ROTATION_APART = [
    (1, 1),  # times the cosine
    (0.5, 0.5),  # the second half negated
    (1, 1),  # halves joined the other way round
    (1, 1),  # times the sine
    (2, 1),  # sum
]
ROTATION_BACKWARD = [
    (1, 1),  # times the cosine
    (1, 1),  # times the sine
    (0.5, 0.5),  # a half negated
    (0.5, 1.5), (0.5, 1.5),  # each half copied into zeros
    (2, 1), (2, 1),  # sums of the three
]  # fmt: skip
NORM_APART = [
    (2, 4),  # cast to 32 bit
    (4, 4), (4, 0), (4, 4),  # squared, averaged, scaled
    (4, 2), (2, 2),  # cast to 16 bit, weighed
]  # fmt: skip
NORM_AUTOGRAD = [
    (2, 2), (4, 2), (2, 0),  # of what was weighed; of the weight, and its sum
    (2, 4), (4, 4), (8, 4), (4, 0),  # cast; of what was scaled; of the scale, and its sum
    (0, 4), (4, 4), (4, 4), (8, 4),  # the mean's spread out; the input to the power of 1, doubled, times it
    (8, 4), (4, 2),  # both sums, cast
]  # fmt: skip
"""Bytes read and written by each kernel for a 16-bit channel."""
ACTIVATION_APART, ACTIVATION_BACKWARD = [(1, 1), (2, 1)], [(2, 1), (2, 1), (2, 1)]


def moved(**habits):
    framework = dataclasses.replace(load_framework("hf-trainer"), separate_rotation=False, keep_activated=False,
                                    separate_projections=False)  # fmt: skip
    framework = dataclasses.replace(framework, **habits)
    plan = PLAN.resolve(framework)
    settings = plan.settings(framework)
    by_module = elementwise_bytes(MODEL.numbers(), settings, plan.numbers(framework, MODEL.layers))
    return by_module, between_products(by_module, MODEL.numbers(), settings)


def bytes_of(kernels, width):
    return 2 * TOKENS * width * sum(map(sum, kernels))


def test_a_rotation_of_separate_kernels_moves_what_each_of_them_does():
    (fused, passes), (apart, longer) = moved(), moved(separate_rotation=True)
    assert fused.rotary == bytes_of([(1, 1)], 2 * WIDE)  # queries and keys
    assert apart.rotary == bytes_of(ROTATION_APART, 2 * WIDE)
    assert apart._replace(rotary=0.0) == fused._replace(rotary=0.0)
    assert longer[0] - passes[0] == pytest.approx(apart.rotary - fused.rotary)
    assert longer[1] - passes[1] == pytest.approx(bytes_of(ROTATION_BACKWARD, 2 * WIDE) - bytes_of([(1, 1)], 2 * WIDE))


def test_a_gated_activation_of_two_kernels_moves_what_each_of_them_does():
    (fused, passes), (apart, longer) = moved(), moved(keep_activated=True)
    assert fused.mlp == bytes_of([(2, 1)], GATED)
    assert apart.mlp == bytes_of(ACTIVATION_APART, GATED)
    backward = longer[1] - passes[1]
    assert backward == pytest.approx(bytes_of(ACTIVATION_BACKWARD, GATED) - bytes_of([(3, 2)], GATED))


def test_a_norm_of_separate_kernels_moves_what_each_of_them_does():
    (fused, passes), (apart, longer) = moved(fused_norms=True), moved(fused_norms=False)
    channels = TOKENS * WIDE * MODEL.numbers().norms
    assert apart.norms == channels * sum(map(sum, NORM_APART))
    assert longer[0] - passes[0] == pytest.approx(apart.norms - fused.norms)
    backward = longer[1] - passes[1]
    assert backward == pytest.approx(channels * (sum(map(sum, NORM_AUTOGRAD)) - 6))  # a fused one reads two and writes one


def test_a_plain_activation_is_one_kernel_either_way():
    plain = dataclasses.replace(MODEL, gated=False)
    framework = load_framework("hf-trainer")
    assert framework.keep_activated and framework.separate_rotation
    fused = dataclasses.replace(framework, keep_activated=False)
    one, other = (
        elementwise_bytes(plain.numbers(), PLAN.resolve(f).settings(f), PLAN.numbers(f, 32)).mlp for f in (framework, fused)
    )
    assert one == other == bytes_of([(1, 1)], GATED)


def test_fused_kernels_take_less_time_and_keep_less():
    cluster, eager = load_cluster("dgx-h100", gpus=8), load_framework("hf-trainer")
    fused = dataclasses.replace(eager, separate_rotation=False, keep_activated=False)
    slow, fast = (estimate(MODEL, cluster, PLAN, framework) for framework in (eager, fused))
    assert fast.step_time < slow.step_time
    assert fast.memory.total < slow.memory.total


def test_learned_positions_rotate_nothing():
    learned = dataclasses.replace(MODEL, learned_positions=4096)
    eager = load_framework("hf-trainer")
    for framework in (eager, dataclasses.replace(eager, separate_rotation=False)):
        settings, degrees = PLAN.resolve(framework).settings(framework), PLAN.numbers(framework, 32)
        assert elementwise_bytes(learned.numbers(), settings, degrees).rotary == 0.0
        assert elementwise_bytes(MODEL.numbers(), settings, degrees).rotary > 0.0


def test_separate_kernels_keep_no_rotated_copy_of_what_learned_positions_leave():
    learned = dataclasses.replace(MODEL, learned_positions=4096).numbers()
    eager = dataclasses.replace(load_framework("hf-trainer"), keep_rotated=True)
    kept = []
    for framework in (eager, dataclasses.replace(eager, keep_rotated=False)):
        settings, degrees = PLAN.resolve(framework).settings(framework), PLAN.numbers(framework, 32)
        kept.append([attention_activations(model, settings, degrees) for model in (learned, MODEL.numbers())])
    (eager_learned, eager_rotated), (fused_learned, fused_rotated) = kept
    assert eager_learned == fused_learned == fused_rotated
    assert eager_rotated - fused_rotated == 2 * 2 * WIDE  # bytes a token: queries and keys


def test_a_layer_norm_of_separate_kernels_is_one():
    eager = dataclasses.replace(load_framework("hf-trainer"), fused_norms=False)
    fused = dataclasses.replace(eager, fused_norms=True)
    plan = Plan(global_batch=8, seq_len=4096, data_parallel=8, zero_stage=2)
    for norm, ratio in (("layernorm", 1), ("rmsnorm", 9), ("none", 1)):
        model = dataclasses.replace(load_model("llama2-7b"), norm=norm)
        apart, one = (
            elementwise_bytes(model.numbers(), plan.resolve(f).settings(f), plan.resolve(f).numbers(f, model.layers)).norms
            for f in (eager, fused)
        )
        assert apart == ratio * one

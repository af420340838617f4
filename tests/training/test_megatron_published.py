"""Weak scaling of Shoeybi et al. 2019 and table 2 of Narayanan et al. 2021, from shapes."""

import dataclasses
import functools

import pytest
from scipy.optimize import brentq

from costmodel import Plan, Transformer, estimate, load_cluster, load_framework, load_model
from costmodel.records import flat, replaced

# Megatron-LM in 2019: figure 5, per cent of linear; 8 sequences of 1024 tokens a replica, on DGX-2

SHAPES = {"1.2B": (1536, 40, 16, 1), "2.5B": (1920, 54, 20, 2), "4.2B": (2304, 64, 24, 4), "8.3B": (3072, 72, 32, 8)}
MODEL_PARALLEL = {"1.2B": 100, "2.5B": 95, "4.2B": 82, "8.3B": 77}
WITH_DATA_PARALLEL = {"1.2B": 96, "2.5B": 83, "4.2B": 79, "8.3B": 74}
BASELINE = 39e12
"""FLOP/s of 1.2 B on one GPU, recomputation counted: with it the 15.1 PFLOP/s of 8.3 B give 1.9 days an epoch (2.1 published)."""


def megatron_2019(speed):
    """The stack of 2021 with the compute kernels so many times as fast; it reduces 16 bits behind the backward pass."""
    framework = load_framework("megatron-lm-2021")
    constants = framework.constants
    known = flat(constants)
    names = ("compute_gemm_efficiency_scale", "compute_attention_efficiency_scale")
    slower = replaced(
        constants, {name: known[name] * speed for name in names}
    )  # fmt: skip
    return dataclasses.replace(framework, constants=slower)


def reached(name, replicas, speed):
    """FLOP/s of a GPU."""
    hidden, layers, heads, tensor = SHAPES[name]
    model = Transformer(
        name=name, layers=layers, hidden=hidden, heads=heads, vocabulary=51200, feed_forward=4 * hidden, gated=False,
        norm="layernorm", attention_bias=True, output_bias=True, feed_forward_bias=True, tied_embeddings=True,
        learned_positions=1024, dropout=True,
    )  # fmt: skip
    plan = Plan(
        global_batch=8 * replicas, seq_len=1024, tensor_parallel=tensor, data_parallel=replicas, micro_batch=8, recompute="full",
        dtype="fp16", attention="unfused", gradient_bytes=2, overlap_gradients=True,
    )  # fmt: skip
    answer = estimate(model, load_cluster("dgx-2", gpus=tensor * replicas), plan, megatron_2019(speed))
    return float(answer.step.hardware_flop) / answer.step_time / plan.gpus


@functools.cache
def speed():
    """Of the kernels, from the published baseline alone; every other row is predicted."""
    return brentq(lambda factor: reached("1.2B", 1, factor) - BASELINE, 0.2, 1.5)


def efficiency(name, replicas, factor):
    return 100 * reached(name, replicas, factor) / reached("1.2B", 1, factor)


def row(name, replicas, published, why=None):
    marks = [pytest.mark.xfail(strict=True, reason=why)] if why else []
    return pytest.param(name, replicas, published, id=f"{name} x {replicas}", marks=marks)


@pytest.mark.parametrize(("name", "replicas", "published"), [
    row("2.5B", 1, 95), row("1.2B", 64, 96),
    row("8.3B", 64, 74, "79.2: as 8.3 B on one replica"),
    row("8.3B", 1, 77, "84.1: as 4.2 B on four ranks"),
    row("4.2B", 1, 82, "91.6: four ranks wait for each other in small kernels, which the constants of 2021 no longer have"),
    row("2.5B", 64, 83, "96.8: published falls by 12 points with data parallelism where 8.3 B falls by 3"),
    row("4.2B", 64, 79, "88.1: as without data parallelism"),
])  # fmt: skip
def test_weak_scaling_is_as_published_within_five_points(name, replicas, published):
    assert efficiency(name, replicas, speed()) == pytest.approx(published, abs=5.0)


@pytest.mark.parametrize(("name", "replicas", "published"), [
    row("2.5B", 1, 95), row("4.2B", 1, 82), row("1.2B", 64, 96), row("4.2B", 64, 79),
    row("8.3B", 1, 77), row("8.3B", 64, 74),
    row("2.5B", 64, 83, "92.8: published falls by 12 points with data parallelism where 8.3 B falls by 3"),
])  # fmt: skip
def test_weak_scaling_with_the_kernels_of_2021_is_within_five_points(name, replicas, published):
    assert efficiency(name, replicas, 1.0) == pytest.approx(published, abs=5.0)


# Table 2 of Narayanan et al. 2021: TFLOP/s a GPU on Selene, 2048 tokens

ZERO_3 = [
    ("gpt3-175b", 1536, 384, 4, 144), ("gpt3-175b", 1536, 768, 2, 88), ("gpt3-175b", 1536, 1536, 1, 44),
    ("megatron-530b", 2560, 640, 4, 138), ("megatron-530b", 2240, 1120, 2, 98), ("megatron-530b", 2240, 2240, 1, 48),
]  # fmt: skip
PTD_P = [
    ("gpt3-175b", 1536, 384, 12, 153), ("gpt3-175b", 1536, 768, 12, 149), ("gpt3-175b", 1536, 1536, 12, 141),
    ("megatron-530b", 2240, 560, 35, 171), ("megatron-530b", 2240, 1120, 35, 167), ("megatron-530b", 2240, 2240, 35, 159),
]  # fmt: skip
def zero_3(name, batch, gpus, micro_batch):
    plan = Plan(
        global_batch=batch, seq_len=2048, data_parallel=gpus, zero_stage=3, micro_batch=micro_batch, recompute="full"
    )  # fmt: skip
    answer = estimate(load_model(name), load_cluster("selene", gpus=gpus), plan, "deepspeed")
    return float(answer.step.hardware_flop) / answer.step_time / gpus / 1e12


@pytest.mark.parametrize(("name", "batch", "gpus", "pipeline", "published"), PTD_P)
def test_tensor_pipeline_and_data_parallel_rows_are_within_ten_per_cent(name, batch, gpus, pipeline, published):
    plan = Plan(
        global_batch=batch, seq_len=2048, tensor_parallel=8, pipeline_parallel=pipeline, data_parallel=gpus // 8 // pipeline,
        recompute="full",
    )  # fmt: skip
    answer = estimate(load_model(name), load_cluster("selene", gpus=gpus), plan, "megatron-lm-2021")
    assert float(answer.step.hardware_flop) / answer.step_time / gpus / 1e12 == pytest.approx(published, rel=0.10)


BEYOND = pytest.mark.xfail(strict=True, reason="20.4 and 28 % too fast: DeepSpeed's constants are of later releases")


@pytest.mark.parametrize(("name", "batch", "gpus", "micro_batch", "published"), [
    pytest.param(*one, marks=BEYOND if one[0] == "megatron-530b" and one[2] < 2240 else ()) for one in ZERO_3
])  # fmt: skip
def test_zero_3_rows_are_within_twenty_per_cent(name, batch, gpus, micro_batch, published):
    assert zero_3(name, batch, gpus, micro_batch) == pytest.approx(published, rel=0.20)

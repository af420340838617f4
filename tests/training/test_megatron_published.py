"""Weak scaling of Shoeybi et al. 2019 and table 2 of Narayanan et al. 2021, from shapes."""

import dataclasses
import functools

import pytest
from scipy.optimize import brentq

from costmodel import Plan, Transformer, estimate, load_cluster, load_framework, load_model
from costmodel.arithmetic.named_tuples import flat, replaced

# Megatron-LM in 2019: figure 5, per cent of linear; 8 sequences of 1024 tokens a replica, on DGX-2

SHAPES = {"1.2B": (1536, 40, 16, 1), "2.5B": (1920, 54, 20, 2), "4.2B": (2304, 64, 24, 4), "8.3B": (3072, 72, 32, 8)}
MODEL_PARALLEL = {"1.2B": 100, "2.5B": 95, "4.2B": 82, "8.3B": 77}
WITH_DATA_PARALLEL = {"1.2B": 96, "2.5B": 83, "4.2B": 79, "8.3B": 74}
BASELINE = 39e12
"""FLOP/s of 1.2 B on one GPU, recomputation counted: with it the 15.1 PFLOP/s of 8.3 B give 1.9 days an epoch (2.1 published)."""


UNFUSED = (2 * (2.0 + 2.5 + 3.0) + 4.0) / (2 * 4.5 + 4.0)
"""Reads and writes of a hidden state by separate kernels of bias, dropout and residual, beside two norms, over those of fused
ones (NVIDIA/Megatron-LM fused them after 2019: arXiv 2104.04473 section 4.2)."""


def megatron_2019(speed, separate=UNFUSED):
    """The stack of 2021 with every kernel on the GPU so many times as fast, and element-wise ones apart.

    It reduces 16 bits behind the backward pass. Its softmax is one in 16 bit, of 6 reads and writes of the scores forward and 5
    backward, for which the fused one's 2 and 3 are nearer than the 12 and 14 of a softmax in 32 bit between two casts.
    """
    framework = load_framework("megatron-lm-2021", "volta")
    constants = framework.constants
    known = flat(constants)
    factors = {
        "compute_gemm_efficiency_scale": speed, "compute_attention_efficiency_scale": speed,
        "compute_elementwise_traffic": separate / speed,
    }  # fmt: skip
    slower = replaced(constants, {name: known[name] * factor for name, factor in factors.items()})
    return dataclasses.replace(framework, constants=slower)


def reached(name, replicas, speed, separate=UNFUSED):
    """FLOP/s of a GPU."""
    hidden, layers, heads, tensor = SHAPES[name]
    model = Transformer(
        name=name, layers=layers, hidden=hidden, heads=heads, vocabulary=51200, feed_forward=4 * hidden, gated=False,
        norm="layernorm", attention_bias=True, output_bias=True, feed_forward_bias=True, tied_embeddings=True,
        learned_positions=1024, dropout=True,
    )  # fmt: skip
    plan = Plan(
        global_batch=8 * replicas, seq_len=1024, tensor_parallel=tensor, data_parallel=replicas, micro_batch=8, recompute="full",
        dtype="fp16", attention="fused-softmax", gradient_bytes=2, overlap_gradients=True,
    )  # fmt: skip
    answer = estimate(model, load_cluster("dgx-2", gpus=tensor * replicas), plan, megatron_2019(speed, separate))
    return float(answer.step.hardware_flop) / answer.step_time / plan.gpus


@functools.cache
def speed():
    """Of the kernels, from the published baseline alone; every other row is predicted."""
    return brentq(lambda factor: reached("1.2B", 1, factor) - BASELINE, 0.2, 1.5)


def efficiency(name, replicas, factor, separate=UNFUSED):
    return 100 * reached(name, replicas, factor, separate) / reached("1.2B", 1, factor, separate)


def row(name, replicas, published, why=None):
    marks = [pytest.mark.xfail(strict=True, reason=why)] if why else []
    return pytest.param(name, replicas, published, id=f"{name} x {replicas}", marks=marks)


UNLIKE = "93.2: it loses 12 points to data parallelism, with the bytes and the time of the three that lose 3 or 4 (below)"


@pytest.mark.parametrize(("name", "replicas", "published"), [
    row("2.5B", 1, 95), row("1.2B", 64, 96), row("8.3B", 64, 74), row("8.3B", 1, 77),
    row("4.2B", 1, 82), row("4.2B", 64, 79), row("2.5B", 64, 83, UNLIKE),
])  # fmt: skip
def test_weak_scaling_is_as_published_within_five_points(name, replicas, published):
    assert efficiency(name, replicas, speed()) == pytest.approx(published, abs=5.0)


def test_no_exchange_costs_2_5_b_three_times_what_it_costs_the_others():
    """Gradients of a GPU and the time of its step are alike, and so is what data parallelism may cost; published: 4, 12, 3, 3."""
    gradients = [2 * (12 * layers * hidden**2 + 51200 * hidden) / tensor for hidden, layers, _, tensor in SHAPES.values()]
    assert max(gradients) / min(gradients) < 1.25
    costs = [efficiency(name, 1, speed()) - efficiency(name, 64, speed()) for name in SHAPES]
    assert costs == sorted(costs) and costs[-1] < 6.5


@pytest.mark.parametrize(("name", "replicas", "published"), [
    row("2.5B", 1, 95), row("4.2B", 1, 82), row("1.2B", 64, 96), row("4.2B", 64, 79),
    row("8.3B", 1, 77, "71.7: kernels as fast as those of 2021 leave communication a larger share"),
    row("8.3B", 64, 74, "67.0: the same"),
    row("2.5B", 64, 83, UNLIKE.replace("93.2", "91.2")),
])  # fmt: skip
def test_weak_scaling_with_the_kernels_of_2021_is_within_five_points(name, replicas, published):
    assert efficiency(name, replicas, 1.0, 1.0) == pytest.approx(published, abs=5.0)


# Table 2 of Narayanan et al. 2021: TFLOP/s a GPU on Selene, 2048 tokens

ZERO_3 = [
    ("gpt3-175b", 1536, 384, 4, 144), ("gpt3-175b", 1536, 768, 2, 88), ("gpt3-175b", 1536, 1536, 1, 44),
    ("megatron-530b", 2560, 640, 4, 138), ("megatron-530b", 2240, 1120, 2, 98), ("megatron-530b", 2240, 2240, 1, 48),
]  # fmt: skip
PTD_P = [
    ("gpt3-175b", 1536, 384, 12, 153), ("gpt3-175b", 1536, 768, 12, 149), ("gpt3-175b", 1536, 1536, 12, 141),
    ("megatron-530b", 2240, 560, 35, 171), ("megatron-530b", 2240, 1120, 35, 167), ("megatron-530b", 2240, 2240, 35, 159),
]  # fmt: skip

def zero_3(name, batch, gpus, micro_batch, framework):
    plan = Plan(
        global_batch=batch, seq_len=2048, data_parallel=gpus, zero_stage=3, micro_batch=micro_batch, recompute="full",
        dtype="fp16",
    )  # fmt: skip
    answer = estimate(load_model(name), load_cluster("selene", gpus=gpus), plan, framework)
    return float(answer.step.hardware_flop) / answer.step_time / gpus / 1e12


@pytest.mark.parametrize(("name", "batch", "gpus", "pipeline", "published"), PTD_P)
def test_tensor_pipeline_and_data_parallel_rows_are_within_ten_per_cent(name, batch, gpus, pipeline, published):
    plan = Plan(
        global_batch=batch, seq_len=2048, tensor_parallel=8, pipeline_parallel=pipeline, data_parallel=gpus // 8 // pipeline,
        recompute="full",
    )  # fmt: skip
    answer = estimate(load_model(name), load_cluster("selene", gpus=gpus), plan, "megatron-lm-2021")
    assert float(answer.step.hardware_flop) / answer.step_time / gpus / 1e12 == pytest.approx(published, rel=0.10)


@pytest.mark.parametrize(("name", "batch", "gpus", "micro_batch", "published"), ZERO_3)
def test_zero_3_rows_are_within_twenty_per_cent(name, batch, gpus, micro_batch, published):
    assert zero_3(name, batch, gpus, micro_batch, "deepspeed-2021") == pytest.approx(published, rel=0.20)


@pytest.mark.parametrize(("name", "batch", "gpus", "micro_batch", "published"), ZERO_3)
def test_today_s_defaults_of_deepspeed_would_have_been_faster(name, batch, gpus, micro_batch, published):
    today, then = (zero_3(name, batch, gpus, micro_batch, framework) for framework in ("deepspeed", "deepspeed-2021"))
    assert today > then

"""Weight gradients are added to those of earlier micro-batches by their products, or by kernels of their own."""

from __future__ import annotations

import dataclasses

import pytest

from costmodel import Plan, Transformer, estimate, load_cluster, load_device, load_framework, load_model
from costmodel.formulas.compute import gemm
from costmodel.formulas.transformer.layer import gradient_accumulation_bytes, layer_work

DEVICE = load_device("a100-sxm-80gb").numbers("fp16")
FRAMEWORK = load_framework("megatron-lm-2023", "ampere")

# Qi et al. 2023 (arXiv 2401.10241), tables 3 and 5: layers, hidden, heads, micro-batch, stages, and milliseconds of a stage's
# forward pass, of its gradients' to inputs and of its gradients' to weights, which Megatron-LM's products add in 32 bit.
PROFILED = [
    ("1.5B", 22, 2304, 24, 6, 8, 18.522, 18.086, 9.337),
    ("6.2B", 30, 4096, 32, 3, 8, 29.718, 29.444, 19.927),
    ("14.6B", 46, 5120, 40, 1, 16, 11.347, 11.248, 8.132),
    ("28.3B", 62, 6144, 48, 1, 32, 10.419, 10.207, 7.715),
]  # fmt: skip


def work_of(layers, hidden, heads, micro_batch, stages, fused=True):
    model = Transformer(
        name="GPT", layers=layers, hidden=hidden, heads=heads, vocabulary=50304, feed_forward=4 * hidden, gated=False,
        norm="layernorm", learned_positions=1024, attention_bias=True, output_bias=True, feed_forward_bias=True, dropout=True,
    )  # fmt: skip
    framework = dataclasses.replace(FRAMEWORK, fused_accumulation=fused)
    plan = Plan(
        global_batch=64 * micro_batch, micro_batch=micro_batch, seq_len=1024, pipeline_parallel=stages, schedule="zb-h1",
        dtype="fp16",
    ).resolve(framework)  # fmt: skip
    settings = plan.settings(framework)
    return layer_work(model.numbers(), settings, plan.numbers(framework, layers), framework.numbers(), DEVICE)


@pytest.mark.parametrize(("name", "layers", "hidden", "heads", "micro_batch", "stages", "forward", "inputs", "weights"), PROFILED)
def test_passes_of_a_stage_take_what_was_profiled(name, layers, hidden, heads, micro_batch, stages, forward, inputs, weights):
    work = work_of(layers, hidden, heads, micro_batch, stages)
    of_stage = 1e3 * (layers + 2) / stages  # the first and the last have one layer fewer
    assert of_stage * (work.weight + work.accumulate) == pytest.approx(weights, rel=0.15)
    assert of_stage * (work.forward + work.core_forward + work.stream_forward) == pytest.approx(forward, rel=0.2)
    assert of_stage * (work.data + work.core_backward + work.stream_backward) == pytest.approx(inputs, rel=0.2)


def test_without_it_kernels_that_read_both_and_write_the_sum_follow():
    fused, apart = work_of(62, 6144, 48, 1, 32), work_of(62, 6144, 48, 1, 32, fused=False)
    parameters = 12 * 6144**2 + 13 * 6144
    assert fused.accumulate == 0.0
    assert apart.accumulate == pytest.approx((4 + 4 + 2) * parameters / DEVICE.memory_bandwidth, rel=1e-3)
    assert apart.weight <= fused.weight <= apart.weight + (8 - 2) * parameters / DEVICE.product_bandwidth


def test_casts_and_copies_that_a_framework_has_besides_are_moved_for_every_micro_batch():
    """Of a model that autocast trains in 32 bits under DistributedDataParallel, 36 bytes a weight (torch/csrc/distributed/c10d/
    reducer.cpp): a forward and a backward cast of 6, a copy into a bucket and one back of 8, and a division of 8."""
    plan, parameters = Plan(global_batch=8, seq_len=1024, data_parallel=8), 1e9
    for fused in (True, False):
        framework = dataclasses.replace(FRAMEWORK, fused_accumulation=fused, weight_traffic=6.0 + 6.0 + 8.0 + 8.0 + 8.0)
        resolved = plan.resolve(framework)
        moved = gradient_accumulation_bytes(parameters, resolved.settings(framework), resolved.numbers(framework, 8))
        assert moved == 36.0 * parameters


def test_a_product_of_few_tokens_takes_what_its_sum_moves():
    size, added = 8192.0, 8.0
    seconds = gemm(size, size, 1.0, 2.0, DEVICE.flop_rate, DEVICE, added) - DEVICE.kernel_time
    assert seconds == pytest.approx(added * size**2 / DEVICE.product_bandwidth, rel=0.01)


def test_what_is_frozen_is_not_added():
    framework = dataclasses.replace(FRAMEWORK, fused_accumulation=False)
    plan = Plan(global_batch=8, seq_len=1024, data_parallel=8).resolve(framework)
    frozen = plan.settings(framework)._replace(trainable=0.0)
    assert gradient_accumulation_bytes(1e9, frozen, plan.numbers(framework, 8)) == 0.0


def test_sharded_gradients_are_added_apart():
    framework = load_framework("megatron-core", "hopper")
    plans = [Plan(global_batch=8, seq_len=1024, data_parallel=8, zero_stage=stage).resolve(framework) for stage in (0, 1, 2, 3)]
    numbers = [(plan.settings(framework), plan.numbers(framework, 8)) for plan in plans]
    assert [gradient_accumulation_bytes(1e9, *each) > 0.0 for each in numbers] == [False, False, True, True]


def test_a_step_of_many_small_micro_batches_gains_most():
    model, cluster = load_model("llama3-8b"), load_cluster("dgx-h100", 8)
    apart = load_framework("nemo", "hopper")
    apart, fused = (dataclasses.replace(apart, fused_accumulation=one) for one in (False, True))

    def gain(micro_batch):
        plan = Plan(global_batch=64, seq_len=4096, data_parallel=8, micro_batch=micro_batch, recompute="full")
        return estimate(model, cluster, plan, apart).step_time / estimate(model, cluster, plan, fused).step_time

    assert gain(1) > gain(8) > 1.0


def test_gradients_that_come_up_with_a_step_are_not_added_the_first_time():
    """PyTorch's ``AccumulateGrad`` takes the first gradient as it is; each further one is read with the sum, which is written."""
    framework = load_framework("hf-trainer")
    for micro_batches in (1, 4):
        plan = Plan(global_batch=micro_batches, micro_batch=1, seq_len=1024, base_dtype="fp32").resolve(framework)
        moved = gradient_accumulation_bytes(1e9, plan.settings(framework), plan.numbers(framework, 8))
        assert micro_batches * moved == pytest.approx((micro_batches - 1) * (4 + 4 + 2) * 1e9)


def test_fsdp_copies_gradients_to_where_they_are_summed_for_every_micro_batch():
    """torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py: read in 16 bit, written in the 32 in which they are summed."""
    framework = load_framework("fsdp2")
    for micro_batches in (1, 4):
        plan = Plan(global_batch=8 * micro_batches, micro_batch=1, seq_len=1024, data_parallel=8).resolve(framework)
        moved = gradient_accumulation_bytes(1e9, plan.settings(framework), plan.numbers(framework, 8))
        assert moved == (2 + 4) * 1e9

"""Padded samples under PyTorch's own attention: a mask keeps its flash kernel away."""

import pytest

from costmodel import Plan, estimate, load_cluster, load_device, load_framework, load_model
from costmodel.formulas.transformer import attention, lengths

MODEL, CLUSTER = load_model("llama3.1-8b"), load_cluster("dgx-h100", gpus=1)


def cores(**plan):
    """Forward and backward time of a layer's attention core on an A100 [s]."""
    framework, device = load_framework("hf-trainer", "ampere"), load_device("a100-sxm-80gb")
    asked = Plan(global_batch=4, seq_len=4096, data_parallel=1, **plan)
    numbers = asked.numbers(framework, MODEL.layers)
    settings = lengths.at_work(asked.settings(framework), numbers)
    tokens = settings.seq_len * asked.micro_batch
    return attention.core(MODEL.numbers(), tokens, settings, numbers, framework.numbers(), device.numbers("bf16"))


@pytest.mark.parametrize("batching", ["padded", "grouped", "padded-whole"])
def test_a_mask_costs_the_keys_that_it_hides_and_the_generations_that_flash_is_ahead(batching):
    """Twice the keys at FlashAttention 1's rate, 1.7 times slower than FlashAttention 2's: 3.4 times as long, tiles aside."""
    masked, flash = cores(batching=batching, micro_batch=2), cores(batching=batching, micro_batch=2, attention="flash")
    for slow, fast in zip(masked, flash, strict=True):
        assert slow == pytest.approx(3.4 * fast, rel=0.12)


@pytest.mark.parametrize(("batching", "micro_batch"), [("full", 2), ("padded", 1), ("packed", 2), ("padding-free", 2)])
def test_without_padding_there_is_no_mask(batching, micro_batch):
    plan = {"batching": batching, "micro_batch": micro_batch}
    assert cores(**plan) == cores(attention="flash", **plan)


def test_a_mask_is_kept_by_every_layer_in_the_dtype_of_the_queries_with_keys_and_values_of_every_head():
    sizes = {"global_batch": 2, "micro_batch": 2, "seq_len": 4096, "batching": "padded-whole"}
    masked, flash = (
        estimate(MODEL, CLUSTER, Plan(attention=kernel, **sizes), "hf-trainer").memory.activations for kernel in ("sdpa", "flash")
    )
    of_mask, of_keys = 2 * 4096 * 4096 * 2, 2 * 4096 * 2 * (32 - 8) * 128 * 2  # samples, then keys and values in 16 bit
    assert masked - flash == pytest.approx(32 * (of_mask + of_keys), rel=0.03)


@pytest.mark.parametrize(("cluster", "seconds"), [("dgx-h100", 4.7), ("dgx-a100", 9.7)])
def test_a_loop_that_pads_each_sample_takes_what_was_measured(cluster, seconds):
    """Llama 3.1 8B, whole, two samples of 8,192 tokens: ljm565/universal-llm-trainer@aefdc4a docs/gpu_test.md."""
    plan = Plan(global_batch=2, micro_batch=2, seq_len=8192, recompute="full", optimizer="adam-bf16", loss="16-bit")
    found = estimate(MODEL, load_cluster(cluster, gpus=1), plan, "universal-llm-trainer")
    assert found.step_time == pytest.approx(seconds, rel=0.12)


def test_products_in_32_bit_inside_that_kernel_are_three_of_tensor_cores():
    h100, v100 = (load_device(name).numbers("fp32") for name in ("h100-sxm", "v100-sxm-32gb"))
    assert h100.split_flop_rate == pytest.approx(494.7e12 / 3, rel=1e-3) and v100.split_flop_rate == v100.base_flop_rate

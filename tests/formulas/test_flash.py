"""Generations of flash attention's kernels."""

import dataclasses

import pytest

from costmodel import Plan, estimate, load_cluster, load_device, load_framework, load_model
from costmodel.arithmetic.named_tuples import replaced
from costmodel.evaluation.operators import roofline
from costmodel.formulas.transformer import attention, flops


@pytest.mark.parametrize(("older", "least", "most"), [(0.0, 0.5, 0.75), (1.0, 0.32, 0.38)])
def test_flash_attention_uses_of_an_h100_what_shah_et_al_state(older, least, most):
    """Abstract of shah2024: the second version 35 % of the peak, the third up to 75 %."""
    device, seq_len, software = load_device("h100-sxm"), 131072, load_framework("megatron-core").numbers()
    plain = replaced(software, {"compute_attention_efficiency_scale": 1.0})
    numbers = device.numbers("fp16")._replace(sustained_clock=1.0)
    model = dataclasses.replace(load_model("llama2-7b"), heads=16, kv_heads=16, head_dim=128).numbers()
    forward, _ = attention.flash(model, seq_len, seq_len, 1.0, older, plain, numbers)
    rate = 4 * 16 * 128 * seq_len * seq_len / 2 / forward
    assert least < rate / 989.4e12 < most


def test_the_first_flash_attention_uses_of_an_a100_what_dao_states():
    """Abstract of dao2023: 25 to 40 % of the peak."""
    numbers = load_device("a100-sxm-80gb").numbers("fp16")._replace(sustained_clock=1.0)
    forward, _ = attention.causal_flash(1e6, 8192.0, 0.0, 128.0, 2.0, 1.0, numbers, first_flash=1.0 / 1.7)
    assert 0.25 < 4e6 * 8192.0 * 128.0 / forward / 312e12 < 0.4


def test_the_ceiling_of_flash_attention_is_that_of_products_whatever_softmax_and_tiles_cost_besides():
    """FlashAttention 4 reaches 1,613 TFLOP/s on a B200 (Zadouri et al. 2026, abstract), near the best product measured there."""
    numbers = load_device("b200-sxm").numbers("bf16")._replace(sustained_clock=1.0)
    rates = []
    for quality in (1.0, 1.2, 1.6, 2.0, 100.0):
        forward, backward = attention.causal_flash(1e7, 65536.0, 0.0, 128.0, 0.0, quality, numbers)
        rates.append(4e7 * 65536.0 * 128.0 / forward)
        assert attention.FLASH_BACKWARD * 4e7 * 65536.0 * 128.0 / backward <= numbers.base_best_flop_rate
    assert rates[-1] == pytest.approx(numbers.base_best_flop_rate, rel=1e-3)
    assert rates[1] == pytest.approx(1.2 * rates[0], rel=1e-3)
    assert rates[0] < 1613e12 < rates[2]  # which the fit of a framework may reach


def test_flash_attention_2_is_as_slow_on_a_b200_as_it_was_measured_there():
    """meta-pytorch/tritonbench#171: 352 to 362 TFLOP/s forward at 2,048 to 8,192 tokens; Dao-AILab/flash-attention#1589: 330."""
    numbers = load_device("b200-sxm").numbers("bf16")
    forward, backward = attention.causal_flash(8 * 16 * 8192.0, 4096.0, 0.0, 128.0, 1.0, 1.0, numbers)
    flop = 4 * 8 * 16 * 8192.0 * 4096.0 * 128.0
    assert 250e12 < flop / forward < 400e12 and 250e12 < attention.FLASH_BACKWARD * flop / backward < 400e12


@pytest.mark.parametrize(
    ("name", "on"),
    [("nemo", ()), ("hf-fsdp", ("h100-sxm", "b200-sxm")), ("ddp", ("h100-sxm", "b200-sxm")), ("fsdp2", ("h100-sxm",))],
)
def test_kernels_for_ampere_are_slower_on_hopper_and_blackwell_where_software_takes_them(name, on):
    for device in ("h100-sxm", "a100-sxm-80gb", "b200-sxm", "rtx-5090"):
        framework = load_framework(name, load_device(device).architecture)
        settings = Plan(global_batch=1, seq_len=8192).settings(framework)
        model, tokens = load_model("llama3-8b").numbers(), 8192
        numbers = load_device(device).numbers("bf16")
        newest = settings._replace(kernels=settings.kernels._replace(older_flash=0.0))
        plan = Plan(global_batch=1, seq_len=8192).numbers(framework, 32)
        took, least = (
            attention.core(model, tokens, one, plan, framework.numbers(), numbers)[0] for one in (settings, newest)
        )
        assert (took > 1.5 * least) is (device in on) and (took == least) is (device not in on)


def test_a_roofline_counts_the_same_work_whatever_kernel_does_it():
    model, cluster, older = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8), load_framework("fsdp2")
    plan = Plan(global_batch=8, seq_len=8192, data_parallel=8, zero_stage=3)
    first, second = (
        {one.name: one.flop for one in roofline(estimate(model, cluster, plan, framework)).operators}
        for framework in (older, dataclasses.replace(older, older_flash=False))
    )
    assert older.older_flash and first == pytest.approx(second)


MEASURED_ON_A100 = {2048: 155e12, 4096: 173e12, 8192: 182e12, 16384: 189e12}
"""FlashAttention 2, causal, heads of 128 channels, forward and backward: Dao-AILab/flash-attention@0251105
assets/flash2_a100_fwd_bwd_benchmark.png."""


@pytest.mark.parametrize("seq_len", MEASURED_ON_A100)
def test_nemo_calls_the_flash_kernels_that_an_a100_has(seq_len):
    """It was timed on Hopper and Blackwell, whose kernels were written for them."""
    device, software = load_device("a100-sxm-80gb"), load_framework("nemo", "ampere").numbers()
    quality, numbers = software.compute.attention_efficiency_scale, device.numbers("bf16")
    forward, backward = attention.causal_flash(16_384 * 16.0, seq_len / 2, 0.0, 128.0, 0.0, quality, numbers)
    flop = (1.0 + attention.FLASH_BACKWARD) * 4.0 * 16_384 * 16 * seq_len / 2 * 128
    assert 0.85 * MEASURED_ON_A100[seq_len] < flop / (forward + backward) < 1.02 * MEASURED_ON_A100[seq_len]


def attended(seq_len, window, causal):
    """Pairs of a query and a key of one layer, by a look at each: keys that the mask hides are counted where it isn't."""
    if not causal:
        return seq_len * min(window, seq_len)
    return sum(1 for query in range(seq_len) for key in range(seq_len) if query - window < key <= query)


@pytest.mark.parametrize("window", [1, 5, 63, 64, 1000])
@pytest.mark.parametrize("causal", [0.0, 1.0])
def test_a_window_holds_the_pairs_that_a_look_at_each_counts(window, causal):
    counted = flops.attended_keys(64.0, float(window), causal)
    assert counted == pytest.approx(attended(64, window, causal) / 64, abs=0.5)  # half of the diagonal's key


def test_utilisation_counts_of_a_windowed_layer_what_its_window_holds():
    """Mistral 7B on 8,192 tokens, of which a query sees 4,096: arXiv 2310.06825, section 2."""
    windowed, cluster = load_model("mistral-7b"), load_cluster("dgx-a100", gpus=8)
    plan = Plan(global_batch=8, seq_len=8192, data_parallel=8)
    answers = {
        window: estimate(dataclasses.replace(windowed, sliding_window=window), cluster, plan)
        for window in (1024, 4096, 8192, 2**20)
    }
    per_token = {window: float(one.step.model_flop) / (8 * 8192) for window, one in answers.items()}
    layers = 3 * 32 * 2 * 2 * 32 * 128  # forward and twice backward, layers, scores and values, multiply and add, channels
    for window, keys in ((1024, 1024), (4096, 4096), (2**20, 8192)):
        assert per_token[8192] - per_token[window] == pytest.approx(layers * (8192 - keys), abs=1.0)
    for one in answers.values():
        assert 1.0 < one.mfu / one.causal_mfu < 2.0
        assert one.hfu == one.mfu

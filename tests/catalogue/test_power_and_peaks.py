"""How fast devices are whose operators weren't measured: by their power, and by the products that their owners measured."""

from __future__ import annotations

import pytest

from costmodel import Plan, estimate, load_cluster, load_device, load_model
from costmodel.catalogue import loader
from costmodel.formulas import compute

SQUARES = [  # zzc0721/torch-performance-test-data@0785868 database.md and issues 15 and 78: bf16, 8,192 x 8,192
    ("rtx-4090", 160.2e12), ("rtx-3090", 76.0e12), ("rtx-5090", 236.0e12),
    ("rtx-a6000", 123.3e12), ("a800", 266.5e12),
]  # fmt: skip


@pytest.mark.parametrize(("name", "rate"), SQUARES)
def test_a_large_square_product_takes_as_long_as_owners_of_the_card_measured(name, rate):
    device = load_device(name).numbers("bf16")._replace(sustained_clock=1.0)
    time = compute.base_gemm(8192.0, 8192.0, 8192.0, compute.base_product_rate(1.0, device), device)
    assert 2.0 * 8192.0**3 / time == pytest.approx(rate, rel=0.15)


def test_an_ada_card_with_three_times_the_power_for_a_flop_comes_nearer_to_its_peak_and_keeps_its_clock():
    l40s, geforce = load_device("l40s").efficiency, load_device("rtx-4090").efficiency
    assert geforce.gemm["bf16"] > 1.3 * l40s.gemm["bf16"]
    assert geforce.sustained_clock > l40s.sustained_clock


def test_an_ada_card_with_less_power_for_a_flop_runs_at_the_cube_root_of_it():
    ratio = (300 / 364.25e12) / (350 / 362.05e12)
    pooled, card = loader._pooled("ada")["gemm"]["bf16"], load_device("rtx-6000-ada").efficiency.gemm["bf16"]
    assert card / pooled == pytest.approx(ratio ** (1 / 3), rel=0.01)


def test_power_beyond_what_measured_devices_have_promises_no_more_than_these_reach():
    for name in ("a40", "rtx-a5000", "a800", "rtx-pro-6000-blackwell"):
        relation = loader._pooled(loader._entry("device", name)["architecture"])["gemm"]["bf16"]
        assert load_device(name).efficiency.gemm["bf16"] <= max(relation, loader._pooled("default")["gemm"]["bf16"]) + 1e-12


@pytest.mark.parametrize("power", ["300", '"300 W"', '"0.3 kW"'])
def test_a_user_whose_device_says_its_power_gets_the_catalogues_card(tmp_path, power):
    entry = loader._entry("device", "rtx-6000-ada")
    path = tmp_path / "mine.toml"
    path.write_text(
        f'architecture = "ada"\ndense_peak = {{ bf16 = {entry["dense_peak"]["bf16"]} }}\nmemory = 48e9\n'
        f"memory_bandwidth = 960e9\npower_w = {power}\n"
    )
    assert loader.read_device_file(path).efficiency.gemm == load_device("rtx-6000-ada").efficiency.gemm


def test_the_mi350x_is_as_much_slower_than_the_mi355x_as_mlperf_has_them():  # training_results_v5.1: 1.637 and 1.362 s a step
    slow, fast = (load_device(name).numbers("bf16") for name in ("mi350x", "mi355x"))
    rates = [compute.base_product_rate(1.0, device) for device in (slow, fast)]
    assert rates[0] / rates[1] == pytest.approx(1.362 / 1.637, rel=0.05)


def test_a_step_of_two_rtx_4090_takes_what_was_measured():  # AnswerDotAI/fsdp_qlora benchmarks, March 2024: 3.41 s
    plan = Plan(
        global_batch=8, seq_len=2048, micro_batch=4, adapter="lora", lora_rank=64, zero_stage=0, recompute="full",
        attention="flash", lora_targets=("query", "key", "value", "gate", "up", "down"),
    )  # fmt: skip
    cluster = load_cluster(device="rtx-4090", gpus=2)
    answer = estimate(load_model("llama2-7b"), cluster, plan, framework="hf-trainer@2024.3")
    assert answer.step_time == pytest.approx(3.41, rel=0.4)

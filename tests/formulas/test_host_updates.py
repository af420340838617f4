"""Optimizers on the host are as fast as its memory, of the generation of its devices' links, or as the kernel that updates."""

from __future__ import annotations

import pytest

from costmodel import Plan, estimate, load_device, load_framework, load_model, machine
from costmodel.formulas.training_step import HOST_MEMORY_OVER_LINK


def _rate(name: str, framework: str) -> float:
    return min(HOST_MEMORY_OVER_LINK * load_device(name).host_bandwidth, load_framework(framework).host_update_rate)


def test_a_host_of_v100s_updates_ten_billion_parameters_as_fast_as_zero_offload_published():
    assert 10e9 * 30 / _rate("v100-sxm-32gb", "deepspeed") == pytest.approx(2.57, rel=0.01)


def test_hosts_of_later_devices_reach_what_their_memory_channels_can():  # two processors of eight DDR4-3200, of eight DDR5-4800
    assert _rate("v100-sxm-32gb", "fsdp2") < _rate("a100-sxm-80gb", "fsdp2") < 2 * 8 * 25.6e9
    assert 0.6 * 2 * 8 * 38.4e9 < _rate("h100-sxm", "fsdp2") < 2 * 8 * 38.4e9


def test_no_host_passes_more_than_the_fastest_memory_does():
    assert _rate("gb200", "fsdp2") == 5e11


def _step(model: str, device: str, gpus: int, framework: str, **fields: object) -> float:
    plan = Plan(micro_batch=1, zero_stage=3, recompute="full", attention="flash", optimizer_offload=1.0, **fields)
    return estimate(load_model(model), machine(device, gpus=gpus), plan, framework=framework).step_time


def test_a_full_finetune_of_405b_offloaded_by_fsdp2_takes_what_was_measured():
    # LambdaLabsML/distributed-training-guide 05-training-llama-405b: 30 s on 64 H100; 44.9 s at the memory of a host of 2020
    assert _step("llama3.1-405b", "h100-sxm", 64, "fsdp2", global_batch=64, seq_len=4096) == pytest.approx(30.0, rel=0.2)


def test_deepspeeds_kernel_gains_nothing_by_a_newer_host():
    # stas00/ml-engineering@744d01e insights/when-to-upgrade-gpus/README.md: 8B at 8,192 tokens on eight H200, 2.99 s
    assert _step("llama3.1-8b", "h200-sxm", 8, "deepspeed", global_batch=8, seq_len=8192) == pytest.approx(2.99, rel=0.25)

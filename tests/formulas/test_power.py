"""Devices that may draw less than others of their die run slower."""

from __future__ import annotations

import dataclasses

import pytest

from costmodel import Plan, estimate, load_cluster, load_device, load_model
from costmodel.catalogue.loader import read_device_file
from costmodel.formulas.compute import limited_clock
from costmodel.text.errors import CostModelError


def test_half_the_power_leaves_the_cube_root_of_a_half_and_more_power_adds_nothing():
    assert limited_clock(350.0, 700.0) == pytest.approx(0.5 ** (1 / 3))
    assert limited_clock(800.0, 700.0) == 1.0


def test_the_a100_of_300_w_reaches_of_that_of_400_w_about_what_was_measured():
    # stas00/ml-engineering@744d01e compute/accelerator/README.md: best products of A100 PCIe and SXM, 253 and 271 TFLOP/s
    assert limited_clock(300.0, 400.0) == pytest.approx(253 / 271, abs=0.03)


def test_a_device_of_less_power_than_its_die_was_measured_at_runs_slower():
    device = load_device("h100-96gb-hbm2e")
    limited, own = device.numbers(), device.efficiency
    assert limited.sustained_clock == pytest.approx((500 / 700) ** (1 / 3) * own.sustained_clock)
    assert limited.narrow_clock == pytest.approx((500 / 700) ** (1 / 3) * own.narrow_clock)


DEVICE = """
dense_peak = {{ bf16 = 1e14 }}
memory = 24e9
memory_bandwidth = 1e12
{}
"""


REFUSED = {
    "rated_power_w = 700": "rated_power=700.0: expected power beside it",
    "power_w = 300\npower = 200": "power=200.0: expected power_w alone",
    "power_w = 300\nrated_power_w = -3": "rated_power=-3",
    "power_w = 300\nrated_power_w = \"x\"": "rated_power='x'",
}


@pytest.mark.parametrize(("power", "told"), REFUSED.items())
def test_limits_that_cannot_be_are_refused(tmp_path, power, told):
    path = tmp_path / "mine.toml"
    path.write_text(DEVICE.format(power))
    with pytest.raises(CostModelError, match=told):
        read_device_file(path)


def test_a_limit_alone_is_the_one_at_which_clocks_were_measured(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(DEVICE.format("power_w = 300\nrated_power = 450"))
    device = read_device_file(path)
    assert (device.power, device.rated_power) == (300, 450)
    assert dataclasses.replace(device, rated_power=None).rated_power == 300


def test_a_cap_lengthens_the_step_of_a_cluster():
    cluster, model = load_cluster("dgx-h100", 8), load_model("llama3-8b")
    plan = Plan(global_batch=64, seq_len=8192, data_parallel=8, recompute="full")
    capped = dataclasses.replace(cluster, device=dataclasses.replace(cluster.device, power=500.0))
    ratio = estimate(model, capped, plan).step_time / estimate(model, cluster, plan).step_time
    assert 1.03 < ratio < (700 / 500) ** (1 / 3)

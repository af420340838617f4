"""Products that another source measured on its own machines: MooreThreads/SimuMax@4dcaae513b.

But for the clock of its B200, as its runs are read, no constant was fitted to them.
"""

from __future__ import annotations

import csv
import re

import numpy as np
import pytest

from calibration.data.reference import DEFAULT_FOLDER
from calibration.fit.earlier_sweeps import CLOCKS
from costmodel import load_device
from costmodel.formulas import compute

MEASURED = DEFAULT_FOLDER / "micro" / "op_efficiency_simumax.csv"
pytestmark = pytest.mark.skipif(not MEASURED.is_file(), reason="the optional reference folder is absent")

DEVICES = {"A100-PCIe": "a100-pcie-80gb", "B200-SXM": "b200-sxm"}
SUMMED = 8.0
"""Bytes of a 32-bit gradient, read and written by a product that adds to it."""
FEWEST_ROWS = 512
"""Of a product, below which its time is that of launches and of weights that are read."""


def ratios(gpu, operator, **wanted):
    """Measured over predicted time of some operators, in short bursts."""
    numbers = load_device(DEVICES[gpu]).numbers("bf16")._replace(sustained_clock=1.0)
    rate = compute.product_rate(1.0, numbers)
    single = operator == "matmul"
    names, result = (("b", "m", "n", "k"), "out_dtype") if single else (("ng", "M", "N", "K"), "main_grad_dtype")
    with MEASURED.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if (row["gpu"], row["op"]) == (gpu, operator)]
    found = []
    for row in rows:
        of = dict(re.findall(r"(\w+)=([\w.]+)", row["shape_key"]))
        groups, m, n, k = (float(of.get(name, 1)) for name in names)
        if any(of.get(key) != value for key, value in wanted.items()) or m < FEWEST_ROWS:
            continue
        sizes = {"bwd_grad_act": (m, k, n), "bwd_grad_w": (n, k, m)}.get(of.get("stage"), (m, n, k))
        added = SUMMED if of["accumulate"] == "True" and of[result] == "fp32" else 0.0
        one = compute.gemm(*sizes, 2.0, rate, numbers, added)
        found.append(2.0 * groups * m * n * k / (1e12 * float(row["achieved_tflops"])) / (groups * one))
    return np.array(found)


LAYOUTS = {"forward": ("TN", "False"), "gradient of inputs": ("NN", "False"), "gradient of weights, added": ("NT", "True")}


@pytest.mark.parametrize(("layout", "accumulate"), LAYOUTS.values(), ids=LAYOUTS)
def test_products_of_training_take_as_long_forward_backward_and_added_to_gradients(layout, accumulate):
    found = ratios("A100-PCIe", "matmul", layout=layout, accumulate=accumulate)
    assert len(found) >= 50
    assert np.median(found) == pytest.approx(1.0, abs=0.05)
    assert np.median(np.abs(found - 1.0)) <= 0.08


@pytest.mark.parametrize("stage", ["fwd", "bwd_grad_act", "bwd_grad_w"])
def test_experts_take_as_long_as_their_products_one_by_one(stage):
    assert np.median(ratios("A100-PCIe", "group_matmul", stage=stage)) == pytest.approx(1.0, abs=0.08)
    assert np.median(ratios("B200-SXM", "group_matmul", stage=stage)) == pytest.approx(1.4, rel=0.15)


def test_the_clock_of_the_sources_machine_is_half_way_to_what_its_products_leave():
    """They ran on end, neither in a burst nor as long as a step, in which B200 of other sources keep 0.81 of their clock."""
    least = 1.0 / np.median(ratios("B200-SXM", "matmul"))
    assert CLOCKS["b200-sxm"] == pytest.approx(np.sqrt(least * least / 0.81), abs=0.02)

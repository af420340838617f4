"""Which way a step's time goes with each constant of the software: what costs time never saves any, and the reverse."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from costmodel.arithmetic.named_tuples import flat, nested, paths
from costmodel.formulas import training_step
from costmodel.formulas.quantities import Software
from tests.drawing import legal, questions, quick

SAVES = {
    "compute_gemm_efficiency_scale", "compute_attention_efficiency_scale", "network_quality", "network_sharding_quality",
    "overlap_tensor", "overlap_gradients", "overlap_parameters", "overlap_context", "overlap_experts", "overlap_pipeline",
    "overlap_accompanied_experts", "compute_first_flash", "compute_scan_efficiency", "host_pressure_start",
}  # fmt: skip
COSTS = {name for name in paths(Software) if not name.startswith("memory_")} - SAVES


def changed(found, names, factor):
    """Inputs of as many steps, after one constant each has been multiplied."""
    values = flat(found.inputs.software)
    table = {path: np.full(len(names), value) for path, value in values.items()}
    for place, name in enumerate(names):
        most = 0.99 if name == "host_pressure_start" else 1.0 if name.startswith("overlap_") else math.inf
        table[name][place] = min(values[name] * factor, most)
    return found.inputs._replace(software=nested(Software, table))


@quick
@given(questions(), st.floats(1.01, 4.0))
def test_a_step_goes_one_way_with_each_constant(question, factor):
    found, names = legal(question), sorted(COSTS | SAVES)
    after = np.broadcast_to(training_step.step(*changed(found, names, factor)).total, len(names))
    costs = np.array([name in COSTS for name in names])
    before = float(found.step.total)
    longer, shorter = np.where(costs, after, before), np.where(costs, before, after)
    assert np.isfinite(longer).all()
    wrong = longer < shorter * (1 - 1e-9)
    assert not wrong.any(), [(name, ratio) for name, ratio in zip(names, shorter / longer, strict=True) if ratio > 1.0]

"""Which way a step's time goes with each constant of the software: what costs time never saves any, and the reverse."""

from __future__ import annotations

import math

import hypothesis.strategies as st
from hypothesis import given

from costmodel.arithmetic.named_tuples import flat, paths, replaced
from costmodel.formulas import training_step
from costmodel.formulas.quantities import Software
from tests.drawing import legal, questions, quick

SAVES = {
    "compute_gemm_efficiency_scale", "compute_attention_efficiency_scale", "network_quality", "network_sharding_quality",
    "overlap_tensor", "overlap_gradients", "overlap_parameters", "overlap_context", "overlap_experts", "overlap_pipeline",
    "overlap_accompanied_experts", "compute_first_flash", "compute_scan_efficiency", "host_pressure_start",
}  # fmt: skip
COSTS = {name for name in paths(Software) if not name.startswith("memory_")} - SAVES


def after(found, name, factor):
    """Parts of a step after one constant has been multiplied."""
    value = flat(found.inputs.software)[name]
    most = 0.99 if name == "host_pressure_start" else 1.0 if name.startswith("overlap_") else math.inf
    changed = min(value * factor, most)
    return training_step.step(*found.inputs._replace(software=replaced(found.inputs.software, {name: changed})))


@quick
@given(questions(), st.floats(1.01, 4.0))
def test_a_step_goes_one_way_with_each_constant(question, factor):
    found = legal(question)
    wrong = []
    for name in sorted(COSTS | SAVES):
        longer, shorter = (after(found, name, factor), found.step) if name in COSTS else (found.step, after(found, name, factor))
        assert math.isfinite(float(longer.total))
        if float(longer.total) < float(shorter.total) * (1 - 1e-9):
            wrong.append((name, float(shorter.total) / float(longer.total)))
    assert not wrong

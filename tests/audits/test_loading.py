"""A GPU holds as much while a model is loaded as the library says."""

import pytest

from tests.audits.loading import CASES, GPUS, NEAR, SHAPE, held

EDGE, LAYER = 2.0 * 4096 * 256, 12 * 256 * 256 + 4 * 256 * 256 + 2.0 * 256
"""Parameters of embedding and head, and of a layer: three matrices of 4 x 256 x 256, four of 256 x 256, two norms."""


def test_what_the_library_says_is_counted_here_unit_by_unit():
    """Two bytes a parameter: shards and the last unit, flat beside itself under FSDP1; or all of it and the first unit flat."""
    whole = 12 * LAYER + EDGE + 256
    assert whole == SHAPE.parameters
    root = EDGE + 256
    assert CASES["FSDP2, unit by unit"].told() == pytest.approx(2.0 * (whole / GPUS + root), rel=1e-3)
    assert CASES["FSDP1, unit by unit"].told() == pytest.approx(2.0 * (whole / GPUS + 2.0 * root), rel=1e-3)
    assert CASES["FSDP1 of a model on the GPU"].told() == pytest.approx(2.0 * (whole + LAYER), rel=1e-3)
    assert CASES["ZeRO-3 without zero.Init"].told() == pytest.approx(2.0 * whole, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_gpu_holds_what_the_library_says_while_a_model_is_loaded(name: str) -> None:
    case = CASES[name]
    if case.missing:
        pytest.skip(f"{', '.join(case.missing)} isn't installed")
    assert held(case.traced().roles[0]) == pytest.approx(case.told(), rel=NEAR)

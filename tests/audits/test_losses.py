"""A loss holds as many bytes of a logit as the library says."""

import pytest

from costmodel.formulas.settings import LOSSES
from tests.audits.losses import CASES, held


def test_what_the_library_says_is_counted_here_tensor_by_tensor():
    """Three tensors at a time, and what a loop keeps of the outputs in 16 bit."""
    assert LOSSES["upcast"] == 4 + 4 + 4 and LOSSES["16-bit"] == 2 + 2 + 2
    assert LOSSES["upcast-kept"] == LOSSES["upcast"] + 2 and LOSSES["16-bit-kept"] == LOSSES["16-bit"] + 2
    assert CASES["Trainer's loss"].told() == LOSSES["upcast"]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_loss_holds_what_the_library_says(name: str) -> None:
    case = CASES[name]
    if case.missing:
        pytest.skip(f"{', '.join(case.missing)} isn't installed")
    assert held(case.traced().roles[0]) == pytest.approx(case.told(), rel=0.02)

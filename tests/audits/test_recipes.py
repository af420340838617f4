"""A step of torchtune's recipes holds at its fullest what the library says."""

import pytest

from tests.audits.peaks import NEAR, held
from tests.audits.recipes import CASES


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_recipe_holds_at_its_fullest_what_the_library_says(name: str) -> None:
    case = CASES[name]
    if case.missing:
        pytest.skip(f"{', '.join(case.missing)} isn't installed")
    assert held(case.traced().roles[-1]) == pytest.approx(case.told(), rel=NEAR)

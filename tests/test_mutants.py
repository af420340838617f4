"""The list of mutants fits the code that it changes."""

import pytest

from tests.mutants import MUTANTS, ROOT


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_changes_one_place_and_names_tests_that_are_there(name):
    mutant = MUTANTS[name]
    assert (ROOT / "costmodel" / mutant.file).read_text().count(mutant.text) == 1
    assert mutant.wrong != mutant.text
    assert all((ROOT / witness).exists() for witness in mutant.witnesses)

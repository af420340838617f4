"""Lower bounds of packages: every extra has one of each, and something that tries them."""

from __future__ import annotations

import tomllib

from tests.lower_bounds import CORE, ROOT, TESTS, bounds


def test_every_package_of_an_extra_has_a_lower_bound_and_every_extra_a_trial():
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = bounds()
    for extra, listed in told["optional-dependencies"].items():
        own = [one for one in listed if not one.startswith("costmodel[")]
        assert len(found[extra]) == len(own), extra
    assert len(found[CORE]) == len(told["dependencies"])
    assert set(TESTS) == {CORE, *told["optional-dependencies"]} - {"test"}
    named = [word for command in TESTS.values() for word in command if word.startswith("tests/")]
    assert all((ROOT / one).exists() for one in named)


def test_a_package_of_the_tests_is_no_older_than_the_extra_that_asks_for_it():
    found = bounds()
    oldest = {one.partition("==")[0]: one for extra, listed in found.items() if extra != "test" for one in listed}
    for one in found["test"]:
        name = one.partition("==")[0]
        assert oldest.get(name, one) == one, name

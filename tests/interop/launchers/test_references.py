"""Launch files of real users, against what a careful reader derives from them."""

import importlib.util
import sys
from pathlib import Path

import pytest

from costmodel.interop.launchers import read_launch

spec = importlib.util.spec_from_file_location("launcher_references", Path(__file__).parent / "references.py")
assert spec and spec.loader
references = importlib.util.module_from_spec(spec)
sys.modules["launcher_references"] = references
spec.loader.exec_module(references)
BAR = 0.95


@references.needed
@pytest.mark.parametrize(
    "path", references.EXPECTED, ids=lambda path: path.name.removesuffix(".expected.json")
)
def test_a_file_says_what_a_careful_reader_finds(path):
    wanted = references.expected(path)
    said = read_launch(references.launch_file(wanted)).to_dict()
    assert references.wrong(wanted, said) == []
    assert sorted(said["ineffective"]) == sorted(wanted.get("ineffective", []))
    assert bool(said["conflicts"]) == bool(wanted.get("conflicts"))


@references.needed
def test_the_score_over_all_fields_is_above_the_bar():
    right = total = 0
    for path in references.EXPECTED:
        wanted = references.expected(path)
        misses = references.wrong(wanted, read_launch(references.launch_file(wanted)).to_dict())
        total += references.fields(wanted)
        right += references.fields(wanted) - len(misses)
        for miss in misses:
            print(f"{path.name}: {miss}")
    print(f"\n{right} of {total} fields of {len(references.EXPECTED)} files right: {right / total:.1%}")
    assert right >= BAR * total


@references.needed
def test_every_key_of_a_file_is_in_one_of_the_lists():
    for path in references.EXPECTED:
        wanted = references.expected(path)
        launch = read_launch(references.launch_file(wanted))
        lists = (*launch.unknown, *launch.irrelevant, *launch.unpriced)
        assert len(set(launch.unknown) & set(launch.irrelevant)) == 0
        assert not set(launch.unpriced) & set(launch.unknown)
        assert lists or launch.plan_fields


@references.needed
def test_what_is_unknown_is_rare_and_of_forks():
    unknown = {
        flag
        for path in references.EXPECTED
        for flag in read_launch(references.launch_file(references.expected(path))).unknown
    }
    print(sorted(unknown))
    assert len(unknown) < 20

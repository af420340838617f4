"""The house as it stands: few rooms, few arrows between them, and no way that leads back."""

import pytest

from tests.structure import (
    DOORS,
    arrows_of_modules,
    arrows_of_rooms,
    circles,
    lines_of_data,
    lines_of_folders,
    long_functions,
    median_of_files,
    shared_names,
)


def test_rooms_are_few_and_none_leads_back_to_itself():
    rooms = arrows_of_rooms()
    assert len(rooms) <= 18
    assert sum(map(len, rooms.values())) <= 100
    assert not circles(rooms)


@pytest.mark.parametrize("package", ["calibration", "experiments"])
def test_no_room_beside_the_library_leads_back_to_itself(package):
    assert not circles(arrows_of_rooms(package))


def test_no_files_need_each_other_and_none_the_package_that_holds_it():
    files = {name: targets for name, targets in arrows_of_modules().items() if name not in DOORS}
    assert not circles(files)
    assert not [name for name, targets in files.items() if "" in targets]


def test_no_function_is_too_long_and_no_two_classes_share_a_name():
    assert not long_functions()
    assert not shared_names()


def test_a_field_of_a_plan_is_named_in_few_files_and_the_house_grows_no_larger():
    assert median_of_files() <= 8
    for name, most in (("costmodel", 98_350), ("calibration", 5_750), ("experiments", 2_400)):
        assert sum(lines_of_folders()[name].values()) <= most, name
    assert sum(lines_of_data().values()) <= 10_000


def test_a_circle_is_found_where_there_is_one():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [{"a", "b", "c"}]

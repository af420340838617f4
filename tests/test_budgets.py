"""However large a whole number is, what takes it answers or refuses it in a line, within so much work and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import costmodel
from costmodel import cli
from costmodel.description.schedule import BACKWARD, FORWARD
from costmodel.description.schedule.orders import MOST_PASSES, NAMES
from costmodel.text.errors import InvalidValue
from tests.huge_numbers import ANSWERS, COMMANDS, OF_CODE, bases, whole_arguments, whole_options

ROOT = Path(__file__).parents[1]


def outcomes(asked, folder):
    ran = subprocess.run(
        [sys.executable, "-m", "tests.huge_numbers", *asked], cwd=folder, capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize(("asked", "least"), [(["api", "one"], 150), (["cli", "one"], 150)], ids=str)
def test_a_huge_number_anywhere_is_answered_or_refused_within_bounds(asked, least, tmp_path):
    found = outcomes(asked, tmp_path)
    assert len(found) >= least
    assert [one for one in found if one["said"] not in ("answered", "refused")] == []
    assert [one for one in found if not one["number"] and one["said"] != "answered"] == []


def test_every_public_name_that_takes_whole_numbers_is_tried():
    public = {name: getattr(costmodel, name) for name in costmodel.__all__}
    taking = set()
    for name, value in public.items():
        if callable(value) and not (isinstance(value, type) and issubclass(value, Exception)) and whole_arguments(value):
            taking.add(name)
    assert taking - set(bases()) <= ANSWERS | OF_CODE


def test_every_command_with_whole_numbers_is_tried():
    tried = set(COMMANDS) | {"app", "explain", "read", "calibrate", "trace"}  # which are about a port, a file, a user's code
    for family, commands in cli.FAMILIES.items():
        for command in commands:
            assert command in tried or not whole_options(command), (family, command)


@pytest.mark.parametrize("name", NAMES)
def test_a_schedule_of_too_many_passes_is_refused_before_it_is_made(name):
    for stages, micro_batches in ((4, 10**6), (10**6, 1), (10_000, 10_000), (8, MOST_PASSES // 8 + 1)):
        with pytest.raises(InvalidValue, match="stages|micro_batches"):
            costmodel.pipeline_schedule(name, stages=stages, micro_batches=micro_batches)


def test_replicas_whose_numbers_share_no_factor_make_no_more_routes_than_micro_batches():
    made = costmodel.pipeline_schedule("pipedream", stages=4, micro_batches=6, replicas=[101, 103, 107, 109])
    assert made.placement.shape == (6, 4)


def test_orders_with_a_micro_batch_beyond_all_passes_are_refused():
    with pytest.raises(InvalidValue, match="micro-batch 1000000000000"):
        costmodel.custom_schedule([[(0, 0, 10**12)]])


@pytest.mark.parametrize(
    "given", [{"route": [7]}, {"route": [0, 0]}, {"route": 5}, {"placement": [[9]]}, {"placement": [1]}], ids=str
)
def test_a_route_or_placement_that_is_none_is_refused_in_a_line(given):
    with pytest.raises(InvalidValue, match=next(iter(given))):
        costmodel.custom_schedule([[(FORWARD, 0, 0), (BACKWARD, 0, 0)]], **given)


@pytest.mark.parametrize("digits", [400, 5000])
def test_a_number_of_thousands_of_digits_is_refused_in_a_line(run, digits):
    code, out, err = run("estimate", "gpt2", "--cluster", "dgx-h100", "--global-batch", "9" * digits, "--seq-len", "1024")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "whole number" in err or "too many digits" in err

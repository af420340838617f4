"""Faults planted in real scripts are found by their line; the same scripts without them have none."""

import importlib.util
from pathlib import Path

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("the fake machine needs PyTorch: pip install 'costmodel[trace]'", allow_module_level=True)

from costmodel import load_cluster
from costmodel.traces.faults import Fault, faults_of
from tests.traces.planted import CLEAN_SCRIPTS, PLANTS
from tests.traces.test_machine import needs, traced

pytestmark = pytest.mark.slow


def found(folder: Path, script: str, gpus: int) -> tuple[Fault, ...]:
    trace = traced(folder, script, gpus=gpus)
    return faults_of(trace, load_cluster("dgx-h100", gpus=gpus))


@pytest.mark.parametrize("wrong", PLANTS)
def test_a_planted_fault_is_named_with_its_line(tmp_path: Path, wrong: str) -> None:
    plant = PLANTS[wrong]
    if "transformers" in plant.script:
        needs("transformers")
    faults = found(tmp_path, plant.script, plant.gpus)
    named = [fault for fault in faults if fault.kind in plant.kinds]
    assert named, faults
    lines = {fault.line.partition(" ")[0] for fault in named}
    assert lines & set(plant.lines), (named, plant.lines)  # beside it perhaps the line of the backward pass that comes of it
    assert named == list(faults), "nothing else is wrong"


@pytest.mark.parametrize("name", CLEAN_SCRIPTS)
def test_a_clean_script_has_no_fault(tmp_path: Path, name: str) -> None:
    script, gpus = CLEAN_SCRIPTS[name]
    if "transformers" in script:
        needs("transformers")
    assert found(tmp_path, script, gpus) == ()

"""Measured rows become the models, clusters, plans and frameworks that they describe."""

from __future__ import annotations

import dataclasses

import pytest

import costmodel
from calibration.reference import DEFAULT_FOLDER, default_files
from calibration.validate import LEAST_PREDICTED, QUOTED
from costmodel.errors import CostModelError
from costmodel.runs.cases import FRAMEWORKS, case_of, cases_of
from costmodel.runs.table import Run, read_runs, usable

FILES = default_files()
KORTHIKANTI = read_runs(QUOTED / "korthikanti2022_table5.csv")


def changed(run: Run, **cells: str) -> Run:
    """A row with some cells changed, numbers too."""
    numbers = {name: float(cell) for name, cell in cells.items() if cell and name in run.number}
    kept = {name: value for name, value in run.number.items() if cells.get(name, "kept")}
    return dataclasses.replace(run, text={**run.text, **cells}, number={**kept, **numbers})


@pytest.mark.skipif(not FILES, reason=f"no reference folder at {DEFAULT_FOLDER}")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_usable_rows_of_the_reference_folder_become_cases(path):
    rows = list(usable(read_runs(path)))
    cases, skipped = cases_of(rows)
    assert rows
    assert len(cases) + sum(map(len, skipped.values())) == len(rows)
    assert len(cases) >= LEAST_PREDICTED * len(rows), skipped


@pytest.mark.skipif(not FILES, reason=f"no reference folder at {DEFAULT_FOLDER}")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_cases_keep_the_degrees_and_sizes_of_their_rows(path):
    cases, _ = cases_of(list(usable(read_runs(path))))
    for case in cases:
        number, plan = case.run.number, case.plan
        assert plan.gpus == number["n_gpus"] == case.cluster.gpus, case.run.label
        assert plan.tensor_parallel == number.get("tp", 1), case.run.label
        assert plan.pipeline_parallel == number.get("pp", 1), case.run.label
        assert plan.global_batch == number["global_batch"], case.run.label
        assert case.model.layers == number["n_layers"], case.run.label
        assert case.model.hidden == number["hidden"], case.run.label
        assert case.seconds is not None or case.peak_bytes is not None or case.run.flag("usable_oom"), case.run.label


@pytest.mark.parametrize("file", sorted(path.name for path in QUOTED.glob("*.csv")))
def test_every_quoted_row_is_a_case_of_the_size_it_states(file):
    runs = read_runs(QUOTED / file)
    cases, skipped = cases_of(runs)
    assert not skipped
    for case in cases:
        assert case.model.parameters == pytest.approx(case.run.number["n_params"], rel=0.06), case.run.label
        assert case.cluster.device.name == "a100-sxm-80gb"
        assert case.framework.name == "megatron-lm-2021"
        assert case.seconds == case.run.number["step_time_s"]


def test_a_row_says_recompute_and_sequence_parallelism():
    full, selective = (case_of(run).plan for run in KORTHIKANTI[2:4])
    assert (full.recompute, full.sequence_parallel) == ("full", False)
    assert (selective.recompute, selective.sequence_parallel) == ("selective", True)
    assert selective.virtual_stages == 3


def test_every_stack_has_a_framework_profile():
    for name in FRAMEWORKS.values():
        assert costmodel.load_framework(name).name == name


def test_a_missing_data_parallel_degree_follows_from_the_gpus():
    run = changed(KORTHIKANTI[2], dp="", tp="4")
    assert case_of(run).plan.data_parallel == 2


@pytest.mark.parametrize(
    ("cells", "named"),
    [
        ({"gpu_id": "abacus"}, "abacus"),
        ({"n_layers": ""}, "n_layers"),
        ({"micro_batch": "1.5"}, "micro_batch"),
        ({"compute_dtype": "int8"}, "compute_dtype"),
        ({"compute_dtype": ""}, "compute_dtype"),
        ({"dp": "3"}, "n_gpus"),
    ],
)
def test_a_row_that_is_no_run_is_refused_with_a_reason(cells, named):
    run = changed(KORTHIKANTI[0], **cells)
    with pytest.raises(CostModelError) as caught:
        case_of(run)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_refused_rows_are_kept_by_reason():
    runs = [changed(run, gpu_id="abacus") for run in KORTHIKANTI[:2]] + KORTHIKANTI[2:]
    cases, skipped = cases_of(runs)
    assert len(cases) == 6
    ((reason, labels),) = skipped.items()
    assert "abacus" in reason
    assert labels == ["korthikanti2022_table5.csv row 1", "korthikanti2022_table5.csv row 2"]

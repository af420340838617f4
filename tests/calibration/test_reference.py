"""Tables of measured runs are read strictly, and found where they are."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from calibration.data import reference
from calibration.data.runs import NUMERIC, REQUIRED, read_runs, usable
from calibration.validate.command import QUOTED, gather
from costmodel.text.errors import UnreadableFile

KORTHIKANTI = QUOTED / "korthikanti2022_table5.csv"
MEGATRON = reference.DEFAULT_FOLDER / "runs" / "megatron_tables.csv"


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def table(tmp_path):
    """Write the quoted table with some cells of its third row changed, or without some columns."""

    def write(without: tuple[str, ...] = (), **cells: str) -> Path:
        rows = rows_of(KORTHIKANTI)
        rows[2].update(cells)
        path = tmp_path / "runs.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            columns = [column for column in rows[0] if column not in without]
            writer = csv.DictWriter(file, columns, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)
        return path

    return write


def refusal_of(path: Path) -> str:
    with pytest.raises(UnreadableFile) as caught:
        read_runs(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message


def test_every_required_column_is_missed_by_name(table):
    for column in REQUIRED:
        assert refusal_of(table(without=(column,))).endswith(f"no column {column}")


def test_all_missing_columns_are_named_at_once(table):
    assert refusal_of(table(without=("tp", "pp"))).endswith("no column tp, pp")


@pytest.mark.parametrize("text", ["fast", "1,5", "0x10", "1 s"])
def test_a_cell_that_is_no_number_is_named_with_its_line(table, text):
    message = refusal_of(table(step_time_s=text))
    assert "line 4: step_time_s=" in message
    assert "is no number" in message


@pytest.mark.parametrize("text", ["nan", "inf", "-1"])
@pytest.mark.parametrize("column", NUMERIC)
def test_a_number_that_is_not_finite_or_negative_is_refused(table, column, text):
    assert f"line 4: {column}='{text}'" in refusal_of(table(**{column: text}))


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"step_time_s": "", "tokens_per_s_per_gpu": ""}, "usable_time is 1 but neither time nor throughput"),
        ({"usable_mem": "1"}, "usable_mem is 1 but peak_memory_gib is empty"),
        ({"usable_oom": "1"}, "usable_oom and usable_time are both 1"),
    ],
)
def test_a_row_that_contradicts_itself_is_named_with_its_line(table, cells, said):
    assert f"line 4: {said}" in refusal_of(table(**cells))


def test_throughput_alone_says_the_time(table):
    runs = read_runs(table(step_time_s=""))
    assert "step_time_s" not in runs[2].number
    assert runs[2].number["tokens_per_s_per_gpu"] == 112.96


def test_files_that_are_missing_or_no_text_are_refused_in_one_line(tmp_path):
    refusal_of(tmp_path / "absent.csv")
    refusal_of(tmp_path)
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00dataset,row\n")
    refusal_of(tmp_path / "binary.csv")
    (tmp_path / "empty.csv").write_bytes(b"")
    refusal_of(tmp_path / "empty.csv")


def test_only_rows_with_something_measured_are_usable(table):
    runs = read_runs(table(usable_time="0"))
    assert [run.text["row"] for run in usable(runs)] == ["1", "2", "4", "5", "6", "7", "8"]


def test_without_a_reference_folder_the_quoted_tables_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(reference, "DEFAULT_FOLDER", tmp_path / "absent")
    assert reference.default_files() == []
    found = gather([], None)
    assert {source: len(runs) for source, runs in found.items()} == {"korthikanti2022_table5": 8, "narayanan2021_table1": 10}


def test_a_named_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(UnreadableFile, match="no folder `runs`"):
        reference.default_files(tmp_path)


def test_files_of_a_folder_come_in_order(tmp_path):
    (tmp_path / "runs").mkdir()
    for name in ("b.csv", "a.csv", "notes.txt"):
        (tmp_path / "runs" / name).touch()
    assert [path.name for path in reference.default_files(tmp_path)] == ["a.csv", "b.csv"]


def test_quoted_rows_say_where_they_come_from():
    for path in QUOTED.glob("*.csv"):
        for row, run in enumerate(read_runs(path), 1):
            assert run.text["dataset"] == path.stem
            assert run.text["row"] == str(row)
            assert "arXiv" in run.text["source"]
            assert "table" in run.text["source_location"]
            assert path.name in (QUOTED / "README.md").read_text(encoding="utf-8")


def test_times_derived_from_narayanan_table_1_follow_its_equation_3():
    for run in read_runs(QUOTED / "narayanan2021_table1.csv"):
        n, tflops = run.number, float(run.text["tflops_per_gpu"])
        tokens = n["global_batch"] * n["seq_len"]
        per_token = 96 * n["n_layers"] * n["hidden"] ** 2
        parts = 1 + n["seq_len"] / (6 * n["hidden"]) + n["vocab"] / (16 * n["n_layers"] * n["hidden"])
        assert n["step_time_s"] == pytest.approx(tokens * per_token * parts / (tflops * 1e12 * n["n_gpus"]), rel=2e-4)


def test_degrees_of_quoted_rows_multiply_to_their_gpus():
    for path in QUOTED.glob("*.csv"):
        for run in read_runs(path):
            n = run.number
            assert n["tp"] * n["pp"] * n["cp"] * n["dp"] == n["n_gpus"], run.label


@pytest.mark.skipif(not MEGATRON.is_file(), reason="no ../shared/reference")
def test_quoted_rows_agree_with_the_reference_folder():
    theirs = {run.text["row"]: run for run in read_runs(MEGATRON)}
    for path, first in ((KORTHIKANTI, 46), (QUOTED / "narayanan2021_table1.csv", 13)):
        for place, run in enumerate(read_runs(path)):
            assert run.number == pytest.approx(theirs[str(first + place)].number), run.label

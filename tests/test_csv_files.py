"""Tables of runs are read within limits of size and rows, behind `calibrate` and ``python -m calibration validate``."""

from __future__ import annotations

import csv
import os
import random
import string
import tracemalloc

import pytest

import costmodel
from calibration.__main__ import main
from costmodel import CostModelError, load_cluster
from costmodel.evaluation.own_run_files import MOST_RUNS
from costmodel.evaluation.own_run_files import measured_runs as read_runs
from costmodel.text import csv_files
from costmodel.text.errors import UnreadableFile

WIDE = "id,campaign,model.name,cluster.device,plan.global_batch,plan.seq_len\n"
OWN = "model,step_time_s,global_batch,seq_len,data_parallel\n"
RUN = "llama3-8b,3.0,64,4096,8\n"


def both_refuse(path, capsys) -> list[str]:
    """What `calibrate` and ``validate`` say of a file that neither takes: a line each."""
    with pytest.raises(UnreadableFile) as refused:
        costmodel.calibrate(load_cluster("dgx-h100", gpus=8), path)
    assert main(["validate", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    said = [str(refused.value), err.removesuffix("\n")]
    for line in said:
        assert line.isprintable()
        assert len(line) < 1000
    return said


BROKEN = {
    "too large": (b"a" * ((16 << 20) + 1), "MiB"),
    "nothing": (b"", "0 columns"),
    "one line of commas": (b"," * 1_000_000, "columns"),
    "columns": (b",".join(b"c%d" % n for n in range(201)), "201 columns"),
    "a column twice": (b"model,model\n", "'model' is there twice"),
    "an open quotation": (WIDE.encode() + b'"' + b"a\n" * 300_000, "line"),
    "one long cell": (b"x" * 900_000 + b"\n", "line 1"),
    "no text": (bytes(range(256)) * 100, "UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN)
def test_what_is_no_table_or_too_large_is_refused_in_one_line(tmp_path, capsys, broken):
    content, hint = BROKEN[broken]
    path = tmp_path / "runs.csv"
    path.write_bytes(content)
    for line in both_refuse(path, capsys):
        assert hint in line


def test_devices_folders_and_missing_files_are_refused_without_being_read(tmp_path, capsys):
    places = [tmp_path, tmp_path / "absent\n.csv", tmp_path / ("n" * 5000)]
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        places.append(tmp_path / "pipe")
    if os.path.exists("/dev/zero"):
        places.append("/dev/zero")
    for place in places:
        with pytest.raises(UnreadableFile):
            read_runs(place)
        assert main(["validate", str(place)]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_more_rows_than_are_read_are_refused_wherever_runs_come_from(tmp_path, capsys):
    path = tmp_path / "runs.csv"
    path.write_text(OWN + RUN * (MOST_RUNS + 1))
    with pytest.raises(UnreadableFile, match=r"more than 2,000 rows"):
        read_runs(path)
    pandas = pytest.importorskip("pandas")
    with pytest.raises(CostModelError, match="runs=2001"):
        read_runs(pandas.read_csv(path))
    with pytest.raises(CostModelError, match="runs=2001"):
        read_runs([("a model", "a plan", 1.0)] * (MOST_RUNS + 1))
    path.write_text("id,campaign\n" + ",\n" * 100_001)
    assert main(["validate", str(path)]) == 2
    assert "more than 100,000 rows" in capsys.readouterr().err


def test_a_row_of_another_length_is_named_by_its_line(tmp_path):
    path = tmp_path / "runs.csv"
    for row, cells in (("llama3-8b,3.0,64\n", 3), ("llama3-8b,3.0,64,4096,8,9\n", 6)):
        path.write_text(OWN + RUN + "\n" + row)
        with pytest.raises(UnreadableFile, match=f"line 4: not as many cells as the first line has columns .{cells}, 5."):
            read_runs(path)


def test_what_a_table_holds_is_what_the_csv_module_reads(tmp_path):
    draw = random.Random(3)
    letters = string.ascii_letters + ' ,"\n\r;é'
    for _ in range(200):
        columns = [f"c{n}" for n in range(draw.randint(1, 6))]
        count = draw.randint(0, 5)
        rows = [{name: "".join(draw.choices(letters, k=draw.randint(1, 8))) for name in columns} for _ in range(count)]
        path = tmp_path / "table.csv"
        with path.open("w", newline="", encoding=draw.choice(["utf-8", "utf-8-sig"])) as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)
        assert csv_files.read_csv(path, 5) == rows


def test_no_table_under_a_megabyte_takes_half_a_gigabyte(tmp_path):
    draw = random.Random(5)
    pieces = [b",", b'"', b"\n", b"\r", b"a", b"1e999", b"9" * 500, b"\0", b"\xff", b"model", b"\n\n", b'""', b"-", b"true"]
    for number in range(20):
        few = draw.sample(pieces, draw.randint(1, 3))
        piece = b"".join(draw.choices(few, k=draw.randint(1, 60)))
        path = tmp_path / f"{number}.csv"
        path.write_bytes(draw.choice([b"", OWN.encode(), WIDE.encode()]) + piece * (900_000 // len(piece)))
        tracemalloc.start()
        try:
            csv_files.read_csv(path, 20_000)
        except UnreadableFile as error:
            assert "\n" not in str(error)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 500e6
        try:
            assert read_runs(path) == []
        except CostModelError as error:
            assert "\n" not in str(error)


def test_a_file_that_many_rows_name_is_read_once(tmp_path, monkeypatch):
    from costmodel.evaluation import own_run_files

    read = []
    monkeypatch.setattr(own_run_files, "load_model", lambda name: read.append(name) or costmodel.load_model(name))
    path = tmp_path / "runs.csv"
    path.write_text(OWN + RUN * 50)
    assert len(read_runs(path)) == 50
    assert read == ["llama3-8b"]

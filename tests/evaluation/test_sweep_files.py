"""Whatever happens to the files of a sweep is noticed: two writers, kills at any moment, and bytes that change."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from costmodel import InvalidValue, load_cluster, replace, sweep
from costmodel.cli import codes
from costmodel.evaluation import sealed_files
from costmodel.evaluation.file_lock import only_writer
from costmodel.evaluation.sweep_cells import COLUMNS
from costmodel.evaluation.sweep_files import SweepFiles
from costmodel.text.errors import Interrupted, UnreadableFile

pytest.importorskip("pyarrow")
import pyarrow.parquet

ROOT = Path(__file__).parents[2]
ASKED = {
    "gpus": 8, "global_batches": [32, 64, 96, 128], "seq_lens": [2048, 4096], "tensor_parallel": [1, 2], "pipeline_parallel": [1],
    "micro_batch": [1], "recompute": ["full"], "engine": "python", "fit_probability": 0.9,
}  # fmt: skip
CELLS = 8
WORDS = (
    "sweep", "llama3-8b", "--cluster", "dgx-h100", "--gpus", "8", "--global-batch", "32,64,96,128", "--seq-len", "2048,4096",
    "--tensor-parallel", "1,2", "--pipeline-parallel", "1", "--micro-batch", "1", "--recompute", "full",
    "--engine", "python", "-o",
)  # fmt: skip


def swept(path, **changes):
    return sweep("llama3-8b", "dgx-h100", path, **(ASKED | changes))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The folder of a sweep that was stopped after its last part and before its file."""
    folder = tmp_path_factory.mktemp("stopped")

    def stop(done, cells, plans):
        if done == cells:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        swept(folder / "plans.parquet", progress=stop)
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The file of the same sweep, undisturbed."""
    return swept(tmp_path_factory.mktemp("made") / "plans.parquet").path


@pytest.fixture
def path(stopped, tmp_path):
    """The name of the file, all parts of which are there."""
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    assert len(list((tmp_path / "plans.parquet.parts").glob("*.parquet"))) == CELLS
    return tmp_path / "plans.parquet"


def part(path, number):
    return path.with_name("plans.parquet.parts") / f"{number:09d}.parquet"


def flipped(content, at):
    """Bytes with one bit of one of them turned, counted from the end where negative."""
    at %= len(content)
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


# Parts


def edit(path):
    """Change a figure with a tool that knows Parquet, and leave the rest as it is."""
    table = pyarrow.parquet.read_table(part(path, 3))
    column = pyarrow.array([time / 2 for time in table["step_time_s"].to_pylist()])
    table = table.set_column(table.column_names.index("step_time_s"), table.field("step_time_s"), column)
    pyarrow.parquet.write_table(table, part(path, 3))


def swap(path):
    one, other = part(path, 3).read_bytes(), part(path, 5).read_bytes()
    part(path, 3).write_bytes(other)
    part(path, 5).write_bytes(one)


def take_anothers(path):
    files = SweepFiles(path.with_name("other.parquet"), "of another sweep", CELLS, 1)
    files.open()
    files.keep(3, pyarrow.parquet.read_table(part(path, 3)).to_pylist())
    other = path.with_name("other.parquet.parts")
    os.replace(other / "000000003.parquet", part(path, 3))
    shutil.rmtree(other)


DAMAGES = {
    "cut": (lambda path: part(path, 3).write_bytes(part(path, 3).read_bytes()[:-100]), 1),
    "empty": (lambda path: part(path, 3).write_bytes(b""), 1),
    "zeros": (lambda path: part(path, 3).write_bytes(bytes(5000)), 1),
    "a byte of the rows": (lambda path: part(path, 3).write_bytes(flipped(part(path, 3).read_bytes(), 40)), 1),
    "a byte of the footer": (lambda path: part(path, 3).write_bytes(flipped(part(path, 3).read_bytes(), -30)), 1),
    "longer": (lambda path: part(path, 3).write_bytes(part(path, 3).read_bytes() + b"PAR1"), 1),
    "edited": (edit, 1), "swapped": (swap, 2), "of another sweep": (take_anothers, 1),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_part_that_is_not_as_it_was_written_is_done_again_and_the_answer_says_so(path, made, run, damage):
    change, count = DAMAGES[damage]
    change(path)
    code, out, err = run(*WORDS, str(path), "--json")
    assert (code, err) == (0, "")
    said = json.loads(out)
    assert (said["mended"], said["resumed"]) == (count, CELLS - count)
    assert path.read_bytes() == made.read_bytes()
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_the_page_says_how_many_parts_were_done_again(path, run):
    swap(path)
    code, out, _ = run(*WORDS, str(path))
    assert code == 0
    assert "2 parts of before not as written, done again" in " ".join(out.split())


def test_a_part_that_changes_before_the_parts_are_joined_stops_the_sweep_and_the_same_call_goes_on(path, made):
    part(path, 0).unlink()

    def cut(done, cells, plans):
        if done == cells:
            part(path, 6).write_bytes(b"PAR1")

    with pytest.raises(Interrupted, match="000000006"):
        swept(path, progress=cut)
    assert swept(path).mended == 1
    assert path.read_bytes() == made.read_bytes()


@pytest.mark.parametrize("note", [b"", b"{", b"[]", b"7", b"\xff\xfe", b"[" * 100_000, b'{"digest"', None])
def test_a_lost_note_is_written_again_and_the_parts_tell_whose_they_are(path, made, note):
    place = path.with_name("plans.parquet.parts") / "sweep.json"
    place.unlink() if note is None else place.write_bytes(note)
    other = path.with_name("copy")
    shutil.copytree(path.parent, other)
    with pytest.raises(InvalidValue, match="this very sweep"):
        swept(other / "plans.parquet", seq_lens=8192)
    found = swept(path)
    assert (found.resumed, found.mended) == (CELLS, 0)
    assert path.read_bytes() == made.read_bytes()


def test_what_others_keep_in_the_folder_of_parts_is_left_there(path):
    folder = path.with_name("plans.parquet.parts")
    (folder / "mine.csv").write_text("kept")
    (folder / "mine.new").write_text("kept")
    swept(path)
    assert sorted(entry.name for entry in folder.iterdir()) == ["mine.csv", "mine.new"]
    assert swept(path).resumed == CELLS


def test_a_file_in_the_place_of_the_folder_of_parts_is_refused(tmp_path):
    (tmp_path / "plans.parquet.parts").write_text("mine")
    with pytest.raises(InvalidValue, match="that is a file"):
        swept(tmp_path / "plans.parquet")
    assert (tmp_path / "plans.parquet.parts").read_text() == "mine"


# The file


def test_no_byte_of_the_file_changes_unnoticed(made, tmp_path):
    path, content = tmp_path / "plans.parquet", made.read_bytes()
    places = random.Random(1).sample(range(len(content)), 60) + list(range(len(content) - 40, len(content)))
    for at in places:
        path.write_bytes(flipped(content, at))
        with pytest.raises((UnreadableFile, InvalidValue), match="remove it to begin anew") as refused:
            swept(path)
        assert "\n" not in str(refused.value)
        assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    path.write_bytes(content)
    assert swept(path).resumed == CELLS


@pytest.mark.parametrize("changed", [lambda content: content[:-1], lambda content: content[:2000], lambda content: content[10:],
                                     lambda content: content + b"\n", lambda content: b""])  # fmt: skip
def test_a_file_that_was_cut_or_grew_is_no_finished_sweep(made, tmp_path, changed, run):
    path = tmp_path / "plans.parquet"
    path.write_bytes(changed(made.read_bytes()))
    before = path.read_bytes()
    code, out, err = run(*WORDS, str(path))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "remove it to begin anew" in err
    assert path.read_bytes() == before


def test_a_file_that_does_not_read_back_takes_no_name(tmp_path, monkeypatch):
    monkeypatch.setattr(sealed_files, "_digest", lambda file, at: os.urandom(32).hex().encode())
    with pytest.raises(UnreadableFile, match="doesn't read back"):
        swept(tmp_path / "plans.parquet")
    assert not (tmp_path / "plans.parquet").exists()


def test_names_in_the_rows_that_look_like_a_seal_do_no_harm(tmp_path):
    files = SweepFiles(tmp_path / "plans.parquet", "a digest", 1, 1)
    files.open()
    files.keep(0, [dict.fromkeys(COLUMNS) | {"cell": 0, "model": "costmodel_seal\x18\x40" + "0" * 64}])
    assert files.missing() == ([], [])


# One name, two things


def test_a_cluster_of_the_same_name_with_other_figures_is_another_sweep(path, made):
    slower = replace(load_cluster("dgx-h100"), {"rail.bandwidth": "0.5x"})
    for place in (path, made):
        with pytest.raises(InvalidValue, match="this very sweep"):
            sweep("llama3-8b", slower, place, **ASKED)


def test_a_frameworks_file_that_was_edited_is_another_sweep(tmp_path):
    mine, path = tmp_path / "mine.toml", tmp_path / "plans.parquet"
    mine.write_text('base = "megatron-core"\n[constants]\nhost_pace = 1.0\n')
    swept(path, frameworks=str(mine), global_batches=32, seq_lens=2048)
    assert swept(path, frameworks=str(mine), global_batches=32, seq_lens=2048).resumed == 1
    mine.write_text('base = "megatron-core"\n[constants]\nhost_pace = 2.0\n')
    with pytest.raises(InvalidValue, match="this very sweep"):
        swept(path, frameworks=str(mine), global_batches=32, seq_lens=2048)


# Two writers


def environment():
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}


def test_a_second_writer_is_refused_with_a_code_of_its_own_and_the_first_goes_on(path, made, run):
    part(path, 2).unlink()
    met = []
    swept(path, progress=lambda *counts: met.append(run(*WORDS, str(path))))
    assert len(met) == 2
    code, out, err = met[0]
    assert met[1] == met[0]
    assert (code, out, err.count("\n")) == (codes.UNFINISHED, "", 1)
    assert "the same call goes on" in err
    assert path.read_bytes() == made.read_bytes()
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


HOLDER = """
import os, pathlib, sys, time
from costmodel.evaluation.file_lock import only_writer
with only_writer(pathlib.Path(sys.argv[1])):
    child = os.fork()
    if child:
        print(os.getpid(), child, flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no such processes here")
def test_a_lock_holds_between_processes_and_ends_with_its_own_even_if_that_has_children(tmp_path):
    path = tmp_path / "plans.parquet"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True, env=environment())
    assert holder.stdout is not None
    parent, child = map(int, holder.stdout.readline().split())
    try:
        with pytest.raises(Interrupted, match=f"process {parent} on"), only_writer(path):
            pass
    finally:
        holder.kill()
        holder.wait()
    try:
        with only_writer(path):
            pass
        assert not list(tmp_path.iterdir())
    finally:
        os.kill(child, signal.SIGKILL)
        holder.stdout.close()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal here")
def test_five_sweeps_with_two_writers_and_kills_lose_nothing_and_leave_the_same_file(made, tmp_path):
    draw = random.Random(7)
    for number in range(5):
        path = tmp_path / str(number) / "plans.parquet"
        path.parent.mkdir()
        kept: set[str] = set()
        kills = draw.randint(1, 2)
        while not path.exists():
            two = [
                subprocess.Popen([sys.executable, "-m", "costmodel", *WORDS, str(path)], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True, env=environment(), cwd=tmp_path)
                for _ in range(2)
            ]  # fmt: skip
            if kills:
                wanted = len(kept) + draw.randint(0, CELLS - len(kept))
                while len(parts := parts_of(path)) < wanted and any(one.poll() is None for one in two) and not path.exists():
                    time.sleep(0.001)
                time.sleep(draw.uniform(0.0, 0.02))
                for one in draw.sample(two, draw.randint(1, 2)):
                    one.send_signal(signal.SIGKILL)
                kills -= 1
            for one in two:
                err = one.communicate(timeout=120)[1]
                assert one.returncode in (0, codes.UNFINISHED, -signal.SIGKILL), err
                assert one.returncode != 0 or path.exists()
                assert err.count("\n") == (one.returncode == codes.UNFINISHED)
            parts = parts_of(path)
            assert path.exists() or kept <= parts
            assert all(map(sealed_files.intact, path.with_name("plans.parquet.parts").glob("*.parquet")))
            kept = parts
        assert swept(path).mended == 0
        assert path.read_bytes() == made.read_bytes()
        assert {entry.name for entry in path.parent.iterdir()} <= {path.name, path.name + ".lock"}


def parts_of(path) -> set[str]:
    folder = path.with_name("plans.parquet.parts")
    try:
        return {name for name in os.listdir(folder) if name.endswith(".parquet")}
    except FileNotFoundError:
        return set()


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_workers_end_with_a_sweep_that_is_killed(tmp_path):
    path = tmp_path / "plans.parquet"
    command = [sys.executable, "-m", "costmodel", *WORDS, str(path), "--workers", "2"]
    command[command.index("32,64,96,128")] = ",".join(str(8 * n) for n in range(1, 60))
    parent = subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not parts_of(path) and parent.poll() is None:
        time.sleep(0.05)
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
    assert len(children) >= 2
    parent.kill()
    parent.wait()
    until = time.monotonic() + 60
    while time.monotonic() < until and any(Path(f"/proc/{child}").exists() for child in children):
        time.sleep(0.1)
    assert not any(Path(f"/proc/{child}").exists() for child in children)

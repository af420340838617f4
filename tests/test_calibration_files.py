"""A calibration on own runs in a file: the same answers from it as in memory, at every door that names one."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

import costmodel
from costmodel.cli import main
from costmodel.text.errors import CostModelError, InvalidValue, UnreadableFile

MODEL = costmodel.load_model("llama3-8b")
CLUSTER = costmodel.load_cluster("dgx-h100", gpus=8)
PLANS = [costmodel.Plan(global_batch=64, seq_len=4096, tensor_parallel=t, data_parallel=8 // t) for t in (1, 2, 4)]
ASKED = ("--cluster", "dgx-h100", "--global-batch", "64", "--seq-len", "4096")


def record(place, plan, factor, framework="fsdp2"):
    seconds = costmodel.estimate(MODEL, CLUSTER, plan, framework).step_time
    given = {"global_batch": 64, "seq_len": 4096, "data_parallel": plan.data_parallel, "tensor_parallel": plan.tensor_parallel}
    return {
        "id": f"run {place}", "model": "llama3-8b", "cluster": {"name": "dgx-h100", "gpus": 8},
        "software": {"framework": framework}, "plan": given, "measured": {"step_time_s": factor * seconds},
    }  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "ours.jsonl"
    path.write_text("\n".join(json.dumps(record(place, plan, 1.5)) for place, plan in enumerate(PLANS)))
    return path


@pytest.fixture(scope="module")
def mine(runs):
    file = runs.with_name("mine.toml")
    assert main(["calibrate", str(runs), "--cluster", "dgx-h100", "-o", str(file), "--next", "0"]) == 0
    return file


def test_a_file_says_what_the_calibration_in_memory_says(runs, mine):
    known = costmodel.calibrate(CLUSTER, runs, "fsdp2")
    read = costmodel.load_calibration(mine, CLUSTER)
    for plan in PLANS:
        one, other = (costmodel.estimate(MODEL, cluster, plan, "fsdp2") for cluster in (known, read))
        assert other.step_time == pytest.approx(one.step_time, rel=1e-12)
        assert other.time_interval == pytest.approx(one.time_interval, rel=1e-9)
        assert other.step_time == pytest.approx(1.5 * costmodel.estimate(MODEL, CLUSTER, plan, "fsdp2").step_time, rel=0.02)


def told(capsys, *command):
    capsys.readouterr()
    code = main([*command])
    return code, capsys.readouterr()


@pytest.mark.parametrize("command", ["estimate", "search", "simulate", "train"])
def test_doors_that_take_a_cluster_answer_by_its_calibration(mine, capsys, command):
    degrees = ("--tensor-parallel", "1", "--data-parallel", "8")
    more = ("--tokens", "1e9") if command == "train" else ()
    seconds = []
    for given in ((), ("--calibration", str(mine))):
        software = () if given else ("--framework", "fsdp2")  # the calibration's where none is named
        code, said = told(capsys, command, "llama3-8b", *ASKED, *degrees, *more, *software, *given, "--json")
        assert code == 0, said.err
        text = said.out
        found = json.loads(text)
        keys = [key for key in ("step_time_s", "total_s", "days") if f'"{key}"' in text]
        seconds.append(_first(found, keys))
    assert seconds[1] / seconds[0] == pytest.approx(1.5, rel=0.03)


def _first(document, keys):
    """The first number under any of some keys, wherever it is."""
    if isinstance(document, dict):
        for key in keys:
            if isinstance(document.get(key), int | float):
                return document[key]
    for value in document.values() if isinstance(document, dict) else document if isinstance(document, list) else ():
        if (found := _first(value, keys)) is not None:
            return found
    return None


def test_compare_answers_by_its_calibration(mine, capsys):
    asked = ("compare", "--systems", "llama3-8b", *ASKED, "--json")
    times = []
    for given in (("--framework", "fsdp2"), ("--calibration", str(mine))):
        code, said = told(capsys, *asked, *given)
        assert code == 0, said.err
        times.append(min(row["step_time_s"] for row in json.loads(said.out)["systems"] if row.get("step_time_s")))
    assert times[1] > 1.2 * times[0]


def test_another_framework_is_told_that_the_file_says_nothing_of_it(mine, capsys):
    code, said = told(capsys, "estimate", "llama3-8b", *ASKED, "--framework", "nemo", "--calibration", str(mine))
    assert code == 0
    assert "it says nothing of nemo" in " ".join(said.err.split())


def test_another_device_is_refused(mine, capsys):
    code, said = told(capsys, "estimate", "llama3-8b", "--cluster", "dgx-a100", *ASKED[2:], "--calibration", str(mine))
    assert code == 2
    assert "h100-sxm" in said.err and "a100" in said.err


def test_the_page_says_what_each_run_says_and_which_disagrees(tmp_path, capsys):
    ran = zip((*PLANS, PLANS[0]), (1.2, 1.2, 1.2, 4.0), strict=True)
    some = [record(place, plan, factor) for place, (plan, factor) in enumerate(ran)]
    (tmp_path / "runs.jsonl").write_text("\n".join(map(json.dumps, some)))
    code, said = told(capsys, "calibrate", str(tmp_path / "runs.jsonl"), "--cluster", "dgx-h100", "--next", "1")
    page = " ".join(said.out.split())
    assert code == 0, said.err
    assert "left out: it disagrees with the others" in page
    assert "Worth measuring next" in page and "GPU-minutes" in page
    assert "90 % interval of step time" in page


def test_a_launch_file_with_its_log_is_a_run(tmp_path, capsys):
    script = ["torchrun --nproc_per_node 8 pretrain_gpt.py", "--num-layers 32 --hidden-size 4096 --num-attention-heads 32",
              "--seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 64",
              "--tensor-model-parallel-size 2 --bf16 --vocab-size 32000"]  # fmt: skip
    (tmp_path / "train.sh").write_text(" ".join(script))
    line = "iteration {}/ 100 | elapsed time per iteration (ms): {} | learning rate: 1E-4 |"
    (tmp_path / "run.log").write_text("\n".join(line.format(step, 6000.0 + step) for step in range(1, 9)))
    code, said = told(
        capsys, "calibrate", f"{tmp_path / 'train.sh'}={tmp_path / 'run.log'}", "--cluster", "dgx-h100", "--json", "--next", "0",
    )  # fmt: skip
    assert code == 0, said.err
    found = json.loads(said.out)
    assert found["framework"].startswith("megatron") and found["influences"][0]["run"] == "run.log"
    assert found["influences"][0]["measured_s"] == pytest.approx(6.0055, rel=1e-3)


def test_a_table_with_dotted_columns_is_read_as_records(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text(
        "model,cluster.name,cluster.gpus,software.framework,plan.global_batch,plan.seq_len,measured.step_time_s\n"
        "llama3-8b,dgx-h100,8,fsdp2,64,4096,9.0\n"
    )
    mine = costmodel.calibrate(CLUSTER, path, "fsdp2")
    assert mine.frameworks["fsdp2"].own_factor > 1.0


def test_a_record_of_another_framework_or_device_is_refused_by_name(runs):
    with pytest.raises(InvalidValue, match=r"framework of run run 0=.*fsdp2.*megatron-core"):
        costmodel.calibrate(CLUSTER, runs)
    with pytest.raises(InvalidValue, match="device"):
        costmodel.calibrate(costmodel.load_cluster("dgx-a100", gpus=8), runs, "fsdp2")


@pytest.mark.parametrize("harm", ["framework", "constants", "extra"])
def test_a_file_that_is_no_calibration_is_refused_in_one_line(mine, tmp_path, harm):
    text = mine.read_text()
    path = tmp_path / "harmed.toml"
    if harm == "framework":
        path.write_text(text.replace("framework =", "nothing ="))
    elif harm == "constants":
        path.write_text(text.replace("host_pace = ", "host_pacing = "))
    else:
        path.write_text(text + "\n[other]\nx = 1\n")
    with pytest.raises(UnreadableFile, match="harmed"):
        costmodel.load_calibration(path, CLUSTER)


def test_a_cluster_that_was_not_calibrated_is_not_written(tmp_path):
    with pytest.raises(CostModelError, match="calibrated"):
        costmodel.save_calibration(CLUSTER, tmp_path / "none.toml")


def test_calibrating_on_what_is_estimated_changes_nothing():
    plans = [(MODEL, plan, costmodel.estimate(MODEL, CLUSTER, plan).step_time) for plan in PLANS]
    mine = costmodel.calibrate(CLUSTER, plans).frameworks["megatron-core"]
    assert math.isclose(mine.own_factor, 1.0, rel_tol=1e-9)
    assert dataclasses.replace(mine, time_error=None).own_runs[0].discrepancy == pytest.approx(0.0, abs=1e-9)


def test_the_app_prices_clusters_of_the_device_by_the_file_and_names_it_in_its_command(mine, monkeypatch):
    from costmodel.app import answer
    from costmodel.app.state import State

    monkeypatch.setattr(answer, "CALIBRATIONS", [str(mine)])
    state = State(model="llama3-8b", cluster="dgx-h100", gpus=8)
    assert answer.described(state)[1].frameworks["fsdp2"].own_factor > 1.2
    assert f"--calibration {mine}" in answer.command(state)
    assert not answer.described(dataclasses.replace(state, cluster="dgx-a100"))[1].frameworks


def test_a_file_is_read_once_until_it_changes(mine, tmp_path, monkeypatch):
    """A page that was started with it asks at every redraw."""
    from costmodel.catalogue import calibrations

    file, opened = tmp_path / "ours.toml", []
    file.write_text(mine.read_text())
    reading = calibrations.user_files.text
    monkeypatch.setattr(calibrations.user_files, "text", lambda path, most: (opened.append(path), reading(path, most))[1])
    read = [costmodel.load_calibration(file, CLUSTER).frameworks["fsdp2"].own_factor for _ in range(3)]
    assert len(set(read)) == 1 and len(opened) == 1
    file.write_text(mine.read_text().replace("device = ", "device  = "))
    assert costmodel.load_calibration(file, CLUSTER).frameworks["fsdp2"].own_factor == read[0] and len(opened) == 2
    file.write_text("nothing = 1")
    with pytest.raises(UnreadableFile):
        costmodel.load_calibration(file, CLUSTER)

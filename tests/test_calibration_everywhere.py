"""Own runs count at every door that estimates a step; a door that estimates none says so."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import costmodel
from costmodel import Plan, estimate, load_cluster, load_model, machine
from costmodel.cli import FAMILIES, main
from costmodel.cli.serving import CALIBRATIONS, TOOLS
from tests.commanding import refused

MODEL, SLOWER = "llama3-8b", 1.4
WORK = ["--global-batch", "64", "--seq-len", "4096"]
NODE = ["--cluster", "dgx-h100", "--gpus", "8"]
PLAN = [*WORK, "--tp", "2"]
DEGREES = ["--tp", "2", "--pp", "1", "--cp", "1", "--micro-batch", "1", "--recompute", "none"]
LOG = "\n".join(
    f" iteration {step}/ 100 | consumed samples: 64 | elapsed time per iteration (ms): {ms} | learning rate: 1.0E-04 |"
    for step, ms in ((1, 9000.0), (2, 5200.0), (3, 5100.0), (4, 5150.0))
)
IMAGES = str(Path(__file__).parent / "interop" / "multimodal.json")
ASKED = {
    "search": [MODEL, *NODE, *WORK, *DEGREES, "--no-check"], "estimate": [MODEL, *NODE, *PLAN],
    "capacity": [MODEL, *NODE, "--global-batch", "64", "--tp", "2", "--find", "sequence"],
    "compare": [MODEL, *NODE, *WORK, *DEGREES, "--tp", "4"], "diagnose": [MODEL, *NODE, *PLAN, "--step-time", "5"],
    "train": [MODEL, *NODE, *PLAN, "--tokens", "1B"],
    "memory": [MODEL, *NODE, *PLAN],
    "multimodal": [IMAGES, *NODE, *PLAN],
    "post-train": [MODEL, *NODE, *PLAN, "--samples", "8", "--mean-length", "512"],
    "timeline": [MODEL, *NODE, *PLAN], "simulate": [MODEL, *NODE, *PLAN], "ledger": [MODEL, *NODE, *PLAN],
    "sweep": [MODEL, *NODE, *WORK, *DEGREES, "-o", "plans.parquet"],
    "design": [MODEL, "--devices", "h100", "--gpus", "8", *WORK, "--tokens", "1B"],
    "cards": [MODEL, "--device", "h100,a100", "--adapter", "lora", "--framework", "torchtune"],
    "gpus": [MODEL, "--days", "7", "--tokens", "100B", "--device", "h100"],
    "collective": ["all-reduce", "1GiB", *NODE],
    "explain": [MODEL, *NODE[:2], *PLAN, "--log", "run.log"],
}  # fmt: skip
"""A question at each door that estimates a step and prints what it says."""
WRITTEN = {"sweep", "write", "calibrate", "report", "app", "whatif", "site", "mcp", "trace"}
"""Doors that estimate and write files, serve or take code: they have the option, too."""
COMMANDS = [command for commands in FAMILIES.values() for command in commands]


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.log").write_text(LOG, encoding="utf-8")

    def told(*argv: str) -> tuple[int, str, str]:
        code = main(list(argv))
        said = capsys.readouterr()
        return code, said.out, said.err

    return told


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    """Files of own runs, each of which took longer than estimated: of Megatron, of torchtune, and a step's time of the first."""
    files, model, cluster = {}, load_model(MODEL), load_cluster("dgx-h100", gpus=8)
    cases = {
        "megatron-core": (cluster, [Plan(global_batch=64, seq_len=4096, tensor_parallel=degree) for degree in (1, 2, 4)]),
        "torchtune": (
            machine("h100-sxm", 1),
            [Plan(global_batch=16, seq_len=2048, micro_batch=size, adapter="lora") for size in (1, 2, 4)],
        ),
    }  # fmt: skip
    for framework, (where, plans) in cases.items():
        runs = [(model, plan, SLOWER * estimate(model, where, plan, framework).step_time) for plan in plans]
        files[framework] = str(tmp_path_factory.mktemp("own") / f"{framework}.toml")
        costmodel.save_calibration(costmodel.calibrate(where, runs, framework), files[framework], framework)
    return files


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_own_runs_or_says_that_it_estimates_no_step(command, run, tmp_path, mine):
    own = mine["torchtune" if command == "cards" else "megatron-core"]
    if command in WRITTEN:
        code, out, _ = run(command, "--help")
        assert code == 0 and "--calibration" in out
    elif command in ASKED:
        before, after = (run(command, *ASKED[command], *more, "--json") for more in ((), ("--calibration", own)))
        assert before[0] in (0, 1) and after[0] in (0, 1), (before[2], after[2])
        assert command == "capacity" or before[1] != after[1]  # the longest sequence takes no time
    else:
        refused(run, tmp_path, [command, "--calibration", own], "estimates none")


@pytest.mark.parametrize("command", [name for name in ASKED if name != "calibrate"])
def test_a_file_that_is_none_is_refused_at_every_door(command, run, tmp_path):
    (tmp_path / "none.toml").write_text("runs = 3", encoding="utf-8")
    refused(run, tmp_path, [command, *ASKED[command], "--calibration", "none.toml"], "is no calibration")


def _steps(document) -> list[float]:
    """Every step time in a JSON document."""
    if isinstance(document, dict):
        own = [value for name, value in document.items() if name == "step_time_s" and value is not None]
        return own + [one for value in document.values() for one in _steps(value)]
    return [one for value in document for one in _steps(value)] if isinstance(document, list) else []


@pytest.mark.parametrize("command", ["estimate", "search", "compare", "train", "cards", "gpus", "design"])
def test_steps_take_as_much_longer_as_own_runs_did_at_every_door(command, run, mine):
    asked = list(ASKED[command])
    if command == "cards":
        asked[asked.index("h100,a100")] = "h100"
    own = mine["torchtune" if command == "cards" else "megatron-core"]
    before, after = (_steps(json.loads(run(command, *asked, *more, "--json")[1]))[0] for more in ((), ("--calibration", own)))
    if command in ("gpus", "design"):  # whose fastest plan may be another
        assert after > 1.15 * before or command == "gpus"
    else:
        assert math.log(after / before) == pytest.approx(math.log(SLOWER), abs=0.1)


def test_a_sweep_searches_with_own_runs_and_their_framework(run, mine, tmp_path):
    frames = pytest.importorskip("pandas")
    for name, more in (("a", ()), ("b", ("--calibration", mine["megatron-core"]))):
        asked = [*ASKED["sweep"][:-1], f"{name}.parquet"]
        assert run("sweep", *asked, *more)[0] == 0
    before, after = (frames.read_parquet(tmp_path / f"{name}.parquet")["step_time_s"][0] for name in "ab")
    assert math.log(after / before) == pytest.approx(math.log(SLOWER), abs=0.1)


def test_own_runs_of_one_device_leave_the_others_as_they_are_and_say_so(run, mine):
    asked = ["compare", MODEL, "--device", "h100,a100", *WORK, "--gpus", "8", "--tp", "2", "--json"]
    (_, before, _), (_, after, notes) = run(*asked), run(*asked, "--calibration", mine["megatron-core"])
    rows = [[choice["step_time_s"] for choice in json.loads(out)["choices"]] for out in (before, after)]
    assert rows[1][0] > 1.2 * rows[0][0] and rows[1][1] == pytest.approx(rows[0][1])
    assert "it says nothing of a100" in notes


@pytest.mark.parametrize("asked", [
    ["cards", MODEL, "--device", "a100"], ["gpus", MODEL, "--days", "7", "--tokens", "100B", "--device", "a100"],
    ["design", MODEL, "--devices", "a100", "--gpus", "8", *WORK, "--tokens", "1B"],
    ["sweep", MODEL, "--cluster", "dgx-a100", *WORK, "-o", "plans.parquet"],
])  # fmt: skip
def test_own_runs_of_a_device_that_is_not_tried_are_refused(asked, run, tmp_path, mine):
    refused(run, tmp_path, [*asked, "--calibration", mine["megatron-core"]], "h100-sxm")


@pytest.fixture
def server(mine):
    CALIBRATIONS[:] = [mine["megatron-core"]]
    yield {tool.__name__: tool for tool in TOOLS}
    CALIBRATIONS.clear()


def test_an_agents_tools_answer_by_the_own_runs_that_the_server_was_started_with(server):
    asked = {"model": MODEL, "global_batch": 64, "seq_len": 4096}
    told = server["estimate"](**asked, cluster="dgx-h100", options={"tensor_parallel": 2})
    known = estimate(load_model(MODEL), load_cluster("dgx-h100", gpus=8), Plan(global_batch=64, seq_len=4096, tensor_parallel=2))
    assert math.log(told["step_time_s"] / known.step_time) == pytest.approx(math.log(SLOWER), abs=0.1)
    other = server["estimate"](**asked, cluster="dgx-a100", options={"tensor_parallel": 2})
    assert other["step_time_s"] == pytest.approx(
        estimate(load_model(MODEL), load_cluster("dgx-a100", gpus=8),
                 Plan(global_batch=64, seq_len=4096, tensor_parallel=2)).step_time
    )  # fmt: skip


def test_a_log_without_a_launch_file_calibrates_by_the_plan_of_the_options(run):
    code, out, _ = run("calibrate", f"{MODEL}=run.log", *NODE, *PLAN, "--next", "0", "--json", "-o", "mine.toml")
    told = json.loads(out)
    assert code == 0 and told["influences"][0]["measured_s"] == pytest.approx(5.125)
    model, cluster = load_model(MODEL), load_cluster("dgx-h100", gpus=8)
    known = costmodel.calibrate(cluster, [(model, Plan(global_batch=64, seq_len=4096, tensor_parallel=2), 5.125)])
    assert told["own_factor"] == pytest.approx(known.frameworks["megatron-core"].own_factor)
    _, out, _ = run("estimate", MODEL, *NODE, *PLAN, "--calibration", "mine.toml", "--json")
    assert json.loads(out)["step_time_s"] == pytest.approx(5.125, rel=0.05)


def test_a_log_without_a_launch_file_is_explained_by_the_plan_of_the_options(run):
    code, out, _ = run("explain", MODEL, *NODE[:2], *PLAN, "--log", "run.log")
    assert code == 0 and "A measured step of 5.125 s is inside the 90 % interval" in " ".join(out.split())


@pytest.mark.parametrize(("command", "hint"), [
    (["calibrate", f"{MODEL}=run.log", *NODE], "--global-batch"), (["calibrate", "llama3-8c=run.log", *NODE, *PLAN], "llama3-8b"),
    (["calibrate", f"{MODEL}=none.log", *NODE, *PLAN], "none.log"), (["explain", MODEL, *NODE, *PLAN], "--log"),
    (["explain", MODEL, "--log", "run.log", *PLAN], "--cluster"), (["explain", MODEL, *NODE, "--log", "run.log"], "--seq-len"),
    (["explain", "llama3-8c", *NODE, *PLAN, "--log", "run.log"], "llama3-8b"),
])  # fmt: skip
def test_a_log_whose_plan_or_model_is_not_told_is_refused_in_a_line(command, hint, run, tmp_path):
    refused(run, tmp_path, command, hint)

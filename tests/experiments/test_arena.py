"""The arena: tools in processes of their own, asked about the same rows; those that aren't there are said to be absent."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import costmodel
from calibration.data.reference import QUOTED
from costmodel.text.errors import CostModelError
from experiments.__main__ import main
from experiments.arena import rivals as rivals_of
from experiments.arena.command import HEADINGS, as_table, contest
from experiments.arena.rivals import Rival, asked, rivals

RECORDS = [json.loads(line) for line in QUOTED.read_text(encoding="utf-8").splitlines()]
PAIR = [record for record in RECORDS if record["model"]["name"] == "megatron-22B"]
TOOL = """
def prepare(folder):
    def answer(record):
        seconds, peak = record["measured"]["step_time_s"], record["measured"].get("peak_memory_bytes")
        return {"seconds": 0.5, SAID}
    return answer
"""


def tool(folder, said: str) -> Rival:
    script = folder / "tool.py"
    script.write_text(TOOL.replace("SAID", said), encoding="utf-8")
    return Rival("tool", "A tool", "nowhere", str(script), folder=str(folder))


def cells(table: str) -> dict[str, dict[str, str]]:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {row[0]: dict(zip(HEADINGS, row, strict=True)) for row in rows}


def test_the_librarys_row_is_what_the_library_answers_of_the_rows_that_came_with_it():
    found = asked(rivals({})[0], PAIR)
    for run in costmodel.load_runs(QUOTED):
        if run.id in found:
            known = costmodel.estimate(run.model, run.cluster, run.plan, run.framework)
            told = found[run.id]
            assert told["step_time_s"] == pytest.approx(known.step_time, rel=1e-12)
            assert (told["low_s"], told["high_s"]) == pytest.approx(known.time_interval)
    assert len(found) == len(PAIR) == 2


@pytest.mark.parametrize(("said", "error", "regretted"), [
    ("'step_time_s': 2.0 * seconds", "100.0 %", "0.0 % of 1"), ("'step_time_s': 1.0 / seconds", None, "29.1 % of 1"),
])  # fmt: skip
def test_a_tools_figures_are_those_of_its_answers(tmp_path, said, error, regretted):
    row = cells(as_table(contest([rivals({})[0], tool(tmp_path, said)], PAIR, 1)))["A tool"]
    assert row["answers"] == "2 of 2" and row["intervals hold"] == "says none" and row["answers a second"] == "2"
    assert row["regret"] == regretted and (error is None or row["time, mean error"] == error)


def test_a_figure_that_a_record_says_is_not_its_plans_counts_for_no_tool(tmp_path):
    rows = [row | {"use": row.get("use", {}) | {"time": False}} for row in PAIR]
    table = cells(as_table(contest([rivals({})[0], tool(tmp_path, "'step_time_s': seconds")], rows, 1)))
    assert table["A tool"]["time, mean error"] == "-"


def test_what_is_absent_is_said_to_be_and_how_it_is_fetched():
    table = cells(as_table(contest([one._replace(folder="") for one in rivals({})][:3], PAIR[:1], 1)))
    assert "not fetched: git clone" in table["Calculon"]["answers"] and "not fetched: git clone" in table["SimuMax"]["answers"]
    assert table["costmodel"]["answers"] == "1 of 1"


def test_a_tool_of_memory_alone_is_held_against_the_peaks_that_were_measured(tmp_path):
    rows = [{**row, "measured": {**row["measured"], "peak_memory_bytes": 2e10}, "use": {"memory": True}} for row in PAIR]
    table = cells(as_table(contest([rivals({})[0], tool(tmp_path, "'peak_bytes': 1.5 * peak")], rows, 1)))
    assert table["A tool"]["memory, mean error"] == "50.0 %" and table["A tool"]["time, mean error"] == "-"
    assert table["A tool"]["the library's on these, of memory"] == table["costmodel"]["memory, mean error"] != "-"


def test_a_tool_in_an_environment_is_asked_by_its_python(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    one = Rival("numpy", "A tool", "", folder=str(tmp_path))
    assert one.python == str(tmp_path / "bin" / "python")
    assert Rival("a", "A", "", folder=str(tmp_path / "bin")).python == sys.executable


@pytest.mark.parametrize("name", [
    "calculon_rows", "llm_analysis_rows", "simumax_rows", "deepspeed_rows", "accelerate_rows", "ftuneai_rows",
    "llm_cluster_simulator_rows",
])  # fmt: skip
def test_a_script_without_its_tool_says_what_it_misses(name, tmp_path):
    peers = Path(rivals_of.__file__).parent / "peers"
    asked = [sys.executable, str(peers / "ask.py"), str(peers / f"{name}.py"), str(tmp_path)]
    done = subprocess.run(asked, input="", capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode and not done.stdout
    assert "ModuleNotFoundError" in done.stderr or "FileNotFoundError" in done.stderr


def test_what_a_tool_raises_is_why_it_refuses_and_what_it_prints_is_no_answer(tmp_path):
    found = asked(tool(tmp_path, "'step_time_s': print(1 / 0)"), PAIR)
    assert [one["refused"] for one in found.values()] == ["ZeroDivisionError: division by zero"] * len(PAIR)


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node")
def test_a_tool_of_typescript_is_asked_record_by_record(tmp_path):
    """A checkout whose engine takes a second for each layer, under Node in place of tsx."""
    modules = {
        "src/core/simulation/engine.mjs": "export const getSimulationMetrics = ({modelSpec, clusterConfig}) => {\n"
        "  if (clusterConfig.nodes > 1) throw Error('one node alone');\n"
        "  return {stepTimeMs: 1e3 * modelSpec.numLayers, memoryPerGPU: {total: 5}}; };\n",
        "src/core/hardware/topology.mjs": "export const createMultiNodeCluster = (gpu, perNode, nodes) => ({nodes});\n",
        "src/core/models/primitives.mjs": "export const buildModelSpec = (model) => model;\n",
    }
    for name, text in modules.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    runner = tmp_path / "runner" / "node_modules" / ".bin" / "tsx"
    runner.parent.mkdir(parents=True)
    runner.write_text("#!/bin/sh\nsed -i 's/[.]ts\"/.mjs\"/' $1; cp $1 $1.mjs; exec node $1.mjs\n", encoding="utf-8")
    runner.chmod(0o755)
    one = next(rival for rival in rivals({}) if rival.name == "llm-cluster-simulator")._replace(folder=str(tmp_path))
    near = {**PAIR[0], "cluster": {**PAIR[0]["cluster"], "gpus": 8, "gpus_per_node": 8}}
    far = {**near, "id": "far", "cluster": {**near["cluster"], "gpus": 16}}
    found = asked(one, [near, far])
    assert found[near["id"]]["step_time_s"] == near["model"]["layers"] and found[near["id"]]["peak_bytes"] == 5
    assert "one node alone" in found["far"]["refused"]


def test_megatrons_report_is_read_from_its_one_file(tmp_path):
    """A checkout with a report that adds up what it is told, in the words of Megatron-LM's arguments."""
    file = tmp_path / "megatron" / "training" / "theoretical_memory_usage.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        "from .utils import is_hybrid_model, print_rank_0\n"
        "def report_theoretical_memory(args, num_microbatches=None, verbose=False):\n"
        "    print('a line of its own')\n"
        "    layers = args.num_layers / args.pipeline_model_parallel_size / args.tensor_model_parallel_size\n"
        "    return 0.0, 0.0, 1000.0 * layers + num_microbatches\n", encoding="utf-8")  # fmt: skip
    one = next(rival for rival in rivals({}) if rival.name == "megatron-report")._replace(folder=str(tmp_path))
    found = asked(one, PAIR)
    row = next(record for record in PAIR if record["plan"]["recompute"] == "selective")
    plan, ranks = row["plan"], row["plan"]["pipeline_parallel"] * row["plan"]["tensor_parallel"]
    many = plan["global_batch"] / (plan["micro_batch"] * plan["data_parallel"])
    assert found[row["id"]]["peak_bytes"] == pytest.approx(2**20 * (1000.0 * row["model"]["layers"] / ranks + many))
    assert [one["id"] for one in found.values() if "refused" in one] == [one["id"] for one in PAIR if one is not row]


def test_a_tool_that_fails_is_named_with_its_last_line(tmp_path):
    one = tool(tmp_path, "")
    Path(one.script).write_text("1 / 0\n", encoding="utf-8")
    with pytest.raises(CostModelError, match=r"A tool: ZeroDivisionError"):
        asked(one, PAIR)


@pytest.mark.parametrize(("peer", "hint"), [
    ("oracle=/tmp", "expected one of"), ("calculon=/nowhere", "no such folder"), ("calculon", "no such folder"),
])  # fmt: skip
def test_a_peer_that_is_none_is_refused_in_a_line(peer, hint, capsys):
    assert main(["arena", "--peer", peer]) == 2
    err = capsys.readouterr().err
    assert hint in err and err.count("\n") == 1

"""`costmodel explain`, `read`, `write` and `search --write`."""

import json

import pytest

from costmodel.cli import main

ARGS = """--nproc_per_node 8
--nnodes 1
--num-layers 32
--hidden-size 4096
--ffn-hidden-size 14336
--num-attention-heads 32
--group-query-attention
--num-query-groups 8
--seq-length 8192
--position-embedding-type rope
--swiglu
--normalization RMSNorm
--untie-embeddings-and-output-weights
--disable-bias-linear
--hidden-dropout 0
--attention-dropout 0
--vocab-size 128256
--bf16
--micro-batch-size 1
--global-batch-size 64
--tensor-model-parallel-size 4
--log-interval 1
--made-up-flag 3
"""


@pytest.fixture
def run(capsys):
    def runs(*argv):
        code = main(list(argv))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return runs


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "run.args"
    path.write_text(ARGS)
    return path


def test_read_gives_the_fields_that_were_promised(run, file):
    code, out, _ = run("read", str(file), "--json")
    said = json.loads(out)
    assert code == 0
    assert {"framework", "model", "gpus", "plan", "assumed", "unknown", "irrelevant"} <= set(said)
    assert said["framework"] == "megatron-lm" and said["gpus"] == 8
    assert said["plan"]["tensor_parallel"] == 4 and said["plan"]["data_parallel"] == 2
    assert said["unknown"] == ["--made-up-flag"] and "--log-interval" in said["irrelevant"]
    assert said["assumed"]["pipeline_parallel"] == 1
    assert run("read", str(file))[0] == 0


def test_explain_says_time_memory_and_what_is_better_by_its_flags(run, file):
    code, out, _ = run("explain", str(file), "--cluster", "dgx-h100")
    assert code == 0
    for part in (
        "Step:",
        "Memory:",
        "fits",
        "would be faster with",
        "--sequence-parallel",
        "Unknown: --made-up-flag",
        "assumed",
    ):
        assert part in out
    code, out, _ = run("explain", str(file), "--cluster", "dgx-h100", "--json")
    figures = json.loads(out)
    assert figures["step_time_s"] > 0 and figures["improvements"][0]["gain"] > 0
    assert all(one["flags"] for one in figures["improvements"])


def test_explain_without_a_cluster_says_the_plan(run, file):
    code, out, _ = run("explain", str(file))
    assert code == 0 and "Give --cluster" in out


def test_explain_compares_with_a_log(run, file, tmp_path):
    log = tmp_path / "train.log"
    log.write_text("iteration 1/ 10 | elapsed time per iteration (ms): 9000.0 |\n" * 5)
    _, out, _ = run("explain", str(file), "--cluster", "dgx-h100", "--log", str(log))
    assert "Measured: 9 s" in out


WRONG = """
read missing.args : missing.args
read FILE --set nonsense : KEY=VALUE
read FILE --set colour=red : colour
read FILE --dialect esperanto : esperanto
explain FILE --cluster dgx-h100 --gpus 16 : 16
explain FILE --cluster nowhere : nowhere
explain FILE --cluster dgx-h100 --set tensor-model-parallel-size=3 : 8 GPUs
explain FILE --cluster dgx-h100 --allow-config : config.json
write esperanto llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 8 --seq-len 1024 : megatron
search llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 64 --seq-len 2048 --write x : FORMAT
"""


@pytest.mark.parametrize("line", WRONG.strip().splitlines())
def test_what_is_wrong_is_said_in_a_line(run, file, line):
    argv, _, hint = line.partition(" : ")
    code, _, err = run(*[str(file) if word == "FILE" else word for word in argv.split()])
    assert code == 2
    assert err.startswith("costmodel: error: ") and err.count("\n") == 1
    assert hint in err


def test_a_written_plan_is_explained_as_it_was_asked_for(run, tmp_path):
    out = tmp_path / "run.args"
    question = [
        "llama3-8b",
        "--cluster",
        "dgx-h100",
        "--gpus",
        "16",
        "--global-batch",
        "128",
        "--seq-len",
        "8192",
    ]
    code, text, _ = run("write", "megatron", *question, "--tensor-parallel", "2", "--out", str(out))
    assert code == 0 and "Run: " in text
    said = json.loads(run("read", str(out), "--json")[1])
    assert said["gpus"] == 16 and said["plan"]["tensor_parallel"] == 2 and said["unknown"] == []
    code, text, _ = run("write", "torchtitan", *question, "--zero-stage", "3")
    assert code == 0 and "tensor_parallel_degree = 1" in text


def test_search_writes_the_best_plan_and_a_sweep(run, tmp_path):
    question = [
        "search",
        "llama3-8b",
        "--cluster",
        "dgx-h100",
        "--gpus",
        "8",
        "--global-batch",
        "64",
        "--seq-len",
        "4096",
        "--top",
        "3",
    ]
    best = tmp_path / "best.args"
    code, text, _ = run(*question, "--write", f"megatron:{best}")
    assert code == 0 and "Written" in text
    ranked = json.loads(run(*question, "--json")[1])
    first = (ranked.get("ranked") or ranked.get("plans"))[0]
    said = json.loads(run("read", str(best), "--json")[1])
    assert said["plan"]["tensor_parallel"] == first["tensor_parallel"]
    assert said["plan"]["micro_batch"] == first["micro_batch"]
    run(*question, "--write", f"nanotron:{tmp_path / 'sweep'}/")
    assert sorted(path.name for path in (tmp_path / "sweep").iterdir()) == [
        "plan-001.yaml",
        "plan-002.yaml",
        "plan-003.yaml",
        "run.sh",
    ]

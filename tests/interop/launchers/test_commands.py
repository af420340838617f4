"""`costmodel explain`, `read`, `write` and `search --write`."""

import json

import pytest

from costmodel import Plan, load_cluster, load_model
from costmodel.cli import main
from costmodel.interop.launchers import formats, runner, suffix, write_launch

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
        "Fits: ",
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
    assert "Measured: A measured step of 9 s is " in out and "the 90 % interval" in out


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


@pytest.mark.slow
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


LINES = [name for name in formats() if "(" not in runner(name, Plan(global_batch=8, seq_len=8, data_parallel=1), "run")]
"""Formats whose files a program is told by their names."""


@pytest.mark.parametrize("name", LINES)
def test_the_line_that_starts_a_written_run_says_what_its_file_says(name, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file, cluster = f"run.{suffix(name)}", load_cluster("dgx-h100", gpus=16)
    plan = Plan(global_batch=64, seq_len=4096, micro_batch=1, recompute="full").on(cluster)
    (tmp_path / file).write_text(write_launch(name, plan, load_model("llama3-8b"), cluster=cluster), encoding="utf-8")
    alone, line = (
        json.loads(run("read", said, "--gpus", "16", "--json")[1]) for said in (file, runner(name, plan, file, cluster))
    )
    for key in ("dialect", "plan", "gpus", "unknown"):
        assert line[key] == alone[key]


def test_what_is_written_where_no_degree_is_said_is_the_fastest_plan_that_fits(run, tmp_path):
    out = tmp_path / "run.args"
    question = ["llama3-70b", "--device", "h100", "--gpus", "64", "--global-batch", "256", "--seq-len", "4096"]
    assert run("write", "megatron", *question, "-o", str(out))[0] == 0
    ranked = json.loads(run("search", *question, "--json")[1])["plans"]
    said = json.loads(run("read", str(out), "--json")[1])["plan"]
    degrees = ("tensor_parallel", "pipeline_parallel", "data_parallel", "virtual_stages", "context_parallel")
    assert [said[one] for one in degrees] in [[plan[one] for one in degrees] for plan in ranked]


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


QUESTION = ("llama3-8b", "--cluster", "dgx-h100", "--global-batch", "64", "--seq-len", "8192", "--tensor-parallel", "4",
            "--sequence-parallel", "no", "--zero-stage", "0")  # fmt: skip
PLAYED = {"simulate": "step_time_s", "timeline": "total_s", "ledger": "step_time_s"}


@pytest.mark.parametrize(("command", "figure"), PLAYED.items())
def test_a_launch_file_stands_where_a_model_does(run, file, command, figure):
    code, out, err = run(command, str(file), "--cluster", "dgx-h100", "--json")
    by_file = json.loads(out)
    by_hand = json.loads(run(command, *QUESTION, "--json")[1])
    assert code == 0 and by_file[figure] == pytest.approx(by_hand[figure], rel=1e-9)
    assert by_file["framework"] == by_hand["framework"] == "megatron-core"
    assert "read as megatron-lm" in err and "not understood: --made-up-flag" in err


@pytest.mark.parametrize(("command", "figure"), PLAYED.items())
def test_options_stand_in_place_of_a_launch_files_own(run, file, command, figure):
    options = ["--tp", "2", "--pp", "2", "--gbs", "32", "--set", "rail.bandwidth=2x", "--set", "seq-length=4096"]
    code, out, err = run(command, str(file), "--cluster", "dgx-h100", "--json", *options)
    assert code == 0, err
    asked = ["llama3-8b", "--cluster", "dgx-h100", "--tp", "2", "--pp", "2", "--gbs", "32", "--seq-len", "4096",
             "--sequence-parallel", "no", "--zero-stage", "0", "--set", "rail.bandwidth=2x"]  # fmt: skip
    assert json.loads(out)[figure] == pytest.approx(json.loads(run(command, *asked, "--json")[1])[figure], rel=1e-9)


def test_a_trainer_and_its_deepspeed_json_are_played_out_on_a_device(run, tmp_path):
    trainer, config = tmp_path / "sft.yaml", tmp_path / "ds.json"
    trainer.write_text("model_name_or_path: meta-llama/Llama-3.2-1B\nper_device_train_batch_size: 2\nmax_length: 2048\n"
                       "bf16: true\ngradient_accumulation_steps: 4\ndeepspeed: ds.json\n")  # fmt: skip
    config.write_text('{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto"}')
    for command in PLAYED:
        code, out, err = run(command, str(trainer), str(config), "--device", "h100", "--gpus", "16", "--json")
        assert code == 0 and json.loads(out)["framework"] == "deepspeed", err
    estimated = json.loads(out)["step_time_s"]
    code, out, _ = run("explain", str(trainer), str(config), "--device", "h100", "--gpus", "16", "--json")
    assert code == 0 and json.loads(out)["step_time_s"] == pytest.approx(estimated, rel=1e-9)
    assert json.loads(out)["priced_as"]["data_parallel"] == 16


def test_explain_takes_a_device_as_estimate_does(run, file):
    text = file.read_text().replace("--nproc_per_node 8\n--nnodes 1\n", "")
    file.write_text(text)
    by_device = json.loads(run("explain", str(file), "--device", "h100", "--gpus", "8", "--json")[1])
    by_hand = json.loads(run("estimate", "llama3-8b", "--device", "h100", "--gpus", "8", *QUESTION[3:], "--json")[1])
    assert by_device["step_time_s"] == pytest.approx(by_hand["step_time_s"], rel=1e-9)
    by_nodes = json.loads(run("explain", str(file), "--cluster", "dgx-h100", "--nodes", "2", "--json")[1])
    assert by_nodes["priced_as"]["data_parallel"] == 4
    code, out, err = run("explain", str(file), "--device", "h100", "--json")  # one GPU, or as many as a copy needs
    taken = json.loads(out)["priced_as"]
    copy = taken["tensor_parallel"] * taken["pipeline_parallel"] * taken["context_parallel"]
    assert code in (0, 1) and f"taken, as the files don't say it: {copy} GPUs" in err and taken["data_parallel"] == 1
    for wrong in (["--cluster", "dgx-h100", "--device", "h100"], ["--nodes", "2"], ["--device", "abacus", "--gpus", "8"],
                  ["--device", "h100", "--gpus", "8", "--nodes", "1"]):  # fmt: skip
        code, _, err = run("explain", str(file), *wrong)
        assert code == 2 and err.count("\n") == 1


def test_what_stands_where_a_model_does_is_told_apart(run, file, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "vocab_size": 128256,
                                  "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 8192,
                                  "torch_dtype": "bfloat16"}))  # fmt: skip
    rest = ["--cluster", "dgx-h100", "--global-batch", "8", "--seq-len", "1024"]
    assert run("simulate", str(config), *rest)[0] == 0
    assert run("new", "model", str(tmp_path / "mine.toml"))[0] == 0
    assert run("timeline", str(tmp_path / "mine.toml"), *rest)[0] == 0
    code, _, err = run("simulate", "llama3-8b", "--cluster", "dgx-h100")
    assert code == 0 and "--global-batch" in err and "--seq-len" in err  # what is taken for both is said
    code, _, err = run("simulate", "llama3-8b", *rest, "--model", "llama3-70b")
    assert code == 2 and "--model goes with a launch file" in err
    code, _, err = run("estimate", str(file), *rest)
    assert code == 2 and "is a launch file" in err and "explain" in err
    code, _, err = run("simulate", str(tmp_path / "gone.sh"), *rest)
    assert code == 2 and "gone.sh" in err


def test_a_launch_file_without_its_model_takes_one(run, tmp_path):
    config = tmp_path / "ds.json"
    config.write_text('{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}}')
    rest = [str(config), "--cluster", "dgx-h100", "--gpus", "8"]
    code, _, err = run("simulate", *rest, "--seq-len", "2048")
    assert code == 2 and "--model" in err
    code, _, err = run("simulate", *rest, "--model", "llama3.2-1b")
    assert code == 0 and "taken, as the files don't say it: sequences of 2,048 tokens" in err
    code, out, _ = run("simulate", *rest, "--model", "llama3.2-1b", "--seq-len", "2048", "--json")
    assert code == 0 and json.loads(out)["framework"] == "deepspeed"

"""The command line: answers, exit codes, one line for whatever is wrong, and what it loads."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import costmodel
from costmodel.cli import codes, searching
from costmodel.cli.arguments import plan_fields
from costmodel.description.plan import Plan
from costmodel.evaluation.estimation import estimate
from costmodel.evaluation.plan_search import CHOICES, SPLIT, search
from costmodel.simulation.checking import checked
from tests.commanding import refused, strict

ROOT = Path(__file__).parents[1]
BATCH = ["--global-batch", "64", "--seq-len", "4096"]
ONE_GPU = ["llama3.2-1b", "--device", "rtx-4090", "--gpus", "1", *BATCH]
SMALL = ["llama3-8b", "--cluster", "dgx-h100", "--nodes", "1", *BATCH]
MODEL = """
[mine]
layers = 4
hidden = 512
heads = 8
vocabulary = 1000
feed_forward = 1024
"""
CLUSTER = """
[ours]
device = "h100-sxm"
gpus = 16
levels = [
    { name = "nvlink", size = 8, latency = 3e-6, bandwidth = 300e9 },
    { name = "net", size = 64, latency = 1e-5, bandwidth = 40e9 },
]
"""


def python(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter with this checkout on its path."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=300, env=environment, **options
    )


# Answers


def test_search_ranks_plans_that_fit_and_says_what_it_left_out(run):
    code, out, err = run("search", *SMALL, "--top", "3")
    assert (code, err) == (0, "")
    table = [line for line in out.splitlines() if re.match(r"(rank )?[123] ", line)]  # blocks where a table is too wide
    assert len(table) == 3
    said = " ".join(out.split())
    for word in ("tokens/s", "MFU", "Best plan's step:", "Rejected:", "combinations tried"):
        assert word in said


def test_search_in_json_holds_what_the_library_says(run):
    code, out, err = run("search", *SMALL, "--top", "4", "--json")
    assert (code, err) == (0, "")
    document = strict(out)
    model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=8)
    found = checked(search(model, cluster, global_batch=64, seq_len=4096, top=4))
    assert document["plans"] == found.to_rows()
    assert document["considered"] == found.considered
    assert document["search_time_s"] > 0


def test_search_tries_lists_and_repeated_options_alike(run):
    lists = run("search", *SMALL, "--json", "--tensor-parallel", "1,2,4", "--dtype", "bf16,fp8")[1]
    words = ["--tensor-parallel", "1", "--tensor-parallel", "2,4,4", "--dtype", "bf16", "--dtype", "fp8"]
    repeated = run("search", *SMALL, "--json", *words)[1]
    plans = strict(lists)["plans"]
    assert plans == strict(repeated)["plans"]
    assert {plan["tensor_parallel"] for plan in plans} <= {1, 2, 4}


def test_every_dimension_of_a_plan_can_be_searched_and_estimated(run):
    fields = {field.name for field in dataclasses.fields(Plan)} - {"global_batch", "seq_len"}
    assert set(plan_fields()) == fields
    assert fields == {*SPLIT, *CHOICES, "data_parallel"}
    for command in ("search", "estimate"):
        code, out, _ = run(command, "--help-all")
        assert code == 0
        assert all("--" + field.replace("_", "-") in out for field in fields)


def test_a_column_shows_what_else_was_tried(run):
    _, out, _ = run("search", *SMALL, "--optimizer", "adam,adam-8bit")
    assert "optimizer" in out.split("Best plan")[0]
    assert "adam-8bit" in out


def test_csv_holds_the_ranked_plans_beside_the_table(run, tmp_path):
    code, out, _ = run("search", *SMALL, "--top", "5", "--csv", "plans.csv")
    assert code == 0
    assert "combinations tried" in out and "Written: plans.csv (5 plans)" in out
    with open(tmp_path / "plans.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["rank"] for row in rows] == list("12345")
    assert float(rows[1]["step_time_s"]) <= float(rows[2]["step_time_s"])


def test_where_nothing_fits_the_exit_code_is_one_and_no_file_is_written(run, tmp_path):
    question = ["search", "llama3-70b", "--cluster", "dgx-h100", "--nodes", "1", *BATCH]
    code, out, err = run(*question, "--csv", "plans.csv")
    assert (code, err) == (1, "")
    assert "fits" in out
    assert "GiB over the limit" in out
    assert not list(tmp_path.iterdir())
    code, out, err = run(*question, "--json")
    assert (code, err) == (1, "")
    assert strict(out)["plans"] == []


def test_estimate_splits_time_and_memory_into_parts_that_add_up(run):
    code, out, err = run("estimate", *SMALL, "--tensor-parallel", "2", "--fit-probability", "0.9", "--json")
    answer = strict(out)
    assert (code, err) == (0, "")
    model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=8)
    plan = Plan(global_batch=64, seq_len=4096, tensor_parallel=2, data_parallel=4)
    expected = estimate(model, cluster, plan, fit_probability=0.9).to_dict()
    assert {key: answer[key] for key in expected} == expected
    # the limit leaves a margin below what a process can use, at which nine such plans in ten fit
    assert answer["memory_limit_bytes"] < answer["usable_memory_bytes"]
    assert answer["memory_margin_bytes"] == answer["memory_limit_bytes"] - answer["peak_memory_bytes"]
    assert answer["fits"] == (answer["memory_margin_bytes"] >= 0.0) == (answer["fit_probability"] >= 0.9)
    _, out, _ = run("estimate", *SMALL, "--tensor-parallel", "2")
    for word in ("forward", "of the step", "activations", "of the limit", "causal half", "HFU", "tokens/s", "Fits"):
        assert word in out
    shares = [float(share) for share in re.findall(r"([\d.]+) %$", out.split("memory of")[0], re.MULTILINE)]
    assert sum(shares[:-1]) == pytest.approx(shares[-1], abs=0.5)


def test_estimate_derives_the_data_degree_from_the_gpus(run):
    _, out, _ = run("estimate", *SMALL, "--pipeline-parallel", "2", "--json")
    assert strict(out)["data_parallel"] == 4


def test_estimate_derives_the_gpus_from_a_whole_plan(run):
    question = ["estimate", "llama3-8b", "--cluster", "dgx-h100", *BATCH]
    _, out, _ = run(*question, "--tensor-parallel", "4", "--data-parallel", "8", "--json")
    assert strict(out)["gpus"] == 32


def test_estimate_says_by_how_much_a_plan_does_not_fit(run):
    code, out, _ = run("estimate", "llama3-70b", "--cluster", "dgx-h100", "--nodes", "1", *BATCH)
    assert code == 1
    held, limit, over = map(float, re.search(r"DOES NOT FIT: ([\d.]+) of ([\d.]+) GiB, ([\d.]+) GiB over", out).groups())
    assert over == pytest.approx(held - limit, abs=0.11)


def test_yes_and_no_and_words_and_orders_are_read(run):
    options = [
        "--tensor-parallel", "2", "--sequence-parallel", "no", "--recompute", "2", "--optimizer-offload", "0.5",
        "--rank-order", "context-tensor-data-pipeline", "--overlap-gradients", "off",
    ]  # fmt: skip
    code, out, _ = run("estimate", *SMALL, *options, "--json")
    answer = strict(out)
    assert code == 0
    assert (answer["sequence_parallel"], answer["recompute"], answer["optimizer_offload"]) == (False, 2, 0.5)
    assert (answer["rank_order"], answer["overlap_gradients"]) == ("context-tensor-data-pipeline", False)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["model", "device", "cluster", "framework"])
def test_a_listing_names_every_entry_and_each_can_be_shown(run, kind, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    known = costmodel.framework_names() if kind == "framework" else costmodel.names(kind)
    code, out, _ = run(f"{kind}s")
    assert code == 0
    assert [line.split()[0] for line in out.partition("\n\n")[0].splitlines()[2:]] == known
    listed = strict(run(f"{kind}s", "--json")[1])
    assert [entry["name"] for entry in listed] == known
    for name in known[:: max(1, len(known) // 8)]:
        code, out, err = run("show", name)
        assert (code, err) == (0, "")
        assert out.startswith(f"{kind} {name}")
        assert strict(run("show", name, "--json")[1])["kind"] == kind


def test_the_errors_of_the_estimates_are_a_table_of_every_campaign(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    code, out, _ = run("accuracy")
    figures = strict(run("accuracy", "--json")[1])
    assert code == 0
    assert "on measured runs, by campaign" in " ".join(out.split())
    listed = {line.replace(" / ", "/").split()[0] for line in out.splitlines() if line}
    assert figures and {figure["campaign"] for figure in figures} <= listed
    some = strict(run("accuracy", "h100", "--json")[1])
    assert 0 < len(some) < len(figures) and all("h100" in figure["campaign"] for figure in some)


def test_show_gives_parameters_and_where_values_come_from(run):
    _, out, _ = run("show", "llama3-70b")
    assert "70,553,706,496" in out
    assert "https://" in out
    document = strict(run("show", "h100-sxm", "--json")[1])
    assert document["provenance"]["dense_peak"]["source"]


def test_models_and_clusters_can_be_files(run, tmp_path):
    (tmp_path / "mine.toml").write_text(MODEL, encoding="utf-8")
    (tmp_path / "ours.toml").write_text(CLUSTER, encoding="utf-8")
    code, out, err = run("search", "mine.toml", "--cluster", "ours.toml", *BATCH, "--json")
    assert (code, err) == (0, "")
    best = strict(out)["plans"][0]
    assert (best["model"], best["cluster"], best["gpus"]) == ("mine", "ours", 16)
    assert run("show", "mine.toml")[1].startswith("model mine")
    assert run("show", "ours.toml", "--kind", "cluster")[1].startswith("cluster ours")


def test_a_model_can_be_a_hugging_face_config(run, tmp_path):
    config = {
        "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 256, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 1000, "tie_word_embeddings": False,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    code, out, err = run("show", "config.json", "--json")
    assert (code, err) == (0, "")
    assert strict(out)["layers"] == 2


# What can't be answered


BAD = {
    "no command": ([], "COMMAND"),
    "unknown command": (["serch"], "serch"),
    "nothing asked": (["search"], "MODEL"),
    "unknown model": (["search", "llama3-70x", "--cluster", "dgx-h100", *BATCH], "did you mean llama3-70b"),
    "unknown cluster": (["search", "llama3-8b", "--cluster", "dgx-h10", *BATCH], "did you mean dgx-h100"),
    "unknown framework": (["search", *SMALL, "--framework", "megatrom"], "megatron-core"),
    "unknown entry": (["show", "h100-sxn"], "did you mean h100-sxm"),
    "unknown kind": (["show", "h100-sxm", "--kind", "gpu"], "kind='gpu'"),
    "unknown option": (["search", *SMALL, "--tensor-paralel", "2"], "did you mean --tensor-parallel"),
    "a part of an option": (["search", *SMALL, "--tensor", "2"], "--tensor"),
    "one word too many": (["models", "more"], "more"),
    "no GPUs": (["search", "llama3-8b", "--cluster", "dgx-h100", "--gpus", "0", *BATCH], "gpus=0"),
    "no nodes": (["search", "llama3-8b", "--cluster", "dgx-h100", "--nodes", "0", *BATCH], "nodes=0"),
    "fewer than no GPUs": (["search", "llama3-8b", "--cluster", "dgx-h100", "--gpus", "-8", *BATCH], "gpus=-8"),
    "too many nodes": (["search", "llama3-8b", "--cluster", "dgx-h100", "--nodes", "9" * 30, *BATCH], "nodes="),
    "nodes and GPUs": (["search", *SMALL, "--gpus", "8"], "not allowed"),
    "a word for a number": (["search", *SMALL, "--top", "many"], "'many' is not a whole number"),
    "an endless number": (["search", *SMALL, "--top", "9" * 5000], "too many digits"),
    "half a number": (["search", *SMALL, "--micro-batch", "1.5"], "not a whole number"),
    "an empty place in a list": (["search", *SMALL, "--tensor-parallel", "1,,2"], "not a whole number"),
    "a degree of nothing": (["search", *SMALL, "--tensor-parallel", "0"], "tensor_parallel=0"),
    "neither yes nor no": (["search", *SMALL, "--sequence-parallel", "perhaps"], "neither yes nor no"),
    "a share that is not a number": (["estimate", *SMALL, "--optimizer-offload", "nan"], "optimizer_offload=nan"),
    "an endless share": (["estimate", *SMALL, "--activation-offload", "inf"], "activation_offload=inf"),
    "unknown dtype": (["estimate", *SMALL, "--dtype", "fp12"], "bf16"),
    "a dtype that the device lacks": (
        ["search", "llama3-8b", "--cluster", "selene", "--gpus", "8", *BATCH, "--dtype", "fp8"], "has no fp8",
    ),
    "unknown order": (["estimate", *SMALL, "--rank-order", "tensor-tensor"], "rank_order"),
    "unknown engine": (["search", *SMALL, "--engine", "fast"], "numpy"),
    "no plans to show": (["search", *SMALL, "--top", "0"], "top=0"),
    "no batch": (["search", *SMALL[:-4], "--global-batch", "0", "--seq-len", "1"], "global_batch=0"),
    "endless sequence": (["search", *SMALL[:-4], "--global-batch", "1", "--seq-len", "9" * 20], "seq_len="),
    "GPUs that don't divide": (["estimate", *SMALL, "--tensor-parallel", "3"], "does not divide the cluster's 8 GPUs"),
    "too few ranks": (["estimate", *SMALL, "--data-parallel", "2"], "does not equal the cluster's 8 GPUs"),
    "heads that don't divide": (
        ["estimate", "llama3-8b", "--cluster", "dgx-h100", "--gpus", "6", *BATCH, "--tensor-parallel", "6"], "heads",
    ),
    "batch that doesn't divide": (["estimate", *SMALL, "--micro-batch", "5"], "global_batch=64"),
    "missing model file": (["search", "none.toml", "--cluster", "dgx-h100", *BATCH], "none.toml"),
    "missing config": (["search", "none/config.json", "--cluster", "dgx-h100", *BATCH], "no such file"),
    "missing cluster file": (["search", "llama3-8b", "--cluster", "none.toml", *BATCH], "none.toml"),
    "NaN in a file": (["search", "nan.toml", "--cluster", "dgx-h100", *BATCH], "layers=nan"),
    "unknown key in a file": (["search", "key.toml", "--cluster", "dgx-h100", *BATCH], "did you mean layers"),
    "not TOML": (["search", "broken.toml", "--cluster", "dgx-h100", *BATCH], "broken.toml"),
    "a config of ten megabytes": (["search", "config.json", "--cluster", "dgx-h100", *BATCH], "config.json"),
    "escapes in a name": (["search", "\x1b[31mred\nnext", "--cluster", "dgx-h100", *BATCH], "printable"),
    "nowhere to write": (["search", *SMALL, "--csv", "none/plans.csv"], "none/plans.csv"),
    "a folder to write": (["search", *SMALL, "--csv", "."], "folder"),
    "CSV and JSON": (["search", *SMALL, "--csv", "plans.csv", "--json"], "not allowed"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_ends_in_one_line_and_exit_code_two(run, tmp_path, case):
    files = {
        "nan.toml": MODEL.replace("layers = 4", "layers = nan"),
        "key.toml": MODEL.replace("layers", "layerz"),
        "broken.toml": "layers = = 4\x00",
        "config.json": "{" + " " * 10_000_000 + "}",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    argv, hint = BAD[case]
    refused(run, tmp_path, argv, hint)


def test_an_error_reaches_the_shell(tmp_path):
    done = python("-m", "costmodel", "search", "llama3-70x", "--cluster", "dgx-h100", *BATCH, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"costmodel: error: no model named 'llama3-70x'.*\n", done.stderr)


def test_help_and_version_are_answers(run):
    code, out, err = run("--version")
    assert (code, out, err) == (0, f"costmodel {costmodel.__version__}\n", "")
    _, out, _ = run("--help")
    commands = re.findall(r"^    (\w+)(?: |$)", out, re.MULTILINE)
    assert {"search", "estimate", "capacity", "timeline", "ledger", "collective", "checkpoint", "show"} <= {*commands}
    for command in ([], *([name] for name in commands)):
        code, out, err = run(*command, "--help")
        assert (code, err) == (0, "")
        assert out.startswith("usage: costmodel")


def test_an_interruption_ends_with_130_and_one_line(run, monkeypatch):
    def interrupted(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("costmodel.simulation.checking.search", interrupted)
    assert run("search", *SMALL) == (130, "", "costmodel: interrupted\n")


def test_a_reader_that_leaves_is_no_error():
    program = "import sys; from costmodel import cli; sys.exit(cli.main(['models', '--json']))"
    reading, writing = os.pipe()
    os.close(reading)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=writing, stderr=subprocess.PIPE, timeout=60, env=environment
    )
    os.close(writing)
    assert done.stderr == b""
    assert done.returncode == codes.PIPE_CLOSED


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("asked", ["models", "--help", "--version"])
def test_a_full_disk_is_one_line(asked):
    with open("/dev/full", "w") as full:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}
        done = subprocess.run(
            [sys.executable, "-m", "costmodel", asked], stdout=full, stderr=subprocess.PIPE, timeout=60, env=environment
        )
    assert done.returncode == 2
    assert re.fullmatch(rb"costmodel: error: .*\n", done.stderr)


# Looks


def test_tables_lose_nothing_where_they_are_read_in_few_columns():
    narrow = {"COLUMNS": "40", "TERM": "dumb"}
    environment = {**os.environ, **narrow, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "costmodel", "clusters"]
    out = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=True).stdout
    assert "NVIDIA DGX H100, 8 x NDR 400 Gb/s a node" in " ".join(out.split())
    assert all(len(line) <= 40 for line in out.splitlines())
    assert "\x1b" not in out
    assert "\N{HORIZONTAL ELLIPSIS}" not in out


def test_a_terminal_without_unicode_gets_tables_too():
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "costmodel", "models"]
    done = subprocess.run(command, capture_output=True, timeout=60, env=environment, check=True)
    assert done.stdout.isascii()
    assert done.stderr == b""


class Terminal(io.StringIO):
    """A stream that somebody looks at."""

    def isatty(self) -> bool:
        return True


def test_a_long_search_shows_its_progress_on_stderr_alone(run, monkeypatch):
    monkeypatch.setattr(searching, "PATIENCE", -1.0)
    monkeypatch.setenv("TERM", "xterm")
    looked_at = Terminal()
    monkeypatch.setattr(sys, "stderr", looked_at)
    code, out, _ = run("search", *SMALL)
    assert code == 0
    assert "plans" in looked_at.getvalue()
    assert "\x1b" not in out


@pytest.mark.parametrize("output", [["--json"], []])
def test_nobody_is_shown_the_progress_of_a_script(run, monkeypatch, output):
    monkeypatch.setattr(searching, "PATIENCE", -1.0)
    looked_at = Terminal() if output else io.StringIO()
    monkeypatch.setattr(sys, "stderr", looked_at)
    assert run("search", *SMALL, *output)[0] == 0
    assert looked_at.getvalue() == ""


# Start-up


HEAVY = ("numba", "scipy", "sympy", "plotly", "pandas", "polars", "numpy", "rich", "torch")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "allowed"),
    [
        ("import costmodel", ()),
        ("import costmodel.cli", ()),
        ("import costmodel; costmodel.load_model('llama3-8b'); costmodel.load_cluster('dgx-h100')", ()),
        (f"from costmodel.cli import main; main({['estimate', *SMALL, '--json']!r})", ("numpy",)),
        (f"from costmodel.cli import main; main({['estimate', *SMALL, '--dp', '8']!r})", ()),
        (f"from costmodel.cli import main; main({['search', *SMALL, '--no-check', '--json']!r})", ("numpy",)),
        (f"from costmodel.cli import main; main({['search', *SMALL, '--no-check']!r})", ("numpy",)),
        (f"from costmodel.cli import main; main({['search', *ONE_GPU]!r})", ("numpy",)),
        (f"from costmodel.cli import main; main({['ledger', *SMALL, '--json']!r})", ("numpy",)),
        ("from costmodel.cli import main; main(['collective', 'all-reduce', '1GiB', '--cluster', 'dgx-h100', '--json'])", ()),
    ],
)
def test_nothing_heavy_is_loaded_before_it_is_needed(program, allowed):
    report = f"import sys; print('loaded', *sorted(set({HEAVY!r}) & sys.modules.keys()))"
    done = python("-c", f"{program}\n{report}")
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.splitlines()[-1].split()[1:]) <= set(allowed)


# The README and the pages that it leads to


PAGES = ("README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))))


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(page: str) -> list[str]:
    shown = "\n".join(blocks(page, "console"))
    lines = re.findall(r"^\$ costmodel (?:.*\\\n)*.*$", shown, re.MULTILINE)
    return [re.sub(r" *\\\n *", " ", line.removeprefix("$ ")) for line in lines]


@pytest.mark.parametrize("page", ["README.md", pytest.param("docs/command_line.md", marks=pytest.mark.slow)])
def test_the_commands_of_the_readme_run(page, run):
    assert len(commands(page)) >= 3
    for command in commands(page):
        code, _, err = run(*shlex.split(command)[1:])
        assert (code, err) == (0, ""), command


def test_the_readme_shows_the_commands_that_make_its_answers():
    from docs.front import FIRST, QUESTIONS

    assert commands("README.md") == [FIRST, *QUESTIONS.values()]


def test_the_readme_keeps_to_three_screens_of_a_hundred_columns():
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 160
    assert [line for line in lines if len(line) > 100 and not line.startswith(("![", "python3 -m venv", "| "))] == []


@pytest.mark.parametrize("page", ["README.md", *sorted((ROOT / "notebooks").glob("*.md")), *PAGES[1:]], ids=str)
def test_what_pages_link_to_is_there(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert target.startswith("https://") or ((ROOT / page).parent / target).exists(), target


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")])
def test_the_python_of_the_readme_runs(page, tmp_path):
    pytest.importorskip("pandas")
    done = python("-c", "\n".join(blocks(page, "python")), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")

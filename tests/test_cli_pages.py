"""What the command line prints: no wider than the terminal, in whole words, after every example of its help."""

from __future__ import annotations

import functools
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import costmodel
from costmodel import cli
from costmodel.cli import layout
from costmodel.description.plan import Plan
from costmodel.evaluation.estimation import estimate
from tests.commanding import RECORD, refused, strict

WIDTHS = (80, 120)
WORK = ["--global-batch", "64", "--seq-len", "4096"]
NODE = ["llama3-8b", "--cluster", "dgx-h100", *WORK]
STAGED = [*NODE, "--pipeline-parallel", "4"]
TWO = ["llama3-8b", "--cluster", "dgx-h100,dgx-a100", "--nodes", "1", *WORK]
TOO_BIG = ["llama3-70b", "--cluster", "dgx-h100", *WORK]
LLAMA = {
    "model_type": "llama", "num_hidden_layers": 8, "hidden_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 8,
    "intermediate_size": 4096, "vocab_size": 32000, "tie_word_embeddings": False,
}  # fmt: skip
LOG = "step: {}  loss: 7.9  grad_norm: 1.8  memory: 40.1GiB(50%)  tps: 7,890  tflops: 300.1  mfu: 30%\n"
SFT = """
model_name_or_path: meta-llama/Llama-3.2-1B
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
max_length: 2048
bf16: true
deepspeed: {}
"""
SLOW = ("warmup", "sweep", "compare", "cards", "gpus", "search llama3-70b", "report", "whatif", "checkpoint")
"""Beginnings of examples that take seconds."""
VERBATIM = ("completion",)
"""Commands that print a script, whose lines can't be broken; as a launch file on the screen and a URL can't."""


def examples() -> list[str]:
    """Every example of every command's help."""
    lines = []
    for family in cli.FAMILIES:
        parser = cli.build_parser([family])
        added = next(action for action in parser._actions if hasattr(action, "choices") and action.dest == "command").choices
        lines += [line for command in added.values() for line in command.examples]
    return [line.partition(" > ")[0].removeprefix("costmodel ") for line in lines if line.startswith("costmodel ")]


def marked(line: str, widths: tuple[int, ...]):
    return pytest.param(line, widths, marks=pytest.mark.slow if line.startswith(SLOW) else ())


def with_widths() -> list:
    """Examples with the widths to print them at: all on a narrow terminal, the first of each command on a wide one too."""
    lines = examples()
    first = {line.split()[0]: line for line in reversed(lines)}
    return [marked(line, WIDTHS if first[line.split()[0]] == line else WIDTHS[:1]) for line in lines]


@functools.cache
def launches() -> dict[str, str]:
    """Launch files of the examples' names."""
    from costmodel.interop.launchers import write_launch

    model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=8)
    plan = Plan(global_batch=64, seq_len=4096, tensor_parallel=2, data_parallel=4)
    return {
        "train.sh": "torchrun --nproc_per_node 8 pretrain_gpt.py " + " ".join(
            write_launch("megatron", plan, model, cluster=cluster).split("\n")[-1:]
        ) + "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 "
        "--micro-batch-size 1 --global-batch-size 64 --tensor-model-parallel-size 4 --bf16 --use-flash-attn "
        "--vocab-size 32000\n",
        "llama3_8b.toml": write_launch("torchtitan", plan, model, cluster=cluster),
        "ds_config.json": json.dumps({"zero_optimization": {"stage": 1}, "bf16": {"enabled": True}}),
        "ds_z3.json": json.dumps({"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}}),
        "sft.yaml": SFT,
    }  # fmt: skip


@pytest.fixture
def files(tmp_path, monkeypatch, request):
    """The files that examples name, and nobody who listens to `costmodel app`."""
    config = "ds_z3.json" if "ds_z3.json" in request.node.callspec.params["line"] else "ds_config.json"
    for name, text in launches().items():
        (tmp_path / name).write_text(text.replace("{}", config), encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    for name in ("run.log", "run1.log", "run2.log"):
        (tmp_path / name).write_text("".join(LOG.format(step) for step in range(1, 6)), encoding="utf-8")
    (tmp_path / "other.sh").write_text(launches()["train.sh"].replace("parallel-size 4", "parallel-size 2"), encoding="utf-8")
    (tmp_path / "ours.jsonl").write_text(json.dumps(RECORD), encoding="utf-8")
    shutil.copy(Path(__file__).parent / "interop" / "multimodal.json", tmp_path / "llava.json")
    monkeypatch.setattr("costmodel.app.server.serve", lambda *_: None, raising=False)


# Width


@pytest.mark.slow
@pytest.mark.parametrize(("line", "widths"), with_widths())
def test_an_example_answers_in_lines_no_wider_than_the_terminal(run, files, tmp_path, monkeypatch, line, widths):
    words = shlex.split(line)
    if words[0] == "completion":
        pytest.importorskip("shtab")
    if words[0] == "trace":
        pytest.skip("runs a script of one's own")
    if words[0] == "mcp":
        pytest.skip("serves a client on stdin; tests/test_mcp.py is one")
    if "ours.toml" in words and words[0] != "new":
        run("new", "cluster", "ours.toml")
    for width in widths:
        monkeypatch.setenv("COLUMNS", str(width))
        for made in (words[-1] if words[0] in ("new", "calibrate") else "", "plans.parquet"):
            if made:
                (tmp_path / made).unlink(missing_ok=True)
        code, out, _ = run(*words)
        assert code == 0, line
        if words[0] in VERBATIM or "--json" in words or "--markdown" in words:
            continue
        wide = [said for said in out.splitlines() if layout.measure(said) > width and len(said.split()) > 1]
        assert wide == []
        assert not re.search(r"\b1 (GPUs|plans|tokens|sequences|steps|layers|nodes|micro-batches|events|combinations)\b", out)
        assert not re.search(r"\[\s*'|None\b|\bnan\b", out)


@pytest.mark.parametrize("command", [command for names in cli.FAMILIES.values() for command in names])
def test_help_is_no_wider_than_the_terminal(run, monkeypatch, command):
    for width in WIDTHS:
        monkeypatch.setenv("COLUMNS", str(width))
        for option in ("--help", "--help-all") if command in ("search", "train", "sweep") else ("--help",):
            code, out, _ = run(command, option)
            assert code == 0
            assert max(map(len, out.splitlines())) <= width


def test_the_help_of_a_search_takes_two_screens(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert len(run("search", "--help")[1].splitlines()) <= 2 * 50


CELLS = st.text(st.characters(codec="utf-8", categories=["L", "N", "P"]), max_size=12)
PROSE = st.lists(CELLS, max_size=8).map(" ".join)


@given(
    st.integers(1, 6).flatmap(lambda many: st.tuples(
        st.lists(PROSE, min_size=many, max_size=many), st.lists(st.lists(PROSE, min_size=many, max_size=many), max_size=5)
    )),
    st.integers(0, 6), st.integers(40, 120),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_a_table_loses_no_word_and_only_a_word_alone_is_wider_than_the_page(table, words, width):
    columns, rows = table
    made = layout.TerminalTable(tuple(columns), tuple(map(tuple, rows)), frozenset(range(words)), False, 1)
    lines = [line.replace(layout.KEPT, " ") for line in layout.laid(made, width)]
    assert all(layout.measure(line) <= width for line in lines)
    said = re.sub(r"\s|:", "", "".join(lines))
    for row in rows:
        for cell in row:
            assert all(re.sub(r"\s|:", "", word) in said for word in cell.split(" "))


def test_what_machines_read_is_the_same_at_any_width(run, tmp_path, monkeypatch):
    told = []
    for width in ("40", "200"):
        monkeypatch.setenv("COLUMNS", width)
        run("ledger", *STAGED, "--csv", "sent.csv")
        said = [run("estimate", *STAGED, form)[1] for form in ("--json", "--markdown")]
        told.append((*said, (tmp_path / "sent.csv").read_text(encoding="utf-8")))
    assert told[0] == told[1]


def test_prose_is_broken_between_words_and_no_number_from_its_unit():
    lines = layout.wrapped("a step takes 12.3 ms and holds 62.9 GiB of 70.5 GiB on 1,024 GPUs with 90 % of all", 20)
    assert all(len(line) <= 20 for line in lines)
    assert not any(re.search(r"\d$", line) for line in lines)


# What is said


def test_the_answer_stands_before_it_is_checked(run, capsys, monkeypatch):
    from costmodel.simulation import checking

    seen = []

    def checked(result, *most):
        seen.append(capsys.readouterr().out)
        return play(result, 2)

    play = checking.checked
    monkeypatch.setattr(checking, "checked", checked)
    _, out, _ = run("search", *NODE, "--top", "2")
    assert "Best plan's step" in seen[0] and "Played out" not in seen[0]
    assert out.lstrip().startswith("Played out by the simulator: ")


def test_one_limit_of_memory_is_said_with_its_margin_and_plans_are_judged_by_it(run):
    code, out, _ = run("estimate", *NODE, "--tensor-parallel", "2")
    held, limit = map(float, re.search(r"^Fits: ([\d.]+) of ([\d.]+) GiB", out, re.MULTILINE).groups())
    said = re.search(r"^Memory limit: ([\d.]+) GiB a GPU: ([\d.]+) GiB usable (less|plus) ([\d.]+) %", out, re.MULTILINE)
    named, usable, margin = (float(said[place]) for place in (1, 2, 4))
    share = float(re.search(r"^total +[\d.]+ GiB +([\d.]+) %", out, re.MULTILINE)[1])
    assert code == 0 and named == limit
    assert limit == pytest.approx(usable * (1 + {"less": -1, "plus": 1}[said[3]] * margin / 100), abs=0.1)
    assert share == pytest.approx(100 * held / limit, abs=0.2)
    assert not re.search(r"\d [GM]B\b(?!/s)", out)


@pytest.mark.parametrize("probability", [0.5, 0.75, 0.9, 0.99])
def test_a_plan_fits_where_it_holds_no_more_than_the_limit(probability):
    model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=8)
    for batch in (1, 2, 4, 8):
        plan = Plan(global_batch=64, seq_len=4096, micro_batch=batch, tensor_parallel=2, data_parallel=4)
        made = estimate(model, cluster, plan, fit_probability=probability)
        assert made.fits == (made.memory.total <= made.memory_limit) == (made.fit_probability >= probability)
        assert (made.memory_limit <= made.usable_memory) == (probability >= made.spread.room.probability_below(1.0, 1.0))


@pytest.mark.parametrize("command", [
    "estimate", "train --tokens 1e9", "search", "report -o page.html",
    pytest.param("whatif -o page.html", marks=pytest.mark.slow),
])  # fmt: skip
def test_what_does_not_fit_exits_with_one(run, command):
    verb, *options = command.split()
    asked = [*TOO_BIG, "--tensor-parallel", "8", "--zero-stage", "0", "--recompute", "none", "--adapter", "none"]
    assert run(verb, *asked, *options)[0] == 1


# Several clusters


@pytest.mark.parametrize("command", ["search", "estimate", "train"])
def test_several_clusters_honour_tokens_and_price(run, command):
    code, out, _ = run(command, *TWO, "--tokens", "1e12", "--price", "2", "--zero-stage", "3", "--json")
    found = strict(out)["clusters"]
    assert code == 0 and [one["cluster"] for one in found] == ["dgx-h100", "dgx-a100"]
    for one in found:
        assert one["price"] == pytest.approx(2 * one["gpu_hours"])
        alone = ["llama3-8b", "--cluster", one["cluster"], "--nodes", "1", *WORK, "--zero-stage", "3"]
        single = strict(run(command, *alone, "--tokens", "1e12", "--price", "2", "--json")[1])
        assert one["gpu_hours"] == (single["plans"][0] if command == "search" else single)["gpu_hours"]
    page = run(command, *TWO, "--tokens", "1e12", "--price", "2", "--zero-stage", "3")[1]
    assert "GPU-hours" in page and "price" in page


def test_several_clusters_say_what_is_not_by_default(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    out = run("estimate", *TWO, "--dtype", "fp16", "--set", "device.memory=100GiB")[1]
    said = [line for line in out.splitlines() if line.startswith("Not by default")]
    assert said and all("dtype fp16" in line and "memory" in line for line in said)


def test_what_would_be_faster_is_said_as_the_options_that_make_it(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    work = ["--gbs", "1024", "--seq-len", "8192", "--recompute", "none", "--top", "1", "--no-check"]
    asked = ["llama3-70b", "--cluster", "dgx-h100", "--nodes", "8", *work]
    offered = run("search", *asked)[1].split("would be faster with")[1].splitlines()[2].split("  ")[0]
    again = run("search", *asked, *offered.split())[1]
    assert offered.startswith("--") and "Not by default: " in again


@pytest.mark.parametrize("command", [
    "estimate", "train --tokens 1e12", "simulate", "ledger", "timeline", "search --no-check --top 2", "capacity --find layers",
    "capacity --find gpus",
])  # fmt: skip
def test_every_answer_of_one_plan_says_what_is_not_by_default(run, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "300")
    verb, *options = command.split()
    changed = ["--dtype", "fp16", "--set", "device.memory=100GiB", "--fit-probability", "0.85"]
    out = run(verb, *NODE, "--recompute", "full", *changed, *options)[1]
    assert "\nNot by default: dtype fp16, fit_probability 0.85, device.memory 80 GiB" in out


def test_what_was_changed_of_a_description_of_ones_own_is_said_before_and_after(run, tmp_path):
    files = {"cluster": "--cluster", "framework": "--framework", "model": ""}
    for kind in files:
        run("new", kind, str(tmp_path / f"{kind}.toml"))
    asked = [str(tmp_path / "model.toml"), "--cluster", str(tmp_path / "cluster.toml"), "--framework",
             str(tmp_path / "framework.toml"), *WORK, "--tp", "8"]  # fmt: skip
    assert "changed" not in run("estimate", *asked)[2]
    changes = ["network.bandwidth=2x", "model.layers=4", "framework.compute_gemm_efficiency_scale=0.9"]
    err = run("estimate", *asked, *(word for change in changes for word in ("--set", change)))[2]
    assert "bandwidth 46 -> 92 GB/s per GPU" in err and "layers 32 -> 4" in err and "-> 0.9" in err


def test_several_clusters_write_what_was_asked_for_and_say_so(run, tmp_path):
    pytest.importorskip("plotly")
    code, out, _ = run("search", *TWO, "--tokens", "1e12", "-o", "plans.csv", "-o", "page.html", "--top", "2")
    assert code == 0 and "Written: plans.csv (4 plans), page.html" in " ".join(out.split())
    rows = (tmp_path / "plans.csv").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 5 and "gpu_hours" in rows[0]
    assert "dgx-a100" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(("options", "words"), [
    (["-o", "megatron:best.args"], "--write is of one cluster"), (["--uneven"], "--uneven is of one cluster"),
    (["-o", "plans.xlsx"], "'plans.xlsx'"), (["-o", "a.csv", "-o", "b.csv"], "twice"),
    (["-o", "none/a.csv"], "a folder that exists"),
])  # fmt: skip
def test_what_several_clusters_cannot_honour_is_refused_in_a_line(run, tmp_path, options, words):
    refused(run, tmp_path, ["search", *TWO, *options], words)


@pytest.mark.slow
@pytest.mark.parametrize("command", [
    ["search", *NODE, "--no-check"], ["estimate", *NODE], ["timeline", *STAGED], ["ledger", *STAGED],
])  # fmt: skip
def test_a_file_is_named_once_it_is_written_by_whichever_spelling(run, tmp_path, command):
    name = "a.html" if command[0] == "estimate" else "a.csv"
    told = []
    for spelling in ("-o", "--output", "--out", "--" + name.partition(".")[2]):
        code, out, _ = run(*command, spelling, name)
        (tmp_path / name).unlink()
        assert code in (0, 1)
        told.append(out.splitlines()[-1])
    assert len(set(told)) == 1 and told[0].startswith(f"Written: {name}")


@pytest.mark.parametrize("looked_at", [True, False])
def test_an_error_is_one_line_for_a_script_and_broken_between_words_for_a_reader(run, monkeypatch, capsys, looked_at):
    import sys

    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: looked_at, raising=False)
    code, _, err = run("search", "llama3-70x", *NODE[1:])
    assert code == 2 and "did you mean llama3-70b" in " ".join(err.split())
    assert (max(map(len, err.splitlines())) <= 60) == looked_at and (err.count("\n") == 1) != looked_at

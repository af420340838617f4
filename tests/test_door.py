"""The front door: what stands first, what is offered, how it starts and ends, and what its help says."""

from __future__ import annotations

import functools
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import costmodel
from costmodel import cli
from costmodel.cli import codes, output
from costmodel.cli.arguments import plan_fields
from costmodel.description.dimensions import DIMENSIONS
from costmodel.evaluation.offers import offers
from costmodel.evaluation.plan_search import CHOICES, SPLIT, search
from costmodel.evaluation.simplicity import (
    CLOSE,
    TIE,
    probability_faster,
    simplest_first,
    simplicity,
    spans_nodes,
)
from costmodel.text.suggestions import MEANT, did_you_mean
from tests.commanding import as_options, strict

ROOT = Path(__file__).parents[1]
WORK = ["--global-batch", "64", "--seq-len", "4096"]
NODE = ["llama3-8b", "--cluster", "dgx-h100", *WORK]
CARD = ["llama3-8b", "--device", "rtx-4090", "--global-batch", "8", "--seq-len", "2048"]


@functools.cache
def found(model: str, gpus: int, batch: int = 128, framework: str = "megatron-core"):
    """A search whose every plan is kept."""
    return search(
        costmodel.load_model(model), costmodel.load_cluster("dgx-h100", gpus=gpus), global_batch=batch, seq_len=4096,
        framework=framework, keep_evaluated=True, top=10,
    )  # fmt: skip


# What stands first


@pytest.mark.parametrize(("model", "gpus"), [("llama3-8b", 16), ("llama3-70b", 64), ("mixtral-8x7b", 32), ("bloom-7b1", 64)])
def test_no_plan_across_nodes_stands_before_one_inside_that_is_as_fast(model, gpus):
    result = found(model, gpus)
    first, fastest = result.best, min(result.ranked, key=lambda one: one.step_time)
    assert first.step_time <= CLOSE * fastest.step_time
    for one in result.ranked:
        if one is fastest or (probability_faster(one, fastest) >= TIE and one.step_time <= CLOSE * fastest.step_time):
            assert simplicity(first).spans_nodes <= simplicity(one).spans_nodes


@functools.cache
def pool():
    """Plans of one question, from one dimension to many, inside and across nodes."""
    result = found("llama3-8b", 32)
    places = [*range(0, len(result.every), max(len(result.every) // 60, 1))]
    return [costmodel.estimate(result.model, result.cluster, result.every.plan(place)) for place in places]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_the_first_of_any_plans_is_the_simplest_of_those_tied_with_the_fastest(data):
    plans = data.draw(st.lists(st.sampled_from(pool()), min_size=1, max_size=12, unique_by=id))
    ordered = simplest_first(plans)
    first, rest, fastest = ordered[0], ordered[1:], min(plans, key=lambda one: one.step_time)
    assert sorted(map(id, ordered)) == sorted(map(id, plans))
    assert [one.step_time for one in rest] == sorted(one.step_time for one in rest)
    assert first is fastest or probability_faster(first, fastest) >= TIE
    near = [one for one in plans if one.step_time <= CLOSE * fastest.step_time]
    tied = [one for one in near if one is fastest or probability_faster(one, fastest) >= TIE]
    assert first in tied
    for one in tied:
        assert simplicity(first) <= simplicity(one)


@given(st.sampled_from([1, 2, 4, 8, 16, 32]), st.sampled_from([1, 2, 4, 8]), st.sampled_from([4, 8, 72]))
def test_ranks_of_a_group_lie_in_several_nodes_where_counting_them_says_so(tensor, stride, node):
    block = stride * tensor
    groups = [[start + offset + stride * k for k in range(tensor)] for start in range(0, 8 * node * block, block)
              for offset in range(stride)]  # fmt: skip
    across = any(len({rank // node for rank in group}) > 1 for group in groups)
    assert bool(spans_nodes(stride, tensor, node)) == across


def test_of_two_plans_the_slower_is_the_less_likely_to_be_faster():
    plans = sorted(pool(), key=lambda one: one.step_time)
    for one, other in itertools.pairwise(plans):
        assert probability_faster(other, one) <= 0.5 <= probability_faster(one, other) + 1e-12
        assert probability_faster(one, other) + probability_faster(other, one) == pytest.approx(1.0)


# What is offered where nothing fits


def test_what_is_offered_fits_and_the_cheapest_stands_first():
    model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=1)
    result = search(model, cluster, global_batch=8, seq_len=4096)
    assert not result.ranked
    made = offers(result)
    said = [offer.change for offer in made]
    assert {"adapter=lora", "optimizer=adam-8bit"} & set(said) and any(change.startswith("gpus=") for change in said)
    assert all(offer.best.fits for offer in made)
    times = [offer.best.step_time * offer.best.plan.gpus / (8 * offer.best.plan.seq_len) for offer in made]
    assert times == sorted(times) == [offer.gpu_time for offer in made]


def test_a_change_that_is_offered_answers_the_question_asked_again(run):
    code, out, _ = run("search", *CARD, "--json")
    said = strict(out)["offers"]
    assert code == codes.NOTHING_FITS and said
    for offer in said:
        words = as_options(offer["change"])
        question = CARD[:-2] if "--seq-len" in words else CARD
        code, out, _ = run("search", *question, *words, "--json", "--top", "1")
        assert code == codes.ANSWERED
        assert strict(out)["plans"][0]["step_time_s"] == pytest.approx(offer["step_time_s"])
    assert "would fit with" in run("search", *CARD)[1]


def test_a_dimension_that_alone_is_in_the_way_is_offered_open():
    model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=8)
    result = search(model, cluster, global_batch=64, seq_len=8192, micro_batch=8, tensor_parallel=1, recompute="none")
    assert not result.ranked
    assert any("micro_batch=any" in offer.change and offer.best.fits for offer in offers(result))


def test_nothing_is_offered_where_plans_fit():
    assert offers(found("llama3-8b", 16)) == []


# Tables


@pytest.mark.parametrize("command", [["estimate", *NODE], ["search", *NODE, "--tokens", "1e12", "--price", "2"], ["models"]])
def test_markdown_holds_the_tables_of_the_plain_answer(run, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    plain, marked = run(*command)[1], run(*command, "--markdown")[1]
    rows = [line for line in marked.splitlines() if line.startswith("|")]
    assert rows and "\N{BOX DRAWINGS LIGHT HORIZONTAL}" not in marked
    columns = 0
    for place, row in enumerate(rows):
        if place + 1 < len(rows) and set(rows[place + 1]) <= set("|-: "):
            columns = row.count("|")
        assert row.replace("\\|", "").count("|") == columns
    cells = [cell.strip(" *") for row in rows for cell in row.strip("|").split("|")]
    words = {re.sub(r"\s+", " ", cell) for cell in cells if cell and set(cell) - set("-: ")}
    squeezed = re.sub(r"\s+", " ", plain)
    steady = {word for word in words if "in " not in word}
    assert all(word in squeezed for word in steady)


def test_columns_are_aligned_and_a_bar_in_a_cell_ends_no_column(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    made = output.table(["name", "n"], [("a|b", "1"), ("x" * 600, "22")], words=1, total=True)
    output.print_page("Said", made)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines if line.split()[:1] in (["a|b"], ["x" * 600])] == [["a|b", "1"], ["x" * 600, "22"]]
    assert lines[-1].endswith(" 22") and lines[2].endswith(" n") and len(lines[2]) == len(lines[-1])  # numbers on the right
    output.print_page(made, markdown=True)
    cells = [[cell.strip() for cell in line.split(" | ")] for line in capsys.readouterr().out.splitlines()]
    assert cells[2] == ["| a\\|b", "1 |"] and cells[3][1].strip(" |") == "22"


def test_headings_say_what_their_columns_hold(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    _, out, _ = run("search", *NODE, "--pipeline-parallel", "2", "--virtual-stages", "2", "--tokens", "1e12")
    heading = next(line for line in out.splitlines() if line.startswith("rank"))
    titles = ("plan", "step", "P(fastest)", "memory", "days", "GPU-hours", "MWh")
    assert all(title in re.split(r"\s{2,}", heading) for title in titles)
    assert re.search(r"\d+ runs of this framework; (\d+|none) of them on this device", out)


# Start and end


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.15, 0.3, 0.6, 1.0])
def test_an_interruption_at_any_moment_ends_in_one_line(after):
    command = [sys.executable, "-m", "costmodel", "search", *NODE, "--nodes", "16"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), text=True)
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    unbegun = (-signal.SIGINT, "")  # the interpreter itself had not begun, here and where a traceback is of its own modules
    assert (process.returncode, err) in [(codes.INTERRUPTED, "costmodel: interrupted\n"), (codes.ANSWERED, ""), unbegun] or (
        "Traceback" in err and "costmodel" not in err
    )


def test_an_interruption_inside_an_import_is_not_left_to_the_module_that_imports(tmp_path):
    (tmp_path / "slow.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    program = (
        "from costmodel import cli\ncli._listen()\n"
        "try:\n    import slow\nexcept BaseException as met:\n    print(met, 'in words of its own')"  # as modules in C do
    )
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=environment(PYTHONPATH=path),
    )
    assert (done.returncode, done.stdout, done.stderr) == (codes.INTERRUPTED, "", "costmodel: interrupted\n")


@pytest.mark.parametrize("closed", ["1", "2"])
def test_a_closed_stream_is_no_success(closed):
    if shutil.which("sh") is None:
        pytest.skip("no shell here")
    line = f'"{sys.executable}" -m costmodel models {closed}>&-'
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60, env=environment())
    assert done.returncode == codes.BAD_INPUT
    assert (closed == "2") or re.fullmatch(r"costmodel: error: stdout is closed.*\n", done.stderr)


@pytest.mark.slow
def test_the_first_compilation_says_what_it_does_and_says_it_once():
    program = (
        "from costmodel.text import progress\nprogress.LISTENERS.append(print)\nfrom costmodel.compilation.jit import kernel\n"
        "made = kernel(lambda x: x + 1)\nmade(1.0), made(1), made(1.0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60,
                          env=environment(COSTMODEL_CACHE_DIR="/dev/null/none"))  # fmt: skip
    assert re.fullmatch(r"compiling kernels.*\n", done.stdout), done.stderr


# Help


def test_every_family_adds_the_commands_that_are_written_beside_it():
    for family, commands in cli.FAMILIES.items():
        parser = cli.build_parser([family])
        added = next(action for action in parser._actions if hasattr(action, "choices") and action.dest == "command").choices
        assert tuple(added) == commands


def commands() -> list[str]:
    return [command for names in cli.FAMILIES.values() for command in names]


@pytest.mark.parametrize("command", commands())
def test_every_command_ends_its_help_in_examples_that_it_understands(run, command):
    import shlex

    code, out, err = run(command, "--help")
    assert (code, err) == (0, "")
    examples = re.sub(r" \\\n\s+", " ", out).split("examples:\n")[1].splitlines()
    assert examples
    for line in examples:
        if line.strip().startswith("costmodel"):
            words = shlex.split(line.partition(" > ")[0])
            assert cli._parse(words[1:]).command == command


def test_help_groups_its_options_and_keeps_the_rare_ones_for_help_all(run):
    brief, whole = run("search", "--help")[1], run("search", "--help-all")[1]
    groups = ["\nmodel:", "\ncluster:", "\nplan:", "\nframework:", "\noutput:"]
    assert [brief.find(group) for group in groups] == sorted(brief.find(group) for group in groups) and brief.count(":\n") >= 6
    for name in (name for name, row in plan_fields().items() if row.rare):
        option = "--" + name.replace("_", "-")
        assert option + " " not in brief and option in whole
    assert len(brief) < 0.75 * len(whole)


@pytest.mark.parametrize("command", ["estimate", "search", "capacity", "train"])
def test_help_says_a_default_or_what_is_tried_of_every_dimension(run, command):
    entries = re.split(r"^  (?=-)", run(command, "--help-all")[1], flags=re.MULTILINE)[1:]
    said = {entry.split()[0].rstrip(","): entry for entry in entries}
    for name in {*SPLIT, *CHOICES, "data_parallel"}:
        assert re.search(r"\((default|tries):\s", said[f"--{name.replace('_', '-')}"]), name


def test_what_help_says_a_search_tries_is_what_it_tries():
    every = found("mixtral-8x7b", 32).every
    tried = {name for name, column in every.columns.items() if len(set(column.tolist())) > 1}
    tried |= {name for name in every.chosen[0] if len({str(one[name]) for one in every.chosen}) > 1}
    follows = {"schedule", "sequence_parallel"}  # of other dimensions
    said = {name for name, row in plan_fields().items() if row.tried}
    assert tried - follows == said - {"expert_tensor_parallel"} | (tried & {"expert_tensor_parallel"})
    assert {dimension.field for dimension in DIMENSIONS} <= said
    assert {name for name, row in plan_fields().items() if row.software} <= set(CHOICES)


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_script_of_completion_knows_commands_options_and_names(run, shell, tmp_path):
    pytest.importorskip("shtab")
    code, out, err = run("completion", shell)
    assert (code, err) == (0, "")
    for word in ("search", "--tensor-parallel", "rtx-4090", "dgx-h100", "llama3-8b"):
        assert word in out
    if shutil.which(shell):
        (tmp_path / "script").write_text(out, encoding="utf-8")
        assert subprocess.run([shell, "-n", str(tmp_path / "script")], capture_output=True, timeout=60).returncode == 0


# Words that are near in meaning


def test_every_word_of_a_table_means_something_that_is_there():
    from costmodel.catalogue.loader import names
    from costmodel.description.device import DTYPES
    from costmodel.description.labels import CAPACITIES
    from costmodel.description.plan import SCHEDULES
    from costmodel.description.recomputation import MODULES, WHOLE
    from costmodel.evaluation.collectives import OPERATIONS
    from costmodel.formulas.settings import ATTENTION_KINDS, COMPRESSIONS, OPTIMIZERS, SYNCHRONISATIONS
    from costmodel.formulas.transformer.adapters import KINDS as ADAPTERS

    options = {f"--{name.replace('_', '-')}" for name in plan_fields()}
    options |= {"--global-batch", "--seq-len", "--device", "--gpus", "--nodes", "--cluster", "--markdown", "--tokens", "--price",
                "--framework", "--network", "--tokens-per-second", "--log", "--days", "--step-time", "--find",
                "--gradient-accumulation", "--mtbf-hours", "--checkpoint-interval", "--checkpoint-time", "--slow", "--algorithm",
                "--steps", "--samples", "--preemption-hours", "--mfu", "--json", "--top", "--set device.dense_peak.bf16=900e12",
                "--set device.memory=60GB", "--set framework.compiled=yes", "--sure", "--epochs", "--overhead", "--carbon",
                "--restart", "--image-tokens", "--budget"}  # fmt: skip
    options |= {f"--set model.{name}={value}" for name, value in (("layers", 40), ("hidden", 4096), ("heads", 32),
                                                                      ("kv_heads", 8), ("experts", 64), ("experts_per_token", 8),
                                                                      ("vocabulary", 128256))
                if name in vars(costmodel.load_model("llama3-8b"))}  # fmt: skip
    known = {
        "device": names("device"), "framework": costmodel.framework_names(),
        "dtype": DTYPES, "optimizer": OPTIMIZERS, "op": OPERATIONS,
        "recompute": (*WHOLE, *MODULES), "schedule": SCHEDULES, "attention": ATTENTION_KINDS,
        "adapter": ADAPTERS, "find": CAPACITIES,
        "synchronisation": SYNCHRONISATIONS, "compression": COMPRESSIONS, "option": options,
        "function": costmodel.__all__, "command": {*commands(), "compare --systems", "--help", "--version"},
    }  # fmt: skip
    for kind, table in MEANT.items():
        assert set(table.values()) <= set(known[kind]), kind
        assert not {word for word in table if word in known[kind]}, kind


@given(st.text(max_size=30), st.lists(st.text(min_size=1, max_size=10), max_size=5))
def test_a_hint_names_only_what_would_be_taken(given_word, known):
    hint = did_you_mean("anything", given_word, known)
    assert hint == "" or hint.removeprefix("; did you mean ").removesuffix("?") in known

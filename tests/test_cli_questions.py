"""The command line's questions about memory, pipelines, communication and chains: what it prints is what the library says."""

from __future__ import annotations

import csv
import itertools
import json
import math
import re

import pytest

import costmodel
from costmodel import Group, Plan, load_cluster, load_model
from costmodel.cli.advice import change_as_options
from costmodel.description.labels import CAPACITIES
from costmodel.evaluation.capacity import FINDERS
from costmodel.evaluation.memory_breakdown import PARTS
from tests.commanding import as_options, refused, strict

ON = ["llama3-8b", "--cluster", "dgx-h100", "--nodes", "1"]
BATCH = ["--global-batch", "64", "--seq-len", "8192"]
TOO_BIG = [*ON, *BATCH, "--micro-batch", "4", "--pipeline-parallel", "2"]
STAGES = [*ON, *BATCH, "--pipeline-parallel", "4"]


@pytest.fixture(scope="module")
def model():
    return load_model("llama3-8b")


@pytest.fixture(scope="module")
def cluster():
    return load_cluster("dgx-h100", gpus=8)


@pytest.fixture(scope="module")
def staged():
    return Plan(global_batch=64, seq_len=8192, pipeline_parallel=4, data_parallel=2)


# How surely a chosen plan fits


TIGHT = [*ON, "--global-batch", "16", "--seq-len", "4096"]
"""What two plans answer, the faster of which fits with 83 %."""
CHOOSING = {"train": ["--tokens", "1T"], "diagnose": ["--step-time", "2"], "explain": [], "post-train": []}


@pytest.mark.parametrize(("verb", "required"), [*((verb, 0.9) for verb in CHOOSING), ("train", 0.8), ("post-train", 0.8)])
def test_a_plan_that_nobody_said_is_chosen_as_a_search_chooses(run, tmp_path, verb, required):
    """The limit is that below which nine of ten such plans fit, unless another probability is asked for."""
    log = tmp_path / "run.log"
    line = " iteration %d/ 9 | elapsed time per iteration (ms): 2000.0 | global batch size: 16 |\n"
    log.write_text("".join(line % step for step in (1, 2)))
    said = [*CHOOSING[verb], *(["--log", str(log)] if verb == "explain" else [])]
    said += ["--fit-probability", "0.8"] if required == 0.8 else []
    answer = strict(run(verb, *TIGHT, *said, "--json")[1])
    best = costmodel.search("llama3-8b", "8xh100", global_batch=16, seq_len=4096, fit_probability=required, top=1).best
    field = "memory_limit" if verb == "post-train" else "step_time"  # of shorter sequences, beside a reference
    assert answer[f"{field}_bytes" if verb == "post-train" else f"{field}_s"] == pytest.approx(getattr(best, field))


# Memory


def test_a_plan_that_does_not_fit_gets_a_verdict_with_the_cheapest_changes(run, model, cluster, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    plan = Plan(global_batch=64, seq_len=8192, micro_batch=4, pipeline_parallel=2, data_parallel=4)
    found = costmodel.verdict(costmodel.estimate(model, cluster, plan))
    code, out, _ = run("estimate", *TOO_BIG, "--json")
    said = strict(out)["verdict"]
    assert (code, said["fits"], said["stage"], said["phase"]) == (1, False, found.stage, found.phase)
    assert [fix["change"] for fix in said["fixes"]] == [fix.change for fix in found.fixes]
    costs = [fix["cost_s"] for fix in said["fixes"]]
    assert costs == sorted(costs) and said["largest_bytes"] == dict(found.largest)
    code, out, _ = run("estimate", *TOO_BIG)
    assert code == 1 and "DOES NOT FIT" in out
    offered = out.split("would fit with")[1]
    changes = [change_as_options(fix.change) for fix in found.fixes[:5]]
    assert [line.split("  ")[0] for line in offered.splitlines()[2:]] == changes


@pytest.mark.parametrize("required", [0.5, 0.9])
def test_what_would_fit_fits_as_surely_as_was_asked(model, cluster, required):
    plan = Plan(global_batch=64, seq_len=8192, micro_batch=4, pipeline_parallel=2, data_parallel=4)
    found = costmodel.verdict(costmodel.estimate(model, cluster, plan, fit_probability=required))
    assert found.fixes and all(fix.estimate.fit_probability > required - 1e-6 for fix in found.fixes)


def test_a_change_that_a_verdict_names_makes_the_plan_fit(run):
    cheapest = strict(run("estimate", *TOO_BIG, "--json")[1])["verdict"]["fixes"][0]
    options = as_options(cheapest["change"])
    asked = [word for name, value in itertools.pairwise([*TOO_BIG, ""]) if name.startswith("--") and name not in options
             for word in (name, value)]  # fmt: skip
    again = strict(run("estimate", *[word for word in TOO_BIG[:1] if not word.startswith("--")], *asked, *options, "--json")[1])
    assert again["fits"] and again["verdict"]["fixes"] == []
    assert again["step_time_s"] == pytest.approx(cheapest["step_time_s"])


def test_every_stage_of_a_pipeline_has_a_line_that_adds_up(run, monkeypatch):
    answer = strict(run("estimate", *STAGES, "--json")[1])
    assert [stage["stage"] for stage in answer["stages"]] == [0, 1, 2, 3]
    assert max(stage["total_bytes"] for stage in answer["stages"]) == pytest.approx(answer["peak_memory_bytes"])
    for stage in answer["stages"]:
        assert stage["total_bytes"] == pytest.approx(sum(stage[f"{part}_bytes"] for part in PARTS))
    monkeypatch.setenv("COLUMNS", "200")
    _, out, _ = run("estimate", *STAGES)
    assert len(re.findall(r"^[0-3] +(?:loss|backward|update) ", out, re.MULTILINE)) == 4
    assert "fullest at its" not in run("estimate", *ON, *BATCH, "--tensor-parallel", "8")[1]


@pytest.mark.slow
@pytest.mark.parametrize("find", ["sequence", "batch", "micro-batch", "layers", "gpus"])
def test_capacity_finds_with_every_plan_what_the_library_finds(run, model, cluster, find):
    asked = {field: {"global_batch": 64, "seq_len": 4096}[field] for field in CAPACITIES[find].asked}
    words = [word for field, value in asked.items() for word in (f"--{field.replace('_', '-')}", str(value))]
    question = [*ON, *words, "--find", find, "--tensor-parallel", "4,8", "--fit-probability", "0.95"]
    code, out, _ = run("capacity", *question, "--json")
    answer = strict(out)
    found = FINDERS[find](model, cluster, **asked, tensor_parallel=[4, 8], fit_probability=0.95)
    assert code == 0 and (answer["found"], answer["step_time_s"]) == (found.value, found.best.step_time)
    assert run("capacity", *question)[1].splitlines()[0] == found.said()


def test_without_nodes_a_capacity_is_of_as_many_gpus_as_its_degrees_need(run):
    question = ["llama3-8b", "--cluster", "dgx-h100", "--global-batch", "64", "--seq-len", "4096", "--find", "micro-batch"]
    assert strict(run("capacity", *question, "--tensor-parallel", "8", "--pipeline-parallel", "2", "--json")[1])["gpus"] == 16


def test_nothing_that_fits_is_an_answer_with_code_one_and_says_what_would(run):
    question = ["llama3-70b", "--cluster", "dgx-h100"]
    for rest in (["--find", "gpus", "--gpus", "4", *BATCH], ["--find", "sequence", "--gpus", "4", "--global-batch", "4"]):
        code, out, err = run("capacity", *question, *rest)
        assert (code, err) == (1, "") and " fits" in out and "would fit with" in out
        code, out, _ = run("capacity", *question, *rest, "--json")
        assert code == 1 and strict(out)["found"] is None and strict(out)["offers"]


# Pipelines


def test_a_timeline_is_the_librarys_with_the_estimate_beside_it(run, model, cluster, staged):
    played, answer = costmodel.timeline(model, cluster, staged), costmodel.estimate(model, cluster, staged)
    code, out, err = run("timeline", *STAGES, "--json")
    assert (code, err) == (0, "")
    said = strict(out)
    assert (said["total_s"], said["bubble_rate"], said["estimate_s"]) == (played.total, played.bubble_rate, answer.step_time)
    for rank, row in enumerate(said["ranks"]):
        assert row["busy_s"] + row["bubble_s"] == pytest.approx(said["period_s"])
        assert row["in_flight"] == 4 - rank  # 1F1B
        assert row["peak_activation_bytes"] < row["peak_memory_bytes"]
    _, out, _ = run("timeline", *STAGES)
    assert len(re.findall(r"^[0-3]  ", out, re.MULTILINE)) == 4 and "Estimate:" in out


def test_jitter_is_drawn_anew_by_another_seed_and_alike_by_the_same(run):
    first, again, other = (
        strict(run("timeline", *STAGES, "--jitter", "0.1", "--seed", seed, "--json")[1])["total_s"] for seed in "113"
    )
    assert first == again != other


def test_a_step_is_played_out_as_the_library_does(run, tmp_path, model, cluster, staged):
    page, trace = tmp_path / "use.html", tmp_path / "trace.json"
    said = strict(run("simulate", *STAGES, "--json", "--html", str(page), "--perfetto", str(trace))[1])
    found = costmodel.simulate(model, cluster, staged)
    assert (said["step_time_s"], said["events"]) == (found.step_time, found.events)
    for row in said["stages"]:
        parts = sum(value for name, value in row.items() if name.endswith("_s"))
        assert parts == pytest.approx(found.total, rel=1e-6)
    assert "plotly" in page.read_text(encoding="utf-8")
    assert json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    assert "Played out: " in run("simulate", *STAGES)[1]


def test_a_timeline_writes_a_chart_a_trace_and_a_table(run, tmp_path, model, cluster, staged):
    files = ["--html", "gantt.html", "--memory", "--perfetto", "trace.json", "--csv", "events.csv"]
    assert run("timeline", *STAGES, *files)[0] == 0
    played = costmodel.timeline(model, cluster, staged)
    page = (tmp_path / "gantt.html").read_text(encoding="utf-8")
    assert page.count("Plotly.newPlot(") == 2 and "limit of the GPU" in page
    assert strict((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    with (tmp_path / "events.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(played.start)
    assert max(float(row["end_s"]) for row in rows) == played.total


# Communication


def test_a_ledger_is_the_librarys_in_json_and_csv(run, tmp_path, model, cluster, staged):
    made = costmodel.ledger(model, cluster, staged)
    code, out, err = run("ledger", *STAGES, "--json", "--csv", "ledger.csv")
    assert (code, err) == (0, "")
    said = strict(out)
    assert said["transactions"] == json.loads(json.dumps(made.to_rows()))
    assert said["cluster_bytes"] == made.cluster_bytes
    assert [load["level"] for load in said["loads"]] == [level.name for level in cluster.levels]
    with (tmp_path / "ledger.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for stage, sent in made.sent_bytes.items():
        assert math.fsum(float(row["total_sent_bytes"]) for row in rows if row["stage"] == stage) == pytest.approx(sent)


def test_a_ledger_shows_the_stage_that_is_asked_for(run):
    for stage in ("first", "middle", "last"):
        code, out, _ = run("ledger", *STAGES, "--stage", stage)
        assert code == 0 and f"A rank of the {stage} stage" in out
        assert "saturate first" in out and "transactions" in out


def test_a_plan_that_exchanges_nothing_has_an_empty_ledger(run, tmp_path):
    alone = ["llama3.2-1b", "--cluster", "dgx-h100", "--gpus", "1", *BATCH]
    code, out, err = run("ledger", *alone, "--csv", "empty.csv")
    assert (code, err) == (0, "") and "no link carries anything" in out
    assert strict(run("ledger", *alone, "--json")[1])["transactions"] == []
    assert (tmp_path / "empty.csv").read_text(encoding="utf-8") == "stage\n"


@pytest.mark.parametrize(("size", "nbytes"), [("1GiB", 2**30), ("25MB", 25e6), ("4096", 4096), ("1e6B", 1e6), ("1.5KiB", 1536)])
def test_sizes_are_read_in_decimal_and_binary_units(run, size, nbytes):
    said = strict(run("collective", "all-reduce", size, "--cluster", "dgx-h100", "--json")[1])
    assert said["buffer_bytes"] == nbytes


def test_a_collective_names_its_algorithm_why_and_the_alternatives(run):
    options = ["--gpus", "4", "--stride", "8", "--version", "2.21", "--algorithm", "tree", "--launcher", "pytorch"]
    code, out, err = run("collective", "all-reduce", "64MiB", "--cluster", "dgx-h100", *options, "--json")
    assert (code, err) == (0, "")
    said = strict(out)
    expected = costmodel.collective_time(
        "all-reduce", 64 * 2**20, Group(ranks=4, stride=8), load_cluster("dgx-h100", gpus=32), "tree", version="2.21",
        launcher="pytorch",
    )  # fmt: skip
    assert (said["time_s"], said["algorithm"], said["why"]) == (expected.time, "tree", expected.why)
    shown = run("collective", "all-reduce", "64MiB", "--cluster", "dgx-h100", *options)[1]
    assert expected.why in shown
    assert all(one["algorithm"] in shown for one in said["alternatives"])


def test_collectives_of_nothing_take_no_time(run):
    for size, gpus in (("0", "8"), ("1GiB", "1")):
        code, out, err = run("collective", "all-gather", size, "--cluster", "dgx-h100", "--gpus", gpus)
        assert ((code, err) == (0, "") and "nothing to exchange" in out) or "no bytes" in out


# Chains


DESIGN = ["design", "llama3-8b", "--devices", "h100-sxm,a100-sxm-80gb", "--gpus", "16,32", "--global-batch", "64", "--seq-len",
          "4096", "--tokens", "1B", "--prices", "h100-sxm=2.5,a100-sxm-80gb=1.5"]  # fmt: skip


def test_a_design_is_the_librarys_and_its_first_option_the_cheapest_in_time(run, tmp_path):
    code, out, _ = run(*DESIGN, "--days", "0.5", "--json")
    options = strict(out)["options"]
    wanted = costmodel.design_cluster(
        load_model("llama3-8b"), costmodel.candidates(["h100-sxm", "a100-sxm-80gb"], [16, 32]), global_batch=64, seq_len=4096,
        tokens=1e9, within=43200.0, prices={"h100-sxm": 2.5, "a100-sxm-80gb": 1.5},
    )  # fmt: skip
    assert (code, options) == (0, json.loads(json.dumps(wanted.to_rows())))
    reached = [one["cost"] for one in options if one["reaches"]]
    assert reached == sorted(reached)
    assert reached
    written = tmp_path / "options.csv"
    assert run(*DESIGN, "--days", "0.5", "--csv", str(written))[0] == 0
    assert len(list(csv.DictReader(written.read_text(encoding="utf-8").splitlines()))) == 4


def test_a_design_that_nothing_reaches_says_by_how_much_with_code_one(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    code, out, _ = run(*DESIGN, "--budget", "1")
    assert code == 1
    assert "0 of 4 clusters reach it" in out
    assert "where 1 may be spent" in out


@pytest.mark.parametrize(("case", "words"), [
    (["--gpus", "16,many"], "'many' is not a whole number"), (["--prices", "h100-sxm"], "DEVICE=PRICE"),
    (["--prices", "h100-sxm=2"], "a price of 'a100-sxm-80gb'"), (["--prices", "h100-sxm=2,h100-sxm=3"], "twice"),
    (["--days", "-1"], "within"), (["--networks", "fast"], "networks"), (["--gpus", "0"], "gpus"),
])  # fmt: skip
def test_a_bad_design_ends_in_one_line(run, tmp_path, case, words):
    asked = list(DESIGN)
    if case[0] in asked:
        place = asked.index(case[0])
        del asked[place : place + 2]
    refused(run, tmp_path, [*asked, *case], words)


def test_checkpoint_answers_as_the_library_does(run):
    question = ["checkpoint", "--layers", "100", "--forward", "1e-3", "--bytes", "1MB", "--method", "sqrt"]
    said = strict(run(*question, "--json")[1])
    assert said["peak_bytes"] == 21e6  # 2 sqrt(n) and what the backward pass of one layer has beside it
    assert said["recompute_factor"] == pytest.approx(1.9)
    best = strict(run(*question[:-1], "optimal", "--budget", "21MB", "--json")[1])
    assert best["exact"] and best["peak_bytes"] <= 21e6 and best["time_s"] < said["time_s"]
    assert "forward time" in run(*question)[1]


def test_networks_are_listed_and_each_is_timed(run):
    listed = strict(run("networks", "--json")[1])
    assert {one["name"]: one["parameters"] for one in listed}["resnet-50"] == 25_557_032
    assert [line.split()[0] for line in run("networks")[1].splitlines()[2:]] == [one["name"] for one in listed]
    for one in listed:
        code, out, err = run("network", one["name"], "--device", "v100-sxm-16gb", "--minibatch", "32", "--json")
        assert (code, err) == (0, "")
        said = strict(out)
        assert said["parameters"] == one["parameters"]
        assert said["forward_s"] == pytest.approx(sum(layer["forward_s"] for layer in said["layers"]))
    _, out, _ = run("network", "vgg-16", "--device", "v100-sxm-16gb", "--top", "3")
    assert len([line for line in out.splitlines() if line.startswith(("convolution", "linear"))]) <= 3
    assert "samples/s" in out


def test_a_partition_is_the_librarys(run, tmp_path):
    question = ["partition", "vgg-16", "--device", "v100-sxm-16gb", "--machines", "4,4", "--bandwidths", "10e9,1.25e9"]
    said = strict(run(*question, "--json")[1])
    chain = costmodel.load_network("vgg-16").chain(costmodel.load_device("v100-sxm-16gb"), minibatch=64)
    found = costmodel.partition(chain, machines=[4, 4], bandwidths=[10e9, 1.25e9])
    assert (said["configuration"], said["time_s"]) == (found.configuration, found.time)
    assert sum(stage["layers"] for stage in said["stages"]) == len(chain.layers)
    assert f"{found.configuration}, " in run(*question)[1]
    given = strict(run(*question, "--replicas", "12,2,2", "--json")[1])
    asked = costmodel.partition(chain, machines=[4, 4], bandwidths=[10e9, 1.25e9], replicas=(12, 2, 2))
    assert given["configuration"] == "12-2-2" and given["time_s"] == asked.time >= found.time
    assert given["speedup_over_one"] == given["single_time_s"] / given["time_s"]
    assert given["communication_reduction"] == 1 - given["sent_bytes"] / given["data_parallel_sent_bytes"]


# What can't be answered


BAD = {
    "nothing to find": (["capacity", *ON, *BATCH], "--find"),
    "an unknown thing to find": (["capacity", *ON, *BATCH, "--find", "luck"], "luck"),
    "a length to find and given": (["capacity", *ON, *BATCH, "--find", "sequence"], "--seq-len"),
    "a micro-batch to find and given": (["capacity", *ON, *BATCH, "--find", "micro-batch", "--micro-batch", "2"], "looks for"),
    "a batch to find and given": (["capacity", *ON, *BATCH, "--find", "batch"], "--global-batch is what"),
    "an endless jitter": (["timeline", *STAGES, "--jitter", "inf"], "jitter=inf"),
    "a seed below nothing": (["timeline", *STAGES, "--seed", "-1"], "seed=-1"),
    "a schedule that never flushes": (["simulate", *STAGES, "--schedule", "pipedream", "--zero-stage", "0"], "never flushes"),
    "memory without a page": (["timeline", *STAGES, "--memory"], "--html"),
    "nowhere to write": (["timeline", *STAGES, "--csv", "none/events.csv"], "none/events.csv"),
    "a folder to write a page to": (["timeline", *STAGES, "--html", "."], "folder"),
    "no such stage": (["ledger", *STAGES, "--stage", "only"], "stage='only'"),
    "a synchronisation without a ledger": (
        ["ledger", *ON, *BATCH, "--zero-stage", "0", "--synchronisation", "byteps"], "byteps",
    ),
    "an unknown operation": (["collective", "all-scatter", "1GiB", "--cluster", "dgx-h100"], "all-reduce"),
    "no size": (["collective", "all-reduce", "--cluster", "dgx-h100"], "SIZE"),
    "a size of no unit": (["collective", "all-reduce", "1GiX", "--cluster", "dgx-h100"], "'1GiX' is not a size"),
    "a size that isn't finite": (["collective", "all-reduce", "1e999", "--cluster", "dgx-h100"], "nbytes=inf"),
    "two points in a size": (["collective", "all-reduce", "1.2.3MB", "--cluster", "dgx-h100"], "'1.2.3' is not a number"),
    "an unknown algorithm": (["collective", "all-reduce", "1GiB", "--cluster", "dgx-h100", "--algorithm", "pigeon"], "ring"),
    "an unknown release": (["collective", "all-reduce", "1GiB", "--cluster", "dgx-h100", "--version", "one"], "version='one'"),
    "an endless stride": (["collective", "all-reduce", "1GiB", "--cluster", "dgx-h100", "--stride", "9" * 20], "stride="),
    "no layers": (["checkpoint", "--layers", "0"], "layers=0"),
    "too many layers": (["checkpoint", "--layers", "9" * 30], "layers="),
    "too small a budget": (["checkpoint", "--layers", "10", "--bytes", "1MB", "--budget", "1MB"], "at least"),
    "an unknown method": (["checkpoint", "--layers", "10", "--method", "magic"], "sqrt"),
    "a pass that isn't a number": (["checkpoint", "--layers", "10", "--forward", "nan"], "forward=nan"),
    "an unknown network": (["network", "resnet-51", "--device", "v100-sxm-16gb"], "did you mean resnet-50"),
    "an unknown device": (["network", "resnet-50", "--device", "v101"], "no device named 'v101'"),
    "no samples": (["network", "resnet-50", "--device", "v100-sxm-16gb", "--minibatch", "0"], "minibatch=0"),
    "a dtype without a rate": (["network", "resnet-50", "--device", "v100-sxm-16gb", "--dtype", "bf16"], "bf16"),
    "a network on no device": (["partition", "vgg-16", "--machines", "4", "--bandwidths", "1e9"], "device"),
    "levels without a rate": (
        ["partition", "vgg-16", "--device", "v100-sxm-16gb", "--machines", "4,4", "--bandwidths", "1e9"], "bandwidths",
    ),
    "no layers to show": (["network", "resnet-50", "--device", "v100-sxm-16gb", "--top", "0"], "top=0"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_ends_in_one_line_and_exit_code_two(run, tmp_path, case):
    refused(run, tmp_path, *BAD[case])


@pytest.mark.parametrize("verb", ["search", "estimate", "simulate", "timeline", "ledger", "train"])
def test_json_says_what_is_not_by_default_at_every_door(run, verb):
    more = ["--tokens", "1e9"] if verb == "train" else ["--no-check"] if verb == "search" else []
    question = [*ON, *BATCH, "--tensor-parallel", "8", "--recompute", "full", "--dtype", "fp8", *more, "--json"]
    assert strict(run(verb, *question)[1])["departures"] == ["dtype fp8"]


def test_groups_of_unlike_gpus_joined_by_a_plus_share_a_batch(run):
    fixed = ["--seq-len", "8192", "--tensor-parallel", "1", "--pipeline-parallel", "1", "--context-parallel", "1",
             "--recompute", "full", "--micro-batch", "1", "--zero-stage", "1"]  # fmt: skip
    asked = ["search", "llama3.2-1b", "--global-batch", "16", *fixed, "--cluster"]
    code, out, _ = run(*asked, "4xh100 + 4xa100", "--between", "3200Gbit/s", "--json")
    said = strict(out)
    sequences = {group["cluster"]: group["sequences"] for group in said["groups"]}
    assert code == 0 and sum(sequences.values()) == 16 and sequences["h100-sxm"] > sequences["a100-sxm-80gb"]
    slowest = max(group["step_time_s"] for group in said["groups"])
    assert said["step_time_s"] == pytest.approx(slowest + said["between_groups_s"])
    plan = Plan(global_batch=16, seq_len=8192, recompute="full", zero_stage=1)
    alone = costmodel.estimate(load_model("llama3.2-1b"), load_cluster("dgx-h100", gpus=4), plan)
    assert said["step_time_s"] < alone.step_time
    code, out, err = run(*asked, "4xh100+4xa100")
    assert code == 0 and "2 of 2 groups of unlike GPUs" in out and "--between" in err
    code, out, _ = run(*["llama3-70b" if word == "llama3.2-1b" else word for word in asked], "1x4090+1x3090")
    assert code == 1 and "no shares of 16 sequences fit" in out


@pytest.mark.parametrize(("more", "says"), [
    (["8xh100+8xa100", "--gpus", "4"], "each group says its GPUs"), (["h100+"], "empty name"),
    (["8xh100+8xxyz"], "no cluster named"),
])  # fmt: skip
def test_groups_that_say_too_little_or_too_much_are_refused(run, tmp_path, more, says):
    refused(run, tmp_path, ["search", "llama3-8b", *BATCH, "--cluster", *more], says)

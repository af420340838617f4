"""What fields make of the formulas' arguments, and the formulas of them, under Node: the library's own, and its words."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
import re
import shutil
import subprocess

import pytest

import costmodel
from costmodel.arithmetic.named_tuples import flat
from costmodel.description.device import DTYPES
from costmodel.description.labels import label
from costmodel.description.question import Question
from costmodel.description.recomputation import MODULES
from costmodel.description.refusals import texts
from costmodel.evaluation.sensitivity import sensitivities
from costmodel.page.data import script, static
from costmodel.page.question import CONSTANTS, PageQuestion, domains, unasked
from costmodel.plots import frontier, sensitivity, step
from costmodel.plots.dimension_sweeps import THROUGHPUT, ScalingChart, lines
from costmodel.plots.embedded import CHARTS as CHARTS_AS_DATA
from costmodel.plots.specification import filled, named
from tests.page.questions import asked_of_library, difference, drawn

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="no Node here: apt-get install nodejs")
CASES = {  # model, cluster, GPUs, framework, what is asked of the plan
    "experts": ("qwen3-30b-a3b", "dgx-h100", 16, "megatron-core", {}),
    "states sharded whatever the stage": ("llama3-8b", "dgx-h100", 16, "deepspeed", {}),
    "sharded": ("llama3-8b", "dgx-a100", 16, "fsdp2", {}), "4 bit": ("llama3-8b", "dgx-b200", 16, "nemo", {"dtype": "nvfp4"}),
    "LoRA of two matrices": ("llama3-8b", "mi300x-8", 8, "fsdp2", {"adapter": "lora", "lora_targets": ("query", "value")}),
    "in 32 bit whatever its dtype": ("llama3-8b", "dgx-h100", 16, "hf-trainer", {"adapter": "qlora"}),
    "whole on each GPU before it is sharded": (
        "llama3-8b", "dgx-h100", 16, "deepspeed", {"zero_stage": 3, "recompute": "full", "loading": "whole"},
    ),
    "graphs of a module": ("llama3-8b", "dgx-h100", 16, "megatron-core", {"cuda_graphs": True, "graph_modules": "attention"}),
}  # fmt: skip
CHECKED = "model.checked(one)"


def asked(name) -> PageQuestion:
    """The question of a case."""
    model, where, gpus, framework, plan = CASES[name]
    cluster = costmodel.load_cluster(where, gpus=gpus)
    software = costmodel.load_framework(framework, cluster.device.architecture)
    made = costmodel.Plan(global_batch=64, seq_len=4096, data_parallel=gpus, **plan)
    return PageQuestion(costmodel.load_model(model), cluster, software, made, unasked(plan))


@pytest.fixture(scope="module")
def question():
    return asked("experts")


@pytest.fixture
def page(tmp_path):
    """What a question's page says of changes, by an expression of its model."""

    def told(question, questions, said="model.evaluate(one)"):
        file = tmp_path / "page.js"
        text = f"const model = {script(question, 2.0)};\nconst asked = {json.dumps(questions)};\n"
        text += f"console.log(JSON.stringify(asked.map((one) => {said})));\n"
        file.write_text(text, encoding="utf-8")
        done = subprocess.run(["node", str(file)], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout)

    return told


def arguments(question, changes):
    """What the library's formulas take of a changed question, by paths; None where it is refused."""
    try:
        asked = question.changed(changes)
        inputs = Question(asked.model, asked.cluster, asked.framework).inputs(asked.plan)
    except costmodel.CostModelError:
        return None
    return flat(inputs._asdict(), ".")


def at(made, path):
    for name in path.split("."):
        made = made[name]
    return made


def rates(question, chance):
    """Other rates and constants of a device at the plan's dtype."""
    device = question.cluster.device
    changes = {"device.flop_rate": 1e14 * chance.uniform(1.0, 9.0), "device.gemm_efficiency": chance.uniform(0.2, 1.0)}
    changes |= {f"device.{name}": getattr(device.efficiency, name) * chance.uniform(0.5, 1.0) for name in CONSTANTS}
    return {name: changes[name] for name in chance.sample(list(changes), 3)}


@pytest.mark.slow
@needs_node
@pytest.mark.parametrize("name", CASES)
def test_the_formulas_of_a_page_take_what_those_of_the_library_take(page, name):
    question, chance = asked(name), random.Random(3)
    changes = [drawn(question.model, question.cluster, chance) | rates(question, chance) for _ in range(300)]
    if name != "experts":  # what these cases ask for stays
        kept = CASES[name][4]
        changes = [{field: value for field, value in one.items() if field not in kept} for one in changes]
    compared = 0
    for one, got in zip(changes, page(question, changes, CHECKED), strict=True):
        if "made" not in got:
            continue
        wanted = arguments(question, one)
        assert wanted is not None, (one, got)
        assert [at(got["made"], path) for path in wanted] == list(wanted.values())
        compared += 1
    assert compared > 20


@needs_node
def test_a_page_counts_what_comes_whole_to_a_gpu_as_an_estimate_does(page):
    question = asked("whole on each GPU before it is sharded")
    changes = [{"zero_stage": stage, "micro_batch": size} for stage in (1, 2, 3) for size in (1, 2)]
    weights = 2.0 * question.model.parameters
    for one, got in zip(changes, page(question, changes), strict=True):
        made = question.changed(one)
        wanted = costmodel.estimate(made.model, made.cluster, made.plan, made.framework)
        assert got["peak_memory_bytes"] == pytest.approx(wanted.needed_memory, rel=1e-9)
        assert got["peak_memory_bytes"] > weights


@needs_node
def test_each_dtype_s_rate_moves_what_runs_at_it(page, question):
    changes = [{"dtype": dtype, "device.flop_rate": 3e14, "device.gemm_efficiency": 0.4} for dtype in DTYPES]
    for one, got in zip(changes, page(question, changes, CHECKED), strict=True):
        wanted = arguments(question, one)
        assert ("made" in got) == (wanted is not None), one
        if wanted is not None:
            assert got["made"]["device"] == {path.removeprefix("device."): value for path, value in wanted.items() if
                                             path.startswith("device.")}  # fmt: skip


@needs_node
def test_every_value_that_a_field_offers_is_the_library_s_choice(page, question):
    base = {"cuda_graphs": True, "adapter": "lora", "tensor_parallel": 2, "data_parallel": 4, "pipeline_parallel": 2}
    beside = {"graph_modules": {"cuda_graphs": True}, "lora_targets": {"adapter": "lora"}, "lora_rank": {"adapter": "lora"}}
    changes = [
        {**beside.get(name, {}), name: value} for name, domain in domains(question).items() for value in domain.choices
    ] + [{**base, "cuda_graphs": False, "recompute": every} for every in (1, 2, 7, 500)]  # fmt: skip
    compared = 0
    for one, got in zip(changes, page(question, changes, CHECKED), strict=True):
        if "made" in got:
            wanted = arguments(question, one)
            assert [at(got["made"], path) for path in wanted] == list(wanted.values()), one
            compared += 1
    assert compared > 60


@needs_node
def test_ranks_with_the_same_weights_stand_as_far_apart_as_any_order_has_it(page, question):
    changes = [
        {"tensor_parallel": t, "context_parallel": c, "data_parallel": d, "pipeline_parallel": p, "rank_order": order}
        for t, c, d, p in ((2, 2, 2, 2), (2, 2, 1, 4), (4, 1, 2, 2), (1, 4, 1, 4))
        for order in itertools.permutations(("tensor", "context", "data", "pipeline"))
    ]  # fmt: skip
    got = page(question, changes, "model.planned({...model.asked, ...one}, model.modelOf(model.asked))")
    for one, found in zip(changes, got, strict=True):
        assert found["plan"]["data_stride"] == arguments(question, one)["plan.data_stride"]


def test_what_a_field_can_be_is_what_its_refusal_says(question):
    known = domains(question, [dataclasses.replace(question.plan, recompute="norms+mlp")])
    assert known["zero_stage"].choices == (0, 1, 2, 3) and known["zero_stage"].empty
    assert set(known["schedule"].choices) == set(costmodel.description.plan.SCHEDULES)
    assert known["cuda_graphs"].choices == (False, True) and not known["cuda_graphs"].empty
    assert known["optimizer_offload"].bounds == (0.0, 1.0)
    assert known["recompute"].choices == ("none", "selective", "full", *MODULES, "norms+mlp")
    assert known["recompute"].bounds == (1.0, 10000.0)
    assert len(known["rank_order"].choices) == 24
    assert ("query", "key", "value", "output") in known["lora_targets"].choices and known["lora_targets"].empty


def test_a_rule_s_words_hold_every_value_as_a_template(question):
    words = texts(question.model)
    assert words["global_batch"] == (
        "global_batch={global_batch} is not a multiple of data_parallel={data_parallel} x micro_batch={micro_batch}"
    )
    for text in words.values():
        assert set(re.findall(r"\{(\w+)", text)) <= set(question.fields())


def test_an_unknown_field_is_refused_by_name(question):
    listed = "expected one of global_batch, seq_len, batching, mean_length"
    with pytest.raises(costmodel.InvalidValue, match=f"field='tensor': {listed}"):
        question.changed({"tensor": 2})


@pytest.mark.slow
@needs_node
@pytest.mark.parametrize("name", CASES)
def test_javascript_gives_the_digits_and_the_words_of_python(page, name):
    question, chance = asked(name), random.Random(11)
    questions = [drawn(question.model, question.cluster, chance) for _ in range(200)]
    answers = page(question, questions)
    model, cluster, framework, plan, _ = question
    wanted = [asked_of_library(model, cluster, plan, framework, changes) for changes in questions]
    wrong = [found for one, got in zip(wanted, answers, strict=True) if (found := difference(one, got))]
    assert not wrong, wrong[:3]
    refused = [(one["error"], got["error"]) for one, got in zip(wanted, answers, strict=True) if "error" in one]
    assert len(answers) - len(refused) > 5 and len(refused) > 20
    told = {".0: expected": ": expected", "with dtype=None": f"with dtype={question.dtype!r}"}  # which a page always knows
    for wanted_words, its in refused:
        for words, same in told.items():
            wanted_words = wanted_words.replace(words, same)
        assert its == wanted_words


@needs_node
def test_sizes_that_a_model_or_a_network_ends_at_are_refused_in_the_words_of_the_library(page):
    model, whole = costmodel.load_model("gpt3-13b"), costmodel.load_cluster("dgx-a100", gpus=8)
    cluster = dataclasses.replace(whole, levels=whole.levels[:1])
    framework = costmodel.load_framework("megatron-core")
    question = PageQuestion(model, cluster, framework, costmodel.Plan(global_batch=64, seq_len=2048, data_parallel=8), unasked())
    long, wide = page(question, [{"seq_len": 4096}, {"gpus": 16, "data_parallel": 16}])
    with pytest.raises(costmodel.InvalidValue) as refused:
        costmodel.estimate(model, cluster, dataclasses.replace(question.plan, seq_len=4096), framework)
    assert long["error"] == str(refused.value)
    with pytest.raises(costmodel.InvalidValue) as refused:
        cluster.with_gpus(16)
    assert wide["error"] == str(refused.value)


CHARTS = """
const view = %s;
%s
const given = %s;
const chosen = given.plans.map((one) => ({...one, name: planLabel(one.plan)}));
const frontiers = frontier({times: given.times, bytes: given.bytes, limit: given.limit}, null, (row) => String(row), view);
const {texts, ...points} = frontiers.best;
console.log(JSON.stringify({
  specification: filled(given.specification, given.shown),
  sensitivity: tornado(given.head, given.plan, given.rows, given.plans[0].step_time_s, view.series.ends),
  scaling: scaled(given.sizes, null, given.tokens, given.heading, view),
  time: {...breakdown(chosen, view)}, difference: fall(chosen[0], chosen[3], view), labels: chosen.map((one) => one.name), points,
}));
"""


@needs_node
def test_a_page_fills_the_charts_of_the_library_with_the_values_of_the_library(tmp_path):
    model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=8)
    what = costmodel.whatif(model, cluster, global_batch=64, seq_len=4096, tensor_parallel=[1, 2], micro_batch=[1, 2])
    found = costmodel.search(
        model, cluster, global_batch=64, seq_len=4096, tensor_parallel=[1, 2], micro_batch=[1, 2], keep_evaluated=True
    )
    shown = {"time": step.breakdown(found[:4]), "difference": step.fall(found[0], found[3]), "frontier": frontier.frontier(found)}
    every, best, swings = found.every, found.best, sensitivities(found.best)
    sizes = costmodel.scaling(model, cluster, global_batch=64, seq_len=4096, gpus=[4, 8, 16], tensor_parallel=2)
    shown |= {"sensitivity": sensitivity.tornado(best, swings), "scaling": ScalingChart(lines(sizes))}
    given = {
        "head": shown["sensitivity"].head, "plan": label(best.plan), "heading": THROUGHPUT, "tokens": 4096,
        "rows": [
            {"quantity": one.quantity, "name": sensitivity.quantity_name(one.quantity), "times": [one.time_low, one.time_high],
             "texts": texts} for one, texts in zip(swings, shown["sensitivity"].texts, strict=True)
        ],
        "sizes": [[
            {"gpus": one.gpus, "batch": one.global_batch, "step_time_s": one.step_time, "low": one.low, "high": one.high,
             "name": one.plan and label(one.plan)} for one in points
        ] for points in (sizes.strong, sizes.weak)],
        "plans": [
            {"plan": dataclasses.asdict(one.plan), "step_time_s": one.step_time, "parts": one.times,
             "error": one.time_error.half} for one in found[:4]
        ],
        "times": every.step_time.tolist(), "bytes": every.peak_memory.tolist(),
        "limit": shown["frontier"].limit * 2**30, "specification": CHARTS_AS_DATA["time"], "shown": named(shown["time"]) |
        {"bars": [bar._asdict() for bar in shown["time"].bars]},
    }  # fmt: skip
    (tmp_path / "charts.js").write_text(CHARTS % (json.dumps(what._view()), static("charts.js"), json.dumps(given)))
    got = json.loads(subprocess.run(["node", tmp_path / "charts.js"], capture_output=True, text=True, check=True).stdout)
    assert got["specification"] == json.loads(json.dumps(filled(CHARTS_AS_DATA["time"], named(shown["time"]))))
    assert got["labels"] == [label(one.plan) for one in found[:4]]
    for name in ("time", "difference", "sensitivity", "scaling"):
        for field, value in got[name].items():
            if field != "height":
                close(value, named(shown[name])[field], (name, field))
    best = shown["frontier"].best
    assert got["points"]["times"] == pytest.approx(best.times) and got["points"]["memory"] == pytest.approx(best.memory)


def close(got, wanted, where) -> None:
    """Hold that two nested values are alike, numbers closely."""
    if isinstance(got, dict):
        for name, value in got.items():
            close(value, getattr(wanted, name), (where, name))
    elif isinstance(wanted, list | tuple):
        assert len(got) == len(wanted), where
        for one, other in zip(got, wanted, strict=True):
            close(one, other, where)
    else:
        assert got == (pytest.approx(wanted, rel=1e-9, abs=1e-12) if isinstance(wanted, float) else wanted), where

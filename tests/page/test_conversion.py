"""What fields make of the formulas' arguments, learnt as tables; and the formulas and tables together under Node."""

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
from costmodel.description.labels import label
from costmodel.description.recomputation import MODULES
from costmodel.description.refusals import texts
from costmodel.page.data import script, static
from costmodel.page.learning import learn
from costmodel.page.question import Asked, unasked
from costmodel.plots import frontier, step
from costmodel.plots.embedded import CHARTS as CHARTS_AS_DATA
from costmodel.plots.specification import filled, named
from tests.page.questions import asked_of_library, difference, drawn


@pytest.fixture(scope="module")
def question():
    model, cluster = costmodel.load_model("qwen3-30b-a3b"), costmodel.load_cluster("dgx-h100", gpus=16)
    framework = costmodel.load_framework("megatron-core", "hopper")
    plan = costmodel.Plan(global_batch=64, seq_len=4096, data_parallel=16)
    return Asked(model, cluster, framework, plan, unasked())


@pytest.fixture(scope="module")
def learnt(question):
    return learn(question)


def test_an_argument_is_a_constant_or_follows_the_fields_that_it_should(learnt):
    choices = [set(rule.by) for rule in learnt.rules.values()]
    numbers = [{name for term in rule.terms.values() for name in term.powers} for rule in learnt.rules.values()]
    assert sum({"dtype", "optimizer"} <= by for by in choices) == 1  # bytes of the optimizer's state
    assert numbers.count({"rail.bandwidth"}) == 2  # the outermost level stands for all beyond it
    assert numbers.count({"device.memory"}) == numbers.count({"model.expert_imbalance"}) == 1


def test_the_tables_give_the_arguments_of_plans_drawn_anew(question, learnt):
    chance, compared = random.Random(3), 0
    for _ in range(150):
        changes = drawn(question.model, question.cluster, chance)
        try:
            wanted = question.changed(changes).numbers()
        except costmodel.CostModelError:
            continue
        got = learnt.arguments({**question.fields(), **changes})
        assert got == pytest.approx(wanted, rel=1e-12)
        compared += 1
    assert compared > 50


@pytest.mark.parametrize("order", list(itertools.permutations(("tensor", "context", "data", "pipeline"))))
def test_ranks_with_the_same_weights_stand_as_far_apart_as_any_order_has_it(question, learnt, order):
    for t, c, d, p in ((2, 2, 2, 2), (2, 2, 1, 4), (4, 1, 2, 2), (1, 4, 1, 4)):
        changes = {
            "tensor_parallel": t, "context_parallel": c, "data_parallel": d, "pipeline_parallel": p, "rank_order": order,
        }  # fmt: skip
        wanted = question.changed(changes).numbers()
        got = learnt.arguments({**question.fields(), **changes})
        assert got["plan.data_stride"] == wanted["plan.data_stride"]


@pytest.mark.parametrize("fields", [
    {"cuda_graphs": True, "graph_modules": "attention"}, {"adapter": "lora", "lora_targets": ("query", "value")},
])  # fmt: skip
def test_what_the_tables_don_t_have_is_refused(question, fields):
    plan = costmodel.Plan(global_batch=64, seq_len=4096, data_parallel=16, **fields)
    with pytest.raises(costmodel.NotModelled, match=list(fields)[1]):
        learn(question._replace(plan=plan, open=()))


def test_what_a_field_can_be_is_what_its_refusal_says(learnt):
    domains = learnt.domains
    assert domains["zero_stage"].choices == (0, 1, 2, 3) and domains["zero_stage"].empty
    assert set(domains["schedule"].choices) == set(costmodel.description.plan.SCHEDULES)
    assert domains["cuda_graphs"].choices == (False, True) and not domains["cuda_graphs"].empty
    assert domains["optimizer_offload"].bounds == (0.0, 1.0)
    assert domains["recompute"].choices == ("none", "selective", "full", *MODULES)
    assert domains["recompute"].bounds == (1.0, 10000.0)
    assert len(domains["rank_order"].choices) == 24


def test_a_rule_s_words_hold_every_value_as_a_template(question):
    words = texts(question.model)
    assert words["global_batch"] == (
        "global_batch={global_batch} is not a multiple of data_parallel={data_parallel} x micro_batch={micro_batch}"
    )
    for text in words.values():
        assert set(re.findall(r"\{(\w+)", text)) <= set(question.fields())


def test_an_unknown_field_is_refused_by_name(question):
    with pytest.raises(costmodel.InvalidValue, match=r"field='tensor': expected one of global_batch, seq_len, tensor_parallel"):
        question.changed({"tensor": 2})


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node here: apt-get install nodejs")
def test_javascript_gives_the_digits_of_python(question, learnt, tmp_path):
    chance = random.Random(11)
    questions = [drawn(question.model, question.cluster, chance) for _ in range(300)]
    page = tmp_path / "page.js"
    text = f"const model = {script(question, 2.0, learnt)};\nconst asked = {json.dumps(questions)};\n"
    page.write_text(text + "console.log(JSON.stringify(asked.map((one) => model.evaluate(one))));\n", encoding="utf-8")
    done = subprocess.run(["node", str(page)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    answers = json.loads(done.stdout)
    model, cluster, framework, plan, _ = question
    wanted = [asked_of_library(model, cluster, plan, framework, changes) for changes in questions]
    assert sum("error" not in one for one in wanted) > 60
    wrong = [found for one, got in zip(wanted, answers, strict=True) if (found := difference(one, got))]
    assert not wrong, wrong[:3]


CHARTS = """
const view = %s;
%s
const given = %s;
const chosen = given.plans.map((one) => ({...one, name: planLabel(one.plan)}));
const frontiers = frontier({times: given.times, bytes: given.bytes, limit: given.limit}, null, (row) => String(row), view);
const {texts, ...points} = frontiers.best;
console.log(JSON.stringify({
  specification: filled(given.specification, given.shown),
  time: {...breakdown(chosen, view)}, difference: fall(chosen[0], chosen[3], view), labels: chosen.map((one) => one.name), points,
}));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="no node")
def test_a_page_fills_the_charts_of_the_library_with_the_values_of_the_library(tmp_path):
    model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=8)
    what = costmodel.whatif(model, cluster, global_batch=64, seq_len=4096, tensor_parallel=[1, 2], micro_batch=[1, 2])
    found = costmodel.search(
        model, cluster, global_batch=64, seq_len=4096, tensor_parallel=[1, 2], micro_batch=[1, 2], keep_evaluated=True
    )
    shown = {"time": step.breakdown(found[:4]), "difference": step.fall(found[0], found[3]), "frontier": frontier.frontier(found)}
    every = found.every
    given = {
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
    for name in ("time", "difference"):
        wanted = named(shown[name]) | ({"bars": [bar._asdict() for bar in shown[name].bars]} if name == "time" else {})
        for field, value in got[name].items():
            if field == "bars":
                close([list(bar.values()) for bar in value], [list(bar.values()) for bar in wanted["bars"]], field)
            elif field != "height":
                close(value, wanted[field], (name, field))
    best = shown["frontier"].best
    assert got["points"]["times"] == pytest.approx(best.times) and got["points"]["memory"] == pytest.approx(best.memory)


def close(got, wanted, where) -> None:
    """Hold that two nested values are alike, numbers closely."""
    if isinstance(wanted, list | tuple):
        assert len(got) == len(wanted), where
        for one, other in zip(got, wanted, strict=True):
            close(one, other, where)
    else:
        assert got == (pytest.approx(wanted, rel=1e-9, abs=1e-12) if isinstance(wanted, float) else wanted), where

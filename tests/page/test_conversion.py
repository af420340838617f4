"""What fields make of the formulas' arguments, learnt as tables; and the formulas and tables together under Node."""

from __future__ import annotations

import itertools
import json
import random
import re
import shutil
import subprocess

import pytest

import costmodel
from costmodel.description.recomputation import MODULES
from costmodel.page.conversion import learn
from costmodel.page.data import script
from costmodel.page.question import Asked, unasked
from costmodel.page.rules import texts
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
    words = texts(question)
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

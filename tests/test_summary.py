"""Answers show themselves in a few lines, in a notebook as a small table, without figures or rich."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import costmodel
from costmodel import Plan, load_cluster, load_model
from costmodel.description.labels import rejections
from costmodel.evaluation.search_space import RULES
from costmodel.studies.partitioning import transformer_chain
from costmodel.text.tables import ROWS, table
from costmodel.text.units import between

MODEL, CLUSTER = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8)
PLAN = Plan(global_batch=32, seq_len=8192, pipeline_parallel=4, data_parallel=2)


@pytest.fixture(scope="module")
def answers():
    question = (MODEL, CLUSTER, PLAN)
    chain = transformer_chain(MODEL, CLUSTER, PLAN)
    return {
        "Estimate": costmodel.estimate(*question),
        "SearchResult": costmodel.search(MODEL, CLUSTER, global_batch=32, seq_len=8192),
        "Timeline": costmodel.timeline(*question), "Simulation": costmodel.simulate(*question),
        "Ledger": costmodel.ledger(*question), "Partition": costmodel.partition(chain, [4], [1e10]),
        "TrainingRun": costmodel.time_to_train(costmodel.estimate(*question), tokens=1e12, tariff=costmodel.Tariff(gpu_hour=2.0)),
        "PostTraining": costmodel.post_training(*question, costmodel.Rollouts(samples=32, mean_length=1000.0)),
    }  # fmt: skip


class Tags(HTMLParser):
    """Counts tags; an end without its start fails."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        assert not attrs
        self.open.append(tag)
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", [
    "Estimate", "SearchResult", "Timeline", "Simulation", "Ledger", "Partition", "TrainingRun", "PostTraining",
])  # fmt: skip
def test_an_answer_shows_itself_in_a_few_lines_and_in_one_table(answers, name):
    text, page = repr(answers[name]), answers[name]._repr_html_()
    assert text.startswith(f"{name}: ") and len(text) < 700 and text.count("\n") < 6
    tags = Tags()
    tags.feed(page)
    assert not tags.open and tags.seen.count("table") == 1 and tags.seen.count("tr") <= ROWS + 1
    assert len(page) < 10_000 and "nan" not in page.lower()


def test_names_complete_to_what_there_is_to_use():
    offered = [name for name in dir(costmodel) if not name.startswith("_")]
    assert len(offered) == len(set(offered)) and set(costmodel.__all__) <= set(offered)
    assert {"sys", "annotations", "import_module", "TYPE_CHECKING"}.isdisjoint(offered)


def test_a_summary_says_the_numbers_of_its_answer(answers):
    one = answers["Estimate"]
    assert between(one.step_time) in repr(one)
    shares = [float(share) for share in re.findall(r"<td>([\d.]+) %</td>", one._repr_html_())]
    assert sum(shares) == pytest.approx(100.0, abs=0.5)


def test_a_search_is_a_sequence_of_its_ranked_plans(answers):
    found = answers["SearchResult"]
    assert len(found) == len(found.ranked) == len(list(found))
    assert found[0] is found.best and found[-1] is found.ranked[-1] and found[:2] == found.ranked[:2]
    with pytest.raises(IndexError):
        found[len(found)]


def test_a_search_without_a_plan_that_fits_says_why():
    found = costmodel.search(load_model("llama3-70b"), CLUSTER, global_batch=8, seq_len=8192)
    assert not found.ranked and not found
    assert found.why_none() in " ".join(repr(found).split()) and "no plan fits" in found._repr_html_()


def test_long_tables_are_cut_and_names_are_escaped():
    page = table("<script>", ["a"], [[f"{place}"] for place in range(ROWS + 3)])
    assert "<script>" not in page and page.count("<tr>") == ROWS + 1 and "3 more rows" in page


def test_showing_an_answer_imports_neither_plotly_nor_rich():
    program = """
import sys, costmodel
model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=8)
found = costmodel.search(model, cluster, global_batch=32, seq_len=8192)
repr(found); found._repr_html_(); repr(found[0]); found[0]._repr_html_()
assert not {"plotly", "rich", "dash", "kaleido", "pandas", "sympy"} & set(sys.modules)
"""
    root = Path(costmodel.__file__).parents[1]
    subprocess.run([sys.executable, "-c", program], check=True, cwd=root)


def test_why_nothing_is_legal_is_said_in_words_not_in_codes():
    for rule in (*RULES, "repeated"):
        said = rejections({rule: 4000})
        assert said.startswith("4,000 ") and "_" not in said, rule
    found = costmodel.search(
        MODEL, CLUSTER, global_batch=32, seq_len=8192, framework="megatron-deepspeed", zero_stage=3, pipeline_parallel=[2, 4]
    )
    assert not found.evaluated and "_" not in found.why_none() and "a ZeRO stage that the framework" in found.why_none()

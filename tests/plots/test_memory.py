"""The figure of a memory timeline: what is shown adds up to the bill, and looks alike from figure to figure."""

import pytest

from costmodel import Plan, estimate, load_cluster, load_model
from costmodel.plots.memory import held, memory_figure
from costmodel.plots.page import write_page


@pytest.fixture(scope="module")
def answer():
    plan = Plan(global_batch=32, seq_len=8192, pipeline_parallel=4, data_parallel=2)
    return estimate(load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8), plan)


def test_parts_add_up_to_the_bill_at_its_fullest_event(answer):
    shown = held(answer.memory.timeline(), answer.memory_limit)
    at, top, text = shown.peak
    assert sum(part.held[at] for part in shown.parts) == pytest.approx(top) == answer.memory.total / 2**30
    assert shown.limit == answer.memory_limit / 2**30
    assert shown.unit == "GiB" and shown.unit in text


def test_a_part_has_its_own_colour_and_pattern_on_every_rank(answer):
    first, last = (memory_figure(answer.memory.timeline(stage), answer.memory_limit) for stage in (0, 3))
    looks = [{trace.name: (trace.fillcolor, trace.fillpattern.shape) for trace in one.data} for one in (first, last)]
    assert len(set(looks[1].values())) == len(looks[1])
    assert all(looks[1][name] == look for name, look in looks[0].items())
    assert "logits" in looks[1] and "logits" not in looks[0]
    assert first.layout.xaxis.title.text and "GiB" in first.layout.yaxis.title.text


def test_a_page_holds_its_figures_and_what_draws_them(answer, tmp_path):
    figure = memory_figure(answer.memory.timeline())
    write_page(tmp_path / "page.html", "a < b", [figure, figure])
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert text.count("Plotly.newPlot(") == 2 and text.count("plotly.js v") == 1
    assert "<title>a &lt; b</title>" in text

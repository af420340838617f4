"""Sliders in a notebook follow the library, and say what became of the answer."""

from __future__ import annotations

import dataclasses
from html.parser import HTMLParser

import pytest

import costmodel
from costmodel.page.widget import answers, sentence
from costmodel.plots.change import change, change_figure


@pytest.fixture(scope="module")
def what():
    model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=8)
    return costmodel.whatif(model, cluster, global_batch=64, seq_len=4096)


def test_a_change_is_answered_by_the_plan_as_it_was_and_by_the_one_that_is_best_then(what):
    found = answers(what, {"nvlink.bandwidth": what.question.cluster.levels[0].bandwidth / 8, "device.memory": 60e9})
    assert found["as asked"] == what.candidates.first
    assert found["changed"].plan == what.candidates.first.plan
    assert found["changed"].cluster.levels[0].bandwidth == what.question.cluster.levels[0].bandwidth / 8
    if "best now" in found:
        assert found["best now"].step_time <= found["changed"].step_time or not found["changed"].fits
    assert "becomes" in sentence(found)


def test_the_figure_s_parts_add_up_to_step_and_memory(what):
    found = list(answers(what, {"device.memory_bandwidth": 1e12}).values())
    shown = change(["a"] * len(found), found)
    for row, one in enumerate(found):
        assert sum(piece.amounts[row] for piece in shown.times) == pytest.approx(shown.totals[row])
        total = sum(piece.amounts[row] for piece in shown.memory)
        assert total / shown.limit == pytest.approx(one.memory.total / found[-1].memory_limit)
    assert len(change_figure(shown).data) == len(shown.times) + len(shown.memory) + 1


def test_a_slider_moves_the_words_and_the_bars(what):
    pytest.importorskip("anywidget", reason="pip install costmodel[notebook]")
    ipywidgets = pytest.importorskip("ipywidgets", reason="pip install costmodel[notebook]")
    words, figure, grid = what.widget().children
    assert "becomes" not in words.value and len(figure.data[0].y) == 1
    slider = next(one for one in grid.children if one.description.startswith("nvlink bandwidth"))
    assert isinstance(slider, ipywidgets.FloatLogSlider)
    slider.value = slider.value / 4
    assert "becomes" in words.value and len(figure.data[0].y) >= 2


def test_a_page_is_said_in_a_line(what):
    said = " ".join(repr(what).split())
    assert said.startswith("WhatIf(llama3-8b on 8 GPUs of dgx-h100, megatron-core: 64 sequences of 4,096 tokens a step, ")


def test_without_sizes_there_is_something_to_start_from():
    model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=8)
    assert costmodel.whatif(model, cluster).question.plan.global_batch == 64


def tags(text: str) -> list[str]:
    """Tags of a page as a browser meets them."""
    found: list[str] = []
    reader = HTMLParser()
    reader.handle_starttag = lambda tag, _: found.append(tag)
    reader.feed(text)
    return found


@pytest.mark.slow  # pages are made whole
def test_a_name_is_text_in_the_page_whatever_it_holds(what):
    hostile = "</script><img src=x onerror=alert(1)><!--page-->"
    model = dataclasses.replace(what.question.model, name=hostile)
    page = costmodel.whatif(model, what.question.cluster, global_batch=64, seq_len=4096, command=hostile)
    assert tags(page.html()) == tags(what.html()) and "img" not in tags(page.html())


def test_the_command_writes_a_page_or_nothing(run, tmp_path):
    ask = ["whatif", "llama3-8b", "--cluster", "dgx-h100", "--gpus", "8", "--global-batch", "64", "--seq-len", "4096"]
    code, out, _ = run(*ask, "--dtype", "fp8", "-o", "page.html")
    assert code == 0 and "Written: page.html (" in out
    assert "--dtype fp8" in (tmp_path / "page.html").read_text(encoding="utf-8")
    for more, hint in (
        (["-o", "none/page.html"], "a folder that exists"), (["-o", "x.html", "--price", "-1"], "price"),
        (["-o", "x.html", "--tensor-parallel", "3"], "no plan is legal"),
    ):  # fmt: skip
        code, out, err = run(*ask, *more)
        assert (code, out) == (2, "") and hint in err and err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert run(*ask)[0] == 0 and (tmp_path / "whatif.html").exists()

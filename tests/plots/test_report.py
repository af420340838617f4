"""A report is one file that loads nothing, says the numbers of its search, and is made again by its command."""

import re

import pytest

from costmodel import IllegalPlan, load_cluster, load_model, search

pytest.importorskip("plotly")

from costmodel.evaluation.assumptions import assumptions
from costmodel.plots.report import report, report_page
from costmodel.text.units import between

QUESTION = ("llama3-8b", "--cluster", "dgx-h100", "--gpus", "16", "--global-batch", "64", "--seq-len", "8192")


@pytest.fixture(scope="module")
def found():
    cluster = load_cluster("dgx-h100", gpus=16)
    return search(load_model("llama3-8b"), cluster, global_batch=64, seq_len=8192, keep_evaluated=True, top=5)


def test_a_report_says_question_answer_alternatives_and_assumptions(found):
    made = report(found, "costmodel report <llama>")
    assert "16 GPUs of dgx-h100" in made.question and "8,192 tokens" in made.question
    assert between(found.best.step_time) in made.answer and "P(fastest)" in made.answer
    assert len(made.alternatives) == len(found) and f"{found.fitting:,} fit" in " ".join(made.remarks)
    page = report_page(found, "costmodel report <llama>")
    assert "costmodel report &lt;llama&gt;" in page
    for one in made.assumptions:
        assert one.source and one.value in page
    assert page.count('class="plotly-graph-div"') == 6


def test_a_report_loads_nothing_from_elsewhere(found):
    page = report_page(found, "x")
    outside = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r'(?:src|href)\s*=|@import|url\(', outside)
    assert not re.search(r'<script[^>]+src=', page)


def test_every_assumption_of_a_catalogue_entry_has_its_source(found):
    for one in assumptions(found.best):
        assert one.source != "as given", one
        assert "nan" not in one.value.lower()


def test_what_a_user_described_is_said_to_be_given(found):
    import dataclasses

    asked = dataclasses.replace(found.best.question, cluster=dataclasses.replace(found.cluster, name="ours"))
    own = dataclasses.replace(found.best, question=asked)
    assert [one.source.startswith("as given") for one in assumptions(own) if "nvlink" in one.name] == [True, True]


def test_the_command_line_writes_report_pages_and_says_its_own_command(run, tmp_path):
    code, out, _ = run("report", *QUESTION, "-o", "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert code == 0 and "report.html" in out
    assert f"costmodel report {' '.join(QUESTION)} -o report.html" in page
    code, _, _ = run("search", *QUESTION, "--html", "search.html")
    assert code == 0 and (tmp_path / "search.html").stat().st_size > 1e6
    code, _, _ = run("estimate", *QUESTION, "--tensor-parallel", "2", "--html", "estimate.html", "--json")
    assert code == 0 and (tmp_path / "estimate.html").read_text(encoding="utf-8").count("plotly-graph-div") >= 4


def test_a_report_of_what_does_not_fit_writes_nothing(run, tmp_path):
    question = ["llama3-70b", *QUESTION[1:]]
    code, out, _ = run("report", *question, "--context-parallel", "1", "--tensor-parallel", "1", "-o", "report.html")
    assert code == 1 and out.startswith("None of") and not list(tmp_path.iterdir())


@pytest.mark.parametrize(("options", "hint"), [
    (["--figure", "time"], "give --png FILE"), (["--png", "a.png", "--figure", "luck"], "figure='luck'"),
    (["--html", "missing/a.html"], "missing/a.html"),
])  # fmt: skip
def test_bad_figures_are_refused_in_one_line(run, tmp_path, options, hint):
    from tests.commanding import refused

    refused(run, tmp_path, ["search", *QUESTION, *options], hint)


def test_without_kaleido_a_png_is_refused_with_what_to_install(run, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "kaleido", None)
    code, _, err = run("search", *QUESTION, "--png", "a.png")
    assert code == 2 and "costmodel[png]" in err


def test_without_a_browser_a_png_is_refused_with_what_to_install(run, tmp_path, monkeypatch):
    kaleido = pytest.importorskip("kaleido")
    from kaleido.errors import ChromeNotFoundError

    def missing(*_, **__):
        raise ChromeNotFoundError

    monkeypatch.setattr(kaleido, "calc_fig_sync", missing)
    code, _, err = run("estimate", *QUESTION, "--png", "a.png")
    assert code == 2 and "Chromium" in err and not list(tmp_path.iterdir())


def test_a_search_without_a_plan_has_no_figures(found):
    from costmodel.plots.answers import answer_figure

    nothing = search(load_model("llama3-70b"), load_cluster("dgx-h100", gpus=8), global_batch=8, seq_len=8192)
    with pytest.raises(IllegalPlan):
        answer_figure(nothing)


@pytest.mark.slow
def test_a_png_is_written_where_a_browser_is(run, tmp_path):
    pytest.importorskip("kaleido")
    code, _, err = run("estimate", *QUESTION, "--tensor-parallel", "2", "--png", "a.png", "--figure", "memory")
    if code and "none was found" in err:
        pytest.skip("no Chromium or Chrome")
    assert code == 0 and (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")

"""One question has one answer at every door: step, memory, P(fastest) and the number of legal plans."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from typing import NamedTuple

import pytest

import costmodel
from costmodel.description.labels import label
from costmodel.text.units import GiB
from tests.commanding import strict

QUESTIONS = {
    "small": ("llama3-8b", "dgx-h100", 16, 64, 4096),
    "hero": ("llama3-70b", "dgx-h100", 64, 1024, 8192),
}  # fmt: skip
NODE = shutil.which("node")


class Said(NamedTuple):
    """What a door says of the best plan; times in s, memory in bytes."""

    plan: str
    step: float
    memory: float
    fastest: float
    legal: int
    fitting: int


@pytest.fixture(scope="module", params=[
    pytest.param("small"), pytest.param("hero", marks=pytest.mark.slow),
])  # fmt: skip
def asked(request):
    """A question, its answer in Python, and the one-file page of it."""
    model, cluster, gpus, batch, seq = QUESTIONS[request.param]
    described = costmodel.load_model(model), costmodel.load_cluster(cluster, gpus=gpus)
    sizes = {"global_batch": batch, "seq_len": seq}
    found = costmodel.search(*described, **sizes, keep_evaluated=True, engine="numpy")
    return QUESTIONS[request.param], found, costmodel.whatif(*described, **sizes)


def said(found) -> Said:
    best = found.best
    chance = found.standings.plans[0].probability_fastest
    return Said(label(best.plan), best.step_time, float(best.memory.total), chance, found.evaluated, found.fitting)


def read(text: str, wanted: Said) -> None:
    """Hold that a text says what it should, in as many figures as it has."""
    text = text.replace("\N{NO-BREAK SPACE}", " ")
    assert wanted.plan in text
    steps = [float(number) for number in re.findall(r"(\d+(?:\.\d+)?) s\b", text)]
    assert any(number == pytest.approx(wanted.step, rel=5e-3) for number in steps)
    assert f"{wanted.memory / GiB:.1f}" in text or f"{wanted.memory / GiB:.0f}" in text
    chances = {round(float(number)) for number in re.findall(r"P\(fastest\) (\d+(?:\.\d+)?) %", text)}
    assert chances == {round(100 * wanted.fastest)}
    assert f"{wanted.legal:,}" in text and f"{wanted.fitting:,}" in text


def words(part) -> str:
    if isinstance(part, list | tuple):
        return "".join(map(words, part))
    return part if isinstance(part, str) else words(getattr(part, "children", None) or "")


@pytest.mark.parametrize("more", [[], ["--top", "1"], ["--top", "50"], ["--space", "default"]])
def test_the_command_line_says_what_python_says_however_much_it_shows(asked, run, more):
    (model, cluster, gpus, batch, seq), found, _ = asked
    argv = ["search", model, "--cluster", cluster, "--gpus", str(gpus), "--global-batch", str(batch), "--seq-len", str(seq)]
    code, out, _ = run(*argv, "--no-check", "--engine", "numpy", "--json", *more)
    got = strict(out)
    best = got["plans"][0]
    assert code == 0
    assert (got["evaluated"], got["fitting"]) == (found.evaluated, found.fitting)
    assert best["step_time_s"] == found.best.step_time and best["peak_memory_bytes"] == float(found.best.memory.total)
    assert best["probability_fastest"] == said(found).fastest


def test_the_app_says_what_python_says(asked):
    pytest.importorskip("dash")
    from costmodel.app.server import show

    (model, cluster, gpus, batch, seq), found, _ = asked
    shown = show(f"model={model}&cluster={cluster}&gpus={gpus}&batch={batch}&seq={seq}")
    assert not shown[10]
    read(words(shown[0]), said(found))


def test_the_report_says_what_python_says(asked):
    from costmodel.plots.report import report_page

    _, found, _ = asked
    page = report_page(found, "costmodel report ...")
    text = unescape(re.sub(r"<[^>]+>", " ", page[page.index("<main>") : page.index("<h2>The plan")]))
    read(text, said(found))


def test_a_report_says_what_is_not_by_default():
    from costmodel.catalogue.changes import replace
    from costmodel.plots.report import report

    model, node = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=8)
    sizes = {"global_batch": 64, "seq_len": 4096, "engine": "numpy"}
    told = report(costmodel.search(model, replace(node, {"device.memory": "2x"}), dtype="fp8", **sizes), "").remarks
    assert told[0].startswith("Not by default: dtype fp8, device.memory 80 GiB")
    assert not any("Not by default" in remark for remark in report(costmodel.search(model, node, **sizes), "").remarks)


SEARCHED = """
let sent = null;
var onmessage, postMessage = (message) => { sent = message; };
%s
const shown = %s;
onmessage({data: {view: {columns: shown.columns, plans: shown.plans, margin: shown.margin, ranking: shown.ranking,
  fitting: shown.fitting, twin: shown.words.twin}}});
onmessage({data: {id: 1, changes: {}, top: 20, keep: []}});
const best = sent.ranked[0];
console.log(JSON.stringify({step: best.step_time_s, memory: best.peak_memory_bytes, fitting: sent.fitting, legal: shown.legal,
  fastest: shown.ranking[0].fastest, rows: sent.ranked.length, first: shown.ranking[0].row, row: best.row,
  order: sent.ranked.map((one) => one.step_time_s)}));
"""


@pytest.mark.slow
@pytest.mark.skipif(NODE is None, reason="no node")
def test_the_one_file_page_works_out_what_python_says(asked, tmp_path):
    _, found, what = asked
    page = what.html()
    parts = {name: page.partition(f'id="{name}">')[2].partition("</script>")[0] for name in ("model", "worker", "view")}
    (tmp_path / "page.js").write_text(SEARCHED % (parts["model"] + parts["worker"], parts["view"]), encoding="utf-8")
    got = json.loads(subprocess.run([NODE, tmp_path / "page.js"], capture_output=True, text=True, check=True).stdout)
    wanted = said(found)
    assert (got["step"], got["memory"]) == (pytest.approx(wanted.step, rel=1e-9), pytest.approx(wanted.memory, rel=1e-9))
    assert (got["fastest"], got["legal"], got["fitting"]) == (wanted.fastest, wanted.legal, wanted.fitting)
    assert got["row"] == got["first"] and got["order"] == pytest.approx([one.step_time for one in found.ranked], rel=1e-9)
    assert label(what.candidates.first.plan) == wanted.plan

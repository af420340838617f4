"""A site on a host of files: the library's digits in Chromium, little to load before the answer, the question in the address."""

from __future__ import annotations

import functools
import http.server
import json
import math
import random
import threading
import time

import pytest

import costmodel
from costmodel.catalogue.loader import names
from costmodel.cli import main
from costmodel.description.labels import spoken
from costmodel.evaluation.offers import offers
from costmodel.page.onefile import SEQUENCES
from costmodel.page.site import BOOK, build
from tests.browser import STILL, barriers_in_all_colours, cut, opened
from tests.page.questions import asked_of_library, difference, drawn

FIRST_PAINT, MOST = 1_000_000, 10_000_000
"""Bytes before the first answer, and of the whole site, the library that draws included."""
WAIT = """const start = performance.now(), wrong = document.getElementById("wrong");
while (!window.costmodel?.ready && !wrong.textContent) await new Promise((done) => setTimeout(done, 10));
if (wrong.textContent) return wrong.textContent;
await window.costmodel.ready; return document.getElementById("answer").textContent"""
QUESTIONS = [
    ("llama3-8b", "dgx-h100", 8, "megatron-core"), ("llama3-70b", "dgx-h100", 32, "megatron-core"),
    ("qwen2.5-7b", "mi300x-8", 8, "fsdp2"), ("gpt2-xl", "dgx-a100", 8, "deepspeed"),
]  # fmt: skip
"""Of models without experts the page tries the plans that the library's search does."""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A host of files that logs nothing."""

    def log_message(self, *_) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder and its address, below the root of its host."""
    root = tmp_path_factory.mktemp("site")
    folder = root / "team" / "costmodel"
    build(folder, ["llama3-8b", "llama3-70b", "qwen2.5-7b", "gpt2-xl", "mixtral-8x7b"], ["dgx-h100", "mi300x-8", "dgx-a100"])
    host = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(root)))
    threading.Thread(target=host.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{host.server_port}/team/costmodel/"
    host.shutdown()
    host.server_close()


@pytest.fixture(scope="module")
def browser():
    with opened() as made:
        yield made


def asked(model: str, cluster: str, gpus: int, framework: str) -> str:
    return f"index.html?model={model}&cluster={cluster}&gpus={gpus}&framework={framework}"


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_in_the_address_has_the_librarys_best_plan_step_and_interval(site, browser, question):
    name, where, gpus, framework = question
    model, cluster = costmodel.load_model(name), costmodel.load_cluster(where, gpus=gpus)
    length = min(4096, model.learned_positions or 4096)
    found = costmodel.search(model, cluster, global_batch=SEQUENCES * gpus, seq_len=length, framework=framework, top=8)
    fastest = min(found.ranked, key=lambda one: one.step_time)
    browser.visit(site[1] + asked(*question))
    assert "a step with" in browser.run(WAIT)
    first = browser.run("await window.costmodel.standing; return (await window.costmodel.search({})).ranked[0]")
    assert first["step_time_s"] == pytest.approx(found.best.step_time, rel=1e-9)  # the simplest of those that can't be told apart
    assert first["peak_memory_bytes"] == pytest.approx(float(found.best.memory.total), rel=1e-9)
    best = min(browser.run("return (await window.costmodel.search({})).ranked"), key=lambda one: one["step_time_s"])
    assert best["step_time_s"] == pytest.approx(fastest.step_time, rel=1e-9)
    assert best["peak_memory_bytes"] == pytest.approx(float(fastest.memory.total), rel=1e-9)
    shown = browser.run("return [view.error, view.shift, view.margin, view.legal]")
    error = fastest.time_error
    assert shown[0] == pytest.approx(error.half, rel=2e-3) and shown[1] == pytest.approx(error.shift)
    assert shown[2] == pytest.approx(fastest.spread.margin(0.9))
    assert browser.complaints() == []


@pytest.mark.slow
def test_a_page_of_the_site_gives_the_digits_of_python_and_loads_little_before_its_answer(site, browser):
    folder, address = site
    cluster = costmodel.load_cluster("dgx-h100", gpus=8)
    chance = random.Random(1)
    for name in ("llama3-8b", "mixtral-8x7b"):
        model = costmodel.load_model(name)
        what = costmodel.whatif(model, cluster, global_batch=SEQUENCES * 8, seq_len=4096)
        _, _, framework, plan, _ = what.question
        questions = [drawn(model, cluster, chance) for _ in range(100)]
        wanted = [asked_of_library(model, cluster, plan, framework, changes) for changes in questions]
        assert sum("error" not in answer for answer in wanted) > 10
        browser.visit(address + asked(name, "dgx-h100", 8, "megatron-core"))
        browser.run(WAIT)
        got = browser.run("return given[0].map((one) => window.costmodel.evaluate(one))", questions)
        assert not [one for one, mine, its in zip(questions, wanted, got, strict=True) if difference(mine, its)]
    browser.run("while (!document.querySelector('#chart .main-svg')) await new Promise((done) => setTimeout(done, 10))")
    loaded = [one for one in browser.requests() if not one.startswith(("data:", "blob:"))]
    assert all(one.startswith(address) for one in loaded)  # nothing from elsewhere
    drawing = address + "shared/plotly.min.js"
    before = {one.removeprefix(address).partition("?")[0] for one in loaded[: loaded.index(drawing)]}
    assert sum((folder / one).stat().st_size for one in before) < FIRST_PAINT
    assert browser.complaints() == []


@pytest.mark.slow
def test_a_question_is_chosen_in_the_form_kept_in_the_address_and_offered_to_begin_with(site, browser):
    browser.visit(site[1] + "index.html")
    browser.run(WAIT)
    offered = browser.run("return [...document.querySelectorAll('#ask a')].map((one) => one.getAttribute('href'))")
    assert "?model=llama3-70b&cluster=dgx-h100&gpus=64" in offered
    browser.run("""const list = document.getElementById('site-cluster');
        list.value = 'dgx-a100'; list.dispatchEvent(new Event('change'))""")  # fmt: skip
    for _ in range(300):
        if "of dgx-a100" in browser.driver.title:
            break
        time.sleep(0.1)
    browser.run(WAIT)
    assert "of dgx-a100" in browser.driver.title
    browser.run("""const drag = document.getElementById('drag-device-memory');
        drag.value = 900; drag.dispatchEvent(new Event('input')); drag.dispatchEvent(new Event('change'))""")  # fmt: skip
    assert "#device.memory=" in browser.driver.current_url and "cluster=dgx-a100" in browser.driver.current_url


@pytest.mark.parametrize(("address", "hint"), [
    ("?model=llama3-8b&cluster=nowhere", "there is no cluster called nowhere"),
    ("?model=x&cluster=dgx-h100", "no model called x"),
    ("?model=llama3-8b&cluster=dgx-h100&gpus=37&batch=3", "No plan is legal"),
    ("?model=llama3-8b&cluster=dgx-h100&framework=jax", "no framework called jax"),
    ("?model=llama3-8b&cluster=dgx-h100&gpus=many&seq=4", "gpus=many: expected a whole number"),
    ("?model=llama3-8b&cluster=dgx-h100&seq=4", "seq: expected one of model, cluster, framework, gpus, batch, length"),
])  # fmt: skip
def test_what_is_wrong_with_a_question_is_said_in_a_line(site, browser, address, hint):
    browser.visit(site[1] + "index.html" + address)
    browser.run(WAIT)
    assert hint in browser.run("return document.getElementById('wrong').textContent")


@pytest.mark.slow
def test_a_plan_of_the_site_is_played_as_python_plays_it(site, browser):
    model, cluster = costmodel.load_model("llama3-70b"), costmodel.load_cluster("dgx-h100", gpus=32)
    browser.visit(site[1] + asked("llama3-70b", "dgx-h100", 32, "megatron-core") + "&batch=192#tab=timeline")
    browser.run(WAIT)
    for stages, chunks in ((1, 1), (2, 1), (4, 1), (4, 5), (8, 2), (16, 1)):  # 24 to 384 micro-batches, layers that don't divide
        plan = costmodel.Plan(
            global_batch=192, seq_len=4096, tensor_parallel=2, pipeline_parallel=stages, virtual_stages=chunks,
            schedule="interleaved" if chunks > 1 else "1f1b", data_parallel=16 // stages,
        )  # fmt: skip
        fields = {name: getattr(plan, name) for name in ("tensor_parallel", "pipeline_parallel", "virtual_stages", "schedule",
                  "data_parallel", "global_batch", "seq_len")}  # fmt: skip
        got = browser.run("""const got = await window.costmodel.timeline(given[0]);
            return got.error ?? [got.total, got.end.reduce((a, b) => a + b, 0), got.end.length]""", fields)  # fmt: skip
        wanted = costmodel.timeline(model, cluster, plan)
        assert got == pytest.approx([wanted.total, wanted.end.sum(), len(wanted.end)], rel=1e-9)
    assert "one pipeline's step under" in browser.run("return document.getElementById('reading').textContent")
    assert browser.complaints() == []


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS[::2])
def test_plans_of_the_site_are_as_surely_the_fastest_as_the_library_says(site, browser, question):
    name, where, gpus, framework = question
    model, cluster = costmodel.load_model(name), costmodel.load_cluster(where, gpus=gpus)
    found = costmodel.search(model, cluster, global_batch=SEQUENCES * gpus, seq_len=4096, framework=framework, top=40)
    known = {round(one.step_time, 9): (one, standing) for one, standing in zip(found.ranked, found.standings.plans, strict=True)}
    browser.visit(site[1] + asked(*question))
    browser.run(WAIT)
    got = browser.run("""await window.costmodel.standing; const {ranked} = await window.costmodel.search({});
        return ranked.map(({row, step_time_s}) => [step_time_s, view.ranking.find((one) => one.row === row)])""")  # fmt: skip
    assert len(got) > 5
    for seconds, mine in got[:8]:
        one, standing = known[round(seconds, 9)]
        assert mine["fastest"] == pytest.approx(standing.probability_fastest, abs=0.03)  # each drawn four thousand times
        assert mine["error"] == pytest.approx(one.time_error.half, rel=2e-3)
    assert "P(fastest)" in browser.run("return document.getElementById('sure').textContent")


def test_where_nothing_fits_the_site_says_what_would(site, browser):
    browser.visit(site[1] + asked("llama3-8b", "dgx-h100", 1, "megatron-core"))
    browser.run(WAIT)
    rows = browser.run("""await window.costmodel.standing;
        return [...document.querySelectorAll('#offers tbody tr')].map((row) => row.children[0].textContent)""")  # fmt: skip
    model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=1)
    found = offers(costmodel.search(model, cluster, global_batch=SEQUENCES, seq_len=4096))
    assert rows == [spoken(one.change) if "gpus" not in one.change else f"{one.best.plan.gpus} GPUs" for one in found]
    assert "None of" in browser.run("return document.getElementById('offers').innerText") and browser.complaints() == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 768, 1280])
def test_axe_finds_nothing_on_any_tab_of_the_site_nor_where_nothing_fits_and_no_word_of_a_chart_is_cut(site, browser, width):
    browser.resize(width, 900)
    found = {}
    for gpus in (8, 1):
        browser.visit(site[1] + asked("llama3-8b", "dgx-h100", gpus, "megatron-core"))
        browser.run(WAIT )
        browser.run("await window.costmodel.standing; for (const one of document.querySelectorAll('details')) one.open = true;")
        for tab in browser.run("return [...document.querySelectorAll('[role=tab]')].map((one) => one.id)"):
            browser.run(f"document.getElementById(given[0]).click(); {STILL}", tab)
            found[gpus, tab] = [*barriers_in_all_colours(browser), *cut(browser)]
        assert browser.run("return document.documentElement.scrollWidth") <= width
    browser.resize(1400, 900)
    assert len(found) == 14 and not any(found.values()), found


@pytest.mark.slow
def test_keys_alone_ask_the_site_another_question_and_drag(site, browser):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser.visit(site[1] + "index.html")
    browser.run(WAIT)
    reached = []
    for _ in range(80):
        ActionChains(browser.driver).send_keys(Keys.TAB).perform()
        reached.append(browser.run("const one = document.activeElement; return one.id || one.textContent"))
        if reached[-1] == "drag-device-memory":
            break
    assert {"site-model", "site-cluster", "site-framework", "site-gpus", "compare", "export", "image", "link"} <= set(reached)
    assert "tab-time" in reached and reached[-1] == "drag-device-memory"
    ActionChains(browser.driver).send_keys(Keys.ARROW_LEFT * 12).perform()
    assert "#device.memory=" in browser.driver.current_url
    browser.run("document.getElementById('site-gpus').focus()")
    ActionChains(browser.driver).send_keys(Keys.CONTROL, "a", Keys.NULL, "16", Keys.ENTER).perform()
    for _ in range(300):
        if "gpus=16" in browser.driver.current_url:
            break
        time.sleep(0.1)
    assert "on 16 GPUs" in browser.run("while (!window.costmodel?.ready) await new Promise((done) => setTimeout(done, 10));"
                                       "return document.title")  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 768, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_the_site_fits_into_a_window_of_any_width(site, browser, width, dark):
    browser.resize(width, 900, dark)
    browser.visit(site[1] + "index.html")
    browser.run(WAIT)
    assert browser.run("return document.documentElement.scrollWidth") <= width
    browser.resize(1400, 900)


@pytest.mark.slow
def test_the_whole_catalogue_is_a_few_megabytes(tmp_path):
    built = build(tmp_path, names("model"), names("cluster"))
    assert len(built.models) == len(names("model")) and len(built.clusters) == len(names("cluster")) and not built.refused
    assert sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file()) < MOST


def test_own_runs_are_in_the_clusters_of_their_device(tmp_path, capsys):
    model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=8)
    plan = costmodel.Plan(global_batch=64, seq_len=4096, data_parallel=8)
    mine = costmodel.calibrate(cluster, [(model, plan, 1.4 * costmodel.estimate(model, cluster, plan).step_time)])
    costmodel.save_calibration(mine, tmp_path / "mine.toml")
    asked = ["site", "--model", "llama3-8b", "--cluster", "dgx-h100,dgx-a100"]
    assert main([*asked, "-o", str(tmp_path / "a")]) == 0 and "1 model, 2 clusters" in " ".join(capsys.readouterr().out.split())
    assert main([*asked, "-o", str(tmp_path / "b"), "--calibration", str(tmp_path / "mine.toml")]) == 0
    factor = math.log(mine.frameworks["megatron-core"].own_factor)
    for folder, name, expected in (("a", "dgx-h100", 0.0), ("b", "dgx-h100", factor), ("b", "dgx-a100", 0.0)):
        base, other = (
            json.loads((tmp_path / folder / file).read_text(encoding="utf-8").partition(" = ")[2].rstrip(";\n"))
            for file in ("frameworks/megatron-core.js", f"clusters/{name}.js")
        )
        told = base["tables"] | other["every"].get("tables", {}) | other["frameworks"]["megatron-core"].get("tables", {})
        assert told["own_factor"] == pytest.approx(expected) and bool(told["own_runs"]) == bool(expected)


def test_a_book_that_was_built_is_taken_beside_the_page_and_another_folder_is_refused(tmp_path, capsys):
    asked = ["site", "--model", "llama3-8b", "--cluster", "dgx-h100", "-o", str(tmp_path / "site"), "--book"]
    assert main([*asked, str(tmp_path)]) == 2 and "python -m docs site" in capsys.readouterr().err
    for page in BOOK.values():
        (tmp_path / "book" / page).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "book" / page).write_text("a page", encoding="utf-8")
    for book, address in ((str(tmp_path / "book"), "book/"), ("https://example.org/docs", "https://example.org/docs/")):
        assert main([*asked, book]) == 0
        assert f'"{address}{BOOK["formulas"]}"' in (tmp_path / "site" / "shared" / "catalogue.js").read_text(encoding="utf-8")
    assert all((tmp_path / "site" / "book" / page).is_file() for page in BOOK.values())

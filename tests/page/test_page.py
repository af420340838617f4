"""The page in a browser: the library's digits, nothing sent, nothing in the console, quick to drag, in reach of keys and eyes."""

from __future__ import annotations

import dataclasses
import random
import re
from pathlib import Path

import pytest

import costmodel
from costmodel.description.labels import label
from costmodel.description.plan import SCHEDULES
from tests.browser import STILL, Browser, barriers_in_all_colours, cut, opened
from tests.page.questions import asked_of_library, difference, drawn

pytestmark = pytest.mark.slow
CASES = {"dense": ("llama3-70b", "bf16", "megatron-core"), "experts": ("mixtral-8x7b", "bf16", "megatron-core"),
         "8 bit": ("llama3-8b", "fp8", "nemo")}  # fmt: skip
LARGEST = 6_000_000
LEGAL, ILLEGAL = 334, 100
"""Questions of each of the three cases that have an answer, at least, a thousand in all, and of those that are refused."""
BATCH, LENGTH = 128, 4096
REFUSED = (
    {"tensor_parallel": 3}, {"micro_batch": 0}, {"zero_stage": 3, "pipeline_parallel": 4}, {"dtype": "int3"},
    {"expert_parallel": 2}, {"local_steps": 2}, {"global_batch": 127}, {"seq_len": 4097, "context_parallel": 2},
    {"tensor_parallel": 8, "data_parallel": 64}, {"cuda_graphs": "often"}, {"virtual_stages": 3, "schedule": "1f1b"},
)  # fmt: skip


@pytest.fixture(scope="module")
def browser():
    with opened() as found:
        yield found


@pytest.fixture(scope="module", params=CASES)
def case(request):
    """A case for all tests that ask its page questions, one after another."""
    return request.param


class Pages(dict):
    """The page of each case that a test asks for, with the question behind it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __missing__(self, name: str):
        model_name, dtype, framework = CASES[name]
        model, cluster = costmodel.load_model(model_name), costmodel.load_cluster("dgx-h100", gpus=64)
        what = costmodel.whatif(model, cluster, global_batch=BATCH, seq_len=LENGTH, framework=framework, dtype=dtype)
        what.write_html(self.folder / f"{name}.html")
        self[name] = self.folder / f"{name}.html", what
        return self[name]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    return Pages(tmp_path_factory.mktemp("pages"))


def load(browser: Browser, page: Path, fragment: str = "") -> None:
    browser.open(page, fragment)
    browser.run("""while (!window.costmodel?.ready) await new Promise((done) => setTimeout(done, 10));
        await window.costmodel.ready""")  # fmt: skip


def ask(browser: Browser, page: Path) -> None:
    """Have a page open to ask it questions that change nothing on it; loaded anew only after something was changed."""
    if browser.untouched != page:
        load(browser, page)
        browser.untouched = page


def test_the_page_gives_the_digits_of_python_on_a_thousand_questions(browser, pages, case):
    page, what = pages[case]
    model, cluster, framework, plan, _ = what.question
    assert plan == costmodel.Plan(global_batch=BATCH, seq_len=LENGTH, dtype=CASES[case][1]).on(cluster)  # as asked, and no more
    chance = random.Random(case)
    legal, illegal = [], []
    while len(legal) < LEGAL or len(illegal) < ILLEGAL:
        changes = drawn(model, cluster, chance)
        answer = asked_of_library(model, cluster, plan, framework, changes)
        (illegal if "error" in answer else legal).append((changes, answer))
    ask(browser, page)
    chosen = legal + illegal
    got = browser.run("return given[0].map((one) => window.costmodel.evaluate(one))", [changes for changes, _ in chosen])
    wrong = [(changes, off) for (changes, wanted), its in zip(chosen, got, strict=True) if (off := difference(wanted, its))]
    assert not wrong, wrong[:3]


def test_the_page_ranks_what_the_library_ranks_in_its_order_and_with_its_probabilities(browser, pages, case):
    page, what = pages[case]
    ask(browser, page)
    found = browser.run("return (await window.costmodel.search({})).ranked.map((one) => one.step_time_s)")
    ranked = what.candidates.found
    assert found == pytest.approx([one.step_time for one in ranked], rel=1e-9)
    rows = browser.run("return [...document.querySelectorAll('#rows tr')].map((row) => "
                       "[...row.children].map((one) => one.textContent))")  # fmt: skip
    for row, one, standing in zip(rows, ranked, ranked.standings.plans, strict=False):
        if row[0].isdigit():
            assert row[1].startswith(label(one.plan)) and row[-1] == f"{100 * standing.probability_fastest:.0f} %"
    said = browser.run("return document.getElementById('sure').textContent")
    assert f"number 1 of the {ranked.fitting:,} that fit among {ranked.evaluated:,} legal plans" in said


def test_app_and_page_say_the_same_of_every_plan_that_both_show(browser, pages):
    pytest.importorskip("dash", reason="serves the app: pip install costmodel[app]")
    from costmodel.app.server import show

    def text(part):
        if isinstance(part, list):
            return "".join(map(text, part))
        return part if isinstance(part, str) else text(part.children or "")

    page, _ = pages["dense"]
    load(browser, page)
    rows = browser.run("return [...document.querySelectorAll('#rows tr')].map((row) => "
                       "[...row.children].map((one) => one.textContent))")  # fmt: skip
    table = show(f"model=llama3-70b&cluster=dgx-h100&gpus=64&batch={BATCH}&seq={LENGTH}")[1][0]
    shown = [[text(cell) for cell in row.children] for row in table.children[2].children]
    assert len(rows) == len(shown) == 6
    plain = [[[re.sub(r"\s", "", cell) for cell in row] for row in found] for found in (rows, shown)]
    assert plain[0] == plain[1]


def test_under_a_moved_slider_no_probability_is_shown_that_the_page_cannot_know(browser, pages):
    page, _ = pages["dense"]
    load(browser, page)
    assert "P(fastest)" in browser.run("return document.getElementById('sure').textContent")
    browser.run(DRAG, "drag-rail-bandwidth", -20)
    assert "P(fastest)" not in browser.run("return document.getElementById('sure').textContent")
    cells = browser.run("return [...document.querySelectorAll('#rows tr')].map((row) => row.lastChild.textContent)")
    assert set(cells) == {"\N{EN DASH}"}


def test_compare_opens_on_another_plan_than_a_twin_of_the_chosen_one(browser, pages):
    for page, _ in map(pages.__getitem__, CASES):
        load(browser, page)
        browser.run("document.getElementById('compare').click();" + STILL)
        pair = browser.run("return [...document.querySelectorAll('#rows tr.on, #rows tr.beside')].map((one) => "
                           "[3, 6].map((place) => Number(one.children[place].textContent)))")  # fmt: skip
        assert len(pair) == 2
        assert any(abs(one / other - 1.0) > 5e-4 for one, other in zip(*pair, strict=True)), pair


def test_a_slider_that_ends_at_the_peak_says_so(browser, pages):
    page, _ = pages["dense"]
    load(browser, page)
    browser.run(DRAG, "drag-device-gemm-efficiency", 1000)
    assert browser.run("return document.querySelector('output[for=drag-device-gemm-efficiency]').textContent") == "the peak"


def test_where_nothing_fits_the_page_says_what_would(browser, tmp_path):
    model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=1)
    what = costmodel.whatif(model, cluster, global_batch=8, seq_len=2048)
    what.write_html(tmp_path / "page.html")
    load(browser, tmp_path / "page.html")
    text = browser.run("return document.getElementById('offers').innerText")
    assert "adapter lora" in text and "would fit with" in text and "_" not in text
    load(browser, tmp_path / "page.html", "#device.memory=4e11")
    assert browser.run("return document.getElementById('offers').hidden"), "offers are of the question as it was asked"


def test_an_illegal_plan_is_refused_with_the_words_of_the_library(browser, pages):
    page, what = pages["dense"]
    load(browser, page)
    for changes in REFUSED:
        got = browser.run("return window.costmodel.evaluate(given[0])", changes)
        with pytest.raises(costmodel.CostModelError) as refused:
            what.evaluate(changes)
        assert got["error"] == str(refused.value)
    assert "expected one of" in browser.run("return window.costmodel.evaluate({tensor: 2})")["error"]


def test_the_page_is_small_asks_for_nothing_and_complains_of_nothing(browser, pages):
    for page, _ in map(pages.__getitem__, CASES):
        assert page.stat().st_size < LARGEST
        load(browser, page)
        browser.run("for (const tab of document.querySelectorAll('[role=tab]')) { tab.click();" + STILL + "}")
        outside = [url for url in browser.requests() if not url.startswith(("file:", "blob:", "data:"))]
        assert outside == []
        assert browser.complaints() == []
        assert "default-src 'none'" in page.read_text(encoding="utf-8")


DRAG = """
const input = document.getElementById(given[0]);
input.value = Number(input.value) + given[1];
window.costmodel.redraw = null;
input.dispatchEvent(new Event('input'));
while (!window.costmodel.redraw) await new Promise((done) => setTimeout(done, 2));
return window.costmodel.redraw;
"""


def test_dragging_changes_the_answer_says_so_and_comes_back(browser, pages):
    page, _ = pages["dense"]
    load(browser, page)
    before = browser.run("return document.getElementById('answer').textContent")
    for _ in range(15):
        browser.run(DRAG, "drag-rail-bandwidth", -20)
    assert browser.run("return document.getElementById('answer').textContent") != before
    words = browser.run("return document.getElementById('diff').textContent")
    assert re.match(r"rail bandwidth \S+: [\d.]+ s \S [\d.]+ s \(\+[\d.]+ %\) for the plan that was best", words)
    browser.run("""window.costmodel.redraw = null;
        document.querySelector('[aria-label="reset rail bandwidth"]').click();
        while (!window.costmodel.redraw) await new Promise((done) => setTimeout(done, 5));""")  # fmt: skip
    assert browser.run("return document.getElementById('answer').textContent") == before
    assert browser.run("return document.getElementById('diff').textContent") == ""


SAID = """["answer", "sure", "diff", "rows", "reading"].map((id) => document.getElementById(id).innerText)"""
AT_ONCE = f"""
const input = document.getElementById(given[0]), said = () => {SAID};
input.value = given[1];
window.costmodel.redraw = null;
input.dispatchEvent(new Event("input"));
const atOnce = said(), first = [...document.getElementById("chart").data[0].x];
while (!window.costmodel.redraw) await new Promise((done) => setTimeout(done, 2));
input.dispatchEvent(new Event("change"));
return [atOnce, said(), location.hash, first];
"""


@pytest.mark.parametrize(("tab", "slider", "place"), [
    ("time", "drag-rail-bandwidth", 200), ("frontier", "drag-device-memory-bandwidth", 300),
    ("memory", "drag-device-memory", 450),
])  # fmt: skip
def test_a_slider_is_followed_at_once_and_then_the_search_of_all_plans_stands(browser, pages, tab, slider, place):
    page, _ = pages["experts"]
    load(browser, page, f"#tab={tab}")
    browser.settle()
    still, drawn = browser.run(f"return {SAID}"), browser.run("return [...document.getElementById('chart').data[0].x]")
    at_once, settled, link, first = browser.run(AT_ONCE, slider, place)  # at once: in the task of the slider's own event
    assert at_once[0] != still[0] and at_once[2] and first != drawn
    load(browser, page, link)
    browser.settle()
    assert browser.run(f"return {SAID}") == settled


def test_a_link_is_a_question(browser, pages):
    page, _ = pages["dense"]
    load(browser, page)
    browser.run(DRAG, "drag-device-memory", -120)
    browser.run("document.getElementById('tab-memory').click()")
    state = browser.run("return [location.hash, document.getElementById('answer').textContent]")
    load(browser, page, state[0])
    assert browser.run("return [location.hash, document.getElementById('answer').textContent]") == state
    assert browser.run("return document.querySelector('[aria-selected=true]').textContent") == "Memory"


def test_the_back_button_takes_back_what_was_chosen_and_not_every_place_of_a_slider(browser, pages):
    page, _ = pages["dense"]
    load(browser, page)
    browser.driver.execute_cdp_cmd("Page.resetNavigationHistory", {})  # 50 entries are all it holds
    for tab in ("memory", "scaling"):
        browser.run(f"document.getElementById('tab-{tab}').click();" + STILL)
    for _ in range(3):
        browser.run(DRAG, "drag-rail-bandwidth", -20)
    for tab in ("Memory", "Time"):
        browser.driver.back()
        browser.comes_to("return document.querySelector('[aria-selected=true]')?.textContent", tab)
    assert browser.run("return document.getElementById('diff').textContent") == ""


def test_a_step_back_while_an_answer_is_worked_out_isnt_overwritten_by_its_address(browser, pages):
    page, _ = pages["dense"]
    load(browser, page)
    browser.run("document.getElementById('tab-memory').click();" + STILL)
    # The address is another at once, its event comes later: an answer that ends in between replaces the state.
    browser.run("""
        const input = document.getElementById('drag-rail-bandwidth');
        input.value = Number(input.value) - 20;
        input.dispatchEvent(new Event('input'));
        const gone = new Promise((done) => addEventListener('popstate', done, {once: true}));
        history.back();
        await gone;
        document.getElementById('link').click();""")
    browser.comes_to("return document.querySelector('[aria-selected=true]')?.textContent", "Time")
    assert browser.run("return location.hash") == ""


@pytest.mark.parametrize(("fragment", "hints"), [
    ("rail.bandwidth=fast&tab=foo", ("rail.bandwidth=fast: expected a number from", "tab=foo: expected one of time,")),
    ("chosen=99999&beside=-1", ("chosen=99999: expected a plan of this page", "beside=-1")),
    ("own={x&zeal=9", ("own={x", "zeal:")),
    ("price=1e9", ("price=1e9: expected a number from",)),
])  # fmt: skip
def test_a_link_with_a_wrong_value_says_so_in_a_line_and_is_answered_without_it(browser, pages, fragment, hints):
    page, _ = pages["dense"]
    load(browser, page)
    plain = browser.run("return document.getElementById('answer').textContent")
    load(browser, page, f"#{fragment}")
    wrong, answer = browser.run("return ['wrong', 'answer'].map((id) => document.getElementById(id).textContent)")
    assert all(hint in wrong for hint in hints) and "\n" not in wrong and answer == plain
    browser.run(DRAG, "drag-rail-bandwidth", -20)
    assert browser.run("return document.getElementById('wrong').textContent") == ""


TABLE = """return [...document.querySelectorAll('#numbers table')].map((table) => [...table.rows].map((row) =>
    [...row.cells].map((cell) => cell.textContent)))"""


def test_every_figure_can_be_read_as_a_table(browser, pages):
    page, what = pages["dense"]
    load(browser, page)
    browser.run("document.querySelector('#numbers summary').click();" + STILL)
    for tab in browser.run("return [...document.querySelectorAll('[role=tab]')].map((one) => one.id)"):
        browser.run("document.getElementById(given[0]).click();" + STILL, tab)
        tables = browser.run(TABLE)
        assert tables and all(len(rows) > 1 and len({len(row) for row in rows}) == 1 for rows in tables), tab
        if tab == "tab-time":
            best = what.candidates.first
            assert tables[0][0][:2] == ["series", "of"] and "step time [s]" in tables[0][0][2]
            name = next(row[1] for row in tables[0] if row[1].startswith(label(best.plan)))
            told = {row[0]: float(row[2]) for row in tables[0][1:] if row[1] == name}
            assert told["forward"] == pytest.approx(best.times["forward"], rel=5e-3)


OWN = """
for (const one of document.querySelectorAll('details')) one.open = true;
const labels = [...document.querySelectorAll('#ask label')];
const label = labels.find((one) => one.firstChild.textContent === given[0]);
const field = label.lastElementChild;
field.value = given[1];
window.costmodel.redraw = null;
field.dispatchEvent(new Event('change'));
while (!window.costmodel.redraw) await new Promise((done) => setTimeout(done, 2));
return [document.getElementById('wrong').textContent, document.querySelector('#rows tr.on').textContent];
"""


def test_a_plan_of_ones_own_is_evaluated_or_refused_in_words(browser, pages):
    page, _ = pages["dense"]
    load(browser, page)
    wrong, _ = browser.run(OWN, "micro-batch", "3")
    assert "micro_batch=3" in wrong or "micro-batches" in wrong
    assert browser.run("return document.body.classList.contains('stale')"), "what is shown answers another question"
    wrong, row = browser.run(OWN, "micro-batch", "1")
    assert wrong == "" and "yours" in row and not browser.run("return document.body.classList.contains('stale')")


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (768, 1024), (390, 844)])
def test_nothing_sticks_out_and_every_control_has_a_name(browser, pages, width, height):
    page, _ = pages["experts"]
    browser.resize(width, height)
    load(browser, page)
    assert browser.run("return document.documentElement.scrollWidth") <= width
    room, table = browser.run("return [...document.querySelectorAll('main > .scroll:not([hidden]), main table')].map((one) => "
                              "one.getBoundingClientRect().right)")  # fmt: skip
    assert table <= room + 1, "the table is cut"
    nameless = browser.run("""return [...document.querySelectorAll('input,select,button')].filter((one) =>
        !(one.labels?.length || one.textContent.trim() || one.getAttribute('aria-label'))).map((one) => one.outerHTML)""")
    assert nameless == []
    browser.resize(1440, 900)


@pytest.mark.parametrize("width", [1280, 768, 390])
def test_axe_finds_nothing_on_any_tab_no_word_of_a_chart_is_cut_and_errors_can_be_read(browser, pages, width):
    page, _ = pages["experts"]
    browser.resize(width, 900)
    load(browser, page)
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true;")
    browser.run(DRAG, "drag-rail-bandwidth", -150)
    found = {}
    for tab in browser.run("return [...document.querySelectorAll('[role=tab]')].map((one) => one.id)"):
        browser.run(f"document.getElementById(given[0]).click(); {STILL}", tab)
        found[tab] = [*barriers_in_all_colours(browser), *cut(browser)]
    wrong, _ = browser.run(OWN, "micro-batch", "3")
    assert wrong and browser.run("return document.body.classList.contains('stale')")
    found["what is grey beside an error"] = barriers_in_all_colours(browser)
    top = browser.run("""document.getElementById('answer').scrollIntoView();
        return document.getElementById('wrong').getBoundingClientRect().top""")  # fmt: skip
    browser.resize(1440, 900)
    assert len(found) == 8 and not any(found.values()), found
    assert 0.0 <= top < 900.0, "the error is in sight"


def test_keys_alone_move_tabs_and_sliders(browser, pages):
    from selenium.webdriver.common.keys import Keys

    page, _ = pages["dense"]
    load(browser, page)
    browser.run("document.getElementById('tab-time').focus()")
    browser.driver.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert browser.run("return document.querySelector('[aria-selected=true]').textContent") == "Memory"
    browser.run("document.getElementById('drag-rail-bandwidth').focus()")
    browser.driver.switch_to.active_element.send_keys(Keys.ARROW_LEFT * 12)
    browser.settle()
    assert "rail.bandwidth" in browser.run("return location.hash")


def as_asked(plan):
    """A plan as the page is asked for it."""
    fields = {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}


PLAYED = """
const got = await window.costmodel.timeline(given[0]);
return got.error ? got.error : [got.total, got.end.reduce((a, b) => a + b, 0), got.end.length];
"""
HELD = """
const got = await window.costmodel.timeline(given[0]);
return [0, got.ranks - 1].map((rank) => got.held(rank));
"""
MOVED = {"rail.bandwidth": 9e9, "nvlink.bandwidth": 60e9, "rail.latency": 4e-5}


def test_the_timeline_of_the_page_is_the_timeline_of_python(browser, pages, case):
    page, what = pages[case]
    model, cluster, framework, *_ = what.question
    ask(browser, page)
    split = {(one.pipeline_parallel, one.virtual_stages, one.micro_batches): one for one in what.candidates.plans}
    chosen = random.Random(case).sample([split[key] for key in sorted(split)], 12)
    slower = what.question.changed(MOVED).cluster
    for plan in (what.candidates.first.plan, *chosen):
        for changes, on in (({}, cluster), (MOVED, slower)):
            total, ends, count = browser.run(PLAYED, as_asked(plan) | changes)
            wanted = costmodel.timeline(model, on, plan, framework)
            assert [total, ends] == pytest.approx([wanted.total, wanted.end.sum()], rel=1e-9)
            assert count == len(wanted.end)


def test_what_ranks_hold_is_what_they_hold_in_python(browser, pages, case):
    page, what = pages[case]
    model, cluster, framework, *_ = what.question
    ask(browser, page)
    for plan in (what.candidates.first.plan, *what.candidates.plans[:40:8]):
        wanted = costmodel.timeline(model, cluster, plan, framework)
        got = browser.run(HELD, as_asked(plan))
        for (when, count), rank in zip(got, (0, wanted.schedule.ranks - 1), strict=True):
            moments, held = wanted.held_micro_batches(rank)
            assert when == pytest.approx([0.0, *moments], rel=1e-9, abs=1e-12)
            assert count == pytest.approx([0.0, *held], abs=1e-9)


def test_what_a_slider_changes_is_drawn_over_what_was_before_on_every_chart(browser, pages):
    page, _ = pages["dense"]
    load(browser, page)
    browser.run(DRAG, "drag-rail-bandwidth", -150)
    for tab in ("time", "memory", "frontier", "scaling", "sensitivity", "timeline"):
        browser.run("document.getElementById(`tab-${given[0]}`).click();" + STILL, tab)
        assert "before the change" in browser.run("return document.getElementById('legend').textContent"), tab
        room, wide = browser.run("""const box = (id) => document.querySelector(id).getBoundingClientRect().width;
            return [box('#chart'), box('#chart .main-svg')]""")  # fmt: skip
        assert wide == pytest.approx(room, abs=2.0), tab


def test_every_schedule_is_played_as_python_plays_it(browser, tmp_path):
    model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=8)
    what = costmodel.whatif(
        model, cluster, global_batch=32, seq_len=2048, tensor_parallel=1, context_parallel=1, pipeline_parallel=[1, 4, 8],
        schedule=list(SCHEDULES), micro_batch=1,
    )  # fmt: skip
    what.write_html(tmp_path / "page.html")
    load(browser, tmp_path / "page.html")
    played = {}
    for plan in what.candidates.plans:
        if (plan.schedule, plan.pipeline_parallel) in played:
            continue
        played[plan.schedule, plan.pipeline_parallel] = plan
        for waits in ({}, {"overlap_pipeline": False}):
            asked = dataclasses.replace(plan, **waits)
            got = browser.run(PLAYED, as_asked(asked))
            wanted = costmodel.timeline(model, cluster, asked, what.question.framework)
            assert got == pytest.approx([wanted.total, wanted.end.sum(), len(wanted.end)], rel=1e-9), asked
    assert len({schedule for schedule, _ in played}) >= 8


def test_the_sum_of_a_timeline_is_what_the_estimate_of_the_same_page_says(browser, pages, case):
    page, what = pages[case]
    ask(browser, page)
    plans = [one for one in what.candidates.plans if one.pipeline_parallel == 1][:5] + what.candidates.plans[:5]
    assert len(plans) == 10
    for plan in plans:
        asked = as_asked(plan) | {"rail.bandwidth": 2e10}
        total, busiest = browser.run("""const got = await window.costmodel.timeline(given[0]), busy = Array(got.ranks).fill(0);
            for (let e = 0; e < got.rank.length; e++) busy[got.rank[e]] += got.duration[e];
            return [got.total, Math.max(...busy)]""", asked)  # fmt: skip
        step = browser.run("return window.costmodel.evaluate(given[0])", asked)
        parts = step["parts"]
        assert busiest == pytest.approx(step["step_time_s"] - parts["bubble"] - parts["pipeline_exchange"], rel=1e-6)
        assert total == pytest.approx(step["step_time_s"], rel=1e-6 if plan.pipeline_parallel == 1 else 0.04)


def test_a_timeline_that_the_page_cannot_draw_is_said_in_words(browser, pages):
    page, what = pages["dense"]
    load(browser, page)
    plan = as_asked(what.candidates.first.plan)
    degrees = {"tensor_parallel": 4, "context_parallel": 1, "pipeline_parallel": 4, "data_parallel": 4, "expert_parallel": 1}
    other = plan | degrees | {"schedule": "zb-h1", "virtual_stages": 1, "micro_batch": 1, "zero_stage": 1}
    assert "plays no order of passes" in browser.run(PLAYED, other)
    assert "tensor_parallel=3" in browser.run(PLAYED, plan | {"tensor_parallel": 3})
    browser.run("document.getElementById('tab-timeline').click();" + STILL)
    words = browser.run("return document.getElementById('reading').textContent")
    assert re.search(r"one pipeline's step under \S+, \d+ micro-batches", words)
    assert browser.run("return document.querySelectorAll('#chart .scatterlayer path.js-fill').length") >= 2

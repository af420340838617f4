"""The page in a browser: everything that a visitor does, by mouse and by keys, without an error in the console.

Slow, and only where Chromium (or Chrome) with its driver is: ``pytest -m slow tests/app/test_page.py``. The time from a
slider's move to what it changes on the screen is printed by ``pytest -m slow -n 0 -s tests/app/test_page.py -k redraws_soon``.
"""

import importlib.util
import json
import os
import shutil
import statistics
import threading
from pathlib import Path

import pytest

pytest.importorskip("dash")
pytest.importorskip("selenium")

from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from costmodel import estimate
from costmodel.app.answer import answered, described, factors_of
from costmodel.app.server import make_app
from costmodel.app.state import SLIDERS, TABS, read_state
from costmodel.description.labels import label
from costmodel.evaluation.factors import scaled
from tests.browser import QUICKLY, STILL

BROWSER = os.environ.get("BROWSER_PATH") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (BROWSER and DRIVER), reason="no Chromium with its driver: apt-get install chromium chromium-driver"),
    pytest.mark.filterwarnings("ignore"),
]
WIDTHS = {"laptop": (1440, 900), "tablet": (1024, 768), "phone": (390, 844)}
SMALL = "model=llama3-8b&gpus=16&batch=64"


@pytest.fixture(scope="module")
def address():
    from werkzeug.serving import make_server

    server = make_server("127.0.0.1", 0, make_app().server, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join(10)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ("--headless=new", "--disable-gpu", "--window-size=1440,900"):
        options.add_argument(argument)
    if os.getuid() == 0:
        options.add_argument("--no-sandbox")
    folder = tmp_path_factory.mktemp("saved")
    options.add_experimental_option("prefs", {"download.default_directory": str(folder)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.saved = folder
    driver.set_script_timeout(600)  # against what never ends
    yield driver
    driver.quit()


class Page:
    """The page as a visitor has it."""

    def __init__(self, browser, address):
        self.browser, self.address = browser, address

    def open(self, query="", width="laptop", dark=False):
        wide, high = WIDTHS[width]
        self.browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": wide, "height": high, "deviceScaleFactor": 1, "mobile": width == "phone"},
        )
        self.coloured(dark)
        self.browser.get(f"{self.address}?{query}" if query else self.address)
        return self.drawn(1)

    def coloured(self, dark):
        """Have the system's colours be dark or light."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def awaits(self, script, *arguments):
        """What a script returns, awaited."""
        text = "const given = [...arguments], finish = given.pop(); (async () => { " + script + " })().then(finish)"
        return self.browser.execute_async_script(text, *arguments)

    def turns_to(self, tab):
        """Open a tab, and wait until its chart stands."""
        if self.find(f"#tab-{tab}").get_attribute("aria-selected") != "true":
            self.does(lambda: self.browser.execute_script("document.getElementById(arguments[0]).click()", f"tab-{tab}"))
        self.awaits(STILL)

    def drawn(self, count):
        """Wait until the page has been drawn so often."""
        WebDriverWait(self.browser, 60).until(lambda driver: self.draws >= count and not self.asking)
        return self

    def followed(self):
        """Wait until sliders are followed in the browser."""
        there = "return window.costmodelLive.ready && Boolean(document.querySelector('#chart .js-plotly-plot .main-svg'))"
        WebDriverWait(self.browser, 60).until(lambda driver: driver.execute_script(there))

    @property
    def draws(self):
        return self.browser.execute_script("return window.costmodel && window.costmodel.took ? window.costmodel.took.length : 0")

    @property
    def asking(self):
        return self.browser.execute_script("return document.body.classList.contains('asking')")

    def does(self, what):
        """Do something after which the page draws anew; returns the milliseconds that this took."""
        before = self.draws
        what()
        self.drawn(before + 1)
        return self.browser.execute_script("return window.costmodel.took.at(-1)")

    def types(self, selector, text):
        """Put a text in the place of what a field holds, and leave it."""
        self.does(lambda: self.find(selector).send_keys(Keys.CONTROL, "a", Keys.NULL, Keys.DELETE, text, Keys.TAB))

    def find(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector):
        return self.find(selector).text

    @property
    def query(self):
        return self.browser.execute_script("return location.search.slice(1)")


@pytest.fixture
def page(browser, address):
    browser.get_log("browser")
    yield Page(browser, address)
    wrong = [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    assert not wrong, wrong


def slide(page, name, moves):
    """Move a slider by the arrow keys."""
    page.does(lambda: page.find(f"#x-{name}").send_keys((Keys.ARROW_RIGHT if moves > 0 else Keys.ARROW_LEFT) * abs(moves)))


def test_the_page_loads_with_an_answer_and_from_its_own_server_alone(page):
    page.open()
    assert "a step with" in page.text("h1") and "P(fastest)" in page.text("#said p")
    assert len(page.browser.find_elements(By.CSS_SELECTOR, "#table tbody tr")) >= 5
    assert page.find("#chart .js-plotly-plot .barlayer")
    loaded = page.browser.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert loaded and all(name.startswith((page.address, "data:", "blob:")) for name in loaded)


def test_another_question_is_searched(page):
    page.open(SMALL)
    before = page.text("h1")
    page.types("[name=gpus]", "32")
    assert page.text("h1") != before and "gpus=32" in page.query
    page.find("#ask details:nth-of-type(3) summary").click()
    page.does(lambda: page.find("[name=tp]").send_keys("2", Keys.TAB))
    assert "TP2" in page.text("h1")


def test_a_slider_is_dragged_and_reset(page):
    page.open(SMALL)
    before = page.text("h1 b")
    slider = page.find("#x-inner")
    width = slider.size["width"]
    page.does(lambda: ActionChains(page.browser).drag_and_drop_by_offset(slider, -width // 3, 0).perform())
    WebDriverWait(page.browser, 20).until(lambda _: not page.asking and "nvlink bandwidth" in page.text("#diff"))
    assert page.text("h1 b") != before
    page.does(lambda: page.find("[data-slider=inner] .reset").click())
    assert page.text("h1 b") == before and page.text("#diff") == ""


def test_a_bad_config_is_refused_and_a_good_one_taken(page, tmp_path):
    page.open(SMALL)
    bad, good = tmp_path / "bad.json", tmp_path / "config.json"
    bad.write_text('{"model_type": "luck"}')
    good.write_text(json.dumps({
        "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32, "num_hidden_layers": 16,
        "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": True, "hidden_act": "silu", "rms_norm_eps": 1e-5,
        "_name_or_path": "ours-1b",
    }))  # fmt: skip
    page.find("#file").send_keys(str(bad))
    WebDriverWait(page.browser, 20).until(lambda _: "luck" in page.text("#wrong"))
    page.browser.execute_script(
        """const data = new DataTransfer(); data.items.add(new File(['[1'], 'config.json'));
        document.querySelector('#drop').dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true}));"""
    )
    WebDriverWait(page.browser, 20).until(lambda _: "not a JSON" in page.text("#wrong"))
    page.does(lambda: page.find("#file").send_keys(str(good)))
    assert page.text("#wrong") == "" and "ours-1b" in page.text("#own") and "ours-1b" in page.query
    page.does(lambda: page.find("#own button").click())
    assert "config" not in page.query


@pytest.mark.parametrize("width", WIDTHS)
def test_two_plans_and_two_clusters_stand_side_by_side(page, width):
    page.open(SMALL, width)
    compare = page.find("[data-do=compare]")
    page.does(compare.click)
    assert "beside=1" in page.query and compare.get_attribute("aria-pressed") == "true"
    page.does(lambda: page.find("#table tbody tr:nth-child(3) .plan").click())
    assert "beside=2" in page.query and "row" not in page.query and "Beside it" in page.text("#said")
    second = "#chart-beside .waterfalllayer, #chart-beside .barlayer"
    WebDriverWait(page.browser, 20).until(lambda _: page.find(second).is_displayed())
    page.does(lambda: page.find("#table tbody tr:nth-child(3) .plan").click())
    assert "row=2" in page.query and "beside=0" in page.query  # the two change places
    page.does(compare.click)
    assert "beside" not in page.query and compare.get_attribute("aria-pressed") == "false"
    page.does(lambda: page.find("[name=against]").send_keys("dgx-b200", Keys.TAB))
    assert "dgx-b200" in page.text("#said .beside") and compare.get_attribute("aria-pressed") == "true"


WRONG = {
    "gpus": ("sixty", "64.5", "0", "-8", "1e9", "9" * 30), "batch": ("1q", "0"), "seq": ("8q", "99999999"),
    "tp": ("two", "3,x", "0", "1;2"), "pp": ("-1", "1.5"), "zero": ("9", "two"), "recompute": ("some",), "mb": ("0",),
}  # fmt: skip


def test_a_wrong_input_is_said_in_one_line_and_loses_nothing(page):
    page.open(f"{SMALL}&x.inner=0.5")
    for summary in page.browser.find_elements(By.CSS_SELECTOR, "#ask details:not([open]) summary"):
        summary.click()
    shown = page.text("h1")
    for name, values in WRONG.items():
        field = page.find(f"[name={name}]")
        before = field.get_attribute("value")
        for value in values:
            page.types(f"[name={name}]", value)
            wrong = page.text("#wrong")
            assert 0 < len(wrong) < 260 and "\n" not in wrong, (name, value, wrong)
            assert field.get_attribute("value") == value and field.get_attribute("aria-invalid") == "true", (name, value)
            assert page.text("h1") == shown
            assert page.browser.execute_script("return document.body.classList.contains('stale')"), name
        page.types(f"[name={name}]", before)
        assert not page.browser.execute_script("return document.body.classList.contains('stale')")
        assert page.text("#wrong") == "" and page.text("h1") == shown and not field.get_attribute("aria-invalid"), name
    page.types("[name=gpus]", "")  # what is left empty is as it came
    assert page.find("[name=gpus]").get_attribute("value") == "64" and "gpus" not in page.query


def test_a_link_is_the_whole_question(page):
    page.open(f"{SMALL}&x.inner=0.5&tab=memory&row=1&sort=memory&tp=2,4")
    shown = {part: page.text(part) for part in ("h1", "#diff", "#heading", "#table")}
    link = page.browser.current_url
    page.browser.get("about:blank")
    page.browser.get(link)
    page.drawn(1)
    assert {part: page.text(part) for part in shown} == shown
    assert page.find("#x-inner").get_attribute("value") == "-1" and page.find("[name=tp]").get_attribute("value") == "2,4"


def test_a_bad_link_says_what_is_wrong_and_the_page_still_answers(page):
    page.open("gpus=none")
    assert "gpus" in page.text("#wrong")
    page.types("[name=gpus]", "128")
    assert page.text("#wrong") == "" and "a step with" in page.text("h1")


@pytest.mark.parametrize(
    ("kind", "name"), [("csv", "costmodel.csv"), ("html", "costmodel.html"), ("launch", "costmodel-megatron.args")]
)
def test_the_answer_is_saved(page, kind, name):
    page.open(SMALL)
    file = Path(page.browser.saved) / name
    if kind == "launch":
        page.find("#launch").send_keys("megatron", Keys.ENTER)
    else:
        page.find(f"[data-do={kind}]").click()
    WebDriverWait(page.browser, 40).until(lambda _: file.exists() and file.stat().st_size > 500)
    text = file.read_text(encoding="utf-8")
    assert text.startswith("rank,") if kind == "csv" else ("--num-layers 32" if kind == "launch" else "llama3-8b") in text
    file.unlink()


def test_keys_alone_are_enough(page):
    page.open(SMALL)
    keys = ActionChains(page.browser)
    reached = set()
    for _ in range(70):
        keys.send_keys(Keys.TAB).perform()
        active = page.browser.switch_to.active_element
        reached.add(active.get_attribute("name") or active.get_attribute("id") or active.get_attribute("data-set") or
                    active.get_attribute("data-do") or active.tag_name)  # fmt: skip
    assert {"model", "gpus", "cluster", "csv", "html", "link", "compare", "launch"} <= reached
    assert {"row=1", "tab-time", "panel", "x-inner", "x-efficiency"} <= reached
    slide(page, "inner", -4)
    assert "x.inner=0.7" in page.query
    page.does(lambda: page.find("#tab-time").send_keys(Keys.ARROW_RIGHT))
    assert page.browser.switch_to.active_element.get_attribute("id") == "tab-memory" and "tab=memory" in page.query


def barriers(page):
    """What axe-core finds fault with on the page as it is now."""
    package = importlib.util.find_spec("axe_playwright_python")  # of which only axe-core itself is used
    if package is None:
        pytest.skip("no axe-core: pip install axe-playwright-python")
    if not page.browser.execute_script("return Boolean(window.axe)"):
        page.browser.execute_script((Path(package.origin).parent / "axe.min.js").read_text(encoding="utf-8"))
    found = page.awaits(
        "const rules = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];"
        f"return (await axe.run(document, {{runOnly: rules, ...{QUICKLY}}})).violations"
    )
    return [(one["id"], one["help"], [node["html"][:200] for node in one["nodes"]][:4]) for one in found]


MEETING = """const chart = document.querySelector('#chart-beside').getBoundingClientRect();
    const boxes = [...document.querySelectorAll('#chart-beside :is(.waterfalllayer, .yaxislayer-above) text')].map(one => {
        const box = one.getBoundingClientRect();
        return [one.textContent, box.left, box.right, box.top + 3, box.bottom - 3];
    }).filter(([, left, right]) => right > left);
    if (!boxes.length) return ['nothing is drawn'];
    const cut = boxes.filter(([, left, right]) => left < chart.left - 2 || right > chart.right + 2);
    const met = boxes.filter((one, at) => boxes.some((other, place) => place !== at && one[1] < other[2] - 1 &&
        other[1] < one[2] - 1 && one[3] < other[4] && other[3] < one[4]));
    return [...cut, ...met].map(([text]) => text)"""


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_in_the_way_of_anybody(page, width):
    page.open(f"{SMALL}&x.inner=0.5&beside=2&price=2", width)
    for summary in page.browser.find_elements(By.CSS_SELECTOR, "#ask details:not([open]) summary"):
        summary.click()
    found = {}
    for turn, tab in enumerate(TABS, list(WIDTHS).index(width)):  # each two of width, tab and colours
        page.coloured(bool(turn % 2))
        page.turns_to(tab)
        found[tab] = barriers(page)
        if tab == "time":
            assert not page.awaits(MEETING), "words of a waterfall"
    assert len(found) == 6 and not any(found.values()), found


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_what_is_grey_beside_an_error_can_still_be_read(page, dark):
    page.open(f"{SMALL}&x.inner=0.5", dark=dark)
    page.types("[name=gpus]", "sixty")
    assert page.browser.execute_script("return document.body.classList.contains('stale')") and page.text("#wrong")
    found = barriers(page)
    assert not found, found


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_overlaps_or_is_cut(page, width):
    page.open(f"{SMALL}&x.inner=0.5", width)
    for tab in TABS:
        page.turns_to(tab)
        nothing_overlaps_or_is_cut(page, tab)


def nothing_overlaps_or_is_cut(page, tab):
    """Hold that all that is shown stands inside the window and clear of the rest."""
    beyond = page.browser.execute_script(
        """const wide = document.documentElement.clientWidth;
        return [document.documentElement.scrollWidth > wide ? 'page' : '', ...Array.from(document.querySelectorAll(
        'button, label, select, input, td, th, h1, h2, p, summary, #chart text')).filter(one => {
            const box = one.getBoundingClientRect();
            return !one.closest('.unseen') && box.width > 1 && (box.right > wide + 1 || box.left < -1);
        }).map(one => one.outerHTML.slice(0, 120))].filter(Boolean)"""
    )
    assert not beyond, tab
    cut = page.browser.execute_script(
        """const chart = document.querySelector('#chart').getBoundingClientRect();
        return Array.from(document.querySelectorAll('#chart text')).filter(one => {
            const box = one.getBoundingClientRect();
            return one.textContent && box.width && (box.left < chart.left - 2 || box.right > chart.right + 2 ||
                box.top < chart.top - 2 || box.bottom > chart.bottom + 2);
        }).map(one => one.textContent)"""
    )
    assert not cut, tab
    lines = page.browser.execute_script(
        """const texts = document.querySelectorAll('#chart .yaxislayer-above text, #chart .xaxislayer-above text');
        return Array.from(texts).map(one => {
            const box = one.getBoundingClientRect();
            return [one.textContent, box.left, box.right, box.top, box.bottom];
        }).filter(box => box[2] > box[1])"""
    )
    meeting = [
        (one[0], other[0]) for place, one in enumerate(lines) for other in lines[place + 1 :]
        if min(one[2], other[2]) - max(one[1], other[1]) > 1 and min(one[4], other[4]) - max(one[3], other[3]) > 6
    ]  # fmt: skip
    assert not meeting, tab
    blocks = ["#ask", ".say", "#table", "#tabs", "#panel", "#diff", ".strip"]
    boxes = [(name, page.browser.execute_script(
        "const box = document.querySelector(arguments[0]).getBoundingClientRect();"
        "return [box.left, box.top, box.right, box.bottom]", name)) for name in blocks]  # fmt: skip
    for place, (one, a) in enumerate(boxes):
        for other, b in boxes[place + 1 :]:
            apart = a[2] <= b[0] + 1 or b[2] <= a[0] + 1 or a[3] <= b[1] + 1 or b[3] <= a[1] + 1
            assert apart, (tab, one, other)


MOVES = """const slider = document.querySelector(`#x-${given[0]}`), span = slider.max - slider.min, took = [];
    for (let place = 0; place < 10; place++) {
        const before = window.costmodel.followed.length;
        slider.value = Number(slider.min) + span * (0.15 + 0.07 * place);
        slider.dispatchEvent(new Event('input', {bubbles: true}));
        while (window.costmodel.followed.length === before) await new Promise(done => setTimeout(done, 2));
        took.push(window.costmodel.followed.at(-1));
    }
    slider.dispatchEvent(new Event('change', {bubbles: true}));
    return took"""


def test_a_slider_redraws_soon_after_it_is_moved(page, capsys):
    for tab in TABS:
        if tab == TABS[0]:
            page.open()
        page.turns_to(tab)
        page.followed()
        page.browser.execute_script("document.querySelector('#x-price').closest('details').open = true")
        for name in (*SLIDERS, "price") if tab == "time" else ("inner", "memory"):
            if not page.find(f"#x-{name}").size["width"]:  # a slider of what the question lacks, or of a part that is folded
                continue
            took = []
            page.does(lambda name=name, took=took: took.extend(page.awaits(MOVES, name)))
            with capsys.disabled():
                middle, longest = statistics.median(took), max(took)
                late = page.browser.execute_script("return window.costmodel.took.at(-1)")
                print(f"\n{tab}, {name}: followed in {middle:.0f} ms (most {longest:.0f}), searched in {late:.0f} ms", end="")


FOLLOWED = {
    "dense": ("model=llama3-8b&gpus=16&batch=64", {"inner": 0.5, "middle": 2.0, "latency": 4.0, "memory": 1.5}),
    "experts": ("model=mixtral-8x7b&gpus=16&batch=64", {"inner": 0.25, "efficiency": 0.5, "imbalance": 1.7}),
    "recomputed in part": ("model=mixtral-8x7b&gpus=64&batch=512&seq=4096", {"inner": 0.25}),
    "adapter": ("model=llama3-8b&device=rtx-4090&gpus=8&batch=64&seq=2048&adapter=lora", {"memory": 0.8, "inner": 3.0}),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLLOWED)
def test_what_follows_a_slider_in_the_browser_is_what_the_library_says(page, name):
    query, factors = FOLLOWED[name]
    page.open(query + "&x.inner=0.3")  # the plans that lead then are priced under other sliders
    page.followed()
    rows = page.browser.execute_script("return window.costmodelLive.priced(arguments[0])", factors)
    state = read_state(query + "".join(f"&x.{slider}={factor}" for slider, factor in factors.items()))
    answer, before = answered(read_state(query + "&x.inner=0.3")), described(read_state(query))
    model, cluster = scaled(*described(state), factors_of(state, *described(state)))
    for row, one in zip(rows, answer.found.ranked, strict=False):
        asked = estimate(model, cluster, one.plan, one.framework, fit_probability=one.required_probability)
        assert row["step_time_s"] == pytest.approx(asked.step_time, rel=1e-9)
        assert row["peak_memory_bytes"] == pytest.approx(float(asked.memory.total), rel=1e-9)
        assert row["limit"] == pytest.approx(asked.memory_limit, rel=1e-9)
        still = estimate(*before, one.plan, one.framework)
        assert row["before"]["step_time_s"] == pytest.approx(still.step_time, rel=1e-9) and row["name"] == label(one.plan)
        assert row["parts"] == pytest.approx(asked.times, rel=1e-9, abs=1e-12 * asked.step_time)


def test_a_slider_is_followed_before_the_server_has_answered_and_its_answer_stands_then(page):
    page.open(SMALL)
    page.followed()
    before = {part: page.text(part) for part in ("h1 b", "#table", "#diff")}
    drawn = "const drawn = document.querySelector('#chart .js-plotly-plot').data.filter(one => one.name === 'forward')[0].x[0];"
    forward = page.browser.execute_script(f"{drawn} return drawn")
    there = page.browser.execute_script(
        f"""const slider = document.querySelector('#x-efficiency'); slider.value = -1;
        slider.dispatchEvent(new Event('input', {{bubbles: true}})); {drawn}
        return {{head: document.querySelector('h1 b').textContent, diff: document.querySelector('#diff').textContent, drawn,
            output: document.querySelector('[data-slider=efficiency] output').textContent}}"""
    )  # of the same task: no answer of the server can have come
    assert there["head"] != before["h1 b"] and there["drawn"] > 1.5 * forward
    assert there["output"].startswith("0.5\N{MULTIPLICATION SIGN}") and "efficiency 0.5" in there["diff"]
    WebDriverWait(page.browser, 20).until(lambda _: page.text("#diff").startswith("Half the efficiency"))
    page.does(lambda: page.find("[data-slider=efficiency] .reset").click())
    WebDriverWait(page.browser, 20).until(lambda _: not page.text("#diff"))
    assert {part: page.text(part) for part in before} == before


def test_a_slider_moved_and_moved_back_before_it_rests_leaves_the_answer_as_it_was(page):
    page.open(SMALL)
    page.followed()
    before = page.text("#said"), page.text("#table")
    page.browser.execute_script(
        """const slider = document.querySelector('#x-efficiency');
        for (const value of [-1, 0]) { slider.value = value; slider.dispatchEvent(new Event('input', {bubbles: true})); }"""
    )
    assert (page.text("#said"), page.text("#table")) == before and not page.text("#diff")


DRAWN = """const graph = document.querySelector('#chart .js-plotly-plot'), found = {};
    for (const {name, customdata = [], x} of graph.data)
        customdata.forEach(([what], row) => { found[`${name} of ${what}`] = x[row]; });
    for (const {y0} of graph.layout.shapes) found.limit = y0;
    return found;"""


@pytest.mark.parametrize(("tab", "slider"), [("sensitivity", "inner"), ("sensitivity", "efficiency"), ("memory", "memory")])
def test_a_chart_that_followed_a_slider_is_as_the_server_draws_it(page, tab, slider):
    page.open(f"{SMALL}&tp=2&pp=1&cp=1&mb=1&zero=1&recompute=none&tab={tab}")
    page.followed()
    before = page.awaits(DRAWN)
    followed = page.awaits(
        "const slider = document.querySelector(given[0]); slider.value = -0.5;"
        "slider.dispatchEvent(new Event('input', {bubbles: true}));" + DRAWN, f"#x-{slider}",
    )  # fmt: skip
    WebDriverWait(page.browser, 30).until(lambda _: "takes" in page.text("#diff") and not page.asking)
    page.awaits(STILL)
    assert followed == pytest.approx(page.awaits(DRAWN), rel=1e-6) != pytest.approx(before, rel=1e-3)

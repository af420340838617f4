"""From a slider's move to what it changes on the screen, of every slider on every view of every page, as a table.

    pytest tests/benchmarks/test_pages.py --benchmark-only -n 0 -s
"""

import functools
import http.server
import statistics
import threading
from contextlib import ExitStack, contextmanager

import pytest

import costmodel
from costmodel.page.site import build
from tests.browser import STILL, opened

DENSE, EXPERTS = ("llama3-70b", "dgx-h100", 64), ("mixtral-8x7b", "hgx-h200", 16)
SHORTLY = "const shortly = () => new Promise((done) => setTimeout(done, 20)); "
READY = {
    "app": SHORTLY + "while (!window.costmodelLive?.ready || document.querySelector('#answer').ariaBusy !== 'false') "
    "await shortly();",
    "page": SHORTLY + "while (!window.costmodel?.ready) await shortly(); await window.costmodel.ready; "
    "await window.costmodel.standing;",
}
MOVES = """const slider = document.getElementById(given[0]), least = Number(slider.min), most = Number(slider.max), took = [];
    for (const share of [0.3, 0.37, 0.45, 0.4, 0.52, 0.6]) {
        const since = performance.now();
        slider.value = least + share * (most - least);
        slider.dispatchEvent(new Event('input', {bubbles: true}));
        await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
        took.push(performance.now() - since);
    }
    return took;"""
BACK = """const slider = document.getElementById(given[0]);
    slider.value = given[1];
    for (const name of ['input', 'change']) slider.dispatchEvent(new Event(name, {bubbles: true}));
    await new Promise((done) => setTimeout(done, 300));"""
SHOWN = """return [...document.querySelectorAll('main input[type=range]')].filter((one) => one.offsetParent)
    .map((one) => [one.id, one.value]);"""
TABS = "return [...document.querySelectorAll('[role=tab]')].map((one) => one.id)"
TURN = "document.getElementById(given[0]).click(); await new Promise((done) => setTimeout(done, 150));"


@contextmanager
def served(server):
    """The address of a server, for as long as the block lasts."""
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def pages(folder, stack):
    """What each page is called, by what it is ready, and its address."""
    from werkzeug.serving import make_server

    from costmodel.app.server import make_app

    app = stack.enter_context(served(make_server("127.0.0.1", 0, make_app().server, threaded=True)))
    build(folder / "site", [DENSE[0], EXPERTS[0]], [DENSE[1], EXPERTS[1]])
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder / "site"))
    handler.func.log_message = lambda *_: None
    site = stack.enter_context(served(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)))
    for model, cluster, gpus in (DENSE, EXPERTS):
        what = costmodel.whatif(model, cluster, gpus=gpus, global_batch=16 * gpus, seq_len=4096)
        what.write_html(folder / f"{model}.html")
        asked = f"?model={model}&cluster={cluster}&gpus={gpus}&batch={16 * gpus}"
        yield f"app, {model}", READY["app"], f"{app}{asked}"
        yield f"one file, {model}", READY["page"], (folder / f"{model}.html").as_uri()
        yield f"site, {model}", READY["page"], f"{site}index.html{asked}"


def computed(browser):
    """Seconds that the page's own thread has computed for."""
    told = browser.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return next(one["value"] for one in told if one["name"] == "TaskDuration")


def redraws(browser, name, ready):
    """A line for each view: what the slowest slider takes to be followed, on the clock and of the page's own thread."""
    for tab in browser.run(TABS):
        browser.run(f"{TURN} {ready} {STILL}", tab)
        took, own, sliders = {}, {}, browser.run(SHOWN)
        for slider, value in [sliders[0], *sliders]:  # the first once more, so that all is warm
            before = computed(browser)
            took[slider] = statistics.median(browser.run(MOVES, slider))
            own[slider] = 1000.0 * (computed(browser) - before) / 6
            browser.run(f"{BACK} {ready}", slider, value)
        slowest = max(own, key=own.get)
        view = f"{name:24} {tab.removeprefix('tab-'):12} {slowest:28}"
        yield f"{view} {own[slowest]:6.0f} ms of its own, {took[slowest]:6.0f} in all"


def test_a_slider_is_followed(benchmark, tmp_path, capsys):
    """What a move takes on the page's own thread says it whatever else the machine does; the clock counts the frame, too."""
    pytest.importorskip("dash")

    def measure():
        with ExitStack() as stack, opened() as browser:
            browser.driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
            for name, ready, address in pages(tmp_path, stack):
                browser.visit(address)
                browser.run(ready + STILL)
                for line in redraws(browser, name, ready):
                    with capsys.disabled():
                        print(line, flush=True)

    benchmark.pedantic(measure, rounds=1)

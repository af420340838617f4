"""A site on a host of files: the library's digits in Chromium, little to load before the answer, the question in the address."""

from __future__ import annotations

import functools
import http.server
import random
import threading

import pytest

import costmodel
from costmodel.page.onefile import SEQUENCES
from costmodel.page.site import build
from tests.browser import opened
from tests.page.questions import asked_of_library, difference, drawn

pytestmark = pytest.mark.slow
FIRST_PAINT = 1_000_000


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A host of files that logs nothing."""

    def log_message(self, *_) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder, its address, and what was built."""
    folder = tmp_path_factory.mktemp("site")
    built = build(folder, ["llama3-8b"], ["dgx-h100", "gtx-1080-ti-node"], workers=2)
    host = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=host.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{host.server_port}/", built
    host.shutdown()
    host.server_close()


def test_a_page_of_the_site_gives_the_digits_of_python_and_loads_little_before_its_answer(site):
    folder, address, built = site
    assert not built[0].refused
    page = folder / built[0].file
    before = [page, *(folder / "shared" / name for name in ("page.css", "formulas.js", "timeline.js", "charts.js", "page.js"))]
    assert sum(one.stat().st_size for one in before) < FIRST_PAINT
    model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100")
    cluster = cluster.with_gpus(cluster.gpus_per_node)
    what = costmodel.whatif(model, cluster, global_batch=SEQUENCES * cluster.gpus, seq_len=4096)
    _, _, framework, plan, _ = what.question
    chance = random.Random(1)
    questions = [drawn(model, cluster, chance) for _ in range(150)]
    wanted = [asked_of_library(model, cluster, plan, framework, changes) for changes in questions]
    assert sum("error" not in answer for answer in wanted) > 20
    with opened() as browser:
        browser.visit(address + built[0].file)
        browser.run("""while (!window.costmodel?.ready) await new Promise((done) => setTimeout(done, 10));
            await window.costmodel.ready;
            while (!document.querySelector("#chart .main-svg")) await new Promise((done) => setTimeout(done, 10))""")  # fmt: skip
        got = browser.run("return given[0].map((one) => window.costmodel.evaluate(one))", questions)
        assert not [one for one, mine, its in zip(questions, wanted, got, strict=True) if difference(mine, its)]
        ranked = browser.run("return (await window.costmodel.search({})).ranked.map((one) => one.step_time_s)")
        assert ranked == pytest.approx([one.step_time for one in what.candidates.found.ranked], rel=1e-9)
        loaded = [one for one in browser.requests() if not one.startswith(("data:", "blob:"))]
        assert all(one.startswith(address) for one in loaded)  # nothing from elsewhere
        assert loaded.index(address + "shared/plotly.min.js") == max(map(loaded.index, loaded))  # when there is something to draw
        assert browser.complaints() == []
        browser.visit(address + "index.html")
        links = browser.run("return [...document.links].map((one) => one.href)")
        assert address + built[0].file in links
        assert browser.complaints() == []

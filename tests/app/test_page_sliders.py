"""Sliders of the page in a browser: what follows them at once is what the library says, and then the server's answer stands."""

import pytest

pytest.importorskip("dash")
pytest.importorskip("selenium")

from costmodel import estimate
from costmodel.app.answer import answered, described, factors_of
from costmodel.app.state import SLIDERS, read_state
from costmodel.description.labels import label
from costmodel.evaluation.factors import scaled
from tests.app.visits import BROWSED, SMALL
from tests.browser import STILL

pytestmark = [pytest.mark.slow, *BROWSED]


FOLLOWED = {
    "dense": ("model=llama3-8b&gpus=16&batch=64", {"inner": 0.5, "middle": 2.0, "latency": 4.0, "memory": 1.5}),
    "experts": ("model=mixtral-8x7b&gpus=16&batch=64", {"inner": 0.25, "efficiency": 0.5, "imbalance": 1.7}),
    "recomputed in part": ("model=mixtral-8x7b&gpus=64&batch=512&seq=4096", {"inner": 0.25}),
    "offload": ("model=llama3-70b&gpus=16&batch=64&seq=4096&oo=1.0&ao=0.5", {"inner": 0.5, "memory": 1.2}),
    "adapter on experts": ("model=mixtral-8x7b&gpus=8&batch=64&adapter=qlora&mb=1,2", {"efficiency": 0.7, "imbalance": 1.3}),
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
    assert there["output"].startswith("0.5\N{MULTIPLICATION SIGN}") and there["diff"].startswith("Half the efficiency")
    assert page.answered().text("#diff").startswith("Half the efficiency")
    page.does(lambda: page.find("[data-slider=efficiency] .reset").click())
    assert not page.text("#diff") and {part: page.text(part) for part in before} == before


def test_a_slider_moved_and_moved_back_before_it_rests_leaves_the_answer_as_it_was(page):
    page.open(SMALL)
    page.followed()
    before = page.text("#said"), page.text("#table")
    page.browser.execute_script(
        """const slider = document.querySelector('#x-efficiency');
        for (const value of [-1, 0]) { slider.value = value; slider.dispatchEvent(new Event('input', {bubbles: true})); }"""
    )
    assert (page.text("#said"), page.text("#table")) == before and not page.text("#diff")


MOVED = """const slider = document.querySelector(`#x-${given[0]}`); slider.value = given[1];
    slider.dispatchEvent(new Event('input', {bubbles: true}));"""
WORDS = """const text = (selector) => document.querySelector(selector).textContent;
    return {moved: text('#diff').split(':')[0], output: text(`[data-slider=${given[0]}] output`)}"""


def test_a_moved_slider_is_in_the_same_words_before_and_after_the_server_has_answered(page):
    page.open("model=mixtral-8x7b&gpus=16&batch=64&tp=2&pp=2&cp=1&mb=1&zero=1")
    page.followed()
    for name in SLIDERS:
        if not page.find(f"#x-{name}").is_displayed():
            continue
        ends = [float(page.find(f"#x-{name}").get_attribute(end)) for end in ("min", "max")]
        for value in (0.8 * ends[0], ends[1]):
            at_once = page.awaits(f"{MOVED} {WORDS}", name, value)
            assert page.answered().awaits(WORDS, name) == at_once, (name, value)


def test_where_nothing_fits_any_more_the_page_says_so_at_once_and_the_server_too(page):
    page.open(SMALL)
    page.followed()
    before = {part: page.text(part) for part in ("#said", "#table", "#diff")}
    at_once = page.awaits(f"{MOVED} return ['h1', '#diff'].map((part) => document.querySelector(part).textContent)", "memory", -3)
    assert at_once[0].endswith("does not fit") and at_once[1].endswith("no plan on show fits any more")
    page.answered()
    assert page.text("h1").startswith("Nothing fits")
    assert page.text("#diff") == "0.125 times the GPU memory: nothing fits any more"
    page.does(lambda: page.find("[data-slider=memory] .reset").click())
    assert {part: page.text(part) for part in before} == before


DRAWN = """const graph = document.querySelector('#chart .js-plotly-plot'), found = {};
    for (const {name, customdata, x, y, mode} of graph.data) {
        if (customdata) customdata.forEach((what, row) => { found[`${name} of ${what}`] = x[row]; });
        else if (mode && mode !== 'markers' && name !== 'before the change')
            x.forEach((at, place) => { found[`${name} at ${place}`] = [at, y[place]]; });
        if (name === 'fastest that fits') found[name] = [x[0], y[0]];
    }
    for (const {y0} of graph.layout.shapes ?? []) found.limit = y0;
    return found;"""


@pytest.mark.parametrize(("tab", "slider"), [
    ("sensitivity", "inner"), ("sensitivity", "efficiency"), ("memory", "memory"), ("frontier", "middle"),
    ("scaling", "efficiency"),
])  # fmt: skip
def test_a_chart_that_followed_a_slider_is_as_the_server_draws_it(page, tab, slider):
    page.open(f"{SMALL}&tp=2&pp=1&cp=1&mb=1&zero=1&recompute=none&tab={tab}")
    page.followed()
    before = page.awaits(DRAWN)
    followed = page.awaits(f"{MOVED} {DRAWN}", slider, 0.3 if slider == "memory" else -0.3)  # with less of it none might fit
    page.answered().awaits(STILL)
    assert "takes" in page.text("#diff")
    drawn = page.awaits(DRAWN)
    assert followed.keys() == drawn.keys() and followed != before
    for name, value in followed.items():
        assert value == pytest.approx(drawn[name], rel=1e-6), name


def test_the_timeline_follows_a_slider_as_the_server_draws_it(page):
    page.open(f"{SMALL}&tp=1&pp=4&cp=1&mb=1&zero=1&recompute=none&dp=4&tab=timeline")
    page.followed()
    still = page.text("#heading h2")
    held = """const held = document.querySelector('#chart .js-plotly-plot').data.filter(({name}) => name.startsWith('held by'));
        const [plan, heading] = ['h1', '#heading h2'].map((part) => document.querySelector(part).innerText);
        return [plan, heading, ...held.map(({name, y}) => [name, Math.max(...y)])];"""
    followed = page.awaits(f"{MOVED} {held}", "efficiency", -0.1)  # so little that the best plan stays the best
    page.answered().awaits(STILL)
    drawn = page.awaits(held)
    assert followed[:2] == drawn[:2] and still not in followed and len(followed) == 6
    assert dict(followed[2:]) == pytest.approx(dict(drawn[2:]), rel=1e-9)

"""The page in a browser at all widths and in both colours: nothing is cut, overlaps, or is in the way of anybody."""

import pytest

pytest.importorskip("dash")
pytest.importorskip("selenium")

from selenium.webdriver.common.by import By

from costmodel.app.state import TABS
from tests.app.visits import BROWSED, SMALL, WIDTHS
from tests.browser import barriers

pytestmark = [pytest.mark.slow, *BROWSED]


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
    for summary in page.browser.find_elements(By.CSS_SELECTOR, "details:not([open]) summary"):
        summary.click()
    found = {}
    for turn, tab in enumerate(TABS, list(WIDTHS).index(width)):  # each two of width, tab and colours
        page.window.coloured(bool(turn % 2))
        page.turns_to(tab)
        found[tab] = barriers(page.window)
        if tab == "time":
            assert not page.awaits(MEETING), "words of a waterfall"
    assert len(found) == 6 and not any(found.values()), found


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_what_is_grey_beside_an_error_can_still_be_read(page, dark):
    page.open(f"{SMALL}&x.inner=0.5", dark=dark)
    page.types("[name=gpus]", "sixty")
    assert page.browser.execute_script("return document.body.classList.contains('stale')") and page.text("#wrong")
    found = barriers(page.window)
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

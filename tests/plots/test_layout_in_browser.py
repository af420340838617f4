"""No legend lies over words, and no word runs off its figure: measured in a browser, from a window's width to a phone's."""

import pytest

pytest.importorskip("plotly")

from costmodel.plots import gallery
from costmodel.plots.page import write_page
from tests.browser import opened

pytestmark = pytest.mark.slow
FAULTS = """
while (document.querySelectorAll('.main-svg').length < given[0]) await new Promise((done) => setTimeout(done, 50));
await new Promise((done) => setTimeout(done, 600));
const faults = [], name = (one) => one.layout.meta?.name ?? '';
const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2
  && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2;
if (document.documentElement.scrollWidth > innerWidth) faults.push(`the page is ${document.documentElement.scrollWidth} wide`);
for (const figure of document.querySelectorAll('.plotly-graph-div')) {
  const edge = figure.getBoundingClientRect(), box = (one) => one.getBoundingClientRect();
  const all = (kind) => [...figure.querySelectorAll(kind)];
  const legends = all('.legend > .bg'), texts = all('.xtitle, .ytitle, .gtitle, .xtick text');
  for (const legend of legends) for (const text of texts)
    if (meet(box(legend), box(text))) faults.push(`${name(figure)}: the legend lies over "${text.textContent}"`);
  for (const one of [...texts, ...all('.ytick text, .legendtext')]) {
    const at = box(one), over = Math.max(edge.left - at.left, at.right - edge.right, edge.top - at.top, at.bottom - edge.bottom);
    if (at.width && over > 1)
      faults.push(`${name(figure)}: "${one.textContent}" runs off`);
  }
}
return faults;
"""


@pytest.fixture(scope="module")
def browser():
    with opened() as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    figures = []
    for name, draw in gallery.FIGURES.items():
        figures.append(draw().update_layout(meta={"name": name}))
    path = tmp_path_factory.mktemp("figures") / "gallery.html"
    write_page(path, "Figures", figures)
    return path


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_no_legend_lies_over_words_and_no_word_runs_off(browser, page, width):
    browser.resize(width, 900)
    browser.open(page)
    assert browser.run(FAULTS, len(gallery.FIGURES)) == []


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_a_report_and_the_figures_of_an_answer_are_whole_at_any_width(browser, run, tmp_path, width):
    asked = ("llama3-8b", "--cluster", "dgx-h100", "--gpus", "16", "--global-batch", "64", "--seq-len", "8192")
    run("report", *asked, "-o", "report.html")
    run("estimate", *asked, "--tensor-parallel", "2", "--html", "estimate.html")
    browser.resize(width, 900)
    for name in ("report.html", "estimate.html"):
        browser.open(tmp_path / name)
        assert browser.run(FAULTS, 4) == [], name

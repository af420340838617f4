"""The static site, built with every warning an error."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx")
pytest.importorskip("myst_nb")

from costmodel.compilation.sheets import formula_names
from costmodel.page.site import build, take_book

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(  # libraries' deprecations are no warnings of the site
        [sys.executable, "-m", "docs", "site", "-o", str(folder)], cwd=ROOT, capture_output=True, text=True, timeout=1800,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_every_formula_has_a_page_with_its_mathematics_or_what_it_calls(site):
    for name in formula_names():
        page = (site / "formulas" / f"{name}.html").read_text(encoding="utf-8")
        assert "<math" in page or "It calls" in page, name


def test_every_chapter_and_page_is_there(site):
    for name in ("index", "notebooks/README", "notebooks/tour", "notebooks/gallery", "docs/modelled", "api/index"):
        assert (site / f"{name}.html").stat().st_size > 2_000


def test_a_reader_loads_nothing_from_elsewhere(site):
    for path in site.rglob("*.html"):
        page = re.sub(r"<script>Plotly.*?</script>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        loaded = re.findall(r"<(?:script|img|link|iframe)\b[^>]*?\b(?:src|href)=\"(https?:)?//[^\"]*\"", page)
        assert not loaded, path


def test_the_page_that_answers_and_the_book_lead_to_each_other(site, tmp_path):
    page = (site / "formulas" / "index.html").read_text(encoding="utf-8")
    assert 'href="../what-if/index.html"' in page and (site / "what-if" / "index.html").is_file()
    build(tmp_path, ["llama3-8b"], ["dgx-h100"], book=take_book(tmp_path, site))
    for folder in (site / "what-if", tmp_path):
        beside = re.search(r'"beside":(\[\[.*?\]\])', (folder / "shared" / "catalogue.js").read_text(encoding="utf-8"))
        assert len(json.loads(beside[1])) == 3 and all((folder / address).is_file() for _, address in json.loads(beside[1]))
    assert "../../index.html" in (tmp_path / "book" / "what-if" / "index.html").read_text(encoding="utf-8")

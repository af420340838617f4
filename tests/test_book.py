"""The book as it is committed: a question at each head, a conclusion at each end, outputs, images beside figures."""

import base64
import json
import re
from pathlib import Path

import pytest

from costmodel.plots.gallery import FIGURES

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "notebooks"
PLOTLY, IMAGE = "application/vnd.plotly.v1+json", "image/png"
LARGEST = 50_000
"""Characters of text in an output."""


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def source(cell):
    return "".join(cell["source"])


def outputs(notebook):
    return [output for cell in notebook["cells"] for output in cell.get("outputs", [])]


def text_of(value):
    return value if isinstance(value, str) else "".join(value) if isinstance(value, list) else json.dumps(value)


chapters = pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)


@chapters
def test_a_question_stands_at_the_head(path):
    title, asked = source(read(path)["cells"][0]).split("\n\n")[:2]
    assert re.fullmatch(r"# \S.*", title)
    assert re.fullmatch(r"\*[^*]+\?\*", asked, re.DOTALL)


@chapters
def test_a_conclusion_stands_at_the_end(path):
    cells = read(path)["cells"]
    place = max(place for place, cell in enumerate(cells) if cell["cell_type"] == "markdown")
    _, heading, said = source(cells[place]).rpartition("## Conclusion")
    assert heading
    after = [text_of(output["data"]["text/markdown"]) for output in outputs({"cells": cells[place:]})]
    assert len(said + "".join(after)) > 80


@chapters
def test_cells_were_run_once_from_top_to_bottom_and_nothing_failed(path):
    notebook = read(path)
    counts = [cell["execution_count"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1))
    for output in outputs(notebook):
        assert output["output_type"] != "error"
        assert output.get("name") != "stderr", output["text"]


@chapters
def test_an_image_stands_beside_each_figure(path):
    for output in outputs(read(path)):
        data = output.get("data", {})
        if PLOTLY in data:
            assert base64.b64decode(text_of(data[IMAGE])).startswith(b"\x89PNG")
        assert "Figure({" not in text_of(data.get("text/plain", "")) or IMAGE in data


@chapters
def test_no_output_has_more_text_than_a_page_bears(path):
    for output in outputs(read(path)):
        data = output.get("data", {"text/plain": output.get("text", "")})
        assert sum(len(text_of(value)) for kind, value in data.items() if kind != IMAGE) <= LARGEST


@chapters
def test_something_is_shown_and_none_of_it_is_empty(path):
    shown = outputs(read(path))
    assert len(shown) >= 3
    for output in shown:
        data = output.get("data", {"text/plain": output.get("text", "")})
        assert text_of(data.get(IMAGE) or data.get("text/markdown") or data.get("text/html") or data["text/plain"]).strip()
        assert "<tbody>\n  </tbody>" not in text_of(data.get("text/html", ""))
        assert "Empty DataFrame" not in text_of(data.get("text/plain", ""))


@chapters
def test_a_chapter_stands_in_the_table_of_contents_by_its_title(path):
    title = source(read(path)["cells"][0]).split("\n")[0].removeprefix("# ")
    assert f"[{title}]({path.name})" in (NOTEBOOKS / "README.md").read_text(encoding="utf-8")


def test_every_figure_stands_in_the_gallery():
    drawn = [output for output in outputs(read(NOTEBOOKS / "gallery.ipynb")) if IMAGE in output.get("data", {})]
    assert len(drawn) == len(FIGURES)


READS_REFERENCE = [path for path in sorted(NOTEBOOKS.glob("*.ipynb")) if "shared/reference" in path.read_text(encoding="utf-8")]


@pytest.mark.slow
@pytest.mark.parametrize("path", READS_REFERENCE, ids=lambda path: path.stem)
def test_without_the_reference_folder_a_chapter_says_what_it_leaves_out(path, tmp_path):
    pytest.importorskip("nbclient")
    from docs import book

    if any((up / "shared" / "reference").exists() for up in tmp_path.parents):
        pytest.skip("a reference folder lies above the folder of temporary files")
    alone = tmp_path / path.name
    alone.write_bytes(path.read_bytes())
    notebook = book.executed(alone)
    said = [text_of(output["data"].get("text/markdown", "")) for output in outputs(notebook) if "data" in output]
    assert any("not here" in text for text in said)
    assert all(text_of(output.get("data", output.get("text", ""))).strip() for output in outputs(notebook))

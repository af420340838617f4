"""The style of all figures: colours that differ, and no module with a style of its own."""

import re
from pathlib import Path

import pytest

from costmodel.plots import style

MODULES = sorted(file for file in Path(style.__file__).parent.glob("*.py") if file.name not in ("style.py", "__init__.py"))


@pytest.mark.parametrize("cues", [style.OKABE_ITO, style.MARKERS, style.DASHES, style.HATCHES])
def test_series_side_by_side_differ_in_every_cue(cues):
    assert len(set(cues)) == len(cues) == 8


def test_colours_are_those_of_okabe_and_ito():
    published = {(0, 0, 0), (230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (0, 114, 178), (213, 94, 0),
                 (204, 121, 167)}  # fmt: skip
    assert {tuple(bytes.fromhex(colour[1:])) for colour in style.OKABE_ITO} == published


@pytest.mark.parametrize("file", MODULES, ids=lambda file: file.stem)
def test_no_figure_has_a_palette_or_template_of_its_own(file):
    text = file.read_text(encoding="utf-8")
    assert not re.search(r"#[0-9A-Fa-f]{6}\b|plotly_white", text)
    assert file.stem in ("page", "answers", "gallery", "embedded", "report", "specification", "kinds") or "TEMPLATE" in text


def test_units_are_the_largest_that_leave_a_number_above_one():
    assert style.bytes_unit(1536) == (1024, "KiB") and style.bytes_unit(0) == (1, "bytes")
    assert style.seconds_unit(3.0) == (1.0, "s") and style.seconds_unit(2e-6) == (1e-6, "us")

"""The list of references: every citation is in it, everything in it is cited, and every entry says what it is."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIST = ROOT / "costmodel" / "catalogue" / "references.toml"
REFERENCES = tomllib.loads(LIST.read_text(encoding="utf-8"))
CITED = {
    key
    for folder in ("costmodel", "calibration")
    for file in (ROOT / folder).rglob("*.py")
    for key in re.findall(r"\[([a-z]+\d{4}\w*)\]_", file.read_text(encoding="utf-8"))
}


def test_every_citation_is_in_the_list():
    assert not CITED - REFERENCES.keys()


def test_everything_in_the_list_is_cited_and_in_order():
    assert not REFERENCES.keys() - CITED
    assert list(REFERENCES) == sorted(REFERENCES)


@pytest.mark.parametrize("key", REFERENCES)
def test_a_reference_says_who_wrote_what_and_when(key):
    entry = REFERENCES[key]
    assert {"authors", "title", "year"} <= entry.keys() <= {"authors", "title", "venue", "year", "arxiv", "url"}
    assert {"venue", "arxiv", "url"} & entry.keys(), "where it can be found"
    assert re.search(r"[a-z]+(\d{4})", key)[1] in (str(entry["year"]), str(entry["year"] - 1))
    if "arxiv" in entry:
        year, month = int(entry["arxiv"][:2]), int(entry["arxiv"][2:4])
        assert re.fullmatch(r"\d{4}\.\d{4,5}", entry["arxiv"]) and 1 <= month <= 12
        assert 2000 + year <= entry["year"] + 1


def test_no_paper_is_listed_twice():
    titles = [entry["title"].lower() for entry in REFERENCES.values()]
    assert len({*titles}) == len(titles)

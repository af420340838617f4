"""Tables of figures in pages for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from calibration.written import write

ROOT = Path(__file__).resolve().parents[2]


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown.

    Examples
    --------
    >>> print(markdown(["tool", "error"], [["one", "8 %"]]))
    | tool | error |
    |---|---|
    | one | 8 % |
    """
    lines = ["| " + " | ".join(cells) + " |" for cells in (headings, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(headings), *lines[1:]])


def put_table(page: str, name: str, text: str) -> None:
    """Put a table into a page, between the two comments that have its name."""
    path, begin, end = ROOT / page, f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, rest = path.read_text(encoding="utf-8").split(begin)
    _, after = rest.split(end)
    write({path: f"{before}{begin}\n{text}\n{end}{after}"})

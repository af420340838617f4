"""Where measured runs are: records in the optional folder beside the checkout, or the few that came with it."""

from __future__ import annotations

import csv
from pathlib import Path

from costmodel.text.errors import UnreadableFile

DEFAULT_FOLDER = Path(__file__).resolve().parents[3] / "shared" / "reference"
"""An optional data folder beside the checkout."""
MEASURED = ("dev.jsonl", "released.jsonl")
"""Files of records in its folder ``measured``: those that constants are fitted to, and those that were predicted before."""
QUOTED = Path(__file__).parents[1] / "reference" / "megatron_tables.jsonl"
"""Records of tables in papers, for checkouts without that folder."""


def default_files(names: tuple[str, ...] = MEASURED) -> list[Path]:
    """Files of records: those of the optional folder that are there, else the quoted ones."""
    found = [DEFAULT_FOLDER / "measured" / name for name in names]
    return [path for path in found if path.is_file()] or [QUOTED]


def table_rows(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file by column."""
    if not path.is_file():
        raise UnreadableFile(f"{path}: no such file")
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))

"""Where measured runs are: records in the optional folder beside the checkout, or the few that came with it."""

from __future__ import annotations

from pathlib import Path

DEFAULT_FOLDER = Path(__file__).resolve().parents[3] / "shared" / "reference"
"""An optional data folder beside the checkout."""
MEASURED = ("dev.jsonl", "released.jsonl")
"""Files of records in its folder ``measured``: those that constants are fitted to, and those that were predicted before."""
QUOTED = Path(__file__).parents[1] / "reference" / "megatron_tables.jsonl"
"""Records of tables in papers, for checkouts without that folder."""


def default_files(names: tuple[str, ...] = MEASURED) -> list[Path]:
    """Files of records: those of the optional folder that are there, else the quoted ones.

    Parameters
    ----------
    names : wanted of the folder
    """
    found = [DEFAULT_FOLDER / "measured" / name for name in names]
    return [path for path in found if path.is_file()] or [QUOTED]

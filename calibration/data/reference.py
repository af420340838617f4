"""Where measured runs are: the optional reference folder beside the checkout, or one that is named."""

from __future__ import annotations

from pathlib import Path

from costmodel.text.errors import UnreadableFile

DEFAULT_FOLDER = Path(__file__).resolve().parents[3] / "shared" / "reference"
"""An optional data folder beside the checkout."""


def default_files(folder: Path | None = None) -> list[Path]:
    """Run files of a reference folder, of both its editions; none where there is none."""
    runs = (folder or DEFAULT_FOLDER) / "runs"
    if folder is not None and not runs.is_dir():
        raise UnreadableFile(f"{folder}: no folder `runs` with CSV files in it")
    return [*sorted(runs.glob("*.csv")), *sorted(runs.with_name("runs2").glob("*.csv"))]

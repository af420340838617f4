"""Published figures of the optional reference folder; a test that asks for them is skipped where it is absent."""

import csv
from pathlib import Path

import pytest

SEEDS = Path(__file__).resolve().parents[2] / "shared" / "reference" / "seeds"


def rows(file):
    """Rows of a CSV file of published figures, one dictionary each."""
    path = SEEDS / file
    if not path.exists():
        pytest.skip(f"{file} is not beside this checkout")
    with path.open(encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle))

"""The collection of launch files with what a careful reader derives from each, and how a launch is compared with that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

REFERENCE = Path(__file__).resolve().parents[4] / "shared" / "reference" / "launchers"
EXPECTED = sorted(REFERENCE.glob("*.expected.json"))
needed = pytest.mark.skipif(not EXPECTED, reason="the optional reference folder is absent")
ASIDE = {"files", "source", "notes", "outside", "derived", "effective", "ineffective", "conflicts"}
"""Not fields: where a file is from, and what is said about the others."""


def expected(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def launch_file(wanted: dict[str, Any]) -> Path:
    return REFERENCE / wanted["files"][0]


def wrong(wanted: dict[str, Any], said: dict[str, Any]) -> list[str]:
    """Fields in which what `costmodel read --json` says differs; null in the collection has to be assumed here."""
    misses = []
    for field, value in wanted.items():
        if field in ASIDE:
            continue
        if field == "framework":
            good, got = said["framework"] == value, said["framework"]
        elif field == "model":
            got = said["model"]
            good = (
                all(got.get(key) == one for key, one in value.items())
                if isinstance(value, dict) and isinstance(got, dict)
                else got == value
            )
        elif field == "n_gpus":
            got = said["gpus"]
            good = (
                got == value and "gpus" not in said["assumed"]
                if value is not None
                else "gpus" in said["assumed"]
            )
        else:
            got, assumed = said["plan"].get(field), field in said["assumed"]
            if value is None:
                good = assumed
            elif field == "fsdp":
                good = (
                    not assumed
                    and isinstance(got, dict)
                    and all(got.get(key) == one for key, one in value.items())
                )
            else:
                good = not assumed and got == value
        if not good:
            misses.append(f"{field}: expected {value!r}, got {got!r}")
    return misses


def fields(wanted: dict[str, Any]) -> int:
    return sum(field not in ASIDE for field in wanted)

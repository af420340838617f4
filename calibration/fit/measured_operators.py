"""Operators that `python -m calibration measure` measured on a machine, as sweeps."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

from calibration.data.micro import REPEATED, TRAINING, Operator, Sweep, gathered
from calibration.fit.earlier_sweeps import attention_sizes, narrow_dtype
from costmodel.arithmetic.named_tuples import Row
from costmodel.catalogue.loader import alias
from costmodel.text.errors import UnreadableFile

PASSES = {"forward": "attention", "backward": "attention backward"}


def measured_rows(path: Path) -> tuple[str, list[Row]]:
    """Device of a file that `measure` wrote, as the catalogue names it, and what was timed on it."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        name, rows = document["environment"]["device"], document["rows"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnreadableFile(f"{path}: not a file of `calibration measure`: {error}") from error
    device = alias("device", str(name))
    if device is None:
        raise UnreadableFile(f"{path}: device {name!r} is not in the catalogue")
    return device, rows


def read_measured(path: Path) -> list[Sweep]:
    """Sweeps of a file that `measure` wrote."""
    device, rows = measured_rows(path)
    try:
        found = gathered(_operators(device, rows), path.name)
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableFile(f"{path}: a row is not one of `calibration measure`: {error!r}") from error
    if any(not 0.0 < seconds < math.inf for sweep in found for seconds in sweep.seconds):
        raise UnreadableFile(f"{path}: a row has a time that is no positive number")
    return found


def _operators(device: str, rows: list[Row]) -> Iterator[Operator]:
    newest = "cudnn" if any(row.get("kernel") == "cudnn" for row in rows) else "flash"
    for row in rows:
        seconds = float(row["seconds"])
        if row["family"] == "gemm":
            yield Operator("product", device, row["dtype"], "", {key: float(row[key]) for key in ("m", "n", "k")}, seconds)
        elif row["family"] == "attention" and row["kernel"] == newest:
            batch, heads, width, seq_len = (float(row[key]) for key in ("batch", "heads", "head_dim", "seq"))
            sizes = attention_sizes(batch, heads, width, seq_len, row["causal"])
            kind = PASSES[row["direction"]]
            mask = f"{'causal' if row['causal'] else 'full'} " if kind == "attention" else ""
            yield Operator(kind, device, row["dtype"], f"{mask}{TRAINING} {REPEATED}", sizes, seconds)
        elif row["family"] == "copy":  # read and written
            yield Operator("stream", device, narrow_dtype(device), "", {"nbytes": 2.0 * float(row["nbytes"])}, seconds)

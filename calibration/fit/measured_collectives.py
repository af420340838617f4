"""Collectives that `python -m calibration measure` timed between the GPUs of a node, beside what the library says of them."""

from __future__ import annotations

import statistics
from pathlib import Path

import costmodel
from calibration.data.micro import operation_of
from calibration.fit.measured_operators import measured_rows
from costmodel.text.errors import UnreadableFile

SMALLEST = 2**20
"""Bytes below which a collective shows its launch alone."""


def collectives_in_words(path: Path) -> list[str]:
    """A line for each operation and number of ranks: the median of its errors, from 1 MiB on."""
    device, rows = measured_rows(path)
    errors: dict[tuple[str, int], list[float]] = {}
    try:
        for row in rows:
            operation = operation_of(row["op"]) if row["family"] == "collective" else None
            if operation is not None and row["nbytes"] >= SMALLEST:
                ranks, seconds = int(row["ranks"]), float(row["seconds"])
                node = costmodel.machine(device, ranks)
                said = costmodel.collective_time(operation, float(row["nbytes"]), ranks, node).time
                errors.setdefault((operation, ranks), []).append(said / seconds - 1.0)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise UnreadableFile(f"{path}: a collective's row is not one of `calibration measure`: {error!r}") from error
    return [
        f"{operation} among {ranks} GPUs: {len(of)} sizes from 1 MiB, {statistics.median(of):+.1%} of what was measured"
        for (operation, ranks), of in errors.items()
    ]

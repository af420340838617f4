"""Where steps are logged: a CSV file, TensorBoard, W&B."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from costmodel.catalogue.records.reading import dotted

Figures: TypeAlias = dict[str, float]
"""What is logged of a step, by names with units."""
PREFIX = "costmodel/"
"""Before the names of metrics."""
RECORD = "costmodel"
"""What the record of a run is called among the settings of an experiment, and before the dot of a column."""
COLUMNS = (
    "step", "step_time_s", "predicted_step_time_s", "low_step_time_s", "high_step_time_s", "peak_reserved_bytes",
    "predicted_peak_reserved_bytes", "low_peak_reserved_bytes", "high_peak_reserved_bytes", "measured_over_predicted",
)  # fmt: skip


class Log(Protocol):
    """What a `Monitor` writes to."""

    def open(self, record: Mapping[str, Any]) -> None:
        """Begin, with the record of what is trained, on what, how."""

    def log(self, step: int, figures: Figures) -> None:
        """Log a step."""

    def close(self) -> None:
        """End."""


class CsvLog:
    """A row a step; the columns ``costmodel.…`` say what ran, so that `load_runs` reads the file by itself.

    Parameters
    ----------
    path : of the file, written anew
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path, self._record = Path(path), {}  # type: tuple[Path, dict[str, str]]

    def open(self, record: Mapping[str, Any]) -> None:
        """Write the names of the columns."""
        self._record = dotted(record, RECORD)
        self._file = self._path.open("w", encoding="utf-8", newline="")
        self._rows = csv.DictWriter(self._file, [*COLUMNS, *self._record])
        self._rows.writeheader()

    def log(self, step: int, figures: Figures) -> None:
        """Write a row, at once."""
        self._rows.writerow({"step": step, **{name: repr(value) for name, value in figures.items()}, **self._record})
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoardLog:
    """Scalars, the record of the run as a text beside them.

    Parameters
    ----------
    writer : a ``SummaryWriter`` of ``torch.utils.tensorboard`` or ``tensorboardX``, closed by who made it
    """

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def open(self, record: Mapping[str, Any]) -> None:
        """Write the record."""
        self._writer.add_text(f"{PREFIX}record", json.dumps(record))

    def log(self, step: int, figures: Figures) -> None:
        """Write a scalar for each figure."""
        for name, value in figures.items():
            self._writer.add_scalar(PREFIX + name, value, step)

    def close(self) -> None:
        """Let the writer write what it holds."""
        self._writer.flush()


class WandbLog:
    """Metrics of a run of W&B, the record among its config.

    Parameters
    ----------
    run : what ``wandb.init`` gave, finished by who made it
    commit : write every step by itself; by default the figures go out with what the loop logs next, and leave W&B's own count of
        steps alone
    """

    def __init__(self, run: Any, commit: bool = False) -> None:
        self._run, self._commit = run, commit

    def open(self, record: Mapping[str, Any]) -> None:
        """Add the record to the config."""
        self._run.config.update({RECORD: dict(record)}, allow_val_change=True)
        self._run.define_metric(f"{PREFIX}step")
        self._run.define_metric(f"{PREFIX}*", step_metric=f"{PREFIX}step")

    def log(self, step: int, figures: Figures) -> None:
        """Log a step's figures."""
        self._run.log({f"{PREFIX}step": step, **{PREFIX + name: value for name, value in figures.items()}}, commit=self._commit)

    def close(self) -> None:
        """Nothing: the run is finished by who made it."""

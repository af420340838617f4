"""Measured training runs: CSV files with one run a row, read strictly."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

from costmodel.text.csv_files import read_csv
from costmodel.text.errors import UnreadableFile

MOST_ROWS = 20_000
"""Of a file; the largest source has 1,612."""

REQUIRED = (
    "dataset", "row", "usable_time", "usable_mem", "usable_oom", "gpu_id", "stack", "compute_dtype",
    "recompute_kind", "attention_kind", "memory_kind", "nic_bandwidth", "source", "n_gpus", "gpus_per_node",
    "framework", "model_name", "n_params", "n_layers", "hidden", "ffn_hidden", "n_heads", "n_kv_heads", "vocab",
    "seq_len", "n_experts", "top_k", "tp", "cp", "ep", "pp", "vpp", "dp", "zero_stage", "fsdp_mode",
    "sequence_parallel", "micro_batch", "global_batch", "step_time_s", "tokens_per_s_per_gpu",
    "peak_memory_gib", "status",
)  # fmt: skip
SECOND = "runs2"
"""Folder of the second edition of the runs, whose files may have the names of the first one's."""
MEASURED = ("step_time_s", "tokens_per_s_per_gpu", "peak_memory_gib")
NUMERIC = (
    "nic_bandwidth", "n_gpus", "gpus_per_node", "n_params", "n_layers", "hidden", "ffn_hidden", "n_heads",
    "n_kv_heads", "vocab", "seq_len", "n_experts", "top_k", "tp", "cp", "ep", "pp", "vpp", "dp", "zero_stage",
    "micro_batch", "global_batch", "step_time_s", "tokens_per_s_per_gpu", "peak_memory_gib",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Run:
    """One row: its texts, and its numbers where they are given."""

    file: str
    text: dict[str, str]
    number: dict[str, float]

    @property
    def label(self) -> str:
        """File and row, for messages."""
        return f"{self.file} row {self.text['row']}"

    def flag(self, column: str) -> bool:
        """Whether a 0/1 or True/False column says yes."""
        return self.text.get(column, "").strip().lower() in ("1", "1.0", "true", "yes")


def read_runs(path: Path) -> list[Run]:
    """Every row of one file.

    Parameters
    ----------
    path : CSV file with at least the columns `REQUIRED`

    Raises
    ------
    UnreadableFile
        where the file is missing, too large, lacks a column, or a row contradicts itself; the row is named
    """
    return [_run(path, line, row) for line, row in enumerate(read_csv(path, MOST_ROWS, REQUIRED), 2)]


def _run(path: Path, line: int, row: dict[str, str]) -> Run:
    text = {column: value.strip() for column, value in row.items()}
    number: dict[str, float] = {}
    for column in NUMERIC:
        if text[column]:
            try:
                value = float(text[column])
            except ValueError as error:
                raise UnreadableFile(f"{path} line {line}: {column}={text[column][:80]!r} is no number") from error
            if not math.isfinite(value) or value < 0:
                raise UnreadableFile(f"{path} line {line}: {column}={text[column][:80]!r}: expected a finite number of 0 or more")
            if value == 0 and column in MEASURED:
                raise UnreadableFile(f"{path} line {line}: {column}=0: expected more than 0, or nothing")
            number[column] = value
    run = Run(f"{path.parent.name}/{path.name}" if path.parent.name == SECOND else path.name, text, number)
    if run.flag("usable_time") and not ("step_time_s" in number or "tokens_per_s_per_gpu" in number):
        raise UnreadableFile(f"{path} line {line}: usable_time is 1 but neither time nor throughput is given")
    if run.flag("usable_mem") and "peak_memory_gib" not in number:
        raise UnreadableFile(f"{path} line {line}: usable_mem is 1 but peak_memory_gib is empty")
    if run.flag("usable_oom") and run.flag("usable_time"):
        raise UnreadableFile(f"{path} line {line}: usable_oom and usable_time are both 1")
    return run


def usable(runs: Iterable[Run]) -> Iterator[Run]:
    """Rows that the source marks as having a complete plan and something measured."""
    for run in runs:
        if run.flag("usable_time") or run.flag("usable_mem") or run.flag("usable_oom"):
            yield run

"""Where the rows of a sweep lie: a Parquet file for each chunk of cells until all are there, then one for all.

A chunk's file is written beside its place and moved there, so that it is there whole or not at all, whatever kills the
process. Nothing in the final file depends on the order in which chunks came in.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from costmodel.errors import InvalidValue, NotModelled
from costmodel.evaluation.sweep_cells import COLUMNS
from costmodel.records import Row

if TYPE_CHECKING:
    import pyarrow

ROW_GROUP = 1 << 16
"""Rows of a group of the final file."""
KEY = b"costmodel_sweep"


class SweepFiles:
    """The files of one sweep.

    Parameters
    ----------
    path : of the final file
    digest : of the sweep
    cells : how many it has
    chunk : cells of a chunk, where it is not resumed

    Raises
    ------
    InvalidValue
        where the path is no file's, or holds something else
    NotModelled
        where pyarrow is not installed
    """

    def __init__(self, path: str | os.PathLike[str], digest: str, cells: int, chunk: int) -> None:
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            raise NotModelled("a sweep writes Parquet, which needs pyarrow: pip install 'costmodel[frame]'") from None
        self.path = Path(path)
        if not self.path.name or self.path.is_dir():
            raise InvalidValue("path", str(path), "the name of a file to write, such as plans.parquet")
        self.parts = self.path.with_name(self.path.name + ".parts")
        self.digest, self.cells, self.chunk = digest, cells, chunk
        if not self.path.parent.is_dir():
            raise InvalidValue("path", str(path), f"a file in a folder that is there; {self.path.parent} is none")
        if self.path.exists() and not self.finished:
            raise InvalidValue("path", str(path), "the name of a new file, or of this very sweep; that file holds something else")
        if not self.finished:
            self._open()

    @property
    def finished(self) -> bool:
        """Whether the final file is there, of this sweep."""
        import pyarrow.parquet

        if not self.path.is_file():
            return False
        try:
            metadata = pyarrow.parquet.read_schema(self.path).metadata or {}
        except pyarrow.ArrowInvalid:
            return False
        return bool(metadata.get(KEY, b"").decode() == self.digest)

    def _open(self) -> None:
        """Begin, or take up what was begun."""
        note = self.parts / "sweep.json"
        if note.is_file():
            kept = json.loads(note.read_text(encoding="utf-8"))
            if kept["digest"] != self.digest:
                raise InvalidValue(
                    "path", str(self.path), f"a file of this very sweep: {self.parts} holds another one, or one of another "
                    "version; remove it to begin anew",
                )  # fmt: skip
            self.chunk = int(kept["chunk"])
            return
        self.parts.mkdir(exist_ok=True)
        beside = note.with_suffix(".new")
        beside.write_text(json.dumps({"digest": self.digest, "cells": self.cells, "chunk": self.chunk}), encoding="utf-8")
        os.replace(beside, note)

    @property
    def chunks(self) -> int:
        """How many chunks there are."""
        return -(-self.cells // self.chunk)

    def cells_of(self, chunk: int) -> tuple[int, int]:
        """The first cell of a chunk, and the one after its last."""
        return chunk * self.chunk, min((chunk + 1) * self.chunk, self.cells)

    def _part(self, chunk: int) -> Path:
        return self.parts / f"{chunk:09d}.parquet"

    def missing(self) -> Iterator[int]:
        """Chunks that are still to be done, in order."""
        there = {path.name for path in self.parts.iterdir()}
        for chunk in range(self.chunks):
            if self._part(chunk).name not in there:
                yield chunk

    def keep(self, chunk: int, rows: list[Row]) -> None:
        """Write the rows of a chunk."""
        import pyarrow
        import pyarrow.parquet

        table = pyarrow.Table.from_pylist(rows, schema=self._schema())
        beside = self._part(chunk).with_suffix(".new")
        pyarrow.parquet.write_table(table, beside)
        os.replace(beside, self._part(chunk))

    def _schema(self) -> pyarrow.Schema:
        import pyarrow

        fields = [pyarrow.field(name, getattr(pyarrow, kind.replace("bool", "bool_"))()) for name, kind in COLUMNS.items()]
        return pyarrow.schema(fields, metadata={KEY: self.digest.encode()})

    def finish(self) -> None:
        """Join the chunks in the order of their cells, a group of rows in memory at a time, and remove them."""
        import pyarrow.parquet

        if not self.finished:
            beside = self.path.with_name(self.path.name + ".new")
            with pyarrow.parquet.ParquetWriter(beside, self._schema()) as writer:
                for table in self._groups():
                    writer.write_table(table, row_group_size=ROW_GROUP)
            with open(beside, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(beside, self.path)
        shutil.rmtree(self.parts, ignore_errors=True)

    def _groups(self) -> Iterator[object]:
        import pyarrow
        import pyarrow.parquet

        waiting: list[object] = []
        rows = 0
        for chunk in range(self.chunks):
            table = pyarrow.parquet.read_table(self._part(chunk), schema=self._schema())
            waiting.append(table)
            rows += table.num_rows
            while rows >= ROW_GROUP:
                joined = pyarrow.concat_tables(waiting)
                yield joined.slice(0, ROW_GROUP).combine_chunks()
                waiting, rows = [joined.slice(ROW_GROUP)], rows - ROW_GROUP
        if rows:
            yield pyarrow.concat_tables(waiting).combine_chunks()


__all__ = ["SweepFiles"]

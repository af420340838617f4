"""Where the rows of a sweep lie: a Parquet file for each chunk of cells until all are there, then one for all.

Every file carries the digest of its bytes (`costmodel.evaluation.sealed_files`), the sweep it is of and the cells it has. A
part that isn't what it should be is done again. Nothing in the final file depends on the order in which chunks came in.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from costmodel.arithmetic.named_tuples import Row
from costmodel.evaluation import sealed_files
from costmodel.evaluation.sweep_cells import COLUMNS
from costmodel.text.errors import Interrupted, InvalidValue, NotModelled, UnreadableFile

if TYPE_CHECKING:
    import pyarrow

ROW_GROUP = 1 << 16
"""Rows of a group of the final file."""
KEY, CELLS = b"costmodel_sweep", b"costmodel_cells"
"""Keys of a file's metadata: the digest of its sweep, and its first cell with the one after its last."""
NOTE = "sweep.json"
OURS = re.compile(r"\d{9,}\.(parquet|new)|sweep\.(json|new)")
"""Names in the folder of parts; what else lies there is somebody else's."""
ANEW = "remove it to begin anew"


class SweepFiles:
    """The files of one sweep; whoever writes them holds `costmodel.evaluation.file_lock.only_writer` of the final one.

    Parameters
    ----------
    path : of the final file
    digest : of the sweep
    cells : how many it has
    chunk : cells of a chunk

    Raises
    ------
    InvalidValue
        where the path is no file's, or holds something else
    UnreadableFile
        where the final file was changed since it was written
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
        if self.path.exists():
            self._check_final()

    @property
    def finished(self) -> bool:
        """Whether the final file is there, and no part beside it."""
        return self.path.exists() and not self.parts.exists()

    def _check_final(self) -> None:
        """Refuse a file that isn't this sweep's, or isn't any more as it was written."""
        other = f"the name of a new file, or of this very sweep; that file holds something else: {ANEW}"
        if not self.path.is_file() or not sealed_files.marked(self.path):
            raise InvalidValue("path", str(self.path), other)
        if not sealed_files.intact(self.path):
            raise UnreadableFile(f"{self.path}: changed since this library wrote it, by its digest; {ANEW}")
        if not self._is_ours(self.path, 0, self.cells):
            raise InvalidValue("path", str(self.path), other)

    def _is_ours(self, path: Path, start: int, stop: int) -> bool:
        """Whether a file that is intact has these cells of this sweep."""
        return _metadata(path) == (self.digest.encode(), _span(start, stop))

    def open(self) -> None:
        """Begin, or take up what was begun; what was being written when a process ended is removed."""
        if self.path.exists():  # since this was made, by whoever held the lock
            self._check_final()
            return
        if self.parts.exists() and not self.parts.is_dir():
            raise InvalidValue("path", str(self.path), f"a name beside which the folder {self.parts} can be made; that is a file")
        self.parts.mkdir(exist_ok=True)
        for path in self.parts.glob("*.new"):
            if OURS.fullmatch(path.name):
                path.unlink()
        begun = self._begun()
        if begun != self.digest:
            if begun is not None or any(self._of_another(path) for path in self.parts.iterdir()):
                raise InvalidValue(
                    "path", str(self.path), f"a file of this very sweep: {self.parts} holds another one, or one of another "
                    f"version; {ANEW}",
                )  # fmt: skip
            self._write_note()

    def _begun(self) -> object:
        """The digest of the sweep whose parts are there; None where the note on it is missing, or was damaged."""
        try:
            note = json.loads((self.parts / NOTE).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError, RecursionError):
            return None
        return note.get("digest") if isinstance(note, dict) else None

    def _of_another(self, path: Path) -> bool:
        """Whether a part is intact, and another sweep's: with the note gone, it tells whose folder this is."""
        if not OURS.fullmatch(path.name) or path.suffix != ".parquet" or not sealed_files.intact(path):
            return False
        return _metadata(path)[0] != self.digest.encode()

    def _write_note(self) -> None:
        beside = (self.parts / NOTE).with_suffix(".new")
        with beside.open("w", encoding="utf-8") as file:
            json.dump({"digest": self.digest}, file)
            file.flush()
            os.fsync(file.fileno())
        sealed_files.moved(beside, self.parts / NOTE)

    @property
    def chunks(self) -> int:
        """How many chunks there are."""
        return -(-self.cells // self.chunk)

    def cells_of(self, chunk: int) -> tuple[int, int]:
        """The first cell of a chunk, and the one after its last."""
        return chunk * self.chunk, min((chunk + 1) * self.chunk, self.cells)

    def _part(self, chunk: int) -> Path:
        return self.parts / f"{chunk:09d}.parquet"

    def _whole(self, chunk: int) -> bool:
        """Whether the part of a chunk is what was written there."""
        part = self._part(chunk)
        return part.is_file() and sealed_files.intact(part) and self._is_ours(part, *self.cells_of(chunk))

    def missing(self) -> tuple[list[int], list[int]]:
        """Chunks that are still to be done, in order, and which of them are there but aren't what was written."""
        there = {path.name for path in self.parts.iterdir()} if self.parts.exists() else set()
        absent, damaged = [], []
        for chunk in range(self.chunks) if not self.path.exists() else ():
            if self._part(chunk).name not in there:
                absent.append(chunk)
            elif not self._whole(chunk):
                damaged.append(chunk)
        return sorted(absent + damaged), damaged

    def keep(self, chunk: int, rows: list[Row]) -> None:
        """Write the rows of a chunk."""
        import pyarrow
        import pyarrow.parquet

        schema = self._schema(*self.cells_of(chunk))
        beside = self._part(chunk).with_suffix(".new")
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), beside)
        sealed_files.put(beside, self._part(chunk))

    def _schema(self, start: int, stop: int) -> pyarrow.Schema:
        import pyarrow

        fields = [pyarrow.field(name, getattr(pyarrow, kind.replace("bool", "bool_"))()) for name, kind in COLUMNS.items()]
        metadata = {KEY: self.digest.encode(), CELLS: _span(start, stop), sealed_files.SEAL: sealed_files.BLANK}
        return pyarrow.schema(fields, metadata=metadata)

    def finish(self) -> None:
        """Join the chunks in the order of their cells, a group of rows in memory at a time, and remove them.

        Raises
        ------
        Interrupted
            where a part was changed in the meantime
        """
        import pyarrow.parquet

        if not self.path.exists():
            beside = self.path.with_name(self.path.name + ".new")
            with pyarrow.parquet.ParquetWriter(beside, self._schema(0, self.cells)) as writer:
                for table in self._groups():
                    writer.write_table(table, row_group_size=ROW_GROUP)
            sealed_files.put(beside, self.path)
        if self.parts.is_dir():
            for path in self.parts.iterdir():
                if OURS.fullmatch(path.name):
                    path.unlink()
            if not any(self.parts.iterdir()):
                self.parts.rmdir()

    def _groups(self) -> Iterator[pyarrow.Table]:
        import pyarrow
        import pyarrow.parquet

        schema = self._schema(0, self.cells)
        waiting: list[pyarrow.Table] = []
        rows = 0
        for chunk in range(self.chunks):
            if not self._whole(chunk):
                raise Interrupted(f"{self._part(chunk)}: changed while the sweep ran; the same call does this part again")
            table = pyarrow.parquet.read_table(self._part(chunk)).replace_schema_metadata(schema.metadata)
            waiting.append(table)
            rows += table.num_rows
            while rows >= ROW_GROUP:
                joined = pyarrow.concat_tables(waiting)
                yield joined.slice(0, ROW_GROUP).combine_chunks()
                waiting, rows = [joined.slice(ROW_GROUP)], rows - ROW_GROUP
        if rows:
            yield pyarrow.concat_tables(waiting).combine_chunks()


def _metadata(path: Path) -> tuple[bytes, bytes]:
    """The sweep of a file that is intact, and its cells."""
    import pyarrow.parquet

    found = pyarrow.parquet.read_schema(path).metadata or {}
    return found.get(KEY, b""), found.get(CELLS, b"")


def _span(start: int, stop: int) -> bytes:
    return f"{start}:{stop}".encode()

"""Tables of measured runs in CSV files: read whole, within limits, or refused in one line."""

from __future__ import annotations

import csv
import io
import itertools
import stat
from collections.abc import Sequence
from pathlib import Path

from costmodel.text.errors import UnreadableFile

MOST_BYTES = 16 << 20
MOST_COLUMNS, LONGEST_CELL = 200, 10_000


def read_csv(path: Path, most_rows: int) -> list[dict[str, str]]:
    """Rows by the names of columns, which the first line has; lines without anything are left out.

    Parameters
    ----------
    path : of a file, UTF-8, of `MOST_BYTES` at most
    most_rows : beyond which it is refused

    Raises
    ------
    UnreadableFile
        where the file is missing, too large, no table, or has rows of another length than the first; the line is named
    """
    shown = "".join(letter if letter.isprintable() else "?" for letter in str(path))
    reader = csv.reader(io.StringIO(_text(path, shown), newline=""), strict=True)
    try:
        columns = _columns(next(reader, []), shown)
        rows = []
        for cells in itertools.islice(filter(None, reader), most_rows + 1):
            rows.append(_row(columns, cells, f"{shown} line {reader.line_num}"))
    except csv.Error as error:
        raise UnreadableFile(f"{shown} line {reader.line_num}: {error}") from None
    if len(rows) > most_rows:
        raise UnreadableFile(f"{shown}: more than {most_rows:,} rows; give fewer of them")
    return rows


def _columns(first: Sequence[str], shown: str) -> list[str]:
    """The names in the first line."""
    if not 0 < len(first) <= MOST_COLUMNS:
        raise UnreadableFile(f"{shown}: {len(first)} columns in its first line: expected 1 to {MOST_COLUMNS}")
    columns = [name.strip() for name in first]
    twice = [name for name in columns if columns.count(name) > 1]
    if twice:
        raise UnreadableFile(f"{shown}: the column {twice[0][:80]!r} is there twice")
    return columns


def _text(path: Path, shown: str) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UnreadableFile(f"{shown}: not a file with a table, but a folder or a device")
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UnreadableFile(f"{shown}: {error.strerror or 'unreadable'}") from None
    except ValueError:
        raise UnreadableFile(f"{shown[:80]!r}: no name of a file") from None
    if len(content) > MOST_BYTES:
        raise UnreadableFile(f"{shown}: more than {MOST_BYTES >> 20} MiB; give fewer rows")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UnreadableFile(f"{shown}: not a text in UTF-8") from None


def _row(columns: Sequence[str], cells: Sequence[str], where: str) -> dict[str, str]:
    if len(cells) != len(columns):
        raise UnreadableFile(f"{where}: not as many cells as the first line has columns ({len(cells)}, {len(columns)})")
    if max(map(len, cells)) > LONGEST_CELL:
        raise UnreadableFile(f"{where}: a cell of more than {LONGEST_CELL:,} characters")
    return dict(zip(columns, cells, strict=True))

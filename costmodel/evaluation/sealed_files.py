"""Parquet files that tell whether they are still as they were written: each carries the digest of all its other bytes.

The digest is a value of the file's own metadata, so any reader of Parquet takes the file as it is. A file is written beside its
place, given its digest, brought to the disk, read back, and moved: it is there whole or not at all, whatever kills the process.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from costmodel.text.errors import UnreadableFile

SEAL = b"costmodel_seal"
"""Key of the metadata whose value is the digest."""
BLANK = b"0" * 64
"""In the place of the digest while it is computed: of SHA-256, in hexadecimal digits."""
_BEFORE = SEAL + b"\x18\x40"
"""How Parquet's footer begins an entry of the metadata: its key, then the kind and the length of its value."""
_TAIL = 1 << 24
"""Bytes at the end of a file in which its footer lies."""
_BLOCK = 1 << 20


def put(beside: Path, place: Path) -> None:
    """Seal a file that was written with `BLANK` under the key `SEAL`, and move it to its place once it is on the disk.

    Parameters
    ----------
    beside : the file as it was written, in the folder of its place
    place : its name from now on

    Raises
    ------
    UnreadableFile
        where the file doesn't read back as it was written
    """
    with open(beside, "rb+") as file:
        at = _seal(file)
        if at is None:
            raise UnreadableFile(f"{beside}: doesn't read back as it was written; is the disk full, or broken?")
        digest = _digest(file, at)
        file.seek(at)
        file.write(digest)
        file.flush()
        os.fsync(file.fileno())
    if not intact(beside):
        raise UnreadableFile(f"{beside}: doesn't read back as it was written; is the disk full, or broken?")
    moved(beside, place)


def moved(beside: Path, place: Path) -> None:
    """Move a file that is on the disk to a name in the same folder, and bring the folder to the disk."""
    os.replace(beside, place)
    if os.name == "posix":  # elsewhere a folder can't be opened
        folder = os.open(place.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def intact(path: Path) -> bool:
    """Whether a file is sealed and has not changed by a byte since."""
    with open(path, "rb") as file:
        at = _seal(file)
        if at is None:
            return False
        file.seek(at)
        return file.read(len(BLANK)) == _digest(file, at)


def marked(path: Path) -> bool:
    """Whether a file has, or had, a seal: whether or not it is intact, it was written here."""
    with open(path, "rb") as file:
        return SEAL in _tail(file)[1]


def _tail(file: BinaryIO) -> tuple[int, bytes]:
    """Where the last bytes of a file begin, and what they are."""
    size = file.seek(0, os.SEEK_END)
    start = file.seek(max(0, size - _TAIL))
    return start, file.read()


def _seal(file: BinaryIO) -> int | None:
    """Where the digest lies: the last such entry, since rows come before the footer; None where there is none."""
    start, tail = _tail(file)
    found = tail.rfind(_BEFORE)
    at = found + len(_BEFORE)
    return None if found < 0 or at + len(BLANK) > len(tail) else start + at


def _digest(file: BinaryIO, at: int) -> bytes:
    """Of a file with `BLANK` at the place of the seal."""
    total = hashlib.sha256()
    file.seek(0)
    for block in _blocks(file, at):
        total.update(block)
    total.update(BLANK)
    file.seek(at + len(BLANK))
    for block in _blocks(file):
        total.update(block)
    return total.hexdigest().encode()


def _blocks(file: BinaryIO, left: int | None = None) -> Iterator[bytes]:
    """What a file holds from here on, up to so many bytes."""
    while left is None or left > 0:
        block = file.read(_BLOCK if left is None else min(_BLOCK, left))
        if not block:
            return
        yield block
        left = None if left is None else left - len(block)

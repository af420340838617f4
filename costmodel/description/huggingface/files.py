"""Opens a ``config.json``: numbers and names only, no code of the file's is run or fetched."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from costmodel.text.errors import UnreadableFile
from costmodel.text.user_files import deeper

MAX_BYTES = 64 << 20
"""Largest file that is read [bytes]: some carry a vocabulary or the labels of a classifier."""
MAX_DEPTH = 16

Config = dict[str, object]


def load(path: Path) -> tuple[Config, Path]:
    """The JSON object of a file, or of the ``config.json`` in a folder, and the file that was read.

    Parameters
    ----------
    path : the file, or the folder that holds it

    Raises
    ------
    UnreadableFile
        where the file is missing, too large or not a JSON object
    """
    try:
        file = path / "config.json" if path.is_dir() else path
        return _parse(_bytes(file), file), file
    except OSError as error:
        raise UnreadableFile(f"{shown(path)}: {error.strerror or 'unreadable'}") from None


def _bytes(file: Path) -> bytes:
    if not file.is_file():
        raise UnreadableFile(f"{shown(file)}: no such file (a config.json, or the folder that holds it)")
    size, text = file.stat().st_size, b""
    if size <= MAX_BYTES:
        with file.open("rb") as stream:
            text = stream.read(MAX_BYTES + 1)
    # A file can grow between the two looks.
    if max(size, len(text)) > MAX_BYTES:
        raise UnreadableFile(f"{shown(file)}: {size} bytes, more than the {MAX_BYTES} that are read of a config.json")
    return text


def _parse(text: bytes, file: Path) -> Config:
    try:
        # Some editors put a byte-order mark first. Infinity is written by json.dump, and read back as it is.
        config = json.loads(text.decode("utf-8-sig"), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())
        raise UnreadableFile(f"{shown(file)}: not a JSON file that can be read: {why[:200]}") from None
    if not isinstance(config, dict):
        raise UnreadableFile(f"{shown(file)}: a {type(config).__name__} at the top, expected an object")
    if deeper(config, MAX_DEPTH):
        raise UnreadableFile(f"{shown(file)}: nested more than {MAX_DEPTH} levels deep")
    return config


def _once(pairs: Sequence[tuple[str, object]]) -> Config:
    found: Config = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {short(key)} is there twice")
        found[key] = value
    return found


def short(value: object) -> str:
    """A value of a file as it is quoted in a message."""
    text = ascii(value)
    return text if len(text) <= 80 else text[:77] + "..."


def shown(file: Path) -> str:
    """A path as it is quoted in a message."""
    return ascii(str(file))


def name_of(config: Config, file: Path) -> str:
    """What a file calls its model; its folder's or its own name where that is a path or missing."""
    inside = config.get("_name_or_path")
    folder = file.resolve().parent.name if file.name == "config.json" else file.stem
    for candidate in (inside, folder):
        usable = isinstance(candidate, str) and 0 < len(candidate) <= 200 and candidate.isprintable()
        if usable and not str(candidate).startswith(("/", ".", "~", "\\")):
            return str(candidate)
    return "model"

"""The content of files that users give: regular files of a size that is read at once, everything else refused in a line."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from typing import Any, NoReturn

from costmodel.text.errors import UnreadableFile

LONGEST_NAME = 200
"""Characters of a path that a message shows."""


def content(path: str | os.PathLike[str], most: int) -> bytes:
    """All of a regular file; a folder, a pipe or a device is refused before it is opened, and so doesn't block.

    Parameters
    ----------
    path : of the file
    most : largest size that is read [bytes]

    Raises
    ------
    UnreadableFile
        where there is no such file, it is no regular one, or larger
    """
    try:
        if not os.fspath(path):
            refuse(path, "no name of a file")
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):
            refuse(path, "is a folder; a file was expected" if stat.S_ISDIR(mode) else "is not a file that can be read whole")
        with open(path, "rb") as stream:
            found = stream.read(most + 1)
    except OSError as error:
        refuse(path, error.strerror or "unreadable")
    except UnreadableFile:
        raise
    except (ValueError, TypeError):
        refuse(path, "no name of a file")
    if len(found) > most:
        refuse(path, f"is larger than {most} bytes")
    return found


def text(path: str | os.PathLike[str], most: int, errors: str = "strict") -> str:
    """A regular file as text in UTF-8, without a byte-order mark.

    Parameters
    ----------
    path : of the file
    most : largest size that is read [bytes]
    errors : what becomes of bytes that are no UTF-8, as of `bytes.decode`

    Raises
    ------
    UnreadableFile
        as of `content`, and where it is no text in UTF-8
    """
    try:
        return content(path, most).decode("utf-8-sig", errors)
    except UnicodeDecodeError:
        refuse(path, "is not UTF-8 text")


def named(path: object) -> str:
    """A path as a message shows it: printable, in one line, not too long."""
    plain = os.fspath(path) if isinstance(path, os.PathLike) else path
    shown = plain if isinstance(plain, str) and plain and plain.isprintable() else ascii(plain)
    return shown if len(shown) <= LONGEST_NAME else shown[: LONGEST_NAME - 3] + "..."


def refuse(path: object, why: str) -> NoReturn:
    """Raise an `UnreadableFile` that names the file."""
    raise UnreadableFile(f"{named(path)}: {why}") from None


MAX_DOTS = 32
"""Dots in a key of TOML: tomllib takes n^2 time and memory for a key of n parts."""

_STRING = re.compile(r"\"(?:[^\"\\\n]|\\.)*+\"?|'[^'\n]*+'?")
_BETWEEN_KEYS = re.compile(r"[^\w.\- \t]")


def toml(name: object, given: str) -> dict[str, Any]:
    """A text as TOML.

    Parameters
    ----------
    name : of the file, for the message
    given : the text

    Raises
    ------
    UnreadableFile
        where it is none, or one that takes more than its share of time: keys of many parts, deep nesting
    """
    for number, line in enumerate(given.split("\n"), 1):
        if line.count(".") > MAX_DOTS and any(part.count(".") > MAX_DOTS for part in _BETWEEN_KEYS.split(_STRING.sub("", line))):
            refuse(name, f"line {number} has more than {MAX_DOTS} dots in a key")
    try:
        return tomllib.loads(given)
    except RecursionError:
        refuse(name, "is nested too deeply")
    except ValueError as error:
        refuse(name, f"is not TOML: {' '.join(str(error).split())[:LONGEST_NAME]}")


def deeper(value: object, most: int) -> bool:
    """Whether tables and lists lie in each other deeper than `most` levels.

    Examples
    --------
    >>> deeper({"a": [1]}, 2), deeper({"a": [[1]]}, 2)
    (False, True)
    """
    level: list[dict[Any, Any] | list[Any]] = [value] if isinstance(value, dict | list) else []
    for _ in range(most):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return bool(level)

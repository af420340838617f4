"""Files of the catalogue: what they say, and their entries, of which only the one that is asked for is parsed."""

from __future__ import annotations

import functools
import os
import re
import tomllib

from costmodel.arithmetic.named_tuples import Row

FOLDER = os.path.dirname(__file__)
_HEADER = re.compile(r"^\[(?:\"([^\"\n]+)\"|([A-Za-z0-9_-]+))\][ \t]*(?:#.*)?\r?$", re.MULTILINE)


@functools.cache
def text_of(file: str) -> str:
    """What a file of the catalogue says (read plainly: `importlib.resources` takes longer to load than an estimate)."""
    with open(os.path.join(FOLDER, file), encoding="utf-8") as stream:
        return stream.read()


@functools.cache
def table_of(file: str) -> Row:
    """A file of the catalogue, parsed whole."""
    table: Row = tomllib.loads(text_of(file))
    return table


@functools.cache
def places(file: str) -> dict[str, tuple[int, int]]:
    """First and last character of each entry of a file."""
    content = text_of(file)
    headers = [(match[1] or match[2], match.start()) for match in _HEADER.finditer(content)]
    ends = [start for _, start in headers[1:]] + [len(content)]
    return {name: (start, end) for (name, start), end in zip(headers, ends, strict=True)}


def entries(file: str) -> tuple[str, ...]:
    """Names of the entries of a file, none of them parsed."""
    return tuple(places(file))


@functools.cache
def entry_of(file: str, name: str) -> Row:
    """One entry of a file, the others not parsed."""
    start, end = places(file)[name]
    entry: Row = tomllib.loads(text_of(file)[start:end])[name]
    return entry

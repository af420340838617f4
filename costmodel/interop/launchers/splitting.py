"""Words of a line as a shell splits them, in time that grows with the line's length alone."""

from __future__ import annotations

import re

PIECE = re.compile(
    r"""
    (?P<blank>[ \t\r\n]++)
    | '(?P<single>[^']*+)'
    | "(?P<double>(?:[^"\\]|\\.)*+)"
    | \\(?P<escaped>.)
    | (?P<plain>[^ \t\r\n'"\\#]++)
    | (?P<hash>\#)
    """,
    re.VERBOSE | re.DOTALL,
)
ESCAPED = re.compile(r"\\([\"\\])")


def words(text: str, comments: bool) -> list[str] | None:
    """A text split into words as a shell does it, in time that grows with its length alone; None in an open quotation.

    Parameters
    ----------
    text : with quotations and escaped signs
    comments : whether a ``#`` starts one, up to the end of its line

    Examples
    --------
    >>> words("--name 'two words' x=\\"a b\\" y#5 # said", comments=True), words("--name 'two", comments=True)
    (['--name', 'two words', 'x=a b', 'y#5'], None)
    """
    found: list[str] = []
    parts: list[str] | None = None
    place = 0
    while place < len(text):
        piece = PIECE.match(text, place)
        if piece is None:
            return None
        place, kind = piece.end(), piece.lastgroup
        if kind == "blank" or (kind == "hash" and comments and parts is None):  # within a word it is a sign as any
            if parts is not None:
                found.append("".join(parts))
                parts = None
            if kind == "hash":
                place = text.find("\n", place) + 1 or len(text)
            continue
        part = piece[kind] if kind else ""
        parts = parts if parts is not None else []
        parts.append(ESCAPED.sub(r"\1", part) if kind == "double" else part)
    return found if parts is None else [*found, "".join(parts)]

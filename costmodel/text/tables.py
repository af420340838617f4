"""Answers as small tables for notebooks, and as a few lines for a console; nothing is imported for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from costmodel.text.results import fitted

ROWS = 12
"""Most rows of a table in a notebook."""


def table(heading: str, columns: Sequence[str], rows: Iterable[Sequence[str]], note: str = "") -> str:
    """An HTML table with a heading; every text is escaped.

    Parameters
    ----------
    heading : above it
    columns : their names
    rows : of texts; those beyond `ROWS` are counted, not shown
    note : below it

    Examples
    --------
    >>> table("a < b", ["x"], [["1"]])
    '<div><b>a &lt; b</b><table><thead><tr><th>x</th></tr></thead><tbody><tr><td>1</td></tr></tbody></table></div>'
    """
    from html import escape  # which a command line never needs

    every = list(rows)
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in every[:ROWS])
    left = f"{len(every) - ROWS:,} more rows" if len(every) > ROWS else ""
    below = "; ".join(text for text in (left, note) if text)
    foot = f"<small>{escape(below)}</small>" if below else ""
    return f"<div><b>{escape(heading)}</b><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{foot}</div>"


def headed(head: str, *rest: str) -> str:
    """A heading and what belongs to it, as a console shows them."""
    return fitted("\n".join([head, *(f"  {line}" for line in rest)]))

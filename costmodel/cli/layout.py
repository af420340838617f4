"""Tables and prose laid out for the width of whoever reads: columns where they fit, else a card for each row.

Drawn here rather than by rich, whose import alone takes a third of the time in which an estimate answers.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

KEPT = "\u00a0"
"""A space at which no line is broken; it is printed as any other."""
ELSEWHERE = 100
"""Columns where nobody says how many there are, as in a file or a pipe."""
NARROWEST = 40
READABLE = 14
"""Columns below which no column of prose is squeezed."""
GAPS = (2, 1)
"""Columns between those of a table, from the widest that is tried."""
HANGING = 2
"""Columns by which the lines that go on from one are indented."""
UNITS = "%|[kKMGT]?i?B(?:/s)?|T?FLOP(?:/s)?|Gbit/s|s|ms|us|ns|h|d|days?|hours?|GPUs?|tokens?|plans?|runs?|micro-batch(?:es)?"
_QUANTITY = re.compile(rf"(?<=[0-9]) (?=(?:{UNITS})(?![\w-]))")


RULE = "\u2500"


class TerminalTable(NamedTuple):
    """A table before it is laid out."""

    columns: tuple[str, ...]  # headings
    rows: tuple[tuple[str, ...], ...]  # of cells
    words: frozenset[int]  # which columns hold text, on the left; the others hold numbers, on the right
    total: bool  # whether the last row sums up the others
    titles: int  # of the first columns, so many head the card of a row where the columns don't fit


class Verbatim(str):
    """Text that means something else when it is broken: a launch file, a formula in LaTeX."""

    __slots__ = ()


def page_width() -> int:
    """Columns of a page: as ``COLUMNS`` says, else those of the terminal, else `ELSEWHERE`."""
    given = os.environ.get("COLUMNS", "")
    if given.isascii() and given.isdigit() and int(given) > 0:
        return max(int(given), NARROWEST)
    try:
        found = os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else 0
    except (OSError, ValueError, AttributeError):
        found = 0
    return max(found, NARROWEST) if found else ELSEWHERE


def measure(text: str) -> int:
    """Columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text
    )


def whole_cell(text: str) -> str:
    """A text that stays on one line."""
    return text.replace(" ", KEPT)


def wrapped(text: str, width: int, hanging: int = HANGING) -> list[str]:
    """A line of prose broken between its words, never inside one, nor between a number and its unit.

    Parameters
    ----------
    text : without line breaks
    width : most columns of a line; a word that is longer stands alone
    hanging : columns by which the lines after the first are indented

    Examples
    --------
    >>> wrapped("a step takes longer than that", 15)
    ['a step takes', '  longer than', '  that']
    """
    if measure(text) <= width:
        return [text]
    indent = " " * (len(text) - len(text.lstrip(" ")))
    return _packed([word for word in _QUANTITY.sub(KEPT, text).split(" ") if word], " ", width, indent, indent + " " * hanging)


def _packed(pieces: Sequence[str], between: str, width: int, first: str, others: str) -> list[str]:
    """Pieces on as few lines as hold them."""
    lines: list[str] = []
    line, empty = first, True
    for piece in pieces:
        if not empty and measure(line) + len(between) + measure(piece) > width:
            lines.append(line)
            line, empty = others, True
        line += piece if empty else between + piece
        empty = False
    return [*lines, line]


def markdown(table: TerminalTable) -> list[str]:
    """Lines of a table as Markdown's."""
    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(_plain(cell) for cell in cells) + " |"

    rules = ["---" if place in table.words else "--:" for place in range(len(table.columns))]
    return [line(table.columns), "|" + "|".join(rules) + "|", *(line(row) for row in table.rows)]


def _plain(cell: str) -> str:
    """A cell that Markdown shows as it is, in its row."""
    return " ".join(cell.replace("|", "\\|").replace("<", "&lt;").replace(KEPT, " ").splitlines())


def laid(table: TerminalTable, width: int) -> list[str]:
    """Lines of a table: its columns, those of prose wrapped, or a card a row where they don't fit.

    Parameters
    ----------
    table : to be shown
    width : most columns of a line
    """
    for gap in GAPS:
        if widths := _widths(table, width - gap * (len(table.columns) - 1)):
            return _grid(table, widths, gap)
    return _cards(table, width)


def listed(table: TerminalTable, width: int) -> tuple[TerminalTable, tuple[str, ...]]:
    """A long listing without its last column where each row then takes one line, and the headings that it lacks.

    Parameters
    ----------
    table : its columns in the order in which they matter
    width : most columns of a line; where that isn't enough nothing is left out

    Examples
    --------
    >>> words = TerminalTable(("name", "GPUs", "title"), (("dgx-2", "16", "NVIDIA DGX-2, 2018"),), frozenset({0, 2}), False, 1)
    >>> [listed(words, width)[1] for width in (80, 20, 5)]
    [(), ('title',), ()]
    """
    for many in (len(table.columns), len(table.columns) - 1):
        rows = tuple(row[:many] for row in table.rows)
        cut = table._replace(columns=table.columns[:many], rows=rows, words=frozenset(range(many)) & table.words)
        for gap in GAPS:
            widths = _widths(cut, width - gap * (many - 1))
            if widths and all(measure(cell) <= wide for row in rows for cell, wide in zip(row, widths, strict=True)):
                return cut, table.columns[many:]
    return table, ()


def command(text: str, width: int = 0) -> Verbatim:
    """A shell's command, to copy: where it is wider than the page it goes on behind a backslash.

    Parameters
    ----------
    text : without line breaks
    width : most columns of a line; the page's if 0
    """
    width = width or page_width()
    if measure(text) <= width:
        return Verbatim(text)
    pieces: list[str] = []
    for word in re.findall(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""", text):
        if pieces and not word.startswith("-") and measure(pieces[-1]) + measure(word) < width // 2:
            pieces[-1] += f" {word}"  # an option and its value stay together
        else:
            pieces.append(word)
    return Verbatim(" \\\n".join(_packed(pieces, " ", width - 2, "", " " * HANGING)))


def _longest_word(text: str) -> int:
    words = _QUANTITY.sub(KEPT, text.lstrip(" ")).split(" ")
    indent = len(text) - len(text.lstrip(" "))  # stays before every line
    return indent + max(map(measure, words))


def _widths(table: TerminalTable, room: int) -> list[int] | None:
    """Columns for each column; None where they don't fit."""
    natural, least = [], []
    for place, heading in enumerate(table.columns):
        cells = [row[place] for row in table.rows]
        head = max(measure(word) for word in re.findall(r"[^ /-]+[/-]*|[/-]+", heading) or [""])
        widest = max((measure(cell) for cell in cells), default=0)
        natural.append(max(widest, measure(heading)))
        if place in table.words:
            word = max((_longest_word(cell) for cell in cells), default=0)
            least.append(max(head, word, min(widest, READABLE)))
        else:
            least.append(max(head, widest))
    if sum(natural) <= room:
        return natural
    if sum(least) > room:
        return None
    wanted = [most - few for most, few in zip(natural, least, strict=True)]
    left = room - sum(least)
    widths = [few + min(want, left * want // sum(wanted)) for few, want in zip(least, wanted, strict=True)]
    for place in sorted(range(len(widths)), key=lambda place: natural[place] - widths[place]):  # what rounding left over
        more = min(natural[place] - widths[place], room - sum(widths))
        widths[place] += more
    return widths


def _grid(table: TerminalTable, widths: Sequence[int], gap: int) -> list[str]:
    """Lines of a table whose columns fit."""
    heads = [_packed_heading(heading, width) for heading, width in zip(table.columns, widths, strict=True)]
    tallest = max(map(len, heads))
    lines = _side_by_side([[""] * (tallest - len(head)) + head for head in heads], widths, table.words, gap)
    lines.append(RULE * (sum(widths) + gap * (len(widths) - 1)))
    for place, row in enumerate(table.rows, 1):
        if table.total and place == len(table.rows) > 1:
            lines.append("")
        cells = [wrapped(cell, width, 0) for cell, width in zip(row, widths, strict=True)]
        lines += _side_by_side(cells, widths, table.words, gap)
    return lines


def _packed_heading(heading: str, width: int) -> list[str]:
    if measure(heading) <= width:
        return [heading]
    lines: list[str] = []
    line = ""
    for word in re.findall(r" ?[^ /-]+[/-]*| ?[/-]+", heading):
        if line and measure(line) + measure(word) > width:
            lines.append(line)
            line = ""
        line += word if line else word.lstrip(" ")
    return [*lines, line]


def _side_by_side(cells: Sequence[list[str]], widths: Sequence[int], words: frozenset[int], gap: int) -> list[str]:
    lines = []
    for level in range(max(map(len, cells))):
        texts = []
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True)):
            text = cell[level] if level < len(cell) else ""
            blank = " " * (width - measure(text))
            texts.append(text + blank if place in words else blank + text)
        lines.append((" " * gap).join(texts).rstrip(" "))
    return lines


def _cards(table: TerminalTable, width: int) -> list[str]:
    """A block for each row: its first cells, and below them each other one behind its heading."""
    said = " " in table.columns[0]  # a heading that isn't the name of what is listed
    lines = [*wrapped(f"{table.columns[0]}:", width), ""] if said else []
    for place, row in enumerate(table.rows):
        lines += [""] * (place > 0)
        names = [
            f"{heading} {cell.strip(' ')}" if cell.strip(" ")[0].isdigit() else cell.strip(" ")
            for heading, cell in zip(table.columns[: table.titles], row, strict=False) if cell.strip(" ")
        ]  # fmt: skip
        lines += wrapped("  ".join(names), width)
        items: list[str] = []
        for heading, cell in list(zip(table.columns, row, strict=True))[table.titles :]:
            if cell.strip(" "):
                items.append(f"{heading}: {cell.strip(' ')}" if heading else cell.strip(" "))
        indent = " " * HANGING
        short = [whole_cell(item) for item in items if measure(item) <= width - HANGING]
        lines += _packed(short, "   ", width, indent, indent) if short else []
        for item in items:
            if measure(item) > width - HANGING:
                lines += wrapped(indent + item, width)
    return lines

"""What commands print: tables for people, JSON and CSV for machines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from costmodel.description.dimensions import WRITTEN
from costmodel.words import part_name, placed

if TYPE_CHECKING:
    from costmodel.evaluation.estimation import Estimate


WIDE = 10_000
"""Columns of a page, so that nothing is ever wrapped."""


class Table(NamedTuple):
    """A table before it is laid out.

    Parameters
    ----------
    columns : headings
    rows : of cells
    words : so many columns hold text, on the left; the others hold numbers, on the right
    total : whether the last row sums up the others
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int
    total: bool


COMMON = ("tensor_parallel", "context_parallel", "pipeline_parallel", "data_parallel")
"""Degrees that are said where they are one, too."""


def print_text(text: str) -> None:
    """Write a text to stdout, on lines of its own."""
    if sys.stdout is not None:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")


def print_json(document: object) -> None:
    """Write a document as JSON."""
    import json

    print_text(json.dumps(document, allow_nan=False, indent=1))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1, total: bool = False) -> Table:
    """A table whose first `words` columns are text and the others numbers; `total` sets off the last row."""
    return Table(tuple(columns), tuple(tuple(row) for row in rows), words, total)


def _laid(shown: Table, markdown: bool) -> str:
    """A table as lines, or as Markdown's, never cut to the width of the terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as Drawn

    drawn = Drawn(box=box.MARKDOWN if markdown else box.SIMPLE_HEAD, pad_edge=markdown, show_edge=markdown)
    for place, column in enumerate(shown.columns):
        drawn.add_column(column, justify="left" if place < shown.words else "right", no_wrap=True)
    for place, row in enumerate(shown.rows, 1):
        cells = [cell.replace("|", "\\|") for cell in row] if markdown else row
        drawn.add_row(*cells, end_section=shown.total and not markdown and place == len(shown.rows) - 1)
    console = Console(width=WIDE, highlight=False, markup=False, emoji=False)
    with console.capture() as page:
        console.print(drawn)
    return "\n".join(line.rstrip() for line in page.get().splitlines() if line.strip() or not markdown)


def print_page(*parts: Table | str, markdown: bool = False) -> None:
    """Tables and lines of text, an empty line between them.

    Parameters
    ----------
    parts : of the page
    markdown : tables as Markdown's and lines of text as paragraphs of their own, to paste into an issue or a report
    """
    blocks = []
    for part in parts:
        if isinstance(part, Table):
            blocks.append(_laid(part, markdown))
        else:
            lines = [line.rstrip() for line in str(part).splitlines()]
            blocks.append(("\n\n" if markdown else "\n").join(lines))
    print_text("\n\n".join(blocks))


def share(part: float, whole: float) -> str:
    """A part of a whole in per cent."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def gib(nbytes: float) -> str:
    """Bytes in GiB, without the unit."""
    return f"{nbytes / 2**30:.1f}"


def parts(amounts: Mapping[str, float], show: Callable[[float], str], most: int = 5) -> str:
    """The largest of some named amounts, in words."""
    largest = sorted((item for item in amounts.items() if item[1] > 0), key=lambda item: -item[1])
    return ", ".join(f"{part_name(name)} {show(amount)}" for name, amount in largest[:most])


def split(estimate: Estimate) -> str:
    """A plan in a line."""
    plan = estimate.plan
    words = [
        f"{one.short} {getattr(plan, one.field)}" for one in WRITTEN
        if one.field in COMMON or getattr(plan, one.field) > 1 or (one.column == "expert" and estimate.model.experts)
    ]  # fmt: skip
    parts = [" ".join(words), f"micro-batch {plan.micro_batch}", f"ZeRO {plan.zero_stage}", f"recompute {plan.recompute}"]
    parts += placed(plan)
    if plan.synchronisation != "all-reduce":
        parts.append(plan.synchronisation)
    if plan.compression != "none":
        parts.append(f"compression {plan.compression}")
    return ", ".join(parts)


def whole_plan(estimate: Estimate) -> str:
    """A plan in a line, with how it runs."""
    plan = estimate.plan
    return f"{split(estimate)}, {plan.schedule}, {plan.dtype}, {plan.micro_batches} micro-batches"


def memory_parts(estimate: Estimate) -> dict[str, float]:
    """Parts of the fullest GPU's memory [bytes]."""
    held = estimate.step.memory._asdict()
    del held["total"]
    return held


def shown(value: object) -> str:
    """A field of a description as people read it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) < 1e6 and value == int(value) else f"{value:.6g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)


def write_csv(path: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write rows to a file, under the names of their columns."""
    import csv

    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)

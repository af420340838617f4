"""What commands print: tables for people, JSON and CSV for machines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from costmodel.evaluation.estimation import Estimate

WIDE = 10_000
"""Columns of the page that tables are laid out on: none is cut or wrapped."""


def print_text(text: str) -> None:
    """Write a text to stdout, on lines of its own."""
    if sys.stdout is not None:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")


def print_json(document: Any) -> None:
    """Write a document as JSON."""
    import json

    print_text(json.dumps(document, allow_nan=False, indent=1))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1, total: bool = False) -> Any:
    """A table whose first `words` columns are text and the others numbers; `total` sets off the last row."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    drawn = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for place, column in enumerate(columns):
        drawn.add_column(column, justify="left" if place < words else "right", no_wrap=True)
    filled = list(rows)
    for place, row in enumerate(filled, 1):
        drawn.add_row(*row, end_section=total and place == len(filled) - 1)
    return drawn


def print_page(*parts: Any) -> None:
    """Tables and lines of text, an empty line between them, never cut to the width of the terminal."""
    from rich.console import Console

    console = Console(width=WIDE, highlight=False, markup=False, emoji=False)
    with console.capture() as page:
        for place, part in enumerate(parts):
            if place:
                console.print()
            console.print(part)
    print_text("\n".join(line.rstrip() for line in page.get().splitlines()))


def share(part: float, whole: float) -> str:
    """A part of a whole in per cent."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def gib(nbytes: float) -> str:
    """Bytes in GiB, without the unit."""
    return f"{nbytes / 2**30:.1f}"


def parts(amounts: Mapping[str, float], show: Callable[[float], str], most: int = 5) -> str:
    """The largest of some named amounts, in words."""
    largest = sorted((item for item in amounts.items() if item[1] > 0), key=lambda item: -item[1])
    return ", ".join(f"{name.replace('_', ' ')} {show(amount)}" for name, amount in largest[:most])


def split(estimate: Estimate) -> str:
    """A plan in a line."""
    plan = estimate.plan
    words = [f"TP {plan.tensor_parallel}", f"CP {plan.context_parallel}", f"PP {stages(estimate)}", f"DP {plan.data_parallel}"]
    if estimate.model.experts:
        words.append(f"EP {plan.expert_parallel}")
    parts = [" ".join(words), f"micro-batch {plan.micro_batch}", f"ZeRO {plan.zero_stage}", f"recompute {plan.recompute}"]
    if plan.synchronisation != "all-reduce":
        parts.append(plan.synchronisation)
    if plan.compression != "none":
        parts.append(f"compression {plan.compression}")
    return ", ".join(parts)


def whole_plan(estimate: Estimate) -> str:
    """A plan in a line, with how it runs."""
    plan = estimate.plan
    return f"{split(estimate)}, {plan.schedule}, {plan.dtype}, {plan.micro_batches} micro-batches"


def stages(estimate: Estimate) -> str:
    """Ranks of the pipeline, and the model chunks on each where there are several."""
    plan = estimate.plan
    return f"{plan.pipeline_parallel}" + (f"x{plan.virtual_stages}" if plan.virtual_stages > 1 else "")


def memory_parts(estimate: Estimate) -> dict[str, float]:
    """Parts of the fullest GPU's memory [bytes]."""
    held = estimate.step.memory._asdict()
    del held["total"]
    return held


def shown(value: Any) -> str:
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


def write_csv(path: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write rows to a file, under the names of their columns."""
    import csv

    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)

"""What commands print: tables for people, JSON and CSV for machines."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from costmodel.cli import codes, layout
from costmodel.cli.layout import TerminalTable as TerminalTable
from costmodel.cli.layout import Verbatim as Verbatim
from costmodel.description.cluster import Cluster
from costmodel.description.dimensions import RANK_ORDER
from costmodel.description.framework import Framework
from costmodel.description.labels import asked, degrees, dispatched, label, ordered, part_name
from costmodel.description.plan import Plan
from costmodel.description.question import Question
from costmodel.description.transformer import Transformer
from costmodel.evaluation.estimation import Estimate, lack, of_limit
from costmodel.text.results import cell, rows_as_csv
from costmodel.text.units import counted


def print_text(text: str) -> None:
    """Write a text to stdout, on lines of its own."""
    if sys.stdout is not None:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")


def print_json(document: object) -> None:
    """Write a document as JSON."""
    print_text(json.dumps(document, allow_nan=False, indent=1))


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], words: int | Collection[int] = 1, total: bool = False, titles: int = 1
) -> TerminalTable:
    """A table to lay out.

    Parameters
    ----------
    columns : headings
    rows : of cells
    words : which columns hold text rather than numbers, or how many of the first
    total : set off the last row
    titles : how many of the first columns name a row
    """
    text = frozenset(range(words)) if isinstance(words, int) else frozenset(words)
    return TerminalTable(tuple(columns), tuple(tuple(row) for row in rows), text, total, titles)


def print_page(*parts: TerminalTable | str, markdown: bool = False, more: bool = False) -> None:
    """Tables and lines of text, an empty line between them, none wider than the terminal.

    Parameters
    ----------
    parts : of the page; those that are empty are left out
    markdown : tables as Markdown's and lines of text as paragraphs of their own, to paste into an issue or a report
    more : the page goes on from what is printed already
    """
    blocks = [_block(part, markdown) for part in parts if part]
    if not blocks:
        return
    text = ("\n" if more else "") + "\n\n".join(blocks).replace(layout.KEPT, " ")
    print_text(text if _prints(layout.RULE) else text.replace(layout.RULE, "-"))


def respond(
    arguments: argparse.Namespace, document: Callable[[], object], page: Callable[[], Sequence[TerminalTable | str]],
    fits: bool = True,
) -> int:  # fmt: skip
    """Print an answer as it was asked for; the exit code.

    Parameters
    ----------
    arguments : of a command with ``--json`` and ``--markdown``
    document, page : make it for machines, and for people
    fits : whether any plan does
    """
    if arguments.json:
        print_json(document())
    else:
        print_page(*page(), markdown=arguments.markdown)
    return codes.ANSWERED if fits else codes.NOTHING_FITS


def _block(part: TerminalTable | str, markdown: bool) -> str:
    if isinstance(part, TerminalTable):
        return "\n".join(layout.markdown(part) if markdown else layout.laid(part, layout.page_width()))
    if isinstance(part, Verbatim):
        return str(part)
    lines = [line.rstrip() for line in part.splitlines()]
    if markdown:
        return "\n\n".join(lines)
    width = layout.page_width()
    return "\n".join(broken for line in lines for broken in layout.wrapped(line, width))


def _prints(letter: str) -> bool:
    """Whether what looks at stdout can show a letter."""
    try:
        letter.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeError:
        return False
    return True


def heading_of(answer: Estimate) -> str:
    """What an estimate, or a step that was played out, is an answer to."""
    plan = answer.plan
    return heading(
        answer.model, answer.cluster, answer.framework, gpus=plan.gpus, work=(plan.global_batch, plan.seq_len),
        departures=answer.departures,
    )  # fmt: skip


def heading(
    model: Transformer, cluster: Cluster, framework: Framework, *, gpus: int | None = None, work: tuple[int, int] | None = None,
    departures: Sequence[str] | None = None,
) -> str:  # fmt: skip
    """What an answer is an answer to: model, hardware, software and work, and below it what departs from the defaults.

    Parameters
    ----------
    model, cluster, framework : of the question
    gpus : how many of them; the cluster's if None
    work : sequences of a step and tokens of a sequence
    departures : what isn't as it would be unasked; that of the descriptions if None
    """
    if departures is None:
        from costmodel.evaluation.departures import departures as departing

        departures = departing(Question(model, cluster, framework), [])
    line = asked(model, cluster, framework, gpus=gpus, work=work)
    return "\n".join([line, *([f"Not by default: {', '.join(departures)}"] if departures else [])])


def without_constants(columns: Mapping[str, Sequence[str]]) -> tuple[dict[str, Sequence[str]], str]:
    """Columns whose cells differ, and in one line those in which all are the same.

    Parameters
    ----------
    columns : cells by their heading; those without one speak for themselves

    Examples
    --------
    >>> without_constants({"ZeRO": ["1", "1"], "micro-batch": ["1", "2"]})
    ({'micro-batch': ['1', '2']}, 'All with ZeRO 1')
    """
    alike = {title: cells[0] for title, cells in columns.items() if len(set(cells)) == 1}
    rows = max((len(cells) for cells in columns.values()), default=0)
    line = ", ".join(f"{title} {cell}".strip() for title, cell in alike.items() if cell)
    left = {title: cells for title, cells in columns.items() if title not in alike}
    return left, f"{'All with' if rows > 1 else 'With'} {line}" if line else ""


def written(*files: str) -> str:
    """A line that says which files were written."""
    return f"Written: {', '.join(files)}" if files else ""


def share(part: float, whole: float) -> str:
    """A part of a whole in per cent."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def gib(nbytes: float) -> str:
    """Bytes in GiB, without the unit."""
    return f"{nbytes / 2**30:.1f}"


def parts(amounts: Mapping[str, float], show: Callable[[float], str]) -> str:
    """The five largest of some named amounts, in words."""
    largest = sorted((item for item in amounts.items() if item[1] > 0), key=lambda item: -item[1])
    return ", ".join(f"{part_name(name)} {show(amount)}" for name, amount in largest[:5])


def time_and_memory(answer: Estimate) -> tuple[str, str]:
    """The largest parts of a step's time, and of the fullest GPU's memory."""
    times = parts(answer.times, lambda part: share(part, answer.step_time))
    return times, parts(memory_parts(answer), lambda part: f"{gib(part)} GiB")


def split(estimate: Estimate) -> str:
    """A plan in a line."""
    plan = estimate.plan
    parts = [degrees(plan), f"micro-batch {plan.micro_batch}", f"ZeRO {plan.zero_stage}", f"recompute {plan.recompute}"]
    parts += [] if plan.shard_group is None else [f"shard group {plan.shard_group}"]
    parts += [] if tuple(plan.rank_order) == RANK_ORDER else [f"ranks {ordered(plan)}"]
    parts += dispatched(plan)
    if plan.synchronisation != "all-reduce":
        parts.append(plan.synchronisation)
    if plan.compression != "none":
        parts.append(f"compression {plan.compression}")
    return ", ".join(parts)


def named(plan: Plan) -> str:
    """A plan in a cell of a table: its degrees on one line, then what else differs from the commonest."""
    return ", ".join(layout.whole_cell(part) for part in label(plan).split(", "))


def whole_plan(estimate: Estimate) -> str:
    """A plan in a line, with how it runs."""
    plan = estimate.plan
    return f"{split(estimate)}, {plan.schedule}, {plan.dtype}, {counted(plan.micro_batches, 'micro-batch', 'micro-batches')}"


def judged(estimate: Estimate) -> str:
    """Whether a plan fits, by how much, and how surely."""
    chance = share(estimate.fit_probability, 1.0)
    if estimate.fits:
        return f"Fits: {of_limit(estimate)}, {gib(estimate.memory_margin)} GiB to spare (probability {chance})"
    over = f"{of_limit(estimate)}, {lack(estimate)}"
    if estimate.judgement == "does not fit":
        return f"DOES NOT FIT: {over} (probability that it fits {chance})"
    beyond = estimate.needed_memory > estimate.usable_memory
    idle = ", as an allocator gives back what it keeps idle before memory runs out" if beyond else ""
    sure = f"{100.0 * estimate.required_probability:g} %"
    return f"MAY RUN OUT: {over}: of plans estimated at that limit {sure} fit, of those estimated as this one {chance}{idle}"


def plan_heading(answer: Estimate) -> str:
    """What an estimate is an answer to, and its plan."""
    return f"{heading_of(answer)}\n{whole_plan(answer)}"


def because(estimate: Estimate) -> str:
    """How near measurements are to an estimate, and what its interval is wide because of where that is one thing."""
    return "; ".join(filter(None, (estimate.evidence, estimate.widest_unknown)))


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
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([cell(value) for value in row] for row in rows)


def rows_file(
    path: str | None, made: Callable[[], Sequence[Mapping[str, object]]], thing: str, things: str = "",
    columns: Sequence[str] = (),
) -> list[str]:  # fmt: skip
    """Write rows to a file of comma-separated values, if one was asked for, a column for every name; what was written.

    Parameters
    ----------
    path : of the file
    made : gives them, each by name
    thing, things : what a row is, and what several are, as `counted` takes them
    columns : names, where there are no rows
    """
    if not path:
        return []
    rows = made()
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(rows_as_csv(rows, columns))
    return [f"{path} ({counted(len(rows), thing, things)})"]

"""One self-contained file about a search: the question, the answer, what else there is, figures, and what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from costmodel.description.labels import label
from costmodel.evaluation.assumptions import Assumption, assumptions
from costmodel.evaluation.estimation import sentence
from costmodel.evaluation.plan_search import SearchResult
from costmodel.evaluation.search_result import COLUMNS, ranked_rows
from costmodel.plots.answers import answer_figures
from costmodel.plots.page import STYLE as FIGURES
from costmodel.plots.page import VIEWPORT, drawing
from costmodel.plots.style import BLUE
from costmodel.text.units import counted, format_bytes, format_count, format_seconds
from costmodel.text.version import __version__

STYLE = f"""
:root {{ color-scheme: light; --line: #0002; --soft: #000a; }}
body {{ font: 16px/1.5 system-ui, "Segoe UI", Roboto, sans-serif; max-width: 1040px; margin: 0 auto; padding: 16px 16px 48px; }}
h1 {{ font-size: 1.5rem; line-height: 1.25; border-left: 4px solid {BLUE}; padding-left: 12px; }}
h2 {{ font-size: 1.15rem; margin: 2.2rem 0 .4rem; }}
p {{ max-width: 46rem; }} code {{ overflow-wrap: anywhere; }}
pre {{ white-space: pre-wrap; border: 1px solid var(--line); padding: 8px 12px; }}
.wide {{ overflow-x: auto; }} table {{ border-collapse: collapse; font-size: .9rem; }}
th, td {{ text-align: left; padding: 4px 14px 4px 0; border-bottom: 1px solid var(--line); vertical-align: top; }}
td.number {{ text-align: right; white-space: nowrap; }} footer {{ color: var(--soft); margin-top: 3rem; font-size: .9rem; }}
"""


class Report(NamedTuple):
    """What is written."""

    title: str  # of the page
    question: str  # in a sentence
    answer: str  # in a sentence
    remarks: tuple[str, ...]  # further sentences about it
    alternatives: tuple[tuple[str, ...], ...]  # a row of texts for each ranked plan
    assumptions: tuple[Assumption, ...]  # what it rests on
    command: str  # that makes it again
    note: str = ""  # note, link: what else is to be said, and a link that opens the question; either may be empty
    link: str = ""


def report(found: SearchResult, command: str, note: str = "", link: str = "") -> Report:
    """What `write_report` writes.

    Parameters
    ----------
    found : with at least one plan that fits
    command : that makes the report again
    note, link : what else is to be said, and a link that opens the question; either may be empty

    Raises
    ------
    IllegalPlan
        where no plan fits
    """
    best, standing = found.best, found.standings.plans[0]
    plan = best.plan
    question = (
        f"Which parallel plan trains {found.model.name} ({format_count(found.model.parameters)} parameters) fastest on "
        f"{counted(plan.gpus, 'GPU')} of {found.cluster.name} with {found.framework.name}, {plan.global_batch:,} sequences of "
        f"{plan.seq_len:,} tokens a step, in {plan.dtype}?"
    )
    remarks = [
        f"{found.considered:,} combinations were looked at, {found.evaluated:,} of them are legal, {found.fitting:,} fit.",
        f"Chosen for its estimate, it is expected to take {format_seconds(found.corrected_step_time)}; "
        f"{len(found.ties())} of the plans below can't be told from it within the error.",
    ]
    if found.departures:
        remarks.insert(0, f"Not by default: {', '.join(found.departures)}.")
    if miss := found.closest_miss:
        remarks.append(
            f"{label(miss.plan)} would take {format_seconds(miss.step_time)} but needs {format_bytes(found.excess_bytes)} more "
            "memory than there is."
        )
    return Report(
        f"{found.model.name} on {counted(plan.gpus, 'GPU')} of {found.cluster.name}", question,
        sentence(best, standing.probability_fastest), tuple(remarks), tuple(ranked_rows(found)), assumptions(best), command, note,
        link,
    )  # fmt: skip


def report_page(found: SearchResult, command: str, note: str = "", link: str = "") -> str:
    """The report as one HTML text that loads nothing.

    Parameters
    ----------
    found : of a search that kept what it evaluated, with at least one plan that fits
    command : that makes it again
    note, link : what else is to be said, and a link that opens the question; either may be empty

    Raises
    ------
    IllegalPlan
        where no plan fits
    InvalidValue
        where the search has not kept what it evaluated
    """
    made = report(found, command, note, link)
    said = f"<p>{escape(made.note)}</p>" if made.note else ""
    opens = f"<p>The page that it was made from: <code>{escape(made.link)}</code></p>" if made.link else ""
    drawings = "".join(drawing(figure, place) for place, figure in enumerate(answer_figures(found)))
    rested = [(one.name, one.value, one.error, one.source) for one in made.assumptions]
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">{VIEWPORT}
<title>{escape(made.title)}</title><style>{STYLE}{FIGURES}</style></head><body><main>
<p>{escape(made.question)}</p>
<h1>{escape(made.answer)}</h1>
{said}<p>{escape(" ".join(made.remarks))}</p>
<h2>The plan and its alternatives</h2>{_table(COLUMNS, made.alternatives, (2, 4, 5, 7))}
<h2>Figures</h2>{drawings}
<h2>What it rests on</h2>{_table(("quantity", "value", "error", "source"), rested)}
<h2>The command that makes this report again</h2><pre>{escape(made.command)}</pre>{opens}
</main><footer>costmodel {escape(__version__)}; every time and byte above is an estimate.</footer></body></html>
"""


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    marks = {place: ' class="number"' for place in numbers}
    body = "".join(
        "<tr>" + "".join(f"<td{marks.get(place, '')}>{escape(text)}</td>" for place, text in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f'<div class="wide" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def write_report(path: str | Path, found: SearchResult, command: str) -> None:
    """Write a report to an HTML file.

    Parameters
    ----------
    path : of the file
    found : of a search that kept what it evaluated, with at least one plan that fits
    command : that makes it again
    """
    Path(path).write_text(report_page(found, command), encoding="utf-8")

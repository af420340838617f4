"""Predict measured runs and say how wrong the predictions are, source by source."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import sys
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import costmodel
from calibration.data.arguments import STEADY
from calibration.data.cases import cases_of, is_modelled
from calibration.data.datasets import untimed
from calibration.data.reference import default_files
from calibration.data.runs import SECOND, Run, read_runs
from calibration.data.twins import CONTRADICTED
from calibration.validate.levels import LEVELS
from calibration.validate.metrics import Prediction, summary
from calibration.validate.predictions import predictions_of
from costmodel.arithmetic.named_tuples import Row
from costmodel.text.errors import CostModelError

QUOTED = Path(__file__).parents[1] / "reference"
"""Small tables of figures quoted from papers, for checkouts without the reference folder."""
LEAST_PREDICTED = 0.9
WAITED = f"over {CONTRADICTED:g} times what other runs of the same stages in the source allow, or what polling takes"
UNSTEADY = f"the median step takes over {STEADY:g} times the fastest"
"""Why a row's time is neither fitted nor judged by, beside what `calibration.data.datasets.untimed` says."""
ROOT = Path(__file__).resolve().parents[2]
README, PAGE = ROOT / "README.md", ROOT / "docs" / "accuracy.md"
BEGIN, END = "<!-- accuracy:begin -->", "<!-- accuracy:end -->"
CATALOGUE = Path(costmodel.__file__).parent / "catalogue"


def complete(run: Run) -> bool:
    """Whether the source marks a row as having a whole plan and something measured."""
    return run.flag("usable_time") or run.flag("usable_mem") or run.flag("usable_oom")


def evaluate(runs: Sequence[Run]) -> tuple[list[Prediction], dict[str, int]]:
    """Predictions of the usable rows, and the count of the others by reason."""
    skipped: dict[str, int] = {}
    wanted = []
    for run in runs:
        if complete(run):
            wanted.append(run)
        else:
            reason = run.text["status"] if run.text["status"].lower() not in ("", "ok") else "not usable: incomplete plan"
            skipped[reason[:80]] = skipped.get(reason[:80], 0) + 1
    cases, missing = cases_of(wanted)
    for reason, labels in missing.items():
        skipped[reason] = skipped.get(reason, 0) + len(labels)
    return predictions_of(cases), skipped


def unused(predictions: Sequence[Prediction]) -> dict[str, int]:
    """Measured times that are neither fitted nor judged by, by reason."""
    left = [p.case for p in predictions if p.case.run.flag("usable_time") and p.case.seconds is None]
    return dict(Counter(WAITED if case.waited else untimed(case.run) or UNSTEADY for case in left))


def report(by_source: dict[str, list[Run]]) -> tuple[dict[str, object], list[Prediction], list[str]]:
    """The document that ``--json`` prints, all predictions, and the sources that failed.

    A source fails where less than 90 % of its usable rows are predicted, but for those of a kind that is not modelled,
    which are listed with the reason.
    """
    sources, everything, failures = [], [], []
    total_skipped: dict[str, int] = {}
    rows = 0
    for source, runs in by_source.items():
        predictions, skipped = evaluate(runs)
        usable = sum(is_modelled(run) for run in runs if complete(run))
        if usable and len(predictions) < LEAST_PREDICTED * usable:
            failures.append(f"{source}: only {len(predictions)} of {usable} usable rows are predicted")
        figures = {**summary(predictions), "unseen": unseen_of(source), "distance": distance_of(source)}
        sources.append({"source": source, "rows": len(runs), "skipped": skipped, "unused": unused(predictions), **figures})
        everything += predictions
        rows += len(runs)
        for reason, count in skipped.items():
            total_skipped[reason] = total_skipped.get(reason, 0) + count
    total = {"source": "total", "rows": rows, "skipped": total_skipped, **summary(everything), "unseen": unseen_of("total"),
             "distance": distance_of("total"), "constants": constants_of_last_fit()}  # fmt: skip
    return {"sources": sources, "total": total}, everything, failures


def constants_of_last_fit() -> dict[str, object]:
    """How many constants the last fit fitted, how many of them the data identify, and how many lie at a bound."""
    return dict(tomllib.loads((CATALOGUE / "residuals.toml").read_text(encoding="utf-8")).get("constants", {}))


def distance_table() -> Row:
    """Figures by how new a question is, by fits that had not seen the groups: what the last fit found."""
    found: Row = json.loads((CATALOGUE / "distance.json").read_text(encoding="utf-8"))
    return found


def distance_of(source: str) -> Row:
    """Figures of a source, or of the total, at every level; of a level where the source has none, nothing."""
    found: Row = {}
    for level, entry in distance_table().items():
        found[level] = {
            what: entry[what]["total"] if source == "total" else entry[what]["sources"].get(source)
            for what in ("time", "memory")
        }
        if source == "total":
            found[level]["verdicts"] = entry["verdicts"]
    return found


def unseen_of(source: str) -> dict[str, object]:
    """Errors of new plans of a source, by fits that had not seen them."""
    found = distance_of(source)["plan"]["time"] or {}
    return {"mape": found.get("mape"), "median_ape": found.get("median_ape"), "time_90": found.get("coverage_90")}


def percent(value: float | None) -> str:
    """A share as a percentage, a dash where there is none."""
    return "-" if value is None else f"{100 * value:.1f} %"


HEADINGS = (
    "source", "rows", "timed", *(f"new {level}" for level in LEVELS), *(f"90 % holds, new {level}" for level in LEVELS),
    "regret, new model", *(f"memory, new {level}" for level in LEVELS), "out of memory judged right", "ran judged right",
)  # fmt: skip


def table_rows(document: Row) -> list[list[str]]:
    """The report as rows of text under `HEADINGS`: mean errors of step time and memory; in total, means over sources."""
    rows = []
    for entry in [*document["sources"], document["total"]]:
        distance, verdict = entry["distance"], entry["verdicts"]

        def shown(what: str, figure: str, of: Row = distance) -> list[str]:
            return [percent((of[level][what] or {}).get(figure)) for level in LEVELS]

        oom, ran = (verdict[f"{kind}_right"] + verdict[f"{kind}_wrong"] for kind in ("oom", "ran"))
        rows.append([
            entry["source"], str(entry["rows"]), str(entry["time"]["n"]), *shown("time", "mape"),
            *shown("time", "coverage_90"), shown("time", "regret")[LEVELS.index("model")], *shown("memory", "mape"),
            f"{verdict['oom_right']}/{oom}" if oom else "-", f"{verdict['ran_right']}/{ran}" if ran else "-",
        ])  # fmt: skip
    return rows


def markdown(document: dict[str, object]) -> str:
    """The report as a Markdown table."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in table_rows(document))])


def markdown_by_distance(total: Row) -> str:
    """The total as a short Markdown table: a row for each distance of a question from what was measured."""
    lines = ["| what is new | step time, mean error | 90 % intervals hold | regret of the first plan | memory, mean error |"]
    lines.append("|---|---|---|---|---|")
    for level in LEVELS:
        time, memory = (total["distance"][level][what] or {} for what in ("time", "memory"))
        figures = (time.get("mape"), time.get("coverage_90"), time.get("regret"), memory.get("mape"))
        lines.append(f"| a {level} | " + " | ".join(percent(figure) for figure in figures) + " |")
    return "\n".join(lines)


def write_predictions(path: Path, predictions: Sequence[Prediction]) -> None:
    """Every predicted row, with what was measured, as CSV; nothing is left half-written."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([
        "dataset", "row", "model_name", "n_gpus", "step_time_s", "predicted_step_time_s", "predicted_low_s",
        "predicted_high_s", "peak_memory_bytes", "predicted_peak_memory_bytes", "predicted_memory_low_bytes",
        "predicted_memory_high_bytes", "oom", "predicted_fits",
    ])  # fmt: skip
    for p in predictions:
        run = p.case.run
        writer.writerow([
            run.text["dataset"], run.text["row"], run.text["model_name"], p.case.plan.gpus, p.case.seconds or "",
            p.seconds, p.seconds_low, p.seconds_high, p.case.peak_bytes or "", p.nbytes, p.nbytes_low, p.nbytes_high,
            int(run.flag("usable_oom")), int(p.fits),
        ])  # fmt: skip
    replaced(path, buffer.getvalue())


def gather(files: Sequence[Path], reference: Path | None) -> dict[str, list[Run]]:
    """Runs by source file: those named, else the reference folder's, else the quoted tables."""
    chosen = list(files) or default_files(reference) or sorted(QUOTED.glob("*.csv"))
    if not chosen:
        raise CostModelError("no reference files: name some, or give --reference DIR")
    stems = [path.stem for path in chosen]
    named = {path: str(path) if stems.count(path.stem) > 1 else path.stem for path in chosen}
    if not files:  # the second edition of a source beside the first
        named = {path: path.stem if path.parent.name != SECOND else f"{SECOND}/{path.stem}" for path in chosen}
    return {name: read_runs(path) for path, name in named.items()}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``validate``."""
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="CSV files with the reference columns")
    parser.add_argument("--reference", type=Path, metavar="DIR", help="reference folder (default: ../shared/reference)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write scatter plots")
    parser.add_argument("--update", action="store_true", help="write the tables into README.md, docs and the catalogue")
    parser.add_argument("--own-runs", type=_counts, metavar="N,N", help="errors after calibrating on so many runs of a group")
    parser.add_argument("--predictions", type=Path, metavar="FILE", help="write every row with its prediction")


def _counts(text: str) -> list[int]:
    numbers = [int(part) for part in text.split(",")]
    if min(numbers) < 1:
        raise ValueError(text)
    return numbers


def _own_runs(by_source: dict[str, list[Run]], counts: Sequence[int]) -> dict[str, object]:
    from calibration.fit.runs import ITERATIONS, fit_runs
    from calibration.validate.own_runs import own_runs

    wanted = [run for runs in by_source.values() for run in runs if run.flag("usable_time")]
    cases, _ = cases_of(wanted)
    time, _ = fit_runs(cases, ITERATIONS, lambda line: print(line, file=sys.stderr), with_memory=False)
    return own_runs(time, counts)


def run(arguments: argparse.Namespace) -> int:
    """Run ``validate``; 1 where a source has too few predicted rows."""
    by_source = gather(arguments.files, arguments.reference)
    document, predictions, failures = report(by_source)
    if arguments.own_runs:
        document["own_runs"] = _own_runs(by_source, arguments.own_runs)
    if arguments.predictions:
        write_predictions(arguments.predictions, predictions)
    if arguments.html:
        from calibration.validate.figures import accuracy_page

        accuracy_page(arguments.html, predictions)
    if arguments.update:
        update(document)
    if arguments.json:
        json.dump(document, sys.stdout, allow_nan=False)
        print()
    else:
        print_table(document)
    for failure in failures:
        print(f"calibration: failed: {failure}", file=sys.stderr)
    return 1 if failures else 0


def replaced(path: Path, text: str) -> None:
    """Write a file whole: it is complete before it takes its name."""
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def update(document: Row) -> None:
    """Put the total into README, the table into the page on accuracy, and both where ``costmodel accuracy`` finds them."""
    for path, table in ((README, markdown_by_distance(document["total"])), (PAGE, markdown(document))):
        before, rest = path.read_text(encoding="utf-8").split(BEGIN)
        _, after = rest.split(END)
        replaced(path, f"{before}{BEGIN}\n{table}\n{END}{after}")
    figures = [*document["sources"], document["total"]]
    content = {"headings": list(HEADINGS), "rows": table_rows(document), "figures": figures}
    replaced(CATALOGUE / "accuracy.json", json.dumps(content, indent=1) + "\n")


def print_table(document: Row) -> None:
    """The report for people."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for index, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="right" if index else "left")
    for row in table_rows(document):
        table.add_row(*row)
    console = Console(width=None if sys.stdout.isatty() else 400)
    console.print(table)
    for count, figures in document.get("own_runs", {}).items():
        console.print(
            f"  after {count} own runs: mean error {percent(figures['mape'])} ({percent(figures['mape_without'])} without), "
            f"intervals hold on {percent(figures['time_90'])}", markup=False, highlight=False,
        )  # fmt: skip
    for entry in document["sources"]:
        for reason, count in entry["skipped"].items():
            console.print(f"  {entry['source']}: {count} rows skipped: {reason}", markup=False, highlight=False)
        for reason, count in entry["unused"].items():
            console.print(f"  {entry['source']}: {count} times not used: {reason}", markup=False, highlight=False)

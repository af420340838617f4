"""The ledger, what a layer saves, a loss holds, loading takes and a step holds at its fullest, beside real packages.

`python -m tests.audits [CASE ...]` prints tables in Markdown, their versions in it.

Each case runs on GPUs that aren't there and takes half a minute to two minutes; `--keep FOLDER` keeps the traces.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from costmodel.text.errors import NotModelled
from costmodel.traces.record import Trace
from tests.audits import bloom, loading, losses, moved, peaks, pretraining, recipes, saved
from tests.audits.case import Case

AUDITS = (
    bloom.CASES, pretraining.CASES, pretraining.HELD, saved.CASES, moved.CASES, losses.CASES, moved.LOSSES, loading.CASES,
    peaks.CASES, recipes.CASES,
)  # fmt: skip


def traced(case: Case, folder: Path) -> Trace:
    """The trace of a case, read from a folder where it is there."""
    path = folder / f"{case.file}.npz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        case.traced().save(path)
    return Trace.load(path)


def told(case: Case, folder: Path) -> Trace | str:
    """The trace of a case, or why there is none."""
    if case.missing:
        return f"{', '.join(case.missing)} isn't installed"
    try:
        return traced(case, folder)
    except NotModelled as refused:
        return str(refused)


def audited(cases: Sequence[Case], folder: Path) -> list[str]:
    """Print what packages do beside what the library says; gives the cases that differ."""
    columns, numbers = cases[0].columns.split(), cases[0].numbers
    print(f"{cases[0].title}\n\n| {' | '.join(columns)} | |")
    print(f"|{'---|' * (len(columns) - numbers)}{'---:|' * numbers}---|")
    differing = []
    for case in cases:
        trace = told(case, folder)
        if isinstance(trace, str):
            print(f"| {case.name} | not traced: {trace} |{' |' * (len(columns) - 1)}", flush=True)
            continue
        rows = case.rows(trace)
        for cells, equal in rows:
            print(f"| {' | '.join((case.name, *cells))} | {'equal' if equal else '**differs**'} |", flush=True)
        differing += [] if all(equal for _, equal in rows) else [case.name]
    return differing


def main() -> None:
    """Trace, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(name for cases in AUDITS for name in cases)}; all unless given")
    parser.add_argument("--keep", default="", help="folder for the traces, which are read from there where they are")
    asked = parser.parse_args()
    wanted = [[case for name, case in cases.items() if name in asked.cases or not asked.cases] for cases in AUDITS]
    differing = []
    with tempfile.TemporaryDirectory() as passing:
        for cases in filter(None, wanted):
            differing += audited(cases, Path(asked.keep or passing))
            print()
    print(f"The library differs from: {', '.join(differing) or 'none'}.")


if __name__ == "__main__":
    main()

"""The ledger beside real packages: `python -m tests.audits [CASE ...]` prints a table in Markdown, with their versions.

Each case runs on GPUs that aren't there and takes half a minute to two minutes; `--keep FOLDER` keeps the traces.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from costmodel.text.errors import NotModelled
from costmodel.text.units import format_bytes
from costmodel.traces.comparison import Compared
from costmodel.traces.record import Trace
from tests.audits.bloom import CASES, MODEL, RANKS, Case


def traced(case: Case, folder: Path) -> Trace:
    """The trace of a case, read from a folder where it is there."""
    path = folder / f"{'-'.join(case.arguments)}.npz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        case.traced().save(path)
    return Trace.load(path)


def rows(case: Case, trace: Trace, made: Compared) -> list[str]:
    """Lines of the table."""
    software = ", ".join(f"{name} {trace.versions[name]}" for name in ("torch", *case.packages))
    found = []
    for row in made.rows:
        verdict = "equal" if row.agrees else "**differs**"
        found.append(
            f"| {case.name} | {software} | {row.kind.op} | {row.kind.bytes:,.0f} ({format_bytes(row.kind.bytes)}) | "
            f"{row.traced:g} | {row.told:g} | {verdict} |"
        )
    for op, _, really, says in made.sums():
        verdict = "equal" if really == says else "**differs**"
        found.append(f"| {case.name} | | {op}, sum | | {format_bytes(really)} | {format_bytes(says)} | {verdict} |")
    return found


def main() -> None:
    """Trace, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; all unless given")
    parser.add_argument("--keep", default="", help="folder for the traces, which are read from there where they are")
    asked = parser.parse_args()
    print(f"{MODEL} on {RANKS:,} GPUs, transactions of a rank in a step from 64 KiB:\n")
    print("| case | software | transaction | bytes | traced | ledger | |")
    print("|---|---|---|---:|---:|---:|---|")
    differing = []
    with tempfile.TemporaryDirectory() as passing:
        for case in map(CASES.__getitem__, asked.cases or CASES):
            if case.missing:
                print(f"| {case.name} | not traced: {', '.join(case.missing)} isn't installed | | | | | |")
                continue
            try:
                trace = traced(case, Path(asked.keep or passing))
            except NotModelled as refused:
                print(f"| {case.name} | not traced: {refused} | | | | | |", flush=True)
                continue
            made = case.compared(trace)
            print("\n".join(rows(case, trace, made)), flush=True)
            differing += [] if made.agrees else [case.name]
    print(f"\nThe ledger differs from: {', '.join(differing) or 'none'}.")


if __name__ == "__main__":
    main()

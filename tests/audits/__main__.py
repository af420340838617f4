"""The ledger, what a layer saves and what a loss holds, beside real packages.

`python -m tests.audits [CASE ...]` prints tables in Markdown, their versions in it.

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
from tests.audits import losses, saved
from tests.audits.bloom import CASES, MODEL, RANKS, Case

Cases = Case | saved.Case | losses.Case


def traced(case: Cases, folder: Path) -> Trace:
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


def told(case: Cases, folder: Path) -> Trace | str:
    """The trace of a case, or why there is none."""
    if case.missing:
        return f"{', '.join(case.missing)} isn't installed"
    try:
        return traced(case, folder)
    except NotModelled as refused:
        return str(refused)


def ledgers(names: list[str], folder: Path) -> list[str]:
    """Print what packages exchange beside the ledger; gives the cases that differ."""
    print(f"{MODEL} on {RANKS:,} GPUs, transactions of a rank in a step from 64 KiB:\n")
    print("| case | software | transaction | bytes | traced | ledger | |")
    print("|---|---|---|---:|---:|---:|---|")
    differing = []
    for case in map(CASES.__getitem__, names):
        trace = told(case, folder)
        if isinstance(trace, str):
            print(f"| {case.name} | not traced: {trace} | | | | | |", flush=True)
            continue
        made = case.compared(trace)
        print("\n".join(rows(case, trace, made)), flush=True)
        differing += [] if made.agrees else [case.name]
    return differing


def layers(names: list[str], folder: Path) -> list[str]:
    """Print what layers save beside the library's formula; gives the cases that differ."""
    print("What a layer saves for its backward pass, of a small model, a token and channel:\n")
    print("| case | software | bytes | traced | formula | |")
    print("|---|---|---:|---:|---:|---|")
    differing = []
    for case in map(saved.CASES.__getitem__, names):
        trace = told(case, folder)
        if isinstance(trace, str):
            print(f"| {case.name} | not traced: {trace} | | | | |", flush=True)
            continue
        software = ", ".join(f"{name} {trace.versions[name]}" for name in ("torch", "transformers", *case.packages))
        really, says, each = saved.channels(saved.kept(trace.roles[0])), case.told(), saved.TOKENS * saved.SHAPE.hidden
        verdict = "equal" if really == says else "**differs**"
        print(f"| {case.name} | {software} | {really:,} | {really / each:g} | {says / each:g} | {verdict} |", flush=True)
        differing += [] if really == says else [case.name]
    return differing


def of_losses(names: list[str], folder: Path) -> list[str]:
    """Print what losses hold of a logit beside the library's number; gives the cases that differ."""
    print("What a loss holds at its fullest, bytes a logit:\n")
    print("| case | software | traced | told | |")
    print("|---|---|---:|---:|---|")
    differing = []
    for case in map(losses.CASES.__getitem__, names):
        trace = told(case, folder)
        if isinstance(trace, str):
            print(f"| {case.name} | not traced: {trace} | | | |", flush=True)
            continue
        software = ", ".join(f"{name} {trace.versions[name]}" for name in ("torch", "transformers", *case.packages))
        really, says = losses.held(trace.roles[0]), case.told()
        equal = round(really) == says
        print(f"| {case.name} | {software} | {really:.2f} | {says:g} | {'equal' if equal else '**differs**'} |", flush=True)
        differing += [] if equal else [case.name]
    return differing


def main() -> None:
    """Trace, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join([*CASES, *saved.CASES, *losses.CASES])}; all unless given")
    parser.add_argument("--keep", default="", help="folder for the traces, which are read from there where they are")
    asked = parser.parse_args()
    wanted = asked.cases or [*CASES, *saved.CASES, *losses.CASES]
    with tempfile.TemporaryDirectory() as passing:
        folder = Path(asked.keep or passing)
        exchanging, saving, losing = (
            [name for name in wanted if name in known] for known in (CASES, saved.CASES, losses.CASES)
        )
        differing = ledgers(exchanging, folder) if exchanging else []
        if saving:
            print()
            differing += layers(saving, folder)
        if losing:
            print()
            differing += of_losses(losing, folder)
    print(f"\nThe library differs from: {', '.join(differing) or 'none'}.")


if __name__ == "__main__":
    main()

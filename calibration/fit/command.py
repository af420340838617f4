"""Fit constants to measured runs and write them, with their errors, into the catalogue.

Whole runs say what is the software's and the cluster's, and at what clock a device runs in training; what a device does,
operators say (`calibration.fit.operator_command`).
"""

from __future__ import annotations

import argparse
import math
import statistics
import tomllib
from collections.abc import Sequence
from pathlib import Path

from calibration.data.reference import default_files
from calibration.data.runs import measured_runs
from calibration.fit.fields import TIME
from calibration.fit.runs import (
    ITERATIONS,
    Fitted,
    fit_memory,
    fit_runs,
    fit_some,
    identification,
    tables,
    with_some,
)
from calibration.written import CATALOGUE, generated, write
from costmodel.arithmetic.named_tuples import Row
from costmodel.catalogue.effects import CORRELATIONS, FILE
from costmodel.description.run import Run
from costmodel.text.errors import CostModelError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``fit``."""
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="records of runs (default: all that are known)")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help=f"most iterations (default: {ITERATIONS})")
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--memory", action="store_true", help="fit the constants of memory alone, and leave those of time")
    part.add_argument(
        "--only", nargs="+", choices=[field.path for field in TIME], default=(), metavar="CONSTANT",
        help="fit some constants of time alone, and leave all others as they are",
    )  # fmt: skip
    part.add_argument("--left-out", action="store_true", help="write how fits hold on what they hadn't seen, leave all constants")
    parser.add_argument("--dry-run", action="store_true", help="print the errors, write nothing")


def run(arguments: argparse.Namespace) -> int:
    """Run ``fit``."""
    cases = measured_runs(arguments.files or default_files())
    needed = {} if arguments.only else {"peak": any(case.peak_bytes is not None for case in cases)}
    needed |= {} if arguments.memory else {"time": any(case.seconds is not None for case in cases)}
    for what, known in needed.items():
        if not known:
            raise CostModelError(f"nothing to fit: no run of these files has a {what}")
    tables_of = _some_tables if arguments.only else _memory_tables if arguments.memory else _run_tables
    files = {CATALOGUE / name: text for name, text in tables_of(cases, arguments).items()}
    if arguments.left_out:
        files = {path: text for path, text in files.items() if CATALOGUE not in path.parents}
    if not arguments.dry_run:
        write(files)
    return 0


def _run_tables(cases: Sequence[Run], arguments: argparse.Namespace) -> dict[str, str]:
    """Files of the catalogue that whole runs fill."""
    from calibration.fit.distance import LEAST_SPREAD
    from calibration.fit.figures_by_distance import DISTANCE, by_distance

    time, memory = fit_runs(cases, arguments.iterations, print)
    constants = {"time": _told("time", time), "memory": _told("memory", memory)}
    scatter = statistics.median(time.posterior.spreads.scatter.values())
    residuals = {"plan_spread": math.hypot(scatter, LEAST_SPREAD), "constants": constants}
    return {
        **tables(cases, time, memory), "residuals.toml": generated("fit", "measurements", residuals),
        str(DISTANCE): by_distance(time, memory),  # absolute: not in the catalogue
    }  # fmt: skip


def _memory_tables(cases: Sequence[Run], arguments: argparse.Namespace) -> dict[str, str]:
    """Files of the catalogue that peaks of whole runs fill, times aside."""
    memory = fit_memory(cases, arguments.iterations, print)
    residuals: dict[str, Row] = tomllib.loads((CATALOGUE / "residuals.toml").read_text(encoding="utf-8"))
    residuals["constants"] |= {"memory": _told("memory", memory)}
    return {**_with_some(memory), "residuals.toml": generated("fit", "measurements", residuals)}


def _some_tables(cases: Sequence[Run], arguments: argparse.Namespace) -> dict[str, str]:
    """Files of the catalogue with some constants fitted anew."""
    some = fit_some(cases, arguments.only, arguments.iterations, print)
    _told("some of time", some)
    return _with_some(some)


def _told(what: str, fitted: Fitted) -> dict[str, int]:
    """How many constants were fitted, known and at a bound, which is printed."""
    counts = identification(fitted)
    print(f"{what}: " + ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items()))
    return counts


def _with_some(fitted: Fitted) -> dict[str, str]:
    """The catalogue's files with some constants fitted anew."""
    effects, correlations = ((CATALOGUE / name).read_text(encoding="utf-8") for name in (FILE, CORRELATIONS))
    return with_some(effects, correlations, fitted)

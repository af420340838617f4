"""`costmodel sweep`: searches over models, clusters, batches and prices, into one Parquet file."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from costmodel.catalogue.clusters import load_cluster
from costmodel.cli import codes
from costmodel.cli.arguments import (
    Commands,
    Misused,
    chosen,
    length,
    many,
    meaning,
    number,
    plan_fields,
    reader,
    spelled,
    whole,
)
from costmodel.cli.calibrated import add_calibration, calibrated_software, each_calibrated
from costmodel.cli.files import add_file
from costmodel.cli.output import print_json, print_page, written
from costmodel.description.cluster import MAX_GPUS, Cluster
from costmodel.description.judgement import CHOSEN
from costmodel.text.checks import positive_int
from costmodel.text.units import counted, format_seconds

if TYPE_CHECKING:
    from rich.progress import Progress

    from costmodel.evaluation.sweeps import Sweep

USAGE = ("costmodel sweep MODEL[,MODEL] --cluster C[,C] --global-batch N[,N] --seq-len N[,N] -o FILE.parquet [options]")
_WORDS = many(str)


def add(commands: Commands) -> None:
    """Add the command."""
    sweeping = commands.add_parser(
        "sweep", usage=USAGE, allow_abbrev=False, help="search every combination of models, clusters, batches and prices",
        description="Give the same command again after a break: it goes on where it was.",
        examples=(
            "costmodel sweep llama3-8b,llama3-70b --cluster dgx-h100 --gpus 64,128 --global-batch 512 --seq-len 8192 "
            "-o plans.parquet",
            "costmodel sweep llama3-8b --cluster dgx-h100,dgx-a100 --gpus 64 --global-batch 512 --seq-len 8192 --price 2.5 "
            "--workers 2 -o plans.parquet",
        ),
    )  # fmt: skip
    sweeping.add_argument("model", metavar="MODEL", type=_WORDS, help="models, by name or file")
    sweeping.add_argument("--cluster", metavar="C", type=_WORDS, required=True, help="clusters, by name or file")
    size = sweeping.add_mutually_exclusive_group()
    size.add_argument("--gpus", metavar="N", type=many(whole), help="sizes to try each cluster in (default: its own)")
    size.add_argument("--nodes", metavar="N", type=many(whole), help="the same in nodes, each cluster's own")
    sweeping.add_argument(*spelled("global_batch"), metavar="N", type=many(whole), required=True, help="sequences per step")
    sweeping.add_argument("--seq-len", metavar="N", type=many(length), required=True, help="tokens of a sequence")
    sweeping.add_argument("--framework", metavar="F", type=_WORDS, default=["megatron-core"], help="software (megatron-core)")
    add_calibration(sweeping)
    sweeping.add_argument("--price", metavar="X", type=many(number), help="of a GPU for an hour, a row each")
    sweeping.add_argument("--top", type=whole, default=1, metavar="K", help="plans of each search (default: 1)")
    sweeping.add_argument("--fit-probability", type=float, default=CHOSEN, metavar="P",
                          help=f"probability to fit in memory from which a plan fits (default: {CHOSEN:g})")  # fmt: skip
    sweeping.add_argument("--engine", default="auto", metavar="E", help="auto, python, numpy or numba")
    sweeping.add_argument("--workers", type=whole, default=1, metavar="N", help="processes to search in (default: 1)")
    add_file(sweeping, "Parquet file to write")
    sweeping.add_argument("--json", action="store_true", help="counts as JSON")
    group = sweeping.add_argument_group("what to try, one value or several (1,2,4)")
    for name, row in plan_fields().items():
        read, shown = reader(row)
        added = group.add_argument(*spelled(name), type=many(read), action="extend", metavar=shown, help=meaning(row))
        sweeping.briefly(added, row.brief or meaning(row))
        if row.rare:
            sweeping.rarely(added)
    sweeping.set_defaults(run=_sweep, notes=[])


def _sweep(arguments: argparse.Namespace) -> int:
    if not 1 <= arguments.workers <= 1024:
        raise Misused(f"--workers {arguments.workers}: expected 1 to 1024 processes")
    started = time.perf_counter()
    with _Bar(arguments.json) as bar:
        made = _run(arguments, bar)
    seconds = time.perf_counter() - started
    if arguments.json:
        print_json({"path": str(made.path), "cells": made.cells, "resumed": made.resumed, "plans": made.plans,
                    "failed": made.failed, "mended": made.mended, "sweep_time_s": seconds})  # fmt: skip
        return codes.ANSWERED
    before = f" ({made.resumed:,} of them before)" if made.resumed else ""
    failed = f"; {made.failed:,} failed, the column reason says why" if made.failed else ""
    mended = f"; {counted(made.mended, 'part')} of before not as written, done again" if made.mended else ""
    print_page(
        f"{counted(made.cells, 'search', 'searches')}{before}, {counted(made.plans, 'legal plan')} in "
        f"{format_seconds(seconds)}{failed}{mended}", written(str(made.path)),
    )  # fmt: skip
    return codes.ANSWERED


def _run(arguments: argparse.Namespace, bar: _Bar) -> Sweep:
    from costmodel.evaluation.sweeps import sweep

    asked: dict[str, object] = {name: list(dict.fromkeys(values)) for name, values in chosen(arguments).items()}

    clusters = _clusters(arguments)

    def run(executor: object) -> Sweep:
        return sweep(
            arguments.model, clusters, arguments.output, global_batches=arguments.global_batch,
            seq_lens=arguments.seq_len, gpus=arguments.gpus, frameworks=arguments.framework, prices=arguments.price,
            top=arguments.top, executor=executor, progress=bar, fit_probability=arguments.fit_probability,
            engine=arguments.engine, **asked,
        )  # fmt: skip

    if arguments.workers == 1:
        return run(None)
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(arguments.workers, multiprocessing.get_context("spawn"), _end_with_parent) as pool:
        try:
            return run(pool)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _clusters(arguments: argparse.Namespace) -> Sequence[Cluster | str]:
    """The clusters, and what own runs said of them; their framework counts where none was given."""
    named: Sequence[str] = arguments.cluster
    if arguments.calibration is None and arguments.nodes is None:
        return named
    clusters = list(map(load_cluster, named))
    if arguments.nodes is not None:
        nodes = [positive_int("nodes", count, MAX_GPUS) for count in dict.fromkeys(arguments.nodes)]
        clusters = [one.with_gpus(count * one.gpus_per_node) for one in clusters for count in nodes]
    if arguments.calibration is None:
        return clusters
    software = calibrated_software(arguments, arguments.framework)
    if software is not None:
        arguments.framework = [software]
    return each_calibrated(arguments, clusters)


def _end_with_parent() -> None:
    """Have a worker end when the process that gives it work was killed; by itself it would wait for more for ever."""
    import multiprocessing

    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


class _Bar:
    """A bar with rate and time left on stderr, where somebody looks at it."""

    def __init__(self, quiet: bool) -> None:
        self._shown = not quiet and sys.stderr is not None and sys.stderr.isatty()
        self._bar: Progress | None = None
        self._before = 0

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: int, cells: int, plans: int) -> None:
        if not self._shown:
            return
        if self._bar is None:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )

            self._bar = Progress(
                TextColumn("searches"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"),
                TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), console=Console(stderr=True),
            )  # fmt: skip
            self._before = done
            self._bar.add_task("searches", total=cells, completed=done, rate="")
            self._bar.start()
        (task,) = self._bar.tasks
        elapsed = task.elapsed or 0.0
        rate = f"{(done - self._before) / elapsed:,.1f}/s, {plans / elapsed / 1e6:,.2f} M plans/s" if elapsed > 0.0 else ""
        self._bar.update(task.id, completed=done, rate=rate)

"""`costmodel search`: every legal plan, ranked."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from costmodel.cli import codes
from costmodel.cli.arguments import Commands, Misused, add_output, chosen, whole
from costmodel.cli.compare import compare
from costmodel.cli.figures import add_figures, check_figures, write_figures
from costmodel.cli.output import (
    COMMON,
    Table,
    gib,
    memory_parts,
    parts,
    print_json,
    print_page,
    share,
    shown,
    split,
    table,
    write_csv,
)
from costmodel.cli.question import USAGE, add_question, cluster_names, read_asked_model, read_hardware
from costmodel.cli.training import add_run, run_columns, runs_of
from costmodel.description.dimensions import WRITTEN
from costmodel.description.plan import Plan
from costmodel.records import Row
from costmodel.words import ordered, rejections

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from costmodel.evaluation.estimation import Estimate
    from costmodel.evaluation.offers import Offer
    from costmodel.evaluation.plan_search import SearchResult
    from costmodel.training.duration import TrainingRun

PLACED = ("shard_group", "rank_order")
"""Choices of a default search that stand in a column of their own where a plan has made one."""
PATIENCE = 0.5
"""Seconds that a search may take before a progress bar shows."""


def add(commands: Commands) -> None:
    """Add the command."""
    searching = commands.add_parser(
        "search", usage=USAGE % "search", help="rank every legal plan",
        description="Rank every legal plan by its step time. Of plans that can't be told from the fastest within the error, the "
        "simplest\nstands first: tensor ranks inside a node, then fewer dimensions, then surer to fit, then faster.",
        examples=(
            "costmodel search llama3-8b --device rtx-4090 --global-batch 16 --seq-len 2048 --adapter qlora",
            "costmodel search llama3-70b --cluster dgx-h100 --nodes 128 --global-batch 1024 --seq-len 8192 --tokens 15T",
            "costmodel search config.json --cluster aws-p5 --nodes 4 --global-batch 256 --seq-len 4096 --dtype bf16,fp8",
            "costmodel search llama3-8b --cluster dgx-h100 --global-batch 64 --seq-len 8192 --write torchtitan:run.toml",
        ),
    )  # fmt: skip
    add_question(searching, several=True)
    add_run(searching)
    output = add_output(searching)
    output.add_argument("--top", type=whole, default=10, metavar="K", help="plans to show (default: 10)")
    output.add_argument(
        "--check", action=argparse.BooleanOptionalAction, default=None,
        help="play the first ten plans out; say which leave their interval (default: where there are several GPUs)",
    )
    output.add_argument("--csv", metavar="FILE", help="also write the ranked plans to a file")
    output.add_argument("--write", metavar="FORMAT:FILE", help="also write the best plan as a launch file; all into a FOLDER/")
    add_figures(output, several=True)
    uneven = output.add_argument("--uneven", action="store_true", help="deal the best plan's layers to its stages by weight")
    space = output.add_argument("--space", default="default", metavar="S", help="of plans: default, or full for all there are")
    engine = output.add_argument("--engine", default="auto", metavar="E", help="auto, python, numpy or numba (default: auto)")
    searching.rarely(uneven, space, engine)
    searching.set_defaults(run=_search)


def _search(arguments: argparse.Namespace) -> int:
    import time

    from costmodel.simulation.checking import checked, search

    check_figures(arguments)
    if arguments.json and arguments.csv:
        raise Misused("argument --csv: not allowed with argument --json")
    model = read_asked_model(arguments)
    tried: Row = {name: list(dict.fromkeys(values)) for name, values in chosen(arguments).items()}
    if len(cluster_names(arguments)) > 1:

        def best(one: argparse.Namespace) -> Estimate | str:
            result = search(
                model, read_hardware(one), global_batch=one.global_batch, seq_len=one.seq_len, framework=one.framework, top=1,
                engine=one.engine, space=one.space, progress=None, **tried,
            )  # fmt: skip
            return result.best if result.ranked else result.why_none()

        return compare(arguments, best)
    cluster = read_hardware(arguments)
    progress = None if arguments.json else _Progress()
    started = time.perf_counter()
    try:
        result = search(
            model, cluster, global_batch=arguments.global_batch, seq_len=arguments.seq_len,
            framework=arguments.framework, fit_probability=arguments.fit_probability, top=arguments.top,
            engine=arguments.engine, space=arguments.space, progress=progress,
            keep_evaluated=bool(arguments.html or arguments.png), **tried,
        )  # fmt: skip
    finally:
        if progress:
            progress.stop()
    seconds = time.perf_counter() - started
    if (cluster.gpus or 1) > 1 if arguments.check is None else arguments.check:
        result = checked(result)
    written = None
    if result.ranked and arguments.write:
        from costmodel.cli.launchers import save

        written = save(arguments.write, [found.plan for found in result.ranked], model, result.cluster)
    if result.ranked:
        write_figures(arguments, result, f"{model.name} on {cluster.gpus} GPUs of {cluster.name}")
    runs = runs_of(result.ranked, arguments)
    rows = [{**row, **run.to_dict()} for row, run in zip(result.to_rows(), runs, strict=True)] if runs else result.to_rows()
    from costmodel.evaluation.notes import notes
    from costmodel.evaluation.offers import offers

    if result.ranked:
        arguments.notes += [note for note in notes(result.best) if note.startswith("seq_len") or note.partition("=")[0] in tried]
    offered = offers(result)
    if arguments.json:
        import json

        said = [{"change": one.change, "gpu_time_per_token_s": one.gpu_time, **one.best.to_dict()} for one in offered]
        print_json({**json.loads(result.to_json()), "plans": rows, "offers": said, "search_time_s": seconds})
        return codes.ANSWERED if result.ranked else codes.NOTHING_FITS
    if result.ranked and arguments.csv:
        write_csv(arguments.csv, list(rows[0]), [list(row.values()) for row in rows])
    several = [name for name, values in tried.items() if len(values) > 1]
    made = [name for name in PLACED if any(getattr(one.plan, name) != getattr(Plan, name) for one in result.ranked)]
    several += [name for name in made if name not in several]
    if arguments.space == "full":  # tries every dimension: those in which the plans differ are shown
        plans = [found.plan for found in result.ranked]
        several = [one.name for one in dataclasses.fields(Plan) if len({str(getattr(plan, one.name)) for plan in plans}) > 1]
    print_page(
        *_page(result, arguments, seconds, several, runs, offered), *([written] if written else []), markdown=arguments.markdown
    )
    return codes.ANSWERED if result.ranked else codes.NOTHING_FITS


def _page(
    result: SearchResult, arguments: argparse.Namespace, seconds: float, several: Sequence[str], runs: Sequence[TrainingRun],
    offered: Sequence[Offer],
) -> list[Table | str]:  # fmt: skip
    """What a search found, as lines and tables."""
    from costmodel.units import format_seconds

    cluster, model = result.cluster, result.model
    page: list[Table | str] = [
        f"{model.name} on {cluster.gpus} GPUs of {cluster.name}, {result.framework.name}: "
        f"{arguments.global_batch} sequences of {arguments.seq_len} tokens a step"
    ]
    if result.ranked:
        page.append(_ranking(result, several, runs))
    lines = []
    if result.ranked:
        best = result.best
        times = parts(best.times, lambda part: share(part, best.step_time))
        held = parts(memory_parts(best), lambda part: f"{gib(part)} GiB")
        lines += [f"Best plan's step: {times}", f"Best plan's memory: {held}"]
        standing = result.standings.plans[0]
        low, high = best.time_interval
        lines.append(
            f"Error: 90 % of such estimates lie within {format_seconds(low)} to {format_seconds(high)}"
            + f" ({best.evidence})"
            + f"; the first plan is the fastest with probability {share(standing.probability_fastest, 1.0)}, "
            f"expected regret {share(standing.expected_regret, 1.0)}; chosen for its estimate, expect "
            f"{format_seconds(result.corrected_step_time)}"
        )
        if len(result.ties()) > 1:
            lines.append("~ can't be told from the first within the error")
        fastest = min(result.ranked, key=lambda one: one.step_time)
        if fastest is not best:
            slower = share(best.step_time / fastest.step_time - 1.0, 1.0)
            lines.append(f"The first is the simplest of these, {slower} slower than the fastest by its estimate")
    else:
        why = "no plan is legal" if result.considered and not result.evaluated else result.why_none()
        lines.append(why[0].upper() + why[1:])
    if miss := result.closest_miss:
        name = "Fastest" if result.ranked else "Leanest"
        lines.append(
            f"{name} plan that doesn't fit: {format_seconds(miss.step_time)}, "
            f"{gib(result.excess_bytes)} GiB too much ({split(miss)})"
        )
    if arguments.uneven and result.ranked and (found := result.uneven_split()) is not None:
        dealt = "-".join(map(str, found.layers))
        longer = share(found.gain, 1.0)
        lines.append(f"Best plan's layers dealt by weight: {dealt}; equal shares take {longer} longer, bubble aside")
    if result.replays:
        inside = sum(replay.seconds is not None and not replay.left for replay in result.replays)
        lines.append(f"Played out, {inside} of the first {len(result.replays)} stay within their interval")
        lines += [f"Plan {rank}: {replay.left}" for rank, replay in enumerate(result.replays, 1) if replay.left]
    if any(result.rejected.values()):
        lines.append(f"Rejected: {rejections(result.rejected)}")
    lines.append(
        f"Looked at {result.considered:,} combinations, {result.evaluated:,} of them legal, "
        f"{result.fitting:,} that fit, in {format_seconds(seconds)}"
    )
    return [*page, "\n".join(lines), *([] if result.ranked else _offers(offered))]


def _offers(offered: Sequence[Offer]) -> list[Table | str]:
    """Changes after which a plan fits, the cheapest first."""
    from costmodel.units import format_seconds

    if not offered:
        return ["No change that was tried makes a plan fit: adapters, an 8-bit optimizer, offload, shorter sequences, more GPUs"]
    rows = [
        [
            offer.change, f"{offer.best.plan.gpus:,}", format_seconds(offer.best.step_time),
            f"{offer.best.tokens_per_second / offer.best.plan.gpus:,.0f}",
            f"{gib(float(offer.best.memory.total))} / {gib(offer.best.memory_limit)} GiB", split(offer.best),
        ]
        for offer in offered
    ]  # fmt: skip
    return [table(["would fit with", "GPUs", "step", "tokens/s/GPU", "peak memory / usable", "its best plan"], rows, words=1)]


def _ranking(result: SearchResult, several: Sequence[str], runs: Sequence[TrainingRun]) -> Table:
    from costmodel.units import format_seconds

    used = {one.field for one in WRITTEN if any(getattr(found.plan, one.field) > 1 for found in result.ranked)}
    if result.model.experts:
        used.add("expert_parallel")
    columns = {one.field: one.short for one in WRITTEN if one.field in COMMON or one.field in used}
    columns |= {"micro_batch": "micro-batch", "zero_stage": "ZeRO", "recompute": "recompute"}
    columns |= {name: name.replace("_", " ") for name in several if name not in {*columns, *(one.field for one in WRITTEN)}}
    titles = list(columns.values())
    rows = []
    taken, amounts = run_columns(runs) if runs else ([], [[] for _ in result.ranked])
    for rank, (found, standing) in enumerate(zip(result.ranked, result.standings.plans, strict=True), 1):
        values = [ordered(found.plan) if name == "rank_order" else shown(getattr(found.plan, name)) for name in columns]
        rows.append([
            f"{rank:>{len(str(len(result.ranked)))}} {'~' if standing.tied and rank > 1 else ' '}",
            format_seconds(found.step_time),
            f"{found.tokens_per_second / found.plan.gpus:,.0f}", f"{100 * found.mfu:.1f} %",
            share(standing.probability_fastest, 1.0), f"{gib(found.memory.total)} / {gib(found.memory_limit)} GiB",
            *amounts[rank - 1], *values,
        ])  # fmt: skip
    return table(["rank", "step", "tokens/s/GPU", "MFU", "P(fastest)", "peak memory / usable", *taken, *titles], rows, words=1)


class _Progress:
    """A bar on stderr once a search has taken `PATIENCE`, where somebody looks at stderr."""

    def __init__(self) -> None:
        import threading
        import time

        self._lock, self._clock, self._started = threading.Lock(), time.perf_counter, time.perf_counter()
        self._done = 0
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._shown = sys.stderr is not None and sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        if not self._shown:
            return
        with self._lock:
            self._done += done
            if self._bar is None and self._clock() - self._started > PATIENCE:
                from rich.console import Console
                from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

                columns = (TextColumn("plans"), BarColumn(), MofNCompleteColumn())
                self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
                self._task = self._bar.add_task("plans", total=total)
                self._bar.start()
            if self._bar is not None and self._task is not None:
                self._bar.update(self._task, completed=self._done)

    def stop(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()



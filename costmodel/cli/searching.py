"""`costmodel search`: every legal plan, ranked."""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from costmodel.arithmetic.named_tuples import Row
from costmodel.cli import codes, ranking
from costmodel.cli.advice import asked_again
from costmodel.cli.arguments import Commands, Misused, add_output, chosen, whole
from costmodel.cli.figures import IMAGE, PAGE, add_figure, write_figures
from costmodel.cli.files import add_files, check_files
from costmodel.cli.output import print_json, print_page, rows_file, written
from costmodel.cli.question import USAGE, add_question, cluster_names, read_asked_model, read_hardware
from costmodel.cli.runs import runs_of
from costmodel.cli.several_clusters import compare, refuse_with_several
from costmodel.cli.training import add_run
from costmodel.cli.unlike import is_joined, search_joined
from costmodel.description.cluster import Cluster
from costmodel.description.transformer import Transformer
from costmodel.evaluation import engine
from costmodel.evaluation.estimation import Estimate
from costmodel.text.units import counted

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from costmodel.evaluation.offers import Offer
    from costmodel.evaluation.search_result import SearchResult
    from costmodel.evaluation.switches import Faster
    from costmodel.training.duration import TrainingRun

PATIENCE = 0.5
"""Seconds that a search may take before a progress bar shows."""


def add(commands: Commands) -> None:
    """Add the command."""
    searching = commands.add_parser(
        "search", usage=USAGE % "search", help="rank every legal plan",
        description="Rank every legal plan by its step time. Of plans that can't be told from the fastest within the error, the "
        "simplest stands first: tensor ranks inside a node, then fewer dimensions, then surer to fit, then faster.",
        examples=(
            "costmodel search llama3-8b --device rtx-4090 --global-batch 16 --seq-len 2048 --adapter qlora",
            "costmodel search llama3-70b --cluster dgx-h100 --nodes 128 --global-batch 1024 --seq-len 8192 --tokens 15T",
            "costmodel search config.json --cluster aws-p5 --nodes 4 --global-batch 256 --seq-len 4096 --dtype bf16,fp8",
            "costmodel search llama3-8b --cluster dgx-h100 --global-batch 64 --seq-len 8192 -o torchtitan:run.toml",
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
    add_files(searching, output, csv="the ranked plans", html=PAGE, png=IMAGE,
              write="the best plan as a launch file; all of them into a FOLDER/")  # fmt: skip
    add_figure(searching, output, several=True)
    between = output.add_argument(
        "--between", metavar="RATE", help="of the link between groups of unlike GPUs (--cluster 8xh100+8xa100), one direction"
    )
    uneven = output.add_argument("--uneven", action="store_true", help="deal the best plan's layers to its stages by weight")
    space = output.add_argument("--space", default="default", metavar="S", help="of plans: default, or full for all there are")
    engine = output.add_argument("--engine", default="auto", metavar="E", help="auto, python, numpy or numba (default: auto)")
    searching.rarely(between, uneven, space, engine)
    searching.set_defaults(run=_search)


def _search(arguments: argparse.Namespace) -> int:
    check_files(arguments)
    if arguments.json and arguments.csv:
        raise Misused("argument --csv: not allowed with argument --json")
    model = read_asked_model(arguments)
    if is_joined(arguments):
        return search_joined(arguments, model)
    if len(cluster_names(arguments)) > 1:
        return _on_several(arguments, model)
    cluster = read_hardware(arguments)
    result, seconds = _asked(arguments, model, cluster, arguments.top)
    runs, offered = runs_of(result.ranked, arguments), _offered(result, arguments)
    check = (cluster.gpus or 1) > 1 if arguments.check is None else arguments.check
    if arguments.json:
        result = _checked(result) if check else result
        _write(arguments, result, runs)
        print_json(_figures(result, runs, offered, seconds))
    else:
        work, tried = (arguments.global_batch, arguments.seq_len), list(chosen(arguments))
        page = ranking.page(result, work, seconds, tried, runs, offered, arguments.uneven)
        print_page(*page, markdown=arguments.markdown)
        if result.ranked:
            sys.stdout.flush()  # the answer is read while more is looked for
            print_page(ranking.faster(_faster(result)), markdown=arguments.markdown, more=True)
        if check and result.ranked:
            sys.stdout.flush()
            result = _checked(result)
            print_page(ranking.played_out(result), markdown=arguments.markdown, more=True)
        print_page(written(*_write(arguments, result, runs)), markdown=arguments.markdown, more=True)
    engine.compile_beside(result.considered, ["costmodel.simulation.step_kernel"])  # on which the next search of as many runs
    return codes.ANSWERED if result.ranked else codes.NOTHING_FITS


def _tried(arguments: argparse.Namespace) -> Row:
    return {name: list(dict.fromkeys(values)) for name, values in chosen(arguments).items()}


def _asked(arguments: argparse.Namespace, model: Transformer, cluster: Cluster, top: int) -> tuple[SearchResult, float]:
    """What the search finds, and the seconds that it takes."""
    from costmodel.simulation.checking import search

    progress = None if arguments.json else _Progress()
    started = time.perf_counter()
    try:
        result = search(
            model, cluster, global_batch=arguments.global_batch, seq_len=arguments.seq_len, framework=arguments.framework,
            fit_probability=arguments.fit_probability, top=top, engine=arguments.engine, space=arguments.space,
            progress=progress, keep_evaluated=bool(arguments.html or arguments.png), **_tried(arguments),
        )  # fmt: skip
    finally:
        if progress:
            progress.stop()
    return result, time.perf_counter() - started


def _checked(result: SearchResult) -> SearchResult:
    from costmodel.simulation.checking import checked

    return checked(result)


def _offered(result: SearchResult, arguments: argparse.Namespace) -> Sequence[Offer]:
    """What would fit where nothing does; what there is to say about the best plan goes to the notes."""
    from costmodel.evaluation.notes import notes, of_loading, of_saving, unfilled_nodes
    from costmodel.evaluation.offers import offers

    if result.ranked:
        arguments.notes += (*unfilled_nodes(result.best), *of_loading(result.best), *of_saving(result.best))
        said, tried = notes(result.best), _tried(arguments)
        arguments.notes += [note for note in said if note.startswith("seq_len") or note.partition("=")[0] in tried]
    return offers(result)


def _faster(result: SearchResult) -> list[Faster]:
    """What the framework has and the best plan doesn't use."""
    from costmodel.evaluation.switches import faster_with

    return faster_with(result)


def _rows(result: SearchResult, runs: Sequence[TrainingRun]) -> list[Row]:
    rows = result.to_rows()
    return [{**row, **run.to_dict()} for row, run in zip(rows, runs, strict=True)] if runs else rows


def _figures(result: SearchResult, runs: Sequence[TrainingRun], offered: Sequence[Offer], seconds: float) -> Row:
    said = [
        {"change": asked_again(one.change, one.best.framework.name), "gpu_time_per_token_s": one.gpu_time, **one.best.to_dict()}
        for one in offered
    ]
    faster = [{"change": one.words, "gain": one.gain, **one.best.to_dict()} for one in _faster(result)]
    return {
        **json.loads(result.to_json()), "plans": _rows(result, runs), "offers": said, "faster_with": faster,
        "search_time_s": seconds,
    }  # fmt: skip


def _write(arguments: argparse.Namespace, result: SearchResult, runs: Sequence[TrainingRun]) -> list[str]:
    """Write the files that were asked for; what each is, none where no plan fits."""
    if not result.ranked:
        return []
    files = rows_file(arguments.csv, lambda: _rows(result, runs), "plan")
    title = f"{result.model.name} on {counted(result.cluster.gpus or 1, 'GPU')} of {result.cluster.name}"
    files += write_figures(arguments, result, title)
    if arguments.write:
        from costmodel.cli.launchers import save

        said = save(arguments.write, [found.plan for found in result.ranked], result.model, result.cluster)
        files.append(said.removeprefix("Written: "))
    return files


def _on_several(arguments: argparse.Namespace, model: Transformer) -> int:
    """The best plans of each cluster."""
    refuse_with_several(arguments, "write", "uneven")
    top = arguments.top if "top" in arguments.given else 1
    lines = []

    def best(one: argparse.Namespace) -> list[Estimate] | str:
        result, _ = _asked(one, model, read_hardware(one), top)
        if one.check and result.ranked:
            result = _checked(result)
            lines.append(f"{result.cluster.name}: {ranking.played_out(result)}")
        return result.ranked or result.why_none()

    return compare(arguments, best, lines)


class _Progress:
    """A bar on stderr once a search has taken `PATIENCE`, where somebody looks at stderr."""

    def __init__(self) -> None:
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



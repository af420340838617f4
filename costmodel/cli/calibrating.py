"""`costmodel calibrate`: own runs, as records or as launch files with their logs, into a file that every command takes."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from costmodel.arithmetic.named_tuples import Row
from costmodel.catalogue.software import load_framework
from costmodel.cli import codes
from costmodel.cli.arguments import Commands, Misused, add_output, whole
from costmodel.cli.files import add_file, check_files
from costmodel.cli.output import TerminalTable, named, print_json, print_page, table, written
from costmodel.cli.question import add_hardware, add_logged, read_asked_model, read_hardware, read_plan
from costmodel.description.cluster import Cluster
from costmodel.description.plan import Plan
from costmodel.description.transformer import Transformer
from costmodel.evaluation.estimation import estimate
from costmodel.text.units import counted, format_seconds

if TYPE_CHECKING:
    from costmodel.evaluation.own_run_update import Measured
    from costmodel.evaluation.own_runs import Influence, Worth

RECORDS = (".jsonl", ".csv")
MODELS, PLANS = 3, 6
"""Models of the runs for which a next run is looked for, and how many of a search's plans."""


def add(commands: Commands) -> None:
    """Add the command."""
    usage = (
        "costmodel calibrate (RUNS | LAUNCH=LOG | MODEL=LOG) ... [--cluster C | --device D] [--framework F] [-o FILE] [options]"
    )
    calibrating = commands.add_parser(
        "calibrate", usage=usage, help="own runs into a file that other commands take with --calibration",
        examples=(
            "costmodel calibrate ours.jsonl --cluster dgx-h100 -o mine.toml",
            "costmodel calibrate train.sh=run1.log other.sh=run2.log --cluster dgx-h100 -o mine.toml",
            "costmodel calibrate llama3-8b=run.log --cluster dgx-h100 --global-batch 64 --seq-len 8192 --tp 2 -o mine.toml",
        ),
    )  # fmt: skip
    calibrating.add_argument(
        "runs", nargs="+", metavar="RUNS|LAUNCH=LOG|MODEL=LOG",
        help="records (.jsonl or .csv, `costmodel new run FILE` writes a template), or a launch file, or several with commas, "
        "and the log of its run: Megatron's, torchtitan's, nanotron's, DeepSpeed's, NeMo's, LLM Foundry's, the Trainer's "
        "state. In a launch file's place may stand a model, whose plan is told by the options",
    )  # fmt: skip
    add_hardware(calibrating, required=False)
    software = calibrating.add_argument_group("framework")
    software.add_argument("--framework", metavar="F", help="software that ran (default: what runs and launch files say)")
    add_logged(calibrating, software, "of a model that has a log and no launch file")
    calibrating.add_argument(
        "--next", type=whole, default=3, metavar="N", help="runs to name that would tell most for a GPU-minute (default: 3)"
    )
    add_file(calibrating, "TOML file to write", required=False)
    add_output(calibrating)
    calibrating.set_defaults(run=_calibrate)


def _calibrate(arguments: argparse.Namespace) -> int:
    from costmodel.catalogue.calibrations import save_calibration
    from costmodel.evaluation.own_runs import calibrate, influences

    check_files(arguments)
    measured, software = _measured(arguments)
    cluster = _cluster(arguments, measured)
    framework = arguments.framework or _only(software)
    mine = calibrate(cluster, measured, framework)
    found = influences(cluster, measured, framework)
    name = next(iter(set(mine.frameworks) - set(cluster.frameworks) or set(mine.frameworks)))
    worth = _worth(cluster, measured, framework, arguments.next)
    if arguments.output:
        save_calibration(mine, arguments.output, name)
    if arguments.json:
        print_json(_figures(mine, name, measured, found, worth))
    else:
        files = [f"{arguments.output} (give it to other commands with --calibration)"] if arguments.output else []
        print_page(*_page(cluster, mine, name, measured, found, worth), written(*files), markdown=arguments.markdown)
    return codes.ANSWERED


def _measured(arguments: argparse.Namespace) -> tuple[list[Measured], set[str]]:
    """The runs of all files, and the frameworks that they name."""
    from costmodel.evaluation.own_run_files import measured_runs
    from costmodel.interop.launchers.reading import is_launch_file

    runs: list[Measured] = []
    for text in arguments.runs:
        named, equals, log = text.rpartition("=")
        if equals and not text.lower().endswith(RECORDS):
            files = [Path(name) for name in named.split(",")]
            launched = len(files) > 1 or is_launch_file(files[0])
            runs.append(_logged(files, log) if launched else _told(arguments, named, log))
        elif text.lower().endswith(RECORDS):
            found = measured_runs(text)
            runs += [run._replace(id=run.id or f"{Path(text).name} {place}") for place, run in enumerate(found, 1)]
        else:
            raise Misused(f"{text[:200]!r}: expected records in a file that ends in .jsonl or .csv, LAUNCH=LOG, or MODEL=LOG")
    if not runs:
        raise Misused("no run in these files has a step time or a peak of memory")
    return runs, {run.framework.name for run in runs if run.framework is not None}


def _logged(files: Sequence[Path], log: str) -> Measured:
    """The run of launch files, its step time as its log has it."""
    from costmodel.evaluation.own_run_update import Measured
    from costmodel.interop.launchers import read_launch, read_step_times, resolve

    priced = resolve(read_launch(files))
    if priced.algorithm is not None:
        raise Misused(f"{log}: a step of {priced.algorithm} has a reference's pass beside the update that is fitted")
    seconds = read_step_times(Path(log), priced.plan).typical()
    return Measured(priced.model, priced.plan, seconds, framework=load_framework(priced.software), id=Path(log).name)


def _told(arguments: argparse.Namespace, name: str, log: str) -> Measured:
    """The run of a model that has no launch file: its plan as the options tell it, its step time as its log has it."""
    from costmodel.evaluation.own_run_update import Measured
    from costmodel.interop.launchers import read_step_times

    asked = argparse.Namespace(**{**vars(arguments), "model": name, "calibration": None, "notes": [], "verbose": False})
    model = read_asked_model(asked)
    _, plan = read_plan(asked)
    software = None if arguments.framework is None else load_framework(arguments.framework)
    return Measured(model, plan, read_step_times(Path(log), plan).typical(), framework=software, id=Path(log).name)


def _cluster(arguments: argparse.Namespace, measured: Sequence[Measured]) -> Cluster:
    """That which was named; where none was, that on which all runs were made."""
    told = [run.cluster for run in measured if run.cluster is not None]
    if arguments.cluster is not None or arguments.device is not None:
        return read_hardware(arguments)
    if not told:
        raise Misused("one of the arguments --cluster --device is required, where no run says on what it was made")
    names = dict.fromkeys(one.name for one in told)
    if len(names) > 1:
        raise Misused(f"runs on {', '.join(names)}: each cluster is calibrated by itself; say which with --cluster or --device")
    return max(told, key=lambda one: one.gpus or 1)


def _only(software: set[str]) -> str:
    if len(software) > 1:
        raise Misused(f"runs of {', '.join(sorted(software))}: each framework is calibrated by itself")
    return next(iter(software), "megatron-core")


def _worth(cluster: Cluster, measured: Sequence[Measured], framework: str, most: int) -> list[tuple[Worth, Transformer, Plan]]:
    """Plans that a search of the runs' models finds, those first whose measurement tells most for a GPU-minute."""
    from costmodel.evaluation.own_runs import next_runs
    from costmodel.evaluation.plan_search import search_by_name

    candidates: list[tuple[Transformer, Plan]] = []
    asked = {(run.model, run.plan.global_batch, run.plan.seq_len): run for run in measured}
    for run in list(asked.values())[:MODELS] if most else ():
        where = cluster.with_gpus(run.plan.on(cluster).gpus)
        found = search_by_name(
            run.model, where, global_batch=run.plan.global_batch, seq_len=run.plan.seq_len, framework=framework, top=PLANS,
            dtype=[str(run.plan.on(cluster).dtype)] if run.plan.dtype else None,
        )  # fmt: skip
        candidates += [(run.model, one.plan) for one in found.ranked]
    if not candidates:
        return []
    best = next_runs(cluster, candidates, framework, measured)
    return [(one, *candidates[one.candidate]) for one in best[:most]]


def _spans(cluster: Cluster, mine: Cluster, measured: Sequence[Measured]) -> list[str]:
    """How wide 90 % intervals are without the runs and with them."""
    lines = []
    for what, field, of in (
        ("step time", "time_interval", [run for run in measured if run.seconds is not None]),
        ("memory", "memory_interval", [run for run in measured if run.peak is not None]),
    ):
        if not of:
            continue
        run = of[0]
        gpus, software = run.plan.on(cluster).gpus, next(iter(mine.frameworks.values())).name
        widths = []
        for where in (cluster, mine):
            low, high = getattr(estimate(run.model, where.with_gpus(gpus), run.plan, software), field)
            widths.append(math.sqrt(high / low))
        lines.append(f"90 % interval of {what}: a factor of {widths[0]:.2f} each way without the runs, {widths[1]:.2f} with them")
    return lines


def _page(
    cluster: Cluster, mine: Cluster, name: str, measured: Sequence[Measured], found: Sequence[Influence],
    worth: Sequence[tuple[Worth, Transformer, Plan]],
) -> list[TerminalTable | str]:  # fmt: skip
    timed = [run for run in measured if run.seconds is not None]
    framework = mine.frameworks[name]
    head = f"{counted(len(measured), 'run')} of {name} on {cluster.device.name}"
    if timed:
        head += f": steps take {framework.own_factor:.3g} times what the constants say"
    rows = []
    for one in found:
        run = timed[one.run]
        moved = "left out: it disagrees with the others" if one.disagrees else f"{one.moved}: {one.by - 1.0:+.1%}"
        took = format_seconds(float(run.seconds or 0.0))
        rows.append([
            run.id or f"run {one.run + 1}", run.model.name, named(run.plan.on(cluster)), took,
            f"{math.expm1(one.before):+.1%}", f"{math.expm1(one.after):+.1%}", moved,
        ])  # fmt: skip
    page: list[TerminalTable | str] = [head]
    if rows:
        titles = ["run", "model", "plan", "measured", "over the estimate", "now", "what of it this run alone says"]
        page.append(table(titles, rows, words=3, titles=2))
    page.append("\n".join(_spans(cluster, mine, measured)))
    lines = [
        f"{model.name}, {named(plan)}: {100 * one.narrowed:.0f} % of what is unknown of a search's first plans, for "
        f"{one.gpu_minutes:.3g} GPU-minutes" for one, model, plan in worth
    ]  # fmt: skip
    if lines:
        page.append("\n".join(["Worth measuring next, by what a GPU-minute tells:", *lines]))
    return page


def _figures(
    mine: Cluster, name: str, measured: Sequence[Measured], found: Sequence[Influence],
    worth: Sequence[tuple[Worth, Transformer, Plan]],
) -> Row:  # fmt: skip
    timed = [run for run in measured if run.seconds is not None]
    framework = mine.frameworks[name]
    return {
        "framework": name, "device": mine.device.name, "runs": len(measured), "own_factor": framework.own_factor,
        "time_error": framework.time_error, "memory_error": framework.memory_error,
        "influences": [
            {
                "run": timed[one.run].id or one.run + 1, "measured_s": timed[one.run].seconds, "before": one.before,
                "after": one.after, "moved": one.moved, "by": one.by, "surprise": one.surprise, "disagrees": one.disagrees,
            }
            for one in found
        ],
        "next": [
            {"model": model.name, "plan": named(plan), "narrowed": one.narrowed, "gpu_minutes": one.gpu_minutes}
            for one, model, plan in worth
        ],
    }  # fmt: skip

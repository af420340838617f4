"""`costmodel timeline` and `simulate`: a step played out, on its pipeline or on the whole cluster, event by event."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from costmodel.arithmetic.named_tuples import Row
from costmodel.cli.arguments import Commands, Misused, Parser, add_output, number, whole
from costmodel.cli.files import add_files, check_files, perfetto_file
from costmodel.cli.output import TerminalTable, gib, judged, plan_heading, respond, share, table, write_csv, written
from costmodel.cli.question import PLAYED, add_question, judged_by, read_asked_model, read_plan
from costmodel.evaluation.estimation import Estimate, estimate
from costmodel.text.units import counted, format_bytes, format_seconds

if TYPE_CHECKING:
    from costmodel.simulation.playback import Timeline


STAGED = "llama3-8b --cluster dgx-h100 --global-batch 64 --seq-len 4096 --pipeline-parallel 4"
"""A question of the examples."""


def add(commands: Commands) -> None:
    """Add the commands."""
    playing = commands.add_parser(
        "timeline", usage=PLAYED % "timeline", help="a step played out on its pipeline, event by event",
        examples=(
            f"costmodel timeline {STAGED}", f"costmodel timeline {STAGED} --virtual-stages 2 --html step.html",
            "costmodel timeline train.sh --cluster dgx-h100",
        ),
    )  # fmt: skip
    output = _add_playing(playing, html="a Gantt chart", csv="start and end of every event")
    output.add_argument("--memory", action="store_true", help="in the HTML file also what the fullest rank holds, by part")
    playing.set_defaults(run=_timeline)

    simulating = commands.add_parser(
        "simulate", usage=PLAYED % "simulate", help="a step played out on the cluster, its links shared",
        examples=(
            f"costmodel simulate {STAGED}", f"costmodel simulate {STAGED} --perfetto step.json",
            "costmodel simulate sft.yaml ds_config.json --device h100 --gpus 16",
        ),
    )  # fmt: skip
    _add_playing(simulating, html="utilisation over time, and where the time goes")
    simulating.add_argument("--slow", type=_slow, metavar="RANK=X,...",
                            help="GPUs that take X times as long to compute, such as 3=1.2")  # fmt: skip
    simulating.set_defaults(run=_simulate)


def _add_playing(parser: Parser, **files: str) -> argparse._ArgumentGroup:
    """What every command that plays a step out takes; the group of its output is given back."""
    add_question(parser, several=False, launches=True)
    parser.add_argument("--jitter", type=number, default=0.0, metavar="S", help="spread of the passes' times, of their mean")
    parser.add_argument("--seed", type=whole, default=0, metavar="N", help="of the jitter (default: 0)")
    output = add_output(parser)
    add_files(parser, output, **files, perfetto="a trace that ui.perfetto.dev opens")
    return output


def _slow(text: str) -> dict[int, float]:
    """Ranks and how many times as long they take, such as ``3=1.2,7=2``."""
    found: dict[int, float] = {}
    for part in text.split(","):
        rank, equals, times = part.partition("=")
        if not equals or not rank.strip().isdecimal() or len(rank) > 9:
            raise argparse.ArgumentTypeError(f"{text[:80]!r} is not RANK=X,..., such as 3=1.2")
        found[int(rank)] = number(times)
    return found


def _timeline(arguments: argparse.Namespace) -> int:
    check_files(arguments)
    if arguments.memory and arguments.html is None:
        raise Misused("--memory adds to the HTML file: give --html FILE too")
    from costmodel.simulation.playback import timeline

    model = read_asked_model(arguments)
    cluster, plan = read_plan(arguments)
    answer = estimate(model, cluster, plan, arguments.framework, fit_probability=arguments.fit_probability)
    played = timeline(model, cluster, plan, arguments.framework, jitter=arguments.jitter, seed=arguments.seed)
    files = _write(arguments, answer, played)
    ranks = [
        {
            "rank": rank, "busy_s": float(played.busy[rank]), "bubble_s": float(played.bubble[rank]),
            "in_flight": float(played.in_flight[rank]), "peak_activation_bytes": float(played.peak_bytes[rank]),
            "peak_memory_bytes": answer.memory.stages[rank].total,
        }
        for rank in range(played.schedule.ranks)
    ]  # fmt: skip
    return respond(arguments, lambda: {
        "model": model.name, "cluster": cluster.name, "framework": answer.framework.name, "departures": answer.departures,
        "schedule": played.schedule.name, "micro_batches": played.schedule.micro_batches, "total_s": played.total,
        "period_s": played.period, "bubble_rate": played.bubble_rate, "estimate_s": answer.step_time,
        "jitter": arguments.jitter, "seed": arguments.seed, "ranks": ranks,
    }, lambda: [*_page(answer, played, ranks), written(*files)])  # fmt: skip


def _write(arguments: argparse.Namespace, answer: Estimate, played: Timeline) -> list[str]:
    """Write the files that were asked for; what each is."""
    files = []
    if arguments.csv:
        files.append(f"{arguments.csv} ({counted(len(played.start), 'event')})")
        columns = played.columns
        write_csv(arguments.csv, list(columns), zip(*(column.tolist() for column in columns.values()), strict=True))
    files += perfetto_file(arguments.perfetto, played)
    if arguments.html:
        from costmodel.plots.memory import memory_figure
        from costmodel.plots.page import write_page
        from costmodel.plots.pipeline import pipeline_figure

        figures = [pipeline_figure(played)]
        if arguments.memory:
            figures.append(memory_figure(answer.memory.timeline(), answer.memory_limit))
        write_page(arguments.html, f"{answer.model.name}: a step of its pipeline", figures)
        files.append(f"{arguments.html} ({counted(len(figures), 'figure')})")
    return files


def _page(answer: Estimate, played: Timeline, ranks: list[Row]) -> list[TerminalTable | str]:
    estimated = answer.step_time
    rows = [
        (
            str(row["rank"]), format_seconds(row["busy_s"]), format_seconds(row["bubble_s"]),
            share(row["bubble_s"], played.period), f"{row['in_flight']:.4g}", f"{gib(row['peak_activation_bytes'])} GiB",
            f"{gib(row['peak_memory_bytes'])} GiB",
        )
        for row in ranks
    ]  # fmt: skip
    steady = "" if played.period == played.total else f", {format_seconds(played.period)} from step to step"
    return [
        f"{plan_heading(answer)}\n{judged(answer)}",
        table(["rank", "busy", "bubble", "of the step", "in flight", "peak activations", "peak memory"], rows),
        f"Played out: {format_seconds(played.total)}{steady}, bubble {100 * played.bubble_rate:.1f} % on average over the ranks\n"
        f"Estimate: {format_seconds(estimated)}, bubble {100 * answer.bubble_share:.1f} % on the slowest",
    ]


def _simulate(arguments: argparse.Namespace) -> int:
    from costmodel.simulation.replay import simulate

    check_files(arguments)
    model = read_asked_model(arguments)
    cluster, plan = read_plan(arguments)
    played = simulate(model, cluster, plan, arguments.framework, jitter=arguments.jitter, seed=arguments.seed,
                      slow_ranks=arguments.slow)  # fmt: skip
    files = perfetto_file(arguments.perfetto, played)
    if arguments.html:
        from costmodel.plots.page import write_page
        from costmodel.plots.simulation import time_parts, utilisation

        write_page(arguments.html, f"{arguments.model}: a step played out", [utilisation(played), time_parts(played)])
        files.append(f"{arguments.html} (2 figures)")
    answer, whole_time = judged_by(played.estimate, arguments), played.step_time
    spent = {f"{cause}_s": values.mean(axis=1) for cause, values in {**played.busy, **played.idle}.items()}
    stages = [
        {"stage": stage, **{cause.replace(" ", "_"): max(float(values[stage]), 0.0) for cause, values in spent.items()},
         "peak_bytes": float(played.peak_bytes[stage])}
        for stage in range(played.stages)
    ]  # fmt: skip
    links = [
        {"level": load.level, "stage": load.stage, "sent_bytes": load.nbytes, "busy": load.busy,
         "peak_bytes_per_s": load.peak_rate, "bandwidth_bytes_per_s": load.bandwidth}
        for load in played.loads
    ]  # fmt: skip
    causes = [cause for cause, values in spent.items() if values.max() > 1e-9]
    rows = []
    for row in stages:
        parts = (share(row[cause.replace(" ", "_")], whole_time) for cause in causes)
        rows.append((str(row["stage"]), *parts, format_bytes(row["peak_bytes"])))
    loads = [
        (load.level, format_bytes(load.nbytes), share(load.busy, 1.0), f"{load.peak_rate / 1e9:.4g}",
         f"{load.bandwidth / 1e9:.4g}")
        for load in played.loads
    ]  # fmt: skip
    return respond(arguments, lambda: {
        "model": answer.model.name, "cluster": answer.cluster.name, "framework": answer.framework.name,
        "departures": answer.departures, "step_time_s": whole_time, "estimate_s": answer.step_time,
        "events": played.events, "replicas": played.replicas, "jitter": arguments.jitter,
        "seed": arguments.seed, "slow_ranks": arguments.slow or {}, "stages": stages, "links": links,
    }, lambda: [
        f"{plan_heading(answer)}\n{judged(answer)}",
        table(["stage", *(cause.removesuffix("_s") for cause in causes), "held at most"], rows),
        table(["links", "sent a step", "busy", "peak GB/s", "reach GB/s"], loads),
        f"Played out: {format_seconds(whole_time)} in {counted(played.events, 'event')}\n"
        f"Estimate: {format_seconds(answer.step_time)}",
        written(*files),
    ])  # fmt: skip

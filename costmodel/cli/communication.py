"""`costmodel ledger` and `costmodel collective`: what a step exchanges, and how long one exchange takes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from costmodel.arithmetic.named_tuples import Row
from costmodel.cli.arguments import Commands, add_output, add_size, gpus_of, nbytes, sized_cluster, whole, yes
from costmodel.cli.calibrated import add_calibration, calibrated_software, with_calibration
from costmodel.cli.files import add_files, check_files
from costmodel.cli.output import TerminalTable, judged, plan_heading, respond, rows_file, share, table, written
from costmodel.cli.question import PLAYED, add_question, judged_by, read_asked_model, read_plan
from costmodel.evaluation.estimation import Estimate
from costmodel.text.suggestions import MEANT
from costmodel.text.units import GB, counted, format_bytes, format_seconds

if TYPE_CHECKING:
    from costmodel.evaluation.collectives import CollectiveTime
    from costmodel.simulation.transactions import Ledger, Load

SIZES = 20
"""Rows of a histogram that are shown."""


def add(commands: Commands) -> None:
    """Add the commands."""
    booking = commands.add_parser(
        "ledger", usage=PLAYED % "ledger", help="every transaction of a step, and the load of the links",
        examples=(
            "costmodel ledger llama3-70b --cluster dgx-h100 --nodes 4 --global-batch 256 --seq-len 8192 --tensor-parallel 8 "
            "--csv sent.csv",
        ),
    )  # fmt: skip
    add_question(booking, several=False, launches=True)
    booking.add_argument("--stage", metavar="S", help="only, first, middle or last (default: the one that sends most)")
    add_files(booking, add_output(booking), csv="every kind of transaction")
    booking.set_defaults(run=_ledger)

    usage = "costmodel collective OPERATION SIZE (--cluster C | --device D) [--nodes N | --gpus N] [options]"
    timing = commands.add_parser(
        "collective", usage=usage, help="time of one collective, and by what",
        examples=(
            "costmodel collective all-reduce 1GiB --cluster dgx-h100 --nodes 16",
            "costmodel collective all-gather 25MB --cluster aws-p5 --gpus 64 --algorithm ring",
        ),
    )  # fmt: skip
    timing.add_argument("operation", metavar="OPERATION", help="all-reduce, all-gather, reduce-scatter, all-to-all, ...")
    timing.add_argument("size", type=nbytes, metavar="SIZE", help="of the buffer, such as 4096, 25MB or 1GiB")
    where = timing.add_mutually_exclusive_group(required=True)
    where.add_argument("--cluster", metavar="C", help="name in the catalogue, or a TOML file")
    where.add_argument("--device", metavar="D", help="a GPU by name or TOML file: --gpus of them, in nodes as it comes in")
    add_size(timing)
    timing.add_argument("--network", metavar="RATE", help="of a node's NICs together, such as 100Gbit/s")
    timing.add_argument("--stride", type=whole, default=1, metavar="N", help="distance of neighbours in the group (default: 1)")
    timing.add_argument("--alone", action="store_true", help="the GPUs between the members are silent")
    timing.add_argument("--algorithm", default="auto", metavar="A", help="auto, or one of the alternatives")
    timing.add_argument("--library", default="auto", metavar="L", help="auto, nccl, rccl or textbook")
    timing.add_argument("--version", metavar="V", help="of NCCL, such as 2.21 (default: the newest known)")
    timing.add_argument("--launcher", default="native", metavar="L", help="native or pytorch")
    timing.add_argument("--nvls", type=yes, default=True, metavar="yes|no", help="whether NVLink switches may reduce")
    timing.add_argument("--sharp", type=yes, default=False, metavar="yes|no", help="whether the network's switches reduce")
    timing.add_argument("--processor", default="intel", metavar="P", help="of the hosts: intel or amd")
    timing.add_argument("--framework", metavar="F", help="inside a step of this software (default: alone, as in a benchmark)")
    timing.add_argument("--sharded", action="store_true", help="with --framework: gathers or scatters what ZeRO shards")
    add_calibration(timing)
    add_output(timing)
    timing.set_defaults(run=_collective, notes=[])


def _ledger(arguments: argparse.Namespace) -> int:
    from costmodel.simulation.transactions import ledger

    check_files(arguments)
    model = read_asked_model(arguments)
    cluster, plan = read_plan(arguments)
    made = ledger(model, cluster, plan, arguments.framework)
    stage = made.busiest if arguments.stage is None else arguments.stage
    made.of(stage)  # refuses a stage that isn't there
    rows = made.to_rows()
    files = rows_file(arguments.csv, lambda: rows, "kind of transaction", "kinds of transaction", ["stage"])
    return respond(arguments, lambda: {
        "model": model.name, "cluster": cluster.name, "framework": made.estimate.framework.name,
        "departures": made.estimate.departures, "step_time_s": made.estimate.step_time, "sent_bytes": made.sent_bytes,
        "exchange_s": made.times, "cluster_bytes": made.cluster_bytes,
        "loads": [_load_figures(load) for load in made.loads()], "transactions": rows,
    }, lambda: [*_ledger_page(made, judged_by(made.estimate, arguments), stage), written(*files)])  # fmt: skip


def _load_figures(load: Load) -> Row:
    units = {
        "bandwidth": "bandwidth_bytes_per_s", "nbytes": "link_bytes", "mean_rate": "mean_bytes_per_s",
        "peak_rate": "peak_bytes_per_s",
    }  # fmt: skip
    return {units.get(name, name): value for name, value in load._asdict().items()}


def _ledger_page(made: Ledger, answer: Estimate, stage: str) -> list[TerminalTable | str]:
    sums: dict[tuple[str, ...], list[float]] = {}
    for row in made.of(stage):
        key = (row.phase, row.group, row.collective, row.level, f"{row.ranks:,}")
        total = sums.setdefault(key, [0.0, float("inf"), 0.0, 0.0, 0.0])
        total[0] += row.count
        total[1], total[2] = min(total[1], row.nbytes), max(total[2], row.nbytes)
        total[3] += row.count * row.sent
        total[4] += row.count * row.time
    rows = [
        (
            *key, f"{count:,.6g}", format_bytes(least) if least == most else f"{format_bytes(least)} to {format_bytes(most)}",
            format_bytes(sent), format_seconds(time),
        )
        for key, (count, least, most, sent, time) in sums.items()
    ]  # fmt: skip
    page: list[TerminalTable | str] = [
        f"{plan_heading(answer)}\n{judged(answer)}",
        f"A rank of {'the only' if stage == 'only' else f'the {stage}'} stage, in a step of {format_seconds(answer.step_time)}:",
        table(
            ["phase", "group", "collective", "level", "ranks", "transactions", "size", "sent", "time alone"], rows,
            words={0, 1, 2, 3, 6}, titles=4,
        ),
    ]
    sizes = made.histogram(stage=stage)
    largest = sorted(sizes, key=lambda size: -size.count * size.nbytes)[:SIZES]
    if largest:
        shown = sorted(largest, key=lambda size: size.nbytes)
        page.append(table(
            ["size", "collective", "group", "transactions"],
            [(format_bytes(size.nbytes), size.collective, size.group, f"{size.count:,.6g}") for size in shown], words=3,
        ))  # fmt: skip
    loads = [
        (
            load.level, load.stage, f"{load.bandwidth / GB:,.4g}", format_bytes(load.nbytes), share(load.busy, 1.0),
            f"{load.mean_rate / GB:,.4g}", f"{load.peak_rate / GB:,.4g}",
        )
        for load in made.loads()
    ]  # fmt: skip
    page.append(table(["links", "busiest stage", "GB/s", "a step", "busy", "mean GB/s", "peak GB/s"], loads, words=2))
    less = len(sizes) - len(largest)
    left = f"; {counted(less, 'size')} with fewer bytes {'is' if less == 1 else 'are'} not shown" if less else ""
    first = made.saturates_first
    page.append(
        f"All GPUs send {format_bytes(made.cluster_bytes)} a step; "
        + (f"{first.level} links saturate first" if first.nbytes else "no link carries anything") + left
    )  # fmt: skip
    return page


def _collective(arguments: argparse.Namespace) -> int:
    from costmodel.description.topology import Group
    from costmodel.evaluation.collectives import LATEST, collective_time

    cluster = with_calibration(arguments, sized_cluster(arguments))
    if arguments.calibration is not None:  # own runs are steps of a framework, and say nothing of a benchmark
        arguments.framework = calibrated_software(arguments, arguments.framework) or arguments.framework
    ranks = gpus_of(arguments, cluster)
    group = Group(ranks=cluster.gpus or 1 if ranks is None else ranks, stride=arguments.stride, alone=arguments.alone)
    node = cluster.gpus_per_node
    if group.span > (cluster.gpus or 0):  # nodes enough for the group
        cluster = cluster.with_gpus(-(-group.span // node) * node)
    answer = collective_time(
        _operation(arguments.operation), arguments.size, group, cluster, arguments.algorithm, library=arguments.library,
        version=LATEST if arguments.version is None else arguments.version, launcher=arguments.launcher,
        nvls=arguments.nvls, sharp=arguments.sharp, processor=arguments.processor, framework=arguments.framework,
        sharded=arguments.sharded,
    )  # fmt: skip
    return respond(arguments, lambda: {
        "operation": answer.op, "buffer_bytes": answer.nbytes, "ranks": group.ranks, "stride": group.stride,
        "cluster": cluster.name, "library": answer.library, "algorithm": answer.algorithm, "protocol": answer.protocol,
        "time_s": answer.time, "bus_bandwidth_bytes_per_s": answer.bus_bandwidth, "lower_bound_s": answer.lower_bound,
        "why": answer.why,
        "alternatives": [
            {"algorithm": one.algorithm, "protocol": one.protocol, "time_s": one.time} for one in answer.alternatives
        ],
    }, lambda: _collective_page(answer, cluster.name))  # fmt: skip


def _operation(name: str) -> str:
    """An operation by its own name, of whatever people write for it."""
    plain = name.strip().lower().replace("_", "-")
    return MEANT["op"].get(plain, plain)


def _collective_page(answer: CollectiveTime, cluster: str) -> list[TerminalTable | str]:
    from costmodel.evaluation.collectives import bus_factor

    factor = bus_factor(answer.op, answer.group.ranks) * answer.nbytes
    rows = [
        (
            one.algorithm, one.protocol or "-", format_seconds(one.time), f"{factor / one.time / GB:,.4g}" if one.time else "-",
            f"{one.time / answer.time:.2f} x" if answer.time else "-",
        )
        for one in answer.alternatives
    ]  # fmt: skip
    exempt = "; switches that reduce are not bound by it" if 0.0 < answer.time < answer.lower_bound else ""
    return [
        f"{answer.op} of {format_bytes(answer.nbytes)} over {counted(answer.group.ranks, 'GPU')} of {cluster}: "
        f"{format_seconds(answer.time)}, {answer.bus_bandwidth / GB:,.4g} GB/s on the bus\n{answer.why}",
        table(["algorithm", "protocol", "time", "bus GB/s", "of the chosen"], rows, words=2),
        f"No algorithm that sends over the same links takes less than {format_seconds(answer.lower_bound)}{exempt}",
    ]

"""`costmodel design`: which cluster to rent or buy for a run that must end in time, or stay within a budget."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from costmodel.catalogue import loader
from costmodel.catalogue.loader import alias
from costmodel.cli.arguments import Commands, Misused, add_output, length, many, number, spelled, whole
from costmodel.cli.calibrated import add_calibration, calibrated_software, each_calibrated
from costmodel.cli.defaults import as_note, fill_work
from costmodel.cli.files import add_files, check_files
from costmodel.cli.output import TerminalTable, named, respond, rows_file, table, written
from costmodel.cli.training import tokens
from costmodel.text.units import counted, format_count, format_days, format_seconds

if TYPE_CHECKING:
    from costmodel.evaluation.cluster_design import ClusterDesign, Option

DAY = 86400.0


def _priced(text: str) -> tuple[str, float]:
    """A device and the price of one for an hour."""
    name, equals, price = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not DEVICE=PRICE, such as h100-sxm=2.5")
    return name.strip(), number(price)


def add(commands: Commands) -> None:
    """Add the command."""
    usage = "costmodel design MODEL --devices D,D --gpus N,N --global-batch N --seq-len N --tokens X [options]"
    designing = commands.add_parser(
        "design", usage=usage, help="which cluster reaches a time or a budget, cheapest first",
        description="Try every cluster of some kinds of GPU, sizes and networks with its fastest plan that fits, and list those "
        "that end in time and within the budget, cheapest first. Without prices, cost counts GPU-hours.",
        examples=(
            "costmodel design llama3-8b --devices h100-sxm,a100-sxm-80gb --gpus 64,128,256 --global-batch 1024 --seq-len 8192 "
            "--tokens 1T --days 30 --prices h100-sxm=2.5,a100-sxm-80gb=1.5",
            "costmodel design llama3-70b --devices h100-sxm --gpus 512,1024 --networks 800Gbit/s,3200Gbit/s "
            "--oversubscriptions 1,4 --global-batch 1024 --seq-len 8192 --tokens 15T --budget 1e7 --prices h100-sxm=2",
        ),
    )  # fmt: skip
    designing.add_argument("model", metavar="MODEL", help="name in the catalogue, a TOML file, or a Hugging Face config.json")
    run = designing.add_argument_group("the run")
    run.add_argument(*spelled("global_batch"), type=whole, metavar="N", help="sequences per step (default: 1024)")
    run.add_argument("--seq-len", type=length, metavar="N", help="tokens of a sequence (default: 4096)")
    run.add_argument("--tokens", type=tokens, required=True, metavar="X", help="to train on, such as 1e12 or 15T")
    run.add_argument("--days", type=number, metavar="X", help="that it may take (default: as many as it takes)")
    run.add_argument("--budget", type=number, metavar="X", help="that it may cost, in the currency of the prices (default: any)")
    run.add_argument("--framework", default="megatron-core", metavar="F", help="the software")
    add_calibration(run)
    tried = designing.add_argument_group("clusters to try, one value of each or several (1,2,4)")
    tried.add_argument("--devices", "--device", type=many(str.strip), required=True, metavar="D", help="kinds of GPU")
    tried.add_argument("--gpus", type=many(whole), required=True, metavar="N", help="of the whole cluster")
    tried.add_argument("--gpus-per-node", type=many(whole), default=[8], metavar="N", help="that share NVLink (default: 8)")
    tried.add_argument("--networks", type=many(str.strip), metavar="RATE",
                       help="of a node's NICs together, such as 400Gbit/s, or '50GB/s per GPU' (default: usual)")  # fmt: skip
    tried.add_argument("--oversubscriptions", type=many(number), default=[1.0], metavar="X", help="of the network (default: 1)")
    tried.add_argument("--prices", type=many(_priced), metavar="D=X", help="of a GPU of each kind for an hour; none is built in")
    tried.add_argument("--network-price", type=number, default=0.0, metavar="X",
                       help="of 1 GB/s of a GPU's share of the network for an hour, besides (default: 0)")  # fmt: skip
    output = add_output(designing)
    output.add_argument("--top", type=whole, default=10, metavar="K", help="clusters to show (default: 10)")
    add_files(designing, output, csv="every cluster that was tried")
    designing.set_defaults(run=_design, notes=[])


def _design(arguments: argparse.Namespace) -> int:
    from costmodel.evaluation.cluster_design import candidates, design_cluster

    check_files(arguments)
    pairs = arguments.prices or []
    prices = {alias("device", name) or name: price for name, price in pairs}
    if len(prices) < len(pairs):
        raise Misused("--prices: a device is given twice")
    model = loader.load_model(arguments.model)
    taken = fill_work(arguments, model, global_batch=1024, seq_len=4096)
    arguments.notes += as_note(taken)
    clusters = candidates(
        arguments.devices, arguments.gpus, gpus_per_node=arguments.gpus_per_node, networks=arguments.networks,
        oversubscriptions=arguments.oversubscriptions,
    )  # fmt: skip
    if arguments.calibration is not None:
        arguments.framework = calibrated_software(arguments, arguments.framework) or arguments.framework
        clusters = each_calibrated(arguments, clusters)
    made = design_cluster(
        model, clusters, global_batch=arguments.global_batch, seq_len=arguments.seq_len, tokens=arguments.tokens,
        within=None if arguments.days is None else arguments.days * DAY, budget=arguments.budget, prices=prices or None,
        network_price=arguments.network_price, framework=arguments.framework,
    )  # fmt: skip
    files = rows_file(arguments.csv, made.to_rows, "cluster")
    return respond(
        arguments, lambda: {"model": model.name, "tokens": arguments.tokens, "options": made.to_rows()},
        lambda: [*_page(made, arguments, bool(prices), model.name), written(*files)], bool(made.reached),
    )  # fmt: skip


def _page(made: ClusterDesign, arguments: argparse.Namespace, priced: bool, model: str) -> list[TerminalTable | str]:
    cost = "cost" if priced else "GPU-hours"
    beaten = set(map(id, made.options)) - set(map(id, made.frontier))

    def row(option: Option) -> tuple[str, ...]:
        cluster, best = option.cluster, option.estimate
        level = cluster.levels[-1]
        rate = 8e-9 * (level.line_rate or level.bandwidth)
        network = "inside a node" if len(cluster.levels) == 1 else f"{rate:,.0f} Gbit/s"
        if level.oversubscription > 1.0:
            network += f" / {level.oversubscription:g}"
        if best is None or option.time is None or option.cost is None:
            return cluster.device.name, f"{cluster.gpus:,}", network, "-", "-", "-", "-", option.why
        verdict = option.why or ("reaches it" if id(option) in beaten else "reaches it; none is better in all")
        return (
            cluster.device.name, f"{cluster.gpus:,}", network, f"{option.time / DAY:,.1f}", f"{option.cost:,.0f}",
            format_seconds(best.step_time), named(best.plan), verdict,
        )  # fmt: skip

    shown = made.options[: arguments.top]
    left, reached = len(made.options) - len(shown), len(made.reached)
    limits = []
    if arguments.days is not None:
        limits.append(f"within {format_days(arguments.days)}")
    if arguments.budget is not None:
        limits.append(f"for at most {arguments.budget:,.0f}")
    asked = " ".join([f"{model}, {format_count(arguments.tokens)} tokens", " and ".join(limits)]).rstrip()
    verb = ("reaches" if reached == 1 else "reach") if limits else ("holds" if reached == 1 else "hold")
    reaching = f"{reached:,} of {counted(len(made.options), 'cluster')} {verb} it"
    heads = ["GPU", "GPUs", "network of a GPU", "days", cost, "step", "best plan", "verdict"]
    page: list[TerminalTable | str] = [
        f"{asked}: {reaching}" + ("; the cheapest first" if reached > 1 else ""),
        table(heads, [row(one) for one in shown], words={0, 2, 6, 7}, titles=3),
    ]
    tried = f"{counted(left, 'more cluster')} {'was' if left == 1 else 'were'} tried"
    more = f"{tried}: --top shows, --csv writes all of them" if left else ""
    return [*page, more, "Every step is taken to last as long as the best plan's, with nothing lost to failures."]

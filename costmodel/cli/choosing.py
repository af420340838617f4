"""`costmodel cards` and `costmodel gpus`: which card trains a model, and how many GPUs end a run in time."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from costmodel.catalogue.clusters import load_cluster
from costmodel.catalogue.loader import load_device
from costmodel.cli.arguments import Commands, Misused, Parser, add_output, length, many, number, spelled, whole
from costmodel.cli.calibrated import add_calibration, calibrated_software, each_calibrated
from costmodel.cli.defaults import ADAPTED_BATCH, ADAPTED_LENGTH, fill_work, priced
from costmodel.cli.files import add_files, check_files
from costmodel.cli.output import TerminalTable, named, respond, rows_file, table, written
from costmodel.cli.question import read_with_notes
from costmodel.cli.runs import amounts
from costmodel.cli.training import tokens
from costmodel.description.cluster import Cluster
from costmodel.description.labels import of_a_step
from costmodel.description.usual_work import LENGTH
from costmodel.evaluation import engine
from costmodel.text.errors import CostModelError
from costmodel.text.units import format_bytes, format_count, format_days

if TYPE_CHECKING:
    from costmodel.training.card_table import Card, CardTable
    from costmodel.training.cluster_sizes import ClusterSize, ClusterSizes
    from costmodel.training.duration import TrainingRun


def add(commands: Commands) -> None:
    """Add the commands."""
    choosing = commands.add_parser(
        "cards", usage="costmodel cards MODEL [--adapter full,lora,qlora] [--device D,...] [--tokens X] [--price X | D=X,...] "
        "[options]",
        help="which card trains a model, how fast, for how much, with what",
        description="Every GPU of the catalogue, or those that are named: whether the model fits, the longest sequence and the "
        "largest micro-batch (with full recomputation), tokens a second, and with which framework it is fastest.",
        examples=(
            "costmodel cards qwen2.5-32b --adapter lora", "costmodel cards llama3-70b --adapter qlora --device 4090,5090,h100",
            "costmodel cards llama3-8b --adapter full,lora,qlora --tokens 1B --price h100=2.5,4090=0.4",
        ),
    )  # fmt: skip
    _model(choosing, str(ADAPTED_BATCH), str(ADAPTED_LENGTH))
    choosing.add_argument("--adapter", type=many(str.strip), metavar="A,...",
                          help="full, lora, qlora, gptq-lora, int8-lora, or several (default: full,lora,qlora)")  # fmt: skip
    choosing.add_argument("--device", "--devices", type=many(str.strip), metavar="D,...",
                          help="cards by name or TOML file (default: the catalogue's GPUs)")  # fmt: skip
    choosing.add_argument("--gpus", type=whole, default=1, metavar="N", help="cards that train together (default: 1)")
    choosing.add_argument("--framework", type=many(str.strip), metavar="F,...",
                          help="software, the fastest of several is shown (default: those of fine-tuning)")  # fmt: skip
    _run(choosing, "of a card for an hour: one, or h100=2.5,4090=0.4 by card")
    _output(choosing, "every card")
    choosing.set_defaults(run=_cards, notes=[], verbose=False)

    sizing = commands.add_parser(
        "gpus",
        usage="costmodel gpus MODEL --days X --tokens X [--cluster C,... | --device D,...] [--price X | C=X,...] [options]",
        help="how many GPUs end a run in time, of which cluster",
        description="Of each cluster the fewest GPUs that are expected to end in time, and the fewest that are sure to, with the "
        "fastest plan that fits; nothing is lost to failures.",
        examples=(
            "costmodel gpus llama3-70b --days 30 --tokens 1T",
            "costmodel gpus llama3-8b --days 7 --tokens 100B --device h100,b200 --price h100=2.5,b200=5",
        ),
    )  # fmt: skip
    _model(sizing, "1024; 4096 or 16384 where nothing ends in time with fewer", "4096")
    sizing.add_argument("--days", type=number, required=True, metavar="X", help="that the run may take")
    where = sizing.add_mutually_exclusive_group()
    where.add_argument("--cluster", type=many(str.strip), metavar="C,...",
                       help="clusters to try, of any size (default: the catalogue's first of each large device)")  # fmt: skip
    where.add_argument("--device", "--devices", type=many(str.strip), metavar="D,...", help="GPUs, in nodes as they come in")
    sizing.add_argument("--framework", default="megatron-core", metavar="F", help="software")
    sizing.add_argument("--sure", type=number, default=0.9, metavar="P", help="probability to end in time that is sure")
    _run(sizing, "of a GPU for an hour: one, or h100=2.5,b200=5 by device or cluster", needed=True)
    _output(sizing, "every cluster")
    sizing.set_defaults(run=_gpus, notes=[], verbose=False)


def _model(parser: argparse.ArgumentParser, batch: str, usual: str) -> None:
    parser.add_argument("model", metavar="MODEL", help="name in the catalogue, a TOML file, or a Hugging Face config.json")
    parser.add_argument(*spelled("global_batch"), type=whole, metavar="N", help=f"sequences per step (default: {batch})")
    parser.add_argument("--seq-len", type=length, metavar="N", help=f"tokens of a sequence (default: {usual})")
    add_calibration(parser)


def _run(parser: argparse.ArgumentParser, price: str, needed: bool = False) -> None:
    parser.add_argument("--tokens", type=tokens, required=needed, metavar="X", help="of the run, such as 1B or 15T")
    parser.add_argument("--price", "--prices", type=priced, metavar="X", help=price)


def _output(parser: Parser, csv: str) -> None:
    output = add_output(parser)
    add_files(parser, output, csv=csv)


def _cards(arguments: argparse.Namespace) -> int:
    from costmodel.training.card_table import ADAPTERS, cards

    check_files(arguments)
    model = read_with_notes(arguments.model, arguments)
    taken = fill_work(arguments, model, global_batch=ADAPTED_BATCH, seq_len=ADAPTED_LENGTH)
    price = None if arguments.price is None else arguments.price.get("", arguments.price)
    software = arguments.framework
    if arguments.calibration is not None:
        software = calibrated_software(arguments, software) or software
    made = cards(
        model, arguments.device, adapter=arguments.adapter or ADAPTERS, gpus=arguments.gpus, tokens=arguments.tokens, price=price,
        global_batch=arguments.global_batch, seq_len=arguments.seq_len, framework=software, calibration=arguments.calibration,
    )  # fmt: skip
    files = rows_file(arguments.csv, made.to_rows, "card")
    head = "\n".join(filter(None, (f"{model.name}: {of_a_step(arguments.global_batch, arguments.seq_len)}", taken)))
    return respond(
        arguments, lambda: {"answer": made.said(), "cards": made.to_rows(), "left_out": made.left_out},
        lambda: [head, made.said(), *_card_table(made), written(*files)], bool(made.fitting),
    )  # fmt: skip


def _card_table(made: CardTable) -> list[TerminalTable | str]:
    heads = ["card", "trains", "longest", "batch", "tokens/s", "memory", "framework"]
    run = next((one.run for one in made.fitting if one.run is not None), None)
    if run is not None:
        heads += ["days", "money"] if any(one.price is not None for one in made.fitting) else ["days"]
    rows = [_card(one, run is not None) for one in made.fitting]
    page: list[TerminalTable | str] = []
    if rows:
        page.append(table(heads, [row[: len(heads)] for row in rows], words={0, 1, 6}, titles=2))
        whose = "of the fastest plan's split " if (made.gpus or 1) > 1 else ""
        both = f"both {whose}with full recomputation"
        page.append(f"longest: tokens of a sequence, micro-batch 1; batch: largest micro-batch; {both}")
    for adapter in dict.fromkeys(one.adapter for one in made.rows):
        misses = [one for one in made.rows if one.adapter == adapter and one.estimate is None]
        if misses:
            page.append(f"{misses[0].trains} has no plan that fits on {', '.join(one.device for one in misses)}")
    return [*page, *made.left_out]


def _card(one: Card, carried: bool) -> list[str]:
    best = one.estimate
    assert best is not None
    cells = [
        one.device, one.trains, f"{one.longest or 0:,}", f"{one.micro_batch or 0:,}", f"{best.tokens_per_second:,.0f}",
        format_bytes(float(best.memory.total)), best.framework.name,
    ]  # fmt: skip
    return cells + (_days_and_money(one.run) if carried and one.run is not None else [])


def _days_and_money(run: TrainingRun) -> list[str]:
    shown = {name: best for name, best, *_ in amounts(run)}
    return [shown["days"], shown.get("price", "-")]


def _gpus(arguments: argparse.Namespace) -> int:
    from costmodel.training.cluster_sizes import gpus_in_time

    check_files(arguments)
    model = read_with_notes(arguments.model, arguments)
    clusters = _clusters(arguments)
    if arguments.calibration is not None:
        from costmodel.training.cluster_sizes import usual_clusters

        arguments.framework = calibrated_software(arguments, arguments.framework) or arguments.framework
        clusters = each_calibrated(arguments, usual_clusters() if clusters is None else clusters)
    made = gpus_in_time(
        model, clusters, tokens=arguments.tokens, days=arguments.days, global_batch=arguments.global_batch,
        seq_len=arguments.seq_len, framework=arguments.framework, price=_prices(arguments, clusters), sure=arguments.sure,
    )  # fmt: skip
    taken = fill_work(arguments, model, global_batch=made.global_batch, seq_len=LENGTH)
    files = rows_file(arguments.csv, made.to_rows, "cluster")
    run = f"{format_count(made.tokens)} tokens within {format_days(arguments.days)}"
    work = of_a_step(arguments.global_batch, arguments.seq_len)
    head = "\n".join(filter(None, (f"{model.name}, {run}, {arguments.framework}: {work}", taken)))
    code = respond(
        arguments, lambda: {"answer": made.said(), "clusters": made.to_rows()},
        lambda: [head, made.said(), *_size_table(made), written(*files)], bool(made.reached),
    )  # fmt: skip
    engine.compile_beside()
    return code


def _clusters(arguments: argparse.Namespace) -> list[Cluster] | None:
    from costmodel.training.cluster_sizes import of_any_size

    named = arguments.device if arguments.cluster is None else arguments.cluster
    return None if named is None else [of_any_size(name) for name in dict.fromkeys(named)]


def _prices(arguments: argparse.Namespace, clusters: Iterable[Cluster] | None) -> dict[str, float] | float | None:
    """Prices by the names of clusters, of which a user may write a device's or a cluster's other names."""
    given: dict[str, float] | None = arguments.price
    if given is None or "" in given:
        return None if given is None else given[""]
    from costmodel.training.cluster_sizes import usual_clusters

    known = list(clusters) if clusters is not None else usual_clusters()
    found: dict[str, float] = {}
    for word, price in given.items():
        names = set()
        for load in (load_device, load_cluster):
            try:
                names.add(load(word).name)
            except CostModelError:  # it is the name of the other
                continue
        taken = [one.name for one in known if {one.name, one.device.name} & (names | {word})]
        if not taken:
            raise Misused(f"--price {word[:80]}=...: none of the clusters, which are {', '.join(one.name for one in known)}")
        found |= dict.fromkeys(taken, price)
    return found


def _size_table(made: ClusterSizes) -> list[TerminalTable | str]:
    priced = any(one.price is not None for one in made.reached)
    heads = ["cluster", "GPUs", "days", "in time", f"{100 * made.required:.0f} % sure", "plan", "GPU-hours"]
    heads += ["money"] if priced else []
    rows = [_size(one, priced) for one in made.reached]
    page: list[TerminalTable | str] = [table(heads, rows, words={0, 5})] if rows else []
    return [*page, "\n".join(f"{one.cluster}: {one.why}" for one in made.rows if one.expected is None)]


def _size(one: ClusterSize, priced: bool) -> list[str]:
    size = one.expected
    assert size is not None
    shown = {name: best for name, best, *_ in amounts(size.run)}
    sure = "-" if one.sure is None else f"{one.sure.gpus:,} GPUs"
    cells = [one.cluster, f"{size.gpus:,}", shown["days"], f"{100 * size.in_time:.0f} %", sure, named(size.run.estimate.plan)]
    return [*cells, shown["GPU-hours"], *([shown.get("price", "-")] if priced else [])]

"""`costmodel capacity`: how far a question can be stretched until memory ends."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

from costmodel.cli.advice import asked_again
from costmodel.cli.arguments import Commands, Misused, add_output, chosen
from costmodel.cli.defaults import as_note, fill_work
from costmodel.cli.output import TerminalTable, heading_of, respond, whole_plan
from costmodel.cli.question import add_question, read_asked_model, read_hardware, world
from costmodel.description.dimensions import DIMENSIONS
from costmodel.description.labels import CAPACITIES
from costmodel.description.usual_work import adapts, least_batch, usual_batch, usual_length
from costmodel.evaluation.estimation import memory_limit, of_limit

if TYPE_CHECKING:
    from costmodel.arithmetic.named_tuples import Row
    from costmodel.description.cluster import Cluster
    from costmodel.evaluation.capacity import Capacity


def add(commands: Commands) -> None:
    """Add the command."""
    usage = "costmodel capacity MODEL --cluster C --find WHAT [--nodes N | --gpus N] [--global-batch N] [--seq-len N] [options]"
    stretching = commands.add_parser(
        "capacity", usage=usage, help="how far a question goes until memory ends",
        examples=(
            "costmodel capacity llama3-8b --device rtx-4090 --find sequence --global-batch 1 --adapter qlora",
            "costmodel capacity llama3-8b --cluster dgx-h100 --find batch --seq-len 8192",
            "costmodel capacity llama3-70b --cluster dgx-h100 --find gpus --global-batch 512 --seq-len 8192",
        ),
    )  # fmt: skip
    add_question(stretching, several=True, fixed=False)
    stretching.add_argument(
        "--find", required=True, choices=list(CAPACITIES), metavar="WHAT",
        help="; ".join(f"{name}: the {sought.words}" for name, sought in CAPACITIES.items())
        + " (of at most --gpus or --nodes, if given)",
    )  # fmt: skip
    add_output(stretching)
    stretching.set_defaults(run=_capacity)


def _capacity(arguments: argparse.Namespace) -> int:
    from costmodel.evaluation.notes import of_length

    found = _found(arguments)
    if found.fits:
        arguments.notes += of_length(found.best)
    return respond(arguments, lambda: {**found.to_dict(), "offers": [
        {"change": asked_again(one.change, one.best.framework.name), **one.best.to_dict()} for one in found.offers
    ]}, lambda: _page(found), found.fits)  # fmt: skip


def _page(found: Capacity) -> list[TerminalTable | str]:
    """The answer and its plan; where nothing fits, what would."""
    from costmodel.cli.ranking import offers_table
    from costmodel.text.units import format_seconds

    if not found.fits:
        why = found.why_none()
        return [f"{found.said()}\n{why[0].upper()}{why[1:]}", *offers_table(found.offers)]
    best = found.best
    return [
        f"{found.said()}\n{heading_of(best)}",
        f"Plan: {whole_plan(best)}\nStep {format_seconds(best.step_time)}, MFU {100 * best.mfu:.1f} %, memory {of_limit(best)}\n"
        f"Memory limit: {memory_limit(best)}\nTried: {found.tried}",
    ]


def _found(arguments: argparse.Namespace) -> Capacity:
    """What stretches the question furthest."""
    from costmodel.evaluation.capacity import FINDERS

    find: str = arguments.find
    sought, model = CAPACITIES[find], read_asked_model(arguments)
    for field in sought.found:
        if getattr(arguments, field) is not None:
            raise Misused(f"--{field.replace('_', '-')} is what --find {find} looks for")
    asked: Row = {field: getattr(arguments, field) for field in sought.asked}
    if None in asked.values():
        gpus = world(arguments)
        only = argparse.Namespace(**{"global_batch": 0, "seq_len": 0, **asked})  # what isn't asked needs no saying
        adapted = adapts(arguments.adapter)
        batch = (least_batch if find == "sequence" else usual_batch)(gpus, vars(arguments))
        taken = fill_work(only, model, global_batch=batch, seq_len=usual_length(model, adapted))
        arguments.notes += as_note(taken)
        vars(arguments).update({field: getattr(only, field) for field in asked})
        asked = {field: getattr(arguments, field) for field in sought.asked}
    tried = {name: list(dict.fromkeys(values)) for name, values in chosen(arguments).items()}
    cluster = read_hardware(arguments, grow=find == "gpus")
    sized = arguments.gpus is not None or arguments.nodes is not None
    if find == "gpus":
        asked |= {"most": cluster.gpus or 1} if sized or len(cluster.levels) == 1 else {}
    elif not sized:
        cluster = _grown(cluster, tried)
    return FINDERS[find](
        model, cluster, framework=arguments.framework, fit_probability=arguments.fit_probability, **asked, **tried
    )


def _grown(cluster: Cluster, tried: Row) -> Cluster:
    """As many GPUs as the least degrees that were asked for need, one node at least."""
    least = math.prod(min(tried.get(one.field, [1])) for one in DIMENSIONS if one.splits_gpus)
    return cluster.with_gpus(max(cluster.gpus or 1, least))

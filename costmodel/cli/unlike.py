"""`--cluster 8xh100+8xa100`: one step over groups of unlike GPUs, each with a share of the batch and a plan of its own."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any

from costmodel.catalogue import loader
from costmodel.catalogue.machines import machine, on_network
from costmodel.cli import codes
from costmodel.cli.arguments import Misused, chosen, read_cluster
from costmodel.cli.calibrated import with_calibration
from costmodel.cli.output import TerminalTable, gib, print_page, respond, table
from costmodel.description.cluster import Cluster
from costmodel.description.labels import label
from costmodel.description.transformer import Transformer
from costmodel.text.errors import IllegalPlan
from costmodel.text.units import counted, format_seconds

if TYPE_CHECKING:
    from costmodel.evaluation.mixed_groups import UnlikeGroups

COUNTED = re.compile(r"(\d+)\s*x\s*(.+)", re.IGNORECASE)
"""So many GPUs of a cluster or of a kind."""
ALONE = ("gpus", "nodes", "changes", "write", "csv", "html", "png", "uneven", "tokens")
"""Options that mean one cluster alone."""


def is_joined(arguments: argparse.Namespace) -> bool:
    """Whether several groups of GPUs are joined to one cluster."""
    named = getattr(arguments, "cluster", None)
    return isinstance(named, str) and "+" in named and not loader.is_file(named)


def search_joined(arguments: argparse.Namespace, model: Transformer) -> int:
    """Print the fastest step over all groups; exit code 1 where no shares of the batch fit."""
    from costmodel.evaluation.mixed_groups import unlike_groups

    for option in ALONE:
        if getattr(arguments, option, None):
            raise Misused(f"--{option.replace('_', '-')} is of one cluster: in --cluster 8xh100+8xa100 each group says its GPUs")
    groups = [_group(arguments, part.strip()) for part in arguments.cluster.split("+")]
    between = arguments.between
    if between is None:
        between = min(map(_network, groups))
        arguments.notes.append(f"groups are taken to reach each other at {8e-9 * between:,.0f} Gbit/s, as the slower one's nodes "
                               "do together (--between)")  # fmt: skip
    tried = chosen(arguments).items()
    dimensions: dict[str, Any] = {name: values[0] if len(values) == 1 else list(values) for name, values in tried}
    try:
        found = unlike_groups(
            model, {"here": groups}, global_batch=arguments.global_batch, seq_len=arguments.seq_len, between=between,
            inside=between, framework=arguments.framework, fit_probability=arguments.fit_probability, **dimensions,
        )  # fmt: skip
    except IllegalPlan as refused:
        if refused.reason != "memory":
            raise
        print_page(str(refused), markdown=arguments.markdown)
        return codes.NOTHING_FITS
    return respond(arguments, lambda: {
        "step_time_s": found.step_time, "tokens_per_second": found.tokens_per_second, "between_groups_s": _exchange(found),
        "groups": found.to_rows(), "left_out": [cluster.name for cluster in found.left_out],
    }, lambda: _page(found, model, arguments))  # fmt: skip


def _group(arguments: argparse.Namespace, text: str) -> Cluster:
    """A group as it is written: a cluster or a kind of GPU, with how many."""
    if not text:
        raise Misused(f"--cluster {arguments.cluster[:80]!r} has an empty name beside a plus")
    found = COUNTED.fullmatch(text)
    number, name = (int(found[1]), found[2]) if found else (None, text)
    if loader.alias("cluster", name) is None and loader.alias("device", name) is not None:
        cluster = machine(name, number, None, None)
        if (cluster.gpus or 1) > 1:
            arguments.notes.append(f"{text}: {cluster.title}")
    else:
        cluster = read_cluster(name)
        cluster = cluster if number is None else cluster.with_gpus(number * cluster.gpus_per_node)  # so many of its nodes
    if arguments.network is not None:
        cluster = on_network(cluster, arguments.network)
    return with_calibration(arguments, cluster)


def _network(cluster: Cluster) -> float:
    """What a group's nodes reach together beyond themselves [bytes/s]; without a network, by what their kind comes with."""
    nodes = max((cluster.gpus or 1) // cluster.gpus_per_node, 1)
    if len(cluster.levels) > 1:
        return float(cluster.levels[-1].bandwidth) * cluster.gpus_per_node * nodes
    made = machine(cluster.device.name, 2 * cluster.gpus_per_node, 2, None)
    return float(made.levels[-1].bandwidth) * cluster.gpus_per_node * nodes


def _exchange(found: UnlikeGroups) -> float:
    return found.inside_time + found.between_time


def _page(found: UnlikeGroups, model: Transformer, arguments: argparse.Namespace) -> list[TerminalTable | str]:
    rows = []
    for group in found.groups:
        made = group.estimate
        rows.append([
            f"{counted(group.cluster.gpus or 1, 'GPU')} of {group.cluster.name}", f"{group.global_batch:,}", label(made.plan),
            format_seconds(made.step_time), gib(made.memory.total),
        ])  # fmt: skip
    left = ", ".join(f"{cluster.gpus} of {cluster.name}" for cluster in found.left_out)
    many = f"{len(found.groups)} of {counted(len(found.groups) + len(found.left_out), 'group')}"
    return [
        f"{model.name} on {many} of unlike GPUs, {arguments.framework}: "
        f"{arguments.global_batch:,} sequences of {arguments.seq_len:,} tokens a step\n"
        f"A step: {format_seconds(found.step_time)}, of which {format_seconds(_exchange(found))} to sum gradients over groups; "
        f"{found.tokens_per_second:,.0f} tokens/s"
        + (f"\nLeft out, as the step would be longer with it or nothing fits on it: {left}" if left else ""),
        table(["group", "sequences", "plan", "step", "GiB"], rows, words={0, 2}),
    ]

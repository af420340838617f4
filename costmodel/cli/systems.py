"""`costmodel compare --systems`: the classic systems of training side by side."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from costmodel.catalogue import loader
from costmodel.catalogue.machines import machine, on_network
from costmodel.cli.arguments import (
    Parser,
    add_output,
    add_size,
    gpus_of,
    length,
    many,
    number,
    read_cluster,
    spelled,
    whole,
)
from costmodel.cli.calibrated import add_calibration, with_calibration
from costmodel.cli.defaults import BATCH, LENGTH, as_note, fill_work
from costmodel.cli.output import TerminalTable, respond, share, table
from costmodel.description.cluster import Cluster
from costmodel.description.transformer import Transformer
from costmodel.text.units import counted, format_bytes, format_seconds

if TYPE_CHECKING:
    from costmodel.description.layers import LayerChain
    from costmodel.training.systems_compared import Comparison

WORKLOAD, CLUSTER, NODES = "resnet-50", "dgx-1v", 2
"""What is taken where it isn't said."""
MOST_IN_A_NODE = 8


def systems_parser() -> Parser:
    """The parser of ``compare --systems``."""
    usage = (
        "costmodel compare --systems [WORKLOAD] [--cluster C | --device D] [--nodes N | --gpus N] [--system NAME,...] "
        "[--global-batch N --seq-len N] [options]"
    )
    comparing = Parser(
        prog="costmodel compare --systems", usage=usage, description="Systems of training side by side.",
        examples=("costmodel compare --systems resnet-50 --cluster dgx-1v --nodes 8",
                  "costmodel compare --systems vgg-16 --cluster dgx-1v --nodes 4 --system byteps,parameter-server",
                  "costmodel compare --systems llama3-8b --cluster dgx-h100 --nodes 2 --global-batch 64 --seq-len 4096"),
    )  # fmt: skip
    comparing.add_argument(
        "workload", nargs="?", metavar="WORKLOAD", help=f"a model, or a network of `costmodel networks` (default: {WORKLOAD})"
    )
    where = comparing.add_mutually_exclusive_group()
    where.add_argument("--cluster", metavar="C", help=f"name in the catalogue, or a TOML file (default: {CLUSTER})")
    where.add_argument("--device", metavar="D", help="GPUs, in nodes as they come in")
    comparing.add_argument(
        "--system", type=many(str.strip), metavar="NAME,...",
        help="of all systems these, beside an all-reduce: dedloc, distbelief, byteps, pipedream, parameter-server, ...",
    )  # fmt: skip
    add_size(comparing)
    comparing.add_argument("--network", metavar="RATE", help="of a node's NICs together, such as 10Gbit/s")
    add_calibration(comparing)
    comparing.add_argument(*spelled("global_batch"), type=whole, metavar="N", help="sequences per step, of a model")
    comparing.add_argument("--seq-len", type=length, metavar="N", help="tokens of a sequence, of a model")
    comparing.add_argument("--framework", default="megatron-core", metavar="F", help="software of a model")
    comparing.add_argument(*spelled("micro_batch"), type=whole, metavar="N", help="sequences per micro-batch, of a model")
    comparing.add_argument("--minibatch", type=whole, default=64, metavar="N", help="samples of a GPU, of a network")
    comparing.add_argument("--servers", type=whole, metavar="N", help="machines without GPUs (default: one a node)")
    comparing.add_argument(
        "--servers-of", default="parameter-server", metavar="S",
        help="whose parameter servers: tensorflow-parameter-server, mxnet-parameter-server, or ideal (default: both measured)",
    )  # fmt: skip
    comparing.add_argument("--all-reduce-of", metavar="S", help="between nodes: horovod-2019 (default: what links reach)")
    comparing.add_argument("--delay", type=whole, default=4, metavar="N", help="steps ahead with bounded delay (default: 4)")
    comparing.add_argument("--local-steps", type=whole, default=16, metavar="N", help="of local SGD (default: 16)")
    comparing.add_argument("--straggler-spread", type=number, default=0.0, metavar="X", help="exponential tail of GPUs' times")
    comparing.add_argument("--price", type=number, metavar="X", help="of a GPU for an hour; none is built in")
    comparing.add_argument("--server-price", type=number, default=0.0, metavar="X", help="of a server for an hour")
    add_output(comparing)
    comparing.set_defaults(run=_compare)
    return comparing


def _compare(arguments: argparse.Namespace) -> int:
    from costmodel.studies.parameter_servers.servers import Stragglers
    from costmodel.training.systems_compared import compare_systems

    _fill(arguments)
    cluster = with_calibration(arguments, _machines(arguments))
    gpus = gpus_of(arguments, cluster)
    cluster = cluster if gpus is None else cluster.with_gpus(gpus)
    workload = _workload(arguments, cluster)
    if isinstance(workload, Transformer):
        arguments.notes += as_note(fill_work(arguments, workload, global_batch=BATCH, seq_len=LENGTH))
    spread = arguments.straggler_spread
    asked: dict[str, object] = {
        "servers": arguments.servers, "servers_of": arguments.servers_of, "all_reduce_of": arguments.all_reduce_of,
        "delay": arguments.delay, "local_steps": arguments.local_steps,
        "gpu_hour": arguments.price, "server_hour": arguments.server_price, "systems": arguments.system,
        "stragglers": Stragglers(distribution="exponential", spread=spread) if spread else None,
    }  # fmt: skip
    of_model = {name: getattr(arguments, name) for name in ("global_batch", "seq_len", "micro_batch")}
    asked |= {name: value for name, value in of_model.items() if value is not None}
    compared: Callable[..., Comparison] = compare_systems
    found = compared(workload, cluster, framework=arguments.framework, **asked)
    return respond(arguments, lambda: {
        "workload": found.workload, "cluster": cluster.name, "systems": found.to_rows(), "refused": found.refused,
    }, lambda: _compared(found))  # fmt: skip


def _fill(arguments: argparse.Namespace) -> None:
    """What is trained on what where neither is said: as the systems were first measured, a network on machines of V100."""
    taken = []
    if arguments.workload is None:
        arguments.workload = WORKLOAD
        taken.append(WORKLOAD)
    if arguments.cluster is None and arguments.device is None:
        arguments.cluster = CLUSTER
        taken.append(f"--cluster {CLUSTER}")
        if arguments.gpus is None and arguments.nodes is None:
            arguments.nodes = NODES
            taken.append(f"--nodes {NODES}")
    if taken:
        arguments.notes.append(f"taken, as it wasn't said: {' '.join(taken)}")


def _machines(arguments: argparse.Namespace) -> Cluster:
    """The cluster, or a device in nodes as it comes in."""
    if arguments.device is not None:
        return machine(arguments.device, arguments.gpus or NODES * MOST_IN_A_NODE, network=arguments.network)
    cluster = read_cluster(arguments.cluster)
    return cluster if arguments.network is None else on_network(cluster, arguments.network)


def _workload(arguments: argparse.Namespace, cluster: Cluster) -> Transformer | LayerChain:
    """A network by its name, else a model."""
    from costmodel.description.networks import load_network, network_called

    name: str = arguments.workload
    if network_called(name):
        dtype = "fp32" if "fp32" in cluster.device.dense_peak else "fp16"
        return load_network(name).chain(cluster.device, minibatch=arguments.minibatch, dtype=dtype)
    return loader.load_model(name)


def _compared(found: Comparison) -> list[TerminalTable | str]:
    """Systems side by side, as a table and lines."""
    columns = ["system", "with", f"{found.unit}/s", "step", "efficiency", "memory", "fits", "sent a GPU", "updates behind"]
    priced = any(one.samples_per_price is not None for one in found.systems)
    rows = [
        [
            one.name, one.setting, f"{one.throughput:,.4g}", format_seconds(one.step_time), share(one.efficiency, 1.0),
            format_bytes(one.memory), "yes" if one.fits else "no", format_bytes(one.sent_bytes),
            f"{one.staleness.mean:.3g}", *([f"{one.samples_per_price or 0.0:,.0f}"] if priced else []),
        ]
        for one in found.systems
    ]  # fmt: skip
    refused = [f"Not compared: {name}, because {why}" for name, why in found.refused.items()]
    return [
        f"{found.workload} on {counted(found.cluster.gpus or 1, 'GPU')} of {found.cluster.name}: systems that fit, the fastest "
        "first, then the others",
        table([*columns, *([f"{found.unit} per price"] if priced else [])], rows, words=2),
        "\n".join(refused),
    ]

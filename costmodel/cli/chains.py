"""`costmodel checkpoint`, `partition`, `networks` and `network`: chains of layers, kept, run again or split."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from costmodel.arithmetic.named_tuples import Row
from costmodel.catalogue import loader
from costmodel.cli.arguments import Commands, Misused, add_output, many, nbytes, rate, seconds, whole
from costmodel.cli.output import respond, share, table
from costmodel.text.checks import positive_int
from costmodel.text.errors import InvalidValue
from costmodel.text.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from costmodel.description.networks import Network


def add(commands: Commands) -> None:
    """Add the commands."""
    usage = "costmodel checkpoint --layers N [--budget SIZE] [options]"
    keeping = commands.add_parser(
        "checkpoint", usage=usage, help="which activations of a chain to keep",
        examples=("costmodel checkpoint --layers 100 --forward 1e-3 --bytes 64MiB --budget 1GiB",),
    )  # fmt: skip
    keeping.add_argument("--layers", type=whole, required=True, metavar="N", help="equal layers of the chain")
    keeping.add_argument("--forward", type=seconds, default=1.0, metavar="S", help="seconds of a layer's forward pass")
    keeping.add_argument("--backward", type=seconds, metavar="S", help="of its backward pass (default: twice as many)")
    keeping.add_argument("--bytes", type=nbytes, default=1.0, metavar="SIZE", help="of a layer's output, such as 64MiB")
    keeping.add_argument("--saved-bytes", type=nbytes, metavar="SIZE", help="that its backward pass needs, output included")
    keeping.add_argument("--input-bytes", type=nbytes, default=0.0, metavar="SIZE", help="of the chain's input, held throughout")
    keeping.add_argument("--budget", type=nbytes, metavar="SIZE", help="most that may be held at once (default: no limit)")
    keeping.add_argument(
        "--method", default="optimal", metavar="M",
        help="optimal, sqrt, recursive, revolve, selective or checkmate (default: optimal)",
    )  # fmt: skip
    keeping.add_argument("--count", type=whole, metavar="N", help="segments, snapshots, ... of the method; chosen if not given")
    add_output(keeping)
    keeping.set_defaults(run=_checkpoint)

    usage = "costmodel partition NAME --machines A[,B] --bandwidths X[,Y] [--device D] [options]"
    splitting = commands.add_parser(
        "partition", usage=usage, help="PipeDream's stages and replicas",
        examples=("costmodel partition vgg-16 --device v100-sxm-16gb --machines 4,4 --bandwidths 10e9,1.25e9",),
    )  # fmt: skip
    splitting.add_argument("name", metavar="NAME", help="of a network, or the file of a PipeDream profile")
    splitting.add_argument("--machines", type=many(whole), required=True, metavar="N", help="on each level, innermost first")
    splitting.add_argument("--bandwidths", type=many(rate), required=True, metavar="X",
                           help="of each level [bytes/s], or such as 100Gbit/s")  # fmt: skip
    splitting.add_argument("--device", metavar="D", help="that runs the network: name in the catalogue, or a TOML file")
    splitting.add_argument("--minibatch", type=whole, metavar="N", help="samples (default: 64, or as the profile says)")
    splitting.add_argument("--dtype", default="fp32", metavar="T", help="fp32, tf32, fp16 or bf16 (default: fp32)")
    splitting.add_argument("--memory-limit", type=nbytes, metavar="SIZE", help="of one machine (default: not looked at)")
    splitting.add_argument("--straight", action="store_true", help="no stage is replicated")
    splitting.add_argument(
        "--replicas", type=many(whole), metavar="N", help="of each stage, such as 2,1,1, to price that configuration"
    )
    splitting.add_argument(
        "--recurrence", default="placed", metavar="R", help="placed, sosp19, arxiv2018 or reference (default: placed)"
    )
    add_output(splitting)
    splitting.set_defaults(run=_partition)

    listing = commands.add_parser(
        "networks", help="networks of the literature that aren't transformers", examples=("costmodel networks --json",)
    )
    add_output(listing, "a table")
    listing.set_defaults(run=_networks)

    usage = "costmodel network NAME --device D [--minibatch N] [options]"
    showing = commands.add_parser(
        "network", usage=usage, help="time and memory of one, layer by layer",
        examples=("costmodel network resnet-50 --device v100-sxm-16gb --minibatch 256",),
    )  # fmt: skip
    showing.add_argument("name", metavar="NAME", help="of a network")
    showing.add_argument("--device", required=True, metavar="D", help="name in the catalogue, or a TOML file")
    showing.add_argument("--minibatch", type=whole, default=64, metavar="N", help="samples (default: 64)")
    showing.add_argument("--dtype", default="fp32", metavar="T", help="fp32, tf32, fp16 or bf16 (default: fp32)")
    showing.add_argument("--top", type=whole, default=10, metavar="K", help="layers to show, the slowest ones (default: 10)")
    add_output(showing)
    showing.set_defaults(run=_network)


def _checkpoint(arguments: argparse.Namespace) -> int:
    from costmodel.studies.rematerialisation.study import checkpoint, uniform_chain

    chain = uniform_chain(
        arguments.layers, arguments.forward, arguments.bytes, backward=arguments.backward, saved_bytes=arguments.saved_bytes
    )
    found = checkpoint(
        chain, budget=arguments.budget, method=arguments.method, count=arguments.count, input_bytes=arguments.input_bytes
    )
    again = sum(found.recomputed.values())
    rows = [
        ("peak of activations and gradients", format_bytes(found.peak_bytes)),
        ("held when the backward pass begins", format_bytes(found.held_bytes)),
        ("layers kept", f"{len(found.kept)} of {arguments.layers}"),
        ("layers run again", f"{again}, {format_seconds(found.extra_forward_time)}"),
        ("forward time", f"{found.recompute_factor:.3f} passes"),
        ("time of forward and backward passes", format_seconds(found.time)),
    ]
    if found.count is not None:
        rows.insert(0, ("count", str(found.count)))
    limit = "no budget" if found.budget is None else f"a budget of {format_bytes(found.budget)}"
    best = ", which no schedule of its kind beats" if found.exact else ""
    return respond(arguments, lambda: {
        "method": found.method, "budget_bytes": found.budget, "count": found.count, "exact": found.exact,
        "peak_bytes": found.peak_bytes, "held_bytes": found.held_bytes, "time_s": found.time,
        "extra_forward_s": found.extra_forward_time, "recompute_factor": found.recompute_factor, "kept": list(found.kept),
        "recorded": list(found.recorded), "recomputed": found.recomputed,
        "actions": [[action.kind, chain.layers[action.layer].name] for action in found.actions],
    }, lambda: [
        f"{arguments.layers} equal layers, {found.method} within {limit}{best}", table(["", "value"], rows),
    ])  # fmt: skip


def _partition(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from costmodel.description.layers import LayerChain
    from costmodel.studies.partitioning import partition

    if loader.is_file(arguments.name):
        if arguments.device:
            raise InvalidValue("device", arguments.device, "none with a profile, which was measured on one")
        chain = LayerChain.from_pipedream(Path(arguments.name), minibatch=arguments.minibatch)
    else:
        network = _named_network(arguments.name)
        if not arguments.device:
            raise InvalidValue("device", arguments.device, "the device that runs the network, such as v100-sxm-16gb")
        minibatch = 64 if arguments.minibatch is None else arguments.minibatch
        chain = network.chain(loader.load_device(arguments.device), arguments.dtype, minibatch)
    found = partition(
        chain, machines=arguments.machines, bandwidths=arguments.bandwidths, memory_limit=arguments.memory_limit,
        straight=arguments.straight, recurrence=arguments.recurrence, replicas=arguments.replicas,
    )  # fmt: skip
    stages: list[Row] = [
        {
            "first": stage.layers[0], "last": stage.layers[-1], "layers": len(stage.layers), "replicas": stage.replicas,
            "compute_s": stage.compute_time, "parameter_bytes": stage.parameter_bytes, "weight_versions": versions,
            "memory_bytes": held,
        }
        for stage, versions, held in zip(found.pipeline, found.weight_versions, found.memory, strict=True)
    ]
    rows = [
        (
            f"{stage['first']} to {stage['last']}", str(stage["layers"]), str(stage["replicas"]),
            format_seconds(stage["compute_s"]), format_bytes(stage["parameter_bytes"]),
            str(stage["weight_versions"]), format_bytes(stage["memory_bytes"]),
        )
        for stage in stages
    ]  # fmt: skip
    doubt = "" if found.proven else "; a cut that was left out could be faster"
    return respond(arguments, lambda: {
        "configuration": found.configuration, "time_s": found.time, "data_parallel_time_s": found.data_parallel_time,
        "single_time_s": found.single_time, "speedup": found.speedup, "speedup_over_one": found.speedup_over_one,
        "sent_bytes": found.sent_bytes, "data_parallel_sent_bytes": found.data_parallel_sent_bytes,
        "communication_reduction": found.communication_reduction, "in_flight": found.in_flight,
        "proven": found.proven, "stages": stages,
    }, lambda: [
        f"{chain.name} on {found.workers} machines: {found.configuration}, {format_seconds(found.time)} a minibatch, "
        f"{found.speedup:.2f} times data parallelism{doubt}",
        table(["layers", "number", "replicas", "compute", "weights", "versions", "memory"], rows),
        f"Minibatches to admit per replica of the first stage: {found.in_flight}\n"
        f"{found.speedup_over_one:.2f} times one machine; "
        f"sends {format_bytes(found.sent_bytes)} a minibatch, data parallelism {format_bytes(found.data_parallel_sent_bytes)}",
    ])  # fmt: skip


def _networks(arguments: argparse.Namespace) -> int:
    from costmodel.description.networks import NETWORKS, load_network

    networks = [load_network(name) for name in NETWORKS]
    rows = [
        (
            one.name, "; ".join("x".join(map(str, shape)) for shape in one.inputs.values()), format_count(one.parameters),
            f"{one.forward_flop() / 1e9:,.4g}", str(len(one.nodes)),
        )
        for one in networks
    ]  # fmt: skip
    return respond(arguments, lambda: [
        {
            "name": one.name, "parameters": one.parameters, "forward_flop": one.forward_flop(), "layers": len(one.nodes),
            "inputs": {name: list(shape) for name, shape in one.inputs.items()},
        }
        for one in networks
    ], lambda: [table(["name", "a sample", "parameters", "forward GFLOP", "layers"], rows, words=2)])  # fmt: skip


def _named_network(name: str) -> Network:
    """A network by its name; one that is a transformer's is refused with what it is asked by."""
    from costmodel.description.networks import load_network, network_called

    if network_called(name) is None and (name in loader.names("model") or loader.alias("model", name)):
        raise Misused(f"{name[:80]} is a transformer: `costmodel estimate {name[:80]} ...` and the other commands price it")
    return load_network(name)


def _network(arguments: argparse.Namespace) -> int:
    top = positive_int("top", arguments.top, 100_000)
    network, device = _named_network(arguments.name), loader.load_device(arguments.device)
    chain = network.chain(device, arguments.dtype, arguments.minibatch)
    costs = network.costs(arguments.minibatch, arguments.dtype)
    forward, backward = (sum(getattr(layer, way) for layer in chain.layers) for way in ("forward", "backward"))
    memory = network.training_memory(arguments.minibatch, arguments.dtype)
    layers: list[Row] = [
        {
            "name": cost.name, "kind": cost.kind, "output": list(cost.output), "parameters": cost.parameters,
            "forward_flop": cost.forward_flop, "output_bytes": layer.output_bytes, "forward_s": layer.forward,
            "backward_s": layer.backward,
        }
        for cost, layer in zip(costs, chain.layers, strict=True)
    ]  # fmt: skip
    whole_time = forward + backward
    slowest = sorted(layers, key=lambda layer: -layer["forward_s"] - layer["backward_s"])[:top]
    rows = [
        (
            layer["name"], "x".join(map(str, layer["output"])), format_count(layer["parameters"]),
            format_bytes(layer["output_bytes"]), format_seconds(layer["forward_s"]), format_seconds(layer["backward_s"]),
            share(layer["forward_s"] + layer["backward_s"], whole_time),
        )
        for layer in slowest
    ]  # fmt: skip
    return respond(arguments, lambda: {
        "name": network.name, "device": device.name, "dtype": arguments.dtype, "minibatch": arguments.minibatch,
        "parameters": network.parameters, "forward_s": forward, "backward_s": backward,
        "samples_per_s": arguments.minibatch / (forward + backward), "training_memory_bytes": memory, "layers": layers,
    }, lambda: [
        f"{network.name} on {device.name}, {arguments.dtype}, minibatch of {arguments.minibatch}: "
        f"{format_count(network.parameters)} parameters in {len(layers)} layers",
        table(["slowest layers", "output", "parameters", "output bytes", "forward", "backward", "of the passes"], rows, words=2),
        f"Passes: {format_seconds(forward)} forward, {format_seconds(backward)} backward, "
        f"{arguments.minibatch / whole_time:,.4g} samples/s\nMemory to train: {format_bytes(memory)}, workspaces left out",
    ])  # fmt: skip

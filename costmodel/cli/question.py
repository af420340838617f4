"""What a question is about: a model, the hardware in one line, a plan, some of their numbers changed."""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from costmodel.catalogue import loader
from costmodel.catalogue.asking import accumulated, as_it_trains
from costmodel.catalogue.clusters import sized
from costmodel.catalogue.machines import in_a_node, largest_cluster, machine
from costmodel.catalogue.software import framework_on
from costmodel.cli.arguments import (
    Misused,
    Parser,
    chosen,
    length,
    many,
    meaning,
    number,
    plan_fields,
    read_cluster,
    reader,
    spelled,
    unasked,
    whole,
)
from costmodel.cli.calibrated import add_calibration, with_calibration
from costmodel.cli.defaults import UNSAID
from costmodel.cli.unlike import is_joined
from costmodel.description.cluster import Cluster
from costmodel.description.judgement import CHOSEN, JUDGED
from costmodel.description.plan import Plan
from costmodel.description.transformer import Transformer
from costmodel.description.usual_work import (
    OF_ADAPTERS,
    adapts,
    implied_choices,
    usual_batch,
    usual_choices,
    usual_length,
    usual_software,
)
from costmodel.evaluation.estimation import Estimate

if TYPE_CHECKING:
    from costmodel.catalogue.changes import Description
    from costmodel.interop.launchers import Priced


USAGE = (
    "costmodel %s MODEL (--cluster C [--nodes N | --gpus N] | --device D [--gpus N] [--nodes N]) [--network RATE] "
    "--global-batch N --seq-len N [options]"
)


PLAYED = USAGE.replace("MODEL", "(MODEL | FILE ...)").replace("--global-batch N --seq-len N", "[--global-batch N --seq-len N]")
"""The same of a command that takes a launch file too."""
LAUNCHING = (".sh", ".bash", ".slurm", ".sbatch", ".args", ".yaml", ".yml")
"""How names of launch files end that no model's file has."""

def add_question(
    parser: Parser, several: bool, fixed: bool = True, launches: bool = False, without: Sequence[str] = ()
) -> None:  # fmt: skip
    """Arguments of a question about plans.

    Parameters
    ----------
    parser : of a command
    several : values of a dimension, or one
    fixed : with a batch and a length
    launches : a launch file may stand where the model does, and gives what isn't given
    without : fields of a plan that the command says in its own words
    """
    model = parser.add_argument_group("model")
    if launches:
        from costmodel.cli.launched import add_launched

        add_launched(parser, model)
    else:
        model.add_argument("model", metavar="MODEL", help="name in the catalogue, a TOML file, or a Hugging Face config.json")
    parser.set_defaults(work_assumed=fixed)  # a usual batch and length are taken where they aren't said
    _add_work(model)
    if fixed and not several:
        model.add_argument("--gradient-accumulation", type=whole, metavar="N",
                           help="micro-batches of each replica in a step, in place of --global-batch")  # fmt: skip
    add_hardware(parser)
    plan = plan_group(parser, several)
    software = parser.add_argument_group("framework")
    usual = f"{UNSAID}; of adapters hf-trainer"
    software.add_argument("--framework", default=UNSAID, metavar="F",
                          help=f"software: name in the catalogue, or a TOML file (default: {usual})")  # fmt: skip
    add_plan(parser, several, plan, software, without)


def _add_work(group: argparse._ArgumentGroup) -> None:
    group.add_argument(*spelled("global_batch"), type=whole, metavar="N", help="sequences per step")
    group.add_argument("--seq-len", type=length, metavar="N", help="tokens of a sequence")


def plan_group(parser: Parser, several: bool) -> argparse._ArgumentGroup:
    """The group of a plan's choices, of which there are values to try, or one."""
    words = "what to try of each dimension, one value or several (1,2,4)" if several else "one value of each dimension"
    return parser.add_argument_group("plan", words)


def add_plan(
    parser: Parser, several: bool, plan: argparse._ArgumentGroup, software: argparse._ArgumentGroup, without: Sequence[str] = ()
) -> None:  # fmt: skip
    """Arguments of a plan's choices.

    Parameters
    ----------
    parser : of a command
    several : values of a dimension, or one
    plan, software : groups of its choices, of those that frameworks make for it
    without : fields of a plan that the command says in its own words
    """
    for name, row in plan_fields().items():
        if name in without:
            parser.set_defaults(**{name: None})
            continue
        read, shown = reader(row)
        tail = f"tries: {row.tried}" if several and row.tried else f"default: {unasked(row)}"
        group, help_ = software if row.software else plan, f"{meaning(row)} ({tail})"
        if several:
            added = group.add_argument(*spelled(name), type=many(read), action="extend", metavar=shown, help=help_)
        else:
            added = group.add_argument(*spelled(name), type=read, metavar=shown, help=help_)
        if row.brief:
            parser.briefly(added, f"{row.brief} ({tail})")
        if row.rare:
            parser.rarely(added)
    needed, usual = (CHOSEN, f"{CHOSEN:g}") if several else (JUDGED, f"{JUDGED:g}; {CHOSEN:g} of a plan that it chooses")
    parser.rarely(plan.add_argument(
        "--fit-probability", type=number, default=needed, metavar="P",
        help=f"probability to fit in memory from which a plan is judged to (default: {usual})",
    ))  # fmt: skip


def add_logged(parser: Parser, software: argparse._ArgumentGroup, words: str) -> None:
    """Arguments that tell the plan of a run that has a log.

    Parameters
    ----------
    parser : of a command
    software : group of what frameworks make of a plan
    words : of which runs
    """
    work = parser.add_argument_group("what ran", words)
    _add_work(work)
    add_plan(parser, several=False, plan=plan_group(parser, several=False), software=software)


def add_hardware(parser: Parser, required: bool = True) -> None:
    """Arguments that say on what: a cluster, or so many GPUs of a kind.

    Parameters
    ----------
    parser : of a command
    required : nothing else says it
    """
    hardware = parser.add_argument_group("cluster")
    where = hardware.add_mutually_exclusive_group(required=required)
    where.add_argument(
        "--cluster", metavar="C",
        help="name in the catalogue, a cloud's instance, a file, several to compare (a,b), or joined by search (8xh100+8xa100)",
    )  # fmt: skip
    where.add_argument("--device", metavar="D", help="a GPU by name or TOML file: --gpus of them, in nodes as it comes in")
    hardware.add_argument("--nodes", type=whole, metavar="N",
                          help="how many nodes (default: one of a cluster; of a device as many as its nodes hold)")  # fmt: skip
    hardware.add_argument("--gpus", type=whole, metavar="N",
                          help="how many GPUs, of all nodes together (default: the nodes'; of a device alone one)")  # fmt: skip
    hardware.add_argument("--network", metavar="RATE",
                          help="of a node's NICs together, such as 400Gbit/s, or of a GPU, as '50GB/s per GPU'")  # fmt: skip
    add_calibration(hardware)
    hardware.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest="changes",
        help="scale or replace a number of the question, each with a --set of its own: network.bandwidth=2x, "
        "device.memory=141GB, model.layers=40, framework.compute_gemm_efficiency_scale=0.9. A bandwidth of a network is of a "
        "GPU unless it says 'per node'; GB are 10^9 bytes, GiB 2^30",
    )  # fmt: skip
    parser.rarely(hardware.add_argument(
        "--verbose", action="store_true", help="also name the keys of a config.json that were passed over"
    ))  # fmt: skip
    parser.set_defaults(notes=[])


def cluster_names(arguments: argparse.Namespace) -> list[str]:
    """The clusters that were named, in their order; none where a device was."""
    return [] if arguments.cluster is None else comma_names("cluster", arguments.cluster)


def comma_names(field: str, given: str) -> list[str]:
    """Names with commas between them, each once."""
    names = [name.strip() for name in given.split(",")]
    if not all(names):
        raise Misused(f"{'MODEL' if field == 'model' else f'--{field}'} {given[:80]!r} has an empty name between its commas")
    return list(dict.fromkeys(names))


def of_one_cluster(arguments: argparse.Namespace, name: str) -> argparse.Namespace:
    """The same question about one of the clusters that were named."""
    return argparse.Namespace(**{**vars(arguments), "cluster": name, "one_of_several": True})


def one_count(arguments: argparse.Namespace) -> None:
    """Refuse a number of GPUs beside one of a cluster's nodes."""
    if arguments.gpus is not None and arguments.nodes is not None:
        raise Misused("argument --gpus: not allowed with argument --nodes, which says how many of a cluster's nodes")


def read_hardware(arguments: argparse.Namespace, grow: bool = False) -> Cluster:
    """The cluster that was asked about, at the size asked for, and the framework changed where it was asked for.

    Parameters
    ----------
    arguments : of the command line
    grow : where only a device was named, as many of it as one line describes rather than one
    """
    if arguments.device is not None:
        cluster = _of_device(arguments, grow)
    else:
        names = cluster_names(arguments)
        if len(names) > 1:
            raise Misused("one cluster at a time here; `search`, `estimate` and `train` compare several")
        one_count(arguments)
        cluster = sized(read_cluster(names[0]), arguments.gpus, arguments.nodes, arguments.network)
    _take_software_of(arguments, cluster)
    cluster = with_calibration(arguments, cluster)
    if not arguments.changes:
        return cluster
    changes = _changes(arguments, cluster)
    if changes["framework"]:
        named = arguments.framework
        arguments.framework = _changed(arguments, named, framework_on(cluster, named), changes["framework"])
    return _changed(arguments, arguments.device or arguments.cluster, cluster, changes["cluster"])


def _changed(arguments: argparse.Namespace, named: object, thing: Description, changes: dict[str, str]) -> Description:
    """A description with what was asked changed; of one that a file gives, notes say what was before, as no catalogue can."""
    from costmodel.catalogue.changes import differences, replace

    made = replace(thing, changes)
    if changes and isinstance(named, str) and loader.is_file(named):
        told = ", ".join(map(str, differences(thing, made)))
        arguments.notes.append(f"{named} changed by --set: {told or 'in nothing'}")
    return made


def _of_device(arguments: argparse.Namespace, grow: bool) -> Cluster:
    """So many GPUs of the kind that was named; what was taken for their nodes goes to the notes."""
    told = arguments.nodes is not None and arguments.gpus is not None
    if grow and arguments.gpus is None and arguments.nodes is None:
        cluster = largest_cluster(arguments.device, arguments.network)
    else:
        cluster = machine(arguments.device, arguments.gpus, arguments.nodes, arguments.network)
    if (cluster.gpus or 1) > 1 and not told:
        arguments.notes.append(f"--device {arguments.device}: {cluster.title}")
    return cluster


def _changes(arguments: argparse.Namespace, cluster: Cluster | None) -> dict[str, dict[str, str]]:
    """What is to be changed, by what it belongs to."""
    found: dict[str, dict[str, str]] = {"model": {}, "cluster": {}, "framework": {}}
    for text in arguments.changes:
        path, equals, value = text.partition("=")
        path, value = path.strip(), value.strip()
        if not equals or not path or not value:
            raise Misused(f"--set {text[:80]!r}: expected NAME=VALUE, such as rail.bandwidth=2x")
        head, _, rest = path.partition(".")
        owner = head if head in found and rest else "cluster"
        place = rest if head in found and rest else path
        if owner == "cluster" and cluster is not None:
            _known_head(path, place, cluster)
        if place in found[owner]:
            raise Misused(f"--set {path[:80]} is given twice")
        found[owner][place] = value
    return found


def _known_head(path: str, place: str, cluster: Cluster) -> None:
    from costmodel.catalogue.changes import level_called

    if place == "host_memory":  # of a node, the one number of a cluster itself
        return
    head, dot, _ = place.partition(".")
    levels = [level.name for level in cluster.levels]
    if not dot or (head != "device" and level_called(cluster, head) is None):
        raise Misused(
            f"--set {path[:80]!r}: expected model., device., framework., host_memory or a level of {cluster.name[:80]} "
            f"({', '.join(f'{level}.' for level in levels)}) with a field, such as {levels[-1]}.bandwidth=2x"
        )


def read_asked_model(arguments: argparse.Namespace) -> Transformer:
    """The model that was asked about, some of its numbers changed; what was left out of its file goes to the notes."""
    launched = _launched(arguments)
    model = read_with_notes(arguments.model, arguments) if launched is None else launched.model
    if launched is None:
        take_adapter(arguments)
    if launched is None and getattr(arguments, "work_assumed", False):
        _take_work(arguments, model)
    if launched is None:
        take_software(arguments)
    if not arguments.changes:
        return model
    return _changed(arguments, arguments.model, model, _changes(arguments, None)["model"])


def _accumulated(arguments: argparse.Namespace) -> int:
    """Sequences of a step that accumulates so many micro-batches on every replica."""
    if arguments.global_batch is not None:
        both = "--global-batch and --gradient-accumulation both say the sequences of a step"
        raise Misused(f"{both}: give one of them, or the accumulation and --micro-batch")
    return accumulated(arguments.gradient_accumulation, chosen(arguments), world(arguments))


def _take_work(arguments: argparse.Namespace, model: Transformer) -> None:
    """Take a usual batch, which splits over all GPUs, and a usual length where they aren't said; a note says so."""
    from costmodel.cli import defaults

    if getattr(arguments, "gradient_accumulation", None) is not None:
        arguments.global_batch = _accumulated(arguments)
    any_share = arguments.global_batch is not None or is_joined(arguments)  # groups of unlike GPUs share it unevenly
    adapted = adapts(arguments.adapter)
    batch = usual_batch(1 if any_share else world(arguments), vars(arguments))
    taken = defaults.fill_work(arguments, model, global_batch=batch, seq_len=usual_length(model, adapted))
    arguments.notes += defaults.as_note(taken)


def take_adapter(arguments: argparse.Namespace) -> None:
    """Take the adapter that its rank, its targets or its dropout imply where none is said; a note says so."""
    for name, value in implied_choices(vars(arguments)).items():
        several = any(isinstance(getattr(arguments, field), list) for field in OF_ADAPTERS)
        setattr(arguments, name, [value] if several else value)
        arguments.notes.append(f"taken, as it wasn't said: --{name} {value}, which has a rank, targets and dropout")


def take_software(arguments: argparse.Namespace) -> None:
    """Take software that is made for adapters where they are asked for and no software is said, as it trains; a note says so."""
    told = "framework" in vars(arguments).get("given", ()) or getattr(arguments, "calibration", None) is not None
    taken = usual_choices(vars(arguments))
    if told or not taken or getattr(arguments, "framework", None) != UNSAID:
        return
    for name, value in taken.items():
        setattr(arguments, name, value)
    said = " ".join(f"--{name} {value}" for name, value in taken.items())
    arguments.notes.append(f"taken, as it wasn't said: {said}, as adapters are trained")


def _take_software_of(arguments: argparse.Namespace, cluster: Cluster) -> None:
    """Take what is usual on a device where no software is said and the usual one doesn't train there; a note says so."""
    usual = usual_software(cluster.device.architecture)
    if getattr(arguments, "framework", None) == UNSAID != usual and "framework" not in vars(arguments).get("given", ()):
        arguments.framework = usual
        why = f"as {UNSAID} doesn't train on {cluster.device.name}"
        arguments.notes.append(f"taken, as it wasn't said: --framework {usual}, {why}")


def world(arguments: argparse.Namespace) -> int:
    """How many GPUs are asked about, of the first cluster where several are named."""
    if arguments.gpus is not None:
        return max(1, int(arguments.gpus))
    names = cluster_names(arguments)
    if not names and arguments.nodes is None:
        return 1
    per_node = read_cluster(names[0]).gpus_per_node if names else in_a_node(arguments.device)
    return max(1, arguments.nodes or 1) * per_node


def _launched(arguments: argparse.Namespace) -> Priced | None:
    """What launch files amount to that stand where a model does; None where a model does."""
    if not getattr(arguments, "launches", False):
        return None
    from costmodel.cli.launched import files_of, read_launched

    if not files_of(arguments):
        return None
    as_it_comes = argparse.Namespace(**{**vars(arguments), "notes": [], "changes": []})
    return read_launched(arguments, read_hardware(as_it_comes))


def read_with_notes(name: str, arguments: argparse.Namespace) -> Transformer:
    """A model by name or from a file; what was left out of a ``config.json`` goes to ``arguments.notes``."""
    from costmodel.cli.launched import is_line

    if is_line(name):
        raise Misused(f"{name[:80]!r} is a command line: `costmodel explain` prices it")
    if name.lower().endswith(LAUNCHING) and not os.path.exists(name):
        raise Misused(f"{name[:80]}: No such file or directory")
    if name.lower().endswith(LAUNCHING):
        raise Misused(
            f"{name[:80]!r} is a launch file: `costmodel explain` prices it, `simulate`, `timeline` and `ledger` play it out"
        )
    file = loader.model_file(name)
    if file is None or file.endswith(".toml"):
        return loader.load_model(name)
    from costmodel.description.huggingface import read

    found = read(file)
    arguments.notes += found.notes
    if found.passed_over and arguments.verbose:
        arguments.notes.append(f"keys that leave the shape alone were passed over: {', '.join(found.passed_over)}")
    return found.model


def read_plan(arguments: argparse.Namespace) -> tuple[Cluster, Plan]:
    """The plan that was asked about on its cluster, the data-parallel degree from the GPUs where it isn't given."""
    launched = _launched(arguments)
    if launched is not None:
        arguments = argparse.Namespace(**{**vars(arguments), "gpus": launched.plan.gpus, "nodes": None})
    cluster = read_hardware(arguments)
    if launched is not None:
        return cluster, launched.plan
    missing = [name for name in ("global_batch", "seq_len") if getattr(arguments, name) is None]
    if missing:
        options = ", ".join("/".join(spelled(name)) for name in missing)
        raise Misused(f"the following arguments are required: {options}")
    fields = chosen(arguments)
    taken = as_it_trains(cluster, arguments.framework, fields) if arguments.framework else {}  # a log may say it
    if taken:
        said = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in taken.items())
        arguments.notes.append(f"taken, as it wasn't said: {said}, as {arguments.framework} trains")
    plan = Plan(global_batch=arguments.global_batch, seq_len=arguments.seq_len, **fields, **taken)
    gpus = cluster.gpus or 1
    if arguments.gpus is None and arguments.nodes is None:  # as many as the plan's degrees ask for, one node at least
        gpus = max(gpus, plan.gpus) if plan.data_parallel is None else plan.gpus
    cluster = cluster.with_gpus(gpus)
    return cluster, plan.on(cluster)


def judged_by(answer: Estimate, arguments: argparse.Namespace) -> Estimate:
    """The estimate behind a step that was played out, judged to fit with the probability that was asked for."""
    return dataclasses.replace(answer, required_probability=arguments.fit_probability)

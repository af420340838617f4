"""What commands take: how an argument is read, and what it asks about."""

from __future__ import annotations

import argparse
import functools
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from costmodel.errors import CostModelError, IllegalPlan, InvalidValue

if TYPE_CHECKING:
    from costmodel.description.cluster import Cluster
    from costmodel.description.device import Device
    from costmodel.description.plan import Plan
    from costmodel.description.transformer import Transformer

Commands = Any
"""What `argparse` gives to add commands to."""


class Misused(CostModelError):
    """Arguments that can't be understood."""


class Parser(argparse.ArgumentParser):
    """Leaves the printing of errors to `main`."""

    def error(self, message: str) -> NoReturn:
        raise Misused(message)


def whole(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not a whole number") from None


def number(text: str) -> float:
    """A number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not a number") from None


def nbytes(text: str) -> float:
    """Bytes of a size such as 4096, 25MB or 1GiB."""
    from costmodel import units

    match = re.fullmatch(r"([0-9.]+(?:[eE][-+]?[0-9]+)?)\s*(?:B|(([KMGT])i?B))?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not a size, such as 25MB or 1GiB")
    return number(match[1]) * float(getattr(units, match[2]) if match[2] else 1.0)


def yes(text: str) -> bool:
    """Yes or no."""
    answers = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}
    if text.lower() not in answers:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is neither yes nor no")
    return answers[text.lower()]


def _word(text: str) -> str:
    return text


def _word_or_whole(text: str) -> str | int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else text


def _order(text: str) -> tuple[str, ...]:
    return tuple(text.split("-"))


_READERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "int": (whole, "N"),
    "bool": (yes, "yes|no"),
    "float": (number, "X"),
    "str": (_word, "NAME"),
    "str | int": (_word_or_whole, "NAME|N"),
    "Sequence[str]": (_order, "A-B-C-D"),
}
"""By the annotation of a field of `Plan`: how an argument is read, and how it is shown in the help."""


@functools.cache
def plan_fields() -> dict[str, tuple[Callable[[str], Any], str, str]]:
    """Every dimension of a plan: reader, placeholder and help, from the fields and the docstring of `Plan`."""
    import dataclasses

    from costmodel.description import plan
    from costmodel.description.plan import Plan

    words: dict[str, str] = {}
    names: list[str] = []
    for line in (Plan.__doc__ or "").partition("----------")[2].partition("Raises")[0].splitlines():
        left, colon, right = line.strip().partition(" : ")
        names = left.split(", ") if colon else names
        words |= {name: f"{words.get(name, '')} {right or left}".strip() for name in names}
    words = {name: re.sub(r"`([A-Z]+)`", lambda match: ", ".join(getattr(plan, match[1])), text) for name, text in words.items()}
    fields = {}
    for field in dataclasses.fields(Plan):
        if field.name not in ("global_batch", "seq_len"):
            reader, shown = _READERS[str(field.type).removesuffix(" | None")]
            fields[field.name] = (reader, shown, words.get(field.name, "").replace("`", "").replace("%", "%%"))
    return fields


USAGE = "costmodel %s MODEL --cluster C [--nodes N | --gpus N] --global-batch N --seq-len N [options]"


def many(reader: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """Reads values with commas between them."""

    def read(text: str) -> list[Any]:
        return [reader(part) for part in text.split(",")]

    return read


def add_question(parser: argparse.ArgumentParser, several: bool, fixed: bool = True) -> None:
    """Arguments of a question about plans: `several` values of a dimension, or one; `fixed` with a sequence length."""
    parser.add_argument("model", metavar="MODEL", help="name in the catalogue, a TOML file, or a Hugging Face config.json")
    parser.add_argument("--cluster", required=True, metavar="C", help="name in the catalogue, or a TOML file")
    add_size(parser)
    parser.add_argument("--global-batch", type=whole, required=True, metavar="N", help="sequences per step")
    parser.add_argument("--seq-len", type=whole, required=fixed, metavar="N", help="tokens of a sequence")
    parser.add_argument("--framework", default="megatron-core", metavar="F", help="software (default: megatron-core)")
    parser.add_argument("--fit-probability", type=float, default=0.9, metavar="P",
                        help="probability to fit in memory from which a plan is judged to (default: 0.9)")  # fmt: skip
    title = "what to try, one value or several (1,2,4)" if several else "the plan"
    group = parser.add_argument_group(title)
    for name, (reader, shown, text) in plan_fields().items():
        option = "--" + name.replace("_", "-")
        if several:
            group.add_argument(option, type=many(reader), action="extend", metavar=shown, help=text)
        else:
            group.add_argument(option, type=reader, metavar=shown, help=text)


def add_size(parser: argparse.ArgumentParser) -> None:
    """How many GPUs."""
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--nodes", type=whole, metavar="N", help="how many nodes of it")
    size.add_argument("--gpus", type=whole, metavar="N", help="how many GPUs of it")


def chosen(arguments: argparse.Namespace) -> dict[str, Any]:
    """Dimensions of a plan that were given."""
    return {name: getattr(arguments, name) for name in plan_fields() if getattr(arguments, name) is not None}


# What is asked about


def is_file(name: str) -> bool:
    """Whether a name is that of a file rather than of an entry of the catalogue."""
    return name.endswith((".toml", ".json")) or os.path.sep in name or os.path.exists(name)


def read_model(name: str) -> Transformer:
    """A model of the catalogue, or of a file."""
    from costmodel.catalogue import loader

    if not is_file(name) or name in loader.names("model"):
        return loader.load_model(name)
    if name.endswith(".toml"):
        return loader.read_model_file(name)
    from costmodel.description.transformer import Transformer

    return Transformer.from_huggingface(name)


def read_cluster(name: str) -> Cluster:
    """A cluster of the catalogue, or of a file."""
    from costmodel.catalogue import loader

    if not is_file(name) or name in loader.names("cluster"):
        return loader.load_cluster(name)
    return loader.read_cluster_file(name)


def read_device(name: str) -> Device:
    """A device of the catalogue, or of a file."""
    from costmodel.catalogue import loader

    if not is_file(name) or name in loader.names("device"):
        return loader.load_device(name)
    return loader.read_device_file(name)


def gpus_of(arguments: argparse.Namespace, cluster: Cluster) -> int | None:
    """GPUs that were asked for, or None."""
    nodes: int | None = arguments.nodes
    gpus: int | None = arguments.gpus
    if nodes is None:
        return gpus
    if nodes < 1:
        raise InvalidValue("nodes", nodes, "a whole number from 1")
    return nodes * cluster.gpus_per_node


def read_plan(arguments: argparse.Namespace) -> tuple[Cluster, Plan]:
    """The plan that was asked about on its cluster, the data-parallel degree from the GPUs where it isn't given."""
    import dataclasses

    from costmodel.description.plan import Plan

    cluster = read_cluster(arguments.cluster)
    given = chosen(arguments)
    seq_len = 1 if arguments.seq_len is None else arguments.seq_len  # not given only where it is looked for
    plan = Plan(global_batch=arguments.global_batch, seq_len=seq_len, **given)
    gpus = gpus_of(arguments, cluster)
    if gpus is None:
        gpus = plan.gpus if "data_parallel" in given else cluster.gpus
    cluster = cluster.with_gpus(gpus or 1)
    if "data_parallel" not in given:
        if (gpus or 1) % plan.gpus:
            raise IllegalPlan(
                "world_size",
                f"tensor_parallel={plan.tensor_parallel} x context_parallel={plan.context_parallel} x pipeline_parallel="
                f"{plan.pipeline_parallel} = {plan.gpus} does not divide the cluster's {gpus} GPUs",
            )
        plan = dataclasses.replace(plan, data_parallel=(gpus or 1) // plan.gpus)
    return cluster, plan

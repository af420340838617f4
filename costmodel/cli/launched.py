"""Launch files where a question names a model: the file's model, plan and framework, with the options that were given on top."""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from costmodel.catalogue import loader
from costmodel.cli.arguments import Misused, Parser, chosen
from costmodel.cli.completed import completed
from costmodel.cli.launching import LAUNCHERS, NAMED, OTHERS
from costmodel.description.cluster import Cluster
from costmodel.description.transformer import Transformer

if TYPE_CHECKING:
    from pathlib import Path

    from costmodel.interop.launchers import Launch, Priced

SHOWN = 8
"""Flags of a kind that a note names."""


class NameOrFiles(argparse.Action):
    """Stores the name of a model, or a launch file with those that belong to it."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object, option_string: str | None = None
    ) -> None:
        assert isinstance(values, list)
        namespace.model, *namespace.beside = values


def add_launched(parser: Parser, group: argparse._ArgumentGroup) -> None:
    """Arguments of a command that takes a launch file in a model's place."""
    group.add_argument(
        "model", nargs="+", action=NameOrFiles, metavar="MODEL|FILE",
        help="name in the catalogue, a TOML file, a Hugging Face config.json, or a launch file with those that belong to it "
        "(train.sh ds_config.json): its plan, with the options given here in place of its own",
    )  # fmt: skip
    group.add_argument("--model", dest="instead", metavar="MODEL", help="of a launch file: in place of the model that it names")
    group.add_argument("--dialect", metavar="D", help="of a launch file: how to read it; guessed from its keys if not given")
    parser.set_defaults(beside=[], launches=True, priced=None)


def is_line(word: str) -> bool:
    """Whether a word is the command line that starts a run, rather than the name of a file or a model.

    Parameters
    ----------
    word : of a command line
    """
    if " " not in word:
        return False
    from costmodel.interop.launchers.sources import is_text

    return (is_text(word) or word.split()[0] in (*LAUNCHERS, *OTHERS)) and not os.path.exists(word)


def launch_files(names: Sequence[str]) -> list[str | Path]:
    """Launch files by their names, and lines that start a run, each with the files that it names; one that says no more by these.

    Parameters
    ----------
    names : as they were typed
    """
    from pathlib import Path

    from costmodel.interop.launchers import is_launch_file
    from costmodel.interop.launchers.sources import is_text
    from costmodel.interop.launchers.splitting import words

    found: list[str | Path] = []
    for name in names:
        said = [word.rpartition("=")[2] for word in (words(name, comments=False) or ()) if is_line(name)]
        files = [Path(word) for word in said if word.lower().endswith(NAMED) and is_launch_file(Path(word), known=True)]
        if not is_line(name):
            found.append(Path(name))
        elif is_text(name) or not files:
            found.append(name)
        found += [file for file in files if file not in found and str(file) not in names]
    return found


def files_of(arguments: argparse.Namespace) -> list[str | Path]:
    """The launch files that stand where a model does; none where a model does."""
    if not getattr(arguments, "launches", False):
        return []
    told = arguments.beside or arguments.dialect is not None or is_line(arguments.model)
    if told or os.path.isfile(arguments.model):
        from costmodel.interop.launchers import is_launch_file

        files = launch_files([arguments.model, *arguments.beside])
        if told or (not isinstance(files[0], str) and is_launch_file(files[0])):
            return files
    if arguments.instead is not None:
        raise Misused(f"--model goes with a launch file; {arguments.model[:80]!r} is the model")
    return []


def read_launched(arguments: argparse.Namespace, cluster: Cluster | None = None) -> Priced | None:
    """What the launch files amount to, read once; None where a model was named.

    Parameters
    ----------
    arguments : of the command line; its framework becomes the files' unless one was given, and what a reader of the answer
        should know goes to its notes
    cluster : whose nodes give the number of GPUs where ``--nodes`` does, and whose levels ``--set`` may change
    """
    files = files_of(arguments)
    if not files:
        return None
    if arguments.priced is None:
        arguments.priced = _read(arguments, files, cluster)
    found: Priced = arguments.priced
    return found


def _read(arguments: argparse.Namespace, files: Sequence[str | Path], cluster: Cluster | None) -> Priced:
    from costmodel.interop.launchers import read_launch, resolve
    from costmodel.interop.launchers.launch import PLAN_FIELDS

    given = {**chosen(arguments), "global_batch": arguments.global_batch, "seq_len": arguments.seq_len}
    given = {name: value for name, value in given.items() if value is not None}
    settings = {name: str(value).lower() for name, value in given.items() if name in PLAN_FIELDS}
    settings |= _own_settings(arguments, cluster)
    offered = None if cluster is None else cluster.gpus

    def read(gpus: int | None, more: Mapping[str, str]) -> Launch:
        return read_launch(files, gpus=gpus or arguments.gpus, settings={**settings, **more}, dialect=arguments.dialect)

    launch = completed(read, offered if arguments.nodes is not None else None, offered, arguments.notes)
    model = None
    if arguments.instead is not None:
        model = loader.load_model(arguments.instead)
    priced = resolve(launch, model=model)
    others = {name: value for name, value in given.items() if name not in PLAN_FIELDS}
    if "framework" not in getattr(arguments, "given", ()):
        arguments.framework = priced.software
    arguments.notes += [*_told(launch), *launch.notes, *priced.notes]
    return priced._replace(plan=dataclasses.replace(priced.plan, **others))


def _own_settings(arguments: argparse.Namespace, cluster: Cluster | None) -> dict[str, str]:
    """Of ``--set`` what names a variable or a flag of the files; what changes a number of the question stays where it is."""
    from costmodel.catalogue.changes import level_called

    fields = {field.name for field in dataclasses.fields(Transformer)}
    settings, kept = {}, []
    for text in arguments.changes:
        path, _, value = text.partition("=")
        head, dot, rest = path.strip().partition(".")
        of_question = dot and (
            head in ("device", "framework") or (head == "model" and rest in fields)
            or (cluster is not None and level_called(cluster, head) is not None)
        )  # fmt: skip
        if of_question:
            kept.append(text)
        else:
            settings[path.strip()] = value.strip()
    arguments.changes = kept
    return settings


def _told(launch: Launch) -> list[str]:
    """What was read, and what of it isn't in the answer."""
    lines = [f"{', '.join(launch.files)}: read as {launch.framework}; `costmodel read` lists what is stated and what is assumed"]
    for title, flags in (("not understood", launch.unknown), ("changes time or memory, not modelled", launch.unpriced)):
        if flags:
            more = f" and {len(flags) - SHOWN} more" if len(flags) > SHOWN else ""
            lines.append(f"{title}: {', '.join(flags[:SHOWN])}{more}")
    return lines

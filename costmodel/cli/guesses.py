"""Command lines as people type them first, in the commands' own words: ``8xh100``, ``llama 3 8b``, ``--num-gpus 8``, ``--lora``.

Only what can mean one thing is rewritten, and a note says what was taken where a word was exchanged; the rest is refused by the
parser, with the nearest word that it knows.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from costmodel.cli.arguments import Misused, Parser, whole
from costmodel.text.suggestions import MEANT

LEADING = {"collective": 2, "write": 2}
"""Words that stand in front of the hardware and belong to the command; one, the model, where it isn't said."""
MANY_MODELS = ("sweep", "read", "explain", "calibrate", "trace", "new", "show", "formula", "models", "devices", "clusters")
"""Commands whose words are left as they are: names of files, several models, or no hardware."""
VALUED = (
    "--seq-len", "--gpus", "--nodes", "--device", "--micro-batch", "--global-batch", "--tensor-parallel", "--pipeline-parallel",
    "--context-parallel", "--expert-parallel", "--data-parallel", "--virtual-stages", "--zero-stage", "--framework", "--network",
    "--tokens-per-second", "--step-time", "--log", "--days", "--adapter", "--cluster",
)  # fmt: skip
"""Options whose other spellings (`MEANT`) take the same value."""
FLAGS = {
    "--lora": ("--adapter", "lora"), "--qlora": ("--adapter", "qlora"), "--bf16": ("--dtype", "bf16"),
    "--zero1": ("--zero-stage", "1"), "--zero2": ("--zero-stage", "2"), "--zero3": ("--zero-stage", "3"),
    "--fsdp": ("--framework", "fsdp2"), "--fp8": ("--dtype", "fp8"), "--fp16": ("--dtype", "fp16"),
    "--gradient-checkpointing": ("--recompute", "full"),
}  # fmt: skip
"""Switches of other programs, and the option that says the same."""
NAMED = {"--framework": "framework", "--adapter": "adapter", "--optimizer": "optimizer", "--recompute": "recompute"}
"""Options whose values people name otherwise (`MEANT`) and mean just that."""
NO_WORDS = ("--days",)
"""Words of `MEANT` that mean nearly the same as what they stand for, but not quite: they are offered, never taken."""
BETWEEN = ("on", "vs", "vs.", "versus", "against", "with", "and", "or")
AMOUNTS = {"trillion": "T", "billion": "B", "million": "M", "tn": "T", "bn": "B"}
BYTES = ("B", "KB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB")
TIMES = "\\s*[x*:\N{MULTIPLICATION SIGN}]\\s*"


class Guessed(NamedTuple):
    """A command line in the command's own words.

    Parameters
    ----------
    argv : its words
    notes : what was taken for what
    """

    argv: list[str]
    notes: list[str]


def guessed(parser: Parser, argv: Sequence[str]) -> Guessed:
    """A command line, what can mean one thing alone in the command's own words.

    Parameters
    ----------
    parser : of the command
    argv : the command, and what was typed behind it
    """
    command, words = argv[0], list(argv[1:])
    notes: list[str] = []
    known = _options(parser, words)
    words = _joined(_spelled(words, known, notes))
    if command in MANY_MODELS or "--" in words or parser.variants.keys() & set(words):
        return Guessed([command, *words], notes)
    options, plain = _apart(words, known)
    apart = any({"--nodes", "--gpus"} <= set(known) and {known["--nodes"], known["--gpus"]} <= set(group._group_actions)
                for group in parser._mutually_exclusive_groups)  # fmt: skip
    if apart:  # so many GPUs say it all
        known = {**known, "--nodes": known["--gpus"]}
    options = _sized(options, known)
    if {"--device", "--cluster"} & set(known) and not any(_is_file(word) for word in plain):
        plain, hardware = _hardware(plain, LEADING.get(command, 1), known, options)
        options += hardware
    return Guessed([command, *plain, *options], notes)


def _options(parser: Parser, words: Sequence[str]) -> dict[str, argparse.Action]:
    reading = next((one for given, one in parser.variants.items() if given in words), parser)
    return dict(reading._option_string_actions)


def _is_file(word: str) -> bool:
    return os.path.sep not in word and os.path.exists(word)


def _spelled(words: Sequence[str], known: dict[str, argparse.Action], notes: list[str]) -> list[str]:
    """Options by their own names, and what people call some of their values."""
    found: list[str] = []
    for word in words:
        name, equals, value = word.partition("=")
        if not word.startswith("--") or name in known or word == "--":
            found.append(_meant(found[-1] if found else "", word, notes))
            continue
        flag = FLAGS.get(name)
        meant = MEANT["option"].get(name)
        if flag is not None and not equals and flag[0] in known:
            found += flag
            notes.append(f"{name}: taken as {' '.join(flag)}")
        elif meant in VALUED and name not in NO_WORDS and meant in known and flag is None:
            found.append(f"{meant}{equals}{value}")
            notes.append(f"{name}: taken as {meant}")
        else:
            found.append(word)
    return found


def _meant(option: str, word: str, notes: list[str]) -> str:
    """What a framework, an adapter and such are called here, of those that people name otherwise; any other word as it is."""
    told, equals, value = word.partition("=")
    option, value = (told, value) if equals and told in NAMED else (option, word)
    if option not in NAMED:
        return word
    meanings = MEANT[NAMED[option]]
    names = [meanings.get(one.strip().lower().replace("_", "-"), one) for one in value.split(",")]
    for one, name in zip(value.split(","), names, strict=True):
        if one != name and name != "none":  # what is off is off in any word
            notes.append(f"{option} {one[:80]}: taken as {name}")
    return f"{option}={','.join(names)}" if value != word else ",".join(names)


def _joined(words: Sequence[str]) -> list[str]:
    """An amount with its unit, where a space stands between: ``100 MB``, ``1 trillion``."""
    found: list[str] = []
    for word in words:
        unit = AMOUNTS.get(word.lower(), word if word in BYTES else "")
        if unit and found and re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,12})?", found[-1]):
            found[-1] += unit
        else:
            found.append(word)
    return found


def _apart(words: Sequence[str], known: dict[str, argparse.Action]) -> tuple[list[str], list[str]]:
    """Options with their values, and the words that stand by themselves."""
    options: list[str] = []
    plain: list[str] = []
    left = iter(words)
    for word in left:
        if not word.startswith("-") or word == "-":
            plain.append(word)
            continue
        options.append(word)
        action = known.get(word)
        if action is not None and action.nargs != 0:
            options += itertools.islice(left, 1)
    return options, plain


def _sized(options: Sequence[str], known: dict[str, argparse.Action]) -> list[str]:
    """``--device 8xh100``, and ``--cluster`` of the same, as so many GPUs of a device."""
    given = [word.partition("=")[0] for word in options]
    if "--gpus" in given or "--nodes" in given or not {"--gpus", "--device"} <= set(known):
        return list(options)
    found: list[str] = []
    left = iter(options)
    for word in left:
        name, equals, value = word.partition("=")
        if name not in ("--device", "--cluster"):
            found.append(word)
            continue
        value = value if equals else next(left, "")
        machines = [_machine(one) for one in value.split(",")]
        said = _as_options([one for one in machines if one is not None], known)
        found += said if said is not None and None not in machines else [word] if equals else [name, value]
    return found


class _Machine(NamedTuple):
    """What a word says of hardware: a kind of it by name, and how much."""

    option: str
    name: str
    gpus: int | None = None
    nodes: int | None = None


def _machine(word: str, bare: bool = False) -> _Machine | None:
    """The hardware that a word says, such as ``8xh100``, ``h100x8``, ``2x8xh100``; ``h100`` by itself only where it may."""
    text = word.strip()
    for pattern, order in ((rf"([0-9]{{1,5}}){TIMES}([0-9]{{1,4}}){TIMES}(.+)", (1, 2, 3)),
                           (rf"([0-9]{{1,7}}){TIMES}(.+)", (0, 1, 2)), (rf"(.+?){TIMES}([0-9]{{1,7}})", (0, 2, 1))):  # fmt: skip
        match = re.fullmatch(pattern, text, re.IGNORECASE)
        if match is None:
            continue
        nodes = int(match[order[0]]) if order[0] else None
        found = _called(match[order[2]])
        if found is not None:
            count = int(match[order[1]])
            return found._replace(gpus=count * (nodes or 1), nodes=nodes)
        if bare and order == (0, 1, 2):
            from costmodel.catalogue.loader import unknown

            raise unknown("device", match[2])
    return _called(text) if bare else None


def _called(name: str) -> _Machine | None:
    from costmodel.catalogue import loader

    for kind, option in (("device", "--device"), ("cluster", "--cluster")):
        if name in loader.names(kind) or loader.alias(kind, name) is not None:  # type: ignore[arg-type]
            return _Machine(option, name)
    return None


def _as_options(machines: Sequence[_Machine], known: dict[str, argparse.Action]) -> list[str] | None:
    """Hardware as options; None where they can't say it."""
    if not machines or len({one.option for one in machines}) > 1:
        return None
    first = machines[0]
    several = known["--gpus"].type is not whole if "--gpus" in known else False
    if several and len({one.name for one in machines}) == 1 and all(one.gpus for one in machines):
        return [first.option, first.name, "--gpus", ",".join(str(one.gpus) for one in machines)]
    if len({one[2:] for one in machines}) > 1:
        return None
    if first.option not in known or (first.gpus is not None and "--gpus" not in known):
        return None
    said = [first.option, ",".join(one.name for one in machines)]
    if first.gpus is not None:
        of_nodes = first.option == "--cluster"
        said += ["--nodes" if of_nodes else "--gpus", str(first.gpus)]
    if first.nodes is not None and first.option == "--device" and known.get("--nodes") is not known.get("--gpus"):
        said += ["--nodes", str(first.nodes)]
    return said


def _hardware(
    plain: list[str], leading: int, known: dict[str, argparse.Action], options: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The words without those that say hardware, and the options that say it; the model's own words as one."""
    if len(plain) <= leading:
        return plain, []
    words = [*plain[:leading], *(word for word in plain[leading:] if word.lower() not in BETWEEN)]
    words = _with_counts(words, leading)
    given = {word.partition("=")[0] for word in options}
    told = not given & {"--device", "--cluster"}
    machines: list[_Machine] = []
    rest: list[str] = []
    for place, word in enumerate(words):
        found = _machine(word, bare=True) if place >= leading and told else None
        if found is None:
            rest.append(word)
        else:
            machines.append(found)
    said = _as_options(machines, known) if machines else []
    if said is None:
        return plain, []
    if twice := given & {word for word in said if word in known}:
        raise Misused(f"{' '.join(said)} as the words say, and {twice.pop()} beside it: give one of them")
    return _named(rest, leading, _model_known), said


def _with_counts(words: list[str], leading: int) -> list[str]:
    """``8 h100``, ``2x8 h100`` and ``rtx 4090`` as one word."""
    found: list[str] = []
    for place, word in enumerate(words):
        before = found[-1] if place > leading and found else ""
        if before and _called(before) is None and _called(f"{before} {word}") is not None:
            found[-1] = f"{before} {word}"
        elif re.fullmatch(rf"[0-9]{{1,7}}({TIMES}[0-9]{{1,4}})?", before) and _called(word) is not None:
            found[-1] = f"{before}x{word}"
        else:
            found.append(word)
    return found


def _model_known(name: str) -> bool:
    from costmodel.catalogue import loader

    return name in loader.names("model") or loader.alias("model", name) is not None


def _named(words: list[str], leading: int, is_model: Callable[[str], bool]) -> list[str]:
    """A model's name as one word, where spaces stand in it: ``llama 3 8b``."""
    if leading != 1 or len(words) < 2:
        return words
    joined = "-".join(words)
    return [joined] if is_model(joined) else words


__all__ = ["Guessed", "guessed"]

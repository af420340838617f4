"""Words of a command line that stand by themselves and say what an option says: ``fsdp``, ``tp2``, ``bs 4``, ``30 days``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from costmodel.cli.amounts import MONEY, NUMBER, SPANS
from costmodel.cli.arguments import plan_fields
from costmodel.text.other_names import FLAGS, VALUED
from costmodel.text.suggestions import MEANT

BEHIND = {
    "gpus": "--gpus", "gpu": "--gpus", "cards": "--gpus", "card": "--gpus", "nodes": "--nodes", "node": "--nodes",
    "days": "--days", "day": "--days", "tokens": "--tokens", "mfu": "--mfu", "tok/s": "--tokens-per-second",
    "tokens/s": "--tokens-per-second", "s/it": "--step-time", "s/iter": "--step-time", "s/step": "--step-time",
}  # fmt: skip
"""Words that stand behind the number that they name."""
NAMED = (
    "--device", "--cluster", "--framework", "--log", "--adapter", "--dtype", "--optimizer", "--recompute", "--find", "--network",
    "--synchronisation", "--schedule", "--algorithm", "--lora-targets", "--attention",
)  # fmt: skip
"""Those of them whose value is no number."""
MOST = ("longest", "largest", "biggest", "max", "maximum")
"""Words in front of what a capacity is of."""
PER_GPU = ("tokens/s/gpu", "tok/s/gpu", "tps/gpu", "tokens/gpu/s", "tgs")
"""Words behind the tokens of one GPU in a second."""
TRILLIONS = re.compile(r"[0-9.]{1,9}t", re.IGNORECASE)
"""So many tokens: of nothing else are there trillions."""
SAID = re.compile(r"[0-9][0-9.,]*(?:e[0-9]+)?(?:[kKmMbBtT]|%|d)?")
"""A number as it is typed: ``4``, ``8k``, ``1.5T``, ``38%``."""


class SaidSettings(NamedTuple):
    """What words by themselves set."""

    options: list[str]  # with their values
    rest: list[str]  # the other words
    notes: list[str]  # what was taken for what


def option_of(name: str, known: dict[str, argparse.Action]) -> str | None:
    """The option that a name stands for, which takes the same value; None where there is none.

    Parameters
    ----------
    name : with its dashes
    known : options of the command
    """
    meant = MEANT["option"].get(name)
    if name in known:
        return known[name].option_strings[0]
    return meant if meant in VALUED and meant in known else None


def _counting(word: str, known: dict[str, argparse.Action]) -> str | None:
    """The option that takes a number and that a bare word stands for."""
    option = option_of(f"--{word.replace('_', '-')}", known)
    return option if option in VALUED and option not in NAMED else None


def settings(words: Sequence[str], known: dict[str, argparse.Action], is_name: Callable[[str], bool]) -> SaidSettings:
    """The words that set something, as options, and the others.

    Parameters
    ----------
    words : that stand by themselves
    known : options of the command
    is_name : whether a word is what a question is about
    """
    found: dict[str, list[str]] = {}
    rest: list[str] = []
    notes: list[str] = []
    left = list(words)
    while left:
        said = None if is_name(left[0]) else _setting(left, known)
        if said is None:
            rest.append(left.pop(0))
            continue
        many, option, value = said
        found.setdefault(option, []).append(value)
        notes.append(f"{' '.join(left[:many])[:80]}: taken as {option} {value}")
        del left[:many]
    options = [word for option, values in found.items() for word in (option, ",".join(values))]
    return SaidSettings(options, rest, notes)


def _setting(left: Sequence[str], known: dict[str, argparse.Action]) -> tuple[int, str, str] | None:
    """How many of the next words set an option, which, and to what."""
    word, after = left[0].lower(), left[1] if len(left) > 1 else ""
    behind = BEHIND.get(after.lower(), "")
    if SAID.fullmatch(word) and behind in known:
        return 2, behind, left[0]
    if behind == "--step-time" and behind in known and re.fullmatch(r"[0-9.]{1,9}(ms|s|min)", word):
        return 2, behind, left[0]
    if after.lower() in PER_GPU and SAID.fullmatch(word) and "--tokens-per-second" in known:
        return 2, "--tokens-per-second", f"{left[0]}/gpu"
    if (days := SPANS.get(after.lower())) and "--days" in known and NUMBER.fullmatch(word):
        return 2, "--days", f"{days * float(word):g}"
    if "--tokens" in known and TRILLIONS.fullmatch(word):
        return 1, "--tokens", left[0]
    if "--price" in known and word[:1] in ("$", "\u20ac", "\u00a3") and (money := MONEY.fullmatch(word)):
        return 1, "--price", money[1]
    if equals := re.fullmatch(r"([a-z][a-z_-]*)=(.+)", word):
        option = option_of(f"--{equals[1].replace('_', '-')}", known)
        if option is not None:
            return 1, option, equals[2]
    glued = re.fullmatch(r"([a-z][a-z_-]*?)[_-]?([0-9]+)", word)
    if glued and f"--{word}" not in FLAGS and (option := _counting(glued[1], known)):
        return 1, option, glued[2]
    in_days = word == "in" and len(left) > 2 and left[2].lower() in (*BEHIND, *SPANS)  # whose number has its own word
    if SAID.fullmatch(after) and not in_days and (option := _counting(word, known)):
        return 2, option, after
    if "--find" in known and word in MOST and after:
        return 2, "--find", MEANT["find"].get(after.lower(), after.lower())
    if (flag := FLAGS.get(f"--{word}")) is not None and flag[0] in known and len(flag) == 2:
        return 1, flag[0], flag[1]
    if "--find" in known and (word in MEANT["find"] or word in (known["--find"].choices or ())):
        return 1, "--find", MEANT["find"].get(word, word)
    if (named := _named_choice(left, known)) is not None:
        return named
    framework = MEANT["framework"].get(word, word)
    if "--framework" in known:
        from costmodel.catalogue.software import is_framework

        return (1, "--framework", framework) if is_framework(framework) else None
    return None


def _named_choice(left: Sequence[str], known: dict[str, argparse.Action]) -> tuple[int, str, str] | None:
    """A choice behind the name of its field, ``recompute full``, or a schedule by itself, ``zb-h1``."""
    word, after = left[0].lower(), left[1].lower() if len(left) > 1 else ""
    row = plan_fields().get(word.replace("-", "_"))
    if row is not None and after in row.kind.choices and (option := f"--{word.replace('_', '-')}") in known:
        return 2, option, after
    return (1, "--schedule", word) if word in plan_fields()["schedule"].kind.choices and "--schedule" in known else None

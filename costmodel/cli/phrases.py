"""Words of a command line as people say them, before anybody asks what they mean: ``eight``, ``16k``, ``batch size``, ``vs``."""

from __future__ import annotations

import argparse
import itertools
import re
from collections.abc import Callable, Sequence

from costmodel.cli.arguments import plan_fields

NUMBERS = {
    "one": "1", "single": "1", "two": "2", "three": "3", "four": "4", "eight": "8", "sixteen": "16", "thirty-two": "32",
}  # fmt: skip
"""Numbers that are written out."""
PAIRS = {
    ("seq", "len"): "seq-len", ("seq", "length"): "seq-len", ("sequence", "length"): "seq-len", ("batch", "size"): "batch-size",
    ("context", "length"): "context", ("context", "window"): "context", ("micro", "batch"): "micro-batch",
    ("global", "batch"): "global-batch", ("fine", "tune"): "fine-tune", ("fine", "tuning"): "fine-tune",
    ("full", "fine-tune"): "full-finetune", ("full", "finetune"): "full-finetune", ("full", "recompute"): "full-recompute",
    ("full", "recomputation"): "full-recompute", ("no", "recompute"): "no-recompute", ("per", "step"): "s/step",
    ("per", "iteration"): "s/step", ("gradient", "checkpointing"): "gradient-checkpointing",
}  # fmt: skip
"""Two words that are one name."""
AGAINST = ("vs", "vs.", "versus", "against", "or")
"""Words between two values of an option."""
COUNTS = ("--gpus", "--nodes")
"""Options of hardware, of which a thousand is 1,024."""
UNITS = ("gpus", "gpu", "cards", "nodes", "x")
"""Words behind so many of some hardware."""
THOUSANDS = re.compile(r"([0-9]{1,4})[kK]")


def model_first(words: Sequence[str], known: dict[str, argparse.Action]) -> list[str]:
    """The words with the model in front, where ``--model`` names it.

    Parameters
    ----------
    words : of a command line
    known : options of the command
    """
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in ("--model", "--model-name") and name not in known:
            given = [value] if equals else list(words[place + 1 : place + 2])
            return [*given, *words[:place], *words[place + 1 + (not equals) :]]
    return list(words)


def plainly(words: Sequence[str]) -> list[str]:
    """Words that stand by themselves, numbers as figures and a name of two words as one.

    Parameters
    ----------
    words : of a command line, without its options
    """
    found: list[str] = []
    for word in (NUMBERS.get(word.lower(), word) for word in words):
        found.append(word)
        while len(found) > 1 and (one := PAIRS.get((found[-2].lower(), found[-1].lower()))) is not None:
            found[-2:] = [one]
    return found


def counted(words: Sequence[str], is_hardware: Callable[[str], bool], notes: list[str]) -> list[str]:
    """``16k h100`` and ``16k gpus``: by 1,024, as clusters are built.

    Parameters
    ----------
    words : that stand by themselves
    is_hardware : whether a word names some
    notes : what was taken for what, to which is added
    """
    return [
        thousands(word, notes) if after.lower() in UNITS or is_hardware(after) else word
        for word, after in itertools.pairwise([*words, ""])
    ]


def thousands(text: str, notes: list[str]) -> str:
    """A count such as ``16k``, or several with commas between, written out; any other text as it is.

    Parameters
    ----------
    text : of a count
    notes : what was taken for what, to which is added
    """
    parts = [str(int(match[1]) * 1024) if (match := THOUSANDS.fullmatch(part)) else part for part in text.split(",")]
    found = ",".join(parts)
    if found != text:
        notes.append(f"{text[:80]}: taken as {found}")
    return found


def whole_options(words: Sequence[str], known: dict[str, argparse.Action], notes: list[str]) -> list[str]:
    """Options with all of their values: ``none vs full`` as two, ``16k`` GPUs in figures, a switch by itself as yes.

    Parameters
    ----------
    words : of a command line
    known : options of the command
    notes : what was taken for what, to which is added
    """
    found: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        found.append(word)
        action = known.get(word)
        if action is None or action.nargs == 0:
            continue
        if _is_switch(action) and (not left or left[0].startswith("-")):
            found.append("yes")
        elif left and not left[0].startswith("-"):
            value = left.pop(0)
            while len(left) > 1 and left[0].lower() in AGAINST and not left[1].startswith("-"):
                value = f"{value},{left[1]}"
                del left[:2]
            found.append(thousands(value, notes) if action.option_strings[0] in COUNTS else value)
    return found


def _is_switch(action: argparse.Action) -> bool:
    from costmodel.description.fields import Flag

    row = plan_fields().get(action.dest)
    return row is not None and isinstance(row.kind, Flag)


__all__ = ["counted", "model_first", "plainly", "thousands", "whole_options"]

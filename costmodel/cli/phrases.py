"""Words of a command line as people say them, before anybody asks what they mean: ``eight``, ``16k``, ``batch size``, ``vs``."""

from __future__ import annotations

import argparse
import itertools
import re
from collections.abc import Callable, Sequence

from costmodel.catalogue.hardware_words import called_hardware, said_hardware
from costmodel.cli.arguments import Several, plan_fields
from costmodel.description.fields import Flag
from costmodel.text.suggestions import MEANT

NUMBERS = {"one": "1", "single": "1", "two": "2", "three": "3", "four": "4", "eight": "8", "sixteen": "16", "thirty-two": "32"}
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
STANDING = {
    "model": ("--model", "--model-name", "--models", "--model-name-or-path"), "workload": ("--model", "--workload"),
    "format": ("--format", "--dialect", "--to"), "size": ("--size", "--bytes", "--message-size", "-b"),
    "word": ("--search", "--filter", "--grep", "--name"),
}  # fmt: skip
"""What stands by itself on a command line, and options that others have for it."""
COUNTS = ("--gpus", "--nodes")
"""Options of hardware, of which a thousand is 1,024."""
UNITS = ("gpus", "gpu", "cards", "nodes", "x")
"""Words behind so many of some hardware."""
COUNTED = re.compile(r"[1-9][0-9]{0,6}x[A-Za-z]")
"""How so many of some hardware begin, of whatever name."""
THOUSANDS = re.compile(r"([0-9]{1,4})[kK]")


def standing(words: Sequence[str], parser: argparse.ArgumentParser) -> list[str]:
    """The words with what stands by itself here in its place, where an option names it, as ``--model`` and ``--size`` do."""
    found = list(words)
    places = {action.dest: place for place, action in enumerate(one for one in parser._actions if not one.option_strings)}
    for named, options in STANDING.items():
        for place, word in enumerate(found if named in places else ()):
            name, equals, value = word.partition("=")
            if name.replace("_", "-") in options and name not in parser._option_string_actions:
                given = [value] if equals else found[place + 1 : place + 2]
                rest = [*found[:place], *found[place + 1 + (not equals) :]]
                at = places[named] if not any(one.startswith("-") for one in rest[: places[named]]) else 0
                found = [*rest[:at], *given, *rest[at:]]
                break
    return found


def spans(text: str) -> list[int]:
    """Powers of two that a range such as ``8-64`` names, from its first number to its last; none where it is no range.

    Parameters
    ----------
    text : of an option

    Examples
    --------
    >>> spans("8-64"), spans("8")
    ([8, 16, 32, 64], [])
    """
    match = re.fullmatch(r"([1-9][0-9]{0,6})(?:-|\.\.)([1-9][0-9]{0,6})", text)
    first, last = (int(match[1]), int(match[2])) if match else (1, 0)
    return [first << power for power in range(24) if first << power <= last]


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
    """Options with all of their values: ``none vs full`` as two, ``16k`` GPUs in figures, a switch by itself as yes."""
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
            while left and _goes_on(action, value, left):
                value = f"{value},{left.pop(0)}"
            if action.option_strings[0] in COUNTS:
                value = thousands(value, notes)
                if isinstance(action.type, Several) and (sizes := spans(value)):
                    notes.append(f"{word} {value}: taken as {(value := ','.join(map(str, sizes)))}")
            found.append(value)
    return found


def _goes_on(action: argparse.Action, value: str, left: Sequence[str]) -> bool:
    """Whether the next word is a further value of an option: of the same kind, and nothing else there."""
    word, after = left[0], "".join(left[1:2])
    option = action.option_strings[0]
    if option in ("--device", "--devices", "--cluster") or (option == "--gpus" and COUNTED.match(word)):
        before = value.rpartition(",")[2]
        return all(COUNTED.match(one) or called_hardware(one) or said_hardware(one) for one in (before, word))
    if option == "--framework":
        from costmodel.catalogue.software import is_framework

        return is_framework(word) or MEANT["framework"].get(word.lower()) is not None
    if not isinstance(action.type, Several):
        return False
    row = plan_fields().get(action.dest)
    named = row is not None and word in map(str, row.kind.choices)
    hardware = after.lower() in UNITS or called_hardware(after) is not None or called_hardware(word) is not None
    return named or (_reads(action.type, word) and not _reads(action.type, "a word") and not hardware)


def _reads(reader: Several, word: str) -> bool:
    """Whether a word is a value as an option takes it."""
    try:
        reader(word)
    except argparse.ArgumentTypeError:
        return False
    return True


def _is_switch(action: argparse.Action) -> bool:
    row = plan_fields().get(action.dest)
    return row is not None and isinstance(row.kind, Flag)

"""Amounts as people type them: ``1 trillion``, ``30d``, ``$2/h``, ``1G``, a batch of ``4M`` tokens."""

from __future__ import annotations

import argparse
import itertools
import re
from collections.abc import Sequence
from fractions import Fraction

from costmodel.catalogue.hardware_words import called_hardware
from costmodel.cli.arguments import Misused
from costmodel.cli.defaults import LENGTH
from costmodel.text.other_names import GENERATIONS, NODES_AND_THEIRS, OF_A_NODE, PROMPTS
from costmodel.text.suggestions import MEANT

WORDS = {"trillion": "T", "billion": "B", "million": "M", "tn": "T", "bn": "B"}
BYTES = ("B", "KB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB")
NUMBER = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")
SPANS = {"hour": 1 / 24, "hours": 1 / 24, "week": 7.0, "weeks": 7.0, "month": 30.0, "months": 30.0, "year": 365.0, "years": 365.0}
"""Days of other spans."""
BRIEF = {"h": 1 / 24, "hr": 1 / 24, "d": 1.0, "day": 1.0, "days": 1.0, "w": 7.0, "mo": 30.0, "y": 365.0, **SPANS}
"""The same where they stand right behind their number."""
LASTING = ("--days", "--in", "--within", "--time", "--duration", "--deadline")
"""Options that people give such a span."""
MONEY = re.compile(r"[$\u20ac\u00a3]?([0-9.]+)(?:usd|eur|[$\u20ac\u00a3])?(?:(?:/|per)(?:gpu)?-?(?:h|hr|hour))?", re.IGNORECASE)
DAYS = re.compile(r"([0-9.]+)(?:d|days?)", re.IGNORECASE)
TOKENS = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(?:([kmb])(?:[ -]?tok(?:en)?s?)?|[ -]?tok(?:en)?s?)", re.IGNORECASE)
"""A batch that is said in tokens; of thousands only with that word."""
POWERS = {"": 0, "k": 1, "m": 2, "b": 3}
"""Of 1,024 or 1,000, by the letter behind a number."""
NODES = ("--nodes", *(one for one, other in MEANT["option"].items() if other == "--nodes"))
PRODUCTS = (
    ("--gpus", NODES_AND_THEIRS[1:], NODES_AND_THEIRS[:1], False),
    ("--gpus", (*OF_A_NODE, "--devices"), NODES, True),
    ("--samples", GENERATIONS, PROMPTS, False),
)  # fmt: skip
"""What options make: how many each of some has, how many of these there are, and whether the first will do alone."""


def joined(words: Sequence[str]) -> list[str]:
    """An amount with its unit, where a space stands between: ``100 MB``, ``1 trillion``, ``4M tokens`` behind an option."""
    found: list[str] = []
    for word in words:
        size = word.upper() if word.upper() in BYTES else word
        unit = WORDS.get(word.lower(), size if size in (*BYTES, "k", "K") else "")
        if unit and found and re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,12})?", found[-1]):
            found[-1] += unit
        elif word.lower() == "tokens" and len(found) > 1 and found[-2] in ("--global-batch", "--gbs", "--tokens", "--seq-len"):
            found[-1] += "tokens" if found[-2] in ("--global-batch", "--gbs") else ""
        else:
            found.append(word)
    return found


def in_days(words: Sequence[str], known: dict[str, argparse.Action]) -> list[str]:
    """Hours, weeks and months as days: ``--weeks 2``, ``--time 3months``, ``--in 3 months``."""
    if "--days" not in known:
        return list(words)
    found: list[str] = []
    left = list(words)
    while left:
        word, value, unit = [*left, "", ""][:3]
        days = SPANS.get(word.removeprefix("--")) if word.startswith("--") and word not in known else None
        glued = re.fullmatch(r"([0-9.]+)[ -]?([a-z]+)", value.lower()) if word in LASTING else None
        taken = 1
        if days is not None and NUMBER.fullmatch(value):
            found += ["--days", f"{days * float(value):g}"]
            taken = 2
        elif glued is not None and glued[2] in BRIEF and NUMBER.fullmatch(glued[1]):
            found += ["--days", f"{BRIEF[glued[2]] * float(glued[1]):g}"]
            taken = 2
        elif word in LASTING and NUMBER.fullmatch(value) and unit.lower() in BRIEF:
            found += ["--days", f"{BRIEF[unit.lower()] * float(value):g}"]
            taken = 3
        else:
            found.append(word)
        del left[:taken]
    return found


def cleaned(words: Sequence[str], known: dict[str, argparse.Action]) -> list[str]:
    """Days and prices without their units, which the option names."""
    found: list[str] = []
    for word in words:
        option = found[-1] if found else ""
        if option == "--days" and option in known and (match := DAYS.fullmatch(word)):
            word = match[1]
        elif option == "--price" and option in known:
            word = ",".join(_plain_price(part) for part in word.split(","))
        found.append(word)
    return found


def _plain_price(text: str) -> str:
    name, equals, price = text.rpartition("=")
    match = MONEY.fullmatch(price.strip().replace(" ", ""))
    return f"{name}{equals}{match[1]}" if match else text


def message(words: Sequence[str], notes: list[str]) -> list[str]:
    """The words of a collective, its size in bytes: a bare ``G`` counts by 1,024, as nccl-tests have it.

    Parameters
    ----------
    words : that stand by themselves
    notes : what was taken for what, to which is added
    """
    found = list(words)
    for place, word in enumerate(found):
        if match := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([kmgt])", word, re.IGNORECASE):
            found[place] = f"{match[1]}{match[2].upper()}iB"
            notes.append(f"{word}: taken as {found[place]}, as nccl-tests count")
        elif match := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([kmgt])b", word, re.IGNORECASE):
            found[place] = f"{match[1]}{match[2].upper()}B"
    return found


def in_sequences(options: Sequence[str], known: dict[str, argparse.Action], notes: list[str]) -> list[str]:
    """A batch that is said in tokens, such as ``4M``, as so many sequences.

    Parameters
    ----------
    options : of the command line, with their values
    known : options of the command
    notes : what was taken for what, to which is added
    """
    found = list(options)
    action = known.get("--global-batch")
    names = [] if action is None else action.option_strings
    for place in (place for place, word in enumerate(options[:-1]) if word in names):
        said = found[place + 1]
        match, length = TOKENS.fullmatch(said), _length(options, known)
        thousands = match is not None and (match[2] or "").lower() == "k" and "tok" not in said.lower()
        if match is None or thousands or length is None:
            continue
        sequences = _sequences(match[1], (match[2] or "").lower(), length)
        spaced = said.replace("tokens", " tokens")
        if sequences is None and "tok" in said.lower():
            near = int(Fraction(match[1]) * 1000 ** POWERS[(match[2] or "").lower()] / length)
            wholes = f"is no whole number of sequences of {length:,} tokens"
            raise Misused(f"a batch of {spaced} {wholes}: say {names[0]} {max(near, 1)}")
        if sequences is not None:
            notes.append(f"a batch of {spaced}: taken as tokens, {sequences:,} sequences of {length:,} each")
            found[place + 1] = str(sequences)
            if not set(known["--seq-len"].option_strings) & {word.partition("=")[0] for word in options}:
                found += ["--seq-len", str(length)]  # by which tokens were counted: a command may take another where none is said
    return found


def _length(options: Sequence[str], known: dict[str, argparse.Action]) -> int | None:
    """Tokens of a sequence as the options say, else as is taken where they don't."""
    action = known.get("--seq-len")
    if action is None:
        return None
    said = next((value for option, value in itertools.pairwise(options) if option in action.option_strings), None)
    if said is None:
        return LENGTH
    match = re.fullmatch(r"([0-9]{1,7})(k?)", said, re.IGNORECASE)
    return int(match[1]) * (1024 if match[2] else 1) or None if match else None


def _sequences(amount: str, unit: str, length: int) -> int | None:
    """Sequences that so many tokens are, counted by 1,024 or by 1,000, whichever gives whole ones."""
    for base in (1024, 1000):
        sequences = Fraction(amount) * base ** POWERS[unit] / length
        if sequences.denominator == 1 and sequences > 0:
            return int(sequences)
    return None


def numbers_of(words: Sequence[str]) -> dict[str, str]:
    """Whole numbers by the options that they stand behind, or behind their ``=``; names of GPUs aren't such."""
    pairs = [word.split("=", 1) if "=" in word else (word, after) for word, after in itertools.pairwise([*words, ""])]
    numbers = ((name, value) for name, value in pairs if value.isdigit() and not called_hardware(value))
    return {name.lower().replace("_", "-"): value for name, value in numbers}


def together(words: Sequence[str], known: dict[str, argparse.Action], notes: list[str]) -> list[str]:
    """The words with such numbers as one, and ``--count`` of a cloud's instances, or of other systems, as so many nodes."""
    found = list(words)
    called = (called_hardware(word.rpartition("=")[2]) for word in words if "--count" in words)
    if any(one is not None and one.kind == "cluster" for one in called):
        found[found.index("--count")] = "--nodes"
        notes.append("--count: taken as --nodes")
    for option, each_of, many_of, alone in PRODUCTS:
        values = numbers_of(found)
        each, many = (next((name for name in names if name in values), "") for names in (each_of, many_of))
        if not each or each in known or option not in known or ({option, "--num-gpus"} - {each}) & values.keys():
            continue
        if not many and not alone:
            continue
        taken = [option, str(int(values.get(many, 1)) * int(values[each]))]
        said = f"{each} {values[each]}" + ("" if alone else f" beside {many} {values[many]}")
        notes.append(f"{said}: taken as {' '.join(taken)}")
        gone = {each, many} - known.keys()
        left = iter(found)
        found = taken
        for word in left:
            if word.partition("=")[0].lower().replace("_", "-") not in gone:
                found.append(word)
            elif "=" not in word:
                next(left)
    return found

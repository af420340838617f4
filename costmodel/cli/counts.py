"""Numbers that two options of other programs make together: nodes and the GPUs of each, prompts and the samples of each."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence

from costmodel.catalogue.hardware_words import called_hardware
from costmodel.text.other_names import GENERATIONS, PROMPTS

PRODUCTS = {
    "--gpus": (("--gpus-per-node", "--nproc-per-node", "--devices-per-node", "--devices"),
               ("--nodes", "--nnodes", "--num-nodes", "--num-machines")),
    "--samples": (GENERATIONS, PROMPTS),
}  # fmt: skip
"""What options make: how many each of some has, and how many of these there are."""


def together(words: Sequence[str], known: dict[str, argparse.Action], notes: list[str]) -> list[str]:
    """The words with such numbers as one, and ``--count`` of a cloud's instances, or of other systems, as so many nodes.

    Parameters
    ----------
    words : of a command line
    known : options of the command
    notes : what was taken for what, to which is added
    """
    found = list(words)
    called = (called_hardware(word.rpartition("=")[2]) for word in words if "--count" in words)
    if any(one is not None and one.kind == "cluster" for one in called):
        found[found.index("--count")] = "--nodes"
        notes.append("--count: taken as --nodes")
    for option, (each_of, many_of) in PRODUCTS.items():
        pairs = [word.split("=", 1) if "=" in word else (word, after) for word, after in itertools.pairwise([*found, ""])]
        numbers = ((name, value) for name, value in pairs if value.isdigit() and not called_hardware(value))
        values = {name.lower().replace("_", "-"): value for name, value in numbers}
        each, many = (next((name for name in names if name in values), "") for names in (each_of, many_of))
        if not each or each in known or option not in known or {option, "--num-gpus"} & values.keys():
            continue
        if not many and many_of == PROMPTS:
            continue
        taken = [option, str(int(values.get(many, 1)) * int(values[each]))]
        notes.append(f"{each} {values[each]}: taken as {' '.join(taken)}")
        gone = {each, many} - known.keys()
        left = iter(found)
        found = taken
        for word in left:
            if word.partition("=")[0].lower().replace("_", "-") not in gone:
                found.append(word)
            elif "=" not in word:
                next(left)
    return found

"""Scripts as they are started where there are GPUs: ``torchrun --nproc_per_node 8 train.py --lr 1e-4``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from costmodel.cli.arguments import Misused

LAUNCHERS = ("python", "python3", "torchrun")
OTHERS = ("accelerate", "deepspeed", "srun", "mpirun", "colossalai", "composer")
"""Launchers that tell a script more than its rank."""
TORCHRUN = ("torch.distributed.run", "torch.distributed.launch")
"""Modules that Python runs as torchrun."""
WITHOUT_VALUE = ("standalone", "no-python", "run-path", "use-env", "u")
"""Options of Python and torchrun that take none."""


def started(words: Sequence[str]) -> list[str]:
    """The words of a line that starts a script of Python on GPUs; none where the words start nothing.

    Parameters
    ----------
    words : as they were typed, or the whole line as one

    Examples
    --------
    >>> started(["torchrun --nproc_per_node 8 train.py"]), started(["train.sh"])
    (['torchrun', '--nproc_per_node', '8', 'train.py'], [])
    """
    import shlex

    try:
        split = shlex.split(words[0]) if len(words) == 1 else list(words)
    except ValueError:  # a quotation that is never closed
        return []
    return split if split[:1] and split[0] in LAUNCHERS and len(split) > 1 else []


class Launched(NamedTuple):
    """A command line apart: the command's own words, those of the script behind ``--``, and what was taken for what."""

    own: list[str]
    script: list[str]
    notes: list[str]


def launched(words: Sequence[str], known: Mapping[str, argparse.Action]) -> Launched:
    """Tell the words of a script from those of the command that runs it.

    What stands behind ``--`` is the script's, and all that follows it where Python or torchrun starts it; else what follows it
    from the first option on that the command doesn't have.

    Parameters
    ----------
    words : behind the command's name
    known : its options

    Returns
    -------
    Launched

    Raises
    ------
    Misused
        of a launcher that does more than start ranks, or starts nothing

    Examples
    --------
    >>> launched("torchrun --nnodes=2 --nproc_per_node=8 train.py --lr 1e-4".split(), {})[:2]
    (['--gpus', '16', 'train.py'], ['--', '--lr', '1e-4'])
    """
    end = words.index("--") if "--" in words else len(words)
    head, handed = list(words[:end]), list(words[end:])
    place = _first_plain(head, known)
    if place == len(head):
        return Launched(head, handed, [])
    if head[place] in OTHERS:
        raise Misused(
            f"{head[place]} is not traced: a script runs as by torchrun (costmodel trace --gpus 8 train.py -- ...)"
        )
    if head[place] in LAUNCHERS:
        own, script = _started(head[place], head[place + 1 :])
        return Launched([*head[:place], *own], ["--", *script, *handed[1:]] if script else handed, [])
    others = [
        at
        for at in range(place + 1, len(head))
        if _is_option(head[at]) and head[at].partition("=")[0] not in known
    ]
    if handed or not others or head[place].endswith(".npz"):
        return Launched(head, handed, [])
    note = f"{head[others[0]][:80]} and what follows it: handed to {head[place][:80]}"
    return Launched(head[: others[0]], ["--", *head[others[0] :]], [note])


def _is_option(word: str) -> bool:
    return word.startswith("-") and len(word) > 1


def _first_plain(words: Sequence[str], known: Mapping[str, argparse.Action]) -> int:
    """Where the first word stands that is no option and no value of one."""
    at = 0
    while at < len(words) and _is_option(words[at]):
        action, after = known.get(words[at]), words[at + 1 : at + 2]
        number = action is None and after and after[0].isdigit()  # as -n 8 has it
        at += 2 if number or (action is not None and action.nargs != 0) else 1
    return min(at, len(words))


def _started(launcher: str, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """What a launcher starts and on how many GPUs, in this command's words, and the script's own."""
    sizes: dict[str, int] = {}
    module: list[str] = []
    left = iter(words)
    for word in left:
        if module and word in TORCHRUN:
            module = []
            continue
        if not _is_option(word):
            return [*_size(sizes), *module, word], list(left)
        name, equals, value = word.lstrip("-").replace("_", "-").partition("=")
        if name in ("m", "module"):
            module = ["-m"]
        elif name not in WITHOUT_VALUE:
            value = value if equals else next(left, "")
            if value.isdigit():
                sizes[name] = int(value)
    raise Misused(f"{launcher}: expected a script to run")


def _size(sizes: Mapping[str, int]) -> list[str]:
    """As many GPUs as torchrun's numbers make; as the cluster has them where it says none."""
    nodes = sizes.get("nnodes")
    if "nproc-per-node" in sizes:
        return ["--gpus", str(sizes["nproc-per-node"] * (nodes or 1))]
    return [] if nodes is None else ["--nodes", str(nodes)]

"""Scripts as they are started where there are GPUs: ``torchrun --nproc_per_node 8 train.py --lr 1e-4``."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from costmodel.catalogue.hardware_words import called_hardware, said_hardware
from costmodel.cli.arguments import Misused
from costmodel.text.suggestions import MEANT

LAUNCHERS = ("python", "python3", "torchrun")
OTHERS = ("accelerate", "deepspeed", "srun", "mpirun", "colossalai", "composer", "axolotl", "llamafactory-cli", "tune", "swift")
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
    try:
        split = shlex.split(words[0]) if len(words) == 1 else list(words)
    except ValueError:  # a quotation that is never closed
        return []
    return split if split[:1] and split[0] in LAUNCHERS and len(split) > 1 else []


PRICED_ON = ("--cluster", "--device")
"""Options that say on what a command line is priced, which no script has."""


def stated(words: Sequence[str]) -> list[str]:
    """Words in which a line that starts a run stands as one, where a launch file would; none where none stands there.

    Parameters
    ----------
    words : behind the command's name: the line as one of them, or behind ``--``, or from the program on that starts it

    Examples
    --------
    >>> stated("--device h100 -- torchrun --nproc_per_node 8 train.py --bf16".split())
    ['--device', 'h100', 'torchrun --nproc_per_node 8 train.py --bf16']
    >>> stated("torchrun train.py --bf16 --device h100".split())
    ['torchrun train.py --bf16', '--device', 'h100']
    """
    if "--" in words:
        at = words.index("--")
        line, own = list(words[at + 1 :]), list(words[:at])
        return [*own, line[0] if len(line) == 1 else shlex.join(line)] if line else []
    at = next((place for place, word in enumerate(words) if word in (*LAUNCHERS, *OTHERS)), len(words))
    if at + 1 >= len(words) or any(not _is_option(word) for word in words[:at:2]):
        whole = any(word.split(" ", 1)[0] in (*LAUNCHERS, *OTHERS) and " " in word for word in words)
        return list(words) if whole else []
    line, own = [], []
    left = list(words[at:])
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if _prices(name, value if equals else "".join(left[:1])):
            own += [word] if equals else [word, *left[:1]]
            del left[: not equals]
        else:
            line.append(word)
    return [*words[:at], shlex.join(line), *own]


def _prices(option: str, value: str) -> bool:
    """Whether an option says on what a line is priced: by its own name, or by another one and its value."""
    other = option in ("--gpus", "--nodes") or MEANT["option"].get(option) in PRICED_ON
    return option in PRICED_ON or (other and (called_hardware(value) or said_hardware(value)) is not None)


NAMED = (".yaml", ".yml", ".json", ".toml")
"""How files end that a line names and that belong to the run which it starts."""


def script_of(words: Sequence[str]) -> list[str]:
    """The words of such a line, with others that stand beside it, where the script that it starts is at hand; else none.

    Parameters
    ----------
    words : as `stated` gives them
    """
    for place, word in enumerate(words):
        line = started([word])
        files = [one for one in line if os.path.isfile(one)]
        plain = not any(map(_is_option, line)) and not any(one.endswith(NAMED) for one in files)
        if line and (plain or any(one.endswith(".py") for one in files)):
            return [*words[:place], *words[place + 1 :], *line]
    return []


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
        raise Misused(f"{head[place]} is not traced: a script runs as by torchrun (costmodel trace --gpus 8 train.py -- ...)")
    if head[place] in LAUNCHERS:
        own, script = _started(head[place], head[place + 1 :])
        return Launched([*head[:place], *own], ["--", *script, *handed[1:]] if script else handed, [])
    others = [at for at in range(place + 1, len(head)) if _is_option(head[at]) and head[at].partition("=")[0] not in known]
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

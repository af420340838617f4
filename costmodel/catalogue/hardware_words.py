"""Hardware as people write it in a word: ``8xh100``, ``h100x8``, ``2x8xh100``, ``4xdgx-h100``."""

from __future__ import annotations

import re
from typing import NamedTuple

from costmodel.catalogue import loader

TIMES = "\\s*[x*:\N{MULTIPLICATION SIGN}]\\s*"


class SaidHardware(NamedTuple):
    """What a word says of hardware: a kind of it by name, and how much."""

    kind: str  # ``"device"`` or ``"cluster"``
    name: str  # in the catalogue, or as people call it
    gpus: int | None = None  # of a device; of a cluster so many of its nodes; None where it isn't said
    nodes: int | None = None  # over which they are spread; None where it isn't said


def said_hardware(word: str, bare: bool = False) -> SaidHardware | None:
    """The hardware that a word says, with how much of it; None where it says none.

    Parameters
    ----------
    word : as somebody wrote it
    bare : a name without a number is hardware, too

    Raises
    ------
    UnknownName
        where a number stands before what is no name, and a name by itself may be hardware

    Examples
    --------
    >>> said_hardware("8xh100"), said_hardware("2x8xh100").gpus, said_hardware("h100"), said_hardware("h100", bare=True).kind
    (SaidHardware(kind='device', name='h100', gpus=8, nodes=None), 16, None, 'device')
    """
    text = word.strip()
    for pattern, order in ((rf"([0-9]{{1,5}}){TIMES}([0-9]{{1,4}}){TIMES}(.+)", (1, 2, 3)),
                           (rf"([0-9]{{1,7}}){TIMES}(.+)", (0, 1, 2)), (rf"(.+?){TIMES}([0-9]{{1,7}})", (0, 2, 1))):  # fmt: skip
        match = re.fullmatch(pattern, text, re.IGNORECASE)
        if match is None:
            continue
        nodes = int(match[order[0]]) if order[0] else None
        found = called_hardware(match[order[2]])
        if found is not None:
            count = int(match[order[1]])
            return found._replace(gpus=count * (nodes or 1), nodes=nodes)
        if bare and order == (0, 1, 2):
            raise loader.unknown("device", match[2])
    return called_hardware(text) if bare else None


def called_hardware(name: str) -> SaidHardware | None:
    """The device, or else the cluster, of a name as people write it, such as ``h100s`` or ``a100 80g``; None where it is neither.

    Parameters
    ----------
    name : without a number of them
    """
    for text in dict.fromkeys((name, re.sub(r"(?<=[0-9])[gG]$", "GB", name), re.sub(r"(?<=[0-9a-z])s$", "", name))):
        for kind in ("device", "cluster"):
            if text in loader.names(kind) or loader.alias(kind, text) is not None:  # type: ignore[arg-type]
                return SaidHardware(kind, text)
    return None

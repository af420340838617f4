"""What launch files leave to whoever starts them, taken as other questions take it: GPUs of the hardware, and a usual length."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from costmodel.catalogue import loader
from costmodel.cli.defaults import ADAPTED_LENGTH
from costmodel.text.errors import CostModelError
from costmodel.text.units import counted

if TYPE_CHECKING:
    from costmodel.interop.launchers import Launch

LENGTH = re.compile(r"seq|len|block|cutoff")
"""Flags of a length: one that is a variable is asked for."""


def completed(
    read: Callable[[int | None, dict[str, str]], Launch], asked: int | None, offered: int | None, notes: list[str]
) -> Launch:
    """A launch, with the number of GPUs and the length that its files don't say.

    Parameters
    ----------
    read : the launch on so many GPUs, with further settings
    asked : GPUs where the files don't say how many, if the question does
    offered : GPUs of the hardware where nobody says how many, None where there is none: no fewer are taken than one copy needs
    notes : what was taken, to which is added
    """
    from costmodel.interop.launchers.settle import MODEL_PARALLEL

    found = read(None, {})
    said, more, taken = found.plan_fields, dict[str, str](), list[str]()
    open_ = found.gpus is None and said.get("data_parallel") is None
    if open_ and asked is None and offered is not None:
        copy = math.prod(said.get(name) or 1 for name in MODEL_PARALLEL)
        asked = copy * -(-offered // copy)
        taken.append(counted(asked, "GPU"))
    if said.get("seq_len") is None and "seq_len" not in found.missing and not any(map(LENGTH.search, found.unresolved)):
        length = _length(found)
        more["seq-len"] = str(length)
        taken.append(f"sequences of {length:,} tokens")
    if found.conflicts or not (taken or (open_ and asked)):
        return found
    if taken:
        notes.append(f"taken, as the files don't say it: {', '.join(taken)}")
    launch = read(asked if open_ else None, more)
    return dataclasses.replace(launch, assumed=launch.assumed | {"seq_len": launch.plan_fields["seq_len"]}) if more else launch


def _length(launch: Launch) -> int:
    """Tokens of a sequence that are taken: no more than the model that the files name has positions for."""
    named = launch.model_described
    if not isinstance(named, str):
        return ADAPTED_LENGTH
    try:
        model = loader.load_model(named)
    except CostModelError:  # which is said where the launch is priced
        return ADAPTED_LENGTH
    return min(ADAPTED_LENGTH, model.learned_positions or ADAPTED_LENGTH, model.trained_length or ADAPTED_LENGTH)

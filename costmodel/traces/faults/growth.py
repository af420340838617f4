"""Faults of what a loop keeps: tensors of every step that are never given up, until memory is full."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from costmodel.text.units import KiB, counted, format_bytes
from costmodel.traces.faults.fault import Examined, Fault
from costmodel.traces.record import KINDS, NOWHERE, Role

NOTED = 64 * KiB
"""Bytes a step from which growth counts: losses and counts that a program keeps are smaller [bytes]."""
STATES = ("weight", "gradient", "optimizer", "bucket")
"""Kinds of storages that are made once and stay."""
STEPS = 3
"""That must have been run: what one step leaves is no habit."""

Signature = tuple[int, int, int, int]
"""Operator, shape, dtype and line of a storage."""


def growing_memory(asked: Examined) -> Iterator[Fault]:
    """Tensors that every step makes and that are still held at the end of the last."""
    for role, held in zip(asked.trace.roles, asked.memory, strict=True):
        if role.steps < STEPS:
            continue
        by_step = [_kept(role, number) for number in range(1, role.steps)]  # what comes behind a step is the next one's
        held_at = [_held(role, role.step(number).stop) for number in range(role.steps - STEPS, role.steps)]
        common = {
            one for one in set(by_step[0]).intersection(*by_step)
            if all(before[one] < after[one] for before, after in itertools.pairwise(held_at))  # not what is held ahead
        }  # fmt: skip
        found = [storage for signature in common for storage in by_step[-2][signature]]
        grown = int(role.storages.bytes[found].sum())
        if grown < NOTED:
            continue
        largest = max(found, key=lambda one: int(role.storages.bytes[one]))
        left = held.capacity - held.process
        until = f", and is full after {counted(int(left / grown), 'step')}" if left > 0.0 else ""
        yield Fault(
            kind="memory grows", rank=role.rank, module=role.texts[role.storages.module[largest]],
            line=role.texts[role.storages.line[largest]],
            sentence=f"{counted(len(found), 'tensor')} of {format_bytes(grown)} that a step makes "
            f"{'is' if len(found) == 1 else 'are'} still held after the next: memory grows by as much every step{until}",
            bytes=float(grown),
        )  # fmt: skip


def _kept(role: Role, number: int) -> dict[Signature, list[int]]:
    """Storages that a step made and that are held at the end of the last one, by what they are."""
    storages, step, end = role.storages, role.step(number), role.step().stop
    found: dict[Signature, list[int]] = {}
    for one in np.flatnonzero((storages.born >= step.start) & (storages.born < step.stop) & _passing(role, end)).tolist():
        found.setdefault(_signature(role, one), []).append(one)
    return found


def _held(role: Role, end: int) -> Counter[Signature]:
    """How many storages of each kind are held at a row of the timeline."""
    there = np.flatnonzero((role.storages.born < end) & _passing(role, end))
    return Counter(_signature(role, one) for one in there.tolist())


def _passing(role: Role, end: int) -> NDArray[np.bool_]:
    """Of storages whether they are held behind a row, and no states."""
    storages = role.storages
    states = np.isin(storages.kind, [KINDS.index(kind) for kind in STATES])
    return ((storages.died == NOWHERE) | (storages.died > end)) & ~states


def _signature(role: Role, one: int) -> Signature:
    storages = role.storages
    return int(storages.op[one]), int(storages.shape[one]), int(storages.dtype[one]), int(storages.line[one])

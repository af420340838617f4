"""Faults of what a loop keeps and gives back: tensors that are never given up, zeroed gradients, caches that are emptied."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from costmodel.text.units import KiB, counted, format_bytes
from costmodel.traces.faults.fault import Examined, Fault
from costmodel.traces.record import EMPTY_CACHE, GRAPH, KERNEL, KINDS, NOWHERE, Role

NOTED = 64 * KiB
"""Bytes a step from which growth counts: losses and counts that a program keeps are smaller [bytes]."""
STATES = ("weight", "gradient", "optimizer", "bucket")
"""Kinds of storages that are made once and stay."""
STEPS = 3
"""That must have been run: what one step leaves is no habit."""

ZEROING = ("aten.zero_", "aten._foreach_zero_")
"""Operators by which ``zero_grad(set_to_none=False)`` keeps gradients."""

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


def kept_gradients(asked: Examined) -> Iterator[Fault]:
    """Gradients that a step zeroes in place of giving them up; a captured graph needs them where they are."""
    gradient = KINDS.index("gradient")
    for place, role in enumerate(asked.trace.roles):
        if (role.timeline.action == GRAPH).any():
            continue
        found: dict[int, list[int]] = {}
        for kernel in role.rows(KERNEL, role.step()).tolist():
            if role.texts[role.kernels.op[kernel]] in ZEROING and gradient in role.storages.kind[role.written(kernel)]:
                found.setdefault(int(role.kernels.line[kernel]), []).append(kernel)
        for line, kernels in found.items():
            kept = {storage for kernel in kernels for storage in role.written(kernel).tolist()}
            nbytes = float(role.storages.bytes[list(kept)].sum())
            if nbytes < NOTED:
                continue
            yield Fault(
                kind="kept gradients", rank=role.rank, module="", line=role.texts[line],
                sentence=f"gradients of {format_bytes(nbytes)} are zeroed and held through the forward pass, and the next are "
                "added to them: `zero_grad(set_to_none=True)` gives them up",
                seconds=float(asked.estimate.kernels[place][kernels].sum()), bytes=nbytes,
            )  # fmt: skip


def emptied_caches(asked: Examined) -> Iterator[Fault]:
    """Caches of the allocator that every step gives back, to ask the driver for the same memory again."""
    for role, held in zip(asked.trace.roles, asked.memory, strict=True):
        step = role.step()
        rows = np.arange(step.start, step.stop)[role.timeline.action[step.start : step.stop] == EMPTY_CACHE]
        for line, count in Counter(role.timeline.line[rows].tolist()).items():
            yield Fault(
                kind="emptied cache", rank=role.rank, module="", line=role.texts[line],
                sentence=f"the allocator's cache is given back {counted(count, 'time')} a step, for which the host waits, and "
                f"{format_bytes(held.mapped)} are mapped anew",
                seconds=held.remapping, bytes=held.mapped,
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

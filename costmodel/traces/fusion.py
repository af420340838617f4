"""What a compiler leaves of a trace's operators: chains between products, each of which reads and writes once."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.formulas import compute
from costmodel.formulas.quantities import DeviceNumbers
from costmodel.traces.builder import shape_of
from costmodel.traces.kernels import CONVOLUTIONS, PRODUCTS, RECURRENCES
from costmodel.traces.record import BORN, DIED, KERNEL, NOWHERE, TRANSACTION, USED_ON, Role

Floats = NDArray[np.float64]

LIBRARIES = ("aten", "prims")
"""Of operators that TorchInductor has code of its own for."""
APART = (
    *PRODUCTS, *CONVOLUTIONS, *RECURRENCES, "topk", "sort", "argsort", "nonzero", "multinomial", "histc", "bincount", "index_put",
    "index_put_", "scatter", "scatter_", "scatter_add", "scatter_add_", "index_add", "index_add_", "embedding_dense_backward",
    "cumsum",
)  # fmt: skip
"""Operators that stay kernels of their own, or that a chain doesn't go through."""


class Fused(NamedTuple):
    """Kernels of a role that are one, as a compiler makes them."""

    first: NDArray[np.int64]  # of each kernel, the first of those with which it is one: itself where it stays alone
    bytes: Floats  # of each first, what all of them read and write [bytes]

    @property
    def gone(self) -> NDArray[np.bool_]:
        """Kernels that are no launch of their own any more."""
        return self.first != np.arange(len(self.first))

    def times(self, alone: Floats, device: DeviceNumbers) -> Floats:
        """Time of each kernel, 0 of those that are gone [s].

        Parameters
        ----------
        alone : time of each by itself [s]
        """
        firsts = np.unique(self.first[self.gone])
        found = np.where(self.gone, 0.0, alone)
        found[firsts] = [float(compute.stream(nbytes, 1.0, device)) for nbytes in self.bytes[firsts]]
        return found


def fused(role: Role) -> Fused:
    """Kernels that are one where what launches them was given to a compiler.

    Between two products, or what else stays a kernel of its own, all that follows on one stream in one compiled region is one
    kernel. It reads what it doesn't make, once, and writes what others read later, once; of values that a backward pass reads,
    too, which a compiler may work out again in place of keeping them.

    References
    ----------
    Ansel et al. (2024), PyTorch 2: Faster Machine Learning Through Dynamic Python Bytecode Transformation and Graph Compilation,
    ASPLOS, section 4.4
    """
    kernels = role.kernels
    first = np.arange(len(kernels))
    nbytes = (kernels.bytes_read + kernels.bytes_written).astype(float)
    if not kernels.compiled.any():
        return Fused(first, nbytes)
    readers, when = _readers(role), _rows(role)
    for chain in _chains(role, when):
        if len(chain) > 1:
            first[chain] = chain[0]
            nbytes[chain[0]] = min(_moved(role, chain, readers, when), float(nbytes[chain].sum()))
    return Fused(first, nbytes)


def graph_launches(role: Role, graphed: Collection[int]) -> NDArray[np.int64]:
    """Of each kernel that is launched, in order: 1 of the first of a graph, 0 of the others in it, -1 of one that is in none.

    What one compiled part launches in a pass without a transaction or a wait between is one graph.

    Parameters
    ----------
    graphed : numbers of the compiled parts that are launched as CUDA graphs
    """
    timeline, rows = role.timeline, np.flatnonzero(role.timeline.action == KERNEL)
    kernels, breaks = timeline.item[rows], np.cumsum(~np.isin(timeline.action, _WITHIN))[rows]
    parts = role.kernels.compiled[kernels]
    key = np.stack([parts, role.kernels.phase[kernels], role.kernels.stream[kernels], breaks])
    first = np.concatenate([[True], (key[:, 1:] != key[:, :-1]).any(axis=0)])
    return np.where(np.isin(parts, list(graphed)), first.astype(np.int64), -1)


_WITHIN = (KERNEL, BORN, DIED, USED_ON)
"""Actions that interrupt no chain of kernels."""


def _chains(role: Role, when: NDArray[np.int64]) -> list[list[int]]:
    """Kernels that follow one another and can be one: nothing is exchanged or waited for between them."""
    kernels, texts = role.kernels, role.texts
    found: list[list[int]] = []
    last: tuple[int, ...] | None = None
    breaks = np.cumsum(~np.isin(role.timeline.action, _WITHIN))[when].tolist()
    names = {op: texts[op].replace("::", ".").split(".") for op in set(kernels.op.tolist())}
    columns = (kernels.compiled, kernels.stream, kernels.phase, kernels.op)
    for kernel, (region, stream, phase, op) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        library, name = (*names[op], "")[:2]
        joins = region and library in LIBRARIES and not _apart(name) and not _over_rows(role, kernel, name)
        here = (region, stream, phase, breaks[kernel]) if joins else None
        if here is not None and here == last:
            found[-1].append(kernel)
        else:
            found.append([kernel])
        last = here
    return found


def _apart(name: str) -> bool:
    return name in APART or "attention" in name or name.startswith(("_foreach", "_fused", "_amp"))


def _over_rows(role: Role, kernel: int, name: str) -> bool:
    """Whether it sums over rows, as gradients of weights of norms and of biases do: it reads all by itself, in another order."""
    if name != "sum":
        return False
    kernels, texts = role.kernels, role.texts
    shapes = texts[kernels.shapes[kernel]].split()
    if not shapes:
        return False
    shape = shape_of(shapes[0])
    a_row = kernels.bytes_read[kernel] * math.prod(shape[:-1])  # one number a row
    return bool(kernels.bytes_written[kernel] * math.prod(shape) != a_row)


def _readers(role: Role) -> dict[int, list[int]]:
    """Rows of the timeline at which each storage is read, or sent."""
    found = defaultdict(list)
    timeline = role.timeline
    for row in np.flatnonzero(np.isin(timeline.action, (KERNEL, TRANSACTION))).tolist():
        item = int(timeline.item[row])
        if timeline.action[row] == TRANSACTION:
            found[int(role.transactions.storage[item])].append(row)
        else:
            for storage in role.read(item).tolist():
                found[storage].append(row)
    return found


def _rows(role: Role) -> NDArray[np.int64]:
    """Row of the timeline of each kernel."""
    rows = np.flatnonzero(role.timeline.action == KERNEL)
    found = np.zeros(len(role.kernels), dtype=np.int64)
    found[role.timeline.item[rows]] = rows
    return found


def _moved(role: Role, chain: list[int], readers: dict[int, list[int]], when: NDArray[np.int64]) -> float:
    """Bytes that a chain reads of what it doesn't make, and writes of what is there before or read behind it."""
    kernels, storages = role.kernels, role.storages
    before, ended = int(when[chain[0] - 1]) if chain[0] else NOWHERE, int(when[chain[-1]])
    read: dict[int, int] = {}
    written: dict[int, int] = {}
    for kernel in chain:
        for storage in role.read(kernel).tolist():
            if storage not in written:
                read[storage] = max(read.get(storage, 0), min(int(storages.bytes[storage]), int(kernels.bytes_read[kernel])))
        for storage in role.written(kernel).tolist():
            there = min(int(storages.bytes[storage]), int(kernels.bytes_written[kernel]))
            written[storage] = max(written.get(storage, 0), there)
    kept = [
        nbytes for storage, nbytes in written.items()
        if storages.born[storage] < before or any(row > ended for row in readers.get(storage, ()))
    ]  # fmt: skip
    return float(sum(read.values()) + sum(kept))

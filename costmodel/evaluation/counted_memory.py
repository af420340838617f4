"""Peak memory as a run counts it: by the tensors, the allocator or the whole process, of the GPU that logs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.arithmetic.named_tuples import stacked
from costmodel.evaluation.estimation import Estimate
from costmodel.formulas.pipeline.layout import micro_batches
from costmodel.formulas.quantities import Inputs
from costmodel.formulas.run_ahead import ahead_bytes
from costmodel.formulas.transformer.loading import device_bytes
from costmodel.formulas.transformer.memory import idle_stages, outside_allocator, stage_bills

Array = NDArray[np.float64]
FIRST, LAST, FULLEST = 0, 2, -1
STAGES = {"rank0": FIRST, "first-stage": FIRST, "last": LAST}
"""Of the bills of `stage_bills`, the one whose rank logs; the fullest of all for every other word."""
RESERVED = ("reserved", "allocated-or-reserved")
UNSTATED = "unstated"
"""A third each of the campaigns of the released records that say how they counted counted what tensors hold, the allocator has
and ``nvidia-smi`` shows: 16, 17 and 15."""
TOGETHER = 2048


class Count(NamedTuple):
    """How a peak was counted."""

    kind: str  # one of `costmodel.description.run.MEMORY_KINDS`
    of: str  # one of `costmodel.description.run.MEMORY_OF`


def counted(estimates: Sequence[Estimate], counts: Sequence[Count]) -> list[float]:
    """Peak memory of each plan as it was counted [bytes].

    Allocated: what tensors hold, in steps alone where the software sets its peaks back before them. Reserved: with the
    allocator's gaps, and what it keeps idle and gives back before memory runs out; or what it had while the model was loaded, if
    that is more. Process: with the context and the communication library. One of the first two counts as reserved; unstated as
    the middle of the least and the most, what tensors hold and the whole process, where what is reserved is, too.
    """
    found: list[float] = []
    for start in range(0, len(estimates), TOGETHER):
        some = slice(start, start + TOGETHER)
        found += _counted(estimates[some], counts[some]).tolist()
    return found


def _counted(estimates: Sequence[Estimate], counts: Sequence[Count]) -> Array:
    limits = np.array([float(one.cluster.device.memory) for one in estimates])
    return counted_columns(stacked([one.inputs for one in estimates], axes=1), limits, counts)


def counted_columns(columns: Inputs, limit: Array, counts: Sequence[Count]) -> Array:
    """As `counted`, of plans as columns [bytes].

    Parameters
    ----------
    columns : what the formula takes of the plans
    limit : memory of each device [bytes]
    counts : of each
    """
    rows = len(counts)
    bills, idles = _bills(columns, rows)
    places = np.arange(rows)
    logging = np.array([STAGES.get(count.of, FULLEST) for count in counts])
    stage = np.where(logging == FULLEST, bills[0].argmax(axis=0), logging)
    totals, overheads, idle = (table[stage, places] for table in (*bills, idles))
    with np.errstate(divide="ignore", invalid="ignore"):  # the arm of `where` that is not taken
        loading = device_bytes(columns.model, columns.settings, columns.plan, columns.network, columns.software)
        ahead = ahead_bytes(*columns)
    idle = idle + np.broadcast_to(np.asarray(ahead, dtype=float), rows)
    process = np.maximum(totals + np.clip(limit - totals, 0.0, idle), np.broadcast_to(np.asarray(loading, dtype=float), rows))
    beside = np.broadcast_to(np.asarray(outside_allocator(columns.plan, columns.network, columns.software), dtype=float), rows)
    kind = np.array([count.kind for count in counts])
    loaded = np.broadcast_to(np.asarray(columns.settings.framework.unreset_peaks, dtype=float), rows) * (loading - beside)
    within = np.where(np.isin(kind, RESERVED), process - beside, np.maximum(totals - overheads, loaded))
    mean = np.array([count.of == "mean" for count in counts])
    stages = np.broadcast_to(np.asarray(columns.plan.pipeline, dtype=float), rows)
    share = np.where(mean, _of_stages(bills[0], stages) / bills[0].max(axis=0), 1.0)
    known = np.where(kind == "process", process, within)
    return share * np.where(kind == UNSTATED, np.sqrt(within * process), known)


def _of_stages(bills: Array, stages: Array) -> Array:
    """Mean over the ranks of a pipeline of so many stages, of bills of its first, of the fullest between and of its last."""
    first, between, last = bills
    return np.where(stages > 1.0, (first + (stages - 2.0) * between + last) / np.maximum(stages, 2.0), first)


def _bills(columns: Inputs, rows: int) -> tuple[tuple[Array, Array], Array]:
    """Totals and overheads of the first rank, the fullest between and the last, and what the allocator keeps idle there."""
    model, settings, plan, network, software, _ = columns
    with np.errstate(divide="ignore", invalid="ignore"):  # the arm of `where` that is not taken
        count = micro_batches(settings, plan)
        bills = stage_bills(model, settings, plan, network, software, count)
        idles = idle_stages(model, settings, plan, network, software, count)

    def table(numbers: Sequence[object]) -> Array:
        return np.array([np.broadcast_to(np.asarray(one, dtype=float), rows) for one in numbers])

    return (table([bill.total for bill in bills]), table([bill.overhead for bill in bills])), table(idles)

"""Many cases as columns, so that one evaluation of the formulas predicts all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calibration.data.cases import Case
from calibration.data.datasets import dataset_of, memory_kind
from calibration.validate.metrics import Prediction
from costmodel.arithmetic.named_tuples import flat, nested
from costmodel.compilation import programs as rows
from costmodel.description.question import Question
from costmodel.evaluation.engine import unflatten
from costmodel.evaluation.error_model import interval, spread_of
from costmodel.evaluation.own_runs_fit import Array
from costmodel.formulas.pipeline.layout import micro_batches
from costmodel.formulas.quantities import Inputs, Memory, Step
from costmodel.formulas.transformer.memory import (
    idle_stages,
    outside_allocator,
    rank_parameters,
    stage_bills,
    whole_parameters,
)


def evaluated(columns: Inputs) -> Step:
    """Every part of every case's step."""
    program = rows.every_part_of_runs()
    count = len(np.asarray(columns.model.layers))
    return unflatten(list(rows.results_of(program.parts["rows"], rows.scalars_of(program, columns), columns, count)))


def columns_of(cases: Sequence[Case]) -> Inputs:
    """Everything that formulas take, one entry a case."""
    table = [flat(Question(case.model, case.cluster, case.framework).inputs(case.plan)) for case in cases]
    return nested(Inputs, {path: np.array([row[path] for row in table], dtype=float) for path in table[0]})


def logged_memory(cases: Sequence[Case], columns: Inputs, fullest: Memory) -> Array:
    """Peak bytes as each run counted them: of the stage whose rank logs, in the terms of its source.

    Allocated: what tensors hold. Reserved: with the allocator's gaps, and what it keeps idle. Process: with the context and
    the communication library. A verdict counts all but what is idle. Unstated counts as allocated. Where a source's scripts
    load the whole model before it is sharded, that is a moment of the run, too.

    Parameters
    ----------
    cases : what ran
    columns : the cases as columns
    fullest : the fullest stage of each [bytes]
    """
    stage = np.array([dataset_of(case.run).logging_stage for case in cases])
    m = micro_batches(columns.settings, columns.plan)
    with np.errstate(divide="ignore", invalid="ignore"):
        bills = stage_bills(columns.model, columns.settings, columns.plan, columns.network, columns.software, m)
        idles = idle_stages(columns.model, columns.settings, columns.plan, columns.network, columns.software, m)
    total, overhead = np.asarray(fullest.total), np.asarray(fullest.overhead)
    idle = np.zeros(len(cases))
    for bill, unused in zip(bills, idles, strict=True):
        idle = np.where(np.asarray(bill.total) >= np.asarray(fullest.total), unused, idle)
    for place, (bill, unused) in enumerate(zip(bills, idles, strict=True)):
        total = np.where(stage == place, bill.total, total)
        overhead = np.where(stage == place, bill.overhead, overhead)
        idle = np.where(stage == place, unused, idle)
    allocated = total - overhead
    process = total + np.clip(columns.device.memory - total, 0.0, idle)  # given back before memory runs out
    reserved = process - np.asarray(outside_allocator(columns.plan, columns.network, columns.software))
    kind = np.array([memory_kind(case.run) for case in cases])
    within = np.where((kind == "reserved") | (kind == "allocated-or-reserved"), reserved, allocated)
    whole = np.array([dataset_of(case.run).loaded_whole for case in cases]) * np.asarray(columns.plan.shard_weights)
    owned = rank_parameters(columns.model, columns.plan, 1.0, 1.0)
    held = whole_parameters(owned, columns.model.layers, columns.model.experts.layers)
    loaded = whole * columns.settings.widths.parameter * sum(held)
    return np.where(kind == "process", process, np.maximum(within, loaded))


def predictions_of(cases: Sequence[Case], columns: Inputs | None = None) -> list[Prediction]:
    """Every case predicted, with intervals.

    Parameters
    ----------
    cases : what ran
    columns : the cases as columns where constants other than the catalogue's are to be used
    """
    if not cases:
        return []
    columns = columns or columns_of(cases)
    result = evaluated(columns)
    nbytes = logged_memory(cases, columns, result.memory)
    limits, total, needed = (np.asarray(one) for one in (columns.device.memory, result.total, result.memory.total))
    predictions = []
    for row, case in enumerate(cases):
        spread = spread_of(case.framework, case.cluster.device, bool(case.model.experts))
        seconds, held = float(total[row]), float(nbytes[row])
        low, high = interval(seconds, spread.typical)
        least, most = interval(held, spread.memory)
        fits = float(needed[row]) <= float(limits[row])  # more likely than not
        predictions.append(Prediction(case, seconds, low, high, held, least, most, fits))
    return predictions

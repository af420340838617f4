"""Many cases as columns, so that one evaluation of the formulas predicts all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from calibration.data.cases import Case
from calibration.data.datasets import dataset_of
from calibration.validate.metrics import Prediction
from costmodel.evaluation.error_model import interval, spread_of
from costmodel.formulas.quantities import (
    DeviceNumbers,
    Memory,
    ModelNumbers,
    NetworkNumbers,
    PlanNumbers,
    Settings,
    Software,
    Step,
)
from costmodel.formulas.training_step import micro_batches, step, uncompressed_step
from costmodel.formulas.transformer.memory import stage_bills


@dataclasses.dataclass(frozen=True)
class Columns:
    """Everything that formulas take, one entry a case."""

    model: ModelNumbers
    settings: Settings
    plan: PlanNumbers
    network: NetworkNumbers
    software: Software
    device: DeviceNumbers

    def evaluate(self) -> Step:
        """Every part of every case's step."""
        with np.errstate(divide="ignore", invalid="ignore"):
            formula = step if np.any(self.settings.compression.kind) else uncompressed_step
            return formula(self.model, self.settings, self.plan, self.network, self.software, self.device)


def _column(tuples: Sequence[Any]) -> Any:
    """A list of NamedTuples as one NamedTuple of columns, nested ones too."""
    kind = type(tuples[0])
    fields = []
    for index in range(len(kind._fields)):
        values = [item[index] for item in tuples]
        fields.append(_column(values) if isinstance(values[0], tuple) else np.array(values, dtype=float))
    return kind(*fields)


def columns_of(cases: Sequence[Case]) -> Columns:
    """The cases as columns."""
    return Columns(
        model=_column([case.model.numbers() for case in cases]),
        settings=_column([case.plan.settings(case.framework) for case in cases]),
        plan=_column([case.plan.numbers(case.framework, case.model.layers) for case in cases]),
        network=_column([case.cluster.numbers() for case in cases]),
        software=_column([case.framework.numbers() for case in cases]),
        device=_column([case.cluster.device.numbers(case.plan.dtype) for case in cases]),
    )


def logged_memory(cases: Sequence[Case], columns: Columns, fullest: Memory) -> Any:
    """Peak bytes as each run counted them: of the stage whose rank logs, in the terms of its source.

    Allocated: what tensors hold. Reserved: with the allocator's fragmentation. Process: with the context and the
    communication library, which is also what a verdict has to count. Unstated counts as allocated.

    Parameters
    ----------
    cases : what ran
    columns : the cases as columns
    fullest : the fullest stage of each [bytes]
    """
    stage = np.array([dataset_of(case.run).logging_stage for case in cases])
    total, overhead = np.asarray(fullest.total), np.asarray(fullest.overhead)
    if (stage >= 0).any():
        m = micro_batches(columns.settings, columns.plan)
        with np.errstate(divide="ignore", invalid="ignore"):
            bills = stage_bills(columns.model, columns.settings, columns.plan, columns.network, columns.software, m)
        for place, bill in enumerate(bills):
            total = np.where(stage == place, bill.total, total)
            overhead = np.where(stage == place, bill.overhead, overhead)
    allocated = total - overhead
    reserved = allocated * (1.0 + columns.software.memory.fragmentation)
    kind = np.array([case.run.text["memory_kind"] for case in cases])
    within = np.where((kind == "reserved") | (kind == "allocated-or-reserved"), reserved, allocated)
    return np.where(kind == "process", total, within)


def predictions_of(cases: Sequence[Case], columns: Columns | None = None) -> list[Prediction]:
    """Every case predicted, with intervals.

    Parameters
    ----------
    cases : what ran
    columns : the cases as columns where constants other than the catalogue's are to be used
    """
    if not cases:
        return []
    columns = columns or columns_of(cases)
    result = columns.evaluate()
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

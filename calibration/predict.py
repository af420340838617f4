"""Many cases as columns, so that one evaluation of the formulas predicts all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from calibration.cases import Case
from costmodel.formulas.quantities import Device, Model, Network, Options, Plan, Stack, Step
from costmodel.formulas.step import step


@dataclasses.dataclass(frozen=True)
class Columns:
    """Everything that formulas take, one entry a case."""

    model: Model
    options: Options
    plan: Plan
    network: Network
    stack: Stack
    device: Device

    def evaluate(self) -> Step:
        """Every part of every case's step."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return step(self.model, self.options, self.plan, self.network, self.stack, self.device)


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
        options=_column([case.plan.options(case.framework) for case in cases]),
        plan=_column([case.plan.numbers(case.framework, case.model.layers) for case in cases]),
        network=_column([case.cluster.numbers() for case in cases]),
        stack=_column([case.framework.numbers() for case in cases]),
        device=_column([case.cluster.device.numbers(case.plan.dtype) for case in cases]),
    )

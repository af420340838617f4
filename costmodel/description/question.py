"""A question: a model, a cluster and a framework, turned to the numbers of formulas once and passed whole."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

from costmodel.arithmetic.named_tuples import as_column, as_number, stacked
from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.description.plan import Plan
from costmodel.description.transformer import Transformer
from costmodel.formulas import discrepancy
from costmodel.formulas.quantities import (
    DeviceNumbers,
    Inputs,
    ModelNumbers,
    NetworkNumbers,
    Number,
    OwnRun,
    PlanNumbers,
    Settings,
    Software,
)
from costmodel.formulas.transformer import adapters
from costmodel.text.results import brief

TOGETHER = 64
"""Own runs that are asked at a time, as arrays, which stay in a cache; so few are asked one by one."""


@dataclasses.dataclass(frozen=True)
class Question:
    """What is trained, on what, with which software; plans are asked of it, one or many.

    Raises
    ------
    IllegalPlan
        for software that doesn't train on the device
    """

    model: Transformer  # what is trained
    cluster: Cluster  # on what
    framework: Framework  # the software

    __repr__ = brief

    def __post_init__(self) -> None:
        self.framework.check_device(self.cluster.device)
        if self.framework.unties and self.model.tied_embeddings:
            object.__setattr__(self, "model", dataclasses.replace(self.model, tied_embeddings=False))

    @functools.cached_property
    def shape(self) -> ModelNumbers:
        """The model as the numbers that formulas take."""
        return self.model.numbers()

    @functools.cached_property
    def network(self) -> NetworkNumbers:
        """The network as the numbers that formulas take."""
        return self.cluster.numbers()

    @functools.cached_property
    def _parameters(self) -> float:
        return float(self.model.parameters)

    @property
    def software(self) -> Software:
        """The framework's constants."""
        return self.framework.numbers()

    @functools.cached_property
    def _devices(self) -> dict[str, DeviceNumbers]:
        return {}

    def device(self, dtype: str) -> DeviceNumbers:
        """The device as the numbers that formulas take, at the dtype of the GEMMs."""
        if dtype not in self._devices:
            self._devices[dtype] = self.cluster.device.numbers(dtype)
        return self._devices[dtype]

    def settings(self, plan: Plan) -> Settings:
        """What a plan has besides its degrees, the framework's defaults where it says nothing."""
        settings = self.resolved(plan).settings(self.framework)
        share = adapters.trained_share(self.shape, settings, self._parameters)
        return settings._replace(trainable=share)

    def inputs(self, plan: Plan) -> Inputs:
        """Everything that the formula of a step takes of a plan, in its order."""
        plan = self.resolved(plan)
        degrees, device = plan.numbers(self.framework, self.model.layers), self.device(str(plan.dtype))
        return Inputs(self.shape, self.settings(plan), degrees, self.network, self.software, device)

    @functools.cached_property
    def own_runs(self) -> tuple[OwnRun, ...]:
        """What measured steps of this very model, whatever its experts' load, say of plans like theirs."""
        mine = without_load(self.shape)
        return tuple(run for run in self.framework.own_runs if without_load(run.model) == mine)

    @property
    def told(self) -> bool:
        """Whether own runs say anything of plans of this model beyond the constants."""
        return bool(self.own_runs) or self.framework.own_factor != 1.0

    @property
    def told_of_every_plan(self) -> float:
        """Logarithm by which, by own runs, every plan of this model takes longer than the constants say."""
        of_model = discrepancy.SHARED * sum(float(run.discrepancy) for run in self.own_runs)
        return math.log(self.framework.own_factor) + of_model

    def own_runs_stacked(self, axes: int) -> list[OwnRun]:
        """These own runs as arrays along the first of so many axes, at most `TOGETHER` at a time."""
        if axes not in self._stacked:
            runs = self.own_runs
            each = [runs[start : start + TOGETHER] for start in range(0, len(runs), TOGETHER)]
            self._stacked[axes] = [_stacked(some, axes) for some in each]
        return self._stacked[axes]

    @functools.cached_property
    def _stacked(self) -> dict[int, list[OwnRun]]:
        return {}

    def discrepancy(self, settings: Settings, plan: PlanNumbers) -> Number:
        """Logarithm by which own runs of plans alike took longer than the constants say; of a plan, or of columns."""
        found: Number = math.log(self.framework.own_factor)
        if len(self.own_runs) <= TOGETHER:
            for run in self.own_runs:
                found = found + run.discrepancy * discrepancy.correlation(self.shape, settings, plan, run.settings, run.plan)
            return found
        for run in self.own_runs_stacked(2):
            common = discrepancy.correlation(self.shape, settings, plan, run.settings, run.plan)
            found = found + as_column(run.discrepancy * common).sum(axis=0)
        return float(as_column(found)[0]) if all(isinstance(number, float) for number in plan) else found

    def resolved(self, plan: Plan) -> Plan:
        """The plan on the cluster with the framework's defaults, and the dtype of the device where it says none."""
        return plan.on(self.cluster).resolve(self.framework, self.cluster.device)

    def accepted(self, plan: Plan) -> Plan:
        """The plan on the cluster with the framework's defaults; IllegalPlan with the reason where it can't run."""
        resolved = self.resolved(plan)
        resolved.check(self.model, self.cluster, self.framework)
        return resolved


def _stacked(runs: Sequence[OwnRun], axes: int) -> OwnRun:
    """Runs as one of arrays; what each adds is an array even where all add the same."""
    import numpy as np

    adds = np.array([run.discrepancy for run in runs]).reshape(-1, *[1] * (axes - 1))
    return stacked(runs, axes)._replace(discrepancy=as_number(adds))


def without_load(model: ModelNumbers) -> ModelNumbers:
    """A model but for the load of its experts, which is a run's rather than its own."""
    return model._replace(experts=model.experts._replace(load=0.0))

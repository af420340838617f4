"""What a plan needs before its first step and beside its steps: to load a model, and to save one."""

from __future__ import annotations

import dataclasses
import functools

from costmodel.evaluation import engine
from costmodel.formulas.quantities import Inputs
from costmodel.formulas.settings import LOADINGS
from costmodel.formulas.transformer import loading as formula


@dataclasses.dataclass(frozen=True)
class Loading:
    """What it takes to load a model, and to save it."""

    inputs: Inputs = dataclasses.field(repr=False)  # what formulas take of the plan

    @functools.cached_property
    def device_bytes(self) -> float:
        """That the fullest GPU holds at most before the first step begins [bytes]."""
        return float(engine.loading_bytes(self.inputs))

    @property
    def way(self) -> str:
        """In which the model comes to its ranks, of `LOADINGS`: the plan's where weights are sharded, else the framework's."""
        kind = formula.way(self.inputs.settings, self.inputs.plan)
        return next(name for name, code in LOADINGS.items() if code == kind)

    @functools.cached_property
    def host_bytes(self) -> float:
        """Of a node's host memory while the model is read [bytes]; 0 where each rank makes its own part on its GPU."""
        model, settings, plan, network, _, _ = self.inputs
        return float(formula.host_bytes(model, settings, plan, network))

    @functools.cached_property
    def saved_bytes(self) -> float:
        """Of the first node's host memory, where one rank gathers a checkpoint to save it [bytes]; 0 where each saves its own."""
        model, settings, plan, _, _, _ = self.inputs
        return float(formula.saved_bytes(model, settings, plan))

    @property
    def one_rank_host_bytes(self) -> float:
        """What would be `host_bytes` if one rank of a node read the model for all; the same where weights aren't sharded."""
        settings = self.inputs.settings
        alone = settings._replace(loading=settings.loading._replace(kind=formula.ONE_RANK))
        return Loading(self.inputs._replace(settings=alone)).host_bytes

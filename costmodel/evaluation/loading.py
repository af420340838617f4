"""What a plan needs before its first step and beside its steps: to load a model, and to save one."""

from __future__ import annotations

import dataclasses
import functools

from costmodel.evaluation import engine
from costmodel.formulas.quantities import Inputs
from costmodel.formulas.transformer import loading as formula


@dataclasses.dataclass(frozen=True)
class Loading:
    """What it takes to load a model, and to save it.

    Parameters
    ----------
    inputs : what formulas take of the plan
    """

    inputs: Inputs = dataclasses.field(repr=False)

    @functools.cached_property
    def device_bytes(self) -> float:
        """That the fullest GPU holds at most before the first step begins [bytes]."""
        return float(engine.loading_bytes(self.inputs))

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


__all__ = ["Loading"]

"""PyTorch's DistributedDataParallel: that it replicates is a fact of the trace, and what it trains. Tried on torch 2.13."""

from __future__ import annotations

from typing import Any

from costmodel.traces.fake_machine.recorder import Recorder


def patch(module: Any, recorder: Recorder) -> None:
    """Tell when a module is wrapped."""
    real = module.DistributedDataParallel.__init__

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        recorder.facts.setdefault("sharding", "ddp")
        real(self, *args, **kwargs)
        recorder.trained.update({id(parameter): parameter for parameter in self.module.parameters()})

    module.DistributedDataParallel.__init__ = made

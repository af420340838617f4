"""FSDP1: that it shards is a fact of the trace. Tried on torch 2.13."""

from __future__ import annotations

from typing import Any

from costmodel.traces.fake_machine.recorder import Recorder


def patch(module: Any, recorder: Recorder) -> None:
    """Tell when a module is wrapped."""
    real = module.FullyShardedDataParallel.__init__

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        recorder.facts["sharding"] = "fsdp1"
        real(self, *args, **kwargs)

    module.FullyShardedDataParallel.__init__ = made

"""FSDP1: that it shards is a fact of the trace, and it moves buffers in place. Tried on torch 2.13."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from costmodel.traces.fake_machine import values
from costmodel.traces.fake_machine.recorder import Recorder


def patch(module: Any, recorder: Recorder) -> None:
    """Tell when a module is wrapped, whose buffers can then be moved to the device."""
    real = module.FullyShardedDataParallel.__init__

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        recorder.facts["sharding"] = "fsdp1"
        wrapped = args[0] if args else kwargs["module"]
        for part in wrapped.modules():
            for name, buffer in part._buffers.items():
                if type(buffer) is Tensor and buffer.device.type == "cpu":
                    part._buffers[name] = _movable(buffer, recorder)
        real(self, *args, **kwargs)

    module.FullyShardedDataParallel.__init__ = made


def _movable(buffer: Tensor, recorder: Recorder) -> Tensor:
    """A buffer whose ``data`` can be set to a tensor of a device that isn't there, with its values where they may matter."""
    with recorder.fake:
        made = torch.empty_strided(buffer.shape, buffer.stride(), dtype=buffer.dtype, device="cpu")
    if values.worth_knowing(buffer):
        values.learn(made, buffer)
    return made

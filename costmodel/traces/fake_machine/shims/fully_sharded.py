"""FSDP1: that it shards is a fact of the trace, buffers move in place, checkpoints have a rank's own. Tried on torch 2.13."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from costmodel.traces.fake_machine.recorder import Recorder
from costmodel.traces.fake_machine.tensors import fake_copy


def patch(module: Any, recorder: Recorder) -> None:
    """Tell when a module is wrapped, whose buffers can then be moved to the device.

    A checkpoint of its optimizer is put together of what other ranks hold, which nobody knows, and is written nowhere.
    """

    def states(model: Any, optim: Any, optim_state_dict: Any = None, group: Any = None) -> Any:
        recorder.builder.assumed("What FSDP1 gathers for a checkpoint of its optimizer isn't traced.")
        return optim.state_dict() if optim_state_dict is None else optim_state_dict

    module.FullyShardedDataParallel.optim_state_dict = staticmethod(states)
    real = module.FullyShardedDataParallel.__init__

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        recorder.facts["sharding"] = "fsdp1"
        wrapped = args[0] if args else kwargs["module"]
        for part in wrapped.modules():
            for name, buffer in part._buffers.items():
                if type(buffer) is Tensor and buffer.device.type == "cpu":
                    part._buffers[name] = fake_copy(buffer, recorder)
        real(self, *args, **kwargs)

    module.FullyShardedDataParallel.__init__ = made

"""DeepSpeed: that it is used is a fact of the trace; others import it without using it. Tried on deepspeed 0.19."""

from __future__ import annotations

from typing import Any

from costmodel.traces.fake_machine.recorder import Recorder


def patch(module: Any, recorder: Recorder) -> None:
    """Tell when an engine is made, and its stage of ZeRO."""
    real = module.DeepSpeedEngine.__init__

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        recorder.facts["framework"] = "deepspeed"
        real(self, *args, **kwargs)
        recorder.facts["zero_stage"] = str(int(self.zero_optimization_stage()))

    module.DeepSpeedEngine.__init__ = made

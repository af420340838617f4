"""Triton's kernels: none is compiled or run, each is recorded by its operands. Tried on triton 3.4."""

from __future__ import annotations

from typing import Any

from costmodel.traces.fake_machine.handwritten import launched
from costmodel.traces.fake_machine.operators import tensors_in
from costmodel.traces.fake_machine.recorder import Recorder


def patch(module: Any, recorder: Recorder) -> None:
    """What launches a kernel: by itself, and by what chooses its sizes."""
    for kind in (module.jit.JITFunction, module.autotuner.Autotuner, module.autotuner.Heuristics):
        kind.run = _launching(recorder)


def _launching(recorder: Recorder) -> Any:
    def run(self: Any, *args: Any, **kwargs: Any) -> None:
        function = self
        while hasattr(function, "fn") and not hasattr(function, "src"):
            function = function.fn
        launched(recorder, "Triton", getattr(function, "__name__", "kernel"), [*tensors_in(args), *tensors_in(kwargs.values())])

    return run

"""Triton's kernels: none is compiled or run, each is recorded by its operands. Tried on triton 3.4."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from costmodel.traces.fake_machine import values
from costmodel.traces.fake_machine.operators import bytes_of, operands_of, tensors_in
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
        launched(recorder, getattr(function, "__name__", "kernel"), [*tensors_in(args), *tensors_in(kwargs.values())])

    return run


def launched(recorder: Recorder, name: str, tensors: list[Tensor]) -> None:
    """Record a kernel that reads, or writes, each of its operands once.

    Parameters
    ----------
    recorder : of the rank
    name : of the kernel's function
    tensors : that it was given
    """
    recorder.program.engine_moves()
    phase, module, line, stream = recorder.program.state()
    rows = [row for tensor in tensors if (row := recorder.storages.row(tensor)) is not None]
    recorder.builder.assumed(
        f"The Triton kernel {name} is priced by the bytes of its operands: what it computes isn't seen."
    )
    recorder.builder.kernel(
        f"triton.{name}", *operands_of(name, tensors), bytes_read=sum(map(bytes_of, tensors)), stream=stream, phase=phase,
        module=module, line=line, reads=list(dict.fromkeys(rows)), writes=list(dict.fromkeys(rows)),
    )  # fmt: skip
    for tensor in tensors:
        values.forget(tensor)

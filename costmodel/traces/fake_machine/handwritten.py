"""Kernels that a program brings in a language of its own: none is compiled or run, each is recorded by its operands."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from costmodel.traces.fake_machine import values
from costmodel.traces.fake_machine.operators import bytes_of, operands_of, tensors_in
from costmodel.traces.fake_machine.recorder import Recorder


def launched(recorder: Recorder, language: str, name: str, tensors: list[Tensor]) -> None:
    """Record a kernel that reads, or writes, each of its operands once.

    Parameters
    ----------
    recorder : of the rank
    language : that it is written in
    name : of the kernel's function
    tensors : that it was given
    """
    recorder.program.engine_moves()
    phase, module, line, stream = recorder.program.state()
    rows = [row for tensor in tensors if (row := recorder.storages.row(tensor)) is not None]
    recorder.builder.assumed(f"The {language} kernel {name} is priced by the bytes of its operands: what it computes isn't seen.")
    recorder.builder.kernel(
        f"{language.lower()}.{name}", *operands_of(name, tensors), bytes_read=sum(map(bytes_of, tensors)), stream=stream,
        phase=phase, module=module, line=line, reads=list(dict.fromkeys(rows)), writes=list(dict.fromkeys(rows)),
    )  # fmt: skip
    for tensor in tensors:
        values.forget(tensor)


class CudaKernel:
    """What `torch.cuda._compile_kernel` gives.

    Parameters
    ----------
    recorder : of the rank
    name : of the kernel's function
    """

    def __init__(self, recorder: Recorder, name: str):
        self.recorder, self.name = recorder, name

    def __call__(self, grid: Any = None, block: Any = None, args: Any = None, shared_mem: int = 0, stream: Any = None) -> None:
        """Launch it."""
        launched(self.recorder, "CUDA", self.name, list(tensors_in(args or [])))

    def set_shared_memory_config(self, shared_mem_bytes: int) -> None:
        """Ask for more shared memory."""

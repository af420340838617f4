"""DeepSpeed's own kernels, which it compiles where a GPU is: its optimizers'. Tried on deepspeed 0.19."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from costmodel.text.errors import NotModelled
from costmodel.traces.fake_machine import values
from costmodel.traces.fake_machine.operators import bytes_of, operands_of
from costmodel.traces.fake_machine.recorder import LARGE, Recorder
from costmodel.traces.record import PROCESSORS


def patch(module: Any, recorder: Recorder) -> None:
    """What is loaded of an operator that DeepSpeed would compile."""
    module.OpBuilder.load = lambda self, verbose=True: _made(recorder, self.name)


def _made(recorder: Recorder, name: str) -> Any:
    def updates(kernel: str) -> Any:
        """One kernel over lists of gradients, weights and states."""

        def update(chunk: int, overflow: Tensor, lists: Sequence[Sequence[Tensor]], *_: Any) -> None:
            gradients, *others = lists  # weights and states
            written = [tensor for one in others for tensor in one]
            _launched(recorder, kernel, [*gradients, *written], written)

        return update

    def lamb(weight: Tensor, copy: Tensor, first: Tensor, second: Tensor, gradient: Tensor, *_: Any) -> Tensor:
        copies = [copy] if copy.numel() else []
        _launched(recorder, "lamb", [gradient, weight, first, second], [first, second])
        _launched(recorder, "lamb", [weight, first, second], [weight, *copies])
        return torch.ones((), device=weight.device)

    def on_host(number: int, step: int, *others: Any) -> None:
        """Of weight, gradient and states, which lie on the host."""
        weight, gradient, *kept = [one for one in others if isinstance(one, Tensor)]
        _launched(recorder, name, [weight, gradient, *kept], [weight, *kept])

    def nothing(*_: Any) -> int:
        return 0

    kind = name.removeprefix("cpu_")
    hosts: dict[str, Any] = {f"{word}_{kind}": nothing for word in ("create", "destroy")}
    hosts |= {f"{kind}_{word}": on_host for word in ("update", "rollback")}
    known: dict[str, dict[str, Any]] = {
        "fused_adam": {"multi_tensor_adam": updates("multi_tensor_adam")},
        "fused_lion": {"multi_tensor_lion": updates("multi_tensor_lion")},
        "fused_lamb": {"lamb": lamb}, "cpu_adam": hosts, "cpu_adagrad": hosts, "cpu_lion": hosts,
        "utils": {"flatten": torch._utils._flatten_dense_tensors, "unflatten": torch._utils._unflatten_dense_tensors},
    }  # fmt: skip
    if name not in known:
        raise NotModelled(f"{recorder.where.line()}: DeepSpeed's {name} is compiled where a GPU is, and has no stand-in here")
    return SimpleNamespace(**known[name])


def _launched(recorder: Recorder, name: str, reads: list[Tensor], writes: list[Tensor]) -> None:
    """Record a kernel that reads and writes so much, on the device or on the host."""
    on_host = writes[0].device.type == "cpu"
    if on_host and all(tensor.numel() <= LARGE for tensor in reads):
        return
    recorder.program.engine_moves()
    phase, module, line, stream = recorder.program.state()
    rows = [[row for tensor in tensors if (row := recorder.storages.row(tensor)) is not None] for tensors in (reads, writes)]
    recorder.builder.kernel(
        f"deepspeed.{name}", *operands_of("_fused", reads), bytes_read=sum(map(bytes_of, reads)),
        bytes_written=sum(map(bytes_of, writes)), stream=recorder.builder.stream(PROCESSORS) if on_host else stream,
        phase=phase, module=module, line=line, reads=[] if on_host else rows[0], writes=[] if on_host else rows[1],
    )  # fmt: skip
    for tensor in writes:
        values.forget(tensor)

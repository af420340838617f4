"""A transaction that was launched, as the program that waits for it sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from costmodel.traces.fake_machine.recorder import Recorder


class Done(dist._Work):
    """A transaction that was launched: who waits for it waits on the stream that he runs on."""

    def __init__(self, recorder: Recorder, results: Sequence[Tensor], events: Sequence[int], host: bool = False):
        super().__init__()
        self._recorder, self._results, self._events, self._host = recorder, list(results), list(events), host

    def wait(self, timeout: Any = None) -> bool:
        """What comes on this stream waits."""
        recorder = self._recorder
        for event in self._events:
            recorder.builder.stream_wait(event, recorder.program.stream(), recorder.where.line())
        if self._host and self._events:  # ProcessGroupNCCL.cpp: a barrier waits for the stream that it is called on
            recorder.host_waits()
        return True

    synchronize = wait

    def block_current_stream(self) -> None:
        """As `wait`."""
        self.wait()

    def is_completed(self) -> bool:
        """It has come."""
        return True

    def is_success(self) -> bool:
        """It went well."""
        return True

    def exception(self) -> None:
        """None."""

    def result(self) -> list[Tensor]:
        """Tensors that it wrote."""
        return self._results

    def get_future(self) -> Any:
        """For DDP's reducer, which waits for it at the end of the backward pass."""
        future: Any = torch.futures.Future()
        future.set_result(self._results)
        if torch._C._current_graph_task_id() != -1 and self._events:
            torch.autograd.Variable._execution_engine.queue_callback(self.wait)  # type: ignore[attr-defined]
        return future

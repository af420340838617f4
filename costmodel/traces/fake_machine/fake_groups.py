"""Process groups of any size in which one rank is there: what it exchanges goes into the record, its partners are alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from costmodel.traces.fake_machine import values
from costmodel.traces.fake_machine.exchanged import copied, gathered, reduced
from costmodel.traces.fake_machine.letters import Letters
from costmodel.traces.fake_machine.mailbox import Mailbox
from costmodel.traces.fake_machine.named_groups import NamedGroup
from costmodel.traces.fake_machine.operators import bytes_of, word_of
from costmodel.traces.fake_machine.recorder import Recorder
from costmodel.traces.fake_machine.works import Done
from costmodel.traces.record import NOWHERE, RECEIVE, SEND, SEVERAL

OF_STATES = ("all-reduce", "all-gather", "reduce-scatter")
"""What weights and gradients are exchanged by."""


@dataclasses.dataclass
class _Pending:
    works: list[Done] = dataclasses.field(default_factory=list)


class FakeGroup(NamedGroup):
    """A process group, as the rank in it sees it."""

    def __init__(self, recorder: Recorder, mailbox: Mailbox | None, name: str, rank: int, ranks: Sequence[int], backend: str):
        super().__init__(name, rank, ranks, backend)
        self.recorder, self.letters = recorder, Letters(mailbox, self.ranks, self.ranks[rank])
        self.number = recorder.builder.group(self.ranks)
        self._channel = f"nccl {self.number}"
        self._pending: _Pending | None = None

    # -- collectives ------------------------------------------------------------------------------------------------

    def launched(
        self,
        op: str,
        nbytes: int,
        outs: Sequence[Tensor],
        others: Sequence[Tensor] = (),
        *,
        peer: int = NOWHERE,
        channel: str = "",
        tag: int = 0,
    ) -> list[int]:
        """Record a transaction; gives the event of its end, none where it is between hosts."""
        recorder, tensors = self.recorder, [*outs, *others]
        first = next((tensor for tensor in tensors if tensor.device.type == "cuda"), None)
        if first is None:
            return []
        recorder.program.engine_moves()
        phase, module, line, stream = recorder.program.state()
        rows = [row for tensor in tensors if (row := recorder.storages.row(tensor, op)) is not None]
        put_together = op in OF_STATES and recorder.storages.put_together(others or outs)
        for tensor in tensors if put_together else ():
            recorder.storages.is_bucket(tensor)
        event = recorder.builder.transaction(
            op, nbytes, word_of(first.dtype), group=self.number, peer=peer,
            stream=recorder.builder.stream(channel or self._channel), phase=phase, module=module, line=line,
            storage=rows[0] if rows else NOWHERE, tag=tag, issued_from=stream,
            parameter=recorder.storages.parameter_of(tensors) or (SEVERAL if put_together else ""),
        )  # fmt: skip
        return [event]

    def _work(self, op: str, nbytes: int, outs: Sequence[Tensor], others: Sequence[Tensor] = (), **how: Any) -> Done:
        work = Done(self.recorder, outs, self.launched(op, nbytes, outs, others, **how))
        if self._pending is not None:
            self._pending.works.append(work)
        return work

    def allreduce(self, tensors: Any, opts: Any = None) -> Done:
        """All-reduce."""
        tensors = [tensors] if isinstance(tensors, Tensor) else tensors
        reduced(tensors, opts, len(self.ranks))
        return self._work("all-reduce", sum(map(bytes_of, tensors)), tensors)

    allreduce_coalesced = allreduce

    def reduce(self, tensors: Any, opts: Any = None) -> Done:
        """Reduction to one."""
        tensors = [tensors] if isinstance(tensors, Tensor) else tensors
        reduced(tensors, opts, len(self.ranks))
        return self._work("reduce", sum(map(bytes_of, tensors)), tensors, peer=self.ranks[getattr(opts, "rootRank", 0)])

    def broadcast(self, tensors: Any, opts: Any = None) -> Done:
        """Broadcast; what steers the program comes from its root."""
        tensors = [tensors] if isinstance(tensors, Tensor) else tensors
        root = self.ranks[getattr(opts, "rootRank", 0) if opts is not None else 0]
        for tensor in tensors:
            self.letters.tell(tensor, root, self.recorder.where.line())
        return self._work("broadcast", sum(map(bytes_of, tensors)), tensors, peer=root)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Done:
        """All-gather into a list."""
        outs = [out for some in outputs for out in ([some] if isinstance(some, Tensor) else some)]
        for tensor in [inputs] if isinstance(inputs, Tensor) else inputs:
            copied(outs, tensor)
        return self._work("all-gather", sum(map(bytes_of, outs)), outs, list(inputs))

    allgather_coalesced = allgather

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Done:
        """All-gather into one tensor."""
        gathered(output, input, len(self.ranks))
        return self._work("all-gather", bytes_of(output), [output], [input])

    _allgather_base = all_gather_single

    def allgather_into_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Done:
        """All-gathers in one launch."""
        for output, input in zip(outputs, inputs, strict=True):
            gathered(output, input, len(self.ranks))
        return self._work("all-gather", sum(map(bytes_of, outputs)), list(outputs), list(inputs))

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Done:
        """Reduce-scatter from a list."""
        parts = [part for some in inputs for part in ([some] if isinstance(some, Tensor) else some)]
        outs = [outputs] if isinstance(outputs, Tensor) else list(outputs)
        for out in outs:
            values.forget(out)
        return self._work("reduce-scatter", sum(map(bytes_of, parts)), outs, parts)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Done:
        """Reduce-scatter from one tensor."""
        values.forget(output)
        return self._work("reduce-scatter", bytes_of(input), [output], [input])

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Done:
        """Reduce-scatters in one launch."""
        for out in outputs:
            values.forget(out)
        return self._work("reduce-scatter", sum(map(bytes_of, inputs)), list(outputs), list(inputs))

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def alltoall_base(
        self, output: Tensor, input: Tensor, output_splits: Any = None, input_splits: Any = None, opts: Any = None
    ) -> Done:
        """All-to-all of one tensor; all ranks are taken to send what this one sends."""
        value = values.known(input)
        if value is not None and value.numel() == output.numel():
            part = value.flatten()[: max(1, value.numel() // len(self.ranks))].repeat(len(self.ranks))
            copied([output], value if part.numel() != value.numel() else part.reshape(output.shape))
            if not output.dtype.is_floating_point:
                self.recorder.builder.assumed("What other ranks send in an all-to-all taken as what this one sends itself.")
        else:
            values.forget(output)
        return self._work("all-to-all", bytes_of(input), [output], [input])

    all_to_all_single = alltoall_base

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Done:
        """All-to-all of lists."""
        for out, tensor in zip(outputs, inputs, strict=False):
            copied([out], tensor)
        return self._work("all-to-all", sum(map(bytes_of, inputs)), list(outputs), list(inputs))

    def gather(self, outputs: Any, inputs: Any, opts: Any = None) -> Done:
        """Gather to one."""
        outs = [out for some in outputs for out in some]
        for tensor in inputs:
            copied(outs, tensor)
        root = self.ranks[getattr(opts, "rootRank", 0)]
        return self._work("gather", sum(map(bytes_of, inputs)) * len(self.ranks), outs, list(inputs), peer=root)

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Done:
        """Scatter from one."""
        root = self.ranks[getattr(opts, "rootRank", 0)]
        parts = [part for some in inputs for part in some]
        self.letters.deal(outputs, parts, root, self.recorder.where.line())
        return self._work("scatter", sum(map(bytes_of, outputs)) * len(self.ranks), list(outputs), parts, peer=root)

    def barrier(self, opts: Any = None) -> Done:
        """Barrier: NCCL sums one number, and the host waits."""
        events: list[int] = []
        recorder = self.recorder
        if self._backend != "gloo":
            phase, module, line, stream = recorder.program.state()
            events.append(
                recorder.builder.transaction(
                    "barrier",
                    4,
                    "float32",
                    group=self.number,
                    stream=recorder.builder.stream(self._channel),
                    phase=phase,
                    module=module,
                    line=line,
                    issued_from=stream,
                )
            )
        return Done(recorder, [], events, host=True)

    def monitored_barrier(self, *_: Any, **__: Any) -> None:
        """Nothing to wait for."""

    # -- two ranks --------------------------------------------------------------------------------------------------

    def send(self, tensors: Any, peer: int, tag: int = 0) -> Done:
        """Send to a rank."""
        target = self.ranks[peer]
        for tensor in tensors:
            self.letters.send(tensor, target, tag)
        return self._work(
            SEND, sum(map(bytes_of, tensors)), list(tensors), peer=target, channel=self._pair(SEND, target), tag=tag
        )

    def recv(self, tensors: Any, peer: int, tag: int = 0) -> Done:
        """Receive from a rank."""
        source = self.ranks[peer]
        for tensor in tensors:
            self.letters.receive(tensor, source, tag, self.recorder.where.line())
        return self._work(
            RECEIVE, sum(map(bytes_of, tensors)), list(tensors), peer=source, channel=self._pair(RECEIVE, source), tag=tag
        )

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Done:
        """Receive from whoever sends: taken as the rank before this one."""
        return self.recv(tensors, (self._rank - 1) % len(self.ranks), tag)

    def _pair(self, op: str, peer: int) -> str:
        if self._pending is not None:
            return f"{self._channel} {op} {peer}"
        return f"{self._channel} with {peer}"

    # -- several at once --------------------------------------------------------------------------------------------

    def _start_coalescing(self, device: Any) -> None:
        self._pending = _Pending()

    def _end_coalescing(self, device: Any) -> Done:
        works, self._pending = (self._pending or _Pending()).works, None
        return Done(
            self.recorder, [out for work in works for out in work.result()], [event for work in works for event in work._events]
        )

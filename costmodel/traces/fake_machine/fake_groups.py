"""Process groups of any size in which one rank is there: what it exchanges goes into the record, its partners are alike."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from costmodel.traces.fake_machine import values
from costmodel.traces.fake_machine.mailbox import Mailbox
from costmodel.traces.fake_machine.recorder import Recorder, _bytes, _word
from costmodel.traces.record import NOWHERE, RECEIVE, SEND, SEVERAL

OF_STATES = ("all-reduce", "all-gather", "reduce-scatter")
"""What weights and gradients are exchanged by."""


class Done(dist._Work):
    """A transaction that was launched: who waits for it waits on the stream that he runs on."""

    def __init__(self, group: FakeGroup, results: Sequence[Tensor], events: Sequence[int], host: bool = False):
        super().__init__()
        self._group, self._results, self._events, self._host = group, list(results), list(events), host

    def wait(self, timeout: Any = None) -> bool:
        """What comes on this stream waits."""
        recorder = self._group.recorder
        for event in self._events:
            recorder.builder.stream_wait(event, recorder.stream(), recorder.where.line())
            if self._host:
                recorder.host_waits(event=event)
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


@dataclasses.dataclass
class _Pending:
    works: list[Done] = dataclasses.field(default_factory=list)


class FakeGroup(dist.ProcessGroup):
    """A process group, as the rank in it sees it."""

    def __init__(
        self,
        recorder: Recorder,
        mailbox: Mailbox | None,
        name: str,
        rank: int,
        ranks: Sequence[int],
        backend: str,
    ):
        super().__init__(rank, len(ranks))
        self.recorder, self.mailbox, self._name, self._rank, self.ranks, self._backend = (
            recorder,
            mailbox,
            name,
            rank,
            tuple(ranks),
            backend,
        )
        self.number = recorder.builder.group(self.ranks)
        self._channel = f"nccl {self.number}"
        self._letters: dict[Any, int] = {}
        self._pending: _Pending | None = None
        self._description = ""

    def getBackendName(self) -> str:
        """What the program asked for."""
        return self._backend

    def getRank(self) -> int:
        """Place of this rank."""
        return self._rank

    def getSize(self) -> int:
        """Members."""
        return len(self.ranks)

    def getGroupName(self) -> str:
        """Its name."""
        return self._name

    def setGroupName(self, name: str) -> None:
        """Name it."""
        self._name = name

    def getGroupDesc(self) -> str:
        """What it is for."""
        return self._description

    def setGroupDesc(self, description: str) -> None:
        """Say what it is for."""
        self._description = description

    group_name = property(lambda self: self._name)
    group_desc = property(lambda self: self._description)
    bound_device_id = None

    def rank(self) -> int:
        """Place of this rank."""
        return self._rank

    def size(self) -> int:
        """Members."""
        return len(self.ranks)

    def name(self) -> str:
        """What the program asked for."""
        return self._backend

    def _get_backend(self, device: Any) -> Any:
        return _Backend(self)

    def _get_backend_name(self) -> str:
        return self._backend

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def _set_group_desc(self, description: str) -> None:
        self._description = description

    def _set_default_backend(self, kind: Any) -> None:
        pass

    def _get_sequence_number_for_group(self) -> int:
        return 0

    def _has_hooks(self) -> bool:
        return False

    def shutdown(self) -> None:
        """Nothing to end."""

    def abort(self) -> None:
        """Nothing to end."""

    def set_timeout(self, timeout: Any) -> None:
        """Nothing hangs here."""

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
        recorder._engine_moves()
        phase, module, line, stream = recorder.state()
        rows = [row for tensor in tensors if (row := recorder.storage(tensor, op)) is not None]
        put_together = op in OF_STATES and recorder.put_together(others or outs)
        for tensor in tensors if put_together else ():
            recorder.is_bucket(tensor)
        event = recorder.builder.transaction(
            op,
            nbytes,
            _word(first.dtype),
            group=self.number,
            peer=peer,
            stream=recorder.builder.stream(channel or self._channel),
            phase=phase,
            module=module,
            line=line,
            storage=rows[0] if rows else NOWHERE,
            tag=tag,
            issued_from=stream,
            parameter=recorder.parameter_of(tensors) or (SEVERAL if put_together else ""),
        )
        return [event]

    def _work(
        self, op: str, nbytes: int, outs: Sequence[Tensor], others: Sequence[Tensor] = (), **how: Any
    ) -> Done:
        work = Done(self, outs, self.launched(op, nbytes, outs, others, **how))
        if self._pending is not None:
            self._pending.works.append(work)
        return work

    def _reduced(self, tensors: Sequence[Tensor], opts: Any) -> None:
        sums = "SUM" in str(getattr(opts, "reduceOp", opts)).upper()
        for tensor in tensors:
            value = values.known(tensor)
            if value is None:
                values.forget(tensor)
            elif sums and tensor.numel():
                with torch.no_grad():
                    value.mul_(len(self.ranks))

    def _copied(self, outs: Sequence[Tensor], source: Tensor) -> None:
        value = values.known(source)
        for out in outs:
            if value is None:
                values.forget(out)
            elif not isinstance(out, FakeTensor):
                out.copy_(
                    value.reshape(out.shape)
                    if value.numel() == out.numel()
                    else value.flatten()[: out.numel()].reshape(out.shape)
                )
            elif values.worth_knowing(out) and value.numel() == out.numel():
                values.learn(out, value.reshape(out.shape).to(out.dtype, copy=True))
            else:
                values.forget(out)

    def allreduce(self, tensors: Any, opts: Any = None) -> Done:
        """All-reduce."""
        tensors = [tensors] if isinstance(tensors, Tensor) else tensors
        self._reduced(tensors, opts)
        return self._work("all-reduce", sum(map(_bytes, tensors)), tensors)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Done:
        """All-reduces in one launch."""
        return self.allreduce(tensors, opts)

    def reduce(self, tensors: Any, opts: Any = None) -> Done:
        """Reduction to one."""
        tensors = [tensors] if isinstance(tensors, Tensor) else tensors
        self._reduced(tensors, opts)
        return self._work(
            "reduce", sum(map(_bytes, tensors)), tensors, peer=self.ranks[getattr(opts, "rootRank", 0)]
        )

    def broadcast(self, tensors: Any, opts: Any = None) -> Done:
        """Broadcast; what steers the program comes from its root."""
        tensors = [tensors] if isinstance(tensors, Tensor) else tensors
        root = self.ranks[getattr(opts, "rootRank", 0) if opts is not None else 0]
        for tensor in tensors:
            self._told(tensor, root, "broadcast")
        return self._work("broadcast", sum(map(_bytes, tensors)), tensors, peer=root)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Done:
        """All-gather into a list."""
        outs = [out for some in outputs for out in ([some] if isinstance(some, Tensor) else some)]
        for tensor in [inputs] if isinstance(inputs, Tensor) else inputs:
            self._copied(outs, tensor)
        return self._work("all-gather", sum(map(_bytes, outs)), outs, list(inputs))

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Done:
        """All-gathers in one launch."""
        return self.allgather(outputs, inputs, opts)

    def _allgather_base(self, output: Tensor, input: Tensor, opts: Any = None) -> Done:
        self._gathered(output, input)
        return self._work("all-gather", _bytes(output), [output], [input])

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Done:
        """All-gather into one tensor."""
        return self._allgather_base(output, input, opts)

    def _gathered(self, output: Tensor, input: Tensor) -> None:
        value = values.known(input)
        if value is None or not values.worth_knowing(output):
            values.forget(output)
            return
        many = value.flatten().repeat(len(self.ranks)).reshape(output.shape)
        if isinstance(output, FakeTensor):
            values.learn(output, many)
        else:
            output.copy_(many)

    def allgather_into_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Done:
        """All-gathers in one launch."""
        for output, input in zip(outputs, inputs, strict=True):
            self._gathered(output, input)
        return self._work("all-gather", sum(map(_bytes, outputs)), list(outputs), list(inputs))

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Done:
        """Reduce-scatter from a list."""
        parts = [part for some in inputs for part in ([some] if isinstance(some, Tensor) else some)]
        outs = [outputs] if isinstance(outputs, Tensor) else list(outputs)
        for out in outs:
            values.forget(out)
        return self._work("reduce-scatter", sum(map(_bytes, parts)), outs, parts)

    def _reduce_scatter_base(self, output: Tensor, input: Tensor, opts: Any = None) -> Done:
        values.forget(output)
        return self._work("reduce-scatter", _bytes(input), [output], [input])

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Done:
        """Reduce-scatter from one tensor."""
        return self._reduce_scatter_base(output, input, opts)

    def reduce_scatter_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Done:
        """Reduce-scatters in one launch."""
        for out in outputs:
            values.forget(out)
        return self._work("reduce-scatter", sum(map(_bytes, inputs)), list(outputs), list(inputs))

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def alltoall_base(
        self,
        output: Tensor,
        input: Tensor,
        output_splits: Any = None,
        input_splits: Any = None,
        opts: Any = None,
    ) -> Done:
        """All-to-all of one tensor; all ranks are taken to send what this one sends."""
        value = values.known(input)
        if value is not None and value.numel() == output.numel():
            part = value.flatten()[: max(1, value.numel() // len(self.ranks))].repeat(len(self.ranks))
            self._copied([output], value if part.numel() != value.numel() else part.reshape(output.shape))
            if not output.dtype.is_floating_point:
                self.recorder.builder.assumed(
                    "What other ranks send in an all-to-all taken as what this one sends itself."
                )
        else:
            values.forget(output)
        return self._work("all-to-all", _bytes(input), [output], [input])

    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,
        output_splits: Any = None,
        input_splits: Any = None,
        opts: Any = None,
    ) -> Done:
        """All-to-all of one tensor."""
        return self.alltoall_base(output, input, output_splits, input_splits, opts)

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Done:
        """All-to-all of lists."""
        for out, tensor in zip(outputs, inputs, strict=False):
            self._copied([out], tensor)
        return self._work("all-to-all", sum(map(_bytes, inputs)), list(outputs), list(inputs))

    def gather(self, outputs: Any, inputs: Any, opts: Any = None) -> Done:
        """Gather to one."""
        outs = [out for some in outputs for out in some]
        for tensor in inputs:
            self._copied(outs, tensor)
        root = self.ranks[getattr(opts, "rootRank", 0)]
        return self._work("gather", sum(map(_bytes, inputs)) * len(self.ranks), outs, list(inputs), peer=root)

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Done:
        """Scatter from one."""
        root = self.ranks[getattr(opts, "rootRank", 0)]
        parts = [part for some in inputs for part in some]
        for out in outputs:
            if parts:
                self._copied([out], parts[self._rank])
            else:
                values.forget(out)
        return self._work(
            "scatter", sum(map(_bytes, outputs)) * len(self.ranks), list(outputs), parts, peer=root
        )

    def barrier(self, opts: Any = None) -> Done:
        """Barrier: NCCL sums one number, and the host waits."""
        events: list[int] = []
        recorder = self.recorder
        if self._backend != "gloo":
            phase, module, line, stream = recorder.state()
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
        return Done(self, [], events, host=True)

    def monitored_barrier(self, *_: Any, **__: Any) -> None:
        """Nothing to wait for."""

    # -- two ranks --------------------------------------------------------------------------------------------------

    def send(self, tensors: Any, peer: int, tag: int = 0) -> Done:
        """Send to a rank."""
        target = self.ranks[peer]
        for tensor in tensors:
            if self.mailbox is not None:
                self.mailbox.want(target)
                if _steers(tensor):
                    value = values.known(tensor)
                    self.mailbox.post(
                        self._key(self._me, target, tag), None if value is None else value.detach().clone()
                    )
        return self._work(
            SEND,
            sum(map(_bytes, tensors)),
            list(tensors),
            peer=target,
            channel=self._pair(SEND, target),
            tag=tag,
        )

    def recv(self, tensors: Any, peer: int, tag: int = 0) -> Done:
        """Receive from a rank."""
        source = self.ranks[peer]
        for tensor in tensors:
            if self.mailbox is not None:
                self.mailbox.want(source)
            if self.mailbox is not None and _steers(tensor):
                self._put(
                    tensor,
                    self.mailbox.take(self._key(source, self._me, tag), source, self.recorder.where.line()),
                )
            else:
                values.forget(tensor)
        return self._work(
            RECEIVE,
            sum(map(_bytes, tensors)),
            list(tensors),
            peer=source,
            channel=self._pair(RECEIVE, source),
            tag=tag,
        )

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Done:
        """Receive from whoever sends: taken as the rank before this one."""
        return self.recv(tensors, (self._rank - 1) % len(self.ranks), tag)

    @property
    def _me(self) -> int:
        return self.ranks[self._rank]

    def _pair(self, op: str, peer: int) -> str:
        if self._pending is not None:
            return f"{self._channel} {op} {peer}"
        return f"{self._channel} with {peer}"

    def _key(self, source: int, target: int, tag: int) -> str:
        key = (self.ranks, source, target, tag)
        number = self._letters[key] = self._letters.get(key, 0) + 1
        return f"{key} {number}"

    def _told(self, tensor: Tensor, root: int, what: str) -> None:
        """What a root tells all, where it steers the program."""
        if self.mailbox is None or len(self.ranks) == 1 or not _steers(tensor):
            if values.known(tensor) is None:
                values.forget(tensor)
            return
        key = self._key(root, NOWHERE, 0)
        if root == self._me:
            value = values.known(tensor)
            self.mailbox.post(key, None if value is None else value.detach().clone())
        else:
            self._put(tensor, self.mailbox.take(key, root, self.recorder.where.line()))

    def _put(self, tensor: Tensor, value: Tensor | None) -> None:
        if value is None:
            values.forget(tensor)
        elif isinstance(tensor, FakeTensor):
            values.learn(tensor, value.reshape(tensor.shape))
        else:
            with torch.no_grad():
                tensor.copy_(value.reshape(tensor.shape))

    # -- several at once --------------------------------------------------------------------------------------------

    def _start_coalescing(self, device: Any) -> None:
        self._pending = _Pending()

    def _end_coalescing(self, device: Any) -> Done:
        works, self._pending = (self._pending or _Pending()).works, None
        return Done(
            self,
            [out for work in works for out in work._results],
            [event for work in works for event in work._events],
        )


class _Backend:
    """What a group answers of the library behind it."""

    supports_splitting = supports_coalescing = supports_time_estimate = False

    def __init__(self, group: FakeGroup):
        self._group = group
        self.options = _Options(group)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._group, name)

    def eager_connect_single_device(self, device: Any) -> None:
        """Nothing to connect."""

    def _is_initialized(self) -> bool:
        return True

    def get_error(self) -> None:
        """None."""


class _Options:
    def __init__(self, group: FakeGroup):
        self._timeout = datetime.timedelta(minutes=10)
        self.global_ranks_in_group, self.group_name, self.config = list(group.ranks), group._name, None
        self.is_high_priority_stream = False


def _steers(tensor: Tensor) -> bool:
    """Whether a tensor's values may steer the program: whole numbers, pickled objects."""
    return not tensor.dtype.is_floating_point and tensor.numel() <= values.MOST_WHOLE


@dataclasses.dataclass(frozen=True)
class _Replacements:
    """What a process calls to make groups, and to send through them, here."""

    recorder: Recorder
    mailbox: Mailbox | None
    rank: int
    world: int
    init_process_group: Any = dist.init_process_group
    """PyTorch's own."""
    batch_isend_irecv: Any = c10d.batch_isend_irecv

    def made(
        self,
        group_size: int,
        group_rank: int,
        members: Sequence[int],
        backend: Any,
        store: Any,
        group_name: Any,
        backend_options: Any = None,
        timeout: Any = None,
        pg_tag: Any = None,
        device_id: Any = None,
        group_desc: Any = None,
        **_: Any,
    ) -> tuple[Any, Any]:
        """A group of some ranks."""
        if pg_tag not in (None, ""):
            existing = c10d._find_pg_by_ranks_and_tag(pg_tag, members)
            if existing:
                return existing, c10d._world.pg_map[existing][1]
        if members and self.rank not in members:
            return dist.GroupMember.NON_GROUP_MEMBER, None
        ranks = list(members) or list(range(group_size))
        config = c10d.BackendConfig(c10d.Backend(backend if backend else "undefined"))
        named = "gloo" if str(backend) == "gloo" else "nccl"
        group = FakeGroup(self.recorder, self.mailbox, str(group_name), ranks.index(self.rank), ranks, named)
        group._set_group_desc(group_desc or "undefined")
        tag = "" if pg_tag in (None, "") else f"user:{pg_tag}"
        how: dict[str, Any] = {"add_to_default_tag": True} if not tag else {"pg_tag": tag}
        name = str(backend) if backend and str(backend) != "undefined" else "nccl"
        c10d._register_pg_in_world(
            group, backend_name=name, store=store, group_name=group_name, backend_config=str(config), **how
        )
        return group, store

    def begun(
        self,
        backend: Any = None,
        init_method: Any = None,
        timeout: Any = None,
        world_size: int = -1,
        rank: int = -1,
        store: Any = None,
        group_name: str = "",
        pg_options: Any = None,
        device_id: Any = None,
        **others: Any,
    ) -> None:
        """The group of all ranks."""
        self.init_process_group(
            backend=backend,
            timeout=timeout,
            world_size=self.world,
            rank=self.recorder.builder.rank,
            store=dist.HashStore(),
            group_name=group_name,
        )

    def batched(self, operations: list[Any]) -> list[Any]:
        """Messages of one launch, none of which waits for another."""
        groups = {id(one.group): one.group for one in operations if isinstance(one.group, FakeGroup)}.values()
        for group in groups:
            group._start_coalescing(None)
        try:
            works: list[Any] = self.batch_isend_irecv(operations)
        finally:
            for group in groups:
                group._end_coalescing(None)
        return works

    def listed(self) -> list[tuple[Any, str, Any]]:
        """Owner, name and what takes its place."""
        return [
            (dist, "batch_isend_irecv", self.batched),
            (c10d, "batch_isend_irecv", self.batched),
            (dist, "init_process_group", self.begun),
            (c10d, "init_process_group", self.begun),
            (c10d, "_new_process_group_helper", self.made),
            (dist, "_verify_params_across_processes", lambda *_, **__: None),
            (dist, "is_nccl_available", lambda: True),
            (c10d, "is_nccl_available", lambda: True),
            (torch.distributed.utils, "_verify_param_shape_across_processes", lambda *_, **__: None),
            (torch.nn.parallel.distributed, "_verify_param_shape_across_processes", lambda *_, **__: None),
            (dist.Logger, "set_runtime_stats_and_log", lambda self: None),
            (dist, "monitored_barrier", lambda *_, **__: None),
            (c10d, "_get_pg_default_device", lambda group=None: torch.device("cuda")),
        ]


@contextlib.contextmanager
def installed(recorder: Recorder, mailbox: Mailbox | None, rank: int, world: int) -> Iterator[None]:
    """Make process groups of this kind while it is entered.

    Parameters
    ----------
    recorder : of what they exchange
    mailbox : to other traced ranks; None where there are none
    rank, world : of this process
    """
    recorder.world = world
    replaced = [
        (owner, name, value)
        for owner, name, value in _Replacements(recorder, mailbox, rank, world).listed()
        if hasattr(owner, name)
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in replaced]
    try:
        for owner, name, value in replaced:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)

"""Watches every operator of a rank: runs it without arithmetic where its device isn't there, and writes the record."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from costmodel.text.errors import NotModelled
from costmodel.traces.builder import RoleBuilder
from costmodel.traces.fake_machine import values
from costmodel.traces.fake_machine.by_hand import OwnUpdates
from costmodel.traces.fake_machine.following import follow
from costmodel.traces.fake_machine.known_results import KnownResults
from costmodel.traces.fake_machine.operators import (
    FACTORIES,
    FREE,
    KNOWN_OPERATORS,
    LIKE,
    OVERWRITE,
    SOLVERS,
    bytes_of,
    flop_of,
    is_composite,
    is_view,
    is_wrapper,
    operands_of,
    reached,
    tensors_in,
    unique,
    with_parts,
    word_of,
    written_by,
)
from costmodel.traces.fake_machine.program import TracedProgram
from costmodel.traces.fake_machine.storages import Storages
from costmodel.traces.fake_machine.whereabouts import Where
from costmodel.traces.record import DEVICE_TO_HOST, HOST_TO_DEVICE, NOWHERE, PROCESSORS

LARGE = 1_000_000
"""Elements from which a tensor of floats on the CPU holds no memory either."""
WORTH_PINNING = 1 << 20
"""Bytes of a batch from which it matters that a copy waits."""
MOST_WAITS = 20_000
"""Times that one line may ask for values that only a GPU would know before the step ends."""
MOST_ON_HOST = 1_000
"""The same, of a program that has had nothing on a GPU."""
WARMING = 11
"""Steps on a stream of its own that don't end a trace: so many PyTorch's notes on CUDA graphs ask for before a capture."""

AS_WRITTEN = (
    "What torch.compile is given is run as it is written: in time, operators between products are one kernel that reads and "
    "writes once; memory is that without the compiler, which keeps less for the backward pass."
)
"""Of compiled parts that run; libraries compile more than a program uses."""
AS_GRAPHS = (
    "What torch.compile makes CUDA graphs of is taken as replayed each time, a launch for each stretch between exchanges and "
    "what else isn't compiled; copies into its static inputs, and what its pool keeps, aren't counted."
)
"""The same, of those that are launched as CUDA graphs."""


class Finished(BaseException):
    """Enough steps were recorded."""


class _Mode(FakeTensorMode):
    """Real tensors aren't copied to the device that isn't there."""

    avoid_device_init = True  # type: ignore[assignment]
    where: Where

    def create_symbolic_nested_int(self, *, nt_tensor_id: int | None = None) -> Any:
        """A jagged length, which depends on values."""
        raise NotModelled(f"{self.where.line()}: nested tensors of jagged lengths (torch.nested): trace padded batches")


class Recorder(TorchDispatchMode):
    """Takes all operators of a process while it is entered.

    Parameters
    ----------
    builder : of the record
    guard : as `preload.load` gave it
    steps : of the optimizer after which the program ends; 0 for never
    """

    def __init__(self, builder: RoleBuilder, guard: ctypes.PyDLL, steps: int = 0):
        super().__init__()
        self.builder, self.steps = builder, steps
        self.fake = _Mode(allow_non_fake_inputs=True)
        self.fake.cache_clear()  # all modes share it, and it knows results by the device of the rank before
        self.results = KnownResults(self.fake)
        self.program = TracedProgram(builder, guard)
        self.storages = Storages(builder, self.program)
        self.where = self.fake.where = self.program.where
        self.updates = OwnUpdates(self.where, self.storages, self.step_done)
        self.done_steps = self.captured_steps = 0
        self._warmed = 0  # steps until the last graph was captured
        self._waits: dict[str, int] = {}
        self.named_parameters: dict[int, str] = {}
        self.trained: dict[int, Tensor] = {}  # parameters that an optimizer has, or whose gradients ranks sum, by their identity
        self.special: Mapping[str, Callable[..., Any]] = {}
        self.collectives: Callable[..., Any] | None = None
        self.world = 1
        self.enabled = True
        self.facts: dict[str, str] = {}
        self.found: Callable[[Any], Any] = lambda path: path  # where a file is read that the program may have written
        self.ready: Callable[[Any], Any] = lambda path: path  # where one is written

    # -- operators --------------------------------------------------------------------------------------------

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here; hiding operators from a compiler takes longer than most of them."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "prim":
            tensor = args[0]
            if isinstance(tensor, FakeTensor) and func is torch.ops.prim.device.default:
                return tensor.fake_device
            return NotImplemented if is_wrapper(type(tensor)) else func(*args, **kwargs)
        tensors = list(tensors_in(args)) + list(tensors_in(kwargs.values()))
        ours = False
        for tensor in tensors:
            if isinstance(tensor, FakeTensor):
                if tensor.fake_mode is not self.fake:
                    return func(*args, **kwargs) if self._inferred() else NotImplemented
                ours = True
            elif is_wrapper(type(tensor)):
                return NotImplemented
        if not ours and self._inferred():
            return func(*args, **kwargs)
        device = kwargs.get("device")
        on_gpu = device is not None and torch.device(device).type == "cuda"
        if not ours and not on_gpu:
            if device is not None and torch.device(device).type != "cpu":
                return func(*args, **kwargs)
            return self._on_cpu(func, args, kwargs)
        name = func.overloadpacket.__name__ if hasattr(func, "overloadpacket") else str(func)
        special = (
            self.special.get(name)
            if func.namespace in ("aten", "torchvision", "bitsandbytes")
            else self.collectives
            if "c10d_functional" in func.namespace
            else None
        )
        if special is not None:
            answer = special(self, func, args, kwargs)
            if answer is not NotImplemented:
                return answer
        if is_composite(func):  # below autograd, as in DTensor's own code, nobody has taken it apart
            with self:
                answer = func.decompose(*args, **kwargs)
            if answer is not NotImplemented:
                return answer
        return self.run(func, args, kwargs, tensors, name)

    def _inferred(self) -> bool:
        """Whether a library infers shapes, as DTensor does of whole tensors: none of this is on the device.

        PyTorch asks modes of other kinds before those of fake tensors, so that what such a mode makes comes here first.
        """
        mode = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
        return mode is not None and mode is not self.fake

    def run(self, func: Any, args: Any, kwargs: Any, tensors: list[Tensor] | None = None, name: str = "") -> Any:
        """Run an operator without arithmetic, and record it."""
        if tensors is None:
            tensors = list(tensors_in(args)) + list(tensors_in(kwargs.values()))
        name = name or func.overloadpacket.__name__
        key = self.results.key(func, args, kwargs)
        known, out = (False, None) if key is None else self.results.found(key, tensors)
        if not known:
            out = self.faked(func, args, kwargs)
            if key is not None:
                self.results.learn(key, tensors, out)
        outs = list(tensors_in((out,)))
        dense = with_parts(tensors), with_parts(outs)
        if dense[0] is tensors and dense[1] is outs:
            follow(func, args, kwargs, tensors, outs, name)
        self.record(func, name, args, kwargs, *dense, out)
        return out

    def faked(self, func: Any, args: Any, kwargs: Any) -> Any:
        try:
            with self.fake:
                return func(*args, **kwargs)
        except NotImplementedError as error:
            raise NotModelled(
                f"{self.where.line()}: the operator {func} says nowhere what its results look like, so that it can't be traced "
                f"(torch.library.register_fake tells it)"
            ) from error
        except RuntimeError as error:
            if type(error).__name__ in (
                "UnsupportedOperatorException",
                "DynamicOutputShapeException",
                "DataDependentOutputException",
            ):
                raise NotModelled(
                    f"{self.where.line()}: the operator {func} can't be traced: its results depend on values, or it "
                    f"says nowhere what they look like ({type(error).__name__})"
                ) from error
            raise

    def _on_cpu(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Small tensors of the CPU are real: samplers, tokens, counters."""
        out = self._made_on_cpu(func, args, kwargs)
        return values.pin(out) if kwargs.get("pin_memory") and isinstance(out, Tensor) else out

    def _made_on_cpu(self, func: Any, args: Any, kwargs: Any) -> Any:
        name = getattr(getattr(func, "overloadpacket", None), "__name__", "")
        if name in FACTORIES and args and isinstance(args[0], (list, tuple)) and all(isinstance(n, int) for n in args[0]):
            dtype = kwargs.get("dtype") or torch.get_default_dtype()
            if dtype.is_floating_point and math.prod(args[0]) > LARGE:
                with self.fake:
                    return func(*args, **kwargs)
        like = args[0] if name in LIKE and args and isinstance(args[0], Tensor) else None
        if like is not None and torch.device(kwargs.get("device") or like.device).type == "cpu":  # of a meta device's, too
            dtype = kwargs.get("dtype") or like.dtype
            if dtype.is_floating_point and like.numel() > LARGE:
                with self.fake:
                    return torch.empty_strided(like.shape, like.stride(), dtype=dtype, device="cpu")
        return func(*args, **kwargs)

    def record(self, func: Any, name: str, args: Any, kwargs: Any, tensors: list[Tensor], outs: list[Tensor], out: Any) -> None:
        """Write an operator into the record, and the storages that it made."""
        made = [tensor for tensor in outs if tensor.device.type == "cuda"]
        free = name in FREE or is_view(func)
        if not made and not any(tensor.device.type == "cuda" for tensor in tensors):
            if not free:
                self._on_processors(func, name, args, kwargs, tensors, outs)
            return
        self.program.engine_moves()
        self.updates.sees(func, args, kwargs, tensors)
        now = self.program.state()
        phase, module, line, stream = now
        full = f"{func.namespace}.{name}"
        writes = [row for tensor in made if (row := self.storages.row(tensor, full, now)) is not None]
        if free:
            return
        if func.namespace not in KNOWN_OPERATORS:
            self.builder.assumed(
                f"The operator {full} is none of PyTorch's own: it is priced by the bytes that it reads and writes."
            )
        if name.startswith(SOLVERS):
            self.builder.assumed(
                f"{full} is priced by the bytes that it reads and writes: what takes a matrix apart takes many times as long."
            )
        written = (
            [tensor for tensor in with_parts(written_by(func, args, kwargs)) if tensor.device.type == "cuda"]
            if func._schema.is_mutable
            else []
        )
        inputs = [tensor for tensor in tensors if tensor.device.type == "cuda"]
        reads = list(dict.fromkeys(row for tensor in inputs if (row := self.storages.row(tensor)) is not None))
        writes = list(dict.fromkeys([*writes, *(row for tensor in written if (row := self.storages.row(tensor)) is not None)]))
        overwrites, given = name in OVERWRITE, sum(map(bytes_of, made))
        read = sum(reached(name, args, t, given) for t in inputs if not (overwrites and any(t is w for w in written)))
        wrote = sum(reached(name, args, t, given) for t in unique([*made, *written]))
        if name == "embedding":
            self.storages.kind(args[1], "input")
        compiled = self.where.compiled()
        if compiled:
            self.builder.assumed(AS_WRITTEN)
            if compiled in self.where.graphed:
                self.builder.assumed(AS_GRAPHS)
        self.builder.kernel(
            full, *operands_of(name, inputs), bytes_read=read, bytes_written=wrote, flop=flop_of(func, name, args, kwargs, out),
            stream=stream, phase=phase, module=module, line=line, reads=reads, writes=writes, compiled=compiled,
        )  # fmt: skip

    def _on_processors(self, func: Any, name: str, args: Any, kwargs: Any, tensors: list[Tensor], outs: list[Tensor]) -> None:
        """What the host computes on large tensors in a step, as an optimizer of states that lie there; not how they are made."""
        phase, module, line, _ = self.program.state()
        if not (self.done_steps or phase == "optimizer"):
            return
        written = unique([*outs, *(written_by(func, args, kwargs) if func._schema.is_mutable else [])])
        if all(tensor.numel() <= LARGE for tensor in [*tensors, *written]):
            return
        overwrites = name in OVERWRITE
        read = [tensor for tensor in tensors if not (overwrites and any(tensor is other for other in written))]
        self.builder.kernel(
            f"{func.namespace}.{name}", *operands_of(name, tensors), bytes_read=sum(map(bytes_of, read)),
            bytes_written=sum(map(bytes_of, written)), stream=self.builder.stream(PROCESSORS), phase=phase, module=module,
            line=line,
        )  # fmt: skip

    # -- the host -------------------------------------------------------------------------------------------------

    def host_waits(self, stream: int | None = None, event: int = NOWHERE) -> None:
        """The host waits for the GPU."""
        if self.builder.capture is not None:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        self.program.engine_moves()
        self.builder.host_wait(self.where.line(), event=event, stream=self.program.stream() if stream is None else stream)

    def value_wanted(self, tensor: Tensor) -> Any:
        """The value of a tensor of one element: the host waits for it."""
        if tensor.device.type == "cuda":
            self.copied_to_host(tensor)
            self.host_waits()
        value = values.known(tensor)
        if value is not None:
            return value.item()
        line = self.where.line()
        self._waits[line] = self._waits.get(line, 0) + 1
        if self._waits[line] > MOST_ON_HOST and not self.storages.fullest:
            raise NotModelled(f"{line}: the program ran nothing on a GPU until now: its model and its batches stay on the CPU")
        if self._waits[line] > MOST_WAITS:
            raise NotModelled(
                f"{line} waits {MOST_WAITS:,} times within a step for values that only a GPU would know: it seems to "
                f"repeat until one of them changes"
            )
        guess = values.guessed(tensor.dtype)
        self.builder.assumed(f"{line}: {guess} for a value of {word_of(tensor.dtype)} that only a GPU would know.")
        return guess

    def step_done(self) -> None:
        """A step of the optimizer has ended; it comes with each replay of a graph that holds it."""
        if self.builder.capture is not None:
            self.captured_steps += 1
            return
        self._waits.clear()
        self.where.stepped()
        self.builder.step_boundary(self.where.line())
        self.done_steps += 1
        warming = WARMING if self.program.stream() else self._warmed
        if self.steps and self.done_steps >= self.steps + warming:
            self.storages.ended = True
            raise Finished

    def captured(self) -> None:
        """A graph was captured: steps that follow are others than those before."""
        self._warmed = min(self.done_steps, WARMING)

    def copied_to_host(self, tensor: Tensor) -> None:
        """A tensor is copied to the host."""
        row = self.storages.row(tensor)
        self._copied(DEVICE_TO_HOST, tensor, tensor, reads=[] if row is None else [row])

    def copied_to_device(self, tensor: Tensor, source: Tensor) -> None:
        """A tensor was copied from the host."""
        row = self.storages.row(tensor, HOST_TO_DEVICE)
        self._copied(HOST_TO_DEVICE, source, tensor, writes=[] if row is None else [row])
        phase, module, line, _ = self.program.state()
        # a batch that the loop itself put together may be so large that it holds no memory, as states on the host do
        batch = not isinstance(source, FakeTensor) or not (module or "(" in line)
        if row is not None and batch and phase != "optimizer":
            self.storages.kind(tensor, "input")
            if self.done_steps and bytes_of(source) >= WORTH_PINNING and not values.is_pinned(source):
                self.facts.setdefault("unpinned_copies", line)

    def _copied(self, op: str, source: Tensor, target: Tensor, **storages: Any) -> None:
        phase, module, line, stream = self.program.state()
        self.builder.kernel(
            op, [tuple(source.shape)], [word_of(source.dtype)], bytes_of(source), bytes_of(target), stream=stream, phase=phase,
            module=module, line=line, **storages,
        )  # fmt: skip

"""Watches every operator of a rank: runs it without arithmetic where its device isn't there, and writes the record."""

from __future__ import annotations

import ctypes
import functools
import math
import sys
import sysconfig
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import flop_registry

from costmodel.text.errors import NotModelled
from costmodel.traces.builder import RoleBuilder
from costmodel.traces.fake_machine import values
from costmodel.traces.record import DEVICE_TO_HOST, HOST_TO_DEVICE, NOWHERE, PROCESSORS

aten = torch.ops.aten
LARGE = 1_000_000
"""Elements from which a tensor of floats on the CPU holds no memory either."""
MOST_WAITS = 20_000
"""Times that one line may ask for values that only a GPU would know before the step ends."""
KNOWN_OPERATORS = {
    "aten",
    "prims",
    "c10d",
    "_c10d_functional",
    "c10d_functional",
    "_c10d_functional_autograd",
    "fsdp",
    "inductor",
    "torchvision",
    "_quantized",
    "quantized",
    "profiler",
    "symm_mem",
    "costmodel",
    "rngprims",
    "bitsandbytes",
    "_dtensor",
}
_FREE = {
    "empty",
    "empty_like",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "set_",
    "detach",
    "detach_",
    "alias",
    "_unsafe_view",
    "_reshape_alias",
    "lift_fresh",
    "lift",
    "t_",
    "transpose_",
    "squeeze_",
    "unsqueeze_",
    "as_strided_",
    "is_pinned",
    "_pin_memory",
    "_has_compatible_shallow_copy_type",
    "is_same_size",
    "resize_as_",
    "swapdims_",
    "split_with_sizes",
    "_fsdp_dummy",
    "view",
    "sym_size",
    "sym_numel",
    "sym_stride",
    "sym_storage_offset",
    "_is_all_true",
    "_is_any_true",
    "set_data",
    "_version",
    "is_set_to",
}
_BUFFERS = ("empty", "new_empty", "zeros", "new_zeros", "resize_", "cat", "all-", "reduce-")
"""Beginnings of what makes storages into which something is put together to be exchanged."""
_OVERWRITE = {"copy_", "fill_", "zero_", "zero", "fill", "set_"}
_POINTWISE = {
    "mul",
    "logical_or",
    "logical_and",
    "logical_not",
    "bitwise_or",
    "bitwise_and",
    "bitwise_not",
    "_to_copy",
    "detach",
}
"""Operators through which values that are all the same stay so, however many they are."""
_MANY = ("_foreach", "_fused", "_amp_foreach")


class Finished(BaseException):
    """Enough steps were recorded."""


class _Mode(FakeTensorMode):
    """Real tensors aren't copied to the device that isn't there."""

    avoid_device_init = True  # type: ignore[assignment]


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
        self.builder, self.guard, self.steps = builder, guard, steps
        self.fake = _Mode(allow_non_fake_inputs=True)
        self.fake.cache_clear()  # all modes share it, and it knows results by the device of the rank before
        self.where = Where()
        self.held = self.fullest = 0
        self.done_steps = 0
        self._ends: dict[int, int] = {}  # events of the engine
        self._room = (ctypes.c_int64 * 96)()
        self._refs: dict[int, Any] = {}
        self._waits: dict[str, int] = {}
        self.named_parameters: dict[int, str] = {}
        self.collectives: Callable[..., Any] | None = None
        self.world = 1
        self.enabled = True
        self.facts: dict[str, str] = {}

    # -- operators --------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "prim":
            tensor = args[0]
            if isinstance(tensor, FakeTensor) and func is torch.ops.prim.device.default:
                return tensor.fake_device
            return NotImplemented if _is_wrapper(type(tensor)) else func(*args, **kwargs)
        tensors = list(_tensors(args)) + list(_tensors(kwargs.values()))
        ours = False
        for tensor in tensors:
            if isinstance(tensor, FakeTensor):
                if tensor.fake_mode is not self.fake:
                    return func(*args, **kwargs) if self._inferred() else NotImplemented
                ours = True
            elif _is_wrapper(type(tensor)):
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
            _SPECIAL.get(name)
            if func.namespace == "aten"
            else self.collectives
            if "c10d_functional" in func.namespace
            else None
        )
        if special is not None:
            answer = special(self, func, args, kwargs)
            if answer is not NotImplemented:
                return answer
        if _is_composite(func):  # below autograd, as in DTensor's own code, nobody has taken it apart
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

    def run(
        self, func: Any, args: Any, kwargs: Any, tensors: list[Tensor] | None = None, name: str = ""
    ) -> Any:
        """Run an operator without arithmetic, and record it."""
        if tensors is None:
            tensors = list(_tensors(args)) + list(_tensors(kwargs.values()))
        name = name or func.overloadpacket.__name__
        out = self._faked(func, args, kwargs)
        outs = list(_tensors((out,)))
        self._follow_values(func, args, kwargs, tensors, outs, name)
        self.record(func, name, args, kwargs, tensors, outs, out)
        return out

    def _faked(self, func: Any, args: Any, kwargs: Any) -> Any:
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
        name = getattr(getattr(func, "overloadpacket", None), "__name__", "")
        if (
            name in _FACTORIES
            and args
            and isinstance(args[0], (list, tuple))
            and all(isinstance(n, int) for n in args[0])
        ):
            dtype = kwargs.get("dtype") or torch.get_default_dtype()
            if dtype.is_floating_point and _count(args[0]) > LARGE:
                with self.fake:
                    return func(*args, **kwargs)
        like = args[0] if name in _LIKE and args and isinstance(args[0], Tensor) else None
        if like is not None and torch.device(kwargs.get("device") or like.device).type == "cpu":  # of a meta device's, too
            dtype = kwargs.get("dtype") or like.dtype
            if dtype.is_floating_point and like.numel() > LARGE:
                with self.fake:
                    return torch.empty_strided(like.shape, like.stride(), dtype=dtype, device="cpu")
        return func(*args, **kwargs)

    def _follow_values(
        self, func: Any, args: Any, kwargs: Any, tensors: list[Tensor], outs: list[Tensor], name: str
    ) -> None:
        """Run the operator on values, where they are known and may matter; else nobody knows what it wrote."""
        mutable = func._schema.is_mutable
        if name in _POINTWISE and outs and not values.worth_knowing(outs[0]):
            found = [values.known(tensor) for tensor in tensors]
            if all(value is not None and values.uniform(value) for value in found):
                table = {id(tensor): value.flatten()[0] for tensor, value in zip(tensors, found, strict=True)}
                one = func(*tree_map_only(Tensor, lambda t: table[id(t)], args))
                values.learn(outs[0], one.to(outs[0].dtype).expand(outs[0].shape))
                return
        wanted = (
            bool(outs)
            and all(values.worth_knowing(out) for out in outs)
            and not name.startswith("empty")
            and name not in ("new_empty", "new_empty_strided")
        )
        if wanted and not mutable and not tensors and name in ("randn", "rand", "normal"):
            wanted = False
        if wanted:
            overwritten = None
            if (
                name in _OVERWRITE
                and isinstance(args[0], FakeTensor)
                and values.known(args[0]) is None
                and values.whole(args[0])
            ):
                overwritten = torch.empty(args[0].shape, dtype=args[0].dtype)
                values.learn(args[0], overwritten)
            table: dict[int, Tensor] = {}
            for tensor in tensors:
                value = values.known(tensor)
                if value is None:
                    break
                table[id(tensor)] = value
            else:
                real_args, real_kwargs = tree_map_only(Tensor, lambda t: table[id(t)], (args, kwargs))
                if "device" in real_kwargs:
                    real_kwargs["device"] = torch.device("cpu")
                if "pin_memory" in real_kwargs:
                    real_kwargs["pin_memory"] = False
                try:
                    found = func(*real_args, **real_kwargs)
                except NotImplementedError:
                    found = None  # no kernel of the CPU has it
                if found is not None:
                    for out, value in zip(outs, _tensors((found,)), strict=False):
                        values.learn(out, value)
                    return
            if overwritten is not None:
                values.forget(args[0])
        if mutable:
            for tensor in _written(func, args, kwargs):
                values.forget(tensor)

    def record(
        self,
        func: Any,
        name: str,
        args: Any,
        kwargs: Any,
        tensors: list[Tensor],
        outs: list[Tensor],
        out: Any,
    ) -> None:
        """Write an operator into the record, and the storages that it made."""
        made = [tensor for tensor in outs if tensor.device.type == "cuda"]
        free = name in _FREE or _is_view(func)
        if not made and not any(tensor.device.type == "cuda" for tensor in tensors):
            if not free:
                self._on_processors(func, name, args, kwargs, tensors, outs)
            return
        self._engine_moves()
        phase, module, line, stream = self.state()
        full = f"{func.namespace}.{name}"
        writes = [row for tensor in made if (row := self.storage(tensor, full)) is not None]
        if free:
            return
        if func.namespace not in KNOWN_OPERATORS:
            self.builder.assumed(
                f"The operator {full} is none of PyTorch's own: it is priced by the bytes that it reads and writes."
            )
        written = (
            [tensor for tensor in _written(func, args, kwargs) if tensor.device.type == "cuda"]
            if func._schema.is_mutable
            else []
        )
        inputs = [tensor for tensor in tensors if tensor.device.type == "cuda"]
        reads = list(dict.fromkeys(row for tensor in inputs if (row := self.storage(tensor)) is not None))
        writes = list(
            dict.fromkeys(
                [*writes, *(row for tensor in written if (row := self.storage(tensor)) is not None)]
            )
        )
        overwrites = name in _OVERWRITE
        read = sum(_bytes(t) for t in inputs if not (overwrites and any(t is w for w in written)))
        wrote = sum(_bytes(t) for t in _unique([*made, *written]))
        if name == "embedding":
            self.kind(args[1], "input")
        self.builder.kernel(
            full,
            *_operands(name, tensors),
            bytes_read=read,
            bytes_written=wrote,
            flop=_flop(func, name, args, kwargs, out),
            stream=stream,
            phase=phase,
            module=module,
            line=line,
            reads=reads,
            writes=writes,
        )

    def _on_processors(
        self, func: Any, name: str, args: Any, kwargs: Any, tensors: list[Tensor], outs: list[Tensor]
    ) -> None:
        """What the host computes on large tensors in a step, as an optimizer of states that lie there; not how they are made."""
        phase, module, line, _ = self.state()
        if not (self.done_steps or phase == "optimizer"):
            return
        written = _unique([*outs, *(_written(func, args, kwargs) if func._schema.is_mutable else [])])
        if all(tensor.numel() <= LARGE for tensor in [*tensors, *written]):
            return
        overwrites = name in _OVERWRITE
        read = [tensor for tensor in tensors if not (overwrites and any(tensor is other for other in written))]
        self.builder.kernel(
            f"{func.namespace}.{name}", *_operands(name, tensors), bytes_read=sum(map(_bytes, read)),
            bytes_written=sum(map(_bytes, written)), stream=self.builder.stream(PROCESSORS), phase=phase, module=module,
            line=line,
        )  # fmt: skip

    # -- storages ---------------------------------------------------------------------------------------------------

    def storage(self, tensor: Tensor, op: str = "") -> int | None:
        """The row of the storage that a tensor of the GPU lies in; born now unless it was before."""
        if tensor.device.type != "cuda" or not isinstance(tensor, FakeTensor):
            return None
        storage = tensor.untyped_storage()
        life = getattr(storage, "_life", None)
        if life is None:
            life = _Life()
            storage._life = life  # type: ignore[attr-defined]
            number = id(life)
            self._refs[number] = weakref.ref(
                storage, lambda _, life=life, number=number: self._gone(life, number)
            )
        if life.row is None:
            size = storage.nbytes()
            if not size:
                return None
            self._born(life, size, tuple(tensor.shape), tensor.dtype, op)
        row: int | None = life.row
        return row

    def resized(self, storage: Any, size: int) -> None:
        """A storage's memory was given back, or asked for once more: FSDP does it to gathered parameters."""
        life = getattr(storage, "_life", None)
        if life is None or life.bytes == size:
            return
        self._died(life)
        if size:
            self._born(life, size, life.shape, life.dtype, "resize_")

    def used_on(self, tensor: Tensor, stream: Any) -> None:
        """A tensor is used on a stream other than that which made it."""
        row = self.storage(tensor)
        if row is not None:
            self.builder.storage_used_on(row, self.numbered(stream.stream_id), self.where.line())

    def kind(self, tensor: Any, kind: str, parameter: str | None = None) -> None:
        """Say what a tensor of the GPU is."""
        tensor = local(tensor)
        row = self.storage(tensor) if isinstance(tensor, Tensor) else None
        if row is not None:
            self.builder.storage_is(row, kind=kind, parameter=parameter)
            life = tensor.untyped_storage()._life  # type: ignore[attr-defined]
            life.named, life.parameter = True, parameter or life.parameter

    def _born(self, life: Any, size: int, shape: tuple[int, ...], dtype: torch.dtype, op: str) -> None:
        phase, module, line, stream = self.state()
        life.bytes, life.shape, life.dtype, life.phase, life.named = size, shape, dtype, phase, False
        life.buffer = op.rpartition(".")[2].startswith(_BUFFERS)
        life.row = self.builder.storage_born(
            size, module=module, shape=shape, dtype=_word(dtype), op=op, stream=stream, phase=phase, line=line
        )
        self.held += size
        self.fullest = max(self.fullest, self.held)

    def _died(self, life: Any) -> None:
        if life.row is None:
            return
        if not life.named and life.phase == "forward" and self.where.phase() == "backward":
            self.builder.storage_is(life.row, kind="activation")
        self.builder.storage_died(life.row)
        self.held -= life.bytes
        life.row, life.bytes = None, 0

    def _gone(self, life: Any, number: int) -> None:
        self._died(life)
        self._refs.pop(number, None)

    def put_together(self, tensors: Sequence[Tensor]) -> bool:
        """Whether tensors lie in buffers, as weights and gradients do that are exchanged: activations don't."""
        lives = [getattr(tensor.untyped_storage(), "_life", None) for tensor in tensors]
        return bool(lives) and all(life is not None and (life.buffer or life.named) for life in lives)

    def is_bucket(self, tensor: Tensor) -> None:
        """Say that weights or gradients were put together in a tensor, unless it is known to be something else."""
        life = getattr(tensor.untyped_storage(), "_life", None)
        if life is not None and life.buffer and not life.named:
            self.kind(tensor, "bucket")

    def parameter_of(self, tensors: Sequence[Tensor]) -> str:
        """The name of the parameter that lies in the first of some tensors that has one."""
        for tensor in tensors:
            life = getattr(tensor.untyped_storage(), "_life", None)
            if life is not None and life.parameter:
                return str(life.parameter)
        return ""

    # -- where the program is ---------------------------------------------------------------------------------------

    def state(self) -> tuple[str, str, str, int]:
        """Phase, module, line and stream of what the program does now."""
        return self.where.phase(), self.where.module(), self.where.line(), self.stream()

    def stream(self) -> int:
        """The number of the stream on which code runs now."""
        return self.numbered(self.guard.costmodel_stream())

    def numbered(self, identity: int) -> int:
        """The record's number of a stream by torch's."""
        return self.builder.stream(f"stream {identity}") if identity else 0

    def _engine_moves(self) -> None:
        count = self.guard.costmodel_moves(self._room, 32)
        for place in range(count):
            kind, event, identity = self._room[3 * place : 3 * place + 3]
            if kind == 0:
                self._ends[event] = self.builder.event_record(self.numbered(identity))
            elif event in self._ends:
                self.builder.stream_wait(self._ends[event], self.numbered(identity))

    def host_waits(self, stream: int | None = None, event: int = NOWHERE) -> None:
        """The host waits for the GPU."""
        self._engine_moves()
        self.builder.host_wait(
            self.where.line(), event=event, stream=self.stream() if stream is None else stream
        )

    def value_wanted(self, tensor: Tensor) -> Any:
        """The value of a tensor of one element: the host waits for it."""
        if tensor.device.type == "cuda":
            self._copied_to_host(tensor)
            self.host_waits()
        value = values.known(tensor)
        if value is not None:
            return value.item()
        line = self.where.line()
        self._waits[line] = self._waits.get(line, 0) + 1
        if self._waits[line] > MOST_WAITS:
            raise NotModelled(
                f"{line} waits {MOST_WAITS:,} times within a step for values that only a GPU would know: it seems to "
                f"repeat until one of them changes"
            )
        guess = values.guessed(tensor.dtype)
        self.builder.assumed(
            f"{line}: {guess} for a value of {_word(tensor.dtype)} that only a GPU would know."
        )
        return guess

    def step_done(self) -> None:
        """A step of the optimizer has ended."""
        self._waits.clear()
        self.where.stepped()
        self.builder.step_boundary(self.where.line())
        self.done_steps += 1
        if self.steps and self.done_steps >= self.steps:
            raise Finished

    def _copied_to_host(self, tensor: Tensor) -> None:
        phase, module, line, stream = self.state()
        row = self.storage(tensor)
        self.builder.kernel(
            DEVICE_TO_HOST,
            [tuple(tensor.shape)],
            [_word(tensor.dtype)],
            _bytes(tensor),
            _bytes(tensor),
            stream=stream,
            phase=phase,
            module=module,
            line=line,
            reads=[] if row is None else [row],
        )

    def copied_to_device(self, tensor: Tensor, source: Tensor) -> None:
        """A tensor was copied from the host."""
        phase, module, line, stream = self.state()
        row = self.storage(tensor, HOST_TO_DEVICE)
        self.builder.kernel(
            HOST_TO_DEVICE,
            [tuple(source.shape)],
            [_word(source.dtype)],
            _bytes(source),
            _bytes(tensor),
            stream=stream,
            phase=phase,
            module=module,
            line=line,
            writes=[] if row is None else [row],
        )
        if row is not None and not isinstance(source, FakeTensor) and phase != "optimizer":
            self.kind(tensor, "input")


class _Life:
    __slots__ = ("buffer", "bytes", "dtype", "named", "parameter", "phase", "row", "shape")

    def __init__(self) -> None:
        self.row: int | None = None
        self.bytes = 0
        self.shape: tuple[int, ...] = ()
        self.dtype = torch.uint8
        self.phase = "other"
        self.named = False
        self.buffer = False  # made empty, or of several tensors, so that something is put together in it
        self.parameter = ""


class Where:
    """Where the program is: its phase, module and line."""

    _LIBRARY = tuple({sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["platstdlib"]})

    def __init__(self) -> None:
        self.optimizing = 0
        self._trains = True  # the outermost module that runs
        self._turned = False  # a backward pass was seen, and no module has begun since
        self.names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._local = threading.local()
        self._made: dict[int, str] = {}
        self._files: dict[str, tuple[int, str]] = {}  # whose a file is, and its short name
        self._main = threading.main_thread().ident
        self._task, self._task_line = -1, ""

    @property
    def stack(self) -> list[str]:
        """Names of the modules that run now, in this thread."""
        if not hasattr(self._local, "stack"):
            self._local.stack = []
        stack: list[str] = self._local.stack
        return stack

    def entered(self, name: str) -> None:
        """A module begins."""
        stack = self.stack
        if not stack and torch._C._current_graph_task_id() == -1:
            self._trains, self._turned = torch.is_grad_enabled(), False
        stack.append(name)

    def left(self) -> None:
        """The innermost module has ended."""
        if self.stack:
            self.stack.pop()

    def stepped(self) -> None:
        """A step of the optimizer has ended."""
        self._turned = False

    def phase(self) -> str:
        """One of `costmodel.traces.record.PHASES`.

        What a module does is forward whether autograd looks or not: gathers of its weights are hidden from it. Behind a backward
        pass, until the next module begins, it is neither: libraries sum and gather there.
        """
        if self.optimizing:
            return "optimizer"
        if torch._C._current_graph_task_id() != -1:
            self._turned = True
            return "backward"
        if self.stack:
            return "forward" if self._trains else "other"
        return "forward" if torch.is_grad_enabled() and not self._turned else "other"

    def module(self) -> str:
        """The innermost module that runs, in a backward pass the one whose operator made the node."""
        stack = self.stack
        if stack:
            sequence = torch.autograd._get_sequence_nr()
            self._made[sequence - 1] = stack[-1]
            return stack[-1]
        if torch._C._current_graph_task_id() != -1:
            node = torch._C._current_autograd_node()
            if node is not None:
                return self._made.get(node._sequence_nr(), "")
        return ""

    def line(self) -> str:
        """The innermost line of the user's code, and that of the library's code behind it."""
        task = torch._C._current_graph_task_id()
        if threading.get_ident() != self._main:
            frame: FrameType | None = sys._getframe(1)
            word = self._word_of(frame)
            if word:
                return word
            if task != self._task:
                self._task, self._task_line = task, self._word_of(sys._current_frames().get(self._main or 0))
            return self._task_line
        return self._word_of(sys._getframe(1))

    def _word_of(self, frame: FrameType | None) -> str:
        library = ""
        while frame is not None:
            name = frame.f_code.co_filename
            known = self._files.get(name)
            if known is None:
                known = self._files[name] = self._rank(name), Path(name).name
            if known[0] == 0:
                user = f"{known[1]}:{frame.f_lineno}"
                return f"{user} ({library})" if library else user
            if known[0] == 1 and not library:
                library = f"{known[1]}:{frame.f_lineno}"
            frame = frame.f_back
        return library

    def _rank(self, name: str) -> int:
        """0 of the user's files, 1 of libraries that build on torch, 2 of torch, of Python and of this package."""
        if (
            name.startswith("<")
            or "/torch/" in name
            or "/costmodel/traces/" in name
            or name.startswith("/usr/lib/python")
        ):
            return 2
        if "site-packages" in name or "dist-packages" in name:
            return 1
        return 2 if name.startswith(self._LIBRARY) else 0


def local(tensor: Any) -> Any:
    """The part of a distributed tensor that this rank holds; others as they are."""
    inner = getattr(tensor, "_local_tensor", None)
    return local(inner) if isinstance(inner, Tensor) else tensor


# -- operators that need more ----------------------------------------------------------------------------------------


def _item(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    return recorder.value_wanted(args[0])


def _equal(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    first, second = map(values.known, args[:2])
    recorder.host_waits()
    if first is not None and second is not None:
        return func(first, second, *args[2:], **kwargs)
    recorder.builder.assumed(
        f"{recorder.where.line()}: two tensors taken as equal whose values only a GPU would know."
    )
    return True


def _moved(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """`_to_copy` between host and device."""
    source = args[0]
    device = kwargs.get("device")
    target = source.device if device is None else torch.device(device)
    if target.type == source.device.type:
        return NotImplemented
    if target.type == "cpu":
        recorder._copied_to_host(source)
        if not kwargs.get("non_blocking"):
            recorder.host_waits()
        value = values.known(source)
        dtype = kwargs.get("dtype") or source.dtype
        if value is not None:
            return value.detach().to(dtype, copy=True)
        if source.numel() > LARGE:
            return recorder._faked(func, args, kwargs)
        recorder.builder.assumed(
            f"{recorder.where.line()}: {values.guessed(dtype)} for values of {_word(dtype)} that only a GPU would know."
        )
        return torch.full(source.shape, values.guessed(dtype), dtype=dtype)
    if target.type != "cuda" or source.device.type != "cpu":
        return NotImplemented
    out = recorder._faked(func, args, kwargs)
    value = values.known(source)
    if value is not None and values.worth_knowing(out):
        values.learn(out, value.detach().to(out.dtype, copy=True))
    recorder.copied_to_device(out, source)
    if source.numel() and not kwargs.get("non_blocking"):
        recorder.host_waits()
    return out


def _copied(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """`copy_` between host and device."""
    target, source = args[0], args[1]
    waits = not (args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
    if target.device.type == source.device.type:
        if not isinstance(target, FakeTensor) and isinstance(source, FakeTensor):
            value = values.known(source)
            return target.copy_(value) if value is not None else target
        return NotImplemented
    if target.device.type == "cpu" and source.device.type == "cuda":
        recorder._copied_to_host(source)
        if waits:
            recorder.host_waits()
        value = values.known(source)
        if not isinstance(target, FakeTensor):
            if value is None:
                recorder.builder.assumed(
                    f"{recorder.where.line()}: {values.guessed(source.dtype)} for values of "
                    f"{_word(source.dtype)} that only a GPU would know."
                )
                return target.fill_(values.guessed(target.dtype))
            return target.copy_(value)
        return target
    if target.device.type == "cuda" and source.device.type == "cpu":
        tensors = [target, source]
        recorder._follow_values(func, args, kwargs, tensors, [target], "copy_")
        recorder.copied_to_device(target, source)
        if waits and source.numel():
            recorder.host_waits()
        return target
    return NotImplemented


def _nonzero(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    source = args[0]
    value = values.known(source)
    recorder.host_waits()
    if value is None:
        recorder.builder.assumed(
            f"{recorder.where.line()}: all elements taken as chosen of a mask that only a GPU would know."
        )
        value = torch.ones(source.shape, dtype=torch.bool)
    found = torch.nonzero(value)
    out = recorder._faked(
        aten.empty.memory_format, (list(found.shape),), {"dtype": torch.int64, "device": source.device}
    )
    values.learn(out, found)
    recorder.record(func, "nonzero", args, kwargs, [source], [out], out)
    return out


def _masked_select(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    source, mask = torch.broadcast_tensors(args[0], args[1])
    places = _nonzero(recorder, aten.nonzero.default, (mask,), {})
    with recorder:
        return source[tuple(places.unbind(1))]


def _indexed(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Indices that are masks become places."""
    indices = args[1]
    if not any(isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8) for index in indices):
        return NotImplemented
    places: list[Any] = []
    for index in indices:
        if isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8):
            found = (
                _nonzero(recorder, aten.nonzero.default, (index,), {})
                if isinstance(index, FakeTensor)
                else index.nonzero()
            )
            with recorder:
                places.extend(found.unbind(1) if found.dim() > 1 else [found])
        else:
            places.append(index)
    return recorder.run(func, (args[0], places, *args[2:]), kwargs)


def _chosen(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """The largest of values that nobody knows: taken as falling evenly on all."""
    source = args[0]
    if values.known(source) is not None:
        return NotImplemented
    out = recorder.run(func, args, kwargs)
    name = func.overloadpacket.__name__
    for tensor in _tensors((out,)):
        if not tensor.dtype.is_floating_point and isinstance(tensor, FakeTensor):
            dim = -1 if name == "multinomial" else argument(func, args, kwargs, "dim")
            among = source.numel() if dim is None or not source.dim() else source.shape[dim]
            values.learn(tensor, values.balanced(tensor.shape, among))
            recorder.builder.assumed(f"{recorder.where.line()}: what {name} picks taken as evenly spread.")
    return out


def _unscaled(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Gradients are taken as finite, or no step would be made."""
    found = args[1]
    value = values.known(found)
    out = recorder.run(func, args, kwargs)
    recorder.builder.assumed("Gradients of mixed precision taken as finite in every step.")
    values.learn(found, torch.zeros(found.shape) if value is None else value)
    return out


def _used_on(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    recorder.used_on(args[0], args[1])


def _unique_values(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    value = values.known(args[0])
    recorder.host_waits()
    if value is None:
        raise NotModelled(f"{recorder.where.line()}: {func} of values that only a GPU would know")
    found = func(value, *args[1:], **kwargs)

    def placed(real: Tensor) -> Tensor:
        out: Tensor = recorder._faked(
            aten.empty.memory_format, (list(real.shape),), {"dtype": real.dtype, "device": args[0].device}
        )
        values.learn(out, real)
        return out

    out = tree_map_only(Tensor, placed, found)
    recorder.record(func, func.overloadpacket.__name__, args, kwargs, [args[0]], list(_tensors((out,))), out)
    return out


def _finite(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Comparisons that ask whether values are finite: they are taken to be."""
    name, other = func.overloadpacket.__name__, args[1] if len(args) > 1 else None
    infinite = isinstance(other, float) and math.isinf(other)
    if values.known(args[0]) is not None or not (name in ("isnan", "isinf") or infinite or other is args[0]):
        return NotImplemented
    out = recorder.run(func, args, kwargs)
    recorder.builder.assumed("Values taken as finite wherever the program asks whether they are.")
    values.learn(out, torch.tensor(name == "ne" if infinite else name == "eq").expand(out.shape))
    return out


def _pinned(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    return True if func.overloadpacket.__name__ == "is_pinned" else args[0]


_SPECIAL: dict[str, Callable[..., Any]] = {
    "_local_scalar_dense": _item,
    "equal": _equal,
    "allclose": _equal,
    "_to_copy": _moved,
    "copy_": _copied,
    "nonzero": _nonzero,
    "masked_select": _masked_select,
    "index": _indexed,
    "topk": _chosen,
    "argmax": _chosen,
    "argmin": _chosen,
    "sort": _chosen,
    "argsort": _chosen,
    "multinomial": _chosen,
    "_amp_foreach_non_finite_check_and_unscale_": _unscaled,
    "record_stream": _used_on,
    "_unique2": _unique_values,
    "unique_dim": _unique_values,
    "unique_consecutive": _unique_values,
    "is_pinned": _pinned,
    "_pin_memory": _pinned,
    "isnan": _finite,
    "isinf": _finite,
    "eq": _finite,
    "ne": _finite,
    "bincount": _unique_values,
    "repeat_interleave": lambda r, f, a, k: (
        _unique_values(r, f, a, k) if len(a) == 1 and k.get("output_size") is None else NotImplemented
    ),
}
_LIKE = {"empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like"}
_FACTORIES = {"empty", "zeros", "ones", "full", "rand", "randn", "empty_strided"}


# -- small things ----------------------------------------------------------------------------------------------------


def _tensors(things: Any) -> Iterator[Tensor]:
    for thing in things:
        if isinstance(thing, Tensor):
            yield thing
        elif isinstance(thing, (list, tuple)):
            yield from _tensors(thing)


@functools.cache
def _is_wrapper(kind: type) -> bool:
    """Whether a class of tensors, as DTensor, takes operators by itself."""
    method = getattr(kind, "__torch_dispatch__", None)
    return (
        method is not None
        and method is not torch._C._disabled_torch_dispatch_impl
        and kind not in (Tensor, torch.nn.Parameter)
        and getattr(method, "__func__", method) is not getattr(Tensor, "__torch_dispatch__", None)
    )


@functools.cache
def _is_view(func: Any) -> bool:
    """Whether all results of an operator are other names of its operands' memory, and nothing is written."""
    returns = func._schema.returns
    return (
        bool(returns)
        and not func._schema.is_mutable
        and all(value.alias_info is not None for value in returns)
    )


@functools.cache
def _is_composite(func: Any) -> bool:
    """Whether an operator is made of others and has no kernel of its own."""
    kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return (
        isinstance(func, torch._ops.OpOverload)
        and kernel(func.name(), "CompositeImplicitAutograd")
        and not kernel(func.name(), "CUDA")
    )


@functools.cache
def _written_places(func: Any) -> tuple[tuple[int, str], ...]:
    return tuple(
        (place, argument.name)
        for place, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def _written(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """Tensors that an operator writes in place."""
    found: list[Any] = []
    for place, name in _written_places(func):
        if name in kwargs:
            found.append(kwargs[name])
        elif place < len(args):
            found.append(args[place])
    return list(_tensors(found))


def _unique(tensors: list[Tensor]) -> list[Tensor]:
    return list({id(tensor): tensor for tensor in tensors}.values())


def _bytes(tensor: Tensor) -> int:
    """Bytes that reading a tensor moves: no more than its storage has, of one that is expanded."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes() or 1 << 62)


def _count(shape: Any) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


@functools.cache
def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _operands(name: str, tensors: list[Tensor]) -> tuple[list[tuple[int, ...]], list[str]]:
    """Shapes and dtypes of operands; of operators over lists of tensors how many elements each dtype has."""
    if name.startswith(_MANY) or len(tensors) > 12:
        counts: dict[str, int] = {}
        for tensor in tensors:
            word = _word(tensor.dtype)
            counts[word] = counts.get(word, 0) + tensor.numel()
        return [(count,) for count in counts.values()], list(counts)
    return [tuple(tensor.shape) for tensor in tensors], [_word(tensor.dtype) for tensor in tensors]


def _flop(func: Any, name: str, args: Any, kwargs: Any, out: Any) -> int:
    count = flop_registry.get(func.overloadpacket)
    if count is None:
        return 0
    if func._overloadname.startswith("dtype"):  # the dtype of the result comes behind the operands
        args = args[: len(args) - 1] if "out_dtype" not in kwargs else args
    flop = int(
        count(
            *args,
            **{name: value for name, value in kwargs.items() if not name.startswith("out")},
            out_val=out,
        )
    )
    if "scaled_dot_product" in name and _causal(func, args, kwargs):
        flop //= 2  # what lies above the diagonal is skipped
    return flop


def _causal(func: Any, args: Any, kwargs: Any) -> bool:
    return bool(argument(func, args, kwargs, "is_causal"))


def argument(func: Any, args: Any, kwargs: Any, name: str) -> Any:
    """An argument of an operator by its name, its default where it isn't given; None of one that the operator hasn't."""
    for place, known in enumerate(func._schema.arguments):
        if known.name == name:
            return kwargs.get(name, args[place] if place < len(args) else known.default_value)
    return None

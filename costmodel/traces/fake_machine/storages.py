"""Storages of the device: when they are born, what they are, when they die."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from costmodel.traces.builder import RoleBuilder
from costmodel.traces.fake_machine.operators import local, word_of
from costmodel.traces.fake_machine.program import State, TracedProgram

BUFFERS = ("empty", "new_empty", "zeros", "new_zeros", "resize_", "cat", "all-", "reduce-")
"""Beginnings of what makes storages into which something is put together to be exchanged."""


class Life:
    """What is known of a storage, for as long as there is one."""

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


class Storages:
    """Storages of one rank.

    Parameters
    ----------
    builder : of the record
    program : that makes them
    """

    def __init__(self, builder: RoleBuilder, program: TracedProgram):
        self.builder, self.program = builder, program
        self.held = self.fullest = 0
        self.ended = False  # what goes as the program is left, in any order, is no part of it
        self._refs: dict[int, Any] = {}

    def row(self, tensor: Tensor, op: str = "", now: State | None = None) -> int | None:
        """The row of the storage that a tensor of the GPU lies in; born now unless it was before.

        Parameters
        ----------
        tensor : which
        op : that made it
        now : what the program does, where that is known
        """
        if tensor.device.type != "cuda" or not isinstance(tensor, FakeTensor):
            return None
        storage = tensor.untyped_storage()
        life = getattr(storage, "_life", None)
        if life is None:
            life = Life()
            storage._life = life  # type: ignore[attr-defined]
            number = id(life)
            self._refs[number] = weakref.ref(storage, lambda _, life=life, number=number: self._gone(life, number))
        if life.row is None:
            size = storage.nbytes()
            if not size:
                return None
            self._born(life, size, tuple(tensor.shape), tensor.dtype, op, now)
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
        row = self.row(tensor)
        if row is not None:
            self.builder.storage_used_on(row, self.program.numbered(stream.stream_id), self.program.where.line())

    def kind(self, tensor: Any, kind: str, parameter: str | None = None) -> None:
        """Say what a tensor of the GPU is."""
        tensor = local(tensor)
        if isinstance(tensor, Tensor) and tensor.layout == torch.sparse_coo:
            tensor = tensor._values()
        row = self.row(tensor) if isinstance(tensor, Tensor) else None
        if row is not None:
            self.builder.storage_is(row, kind=kind, parameter=parameter)
            life = tensor.untyped_storage()._life  # type: ignore[attr-defined]
            life.named, life.parameter = True, parameter or life.parameter

    def _born(self, life: Any, size: int, shape: tuple[int, ...], dtype: torch.dtype, op: str, now: State | None = None) -> None:
        phase, module, line, stream = now or self.program.state()
        life.bytes, life.shape, life.dtype, life.phase, life.named = size, shape, dtype, phase, False
        life.buffer = op.rpartition(".")[2].startswith(BUFFERS)
        life.row = self.builder.storage_born(
            size, module=module, shape=shape, dtype=word_of(dtype), op=op, stream=stream, phase=phase, line=line
        )
        self.held += size
        self.fullest = max(self.fullest, self.held)

    def _died(self, life: Any) -> None:
        if life.row is None or self.ended:
            return
        if not life.named and life.phase == "forward" and self.program.where.phase() == "backward":
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

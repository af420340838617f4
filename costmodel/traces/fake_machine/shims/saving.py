"""Checkpoints hold what the program would save, with tensors that have no values said by their shapes: they are small, and read.

Tried on torch 2.13, safetensors 0.8.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map_only

from costmodel.traces.fake_machine import values
from costmodel.traces.fake_machine.recorder import Recorder

MARK = b"costmodel traced checkpoint\n"
"""Begins what a traced program saved, where tensors without values are in it."""
Where = Callable[[str], str]
"""The device to which a tensor is loaded that was saved on one."""


class _Pickler(pickle.Pickler):
    """Pickles tensors without values by what they are."""

    found = False

    def reducer_override(self, thing: Any) -> Any:
        """Of tensors without values alone."""
        if not isinstance(thing, FakeTensor):
            return NotImplemented
        self.found = True
        known = values.known(thing)
        kept = None if known is None else known.detach().clone().contiguous()
        return _Saved, (
            tuple(thing.shape), tuple(thing.stride()), thing.dtype, str(thing.device), thing.requires_grad,
            isinstance(thing, torch.nn.Parameter), kept,
        )  # fmt: skip


def _Saved(*_: Any) -> Any:  # the name under which a file has it; `_Unpickler` makes the tensor
    raise pickle.UnpicklingError("a checkpoint of a traced program is read by a traced program")


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, where: Where):
        super().__init__(file)
        self._where = where

    def find_class(self, module: str, name: str) -> Any:
        """Of tensors without values what makes them."""
        return self._made if (module, name) == (__name__, _Saved.__name__) else super().find_class(module, name)

    def _made(
        self, shape: Any, stride: Any, dtype: torch.dtype, device: str, grad: bool, parameter: bool, known: Tensor | None
    ) -> Tensor:
        device = self._where(device)
        if torch.device(device).type == "cpu" and known is not None:
            made = known
        else:
            made = torch.empty_strided(shape, stride, dtype=dtype, device=device)
            if known is not None:
                values.learn(made, known)
        return torch.nn.Parameter(made, grad) if parameter else made.requires_grad_(grad)


def patch_torch(recorder: Recorder) -> None:
    """`torch.save`, and `torch.load` of what it saved, or of a file that was there before."""
    real_save, real_load = torch.save, torch.load
    if getattr(real_save, "_traced", False):
        return

    def save(what: Any, target: Any, *args: Any, **kwargs: Any) -> None:
        packed = None if torch.is_storage(what) else _packed(what)  # tensors with values are pickled by saving their storages
        if packed is None:
            real_save(what, recorder.ready(target) if _is_path(target) else target, *args, **kwargs)
        elif _is_path(target):
            with open(target, "wb") as file:
                file.write(packed)
        else:
            target.write(packed)

    def load(source: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not _is_path(source):
            start = source.tell()
            if source.read(len(MARK)) == MARK:
                return _Unpickler(source, _where(map_location)).load()
            source.seek(start)
            return _loaded(real_load, source, map_location, *args, **kwargs)
        with open(source, "rb") as file:
            if file.read(len(MARK)) == MARK:
                return _Unpickler(file, _where(map_location)).load()
        return _loaded(real_load, recorder.found(source), map_location, *args, **kwargs)

    save._traced = True  # type: ignore[attr-defined]
    torch.save, torch.load = save, load
    torch.serialization.save, torch.serialization.load = save, load


def patch(module: Any, recorder: Recorder) -> None:
    """`safetensors.torch`'s files."""
    real = module.load_file

    def save(tensors: Any, filename: Any, metadata: Any = None) -> None:
        torch.save(dict(tensors), filename)

    def load(filename: Any, device: Any = "cpu", **others: Any) -> Any:
        with open(filename, "rb") as file:
            ours = file.read(len(MARK)) == MARK
        device = f"cuda:{device}" if isinstance(device, int) else str(device)
        if ours:
            return torch.load(filename, device)
        return {name: tensor.to(device) for name, tensor in real(recorder.found(filename), **others).items()}

    module.save_file, module.load_file = save, load


def _is_path(target: Any) -> bool:
    return isinstance(target, (str, os.PathLike))


def _packed(what: Any) -> bytes | None:
    """What a file begins and goes on with; None where all tensors have values, or none."""
    file = io.BytesIO()
    file.write(MARK)
    pickler = _Pickler(file)
    try:
        pickler.dump(what)
    except (pickle.PicklingError, TypeError, AttributeError):  # torch.save says what can't be saved, unless it needs values
        return MARK + pickle.dumps(None) if pickler.found else None
    return file.getvalue() if pickler.found else None


def _where(map_location: Any) -> Where:
    """Where `torch.load` puts what was saved on a device."""
    if map_location is None or callable(map_location):  # a function is asked for storages, of which there are none
        return (lambda device: device) if map_location is None else (lambda device: "cpu")
    if isinstance(map_location, dict):
        table = {str(known): str(other) for known, other in map_location.items()}
        return lambda device: table.get(device, device)
    return lambda device: str(torch.device(map_location))


def _loaded(real: Any, source: Any, map_location: Any, *args: Any, **kwargs: Any) -> Any:
    """What lies in a file with values: `torch.load` brings all to the CPU, and what the device would have goes on to it."""
    where, devices = _where(map_location), dict[int, str]()

    def stays(storage: Any, device: str) -> Any:
        devices[storage.data_ptr()] = where(device)
        return storage

    def placed(tensor: Tensor) -> Tensor:
        device = devices.get(tensor.untyped_storage().data_ptr(), "cpu")
        if torch.device(device).type == "cpu":
            return tensor
        moved = tensor.to(device)
        return torch.nn.Parameter(moved, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else moved

    found = real(source, stays if map_location is None or not callable(map_location) else map_location, *args, **kwargs)
    return tree_map_only(Tensor, placed, found)

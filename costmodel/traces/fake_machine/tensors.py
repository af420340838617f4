"""What tensors of a device that isn't there do in Python, where no operator shows it: how they are made, moved, copied, said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._device import DeviceContext
from torch.utils._pytree import tree_map_only

from costmodel.traces.fake_machine import values
from costmodel.traces.fake_machine.recorder import Recorder

Patch = tuple[Any, str, Any]


def patches(recorder: Recorder) -> Iterator[Patch]:
    """What stands in the place of attributes of PyTorch: their owner, name and value.

    Parameters
    ----------
    recorder : of what tensors are told
    """
    yield from _makers()
    yield from _parameters(recorder)
    yield from _methods(recorder)
    yield from _storages(recorder)


def _default_device() -> torch.device:
    """Where tensors are made by default; ``torch.get_default_device`` makes one to learn a GPU's number."""
    modes = reversed(torch.overrides._get_current_function_mode_stack())
    return next((mode.device for mode in modes if isinstance(mode, DeviceContext)), torch.device("cpu"))


def _makers() -> Iterator[Patch]:
    """`torch.tensor` and its like."""
    real = {name: getattr(torch, name) for name in ("tensor", "as_tensor", "asarray")}

    def placed(name: str) -> Callable[..., Any]:
        make = real[name]

        def made(*args: Any, **kwargs: Any) -> Any:
            if args and isinstance(args[0], (list, tuple)) and isinstance(_first(args[0]), FakeTensor):
                args = (tree_map_only(FakeTensor, _number, args[0]), *args[1:])
            device = kwargs.get("device")
            device = _default_device() if device is None else torch.device(device)
            if device.type == "cpu" or (name != "tensor" and args and isinstance(args[0], torch.Tensor)):
                return make(*args, **kwargs)
            pin = kwargs.pop("pin_memory", None)
            grad = kwargs.pop("requires_grad", False)
            del pin
            with torch.device("cpu"):
                out = make(*args, **{**kwargs, "device": "cpu"})
            return out.to(device).requires_grad_(grad)

        return made

    for name in real:
        yield torch, name, placed(name)


def _first(things: Any) -> Any:
    """The first entry of nested lists."""
    while isinstance(things, (list, tuple)) and things:
        things = things[0]
    return things


def _number(tensor: Tensor) -> Any:
    """A tensor of one element among numbers; the host waits for it."""
    return tensor.item()


def _parameters(recorder: Recorder) -> Iterator[Patch]:
    """Parameters hold no memory, wherever they are, and stay the objects that they are."""
    parameter = torch.nn.Parameter

    def new_parameter(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        if type(data) is torch.Tensor and data.device.type == "cpu":
            with recorder.fake:
                data = torch.empty_strided(data.shape, data.stride(), dtype=data.dtype, device="cpu")
        return real_new(cls, data, requires_grad)

    real_new = parameter.__new__
    yield parameter, "__new__", staticmethod(new_parameter)
    yield torch.nn.Module, "_apply", _applied(torch.nn.Module._apply)


def _methods(recorder: Recorder) -> Iterator[Patch]:
    """Of tensors."""
    get, put = torch.Tensor.data.__get__, torch.Tensor.data.__set__  # type: ignore[attr-defined]

    def put_data(tensor: Any, new: Any) -> None:
        if type(new) is torch.Tensor and new.device.type == "cpu":  # small ones of the host have memory, and this one has none
            new = fake_copy(new, recorder)
        put(tensor, new)
        if isinstance(new, FakeTensor):
            tensor.fake_device = new.fake_device
            tensor.__dict__.pop("_known", None)
            value = values.known(new)
            if value is not None:
                values.learn(tensor, value)

    yield FakeTensor, "data", property(lambda tensor: get(tensor), put_data)
    yield torch.Tensor, "pin_memory", lambda tensor, device=None: values.pin(tensor)
    yield FakeTensor, "data_ptr", _address
    yield FakeTensor, "__format__", _formatted
    yield FakeTensor, "__deepcopy__", _deeply_copied
    yield FakeTensor, "numpy", _array
    yield FakeTensor, "record_stream", lambda tensor, stream: recorder.storages.used_on(tensor, stream)
    yield (
        FakeTensor,
        "cuda",
        lambda tensor, device=None, non_blocking=False, memory_format=torch.preserve_format: tensor.to(
            "cuda" if device is None else device if not isinstance(device, int) else f"cuda:{device}", non_blocking=non_blocking
        ),
    )


def _storages(recorder: Recorder) -> Iterator[Patch]:
    """Of storages, whose memory FSDP gives back and asks for once more."""
    storage = torch.UntypedStorage
    resize, pointer = storage.resize_, storage.data_ptr

    def resized(self: Any, size: int) -> Any:
        if self.device.type == "meta":
            recorder.storages.resized(self, int(size))
        return resize(self, size)

    yield storage, "resize_", resized
    yield (
        storage,
        "data_ptr",
        lambda self: (self._cdata if self.nbytes() else 0) if self.device.type == "meta" else pointer(self),
    )


def _formatted(tensor: Any, spec: str) -> str:
    """As `torch.Tensor` formats: a number, for which the host waits, or all of it by its text."""
    return format(tensor.item() if tensor.dim() == 0 else str(tensor), spec)


def _deeply_copied(tensor: Any, memo: dict[int, Any]) -> Any:
    """A copy of a tensor, and of its gradient; a parameter stays one, without."""
    if not tensor.is_leaf:
        raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol")
    with torch.no_grad():
        copied = tensor.detach().clone().requires_grad_(tensor.requires_grad)
    memo[id(tensor)] = copied
    if isinstance(tensor, torch.nn.Parameter):
        copied._is_param = True
    elif tensor.grad is not None:
        copied.grad = _deeply_copied(tensor.grad, memo)
    return copied


def _array(tensor: Any, *, force: bool = False) -> Any:
    """Values that nobody knows, for NumPy: one number that is held once."""
    if force:
        tensor = tensor.detach().cpu()
    if not isinstance(tensor, FakeTensor):
        return tensor.numpy()
    if tensor.device.type != "cpu":
        raise TypeError(
            f"can't convert {tensor.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory."
        )
    if tensor.requires_grad:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    one = torch.full((), values.guessed(tensor.dtype), dtype=tensor.dtype).numpy()
    return np.broadcast_to(one, tuple(tensor.shape))


def fake_copy(tensor: Tensor, recorder: Recorder) -> Tensor:
    """A tensor of the host without its memory, with its values where they may matter."""
    with recorder.fake:
        made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
    if values.worth_knowing(tensor):
        values.learn(made, tensor)
    return made


def _address(tensor: Any) -> int:
    storage = tensor.untyped_storage()
    return int(storage._cdata) + tensor.storage_offset() * tensor.element_size() if storage.nbytes() else 0


def _applied(real: Callable[..., Any]) -> Callable[..., Any]:
    def apply(module: Any, fn: Any, recurse: bool = True) -> Any:
        """Parameters stay the objects that they are when they are moved or cast, as on a device that is there."""
        parameters = module._parameters
        ours = {key: value for key, value in parameters.items() if isinstance(value, FakeTensor)}
        for key in ours:
            parameters[key] = None
        try:
            real(module, fn, recurse)
        finally:
            for key, value in ours.items():
                parameters[key] = value
        for key, value in ours.items():
            with torch.no_grad():
                new = fn(value)
                grad = None if value.grad is None else fn(value.grad)
            if isinstance(new, FakeTensor):
                if new is not value:
                    value.data = new.data if new.requires_grad else new
                    if grad is not None:
                        value.grad = None
                        value.grad = grad
            else:
                parameters[key] = torch.nn.Parameter(new, value.requires_grad)
        return module

    return apply

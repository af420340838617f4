"""What operators gave the last time that they were given the same: shapes, strides and types decide how results look."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
"""Classes of arguments that are what they are equal to."""


class _Unlike(Exception):
    """Something is given of which more matters than how it looks."""


class _Look(NamedTuple):
    """A result: one of the tensors that were given, or another name of its memory, or a tensor of its own."""

    same: int  # place of the tensor that it is, -1 of none
    memory: int  # the same, of the tensor in whose memory it lies
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: torch.device


class KnownResults:
    """Results of operators on tensors of a GPU that isn't there, by what they were given.

    PyTorch's mode keeps them, too; to find one takes it five times as long, since it serves tensors and shapes of all kinds.

    Parameters
    ----------
    fake : mode of the tensors
    """

    def __init__(self, fake: FakeTensorMode):
        self.fake = fake
        self._known: dict[Any, Any] = {}

    def key(self, func: Any, args: Any, kwargs: Any) -> Any:
        """What decides how an operator's results look; None where that isn't known.

        Parameters
        ----------
        func, args, kwargs : the operator and what it is given
        """
        if getattr(func, "namespace", "") != "aten" or not _regular(func):
            return None
        try:
            given = tuple(map(_look, args)), tuple((name, _look(value)) for name, value in kwargs.items())
        except _Unlike:
            return None
        return func, given, torch.is_inference_mode_enabled(), torch.get_default_dtype()

    def found(self, key: Any, tensors: Sequence[Tensor]) -> tuple[bool, Any]:
        """Whether results are known, and what they are.

        Parameters
        ----------
        key : that `key` gave
        tensors : that the operator is given
        """
        entry = self._known.get(key)
        if entry is None:
            return False, None
        kind, looks = entry
        if kind is None:
            return True, None
        made = [self._made(look, tensors) for look in looks]
        return True, made[0] if kind is Tensor else kind(made)

    def learn(self, key: Any, tensors: Sequence[Tensor], out: Any) -> None:
        """Keep how results look, unless that can't be told again.

        Parameters
        ----------
        key, tensors : as before
        out : the results
        """
        if out is None:
            self._known[key] = None, ()
            return
        kind = type(out) if type(out) in (list, tuple) else Tensor
        looks = [_seen(one, tensors) for one in (out if kind is not Tensor else (out,))]
        if all(look is not None for look in looks):
            self._known[key] = kind, tuple(looks)

    def _made(self, look: _Look, tensors: Sequence[Tensor]) -> Tensor:
        if look.same >= 0:
            return tensors[look.same]
        with torch._C._DisableTorchDispatch():
            empty = torch.empty_strided(look.shape, look.stride, dtype=look.dtype, device="meta")
            if look.memory >= 0:
                empty.set_(tensors[look.memory].untyped_storage(), look.offset, look.shape, look.stride)
        return FakeTensor(self.fake, empty, look.device)


def _look(thing: Any) -> Any:
    """What matters of an argument."""
    if isinstance(thing, Tensor):
        if not isinstance(thing, FakeTensor) or thing.fake_device.type != "cuda" or thing.layout != torch.strided:
            raise _Unlike
        if thing.dtype.is_complex or thing.constant is not None or not thing.untyped_storage().nbytes():
            raise _Unlike
        return thing.shape, thing.stride(), thing.storage_offset(), thing.dtype, thing.fake_device
    if isinstance(thing, (list, tuple)):
        return tuple(map(_look, thing))
    if isinstance(thing, PLAIN):
        return type(thing), thing
    raise _Unlike


def _seen(out: Any, tensors: Sequence[Tensor]) -> _Look | None:
    """How a result looks; None where that isn't all there is to it."""
    if type(out) is not FakeTensor or out.layout != torch.strided or out.requires_grad or out.constant is not None:
        return next((_Look(place, -1, (), (), 0, one.dtype, one.device) for place, one in enumerate(tensors) if one is out), None)
    same = next((place for place, one in enumerate(tensors) if one is out), -1)
    storage = out.untyped_storage()
    memory = next((place for place, one in enumerate(tensors) if one.untyped_storage()._cdata == storage._cdata), -1)
    if same < 0 and memory < 0 and (out.storage_offset() or storage.nbytes() != _spanned(out)):
        return None
    return _Look(same, memory, tuple(out.shape), out.stride(), out.storage_offset(), out.dtype, out.fake_device)


def _spanned(tensor: Tensor) -> int:
    """Bytes from a tensor's first element to its last."""
    if not tensor.numel():
        return 0
    return tensor.element_size() * (1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True)))


@functools.cache
def _regular(func: Any) -> bool:
    """Whether looks decide looks: not of operators whose results depend on values, or that change the looks of what they get."""
    ruled_out = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view}
    return not (ruled_out & set(func.tags) or func.overloadpacket.__name__.startswith(("lift", "resize", "set_", "_resize")))

"""Values of small tensors whose device isn't there: whole numbers and truth values are real, others assumed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

MOST_WHOLE = 1 << 22
"""Elements of tensors of whole numbers or truth values whose values are kept."""
MOST_FLOATS = 64
"""Elements of tensors of floats whose values are kept where they are known."""


def worth_knowing(tensor: Tensor) -> bool:
    """Whether a tensor's values are kept: they may steer the program."""
    floats = tensor.dtype.is_floating_point or tensor.dtype.is_complex
    return tensor.numel() <= (MOST_FLOATS if floats else MOST_WHOLE)


def known(tensor: Tensor) -> Tensor | None:
    """The values of a tensor, on the CPU; None where nobody knows them.

    Parameters
    ----------
    tensor : real, or one of a device that isn't there
    """
    if not isinstance(tensor, FakeTensor):
        return tensor if tensor.device.type == "cpu" else None
    held = tensor.__dict__.get("_known")
    if held is None or held[1] != _generation(tensor):
        return None
    value: Tensor = held[0]
    return value


def uniform(value: Tensor) -> bool:
    """Whether all values are one number that is held once."""
    return value.numel() == 1 or (value.numel() > 0 and not any(value.stride()))


def learn(tensor: Tensor, value: Tensor) -> None:
    """Keep the values of a tensor of a device that isn't there."""
    if isinstance(tensor, FakeTensor):
        tensor.__dict__["_known"] = (value, _generation(tensor))


def forget(tensor: Tensor) -> None:
    """Something unknown was written into a tensor: nobody knows the values of what shares its memory any more."""
    if isinstance(tensor, FakeTensor):
        tensor.__dict__.pop("_known", None)
        storage = tensor.untyped_storage()
        storage._generation = getattr(storage, "_generation", 0) + 1  # type: ignore[attr-defined]


def whole(tensor: Tensor) -> bool:
    """Whether a tensor covers all of its memory, so that writing it tells all values there."""
    return tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes() and tensor.is_contiguous()


def guessed(dtype: torch.dtype) -> Any:
    """What is taken for a value that only a GPU would know."""
    if dtype == torch.bool:
        return False
    return 1.0 if dtype.is_floating_point else 1


def balanced(shape: torch.Size | tuple[int, ...], among: int) -> Tensor:
    """Choices that fall evenly on all: what is taken for the experts that a router picks."""
    count = 1
    for size in shape:
        count *= size
    return (torch.arange(count, dtype=torch.int64) % max(1, among)).reshape(tuple(shape))


def pin(tensor: Tensor) -> Tensor:
    """Take the memory of a tensor of the host as pinned."""
    tensor.untyped_storage()._pinned = True  # type: ignore[attr-defined]
    return tensor


def is_pinned(tensor: Tensor) -> bool:
    """Whether a tensor of the host lies in pinned memory."""
    return getattr(tensor.untyped_storage(), "_pinned", False)


def _generation(tensor: Tensor) -> int:
    return getattr(tensor.untyped_storage(), "_generation", 0)

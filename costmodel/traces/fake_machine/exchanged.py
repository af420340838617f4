"""Values that an exchange leaves, where they are known: partners are taken to hold what this rank holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from costmodel.traces.fake_machine import values


def reduced(tensors: Sequence[Tensor], opts: Any, ranks: int) -> None:
    """Tensors hold the sum of what so many ranks hold, all of which hold the same."""
    sums = "SUM" in str(getattr(opts, "reduceOp", opts)).upper()
    for tensor in tensors:
        value = values.known(tensor)
        if value is None:
            values.forget(tensor)
        elif sums and tensor.numel():
            with torch.no_grad():
                value.mul_(ranks)


def copied(outs: Sequence[Tensor], source: Tensor) -> None:
    """Tensors hold what another holds."""
    value = values.known(source)
    for out in outs:
        if value is None:
            values.forget(out)
        elif not isinstance(out, FakeTensor):
            out.copy_(
                value.reshape(out.shape) if value.numel() == out.numel() else value.flatten()[: out.numel()].reshape(out.shape)
            )
        elif values.worth_knowing(out) and value.numel() == out.numel():
            values.learn(out, value.reshape(out.shape).to(out.dtype, copy=True))
        else:
            values.forget(out)


def gathered(output: Tensor, input: Tensor, ranks: int) -> None:
    """A tensor holds what so many ranks hold, all of which hold the same."""
    value = values.known(input)
    if value is None or not values.worth_knowing(output):
        values.forget(output)
        return
    many = value.flatten().repeat(ranks).reshape(output.shape)
    if isinstance(output, FakeTensor):
        values.learn(output, many)
    else:
        output.copy_(many)

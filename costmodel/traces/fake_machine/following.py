"""Values of tensors that an operator makes, where they are known and may steer the program."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map_only

from costmodel.traces.fake_machine import values
from costmodel.traces.fake_machine.operators import OVERWRITE, tensors_in, written_by

POINTWISE = {"mul", "logical_or", "logical_and", "logical_not", "bitwise_or", "bitwise_and", "bitwise_not", "_to_copy", "detach"}
"""Operators through which values that are all the same stay so, however many they are."""
SHAPED = {"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"}
"""Operators that read no value of the tensor that they are given."""


def follow(func: Any, args: Any, kwargs: Any, tensors: list[Tensor], outs: list[Tensor], name: str) -> None:
    """Run the operator on values, where they are known and may matter; else nobody knows what it wrote."""
    mutable = func._schema.is_mutable
    if name in POINTWISE and outs and not values.worth_knowing(outs[0]):
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
        if name in OVERWRITE and isinstance(args[0], FakeTensor) and values.known(args[0]) is None and values.whole(args[0]):
            overwritten = torch.empty(args[0].shape, dtype=args[0].dtype)
            values.learn(args[0], overwritten)
        table: dict[int, Tensor] = {}
        for tensor in tensors:
            value = values.known(tensor)
            if value is None and name in SHAPED:
                value = torch.empty((), dtype=tensor.dtype).expand(tensor.shape)
            if value is None:
                break
            table[id(tensor)] = value.contiguous() if mutable else value  # one number that stands for all can't be written into
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
                for out, value in zip(outs, tensors_in((found,)), strict=False):
                    values.learn(out, value)
                return
        if overwritten is not None:
            values.forget(args[0])
    if mutable:
        for tensor in written_by(func, args, kwargs):
            values.forget(tensor)

"""How often what is given to torch.compile would be compiled: for lengths that change, as TorchDynamo's guards have it.

References
----------
pytorch/pytorch torch/_dynamo/config.py: ``automatic_dynamic_shapes``, ``recompile_limit``
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

RECOMPILED = 8
"""Lengths for which code is compiled by itself before PyTorch runs it as it is."""


class Compilations:
    """For which tensors a part of a program was compiled.

    Parameters
    ----------
    dynamic : whether lengths may change: None for those that were seen to, as PyTorch has it unless told
    """

    def __init__(self, dynamic: bool | None):
        self.dynamic = dynamic
        self._lengths: dict[tuple[Any, ...], list[set[int]]] = {}

    def again(self, *called_with: Any) -> bool:
        """Whether a call compiles what was compiled before for other lengths; kinds of calls are compiled each by itself."""
        tensors = [leaf for leaf in tree_leaves(called_with) if isinstance(leaf, Tensor)]
        kind = (torch.is_grad_enabled(), *((tensor.dtype, tensor.dim()) for tensor in tensors))
        lengths = [length for tensor in tensors for length in tensor.shape]
        known = self._lengths.setdefault(kind, [{length} for length in lengths])
        unknown = [place for place, length in enumerate(lengths) if length not in known[place]]
        if self.dynamic is None:
            unknown = [place for place in unknown if len(known[place]) == 1]
        for place in unknown:
            known[place].add(lengths[place])
        return bool(unknown) and self.dynamic is not True and all(len(known[place]) <= RECOMPILED for place in unknown)

"""Steps that a program makes without an optimizer: its own loop changes the weights behind a backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from costmodel.traces.fake_machine.operators import written_by
from costmodel.traces.fake_machine.storages import Storages
from costmodel.traces.fake_machine.whereabouts import Where


class OwnUpdates:
    """Sees where a program changes its weights by itself: from the first one changed to the next pass is a step.

    Parameters
    ----------
    where : the program is
    storages : what lies in memory
    done : called when such a step has ended
    """

    def __init__(self, where: Where, storages: Storages, done: Callable[[], None]):
        self._where, self._storages, self._done = where, storages, done
        self.optimizers = 0
        """That the program made: one who has any leaves steps to them, whatever else it writes into weights."""
        self.weights: dict[str, Tensor] = {}
        """Parameters of modules by their names."""
        self._updating = False

    def sees(self, func: Any, args: Any, kwargs: Any, tensors: list[Tensor]) -> None:
        """An operator comes, which may begin an update or be the first one behind it."""
        if func._schema.is_mutable:
            if self._updating or (not self.optimizers and self._where.behind_backward):
                for tensor in written_by(func, args, kwargs):
                    weight = self._weight(tensor)
                    if weight is not None and weight.grad is not None:
                        self._changes(weight)
        elif self._updating and torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            self.ends()

    def ends(self) -> None:
        """The next pass begins."""
        if self._updating:
            self._updating = False
            self._where.optimizing -= 1
            self._done()

    def _changes(self, weight: Tensor) -> None:
        if not self._updating:
            self._updating = True
            self._where.optimizing += 1
        self._storages.kind(weight, "weight")
        self._storages.kind(weight.grad, "gradient")

    def _weight(self, tensor: Tensor) -> Tensor | None:
        """The weight that a tensor is, or in whose memory it lies, as `.data` does."""
        if tensor.requires_grad and tensor.is_leaf:
            return tensor
        life = getattr(tensor.untyped_storage(), "_life", None)
        return None if life is None or not life.parameter else self.weights.get(life.parameter)

"""Values that steer a program and go from rank to rank: sent by letter between traced ranks, forgotten where there is none."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from costmodel.traces.fake_machine import values
from costmodel.traces.fake_machine.exchanged import copied
from costmodel.traces.fake_machine.mailbox import Mailbox
from costmodel.traces.record import NOWHERE

DEALT = -1
"""In a tag's place, of letters that hold a part for each rank."""


class Letters:
    """Letters of one group.

    Parameters
    ----------
    mailbox : to other traced ranks; None where there are none
    ranks : members of the group, as ranks of the world
    rank : this one, of the world
    """

    def __init__(self, mailbox: Mailbox | None, ranks: Sequence[int], rank: int):
        self.mailbox, self.ranks, self.rank = mailbox, tuple(ranks), rank
        self._written: dict[tuple[int, int, int], int] = {}

    def send(self, tensor: Tensor, target: int, tag: int) -> None:
        """Send what a tensor holds to a rank, which is run, too."""
        if self.mailbox is None:
            return
        self.mailbox.want(target)
        if _steers(tensor):
            self._post(self.mailbox, self._key(self.rank, target, tag), tensor)

    def receive(self, tensor: Tensor, source: int, tag: int, line: str) -> None:
        """A tensor holds what a rank sent, which is run, too."""
        if self.mailbox is not None:
            self.mailbox.want(source)
        if self.mailbox is not None and _steers(tensor):
            _put(tensor, self.mailbox.take(self._key(source, self.rank, tag), source, line))
        else:
            values.forget(tensor)

    def tell(self, tensor: Tensor, root: int, line: str) -> None:
        """A tensor holds what a root tells all."""
        if self.mailbox is None or len(self.ranks) == 1 or not _steers(tensor):
            if values.known(tensor) is None:
                values.forget(tensor)
            return
        key = self._key(root, NOWHERE, 0)
        if root == self.rank:
            self._post(self.mailbox, key, tensor)
        else:
            _put(tensor, self.mailbox.take(key, root, line))

    def deal(self, outs: Sequence[Tensor], parts: Sequence[Tensor], root: int, line: str) -> None:
        """Tensors hold what a root, which has a part for each rank of the group, gives this one."""
        place = self.ranks.index(self.rank)
        for out in outs:
            if root == self.rank:
                copied([out], parts[place])
                if self.mailbox is not None and _steers(out):
                    known = [values.known(part) for part in parts]
                    whole = None if any(one is None for one in known) else torch.stack([one for one in known if one is not None])
                    self.mailbox.post(self._key(root, NOWHERE, DEALT), whole)
            elif self.mailbox is None or not _steers(out):
                values.forget(out)
            else:
                dealt = self.mailbox.take(self._key(root, NOWHERE, DEALT), root, line)
                _put(out, None if dealt is None else dealt[place])

    def _post(self, mailbox: Mailbox, key: str, tensor: Tensor) -> None:
        value = values.known(tensor)
        mailbox.post(key, None if value is None else value.detach().clone())

    def _key(self, source: int, target: int, tag: int) -> str:
        key = (source, target, tag)
        number = self._written[key] = self._written.get(key, 0) + 1
        return f"{(self.ranks, *key)} {number}"


def _steers(tensor: Tensor) -> bool:
    """Whether a tensor's values may steer the program: whole numbers, pickled objects."""
    return not tensor.dtype.is_floating_point and tensor.numel() <= values.MOST_WHOLE


def _put(tensor: Tensor, value: Tensor | None) -> None:
    if value is None:
        values.forget(tensor)
    elif isinstance(tensor, FakeTensor):
        values.learn(tensor, value.reshape(tensor.shape))
    else:
        with torch.no_grad():
            tensor.copy_(value.reshape(tensor.shape))
